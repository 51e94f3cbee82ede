"""The policies' functions in tables: limits, weights, pouring, rerouting, cells, noise, coders."""

import math
import random
from fractions import Fraction

import mpmath
import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from beam_dpne.elements.batches import UserBatch
from beam_dpne.elements.coders import BatchCoder
from beam_dpne.mechanism import randomness
from beam_dpne.mechanism.randomness import RunKey, keyed_hashes
from beam_dpne.set_union import cutoff_policies, rerouting
from beam_dpne.set_union import threshold as item_selection
from beam_dpne.set_union import weights as policies
from beam_dpne.set_union.elements import (
    ItemSet,
    ItemSums,
    UserItems,
    merge_sums,
)
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.set_union.policies import DESCENT_POLICIES
from beam_dpne.set_union.rounds import Noise, UnionRound
from beam_dpne.set_union.threshold import item_rule

KEY = RunKey(b"policies".ljust(32, b"."))
ONE = 2**50
FALSE_FAILURE = 1e-6
# From (2, 0) one step of length 1 towards (5, 5).
AHEAD, ASIDE = (gap / math.hypot(3, 5) * ONE for gap in (3, 5))


def users_of(*users: dict[str, int]) -> UserItems:
    """Users numbered from 0, with counts of their items."""
    names = sorted({item for held in users for item in held})
    number = {name: place for place, name in enumerate(names)}
    entries = [(number[item], held[item]) for held in users for item in sorted(held)]
    return UserItems(
        users=keyed_hashes(KEY.sub_key("user"), [b"%d" % u for u in range(len(users))]),
        offsets=np.concatenate(([0], np.cumsum([len(held) for held in users]))).astype(np.int64),
        items=np.array([item for item, _ in entries], np.int32),
        counts=np.array([count for _, count in entries], np.int32),
        words=pa.array(names, pa.string()),
        word_hashes=keyed_hashes(KEY.sub_key("word"), [name.encode() for name in names]),
    )


def held_by(items: UserItems) -> list[dict[str, int]]:
    """Inverse of `users_of`."""
    names = items.words.to_pylist()
    return [
        {
            names[item]: int(count)
            for item, count in zip(items.items[a:b], items.counts[a:b], strict=True)
        }
        for a, b in zip(items.offsets[:-1], items.offsets[1:], strict=True)
    ]


def plan_of(policy: str, limit: int = 100, **others) -> SetUnionPlan:
    given = {"epsilon": 3.0, "delta": math.exp(-10), "max_users": 1000, **others}
    return SetUnionPlan(policy=policy, max_contributions=limit, **given)


def test_items_of_users_are_distinct_with_their_counts():
    batch = UserBatch(
        length=0,
        size=3,
        users=np.array([[1, 2], [3, 4], [5, 6]], np.uint64),
        offsets=np.array([0, 6, 7, 9]),
        ids=np.array([2, 0, 2, -1, 2, -1, -1, 1, -1], np.int32),
        words=pa.array(["a", "b", "c"]),
        word_hashes=np.zeros((3, 2), np.uint64),
    )
    assert held_by(policies.items_of_users(batch)) == [{"a": 1, "c": 3}, {}, {"b": 1}]


@pytest.mark.parametrize("policy", ["weighted_gaussian", "greedy"])
def test_each_user_keeps_at_most_max_contributions(policy):
    rng = random.Random(1)
    users = [
        {f"i{i}": rng.randint(1, 9) for i in rng.sample(range(50), rng.choice([0, 1, 4, 5, 30]))}
        for _ in range(60)
    ]
    kept = held_by(policies.limit_items(users_of(*users), plan_of(policy, 4), KEY))
    for held, mine in zip(users, kept, strict=True):
        assert mine.items() <= held.items()
        assert len(mine) == min(4, len(held))
        if policy == "greedy" and mine:
            left = held.keys() - mine.keys()
            assert all(held[item] <= min(mine.values()) for item in left)


def test_subsets_are_uniform_and_differ_between_rounds():
    users = users_of(*[dict.fromkeys("abcdef", 1)] * 3000)
    plan = plan_of("screened_gaussian", 2)
    first, second = (
        [tuple(sorted(m)) for m in held_by(policies.limit_items(users, plan, KEY, number))]
        for number in (1, 2)
    )
    _, counts = np.unique(first, axis=0, return_counts=True)
    assert len(counts) == 15
    assert stats.chisquare(counts).pvalue > FALSE_FAILURE
    assert sum(map(tuple.__eq__, first, second)) < 400


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("count_laplace", {"a": 2 * 2**32, "b": 2**32, "c": 2**32}),
        ("count_gaussian", {"a": 2 * 2**32, "b": 2**32, "c": 2**32}),
        ("weighted_laplace", {"a": 2**32 + 2**32 // 3, "b": 2**32 // 3, "c": 2**32 // 3}),
        (
            "weighted_gaussian",
            {"a": 2**32 + math.isqrt(2**64 // 3), **dict.fromkeys("bc", math.isqrt(2**64 // 3))},
        ),
    ],
)
def test_weights_of_policies_that_look_at_the_user_only(policy, expected):
    sums = policies.weigh_items(users_of({"a": 5}, {"a": 1, "b": 1, "c": 7}, {}), plan_of(policy))
    assert dict(zip(sums.words.to_pylist(), sums.sums.tolist(), strict=True)) == expected


def test_weigh_items_refuses_other_policies():
    with pytest.raises(ValueError, match="mad"):
        policies.weigh_items(users_of({"a": 1}), plan_of("mad"))


@pytest.mark.parametrize(
    ("policy", "users", "cutoff", "expected"),
    [
        ("policy_laplace", [[0, 1, 2]], 5 * ONE, [ONE // 3 + 1, ONE // 3, ONE // 3]),
        ("policy_laplace", [[0]] * 9, 5 * ONE, [5 * ONE, 0, 0]),
        ("policy_laplace", [[0], [0, 1]], ONE + 10, [ONE + 10, ONE - 10, 0]),
        ("policy_laplace", [[0], [0], [0, 2, 1]], 2 * ONE, [2 * ONE, ONE // 2, ONE // 2]),
        ("policy_laplace", [[0, 1, 2], [0, 1, 2]], ONE // 2, [ONE // 2] * 3),
        ("greedy", [[2, 0]], 5 * ONE, [1, 0, ONE - 1]),
        ("greedy", [[2, 0, 1]], ONE // 2, [ONE // 2 - 1, 1, ONE // 2]),
        ("greedy", [[0]] * 3 + [[0, 1]], 2 * ONE, [2 * ONE, ONE, 0]),
        ("policy_gaussian", [[0, 1, 2, 3]], 5 * ONE, [ONE // 2] * 4),
        ("policy_gaussian", [[0]] * 9, 5 * ONE, [5 * ONE, 0]),
        ("policy_gaussian", [[0]] * 2 + [[0, 1]], 5 * ONE, [2 * ONE + AHEAD, ASIDE]),
        ("policy_gaussian", [[0, 1], [0, 1]], ONE // 2, [ONE // 2, ONE // 2]),
    ],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_pouring_in_a_table(policy, users, cutoff, expected, compiled):
    poured = descend(policy, users, len(expected), cutoff, compiled)
    if policy == "policy_gaussian":
        assert poured == pytest.approx(expected, abs=20)
    else:
        assert poured == expected


def descend(policy, users, size, cutoff, compiled) -> list[int]:
    offsets = np.concatenate(([0], np.cumsum([len(user) for user in users]))).astype(np.int64)
    items = np.array([item for user in users for item in user], np.int64)
    return cutoff_policies.descend(
        policy, offsets, items, size=size, cutoff=cutoff, compiled=compiled
    ).tolist()


@pytest.mark.parametrize("policy", ["policy_laplace", "policy_gaussian", "greedy"])
@pytest.mark.parametrize("cutoff", [ONE // 5, 3 * ONE + 7, 6000 * ONE + 1])
def test_compiled_and_plain_loops_agree_bit_for_bit(policy, cutoff, monkeypatch):
    rng = random.Random(cutoff)
    users = [rng.sample(range(300), rng.choice([0, 1, 2, 17, 60])) for _ in range(800)]
    plain = descend(policy, users, 300, cutoff, compiled=False)
    assert plain == descend(policy, users, 300, cutoff, compiled=True)
    monkeypatch.setattr(cutoff_policies, "_USERS_AT_ONCE", 7)
    assert plain == descend(policy, users, 300, cutoff, compiled=False)
    assert max(plain) <= cutoff


def test_the_compiled_loop_neither_fuses_nor_reorders_float_operations():
    import numba

    loop = numba.njit(fastmath=False)(cutoff_policies._descend_straight)
    array = np.zeros(1, np.int64)
    loop(array, array, array, ONE, ONE)
    (code,) = loop.inspect_asm().values()
    assert "sqrtsd" in code or "fsqrt" in code
    assert not any(fused in code for fused in ("vfmadd", "vfnmadd", "vfmsub", "fmadd", "fmla"))
    (intermediate,) = loop.inspect_llvm().values()
    assert "fmul fast" not in intermediate
    assert "fadd fast" not in intermediate


def test_shards_divide_users_and_run_on_their_own():
    rng = random.Random(3)
    users = users_of(*({f"i{rng.randrange(40)}": 1 for _ in range(6)} for _ in range(300)))
    plan = plan_of("policy_gaussian", shards=3)
    parts = list(policies.split_to_shards(users, plan, KEY))
    sizes = [sum(len(part.users) for number, part in parts if number == n) for n in range(3)]
    assert sum(sizes) == 300
    assert min(sizes) > 60
    sums = policies.histogram(users, plan, KEY)
    whole, fine = item_selection.whole_weights(sums, plan)
    most = max(w * 2**18 + f for w, f in zip(whole.tolist(), fine.tolist(), strict=True))
    assert most == 3 * (int(plan.cutoff * ONE) // 3)


@pytest.mark.parametrize("policy", DESCENT_POLICIES)
def test_a_shard_is_a_function_of_its_users_in_whatever_order_batches_are_joined(policy):
    """Else who else is there would decide in which order users come, and which items are first."""
    rng = random.Random(4)
    held = [{f"i{rng.randrange(12)}": rng.randint(1, 2) for _ in range(5)} for _ in range(60)]
    users = users_of(*held)
    plan = plan_of(policy, shards=1, cutoff_margin=0.0)
    parts = [policies._take_users(users, np.array([one])) for one in range(60)]
    found = []
    for _ in range(3):
        sums = policies.run_shard(parts, plan, KEY)
        rows = zip(sums.words.to_pylist(), sums.table.tolist(), strict=True)
        found.append({word: tuple(weights) for word, weights in rows})
        rng.shuffle(parts)
    assert found[0] == found[1] == found[2]


def test_keep_open_drops_the_rest_and_users_without_any():
    users = users_of({"a": 1, "b": 2}, {"c": 1}, {}, {"b": 3})
    names = pa.array(["b", "x"])
    hashes = np.zeros((2, 2), np.uint64)
    still_open = ItemSums(words=names, word_hashes=hashes, width=1, sums=np.array([7, 9]))
    kept = policies.keep_open(users, still_open)
    assert held_by(kept) == [{"b": 2}, {"b": 3}]
    assert kept.words.to_pylist() == ["b"]
    assert kept.biases.tolist() == [7]
    again = policies.join_items(
        [kept, policies.keep_open(users_of({"a": 1}, {"x": 2}), still_open)]
    )
    assert dict(zip(again.words.to_pylist(), again.biases.tolist(), strict=True)) == {
        "b": 7,
        "x": 9,
    }
    none = policies.keep_open(users, merge_sums([]))
    assert held_by(none) == []


def test_found_items_are_dropped_with_users_who_have_no_others():
    users = users_of({"a": 1, "b": 2}, {"c": 1}, {}, {"b": 3, "c": 2})
    left = policies.drop_found(users, pa.array(["c", "x"]))
    assert held_by(left) == [{"a": 1, "b": 2}, {"b": 3}]
    assert left.words.to_pylist() == ["a", "b"]
    assert held_by(policies.drop_found(users, pa.array([], pa.string()))) == [
        {"a": 1, "b": 2},
        {"c": 1},
        {"b": 3, "c": 2},
    ]


def test_present_items_are_all_items_at_weight_zero():
    sums = policies.present_items(users_of({"a": 1, "b": 2}, {"c": 1}), width=2)
    assert sums.words.to_pylist() == ["a", "b", "c"]
    assert sums.table.tolist() == [[0, 0]] * 3


def test_joined_batches_hold_the_same_users():
    first, second = users_of({"a": 1, "b": 2}), users_of({"b": 7}, {"c": 1, "a": 4})
    joined = policies.join_items([first, second])
    assert held_by(joined) == [{"a": 1, "b": 2}, {"b": 7}, {"a": 4, "c": 1}]


def test_rerouting_gives_excess_back_to_those_it_came_from():
    """200 users hold x beside an item of their own: nearly all of x's weight is in excess."""
    plan = plan_of("mad", 2, epsilon=30.0, delta=0.3)
    users = users_of(*({"x": 1, f"y{i}": 1} for i in range(200)), *[{f"z{i}": 1 for i in range(9)}])
    limited = policies.limit_items(users, plan, KEY)
    shares = rerouting.excess_shares(rerouting.first_weights(limited, plan), plan)
    assert shares.words.to_pylist() == ["x"]
    assert shares.sums[0] / ONE == pytest.approx(1 - plan.cutoff / 100, abs=1e-9)
    sums = rerouting.rerouted_weights(limited, shares, plan)
    whole, fine = item_selection.whole_weights(sums, plan)
    weights = dict(zip(sums.words.to_pylist(), whole / 2**32 + fine / ONE, strict=True))
    discount = math.sqrt(2) * (1 / math.sqrt(2) - 1 / 4)
    rerouted = discount * (1 - plan.cutoff / 100) / 4
    assert weights["y3"] == pytest.approx(1 / math.sqrt(2) + rerouted, abs=1e-8)
    extra = 200 * (1 / math.sqrt(2) - 0.5 + rerouted)
    assert weights["x"] == pytest.approx(plan.cutoff + extra, abs=1e-6)


def test_only_users_with_few_items_give_to_the_first_pass():
    """Whose weight is given back at the rate that the bound allows for at most d_max items."""
    sizes = [1, 2, 50, 51, 60]
    users = users_of(*({f"{size} {i}": 1 for i in range(size)} for size in sizes))
    sums = rerouting.first_weights(users, plan_of("mad", limit=60))
    given = dict(zip(sums.words.to_pylist(), sums.table[:, 0].tolist(), strict=True))
    assert [given[f"{size} 0"] for size in sizes] == [0, 2**31, 2**32 // 50, 0, 0]


def test_sums_of_rerouted_weight_do_not_overflow():
    """Finer columns carry into coarse ones exactly, also far beyond 2^63 units of 2^-50."""
    plan = plan_of("mad")
    sums = ItemSums(
        words=pa.array(["a"]),
        word_hashes=np.zeros((1, 2), np.uint64),
        width=3,
        sums=np.array([2**60, 2**45 + 5, 2**61]),
    )
    whole, fine = item_selection.whole_weights(sums, plan)
    assert whole.tolist() == [2**60 + 2**27 + rerouting.mad_cutoff_units(plan)]
    assert fine.tolist() == [5]


@pytest.mark.parametrize("policy", ["weighted_laplace", "weighted_gaussian"])
def test_cells_are_the_places_of_noisy_weights_above_the_threshold(policy):
    rule = item_rule(plan_of(policy).union_rounds[0])
    bits = randomness.encrypt_blocks(bytes(32), np.arange(4000, dtype=np.uint64).reshape(-1, 2))
    draw = randomness.laplaces if policy == "weighted_laplace" else randomness.normals
    weights = np.linspace(0, 12, 2000) * 2**32
    fractions = np.arange(2000) * 131
    noisy = weights.astype(np.int64) + fractions / 2**18 + draw(bits) * rule.scale * 2**32
    cells = item_selection.noisy_cells(weights.astype(np.int64), fractions, bits, rule)
    expected = np.ceil((noisy - rule.threshold_units) / rule.cell_units) - 1
    assert np.mean(cells == expected) > 0.999
    assert np.array_equal(cells >= 0, noisy > rule.threshold_units)
    scores = item_selection.scores(cells, rule)
    assert np.abs(scores * 2**32 - noisy).max() <= rule.cell_units / 2 * (1 + 1e-6)


def test_a_cut_is_a_border_of_cells():
    first, *_, last = (item_rule(each) for each in plan_of("screened_gaussian").union_rounds)
    decider = plan_of("screened_gaussian").union_rounds[0]
    lower = first.threshold_units + first.cut_cell * first.cell_units
    assert 0 <= lower - decider.cut * 2**32 < first.cell_units
    assert last.cut_cell is None


@pytest.mark.parametrize("threshold", [4.0, 4.0 + 2**-33])
def test_a_threshold_covers_a_weight_that_descent_has_rounded_up(threshold):
    """A spare unit of 2^-50 goes to an item of one user alone, beyond its even part."""
    noise = Noise("laplace", 1.0, math.sqrt(2))
    decider = UnionRound(number=1, noise=noise, threshold=threshold, cutoff=None, cut=None)
    units = item_selection.item_rule(decider).threshold_units
    assert Fraction(units, 2**32) >= Fraction(threshold) + Fraction(1, 2**50)


def test_laplaces_are_right_to_1e_12_in_both_tails():
    """P(noise > x) = ½ e^−x at the x that a draw gives; against 50 digits, from the same bits."""
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2**64, (3000, 2), dtype=np.uint64)
    bits[:1000, 0] >>= rng.integers(0, 64, 1000).astype(np.uint64)
    bits[:200, 0] = 0
    bits[:100, 1] >>= rng.integers(0, 24, 100).astype(np.uint64)
    drawn = randomness.laplaces(bits)
    with mpmath.workdps(50):
        for (first, last), noise in zip(bits.tolist(), drawn.tolist(), strict=True):
            uniform = mpmath.mpf((first << 64) | last | 1) / 2**128
            exact = -mpmath.log(uniform) * (-1 if last & 1 else 1)
            assert abs(mpmath.expm1(abs(exact) - abs(mpmath.mpf(noise)))) < 1e-13
            assert noise == 0 or (noise > 0) == (exact > 0)
    assert drawn.max() > 40
    assert drawn.min() < -40


def test_laplaces_follow_the_laplace_law():
    bits = randomness.encrypt_blocks(bytes(32), np.arange(400_000, dtype=np.uint64).reshape(-1, 2))
    drawn = randomness.laplaces(bits)
    assert stats.kstest(drawn, stats.laplace.cdf).pvalue > FALSE_FAILURE
    assert stats.binomtest(int((drawn > 5).sum()), 200_000, math.exp(-5) / 2).pvalue > FALSE_FAILURE


@pytest.mark.parametrize(
    ("coder", "value"),
    [
        (BatchCoder(UserItems), users_of({"a": 1, "é": 2}, {}, {"a": 3})),
        (BatchCoder(ItemSums), policies.present_items(users_of({"a": 1, "": 2}), width=3)),
        (BatchCoder(ItemSums), merge_sums([])),
        (
            BatchCoder(ItemSet),
            ItemSet(items=pa.array(["a"]), scores=np.ones(1), report={"cutoff": None}),
        ),
        (BatchCoder(ItemSet), ItemSet(items=pa.array([], pa.string()), scores=np.zeros(0))),
    ],
)
def test_coders_give_back_what_they_got(coder, value):
    again = coder.decode(coder.encode(value))
    for name, given in vars(value).items():
        got = getattr(again, name)
        if isinstance(given, np.ndarray):
            assert got.shape == given.shape
            assert got.dtype == given.dtype
            assert np.array_equal(got, given)
        else:
            assert got == given
