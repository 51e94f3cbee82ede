"""The parts of a report, from which `html` and `markdown` render the same content.

Every string in a block is plain text: the renderers escape all of it, so that a block may hold what a
ledger or a row says. Only `Figure.svg` is markup, which `charts` writes.
"""

import math
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

MAX_SHOWN = 300
# Controls, formats (some change the order of letters), surrogates, separators of lines.
_INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp")
# Scripts of India and Iran need these two joiners, and many emoji consist of several characters.
_JOINERS = "\u200c\u200d"


class Paragraph(NamedTuple):
    """A paragraph; `note` marks one that must not be overlooked."""

    text: str
    note: bool = False


class Heading(NamedTuple):
    """A heading within a section."""

    text: str


class Bullets(NamedTuple):
    """A list of sentences."""

    items: Sequence[str]


class Released(NamedTuple):
    """A released text in the cell of a table, whose letters may run from right to left."""

    text: str


class Measured(NamedTuple):
    """A released value in the cell of a table, with a bar beside it in HTML.

    Attributes:
      text: The value as it is shown.
      value: The value as a share of the largest one in the table, 0 to 1.
      low: Lower end of its interval as such a share; None without an interval.
      high: Upper end of its interval.
    """

    text: str
    value: float
    low: float | None = None
    high: float | None = None


Cell = str | Released | Measured


class Table(NamedTuple):
    """A table.

    Attributes:
      caption: Its name.
      headings: Name of each column.
      rows: Cells of each row.
      numeric: Positions of the columns of numbers, which are aligned at the right.
    """

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numeric: Sequence[int] = ()


class Tables(NamedTuple):
    """Tables side by side, where there is room for that."""

    tables: Sequence[Table]


class Code(NamedTuple):
    """Commands or text to copy."""

    text: str
    language: str = ""


class Figures(NamedTuple):
    """Plots side by side, which Markdown leaves out, since the tables have their numbers.

    Attributes:
      charts: Caption and SVG markup of each.
    """

    charts: Sequence[tuple[str, str]]


class Cards(NamedTuple):
    """Key figures: value and meaning of each."""

    items: Sequence[tuple[str, str]]


class Search(NamedTuple):
    """A search box over rows, in HTML alone.

    Attributes:
      groups: Rows of each length, by falling value.
      columns: Headings of the text and the value.
    """

    groups: Sequence["SearchGroup"]
    columns: tuple[str, str]


class SearchGroup(NamedTuple):
    """Rows of one length that a report embeds.

    Attributes:
      name: The number of words, or "" where rows have no length.
      texts: Text of each row, as it is shown.
      values: Value of each row, as it is shown.
    """

    name: str
    texts: Sequence[str]
    values: Sequence[str]


class Fold(NamedTuple):
    """Blocks that HTML shows only when a reader opens them."""

    summary: str
    blocks: Sequence["Block"]


Block = Paragraph | Heading | Bullets | Table | Tables | Code | Figures | Cards | Search | Fold


class Section(NamedTuple):
    """A section of a report.

    Attributes:
      name: Its anchor, and the name by which `leave_out` knows it.
      title: Its heading.
      blocks: Its content.
    """

    name: str
    title: str
    blocks: Sequence[Block]


class Report(NamedTuple):
    """A whole report.

    Attributes:
      title: Name of the release.
      subtitle: Program and budget in one line.
      sections: The sections, in reading order.
    """

    title: str
    subtitle: str
    sections: Sequence[Section]


def shown(text: str, limit: int = MAX_SHOWN) -> str:
    r"""Returns a text with its invisible characters written as codes, cut to a limit of characters.

    A released text may hold control characters and marks that make a reader see other letters than
    the file has.

    >>> shown("a\tb\u202ec"), shown("abcdef", limit=3)
    ('a⟨U+0009⟩b⟨U+202E⟩c', 'abc… (6 characters)')
    """
    kept = "".join(
        f"⟨U+{ord(sign):04X}⟩"
        if unicodedata.category(sign) in _INVISIBLE and sign not in _JOINERS
        else sign
        for sign in text[:limit]
    )
    return kept if len(text) <= limit else f"{kept}… ({len(text):,} characters)"


def number(value: object) -> str:
    """Returns a number for people: four significant digits, and all digits before the point.

    >>> [number(value) for value in (1234567, 6.23613728, 1e-7, 0.0, None, 1234.56, 1e300)]
    ['1,234,567', '6.236', '1e-7', '0', '–', '1,235', '1e300']
    """
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**15 else number(_float(value))
    if not isinstance(value, float):
        return shown(str(value))
    if not math.isfinite(value):
        return str(value)
    if 1e3 <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.4g}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def _float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")
