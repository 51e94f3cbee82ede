"""The elements of a set union: arrays for many users or many items at a time, and their coders."""

import dataclasses
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from beam_dpne.elements.batches import BatchCoder


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class UserItems:
    """Per user the distinct items that the user adds (CSR).

    Attributes:
      users: (n, 2) uint64, 128-bit keyed hashes; a user is in one batch only.
      offsets: (n + 1,) int64, where each user's items begin.
      items: (m,) int32, indices into `words`, distinct within a user.
      counts: (m,) int32, how often the user has each item.
      words: the batch's distinct items, Arrow strings.
      word_hashes: (words, 2) uint64, their keyed hashes.
    """

    users: np.ndarray
    offsets: np.ndarray
    items: np.ndarray
    counts: np.ndarray
    words: pa.Array
    word_hashes: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ItemSums:
    """A part of the histogram: sums over users, for every item to which some user gives weight.

    Attributes:
      words: distinct items, Arrow strings.
      word_hashes: (words, 2) uint64.
      width: columns of `sums`.
      sums: (words · width,) int64, row by row. Column 0: weight in units of 2^-32; 1: weight in units
        of 2^-50, to be added; 2: weight in units of 2^-32 that is cut off at τ ("mad").
    """

    words: pa.Array
    word_hashes: np.ndarray
    width: int
    sums: np.ndarray

    @property
    def table(self) -> np.ndarray:
        """The sums as (words, width)."""
        return self.sums.reshape(-1, self.width)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ItemSet:
    """A released set of items, sorted by bytes, and the public numbers that led to it.

    Attributes:
      items: (n,) Arrow strings.
      scores: (n,) float64, noisy weights by cells.
      facts: for the ledger, see `SetUnionPlan.facts`: JSON types.
    """

    items: pa.Array
    scores: np.ndarray
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.items)


class UserItemsCoder(BatchCoder):
    """Coder of `UserItems`."""

    batch_type = UserItems


class ItemSumsCoder(BatchCoder):
    """Coder of `ItemSums`."""

    batch_type = ItemSums


class ItemSetCoder(BatchCoder):
    """Coder of `ItemSet`."""

    batch_type = ItemSet


for _coder in (UserItemsCoder, ItemSumsCoder, ItemSetCoder):
    beam.coders.registry.register_coder(_coder.batch_type, _coder)
