"""The released function of a count: against mpmath's derivatives, and the mechanism's own values."""

import mpmath
import numpy as np
import pytest

from beam_dpne.bayesian.links import Counts, DecayedLogs
from beam_dpne.bayesian.log_global import gram_bound, grid_bits, grid_values


@pytest.mark.parametrize("decay", [0.001, 0.01, 0.5, 3.0])
@pytest.mark.parametrize("max_count", [1, 7])
def test_derivatives_are_those_of_the_function(decay, max_count):
    def value(log):
        count = mpmath.exp(log)
        return min(mpmath.mpf(1), decay * count / max_count) * mpmath.log1p(count)

    logs = np.array([-8.0, -1.0, 0.3, 2.0, 5.0, 9.0])
    # At the bend there is no derivative.
    logs = logs[np.abs(np.exp(logs) * decay / max_count - 1) > 1e-3]
    found = DecayedLogs(decay=decay, max_count=max_count)(logs)
    for order, column in enumerate(found[:3]):
        wanted = [float(mpmath.diff(value, log, order)) for log in logs.tolist()]
        assert column == pytest.approx(wanted, rel=1e-5), order


def test_values_are_those_that_the_mechanism_releases_of_users_with_one_count_each():
    counts = np.array([1, 3, 40, 99, 100, 101, 5000])
    values = grid_values(counts, counts, max_count=1, decay=0.01)
    step = 2.0 ** -grid_bits(gram_bound(max_count=1, decay=0.01))
    link = DecayedLogs(decay=0.01, max_count=1)
    assert link(np.log(counts)).values == pytest.approx(values * step, abs=step)
    assert link.counts(values * step) == pytest.approx(counts, rel=0.03)


@pytest.mark.parametrize("link", [Counts(), DecayedLogs(decay=0.02, max_count=2)])
def test_counts_are_the_inverse(link):
    counts = np.array([0.0, 0.5, 1.0, 30.0, 99.0, 101.0, 1e6])
    with np.errstate(divide="ignore"):
        values = np.where(counts > 0, link(np.log(counts)).values, 0.0)
    assert link.counts(values) == pytest.approx(counts, rel=1e-9)
    assert link.counts(np.array([-5.0])).tolist() == [0.0]


def test_extreme_logarithms_have_finite_values():
    found = DecayedLogs(decay=1e-6, max_count=2**20)(np.array([-700.0, -60.0, 60.0, 700.0]))
    assert all(np.isfinite(column).all() for column in found)


@pytest.mark.parametrize("spread", [0.01, 0.3])
def test_expectations_are_those_of_lognormal_counts_to_first_order(spread):
    link = DecayedLogs(decay=0.001, max_count=1)
    logs = np.array([-1.0, 0.5, 2.0, 4.0])
    draws = np.random.default_rng(1).normal(-spread / 2, spread**0.5, (400_000, 1))
    drawn = link(logs + draws).values
    wanted, error = drawn.mean(axis=0), drawn.std(axis=0) / 400_000**0.5
    found = link(logs).expected(np.full(4, spread))
    assert (np.abs(found - wanted) < 5 * error + 0.5 * spread**2 * wanted).all()
    assert (np.abs(link(logs).values - wanted) > 5 * error).any()
    assert (Counts()(logs).expected(np.full(4, spread)) == np.exp(logs)).all()
