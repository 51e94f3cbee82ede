"""A run of n-grams in memory: the kernels of `PrivateNgrams` on arrays, without a pipeline.

The order of the steps is that of `loop`, so a release is the pipeline's, bit for bit, under the same
run key. The corpus must fit in memory; one process does everything.
"""

import dataclasses
from collections.abc import Iterable, Sequence

from beam_dpne.elements.batches import UserBatch
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import LengthRule
from beam_dpne.ngrams import decisions, histogram, strategies
from beam_dpne.ngrams.budgets import spend_on_present
from beam_dpne.ngrams.candidates import extract_grams, prune_invalid
from beam_dpne.ngrams.contributions import limit_contributions
from beam_dpne.ngrams.elements import (
    ROOT,
    Contributions,
    GramSet,
    HistogramShard,
    PresentGrams,
    SpuriousGrams,
)
from beam_dpne.ngrams.loop import release_lengths
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.public_vocabulary import public_vocabulary
from beam_dpne.ngrams.union_vocabulary import as_vocabulary, union_plan
from beam_dpne.set_union import threshold, weights


def release_ngrams(
    users: Iterable[UserBatch],
    plan: PrivacyPlan,
    run_key: RunKey,
    vocabulary: Sequence[str] | None = None,
) -> tuple[GramSet, ...]:
    """Releases S_1, …, S_T of users in memory: the mechanism of `PrivateNgrams` without Beam.

    Args:
      users: positions of length 0; each user is in one batch only.
      plan: of the run.
      run_key: bound to the run's parameters, see `ngrams`.
      vocabulary: public words, if the plan says that they are given.

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
    steps = ArraySteps(plan=plan, run_key=run_key, vocabulary=vocabulary)
    return release_lengths(steps, plan, list(users))


@dataclasses.dataclass(kw_only=True)
class ArraySteps:
    """Calls the kernel of each step; `loop.Steps` says what each of them returns.

    Attributes:
      plan: the parameters of the run.
      run_key: bound to the run's parameters.
      vocabulary: public words, if the plan says that they are given.
      shards: hash ranges of a histogram; they change no release.
    """

    plan: PrivacyPlan
    run_key: RunKey = dataclasses.field(repr=False)
    vocabulary: Sequence[str] | None = None
    shards: int = 1

    def rule(self, length: int, previous: GramSet | None) -> LengthRule:
        """Returns what decides a length: a function of S_{k−1}."""
        known = ROOT if previous is None else previous
        return strategies.rule_for(self.plan, length, self.run_key)(known)

    def give_words(self, length: int) -> GramSet:
        """Returns a public vocabulary as S_1."""
        return public_vocabulary(self.vocabulary or ())

    def unite_words(self, length: int, users: list[UserBatch]) -> GramSet:
        """Returns S_1 by a policy of set union."""
        union = union_plan(self.plan)
        found = threshold.merge_released([], union)
        if users:
            items = weights.join_items(weights.items_of_users(batch) for batch in users)
            found = threshold.release_items(items, union, self.run_key)
        return as_vocabulary(found, union=union, store=None)

    def prune(
        self,
        length: int,
        users: list[UserBatch],
        previous: GramSet,
        present: PresentGrams | None,
    ) -> list[UserBatch]:
        """Calls `prune_invalid`; batches without users are dropped."""
        pruned = (
            prune_invalid(batch, previous, pruning=self.plan.pruning, present=present)
            for batch in users
        )
        return [batch for batch in pruned if len(batch.users)]

    def limit(self, length: int, users: list[UserBatch]) -> list[Contributions]:
        """Calls `limit_contributions`."""
        limit = self.plan.contribution_limits[length - 1]
        sub_key = self.run_key.sub_key("subset", length)
        return [
            limit_contributions(
                extract_grams(batch, length=length), max_contributions=limit, sub_key=sub_key
            )
            for batch in users
        ]

    def spend(
        self,
        length: int,
        round_number: int,
        users: list[UserBatch],
        previous: GramSet | None,
        present: Sequence[PresentGrams],
    ) -> tuple[list[Contributions], list[UserBatch]]:
        """Calls `spend_on_present`."""
        spent = [
            spend_on_present(
                batch,
                plan=self.plan,
                length=length,
                round_number=round_number,
                run_key=self.run_key,
                previous=previous if length > 2 else None,
                present=present[-1] if present else None,
                before=present[-2] if len(present) > 1 else None,
            )
            for batch in users
        ]
        kept = [pair for pair in spent if pair is not None]
        return [sent for sent, _ in kept], [batch for _, batch in kept]

    def draw_spurious(self, length: int, previous: GramSet) -> SpuriousGrams:
        """Calls `sample_spurious`."""
        rule = self.rule(length, previous)
        return decisions.sample_spurious(previous, rule=rule, run_key=self.run_key)

    def add_up(
        self,
        length: int,
        round_number: int,
        sent: list[Contributions],
        drawn: SpuriousGrams | None,
        still_open: list[HistogramShard] | None,
    ) -> list[HistogramShard]:
        """Cuts everything by hash range, and calls `merge`."""
        pieces: list[tuple[int, HistogramShard]] = []
        for contributions in sent:
            sums = histogram.sum_contributions(contributions)
            pieces += histogram.cut_by_hash_range(sums, self.shards)
        if drawn is not None:
            pieces += histogram.shard_spurious(drawn, shards=self.shards)
        for shard in still_open or []:
            pieces += histogram.shard_open(shard, shards=self.shards)
        return self.merge(pieces)

    def merge(self, pieces: list[tuple[int, HistogramShard]]) -> list[HistogramShard]:
        """Adds up the pieces of each hash range; their order does not matter."""
        ranges: dict[int, list[HistogramShard]] = {}
        for number, piece in pieces:
            ranges.setdefault(number, []).append(piece)
        return [histogram.merge_shards(group) for group in ranges.values()]

    def decide_round(
        self,
        length: int,
        round_number: int,
        histogram: list[HistogramShard],
        previous: GramSet | None,
    ) -> tuple[PresentGrams, list[HistogramShard]]:
        """Calls `decide` for each hash range, and drops those in which nothing is left."""
        rule = self.rule(length, previous)
        decided = [self.decide(shard, rule) for shard in histogram if rule.rounds]
        left = [shard for shard in decided if shard.keys.size + shard.spurious_keys.size]
        parts = [decisions.present_part(shard) for shard in left]
        known = ROOT if previous is None else previous
        return decisions.merge_present(parts, known, round_number), left

    def release(
        self, length: int, histogram: list[HistogramShard], previous: GramSet | None
    ) -> GramSet:
        """Calls `released_part` and `merge_released`."""
        rule = self.rule(length, previous)
        decided = [self.decide(shard, rule) for shard in histogram if rule.rounds]
        parts = [decisions.released_part(shard, rule) for shard in decided]
        known = ROOT if previous is None else previous
        return decisions.merge_released(parts, known, rule)

    def decide(self, shard: HistogramShard, rule: LengthRule) -> HistogramShard:
        """Returns what is open or found in a hash range after a round."""
        return decisions.decide_round(shard, rule=rule, run_key=self.run_key)
