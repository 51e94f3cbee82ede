r"""The policies "mad" and "mad2r": weight above a cutoff is given back to the users it came from.

They are parallel policies after Chen et al. 2025: no user waits for another. Notation: S_u are user
u's (limited) items, d_u their number, A the users with 1 < d_u ≤ d_max, τ = ρ + βσ,
c = 1/√d_max − 1/(2 d_max), κ_u = min(1, √d_u · c). Every item has a bias b(i) in (0, 1]; in "mad" and
in the first round of "mad2r" it is 1. E_u are the items of S_u with b(i) = 1. In units:
a_u = ⌊2^32/d_u⌋ ≤ 1/d_u, and W_u(i) is b(i)/√(Σ_{j∈S_u} b(j)²), rounded down.

    w_init(i) = Σ_{u∈A, i∈E_u} a_u               r(i) = max(0, 1 − τ/w_init(i))
    e_u = a_u Σ_{i∈E_u} r(i)                     v_u = κ_u e_u / d_u
    w(i) = min(w_init(i), τ) + Σ_{u∈A, i∈E_u} (v_u − a_u) + Σ_{u, i∈S_u} W_u(i)

*One user moves w by at most 1 in ℓ2, for any biases that do not depend on u.* Let v join, and let Ŵ
be W_v before rounding: ‖Ŵ‖ = 1, and Ŵ(i) ≥ 1/√d on E_v, since no bias is above 1. If v ∉ A, only
W_v ≤ Ŵ moves. If v ∈ A has d items, min(w_init(i), τ) grows for i ∈ E_v by a_v − s_i with
s_i ∈ [0, a_v], where s_i is the growth of the excess max(0, w_init(i) − τ) = w_init(i) r(i). So
Σ_i s_i = y ≤ 1 is the growth of Σ_i w_init(i) r(i) = Σ_u e_u, and no e_u falls, since r grows with
w_init. (An item that is biased for one user is biased for all, so it has no w_init.)
The direct change is B_i = W_v(i) − s_i ≥ 0 on v's items, with s_i = 0 outside E_v, so
‖B‖² ≤ ‖Ŵ‖² − Σ_{i∈E_v} s_i (2Ŵ(i) − s_i) ≤ 1 − y (2/√d − 1/d), and ‖B‖ ≤ 1 − y (1/√d − 1/(2d)).
The rerouted weight moves by Σ_u Δe_u (κ_u/d_u) 1_{E_u}, in ℓ2 at most Σ_u Δe_u κ_u/√d_u ≤ y c. Since
1/√d − 1/(2d) falls in d, it is at least c, and the sum is at most 1.

*Rounding.* w_init and the W_u are exact integers. r is computed in floats from two integers below 2^63
(three roundings, u = 2^-53 each), and rounded down to units of 2^-50: wrong by less than 1.4 units.
Sums of r are exact; v_u = ⌊Σ r · f_d⌋ with a factor f_d that is at most κ a / d (the proof holds for
any smaller κ). So v_u is wrong by less than 1.4 κ/d_u + 2u 2^50/4 + 1 < 2 units for each item, in
either world: `thresholds.rerouting_rounding`.

*Items of one user alone, with all biases 1.* If t of v's d items are nobody else's, they all get the
same weight: for v ∈ A at most 1/√d + κ (d − t)/d², as their r is 0. By convexity
1/√t ≥ 1/√d + (d − t)/(2 d^{3/2}), and κ ≤ √d c ≤ √d/2: so they get at most 1/√t, as in weighted
Gaussian, whose threshold this policy has. (In the first pass an item of one user has w_init ≤ 1/2 < τ.)

*A tempting discount that fails:* v_u = e_u/d_max for all, without κ, is not 1-sensitive.

*"mad2r"* has two rounds, with σ_r = σ/√q_r and q_1 + q_2 = 1. Round 1 is "mad". It finds the items
above ρ_1, closes those whose noisy weight Y is below b_1, and gives each open item the bias
b(i) = min(1, max(b_min, ρ_2/(Y + σ_1))), rounded down to units of 2^-16: weight moves away from items
that probably have enough. In round 2 users pour a weight of 1 into open items only, with these biases.
Which items are open and their biases are functions of the noisy weights of round 1 over every possible
string (`weights.present_items`), so they are the same in both worlds given the same past. By the proof
above, round 2 moves by at most S = 1 + rounding in ℓ2, as round 1 does, and the rounds compose as those
of "screened_gaussian" do (`weights`).

*Items of one user alone, with biases.* Their biases follow their own noise in round 1, so that their
weights differ, and 1/√t is **no bound** for each of them: with one biased item and one that is not, a
user gives the latter more than 1/√2. The threshold of round 2 therefore assumes nothing but the
sensitivity: the weights of items that only v holds are part of the move of w when v joins, so that
their squares add up to at most S². `thresholds.uneven_threshold` is for all such weights. Given round
1, the noise of round 2 is fresh, so any of them is released with probability at most its share of δ_T.

The published two-round algorithm has biases too. Its text was not at hand, so that the biases, the cut
and the threshold of round 2 are this project's.

References: Chen et al., "Scalable Private Partition Selection via Adaptive Weighting" (ICML 2025,
PMLR 267).
"""

import math

import numpy as np
import pyarrow as pa

from beam_dpne.elements.arrays import places_in, rows_of_entries
from beam_dpne.mechanism.cells import equal_weights
from beam_dpne.mechanism.rules import UNITS
from beam_dpne.mechanism.thresholds import GRID_BITS, REROUTING_MARGIN
from beam_dpne.set_union.elements import ItemSums, UserItems, split_fine, sum_by_item
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.set_union.policies import BIAS_UNITS, LEAST_BIAS

# Weights under biases are lowered by this part, which is more than their floats are wrong.
_BIASED_MARGIN = 2.0**-50


def first_weights(items: UserItems, plan: SetUnionPlan) -> ItemSums:
    """Returns w_init: users in A give 1/d, rounded down, to their items of bias 1, and 0 to others."""
    return sum_by_item(items, _first_shares(items, plan)[:, np.newaxis])


def excess_shares(first: ItemSums, plan: SetUnionPlan, number: int = 1) -> ItemSums:
    """Returns r(i) = max(0, 1 − τ/w_init(i)) in units of 2^-50, for the items where it is positive."""
    # (n,) int64 each, in units of 2^-32.
    weights = first.table[:, 0]
    excess = weights - mad_cutoff_units(plan, number)
    over = np.flatnonzero(excess > 0)
    shares = excess[over].astype(np.float64) / weights[over].astype(np.float64)
    return ItemSums(
        words=first.words.take(pa.array(over)),
        word_hashes=first.word_hashes[over],
        width=1,
        sums=(shares * 2.0**GRID_BITS).astype(np.int64),
    )


def rerouted_weights(items: UserItems, shares: ItemSums, plan: SetUnionPlan) -> ItemSums:
    """Returns the sums of a batch, in the three columns that `ItemSums` describes.

    The first two are the weight that is not cut off, and its finer part; the third is w_init.

    Args:
      items: a batch of users.
      shares: r(i) of all items where it is positive (`excess_shares`).
      plan: a plan with policy "mad" or "mad2r".
    """
    # (m,) for each entry, in units of 2^-32 (`rerouted` is in units of 2^-50).
    initial = _first_shares(items, plan)
    rest = biased_weights(items) - initial
    rerouted = np.repeat(_rerouted(items, shares, plan), np.diff(items.offsets))
    whole, fine = split_fine(np.where(initial > 0, rerouted, 0))
    return sum_by_item(items, np.stack((rest + whole, fine, initial), axis=1))


def biased_weights(items: UserItems) -> np.ndarray:
    """Returns W_u(i) of each entry in units of 2^-32, rounded down: (m,) int64.

    Σ b² is an exact integer below 2^63. The conversion to a float, its root, the quotient and the
    product are wrong by less than 4 · 2^-53 of the result, so that lowering it by 2^-50 leaves it at
    most the exact one: Σ W² ≤ 2^64 for each user.
    """
    sizes = np.diff(items.offsets)
    if items.biases is None:
        return np.repeat(equal_weights(np.maximum(sizes, 1)), sizes)
    biases = items.biases[items.items]
    before = np.concatenate(([0], np.cumsum(biases * biases)))
    squares = before[items.offsets[1:]] - before[items.offsets[:-1]]
    roots = np.sqrt(squares.astype(np.float64))[rows_of_entries(items.offsets)]
    weights = (biases * UNITS).astype(np.float64) / roots
    return np.floor(weights * (1 - _BIASED_MARGIN)).astype(np.int64)


def mad_cutoff_units(plan: SetUnionPlan, number: int = 1) -> int:
    """Returns τ of a round in units of 2^-32, rounded down."""
    return int((plan.union_rounds[number - 1].cutoff or 0.0) * UNITS)


def open_biases(scores: np.ndarray, plan: SetUnionPlan, number: int) -> np.ndarray:
    """Returns the biases of items for the round after a round, in units of 2^-16: (n,) int64.

    Args:
      scores: (n,) float64, the middles of the cells of the items' noisy weights, in units of weight;
        above 0, as those of items that a round with a cut leaves open.
      plan: the plan of the run; if its policy has no biases, all of them are 1.
      number: the number of the round, which is not the last.
    """
    if not plan.update_policy.has_biases:
        return np.full(scores.size, BIAS_UNITS, dtype=np.int64)
    decided, following = plan.union_rounds[number - 1 : number + 1]
    biases = np.clip(following.threshold / (scores + decided.noise.stddev), LEAST_BIAS, 1.0)
    return (biases * BIAS_UNITS).astype(np.int64)


def _adaptive_shares(sizes: np.ndarray, plan: SetUnionPlan) -> np.ndarray:
    """Returns a_u in units of 2^-32 for users with 1 < d ≤ d_max items, 0 for others: (n,) int64."""
    adaptive = (sizes > 1) & (sizes <= plan.max_adaptive_degree)
    return np.where(adaptive, UNITS // np.maximum(sizes, 1), 0)


def _first_shares(items: UserItems, plan: SetUnionPlan) -> np.ndarray:
    """Returns what each entry gives in the first pass: (m,) int64, in units of 2^-32."""
    sizes = np.diff(items.offsets)
    shares = np.repeat(_adaptive_shares(sizes, plan), sizes)
    if items.biases is None:
        return shares
    return np.where(items.biases[items.items] == BIAS_UNITS, shares, 0)


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
