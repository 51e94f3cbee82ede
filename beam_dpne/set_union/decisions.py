"""The decision which items are released, and how many users have each of them.

Exact weights get keyed noise, and cells are released. Then a part c of the budget (count_share)
measures how many users have each released item, by the pass in `counts.measuring`. To its sums every
user adds one vector of length 1 at most, given the released items: it is a function of these and of
the user's own items, under all policies. All items of a user that were released count, also those
beyond max_contributions.

**Known items.** L is a public list. Its members are in the sums of every round, with weight 0 if
nobody has them, until a round finds or closes them, and all of them get noise. So what is decided of L
is a function of Z_r = H_r + N(0, σ_r²) on a fixed set, and none of it needs δ_T. Members that users
have differ from the others by their weight alone. δ_T is for items outside L; their threshold is the
same as without a list. The comparison is with the run that finds only items of L, and items of
positive weight in H, the histogram without the user.

How low ρ may be follows from L and from what the rounds before have shown of it, so that it spends
nothing. Let noise alone be above `KNOWN_CUT` with probability q. (The border is that of a cell, up to
σ/64 higher: q is lower then, and so is all that follows from it.) In a round

    C    members are below it,
    C_u  of these nobody has,
    B    members are above it that nobody has,

and T is what is tolerated of spurious ones. The next round finds each open member that nobody has with
probability E_r T/N. If the round before closes what is below, at most B of these are left, and

    N = (C + 1) q/(1 − q).

Else they are B + C_u, and

    N = (C + 1)/(1 − q).

For binomial B and any f ≥ 0,

    E[f(C) B/(C_u + 1)] ≤ q/(1 − q) · E[f(C − 1)].

So E_r E[T'] of them are found in the mean, at most, where T' is T with one less below.

T is the larger of two numbers,

    min(1, η|L|)  and  η(|L| − (C_1 + √|L|)/(1 − q)).

Without the root, the bracket estimates h, the number of members that users have: its mean is at most h,
and its standard deviation is at most s = √|L|/(2(1 − q)). The root subtracts 2s, and the mean of what
is above 0 is then at most h + s/8, as x − 2s ≤ x²/(8s). So all rounds together find in the mean at most

    min(1, η|L|) + η(h + 0.18 √|L| + 3)

spurious items.

A descent policy has one cutoff Γ, that of items outside L. The sensitivity, and the decisions that may
depend on a user, are as without a list: members that nobody has are decided alike with the user and
without.

**The items and the numbers of users.** Given the past, a user moves the weights of round r by at most S
in ℓ2, and then the sums of users by one vector of length 1 at most. These are rounds of one adaptive
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

from beam_dpne.counts.measuring import Held
from beam_dpne.elements import encoding
from beam_dpne.elements.arrays import byte_order, join_words, places_in, rows_of_places
from beam_dpne.elements.batches import DocumentBlock, UserBatch
from beam_dpne.mechanism import randomness, thresholds
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.thresholds import GRID_BITS
from beam_dpne.set_union.elements import ItemSet, ItemSums, items_of_users
from beam_dpne.set_union.plan import KNOWN_CUT, SetUnionPlan

# Weights in units of 2^-50 are a whole number of units of 2^-32 and a rest of so many bits.
_FINE_BITS = GRID_BITS - 32


class Decision(NamedTuple):
    """The result of one hash range in one round.

    Attributes:
      found: the items that are released, unsorted, with their scores.
      still_open: the items that the next round decides. They may include items of one user alone, and
        are never released. None in rounds without a cut: whatever they do not find stays open.
      known: the known items that the next round decides, with weight 0.
      low: the number of known items with a noisy weight below `KNOWN_CUT`.
    """

    found: ItemSet
    still_open: pa.Array | None
    known: ItemSums
    low: int


def decide(
    sums: ItemSums,
    plan: SetUnionPlan,
    run_key: RunKey,
    number: int = 1,
    known_threshold: float = 0.0,
) -> Decision:
    """Finds the items whose weight plus noise exceeds their threshold.

    Items without weight are found only if they are known. The noise is keyed by the item's 128-bit hash
    and the round. Only the cell of a noisy weight is released.

    Args:
      sums: all sums of one hash range, also those of known items that nobody has.
      plan: the plan of the run.
      run_key: bound to the run's parameters.
      number: the round's number, from 1.
      known_threshold: ρ of known items, in units of weight.

    References: DPSU Algorithm 1.
    """
    rule = plan.union_rounds[number - 1]
    is_known = sums.is_known
    cut = KNOWN_CUT * rule.noise_stddev
    of_known = rule._replace(threshold=known_threshold, cut=cut)
    lowest = of_known.cut_cell or 0
    evidence = rule.evidence
    # (n,) int64 each: ρ of each item, and weights in units of 2^-32, with the rest in units of 2^-50.
    borders = np.where(is_known, of_known.evidence.threshold_units, evidence.threshold_units)
    bits = _FINE_BITS if plan.has_cutoff else 0
    weights = sums.sums >> bits
    fractions = sums.sums & ((1 << bits) - 1)
    draws = randomness.encrypt_blocks(run_key.sub_key("item noise", 0, number), sums.word_hashes)
    noise = thresholds.evidence_noise([draws], evidence, rule.noise_stddev)
    parts = fractions / 2.0**_FINE_BITS
    cells = thresholds.noisy_cells([weights], noise, evidence, borders, parts)
    is_found = (cells >= 0) & ((weights > 0) | (fractions > 0) | is_known)
    chosen = np.flatnonzero(is_found)
    scores = thresholds.middles(cells[chosen], borders[chosen], evidence.cell_units)
    found = ItemSet(items=sums.words.take(pa.array(chosen)), scores=scores)
    is_open = ~is_found
    still_open = None
    if rule.cut_cell is not None:
        is_open &= cells >= np.where(is_known, lowest, rule.cut_cell)
        still_open = sums.words.filter(pa.array(is_open))
    known = sums.take(np.flatnonzero(is_open & is_known))
    low = np.count_nonzero(is_known & (cells < lowest))
    return Decision(found, still_open, dataclasses.replace(known, sums=0 * known.sums), int(low))


def bounded_parts(found: ItemSet) -> Iterator[ItemSet]:
    """Cuts released items into parts that are small enough for an element; an empty set has none."""

    def take(rows: np.ndarray) -> ItemSet:
        return ItemSet(items=found.items.take(pa.array(rows)), scores=found.scores[rows])

    if len(found):
        yield from encoding.bounded_parts(np.arange(len(found)), take)


def merge_released(
    parts: Iterable[ItemSet], plan: SetUnionPlan, size: int, past: Sequence[int]
) -> ItemSet:
    """Sorts the released items of all hash ranges into one set.

    Args:
      parts: the items.
      plan: the plan of the run.
      size: the number of known items.
      past: as in `SetUnionPlan.known_threshold`, of all rounds.
    """
    parts = list(parts)
    items = join_words(part.items for part in parts)
    values = np.concatenate([np.zeros(0), *(part.scores for part in parts)])
    order = byte_order(items)
    known = [plan.known_threshold(size, past[:number]) for number in range(len(past))]
    rho = np.array(known) if size else None
    return ItemSet(items=items.take(pa.array(order)), scores=values[order], known_thresholds=rho)


@dataclasses.dataclass(frozen=True)
class ItemRows:
    """The released items as rows whose users are counted, in their order."""

    def held(self, users: UserBatch | DocumentBlock, released: Sequence[ItemSet]) -> Held:
        """Returns the released items that each user of a batch has."""
        items = users if isinstance(users, DocumentBlock) else items_of_users(users)
        return held_items(items, released[0])

    def scores(self, released: Sequence[ItemSet]) -> list[np.ndarray]:
        """Returns the scores of the items, which are rows of one length."""
        return [released[0].scores]

    def groups(self, released: Sequence[ItemSet]) -> np.ndarray | None:
        """Returns None: items have no groups."""
        return None

    def with_users(self, released: Sequence[ItemSet], users: np.ndarray) -> list[ItemSet]:
        """Returns the set with its numbers of users."""
        return [dataclasses.replace(released[0], users=users)]


def held_items(items: DocumentBlock, released: ItemSet) -> Held:
    """Returns the distinct released items of each user, as rows of the released set.

    Args:
      items: a batch of users, not limited.
      released: the released items.

    Example:
      >>> import pyarrow as pa
      >>> two = DocumentBlock(users=np.arange(4, dtype=np.uint64).reshape(2, 2),
      ...                     offsets=np.array([0, 2, 3]), codes=np.array([1, 0, 1]),
      ...                     words=pa.array(["tea", "rye"]), word_hashes=np.eye(2, dtype=np.uint64))
      >>> held = held_items(two, ItemSet(items=pa.array(["milk", "rye"]), scores=np.ones(2)))
      >>> held.offsets, held.rows
      (array([0, 1, 2]), array([1, 1]))
    """
    rows = places_in(items.words, released.items).astype(np.int64)[items.codes]
    place = np.flatnonzero(rows >= 0)
    users = rows_of_places(items.offsets, place)
    return Held.of(users, rows[place], user_count=len(items.users), row_count=len(released))
