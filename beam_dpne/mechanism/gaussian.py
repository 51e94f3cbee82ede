"""Calibration of Gaussian noise: from ε and δ to σ, and back.

Plain functions of public parameters; `thresholds` has the thresholds that noise needs. Notation and
sources: DPNE is Kim et al., "Differentially
Private n-gram Extraction" (NeurIPS 2021); Balle & Wang is "Improving the Gaussian Mechanism for
Differential Privacy" (ICML 2018).
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from beam_dpne.mechanism import special
from beam_dpne.mechanism.special import find_root
from beam_dpne.validation import check_budget, check_delta

# Plans raise noise by this much, relatively: more than the errors of the root and of sums of shares.
ROOT_MARGIN = 1e-10


def gaussian_delta(*, epsilon: float, noise_stddev: float) -> float:
    """Returns the smallest δ of the Gaussian mechanism with ℓ2-sensitivity 1.

    δ = Φ(1/(2σ) − εσ) − e^ε Φ(−1/(2σ) − εσ), the second term in log space, so that neither a
    large ε nor a tiny δ loses it.

    Args:
      epsilon: ε ≥ 0.
      noise_stddev: σ > 0, in units of the sensitivity.

    References: Balle & Wang 2018, Theorem 8; DPNE Proposition 2.4.
    """
    return math.exp(_log_gaussian_delta(epsilon, noise_stddev))


def gaussian_noise_stddev(*, epsilon: float, delta: float) -> float:
    """Returns the least σ for which the Gaussian mechanism of sensitivity 1 is (ε, δ)-DP.

    Inverse of `gaussian_delta` in σ: bracketed root finding on log δ against log σ.

    Raises:
      ValueError: if ε or δ is out of range.

    References: Balle & Wang 2018, Theorem 8 and Algorithm 1.

    >>> round(gaussian_noise_stddev(epsilon=1, delta=0.5e-7), 5)
    4.8087
    """
    check_budget(epsilon, delta)
    target = math.log(delta)

    def excess(log_stddev: float) -> float:
        return _log_gaussian_delta(epsilon, math.exp(log_stddev)) - target

    low, high = _bracket(excess, start=-math.log(epsilon))
    return math.exp(_root(excess, low, high))


def gaussian_epsilon(*, delta: float, noise_stddev: float) -> float:
    """Returns the least ε ≥ 0 for which noise σ on sensitivity 1 is (ε, δ)-DP.

    Inverse of `gaussian_delta` in ε.

    References: Balle & Wang 2018, Theorem 8.

    >>> round(gaussian_epsilon(delta=0.5e-7, noise_stddev=4.80870), 4)
    1.0
    """
    check_noise_stddev(noise_stddev)
    check_delta(delta)
    target = math.log(delta)

    def excess(epsilon: float) -> float:
        return _log_gaussian_delta(epsilon, noise_stddev) - target

    if excess(0.0) <= 0.0:
        return 0.0
    high = 1.0
    while excess(high) > 0.0:
        high *= 2.0
    return _root(excess, 0.0, high)


def compose_noise_stddevs(noise_stddevs: Sequence[float]) -> float:
    """Returns the σ of one Gaussian mechanism that is as private as all of these together.

    1/σ² = Σ_k 1/σ_k².

    References: DPNE Proposition 2.3.
    """
    return math.fsum(stddev**-2 for stddev in noise_stddevs) ** -0.5


def split_noise_stddev(noise_stddev: float, shares: Sequence[float]) -> tuple[float, ...]:
    """Returns σ_k = σ/√f_k for budget shares f_k; inverse of `compose_noise_stddevs`.

    References: DPNE Theorem 2.1.
    """
    return tuple(noise_stddev / math.sqrt(share) for share in shares)


def growth_shares(growth: float, lengths: int) -> tuple[float, ...]:
    """Returns budget shares for the schedule σ_k = c·σ_{k−1}: f_k ∝ c^(−2k), Σ f_k = 1.

    References: DPNE section 3.1.1, "Setting σ_k".
    """
    logs = -2.0 * math.log(growth) * np.arange(lengths)
    return normalise_shares(np.exp(logs - logs.max()).tolist())


def normalise_shares(weights: Sequence[float]) -> tuple[float, ...]:
    """Scales positive numbers to shares that sum to 1, to a relative 1e-15."""
    total = math.fsum(weights)
    return tuple(weight / total for weight in weights)


def check_noise_stddev(noise_stddev: float) -> None:
    """Checks σ; raises ValueError."""
    if not (math.isfinite(noise_stddev) and noise_stddev > 0):
        raise ValueError(f"noise_stddev must be a finite number > 0, got {noise_stddev=}.")


def _log_gaussian_delta(epsilon: float, noise_stddev: float) -> float:
    """Returns log(Φ(a) − e^ε Φ(b)) for a = 1/(2σ) − εσ, b = a − 1/σ."""
    upper = 0.5 / noise_stddev - epsilon * noise_stddev
    lower = -0.5 / noise_stddev - epsilon * noise_stddev
    log_ratio = epsilon + _log_ndtr_difference(lower, upper)
    if log_ratio >= 0.0:
        return -math.inf
    return float(special.log_ndtr(upper)) + math.log(-math.expm1(log_ratio))


def _log_ndtr_difference(lower: float, upper: float) -> float:
    """Returns log Φ(lower) − log Φ(upper) without cancellation in the far tail.

    log Φ(−x) = log(erfcx(x/√2)/2) − x²/2; the squares differ by a product.
    """
    if upper > 0.0:
        return float(special.log_ndtr(lower) - special.log_ndtr(upper))
    squares = 0.5 * (upper - lower) * (upper + lower)
    scaled = special.erfcx(-lower / math.sqrt(2)), special.erfcx(-upper / math.sqrt(2))
    return squares + math.log(scaled[0] / scaled[1])


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Returns the argument at which a function changes sign in [low, high]."""
    return find_root(function, low, high, tolerance=1e-14)


def _bracket(excess: Callable[[float], float], start: float) -> tuple[float, float]:
    """Widens [start − 1, start + 1] until the decreasing function changes sign in it."""
    low, high = start - 1.0, start + 1.0
    while excess(low) < 0.0:
        low -= 2.0
    while excess(high) > 0.0:
        high += 2.0
    return low, high
