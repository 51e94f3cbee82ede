"""The worst case of n-gram probabilities: a user who moves every value as far as one user can.

Many runs are made at once: each has W rows of its own, and one call of the product's kernels adds the
noise to all of them. The attacker sees the noisy values, of which the probabilities are a function, and
computes their inner product with what the user adds, the logarithm of the likelihood ratio.
"""

import functools
import math

import numpy as np

from beam_dpne.audit.bounds import Claim
from beam_dpne.audit.games import Game, Mistake, Play, Seen, world_keys
from beam_dpne.bayesian import log_global
from beam_dpne.bayesian.counting import UserGrams, add_up, limit_grams, noisy_values
from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.mechanism import gaussian
from beam_dpne.mechanism.randomness import RunKey

_ROWS_AT_ONCE = 2_000_000
# Without the limit, a user has this many times as many n-grams.
_UNLIMITED = 16


class _QuietCounts(BayesianPlan):
    """A planted mistake: the noise has a quarter of its standard deviation."""

    @functools.cached_property
    def noise_stddev(self) -> float:
        """A quarter of the noise."""
        return super().noise_stddev / 4


def bayesian_games(plan: BayesianPlan) -> tuple[Game, ...]:
    """Returns all games of n-gram probabilities: one."""
    number = plan.contribution_limit
    mistakes = (
        Mistake(
            name="The noise has a quarter of its standard deviation.",
            play=_play(_QuietCounts(**plan.to_dict())),
        ),
        Mistake(
            name="Users may add any number of n-grams.",
            play=_play(plan, limit=_UNLIMITED * number, grams=_UNLIMITED * number),
        ),
    )
    return (
        Game(
            name="counts of one user",
            description=f"A user who adds {number} n-grams with the largest count takes part or not; "
            "others have them as often as is worst. The attacker sees the noisy values.",
            claim=bayesian_claim(plan),
            play=_play(plan, grams=_UNLIMITED * number),
            mistakes=mistakes,
        ),
    )


def bayesian_claim(plan: BayesianPlan) -> Claim:
    """Returns the claim of a run, from ε and δ alone."""
    stddev = gaussian.gaussian_noise_stddev(epsilon=plan.epsilon, delta=plan.delta)
    return Claim(epsilon=plan.epsilon, delta=plan.delta, mu=1 / stddev, gaussian_delta=plan.delta)


def _play(plan: BayesianPlan, *, grams: int | None = None, limit: int | None = None) -> Play:
    """Plays a user who has so many n-grams, of whom at most `limit` are added."""
    number = plan.contribution_limit if grams is None else grams
    limit = plan.contribution_limit if limit is None else limit

    def play(runs: int, key: RunKey) -> Seen:
        at_once = max(1, _ROWS_AT_ONCE // number)
        seen = []
        for present, own in zip((True, False), world_keys(key), strict=True):
            parts = [
                _ratios(
                    plan,
                    min(at_once, runs - start),
                    own.bound_to(f"runs from {start}"),
                    number,
                    limit,
                    present=present,
                )
                for start in range(0, runs, at_once)
            ]
            seen.append(np.concatenate(parts)[:, np.newaxis])
        return Seen(*seen)

    return play


def _ratios(
    plan: BayesianPlan, runs: int, key: RunKey, number: int, limit: int, *, present: bool
) -> np.ndarray:
    """Returns the statistic of many runs of one world: (runs,) float64."""
    others = _table(plan, runs * number)
    whole = others.copy()
    user = limit_grams(
        _user_grams(plan, runs, number),
        max_contributions=limit,
        max_count=plan.max_count,
        sub_key=key.sub_key("gram subset", plan.length),
    )
    add_up(user, whole)
    values = noisy_values(whole if present else others, 0, plan=plan, run_key=key)
    shift = _values(whole, plan) - _values(others, plan)
    return (shift * (values - _values(others, plan))).reshape(runs, number).sum(axis=1)


def _user_grams(plan: BayesianPlan, runs: int, number: int) -> UserGrams:
    """Returns one user in each run, with a count beyond what is allowed."""
    users = np.arange(2 * runs, dtype=np.uint64).reshape(-1, 2)
    return UserGrams(
        users=users,
        offsets=np.arange(runs + 1) * number,
        rows=np.arange(runs * number, dtype=np.int32),
        counts=np.full(runs * number, 2 * plan.max_count),
    )


def _table(plan: BayesianPlan, size: int) -> np.ndarray:
    """Returns the sums of the others: under "log_global" of as many users as are worst."""
    others = 0
    if plan.mode == "log_global":
        others = max(0, math.floor(plan.max_count / plan.decay_rate) - 1)
    column = np.full(size, others, np.int64)
    return np.stack((column * plan.max_count, column), axis=1)


def _values(table: np.ndarray, plan: BayesianPlan) -> np.ndarray:
    """Returns the values without noise, in steps of the plan's grid: (n,) int64."""
    if plan.mode == "counts":
        return table[:, 0]
    return log_global.grid_values(
        table[:, 0], table[:, 1], max_count=plan.max_count, decay=plan.decay_rate
    )
