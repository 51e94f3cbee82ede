"""Records of files become batches of documents: pieces of work, formats, and checks of fields.

`text_items` reads texts, and `_read_parquet` reads Parquet.
"""

import contextlib
import dataclasses
import itertools
import json
import re
from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from beam_dpne.elements import progress
from beam_dpne.errors import InputError
from beam_dpne.reading import json_formats, mailboxes, text_formats
from beam_dpne.reading.columns import (
    interleaved,
    row_group_ranges,
)
from beam_dpne.reading.compression import SIGNATURE_BYTES, refuse_unnamed
from beam_dpne.reading.encodings import refuse_encoding
from beam_dpne.reading.field_errors import absent_field, named_fields, require_fields
from beam_dpne.reading.files import BrokenText, InputFile, TextFile, WorkItem, guarded, open_raw
from beam_dpne.reading.held import OF_TYPES
from beam_dpne.reading.ids import IDS, joined_ids
from beam_dpne.reading.json_lists import beginning_of, prefix_of
from beam_dpne.reading.json_structure import ListCutter
from beam_dpne.reading.nested import has, paths_in
from beam_dpne.reading.options import DELIMITED, ReadOptions, codec_of, format_of
from beam_dpne.reading.rejects import (
    BAD_TEXT,
    BAD_TOKENS,
    NO_GROUP,
    NO_LIST,
    NO_TEXT,
    NO_USER,
    OF_LISTS,
    OF_TEXTS,
    OF_USERS,
    Reject,
)
from beam_dpne.reading.row_groups import paths_of, read_held, read_iceberg, read_row_groups
from beam_dpne.reading.table_versions import IcebergFile, is_iceberg
from beam_dpne.reading.text_items import Part, is_array_of, opened, read_text
from beam_dpne.validation import did_you_mean

# Records of a file of JSON in which its fields are looked for.
_FIRST = 30
# How JSON begins, and no header line.
_JSON = re.compile(r'\s*(?:\[\s*)?\{\s*"')
_CHECKED_FILES = 8
_CHECKED_BYTES = 2**16


class Batch(NamedTuple):
    """The documents and rejects of some records.

    Attributes:
      path: Path of the file.
      documents: Documents of the usable records; a record with several texts has several documents.
      rejects: Position and reason of each record that cannot be used.
      usable: Number of records that the documents come from.
      unit: Unit of the positions: `byte` or `row`.
    """

    path: str
    documents: pa.RecordBatch
    rejects: list[tuple[int, str]]
    usable: int
    unit: str

    def without_documents(self) -> "Batch":
        """Returns what is known of the records, which a process tells another one."""
        return self._replace(documents=self.documents.slice(0, 0))

    def listed(self) -> Iterator[Reject]:
        """Yields the records that cannot be used, as the list of rejects has them."""
        for position, reason in self.rejects:
            yield Reject(self.path, position, self.unit, reason)


class FirstRecords(NamedTuple):
    """The documents of the first records of some files, as secret as the data.

    Attributes:
      users: The user of each document: string, or 16 bytes for sequences.
      texts: The text of each document, or its list of tokens.
    """

    users: pa.Array
    texts: pa.Array


def plan_reads(file: InputFile, options: ReadOptions) -> list[WorkItem]:
    """Cuts a file into parts that workers read independently.

    Args:
      file: The file.
      options: How the file is read.

    Returns:
      Ranges of bytes or row groups of about `split_bytes`, or one item for small and indivisible files.
    """
    kind = format_of(file.path, options.input_format)
    options.check_kind(kind)
    whole = WorkItem(file, kind)
    if file.size <= options.split_bytes or codec_of(file.path) or is_iceberg(file.version):
        return [whole]
    if file.table is not None:
        return [whole]
    with guarded(file.path):
        if kind == "parquet":
            with open_raw(file.path) as raw:
                groups = row_group_ranges(pq.ParquetFile(raw), options.split_bytes)
            return [WorkItem(file, kind, *group) for group in groups]
        with opened(whole, options) as text:
            # Only there each line feed ends a record.
            is_whole = kind == "mbox" or options.is_quoted(kind)
            if not text.is_plain or is_whole or is_array_of(text, kind, options):
                return [whole]
    starts = range(0, file.size, options.split_bytes)
    return [WorkItem(file, kind, start, start + options.split_bytes) for start in starts]


def read_item(item: WorkItem, options: ReadOptions) -> Generator[Batch, None, None]:
    """Reads the documents of one piece of work, and reports the number of read bytes to `progress`.

    Raises:
      InputError: The file is truncated or damaged, or lacks a field.
    """
    read = _read_parquet if item.kind == "parquet" else read_text
    guard = guarded(item.file.path)
    if is_iceberg(item.file.version):
        read = _read_iceberg
    if item.file.table is not None:
        read = _read_held
        guard = guarded(item.file.path, OF_TYPES)
    reported = 0
    with guard, contextlib.closing(read(item, options)) as parts:
        for part in parts:
            progress.advance_bytes(part.done - reported)
            reported = part.done
            yield batch_of(part, item.file.path, options)


def batch_of(part: Part, path: str, options: ReadOptions) -> Batch:
    """Returns some records of a file as documents."""
    return Batch(
        path=path,
        documents=_documents(part.columns, options),
        rejects=part.rejects,
        usable=len(part.columns[0]) - part.further,
        unit=part.unit,
    )


def _documents(columns: Sequence[pa.Array], options: ReadOptions) -> pa.RecordBatch:
    """Returns a document for each text of usable records, or rows if further fields are wanted."""
    if options.fields is not None:
        names = [name for _, name in options.column_fields]
        return pa.RecordBatch.from_arrays(list(columns), names=names)
    users = len(options.user_fields)
    last_text = users + len(options.text_fields)
    group = None if options.group_field is None else columns[last_text]
    return interleaved(joined_ids(columns[:users]), columns[users:last_text], group)


def _read_parquet(item: WorkItem, options: ReadOptions) -> Generator[Part, None, None]:
    with open_raw(item.file.path) as raw:
        file = pq.ParquetFile(raw)
        require_fields(file.schema_arrow.names, item, options, file.schema_arrow)
        groups = range(item.start, item.stop or file.metadata.num_row_groups)
        size_of_row = item.file.size / max(1, file.metadata.num_rows)
        counts = [file.metadata.row_group(group).num_rows for group in range(groups.start)]
        given = dict(item.file.fields)
        for rows in read_row_groups(file, groups, options, given, item.file.number):
            done = int((rows.end - sum(counts)) * size_of_row)
            yield Part(rows.columns, rows.rejects, "row", done, rows.further)


def _read_iceberg(item: WorkItem, options: ReadOptions) -> Generator[Part, None, None]:
    file = IcebergFile.of(item.file.version, item.file.path)
    require_fields(file.schema.names, item, options, file.schema)
    size_of_row = item.file.size / max(1, file.num_rows)
    for rows in read_iceberg(file, options, item.file.number):
        yield Part(rows.columns, rows.rejects, "row", int(rows.end * size_of_row), rows.further)


def _read_held(item: WorkItem, options: ReadOptions) -> Generator[Part, None, None]:
    if item.file.table is None:
        return
    rows_in_all = sum(batch.num_rows for batch in item.file.table.batches)
    size_of_row = item.file.size / max(1, rows_in_all)
    for rows in read_held(item.file.table, options, item.file.number):
        yield Part(rows.columns, rows.rejects, "row", int(rows.end * size_of_row), rows.further)


def check_fields(files: Sequence[InputFile], options: ReadOptions) -> FirstRecords:
    """Reads the beginnings of the first eight files, so that wrong options are an error before a run.

    Args:
      files: The files that `match_inputs` found.
      options: How the files will be read.

    Returns:
      The documents that it has read.

    Raises:
      InputError: All files are empty, a file cannot be opened or decompressed, its format is unknown or
        excludes an option, or a wanted field does not exist or holds no texts.
    """
    if not any(file.size for file in files):
        raise InputError(f"`input` must have records, got {files[0].path}, which is an empty file.")
    kinds = options.formats_of(file.path for file in files)
    items = [WorkItem(file, kind) for file, kind in zip(files, kinds, strict=True)]
    usable = 0
    reasons = set[str]()
    documents = list[pa.RecordBatch]()
    faulty = list[WorkItem]()  # Errors speak of the first of these.
    for item in items[:_CHECKED_FILES]:
        beginning = dataclasses.replace(options, block_bytes=_CHECKED_BYTES)
        try:
            batch = _first_batch(item, beginning)
        except InputError:
            _refuse_other_bytes(item, options)
            raise
        if batch is None:
            continue
        if not batch.usable and batch.rejects:
            _refuse_other_bytes(item, options)
        usable += batch.usable
        documents.append(batch.documents)
        reasons.update(reason for _, reason in batch.rejects)
        faulty += [item] if batch.rejects else []
    first = (*faulty, *items)[0]
    if not usable:
        _require_list(first, reasons, options)
    if not usable and (option := _option_without_field(first, reasons, options)):
        field = dict(reversed(named_fields(options)))[option]
        names = _common_names(first, options)
        is_there = (option, field) not in _nowhere(first, options)
        lacks = (
            "is empty or null in its first records" if is_there else "its first records do not have"
        )
        why = f"which {lacks}"
        raise absent_field(option, field, why, first, names=names, options=options)
    if not usable and len(reasons) == 1 and reasons <= OF_USERS.keys():
        (reason,) = reasons
        raise InputError(
            f"`user_field` must name {IDS} in {first.file.path}, got `user_field="
            f"{_named(options.user_fields)}`: {reason}. {OF_USERS[reason]}"
        )
    for reason, remedy in ((BAD_TEXT, OF_LISTS), (BAD_TOKENS, OF_TEXTS)):
        if not usable and reasons == {reason}:
            raise InputError(
                f"`text_field` must be right for the tokenizer in {first.file.path}, got `text_field="
                f"{_named(options.text_fields)}`: {reason}. {remedy}"
            )
    if not documents:
        return FirstRecords(pa.array([], pa.string()), pa.array([], pa.string()))
    users, texts = (
        pa.concat_arrays([each.column(place) for each in documents]) for place in range(2)
    )
    return FirstRecords(users, texts)


def _first_batch(item: WorkItem, options: ReadOptions) -> Batch | None:
    with contextlib.closing(read_item(item, options)) as batches:
        return next(batches, None)


def _refuse_other_bytes(item: WorkItem, options: ReadOptions) -> None:
    """Refuses a text that cannot be read since it is compressed, or of another encoding than named."""
    path = item.file.path
    if item.kind == "parquet":
        return
    if codec_of(path) is None:
        with open_raw(path) as raw:
            refuse_unnamed(path, raw.read(SIGNATURE_BYTES))
    if item.kind != "mbox":
        with guarded(path), opened(item, options) as text:
            refuse_encoding(path, options.encoding, text.encoding, text.first_bytes)
            if item.kind in DELIMITED and _JSON.match(text.head):
                raise InputError(
                    f"{path} must be {item.kind}, got what seems to be JSON: rename it, so that its "
                    "name ends in .jsonl, or in .json if the whole file is one array or object."
                )


def _require_list(item: WorkItem, reasons: set[str], options: ReadOptions) -> None:
    """Refuses a JSON file, of which nothing is usable, if its records are in another list.

    The names of its lists may be data, such as users, so that none is told but one that is nearly what
    was asked for.
    """
    if item.kind not in ("json", "jsonl") or (options.records is not None and reasons - {NO_LIST}):
        return
    path = item.file.path
    with guarded(path), opened(item, options) as text:
        if options.records is None and is_array_of(text, item.kind, options):
            return
        lists, is_one = beginning_of(text)
    if options.records is None and lists and is_one:
        also = "" if item.kind == "json" else " and `input_format=json`"
        raise InputError(
            f"{path} must have an object for each record, got one object that has a list of objects. "
            f"If they are the records, name the list with records{also}: `records=statuses` for "
            '{"statuses": [{…}]}, `records=chats.list[].messages` for {"chats": {"list": [{"messages": '
            "[{…}]}]}}.",
            path=path,
        )
    if options.records is not None and prefix_of(options.records) not in map(prefix_of, lists):
        raise InputError(
            f"`records` must name a list of objects in {path}, got `records={options.records!r}`, "
            f"which its beginning does not have.{did_you_mean(options.records, lists)} A list on "
            "the way to it has [] after its name, as in chats.list[].messages.",
            path=path,
        )


def fields_nowhere(files: Sequence[InputFile], options: ReadOptions) -> list[tuple[str, str]]:
    """Returns pairs of a parameter and its field that no first record of a JSON file has.

    Such a field is refused if it leaves no record usable; one of several text fields does not. Files
    of other formats without a field are refused.
    """
    found = list[tuple[str, str]]()
    for file in files[:1]:
        item = WorkItem(file, format_of(file.path, options.input_format))
        if item.kind in ("json", "jsonl"):
            found += _nowhere(item, options)
    return found


def _nowhere(item: WorkItem, options: ReadOptions) -> list[tuple[str, str]]:
    given = dict(item.file.fields)
    records = [{**given, **record} for record in _records_of(item, options)]
    return [
        (option, field)
        for option, field in named_fields(options)
        if records and not any(has(record, field) for record in records)
    ]


def _option_without_field(item: WorkItem, reasons: set[str], options: ReadOptions) -> str:
    """Returns the parameter whose field the first records do not have, none of which is usable, or "".

    Args:
      item: The first file.
      reasons: The reasons why records were rejected.
      options: How the file is read.
    """
    missing = {NO_USER: "user_field", NO_TEXT: "text_field", NO_GROUP: "group_field"}
    if len(reasons) == 1:
        named = missing.get(next(iter(reasons)), "")
        return named if named in dict(options.wanted_fields) else ""
    if reasons or item.kind not in ("json", "jsonl"):
        return ""
    # Conditions have left out all that was read, perhaps since their own fields are not there.
    return next((option for option, _ in _nowhere(item, options)), "")


def _named(fields: Sequence[str]) -> str:
    """Returns names of fields that are there, as messages have them."""
    return repr(fields[0]) if len(fields) == 1 else ",".join(fields)


def names_without_wanted(file: InputFile, options: ReadOptions) -> Sequence[str]:
    """Returns the fields of a file that lacks a wanted one, as secret as the data.

    They are those of the header, of the Parquet file, or of the first records; none if it has all
    wanted fields, or cannot be read.
    """
    wanted = {name.replace("[]", "") for _, name in named_fields(options)}
    with contextlib.suppress(InputError), guarded(file.path):
        names = _names_in(WorkItem(file, format_of(file.path, options.input_format)), options)
        if not wanted <= {*names, *dict(file.fields)}:
            return names
    return ()


def _names_in(item: WorkItem, options: ReadOptions) -> Sequence[str]:
    if is_iceberg(item.file.version):
        return paths_of(IcebergFile.of(item.file.version, item.file.path).schema)
    if item.kind == "parquet":
        with open_raw(item.file.path) as raw:
            return paths_of(pq.ParquetFile(raw).schema_arrow)
    if item.kind in DELIMITED:
        with opened(item, options) as text:
            return options.columns or text_formats.header(text, item.file.path, item.kind, options)
    if item.kind == "mbox":
        return mailboxes.FIELDS
    names = sorted(set().union(*_names_of_records(item, options)))
    if names or item.kind not in ("json", "jsonl"):
        return names
    with opened(item, options) as text:
        return beginning_of(text).lists


def _common_names(item: WorkItem, options: ReadOptions) -> Sequence[str]:
    """Returns the fields that several JSON records have in common, which are names and no data."""
    found = _names_of_records(item, options)
    return sorted(set.intersection(*found)) if len(found) > 1 else ()


def _names_of_records(item: WorkItem, options: ReadOptions) -> list[set[str]]:
    """Returns the paths of the fields of each of the first records of a file of JSON."""
    return [paths_in(record) for record in _records_of(item, options)]


def _records_of(item: WorkItem, options: ReadOptions) -> list[dict[str, object]]:
    """Returns the first records of a file of JSON, up to one that is malformed."""
    found = list[object]()
    with contextlib.suppress(ValueError, BrokenText), opened(item, options) as text:
        lines = text.lines(options.max_record_bytes)
        records = (json.loads(line) for _, line, _ in lines if line.strip())
        if is_array_of(text, item.kind, options):
            records = _elements_of(text, options)
        found.extend(itertools.islice(records, _FIRST))
    return [record for record in found if isinstance(record, dict)]


def _elements_of(text: TextFile, options: ReadOptions) -> Iterator[object]:
    """Yields the elements of the list of records of a text."""
    if options.records is not None:
        limit = options.max_record_bytes
        for found in json_formats.listed_elements(text, ListCutter(options.records, limit)):
            yield from map(json.loads, found)
        return
    for piece in json_formats.elements(text, options.max_record_bytes):
        yield from map(json.loads, piece.each())
