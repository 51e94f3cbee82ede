"""What a launcher checks before a run: that the wanted fields exist."""

import itertools
from collections.abc import Sequence

import msgspec
import pyarrow.parquet as pq

from beam_dpne.errors import InputError
from beam_dpne.reading.beginnings import HEAD_BYTES, Beginning, begin
from beam_dpne.reading.encodings import recoded
from beam_dpne.reading.fields import is_quoted, require_keys
from beam_dpne.reading.files import InputFile, TextStream, guarded, open_raw
from beam_dpne.reading.json_arrays import ArrayBorders
from beam_dpne.reading.jsonl import BLANKS
from beam_dpne.reading.options import ReadOptions, format_of
from beam_dpne.reading.parquet import check_schema

_KEYS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def check_fields(files: Sequence[InputFile], options: ReadOptions, *, limit: int = 8) -> None:
    """Opens the beginning of the first files and checks that they can be read as asked.

    Args:
      files: What `match_inputs` found.
      options: How they are to be read.
      limit: How many files to open; the reader checks all.

    Raises:
      InputError: A file cannot be opened or decompressed, its format is unknown or cannot hold
        what is wanted, or a field does not exist. Fields that do are named unless they may be data.
    """
    for file in files:
        options.check_kind(format_of(file.path, options.input_format))
    found: set[str] = set()
    for file in files[:limit]:
        with guarded(file.path):
            found |= _check_file(file, options)
    missing = sorted(set(options.text_fields) - found)
    if found and missing:
        raise InputError(
            "text_field must name fields of the input, got "
            f"text_field={','.join(missing)!r}, which the first records of its first files lack."
        )


def _check_file(file: InputFile, options: ReadOptions) -> set[str]:
    """Checks one file; returns its fields as far as they are seen, none if there are no records."""
    kind = format_of(file.path, options.input_format)
    if kind == "parquet":
        with open_raw(file.path) as raw:
            schema = pq.ParquetFile(raw).schema_arrow
            check_schema(file.path, schema, options)
        return set(schema.names)
    with TextStream(file.path) as stream:
        beginning = begin(stream, file, kind, options)
        stream.read(beginning.size)
        head = recoded(stream.read(HEAD_BYTES), beginning.encoding)
    if kind in ("json", "jsonl"):
        elements = _elements(head, beginning)
        keys = [found for found in map(_keys, elements) if found is not None]
        if kind == "json" and any(elements) and not keys:
            raise InputError(
                f"{file.path} must hold one JSON array of objects, or one JSON object on each line. "
                "Its first records are neither; objects within another object are not found."
            )
        require_keys(file.path, keys, options)
        return {key for found in keys for key in found}
    if kind == "tsv" and options.quoting == "auto":
        _require_no_quotes(file.path, _lines(head), beginning, options)
    return set(beginning.columns)


def _elements(head: bytes, beginning: Beginning) -> list[bytes]:
    """The whole records in the first bytes after the beginning, without blanks around them."""
    if not isinstance(beginning.borders, ArrayBorders):
        return [line.strip(BLANKS) for line in _lines(head)]
    ends = beginning.borders.ends(head).tolist()
    return [head[i:j].strip(BLANKS + b",]") for i, j in itertools.pairwise([0, *ends])]


def _lines(head: bytes) -> list[bytes]:
    """The whole lines in the first bytes; a shorter text ends with the last line."""
    lines = head.split(b"\n")
    return lines if len(head) < HEAD_BYTES else lines[:-1]


def _require_no_quotes(
    path: str, lines: Sequence[bytes], beginning: Beginning, options: ReadOptions
) -> None:
    """Raises if most of the first records of a file without quoting have their texts in quotes."""
    sign = options.delimiter_character or "\t"
    places = [beginning.columns.index(name) for name in options.text_fields]
    rows = [line.decode("utf-8", "replace").rstrip("\r").split(sign) for line in lines]
    rows = [row for row in rows if len(row) == len(beginning.columns)]
    quoted = sum(all(is_quoted(row[place]) for place in places) for row in rows)
    if 2 * quoted > len(rows):
        raise InputError(
            f"quoting must say whether quotes are part of the fields of {path}, most of whose first "
            "records have their texts in quotes. Give --quoting quoted if they only enclose texts, "
            "--quoting none if they are part of them."
        )


def _keys(line: bytes) -> list[str] | None:
    """The keys of a JSON object; None if the line is none."""
    try:
        return list(_KEYS.decode(line))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
