"""Gaussian noise on the integers: a keyed normal draw, scaled and rounded to the nearest integer.

Rounding is post-processing of continuous noise. The cost of floating point and of the finite number of
bits is bounded here, so that it can be subtracted from a budget.

**Probability of an integer.** J = round(σ·x), x from `randomness.normals`. U has a grid of 2^-127, so
an integer's probability is off by at most 2^-128: a relative 1e-12 where it is at least 3e-27. And σ·x
is off by at most 2.5e-14·σ (13.1 standard deviations at most, each factor right to a relative 1e-15,
U to a relative 2^-52), which moves the two borders of an integer's cell: a relative 1e-12 up to σ = 20,
and 5e-14·σ beyond. (Measured, up to σ = 10^7: less than a tenth of that.)

**Far tails.** Integers that are less probable than 3e-27 have together, on both sides, a probability of
at most 6e-27·(1 + σ/8), since it falls by a factor of at most exp(−8/σ) from each to the next there.
"""

import numpy as np

from beam_dpne.mechanism.finite_noise import both_worlds

MAX_STDDEV = 2.0**40
RELATIVE_ERROR = 2e-12
ERROR_PER_STDDEV = 1e-13
FAR = 6e-27


def integer_normals(normals: np.ndarray, stddev: float) -> np.ndarray:
    """Returns Gaussian noise, rounded to the nearest integer.

    Args:
      normals: (n,) float64, draws of `randomness.normals`.
      stddev: σ > 0, at most `MAX_STDDEV`.

    Returns:
      (n,) int64.
    """
    return np.rint(normals * stddev).astype(np.int64)


def relative_error(stddev: float) -> float:
    """Returns the largest relative error of an integer's probability outside the far tails."""
    return max(RELATIVE_ERROR, ERROR_PER_STDDEV * stddev)


def far_tails(stddev: float) -> float:
    """Returns the probability of integers whose probability is not right to `relative_error`."""
    return FAR * (1 + stddev / 8)


def epsilon_slack(*, stddev: float, draws: int) -> float:
    """Returns the cost in ε of `relative_error`, if one user changes the values of so many draws."""
    return 2 * draws * relative_error(stddev)


def delta_slack(*, stddev: float, draws: int, epsilon: float) -> float:
    """Returns the cost in δ of the far tails: in one world, and in the other times e^ε."""
    return both_worlds(draws * far_tails(stddev), epsilon)
