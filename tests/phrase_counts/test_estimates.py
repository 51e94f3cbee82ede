"""Intervals hold for each phrase by itself, also one whose users are all above the bound."""

import numpy as np
import pytest

from beam_dpne.counts.measuring import Held
from beam_dpne.lists.phrases import PhraseList
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.phrase_counts.estimates import Widths, choose_bound, intervals, widths
from beam_dpne.phrase_counts.plan import PhraseCountsPlan
from beam_dpne.phrase_counts.run import bound_of, numbers_of
from beam_dpne.phrase_counts.sums import Bound, class_ends, sum_excess, sum_numbers, sum_sizes

MEMBERS = 300


@pytest.mark.parametrize("error", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("largest", [0.0, 0.3, 1.0, 3.0, 30.0])
def test_an_interval_covers_each_shortfall_up_to_the_largest(largest, error):
    """By the law of the noise of the number and of the shortfall, both of them measured many times."""
    draw = np.random.default_rng(5)
    number, measured = draw.standard_normal((2, 20_000))
    found = [
        Widths(stddev=1.0, shortfall=max(0.0, largest + error * each), shortfall_stddev=error)
        for each in measured[:2_000]
    ]
    below, above = (
        np.array([getattr(each, side) for each in found]) for side in ("below", "above")
    )
    for part in (0.0, 0.5, 1.0):
        # What is missing in the noisy number: the shortfall less the noise.
        missing = part * largest - number.reshape(10, 2_000)
        covered = ((-below <= missing) & (missing <= above)).mean()
        # The standard deviation of such a share is 0.0015.
        assert covered >= 0.944, part
        if error == 0 and part != 0.5:
            assert covered == pytest.approx(0.95, abs=0.006)


def community() -> Held:
    """Most users hold a few phrases, and 40 hold the last 200, which nobody else has."""
    draw = np.random.default_rng(11)
    users = [draw.choice(100, size, replace=False) for size in draw.integers(1, 6, 3_000)]
    users += [np.arange(100, 300) for _ in range(40)]
    number = np.repeat(np.arange(len(users)), [each.size for each in users])
    rows = np.concatenate(users)
    return Held.of(number, rows, user_count=len(users), row_count=MEMBERS)


@pytest.mark.parametrize("epsilon", [0.5, 4])
def test_each_part_of_a_list_is_covered_also_the_phrases_of_heavy_users_alone(epsilon):
    held = community()
    truth = np.bincount(held.rows, minlength=MEMBERS)
    plan = PhraseCountsPlan(epsilon=epsilon, delta=1e-6)
    phrases = PhraseList.of([(f"w{row:03}",) for row in range(MEMBERS)])
    covered = []
    bounds = set()
    for number in range(60):
        key = RunKey(f"coverage {number}".encode().ljust(32, b"."))
        bound = bound_of([sum_sizes(held, MEMBERS)], MEMBERS, plan, key)
        bounds.add(bound.most)
        excess, numbers = [sum_excess(held, bound)], [sum_numbers(held, bound)]
        found = numbers_of(excess, numbers, phrases, bound=bound, plan=plan, run_key=key)
        _, low, high = found.users.reshape(-1, 3).T
        covered.append((low <= truth) & (truth <= high))
    by_phrase = np.mean(covered, axis=0)
    # A phrase has 60 runs, so that one of 0.95 has more than 0.8 of them in 0.9999 of the cases.
    assert by_phrase.min() > 0.8
    assert 0.94 <= np.mean(covered) <= 0.99
    assert by_phrase[100:].mean() >= 0.93
    assert by_phrase[:100].mean() >= 0.93
    assert len(bounds) > 1, "the bound does not follow from noisy sizes"
    if epsilon == 0.5:
        assert max(bounds) < 200, (
            "heavy users are never above the bound, so that nothing was tested"
        )


def test_the_bound_is_a_function_of_the_noisy_sizes_alone_and_is_small_where_users_hold_little():
    plan = PhraseCountsPlan(epsilon=1, delta=1e-6)
    sizes = np.zeros(class_ends(1_024).size)
    sizes[1] = 1e5
    little = choose_bound(sizes, 1_024, plan)
    sizes[-1] = 1e5
    much = choose_bound(sizes, 1_024, plan)
    assert little.most <= 16
    assert much.most == 1_024
    assert widths(0.0, much, plan).shortfall == 0
    alone = choose_bound(np.array([5.0]), 1, plan)
    assert alone == Bound(members=1, most=1, excess_share=0.0)


def test_intervals_are_whole_rounded_outwards_and_cut_at_0_and_at_the_public_number_of_users():
    found = Widths(stddev=10.0, shortfall=4.0, shortfall_stddev=3.0)
    rows = intervals(np.array([-50.0, 3.4, 996.0]), found, 1_000)
    assert rows.tolist()[0] == [0, 0, 0]
    assert rows[1, 0] == 3
    assert rows[1, 1] == 0
    assert rows[1, 2] == np.ceil(3.4 + found.above)
    assert rows[2].tolist() == [996, np.floor(996 - found.below), 1_000]
    assert intervals(np.array([996.0]), found, None)[0, 2] > 1_000
