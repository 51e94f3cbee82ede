"""Records of JSON: lines of objects, and the elements of one array, both decoded by msgspec.

An array is cut into its elements before they are decoded, so that a record that cannot be used is one
reject there, as it is among lines.
"""

import json
import math
from collections.abc import Iterator
from types import GenericAlias
from typing import Any, NamedTuple

import msgspec
import numpy as np

from beam_dpne.reading.columns import (
    MOST_LEVELS,
    is_too_deep,
    record_type,
    whole_records,
)
from beam_dpne.reading.files import BrokenText, LineText, as_utf8, lines_of
from beam_dpne.reading.json_structure import BLANKS, BROKEN, ListCutter, Structure
from beam_dpne.reading.rejects import NO_LIST, NOT_DECODED, NOT_JSON, TOO_DEEP, TOO_LONG
from beam_dpne.reading.text_formats import PIECE, Gathered

# Python reads no longer integer unless it is told to. No id has so many digits.
_MOST_DIGITS = 4300


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
    """Reads the members of the list that `records` names; positions are their numbers, from 0.

    A file without the list is one reject, since nothing in it may be left out in silence.

    Raises:
      BrokenText: A member is malformed, or what is around the list. Then nothing of the file is used.
    """
    number = 0
    cutter = ListCutter(into.options.records or "", into.options.max_record_bytes)
    for found in listed_elements(into.text, cutter):
        for place, element in enumerate(found, number):
            _add_element(into, place, element)
        number += len(found)
        if into.text.offset >= into.end:
            yield
    if cutter.is_absent:
        into.add(number, (), NO_LIST)


def listed_elements(text: LineText, cutter: ListCutter) -> Iterator[list[bytes]]:
    """Yields the members of a list within objects, of one piece of the text after another.

    Args:
      text: The text, which may have several objects with such a list.
      cutter: What cuts them at the commas between them.

    Raises:
      BrokenText: The text is malformed around the list.
    """
    while piece := text.read(PIECE):
        data = as_utf8(piece)
        text.offset += len(data)
        yield cutter.cut(data)
    cutter.close()


def read_json_array(into: Gathered) -> Iterator[None]:
    """Reads the elements of a JSON array; positions are their numbers, from 0.

    Raises:
      BrokenText: The array is malformed. Then it is not known where its elements end, so that nothing
        of the file is used.
    """
    decoder = msgspec.json.Decoder(GenericAlias(list, record_type(into.options)))
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
            yield self.data[start:stop].lstrip(BLANKS)


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
        raise BrokenText(BROKEN)


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


def elements(text: LineText, limit: int) -> Iterator[Elements]:
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
        raise BrokenText(BROKEN)


class _Cutter(Structure):
    """Cuts the text of an array at the commas that stand between its elements.

    Attributes:
      is_done: Whether the array has ended.
    """

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.is_done = False
        self._most = limit
        # The beginning of the current element, and whether a comma stands before it.
        self._begun = bytearray()
        self._is_further = False

    def cut(self, data: bytes) -> Elements:
        """Takes the next piece of the text, and returns the elements that end in it."""
        begin = 0
        if self.is_done or not self.depth:
            begin = data.find(b"[") + 1
            if self.is_done or not begin:
                self._refuse_text(data)
                return _NO_ELEMENTS
        # (n,) of each byte: whether it is in no string; the brackets that are open after it.
        raw = np.frombuffer(data, np.uint8)
        outside, depth = self.of(raw)
        ends = np.flatnonzero((depth <= 1) & outside & ((raw == ord(",")) | (depth <= 0)))
        ends = ends[np.searchsorted(ends, begin) :]
        if not ends.size:
            self._add(data[begin:])
            return _NO_ELEMENTS
        if self.depth <= 0:
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
            if not self._is_further and stops.size == 1 and not whole.strip(BLANKS):
                return _NO_ELEMENTS
        self._is_further = True
        return Elements(whole, starts, stops)

    def _add(self, data: bytes) -> None:
        """Adds to the current element, as far as it is not too long yet."""
        begun = data if self._begun else data.lstrip(BLANKS)
        self._begun += begun[: max(0, self._most + 1 - len(self._begun))]

    def _refuse_text(self, data: bytes | bytearray) -> None:
        if data.strip(BLANKS):
            raise BrokenText(BROKEN)
