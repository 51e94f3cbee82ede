"""The worst case of numbers of users: one user more who has every released row.

Many copies of the rows are measured at once, as in `copies`: no two copies share a row or a user, and
one call of the product's kernels measures all of them. Everything but the user's part of the sums
is known to the attacker, so it is left out of both worlds.

The user's shares of the sums have length 1, and the shares of the totals fill the user's class to its
bound. The statistic is the sums' inner product with what the user adds, each in standard deviations of
its noise: the logarithm of the likelihood ratio of two normal laws, up to a constant.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from beam_dpne.audit.bounds import Claim
from beam_dpne.audit.games import Game, Mistake, Play, Seen, world_keys
from beam_dpne.counts.measuring import (
    CountSums,
    Held,
    MeasuredCounts,
    measure,
    no_sums,
    sum_counts,
)
from beam_dpne.counts.rule import CountNoise, CountRule, count_rule
from beam_dpne.mechanism import gaussian
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import UNITS

_NUMBERS_OF_ROWS = (16, 32, 48, 64, 96, 128)
_LEAST_CLASSES = 3
# Changes sums, rule and noise of a measurement.
_Change = Callable[[CountSums, CountRule, CountNoise], tuple[CountSums, CountRule, CountNoise]]


def count_games(plan: Any, *, mu: float, gaussian_delta: float) -> tuple[Game, ...]:
    """Returns the game of the numbers of users, or none if the plan measures none.

    Args:
      plan: a plan; its `count_share` and `count_noise` decide, if it has them.
      mu: the μ that the plan claims for its Gaussian noise, all of it together; under a plan with
        Laplace noise, such that the numbers of users have count_share of its square.
      gaussian_delta: the δ at which this μ gives the plan's ε.
    """
    share, noise = getattr(plan, "count_share", 0.0), getattr(plan, "count_noise", None)
    if not share or noise is None:
        return ()
    own_mu = mu * math.sqrt(share)
    rows = worst_number_of_rows()
    rule = count_rule([np.ones(rows)])
    mistakes = {
        "The sums of a user are not divided by their length.": unnormalised,
        "All users have the noise of the lowest class.": one_class,
        "The noise ignores the share of the budget.": whole_budget(mu),
    }
    return (
        Game(
            name="numbers of users",
            description=f"A user who has all {rows} released rows takes part or not. The attacker sees "
            "the noisy sums from which users are counted.",
            claim=Claim(
                epsilon=gaussian.gaussian_epsilon(delta=gaussian_delta, noise_stddev=1 / own_mu),
                delta=gaussian_delta,
                mu=own_mu,
                gaussian_delta=gaussian_delta,
            ),
            play=_play(rule, noise),
            mistakes=tuple(
                Mistake(name=name, play=_play(rule, noise, change))
                for name, change in mistakes.items()
            ),
        ),
    )


def worst_number_of_rows() -> int:
    """Returns a number of rows that fill the highest of several classes of users best."""

    def filled(rows: int) -> float:
        rule = count_rule([np.ones(rows)])
        if rule.bounds.size < _LEAST_CLASSES:
            return 0.0
        return float(np.linalg.norm(rule.group_sizes * rule.group_weights) / rule.bounds[-1])

    return max(_NUMBERS_OF_ROWS, key=filled)


def _play(rule: CountRule, noise: CountNoise, change: _Change | None = None) -> Play:
    def play(runs: int, key: RunKey) -> Seen:
        ratios = [
            count_log_ratios(rule, noise, present=present, runs=runs, run_key=own, change=change)
            for present, own in zip((True, False), world_keys(key), strict=True)
        ]
        return Seen(ratios[0][:, np.newaxis], ratios[1][:, np.newaxis])

    return play


def count_log_ratios(
    rule: CountRule,
    noise: CountNoise,
    *,
    present: bool,
    runs: int,
    run_key: RunKey,
    change: _Change | None = None,
) -> np.ndarray:
    """Measures many copies of a rule's rows, all of which the user has: (runs,) float64.

    Args:
      rule: the rule of one copy.
      noise: the noise of the measurement.
      present: whether the user takes part.
      runs: the number of copies.
      run_key: the key of the noise.
      change: a planted mistake, or None.
    """
    many = copies_of_rule(rule, runs)
    user = _as_is if change is None else change
    with_user, judged, used = user(sum_counts(_everything(rule, runs), many), many, noise)
    sums = with_user if present else no_sums(many)
    measured = measure(sums, judged, used, run_key)
    shift = _standardised(
        measured,
        with_user.masses / (UNITS * judged.row_weights),
        with_user.totals.astype(np.float64),
    )
    seen = _standardised(measured, measured.masses, measured.totals)
    together = [each * shown for each, shown in zip(shift, seen, strict=True)]
    return np.sum([each.reshape(runs, -1).sum(axis=1) for each in together], axis=0)


def copies_of_rule(rule: CountRule, runs: int) -> CountRule:
    """Returns the rule of many copies of some rows, which have nothing to do with each other."""
    first = np.arange(runs)[:, np.newaxis] * rule.group_weights.size
    return dataclasses.replace(
        rule,
        sizes=(runs * rule.row_weights.size,),
        row_weights=np.tile(rule.row_weights, runs),
        groups=(first + rule.groups).reshape(-1),
        group_weights=np.tile(rule.group_weights, runs),
    )


def _everything(rule: CountRule, runs: int) -> Held:
    size = rule.row_weights.size
    return Held(offsets=np.arange(runs + 1) * size, rows=np.arange(runs * size))


def _standardised(
    measured: MeasuredCounts, masses: np.ndarray, totals: np.ndarray
) -> Sequence[np.ndarray]:
    """Returns sums in standard deviations of their noise."""
    return masses / measured.mass_stddevs, totals / measured.total_stddevs


def _as_is(
    sums: CountSums, rule: CountRule, noise: CountNoise
) -> tuple[CountSums, CountRule, CountNoise]:
    return sums, rule, noise


def unnormalised(
    sums: CountSums, rule: CountRule, noise: CountNoise
) -> tuple[CountSums, CountRule, CountNoise]:
    """A planted mistake: a user adds 1 to the sum of each row, however many rows the user has."""
    masses = np.where(sums.masses > 0, UNITS, 0)
    return dataclasses.replace(sums, masses=masses), rule, noise


def one_class(
    sums: CountSums, rule: CountRule, noise: CountNoise
) -> tuple[CountSums, CountRule, CountNoise]:
    """A planted mistake: the noise of every class is that of the lowest."""
    return sums, dataclasses.replace(rule, bounds=np.full_like(rule.bounds, rule.bounds[0])), noise


def whole_budget(mu: float) -> _Change:
    """A planted mistake: the noise is that of a plan with nothing but numbers of users."""

    def change(
        sums: CountSums, rule: CountRule, _: CountNoise
    ) -> tuple[CountSums, CountRule, CountNoise]:
        return sums, rule, CountNoise.of_budget(mu)

    return change
