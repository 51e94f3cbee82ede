"""Sorting pairs of integers: how grams get their numbers without any string being built."""

from typing import NamedTuple

import numpy as np

_SIGNED_BITS = 63


class Groups(NamedTuple):
    """Equal keys, brought together.

    Attributes:
      keys: (g,) int64, the distinct keys, ascending.
      sizes: (g,) int64, how often each occurs.
      order: (n,) int64, the places of the first key's occurrences, ascending, then the next one's.
    """

    keys: np.ndarray
    sizes: np.ndarray
    order: np.ndarray

    @property
    def starts(self) -> np.ndarray:
        """Where in `order` each key begins: (g,) int64."""
        return np.cumsum(self.sizes) - self.sizes

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Returns, for each place, the value of its key: (n,) from (g,)."""
        placed = np.empty(self.order.size, dtype=values.dtype)
        placed[self.order] = np.repeat(values, self.sizes)
        return placed


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
    """Returns where each wanted number is among sorted distinct keys, −1 where it is not: int64."""
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
    """Returns the keys in order, and their places; equal keys stay in order of place."""
    bits = max(1, int(keys.size - 1).bit_length()) if keys.size else 1
    if bound <= 1 << (_SIGNED_BITS - bits):
        # Sorting values is ten times as fast as sorting places.
        packed = np.sort(keys << bits | np.arange(keys.size))
        return packed >> bits, packed & ((1 << bits) - 1)
    order = np.argsort(keys, kind="stable")
    return keys[order], order
