"""The cost of noise that is made of 128 bits, and the plans that are refused because of it.

Plans calibrate as if noise were unbounded and exact. `randomness.uniforms` makes U in (0, 1] from 127
bits: U = (2m + 1)·2^-128, so that U is never below 2^-128, and an interval's probability is wrong by
at most one of these values: by 2^-128 on each side of the noise.

**Beyond the support.** |noise| = −Φ^{-1}(U/2) is at most −Φ^{-1}(2^-129) = 13.1 σ (`NORMAL_END`), and
−ln U at most 128 ln 2 = 88.7 λ (`LAPLACE_END`). In a world where a user moves a mean by s scales of
the noise, a draw has the probability Φ̄(13.1 − s), or ½e^{−(88.7 − s)}, of an outcome that the world
without this user cannot have. No user moves any mean by more than the whole budget allows: by
μ = 1/σ(ε, δ_G) under Gaussian noise, by ε under Laplace noise. Summed over the draws whose mean a user
moves at all, and with s = 0 over the others that this user decides about, it may be at most δ/1000.

**Far tails.** A draw decides a cell: given the noise of earlier rounds, an interval of this round's
noise that is 1/64 of a standard deviation wide or wider. A cell's probability of 3e-27 or more is right
to a relative 1e-12, which is part of a plan's numerical slack. The other cells are *far*; a draw is far
with a probability of at most `FAR_TAILS`. Let P̃ be the distribution of the release that is drawn, P
that of the ideal one, N the outcomes without a far draw, and primes the same in the other world. Then
P̃(E) ≤ P̃(E ∩ N) + far, the slack's factor leads from P̃ to P and from P' to P̃', and
P(E ∩ N) ≤ e^ε P'(E ∩ N) + δ ≤ e^ε (P'(E ∩ N ∩ N') + far) + δ. So far·(1 + e^ε) is taken off δ before
the noise is calibrated (`both_worlds`), and it may be at most δ/1000. Outcomes beyond the support are
among the far ones.

Plans import this module, so it imports neither Beam nor Arrow.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from beam_dpne.mechanism import gaussian, special

LEAST_UNIFORM = 2.0**-128
# −Φ^{-1}(LEAST_UNIFORM / 2)
NORMAL_END = 13.10862617448018
LAPLACE_END = -math.log(LEAST_UNIFORM)
# The probability of all cells below 3e-27; it falls by e^(−10.6/64) or e^(−√2/64) from one to the next.
FAR_TAILS = {"gaussian": 4e-26, "laplace": 2.8e-25}
LARGEST_SHARE = 1e-3
_LEAST_EPSILON = 0.05
_DIGITS = 3
_STEPS = 60


class NoiseDraws(NamedTuple):
    """Draws of noise whose outcome one user may change, and the budget that they belong to.

    Attributes:
      kind: the kind of the noise, "gaussian" or "laplace".
      count: the number of draws, at most.
      moved: the number of draws with a mean that one user moves, at most.
      far_tail: the probability that one of them is far.
      epsilon: ε of the budget; under Laplace noise one user also moves any mean by at most ε scales.
      delta: δ of the budget.
      gaussian_delta: δ_G at most; under Gaussian noise, ε and δ_G bound how far a user moves a mean.
    """

    kind: str
    count: int
    moved: int
    far_tail: float
    epsilon: float
    delta: float
    gaussian_delta: float = 0.0

    @property
    def shift(self) -> float:
        """The largest distance by which one user moves a mean, in scales of the noise: ε or μ."""
        if self.kind == "laplace":
            return self.epsilon
        return 1 / gaussian.gaussian_noise_stddev(epsilon=self.epsilon, delta=self.gaussian_delta)

    @property
    def beyond_support(self) -> float:
        """An upper bound on the probability of an outcome that is impossible in the other world."""
        moved = self.moved * beyond_end(self.kind, self.shift)
        return moved + self.count * beyond_end(self.kind, 0.0)

    @property
    def far_tails(self) -> float:
        """The cost of far draws in δ, at most."""
        return both_worlds(self.count * self.far_tail, self.epsilon)

    @property
    def fits(self) -> bool:
        """Whether `far_tails` and `beyond_support` are each at most δ/1000."""
        allowed = LARGEST_SHARE * self.delta
        return self.far_tails <= allowed and self.beyond_support <= allowed


# Maps ε and δ to the draws of a plan that is otherwise unchanged.
DrawsAt = Callable[[float, float], Sequence[NoiseDraws]]


def beyond_end(kind: str, shift: float) -> float:
    """Returns the probability that ideal noise plus a shift is above the largest noise that is drawn.

    Args:
      kind: the kind of the noise, "gaussian" or "laplace".
      shift: ≥ 0, in scales of the noise.
    """
    if kind == "gaussian":
        return float(special.ndtr(shift - NORMAL_END))
    if shift <= LAPLACE_END:
        return 0.5 * math.exp(shift - LAPLACE_END)
    return 1 - 0.5 * math.exp(LAPLACE_END - shift)


def both_worlds(far: float, epsilon: float) -> float:
    """Returns far·(1 + e^ε), the cost in δ of outcomes with this probability, at most.

    >>> both_worlds(1e-20, 1.0) / 1e-20 == 1 + math.e
    True
    """
    try:
        return far * (1 + math.exp(epsilon))
    except OverflowError:
        return math.inf


def check(draws_at: DrawsAt, *, epsilon: float, delta: float, remedy: str = "") -> None:
    """Refuses a plan whose noise of 128 bits is too short for its budget.

    Args:
      draws_at: the plan's draws for any ε and δ.
      epsilon: ε of the plan.
      delta: δ of the plan.
      remedy: a sentence about other parameters that can be changed.

    Raises:
      ValueError: if it is too short. The message gives an ε and a δ, each of which would be accepted
        in place of the plan's, if they exist.
    """

    def fits(epsilon: float, delta: float) -> bool:
        return all(draws.fits for draws in draws_at(epsilon, delta))

    if fits(epsilon, delta):
        return
    lower = _largest_epsilon(lambda tried: fits(tried, delta), epsilon)
    higher = _least_delta(lambda tried: fits(epsilon, tried), delta)
    advice = []
    if lower is not None:
        advice.append(f"epsilon must be at most {lower} with {delta=}")
    if higher is not None:
        advice.append(f"delta must be at least {higher} with {epsilon=}")
    if not advice:
        least = _least_delta(lambda tried: fits(_LEAST_EPSILON, tried), delta)
        advice.append(f"delta must be at least {least} at any epsilon, and epsilon must be lower")
    message = (
        f"{', or '.join(advice)}, got {epsilon=} and {delta=}: noise of 128 bits ends at "
        f"{NORMAL_END:.1f} standard deviations (Laplace noise at {LAPLACE_END:.1f} scales), and what "
        f"its tails lack may cost at most delta/1000. {remedy}"
    )
    raise ValueError(message.rstrip())


def constants() -> dict[str, Any]:
    """Returns the constants of this module that decide noise, as JSON types."""
    return {
        "far_tails": FAR_TAILS,
        "largest_share": LARGEST_SHARE,
        "least_uniform": LEAST_UNIFORM,
    }


def _largest_epsilon(fits: Callable[[float], bool], refused: float) -> float | None:
    """Returns the largest ε that fits, rounded down to three digits; None if none does."""
    if refused <= _LEAST_EPSILON or not fits(_LEAST_EPSILON):
        return None
    return _rounded(_border(fits, _LEAST_EPSILON, refused), math.floor, fits)


def _least_delta(fits: Callable[[float], bool], refused: float) -> float | None:
    """Returns the least δ that fits, rounded up to three digits; None if none below 1 does."""
    high = refused
    while not fits(high):
        if high >= 0.5:
            return None
        high = min(0.5, 10 * high)
    return _rounded(_border(fits, high, refused), math.ceil, fits)


def _border(fits: Callable[[float], bool], good: float, bad: float) -> float:
    """Returns a number that fits, next to the border between a good and a bad number."""
    for _ in range(_STEPS):
        middle = math.sqrt(good) * math.sqrt(bad)
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good


def _rounded(
    value: float, towards: Callable[[float], int], fits: Callable[[float], bool]
) -> float | None:
    """Returns a number of three digits that fits, or None."""
    places = _DIGITS - 1 - math.floor(math.log10(value))
    units = towards(value * 10.0**places)
    short = float(f"{units}e{-places}")
    return short if fits(short) else None
