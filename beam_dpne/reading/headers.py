"""The beginning of a file determines how it is read, and must have the wanted fields.

Errors name the fields of a file only if they cannot be data. The first line of a CSV file without a
header line is a user's record.
"""

import codecs
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import pyarrow.parquet as pq

from beam_dpne.errors import InputError
from beam_dpne.reading.batches import Batch
from beam_dpne.reading.delimited import (
    HEAD_BYTES,
    header,
    header_bytes,
    read_delimited,
    read_sequences,
)
from beam_dpne.reading.files import InputFile, guarded, open_raw
from beam_dpne.reading.formats import format_of
from beam_dpne.reading.json_records import elements, is_array, read_json_array, read_json_lines
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.parquet import check_schema
from beam_dpne.reading.text import TextStream, pass_line, read_blocks

_IDENTIFIER = re.compile(r"[A-Za-z0-9_.\-]{1,64}", re.ASCII)
_SHOWN = 30
_CHECKED_FILES = 8
_CHECKED_RECORDS = 100
_KEYS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Text(NamedTuple):
    """A text, and how its records are read.

    Attributes:
      stream: The text, at the offset `size`.
      file: The text's file.
      kind: Format of the text, not Parquet.
      size: Number of bytes before the first record.
      columns: Names of the columns of CSV or TSV, in order.
      is_array: Whether the text is a JSON array.
      can_be_cut: Whether it can be read from any byte on, because each line feed ends a record.
    """

    stream: TextStream
    file: InputFile
    kind: str
    size: int
    columns: tuple[str, ...]
    is_array: bool
    can_be_cut: bool

    def batches(
        self, options: ReadOptions, start: int = 0, stop: int | None = None
    ) -> Iterator[Batch]:
        """Yields the documents of the records that begin in a range of bytes."""
        if self.is_array:
            yield from read_json_array(self.stream, options)
            return
        offset = self.size
        if start > offset:
            # Reading starts one byte earlier, so that a record at the very start of the range counts.
            self.stream.seek(start - 1)
            line, rest = pass_line(self.stream, self.stream.read(HEAD_BYTES), HEAD_BYTES, start - 1)
            self.stream.push_back(rest)
            offset = start - 1 + line.size
        blocks = read_blocks(self.stream, options, start=offset, stop=stop)
        if self.kind == "sequences":
            yield from read_sequences(blocks, self.file.number, options)
        elif self.columns:
            yield from read_delimited(blocks, self.columns, self.kind, options)
        else:
            yield from read_json_lines(blocks, options)


def begin(stream: TextStream, file: InputFile, kind: str, options: ReadOptions) -> Text:
    """Determines from its beginning how a text is read.

    Args:
      stream: The text, at its beginning.
      file: The text's file.
      kind: Format of the text, not Parquet.
      options: How the input is read.

    Raises:
      InputError: The header of CSV, TSV or sequences is malformed, or lacks a field.
    """
    is_delimited = kind in ("csv", "tsv")
    # If the first bytes are a user's record, they must not decide how other records are read.
    has_head = kind == "json" or (is_delimited and not options.columns)
    can_be_cut = stream.start_decoding(options.encoding, has_mark=has_head)
    mark = len(codecs.BOM_UTF8) if stream.peek(3) == codecs.BOM_UTF8 else 0
    stream.read(mark)
    head = stream.peek(HEAD_BYTES)
    array = kind == "json" and is_array(head)
    columns, size = options.columns or (), 0
    if kind == "sequences":
        size = header_bytes(head)
    elif is_delimited and not columns:
        columns, size = header(file.path, head, kind, options)
        _require_fields(file.path, columns, options)
    stream.read(size)
    can_be_cut &= not (array or (is_delimited and options.is_quoted(kind)))
    columns = tuple(columns) if is_delimited else ()
    return Text(stream, file, kind, mark + size, columns, array, can_be_cut)


def check_fields(files: Sequence[InputFile], options: ReadOptions) -> None:
    """Checks before a run that the first eight files can be opened and read with the options.

    The reader itself checks all files.

    Args:
      files: The files that `match_inputs` found.
      options: How the files will be read.

    Raises:
      InputError: A file cannot be opened or decompressed, its format is unknown or excludes an option,
        or a wanted field does not exist. The error names existing fields unless they may be data.
    """
    for file in files:
        options.check_kind(format_of(file.path, options.input_format))
    found: set[str] = set()
    for file in files[:_CHECKED_FILES]:
        with guarded(file.path):
            found |= _check_file(file, options)
    missing = sorted(set(options.text_fields) - found)
    if found and missing:
        raise InputError(
            "text_field must name fields of the input, got "
            f"text_field={','.join(missing)!r}, which the first records of its first files lack."
        )


def _check_file(file: InputFile, options: ReadOptions) -> set[str]:
    """Checks one file, and returns its fields, which are none if it has no records."""
    kind = format_of(file.path, options.input_format)
    if kind == "parquet":
        with open_raw(file.path) as raw:
            schema = pq.ParquetFile(raw).schema_arrow
            check_schema(file.path, schema, options)
        return set(schema.names)
    with TextStream(file.path) as stream:
        text = begin(stream, file, kind, options)
        if kind not in ("json", "jsonl"):
            return set(text.columns)
        records = [_keys(record) for record in _first_records(text)]
    keys = [found for found in records if found is not None]
    if kind == "json" and records and not keys:
        raise InputError(
            f"{file.path} must hold one JSON array of objects, or one JSON object on each line. "
            "Its first records are neither; objects within another object are not found."
        )
    _require_keys(file.path, keys, options)
    return {key for found in keys for key in found}


def _first_records(text: Text) -> list[object]:
    """Returns the first elements of a JSON array, or the first lines that are not blank."""
    if text.is_array:
        return list(itertools.islice(elements(text.stream), _CHECKED_RECORDS))
    head = text.stream.read(HEAD_BYTES)
    # The last line may be incomplete.
    lines = head.split(b"\n")[: None if len(head) < HEAD_BYTES else -1]
    return [line for line in lines if line.strip()]


def _keys(record: object) -> list[str] | None:
    """Returns the keys of an object or of a line with one, or None if it is something else."""
    if not isinstance(record, bytes):
        return list(record) if isinstance(record, dict) else None
    try:
        return list(_KEYS.decode(record))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _require_fields(path: str, names: Sequence[str], options: ReadOptions) -> None:
    """Raises InputError unless a header line has each wanted field exactly once."""
    for option, field in options.wanted_fields:
        if list(names).count(field) == 1:
            continue
        known = _known(names)
        if not _is_header(names, options):
            known = (
                f"Its first line has {len(names)} columns and is not shown, since without a header "
                "line it would be data. If it is a header line, name its fields with user_field and "
                "text_field, and the sign between them with delimiter. If it is not, name the "
                "columns with columns."
            )
        raise InputError(
            f"{option} must name one field of {path}, got {option}={field!r}, which is not in its "
            f"header line exactly once. {known}"
        )


def _require_keys(path: str, records: Sequence[Sequence[str]], options: ReadOptions) -> None:
    """Raises InputError if no first JSON record has the user's field, or none has a field of texts."""
    for option, fields in (
        ("user_field", [options.user_field]),
        ("text_field", list(options.text_fields)),
        *(("fields", [name]) for name in options.fields or ()),
    ):
        if records and not any(field in keys for keys in records for field in fields):
            common = [key for key in records[0] if all(key in keys for keys in records)]
            shown = len(records) > 1 or _is_header(common, options)
            raise InputError(
                f"{option} must name a field of {path}, got {option}={','.join(fields)!r}, which its "
                f"first records lack. {_known(common if shown else ())}"
            )


def _is_header(names: Sequence[str], options: ReadOptions) -> bool:
    """Returns whether names cannot be data: one of them is wanted, or the operator chose the wanted."""
    wanted = {options.user_field, *options.text_fields}
    return bool(wanted & set(names)) or wanted != {"user", "text"}


def _known(names: Sequence[str]) -> str:
    """Returns a sentence that names the fields of a file, unless one of them may be data."""
    if not names or not all(_IDENTIFIER.fullmatch(name) for name in names):
        return "Its fields are not shown, since they may be data."
    more = ", …" if len(names) > _SHOWN else ""
    return f"It has the fields {', '.join(names[:_SHOWN])}{more}."
