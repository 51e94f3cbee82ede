"""Records of JSON: lines of objects, and the elements of one array, both decoded by msgspec.

An array is cut into its elements before they are decoded, so that a record that cannot be used is one
reject there, as it is among lines.
"""

import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import ijson
import msgspec
import numpy as np

from beam_dpne.reading.columns import (
    MOST_LEVELS,
    is_too_deep,
    record_type,
    whole_records,
)
from beam_dpne.reading.files import BrokenText, TextFile, as_utf8, lines_of
from beam_dpne.reading.json_lists import prefix_of
from beam_dpne.reading.rejects import NOT_DECODED, NOT_JSON, TOO_DEEP, TOO_LONG
from beam_dpne.reading.text_formats import PIECE, Gathered

_BLANKS = b" \t\r\n"
# The bit by which braces differ from square brackets.
_BRACKET_BIT = 0x20
# Python reads no longer integer unless it is told to. No id has so many digits.
_MOST_DIGITS = 4300
_BROKEN = (
    "is not a well-formed JSON array. The file is truncated, a quote or a bracket is not closed, or "
    "text follows the array."
)


def read_json_lines(into: Gathered, stop: int | None) -> Iterator[None]:
    """Reads the JSON lines that begin before `stop`; blank lines are skipped."""
    decoder = msgspec.json.Decoder(record_type(into.options))
    text = into.text
    limit = into.options.max_record_bytes
    is_plain = into.options.has_plain_users and not into.has_paths
    for start, block in text.blocks(limit, stop):
        records = whole_records(decoder, block, limit) if is_plain else []
        for position, line, fault in () if records else lines_of(start, block, limit):
            if fault:
                into.rejects.append((position, fault))
            elif is_too_deep(line.encode()):
                into.rejects.append((position, TOO_DEEP))
            elif not line.strip(" \t\r\n"):
                continue
            elif not is_plain:
                _add_line(into, position, line)
            else:
                try:
                    records.append(decoder.decode(line))
                except (msgspec.MsgspecError, RecursionError):
                    into.take(records)
                    _add_line(into, position, line)
        into.take(records)
        if text.offset >= into.end:
            yield


def read_json_list(into: Gathered) -> Iterator[None]:
    """Reads the elements of the list that `records` names; positions are their numbers, from 0.

    Raises:
      BrokenText: The text is malformed. Then nothing of the file is used.
    """
    number = 0
    for found in listed_elements(into.text, prefix_of(into.options.records)):
        for place, element in enumerate(found, number):
            into.add_value(place, element)
        number += len(found)
        if into.text.offset >= into.end:
            yield


def listed_elements(text: TextFile, prefix: str) -> Iterator[list[Any]]:
    """Yields the elements of a list within objects, of one piece of the text after another.

    Args:
      text: The text, which may have several objects with such a list.
      prefix: The elements' name, by `json_lists.prefix_of`.

    Raises:
      BrokenText: The text is malformed.
    """
    found = ijson.sendable_list()
    parser = ijson.items_coro(found, prefix, multiple_values=True)
    try:
        while piece := text.read(PIECE):
            text.offset += len(piece)
            parser.send(piece.encode())
            yield found
            del found[:]
        parser.close()
    except (ijson.JSONError, RecursionError, UnicodeEncodeError):
        raise BrokenText(_BROKEN) from None


def read_json_array(into: Gathered) -> Iterator[None]:
    """Reads the elements of a JSON array; positions are their numbers, from 0.

    Raises:
      BrokenText: The array is malformed. Then it is not known where its elements end, so that nothing
        of the file is used.
    """
    decoder = msgspec.json.Decoder(list[record_type(into.options)])
    limit = into.options.max_record_bytes
    is_plain = into.options.has_plain_users and not into.has_paths
    number = 0
    for found in elements(into.text, limit):
        records = _whole_elements(decoder, found, limit) if is_plain else []
        if records:
            into.take(records)
        else:
            for place, element in enumerate(found.each(), number):
                _add_element(into, place, element)
        number += len(found.stops)
        if into.text.offset >= into.end:
            yield


class Elements(NamedTuple):
    """Elements of an array, with the commas between them.

    Attributes:
      data: The text as UTF-8.
      starts, stops: (n,) int64, where each element begins and ends in it, with blanks around it.
    """

    data: bytes
    starts: np.ndarray
    stops: np.ndarray

    def each(self) -> Iterator[bytes]:
        """Yields the elements, without the blanks before them."""
        for start, stop in zip(self.starts.tolist(), self.stops.tolist(), strict=True):
            yield self.data[start:stop].lstrip(_BLANKS)


_NO_ELEMENTS = Elements(b"", np.zeros(0, np.int64), np.zeros(0, np.int64))


def _whole_elements(decoder: msgspec.json.Decoder, found: Elements, limit: int) -> list[Any]:
    """Returns the records of elements if each is a usable one, else nothing."""
    sizes = found.stops - found.starts
    if sizes.max(initial=0) > min(limit, 2 * MOST_LEVELS):
        for element in found.each():
            if len(element) > limit or is_too_deep(element):
                return []
    try:
        # The decoder does not look at bytes of fields that it leaves out.
        found.data.decode()
        records = decoder.decode(b"[%b]" % found.data)
    except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError):
        return []
    return records if len(records) == sizes.size else []


def _add_element(into: Gathered, place: int, element: bytes) -> None:
    """Adds an element of an array; raises BrokenText if it is malformed."""
    fault = TOO_LONG if len(element) > into.options.max_record_bytes else ""
    if not fault and is_too_deep(element):
        fault = TOO_DEEP
    try:
        text = element.decode()
    except UnicodeDecodeError:
        fault = fault or NOT_DECODED
        text = ""
    if fault:
        into.add(place, (), fault)
    elif not _add_text(into, place, text):
        raise BrokenText(_BROKEN)


def _add_line(into: Gathered, position: int, line: str) -> None:
    """Adds a line of JSON, which is a reject if it is malformed."""
    if not _add_text(into, position, line):
        into.add(position, (), NOT_JSON)


def _add_text(into: Gathered, position: int, text: str) -> bool:
    """Adds a record, and returns whether it is well-formed JSON."""
    try:
        into.add_value(position, msgspec.json.decode(text))
        return True
    except (msgspec.MsgspecError, RecursionError):
        pass
    try:
        into.add_value(position, lenient_value(text), is_lenient=True)
    except (ValueError, RecursionError):
        return False
    return True


def lenient_value(text: str) -> Any:
    """Returns a value of JSON that may have NaN, long integers and lone surrogates, as Python writes.

    NaN is null. Where nobody asked for the field, none of them keeps a record from being used.

    Raises:
      ValueError: The text is malformed.
    """
    return json.loads(text, parse_int=_integer, parse_constant=_constant)


def _integer(digits: str) -> float:
    return int(digits) if len(digits) <= _MOST_DIGITS else math.inf


def _constant(name: str) -> float | None:
    return None if name == "NaN" else math.inf


def elements(text: TextFile, limit: int) -> Iterator[Elements]:
    """Yields the elements of a JSON array, of one piece of the text after another.

    Of an element that is longer than the limit, only a beginning that is too long is held.

    Raises:
      BrokenText: The array has no end, or something stands behind it.
    """
    cutter = _Cutter(limit)
    while piece := text.read(PIECE):
        data = as_utf8(piece)
        text.offset += len(data)
        yield cutter.cut(data)
    if not cutter.is_done:
        raise BrokenText(_BROKEN)


class _Cutter:
    """Cuts the text of an array at the commas that stand between its elements.

    Attributes:
      is_done: Whether the array has ended.
    """

    def __init__(self, limit: int) -> None:
        self.is_done = False
        self._most = limit
        # What the text ends in so far: within a string, with an escape in it, so many brackets deep.
        self._in_string = False
        self._is_escaped = False
        self._depth = 0
        # The beginning of the current element, and whether a comma stands before it.
        self._begun = bytearray()
        self._is_further = False

    def cut(self, data: bytes) -> Elements:
        """Takes the next piece of the text, and returns the elements that end in it."""
        begin = 0
        if self.is_done or not self._depth:
            begin = data.find(b"[") + 1
            if self.is_done or not begin:
                self._refuse_text(data)
                return _NO_ELEMENTS
        # (n,) of each byte: whether it is in no string; the brackets that are open after it.
        raw = np.frombuffer(data, np.uint8)
        outside = ~self._strings(raw)
        bracket = raw | _BRACKET_BIT
        change = (bracket == ord("{")).view(np.int8) - (bracket == ord("}")).view(np.int8)
        depth = self._depth + np.cumsum(change * outside, dtype=np.int32)
        self._depth = int(depth[-1])
        ends = np.flatnonzero((depth <= 1) & outside & ((raw == ord(",")) | (depth <= 0)))
        ends = ends[np.searchsorted(ends, begin) :]
        if not ends.size:
            self._add(data[begin:])
            return _NO_ELEMENTS
        if self._depth <= 0:
            ends = ends[: np.flatnonzero(depth[ends] <= 0)[0] + 1]
        last = int(ends[-1])
        stops = ends + (len(self._begun) - begin)
        whole = bytes(self._begun) + data[begin:last]
        starts = np.append(0, stops[:-1] + 1)
        self._begun.clear()
        self._add(data[last + 1 :])
        if depth[last] <= 0:
            self.is_done = True
            self._refuse_text(self._begun if data[last] == ord("]") else data)
            # An array without elements has one that is blank.
            if not self._is_further and stops.size == 1 and not whole.strip(_BLANKS):
                return _NO_ELEMENTS
        self._is_further = True
        return Elements(whole, starts, stops)

    def _add(self, data: bytes) -> None:
        """Adds to the current element, as far as it is not too long yet."""
        begun = data if self._begun else data.lstrip(_BLANKS)
        self._begun += begun[: max(0, self._most + 1 - len(self._begun))]

    def _strings(self, raw: np.ndarray) -> np.ndarray:
        """Returns which bytes are in strings; of the quotes around one the first is: (n,) bool."""
        is_quote = raw == ord('"')
        is_backslash = raw == ord("\\")
        if self._is_escaped or is_backslash.any():
            is_quote &= ~self._escaped(is_backslash)
        within = (np.cumsum(is_quote) + self._in_string) % 2 == 1
        self._in_string = bool(within[-1])
        return within

    def _escaped(self, is_backslash: np.ndarray) -> np.ndarray:
        """Returns which bytes follow an odd number of backslashes: (n,) bool."""
        places = np.arange(is_backslash.size)
        # (n,) the last place before each one that has no backslash; −2 stands for an escape before.
        begin = -2 if self._is_escaped else -1
        last = np.maximum.accumulate(np.where(is_backslash, begin, places))
        before = np.append(begin, last[:-1])
        self._is_escaped = bool((places[-1] - last[-1]) % 2)
        return (places - 1 - before) % 2 == 1

    def _refuse_text(self, data: bytes | bytearray) -> None:
        if data.strip(_BLANKS):
            raise BrokenText(_BROKEN)
