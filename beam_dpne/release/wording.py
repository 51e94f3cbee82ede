"""How texts, numbers and shares of a release are written for people.

Texts are visible, short, and escaped for HTML or Markdown.
"""

import math
import re
import unicodedata

from markupsafe import Markup, escape

MAX_SHOWN = 300
# Controls, formats (some change the order of letters), surrogates, separators of lines.
_INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp")
# Scripts of India and Iran need these two joiners, and many emoji consist of several characters.
_JOINERS = "\u200c\u200d"
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~$#])|(&)|(:)(?=//)|(?<=www)\.|(@)")
_LINE_BEGINNING = re.compile(r"^(\s*)(?:([-+=])|(\d+)([.)])(?=\s|$))")


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
