"""The pass that counts users, in Beam and in memory: exact sums over users, their noise, estimates.

A program says with a `CountedRows` how its released sets are rows, and which rows a user holds.

**Why it is private.** Given the released rows, a user adds to the sums of rows the vector (a_g·t) over
the rows that the user holds, with t ≤ 1/√(Σ a_g²): its length is at most 1. To the sums of groups, in
units of their class's bound M_j, the user adds a vector of length at most 1. Both are functions of this
user's data and of released sets alone. The sums get Gaussian noise with 1/σ_A² + 1/σ_B² ≤ μ², so the
measurement is μ-Gaussian-DP given everything released before, and composes with it.

Weights are exact integers in units of 2^-32. Released are only *cells*, 64 to a standard deviation,
whose probabilities are right to a relative 1e-12 (`mechanism.thresholds`).
"""

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsIter, AsSingleton, PCollection

from beam_dpne.counts.estimates import estimate_users
from beam_dpne.counts.rule import (
    EXACT,
    CountNoise,
    CountRule,
    MeasuredCounts,
    blocks,
    count_rule,
    required_noise,
)
from beam_dpne.elements import progress
from beam_dpne.elements.arrays import distinct, map_in_threads, offsets_of, rows_of_entries
from beam_dpne.elements.batches import (
    RowSums,
    UserBatch,
    apply,
    sum_rows,
    sums_of_table,
    table_of_sums,
)
from beam_dpne.elements.coders import cached_for_sets
from beam_dpne.engines import holds_flattens_back
from beam_dpne.mechanism import randomness
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import CELLS_PER_STDDEV, UNITS
from beam_dpne.mechanism.thresholds import cells_above

_Set = TypeVar("_Set")
_SMALL = 1 - 2.0**-50
_NORM_MARGIN = 2.0**-30


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Held:
    """The distinct released rows that each user holds (CSR).

    Attributes:
      offsets: (n + 1,) int64, where each user's rows begin.
      rows: (m,) int64, ascending within a user.
    """

    offsets: np.ndarray
    rows: np.ndarray

    @classmethod
    def of(cls, users: np.ndarray, rows: np.ndarray, *, user_count: int, row_count: int) -> "Held":
        """Returns what users hold, from pairs of a user's number and a row, (p,) integers each."""
        (user, row), _ = distinct((users, rows), (max(1, user_count), max(1, row_count)))
        return cls(offsets=offsets_of(np.bincount(user, minlength=user_count)), rows=row)


def user_factors(squares: np.ndarray) -> np.ndarray:
    """Returns t = 1/√q in units of 2^-32, rounded down, so that t²·q ≤ 2^64: (n,) int64.

    Args:
      squares: (n,) int64, q = Σ a_g² ≥ 0 of each user; t = 0 where it is 0.

    Example:
      >>> user_factors(np.array([0, 1, 4]))
      array([         0, 4294967295, 2147483647])
    """
    # √ and the quotient are right to 2^-52 each, so that the product with 1 − 2^-50 is never too large.
    roots = np.sqrt(np.maximum(squares, 1).astype(np.float64))
    factors = np.floor(UNITS / roots * _SMALL).astype(np.int64)
    return np.where(squares > 0, factors, 0)


def sum_counts(held: Held, rule: CountRule) -> RowSums:
    """Adds up the users of a batch.

    Returns:
      First the rows' masses, Σ_u a_g·t_u in units of 2^-32; after them, group by group, the number of
      rows of the group that the users of each class hold, Σ_u c_G. `split_sums` gives both back.
    """
    users = rows_of_entries(held.offsets)
    weights = rule.row_weights[held.rows]
    squares = _sums_of_users(weights * weights, held.offsets)
    masses = np.zeros(rule.row_weights.size, np.int64)
    np.add.at(masses, held.rows, weights * user_factors(squares)[users])
    # (pairs,) each: the pairs of a user and a group that the user has rows of, and their number c_G.
    size = rule.group_weights.size
    pairs, numbers = np.unique(users * size + rule.groups[held.rows], return_counts=True)
    user, group = np.divmod(pairs, max(size, 1))
    lengths = (numbers * rule.group_weights[group]).astype(np.float64) ** 2
    norms = np.zeros(held.offsets.size - 1)
    np.add.at(norms, user, lengths)
    # The least class whose squared bound is not below the squared length. Sums from 2^53 on are right
    # to far less than a relative 2^-30, which is added, so that no user is in too small a class.
    norms[norms >= EXACT] *= 1 + _NORM_MARGIN
    classes = np.searchsorted(rule.bounds.astype(np.float64) ** 2, norms)
    totals = np.zeros((size, rule.bounds.size), np.int64)
    np.add.at(totals, (group, classes[user]), numbers)
    return sums_of_table(np.concatenate((masses, totals.reshape(-1))))


def split_sums(pieces: Iterable[RowSums], rule: CountRule) -> tuple[np.ndarray, np.ndarray]:
    """Returns masses, (n,) int64, and totals, (g, J + 1) int64, of sums that are cut in any way."""
    rows, shape = rule.row_weights.size, (rule.group_weights.size, rule.bounds.size)
    table = table_of_sums(pieces, rows + shape[0] * shape[1])
    return table[:rows], table[rows:].reshape(shape)


def _sums_of_users(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Returns the sum of each user's values: (n,) int64."""
    before = np.concatenate(([0], np.cumsum(values)))
    return before[offsets[1:]] - before[offsets[:-1]]


def measure(
    pieces: Iterable[RowSums], rule: CountRule, noise: CountNoise, run_key: RunKey
) -> MeasuredCounts:
    """Adds noise to the sums of all users: the only step from private sums to public numbers.

    Args:
      pieces: sums over all users, cut by users and rows in any way.
      rule: the rule by which they were summed.
      noise: the noise.
      run_key: bound to the run's parameters.
    """
    sums, totals = split_sums(pieces, rule)
    masses = np.empty(sums.size)
    for rows in blocks(0, masses.size):
        draws = _normals(run_key, "count masses", np.arange(rows.start, rows.stop))
        noisy = _noisy(sums[rows], noise.row_stddev * UNITS, draws)
        masses[rows] = noisy / (UNITS * rule.row_weights[rows])
    # (g, J + 1) int64: Σ c_G d_G, on which a user of class j has an effect of at most M_j.
    values = totals * rule.group_weights[:, np.newaxis]
    stddevs = noise.group_stddev * np.broadcast_to(rule.bounds, values.shape)
    draws = _normals(run_key, "count totals", np.arange(values.size)).reshape(values.shape)
    return MeasuredCounts(
        masses=masses,
        mass_stddevs=noise.row_stddev / rule.row_weights,
        totals=_noisy(values, stddevs, draws) / rule.group_weights[:, np.newaxis],
        total_stddevs=stddevs / rule.group_weights[:, np.newaxis],
    )


def _noisy(values: np.ndarray, stddevs: np.ndarray | float, normals: np.ndarray) -> np.ndarray:
    """Returns the middles of the cells of values with noise, float64.

    Args:
      values: integers, in any unit.
      stddevs: standard deviations of the noise, in this unit.
      normals: standard normal draws.
    """
    widths = np.ceil(np.asarray(stddevs) / CELLS_PER_STDDEV).astype(np.int64)
    # Whole cells are split off exactly, so that no rounding grows with the value.
    whole, rest = np.divmod(values, widths)
    cells = cells_above(whole, rest.astype(np.float64), normals * stddevs, widths)
    return (cells + 0.5) * widths


def _normals(run_key: RunKey, purpose: str, items: np.ndarray) -> np.ndarray:
    return randomness.normals(randomness.keyed_bits(run_key.sub_key(purpose), np.uint64(0), items))


@runtime_checkable  # Beam checks the arguments of steps.
class CountedRows(Protocol):
    """How the released sets of one program are rows whose users are counted; it must be hashable.

    A user must be in one batch only, since every user adds vectors of length 1 at most to the sums.
    """

    def held(self, users: Any, released: Sequence[Any]) -> Held:
        """Returns the distinct rows that each user of a batch holds."""
        ...

    def scores(self, released: Sequence[Any]) -> Sequence[np.ndarray]:
        """Returns the scores of the rows of each length."""
        ...

    def parents(self, released: Sequence[Any]) -> np.ndarray | None:
        """Returns rows that every user of a row holds as well (see `estimate_users`), or None."""
        ...

    def with_users(self, released: Sequence[Any], users: np.ndarray) -> list[Any]:
        """Returns the sets with the numbers of users of all rows, (n, 3) int64."""
        ...


def count_in_memory(
    rows: CountedRows,
    batches: Iterable[Any],
    released: Sequence[Any],
    *,
    noise: CountNoise | None,
    run_key: RunKey,
    workers: int = 1,
) -> list[Any]:
    """Returns released sets with estimated numbers of users, from batches of all users.

    Args:
      rows: how the sets are rows.
      batches: all users, each of them in one batch only.
      released: the released sets.
      noise: the noise of the measurement; None is refused.
      run_key: the secret of the run, bound to its parameters.
      workers: the number of threads that work on batches; it changes no release.
    """

    def summed(batch: Any) -> RowSums:
        return _sum_batch(batch, *released, rows=rows, sets=len(released))

    pieces = map_in_threads(summed, batches, workers)
    *shorter, last = released
    return estimated(last, pieces, *shorter, rows=rows, noise=noise, run_key=run_key)


def count_in_beam(
    rows: CountedRows,
    users: PCollection[UserBatch],
    released: Sequence[PCollection[_Set]],
    *,
    kind: type[_Set],
    noise: CountNoise | None,
    run_key: RunKey,
) -> PCollection[_Set]:
    """Sums within bundles, adds up the bundles, and estimates on one worker.

    Args:
      rows: how the sets are rows.
      users: all users, each of them in one batch only.
      released: the released sets, PCollections of one set each; side inputs.
      kind: the type of a set.
      noise: the noise of the measurement; None is refused.
      run_key: the secret of the run, bound to its parameters.

    Returns:
      All sets with estimated numbers of users, as one PCollection.
    """
    sides = [AsSingleton(each) for each in released]
    before: list[AsIter] = []
    if holds_flattens_back(users.pipeline):
        # The sets depend on Flattens of what is computed from the users: this pass has a copy. The
        # empty side input keeps the runner from making one stage of the copy and the pass.
        users = apply(users, "Copy", beam.Map(_same), UserBatch)
        before = [AsIter(apply(users, "None", beam.Filter(_never), UserBatch))]
    sum_batch = functools.partial(_sum_batch, rows=rows, sets=len(sides))
    sums = AsIter(sum_rows(users, sum_batch, *before, *sides))
    how = {"rows": rows, "noise": required_noise(noise), "run_key": run_key}
    estimate = beam.FlatMap(estimated, sums, *sides[:-1], **how)
    return apply(released[-1], "Estimate", estimate, kind)


def _same(batch: UserBatch) -> UserBatch:
    return batch


def _never(_: UserBatch) -> bool:
    return False


def _sum_batch(batch: Any, *beside: Any, rows: CountedRows, sets: int) -> RowSums:
    """Counts in one batch; the released sets are the last of the side inputs."""
    progress.enter("count")
    released = beside[len(beside) - sets :]
    return sum_counts(rows.held(batch, released), rule_of(rows, *released))


@cached_for_sets(maxsize=1)
def rule_of(rows: CountedRows, *released: Any) -> CountRule:
    """Returns the weights of all rows, which are computed once for all batches."""
    return count_rule(rows.scores(released))


def estimated(
    last: Any,
    pieces: Iterable[RowSums],
    *shorter: Any,
    rows: CountedRows,
    noise: CountNoise | None,
    run_key: RunKey,
) -> list[Any]:
    """Returns all released sets with their estimates, given the last one and those before it.

    Args:
      last: the set of the longest rows.
      pieces: sums over all users, cut by users and rows in any way.
      shorter: the sets before it.
      rows: how the sets are rows.
      noise: the noise of the measurement; None is refused.
      run_key: the secret of the run, bound to its parameters.
    """
    released = [*shorter, last]
    rule = rule_of(rows, *released)
    measured = measure(pieces, rule, required_noise(noise), run_key)
    users = estimate_users(measured, rule, rows.scores(released), rows.parents(released))
    return rows.with_users(released, users)
