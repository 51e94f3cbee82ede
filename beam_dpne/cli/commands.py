"""The commands of `beam-dpne`, each with its groups of parameters, and how their options are read."""

import argparse
import dataclasses
import importlib
import os
import pathlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NoReturn, TypeVar, cast

from beam_dpne.errors import UsageError
from beam_dpne.validation import (
    Parameter,
    Parameters,
    did_you_mean,
    json_parameters,
    parameters_of,
)

# The groups of parameters of a command, by the title under which its help shows them.
Groups = Mapping[str, Sequence[type[Parameters]]]
_Group = TypeVar("_Group", bound=Parameters)


class Made:
    """The groups of a command with their values; making them checks every parameter, once.

    Attributes:
      names: names of all parameters.
    """

    def __init__(self, groups: Groups, given: Mapping[str, Any]) -> None:
        """Makes each group from the values that are given; all others have their defaults.

        Raises:
          UsageError: parameters without a default are not given.
          ValueError: a value is wrong.
        """
        kinds = [kind for kinds in groups.values() for kind in kinds]
        parameters = [each for kind in kinds for each in parameters_of(kind)]
        if missing := [each for each in parameters if each.required and each.name not in given]:
            names = " and ".join(each.name for each in missing)
            raise UsageError(f"{names} must be given. {' '.join(each.help for each in missing)}")
        fields = {kind: _names(kind) & given.keys() for kind in kinds}
        self._made = {kind: kind(**{name: given[name] for name in fields[kind]}) for kind in kinds}
        self.names = [each.name for each in parameters]

    def __getitem__(self, kind: type[_Group]) -> _Group:
        """Returns the group of a class."""
        return cast("_Group", self._made[kind])

    def __contains__(self, kind: type) -> bool:
        """Whether the command has a group."""
        return kind in self._made


class OneLineParser(argparse.ArgumentParser):
    """A parser that prints an error as one line, and the usage only for --help."""

    def error(self, message: str) -> NoReturn:
        """Prints the error and exits with status 2."""
        self.exit(2, f"beam-dpne: error: {message}. See --help.\n")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """One command. Names are imported when it runs, since Beam takes two seconds to load.

    Attributes:
      name: its name on the command line.
      description: its first sentence stands in the list of commands, and all of it in the help.
      groups: its groups of parameters, "module:Class" below `beam_dpne`, by the title under which they
        are shown.
      run: the function that runs it, or "module:function" below `beam_dpne.cli`; it takes the groups
        with their values, and the options of Beam.
      positional: name of the parameter whose values come without its name, or "".
      takes_beam: whether options of Beam may follow.
    """

    name: str
    description: str
    groups: Mapping[str, Sequence[str]]
    run: str | Callable[[Made, list[str]], object]
    positional: str = ""
    takes_beam: bool = False

    def load_groups(self) -> Groups:
        """Returns the classes of its groups; they are loaded without Beam."""
        return {
            title: [_imported(f"beam_dpne.{name}") for name in names]
            for title, names in self.groups.items()
        }

    @property
    def parameters(self) -> dict[str, Parameter]:
        """All its parameters by name, rare ones included."""
        kinds = (kind for kinds in self.load_groups().values() for kind in kinds)
        return {each.name: each for kind in kinds for each in parameters_of(kind)}

    @property
    def function(self) -> Callable[[Made, list[str]], object]:
        """The function that runs it."""
        return _imported(f"beam_dpne.cli.{self.run}") if isinstance(self.run, str) else self.run

    def parser(self) -> argparse.ArgumentParser:
        """Returns a parser with an option for each parameter that is not rare."""
        parser = OneLineParser(
            prog=f"beam-dpne {self.name}", description=self.description, allow_abbrev=False
        )
        for title, kinds in self.load_groups().items():
            shown = parser.add_argument_group(title)
            for each in (each for kind in kinds for each in parameters_of(kind) if not each.rare):
                self._add_option(shown, each)
        if rare := [name for name, each in self.parameters.items() if each.rare]:
            parser.epilog = f"A file named with --plan may also hold: {', '.join(rare)}."
        return parser

    def _add_option(self, group: Any, each: Parameter) -> None:
        text = f"{each.help} (default: {each.shown_default})".replace("%", "%%")
        if each.name == self.positional:
            nargs = "*" if each.several else "?"
            group.add_argument(each.name, nargs=nargs, metavar=each.name.upper(), help=text)
        elif each.kind is bool and self.positional:  # A value after it would be the positional one.
            group.add_argument(f"--{each.name}", action="store_const", const="true", help=text)
        else:
            settings = {"nargs": "?", "const": "true"} if each.kind is bool else {}
            action = "append" if each.several else "store"
            metavar = "|".join(each.choices or ("true", "false") * (each.kind is bool)) or "X"
            group.add_argument(
                f"--{each.name}", action=action, metavar=metavar, help=text, **settings
            )

    def read(self, arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        """Returns the values by name that arguments and the file of `plan` give, and Beam's options.

        Raises:
          ValueError: a value has a wrong form, a name is unknown, or a parameter is given twice.
        """
        parsed, others = self.parser().parse_known_args(list(arguments))
        parameters = self.parameters
        for option in (other.partition("=")[0] for other in others):
            name = option.removeprefix("--")
            if name in parameters:
                raise UsageError(
                    f"{name} has no option; give it in a JSON file of parameters: --plan FILE with "
                    f'{{"{name}": …}}.'
                )
            if not self.takes_beam:
                raise unknown(option, parameters)
        texts = {name: value for name, value in vars(parsed).items() if value not in (None, [])}
        given = {name: _value(parameters[name], text) for name, text in texts.items()}
        if _PLAN_FILE not in [name for names in self.groups.values() for name in names]:
            return given, others
        kinds = [kind for kinds in self.load_groups().values() for kind in kinds]
        known = set().union(*map(_names, kinds)) - {"plan"}
        return with_file(given, given.pop("plan", None), known), others


def unknown(argument: str, known: Collection[str]) -> UsageError:
    """Returns the error about an argument that is none of the known options."""
    option, _, _ = argument.partition("=")
    if option.startswith("-"):
        hint = did_you_mean(option.lstrip("-"), known, "--")
        return UsageError(f"there is no option {option}.{hint} See --help.")
    remedy = "If a glob became it, quote the glob, or give --input once for each file."
    return UsageError(
        f"there is no argument {argument}. {remedy if 'input' in known else 'See --help.'}"
    )


def with_file(given: Mapping[str, Any], path: str | None, known: Collection[str]) -> dict[str, Any]:
    """Returns values with those in a JSON file of parameters, if there is one.

    Raises:
      ValueError: a parameter is given twice, or as in `read_parameters`.
    """
    in_file = read_parameters(path, known) if path else {}
    if both := sorted(in_file.keys() & given.keys()):
        raise UsageError(f"{both[0]} is in the file {path} already; leave it out beside the file.")
    return {**given, **in_file}


def _imported(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _names(kind: type[Parameters]) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def _value(each: Parameter, given: str | list[str]) -> Any:
    """Returns a value from its text, or from the texts of an option that is given repeatedly."""
    if isinstance(given, str):
        return each.parse(given)
    parts = [each.parse(text) for text in given]
    values = tuple(x for part in parts for x in (part if isinstance(part, tuple) else (part,)))
    return values[0] if each.single and len(values) == 1 else values


def _read_remote(path: str) -> bytes:
    from beam_dpne.release.reading import as_release_error
    from beam_dpne.storage.directories import check_access, directory_at

    folder, name = os.path.split(path)
    with as_release_error(f"plan cannot be read, got {path}", UsageError):
        check_access([path], [])
        text = directory_at(folder).read(name)
    if text is None:
        raise UsageError(f"plan cannot be read, got {path}: there is no such file.")
    return text


def read_parameters(path: str, known: Collection[str]) -> dict[str, Any]:
    """Returns the parameters in a JSON file by name; those that are null are left out.

    Raises:
      ValueError: the file cannot be read, holds no JSON object, or has a name that is not known.
    """
    if "://" in path:
        text = _read_remote(path)
    else:
        # Without Beam, which takes a second to load, so that an error of a parameter comes at once.
        try:
            text = pathlib.Path(path).expanduser().read_bytes()
        except OSError as error:
            raise UsageError(f"plan cannot be read, got {path} ({error.strerror}).") from None
    values = json_parameters(text, known, f"plan {path}")
    return {name: value for name, value in values.items() if value is not None}


_PLAN_FILE = "cli.parameters:PlanFile"
_FILES = ("reading.options:ReadOptions", "cli.parameters:Tokenizing")
_SHOWING = ("cli.parameters:FailureLogging", "cli.parameters:Quiet")


def _releasing(name: str, plan: str, description: str, *more: str) -> Command:
    """Returns a command that publishes a release."""
    return Command(
        name=name,
        description=f"{description}, with user-level (ε, δ)-differential privacy. Options of Apache "
        "Beam (--runner, …) may follow.",
        groups={
            "reading": ("cli.parameters:Input", *_FILES, "cli.parameters:Rejecting", *more),
            "privacy": (plan, _PLAN_FILE),
            "writing": ("cli.parameters:Writing", "release.schema:ReleaseNotes"),
            "running": ("cli.parameters:Running", *_SHOWING),
        },
        run="programs:run",
        takes_beam=True,
    )


def _reading(name: str, description: str, settings: str, positional: str, run: str) -> Command:
    """Returns a command with one group of settings, which reads no private data."""
    return Command(
        name=name,
        description=description,
        groups={name: (f"cli.parameters:{settings}",)},
        run=run,
        positional=positional,
    )


COMMANDS = (
    _releasing("ngrams", "ngrams.plan:PrivacyPlan", "Releases the n-grams that many users share"),
    _releasing(
        "set-union",
        "set_union.plan:SetUnionPlan",
        "Releases the items that many users share (words, names, queries, whole records)",
    ),
    _releasing(
        "bayesian",
        "bayesian.plan:BayesianPlan",
        "Estimates a probability for every n-gram of a public vocabulary from users' texts",
        "cli.parameters:PublicCounting",
    ),
    Command(
        name="plan",
        description="Shows before a run how many users an n-gram needs, and writes the plan to a file. "
        "With a number of users and public text it forecasts a release. It never reads private data.",
        groups={
            "privacy": ("ngrams.plan:PrivacyPlan", _PLAN_FILE),
            "planning": ("cli.parameters:Planning", "cli.parameters:Quiet"),
            "reading the public text": _FILES,
        },
        run="plans:plan",
    ),
    Command(
        name="evaluate",
        description="Compares a release with the private data it came from, for the operator. Its "
        "output is NOT private. The data must fit in memory: 2 GB for 10 million words, 9 lengths.",
        groups={
            "reading": ("cli.parameters:Input", *_FILES, _PLAN_FILE),
            "evaluating": ("cli.parameters:Evaluating", *_SHOWING),
        },
        run="releases:evaluate_release",
    ),
    _reading(
        "account",
        "Adds up what releases of the same users have spent, from their ledgers, and keeps a budget.",
        *("Accounting", "ledgers", "releases:account"),
    ),
    _reading(
        "export",
        "Writes a release, which must fit in memory, in the format of another system.",
        *("Exporting", "release", "releases:export"),
    ),
    _reading(
        "report",
        "Describes a release and its guarantee in one HTML or Markdown file.",
        *("Reporting", "release", "releases:report"),
    ),
    _reading(
        "audit",
        "Attacks the mechanism of a plan with made-up data, and bounds its ε from below. The exit "
        "status is 3 if a bound is above its claim, and 4 if a planted mistake went unnoticed.",
        *("Auditing", "mechanism", "plans:audit"),
    ),
)
