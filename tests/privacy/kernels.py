"""Whole runs in memory by the product's own loop, and what goes on inside them.

Runs with hundreds of different keys cost some milliseconds each.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from beam_dpne import NgramsPlan, RunKey
from beam_dpne.documents.blocks import encode_documents, hash_users, lay_out_positions
from beam_dpne.ngrams.elements import HistogramShard, Past
from beam_dpne.ngrams.in_memory import InMemory
from beam_dpne.steps import GramSet, UserBatch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settled:
    """What a length leaves, and what nobody else sees of it.

    Attributes:
      released: S_k.
      drawn: spurious grams before those that somebody holds are dropped; None at k = 1.
      held: keys that somebody holds, at k ≥ 2.
    """

    released: GramSet
    drawn: HistogramShard | None
    held: np.ndarray


@dataclasses.dataclass(kw_only=True)
class Watched(InMemory):
    """The product's run; notes for each length what was drawn, and what somebody holds."""

    drawn: dict[int, HistogramShard] = dataclasses.field(default_factory=dict)
    held: dict[int, np.ndarray] = dataclasses.field(default_factory=dict)

    def draw(self, previous, shards):
        drawn = super().draw(previous, shards)
        self.held[drawn.length] = np.concatenate([shard.keys for shard in shards])
        self.drawn[drawn.length] = drawn
        return drawn

    def settled(self, released: GramSet) -> Settled:
        """Returns what was noted of the length of a released set."""
        none = np.zeros(0, np.int64)
        length = released.length
        held = self.held.get(length, none)
        return Settled(released=released, drawn=self.drawn.get(length), held=held)


def users_of(texts: Mapping[str, Sequence[str]], run_key: RunKey) -> UserBatch:
    """Positions of users whose tokens are separated by blanks; a text for each document."""
    documents = [(user, text.split()) for user, own in texts.items() for text in own]
    names = pa.array([user for user, _ in documents])
    tokens = pa.array([tokens for _, tokens in documents], pa.list_(pa.string()))
    block = encode_documents(hash_users(names, run_key.sub_key("user")), tokens)
    return lay_out_positions(block, run_key.sub_key("word"))


def words_as_set(words: Sequence[str]) -> GramSet:
    """Words as S_1, as if they had been released."""
    return GramSet(
        length=1,
        keys=np.arange(len(words)),
        scores=np.ones(len(words)),
        words=pa.array(sorted(words)),
        parent_size=1,
        vocabulary_size=len(words),
    )


def run_lengths(
    users: UserBatch, plan: NgramsPlan, run_key: RunKey, vocabulary: Sequence[str] | None = None
) -> list[Settled]:
    """Returns what each length 1..T leaves; words that are given cost nothing."""
    run = Watched(plan=plan, run_key=run_key)
    if vocabulary is None:
        return [run.settled(released) for released in run.release([users])]
    released = [words_as_set(vocabulary)]
    batches = [users]
    if plan.is_adaptive:
        batches = [dataclasses.replace(users, left=np.full(len(users.users), plan.allotment))]
    positions = None
    for length in range(2, plan.max_length + 1):
        past = Past(released=released[-1], positions=positions)
        found, batches, positions = run.release_length(length, batches, past)
        released.append(found)
    return [run.settled(each) for each in released]


def settle(
    batch: UserBatch, previous: GramSet, plan: NgramsPlan, length: int, run_key: RunKey
) -> Settled:
    """All rounds of one length, from positions of length k − 2."""
    run = Watched(plan=plan, run_key=run_key)
    released, _, _ = run.release_length(length, [batch], Past(released=previous))
    return run.settled(released)
