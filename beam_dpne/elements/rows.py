"""Rows of a release, as its files have them: tables, elements with a schema, the text of n-grams.

The tokens of an n-gram are escaped in its text, so that a line of a file holds each of them.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SEPARATOR = " "
EMPTY_TOKEN = "\\e"
_ESCAPES = {"\\": "\\\\", " ": "\\s", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
# Characters at which some readers end a line or a text, beyond those that are escaped above.
_ENDS = "\x00\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_ESCAPED_ENDS = {f"u{ord(end):04x}": end for end in _ENDS}
_UNESCAPES = {escape[1]: plain for plain, escape in _ESCAPES.items()} | {"e": ""} | _ESCAPED_ENDS

# Spreadsheets take a cell that begins with one of these as a formula; the last four are the full-width
# forms of the first four. With the apostrophe, a reader knows which ones were added.
_FORMULA = re.compile("[=+\\-@\t\r'\uff1d\uff0b\uff0d\uff20]")
_IN_LINE = re.compile(f"[{_ENDS}]")
_ESCAPE = re.compile(r"\\(u[0-9a-f]{4}|.?)", re.DOTALL)
_IN_TOKEN = re.compile(r"[\\ \t\n\r]")
_IN_ITEM = re.compile(r"[\\\t\n\r]")
# Words with one of these sort or read otherwise than by their own bytes; the empty word does as well.
_NOT_ORDINARY = r"[\x00-\x20\\]|^$"


def join_tokens(tokens: Sequence[str]) -> str:
    r"""Returns the text of an n-gram: its escaped tokens, joined by one blank.

    In a token, a backslash is written as `\\`, a blank as `\s`, a tab as `\t`, a line feed as `\n`,
    and a carriage return as `\r`. The empty token is written as `\e`. Inverse of `split_ngram`.

    >>> join_tokens(["New York", "", "a\\b"])
    'New\\sYork \\e a\\\\b'
    """
    return SEPARATOR.join(escape_token(token) for token in tokens)


def split_ngram(ngram: str) -> tuple[str, ...]:
    r"""Returns the tokens of an n-gram; inverse of `join_tokens`.

    Raises:
      ValueError: on an escape that `join_tokens` does not write.

    >>> split_ngram("New\\sYork \\e a\\\\b")
    ('New York', '', 'a\\b')
    """
    return tuple(unescape_item(part) for part in ngram.split(SEPARATOR))


def escape_token(token: str) -> str:
    """Returns one token as `join_tokens` writes it."""
    return _escaped(token, _IN_TOKEN)


def escape_tokens(tokens: pa.Array) -> tuple[pa.Array, bool]:
    """Returns tokens as `join_tokens` writes them, and whether all of them are ordinary.

    N-grams of ordinary tokens have one order by their tokens and by their texts. A token is ordinary if
    it is not empty, and has no backslash, no blank and no character below the blank.
    """
    options = pc.MatchSubstringOptions(_NOT_ORDINARY)
    if not pc.call_function("match_substring_regex", [tokens], options).true_count:
        return tokens, True
    starts = range(0, len(tokens), _ROWS_AT_ONCE)
    parts = (tokens.slice(start, _ROWS_AT_ONCE).to_pylist() for start in starts)
    escaped = [pa.array(map(escape_token, part), pa.string()) for part in parts]
    return pa.concat_arrays(escaped), False


def escape_item(item: str) -> str:
    r"""Returns an item of a set union as one line without tabs.

    It is escaped like a token of an n-gram, except that a blank stays one. Inverse of `unescape_item`.

    >>> escape_item("New York\t\\")
    'New York\\t\\\\'
    """
    return _escaped(item, _IN_ITEM)


def _escaped(text: str, special: re.Pattern[str]) -> str:
    return special.sub(lambda match: _ESCAPES[match.group()], text) or EMPTY_TOKEN


def unescape_item(part: str) -> str:
    r"""Returns an item or a token from its escaped form; inverse of `escape_item` and `escape_token`.

    It reads what `to_cell` writes, too.

    Raises:
      ValueError: on an unknown escape.

    >>> unescape_item("New York\\t\\\\") == "New York\t\\"
    True
    """
    if not part:
        raise ValueError("An n-gram has an empty token that is not written as \\e.")

    def plain(match: re.Match[str]) -> str:
        letter = match.group(1)
        if letter not in _UNESCAPES or (letter == "e" and part != EMPTY_TOKEN):
            raise ValueError("An n-gram has a backslash that starts no known escape.")
        return _UNESCAPES[letter]

    return _ESCAPE.sub(plain, part)


def to_cell(name: str, text: str) -> str:
    r"""Returns a text of a release as files of tabs have it: one line for every reader.

    Items and groups are escaped by `escape_item`; n-grams are already. What ends a line or a text for
    some readers is `\uXXXX`: U+0000, U+000B, U+000C, U+001C to U+001E, U+0085, U+2028 and U+2029.
    `unescape_item` and `split_ngram` read the result, and `from_cell` is its inverse.

    >>> to_cell("ngram", "a\u2028b\\\\"), to_cell("group", "a\u2028b\\")
    ('a\\u2028b\\\\', 'a\\u2028b\\\\')
    """
    escaped = text if name == "ngram" else escape_item(text)
    return _IN_LINE.sub(lambda match: f"\\u{ord(match.group()):04x}", escaped)


def from_cell(name: str, cell: str) -> str:
    r"""Returns a text of the column `name` of a release; inverse of `to_cell`.

    Raises:
      ValueError: on an unknown escape in an item or a group.

    >>> from_cell("ngram", "a\\u2028b\\\\") == "a\u2028b\\\\"
    True
    """
    if name != "ngram":
        return unescape_item(cell)
    return _ESCAPE.sub(lambda match: _ESCAPED_ENDS.get(match.group(1), match.group()), cell)


def guard(text: str) -> str:
    """Returns a text that a spreadsheet shows instead of computing.

    >>> guard("=1+1"), guard("it's"), guard("'tis")
    ("'=1+1", "it's", "''tis")
    """
    return f"'{text}" if _FORMULA.match(text) else text


def unguard(text: str) -> str:
    """Returns the text of a cell that `guard` has written."""
    return text.removeprefix("'")


ROW_SCHEMA = pa.schema([("length", pa.int32()), ("ngram", pa.string()), ("score", pa.float64())])
ITEM_SCHEMA = pa.schema([("item", pa.string()), ("score", pa.float64())])
PROBABILITY_SCHEMA = pa.schema([("ngram", pa.string()), ("probability", pa.float64())])
_USERS = (
    pa.field("users", pa.int64()),
    pa.field("users_low", pa.int64()),
    pa.field("users_high", pa.int64()),
)
COUNTED_ROW_SCHEMA = pa.schema([*ROW_SCHEMA, *_USERS])
COUNTED_ITEM_SCHEMA = pa.schema([*ITEM_SCHEMA, *_USERS])
GROUP_FIELD = pa.field("group", pa.string())
PHRASE_SCHEMA = pa.schema([("ngram", pa.string()), *_USERS])
GROUPED_PHRASE_SCHEMA = PHRASE_SCHEMA.insert(0, GROUP_FIELD)
# The order of a release: by length, then by falling numbers of users, if it has them, then by falling
# score or probability, then by bytes, first of the group, if there are groups.
ORDER = {
    "length": "ascending",
    "users": "descending",
    "score": "descending",
    "probability": "descending",
    "group": "ascending",
    "ngram": "ascending",
    "item": "ascending",
}
SCORE_DECIMALS = 6
PROBABILITY_DIGITS = 9
# So many rows are Python objects at a time.
_ROWS_AT_ONCE = 2**16


class Rows(Protocol):
    """All rows of a release in order: a table, or an object that makes pieces of a table."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        ...

    def __len__(self) -> int: ...

    def select(self, names: list[str]) -> "Rows":
        """Returns the same rows with some of their columns."""
        ...

    def slice(self, start: int, count: int) -> pa.Table:
        """Returns so many rows as a table, or those that are left."""
        ...


def pieces(rows: Rows, start: int = 0, count: int | None = None) -> Iterator[pa.Table]:
    """Yields rows in pieces so small that they can be Python objects.

    Args:
      rows: the rows.
      start: the first row.
      count: the number of rows; by default, or where fewer are left, all others.

    >>> rows = pa.table([["b", "a"], [1.0, 1.0]], schema=ITEM_SCHEMA)
    >>> [len(piece) for piece in pieces(rows)]
    [2]
    """
    stop = len(rows) if count is None else min(len(rows), start + count)
    for first in range(start, stop, _ROWS_AT_ONCE):
        yield rows.slice(first, min(_ROWS_AT_ONCE, stop - first))


class ReleasedNgram(NamedTuple):
    """A released n-gram.

    Attributes:
      length: the number of its words.
      ngram: the text of its words, see `join_tokens`.
      score: its noisy weight, rounded to six decimals.
    """

    length: int
    ngram: str
    score: float


class ReleasedItem(NamedTuple):
    """An item of a released set union.

    Attributes:
      item: the string that users have.
      score: its noisy weight, rounded to six decimals.
    """

    item: str
    score: float


class CountedNgram(NamedTuple):
    """A released n-gram with an estimate of the number of users who have it.

    Attributes:
      length: the number of its words.
      ngram: the text of its words, see `join_tokens`.
      score: its noisy weight, rounded to six decimals.
      users: the estimated number of users.
      users_low: the lower end of its 95 % interval.
      users_high: the upper end.
    """

    length: int
    ngram: str
    score: float
    users: int
    users_low: int
    users_high: int


class GroupedNgram(NamedTuple):
    """A released n-gram of a group.

    Attributes:
      length: the number of its words.
      group: the group of the texts that have it.
      ngram: the text of its words, see `join_tokens`.
      score: its noisy weight, rounded to six decimals.
    """

    length: int
    group: str
    ngram: str
    score: float


class CountedGroupedNgram(NamedTuple):
    """A released n-gram of a group with an estimate of the number of users who have it there.

    Attributes:
      length: the number of its words.
      group: the group of the texts that have it.
      ngram: the text of its words, see `join_tokens`.
      score: its noisy weight, rounded to six decimals.
      users: the estimated number of users who have it in a text of this group.
      users_low: the lower end of its 95 % interval.
      users_high: the upper end.
    """

    length: int
    group: str
    ngram: str
    score: float
    users: int
    users_low: int
    users_high: int


class CountedItem(NamedTuple):
    """An item of a released set union with an estimate of the number of users who have it.

    Attributes:
      item: the string that users have.
      score: its noisy weight, rounded to six decimals.
      users: the estimated number of users.
      users_low: the lower end of its 95 % interval.
      users_high: the upper end.
    """

    item: str
    score: float
    users: int
    users_low: int
    users_high: int


class PhraseCount(NamedTuple):
    """The number of users of a phrase of a public list.

    Attributes:
      ngram: the text of its words, see `join_tokens`.
      users: the noisy number of users who have it.
      users_low: the lower end of its 95 % interval.
      users_high: the upper end.
    """

    ngram: str
    users: int
    users_low: int
    users_high: int


class GroupedPhraseCount(NamedTuple):
    """The number of users of a phrase of a public list in one group.

    Attributes:
      group: the group of the texts that are looked at.
      ngram: the text of its words, see `join_tokens`.
      users: the noisy number of users who have it in a text of this group.
      users_low: the lower end of its 95 % interval.
      users_high: the upper end.
    """

    group: str
    ngram: str
    users: int
    users_low: int
    users_high: int


class NgramProbability(NamedTuple):
    """An n-gram of a public vocabulary, and its private probability.

    Attributes:
      ngram: the text of its words, see `join_tokens`.
      probability: its probability, rounded to nine significant digits.
    """

    ngram: str
    probability: float


def in_order(rows: pa.Table) -> pa.Table:
    """Returns the rows in the order of a release, which depends on nothing but the rows.

    >>> rows = pa.table([["b", "c", "a"], [1.0, 2.0, 1.0]], schema=ITEM_SCHEMA)
    >>> in_order(rows).column("item").to_pylist()
    ['c', 'a', 'b']
    """
    own = [(name, direction) for name, direction in ORDER.items() if name in rows.schema.names]
    return rows.sort_by(own)


def with_rounded_scores(rows: pa.Table) -> pa.Table:
    """Returns the rows with scores that are rounded as in a release."""
    scores = np.round(rows.column("score").to_numpy(), SCORE_DECIMALS)
    place = rows.schema.get_field_index("score")
    return rows.set_column(place, rows.schema.field("score"), pa.array(scores))


def rounded_probabilities(probabilities: np.ndarray) -> np.ndarray:
    """Returns probabilities as a release has them, with nine significant digits."""
    shown = (f"{value:.{PROBABILITY_DIGITS}g}" for value in probabilities.tolist())
    return np.fromiter(map(float, shown), np.float64, count=probabilities.size)
