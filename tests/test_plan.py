"""The plan: what it refuses, what it derives, and its JSON form."""

import dataclasses
import json
import math

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_dpne import PrivacyPlan
from beam_dpne.calibration import (
    compose_noise_stddevs,
    gaussian_noise_stddev,
    vocabulary_threshold,
)

GOOD = {"epsilon": 1.0, "delta": 1e-6, "max_length": 3}
NOT_NUMBERS = ("1", "x", None, True, False, [1.0], (), {}, 1j, b"1")
NOT_FINITE = (math.nan, math.inf, -math.inf)
NOT_COUNTS = ("3", 2.0, 2.5, True, False, None, math.nan, [[3]], {})

BAD = [
    *(("epsilon", value) for value in (*NOT_NUMBERS, *NOT_FINITE, 0, 0.0, -1, -1e-9)),
    *(("delta", value) for value in (*NOT_NUMBERS, *NOT_FINITE, 0, 1, 1.0, 2, -1e-9)),
    *(("spurious_fraction", v) for v in (*NOT_NUMBERS, *NOT_FINITE, 0, 1, -0.1, 1.5)),
    *(("vocabulary_delta_share", v) for v in (*NOT_NUMBERS, *NOT_FINITE, 0, 1, -0.1, 1.5)),
    *(("noise_growth", value) for value in (*NOT_NUMBERS, *NOT_FINITE, 0, -1.0)),
    *(("max_length", value) for value in (*NOT_COUNTS, 0, -1)),
    *(("max_tokens_per_user", value) for value in (*NOT_COUNTS, 0, -1)),
    *(("max_contributions", value) for value in (*NOT_COUNTS, 0, -1)),
    *(("max_contributions", value) for value in ((), (5,), (5, 5), (5, 5, 5, 5), [5, 5])),
    *(("max_contributions", value) for value in ((5, 5, 0), (5, 5, 2.0), (5, True, 5), "555")),
    *(("budget_shares", value) for value in ((), (1.0,), (0.5, 0.5), [0.25] * 4)),
    *(("budget_shares", value) for value in ((0.5, 0.3, 0.1), (0.5, 0.5, 0.5), (1, 1, -1))),
    *(("budget_shares", value) for value in ((0.5, 0.5, 0.0), (math.nan, 0.5, 0.5), (0, 0, 1))),
    *(("budget_shares", value) for value in ("abc", ("a", 0.5, 0.5), (True, 0.5, 0.5), 1.0, True)),
    *(("pruning", value) for value in ("left", "", None, True, "BOTH", ["both"])),
    *(("valid_count", value) for value in ("guess", "", None, 3)),
    *(("strategy", value) for value in ("adaptive", "", None, 1)),
    *(("adjacency", value) for value in ("replace_one_user", "", None)),
]
BAD_JSON = [(name, value) for name, value in BAD if not isinstance(value, bytes | complex)]


@pytest.mark.parametrize(("name", "value"), BAD, ids=repr)
def test_a_bad_value_is_refused_by_its_parameters_name(name, value):
    with pytest.raises(ValueError, match=name):
        PrivacyPlan(**{**GOOD, name: value})


def test_a_list_that_fits_another_number_of_lengths_is_refused_with_both_numbers():
    with pytest.raises(ValueError, match=r"max_contributions .* 3 lengths, got 2"):
        PrivacyPlan(**GOOD, max_contributions=(5, 5))
    with pytest.raises(ValueError, match=r"budget_shares .* 3 lengths, got 2"):
        PrivacyPlan(**GOOD, budget_shares=(0.5, 0.5))


def test_a_number_too_large_for_a_float_is_refused_by_name():
    with pytest.raises(ValueError, match="epsilon"):
        PrivacyPlan(**GOOD | {"epsilon": 10**400})


def test_shares_and_growth_are_not_both_accepted():
    with pytest.raises(ValueError, match="budget_shares or noise_growth"):
        PrivacyPlan(**GOOD, budget_shares=(0.5, 0.3, 0.2), noise_growth=0.9)


def test_an_estimate_is_refused_with_single_pruning():
    with pytest.raises(ValueError, match="valid_count must be 'exact'"):
        PrivacyPlan(**GOOD, pruning="single", valid_count="estimate")


@pytest.mark.parametrize(("growth", "length"), [(1e-40, 10), (1e40, 10), (1e-300, 2)])
def test_growth_that_leaves_a_length_no_budget_is_refused_by_name(growth, length):
    with pytest.raises(ValueError, match="noise_growth"):
        _ = PrivacyPlan(epsilon=1, delta=1e-6, max_length=length, noise_growth=growth).lengths


def test_numerical_slack_beyond_a_thousandth_of_epsilon_is_refused():
    fits = PrivacyPlan(epsilon=0.006, delta=1e-6, max_length=3)
    assert fits.numerical_slack == pytest.approx(0.006 / 1000)
    with pytest.raises(ValueError, match=r"max_tokens_per_user.*numerical slack"):
        PrivacyPlan(epsilon=0.005, delta=1e-6, max_length=3)
    with pytest.raises(ValueError, match="max_tokens_per_user"):
        PrivacyPlan(epsilon=1, delta=1e-6, max_tokens_per_user=10**9)


def test_slack_is_subtracted_from_epsilon_and_its_factor_from_delta_before_calibration():
    plan = PrivacyPlan(epsilon=0.01, delta=1e-6, max_length=5, vocabulary_delta_share=0.25)
    slack = 5 * 1_000_000 * 2e-12
    assert plan.numerical_slack == pytest.approx(slack, rel=1e-12)
    delta_g, delta_t = (1e-6 * share * math.exp(-slack) for share in (0.75, 0.25))
    assert (plan.gaussian_delta, plan.vocabulary_delta) == pytest.approx((delta_g, delta_t))
    noise = gaussian_noise_stddev(epsilon=0.01 - slack, delta=delta_g)
    assert noise < plan.noise_stddev < noise * (1 + 2e-10)
    assert noise > gaussian_noise_stddev(epsilon=0.01, delta=0.75e-6) * (1 + 1e-5)
    threshold = vocabulary_threshold(
        noise_stddev=noise * math.sqrt(5), delta=delta_t, max_contributions=100
    )
    assert plan.lengths[0].threshold == pytest.approx(threshold, rel=1e-9)


def test_a_plan_is_frozen_and_hashable():
    plan = PrivacyPlan(**GOOD, max_contributions=[1, 2, 3], budget_shares=[0.5, 0.25, 0.25])
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.epsilon = 2.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.lengths[0].noise_stddev = 0.0
    assert plan.max_contributions == (1, 2, 3)
    assert len({plan, dataclasses.replace(plan)}) == 1


def test_epsilon_and_delta_have_no_defaults():
    for parameters in ({}, {"epsilon": 1}, {"delta": 1e-6}):
        with pytest.raises(TypeError):
            PrivacyPlan(**parameters)
        with pytest.raises(ValueError, match="default"):
            PrivacyPlan.from_json(json.dumps(parameters))


def test_limits_and_shares_reach_their_lengths():
    plan = PrivacyPlan(**GOOD, max_contributions=(7, 8, 9), budget_shares=(0.5, 0.3, 0.2))
    assert [length.length for length in plan.lengths] == [1, 2, 3]
    assert [length.max_contributions for length in plan.lengths] == [7, 8, 9]
    for length, share in zip(plan.lengths, (0.5, 0.3, 0.2), strict=True):
        assert length.noise_stddev == pytest.approx(plan.noise_stddev / math.sqrt(share))
    assert [length.threshold is None for length in plan.lengths] == [False, True, True]


@st.composite
def plans(draw) -> PrivacyPlan:
    length = draw(st.integers(1, 8))
    parts = st.lists(st.floats(0.05, 1), min_size=length, max_size=length)
    limits = st.integers(1, 10**6)
    noise = draw(
        st.one_of(
            st.just({}),
            st.floats(0.3, 3).map(lambda growth: {"noise_growth": growth}),
            parts.map(lambda p: {"budget_shares": [part / math.fsum(p) for part in p]}),
        )
    )
    return PrivacyPlan(
        epsilon=draw(st.floats(0.1, 50)),
        delta=draw(st.floats(1e-15, 0.9)),
        max_length=length,
        max_contributions=draw(limits | st.lists(limits, min_size=length, max_size=length)),
        spurious_fraction=draw(st.floats(1e-6, 0.99)),
        vocabulary_delta_share=draw(st.floats(0.01, 0.99)),
        max_tokens_per_user=draw(st.integers(1, 10**6)),
        pruning=draw(st.sampled_from(["both", "single"])),
        **noise,
    )


@given(plans())
def test_json_gives_the_same_plan_back(plan):
    twin = PrivacyPlan.from_json(plan.to_json())
    assert twin == plan
    assert twin.to_json() == plan.to_json()
    assert json.loads(plan.to_json()).keys() == {f.name for f in dataclasses.fields(PrivacyPlan)}


@given(plans())
def test_the_lengths_together_spend_epsilon_and_delta_and_no_more(plan):
    """In 60 digits: what rounding does to the root and to the shares is covered."""
    with mpmath.workdps(60):
        precision = mpmath.fsum(mpmath.mpf(k.noise_stddev) ** -2 for k in plan.lengths)
        sigma = 1 / mpmath.sqrt(precision)
        epsilon = mpmath.mpf(plan.epsilon) - plan.numerical_slack
        upper, lower = 1 / (2 * sigma) - epsilon * sigma, -1 / (2 * sigma) - epsilon * sigma
        delta = mpmath.ncdf(upper) - mpmath.exp(epsilon) * mpmath.ncdf(lower)
        assert delta <= plan.gaussian_delta
        assert delta >= plan.gaussian_delta * (1 - 1e-6)
    spent = (plan.gaussian_delta + plan.vocabulary_delta) * math.exp(plan.numerical_slack)
    assert spent == pytest.approx(plan.delta, rel=1e-12)


@given(st.lists(st.floats(1e-3, 1), min_size=1, max_size=9), st.floats(-9e-10, 9e-10))
def test_shares_that_nearly_sum_to_one_spend_no_more_than_one(parts, excess):
    shares = [min(1.0, part / math.fsum(parts) * (1 + excess)) for part in parts]
    plan = PrivacyPlan(epsilon=1, delta=1e-6, max_length=len(parts), budget_shares=shares)
    together = compose_noise_stddevs([length.noise_stddev for length in plan.lengths])
    needed = gaussian_noise_stddev(epsilon=1 - plan.numerical_slack, delta=plan.gaussian_delta)
    assert together > needed


@pytest.mark.parametrize("text", ["", "{", "nonsense", "{'epsilon': 1}", '{"epsilon": 1,}'])
def test_what_is_not_json_is_refused(text):
    with pytest.raises(ValueError, match="JSON object"):
        PrivacyPlan.from_json(text)


@pytest.mark.parametrize("text", ["[]", "3", '"plan"', "null", "true"])
def test_json_that_is_not_an_object_is_refused(text):
    with pytest.raises(ValueError, match="JSON object"):
        PrivacyPlan.from_json(text)


def test_an_unknown_parameter_is_refused_by_name():
    parameters = GOOD | {"epsilom": 3}
    with pytest.raises(ValueError, match="no parameter 'epsilom'"):
        PrivacyPlan.from_json(json.dumps(parameters))


@pytest.mark.parametrize(("name", "value"), BAD_JSON, ids=repr)
def test_a_bad_value_in_json_is_refused_by_its_parameters_name(name, value):
    with pytest.raises(ValueError, match=name):
        PrivacyPlan.from_json(json.dumps(GOOD | {name: value}))
