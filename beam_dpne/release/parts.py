"""The parts of a release: files with its rows, as JSON lines, CSV, tabs or Parquet."""

import codecs
import csv
import hashlib
import io
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from beam_dpne.elements.rows import (
    COUNTED_ITEM_SCHEMA,
    COUNTED_ROW_SCHEMA,
    GROUP_FIELD,
    GROUPED_PHRASE_SCHEMA,
    ITEM_SCHEMA,
    PHRASE_SCHEMA,
    PROBABILITY_SCHEMA,
    ROW_SCHEMA,
    Rows,
    escape_item,
    from_cell,
    pieces,
    to_cell,
    unguard,
)
from beam_dpne.release.schema import PART_PATTERN, AnyLedger, Part
from beam_dpne.release.schema import Rows as RowsSection

PART_NAME = re.compile(PART_PATTERN)
OUTPUT_FORMATS = ("jsonl", "csv", "tsv", "parquet")
_COLUMNS = pa.unify_schemas(
    [COUNTED_ROW_SCHEMA, COUNTED_ITEM_SCHEMA, PROBABILITY_SCHEMA, pa.schema([GROUP_FIELD])]
)
_TEXTS = pa.schema([(name, pa.string()) for name in ("ngram", "item", "group")])
# The columns of all releases, in the order of their files.
_PLAIN = (
    ROW_SCHEMA,
    COUNTED_ROW_SCHEMA,
    ITEM_SCHEMA,
    COUNTED_ITEM_SCHEMA,
    PROBABILITY_SCHEMA,
    PHRASE_SCHEMA,
    GROUPED_PHRASE_SCHEMA,
)
_GROUPED = [each.insert(1, GROUP_FIELD) for each in (ROW_SCHEMA, COUNTED_ROW_SCHEMA)]
_HEADS = {tuple(each.names) for each in (*_PLAIN, *_GROUPED)}
# Since version 2, what ends a line for some readers is escaped in jsonl and tsv.
_WRITERS = {
    "jsonl": "jsonl/2",
    "csv": "csv/1",
    "tsv": "tsv/2",
    "parquet": f"parquet/1/{pa.__version__}",
}
# Since version 3, groups are escaped, too.
_GROUPED_TSV = "tsv/3"
# What ends a line for `str.splitlines` and in JavaScript, though not in JSON, and how JSON escapes it.
_JSON_ENDS = tuple((end.encode(), f"\\u{ord(end):04x}".encode()) for end in "\x85\u2028\u2029")


class Program(NamedTuple):
    """The form of the parts of one program's releases.

    Attributes:
      stem: Beginning of the names of the parts.
      noun: Name of the released rows, in the plural.
      text: Name of the column of text. N-grams have no tab and no line feed in any format, see
        `join_tokens`, and neither have their groups; items may have them.
    """

    stem: str
    noun: str
    text: str


PROGRAMS = {
    "ngrams": Program(stem="ngrams", noun="n-grams", text="ngram"),
    "set-union": Program(stem="items", noun="items", text="item"),
    "bayesian": Program(stem="probabilities", noun="n-gram probabilities", text="ngram"),
    "count": Program(stem="counts", noun="phrases", text="ngram"),
}


def columns_of(names: Iterable[str]) -> pa.Schema:
    """Returns the columns of a release, from the names of those that its ledger explains."""
    return pa.schema([_COLUMNS.field(name) for name in names if name in _COLUMNS.names])


def program_of(ledger: AnyLedger) -> Program:
    """Returns the form of the parts of a ledger's release."""
    return PROGRAMS[str(type(ledger).__struct_config__.tag)]


def render_parts(
    program: Program, rows: Rows, output_format: str, rows_per_part: int
) -> Iterator[tuple[Part, bytes]]:
    """Yields the parts one after the other; a release without rows has one part without rows."""
    digest = _content_hash(rows, output_format, rows_per_part)
    count = max(1, -(-len(rows) // rows_per_part))
    for number in range(count):
        start = number * rows_per_part
        size = min(rows_per_part, len(rows) - start)
        data = _WRITE[output_format](rows.schema, pieces(rows, start, size))
        name = f"{program.stem}-{digest}-{number:05}-of-{count:05}.{output_format}"
        sha256 = hashlib.sha256(data).hexdigest()
        yield Part(name=name, rows=size, sha256=sha256, bytes=len(data)), data


def parse_part(name: str, data: bytes, columns: Iterable[str]) -> pa.Table:
    """Returns the rows of one part.

    Args:
      name: Name of the part, which ends in its format.
      data: Its bytes.
      columns: Names of the columns that the ledger explains.
    """
    return _PARSE[name.rpartition(".")[2]](data, columns_of(columns))


def rows_section(rows: Rows) -> RowsSection:
    """Returns the number of rows of a release and their digest, for a ledger without files.

    The digest is the SHA-256 of the rows in the order of the release as jsonl: of the files of a
    release in that format, one after the other.

    Args:
      rows: All rows, in order (see `in_order`).
    """
    digest = hashlib.sha256()
    for piece in pieces(rows):
        digest.update(_write_jsonl(rows.schema, [piece]))
    return RowsSection(count=len(rows), sha256=digest.hexdigest())


def content_sha256(rows: Rows) -> str:
    """Returns the SHA-256 of all rows, which is the same in each format and each division into parts.

    Args:
      rows: All rows, in order.
    """
    return _rows_hash(rows, f"{len(rows)} {' '.join(rows.schema.names)}")


def _content_hash(rows: Rows, output_format: str, rows_per_part: int) -> str:
    """Returns sixteen digits that depend on the rows, the cut into parts and the writer's version.

    Files of equal names therefore have equal bytes.
    """
    cut = min(rows_per_part, len(rows))
    writer = _WRITERS[output_format]
    if output_format == "tsv" and GROUP_FIELD.name in rows.schema.names:
        writer = _GROUPED_TSV
    return _rows_hash(rows, f"{writer} {len(rows)} {cut}")[:16]


def _rows_hash(rows: Rows, first_line: str) -> str:
    """Returns the SHA-256 of a line and all rows, column by column."""
    digest = hashlib.sha256(f"{first_line}\n".encode())
    texts = [field.name for field in rows.schema if field.type == pa.string()]
    for name in rows.schema.names:
        if name not in texts:
            for piece in pieces(rows.select([name])):
                digest.update(piece.column(name).to_numpy())
    for name in texts:
        for piece in pieces(rows.select([name])):
            lines = _values(piece, name)
            if name == "item":
                lines = [escape_item(line) for line in lines]
            # Also the last line has an end.
            digest.update("\n".join([*lines, ""]).encode())
    return digest.hexdigest()


def _values(rows: pa.Table, name: str) -> list[Any]:
    """Returns the values of a column as Python objects; numpy makes them in a fraction of the time."""
    return rows.column(name).to_numpy().tolist()


def _write_jsonl(schema: pa.Schema, rows: Iterable[pa.Table]) -> bytes:
    encoder = msgspec.json.Encoder()
    # No name of a column has a sign that JSON escapes.
    names = ",".join(f'"{name}":%b' for name in schema.names)
    line = f"{{{names}}}\n".encode()
    written: list[bytes] = []
    for piece in rows:
        # Values as JSON, whose texts have no line feeds. Rows as dicts would be a third slower.
        columns = [encoder.encode_lines(_values(piece, name)).split(b"\n") for name in schema.names]
        cells = zip(*columns, strict=True)
        written += [line % row for row in itertools.islice(cells, len(piece))]
    data = b"".join(written)
    # Outside of its texts, JSON has ASCII characters only.
    for end, escaped in _JSON_ENDS:
        data = data.replace(end, escaped)
    return data


def _write_tsv(schema: pa.Schema, rows: Iterable[pa.Table]) -> bytes:
    written = ["\t".join(schema.names) + "\n"]
    for piece in rows:
        columns = [_cells(piece, name) for name in schema.names]
        written.append("".join("\t".join(line) + "\n" for line in zip(*columns, strict=True)))
    return "".join(written).encode()


def _cells(rows: pa.Table, name: str) -> list[str]:
    values = _values(rows, name)
    if rows.schema.field(name).type != pa.string():
        return list(map(repr, values))
    return [to_cell(name, text) for text in values]


def _write_csv(schema: pa.Schema, rows: Iterable[pa.Table]) -> bytes:
    """Writes all texts in quotes (RFC 4180), so that any of them is read back as it is."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(schema.names)
    for piece in rows:
        writer.writerows(zip(*(_values(piece, name) for name in schema.names), strict=True))
    return stream.getvalue().encode()


def _write_parquet(schema: pa.Schema, rows: Iterable[pa.Table]) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.concat_tables([schema.empty_table(), *rows]).combine_chunks()
    pyarrow.parquet.write_table(table, sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def _parse_jsonl(data: bytes, schema: pa.Schema) -> pa.Table:
    if not data:
        return schema.empty_table()
    whole = pyarrow.json.ReadOptions(block_size=len(data))
    columns = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    return pyarrow.json.read_json(pa.BufferReader(data), whole, columns)


def parse_delimited(data: bytes, kind: str, schema: pa.Schema) -> pa.Table:
    """Returns the cells of a file in csv or tsv, texts as they stand there.

    Args:
      data: The file.
      kind: "csv", in which texts may be quoted, or "tsv", in which quotes are plain signs.
      schema: Types of columns; others are guessed.
    """
    whole = pyarrow.csv.ReadOptions(block_size=max(1, len(data)))
    types = pyarrow.csv.ConvertOptions(column_types=schema)
    quoted = pyarrow.csv.ParseOptions(newlines_in_values=True)
    plain = pyarrow.csv.ParseOptions(delimiter="\t", quote_char=False)
    form = quoted if kind == "csv" else plain
    return pyarrow.csv.read_csv(pa.BufferReader(data), whole, form, types)


def _parse_csv(data: bytes, schema: pa.Schema) -> pa.Table:
    return parse_delimited(data, "csv", schema)


def _parse_tsv(data: bytes, schema: pa.Schema) -> pa.Table:
    return _as_released(parse_delimited(data, "tsv", schema))


def _as_released(rows: pa.Table, *, is_guarded: bool = False) -> pa.Table:
    """Returns rows with the texts of the release, without the escapes of tsv and the guards of csv."""
    for place, field in enumerate(rows.schema):
        if field.type != pa.string():
            continue
        texts = rows.column(place).to_pylist()
        if is_guarded:
            texts = [unguard(text) for text in texts]
        texts = [from_cell(field.name, text) for text in texts]
        rows = rows.set_column(place, field, pa.array(texts, pa.string()))
    return rows


def parse_copied(data: bytes, kind: str) -> pa.Table:
    """Returns the rows of a file in csv or tsv that stands alone: of a release, an export, or others.

    The head tells which. With the columns of a release, and quotes around their names, a csv is a file
    of a release; without quotes it is an export, which is escaped like a tsv, and an apostrophe guards
    texts that a spreadsheet would compute. A tsv with these columns is a file of a release. Texts of
    tables with other columns are taken as they are.

    Args:
      data: The file.
      kind: "csv" or "tsv".

    Raises:
      ValueError: An item or a group has an escape that no release writes.
    """
    rows = parse_delimited(data, kind, _TEXTS)
    is_quoted = data.removeprefix(codecs.BOM_UTF8).startswith(b'"')
    if tuple(rows.column_names) not in _HEADS or (kind == "csv" and is_quoted):
        return rows
    return _as_released(rows, is_guarded=kind == "csv")


def _parse_parquet(data: bytes, schema: pa.Schema) -> pa.Table:
    return pyarrow.parquet.read_table(pa.BufferReader(data)).cast(schema)


_WRITE = {"jsonl": _write_jsonl, "csv": _write_csv, "tsv": _write_tsv, "parquet": _write_parquet}
_PARSE = {"jsonl": _parse_jsonl, "csv": _parse_csv, "tsv": _parse_tsv, "parquet": _parse_parquet}
