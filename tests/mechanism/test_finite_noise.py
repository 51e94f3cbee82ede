"""Noise of 128 bits: where it ends, what is far, and which plans are refused for it."""

import dataclasses
import math
import re

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.counts.rule import MOST_TOTALS
from beam_dpne.mechanism import finite_noise
from beam_dpne.mechanism.finite_noise import (
    FAR_TAILS,
    LAPLACE_END,
    LEAST_UNIFORM,
    NORMAL_END,
    NoiseDraws,
    beyond_end,
    both_worlds,
)
from beam_dpne.mechanism.gaussian import gaussian_noise_stddev
from beam_dpne.mechanism.randomness import laplaces, normals, uniforms
from beam_dpne.mechanism.rules import CELLS_PER_STDDEV
from beam_dpne.ngrams.plan import PrivacyPlan, noise_draws
from beam_dpne.ngrams.tolerances import MOST_COUNTED
from beam_dpne.ngrams.vocabulary import union_plan
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.set_union.policies import CUTOFF_POLICIES, LAPLACE_POLICIES, POLICIES

ALL_ONES = 2**64 - 1
DRAWS = {"gaussian": normals, "laplace": laplaces}
ENDS = {"gaussian": NORMAL_END, "laplace": LAPLACE_END}
EXTREMES = np.array(
    [[0, 0], [0, 1], [0, 2], [ALL_ONES, ALL_ONES], [ALL_ONES, ALL_ONES - 1]], dtype=np.uint64
)


def block(place: int) -> np.ndarray:
    """The bits for which U = (2·place + 1)/2^128."""
    whole = 2 * place + 1
    return np.array([[whole >> 64, whole & ALL_ONES]], dtype=np.uint64)


def upper_tail(x, kind: str) -> mpmath.mpf:
    """P(noise of scale 1 > x) of ideal noise, x ≥ 0."""
    return (
        mpmath.erfc(mpmath.mpf(x) / mpmath.sqrt(2)) / 2
        if kind == "gaussian"
        else mpmath.exp(-x) / 2
    )


@pytest.mark.parametrize("kind", DRAWS)
def test_the_named_end_is_the_largest_noise_of_the_generator_at_its_extreme_blocks(kind):
    noise = DRAWS[kind](EXTREMES)
    assert uniforms(EXTREMES).min() == LEAST_UNIFORM
    assert (noise.max(), noise.min()) == (ENDS[kind], -ENDS[kind])
    assert np.abs(noise[2]) < ENDS[kind]
    assert (noise[3:] == 0).all()


def test_the_ends_are_the_quantiles_of_the_least_uniform():
    with mpmath.workdps(60):
        normal = mpmath.sqrt(2) * mpmath.erfinv(1 - mpmath.mpf(2) ** -128)
        assert pytest.approx(float(normal), rel=1e-14) == NORMAL_END
        assert pytest.approx(float(128 * mpmath.log(2)), rel=1e-14) == LAPLACE_END
    assert (round(NORMAL_END, 1), round(LAPLACE_END, 1)) == (13.1, 88.7)


@pytest.mark.parametrize("kind", DRAWS)
def test_the_mass_beyond_the_end_is_that_of_the_shifted_tail(kind):
    for shift in (0.0, 0.5, 3.0, 8.0, 13.0, 20.0, 88.0, 120.0):
        with mpmath.workdps(60):
            rest = mpmath.mpf(ENDS[kind]) - shift
            exact = upper_tail(rest, kind) if rest > 0 else 1 - upper_tail(-rest, kind)
            assert beyond_end(kind, shift) == pytest.approx(float(exact), rel=1e-9), shift


@pytest.mark.parametrize("kind", DRAWS)
def test_cells_below_3e_27_have_together_at_most_the_far_tail(kind):
    """Cells as wide as those that leave: a 64th of a standard deviation, √2 λ for Laplace noise."""
    with mpmath.workdps(60):
        deviation = mpmath.sqrt(2) if kind == "laplace" else mpmath.mpf(1)
        width = deviation / CELLS_PER_STDDEV
        low, high = mpmath.mpf(0), mpmath.mpf(ENDS[kind])
        for _ in range(150):
            middle = (low + high) / 2
            mass = upper_tail(middle, kind) - upper_tail(middle + width, kind)
            low, high = (middle, high) if mass > mpmath.mpf("3e-27") else (low, middle)
        far = 2 * upper_tail(low, kind)
    assert 0.9 * FAR_TAILS[kind] < far <= FAR_TAILS[kind]


@pytest.mark.parametrize(("kind", "near"), [("gaussian", 10.5), ("laplace", 56.0)])
def test_a_cell_that_is_not_far_has_its_probability_to_a_relative_1e_12(kind, near):
    """Counted on the generator: places m of U between the borders of a cell, by bisection."""

    def first_place(border: float) -> int:
        low, high = 0, 2**127
        while low < high:
            middle = (low + high) // 2
            if abs(DRAWS[kind](block(middle))[0]) <= border:
                high = middle
            else:
                low = middle + 1
        return low

    width = (math.sqrt(2) if kind == "laplace" else 1.0) / CELLS_PER_STDDEV
    with mpmath.workdps(60):
        exact = upper_tail(near, kind) - upper_tail(near + width, kind)
        assert exact > mpmath.mpf("3e-27")
        drawn = mpmath.mpf(first_place(near) - first_place(near + width)) / 2**128
        assert abs(drawn / exact - 1) < 2e-12


def test_what_only_one_world_can_show_is_refused_where_the_far_tails_are_not():
    """One draw, whose mean a user moves by ten deviations: impossible without the user."""
    draws = NoiseDraws(
        kind="gaussian",
        count=1,
        moved=1,
        far_tail=FAR_TAILS["gaussian"],
        epsilon=50.0,
        delta=0.5,
        gaussian_delta=0.45,
    )
    assert draws.far_tails < draws.delta / 1000 < draws.beyond_support
    assert not draws.fits
    assert draws._replace(moved=0).fits


def test_far_outcomes_are_charged_in_both_worlds():
    for epsilon in (0.1, 1.0, 8.0, 30.0):
        with mpmath.workdps(40):
            exact = mpmath.mpf("1e-26") * (1 + mpmath.exp(epsilon))
        assert both_worlds(1e-26, epsilon) == pytest.approx(float(exact), rel=1e-12)
    assert both_worlds(1e-26, 1e4) == math.inf


@settings(max_examples=40, deadline=None)
@given(st.floats(0.05, 60), st.floats(1e-12, 0.9))
def test_what_a_user_moves_is_the_whole_budget(epsilon, delta):
    laplace = NoiseDraws("laplace", 5, 3, 0.0, epsilon, delta)
    assert laplace.shift == epsilon
    gaussian = NoiseDraws("gaussian", 5, 3, 0.0, epsilon, delta, delta / 2)
    assert gaussian.shift == 1 / gaussian_noise_stddev(epsilon=epsilon, delta=delta / 2)
    for draws in (laplace, gaussian):
        moved, others = beyond_end(draws.kind, draws.shift), beyond_end(draws.kind, 0.0)
        assert draws.beyond_support == pytest.approx(3 * moved + 5 * others)


def numbers_of(message: str) -> dict[str, float]:
    """The ε and the δ that an error states as accepted."""
    found = {
        "epsilon": re.search(r"epsilon must be at most (\S+) with", message),
        "delta": re.search(r"delta must be at least (\S+) with", message),
    }
    return {name: float(match[1]) for name, match in found.items() if match}


FULL = [
    (SetUnionPlan, {"policy": "weighted_laplace", "max_contributions": 1}),
    *((SetUnionPlan, {"policy": policy}) for policy in POLICIES),
    *((SetUnionPlan, {"policy": policy, "max_contributions": 7}) for policy in POLICIES),
    (PrivacyPlan, {}),
    (PrivacyPlan, {"strategy": "one_round", "max_length": 3}),
    (PrivacyPlan, {"user_budgets": "even", "rounds": 2}),
    (PrivacyPlan, {"vocabulary_policy": "public"}),
    *(
        (PrivacyPlan, {"vocabulary_policy": policy, "strategy": strategy})
        for policy in ("weighted_gaussian", "screened_gaussian")
        for strategy in ("adaptive", "one_round")
    ),
    (BayesianPlan, {}),
    (BayesianPlan, {"mode": "log_global", "max_contributions": 100}),
]


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(100.0, 1e-10), (60.0, 1e-6), (200.0, 1e-3), (1e9, 1e-9)]
)
def test_a_plan_beyond_the_noise_is_refused_with_an_epsilon_that_passes(epsilon, delta):
    for kind, others in FULL:
        assert_refused_with_an_epsilon_that_passes(kind, others, epsilon, delta)


def assert_refused_with_an_epsilon_that_passes(kind, others, epsilon, delta):
    with pytest.raises(ValueError, match="epsilon must be at most") as caught:
        kind(epsilon=epsilon, delta=delta, **others)
    stated = numbers_of(str(caught.value))
    assert f"got epsilon={epsilon} and delta={delta}" in str(caught.value)
    fits = kind(epsilon=stated["epsilon"], delta=delta, **others)
    if isinstance(fits, PrivacyPlan) and fits.has_union_vocabulary:
        assert union_plan(fits).policy == fits.vocabulary_policy
    with pytest.raises(ValueError, match="epsilon must be at most"):
        kind(epsilon=stated["epsilon"] * 1.02, delta=delta, **others)


@pytest.mark.parametrize(
    ("kind", "others"),
    [
        (PrivacyPlan, {"delta": 1e-19}),
        (PrivacyPlan, {"delta": 1e-16, "strategy": "one_round"}),
        (SetUnionPlan, {"delta": 1e-15}),
        (SetUnionPlan, {"delta": 1e-19, "policy": "count_laplace"}),
        (BayesianPlan, {"delta": 1e-20, "max_contributions": 1000}),
    ],
    ids=repr,
)
def test_a_delta_below_the_far_tails_is_refused_with_one_that_passes(kind, others):
    with pytest.raises(ValueError, match=r"delta must be at least .* with epsilon=1\.0") as caught:
        kind(epsilon=1, **others)
    stated = numbers_of(str(caught.value))["delta"]
    assert stated > others["delta"]
    assert kind(epsilon=1, **others | {"delta": stated}).delta == stated
    with pytest.raises(ValueError, match="delta must be at least"):
        kind(epsilon=1, **others | {"delta": 0.98 * stated})


def test_where_neither_number_alone_helps_both_are_named():
    with pytest.raises(ValueError, match=r"delta must be at least .* and epsilon must be lower"):
        SetUnionPlan(epsilon=200, delta=1e-19)


def test_a_score_that_ten_users_never_reach_and_eleven_always_do_is_refused():
    """At ε = 100 Laplace noise ends at 0.89 of weight: presence would be certain."""
    scale = 1 / 100
    threshold = 1 + scale * math.log(1 / (2 * 1e-10))
    assert 10 + LAPLACE_END * scale == pytest.approx(10.89, abs=0.005)
    assert threshold < 10
    with pytest.raises(ValueError, match=r"epsilon must be at most 2\d\.\d with delta=1e-10"):
        SetUnionPlan(
            epsilon=100,
            delta=1e-10,
            policy="weighted_laplace",
            max_contributions=1,
            count_share=0,
        )


@pytest.mark.parametrize("count_share", [0, 0.2])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_set_union_pays_its_far_tails_in_both_worlds(policy, count_share):
    plan = SetUnionPlan(
        epsilon=5,
        delta=1e-8,
        policy=policy,
        max_contributions=20,
        max_users=10**5,
        max_items_per_user=10**5,
        count_share=count_share,
    )
    rounds = {"screened_gaussian": 3, "mad2r": 2, "sips": 3}.get(policy, 1)
    decisions = 20 * rounds * (10**5 if policy in CUTOFF_POLICIES else 1)
    far = FAR_TAILS["laplace" if policy in LAPLACE_POLICIES else "gaussian"]
    counts = (10**5 + MOST_TOTALS) * FAR_TAILS["gaussian"] if count_share else 0.0
    expected = (decisions * far + counts) * (1 + math.exp(5))
    assert plan.far_tails == pytest.approx(expected, rel=1e-12, abs=0)
    spent = (plan.gaussian_delta + plan.vocabulary_delta) * math.exp(plan.numerical_slack)
    assert spent == pytest.approx(1e-8 * (1 - 3e-12) - plan.far_tails, rel=1e-13, abs=0)


@pytest.mark.parametrize("strategy", ["adaptive", "one_round"])
def test_n_grams_pay_their_far_tails_in_both_worlds(strategy):
    plan = PrivacyPlan(epsilon=1, delta=1e-14, strategy=strategy, max_tokens_per_user=10**6)
    decisions = {"adaptive": 3 + 4 * 3, "one_round": 5}[strategy] * 10**6 + plan.count_decisions
    # With classes, held candidates of six groups are counted at each length from 2 to 5.
    decisions += {"adaptive": 4 * 6, "one_round": 0}[strategy]
    assert plan.count_decisions > 5 * 10**6
    expected = decisions * FAR_TAILS["gaussian"] * (1 + math.e)
    assert plan.far_tails == pytest.approx(expected, rel=1e-12, abs=0)
    assert plan.far_tails > 1e-5 * plan.delta
    spent = (plan.gaussian_delta + plan.vocabulary_delta) * math.exp(plan.numerical_slack)
    assert spent == pytest.approx(plan.delta - expected, rel=1e-12, abs=0)
    noise = gaussian_noise_stddev(epsilon=1 - plan.numerical_slack, delta=plan.gaussian_delta)
    assert plan.noise_stddev == pytest.approx(noise, rel=1e-9)


def test_words_of_a_set_union_are_charged_with_the_runs_epsilon():
    given = {"epsilon": 3, "delta": 1e-8, "max_users": 10**6, "max_contributions": 50}
    alone = PrivacyPlan(**given)
    plan = PrivacyPlan(**given, vocabulary_policy="screened_gaussian")
    words = 3 * 10**6 * 50 * FAR_TAILS["gaussian"] * (1 + math.exp(3))
    assert plan.far_tails == pytest.approx(alone.far_tails + words, rel=1e-12, abs=0)


def test_probabilities_pay_their_far_tails_in_both_worlds():
    plan = BayesianPlan(epsilon=20, delta=1e-9, max_contributions=50)
    assert 0 < plan.far_tails <= plan.delta / 1000
    assert plan.gaussian_delta == pytest.approx(
        (plan.delta - plan.far_tails) * math.exp(-plan.numerical_slack), rel=1e-13, abs=0
    )
    assert plan.far_tails >= 50 * 6e-27 * (1 + math.exp(20))


@pytest.mark.parametrize("strategy", ["adaptive", "one_round"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-12), (1, 1e-7), (8, 1e-9), (18, 1e-7)])
def test_the_bound_beyond_the_support_covers_the_plans_own_rounds(strategy, epsilon, delta):
    """By the noise of each length (or the allotment) itself, in 40 digits: what is refused is more."""
    plan = PrivacyPlan(epsilon=epsilon, delta=delta, strategy=strategy)
    lost = mpmath.mpf(0)
    with mpmath.workdps(40):
        for length in plan.lengths:
            if plan.strategy_value.has_user_budgets:
                shift = mpmath.sqrt(mpmath.mpf(plan.allotment) / 2**56)
            else:
                shift = 1 / mpmath.mpf(length.noise_stddev)
            tail = mpmath.ncdf(shift - mpmath.mpf(NORMAL_END))
            lost += plan.rounds_of(length.length) * length.max_contributions * tail
    (stated,) = noise_draws(plan, epsilon, delta)
    assert lost <= stated.beyond_support <= finite_noise.LARGEST_SHARE * delta


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0, 8.0])
def test_sensible_plans_have_the_noise_they_had(epsilon):
    """Far tails move the noise by less than the margin of its own root."""
    plan = PrivacyPlan(epsilon=epsilon, delta=1e-7)
    before = gaussian_noise_stddev(
        epsilon=epsilon - plan.numerical_slack, delta=0.9e-7 * math.exp(-plan.numerical_slack)
    )
    assert plan.noise_stddev == pytest.approx(before * (1 + 1e-10), rel=1e-9)


def test_every_draw_that_a_user_decides_about_or_moves_is_counted():
    """Numbers by hand: none may be left out, and δ_G is what is left of δ for Gaussian noise."""
    given = {"epsilon": 2, "delta": 1e-6, "max_contributions": 40, "count_share": 0}
    weighted = SetUnionPlan(**given, policy="weighted_gaussian")
    (found,) = weighted.noise_draws(2.0, 1e-6)
    assert (found.count, found.moved) == (40, 40)
    assert found.gaussian_delta == pytest.approx(0.5e-6, abs=0)
    uneven = dataclasses.replace(weighted, vocabulary_delta_share=0.2)
    (found,) = uneven.noise_draws(2.0, 1e-6)
    assert found.gaussian_delta == pytest.approx(0.8e-6, abs=0)
    screened = SetUnionPlan(**given, policy="screened_gaussian", max_users=1000)
    (found,) = screened.noise_draws(2.0, 1e-6)
    assert (found.count, found.moved) == (3 * 1000 * 40, 3 * 1000 * 40)
    counted = dataclasses.replace(screened, count_share=0.2, max_items_per_user=500)
    (found,) = counted.noise_draws(2.0, 1e-6)
    draws = 3 * 1000 * 40 + 500 + MOST_TOTALS
    assert (found.kind, found.count, found.moved) == ("gaussian", draws, draws)
    assert found.gaussian_delta == pytest.approx(0.5e-6, abs=0)
    laplace = SetUnionPlan(**given, policy="weighted_laplace", max_items_per_user=500)
    items, users = dataclasses.replace(laplace, count_share=0.2).noise_draws(2.0, 1e-6)
    assert (items.kind, items.count) == ("laplace", 40)
    assert (users.kind, users.count, users.moved) == ("gaussian", *(500 + MOST_TOTALS,) * 2)
    assert users.gaussian_delta == pytest.approx(0.2e-6, rel=1e-12)
    bayesian = BayesianPlan(epsilon=2, delta=1e-6, max_contributions=7)
    found = bayesian._noise_draws(2.0, 1e-6)
    assert (found.count, found.moved, found.gaussian_delta) == (7, 7, 1e-6)


def test_draws_of_lengths_and_of_their_words_are_counted():
    given = {"epsilon": 2, "delta": 1e-6, "max_length": 3, "max_contributions": (5, 6, 7)}
    given |= {"max_tokens_per_user": 1000}
    plan = PrivacyPlan(**given, rounds=3)
    # Of each released n-gram, and of each group of them, the users are counted.
    counts = plan.count_decisions
    assert counts == 3 * 1000 + 3 * MOST_TOTALS
    (found,) = noise_draws(plan, 2.0, 1e-6)
    rounds = [plan.rounds_of(length) for length in (1, 2, 3)]
    held = 2 * MOST_COUNTED  # The candidates of each counted group, at lengths 2 and 3.
    assert (found.count, found.moved) == (
        sum(rounds) * 1000 + counts + held,
        rounds[0] * 5 + rounds[1] * 6 + rounds[2] * 7 + counts + held,
    )
    assert found.gaussian_delta == pytest.approx(0.9e-6, abs=0)
    united = PrivacyPlan(**given, vocabulary_policy="screened_gaussian", max_users=500)
    together, words = noise_draws(united, 2.0, 1e-6)
    assert (words.count, words.moved) == (3 * 500 * 5, 3 * 500 * 5)
    later = sum(united.rounds_of(length) for length in (2, 3))
    assert together.count == united.round_count * 1000 + 3 * 500 * 5 + counts + held
    assert together.moved == 3 * 6 + 3 * 7 + 3 * 500 * 5 + counts + held
    assert later == 6
    # The words' own plan has twice their δ_T, of which half is theirs; see `union_plan`.
    assert 1.9 < words.delta / (1e-6 * united.delta_share) < 2
    independent = PrivacyPlan(**given, vocabulary_policy="weighted_gaussian")
    _, words = noise_draws(independent, 2.0, 1e-6)
    assert (words.kind, words.count, words.moved) == ("gaussian", 5, 5)


def test_what_is_spare_comes_off_delta_three_times():
    plan = SetUnionPlan(epsilon=2, delta=1e-6, policy="weighted_gaussian", max_contributions=40)
    rest = plan.delta - plan.far_tails - plan.usable_delta * math.exp(plan.numerical_slack)
    assert rest / plan.delta == pytest.approx(3e-12, rel=1e-3)
