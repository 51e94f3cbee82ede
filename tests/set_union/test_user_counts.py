"""Numbers of users of released items: whom they count, one user's part in them, and the estimates."""

import collections
import dataclasses
import functools
import math
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from beam_dpne import RunKey, SetUnionPlan
from beam_dpne.counts.measuring import estimated, split_sums, sum_batches, sum_counts
from beam_dpne.counts.rule import count_rule
from beam_dpne.elements.batches import DocumentBlock, UserBatch
from beam_dpne.set_union.decisions import ItemRows, held_items
from beam_dpne.set_union.elements import ItemSet, item_table, items_of_users
from beam_dpne.set_union.in_memory import release_items
from beam_dpne.set_union.plan import DESCENT_POLICIES, POLICIES
from tests.set_union.test_transform import KEY, documents_of, in_memory, plan_of, users_in_memory

WORDS = [f"w{number}" for number in range(12)]


@st.composite
def crowds(draw):
    """Users as lists of items with repetitions, and released items, some of which nobody has."""
    users = draw(st.lists(st.lists(st.sampled_from(WORDS), max_size=20), min_size=1, max_size=8))
    released = sorted(draw(st.sets(st.sampled_from([*WORDS, "nobody's"]), min_size=1)))
    scores = draw(
        st.lists(st.floats(-1, 1e6), min_size=len(released), max_size=len(released)).map(np.array)
    )
    return users, ItemSet(items=pa.array(released), scores=scores)


def batch_of(users: list[list[str]]) -> UserBatch:
    """Positions of length 0 in two documents of each user."""
    words = sorted({word for held in users for word in held} | {"unused"})
    codes = {word: code for code, word in enumerate(words)}
    ids = [
        [*map(codes.__getitem__, held[::2]), -1, *map(codes.__getitem__, held[1::2]), -1]
        for held in users
    ]
    numbers = np.arange(2 * len(users), dtype=np.uint64).reshape(-1, 2)
    return UserBatch(
        length=0,
        size=len(words),
        users=numbers,
        offsets=np.cumsum([0, *map(len, ids)]),
        ids=np.array([code for each in ids for code in each], np.int32),
        words=pa.array(words),
        word_hashes=np.arange(2 * len(words), dtype=np.uint64).reshape(-1, 2),
    )


def sums_of(users: list[list[str]], released: ItemSet):
    """The sums before noise of all rows and groups, by the functions of the pass."""
    rule = count_rule([released.scores])
    held = [ItemRows().held(batch_of(users), [released])] if users else []
    return split_sums([sum_counts(each, rule) for each in held], rule)


@given(crowds(), st.integers(0, 7))
@settings(max_examples=80, deadline=None)
def test_one_user_moves_the_sums_by_vectors_of_length_one_in_exact_integers(crowd, place):
    users, released = crowd
    place %= len(users)
    whole = sums_of(users, released)
    without = sums_of([*users[:place], *users[place + 1 :]], released)
    moved = [one - other for one, other in zip(whole, without, strict=True)]
    assert sum(value**2 for each in moved for value in each.reshape(-1).tolist()) <= 2**64
    numbers, masses, sizes = moved
    known = set(released.items.to_pylist()) & set(users[place])
    event(f"rows of the user: {len(known)}")
    # All released items of the user have a part, however many there are.
    assert np.flatnonzero(masses).size == len(known)
    assert np.flatnonzero(numbers.any(axis=1)).size == len(known)
    assert sizes.any() == bool(known)


@given(crowds())
@settings(max_examples=40, deadline=None)
def test_held_items_are_those_of_a_plain_search_and_batches_do_not_matter(crowd):
    users, released = crowd
    items = items_of_users(batch_of(users))
    held = held_items(items, released)
    names = released.items.to_pylist()
    for number, words in enumerate(users):
        rows = held.rows[held.offsets[number] : held.offsets[number + 1]].tolist()
        assert rows == sorted(names.index(word) for word in set(words) & set(names))
    apart = [items_of_users(batch_of([words])) for words in users]
    plan = SetUnionPlan(epsilon=3, delta=1e-6)
    rows = ItemRows()
    counted = [
        estimated(
            released,
            [sum_batches(rows, batches, [released])],
            rows=rows,
            noise=plan.count_noise,
            run_key=KEY,
        )[0].users
        for batches in ([items], apart, [batch_of(users)], [DocumentBlock.joined(apart)])
    ]
    assert all(np.array_equal(counted[0], other) for other in counted[1:])


def test_items_that_an_element_repeats_count_once():
    """No element repeats an item of a user; if one did, the user's part would still be bounded."""
    items = DocumentBlock(
        users=np.zeros((1, 2), np.uint64),
        offsets=np.array([0, 3]),
        codes=np.array([0, 0, 1]),
        words=pa.array(["a", "b"]),
        word_hashes=np.eye(2, dtype=np.uint64),
    )
    held = held_items(items, ItemSet(items=pa.array(["a", "b"]), scores=np.ones(2)))
    assert (held.offsets.tolist(), held.rows.tolist()) == ([0, 2], [0, 1])


@pytest.mark.parametrize("policy", POLICIES)
def test_the_items_are_those_of_the_same_noise_without_counts(policy):
    """Counting changes nothing but the noise of the items, and what it adds comes after them."""
    documents, plan = documents_of(3), plan_of(policy)
    run_key = KEY.bound_to("the same in both")
    items = users_in_memory(documents, run_key)
    counted = release_items(items, plan, run_key)
    # The same rounds under a plan that counts nothing.
    same = dataclasses.replace(plan, count_share=0)
    object.__setattr__(same, "union_rounds", plan.union_rounds)
    without = release_items(items, same, run_key)
    assert without.users is None
    assert counted.items.equals(without.items)
    assert np.array_equal(counted.scores, without.scores)
    assert counted.users.shape == (len(without), 3) != (0, 3)


def test_users_are_all_who_have_an_item_also_beyond_what_they_may_contribute():
    documents = {f"u{user}": [[f"i{user % 40}", "the"], ["the", "of"]] for user in range(400)}
    plan = SetUnionPlan(
        epsilon=30, delta=0.02, policy="weighted_gaussian", max_contributions=1, count_share=0.9
    )
    released = in_memory(documents, plan)
    counted = dict(zip(released.items.to_pylist(), released.users.tolist(), strict=True))
    assert {"the", "of"} <= counted.keys()
    for word in ("the", "of"):
        users, low, high = counted[word]
        assert low <= users <= high
        assert users == pytest.approx(400, rel=0.1)
    (table,) = [item_table([released])]
    assert table.column("users").to_pylist() == sorted(released.users[:, 0].tolist(), reverse=True)


@functools.cache
def crowd_of_words(users: int) -> tuple[DocumentBlock, dict[str, int]]:
    """Users with heavy-tailed numbers of words by Zipf's law, and how many have each word."""
    chance = random.Random(11)
    words = [f"word{number}" for number in range(2000)]
    weights = [1 / (number + 5) for number in range(2000)]
    documents = {
        f"u{user}": [chance.choices(words, weights, k=min(int(5 * chance.paretovariate(1.2)), 800))]
        for user in range(users)
    }
    true = collections.Counter(word for (texts,) in documents.values() for word in set(texts))
    return users_in_memory(documents, KEY), true


@pytest.mark.parametrize("policy", POLICIES)
def test_intervals_contain_the_numbers_under_every_policy(policy):
    items, true = crowd_of_words(6000)
    given = {"epsilon": 4, "delta": 1e-6, "policy": policy, "max_contributions": 30}
    promise = {"max_users": 10**5} if policy in DESCENT_POLICIES else {}
    inside, ranks, loss = [], [], []
    for seed in range(3):
        key = RunKey(bytes([seed] * 32))
        released = release_items(items, SetUnionPlan(**given, **promise), key)
        plain = release_items(items, SetUnionPlan(**given, **promise, count_share=0), key)
        users = np.array([true[item] for item in released.items.to_pylist()])
        low, high = released.users[:, 1], released.users[:, 2]
        inside.append(np.mean((low <= users) & (users <= high)))
        ranks.append(spearmanr(released.users[:, 0], users)[0])
        loss.append(1 - len(released) / len(plain))
    assert np.mean(inside) > 0.85
    assert min(ranks) > 0.85
    assert np.mean(loss) < 0.15


@pytest.mark.parametrize("policy", POLICIES)
def test_each_number_that_a_user_changes_pays_for_floating_point_and_far_tails(policy):
    """Beside those on items: three sums of each item of the user, and the sizes of two classes."""
    common = {"epsilon": 2.0, "delta": 1e-6, "policy": policy, "max_items_per_user": 10**6}
    plan, without = (SetUnionPlan(**common, **share) for share in ({}, {"count_share": 0}))
    changed = 3 * 10**6 + 2
    assert (plan.count_decisions, without.count_decisions) == (changed, 0)
    assert plan.numerical_slack - without.numerical_slack == pytest.approx(2e-12 * changed)
    # A draw in the far tails has a probability of 4e-26, in each of the two worlds.
    lost = 4e-26 * changed * (1 + math.exp(2.0))
    far = (each.far_tails - 3e-12 * each.delta for each in (plan, without))
    assert next(far) - next(far) == pytest.approx(lost, rel=0.02)
