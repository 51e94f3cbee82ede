"""The driver in memory: the loop over lengths and rounds on arrays, in one process.

A round has three steps, each a plain function on arrays, which the transforms of `PrivateNgrams` apply
as well: users contribute (`contributions`), what they send is measured (`histogram`, `held_counts`,
`spurious`), and noisy sums are decided (`threshold`). So a release in memory equals the pipeline's, bit
for bit, under the same run key.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import apache_beam as beam
from apache_beam.pvalue import AsIter, PCollection, TaggedOutput

from beam_dpne.counts.rule import required_noise
from beam_dpne.counts.transform import count_in_memory
from beam_dpne.documents.group_by_user import lay_out
from beam_dpne.elements import progress
from beam_dpne.elements.arrays import map_in_threads
from beam_dpne.elements.batches import DocumentBlock, UnhintedTransform, UserBatch
from beam_dpne.elements.coders import SetStore, spill
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import LengthRule
from beam_dpne.ngrams import histogram, threshold
from beam_dpne.ngrams.candidates import prune_invalid
from beam_dpne.ngrams.contributions import contribute
from beam_dpne.ngrams.elements import ROOT, Contributions, GramSet, HistogramShard, PresentGrams
from beam_dpne.ngrams.held_counts import meet_spurious, rule_of_round
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.user_counts import GramRows
from beam_dpne.ngrams.valid import rule_for, sample_spurious

_In = TypeVar("_In")
_Out = TypeVar("_Out")
# Hash ranges of a histogram for each thread, so that threads have about the same work.
_RANGES_OF_A_THREAD = 2
# Sums of one hash range, with its number.
Piece = tuple[int, HistogramShard]


def release_ngrams(
    users: Iterable[UserBatch], plan: PrivacyPlan, run_key: RunKey
) -> tuple[GramSet, ...]:
    """Releases S_1, …, S_T of users in memory: the mechanism of `PrivateNgrams` without Beam.

    Args:
      users: positions of length 0; each user is in one batch only.
      plan: the plan of the run.
      run_key: a key that is bound to the run's parameters, see `transform.run_context`.

    Example:
      >>> import numpy as np, pyarrow as pa
      >>> crowd = UserBatch(  # 200 users, each of whom says "a b"
      ...     length=0, size=2, users=np.arange(400, dtype=np.uint64).reshape(-1, 2),
      ...     offsets=np.arange(0, 603, 3), ids=np.tile([0, 1, -1], 200).astype(np.int32),
      ...     words=pa.array(["a", "b"]), word_hashes=np.eye(2, dtype=np.uint64))
      >>> plan = PrivacyPlan(epsilon=10, delta=1e-4, max_length=2, spurious_fraction=1e-9)
      >>> words, bigrams = release_ngrams([crowd], plan, RunKey(bytes(32)))
      >>> words.words.to_pylist(), (bigrams.keys >> 32, bigrams.keys & 0xFFFFFFFF)
      (['a', 'b'], (array([0]), array([1])))

    References: DPNE Algorithm 1.
    """
    return InMemory(plan=plan, run_key=run_key).release(list(users))


@dataclasses.dataclass(kw_only=True)
class InMemory:
    """The loop over lengths and rounds on arrays; its methods are the steps of a round.

    Attributes:
      plan: the parameters of the run.
      run_key: a key that is bound to the run's parameters.
      histogram_ranges: the number of hash ranges of a histogram; it changes no release.
      workers: the number of threads that work on batches and hash ranges; it changes no release.
    """

    plan: PrivacyPlan
    run_key: RunKey = dataclasses.field(repr=False)
    histogram_ranges: int = 1
    workers: int = 1

    def release(self, users: list[UserBatch]) -> tuple[GramSet, ...]:
        """Returns S_1, …, S_T, with numbers of users if the plan has a count_share.

        References: DPNE Algorithm 1, "for k = 1 to T".
        """
        everybody, present = users, None
        released: list[GramSet] = []
        for length in range(1, self.plan.max_length + 1):
            progress.enter("users", length)
            previous = released[-1] if released else None
            if previous is not None:
                users = self.prune(users, previous, present)
            found, users, present = self.release_length(length, users, previous)
            progress.enter(progress.RELEASED, length)
            released.append(found)
        return tuple(self.count(everybody, released) if self.plan.count_share else released)

    def release_length(
        self, length: int, users: list[UserBatch], previous: GramSet | None
    ) -> tuple[GramSet, list[UserBatch], PresentGrams | None]:
        """Releases one length in its rounds; each is for what the round before left open.

        Returns:
          S_k, the users with their remaining budgets, and the set whose rows their positions refer to.

        References: DPNE Algorithm 1, the body of the loop.
        """
        present: list[PresentGrams] = []
        shards: list[HistogramShard] = []
        known = ROOT if previous is None else previous
        last = self.plan.rounds_of(length)
        for number in range(1, last):
            sent, users = self.contribute(length, number, users, previous, present)
            shards = self.measure(length, number, sent, shards, previous)
            shards = self.decide(shards, self.rule(length, shards, known))
            parts = [threshold.present_part(shard) for shard in shards]
            present.append(threshold.merge_present(parts, known, number))
        sent, users = self.contribute(length, last, users, previous, present)
        shards = self.measure(length, last, sent, shards, previous)
        rule = self.rule(length, shards, known)
        found = [threshold.released_part(each, rule) for each in self.decide(shards, rule)]
        released = threshold.merge_released(found, known, rule)
        return released, users, present[-1] if present else None

    def prune(
        self, users: list[UserBatch], previous: GramSet, present: PresentGrams | None
    ) -> list[UserBatch]:
        """Returns the users' positions in terms of S_{k−1}; batches without users are dropped."""
        prune = functools.partial(
            prune_invalid, released=previous, pruning=self.plan.pruning, present=present
        )
        return [batch for batch in self.map(prune, users) if len(batch.users)]

    def contribute(
        self,
        length: int,
        round_number: int,
        users: list[UserBatch],
        previous: GramSet | None,
        present: Sequence[PresentGrams],
    ) -> tuple[list[Piece], list[UserBatch]]:
        """Returns the sums of what users send to a round, and the users with what they have left."""

        def of_batch(batch: UserBatch) -> tuple[list[Piece], UserBatch] | None:
            contributed = contribute(
                batch,
                plan=self.plan,
                length=length,
                round_number=round_number,
                run_key=self.run_key,
                previous=previous,
                present=present[-1] if present else None,
                before=present[-2] if len(present) > 1 else None,
            )
            return contributed and (self.sums(contributed[0]), contributed[1])

        kept = [pair for pair in self.map(of_batch, users) if pair is not None]
        return [piece for pieces, _ in kept for piece in pieces], [batch for _, batch in kept]

    def sums(self, sent: Contributions) -> list[Piece]:
        """Returns the sums of what a batch's users send, which are much smaller, by hash range."""
        sums = histogram.sum_contributions(sent)
        return list(histogram.cut_by_hash_range(sums, self.histogram_ranges))

    def measure(
        self,
        length: int,
        round_number: int,
        sent: list[Piece],
        still_open: list[HistogramShard],
        previous: GramSet | None,
    ) -> list[HistogramShard]:
        """Returns the sums of a round; in round 1 with the rule that decides, and drawn n-grams."""
        pieces = list(sent)
        is_first = previous is not None and round_number == 1
        if is_first:
            pieces += histogram.empty_ranges(length, histogram_ranges=self.histogram_ranges)
        else:
            for shard in still_open:
                pieces += histogram.shard_open(shard, histogram_ranges=self.histogram_ranges)
        shards = self.merge(pieces)
        if not is_first or previous is None:
            return shards
        rule = rule_of_round(previous, shards, plan=self.plan, length=length, run_key=self.run_key)
        drawn = sample_spurious(previous, rule=rule, run_key=self.run_key)
        ranges = self.histogram_ranges
        return [meet_spurious(shard, drawn, histogram_ranges=ranges) for shard in shards]

    def merge(self, pieces: list[Piece]) -> list[HistogramShard]:
        """Adds up the pieces of each hash range; their order does not matter."""
        ranges: dict[int, list[HistogramShard]] = {}
        for number, piece in pieces:
            ranges.setdefault(number, []).append(piece)
        return self.map(histogram.merge_shards, ranges.values())

    def decide(self, shards: list[HistogramShard], rule: LengthRule) -> list[HistogramShard]:
        """Returns the n-grams of each hash range that are open or found after a round."""
        if not rule.classes:
            return []
        decide = functools.partial(threshold.decide_round, rule=rule, run_key=self.run_key)
        decided = self.map(decide, shards)
        return [each for each in decided if rule.by_prediction or threshold.has_grams(each)]

    def rule(self, length: int, shards: Iterable[HistogramShard], previous: GramSet) -> LengthRule:
        """Returns the rule that the hash ranges bring, or else that of S_{k−1}."""
        brought = next((shard.rule for shard in shards if shard.rule is not None), None)
        return brought or rule_for(self.plan, length, self.run_key)(previous)

    def count(self, users: list[UserBatch], released: Sequence[GramSet]) -> Sequence[GramSet]:
        """Returns the released sets with the numbers of users who hold each n-gram."""
        return count_in_memory(
            GramRows(pruning=self.plan.pruning),
            users,
            released,
            noise=required_noise(self.plan.count_noise),
            run_key=self.run_key,
            workers=self.workers,
        )

    def map(self, function: Callable[[_In], _Out], items: Iterable[_In]) -> list[_Out]:
        """Calls a function for all batches or hash ranges; see `map_in_threads`."""
        return map_in_threads(function, items, self.workers)


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
