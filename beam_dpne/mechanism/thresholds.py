"""Thresholds of words, items and n-grams, and the error bounds of set union.

Plain functions of public parameters. A user who holds words or items that nobody else holds must not be
seen through them: the threshold keeps the probability that any of them is released at δ. How much
weight t such items can have depends on the policy, and each function below is one such case; the
strategy `adaptive` has its thresholds in `ngrams.adaptive`. At lengths k ≥ 2 the threshold limits the
spurious n-grams instead. DPSU is Gopi et al., "Differentially Private Set Union" (ICML 2020); DPNE is
Kim et al., "Differentially Private n-gram Extraction" (NeurIPS 2021).
"""

import math
from collections.abc import Callable

import numpy as np

from beam_dpne.mechanism import special
from beam_dpne.mechanism.special import find_root

GRID_BITS = 50
REROUTING_MARGIN = 2.0**-45
EXACT_HELD = 1_000_000
_GRID, _REFINEMENTS = 1025, 4


def laplace_quantiles(probabilities: np.ndarray) -> np.ndarray:
    """Returns x with P(Lap(1) > x) = p, from whichever tail keeps its digits."""
    upper = -np.log(2 * np.minimum(probabilities, 0.5))
    lower = np.log(2 * np.maximum(1 - probabilities, 1e-300))
    return np.where(probabilities <= 0.5, upper, lower)


def alone_tail(delta: float, counts: np.ndarray) -> np.ndarray:
    """Returns 1 − (1 − δ)^{1/t}, the probability with which each of t equal items may be released."""
    return -np.expm1(math.log1p(-delta) / counts)


def vocabulary_threshold(*, noise_stddev: float, delta: float, max_contributions: int) -> float:
    """Returns ρ_1, for which words of one user alone are released with probability ≤ δ_T.

    ρ_1 = max over 1 ≤ t ≤ Δ_1 of 1/√t + σ_1 Φ^{-1}((1 − δ_T)^{1/t}): a user alone with t words
    gives each of them 1/√t. The quantile is taken from the upper tail, where it keeps its digits.

    Args:
      noise_stddev: σ_1, in units of weight.
      delta: δ_T, the part of δ that the vocabulary may spend.
      max_contributions: Δ_1.

    References: DPNE Theorem 2.1 (weighted Gaussian policy).
    """

    def bounds(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return 1 / np.sqrt(counts), noise_stddev * -special.ndtri(alone_tail(delta, counts))

    return _largest_sum(bounds, max_contributions)


def spurious_threshold(
    *, noise_stddev: float, spurious_fraction: float, released: int, valid: int
) -> float:
    """Returns ρ_k, k ≥ 2, above which noise alone puts at most η·|S_{k−1}| n-grams in expectation.

    ρ_k = σ_k Φ̄^{-1}(η · min(1, |S_{k−1}|/|V_k|)).

    Args:
      noise_stddev: σ_k, in units of weight.
      spurious_fraction: η in (0, 1).
      released: |S_{k−1}| ≥ 1.
      valid: |V_k| ≥ 1, exact or estimated.

    References: DPNE Proposition 2.2 and the paragraph after it.
    """
    return noise_stddev * -float(special.ndtri(spurious_fraction * min(1.0, released / valid)))


def laplace_threshold(*, scale: float, delta: float, max_contributions: int) -> float:
    """Returns ρ_Lap = max over 1 ≤ t ≤ Δ of 1/t + λ ln(1/(2(1 − (1 − δ)^{1/t}))).

    Args:
      scale: λ of the noise, in units of weight.
      delta: the probability with which any item of one user alone may be released.
      max_contributions: Δ.

    References: DPSU Theorem 3.1.

    >>> import math
    >>> round(laplace_threshold(scale=1 / 3, delta=math.exp(-10), max_contributions=100), 5)
    4.64733
    """

    def bounds(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return 1 / counts, scale * laplace_quantiles(alone_tail(delta, counts))

    return _largest_sum(bounds, max_contributions)


def _largest_sum(
    bounds: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], max_contributions: int
) -> float:
    """Returns the largest weight plus quantile of the noise over the numbers t = 1 … Δ of items.

    The weight falls with t and is at most 0.001 beyond a million items; the quantile grows with t. So
    there the weight at a million plus the quantile at Δ is taken for all t, which is never less.

    Args:
      bounds: returns the weight of each of t items, and the quantile for t, of an array of numbers t.
      max_contributions: Δ.
    """
    weights, quantiles = bounds(
        np.arange(1, min(max_contributions, EXACT_HELD) + 1, dtype=np.float64)
    )
    thresholds = weights + quantiles
    if max_contributions > EXACT_HELD:
        _, last = bounds(np.array([float(max_contributions)]))
        thresholds = np.append(thresholds, weights[-1] + last)
    return float(np.max(thresholds))


def count_threshold(*, kind: str, scale: float, delta: float, max_contributions: int) -> float:
    """Returns 1 + the noise's quantile at 1 − (1 − δ)^{1/Δ}, since each item of a user has weight 1.

    Args:
      kind: the kind of the noise, "laplace" or "gaussian".
      scale: λ or σ, in units of weight.
      delta: the probability with which any item of one user alone may be released.
      max_contributions: Δ.

    References: DPSU section 1.1; Wilson et al. 2020 for Laplace noise.
    """
    tail = alone_tail(delta, np.array([float(max_contributions)]))
    quantile = laplace_quantiles(tail) if kind == "laplace" else -special.ndtri(tail)
    return 1 + scale * float(quantile[0])


def greedy_threshold(*, scale: float, delta: float, max_contributions: int) -> float:
    """Returns ρ ≥ 1 with 1 − (1 − P(Lap(λ) > ρ − 1)) (1 − P(Lap(λ) > ρ))^{Δ−1} = δ.

    Of Δ items of one user alone, the greedy policy may give one the whole budget, and the others
    little, but more than 0 (see `policies`). Any other division is released with less probability:
    −ln(1 − ½ e^{(w−ρ)/λ}) is convex in w ≤ ρ, so that its sum is largest in a corner of Σ w ≤ 1. At
    Δ = 1 this is 1 − λ ln(2δ). It is at least `laplace_threshold`, which is for the equal division.

    Args:
      scale: λ of the noise, in units of weight.
      delta: the probability with which any item of one user alone may be released.
      max_contributions: Δ.
    """
    allowed = math.log1p(-delta)

    def excess(threshold: float) -> float:
        first, other = (0.5 * math.exp(-(threshold - w) / scale) for w in (1.0, 0.0))
        return allowed - math.log1p(-first) - (max_contributions - 1) * math.log1p(-other)

    if excess(1.0) <= 0.0:
        return 1.0
    low = high = 1.0
    while excess(high) > 0.0:
        low, high = high, 2 * high
    root = find_root(excess, low, high, tolerance=1e-13)
    return root * (1 + 1e-12)


def uneven_threshold(
    *, noise_stddev: float, delta: float, max_contributions: int, norm: float = 1.0
) -> float:
    """Returns ρ ≥ 2S, above which items of one user alone come with probability ≤ δ for all weights.

    The squares of the weights of at most Δ items add up to at most S²; they need not be equal.
    With q = w² and f(q) = −ln(1 − P(N(0, σ²) > ρ − √q)), Σ f(q_i) ≤ −ln(1 − δ) is wanted for all
    Σ q_i ≤ S². Let s = √q, x = (ρ − s)/σ and h = φ(x)/Φ(x). Then f' = h/(2σs), and since
    dh/dx = −h (x + h), f' falls in s while s(x + h) < σ, and grows where it is above. That product is
    s(ρ − s)/σ + s h: it grows with s ≤ S ≤ ρ/2, as h does. So f is concave up to some q, and convex
    beyond it. At the maximum at most one q_i is in the convex part (of two there, one would grow), and
    those in the concave part are equal; f grows, so that all Δ items are used. The maximum over the one
    that may be larger is over one number: it is searched on a grid and refined. ρ is raised by a
    relative 1e-9, which is more than the search and the root are wrong.

    Args:
      noise_stddev: σ, in units of weight.
      delta: the probability with which any item of one user alone may be released.
      max_contributions: Δ.
      norm: S.

    References: none; equal weights, for which `vocabulary_threshold` is, are one of the divisions.

    >>> uneven = uneven_threshold(noise_stddev=1.33, delta=1e-5, max_contributions=100)
    >>> even = vocabulary_threshold(noise_stddev=1.33, delta=1e-5, max_contributions=100)
    >>> 1 < uneven / even < 1.02
    True
    """
    allowed = -math.log1p(-delta)
    others = max_contributions - 1

    def cost(weights: np.ndarray, threshold: float) -> np.ndarray:
        """Returns −ln P(none is released): one item of each weight, and the others alike."""
        rest = np.sqrt(np.maximum(norm**2 - weights**2, 0.0) / max(others, 1))
        first = -np.log1p(-special.ndtr((weights - threshold) / noise_stddev))
        other = -np.log1p(-special.ndtr((rest - threshold) / noise_stddev))
        return first + others * other

    def excess(threshold: float) -> float:
        return _largest(lambda weights: cost(weights, threshold), least, norm) - allowed

    least = norm / math.sqrt(max_contributions)
    if excess(2 * norm) <= 0.0:
        return 2 * norm
    low = high = 2 * norm
    while excess(high) > 0.0:
        low, high = high, 2 * high
    root = find_root(excess, low, high, tolerance=1e-13)
    return root * (1 + 1e-9)


def _largest(cost: Callable[[np.ndarray], np.ndarray], least: float, most: float) -> float:
    """Returns the maximum of a function of one number: the best of a grid, then of finer ones."""
    best = 0.0
    for _ in range(_REFINEMENTS):
        grid = np.linspace(least, most, _GRID)
        values = cost(grid)
        place = int(np.argmax(values))
        best = max(best, float(values[place]))
        least, most = grid[max(place - 1, 0)], grid[min(place + 1, _GRID - 1)]
    return best


def descent_rounding(*, max_contributions: int, max_users: int) -> float:
    """Returns the largest ℓ2-distance by which rounding moves two neighbouring runs of descent apart.

    In exact arithmetic a user brings two histograms no farther apart (DPSU Lemma 4.2 holds for all
    pairs). Computed, n ≤ Δ gaps become floats (relative error u = 2^-53), are squared, added up,
    rooted and divided: the step, of length 1 at most, is right to a relative (n/2 + 4)u; then it is
    rounded down to the grid of 2^-50, less than one unit for each item. Two runs thus part by at most
    (n + 8)u + √n · 2^-50 for each user that follows, and the new user's own step is covered by one
    more. Terms of second order (n·u < 1e-9) are in the 2, which stands for (8 + 8)/8.

    Args:
      max_contributions: Δ.
      max_users: users of the input, at most; the operator's promise.
    """
    units = math.sqrt(max_contributions) + max_contributions / 8 + 2
    return (max_users + 1) * units * 2.0**-GRID_BITS


def rerouting_rounding(*, max_degree: int, max_users: int) -> float:
    """Returns the largest ℓ2-distance by which rounding moves two neighbouring runs of MAD apart.

    A user's rerouted share is computed to less than 2 units of 2^-50 for each item in either run (see
    `set_union.rerouting`), and each user has at most √d_max · 4 units between the two.

    Args:
      max_degree: d_max, items of a user who takes part in rerouting, at most.
      max_users: users of the input, at most; the operator's promise.
    """
    return (max_users + 1) * 4 * math.sqrt(max_degree) * 2.0**-GRID_BITS
