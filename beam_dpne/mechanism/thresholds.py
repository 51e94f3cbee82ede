"""Thresholds, and the noisy decision: integer weights, keyed noise, and the cells that are released.

Words or items of one user alone must not show that user: a threshold keeps the probability that any of
them is released at δ. At lengths k ≥ 2 the threshold limits spurious n-grams instead. The strategy
`adaptive` has its thresholds in `ngrams.adaptive`. DPSU is Gopi et al., "Differentially Private Set
Union" (ICML 2020); DPNE is Kim et al., "Differentially Private n-gram Extraction" (NeurIPS 2021).

Weights are int64 in units of 2^-32. A round decides by the *evidence* Y = Σ_s ℓ_s w_s of the rounds s
so far, with w_s = weight + noise. With one round this is the noisy weight. Evidence is released only
as a *cell*, its distance from the threshold in steps of one 64th of its standard deviation. Cells ≥ 0
are released and cells < 0 are not, so the cell is the decision. `scores` returns the middle of a cell.

The arithmetic is exact where privacy depends on it: loadings ℓ_s are fractions, and the distance of
Σ ℓ_s·weight_s from the threshold is exact. It is split into whole cells before the (floating) noise is
added, so that no rounding grows with the weight. A cell's probability is right to a relative 1e-12
(see `randomness.normals`).
"""

import functools
import math
from collections.abc import Sequence

import numpy as np
import scipy

from beam_dpne.mechanism import randomness
from beam_dpne.mechanism.rules import (
    CELLS_PER_STDDEV,
    NOTHING_YET,
    UNITS,
    EvidenceRule,
    NullLaw,
    RoundRule,
)

GRID_BITS = 50
EXACT_HELD = 1_000_000
# Noise ends at 13.1 standard deviations of its round.
_LAST_CELL = 14 * CELLS_PER_STDDEV
_BORDERS_AT_ONCE = 2 * CELLS_PER_STDDEV


def alone_tail(delta: float, counts: np.ndarray) -> np.ndarray:
    """Returns 1 − (1 − δ)^{1/t}, the probability with which each of t equal items may be released."""
    return -np.expm1(math.log1p(-delta) / counts)


def vocabulary_threshold(*, noise_stddev: float, delta: float, max_contributions: int) -> float:
    """Returns ρ_1, for which words of one user alone are released with probability ≤ δ_T.

    ρ_1 = max over 1 ≤ t ≤ Δ_1 of 1/√t + σ_1 Φ^{-1}((1 − δ_T)^{1/t}): a user alone with t words
    gives each of them 1/√t. The quantile is taken from the upper tail, where it keeps its digits.

    The weight falls with t and is at most 0.001 beyond a million words; the quantile grows with t. So
    there the weight at a million plus the quantile at Δ_1 is taken for all t, which is never less.

    Args:
      noise_stddev: σ_1, in units of weight.
      delta: δ_T, the part of δ that the vocabulary may spend.
      max_contributions: Δ_1.

    References: DPNE Theorem 2.1 (weighted Gaussian policy).
    """
    counts = np.arange(1, min(max_contributions, EXACT_HELD) + 1, dtype=np.float64)
    weights = 1 / np.sqrt(counts)
    if max_contributions > EXACT_HELD:
        counts = np.append(counts, max_contributions)
        weights = np.append(weights, weights[-1])
    return float(np.max(weights + noise_stddev * -scipy.special.ndtri(alone_tail(delta, counts))))


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
    return noise_stddev * -float(
        scipy.special.ndtri(spurious_fraction * min(1.0, released / valid))
    )


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


def equal_weights(counts: np.ndarray) -> np.ndarray:
    """Returns 1/√n in units of 2^-32, rounded down, so that n · w² ≤ 2^64 in exact arithmetic.

    Args:
      counts: shape (m,), integers ≥ 1.

    Returns:
      Shape (m,), dtype int64: isqrt(2^64 // n).

    References: DPNE Algorithm 1, the update of H_k.
    """
    # Each distinct count is computed once, by Python's exact integer root.
    distinct = np.flatnonzero(np.bincount(counts)) if counts.size else counts
    table = np.zeros(int(counts.max(initial=0)) + 1, dtype=np.int64)
    for count in distinct.tolist():
        table[count] = math.isqrt(UNITS * UNITS // count)
    return table[counts]


def evidence_noise(
    bits: Sequence[np.ndarray], rule: EvidenceRule, noise_stddev: float
) -> np.ndarray:
    """Returns the noise in the evidence of a round, Σ_s ℓ_s·N(0, noise_stddev²).

    Args:
      bits: for each of the rounds 1..r, (n, 2) uint64: the keyed bits of each one's noise.
      rule: the rule of round r.
      noise_stddev: the standard deviation of each round's noise, in units of weight.

    Returns:
      Shape (n,), float64, in units of weight.
    """
    noise = np.zeros(len(bits[-1]))
    for loading, round_bits in zip(rule.loadings, bits, strict=True):
        if loading:
            noise += (loading / rule.loading_unit) * (randomness.normals(round_bits) * noise_stddev)
    return noise


def noisy_cells(
    weights: Sequence[np.ndarray],
    noise: np.ndarray,
    rule: EvidenceRule,
    thresholds: np.ndarray | None = None,
    fractions: np.ndarray | float = 0.0,
) -> np.ndarray:
    """Returns the cell of each evidence with noise: ≥ 0 exactly when Σ ℓ_s·weight_s + noise > ρ.

    Each weight is split exactly, in integers, into whole cells and the rest.

    Args:
      weights: for each of the rounds 1..r, (n,) int64, in units of 2^-32.
      noise: (n,) float64, in units of weight; see `evidence_noise`.
      rule: the rule of round r.
      thresholds: (n,) int64, ρ of each one in units of 2^-32, if they differ; by default the rule's.
      fractions: (n,) float64 in [0, 1), what is added to the evidence, in units of 2^-32.

    Returns:
      Shape (n,), dtype int64: the number of the cell, counted from the threshold.

    References: DPNE Algorithm 1, "if H_k[u] + N(0, σ_k²) > ρ_k".
    """
    width = rule.cell_units
    unit = rule.loading_unit
    own = rule.threshold_units if thresholds is None else thresholds
    whole, part = np.divmod(np.broadcast_to(np.asarray(own, np.int64), noise.shape), width)
    cells = -whole
    rest = -part * unit
    for loading, column in zip(rule.loadings, weights, strict=True):
        if loading:
            whole, part = np.divmod(column, width)
            more, fraction = np.divmod(loading * whole, unit)
            cells += more
            rest += fraction * width + loading * part
    more, rest = np.divmod(rest, width * unit)
    return cells_above(cells + more, rest / unit + fractions, noise * UNITS, width)


@functools.lru_cache(maxsize=1024)
def null_law(rules: tuple[RoundRule, ...], noise_stddev: float) -> NullLaw:
    """Returns the law of the evidence of an n-gram without weight that is open after these rounds."""
    if not rules:
        return NOTHING_YET
    last = rules[-1]
    stddev = noise_stddev * last.loadings[-1] / last.loading_unit
    return null_law(rules[:-1], noise_stddev).cut(stddev, last.cut, last.threshold)


def spurious_cells(
    bits: np.ndarray, rules: tuple[RoundRule, ...], round_number: int, noise_stddev: float
) -> np.ndarray:
    """Returns cells ≥ 0 with the law of `noisy_cells` at weight 0, given release in this round.

    They are drawn by inverting the survival function of Y_r, given that the n-gram was open until
    then, at the borders of cells. Each cell's probability is right to a relative 1e-12.

    Args:
      bits: shape (n, 2), uint64.
      rules: the rules of the rounds of the n-grams' class.
      round_number: r ≥ 1.
      noise_stddev: the standard deviation of each round's noise, in units of weight.

    Returns:
      Shape (n,), dtype int64.
    """
    this_round = rules[round_number - 1]
    law = null_law(rules[: round_number - 1], noise_stddev)
    stddev = noise_stddev * this_round.loadings[-1] / this_round.loading_unit
    threshold = this_round.threshold_units
    width = this_round.cell_units
    last = _LAST_CELL + max(0, -threshold // width)
    # (last,) float64 in units of weight: the upper borders of cells 0, 1, …, last − 1.
    borders = (threshold + width * np.arange(1, last + 1)) / UNITS
    draws = this_round.null_probability * randomness.uniforms(bits)
    survival = _survival(law, stddev, borders, down_to=draws.min(initial=1.0))
    # Survival falls from border to border; negated it ascends, as searchsorted needs it.
    return np.searchsorted(-survival, -draws, "right")


def _survival(law: NullLaw, stddev: float, borders: np.ndarray, *, down_to: float) -> np.ndarray:
    """Returns the probabilities of evidence above the first borders, until one is below `down_to`.

    Nearly all draws are of the lowest cells, so that most borders are never reached.
    """
    parts = []
    for start in range(0, borders.size, _BORDERS_AT_ONCE):
        parts.append(law.tail(stddev, borders[start : start + _BORDERS_AT_ONCE]))
        if parts[-1][-1] < down_to:
            break
    return np.concatenate(parts)


def scores(cells: np.ndarray, rule: RoundRule, thresholds: np.ndarray | None = None) -> np.ndarray:
    """Returns the middle of each cell over the score divisor, in units of weight: (n,) float64.

    Args:
      cells: (n,) int64.
      rule: the rule of the round.
      thresholds: as for `noisy_cells`.
    """
    own = rule.threshold_units if thresholds is None else thresholds
    return middles(cells, own, rule.cell_units) / rule.score_divisor


def cells_above(
    whole: np.ndarray, rest: np.ndarray, noise: np.ndarray, width: int | np.ndarray
) -> np.ndarray:
    """Returns the cell of whole·width + rest + noise: ≥ 0 exactly when this sum is positive.

    Args:
      whole: (n,) int64, whole cells, split off exactly before floating point begins.
      rest: (n,) float64 in [0, width], in units of 2^-32.
      noise: (n,) float64, in units of 2^-32.
      width: the width of a cell, or of each of them, in units of 2^-32.

    Returns:
      (n,) int64.
    """
    return whole + np.ceil((rest + noise) / width).astype(np.int64) - 1


def noisy_cells_of(values: np.ndarray, noise: np.ndarray, width: int) -> np.ndarray:
    """Returns the cell of each value plus its noise: ≥ 0 exactly when the sum is positive.

    Whole cells are split off exactly, in integers, so that no rounding grows with the value.

    Args:
      values: (n,) int64, in units of 2^-32.
      noise: (n,) float64, in units of 2^-32.
      width: the width of a cell, in units of 2^-32.

    Returns:
      (n,) int64.
    """
    whole, rest = np.divmod(values, width)
    return cells_above(whole, rest, noise, width)


def middles(cells: np.ndarray, threshold_units: int | np.ndarray, width: int) -> np.ndarray:
    """Returns the middle of each cell, in units of weight: (n,) float64.

    Args:
      cells: (n,) int64.
      threshold_units: ρ in units of 2^-32, where cell 0 begins; one, or (n,) int64.
      width: the width of a cell, in units of 2^-32.
    """
    return (2 * threshold_units + (2 * cells + 1) * width) / (2 * UNITS)
