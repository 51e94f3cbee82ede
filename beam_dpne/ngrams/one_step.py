"""ReleaseInOneStep: all lengths of a run in one step of one worker, on several threads.

The embedded runner holds the whole corpus in one process anyway. There the loop over lengths and rounds
runs in memory, instead of as a graph of a hundred short stages, each of which encodes and decodes every
batch of users.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsIter, PCollection, TaggedOutput

from beam_dpne.documents.group_by_user import lay_out
from beam_dpne.elements.batches import DocumentBlock, UnhintedTransform
from beam_dpne.elements.coders import spill
from beam_dpne.elements.side_inputs import SetStore
from beam_dpne.elements.threads import map_in_threads
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.elements import GramSet
from beam_dpne.ngrams.in_memory import InMemory
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
        run = InMemory(
            plan=self.plan,
            run_key=self.run_key,
            histogram_ranges=_RANGES_OF_A_THREAD * self.workers,
            workers=self.workers,
        )
        names = [str(length) for length in range(1, self.plan.max_length + 1)]
        release = beam.FlatMap(_release_all, AsIter(blocks), run=run, store=self.store)
        released = once | "ReleaseLengths" >> release.with_outputs(*names)
        for name in names:
            released[name].element_type = GramSet
        return tuple(released[name] for name in names)


def _release_all(
    _: None,
    blocks: Iterable[tuple[int, DocumentBlock]],
    *,
    run: InMemory,
    store: SetStore | None,
) -> Iterator[Any]:
    partitions: dict[int, list[DocumentBlock]] = {}
    for number, block in blocks:
        partitions.setdefault(number, []).append(block)
    lay = functools.partial(lay_out, max_tokens=run.plan.max_tokens_per_user, run_key=run.run_key)
    laid = map_in_threads(lambda part: list(lay((0, part))), list(partitions.values()), run.workers)
    partitions.clear()
    users = [batch for part in laid for batch in part]
    laid.clear()
    for grams in run.release(users):
        yield TaggedOutput(str(grams.length), spill(grams, store))
