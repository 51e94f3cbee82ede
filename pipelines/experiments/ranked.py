"""Numbers for all distinct n-grams of a corpus, also those that occur once."""

import dataclasses

import numpy as np

from beam_dpne.evaluation.corpus import Corpus, index_corpus


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
    """Numbers the n-grams of each length; the numbers do not depend on the order of the input."""
    levels = index_corpus(corpus, max_length).lengths
    sizes = tuple(level.keys.size for level in levels)
    return RankedGrams(corpus=corpus, ids=tuple(level.ids for level in levels), sizes=sizes)


def sorted_distinct(values: np.ndarray) -> np.ndarray:
    """Returns the distinct values, ascending; `np.unique` may hash, which is slower here."""
    ordered = np.sort(values)
    differs = np.ones(ordered.size, dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=differs[1:])
    return ordered[differs]
