"""The sums of the count pass: one user's part is bounded in exact integers, the noise is as planned."""

import math

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from scipy import stats

from beam_dpne import RunKey
from beam_dpne.counts.measuring import (
    Held,
    measure,
    split_sums,
    sum_counts,
    user_factors,
)
from beam_dpne.counts.rule import (
    MOST_TOTALS,
    CountNoise,
    CountRule,
    _class_bounds,
    count_rule,
)
from beam_dpne.elements.batches import add_rows, sums_of_table

KEY = RunKey(b"counts".ljust(32, b"."))
UNIT = 2**32


@st.composite
def rules(draw):
    sizes = draw(st.lists(st.integers(0, 60), min_size=1, max_size=4).filter(any))
    scores = st.floats(-1, 1e6, allow_nan=False)
    return count_rule([np.array(draw(st.lists(scores, min_size=n, max_size=n))) for n in sizes])


@st.composite
def rules_and_users(draw):
    rule = draw(rules())
    rows = st.sets(st.integers(0, sum(rule.sizes) - 1)).map(sorted)
    return rule, draw(st.lists(rows, min_size=1, max_size=8))


def held(users):
    return Held(
        offsets=np.cumsum([0, *map(len, users)]),
        rows=np.array([row for user in users for row in user], np.int64),
    )


@given(rules_and_users())
def test_one_user_adds_vectors_of_length_one_at_most_in_exact_integers(rule_and_users):
    rule, users = rule_and_users
    for user in users:
        masses, totals = split_sums([sum_counts(held([user]), rule)], rule)
        assert sum(int(mass) ** 2 for mass in masses.tolist()) <= UNIT**2
        # All of a user's rows are counted, with one factor.
        assert np.flatnonzero(masses).tolist() == user
        (classes,) = np.nonzero(totals.sum(axis=0)) if user else ([],)
        assert len(classes) == bool(user)
        for place in classes:
            lengths = totals[:, place] * rule.group_weights
            bound = int(rule.bounds[place])
            assert sum(int(length) ** 2 for length in lengths.tolist()) <= bound**2
            if place:
                below = int(rule.bounds[place - 1])
                assert sum(int(length) ** 2 for length in lengths.tolist()) > below**2
            event(f"class {place}")
        assert totals.sum() == len(user)


@given(rules())
def test_the_last_class_holds_a_user_who_holds_everything_and_no_class_is_too_many(rule):
    everything = held([range(sum(rule.sizes))])
    _, totals = split_sums([sum_counts(everything, rule)], rule)
    assert totals[:, :-1].sum() == 0
    assert totals[:, -1].tolist() == np.bincount(rule.groups).tolist()
    assert totals.size <= MOST_TOTALS * len(rule.sizes)


@given(
    st.lists(st.integers(1, 2**36), min_size=1, max_size=6),
    st.lists(st.integers(1, 3), min_size=6, max_size=6),
)
def test_no_user_is_in_too_small_a_class_where_squares_exceed_64_bits(weights, sizes):
    weights, sizes = np.array(weights), np.array(sizes[: len(weights)])
    groups = np.repeat(np.arange(weights.size), sizes)
    bounds = _class_bounds(weights, sizes)
    rule = CountRule(
        sizes=(groups.size,),
        row_weights=np.ones(groups.size, np.int64),
        groups=groups,
        group_weights=weights,
        bounds=bounds,
    )
    for count in range(1, groups.size + 1):
        _, totals = split_sums([sum_counts(held([range(count)]), rule)], rule)
        (place,) = np.flatnonzero(totals.sum(axis=0))
        lengths = (totals[:, place] * weights).tolist()
        norm = sum(length**2 for length in lengths)
        assert norm <= int(bounds[place]) ** 2
        assert place == 0 or norm > int(bounds[place - 1]) ** 2 * (1 - 2**-20)
        event(f"beyond 64 bits: {norm >= 2**63}")


@given(rules_and_users())
def test_sums_do_not_depend_on_batches(rule_and_users):
    rule, users = rule_and_users
    whole = sum_counts(held(users), rule)
    parts = add_rows([sum_counts(held([user]), rule) for user in users])
    assert whole.rows.tolist() == parts.rows.tolist()
    assert whole.sums.tolist() == parts.sums.tolist()


@given(st.lists(st.integers(0, 2**45), min_size=1))
def test_factors_are_the_largest_that_keep_a_user_within_length_one(squares):
    factors = user_factors(np.array(squares)).tolist()
    for square, factor in zip(squares, factors, strict=True):
        assert factor**2 * square <= UNIT**2
        assert factor >= (math.isqrt(UNIT**2 // square) * (1 - 2.0**-49) - 1 if square else 0)


@given(rules())
def test_rare_rows_have_larger_weights_and_no_more_than_the_rule_allows(rule):
    assert rule.row_weights.min() >= 1
    assert rule.row_weights.max() == 256
    assert 1 <= rule.group_weights.min() <= rule.group_weights.max() == 1024


def test_groups_are_of_one_length_and_of_neighbouring_ranks():
    scores = [np.random.default_rng(k).permutation(200) + 1.0 for k in range(2)]
    rule = count_rule(scores)
    assert np.bincount(rule.groups).tolist() == ([1] * 20 + [20, 40, 80, 40]) * 2
    for first, last, score in ((0, 200, scores[0]), (200, 400, scores[1])):
        groups = rule.groups[first:last]
        ordered = groups[np.argsort(-score)]
        assert (np.diff(ordered) >= 0).all()


def test_rows_of_one_score_are_grouped_by_their_number():
    rule = count_rule([np.ones(40)])
    assert rule.groups.tolist() == [*range(20), *([20] * 20)]


@pytest.mark.parametrize("mu", [0.01, 0.3, 5.0])
def test_the_noise_costs_no_more_than_the_budget(mu):
    noise = CountNoise.of_budget(mu)
    spent = noise.row_stddev**-2 + noise.group_stddev**-2
    assert mu**2 * (1 - 1e-11) <= spent <= mu**2


def test_noise_has_the_planned_spread_and_is_independent_of_the_sums():
    rule = count_rule([np.full(4000, 3.0), np.full(2000, 1.0)])
    noise = CountNoise.of_budget(0.4)
    size = rule.group_weights.size * rule.bounds.size
    large = sums_of_table(np.repeat([12345 * UNIT, 6789], [6000, size]))
    for sums, mass, total in (([], 0, 0), ([large], 12345, 6789)):
        draws, group_draws = [], []
        for seed in range(3):
            measured = measure(sums, rule, noise, RunKey(bytes([seed] * 32)))
            draws.append((measured.masses - mass / rule.row_weights) / measured.mass_stddevs)
            group_draws.append((measured.totals - total) / measured.total_stddevs)
        assert stats.kstest(np.concatenate(draws), "norm").pvalue > 1e-3
        assert stats.kstest(np.concatenate(group_draws), "norm", axis=None).pvalue > 1e-3
        # Neither keys nor rows nor the two measurements share noise.
        assert abs(np.corrcoef(draws)[np.triu_indices(3, 1)]).max() < 0.05
        of_groups = np.ravel(group_draws)
        of_rows = np.ravel([draw[: group_draws[0].size] for draw in draws])
        assert abs(np.corrcoef(of_rows, of_groups)[0, 1]) < 0.3
    assert np.allclose(measured.mass_stddevs * rule.row_weights, noise.row_stddev)
    expected = noise.group_stddev * rule.bounds / rule.group_weights[:, np.newaxis]
    assert np.allclose(measured.total_stddevs, expected)


def test_measured_numbers_are_cells_of_the_noise_and_equal_under_one_key():
    rule = count_rule([np.arange(1.0, 500.0)])
    noise = CountNoise.of_budget(0.4)
    one, other = (measure([], rule, noise, KEY) for _ in range(2))
    assert np.array_equal(one.masses, other.masses)
    assert np.array_equal(one.totals, other.totals)
    cells = one.masses * rule.row_weights * UNIT / math.floor(noise.row_stddev * UNIT / 64)
    assert np.allclose(cells % 1, 0.5)
    assert not np.array_equal(one.masses, measure([], rule, noise, RunKey(bytes(32))).masses)
