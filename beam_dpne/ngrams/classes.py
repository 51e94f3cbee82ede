"""Classes of candidates by a public prediction: bins of scores, and the class of each candidate.

The score of an n-gram, a cell middle, has a *bin* on a fixed logarithmic scale. A candidate g has two
parts in S_{k−1}, its prefix and its suffix, which share a middle of k−2 words. Its class is

    c(g) = bin(prefix) + bin(suffix) − bin(middle),

the logarithm of a Markov prediction, λ_c = 2^(c/2). At k = 2 there is no middle. So classes are
functions of released sets alone, and integers.

V_k is never enumerated. It is a union of *cells*: all candidates with one middle, one bin of the left
side and one of the right side (see `classes`). A cell's candidates are all pairs from two lists of
rows, and its class is the same for all of them, so that |V_c| is a sum of products. There are several
cells for each n-gram of S_{k−1}, so they are made for a block of left lists at a time.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from beam_dpne.elements.coders import cached_for_sets
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


_BIN_BITS = 16
_LOWEST_BIN = -(1 << (_BIN_BITS - 1))
# So many left lists have their cells in memory at a time.
_LISTS_AT_ONCE = 2**16


@dataclasses.dataclass(frozen=True, eq=False)
class Lists:
    """The rows of one side of the candidates, in lists of one middle and one bin.

    Attributes:
      names: (lists,) int64, ascending, the middle and the bin of each list; see `names_of`.
      sizes: (lists,) int32, how many rows each list has.
    """

    names: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, names: np.ndarray) -> "Lists":
        """Returns the lists of rows.

        Args:
          names: (n,) int64, ascending, of each row.
        """
        is_first = np.ones(names.size, dtype=bool)
        np.not_equal(names[1:], names[:-1], out=is_first[1:])
        starts = np.flatnonzero(is_first)
        return cls(names[starts], np.diff(starts, append=names.size).astype(np.int32))

    @functools.cached_property
    def starts(self) -> np.ndarray:
        """The place of each list's first row among all rows in order: (lists,) int64."""
        return np.cumsum(self.sizes, dtype=np.int64) - self.sizes


def names_of(middles: np.ndarray, bins: np.ndarray) -> np.ndarray:
    """Returns middles and bins as integers that sort by middle, then by bin: (n,) int64.

    Args:
      middles: (n,) int64 in [0, 2^31).
      bins: (n,) int16.
    """
    names = middles << _BIN_BITS
    names += bins
    names -= _LOWEST_BIN
    return names


@dataclasses.dataclass(frozen=True, eq=False)
class _Cells:
    """The cells of a block of left lists, by class, then by left list, then by right list.

    Attributes:
      borders: for each class that has candidates, ascending: where its cells begin and end.
      ends: (cells,) int64, the number of candidates of a class up to and with each of its cells.
      left: (cells,) int64, the left list of each cell.
      right: (cells,) int64, its right list.
    """

    borders: dict[int, tuple[int, int]]
    ends: np.ndarray
    left: np.ndarray
    right: np.ndarray

    @classmethod
    def of(cls, left: Lists, right: Lists, start: int) -> "_Cells":
        """Returns the cells of the left lists from `start` on, as many as are made at a time."""
        names = left.names[start : start + _LISTS_AT_ONCE]
        # Each left list meets the right lists of its middle, which are neighbours.
        middles = (names >> _BIN_BITS) << _BIN_BITS
        first = np.searchsorted(right.names, middles)
        count = np.searchsorted(right.names, middles + (1 << _BIN_BITS)) - first
        lefts = np.repeat(np.arange(names.size), count)
        rights = np.repeat(first - np.cumsum(count) + count, count)
        rights += np.arange(rights.size)
        # (cells,) int16: the class of each cell; the order of lists stays within a class.
        numbers = _bins(names)[lefts] + _bins(right.names[rights])
        order = np.argsort(numbers, kind="stable")
        numbers, lefts, rights = numbers[order], lefts[order] + start, rights[order]
        ends = left.sizes[lefts].astype(np.int64)
        ends *= right.sizes[rights]
        distinct, starts = np.unique(numbers, return_index=True)
        places = itertools.pairwise([*starts.tolist(), order.size])
        borders = dict(zip(distinct.tolist(), places, strict=True))
        for begin, stop in borders.values():
            np.cumsum(ends[begin:stop], out=ends[begin:stop])
        return cls(borders, ends, lefts, rights)

    def sizes(self) -> dict[int, int]:
        """Returns the number of candidates of each class."""
        return {number: int(self.ends[stop - 1]) for number, (_, stop) in self.borders.items()}


@dataclasses.dataclass(frozen=True, eq=False)
class Members:
    """V_k as two sides of lists; the members of a class are numbered by its cells.

    Attributes:
      left: the lists of prefixes.
      right: the lists of suffixes, or of last words (pruning "single").
      left_order: (l,) int32, rows of S_{k−1} by list, then row.
      right_order: (r,) int32, rows of S_{k−1}, or of words, in the same way.
    """

    left: Lists
    right: Lists
    left_order: np.ndarray
    right_order: np.ndarray

    @classmethod
    def of(cls, previous: GramSet, pruning: str, *, by_prediction: bool = True) -> "Members":
        """Returns V_k, for k = previous.length + 1 ≥ 2.

        Args:
          previous: S_{k−1}.
          pruning: "both" or "single"; "both" with predictions.
          by_prediction: whether classes are those of the prediction; else there is class 0 alone.
        """
        sides, orders = [], []
        for names in _names(previous, pruning, by_prediction=by_prediction):
            # Rows are below 2^31.
            orders.append(np.argsort(names, kind="stable").astype(np.int32))
            sides.append(Lists.of(names[orders[-1]]))
        return cls(*sides, *orders)

    @functools.cached_property
    def _blocks(self) -> list[dict[int, int]]:
        """The number of members of each class in each block of left lists."""
        return list(_sizes_of_blocks(self.left, self.right))

    def sizes(self) -> dict[int, int]:
        """Returns |V_c| of each class that has candidates, exactly; Σ_c |V_c| < 2^62."""
        return _total(self._blocks)

    def draw(self, bits: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        """Draws uniform members of classes, with replacement and without rejection.

        A cell is drawn with a probability ∝ the product of its two lists, then a row of each.

        Args:
          bits: for each class c, which has candidates, (n, 2) uint64, one block for each draw.

        Returns:
          For each class, keys of k-grams: (n,) int64, packed pairs.
        """
        sizes = self.sizes()
        chosen = {c: randomness.scaled_integers(own, sizes[c]) for c, own in bits.items()}
        orders = {c: np.argsort(own) for c, own in chosen.items()}
        keys = {c: np.zeros(own.size, np.int64) for c, own in chosen.items()}
        before = dict.fromkeys(chosen, 0)
        for block, inside in enumerate(self._blocks):
            cells = None
            for number in inside.keys() & chosen.keys():
                # Draws of this block: their numbers are neighbours.
                borders = (before[number], before[number] + inside[number])
                first, stop = np.searchsorted(
                    chosen[number], borders, sorter=orders[number]
                ).tolist()
                draws = orders[number][first:stop]
                if draws.size:
                    cells = cells or _Cells.of(self.left, self.right, block * _LISTS_AT_ONCE)
                    keys[number][draws] = self._members(
                        cells, number, chosen[number][draws] - before[number]
                    )
                before[number] += inside[number]
        return keys

    def _members(self, cells: _Cells, number: int, chosen: np.ndarray) -> np.ndarray:
        """Returns the members of a class by their numbers among those of a block: (n,) int64."""
        start, stop = cells.borders[number]
        ends = cells.ends[start:stop]
        within = np.searchsorted(ends, chosen, "right")
        rest = chosen - np.concatenate(([0], ends))[within]
        left_list, right_list = cells.left[start + within], cells.right[start + within]
        left, right = np.divmod(rest, self.right.sizes[right_list])
        return pack_pairs(
            self.left_order[self.left.starts[left_list] + left],
            self.right_order[self.right.starts[right_list] + right],
        )


@cached_for_sets(maxsize=4)
def class_sizes(previous: GramSet) -> Mapping[int, int]:
    """Returns |V_c| of each class of length k that has candidates, exactly.

    Every worker process needs them, and keeps nothing else of V_k.
    """
    sides = []
    for names in _names(previous, "both", by_prediction=True):
        names.sort()
        sides.append(Lists.of(names))
    return _total(_sizes_of_blocks(*sides))


def _names(previous: GramSet, pruning: str, *, by_prediction: bool) -> Iterator[np.ndarray]:
    """Yields the name of the list of each row of the left side, then of the right side."""
    has_middles = pruning == "both" and previous.length > 1
    sides = sides_of(previous) if by_prediction else None
    for is_right in (False, True):
        size = previous.vocabulary_size if is_right and not has_middles else len(previous)
        bins = np.zeros(size, np.int16)
        if sides is not None:
            bins = sides.right_bins if is_right else sides.left_bins
        # The longest arrays of all: nothing here may hold them while they are used.
        if has_middles:
            # A left row ends with its middle, its suffix; a right one begins with it, its prefix.
            yield names_of(unpack_pairs(previous.keys)[0 if is_right else 1], bins)
        else:
            yield names_of(np.zeros(bins.size, np.int64), bins)


def _bins(names: np.ndarray) -> np.ndarray:
    return ((names & ((1 << _BIN_BITS) - 1)) + _LOWEST_BIN).astype(np.int16)


def _sizes_of_blocks(left: Lists, right: Lists) -> Iterator[dict[int, int]]:
    for start in range(0, left.names.size, _LISTS_AT_ONCE):
        yield _Cells.of(left, right, start).sizes()


def _total(blocks: Iterable[dict[int, int]]) -> dict[int, int]:
    """Returns the sums of blocks' numbers of members, ascending by class."""
    total: dict[int, int] = {}
    for block in blocks:
        for number, size in block.items():
            total[number] = total.get(number, 0) + size
    return dict(sorted(total.items()))
