"""Set union under attack: contraction, sensitivity, items of one user alone, and planted mistakes.

Distances are exact integers in units of 2^-50. Statistical tests use fixed keys, so they always give
the same result; at random keys each of the 60 comparisons with `FALSE_FAILURE` = 1e-6 would fail a
correct program with that probability at most.
"""

import dataclasses
import itertools
import math
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from beam_dpne.mechanism import randomness
from beam_dpne.mechanism.randomness import RunKey, keyed_hashes
from beam_dpne.mechanism.thresholds import (
    descent_rounding,
    greedy_threshold,
    laplace_threshold,
    uneven_threshold,
    vocabulary_threshold,
)
from beam_dpne.set_union import cutoff_policies, rerouting
from beam_dpne.set_union import threshold as item_selection
from beam_dpne.set_union import weights as policies
from beam_dpne.set_union.elements import ItemSums, UserItems
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.set_union.policies import (
    BIAS_UNITS,
    CUTOFF_POLICIES,
    DESCENT_POLICIES,
    LEAST_BIAS,
    POLICIES,
)
from beam_dpne.set_union.rounds import UnionRound
from tests.oracle.set_union import exact_mad

KEY = RunKey(b"privacy of set union".ljust(32, b"."))
ONE = 2**50
FALSE_FAILURE = 1e-6
ALONE_RUNS = 40_000
ATTACK_RUNS = 30_000
LOUD = {
    "epsilon": 30.0,
    "delta": 0.3,
    "max_users": 100,
    "max_shard_users": 100,
    "count_share": 0,
}
Corpus = dict[str, dict[str, int]]

corpora = st.dictionaries(
    st.integers(0, 99).map(str),
    st.dictionaries(st.sampled_from("abcdefghij"), st.integers(1, 9), max_size=8),
    min_size=1,
    max_size=14,
)


def pour(policy: str, histogram: list[int], users: list[list[int]], cutoff: int) -> list[int]:
    """The package's loop from any histogram."""
    after = list(histogram)
    offsets = np.concatenate(([0], np.cumsum([len(user) for user in users]))).astype(int).tolist()
    items = [item for user in users for item in user]
    cutoff_policies._LOOPS[policy](offsets, items, after, cutoff, ONE)
    return after


@st.composite
def situations(draw, ordered: bool):
    """Two histograms (of which one may have to be above), one user after them, and a cutoff."""
    rng = random.Random(draw(st.integers(0, 2**40)))
    cutoff = draw(st.sampled_from([ONE // 3, ONE, 5 * ONE + 12345, 6000 * ONE + 1]))
    size = draw(st.integers(1, 12))
    near = draw(st.booleans())
    lowest = max(0, cutoff - ONE // 2) if near else 0
    first = [rng.choice([rng.randint(lowest, cutoff), cutoff, cutoff - 1]) for _ in range(size)]
    if ordered:
        second = [max(0, weight - rng.choice([0, rng.randint(0, ONE // 4)])) for weight in first]
    else:
        shifts = [rng.choice([0, rng.randint(-ONE // 4, ONE // 4)]) for _ in range(size)]
        second = [min(max(0, w + shift), cutoff) for w, shift in zip(first, shifts, strict=True)]
    user = rng.sample(range(size), rng.randint(1, size))
    return first, second, user, cutoff


@pytest.mark.parametrize("policy", ["policy_laplace", "greedy"])
@given(situations(ordered=True))
@settings(max_examples=250, deadline=None)
def test_pouring_keeps_order_and_never_moves_histograms_apart(policy, situation):
    above, below, user, cutoff = situation
    after = [pour(policy, histogram, [user], cutoff) for histogram in (above, below)]
    assert all(a >= b for a, b in zip(*after, strict=True))
    assert sum(map(int.__sub__, *after)) <= sum(map(int.__sub__, above, below))
    for before, poured in zip((above, below), after, strict=True):
        moved = [a - b for a, b in zip(poured, before, strict=True)]
        assert min(moved) >= 0
        assert sum(moved) == min(ONE, sum(cutoff - before[item] for item in user))


@given(situations(ordered=False))
@settings(max_examples=400, deadline=None)
def test_straight_descent_moves_histograms_apart_by_rounding_at_most(situation):
    first, second, user, cutoff = situation
    after = [pour("policy_gaussian", histogram, [user], cutoff) for histogram in (first, second)]
    allowed = descent_rounding(max_contributions=len(user), max_users=1) / 2 * ONE
    before = root_above(squares(first, second))
    assert squares(*after) <= (before + math.ceil(allowed)) ** 2
    assert squares(first, after[0]) <= (ONE + math.ceil(allowed)) ** 2
    assert max(after[0]) <= cutoff


def test_straight_descent_reaches_its_whole_step_and_its_rounding_is_real():
    """The step is 1 long, and no bound of 0 would do: some pair does move apart."""
    rng = random.Random(5)
    apart = 0
    for _ in range(300):
        cutoff = 9 * ONE
        first = [rng.randrange(cutoff // 2) for _ in range(9)]
        second = [weight + rng.randrange(3) for weight in first]
        user = list(range(9))
        after = [
            pour("policy_gaussian", histogram, [user], cutoff) for histogram in (first, second)
        ]
        apart += squares(*after) > squares(first, second)
        assert squares(first, after[0]) > (ONE - 20) ** 2
    assert apart > 10


@pytest.mark.parametrize("policy", POLICIES)
@given(corpora, st.integers(1, 9), st.integers(1, 3), st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_one_user_moves_a_histogram_by_the_sensitivity_at_most(policy, corpus, limit, shards, seed):
    options = {"shards": shards} if policy in DESCENT_POLICIES else {}
    margin = {"cutoff_margin": 0.1} if policy in CUTOFF_POLICIES else {}
    plan = SetUnionPlan(policy=policy, max_contributions=limit, **LOUD, **options, **margin)
    key = RunKey(seed.to_bytes(32, "little"))
    whole = weights_of(corpus, plan, key)
    for user in corpus:
        rest = {name: held for name, held in corpus.items() if name != user}
        without = weights_of(rest, plan, key)
        assert_within_sensitivity(whole, without, plan)
        new = {item for item in whole if whole[item] > 0} - {
            item for item in without if without[item] > 0
        }
        assert new <= corpus[user].keys()
        assert len(new) <= limit


@pytest.mark.parametrize(
    ("policy", "number"),
    [("screened_gaussian", 2), ("screened_gaussian", 3), ("sips", 2), ("sips", 3), ("mad2r", 2)],
)
@given(corpora, st.integers(1, 9), st.integers(0, 2**32), st.sets(st.sampled_from("abcdefghij")))
@settings(max_examples=50, deadline=None)
def test_later_rounds_move_by_the_sensitivity_at_most_given_what_is_open(
    policy, number, corpus, limit, seed, still_open
):
    plan = SetUnionPlan(policy=policy, max_contributions=limit, **LOUD)
    key = RunKey(seed.to_bytes(32, "little"))
    whole = weights_of(corpus, plan, key, number=number, still_open=still_open)
    assert whole.keys() <= still_open
    for user in corpus:
        rest = {name: held for name, held in corpus.items() if name != user}
        without = weights_of(rest, plan, key, number=number, still_open=still_open)
        assert_within_sensitivity(whole, without, plan)


@given(corpora, st.integers(1, 9), st.integers(0, 2**32), st.sets(st.sampled_from("abcdefghij")))
@settings(max_examples=50, deadline=None)
def test_in_sips_others_do_not_notice_a_user_and_the_user_adds_at_most_one(
    corpus, limit, seed, found
):
    """In each round, whatever was found before: Σ w² ≤ 2^64 over the one user's whole weights."""
    plan = SetUnionPlan(policy="sips", max_contributions=limit, **LOUD)
    key = RunKey(seed.to_bytes(32, "little"))
    users = users_of(corpus)
    left = policies.drop_found(users, pa.array(sorted(found), pa.string()))
    for number in (1, 2, 3):
        whole = exact_sums(left, plan, key, number)
        assert not found & whole.keys()
        for user in corpus:
            others = {name: held for name, held in corpus.items() if name != user}
            rest = policies.drop_found(users_of(others), pa.array(sorted(found), pa.string()))
            without = exact_sums(rest, plan, key, number)
            assert without.keys() <= whole.keys()
            moves = [weight - without.get(item, 0) for item, weight in whole.items()]
            assert len(set(moves) - {0}) <= 1
            assert sum(move**2 for move in moves) <= 2**64


def exact_sums(users: UserItems, plan: SetUnionPlan, key: RunKey, number: int) -> dict[str, int]:
    """A round's histogram in units of 2^-32."""
    sums = policies.histogram(users, plan, key, number)
    return dict(zip(sums.words.to_pylist(), sums.table[:, 0].tolist(), strict=True))


@pytest.mark.parametrize("policy", ["screened_gaussian", "mad2r"])
def test_the_first_round_decides_every_held_item_also_those_outside_all_subsets(policy):
    corpus = {f"u{i}": dict.fromkeys("abcdefgh", 1) for i in range(3)}
    plan = SetUnionPlan(policy=policy, max_contributions=1, **LOUD)
    assert weights_of(corpus, plan, KEY).keys() == set("abcdefgh")
    assert sum(weight > 0 for weight in weights_of(corpus, plan, KEY).values()) <= 3


@given(corpora, st.integers(1, 12), st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_the_weights_of_a_user_under_biases_are_at_most_one_in_exact_integers(corpus, limit, seed):
    """Σ W² ≤ 2^64, and no item of bias 1 gets less than 1/√d but by rounding."""
    plan = SetUnionPlan(policy="mad2r", max_contributions=limit, **LOUD)
    users = biased(users_of(corpus), random.Random(seed))
    users = policies.limit_items(users, plan, RunKey(seed.to_bytes(32, "little")), 2)
    weights = rerouting.biased_weights(users).tolist()
    biases = users.biases[users.items].tolist()
    for start, end in itertools.pairwise(users.offsets.tolist()):
        own = weights[start:end]
        assert sum(weight**2 for weight in own) <= 2**64
        for weight, bias in zip(own, biases[start:end], strict=True):
            assert weight > 0
            if bias == BIAS_UNITS:
                assert (weight + 2) ** 2 * (end - start) >= 2**64


def biased(users: UserItems, rng: random.Random) -> UserItems:
    """The users with some bias for each item, 1 for many of them."""
    some = [LEAST_BIAS * BIAS_UNITS, BIAS_UNITS - 1, rng.randint(2**13, BIAS_UNITS)]
    biases = [int(rng.choice([BIAS_UNITS, BIAS_UNITS, *some])) for _ in range(len(users.words))]
    return dataclasses.replace(users, biases=np.array(biases, np.int64))


def test_a_search_finds_no_biases_under_which_a_user_moves_the_weights_by_more_than_one():
    """Popular items beyond the cutoff, fresh ones, and biases on both; some moves come near 1."""
    rng = random.Random(3)
    worst = 0.0
    for _ in range(150):
        d_max = rng.choice([2, 3, 5, 8])
        popular = [f"p{i}" for i in range(rng.randint(1, 4))]
        users = {
            str(u): dict.fromkeys(
                [rng.choice(popular), *(f"{u} {i}" for i in range(rng.randint(0, d_max - 1)))], 1
            )
            for u in range(rng.choice([5, 40, 150]))
        }
        fresh = [f"new {i}" for i in range(rng.randint(1, d_max))]
        new = [*rng.sample(popular, rng.randint(1, len(popular))), *fresh][:d_max]
        plan = mad_plan(d_max, "mad2r")
        whole = biased(users_of({**users, "new": dict.fromkeys(new, 1)}), rng)
        moved = [biased_histogram(some, plan) for some in (whole, without(whole))]
        worst = max(worst, distance(*moved) / ONE)
    assert 0.99 < worst <= plan.sensitivity


def without(users: UserItems) -> UserItems:
    """All users but the last."""
    return policies._take_users(users, np.arange(len(users.users) - 1))


def biased_histogram(users: UserItems, plan: SetUnionPlan) -> dict[str, int]:
    """The second round's weights in units of 2^-50."""
    sums = policies.histogram(users, plan, KEY, 2)
    whole, fine = item_selection.whole_weights(sums, plan, 2)
    weights = [int(w) * 2**18 + int(f) for w, f in zip(whole, fine, strict=True)]
    return dict(zip(sums.words.to_pylist(), weights, strict=True))


def test_a_biased_user_gives_an_item_more_than_an_even_division_and_the_threshold_covers_it():
    """1/√t is no bound under biases: uneven weights may pass the threshold of even ones."""
    users = users_of({"ann": {"a": 1, "b": 1}})
    users = dataclasses.replace(users, biases=np.array([BIAS_UNITS, BIAS_UNITS // 8]))
    assert rerouting.biased_weights(users)[0] > 0.99 * 2**32
    given = {"noise_stddev": 1.33, "delta": 1e-5, "max_contributions": 100}
    one = 0.97
    divided = np.append(one, np.full(99, math.sqrt((1 - one**2) / 99)))
    chances = [
        float(-np.expm1(np.log1p(-stats.norm.sf((threshold - divided) / 1.33)).sum()))
        for threshold in (vocabulary_threshold(**given), uneven_threshold(**given))
    ]
    assert chances[0] > 1e-5 >= chances[1]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("count", [1, 4, 9])
def test_a_user_alone_reaches_the_sensitivity(policy, count):
    """So that no budget lies idle: with `count` items the whole of it is used, up to rounding."""
    plan = SetUnionPlan(
        policy=policy, max_contributions=count, epsilon=2, delta=1e-3, max_users=100
    )
    items = [f"item {i}" for i in range(count)]
    moves = weights_of({"ann": dict.fromkeys(items, 1)}, plan, KEY)
    assert len(moves) == count
    norm = norm_of(moves.values(), plan)
    assert plan.sensitivity * (1 - 1e-8) < norm <= plan.sensitivity


def test_a_search_breaks_the_tempting_discount_of_mad_and_not_ours():
    """Weight rerouted as e_u/d_max moves by up to 1.06; as κ_u e_u/d_u by 1 at most."""
    rng = random.Random(1)
    worst = {True: 0.0, False: 0.0}
    worst_by_the_package = 0.0
    for _ in range(150):
        d_max = rng.choice([2, 2, 3, 5])
        popular = [f"p{i}" for i in range(rng.randint(1, 3))]
        users = {
            (u, 0): {rng.choice(popular), *(f"{u} {i}" for i in range(rng.randint(0, d_max)))}
            for u in range(rng.choice([5, 40, 150]))
        }
        fresh = {f"new {i}" for i in range(rng.randint(1, d_max))}
        new = {(-1, 0): {*rng.sample(popular, rng.randint(1, len(popular))), *fresh}}
        plan = mad_plan(d_max)
        tau = rerouting.mad_cutoff_units(plan)
        for wrong in (True, False):
            pair = [exact_weights(some, tau, d_max, wrong) for some in ({**users, **new}, users)]
            worst[wrong] = max(worst[wrong], distance(*pair) / 2**32)
        pair = [mad_weights(some, plan, d_max) for some in ({**users, **new}, users)]
        worst_by_the_package = max(worst_by_the_package, distance(*pair) / ONE)
    assert worst[True] > 1.05
    assert 0.9 < worst[False] <= 1 + 1e-9
    assert worst_by_the_package <= plan.sensitivity


def mad_plan(d_max: int, policy: str = "mad") -> SetUnionPlan:
    """d_max = Δ_0 below 50; with so much budget, and no margin, τ is little above 1."""
    budget = {"epsilon": 30.0, "delta": 0.6, "cutoff_margin": 0.0}
    return SetUnionPlan(
        policy=policy, max_contributions=d_max, max_users=1000, count_share=0, **budget
    )


def exact_weights(users, tau: int, d_max: int, wrong: bool) -> dict:
    users = {user: held for user, held in users.items() if len(held) <= d_max}
    w_init, rest = exact_mad(users, tau, d_max, wrong)
    return {item: min(w_init.get(item, 0), tau) + more for item, more in rest}


def mad_weights(users, plan: SetUnionPlan, d_max: int) -> dict[str, int]:
    corpus = {
        str(user): dict.fromkeys(held, 1) for user, held in users.items() if len(held) <= d_max
    }
    return weights_of(corpus, plan, KEY)


def distance(first: dict, second: dict) -> float:
    items = first.keys() | second.keys()
    return math.sqrt(sum((first.get(item, 0) - second.get(item, 0)) ** 2 for item in items))


@pytest.mark.parametrize("policy", POLICIES)
def test_items_of_one_user_alone_are_released_with_probability_delta_at_most(policy):
    """One user with t items, alone, under many keys' noise: at most δ_T, and δ_T at the worst t.

    So the threshold is not too low, nor higher than it must be.
    """
    limit = 20
    plan = SetUnionPlan(
        policy=policy, epsilon=1, delta=1e-2, max_contributions=limit, count_share=0
    )
    shares = [share.delta for share in plan.update_policy.rounds]
    for decider, share in zip(plan.union_rounds, shares, strict=True):
        allowed = plan.vocabulary_delta * share
        worst = worst_number(policy, decider, allowed, limit)
        released = alone_released(plan, worst, ALONE_RUNS, decider.number)
        assert stats.binomtest(released, ALONE_RUNS, allowed).pvalue > FALSE_FAILURE
        for held in {1, 3, limit} - {worst}:
            released = alone_released(plan, held, ALONE_RUNS // 2, decider.number)
            tested = stats.binomtest(released, ALONE_RUNS // 2, allowed, "greater")
            assert tested.pvalue > FALSE_FAILURE


def worst_number(policy: str, decider: UnionRound, allowed: float, limit: int) -> int:
    """The t ≤ Δ at which t items of one user alone need the highest threshold."""
    if policy.startswith("count") or policy == "greedy":
        return limit
    held = np.arange(1, limit + 1)
    tail = 1 - (1 - allowed) ** (1 / held)
    if decider.noise.kind == "laplace":
        needed = 1 / held + decider.noise.scale * stats.laplace.isf(tail)
    else:
        needed = 1 / np.sqrt(held) + decider.noise.scale * stats.norm.isf(tail)
    return int(held[np.argmax(needed)])


def alone_released(plan: SetUnionPlan, held: int, runs: int, number: int) -> int:
    """In how many of `runs` runs any of t items of one user alone is found in a round."""
    items = [f"item {i}" for i in range(held)]
    users = users_of({"ann": dict.fromkeys(items, 1)})
    sums = policies.histogram(users, plan, KEY, number)
    many = ItemSums(
        words=pa.array([f"{i}" for i in range(runs * held)]),
        word_hashes=np.arange(2 * runs * held, dtype=np.uint64).reshape(-1, 2),
        width=sums.width,
        sums=np.tile(sums.sums, runs),
    )
    found = item_selection.decide(many, plan, KEY, number).found.items
    return len({int(name) // held for name in found.to_pylist()})


def test_greedy_as_published_releases_others_items_and_ours_does_not():
    """A user who fills items makes later users' budgets overflow to items that nobody had weighted.

    100 items a_i miss 1/100 of the cutoff, as 100 items c_i miss 99/100. User u fills the a_i. Later
    user i, with items a_i, c_i, b_i in this order, then has 1/100 left for b_i, which else would get
    nothing. Under the published threshold some b_i shows with more than δ: that u was there.
    """
    epsilon, delta, count = 3.0, math.exp(-10), 100
    cutoff = 6 * ONE
    small = ONE // count
    a, c, b = (list(range(k * count, (k + 1) * count)) for k in range(3))
    before = [cutoff - small] * count + [cutoff - (ONE - small)] * count + [0] * count
    later = [list(triple) for triple in zip(a, c, b, strict=True)]
    published = [published_greedy(before, users, cutoff) for users in (later, [a, *later])]
    ours = [pour("greedy", before, users, cutoff) for users in (later, [a, *later])]

    new = [item for item in b if published[0][item] == 0 < published[1][item]]
    assert len(new) == count
    threshold = 1 - math.log(2 * delta) / epsilon
    assert chance_of_any([published[1][i] / ONE for i in new], threshold, epsilon) > 4 * delta
    assert all(ours[0][item] > 0 for item in b)
    assert sum(map(int.__sub__, ours[1], ours[0])) <= ONE

    ours_threshold = greedy_threshold(scale=1 / epsilon, delta=delta, max_contributions=count)
    lying = [1 - (count - 1) / ONE] + [1 / ONE] * (count - 1)
    assert chance_of_any(lying, threshold, epsilon) > 4 * delta
    assert chance_of_any(lying, ours_threshold, epsilon) == pytest.approx(delta, rel=1e-9)


def test_an_uneven_division_can_pass_the_threshold_of_even_ones():
    """Weights .6 and .4 need more than ρ_Lap at Δ = 2, ε = ½; ours for greedy covers them."""
    delta, epsilon = 1e-3, 0.5
    even = laplace_threshold(scale=2.0, delta=delta, max_contributions=2)
    ours = greedy_threshold(scale=2.0, delta=delta, max_contributions=2)
    assert chance_of_any([0.6, 0.4], even, epsilon) > delta
    assert chance_of_any([0.6, 0.4], ours, epsilon) <= delta


def published_greedy(histogram: list[int], users: list[list[int]], cutoff: int) -> list[int]:
    """Fills items in order, without the single units."""
    after = list(histogram)
    for user in users:
        budget = ONE
        for item in user:
            step = min(budget, cutoff - after[item])
            after[item] += step
            budget -= step
    return after


def chance_of_any(weights: list[float], threshold: float, epsilon: float) -> float:
    """P(some weight + Lap(1/ε) > threshold), for weights below the threshold."""
    missed = [math.log1p(-0.5 * math.exp(-epsilon * (threshold - w))) for w in weights]
    return -math.expm1(math.fsum(missed))


@pytest.mark.parametrize("policy", POLICIES)
def test_items_without_weight_are_never_released_whatever_their_noise(policy):
    plan = SetUnionPlan(policy=policy, epsilon=1, delta=0.4, max_contributions=1, count_share=0)
    width = {"mad": 3, "screened_gaussian": 2}.get(policy, 1)
    count = 20_000
    weightless = ItemSums(
        words=pa.array([f"item {i}" for i in range(count)]),
        word_hashes=np.arange(2 * count, dtype=np.uint64).reshape(-1, 2),
        width=width,
        sums=np.zeros(count * width, np.int64),
    )
    table = weightless.table.copy()
    table[::2, 0] = 1
    some = dataclasses.replace(weightless, sums=table.reshape(-1))
    for decider in plan.union_rounds:
        found = item_selection.decide(some, plan, KEY, decider.number).found.items.to_pylist()
        assert found
        assert all(int(name.removeprefix("item ")) % 2 == 0 for name in found)
        assert not len(item_selection.decide(weightless, plan, KEY, decider.number).found)


def test_items_without_weight_stay_open_or_are_closed_by_their_noise_alone():
    """The open set is a function of the noisy histogram, whether or not an item was given weight."""
    plan = SetUnionPlan(
        policy="screened_gaussian", epsilon=1, delta=0.4, max_contributions=1, count_share=0
    )
    first, *_ = plan.union_rounds
    assert first.cut is not None
    count = 20_000
    held = ItemSums(
        words=pa.array([f"item {i}" for i in range(count)]),
        word_hashes=np.arange(2 * count, dtype=np.uint64).reshape(-1, 2),
        width=2,
        sums=np.zeros(2 * count, np.int64),
    )
    decision = item_selection.decide(held, plan, KEY)
    assert not len(decision.found)
    blocks = randomness.encrypt_blocks(KEY.sub_key("item noise", 0, 1), held.word_hashes)
    noise = randomness.normals(blocks) * first.noise.scale
    assert decision.still_open is not None
    stays = set(decision.still_open.words.to_pylist())
    width = first.noise.stddev / 64
    for number, own in enumerate(noise.tolist()):
        if abs(own - first.cut) > width:
            assert (f"item {number}" in stays) == (own > first.cut)
    chance = stats.norm.sf(first.cut / first.noise.stddev)
    assert stats.binomtest(len(stays), count, chance).pvalue > FALSE_FAILURE


def test_biases_are_the_same_for_items_with_and_without_weight():
    """They are a function of the cell of the noisy weight: less for items that have enough."""
    plan = SetUnionPlan(policy="mad2r", epsilon=1, delta=1e-6, max_contributions=5, count_share=0)
    first, second = plan.union_rounds
    count = 4_000
    for weight in (0, 3 * 2**32):
        held = ItemSums(
            words=pa.array([f"item {i}" for i in range(count)]),
            word_hashes=np.arange(2 * count, dtype=np.uint64).reshape(-1, 2),
            width=3,
            sums=np.tile(np.array([weight, 0, 0]), count),
        )
        left = item_selection.decide(held, plan, KEY).still_open
        assert left is not None
        bits = randomness.encrypt_blocks(KEY.sub_key("item noise", 0, 1), left.word_hashes)
        noisy = weight / 2**32 + randomness.normals(bits) * first.noise.scale
        assert (noisy > first.cut - first.noise.stddev / 64).all()
        expected = np.clip(second.threshold / (noisy + first.noise.scale), LEAST_BIAS, 1)
        assert np.abs(left.sums / BIAS_UNITS - expected).max() < 0.02
        assert left.sums.max() == BIAS_UNITS
        assert left.sums.min() < 0.9 * BIAS_UNITS


@pytest.mark.parametrize("shards", [1, 3])
def test_an_item_that_its_holders_subsets_missed_is_decided_before_the_second_round(shards):
    """Of ten items one is drawn; the other nine are closed, or open, by noise too."""
    plan = SetUnionPlan(
        policy="screened_gaussian", max_contributions=1, shards=shards, **{**LOUD, "epsilon": 1.0}
    )
    first, *_ = plan.union_rounds
    opened = 0
    for number in range(60):
        key = RunKey(number.to_bytes(32, "little"))
        users = users_of({"ann": dict.fromkeys("abcdefghij", 1)})
        sums = policies.histogram(users, plan, key)
        weights, _ = item_selection.whole_weights(sums, plan)
        assert len(weights) == 10
        assert np.count_nonzero(weights) == 1
        decision = item_selection.decide(sums, plan, key)
        assert decision.still_open is not None
        weightless = {w for w, own in zip(sums.words.to_pylist(), weights, strict=True) if not own}
        opened += len(weightless & set(decision.still_open.words.to_pylist()))
    chance = stats.norm.sf(first.cut / first.noise.stddev)
    assert stats.binomtest(opened, 60 * 9, chance).pvalue > FALSE_FAILURE


class SameNoise(RunKey):
    """A planted mistake: all rounds draw one noise."""

    def sub_key(self, purpose: str, length: int = 0, round_number: int = 0) -> bytes:
        number = 1 if purpose == "item noise" else round_number
        return super().sub_key(purpose, length, number)


@pytest.mark.parametrize(
    ("policy", "mistake", "caught"),
    [
        ("screened_gaussian", "none", False),
        ("screened_gaussian", "same noise", True),
        ("screened_gaussian", "less noise", True),
        ("sips", "none", False),
        ("mad2r", "none", False),
        ("mad2r", "same noise", True),
    ],
)
def test_an_attack_on_several_rounds_reads_no_more_than_epsilon(policy, mistake, caught):
    """n users hold one item, or n + 1 do; claimed are ε = 1, δ = .01.

    The attack learns on half of the runs which outcomes speak for which world (round and score), and
    bounds ε from below on the other half. A correct program would fail with probability 1e-6 · 4.
    """
    claimed = {"epsilon": 1.0, "delta": 1e-2, "count_share": 0}
    given = {**claimed, "epsilon": 4.0} if mistake == "less noise" else claimed
    shards = 1 if policy == "screened_gaussian" else None
    plan = SetUnionPlan(policy=policy, max_contributions=1, max_users=10**6, shards=shards, **given)
    key = SameNoise(bytes(32)) if mistake == "same noise" else RunKey(bytes(32))
    read = 0.0
    for others in (7, 12):
        with_user, without = (outcomes(count, plan, key) for count in (others + 1, others))
        for pair in ((with_user, without), (without, with_user)):
            read = max(read, epsilon_at_least(*pair, claimed["delta"]))
    assert (read > claimed["epsilon"]) == caught
    assert read > 0.2


def outcomes(count: int, plan: SetUnionPlan, key: RunKey) -> np.ndarray:
    """For each of ATTACK_RUNS runs of `count` users of one item: 0, or its round and score."""
    first = np.uint64(count << 32)
    users = np.arange(2 * count * ATTACK_RUNS, dtype=np.uint64).reshape(-1, 2) + first
    items = UserItems(
        users=users,
        offsets=np.arange(count * ATTACK_RUNS + 1),
        items=np.repeat(np.arange(ATTACK_RUNS, dtype=np.int32), count),
        counts=np.ones(count * ATTACK_RUNS, np.int32),
        words=pa.array([str(run) for run in range(ATTACK_RUNS)]),
        word_hashes=users[:ATTACK_RUNS],
    )
    seen = np.zeros(ATTACK_RUNS)
    for decider in plan.union_rounds:
        sums = policies.histogram(items, plan, key, decider.number)
        decision = item_selection.decide(sums, plan, key, decider.number)
        runs = np.array(decision.found.items.to_pylist(), dtype=int)
        seen[runs] = decision.found.scores + 1000 * decider.number
        if decider.number < len(plan.union_rounds):
            items = item_selection.left_open(items, decision)
    return seen


def epsilon_at_least(likely: np.ndarray, rare: np.ndarray, delta: float) -> float:
    """A lower bound on ε from P(E) ≤ e^ε P'(E) + δ, for the best of 26 events E (Clopper–Pearson)."""
    half = ATTACK_RUNS // 2
    edges = np.unique(
        np.quantile(np.concatenate((likely[:half], rare[:half])), np.linspace(0, 1, 60))
    )
    likely_bins, rare_bins = (np.searchsorted(edges, seen, side="right") for seen in (likely, rare))
    learned = [
        np.bincount(bins[:half], minlength=edges.size + 1) + 0.5
        for bins in (likely_bins, rare_bins)
    ]
    read = 0.0
    cuts = np.exp(np.linspace(-1, 4, 26))
    for cut in cuts:
        event = learned[0] >= cut * learned[1]
        often, seldom = (int(event[bins[half:]].sum()) for bins in (likely_bins, rare_bins))
        least = stats.beta.ppf(FALSE_FAILURE / 52, often, half - often + 1) if often else 0.0
        most = stats.beta.isf(FALSE_FAILURE / 52, seldom + 1, half - seldom) if seldom < half else 1
        if least > delta:
            read = max(read, math.log((least - delta) / most))
    return read


def test_adding_a_user_does_not_reorder_the_others():
    plan = SetUnionPlan(policy="policy_gaussian", max_contributions=3, **LOUD)
    corpus = {f"u{i}": {"a": 1, "b": 2, f"c{i}": 1} for i in range(30)}
    users = users_of(corpus)
    draws = dict(zip(corpus, policies._order_draws(users, KEY)[:, 0].tolist(), strict=True))
    fewer = {name: held for name, held in corpus.items() if name != "u7"}
    again = dict(
        zip(fewer, policies._order_draws(users_of(fewer), KEY)[:, 0].tolist(), strict=True)
    )
    assert again == {name: draw for name, draw in draws.items() if name != "u7"}
    assert plan.shard_count == 1


def users_of(corpus: Corpus) -> UserItems:
    """Users and items by keyed hash, in the order given."""
    names = sorted({item for held in corpus.values() for item in held})
    number = {name: place for place, name in enumerate(names)}
    sizes = [len(held) for held in corpus.values()]
    return UserItems(
        users=keyed_hashes(KEY.sub_key("user"), [user.encode() for user in corpus]),
        offsets=np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        items=np.array([number[i] for held in corpus.values() for i in sorted(held)], np.int32),
        counts=np.array([held[i] for held in corpus.values() for i in sorted(held)], np.int32),
        words=pa.array(names, pa.string()),
        word_hashes=keyed_hashes(KEY.sub_key("word"), [name.encode() for name in names]),
    )


def weights_of(corpus, plan, key, number=1, still_open=None) -> dict[str, int]:
    """A round's histogram by the package, in units of 2^-50."""
    users = users_of(corpus)
    if still_open is not None:
        names = [name for name in users.words.to_pylist() if name in still_open]
        biases = np.array([2**13 + len(name) * ord(name) * 500 for name in names], np.int64)
        hashes = np.zeros((len(names), 2), np.uint64)
        opened = ItemSums(
            words=pa.array(names, pa.string()), word_hashes=hashes, width=1, sums=biases
        )
        users = policies.keep_open(users, opened)
    sums = policies.histogram(users, plan, key, number)
    whole, fine = item_selection.whole_weights(sums, plan, number)
    weights = [int(w) * 2**18 + int(f) for w, f in zip(whole, fine, strict=True)]
    return dict(zip(sums.words.to_pylist(), weights, strict=True))


def assert_within_sensitivity(with_user, without, plan: SetUnionPlan) -> None:
    assert without.keys() <= with_user.keys()
    moves = [weight - without.get(item, 0) for item, weight in with_user.items()]
    allowed = math.ceil(plan.sensitivity * ONE)
    if plan.noise_kind == "laplace":
        assert sum(map(abs, moves)) <= allowed
    else:
        assert sum(move**2 for move in moves) <= allowed**2


def norm_of(moves, plan: SetUnionPlan) -> float:
    if plan.noise_kind == "laplace":
        return sum(map(abs, moves)) / ONE
    return math.sqrt(sum(move**2 for move in moves)) / ONE


def squares(first: list[int], second: list[int]) -> int:
    return sum((a - b) ** 2 for a, b in zip(first, second, strict=True))


def root_above(square: int) -> int:
    root = math.isqrt(square)
    return root + (root**2 < square)
