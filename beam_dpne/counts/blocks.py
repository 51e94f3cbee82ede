"""Sums over rows in blocks, so that no step of the estimates holds a large table of all rows."""

from collections.abc import Iterator

import numpy as np

# Columns of a row that are kept are computed in blocks of this size, some MB each.
_ROWS_OF_A_BLOCK = 2**16
# Sums whose last digits depend on the blocks go over blocks of this size: a length of fewer rows is
# one block, so that its estimates do not depend on blocks at all.
_ROWS_OF_A_LARGE_BLOCK = 2**18


def blocks(first: int, last: int) -> Iterator[slice]:
    """Yields the rows from `first` up to `last` in blocks, in order."""
    return _cut(first, last, _ROWS_OF_A_BLOCK)


def large_blocks(first: int, last: int) -> Iterator[slice]:
    """Yields the rows from `first` up to `last` in blocks for sums that depend on how they are cut."""
    return _cut(first, last, _ROWS_OF_A_LARGE_BLOCK)


def _cut(first: int, last: int, size: int) -> Iterator[slice]:
    for start in range(first, last, size):
        yield slice(start, min(start + size, last))


def weighted_mean(values: np.ndarray, weights: np.ndarray) -> float:
    """Returns Σ weights·values / Σ weights, of two arrays of equal size.

    >>> weighted_mean(np.array([1.0, 4.0]), np.array([2.0, 1.0]))
    2.0
    """
    total, norm = 0.0, 0.0
    for rows in large_blocks(0, values.size):
        total += float((values[rows] * weights[rows]).sum())
        norm += float(weights[rows].sum())
    return total / norm


def add_by_group(sums: np.ndarray, groups: np.ndarray, values: np.ndarray) -> None:
    """Adds each value to the sum of its group, one after the other.

    Blocks that follow each other give the same digits as one pass over all rows.

    Args:
      sums: (g,) float64, changed in place.
      groups: (m,) int64, the group of each value.
      values: (m,) float64.
    """
    np.add.at(sums, groups, values)
