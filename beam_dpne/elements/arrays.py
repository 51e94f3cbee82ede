"""Functions on arrays: rows of different lengths (CSR), dictionaries of words, places by hashing.

The entries of row i are those from offsets[i] up to offsets[i + 1]; a row is a user or a document. A
dictionary is an Arrow array of distinct words, and a word's code is its place in the dictionary.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.mechanism import randomness

NOT_THERE = -1
# Multiplication by this odd number spreads keys over its high bits (Knuth, TAOCP 3, section 6.4).
_MULTIPLIER = 0x9E3779B97F4A7C15
_SLOTS_PER_KEY = 4
# Look-ups are done in parts whose intermediate arrays stay in the processor's cache.
_AT_ONCE = 2**15


def offsets_of(sizes: np.ndarray) -> np.ndarray:
    """Returns the offset at which each row of these sizes begins, and the end: (n + 1,) int64."""
    ends = np.cumsum(sizes, dtype=np.int64)
    return np.concatenate(([0], ends))


def rows_of_entries(offsets: np.ndarray) -> np.ndarray:
    """Returns the row of each entry: (m,) int64, ascending."""
    count = int(offsets[-1])
    filled = np.flatnonzero(offsets[1:] != offsets[:-1])
    first_entries = offsets[filled]
    # The number of the row grows at the first entry of each filled row, and nowhere else. Adding up
    # its growth is twice as fast as np.repeat, and lets other threads work.
    growth = np.zeros(count, np.int64)
    growth[first_entries] = np.diff(filled, prepend=0)
    return np.cumsum(growth, out=growth)


def offsets_of_marked(marks: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Returns where each row begins among the marked entries alone: (n + 1,) int64.

    Args:
      marks: (m,) bool, fewer than 2^31 of them.
      offsets: (n + 1,) int64, where each row begins among all entries.
    """
    before_each_entry = np.empty(marks.size + 1, np.int32)
    before_each_entry[0] = 0
    np.cumsum(marks, dtype=np.int32, out=before_each_entry[1:])
    return before_each_entry.take(offsets).astype(np.int64)


def rows_of_places(offsets: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Returns the row of the entry at each of some places, which ascend: (n,) int64."""
    # Where each row begins and ends if it has no other entries than those at the places.
    remaining = np.searchsorted(places, offsets)
    return rows_of_entries(remaining)


def ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Returns the places of several ranges, one after the other: (Σ sizes,) int64.

    Example:
      >>> ranges(np.array([5, 20]), np.array([3, 2]))
      array([ 5,  6,  7, 20, 21])
    """
    if sizes.size == 0:
        return np.zeros(0, np.int64)
    ends = np.cumsum(sizes)
    begins = ends - sizes
    # Within a range, a place and its index in the result differ by a constant.
    differences = np.repeat(starts - begins, sizes)
    return differences + np.arange(ends[-1])


def run_starts(ordered: np.ndarray) -> np.ndarray:
    """Returns where each run of equal values begins: (number of runs,) int64.

    Args:
      ordered: (n,) values, equal ones next to each other.
    """
    if ordered.size == 0:
        return np.zeros(0, np.int64)
    differs = ordered[1:] != ordered[:-1]
    begins = np.append(True, differs)
    return np.flatnonzero(begins)


def run_ends(ordered: np.ndarray) -> np.ndarray:
    """Returns the place of the last value of each run of equal values: (number of runs,) int64."""
    if ordered.size == 0:
        return np.zeros(0, np.int64)
    differs = ordered[1:] != ordered[:-1]
    ends = np.append(differs, True)
    return np.flatnonzero(ends)


def distinct(
    columns: Sequence[np.ndarray], sizes: Sequence[int]
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Sorts tuples of integers and drops repeated ones.

    The values of a tuple are packed into one integer if they fit into 63 bits: sorting integers is
    several times faster than sorting by several columns.

    Args:
      columns: one array for each place of the tuples, (n,) integers each.
      sizes: one number for each column, whose values are in range(size).

    Returns:
      The columns of the d distinct tuples, in ascending order, (d,) int64 each; and the place of the
      first copy of each tuple among all n sorted tuples, (d,) int64. The differences of these places
      are the numbers of copies.
    """
    widths = [_bits_of(size) for size in sizes]
    if sum(widths) > 63:
        return _distinct_wide(columns)
    packed = _packed(columns, widths)
    packed.sort()
    starts = run_starts(packed)
    kept = packed.take(starts).astype(np.int64, copy=False)
    return _unpacked(kept, widths), starts


def _bits_of(size: int) -> int:
    """Returns the number of bits of the largest value in range(size)."""
    largest = max(0, size - 1)
    return largest.bit_length()


def _packed(columns: Sequence[np.ndarray], widths: Sequence[int]) -> np.ndarray:
    """Returns each tuple as one integer, the first value in the highest bits: (n,).

    They are int32 if they fit, else int64.
    """
    kind = np.int32 if sum(widths) < 32 else np.int64
    packed = columns[0].astype(kind)
    for column, width in zip(columns[1:], widths[1:], strict=True):
        packed <<= width
        packed |= column.astype(kind, copy=False)
    return packed


def _unpacked(packed: np.ndarray, widths: Sequence[int]) -> tuple[np.ndarray, ...]:
    """Returns the columns of the tuples in (d,) int64 of `_packed`; the inverse of it."""
    last_first: list[np.ndarray] = []
    for width in reversed(widths[1:]):
        lowest_bits = (1 << width) - 1
        last_first.append(packed & lowest_bits)
        packed = packed >> width
    last_first.append(packed)
    return tuple(reversed(last_first))


def distinct_with_flag(
    columns: Sequence[np.ndarray], sizes: Sequence[int], flag: np.ndarray
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Drops repeated tuples, and says of each whether all its copies have the flag.

    Args:
      columns: as for `distinct`.
      sizes: as for `distinct`.
      flag: (n,) integers 0 or 1, the flag of each copy.

    Returns:
      The columns of the d distinct tuples, in ascending order, (d,) int64 each; and whether all
      copies of the tuple have the flag, (d,) bool.
    """
    found, _ = distinct((*columns, flag), (*sizes, 2))
    own = found[:-1]
    flags = found[-1]
    # A tuple is in `found` once, or once with the flag 0 and then once with the flag 1. So its first
    # place has the flag 1 only if no copy has the flag 0.
    is_first = _differs_from_before(own)
    return tuple(column[is_first] for column in own), flags[is_first].astype(bool)


def _differs_from_before(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Marks the tuples of values ≥ 0 that are not equal to the one before: (n,) bool."""
    changes = [np.diff(column, prepend=-1) != 0 for column in columns]
    return np.any(changes, axis=0)


def _distinct_wide(columns: Sequence[np.ndarray]) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Does the same as `distinct` for tuples that do not fit into 63 bits."""
    # np.lexsort sorts by its last column first.
    order = np.lexsort(columns[::-1])
    ordered = [column[order].astype(np.int64) for column in columns]
    starts = np.flatnonzero(_differs_from_before(ordered))
    return tuple(column[starts] for column in ordered), starts


def places_among(wanted: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Returns the place of each wanted key among others, −1 where it is missing: (n,) int64.

    Args:
      wanted: (n,) int64, in any order.
      keys: (m,) int64, ascending and distinct.
    """
    if keys.size == 0:
        return np.full(wanted.size, NOT_THERE, dtype=np.int64)
    places = np.searchsorted(keys, wanted)
    # Beyond the last key any place will do: the comparison finds another key there.
    places[places == keys.size] = 0
    is_there = keys[places] == wanted
    return np.where(is_there, places, NOT_THERE)


class KeyTable:
    """The places of distinct int64 keys, at least 0, in their array, by hashing.

    A binary search among a million keys reads some twenty places of memory for each look-up; here it is
    one for a key that is missing, mostly, and two for one that is there.

    Example:
      >>> KeyTable(np.array([3, 5, 9])).places(np.array([9, 4, 3]))
      array([ 2, -1,  0], dtype=int32)
    """

    def __init__(self, keys: np.ndarray, multiplier: int = _MULTIPLIER):
        """Builds the table.

        Args:
          keys: (m,) int64, distinct, at least 0, and fewer than 2^31 of them.
          multiplier: the odd number that spreads the keys over the slots.
        """
        wanted_slots = _SLOTS_PER_KEY * keys.size
        bits = max(1, (wanted_slots - 1).bit_length())
        self._multiplier = np.uint64(multiplier)
        self._shift = np.uint64(64 - bits)
        # An empty slot leads to place m, where −1 stands, which is no key.
        self._keys = np.append(keys, NOT_THERE)
        self._empty = keys.size
        # (2^bits,) int32: the place of a key that has this slot.
        self._table = np.full(1 << bits, self._empty, np.int32)
        slots = self._slots(keys)
        places = np.arange(keys.size, dtype=np.int32)
        self._table[slots] = places
        # The keys whose slot another key took are few, and have a table of their own.
        is_displaced = self._table[slots] != places
        self._displaced = np.flatnonzero(is_displaced).astype(np.int32)
        self._rest: KeyTable | None = None
        if self._displaced.size:
            other_multiplier = multiplier * _MULTIPLIER % 2**64
            self._rest = KeyTable(keys[self._displaced], other_multiplier)

    def places(self, wanted: np.ndarray) -> np.ndarray:
        """Returns the place of each wanted key, −1 where it is missing: (n,) int32."""
        found = np.empty(wanted.size, np.int32)
        for start in range(0, wanted.size, _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            found[part] = self._look_up(wanted[part])
        return found

    def _look_up(self, wanted: np.ndarray) -> np.ndarray:
        """Does the same as `places` for few keys."""
        slots = self._slots(wanted)
        candidates = self._table.take(slots)
        is_same = self._keys.take(candidates) == wanted
        # Places where the keys are the same, and −1 elsewhere; np.where takes five times as long.
        found = (candidates + np.int32(1)) * is_same - np.int32(1)
        if self._rest is None:
            return found
        # A wanted key whose slot another key has may be one of those that were displaced.
        is_open = ~is_same & (candidates < self._empty)
        still_open = np.flatnonzero(is_open)
        ranks = self._rest._look_up(wanted[still_open])
        is_there = ranks != NOT_THERE
        found[still_open[is_there]] = self._displaced[ranks[is_there]]
        return found

    def _slots(self, keys: np.ndarray) -> np.ndarray:
        """Returns the slot of each key: (n,) int64."""
        spread = keys.view(np.uint64) * self._multiplier
        return (spread >> self._shift).view(np.int64)


def outside_limit(
    offsets: np.ndarray, limit: int, draw: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> np.ndarray:
    """Returns the entries beyond a limit: in each longer row, those outside a subset of that size.

    With keyed draws that depend on nothing but the row and the entry, the subset is uniform and the
    same in every batch.

    Args:
      offsets: (n + 1,) int64.
      limit: the number of entries that a row may have.
      draw: returns the draws of the entries of longer rows, (m,) uint64, from their rows, (m,) int64,
        and their places, (m,) int64. The entries with the smallest draws are in the subset.

    Returns:
      The places of the entries outside the subsets: int64, ascending.
    """
    sizes = np.diff(offsets)
    longer = np.flatnonzero(sizes > limit)
    if longer.size == 0:
        return longer
    rows = np.repeat(longer, sizes[longer])
    entries = ranges(offsets[longer], sizes[longer])
    is_inside = randomness.keyed_subset(rows, draw(rows, entries), limit)
    return entries.take(np.flatnonzero(~is_inside))


def outside_keyed_subset(
    offsets: np.ndarray,
    limit: int,
    *,
    sub_key: bytes,
    users: np.ndarray,
    keys_of: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """Returns the entries of users above a limit that are outside a keyed uniform subset of that size.

    The draw of an entry depends on its user, its key and the sub-key alone.

    Args:
      offsets: (n + 1,) int64, where each user's entries begin.
      limit: the number of entries that a user may keep.
      sub_key: from `RunKey.sub_key`.
      users: (n, 2) uint64, 128-bit keyed hashes of users.
      keys_of: returns the keys of some entries, (m,) integers, which are the same in every batch, from
        their places, (m,) int64.

    Returns:
      The places of the entries outside the subsets: int64, ascending.
    """
    first_half = users[:, 0]

    def draw(rows: np.ndarray, entries: np.ndarray) -> np.ndarray:
        bits = randomness.keyed_bits(sub_key, first_half.take(rows), keys_of(entries))
        return bits[:, 0]

    return outside_limit(offsets, limit, draw)


def group_places(labels: np.ndarray, count: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yields each label that occurs, ascending, with the places where it occurs.

    Args:
      labels: (n,) integers in range(count).
      count: the number of labels.

    Yields:
      The label, and its places: int64, ascending.
    """
    # numpy sorts short integers by radix, which is faster.
    shortest = np.min_scalar_type(count)
    order = np.argsort(labels.astype(shortest), kind="stable")
    ordered = labels[order]
    starts = run_starts(ordered)
    ends = np.append(starts[1:], order.size)
    for start, end in zip(starts, ends, strict=False):
        yield int(ordered[start]), order[start:end]


def bytes_of(words: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Returns the bytes of words, and where in them each word begins and the last one ends.

    Args:
      words: (n,) Arrow strings or binaries without nulls.

    Returns:
      The bytes, (m,) uint8, which may begin before the first word and end behind the last one; and
      the offsets of the words in them, (n + 1,) int64.
    """
    strings = words.cast(pa.large_binary())
    _, offsets_buffer, data_buffer = strings.buffers()
    if offsets_buffer is None:
        # An array without rows may have no buffers.
        offsets_buffer = bytes(8)
    all_offsets = np.frombuffer(offsets_buffer, np.int64)
    # An array may be a slice of its buffers.
    first = strings.offset
    offsets = all_offsets[first : first + len(strings) + 1]
    data = np.frombuffer(data_buffer or b"", np.uint8)
    return data, offsets


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
    places = _index_in(words, dictionary).fill_null(NOT_THERE)
    return places.to_numpy(zero_copy_only=False)


def _places_of_few(words: pa.Array, dictionary: pa.Array) -> np.ndarray:
    """Does the same as `places_in` without a hash table of the dictionary, which may be very large.

    It goes through the dictionary and looks for its words among the few: some twenty times faster for
    the batch of a worker, and in 4 bytes for each word of the dictionary instead of some 40.
    """
    few = words.dictionary_encode()
    distinct_words = few.dictionary
    # For each word of the large dictionary its place among the few distinct words, null if it is none.
    found = _index_in(dictionary, distinct_words)
    is_found = found.is_valid().to_numpy(zero_copy_only=False)
    # One more place than there are distinct words, so that an array without words can be looked up.
    places = np.full(len(distinct_words) + 1, NOT_THERE, np.int32)
    places[found.drop_null().to_numpy()] = np.flatnonzero(is_found)
    return places[few.indices.to_numpy()]


def _index_in(words: pa.Array, values: pa.Array) -> pa.Array:
    """Returns the place of each word among the values, null where it is missing: int32."""
    options = pc.SetLookupOptions(value_set=values)
    return pc.call_function("index_in", [words], options)


def join_words(parts: Iterable[pa.Array]) -> pa.Array:
    """Returns the words of all parts one after the other; without parts there are no words."""
    arrays = list(parts)
    if not arrays:
        return pa.array([], pa.string())
    return pa.concat_arrays(arrays)


def used_words(size: int, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Finds the words of a dictionary that some code stands for, and numbers these alone.

    Args:
      size: the number of words in the dictionary.
      codes: (n,) integers, places in the dictionary; −1 stands for no word.

    Returns:
      The places of the used words, ascending, int64; and for each code the rank of its word among the
      used ones, (n,) int32, −1 where there is no word.
    """
    # The last of size + 1 places is that of code −1.
    is_used = np.zeros(size + 1, dtype=bool)
    is_used[codes] = True
    used = np.flatnonzero(is_used[:size])
    ranks = np.empty(size + 1, dtype=np.int32)
    ranks[NOT_THERE] = NOT_THERE
    ranks[used] = np.arange(used.size, dtype=np.int32)
    return used, ranks[codes.astype(np.intp)]


def byte_order(words: pa.Array) -> np.ndarray:
    """Returns the order that sorts words by their UTF-8 bytes: (n,) uint64."""
    as_bytes = words.cast(pa.binary())
    return pc.call_function("sort_indices", [as_bytes]).to_numpy()


def byte_ranks(words: pa.Array) -> np.ndarray:
    """Returns the rank of each word by its UTF-8 bytes: (n,) int64."""
    ranks = np.empty(len(words), np.int64)
    ranks[byte_order(words)] = np.arange(len(words))
    return ranks
