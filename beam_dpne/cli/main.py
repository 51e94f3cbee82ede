"""The program `beam-dpne`: its exit status, the line that it prints of an error, and the failure log.

The exit status is 0 if the command is done, 1 if the run failed, 2 if a parameter is wrong, 130 if the
program was interrupted and 143 if it was terminated; `beam-dpne audit` has two more. A run whose ledger
is in place is done, whatever happens after that. The line has the
message of a wrong parameter, a missing file or a failed run, and only the type and place of any other
error, whose message may quote the data. `--failure_log` gives the operator all of it.
"""

import contextlib
import gc
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

from beam_dpne import __version__
from beam_dpne.cli import streams
from beam_dpne.cli.commands import COMMANDS, Command, command_of
from beam_dpne.cli.help import as_options, overview
from beam_dpne.elements import processor, progress
from beam_dpne.errors import WITHHELD, RunError, is_ours, kind_of, own_reason
from beam_dpne.jobs.failures import LOGGERS, failure_log, is_own_record
from beam_dpne.jobs.made import Made
from beam_dpne.validation import did_you_mean

_FAILED = 1
_WRONG = 2
_SIGNALLED = 128
_ONE_SIGNAL_SECONDS = 1.0
_CHECK_LEDGER = "the release is complete only if its ledger.json is there."


def program(arguments: Sequence[str] | None = None) -> int:
    """Runs `beam-dpne` as the whole of a process, by default with its arguments.

    Returns:
      The exit status; if a signal ended the program, it ends the process instead.
    """
    # What modules make stays until the end; a command looks for garbage when they are loaded.
    gc.disable()
    streams.prepare()
    status = 0
    try:
        status = main(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # `head`, or whoever else read the output, has enough.
        streams.drop_output()
    except OSError as error:
        streams.drop_output()
        streams.say(f"error: the output cannot be written: {error.strerror or kind_of(error)}.")
        status = _FAILED
    if status > _SIGNALLED:
        # Threads of a runner may still be running, and the interpreter would wait for them.
        sys.stdout.flush()
        os._exit(status)
    _end_by_signals_with(status)
    return status


def _end_by_signals_with(status: int) -> None:
    """Lets signals end the process with its status from now on.

    The interpreter takes a moment to end. A run that has published would else seem to have failed if a
    signal comes then, and whoever repeated it would spend its budget twice.
    """

    def end(_number: int, _frame: FrameType | None) -> None:
        os._exit(status)

    for number in _handled_as_usual():
        signal.signal(number, end)


def _handled_as_usual() -> list[int]:
    """Returns SIGINT and SIGTERM, without those that somebody handles, or that are ignored."""
    usual = (signal.SIG_DFL, signal.default_int_handler)
    return [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) in usual]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `beam-dpne` with these arguments (those of the process by default).

    Returns:
      The exit status.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if found := command_of(arguments):
        return run_command(*found)
    if arguments[:1] == ["--version"]:
        print(f"beam-dpne {__version__}")
    elif not arguments or arguments[0] in ("-h", "--help", "--help-all"):
        print(overview(COMMANDS))
        return 0 if arguments else _WRONG
    else:
        longer = [each for each in COMMANDS if each.name.startswith(f"{arguments[0]} ")]
        if longer and {"-h", "--help", "--help-all"} & {*arguments[1:]}:
            print(overview(longer))
            return 0
        hint = did_you_mean(arguments[0], [command.name for command in COMMANDS])
        if longer:
            hint = f" There are {' and '.join(each.name for each in longer)}."
        streams.say(f"error: there is no command {arguments[0]}.{hint} See beam-dpne --help.")
        return _WRONG
    return 0


def run_command(command: Command, arguments: Sequence[str]) -> int:
    """Runs one command; if that fails, one line on stderr states the error, without data.

    Args:
      command: the command.
      arguments: its options; those that it does not have are Beam's.

    Returns:
      The exit status.
    """
    if wanted := {"-h", "--help", "--help-all"} & {*arguments}:
        print(command.help(whole="--help-all" in wanted))
        return 0
    # Log lines and warnings of libraries may quote data, as lines do that cannot be written.
    logging.raiseExceptions = False
    logging.captureWarnings(True)
    logging.getLogger().setLevel(logging.CRITICAL + 1)
    # Prism's job server sets the level of its logger when it starts, but keeps the logger's filters.
    logging.getLogger("PrismJobServer").addFilter(lambda _: False)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    processor.set_numpy()
    progress.reset()
    with _printed_log(), _remembered_signals() as received:
        status, text = _run(command, arguments, received)
    if text:
        streams.say(text.strip())
    return status


@contextlib.contextmanager
def _printed_log() -> Iterator[None]:
    """Prints what modules of this package log, but for details, and nothing that others log.

    A logger whose name begins with that of a module of ours takes its level, and a library may set its
    own. Without a handler the interpreter, or Beam, would print what they log.
    """
    root = logging.getLogger()
    handler = logging.StreamHandler()
    handler.addFilter(is_own_record)
    root.addHandler(handler)
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)


def _run(command: Command, arguments: Sequence[str], received: Sequence[int]) -> tuple[int, str]:
    """Runs a command; returns the exit status, and the line about an error or an empty text."""
    keep = None
    given: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        try:
            given, others = command.read(arguments)
            made = Made(command.load_groups(), given, whole=command.needs_all)
            if path := given.get("failure_log"):
                # What `check` leaves in the directory of a later run would be published, too.
                output = given.get("output") if command.takes_beam else None
                keep = stack.enter_context(failure_log(path, output))
            function = command.function
            if not gc.isenabled():
                gc.freeze()
                gc.enable()
            function(made, others)
        except BaseException as error:
            if not command.publishes and streams.is_about_output(error):
                raise
            stage = progress.snapshot().stage
            if command.publishes and stage == progress.PUBLISHED:
                # Whoever repeated the run would spend its budget twice.
                streams.say_whole(f"Its run ended with {kind_of(error)} after that.")
                if not given.get("quiet"):
                    streams.say_published(given["output"])
                return 0, ""
            is_late = command.publishes and _may_have_published(error, stage)
            if received or isinstance(error, KeyboardInterrupt):
                number = received[0] if received else signal.SIGINT
                return _SIGNALLED + number, _ended_by(number, command, is_late=is_late)
            status, text = outcome(error)
            in_file = command.in_file(arguments) if given else {}
            text = as_options(text, command.parameters, command.positional, in_file)
            if is_late and status == _FAILED:
                text = f"{text} {_CHECK_LEDGER.capitalize()}"
            if keep and status == _FAILED:
                text = f"{text} {keep(error)}"
            elif "may quote" in text and "failure_log" in command.parameters:
                text = f"{text} Run again with --failure_log FILE to have it in a file of yours."
            return status, text
    return 0, ""


def _may_have_published(error: BaseException, stage: str) -> bool:
    """Whether a run that an error has ended in a stage may have a release."""
    if stage == "publish":
        # Errors of ours are raised before the ledger is written (see `jobs.running`).
        return own_reason(error.__context__ or error) is None
    # While an engine runs a job, the launcher does not know which stage it has reached.
    return stage == "engine"


def _ended_by(number: int, command: Command, *, is_late: bool) -> str:
    """Returns the line about a command that a signal has ended."""
    what = "terminated" if number == signal.SIGTERM else "interrupted"
    if not command.publishes:
        return f"{what}."
    return f"{what}; {_CHECK_LEDGER}" if is_late else f"{what}; nothing was published."


@contextlib.contextmanager
def _remembered_signals() -> Iterator[list[int]]:
    """Lets SIGINT and SIGTERM raise `KeyboardInterrupt`, and yields a list that gets their numbers.

    Beam wraps the errors of a bundle, so the type of an exception does not show that a signal raised
    it. Signals that somebody else handles, or that are ignored, stay as they are.
    """
    received: list[int] = []

    latest = -_ONE_SIGNAL_SECONDS

    def receive(number: int, _frame: FrameType | None) -> None:
        nonlocal latest
        received.append(number)
        now = time.monotonic()
        is_repeated = now - latest < _ONE_SIGNAL_SECONDS
        latest = now
        # What ends a run in good order must not be interrupted by the same wish, said again at once.
        if not is_repeated:
            raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()
    ours = _handled_as_usual() if is_main else []
    before = {number: signal.signal(number, receive) for number in ours}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def outcome(error: BaseException) -> tuple[int, str]:
    """Returns the exit status, and the line that states an error without data.

    Errors of this package say by their class that their message holds no data. A plain `ValueError` or
    `FileNotFoundError` counts as a wrong parameter only before the first stage of a run, since nothing
    has read the data then.
    """
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else _FAILED, ""
    if type(error) is RunError:
        return _FAILED, f"the run failed: {error}"
    is_early = type(error) in (ValueError, FileNotFoundError) and not progress.snapshot().stage
    if is_early or (is_ours(type(error)) and isinstance(error, ValueError)):
        return _WRONG, f"error: {error}"
    # What is no file may be a text that was compiled.
    frames = traceback.extract_tb(error.__traceback__)
    at = next((each for each in reversed(frames) if os.path.isfile(each.filename)), None)
    place = f" in {os.path.basename(at.filename)}:{at.lineno}" if at else ""
    return _FAILED, f"error: {kind_of(error)}{place}{WITHHELD}"
