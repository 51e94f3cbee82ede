"""Rows of a release, as its files have them: in tables and as elements with a schema."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import AsIter, PCollection

from beam_dpne.elements.batches import UnhintedTransform, apply

ROW_SCHEMA = pa.schema([("length", pa.int32()), ("ngram", pa.string()), ("score", pa.float64())])
ITEM_SCHEMA = pa.schema([("item", pa.string()), ("score", pa.float64())])
PROBABILITY_SCHEMA = pa.schema([("ngram", pa.string()), ("probability", pa.float64())])
SCORE_DECIMALS = 6
PROBABILITY_DIGITS = 9


class ReleasedNgram(NamedTuple):
    """A released n-gram.

    Attributes:
      length: the number of its words.
      ngram: the text of its words, see `join_tokens`.
      score: its noisy weight, rounded to six decimals.
    """

    length: int
    ngram: str
    score: float


class ReleasedItem(NamedTuple):
    """An item of a released set union.

    Attributes:
      item: the string that users have.
      score: its noisy weight, rounded to six decimals.
    """

    item: str
    score: float


class NgramProbability(NamedTuple):
    """An n-gram of a public vocabulary, and its private probability.

    Attributes:
      ngram: the text of its words, see `join_tokens`.
      probability: its probability, rounded to nine significant digits.
    """

    ngram: str
    probability: float


_Row = TypeVar("_Row", ReleasedNgram, ReleasedItem, NgramProbability)

for _row_type in (ReleasedNgram, ReleasedItem, NgramProbability):
    beam.coders.registry.register_coder(_row_type, beam.coders.RowCoder)


def with_rounded_scores(rows: pa.Table) -> pa.Table:
    """Returns the rows with scores that are rounded as in a release."""
    scores = np.round(rows.column("score").to_numpy(), SCORE_DECIMALS)
    place = rows.schema.get_field_index("score")
    return rows.set_column(place, rows.schema.field("score"), pa.array(scores))


def rounded_probabilities(probabilities: np.ndarray) -> np.ndarray:
    """Returns probabilities as a release has them, with nine significant digits."""
    shown = (f"{value:.{PROBABILITY_DIGITS}g}" for value in probabilities.tolist())
    return np.fromiter(map(float, shown), np.float64, count=probabilities.size)


def as_rows(
    released: Sequence[PCollection[Any]],
    row_type: type[_Row],
    table_of: Callable[[Sequence[Any]], pa.Table],
) -> PCollection[_Row]:
    """Adds the step to a pipeline that turns released sets into rows.

    It is named after the step that released the last set, so that a pipeline may have several.

    Args:
      released: the sets of one release.
      row_type: the type of the rows.
      table_of: maps the sets to the table that is published.
    """
    producer = released[-1].producer
    label = f"{producer.full_label}/Rows" if producer else "Rows"
    make_rows = label >> _MakeRows(row_type=row_type, table_of=table_of)
    return cast("PCollection[_Row]", tuple(released) | make_rows)


def longest_beside_shorter(
    released: Sequence[PCollection[Any]],
) -> tuple[PCollection[Any], AsIter]:
    """Returns S_T, which always has one element, and the shorter sets as one side input.

    A set union has a single set, which counts as the longest.
    """
    *shorter, longest = released
    others = shorter or [longest | "None" >> beam.Filter(lambda _: False)]
    return longest, AsIter(cast("PCollection", others | "Shorter" >> beam.Flatten()))


@dataclasses.dataclass(eq=False, kw_only=True)
class _MakeRows(UnhintedTransform):
    """Brings the sets of one release to one worker, which turns them into rows."""

    row_type: type[Any]
    table_of: Callable[[Sequence[Any]], pa.Table]

    def expand(self, released: tuple[PCollection[Any], ...]) -> PCollection[Any]:
        longest, shorter = longest_beside_shorter(released)
        rows = beam.FlatMap(_rows, shorter, row_type=self.row_type, table_of=self.table_of)
        return apply(longest, "Rows", rows, self.row_type)


def _rows(longest: Any, shorter: Iterable[Any], *, row_type: Any, table_of: Any) -> Iterator[Any]:
    for batch in table_of([*shorter, longest]).to_batches():
        yield from map(row_type, *(column.to_pylist() for column in batch.columns))
