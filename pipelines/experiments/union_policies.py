"""Policies of set union that the papers compare and the product does not have, in memory.

They reproduce tables in floating point, under noise of a seed. They are NOT private releases.

In "count_laplace" and "count_gaussian" each item of a user gets 1, in "weighted_laplace" 1/n. In
"policy_laplace" and "greedy" users take turns, and each pours a weight of 1 into items below the cutoff
Γ: evenly, or into the user's most frequent items first. In "mad" and "mad2r" (after Chen et al. 2025)
weight above a cutoff τ is given back to the users it came from, who spread a discounted part of it over
all of their items; "mad2r" does so in two rounds, of which the second gives less weight to items that
probably have enough.

References: Gopi et al., "Differentially Private Set Union" (ICML 2020); Carvalho et al. 2022 for
"greedy"; Chen et al., "Scalable Private Partition Selection via Adaptive Weighting" (ICML 2025).
"""

import dataclasses
import importlib.util
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy

from beam_dpne.mechanism.gaussian import gaussian_noise_stddev
from beam_dpne.mechanism.thresholds import alone_tail, vocabulary_threshold

LAPLACE = ("count_laplace", "weighted_laplace", "policy_laplace", "greedy")
POLICIES = (*LAPLACE, "count_gaussian", "mad", "mad2r")
DESCENT_MARGIN = 5.0
MAD_MARGIN = 2.0
MOST_REROUTED = 50
# Of the rounds of "mad2r": parts of the budget and of δ_T, the cut of the first, and the least bias.
MAD2R_SHARES = (0.3, 0.7)
MAD2R_DELTA_SHARES = (0.1, 0.9)
MAD2R_CUT = 1.0
LEAST_BIAS = 0.125
_LEAST_WEIGHT = 2.0**-50
_Floats = np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnionParameters:
    """The parameters of one run: ε, δ, the policy, and Δ_0, the most items that one user adds."""

    epsilon: float
    delta: float
    policy: str
    max_contributions: int

    def to_dict(self) -> dict[str, Any]:
        """Returns the parameters as JSON types."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, eq=False)
class Holdings:
    """The distinct items of each user (CSR), with numbers of occurrences.

    Attributes:
      offsets: (n + 1,) int64, where each user's entries begin.
      items: (m,) integers in range(size).
      counts: (m,) integers, how often the user has each item.
      size: the number of items.
    """

    offsets: np.ndarray
    items: np.ndarray
    counts: np.ndarray
    size: int

    @property
    def users(self) -> np.ndarray:
        """The user of each entry: (m,)."""
        return np.repeat(np.arange(self.offsets.size - 1), np.diff(self.offsets))

    def kept(self, chosen: np.ndarray) -> "Holdings":
        """Returns some of the entries, (m,) bool."""
        sizes = np.bincount(self.users[chosen], minlength=self.offsets.size - 1)
        offsets = np.append(0, np.cumsum(sizes))
        return Holdings(offsets, self.items[chosen], self.counts[chosen], self.size)

    def summed(self, weights: _Floats) -> _Floats:
        """Returns the sum of the entries' weights for each item: (size,)."""
        return np.bincount(self.items, weights, minlength=self.size)


def release_items(held: Holdings, run: UnionParameters, seed: int) -> np.ndarray:
    """Returns the items that a policy releases, ascending.

    Args:
      held: the items of all users, in the order in which they take turns once shuffled.
      run: the parameters.
      seed: seed of the order, the subsets and the noise.
    """
    rng = np.random.default_rng(seed)
    if run.policy in ("mad", "mad2r"):
        return _rerouted(held, run, rng)
    limited = limit(held, run, rng)
    scale, threshold = noise_and_threshold(run)
    weights = weigh(limited, run, threshold + DESCENT_MARGIN * scale, rng)
    draw = rng.laplace if run.policy in LAPLACE else rng.normal
    return np.flatnonzero((weights > 0) & (weights + draw(0, scale, held.size) > threshold))


def limit(held: Holdings, run: UnionParameters, rng: np.random.Generator) -> Holdings:
    """Returns at most Δ_0 items of each user: a random subset or, for "greedy", the most frequent."""
    user = held.users
    draws = rng.random(held.items.size)
    first = -held.counts if run.policy == "greedy" else np.zeros_like(held.counts)
    order = np.lexsort((draws, first, user))
    place = np.empty(order.size, np.int64)
    place[order] = np.arange(order.size) - held.offsets[user[order]]
    return held.kept(place < run.max_contributions)


def weigh(held: Holdings, run: UnionParameters, cutoff: float, rng: np.random.Generator) -> _Floats:
    """Returns the weights of all items under a policy that does not reroute: (size,)."""
    if run.policy.startswith("count"):
        return held.summed(np.ones(held.items.size))
    sizes = np.diff(held.offsets)
    if run.policy == "weighted_laplace":
        return held.summed(np.repeat(1 / np.maximum(sizes, 1), sizes))
    turns = rng.permutation(sizes.size)
    keys = (turns[held.users], -held.counts) if run.policy == "greedy" else (turns[held.users],)
    order = np.lexsort(keys[::-1])
    offsets = np.append(0, np.cumsum(sizes[np.argsort(turns)]))
    histogram = np.zeros(held.size)
    pour = fill_in_order if run.policy == "greedy" else fill_evenly
    _compiled(pour)(offsets, held.items[order].astype(np.int64), histogram, cutoff)
    return histogram


def noise_and_threshold(run: UnionParameters) -> tuple[float, float]:
    """Returns λ or σ, and ρ, of a policy that does not reroute.

    References: DPSU section 1.1, Theorems 3.1 and 4.1.

    >>> one = UnionParameters(
    ...     epsilon=3, delta=math.exp(-10), policy="policy_laplace", max_contributions=100)
    >>> [round(number, 5) for number in noise_and_threshold(one)]
    [0.33333, 4.64733]
    """
    most = run.max_contributions
    if run.policy == "count_gaussian":
        scale = math.sqrt(most) * gaussian_noise_stddev(epsilon=run.epsilon, delta=run.delta / 2)
        tail = alone_tail(run.delta / 2, np.array([float(most)]))
        return scale, 1 - scale * float(scipy.special.ndtri(tail)[0])
    scale = (most if run.policy == "count_laplace" else 1) / run.epsilon
    if run.policy == "greedy":
        return scale, greedy_threshold(scale, run.delta, most)
    numbers = np.arange(1, most + 1, dtype=np.float64)
    tails = alone_tail(run.delta, numbers)
    quantiles = np.where(
        tails <= 0.5, -np.log(2 * np.minimum(tails, 0.5)), np.log(2 * np.maximum(1 - tails, 1e-300))
    )
    if run.policy == "count_laplace":
        return scale, 1 + scale * float(quantiles[-1])
    return scale, float(np.max(1 / numbers + scale * quantiles))


def greedy_threshold(scale: float, delta: float, max_contributions: int) -> float:
    """Returns ρ ≥ 1 with 1 − (1 − P(Lap(λ) > ρ − 1)) (1 − P(Lap(λ) > ρ))^{Δ−1} = δ.

    Of Δ items of one user alone, one may get the whole budget, and the others little, but more than 0.
    Any other division is released with less probability, by convexity.
    """

    def missing(threshold: float) -> float:
        first, other = (0.5 * math.exp(-(threshold - w) / scale) for w in (1.0, 0.0))
        log_none = math.log1p(-first) + (max_contributions - 1) * math.log1p(-other)
        return math.log1p(-delta) - log_none

    return max(1.0, _root(missing, 1.0))


def uneven_threshold(stddev: float, delta: float, max_contributions: int) -> float:
    """Returns ρ ≥ 2, above which items of one user alone come with probability ≤ δ for all weights.

    The squares of the weights of at most Δ items add up to at most 1. At the worst division all but at
    most one of them are equal, so that one weight is searched on a grid.
    """
    weights = np.linspace(1 / math.sqrt(max_contributions), 1.0, 4001)
    others = max_contributions - 1
    rest = np.sqrt(np.maximum(1 - weights**2, 0.0) / max(others, 1))

    def excess(threshold: float) -> float:
        first = -np.log1p(-scipy.special.ndtr((weights - threshold) / stddev))
        other = -np.log1p(-scipy.special.ndtr((rest - threshold) / stddev))
        return float(np.max(first + others * other)) + math.log1p(-delta)

    return max(2.0, _root(excess, 2.0))


def fill_evenly(offsets, items, histogram, cutoff):
    """Lets each user in turn raise all own items alike by 1 in all, until they are full.

    References: DPSU Algorithm 3 (ℓ1-descent).
    """
    for user in range(len(offsets) - 1):
        left = 1.0
        active = 0
        for entry in range(offsets[user], offsets[user + 1]):
            if histogram[items[entry]] < cutoff:
                active += 1
        filling = active > 0
        while filling:
            filling = False
            share = left / active
            for entry in range(offsets[user], offsets[user + 1]):
                gap = cutoff - histogram[items[entry]]
                if 0.0 < gap <= share:
                    histogram[items[entry]] = cutoff
                    left -= gap
                    active -= 1
                    filling = active > 0
        if active > 0:
            share = left / active
            for entry in range(offsets[user], offsets[user + 1]):
                if histogram[items[entry]] < cutoff:
                    histogram[items[entry]] += share


def fill_in_order(offsets, items, histogram, cutoff):
    """Lets each user in turn fill own items one after the other, after 2^-50 for each of them.

    Without the first step an item could have no weight although a user has it, and the threshold
    counts the items of one user. (The published algorithm lacks it.)
    """
    for user in range(len(offsets) - 1):
        left = 1.0
        for entry in range(offsets[user], offsets[user + 1]):
            if histogram[items[entry]] < cutoff:
                histogram[items[entry]] += _LEAST_WEIGHT
                left -= _LEAST_WEIGHT
        for entry in range(offsets[user], offsets[user + 1]):
            step = min(left, max(cutoff - histogram[items[entry]], 0.0))
            histogram[items[entry]] += step
            left -= step


def mad_weights(held: Holdings, cutoff: float, most: int, biases: _Floats) -> _Floats:
    """Returns the weights of all items, of which no user moves more than 1 in ℓ2: (size,).

    Args:
      held: limited items.
      cutoff: τ, beyond which weight is given back.
      most: d_max; users with more items than this do not take part in it.
      biases: (size,) how much weight each item gets beside a user's others, in (0, 1].
    """
    sizes = np.diff(held.offsets)
    user = held.users
    takes_part = (sizes > 1) & (sizes <= most)
    even = np.where(takes_part, 1 / np.maximum(sizes, 1), 0.0)
    own = biases[held.items]
    initial = np.where(own == 1, even[user], 0.0)
    first = held.summed(initial)
    excess = np.maximum(0.0, 1 - cutoff / np.maximum(first, cutoff))
    returned = even * np.bincount(
        user, np.where(own == 1, excess[held.items], 0), minlength=sizes.size
    )
    discount = np.sqrt(sizes) * (1 / math.sqrt(most) - 1 / (2 * most))
    spread = np.minimum(1, discount) * returned * even
    squares = np.bincount(user, own**2, minlength=sizes.size)
    rest = own / np.sqrt(squares[user]) + np.where(initial > 0, spread[user], 0) - initial
    return np.minimum(first, cutoff) + held.summed(rest)


def _rerouted(held: Holdings, run: UnionParameters, rng: np.random.Generator) -> np.ndarray:
    """Returns what "mad" or "mad2r" releases, over one round or two."""
    has_two = run.policy == "mad2r"
    shares = tuple(zip(MAD2R_SHARES, MAD2R_DELTA_SHARES, strict=True)) if has_two else ((1.0, 1.0),)
    most = run.max_contributions
    half = run.delta / 2
    whole = gaussian_noise_stddev(epsilon=run.epsilon, delta=half)
    stddevs = [whole / math.sqrt(budget) for budget, _ in shares]
    thresholds = [
        uneven_threshold(sigma, share * half, most)
        if number
        else vocabulary_threshold(noise_stddev=sigma, delta=share * half, max_contributions=most)
        for number, (sigma, (_, share)) in enumerate(zip(stddevs, shares, strict=True))
    ]
    biases = np.ones(held.size)
    found = []
    for number, (sigma, threshold) in enumerate(zip(stddevs, thresholds, strict=True)):
        limited = limit(held, run, rng)
        cutoff = threshold + MAD_MARGIN * sigma
        weights = mad_weights(limited, cutoff, min(most, MOST_REROUTED), biases)
        noisy = weights + rng.normal(0, sigma, held.size)
        is_found = (weights > 0) & (noisy > threshold)
        found.append(np.flatnonzero(is_found))
        if number + 1 < len(thresholds):
            still_open = ~is_found & (noisy > MAD2R_CUT * sigma)
            enough = thresholds[number + 1] / (np.maximum(noisy, 0) + sigma)
            biases = np.clip(enough, LEAST_BIAS, 1.0)
            held = held.kept(still_open[held.items])
    return np.sort(np.concatenate(found))


def _compiled(loop: Callable[..., None]) -> Callable[..., None]:
    """Compiles a loop if numba is installed (extra `fast`)."""
    if importlib.util.find_spec("numba") is None:
        return loop
    return importlib.import_module("numba").njit(loop)


def _root(excess: Callable[[float], float], low: float) -> float:
    """Returns where a falling function of a threshold ≥ low is 0, or low."""
    if excess(low) <= 0:
        return low
    high = 2 * low
    while excess(high) > 0:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high
