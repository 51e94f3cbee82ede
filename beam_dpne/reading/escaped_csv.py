r"""Records of CSV whose quotes are escaped by backslashes, as Spark, Hive and MySQL write them.

Within quotes `\"` is a quote and `\\` a backslash; any other backslash is one, as each is outside of
quotes. A field that begins with a quote goes on to the next one that is not escaped.
"""

import enum
import functools
import re
from collections.abc import Iterator

from beam_dpne.reading.files import LINE_END_BYTES, BrokenText, LineText, size_of
from beam_dpne.reading.rejects import NOT_CSV, TOO_LONG

_ESCAPE = re.compile(r'\\(["\\])')
# What follows within quotes, up to the one that ends them or to a backslash at the end of the text.
_QUOTED = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)


class OpenQuote(BrokenText):
    """A quoted field has no end."""


OPEN_QUOTE = "ends inside a quoted field. The file is truncated, or a quote is not closed."


_DOUBLED = (
    "has a quote right behind the one that ends a field, as programs write it that double quotes: give "
    "`quoting=quoted`. Read as escaped by backslashes, one user's text could become records of others."
)


class _State(enum.Enum):
    """What the text that was read ends in."""

    START = enum.auto()  # Nothing of a field yet.
    PLAIN = enum.auto()  # A field, outside of quotes.
    QUOTED = enum.auto()  # Quotes.


class EscapedRows:
    """The records of a text, for one pass."""

    def __init__(self, text: LineText, delimiter: str, limit: int) -> None:
        self._text = text
        self._delimiter = delimiter
        self._most = limit + LINE_END_BYTES
        sign = re.escape(delimiter)
        self._plain = re.compile(rf"[^{sign}\r\n]*")
        # A field with its quotes, or without, and what stands behind the quotes, which is a fault.
        self._field = re.compile(
            rf'(?:"({_QUOTED.pattern})"([^{sign}]*)|((?!")[^{sign}]*))(?:{sign}|\Z)', re.DOTALL
        )

    def __iter__(self) -> Iterator[tuple[int, list[str], str]]:
        """Yields offset, fields and fault ("" if there is none) of each record, not of blank lines.

        Raises:
          OpenQuote: The text ends inside a quoted field.
          BrokenText: Its quotes seem to be doubled.
        """
        text = self._text
        start = text.offset
        state = _State.START
        fault = ""
        record = ""
        rest = ""
        for piece in iter(functools.partial(text.readline, self._most + 1), ""):
            size, cause = size_of(piece)
            text.offset += size
            fault = fault or cause
            state, rest = self._after(rest + piece, state)
            if text.offset - start > self._most:
                fault = TOO_LONG
                record = ""
            else:
                record += piece
            if state is _State.QUOTED or piece[-1] not in "\r\n":
                continue
            yield from self._record(start, record, fault)
            start = text.offset
            state = _State.START
            fault = ""
            record = ""
        if state is _State.QUOTED or rest:
            raise OpenQuote(OPEN_QUOTE)
        yield from self._record(start, record, fault)

    def _record(self, start: int, record: str, fault: str) -> Iterator[tuple[int, list[str], str]]:
        """Yields a record, unless it is a blank line."""
        record = record.rstrip("\r\n")
        if fault:
            yield start, [], fault
        elif record:
            fields = self._fields(record)
            yield start, fields, "" if fields else NOT_CSV

    def _fields(self, record: str) -> list[str]:
        """Returns the fields of a record, none if text follows a closing quote."""
        fields: list[str] = []
        end = 0
        while end <= len(record):
            found = self._field.match(record, end)
            if found is None or found[2]:
                return []
            quoted, _, plain = found.groups()
            fields.append(plain if quoted is None else _ESCAPE.sub(r"\1", quoted))
            # The last field ends without a delimiter.
            if found.end() == len(record) and not found[0].endswith(self._delimiter):
                break
            end = found.end()
        return fields

    def _after(self, text: str, state: _State) -> tuple[_State, str]:
        """Returns what a part of a line ends in, and a backslash at its end whose sign is missing."""
        place = 0
        while place < len(text):
            if state is _State.START:
                state = _State.PLAIN
                if text[place] == '"':
                    state = _State.QUOTED
                    place += 1
            elif state is _State.QUOTED:
                found = _QUOTED.match(text, place)
                place = len(text) if found is None else found.end()
                if text[place:] == "\\":
                    return state, "\\"
                if place < len(text):
                    state = _State.PLAIN
                    place += 1
                    if text[place : place + 1] == '"':
                        # Read by other rules, the record would end somewhere else.
                        raise BrokenText(_DOUBLED)
            else:
                found = self._plain.match(text, place)
                place = len(text) if found is None else found.end() + 1
                if place <= len(text):
                    state = _State.START
        return state, ""
