"""Records of CSV whose quotes are doubled.

Where quotes stand as CSV has them, a text is cut at ends of records without being parsed, so that
several processes read it, and Arrow parses a piece at once. From the first quote that stands otherwise
on, and for a piece with a record that cannot be used, records are read one after the other, by the
parser of Python's standard library.
"""

import codecs
import contextlib
import csv
import functools
import itertools
import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyarrow import csv as csv_of_arrow

from beam_dpne.reading.escaped_csv import OPEN_QUOTE, OpenQuote
from beam_dpne.reading.files import LINE_END_BYTES, BrokenText, LineText, as_utf8, size_of
from beam_dpne.reading.rejects import NOT_CSV, TOO_LONG

_BACKSLASHED = (
    "has a quote after a backslash where a field ends, as Spark, Hive and MySQL write it, which escape "
    "quotes by backslashes: give `quoting=backslash`. Read as doubled quotes, one user's text could "
    "become records of other users. If its quotes are doubled all the same, and some texts have a "
    "backslash there, give `quoting=quoted`."
)
_QUOTE = ord('"')
_FEED = ord("\n")


def quoted_pieces(
    text: LineText, delimiter: str, size: int, limit: int
) -> Iterator[tuple[int, bytes]]:
    """Yields offsets and texts, as UTF-8, of successive pieces of whole records.

    It ends where a quote does not stand as CSV has it, and where no record ends in `limit` bytes. The
    text then goes on behind the last piece.

    Args:
      text: The text, at the beginning of a record.
      delimiter: What stands between fields.
      size: Characters that are read at a time.
      limit: Bytes of the longest record.
    """
    rest = b""
    while piece := text.read(size):
        rest += as_utf8(piece)
        end = _end_of_records(rest, delimiter)
        if end:
            yield text.offset, rest[:end]
            text.offset += end
            rest = rest[end:]
        elif end is None or len(rest) > limit:
            break
    # With one more than `QuotedRows` allows, so that it knows a line that is too long.
    text.put_back(rest, limit + LINE_END_BYTES + 1)


def _end_of_records(data: bytes, delimiter: str) -> int | None:
    r"""Returns where the last whole record of a text ends; None if a quote stands where it should not.

    Each quote opens or closes a quoted field, in turn, if each that opens stands at the beginning of a
    field, and each that closes at the end of one, where two in a row are a quote of the field. This
    follows from the first quote on, one after the other. A line feed with as many before it that open
    as close then ends a record.

    >>> _end_of_records(b'a,"b\nc"\nd,e', ",")
    8
    >>> _end_of_records(b'a,b"c\n', ",") is None
    True
    """
    # In front of a text a record begins; behind it one may go on, and then is seen once more.
    raw = np.frombuffer(b"\n" + data + b"\n", np.uint8)
    quotes = np.flatnonzero(raw == _QUOTE)
    beside = np.zeros(256, bool)
    beside[list(f'\r\n"{delimiter}'.encode())] = True
    is_usual = beside[raw[quotes[::2] - 1]].all() and beside[raw[quotes[1::2] + 1]].all()
    if not is_usual or not delimiter.isascii():
        return None
    feeds = np.flatnonzero(raw[1:-1] == _FEED)
    ends = feeds[np.searchsorted(quotes, feeds + 1) % 2 == 0]
    return int(ends[-1]) + 1 if ends.size else 0


def whole_columns(
    data: bytes, delimiter: str, width: int, wanted: Sequence[int]
) -> list[pa.Array] | None:
    """Returns columns of whole records, or None if a record has not so many fields or is not UTF-8.

    Where quotes stand as in a piece of `quoted_pieces`, Arrow reads what Python's parser reads, but for
    two things: it does not look at bytes of fields that it leaves out, and takes a byte order mark at
    the beginning of a piece for none of a field.

    Args:
      data: The records.
      delimiter: What stands between fields.
      width: How many fields each record has.
      wanted: Numbers of the fields that are returned, as strings.
    """
    names = [str(number) for number in range(width)]
    chosen = [names[number] for number in wanted]
    if data.startswith(codecs.BOM_UTF8):
        return None
    try:
        data.decode()
        table = csv_of_arrow.read_csv(
            pa.py_buffer(data),
            csv_of_arrow.ReadOptions(
                use_threads=False, column_names=names, block_size=len(data) + 1
            ),
            csv_of_arrow.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            csv_of_arrow.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), include_columns=chosen
            ),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    return [table[name].combine_chunks() for name in chosen]


class QuotedRows:
    """Records whose fields may be enclosed in quotes, by the parser of Python's standard library.

    The parser is strict: text that follows a closing quote is an error. A quoted field ends at its
    closing quote, even on a later line, so the operator must have the files from a program that doubles
    quotes. Unless the operator has said so, a file is refused that seems to escape them by backslashes.
    """

    def __init__(self, text: LineText, delimiter: str, limit: int, *, is_doubled: bool) -> None:
        self._text = text
        # Such a field ends with an escaped quote, which one more quote may close. A line feed and a
        # carriage return each end a record, also alone.
        ends = re.compile(rf'\\""?(?:{re.escape(delimiter)}|[\r\n]|$)')
        self._is_backslashed = None if is_doubled else ends.search
        # Whether the current record has a quote after a backslash, in a file that may escape quotes so.
        self._may_be_escaped = False
        self._delimiter = delimiter
        self._most = limit + LINE_END_BYTES
        self._start = text.offset
        self._fault = ""
        self._is_done = False
        # The lines of the current record, which the parser has taken.
        self._taken: list[str] = []
        # The limit of the module is for all readers of the process; records are limited here.
        csv.field_size_limit(max(csv.field_size_limit(), self._most))

    def __iter__(self) -> Iterator[tuple[int, list[str], str]]:
        """Yields offset, fields and fault ("" if there is none) of each record, not of blank lines.

        Raises:
          BrokenText: The text ends inside a quoted field, or seems to escape quotes by backslashes.
        """
        lines = self._lines()
        rows = csv.reader(lines, delimiter=self._delimiter, strict=True)
        while True:
            try:
                row = next(rows, None)
            except csv.Error:
                row = self._pass_malformed(lines)
            if row is None:
                return
            if self._fault and self._may_be_escaped:
                # Read by other rules, the record would end somewhere else.
                raise BrokenText(_BACKSLASHED)
            if row:
                yield self._start, row, self._fault
            self._start = self._text.offset
            self._fault = ""
            self._may_be_escaped = False
            self._taken.clear()

    def _pass_malformed(self, lines: Iterator[str]) -> list[str]:
        """Reads to the end of a record in which text follows a closing quote.

        Otherwise its further lines would be taken for records of users whom its text may name.
        """
        if self._may_be_escaped:
            raise BrokenText(_BACKSLASHED)
        if not self._is_done:
            self._fault = self._fault or NOT_CSV
            whole = itertools.chain(self._taken.copy(), lines)
            with contextlib.suppress(csv.Error):
                next(csv.reader(whole, delimiter=self._delimiter), None)
        if self._is_done:
            raise OpenQuote(OPEN_QUOTE)
        return [""]

    def _lines(self) -> Iterator[str]:
        """Yields the lines that the parser takes.

        Of a record that is too long, it gets only what changes whether quotes are open. By the rules
        of quoting they are open after a line with an odd number of quotes if they were not before it.
        """
        text = self._text
        most = self._most
        taken = self._taken
        begin = text.offset
        quotes = 0
        before = ""
        for piece in iter(functools.partial(text.readline, most + 1), ""):
            size, fault = size_of(piece)
            # A long line comes in pieces, which may be cut within what is looked for.
            seen = before + piece
            before = "" if piece[-1] in "\r\n" else piece[-3:]
            if self._is_backslashed and '\\"' in seen:
                self._may_be_escaped = True
                if self._is_backslashed(seen):
                    raise BrokenText(_BACKSLASHED)
            line = piece
            text.offset += size
            self._fault = self._fault or fault
            if text.offset - self._start > most:
                self._fault = TOO_LONG
                quotes += piece.count('"')
                if piece[-1] not in "\r\n":
                    continue
                # Its place is taken by a quote if it opens or closes quotes. Otherwise it is left out;
                # only as a record's first line it leaves a sign, without which there is no record.
                if quotes % 2:
                    line = '"\n'
                elif begin > self._start:
                    line = ""
                else:
                    line = "-\n"
            begin = text.offset
            quotes = 0
            if line:
                taken.append(line)
                yield line
        self._is_done = True
