"""What a run key is bound to: every parameter that decides, resolved, and every constant."""

import dataclasses
import json
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from beam_dpne.bayesian import log_global
from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.counts import rule as count_rule
from beam_dpne.mechanism import (
    finite_noise,
    gaussian,
    integer_noise,
    rules,
    thresholds,
)
from beam_dpne.ngrams import adaptive, tolerances
from beam_dpne.ngrams import plan as ngrams_plan
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.set_union import policies
from beam_dpne.set_union.plan import SetUnionPlan

GIVEN = {"epsilon": 2.0, "delta": 1e-6}
PLANS = [
    PrivacyPlan(**GIVEN),
    PrivacyPlan(**GIVEN, vocabulary_policy="screened_gaussian"),
    PrivacyPlan(**GIVEN, strategy="one_round", valid_count="estimate", count_share=0),
    SetUnionPlan(**GIVEN),
    SetUnionPlan(**GIVEN, policy="mad"),
    BayesianPlan(**GIVEN),
    BayesianPlan(**GIVEN, mode="log_global"),
]
ADAPTIVE, NGRAMS, UNIONS, BAYESIAN = PLANS[:2], PLANS[:3], PLANS[3:5], PLANS[5:]
WITH_UNION = [PLANS[1], *UNIONS]
# Modules with constants, and the plans whose parameters must hold them: those that they decide.
DECIDED: dict[ModuleType, list[Any]] = {
    adaptive: ADAPTIVE,
    tolerances: ADAPTIVE,
    ngrams_plan: NGRAMS,
    count_rule: ADAPTIVE + UNIONS,
    rules: NGRAMS + UNIONS,
    policies: WITH_UNION,
    thresholds: WITH_UNION,
    gaussian: PLANS,
    finite_noise: PLANS,
    integer_noise: BAYESIAN,
    log_global: BAYESIAN,
}
# Constants that decide other plans than the rest of their module does.
DECIDED_BY_NAME = {"EXACT_HELD": PLANS, "MOST_TOTALS": ADAPTIVE, "PANEL": NGRAMS, "NODES": NGRAMS}
# Limits of what is accepted, names, and what follows from another constant decide no release.
DECIDE_NOTHING = {
    "adaptive": {"BUDGET_BITS", "MAX_BUDGET", "MAX_SPURIOUS_FRACTION", "USER_BUDGETS", "UNITS"},
    "finite_noise": {"LAPLACE_END", "NORMAL_END"},
    "integer_noise": {"MAX_STDDEV"},
    # Plans have their own name for it, which their parameters hold.
    "rule": {"MOST_TOTALS"},
    "plan": {
        *("ADJACENCY", "COUNT_SHARE", "MAX_USERS", "OF_ONE_STRATEGY", "PRUNING_RULES"),
        *("STRATEGIES", "VALID_COUNTS"),
    },
    "policies": {
        *("POLICIES", "CUTOFF_POLICIES", "DESCENT_POLICIES", "GAUSSIAN_POLICIES"),
        *(
            "LAPLACE_POLICIES",
            "MAD_POLICIES",
            "VOCABULARY_POLICIES",
            "DEFAULT_POLICY",
            "DEFAULT_USERS",
        ),
        # Plans have the number of shards that follows from it among their parameters.
        *("LAPLACE_COUNT_SHARE", "MOST_DEFAULT_SHARDS"),
    },
}
# Names that a module has from another one.
IMPORTED = {"NOTHING_YET", "TYPE_CHECKING", "UNITS"}


def constants_of(module: ModuleType) -> list[str]:
    """The public constants of a module that are not known to decide nothing."""
    name = module.__name__.rpartition(".")[2]
    exempt = DECIDE_NOTHING.get(name, set()) | IMPORTED - ({"UNITS"} if name == "rules" else set())
    return [
        constant
        for constant in vars(module)
        if constant.isupper() and constant[0] != "_"
        if constant not in exempt
    ]


def changed(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, dict):
        return {key: changed(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return tuple(changed(each) for each in value)
    if isinstance(value, adaptive.Round):
        return dataclasses.replace(value, quota=value.quota / 2)
    return value + 1 if isinstance(value, int) else value * 1.5


@pytest.mark.parametrize("plan", PLANS, ids=repr)
def test_parameters_are_json_and_do_not_depend_on_when_they_are_asked_for(plan):
    found = plan.mechanism_parameters()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found == plan.mechanism_parameters()
    assert type(plan).from_json(plan.to_json()).mechanism_parameters() == found


@pytest.mark.parametrize("plan", PLANS, ids=repr)
def test_all_fields_are_there_but_the_public_user_count(plan):
    fields = {field.name for field in dataclasses.fields(plan)}
    found = plan.mechanism_parameters()
    # What is favoured is there by the numbers that follow from it.
    assert fields - found["plan"].keys() == {"public_user_count"} | fields & {"favour"}
    told = dataclasses.replace(plan, public_user_count=1000)
    assert told != plan
    assert told.mechanism_parameters() == found


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"epsilon": 2.0000001}),
        ({}, {"max_users": 10**6}),
        ({"vocabulary_policy": "screened_gaussian"}, {"vocabulary_policy": "weighted_gaussian"}),
        ({"rounds": 2}, {"rounds": 1}),
    ],
)
def test_other_parameters_are_other_contexts(first, second):
    pair = [PrivacyPlan(**GIVEN | others).mechanism_parameters() for others in (first, second)]
    assert pair[0] != pair[1]


def test_defaults_are_resolved():
    """What is left out and what is given at its default are one mechanism."""
    assert (
        PrivacyPlan(**GIVEN).mechanism_parameters()
        == PrivacyPlan(**GIVEN, max_contributions=1000, rounds=3).mechanism_parameters()
    )
    union = SetUnionPlan(**GIVEN)
    explicit = {"shards": union.shard_count, "cutoff_margin": union.update_policy.cutoff_margin}
    explicit["vocabulary_delta_share"] = union.delta_share
    given = dataclasses.replace(union, **explicit)
    assert given != union
    assert given.mechanism_parameters() == union.mechanism_parameters()
    logs = BayesianPlan(**GIVEN, mode="log_global")
    assert logs.mechanism_parameters()["plan"]["decay"] == logs.decay_rate
    assert logs.mechanism_parameters()["plan"]["grid"] == logs.grid


@pytest.mark.parametrize("module", DECIDED, ids=lambda module: module.__name__)
def test_each_constant_is_in_the_parameters_of_each_plan_that_it_decides(module):
    """Of the plans made before: so the constant itself is read, not what followed from it."""
    before = [plan.mechanism_parameters() for plan in PLANS]
    names = constants_of(module)
    assert names
    for name in names:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, name, changed(getattr(module, name)))
            after = [plan.mechanism_parameters() for plan in PLANS]
        pairs = zip(PLANS, before, after, strict=True)
        told = [plan for plan, old, new in pairs if old != new]
        assert told == DECIDED_BY_NAME.get(name, DECIDED[module]), name
    assert [plan.mechanism_parameters() for plan in PLANS] == before


def test_a_constant_changes_what_users_send_and_the_parameters_with_it(monkeypatch):
    """One of them, all the way: the exponent of predictions."""
    shares = adaptive.preferences(np.array([1.0, 16.0]), 0.0)
    assert shares.tolist() == [1.0, 0.5]
    before = PLANS[0].mechanism_parameters()
    monkeypatch.setattr(adaptive, "PREDICTION_ROOTS", 1)
    roots = adaptive.preferences(np.array([4.0, 16.0]), 0.0)
    assert roots.tolist() == [0.5, 0.25]
    assert PLANS[0].mechanism_parameters() != before
