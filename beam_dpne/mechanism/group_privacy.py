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

_STATEMENT = (
    "For any two inputs that differ in g users with all of their documents, parts and ledger together "
    "are (g * epsilon, delta * (exp(g * epsilon) - 1) / (exp(epsilon) - 1))-differentially private: "
    "both epsilon and delta grow. One person with g user ids is such a group. A delta of 1 guarantees "
    "nothing."
)
_FOUND_ALONE = (
    "vocabulary_delta bounds the probability that any {noun} is released which only one user holds. It "
    "does not bound that of {noun}s which only the g ids of one person, or only the members of one "
    "group, hold: together they may give such {a_noun} g times the weight of one user, and the "
    "threshold is the same. The columns epsilon and delta cover these {noun}s; no other column does."
)
_GAUSSIAN = (
    "Where noise is Gaussian, a group of g users counts as one user with g times the sensitivity: mu, "
    "the sensitivity over the standard deviation of the noise, {extent}, becomes g * mu. "
    "The gaussian columns give the exact curve of that noise. Floating point adds "
    "g * numerical_slack to their epsilon, and its factor to their delta. Noise as it is drawn ends at "
    "13 standard deviations: where g * mu comes near that, only the columns epsilon and delta hold."
)
_ALL_NOISE = "all rounds and lengths together"
_BESIDE_LAPLACE = "which is here that on the sums from which users are counted alone"
_LAPLACE = (
    "Where noise is Laplace noise, it alone costs a group of g users g times its epsilon, and no "
    "delta; what delta there is comes from the threshold{or_counts}."
)
_COLUMNS = {
    "users": "g",
    "epsilon": "g * epsilon; null where it is too large for a number",
    "delta": "of the whole release at that epsilon; 1 guarantees nothing",
}
_GAUSSIAN_COLUMNS = {
    "gaussian_mu": "g * mu",
    "gaussian_epsilon": "epsilon of the Gaussian noise alone at the delta that it has for one user, "
    "gaussian_delta",
    "gaussian_delta": "delta of the Gaussian noise alone at g times the epsilon that it has for one "
    "user, which is 999/1000 of that of the release, less what Laplace noise has of it",
}


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


def groups_section(
    *,
    epsilon: float,
    delta: float,
    gaussian: GaussianNoise | None,
    has_laplace: bool = False,
    found_alone: str | None = None,
) -> dict[str, Any]:
    """Returns the ledger's section about groups of users, as JSON types.

    Args:
      epsilon: ε of the release for one user.
      delta: δ of the release for one user.
      gaussian: its Gaussian noise, or None.
      has_laplace: whether some of its noise is Laplace noise; Gaussian noise beside it is that of the
        numbers of users.
      found_alone: "word" or "item", if a threshold protects those that one user alone holds; None if
        nothing is found by a threshold.
    """
    section: dict[str, Any] = {"statement": _STATEMENT}
    if found_alone is not None:
        a_noun = f"{'an' if found_alone[0] in 'aeiou' else 'a'} {found_alone}"
        section["held_by_a_group_alone"] = _FOUND_ALONE.format(noun=found_alone, a_noun=a_noun)
    if gaussian is not None:
        extent = _BESIDE_LAPLACE if has_laplace else _ALL_NOISE
        section["gaussian_noise"] = _GAUSSIAN.format(extent=extent)
    if has_laplace:
        or_counts = "" if gaussian is None else " and from the Gaussian noise"
        section["laplace_noise"] = _LAPLACE.format(or_counts=or_counts)
    columns = _COLUMNS if gaussian is None else _COLUMNS | _GAUSSIAN_COLUMNS
    sizes = [_size(users, epsilon, delta, gaussian) for users in SIZES]
    return {**section, "sizes_columns": dict(columns), "sizes": sizes}


def _size(
    users: int, epsilon: float, delta: float, gaussian: GaussianNoise | None
) -> dict[str, float | None]:
    whole = users * epsilon
    row: dict[str, float | None] = {
        "users": users,
        "epsilon": whole if math.isfinite(whole) else None,
        "delta": group_delta(epsilon=epsilon, delta=delta, users=users),
    }
    if gaussian is not None:
        row["gaussian_mu"] = users * gaussian.mu
        row["gaussian_epsilon"] = gaussian_group_epsilon(gaussian, users=users)
        row["gaussian_delta"] = gaussian_group_delta(gaussian, users=users)
    return row


def _log_expm1(value: float) -> float:
    """Returns ln(e^x − 1) for x > 0."""
    if value < 1.0:
        return math.log(math.expm1(value))
    return value + math.log1p(-math.exp(-value))
