"""Numbers of users that an n-gram needs if its holders are alike, from a plan alone.

Each holder has g n-grams of every length, all as rare as the one in question, so that none of them is
released or given up before the last round. The users' budgets, the noise and the thresholds are those
of the plan. Holders who also have frequent n-grams have more budget left for this one, so that it needs
somewhat fewer of them.
"""

import math
from collections.abc import Iterator

import numpy as np
from scipy import stats

from beam_dpne.forecast.simulation import HALF, NEARLY, UsersNeeded
from beam_dpne.ngrams import adaptive
from beam_dpne.ngrams.length_rules import rule_of_sizes
from beam_dpne.ngrams.plan import PrivacyPlan

NUMBERS = (10, 100, 1000)
# Valid n-grams for each released n-gram one word shorter, on which thresholds depend a little (public
# titles): at two words, at three, and at more.
_VALID_PER_RELEASED = (2000, 20, 2)
_RELEASED = 10**6


def typical_needs(plan: PrivacyPlan, number: int) -> tuple[UsersNeeded, ...]:
    """Returns for each length the numbers of users that an n-gram needs.

    Args:
      plan: the plan of a run.
      number: g ≥ 1, the number of n-grams of each length that every holder has.

    Example:
      >>> plan = PrivacyPlan(epsilon=4, delta=1e-7, max_length=2)
      >>> [round(needed.half) for needed in typical_needs(plan, 100)]
      [132, 138]
    """
    needs = []
    for length, weights in enumerate(_weights(plan, number), 1):
        valid = 0 if length == 1 else _RELEASED * _VALID_PER_RELEASED[min(length, 4) - 2]
        sizes = {0: valid} if valid else {}
        rule = rule_of_sizes(plan, length, released=_RELEASED, sizes=sizes, counted=valid)
        last = rule.rounds[-1]
        loadings = np.array(last.loadings) / last.loading_unit
        # A user with more than Δ n-grams adds a random subset, so that weights vary.
        share = min(1.0, plan.contribution_limits[length - 1] / number)
        mean = float(loadings @ weights) * math.sqrt(share)
        variance = float(loadings**2 @ weights**2) * (1 - share)
        needs.append(
            UsersNeeded(
                *(
                    _users(last.threshold, last.evidence_stddev, mean, variance, level)
                    for level in (HALF, NEARLY)
                )
            )
        )
    return tuple(needs)


def _users(threshold: float, stddev: float, mean: float, variance: float, level: float) -> float:
    """Returns the users n whose evidence, n·mean with noise, passes the threshold at this level.

    It is the larger root of (n·mean − ρ)² = z²(σ² + n·variance).
    """
    z = float(stats.norm.ppf(level))
    half = threshold * mean + z**2 * variance / 2
    rest = math.sqrt(max(0.0, half**2 - mean**2 * (threshold**2 - z**2 * stddev**2)))
    return max(1.0, (half + rest) / mean**2)


def _weights(plan: PrivacyPlan, number: int) -> Iterator[np.ndarray]:
    """Yields for each length the square root of what a holder spends per n-gram in each round."""
    if not plan.is_adaptive:
        yield from np.full((plan.max_length, 1), 1 / math.sqrt(number))
        return
    left = np.array([plan.allotment])
    for length in range(1, plan.max_length + 1):
        is_even = plan.user_budgets == "even"
        if is_even:
            left = np.array([plan.allotment])
        ahead = 0 if is_even else number * (plan.max_length - length)
        kept = adaptive.kept_ahead(length, plan.favour or "balanced")
        weights = []
        for this_round in adaptive.rounds_of(length, plan.rounds or 1):
            spent = adaptive.spends(
                left, np.array([number]), np.array([ahead]), this_round.quota, kept
            )
            if length == 1:
                spent = np.minimum(spent, adaptive.round_cap(plan.allotment, this_round))
            left = left - spent
            weights.append(math.sqrt(float(spent[0]) / adaptive.BUDGET_UNITS / number))
        yield np.array(weights)
