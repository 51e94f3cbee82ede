"""The number of users with which an n-gram is released in half of all cases, and in nearly all."""

from typing import NamedTuple

import numpy as np
from scipy import optimize

HALF, NEARLY = 0.5, 0.99


class UsersNeeded(NamedTuple):
    """Numbers of users that an n-gram needs; None where the simulation has too few n-grams.

    Attributes:
      half: number with which the n-gram is released with probability 50 %.
      nearly: number with which it is released with probability 99 %.
    """

    half: float | None
    nearly: float | None


def users_needed(users: np.ndarray, released: np.ndarray) -> UsersNeeded:
    """Fits the probability of release as a function that rises with the number of users.

    Args:
      users: (n,) float64 > 0, the number of users who hold each n-gram.
      released: (n,) bool, whether it was released.

    Returns:
      The points at which the isotonic fit crosses the two probabilities, between two numbers of users
      linearly in the logarithm.

    Example:
      >>> users = np.repeat([10.0, 20.0, 40.0, 80.0], 100)
      >>> released = np.concatenate([np.arange(100) < share for share in (0, 25, 75, 100)])
      >>> [round(number, 1) for number in users_needed(users, released)]
      [28.3, 77.8]
    """
    numbers, groups = np.unique(users, return_inverse=True)
    if not numbers.size:
        return UsersNeeded(None, None)
    sizes = np.bincount(groups.reshape(-1))
    shares = np.bincount(groups.reshape(-1), released.astype(np.float64)) / sizes
    fitted = optimize.isotonic_regression(shares, weights=sizes.astype(np.float64)).x
    return UsersNeeded(*(_crossing(np.log(numbers), fitted, level) for level in (HALF, NEARLY)))


def _crossing(logs: np.ndarray, fitted: np.ndarray, level: float) -> float | None:
    above = np.flatnonzero(fitted >= level)
    # Without an n-gram below the level or above it, the crossing is unknown.
    if not above.size or above[0] == 0:
        return None
    last = int(above[0])
    step = (level - fitted[last - 1]) / (fitted[last] - fitted[last - 1])
    return float(np.exp(logs[last - 1] + step * (logs[last] - logs[last - 1])))
