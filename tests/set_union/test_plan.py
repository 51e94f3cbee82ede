"""The plan of a set union: what it refuses, its noise and thresholds against independent formulas."""

import json
import math
import subprocess
import sys

import mpmath
import pytest
from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as distributions

from beam_dpne.mechanism import thresholds
from beam_dpne.set_union.plan import (
    DESCENT_POLICIES,
    POLICIES,
    ROUNDS,
    SetUnionPlan,
)
from tests.support.arguments import not_refused

GOOD = {"epsilon": 1.0, "delta": 1e-6}
E10 = math.exp(-10)
NOT_NUMBERS = ("1", None, True, [1.0], math.nan, math.inf)
NOT_COUNTS = ("3", 2.5, 2.0, True, None, 0, -1)

BAD = [
    *(("epsilon", value) for value in (*NOT_NUMBERS, 0, -1)),
    *(("delta", value) for value in (*NOT_NUMBERS, 0, 1, 2, 1e-21)),
    *(("policy", value) for value in ("weighted", "rounds", "", None, 1, ["sips"])),
    *(("adjacency", value) for value in ("replace_one_user", None)),
    *(("max_contributions", value) for value in (*NOT_COUNTS, 10**8)),
    *(("max_items_per_user", value) for value in NOT_COUNTS),
    *(("max_users", value) for value in (*NOT_COUNTS, 2**31)),
    *(("max_shard_users", value) for value in NOT_COUNTS),
    *(("cutoff_margin", value) for value in ("1", True, [1.0], math.nan, math.inf, -0.1, 1e6)),
    *(("count_share", value) for value in ("x", True, math.nan, math.inf, -0.1, 1e-18, 0.95, 1)),
    *(("vocabulary_delta_share", value) for value in ("x", True, math.nan, 0, 1, -0.1, 1.5)),
]


def test_a_bad_value_is_refused_by_its_parameters_name():
    good = {**GOOD, "policy": "policy_gaussian"}
    assert not_refused(SetUnionPlan, [({**good, name: value}, name) for name, value in BAD]) == []


@pytest.mark.parametrize("policy", POLICIES)
def test_only_descent_has_a_cutoff_which_follows_from_the_margin(policy):
    for margin in (0.0, 3.0):
        for each in SetUnionPlan(**GOOD, policy=policy, cutoff_margin=margin).union_rounds:
            expected = each.threshold + margin * each.noise_stddev
            assert each.cutoff == (expected if policy in DESCENT_POLICIES else None)


def test_a_long_sequence_is_refused_by_the_two_promises_alone():
    for policy in DESCENT_POLICIES:
        with pytest.raises(ValueError, match=r"`max_shard_users` .*=125000000, .* `policy='sips'`"):
            SetUnionPlan(**GOOD, policy=policy, max_users=10**9)
        with pytest.raises(ValueError, match="max_shard_users"):
            SetUnionPlan(**GOOD, policy=policy, max_users=81, max_shard_users=10)
        shards = {
            1: [{"max_users": 5_000_000}, {"max_shard_users": 10**7}],
            2: [{}],
            5: [{"max_shard_users": 2 * 10**6}],
            8: [{"max_users": 4 * 10**7}],
        }
        for count, chosen in shards.items():
            for options in chosen:
                assert SetUnionPlan(**GOOD, policy=policy, **options).shard_count == count


@pytest.mark.parametrize("policy", POLICIES)
def test_json_gives_back_the_plan(policy):
    plan = SetUnionPlan(epsilon=2, delta=1e-5, policy=policy, max_contributions=7)
    assert SetUnionPlan.from_json(plan.to_json()) == plan
    assert json.loads(plan.to_json()) == plan.to_dict()


NO_PLANS = [
    ({"text": "3"}, "JSON object"),
    ({"text": '{"epsilon": 1}'}, "delta"),
    ({"text": '{"epsilon": 1, "delta": 0.1, "tau": 1}'}, "got tau"),
]


def test_what_is_no_plan_is_refused():
    assert not_refused(SetUnionPlan.from_json, NO_PLANS) == []


def test_the_constants_of_the_paper():
    """Gopi et al. at ε = 3, δ = e^-10, Δ = 100, to all printed digits."""
    weighted = SetUnionPlan(epsilon=3, delta=E10, policy="weighted_gaussian", count_share=0)
    (only,) = weighted.union_rounds
    found = only.noise_stddev, only.threshold
    assert found == pytest.approx((1.33279, 6.82366), rel=2e-3, abs=5e-6)
    descent = SetUnionPlan(epsilon=3, delta=E10, policy="policy_gaussian", count_share=0)
    (only,) = descent.union_rounds
    assert only.cutoff == only.threshold + 5 * only.noise_stddev


PUBLIC = [(3.0, E10, 100), (0.3, 1e-7, 1), (1.0, 1e-2, 20), (2.0, 0.3, 300)]


@pytest.mark.parametrize("policy", POLICIES)
def test_each_threshold_is_the_largest_over_t_by_an_independent_search(policy):
    """The least ρ with P(any of t items of one user alone > ρ) ≤ δ_T, t = 1..Δ, in 40 digits."""
    shares = [share.delta for share in ROUNDS[policy]]
    for epsilon, delta, limit in PUBLIC:
        plan = SetUnionPlan(
            epsilon=epsilon, delta=delta, policy=policy, max_contributions=limit, max_users=10**6
        )
        for decider, share in zip(plan.union_rounds, shares, strict=True):
            worst = max(
                chance_of_any(decider.noise_stddev, decider.threshold, held)
                for held in range(1, limit + 1)
            )
            assert worst == pytest.approx(plan.vocabulary_delta * share, rel=1e-9), epsilon


def chance_of_any(stddev: float, threshold: float, held: int) -> float:
    """P(some of t items with the weight 1/√t > ρ)."""
    with mpmath.workdps(40):
        distance = (mpmath.mpf(threshold) - 1 / mpmath.sqrt(held)) / stddev
        return float(1 - (1 - mpmath.erfc(distance / mpmath.sqrt(2)) / 2) ** held)


@pytest.mark.parametrize("epsilon", [0.3, 6.0])
@pytest.mark.parametrize("count_share", [0, 0.05, 0.5])
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
    draws = [each.noise_stddev / plan.sensitivity for each in plan.union_rounds]
    assert (plan.count_noise is None) == (count_share == 0)
    draws += [] if plan.count_noise is None else [plan.count_noise]
    for stddev in draws:
        whole = whole.compose(distributions.from_gaussian_mechanism(stddev, **cell))
    # Losses are rounded up, by half a cell for each of at most six distributions.
    spent = whole.get_delta_for_epsilon(plan.epsilon - plan.numerical_slack + 3e-3)
    assert spent <= plan.delta * math.exp(-plan.numerical_slack)
    # Nothing is left over: with 1 % less noise the same total would be too much.
    assert whole.get_delta_for_epsilon(plan.epsilon * 0.99) > plan.delta


SIPS = (1 / 13, 3 / 13, 9 / 13)


@pytest.mark.parametrize(
    ("policy", "once", "budgets", "deltas", "cuts"),
    [
        (
            "screened_gaussian",
            "policy_gaussian",
            (0.12, 0.23, 0.65),
            (0.03, 0.12, 0.85),
            (0.5, 1.4, None),
        ),
        ("sips", "weighted_gaussian", SIPS, SIPS, (None, None, None)),
    ],
)
def test_rounds_divide_everything(policy, once, budgets, deltas, cuts):
    assert sum(budgets) == pytest.approx(1, abs=1e-15)
    assert sum(deltas) == pytest.approx(1, abs=1e-15)
    plan = SetUnionPlan(**GOOD, policy=policy)
    stddevs = [each.noise_stddev for each in plan.union_rounds]
    together = math.fsum(each**-2 for each in stddevs) ** -0.5
    assert together == pytest.approx(
        SetUnionPlan(**GOOD, policy=once).union_rounds[0].noise_stddev, rel=1e-6
    )
    for own, budget, delta, cut in zip(plan.union_rounds, budgets, deltas, cuts, strict=True):
        assert own.noise_stddev == pytest.approx(together / math.sqrt(budget))
        assert own.threshold == pytest.approx(
            thresholds.vocabulary_threshold(
                noise_stddev=own.noise_stddev,
                delta=delta * plan.vocabulary_delta,
                max_contributions=plan.contribution_limit,
            )
        )
        assert own.cut == (None if cut is None else cut * own.noise_stddev)


def test_rounding_is_in_the_sensitivity_and_grows_with_the_promise():
    for policy in POLICIES:
        bounds = []
        for users in (10, 10**6, 10**7):
            plan = SetUnionPlan(**GOOD, policy=policy, max_users=users)
            assert plan.sensitivity == 1 + plan.rounding_bound
            bounds.append(plan.rounding_bound)
        if policy in DESCENT_POLICIES:
            assert 0 < bounds[0] < bounds[1] < bounds[2] < 1e-6
            assert bounds[2] > 1e-8
        else:
            assert bounds == [0, 0, 0]
    one = thresholds.descent_rounding(max_contributions=100, max_users=1)
    assert one == pytest.approx(2 * (10 + 100 / 8 + 2) * 2**-50)


def test_numerical_slack_is_that_of_the_decisions_which_may_change():
    good = {**GOOD, "count_share": 0, "max_contributions": 100}
    slacks = {name: SetUnionPlan(**good, policy=name).numerical_slack for name in POLICIES}
    assert slacks["weighted_gaussian"] == pytest.approx(2e-12 * 100)
    assert slacks["sips"] == pytest.approx(3 * 2e-12 * 100)
    count = 100 * SetUnionPlan(**good).max_users
    failure = 1e-12 * GOOD["delta"] * math.exp(-GOOD["epsilon"])
    expected = 2 * (1e-12 * math.sqrt(2 * count * math.log(1 / failure)) + count * 1e-24)
    assert slacks["policy_gaussian"] == pytest.approx(expected)
    assert slacks["screened_gaussian"] == pytest.approx(expected * math.sqrt(3), rel=1e-6)


def test_a_budget_too_small_for_floating_point_is_refused():
    for bad in (
        {"epsilon": 1e-4, "policy": "weighted_gaussian", "max_contributions": 10**6},
        {"max_items_per_user": 10**9},
        {"delta": 1e-15},
    ):
        with pytest.raises(ValueError, match="must be at"):
            SetUnionPlan(**{**GOOD, **bad})
    assert SetUnionPlan(**GOOD, max_items_per_user=10**9, count_share=0).union_rounds
    assert SetUnionPlan(epsilon=1, delta=1e-15, max_users=10**5, max_contributions=10).union_rounds


def test_items_that_are_not_looked_at_are_not_contributed():
    assert SetUnionPlan(**GOOD, max_contributions=50, max_items_per_user=7).contribution_limit == 7


def test_plans_need_no_heavy_modules():
    """Plans are made where no pipeline runs."""
    code = "import sys, beam_dpne.set_union.plan; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"apache_beam", "pyarrow", "beam_dpne.ngrams"} & set(ran.stdout.split())
