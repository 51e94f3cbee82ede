"""JSON lines: one object a line.

A block is decoded in one call; where that fails, line by line with the same decoder, so that what
is accepted never depends on where a block begins.
"""

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from beam_dpne.io.columns import Batch, record_batch
from beam_dpne.io.options import ReadOptions
from beam_dpne.io.records import Block
from beam_dpne.io.rejects import (
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

_BLANK = b" \t\r\n"


class JsonlParser:
    """Turns blocks of JSON lines into documents."""

    def __init__(self, options: ReadOptions) -> None:
        self._names = {"user": options.user_field, "text": options.text_field}
        self._is_tokens = options.text_is_tokens
        self._text_type = pa.list_(pa.string()) if options.text_is_tokens else pa.string()
        self._strict = self._decoder(str | int, list[str] if options.text_is_tokens else str)
        self._lenient = self._decoder(Any, Any, default=None)

    def _decoder(self, user: Any, text: Any, **default: None) -> Any:
        """A decoder of objects with two fields of these types."""
        if default:
            fields = [("user", user, None), ("text", text, None)]
        else:
            fields = [("user", user), ("text", text)]
        record = msgspec.defstruct("Record", fields, rename=self._names, gc=False)
        return msgspec.json.Decoder(record)

    def parse(self, block: Block) -> Batch:
        """Decodes the lines of a block; blank lines are none."""
        records = None if block.too_long else self._decode_all(block)
        return self._decode_each(block) if records is None else self._batch(records, [])

    def _decode_all(self, block: Block) -> list[Any] | None:
        """All records of a block without fault, else None.

        `decode_lines` takes any row of objects. If each line begins with a brace and ends with
        one, no object goes over the border of two lines, and as many objects as lines are one each.
        """
        starts, ends = block.starts, block.ends
        filled = ends > starts
        raw = np.frombuffer(block.data, np.uint8)
        begins, closes = raw[starts[filled]], raw[ends[filled] - 1]
        if not ((begins == ord("{")).all() and (closes == ord("}")).all()):
            return None
        try:
            block.data.decode()
            records = self._strict.decode_lines(block.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        whole = len(records) == len(begins) and all(record.user != "" for record in records)
        return records if whole else None

    def _decode_each(self, block: Block) -> Batch:
        """The same line by line, with rejects."""
        records: list[Any] = []
        rejects: list[tuple[int, str]] = []
        for start, end in zip(block.starts.tolist(), block.ends.tolist(), strict=True):
            line = block.data[start:end]
            if not line.strip(_BLANK):
                continue
            record = self._decode(line)
            if isinstance(record, str):
                rejects.append((block.offset + start, record))
            else:
                records.append(record)
        return self._batch(records, rejects)

    def _decode(self, line: bytes) -> Any:
        """The record of a line, or the reason why there is none."""
        try:
            line.decode()
        except UnicodeDecodeError:
            return NOT_UTF8
        try:
            record = self._strict.decode(line)
        except (msgspec.MsgspecError, RecursionError):
            return self._reason(line)
        return EMPTY_USER if record.user == "" else record

    def _reason(self, line: bytes) -> str:
        """Why a line is not a record."""
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
        if record.text is None:
            return NO_TEXT
        return BAD_TOKENS if self._is_tokens else BAD_TEXT

    def _batch(self, records: list[Any], rejects: list[tuple[int, str]]) -> Batch:
        users = [record.user for record in records]
        if int in set(map(type, users)):
            users = [str(user) for user in users]
        texts = pa.array([record.text for record in records], self._text_type)
        return Batch(record_batch(pa.array(users, pa.string()), texts), rejects)
