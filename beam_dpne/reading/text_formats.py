"""Records of text files: CSV and TSV by Python's csv, sequences and mbox; `json_formats` has JSON.

Each reader puts records into `Gathered`, and yields when they have about `block_bytes`. Positions are
offsets in the text as UTF-8, or numbers of an array's elements.
"""

import contextlib
import dataclasses
import itertools
import json
import operator
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from beam_dpne.errors import InputError
from beam_dpne.reading.columns import field_values, group_fault
from beam_dpne.reading.escaped_csv import EscapedRows, OpenQuote
from beam_dpne.reading.files import LineText, lines_of
from beam_dpne.reading.ids import normalized
from beam_dpne.reading.mailboxes import messages, record_of
from beam_dpne.reading.nested import Finder, conditions_of, finder_of
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.quoted_csv import QuotedRows
from beam_dpne.reading.rejects import (
    BLANK_BEFORE_QUOTE,
    EMPTY_USER,
    ESCAPED_DELIMITER,
    LONE_SURROGATE,
    NO_USER,
    NOT_CSV,
    RAGGED,
)

_HEADER_BYTES = 65536
# Characters that are read at a time, of an array or of lines. A batch is several times as large.
PIECE = 32768


class Gathered:
    """Records that were read of a text.

    Attributes:
      text: The text.
      options: How the file is read.
      given: Fields of all records, which the path of the file has.
      columns: The values of each wanted field of the usable records.
      rejects: Position and reason of each record that cannot be used.
      further: Number of values in a column beyond the first one of their record, which has several
        texts at the end of a path.
      places: Position of the record of each value in a column, if each record is a user.
    """

    def __init__(
        self, text: LineText, options: ReadOptions, given: Mapping[str, str | None]
    ) -> None:
        self.text = text
        self.given = given
        self._finder = finder_of(options, given)
        text.block = min(PIECE, 1 + options.block_bytes // 8)
        self.options = options
        self.columns = [list[Any]() for _ in options.wanted_fields]
        self.places = list[int]()
        self._users = sum(option == "user_field" for option, _ in options.wanted_fields)
        self.clear()

    def clear(self) -> None:
        """Begins the next batch."""
        self.rejects: list[tuple[int, str]] = []
        self.further = 0
        self.places.clear()
        for column in self.columns:
            column.clear()
        self.end = self.text.offset + self.options.block_bytes

    def add(self, position: int, values: Sequence[Any], reason: str) -> None:
        """Adds a record, as a reject if there is a reason."""
        if reason:
            self.rejects.append((position, reason))
        else:
            for column, value in zip(self.columns, values, strict=True):
                column.append(value)
            if self.options.record_is_user:
                self.places.append(position)

    def add_value(self, position: int, value: object, *, is_lenient: bool = False) -> None:
        """Adds a value in JSON, as a reject if it has not what is wanted.

        Args:
          position: Where it is.
          value: The value.
          is_lenient: Whether its texts may have halves of surrogate pairs.
        """
        if self._finder is None:
            values, reason = field_values(value, self.options)
            rows: list[Sequence[Any]] = [] if reason else [values]
        else:
            rows, reason = self._finder.rows(value)
        if is_lenient and not all(map(_is_unicode, rows)):
            rows = []
            reason = LONE_SURROGATE
        self.add_rows(position, rows, reason)

    def add_rows(self, position: int, rows: list[Sequence[Any]], reason: str) -> None:
        """Adds the rows of one record, as a reject if there is a reason."""
        if reason:
            self.rejects.append((position, reason))
        for row in rows:
            self.add(position, row, "")
        self.further += max(0, len(rows) - 1)

    @property
    def has_paths(self) -> bool:
        """Whether fields must be looked for by paths."""
        return self._finder is not None

    def take(self, records: list[Any]) -> None:
        """Adds records of `record_type`, and empties the list of them."""
        for place, column in enumerate(self.columns):
            values = map(operator.attrgetter(f"f{place}"), records)
            column.extend(map(str, values) if place < self._users else values)
        records.clear()


def _is_unicode(row: Sequence[Any]) -> bool:
    """Whether no text of a row has half of a surrogate pair."""
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def read_delimited(
    into: Gathered, names: Sequence[str], kind: str, stop: int | None
) -> Iterator[None]:
    """Reads CSV or TSV up to `stop`, with columns of these names; blank lines are skipped."""
    text = into.text
    options = into.options
    width = len(names)
    # Fields that the path of the file has stand behind those of each line.
    given = tuple(value or "" for value in into.given.values())
    whole = [*names, *into.given]
    wanted = _getter([whole.index(name) for _, name in options.wanted_fields])
    users = sum(option == "user_field" for option, _ in options.wanted_fields)
    group = None if options.group_field is None else users + len(options.text_fields)
    conditions = [
        (whole.index(condition.path), condition.values)
        for condition in conditions_of(options.conditions)
    ]
    is_quoted = options.is_quoted(kind)
    for offset, row, fault in _rows(text, kind, options, options.max_record_bytes, stop):
        values: tuple[str, ...] = ()
        reason = fault
        if len(row) == width:
            if given:
                row.extend(given)
            # Conditions say nothing of a line that cannot be read.
            if conditions and not fault and not _hold(conditions, row):
                continue
            values = wanted(row)
            if options.normalize_users:
                values = (*map(normalized, values[:users]), *values[users:])
            if users and (values[0] in NULLS or not NULLS.isdisjoint(values[1:users])):
                reason = reason or _fault_of_users(values[:users])
        else:
            reason = reason or _why_ragged(row, is_quoted=is_quoted)
        if not reason and group is not None:
            reason = group_fault(values[group])
        into.add(offset, values, reason)
        if text.offset >= into.end:
            yield


def _why_ragged(row: Sequence[str], *, is_quoted: bool) -> str:
    """Returns the reason of a line with another number of fields, which may show what splits texts."""
    if any(field.endswith("\\") for field in row[:-1]):
        return ESCAPED_DELIMITER
    if is_quoted and any(field.lstrip(" ").startswith('"') for field in row if field[:1] == " "):
        return BLANK_BEFORE_QUOTE
    return RAGGED


def _hold(conditions: Sequence[tuple[int, frozenset[str]]], row: Sequence[str]) -> bool:
    """Whether each place of a row has one of the values that are allowed there."""
    return all(row[place] in allowed for place, allowed in conditions)


# Texts by which exports say that a user is missing: databases, data frames of Python, R, Excel.
NULLS = frozenset(
    ("", r"\N", "NULL", "null", "NaN", "nan", "NA", "<NA>", "N/A", "#N/A", "None", "NaT")
)


def _getter(places: Sequence[int]) -> Callable[[Sequence[str]], tuple[str, ...]]:
    """Returns the function that takes the fields at these places from a row."""
    if len(places) > 1:
        return operator.itemgetter(*places)
    (place,) = places
    return lambda row: (row[place],)


def _fault_of_users(users: Sequence[str]) -> str:
    """Returns why users of CSV or TSV, of which one is in `NULLS`, cannot be used."""
    return EMPTY_USER if "" in users else NO_USER


_PLURALS = {"comma": "commas", "semicolon": "semicolons", "tab": "tabs", "pipe": "pipes"}


# The line before the header line with which Excel is told the delimiter.
_OF_EXCEL = re.compile(r"sep=(.?)", re.IGNORECASE)


def header(text: LineText, path: str, kind: str, options: ReadOptions) -> list[str]:
    """Returns the names of the columns, from the first line of CSV or TSV.

    Raises:
      InputError: The text is empty, or its first line is malformed, too long or cannot be decoded.
    """
    names = list[str]()
    fault = "without an end"
    first = text.head.partition("\n")[0]
    if found := _OF_EXCEL.fullmatch(_bare(first)):
        others = options.other_delimiters(kind).items()
        told = "".join(f", and set `delimiter={name}`" for name, sign in others if sign == found[1])
        raise InputError(
            f"{path} must begin with its header line, got a line of Excel that names the delimiter. "
            f"Remove this line{told}."
        )
    with contextlib.suppress(OpenQuote):
        _, names, fault = next(
            _rows(text, kind, options, _HEADER_BYTES), (0, [], "missing, since the file is empty")
        )
    if fault == NOT_CSV and (remedy := remedy_of_delimiter([first], kind, options)):
        raise InputError(f"{path} must have its fields apart, got a line that is {fault}. {remedy}")
    if fault:
        raise InputError(
            f"{path} must begin with a header line of {kind} in {options.encoding or 'UTF-8'}, "
            f"shorter than {_HEADER_BYTES} bytes, got a line that is {fault}. If the file has "
            "another encoding, name it, e.g. set `encoding=cp1252`; if it has no header line, set "
            "`columns` to the names of all its fields."
        )
    return names


def remedy_of_delimiter(names: Sequence[str], kind: str, options: ReadOptions) -> str:
    """Returns which character seems to be between the fields of a file, with the option that says so.

    It is told of a header line that is one field, and has another usual character, and of one that has
    all wanted fields between such characters. It is never taken without being named, since it may also
    be a part of a name.

    Args:
      names: The fields of the header line, as the options split it.
      kind: The format, `csv` or `tsv`.
      options: How the file was read.

    Returns:
      A sentence, or "" if there is no such character.
    """
    own = options.delimiter_of(kind)
    line = own.join(names)
    others = options.other_delimiters(kind)
    wanted = {name for _, name in options.wanted_fields}
    likely = [name for name, sign in others.items() if wanted <= set(line.split(sign))]
    if not likely and len(names) == 1 and own not in line:
        most = max(others, key=lambda name: line.count(others[name]))
        likely = [name for name in (most,) if others[name] in line]
    if not likely or wanted <= set(names):
        return ""
    return f"The file seems to be separated by {_PLURALS[likely[0]]}: set `delimiter={likely[0]}`."


def _rows(
    text: LineText, kind: str, options: ReadOptions, limit: int, stop: int | None = None
) -> Iterator[tuple[int, list[str], str]]:
    """Returns offset, fields and fault of each line that is not blank, or of each quoted record."""
    delimiter = options.delimiter_of(kind)
    if options.quoting == "backslash":
        return iter(EscapedRows(text, delimiter, limit))
    if options.is_quoted(kind):
        return iter(QuotedRows(text, delimiter, limit, is_doubled=options.quoting == "quoted"))
    return (
        (offset, _bare(line).split(delimiter), fault)
        for offset, line, fault in text.lines(limit, stop)
        if fault or _bare(line)
    )


def _bare(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


# A file of sequences has a header only if it begins with this line, as the MSNBC data do.
HEADER_START = "% Different categories found in input file:"
_HEADER_END = "% Sequences:"
_HEADER_LINES = 100


def pass_header(text: LineText) -> None:
    """Reads the header of sequences like the MSNBC data; other files have none.

    Only the first line can announce a header, and the end of the header must be found. Otherwise one
    user's line could turn the lines of other users into a header.

    Raises:
      InputError: The first line announces a header that does not end.
    """
    if text.head.startswith(HEADER_START):
        lines = itertools.islice(text.lines(_HEADER_BYTES), _HEADER_LINES)
        if not any(line.startswith(_HEADER_END) for _, line, _ in lines):
            raise InputError("A header must end with the line '% Sequences:', early in the file.")


def read_sequences(into: Gathered, number: int, stop: int | None) -> Iterator[None]:
    """Reads the lines up to `stop` that are not blank; a user is 16 bytes, for file and offset."""
    user_of = struct.Struct("<QQ").pack
    users, texts = into.columns
    limit = into.options.max_record_bytes
    for start, block in into.text.blocks(limit, stop):
        for offset, line, fault in lines_of(start, block, limit):
            if fault:
                into.rejects.append((offset, fault))
            elif line := _bare(line):
                users.append(user_of(number, offset))
                texts.append(line)
        if into.text.offset >= into.end:
            yield


def read_mbox(into: Gathered) -> Iterator[None]:
    """Reads the messages of a mailbox; each piece of text that a sender wrote is a document."""
    # A message has a list of texts, for which the plain name of the field stands.
    texts = [f"{name}[]" for name in into.options.text_fields]
    finder = Finder(dataclasses.replace(into.options, text_field=texts), into.given)
    for position, message, fault in messages(into.text, into.options.max_record_bytes):
        record, reason = ({}, fault) if fault else record_of(message)
        if reason:
            into.add(position, (), reason)
        else:
            into.add_rows(position, *finder.rows(record))
        if into.text.offset >= into.end:
            yield
