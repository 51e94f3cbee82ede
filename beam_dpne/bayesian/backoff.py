"""A back-off language model from the probabilities of a release and its public counts.

The release says how common the n-grams of its vocabulary are in the private texts. It does not say how
much of a context's mass belongs to other words. The public counts say that, so the model is the
Kneser–Ney model of the public counts, moved to where the release says. Everything here is computed
from the release and public data, so that it costs no privacy.

*The public model.* The count c of an n-gram is lowered by a discount D(c), for c = 1, 2 and from 3 on,
estimated from the numbers of grams that occur once, twice, three and four times (modified Kneser–Ney).
After a context h, the discounts B(h) = Σ_w D(hw) are the part of its mass that shorter contexts divide:

    P(w | h) = ((c − D)(hw) + B(h) · P(w | h without its first word)) / (Σ_w (c − D)(hw) + B(h)).

Shorter n-grams are counted by the number of distinct words before them, as Kneser and Ney do.

*Moving it.* The release's grams of about the same public count may have a smaller share of it together
than of the public counts. They do if common grams are limited more than rare ones by the largest count
of a user, or if the public discount is too small, as for the most frequent grams of a text, which were
chosen for their counts. So the shares of each level of public counts are first made as large, in sum,
as the public ones (`_calibrated`). Only what sets a gram apart from those of its level is learned.

Discounted counts and discounts are then multiplied by ρ, which says how much more common a gram is in
the private texts. For words and other parts of the release's grams, a is the public count of the
release's grams that have the part (averaged over its places), s is their share of the release in the
same unit, and o is the public count of the part elsewhere:

    ρ = (s + k ρ') / (a + k),  k = 1/τ² + 0.3 o.

ρ' is what the part's own parts say: 1 for a word, ρ(v) ρ(w) for a pair, and ρ(uv) ρ(vw)/ρ(v) for three
words. τ² is the variance of s/a over words beyond the sampling of a. If the private texts are like the
public ones it is next to 0, and words are hardly moved. A whole n-gram has ρ = ρ'. The n-grams of the
release get the mean of this and of their share of the release: the share describes these users, and ρ'
is better for texts that are still to come. Their discount gets ρ' alone: a phrase that is much more
common than its parts leaves no more to back off.

*Other words.* `<unk>` has the share of words that occur once, the Good–Turing estimate for words that
were never seen.

*Counts that are cut off.* A file of counts, or a release, lacks rare n-grams. The mass of those below
the least count t is that of a power law fitted to the others, and each gram leaves its part of it to
back off, besides its discount. It is a part of o as well, since words are used in rare grams too.

References: Chen and Goodman 1999, "An empirical study of smoothing techniques for language modeling";
Good 1953, "The population frequencies of species and the estimation of population parameters"; Clauset,
Shalizi and Newman 2009, "Power-law distributions in empirical data", equation 3.7. The way to move
the model is ours; its constants were chosen on public texts.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from beam_dpne.bayesian.arpa import Order
from beam_dpne.bayesian.posterior import discounted
from beam_dpne.bayesian.public_orders import PublicOrders
from beam_dpne.mechanism import special

_Floats = npt.NDArray[np.float64]
_Ids = npt.NDArray[np.int64]

_ELSEWHERE = 0.3  # k = 1/τ² + 0.3 o
_PRIOR_COUNTS = (5.0, 1000.0)  # the range of 1/τ²
_LEAST_COUNT, _MOST_WEIGHT = 5.0, 50.0  # of words, for τ²
_LEVELS_AN_OCTAVE, _LEAST_GRAMS = 2, 30  # of public counts; the highest level has 30 grams or more
_MOST_RATIO = 1000.0
_SHARE_WEIGHT = 0.5  # of a share of the release, beside what its parts say
_LEAST_DISCOUNT = 0.05
_CUT_DISCOUNT = 0.9  # of counts that are cut off, as in `posterior.discounted`


class Model(NamedTuple):
    """A back-off model.

    Attributes:
      orders: the orders 1 to n; the words' ids are those of the public orders.
      unknown: the probability of `<unk>`, which sums to 1 with those of all words.
    """

    orders: list[Order]
    unknown: float


class _Parts(NamedTuple):
    """The counts of all k-grams in two parts, each (m,) float64 ≥ 0.

    Attributes:
      kept: what is left of each count after its discount.
      back: what each gram leaves to back off from its context.
    """

    kept: _Floats
    back: _Floats


def adapted_model(public: PublicOrders, rows: _Ids, joint: _Floats, *, min_count: int = 1) -> Model:
    """Returns the model of the public counts, moved to the probabilities of a release.

    Args:
      public: all public n-grams.
      rows: (V,) the row of each n-gram of the release among the longest public grams, distinct.
      joint: (V,) the probabilities of the release, ≥ 0, some > 0.
      min_count: other n-grams of two words and more are left out if their public count is less, and
        what they have goes to back-off.

    Raises:
      ValueError: joint has no probability > 0, or some that is negative or not finite.
    """
    if not (np.isfinite(joint).all() and (joint >= 0).all() and (joint > 0).any()):
        raise ValueError("joint must be finite numbers >= 0, of which some are > 0.")
    longest = public.orders[-1].counts
    prior = discounted(longest[rows])
    shares = _calibrated(joint * (prior.sum() / joint.sum()), prior, longest[rows])
    lowest = 1 if public.is_whole else max(1, int(longest.min()))
    ratios = _ratios(public, rows, prior, shares, lowest)
    parts = []
    for size, ratio in enumerate(ratios, start=1):
        kept, back = _discounted_parts(_kinds(public, size), lowest)
        parts.append(_Parts(kept * ratio, back * ratio))
    expected = prior * ratios[-1][rows]
    expected *= prior.sum() / expected.sum()
    parts[-1].kept[rows] = _SHARE_WEIGHT * shares + (1 - _SHARE_WEIGHT) * expected
    unknown = _unknown(public.orders[0].counts, lowest)
    return Model(_orders(public, parts, _listed(public, rows, min_count), unknown), unknown)


def _calibrated(shares: _Floats, prior: _Floats, counts: _Ids) -> _Floats:
    """Returns the shares with the sums of the prior counts in each level of the public counts."""
    # (V,) Levels are half an octave wide, except the highest, which has all common grams.
    levels = np.floor(_LEVELS_AN_OCTAVE * np.log2(np.maximum(counts, 1))).astype(np.int64)
    at_least = np.cumsum(np.bincount(levels)[::-1])[::-1]
    levels = np.minimum(levels, np.flatnonzero(at_least >= _LEAST_GRAMS).max(initial=0))
    found, wanted = np.bincount(levels, shares), np.bincount(levels, prior)
    # A level without any share has none afterwards.
    return shares * (wanted / np.where(found > 0, found, 1.0))[levels]


def _ratios(
    public: PublicOrders, rows: _Ids, prior: _Floats, shares: _Floats, lowest: int
) -> list[_Floats]:
    """Returns ρ of all grams of the lengths 1 to n."""
    ratios: list[_Floats] = []
    before, after = (_sums_of_parts(public, rows, weights) for weights in (prior, shares))
    longest = public.orders[-1].counts
    cut_off = _sums_of_parts(
        public, np.arange(longest.size), np.full(longest.size, _cut_off(longest, lowest))
    )
    least = _prior_counts(before[0], after[0])
    for size, order in enumerate(public.orders, start=1):
        ratio = np.ones(len(order))
        if size > 1:
            ratio = ratios[-1][order.begins] * ratios[-1][order.ends]
        if size > 2:
            # The words that both parts have: the end of the beginning.
            ratio = ratio / ratios[-2][public.orders[size - 2].ends[order.begins]]
        ratio = np.clip(ratio, 1 / _MOST_RATIO, _MOST_RATIO)
        if size < len(public.orders):
            elsewhere = np.maximum(order.counts - before[size - 1], 0.0) + cut_off[size - 1]
            weight = least + _ELSEWHERE * elsewhere
            ratio = (after[size - 1] + weight * ratio) / (before[size - 1] + weight)
        ratios.append(ratio)
    return ratios


def _prior_counts(before: _Floats, after: _Floats) -> float:
    """Returns 1/τ², with τ² the variance of s/a beyond that of a Poisson count a, by moments."""
    least, most = _PRIOR_COUNTS
    frequent = before >= _LEAST_COUNT
    if not frequent.any():
        return least
    a, s = before[frequent], after[frequent]
    excess = np.average((s / a - 1) ** 2 - 1 / a, weights=np.minimum(a, _MOST_WEIGHT))
    return max(1 / max(float(excess), 1 / most), least)


def _sums_of_parts(public: PublicOrders, rows: _Ids, weights: _Floats) -> list[_Floats]:
    """Returns, by length, the weights of the longest grams that have a part, averaged over places."""
    # For each place that a part has in the longest grams, the sums of their weights.
    places = [np.bincount(rows, weights, minlength=len(public.orders[-1]))]
    found = [np.asarray(places[0], np.float64)]
    for order, below in zip(public.orders[:0:-1], public.orders[-2::-1], strict=True):
        ended = np.bincount(order.ends, places[-1], minlength=len(below))
        begun = [np.bincount(order.begins, each, minlength=len(below)) for each in places]
        places = [*begun, ended]
        found.append(np.stack(places).mean(axis=0))
    return found[::-1]


def _kinds(public: PublicOrders, size: int) -> _Ids:
    """Returns the counts by which k-grams are weighed: of distinct words before, if that is known."""
    order = public.orders[size - 1]
    if size == len(public.orders) or not public.is_whole:
        return order.counts
    return np.bincount(public.orders[size].ends, minlength=len(order))


def _discounted_parts(counts: _Ids, lowest: int) -> _Parts:
    if lowest == 1:
        discounts = _discounts(counts)[np.minimum(counts, 3)]
        return _Parts(counts - discounts, discounts)
    kept = np.maximum(counts - _CUT_DISCOUNT, 0.0)
    return _Parts(kept, np.add(counts - kept, _cut_off(counts, lowest), dtype=np.float64))


def _discounts(counts: _Ids) -> _Floats:
    """Returns D(0) = 0, D(1), D(2) and D(3), which is that of larger counts too.

    A small part of every count is left to back off, even if all counts are large.

    References: Chen and Goodman, equation 17.
    """
    numbers = [float((counts == number).sum()) for number in (1, 2, 3, 4)]
    ratio = numbers[0] / max(numbers[0] + 2 * numbers[1], 1.0)
    found = [0.0]
    for count, less, more in zip((1, 2, 3), numbers[:-1], numbers[1:], strict=True):
        discount = count - (count + 1) * ratio * more / max(less, 1.0)
        found.append(min(max(discount, _LEAST_DISCOUNT), count - _LEAST_DISCOUNT))
    return np.array(found if numbers[0] else [0.0, *(3 * [_LEAST_DISCOUNT])])


def _cut_off(counts: _Ids, lowest: int) -> float:
    """Returns the mass of all grams with counts below `lowest`, for each gram that is there.

    Nothing was cut off if `lowest` is 1.

    References: Clauset, Shalizi and Newman, equation 3.7; the sum of r·r^−γ below t beside ζ(γ, t).
    """
    if lowest == 1:
        return 0.0
    present = np.maximum(counts, lowest)
    exponent = 1 + present.size / float(np.log(present / (lowest - 0.5)).sum())
    below = np.arange(1, lowest, dtype=np.float64) ** (1 - exponent)
    return float(below.sum() / special.zeta(exponent, lowest))


def _unknown(counts: _Ids, lowest: int) -> float:
    """Returns the share of words that were never seen, from the public counts of words."""
    total = float(counts.sum())
    if lowest > 1:
        missing = _cut_off(counts, lowest) * counts.size
        return missing / (missing + total)
    # With 1 more, so that there is some in every model.
    return (float((counts == 1).sum()) + 1) / (total + 2)


def _listed(public: PublicOrders, rows: _Ids, min_count: int) -> list[npt.NDArray[np.bool_]]:
    """Returns which grams of each length are listed; their beginnings and ends always are."""
    listed = [order.counts >= min_count for order in public.orders]
    listed[0][:] = True
    listed[-1][rows] = True
    for size in range(len(listed) - 1, 0, -1):
        order = public.orders[size]
        for parts in (order.begins, order.ends):
            listed[size - 1][parts[listed[size]]] = True
    return listed


def _orders(
    public: PublicOrders,
    parts: list[_Parts],
    listed: list[npt.NDArray[np.bool_]],
    unknown: float,
) -> list[Order]:
    """Returns the interpolated probabilities of all listed grams, and the weights of back-off."""
    # Words divide evenly among them what they leave.
    (kept, back), *longer = parts
    shares = kept + back.sum() / kept.size
    probabilities = shares / shares.sum() * (1 - unknown)
    orders = [Order(public.grams(1), probabilities, np.ones(kept.size))]
    for size, (kept, back) in enumerate(longer, start=2):
        order, present = public.orders[size - 1], listed[size - 1]
        left = np.bincount(
            order.begins,
            np.where(present, back, back + kept),
            minlength=len(public.orders[size - 2]),
        )
        seen = np.bincount(order.begins, np.where(present, kept, 0), minlength=left.size)
        whole = seen + left
        has_mass = whole > 0
        whole = np.where(has_mass, whole, 1.0)
        backoffs = np.where(has_mass, left / whole, 1.0)
        lower = backoffs[order.begins] * probabilities[order.ends]
        probabilities = kept / whole[order.begins] + lower
        orders[-1] = orders[-1]._replace(backoffs=backoffs)
        orders.append(Order(public.grams(size), probabilities, np.ones(kept.size)))
    return [
        Order(order.grams[present], order.probabilities[present], order.backoffs[present])
        for order, present in zip(orders, listed, strict=True)
    ]
