"""JSON: lines with one object each, or one array of objects, which is read element by element."""

import contextlib
import functools
import json
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

import ijson
import msgspec
import pyarrow as pa

from beam_dpne.reading.batches import Batch, batch_of
from beam_dpne.reading.files import BrokenText
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.rejects import (
    BAD_TEXT,
    BAD_TOKENS,
    BAD_USER,
    EMPTY_USER,
    NO_TEXT,
    NO_USER,
    NOT_JSON,
    NOT_OBJECT,
    TOO_LONG,
)
from beam_dpne.reading.text import Block, TextStream, is_utf8, lines_of

BLANKS = b" \t\r\n"
_ARRAY = re.compile(rb"[ \t\r\n]*\[")
_USER = operator.attrgetter("user")


def is_array(head: bytes) -> bool:
    """Returns whether a text that begins so is a JSON array."""
    return bool(_ARRAY.match(head))


def read_json_lines(blocks: Iterator[Block], options: ReadOptions) -> Iterator[Batch]:
    """Yields the documents of each block of JSON lines; blank lines are skipped."""
    records = _Records(options)
    strict, lenient = map(msgspec.json.Decoder, records.types)
    for block in blocks:
        found, rejects = records.all_of(block, strict), list[tuple[int, str]]()
        if found is None:
            found = []
            for offset, line, fault in lines_of(block, options.max_record_bytes):
                if fault or line.strip(BLANKS):
                    reason = fault or records.reason(line, strict.decode, lenient.decode, found)
                    rejects += [(offset, reason)] if reason else []
        yield records.batch(found, rejects)


def read_json_array(stream: TextStream, options: ReadOptions) -> Iterator[Batch]:
    """Yields the documents of a JSON array; positions are the numbers of its elements, from 0.

    Raises:
      BrokenText: The array is malformed. An element that is malformed cannot be told from those beside
        it, so that nothing of the file is used.
    """
    records = _Records(options)
    strict, lenient = (functools.partial(msgspec.convert, type=kind) for kind in records.types)
    found: list[Any] = []
    rejects: list[tuple[int, str]] = []
    size = 0
    for number, element in enumerate(elements(stream)):
        reason = records.reason(element, strict, lenient, found)
        if not reason:
            size += (element_bytes := records.bytes_of(found[-1]))
            if element_bytes > options.max_record_bytes:
                reason = TOO_LONG
                found.pop()
        rejects += [(number, reason)] if reason else []
        if size > options.block_bytes:
            yield records.batch(found, rejects, "row")
            found, rejects, size = [], [], 0
    yield records.batch(found, rejects, "row")


def elements(stream: TextStream) -> Iterator[Any]:
    """Yields the elements of a JSON array.

    Raises:
      BrokenText: The array is malformed; the message has the place and no text.
    """
    number = 0
    try:
        for element in ijson.items(stream, "item"):
            yield element
            number += 1
    except (ijson.JSONError, RecursionError):
        raise BrokenText(
            f"is not a well-formed JSON array after its first {number:,} elements. The file is "
            "truncated, a quote or a bracket is not closed, or text follows the array."
        ) from None


class _Records:
    """Checks objects of JSON, and turns them into batches.

    Attributes:
      types: Types of the objects: one of usable records, and one that shows why a record is not usable.
    """

    def __init__(self, options: ReadOptions) -> None:
        texts = [f"text_{number}" for number in range(len(options.text_fields))]
        others = [f"other_{number}" for number in range(len(options.fields or ()))]
        text: Any = list[str] if options.text_is_tokens else str
        self._options = options
        self._text_type = pa.list_(pa.string()) if options.text_is_tokens else pa.string()
        self._texts = [operator.attrgetter(name) for name in texts]
        self._others = [operator.attrgetter(name) for name in others]
        names = ["user", *texts, *others]
        renamed = dict(zip(names, (name for _, name in options.wanted_fields), strict=True))
        # One of several texts may be missing.
        kinds = [(name, text) if len(texts) == 1 else (name, text | None, None) for name in texts]
        strict = [("user", str | int), *kinds, *((name, Any, None) for name in others)]
        lenient = [(name, Any, None) for name in names]
        self.types = [
            msgspec.defstruct("Record", fields, rename=renamed, gc=False)
            for fields in (strict, lenient)
        ]

    def all_of(self, block: Block, strict: msgspec.json.Decoder) -> list[Any] | None:
        """Returns the records of all lines of a block, or None if any cannot be used or is blank."""
        may_be_long = block.size > self._options.max_record_bytes
        if block.is_long_line or may_be_long or not is_utf8(block.data):
            return None
        try:
            records = list(map(strict.decode, block.data.removesuffix(b"\n").split(b"\n")))
        except (msgspec.MsgspecError, RecursionError):
            return None
        usable = "" not in map(_USER, records)
        if len(self._texts) > 1:
            usable = usable and all(map(self._has_text, records))
        return records if usable else None

    def reason(
        self,
        data: Any,
        strict: Callable[[Any], Any],
        lenient: Callable[[Any], Any],
        found: list[Any],
    ) -> str:
        """Appends a record to those found and returns "", or returns why it cannot be used.

        Args:
          data: The record, as the two functions take it.
          strict: Returns the record as the first type, or raises an error of msgspec.
          lenient: Returns it as the second type.
          found: The usable records.
        """
        with contextlib.suppress(msgspec.MsgspecError, RecursionError):
            record = strict(data)
            if record.user != "" and self._has_text(record):
                found.append(record)
                return ""
        try:
            record = lenient(data)
        except msgspec.ValidationError:
            return NOT_OBJECT
        except (msgspec.MsgspecError, RecursionError):
            return NOT_JSON
        return self._fault(record)

    def _fault(self, record: Any) -> str:
        """Returns why an object cannot be used."""
        user = record.user
        if user is None or user == "":
            return NO_USER if user is None else EMPTY_USER
        if isinstance(user, bool) or not isinstance(user, (str, int)):
            return BAD_USER
        if all(text(record) is None for text in self._texts):
            return NO_TEXT
        return BAD_TOKENS if self._options.text_is_tokens else BAD_TEXT

    def _has_text(self, record: Any) -> bool:
        return any(text(record) is not None for text in self._texts)

    def bytes_of(self, record: Any) -> int:
        """Returns about the number of bytes of a usable record's texts."""
        texts = (text(record) or "" for text in self._texts)
        return sum(len(text) if isinstance(text, str) else len("".join(text)) for text in texts)

    def batch(
        self, records: list[Any], rejects: list[tuple[int, str]], unit: str = "byte"
    ) -> Batch:
        """Turns records into documents; a user that is an integer becomes its digits."""
        users = pa.array(list(map(str, map(_USER, records))), pa.string())
        texts = [pa.array(list(map(text, records)), self._text_type) for text in self._texts]
        others = [
            pa.array(list(map(_text_of, map(other, records))), pa.string())
            for other in self._others
        ]
        columns = [users, *texts, *others]
        return batch_of(columns, rejects, self._options.record_names, unit)


def _text_of(value: Any) -> str | None:
    """Returns the value of a further field: text as it is, null as None, anything else as JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=float)
