"""The guarantee of a release for groups of users, computed from public parameters for ledgers.

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
from typing import Any, NamedTuple

from beam_dpne.mechanism import gaussian as calibration

SIZES = (2, 5, 10)


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


def gaussian_group_delta(noise: GaussianNoise, *, users: int) -> float | None:
    """Returns the exact δ of Gaussian noise for g users at gε; None if gε is too large for a float."""
    epsilon = users * noise.epsilon
    if not math.isfinite(epsilon):
        return None
    return calibration.gaussian_delta(epsilon=epsilon, noise_stddev=1 / (users * noise.mu))


def gaussian_group_epsilon(noise: GaussianNoise, *, users: int) -> float:
    """Returns the exact ε of Gaussian noise for g users at the δ that it has for one."""
    return calibration.gaussian_epsilon(delta=noise.delta, noise_stddev=1 / (users * noise.mu))


def group_sizes(*, epsilon: float, delta: float, gaussian: GaussianNoise) -> list[dict[str, Any]]:
    """Returns the guarantee for groups of each size in `SIZES`; None is too large for a number.

    Args:
      epsilon: ε of the release for one user.
      delta: δ of the release for one user.
      gaussian: its noise.
    """
    return [
        {
            "users": users,
            "epsilon": users * epsilon if math.isfinite(users * epsilon) else None,
            "delta": group_delta(epsilon=epsilon, delta=delta, users=users),
            "gaussian_mu": users * gaussian.mu,
            "gaussian_epsilon": gaussian_group_epsilon(gaussian, users=users),
            "gaussian_delta": gaussian_group_delta(gaussian, users=users),
        }
        for users in SIZES
    ]


def _log_expm1(value: float) -> float:
    """Returns ln(e^x − 1) for x > 0."""
    if value < 1.0:
        return math.log(math.expm1(value))
    return value + math.log1p(-math.exp(-value))
