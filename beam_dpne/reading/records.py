r"""Cutting streams of bytes into blocks of whole records.

A record is a line; in CSV, quoted fields may contain line ends, so that a record may have several
lines. A line ends at "\n" or "\r\n", in CSV also at a single "\r" (as in Python's csv module). A record
longer than the limit is skipped without being held in memory.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Offsets = npt.NDArray[np.int64]

LF, CR, QUOTE = 0x0A, 0x0D, 0x22
_BEYOND = 2**16


class BrokenText(Exception):
    """A text cannot be cut into records; the message is a fixed phrase that follows the file's path."""


class TruncatedRecord(BrokenText):
    """The text ends inside a quoted field."""

    def __init__(self) -> None:
        super().__init__(
            "ends inside a quoted field. The file is truncated, or a quote is not closed."
        )


class Block(NamedTuple):
    """Whole records of a text.

    Attributes:
      data: The bytes of the records and their terminators, one after the other.
      offset: Offset of `data` in the decompressed text.
      starts: (n,) where in `data` each record begins.
      ends: (n,) where in `data` each record ends, without its terminator.
      too_long: Offsets in the decompressed text of records above the limit, which are not in the block.
      places: (n,) where in the decompressed text each record begins; None if `data` was not recoded.
    """

    data: bytes
    offset: int
    starts: Offsets
    ends: Offsets
    too_long: list[int]
    places: Offsets | None = None

    @property
    def positions(self) -> Offsets:
        """Where in the decompressed text each record begins: (n,)."""
        return self.starts + self.offset if self.places is None else self.places

    def filled(self) -> "Block":
        """Returns the block without its empty records."""
        kept = self.ends > self.starts
        return self._replace(
            starts=self.starts[kept], ends=self.ends[kept], places=self.positions[kept]
        )


class Scanner(Protocol):
    """Looks for the end of one record through any number of pieces of text."""

    def feed(self, data: bytes, at: int = 0) -> int:
        """Returns the position after the record's terminator, or -1 if the record does not end here."""
        ...

    def inside_quotes(self) -> bool:
        """Returns whether the pieces so far end inside a quoted field."""
        ...


class Borders(Protocol):
    """The rule by which records end."""

    def ends(self, data: bytes) -> Offsets:
        """Returns the positions after the terminators of the whole records at the start of `data`."""
        ...

    def finish(self, rest: bytes) -> None:
        """Raises BrokenText unless `rest`, without a terminator, may be the last record of a text."""
        ...

    def scanner(self) -> Scanner:
        """Returns a scanner at the beginning of a record."""
        ...


class LineBorders:
    """Every line feed ends a record."""

    def ends(self, data: bytes) -> Offsets:
        """Returns the positions after the line feeds."""
        return np.flatnonzero(np.frombuffer(data, np.uint8) == LF) + 1

    def finish(self, rest: bytes) -> None:
        """Accepts a last line without a line feed."""

    def scanner(self) -> "LineBorders":
        """Returns this object, because lines have no state."""
        return self

    def feed(self, data: bytes, at: int = 0) -> int:
        """Returns the position after the next line feed, or -1."""
        return data.find(b"\n", at) + 1 or -1

    def inside_quotes(self) -> bool:
        """Returns False, because a line has no quotes."""
        return False


class QuotedBorders:
    """Ends a record at a line end outside quotes; a quote opens only at the start of a field."""

    def __init__(self, delimiter: bytes = b",") -> None:
        self.delimiter = delimiter

    def ends(self, data: bytes) -> Offsets:
        """Returns the positions after the line ends outside quotes."""
        raw = np.frombuffer(data, np.uint8)
        quotes = np.flatnonzero(raw == QUOTE)
        if not well_quoted(raw, quotes, self.delimiter[0]):
            return self._scan(data)
        line_feed, is_return = raw == LF, raw == CR
        # "\r\n" ends a record once, so that only a "\r" without a "\n" after it counts. A "\r" at the
        # end of the data may be the first half of "\r\n" and is left for the next piece.
        lone = is_return[:-1] & ~line_feed[1:]
        line_feed[: len(lone)] |= lone
        found = np.flatnonzero(line_feed)
        return found[outside_quotes(quotes, found)] + 1

    def _scan(self, data: bytes) -> Offsets:
        """Returns the same record by record, for data with stray quotes."""
        found: list[int] = []
        scanner = self.scanner()
        while (end := scanner.feed(data, found[-1] if found else 0)) >= 0:
            found.append(end)
            scanner = self.scanner()
        return np.array(found, np.int64)

    def finish(self, rest: bytes) -> None:
        """Raises TruncatedRecord if the last record ends inside quotes."""
        scanner = self.scanner()
        scanner.feed(rest)
        if scanner.inside_quotes():
            raise TruncatedRecord

    def scanner(self) -> "QuotedScanner":
        """Returns a scanner at the beginning of a record."""
        return QuotedScanner(self.delimiter)


def outside_quotes(quotes: Offsets, positions: Offsets) -> npt.NDArray[np.bool_]:
    """Returns which positions have an even number of quotes before them: (n,) bool."""
    return np.searchsorted(quotes, positions) % 2 == 0


def well_quoted(raw: npt.NDArray[np.uint8], quotes: Offsets, delimiter: int) -> bool:
    """Returns whether quotes open and close in turn, so that counting them finds quoted text.

    They do if the 1st, 3rd, … quote follows a border of fields (or, in a doubled quote, the quote
    before it) and the 2nd, 4th, … precedes one. The last field may be incomplete.

    Args:
      raw: (bytes,) uint8, the text from the beginning of a record.
      quotes: Positions of all quotes in it.
      delimiter: Code of the delimiter.
    """
    # (256,) whether a byte may come right before an opening quote, or right after a closing one.
    border = np.zeros(256, bool)
    border[[delimiter, LF, CR, QUOTE]] = True
    opening, closing = quotes[0::2], quotes[1::2]
    inner = opening[opening > 0]
    followed = closing[closing < len(raw) - 1]
    return bool(border[raw[inner - 1]].all() and border[raw[followed + 1]].all())


class QuotedScanner:
    """Finds the end of one CSV record by a state machine that skips from mark to mark.

    Each state is a method that takes the data and a position and returns the next position to look at.
    """

    def __init__(self, delimiter: bytes) -> None:
        self._border = re.compile(b"[\r\n" + re.escape(delimiter) + b"]")
        self._state: Callable[[bytes, int], int] = self._field
        self._end = -1

    def feed(self, data: bytes, at: int = 0) -> int:
        """Returns the position after the record's terminator, or -1 if the record does not end here."""
        while at < len(data) and self._end < 0:
            at = self._state(data, at)
        return self._end

    def inside_quotes(self) -> bool:
        """Returns whether the pieces so far end inside a quoted field."""
        return self._state == self._quoted

    def _field(self, data: bytes, at: int) -> int:
        opens = data[at] == QUOTE
        self._state = self._quoted if opens else self._plain
        return at + opens

    def _quoted(self, data: bytes, at: int) -> int:
        quote = data.find(b'"', at)
        if quote < 0:
            return len(data)
        self._state = self._closed
        return quote + 1

    def _closed(self, data: bytes, at: int) -> int:
        doubled = data[at] == QUOTE
        self._state = self._quoted if doubled else self._plain
        return at + doubled

    def _plain(self, data: bytes, at: int) -> int:
        found = self._border.search(data, at)
        if not found:
            return len(data)
        self._state = self._field
        if data[found.start()] == LF:
            self._end = found.end()
        elif data[found.start()] == CR:
            self._state = self._returned
        return found.end()

    def _returned(self, data: bytes, at: int) -> int:
        self._end = at + (data[at] == LF)
        return at


def read_blocks(
    read: Callable[[int], bytes],
    borders: Borders,
    *,
    offset: int,
    block_bytes: int,
    max_record_bytes: int,
    stop: int | None = None,
) -> Iterator[Block]:
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
      BrokenText: The text ends inside a record, such as inside a quoted field.
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
            borders.finish(rest)
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


_NONE = np.zeros(0, np.int64)


def _wanted(block_bytes: int, rest: int, left: int | None) -> int:
    """Returns how many bytes to read; few beyond a range's end, since another worker reads those.

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
    # Ends without the terminators "\n", "\r\n" and "\r".
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
    if scanner.inside_quotes():
        raise TruncatedRecord
    return b"", passed


def pass_line(read: Callable[[int], bytes], block_bytes: int) -> tuple[bytes, int]:
    """Skips the rest of a line; returns the bytes after it, and how many bytes were skipped."""
    return _pass_over(read, LineBorders(), read(block_bytes), block_bytes)
