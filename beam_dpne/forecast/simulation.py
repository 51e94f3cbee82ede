"""A run in memory in which each made-up user stands for many users.

The mechanism is the real one, on arrays (`ngrams.in_memory`), with a fresh key and without private
data. Users stand for m users each: their sums of weights count m times, and so do the sums from which
numbers of users are estimated. Noise, thresholds and budgets are those of the plan. The result is that
of a crowd in which every user has m − 1 doubles.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from beam_dpne.counts.measuring import CountSums, add_sums, sum_counts
from beam_dpne.elements.batches import UserBatch
from beam_dpne.forecast.crowd import Crowd
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.elements import Contributions, GramSet
from beam_dpne.ngrams.in_memory import ArraySteps, release_lengths
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.user_counts import count_users, held_grams, rule_of

# A sum of weights stays below 2^63 for this many users with weights below 1 in units of 2^-32.
MOST_USERS = 2**30


@dataclasses.dataclass(kw_only=True)
class RepeatedSteps(ArraySteps):
    """The steps of a run, in which user i stands for `repeats[i]` users.

    Attributes:
      repeats: (u,) float64 > 0, by the numbers of users in a `Crowd`.
    """

    repeats: np.ndarray = dataclasses.field(default_factory=lambda: np.ones(0))

    def limit(self, length: int, users: list[UserBatch]) -> list[Contributions]:
        """Repeats the contributions of `limit_contributions`."""
        return [self._repeated(sent) for sent in super().limit(length, users)]

    def spend(self, *args, **settings) -> tuple[list[Contributions], list[UserBatch]]:
        """Repeats the contributions of `spend_on_present`; budgets stay those of one user."""
        sent, users = super().spend(*args, **settings)
        return [self._repeated(each) for each in sent], users

    def count(self, users: list[UserBatch], released: Sequence[GramSet]) -> Sequence[GramSet]:
        """Calls `count_users` with repeated sums."""
        rule, pruning = rule_of(*released), self.plan.pruning
        parts = [sum_counts(held_grams(batch, released, pruning=pruning), rule) for batch in users]
        factor = float(self.repeats[0])
        together = add_sums(parts)
        sums = CountSums(
            masses=_times(together.masses, factor), totals=_times(together.totals, factor)
        )
        return count_users(released, [sums], plan=self.plan, run_key=self.run_key)

    def _repeated(self, sent: Contributions) -> Contributions:
        factors = self.repeats[sent.users[:, 0].astype(np.int64)]
        weights = np.zeros(0) if sent.weights is None else sent.weights
        each = np.repeat(factors, np.diff(sent.offsets))
        tallies = None if sent.tallies is None else _times(sent.tallies, each)
        return dataclasses.replace(sent, weights=_times(weights, each), tallies=tallies)


def _times(values: np.ndarray, factors: np.ndarray | float) -> np.ndarray:
    return np.rint(values * factors).astype(np.int64)


def simulate(
    crowd: Crowd,
    plan: PrivacyPlan,
    *,
    repeats: float,
    seed: int,
    vocabulary: Sequence[str] | None = None,
) -> Sequence[GramSet]:
    """Returns S_1, …, S_T of a crowd in which every user stands for `repeats` users.

    Args:
      crowd: made-up users with public documents.
      plan: the plan of the run.
      repeats: number of users for whom each of them stands, > 0.
      seed: the seed of the run key; equal arguments give an equal result.
      vocabulary: public words, with vocabulary_policy="public".
    """
    run_key = RunKey(np.random.default_rng(seed).bytes(32))
    steps = RepeatedSteps(
        plan=plan,
        run_key=run_key,
        vocabulary=vocabulary,
        repeats=np.full(len(crowd), float(repeats)),
    )
    return release_lengths(steps, plan, crowd.batches(run_key))
