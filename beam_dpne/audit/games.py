"""Games: two worlds that differ in one user, with the claim to test, and those of noisy numbers.

Two claims can be tested. (ε, δ)-differential privacy says P(E) ≤ e^ε Q(E) + δ for all events. A plan
with Gaussian noise claims more, and has its ε from it: except for a probability δ_T (what only one user
holds), its noise is as private as one Gaussian mechanism with sensitivity μ and noise 1, so that
P(E) ≤ Φ(μ + Φ⁻¹(Q(E))) + δ_T. A violation of the second claim shows with far fewer runs when ε is large
or δ tiny. Its bound on μ is stated as the ε that follows at the plan's δ.

The games of noisy numbers are those of counts of n-grams, and of the sums from which users are counted.
Their attacker knows everything but one user's part of the sums, so it is left out of both worlds. The
statistic is the inner product of what is released with what the user adds, each in standard deviations
of its noise: the logarithm of the likelihood ratio of two normal laws, up to a constant.

References: Clopper & Pearson 1934; Dong, Roth & Su, "Gaussian Differential Privacy" (2022), for the
second claim; Nasr et al., "Tight Auditing of Differentially Private Machine Learning" (2023).
"""

import dataclasses
import functools
import hashlib
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from beam_dpne.bayesian.grams import UserGrams, limit_grams, noisy_values
from beam_dpne.bayesian.plan import ProbabilitiesPlan
from beam_dpne.counts.measuring import Held, measure, noisy_sums, sum_counts
from beam_dpne.counts.rule import CountRule, count_rule, noise_of_budget
from beam_dpne.elements.batches import RowSums, table_of_sums
from beam_dpne.elements.sums import sums_at
from beam_dpne.mechanism import gaussian
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import UNITS
from beam_dpne.phrase_counts.plan import PhraseCountsPlan
from beam_dpne.phrase_counts.sums import (
    Bound,
    class_ends,
    sum_excess,
    sum_numbers,
    sum_sizes,
    user_weights,
)

# The play without a mistake.
MECHANISM = "the mechanism"
# In games that plant it, one person is counted as this many users: all noise is a quarter for them.
PEOPLE = 4
FOUR_USERS = "One person is counted as four users."
_RIDGE = 4e-2
# Rows of all copies that are made at once.
_ROWS_AT_ONCE = 2_000_000
# Without the limit, a user has this many times as many n-grams.
_UNLIMITED = 16
# Of the game of a list: the number of its phrases, and the share of the budget for the excess.
_PHRASES = 64
_EXCESS_SHARE = 0.1
# Of numbers of rows with several classes of users, this one fills the highest class best.
_ROWS = 48


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


class SameNoise(RunKey):
    """A planted mistake: every round of a length has the noise of the first."""

    def sub_key(self, purpose: str, length: int = 0, round_number: int = 0) -> bytes:
        """Returns the sub-key of a purpose, for noise that of the first round."""
        return super().sub_key(purpose, length, 1 if purpose == "noise" else round_number)


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
    plays: Mapping[str, Play]


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


def bayesian_games(plan: ProbabilitiesPlan) -> tuple[Game, ...]:
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


def _play_counts(plan: ProbabilitiesPlan, *, people: int = 1, limit: int = 0) -> Play:
    """Plays the game of counts of n-grams: many copies of one user, who share no n-gram."""
    number = _UNLIMITED * plan.contribution_limit
    limiting = dataclasses.replace(plan, max_contributions=limit) if limit else plan

    def ratios(copies: int, key: RunKey, *, present: bool) -> np.ndarray:
        user = UserGrams(
            users=np.arange(2 * copies, dtype=np.uint64).reshape(-1, 2),
            offsets=np.arange(copies + 1) * number,
            rows=np.arange(copies * number, dtype=np.int32),
            counts=np.full(copies * number, 2 * plan.max_count),
        )
        limited = limit_grams(user, limiting, key)
        table = sums_at(limited.rows, limited.counts, copies * number)
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


def phrase_games(plan: PhraseCountsPlan) -> tuple[Game, ...]:
    """Returns the game of the numbers of a list.

    A user holds all phrases, more than the bound. The attacker sees the noisy numbers of all three
    rounds, and knows the bound.
    """
    bound = Bound(members=_PHRASES, most=_PHRASES // 4, excess_share=_EXCESS_SHARE)
    return (
        Game(
            name="numbers of a list of one user",
            claim=Claim.of_plan(plan.epsilon, plan.delta),
            plays={
                MECHANISM: _play_phrases(plan, bound),
                FOUR_USERS: _play_phrases(plan, bound, people=PEOPLE),
                "Users above the bound send as much as others.": _play_phrases(
                    plan, bound, limit=bound.most
                ),
            },
        ),
    )


def _play_phrases(plan: PhraseCountsPlan, bound: Bound, *, people: int = 1, limit: int = 0) -> Play:
    """Plays the game of a list: many runs, each with people who hold all phrases, or nobody.

    Args:
      plan: the plan.
      bound: the bound of all runs.
      people: how many users come together.
      limit: how many phrases the mistaken weights take a user for; 0 for the product's own.
    """
    rows = np.arange(bound.members)
    held = Held(offsets=np.array([0, rows.size]), rows=rows)
    size = class_ends(bound.members).size
    numbers = table_of_sums([sum_numbers(held, bound)], rows.size)
    if limit:
        numbers = np.full(rows.size, user_weights(np.array([limit]), bound)[0])
    rounds = (
        (table_of_sums([sum_sizes(held, bound.members)], size), plan.size_noise),
        (table_of_sums([sum_excess(held, bound)], 1), plan.noise_of(bound.excess_share)),
        (numbers, plan.noise_of(bound.row_share)),
    )

    def world(runs: int, key: RunKey, *, present: bool) -> np.ndarray:
        ratios = np.zeros(runs)
        for number, (one, noise) in enumerate(rounds):
            shift = people * one
            values = np.tile(shift * present, runs)
            seen = noisy_sums(values, noise, key.bound_to(f"{present}"), f"round {number}", 0)
            # The logarithm of the likelihood ratio, but for a constant.
            ratios += seen.reshape(runs, -1) @ (shift / (noise * UNITS) ** 2)
        return ratios[:, np.newaxis]

    return lambda runs, key: Seen(*(world(runs, key, present=each) for each in (True, False)))


def count_games(share: float, noise: float | None, claim: Claim) -> tuple[Game, ...]:
    """Returns the game of the numbers of users, or none if a plan measures none.

    A user has all released rows, and so belongs to the highest class alone. The attacker sees the noisy
    sums of rows in all classes and their masses, but not the numbers of users of classes.

    Args:
      share: the part of the budget that they have.
      noise: their noise.
      claim: of the whole run.
    """
    if noise is None or not share:
        return ()
    rule = count_rule([np.ones(_ROWS)])
    low = dataclasses.replace(rule, bounds=rule.bounds[:1])
    return (
        Game(
            name="numbers of users",
            claim=dataclasses.replace(claim.of_part(share), alone_delta=0.0),
            plays={
                MECHANISM: _play_sums(rule, noise),
                FOUR_USERS: _play_sums(rule, noise, people=PEOPLE),
                "All users belong to the lowest class.": _play_sums(low, noise),
                "The noise ignores the share of the budget.": _play_sums(
                    rule, noise_of_budget(claim.mu)
                ),
            },
        ),
    )


def _play_sums(rule: CountRule, noise: float, *, people: int = 1) -> Play:
    """Plays copies of a rule's rows, all of which a user has; the attacker sees the sums of rows."""
    size = rule.row_weights.size

    def play(runs: int, key: RunKey) -> Seen:
        everything = Held(offsets=np.arange(runs + 1) * size, rows=np.arange(runs * size))
        many = copies_of_rule(rule, runs)
        user = sum_counts(everything, many)
        user = dataclasses.replace(user, sums=people * user.sums)

        def measured(sums: list[RowSums], world: str) -> np.ndarray:
            seen = measure(sums, many, noise, key.bound_to(world))
            units = rule.bounds, np.ones(1)
            parts = zip((seen.numbers, seen.masses[:, np.newaxis]), units, strict=True)
            # (runs, all sums of a copy), in units in which the noise is 1.
            return np.concatenate(
                [
                    (values / unit * many.row_weights[:, np.newaxis]).reshape(runs, -1) / seen.unit
                    for values, unit in parts
                ],
                axis=1,
            )

        moved = measured([user], "exact") - measured([], "exact")
        worlds = measured([user], "with"), measured([], "without")
        return Seen(*((moved * world).sum(axis=1)[:, np.newaxis] for world in worlds))

    return play


def copies_of_rule(rule: CountRule, copies: int) -> CountRule:
    """Returns the rule of many copies of some rows, which have nothing to do with each other."""
    return dataclasses.replace(
        rule,
        sizes=(copies * rule.row_weights.size,),
        levels=np.tile(rule.levels, copies),
        row_weights=np.tile(rule.row_weights, copies),
    )
