"""The set union through Beam, its functions chained in memory, and the plain-Python reference agree.

The same run key, documents and plan go through all three; items and scores must be equal, scores bit
for bit. Items are arbitrary strings.
"""

import dataclasses
import random

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from beam_dpne.documents.blocks import encode_documents, hash_users, lay_out_positions
from beam_dpne.documents.run_keys import key_context
from beam_dpne.elements import encoding
from beam_dpne.elements.batches import DocumentBlock
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.set_union import elements, weights
from beam_dpne.set_union.elements import ItemSet, ItemSums
from beam_dpne.set_union.in_memory import release_items
from beam_dpne.set_union.plan import POLICIES, SetUnionPlan
from beam_dpne.set_union.steps import PrivateSetUnion
from tests.oracle.set_union import private_set_union

KEY = RunKey(b"set union".ljust(32, b"."))
ODD = ["", " ", "a b", "\t", "\\", "é", "e\u0301", "🙂", "\0", "x" * 3000, "A", "a", "\uffff"]
Documents = dict[str, list[list[str]]]


def documents_of(seed: int, users: int = 60) -> Documents:
    """Items of falling popularity, odd strings among them; users without any, and with many."""
    rng = random.Random(seed)
    items = [*ODD, *(f"item {i}" for i in range(60))]
    return {
        f"user {u}": [
            [
                items[min(int(rng.paretovariate(0.6)) - 1, rng.randrange(len(items)))]
                for _ in range(n)
            ]
            for n in rng.choices([0, 1, 3, 9, 25], k=rng.randrange(4))
        ]
        for u in range(users)
    }


def plan_of(policy: str, **others) -> SetUnionPlan:
    """Enough budget to release something of a small crowd, and to leave something out."""
    given = {"epsilon": 5.0, "delta": 0.02, "max_contributions": 6, "max_users": 1000, **others}
    given.setdefault("max_shard_users", -(-given["max_users"] // 2))
    return SetUnionPlan(policy=policy, **given)


def as_batches(documents: Documents, rng: random.Random) -> list[pa.RecordBatch]:
    """The documents in random order, in batches of random sizes."""
    rows = [(user, text) for user, texts in documents.items() for text in texts]
    rng.shuffle(rows)
    cut = []
    while rows:
        size = rng.choice([1, 7, 1000])
        columns = [
            pa.array([user for user, _ in rows[:size]], pa.string()),
            pa.array([text for _, text in rows[:size]], pa.list_(pa.string())),
        ]
        cut.append(pa.RecordBatch.from_arrays(columns, names=["user", "text"]))
        rows = rows[size:]
    return cut


_collected: list[ItemSet] = []


def _collect(released: ItemSet) -> None:
    _collected.append(released)


def run_beam(elements, plan, *, partitions=3, repeats=0, tokenizer="tokens") -> dict[str, float]:
    """Runs the pipeline; repeated bundles must repeat their results."""
    _collected.clear()
    with beam.Pipeline(runner=FnApiRunner(bundle_repeat=repeats)) as pipeline:
        union = (
            pipeline
            | beam.Create(elements, reshuffle=False)
            | PrivateSetUnion(plan=plan, partitions=partitions, run_key=KEY, tokenizer=tokenizer)
        )
        _ = union.released | beam.Map(_collect)
    first = as_dict(_collected[0])
    assert all(as_dict(other) == first for other in _collected)
    assert all(users_in(other) == users_in(_collected[0]) for other in _collected)
    return first


def as_dict(released: ItemSet) -> dict[str, float]:
    items = released.items.to_pylist()
    assert items == sorted(items, key=str.encode)
    assert len(set(items)) == len(items)
    return dict(zip(items, released.scores.tolist(), strict=True))


def users_in(released: ItemSet) -> list[list[int]] | None:
    """The numbers of users, if the run measured them."""
    if released.users is None:
        return None
    assert released.users.shape == (len(released), 3)
    return released.users.tolist()


def users_in_memory(documents: Documents, run_key: RunKey) -> DocumentBlock:
    rows = [(user, text) for user, texts in documents.items() for text in texts]
    users = hash_users(pa.array([user for user, _ in rows], pa.string()), run_key.sub_key("user"))
    texts = pa.array([text for _, text in rows], pa.list_(pa.string()))
    return elements.items_of_users(
        lay_out_positions(encode_documents(users, texts), run_key.sub_key("word"))
    )


def in_memory(documents: Documents, plan: SetUnionPlan) -> ItemSet:
    run_key = KEY.bound_to(key_context(plan, "tokens"))
    return release_items(users_in_memory(documents, run_key), plan, run_key)


def run_in_memory(documents: Documents, plan: SetUnionPlan) -> dict[str, float]:
    return as_dict(in_memory(documents, plan))


@pytest.mark.parametrize("policy", POLICIES)
def test_beam_memory_and_pseudocode_release_the_same(policy):
    documents, plan = documents_of(0), plan_of(policy)
    expected = private_set_union(documents, plan, KEY)
    held = {item for texts in documents.values() for text in texts for item in text}
    assert 3 < len(expected) < len(held) - 3
    assert run_in_memory(documents, plan) == expected
    assert run_beam(as_batches(documents, random.Random(0)), plan, partitions=7) == expected
    assert users_in(_collected[0]) == users_in(in_memory(documents, plan)) is not None
    for seed in (1, 2):
        documents = documents_of(seed)
        assert run_in_memory(documents, plan) == private_set_union(documents, plan, KEY)


@given(
    st.sampled_from(POLICIES),
    st.integers(0, 2**32),
    st.integers(0, 30),
    st.sampled_from([1, 2, 5, 1000]),
    st.sampled_from([0.5, 5.0, 16.0]),
    st.sampled_from([1e-6, 0.02, 0.3]),
    st.integers(1, 4),
)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_memory_releases_what_the_pseudocode_releases(
    policy, seed, users, limit, epsilon, delta, shards
):
    options = {"max_contributions": limit, "max_shard_users": -(-1000 // shards)}
    plan = plan_of(policy, epsilon=epsilon, delta=delta, **options)
    documents = documents_of(seed, users)
    expected = private_set_union(documents, plan, KEY)
    event(f"released: {min(len(expected), 3)}")
    assert run_in_memory(documents, plan) == expected


@pytest.mark.parametrize("policy", ["weighted_gaussian", "screened_gaussian", "sips"])
def test_order_batches_partitions_and_repeated_bundles_do_not_change_the_release(policy):
    documents = documents_of(4, users=80)
    plan = plan_of(policy)
    expected = run_in_memory(documents, plan)
    assert expected
    counted = users_in(in_memory(documents, plan))
    cut = as_batches(documents, random.Random(1))
    assert run_beam(cut, plan, partitions=16, repeats=2) == expected
    assert users_in(_collected[0]) == counted
    pairs = [(user, text) for user, texts in documents.items() for text in texts]
    assert run_beam(pairs, plan, partitions=1) == expected
    assert users_in(_collected[0]) == counted


@pytest.mark.parametrize("policy", ["policy_gaussian", "screened_gaussian"])
def test_elements_cut_small_do_not_change_the_release(policy, monkeypatch):
    documents = documents_of(5, users=80)
    plan = plan_of(policy)
    expected = run_in_memory(documents, plan)
    monkeypatch.setattr(encoding, "MAX_ELEMENT_BYTES", 300)
    assert run_in_memory(documents, plan) == expected
    assert run_beam(as_batches(documents, random.Random(1)), plan) == expected


def test_cut_elements_are_small_and_lose_nothing(monkeypatch):
    items = users_in_memory(documents_of(6, users=200), KEY)
    plan = plan_of("policy_gaussian")
    monkeypatch.setattr(encoding, "MAX_ELEMENT_BYTES", 5000)
    parts = [part for _, part in weights.split_to_shards(items, plan, KEY)]
    assert len(parts) > 3
    assert all(encoding.array_bytes(part) <= 5000 or len(part.users) == 1 for part in parts)
    assert sum(len(part.users) for part in parts) == len(items.users)
    sums = elements.sum_by_item(items, np.ones(items.codes.size, np.int64))
    cut = [part for _, part in elements.cut_by_hash_range(sums, 3)]
    assert all(encoding.array_bytes(part) <= 5000 for part in cut)
    assert sums_of(elements.merge_sums(cut)) == sums_of(sums)


def sums_of(sums: ItemSums) -> dict[str, int]:
    return dict(zip(sums.words.to_pylist(), sums.sums.tolist(), strict=True))


@pytest.mark.parametrize("policy", POLICIES)
def test_one_user_releases_nothing(policy):
    plan = SetUnionPlan(epsilon=1, delta=1e-9, policy=policy)
    assert run_in_memory({"ann": [["alone", "a"]], "bob": [[]]}, plan) == {}


@pytest.mark.parametrize("policy", ["sips", "screened_gaussian"])
def test_one_user_and_nobody_release_nothing_on_beam(policy):
    plan = SetUnionPlan(epsilon=1, delta=1e-9, policy=policy)
    for rows in ([("ann", ["alone", "a"]), ("bob", [])], []):
        assert run_beam(rows, plan) == {}


def test_texts_are_tokenized():
    rows = [(f"u{i}", "Rye bread, tea!") for i in range(300)]
    plan = SetUnionPlan(epsilon=5, delta=1e-9)
    assert set(run_beam(rows, plan, tokenizer="words")) == {"rye", "bread", "tea"}


def test_items_that_all_subsets_missed_are_decided_on_beam_as_in_memory():
    """Most of 300 items have no weight in round 1, and some of those stay open for round 2."""
    rng = random.Random(9)
    documents = {f"u{u}": [[f"i{rng.randrange(300)}" for _ in range(30)]] for u in range(100)}
    plan = plan_of("screened_gaussian", max_contributions=1)
    expected = run_in_memory(documents, plan)
    assert len(expected) > 3
    assert run_beam(as_batches(documents, rng), plan) == expected


def test_a_run_key_is_bound_to_the_plan():
    documents = documents_of(7, users=100)
    one, other = (
        run_in_memory(documents, plan_of("weighted_gaussian", delta=delta))
        for delta in (0.02, 0.0201)
    )
    both = one.keys() & other.keys()
    assert len(both) > 3
    assert all(one[item] != other[item] for item in both)


def test_a_run_key_is_bound_to_every_parameter_and_to_the_tokenizer():
    """One key under two of them would give exact weights away by the difference."""
    plan = plan_of("weighted_gaussian")
    others = [{"epsilon": 5.5}, {"delta": 0.0201}, {"max_contributions": 7}, {"count_share": 0.2}]
    contexts = {
        key_context(dataclasses.replace(plan, **other), "tokens") for other in [{}, *others]
    }
    contexts |= {key_context(plan, name) for name in ("tokens", "words", "whitespace")}
    assert len(contexts) == 1 + len(others) + 2


@pytest.mark.parametrize("partitions", [0, -1])
def test_partitions_are_checked(partitions):
    with pytest.raises(ValueError, match="`partitions` must be an integer of at least 1"):
        PrivateSetUnion(plan=plan_of("weighted_gaussian"), partitions=partitions)
