"""Classes of candidates by a public prediction: bins of scores, |V_c|, and uniform draws from V_c.

The score of an n-gram, a cell middle, has a *bin* on a fixed logarithmic scale. A candidate g has two
parts in S_{k−1}, its prefix and its suffix, which share a middle of k−2 words. Its class is

    c(g) = bin(prefix) + bin(suffix) − bin(middle),

the logarithm of a Markov prediction, λ_c = 2^(c/2). At k = 2 there is no middle. With pruning "single"
it is bin(prefix) + bin(last word). So classes are functions of released sets alone, and integers.

V_k is never enumerated. It is a union of *cells*: all candidates with one middle, one bin of the prefix
and one of the suffix. A cell's candidates are all pairs from two lists, and its class is the same for
all of them, so that |V_c| is a sum of products.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from beam_dpne.elements.side_inputs import cached_for_sets
from beam_dpne.mechanism import randomness
from beam_dpne.ngrams.elements import GramSet, pack_pairs, unpack_pairs
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
      left_middles: (l,) int64, the middle that an n-gram of S_{k−1} ends with; 0 without middles.
      left_bins: (l,) int16, bin(prefix) − bin(middle).
      right_middles: (r,) int64, the middle that the second part begins with; 0 without middles.
      right_bins: (r,) int16, the bin of the suffix, or of the last word (pruning "single").
    """

    left_middles: np.ndarray
    left_bins: np.ndarray
    right_middles: np.ndarray
    right_bins: np.ndarray


@cached_for_sets(maxsize=4)
def sides_of(previous: GramSet, pruning: str) -> Sides:
    """Returns both sides of the candidates that follow S_{k−1}; computed once for all batches."""
    bins = bins_of(previous.scores)
    if pruning == "single" or previous.length == 1:
        words = bins if previous.word_bins is None else previous.word_bins
        nowhere = np.zeros(bins.size, np.int64)
        return Sides(nowhere, bins, np.zeros(words.size, np.int64), words)
    prefixes, suffixes = unpack_pairs(previous.keys)
    if previous.suffix_bins is None:
        raise ValueError("A released set of two words and more must have the bins of its suffixes.")
    return Sides(suffixes, bins - previous.suffix_bins, prefixes, bins)


def class_numbers(previous: GramSet, pruning: str, keys: np.ndarray) -> np.ndarray:
    """Returns the class of each candidate of length k: (m,) int16.

    Args:
      previous: S_{k−1}.
      pruning: "both" or "single".
      keys: (m,) int64, packed pairs.
    """
    sides = sides_of(previous, pruning)
    first, second = unpack_pairs(keys)
    return (sides.left_bins[first] + sides.right_bins[second]).astype(np.int16)


@dataclasses.dataclass(frozen=True, eq=False)
class Cells:
    """V_k as cells, ascending by class, then by middle, then by the bin of the left side.

    Attributes:
      numbers: (classes,) int64, the classes that have candidates, ascending.
      borders: (classes + 1,) int64, where the cells of each class begin.
      ends: (cells,) int64, the number of candidates of a class up to and with each of its cells.
      left_starts: (cells,) int32, where the list of each cell's left rows begins in `left_order`.
      right_starts: (cells,) int32, the same for right rows.
      right_sizes: (cells,) int32, the lengths of the lists of right rows.
      left_order: (l,) int32, rows of S_{k−1} by middle, then bin, then row.
      right_order: (r,) int32, rows of S_{k−1}, or of words, in the same way.
    """

    numbers: np.ndarray
    borders: np.ndarray
    ends: np.ndarray
    left_starts: np.ndarray
    right_starts: np.ndarray
    right_sizes: np.ndarray
    left_order: np.ndarray
    right_order: np.ndarray

    def sizes(self) -> dict[int, int]:
        """Returns |V_c| of each class that has candidates, exactly; Σ_c |V_c| < 2^62."""
        return dict(
            zip(self.numbers.tolist(), self.ends[self.borders[1:] - 1].tolist(), strict=True)
        )

    def draw(self, number: int, bits: np.ndarray) -> np.ndarray:
        """Draws uniform members of V_c, with replacement and without rejection.

        A cell is drawn with a probability ∝ the product of its two lists, then a row of each.

        Args:
          number: c, a class that has candidates.
          bits: (n, 2) uint64, one block for each draw.

        Returns:
          Keys of k-grams: (n,) int64, packed pairs.
        """
        place = int(np.searchsorted(self.numbers, number))
        start, stop = self.borders[place : place + 2].tolist()
        ends = self.ends[start:stop]
        chosen = randomness.scaled_integers(bits, int(ends[-1]))
        within_class = np.searchsorted(ends, chosen, "right")
        cells = start + within_class
        rest = chosen - np.concatenate(([0], ends))[within_class]
        left, right = np.divmod(rest, self.right_sizes[cells])
        return pack_pairs(
            self.left_order[self.left_starts[cells] + left],
            self.right_order[self.right_starts[cells] + right],
        )


@cached_for_sets(maxsize=2)
def cells_of(previous: GramSet, pruning: str, *, by_prediction: bool = True) -> Cells:
    """Returns V_k as cells, for k = previous.length + 1 ≥ 2.

    There are at most |S_{k−1}| cells for each of the bins that scores have.

    Args:
      previous: S_{k−1}.
      pruning: "both" or "single".
      by_prediction: whether classes are those of the prediction; else there is class 0 alone.
    """
    sides = _sides_of_any(previous, pruning, by_prediction)
    left_order, left_starts, left_sizes = _lists(sides.left_middles, sides.left_bins)
    right_order, right_starts, right_sizes = _lists(sides.right_middles, sides.right_bins)
    left_middles = sides.left_middles[left_order[left_starts]]
    right_middles = sides.right_middles[right_order[right_starts]]
    # Each list of left rows meets the right lists of its middle, which are neighbours.
    first = np.searchsorted(right_middles, left_middles, "left")
    count = np.searchsorted(right_middles, left_middles, "right") - first
    left_bins = sides.left_bins[left_order[left_starts]]
    right_bins = sides.right_bins[right_order[right_starts]]
    # (cells,) each: lists of left and right rows. There are several cells for each n-gram, so their
    # columns are narrow, and computed in place.
    kind = np.int32 if int(count.sum()) < 2**31 else np.int64
    left = np.repeat(np.arange(left_starts.size, dtype=kind), count)
    right = np.repeat((first - np.cumsum(count) + count).astype(kind), count)
    right += np.arange(right.size, dtype=kind)
    # (cells,) int16: the class of each cell; the order of middles and bins stays within a class.
    numbers = left_bins[left]
    numbers += right_bins[right]
    order = np.argsort(numbers, kind="stable")
    distinct, borders = np.unique(numbers[order], return_index=True)
    left, right = left[order], right[order]
    borders = np.append(borders, order.size)
    del order
    ends = left_sizes[left].astype(np.int64)
    ends *= right_sizes[right]
    np.cumsum(ends, out=ends)
    # Candidates of all classes before each class; ends count from there.
    before = np.concatenate(([0], ends))[borders[:-1]]
    for start, stop, less in zip(borders[:-1], borders[1:], before, strict=True):
        ends[start:stop] -= less
    return Cells(
        numbers=distinct.astype(np.int64),
        borders=borders,
        ends=ends,
        left_starts=left_starts[left],
        right_starts=right_starts[right],
        right_sizes=right_sizes[right],
        left_order=left_order,
        right_order=right_order,
    )


def _sides_of_any(previous: GramSet, pruning: str, by_prediction: bool) -> Sides:
    if by_prediction:
        return sides_of(previous, pruning)
    size = len(previous)
    if pruning == "single" or previous.length == 1:
        words = np.zeros(previous.vocabulary_size, np.int64)
        none, no_bins = np.zeros(size, np.int64), np.zeros(words.size, np.int16)
        return Sides(none, none.astype(np.int16), words, no_bins)
    prefixes, suffixes = unpack_pairs(previous.keys)
    none = np.zeros(size, np.int16)
    return Sides(suffixes, none, prefixes, none)


def _lists(middles: np.ndarray, bins: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sorts rows by middle, then bin: returns the order, and where each list begins and its length."""
    order = np.lexsort((bins, middles))
    fresh = np.ones(order.size, dtype=bool)
    for column in (middles[order], bins[order]):
        fresh[1:] &= column[1:] == column[:-1]
    # So far `fresh` marks repetitions behind the first entry; the first entry begins a list as well.
    fresh[1:] = ~fresh[1:]
    starts = np.flatnonzero(fresh)
    sizes = np.diff(np.append(starts, order.size))
    # Rows and places are below 2^31.
    return order.astype(np.int32), starts.astype(np.int32), sizes.astype(np.int32)


def suffix_bins(previous: GramSet, keys: np.ndarray, pruning: str) -> np.ndarray | None:
    """Returns the bins of the suffixes of S_k, as the field of `GramSet`; None at k = 1.

    Args:
      previous: S_{k−1}.
      keys: (n,) int64, the n-grams of S_k.
      pruning: "both" or "single".
    """
    if previous.length == 0 or pruning == "single":
        return None
    return bins_of(previous.scores)[unpack_pairs(keys)[1]]


def word_bins(previous: GramSet, pruning: str) -> np.ndarray | None:
    """Returns the bins of the words for S_k, as the field of `GramSet`; see `suffix_bins`."""
    if previous.length == 0 or pruning == "both":
        return None
    return bins_of(previous.scores) if previous.length == 1 else previous.word_bins


def join_classes(columns: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """Joins columns of class numbers, of which either all are there or none."""
    present = [column for column in columns if column is not None]
    return np.concatenate(present) if present else None
