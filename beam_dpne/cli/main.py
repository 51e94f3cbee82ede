"""The program `beam-dpne`: sub-commands, exit statuses, and errors as one line.

Exit status: 0 done, 1 the run failed, 2 a parameter is wrong, 130 interrupted, 143 terminated.
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
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from beam_dpne.cli.options import Table, add_program, add_table
from beam_dpne.cli.options_by_command import BAYESIAN, EVALUATE, NGRAMS, PLAN, SET_UNION
from beam_dpne.elements import progress
from beam_dpne.errors import RunError
from beam_dpne.version import __version__

if TYPE_CHECKING:
    from beam_dpne.cli.failures import FailureLog

_FAILED = 1
_SIGNALLED = 128
_CHECK_LEDGER = "the release is complete only if its ledger.json is there"
# While an engine runs a job, the launcher does not know which stage it has reached.
_MAY_HAVE_PUBLISHED = ("publish", "engine")
# Every text that replaces a withheld message has these words.
_WITHHELD = "may quote"


class _Command(NamedTuple):
    """One sub-command.

    Attributes:
      name: as it is typed.
      summary: a line for the list of commands.
      description: for its own help.
      table: its options.
      module: of `beam_dpne.cli`, whose `run_command` runs it; it is imported when it is needed,
        since Beam takes two seconds to load.
      publishes: whether `output` is the directory of a release.
    """

    name: str
    summary: str
    description: str
    table: Table
    module: str
    publishes: bool


_COMMANDS = (
    _Command(
        name="ngrams",
        summary="release the n-grams that many users share",
        description="Releases the n-grams that many users share, with user-level (ε, δ)-"
        "differential privacy. Options of Apache Beam (--runner, …) may follow.",
        table=NGRAMS,
        module="programs",
        publishes=True,
    ),
    _Command(
        name="set-union",
        summary="release the items that many users share",
        description="Releases the items that many users share (words, names, queries, whole records), "
        "with user-level (ε, δ)-differential privacy. Options of Apache Beam (--runner, …) may follow.",
        table=SET_UNION,
        module="programs",
        publishes=True,
    ),
    _Command(
        name="bayesian",
        summary="estimate the probability of every n-gram of a public vocabulary",
        description="Estimates a probability for every n-gram of a public vocabulary from users' "
        "texts, with user-level (ε, δ)-differential privacy. Options of Apache Beam (--runner, …) may "
        "follow.",
        table=BAYESIAN,
        module="programs",
        publishes=True,
    ),
    _Command(
        name="plan",
        summary="show the noise that privacy parameters need, and write them to a file",
        description="Prints what each length of a run would spend, and writes the plan as JSON.",
        table=PLAN,
        module="plans",
        publishes=False,
    ),
    _Command(
        name="evaluate",
        summary="compare a release with the private data it came from; for the operator",
        description="Compares a release with the private data it came from: how much of it is real, "
        "how much of the data it covers. What it prints and writes is NOT private: it is as secret as "
        "the data, and for the operator only. The data must fit in memory: 10 million words and 9 "
        "lengths take 2 GB.",
        table=EVALUATE,
        module="evaluating",
        publishes=False,
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `beam-dpne` with these arguments (those of the process by default)."""
    return run_program(_parser(), sys.argv[1:] if argv is None else argv)


def run_program(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> int:
    """Parses the arguments and runs the `command` that the parser sets as a default.

    Args:
      parser: of the program.
      arguments: its options; those that the parser does not have are Beam's.

    Returns:
      The exit status; one line on stderr says what went wrong.
    """
    _let_streams_replace()
    try:
        given, beam_arguments = parser.parse_known_args(list(arguments))
    except SystemExit as stop:
        return int(stop.code or 0)
    _quiet_libraries()
    with _Signals() as signals:
        log = None
        try:
            log = _failure_log(given)
            with log.listening() if log else contextlib.nullcontext():
                given.command(given, beam_arguments)
        except BaseException as error:
            number = signals.received or (
                signal.SIGINT if isinstance(error, KeyboardInterrupt) else 0
            )
            status, text = (0, "") if number else _outcome(error)
            is_withheld = _WITHHELD in text
            if log is not None and (status == _FAILED or is_withheld):
                text = f"{text} {log.keep(error)}"
            elif log is not None:
                log.discard()
            elif is_withheld and hasattr(given, "failure_log"):
                text = f"{text} Run again with --failure_log FILE to have it in a file of yours."
            return _leave(number) if number else _report(status, text)
        if log is not None:
            log.discard()
    return 0


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line, like all others; the usage is for --help."""

    def error(self, message: str) -> NoReturn:
        """Exits with status 2."""
        self.exit(2, f"beam-dpne: error: {message}. See --help.\n")


class _Signals:
    """While it is entered, Ctrl-C and SIGTERM raise `KeyboardInterrupt` and are remembered.

    Beam wraps the errors of a bundle, so that the type of an exception does not show what raised it.
    A second signal ends the process at once.
    """

    def __init__(self) -> None:
        self.received = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "_Signals":
        ours = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
        if threading.current_thread() is threading.main_thread():
            for number, usual in ours.items():
                # A handler that somebody set stays as it is, and so does an ignored signal (nohup).
                if signal.getsignal(number) == usual:
                    self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self.received = number
        signal.signal(number, signal.SIG_DFL)
        raise KeyboardInterrupt


def _failure_log(given: argparse.Namespace) -> "FailureLog | None":
    """Returns the file for a failure, if one was asked for."""
    if getattr(given, "failure_log", None) is None:
        return None
    from beam_dpne.cli.failures import FailureLog

    # The `output` of other programs is a directory of the operator.
    output = given.output if getattr(given, "publishes", False) else None
    return FailureLog(given.failure_log, output, remote=bool(given.failure_log_remote))


def _outcome(error: BaseException) -> tuple[int, str]:
    """Returns the exit status, and what may be said of an error, without data."""
    status = _FAILED
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else status, ""
    if isinstance(error, RunError):
        text = f"the run failed: {error}"
        if progress.snapshot().stage in _MAY_HAVE_PUBLISHED:
            text = f"{text} {_CHECK_LEDGER.capitalize()}."
    elif isinstance(error, ValueError | FileNotFoundError):
        text, status = f"error: {error}", 2
    else:
        at = traceback.extract_tb(error.__traceback__)[-1]
        text = (
            f"error: {type(error).__name__} in {os.path.basename(at.filename)}:{at.lineno}; its "
            "message is withheld, since it may quote the data."
        )
    return status, text


def _report(status: int, text: str) -> int:
    """Prints a line about an error unless the text is empty; returns the exit status."""
    if text:
        print(f"beam-dpne: {text.strip()}", file=sys.stderr)
    return status


def _leave(number: int) -> int:
    """Prints which signal ends the program; returns the exit status.

    Exits at once if a runner's threads are still at work: the interpreter would wait for them.
    """
    stage = progress.snapshot().stage
    state = _CHECK_LEDGER if stage in _MAY_HAVE_PUBLISHED else "nothing was published"
    what = "terminated" if number == signal.SIGTERM else "interrupted"
    print(f"beam-dpne: {what}; {state}.", file=sys.stderr)
    others = (t for t in threading.enumerate() if t is not threading.current_thread())
    if not all(thread.daemon for thread in others):
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
        run = functools.partial(_run_command, command.module)
        made.set_defaults(program=command.name, command=run)
    return parser


def _run_command(module: str, given: argparse.Namespace, beam_arguments: list[str]) -> None:
    importlib.import_module(f"beam_dpne.cli.{module}").run_command(given, beam_arguments)


def _let_streams_replace() -> None:
    """Makes a terminal without Greek letters show something else instead of failing the run."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace" if stream is sys.stderr else "replace")


def _quiet_libraries() -> None:
    """Silences libraries, whose log lines may quote data; warnings of this package are printed."""
    logging.getLogger().setLevel(logging.CRITICAL + 1)
    logging.getLogger("beam_dpne").setLevel(logging.WARNING)
    # Its job server sets the level again when it starts; a filter stays.
    logging.getLogger("PrismJobServer").addFilter(lambda _: False)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


if __name__ == "__main__":
    sys.exit(main())
