"""The update policies of set union on arrays: the weights that users give their items.

`limit_items` bounds the contribution of one user. The weighted policies then give weights that depend
on this user alone (`weigh_items`). In the descent policies a user's weights follow the histogram of the
users before (`run_shard`): users take turns, and each moves items towards a cutoff by a budget of 1
(`descend`). Weights and gaps are integers in units of 2^-50. With numba (extra `fast`) the loop over
many items is compiled; else the same function runs as plain Python, with the same results bit for bit:
integers are exact, and floats undergo only + × ÷ √ on IEEE doubles, in one order, without fast-math or
fusing. It is contractive up to rounding; the bound is in `thresholds.descent_rounding`.

*Items of one user alone.* In every policy the items with any weight are the union of all users' limited
items, so that adding a user adds that user's items to it, and no others. The t ≤ Δ items that only this
user has get at most 1/√t each, as the threshold in `mechanism` assumes. Let H and
H' be the histograms without and with user u. Consider the run that releases only items of positive
weight in *H*. It is the same function of the noisy histogram in both worlds, so that the noise makes it
private. The real run differs from it only if one of the t items of u alone passes the threshold, which
has a probability of at most δ_T.

*Shards.* One user touches the histogram of one shard only, so the sum of all shards moves no further
than that shard's.

*"screened_gaussian"* is ℓ2-descent in three rounds, with σ_r = σ/√q_r and Σ q_r = 1.
Each round finds the items above ρ_r, and all but the last close those below b_r. In the next round
users again pour a weight of 1, into open items only; all others are left out as if they did not exist.
Think of noise that is added to every possible string, Z_r = H_r + N(0, σ_r²). Whether a string is open
in round r depends on Z_1, …, Z_{r−1} and the found items only. Items that users have but gave no weight
are decided too (`present_items`), so that the open set depends on nothing else. Given the same past in
both worlds, a later round is ℓ2-descent on a fixed set of items, and moves by at most S in ℓ2, as round
1 does. With ‖H'_r − H_r‖ ≤ S on every path, the rounds are at least as private as one Gaussian
mechanism with sensitivity/σ = S √(Σ 1/σ_r²): the log-likelihood ratio, taken round by round and padded
to the full budget, is exactly normal (adaptive composition of Gaussian mechanisms). For the items of u
alone, round r has its share of δ_T, and the argument above holds given the round's past.

*"sips"* is the weighted Gaussian policy in three rounds, with σ_r = σ/√q_r and Σ q_r = 1. In each round
users divide a weight of 1 evenly among at most Δ_0 of their items that no earlier round has found.
Nothing else is closed, so the only side input of a round is what the rounds before it release. Given
that, another user's weights do not depend on u, and u adds w = ⌊2^32/√n⌋ units of 2^-32 to each of
n ≤ Δ_0 items, with n w² ≤ 2^64: at most 1 in ℓ2, exactly, and in every round on every path. So the
rounds compose as those of "screened_gaussian" do, with S = 1. Of the items that only u weighs in round
r there are t ≤ n, with a weight of at most 1/√t each; the threshold ρ_r releases any of them with a
probability of at most q_r δ_T given the past. (Others may hold such an item: then their subsets have
missed it in this round.) These shares of δ_T add up to δ_T.

DPSU is Gopi et al., "Differentially Private Set Union" (ICML 2020); "sips" is after Swanberg et al.,
"DP-SIPS: A simpler, more scalable mechanism for differentially private partition selection" (2023).
"""

import functools
import importlib
import importlib.util
import math
import threading
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa

from beam_dpne.elements import arrays, encoding
from beam_dpne.elements.batches import DocumentBlock
from beam_dpne.mechanism import randomness
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.thresholds import GRID_BITS, equal_weights
from beam_dpne.set_union.elements import (
    ItemSums,
    sum_by_item,
    take_entries,
)
from beam_dpne.set_union.plan import SetUnionPlan

BUDGET = 2**GRID_BITS
_USERS_AT_ONCE = 10_000
# Items of users that take plain Python .3 seconds. To import numba and to compile the loop takes a
# process 2 seconds, on any data.
_WORTH_COMPILING = 200_000
_COMPILING = threading.Lock()
_Loop = Callable[..., None]


def limit_items(
    items: DocumentBlock, plan: SetUnionPlan, run_key: RunKey, number: int = 1
) -> DocumentBlock:
    """Keeps at most Δ_0 items of each user, a keyed uniform subset.

    The bound on a user holds for any choice that is a function of this user's items and of the key.

    Args:
      items: a batch of users.
      plan: the plan of the run.
      run_key: bound to the run's parameters.
      number: the round's number, from 1.

    References: DPSU Algorithm 2, "Randomly choose Δ_0 items from W_i".
    """
    limit = plan.contribution_limit
    sizes = np.diff(items.offsets)
    if sizes.max(initial=0) <= limit:
        return items

    def hashes_of(entries: np.ndarray) -> np.ndarray:
        return items.word_hashes[items.codes[entries], 0]

    outside = arrays.outside_keyed_subset(
        items.offsets,
        limit,
        sub_key=run_key.sub_key("item subset", 0, number),
        users=items.users,
        keys_of=hashes_of,
    )
    kept = np.ones(items.codes.size, dtype=bool)
    kept[outside] = False
    return take_entries(items, kept, np.minimum(sizes, limit))


def weigh_items(items: DocumentBlock, plan: SetUnionPlan) -> ItemSums:
    """Returns the sums of a batch under a policy in which weights depend on the user alone.

    Weights are 1/√n for a user's n items, rounded down to units of 2^-32, so that their ℓ2-norm is at
    most 1 in exact arithmetic.

    Raises:
      ValueError: under a policy in which weights depend on other users.

    References: DPSU section 1.1.
    """
    sizes = np.diff(items.offsets)
    if plan.has_cutoff:
        raise ValueError(f"weigh_items has no policy {plan.policy!r}.")
    return sum_by_item(items, np.repeat(equal_weights(np.maximum(sizes, 1)), sizes))


def split_to_shards(
    items: DocumentBlock, plan: SetUnionPlan, run_key: RunKey
) -> Iterator[tuple[int, DocumentBlock]]:
    """Yields the users of each of the M shards, in parts that are small enough for an element."""
    draws = _order_draws(items, run_key)[:, 1]
    shard = (draws % np.uint64(plan.shard_count)).astype(np.int64)
    for number, users in arrays.group_places(shard, plan.shard_count):
        for part in encoding.bounded_parts(users, items.take):
            yield number, part


def run_shard(
    parts: Iterable[DocumentBlock],
    plan: SetUnionPlan,
    run_key: RunKey,
    number: int = 1,
    watch: Callable[[range], Iterable[int]] = iter,
) -> ItemSums:
    """Lets a shard's users pour, in keyed order, into a histogram of this shard up to Γ/M.

    The order is that of a keyed hash of the user, and items are ranked by keyed hash; neither depends
    on other users or items. So the result is a function of the shard's users alone.

    Args:
      parts: all users of the shard, in any order.
      plan: the plan of the run.
      run_key: bound to the run's parameters.
      number: the round's number, from 1.
      watch: as for `descend`.

    References: DPSU Algorithm 2.
    """
    items = DocumentBlock.joined(parts)
    # Γ in units of 2^-50, rounded down.
    cutoff = int((plan.union_rounds[number - 1].cutoff or 0.0) * 2.0**GRID_BITS)
    order = _order_draws(items, run_key)
    users = np.lexsort((order[:, 1], order[:, 0]))
    # The inverse permutations: (n,) each user's turn, and (words,) each item's rank by keyed hash.
    turn = np.empty(users.size, np.int64)
    turn[users] = np.arange(users.size)
    # The order of items by keyed hash is the same among any other items.
    by_hash = np.lexsort((items.word_hashes[:, 1], items.word_hashes[:, 0]))
    rank = np.empty(by_hash.size, np.int64)
    rank[by_hash] = np.arange(by_hash.size)
    sizes = np.diff(items.offsets)
    # (m,) the turn of each entry's user. `ordered` are the ranks of items in the order of turns; a turn
    # and a rank are packed into one integer, since sorting values is faster than sorting positions.
    user = np.repeat(turn, sizes)
    ordered = np.sort((user << 32) | rank[items.codes]) & 0xFFFFFFFF
    weights = descend(
        arrays.offsets_of(sizes[users]),
        ordered,
        size=by_hash.size,
        cutoff=cutoff // plan.shard_count,
        watch=watch,
    )
    return ItemSums(
        words=items.words.take(pa.array(by_hash)),
        word_hashes=items.word_hashes[by_hash],
        sums=weights,
    )


def present_items(items: DocumentBlock) -> ItemSums:
    """Returns all items that some user of a batch has, with weight 0.

    Which items a round closes must not depend on the subsets that were drawn: an item that is
    in no user's subset is decided by its noise like any other.
    """
    return sum_by_item(items, np.zeros(items.codes.size, np.int64))


def _order_draws(items: DocumentBlock, run_key: RunKey) -> np.ndarray:
    """Returns 128 keyed bits for each user: the first half orders them, the second picks a shard."""
    return randomness.encrypt_blocks(run_key.sub_key("user order"), items.users)


def descend(
    offsets: np.ndarray,
    items: np.ndarray,
    *,
    size: int,
    cutoff: int,
    compiled: bool | None = None,
    watch: Callable[[range], Iterable[int]] = iter,
) -> np.ndarray:
    """Returns the histogram after all users, in their order.

    Args:
      offsets: (n + 1,) int64, where each user's items begin.
      items: (m,) int64 in range(size), distinct within each user; the sum of squares
        is computed in this order.
      size: the number of items.
      cutoff: Γ/M in units of 2^-50, below 2^63.
      compiled: whether numba compiles the loop; by default it does if it is installed and there
        are so many items that this is worth it.
      watch: yields the parts that it is given, and may tell how many of them are done.

    Returns:
      (size,) int64, weights in units of 2^-50.
    """
    is_compiled = compiled
    if compiled is None:
        is_compiled = len(items) >= _WORTH_COMPILING and can_compile()
    histogram = np.zeros(size, np.int64) if is_compiled else [0] * size
    loop: _Loop = _compiled() if is_compiled else _descend_straight

    parts = range(0, len(offsets) - 1, _USERS_AT_ONCE)
    for first in watch(parts):
        some = offsets[first : first + _USERS_AT_ONCE + 1]
        given = some - some[0], items[some[0] : some[-1]]
        # Plain Python is faster on lists than on arrays; slices keep the lists small.
        lists = given if is_compiled else map(np.ndarray.tolist, given)
        loop(*lists, histogram, cutoff, BUDGET)
    return np.asarray(histogram, np.int64)


@functools.cache
def can_compile() -> bool:
    """Returns whether numba is installed."""
    return importlib.util.find_spec("numba") is not None


def _compiled() -> _Loop:
    """Compiles a loop; without fastmath numba keeps the order of float operations.

    One thread of a worker enters at a time, since it may be the first to import numba.
    """
    with _COMPILING:
        return _compiled_once()


@functools.cache
def _compiled_once() -> _Loop:
    return importlib.import_module("numba").njit(fastmath=False)(_descend_straight)


def _descend_straight(offsets, items, histogram, cutoff, budget):
    """Moves a user's items straight towards the cutoff, by at most 1 in ℓ2.

    References: DPSU Algorithm 5 (ℓ2-descent).
    """
    for user in range(len(offsets) - 1):
        # The squared ℓ2 distance to the cutoff, in squared units of weight.
        square = 0.0
        for entry in range(offsets[user], offsets[user + 1]):
            gap = float(cutoff - histogram[items[entry]]) / float(budget)
            square += gap * gap
        distance = math.sqrt(square)
        for entry in range(offsets[user], offsets[user + 1]):
            missing = cutoff - histogram[items[entry]]
            step = missing
            if distance > 1.0:
                step = min(missing, int(float(missing) / distance))
            histogram[items[entry]] += step
