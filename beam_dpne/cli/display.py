"""The display of a run: a progress line on stderr, and tables on stdout."""

import contextlib
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.status import Status
from rich.table import Table

from beam_dpne.elements import progress

_REFRESH_SECONDS = 0.2
_PHRASES = {
    "": "starting",
    "engine": "running on the engine",
    "read": "reading and tokenizing",
    "users": "adding up contributions of users",
    "decide": "adding noise",
    "count": "counting users of the released rows",
    "released": "sorting the released rows",
    "publish": "writing the release",
}


@contextlib.contextmanager
def progress_line(input_bytes: int, *, quiet: bool) -> Iterator[None]:
    """Shows the progress of an embedded run on stderr: a live line on a terminal, else log lines.

    It shows the stage, the length, the time and the share of the input's bytes. Users and n-grams
    are never shown.

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
    """Keeps one live line up to date until the run is done, or prints a line for each stage."""
    console, start, last = _console(sys.stderr), time.monotonic(), _PHRASES[""]
    with Status(last, console=console) if console.is_terminal else contextlib.nullcontext() as live:
        while not done.wait(_REFRESH_SECONDS):
            stage, length, read = progress.snapshot()
            phrase, seconds = _PHRASES.get(stage, stage), time.monotonic() - start
            shown = phrase if length is None else f"length {length}"
            if live is not None:
                part = f": {phrase}" if length is not None else ""
                if stage == "read" and input_bytes:
                    part = f", {min(1.0, read / input_bytes):.0%} of the input"
                live.update(f"{shown}{part}, {seconds:.0f} s")
            elif shown != last:
                last = shown
                console.print(f"beam-dpne: {seconds:6.1f} s  {shown}", soft_wrap=True)


def print_release(ledger: Mapping[str, Any], output: str, seconds: float) -> None:
    """Prints how many rows a run released, from its ledger, and the directory."""
    notes, mechanism = ledger["notes"], ledger.get("mechanism")
    if notes["title"] is not None:
        print_line(f"Title: {notes['title']}")
    if notes["unit"] is not None:
        print_line(f"One user is {notes['unit']}.")
    if mechanism is None:
        lengths = ledger["lengths"]
        rows = [(x["length"], x["released"], *_noise(x), x["valid"] or "-") for x in lengths]
        rows.append(("all", sum(each["released"] for each in lengths), "-", "-", "-"))
        print_table("Released", ("length", "n-grams", "noise σ", "lowest ρ", "valid"), rows)
    elif "policy" in mechanism:
        row = (mechanism["policy"], mechanism["released"], *_noise(mechanism["rounds"][-1]))
        print_table("Released", ("policy", "items", "noise σ", "threshold ρ"), [row])
    else:
        row = (mechanism["released"], *_noise(mechanism))
        print_table("Released", ("n-grams", "noise σ"), [row[:2]])
    print_line(f"Files: {output} (start with ledger.json), written in {seconds:.2f} s")


def _noise(numbers: Mapping[str, Any]) -> tuple[str, str]:
    threshold = numbers.get("threshold")
    return f"{numbers['noise_stddev']:.4g}", "-" if threshold is None else f"{threshold:.2f}"


def print_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Prints a table, in which columns of numbers are aligned right."""
    table = Table(title=title, title_justify="left")
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    for column, heading in enumerate(headings):
        numeric = all(re.match(r"[-+<]?[\d∞]|-?$", row[column]) for row in cells)
        # A text that is too long goes on in the next line, and no part of it is cut off.
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    stdout_console().print(table)


def print_notice(text: str) -> None:
    """Prints one line for the operator on stderr."""
    _console(sys.stderr).print(text, soft_wrap=True)


def print_line(text: str) -> None:
    """Prints one line on stdout."""
    stdout_console().print(text, soft_wrap=True)


def stdout_console() -> Console:
    """Returns a console on stdout, 100 characters wide if that is no terminal."""
    console = _console(sys.stdout)
    return console if console.is_terminal else _console(sys.stdout, width=100)


def _console(file: TextIO, width: int | None = None) -> Console:
    """Returns a console that shows words and paths as they are, without markup or emoji codes."""
    return Console(file=file, width=width, markup=False, emoji=False, highlight=False)
