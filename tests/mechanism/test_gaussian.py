"""Calibration against tables, 60 digits of mpmath, its own inverses, and dp-accounting."""

import itertools
import math
import subprocess
import sys

import dp_accounting
import mpmath
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import assume, given
from hypothesis import strategies as st

from beam_dpne import NgramsPlan
from beam_dpne.mechanism.gaussian import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_noise_stddev,
    growth_shares,
    split_noise_stddev,
)
from beam_dpne.mechanism.thresholds import vocabulary_threshold

EPSILONS = (1e-3, 0.01, 0.1, 1.0, 4.0, 10.0, 25.0, 50.0)
DELTAS = (0.3, 1e-2, 1e-5, 1e-8, 1e-12, 1e-15)

epsilons = st.floats(math.log(1e-3), math.log(50)).map(math.exp)
deltas = st.floats(math.log(1e-15), math.log(0.3)).map(math.exp)
share_lists = st.lists(st.floats(0.01, 1), min_size=1, max_size=9)


def exact_delta(epsilon: float, noise_stddev: float) -> mpmath.mpf:
    """Φ(1/(2σ) − εσ) − e^ε Φ(−1/(2σ) − εσ) in 60 digits."""
    with mpmath.workdps(60):
        epsilon, sigma = mpmath.mpf(epsilon), mpmath.mpf(noise_stddev)
        upper, lower = 1 / (2 * sigma) - epsilon * sigma, -1 / (2 * sigma) - epsilon * sigma
        return mpmath.ncdf(upper) - mpmath.exp(epsilon) * mpmath.ncdf(lower)


@pytest.mark.parametrize(
    ("epsilon", "delta", "limits", "lengths", "sigma", "sigma_k", "thresholds"),
    [
        (3, math.exp(-10), [100], 1, 1.33279, 1.33279, [6.82366]),
        (1, 1e-5, [100], 1, 3.88414, 3.88414, [20.78974]),
        (1, 1e-7, [10], 6, 4.80870, 11.77886, [67.8177]),
        (4, 1e-7, [100, 300], 9, 1.32790, 3.98371, [24.4381, 25.0851]),
    ],
)
def test_the_table_of_constants(epsilon, delta, limits, lengths, sigma, sigma_k, thresholds):
    noise = gaussian_noise_stddev(epsilon=epsilon, delta=delta / 2)
    assert noise == pytest.approx(sigma, abs=0.6e-5)
    split = split_noise_stddev(noise, growth_shares(1.0, lengths))
    assert split == pytest.approx([sigma_k] * lengths, abs=1e-5)
    for limit, threshold in zip(limits, thresholds, strict=True):
        found = vocabulary_threshold(
            noise_stddev=split[0], delta=delta / 2, max_contributions=limit
        )
        assert found == pytest.approx(threshold, abs=0.6e-4 if lengths > 1 else 0.6e-5)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_noise_gives_delta_to_nine_digits(epsilon):
    for delta in DELTAS:
        noise = gaussian_noise_stddev(epsilon=epsilon, delta=delta)
        assert float(abs(exact_delta(epsilon, noise) / delta - 1)) < 1e-9, delta


@given(epsilons, st.floats(math.log(0.05), math.log(300)).map(math.exp))
def test_delta_is_right_to_nine_digits(epsilon, noise_stddev):
    exact = exact_delta(epsilon, noise_stddev)
    # Below, the exact value has lost digits.
    assume(exact > 1e-250)
    found = gaussian_delta(epsilon=epsilon, noise_stddev=noise_stddev)
    assert float(abs(found / exact - 1)) < 1e-9


@given(st.floats(1e-2, 300))
def test_delta_at_epsilon_zero_is_the_total_variation(noise_stddev):
    found = gaussian_delta(epsilon=0.0, noise_stddev=noise_stddev)
    assert found == pytest.approx(math.erf(0.5 / noise_stddev / math.sqrt(2)), rel=1e-12)


@given(epsilons, deltas)
def test_noise_epsilon_and_delta_are_inverse(epsilon, delta):
    noise = gaussian_noise_stddev(epsilon=epsilon, delta=delta)
    assert gaussian_delta(epsilon=epsilon, noise_stddev=noise) == pytest.approx(delta, rel=1e-9)
    assert gaussian_epsilon(delta=delta, noise_stddev=noise) == pytest.approx(epsilon, rel=1e-6)


@given(epsilons, deltas, st.floats(1.001, 3))
def test_more_noise_is_more_private(epsilon, delta, factor):
    noise = gaussian_noise_stddev(epsilon=epsilon, delta=delta)
    assert gaussian_delta(epsilon=epsilon, noise_stddev=noise * factor) < delta
    assert gaussian_delta(epsilon=epsilon, noise_stddev=noise / factor) > delta
    assert gaussian_noise_stddev(epsilon=epsilon * factor, delta=delta) < noise
    assert gaussian_noise_stddev(epsilon=epsilon, delta=delta / factor) > noise


def test_noise_that_is_private_at_epsilon_zero_needs_no_epsilon():
    assert gaussian_epsilon(delta=0.5, noise_stddev=10.0) == 0.0


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_impossible_budgets_and_noise_are_refused_by_name(value):
    with pytest.raises(ValueError, match="`epsilon` must be"):
        gaussian_noise_stddev(epsilon=value, delta=1e-5)
    with pytest.raises(ValueError, match="`delta` must be"):
        gaussian_noise_stddev(epsilon=1, delta=value)
    with pytest.raises(ValueError, match="`noise_stddev` must be"):
        gaussian_epsilon(delta=1e-5, noise_stddev=value)
    with pytest.raises(ValueError, match="`delta` must be"):
        gaussian_epsilon(delta=value, noise_stddev=1)


@given(st.floats(0.1, 100), share_lists)
def test_splitting_and_composing_noise_are_inverse(noise_stddev, parts):
    shares = [part / sum(parts) for part in parts]
    split = split_noise_stddev(noise_stddev, shares)
    assert math.fsum(each**-2 for each in split) ** -0.5 == pytest.approx(noise_stddev, rel=1e-12)
    assert min(split) >= noise_stddev * (1 - 1e-12)


@given(st.floats(0.3, 3), st.integers(1, 20), st.floats(0.5, 20))
def test_growth_shares_sum_to_one_and_give_geometric_noise(growth, lengths, noise_stddev):
    shares = growth_shares(growth, lengths)
    assert len(shares) == lengths
    assert math.fsum(shares) == pytest.approx(1, abs=1e-14)
    split = split_noise_stddev(noise_stddev, shares)
    for before, after in itertools.pairwise(split):
        assert after == pytest.approx(growth * before, rel=1e-10)


@pytest.mark.parametrize(
    "parameters",
    [
        {"epsilon": 1, "delta": 1e-7, "max_length": 6},
        {"epsilon": 4, "delta": 1e-7, "max_length": 9, "noise_growth": 0.8},
        {"epsilon": 8, "delta": 1e-5, "max_length": 3, "budget_shares": (0.5, 0.3, 0.2)},
        {"epsilon": 0.2, "delta": 1e-9, "max_length": 2, "vocabulary_delta_share": 0.1},
    ],
)
def test_dp_accounting_agrees_on_the_composed_mechanism(parameters):
    """dp-accounting composes the plan's mechanisms, one by one, between two of its estimates."""
    plan = NgramsPlan(**parameters, strategy="one_round")
    assert_accountant_agrees(plan, [length.noise_stddev for length in plan.lengths])


@pytest.mark.parametrize(("epsilon", "delta"), [(1, 1e-7), (4, 1e-7), (0.2, 1e-9)])
def test_dp_accounting_agrees_on_the_budget_of_a_user(epsilon, delta):
    """One user's budget is that of one Gaussian mechanism."""
    plan = NgramsPlan(epsilon=epsilon, delta=delta, max_length=4)
    assert_accountant_agrees(plan, [(plan.allotment / 2**56) ** -0.5])


def assert_accountant_agrees(plan, noise_stddevs):
    """Mechanisms of sensitivity 1 with these noises, and that of numbers of users beside them,
    spend ε and δ_G together, and no more."""
    noise_stddevs = [*noise_stddevs, plan.count_noise]
    found = []
    for pessimistic in (False, True):
        losses = [
            privacy_loss_distribution.from_gaussian_mechanism(
                standard_deviation=noise_stddev,
                value_discretization_interval=1e-4 * plan.epsilon,
                pessimistic_estimate=pessimistic,
            )
            for noise_stddev in noise_stddevs
        ]
        whole = losses[0]
        for loss in losses[1:]:
            whole = whole.compose(loss)
        found.append(whole.get_epsilon_for_delta(plan.gaussian_delta))
    assert found[0] <= plan.gaussian_epsilon <= found[1]
    assert plan.gaussian_epsilon < plan.epsilon
    assert found[1] - found[0] < 2e-3 * plan.epsilon


@given(st.floats(0.01, 20), st.floats(math.log(1e-12), math.log(0.1)).map(math.exp))
def test_dp_accounting_agrees_on_one_gaussian_mechanism(epsilon, delta):
    noise = gaussian_noise_stddev(epsilon=epsilon, delta=delta)
    assert dp_accounting.get_sigma_gaussian(epsilon, delta) == pytest.approx(noise, rel=1e-5)


def test_a_wrong_parameter_is_refused_before_the_parts_of_scipy_are_loaded():
    code = """
import sys
from beam_dpne import NgramsPlan
try:
    NgramsPlan(epsilon=-1, delta=1e-7)
except ValueError:
    assert not {"scipy.special", "scipy.optimize"} & set(sys.modules)
else:
    raise AssertionError("the plan was accepted")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
