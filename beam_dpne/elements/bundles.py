"""What all transforms of this package share: how they are applied, and sums of a bundle's batches."""

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any, TypeVar, cast

import apache_beam as beam
from apache_beam.pvalue import AsIter, PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints.decorators import IOTypeHints

from beam_dpne.elements.batches import (
    MAX_WAITING,
    DocumentBlock,
    RowSums,
    RowTable,
    UserBatch,
    WaitingParts,
    add_rows,
    cut_rows,
    merge_piece,
)
from beam_dpne.elements.coders import register_batches
from beam_dpne.elements.rows import (
    CountedGroupedNgram,
    CountedItem,
    CountedNgram,
    GroupedNgram,
    NgramProbability,
    ReleasedItem,
    ReleasedNgram,
)

_Out = TypeVar("_Out")
# Rows from this number on are in no table of a bundle, whose sums are 128 MiB at most.
MOST_ROWS = 2**24

register_batches(DocumentBlock, UserBatch, RowSums)
for _row_type in (
    *(ReleasedNgram, ReleasedItem, CountedNgram, CountedItem, NgramProbability),
    *(GroupedNgram, CountedGroupedNgram),
):
    beam.coders.registry.register_coder(_row_type, beam.coders.RowCoder)


class UnhintedTransform(beam.PTransform):
    """Base of transforms, written as dataclasses, that take or return tuples of PCollections."""

    def __post_init__(self):
        super().__init__()

    def default_type_hints(self) -> IOTypeHints:
        """Returns no hints: with any, Beam logs a warning about a tuple of PCollections."""
        return IOTypeHints.empty()


def apply(
    batches: Any, label: str, transform: beam.PTransform, kind: type[_Out]
) -> PCollection[_Out]:
    """Applies a transform under a label; its output has elements of one type, which picks the coder."""
    return cast("PCollection[_Out]", batches | label >> transform.with_output_types(kind))


class SumBundle(beam.DoFn):
    """Adds up the batches of a bundle, so that a shuffle carries sums instead of batches.

    The sums are sent when there are many even after they are added up, and at the end of the bundle.
    """

    def __init__(
        self,
        sum_batch: Callable[..., Sized],
        merge: Callable[[list[Any]], Any],
        cut: Callable[[Any], Iterable[tuple[int, Any]]],
    ):
        """Takes the functions of one histogram.

        Args:
          sum_batch: maps a batch and side inputs to its sums, whose length is the number of sums.
          merge: maps the sums of several batches to the sums of all of them.
          cut: cuts sums into parts, each with the number of its hash range.
        """
        self._sum_batch = sum_batch
        self._merge = merge
        self._cut = cut

    def start_bundle(self):
        """Starts without sums."""
        self._waiting = WaitingParts[Sized](self._merge, len, MAX_WAITING)

    def process(self, element: Any, *beside: Any) -> Iterator[tuple[int, Any]]:
        """Adds a batch to the waiting sums."""
        was_joined = self._waiting.add(self._sum_batch(element, *beside))
        if was_joined and self._waiting.size > MAX_WAITING // 2:
            yield from self._flush()

    def finish_bundle(self) -> Any:
        """Sends the waiting sums."""
        for piece in self._flush():
            yield GlobalWindows.windowed_value(piece)

    def _flush(self) -> Iterator[tuple[int, Any]]:
        waiting = self._waiting.parts
        self.start_bundle()
        if waiting:
            yield from self._cut(self._merge(waiting))


class SumRowsOfBundle(beam.DoFn):
    """Adds up the numbered rows of a bundle's batches in a table, and sends its sums at the end.

    A batch that has a row from `MOST_ROWS` on sends its own sums at once. Rows are then so many that
    batches share few of them.
    """

    def __init__(self, sum_batch: Callable[..., RowSums]):
        """Takes the function from a batch and the side inputs to the batch's sums."""
        self._sum_batch = sum_batch

    def start_bundle(self):
        """Starts without sums."""
        self._table = RowTable()

    def process(self, element: Any, *beside: Any) -> Iterator[tuple[int, RowSums]]:
        """Adds a batch to the sums, or sends its own."""
        sums = self._sum_batch(element, *beside)
        if sums.rows.max(initial=0) < MOST_ROWS:
            self._table.add(sums)
        else:
            yield from cut_rows(add_rows(sums))

    def finish_bundle(self) -> Any:
        """Sends the sums of the bundle."""
        for piece in cut_rows(self._table.total()):
            yield GlobalWindows.windowed_value(piece)
        self.start_bundle()


def sum_rows(
    users: Any, sum_batch: Callable[..., RowSums], *beside: Any, label: str = ""
) -> PCollection[RowSums]:
    """Sums batches of users within bundles, and adds up the bundles by pieces of rows.

    Args:
      users: batches of users, each user in one of them.
      sum_batch: maps a batch and the side inputs to its sums.
      *beside: side inputs.
      label: begins the names of the steps, where one transform sums several times.
    """
    sums_of = beam.ParDo(SumRowsOfBundle(sum_batch), *beside)
    pieces = apply(users, f"{label}SumBundle", sums_of, tuple[int, RowSums])
    merge = beam.MapTuple(merge_piece)
    return apply(pieces | f"{label}ByRows" >> beam.GroupByKey(), f"{label}SumRows", merge, RowSums)


def longest_beside_shorter(
    released: Sequence[PCollection[Any]], label: str = "Sets"
) -> tuple[PCollection[Any], AsIter]:
    """Returns S_T, which always has one element, and the shorter sets as one side input.

    A set union has a single set, which counts as the longest.
    """
    *shorter, longest = released
    others = shorter or [longest | f"{label}/None" >> beam.Filter(lambda _: False)]
    return longest, AsIter(cast("PCollection", others | f"{label}/Shorter" >> beam.Flatten()))
