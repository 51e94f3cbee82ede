"""The reserve from which every plan pays for noise of 128 bits and for floating point.

Plans calibrate as if noise were unbounded and exact, for ε' = ε(1 − 1/1000) and
δ' = δ(1 − 1/1000)e^(−ε/1000). What they keep back pays for two things, and a plan is refused where it
is not enough (`check`).

**Floating point.** A draw decides a cell: given the noise of earlier rounds, an interval of this
round's noise that is 1/64 of a standard deviation wide or wider. Its probability is right to a relative
c = 1e-12 where it is 3e-27 or more, since `randomness.uniforms` makes U in
(0, 1] from 127 bits, which moves it by at most 2^-128 on each side. A user changes at most n decisions,
so all of them together cost a factor of e^(s/2) in each world, for a slack s = 2cn ≤ ε/1000.

**Far tails.** The other cells are *far*. A draw is far with a probability of at most `FAR_TAIL`. Cells
beyond the support, where |noise| > −Φ^{-1}(2^-129) = 13.1 σ (`NORMAL_END`), are among them: there a
draw has outcomes that are impossible in the other world.
far is the probability that any of the n draws is far.

**Both together.** Let P̃ be the distribution of the release that is drawn, P that of the ideal one, N
the outcomes without a far draw, and primes the same in the other world, with or without the user. Then
P̃(E) ≤ far + P̃(E ∩ N) ≤ far + e^(s/2) P(E ∩ N), and P(E ∩ N) ≤ e^ε' P'(E ∩ N) + δ'
≤ e^ε' (P'(E ∩ N ∩ N') + far) + δ' ≤ e^ε' (e^(s/2) P̃'(E) + far) + δ'. Altogether
P̃(E) ≤ e^(ε' + s) P̃'(E) + e^(s/2) δ' + far·(1 + e^(ε' + s/2)). With s ≤ ε/1000 and
far·(1 + e^ε) ≤ δ/1000 this is at most e^ε P̃'(E) + δ. The worlds may be exchanged.

**Noise on the integers.** J = round(σ·x), x from `randomness.normals`, where counts of n-grams are
released. U has a grid of 2^-127, so an integer's probability is off by at most 2^-128: a relative 1e-12
where it is at least 3e-27. And σ·x is off by at most 2.5e-14·σ (13.1 standard deviations at most, each
factor right to a relative 1e-15, U to a relative 2^-52), which moves the two borders of an integer's
cell: a relative 1e-12 up to σ = 20, and 5e-14·σ beyond. Integers that are less probable than 3e-27 have
together, on both sides, a probability of at most 6e-27·(1 + σ/8), since it falls by a factor of at most
exp(−8/σ) from each to the next there.

Plans import this module, so it imports neither Beam nor Arrow.
"""

import math
from typing import Any

import numpy as np

LEAST_UNIFORM = 2.0**-128
# −Φ^{-1}(LEAST_UNIFORM / 2)
NORMAL_END = 13.10862617448018
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


def check(plan: Any, *, remedy: str) -> None:
    """Refuses a plan whose reserve does not pay for floating point and far tails.

    Args:
      plan: the plan. Its numerical_slack is charged to its epsilon, and its far_tails to its delta.
      remedy: a sentence about other parameters that can be changed.

    Raises:
      ValueError: if ε or δ is too small for the other. The message says what would be enough.
    """
    epsilon, delta, slack, lost = plan.epsilon, plan.delta, plan.numerical_slack, plan.far_tails
    if slack > RESERVED * epsilon:
        raise ValueError(
            f"epsilon must be at least {1.01 * slack / RESERVED:.3g}, got {epsilon=}: the numerical "
            f"slack {slack:.2g} must be at most epsilon/1000. {remedy}"
        )
    if lost > RESERVED * delta:
        enough = 1.01 * lost / RESERVED
        raised = f"delta must be at least {enough:.3g} with {epsilon=}, or " if enough < 1 else ""
        raise ValueError(
            f"{raised}epsilon must be lower with {delta=}: noise of 128 bits ends at {NORMAL_END:.1f} "
            f"standard deviations, and what its tails lack may cost at most delta/1000. {remedy}"
        )


def integer_normals(normals: np.ndarray, stddev: float) -> np.ndarray:
    """Returns Gaussian noise, rounded to the nearest integer: (n,) int64.

    Args:
      normals: (n,) float64, draws of `randomness.normals`.
      stddev: σ > 0, at most `INTEGER_MAX_STDDEV`.
    """
    return np.rint(normals * stddev).astype(np.int64)


def integer_slack(*, stddev: float, draws: int) -> float:
    """Returns the cost of floating point in ε, if one user changes so many integers."""
    return 2 * draws * max(INTEGER_ERROR, INTEGER_ERROR_PER_STDDEV * stddev)


def integer_far_tails(*, stddev: float, draws: int, epsilon: float) -> float:
    """Returns the cost of far integers in δ, if one user changes so many integers."""
    return both_worlds(draws * INTEGER_FAR * (1 + stddev / 8), epsilon)
