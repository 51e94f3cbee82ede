"""Texts become records: opened at the first record of a piece of work, and read by their format."""

import contextlib
import itertools
from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from beam_dpne.errors import InputError
from beam_dpne.reading import json_formats, mailboxes, text_formats
from beam_dpne.reading.columns import NAMED_USER, users_of_records
from beam_dpne.reading.field_errors import require_fields
from beam_dpne.reading.files import TextFile, WorkItem
from beam_dpne.reading.options import DELIMITED, ReadOptions, codec_of


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
        yield from _parts(text, item, names=names, options=options)


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
    newline = "" if options.is_quoted(item.kind) else "\n"
    path = item.file.path
    return TextFile(path, options.encoding, has_mark=has_mark, newline=newline, start=start)


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


def _parts(
    text: TextFile, item: WorkItem, names: Sequence[str], options: ReadOptions
) -> Iterator[Part]:
    """Yields the records of a text, some at a time."""
    into = text_formats.Gathered(text, options, dict(item.file.fields))
    is_array = is_array_of(text, item.kind, options)
    if item.kind == "mbox":
        reading = text_formats.read_mbox(into)
    elif is_array and options.records is not None:
        reading = json_formats.read_json_list(into)
    elif is_array:
        reading = json_formats.read_json_array(into)
    else:
        reading = lines_into(into, item, names, item.stop)
    unit = "row" if is_array else "byte"
    size = stored_bytes(item)
    for part in gathered_parts(reading, into, item, unit):
        yield part._replace(done=min(text.taken, size))
    require_all(text, item)


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
