"""The sensitivity of decayed logarithms over all databases: searched, attained, never passed."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_dpne.bayesian import log_global
from beam_dpne.bayesian.log_global import gram_bound, grid_sensitivity, grid_values

CLAMPS = [1, 2, 3, 10, 100]
DECAYS = [1e-4, 1e-3, 0.01, 0.1, 0.3, 0.4, 0.7, 1.0, 2.5, 10.0, 1e4]


def value(users: int, count: int, clamp: int, decay: float) -> float:
    return min(1.0, decay * users / clamp) * math.log(count + 1)


def changes(clamp: int, decay: float, most_users: int):
    """Every |f(N, c) − f(N − 1, c − x)| of a dense search."""
    for users in range(1, most_users):
        few, many = users - 1, clamp * (users - 1)
        for rest in {few, many, *np.linspace(few, many, 7).astype(int).tolist()}:
            for own in {1, clamp, (clamp + 1) // 2}:
                if users <= rest + own <= clamp * users:
                    before = value(users - 1, rest, clamp, decay)
                    yield value(users, rest + own, clamp, decay) - before


@pytest.mark.parametrize("clamp", CLAMPS)
def test_no_neighbour_passes_the_bound_and_some_attain_it(clamp):
    for decay in DECAYS:
        least, most = searched_changes(clamp, decay)
        bound = gram_bound(max_count=clamp, decay=decay)
        assert least >= -1e-12, decay
        assert bound * 0.9999 <= most <= bound, decay


def searched_changes(clamp: int, decay: float) -> tuple[float, float]:
    """The least and the largest change of a dense search, and of one around N = C/S."""
    turn = math.floor(clamp / decay)
    searched = list(changes(clamp, decay, min(turn + 5, 300)))
    near = range(max(1, turn - 2), turn + 5)
    for users in near:
        for rest in {users - 1, clamp * (users - 1)}:
            after = value(users, rest + clamp, clamp, decay)
            searched.append(after - value(users - 1, rest, clamp, decay))
    return min(searched), max(searched)


@given(
    st.integers(1, 50),
    st.floats(1e-3, 100.0),
    st.integers(1, 5000),
    st.floats(0, 1),
    st.floats(0, 1),
)
@settings(max_examples=500)
def test_random_neighbours_stay_below_the_bound(clamp, decay, users, rest_share, own_share):
    rest = round((users - 1) * (1 + rest_share * (clamp - 1)))
    own = 1 + math.floor(own_share * (clamp - 1))
    if rest + own > clamp * users:
        own = 1
    if rest + own < users:
        return
    moved = value(users, rest + own, clamp, decay) - value(users - 1, rest, clamp, decay)
    assert abs(moved) <= gram_bound(max_count=clamp, decay=decay)


def test_for_single_counts_the_bound_has_the_closed_form():
    for decay in (1e-4, 1e-3, 0.01, 0.1, 0.5, 1.0):
        closed = decay * (math.log(1 + 1 / decay) + 1)
        assert gram_bound(max_count=1, decay=decay) <= closed
        assert gram_bound(max_count=1, decay=decay) > (0.98 if decay < 0.1 else 0.4) * closed


@pytest.mark.parametrize("clamp", CLAMPS)
def test_rounding_is_outward_and_small(clamp):
    for decay in DECAYS:
        bound = gram_bound(max_count=clamp, decay=decay)
        with mpmath.workdps(60):
            exact = exact_bound(clamp, decay)
            assert exact <= bound <= exact * (1 + 1e-6), decay


def exact_bound(clamp: int, decay: float) -> mpmath.mpf:
    """The largest change around N = C/S, in the digits of mpmath."""
    turn = math.floor(clamp / decay)
    largest = mpmath.mpf(0)
    for users in range(max(1, turn - 1), turn + 5):
        for rest in (users - 1, clamp * (users - 1)):
            w, before = (
                min(mpmath.mpf(1), mpmath.mpf(decay) * n / clamp) for n in (users, users - 1)
            )
            moved = w * mpmath.log(rest + clamp + 1) - before * mpmath.log(rest + 1)
            largest = max(largest, moved)
    return largest


@given(
    st.integers(1, 10),
    st.sampled_from([0.001, 0.03, 0.4, 3.0]),
    st.integers(1, 6),
    st.integers(0, 2**32),
)
@settings(max_examples=300)
def test_whole_databases_move_by_no_more_than_the_sensitivity_on_the_grid(
    clamp, decay, limit, seed
):
    rng = np.random.default_rng(seed)
    users = rng.integers(0, 400, size=12)
    counts = np.array([rng.integers(n, clamp * n + 1) for n in users])
    held = rng.permutation(12)[:limit]
    own = rng.integers(1, clamp + 1, size=limit)
    more_users, more_counts = users.copy(), counts.copy()
    more_users[held] += 1
    more_counts[held] += own
    given_both = {"max_count": clamp, "decay": decay}
    moved = grid_values(more_counts, more_users, **given_both)
    moved -= grid_values(counts, users, **given_both)
    most = grid_sensitivity(max_contributions=limit, **given_both)
    assert math.isqrt(int((moved**2).sum())) <= most


def test_rounding_to_the_grid_moves_a_value_further_than_the_bound_and_is_in_the_sensitivity():
    """Around N = C/S, one user more: what is rounded may move by more than B, by a step at most."""
    beyond = 0
    for decay in np.geomspace(1e-6, 0.9, 60).tolist():
        given_both = {"max_count": 1, "decay": decay}
        users = math.floor(1 / decay) + np.arange(-3, 5)
        users = users[users >= 1]
        moved = grid_values(users, users, **given_both)
        moved -= grid_values(users - 1, users - 1, **given_both)
        bound = gram_bound(**given_both)
        largest = int(moved.max())
        beyond += largest > math.ldexp(bound, log_global.grid_bits(bound))
        assert largest <= grid_sensitivity(max_contributions=1, **given_both)
    assert beyond > 0


@pytest.mark.parametrize("decay", [1e-4, 0.02, 5.0])
def test_the_grid_costs_little(decay):
    bound = gram_bound(max_count=3, decay=decay)
    step = math.ldexp(1.0, -log_global.grid_bits(bound))
    whole = step * grid_sensitivity(max_count=3, decay=decay, max_contributions=16)
    assert 4 * bound < whole < 4 * bound * 1.005


def test_weights_are_those_of_equation_5():
    weights = log_global.decay_weights(np.array([0, 1, 49, 50, 51]), max_count=2, decay=0.04)
    assert weights == pytest.approx([0, 0.02, 0.98, 1, 1])


def test_softmax_sees_no_shift():
    logs = np.array([0.0, 1.0, 800.0])
    assert log_global.softmax(logs) == pytest.approx(log_global.softmax(logs - 1e3))
    assert log_global.softmax(logs).sum() == pytest.approx(1)
