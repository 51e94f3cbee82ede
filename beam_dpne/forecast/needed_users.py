"""Numbers of users that an n-gram needs to be released: in a simulated run, or from a plan alone.

**Simulated.** The mechanism is the real one, on arrays, with a made-up key and public text. Each of its
users stands for m: their sums of weights count m times, and so do the sums from which numbers of users
are estimated. Noise, thresholds and budgets are those of the plan. The result is that of a crowd in
which every user has m − 1 doubles.

**Typical.** If all holders of an n-gram are alike, the plan alone gives the number. Each holder has g
n-grams of every length, all as rare as the one in question, so that none of them is released or given
up before the last round. Holders who also have frequent n-grams have more budget left for this one, so
that it needs somewhat fewer of them.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy import optimize, stats

from beam_dpne.elements.batches import RowSums, UserBatch
from beam_dpne.evaluation.corpus import Corpus, GramIndex, codes_of_sets
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams import adaptive
from beam_dpne.ngrams.elements import Contributions, GramSet
from beam_dpne.ngrams.in_memory import InMemory, Piece
from beam_dpne.ngrams.length_rules import rule_of_sizes
from beam_dpne.ngrams.plan import NgramsPlan

# A sum of weights stays below 2^63 for this many users with weights below 1 in units of 2^-32.
MOST_USERS = 2**30
HALF = 0.5
NEARLY = 0.99
# N-grams of fewer users of the crowd say little of the number that is needed.
_FEWEST = 2
NUMBERS = (10, 100, 1000)
# Valid n-grams for each released n-gram one word shorter, on which thresholds depend a little (public
# titles): at two words, at three, and at more.
_VALID_PER_RELEASED = (2000, 20, 2)
_RELEASED = 10**6


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
        if sent.weights is not None:
            sent = dataclasses.replace(sent, weights=_times(sent.weights, self.repeats))
        if sent.tallies is not None:
            sent = dataclasses.replace(sent, tallies=_times(sent.tallies, self.repeats))
        return super().sums(sent)

    def sum_counts(self, users: list[UserBatch], released: Sequence[GramSet]) -> Iterable[RowSums]:
        sums = super().sum_counts(users, released)
        return [dataclasses.replace(each, sums=_times(each.sums, self.repeats)) for each in sums]


def _times(values: np.ndarray, factor: float) -> np.ndarray:
    return np.rint(values * factor).astype(np.int64)


def simulate(
    crowd: Corpus, plan: NgramsPlan, *, repeats: float, seed: int, root: GramSet | None = None
) -> Sequence[GramSet]:
    """Returns S_1, …, S_T of a crowd in which every user stands for `repeats` users.

    Args:
      crowd: made-up users with public documents.
      plan: the plan of the run.
      repeats: number of users for whom each of them stands, > 0.
      seed: the seed of the run key; equal arguments give an equal result.
      root: the root of known n-grams, if there are any.
    """
    run_key = RunKey(np.random.default_rng(seed).bytes(32))
    run = _Repeated(plan=plan, run_key=run_key, repeats=repeats, root=root)
    return run.release([crowd.batch(run_key)])


def needs(index: GramIndex, released: Sequence[GramSet], repeats: float) -> list[UsersNeeded]:
    """Returns for each length how many users an n-gram needed in a simulation.

    Args:
      index: the n-grams of the crowd.
      released: the n-grams that the simulation released.
      repeats: number of users for whom each of the crowd stands.
    """
    needed = []
    for rows, level in zip(codes_of_sets(index.corpus, released), index.lengths, strict=True):
        # (m + 1,) whether each n-gram is released; the last place is that of no n-gram, −1.
        is_released = np.zeros(level.users.size + 1, bool)
        is_released[index.find(rows)] = True
        known = np.flatnonzero(level.users >= _FEWEST)
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
    logs = np.log(numbers)
    return UsersNeeded(
        half=_crossing(logs, fitted, HALF),
        nearly=_crossing(logs, fitted, NEARLY),
    )


def _crossing(logs: np.ndarray, fitted: np.ndarray, level: float) -> float | None:
    above = np.flatnonzero(fitted >= level)
    # Without an n-gram below the level or above it, the crossing is unknown.
    if not above.size or above[0] == 0:
        return None
    between = slice(above[0] - 1, above[0] + 1)
    log_number = np.interp(level, fitted[between], logs[between])
    return math.exp(log_number)


def typical_needs(plan: NgramsPlan, number: int) -> tuple[UsersNeeded, ...]:
    """Returns for each length the numbers of users that an n-gram needs.

    Args:
      plan: the plan of a run.
      number: g ≥ 1, the number of n-grams of each length that every holder has.

    Example:
      >>> plan = NgramsPlan(epsilon=4, delta=1e-7, max_length=2)
      >>> [round(needed.half) for needed in typical_needs(plan, 100)]
      [132, 138]
    """
    needs = []
    for length, weights in enumerate(_weights(plan, number), 1):
        valid = 0 if length == 1 else _RELEASED * _VALID_PER_RELEASED[min(length, 4) - 2]
        sizes = {0: valid} if valid else {}
        rule = rule_of_sizes(plan, length, released=_RELEASED, sizes=sizes, estimated_valid=valid)
        last = rule.rounds[-1]
        loadings = np.array(last.loadings) / last.loading_unit
        # A user with more than Δ n-grams adds a random subset, so that weights vary.
        share = min(1.0, plan.contribution_limits[length - 1] / number)
        mean = float(loadings @ weights) * math.sqrt(share)
        variance = float(loadings**2 @ weights**2) * (1 - share)
        half, nearly = (
            _users(last.threshold, last.evidence_stddev, mean, variance, level)
            for level in (HALF, NEARLY)
        )
        needs.append(UsersNeeded(half, nearly))
    return tuple(needs)


def _users(threshold: float, stddev: float, mean: float, variance: float, level: float) -> float:
    """Returns the users n whose evidence, n·mean with noise, passes the threshold at this level.

    It is the larger root of (n·mean − ρ)² = z²(σ² + n·variance).
    """
    z = float(stats.norm.ppf(level))
    half = threshold * mean + z**2 * variance / 2
    rest = math.sqrt(max(0.0, half**2 - mean**2 * (threshold**2 - z**2 * stddev**2)))
    return max(1.0, (half + rest) / mean**2)


def _weights(plan: NgramsPlan, number: int) -> Iterator[np.ndarray]:
    """Yields for each length the square root of what a holder spends per n-gram in each round."""
    if not plan.is_adaptive:
        yield from np.full((plan.max_length, 1), 1 / math.sqrt(number))
        return
    left = np.array([plan.allotment])
    kept_by_words, kept_by_longer = adaptive.AHEAD[plan.favour or "balanced"]
    for length in range(1, plan.max_length + 1):
        ahead = number * (plan.max_length - length)
        kept = kept_by_words if length == 1 else kept_by_longer
        weights = []
        for this_round in plan.lengths[length - 1].rounds:
            spent = adaptive.spends(
                left, np.array([number]), np.array([ahead]), this_round.quota, kept
            )
            if length == 1:
                spent = np.minimum(spent, adaptive.round_cap(plan.allotment, this_round))
            left = left - spent
            weights.append(math.sqrt(float(spent[0]) / adaptive.BUDGET_UNITS / number))
        yield np.array(weights)
