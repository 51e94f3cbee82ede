"""The driver in memory: the loop over lengths and rounds on arrays, in one process.

A round has three steps, plain functions on arrays, which the transforms of `PrivateNgrams` apply as
well: users contribute (`contributions`); what they send is measured: sums (`histogram`), the rule that
follows (`length_rules`) and spurious n-grams (`spurious`); and noisy sums are decided (`decisions`).
So a release in memory equals the pipeline's, bit for bit, under the same run key.
"""

import collections
import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

from beam_dpne.counts import measuring
from beam_dpne.documents.blocks import lay_out
from beam_dpne.elements import progress
from beam_dpne.elements.arrays import map_in_threads
from beam_dpne.elements.batches import DocumentBlock, RowSums, UserBatch, add_up
from beam_dpne.elements.processes import Processes, most_forks
from beam_dpne.lists.left_out import LeftOut
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams import decisions, histogram
from beam_dpne.ngrams.elements import (
    GROUPED_ROOT,
    ROOT,
    Contributions,
    GramSet,
    HistogramShard,
    Past,
    PresentGrams,
)
from beam_dpne.ngrams.length_rules import counted_classes, held_sums, rule_for
from beam_dpne.ngrams.plan import NgramsPlan
from beam_dpne.ngrams.released_rows import GramRows
from beam_dpne.ngrams.spending import RoundOfLength, contribute
from beam_dpne.ngrams.spurious import sample_spurious

# Sums of one hash range, with its number.
Piece = tuple[int, HistogramShard]


def release_ngrams(
    users: Iterable[UserBatch], plan: NgramsPlan, run_key: RunKey, *, is_grouped: bool = False
) -> tuple[GramSet, ...]:
    """Releases S_1, …, S_T of users in memory: the mechanism of `PrivateNgrams` without Beam.

    Args:
      users: positions of length 0; each user is in one batch only.
      plan: the plan of the run.
      run_key: a key that is bound to the run's parameters, see `key_context`.
      is_grouped: whether words have groups in front of them, as `GroupByUser` puts them there.

    Example:
      >>> import numpy as np, pyarrow as pa
      >>> crowd = UserBatch(  # 200 users, each of whom says "a b"
      ...     length=0, size=2, users=np.arange(400, dtype=np.uint64).reshape(-1, 2),
      ...     offsets=np.arange(0, 603, 3), ids=np.tile([0, 1, -1], 200).astype(np.int32),
      ...     words=pa.array(["a", "b"]), word_hashes=np.eye(2, dtype=np.uint64))
      >>> plan = NgramsPlan(epsilon=10, delta=1e-4, max_length=2, spurious_fraction=1e-9)
      >>> words, bigrams = release_ngrams([crowd], plan, RunKey(bytes(32)))
      >>> words.words.to_pylist(), (bigrams.keys >> 32, bigrams.keys & 0xFFFFFFFF)
      (['a', 'b'], (array([0]), array([1])))

    References: DPNE Algorithm 1.
    """
    start = GROUPED_ROOT if is_grouped else ROOT
    return InMemory(plan=plan, run_key=run_key, start=start).release(list(users))


class _Waiting(list[UserBatch]):
    """Batches that are let go when they are taken."""

    def __iter__(self) -> Iterator[UserBatch]:
        while self:
            yield self.pop(0)


@dataclasses.dataclass(kw_only=True)
class InMemory:
    """The loop over lengths and rounds on arrays; its methods are the steps of a round.

    Attributes:
      plan: the parameters of the run.
      run_key: a key that is bound to the run's parameters.
      root: the root of known n-grams, if there are any.
      left_out: what the rules of texts leave out, which is never released; None without rules.
      start: the root without known n-grams: `ROOT`, or `GROUPED_ROOT` if words have groups in front of
        them.
      histogram_ranges: the number of hash ranges of a histogram; it changes no release.
      workers: the number of threads that work on hash ranges; it changes no release.
    """

    plan: NgramsPlan
    run_key: RunKey = dataclasses.field(repr=False)
    root: GramSet | None = None
    left_out: LeftOut | None = None
    start: GramSet = ROOT
    histogram_ranges: int = 1
    workers: int = 1

    def lay_out(
        self, partitions: Sequence[Iterable[DocumentBlock]], numbers: Iterable[int]
    ) -> list[UserBatch]:
        """Returns the positions of the users of some partitions."""
        most = self.plan.max_tokens_per_user
        batches: list[UserBatch] = []
        for number in numbers:
            partition = (number, partitions[number])
            progress.enter("users")
            batches += lay_out(partition, max_tokens=most, run_key=self.run_key)
        return batches

    def release(self, users: Iterable[UserBatch]) -> tuple[GramSet, ...]:
        """Returns S_1, …, S_T, with numbers of users if the plan has a count_share.

        References: DPNE Algorithm 1, "for k = 1 to T".
        """
        everybody = users = list(users)
        positions: PresentGrams | None = None
        released: list[GramSet] = []
        for length in range(1, self.plan.max_length + 1):
            past = Past(released=released[-1] if released else self.root, positions=positions)
            # Batches are let go one by one, so that those of the length before are not kept.
            found, users, positions = self.release_length(length, _Waiting(users), past)
            released.append(found)
        return tuple(self.count(everybody, released) if self.plan.count_share else released)

    def release_length(
        self, length: int, users: Iterable[UserBatch], past: Past
    ) -> tuple[GramSet, Iterable[UserBatch], PresentGrams | None]:
        """Releases one length in its rounds; each is for what the round before left open.

        Returns:
          S_k, the users with their remaining budgets, and the set in terms of which their positions
          are, None if that is S_{k−1}.

        References: DPNE Algorithm 1, the body of the loop.
        """
        previous = past.released
        after = self.start if previous is None else previous
        shards: list[HistogramShard] = []
        last = self.plan.rounds_of(length)
        for number in range(1, last + 1):
            sent, users = self.contribute(length, number, users, past)
            shards = self.measure(sent, shards, previous if number == 1 else None)
            drawn = self.draw(previous, shards) if previous is not None and number == 1 else None
            shards = self.decide(shards, drawn)
            if number < last:
                parts = map(decisions.present_part, shards)
                present = decisions.merge_present(parts, after, number)
                # After the first round users' positions are in terms of the set of the round before.
                past = Past(released=previous, present=present, positions=past.present)
        rule = rule_for(self.plan) if previous is None else None
        found_parts = map(decisions.released_part, shards)
        found = decisions.merge_released(found_parts, after, rule, self.left_out)
        progress.enter(progress.RELEASED, length)
        return found, users, past.present

    def contribute(
        self, length: int, number: int, users: Iterable[UserBatch], past: Past
    ) -> tuple[list[Piece], list[UserBatch]]:
        """Returns the sums of what users send to a round, and the users with what they have left."""
        this = RoundOfLength(plan=self.plan, length=length, number=number, run_key=self.run_key)
        pieces: list[Piece] = []
        left: list[UserBatch] = []
        shown_round = number if self.plan.is_adaptive else 0
        for batch in progress.parts(users, "users", length, shown_round):
            contributed = contribute(batch, this, past)
            if contributed is not None:
                pieces += self.sums(contributed.contributions)
                left.append(contributed.users)
        return pieces, left

    def sums(self, sent: Contributions) -> list[Piece]:
        """Returns the sums of what a batch's users send, which are much smaller, by hash range."""
        sums = histogram.sum_contributions(sent)
        if self.histogram_ranges == 1:
            return [(0, sums)]
        return list(histogram.cut_by_hash_range(sums, self.histogram_ranges))

    def measure(
        self, sent: list[Piece], still_open: list[HistogramShard], previous: GramSet | None
    ) -> list[HistogramShard]:
        """Returns the sums of a round, beside those of rounds before, by hash range.

        In the first round of k ≥ 2, and of known words, every hash range has a shard; then S_{k−1} is
        given, or the root.
        """
        ranges: dict[int, list[HistogramShard]] = {}
        empty = () if previous is None else histogram.empty_ranges(previous, self.histogram_ranges)
        left = ((shard.hash_range[0], shard) for shard in still_open)
        for number, piece in itertools.chain(sent, empty, left):
            ranges.setdefault(number, []).append(piece)

        def merge(number: int) -> HistogramShard:
            return histogram.merge_shards(ranges[number], (number, self.histogram_ranges))

        with progress.counting(ranges):
            return map_in_threads(merge, ranges, self.workers)

    def draw(self, previous: GramSet, shards: list[HistogramShard]) -> HistogramShard:
        """Returns the spurious n-grams of a length, with the rule that follows from its first round."""
        held: list[list[int]] = []
        if self.plan.is_adaptive:
            counted = counted_classes(previous, self.plan.held_stddev)
            held = [held_sums(shard, counted) for shard in shards]
        rule = rule_for(self.plan, previous, self.run_key, held)
        return sample_spurious(previous, rule=rule, run_key=self.run_key)

    def decide(
        self, shards: list[HistogramShard], drawn: HistogramShard | None
    ) -> list[HistogramShard]:
        """Returns the n-grams of each hash range that are open or found after a round."""
        rule = rule_for(self.plan)

        def decide(shard: HistogramShard) -> HistogramShard:
            progress.enter("decide", shard.length, shard.round)
            return decisions.decide(shard, drawn, rule=rule, run_key=self.run_key)

        with progress.counting(shards):
            return map_in_threads(decide, shards, self.workers)

    def count(self, users: list[UserBatch], released: Sequence[GramSet]) -> Sequence[GramSet]:
        """Returns the released sets with the numbers of users who hold each n-gram."""
        *shorter, last = released
        return measuring.estimated(
            last,
            self.sum_counts(users, released),
            *shorter,
            rows=GramRows(pruning=self.plan.pruning),
            noise=self.plan.count_noise,
            run_key=self.run_key,
        )

    def sum_counts(self, users: list[UserBatch], released: Sequence[GramSet]) -> Iterable[RowSums]:
        """Returns the exact sums over users for the released rows, in pieces."""
        rows = GramRows(pruning=self.plan.pruning)
        return [measuring.sum_batches(rows, progress.parts(users, "count"), released)]


# Hash ranges of a histogram for each worker, so that all have about the same work.
_RANGES_OF_A_WORKER = 2


def release_partitions(
    loop: InMemory, partitions: list[list[DocumentBlock]], workers: int
) -> tuple[GramSet, ...]:
    """Releases the n-grams of partitions of users, who stay in forks if there are several workers.

    Args:
      loop: the loop, for one worker.
      partitions: the documents of each partition of users; they are let go when they are laid out.
      workers: the largest number of processes; it changes no release.

    Returns:
      S_1, …, S_T.
    """
    if workers > 1:
        ranges = _RANGES_OF_A_WORKER * workers
        loop = dataclasses.replace(loop, histogram_ranges=ranges, workers=workers)
    most = most_forks(workers, len(partitions))
    if not most:
        users = loop.lay_out(partitions, range(len(partitions)))
        partitions.clear()
        return loop.release(users)
    with contextlib.closing(Processes(keep_users(loop, partitions), most)) as forks:
        shares = (range(first, len(partitions), most) for first in range(most))
        collections.deque(forks.stream(LayOut(share) for share in shares), 0)
        partitions.clear()
        in_forks = InProcesses(
            plan=loop.plan,
            run_key=loop.run_key,
            root=loop.root,
            left_out=loop.left_out,
            start=loop.start,
            histogram_ranges=loop.histogram_ranges,
            workers=loop.workers,
            forks=forks,
        )
        return in_forks.release([])


@dataclasses.dataclass(kw_only=True)
class InProcesses(InMemory):
    """The loop over lengths and rounds of users who stay in several forks, see `keep_users`."""

    forks: Processes

    def contribute(
        self, length: int, number: int, users: Iterable[UserBatch], past: Past
    ) -> tuple[list[Piece], list[UserBatch]]:
        """Returns the sums of what all users send to a round; the users are in the forks."""
        sent = self.forks.all(Contribute(length, number, past))
        return [piece for pieces in sent for piece in pieces], []

    def sum_counts(self, users: list[UserBatch], released: Sequence[GramSet]) -> Iterable[RowSums]:
        """Returns the exact sums of each fork."""
        return self.forks.all(SumCounts(released))


@dataclasses.dataclass(frozen=True)
class LayOut:
    """Asks a fork to keep the users of some partitions, by their numbers."""

    numbers: Sequence[int]


@dataclasses.dataclass(frozen=True)
class Contribute:
    """Asks a fork what its users send to a round of a length."""

    length: int
    number: int
    past: Past


@dataclasses.dataclass(frozen=True)
class SumCounts:
    """Asks a fork for the exact sums over its users for the released rows."""

    released: Sequence[GramSet]


Request = LayOut | Contribute | SumCounts


def keep_users(
    run: InMemory, partitions: list[list[DocumentBlock]]
) -> Callable[[Request], Iterator[list[Piece] | RowSums]]:
    """Returns the function with which a fork keeps users, and answers for them.

    Args:
      run: the loop; all sums of a fork are cut into its hash ranges at once.
      partitions: the documents of each partition of users, of which `LayOut` names some.
    """
    ranges = run.histogram_ranges
    run = dataclasses.replace(run, histogram_ranges=1)
    everybody: list[UserBatch] = []
    left: list[UserBatch] = []

    def answer(request: Request) -> Iterator[list[Piece] | RowSums]:
        nonlocal left
        if isinstance(request, LayOut):
            everybody.extend(run.lay_out(partitions, request.numbers))
            left = list(everybody)
        elif isinstance(request, Contribute):
            # They are laid out, and the forks share the blocks as long as one of them has some.
            partitions.clear()
            sent, left = run.contribute(
                request.length, request.number, _Waiting(left), request.past
            )
            sums = add_up((piece for _, piece in sent), histogram.sum_pieces)
            yield list(histogram.cut_by_hash_range(sums, ranges)) if sent else []
        else:
            yield from run.sum_counts(everybody, request.released)

    return answer
