"""What a `BayesianPlan` may say, and the numbers that follow from it."""

import dataclasses
import json
import math

import dp_accounting
import mpmath
import pytest

from beam_dpne.bayesian.plan import MODES, BayesianPlan
from beam_dpne.mechanism import gaussian, integer_noise
from tests.support.refusals import not_refused


def plan_of(**others) -> BayesianPlan:
    return BayesianPlan(**{"epsilon": 0.2, "delta": 1e-7, **others})


@pytest.mark.parametrize("mode", MODES)
def test_a_plan_survives_json(mode):
    plan = plan_of(mode=mode, max_contributions=7)
    assert BayesianPlan.from_json(plan.to_json()) == plan
    assert json.loads(plan.to_json())["mode"] == mode


@pytest.mark.parametrize(("clamp", "limit"), [(1, 1), (1, 30), (3, 10), (10, 1000)])
def test_the_sensitivity_of_counts_is_c_root_w_rounded_up(clamp, limit):
    plan = plan_of(max_count=clamp, max_contributions=limit)
    assert plan.sensitivity**2 >= clamp**2 * limit
    assert plan.sensitivity == pytest.approx(clamp * math.sqrt(limit), rel=1e-15)
    assert plan.grid == 1.0


def test_the_vocabulary_bounds_what_a_user_adds():
    assert plan_of(vocabulary_size=9).sensitivity == pytest.approx(3.0)


@pytest.mark.parametrize("mode", ["counts", "log_global"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.05, 1e-9), (0.2, 1e-7), (1, 1e-6), (8, 1e-5)])
def test_the_noise_has_the_budget_by_an_independent_accountant(mode, epsilon, delta):
    plan = plan_of(mode=mode, epsilon=epsilon, delta=delta, max_count=2, max_contributions=40)
    ratio = plan.noise_stddev / plan.sensitivity
    spent = dp_accounting.get_epsilon_gaussian(ratio, delta)
    assert epsilon * 0.998 < spent <= epsilon
    exact = gaussian.gaussian_noise_stddev(epsilon=epsilon, delta=delta)
    assert ratio == pytest.approx(exact, rel=2e-3)


@pytest.mark.parametrize(
    ("epsilon", "delta", "clamp"), [(0.3, 1e-6, 1), (1.0, 1e-5, 3), (4.0, 1e-4, 1), (4.0, 1e-4, 3)]
)
def test_whole_noise_has_the_budget_when_summed_over_all_integers(epsilon, delta, clamp):
    """One user moves one gram by C: Σ max(0, P(j) − e^ε P(j − C)) over the integers is at most δ."""
    plan = plan_of(epsilon=epsilon, delta=delta, max_count=clamp, max_contributions=1)
    with mpmath.workdps(40):
        stddev = mpmath.mpf(plan.noise_stddev)
        reach = int(12 * stddev) + clamp

        def below(j: int) -> mpmath.mpf:
            return mpmath.ncdf((mpmath.mpf(j) + mpmath.mpf(1) / 2) / stddev)

        mass = {j: below(j) - below(j - 1) for j in range(-reach, reach + 1)}
        shifted = mpmath.exp(epsilon)
        spent = sum(
            max(mpmath.mpf(0), p - shifted * mass.get(j - clamp, 0))
            for j, p in mass.items()
            if j - clamp in mass
        )
    assert 0.3 * delta < spent <= delta


@pytest.mark.parametrize("mode", ["counts", "log_global"])
def test_the_slack_covers_the_noise_that_is_drawn(mode):
    plan = plan_of(mode=mode, max_count=5, max_contributions=200, epsilon=0.5)
    drawn = {"stddev": plan.noise_steps, "draws": 200}
    assert 0 < integer_noise.epsilon_slack(**drawn) <= plan.numerical_slack < plan.epsilon / 1000
    tails = integer_noise.delta_slack(epsilon=plan.epsilon, **drawn)
    assert plan.gaussian_delta <= (plan.delta - tails) * math.exp(-plan.numerical_slack)


@pytest.mark.parametrize("mode", ["counts", "log_global"])
def test_the_noise_is_for_what_the_reserve_leaves_of_epsilon(mode):
    limit = {"counts": 10_000, "log_global": 2_000}[mode]
    plan = plan_of(mode=mode, max_contributions=limit, epsilon=0.2)
    with mpmath.workdps(40):
        ratio = mpmath.mpf(plan.noise_stddev) / mpmath.mpf(plan.sensitivity)
        rest = mpmath.mpf(plan.epsilon) * mpmath.mpf("0.999")
        above = mpmath.ncdf(1 / (2 * ratio) - rest * ratio)
        below = mpmath.ncdf(-1 / (2 * ratio) - rest * ratio)
        spent = above - mpmath.exp(rest) * below
    assert (1 - 1e-7) * plan.gaussian_delta < spent <= plan.gaussian_delta


def test_log_global_has_noise_on_a_grid():
    plan = plan_of(mode="log_global", decay=0.05, max_contributions=9)
    assert math.log2(plan.grid).is_integer()
    assert plan.gram_bound / plan.grid > 256
    assert plan.sensitivity >= 3 * (plan.gram_bound + plan.grid)
    assert "public_weight" not in plan.report()
    weighted = plan_of(mode="log_global", decay=0.05, max_contributions=9, public_weight=0.25)
    assert weighted.report() == plan.report() | {"public_weight": 0.25}


def test_counts_need_no_more_noise_than_the_papers_formula():
    plan = plan_of(max_contributions=4)
    printed = 2 * math.sqrt(2 * math.log(1.25 / 1e-7)) / 0.2
    assert plan.noise_stddev < printed


BAD = [
    ({"epsilon": 0}, "epsilon must be a finite number > 0"),
    ({"epsilon": math.nan}, "epsilon must be"),
    ({"delta": 0}, r"delta must be in \(0, 1\)"),
    ({"delta": 1e-21}, "delta must be at least 1e-20"),
    ({"epsilon": "1"}, "epsilon must be a number"),
    ({"mode": "count"}, "mode must be one of counts, log_global"),
    ({"length": 0}, "length must be an integer from 1 to"),
    ({"length": 6}, "length must be an integer from 1 to 5"),
    ({"length": 2.0}, "length must be an integer"),
    ({"vocabulary_size": 0}, "vocabulary_size must be an integer from 1 to"),
    ({"max_count": 0}, "max_count must be an integer from 1 to"),
    ({"max_count": True}, "max_count must be an integer"),
    ({"max_contributions": 0}, "max_contributions must be an integer from 1 to"),
    ({"max_tokens_per_user": 0}, "max_tokens_per_user must be an integer from 1 to"),
    ({"adjacency": "replace"}, "adjacency must be one of"),
    ({"public_weight": 0.5}, "public_weight must be left out with mode='counts'"),
    ({"decay": 0.5}, "decay must be left out with mode='counts'"),
    ({"mode": "log_global", "public_weight": 1.0}, r"public_weight must be in \[0, 1\)"),
    ({"mode": "log_global", "public_weight": -0.1}, r"public_weight must be in \[0, 1\)"),
    ({"mode": "log_global", "decay": 0.0}, "decay must be from 1e-06 to"),
    ({"mode": "log_global", "decay": math.nan}, "decay must be from 1e-06 to"),
    ({"max_contributions": 10_000_000, "vocabulary_size": 2**28, "max_count": 1000}, "slack"),
    ({"epsilon": 60.0}, "epsilon must be at most .* with delta=1e-07, got epsilon=60.0"),
    ({"epsilon": 1e9}, r"epsilon must be at most .*, got epsilon=1000000000\.0"),
    ({"epsilon": 100.0, "mode": "log_global"}, "epsilon must be at most .*, got epsilon=100"),
    ({"epsilon": 45.0, "delta": 1e-9}, "epsilon must be at most .* or delta must be at least"),
]


def test_bad_parameters_are_refused_with_name_requirement_and_value():
    assert not_refused(plan_of, BAD) == []


BUDGET = '"epsilon": 1, "delta": 1e-7'
NO_PLANS = [
    ({"text": "[]"}, "must be a JSON object"),
    ({"text": '{"epsilon": 1}'}, "needs delta"),
    ({"text": f'{{{BUDGET}, "budget": 1}}'}, "no parameter 'budget'"),
    ({"text": f'{{{BUDGET}, "mode": "paper_claim1"}}'}, "mode must be one of counts, log_"),
    ({"text": f'{{{BUDGET}, "accept_no_guarantee": true}}'}, "no parameter 'accept_no_"),
    ({"text": "{"}, "not JSON"),
]


def test_a_plan_is_read_from_such_an_object_only():
    assert not_refused(BayesianPlan.from_json, NO_PLANS) == []


def test_a_plan_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan_of().epsilon = 3
