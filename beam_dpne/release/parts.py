"""The parts of a release: files with its rows, as JSON lines, tabs or Parquet."""

import dataclasses
import functools
import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from beam_dpne.elements.rows import (
    COUNTED_ITEM_SCHEMA,
    COUNTED_ROW_SCHEMA,
    ITEM_SCHEMA,
    PROBABILITY_SCHEMA,
    ROW_SCHEMA,
    Rows,
    escape_item,
    pieces,
    unescape_item,
)
from beam_dpne.release.schema import PART_PATTERN

PART_NAME = re.compile(PART_PATTERN)
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
    """The form of the parts of one program's releases.

    Attributes:
      stem: Beginning of the names of the parts.
      noun: Name of the released rows, in the plural.
      schema: Columns of the rows: numbers, and one column of text.
      counted: Columns of the rows of releases with numbers of users, or None if there are none.
      to_line: Function that writes a text without tabs and line ends, for tsv.
      from_line: Inverse of `to_line`.
    """

    stem: str
    noun: str
    schema: pa.Schema
    to_line: Callable[[str], str] = _same
    from_line: Callable[[str], str] = _same
    counted: pa.Schema | None = None

    def schema_of(self, columns: Collection[str]) -> pa.Schema:
        """Returns the columns of a release, from the names of those that its ledger explains."""
        return self.counted if self.counted is not None and "users" in columns else self.schema

    @property
    def text(self) -> str:
        """Name of the column of text."""
        return next(field.name for field in self.schema if field.type == pa.string())

    def lines(self, rows: pa.Table, name: str) -> list[str]:
        """Returns a column's values as they are written in tsv."""
        write = self.to_line if name == self.text else repr
        return [write(value) for value in rows.column(name).to_pylist()]


PROGRAMS = {
    # The text of an n-gram is one line in every format, see `join_tokens`.
    "ngrams": Program(
        stem="ngrams",
        noun="n-grams",
        schema=ROW_SCHEMA,
        counted=COUNTED_ROW_SCHEMA,
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
