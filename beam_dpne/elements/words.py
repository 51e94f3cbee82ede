"""Words in Arrow arrays: their hashes, their places in a dictionary, and dictionaries made one."""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.mechanism import randomness

NOT_THERE = -1


def hash_words(sub_key: bytes, words: pa.Array) -> np.ndarray:
    """Returns a 128-bit keyed hash of each word: (n, 2) uint64; see `randomness.hashes_of_ranges`.

    Args:
      sub_key: from `RunKey.sub_key`.
      words: (n,) Arrow strings or binaries without nulls.
    """
    strings = words.cast(pa.large_binary())
    _, offsets, data = strings.buffers()
    # An array may be a slice of its buffers; one without rows may have none.
    bounds = np.frombuffer(offsets or bytes(8), np.int64)
    bounds = bounds[strings.offset : strings.offset + len(strings) + 1]
    return randomness.hashes_of_ranges(sub_key, np.frombuffer(data or b"", np.uint8), bounds)


def places_in(words: pa.Array, dictionary: pa.Array) -> np.ndarray:
    """Returns the place of each word in a dictionary, −1 where it is not there: (n,) int32.

    Args:
      words: (n,) Arrow strings.
      dictionary: distinct Arrow strings of the same type.
    """
    places = pc.call_function("index_in", [words], pc.SetLookupOptions(value_set=dictionary))
    return places.fill_null(NOT_THERE).to_numpy(zero_copy_only=False)


def join_words(parts: Iterable[pa.Array]) -> pa.Array:
    """Returns the words of all parts one after the other; of no part, no words."""
    parts = list(parts)
    return pa.concat_arrays(parts) if parts else pa.array([], pa.string())


def merge_words(parts: Iterable[pa.Array]) -> tuple[pa.Array, np.ndarray]:
    """Makes one dictionary of several.

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
      size: of the merged dictionary.
    """
    hashes = np.empty((size, 2), dtype=np.uint64)
    hashes[places] = np.concatenate(parts)
    return hashes


def used_words(size: int, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Drops the words of a dictionary that no code names.

    Args:
      size: of the dictionary.
      codes: (n,) integers, places in it.

    Returns:
      The places of the words that are used, ascending, and the codes as ranks among them: (n,) int32.
    """
    is_used = np.zeros(size, dtype=bool)
    is_used[codes] = True
    return np.flatnonzero(is_used), (np.cumsum(is_used, dtype=np.int32) - 1)[codes]


def byte_order(words: pa.Array) -> np.ndarray:
    """Returns the order that sorts words by their UTF-8 bytes: (n,) uint64."""
    return pc.call_function("sort_indices", [words.cast(pa.binary())]).to_numpy()
