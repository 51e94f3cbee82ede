"""The worst cases of noisy numbers: counts of n-grams, and the sums from which users are counted.

The attacker knows everything but one user's part of the sums, so it is left out of both worlds. The
statistic is the inner product of what is released with what the user adds, each in standard deviations
of its noise: the logarithm of the likelihood ratio of two normal laws, up to a constant.
"""

import dataclasses

import numpy as np

from beam_dpne.audit.games import FOUR_USERS, MECHANISM, PEOPLE, Claim, Game, Play, Seen
from beam_dpne.bayesian.counting import UserGrams, limit_grams, noisy_values
from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.counts.measuring import Held, measure, split_sums, sum_counts
from beam_dpne.counts.rule import CountNoise, CountRule, count_rule
from beam_dpne.elements.batches import RowSums
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import UNITS

# Rows of all copies that are made at once.
_ROWS_AT_ONCE = 2_000_000
# Without the limit, a user has this many times as many n-grams.
_UNLIMITED = 16
# Of numbers of rows with several classes of users, this one fills the highest class best.
_ROWS = 48


def bayesian_games(plan: BayesianPlan) -> tuple[Game, ...]:
    """Returns the game of n-gram probabilities, which are a function of noisy counts.

    A user has more n-grams than one may add, with counts above the largest. The attacker sees the noisy
    counts.
    """
    number = plan.contribution_limit
    return (
        Game(
            name="counts of one user",
            claim=Claim.of_plan(plan.epsilon, plan.delta),
            plays={
                MECHANISM: _play_counts(plan),
                FOUR_USERS: _play_counts(plan, people=PEOPLE),
                "Users may add any number of n-grams.": _play_counts(
                    plan, limit=_UNLIMITED * number
                ),
            },
        ),
    )


def _play_counts(plan: BayesianPlan, *, people: int = 1, limit: int = 0) -> Play:
    """Plays the game of counts of n-grams: many copies of one user, who share no n-gram."""
    number = _UNLIMITED * plan.contribution_limit

    def ratios(copies: int, key: RunKey, *, present: bool) -> np.ndarray:
        user = UserGrams(
            users=np.arange(2 * copies, dtype=np.uint64).reshape(-1, 2),
            offsets=np.arange(copies + 1) * number,
            rows=np.arange(copies * number, dtype=np.int32),
            counts=np.full(copies * number, 2 * plan.max_count),
        )
        limited = limit_grams(
            user,
            max_contributions=limit or plan.contribution_limit,
            max_count=plan.max_count,
            sub_key=key.sub_key("gram subset", plan.length),
        )
        table = np.bincount(limited.rows, limited.counts, copies * number).astype(np.int64)
        shift = people * table
        values = noisy_values(shift * present, plan, key)
        return (shift * values.astype(float)).reshape(copies, number).sum(axis=1)

    def world(runs: int, key: RunKey, *, present: bool) -> np.ndarray:
        size = max(1, _ROWS_AT_ONCE // number)
        parts = [
            ratios(min(size, runs - start), key.bound_to(f"{present} {start}"), present=present)
            for start in range(0, runs, size)
        ]
        return np.concatenate(parts)[:, np.newaxis]

    return lambda runs, key: Seen(*(world(runs, key, present=each) for each in (True, False)))


def count_games(share: float, noise: CountNoise | None, claim: Claim) -> tuple[Game, ...]:
    """Returns the game of the numbers of users, or none if a plan measures none.

    A user has all released rows. The attacker sees the noisy sums from which users are counted.

    Args:
      share: the part of the budget that they have.
      noise: their noise.
      claim: of the whole run.
    """
    if noise is None or not share:
        return ()
    rule = count_rule([np.ones(_ROWS)])
    low = dataclasses.replace(rule, bounds=np.full_like(rule.bounds, rule.bounds[0]))
    return (
        Game(
            name="numbers of users",
            claim=dataclasses.replace(claim.of_part(share), alone_delta=0.0),
            plays={
                MECHANISM: _play_sums(rule, rule, noise),
                FOUR_USERS: _play_sums(rule, rule, noise, people=PEOPLE),
                "All users have the noise of the lowest class.": _play_sums(rule, low, noise),
                "The noise ignores the share of the budget.": _play_sums(
                    rule, rule, CountNoise.of_budget(claim.mu)
                ),
            },
        ),
    )


def _play_sums(rule: CountRule, judged: CountRule, noise: CountNoise, *, people: int = 1) -> Play:
    """Plays copies of a rule's rows, all of which a user has, measured by another rule's noise."""
    size = rule.row_weights.size

    def play(runs: int, key: RunKey) -> Seen:
        everything = Held(offsets=np.arange(runs + 1) * size, rows=np.arange(runs * size))
        many, measured_by = (copies_of_rule(each, runs) for each in (rule, judged))
        user = sum_counts(everything, many)
        user = dataclasses.replace(user, sums=people * user.sums)
        masses, totals = split_sums([user], many)
        moved = masses / (UNITS * measured_by.row_weights)

        def ratios(sums: list[RowSums], world: str) -> np.ndarray:
            seen = measure(sums, measured_by, noise, key.bound_to(world))
            together = (
                moved * seen.masses / seen.mass_stddevs**2,
                totals * seen.totals / seen.total_stddevs**2,
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
