"""Roots: the digits of scipy's method, without loading it."""

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import optimize, special

from beam_dpne.mechanism.roots import find_root

FUNCTIONS = {
    "square": lambda x: x * x - 2,
    "steep": lambda x: math.tanh(50 * (x - 0.7)),
    "tail": lambda x: math.log(special.ndtr(-x)) + 12.5,
    "kink": lambda x: x - 1.1 if x < 1.1 else 30 * (x - 1.1),
    "rational": lambda x: 1 / (x + 0.1) - 1.7,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("tolerance", [1e-14, 1e-13, 1e-4])
def test_roots_have_the_digits_of_scipy(name, tolerance):
    function = FUNCTIONS[name]
    rng = np.random.default_rng(6)
    compared = 0
    for low, high in zip(rng.uniform(0, 1.2, 200), rng.uniform(1.2, 9, 200), strict=True):
        if function(low) * function(high) >= 0:
            continue
        expected = optimize.brentq(function, low, high, xtol=tolerance)
        assert find_root(function, low, high, tolerance=tolerance) == expected
        compared += 1
    assert compared > 20


def test_values_whose_products_are_zero_lead_to_bisections():
    root = find_root(lambda x: 1e-120 * (x - 0.3) ** 3, -1.0, 1.0, tolerance=1e-9)
    assert root == pytest.approx(0.3, abs=1e-6)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 0.0)])
def test_a_root_at_an_end_is_found(low, high):
    assert find_root(lambda x: x, low, high, tolerance=1e-9) == 0.0


def test_functions_without_a_change_of_sign_are_refused():
    with pytest.raises(ValueError, match="different signs"):
        find_root(lambda x: x * x + 1, -1, 1, tolerance=1e-9)


def test_values_that_are_no_numbers_are_refused():
    with pytest.raises(ValueError, match="NaN"):
        find_root(lambda x: math.nan if abs(x) < 0.9 else x, -1.0, 1.0, tolerance=1e-9)


def test_a_root_that_takes_too_many_steps_is_refused():
    with pytest.raises(ValueError, match="100 steps"):
        find_root(lambda x: (x - 1.3) ** 9, 0.0, 2.0, tolerance=1e-14)


def test_a_plan_is_made_without_scipys_optimizers():
    code = (
        "import sys; from beam_dpne import PrivacyPlan; PrivacyPlan(epsilon=1, delta=1e-7); "
        "assert 'scipy.special' in sys.modules; assert 'scipy.optimize' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
