"""The elements of a set union: arrays for many users or many items, and the rows of a release."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from beam_dpne.elements.coders import register_batches
from beam_dpne.elements.rows import ITEM_SCHEMA, with_rounded_scores


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

    def __len__(self) -> int:
        return len(self.words)

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


def item_table(released: Sequence[ItemSet]) -> pa.Table:
    """Returns the rows of one set union, sorted by falling score, then bytes."""
    (found,) = released
    rows = pa.table([found.items, pa.array(found.scores)], schema=ITEM_SCHEMA)
    return with_rounded_scores(rows.sort_by([("score", "descending"), ("item", "ascending")]))


register_batches(UserItems, ItemSums, ItemSet)
