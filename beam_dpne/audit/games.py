"""A game: what an attacker sees with a user and without, what is claimed, and planted mistakes."""

import dataclasses
import hashlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import special

from beam_dpne.audit.bounds import Claim
from beam_dpne.mechanism import gaussian
from beam_dpne.mechanism.randomness import RunKey

# In games that plant it, one person is counted as this many users: all noise is a quarter for them.
PEOPLE = 4
FOUR_USERS = "One person is counted as four users."
_RIDGE = 1e-2
_STEPS = 8


class Seen(NamedTuple):
    """What the attacker computes from many observations.

    Attributes:
      with_user: (n, statistics) float64; larger values speak for the user.
      without: (m, statistics) float64.
    """

    with_user: np.ndarray
    without: np.ndarray


# From a number of observations of each world, and a key, to what the attacker sees.
Play = Callable[[int, RunKey], Seen]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Game:
    """One worst case.

    Attributes:
      name: a short name.
      description: what the two worlds are and what the attacker sees, in a sentence.
      claim: what is claimed of everything that the attacker sees.
      play: plays it by the product's functions.
      mistakes: plays with a planted mistake that the attack should notice, by the mistake in words.
    """

    name: str
    description: str
    claim: Claim
    play: Play
    mistakes: dict[str, Play]


def key_of(seed: int, *parts: object) -> RunKey:
    """Returns a key of made-up runs, which is no secret: the same parts always give the same one."""
    return RunKey(hashlib.sha256(repr(("audit", seed, *parts)).encode()).digest())


def gaussian_claim(*, epsilon: float, delta: float, delta_share: float) -> Claim:
    """Returns the claim of a whole run with Gaussian noise, from ε, δ and the share of δ_T in δ."""
    gaussian_delta = delta * (1 - delta_share)
    stddev = gaussian.gaussian_noise_stddev(epsilon=epsilon, delta=gaussian_delta)
    return Claim(
        epsilon=epsilon,
        delta=delta,
        mu=1 / stddev,
        gaussian_delta=gaussian_delta,
        alone_delta=delta * delta_share,
    )


def count_claim(claim: Claim, share: float) -> Claim:
    """Returns the claim of numbers of users, which have this share of a whole run's μ²."""
    part = claim.of_part(share)
    return dataclasses.replace(part, delta=part.gaussian_delta, alone_delta=0.0)


def learned(seen: Seen) -> Seen:
    """Adds the logarithm of the likelihood ratio, learned from the first half of the observations.

    Statistics that never differ are left out.
    """
    halves = [each[: len(each) // 2] for each in seen]
    train = np.concatenate(halves)
    kept = np.flatnonzero(np.ptp(train, axis=0) > 0)
    centre, scale = train[:, kept].mean(axis=0), train[:, kept].std(axis=0)
    labels = np.repeat((1.0, 0.0), [len(half) for half in halves])
    weights = _logistic_regression((train[:, kept] - centre) / scale, labels)
    ratios = [(each[:, kept] - centre) / scale @ weights for each in seen]
    return Seen(*(np.column_stack((r, each)) for r, each in zip(ratios, seen, strict=True)))


def _logistic_regression(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Newton's method with a small ridge."""
    weights = np.zeros(values.shape[1])
    ridge = _RIDGE * len(labels) * np.eye(weights.size)
    for _ in range(_STEPS):
        chances = special.expit(values @ weights)
        gradient = values.T @ (chances - labels) + ridge @ weights
        curvature = (values * (chances * (1 - chances))[:, np.newaxis]).T @ values + ridge
        weights -= np.linalg.solve(curvature, gradient)
    return weights
