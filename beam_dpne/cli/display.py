"""What commands print on stdout: lines and tables."""

import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from unicodedata import bidirectional

from rich.cells import cell_len
from rich.table import Table

from beam_dpne.jobs.console import console_of, print_line, print_notice
from beam_dpne.release.wording import number

if TYPE_CHECKING:
    from beam_dpne.release.reading import Release

_NUMBER = re.compile(r"[-+<]?[\d∞][\d,.∞–± %]*(e-?\d+)?|[–-]?")
# Characters of a table beside the text of each cell.
_FRAME = 3
# Rows of a list that are shown after a run.
_FIRST_ROWS = 20
# Characters that a long path leaves to another column.
_BESIDE = 30
_LEFT_TO_RIGHT = "\u200e"
# Classes of Unicode of letters and digits that are written from right to left.
_RIGHT_TO_LEFT = {"R", "AL", "AN"}
# What the columns of the table of a release mean, for the line beneath it.
_MEANINGS = {
    "noise_stddev": "noise stddev is the standard deviation of the noise on each weight",
    "threshold": "threshold: a released row has at least this noisy weight, or was known before",
    "valid": "valid is the number of candidates, whether or not anybody has them",
}


def print_release(release: "Release", output: str, seconds: float, *, quiet: bool) -> None:
    """Prints how many rows a run released, from its ledger, and the directory.

    If it is quiet, it only warns of a release without rows.
    """
    total = release.num_rows
    if not total:
        cause = "Too few users share anything; beam-dpne plan shows how many are needed."
        if "series" in release.ledger:
            cause = f"Users may have used up their part in the series. {cause}"
        print_notice(
            f"warning: the release is EMPTY: {output} has a ledger and no row. {cause} The budget is "
            "spent all the same."
        )
    if quiet:
        return
    if release.program == "count":
        _print_counts(release)
    else:
        _print_rounds(release)
    print_line(f"{total:,} rows in {seconds:.2f} s. Files: {output} (start with ledger.json).")


def _print_counts(release: "Release") -> None:
    """Prints how numbers of a list were counted, and the first of them."""
    mechanism = release.ledger["mechanism"]
    print_table("Counted", release.table().slice(0, _FIRST_ROWS).to_pylist())
    noise = number(mechanism["noise_stddev"])
    told = (
        f"Each interval contains its number with a probability of {mechanism['confidence']:.0%}, by "
        f"itself. The noise of a number has a standard deviation of {noise} users."
    )
    if mechanism["excess_share"]:
        most = number(mechanism["shortfall"])
        phrases = "phrase" if mechanism["bound"] == 1 else "phrases"
        told += (
            f" Users with more than {mechanism['bound']:,} {phrases} of the list count less, by about "
            f"{most} users in one number at most; the intervals allow for it."
        )
    print_line(told)


def _print_rounds(release: "Release") -> None:
    """Prints how many n-grams of each length, or items, were released, and under which thresholds."""
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
    console = console_of(sys.stdout)
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
    of the next cells before them, and with such letters at the beginning it would turn the whole line.
    Marks around the cell, which have no width, end their direction.
    """
    if _RIGHT_TO_LEFT.isdisjoint(map(bidirectional, cell)):
        return cell
    return f"{_LEFT_TO_RIGHT}{cell}{_LEFT_TO_RIGHT}"


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
