"""The display of a run: a progress line on stderr, and tables on stdout."""

import contextlib
import functools
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO
from unicodedata import bidirectional

from rich.cells import cell_len
from rich.console import Console
from rich.status import Status
from rich.table import Table

from beam_dpne.elements import progress
from beam_dpne.jobs.showing import Showing
from beam_dpne.release.wording import number

if TYPE_CHECKING:
    from beam_dpne.release.reading import Release

_REFRESH_SECONDS = 0.2
_LOG_SECONDS = 10.0
_NUMBER = re.compile(r"[-+<]?[\d∞][\d,.∞–± %]*(e-?\d+)?|[–-]?")
# Characters of a table beside the text of each cell.
_FRAME = 3
# Characters that a long path leaves to another column.
_BESIDE = 30
_LEFT_TO_RIGHT = "\u200e"
# Classes of Unicode of letters and digits that are written from right to left.
_RIGHT_TO_LEFT = {"R", "AL", "AN"}
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
# What the columns of the table of a release mean, for the line beneath it.
_MEANINGS = {
    "noise_stddev": "noise stddev is the standard deviation of the noise on each weight",
    "threshold": "threshold: only what was known before is released with a noisy weight below it",
    "valid": "valid is the number of candidates, whether or not anybody has them",
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
    console = _console(sys.stderr)
    start = time.monotonic()
    last = ("", None)
    printed = start
    began = start
    line = Status(_PHRASES[""], console=console) if console.is_terminal else None
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


def print_release(release: "Release", output: str, seconds: float, *, quiet: bool) -> None:
    """Prints how many rows a run released, from its ledger, and the directory.

    If it is quiet, it only warns of a release without rows.
    """
    total = release.num_rows
    if not total:
        print_notice(
            f"warning: the release is EMPTY: {output} has a ledger and no row. Too few "
            "users share anything under this plan; beam-dpne plan shows how many are needed. The "
            "budget is spent all the same."
        )
    if quiet:
        return
    rows = release.lengths
    if not rows:
        mechanism = release.ledger["mechanism"]
        rows = [{**mechanism, **mechanism.get("rounds", [{}])[-1]}]
    names = ["length", "policy", "released", *_MEANINGS]
    if release.ledger["plan"].get("strategy") == "adaptive":
        names.remove("noise_stddev")  # It is 1, since the weights carry the budget.
    print_table("Released", rows, names)
    shown = [name for name in names if any(row.get(name) for row in rows)]
    meant = [text for name, text in _MEANINGS.items() if name in shown]
    print_line(f"{'; '.join(meant)}.")
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
    # So many of the first columns tell the rows apart.
    keys = 1
    if columns and len(set(columns[0])) < len(rows):
        keys = 2
        starts = zip(columns[0], ["", *columns[0]], strict=False)
        columns[0] = ["" if cell == before else cell for cell, before in starts]
    console = _console(sys.stdout)
    shown = [
        _Column(name.replace("_", " "), cells, console.width)
        for name, cells in zip(names, columns, strict=True)
    ]
    console.print(title, soft_wrap=True)
    for part in _parts(shown, keys, console.width):
        table = Table()
        for column, width in zip(part, _widths(part, console.width), strict=True):
            justify = "right" if column.is_numeric else "left"
            table.add_column(column.name, justify=justify, overflow="fold", width=width - _FRAME)
        for cells in zip(*(column.cells for column in part), strict=True):
            table.add_row(*map(_apart, cells))
        console.print(table)


def _apart(cell: str) -> str:
    """Returns a cell that changes the order of nothing beside it on a terminal.

    After letters that are written from right to left, a terminal would move the frame and the numbers
    of the next cells before them. A mark, which has no width, ends their direction.
    """
    return (
        f"{cell}{_LEFT_TO_RIGHT}" if _RIGHT_TO_LEFT.intersection(map(bidirectional, cell)) else cell
    )


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
        self.name = name
        self.cells = cells
        texts = [name, *cells]
        least = max(cell_len(word) for text in texts for word in ["", *text.split()])
        self.least = _FRAME + min(least, max(screen - _BESIDE, screen // 2))
        self.most = _FRAME + max(map(cell_len, texts))
        self.is_numeric = all(_NUMBER.fullmatch(cell) for cell in cells)


def _parts(columns: Sequence[_Column], keys: int, screen: int) -> list[list[_Column]]:
    """Divides columns among tables that fit the screen; each begins with the columns of the keys."""
    parts: list[list[_Column]] = []
    for column in columns:
        if not parts:
            parts.append([])
        elif sum(each.least for each in (*parts[-1], column)) >= screen:
            parts.append(parts[0][:keys])
        parts[-1].append(column)
    return parts


def _widths(columns: Sequence[_Column], screen: int) -> list[int]:
    """Returns the widths of columns, which get what the screen has left, the shortest of it first."""
    widths = [column.least for column in columns]
    for _ in range(sum(widths) + 1, screen):
        lacking = [each.most - width for each, width in zip(columns, widths, strict=True)]
        worst = max(lacking)
        if worst <= 0:
            break
        widths[lacking.index(worst)] += 1
    return widths


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
    console = _console(file or sys.stdout)
    console.print(text, soft_wrap=not console.is_terminal)


def _console(file: TextIO) -> Console:
    """Returns a console that shows words and paths as they are, 110 wide where it is no terminal."""
    width = None if file.isatty() else 110
    return _Console(file=file, width=width, markup=False, emoji=False, highlight=False)


class _Console(Console):
    """A console that leaves to its caller what happens when nobody reads its output any more."""

    def on_broken_pipe(self) -> None:
        """Raises the error that Rich has caught, instead of ending the process."""
        raise BrokenPipeError
