"""Set union in plain Python: the papers' algorithms one user at a time, to be read beside them.

Histograms are dicts of integers in units of 2^-50. Shared with the package are the plan's public
numbers, the run key and the keyed functions; limiting, ordering, descent, noise and cells are written
here a second time, with exact integers and fractions (descent: floats, operation by operation, as its
result is defined by them).

Source: Gopi et al. 2020, Algorithms 1, 2 and 5.
"""

import math
import statistics
from fractions import Fraction

import mpmath
import numpy as np

from beam_dpne.documents.run_keys import key_context
from beam_dpne.mechanism.randomness import RunKey, encrypt_blocks, keyed_bits, keyed_hashes
from beam_dpne.set_union.plan import DESCENT_POLICIES, ROUNDS, SetUnionPlan, UnionRound

ONE = 2**50
UNIT = 2**18  # 2^-32
Items = set[str]
Name = tuple[int, int]


def private_set_union(
    documents: dict[str, list[list[str]]],
    plan: SetUnionPlan,
    run_key: RunKey,
    known: frozenset[str] = frozenset(),
    public: str = "",
) -> dict[str, float]:
    """Algorithm 1, once for each round: returns the released items with their scores.

    Known items are decided whether or not anybody has them; `public` is the digest of their list.
    """
    run_key = run_key.bound_to(key_context(plan, "tokens", public=public))
    users: dict[Name, Items] = {}
    for user, texts in documents.items():
        held = {item for text in texts for item in text}
        if held:
            users[hash_of(user, "user", run_key)] = held
    released: dict[str, float] = {}
    listed, lows = set(known), []
    for decider in plan.union_rounds:
        histogram = histogram_of(users, plan, run_key, decider)
        of_known = known_round(plan, len(known), lows)
        still_open, low = set(), 0
        for item in listed.union(*users.values()):
            weight, own = histogram.get(item, 0), of_known if item in known else decider
            c = cell(weight, noise(item, run_key, decider), own)
            low += item in known and c < cut_cell(own)
            if c >= 0 and (weight > 0 or item in known):
                released[item] = score(c, own)
            elif decider.cut is None or c >= cut_cell(own):
                still_open.add(item)
        users = {user: held & still_open for user, held in users.items()}
        listed, lows = listed & still_open, [*lows, low]
    return released


def known_round(plan: SetUnionPlan, size: int, lows: list[int]) -> UnionRound:
    """The rule of known items: a spurious one is tolerated, or one for each 100 that users have."""
    decider, normal = plan.union_rounds[len(lows)], statistics.NormalDist()
    unheld, tolerated, above = size, min(1, size / 100), normal.cdf(0.35)
    if lows:
        held = size - (lows[0] + math.sqrt(size)) / (1 - above)
        tolerated = max(tolerated, held / 100)
        unheld = (lows[-1] + 1) / (1 - above)
        unheld *= 1 if plan.union_rounds[len(lows) - 1].cut is None else above
    chance = min(0.35, ROUNDS[plan.policy][len(lows)].delta * tolerated / max(unheld, 1))
    rho = decider.noise_stddev * -normal.inv_cdf(chance) if size else decider.threshold
    return decider._replace(threshold=rho, cut=-0.35 * decider.noise_stddev)


def histogram_of(users, plan: SetUnionPlan, run_key: RunKey, decider: UnionRound) -> dict[str, int]:
    """Algorithm 2: the histogram after all users, in units of 2^-50."""
    limited = {
        user: limit(user, held, plan, run_key, decider.round) for user, held in users.items()
    }
    total: dict[str, int] = {}
    if plan.policy not in DESCENT_POLICIES:
        for held in limited.values():
            for item in held:
                total[item] = total.get(item, 0) + math.isqrt(2**64 // len(held)) * UNIT
        return total
    cutoff = math.floor(Fraction(decider.cutoff) * ONE) // plan.shard_count
    shards: dict[int, dict[str, int]] = {}
    draws = {
        user: two(encrypt_blocks(run_key.sub_key("user order"), block(user))) for user in limited
    }
    for user in sorted(limited, key=lambda user: draws[user]):
        shard = shards.setdefault(draws[user][1] % plan.shard_count, {})
        descend(shard, sorted(limited[user], key=lambda i: hash_of(i, "word", run_key)), cutoff)
    for shard in shards.values():
        for item, weight in shard.items():
            total[item] = total.get(item, 0) + weight
    return total


def limit(user: Name, held: Items, plan: SetUnionPlan, run_key: RunKey, number: int) -> Items:
    """Δ_0 items: those with the least draws."""
    sub_key = run_key.sub_key("item subset", 0, number)

    def draw(item: str) -> int:
        first = np.uint64(hash_of(item, "word", run_key)[0])
        return int(keyed_bits(sub_key, np.uint64(user[0]), first)[0, 0])

    return set(sorted(held, key=draw)[: min(plan.max_contributions, plan.max_items_per_user)])


def descend(histogram: dict[str, int], order: list[str], cutoff: int) -> None:
    """Algorithm 5: towards (Γ, …, Γ) by 1 in ℓ2."""
    gaps = [cutoff - histogram.setdefault(item, 0) for item in order]
    total = 0.0
    for gap in gaps:
        total += (gap * 2.0**-50) ** 2
    z = math.sqrt(total)
    for item, gap in zip(order, gaps, strict=True):
        histogram[item] += gap if z <= 1 else min(gap, math.floor(float(gap) / z))


def noise(item: str, run_key: RunKey, decider: UnionRound) -> mpmath.mpf:
    """Keyed noise of an item in a round, in standard deviations."""
    sub_key = run_key.sub_key("item noise", 0, decider.round)
    first, last = two(encrypt_blocks(sub_key, block(hash_of(item, "word", run_key))))
    with mpmath.workdps(60):
        u = mpmath.mpf(((first << 64) | last) | 1) / 2**128
        sign = -1 if last & 1 else 1
        return sign * mpmath.sqrt(2) * mpmath.erfinv(1 - u)


def cell(weight: int, drawn: mpmath.mpf, decider: UnionRound) -> int:
    """The cell of weight + noise, counted from ρ, in 64ths of the standard deviation."""
    with mpmath.workdps(60):
        noisy = mpmath.mpf(weight) / UNIT + drawn * mpmath.mpf(decider.noise_stddev) * 2**32
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
    return max(1, round(decider.noise_stddev * 2**32 / 64))


def hash_of(text: str, purpose: str, run_key: RunKey) -> Name:
    return two(keyed_hashes(run_key.sub_key(purpose), [text.encode()]))


def block(name: Name) -> np.ndarray:
    return np.array([name], dtype=np.uint64)


def two(bits: np.ndarray) -> Name:
    return int(bits[0, 0]), int(bits[0, 1])
