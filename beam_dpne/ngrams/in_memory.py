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
from beam_dpne.elements.batches import DocumentBlock, RowSums, UserBatch, add_range, add_up
from beam_dpne.elements.processes import Processes, most_forks
from beam_dpne.lists.left_out import LeftOut
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams import decisions, histogram
from beam_dpne.ngrams.elements import (
    GROUPED_ROOT,
    NOTHING_RELEASED,
    ROOT,
    Contributions,
    GramSet,
    HistogramShard,
    Past,
    PresentGrams,
)
from beam_dpne.ngrams.histogram import RangedSums
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
      own: the hash ranges that this process has; None for all of them.
      workers: the largest number of processes that estimate numbers of users; it changes no release.
    """

    plan: NgramsPlan
    run_key: RunKey = dataclasses.field(repr=False)
    root: GramSet | None = None
    left_out: LeftOut | None = None
    start: GramSet = ROOT
    histogram_ranges: int = 1
    own: Sequence[int] | None = None
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
                present = decisions.merge_present(self.present_parts(shards), after, number)
                # After the first round users' positions are in terms of the set of the round before.
                past = Past(released=previous, present=present, positions=past.present)
        rule = rule_for(self.plan) if previous is None else None
        found = decisions.merge_released(self.released_parts(shards), after, rule, self.left_out)
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
            if self.own is None or number in self.own:
                ranges.setdefault(number, []).append(piece)
        return [
            histogram.merge_shards(pieces, (number, self.histogram_ranges))
            for number, pieces in ranges.items()
        ]

    def held_parts(self, previous: GramSet, shards: list[HistogramShard]) -> list[list[int]]:
        """Returns the part of each hash range in the count of held candidates, if there is a count."""
        if not self.plan.is_adaptive:
            return []
        counted = counted_classes(previous, self.plan.held_stddev)
        return [held_sums(shard, counted) for shard in shards]

    def draw(self, previous: GramSet, shards: list[HistogramShard]) -> HistogramShard:
        """Returns the spurious n-grams of a length, with the rule that follows from its first round."""
        rule = rule_for(self.plan, previous, self.run_key, self.held_parts(previous, shards))
        return sample_spurious(previous, rule=rule, run_key=self.run_key)

    def decide(
        self, shards: list[HistogramShard], drawn: HistogramShard | None
    ) -> list[HistogramShard]:
        """Returns the n-grams of each hash range that are open or found after a round."""
        rule = rule_for(self.plan)
        decided: list[HistogramShard] = []
        with progress.counting(shards):
            for shard in shards:
                progress.enter("decide", shard.length, shard.round)
                decided.append(decisions.decide(shard, drawn, rule=rule, run_key=self.run_key))
        return decided

    def present_parts(self, shards: list[HistogramShard]) -> Iterable[PresentGrams]:
        """Returns what users need to know of each hash range after a round."""
        return map(decisions.present_part, shards)

    def released_parts(self, shards: list[HistogramShard]) -> Iterable[GramSet]:
        """Returns what each hash range releases after its last round."""
        return map(decisions.released_part, shards)

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
            workers=self.workers,
        )

    def sum_counts(self, users: list[UserBatch], released: Sequence[GramSet]) -> Iterable[RowSums]:
        """Returns the exact sums over users for the released rows, in pieces."""
        rows = GramRows(pruning=self.plan.pruning)
        return [measuring.sum_batches(rows, progress.parts(users, "count"), released)]


def release_partitions(
    loop: InMemory, partitions: list[list[DocumentBlock]], workers: int
) -> tuple[GramSet, ...]:
    """Releases the n-grams of partitions of users, who stay in forks if there are several workers.

    Each fork has a hash range of the histograms, too.

    Args:
      loop: the loop, for one worker.
      partitions: the documents of each partition of users; they are let go when they are laid out.
      workers: the largest number of processes; it changes no release.

    Returns:
      S_1, …, S_T.
    """
    most = most_forks(workers, len(partitions))
    if not most:
        users = loop.lay_out(partitions, range(len(partitions)))
        partitions.clear()
        return loop.release(users)
    loop = dataclasses.replace(loop, histogram_ranges=most)
    with contextlib.closing(Processes(keep_users(loop, partitions), most)) as forks:
        shares = (range(first, len(partitions), most) for first in range(most))
        asked = (LayOut(share, number) for number, share in enumerate(shares))
        collections.deque(forks.stream(asked), 0)
        partitions.clear()
        in_forks = InProcesses(
            plan=loop.plan,
            run_key=loop.run_key,
            root=loop.root,
            left_out=loop.left_out,
            start=loop.start,
            histogram_ranges=most,
            workers=most,
            forks=forks,
        )
        return in_forks.release([])


@dataclasses.dataclass(kw_only=True)
class InProcesses(InMemory):
    """The loop over lengths and rounds of users who stay in several forks, see `keep_users`.

    The sums of hash ranges stay in the forks, too: here are no users, pieces and shards.
    """

    forks: Processes
    _held: list[list[int]] = dataclasses.field(default_factory=list, init=False)

    def contribute(
        self, length: int, number: int, users: Iterable[UserBatch], past: Past
    ) -> tuple[list[Piece], list[UserBatch]]:
        """Has all forks add up what their users send to a round."""
        self.forks.gather(Contribute(length, number, past))
        return [], []

    def measure(
        self, sent: list[Piece], still_open: list[HistogramShard], previous: GramSet | None
    ) -> list[HistogramShard]:
        """Has each fork add up what all forks have for its hash range."""
        self._held = list(self.forks.all(Measure()))
        return []

    def held_parts(self, previous: GramSet, shards: list[HistogramShard]) -> list[list[int]]:
        """Returns the part of each hash range in the count of held candidates, if there is a count."""
        return self._held

    def decide(
        self, shards: list[HistogramShard], drawn: HistogramShard | None
    ) -> list[HistogramShard]:
        """Has each fork decide its hash range."""
        with progress.counting(range(self.histogram_ranges)):
            collections.deque(self.forks.all(Decide(drawn)), 0)
        return []

    def present_parts(self, shards: list[HistogramShard]) -> Iterable[PresentGrams]:
        """Returns what users need to know of each hash range after a round."""
        return self.forks.all(PresentParts())

    def released_parts(self, shards: list[HistogramShard]) -> Iterable[GramSet]:
        """Returns what each hash range releases after its last round."""
        return self.forks.all(ReleasedParts())

    def sum_counts(self, users: list[UserBatch], released: Sequence[GramSet]) -> Iterable[RowSums]:
        """Returns the exact sums over the users of all forks, each of which adds up a range of rows."""
        self.forks.gather(SumCounts(released))
        return self.forks.all(AddCounts())


@dataclasses.dataclass(frozen=True)
class LayOut:
    """Asks a fork to keep the users of some partitions, by their numbers, and a hash range."""

    numbers: Sequence[int]
    hash_range: int


@dataclasses.dataclass(frozen=True)
class Contribute:
    """Asks a fork what its users send to a round of a length."""

    length: int
    number: int
    past: Past


@dataclasses.dataclass(frozen=True)
class Measure:
    """Asks a fork to add up what all forks have for its hash range.

    In the first round of a length it answers with its part of the count of held candidates.
    """


@dataclasses.dataclass(frozen=True)
class Decide:
    """Asks a fork to decide a round of its hash range."""

    drawn: HistogramShard | None


@dataclasses.dataclass(frozen=True)
class PresentParts:
    """Asks a fork what users need to know of its hash range."""


@dataclasses.dataclass(frozen=True)
class ReleasedParts:
    """Asks a fork what its hash range releases."""


@dataclasses.dataclass(frozen=True)
class SumCounts:
    """Asks a fork for the exact sums over its users for the released rows."""

    released: Sequence[GramSet]


@dataclasses.dataclass(frozen=True)
class AddCounts:
    """Asks a fork to add up what all forks have for its range of the released rows."""


Request = (
    LayOut | Contribute | Measure | Decide | PresentParts | ReleasedParts | SumCounts | AddCounts
)
Answer = RangedSums | list[int] | PresentGrams | GramSet | RowSums | None


def keep_users(
    run: InMemory, partitions: list[list[DocumentBlock]]
) -> Callable[..., Iterator[Answer]]:
    """Returns the function with which a fork keeps users and hash ranges, and answers for them.

    Args:
      run: the loop; all sums of a fork are cut into its hash ranges at once.
      partitions: the documents of each partition of users, of which `LayOut` names some.
    """
    of_users = dataclasses.replace(run, histogram_ranges=1)
    own: list[int] = []
    of_ranges = dataclasses.replace(run, own=own)
    everybody: list[UserBatch] = []
    left: list[UserBatch] = []
    shards: list[HistogramShard] = []
    this = Contribute(0, 0, NOTHING_RELEASED)

    def answer(request: Request, *gathered: RangedSums | RowSums | None) -> Iterator[Answer]:
        nonlocal left, shards, this
        match request:
            case LayOut():
                own.append(request.hash_range)
                everybody.extend(of_users.lay_out(partitions, request.numbers))
                left = list(everybody)
            case Contribute():
                # They are laid out, and the forks share the blocks as long as one of them has some.
                partitions.clear()
                this = request
                sent, left = of_users.contribute(
                    request.length, request.number, _Waiting(left), request.past
                )
                sums = add_up((piece for _, piece in sent), histogram.sum_pieces)
                yield RangedSums.of(sums, run.histogram_ranges) if sent else None
            case Measure():
                ranged = [sums for sums in gathered if isinstance(sums, RangedSums)]
                sent = [(number, sums.part(number)) for sums in ranged for number in own]
                previous = this.past.released if this.number == 1 else None
                shards = of_ranges.measure(sent, shards, previous)
                if previous is not None:
                    yield from of_ranges.held_parts(previous, shards)
            case Decide():
                shards = of_ranges.decide(shards, request.drawn)
            case PresentParts():
                yield from of_ranges.present_parts(shards)
            case ReleasedParts():
                yield from of_ranges.released_parts(shards)
                shards = []
            case SumCounts():
                yield from of_users.sum_counts(everybody, request.released)
            case AddCounts():
                of_rows = [sums for sums in gathered if isinstance(sums, RowSums)]
                for number in own:
                    yield add_range(of_rows, number, run.histogram_ranges)

    return answer
