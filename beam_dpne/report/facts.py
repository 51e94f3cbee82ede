"""The facts of which a report is made, a ledger and the rows that it lists, and how they are written.

Nothing else is read. A report is post-processing of a release, so it is as private as the release.
Texts are visible, short, and escaped for HTML or Markdown.

The numbers for a guess and for a test follow from (ε, δ)-differential privacy alone. A test for one
user's part that is wrong with probability α about inputs without the user is right about inputs with
the user with probability at most min(e^ε α + δ, 1 − e^−ε (1 − α − δ)) (Kairouz, Oh and Viswanath 2015).
A guess between two inputs that are equally likely is right with probability at most
(e^ε + δ) / (e^ε + 1).
"""

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup, escape

from beam_dpne.release.reading import Release

MAX_SHOWN = 300
# Controls, formats (some change the order of letters), surrogates, separators of lines.
_INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp")
# Scripts of India and Iran need these two joiners, and many emoji consist of several characters.
_JOINERS = "\u200c\u200d"
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~$#])|(&)|(:)(?=//)|(?<=www)\.|(@)")
_LINE_BEGINNING = re.compile(r"^(\s*)(?:([-+=])|(\d+)([.)])(?=\s|$))")


class Facts(Release):
    """A release as a report sees it."""

    @property
    def has_counts(self) -> bool:
        """Whether rows have estimated numbers of users."""
        return self.value_column == "users"

    @property
    def value_noun(self) -> str:
        """Name of the values by which rows are ranked and plotted, within a sentence."""
        return "estimated number of users" if self.has_counts else self.value_column

    @property
    def row_noun(self) -> str:
        """Name of one row."""
        return "item" if self.text_column == "item" else "n-gram"

    @property
    def lengths(self) -> Sequence[Mapping[str, Any]]:
        """The ledger's entry of each length; none unless the release is of n-grams."""
        return self.ledger.get("lengths", ())

    def texts(self, rows: pa.Table) -> list[str]:
        """Returns the texts of rows, behind their groups if they have any."""
        texts = rows.column(self.text_column).to_pylist()
        if not self.has_groups:
            return texts
        groups = rows.column("group").to_pylist()
        return [f"{group}: {text}" for group, text in zip(groups, texts, strict=True)]

    def groups(self) -> dict[int | None, pa.Table]:
        """Returns the rows by their length, ranked by their values; None stands for all lengths."""
        order = [(self.value_column, "descending")]
        if not self.lengths:
            return {None: self.rows.sort_by(order)}
        return {
            each["length"]: self.rows.filter(pc.field("length") == each["length"]).sort_by(order)
            for each in self.lengths
        }


def guessing_bound(epsilon: float, delta: float) -> float:
    """Returns the largest probability that a guess between two equally likely inputs is right.

    >>> guessing_bound(0.0, 0.0), round(guessing_bound(math.log(3), 0.0), 12)
    (0.5, 0.75)
    """
    return min(1.0, (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon)))


def detection_bound(epsilon: float, delta: float, false_alarms: float) -> float:
    """Returns the largest power of a test for one user's part, given its rate of false alarms.

    >>> round(detection_bound(math.log(3), 0.0, 0.01), 12), detection_bound(50.0, 0.0, 0.5)
    (0.03, 1.0)
    """
    slow = 1 - math.exp(-epsilon) * (1 - false_alarms - delta)
    fast = math.inf if epsilon > 700 else math.exp(epsilon) * false_alarms + delta
    return max(0.0, min(1.0, fast, slow))


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
    if isinstance(value, int) and abs(value) < 10**15:
        return f"{value:,}"
    if not isinstance(value, int | float):
        return shown(str(value))
    if math.isfinite(value) and 1e3 <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.4g}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def percent(share: float) -> str:
    """Returns a share as a percentage that never rounds a bound down, or up to all.

    >>> percent(0.5), percent(0.98201), percent(0.9999999)
    ('50 %', '98.3 %', 'more than 99.9 %')
    """
    if 0.999 < share < 1:
        return "more than 99.9 %"
    return f"{math.ceil(share * 1000 - 1e-9) / 10:g} %"


def html_text(text: str, limit: int = MAX_SHOWN) -> Markup:
    """Returns HTML that shows a text as it is, with its invisible characters as codes."""
    return escape(shown(text, limit))


def markdown_text(text: str, limit: int = MAX_SHOWN) -> Markup:
    r"""Returns Markdown that shows a text as it is: neither markup, nor HTML, nor links.

    >>> print(markdown_text("<b> *a* | http://x www.y &lt; 1."))
    \<b\> \*a\* \| http\://x www\.y &amp;lt; 1.
    """
    escaped = _MARKDOWN.sub(_escaped_sign, shown(text, limit))
    return Markup(_LINE_BEGINNING.sub(r"\1\3\\\2\4", escaped))


def _escaped_sign(match: re.Match[str]) -> str:
    sign = match[0]
    return {"&": "&amp;", "@": "&#64;"}.get(sign, f"\\{sign}")
