"""Limits, weights, descent, shards and cells of a set union, in tables."""

import math
import random

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from beam_dpne.elements.batches import DocumentBlock, UserBatch
from beam_dpne.elements.coders import BatchCoder
from beam_dpne.mechanism import randomness, thresholds
from beam_dpne.set_union import elements, weights
from beam_dpne.set_union.elements import ItemSet, ItemSums, merge_sums
from beam_dpne.set_union.plan import DESCENT_POLICIES, SetUnionPlan
from tests.set_union.users import (
    FALSE_FAILURE,
    KEY,
    ONE,
    held_by,
    round_histogram,
    sums_of,
    users_of,
)

# From (2, 0) one step of length 1 towards (5, 5).
AHEAD, ASIDE = (gap / math.hypot(3, 5) * ONE for gap in (3, 5))


def plan_of(policy: str, limit: int = 100, **others) -> SetUnionPlan:
    given = {"epsilon": 3.0, "delta": math.exp(-10), "max_users": 1000, **others}
    return SetUnionPlan(policy=policy, max_contributions=limit, **given)


def test_items_of_users_are_distinct():
    batch = UserBatch(
        length=0,
        size=3,
        users=np.array([[1, 2], [3, 4], [5, 6]], np.uint64),
        offsets=np.array([0, 6, 7, 9]),
        ids=np.array([2, 0, 2, -1, 2, -1, -1, 1, -1], np.int32),
        words=pa.array(["a", "b", "c"]),
        word_hashes=np.zeros((3, 2), np.uint64),
    )
    assert held_by(elements.items_of_users(batch)) == [{"a", "c"}, set(), {"b"}]


def test_users_keep_uniform_subsets_of_max_contributions_which_differ_between_rounds():
    users = users_of({f"u{number}": set("abcdef") for number in range(3000)})
    plan = plan_of("screened_gaussian", 2)
    first, second = (
        [tuple(sorted(m)) for m in held_by(weights.limit_items(users, plan, KEY, number))]
        for number in (1, 2)
    )
    _, counts = np.unique(first, axis=0, return_counts=True)
    assert len(counts) == 15
    assert stats.chisquare(counts).pvalue > FALSE_FAILURE
    assert sum(map(tuple.__eq__, first, second)) < 400
    few = users_of({"a": set("ab"), "b": set()})
    assert held_by(weights.limit_items(few, plan, KEY)) == [{"a", "b"}, set()]


def test_even_weights_are_rounded_down():
    users = users_of({"a": {"x"}, "b": set("xyz"), "c": set()})
    third = math.isqrt(2**64 // 3)
    assert sums_of(weights.weigh_items(users, plan_of("weighted_gaussian"))) == {
        "x": 2**32 + third,
        "y": third,
        "z": third,
    }
    with pytest.raises(ValueError, match="policy_gaussian"):
        weights.weigh_items(users, plan_of("policy_gaussian"))


@pytest.mark.parametrize(
    ("users", "cutoff", "expected"),
    [
        ([[0, 1, 2, 3]], 5 * ONE, [ONE // 2] * 4),
        ([[0]] * 9, 5 * ONE, [5 * ONE, 0]),
        ([[0]] * 2 + [[0, 1]], 5 * ONE, [2 * ONE + AHEAD, ASIDE]),
        ([[0, 1], [0, 1]], ONE // 2, [ONE // 2, ONE // 2]),
    ],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_descent_in_a_table(users, cutoff, expected, compiled):
    assert descend(users, len(expected), cutoff, compiled) == pytest.approx(expected, abs=20)


def descend(users, size, cutoff, compiled) -> list[int]:
    offsets = np.cumsum([0, *(len(user) for user in users)])
    items = np.array([item for user in users for item in user], np.int64)
    return weights.descend(offsets, items, size=size, cutoff=cutoff, compiled=compiled).tolist()


@pytest.mark.parametrize("cutoff", [ONE // 5, 3 * ONE + 7, 6000 * ONE + 1])
def test_compiled_and_plain_loops_agree_bit_for_bit(cutoff, monkeypatch):
    rng = random.Random(cutoff)
    users = [rng.sample(range(300), rng.choice([0, 1, 2, 17, 60])) for _ in range(800)]
    plain = descend(users, 300, cutoff, compiled=False)
    assert plain == descend(users, 300, cutoff, compiled=True)
    monkeypatch.setattr(weights, "_USERS_AT_ONCE", 7)
    assert plain == descend(users, 300, cutoff, compiled=False)
    assert max(plain) <= cutoff


def test_the_loop_over_many_items_is_compiled_and_over_few_it_is_not(monkeypatch):
    users = [[0, 1, 2], [1, 2]]
    before = weights._compiled_once.cache_info()
    plain = descend(users, 3, 5 * ONE, compiled=None)
    assert weights._compiled_once.cache_info() == before
    monkeypatch.setattr(weights, "_WORTH_COMPILING", 5)
    assert descend(users, 3, 5 * ONE, compiled=None) == plain
    assert weights._compiled_once.cache_info() != before


def test_the_compiled_loop_neither_fuses_nor_reorders_float_operations():
    import numba

    loop = numba.njit(fastmath=False)(weights._descend_straight)
    array = np.zeros(1, np.int64)
    loop(array, array, array, ONE, ONE)
    (code,) = loop.inspect_asm().values()
    assert "sqrtsd" in code or "fsqrt" in code
    assert not any(fused in code for fused in ("vfmadd", "vfnmadd", "vfmsub", "fmadd", "fmla"))


def test_shards_divide_users_and_run_on_their_own():
    rng = random.Random(3)
    users = users_of({str(u): {f"i{rng.randrange(40)}" for _ in range(6)} for u in range(300)})
    plan = plan_of("policy_gaussian", max_shard_users=334)
    parts = list(weights.split_to_shards(users, plan, KEY))
    sizes = [sum(len(part.users) for number, part in parts if number == n) for n in range(3)]
    assert sum(sizes) == 300
    assert min(sizes) > 60
    most = max(sums_of(round_histogram(users, plan, KEY)).values())
    assert most == 3 * (int(plan.union_rounds[-1].cutoff * ONE) // 3)


@pytest.mark.parametrize("policy", DESCENT_POLICIES)
def test_a_shard_is_a_function_of_its_users_in_whatever_order_batches_are_joined(policy):
    """Else who else is there would decide in which order users come, and which items are first."""
    rng = random.Random(4)
    users = users_of({str(u): {f"i{rng.randrange(12)}" for _ in range(5)} for u in range(60)})
    plan = plan_of(policy, cutoff_margin=0.0)
    parts = [users.take(np.array([one])) for one in range(60)]
    found = []
    for _ in range(3):
        found.append(sums_of(weights.run_shard(parts, plan, KEY)))
        rng.shuffle(parts)
    assert found[0] == found[1] == found[2]


def test_a_round_leaves_open_items_and_drops_users_without_any():
    users = users_of({"1": {"a", "b"}, "2": {"c"}, "3": set(), "4": {"b", "c"}})
    kept = elements.left_open(users, pa.array(["b", "x"]), is_open=True)
    assert (held_by(kept), kept.words.to_pylist()) == ([{"b"}, {"b"}], ["b"])
    left = elements.left_open(users, pa.array(["c", "x"]), is_open=False)
    assert held_by(left) == [{"a", "b"}, {"b"}]
    none = pa.array([], pa.string())
    assert held_by(elements.left_open(users, none, is_open=True)) == []
    assert held_by(elements.left_open(users, none, is_open=False)) == [
        {"a", "b"},
        {"c"},
        {"b", "c"},
    ]
    assert held_by(DocumentBlock.joined([kept, left])) == [{"b"}, {"b"}, {"a", "b"}, {"b"}]


def test_cells_are_the_places_of_noisy_weights_above_the_threshold():
    only = plan_of("policy_gaussian").union_rounds[0]
    rule = only.evidence
    bits = randomness.encrypt_blocks(bytes(32), np.arange(4000, dtype=np.uint64).reshape(-1, 2))
    whole = (np.linspace(0, 12, 2000) * 2**32).astype(np.int64)
    fractions = np.arange(2000) * 131
    noisy = whole + fractions / 2**18 + randomness.normals(bits) * only.noise_stddev * 2**32
    noise = thresholds.evidence_noise([bits], rule, only.noise_stddev)
    cells = thresholds.noisy_cells([whole], noise, rule, fractions=fractions / 2**18)
    ends = np.full(2, rule.threshold_units)
    fine = np.array([0, 2.0**-18])
    assert thresholds.noisy_cells([ends], 0 * fine, rule, fractions=fine).tolist() == [-1, 0]
    expected = np.ceil((noisy - rule.threshold_units) / rule.cell_units) - 1
    assert np.mean(cells == expected) > 0.999
    assert np.array_equal(cells >= 0, noisy > rule.threshold_units)
    scores = thresholds.middles(cells, rule.threshold_units, rule.cell_units)
    assert np.abs(scores * 2**32 - noisy).max() <= rule.cell_units / 2 * (1 + 1e-6)


def test_a_cut_is_a_border_of_cells_and_a_threshold_covers_a_weight_rounded_up():
    first, _, last = plan_of("screened_gaussian").union_rounds
    cells = first.evidence
    lower = cells.threshold_units + first.cut_cell * cells.cell_units
    assert 0 <= lower - first.cut * 2**32 < cells.cell_units
    assert last.cut_cell is None
    assert last.evidence.threshold_units >= last.threshold * 2**32 + 1


@pytest.mark.parametrize(
    ("coder", "value"),
    [
        (BatchCoder(DocumentBlock), users_of({"1": {"a", "é"}, "2": set(), "3": {"a"}})),
        (BatchCoder(ItemSums), weights.present_items(users_of({"1": {"a", ""}}))),
        (BatchCoder(ItemSums), merge_sums([])),
        (
            BatchCoder(ItemSet),
            ItemSet(items=pa.array(["a"]), scores=np.ones(1)),
        ),
        (BatchCoder(ItemSet), ItemSet(items=pa.array([], pa.string()), scores=np.zeros(0))),
    ],
)
def test_coders_give_back_what_they_got(coder, value):
    again = coder.decode(coder.encode(value))
    for name, given in vars(value).items():
        got = getattr(again, name)
        if isinstance(given, np.ndarray):
            assert (got.shape, got.dtype) == (given.shape, given.dtype)
            assert np.array_equal(got, given)
        else:
            assert got == given
