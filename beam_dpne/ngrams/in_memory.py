"""A run of n-grams: the loop over lengths and rounds, and its steps on arrays.

The order of the steps is written only here. A `Steps` object implements each step: `ArraySteps` calls
the kernels on arrays, in one process; `PrivateNgrams` applies transforms of the same kernels to
PCollections. So a release in memory equals the pipeline's, bit for bit, under the same run key, and
results of tests and attacks on arrays hold for the pipeline.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from beam_dpne.counts.budget import required_noise
from beam_dpne.counts.transform import count_in_memory
from beam_dpne.elements.batches import UserBatch
from beam_dpne.elements.threads import map_in_threads
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import LengthRule
from beam_dpne.ngrams import held_counts, histogram, threshold
from beam_dpne.ngrams.candidates import extract_grams, prune_invalid
from beam_dpne.ngrams.contributions import limit_contributions, spend_on_present
from beam_dpne.ngrams.elements import (
    ROOT,
    Contributions,
    GramSet,
    HistogramShard,
    PresentGrams,
    SpuriousGrams,
)
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.spurious import sample_spurious
from beam_dpne.ngrams.strategies import RoundInput
from beam_dpne.ngrams.user_counts import GramRows
from beam_dpne.ngrams.valid import rule_for

Users = TypeVar("Users")
Sent = TypeVar("Sent")
Histogram = TypeVar("Histogram")
Drawn = TypeVar("Drawn")
Present = TypeVar("Present")
Released = TypeVar("Released")
_In = TypeVar("_In")
_Out = TypeVar("_Out")


class Steps(Protocol[Users, Sent, Histogram, Drawn, Present, Released]):
    """The steps of a run, on arrays or on PCollections.

    `previous` is S_{k−1}, and None at length 1; `present` are the sets of n-grams that were open or
    found after each of the rounds before.
    """

    def prune(
        self, length: int, users: Users, previous: Released, present: Present | None
    ) -> Users:
        """Returns the users' positions in terms of S_{k−1}."""
        ...

    def limit(self, length: int, users: Users) -> Sent:
        """Returns equal weights for at most Δ_k n-grams of each user ("one_round")."""
        ...

    def spend(
        self,
        length: int,
        round_number: int,
        users: Users,
        previous: Released | None,
        present: Sequence[Present],
    ) -> tuple[Sent, Users]:
        """Returns the users' contributions to a round, and the users with their remaining budgets."""
        ...

    def draw_spurious(self, length: int, previous: Released) -> Drawn:
        """Draws the members of V_k that noise alone would release."""
        ...

    def add_up(
        self,
        length: int,
        round_number: int,
        sent: Sent,
        drawn: Drawn | None,
        still_open: Histogram | None,
    ) -> Histogram:
        """Adds up weights; `drawn` is given in the first round, and `still_open` in later ones."""
        ...

    def count_held(self, length: int, histogram: Histogram, previous: Released) -> Histogram:
        """Counts held candidates, then draws spurious n-grams, and returns the sums with both."""
        ...

    def decide_round(
        self, length: int, round_number: int, histogram: Histogram, previous: Released | None
    ) -> tuple[Present, Histogram]:
        """Returns the n-grams that are open or found after a round before the last, with their sums."""
        ...

    def release(self, length: int, histogram: Histogram, previous: Released | None) -> Released:
        """Returns S_k from the histogram of the last round."""
        ...

    def count(self, users: Users, released: Sequence[Released]) -> Sequence[Released]:
        """Returns S_1, …, S_T with the numbers of users who hold each n-gram."""
        ...


def release_lengths(
    steps: Steps[Users, Sent, Histogram, Drawn, Present, Released],
    plan: PrivacyPlan,
    users: Users,
) -> tuple[Released, ...]:
    """Returns S_1, …, S_T, with numbers of users if the plan has a count_share.

    References: DPNE Algorithm 1, "for k = 1 to T".
    """
    everybody = users
    released: list[Released] = []
    present = None
    for length in range(1, plan.max_length + 1):
        previous = released[-1] if released else None
        if previous is not None:
            users = steps.prune(length, users, previous, present)
        found, users, present = release_length(steps, plan, length, users, previous)
        released.append(found)
    if plan.count_share:
        return tuple(steps.count(everybody, released))
    return tuple(released)


def release_length(
    steps: Steps[Users, Sent, Histogram, Drawn, Present, Released],
    plan: PrivacyPlan,
    length: int,
    users: Users,
    previous: Released | None,
) -> tuple[Released, Users, Present | None]:
    """Releases one length in the rounds of the plan's strategy.

    The paper's strategy has one round. Each round is for the n-grams that the round before left open.

    Returns:
      S_k, the users with their remaining budgets, and the set whose rows their positions refer to.

    References: DPNE Algorithm 1, the body of the loop.
    """
    strategy, last = plan.strategy_value, plan.rounds_of(length)
    drawn = None
    if previous is not None and not strategy.has_classes:
        drawn = steps.draw_spurious(length, previous)
    present: list[Present] = []
    still_open = None
    for number in range(1, last):
        round_input = RoundInput(length, number, users, previous, present)
        sent, users = strategy.contribute(steps, round_input)
        histogram = steps.add_up(length, number, sent, drawn, still_open)
        if number == 1 and previous is not None and strategy.has_classes:
            histogram = steps.count_held(length, histogram, previous)
        after, still_open = steps.decide_round(length, number, histogram, previous)
        present.append(after)
        drawn = None  # Drawn n-grams are in the histogram since the first round.
    round_input = RoundInput(length, last, users, previous, present)
    sent, users = strategy.contribute(steps, round_input)
    histogram = steps.add_up(length, last, sent, drawn, still_open)
    if last == 1 and previous is not None and strategy.has_classes:
        histogram = steps.count_held(length, histogram, previous)
    found = steps.release(length, histogram, previous)
    return found, users, present[-1] if present else None


def release_ngrams(
    users: Iterable[UserBatch],
    plan: PrivacyPlan,
    run_key: RunKey,
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
    steps = ArraySteps(plan=plan, run_key=run_key)
    return release_lengths(steps, plan, list(users))


@dataclasses.dataclass(kw_only=True)
class ArraySteps:
    """The steps on arrays, in one process; each calls the kernel that its transform applies.

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

    def rule(self, length: int, previous: GramSet | None) -> LengthRule:
        """Returns the rule of a length, a function of S_{k−1}."""
        known = ROOT if previous is None else previous
        return rule_for(self.plan, length, self.run_key)(known)

    def prune(
        self,
        length: int,
        users: list[UserBatch],
        previous: GramSet,
        present: PresentGrams | None,
    ) -> list[UserBatch]:
        """Calls `prune_invalid`; batches without users are dropped."""
        prune = functools.partial(
            prune_invalid, released=previous, pruning=self.plan.pruning, present=present
        )
        return [batch for batch in self.map(prune, users) if len(batch.users)]

    def limit(self, length: int, users: list[UserBatch]) -> list[Contributions]:
        """Calls `limit_contributions`."""
        limit = self.plan.contribution_limits[length - 1]
        sub_key = self.run_key.sub_key("subset", length)

        def limited(batch: UserBatch) -> Any:
            grams = extract_grams(batch, length=length)
            sent = limit_contributions(grams, max_contributions=limit, sub_key=sub_key)
            return self.send(sent)

        return self.map(limited, users)

    def spend(
        self,
        length: int,
        round_number: int,
        users: list[UserBatch],
        previous: GramSet | None,
        present: Sequence[PresentGrams],
        *,
        counted: held_counts.Counted | None = None,
    ) -> tuple[list[Contributions], list[UserBatch]]:
        """Calls `spend_on_present`, by default with the counted groups of S_{k−1}."""
        spend = functools.partial(
            self._spend_and_send,
            plan=self.plan,
            length=length,
            round_number=round_number,
            run_key=self.run_key,
            previous=previous,
            present=present[-1] if present else None,
            before=present[-2] if len(present) > 1 else None,
            counted=counted,
        )
        spent = self.map(spend, users)
        kept = [pair for pair in spent if pair is not None]
        return [sent for sent, _ in kept], [batch for _, batch in kept]

    def draw_spurious(
        self, length: int, previous: GramSet, rule: LengthRule | None = None
    ) -> SpuriousGrams:
        """Calls `sample_spurious`, by default with the rule of S_{k−1}."""
        rule = rule or self.rule(length, previous)
        return sample_spurious(previous, rule=rule, run_key=self.run_key)

    def add_up(
        self,
        length: int,
        round_number: int,
        sent: list[Contributions],
        drawn: SpuriousGrams | None,
        still_open: list[HistogramShard] | None,
    ) -> list[HistogramShard]:
        """Cuts everything by hash range, and calls `merge`."""
        pieces = [piece for part in self.map(self.pieces_of, sent) for piece in part]
        if drawn is not None:
            pieces += histogram.shard_spurious(drawn, histogram_ranges=self.histogram_ranges)
        elif length > 1 and still_open is None:
            pieces += histogram.empty_ranges(length, histogram_ranges=self.histogram_ranges)
        for shard in still_open or []:
            pieces += histogram.shard_open(shard, histogram_ranges=self.histogram_ranges)
        return self.merge(pieces)

    def send(self, contributions: Contributions) -> Any:
        """Returns the form in which a batch's contributions wait until all are added up."""
        return contributions

    def pieces_of(self, sent: Any) -> list[tuple[int, HistogramShard]]:
        """Returns the sums of what `send` returned for a batch, cut by hash range."""
        return self.cut(sent)

    def cut(self, contributions: Contributions) -> list[tuple[int, HistogramShard]]:
        """Calls `sum_contributions` and `cut_by_hash_range`."""
        sums = histogram.sum_contributions(contributions)
        return list(histogram.cut_by_hash_range(sums, self.histogram_ranges))

    def _spend_and_send(self, batch: UserBatch, **settings: Any) -> tuple[Any, UserBatch] | None:
        spent = spend_on_present(batch, **settings)
        return None if spent is None else (self.send(spent[0]), spent[1])

    def count_held(
        self, length: int, histogram: list[HistogramShard], previous: GramSet
    ) -> list[HistogramShard]:
        """Calls `held_sums`, `counted_rule`, `sample_spurious` and `meet_spurious`."""
        plan = self.plan
        counted = held_counts.counted_classes(previous, plan.pruning, plan.held_stddev)
        parts = [held_counts.held_sums(shard, counted) for shard in histogram]
        rule = held_counts.counted_rule(
            previous, parts, plan=plan, length=length, run_key=self.run_key
        )
        drawn = self.draw_spurious(length, previous, rule)
        return [
            held_counts.meet_spurious(shard, drawn, histogram_ranges=self.histogram_ranges)
            for shard in histogram
        ]

    def merge(self, pieces: list[tuple[int, HistogramShard]]) -> list[HistogramShard]:
        """Adds up the pieces of each hash range; their order does not matter."""
        ranges: dict[int, list[HistogramShard]] = {}
        for number, piece in pieces:
            ranges.setdefault(number, []).append(piece)
        return self.map(histogram.merge_shards, ranges.values())

    def decide_round(
        self,
        length: int,
        round_number: int,
        histogram: list[HistogramShard],
        previous: GramSet | None,
    ) -> tuple[PresentGrams, list[HistogramShard]]:
        """Calls `decide` for each hash range, and drops the ranges in which nothing is left."""
        rule = self._deciding(length, histogram, previous)
        decided = self._decided(histogram, rule)
        left = [
            shard
            for shard in decided
            if rule.by_prediction or shard.keys.size + shard.spurious_keys.size
        ]
        parts = [threshold.present_part(shard) for shard in left]
        known = ROOT if previous is None else previous
        return threshold.merge_present(parts, known, round_number), left

    def release(
        self, length: int, histogram: list[HistogramShard], previous: GramSet | None
    ) -> GramSet:
        """Calls `released_part` and `merge_released`."""
        rule = self._deciding(length, histogram, previous)
        decided = self._decided(histogram, rule)
        parts = [threshold.released_part(shard, rule) for shard in decided]
        known = ROOT if previous is None else previous
        return threshold.merge_released(parts, known, rule)

    def _decided(self, histogram: list[HistogramShard], rule: LengthRule) -> list[HistogramShard]:
        return self.map(lambda shard: self.decide(shard, rule), histogram) if rule.classes else []

    def _deciding(
        self, length: int, histogram: list[HistogramShard], previous: GramSet | None
    ) -> LengthRule:
        """Returns the rule that the hash ranges bring, or else that of S_{k−1}."""
        brought = [shard.rule for shard in histogram if shard.rule is not None]
        return brought[0] if brought else self.rule(length, previous)

    def count(self, users: list[UserBatch], released: Sequence[GramSet]) -> Sequence[GramSet]:
        """Calls `count_in_memory`."""
        return count_in_memory(
            GramRows(pruning=self.plan.pruning),
            users,
            released,
            noise=required_noise(self.plan.count_noise),
            run_key=self.run_key,
            workers=self.workers,
        )

    def map(self, function: Callable[[_In], _Out], items: Iterable[_In]) -> list[_Out]:
        """Calls a kernel for all batches or hash ranges; see `map_in_threads`."""
        return map_in_threads(function, items, self.workers)

    def decide(self, shard: HistogramShard, rule: LengthRule) -> HistogramShard:
        """Returns the n-grams of a hash range that are open or found after a round."""
        return threshold.decide_round(shard, rule=rule, run_key=self.run_key)
