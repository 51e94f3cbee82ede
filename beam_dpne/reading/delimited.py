"""CSV and TSV, by the parser of Python's standard library, and sequences.

The parser is strict: text that follows a closing quote is an error, after which it goes on at the next
line. A quoted field ends at its closing quote, even on a later line, so the operator must have the
files from a program that escapes quotes. Without quoting, each line is a record.
"""

import contextlib
import csv
import io
import itertools
import operator
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from beam_dpne.errors import InputError
from beam_dpne.reading.batches import NAMED_USER, Batch, batch_of, record_batch
from beam_dpne.reading.files import BrokenText
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.rejects import EMPTY_USER, NOT_CSV, NOT_DECODED, RAGGED, TOO_LONG
from beam_dpne.reading.text import LINE_END_BYTES, Block, lines_of

HEAD_BYTES = 65536


class _Records:
    """The records of some blocks: the fields of each, its offset, and what is wrong with it.

    Attributes:
      end: Offset of the line that the parser takes next.
    """

    def __init__(
        self, blocks: Iterator[Block], kind: str, options: ReadOptions, limit: int
    ) -> None:
        self._blocks = blocks
        self._limit = limit
        self._start = self.end = 0
        self._fault = ""
        self._is_done = False
        self._lines = self._read_lines()
        # The lines of the current record, which the parser has taken.
        self._taken: list[str] = []
        self._delimiter = options.delimiter_of(kind)
        self._is_quoted = options.is_quoted(kind)
        if self._is_quoted:
            # The limit of the module is for all readers of the process; records are limited here.
            csv.field_size_limit(max(csv.field_size_limit(), limit))
            self._rows = csv.reader(self._lines, delimiter=self._delimiter, strict=True)
        else:
            bare = (line.removesuffix("\n").removesuffix("\r") for line in self._lines)
            self._rows = (line.split(self._delimiter) if line else [] for line in bare)

    def __iter__(self) -> Iterator[tuple[int, list[str], str]]:
        """Yields offset, fields and fault ("" if there is none) of each record, not of blank lines.

        Raises:
          BrokenText: The text ends inside a quoted field.
        """
        while True:
            try:
                row = next(self._rows, None)
            except csv.Error:
                row = self._pass_malformed()
            if row is None:
                return
            if row:
                yield self._start, row, self._fault
            self._start, self._fault = self.end, ""
            self._taken.clear()

    def _pass_malformed(self) -> list[str]:
        """Reads to the end of a record in which text follows a closing quote.

        Otherwise its further lines would be taken for records of users whom its text may name.
        """
        if not self._is_done:
            self._fault = self._fault or NOT_CSV
            lines = itertools.chain(self._taken.copy(), self._lines)
            with contextlib.suppress(csv.Error):
                next(csv.reader(lines, delimiter=self._delimiter), None)
        if self._is_done:
            raise BrokenText(
                "ends inside a quoted field. The file is truncated, or a quote is not closed."
            )
        return [""]

    def _read_lines(self) -> Iterator[str]:
        """Yields the lines that the parser takes.

        Of a record that is too long, it gets only what changes whether quotes are open. By the rules
        of quoting they are open after a line with an odd number of quotes if they were not before it.
        """
        for block in self._blocks:
            if not self.end:
                self._start = self.end = block.offset
            if block.is_long_line:
                yield from self._of_long(block.size, block.quotes)
            for line in self._lines_of(block.data):
                if self.end + len(line) - self._start > self._limit + LINE_END_BYTES:
                    yield from self._of_long(len(line), line.count(b'"'))
                    continue
                self.end += len(line)
                try:
                    text = line.decode()
                except UnicodeDecodeError:
                    self._fault = NOT_DECODED
                    text = line.decode(errors="replace")
                self._taken.append(text)
                yield text
        self._is_done = True

    def _lines_of(self, data: bytes) -> Iterable[bytes]:
        """Returns lines; only with quoting they may end at a single carriage return."""
        return data.splitlines(keepends=True) if self._is_quoted else io.BytesIO(data)

    def _of_long(self, size: int, quotes: int) -> Iterator[str]:
        """Yields what stands for a line of a record that is too long."""
        is_inside = self.end > self._start
        self.end += size
        self._fault = TOO_LONG
        stand_in = '"\n' if self._is_quoted and quotes % 2 else "" if is_inside else "-\n"
        if stand_in:
            self._taken.append(stand_in)
            yield stand_in


def header(path: str, head: bytes, kind: str, options: ReadOptions) -> tuple[list[str], int]:
    """Returns the names of the columns, and the number of bytes of the header line.

    Args:
      path: The file's path, for messages.
      head: The first bytes of the text, after a byte order mark.
      kind: `csv` or `tsv`.
      options: How the file is read.

    Raises:
      InputError: The text is empty, or its first line does not end in `head` or cannot be decoded.
    """
    records = _Records(iter([Block(0, head, len(head))]), kind, options, HEAD_BYTES)
    try:
        _, names, fault = next(iter(records), (0, [], ""))
    except BrokenText:
        names, fault = [""], TOO_LONG
    if not names:
        raise InputError(f"{path} must begin with a header line, got an empty file.")
    if fault == NOT_DECODED:
        raise InputError(
            f"{path} must begin with a header line in {options.encoding or 'UTF-8'}. Name the encoding "
            "of the file with encoding, e.g. cp1252."
        )
    if fault or (records.end == len(head) >= HEAD_BYTES):
        raise InputError(
            f"{path} must begin with a header line of correct {kind} shorter than {HEAD_BYTES} bytes. "
            "Name the columns with columns."
        )
    return names, records.end


def read_delimited(
    blocks: Iterator[Block], columns: Sequence[str], kind: str, options: ReadOptions
) -> Iterator[Batch]:
    """Yields the documents of CSV or TSV; blank lines are skipped.

    Args:
      blocks: The text after the header line.
      columns: Names of all columns.
      kind: `csv` or `tsv`.
      options: How the file is read.
    """
    wanted = operator.itemgetter(*(columns.index(name) for _, name in options.wanted_fields))
    records = _Records(blocks, kind, options, options.max_record_bytes)
    rows: list[tuple[str, ...]] = []
    rejects: list[tuple[int, str]] = []
    first = 0
    for offset, row, fault in records:
        if fault or len(row) != len(columns):
            rejects.append((offset, fault or RAGGED))
        elif not (fields := wanted(row))[0]:
            rejects.append((offset, EMPTY_USER))
        else:
            rows.append(fields)
        if records.end - first >= options.block_bytes:
            yield _batch(rows, rejects, options)
            rows, rejects, first = [], [], records.end
    yield _batch(rows, rejects, options)


def _batch(
    rows: list[tuple[str, ...]], rejects: list[tuple[int, str]], options: ReadOptions
) -> Batch:
    values = zip(*rows, strict=True) if rows else ((),) * len(options.wanted_fields)
    return batch_of([pa.array(each, pa.string()) for each in values], rejects, options.record_names)


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


def read_sequences(blocks: Iterator[Block], number: int, options: ReadOptions) -> Iterator[Batch]:
    """Yields a document for each line that is not empty; its user is named by file and offset.

    Args:
      blocks: The text after the header.
      number: Index of the file.
      options: How the file is read.
    """
    for block in blocks:
        offsets: list[int] = []
        texts: list[str] = []
        rejects: list[tuple[int, str]] = []
        for offset, line, fault in lines_of(block, options.max_record_bytes):
            if fault:
                rejects.append((offset, fault))
            else:
                offsets.append(offset)
                texts.append(line.decode())
        documents = record_batch(_users(number, offsets), pa.array(texts, pa.string()))
        yield Batch(documents, rejects, len(texts))


def _users(number: int, offsets: list[int]) -> pa.Array:
    """Returns 16 bytes for each user: the file's index and the line's offset, both little-endian."""
    pairs = np.empty((len(offsets), 2), "<u8")
    pairs[:, 0] = number
    pairs[:, 1] = offsets
    return pa.Array.from_buffers(NAMED_USER, len(offsets), [None, pa.py_buffer(pairs)])
