"""Sums over the batches of a bundle, so that a shuffle carries sums instead of batches."""

from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows

MAX_WAITING = 2_000_000


class SumBundle(beam.DoFn):
    """Adds up the batches of a bundle, and sends the sums when there are many, and at the end."""

    def __init__(
        self,
        sum_batch: Callable[..., Sized],
        merge: Callable[[list[Any]], Any],
        cut: Callable[[Any], Iterable[tuple[int, Any]]],
    ):
        """Takes the functions of one histogram.

        Args:
          sum_batch: from a batch, and side inputs, to its sums; their length is the number of sums.
          merge: from the sums of several batches to those of all.
          cut: from sums to parts, each with the number of its hash range.
        """
        self._sum_batch = sum_batch
        self._merge = merge
        self._cut = cut

    def start_bundle(self):
        """Begins without sums."""
        self._waiting: list[Any] = []
        self._size = 0

    def process(self, element: Any, *beside: Any) -> Iterator[tuple[int, Any]]:
        """Adds a batch to the sums that wait."""
        sums = self._sum_batch(element, *beside)
        self._waiting.append(sums)
        self._size += len(sums)
        if self._size > MAX_WAITING:
            yield from self._flush()

    def finish_bundle(self) -> Any:
        """Sends the sums that wait."""
        for piece in self._flush():
            yield GlobalWindows.windowed_value(piece)

    def _flush(self) -> Iterator[tuple[int, Any]]:
        waiting, self._waiting, self._size = self._waiting, [], 0
        if waiting:
            yield from self._cut(self._merge(waiting))
