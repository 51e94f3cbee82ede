"""Headers and first records of files determine the parser, and must have the wanted fields.

Errors name the fields of a file only if they cannot be data. The first line of a CSV file without a
header line is a user's record.
"""

import codecs
import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec
import pyarrow.parquet as pq

from beam_dpne.errors import InputError
from beam_dpne.reading.delimited import (
    HEAD_BYTES,
    DelimitedParser,
    SequencesParser,
    dialect_of,
    header,
    header_bytes,
)
from beam_dpne.reading.encodings import Encoding, recoded
from beam_dpne.reading.files import InputFile, TextStream, guarded, open_raw
from beam_dpne.reading.json_records import (
    BLANKS,
    ArrayBorders,
    JsonArrayParser,
    JsonlParser,
    array_start,
)
from beam_dpne.reading.options import ReadOptions, format_of
from beam_dpne.reading.parquet import check_schema
from beam_dpne.reading.records import Batch, Block, Borders, LineBorders

BYTE_ORDER_MARK = codecs.BOM_UTF8
_IDENTIFIER = re.compile(r"[A-Za-z0-9_.\-]{1,64}", re.ASCII)
_SHOWN = 30
_CHECKED_FILES = 8
_KEYS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Parser(Protocol):
    """Turns blocks of records into documents."""

    def parse(self, block: Block) -> Batch:
        """Returns the documents and rejects of a block."""
        ...


class Beginning(NamedTuple):
    """How a text is read, which its beginning and the options determine.

    Attributes:
      encoding: Encoding of the text; if it does not keep ASCII, the stream decodes it.
      size: Number of bytes before the first record.
      parser: Parser of the records.
      borders: Rule by which records end.
      columns: Names of the columns of CSV or TSV, in order.
    """

    encoding: Encoding
    size: int
    parser: Parser
    borders: Borders
    columns: tuple[str, ...] = ()

    @property
    def can_be_cut(self) -> bool:
        """Whether the text can be read from any byte on, because each line feed ends a record."""
        return self.encoding.keeps_ascii and isinstance(self.borders, LineBorders)


def begin(stream: TextStream, file: InputFile, kind: str, options: ReadOptions) -> Beginning:
    """Determines from its beginning how a text is read, and leaves the stream there.

    Args:
      stream: The text, at its beginning.
      file: The text's file.
      kind: Format of the text, not Parquet.
      options: How the input is read.

    Raises:
      InputError: The header of CSV, TSV or sequences is malformed, or lacks a field.
    """
    # If the first bytes are a user's record, they must not decide how other records are read.
    has_head = kind == "json" or (kind in ("csv", "tsv") and not options.columns)
    encoding = stream.start_decoding(options.encoding, marks=has_head)
    head = stream.peek(HEAD_BYTES)
    mark = len(BYTE_ORDER_MARK) if head.startswith(BYTE_ORDER_MARK) else 0
    head = head[mark:]
    if kind in ("json", "jsonl"):
        size = array_start(head) if kind == "json" else 0
        if encoding.is_recoded and options.encoding is None and not size:
            raise InputError(
                f"{file.path} begins with a byte order mark and holds no JSON array. If its text has "
                "that encoding, name the encoding with --encoding."
            )
        if size:
            return Beginning(encoding, mark + size, JsonArrayParser(options), ArrayBorders())
        return Beginning(encoding, mark, JsonlParser(options), LineBorders())
    if kind == "sequences":
        size = mark + header_bytes(head)
        return Beginning(encoding, size, SequencesParser(file.number), LineBorders())
    dialect = dialect_of(kind, options)
    names, size = list(options.columns or ()), 0
    if not names:
        names, size = header(file.path, head, dialect, encoding)
        if options.quoting == "auto" and not dialect.quoted:
            _require_unquoted_names(file.path, names)
        _require_fields(file.path, names, options)
    parser = DelimitedParser(names, dialect, options)
    return Beginning(encoding, mark + size, parser, dialect.borders(), tuple(names))


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
        _require_keys(file.path, keys, options)
        return {key for found in keys for key in found}
    if kind == "tsv" and options.quoting == "auto":
        _require_unquoted_texts(file.path, _lines(head), beginning, options)
    return set(beginning.columns)


def _elements(head: bytes, beginning: Beginning) -> list[bytes]:
    """Returns the whole records in the first bytes after the beginning, without blanks around them."""
    if not isinstance(beginning.borders, ArrayBorders):
        return [line.strip(BLANKS) for line in _lines(head)]
    ends = beginning.borders.ends(head).tolist()
    return [head[i:j].strip(BLANKS + b",]") for i, j in itertools.pairwise([0, *ends])]


def _lines(head: bytes) -> list[bytes]:
    """Returns the whole lines in the first bytes, with the last line of a text that ends in them."""
    lines = head.split(b"\n")
    return lines if len(head) < HEAD_BYTES else lines[:-1]


def _require_unquoted_texts(
    path: str, lines: Sequence[bytes], beginning: Beginning, options: ReadOptions
) -> None:
    """Raises InputError if most first records have their texts in quotes though quoting is off."""
    sign = options.delimiter_character or "\t"
    indices = [beginning.columns.index(name) for name in options.text_fields]
    rows = [line.decode("utf-8", "replace").rstrip("\r").split(sign) for line in lines]
    rows = [row for row in rows if len(row) == len(beginning.columns)]
    quoted = sum(all(_is_quoted(row[index]) for index in indices) for row in rows)
    if 2 * quoted > len(rows):
        raise _unknown_quoting(path, "most of whose first records have texts in quotes")


def _keys(line: bytes) -> list[str] | None:
    """Returns the keys of a JSON object, or None if the line is not one."""
    try:
        return list(_KEYS.decode(line))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _require_fields(path: str, names: Sequence[str], options: ReadOptions) -> None:
    """Raises InputError unless a header line has each wanted field exactly once."""
    for option, field in options.wanted_fields:
        if names.count(field) > 1:
            raise InputError(
                f"{option} must name one field of {path}, got {option}={field!r}, which its "
                "header line holds more than once. Rename the fields or name them with --columns."
            )
        if field not in names:
            known = (_known(names) if _is_header(names, options) else None) or (
                f"Its first line has {len(names)} column{'s' * (len(names) != 1)}, and it is not "
                "shown, since without a header line it would be data. "
                f"{_other_delimiter(names)}If the file has a header line, name its fields with "
                "--user_field and --text_field. If it has none, name the columns with --columns."
            )
            raise InputError(
                f"{option} must name a field of {path}, got {option}={field!r}. {known}"
            )


def _require_unquoted_names(path: str, names: Sequence[str]) -> None:
    """Raises InputError if all names of a header line are in quotes though quoting is off."""
    if names and all(_is_quoted(name) for name in names):
        raise _unknown_quoting(path, "whose header line has each field in quotes")


def _unknown_quoting(path: str, observation: str) -> InputError:
    return InputError(
        f"quoting must be given for {path}, {observation}. Give --quoting quoted if quotes only "
        "enclose the fields, or --quoting none if they are part of the fields."
    )


def _is_quoted(value: str) -> bool:
    """Returns whether a field begins and ends with a quote."""
    return len(value) > 1 and value[0] == value[-1] == '"'


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
            known = (_known(common) if shown else None) or (
                "Its fields are not shown, since they may be data."
            )
            raise InputError(
                f"{option} must name a field of {path}, got {option}={','.join(fields)!r}, which its "
                f"first records lack. {known}"
            )


def _other_delimiter(names: Sequence[str]) -> str:
    """Returns advice if the first line has one column that contains another delimiter, or else ""."""
    if len(names) != 1:
        return ""
    signs = {"semicolon": ";", "tab": "\t", "pipe": "|", "comma": ","}
    found = [name for name, sign in signs.items() if sign in names[0]]
    if not found:
        return ""
    return f"If fields are separated by another sign, try --delimiter {found[0]} first. "


def _is_header(names: Sequence[str], options: ReadOptions) -> bool:
    """Returns whether names cannot be data: one of them is wanted, or the operator chose the wanted."""
    wanted = {options.user_field, *options.text_fields}
    return bool(wanted & set(names)) or wanted != {"user", "text"}


def _known(names: Sequence[str]) -> str | None:
    """Returns a sentence that names the fields of a file, or None if one of them may be data."""
    if not names or not all(_IDENTIFIER.fullmatch(name) for name in names):
        return None
    more = ", …" if len(names) > _SHOWN else ""
    return f"It has the fields {', '.join(names[:_SHOWN])}{more}."
