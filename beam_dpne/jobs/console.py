"""How a run on this machine is shown: a progress line, and notices for the operator, on stderr."""

import contextlib
import functools
import importlib.util
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

from rich.console import Console
from rich.status import Status

from beam_dpne.elements import progress
from beam_dpne.jobs.showing import Showing

_REFRESH_SECONDS = 0.2
_LOG_SECONDS = 10.0
_PHRASES = {
    "": "starting",
    "engine": "running on the engine",
    "read": "reading and tokenizing",
    "users": "adding up contributions of users",
    "decide": "adding noise",
    "count": "counting users of the released rows",
    "released": "sorting the released rows",
    "publish": "writing the release",
    "published": "finishing",
}


@contextlib.contextmanager
def progress_line(input_bytes: int, *, quiet: bool) -> Iterator[None]:
    """Shows the progress of an embedded run on stderr: a live line on a terminal, else log lines.

    It shows the stage, the length, the time, the share of the input's bytes and the share of the parts
    of a stage that are done. Users and n-grams are never shown.

    Args:
      input_bytes: size in bytes of the input files as they are stored.
      quiet: whether nothing is shown.
    """
    progress.reset()
    if quiet:
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_watch, args=(done, input_bytes), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _watch(done: threading.Event, input_bytes: int) -> None:
    """Keeps one live line up to date until the run is done, or prints lines.

    A line is printed when a stage or a length begins, and ten seconds after the last one.
    """
    console = console_of(sys.stderr)
    start = time.monotonic()
    last = ("", None)
    printed = start
    began = start
    line = Status(_PHRASES[""], console=console) if _can_be_live(console) else None
    # Nobody may read stderr any more, which is no reason to fail.
    with contextlib.suppress(OSError, ValueError), line or contextlib.nullcontext() as live:
        while not done.wait(_REFRESH_SECONDS):
            now = progress.snapshot()
            time_now = time.monotonic()
            is_new = (now.stage, now.length) != last
            if is_new and now.stage == "read":
                began = time_now
            shown = progress_told(now, input_bytes, time_now - began)
            seconds = time_now - start
            if live is not None:
                live.update(f"{shown}, {seconds:.0f} s")
            elif is_new or time_now - printed >= _LOG_SECONDS:
                console.print(f"beam-dpne: {seconds:6.1f} s  {shown}", soft_wrap=True)
                printed = time_now
            last = (now.stage, now.length)


def _can_be_live(console: Console) -> bool:
    """Whether a console shows a line that changes: a terminal, or a notebook that has widgets."""
    has_widgets = console.is_jupyter and importlib.util.find_spec("ipywidgets") is not None
    return console.is_terminal or has_widgets


def progress_told(now: progress.Snapshot, input_bytes: int, seconds: float) -> str:
    """Returns what is done, and how far it is after so many seconds of reading."""
    phrase = _PHRASES.get(now.stage, now.stage)
    places = {"length": now.length, "round": now.round}
    place = ", ".join(f"{name} {number}" for name, number in places.items() if number)
    text = f"{place}: {phrase}" if place else phrase
    share = min(1.0, now.bytes_read / input_bytes) if input_bytes else 1.0
    if now.stage == "read" and share < 1:
        text = f"{text}, {share:.0%} of the input"
        if share and seconds > 1:
            rate = now.bytes_read / seconds / 1e6
            left = seconds / share * (1 - share)
            text = f"{text}, {rate:.3g} MB/s, {_duration(left)} left"
    elif now.parts and now.stage != "read":
        text = f"{text}, {min(1.0, now.done / now.parts):.0%}"
    return text


def _duration(seconds: float) -> str:
    """Returns a time with one unit.

    >>> _duration(59), _duration(600), _duration(9000)
    ('59 s', '10 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def showing(*, quiet: bool) -> Showing:
    """Returns how this face tells the operator of a run what happens."""
    return Showing(
        tell=print_notice, quiet=quiet, progress=functools.partial(progress_line, quiet=quiet)
    )


def print_notice(text: str) -> None:
    """Prints one line of the program on stderr; nothing fails if nobody can read it."""
    with contextlib.suppress(OSError, ValueError):
        print_line(f"beam-dpne: {text}", sys.stderr)


def print_line(text: str, file: TextIO | None = None) -> None:
    """Prints one line, on stdout by default; a terminal shows it with whole words."""
    console = console_of(file or sys.stdout)
    console.print(text, soft_wrap=not console.is_terminal)


def console_of(file: TextIO) -> Console:
    """Returns a console that shows words and paths as they are, 110 wide where it is no terminal."""
    width = None if file.isatty() else 110
    return _Console(file=file, width=width, markup=False, emoji=False, highlight=False)


class _Console(Console):
    """A console that leaves to its caller what happens when nobody reads its output any more."""

    def on_broken_pipe(self) -> None:
        """Raises the error that Rich has caught, instead of ending the process."""
        raise BrokenPipeError
