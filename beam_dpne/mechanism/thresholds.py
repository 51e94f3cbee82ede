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

GRID_BITS = 50
EXACT_HELD = 1_000_000


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
