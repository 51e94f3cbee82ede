r"""Records: a text is cut into blocks of whole records, and their fields become documents in Arrow.

A record is a line, a CSV record, or an element of a JSON array; `Borders` is the rule by which records
end. A record above the limit is skipped without being held in memory.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.elements.text_types import is_text
from beam_dpne.reading.rejects import EMPTY_USER, NOT_UTF8

Offsets = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

LF, CR = 0x0A, 0x0D
# Type of the users of `sequences`, where each line of each file is a user: the file's index, and the
# line's offset.
NAMED_USER = pa.binary(16)
# Bytes that are read beyond the end of a range, to reach the end of its last record.
_BEYOND = 2**16
_NONE = np.zeros(0, np.int64)
# Bytes that are searched at once.
_SEARCHED_BYTES = 2**20


class BrokenText(Exception):
    """A text cannot be cut into records; the message is the predicate of a sentence about the file."""


class Block(NamedTuple):
    """Whole records of a text.

    Attributes:
      data: The bytes of the records and their terminators, one after the other.
      offset: Offset of `data` in the decompressed text.
      starts: (n,) where in `data` each record begins.
      ends: (n,) where in `data` each record ends, without its terminator.
      too_long: Offsets in the decompressed text of records above the limit, which are not in the block.
      text_positions: (n,) where in the decompressed text each record begins; None if `data` is an
        unchanged part of that text.
    """

    data: bytes
    offset: int
    starts: Offsets
    ends: Offsets
    too_long: list[int]
    text_positions: Offsets | None = None

    @property
    def positions(self) -> Offsets:
        """Where in the decompressed text each record begins: (n,)."""
        return self.starts + self.offset if self.text_positions is None else self.text_positions

    def filled(self) -> "Block":
        """Returns the block without its empty records."""
        kept = self.ends > self.starts
        return self._replace(
            starts=self.starts[kept], ends=self.ends[kept], text_positions=self.positions[kept]
        )

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Yields the position and the bytes of each record."""
        spans = (self.positions.tolist(), self.starts.tolist(), self.ends.tolist())
        for position, start, end in zip(*spans, strict=True):
            yield position, self.data[start:end]


class Scanner(Protocol):
    """Looks for the end of one record through any number of pieces of text."""

    def feed(self, data: bytes, at: int = 0) -> int:
        """Returns the position after the record's terminator, or -1 if the record does not end here."""
        ...

    def finish(self) -> None:
        """Raises BrokenText if the text must not end after the pieces so far."""
        ...


class Borders(Protocol):
    """The rule by which records end."""

    def ends(self, data: bytes) -> Offsets:
        """Returns where the whole records at the start of `data` end, after their terminators: (n,)."""
        ...

    def scanner(self) -> Scanner:
        """Returns a scanner at the beginning of a record."""
        ...


def pieces(size: int) -> Iterator[slice]:
    """Yields the pieces in which a text of so many bytes is searched, so that masks stay small."""
    for start in range(0, size, _SEARCHED_BYTES):
        yield slice(start, min(start + _SEARCHED_BYTES, size))


def occurrences(raw: npt.NDArray[np.uint8], code: int) -> Offsets:
    """Returns where a byte stands in a text: (n,).

    >>> occurrences(np.frombuffer(b"a,b,", np.uint8), ord(",")).tolist()
    [1, 3]
    """
    found = [np.flatnonzero(raw[piece] == code) + piece.start for piece in pieces(len(raw))]
    return np.concatenate([_NONE, *found])


class LineBorders:
    """Every line feed ends a record."""

    def ends(self, data: bytes) -> Offsets:
        """Returns the positions after the line feeds."""
        return occurrences(np.frombuffer(data, np.uint8), LF) + 1

    def scanner(self) -> "LineBorders":
        """Returns this object, because lines need no state."""
        return self

    def feed(self, data: bytes, at: int = 0) -> int:
        """Returns the position after the next line feed, or -1."""
        return data.find(b"\n", at) + 1 or -1

    def finish(self) -> None:
        """Accepts a last line without a line feed."""


def read_blocks(
    read: Callable[[int], bytes],
    borders: Borders,
    *,
    offset: int,
    block_bytes: int,
    max_record_bytes: int,
    stop: int | None = None,
) -> Generator[Block, None, None]:
    """Reads the records that start before `stop`.

    Args:
      read: Function that returns the next bytes of the text, none at its end.
      borders: Rule by which records end.
      offset: Offset in the decompressed text at which `read` begins, which starts a record.
      block_bytes: Number of bytes to read at once.
      max_record_bytes: Bytes of the longest record that is kept, without its terminator.
      stop: Offset in the decompressed text from which records belong to another piece of work.

    Yields:
      Blocks of about `block_bytes`.

    Raises:
      BrokenText: The text ends inside a quoted field or a JSON array, or is not a JSON array.
    """
    # The beginning of a record whose end has not been read yet.
    rest = b""
    while stop is None or offset < stop:
        piece = read(_wanted(block_bytes, len(rest), stop and stop - offset))
        data = rest + piece
        ends = borders.ends(data)
        done = int(ends[-1]) if ends.size else 0
        rest = data[done:]
        if not piece:
            scanner = borders.scanner()
            scanner.feed(rest)
            scanner.finish()
            ends = np.append(ends, len(data)) if rest else ends
            rest = b""
        if ends.size:
            yield _block(data, offset, ends, max_record_bytes, stop)
            offset += int(ends[-1])
        if not piece:
            return
        if len(rest) > max_record_bytes + 1 and (stop is None or offset < stop):
            yield Block(b"", offset, _NONE, _NONE, [offset])
            rest, passed = _pass_over(read, borders.scanner(), rest, block_bytes)
            offset += passed


def _wanted(block_bytes: int, rest: int, left: int | None) -> int:
    """Returns how many bytes to read, with only few beyond a range, since another worker reads those.

    Args:
      block_bytes: Largest result.
      rest: Bytes of a record whose end has not been read yet.
      left: Bytes of the range from that record on; None if the range has no end.
    """
    if left is None:
        return block_bytes
    return min(block_bytes, max(0, left - rest) + max(_BEYOND, rest))


def _block(data: bytes, offset: int, ends: Offsets, limit: int, stop: int | None) -> Block:
    """Builds a block of the records that start before `stop` and are not above the limit."""
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    if stop is not None:
        inside = starts < stop - offset
        starts, ends = starts[inside], ends[inside]
    size = int(ends[-1])
    raw = np.frombuffer(data, np.uint8)
    # (n,) ends of the records without their terminators, which are "\n", "\r\n" or "\r".
    bare = ends - (raw[ends - 1] == LF)
    bare -= (bare > starts) & (raw[bare - 1] == CR)
    short = bare - starts <= limit
    too_long = [offset + int(start) for start in starts[~short]]
    return Block(data[:size], offset, starts[short], bare[short], too_long)


def _pass_over(
    read: Callable[[int], bytes], scanner: Scanner, data: bytes, block_bytes: int
) -> tuple[bytes, int]:
    """Reads to the end of a record; returns the bytes after it, and how many bytes were skipped."""
    passed = 0
    while data:
        end = scanner.feed(data)
        if end >= 0:
            return data[end:], passed + end
        passed += len(data)
        data = read(block_bytes)
    scanner.finish()
    return b"", passed


def pass_line(read: Callable[[int], bytes], block_bytes: int) -> tuple[bytes, int]:
    """Skips the rest of a line; returns the bytes after it, and how many bytes were skipped."""
    return _pass_over(read, LineBorders(), read(block_bytes), block_bytes)


class Batch(NamedTuple):
    """The documents and rejects of one block.

    Attributes:
      documents: Documents of the usable records; a record with several texts has several documents.
      rejects: Position and reason of each record that cannot be used.
      usable: Number of records that the documents come from.
    """

    documents: pa.RecordBatch
    rejects: list[tuple[int, str]]
    usable: int


def record_batch(user: pa.Array, text: pa.Array) -> pa.RecordBatch:
    """Returns a batch of documents with the columns `user` and `text`."""
    return pa.RecordBatch.from_arrays([user, text], names=["user", "text"])


def interleaved(user: pa.Array, texts: Sequence[pa.Array]) -> pa.RecordBatch:
    """Makes each text of a record that is not null a document of its user.

    >>> interleaved(pa.array(["ann"]), [pa.array(["a"]), pa.array(["b"])])["text"].to_pylist()
    ['a', 'b']
    """
    if len(texts) == 1:
        return record_batch(user, texts[0])
    rows, fields = len(user), len(texts)
    # Texts are concatenated field by field, so that text f of record r is at f · rows + r.
    # `order`, (rows · fields,), sorts these indices by record, then by field.
    order = np.arange(rows * fields).reshape(fields, rows).T.ravel()
    text = pa.concat_arrays(list(texts)).take(pa.array(order))
    present = np.flatnonzero(~text.is_null().to_numpy(zero_copy_only=False).astype(bool))
    owners = pa.array(present // fields)
    return record_batch(user.take(owners), text.take(pa.array(present)))


def gather(data: bytes, starts: Offsets, ends: Offsets, drop: Offsets | None = None) -> pa.Array:
    """Returns the bytes of ordered, disjoint spans as an Arrow binary array: (n,).

    Args:
      data: The bytes.
      starts: (n,) where each span begins.
      ends: (n,) where each span ends.
      drop: Sorted positions of bytes within the spans that are left out.
    """
    lengths = ends - starts
    # (bytes + 1,) +1 where a span begins and −1 where one ends, so that the cumulative sum is 1 within
    # spans and one mask copies all of them. Empty spans are left out, because their second edge would
    # cancel the first edge of a neighbour.
    edges = np.zeros(len(data) + 1, np.int8)
    filled = lengths > 0
    edges[starts[filled]] += 1
    edges[ends[filled]] -= 1
    inside = np.cumsum(edges[:-1], dtype=np.int8).view(bool)
    if drop is not None and drop.size:
        inside[drop] = False
        lengths = lengths - (np.searchsorted(drop, ends) - np.searchsorted(drop, starts))
    values = np.frombuffer(data, np.uint8)[inside]
    offsets = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), len(starts), buffers)


def valid_utf8(values: pa.Array) -> Mask:
    """Returns which values of a binary or string array are UTF-8: (n,) bool."""
    binary = pa.large_binary() if pa.types.is_large_string(values.type) else pa.binary()
    raw = values.cast(binary)
    try:
        raw.cast(pa.large_string() if binary == pa.large_binary() else pa.string())
    except pa.ArrowInvalid:
        return np.fromiter((_is_utf8(value) for value in raw.to_pylist()), bool, len(raw))
    return np.ones(len(values), bool)


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def checked(
    columns: Sequence[pa.Array], positions: Offsets, names: Sequence[str] | None = None
) -> Batch:
    """Turns binary columns into documents, and rejects records that are not UTF-8 or have no user."""
    user = columns[0]
    is_text = np.logical_and.reduce([valid_utf8(values) for values in columns])
    named = pc.call_function("binary_length", [user]).to_numpy(zero_copy_only=False) > 0
    good = is_text & named
    rejects = [
        (int(positions[row]), EMPTY_USER if is_text[row] else NOT_UTF8)
        for row in np.flatnonzero(~good)
    ]
    if rejects:
        keep = pa.array(good)
        columns = [values.filter(keep) for values in columns]
    documents = arranged([values.cast(pa.string()) for values in columns], names)
    return Batch(documents, rejects, len(columns[0]))


def arranged(columns: Sequence[pa.Array], names: Sequence[str] | None) -> pa.RecordBatch:
    """Returns the documents of records, or the records themselves if the names of columns are given.

    Args:
      columns: The users, the texts and then the further fields of the records.
      names: `ReadOptions.record_names`.
    """
    if names is None:
        return interleaved(columns[0], columns[1:])
    return pa.RecordBatch.from_arrays(list(columns), names=list(names))


def plain(kind: pa.DataType) -> pa.DataType:
    """Returns the type of a dictionary's values, and other types as they are."""
    return kind.value_type if isinstance(kind, pa.DictionaryType) else kind


def as_text(values: pa.Array) -> pa.Array:
    """Casts values to string, unless they are string or large_string; dictionaries are decoded.

    >>> as_text(pa.array([7, -1])).to_pylist()
    ['7', '-1']
    """
    if isinstance(values.type, pa.DictionaryType):
        values = values.cast(values.type.value_type)
    return values if is_text(values.type) else values.cast(pa.string())
