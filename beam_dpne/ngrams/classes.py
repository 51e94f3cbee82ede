"""Classes of candidates by a public prediction: bins of scores, and the class of each candidate.

The score of an n-gram, a cell middle, has a *bin* on a fixed logarithmic scale. A candidate g has two
parts in S_{k−1}, its prefix and its suffix, which share a middle of k−2 words. Its class is

    c(g) = bin(prefix) + bin(suffix) − bin(middle),

the logarithm of a Markov prediction, λ_c = 2^(c/2). At k = 2 there is no middle. So classes are
functions of released sets alone, and integers.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from beam_dpne.elements.side_inputs import cached_for_sets
from beam_dpne.ngrams.elements import GramSet, unpack_pairs
from beam_dpne.ngrams.tolerances import BINS_PER_OCTAVE, HIGHEST_BIN, LOWEST_BIN

# Bins j and j + 1 meet at 2^((j + ½)/2). The two roots are written out, since borders must be the same
# on every machine.
_BORDER_ROOTS = (1.1892071150027212, 1.6817928305074292)  # 2^¼ and 2^¾, rounded up


def _border(place: int) -> float:
    """Returns 2^((place + ½)/2), where bins `place` and `place` + 1 meet."""
    octave, half = divmod(place, BINS_PER_OCTAVE)
    return float(np.ldexp(_BORDER_ROOTS[half], octave))


_BORDERS = np.array([_border(place) for place in range(LOWEST_BIN, HIGHEST_BIN)])


def bins_of(scores: np.ndarray) -> np.ndarray:
    """Returns the bin of each score, by exact comparisons with fixed borders: (n,) int16.

    >>> bins_of(np.array([-3.0, 1.0, 1.18, 1.19, 4.0])).tolist()
    [-13, 0, 0, 1, 4]
    """
    return (LOWEST_BIN + np.searchsorted(_BORDERS, scores, "right")).astype(np.int16)


@dataclasses.dataclass(frozen=True, eq=False)
class Sides:
    """The two sides of candidates of length k: every candidate is a left row and a right one.

    Attributes:
      left_bins: (l,) int16, bin(prefix) − bin(middle).
      right_bins: (r,) int16, the bin of the suffix.
    """

    left_bins: np.ndarray
    right_bins: np.ndarray


@cached_for_sets(maxsize=4)
def sides_of(previous: GramSet) -> Sides:
    """Returns both sides of the candidates that follow S_{k−1}; computed once for all batches."""
    bins = bins_of(previous.scores)
    if previous.length == 1:
        return Sides(bins, bins)
    if previous.suffix_bins is None:
        raise ValueError("A released set of two words and more must have the bins of its suffixes.")
    return Sides(bins - previous.suffix_bins, bins)


def class_numbers(previous: GramSet, keys: np.ndarray) -> np.ndarray:
    """Returns the class of each candidate of length k: (m,) int16.

    Args:
      previous: S_{k−1}.
      keys: (m,) int64, packed pairs.
    """
    sides = sides_of(previous)
    first, second = unpack_pairs(keys)
    return (sides.left_bins[first] + sides.right_bins[second]).astype(np.int16)


def suffix_bins(previous: GramSet, keys: np.ndarray) -> np.ndarray | None:
    """Returns the bins of the suffixes of S_k, as the field of `GramSet`; None at k = 1.

    Args:
      previous: S_{k−1}.
      keys: (n,) int64, the n-grams of S_k.
    """
    if previous.length == 0:
        return None
    return bins_of(previous.scores)[unpack_pairs(keys)[1]]


def join_classes(columns: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """Joins columns of class numbers, of which either all are there or none."""
    present = [column for column in columns if column is not None]
    return np.concatenate(present) if present else None
