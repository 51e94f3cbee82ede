"""Parsers of CSV (RFC 4180), TSV (IANA text/tab-separated-values) and sequences.

The parser of CSV is this package's own because a record of one user must not change how the records of
others are read. pyarrow's parser joins an unclosed quote with the next user's line, joins text after a
closing quote to the field, and fails on a long row. The parser of Python's standard library is right,
but reads 23 MB/s and cannot split a file. Here the fields of a block are found by counting delimiters
and quotes in numpy, and only a block with stray quotes is read record by record.

In sequences each line is the text of a user, with tokens separated by blanks.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from beam_dpne.errors import InputError
from beam_dpne.reading.columns import NAMED_USER, Batch, checked, gather, record_batch, valid_utf8
from beam_dpne.reading.encodings import Encoding, recoded
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.records import (
    QUOTE,
    Block,
    Borders,
    LineBorders,
    Offsets,
    QuotedBorders,
    outside_quotes,
    well_quoted,
)
from beam_dpne.reading.rejects import BAD_QUOTES, NOT_UTF8, RAGGED

HEAD_BYTES = 65536
_UTF8 = Encoding()
_NO_QUOTES = np.zeros(0, np.int64)


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


def header(
    path: str, head: bytes, dialect: Dialect, encoding: Encoding = _UTF8
) -> tuple[list[str], int]:
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
    line = head[: end if end >= 0 else len(head)].rstrip(b"\r\n")
    names = split_fields(line, dialect)
    try:
        decoded = [recoded(name, encoding).decode() for name in names or []]
    except UnicodeDecodeError:
        said = "in the encoding that was given" if encoding.is_given else "in UTF-8"
        raise InputError(
            f"{path} must begin with a header line {said}. Name the encoding of the file with "
            "--encoding, e.g. cp1252."
        ) from None
    return decoded, end if end >= 0 else len(head)


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


class DelimitedParser:
    """Turns blocks of CSV or TSV into documents.

    Attributes:
      dialect: Delimiter and quoting of the text.
      width: Number of columns.
      wanted: Indices of the user's and the texts' columns.
    """

    def __init__(self, columns: Sequence[str], dialect: Dialect, options: ReadOptions) -> None:
        self.dialect = dialect
        self.width = len(columns)
        self.wanted = [columns.index(name) for _, name in options.wanted_fields]

    def parse(self, block: Block) -> Batch:
        """Splits the records of a block; blank lines are skipped."""
        block = block.filled()
        raw = np.frombuffer(block.data, np.uint8)
        quotes = np.flatnonzero(raw == QUOTE) if self.dialect.quoted else _NO_QUOTES
        if well_quoted(raw, quotes, self.dialect.delimiter[0]):
            return self._parse_vectorized(block, quotes)
        return self._parse_each(block)

    def _parse_vectorized(self, block: Block, quotes: Offsets) -> Batch:
        raw = np.frombuffer(block.data, np.uint8)
        starts, ends, positions = block.starts, block.ends, block.positions
        delimiters = np.flatnonzero(raw == self.dialect.delimiter[0])
        delimiters = delimiters[outside_quotes(quotes, delimiters)]
        # (records,) index in `delimiters` of the first one at or after the record's start. Field i of a
        # record lies between delimiters first + i - 1 and first + i.
        first = np.searchsorted(delimiters, starts)
        good = np.searchsorted(delimiters, ends) - first == self.width - 1
        rejects = [(int(position), RAGGED) for position in positions[~good]]
        starts, ends, first = starts[good], ends[good], first[good]
        # Positions of the second quote of each doubled quote, which is to be dropped. Quotes open and
        # close in turn, so that a doubled quote is one that opens right after one that closes.
        doubled = quotes[2::2][np.diff(quotes)[1::2] == 1] if quotes.size else None
        columns = []
        for column in self.wanted:
            left = starts if column == 0 else delimiters[first + column - 1] + 1
            right = ends if column == self.width - 1 else delimiters[first + column]
            columns.append(_unquoted(block.data, left, right, doubled))
        return _merged(columns, positions[good], rejects)

    def _parse_each(self, block: Block) -> Batch:
        """Parses record by record, for blocks with stray quotes."""
        rejects: list[tuple[int, str]] = []
        rows: list[list[bytes]] = []
        positions: list[int] = []
        spans = zip(
            block.positions.tolist(), block.starts.tolist(), block.ends.tolist(), strict=True
        )
        for position, start, end in spans:
            fields = split_fields(block.data[start:end], self.dialect)
            if fields is None or len(fields) != self.width:
                reason = BAD_QUOTES if fields is None else RAGGED
                rejects.append((position, reason))
            else:
                rows.append([fields[column] for column in self.wanted])
                positions.append(position)
        columns = [pa.array([row[i] for row in rows], pa.binary()) for i in range(len(self.wanted))]
        return _merged(columns, np.array(positions, np.int64), rejects)


def _unquoted(data: bytes, left: Offsets, right: Offsets, doubled: Offsets | None) -> pa.Array:
    """Returns the values of fields without their quotes."""
    if doubled is None:
        return gather(data, left, right)
    padded = np.frombuffer(data + b"\0", np.uint8)
    quoted = (right > left) & (padded[left] == QUOTE)
    return gather(data, left + quoted, right - quoted, doubled)


def _merged(columns: list[pa.Array], positions: Offsets, rejects: list[tuple[int, str]]) -> Batch:
    batch = checked(columns[0], columns[1:], positions)
    return batch._replace(rejects=sorted(rejects + batch.rejects))


# Only a file that begins with this line has a header, as the MSNBC data do.
HEADER_START = b"% Different categories found in input file:"
_HEADER_END = re.compile(rb"\n% Sequences:[^\n]*(?:\n(?:\r?\n)*|\Z)")


def header_bytes(head: bytes) -> int:
    r"""Returns the bytes of the header of a file like the MSNBC data; 0 for other files.

    Only the first line can announce a header, and an announced header must end. Otherwise one user's
    line could turn the lines of other users into a header.

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
    """Turns blocks of lines into documents; each line is a user, named by file and offset."""

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
