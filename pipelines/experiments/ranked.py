"""Numbers for all distinct n-grams of a corpus, also those that occur once."""

import dataclasses

import numpy as np

from beam_dpne.elements import progress
from beam_dpne.evaluation.corpus import Corpus
from beam_dpne.evaluation.index import group_keys


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class RankedGrams:
    """Numbers for the distinct n-grams of a corpus: for each length, their ranks by their words' codes.

    Attributes:
      corpus: The corpus of the n-grams.
      ids: For each length 1, …, T, (n,) int32: the number of the n-gram that begins at each position,
        −1 where none does.
      sizes: For each length, the number of distinct n-grams.
    """

    corpus: Corpus
    ids: tuple[np.ndarray, ...]
    sizes: tuple[int, ...]

    def words(self, length: int, ids: np.ndarray) -> np.ndarray:
        """Returns the codes of the words of n-grams given by number: (r, k) int32."""
        begins = np.flatnonzero(self.ids[length - 1] >= 0)
        # (s,) one position at which each n-gram begins.
        position = np.zeros(self.sizes[length - 1], dtype=np.int64)
        position[self.ids[length - 1][begins]] = begins
        return self.corpus.codes[position[ids][:, np.newaxis] + np.arange(length)]


def rank_grams(corpus: Corpus, max_length: int) -> RankedGrams:
    """Numbers the n-grams of each length; the numbers do not depend on the order of the input.

    Each length costs one sort of all positions, and 4 bytes for each position.
    """
    ids, sizes = [], []
    numbers, size = np.zeros(corpus.codes.size, dtype=np.int32), 1
    for length in range(1, max_length + 1):
        progress.enter("counting", length)
        numbers, size = _ranked(corpus, length, numbers, size)
        ids.append(numbers)
        sizes.append(size)
    return RankedGrams(corpus=corpus, ids=tuple(ids), sizes=tuple(sizes))


def _ranked(corpus: Corpus, length: int, prefixes: np.ndarray, size: int) -> tuple[np.ndarray, int]:
    """Numbers the n-grams that extend each prefix by the word after it."""
    begins = np.flatnonzero(prefixes >= 0)
    begins = begins[begins + length <= corpus.codes.size]
    word = corpus.codes[begins + length - 1]
    begins, word = begins[word >= 0], word[word >= 0]
    keys = prefixes[begins].astype(np.int64) * len(corpus.words) + word
    groups = group_keys(keys, max(1, size) * len(corpus.words))
    ids = np.full(corpus.codes.size, -1, dtype=np.int32)
    ids[begins] = groups.spread(np.arange(groups.keys.size, dtype=np.int32))
    return ids, groups.keys.size


def sorted_distinct(values: np.ndarray) -> np.ndarray:
    """Returns the distinct values, ascending; `np.unique` may hash, which is slower here."""
    ordered = np.sort(values)
    differs = np.ones(ordered.size, dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=differs[1:])
    return ordered[differs]
