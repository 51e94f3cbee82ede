"""The total of several releases is that of privacy loss distributions, and never below."""

import dataclasses
import json
import math
import random

import pytest
from dp_accounting.pld import privacy_loss_distribution as distributions
from msgspec.structs import asdict, replace

from beam_dpne import NgramsPlan, ProbabilitiesPlan, SetUnionPlan
from beam_dpne.accounting.composition import compose
from beam_dpne.accounting.expense import expense_of_ledger, expense_of_plan
from beam_dpne.errors import BudgetError
from beam_dpne.set_union.plan import POLICIES
from tests.support.releases import ledger_of


def every_plan():
    common = {"epsilon": 1.5, "delta": 1e-7}
    yield NgramsPlan(**common)
    yield NgramsPlan(**common, rounds=2)
    yield NgramsPlan(**common, strategy="one_round", noise_growth=0.8)
    for policy in POLICIES:
        yield SetUnionPlan(**common, policy=policy)
    yield ProbabilitiesPlan(**common)


# One plan of each kind of mechanism that a ledger can describe.
PLANS = list(every_plan())


def kind_of(plan):
    parts = (getattr(plan, name, "") for name in ("strategy", "policy"))
    return "-".join(part for part in parts if part)


@pytest.mark.parametrize("plan", PLANS, ids=kind_of)
def test_a_ledger_and_its_plan_have_the_same_expense(plan):
    ledger = json.loads(json.dumps(ledger_of(plan)))
    stated, planned = expense_of_ledger(ledger, "here"), expense_of_plan(plan)
    for name, value in asdict(stated).items():
        assert value == pytest.approx(getattr(planned, name), rel=1e-9, abs=1e-30)


@pytest.mark.parametrize("plan", PLANS, ids=kind_of)
def test_one_release_alone_has_its_own_guarantee_and_no_less(plan):
    spent = expense_of_plan(plan)
    total = compose([spent])
    assert total.delta == plan.delta
    # A plan reserves a thousandth of ε and δ, which its release does not spend.
    assert 0.998 * plan.epsilon < total.epsilon <= plan.epsilon


def reference_epsilon(chosen, delta):
    """The same total by privacy loss distributions alone, from the plans' own numbers."""
    whole, slack = None, 0.0
    for plan in chosen:
        lone = getattr(plan, "vocabulary_delta", 0.0)
        stddev = plan.noise_stddev
        losses = distributions.from_gaussian_mechanism(
            stddev,
            sensitivity=getattr(plan, "sensitivity", 1.0),
            value_discretization_interval=1e-3,
        )
        if lone:
            events = distributions.from_privacy_parameters(
                distributions.common.DifferentialPrivacyParameters(0, lone),
                value_discretization_interval=1e-3,
            )
            losses = losses.compose(events)
        whole = losses if whole is None else whole.compose(losses)
        slack += plan.numerical_slack
    return slack + whole.get_epsilon_for_delta(delta * math.exp(-slack))


@pytest.mark.parametrize("seed", range(6))
def test_totals_of_random_ledgers_are_those_of_privacy_loss_distributions(seed):
    chance = random.Random(seed)
    chosen = []
    for _ in range(chance.randint(2, 5)):
        plan = chance.choice(PLANS)
        chosen.append(
            dataclasses.replace(
                plan, epsilon=chance.uniform(0.3, 3), delta=10 ** chance.uniform(-9, -6)
            )
        )
    expenses = [expense_of_ledger(ledger_of(plan), "here") for plan in chosen]
    delta = 2 * math.fsum(plan.delta for plan in chosen)
    total = compose(expenses, delta=delta)
    wanted = min(reference_epsilon(chosen, delta), total.sum_epsilon)
    assert total.epsilon == pytest.approx(wanted, abs=1e-3)
    assert total.epsilon >= wanted - 1e-5


@pytest.mark.parametrize(("releases", "epsilon"), [(2, 5.75), (4, 8.39), (12, 15.82)])
def test_equal_releases_of_epsilon_4_cost_far_less_than_their_sum(releases, epsilon):
    spent = expense_of_plan(NgramsPlan(epsilon=4, delta=1e-6))
    total = compose([spent] * releases)
    assert total.epsilon == pytest.approx(epsilon, abs=0.005)
    assert (total.sum_epsilon, total.delta) == (4 * releases, pytest.approx(releases * 1e-6))
    assert total.mu == pytest.approx(spent.mu * math.sqrt(releases))


def test_delta_that_only_one_user_pays_is_added_up_and_not_forgotten():
    spent = replace(expense_of_plan(NgramsPlan(epsilon=1, delta=1e-7)), lone_delta=0.9e-7)
    assert math.isinf(compose([spent] * 3, delta=2.7e-7).epsilon)
    assert compose([spent] * 3, delta=1e-5).epsilon < 3.0


def test_a_smaller_delta_costs_epsilon_and_one_too_small_has_none():
    spent = [expense_of_plan(NgramsPlan(epsilon=1, delta=1e-7))] * 2
    totals = [compose(spent, delta=delta).epsilon for delta in (1e-5, 2e-7, 3e-8)]
    assert totals == sorted(totals)
    assert totals[-1] < math.inf
    assert math.isinf(compose(spent, delta=1.9e-8).epsilon)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-7, math.nan])
def test_a_delta_out_of_range_is_refused(delta):
    spent = expense_of_plan(NgramsPlan(epsilon=1, delta=1e-7))
    with pytest.raises(BudgetError, match=r"`delta` must be in \(0, 1\)"):
        compose([spent], delta=delta)


def test_events_outside_the_slack_cost_more_at_a_larger_total_epsilon():
    spent = replace(expense_of_plan(NgramsPlan(epsilon=1, delta=1e-6)), remainder=1e-9)
    without = compose([replace(spent, remainder=0.0)] * 4)
    assert compose([spent] * 4).epsilon > without.epsilon
    costly = replace(spent, remainder=5e-7)
    assert compose([costly] * 4).epsilon == 4.0


@pytest.mark.parametrize(
    ("section", "name", "value", "message"),
    [
        ("spent", "gaussian_delta", 2e-7, "exceed delta"),
        ("spent", "gaussian_delta", -1.0, "has no delta"),
        ("spent", "numerical_slack", 2.0, "slack is not below epsilon"),
        ("guarantee", "epsilon", 0.5, "noise is too small"),
        ("guarantee", "delta", 1e-9, "exceed delta"),
    ],
)
def test_a_ledger_that_contradicts_itself_is_refused(section, name, value, message):
    ledger = json.loads(json.dumps(ledger_of(NgramsPlan(epsilon=1, delta=1e-7))))
    ledger[section][name] = value
    with pytest.raises(BudgetError, match=message):
        expense_of_ledger(ledger, "here")


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("group", "gaussian_mu", 0.01),
        ("group", "gaussian_mu", 10.0),
        ("spent", "gaussian_delta", 1e-12),
        ("spent", "vocabulary_delta", 0.0),
        ("spent", "numerical_slack", 0.5),
    ],
)
def test_no_single_number_of_a_ledger_can_make_a_total_smaller(section, name, value):
    plan = NgramsPlan(epsilon=1, delta=1e-7)
    ledger = json.loads(json.dumps(ledger_of(plan)))
    honest = compose([expense_of_ledger(ledger, "here")] * 4).epsilon
    (ledger["groups"]["sizes"][0] if section == "group" else ledger["spent"])[name] = value
    try:
        changed = expense_of_ledger(ledger, "here")
    except BudgetError:
        return
    assert compose([changed] * 4).epsilon >= honest * (1 - 1e-9)


@pytest.mark.parametrize("delta", [None, 1e-3])
def test_nothing_to_compose_is_refused(delta):
    with pytest.raises(BudgetError, match="at least one release"):
        compose([], delta=delta)
