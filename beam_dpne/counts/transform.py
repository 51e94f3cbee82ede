"""The pass that counts users, in Beam and in memory: sums over users, noise, and estimates.

The measurement and its privacy are in `measuring`, and the estimates in `estimates`. A program says
with a `CountedRows` how its released sets are rows, and how it finds the rows that a user holds.
"""

import functools
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsIter, AsSingleton, PCollection

from beam_dpne.counts.estimates import estimate_users
from beam_dpne.counts.measuring import Held, measure, sum_counts
from beam_dpne.counts.rule import CountNoise, CountRule, count_rule
from beam_dpne.elements import progress
from beam_dpne.elements.arrays import map_in_threads
from beam_dpne.elements.batches import RowSums, UserBatch, apply, sum_rows
from beam_dpne.elements.coders import cached_for_sets
from beam_dpne.engines import holds_flattens_back
from beam_dpne.mechanism.randomness import RunKey

_Set = TypeVar("_Set")


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
    noise: CountNoise,
    run_key: RunKey,
    workers: int = 1,
) -> list[Any]:
    """Returns released sets with estimated numbers of users, from batches of all users.

    Args:
      rows: how the sets are rows.
      batches: all users, each of them in one batch only.
      released: the released sets.
      noise: the noise of the measurement.
      run_key: the secret of the run, bound to its parameters.
      workers: the number of threads that work on batches; it changes no release.
    """

    def summed(batch: Any) -> RowSums:
        return _sum_batch(batch, *released, rows=rows, sets=len(released))

    pieces = map_in_threads(summed, batches, workers)
    return estimated(released, pieces, rows=rows, noise=noise, run_key=run_key)


def count_in_beam(
    rows: CountedRows,
    users: PCollection[UserBatch],
    released: Sequence[PCollection[_Set]],
    *,
    kind: type[_Set],
    noise: CountNoise,
    run_key: RunKey,
) -> PCollection[_Set]:
    """Sums within bundles, adds up the bundles, and estimates on one worker.

    Args:
      rows: how the sets are rows.
      users: all users, each of them in one batch only.
      released: the released sets, PCollections of one set each; side inputs.
      kind: the type of a set.
      noise: the noise of the measurement.
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
    how = {"rows": rows, "noise": noise, "run_key": run_key}
    estimate = beam.FlatMap(_estimate, sums, *sides[:-1], how=how)
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


def _estimate(last: Any, pieces: Iterable[RowSums], *shorter: Any, how: dict) -> list[Any]:
    """Returns all sets, given the last one and those before it."""
    return estimated([*shorter, last], pieces, **how)


@cached_for_sets(maxsize=1)
def rule_of(rows: CountedRows, *released: Any) -> CountRule:
    """Returns the weights of all rows, which are computed once for all batches."""
    return count_rule(rows.scores(released))


def estimated(
    released: Sequence[Any],
    pieces: Iterable[RowSums],
    *,
    rows: CountedRows,
    noise: CountNoise,
    run_key: RunKey,
) -> list[Any]:
    """Returns released sets with their estimates, from sums over all users, cut by rows in any way."""
    rule = rule_of(rows, *released)
    measured = measure(pieces, rule, noise, run_key)
    users = estimate_users(measured, rule, rows.scores(released), rows.parents(released))
    return rows.with_users(released, users)
