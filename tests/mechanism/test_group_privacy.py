"""What is guaranteed to groups of users, against plain numerics and another implementation."""

import functools
import itertools
import json
import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_mechanism
from scipy import special

from beam_dpne import NgramsPlan
from beam_dpne.bayesian.plan import ProbabilitiesPlan
from beam_dpne.mechanism.gaussian import (
    SIZES,
    GaussianNoise,
    GroupGuarantee,
    gaussian_delta,
    group_delta,
    group_sizes,
)
from beam_dpne.set_union.plan import POLICIES, SetUnionPlan
from tests.support.releases import ledger_of

BUDGET = {"epsilon": 1, "delta": 1e-7}
PLANS = [
    NgramsPlan(**BUDGET, max_length=2, strategy="one_round"),
    NgramsPlan(**BUDGET, max_length=2),
    SetUnionPlan(**BUDGET),
    ProbabilitiesPlan(**BUDGET),
]
BUDGETS = list(itertools.product((0.01, 0.1, 1.0, 4.0, 10.0), (1e-12, 1e-7, 1e-3)))


@functools.cache
def noise_of(epsilon: float, delta: float) -> GaussianNoise:
    plan = NgramsPlan(epsilon=epsilon, delta=delta, max_tokens_per_user=1000, strategy="one_round")
    return GaussianNoise(plan.gaussian_epsilon, plan.gaussian_delta, 1 / plan.noise_stddev)


def row_of(noise: GaussianNoise, users: int) -> GroupGuarantee:
    rows = group_sizes(epsilon=noise.epsilon, delta=noise.delta, gaussian=noise)
    return {row.users: row for row in rows}[users]


@pytest.mark.parametrize("users", [1, *SIZES])
def test_the_delta_of_a_group_is_that_of_one_user_after_another(users):
    """Each user more: P ≤ e^ε P' + δ, put into itself."""
    for epsilon, delta in BUDGETS:
        expected = 0.0
        for _ in range(users):
            expected = math.exp(epsilon) * expected + delta
        found = group_delta(epsilon=epsilon, delta=delta, users=users)
        assert found == pytest.approx(min(1.0, expected), rel=1e-12), (epsilon, delta)


def test_the_bound_of_a_group_is_reached_by_some_mechanism():
    """Chain of worlds 0, …, g over g + 2 outcomes: the worst that (ε, δ) allows, built by hand.

    World j gives the outcome "seen" the largest probability that world j − 1 allows.
    """
    epsilon, delta = 0.5, 1e-3
    seen = [0.0]
    for _ in range(10):
        seen.append(math.exp(epsilon) * seen[-1] + delta)
    for before, after in itertools.pairwise(seen):
        assert after <= math.exp(epsilon) * before + delta + 1e-15
        # The complement, and both the other way round, are easier.
        assert 1 - before <= math.exp(epsilon) * (1 - after) + delta
    for users in SIZES:
        needed = seen[users] - math.exp(users * epsilon) * seen[0]
        assert group_delta(epsilon=epsilon, delta=delta, users=users) == pytest.approx(needed)
        # What the ledger said before, g·ε with δ as it was, is broken by this mechanism.
        assert needed > delta * users


EXTREMES = [
    (1e-300, 1e-7, 10, 1e-6),
    (800.0, 1e-300, 2, 1.0),
    (700.0, 1e-7, 10, 1.0),
    (1e308, 1e-7, 10, 1.0),
    (1e308, 1e-7, 1, 1e-7),
]


def test_extreme_budgets_neither_overflow_nor_lose_digits():
    for epsilon, delta, users, expected in EXTREMES:
        found = group_delta(epsilon=epsilon, delta=delta, users=users)
        assert found == pytest.approx(expected), (epsilon, delta, users)


@pytest.mark.parametrize("users", SIZES)
def test_the_gaussian_curve_of_a_group_is_that_of_dp_accounting(users):
    for epsilon, delta in BUDGETS:
        noise = noise_of(epsilon, delta)
        other = privacy_loss_mechanism.GaussianPrivacyLoss(
            standard_deviation=1 / noise.mu, sensitivity=users
        )
        row = row_of(noise, users)
        found = row.gaussian_delta
        expected = other.get_delta_for_epsilon(users * noise.epsilon)
        assert found == pytest.approx(expected, rel=1e-6), (epsilon, delta)
        expected = other.get_delta_for_epsilon(row.gaussian_epsilon)
        assert expected == pytest.approx(noise.delta, rel=1e-6), (epsilon, delta)


def test_the_gaussian_curve_costs_more_than_one_user_and_less_than_any_mechanism_might():
    for (epsilon, delta), users in itertools.product(BUDGETS, SIZES):
        noise = noise_of(epsilon, delta)
        exact = row_of(noise, users).gaussian_delta
        general = group_delta(epsilon=noise.epsilon, delta=noise.delta, users=users)
        assert noise.delta < exact <= general, (epsilon, delta, users)
        assert row_of(noise, users).gaussian_epsilon > users * noise.epsilon


def test_users_who_spend_in_different_rounds_and_directions_cost_no_more_than_g_times_mu():
    """Minkowski, in numbers: random budgets of μ² each, over rounds and coordinates."""
    generator = np.random.default_rng(5)
    for users in SIZES:
        spent = generator.normal(size=(users, 6, 4))
        spent /= np.sqrt((spent**2).sum(axis=(1, 2), keepdims=True))
        assert np.sqrt((spent.sum(axis=0) ** 2).sum()) <= users
        same = np.broadcast_to(spent[:1], spent.shape)
        assert np.sqrt((same.sum(axis=0) ** 2).sum()) == pytest.approx(users)


@pytest.mark.parametrize("users", SIZES)
def test_a_word_of_one_persons_ids_may_pass_the_threshold_that_hides_one_users(users):
    """One round, one word, g ids: its exact probability of release is above δ_T, below δ of g."""
    plan = NgramsPlan(
        epsilon=2, delta=1e-6, max_length=1, max_contributions=1, strategy="one_round"
    )
    (length,) = plan.lengths

    def released(ids: int) -> float:
        return float(special.ndtr((ids - length.threshold) / length.noise_stddev))

    assert released(1) <= plan.vocabulary_delta * (1 + 1e-9)
    assert released(users) > 5 * plan.vocabulary_delta
    assert released(users) <= group_delta(epsilon=2, delta=1e-6, users=users)
    assert "only the g ids of one person" in ledger_of(PLANS[0])["groups"]["held_by_a_group_alone"]


def sizes_of(said) -> dict[int, dict]:
    return {row["users"]: row for row in said["groups"]["sizes"]}


def test_no_ledger_says_that_delta_stays():
    for said in map(ledger_of, PLANS):
        text = json.dumps(said)
        assert "epsilon grows to g * epsilon" not in text
        assert "(exp(g * epsilon) - 1) / (exp(epsilon) - 1)" in said["groups"]["statement"]
        assert "both epsilon and delta grow" in said["groups"]["statement"]
        assert any("groups" in line for line in said["not_protected"])
        for users, row in sizes_of(said).items():
            epsilon, delta = said["guarantee"]["epsilon"], said["guarantee"]["delta"]
            assert row["epsilon"] == users * epsilon
            assert row["delta"] == group_delta(epsilon=epsilon, delta=delta, users=users) > delta
            assert set(row) == set(said["meanings"]["groups"])


def test_the_gaussian_numbers_of_a_ledger_follow_from_what_it_says_was_spent():
    """As a reviewer would check them, from the ledger alone."""
    for said in map(ledger_of, PLANS[:2]):
        spent = said["spent"]
        for users, row in sizes_of(said).items():
            stddev = spent["composed_noise_stddev"] / users
            assert row["gaussian_mu"] == pytest.approx(1 / stddev)
            for epsilon, delta in (
                (
                    users * 0.999 * said["guarantee"]["epsilon"],
                    "gaussian_delta",
                ),
                (row["gaussian_epsilon"], None),
            ):
                expected = spent["gaussian_delta"] if delta is None else row[delta]
                found = gaussian_delta(epsilon=epsilon, noise_stddev=stddev)
                assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("count_share", [0, 0.2])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_set_union_says_which_noise_a_group_sees(policy, count_share):
    said = ledger_of(SetUnionPlan(**BUDGET, policy=policy, count_share=count_share))
    groups = said["groups"]
    assert "gaussian_noise" in groups
    assert "that of items" in groups["held_by_a_group_alone"]
    for users, row in sizes_of(said).items():
        mechanism = said["mechanism"]
        mu = mechanism["sensitivity"] / mechanism["composed_noise_scale"]
        assert row["gaussian_mu"] == pytest.approx(users * mu)
        epsilon = users * 0.999 * said["guarantee"]["epsilon"]
        expected = gaussian_delta(epsilon=epsilon, noise_stddev=1 / (users * mu))
        assert row["gaussian_delta"] == pytest.approx(expected, rel=1e-6)


def test_probabilities_have_gaussian_noise_alone():
    plan = PLANS[-1]
    said = ledger_of(plan)
    assert "held_by_a_group_alone" not in said["groups"]
    assert sizes_of(said)[2]["gaussian_mu"] == 2 * plan.sensitivity / plan.noise_stddev


def test_what_is_too_large_for_a_number_is_null():
    row = group_sizes(epsilon=1e308, delta=1e-7, gaussian=GaussianNoise(1e308, 1e-7, 1.0))[-1]
    assert (row.users, row.epsilon, row.delta) == (10, None, 1.0)
    assert row.gaussian_delta is None
    json.dumps(row, allow_nan=False)


@pytest.mark.parametrize("policy", POLICIES)
def test_plans_of_every_policy_have_numbers_that_are_finite(policy):
    for epsilon in (0.05, 8.0):
        plan = SetUnionPlan(epsilon=epsilon, delta=1e-7, policy=policy)
        rows = sizes_of(ledger_of(plan)).values()
        assert all(math.isfinite(value) for row in rows for value in row.values())
