r"""The policies with a cutoff: users' weights follow those of others, so that few items get too much.

In the *sequential* policies (`descend`) users take turns, and each pours a budget of 1 into one
histogram. Weights and gaps are integers in units of 2^-50. With numba (extra `fast`) the loops are
compiled; without it the same functions run as plain Python, with the same results bit for bit:
integers are exact, and floats undergo only + × ÷ √ on IEEE doubles, in one order, without fast-math
or fusing.

Pouring (ℓ1, greedy) is *exactly* contractive in integers. A budget of B units is poured in a fixed
order of units (level l of item i), l ascending for each item, of which item i has as many as its gap
g_i to the cutoff; the first B that exist are poured. Let G ≥ G' be histograms, so that g_i ≤ g'_i: of
the same order fewer units exist at G, so it is cut at the same place or later: n_i ≥ n'_i units of
item i come before the cut. The gaps left are max(0, g_i − n_i) ≤ max(0, g'_i − n'_i): G ≥ G' still.
The weight poured is min(B, Σ g_i) ≤ min(B, Σ g'_i), so ‖G − G'‖₁ has not grown. (This is Lemma 3.1 of
DPSU without its continuous time.) The order may depend on this user's items, and on nothing else.

ℓ2-descent is contractive up to rounding; the bound is in `thresholds.descent_rounding`.

*"mad"* is a parallel policy after Chen et al. 2025: no user waits for another, and weight above a
cutoff is rerouted. Notation: S_u are user u's (limited) items, d_u their number, A the users with
1 < d_u ≤ d_max, τ = ρ + βσ, c = 1/√d_max − 1/(2 d_max), κ_u = min(1, √d_u · c). In units:
a_u = ⌊2^32/d_u⌋, W_u = ⌊2^32/√d_u⌋, so a_u ≤ 1/d_u, W_u ≤ 1/√d_u.

    w_init(i) = Σ_{u∈A, i∈S_u} a_u               r(i) = max(0, 1 − τ/w_init(i))
    e_u = a_u Σ_{i∈S_u} r(i)                     v_u = κ_u e_u / d_u
    w(i) = min(w_init(i), τ) + Σ_{u∈A, i∈S_u} (v_u + W_u − a_u) + Σ_{u∉A, i∈S_u} W_u

*One user moves w by at most 1 in ℓ2.* Let v join. If v ∉ A, only W_v ≤ 1/√d moves, d times. If v ∈ A
has d items, min(w_init(i), τ) grows by a_v − s_i with s_i ∈ [0, a_v], where s_i is the growth of the
excess max(0, w_init(i) − τ) = w_init(i) r(i). So Σ_i s_i = y ≤ 1 is the growth of
Σ_i w_init(i) r(i) = Σ_u e_u, and no e_u falls, since r grows with w_init.
The direct change is B_i = W_v − s_i ≥ 0 on v's items, at most 1/√d − s_i, so
‖B‖² ≤ 1 − 2y/√d + Σ s_i² ≤ 1 − y (2/√d − 1/d), and ‖B‖ ≤ 1 − y (1/√d − 1/(2d)).
The rerouted weight moves by Σ_u Δe_u (κ_u/d_u) 1_{S_u}, in ℓ2 at most Σ_u Δe_u κ_u/√d_u ≤ y c. Since
1/√d − 1/(2d) falls in d, it is at least c, and the sum is at most 1.

*Rounding.* w_init and the W_u are exact integers. r is computed in floats from two integers below 2^63
(three roundings, u = 2^-53 each), and rounded down to units of 2^-50: wrong by less than 1.4 units.
Sums of r are exact; v_u = ⌊Σ r · f_d⌋ with a factor f_d that is at most κ a / d (the proof holds for
any smaller κ). So v_u is wrong by less than 1.4 κ/d_u + 2u 2^50/4 + 1 < 2 units for each item, in
either world: `thresholds.rerouting_rounding`.

*Items of one user alone.* If t of v's d items are nobody else's, they all get the same weight: for
v ∈ A at most 1/√d + κ (d − t)/d², as their r is 0. By convexity 1/√t ≥ 1/√d + (d − t)/(2 d^{3/2}), and
κ ≤ √d c ≤ √d/2: so they get at most 1/√t, as in weighted Gaussian, whose threshold this policy has. (In
the first pass an item of one user has w_init ≤ 1/2 < τ.)

*A tempting discount that fails:* v_u = e_u/d_max for all, without κ, is not 1-sensitive.

DPSU is Gopi et al., "Differentially Private Set Union" (ICML 2020).
"""

import functools
import importlib
import importlib.util
import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from beam_dpne.elements.arrays import places_in
from beam_dpne.mechanism.cells import equal_weights
from beam_dpne.mechanism.rules import UNITS
from beam_dpne.mechanism.thresholds import GRID_BITS, REROUTING_MARGIN
from beam_dpne.set_union.elements import ItemSums, UserItems, split_fine, sum_by_item
from beam_dpne.set_union.plan import SetUnionPlan

BUDGET = 2**GRID_BITS
_USERS_AT_ONCE = 50_000
_COMPILING = threading.Lock()
_Loop = Callable[[Any, Any, Any, int, int], None]


def descend(
    policy: str,
    offsets: np.ndarray,
    items: np.ndarray,
    *,
    size: int,
    cutoff: int,
    compiled: bool | None = None,
) -> np.ndarray:
    """Returns the histogram of a sequential policy after all users, in their order.

    Args:
      policy: "policy_laplace", "policy_gaussian", "screened_gaussian" or "greedy".
      offsets: (n + 1,) int64, where each user's items begin.
      items: (m,) int64 in range(size), distinct within each user; "greedy" pours into them in this
        order, and "policy_laplace" gives spare units to the first.
      size: the number of items.
      cutoff: Γ/M in units of 2^-50, below 2^63.
      compiled: whether numba compiles the loop; by default it does if it is installed.

    Returns:
      (size,) int64, weights in units of 2^-50.
    """
    if can_compile() if compiled is None else compiled:
        histogram = np.zeros(size, np.int64)
        _compiled(policy)(offsets, items, histogram, cutoff, BUDGET)
        return histogram
    weights = [0] * size
    for first in range(0, len(offsets) - 1, _USERS_AT_ONCE):
        some = offsets[first : first + _USERS_AT_ONCE + 1]
        # Plain Python is faster on lists than on arrays; slices keep the lists small.
        items_of_some = items[some[0] : some[-1]].tolist()
        _LOOPS[policy]((some - some[0]).tolist(), items_of_some, weights, cutoff, BUDGET)
    return np.array(weights, dtype=np.int64)


@functools.cache
def can_compile() -> bool:
    """Returns whether numba is installed."""
    return importlib.util.find_spec("numba") is not None


def _compiled(policy: str) -> _Loop:
    """Compiles a loop; without fastmath numba keeps the order of float operations.

    One thread of a worker enters at a time, since it may be the first to import numba.
    """
    with _COMPILING:
        return _compiled_once(policy)


@functools.cache
def _compiled_once(policy: str) -> _Loop:
    return importlib.import_module("numba").njit(fastmath=False)(_LOOPS[policy])


def _pour_evenly(offsets, items, histogram, cutoff, budget):
    """Raises all of a user's items alike until they are full; the order of units is (level, item).

    Gaps are compared with the quotient left/active instead of a product, so that nothing overflows.

    References: DPSU Algorithm 3 (ℓ1-descent).
    """
    for user in range(len(offsets) - 1):
        # `left` is the rest of the budget in units of 2^-50, `active` the number of unfilled items.
        left = budget
        active = 0
        for entry in range(offsets[user], offsets[user + 1]):
            if histogram[items[entry]] < cutoff:
                active += 1
        filling = active > 0
        while filling:
            filling = False
            share = left // active
            for entry in range(offsets[user], offsets[user + 1]):
                gap = cutoff - histogram[items[entry]]
                if 0 < gap <= share:
                    histogram[items[entry]] = cutoff
                    left -= gap
                    active -= 1
                    filling = active > 0
        if active > 0:
            share = left // active
            spare = left - share * active
            for entry in range(offsets[user], offsets[user + 1]):
                if histogram[items[entry]] < cutoff:
                    histogram[items[entry]] += share
                    if spare > 0:
                        histogram[items[entry]] += 1
                        spare -= 1


def _pour_in_order(offsets, items, histogram, cutoff, budget):
    """Fills a user's items one after the other, but first gives each a single unit.

    With the single units, the items with weight are the union of all users' items. Without them, a user
    who fills an item makes later users' budgets overflow to items that would otherwise have no weight.
    The threshold would not cover those, since it counts this user's items only.

    References: Carvalho et al. 2022 (greedy), with the single units added.
    """
    for user in range(len(offsets) - 1):
        left = budget
        for entry in range(offsets[user], offsets[user + 1]):
            if histogram[items[entry]] < cutoff:
                histogram[items[entry]] += 1
                left -= 1
        for entry in range(offsets[user], offsets[user + 1]):
            step = min(left, cutoff - histogram[items[entry]])
            histogram[items[entry]] += step
            left -= step


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


_LOOPS: dict[str, _Loop] = {
    "policy_laplace": _pour_evenly,
    "policy_gaussian": _descend_straight,
    "screened_gaussian": _descend_straight,
    "greedy": _pour_in_order,
}


def first_weights(items: UserItems, plan: SetUnionPlan) -> ItemSums:
    """Returns w_init: users in A give each of their d items 1/d, rounded down; others give 0."""
    sizes = np.diff(items.offsets)
    return sum_by_item(items, np.repeat(_adaptive_shares(sizes, plan), sizes)[:, np.newaxis])


def excess_shares(first: ItemSums, plan: SetUnionPlan) -> ItemSums:
    """Returns r(i) = max(0, 1 − τ/w_init(i)) in units of 2^-50, for the items where it is positive."""
    # (n,) int64 each, in units of 2^-32.
    weights = first.table[:, 0]
    excess = weights - mad_cutoff_units(plan)
    over = np.flatnonzero(excess > 0)
    shares = excess[over].astype(np.float64) / weights[over].astype(np.float64)
    return ItemSums(
        words=first.words.take(pa.array(over)),
        word_hashes=first.word_hashes[over],
        width=1,
        sums=(shares * 2.0**GRID_BITS).astype(np.int64),
    )


def rerouted_weights(items: UserItems, shares: ItemSums, plan: SetUnionPlan) -> ItemSums:
    """Returns the sums of a batch under "mad", in the three columns that `ItemSums` describes.

    The first two are the weight that is not cut off, and its finer part; the third is w_init.

    Args:
      items: a batch of users.
      shares: r(i) of all items where it is positive (`excess_shares`).
      plan: a plan with policy "mad".
    """
    # (n,) for each user: the number of items, and the weight of each item in units of 2^-32
    # (`rerouted` is in units of 2^-50).
    sizes = np.diff(items.offsets)
    initial = _adaptive_shares(sizes, plan)
    rest = equal_weights(np.maximum(sizes, 1)) - initial
    rerouted = np.where(initial > 0, _rerouted(items, shares, plan), 0)
    whole, fine = split_fine(rerouted)
    columns = (rest + whole, fine, initial)
    return sum_by_item(items, np.repeat(np.stack(columns, axis=1), sizes, axis=0))


def mad_cutoff_units(plan: SetUnionPlan) -> int:
    """Returns τ of "mad" in units of 2^-32, rounded down."""
    return int((plan.cutoff or 0.0) * UNITS)


def _adaptive_shares(sizes: np.ndarray, plan: SetUnionPlan) -> np.ndarray:
    """Returns a_u in units of 2^-32 for users with 1 < d ≤ d_max items, 0 for others: (n,) int64."""
    adaptive = (sizes > 1) & (sizes <= plan.max_adaptive_degree)
    return np.where(adaptive, UNITS // np.maximum(sizes, 1), 0)


def _rerouted(items: UserItems, shares: ItemSums, plan: SetUnionPlan) -> np.ndarray:
    """Returns v_u of each user in units of 2^-50, rounded down; (n,) int64."""
    # r in units of 2^-50. Words without excess have the place −1, which is that of the 0 at the end.
    known = np.append(shares.sums, 0)
    excess = known[places_in(items.words, shares.words)][items.items]
    # Running sums of r over the entries, exact modulo 2^64: a user's sum is a difference of two.
    before = np.concatenate(([0], np.cumsum(excess.astype(np.uint64))))
    totals = before[items.offsets[1:]] - before[items.offsets[:-1]]
    sizes = np.diff(items.offsets)
    # (d_max + 1,) f_d of each degree d; users with another number of items take the 0 at the start.
    degrees = range(2, plan.max_adaptive_degree + 1)
    factors = np.array([0.0, 0.0, *(_factor(d, plan.max_adaptive_degree) for d in degrees)])
    chosen = factors[np.where(sizes <= plan.max_adaptive_degree, sizes, 0)]
    return (totals.astype(np.float64) * chosen).astype(np.int64)


def _factor(degree: int, max_degree: int) -> float:
    """Returns f_d ≤ κ a / d, which is lowered by a relative margin that exceeds its rounding error."""
    discount = 1 / math.sqrt(max_degree) - 1 / (2 * max_degree)
    kappa = min(1.0, math.sqrt(degree) * discount)
    return kappa * (UNITS // degree) / UNITS / degree * (1 - REROUTING_MARGIN)
