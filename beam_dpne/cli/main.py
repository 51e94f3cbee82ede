"""The program `beam-dpne`: its exit status, and the line that it prints of an error.

The exit status is 0 if the command is done, 1 if the run failed, 2 if a parameter is wrong, 130 if the
program was interrupted and 143 if it was terminated; `beam-dpne audit` has two more (`auditing`). The
line has the message of a wrong parameter, a missing file or a failed run, and only the type and place
of any other error, whose message may quote the data.
"""

import argparse
import contextlib
import gc
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from beam_dpne.cli import parsing
from beam_dpne.cli.commands import COMMANDS, Command
from beam_dpne.elements import progress
from beam_dpne.errors import RunError, UsageError, may_be_printed
from beam_dpne.version import __version__

_FAILED, _WRONG, _SIGNALLED = 1, 2, 128
_ENDING = (signal.SIGINT, signal.SIGTERM)
_CHECK_LEDGER = "the release is complete only if its ledger.json is there"
# While an engine runs a job, the launcher does not know which stage it has reached.
_MAY_HAVE_PUBLISHED = ("publish", "engine")
# Every text that replaces a withheld message contains these words.
_WITHHELD = "may quote"


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
    with _remembered_signals() as received:
        status, text = _run(command, arguments, complete, received)
    if text:
        with contextlib.suppress(OSError):  # A terminal that was closed takes no more lines.
            print(f"beam-dpne: {text.strip()}", file=sys.stderr)
    return status


def _run(
    command: Command,
    arguments: Sequence[str],
    complete: Callable[[parsing.Given], parsing.Given],
    received: Sequence[int],
) -> tuple[int, str]:
    """Runs a command; returns the exit status, and the line about an error or an empty text."""
    log = None
    try:
        groups = command.load_groups()
        parsed, others = _parser(command, groups).parse_known_args(list(arguments))
        _check_others(command, groups, others)
        given = complete(parsing.given_values(parsed, groups))
        made = parsing.Made(groups, given)
        if "failure_log" in given:
            from beam_dpne.cli.failures import FailureLog

            output = given.get("output") if command.takes_beam else None
            log = FailureLog(given["failure_log"], output)
        function = command.function
        if not gc.isenabled():  # The start of the process saves the time while modules are loaded.
            gc.freeze()
            gc.enable()
        with log.listening() if log else contextlib.nullcontext():
            function(made, others)
    except BaseException as error:
        number = received[0] if received else signal.SIGINT * isinstance(error, KeyboardInterrupt)
        if number:
            return _SIGNALLED + number, _interrupted(number, publishes=command.takes_beam)
        status, text = _outcome(error, publishes=command.takes_beam)
        if log is not None and status == _FAILED:
            text = f"{text} {log.keep(error)}"
        elif _WITHHELD in text and "failure_log" in parsing.all_parameters(command.load_groups()):
            text = f"{text} Run again with --failure_log FILE to have it in a file of yours."
        return status, text
    finally:
        if log is not None:
            log.close()
    return 0, ""


@contextlib.contextmanager
def _remembered_signals() -> Iterator[list[int]]:
    """Lets SIGINT and SIGTERM raise `KeyboardInterrupt`, and yields a list that gets their numbers.

    Beam wraps the errors of a bundle, so the type of an exception does not show that a signal raised
    it. Signals that somebody else handles, or that are ignored, stay as they are.
    """
    received: list[int] = []

    def receive(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in _ENDING if is_main}
    for number, handler in before.items():
        if handler in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, receive)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _check_others(command: Command, groups: parsing.Groups, others: Sequence[str]) -> None:
    """Raises UsageError about arguments that are neither options of a command nor Beam's."""
    names = [other.partition("=")[0].removeprefix("--") for other in others]
    rare = {name for name, each in parsing.all_parameters(groups).items() if each.rare}
    for name in names:
        if name in rare:
            raise UsageError(
                f"{name} has no option; give it in a JSON file of parameters: --plan FILE with "
                f'{{"{name}": …}}.'
            )
    if others and not command.takes_beam:
        option = others[0].partition("=")[0]
        raise UsageError(f"beam-dpne {command.name} has no option {option}. See --help.")


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
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else _FAILED, ""
    if type(error) is RunError:
        is_late = publishes and progress.snapshot().stage in _MAY_HAVE_PUBLISHED
        check = f" {_CHECK_LEDGER.capitalize()}." if is_late else ""
        return _FAILED, f"the run failed: {error}{check}"
    if _is_about_parameters(error):
        return _WRONG, f"error: {error}"
    at = traceback.extract_tb(error.__traceback__)[-1]
    return _FAILED, (
        f"error: {type(error).__name__} in {os.path.basename(at.filename)}:{at.lineno}; its "
        f"message is withheld, since it {_WITHHELD} the data."
    )


def _interrupted(number: int, *, publishes: bool) -> str:
    """Returns the line that states that a signal ended the program, and what there is of a release."""
    ended = "terminated" if number == signal.SIGTERM else "interrupted"
    if not publishes:
        return f"{ended}."
    is_late = progress.snapshot().stage in _MAY_HAVE_PUBLISHED
    return f"{ended}; {_CHECK_LEDGER if is_late else 'nothing was published'}."


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
