"""The program `beam-dpne`: its commands, its exit status, and the line that it prints of an error.

The exit status is 0 if the command is done, 1 if the run failed, 2 if a parameter is wrong, 130 if the
program was interrupted, 143 if it was terminated, and 129 if its terminal was closed; `beam-dpne audit`
has two more (`auditing`).
`_outcome` composes the line: it has the message of a wrong parameter, a missing file or a failed run,
and only the type and place of any other error, whose message may quote the data. `failures` has the
reason of a failed run.
"""

import argparse
import contextlib
import functools
import importlib
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from beam_dpne.cli import loading
from beam_dpne.cli.options import Table, add_program, add_table
from beam_dpne.cli.options_by_command import (
    ACCOUNT,
    AUDIT,
    BAYESIAN,
    EVALUATE,
    EXPORT,
    NGRAMS,
    PLAN,
    REPORT,
    SET_UNION,
)
from beam_dpne.elements import progress
from beam_dpne.errors import RunError, UsageError, may_be_printed
from beam_dpne.interrupts import Interrupts
from beam_dpne.version import __version__

if TYPE_CHECKING:
    from beam_dpne.cli.failures import FailureLog

_FAILED = 1
_SIGNALLED = 128
_CHECK_LEDGER = "the release is complete only if its ledger.json is there"
# While an engine runs a job, the launcher does not know which stage it has reached.
_MAY_HAVE_PUBLISHED = ("publish", "engine")
# Every text that replaces a withheld message contains these words.
_WITHHELD = "may quote"
_BEAM_OPTIONS = "Options of Apache Beam (--runner, …) may follow."


class _Command(NamedTuple):
    """One sub-command.

    Attributes:
      name: its name on the command line.
      summary: its line in the list of commands.
      description: the first lines of its help.
      table: its options.
      module: the module of `beam_dpne.cli` whose `run_command` runs it; it is imported only when it
        is needed, since Beam takes two seconds to load.
      publishes: whether its option `output` is the directory of a release; only then it takes options
        of Beam.
      takes: ends the sentence that refuses an option, if the command takes none of Beam's.
    """

    name: str
    summary: str
    description: str
    table: Table
    module: str
    publishes: bool
    takes: str = ""


_COMMANDS = (
    _Command(
        name="ngrams",
        summary="release the n-grams that many users share",
        description="Releases the n-grams that many users share, with user-level (ε, δ)-"
        f"differential privacy. {_BEAM_OPTIONS}",
        table=NGRAMS,
        module="programs",
        publishes=True,
    ),
    _Command(
        name="set-union",
        summary="release the items that many users share",
        description="Releases the items that many users share (words, names, queries, whole records), "
        f"with user-level (ε, δ)-differential privacy. {_BEAM_OPTIONS}",
        table=SET_UNION,
        module="programs",
        publishes=True,
    ),
    _Command(
        name="bayesian",
        summary="estimate the probability of every n-gram of a public vocabulary",
        description="Estimates a probability for every n-gram of a public vocabulary from users' "
        f"texts, with user-level (ε, δ)-differential privacy. {_BEAM_OPTIONS}",
        table=BAYESIAN,
        module="programs",
        publishes=True,
    ),
    _Command(
        name="plan",
        summary="show before a run how many users an n-gram needs, and write the plan to a file",
        description="Prints how many users an n-gram needs to be released, and writes the plan as "
        "JSON. With a number of users and public text it forecasts a release: n-grams of each length, "
        "users that an n-gram needs, and the width of counts. It never reads private data.",
        table=PLAN,
        module="plans",
        publishes=False,
    ),
    _Command(
        name="evaluate",
        summary="compare a release with the private data it came from; for the operator",
        description="Compares a release with the private data it came from: how much of it is real, "
        "how much of the data it covers, and how good its numbers of users are. Its output is NOT "
        "private: it is as secret as the data, and for the operator only. The data must fit in memory: "
        "10 million words and 9 lengths take 2 GB.",
        table=EVALUATE,
        module="evaluating",
        publishes=False,
        takes="; it runs in memory, without an engine",
    ),
    _Command(
        name="account",
        summary="add up what several releases of the same users have spent, and keep a budget",
        description="Adds up the (ε, δ) of several releases about the same users, from their ledgers "
        "alone, and keeps a budget that runs must not exceed (--budget).",
        table=ACCOUNT,
        module="accounting",
        publishes=False,
    ),
    _Command(
        name="export",
        summary="write a release in the format of another system",
        description="Writes a release in the format of another system: a tokenizer, a language model, "
        "a keyboard's word list, suggestions, tables, or a data card. It reads the release alone and "
        "costs no budget. The release must fit in memory.",
        table=EXPORT,
        module="exporting",
        publishes=False,
    ),
    _Command(
        name="report",
        summary="describe a release and its guarantee in one HTML or Markdown file",
        description="Writes a report of a release as one file: what was released, the guarantee in "
        "plain words, its limits, tables, plots, a search box, and how to cite and verify it. It is "
        "made from the release alone and never opens the input, so it costs no privacy.",
        table=REPORT,
        module="reporting",
        publishes=False,
        takes=", and takes one RELEASE",
    ),
    _Command(
        name="audit",
        summary="attack the mechanism of a plan with made-up data, and bound its ε from below",
        description="Attacks the mechanism of a plan by the kernels of the product, with made-up data: "
        "it prints lower bounds on ε beside the claim, and beside planted mistakes that the attacks "
        "should notice. It never reads data. The exit status is 3 if a bound is above its claim, and 4 "
        "if a planted mistake went unnoticed, so that there were too few runs.",
        table=AUDIT,
        module="auditing",
        publishes=False,
        takes=", and takes one MECHANISM",
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `beam-dpne` with these arguments (those of the process by default)."""
    return run_program(_parser(), sys.argv[1:] if argv is None else argv)


def run_program(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> int:
    """Parses the arguments and runs the `command` that the parser sets as a default.

    If that fails, one line on stderr states the error, without data.

    Args:
      parser: the parser of the program.
      arguments: the options of the program; those that the parser does not know are Beam's.

    Returns:
      The exit status.
    """
    _let_streams_replace()
    try:
        parsed, beam_arguments = parser.parse_known_args(list(arguments))
    except SystemExit as stop:
        return int(stop.code or 0)
    _quiet_libraries()
    progress.reset()
    publishes = getattr(parsed, "publishes", False)
    with Interrupts(at_once=_delete_run_folders) as interrupts:
        log = None
        try:
            log = _failure_log(parsed)
            with log.listening() if log else contextlib.nullcontext():
                parsed.command(parsed, beam_arguments)
        except BaseException as error:
            interrupts.settle()
            number = interrupts.received or (
                signal.SIGINT if isinstance(error, KeyboardInterrupt) else 0
            )
            status, text = (0, "") if number else _outcome(error)
            is_withheld = _WITHHELD in text
            if log is not None and (status == _FAILED or is_withheld):
                text = f"{text} {log.keep(error)}"
            elif log is not None:
                log.discard()
            elif is_withheld and hasattr(parsed, "failure_log"):
                text = f"{text} Run again with --failure_log FILE to have it in a file of yours."
            if number:
                return _leave(number, publishes=publishes)
            if text:
                print(f"beam-dpne: {text.strip()}", file=sys.stderr)
            return status
        interrupts.settle()
        if log is not None:
            log.discard()
        if interrupts.received:  # A library has dropped the exception, and the run went on.
            return _leave(interrupts.received, publishes=publishes)
    return 0


class OneLineParser(argparse.ArgumentParser):
    """A parser that prints an error as one line, and the usage only for --help."""

    def error(self, message: str) -> NoReturn:
        """Prints the error and exits with status 2."""
        self.exit(2, f"beam-dpne: error: {message}. See --help.\n")


def _failure_log(parsed: argparse.Namespace) -> "FailureLog | None":
    """Returns the failure log of the options, or None."""
    if getattr(parsed, "failure_log", None) is None:
        return None
    from beam_dpne.cli.failures import FailureLog

    # The `output` of a program that publishes no release is a directory of the operator.
    output = parsed.output if getattr(parsed, "publishes", False) else None
    return FailureLog(parsed.failure_log, output, remote=bool(parsed.failure_log_remote))


def _outcome(error: BaseException) -> tuple[int, str]:
    """Returns the exit status, and the line that states an error without data."""
    status = _FAILED
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else status, ""
    if type(error) is RunError:
        text = f"the run failed: {error}"
        if progress.snapshot().stage in _MAY_HAVE_PUBLISHED:
            text = f"{text} {_CHECK_LEDGER.capitalize()}."
    elif _is_about_parameters(error):
        text, status = f"error: {error}", 2
    else:
        at = traceback.extract_tb(error.__traceback__)[-1]
        text = (
            f"error: {type(error).__name__} in {os.path.basename(at.filename)}:{at.lineno}; its "
            "message is withheld, since it may quote the data."
        )
    return status, text


def _is_about_parameters(error: BaseException) -> bool:
    """Whether an error states a wrong parameter or a missing file, so that its message holds no data.

    Errors of this package say so by their class. A plain `ValueError` or `FileNotFoundError` counts
    only before the first stage of a run, since nothing has read the data then.
    """
    kind = type(error)
    if may_be_printed(f"{kind.__module__}.{kind.__qualname__}"):
        return isinstance(error, ValueError)
    return kind in (ValueError, FileNotFoundError) and not progress.snapshot().stage


def _delete_run_folders() -> None:
    """Deletes the run's temporary folder, if the module that makes it was ever loaded."""
    folders = sys.modules.get("beam_dpne.cli.run_folders")
    if folders is not None:
        folders.delete_at_once()


def _leave(number: int, *, publishes: bool) -> int:
    """Prints that a signal ended the program; returns the exit status.

    A program that publishes says what there is of its release. This exits at once if threads of a
    runner are still running, since the interpreter would wait for them.
    """
    stage = progress.snapshot().stage
    state = _CHECK_LEDGER if stage in _MAY_HAVE_PUBLISHED else "nothing was published"
    state = f"; {state}" if publishes else ""
    ended = "terminated" if number == signal.SIGTERM else "interrupted"
    with contextlib.suppress(OSError):  # A terminal that was closed takes no more lines.
        print(f"beam-dpne: {ended}{state}.", file=sys.stderr)
    others = (
        thread for thread in threading.enumerate() if thread is not threading.current_thread()
    )
    if not all(thread.daemon for thread in others):
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(_SIGNALLED + number)
    return _SIGNALLED + number


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="beam-dpne",
        description="Differentially private n-grams and sets of items from private text, on Apache "
        "Beam.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"beam-dpne {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in _COMMANDS:
        made = commands.add_parser(
            command.name,
            help=command.summary,
            description=command.description,
            allow_abbrev=False,
        )
        add_options = add_program if command.publishes else add_table
        add_options(made, command.table)
        run = functools.partial(_run_command, command)
        made.set_defaults(program=command.name, command=run)
    return parser


def _run_command(command: _Command, parsed: argparse.Namespace, beam_arguments: list[str]) -> None:
    # An error of an option does not wait for Beam.
    from beam_dpne.cli import privacy, running

    if not command.publishes and beam_arguments:
        option = beam_arguments[0].partition("=")[0]
        raise UsageError(f"beam-dpne {command.name} has no option {option}{command.takes}.")
    if command.publishes:
        running.check_arguments(beam_arguments)
    privacy.check_parameters(parsed)
    if command.publishes:
        running.check_running(parsed)
        running.check_tokenizer(parsed)
    module = importlib.import_module(f"beam_dpne.cli.{command.module}")
    loading.collect_garbage()
    module.run_command(parsed, beam_arguments)


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


if __name__ == "__main__":
    sys.exit(loading.run(main))
