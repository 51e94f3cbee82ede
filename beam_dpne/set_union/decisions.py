"""The decision which items are released, and how many users have each of them.

Exact weights get keyed noise, and cells are released. Then a part c of the budget (count_share)
measures how many users have each released item, by the pass in `counts.measuring`. To its sums every
user adds vectors of length 1 at most, given the released items: they are a function of these and of
each user's own items, under all policies. All items of a user that were released count, also those
beyond max_contributions.

**The items and the numbers of users.** Given the past, a user moves the weights of round r by at most S
in ℓ2, and then the sums of users by vectors of length 1 at most. These are rounds of one adaptive
composition of Gaussian mechanisms, with Σ_r (S/σ_r)² ≤ (1 − c) μ² for the items and c μ² for the sums:
together they are as private as one Gaussian mechanism of sensitivity/σ = μ, for (ε, δ_G). The rest of δ
is δ_T, as without counts: the argument for items of one user alone compares with a run that releases
none of them (`weights`), and what follows the released set is the same function of it in both runs.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from beam_dpne.counts.measuring import Held, count_in_memory
from beam_dpne.elements import coders
from beam_dpne.elements.arrays import join_words, places_in, rows_of_entries
from beam_dpne.elements.batches import UserBatch
from beam_dpne.mechanism import randomness, thresholds
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import UNITS
from beam_dpne.mechanism.thresholds import GRID_BITS
from beam_dpne.set_union import weights as union_weights
from beam_dpne.set_union.elements import (
    ItemSet,
    ItemSums,
    UserItems,
    items_of_users,
    left_open,
)
from beam_dpne.set_union.plan import SetUnionPlan, UnionRound

# Weights in units of 2^-50 are a whole number of units of 2^-32 and a rest of so many bits.
_FINE_BITS = GRID_BITS - 32


class Decision(NamedTuple):
    """The result of one hash range in one round.

    Attributes:
      found: the items that are released, unsorted, with their scores.
      still_open: the items that the next round decides. They may include items of one user alone, and
        are never released. None in rounds without a cut: whatever they do not find stays open.
    """

    found: ItemSet
    still_open: pa.Array | None


def decide(sums: ItemSums, plan: SetUnionPlan, run_key: RunKey, number: int = 1) -> Decision:
    """Finds the items of positive weight whose weight plus noise exceeds the threshold.

    The noise is keyed by the item's 128-bit hash and the round. Only the cell of a noisy weight is
    released.

    Args:
      sums: all sums of one hash range.
      plan: the plan of the run.
      run_key: bound to the run's parameters.
      number: the round's number, from 1.

    References: DPSU Algorithm 1.
    """
    rule = plan.union_rounds[number - 1]
    # (n,) int64 each: weights in units of 2^-32, and the rest in units of 2^-50.
    bits = _FINE_BITS if plan.has_cutoff else 0
    weights, fractions = sums.sums >> bits, sums.sums & ((1 << bits) - 1)
    draws = randomness.encrypt_blocks(run_key.sub_key("item noise", 0, number), sums.word_hashes)
    cells = noisy_cells(weights, fractions, draws, rule)
    is_found = (cells >= 0) & ((weights > 0) | (fractions > 0))
    chosen = np.flatnonzero(is_found)
    scores = thresholds.middles(cells[chosen], rule.threshold_units, rule.cell_units)
    found = ItemSet(items=sums.words.take(pa.array(chosen)), scores=scores)
    if rule.cut_cell is None:
        return Decision(found, None)
    still_open = np.flatnonzero((cells >= rule.cut_cell) & ~is_found)
    return Decision(found, sums.words.take(pa.array(still_open)))


def noisy_cells(
    weights: np.ndarray, fractions: np.ndarray, bits: np.ndarray, rule: UnionRound
) -> np.ndarray:
    """Returns the cell of each weight plus its noise: ≥ 0 exactly when weight + noise > ρ.

    Whole cells are split off in integers before the floating noise is added.

    Args:
      weights: (n,) int64, in units of 2^-32.
      fractions: (n,) int64 in range(2^18), in units of 2^-50.
      bits: (n, 2) uint64, the keyed bits of each item's noise.
      rule: the rule of the round.

    Returns:
      (n,) int64, the number of the cell, counted from the threshold.
    """
    whole, rest = np.divmod(weights - rule.threshold_units, rule.cell_units)
    noise = randomness.normals(bits) * (rule.noise_stddev * UNITS)
    fine = fractions / 2.0**_FINE_BITS
    return thresholds.cells_above(whole, rest + fine, noise, rule.cell_units)


def bounded_parts(found: ItemSet) -> Iterator[ItemSet]:
    """Cuts released items into parts that are small enough for an element; an empty set has none."""

    def take(rows: np.ndarray) -> ItemSet:
        return ItemSet(items=found.items.take(pa.array(rows)), scores=found.scores[rows])

    if len(found):
        yield from coders.bounded_parts(np.arange(len(found)), take)


def merge_released(parts: Iterable[ItemSet]) -> ItemSet:
    """Sorts the released items of all hash ranges into one set."""
    parts = list(parts)
    items = join_words(part.items for part in parts)
    values = np.concatenate([np.zeros(0), *(part.scores for part in parts)])
    rows = pa.table({"item": items.cast(pa.binary()), "score": values}).sort_by("item")
    return ItemSet(
        items=rows["item"].cast(pa.string()).combine_chunks(),
        scores=rows["score"].to_numpy(),
    )


def release_items(items: UserItems, plan: SetUnionPlan, run_key: RunKey) -> ItemSet:
    """Releases the union of users in memory: the mechanism of `PrivateSetUnion` without Beam.

    Args:
      items: all users, not yet limited.
      plan: the plan of the run.
      run_key: bound to the run's parameters; see `key_context`.

    Example:
      >>> import hashlib
      >>> words = pa.array(["a", "b"])
      >>> crowd = UserItems(users=np.arange(200, dtype=np.uint64).reshape(-1, 2), words=words,
      ...                   offsets=np.arange(0, 202, 2), items=np.tile([0, 1], 100),
      ...                   word_hashes=np.eye(2, dtype=np.uint64))
      >>> plan = SetUnionPlan(epsilon=10, delta=1e-4, policy="sips")
      >>> release_items(crowd, plan, RunKey(bytes(32))).items.to_pylist()
      ['a', 'b']
    """
    parts, left = [], items
    for decider in plan.union_rounds:
        sums = union_weights.histogram(left, plan, run_key, decider.round)
        decision = decide(sums, plan, run_key, decider.round)
        parts.append(decision.found)
        if decider.round < len(plan.union_rounds):
            still_open = decision.still_open
            known = decision.found.items if still_open is None else still_open
            left = left_open(left, known, is_open=still_open is not None)
    found = merge_released(parts)
    if not plan.count_share:
        return found
    (counted,) = count_in_memory(
        ItemRows(), [items], [found], noise=plan.count_noise, run_key=run_key
    )
    return counted


@dataclasses.dataclass(frozen=True)
class ItemRows:
    """The released items as rows whose users are counted, in their order."""

    def held(self, users: UserBatch | UserItems, released: Sequence[ItemSet]) -> Held:
        """Returns the released items that each user of a batch has."""
        items = users if isinstance(users, UserItems) else items_of_users(users)
        return held_items(items, released[0])

    def scores(self, released: Sequence[ItemSet]) -> list[np.ndarray]:
        """Returns the scores of the items, which are rows of one length."""
        return [released[0].scores]

    def parents(self, released: Sequence[ItemSet]) -> None:
        """Returns None, since no item implies another one."""

    def with_users(self, released: Sequence[ItemSet], users: np.ndarray) -> list[ItemSet]:
        """Returns the set with its numbers of users."""
        return [dataclasses.replace(released[0], users=users)]


def held_items(items: UserItems, released: ItemSet) -> Held:
    """Returns the distinct released items of each user, as rows of the released set.

    Args:
      items: a batch of users, not limited.
      released: the released items.

    Example:
      >>> import pyarrow as pa
      >>> two = UserItems(users=np.arange(4, dtype=np.uint64).reshape(2, 2), items=np.array([1, 0, 1]),
      ...                 offsets=np.array([0, 2, 3]),
      ...                 words=pa.array(["tea", "rye"]), word_hashes=np.eye(2, dtype=np.uint64))
      >>> held = held_items(two, ItemSet(items=pa.array(["milk", "rye"]), scores=np.ones(2)))
      >>> held.offsets, held.rows
      (array([0, 1, 2]), array([1, 1]))
    """
    rows = places_in(items.words, released.items).astype(np.int64)[items.items]
    place = np.flatnonzero(rows >= 0)
    users = rows_of_entries(items.offsets)[place]
    return Held.of(users, rows[place], user_count=len(items.users), row_count=len(released))
