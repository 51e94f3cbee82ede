"""Parsers of CSV (RFC 4180), TSV (IANA text/tab-separated-values) and sequences.

pyarrow's parser of CSV joins text after a closing quote to the field, and one long row fails the whole
file. The parser of Python's standard library is right, but it reads 23 MB/s and cannot split a file.
So this package has its own. The fields of a block are found by counting delimiters and quotes in numpy,
and only a block with stray quotes is read record by record. A quoted field ends at its closing quote,
even on a later line, so the operator must have the files from a program that escapes quotes.

In CSV, quoted fields may contain line ends, and a line may also end at a single carriage return (as in
Python's csv module). In sequences each line is the text of a user, with tokens separated by blanks.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_dpne.errors import InputError
from beam_dpne.reading.encodings import Encoding, recoded
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.records import (
    CR,
    LF,
    NAMED_USER,
    Batch,
    Block,
    Borders,
    BrokenText,
    LineBorders,
    Offsets,
    checked,
    gather,
    occurrences,
    pieces,
    record_batch,
    valid_utf8,
)
from beam_dpne.reading.rejects import BAD_QUOTES, NOT_UTF8, RAGGED

QUOTE = 0x22
HEAD_BYTES = 65536
_NO_OFFSETS = np.zeros(0, np.int64)


class Dialect(NamedTuple):
    """The delimiter of fields, and whether fields may be quoted."""

    delimiter: bytes
    quoted: bool

    def borders(self) -> Borders:
        """Returns the rule by which records end."""
        return QuotedBorders(self.delimiter) if self.quoted else LineBorders()


DIALECTS = {"csv": Dialect(b",", True), "tsv": Dialect(b"\t", False)}


def dialect_of(kind: str, options: ReadOptions) -> Dialect:
    """Returns the dialect of a format, changed by the options."""
    usual = DIALECTS[kind]
    sign = options.delimiter_character
    return Dialect(
        delimiter=usual.delimiter if sign is None else sign.encode(),
        quoted=usual.quoted if options.quoting == "auto" else options.quoting == "quoted",
    )


def header(path: str, head: bytes, dialect: Dialect, encoding: Encoding) -> tuple[list[str], int]:
    """Reads the names of the columns.

    Args:
      path: The file's path, for messages.
      head: The first bytes of the text, after a byte order mark.
      dialect: Delimiter and quoting of the text.
      encoding: Encoding of the text.

    Returns:
      The names, and the number of bytes of the header line.

    Raises:
      InputError: The text is empty, or its first line does not end in `head` or cannot be decoded.
    """
    if not head:
        raise InputError(f"{path} must begin with a header line, got an empty file.")
    end = dialect.borders().scanner().feed(head)
    if end < 0 and len(head) >= HEAD_BYTES:
        raise InputError(
            f"{path} must begin with a header line shorter than {HEAD_BYTES} bytes. "
            "Name the columns with --columns."
        )
    size = end if end >= 0 else len(head)
    names = split_fields(head[:size].rstrip(b"\r\n"), dialect)
    try:
        decoded = [recoded(name, encoding).decode() for name in names or []]
    except UnicodeDecodeError:
        expected = "the encoding that was given" if encoding.is_given else "UTF-8"
        raise InputError(
            f"{path} must begin with a header line in {expected}. Name the encoding of the file with "
            "--encoding, e.g. cp1252."
        ) from None
    return decoded, size


def split_fields(record: bytes, dialect: Dialect) -> list[bytes] | None:
    """Returns the fields of one record, or None if text follows a closing quote.

    >>> split_fields(b'a,"b ""c"", d",', DIALECTS["csv"])
    [b'a', b'b "c", d', b'']
    """
    if not dialect.quoted:
        return record.split(dialect.delimiter)
    escaped = re.escape(dialect.delimiter)
    field = re.compile(
        rb'(?:"([^"]*(?:""[^"]*)*)"|([^"%b][^%b]*|))(%b|\Z)' % (escaped, escaped, escaped),
    )
    fields, at = [], 0
    while match := field.match(record, at):
        quoted, plain, border = match.groups()
        fields.append(plain if quoted is None else quoted.replace(b'""', b'"'))
        if not border:
            return fields
        at = match.end()
    return None


class QuotedBorders:
    """Ends a record at a line end outside quotes; a quote opens only at the start of a field."""

    def __init__(self, delimiter: bytes = b",") -> None:
        self.delimiter = delimiter

    def ends(self, data: bytes) -> Offsets:
        """Returns the positions after the line ends outside quotes."""
        raw = np.frombuffer(data, np.uint8)
        quotes = occurrences(raw, QUOTE)
        if not well_quoted(raw, quotes, self.delimiter[0]):
            return self._scan(data)
        found = [_NO_OFFSETS]
        for piece in pieces(len(data)):
            ends = np.flatnonzero(_ends_of_lines(raw, piece)) + piece.start
            found.append(ends[outside_quotes(quotes, ends)] + 1)
        return np.concatenate(found)

    def _scan(self, data: bytes) -> Offsets:
        """Returns the same positions, found record by record, for data with stray quotes."""
        found: list[int] = []
        scanner = self.scanner()
        while (end := scanner.feed(data, found[-1] if found else 0)) >= 0:
            found.append(end)
            scanner = self.scanner()
        return np.array(found, np.int64)

    def scanner(self) -> "QuotedScanner":
        """Returns a scanner at the beginning of a record."""
        return QuotedScanner(self.delimiter)


def _ends_of_lines(raw: npt.NDArray[np.uint8], piece: slice) -> npt.NDArray[np.bool_]:
    r"""Returns which bytes of a piece of a text end a line: (bytes of the piece,) bool.

    "\r\n" ends a line once, so that only a "\r" without a "\n" after it counts. A "\r" at the end of
    the text may be the first half of "\r\n" and is left for the text after it.
    """
    following = raw[piece.start + 1 : piece.stop + 1]
    ends = raw[piece] == LF
    ends[: len(following)] |= (raw[piece][: len(following)] == CR) & (following != LF)
    return ends


def outside_quotes(quotes: Offsets, positions: Offsets) -> npt.NDArray[np.bool_]:
    """Returns which positions have an even number of quotes before them: (n,) bool."""
    return np.searchsorted(quotes, positions) % 2 == 0


def well_quoted(raw: npt.NDArray[np.uint8], quotes: Offsets, delimiter: int) -> bool:
    """Returns whether quotes open and close in turn, so that counting them finds quoted text.

    They do if the 1st, 3rd, … quote follows a border of fields (or, in a doubled quote, the quote
    before it), and the 2nd, 4th, … quote precedes one. The last field may be incomplete.

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
    """Finds the end of one CSV record by a state machine, which skips bytes that change no state.

    Each state is a method that takes the data and a position, and returns the next position to look at.
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

    def finish(self) -> None:
        """Raises BrokenText if the pieces so far end inside a quoted field."""
        if self._state == self._quoted:
            raise BrokenText(
                "ends inside a quoted field. The file is truncated, or a quote is not closed."
            )

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


class DelimitedParser:
    """Turns blocks of CSV or TSV into documents."""

    def __init__(self, columns: Sequence[str], dialect: Dialect, options: ReadOptions) -> None:
        self._dialect = dialect
        self._width = len(columns)
        self._record_names = options.record_names
        self._wanted = [columns.index(name) for _, name in options.wanted_fields]

    def parse(self, block: Block) -> Batch:
        """Splits the records of a block; blank lines are skipped."""
        block = block.filled()
        raw = np.frombuffer(block.data, np.uint8)
        quotes = occurrences(raw, QUOTE) if self._dialect.quoted else _NO_OFFSETS
        if well_quoted(raw, quotes, self._dialect.delimiter[0]):
            return self._parse_vectorized(block, quotes)
        return self._parse_each(block)

    def _parse_vectorized(self, block: Block, quotes: Offsets) -> Batch:
        raw = np.frombuffer(block.data, np.uint8)
        starts, ends, positions = block.starts, block.ends, block.positions
        delimiters = occurrences(raw, self._dialect.delimiter[0])
        delimiters = delimiters[outside_quotes(quotes, delimiters)]
        # (records,) the first delimiter at or after each record's start, as an index in `delimiters`.
        # Field i of a record lies between the delimiters first + i - 1 and first + i.
        first = np.searchsorted(delimiters, starts)
        good = np.searchsorted(delimiters, ends) - first == self._width - 1
        rejects = [(int(position), RAGGED) for position in positions[~good]]
        starts, ends, first = starts[good], ends[good], first[good]
        # Positions of the second quote of each doubled quote, which is dropped. Quotes open and close
        # in turn, so that in a doubled quote one opens right after another has closed.
        doubled = quotes[2::2][np.diff(quotes)[1::2] == 1] if quotes.size else None
        columns = []
        for column in self._wanted:
            left = starts if column == 0 else delimiters[first + column - 1] + 1
            right = ends if column == self._width - 1 else delimiters[first + column]
            columns.append(_unquoted(block.data, left, right, doubled))
        return self._merged(columns, positions[good], rejects)

    def _parse_each(self, block: Block) -> Batch:
        """Parses record by record, for blocks with stray quotes."""
        rejects: list[tuple[int, str]] = []
        rows: list[list[bytes]] = []
        positions: list[int] = []
        for position, record in block.records():
            fields = split_fields(record, self._dialect)
            if fields is None or len(fields) != self._width:
                rejects.append((position, BAD_QUOTES if fields is None else RAGGED))
            else:
                rows.append([fields[column] for column in self._wanted])
                positions.append(position)
        columns = [
            pa.array([row[i] for row in rows], pa.binary()) for i in range(len(self._wanted))
        ]
        return self._merged(columns, np.array(positions, np.int64), rejects)

    def _merged(
        self, columns: list[pa.Array], positions: Offsets, rejects: list[tuple[int, str]]
    ) -> Batch:
        batch = checked(columns, positions, self._record_names)
        return batch._replace(rejects=sorted(rejects + batch.rejects))


def _unquoted(data: bytes, left: Offsets, right: Offsets, doubled: Offsets | None) -> pa.Array:
    """Returns the values of fields without their quotes."""
    if doubled is None:
        return gather(data, left, right)
    padded = np.frombuffer(data + b"\0", np.uint8)
    quoted = (right > left) & (padded[left] == QUOTE)
    return gather(data, left + quoted, right - quoted, doubled)


# A file of sequences has a header only if it begins with this line, as the MSNBC data do.
HEADER_START = b"% Different categories found in input file:"
_HEADER_END = re.compile(rb"\n% Sequences:[^\n]*(?:\n(?:\r?\n)*|\Z)")


def header_bytes(head: bytes) -> int:
    r"""Returns the bytes of the header of a file like the MSNBC data; 0 for other files.

    Only the first line can announce a header, and the end of the header must be found. Otherwise one
    user's line could turn the lines of other users into a header.

    Raises:
      InputError: The first bytes announce a header that does not end in them.

    >>> header_bytes(HEADER_START + b"\n\na b\n% Sequences:\n\n1 2\n"), header_bytes(b"1 2\n")
    (63, 0)
    """
    if not head.startswith(HEADER_START):
        return 0
    found = _HEADER_END.search(head)
    if found is None:
        raise InputError("A header must end with the line '% Sequences:', early in the file.")
    return found.end()


class SequencesParser:
    """Turns blocks of lines into documents; each line is a user, whose name is its file and offset."""

    def __init__(self, number: int) -> None:
        self._number = number

    def parse(self, block: Block) -> Batch:
        """Makes each line a document; empty lines are skipped."""
        block = block.filled()
        text = gather(block.data, block.starts, block.ends)
        good = valid_utf8(text)
        positions = block.positions
        rejects = [(int(position), NOT_UTF8) for position in positions[~good]]
        user = _users(self._number, positions[good])
        documents = record_batch(user, text.filter(pa.array(good)).cast(pa.string()))
        return Batch(documents, rejects, len(documents))


def _users(number: int, positions: np.ndarray) -> pa.Array:
    """Returns 16 bytes for each user: the file's index and the line's offset, both little-endian."""
    pairs = np.empty((len(positions), 2), "<u8")
    pairs[:, 0] = number
    pairs[:, 1] = positions
    return pa.Array.from_buffers(NAMED_USER, len(positions), [None, pa.py_buffer(pairs)])
