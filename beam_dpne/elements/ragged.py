"""Rows of different lengths in flat arrays (CSR): taken, made distinct, limited and cut into parts.

The entries of row i are those from offsets[i] up to offsets[i + 1]; a row is a user or a document.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from beam_dpne.elements import coders
from beam_dpne.mechanism import randomness

_Part = TypeVar("_Part")


def offsets_of(sizes: np.ndarray) -> np.ndarray:
    """Returns where rows of these sizes begin, and where the last one ends: (n + 1,) int64."""
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))


def rows_of_entries(offsets: np.ndarray) -> np.ndarray:
    """Returns the row of each entry: (m,) int64, ascending."""
    return np.repeat(np.arange(offsets.size - 1), np.diff(offsets))


def ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Returns the places of several ranges, one after the other: (Σ sizes,) int64."""
    ends = np.cumsum(sizes)
    return np.repeat(starts - (ends - sizes), sizes) + np.arange(ends[-1] if ends.size else 0)


def distinct(
    columns: Sequence[np.ndarray], sizes: Sequence[int]
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Sorts tuples of integers and drops repeated ones.

    They are packed into one integer where they fit into 63 bits: sorting values is several times
    faster than sorting places by several columns.

    Args:
      columns: (n,) integers each.
      sizes: one for each column, whose values are in range(size).

    Returns:
      The columns of the distinct tuples in ascending order, and where each tuple begins among all n
      sorted ones: (d,) int64, so that the differences count its repetitions.
    """
    bits = [max(0, size - 1).bit_length() for size in sizes]
    if sum(bits) > 63:
        return _distinct_wide(columns)
    packed = columns[0].astype(np.int64)
    for column, width in zip(columns[1:], bits[1:], strict=True):
        packed <<= width
        packed |= column
    packed.sort()
    fresh = np.ones(packed.size, dtype=bool)
    np.not_equal(packed[1:], packed[:-1], out=fresh[1:])
    starts = np.flatnonzero(fresh)
    packed = packed[starts]
    unpacked = []
    for width in bits[:0:-1]:
        unpacked.append(packed & ((1 << width) - 1))
        packed = packed >> width
    return (packed, *reversed(unpacked)), starts


def _distinct_wide(columns: Sequence[np.ndarray]) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """As `distinct`, for tuples that do not fit into 63 bits."""
    order = np.lexsort(columns[::-1])
    ordered = [column[order] for column in columns]
    fresh = np.zeros(order.size, dtype=bool)
    for column in ordered:
        fresh |= np.diff(column, prepend=-1) != 0
    starts = np.flatnonzero(fresh)
    return tuple(column[starts] for column in ordered), starts


def places_among(wanted: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Returns the place of each wanted key among others, −1 where it is not there: (n,) int64.

    Args:
      wanted: (n,) int64, in any order.
      keys: (m,) int64, ascending and distinct.
    """
    if keys.size == 0:
        return np.full(wanted.size, -1, dtype=np.int64)
    places = np.searchsorted(keys, wanted)
    # Beyond the last key any place will do: the comparison finds another key there.
    places[places == keys.size] = 0
    return np.where(keys[places] == wanted, places, -1)


def outside_limit(
    offsets: np.ndarray, limit: int, draw: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> np.ndarray:
    """Returns the entries beyond a limit: of longer rows, those outside a subset of that size.

    With keyed draws that depend on nothing but the row and the entry, the subset is uniform and the
    same in every batch.

    Args:
      offsets: (n + 1,) int64.
      limit: entries that a row may have.
      draw: from rows, (m,) int64, and entries, (m,) int64, of the longer rows to their draws, (m,)
        uint64; the smallest are kept.

    Returns:
      The places of the other entries: int64, ascending.
    """
    over = np.flatnonzero(np.diff(offsets) > limit)
    if over.size == 0:
        return over
    starts, sizes = offsets[over], np.diff(offsets)[over]
    rows, entries = np.repeat(over, sizes), ranges(starts, sizes)
    return entries[~randomness.keyed_subset(rows, draw(rows, entries), limit)]


def group_places(labels: np.ndarray, count: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yields each label that occurs, ascending, with its places, ascending; labels in range(count)."""
    order = np.argsort(labels.astype(np.min_scalar_type(count)), kind="stable")
    ordered = labels[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    ends = np.append(starts, order.size)[1:]
    for start, end in zip(starts, ends, strict=False):
        yield int(ordered[start]), order[start:end]


def bounded_parts(places: np.ndarray, take: Callable[[np.ndarray], _Part]) -> Iterator[_Part]:
    """Yields batches of some of the places, halved until each is small enough for an element.

    A single place that is larger than that is a batch by itself.

    Args:
      places: those to take: rows or entries of a larger batch.
      take: from places to a batch of them.
    """
    part = take(places)
    if places.size <= 1 or coders.array_bytes(part) <= coders.MAX_ELEMENT_BYTES:
        yield part
        return
    for half in np.array_split(places, 2):
        yield from bounded_parts(half, take)
