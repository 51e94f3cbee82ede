"""Gaussian noise: its calibration, its reserve for noise of 128 bits, and the guarantee for groups.

Plain functions of public parameters; `thresholds` has the thresholds that noise needs. SciPy loads its
parts when they are first used, so that a wrong parameter is refused before. Balle & Wang is "Improving
the Gaussian Mechanism for Differential Privacy" (ICML 2018), and DPNE is Kim et al., "Differentially
Private n-gram Extraction" (NeurIPS 2021).

Plans calibrate as if noise were unbounded and exact, for ε' = ε(1 − 1/1000) and
δ' = δ(1 − 1/1000)e^(−ε/1000). What they keep back pays for two things, and a plan is refused where it
is not enough (`plan`).

**Floating point.** A draw decides a cell: given the noise of earlier rounds, an interval of this
round's noise that is 1/64 of a standard deviation wide or wider. Its probability is right to a relative
c = 1e-12 where it is 3e-27 or more, since `randomness.uniforms` makes U in (0, 1] from 127 bits, which
moves it by at most 2^-128 on each side. A user changes at most n decisions, so all of them together
cost a factor of e^(s/2) in each world, for a slack s = 2cn ≤ ε/1000.

**Far tails.** The other cells are *far*. A draw is far with a probability of at most `FAR_TAIL`. Cells
beyond the support, where |noise| > −Φ^{-1}(2^-129) = 13.1 σ (`NORMAL_END`), are among them: there a
draw has outcomes that are impossible in the other world. The probability that any of the n draws is
far is called far.

**Both together.** One world has the user, and the other does not. P is the distribution of the ideal
release in the one world, P̃ that of the release that is drawn there, and N the outcomes there without a
far draw; P', P̃' and N' are the same in the other world. Then

    P̃(E) ≤ far + P̃(E ∩ N) ≤ far + e^(s/2) P(E ∩ N),
    P(E ∩ N) ≤ e^ε' P'(E ∩ N) + δ'
             ≤ e^ε' (P'(E ∩ N ∩ N') + far) + δ'
             ≤ e^ε' (e^(s/2) P̃'(E) + far) + δ'.

The second, put into the first, gives

    P̃(E) ≤ e^(ε' + s) P̃'(E) + e^(s/2) δ' + far·(1 + e^(ε' + s/2)).

With s ≤ ε/1000 and far·(1 + e^ε) ≤ δ/1000 this is at most e^ε P̃'(E) + δ. The worlds may be exchanged.

**Noise on the integers.** J = round(σ·x), x from `randomness.normals`, where counts of n-grams are
released. U has a grid of 2^-127, so an integer's probability is off by at most 2^-128: a relative 1e-12
where it is at least 3e-27. And σ·x is off by at most 2.5e-14·σ (13.1 standard deviations at most, each
factor right to a relative 1e-15, U to a relative 2^-52), which moves the two borders of an integer's
cell: a relative 1e-12 up to σ = 20, and 5e-14·σ beyond. Integers that are less probable than 3e-27 have
together, on both sides, a probability of at most 6e-27·(1 + σ/8), since it falls by a factor of at most
exp(−8/σ) from each to the next there.

**Groups.** A group of g users, or one person with g user ids, is added or removed one user after the
other. Each step multiplies a probability by at most e^ε and adds δ, so that whatever the mechanism, g
steps have the ε and the δ

    gε   and   δ (1 + e^ε + … + e^{(g−1)ε}) = δ (e^{gε} − 1)/(e^ε − 1).

For Gaussian noise a better bound holds. In round r, user u moves the weights by v_{u,r}, with
Σ_r ‖v_{u,r}‖² ≤ μ² on every path, in units of the noise. g users together move them by Σ_u v_{u,r},
and by Minkowski's inequality

    √(Σ_r ‖Σ_u v_{u,r}‖²) ≤ Σ_u √(Σ_r ‖v_{u,r}‖²) ≤ gμ.

A user's weights follow from the user's own data and the public past, so the argument for one budget of
μ² holds for a budget of (gμ)². Where weights depend on other users' (the sequential policies of set
union), g steps lead from one input to the other, and each moves the weights by at most μ, which is gμ
by the triangle inequality. So the group has the guarantee of one Gaussian mechanism of sensitivity gμ.

Where words are found by a threshold, that guarantee is not the whole one. It compares with a run in
which no word is released that only the group holds, and δ_T bounds the difference for one user alone.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import scipy

from beam_dpne.validation import DELTA, EPSILON

# Plans raise noise by this much, relatively: more than the errors of the root and of sums of shares.
ROOT_MARGIN = 1e-10
# The relative error c of a cell's probability.
RELATIVE_ERROR = 1e-12
# The probability of all cells below 3e-27; it falls by e^(−10.6/64) from one to the next.
FAR_TAIL = 4e-26
# The part of ε, and of δ, that plans keep back.
RESERVED = 1e-3
# Of noise on the integers: its largest σ, the relative error of an integer's probability, up to σ = 20
# and for each unit of σ, and the probability of a far integer.
INTEGER_MAX_STDDEV = 2.0**40
INTEGER_ERROR = 2e-12
INTEGER_ERROR_PER_STDDEV = 1e-13
INTEGER_FAR = 6e-27
# The groups whose guarantee ledgers state.
SIZES = (2, 5, 10)
_HALVINGS = 40
# A part of the interval in which a root is sought.
_ROOT_MARGIN = 2.0**-40


def usable_epsilon(epsilon: float) -> float:
    """Returns ε' = ε(1 − 1/1000), for which noise is calibrated."""
    return epsilon * (1 - RESERVED)


def usable_delta(*, epsilon: float, delta: float) -> float:
    """Returns δ' = δ(1 − 1/1000)e^(−ε/1000), for which noise and thresholds are calibrated."""
    # Far tails refuse every plan with an ε of 1000 or more.
    return delta * (1 - RESERVED) * math.exp(-RESERVED * min(epsilon, 1000.0))


def slack_of(decisions: int) -> float:
    """Returns s = 2cn, the cost of floating point in ε if a user changes so many decisions.

    >>> slack_of(100)
    2e-10
    """
    return 2 * RELATIVE_ERROR * decisions


def far_tails(draws: int, *, epsilon: float) -> float:
    """Returns the cost of far tails in δ if a user decides about so many draws."""
    return both_worlds(draws * FAR_TAIL, epsilon)


def both_worlds(far: float, epsilon: float) -> float:
    """Returns far·(1 + e^ε), the cost in δ of outcomes with this probability, at most.

    >>> both_worlds(1e-20, 1.0) / 1e-20 == 1 + math.e
    True
    """
    try:
        return far * (1 + math.exp(epsilon))
    except OverflowError:
        return math.inf


def integer_slack(*, stddev: float, draws: int) -> float:
    """Returns the cost of floating point in ε, if one user changes so many integers."""
    return 2 * draws * max(INTEGER_ERROR, INTEGER_ERROR_PER_STDDEV * stddev)


def integer_far_tails(*, stddev: float, draws: int, epsilon: float) -> float:
    """Returns the cost of far integers in δ, if one user changes so many integers."""
    return both_worlds(draws * INTEGER_FAR * (1 + stddev / 8), epsilon)


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

    Inverse of `gaussian_delta` in σ: the root of log δ against log σ.

    Raises:
      ValueError: if ε or δ is out of range.

    References: Balle & Wang 2018, Theorem 8 and Algorithm 1.

    >>> round(gaussian_noise_stddev(epsilon=1, delta=0.5e-7), 5)
    4.8087
    """
    EPSILON.checked(epsilon)
    DELTA.checked(delta)
    target = math.log(delta)

    def excess(log_stddev: float) -> float:
        return _log_gaussian_delta(epsilon, math.exp(log_stddev)) - target

    low, high = _bracket(excess, start=-math.log(epsilon))
    return math.exp(falling_root(excess, low, high))


def gaussian_epsilon(*, delta: float, noise_stddev: float) -> float:
    """Returns the least ε ≥ 0 for which noise σ on sensitivity 1 is (ε, δ)-DP.

    Inverse of `gaussian_delta` in ε.

    References: Balle & Wang 2018, Theorem 8.

    >>> round(gaussian_epsilon(delta=0.5e-7, noise_stddev=4.80870), 4)
    1.0
    """
    if not (math.isfinite(noise_stddev) and noise_stddev > 0):
        raise ValueError(f"`noise_stddev` must be a finite number > 0, got `{noise_stddev=}`.")
    DELTA.checked(delta)
    target = math.log(delta)

    def excess(epsilon: float) -> float:
        return _log_gaussian_delta(epsilon, noise_stddev) - target

    if excess(0.0) <= 0.0:
        return 0.0
    high = 1.0
    while excess(high) > 0.0:
        high *= 2.0
    return falling_root(excess, 0.0, high)


def falling_root(excess: Callable[[float], float], low: float, high: float) -> float:
    """Returns the least float at which a falling function is at most 0, found by halving.

    It takes about 60 evaluations. `scipy.optimize` would take ten, but its import is slow.

    Args:
      excess: the function, above 0 at `low` and at most 0 at `high`.
      low: below the root.
      high: the root or above it.

    >>> falling_root(lambda value: 2 - value**2, 1.0, 2.0)
    1.4142135623730951
    """
    middle = (low + high) / 2
    while low < middle < high:
        if excess(middle) > 0:
            low = middle
        else:
            high = middle
        middle = (low + high) / 2
    return high


def near_root(excess: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Returns places below and above the root of a falling function, 2^-38 of the interval apart.

    Regula falsi takes some ten evaluations. An end that stays twice in turn counts with half of its
    excess (the Illinois rule), so that both ends come near.

    Args:
      excess: as for `falling_root`; rounding may change its sign only within 2^-40 of the interval
        from the root, so that `falling_root` finds the root between the two places.
      low: below the root.
      high: the root or above it.

    >>> below, above = near_root(lambda value: 2 - value**2, 1.0, 2.0)
    >>> below < 2**0.5 < above, above - below < 2**-38
    (True, True)
    """
    margin = max((high - low) * _ROOT_MARGIN, math.ulp(max(-low, high)))
    at_low = excess(low)
    at_high = excess(high)
    was_above: bool | None = None
    while high - low > margin:
        place = low + (high - low) * at_low / (at_low - at_high)
        # A step may be too short for floating point.
        if not low < place < high:
            place = (low + high) / 2
        found = excess(place)
        is_above = found <= 0
        if is_above:
            high = place
            at_high = found
            if was_above is True:
                at_low /= 2
        else:
            low = place
            at_low = found
            if was_above is False:
                at_high /= 2
        was_above = is_above
    return low - margin, high + margin


def largest_rounded(
    fits: Callable[[float], bool], low: float, high: float, *, digits: int
) -> float:
    """Returns the largest number between two that fits, rounded down to so many digits.

    Where one fits, all smaller ones should. Without one it is `low`, rounded down.

    >>> largest_rounded(lambda value: value**2 <= 2, 0.001, 2, digits=3)
    1.41
    """
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    unit = 10.0 ** (math.floor(math.log10(low)) - digits + 1)
    return float(f"{math.floor(low / unit) * unit:.{digits}g}")


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


class GroupGuarantee(NamedTuple):
    """The guarantee for a group of users; None is too large for a number.

    Attributes:
      users: g, the number of users.
      epsilon: g · ε.
      delta: δ of the whole release at that ε (see `group_delta`).
      gaussian_mu: g · μ of the noise.
      gaussian_epsilon: The exact ε of the noise for g users at the δ that it has for one.
      gaussian_delta: The exact δ of the noise for g users at g times the ε that it has for one.
    """

    users: int
    epsilon: float | None
    delta: float
    gaussian_mu: float
    gaussian_epsilon: float
    gaussian_delta: float | None


def group_sizes(*, epsilon: float, delta: float, gaussian: GaussianNoise) -> list[GroupGuarantee]:
    """Returns the guarantee for groups of each size in `SIZES`.

    Args:
      epsilon: ε of the release for one user.
      delta: δ of the release for one user.
      gaussian: its noise.
    """
    rows = []
    for users in SIZES:
        stddev = 1 / (users * gaussian.mu)
        epsilon_of_group = users * epsilon
        epsilon_of_noise = users * gaussian.epsilon
        delta_of_noise = None
        if math.isfinite(epsilon_of_noise):
            delta_of_noise = gaussian_delta(epsilon=epsilon_of_noise, noise_stddev=stddev)
        rows.append(
            GroupGuarantee(
                users=users,
                epsilon=epsilon_of_group if math.isfinite(epsilon_of_group) else None,
                delta=group_delta(epsilon=epsilon, delta=delta, users=users),
                gaussian_mu=users * gaussian.mu,
                gaussian_epsilon=gaussian_epsilon(delta=gaussian.delta, noise_stddev=stddev),
                gaussian_delta=delta_of_noise,
            )
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
    scaled_lower = scipy.special.erfcx(-lower / math.sqrt(2))
    scaled_upper = scipy.special.erfcx(-upper / math.sqrt(2))
    return squares + math.log(scaled_lower / scaled_upper)


def _bracket(excess: Callable[[float], float], start: float) -> tuple[float, float]:
    """Widens [start − 1, start + 1] until the decreasing function changes sign in it."""
    low = start - 1.0
    high = start + 1.0
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
