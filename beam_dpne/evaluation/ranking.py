"""Numbers for the n-grams of a corpus, by sorting pairs of integers; no string is built.

A k-gram is the pair of its prefix's number and its last word's code, packed into one integer. Equal
pairs are found by sorting.
"""

from typing import NamedTuple

import numpy as np

_SIGNED_BITS = 63


class Groups(NamedTuple):
    """Positions of an array, grouped by key.

    Attributes:
      keys: (g,) int64, the distinct keys, ascending.
      sizes: (g,) int64, number of occurrences of each.
      order: (n,) int64, positions of the first key's occurrences, ascending, then the second key's.
    """

    keys: np.ndarray
    sizes: np.ndarray
    order: np.ndarray

    @property
    def starts(self) -> np.ndarray:
        """The index in `order` at which each key begins: (g,) int64."""
        return np.cumsum(self.sizes) - self.sizes

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Returns, for each position, the value of its key: (n,) from (g,)."""
        spread = np.empty(self.order.size, dtype=values.dtype)
        spread[self.order] = np.repeat(values, self.sizes)
        return spread


def group_keys(keys: np.ndarray, bound: int) -> Groups:
    """Groups integers by value.

    Args:
      keys: (n,) int64 in range(bound).
      bound: at most 2^63.
    """
    ordered, order = _sorted(keys, bound)
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    return Groups(ordered[starts], np.diff(starts, append=keys.size), order)


def places_of(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Returns the index of each wanted number among sorted distinct keys, −1 if absent: int64."""
    if keys.size == 0:
        return np.full(wanted.size, -1, dtype=np.int64)
    places = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    return np.where(keys[places] == wanted, places, -1)


def sorted_distinct(values: np.ndarray) -> np.ndarray:
    """Returns the distinct values, ascending; `np.unique` may hash, which is slower here."""
    ordered = np.sort(values)
    fresh = np.ones(ordered.size, dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
    return ordered[fresh]


def _sorted(keys: np.ndarray, bound: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the sorted keys and their positions; equal keys stay in order of position."""
    bits = max(1, int(keys.size - 1).bit_length()) if keys.size else 1
    if bound <= 1 << (_SIGNED_BITS - bits):
        # (n,) the key in the high bits and its position in the low ones: sorting values is ten times
        # as fast as sorting positions, and both can be read off the sorted values.
        packed = np.sort(keys << bits | np.arange(keys.size))
        return packed >> bits, packed & ((1 << bits) - 1)
    order = np.argsort(keys, kind="stable")
    return keys[order], order
