"""The kinds of releases: their rows and ledger, and their files, which are written and read here."""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from beam_dpne.bayesian.counting import NgramProbabilities, probability_table
from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.elements.rows import ITEM_SCHEMA, PROBABILITY_SCHEMA, ROW_SCHEMA
from beam_dpne.ngrams.decoding import escape_item, length_report, ngram_table, unescape_item
from beam_dpne.ngrams.elements import GramSet
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.release.bayesian_ledger import bayesian_ledger
from beam_dpne.release.ledger import PROGRAMS, Part
from beam_dpne.release.ngrams_ledger import ngrams_ledger
from beam_dpne.release.set_union_ledger import set_union_ledger
from beam_dpne.set_union.elements import ItemSet, item_table
from beam_dpne.set_union.plan import SetUnionPlan

OUTPUT_FORMATS = ("jsonl", "tsv", "parquet")
_HASHED_AT_ONCE = 1 << 20
_WRITERS = {"jsonl": "jsonl/1", "tsv": "tsv/1", "parquet": f"parquet/1/{pa.__version__}"}
_PYTHON = {pa.int32(): int, pa.string(): str, pa.float64(): float}


def _same(text: str) -> str:
    return text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """The form of the files of one kind of release.

    Attributes:
      stem: Beginning of the files' names.
      schema: Columns of the rows: numbers, one column of text, and perhaps columns of plain words.
      text: Name of the column of text.
      to_line: Function that writes a text without tabs and line ends, for tsv.
      from_line: Inverse of `to_line`.
    """

    stem: str
    schema: pa.Schema
    text: str
    to_line: Callable[[str], str] = _same
    from_line: Callable[[str], str] = _same

    @functools.cached_property
    def row_type(self) -> type[Any]:
        """Type of a row in jsonl."""
        fields = [(field.name, _PYTHON[field.type]) for field in self.schema]
        return msgspec.defstruct("Row", fields, gc=False)

    def lines(self, rows: pa.Table, name: str) -> list[str]:
        """Returns a column's values as they are written in tsv."""
        write = self.to_line if name == self.text else _same if name in self.words else repr
        return [write(value) for value in rows.column(name).to_pylist()]

    @property
    def words(self) -> list[str]:
        """Names of the columns that are not numbers."""
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
_LAYOUTS = {layout.stem: layout for layout in (NGRAM_FILES, ITEM_FILES, PROBABILITY_FILES)}


def render_parts(
    layout: Layout, rows: pa.Table, output_format: str, rows_per_part: int
) -> Iterator[tuple[Part, bytes]]:
    """Yields the files one after the other; a release without rows has one file without rows."""
    digest = _content_hash(layout, rows, output_format, rows_per_part)
    count = max(1, -(-len(rows) // rows_per_part))
    for number in range(count):
        piece = rows.slice(number * rows_per_part, rows_per_part)
        data = _WRITE[output_format](layout, piece)
        name = f"{layout.stem}-{digest}-{number:05}-of-{count:05}.{output_format}"
        yield Part(name, len(piece), hashlib.sha256(data).hexdigest(), len(data)), data


def parse_part(name: str, data: bytes) -> pa.Table:
    """Returns the rows of one part; its name determines the kind of release and the format."""
    return _PARSE[name.rpartition(".")[2]](_LAYOUTS[name.partition("-")[0]], data)


def _content_hash(layout: Layout, rows: pa.Table, output_format: str, rows_per_part: int) -> str:
    """Returns sixteen digits that also depend on the cut into parts and the writer's version.

    So files of equal names have equal bytes.
    """
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
    column = rows.schema.get_field_index(layout.text)
    texts = [layout.from_line(line) for line in rows.column(column).to_pylist()]
    return rows.set_column(column, layout.schema.field(column), pa.array(texts, pa.string()))


def _parse_parquet(layout: Layout, data: bytes) -> pa.Table:
    return pyarrow.parquet.read_table(pa.BufferReader(data)).cast(layout.schema)


_WRITE = {"jsonl": _write_jsonl, "tsv": _write_tsv, "parquet": _write_parquet}
_PARSE = {"jsonl": _parse_jsonl, "tsv": _parse_tsv, "parquet": _parse_parquet}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseKind:
    """How the released sets of one program are published.

    Attributes:
      layout: Form of the files.
      rows: Function from the released sets to the rows of the release, in order.
      ledger: Function from the plan, the released sets, and the arguments that all ledgers have, to the
        ledger.
    """

    layout: Layout
    rows: Callable[[Sequence[Any]], pa.Table]
    ledger: Callable[..., dict[str, Any]]


def kind_of(plan: PrivacyPlan | SetUnionPlan | BayesianPlan) -> ReleaseKind:
    """Returns how the results of a run under a plan are published.

    Raises:
      TypeError: if the plan is of no private program.
    """
    if isinstance(plan, BayesianPlan):
        return BAYESIAN
    if isinstance(plan, SetUnionPlan):
        return SET_UNION
    if isinstance(plan, PrivacyPlan):
        return NGRAMS
    raise TypeError(
        "plan must be a PrivacyPlan, a SetUnionPlan or a BayesianPlan, under which a release is "
        f"private, got {type(plan).__name__}."
    )


def _ngrams_ledger(plan: PrivacyPlan, released: Sequence[GramSet], **common: Any) -> dict[str, Any]:
    return ngrams_ledger(plan=plan, facts=[length_report(grams) for grams in released], **common)


def _set_union_ledger(
    plan: SetUnionPlan, released: Sequence[ItemSet], **common: Any
) -> dict[str, Any]:
    (found,) = released
    return set_union_ledger(plan=plan, items=found, **common)


def _bayesian_ledger(
    plan: BayesianPlan, released: Sequence[NgramProbabilities], **common: Any
) -> dict[str, Any]:
    (found,) = released
    return bayesian_ledger(plan=plan, found=found, **common)


NGRAMS = ReleaseKind(
    layout=NGRAM_FILES,
    rows=ngram_table,
    ledger=_ngrams_ledger,
)
SET_UNION = ReleaseKind(
    layout=ITEM_FILES,
    rows=item_table,
    ledger=_set_union_ledger,
)
BAYESIAN = ReleaseKind(
    layout=PROBABILITY_FILES,
    rows=probability_table,
    ledger=_bayesian_ledger,
)
