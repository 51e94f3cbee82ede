"""The noisy decision: exact integer weights, keyed noise, and the cells that may leave.

Weights are int64 in units of 2^-32. A noisy weight is released only as a *cell*: its place, in steps
of one 64th of the noise's standard deviation, above the threshold. Cells ≥ 0 are released, cells < 0
are not, so the cell *is* the decision; `scores` gives the middle of a cell back as a weight.

The arithmetic is exact where it matters: the distance of a weight from the threshold is an integer,
and is split into whole cells before the (floating) noise is added, so that no rounding grows with
the weight. A cell's probability is right to a relative 1e-12 (see `randomness.normals`).
"""

import dataclasses
import math

import numpy as np
from scipy import special

from beam_dpne import randomness

UNITS = 2**32
CELLS_PER_STDDEV = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class LengthRule:
    """What decides one length: public numbers, known before the length's data are looked at.

    Attributes:
      length: k.
      noise_stddev: σ_k, in units of weight.
      threshold_units: ρ_k in units of 2^-32, rounded up; None ends the run: S_k = ∅.
      valid: |V_k|, exact; None at k = 1, where every string is possible.
      pruning: which grams are valid: "both" or "single".
    """

    length: int
    noise_stddev: float
    threshold_units: int | None
    valid: int | None = None
    pruning: str = "both"

    @property
    def threshold(self) -> float | None:
        """ρ_k, in units of weight."""
        return None if self.threshold_units is None else self.threshold_units / UNITS

    @property
    def cell_units(self) -> int:
        """The width of a cell, in units of 2^-32."""
        return max(1, round(self.noise_stddev * UNITS / CELLS_PER_STDDEV))

    @property
    def null_probability(self) -> float:
        """Φ̄(ρ_k/σ_k), the probability that a gram without any weight is released."""
        if self.threshold_units is None:
            return 0.0
        return float(special.ndtr(-self.threshold_units / (self.noise_stddev * UNITS)))


def length_rule(
    *,
    length: int,
    noise_stddev: float,
    threshold: float | None,
    valid: int | None = None,
    pruning: str = "both",
) -> LengthRule:
    """Returns the rule of a length from a threshold in units of weight (None: nothing is valid)."""
    units = None if threshold is None else math.ceil(threshold * UNITS)
    return LengthRule(
        length=length,
        noise_stddev=noise_stddev,
        threshold_units=units,
        valid=valid,
        pruning=pruning,
    )


def equal_weights(counts: np.ndarray) -> np.ndarray:
    """Returns 1/√n in units of 2^-32, rounded down, so that n · w² ≤ 2^64 in exact arithmetic.

    Args:
      counts: shape (m,), integers ≥ 1.

    Returns:
      Shape (m,), dtype int64: isqrt(2^64 // n).

    References: DPNE Algorithm 1, the update of H_k.
    """
    distinct = np.flatnonzero(np.bincount(counts)) if counts.size else counts
    table = np.zeros(int(counts.max(initial=0)) + 1, dtype=np.int64)
    for count in distinct.tolist():
        table[count] = math.isqrt(UNITS * UNITS // count)
    return table[counts]


def noisy_cells(weights: np.ndarray, bits: np.ndarray, rule: LengthRule) -> np.ndarray:
    """Returns the cell of each weight plus its noise: ≥ 0 exactly when weight + noise > ρ.

    Args:
      weights: shape (n,), int64, in units of 2^-32.
      bits: shape (n, 2), uint64: the keyed bits of each gram's noise.
      rule: of the length, with a threshold.

    Returns:
      Shape (n,), dtype int64.

    References: DPNE Algorithm 1, "if H_k[u] + N(0, σ_k²) > ρ_k".
    """
    if rule.threshold_units is None:
        raise ValueError("noisy_cells needs a rule with a threshold.")
    whole, rest = np.divmod(weights - rule.threshold_units, rule.cell_units)
    noise = randomness.normals(bits) * (rule.noise_stddev * UNITS)
    return whole + np.ceil((rest + noise) / rule.cell_units).astype(np.int64) - 1


def spurious_cells(bits: np.ndarray, rule: LengthRule) -> np.ndarray:
    """Returns cells ≥ 0 with the law of `noisy_cells` at weight 0, given release.

    Args:
      bits: shape (n, 2), uint64.
      rule: of the length, with a threshold.

    Returns:
      Shape (n,), dtype int64.
    """
    if rule.threshold_units is None:
        raise ValueError("spurious_cells needs a rule with a threshold.")
    noise = randomness.upper_tail_normals(bits, rule.null_probability) * rule.noise_stddev * UNITS
    cells = np.ceil((noise - rule.threshold_units) / rule.cell_units).astype(np.int64) - 1
    return np.maximum(cells, 0)


def scores(cells: np.ndarray, rule: LengthRule) -> np.ndarray:
    """Returns the middle of each cell, in units of weight: above ρ_k exactly for cells ≥ 0."""
    if rule.threshold_units is None:
        raise ValueError("scores needs a rule with a threshold.")
    doubled = 2 * rule.threshold_units + (2 * cells + 1) * rule.cell_units
    return doubled / (2 * UNITS)
