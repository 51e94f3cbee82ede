"""Lower bounds on ε and μ: exact confidence limits, power, and how often they are wrong."""

import numpy as np
import pytest
from scipy import stats

from beam_dpne.audit.auditing import lower_bound, probability_bounds
from beam_dpne.audit.games import Claim, Seen

MU = 0.8


CLAIM = Claim(mu=MU, gaussian_delta=0.01)


def normal_worlds(runs, mu, seed):
    rng = np.random.default_rng(seed)
    return Seen(rng.standard_normal((runs, 1)) + mu, rng.standard_normal((runs, 1)))


@pytest.mark.parametrize(("hits", "false_hits"), [(0, 0), (1, 0), (37, 5), (99, 99), (100, 100)])
def test_limits_of_probabilities_are_those_of_clopper_and_pearson(hits, false_hits):
    likely, rare = (np.arange(100) >= 100 - count for count in (hits, false_hits))
    low, high = probability_bounds(
        likely.astype(float), rare.astype(float), np.array([1.0]), error=0.01
    )
    expected = [
        stats.binomtest(count, 100).proportion_ci(confidence_level=0.98, method="exact")
        for count in (hits, false_hits)
    ]
    assert low[0] == pytest.approx(expected[0].low, abs=1e-12)
    assert high[0] == pytest.approx(expected[1].high, abs=1e-12)


def test_bounds_of_known_normal_laws_are_below_the_truth_and_close_to_it():
    bound = lower_bound(normal_worlds(100_000, MU, seed=1), CLAIM, failure=2e-3)
    assert 0.8 * CLAIM.epsilon < bound.epsilon < CLAIM.epsilon
    assert 0.9 * CLAIM.epsilon < bound.gaussian_epsilon < CLAIM.epsilon


def test_the_bound_of_gaussian_noise_sees_what_a_tiny_delta_hides_from_the_other():
    claim = Claim.of_plan(4.0, 1e-7)
    assert claim.epsilon == pytest.approx(4.0)
    right = lower_bound(normal_worlds(20_000, claim.mu, seed=2), claim, failure=1e-3)
    half = lower_bound(normal_worlds(20_000, 2 * claim.mu, seed=3), claim, failure=1e-3)
    assert right.epsilon < 2
    assert 2.8 < right.gaussian_epsilon < 4.0
    assert half.epsilon < 4.0 < half.gaussian_epsilon


def test_both_directions_count():
    """With the user a statistic is always 1; without it is 0 or 1, so that 0 excludes the user."""
    with_user, without = np.ones((10_000, 1)), np.ones((10_000, 1))
    without[::2] = 0
    assert lower_bound(Seen(with_user, without), CLAIM, failure=1e-3).epsilon > 5
    # Larger values speak for the user, so nothing is shown the other way round.
    assert lower_bound(Seen(-with_user, -without), CLAIM, failure=1e-3).epsilon == 0


def test_what_one_user_alone_has_may_be_released_with_its_share_of_delta():
    """An event has probability 0.02 with the user, and 0 without: 0.03 are allowed, 0.001 are not."""
    with_user, without = np.zeros((20_000, 1)), np.zeros((20_000, 1))
    with_user[::50] = 1
    for allowed, is_shown in ((0.03, False), (0.001, True)):
        claim = Claim(mu=MU, gaussian_delta=1e-9, alone_delta=allowed)
        bound = lower_bound(Seen(with_user, without), claim, failure=1e-3)
        assert (bound.gaussian_epsilon > 0) == is_shown
        assert (bound.epsilon > 0) == is_shown


def test_bounds_are_above_the_truth_as_rarely_as_they_promise():
    """Correct limits would fail this test with probability 1e-6 at most at random seeds."""
    claim = Claim(mu=MU, gaussian_delta=0.05)

    def wrong(seeds, failure):
        bounds = [
            lower_bound(normal_worlds(300, MU, seed), claim, failure=failure) for seed in seeds
        ]
        return [
            sum(found > claim.epsilon for found in column) for column in zip(*bounds, strict=True)
        ]

    of_hundred = wrong([(5, seed) for seed in range(100)], 0.4)
    assert max(of_hundred) <= stats.binom.isf(1e-6, 100, 0.2)
    # The limits are not idle either: at a failure of nearly 1 they are wrong now and then.
    assert wrong([(6, seed) for seed in range(40)], 7.8)[1] > 0
