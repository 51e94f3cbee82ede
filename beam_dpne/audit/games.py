"""A game: two worlds that differ in a user, what is claimed, and the lower bounds on ε that runs show.

From half of the runs an attacker chooses a statistic and an event, "the statistic is at least x". The
other half, which the choice has not seen, bounds the probabilities of this event in both worlds. Both
directions count: events that are likelier with the user, and events that are likelier without.

Two claims can be tested. (ε, δ)-differential privacy says P(E) ≤ e^ε Q(E) + δ for all events. A plan
with Gaussian noise claims more, and has its ε from it: except for a probability δ_T (what only one user
holds), its noise is as private as one Gaussian mechanism with sensitivity μ and noise 1, so that
P(E) ≤ Φ(μ + Φ⁻¹(Q(E))) + δ_T. A violation of the second claim shows with far fewer runs when ε is large
or δ tiny. Its bound on μ is stated as the ε that follows at the plan's δ.

References: Clopper & Pearson 1934; Dong, Roth & Su, "Gaussian Differential Privacy" (2022), for the
second claim; Nasr et al., "Tight Auditing of Differentially Private Machine Learning" (2023).
"""

import dataclasses
import functools
import hashlib
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import special, stats

from beam_dpne.mechanism import gaussian
from beam_dpne.mechanism.randomness import RunKey

# The play without a mistake.
MECHANISM = "the mechanism"
# In games that plant it, one person is counted as this many users: all noise is a quarter for them.
PEOPLE = 4
FOUR_USERS = "One person is counted as four users."
_GRID = np.concatenate((np.linspace(0, 1, 201), 1 - np.geomspace(1e-4, 1e-2, 30)))
# Bounds of a game: two directions, and the probabilities of two worlds in each.
_PROBABILITIES = 4
_RIDGE = 4e-2
# Lower bounds on P(E) and upper bounds on Q(E) to the size of the violation that they show.
_Violation = Callable[[np.ndarray, np.ndarray], np.ndarray]


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
class Claim:
    """What a run, or a part of its Gaussian noise, claims about one user.

    Attributes:
      mu: μ of one Gaussian mechanism that is as private, up to alone_delta.
      gaussian_delta: the δ at which μ gives ε.
      alone_delta: δ_T, the probability with which something that only one user has may be released.
    """

    mu: float
    gaussian_delta: float
    alone_delta: float = 0.0

    @classmethod
    def of_plan(cls, epsilon: float, delta: float, delta_share: float = 0.0) -> "Claim":
        """Returns the claim of a whole run, from ε, δ and the share of δ_T in δ alone."""
        rest = delta * (1 - delta_share)
        stddev = gaussian.gaussian_noise_stddev(epsilon=epsilon, delta=rest)
        return cls(mu=1 / stddev, gaussian_delta=rest, alone_delta=delta * delta_share)

    def of_part(self, part: float) -> "Claim":
        """Returns the claim of a part of μ², in (0, 1], at the same δ."""
        return dataclasses.replace(self, mu=self.mu * math.sqrt(part))

    @functools.cached_property
    def epsilon(self) -> float:
        """ε at this δ."""
        return gaussian.gaussian_epsilon(delta=self.gaussian_delta, noise_stddev=1 / self.mu)

    @property
    def delta(self) -> float:
        """δ of everything."""
        return self.gaussian_delta + self.alone_delta


@dataclasses.dataclass(frozen=True, kw_only=True)
class Game:
    """One worst case.

    Attributes:
      name: a short name.
      claim: what is claimed of everything that the attacker sees.
      plays: by "the mechanism", a play by the product's functions; and by the mistake in words, plays
        with a planted mistake that the attack should notice.
    """

    name: str
    claim: Claim
    plays: dict[str, Play]


def key_of(seed: int, *parts: object) -> RunKey:
    """Returns a key of made-up runs, which is no secret: the same parts always give the same one."""
    return RunKey(hashlib.sha256(repr(("audit", seed, *parts)).encode()).digest())


def learned(seen: Seen) -> Seen:
    """Adds one statistic: the linear combination of all others that best separates the two worlds.

    The combination is fitted to half of the runs by ridge regression. Statistics that are the same in
    every run are left out.
    """
    halves = [each[: len(each) // 2] for each in seen]
    train = np.concatenate(halves)
    kept = np.flatnonzero(np.ptp(train, axis=0) > 0)
    values = (train[:, kept] - train[:, kept].mean(axis=0)) / train[:, kept].std(axis=0)
    labels = np.repeat((0.5, -0.5), [len(half) for half in halves])
    ridge = _RIDGE * len(labels) * np.eye(kept.size)
    weights = np.linalg.solve(values.T @ values + ridge, values.T @ labels)
    weights /= train[:, kept].std(axis=0)
    return Seen(*(np.column_stack((each[:, kept] @ weights, each)) for each in seen))


class Bound(NamedTuple):
    """What many runs show, each with the confidence that was asked for.

    Attributes:
      epsilon: ε is at least this, at the claim's δ, whatever the mechanism is.
      gaussian_epsilon: ε is at least this if the noise is Gaussian, from a bound on μ.
    """

    epsilon: float
    gaussian_epsilon: float

    @property
    def largest(self) -> float:
        """The larger of the two."""
        return max(self.epsilon, self.gaussian_epsilon)


def lower_bound(seen: Seen, claim: Claim, *, failure: float) -> Bound:
    """Returns what runs show of a claim.

    Args:
      seen: what the attacker sees.
      claim: the claim.
      failure: the probability, at most, that one of the bounds is above the true value.

    Example:
      >>> never, always = np.zeros((200, 1)), np.ones((200, 1))
      >>> claim = Claim(mu=1.0, gaussian_delta=0.01)
      >>> round(lower_bound(Seen(always, never), claim, failure=2e-3).epsilon, 3)
      2.437
    """

    def of_epsilon(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(low - claim.delta, high) / high)

    def of_mu(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        low = np.maximum(low - claim.alone_delta, 0.0)
        high = np.minimum(high + claim.alone_delta, 1.0)
        shown = (low > 0) & (high < 1)
        low, high = np.where(shown, low, 0.5), np.where(shown, high, 0.5)
        return np.maximum(special.ndtri(low) - special.ndtri(high), 0.0)

    epsilon, mu = (_at_least(seen, each, failure / 2) for each in (of_epsilon, of_mu))
    return Bound(epsilon, dataclasses.replace(claim, mu=mu).epsilon if mu > 0 else 0.0)


def _at_least(seen: Seen, violation: _Violation, failure: float) -> float:
    """Chooses an event for each direction on one half of the runs, and bounds it on the other."""
    with_user, without = seen
    half = len(with_user) // 2
    error = failure / _PROBABILITIES
    best = 0.0
    for likely, rare in ((with_user, without), (-without, -with_user)):
        found, place, cut = -1.0, 0, np.zeros(1)
        for column in range(likely.shape[1]):
            pair = likely[:half, column], rare[:half, column]
            cuts = np.unique(np.quantile(np.concatenate(pair), _GRID))
            reached = violation(*probability_bounds(*pair, cuts, error=error))
            if reached.max() > found:
                found, place, cut = reached.max(), column, cuts[[int(np.argmax(reached))]]
        judged = probability_bounds(likely[half:, place], rare[half:, place], cut, error=error)
        best = max(best, float(violation(*judged)[0]))
    return best


def probability_bounds(
    likely: np.ndarray, rare: np.ndarray, cuts: np.ndarray, *, error: float
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds P(likely ≥ cut) from below and P(rare ≥ cut) from above, for each cut.

    Args:
      likely: (n,) float64.
      rare: (m,) float64.
      cuts: (c,) float64.
      error: the probability, at most, with which each bound is wrong.

    Returns:
      (c,) float64 in [0, 1) and (c,) float64 in (0, 1].

    References: Clopper & Pearson 1934.
    """
    hits, false_hits = (
        values.size - np.searchsorted(np.sort(values), cuts) for values in (likely, rare)
    )
    low = stats.beta.ppf(error, np.maximum(hits, 1), likely.size - hits + 1)
    low = np.where(hits > 0, low, 0.0)
    rest = rare.size - false_hits
    high = np.where(rest > 0, stats.beta.isf(error, false_hits + 1, np.maximum(rest, 1)), 1.0)
    return low, high
