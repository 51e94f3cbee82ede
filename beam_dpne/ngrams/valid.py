"""Valid k-grams V_k and their classes: exact sizes, and members by number, which `spurious` draws.

V_k is (S_{k−1} × S_1) ∩ (S_1 × S_{k−1}) with pruning "both", and S_{k−1} × S_1 with "single". With
"both" a candidate has two parts in S_{k−1}, its prefix and its suffix, which share a middle of k−2
words. Its class is

    c(g) = bin(prefix) + bin(suffix) − bin(middle),

the logarithm of a Markov prediction, λ_c = 2^(c/2). At k = 2 there is no middle. So classes are
functions of released sets alone, and integers. "one_round" has class 0 alone.

V_k is never enumerated. It is a union of *rectangles*: all candidates with one middle, one bin of the
left side and one of the right side. The candidates of a rectangle are all pairs from two lists of rows,
and its class is the same for all of them, so that |V_c| is a sum of products. There are several
rectangles for each n-gram of S_{k−1}, so they are made for a block of left lists at a time.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from beam_dpne.documents.blocks import split_groups
from beam_dpne.elements.arrays import KeyTable, places_in
from beam_dpne.elements.encoding import cached_for_sets
from beam_dpne.mechanism import randomness
from beam_dpne.mechanism.rules import KNOWN_CLASS
from beam_dpne.ngrams.elements import Contributions, GramSet
from beam_dpne.ngrams.keys import pack_pairs, unpack_pairs
from beam_dpne.ngrams.plan import ESTIMATE_SAMPLES
from beam_dpne.ngrams.tolerances import bins_of

_BIN_BITS = 16
_LOWEST_BIN = -(1 << (_BIN_BITS - 1))
# So many left lists have their rectangles in memory at a time.
_LISTS_AT_ONCE = 2**16


@cached_for_sets(maxsize=4)
def sides_of(previous: GramSet) -> tuple[np.ndarray, np.ndarray]:
    """Returns the bins of both sides of the candidates that follow S_{k−1}, once for all batches.

    Every candidate is a left row, with bin(prefix) − bin(middle), and a right one, with bin(suffix):
    (|S_{k−1}|,) int16 each.
    """
    bins = bins_of(previous.scores)
    if previous.length == 1:
        return bins, bins
    suffixes = previous.candidates.suffix_bins
    if suffixes is None:
        raise ValueError("A released set of two words and more must have the bins of its suffixes.")
    return bins - suffixes, bins


def class_numbers(previous: GramSet, keys: np.ndarray) -> np.ndarray:
    """Returns the class of each candidate of length k: (m,) int16.

    Args:
      previous: S_{k−1}.
      keys: (m,) int64, packed pairs.
    """
    left, right = sides_of(previous)
    first, second = unpack_pairs(keys)
    numbers = (left[first] + right[second]).astype(np.int16)
    if previous.candidates.known is not None:
        numbers[_known_table(previous).places(keys) >= 0] += KNOWN_CLASS
    return numbers


def classes_of(previous: GramSet, grams: Contributions) -> np.ndarray:
    """Returns the class of each candidate of users: (m,) int16; of words, whether they are known."""
    if previous.length or grams.words is None:
        return class_numbers(previous, grams.keys)
    is_known = places_in(grams.words, known_words(previous)) >= 0
    return np.where(is_known, KNOWN_CLASS, 0).astype(np.int16)[grams.keys]


@cached_for_sets(maxsize=4)
def _known_table(previous: GramSet) -> KeyTable:
    known = previous.candidates.known
    return KeyTable(np.zeros(0, np.int64) if known is None else known)


@cached_for_sets(maxsize=1)
def known_words(root: GramSet) -> pa.Array:
    """Returns the words that are known by themselves, from the root of the known n-grams."""
    if root.candidates.known is None or root.words is None:
        return pa.array([], pa.string())
    return root.words.take(pa.array(root.candidates.known))


def suffix_bins(previous: GramSet, keys: np.ndarray) -> np.ndarray | None:
    """Returns the bins of the suffixes of S_k, as the field of `NextCandidates`; None at k = 1.

    Args:
      previous: S_{k−1}.
      keys: (n,) int64, the n-grams of S_k.
    """
    if previous.length == 0:
        return None
    return bins_of(previous.scores)[unpack_pairs(keys)[1]]


@dataclasses.dataclass(frozen=True, eq=False)
class Lists:
    """The rows of one side of the candidates, in lists of one middle and one bin.

    Attributes:
      names: (lists,) int64, ascending, the middle and the bin of each list; see `_names`.
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
        starts = np.flatnonzero(np.diff(names, prepend=-1))
        return cls(names[starts], np.diff(starts, append=names.size).astype(np.int32))

    @functools.cached_property
    def starts(self) -> np.ndarray:
        """The place of each list's first row among all rows in order: (lists,) int64."""
        return np.cumsum(self.sizes, dtype=np.int64) - self.sizes


@dataclasses.dataclass(frozen=True, eq=False)
class _Rectangles:
    """The rectangles of a block of left lists, by class, then by left list, then by right list.

    Attributes:
      borders: for each class that has candidates, ascending: where its rectangles begin and end.
      ends: (rectangles,) int64, the number of candidates of a class up to the end of each of them.
      left: (rectangles,) int64, the left list of each rectangle.
      right: (rectangles,) int64, its right list.
    """

    borders: dict[int, tuple[int, int]]
    ends: np.ndarray
    left: np.ndarray
    right: np.ndarray

    @classmethod
    def of(cls, left: Lists, right: Lists, start: int) -> "_Rectangles":
        """Returns the rectangles of the left lists from `start` on, as many as are made at a time."""
        names = left.names[start : start + _LISTS_AT_ONCE]
        # Each left list meets the right lists of its middle, which are neighbours.
        middles = (names >> _BIN_BITS) << _BIN_BITS
        first = np.searchsorted(right.names, middles)
        count = np.searchsorted(right.names, middles + (1 << _BIN_BITS)) - first
        lefts = np.repeat(np.arange(names.size), count)
        rights = np.repeat(first - np.cumsum(count) + count, count)
        rights += np.arange(rights.size)
        # (rectangles,) int16: the class of each; the order of lists stays within a class.
        numbers = _bins(names)[lefts] + _bins(right.names[rights])
        order = np.argsort(numbers, kind="stable")
        numbers = numbers[order]
        lefts = lefts[order] + start
        rights = rights[order]
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

    def places(
        self, number: int, chosen: np.ndarray, left: Lists, right: Lists
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the places on both sides of a class's members, by their numbers in the block."""
        start, stop = self.borders[number]
        ends = self.ends[start:stop]
        within = np.searchsorted(ends, chosen, "right")
        rest = chosen - np.concatenate(([0], ends))[within]
        left_list = self.left[start + within]
        right_list = self.right[start + within]
        row, second = np.divmod(rest, right.sizes[right_list])
        return left.starts[left_list] + row, right.starts[right_list] + second


@cached_for_sets(maxsize=4)
def class_sizes(
    previous: GramSet, pruning: str = "both", *, by_prediction: bool = True
) -> Mapping[int, int]:
    """Returns |V_c| of each class of length k that has candidates, exactly, ascending by class.

    Every worker process needs them, and keeps nothing else of V_k. Σ_c |V_c| < 2^62.

    Args:
      previous: S_{k−1}, k ≥ 2.
      pruning: "both" or "single"; "both" with predictions.
      by_prediction: whether classes are those of the prediction; else there is class 0 alone.

    Known candidates have classes of their own; of words only known ones are counted.

    References: DPNE section 2, "Pruning using valid k-grams"; exact count by middles.
    """
    known = previous.candidates.known
    if previous.length == 0:
        return {} if known is None else {KNOWN_CLASS: known.size}
    sides = []
    total = dict[int, int]()
    for names in _names(previous, pruning, by_prediction=by_prediction):
        names.sort()
        sides.append(Lists.of(names))
    for rectangles in _blocks(*sides):
        for number, size in rectangles.sizes().items():
            total[number] = total.get(number, 0) + size
    if known is not None:
        numbers, counts = np.unique(class_numbers(previous, known), return_counts=True)
        for number, size in zip(numbers.tolist(), counts.tolist(), strict=True):
            total[number] = size
            total[number - KNOWN_CLASS] -= size
    return {number: size for number, size in sorted(total.items()) if size}


def members(
    previous: GramSet,
    chosen: Mapping[int, np.ndarray],
    pruning: str = "both",
    *,
    by_prediction: bool = True,
) -> dict[int, np.ndarray]:
    """Returns members of classes by their numbers: for each class (n,) int64, packed pairs.

    Classes are those of the prediction, known members included. Their members are numbered
    by rectangles, then by the rows of both sides.

    Args:
      previous: S_{k−1}, k ≥ 2.
      chosen: for each class c that has candidates, (n,) int64 in range(|V_c|).
      pruning: as for `class_sizes`.
      by_prediction: as for `class_sizes`.
    """
    sides = []
    rows = []
    for names in _names(previous, pruning, by_prediction=by_prediction):
        # Rows are below 2^31.
        rows.append(np.argsort(names, kind="stable").astype(np.int32))
        sides.append(Lists.of(names[rows[-1]]))
    orders = {number: np.argsort(own) for number, own in chosen.items()}
    keys = {number: np.zeros(own.size, np.int64) for number, own in chosen.items()}
    before = dict.fromkeys(chosen, 0)
    for rectangles in _blocks(*sides):
        for number, size in rectangles.sizes().items():
            if number not in chosen:
                continue
            # Draws of this block: their numbers are neighbours.
            borders = (before[number], before[number] + size)
            first, stop = np.searchsorted(chosen[number], borders, sorter=orders[number]).tolist()
            draws = orders[number][first:stop]
            left, right = rectangles.places(number, chosen[number][draws] - before[number], *sides)
            keys[number][draws] = pack_pairs(rows[0][left], rows[1][right])
            before[number] += size
    return keys


def _blocks(left: Lists, right: Lists) -> Iterator[_Rectangles]:
    for start in range(0, left.names.size, _LISTS_AT_ONCE):
        yield _Rectangles.of(left, right, start)


def _names(previous: GramSet, pruning: str, *, by_prediction: bool) -> Iterator[np.ndarray]:
    """Yields the name of the list of each row of the left side, then of the right side.

    Names are integers that sort by middle, then by bin: (n,) int64.
    """
    has_middles = pruning == "both" and previous.length > 1
    sides = sides_of(previous) if by_prediction else None
    for is_right in (False, True):
        size = previous.vocabulary_size if is_right and not has_middles else len(previous)
        bins = np.zeros(size, np.int16)
        if sides is not None:
            bins = sides[is_right]
        # The longest arrays of all: nothing here may hold them while they are used.
        if has_middles:
            # A left row ends with its middle, its suffix; a right one begins with it, its prefix.
            names = unpack_pairs(previous.keys)[0 if is_right else 1] << _BIN_BITS
        else:
            names = np.zeros(bins.size, np.int64)
            if previous.is_grouped:
                # Pairs of words are of one group, since a text has one, as longer ones have one middle.
                groups, _ = split_groups(previous.words)
                names += groups.dictionary_encode().indices.to_numpy()
                names <<= _BIN_BITS
        names += bins
        names -= _LOWEST_BIN
        yield names
        del names


def _bins(names: np.ndarray) -> np.ndarray:
    return ((names & ((1 << _BIN_BITS) - 1)) + _LOWEST_BIN).astype(np.int16)


def estimate_valid_kgrams(previous: GramSet, sub_key: bytes) -> int:
    """Returns the paper's estimate of |V_k| from pairs (x, w) drawn from S_1 × S_{k−1}.

    With w = y·z it counts how often the k−1 words x·y are in S_{k−1}. L(y) words x of S_1 have this
    property. If S_1 is numbered for each y so that these words come first, the look-up becomes
    `x < L(y)`, and the distribution of the count is the paper's. The sampling probability p is such
    that about a million pairs are drawn at most. The estimate is a function of released sets and
    separate randomness, so it costs no privacy; it affects only the threshold.

    References: DPNE appendix A, Algorithm 2 (EstimateValidKgrams).
    """
    pairs = len(previous) * previous.vocabulary_size
    if pairs == 0:
        return 0
    probability = min(1.0, ESTIMATE_SAMPLES / pairs)
    samples = math.ceil(probability * pairs)
    if previous.length == 1:
        return math.ceil(samples / probability)
    bits = randomness.keyed_bits(sub_key, np.uint64(0), np.arange(samples, dtype=np.uint64))
    words = (bits[:, 0] % np.uint64(previous.vocabulary_size)).astype(np.int64)
    grams = (bits[:, 1] % np.uint64(len(previous))).astype(np.int64)
    prefixes, suffixes = unpack_pairs(previous.keys)
    # (|S_{k−2}|,) int64: L(m), how many n-grams of S_{k−1} end with m.
    left = np.bincount(suffixes, minlength=previous.parent_size)
    return math.ceil(np.count_nonzero(words < left[prefixes[grams]]) / probability)
