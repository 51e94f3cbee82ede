"""The files of a release: rows cut into parts, written and read in each format."""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from beam_dpne.elements.rows import ITEM_SCHEMA, PROBABILITY_SCHEMA, ROW_SCHEMA, UNPROTECTED_SCHEMA
from beam_dpne.ngrams.decoding import escape_item, unescape_item
from beam_dpne.release.ledger import PROGRAMS, Part

OUTPUT_FORMATS = ("jsonl", "tsv", "parquet")
_HASHED_AT_ONCE = 1 << 20
_WRITERS = {"jsonl": "jsonl/1", "tsv": "tsv/1", "parquet": f"parquet/1/{pa.__version__}"}
_PYTHON = {pa.int32(): int, pa.string(): str, pa.float64(): float}


def _same(text: str) -> str:
    return text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """What the files of one kind of release look like.

    Attributes:
      stem: with which their names begin.
      schema: of the rows: numbers, one column of text, and further ones of plain words.
      text: name of that column.
      to_line: writes a text without tabs and line ends, for tsv.
      from_line: its inverse.
    """

    stem: str
    schema: pa.Schema
    text: str
    to_line: Callable[[str], str] = _same
    from_line: Callable[[str], str] = _same

    @functools.cached_property
    def row_type(self) -> type[Any]:
        """An object of jsonl."""
        fields = [(field.name, _PYTHON[field.type]) for field in self.schema]
        return msgspec.defstruct("Row", fields, gc=False)

    def lines(self, rows: pa.Table, name: str) -> list[str]:
        """Returns a column's values as tsv has them."""
        write = self.to_line if name == self.text else _same if name in self.words else repr
        return [write(value) for value in rows.column(name).to_pylist()]

    @property
    def words(self) -> list[str]:
        """Names of all columns that are not numbers."""
        return [field.name for field in self.schema if field.type == pa.string()]


# The text of an n-gram is one line in every format, see `join_tokens`.
NGRAM_FILES = Layout(stem=PROGRAMS["ngrams"].stem, schema=ROW_SCHEMA, text="ngram")
ITEM_FILES = Layout(
    stem=PROGRAMS["set-union"].stem,
    schema=ITEM_SCHEMA,
    text="item",
    to_line=escape_item,
    from_line=unescape_item,
)
PROBABILITY_FILES = Layout(stem=PROGRAMS["bayesian"].stem, schema=PROBABILITY_SCHEMA, text="ngram")
UNPROTECTED_FILES = Layout(
    stem="probabilities_without_privacy", schema=UNPROTECTED_SCHEMA, text="ngram"
)
_LAYOUTS = {
    layout.stem: layout
    for layout in (NGRAM_FILES, ITEM_FILES, PROBABILITY_FILES, UNPROTECTED_FILES)
}


def render_parts(
    layout: Layout, rows: pa.Table, output_format: str, rows_per_part: int
) -> Iterator[tuple[Part, bytes]]:
    """Yields the files one after the other; a release without rows has one without rows."""
    digest = _content_hash(layout, rows, output_format, rows_per_part)
    count = max(1, -(-len(rows) // rows_per_part))
    for place in range(count):
        piece = rows.slice(place * rows_per_part, rows_per_part)
        data = _WRITE[output_format](layout, piece)
        name = f"{layout.stem}-{digest}-{place:05}-of-{count:05}.{output_format}"
        yield Part(name, len(piece), hashlib.sha256(data).hexdigest(), len(data)), data


def parse_part(name: str, data: bytes) -> pa.Table:
    """Returns the rows of one part, by the kind of release and the format that its name tells."""
    return _PARSE[name.rpartition(".")[2]](_LAYOUTS[name.partition("-")[0]], data)


def _content_hash(layout: Layout, rows: pa.Table, output_format: str, rows_per_part: int) -> str:
    """Sixteen digits, of cut and writer's version too, so that equal names mean equal bytes."""
    cut = min(rows_per_part, len(rows))
    digest = hashlib.sha256(f"{_WRITERS[output_format]} {len(rows)} {cut}\n".encode())
    for name in layout.schema.names:
        if name not in layout.words:
            digest.update(rows.column(name).to_numpy())
    for name in layout.words:
        for start in range(0, len(rows), _HASHED_AT_ONCE):
            lines = layout.lines(rows.slice(start, _HASHED_AT_ONCE), name)
            digest.update("".join(f"{line}\n" for line in lines).encode())
    return digest.hexdigest()[:16]


def _write_jsonl(layout: Layout, rows: pa.Table) -> bytes:
    columns = (column.to_pylist() for column in rows.columns)
    return msgspec.json.Encoder().encode_lines(map(layout.row_type, *columns))


def _write_tsv(layout: Layout, rows: pa.Table) -> bytes:
    columns = [layout.lines(rows, name) for name in layout.schema.names]
    lines = [layout.schema.names, *zip(*columns, strict=True)]
    return "".join("\t".join(line) + "\n" for line in lines).encode()


def _write_parquet(_: Layout, rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(rows.combine_chunks(), sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def _parse_jsonl(layout: Layout, data: bytes) -> pa.Table:
    rows = msgspec.json.Decoder(layout.row_type).decode_lines(data)
    columns = [[getattr(row, name) for row in rows] for name in layout.schema.names]
    return pa.table(columns, schema=layout.schema)


def _parse_tsv(layout: Layout, data: bytes) -> pa.Table:
    rows = pyarrow.csv.read_csv(
        pa.BufferReader(data),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter="\t", quote_char=False, escape_char=False, newlines_in_values=False
        ),
        convert_options=pyarrow.csv.ConvertOptions(column_types=layout.schema),
    )
    place = rows.schema.get_field_index(layout.text)
    texts = [layout.from_line(line) for line in rows.column(place).to_pylist()]
    return rows.set_column(place, layout.schema.field(place), pa.array(texts, pa.string()))


def _parse_parquet(layout: Layout, data: bytes) -> pa.Table:
    return pyarrow.parquet.read_table(pa.BufferReader(data)).cast(layout.schema)


_WRITE = {"jsonl": _write_jsonl, "tsv": _write_tsv, "parquet": _write_parquet}
_PARSE = {"jsonl": _parse_jsonl, "tsv": _parse_tsv, "parquet": _parse_parquet}
