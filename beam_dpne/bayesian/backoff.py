"""A back-off language model from the probabilities of a release and its public counts.

A release of n-gram probabilities does not say how much of a context's mass other words have. The public
counts do, so its model is the Kneser–Ney model of the public counts, moved to where the release says.
Everything is computed from the release and public data, so that it costs no privacy.

*The public model.* The count c of an n-gram is lowered by a discount D(c), for c = 1, 2 and from 3 on,
estimated from the numbers of grams that occur once, twice, three and four times (modified Kneser–Ney).
After a context h, the discounts B(h) = Σ_w D(hw) are the part of its mass that shorter contexts divide:

    P(w | h) = ((c − D)(hw) + B(h) · P(w | h without its first word)) / (Σ_w (c − D)(hw) + B(h)).

Shorter n-grams are counted by the number of distinct words before them, as Kneser and Ney do.

*Moving it.* Shares of the release's grams of about one public count are first made as large, in sum, as
the public ones (`_calibrated`): a largest count of a user limits common grams more than rare ones. Then
discounted counts and discounts are multiplied by ρ, which says how much more common a gram is in the
private texts. For words and other parts of the release's grams, a is the public count of the release's
grams that have the part (averaged over its places), s is their share of the release in the same unit,
and o is the public count of the part elsewhere:

    ρ = (s + k ρ') / (a + k),  k = 1/τ² + 0.3 o.

ρ' is what the part's own parts say: 1 for a word, ρ(v) ρ(w) for a pair, and ρ(uv) ρ(vw)/ρ(v) for three
words. τ² is the variance of s/a over words beyond the sampling of a: next to 0 if the private texts are
like the public ones. A whole n-gram has ρ = ρ', and those of the release get the mean of this and of
their share: the share describes these users, and ρ' is better for texts that are still to come. Their
discount gets ρ' alone: a phrase that is much more common than its parts leaves no more to back off.

*Other words.* `<unk>` has the share of words that occur once, the Good–Turing estimate. A file of
counts or a release lacks rare n-grams: the mass of those below the least count t is that of a power law
fitted to the others, and each gram leaves its part of it to back off. It is a part of o as well.

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
from beam_dpne.bayesian.public_counts import PublicCounts
from beam_dpne.elements.arrays import byte_order, places_in

_Floats = npt.NDArray[np.float64]
_Ids = npt.NDArray[np.int64]

_ELSEWHERE = 0.3  # k = 1/τ² + 0.3 o
_PRIOR_COUNTS = (5.0, 1000.0)  # the range of 1/τ²
# Of words, for τ².
_LEAST_COUNT = 5.0
_MOST_WEIGHT = 50.0
# Levels of public counts; the highest has 30 grams or more.
_LEVELS_AN_OCTAVE = 2
_LEAST_GRAMS = 30
_MOST_RATIO = 1000.0
_SHARE_WEIGHT = 0.5  # of a share of the release, beside what its parts say
_LEAST_DISCOUNT = 0.05
_CUT_DISCOUNT = 0.9  # of counts that are cut off, as in `posterior.discounted`


class PublicGrams:
    """Public counts of all lengths up to n; counts of shorter n-grams that are missing are filled in.

    A text has n-grams of all lengths, a file of counts those of one, a release some of each. A shorter
    n-gram has at least the count that the longer ones have together which begin, or end, with it.

    Attributes:
      words: (W,) Arrow strings, sorted by bytes.
      tree: the n-grams.
      counts: for each length, (m,) int64 ≥ 0.
      lowest: the least count of the longest n-grams, below which they are cut off; 1 if they are whole.
    """

    def __init__(self, counted: Sequence[PublicCounts]):
        """Takes public counts of distinct lengths, the longest ones last."""
        words = pa.concat_arrays([each.words for each in counted]).unique()
        self.words = words.take(pa.array(byte_order(words)))
        tables = [self._ids(each) for each in counted]
        self.tree = tree = GramTree.of(len(words), tables)
        self.counts = counts = tree.placed(tables, [each.counts for each in counted])
        for size in range(len(counts) - 1, 0, -1):
            for parts in (tree.begins[size], tree.ends[size]):
                # Sums of public counts are at most 2^62, where float64 would not be exact.
                sums = np.zeros_like(counts[size - 1])
                np.add.at(sums, parts, counts[size])
                counts[size - 1] = np.maximum(counts[size - 1], sums)
        self.lowest = max(1, int(counts[-1].min()))

    def rows_of(self, public: PublicCounts) -> _Ids:
        """Returns the row of each public n-gram among those of its length, all of which are here."""
        return self.tree.rows_of(self._ids(public))

    def _ids(self, public: PublicCounts) -> npt.NDArray[np.integer]:
        return places_in(public.words, self.words)[public.grams]


def adapted_model(public: PublicGrams, rows: _Ids, joint: _Floats) -> tuple[list[Order], float]:
    """Returns the model of the public counts, moved to the probabilities of a release.

    Args:
      public: all public n-grams.
      rows: (V,) the row of each n-gram of the release among the longest public ones, distinct.
      joint: (V,) the probabilities of the release, ≥ 0, some > 0.

    Returns:
      The orders, and the probability of `<unk>`, which sums to 1 with those of all words.
    """
    longest = public.counts[-1]
    prior = discounted(longest[rows])
    shares = _calibrated(joint * (prior.sum() / joint.sum()), prior, longest[rows])
    ratios = _ratios(public, rows, prior, shares)
    parts = [_discounted_parts(public, size) for size in range(len(ratios))]
    kept, back = (
        [part * ratio for part, ratio in zip(each, ratios, strict=True)]
        for each in zip(*parts, strict=True)
    )
    expected = prior * ratios[-1][rows]
    expected *= prior.sum() / expected.sum()
    kept[-1][rows] = _SHARE_WEIGHT * shares + (1 - _SHARE_WEIGHT) * expected
    unknown = _unknown(public.counts[0], public.lowest)
    return interpolated(public.tree, kept, back, unknown=unknown), unknown


def _calibrated(shares: _Floats, prior: _Floats, counts: _Ids) -> _Floats:
    """Returns the shares with the sums of the prior counts in each level of the public counts."""
    # (V,) Levels are half an octave wide, except the highest, which has all common grams.
    levels = np.floor(_LEVELS_AN_OCTAVE * np.log2(np.maximum(counts, 1))).astype(np.int64)
    at_least = np.cumsum(np.bincount(levels)[::-1])[::-1]
    levels = np.minimum(levels, np.flatnonzero(at_least >= _LEAST_GRAMS).max(initial=0))
    found = np.bincount(levels, shares)
    wanted = np.bincount(levels, prior)
    # A level without any share has none afterwards.
    return shares * (wanted / np.where(found > 0, found, 1.0))[levels]


def _ratios(public: PublicGrams, rows: _Ids, prior: _Floats, shares: _Floats) -> list[_Floats]:
    """Returns ρ of all grams of the lengths 1 to n."""
    tree = public.tree
    longest = public.counts[-1]
    before, after = (_sums_of_parts(tree, rows, weights) for weights in (prior, shares))
    each_cut = np.full(longest.size, _cut_off(longest, public.lowest))
    cut_off = _sums_of_parts(tree, np.arange(longest.size), each_cut)
    least = _prior_counts(before[0], after[0])
    ratios: list[_Floats] = []
    for k, counts in enumerate(public.counts):
        ratio = np.ones(counts.size)
        if k > 0:
            ratio = ratios[-1][tree.begins[k]] * ratios[-1][tree.ends[k]]
        if k > 1:
            # The words that both parts have: the end of the beginning.
            ratio = ratio / ratios[-2][tree.ends[k - 1][tree.begins[k]]]
        ratio = np.clip(ratio, 1 / _MOST_RATIO, _MOST_RATIO)
        if k < len(public.counts) - 1:
            weight = least + _ELSEWHERE * (np.maximum(counts - before[k], 0.0) + cut_off[k])
            ratio = (after[k] + weight * ratio) / (before[k] + weight)
        ratios.append(ratio)
    return ratios


def _prior_counts(before: _Floats, after: _Floats) -> float:
    """Returns 1/τ², with τ² the variance of s/a beyond that of a Poisson count a, by moments."""
    least, most = _PRIOR_COUNTS
    frequent = before >= _LEAST_COUNT
    if not frequent.any():
        return least
    a = before[frequent]
    s = after[frequent]
    excess = np.average((s / a - 1) ** 2 - 1 / a, weights=np.minimum(a, _MOST_WEIGHT))
    return max(1 / max(float(excess), 1 / most), least)


def _sums_of_parts(tree: GramTree, rows: _Ids, weights: _Floats) -> list[_Floats]:
    """Returns, by length, the weights of the longest grams that have a part, averaged over places."""
    # For each place that a part has in the longest grams, the sums of their weights.
    places = [np.bincount(rows, weights, minlength=len(tree.last[-1]))]
    found = [np.asarray(places[0], np.float64)]
    for k in range(len(tree.last) - 1, 0, -1):
        below = len(tree.last[k - 1])
        ended = np.bincount(tree.ends[k], places[-1], minlength=below)
        places = [*(np.bincount(tree.begins[k], each, minlength=below) for each in places), ended]
        found.append(np.stack(places).mean(axis=0))
    return found[::-1]


def _discounted_parts(public: PublicGrams, k: int) -> tuple[_Floats, _Floats]:
    """Returns each count after its discount, and the discount itself, which shorter n-grams get."""
    counts = public.counts[k]
    lowest = public.lowest
    if lowest > 1:
        kept = np.maximum(counts - _CUT_DISCOUNT, 0.0)
        return kept, counts - kept + _cut_off(counts, lowest)
    if k < len(public.counts) - 1:
        counts = np.bincount(public.tree.ends[k + 1], minlength=counts.size)
    discounts = _discounts(counts)[np.minimum(counts, 3)]
    return counts - discounts, discounts


def _discounts(counts: _Ids) -> _Floats:
    """Returns D(0) = 0, D(1), D(2) and D(3), which is that of larger counts too; see equation 17.

    A small part of every count is left to back off, even if all counts are large.
    """
    numbers = [float((counts == number).sum()) for number in (1, 2, 3, 4)]
    ratio = numbers[0] / max(numbers[0] + 2 * numbers[1], 1.0)
    found = [0.0]
    for count, (less, more) in enumerate(itertools.pairwise(numbers), start=1):
        discount = count - (count + 1) * ratio * more / max(less, 1.0)
        found.append(min(max(discount, _LEAST_DISCOUNT), count - _LEAST_DISCOUNT))
    return np.array(found if numbers[0] else [0.0, *(3 * [_LEAST_DISCOUNT])])


def _cut_off(counts: _Ids, lowest: int) -> float:
    """Returns the mass of all grams with counts below `lowest`, for each gram that is there.

    It is the sum of r·r^−γ below t beside ζ(γ, t); nothing was cut off if `lowest` is 1.
    """
    if lowest == 1:
        return 0.0
    present = np.maximum(counts, lowest)
    exponent = 1 + present.size / float(np.log(present / (lowest - 0.5)).sum())
    below = np.arange(1, lowest, dtype=np.float64) ** (1 - exponent)
    return float(below.sum() / scipy.special.zeta(exponent, lowest))


def _unknown(counts: _Ids, lowest: int) -> float:
    """Returns the share of words that were never seen, from the public counts of words."""
    total = float(counts.sum())
    if lowest > 1:
        missing = _cut_off(counts, lowest) * counts.size
        return missing / (missing + total)
    # With 1 more, so that there is some in every model.
    return (float((counts == 1).sum()) + 1) / (total + 2)
