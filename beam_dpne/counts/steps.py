"""Numbers of users on Beam: sums of bundles, and the estimate on one worker."""

import functools
from collections.abc import Sequence
from typing import Any, TypeVar

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsSingleton, PCollection

from beam_dpne.counts.measuring import CountedRows, estimated, sum_batch_of
from beam_dpne.counts.rule import required_noise
from beam_dpne.elements import progress
from beam_dpne.elements.batches import RowSums, UserBatch
from beam_dpne.elements.bundles import apply, sum_rows
from beam_dpne.engines import holds_flattens_back
from beam_dpne.mechanism.randomness import RunKey

_Set = TypeVar("_Set")


def count_in_beam(
    rows: CountedRows,
    users: PCollection[UserBatch],
    released: Sequence[PCollection[_Set]],
    *,
    kind: type[_Set],
    noise: float | None,
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
        users = apply(users, "Copy", beam.Map(lambda batch: batch), UserBatch)
        before = [AsIter(apply(users, "None", beam.Filter(lambda _: False), UserBatch))]
    sum_batch = functools.partial(_sums_of, rows=rows, sets=len(sides))
    sums = AsIter(sum_rows(users, sum_batch, *before, *sides))
    estimate = beam.FlatMap(
        estimated, sums, *sides[:-1], rows=rows, noise=required_noise(noise), run_key=run_key
    )
    return apply(released[-1], "Estimate", estimate, kind)


def _sums_of(batch: UserBatch, *beside: Any, rows: CountedRows, sets: int) -> RowSums:
    progress.enter("count")
    return sum_batch_of(batch, *beside, rows=rows, sets=sets)
