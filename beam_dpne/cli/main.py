"""The program `beam-dpne`: sub-commands, exit statuses, and errors as one line.

Exit status: 0 done, 1 the run failed, 2 a parameter is wrong, 130 interrupted, 143 terminated.
"""

import argparse
import contextlib
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from beam_dpne.cli.bayesian_options import (
    BAYESIAN,
    PROBABILITIES_READING,
    PROBABILITIES_RUNNING,
    PROBABILITIES_WRITING,
)
from beam_dpne.cli.evaluate import add_evaluate
from beam_dpne.cli.options import (
    PLAN_OUTPUT,
    PRIVACY,
    READING,
    RUNNING,
    VOCABULARY,
    WRITING,
    add_options,
)
from beam_dpne.cli.set_union_options import ITEMS_READING, ITEMS_RUNNING, ITEMS_WRITING, SET_UNION
from beam_dpne.elements import progress
from beam_dpne.errors import RunError
from beam_dpne.version import __version__

if TYPE_CHECKING:
    from beam_dpne.cli.failure_log import FailureLog

Command = Callable[[argparse.Namespace, list[str]], None]
_FAILED = 1
_SIGNALLED = 128
_CHECK_LEDGER = "the release is complete only if its ledger.json is there"
# Of an engine's job the launcher knows no more than that it runs.
_MAY_HAVE_PUBLISHED = ("publish", "engine")
# Part of every text that stands instead of a message that is withheld.
_WITHHELD = "may quote"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `beam-dpne` with these arguments (those of the process by default)."""
    return run_program(_parser(), sys.argv[1:] if argv is None else argv)


def run_program(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> int:
    """Parses the arguments and runs the `command` that the parser sets as a default.

    Args:
      parser: of the program.
      arguments: its options; those that the parser does not have are Beam's.

    Returns:
      The exit status; what went wrong is told by one line on stderr.
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
            return _leave(number) if number else _tell(status, text)
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

    Beam wraps what a bundle raises, so that the type of an exception does not tell. A second signal
    ends the process at once.
    """

    def __init__(self) -> None:
        self.received = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "_Signals":
        ours = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
        if threading.current_thread() is threading.main_thread():
            for number, usual in ours.items():
                # One that somebody set or that is ignored (nohup) stays as it is.
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
    from beam_dpne.cli.failure_log import FailureLog

    # Of other programs, "output" is a directory of the operator.
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


def _tell(status: int, text: str) -> int:
    """Prints a line about an error, if there is anything to say; returns the exit status."""
    if text:
        print(f"beam-dpne: {text.strip()}", file=sys.stderr)
    return status


def _leave(number: int) -> int:
    """Tells of the signal that ends the program; returns the exit status.

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
    ngrams = commands.add_parser(
        "ngrams",
        help="release the n-grams that many users share",
        description="Releases the n-grams that many users share, with user-level (ε, δ)-"
        "differential privacy. Options of Apache Beam (--runner, …) may follow.",
        allow_abbrev=False,
    )
    add_ngram_options(ngrams)
    ngrams.set_defaults(command=_ngrams)
    union = commands.add_parser(
        "set-union",
        help="release the items that many users share",
        description="Releases the items that many users share (words, names, queries, whole records), "
        "with user-level (ε, δ)-differential privacy. Options of Apache Beam (--runner, …) may follow.",
        allow_abbrev=False,
    )
    add_set_union_options(union)
    union.set_defaults(command=_set_union)
    bayesian = commands.add_parser(
        "bayesian",
        help="estimate the probability of every n-gram of a public vocabulary",
        description="Estimates a probability for every n-gram of a public vocabulary from users' "
        "texts, with user-level (ε, δ)-differential privacy; modes named paper_* have no such "
        "guarantee. Options of Apache Beam (--runner, …) may follow.",
        allow_abbrev=False,
    )
    add_bayesian_options(bayesian)
    bayesian.set_defaults(command=_bayesian)
    plan = commands.add_parser(
        "plan",
        help="show the noise that privacy parameters need, and write them to a file",
        description="Prints what each length of a run would spend, and writes the plan as JSON.",
        allow_abbrev=False,
    )
    add_options(plan, "privacy", PRIVACY)
    add_options(plan, "writing", PLAN_OUTPUT)
    plan.set_defaults(command=_plan)
    add_evaluate(commands)
    return parser


def add_ngram_options(parser: argparse.ArgumentParser) -> None:
    """Adds all options of `beam-dpne ngrams`."""
    add_options(parser, "reading", READING)
    add_options(parser, "privacy", (*PRIVACY, *VOCABULARY))
    add_options(parser, "writing", WRITING)
    add_options(parser, "running", RUNNING)
    parser.set_defaults(publishes=True)


def add_set_union_options(parser: argparse.ArgumentParser) -> None:
    """Adds all options of `beam-dpne set-union`."""
    add_options(parser, "reading", ITEMS_READING)
    add_options(parser, "privacy", SET_UNION)
    add_options(parser, "writing", ITEMS_WRITING)
    add_options(parser, "running", ITEMS_RUNNING)
    parser.set_defaults(publishes=True)


def add_bayesian_options(parser: argparse.ArgumentParser) -> None:
    """Adds all options of `beam-dpne bayesian`."""
    add_options(parser, "reading", PROBABILITIES_READING)
    add_options(parser, "privacy", BAYESIAN)
    add_options(parser, "writing", PROBABILITIES_WRITING)
    add_options(parser, "running", PROBABILITIES_RUNNING)
    parser.set_defaults(publishes=True)


def _ngrams(given: argparse.Namespace, beam_arguments: list[str]) -> None:
    from beam_dpne.cli import ngrams

    ngrams.run_command(given, beam_arguments)


def _set_union(given: argparse.Namespace, beam_arguments: list[str]) -> None:
    from beam_dpne.cli import set_union

    set_union.run_command(given, beam_arguments)


def _bayesian(given: argparse.Namespace, beam_arguments: list[str]) -> None:
    from beam_dpne.cli import bayesian

    bayesian.run_command(given, beam_arguments)


def _plan(given: argparse.Namespace, beam_arguments: list[str]) -> None:
    from beam_dpne.cli import plans

    plans.run_command(given, beam_arguments)


def _let_streams_replace() -> None:
    """Makes a terminal without Greek letters show something else instead of failing the run."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace" if stream is sys.stderr else "replace")


def _quiet_libraries() -> None:
    """Silences libraries, whose log lines may quote data; our own warnings still reach stderr."""
    logging.getLogger().setLevel(logging.CRITICAL + 1)
    logging.getLogger("beam_dpne").setLevel(logging.WARNING)
    # It sets its own level when it starts; a filter stays.
    logging.getLogger("PrismJobServer").addFilter(lambda _: False)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


if __name__ == "__main__":
    sys.exit(main())
