"""Texts become records: opened at the first record of a piece of work, and read by their format."""

import contextlib
import itertools
from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.errors import InputError
from beam_dpne.reading import json_formats, mailboxes, text_formats
from beam_dpne.reading.columns import NAMED_USER, group_fault, users_of_records
from beam_dpne.reading.field_errors import require_fields
from beam_dpne.reading.files import LineText, TextFile, WorkItem
from beam_dpne.reading.options import DELIMITED, ReadOptions, codec_of
from beam_dpne.reading.quoted_csv import quoted_pieces, whole_columns

_PIECES_OF_A_BATCH = 4
_NULLS = pa.array(text_formats.NULLS)


class Part(NamedTuple):
    """Some records of a file, before their texts become documents.

    Attributes:
      columns: The columns of the usable records: users, each field of texts, then the group if there is
        one, and further fields.
      rejects: Position and reason of each record that cannot be used.
      unit: Unit of the positions: `byte` or `row`.
      done: Stored bytes of the piece of work that have been read by now.
      further: How many rows of the columns are not the first one of their record.
    """

    columns: Sequence[pa.Array]
    rejects: list[tuple[int, str]]
    unit: str
    done: int
    further: int


def read_text(item: WorkItem, options: ReadOptions) -> Generator[Part, None, None]:
    """Reads the records of a piece of work, some at a time."""
    with begun(item, options) as (text, names):
        if is_doubled_csv(item.kind, options):
            for start, data in quoted_pieces_of(text, item, options):
                for part in parts_of_piece(data, start, item, names, options):
                    yield part._replace(done=min(text.taken, stored_bytes(item)))
        for part in parts_of(text, item, names, options):
            # Behind the pieces there is mostly nothing.
            if part.rejects or len(part.columns[0]):
                yield part


@contextlib.contextmanager
def begun(item: WorkItem, options: ReadOptions) -> Iterator[tuple[TextFile, Sequence[str]]]:
    """Opens a text at the first record of a piece of work; yields it, and its columns if it has any."""
    with opened(item, options) as text:
        names = _begin(text, item, options)
        if item.start <= text.offset:
            yield text, names
            return
    # Reading starts one byte earlier, so that a record at the very start of the range counts.
    with opened(item, options, start=item.start - 1) as text:
        next(text.lines(options.max_record_bytes), None)
        yield text, names


def opened(item: WorkItem, options: ReadOptions, start: int = 0) -> TextFile:
    """Opens the text of a piece of work, at its beginning or at a byte of it."""
    # If the first bytes are a user's record, they must not decide how other records are read.
    has_mark = item.kind == "json" or (item.kind in DELIMITED and not options.columns)
    newline = newline_of(item.kind, options)
    path = item.file.path
    return TextFile(path, options.encoding, has_mark=has_mark, newline=newline, start=start)


def newline_of(kind: str, options: ReadOptions) -> str:
    """Returns what ends a line, as in `open`: where there are quotes also a carriage return alone."""
    return "" if options.is_quoted(kind) else "\n"


def is_array_of(text: TextFile, kind: str, options: ReadOptions) -> bool:
    """Whether records are the elements of an array, which may be within an object."""
    begins_so = text.head.lstrip(" \t\r\n").startswith("[")
    return kind == "json" and (options.records is not None or begins_so)


def _begin(text: TextFile, item: WorkItem, options: ReadOptions) -> Sequence[str]:
    """Reads what comes before the first record; returns the columns of CSV and TSV."""
    if item.kind == "sequences":
        text_formats.pass_header(text)
    if item.kind == "mbox":
        require_fields(mailboxes.FIELDS, item, options)
    if item.kind not in DELIMITED:
        return ()
    if options.columns:
        require_fields(options.columns, item, options)
        return options.columns
    columns = text_formats.header(text, item.file.path, item.kind, options)
    require_fields(columns, item, options)
    return columns


def parts_of(
    text: TextFile, item: WorkItem, names: Sequence[str], options: ReadOptions
) -> Iterator[Part]:
    """Yields the records of a text from where it is on, some at a time."""
    is_array = is_array_of(text, item.kind, options)
    size = stored_bytes(item)
    into = text_formats.Gathered(text, options, dict(item.file.fields))
    if item.kind == "mbox":
        reading = text_formats.read_mbox(into)
    elif is_array and options.records is not None:
        reading = json_formats.read_json_list(into)
    elif is_array:
        reading = json_formats.read_json_array(into)
    else:
        reading = lines_into(into, item, names, item.stop)
    unit = "row" if is_array else "byte"
    for part in gathered_parts(reading, into, item, unit):
        yield part._replace(done=min(text.taken, size))
    require_all(text, item)


def is_doubled_csv(kind: str, options: ReadOptions) -> bool:
    """Whether fields may be enclosed in quotes that are doubled within them."""
    return options.is_quoted(kind) and options.quoting != "backslash"


def piece_bytes(options: ReadOptions) -> int:
    """Returns the bytes of a piece of a text, of which a batch has several.

    They are few, so that many processes end at about the same time.
    """
    return 1 + options.block_bytes // _PIECES_OF_A_BATCH


def quoted_pieces_of(
    text: TextFile, item: WorkItem, options: ReadOptions
) -> Iterator[tuple[int, bytes]]:
    """Cuts quoted CSV at ends of records, into pieces shorter than the largest record."""
    limit = options.max_record_bytes
    size = min(piece_bytes(options), 1 + limit // 2)
    return quoted_pieces(text, options.delimiter_of(item.kind), size, limit)


def parts_of_piece(
    data: bytes, start: int, item: WorkItem, names: Sequence[str], options: ReadOptions
) -> Iterator[Part]:
    """Yields the records of a piece of a text that has whole records, which begins at an offset."""
    if is_doubled_csv(item.kind, options):
        columns = _usable_columns(data, item, names, options)
        if columns is not None:
            return iter([Part(columns, [], "byte", 0, 0)])
    text = LineText.of(data, start, newline_of(item.kind, options))
    into = text_formats.Gathered(text, options, dict(item.file.fields))
    return gathered_parts(lines_into(into, item, names, None), into, item, "byte")


def _usable_columns(
    data: bytes, item: WorkItem, names: Sequence[str], options: ReadOptions
) -> list[pa.Array] | None:
    """Returns the wanted columns of a piece of quoted CSV, or None if a record could be a reject."""
    asks_more = options.conditions or options.normalize_users or options.record_is_user
    # Quotes that backslashes may escape are looked at record by record.
    may_be_escaped = options.quoting != "quoted" and b'\\"' in data
    if asks_more or item.file.fields or may_be_escaped or len(data) > options.max_record_bytes:
        return None
    wanted = [names.index(name) for _, name in options.wanted_fields]
    columns = whole_columns(data, options.delimiter_of(item.kind), len(names), wanted)
    if columns is None:
        return None
    for (option, _), column in zip(options.wanted_fields, columns, strict=True):
        if option == "user_field":
            null_users = pc.SetLookupOptions(_NULLS)
            if pc.call_function("is_in", [column], null_users).true_count:
                return None
        if option == "group_field" and any(map(group_fault, column.unique().to_pylist())):
            return None
    return columns


def lines_into(
    into: text_formats.Gathered, item: WorkItem, names: Sequence[str], stop: int | None
) -> Iterator[None]:
    """Reads records that each are a line, or rows of CSV, which may go on over several lines."""
    if item.kind == "sequences":
        return text_formats.read_sequences(into, item.file.number, stop)
    if names:
        return text_formats.read_delimited(into, names, item.kind, stop)
    return json_formats.read_json_lines(into, stop)


def gathered_parts(
    reading: Iterator[None], into: text_formats.Gathered, item: WorkItem, unit: str
) -> Iterator[Part]:
    """Yields a part each time that reading pauses, and one with the rest at its end."""
    options = into.options
    tokens = pa.list_(pa.string()) if options.text_is_tokens else pa.string()
    user = NAMED_USER if item.kind == "sequences" else pa.string()
    kind_of = {"user_field": user, "text_field": tokens}
    kinds = [kind_of.get(option, pa.string()) for option, _ in options.wanted_fields]
    # What is left after the last yield is the last batch.
    for _ in itertools.chain(reading, [None]):
        columns = [pa.array(each, kind) for each, kind in zip(into.columns, kinds, strict=True)]
        if options.record_is_user:
            columns.insert(0, users_of_records(item.file.number, into.places))
        yield Part(columns, into.rejects, unit, 0, into.further)
        into.clear()


def stored_bytes(item: WorkItem) -> int:
    """Returns the stored bytes of a piece of work; its reader goes on to the end of the last record."""
    return min(item.file.size, item.stop or item.file.size) - item.start


def require_all(text: TextFile, item: WorkItem) -> None:
    """Raises InputError if a text that has been read to its end had fewer bytes than it should have."""
    if text.taken < stored_bytes(item) and codec_of(item.file.path) is None:
        raise InputError(f"{item.file.path} is shorter than when the run began.")
