"""The files of a release: rows in one order, cut into parts, written and read in each format."""

import hashlib
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from beam_dpne.batches import GramSet
from beam_dpne.decoding import ROW_SCHEMA, decode_sets
from beam_dpne.ledger import Part

OUTPUT_FORMATS = ("jsonl", "tsv", "parquet")
SCORE_DECIMALS = 6
_HASHED_AT_ONCE = 1 << 20
_WRITERS = {"jsonl": "jsonl/1", "tsv": "tsv/1", "parquet": f"parquet/1/{pa.__version__}"}


def release_rows(released: Sequence[GramSet]) -> pa.Table:
    """All rows in the order of a release, scores rounded."""
    rows = pa.Table.from_batches(list(decode_sets(released)), ROW_SCHEMA)
    scores = np.round(rows.column("score").to_numpy(), SCORE_DECIMALS)
    return rows.set_column(2, ROW_SCHEMA.field("score"), pa.array(scores))


def render_parts(
    rows: pa.Table, output_format: str, rows_per_part: int
) -> Iterator[tuple[Part, bytes]]:
    """Yields the files one after the other; a release without rows has one without rows."""
    digest = _content_hash(rows, output_format, rows_per_part)
    count = max(1, -(-len(rows) // rows_per_part))
    for place in range(count):
        piece = rows.slice(place * rows_per_part, rows_per_part)
        data = _WRITE[output_format](piece)
        name = f"ngrams-{digest}-{place:05}-of-{count:05}.{output_format}"
        yield Part(name, len(piece), hashlib.sha256(data).hexdigest(), len(data)), data


def _content_hash(rows: pa.Table, output_format: str, rows_per_part: int) -> str:
    """Sixteen digits, of cut and writer's version too, so that equal names mean equal bytes."""
    cut = min(rows_per_part, len(rows))
    digest = hashlib.sha256(f"{_WRITERS[output_format]} {len(rows)} {cut}\n".encode())
    for name in ("length", "score"):
        digest.update(rows.column(name).to_numpy())
    for start in range(0, len(rows), _HASHED_AT_ONCE):
        ngrams = rows.column("ngram").slice(start, _HASHED_AT_ONCE).to_pylist()
        digest.update("".join(f"{ngram}\n" for ngram in ngrams).encode())
    return digest.hexdigest()[:16]


class _Row(msgspec.Struct, gc=False):
    length: int
    ngram: str
    score: float


def _write_jsonl(rows: pa.Table) -> bytes:
    return msgspec.json.Encoder().encode_lines(
        map(_Row, *(column.to_pylist() for column in rows.columns))
    )


def _write_tsv(rows: pa.Table) -> bytes:
    columns = zip(*(column.to_pylist() for column in rows.columns), strict=True)
    lines = [f"{length}\t{ngram}\t{score!r}\n" for length, ngram, score in columns]
    return "".join(["\t".join(ROW_SCHEMA.names) + "\n", *lines]).encode()


def _write_parquet(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(rows.combine_chunks(), sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def _parse_jsonl(data: bytes) -> pa.Table:
    rows = msgspec.json.Decoder(_Row).decode_lines(data)
    columns = [[getattr(row, name) for row in rows] for name in ROW_SCHEMA.names]
    return pa.table(columns, schema=ROW_SCHEMA)


def _parse_tsv(data: bytes) -> pa.Table:
    return pyarrow.csv.read_csv(
        pa.BufferReader(data),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter="\t", quote_char=False, escape_char=False, newlines_in_values=False
        ),
        convert_options=pyarrow.csv.ConvertOptions(column_types=ROW_SCHEMA),
    )


def _parse_parquet(data: bytes) -> pa.Table:
    return pyarrow.parquet.read_table(pa.BufferReader(data)).cast(ROW_SCHEMA)


_WRITE = {"jsonl": _write_jsonl, "tsv": _write_tsv, "parquet": _write_parquet}
_PARSE = {"jsonl": _parse_jsonl, "tsv": _parse_tsv, "parquet": _parse_parquet}


def parse_part(name: str, data: bytes) -> pa.Table:
    """Returns the rows of one part, by the format that its name ends with."""
    return _PARSE[name.rpartition(".")[2]](data)
