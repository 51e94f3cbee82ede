"""ReleaseInOneStep: all lengths of a run in one step of one worker, on several threads.

The embedded runner holds the whole corpus in one process anyway. There the loop over lengths and rounds
runs as it is (`in_memory`), instead of as a graph of a hundred short stages, each of which encodes and
decodes every batch of users. The kernels are those of the graph, and so is the release, bit for bit.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsIter, PCollection, TaggedOutput

from beam_dpne.documents.group_by_user import lay_out
from beam_dpne.elements import progress
from beam_dpne.elements.batches import DocumentBlock, UnhintedTransform, UserBatch
from beam_dpne.elements.coders import spill
from beam_dpne.elements.side_inputs import SetStore
from beam_dpne.elements.threads import map_in_threads
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.elements import (
    Contributions,
    GramSet,
    HistogramShard,
    PresentGrams,
)
from beam_dpne.ngrams.in_memory import ArraySteps, release_lengths
from beam_dpne.ngrams.plan import PrivacyPlan

# Hash ranges of a histogram for each thread, so that threads have about the same work.
_RANGES_OF_A_THREAD = 2


@dataclasses.dataclass(eq=False, kw_only=True)
class ReleaseInOneStep(UnhintedTransform):
    """Lays out positions and releases S_1, …, S_T, all in one step of one worker.

    Input: tuples of the number of a partition of users and a `DocumentBlock` of it, as `GroupByUser`
    shuffles them.

    Output: tuple of PCollections of one `GramSet` each: S_1, …, S_T.

    Privacy: that of `PrivateNgrams`, whose steps it does in the same order.

    Cost: one shuffle of the corpus, to one worker, which holds all positions and the sums of one round.

    Attributes:
      plan: the plan of the run.
      run_key: the secret of the run, bound to its parameters.
      workers: the number of threads; it changes no release.
      store: the folder for released sets that are too large for an element; with None every set is
        one element.

    References: DPNE Algorithm 1.
    """

    plan: PrivacyPlan
    run_key: RunKey = dataclasses.field(repr=False)
    workers: int
    store: SetStore | None = None

    def expand(self, blocks: PCollection[tuple[int, DocumentBlock]]) -> tuple[PCollection, ...]:
        """Brings all blocks to one worker; the loop over k has an output for each length."""
        # Without documents there is no block, and the sets are released all the same: empty ones.
        once = blocks.pipeline | "Once" >> beam.Create([None])
        steps = functools.partial(
            _ReleasingSteps,
            plan=self.plan,
            run_key=self.run_key,
            histogram_ranges=_RANGES_OF_A_THREAD * self.workers,
            workers=self.workers,
        )
        names = [str(length) for length in range(1, self.plan.max_length + 1)]
        release = beam.FlatMap(
            _release_all, AsIter(blocks), make_steps=steps, store=self.store
        ).with_outputs(*names)
        released = once | "ReleaseLengths" >> release
        for name in names:
            released[name].element_type = GramSet
        return tuple(released[name] for name in names)


def _release_all(
    _: None,
    blocks: Iterable[tuple[int, DocumentBlock]],
    *,
    make_steps: "functools.partial[_ReleasingSteps]",
    store: SetStore | None,
) -> Iterator[Any]:
    steps = make_steps()
    partitions: dict[int, list[DocumentBlock]] = {}
    for number, block in blocks:
        partitions.setdefault(number, []).append(block)
    users = map_in_threads(steps.lay_out, partitions.values(), steps.workers)
    partitions.clear()
    released = release_lengths(steps, steps.plan, [batch for part in users for batch in part])
    for grams in released:
        yield TaggedOutput(str(grams.length), spill(grams, store))


@dataclasses.dataclass(kw_only=True)
class _ReleasingSteps(ArraySteps):
    """The steps on arrays, which keep only the sums of a batch's contributions, and report progress."""

    def lay_out(self, blocks: list[DocumentBlock]) -> list[UserBatch]:
        """Returns the positions of the users of one partition."""
        max_tokens = self.plan.max_tokens_per_user
        return list(lay_out((0, blocks), max_tokens=max_tokens, run_key=self.run_key))

    def prune(
        self,
        length: int,
        users: list[UserBatch],
        previous: GramSet,
        present: PresentGrams | None,
    ) -> list[UserBatch]:
        """Reports the length, and returns the users' positions in terms of S_{k−1}."""
        progress.enter("users", length)
        return super().prune(length, users, previous, present)

    def send(self, contributions: Contributions) -> list[tuple[int, HistogramShard]]:
        """Sums a batch's contributions at once, since sums are much smaller."""
        return self.cut(contributions)

    def pieces_of(self, sent: list[tuple[int, HistogramShard]]) -> list[tuple[int, HistogramShard]]:
        """Returns the sums, which `send` has cut already."""
        return sent

    def release(
        self, length: int, histogram: list[HistogramShard], previous: GramSet | None
    ) -> GramSet:
        """Releases S_k, and reports it."""
        released = super().release(length, histogram, previous)
        progress.enter(progress.RELEASED, length)
        return released
