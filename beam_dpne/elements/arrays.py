"""Functions on arrays: rows of different lengths (CSR), dictionaries of words, places by hashing.

The entries of row i are those from offsets[i] up to offsets[i + 1]; a row is a user or a document. A
dictionary is an Arrow array of distinct words, and a word's code is its place in the dictionary.
"""

import concurrent.futures
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.elements import progress
from beam_dpne.mechanism import randomness

NOT_THERE = -1
# Multiplication by this odd number spreads keys over its high bits (Knuth, TAOCP 3, section 6.4).
_MULTIPLIER = 0x9E3779B97F4A7C15
_SLOTS_PER_KEY = 4
# Look-ups are done in parts whose intermediate arrays stay in the processor's cache.
_AT_ONCE = 2**15
_In = TypeVar("_In")
_Out = TypeVar("_Out")


def offsets_of(sizes: np.ndarray) -> np.ndarray:
    """Returns the offsets at which rows of these sizes begin, and the last one ends: (n + 1,) int64."""
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))


def rows_of_entries(offsets: np.ndarray) -> np.ndarray:
    """Returns the row of each entry: (m,) int64, ascending."""
    filled = np.flatnonzero(offsets[1:] != offsets[:-1])
    # By how much the row grows at the first entry of each filled row; sums are twice as fast as
    # np.repeat, and let other threads work.
    rows = np.zeros(int(offsets[-1]), np.int64)
    rows[offsets[filled]] = np.diff(filled, prepend=0)
    return np.cumsum(rows, out=rows)


def rows_of_places(offsets: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Returns the row of the entry at each of some places, which ascend: (n,) int64."""
    return rows_of_entries(np.searchsorted(places, offsets))


def ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Returns the places of several ranges, one after the other: (Σ sizes,) int64."""
    ends = np.cumsum(sizes)
    # Range i begins at ends[i] − sizes[i] of the result: the constant difference to its start is added.
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
    # (n,): each tuple's values in one integer, short if possible, the first in the highest bits.
    packed = columns[0].astype(np.int32 if sum(bits) < 32 else np.int64)
    for column, width in zip(columns[1:], bits[1:], strict=True):
        packed <<= width
        packed |= column.astype(packed.dtype, copy=False)
    packed.sort()
    starts = np.flatnonzero(np.append(True, packed[1:] != packed[:-1])[: packed.size])
    packed = packed.take(starts).astype(np.int64)
    unpacked = []
    for width in bits[:0:-1]:
        unpacked.append(packed & ((1 << width) - 1))
        packed = packed >> width
    return (packed, *reversed(unpacked)), starts


def distinct_with_flag(
    columns: Sequence[np.ndarray], sizes: Sequence[int], flag: np.ndarray
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Returns the distinct tuples, ascending, and whether the flag is set wherever each occurs."""
    (*flagged, flags), _ = distinct((*columns, flag), (*sizes, 2))
    # The first of the tuples that differ in the flag alone is the one where it is not set.
    fresh = _changes(flagged)
    return tuple(column[fresh] for column in flagged), flags[fresh].astype(bool)


def _changes(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Marks the first of equal tuples: (n,) bool."""
    return np.any([np.diff(column, prepend=-1) != 0 for column in columns], axis=0)


def _distinct_wide(columns: Sequence[np.ndarray]) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Does the same as `distinct` for tuples that do not fit into 63 bits."""
    order = np.lexsort(columns[::-1])
    ordered = [column[order].astype(np.int64) for column in columns]
    starts = np.flatnonzero(_changes(ordered))
    return tuple(column[starts] for column in ordered), starts


def places_among(wanted: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Returns the place of each wanted key among others, −1 where it is missing: (n,) int64.

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


class KeyTable:
    """The places of distinct int64 keys, at least 0, in their array, by hashing.

    A binary search among a million keys reads some twenty places of memory for each look-up; here it is
    one for a key that is missing, mostly, and two for one that is there.

    Example:
      >>> KeyTable(np.array([3, 5, 9])).places(np.array([9, 4, 3]))
      array([ 2, -1,  0], dtype=int32)
    """

    def __init__(self, keys: np.ndarray, multiplier: int = _MULTIPLIER):
        """Takes (m,) int64 distinct keys, fewer than 2^31, and the odd number that spreads them."""
        bits = max(1, (_SLOTS_PER_KEY * keys.size - 1).bit_length())
        self._multiplier = np.uint64(multiplier)
        self._shift = np.uint64(64 - bits)
        self._keys = np.append(keys, NOT_THERE)
        # (2^bits,) int32: the place of a key with this hash, m where there is none.
        self._table = np.full(1 << bits, keys.size, np.int32)
        slots = self._slots(keys)
        places = np.arange(keys.size, dtype=np.int32)
        self._table[slots] = places
        # The keys whose slot another key took are few, and have a table of their own.
        others = np.flatnonzero(self._table[slots] != places)
        self._others = np.append(others, NOT_THERE).astype(np.int32)
        if others.size:
            self._rest = KeyTable(keys[others], multiplier * _MULTIPLIER % 2**64)

    def places(self, wanted: np.ndarray) -> np.ndarray:
        """Returns the place of each wanted key, −1 where it is missing: (n,) int32."""
        found = np.empty(wanted.size, np.int32)
        for start in range(0, wanted.size, _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            found[part] = self._look_up(wanted[part])
        return found

    def _look_up(self, wanted: np.ndarray) -> np.ndarray:
        # An empty slot leads to the last of the keys, −1, which is no key.
        places = self._table.take(self._slots(wanted))
        same = self._keys.take(places) == wanted
        found = np.where(same, places, np.int32(NOT_THERE))
        if self._others.size > 1:
            # Places in `wanted` of those whose slot another key has.
            rest = np.flatnonzero(~same & (places < self._keys.size - 1))
            found[rest] = self._others[self._rest._look_up(wanted[rest])]
        return found

    def _slots(self, keys: np.ndarray) -> np.ndarray:
        """Returns the slot of each key: (n,) int64."""
        return ((keys.view(np.uint64) * self._multiplier) >> self._shift).view(np.int64)


def outside_limit(
    offsets: np.ndarray, limit: int, draw: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> np.ndarray:
    """Returns the entries beyond a limit: in each longer row, those outside a subset of that size.

    With keyed draws that depend on nothing but the row and the entry, the subset is uniform and the
    same in every batch.

    Args:
      offsets: (n + 1,) int64.
      limit: the number of entries that a row may have.
      draw: maps the rows, (m,) int64, and places, (m,) int64, of the entries of longer rows to their
        draws, (m,) uint64. The entries with the smallest draws are in the subset.

    Returns:
      The places of the other entries: int64, ascending.
    """
    over = np.flatnonzero(np.diff(offsets) > limit)
    if over.size == 0:
        return over
    starts = offsets[over]
    sizes = np.diff(offsets)[over]
    rows = np.repeat(over, sizes)
    entries = ranges(starts, sizes)
    return entries.take(np.flatnonzero(~randomness.keyed_subset(rows, draw(rows, entries), limit)))


def group_places(labels: np.ndarray, count: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yields each label that occurs with its places, both ascending; labels are in range(count)."""
    order = np.argsort(labels.astype(np.min_scalar_type(count)), kind="stable")
    ordered = labels[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: ordered.size])
    ends = np.append(starts, order.size)[1:]
    for start, end in zip(starts, ends, strict=False):
        yield int(ordered[start]), order[start:end]


def bytes_of(words: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Returns the bytes of words and where in them each word begins, and the last one ends.

    Args:
      words: (n,) Arrow strings or binaries without nulls.

    Returns:
      (m,) uint8, which may begin before the first word and end behind the last one; (n + 1,) int64.
    """
    strings = words.cast(pa.large_binary())
    _, offsets, data = strings.buffers()
    # An array may be a slice of its buffers; one without rows may have none.
    bounds = np.frombuffer(offsets or bytes(8), np.int64)
    bounds = bounds[strings.offset : strings.offset + len(strings) + 1]
    return np.frombuffer(data or b"", np.uint8), bounds


def hash_words(sub_key: bytes, words: pa.Array) -> np.ndarray:
    """Returns a 128-bit keyed hash of each word: (n, 2) uint64; see `randomness.hashes_of_ranges`.

    Args:
      sub_key: from `RunKey.sub_key`.
      words: (n,) Arrow strings or binaries without nulls.
    """
    return randomness.hashes_of_ranges(sub_key, *bytes_of(words))


def places_in(words: pa.Array, dictionary: pa.Array) -> np.ndarray:
    """Returns the place of each word in a dictionary, −1 where it is missing: (n,) int32.

    Args:
      words: (n,) Arrow strings.
      dictionary: distinct Arrow strings of the same type.
    """
    if len(words) < len(dictionary):
        return _places_of_few(words, dictionary)
    return _index_in(words, dictionary).fill_null(NOT_THERE).to_numpy(zero_copy_only=False)


def _places_of_few(words: pa.Array, dictionary: pa.Array) -> np.ndarray:
    """Does the same as `places_in` without a hash table of the dictionary, which may be very large.

    It goes through the dictionary and looks for its words among the few: some twenty times faster for
    the batch of a worker, and in 4 bytes for each word of the dictionary instead of some 40.
    """
    few = words.dictionary_encode()
    found = _index_in(dictionary, few.dictionary)
    there = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
    # One more place than there are distinct words, so that an array without words can be looked up.
    places = np.full(len(few.dictionary) + 1, NOT_THERE, np.int32)
    places[found.drop_null().to_numpy()] = there
    return places[few.indices.to_numpy()]


def _index_in(words: pa.Array, values: pa.Array) -> pa.Array:
    """Returns the place of each word among the values, null where it is missing: int32."""
    return pc.call_function("index_in", [words], pc.SetLookupOptions(value_set=values))


def join_words(parts: Iterable[pa.Array]) -> pa.Array:
    """Returns the words of all parts one after the other; without parts there are no words."""
    parts = list(parts)
    return pa.concat_arrays(parts) if parts else pa.array([], pa.string())


def merge_words(parts: Iterable[pa.Array]) -> tuple[pa.Array, np.ndarray]:
    """Merges several dictionaries into one.

    Returns:
      The distinct words, in the order in which they first occur, and the place of each word of the
      parts among them: (n,) int32, part by part.
    """
    encoded = join_words(parts).dictionary_encode()
    return encoded.dictionary, encoded.indices.to_numpy()


def merge_hashes(parts: Sequence[np.ndarray], places: np.ndarray, size: int) -> np.ndarray:
    """Returns the keyed hashes of merged words: (size, 2) uint64.

    Args:
      parts: (m, 2) uint64 each, the hashes of each part's words.
      places: (n,) integers, from `merge_words`; equal words have equal hashes.
      size: the size of the merged dictionary.
    """
    hashes = np.empty((size, 2), dtype=np.uint64)
    hashes[places] = np.concatenate(parts)
    return hashes


def used_words(size: int, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the used words of a dictionary, and the codes in terms of them.

    Args:
      size: the size of the dictionary.
      codes: (n,) integers, places in it; −1 stands for no word.

    Returns:
      The places of the used words, ascending, and the codes as ranks among them: (n,) int32.
    """
    used = np.zeros(size + 1, dtype=bool)
    used[codes] = True
    kept = np.flatnonzero(used[:size])
    ranks = np.empty(size + 1, dtype=np.int32)
    ranks[NOT_THERE] = NOT_THERE
    ranks[kept] = np.arange(kept.size, dtype=np.int32)
    return kept, ranks[codes.astype(np.intp)]


def byte_order(words: pa.Array) -> np.ndarray:
    """Returns the order that sorts words by their UTF-8 bytes: (n,) uint64."""
    return pc.call_function("sort_indices", [words.cast(pa.binary())]).to_numpy()


def byte_ranks(words: pa.Array) -> np.ndarray:
    """Returns the rank of each word by its UTF-8 bytes: (n,) int64."""
    ranks = np.empty(len(words), np.int64)
    ranks[byte_order(words)] = np.arange(len(words))
    return ranks


def map_in_threads(
    function: Callable[[_In], _Out], items: Iterable[_In], workers: int
) -> list[_Out]:
    """Returns the results of a function for all items, in their order, each a part of the stage.

    The function has no side effects, and runs for several items at the same time in several threads.
    numpy and Arrow let go of the interpreter's lock in sorts, searches and string kernels. An error is
    raised here, and the rest is left out.

    Example:
      >>> map_in_threads(abs, [-1, 2, -3], workers=2)
      [1, 2, 3]
    """
    with progress.counting(items), concurrent.futures.ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, items))
