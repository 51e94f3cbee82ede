"""The program `beam-dpne`: its commands, its exit status, and the line that it prints of an error.

The exit status is 0 if the command is done, 1 if the run failed, 2 if a parameter is wrong, 130 if the
program was interrupted and 143 if it was terminated; `beam-dpne audit` has two more (`auditing`). The
line has the message of a wrong parameter, a missing file or a failed run, and only the type and place
of any other error, whose message may quote the data.
"""

import argparse
import contextlib
import dataclasses
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_dpne.cli import parsing
from beam_dpne.elements import progress
from beam_dpne.errors import RunError, UsageError, may_be_printed
from beam_dpne.validation import Parameters
from beam_dpne.version import __version__

_FAILED, _WRONG, _INTERRUPTED = 1, 2, 130
_CHECK_LEDGER = "the release is complete only if its ledger.json is there"
# While an engine runs a job, the launcher does not know which stage it has reached.
_MAY_HAVE_PUBLISHED = ("publish", "engine")
# Every text that replaces a withheld message contains these words.
_WITHHELD = "may quote"
_BEAM_OPTIONS = "Options of Apache Beam (--runner, …) may follow."


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """One command. Names are imported when it runs, since Beam takes two seconds to load.

    Attributes:
      name: its name on the command line.
      summary: its line in the list of commands.
      description: the first lines of its help.
      groups: its groups of parameters, classes or "module:Class" below `beam_dpne`, by the title under
        which they are shown.
      run: the function that runs it, or "module:function" below `beam_dpne.cli`; it takes the groups
        with their values, and the options of Beam.
      prog: its name in its help, by default behind that of the program.
      positional: name of the parameter whose values come without its name, or "".
      takes_beam: whether options of Beam may follow.
    """

    name: str
    summary: str
    description: str
    groups: Mapping[str, Sequence[str | type[Parameters]]]
    run: str | Callable[[parsing.Made, list[str]], object]
    positional: str = ""
    takes_beam: bool = False
    prog: str = ""

    def load_groups(self) -> parsing.Groups:
        """Returns the classes of its groups; they are loaded without Beam."""
        return {
            title: tuple(_imported("beam_dpne", name) for name in names)
            for title, names in self.groups.items()
        }

    @property
    def function(self) -> Callable[[parsing.Made, list[str]], object]:
        """The function that runs it."""
        return _imported("beam_dpne.cli", self.run)


def _imported(package: str, name: Any) -> Any:
    if not isinstance(name, str):
        return name
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(f"{package}.{module}"), attribute)


_FILES = ("reading.options:ReadOptions", "cli.parameters:Tokenizing")
_READING = ("cli.parameters:Input", *_FILES, "cli.parameters:Rejecting")
_WRITING = ("cli.parameters:Writing", "release.notes:ReleaseNotes")
_RUNNING = (
    "cli.parameters:Running",
    "cli.parameters:Budgeting",
    "cli.parameters:FailureLogging",
    "cli.parameters:Quiet",
)
_PLAN_FILE = "cli.parameters:PlanFile"


def _releasing(name: str, plan: str, summary: str, description: str, *more: str) -> Command:
    """Returns a command that publishes a release."""
    return Command(
        name=name,
        summary=summary,
        description=f"{description} {_BEAM_OPTIONS}",
        groups={
            "reading": (*_READING, *more),
            "privacy": (plan, _PLAN_FILE),
            "writing": _WRITING,
            "running": _RUNNING,
        },
        run="programs:run",
        takes_beam=True,
    )


COMMANDS = (
    _releasing(
        "ngrams",
        "ngrams.plan:PrivacyPlan",
        "release the n-grams that many users share",
        "Releases the n-grams that many users share, with user-level (ε, δ)-differential privacy.",
    ),
    _releasing(
        "set-union",
        "set_union.plan:SetUnionPlan",
        "release the items that many users share",
        "Releases the items that many users share (words, names, queries, whole records), with "
        "user-level (ε, δ)-differential privacy.",
    ),
    _releasing(
        "bayesian",
        "bayesian.plan:BayesianPlan",
        "estimate the probability of every n-gram of a public vocabulary",
        "Estimates a probability for every n-gram of a public vocabulary from users' texts, with "
        "user-level (ε, δ)-differential privacy.",
        "cli.parameters:PublicCounting",
    ),
    Command(
        name="plan",
        summary="show before a run how many users an n-gram needs, and write the plan to a file",
        description="Prints how many users an n-gram needs to be released, and writes the plan as "
        "JSON. With a number of users and public text it forecasts a release: n-grams of each length, "
        "users that an n-gram needs, and the width of counts. It never reads private data.",
        groups={
            "privacy": ("ngrams.plan:PrivacyPlan", _PLAN_FILE),
            "planning": ("cli.settings:Planning",),
            "forecasting": ("cli.settings:Forecasting", "cli.parameters:Quiet"),
            "reading the public text": _FILES,
        },
        run="planning:run",
    ),
    Command(
        name="evaluate",
        summary="compare a release with the private data it came from; for the operator",
        description="Compares a release with the private data it came from: how much of it is real, "
        "how much of the data it covers, and how good its numbers of users are. Its output is NOT "
        "private: it is as secret as the data, and for the operator only. The data must fit in memory: "
        "10 million words and 9 lengths take 2 GB.",
        groups={
            "reading": ("cli.parameters:Input", *_FILES, _PLAN_FILE),
            "evaluating": (
                "cli.settings:Evaluating",
                "cli.parameters:FailureLogging",
                "cli.parameters:Quiet",
            ),
        },
        run="evaluating:run",
    ),
    Command(
        name="account",
        summary="add up what several releases of the same users have spent, and keep a budget",
        description="Adds up the (ε, δ) of several releases about the same users, from their ledgers "
        "alone, and keeps a budget that runs must not exceed.",
        groups={
            "adding up": ("cli.release_settings:Adding",),
            "keeping a budget": ("cli.release_settings:Keeping",),
        },
        run="releases:account",
        positional="ledgers",
    ),
    Command(
        name="export",
        summary="write a release in the format of another system",
        description="Writes a release in the format of another system: a tokenizer, a language model, "
        "a keyboard's word list, suggestions, tables, or a data card. It reads the release alone and "
        "costs no budget. The release must fit in memory.",
        groups={"exporting": ("cli.release_settings:Exporting",)},
        run="releases:export",
        positional="release",
    ),
    Command(
        name="report",
        summary="describe a release and its guarantee in one HTML or Markdown file",
        description="Writes a report of a release as one file: what was released, the guarantee in "
        "plain words, its limits, tables, plots, a search box, and how to cite and verify it. It is "
        "made from the release alone and never opens the input, so it costs no privacy.",
        groups={"report": ("cli.release_settings:Reporting",)},
        run="releases:report",
        positional="release",
    ),
    Command(
        name="audit",
        summary="attack the mechanism of a plan with made-up data, and bound its ε from below",
        description="Attacks the mechanism of a plan by the kernels of the product, with made-up data: "
        "it prints lower bounds on ε beside the claim, and beside planted mistakes that the attacks "
        "should notice. It never reads data. The exit status is 3 if a bound is above its claim, and 4 "
        "if a planted mistake went unnoticed, so that there were too few runs.",
        groups={"audit": ("cli.settings:Auditing",)},
        run="auditing:run",
        positional="mechanism",
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `beam-dpne` with these arguments (those of the process by default).

    Returns:
      The exit status.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    for command in COMMANDS:
        if arguments[:1] == [command.name]:
            return run_command(command, arguments[1:])
    try:
        _list_of_commands().parse_args(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def run_command(
    command: Command,
    arguments: Sequence[str],
    complete: Callable[[parsing.Given], parsing.Given] = lambda given: given,
) -> int:
    """Runs one command; if that fails, one line on stderr states the error, without data.

    Args:
      command: the command.
      arguments: its options; those that it does not have are Beam's.
      complete: adds values of other defaults to those that are given.

    Returns:
      The exit status.
    """
    _let_streams_replace()
    _quiet_libraries()
    progress.reset()
    log = None
    try:
        groups = command.load_groups()
        parsed, others = _parser(command, groups).parse_known_args(list(arguments))
        if others and not command.takes_beam:
            option = others[0].partition("=")[0]
            raise UsageError(f"beam-dpne {command.name} has no option {option}. See --help.")
        given = complete(parsing.given_values(parsed, groups))
        made = parsing.Made(groups, given)
        if "failure_log" in given:
            from beam_dpne.cli.failures import FailureLog

            output = given.get("output") if command.takes_beam else None
            log = FailureLog(given["failure_log"], output)
        with log.listening() if log else contextlib.nullcontext():
            command.function(made, others)
    except BaseException as error:
        status, text = _outcome(error, publishes=command.takes_beam)
        if log is not None and status == _FAILED:
            text = f"{text} {log.keep(error)}"
        elif _WITHHELD in text and "failure_log" in parsing.all_parameters(command.load_groups()):
            text = f"{text} Run again with --failure_log FILE to have it in a file of yours."
        if text:
            with contextlib.suppress(OSError):  # A terminal that was closed takes no more lines.
                print(f"beam-dpne: {text.strip()}", file=sys.stderr)
        return status
    finally:
        if log is not None:
            log.close()
    return 0


def _parser(command: Command, groups: parsing.Groups) -> argparse.ArgumentParser:
    parser = parsing.OneLineParser(
        prog=command.prog or f"beam-dpne {command.name}",
        description=command.description,
        allow_abbrev=False,
    )
    parsing.add_options(parser, groups, command.positional)
    return parser


def _list_of_commands() -> argparse.ArgumentParser:
    parser = parsing.OneLineParser(
        prog="beam-dpne",
        description="Differentially private n-grams and sets of items from private text, on Apache "
        "Beam.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"beam-dpne {__version__}")
    listed = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in COMMANDS:
        listed.add_parser(command.name, help=command.summary)
    return parser


def _outcome(error: BaseException, *, publishes: bool) -> tuple[int, str]:
    """Returns the exit status, and the line that states an error without data."""
    may_have_published = publishes and progress.snapshot().stage in _MAY_HAVE_PUBLISHED
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else _FAILED, ""
    if isinstance(error, KeyboardInterrupt):
        state = _CHECK_LEDGER if may_have_published else "nothing was published"
        return _INTERRUPTED, f"interrupted; {state}." if publishes else "interrupted."
    if type(error) is RunError:
        check = f" {_CHECK_LEDGER.capitalize()}." if may_have_published else ""
        return _FAILED, f"the run failed: {error}{check}"
    if _is_about_parameters(error):
        return _WRONG, f"error: {error}"
    at = traceback.extract_tb(error.__traceback__)[-1]
    return _FAILED, (
        f"error: {type(error).__name__} in {os.path.basename(at.filename)}:{at.lineno}; its "
        f"message is withheld, since it {_WITHHELD} the data."
    )


def _is_about_parameters(error: BaseException) -> bool:
    """Whether an error states a wrong parameter or a missing file, so that its message holds no data.

    Errors of this package say so by their class. A plain `ValueError` or `FileNotFoundError` counts
    only before the first stage of a run, since nothing has read the data then.
    """
    kind = type(error)
    if may_be_printed(f"{kind.__module__}.{kind.__qualname__}"):
        return isinstance(error, ValueError)
    return kind in (ValueError, FileNotFoundError) and not progress.snapshot().stage


def _let_streams_replace() -> None:
    """Lets a terminal without Greek letters show other characters, so that printing does not fail."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace" if stream is sys.stderr else "replace")


def _quiet_libraries() -> None:
    """Silences libraries, whose log lines may quote data; this package's warnings are printed."""
    logging.getLogger().setLevel(logging.CRITICAL + 1)
    logging.getLogger("beam_dpne").setLevel(logging.WARNING)
    # Prism's job server sets the level of its logger when it starts, but keeps the logger's filters.
    logging.getLogger("PrismJobServer").addFilter(lambda _: False)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
