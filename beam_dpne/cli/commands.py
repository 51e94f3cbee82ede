"""The commands of `beam-dpne`, each with its groups of parameters, and how their options are read."""

import argparse
import contextlib
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from beam_dpne.cli.help import help_of
from beam_dpne.jobs.arguments import unknown_argument
from beam_dpne.jobs.made import (
    Groups,
    Made,
    imported,
    load_groups,
    parameters_in,
    read_parameters,
    with_file,
)
from beam_dpne.jobs.programs import FILES, PLAN_FILE, PROGRAMS, SHOWING
from beam_dpne.validation import Parameter


class OneLineParser(argparse.ArgumentParser):
    """A parser that prints an error as one line."""

    def error(self, message: str) -> NoReturn:
        """Prints the error and exits with status 2."""
        told = re.sub(
            r"^argument (--\w+): expected one argument$", r"\1 must have a value", message
        )
        self.exit(2, f"beam-dpne: error: {told}. See --help.\n")


class Once(argparse.Action):
    """What an option gives that must not be given twice; a flag gives its `const`."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Notes the value."""
        if getattr(namespace, self.dest) is not None:
            parser.error(f"{option_string} is given twice; give it once")
        setattr(namespace, self.dest, self.const if values == [] else values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """One command. Names are imported when it runs, since Beam takes two seconds to load.

    Attributes:
      name: its name on the command line.
      description: its first sentence stands in the list of commands, and all of it in the help.
      example: a command line, for the help.
      groups: its groups of parameters, "module:Class" below `beam_dpne`, by the title under which they
        are shown.
      run: the function that runs it, or "module:function" below `beam_dpne.cli`; it takes the groups
        with their values, and the options of Beam.
      positional: name of the parameter whose values come without its name, or "".
      takes_beam: whether options of Beam may follow.
      needs_all: whether what has no default must be given.
    """

    name: str
    description: str
    example: str
    groups: Mapping[str, Sequence[str]]
    run: str | Callable[[Made, list[str]], object]
    positional: str = ""
    takes_beam: bool = False
    needs_all: bool = True

    def load_groups(self) -> Groups:
        """Returns the classes of its groups; they are loaded without Beam."""
        return load_groups(self.groups)

    @property
    def parameters(self) -> dict[str, Parameter]:
        """All its parameters by name."""
        return parameters_in(self.load_groups())

    @property
    def publishes(self) -> bool:
        """Whether it publishes a release; `check` takes the same options and does not."""
        return self.takes_beam and self.needs_all

    @property
    def function(self) -> Callable[[Made, list[str]], object]:
        """The function that runs it."""
        return imported(f"beam_dpne.cli.{self.run}") if isinstance(self.run, str) else self.run

    def help(self, *, whole: bool) -> str:
        """Returns its help: what most runs need, or all of it."""
        shown = help_of(self, self.load_groups(), whole=whole)
        if not self.takes_beam:
            return shown
        return f"{shown}\nOptions of Apache Beam (--runner, …) may follow."

    def parser(self) -> argparse.ArgumentParser:
        """Returns a parser with an option for each parameter."""
        parser = OneLineParser(add_help=False, allow_abbrev=False)
        for each in self.parameters.values():
            self._add_option(parser, each)
        return parser

    def _add_option(self, parser: argparse.ArgumentParser, each: Parameter) -> None:
        if each.name == self.positional:
            parser.add_argument(each.name, nargs="*" if each.several else "?")
        elif each.kind is bool and self.positional:  # A value after it would be the positional one.
            parser.add_argument(f"--{each.name}", action=Once, nargs=0, const="true")
        elif each.kind is bool:
            parser.add_argument(f"--{each.name}", action=Once, nargs="?", const="true")
        else:
            parser.add_argument(f"--{each.name}", action="append" if each.several else Once)

    def read(self, arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        """Returns the values by name that arguments and the file of `plan` give, and Beam's options.

        Raises:
          ValueError: a value has a wrong form, a name is unknown, or a parameter is given twice.
        """
        parsed, others = self.parser().parse_known_args(list(arguments))
        parameters = self.parameters
        if others and not (self.takes_beam and others[0].startswith("-")):
            raise unknown_argument(others[0], parameters)
        if others:
            from beam_dpne.jobs.preparing import refuse_misspelt

            refuse_misspelt(others, parameters)
        texts = {name: value for name, value in vars(parsed).items() if value not in (None, [])}
        given = {name: _value(parameters[name], text) for name, text in texts.items()}
        return with_file(given, self.load_groups()), others

    def in_file(self, arguments: Sequence[str]) -> dict[str, str]:
        """Returns the names of the parameters in the file of `plan`, each with the path of the file."""
        parsed, _ = self.parser().parse_known_args(list(arguments))
        path = getattr(parsed, "plan", None)
        with contextlib.suppress(ValueError):
            if path:
                return {name: str(path) for name in read_parameters(path, self.parameters)}
        return {}


def _value(each: Parameter, given: str | list[str]) -> Any:
    """Returns a value from its text, or from the texts of an option that is given repeatedly."""
    if isinstance(given, str):
        return each.parse(given)
    parts = [each.parse(text) for text in given]
    values = tuple(x for part in parts for x in (part if isinstance(part, tuple) else (part,)))
    return values[0] if each.single and len(values) == 1 else values


def _releasing(name: str, description: str, example: str) -> Command:
    """Returns the command of a program, which publishes a release."""
    return Command(
        name=name,
        example=f"beam-dpne {name} --input messages.csv --user_field customer_id {example} "
        "--epsilon 4 --delta 1e-6",
        description=f"{description}, with user-level (ε, δ)-differential privacy.",
        groups=PROGRAMS[name].groups,
        run="runs:run",
        takes_beam=True,
    )


def _reading(
    name: str, description: str, settings: str, positional: str, run: str, *, example: str
) -> Command:
    """Returns a command with one group of settings, which reads no private data."""
    return Command(
        name=name,
        example=f"beam-dpne {name} {example}",
        description=description,
        groups={name: (f"cli.settings:{settings}",)},
        run=run,
        positional=positional,
    )


COMMANDS = (
    _releasing(
        "ngrams",
        "Releases n-grams of many users",
        "--text_field message --output release/messages",
    ),
    _releasing(
        "set-union",
        "Releases the items that many users share (words, names, queries, whole records)",
        "--text_field city --tokenizer item --output release/cities",
    ),
    _releasing(
        "bayesian",
        "Estimates a probability for every n-gram of a public vocabulary from users' texts",
        "--text_field message --public public.txt --output release/probabilities",
    ),
    _releasing(
        "count",
        "Counts the users of each phrase of a public list",
        "--text_field message --phrases phrases.txt --output release/numbers",
    ),
    Command(
        name="plan",
        description="Shows before a run how many users an n-gram needs, or the noise and thresholds of "
        "another program, and writes the plan to a file. With a number of users and public text it "
        "forecasts a release. It never reads private data.",
        example="beam-dpne plan ngrams --epsilon 4 --delta 1e-7 --users 30000 --like titles",
        groups={
            "privacy": PROGRAMS["ngrams"].groups["privacy"],
            "planning": ("jobs.asking:Planning", "jobs.parameters:Quiet"),
            "reading the public text": FILES,
        },
        run="plans:plan",
        positional="program",
    ),
    Command(
        name="evaluate",
        description="Compares a release with the private data it came from, for the operator. Its "
        "output is NOT private. The data must fit in memory: 2 GB for 10 million words, 9 lengths.",
        example="beam-dpne evaluate --release release/messages --input messages.csv",
        groups={
            "reading": ("jobs.parameters:Input", *FILES, PLAN_FILE),
            "evaluating": ("jobs.asking:Evaluating", *SHOWING),
        },
        run="releases:evaluate_release",
    ),
    Command(
        name="check",
        description="Reads the input of a run and says what it would read, in exact numbers for the "
        "operator. It takes the options of the run, writes nothing and spends nothing.",
        example="beam-dpne check ngrams --input messages.csv --user_field customer_id --text_field "
        "message",
        groups={"check": ("cli.settings:Checking",)},
        run="checks:check",
        positional="program",
    ),
    Command(
        name="account",
        description="Adds up what releases of the same users have spent, from their ledgers, and keeps "
        "a budget.",
        example="beam-dpne account release/2025-01 release/2025-02",
        groups={"account": ("jobs.asking:Accounting",)},
        run="releases:account",
        positional="ledgers",
    ),
    _reading(
        "series create",
        "Makes a series of releases, in so many of which each user takes part at most. Together they "
        "have one budget.",
        *("CreatingSeries", "folder", "series:create"),
        example="series/forum --participants private/forum --releases 12 --releases_per_user 2 "
        "--epsilon 8 --delta 1e-6",
    ),
    _reading(
        "series show",
        "Shows what the releases of a series have spent, and what is left. It reads no private data.",
        *("ShowingSeries", "folder", "series:show"),
        example="series/forum",
    ),
    _reading(
        "compare",
        "Shows what is new, risen, fallen or gone between two releases. It reads the releases alone, "
        "and spends no budget.",
        *("Comparing", "releases", "comparing:compare"),
        example="release/2025-01 release/2025-02 --output changes.csv",
    ),
    _reading(
        "show",
        "Shows the first rows of a release, how many it has, and what its guarantee says.",
        *("Showing", "release", "looking:show"),
        example="release/messages --length 2 --top 20",
    ),
    _reading(
        "export",
        "Writes a release, which must fit in memory, in the format of another system.",
        *("Exporting", "release", "releases:export"),
        example="release/messages --to tokenizers --output tokenizer.json",
    ),
    _reading(
        "report",
        "Describes a release and its guarantee in one HTML or Markdown file.",
        *("Reporting", "release", "releases:report"),
        example="release/messages --output report.html",
    ),
    Command(
        name="audit",
        description="Attacks the mechanism of a plan with made-up data, and bounds its ε from below. "
        "The exit status is 3 if a bound is above its claim, and 4 if a planted mistake went "
        "unnoticed.",
        example="beam-dpne audit ngrams --epsilon 4 --delta 1e-6",
        groups={
            "auditing": ("cli.settings:Auditing",),
            "privacy": PROGRAMS["ngrams"].groups["privacy"],
        },
        run="plans:audit",
        positional="program",
    ),
)


def command_of(arguments: Sequence[str]) -> tuple[Command, Sequence[str]] | None:
    """Returns the command that arguments name, and its own arguments; None if they name none.

    `check` and a program are the command of that program, which only checks its input. `plan` or
    `audit`, and a program, take the parameters of that program's plan. Names of some commands have two
    words.
    """
    first, second, *_ = (*arguments, "", "")
    known = {each.name: each for each in COMMANDS}
    if f"{first} {second}" in known:
        return known[f"{first} {second}"], arguments[2:]
    if first == "check" and second in known and known[second].takes_beam:
        named = dataclasses.replace(
            known[second],
            name=f"check {second}",
            description=known[first].description,
            run=known[first].run,
            needs_all=False,
        )
        return named, arguments[2:]
    if first in ("plan", "audit") and second in known and known[second].takes_beam:
        groups = {**known[first].groups, "privacy": known[second].groups["privacy"]}
        return dataclasses.replace(known[first], groups=groups), arguments[1:]
    own = arguments[1:2] if first == "check" else arguments[1:]
    if first == "check" and second.startswith("--") and second not in ("--help", "--help-all"):
        # The options are those of the program that is missing.
        own = ()
    return (known[first], own) if first in known else None
