"""A back-off language model from the probabilities of a release and its public counts.

A release of n-gram probabilities does not say how much of a context's mass other words have. The public
counts do, so its model is the Kneser–Ney model of the public counts, moved to where the release says.
Everything is computed from the release and public data, so that it costs no privacy.

*The public model.* The count c of an n-gram is lowered by a discount D(c), for c = 1, 2 and from 3 on,
estimated from the numbers of grams that occur once, twice, three and four times (modified Kneser–Ney).
After a context h, the discounts B(h) = Σ_w D(hw) are the part of its mass that shorter contexts divide:

    P(w | h) = ((c − D)(hw) + B(h) · P(w | h without its first word)) / (Σ_w (c − D)(hw) + B(h)).

Shorter n-grams are counted by the number of distinct words before them, as Kneser and Ney do.

*Moving it.* A user's largest count limits common n-grams more than rare ones. So the shares of the
release are first multiplied such that n-grams of about one public count have the same sum of shares and
of public counts (`_calibrated`). Then the discounted counts and the discounts are multiplied by a ratio
ρ, which says how much more common an n-gram is in the private texts. A word or another part of the
release's n-grams has three numbers, all in units of public counts:

- a, the public count of the release's n-grams that have the part, averaged over its places in them,
- s, the share of these n-grams in the release,
- o, the public count of the part elsewhere.

Its ratio is

    ρ = (s + k ρ') / (a + k),  k = 1/τ² + 0.3 o,

where ρ' is what the part's own parts let one expect:

    1 for a word w,  ρ(v) ρ(w) for a pair vw,  ρ(uv) ρ(vw)/ρ(v) for three words uvw.

τ² is the variance of s/a over words beyond the sampling of a: next to 0 if the private texts are like
the public ones.

An n-gram of full length has ρ = ρ'. If the release has it, its count is the mean of its own share and
of ρ' times the public count: the share describes these users, and ρ' is better for texts that are still
to come. Its discount is multiplied by ρ' alone: a phrase that is much more common than its parts leaves
no more to back off.

*Other words.* `<unk>` has the share of words that occur once, the Good–Turing estimate. A file of
counts or a release lacks rare n-grams, those below a least count t. Their mass is that of a power law
that is fitted to the other n-grams, each of which leaves an equal part of it to back off. The same part
is added to o.

References: Chen and Goodman 1999, "An empirical study of smoothing techniques for language modeling";
Good 1953, "The population frequencies of species"; Clauset, Shalizi and Newman 2009, "Power-law
distributions in empirical data", equation 3.7. The way to move the model is ours; its constants were
chosen on public texts.
"""

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy

from beam_dpne.bayesian.arpa import GramTree, Order, interpolated
from beam_dpne.bayesian.posterior import discounted
from beam_dpne.elements.arrays import byte_order, places_in
from beam_dpne.elements.sums import sums_at
from beam_dpne.lists.public_counts import PublicCounts

_Floats = npt.NDArray[np.float64]
_Ids = npt.NDArray[np.int64]

# k = 1/τ² + 0.3 o.
_ELSEWHERE = 0.3
# The range of 1/τ².
_PRIOR_COUNTS = (5.0, 1000.0)
# τ² is found from words with at least this public count, each with at most this weight.
_LEAST_COUNT = 5.0
_MOST_WEIGHT = 50.0
# Levels of public counts are half an octave wide; the highest has 30 n-grams or more.
_LEVELS_AN_OCTAVE = 2
_LEAST_GRAMS = 30
# The range of ρ' is from 1/1000 to 1000.
_MOST_RATIO = 1000.0
# The weight of an n-gram's share of the release beside what its parts say.
_SHARE_WEIGHT = 0.5
_LEAST_DISCOUNT = 0.05
# The discount of counts whose rare n-grams are cut off, as in `posterior.discounted`.
_CUT_DISCOUNT = 0.9


class PublicGrams:
    """Public counts of n-grams of all lengths up to n.

    A text has n-grams of all lengths, a file of counts those of one, a release some of each. What is
    missing is filled in: a shorter n-gram has at least the count that the longer ones have together
    which begin, or end, with it.

    Attributes:
      words: (W,) Arrow strings, sorted by bytes.
      tree: the n-grams.
      counts: for each length, (m,) int64 ≥ 0.
      lowest: the least count of the longest n-grams, below which they are cut off; 1 if they are whole.
    """

    def __init__(self, counted: Sequence[PublicCounts]):
        """Takes public counts of distinct lengths, the longest ones last."""
        all_words = pa.concat_arrays([each.words for each in counted]).unique()
        self.words = all_words.take(pa.array(byte_order(all_words)))
        tables = [self._ids(each) for each in counted]
        self.tree = GramTree.of(len(self.words), tables)
        self.counts = self.tree.placed(tables, [each.counts for each in counted])
        self._fill_in_shorter()
        self.lowest = max(1, int(self.counts[-1].min()))

    def _fill_in_shorter(self) -> None:
        """Raises the counts of parts to the sums of the n-grams that begin, or end, with them."""
        for longer in range(len(self.counts) - 1, 0, -1):
            shorter = longer - 1
            for parts in (self.tree.begins[longer], self.tree.ends[longer]):
                # Sums of public counts are at most 2^62, where float64 would not be exact.
                sums = sums_at(parts, self.counts[longer], len(self.counts[shorter]))
                self.counts[shorter] = np.maximum(self.counts[shorter], sums)

    def rows_of(self, public: PublicCounts) -> _Ids:
        """Returns the row of each public n-gram in the table of its length: (V,) int64."""
        return self.tree.rows_of(self._ids(public))

    def _ids(self, public: PublicCounts) -> npt.NDArray[np.integer]:
        """Returns the ids of the words of each public n-gram: (V, n) integers."""
        ids_of_words = places_in(public.words, self.words)
        return ids_of_words[public.grams]


def adapted_model(public: PublicGrams, rows: _Ids, joint: _Floats) -> tuple[list[Order], float]:
    """Returns the model of the public counts, moved to the probabilities of a release.

    Args:
      public: all public n-grams.
      rows: (V,) int64, distinct, the row of each n-gram of the release among the longest public ones.
      joint: (V,) float64 ≥ 0, some > 0, the probabilities of the release.

    Returns:
      The orders of the model, and the probability of `<unk>`. The sum of this probability and of those
      of all words is 1.
    """
    longest = public.counts[-1]
    prior = discounted(longest[rows])
    in_public_counts = joint * (prior.sum() / joint.sum())
    shares = _calibrated(in_public_counts, prior, longest[rows])
    ratios = _ratios(public, rows, prior, shares)
    kept: list[_Floats] = []
    back: list[_Floats] = []
    for k, ratio in enumerate(ratios):
        public_kept, public_discounts = _discounted_parts(public, k)
        kept.append(public_kept * ratio)
        back.append(public_discounts * ratio)
    # What the parts of the release's n-grams say of them, in the same sum as their shares.
    expected = prior * ratios[-1][rows]
    expected *= prior.sum() / expected.sum()
    kept[-1][rows] = _SHARE_WEIGHT * shares + (1 - _SHARE_WEIGHT) * expected
    unknown = _unknown(public.counts[0], public.lowest)
    return interpolated(public.tree, kept, back, unknown=unknown), unknown


def _calibrated(shares: _Floats, prior: _Floats, counts: _Ids) -> _Floats:
    """Returns the shares, multiplied such that each level of counts has the sum of its prior counts.

    Args:
      shares: (V,) float64, the shares of the release's n-grams, in units of public counts.
      prior: (V,) float64, their public counts after discounts.
      counts: (V,) int64, their public counts.
    """
    octaves = np.log2(np.maximum(counts, 1))
    levels = np.floor(_LEVELS_AN_OCTAVE * octaves).astype(np.int64)
    # The highest level that has enough n-grams together with those above takes these in.
    grams_of_levels = np.bincount(levels)
    at_least = np.cumsum(grams_of_levels[::-1])[::-1]
    highest = np.flatnonzero(at_least >= _LEAST_GRAMS).max(initial=0)
    levels = np.minimum(levels, highest)
    found = np.bincount(levels, shares)
    wanted = np.bincount(levels, prior)
    # A level without any share has none afterwards.
    factors = wanted / np.where(found > 0, found, 1.0)
    return shares * factors[levels]


def _ratios(public: PublicGrams, rows: _Ids, prior: _Floats, shares: _Floats) -> list[_Floats]:
    """Returns ρ of all n-grams: for each length, (m,) float64.

    Args:
      public: all public n-grams.
      rows: (V,) int64, the row of each n-gram of the release among the longest public ones.
      prior: (V,) float64, their public counts after discounts.
      shares: (V,) float64, their shares of the release, in units of public counts.
    """
    tree = public.tree
    longest = public.counts[-1]
    # a, s, and the part of o that is cut off, for each length.
    a = _sums_of_parts(tree, rows, prior)
    s = _sums_of_parts(tree, rows, shares)
    each_cut_off = np.full(longest.size, _cut_off(longest, public.lowest))
    cut_off = _sums_of_parts(tree, np.arange(longest.size), each_cut_off)
    # 1/τ², from words.
    least = _prior_counts(a[0], s[0])
    ratios: list[_Floats] = []
    for k, counts in enumerate(public.counts):
        expected = _expected_ratios(tree, ratios)
        if k == len(public.counts) - 1:
            ratios.append(expected)
        else:
            elsewhere = np.maximum(counts - a[k], 0.0) + cut_off[k]
            weight = least + _ELSEWHERE * elsewhere
            ratios.append((s[k] + weight * expected) / (a[k] + weight))
    return ratios


def _expected_ratios(tree: GramTree, shorter: Sequence[_Floats]) -> _Floats:
    """Returns ρ' of the n-grams of the next length, from ρ of all shorter ones: (m,) float64."""
    k = len(shorter)
    if k == 0:
        return np.ones(len(tree.last[0]))
    begins = tree.begins[k]
    expected = shorter[-1][begins] * shorter[-1][tree.ends[k]]
    if k > 1:
        # The words that both parts have: the end of the beginning.
        shared = tree.ends[k - 1][begins]
        expected = expected / shorter[-2][shared]
    return np.clip(expected, 1 / _MOST_RATIO, _MOST_RATIO)


def _prior_counts(before: _Floats, after: _Floats) -> float:
    """Returns 1/τ², estimated by moments.

    τ² is the variance of s/a over words, beyond the variance 1/a that a Poisson count a has by chance.

    Args:
      before: (W,) float64, a of all words.
      after: (W,) float64, s of all words.
    """
    least, most = _PRIOR_COUNTS
    is_frequent = before >= _LEAST_COUNT
    if not is_frequent.any():
        return least
    a = before[is_frequent]
    s = after[is_frequent]
    excesses = (s / a - 1) ** 2 - 1 / a
    weights = np.minimum(a, _MOST_WEIGHT)
    variance = float(np.average(excesses, weights=weights))
    return max(1 / max(variance, 1 / most), least)


def _sums_of_parts(tree: GramTree, rows: _Ids, weights: _Floats) -> list[_Floats]:
    """Returns how much weight the longest n-grams have that contain a part, averaged over its places.

    Args:
      tree: the n-grams.
      rows: (V,) int64, rows of the longest n-grams.
      weights: (V,) float64, their weights.

    Returns:
      For each length, (m,) float64. A part of k words has n − k + 1 possible places in an n-gram; for
      each place, the weights of the n-grams that have it there are added up, and the result is the
      mean of these sums.
    """
    whole = _added_up(rows, weights, len(tree.last[-1]))
    # For each place, the sums for all parts of the length that the loop is at, the first place first.
    of_places = [whole]
    longest_first = [whole]
    for k in range(len(tree.last) - 1, 0, -1):
        parts = len(tree.last[k - 1])
        # A beginning has the place of what it begins. The end of what is last has a place of its own.
        in_last_place = _added_up(tree.ends[k], of_places[-1], parts)
        of_places = [_added_up(tree.begins[k], own, parts) for own in of_places]
        of_places.append(in_last_place)
        longest_first.append(np.stack(of_places).mean(axis=0))
    return longest_first[::-1]


def _added_up(rows: _Ids, weights: _Floats, size: int) -> _Floats:
    """Returns the sum of the weights of each row: (size,) float64."""
    return np.bincount(rows, weights, minlength=size).astype(np.float64, copy=False)


def _discounted_parts(public: PublicGrams, k: int) -> tuple[_Floats, _Floats]:
    """Returns the two parts of each public count of the n-grams of k + 1 words.

    Returns:
      (m,) float64 each: the count after its discount; and the discount, which is left to back off.
    """
    counts = public.counts[k]
    lowest = public.lowest
    if lowest > 1:
        kept = np.maximum(counts - _CUT_DISCOUNT, 0.0)
        discounts = counts - kept
        return kept, discounts + _cut_off(counts, lowest)
    if k < len(public.counts) - 1:
        # The number of distinct words before each n-gram, as Kneser and Ney count.
        counts = np.bincount(public.tree.ends[k + 1], minlength=counts.size)
    # Counts above 3 have the discount of 3.
    discounts = _discounts(counts)[np.minimum(counts, 3)]
    return counts - discounts, discounts


def _discounts(counts: _Ids) -> _Floats:
    """Returns the discounts D(0) = 0, D(1), D(2) and D(3): (4,) float64.

    With N_c for the number of n-grams that occur c times, they are (Chen and Goodman, equation 17)

        D(c) = c − (c + 1) · N_1 / (N_1 + 2 N_2) · N_(c+1) / N_c.

    A small part of every count is left to back off, even if all counts are large.
    """
    numbers = [float((counts == number).sum()) for number in (1, 2, 3, 4)]
    if not numbers[0]:
        return np.array([0.0, _LEAST_DISCOUNT, _LEAST_DISCOUNT, _LEAST_DISCOUNT])
    ratio = numbers[0] / max(numbers[0] + 2 * numbers[1], 1.0)
    found = [0.0]
    for count, (own, next_number) in enumerate(itertools.pairwise(numbers), start=1):
        discount = count - (count + 1) * ratio * next_number / max(own, 1.0)
        at_least = max(discount, _LEAST_DISCOUNT)
        found.append(min(at_least, count - _LEAST_DISCOUNT))
    return np.array(found)


def _cut_off(counts: _Ids, lowest: int) -> float:
    """Returns the mass of all n-grams below the least count, divided by the number of the others.

    With the exponent γ of the power law and the least count t, it is

        Σ_{r < t} r · r^−γ / ζ(γ, t),

    and 0 if t = 1, where nothing was cut off.

    Args:
      counts: (m,) int64, the counts of the n-grams that are there.
      lowest: t.
    """
    if lowest == 1:
        return 0.0
    present = np.maximum(counts, lowest)
    sum_of_logs = float(np.log(present / (lowest - 0.5)).sum())
    exponent = 1 + present.size / sum_of_logs
    masses_below = np.arange(1, lowest, dtype=np.float64) ** (1 - exponent)
    return float(masses_below.sum() / scipy.special.zeta(exponent, lowest))


def _unknown(counts: _Ids, lowest: int) -> float:
    """Returns the share of words that were never seen, from the public counts of words."""
    total = float(counts.sum())
    if lowest > 1:
        missing = _cut_off(counts, lowest) * counts.size
        return missing / (missing + total)
    once = float((counts == 1).sum())
    # With 1 more, so that there is some in every model.
    return (once + 1) / (total + 2)
