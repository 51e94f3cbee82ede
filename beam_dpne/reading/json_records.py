"""Parsers of JSON: lines with one object each, or one array of objects.

A block of lines is decoded in one call. If that fails, each line is decoded by the same decoder, so
that it never depends on the beginning of a block whether a record is accepted.

An array is cut into its elements without holding the file. An element ends at a comma or the closing
bracket that is outside strings and inside no other bracket. Only brackets, commas, quotes and
backslashes are looked at for this. The decoder of JSON lines then decides whether an element is JSON.
"""

import json
import operator
import re
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.records import Batch, Block, BrokenText, Offsets, arranged, pieces
from beam_dpne.reading.rejects import (
    BAD_TEXT,
    BAD_TOKENS,
    BAD_USER,
    EMPTY_USER,
    NO_TEXT,
    NO_USER,
    NOT_JSON,
    NOT_OBJECT,
    NOT_UTF8,
)

BLANKS = b" \t\r\n"
_USER = operator.attrgetter("user")


class JsonlParser:
    """Turns blocks of JSON lines into documents."""

    def __init__(self, options: ReadOptions) -> None:
        texts = {f"text_{number}": name for number, name in enumerate(options.text_fields)}
        others = {f"other_{number}": name for number, name in enumerate(options.fields or ())}
        self._record_names = options.record_names
        self._names = {"user": options.user_field, **texts, **others}
        self._texts = [operator.attrgetter(name) for name in texts]
        self._others = [operator.attrgetter(name) for name in others]
        self._is_tokens = options.text_is_tokens
        self._text_type = pa.list_(pa.string()) if options.text_is_tokens else pa.string()
        text = list[str] if options.text_is_tokens else str
        self._strict = self._decoder(str | int, text if len(texts) == 1 else text | None)
        self._lenient = self._decoder(Any, Any, is_lenient=True)

    def _decoder(self, user: Any, text: Any, *, is_lenient: bool = False) -> Any:
        """Returns a decoder of objects with these types, where one of several texts may be missing."""
        fields: list[Any] = []
        for name in self._names:
            is_other = name.startswith("other_")
            kind = Any if is_other else user if name == "user" else text
            is_optional = is_other or is_lenient or (name != "user" and len(self._texts) > 1)
            fields.append((name, kind, None) if is_optional else (name, kind))
        # Fields without a default must come first in a struct, as the user's field does.
        record = msgspec.defstruct("Record", fields, rename=self._names, gc=False)
        return msgspec.json.Decoder(record)

    def parse(self, block: Block) -> Batch:
        """Decodes the lines of a block; blank lines are skipped."""
        block = block.filled()
        records = None if block.too_long else self._decode_all(block)
        return self._decode_each(block) if records is None else self._batch(records, [])

    def _decode_all(self, block: Block) -> list[Any] | None:
        """Returns all records of a block, or None if any of them has a fault."""
        try:
            _check_utf8(block.data)
            records = self._strict_records(block)
        except (msgspec.MsgspecError, pa.ArrowInvalid, RecursionError):
            return None
        if records is None or len(records) != len(block.starts):
            return None
        usable = "" not in map(_USER, records)
        if usable and len(self._texts) > 1:
            usable = all(map(self._has_text, records))
        return records if usable else None

    def _strict_records(self, block: Block) -> list[Any] | None:
        """Returns the records of a block if each is exactly one line, else None.

        `decode_lines` accepts any sequence of objects. If each line begins and ends with a brace, no
        object crosses the border of two lines. The caller checks that there are as many objects as
        lines.
        """
        raw = np.frombuffer(block.data, np.uint8)
        begins, closes = raw[block.starts], raw[block.ends - 1]
        if not ((begins == ord("{")).all() and (closes == ord("}")).all()):
            return None
        return self._strict.decode_lines(block.data)

    def _has_text(self, record: Any) -> bool:
        return any(text(record) is not None for text in self._texts)

    def _decode_each(self, block: Block) -> Batch:
        """Decodes line by line, and rejects the lines that are no usable records."""
        records: list[Any] = []
        rejects: list[tuple[int, str]] = []
        for position, line in block.records():
            if not line.strip(BLANKS):
                continue
            record = self._decode(line)
            if isinstance(record, str):
                rejects.append((position, record))
            else:
                records.append(record)
        return self._batch(records, rejects)

    def _decode(self, line: bytes) -> Any:
        """Returns the record of a line, or the reason why the line is rejected."""
        try:
            line.decode()
        except UnicodeDecodeError:
            return NOT_UTF8
        try:
            record = self._strict.decode(line)
        except (msgspec.MsgspecError, RecursionError):
            return self._reason(line)
        if record.user == "":
            return EMPTY_USER
        return record if self._has_text(record) else NO_TEXT

    def _reason(self, line: bytes) -> str:
        """Returns the reason why a line that the strict decoder refused is rejected."""
        try:
            record = self._lenient.decode(line)
        except msgspec.ValidationError:
            return NOT_OBJECT
        except (msgspec.MsgspecError, RecursionError):
            return NOT_JSON
        if record.user is None:
            return NO_USER
        if isinstance(record.user, bool) or not isinstance(record.user, (str, int)):
            return BAD_USER
        if not self._has_text(record):
            return NO_TEXT
        return BAD_TOKENS if self._is_tokens else BAD_TEXT

    def _batch(self, records: list[Any], rejects: list[tuple[int, str]]) -> Batch:
        """Turns decoded records into documents; a user that is an integer becomes its digits."""
        users = list(map(_USER, records))
        if int in set(map(type, users)):
            users = [str(user) for user in users]
        texts = [pa.array(list(map(text, records)), self._text_type) for text in self._texts]
        others = [
            pa.array(map(_text_of, map(other, records)), pa.string()) for other in self._others
        ]
        columns = [pa.array(users, pa.string()), *texts, *others]
        return Batch(arranged(columns, self._record_names), rejects, len(users))


def _check_utf8(data: bytes) -> None:
    """Raises ArrowInvalid unless the bytes are UTF-8; other threads work meanwhile."""
    offsets = pa.py_buffer(np.array([0, len(data)], np.int64))
    text = pa.LargeStringArray.from_buffers(1, offsets, pa.py_buffer(data))
    text.validate(full=True)


def _text_of(value: Any) -> str | None:
    """Returns the value of a further field: text as it is, null as None, anything else as JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


_BEGINNING = re.compile(rb"[ \t\r\n]*\[")
_QUOTE, _ESCAPE, _COMMA, _OPEN, _CLOSE = 1, 2, 3, 4, 5
# (256,) class of each byte, as bytes.translate takes it; 0 for bytes that do not matter.
_CLASSES = bytes(
    {'"': _QUOTE, "\\": _ESCAPE, ",": _COMMA, "[": _OPEN, "{": _OPEN, "]": _CLOSE, "}": _CLOSE}.get(
        chr(byte), 0
    )
    for byte in range(256)
)
# (6,) change of the number of open brackets by each class.
_STEPS = np.zeros(6, np.int64)
_STEPS[[_OPEN, _CLOSE]] = 1, -1
_IS_BLANK = np.zeros(256, bool)
_IS_BLANK[list(BLANKS)] = True
_NOT_CLOSED = (
    "ends inside its JSON array. The file is truncated, or a quote or a bracket is not closed."
)
_GOES_ON = (
    "has more text after the end of its JSON array. A file must hold one array of objects, or one "
    "object on each line."
)
_BAD_BRACKET = (
    "has a closing brace too many in its JSON array, so that its records cannot be separated."
)


def array_start(head: bytes) -> int:
    """Returns the number of bytes up to and with the opening bracket, or 0 if there is no array.

    >>> array_start(b' [{"user": 1}]'), array_start(b'{"user": 1}')
    (2, 0)
    """
    found = _BEGINNING.match(head)
    return found.end() if found else 0


class _State(NamedTuple):
    """State between two pieces: the number of open brackets, and whether a string or escape is open."""

    depth: int = 0
    in_string: bool = False
    is_escaped: bool = False


class _Found(NamedTuple):
    """Borders of elements in a piece.

    Attributes:
      commas: Positions after the commas between elements.
      end: Position after the array's closing bracket; None if it is not in the piece.
      after: State after the piece.
    """

    commas: Offsets
    end: int | None
    after: _State


def _find_borders(data: bytes, state: _State) -> _Found:
    """Finds the borders of elements in a piece of an array.

    Raises:
      BrokenText: A brace closes the array.
    """
    # (m,) the class and the position of each byte that matters.
    classes = np.frombuffer(data.translate(_CLASSES), np.uint8)
    positions = np.flatnonzero(classes != 0)
    classes = classes[positions]
    escaped = _escaped(positions[classes == _ESCAPE], len(data), state.is_escaped)
    is_quote = classes == _QUOTE
    if escaped.size:
        is_quote &= ~np.isin(positions, escaped, assume_unique=True)
    # (m,) whether the text after each of these bytes is in a string. Quotes are dropped below.
    in_string = (np.cumsum(is_quote) + state.in_string) % 2 == 1
    outside = ~in_string & (classes >= _COMMA)
    positions, classes = positions[outside], classes[outside]
    # (m,) number of open brackets after each of the remaining bytes; it is −1 after the array's end.
    depth = state.depth + np.cumsum(_STEPS[classes])
    below = np.flatnonzero(depth < 0)
    if below.size:
        first = int(below[0])
        end = int(positions[first])
        if data[end] != ord("]"):
            raise BrokenText(_BAD_BRACKET)
        commas = positions[:first][(classes[:first] == _COMMA) & (depth[:first] == 0)]
        return _Found(commas + 1, end + 1, state)
    after = _State(
        depth=int(depth[-1]) if depth.size else state.depth,
        in_string=bool(in_string[-1]) if in_string.size else state.in_string,
        is_escaped=bool(escaped.size and escaped[-1] == len(data)),
    )
    return _Found(positions[(classes == _COMMA) & (depth == 0)] + 1, None, after)


def _escaped(escapes: Offsets, size: int, first_is_escaped: bool) -> Offsets:
    """Returns the positions of bytes that follow an odd number of backslashes.

    Args:
      escapes: Positions of the backslashes.
      size: Bytes of the piece. It is among the results if the first byte of the next piece is escaped.
      first_is_escaped: Whether the piece before ends with an odd number of backslashes.
    """
    if first_is_escaped:
        if not (escapes.size and escapes[0] == 0):
            after = _escaped(escapes, size, first_is_escaped=False)
            return np.concatenate([np.zeros(1 if size else 0, np.int64), after])
        escapes = escapes[1:]
    if not escapes.size:
        return escapes
    # Runs of neighbouring backslashes: an odd number of them escapes the byte after the run.
    breaks = np.flatnonzero(np.diff(escapes) != 1)
    starts = escapes[np.append(0, breaks + 1)]
    ends = escapes[np.append(breaks, escapes.size - 1)] + 1
    return ends[(ends - starts) % 2 == 1]


class ArrayBorders:
    """Ends an element after its comma, and the last element after the array's bracket.

    It is the scanner of one element as well, because a text is scanned for one element at a time.
    """

    def __init__(self) -> None:
        self._is_ended = False
        self._state = _State()

    def ends(self, data: bytes) -> Offsets:
        """Returns the positions after elements; blanks after the array count as one more record."""
        if self._is_ended:
            return self._end_of_blanks(data, 0)
        found, state = [np.zeros(0, np.int64)], _State()
        for piece in pieces(len(data)):
            commas, end, state = _find_borders(data[piece], state)
            found.append(commas + piece.start)
            if end is not None:
                end += piece.start
                found += [np.array([end]), self._end_of_blanks(data, end)]
                break
        return np.concatenate(found)

    def _end_of_blanks(self, data: bytes, at: int) -> Offsets:
        """Passes over the text after the array, which must be blank."""
        self._is_ended = True
        if data[at:].strip(BLANKS):
            raise BrokenText(_GOES_ON)
        return np.array([len(data)] if len(data) > at else [], np.int64)

    def scanner(self) -> "ArrayBorders":
        """Returns this object, ready for the beginning of an element."""
        self._state = _State()
        return self

    def feed(self, data: bytes, at: int = 0) -> int:
        """Returns where the element ends, after its comma or the array's bracket, or -1."""
        found = _find_borders(data[at:], self._state)
        self._state = found.after
        if found.commas.size:
            return at + int(found.commas[0])
        if found.end is None:
            return -1
        self._is_ended = True
        return at + found.end

    def finish(self) -> None:
        """Raises BrokenText unless the array has been closed."""
        if not self._is_ended:
            raise BrokenText(_NOT_CLOSED)


class JsonArrayParser(JsonlParser):
    """Turns blocks of elements into documents."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._list = msgspec.json.Decoder(list[self._strict.type])

    def parse(self, block: Block) -> Any:
        """Decodes the elements of a block; empty ones, between two commas, are skipped."""
        return super().parse(_elements(block))

    def _strict_records(self, block: Block) -> list[Any] | None:
        if not block.starts.size:
            return []
        elements = block.data[int(block.starts[0]) : int(block.ends[-1])]
        return self._list.decode(b"[" + elements + b"]")


def _elements(block: Block) -> Block:
    """Returns the elements without their commas, the array's bracket, and blanks around them."""
    # A zero byte is added, so that raw[starts] is valid for an empty element at the end, and each run
    # of blanks has an end.
    raw = np.frombuffer(block.data + b"\0", np.uint8)
    starts, ends = block.starts, block.ends - np.isin(raw[block.ends - 1], list(b",]"))
    is_blank = _IS_BLANK[raw]
    # Edges of the runs of blanks: run i has the bytes from firsts[i] up to stops[i].
    edges = np.flatnonzero(np.diff(is_blank, prepend=False))
    firsts, stops = edges[0::2], edges[1::2]
    is_led, is_followed = is_blank[starts], is_blank[ends - 1]
    starts, ends = starts.copy(), ends.copy()
    starts[is_led] = stops[np.searchsorted(stops, starts[is_led], side="right")]
    ends[is_followed] = firsts[np.searchsorted(firsts, ends[is_followed]) - 1]
    # Of an element of blanks alone, the end is now before the start.
    ends = np.maximum(ends, starts)
    positions = block.positions + (starts - block.starts)
    return block._replace(starts=starts, ends=ends, text_positions=positions).filled()
