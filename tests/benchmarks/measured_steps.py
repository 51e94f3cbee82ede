"""The steps of a run on arrays, each with its CPU seconds and the bytes that it sends."""

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from beam_dpne.counts import transform as counting
from beam_dpne.counts.budget import required_noise
from beam_dpne.counts.measuring import CountSums, add_sums, of_held_rows, sum_counts
from beam_dpne.elements.batches import UserBatch
from beam_dpne.elements.coders import BatchCoder
from beam_dpne.ngrams import held_counts, histogram, threshold
from beam_dpne.ngrams.elements import (
    ROOT,
    Contributions,
    GramSet,
    HistogramShard,
    PresentGrams,
    SpuriousGrams,
)
from beam_dpne.ngrams.in_memory import ArraySteps
from beam_dpne.ngrams.user_counts import GramRows


class Cost(NamedTuple):
    """One step: its name, how many of what it made, the bytes of that, and CPU seconds."""

    step: str
    count: int
    of: str
    size: int
    seconds: float


def encoded(kind: type, batches: Sequence) -> int:
    """Bytes that elements take in a shuffle, a side input, or between two stages."""
    return sum(len(BatchCoder(kind).encode(batch)) for batch in batches)


class Timer:
    """CPU seconds of parts of this process that follow each other."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Adds what the block takes."""
        started = time.process_time()
        yield
        self.seconds += time.process_time() - started


@dataclasses.dataclass(kw_only=True)
class MeasuredSteps(ArraySteps):
    """The steps on arrays, which write down what each costs.

    Attributes:
      costs: one for each step so far.
    """

    costs: list[Cost] = dataclasses.field(default_factory=list)

    def prune(
        self,
        length: int,
        users: list[UserBatch],
        previous: GramSet,
        present: PresentGrams | None,
    ) -> list[UserBatch]:
        """Positions that are left, and their bytes between two stages."""
        timer = Timer()
        with timer.running():
            users = super().prune(length, users, previous, present)
        self._users(f"{length} prune", users, timer)
        return users

    def limit(self, length: int, users: list[UserBatch]) -> list[Contributions]:
        """Candidates of users; they need not be sent, since the next step is in the same stage."""
        timer = Timer()
        with timer.running():
            sent = super().limit(length, users)
        self._candidates(f"{length} extract, limit", sent, timer)
        return sent

    def spend(
        self,
        length: int,
        round_number: int,
        users: list[UserBatch],
        previous: GramSet | None,
        present: Sequence[PresentGrams],
        **settings: Any,
    ) -> tuple[list[Contributions], list[UserBatch]]:
        """Open n-grams of users, and the bytes of the users for the next round."""
        timer = Timer()
        with timer.running():
            sent, users = super().spend(length, round_number, users, previous, present, **settings)
        self._candidates(f"{length}.{round_number} spend", sent, timer)
        self._users(f"{length}.{round_number} users for the next round", users, Timer())
        return sent, users

    def add_up(
        self,
        length: int,
        round_number: int,
        sent: list[Contributions],
        drawn: SpuriousGrams | None,
        still_open: list[HistogramShard] | None,
    ) -> list[HistogramShard]:
        """Pairs of a partition and an n-gram in the shuffle, and the n-grams that they become."""
        step = f"{length}.{round_number}"
        sums, timer = [], Timer()
        with timer.running():
            for contributions in sent:
                sums += self.cut(contributions)
        pairs = [piece for _, piece in sums]
        self._histogram(f"{step} sum, cut: shuffle", "partition grams", pairs, timer)
        timer = Timer()
        with timer.running():
            back = []
            for shard in still_open or []:
                back += histogram.shard_open(shard, histogram_ranges=self.histogram_ranges)
        if back:
            self._histogram(f"{step} open, shuffled back", "open", [p for _, p in back], timer)
        if drawn is not None:
            sums += histogram.shard_spurious(drawn, histogram_ranges=self.histogram_ranges)
        elif length > 1 and still_open is None:
            sums += histogram.empty_ranges(length, histogram_ranges=self.histogram_ranges)
        timer = Timer()
        with timer.running():
            shards = self.merge(sums + back)
        self._histogram(f"{step} add up", "observed", shards, timer)
        return shards

    def count_held(
        self, length: int, histogram: list[HistogramShard], previous: GramSet
    ) -> list[HistogramShard]:
        """The parts of the ranges; the rule and draws on one worker; both brought together."""
        plan, timer = self.plan, Timer()
        counted = held_counts.counted_classes(previous, plan.pruning, plan.held_stddev)
        with timer.running():
            parts = [held_counts.held_sums(shard, counted) for shard in histogram]
        observed = sum(map(len, histogram))
        numbers = sum(len(str(part)) for part in parts)
        self._add(f"{length} count held: parts", observed, "observed", numbers, timer)
        timer = Timer()
        with timer.running():
            rule = held_counts.counted_rule(
                previous, parts, plan=plan, length=length, run_key=self.run_key
            )
            drawn = self.draw_spurious(length, previous, rule)
        size = encoded(SpuriousGrams, [drawn])
        self._add(f"{length} count held: rule, draws", drawn.keys.size, "drawn", size, timer)
        timer = Timer()
        with timer.running():
            met = [
                held_counts.meet_spurious(shard, drawn, histogram_ranges=self.histogram_ranges)
                for shard in histogram
            ]
        self._add(f"{length} count held: meet", observed, "observed", 0, timer)
        return met

    def decide_round(
        self,
        length: int,
        round_number: int,
        histogram: list[HistogramShard],
        previous: GramSet | None,
    ) -> tuple[PresentGrams, list[HistogramShard]]:
        """Decisions in parallel; then the present set, sorted on one worker and sent to all."""
        step, timer = f"{length}.{round_number}", Timer()
        with timer.running():
            decided = self._decided(histogram, self._deciding(length, histogram, previous))
            parts = [threshold.present_part(shard) for shard in decided]
        size = encoded(PresentGrams, parts)
        observed = sum(map(len, histogram))
        self._add(f"{step} decide", observed, "observed", size, timer)
        timer = Timer()
        with timer.running():
            known = ROOT if previous is None else previous
            present = threshold.merge_present(parts, known, round_number)
        size = encoded(PresentGrams, [present])
        self._add(f"{step} sort what stands", len(present), "open, found", size, timer)
        return present, decided

    def release(
        self, length: int, histogram: list[HistogramShard], previous: GramSet | None
    ) -> GramSet:
        """Decisions in parallel; then S_k, sorted on one worker and sent to all."""
        timer = Timer()
        rule = self._deciding(length, histogram, previous)
        with timer.running():
            decided = self._decided(histogram, rule)
            parts = [threshold.released_part(shard, rule) for shard in decided]
        observed = sum(map(len, histogram))
        self._add(f"{length} decide the last", observed, "observed", 0, timer)
        timer = Timer()
        with timer.running():
            known = ROOT if previous is None else previous
            released = threshold.merge_released(parts, known, rule)
        size = encoded(GramSet, [released])
        self._add(f"{length} sort S_{length}", len(released), "released", size, timer)
        return released

    def count(self, users: list[UserBatch], released: Sequence[GramSet]) -> Sequence[GramSet]:
        """Sums of each partition, added up and shuffled; then estimates on one worker."""
        rows, timer = GramRows(pruning=self.plan.pruning), Timer()
        rule = counting.rule_of(rows, *released)
        sums, pairs = [], 0
        with timer.running():
            for batch in users:
                held = rows.held(batch, released)
                pairs += held.rows.size
                sums.append(of_held_rows(sum_counts(held, rule)))
        self._add("count users: held", pairs, "user grams", 0, timer)
        size, every = encoded(CountSums, sums), sum(map(len, sums))
        timer = Timer()
        with timer.running():
            together = add_sums(sums)
        self._add("count users: sums, shuffle", every, "partition grams", size, timer)
        timer = Timer()
        with timer.running():
            noise = required_noise(self.plan.count_noise)
            counted = counting.estimated(
                released, [together], rows=rows, noise=noise, run_key=self.run_key
            )
        size = encoded(GramSet, counted)
        self._add("count users: estimate", len(rule.row_weights), "released", size, timer)
        return counted

    def _users(self, step: str, users: list[UserBatch], timer: Timer) -> None:
        positions = sum(int((batch.ids >= 0).sum()) for batch in users)
        self._add(step, positions, "positions", encoded(UserBatch, users), timer)

    def _candidates(self, step: str, sent: list[Contributions], timer: Timer) -> None:
        self._add(step, sum(part.keys.size for part in sent), "user grams", 0, timer)

    def _histogram(
        self, step: str, of: str, shards: Sequence[HistogramShard], timer: Timer
    ) -> None:
        size = encoded(HistogramShard, shards)
        self._add(step, sum(map(len, shards)), of, size, timer)

    def _add(self, step: str, count: int, of: str, size: int, timer: Timer) -> None:
        self.costs.append(Cost(step, count, of, size, timer.seconds))
