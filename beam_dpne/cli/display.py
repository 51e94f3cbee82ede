"""The display of a run: a progress line on stderr, and tables on stdout."""

import contextlib
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.status import Status
from rich.table import Table

from beam_dpne.elements import progress
from beam_dpne.report.facts import number

_REFRESH_SECONDS = 0.2
_NUMBER = re.compile(r"[-+<]?[\d∞][\d,.∞–± %]*(e-?\d+)?|[–-]?")
# Characters of a table beside the text of each cell.
_FRAME = 3
# Characters that a long path leaves to another column.
_BESIDE = 30
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
    rows = ledger.get("lengths")
    if rows is None:
        mechanism = ledger["mechanism"]
        rows = [{**mechanism, **mechanism.get("rounds", [{}])[-1]}]
    names = ("length", "policy", "released", "noise_stddev", "threshold", "valid")
    print_table("Released", rows, names)
    total = sum(part["rows"] for part in ledger["parts"])
    print_line(f"{total:,} rows in {seconds:.2f} s. Files: {output} (start with ledger.json).")


def print_table(title: str, rows: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> None:
    """Prints rows, in which columns of numbers are aligned right.

    Words and numbers are whole: a table that is too wide becomes several, each with the columns that
    tell its rows apart, which are the first one or two. Of two, the first is shown once for equal rows.

    Args:
      title: The title of the table.
      rows: The values of each row by the names of their columns.
      names: The columns, by default all; those without any value are left out.
    """
    names = names or list({name: None for row in rows for name in row})
    names = [name for name in names if any(row.get(name) is not None for row in rows)]
    columns = [[number(row.get(name)) for row in rows] for name in names]
    keys = 1 if not columns or len(set(columns[0])) == len(rows) else 2
    if keys == 2:
        starts = zip(columns[0], ["", *columns[0]], strict=False)
        columns[0] = ["" if cell == before else cell for cell, before in starts]
    console, tables = _console(sys.stdout), list[list[_Column]]()
    for name, cells in zip(names, columns, strict=True):
        column = _Column(name.replace("_", " "), cells, console.width)
        if len(tables) < 1 or sum(each.least for each in (*tables[-1], column)) >= console.width:
            tables.append(tables[0][:keys] if tables else [])
        tables[-1].append(column)
    console.print(title, soft_wrap=True)
    for shown in tables:
        table, widths = Table(), [column.least for column in shown]
        for _ in range(sum(widths) + 1, console.width):
            lacking = [each.most - width for each, width in zip(shown, widths, strict=True)]
            widths[lacking.index(max(lacking))] += max(lacking) > 0
        for column, width in zip(shown, widths, strict=True):
            justify = "right" if column.is_numeric else "left"
            table.add_column(column.name, justify=justify, overflow="fold", width=width - _FRAME)
        for cells in zip(*(column.cells for column in shown), strict=True):
            table.add_row(*cells)
        console.print(table)


class _Column:
    """A column of a table.

    Attributes:
      name: Its header.
      cells: Its cells.
      least, most: Its widths with the frame, with every word in a line of its own and with none; a word
        that is nearly as wide as the screen, such as a path, goes on in the next line.
      is_numeric: Whether all cells are numbers.
    """

    def __init__(self, name: str, cells: Sequence[str], screen: int) -> None:
        self.name, self.cells = name, cells
        texts = [name, *cells]
        least = max(cell_len(word) for text in texts for word in ["", *text.split()])
        self.least = _FRAME + min(least, max(screen - _BESIDE, screen // 2))
        self.most = _FRAME + max(map(cell_len, texts))
        self.is_numeric = all(_NUMBER.fullmatch(cell) for cell in cells)


def print_notice(text: str) -> None:
    """Prints one line for the operator on stderr."""
    _console(sys.stderr).print(text, soft_wrap=True)


def print_line(text: str) -> None:
    """Prints one line on stdout."""
    _console(sys.stdout).print(text, soft_wrap=True)


def _console(file: TextIO) -> Console:
    """Returns a console that shows words and paths as they are, 110 wide where it is no terminal."""
    width = None if file.isatty() else 110
    return Console(file=file, width=width, markup=False, emoji=False, highlight=False)
