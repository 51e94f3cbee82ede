"""Lower bounds on ε from many runs with and without a user (Clopper–Pearson).

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
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import special, stats

from beam_dpne.mechanism import gaussian

GRID = np.concatenate((np.linspace(0, 1, 201), 1 - np.geomspace(1e-4, 1e-2, 30)))
# Bounds of a game: two directions, and the probabilities of two worlds in each.
_PROBABILITIES = 4
# Lower bounds on P(E) and upper bounds on Q(E) to the size of the violation that they show.
_Violation = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """What a part of a run claims about one user.

    Attributes:
      epsilon: ε > 0.
      delta: δ in (0, 1).
      mu: μ of one Gaussian mechanism that is as private, up to alone_delta; None with Laplace noise.
      gaussian_delta: the δ at which μ gives ε.
      alone_delta: δ_T, the probability with which something that only one user has may be released.
    """

    epsilon: float
    delta: float
    mu: float | None = None
    gaussian_delta: float = 0.0
    alone_delta: float = 0.0

    def of_part(self, part: float) -> "Claim":
        """Returns the claim of a part of the Gaussian noise, at the same δ.

        Args:
          part: the part of μ², in (0, 1].

        Raises:
          ValueError: if the claim has no μ.
        """
        if self.mu is None:
            raise ValueError("A claim must have a μ to be divided, got mu=None.")
        mu = self.mu * math.sqrt(part)
        epsilon = gaussian.gaussian_epsilon(delta=self.gaussian_delta, noise_stddev=1 / mu)
        return dataclasses.replace(self, mu=mu, epsilon=epsilon)


class Bound(NamedTuple):
    """What many runs show, each with the confidence that was asked for.

    Attributes:
      epsilon: ε is at least this, at the claim's δ, whatever the mechanism is.
      gaussian_epsilon: ε is at least this if the noise is Gaussian, from a bound on μ; None with
        Laplace noise.
    """

    epsilon: float
    gaussian_epsilon: float | None

    @property
    def largest(self) -> float:
        """The larger of the two."""
        return max(self.epsilon, self.gaussian_epsilon or 0.0)


def lower_bound(
    with_user: np.ndarray, without: np.ndarray, *, claim: Claim, failure: float
) -> Bound:
    """Returns what runs show of a claim.

    Args:
      with_user: (runs, statistics) float64, of runs with the user; larger values speak for the user.
      without: (runs, statistics) float64, of runs without.
      claim: the claim.
      failure: the probability, at most, that one of the bounds is above the true value.
    """
    if claim.mu is None:
        epsilon = epsilon_at_least(with_user, without, delta=claim.delta, failure=failure)
        return Bound(epsilon, None)
    epsilon = epsilon_at_least(with_user, without, delta=claim.delta, failure=failure / 2)
    mu = mu_at_least(with_user, without, alone_delta=claim.alone_delta, failure=failure / 2)
    if mu <= 0:
        return Bound(epsilon, 0.0)
    of_mu = gaussian.gaussian_epsilon(delta=claim.gaussian_delta, noise_stddev=1 / mu)
    return Bound(epsilon, of_mu)


def epsilon_at_least(
    with_user: np.ndarray, without: np.ndarray, *, delta: float, failure: float
) -> float:
    """Returns a lower bound on ε at a given δ, at least 0.

    Args:
      with_user: (runs, statistics) float64.
      without: (runs, statistics) float64.
      delta: δ of the claim.
      failure: the probability, at most, that the bound is above the true ε.

    Example:
      >>> never, always = np.zeros((200, 1)), np.ones((200, 1))
      >>> round(epsilon_at_least(always, never, delta=0.01, failure=1e-3), 3)
      2.437
    """

    def violation(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(low - delta, high) / high)

    return _at_least(with_user, without, violation, failure)


def mu_at_least(
    with_user: np.ndarray, without: np.ndarray, *, alone_delta: float, failure: float
) -> float:
    """Returns a lower bound on the μ of Gaussian differential privacy, at least 0.

    Args:
      with_user: (runs, statistics) float64.
      without: (runs, statistics) float64.
      alone_delta: δ_T, by which each probability may differ besides.
      failure: the probability, at most, that the bound is above the true μ.
    """

    def violation(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        low, high = np.maximum(low - alone_delta, 0.0), np.minimum(high + alone_delta, 1.0)
        shown = (low > 0) & (high < 1)
        low, high = np.where(shown, low, 0.5), np.where(shown, high, 0.5)
        return np.maximum(special.ndtri(low) - special.ndtri(high), 0.0)

    return _at_least(with_user, without, violation, failure)


def _at_least(
    with_user: np.ndarray, without: np.ndarray, violation: _Violation, failure: float
) -> float:
    """Chooses an event for each direction on one half of the runs, and bounds it on the other."""
    half = len(with_user) // 2
    error = failure / _PROBABILITIES
    best = 0.0
    for likely, rare in ((with_user, without), (-without, -with_user)):
        found, place, cut = -1.0, 0, np.zeros(1)
        for column in range(likely.shape[1]):
            pair = likely[:half, column], rare[:half, column]
            cuts = np.unique(np.quantile(np.concatenate(pair), GRID))
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
