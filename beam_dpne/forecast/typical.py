"""Numbers of users that an n-gram needs if all its holders are alike, from a plan alone.

Each holder has g n-grams of every length, all as rare as the one in question, so that none of them is
released or given up before the last round. The users' budgets, the noise, the thresholds and the cuts
are those of the plan, and the probabilities are computed by quadrature. Holders who also have frequent
n-grams have more budget left for this one, so that it needs somewhat fewer of them.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from beam_dpne.forecast.thresholds import HALF, NEARLY, UsersNeeded
from beam_dpne.mechanism.roots import find_root
from beam_dpne.mechanism.rules import NOTHING_YET, LengthRule, NullLaw
from beam_dpne.ngrams import adaptive
from beam_dpne.ngrams.plan import PrivacyPlan

NUMBERS = (10, 100, 1000)
# Valid n-grams for each released n-gram one word shorter, on which thresholds depend a little (public
# titles): at two words, at three, and at more.
VALID_PER_RELEASED = (2000, 20, 2)
_RELEASED = 10**6
_MOST_USERS = 2.0**40


class _Weight(NamedTuple):
    """The weight that a holder adds to an n-gram in one round.

    Attributes:
      mean: expected weight, since users with more than Δ n-grams add a random subset.
      variance: variance of the weight.
    """

    mean: float
    variance: float


def typical_needs(plan: PrivacyPlan, number: int) -> tuple[UsersNeeded, ...]:
    """Returns for each length the numbers of users that an n-gram needs.

    Args:
      plan: the plan of a run.
      number: g ≥ 1, the number of n-grams of each length that every holder has.

    Returns:
      One pair for each length; None twice at a length that is public, or that a set union finds.

    Example:
      >>> plan = PrivacyPlan(epsilon=4, delta=1e-7, max_length=2)
      >>> [round(needed.half) for needed in typical_needs(plan, 100)]
      [135, 139]
    """
    weights = _weights(plan, number)
    needs = []
    for length in range(1, plan.max_length + 1):
        if length not in plan.strategy_lengths:
            needs.append(UsersNeeded(None, None))
            continue
        rule = _rule(plan, length)
        needs.append(
            UsersNeeded(*(_users(rule, weights[length], level) for level in (HALF, NEARLY)))
        )
    return tuple(needs)


def probability(rule: LengthRule, weights: Sequence[_Weight], users: float) -> float:
    """Returns the probability that an n-gram of so many alike users is released.

    Args:
      rule: the rule of its length.
      weights: the weight that each user adds in each round.
      users: number of users.
    """
    law, total = NOTHING_YET, 0.0
    for rule_of_round, weight in zip(rule.rounds, weights, strict=True):
        loadings = [each / rule_of_round.loading_unit for each in rule_of_round.loadings]
        if not any(loadings[:-1]):  # This round alone decides.
            law = NullLaw(np.zeros(1), np.array([law.masses.sum()]))
        moved = NullLaw(law.places + loadings[-1] * users * weight.mean, law.masses)
        stddev = loadings[-1] * math.sqrt(rule.noise_stddev**2 + users * weight.variance)
        total += moved.tail(stddev, rule_of_round.threshold)
        law = moved.cut(stddev, rule_of_round.cut, rule_of_round.threshold)
    return total


def _users(rule: LengthRule, weights: Sequence[_Weight], level: float) -> float | None:
    """Returns the number of users with which the probability reaches a level, None if none does."""

    def excess(log_users: float) -> float:
        return probability(rule, weights, math.exp(log_users)) - level

    low, high = 0.0, math.log(_MOST_USERS)
    if excess(low) >= 0:
        return 1.0
    if excess(high) < 0:
        return None
    root = find_root(excess, low, high, tolerance=1e-4)
    return math.exp(root)


def _rule(plan: PrivacyPlan, length: int) -> LengthRule:
    """Returns the rule of a length after a million released n-grams one word shorter."""
    ratio = 0 if length == 1 else VALID_PER_RELEASED[min(length, 4) - 2]
    valid = _RELEASED * ratio
    sizes = {0: valid} if valid else {}
    return plan.strategy_value.rule(plan, length, released=_RELEASED, sizes=sizes, counted=valid)


def _weights(plan: PrivacyPlan, number: int) -> dict[int, list[_Weight]]:
    """Returns the weight of a holder in each round of each length that the strategy finds."""
    if not plan.strategy_value.has_user_budgets:
        return {
            length: [_divided(1.0, number, plan.contribution_limits[length - 1])]
            for length in plan.strategy_lengths
        }
    weights = {}
    individual = plan.user_budgets == "individual"
    left = np.array([plan.allotment])
    for length in plan.strategy_lengths:
        if not individual:
            left = np.array([plan.allotment])
        longer = plan.max_length - length if individual else 0
        kept = adaptive.kept_ahead(length, plan.favour or "balanced")
        weights[length] = []
        for this_round in adaptive.rounds_of(length, plan.rounds or 1):
            counts, ahead = np.array([number]), np.array([number * longer])
            spent = adaptive.spends(left, counts, ahead, this_round.quota, kept)
            if length == 1:
                spent = np.minimum(spent, adaptive.round_cap(plan.allotment, this_round))
            left = left - spent
            squared = float(spent[0]) / adaptive.BUDGET_UNITS
            weights[length].append(_divided(squared, number, plan.contribution_limits[length - 1]))
    return weights


def _divided(squared: float, number: int, limit: int) -> _Weight:
    """Divides an amount of squared weight among at most `limit` of a user's n-grams."""
    kept = min(number, limit)
    weight, share = math.sqrt(squared / kept), kept / number
    return _Weight(mean=weight * share, variance=weight**2 * share * (1 - share))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TypicalNeeds:
    """What an n-gram needs if its holders have a given number of n-grams of each length.

    Attributes:
      number: number of n-grams of each length of every holder.
      lengths: for each length the numbers of users.
    """

    number: int
    lengths: tuple[UsersNeeded, ...]


def needs_of_typical_users(plan: PrivacyPlan) -> tuple[TypicalNeeds, ...]:
    """Returns what an n-gram needs if its holders have 10, 100 or 1,000 n-grams of each length."""
    return tuple(
        TypicalNeeds(number=number, lengths=typical_needs(plan, number)) for number in NUMBERS
    )
