"""What a `ProbabilitiesPlan` may say, and the numbers that follow from it."""

import json
import math

import dp_accounting
import mpmath
import pytest

from beam_dpne.bayesian.plan import ProbabilitiesPlan
from beam_dpne.mechanism import gaussian
from tests.support.arguments import not_refused


def plan_of(**others) -> ProbabilitiesPlan:
    return ProbabilitiesPlan(**{"epsilon": 0.2, "delta": 1e-7, **others})


def test_a_plan_survives_json():
    plan = plan_of(max_contributions=7)
    assert ProbabilitiesPlan.from_json(plan.to_json()) == plan
    assert json.loads(plan.to_json())["max_contributions"] == 7


@pytest.mark.parametrize(("clamp", "limit"), [(1, 1), (1, 30), (3, 10), (10, 1000)])
def test_the_sensitivity_is_c_root_w_rounded_up(clamp, limit):
    plan = plan_of(max_count=clamp, max_contributions=limit)
    assert plan.sensitivity**2 >= clamp**2 * limit
    assert plan.sensitivity == pytest.approx(clamp * math.sqrt(limit), rel=1e-15)


def test_the_vocabulary_bounds_what_a_user_adds():
    assert plan_of(vocabulary_size=9).sensitivity == pytest.approx(3.0)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.05, 1e-9), (0.2, 1e-7), (1, 1e-6), (8, 1e-5)])
def test_the_noise_has_the_budget_by_an_independent_accountant(epsilon, delta):
    plan = plan_of(epsilon=epsilon, delta=delta, max_count=2, max_contributions=40)
    spent = dp_accounting.get_epsilon_gaussian(plan.noise_stddev / plan.sensitivity, delta)
    assert epsilon * 0.998 < spent <= epsilon


@pytest.mark.parametrize(
    ("epsilon", "delta", "clamp"), [(0.3, 1e-6, 1), (1.0, 1e-5, 3), (4.0, 1e-4, 3)]
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
        spent = sum(
            max(mpmath.mpf(0), p - mpmath.exp(epsilon) * mass[j - clamp])
            for j, p in mass.items()
            if j - clamp in mass
        )
    assert 0.3 * delta < spent <= delta


def test_the_slack_covers_the_noise_that_is_drawn():
    plan = plan_of(max_count=5, max_contributions=200, epsilon=0.5)
    drawn = {"stddev": plan.noise_stddev, "draws": 200}
    slack = gaussian.integer_slack(**drawn)
    assert 0 < slack * (1 - 1e-9) <= plan.numerical_slack < plan.epsilon / 1000
    tails = gaussian.integer_far_tails(epsilon=plan.epsilon, **drawn)
    assert plan.gaussian_delta <= (plan.delta - tails) * math.exp(-plan.numerical_slack)


BAD = [
    ({"epsilon": 0}, "`epsilon` must be a number > 0"),
    ({"epsilon": "1"}, "`epsilon` must be"),
    ({"epsilon": math.nan}, "`epsilon` must be"),
    ({"delta": 0}, "`delta` must be"),
    ({"delta": 1e-21}, "`delta` must be at least 1e-20"),
    ({"length": 6}, "`length` must be an integer from 1 to 5"),
    ({"length": 2.0}, "`length` must be an integer"),
    ({"vocabulary_size": 0}, "`vocabulary_size` must be an integer from 1 to"),
    ({"max_count": True}, "`max_count` must be an integer"),
    ({"max_contributions": 0}, "`max_contributions` must be an integer from 1 to"),
    ({"max_tokens_per_user": 0}, "`max_tokens_per_user` must be an integer from 1 to"),
    ({"adjacency": "replace"}, "`adjacency` must be one of"),
    ({"max_contributions": 10_000_000, "vocabulary_size": 2**28, "max_count": 1000}, "max_contrib"),
    ({"epsilon": 1e9}, r"`epsilon` must be .*`delta=1e-07`"),
    ({"epsilon": 60.0}, "`epsilon` must be .* with `delta=1e-07`"),
]


def test_bad_parameters_are_refused_with_name_requirement_and_value():
    assert not_refused(plan_of, BAD) == []


BUDGET = '"epsilon": 1, "delta": 1e-7'
NO_PLANS = [
    ({"text": "[]"}, "must be a JSON object"),
    ({"text": '{"epsilon": 1}'}, "delta"),
    ({"text": f'{{{BUDGET}, "mode": "log_global"}}'}, "mode"),
    ({"text": "{"}, "not JSON"),
]


def test_a_plan_is_read_from_such_an_object_only():
    assert not_refused(ProbabilitiesPlan.from_json, NO_PLANS) == []
