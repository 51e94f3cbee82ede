"""Set union in plain Python: the papers' algorithms one user at a time, to be read beside them.

Histograms are dicts of integers in units of 2^-50. Shared with the package are the plan's public
numbers, the run key and the keyed functions; limiting, ordering, pouring, rerouting, noise and cells
are written here a second time, with exact integers and fractions (ℓ2-descent: floats, operation by
operation, as its result is defined by them).

Source: Gopi et al. 2020, Algorithms 1, 2, 3, 5; for "mad" and "mad2r" `set_union.rerouting`.
"""

import math
from fractions import Fraction

import mpmath
import numpy as np

from beam_dpne.mechanism.randomness import RunKey, encrypt_blocks, keyed_bits, keyed_hashes
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.set_union.policies import DESCENT_POLICIES
from beam_dpne.set_union.rounds import UnionRound
from beam_dpne.set_union.transform import run_context

ONE = 2**50
UNIT = 2**18  # 2^-32
Items = dict[str, int]
Name = tuple[int, int]


def private_set_union(
    documents: dict[str, list[list[str]]], plan: SetUnionPlan, run_key: RunKey
) -> dict[str, float]:
    """Algorithm 1, once for each round: returns the released items with their scores."""
    run_key = run_key.bound_to(run_context(plan, "tokens"))
    users: dict[Name, Items] = {}
    for user, texts in documents.items():
        held: Items = {}
        for item in (item for text in texts for item in text):
            held[item] = held.get(item, 0) + 1
        if held:
            users[hash_of(user, "user", run_key)] = held
    released: dict[str, float] = {}
    biases: dict[str, int] = {}
    for decider in plan.union_rounds:
        histogram = histogram_of(users, plan, run_key, decider, biases)
        still_open = set()
        for item in {item for held in users.values() for item in held}:
            weight = histogram.get(item, 0)
            c = cell(weight, noise(item, run_key, decider), decider)
            if c >= 0 and weight > 0:
                released[item] = score(c, decider)
            elif decider.cut is None or c >= cut_cell(decider):
                still_open.add(item)
                if plan.policy == "mad2r" and decider.cut is not None:
                    biases[item] = bias(score(c, decider), decider, plan.union_rounds[1])
        users = {
            user: {item: count for item, count in held.items() if item in still_open}
            for user, held in users.items()
        }
    return released


def histogram_of(
    users, plan: SetUnionPlan, run_key: RunKey, decider: UnionRound, biases: dict[str, int]
) -> dict[str, int]:
    """Algorithm 2: the histogram after all users, in units of 2^-50."""
    limited = {
        user: limit(user, held, plan, run_key, decider.number) for user, held in users.items()
    }
    if plan.policy in ("mad", "mad2r"):
        held_by = {user: set(held) for user, held in limited.items()}
        return rerouted(held_by, plan, decider, biases)
    total: dict[str, int] = {}
    if plan.policy not in DESCENT_POLICIES:
        for held in limited.values():
            for item in held:
                total[item] = total.get(item, 0) + share(len(held), plan.policy)
        return total
    cutoff = math.floor(Fraction(decider.cutoff) * ONE) // plan.shard_count
    shards: dict[int, dict[str, int]] = {}
    draws = {
        user: two(encrypt_blocks(run_key.sub_key("user order"), block(user))) for user in limited
    }
    for user in sorted(limited, key=lambda user: draws[user]):
        shard = shards.setdefault(draws[user][1] % plan.shard_count, {})
        pour(shard, limited[user], cutoff, plan.policy, run_key)
    for shard in shards.values():
        for item, weight in shard.items():
            total[item] = total.get(item, 0) + weight
    return total


def limit(user: Name, held: Items, plan: SetUnionPlan, run_key: RunKey, number: int) -> Items:
    """Δ_0 items: those with the least draws; greedy: the most frequent, then the least draws."""
    sub_key = run_key.sub_key("item subset", 0, number)

    def draw(item: str) -> tuple[int, int]:
        first = np.uint64(hash_of(item, "word", run_key)[0])
        bits = int(keyed_bits(sub_key, np.uint64(user[0]), first)[0, 0])
        return (-held[item], bits >> 24) if plan.policy == "greedy" else (0, bits)

    kept = sorted(held, key=draw)[: min(plan.max_contributions, plan.max_items_per_user)]
    return {item: held[item] for item in kept}


def share(count: int, policy: str) -> int:
    """What each of `count` items gets, rounded down to 2^-32."""
    if policy.startswith("count"):
        return ONE
    if policy == "weighted_laplace":
        return 2**32 // count * UNIT
    return math.isqrt(2**64 // count) * UNIT


def pour(histogram: dict[str, int], held: Items, cutoff: int, policy: str, run_key: RunKey) -> None:
    """Algorithms 3 and 5, and greedy: one user's update."""
    order = sorted(held, key=lambda item: hash_of(item, "word", run_key))
    for item in order:
        histogram.setdefault(item, 0)
    if policy == "policy_laplace":
        fill_evenly(histogram, order, cutoff)
    elif policy == "greedy":
        fill_in_order(histogram, sorted(order, key=lambda item: -held[item]), cutoff)
    else:
        descend(histogram, order, cutoff)


def fill_evenly(histogram: dict[str, int], order: list[str], cutoff: int) -> None:
    """Algorithm 3 by its sorted gaps; the units left over go to the first in order."""
    budget = ONE
    gaps = {item: cutoff - histogram[item] for item in order if histogram[item] < cutoff}
    while gaps and min(gaps.values()) * len(gaps) <= budget:
        least = min(gaps.values())
        budget -= least * len(gaps)
        for item in gaps:
            histogram[item] += least
        gaps = {item: gap - least for item, gap in gaps.items() if gap > least}
    for place, item in enumerate(gaps):
        histogram[item] += budget // len(gaps) + (place < budget % len(gaps))


def fill_in_order(histogram: dict[str, int], order: list[str], cutoff: int) -> None:
    """Greedy: a unit for each, then all that fits for one after the other."""
    budget = ONE
    room = [item for item in order if histogram[item] < cutoff]
    for item in room:
        histogram[item] += 1
    budget -= len(room)
    for item in room:
        step = min(budget, cutoff - histogram[item])
        histogram[item] += step
        budget -= step


def descend(histogram: dict[str, int], order: list[str], cutoff: int) -> None:
    """Algorithm 5: towards (Γ, …, Γ) by 1 in ℓ2."""
    gaps = [cutoff - histogram[item] for item in order]
    total = 0.0
    for gap in gaps:
        total += (gap * 2.0**-50) ** 2
    z = math.sqrt(total)
    for item, gap in zip(order, gaps, strict=True):
        histogram[item] += gap if z <= 1 else min(gap, math.floor(float(gap) / z))


def bias(scored: float, decider: UnionRound, following: UnionRound) -> int:
    """min(1, max(1/8, ρ_2/(Y + σ_1))) in units of 2^-16."""
    enough = following.threshold / (scored + decider.noise.scale)
    return math.floor(min(1.0, max(1 / 8, enough)) * 2**16)


def rerouted(
    users: dict[Name, set[str]], plan: SetUnionPlan, decider: UnionRound, biases: dict[str, int]
) -> dict[str, int]:
    """MAD in exact fractions, up to the rounding of each user's rerouted share."""
    tau = math.floor(Fraction(decider.cutoff) * 2**32)
    w_init, total = exact_mad(users, tau, plan.max_adaptive_degree, biases=biases)
    return {item: math.floor((min(w_init.get(item, 0), tau) + rest) * UNIT) for item, rest in total}


def own_weights(held: set[str], biases: dict[str, int]) -> dict[str, int]:
    """b/√(Σ b²) in units of 2^-32, rounded down; floats where there are biases, in this order."""
    if not biases:
        return {item: math.isqrt(2**64 // len(held)) for item in held}
    root = math.sqrt(sum(biases[item] ** 2 for item in held))
    return {item: math.floor(biases[item] * 2**32 / root * (1 - 2.0**-50)) for item in held}


def exact_mad(
    users, tau: int, d_max: int, wrong: bool = False, biases: dict[str, int] | None = None
):
    """Returns (w_init in units of 2^-32, [(item, everything but min(w_init, τ))]), exact but for κ.

    `wrong` is the tempting discount e_u/d_max.
    """
    biases = biases or {}
    adaptive = {user: held for user, held in users.items() if 1 < len(held) <= d_max}
    plain = {item for held in users.values() for item in held if biases.get(item, 2**16) == 2**16}
    w_init: dict[str, int] = {}
    for held in adaptive.values():
        for item in held & plain:
            w_init[item] = w_init.get(item, 0) + 2**32 // len(held)
    r = {item: max(Fraction(0), 1 - Fraction(tau, w)) for item, w in w_init.items()}
    rest: dict[str, Fraction] = {}
    c = 1 / math.sqrt(d_max) - 1 / (2 * d_max)
    for user, held in users.items():
        d = len(held)
        weights = own_weights(held, biases)
        extra = Fraction(0)
        if user in adaptive:
            e = Fraction(2**32 // d) * sum(r[item] for item in held & plain)
            kappa = Fraction(min(1.0, math.sqrt(d) * c))
            extra = (e / d_max if wrong else kappa * e / d) - 2**32 // d
        for item in held:
            rest[item] = rest.get(item, Fraction(0)) + weights[item] + (item in plain) * extra
    return w_init, list(rest.items())


def noise(item: str, run_key: RunKey, decider: UnionRound) -> mpmath.mpf:
    """Keyed noise of an item in a round, in units of its scale."""
    sub_key = run_key.sub_key("item noise", 0, decider.number)
    first, last = two(encrypt_blocks(sub_key, block(hash_of(item, "word", run_key))))
    with mpmath.workdps(60):
        u = mpmath.mpf(((first << 64) | last) | 1) / 2**128
        sign = -1 if last & 1 else 1
        if decider.noise.kind == "laplace":
            return sign * -mpmath.log(u)
        return sign * mpmath.sqrt(2) * mpmath.erfinv(1 - u)


def cell(weight: int, drawn: mpmath.mpf, decider: UnionRound) -> int:
    """The cell of weight + noise, counted from ρ, in 64ths of the standard deviation."""
    with mpmath.workdps(60):
        noisy = mpmath.mpf(weight) / UNIT + drawn * mpmath.mpf(decider.noise.scale) * 2**32
        return int(mpmath.ceil((noisy - threshold(decider)) / width(decider))) - 1


def score(c: int, decider: UnionRound) -> float:
    """The middle of a cell, in units of weight."""
    return float(Fraction(2 * threshold(decider) + (2 * c + 1) * width(decider), 2**33))


def cut_cell(decider: UnionRound) -> int:
    """The lowest cell that stays open."""
    return math.ceil((decider.cut * 2**32 - threshold(decider)) / width(decider))


def threshold(decider: UnionRound) -> int:
    return math.ceil(Fraction(decider.threshold) * 2**32) + 2


def width(decider: UnionRound) -> int:
    return max(1, round(decider.noise.stddev * 2**32 / 64))


def hash_of(text: str, purpose: str, run_key: RunKey) -> Name:
    return two(keyed_hashes(run_key.sub_key(purpose), [text.encode()]))


def block(name: Name) -> np.ndarray:
    return np.array([name], dtype=np.uint64)


def two(bits: np.ndarray) -> Name:
    return int(bits[0, 0]), int(bits[0, 1])
