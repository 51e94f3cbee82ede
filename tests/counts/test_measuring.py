"""The sums of the count pass: one user is bounded in exact integers, and the noise is as planned."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from scipy import stats

from beam_dpne import RunKey
from beam_dpne.counts import measuring
from beam_dpne.counts import rule as rules
from beam_dpne.counts.measuring import Held, UserParts, measure, split_sums, sum_counts
from beam_dpne.counts.rule import MOST_CLASSES, SIZES_PART, count_rule, noise_of_budget
from beam_dpne.elements.batches import table_of_sums
from tests.counts import sums_of_table

KEY = RunKey(b"counts".ljust(32, b"."))
UNIT = 2**32
ROW_UNIT, SIZE_UNIT = UNIT * math.sqrt((1 - SIZES_PART) / 2), UNIT * math.sqrt(SIZES_PART)


@st.composite
def count_rules(draw):
    sizes = draw(st.lists(st.integers(0, 60), min_size=1, max_size=4).filter(any))
    scores = st.floats(-1, 1e6, allow_nan=False)
    return count_rule([np.array(draw(st.lists(scores, min_size=n, max_size=n))) for n in sizes])


@st.composite
def rules_and_users(draw):
    rule = draw(count_rules())
    rows = st.sets(st.integers(0, sum(rule.sizes) - 1)).map(sorted)
    return rule, draw(st.lists(rows, min_size=1, max_size=8))


def held(users):
    return Held(
        offsets=np.cumsum([0, *map(len, users)]),
        rows=np.array([row for user in users for row in user], np.int64),
    )


def sums_of(users, rule):
    return split_sums([sum_counts(held(users), rule)], rule)


def squared_length(*sums):
    """In exact integers."""
    return sum(value**2 for each in sums for value in each.reshape(-1).tolist())


@given(rules_and_users())
def test_one_user_adds_a_vector_of_length_one_at_most_in_exact_integers(rule_and_users):
    rule, users = rule_and_users
    for user in users:
        numbers, masses, sizes = sums_of([user], rule)
        assert squared_length(numbers, masses, sizes) <= UNIT**2
        # All of a user's rows are counted, in one class or two neighbouring ones.
        assert np.flatnonzero(masses).tolist() == user
        (classes,) = np.nonzero(sizes)
        assert np.diff(classes).tolist() in ([], [1])
        event(f"classes {classes.tolist()}")
        if user:
            # Parts add up to one user of each row and of the classes.
            parts = numbers * rule.bounds / (ROW_UNIT * rule.row_weights[:, np.newaxis])
            assert parts.sum(axis=1)[user] == pytest.approx(1, abs=1e-4)
            assert sizes.sum() / SIZE_UNIT == pytest.approx(1, abs=1e-8)
            expected = (numbers.sum(axis=1), 3 * rule.row_weights)
            assert (abs(expected[0] - masses) <= expected[1]).all()


@given(st.integers(0, 2**32 - 1), st.integers(1, MOST_CLASSES), st.integers(1, 400))
def test_every_size_of_a_user_in_every_class_fits_in_exact_integers(seed, classes, least):
    """The squared length of a user with one row of weight √q, that is q times the squares of parts."""
    bounds = least * 2.0 ** np.arange(classes)
    # All sizes are equally likely, by their logarithms, so that most are between two bounds.
    places = np.random.default_rng(seed).random(200) * math.log(bounds[-1] ** 2)
    squares = np.clip(np.exp(places), 1, bounds[-1] ** 2).astype(np.int64).tolist()
    # At the borders of classes rounding could put a user into the wrong one.
    squares += [int(bound**2) + step for bound in bounds[:-1] for step in (-1, 0, 1)]
    squares = [square for square in squares if square]
    parts = UserParts.of(np.array(squares), bounds)
    for square, numbers, mass, sizes in zip(
        squares, parts.numbers.tolist(), parts.masses.tolist(), parts.sizes.tolist(), strict=True
    ):
        rows = square * (sum(number**2 for number in numbers) + mass**2)
        assert rows <= (1 - SIZES_PART) * UNIT**2
        assert sum(size**2 for size in sizes) <= SIZES_PART * UNIT**2
        # Nothing of a user's length is lost, but what rounding takes, and below the lowest bound.
        if square >= bounds[0] ** 2 and classes > 1:
            lost = 4 * square * (1 + mass) / UNIT**2
            assert rows / UNIT**2 >= (1 - SIZES_PART) * (1 - 1e-9) - lost


@given(count_rules())
def test_a_user_who_holds_everything_is_in_the_last_class(rule):
    _, _, sizes = sums_of([range(sum(rule.sizes))], rule)
    assert sizes[-1] / SIZE_UNIT == pytest.approx(1, abs=1e-6)
    assert rule.bounds.size <= MOST_CLASSES


@given(rules_and_users())
def test_sums_do_not_depend_on_batches(rule_and_users):
    rule, users = rule_and_users
    whole = sum_counts(held(users), rule)
    size = (rule.row_weights.size + 1) * (rule.bounds.size + 1)
    parts = table_of_sums((sum_counts(held([user]), rule) for user in users), size)
    assert parts.tolist() == table_of_sums([whole], size).tolist()


@given(count_rules())
def test_rare_rows_have_larger_weights_and_no_more_than_the_rule_allows(rule):
    assert rule.row_weights.min() >= 1
    assert rule.row_weights.max() == 256
    # Rows of one level have one weight, and those of higher levels no larger one.
    order = np.argsort(rule.levels)
    assert (np.diff(rule.row_weights[order]) <= 0).all()


@pytest.mark.parametrize("mu", [0.01, 0.3, 5.0])
def test_the_noise_costs_no_more_than_the_budget(mu):
    spent = noise_of_budget(mu) ** -2
    assert mu**2 * (1 - 1e-11) <= spent <= mu**2


def test_noise_has_the_planned_spread_and_is_independent_of_the_sums():
    rule = count_rule([np.full(4000, 3.0), np.full(2000, 1.0)])
    noise, classes = noise_of_budget(0.4), rule.bounds.size
    row = [12345 * UNIT] * classes + [678 * UNIT]
    large = sums_of_table(np.append(np.tile(row, 6000), np.full(classes, 9 * UNIT)))
    for sums, units in (([], (0, 0, 0)), ([large], (12345, 678, 9))):
        draws = []
        for seed in range(3):
            seen = measure(sums, rule, noise, RunKey(bytes([seed] * 32)))
            weights, unit = rule.row_weights, UNIT / ROW_UNIT
            exact = units[0] * unit * rule.bounds / weights[:, np.newaxis]
            numbers = (seen.numbers - exact) / rule.bounds * weights[:, np.newaxis]
            masses = (seen.masses - units[1] * unit / weights) * weights
            sizes = (seen.sizes - units[2] * UNIT / SIZE_UNIT) / seen.size_stddev
            draws.append(np.concatenate((numbers.reshape(-1), masses)) / seen.unit)
            assert abs(sizes).max() < 5
        # The width of a cell shows in more draws than these.
        assert stats.kstest(np.concatenate(draws)[::8], "norm").pvalue > 1e-3
        # Neither keys nor rows nor classes share noise.
        assert abs(np.corrcoef(draws)[np.triu_indices(3, 1)]).max() < 0.05
        table = draws[0][: 6000 * classes].reshape(6000, classes)
        beside = np.column_stack((table, draws[0][6000 * classes :]))
        assert abs(np.corrcoef(beside.T)[np.triu_indices(classes + 1, 1)]).max() < 0.06
    assert seen.unit == pytest.approx(noise * UNIT / ROW_UNIT)
    assert seen.size_stddev == pytest.approx(noise * UNIT / SIZE_UNIT)


def test_measured_numbers_are_cells_of_the_noise_and_equal_under_one_key():
    rule = count_rule([np.arange(1.0, 500.0)])
    noise = noise_of_budget(0.4)
    one, other = (measure([], rule, noise, KEY) for _ in range(2))
    assert np.array_equal(one.masses, other.masses)
    assert np.array_equal(one.numbers, other.numbers)
    assert np.array_equal(one.sizes, other.sizes)
    width = math.ceil(noise * UNIT / 64)
    cells = one.masses * rule.row_weights * noise * UNIT / one.unit / width
    assert np.allclose(cells % 1, 0.5, atol=1e-4)
    assert not np.array_equal(one.masses, measure([], rule, noise, RunKey(bytes(32))).masses)


def test_noise_does_not_depend_on_the_blocks_in_which_rows_are_taken(monkeypatch):
    rule = count_rule([np.arange(1.0, 500.0)])
    whole = measure([], rule, noise_of_budget(0.4), KEY)
    monkeypatch.setattr(rules, "_ROWS_OF_A_BLOCK", 64)
    parts = measure([], rule, noise_of_budget(0.4), KEY)
    assert np.array_equal(parts.numbers, whole.numbers)
    assert np.array_equal(parts.masses, whole.masses)


def normalised(seen, rule):
    """All sums that leave, in standard deviations of their noise."""
    weights = rule.row_weights[:, np.newaxis]
    numbers = seen.numbers / rule.bounds * weights / seen.unit
    masses = seen.masses[:, np.newaxis] * weights / seen.unit
    return numbers.reshape(-1), masses.reshape(-1), seen.sizes / seen.size_stddev


def test_each_sum_has_its_own_noise_and_all_of_the_planned_spread():
    """Over many keys; the few numbers of users of classes are among them."""
    rule, noise, keys = count_rule([np.arange(1.0, 9.0)]), noise_of_budget(0.4), 1500
    seen = [measure([], rule, noise, RunKey(key.to_bytes(32))) for key in range(keys)]
    kinds = [np.array(each) for each in zip(*(normalised(one, rule) for one in seen), strict=True)]
    for draws in kinds:
        assert stats.kstest(draws.reshape(-1)[:4000], "norm").pvalue > 1e-4
        # Far draws are there: the noise is not cut off.
        assert draws.size < 2e4 or abs(draws).max() > 3.7
    together = np.concatenate(kinds, axis=1)
    assert abs(together.std(axis=0) - 1).max() < 0.1
    correlations = np.corrcoef(together.T)
    assert abs(correlations - np.eye(len(correlations))).max() < 0.15


def test_rows_far_apart_do_not_share_noise():
    """The number of a draw has more than 16 bits."""
    rows, beyond = 2**16 + 5000, 2**16
    rule = count_rule([np.full(rows, 2.0)])
    numbers, masses, _ = normalised(measure([], rule, noise_of_budget(0.4), KEY), rule)
    for draws in (numbers, masses):
        for step in (2**13, 2**14, beyond):
            pairs = draws[:5000], draws[step : step + 5000]
            assert abs(np.corrcoef(*pairs)[0, 1]) < 0.08


def test_large_sums_lose_no_digits():
    """Whole cells that are added to a sum move its cell by as many, also beyond 53 bits."""
    rule, noise = count_rule([np.full(3000, 2.0)]), noise_of_budget(50)
    classes, width = rule.bounds.size, math.ceil(noise * UNIT / 64)
    size = 3000 * (classes + 1) + classes
    sums = np.random.default_rng(1).integers(0, width, size) + 1
    # So much would 2^30 users add, each with a vector of length 1.
    many = 2**62 // width

    def cells(sums):
        seen = normalised(measure([sums_of_table(sums)], rule, noise, KEY), rule)
        return np.floor(np.concatenate(seen) * noise * UNIT / width + 1e-3)

    # The middles of cells are floats: what they leave of a number is a small part of a cell.
    assert np.array_equal(cells(sums + many * width), cells(sums) + many)


@pytest.mark.parametrize("part", [0.02, 0.5, 0.9])
def test_a_part_of_a_cell_moves_a_sum_by_no_more_than_itself(part):
    """If sums were rounded before the noise, a user could move each of them by a whole cell."""
    rule, noise = count_rule([np.full(3000, 2.0)]), noise_of_budget(0.4)
    width = math.ceil(noise * UNIT / 64)
    every = sums_of_table(np.full(3000 * (rule.bounds.size + 1), round(part * width)))

    def cells(pieces):
        numbers, masses, _ = normalised(measure(pieces, rule, noise, KEY), rule)
        return np.rint(np.concatenate((numbers, masses)) * noise * UNIT / width - 0.5)

    moved = cells([every]) - cells([])
    assert set(moved.tolist()) == {0, 1}
    assert moved.mean() == pytest.approx(part, abs=0.015)


@given(count_rules(), st.integers(0, 3))
def test_the_last_bound_is_the_size_of_a_user_who_holds_everything(rule, fewer):
    """No user is above the last bound, where a vector would be longer than 1."""
    weights = rule.row_weights.tolist()
    everything = sum(weight**2 for weight in weights)
    assert rule.bounds[-1] ** 2 >= everything * (1 - 2**-50)
    assert np.array_equal(rule.bounds[1:], 2 * rule.bounds[:-1])
    user = range(len(weights))[min(fewer, len(weights) - 1) :]
    assert squared_length(*sums_of([user], rule)) <= UNIT**2


def test_what_rows_and_classes_get_leaves_a_margin_for_floating_point():
    rows, sizes = Fraction(measuring._ROW_UNITS), Fraction(measuring._SIZE_UNITS)
    assert 1 - 2.0**-38 < (2 * rows**2 + sizes**2) / UNIT**2 < 1 - 2.0**-40
