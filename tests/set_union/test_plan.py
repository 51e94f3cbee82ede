"""The plan of a set union: what it refuses, its noise and thresholds against independent formulas."""

import dataclasses
import json
import math
import subprocess
import sys

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as distributions
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from beam_dpne.counts.rule import MOST_TOTALS
from beam_dpne.mechanism import gaussian as calibration
from beam_dpne.mechanism import thresholds
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.set_union.policies import (
    CUTOFF_POLICIES,
    DEFAULT_POLICY,
    DESCENT_POLICIES,
    GAUSSIAN_POLICIES,
    LAPLACE_POLICIES,
    MAD2R_DELTA_SHARES,
    MAD2R_SHARES,
    POLICIES,
    SCREENING_DELTA_SHARES,
    SCREENING_SHARES,
    SIPS_SHARES,
    update_policy,
)
from tests.support.refusals import not_refused

GOOD = {"epsilon": 1.0, "delta": 1e-6}
E10 = math.exp(-10)
NOT_NUMBERS = ("1", None, True, [1.0], math.nan, math.inf)
NOT_COUNTS = ("3", 2.5, 2.0, True, None, 0, -1)

BAD = [
    *(("epsilon", value) for value in (*NOT_NUMBERS, 0, -1)),
    *(("delta", value) for value in (*NOT_NUMBERS, 0, 1, 2, 1e-21)),
    *(("policy", value) for value in ("weighted", "rounds", "", None, 1, ["mad"])),
    *(("adjacency", value) for value in ("replace_one_user", None)),
    *(("max_contributions", value) for value in (*NOT_COUNTS, 10**8)),
    *(("max_items_per_user", value) for value in NOT_COUNTS),
    *(("max_users", value) for value in (*NOT_COUNTS, 2**31)),
    *(("max_shard_users", value) for value in NOT_COUNTS),
    *(("shards", value) for value in ("3", 2.5, True, 0, -1, 2**17)),
    *(("cutoff_margin", value) for value in ("1", True, [1.0], math.nan, math.inf, -0.1, 1e6)),
    *(("count_share", value) for value in ("x", True, math.nan, math.inf, -0.1, 1e-9, 0.95, 1)),
    *(("vocabulary_delta_share", value) for value in ("x", True, math.nan, 0, 1, -0.1, 1.5)),
]


def test_a_bad_value_is_refused_by_its_parameters_name():
    good = {**GOOD, "policy": "policy_gaussian"}
    assert not_refused(SetUnionPlan, [({**good, name: value}, name) for name, value in BAD]) == []


@pytest.mark.parametrize("policy", POLICIES)
def test_options_of_other_policies_are_refused(policy):
    owners = {
        "shards": (DESCENT_POLICIES, 4),
        "cutoff_margin": (CUTOFF_POLICIES, 3.0),
        "vocabulary_delta_share": (GAUSSIAN_POLICIES, 0.3),
    }
    for name, (policies, value) in owners.items():
        if policy in policies:
            assert getattr(SetUnionPlan(**GOOD, policy=policy, **{name: value}), name) == value
        else:
            with pytest.raises(ValueError, match=f"{name} must not be given with policy"):
                SetUnionPlan(**GOOD, policy=policy, **{name: value})


def test_every_policy_has_one_kind_of_noise():
    assert sorted((*LAPLACE_POLICIES, *GAUSSIAN_POLICIES)) == sorted(POLICIES)
    assert DEFAULT_POLICY in POLICIES
    assert SetUnionPlan(**GOOD).policy == DEFAULT_POLICY


def test_a_long_sequence_is_refused_by_the_two_promises_alone():
    for policy in DESCENT_POLICIES:
        with pytest.raises(
            ValueError, match=r"max_shard_users .* max_users/shards=10000000, .*5000"
        ):
            SetUnionPlan(**GOOD, policy=policy, shards=1)
        assert SetUnionPlan(**GOOD, policy=policy, shards=1, max_users=5_000_000).shard_count == 1
        assert SetUnionPlan(**GOOD, policy=policy, shards=1, max_shard_users=10**7).shard_count == 1
        assert SetUnionPlan(**GOOD, policy=policy).shard_count == 2
        assert SetUnionPlan(**GOOD, policy=policy, max_users=4 * 10**7).shard_count == 8
        with pytest.raises(ValueError, match=r"max_shard_users .*=125000000, .* policy='sips'"):
            SetUnionPlan(**GOOD, policy=policy, max_users=10**9)
        assert SetUnionPlan(**GOOD, policy=policy, max_users=10**4).shard_count == 1
        fewer = SetUnionPlan(**GOOD, policy=policy, max_shard_users=2 * 10**6)
        assert fewer.shard_count == 5
        assert fewer.shards is None
        with pytest.raises(ValueError, match="max_shard_users"):
            SetUnionPlan(**GOOD, policy=policy, shards=3, max_users=31, max_shard_users=10)
    assert SetUnionPlan(**GOOD, policy="mad", max_users=10**8).shard_count == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_json_gives_back_the_plan(policy):
    plan = SetUnionPlan(epsilon=2, delta=1e-5, policy=policy, max_contributions=7)
    assert SetUnionPlan.from_json(plan.to_json()) == plan
    assert json.loads(plan.to_json()) == plan.to_dict()
    assert len({plan, dataclasses.replace(plan)}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.epsilon = 1.0


NO_PLANS = [
    ({"text": "["}, "JSON object"),
    ({"text": "3"}, "JSON object"),
    ({"text": '{"epsilon": 1}'}, "delta"),
    ({"text": '{"epsilon": 1, "delta": 0.1, "tau": 1}'}, "'tau'"),
]


def test_what_is_no_plan_is_refused():
    assert not_refused(SetUnionPlan.from_json, NO_PLANS) == []


@pytest.mark.parametrize("policy", POLICIES)
def test_the_report_is_json_of_public_numbers_of_the_plan(policy):
    plan = SetUnionPlan(**GOOD, policy=policy)
    report = plan.report()
    assert json.loads(json.dumps(report)) == report
    assert report["noise_scale"] == plan.noise.scale
    assert report["rounds"][-1]["threshold"] == plan.threshold
    assert len(report["rounds"]) == len(plan.union_rounds)


def test_the_constants_of_the_papers():
    """algorithms of Gopi et al. at ε = 3, δ = e^-10, Δ = 100, to all printed digits."""
    weighted = SetUnionPlan(epsilon=3, delta=E10, policy="weighted_gaussian", count_share=0)
    assert (weighted.noise.scale, weighted.threshold) == pytest.approx((1.33279, 6.82366), abs=5e-6)
    other = SetUnionPlan(epsilon=1, delta=1e-5, policy="weighted_gaussian", count_share=0)
    assert (other.noise.scale, other.threshold) == pytest.approx((3.88414, 20.78974), abs=5e-6)
    laplace = SetUnionPlan(epsilon=3, delta=E10, policy="weighted_laplace", count_share=0)
    assert (laplace.noise.scale, laplace.threshold) == pytest.approx((1 / 3, 4.64733), abs=5e-6)
    policy = SetUnionPlan(
        epsilon=3, delta=E10, policy="policy_laplace", cutoff_margin=5, count_share=0
    )
    assert (policy.threshold, policy.cutoff) == pytest.approx((4.64733, 4.64733 + 5 / 3), abs=2e-5)
    gaussian = SetUnionPlan(
        epsilon=3, delta=E10, policy="policy_gaussian", cutoff_margin=5, count_share=0
    )
    assert gaussian.cutoff == pytest.approx(6.82366 + 5 * 1.33279, abs=2e-5)


PUBLIC = [(3.0, E10, 100), (0.3, 1e-7, 1), (1.0, 1e-2, 20), (8.0, 1e-9, 7), (2.0, 0.3, 300)]


@pytest.mark.parametrize("policy", POLICIES)
def test_each_threshold_is_the_largest_over_t_by_an_independent_search(policy):
    """The least ρ with P(any of t items of one user alone > ρ) ≤ δ_T, t = 1..Δ, in 40 digits."""
    shares = [share.delta for share in update_policy(policy).rounds]
    for epsilon, delta, limit in PUBLIC:
        plan = SetUnionPlan(
            epsilon=epsilon, delta=delta, policy=policy, max_contributions=limit, max_users=10**6
        )
        for decider, share in zip(plan.union_rounds, shares, strict=True):
            worst = max(
                chance_of_any(policy, decider.noise, decider.threshold, held)
                for held in range(1, limit + 1)
            )
            allowed = plan.vocabulary_delta * share
            if policy == "mad2r" and decider.number == 2:
                # The threshold is for uneven weights, and even ones are among them.
                assert worst <= allowed
                assert worst > 0.97 * allowed or decider.threshold == 2 * plan.sensitivity
            else:
                assert worst == pytest.approx(allowed, rel=1e-9), epsilon


def chance_of_any(policy: str, noise, threshold: float, held: int) -> float:
    """P(some of t items > ρ), each with the weight that the policy can give it at most."""
    with mpmath.workdps(40):
        if policy.startswith("count"):
            weights = [(1, held)]
        elif policy == "greedy":
            weights = [(1, 1), (0, held - 1)]
        elif noise.kind == "laplace":
            weights = [(mpmath.mpf(1) / held, held)]
        else:
            weights = [(1 / mpmath.sqrt(held), held)]
        missed = mpmath.mpf(1)
        for weight, number in weights:
            missed *= (
                1 - tail((mpmath.mpf(threshold) - weight) / noise.scale, noise.kind)
            ) ** number
        return float(1 - missed)


def tail(x: mpmath.mpf, kind: str) -> mpmath.mpf:
    """P(noise of scale 1 > x)."""
    if kind == "gaussian":
        return mpmath.erfc(x / mpmath.sqrt(2)) / 2
    return mpmath.exp(-x) / 2 if x >= 0 else 1 - mpmath.exp(x) / 2


@given(st.floats(0.05, 20), st.floats(1e-12, 0.6), st.integers(1, 400))
@settings(max_examples=150, deadline=None)
def test_the_greedy_threshold_covers_every_division_of_a_budget(epsilon, delta, limit):
    scale = 1 / epsilon
    greedy = thresholds.greedy_threshold(scale=scale, delta=delta, max_contributions=limit)
    laplace = thresholds.laplace_threshold(scale=scale, delta=delta, max_contributions=limit)
    assert greedy >= max(1, laplace) * (1 - 1e-9)
    rng = np.random.default_rng(limit)
    for concentration in (0.05, 1, 50):
        weights = rng.dirichlet(np.full(limit, concentration))
        chances = stats.laplace.sf((greedy - weights) / scale)
        assert -math.expm1(np.log1p(-chances).sum()) <= delta * (1 + 1e-9)


@given(st.floats(0.05, 20), st.floats(1e-12, 0.6), st.integers(1, 400), st.floats(1, 1.5))
@settings(max_examples=150, deadline=None)
def test_the_uneven_threshold_covers_every_division_of_a_sum_of_squares(stddev, delta, limit, norm):
    given = {"noise_stddev": stddev, "delta": delta, "max_contributions": limit}
    uneven = thresholds.uneven_threshold(**given, norm=norm)
    even = thresholds.vocabulary_threshold(**given)
    assert uneven >= max(2 * norm, even) * (1 - 1e-9)
    rng = np.random.default_rng(limit)
    divisions = [rng.dirichlet(np.full(limit, alpha)) for alpha in (0.01, 0.05, 0.3, 1, 50)]
    divisions += [
        np.append(first, np.full(limit - 1, (1 - first) / max(limit - 1, 1)))
        for first in (0.2, 0.5, 0.9, 0.99)
    ]
    divisions += [np.where(np.arange(limit) < n, 1 / min(n, limit), 0) for n in (2, 3, 10)]
    for squares in divisions:
        chances = stats.norm.sf((uneven - norm * np.sqrt(squares)) / stddev)
        assert -math.expm1(np.log1p(-chances).sum()) <= delta * (1 + 1e-9)


def test_the_uneven_threshold_is_not_higher_than_it_must_be():
    """Some division reaches δ: the best of many with one larger item."""
    for stddev, delta, limit in [(1.33, 1e-5, 100), (0.5, 1e-6, 10), (4.0, 1e-7, 300)]:
        threshold = thresholds.uneven_threshold(
            noise_stddev=stddev, delta=delta, max_contributions=limit
        )
        larger = np.linspace(1 / limit, 1, 20_001)
        first, other = (
            stats.norm.sf((threshold - np.sqrt(squares)) / stddev)
            for squares in (larger, (1 - larger) / (limit - 1))
        )
        reached = np.max(-np.expm1(np.log1p(-first) + (limit - 1) * np.log1p(-other)))
        assert delta * (1 - 1e-5) < reached <= delta


def test_greedy_at_one_item_is_the_published_threshold():
    published = 1 - math.log(2 * E10) / 3
    ours = thresholds.greedy_threshold(scale=1 / 3, delta=E10, max_contributions=1)
    assert ours == pytest.approx(published, rel=1e-11)


def test_beyond_a_million_items_thresholds_are_not_below_those_of_a_million():
    for delta in (1e-9, 0.4):
        values = [
            thresholds.laplace_threshold(scale=2.0, delta=delta, max_contributions=limit)
            for limit in (10**6, 10**6 + 1, 10**7)
        ]
        assert values == sorted(values)
        needed = 1e-7 + 2 * stats.laplace.isf(-math.expm1(math.log1p(-delta) / 10**7))
        assert values[-1] == pytest.approx(needed, abs=1e-6)
        assert values[-1] >= needed


@pytest.mark.parametrize("count_share", [0, 1e-6, 0.15, 0.9])
@pytest.mark.parametrize("policy", POLICIES)
def test_noise_is_private_for_what_is_left_of_the_budget(policy, count_share):
    """The items' noise and that of the numbers of users, composed by other formulas than the plan's."""
    plan = SetUnionPlan(
        epsilon=1.5, delta=1e-6, policy=policy, max_contributions=9, count_share=count_share
    )
    epsilon = plan.gaussian_epsilon
    counts = [] if plan.count_noise is None else list(dataclasses.astuple(plan.count_noise))
    assert bool(counts) == (count_share > 0)
    if plan.noise_kind == "laplace":
        for_items = plan.sensitivity / plan.noise.scale
        assert plan.noise.stddev == pytest.approx(math.sqrt(2) * plan.noise.scale)
        assert for_items <= epsilon * (1 - count_share)
        assert for_items == pytest.approx(epsilon * (1 - count_share), rel=2e-10)
        assert plan.gaussian_delta == pytest.approx(plan.delta * count_share, rel=5e-3)
        for_counts = epsilon - for_items
    else:
        counts += [each.noise.stddev / plan.sensitivity for each in plan.union_rounds]
        for_counts = epsilon
    if counts:
        together = calibration.compose_noise_stddevs(counts)
        spent = calibration.gaussian_delta(epsilon=for_counts, noise_stddev=together)
        assert spent <= plan.gaussian_delta
        tolerance = 1e-2 if count_share == 1e-6 and plan.noise_kind == "laplace" else 1e-7
        assert spent == pytest.approx(plan.gaussian_delta, rel=tolerance)
    assert plan.gaussian_delta + plan.vocabulary_delta <= plan.delta * math.exp(
        -plan.numerical_slack
    )
    assert plan.gaussian_delta + plan.vocabulary_delta > plan.delta * 0.997


@pytest.mark.parametrize("epsilon", [0.3, 1.5, 6.0])
@pytest.mark.parametrize("count_share", [0.05, 0.5])
@pytest.mark.parametrize("policy", POLICIES)
def test_everything_that_is_drawn_is_private_by_privacy_loss_distributions(
    policy, count_share, epsilon
):
    """All noise and the items of one user alone, composed by dp_accounting, cost (ε, δ) at most."""
    plan = SetUnionPlan(epsilon=epsilon, delta=1e-5, policy=policy, count_share=count_share)
    cell = {"value_discretization_interval": 1e-3}
    whole = distributions.from_privacy_parameters(
        common.DifferentialPrivacyParameters(0, plan.vocabulary_delta), **cell
    )
    draws = [*dataclasses.astuple(plan.count_noise)]
    if plan.noise_kind == "laplace":
        (only,) = plan.union_rounds
        items = distributions.from_laplace_mechanism(
            only.noise.scale, sensitivity=plan.sensitivity, **cell
        )
        whole = whole.compose(items)
    else:
        draws += [each.noise.scale / plan.sensitivity for each in plan.union_rounds]
    for stddev in draws:
        whole = whole.compose(distributions.from_gaussian_mechanism(stddev, **cell))
    # Losses are rounded up, by half a cell for each of at most six distributions.
    spent = whole.get_delta_for_epsilon(plan.gaussian_epsilon + 3e-3)
    assert spent <= plan.delta * math.exp(-plan.numerical_slack)
    if plan.noise_kind == "gaussian":
        # Nothing is left over: with 1 % less noise the same total would be too much.
        assert whole.get_delta_for_epsilon(plan.epsilon * 0.99) > plan.delta


def test_a_share_of_the_budget_is_kept_for_numbers_of_users():
    for policy in POLICIES:
        plan = SetUnionPlan(**GOOD, policy=policy)
        assert plan.count_share == (0.07 if policy in LAPLACE_POLICIES else 0.15)
        without = SetUnionPlan(**GOOD, policy=policy, count_share=0)
        assert without.count_noise is None
        assert SetUnionPlan.from_json(without.to_json()) == without
        half = SetUnionPlan(**GOOD, policy=policy, count_share=0.5)
        factor = 2 if policy in LAPLACE_POLICIES else math.sqrt(2)
        assert half.noise.scale == pytest.approx(factor * without.noise.scale, rel=1e-4)
        assert half.numerical_slack - without.numerical_slack == pytest.approx(
            2e-12 * (10**6 + MOST_TOTALS), rel=1e-6
        )


def test_noise_on_numbers_of_users_that_leaves_integers_is_refused():
    given = {"epsilon": 1e-2, "delta": 1e-15, "policy": "weighted_laplace"}
    with pytest.raises(
        ValueError, match="count_share must be larger, or 0, with so small a budget"
    ):
        SetUnionPlan(**given, max_items_per_user=100, max_contributions=1, count_share=1e-6)
    assert SetUnionPlan(**given, count_share=0.1).count_noise.row_stddev < 1e6


def test_the_rounds_of_screening_divide_everything():
    assert sum(SCREENING_SHARES) == sum(SCREENING_DELTA_SHARES) == 1
    plan = SetUnionPlan(**GOOD, policy="screened_gaussian")
    first, second, last = plan.union_rounds
    assert first.noise.scale / second.noise.scale == pytest.approx(math.sqrt(23 / 12))
    assert first.noise.scale / last.noise.scale == pytest.approx(math.sqrt(65 / 12))
    together = calibration.compose_noise_stddevs([each.noise.scale for each in plan.union_rounds])
    once = SetUnionPlan(**GOOD, policy="policy_gaussian")
    assert together == pytest.approx(once.noise.scale, rel=1e-6)
    for own, share in zip(plan.union_rounds, SCREENING_DELTA_SHARES, strict=True):
        alone = thresholds.vocabulary_threshold(
            noise_stddev=own.noise.scale,
            delta=share * plan.vocabulary_delta,
            max_contributions=plan.contribution_limit,
        )
        assert own.threshold == pytest.approx(alone, rel=1e-12)
    assert first.cut == 0.5 * first.noise.stddev < first.threshold
    assert second.cut == 1.4 * second.noise.stddev < second.threshold
    assert last.cut is None


def test_the_rounds_of_mad2r_divide_everything():
    assert sum(MAD2R_SHARES) == sum(MAD2R_DELTA_SHARES) == 1
    plan = SetUnionPlan(**GOOD, policy="mad2r")
    first, last = plan.union_rounds
    noise = [
        each.noise.scale * math.sqrt(own)
        for each, own in zip((first, last), MAD2R_SHARES, strict=True)
    ]
    assert noise[0] == pytest.approx(noise[1])
    assert noise[0] == pytest.approx(SetUnionPlan(**GOOD, policy="mad").noise.scale, rel=1e-6)
    alone = {"max_contributions": plan.contribution_limit}
    deltas = [share * plan.vocabulary_delta for share in MAD2R_DELTA_SHARES]
    assert first.threshold == pytest.approx(
        thresholds.vocabulary_threshold(noise_stddev=first.noise.scale, delta=deltas[0], **alone)
    )
    assert last.threshold == thresholds.uneven_threshold(
        noise_stddev=last.noise.scale, delta=deltas[1], norm=plan.sensitivity, **alone
    )
    assert last.cutoff == last.threshold + 2 * last.noise.scale
    assert first.cut == first.noise.stddev


def test_the_rounds_of_sips_divide_everything_and_close_nothing():
    """Each has three times the budget of the one before; Fractions of 13 add up to 1."""
    plan = SetUnionPlan(**GOOD, policy="sips")
    assert sum(SIPS_SHARES) == 1
    assert [each.cut for each in plan.union_rounds] == [None] * 3
    first, second, last = (each.noise.scale for each in plan.union_rounds)
    assert first / second == pytest.approx(math.sqrt(3))
    assert second / last == pytest.approx(math.sqrt(3))
    together = calibration.compose_noise_stddevs([first, second, last])
    weighted = SetUnionPlan(**GOOD, policy="weighted_gaussian")
    assert together == pytest.approx(weighted.noise.scale, rel=1e-6)
    for own, share in zip(plan.union_rounds, SIPS_SHARES, strict=True):
        alone = thresholds.vocabulary_threshold(
            noise_stddev=own.noise.scale,
            delta=share * plan.vocabulary_delta,
            max_contributions=plan.contribution_limit,
        )
        assert own.threshold == pytest.approx(alone, rel=1e-12)


@pytest.mark.parametrize(
    ("policy", "expected"), [("count_laplace", 30), ("count_gaussian", 30**0.5)]
)
def test_counting_has_a_sensitivity_that_grows_with_the_limit(policy, expected):
    plan = SetUnionPlan(**GOOD, policy=policy, max_contributions=30)
    assert plan.sensitivity >= expected
    assert plan.sensitivity == pytest.approx(expected, rel=1e-15)


def test_rounding_is_in_the_sensitivity_and_grows_with_the_promise():
    for policy in ("policy_gaussian", "screened_gaussian", "mad", "mad2r"):
        bounds = []
        for users in (10, 10**6, 10**7):
            plan = SetUnionPlan(**GOOD, policy=policy, max_users=users)
            assert plan.sensitivity == 1 + plan.rounding_bound
            bounds.append(plan.rounding_bound)
        assert bounds == sorted(bounds)
        assert 1e-8 < bounds[-1] < 1e-6
        assert bounds[0] > 0
    for policy in ("policy_laplace", "greedy", "weighted_gaussian", "weighted_laplace"):
        assert SetUnionPlan(**GOOD, policy=policy).rounding_bound == 0
    one = thresholds.descent_rounding(max_contributions=100, max_users=1)
    assert one == pytest.approx(2 * (10 + 100 / 8 + 2) * 2**-50)
    one = thresholds.rerouting_rounding(max_degree=25, max_users=1)
    assert one == pytest.approx(2 * 4 * 5 * 2**-50)


def test_numerical_slack_is_that_of_the_decisions_which_may_change():
    good = {**GOOD, "count_share": 0}
    plan = SetUnionPlan(**good, policy="weighted_gaussian", max_contributions=100)
    assert plan.numerical_slack == pytest.approx(2e-12 * 100)
    assert SetUnionPlan(**good, policy="count_laplace").numerical_slack == pytest.approx(4e-10)
    sips = SetUnionPlan(**good, policy="sips", max_contributions=100)
    assert sips.numerical_slack == pytest.approx(3 * 2e-12 * 100)
    plan = SetUnionPlan(**good, policy="policy_gaussian", max_contributions=100)
    count = 100 * plan.max_users
    failure = 1e-12 * plan.delta * math.exp(-plan.epsilon)
    expected = 2 * (1e-12 * math.sqrt(2 * count * math.log(1 / failure)) + count * 1e-24)
    assert plan.numerical_slack == pytest.approx(expected)
    screened = SetUnionPlan(**good, policy="screened_gaussian", max_contributions=100)
    assert screened.numerical_slack == pytest.approx(expected * math.sqrt(3), rel=1e-6)


def test_too_much_slack_is_refused():
    with pytest.raises(ValueError, match=r"numerical slack .* max_contributions"):
        SetUnionPlan(epsilon=1e-4, delta=1e-6, policy="weighted_gaussian", max_contributions=10**6)
    with pytest.raises(ValueError, match=r"numerical slack .* max_items_per_user=1000000000"):
        SetUnionPlan(**GOOD, max_items_per_user=10**9)
    assert SetUnionPlan(**GOOD, max_items_per_user=10**9, count_share=0).threshold > 0
    with pytest.raises(ValueError, match=r"delta must be at least .* max_users"):
        SetUnionPlan(epsilon=1, delta=1e-15)
    assert SetUnionPlan(epsilon=1, delta=1e-15, max_users=10**5, max_contributions=10).threshold > 0
    assert SetUnionPlan(epsilon=1, delta=1e-15, policy="weighted_gaussian").threshold > 0


def test_items_that_are_not_looked_at_are_not_contributed():
    plan = SetUnionPlan(**GOOD, policy="count_laplace", max_contributions=50, max_items_per_user=7)
    assert plan.contribution_limit == 7
    assert plan.sensitivity == 7


@pytest.mark.parametrize("delta", [1e-5, 0.02, 0.6, 0.97])
def test_laplace_quantiles_invert_the_tail(delta):
    for held in (1, 2, 50):
        probabilities = thresholds.alone_tail(delta, np.array([float(held)]))
        (x,) = thresholds.laplace_quantiles(probabilities)
        expected = optimize.brentq(
            lambda x, held=held: float(stats.laplace.cdf(x)) ** held - (1 - delta), -10, 60
        )
        assert x == pytest.approx(expected, abs=1e-6)


def test_names_and_plans_need_no_heavy_modules():
    """Forms that launch a job list the policies, and plans are made where no pipeline runs."""
    code = "import sys"
    for module in ("policies", "plan"):
        code += f"\nimport beam_dpne.set_union.{module}\nprint(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, plans = (set(line.split()) for line in ran.stdout.splitlines())
    assert "beam_dpne.set_union.policies" in names
    assert not {"apache_beam", "pyarrow", "numpy", "scipy"} & names
    assert "beam_dpne.set_union.plan" in plans
    assert not {"apache_beam", "pyarrow", "beam_dpne.ngrams"} & plans


def test_a_policy_owns_its_parameters():
    mad = update_policy("mad", cutoff_margin=1.5)
    assert (mad.cutoff_margin, mad.shards, mad.delta_share) == (1.5, None, 0.5)
    assert update_policy("mad", cutoff_margin=None) == update_policy("mad")
    for name in POLICIES:
        assert SetUnionPlan(**GOOD, policy=name).update_policy == update_policy(name)
    with pytest.raises(dataclasses.FrozenInstanceError):
        mad.shards = 2
