"""One user moves a set union by the sensitivity at most, and shows alone with probability δ_T at most.

Distances are exact integers in units of 2^-50.
"""

import math
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from beam_dpne.mechanism import randomness
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.thresholds import descent_rounding
from beam_dpne.set_union import decisions, elements, weights
from beam_dpne.set_union.plan import DESCENT_POLICIES, POLICIES, ROUNDS, SetUnionPlan
from tests.set_union.users import (
    FALSE_FAILURE,
    KEY,
    ONE,
    held_by,
    many_items,
    round_histogram,
    users_of,
    weights_of,
)

RUNS = 20_000
LOUD = {"epsilon": 30.0, "delta": 0.3, "max_users": 100, "count_share": 0}

corpora = st.dictionaries(
    st.integers(0, 99).map(str),
    st.sets(st.sampled_from("abcdefghij"), max_size=8),
    min_size=1,
    max_size=14,
)


@st.composite
def situations(draw):
    """Two histograms, one user after them, and a cutoff."""
    rng = random.Random(draw(st.integers(0, 2**40)))
    cutoff = draw(st.sampled_from([ONE // 3, ONE, 5 * ONE + 12345, 6000 * ONE + 1]))
    size = draw(st.integers(1, 12))
    lowest = max(0, cutoff - ONE // 2) if draw(st.booleans()) else 0
    first = [rng.choice([rng.randint(lowest, cutoff), cutoff, cutoff - 1]) for _ in range(size)]
    most = draw(st.sampled_from([3, ONE // 4]))
    shifts = [rng.choice([0, rng.randint(-most, most)]) for _ in range(size)]
    second = [min(max(0, w + shift), cutoff) for w, shift in zip(first, shifts, strict=True)]
    return first, second, rng.sample(range(size), rng.randint(1, size)), cutoff


def squares(first: list[int], second: list[int]) -> int:
    return sum((a - b) ** 2 for a, b in zip(first, second, strict=True))


@given(situations())
@settings(max_examples=400, deadline=None)
def test_descent_moves_histograms_apart_by_rounding_at_most(situation):
    first, second, user, cutoff = situation
    after = [list(first), list(second)]
    for histogram in after:
        weights._descend_straight([0, len(user)], user, histogram, cutoff, ONE)
    allowed = math.ceil(descent_rounding(max_contributions=len(user), max_users=1) / 2 * ONE)
    before = math.isqrt(squares(first, second)) + 1
    assert squares(*after) <= (before + allowed) ** 2
    assert squares(first, after[0]) <= (ONE + allowed) ** 2
    assert max(after[0]) <= cutoff


def test_the_rounding_of_descent_is_real():
    """No bound of 0 would do: some pair does move apart."""
    rng, apart = random.Random(5), 0
    for _ in range(300):
        first = [rng.randrange(4 * ONE) for _ in range(9)]
        second = [weight + rng.randrange(3) for weight in first]
        after = [list(first), list(second)]
        for histogram in after:
            weights._descend_straight([0, 9], list(range(9)), histogram, 9 * ONE, ONE)
        apart += squares(*after) > squares(first, second)
        assert squares(first, after[0]) > (ONE - 20) ** 2
    assert apart > 10


@pytest.mark.parametrize("policy", POLICIES)
@given(
    corpora,
    st.integers(1, 9),
    st.integers(1, 3),
    st.integers(0, 2**32),
    st.sets(st.sampled_from("abcdefghij")),
)
@settings(max_examples=40, deadline=None)
def test_one_user_moves_each_round_by_the_sensitivity_at_most_given_the_past(
    policy, corpus, limit, shards, seed, past
):
    """In whatever set of items earlier rounds have left open; new items are the user's own."""
    options = {"cutoff_margin": 0.1} if policy in DESCENT_POLICIES else {}
    options["max_shard_users"] = -(-LOUD["max_users"] // shards)
    plan = SetUnionPlan(policy=policy, max_contributions=limit, **LOUD, **options)
    key = RunKey(seed.to_bytes(32, "little"))
    for number in range(1, len(plan.union_rounds) + 1):
        closed = past if number > 1 else set()
        left = {user: held - closed for user, held in corpus.items() if held - closed}
        whole = weights_of(left, plan, key, number)
        for user, held in left.items():
            others = {name: own for name, own in left.items() if name != user}
            without = weights_of(others, plan, key, number)
            assert without.keys() <= whole.keys()
            moves = [weight - without.get(item, 0) for item, weight in whole.items()]
            assert sum(move**2 for move in moves) <= math.ceil(plan.sensitivity * ONE) ** 2
            new = {i for i in whole if whole[i] > 0} - {i for i in without if without[i] > 0}
            assert new <= held
            assert len(new) <= limit


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("count", [1, 4, 9])
def test_a_user_alone_reaches_the_sensitivity(policy, count):
    """So that no budget lies idle."""
    plan = SetUnionPlan(
        policy=policy, max_contributions=count, epsilon=2, delta=1e-3, max_users=100
    )
    moves = weights_of({"ann": {f"item {i}" for i in range(count)}}, plan, KEY)
    norm = math.sqrt(sum(move**2 for move in moves.values())) / ONE
    assert plan.sensitivity * (1 - 1e-8) < norm <= plan.sensitivity


@pytest.mark.parametrize("policy", POLICIES)
def test_items_of_one_user_alone_are_released_with_probability_delta_at_most(policy):
    """One user with t items, alone, under many keys' noise: at most δ_T, and δ_T at the worst t."""
    limit = 20
    plan = SetUnionPlan(
        policy=policy, epsilon=1, delta=1e-2, max_contributions=limit, count_share=0
    )
    shares = [share.delta for share in ROUNDS[policy]]
    held = np.arange(1, limit + 1)
    for decider, share in zip(plan.union_rounds, shares, strict=True):
        allowed = plan.vocabulary_delta * share
        tails = 1 - (1 - allowed) ** (1 / held)
        needed = 1 / np.sqrt(held) + decider.noise_stddev * stats.norm.isf(tails)
        worst = int(held[np.argmax(needed)])
        for number in {1, 3, limit, worst}:
            user = users_of({"ann": {f"item {i}" for i in range(number)}})
            (weight,) = set(round_histogram(user, plan, KEY, decider.round).sums.tolist())
            many = many_items(RUNS * number, weight)
            found = decisions.decide(many, plan, KEY, decider.round).found.items.to_pylist()
            released = len({int(name) // number for name in found})
            side = "two-sided" if number == worst else "greater"
            assert stats.binomtest(released, RUNS, allowed, side).pvalue > FALSE_FAILURE


@pytest.mark.parametrize("policy", POLICIES)
def test_items_without_weight_are_never_released_whatever_their_noise(policy):
    plan = SetUnionPlan(policy=policy, epsilon=1, delta=0.4, max_contributions=1, count_share=0)
    for decider in plan.union_rounds:
        assert len(decisions.decide(many_items(RUNS, 1), plan, KEY, decider.round).found)
        assert not len(decisions.decide(many_items(RUNS), plan, KEY, decider.round).found)


def test_items_without_weight_stay_open_or_are_closed_by_their_noise_alone():
    """The open set is a function of the noisy histogram, whether or not an item was given weight."""
    plan = SetUnionPlan(
        policy="screened_gaussian", epsilon=1, delta=0.4, max_contributions=1, count_share=0
    )
    first, *_ = plan.union_rounds
    held = many_items(RUNS)
    decision = decisions.decide(held, plan, KEY)
    assert not len(decision.found)
    blocks = randomness.encrypt_blocks(KEY.sub_key("item noise", 0, 1), held.word_hashes)
    noise = randomness.normals(blocks) * first.noise_stddev
    stays = set(decision.still_open.to_pylist())
    for number, own in enumerate(noise.tolist()):
        if abs(own - first.cut) > first.noise_stddev / 64:
            assert (str(number) in stays) == (own > first.cut)


def test_every_held_item_is_decided_also_one_that_all_subsets_missed():
    corpus = {f"u{i}": set("abcdefgh") for i in range(3)}
    plan = SetUnionPlan(policy="screened_gaussian", max_contributions=1, **LOUD)
    found = weights_of(corpus, plan, KEY)
    assert found.keys() == set("abcdefgh")
    assert sum(weight > 0 for weight in found.values()) <= 3


def test_each_round_has_noise_of_its_own():
    """With one noise for all rounds, what an earlier round has shown would be known of a later one."""
    plan = SetUnionPlan(policy="sips", epsilon=1, delta=0.4, max_contributions=1, count_share=0)
    found = [
        set(decisions.decide(many_items(RUNS, 1), plan, KEY, number).found.items.to_pylist())
        for number in (1, 2, 3)
    ]
    chance = len(found[0]) * len(found[1]) / RUNS**2
    assert stats.binomtest(len(found[0] & found[1]), RUNS, chance).pvalue > FALSE_FAILURE
    assert found[1] != found[2]


def test_adding_a_user_does_not_reorder_the_others():
    corpus = {f"u{i}": {"a", "b", f"c{i}"} for i in range(30)}
    fewer = {name: held for name, held in corpus.items() if name != "u7"}
    draws, again = (
        dict(zip(some, weights._order_draws(users_of(some), KEY)[:, 0].tolist(), strict=True))
        for some in (corpus, fewer)
    )
    assert again == {name: draw for name, draw in draws.items() if name != "u7"}


def test_later_rounds_of_sips_are_about_what_was_not_found():
    users = users_of({"ann": {"a", "b"}, "bob": {"a"}})
    left = elements.left_open(users, pa.array(["a"]), is_open=False)
    assert held_by(left) == [{"b"}]
