"""The files of a release on disk: their names, their contents, and how they are found and read back.

A release is a directory with parts, which hold the rows, and `ledger.json`, which lists the parts.
`publishing` writes these files and `reading` reads them; this module has the form of a part, and checks
ledgers.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from apache_beam.io.filesystems import FileSystems

from beam_dpne.documents.text import escape_item, unescape_item
from beam_dpne.elements.rows import (
    COUNTED_ITEM_SCHEMA,
    COUNTED_ROW_SCHEMA,
    ITEM_SCHEMA,
    PROBABILITY_SCHEMA,
    ROW_SCHEMA,
    Rows,
    pieces,
)
from beam_dpne.errors import ReleaseError
from beam_dpne.storage.access import directory_at
from beam_dpne.storage.directories import reason

SCHEMA = "beam_dpne/ledger/2"
# Schema 1 lacks the sections groups, input and notes.
READABLE_SCHEMAS = ("beam_dpne/ledger/1", SCHEMA)
SCHEMA_FAMILY = "beam_dpne/ledger/"
LEDGER_NAME = "ledger.json"
# Only earlier versions wrote parts named probabilities_without_privacy; --overwrite removes them.
PART_NAME = re.compile(
    r"(ngrams|items|probabilities|probabilities_without_privacy)"
    r"-[0-9a-f]{16}-\d{5,}-of-\d{5,}\.(jsonl|tsv|parquet)"
)
OUTPUT_FORMATS = ("jsonl", "tsv", "parquet")
_WRITERS = {"jsonl": "jsonl/1", "tsv": "tsv/1", "parquet": f"parquet/1/{pa.__version__}"}
_PYTHON = {pa.int32(): int, pa.int64(): int, pa.string(): str, pa.float64(): float}


class Part(NamedTuple):
    """One file of a release with some of its rows.

    Attributes:
      name: File name in the release's directory.
      rows: Number of n-grams or items in the file.
      sha256: SHA-256 of the file's bytes, hexadecimal.
      bytes: Size of the file.
    """

    name: str
    rows: int
    sha256: str
    bytes: int


def _same(text: str) -> str:
    return text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """The form of one program's releases: their parts, and the ledger's section with released rows.

    Attributes:
      stem: Beginning of the names of the parts.
      noun: Name of the released rows, in the plural.
      schema: Columns of the rows: numbers, and one column of text.
      counted: Columns of the rows of releases with numbers of users, or None if there are none.
      section: Name of the ledger's section with the numbers of released rows.
      counts: Names of the whole numbers that this section, or each entry of it, must have.
      to_line: Function that writes a text without tabs and line ends, for tsv.
      from_line: Inverse of `to_line`.
    """

    stem: str
    noun: str
    schema: pa.Schema
    section: str = "mechanism"
    counts: tuple[str, ...] = ("released",)
    to_line: Callable[[str], str] = _same
    from_line: Callable[[str], str] = _same
    counted: pa.Schema | None = None

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        """Columns that the rows may have."""
        return (self.schema,) if self.counted is None else (self.schema, self.counted)

    def schema_of(self, columns: Collection[str]) -> pa.Schema:
        """Returns the columns of a release, from the names of those that its ledger explains."""
        return self.counted if self.counted is not None and "users" in columns else self.schema

    @property
    def sections(self) -> dict[str, type]:
        """Names and types of the sections that only this program's ledgers must have."""
        return {f"{self.section}_columns": dict, self.section: _SECTION_TYPES[self.section]}

    def released(self, sections: Mapping[str, Any]) -> int | None:
        """Returns the number of rows that a ledger's sections state, or None if they are damaged."""
        section = sections[self.section]
        entries = section if isinstance(section, list) else [section]
        if not all(isinstance(entry, dict) for entry in entries):
            return None
        if not all(_is_count(entry.get(name)) for entry in entries for name in self.counts):
            return None
        return sum(entry["released"] for entry in entries)

    @property
    def text(self) -> str:
        """Name of the column of text."""
        return next(field.name for field in self.schema if field.type == pa.string())

    def lines(self, rows: pa.Table, name: str) -> list[str]:
        """Returns a column's values as they are written in tsv."""
        write = self.to_line if name == self.text else repr
        return [write(value) for value in rows.column(name).to_pylist()]


_SECTION_TYPES: dict[str, type] = {"lengths": list, "mechanism": dict}
PROGRAMS = {
    # The text of an n-gram is one line in every format, see `join_tokens`.
    "ngrams": Program(
        stem="ngrams",
        noun="n-grams",
        schema=ROW_SCHEMA,
        counted=COUNTED_ROW_SCHEMA,
        section="lengths",
        counts=("length", "released"),
    ),
    "set-union": Program(
        stem="items",
        noun="items",
        schema=ITEM_SCHEMA,
        counted=COUNTED_ITEM_SCHEMA,
        to_line=escape_item,
        from_line=unescape_item,
    ),
    "bayesian": Program(
        stem="probabilities", noun="n-gram probabilities", schema=PROBABILITY_SCHEMA
    ),
}
_BY_STEM = {program.stem: program for program in PROGRAMS.values()}


def render_parts(
    program: Program, rows: Rows, output_format: str, rows_per_part: int
) -> Iterator[tuple[Part, bytes]]:
    """Yields the parts one after the other; a release without rows has one part without rows."""
    digest = _content_hash(program, rows, output_format, rows_per_part)
    count = max(1, -(-len(rows) // rows_per_part))
    for number in range(count):
        start = number * rows_per_part
        size = min(rows_per_part, len(rows) - start)
        data = _WRITE[output_format](program, rows.schema, pieces(rows, start, size))
        name = f"{program.stem}-{digest}-{number:05}-of-{count:05}.{output_format}"
        yield Part(name, size, hashlib.sha256(data).hexdigest(), len(data)), data


def parse_part(part: Part, data: bytes, columns: Collection[str]) -> pa.Table:
    """Returns the rows of one part; its name determines the program and the format.

    Args:
      part: The part.
      data: Its bytes.
      columns: Names of the columns that the ledger explains.
    """
    program = _BY_STEM[part.name.partition("-")[0]]
    return _PARSE[part.name.rpartition(".")[2]](program, data, program.schema_of(columns))


def rows_section(program: Program, rows: Rows) -> dict[str, Any]:
    """Returns the number of rows of a release and their digest, for a ledger without files.

    The digest is the SHA-256 of the rows in the order of the release as jsonl: of the files of a
    release in that format, one after the other.

    Args:
      program: Program of the release.
      rows: All rows, in order (see `in_order`).
    """
    digest = hashlib.sha256()
    for piece in pieces(rows):
        digest.update(_write_jsonl(program, rows.schema, [piece]))
    return {"count": len(rows), "sha256": digest.hexdigest()}


def _content_hash(program: Program, rows: Rows, output_format: str, rows_per_part: int) -> str:
    """Returns sixteen digits that depend on the rows, the cut into parts and the writer's version.

    Files of equal names therefore have equal bytes.
    """
    cut = min(rows_per_part, len(rows))
    digest = hashlib.sha256(f"{_WRITERS[output_format]} {len(rows)} {cut}\n".encode())
    for name in rows.schema.names:
        if name != program.text:
            for piece in pieces(rows.select([name])):
                digest.update(piece.column(name).to_numpy())
    for piece in pieces(rows.select([program.text])):
        lines = program.lines(piece, program.text)
        digest.update("".join(f"{line}\n" for line in lines).encode())
    return digest.hexdigest()[:16]


@functools.cache
def _row_type(schema: pa.Schema) -> type[Any]:
    """Returns the type of a row in jsonl."""
    fields = [(field.name, _PYTHON[field.type]) for field in schema]
    return msgspec.defstruct("Row", fields, gc=False)


def _write_jsonl(_: Program, schema: pa.Schema, rows: Iterable[pa.Table]) -> bytes:
    encoder, row_type = msgspec.json.Encoder(), _row_type(schema)
    columns = ([column.to_pylist() for column in piece.columns] for piece in rows)
    # A list, since msgspec 0.22 never frees the rows that it takes from another iterable.
    return b"".join(encoder.encode_lines(list(map(row_type, *each))) for each in columns)


def _write_tsv(program: Program, schema: pa.Schema, rows: Iterable[pa.Table]) -> bytes:
    written = ["\t".join(schema.names) + "\n"]
    for piece in rows:
        columns = [program.lines(piece, name) for name in schema.names]
        written.append("".join("\t".join(line) + "\n" for line in zip(*columns, strict=True)))
    return "".join(written).encode()


def _write_parquet(_: Program, schema: pa.Schema, rows: Iterable[pa.Table]) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.concat_tables([schema.empty_table(), *rows]).combine_chunks()
    pyarrow.parquet.write_table(table, sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def _parse_jsonl(_: Program, data: bytes, schema: pa.Schema) -> pa.Table:
    rows = msgspec.json.Decoder(_row_type(schema)).decode_lines(data)
    columns = [[getattr(row, name) for row in rows] for name in schema.names]
    return pa.table(columns, schema=schema)


def _parse_tsv(program: Program, data: bytes, schema: pa.Schema) -> pa.Table:
    rows = pyarrow.csv.read_csv(
        pa.BufferReader(data),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter="\t", quote_char=False, escape_char=False, newlines_in_values=False
        ),
        convert_options=pyarrow.csv.ConvertOptions(column_types=schema),
    )
    column = rows.schema.get_field_index(program.text)
    texts = [program.from_line(line) for line in rows.column(column).to_pylist()]
    return rows.set_column(column, schema.field(column), pa.array(texts, pa.string()))


def _parse_parquet(_: Program, data: bytes, schema: pa.Schema) -> pa.Table:
    return pyarrow.parquet.read_table(pa.BufferReader(data)).cast(schema)


_WRITE = {"jsonl": _write_jsonl, "tsv": _write_tsv, "parquet": _write_parquet}
_PARSE = {"jsonl": _parse_jsonl, "tsv": _parse_tsv, "parquet": _parse_parquet}


@contextlib.contextmanager
def as_release_error(failure: str) -> Iterator[None]:
    """Replaces other errors by a ReleaseError of one sentence, without messages of libraries."""
    try:
        yield
    except ReleaseError:
        raise
    except Exception as error:
        raise ReleaseError(f"{failure}: {reason(error)}.") from None


def read_ledger(path: str) -> dict[str, Any]:
    """Reads the ledger of a release.

    Args:
      path: Path of the release's directory, or of its `ledger.json`; local or on any Beam file system.

    Returns:
      The ledger as JSON types, in the order in which `whole_ledger` wrote its sections.

    Raises:
      ReleaseError: There is no ledger, or it is not a whole ledger of a readable schema.
    """
    return parse_ledger(read_ledger_bytes(path), ledger_path(path))


def read_ledger_bytes(path: str) -> bytes:
    """Reads the bytes of a release's ledger; see `read_ledger`.

    Raises:
      ReleaseError: There is no ledger, or it cannot be read.
    """
    file = ledger_path(path)
    with as_release_error(f"{file} cannot be read"):
        data = directory_at(release_folder(path)).read(LEDGER_NAME)
    if data is None:
        raise ReleaseError(
            f"{file} does not exist: there is no release, or its publication was not completed."
        )
    return data


def parse_ledger(data: bytes, path: str, *, section: str = "parts") -> dict[str, Any]:
    """Checks and returns a ledger's JSON.

    Args:
      data: The ledger.
      path: Its path, or another name for it in the messages of errors.
      section: Its last section: "parts" in a release, "rows" before its files are written.

    Raises:
      ReleaseError: It is not a whole ledger of a readable schema.
    """
    ledger = _json_object(data)
    if ledger is None or not is_ledger(data):
        raise ReleaseError(f"{path} is not a ledger of beam_dpne.")
    if ledger["schema"] not in READABLE_SCHEMAS:
        raise ReleaseError(
            f"{path} has schema {ledger['schema']!r}; this version reads "
            f"{' and '.join(READABLE_SCHEMAS)}. Install a newer version of beam-dpne to read it."
        )
    program = PROGRAMS.get(str(ledger.get("program")))
    if program is None:
        raise ReleaseError(
            f"{path} is damaged: 'program' is missing or not one of {', '.join(PROGRAMS)}."
        )
    common = _SECTIONS | (_SECTIONS_SINCE_2 if ledger["schema"] == SCHEMA else {})
    for name, kind in (common | program.sections | _ROWS_SECTIONS[section]).items():
        if not isinstance(ledger.get(name), kind):
            raise ReleaseError(f"{path} is damaged: {name!r} is missing or not a {kind.__name__}.")
    if not is_guarantee(ledger["guarantee"]):
        raise ReleaseError(
            f"{path} is damaged, or its release has no guarantee: 'guarantee' must state epsilon above "
            "0 and delta in (0, 1) as numbers."
        )
    pieces = ledger["parts"] if section == "parts" else []
    if section == "parts" and not (pieces and all(_is_part(part, program.stem) for part in pieces)):
        raise ReleaseError(f"{path} is damaged: 'parts' must list the files of the release.")
    released = program.released(ledger)
    if released is None:
        raise ReleaseError(
            f"{path} is damaged: {program.section!r} must state the number of released "
            f"{program.noun}."
        )
    stated = sum(part["rows"] for part in pieces) if pieces else ledger["rows"].get("count")
    if released != stated:
        raise ReleaseError(
            f"{path} is damaged: {section!r} does not state as many rows as were released."
        )
    return ledger


_SECTIONS: dict[str, type] = {
    "what": str,
    "program": str,
    "guarantee": dict,
    "not_protected": list,
    "plan": dict,
    "spent": dict,
    "run_key": dict,
    "tokenizer": str,
    "columns": dict,
    "versions": dict,
}
_ROWS_SECTIONS: dict[str, dict[str, type]] = {"parts": {"parts": list}, "rows": {"rows": dict}}
_SECTIONS_SINCE_2: dict[str, type] = {"notes": dict, "groups": dict, "input": dict}


def is_ledger(data: bytes) -> bool:
    """Returns whether this is a ledger of this package, of any schema version."""
    schema = (_json_object(data) or {}).get("schema")
    return isinstance(schema, str) and schema.startswith(SCHEMA_FAMILY)


def listed_parts(data: bytes | None) -> frozenset[str]:
    """Returns the names of the parts that a ledger lists; none if there is no ledger."""
    parts = (_json_object(data or b"") or {}).get("parts")
    return frozenset(part["name"] for part in parts or () if _is_part(part, ""))


def _json_object(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def is_guarantee(guarantee: Mapping[str, Any]) -> bool:
    """Returns whether a guarantee states its budget in numbers; JSON of Python may also hold NaN."""
    budget = [guarantee.get(name) for name in ("epsilon", "delta")]
    return all(
        isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < upper
        for value, upper in zip(budget, (sys.float_info.max, 1), strict=True)
    )


def _is_part(part: object, stem: str) -> bool:
    """Returns whether the description of a part is complete, with nothing besides.

    The pattern is also a guard, because another name could lead out of the release's directory.
    """
    return (
        isinstance(part, dict)
        and set(part) == set(Part._fields)
        and all(_is_count(part.get(name)) for name in ("rows", "bytes"))
        and bool(re.fullmatch(r"[0-9a-f]{64}", str(part.get("sha256"))))
        and bool(PART_NAME.fullmatch(str(part.get("name"))))
        and str(part.get("name")).startswith(stem)
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def ledger_path(path: str) -> str:
    """Returns the path of a release's ledger, given that path or the release's directory."""
    last = re.split(r"[/\\]", path)[-1]
    return path if last == LEDGER_NAME else FileSystems.join(path, LEDGER_NAME)


def release_folder(path: str) -> str:
    """Returns the path of a release's directory, given that path or the release's ledger."""
    return ledger_path(path)[: -len(LEDGER_NAME)] or os.curdir


def is_local(path: str) -> bool:
    """Returns whether a path is on this machine, instead of on another Beam file system."""
    return FileSystems.get_scheme(path) is None


def absolute(path: str) -> str:
    """Returns a path that means the same in the working directory of another process."""
    return os.path.abspath(path) if is_local(path) else path


def real_path(path: str) -> str:
    """Returns a path without symbolic links and without slashes at its end."""
    return (os.path.realpath(path) if is_local(path) else path).rstrip("/")


def is_inside(path: str, folder: str) -> bool:
    """Returns whether a path is a directory, or somewhere in it."""
    return f"{real_path(path)}/".startswith(f"{real_path(folder)}/")


def has_ledger(folder: str) -> bool:
    """Returns whether a directory holds the ledger of a release; a broken link counts as one."""
    ledger = f"{folder}/{LEDGER_NAME}"
    return os.path.lexists(ledger) if is_local(folder) else FileSystems.exists(ledger)


def release_around(path: str) -> str | None:
    """Returns the directory of the release that a path is in, or None; links are followed.

    The path itself may be that directory; "" stands for the root.
    """
    return next(filter(has_ledger, _upwards(real_path(path))), None)


def _upwards(path: str) -> Iterator[str]:
    """Yields a path and all directories above it, the last of which is "" or a bucket's address.

    >>> list(_upwards("/a/b")), list(_upwards("gs://a/b"))
    (['/a/b', '/a', ''], ['gs://a/b', 'gs://a'])
    """
    scheme, separator, rest = path.rpartition("://")
    while rest:
        yield scheme + separator + rest.rstrip("/")
        rest = rest.rstrip("/").rpartition("/")[0]
    if not separator:
        yield ""
