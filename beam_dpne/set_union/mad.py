r"""MAD, a parallel policy that reroutes weight above a cutoff, with the proof of its sensitivity.

After Chen et al. 2025; no user waits for another. Notation: S_u are user u's (limited) items, d_u
their number, A the users with 1 < d_u ≤ d_max, τ = ρ + βσ, c = 1/√d_max − 1/(2 d_max),
κ_u = min(1, √d_u · c). In units: a_u = ⌊2^32/d_u⌋, W_u = ⌊2^32/√d_u⌋, so a_u ≤ 1/d_u, W_u ≤ 1/√d_u.

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
"""

import math

import numpy as np
import pyarrow as pa

from beam_dpne.elements.arrays import places_in
from beam_dpne.mechanism.cells import equal_weights
from beam_dpne.mechanism.rules import UNITS
from beam_dpne.mechanism.thresholds import GRID_BITS, REROUTING_MARGIN
from beam_dpne.set_union.elements import ItemSums, UserItems, sum_by_item
from beam_dpne.set_union.plan import SetUnionPlan

FINE_BITS = GRID_BITS - 32


def first_weights(items: UserItems, plan: SetUnionPlan) -> ItemSums:
    """Returns w_init: users in A give each of their d items 1/d, rounded down; others 0."""
    sizes = np.diff(items.offsets)
    return sum_by_item(items, np.repeat(_adaptive_shares(sizes, plan), sizes)[:, np.newaxis])


def excess_shares(first: ItemSums, plan: SetUnionPlan) -> ItemSums:
    """Returns r(i) = max(0, 1 − τ/w_init(i)) in units of 2^-50, for the items where it is positive."""
    weights = first.table[:, 0]
    excess = weights - cutoff_units(plan)
    over = np.flatnonzero(excess > 0)
    shares = excess[over].astype(np.float64) / weights[over].astype(np.float64)
    return ItemSums(
        words=first.words.take(pa.array(over)),
        word_hashes=first.word_hashes[over],
        width=1,
        sums=(shares * 2.0**GRID_BITS).astype(np.int64),
    )


def rerouted_weights(items: UserItems, shares: ItemSums, plan: SetUnionPlan) -> ItemSums:
    """Returns the sums of a batch in three columns.

    They are the weight that is not cut off, in units of 2^-32; its finer part, in units of 2^-50; and
    w_init, in units of 2^-32.

    Args:
      items: a batch of users.
      shares: r(i) of all items where it is positive (`excess_shares`).
      plan: a plan with policy "mad".
    """
    sizes = np.diff(items.offsets)
    initial = _adaptive_shares(sizes, plan)
    rest = equal_weights(np.maximum(sizes, 1)) - initial
    rerouted = np.where(initial > 0, _rerouted(items, shares, plan), 0)
    columns = (rest + (rerouted >> FINE_BITS), rerouted & ((1 << FINE_BITS) - 1), initial)
    return sum_by_item(items, np.repeat(np.stack(columns, axis=1), sizes, axis=0))


def cutoff_units(plan: SetUnionPlan) -> int:
    """Returns τ in units of 2^-32, rounded down."""
    return int((plan.cutoff or 0.0) * UNITS)


def _adaptive_shares(sizes: np.ndarray, plan: SetUnionPlan) -> np.ndarray:
    """Returns a_u for users with 1 < d ≤ d_max items, 0 for others."""
    adaptive = (sizes > 1) & (sizes <= plan.max_adaptive_degree)
    return np.where(adaptive, UNITS // np.maximum(sizes, 1), 0)


def _rerouted(items: UserItems, shares: ItemSums, plan: SetUnionPlan) -> np.ndarray:
    """Returns v_u of each user in units of 2^-50, rounded down; (n,) int64."""
    # The last entry, at −1, is that of words without excess.
    known = np.append(shares.sums, 0)
    excess = known[places_in(items.words, shares.words)][items.items]
    # Running sums of r over the entries, exact modulo 2^64: a user's sum is a difference of two.
    before = np.concatenate(([0], np.cumsum(excess.astype(np.uint64))))
    totals = before[items.offsets[1:]] - before[items.offsets[:-1]]
    sizes = np.diff(items.offsets)
    factors = np.zeros(plan.max_adaptive_degree + 1)
    for degree in range(2, factors.size):
        factors[degree] = _factor(degree, plan.max_adaptive_degree)
    chosen = factors[np.where(sizes < factors.size, sizes, 0)]
    return (totals.astype(np.float64) * chosen).astype(np.int64)


def _factor(degree: int, max_degree: int) -> float:
    """Returns f_d, at most κ a / d: lowered by a relative margin, more than its own rounding."""
    discount = 1 / math.sqrt(max_degree) - 1 / (2 * max_degree)
    kappa = min(1.0, math.sqrt(degree) * discount)
    return kappa * (UNITS // degree) / UNITS / degree * (1 - REROUTING_MARGIN)
