"""JSON lines: one object a line.

A block is decoded in one call; where that fails, line by line with the same decoder, so that what
is accepted never depends on where a block begins.
"""

import operator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from beam_dpne.reading.columns import Batch, interleaved
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.records import Block
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


class JsonlParser:
    """Turns blocks of JSON lines into documents."""

    def __init__(self, options: ReadOptions) -> None:
        texts = {f"text_{place}": name for place, name in enumerate(options.text_fields)}
        self._names = {"user": options.user_field, **texts}
        self._texts = [operator.attrgetter(name) for name in texts]
        self._is_tokens = options.text_is_tokens
        self._text_type = pa.list_(pa.string()) if options.text_is_tokens else pa.string()
        text = list[str] if options.text_is_tokens else str
        self._strict = self._decoder(str | int, text if len(texts) == 1 else text | None)
        self._lenient = self._decoder(Any, Any, is_lenient=True)

    def _decoder(self, user: Any, text: Any, *, is_lenient: bool = False) -> Any:
        """A decoder of objects with fields of these types; one of several texts may be missing."""
        fields: list[Any] = []
        for name in self._names:
            kind = user if name == "user" else text
            is_optional = is_lenient or (name != "user" and len(self._texts) > 1)
            fields.append((name, kind, None) if is_optional else (name, kind))
        # Fields without a default come first: so does the user's.
        record = msgspec.defstruct("Record", fields, rename=self._names, gc=False)
        return msgspec.json.Decoder(record)

    def parse(self, block: Block) -> Batch:
        """Decodes the lines of a block; blank lines are none."""
        block = block.filled()
        records = None if block.too_long else self._decode_all(block)
        return self._decode_each(block) if records is None else self._batch(records, [])

    def _decode_all(self, block: Block) -> list[Any] | None:
        """All records of a block without fault, else None."""
        try:
            block.data.decode()
            records = self._strict_records(block)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        if records is None or len(records) != len(block.starts):
            return None
        whole = all(record.user != "" for record in records)
        if whole and len(self._texts) > 1:
            whole = all(map(self._has_text, records))
        return records if whole else None

    def _strict_records(self, block: Block) -> list[Any] | None:
        """The records of whole lines, if the decoder cannot have taken others.

        `decode_lines` takes any row of objects. If each line begins with a brace and ends with
        one, no object goes over the border of two lines, and as many objects as lines are one each.
        """
        raw = np.frombuffer(block.data, np.uint8)
        begins, closes = raw[block.starts], raw[block.ends - 1]
        if not ((begins == ord("{")).all() and (closes == ord("}")).all()):
            return None
        return self._strict.decode_lines(block.data)

    def _has_text(self, record: Any) -> bool:
        return any(text(record) is not None for text in self._texts)

    def _decode_each(self, block: Block) -> Batch:
        """The same line by line, with rejects."""
        records: list[Any] = []
        rejects: list[tuple[int, str]] = []
        spans = zip(
            block.positions.tolist(), block.starts.tolist(), block.ends.tolist(), strict=True
        )
        for position, start, end in spans:
            line = block.data[start:end]
            if not line.strip(BLANKS):
                continue
            record = self._decode(line)
            if isinstance(record, str):
                rejects.append((position, record))
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
        if record.user == "":
            return EMPTY_USER
        return record if self._has_text(record) else NO_TEXT

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
        if not self._has_text(record):
            return NO_TEXT
        return BAD_TOKENS if self._is_tokens else BAD_TEXT

    def _batch(self, records: list[Any], rejects: list[tuple[int, str]]) -> Batch:
        users = [record.user for record in records]
        if int in set(map(type, users)):
            users = [str(user) for user in users]
        texts = [pa.array(list(map(text, records)), self._text_type) for text in self._texts]
        return Batch(interleaved(pa.array(users, pa.string()), texts), rejects, len(users))
