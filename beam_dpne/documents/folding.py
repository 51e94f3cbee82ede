"""Forms of texts that the operator chooses: folded letters and signs, and texts without HTML.

Each text is treated alone. Arrow finds tags by RE2, in time in proportion to the text, whatever it is;
Python's html.parser takes quadratic time for some texts.
"""

import html
import re
import unicodedata
from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

# In this order. The version changes with any of this.
FOLDS = ("apostrophes", "width", "compatibility", "case")
FOLD_VERSION = 1
# Signs that are typed for an apostrophe: grave and acute accent, the letter U+02BC, single quotation
# marks, the prime, those of Armenian and Hebrew, the saltillo, and the full-width form.
_APOSTROPHES = re.compile("[`\u00b4\u02bc\u2018\u2019\u201b\u2032\u055a\u05f3\ua78c\uff07]")
_WIDE = re.compile("[\u3000\uff01-\uffee]+")

# Attributes, whose values may have ">" in quotes; nothing goes over the next "<".
_ATTRIBUTES = r"""(?:"[^"<]*"|'[^'<]*'|[^<>])*>"""
# Elements within a sentence or a word. All other tags end a text.
_WITHIN = (
    "a|abbr|acronym|b|bdi|bdo|big|cite|code|data|del|dfn|em|font|i|ins|kbd|label|mark|nobr|q|rp|rt|ruby"
    "|s|samp|small|span|strike|strong|sub|sup|time|tt|u|var|wbr"
)
_WITHIN_TAG = rf"(?i)</?(?:{_WITHIN})(?:>|[\s/]{_ATTRIBUTES})"
# A tag, a comment, a declaration, or a script or style with its content, which may end with the text.
ENDING_TAG = (
    r"(?i)<!--(?s:.*?)(?:-->|\z)"
    r"|<(?:script|style)(?:>|[\s/][^<>]*>)(?s:.*?)(?:</(?:script|style)[^<>]*>|\z)"
    rf"|</?[a-z]{_ATTRIBUTES}|<[!?][^<>]*>"
)
# For a note to the operator: a tag, or an entity that ends with a semicolon.
HTML = rf"(?i)</?(?:{_WITHIN}|br|div|h[1-6]|img|li|ol|p|pre|table|td|tr|ul)(?:>|[\s/][^<>]*>)"
HTML += r"|&(?:amp|lt|gt|quot|apos|nbsp|#[0-9]{1,7}|#x[0-9a-f]{1,6});"
HTML += r"|&[a-z]{1,4}(?:acute|grave|circ|uml|dash|quo);"


def folded(texts: pa.Array, names: Collection[str]) -> pa.Array:
    """Returns texts with folded letters and signs.

    `apostrophes` makes all signs that are typed for an apostrophe U+0027. `width` makes full-width and
    half-width forms (U+3000, U+FF01 to U+FFEE) ordinary ones. `compatibility` brings a text into
    normalization form KC. `case` folds case by Unicode's full folding, so that ß is ss.

    Args:
      texts: A string array without nulls.
      names: Some of `FOLDS`.

    >>> folded(pa.array(["Ｄon´t", "Straße"]), ["apostrophes", "width", "case"]).to_pylist()
    ["don't", 'strasse']
    """
    if not names:
        return texts
    return pa.array([_folded(text, names) for text in texts.to_pylist()], texts.type)


def _folded(text: str, names: Collection[str]) -> str:
    if "apostrophes" in names:
        text = _APOSTROPHES.sub("'", text)
    if "width" in names:
        text = _WIDE.sub(lambda wide: unicodedata.normalize("NFKC", wide.group()), text)
    if "compatibility" in names:
        text = unicodedata.normalize("NFKC", text)
    if "case" in names:
        text = unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())
    return text


def without_tags_within(texts: pa.Array) -> pa.Array:
    """Returns texts without the tags of HTML that stand within sentences and words.

    >>> without_tags_within(pa.array(["<b>W</b>ords<br>and <a href='x'>links</a>"])).to_pylist()
    ['Words<br>and links']
    """
    options = pc.ReplaceSubstringOptions(_WITHIN_TAG, "")
    return pc.call_function("replace_substring_regex", [texts], options)


def without_entities(texts: pa.Array) -> pa.Array:
    """Returns texts with the characters for which entities of HTML stand.

    >>> without_entities(pa.array(["Tom &amp; Jerry&#39;s", "AT&T"])).to_pylist()
    ["Tom & Jerry's", 'AT&T']
    """
    return pa.array([html.unescape(text) for text in texts.to_pylist()], texts.type)
