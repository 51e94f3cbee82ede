"""A run in memory in which each made-up user stands for many, and what an n-gram needed in it.

The mechanism is the real one, on arrays, with a made-up key and without private data. Users stand for
m users each: their sums of weights count m times, and so do the sums from which numbers of users are
estimated. Noise, thresholds and budgets are those of the plan. The result is that of a crowd in which
every user has m − 1 doubles.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import optimize

from beam_dpne.counts.measuring import add_sums, sum_counts
from beam_dpne.elements.batches import UserBatch
from beam_dpne.evaluation.corpus import Corpus, GramIndex
from beam_dpne.forecast.crowd import as_batch
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.elements import Contributions, GramSet, unpack_pairs
from beam_dpne.ngrams.in_memory import InMemory, Piece
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.user_counts import count_users, held_grams, rule_of

# A sum of weights stays below 2^63 for this many users with weights below 1 in units of 2^-32.
MOST_USERS = 2**30
HALF, NEARLY = 0.5, 0.99
# N-grams of fewer users of the crowd say little of the number that is needed.
_FEWEST = 2


class UsersNeeded(NamedTuple):
    """Numbers of users that an n-gram needs; None where the simulation has too few n-grams.

    Attributes:
      half: number with which the n-gram is released with probability 50 %.
      nearly: number with which it is released with probability 99 %.
    """

    half: float | None
    nearly: float | None


@dataclasses.dataclass(kw_only=True)
class _Repeated(InMemory):
    """A run in which every user stands for `repeats` users."""

    repeats: float

    def sums(self, sent: Contributions) -> list[Piece]:
        weights = np.zeros(0) if sent.weights is None else sent.weights
        tallies = None if sent.tallies is None else _times(sent.tallies, self.repeats)
        repeated = dataclasses.replace(sent, weights=_times(weights, self.repeats), tallies=tallies)
        return super().sums(repeated)

    def count(self, users: list[UserBatch], released: Sequence[GramSet]) -> Sequence[GramSet]:
        rule, pruning = rule_of(*released), self.plan.pruning
        sums = add_sums(
            [sum_counts(held_grams(batch, released, pruning=pruning), rule) for batch in users]
        )
        repeated = {
            name: _times(getattr(sums, name), self.repeats) for name in ("masses", "totals")
        }
        sums = dataclasses.replace(sums, **repeated)
        return count_users(released, [sums], plan=self.plan, run_key=self.run_key)


def _times(values: np.ndarray, factor: float) -> np.ndarray:
    return np.rint(values * factor).astype(np.int64)


def simulate(crowd: Corpus, plan: PrivacyPlan, *, repeats: float, seed: int) -> Sequence[GramSet]:
    """Returns S_1, …, S_T of a crowd in which every user stands for `repeats` users.

    Args:
      crowd: made-up users with public documents.
      plan: the plan of the run.
      repeats: number of users for whom each of them stands, > 0.
      seed: the seed of the run key; equal arguments give an equal result.
    """
    run_key = RunKey(np.random.default_rng(seed).bytes(32))
    run = _Repeated(plan=plan, run_key=run_key, repeats=repeats)
    return run.release([as_batch(crowd, run_key)])


def needs(index: GramIndex, released: Sequence[GramSet], repeats: float) -> list[UsersNeeded]:
    """Returns for each length how many users an n-gram needed in a simulation.

    Args:
      index: the n-grams of the crowd.
      released: the n-grams that the simulation released.
      repeats: number of users for whom each of the crowd stands.
    """
    needed = []
    vocabulary = rows = np.zeros((0, 0), np.int64)
    for grams, level in zip(released, index.lengths, strict=True):
        if grams.words is not None:
            vocabulary = _codes(index.corpus, grams.words)
            rows = vocabulary[:, np.newaxis]
        else:
            prefixes, seconds = unpack_pairs(grams.keys)
            last = vocabulary[seconds] if grams.pruning == "single" else rows[seconds, -1]
            rows = np.concatenate((rows[prefixes], last[:, np.newaxis]), axis=1)
        ids = index.find(rows)
        is_released = np.zeros(level.users.size, bool)
        is_released[ids[ids >= 0]] = True
        known = level.users >= _FEWEST
        needed.append(users_needed(level.users[known] * repeats, is_released[known]))
    return needed


def users_needed(users: np.ndarray, released: np.ndarray) -> UsersNeeded:
    """Fits the probability of release as a function that rises with the number of users.

    Args:
      users: (n,) float64 > 0, the number of users who have each n-gram.
      released: (n,) bool, whether it was released.

    Returns:
      The points at which the isotonic fit crosses the two probabilities, between two numbers of users
      linearly in the logarithm.

    Example:
      >>> users = np.repeat([10.0, 20.0, 40.0, 80.0], 100)
      >>> released = np.concatenate([np.arange(100) < share for share in (0, 25, 75, 100)])
      >>> [round(number, 1) for number in users_needed(users, released)]
      [28.3, 77.8]
    """
    numbers, groups, sizes = np.unique(users, return_inverse=True, return_counts=True)
    if not numbers.size:
        return UsersNeeded(None, None)
    shares = np.bincount(groups.reshape(-1), released.astype(np.float64)) / sizes
    fitted = optimize.isotonic_regression(shares, weights=sizes.astype(np.float64)).x
    return UsersNeeded(*(_crossing(np.log(numbers), fitted, level) for level in (HALF, NEARLY)))


def _crossing(logs: np.ndarray, fitted: np.ndarray, level: float) -> float | None:
    above = np.flatnonzero(fitted >= level)
    # Without an n-gram below the level or above it, the crossing is unknown.
    if not above.size or above[0] == 0:
        return None
    place = int(above[0])
    return float(
        np.exp(np.interp(level, fitted[place - 1 : place + 1], logs[place - 1 : place + 1]))
    )


def _codes(crowd: Corpus, words: pa.Array) -> np.ndarray:
    """Returns the crowd's code of each word, −1 for other words: (n,) int64."""
    options = pc.SetLookupOptions(value_set=crowd.words)
    places = pc.call_function("index_in", [words.cast(crowd.words.type)], options)
    return places.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
