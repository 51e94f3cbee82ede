"""The worst cases of noisy numbers: counts of n-grams, and the sums from which users are counted.

The attacker knows everything but one user's part of the sums, so it is left out of both worlds. The
statistic is the inner product of what is released with what the user adds, each in standard deviations
of its noise: the logarithm of the likelihood ratio of two normal laws, up to a constant.
"""

import dataclasses

import numpy as np

from beam_dpne.audit.bounds import Claim
from beam_dpne.audit.games import (
    FOUR_USERS,
    PEOPLE,
    Game,
    Play,
    Seen,
    count_claim,
    gaussian_claim,
)
from beam_dpne.bayesian.counting import UserGrams, add_up, limit_grams, noisy_values
from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.counts.measuring import CountSums, Held, measure, sum_counts
from beam_dpne.counts.rule import CountNoise, CountRule, count_rule
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import UNITS

# Rows of all copies that are made at once.
_ROWS_AT_ONCE = 2_000_000
# Without the limit, a user has this many times as many n-grams.
_UNLIMITED = 16
_NUMBERS_OF_ROWS = (16, 32, 48, 64, 96, 128)
_LEAST_CLASSES = 3


def bayesian_games(plan: BayesianPlan) -> tuple[Game, ...]:
    """Returns the game of n-gram probabilities, which are a function of noisy counts."""
    number = plan.contribution_limit
    return (
        Game(
            name="counts of one user",
            description=f"A user who may add {number} n-grams, and has {_UNLIMITED} times as many with "
            "counts above the largest, takes part or not. The attacker sees the noisy counts.",
            claim=gaussian_claim(epsilon=plan.epsilon, delta=plan.delta, delta_share=0.0),
            play=_play_counts(plan),
            mistakes={
                FOUR_USERS: _play_counts(plan, people=PEOPLE),
                "Users may add any number of n-grams.": _play_counts(
                    plan, limit=_UNLIMITED * number
                ),
            },
        ),
    )


def _play_counts(plan: BayesianPlan, *, people: int = 1, limit: int | None = None) -> Play:
    number = _UNLIMITED * plan.contribution_limit
    at_once = max(1, _ROWS_AT_ONCE // number)
    limit = plan.contribution_limit if limit is None else limit

    def ratios(copies: int, key: RunKey, *, present: bool) -> np.ndarray:
        """Returns the statistic of copies whose users have public n-grams of their own."""
        table = np.zeros(copies * number, np.int64)
        user = limit_grams(
            _users_of_all(copies, number, count=2 * plan.max_count),
            max_contributions=limit,
            max_count=plan.max_count,
            sub_key=key.sub_key("gram subset", plan.length),
        )
        add_up(user, table)
        shift = people * table
        values = noisy_values(shift * present, 0, plan=plan, run_key=key)
        return (shift * values.astype(float)).reshape(copies, number).sum(axis=1)

    def play(runs: int, key: RunKey) -> Seen:
        starts = range(0, runs, at_once)
        both = (
            [
                ratios(
                    min(at_once, runs - start), key.bound_to(f"{present} {start}"), present=present
                )
                for start in starts
            ]
            for present in (True, False)
        )
        return Seen(*(np.concatenate(parts)[:, np.newaxis] for parts in both))

    return play


def _users_of_all(copies: int, number: int, *, count: int) -> UserGrams:
    """Returns one user in each copy, who has all of its n-grams."""
    return UserGrams(
        users=np.arange(2 * copies, dtype=np.uint64).reshape(-1, 2),
        offsets=np.arange(copies + 1) * number,
        rows=np.arange(copies * number, dtype=np.int32),
        counts=np.full(copies * number, count),
    )


def count_games(share: float, noise: CountNoise | None, claim: Claim) -> tuple[Game, ...]:
    """Returns the game of the numbers of users, or none if a plan measures none.

    Args:
      share: the part of the budget that they have.
      noise: their noise.
      claim: of the whole run.
    """
    if noise is None or not share:
        return ()
    rows = worst_number_of_rows()
    rule = count_rule([np.ones(rows)])
    low = dataclasses.replace(rule, bounds=np.full_like(rule.bounds, rule.bounds[0]))
    return (
        Game(
            name="numbers of users",
            description=f"A user who has all {rows} released rows takes part or not. The attacker sees "
            "the noisy sums from which users are counted.",
            claim=count_claim(claim, share),
            play=_play_sums(rule, rule, noise),
            mistakes={
                FOUR_USERS: _play_sums(rule, rule, noise, people=PEOPLE),
                "All users have the noise of the lowest class.": _play_sums(rule, low, noise),
                "The noise ignores the share of the budget.": _play_sums(
                    rule, rule, CountNoise.of_budget(claim.mu or 0.0)
                ),
            },
        ),
    )


def worst_number_of_rows() -> int:
    """Returns a number of rows that fill the highest of several classes of users best."""

    def filled(rows: int) -> float:
        rule = count_rule([np.ones(rows)])
        if rule.bounds.size < _LEAST_CLASSES:
            return 0.0
        return float(
            np.linalg.norm(np.bincount(rule.groups) * rule.group_weights) / rule.bounds[-1]
        )

    return max(_NUMBERS_OF_ROWS, key=filled)


def _play_sums(rule: CountRule, judged: CountRule, noise: CountNoise, *, people: int = 1) -> Play:
    """Plays copies of a rule's rows, all of which a user has, measured by another rule's noise."""
    size = rule.row_weights.size

    def play(runs: int, key: RunKey) -> Seen:
        everything = Held(offsets=np.arange(runs + 1) * size, rows=np.arange(runs * size))
        many, measured_by = (copies_of_rule(each, runs) for each in (rule, judged))
        user = sum_counts(everything, many)
        user = dataclasses.replace(user, masses=people * user.masses, totals=people * user.totals)
        moved = user.masses / (UNITS * measured_by.row_weights)

        def ratios(sums: list[CountSums], world: str) -> np.ndarray:
            seen = measure(sums, measured_by, noise, key.bound_to(world))
            together = (
                moved * seen.masses / seen.mass_stddevs**2,
                user.totals * seen.totals / seen.total_stddevs**2,
            )
            sums_of_copies = [each.reshape(runs, -1).sum(axis=1) for each in together]
            return np.sum(sums_of_copies, axis=0)[:, np.newaxis]

        return Seen(ratios([user], "with"), ratios([], "without"))

    return play


def copies_of_rule(rule: CountRule, copies: int) -> CountRule:
    """Returns the rule of many copies of some rows, which have nothing to do with each other."""
    first = np.arange(copies)[:, np.newaxis] * rule.group_weights.size
    return dataclasses.replace(
        rule,
        sizes=(copies * rule.row_weights.size,),
        row_weights=np.tile(rule.row_weights, copies),
        groups=(first + rule.groups).reshape(-1),
        group_weights=np.tile(rule.group_weights, copies),
    )
