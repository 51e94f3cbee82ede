"""Dictionaries of words: those of several parts as one, with the codes and keyed hashes of each."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from beam_dpne.elements.arrays import NOT_THERE, join_words


class MergedWords(NamedTuple):
    """Several dictionaries as one.

    Attributes:
      words: the distinct words, in the order in which they first occur.
      places: (n,) int32, the place in `words` of each word of the dictionaries, one after the other.
      sizes: the number of words of each dictionary.
    """

    words: pa.Array
    places: np.ndarray
    sizes: Sequence[int]

    def codes(self, codes: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Returns codes of words of each dictionary as codes of `words`; −1 stays −1.

        Args:
          codes: an array of integers for each dictionary, of any shape.
        """
        merged = []
        for size, stop, part in zip(self.sizes, np.cumsum(self.sizes), codes, strict=True):
            # A last place for −1, which is no word.
            places = np.append(self.places[stop - size : stop], np.int32(NOT_THERE))
            merged.append(places[part])
        return merged

    def hashes(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the keyed hashes of `words`: (words, 2) uint64.

        Args:
          parts: (m, 2) uint64 each, those of each dictionary's words; equal words have equal hashes.
        """
        hashes = np.empty((len(self.words), 2), dtype=np.uint64)
        hashes[self.places] = np.concatenate(parts)
        return hashes


def merge_words(dictionaries: Iterable[pa.Array]) -> MergedWords:
    """Merges several dictionaries into one."""
    parts = list(dictionaries)
    encoded = join_words(parts).dictionary_encode()
    return MergedWords(encoded.dictionary, encoded.indices.to_numpy(), list(map(len, parts)))
