"""Thresholds of words and n-grams against 40 to 60 digits; `set_union/test_plan` has those of items."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from beam_dpne.mechanism.thresholds import spurious_threshold, vocabulary_threshold


@pytest.mark.parametrize(
    ("noise_stddev", "delta"), [(0.02, 0.3), (0.4, 0.1), (4.8, 1e-7), (30, 1e-15)]
)
def test_vocabulary_threshold_is_the_maximum_over_a_users_words(noise_stddev, delta):
    with mpmath.workdps(60):

        def bound(t: int) -> mpmath.mpf:
            """1/√t + σΦ^{-1}(q), q = (1 − δ_T)^{1/t}, by the inverse error function of 2q − 1."""
            quantile = (1 - mpmath.mpf(delta)) ** (mpmath.mpf(1) / t)
            return 1 / mpmath.sqrt(t) + noise_stddev * mpmath.sqrt(2) * mpmath.erfinv(
                2 * quantile - 1
            )

        bounds = [float(bound(t)) for t in range(1, 101)]
    for limit in (1, 2, 10, 100):
        found = vocabulary_threshold(
            noise_stddev=noise_stddev, delta=delta, max_contributions=limit
        )
        assert found == pytest.approx(max(bounds[:limit]), rel=1e-12), limit


@pytest.mark.parametrize("delta", [1e-9, 0.4])
def test_beyond_a_million_words_the_vocabulary_threshold_is_that_of_the_last_number(delta):
    limits = (10**6, 10**6 + 1, 10**7)
    found = [
        vocabulary_threshold(noise_stddev=2.0, delta=delta, max_contributions=limit)
        for limit in limits
    ]
    assert found == sorted(found)
    tail = -math.expm1(math.log1p(-delta) / limits[-1])
    needed = limits[-1] ** -0.5 + 2.0 * stats.norm.isf(tail)
    assert needed <= found[-1] < needed + 1e-3


@pytest.mark.parametrize(
    ("noise_stddev", "delta"), [(0.02, 0.3), (0.4, 0.1), (4.8, 1e-7), (30, 1e-15)]
)
def test_words_of_one_user_alone_pass_the_threshold_with_probability_at_most_delta(
    noise_stddev, delta
):
    threshold = vocabulary_threshold(noise_stddev=noise_stddev, delta=delta, max_contributions=300)
    chances = []
    with mpmath.workdps(60):
        for words in range(1, 301):
            margin = (threshold - 1 / math.sqrt(words)) / noise_stddev
            chances.append(float(1 - mpmath.ncdf(margin) ** words))
    assert max(chances) == pytest.approx(delta, rel=1e-10)


@given(
    st.floats(0.1, 50),
    st.floats(1e-6, 0.99),
    st.integers(1, 10**7),
    st.integers(1, 10**14),
)
def test_spurious_threshold_lets_the_tolerated_number_pass(sigma, eta, released, valid):
    threshold = spurious_threshold(
        noise_stddev=sigma, spurious_fraction=eta, released=released, valid=valid
    )
    with mpmath.workdps(40):
        expected = float(valid * mpmath.ncdf(-threshold / sigma))
    assert expected == pytest.approx(eta * min(released, valid), rel=1e-10)


def test_the_tail_of_the_vocabulary_quantile_is_not_lost():
    """(1 − δ)^{1/t} rounds to 1 here; its quantile must not become infinite."""
    found = vocabulary_threshold(noise_stddev=1.0, delta=1e-17, max_contributions=1000)
    assert np.isfinite(found)
    assert 9.2 < found < 9.8
