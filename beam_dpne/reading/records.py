r"""Cutting streams of bytes into blocks of whole records.

A record is a line, or in CSV a line that may go on through quoted fields. A line ends at "\n" or
"\r\n", in CSV also at a single "\r" (as in Python's csv module). A record longer than the limit is
passed over without being held.
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
    """A text cannot be cut into records; the message says why in fixed words, after its path."""


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
      offset: Where `data` begins in the decompressed text.
      starts: Where in `data` each record begins.
      ends: Where in `data` each record ends, without its terminator.
      too_long: Offsets in the decompressed text of records above the limit; not among the others.
      places: Where in the decompressed text each record begins, if `data` is recoded.
    """

    data: bytes
    offset: int
    starts: Offsets
    ends: Offsets
    too_long: list[int]
    places: Offsets | None = None

    @property
    def positions(self) -> Offsets:
        """Where in the decompressed text each record begins."""
        return self.starts + self.offset if self.places is None else self.places

    def filled(self) -> "Block":
        """Returns the block without its empty records."""
        kept = self.ends > self.starts
        return self._replace(
            starts=self.starts[kept], ends=self.ends[kept], places=self.positions[kept]
        )


class Scanner(Protocol):
    """Looks for the end of one record through any number of pieces."""

    def feed(self, data: bytes, at: int = 0) -> int:
        """Returns where the record ends, after its terminator, or -1 if further on."""
        ...

    def inside_quotes(self) -> bool:
        """Whether the pieces so far end within a quoted field."""
        ...


class Borders(Protocol):
    """Where records end."""

    def ends(self, data: bytes) -> Offsets:
        """Positions after the terminators of the whole records that `data` begins with."""
        ...

    def finish(self, rest: bytes) -> None:
        """Raises BrokenText unless the text may end with these bytes, a record without terminator."""
        ...

    def scanner(self) -> Scanner:
        """A scanner at the beginning of a record."""
        ...


class LineBorders:
    """Every line feed ends a record."""

    def ends(self, data: bytes) -> Offsets:
        """Positions after the line feeds."""
        return np.flatnonzero(np.frombuffer(data, np.uint8) == LF) + 1

    def finish(self, rest: bytes) -> None:
        """A last line needs no line feed."""

    def scanner(self) -> "LineBorders":
        """Lines have no state."""
        return self

    def feed(self, data: bytes, at: int = 0) -> int:
        """The position after the next line feed."""
        return data.find(b"\n", at) + 1 or -1

    def inside_quotes(self) -> bool:
        """A line has no quotes."""
        return False


class QuotedBorders:
    """A line end outside quotes ends a record; a quote opens only at a field's start."""

    def __init__(self, delimiter: bytes = b",") -> None:
        self.delimiter = delimiter

    def ends(self, data: bytes) -> Offsets:
        """Positions after the line ends outside quotes."""
        raw = np.frombuffer(data, np.uint8)
        quotes = np.flatnonzero(raw == QUOTE)
        if not well_quoted(raw, quotes, self.delimiter[0]):
            return self._scan(data)
        line_feed, is_return = raw == LF, raw == CR
        # "\r\n" ends a record once; a "\r" that ends the data may be half of it.
        lone = is_return[:-1] & ~line_feed[1:]
        line_feed[: len(lone)] |= lone
        found = np.flatnonzero(line_feed)
        return found[outside_quotes(quotes, found)] + 1

    def _scan(self, data: bytes) -> Offsets:
        """The same, record by record, for data with stray quotes."""
        found: list[int] = []
        scanner = self.scanner()
        while (end := scanner.feed(data, found[-1] if found else 0)) >= 0:
            found.append(end)
            scanner = self.scanner()
        return np.array(found, np.int64)

    def finish(self, rest: bytes) -> None:
        """Raises if the last record ends inside quotes."""
        scanner = self.scanner()
        scanner.feed(rest)
        if scanner.inside_quotes():
            raise TruncatedRecord

    def scanner(self) -> "QuotedScanner":
        """A scanner at the beginning of a record."""
        return QuotedScanner(self.delimiter)


def outside_quotes(quotes: Offsets, positions: Offsets) -> npt.NDArray[np.bool_]:
    """Which positions have an even number of quotes before them."""
    return np.searchsorted(quotes, positions) % 2 == 0


def well_quoted(raw: npt.NDArray[np.uint8], quotes: Offsets, delimiter: int) -> bool:
    """Whether quotes open and close in turn, so that counting them tells inside from outside.

    It is so if every odd quote follows a border of fields (or, in a doubled quote, the quote
    before it) and every even one precedes one. The last field may be incomplete.
    """
    border = np.zeros(256, bool)
    border[[delimiter, LF, CR, QUOTE]] = True
    opening, closing = quotes[0::2], quotes[1::2]
    inner = opening[opening > 0]
    followed = closing[closing < len(raw) - 1]
    return bool(border[raw[inner - 1]].all() and border[raw[followed + 1]].all())


class QuotedScanner:
    """Follows one CSV record byte by byte, as far as it has to."""

    def __init__(self, delimiter: bytes) -> None:
        self._border = re.compile(b"[\r\n" + re.escape(delimiter) + b"]")
        self._state: Callable[[bytes, int], int] = self._field
        self._end = -1

    def feed(self, data: bytes, at: int = 0) -> int:
        """Returns where the record ends, after its terminator, or -1 if further on."""
        while at < len(data) and self._end < 0:
            at = self._state(data, at)
        return self._end

    def inside_quotes(self) -> bool:
        """Whether the pieces so far end within a quoted field."""
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
      read: Returns the next bytes of the text, none at its end.
      borders: Where records end.
      offset: Where in the decompressed text `read` begins, at the start of a record.
      block_bytes: How many bytes to read at once.
      max_record_bytes: The longest record to be held, without its terminator.
      stop: Offset in the decompressed text from which records belong to somebody else.

    Yields:
      Blocks of about `block_bytes`.

    Raises:
      BrokenText: The text ends where it must not, such as inside a quoted field.
    """
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


def _wanted(block_bytes: int, held: int, left: int | None) -> int:
    """How many bytes to read: near the end of a range little more, since somebody else reads that.

    Args:
      block_bytes: the most.
      held: bytes of a record whose end is not read yet.
      left: bytes of the range from there on; None if there is no end.
    """
    if left is None:
        return block_bytes
    return min(block_bytes, max(0, left - held) + max(_BEYOND, held))


def _block(data: bytes, offset: int, ends: Offsets, limit: int, stop: int | None) -> Block:
    """Builds a block of the records that start before `stop` and keep the limit."""
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    if stop is not None:
        owned = starts < stop - offset
        starts, ends = starts[owned], ends[owned]
    size = int(ends[-1])
    raw = np.frombuffer(data, np.uint8)
    bare = ends - (raw[ends - 1] == LF)
    bare -= (bare > starts) & (raw[bare - 1] == CR)
    short = bare - starts <= limit
    too_long = [offset + int(start) for start in starts[~short]]
    return Block(data[:size], offset, starts[short], bare[short], too_long)


def _pass_over(
    read: Callable[[int], bytes], scanner: Scanner, data: bytes, block_bytes: int
) -> tuple[bytes, int]:
    """Reads on to the end of a record; returns the bytes after it and how many were passed."""
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
    """Passes over the rest of a line; returns the bytes after it and how many were passed."""
    return _pass_over(read, LineBorders(), read(block_bytes), block_bytes)
