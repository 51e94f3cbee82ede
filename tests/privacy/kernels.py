"""The adaptive loop with the package's own kernels, one after the other in this process, without Beam.

Runs with hundreds of different keys cost some milliseconds each. That the order of the kernels is
that of the pipeline is a test of its own (`test_adaptive_spurious`).
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from beam_dpne import GramSet, HistogramShard, PrivacyPlan, RunKey, UserBatch
from beam_dpne.batches import ROOT, SpuriousGrams, StandingGrams
from beam_dpne.decisions import (
    decide,
    decide_round,
    merge_released,
    merge_standing,
    sample_spurious,
    standing_part,
)
from beam_dpne.grams import keep_standing, prune_invalid
from beam_dpne.histogram import merge_shards, shard_spurious, sum_contributions
from beam_dpne.mechanism import LengthRule
from beam_dpne.public_vocabulary import public_vocabulary
from beam_dpne.spending import spend
from beam_dpne.strategies import Adaptive
from beam_dpne.users import encode_documents, hash_users, lay_out_positions


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settled:
    """What a length leaves: the released set, the drawn spurious grams, and the private states.

    Attributes:
      released: S_k.
      users: with what they have left; None if nobody is left.
      standing: in whose terms the users' positions are.
      drawn: spurious grams before those that somebody holds are dropped.
      held: keys that somebody holds, at k ≥ 2.
      decided: the shard after the last round.
    """

    released: GramSet
    users: UserBatch | None
    standing: StandingGrams | None = None
    drawn: SpuriousGrams | None = None
    held: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    decided: HistogramShard | None = None


def users_of(texts: Mapping[str, Sequence[str]], run_key: RunKey) -> UserBatch:
    """Positions of users whose tokens are separated by blanks; a text for each document."""
    documents = [(user, text.split()) for user, own in texts.items() for text in own]
    names = pa.array([user for user, _ in documents])
    tokens = pa.array([tokens for _, tokens in documents], pa.list_(pa.string()))
    block = encode_documents(hash_users(names, run_key.sub_key("user")), tokens)
    return lay_out_positions(block, run_key.sub_key("word"))


def run_lengths(
    users: UserBatch, plan: PrivacyPlan, run_key: RunKey, vocabulary: Sequence[str] | None = None
) -> list[Settled]:
    """Returns what each length 1..T leaves."""
    settled: list[Settled] = []
    batch: UserBatch | None = users
    for length in range(1, plan.max_length + 1):
        if settled and batch is not None:
            last = settled[-1]
            batch = prune_invalid(
                batch, last.released, pruning=plan.pruning, standing=last.standing
            )
            batch = batch if len(batch.users) else None
        if length not in plan.private_lengths:
            own = Settled(released=public_vocabulary(vocabulary or ()), users=batch)
        else:
            previous = settled[-1].released if settled else ROOT
            own = settle_length(batch, previous, plan, length, run_key)
        settled.append(own)
        batch = own.users
    return settled


def settle_length(
    batch: UserBatch | None, previous: GramSet, plan: PrivacyPlan, length: int, run_key: RunKey
) -> Settled:
    """All rounds of one length, from positions of length k − 1."""
    rule = Adaptive(plan=plan).rule_for(length)(previous)
    drawn = sample_spurious(previous, rule=rule, run_key=run_key) if length > 1 else None
    if not rule.rounds:
        return Settled(released=merge_released([], previous, rule), users=None, drawn=drawn)
    shard = standing = before = None
    held = np.zeros(0, np.int64)
    for number in range(1, len(rule.rounds) + 1):
        pieces = [] if shard is None else [shard]
        if drawn is not None and number == 1:
            pieces = [piece for _, piece in shard_spurious(drawn, shards=1)]
        if standing is not None and batch is not None:
            batch = keep_standing(batch, standing, before)
        if batch is not None and len(batch.users):
            contributions, batch = spend(
                batch,
                plan=plan,
                length=length,
                round_number=number,
                run_key=run_key,
                previous=previous if length > 2 else None,
                standing=standing,
            )
            pieces.append(sum_contributions(contributions))
        else:
            batch = None
        if not pieces:
            return Settled(released=merge_released([], previous, rule), users=None)
        shard = merge_shards(pieces)
        if number == 1 and length > 1:
            held = shard.keys
        if number < len(rule.rounds):
            shard = decide_round(shard, rule=rule, run_key=run_key)
            before, standing = standing, merge_standing([standing_part(shard)], previous, number)
    return _last(shard, previous, rule, run_key, batch, standing, drawn, held)


def _last(
    shard: HistogramShard | None,
    previous: GramSet,
    rule: LengthRule,
    run_key: RunKey,
    batch: UserBatch | None,
    standing: StandingGrams | None,
    drawn: SpuriousGrams | None,
    held: np.ndarray,
) -> Settled:
    assert shard is not None
    released = merge_released([decide(shard, rule=rule, run_key=run_key)], previous, rule)
    return Settled(
        released=released,
        users=batch,
        standing=standing,
        drawn=drawn,
        held=held,
        decided=decide_round(shard, rule=rule, run_key=run_key),
    )
