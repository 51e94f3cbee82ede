"""The plan: what it refuses, what it derives, and its JSON form."""

import dataclasses
import json
import math

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_dpne import NgramsPlan
from beam_dpne.mechanism.gaussian import gaussian_noise_stddev
from tests.support.arguments import not_refused

GOOD = {"epsilon": 1.0, "delta": 1e-6, "max_length": 3, "strategy": "one_round"}
ADAPTIVE = GOOD | {"strategy": "adaptive"}
NOT_NUMBERS = ("1", "x", None, True, False, [1.0], (), {}, 1j, b"1")
SET_NUMBERS = tuple(value for value in NOT_NUMBERS if value is not None)
NOT_FINITE = (math.nan, math.inf, -math.inf)
NOT_COUNTS = ("3", 2.0, 2.5, True, False, None, math.nan, [[3]], {})
SET_COUNTS = tuple(value for value in NOT_COUNTS if value is not None)

BAD = [
    *(("epsilon", value) for value in (*NOT_NUMBERS, *NOT_FINITE, 0, 0.0, -1, -1e-9)),
    *(("delta", value) for value in (*NOT_NUMBERS, *NOT_FINITE, 0, 1, 1.0, 2, -1e-9, 1e-21)),
    *(("spurious_fraction", v) for v in (*NOT_NUMBERS, *NOT_FINITE, 0, 1, -0.1, 1.5)),
    *(("vocabulary_delta_share", v) for v in (*SET_NUMBERS, *NOT_FINITE, 0, 1, -0.1, 1.5)),
    *(("noise_growth", value) for value in (*SET_NUMBERS, *NOT_FINITE, 0, -1.0)),
    *(("max_length", value) for value in (*NOT_COUNTS, 0, -1)),
    *(("max_tokens_per_user", value) for value in (*NOT_COUNTS, 0, -1)),
    *(("max_contributions", value) for value in (*SET_COUNTS, 0, -1)),
    *(("max_contributions", value) for value in ((), (5,), (5, 5), (5, 5, 5, 5), [5, 5])),
    *(("max_contributions", value) for value in ((5, 5, 0), (5, 5, 2.0), (5, True, 5), "555")),
    *(("budget_shares", value) for value in ((), (1.0,), (0.5, 0.5), [0.25] * 4)),
    *(("budget_shares", value) for value in ((0.5, 0.3, 0.1), (0.5, 0.5, 0.5), (1, 1, -1))),
    *(("budget_shares", value) for value in ((0.5, 0.5, 0.0), (math.nan, 0.5, 0.5), (0, 0, 1))),
    *(("budget_shares", value) for value in ("abc", ("a", 0.5, 0.5), (True, 0.5, 0.5), 1.0, True)),
    *(("pruning", value) for value in ("left", "", None, True, "BOTH", ["both"])),
    *(("valid_count", value) for value in ("guess", "", None, 3)),
    *(("strategy", value) for value in ("greedy", "", None, 1)),
    *(("adjacency", value) for value in ("replace_one_user", "", None)),
    *(("rounds", value) for value in (1, 3, "3")),
    *(("favour", value) for value in ("words", "balanced", "")),
]
OF_THE_PAPER = ("noise_growth", "budget_shares", "valid_count", "rounds", "favour")
BAD_ADAPTIVE = [
    *((name, value) for name, value in BAD if name not in OF_THE_PAPER),
    *(("rounds", value) for value in (*SET_COUNTS, 0, -1, 4, 1.0)),
    *(("favour", value) for value in ("both", "", True, 1, ["long"])),
    *(("spurious_fraction", value) for value in (0.5000001, 0.9)),
    *(("noise_growth", value) for value in (1.0, 0.8, "1")),
    *(("budget_shares", value) for value in ([0.5, 0.3, 0.2], (1.0,), "abc")),
    *(("valid_count", value) for value in ("estimate", "guess", "", None)),
    *(("pruning", value) for value in ("single",)),
]
EITHER = [
    *((GOOD, name, value) for name, value in BAD),
    *((ADAPTIVE, name, value) for name, value in BAD_ADAPTIVE),
]


def test_a_bad_value_is_refused_by_its_parameters_name():
    cases = [(good | {name: value}, name) for good, name, value in EITHER]
    assert not_refused(NgramsPlan, cases) == []


DEFAULTS = {
    "one_round": {
        "max_contributions": 100,
        "vocabulary_delta_share": 0.5,
        "noise_growth": 1.0,
        "rounds": None,
        "favour": None,
    },
    "adaptive": {
        "max_contributions": 1000,
        "vocabulary_delta_share": 0.1,
        "noise_growth": None,
        "rounds": 3,
        "favour": "balanced",
    },
}
SAME_DEFAULTS = {
    "max_length": 5,
    "spurious_fraction": 0.01,
    "pruning": "both",
    "valid_count": "exact",
    "budget_shares": None,
    "count_share": 0.15,
    "max_tokens_per_user": 1_000_000,
    "public_user_count": None,
    "adjacency": "add_or_remove_one_user",
}


@pytest.mark.parametrize("strategy", DEFAULTS)
def test_defaults_follow_the_strategy(strategy):
    plan = NgramsPlan(epsilon=1, delta=1e-6, strategy=strategy)
    expected = DEFAULTS[strategy] | SAME_DEFAULTS
    assert plan.to_dict() == expected | {"epsilon": 1, "delta": 1e-6, "strategy": strategy}
    left_out = dict.fromkeys(DEFAULTS[strategy])
    assert NgramsPlan(epsilon=1, delta=1e-6, strategy=strategy, **left_out) == plan


REFUSED = [
    (ADAPTIVE, {"noise_growth": 1.0}, "`noise_growth` must be left out .*adaptive.*=1.0"),
    (ADAPTIVE, {"budget_shares": (0.5, 0.3, 0.2)}, "`budget_shares` must be left out .*adaptive"),
    (ADAPTIVE, {"valid_count": "estimate"}, "`valid_count` must be 'exact' .*'estimate'"),
    (ADAPTIVE, {"pruning": "single"}, "`pruning` must be 'both' .*'single'"),
    (ADAPTIVE, {"spurious_fraction": 0.6}, r"`spurious_fraction` must be at most 0.5 .*=0\.6"),
    (ADAPTIVE, {"rounds": 4}, "`rounds` must be an integer from 1 to 3, got `rounds=4`"),
    (ADAPTIVE, {"favour": "short"}, "`favour` must be one of words, balanced, long, got .*short"),
    (GOOD, {"favour": "long"}, "`favour` must be left out .*one_round.*'long'"),
    (GOOD, {"rounds": 2}, "`rounds` must be left out .*one_round.*`rounds=2`"),
]


def test_an_option_that_a_strategy_does_not_have_is_refused_with_its_value():
    cases = [(good | option, said) for good, option, said in REFUSED]
    assert not_refused(NgramsPlan, cases) == []


@pytest.mark.parametrize(("rounds", "passes"), [(1, 1), (2, 2), (3, 3)])
def test_rounds_are_those_of_each_length_beyond_the_first(rounds, passes):
    plan = NgramsPlan(**ADAPTIVE, rounds=rounds)
    assert [plan.rounds_of(length) for length in (1, 2, 3)] == [3, passes, passes]
    assert sum(map(plan.rounds_of, (1, 2, 3))) == 3 + 2 * passes
    assert [len(length.rounds) for length in plan.lengths] == [3, passes, passes]
    for length in plan.lengths:
        assert math.fsum(own.error_share for own in length.rounds) == pytest.approx(1)
        assert math.fsum(own.budget_share for own in length.rounds) == pytest.approx(1)
        assert length.rounds[-1].quota == 1
        assert length.noise_stddev == 1
    assert len(plan.lengths[0].word_rules) == 3
    assert plan.lengths[0].threshold == plan.lengths[0].word_rules[-1].threshold


def test_a_user_may_spend_the_whole_budget_on_each_length():
    """μ² = (1 − f)/σ², rounded down in units of 2^-56, where the part f is for numbers of users."""
    for count_share in (0, 0.15):
        whole = NgramsPlan(**ADAPTIVE, count_share=count_share)
        with mpmath.workdps(60):
            budget = (1 - mpmath.mpf(count_share)) * mpmath.mpf(whole.noise_stddev) ** -2 * 2**56
            assert budget * (1 - 1e-15) - 1 <= whole.allotment <= budget * (1 + 1e-15)
        assert {length.budget_share for length in whole.lengths} == {None}


def test_a_budget_that_64_bits_do_not_hold_is_refused_with_its_size():
    few = {"delta": 0.5, "max_length": 2, "max_tokens_per_user": 100, "rounds": 1, "count_share": 0}
    fits = NgramsPlan(epsilon=32, **few)
    assert fits.allotment < 64 * 2**56
    with pytest.raises(ValueError, match=r"`epsilon` must be .*below 64.*Lower `epsilon`"):
        NgramsPlan(epsilon=33, **few)
    few |= {"strategy": "one_round", "rounds": None, "vocabulary_delta_share": 0.1}
    assert NgramsPlan(epsilon=33, **few).noise_stddev < 1 / 8


def count_stddevs(plan: NgramsPlan) -> list[float]:
    """The noise of numbers of users: one Gaussian mechanism of sensitivity 1, if there is one."""
    noise = plan.count_noise
    return [] if noise is None else [noise]


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_word_thresholds_are_those_of_the_formula(rounds):
    """ρ_r = max_t c_r/√t + Φ^{-1}((1 − E_r δ_T)^{1/t}), c_r = μ√ν_r, μ² = 0.85/σ²; in 60 digits."""
    plan = NgramsPlan(**ADAPTIVE, rounds=rounds, max_contributions=7)
    shares = [(0.1, 0.05), (0.27, 0.15), (0.63, 0.8)]
    with mpmath.workdps(60):
        for rule, (budget, errors) in zip(plan.lengths[0].word_rules, shares, strict=True):
            norm = mpmath.sqrt(mpmath.mpf(budget) * 0.85) / plan.noise_stddev
            tail = [
                -mpmath.expm1(mpmath.log1p(-errors * plan.vocabulary_delta) / t)
                for t in range(1, 8)
            ]
            found = max(
                norm / mpmath.sqrt(t) - mpmath.sqrt(2) * mpmath.erfinv(2 * q - 1)
                for t, q in enumerate(tail, start=1)
            )
            assert rule.threshold == pytest.approx(float(found), abs=2**-32 + 1e-9)
            assert rule.threshold >= float(found) * (1 - 1e-12)


def test_a_list_that_fits_another_number_of_lengths_is_refused_with_both_numbers():
    with pytest.raises(ValueError, match=r"`max_contributions` .* 3 lengths, got 2"):
        NgramsPlan(**ADAPTIVE, max_contributions=(5, 5))
    with pytest.raises(ValueError, match=r"`budget_shares` .* 3 lengths, got 2"):
        NgramsPlan(**GOOD, budget_shares=(0.5, 0.5))


@pytest.mark.parametrize(("growth", "length"), [(1e-40, 10), (1e40, 10), (1e-300, 2)])
def test_growth_that_leaves_a_length_no_budget_is_refused_by_name(growth, length):
    with pytest.raises(ValueError, match="noise_growth"):
        _ = NgramsPlan(**GOOD | {"max_length": length}, noise_growth=growth).lengths


def test_numerical_slack_beyond_a_thousandth_of_epsilon_is_refused():
    fits = NgramsPlan(**GOOD | {"epsilon": 0.006}, count_share=0)
    assert fits.numerical_slack == pytest.approx(0.006 / 1000)
    for others in ({"epsilon": 0.005, "count_share": 0}, {"epsilon": 0.012}):
        with pytest.raises(
            ValueError, match=r"`epsilon` must be at least .*numerical slack.*`max_tokens_per_user="
        ):
            NgramsPlan(**GOOD | others)
    for good in (GOOD, ADAPTIVE):
        with pytest.raises(ValueError, match="max_tokens_per_user"):
            NgramsPlan(**good, max_tokens_per_user=10**9)


def test_a_delta_that_no_noise_of_128_bits_has_is_refused_whatever_else_a_plan_says():
    few = {"max_tokens_per_user": 1, "max_length": 1, "strategy": "one_round", "count_share": 0}
    NgramsPlan(epsilon=1, delta=1e-20, **few)
    with pytest.raises(ValueError, match="`delta` must be at least 1e-20"):
        NgramsPlan(epsilon=1, delta=9e-21, **few)


def test_epsilon_and_delta_have_no_defaults():
    for parameters in ({}, {"epsilon": 1}, {"delta": 1e-6}):
        with pytest.raises(TypeError):
            NgramsPlan(**parameters)
        with pytest.raises(ValueError, match="default"):
            NgramsPlan.from_json(json.dumps(parameters))


count_shares = st.just(0.0) | st.floats(1e-6, 0.9)


@st.composite
def plans(draw) -> NgramsPlan:
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
    return NgramsPlan(
        epsilon=draw(st.floats(0.1, 16)),
        delta=draw(st.floats(1e-7, 0.9)),
        max_length=length,
        max_contributions=draw(limits | st.lists(limits, min_size=length, max_size=length)),
        spurious_fraction=draw(st.floats(1e-6, 0.99)),
        vocabulary_delta_share=draw(st.floats(0.01, 0.99)),
        max_tokens_per_user=draw(st.integers(1, 10**5)),
        pruning=draw(st.sampled_from(["both", "single"])),
        strategy="one_round",
        count_share=draw(count_shares),
        **noise,
    )


@st.composite
def adaptive_plans(draw) -> NgramsPlan:
    length = draw(st.integers(1, 8))
    limits = st.integers(1, 10**6)
    return NgramsPlan(
        epsilon=draw(st.floats(0.1, 16)),
        delta=draw(st.floats(1e-7, 0.5)),
        max_length=length,
        max_contributions=draw(
            st.none() | limits | st.lists(limits, min_size=length, max_size=length)
        ),
        spurious_fraction=draw(st.floats(1e-6, 0.5)),
        vocabulary_delta_share=draw(st.none() | st.floats(0.01, 0.99)),
        rounds=draw(st.sampled_from([None, 1, 2, 3])),
        max_tokens_per_user=draw(st.integers(1, 10**5)),
        count_share=draw(count_shares),
    )


@given(plans() | adaptive_plans())
def test_json_gives_the_same_plan_back(plan):
    twin = NgramsPlan.from_json(plan.to_json())
    assert twin == plan
    assert twin.to_json() == plan.to_json()
    assert json.loads(plan.to_json()).keys() == {f.name for f in dataclasses.fields(NgramsPlan)}


@given(plans() | adaptive_plans())
def test_the_lengths_together_spend_epsilon_and_delta_and_no_more(plan):
    """In 60 digits: what rounding does to the root and to the shares is covered."""
    with mpmath.workdps(60):
        if plan.is_adaptive:
            precision = mpmath.mpf(plan.allotment) / 2**56
        else:
            precision = mpmath.fsum(mpmath.mpf(k.noise_stddev) ** -2 for k in plan.lengths)
        precision += mpmath.fsum(mpmath.mpf(stddev) ** -2 for stddev in count_stddevs(plan))
        sigma = 1 / mpmath.sqrt(precision)
        epsilon = mpmath.mpf(plan.gaussian_epsilon)
        upper, lower = 1 / (2 * sigma) - epsilon * sigma, -1 / (2 * sigma) - epsilon * sigma
        delta = mpmath.ncdf(upper) - mpmath.exp(epsilon) * mpmath.ncdf(lower)
        assert delta <= plan.gaussian_delta
        assert delta >= plan.gaussian_delta * (1 - 1e-6)
    slack, spent = plan.numerical_slack, plan.gaussian_delta + plan.vocabulary_delta
    assert plan.gaussian_epsilon + slack <= plan.epsilon
    assert math.exp(slack / 2) * spent + plan.far_tails <= plan.delta
    assert spent >= 0.998 * plan.delta * math.exp(-0.001 * plan.epsilon)


@given(st.lists(st.floats(1e-3, 1), min_size=1, max_size=9), st.floats(-9e-10, 9e-10))
def test_shares_that_nearly_sum_to_one_spend_no_more_than_one(parts, excess):
    shares = [min(1.0, part / math.fsum(parts) * (1 + excess)) for part in parts]
    plan = NgramsPlan(**GOOD | {"max_length": len(parts)}, budget_shares=shares)
    together = math.fsum(length.noise_stddev**-2 for length in plan.lengths) ** -0.5
    needed = gaussian_noise_stddev(epsilon=plan.gaussian_epsilon, delta=plan.gaussian_delta)
    assert together > needed
