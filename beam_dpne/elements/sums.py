"""Exact sums of integers: of the entries of each row, of runs, and of what is added at each place."""

import numpy as np
import numpy.typing as npt
import scipy


def sums_of_rows(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Returns the sum of the entries of each row, exactly: (n,) int64.

    The sum over all entries may pass 2^63, if the sum of no row does: int64 wraps around, and so do the
    differences.

    Args:
      values: (m,) integers, a value for each entry.
      offsets: (n + 1,) int64, where each row begins.
    """
    before_each_entry = np.empty(values.size + 1, np.int64)
    before_each_entry[0] = 0
    np.cumsum(values, dtype=np.int64, out=before_each_entry[1:])
    before_each_row = before_each_entry.take(offsets)
    return before_each_row[1:] - before_each_row[:-1]


def sums_of_runs(values: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Returns the sum of each run of neighbours, exactly, as `sums_of_rows` does: (n,) int64.

    Args:
      values: (m,) int64.
      last: (n,) integers, the place of the last value of each run; a run begins after the one before.
    """
    sums = np.cumsum(values).take(last)
    sums[1:] -= sums[:-1].copy()
    return sums


def add_at(
    table: np.ndarray, places: np.ndarray | tuple[np.ndarray, ...], values: npt.ArrayLike
) -> None:
    """Adds values to a table that is there already, also several to one place, in their order.

    Args:
      table: numbers, which are changed.
      places: (m,) integers, or such for each of the first axes.
      values: (m, …) numbers, or one number.
    """
    np.add.at(table, places, values)


def sums_at(places: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    """Returns the sum of the values at each place, exactly: (size,) int64.

    Args:
      places: (m,) integers in range(size), in any order.
      values: (m,) int64.
      size: the number of places.
    """
    # As fast as `add_at`, and other threads work meanwhile.
    column = scipy.sparse.csc_array((values, places, [0, places.size]), shape=(size, 1))
    return column @ np.ones(1, np.int64)
