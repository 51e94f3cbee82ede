"""In each round of a count a user moves the sums by a vector of length at most 1, in exact integers."""

import fractions
import random

import numpy as np
import pytest

from beam_dpne.counts.measuring import Held
from beam_dpne.elements.batches import RowSums, table_of_sums
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import UNITS
from beam_dpne.phrase_counts.estimates import choose_bound
from beam_dpne.phrase_counts.plan import SIZE_SHARE, PhraseCountsPlan
from beam_dpne.phrase_counts.sums import (
    Bound,
    class_ends,
    noisy_excess,
    noisy_numbers,
    noisy_sizes,
    sum_excess,
    sum_numbers,
    sum_sizes,
    user_weights,
)


def held_of(users: list[list[int]]) -> Held:
    """What users hold, given the rows of each."""
    pairs = [(user, row) for user, rows in enumerate(users) for row in rows]
    number, row = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    return Held.of(number, row, user_count=len(users), row_count=1_000)


def tables(users: list[list[int]], members: int, most: int) -> list[np.ndarray]:
    """The exact sums of the three rounds."""
    bound = Bound(members=members, most=most, excess_share=0.1)
    held = held_of(users)
    return [
        table_of_sums([sum_sizes(held, members)], class_ends(members).size),
        table_of_sums([sum_excess(held, bound)], 1),
        table_of_sums([sum_numbers(held, bound)], members),
    ]


@pytest.mark.parametrize("seed", range(30))
def test_one_user_moves_the_sums_of_each_round_by_a_vector_of_length_1_at_most(seed):
    draw = random.Random(seed)
    members = draw.choice([1, 2, 3, 20, 37, 1_000])
    most = draw.randint(1, members)
    users = [
        draw.sample(range(members), draw.randint(1, members)) for _ in range(draw.randint(1, 5))
    ]
    one = draw.sample(range(members), draw.choice([1, members, draw.randint(1, members)]))
    # A phrase counts once, however often the user wrote it.
    one += draw.choices(one, k=draw.choice([0, 1, 2 * members]))
    without = tables(users, members, most)
    with_one = tables([*users, one], members, most)
    decisions = 0
    for before, after in zip(without, with_one, strict=True):
        moved = [abs(a - b) for a, b in zip(after.tolist(), before.tolist(), strict=True)]
        assert sum(step * step for step in moved) <= UNITS * UNITS
        decisions += sum(step > 0 for step in moved)
    plan = PhraseCountsPlan(epsilon=1, delta=1e-6, max_phrases=members)
    assert decisions <= plan.decisions, "floating point of some numbers is not paid for"
    # Phrases that the user does not hold are not moved at all.
    others = np.setdiff1d(np.arange(members), one)
    assert (with_one[2][others] == without[2][others]).all()


def test_weights_are_the_largest_integers_of_which_the_squares_fit():
    for size in [*range(1, 300), 999_983, 2**20, 2**20 + 1]:
        (weight,) = user_weights(
            np.array([size]), Bound(members=2**21, most=1, excess_share=0.1)
        ).tolist()
        assert size * weight**2 <= UNITS**2 < size * (weight + 1) ** 2


def test_users_below_the_bound_count_fully_and_the_shortfall_of_others_is_the_excess():
    members = 100
    bound = Bound(members=members, most=25, excess_share=0.1)
    users = [list(range(25)), list(range(64)), list(range(100)), [0]]
    _, excess, numbers = tables(users, members, bound.most)
    counted = numbers * bound.scale / UNITS
    missing = 2 - 5 / 8 - 5 / 10
    assert counted[0] == pytest.approx(len(users) - missing, abs=1e-6)
    assert excess[0] / UNITS * bound.largest_excess == pytest.approx(missing, abs=1e-6)
    # A phrase that some of them hold misses less than all of them together.
    assert counted[99] == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("members", [1, 2, 20, 64, 1_000])
def test_each_number_of_phrases_has_one_class_and_users_without_any_none(members):
    users = [list(range(size)) for size in range(1, members + 1)]
    sizes, _, _ = tables([*users, []], members, members)
    assert sizes.sum() == members * UNITS
    ends = class_ends(members)
    assert ends[-1] == members
    assert (np.diff(ends) > 0).all()


def test_every_round_has_noise_of_its_own_and_as_much_as_its_share_of_the_budget_costs():
    """By what is drawn: the noise of equal sums, over their units, in all three rounds."""
    plan = PhraseCountsPlan(epsilon=1.3, delta=1e-7)
    bound = Bound(members=2_000, most=16, excess_share=0.4)
    nothing: list[RowSums] = []
    drawn = []
    for number in range(400):
        key = RunKey(f"noise {number}".encode().ljust(32, b"."))
        sizes = noisy_sizes(nothing, bound.members, plan, key)
        excess = noisy_excess(nothing, bound, plan, key) / bound.largest_excess
        rows = noisy_numbers(nothing, bound, plan, key)[:12] / bound.scale
        drawn.append((*sizes[:3], excess, *rows))
    each = np.array(drawn)
    shares = np.array([SIZE_SHARE] * 3 + [bound.excess_share] + [bound.row_share] * 12)
    expected = np.sqrt(1 / shares) / plan.mu
    # A standard deviation of 400 draws has a relative error of .035, and a correlation one of .05.
    assert each.std(axis=0) / expected == pytest.approx(1, abs=0.15)
    assert np.abs(np.corrcoef(each.T) - np.eye(len(shares))).max() < 0.25


def test_two_bounds_under_one_key_have_noise_of_their_own():
    """Else the difference of two releases would be that of their weights, without any noise."""
    plan = PhraseCountsPlan(epsilon=1, delta=1e-6)
    key = RunKey(b"k" * 32)
    nothing: list[RowSums] = []
    bounds = [Bound(members=50, most=most, excess_share=0.1) for most in (4, 8)]
    numbers = [noisy_numbers(nothing, each, plan, key) / each.scale for each in bounds]
    assert np.abs(numbers[0] - numbers[1]).min() > 0.01
    excess = [noisy_excess(nothing, each, plan, key) / each.largest_excess for each in bounds]
    assert excess[0] != pytest.approx(excess[1], abs=0.01)


@pytest.mark.parametrize("members", [1, 20, 5_000])
@pytest.mark.parametrize("users", [0.0, 3.0, 1e5])
def test_the_rounds_together_cost_no_more_than_the_plan_has(members, users):
    plan = PhraseCountsPlan(epsilon=1.3, delta=1e-7)
    bound = choose_bound(np.full(class_ends(members).size, users), members, plan)
    noises = [plan.size_noise, plan.noise_of(bound.row_share)]
    if bound.excess_share:
        noises.append(plan.noise_of(bound.excess_share))
    spent = sum(1 / fractions.Fraction(noise) ** 2 for noise in noises)
    assert spent <= fractions.Fraction(plan.mu) ** 2
    assert SIZE_SHARE + bound.excess_share + bound.row_share == pytest.approx(1)
    assert (bound.excess_share == 0) == (bound.most == members)
    assert plan.vocabulary_delta == 0
