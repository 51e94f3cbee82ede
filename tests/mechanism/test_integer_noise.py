"""Gaussian noise on the integers: how far its probabilities may be off, measured on the code itself."""

import math

import mpmath
import numpy as np
import pytest

from beam_dpne.mechanism import integer_noise
from beam_dpne.mechanism.integer_noise import delta_slack, epsilon_slack, far_tails, integer_normals
from beam_dpne.mechanism.randomness import RunKey, keyed_bits, normals

GRID = 2**127


def drawn(place: int, stddev: float) -> int:
    """The noise's size for U = (2·place + 1)/2^128, through the code."""
    whole = 2 * place + 1
    bits = np.array([[whole >> 64, whole & (2**64 - 1)]], dtype=np.uint64)
    return abs(int(integer_normals(normals(bits), stddev)[0]))


def first_place(size: int, stddev: float) -> int:
    """The least place in range(2^127) whose noise is at most `size`: noise falls as U grows."""
    low, high = 0, GRID
    while low < high:
        middle = (low + high) // 2
        if drawn(middle, stddev) <= size:
            high = middle
        else:
            low = middle + 1
    return low


def two_sided_tail(size: int, stddev: float) -> mpmath.mpf:
    """P(|noise| > size) of noise rounded without error."""
    return mpmath.erfc((mpmath.mpf(size) + mpmath.mpf(1) / 2) / mpmath.mpf(stddev) / mpmath.sqrt(2))


@pytest.mark.parametrize("stddev", [0.4, 1.0, 3.7, 8.0, 50.0, 400.0, 123456.7, 1e7])
def test_each_integers_probability_is_right_to_the_stated_error(stddev):
    worst = mpmath.mpf(0)
    with mpmath.workdps(60):
        for deviations in (0.0, 0.3, 1.0, 2.5, 5.0, 8.0, 9.5, 10.3):
            size = round(deviations * stddev)
            below = mpmath.mpf(1) if size == 0 else two_sided_tail(size - 1, stddev)
            exact = below - two_sided_tail(size, stddev)
            if exact / 2 < 3e-27:
                continue
            upper = GRID if size == 0 else first_place(size - 1, stddev)
            measured = mpmath.mpf(upper - first_place(size, stddev)) / GRID
            worst = max(worst, abs(measured / exact - 1))
    assert 0 < worst < integer_noise.relative_error(stddev)


@pytest.mark.parametrize("stddev", [0.4, 1.0, 8.0, 300.0, 1e5])
def test_integers_that_are_less_probable_are_within_the_far_tails(stddev):
    with mpmath.workdps(60):
        size = 0
        step = 2 ** max(0, math.ceil(math.log2(15 * stddev + 1)))
        while step:
            wider = size + step
            mass = (two_sided_tail(wider - 1, stddev) - two_sided_tail(wider, stddev)) / 2
            if mass >= 3e-27:
                size = wider
            step //= 2
        assert two_sided_tail(size, stddev) <= far_tails(stddev)


def test_noise_has_the_moments_of_the_rounded_normal():
    draws = normals(keyed_bits(RunKey(bytes(32)).sub_key("noise"), np.arange(200_000), 0))
    noise = integer_normals(draws, 3.0)
    assert noise.dtype == np.int64
    # Rounding adds 1/12 to the variance. Six deviations of each estimate: odds below 1e-8.
    assert abs(noise.mean()) < 6 * 3.02 / 200_000**0.5
    assert abs(noise.var() - (9 + 1 / 12)) < 6 * 9.1 * (2 / 200_000) ** 0.5


def test_slacks_grow_with_what_one_user_changes():
    assert epsilon_slack(stddev=1.0, draws=10) == pytest.approx(4e-11)
    assert epsilon_slack(stddev=1e6, draws=10) == pytest.approx(2e-6)
    assert delta_slack(stddev=1.0, draws=10, epsilon=1.0) < 1e-24
    assert delta_slack(stddev=1.0, draws=10, epsilon=60.0) > 0.01
    assert delta_slack(stddev=1.0, draws=10, epsilon=1e9) == math.inf
