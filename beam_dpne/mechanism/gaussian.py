"""Calibration of Gaussian noise, from ε and δ to σ and back, for one user and for groups of users.

Plain functions of public parameters; `thresholds` has the thresholds that noise needs. SciPy loads its
parts when they are first used, so that a wrong parameter is refused before. DPNE is Kim et
al., "Differentially Private n-gram Extraction" (NeurIPS 2021); Balle & Wang is "Improving the Gaussian
Mechanism for Differential Privacy" (ICML 2018).

A group of g users, or one person with g user ids, is added or removed one user after the other. Each
step multiplies a probability by at most e^ε and adds δ, so that g steps give
(gε, δ (1 + e^ε + … + e^{(g−1)ε})) = (gε, δ (e^{gε} − 1)/(e^ε − 1)), whatever the mechanism.

For Gaussian noise a better bound holds. In round r, user u moves the weights by v_{u,r}, with
Σ_r ‖v_{u,r}‖² ≤ μ² on every path, in units of the noise. g users together move them by Σ_u v_{u,r},
and by Minkowski's inequality √(Σ_r ‖Σ_u v_{u,r}‖²) ≤ Σ_u √(Σ_r ‖v_{u,r}‖²) ≤ gμ. A user's weights
follow from the user's own data and the public past, so the argument for one budget of μ² holds for a
budget of (gμ)². Where weights depend on other users' (the sequential policies of set union), g steps
lead from one input to the other, and each moves the weights by at most μ, which is gμ by the triangle
inequality. So the group has the guarantee of one Gaussian mechanism of sensitivity gμ.

Where words are found by a threshold, that guarantee is not the whole one. It compares with a run in
which no word is released that only the group holds, and δ_T bounds the difference for one user alone.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy

from beam_dpne.validation import DELTA, check_budget

# Plans raise noise by this much, relatively: more than the errors of the root and of sums of shares.
ROOT_MARGIN = 1e-10
# The groups whose guarantee ledgers state.
SIZES = (2, 5, 10)


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
    return math.exp(scipy.optimize.brentq(excess, low, high, xtol=1e-14))


def gaussian_epsilon(*, delta: float, noise_stddev: float) -> float:
    """Returns the least ε ≥ 0 for which noise σ on sensitivity 1 is (ε, δ)-DP.

    Inverse of `gaussian_delta` in ε.

    References: Balle & Wang 2018, Theorem 8.

    >>> round(gaussian_epsilon(delta=0.5e-7, noise_stddev=4.80870), 4)
    1.0
    """
    if not (math.isfinite(noise_stddev) and noise_stddev > 0):
        raise ValueError(f"noise_stddev must be a finite number > 0, got {noise_stddev=}.")
    DELTA.checked(delta)
    target = math.log(delta)

    def excess(epsilon: float) -> float:
        return _log_gaussian_delta(epsilon, noise_stddev) - target

    if excess(0.0) <= 0.0:
        return 0.0
    high = 1.0
    while excess(high) > 0.0:
        high *= 2.0
    return scipy.optimize.brentq(excess, 0.0, high, xtol=1e-14)


def split_noise_stddev(noise_stddev: float, shares: Sequence[float]) -> tuple[float, ...]:
    """Returns σ_k = σ/√f_k for budget shares f_k, so that 1/σ² = Σ_k 1/σ_k².

    References: DPNE Proposition 2.3 and Theorem 2.1.
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


class GaussianNoise(NamedTuple):
    """All Gaussian noise of a run as one mechanism.

    Attributes:
      epsilon: ε > 0 for one user.
      delta: δ_G in (0, 1) for one user at that ε, at most.
      mu: the sensitivity to one user over the standard deviation of the noise.
    """

    epsilon: float
    delta: float
    mu: float


def group_delta(*, epsilon: float, delta: float, users: int) -> float:
    """Returns δ (e^{gε} − 1)/(e^ε − 1), at most 1: the δ of g users at gε.

    It is computed from logarithms, so that a large gε does not overflow and a small ε loses no digits.

    Args:
      epsilon: ε > 0 of one user.
      delta: δ in (0, 1) of one user.
      users: g ≥ 1.

    >>> group_delta(epsilon=1.0, delta=1e-7, users=1)
    1e-07
    >>> f"{group_delta(epsilon=1.0, delta=1e-7, users=5):.4g}"
    '8.579e-06'
    """
    if users == 1:
        return delta
    if not math.isfinite(users * epsilon):
        return 1.0
    log = math.log(delta) + _log_expm1(users * epsilon) - _log_expm1(epsilon)
    return math.exp(min(0.0, log))


def group_sizes(*, epsilon: float, delta: float, gaussian: GaussianNoise) -> list[dict[str, Any]]:
    """Returns the guarantee for groups of each size in `SIZES`; None is too large for a number.

    The Gaussian columns are the exact δ of the noise for g users at gε, and its exact ε at the δ that
    it has for one.

    Args:
      epsilon: ε of the release for one user.
      delta: δ of the release for one user.
      gaussian: its noise.
    """
    rows = []
    for users in SIZES:
        stddev, own = 1 / (users * gaussian.mu), users * gaussian.epsilon
        rows.append(
            {
                "users": users,
                "epsilon": users * epsilon if math.isfinite(users * epsilon) else None,
                "delta": group_delta(epsilon=epsilon, delta=delta, users=users),
                "gaussian_mu": users * gaussian.mu,
                "gaussian_epsilon": gaussian_epsilon(delta=gaussian.delta, noise_stddev=stddev),
                "gaussian_delta": gaussian_delta(epsilon=own, noise_stddev=stddev)
                if math.isfinite(own)
                else None,
            }
        )
    return rows


def _log_gaussian_delta(epsilon: float, noise_stddev: float) -> float:
    """Returns log(Φ(a) − e^ε Φ(b)) for a = 1/(2σ) − εσ, b = a − 1/σ."""
    upper = 0.5 / noise_stddev - epsilon * noise_stddev
    lower = -0.5 / noise_stddev - epsilon * noise_stddev
    log_ratio = epsilon + _log_ndtr_difference(lower, upper)
    if log_ratio >= 0.0:
        return -math.inf
    return float(scipy.special.log_ndtr(upper)) + math.log(-math.expm1(log_ratio))


def _log_ndtr_difference(lower: float, upper: float) -> float:
    """Returns log Φ(lower) − log Φ(upper) without cancellation in the far tail.

    log Φ(−x) = log(erfcx(x/√2)/2) − x²/2; the squares differ by a product.
    """
    if upper > 0.0:
        return float(scipy.special.log_ndtr(lower) - scipy.special.log_ndtr(upper))
    squares = 0.5 * (upper - lower) * (upper + lower)
    scaled = scipy.special.erfcx(-lower / math.sqrt(2)), scipy.special.erfcx(-upper / math.sqrt(2))
    return squares + math.log(scaled[0] / scaled[1])


def _bracket(excess: Callable[[float], float], start: float) -> tuple[float, float]:
    """Widens [start − 1, start + 1] until the decreasing function changes sign in it."""
    low, high = start - 1.0, start + 1.0
    while excess(low) < 0.0:
        low -= 2.0
    while excess(high) > 0.0:
        high += 2.0
    return low, high


def _log_expm1(value: float) -> float:
    """Returns ln(e^x − 1) for x > 0."""
    if value < 1.0:
        return math.log(math.expm1(value))
    return value + math.log1p(-math.exp(-value))
