"""Noise of 128 bits: where it ends, what is far, and which plans are refused for it."""

import math
import re

import mpmath
import numpy as np
import pytest

from beam_dpne.bayesian.plan import ProbabilitiesPlan
from beam_dpne.mechanism.gaussian import (
    FAR_TAIL,
    INTEGER_FAR,
    both_worlds,
    gaussian_noise_stddev,
    integer_far_tails,
    integer_slack,
)
from beam_dpne.mechanism.randomness import (
    LEAST_UNIFORM,
    NORMAL_END,
    RunKey,
    integer_normals,
    keyed_bits,
    normals,
    uniforms,
)
from beam_dpne.mechanism.rules import CELLS_PER_STDDEV
from beam_dpne.ngrams.plan import NgramsPlan
from beam_dpne.ngrams.tolerances import MOST_COUNTED
from beam_dpne.set_union.plan import DESCENT_POLICIES, POLICIES, SetUnionPlan

ALL_ONES = 2**64 - 1
EXTREMES = np.array(
    [[0, 0], [0, 1], [0, 2], [ALL_ONES, ALL_ONES], [ALL_ONES, ALL_ONES - 1]], dtype=np.uint64
)


def block(place: int) -> np.ndarray:
    """The bits for which U = (2·place + 1)/2^128."""
    whole = 2 * place + 1
    return np.array([[whole >> 64, whole & ALL_ONES]], dtype=np.uint64)


def upper_tail(x) -> mpmath.mpf:
    """P(noise of scale 1 > x) of ideal noise, x ≥ 0."""
    return mpmath.erfc(mpmath.mpf(x) / mpmath.sqrt(2)) / 2


def test_the_named_end_is_the_largest_noise_of_the_generator_at_its_extreme_blocks():
    noise = normals(EXTREMES)
    assert uniforms(EXTREMES).min() == LEAST_UNIFORM
    assert (noise.max(), noise.min()) == (NORMAL_END, -NORMAL_END)
    assert np.abs(noise[2]) < NORMAL_END
    assert (noise[3:] == 0).all()
    with mpmath.workdps(60):
        normal = mpmath.sqrt(2) * mpmath.erfinv(1 - mpmath.mpf(2) ** -128)
        assert pytest.approx(float(normal), rel=1e-14) == NORMAL_END


def test_cells_below_3e_27_have_together_at_most_the_far_tail():
    """Cells as wide as those that leave: a 64th of a standard deviation."""
    with mpmath.workdps(60):
        width = mpmath.mpf(1) / CELLS_PER_STDDEV
        low, high = mpmath.mpf(0), mpmath.mpf(NORMAL_END)
        for _ in range(150):
            middle = (low + high) / 2
            mass = upper_tail(middle) - upper_tail(middle + width)
            low, high = (middle, high) if mass > mpmath.mpf("3e-27") else (low, middle)
        far = 2 * upper_tail(low)
    assert 0.9 * FAR_TAIL < far <= FAR_TAIL


def test_a_cell_that_is_not_far_has_its_probability_to_a_relative_1e_12():
    """Counted on the generator: places m of U between the borders of a cell, by bisection."""

    def first_place(border: float) -> int:
        low, high = 0, 2**127
        while low < high:
            middle = (low + high) // 2
            if abs(normals(block(middle))[0]) <= border:
                high = middle
            else:
                low = middle + 1
        return low

    near, width = 10.5, 1 / CELLS_PER_STDDEV
    with mpmath.workdps(60):
        exact = upper_tail(near) - upper_tail(near + width)
        assert exact > mpmath.mpf("3e-27")
        drawn = mpmath.mpf(first_place(near) - first_place(near + width)) / 2**128
        assert abs(drawn / exact - 1) < 2e-12


def test_far_outcomes_are_charged_in_both_worlds():
    for epsilon in (0.1, 1.0, 8.0, 30.0):
        with mpmath.workdps(40):
            exact = mpmath.mpf("1e-26") * (1 + mpmath.exp(epsilon))
        assert both_worlds(1e-26, epsilon) == pytest.approx(float(exact), rel=1e-12)
    assert both_worlds(1e-26, 1e4) == math.inf


FULL = [
    *((SetUnionPlan, {"policy": policy}) for policy in POLICIES),
    (NgramsPlan, {}),
    (NgramsPlan, {"strategy": "one_round", "max_length": 3}),
    (NgramsPlan, {"rounds": 2}),
    (ProbabilitiesPlan, {}),
]


@pytest.mark.parametrize(("kind", "others"), FULL, ids=repr)
@pytest.mark.parametrize("epsilon", [0.3, 4.0, 8.0])
def test_the_reserve_pays_for_floating_point_and_far_tails_in_both_worlds(kind, others, epsilon):
    """ε' + s ≤ ε and e^(s/2) δ' + the cost of far tails ≤ δ, in 40 digits."""
    plan = kind(epsilon=epsilon, delta=1e-7, **others)
    parts = plan.gaussian_delta + getattr(plan, "vocabulary_delta", 0.0)
    with mpmath.workdps(40):
        slack = mpmath.mpf(plan.numerical_slack)
        assert 0 < slack <= plan.epsilon - mpmath.mpf(plan.gaussian_epsilon)
        assert mpmath.exp(slack / 2) * parts + plan.far_tails <= plan.delta
        # Plans may have a slack of ε/1000, and far tails that cost δ/1000.
        most = mpmath.exp(mpmath.mpf(epsilon) / 2000) * parts + mpmath.mpf(plan.delta) / 1000
        assert most <= plan.delta
    assert parts >= 0.998 * plan.delta * math.exp(-0.001 * epsilon)
    assert plan.far_tails > 0


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(100.0, 1e-10), (60.0, 1e-6), (200.0, 1e-3), (1e9, 1e-9)]
)
def test_a_plan_beyond_the_noise_is_refused(epsilon, delta):
    for kind, others in FULL:
        with pytest.raises(
            ValueError, match=r"`epsilon` must be at most .* with `delta=.* Lower `\w"
        ):
            kind(epsilon=epsilon, delta=delta, **others)


@pytest.mark.parametrize(
    ("kind", "others"),
    [
        (NgramsPlan, {"delta": 1e-19}),
        (NgramsPlan, {"delta": 1e-16, "strategy": "one_round"}),
        (SetUnionPlan, {"delta": 1e-15}),
    ],
    ids=repr,
)
def test_a_delta_below_the_far_tails_is_refused_with_one_that_passes(kind, others):
    with pytest.raises(
        ValueError, match=r"`delta` must be at least .* with `epsilon=1\.0`"
    ) as caught:
        kind(epsilon=1, **others)
    (stated,) = re.findall(r"`delta` must be at least (\S+) with", str(caught.value))
    assert float(stated) > others["delta"]
    assert kind(epsilon=1, **others | {"delta": float(stated)}).delta == float(stated)


@pytest.mark.parametrize(
    ("kind", "others"),
    [
        (NgramsPlan, {}),
        (NgramsPlan, {"strategy": "one_round"}),
        (SetUnionPlan, {}),
        (ProbabilitiesPlan, {"length": 2, "max_contributions": 5}),
    ],
    ids=repr,
)
def test_an_epsilon_beyond_the_far_tails_is_refused_with_the_largest(kind, others):
    with pytest.raises(ValueError, match=r"^`epsilon` must be at most") as caught:
        kind(epsilon=100, delta=1e-6, **others)
    (stated,) = re.findall(r"`epsilon` must be at most (\S+) with", str(caught.value))
    kind(epsilon=float(stated), delta=1e-6, **others)
    with pytest.raises(ValueError, match="`epsilon` must be at most"):
        kind(epsilon=1.01 * float(stated), delta=1e-6, **others)


@pytest.mark.parametrize("count_share", [0, 0.2])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_set_union_pays_for_every_item_that_a_user_decides_about(policy, count_share):
    given = {"epsilon": 2, "delta": 1e-6, "max_contributions": 40, "max_users": 1000}
    plan = SetUnionPlan(**given, policy=policy, count_share=count_share, max_items_per_user=500)
    followers = 1000 if policy in DESCENT_POLICIES else 1
    items = len(plan.union_rounds) * 40 * followers
    expected = items * FAR_TAIL
    if count_share:
        expected += (3 * 500 + 2) * FAR_TAIL
    expected = expected * (1 + math.exp(2)) + 3e-12 * plan.delta
    assert plan.far_tails == pytest.approx(expected, rel=1e-12, abs=0)


def test_n_grams_pay_for_every_decision_of_a_user():
    given = {"epsilon": 2, "delta": 1e-6, "max_length": 3, "max_contributions": (5, 6, 7)}
    plan = NgramsPlan(**given, max_tokens_per_user=1000, rounds=3)
    # Three sums of each released n-gram, and two numbers of users of classes.
    counts = 3 * 3 * 1000 + 2
    # The candidates of each counted group at lengths 2 and 3, known ones and others; known words twice.
    held = 2 * 2 * MOST_COUNTED + 2
    assert plan.decisions == 9 * 1000 + counts + held
    assert plan.numerical_slack == pytest.approx(plan.decisions * 2e-12, rel=1e-12, abs=0)
    far = plan.decisions * FAR_TAIL * (1 + math.exp(2))
    assert plan.far_tails == pytest.approx(far, rel=1e-12, abs=0)


def test_sensible_plans_have_nearly_the_noise_of_their_whole_budget():
    for epsilon in (0.5, 1.0, 4.0, 8.0):
        plan = NgramsPlan(epsilon=epsilon, delta=1e-7)
        whole = gaussian_noise_stddev(epsilon=epsilon, delta=0.9e-7)
        assert 1 < plan.noise_stddev / whole < 1.0015


def drawn(place: int, stddev: float) -> int:
    """The noise's size for U = (2·place + 1)/2^128, through the code."""
    return abs(int(integer_normals(normals(block(place)), stddev)[0]))


def first_place(size: int, stddev: float) -> int:
    """The least place in range(2^127) whose noise is at most `size`: noise falls as U grows."""
    low, high = 0, 2**127
    while low < high:
        middle = (low + high) // 2
        if drawn(middle, stddev) <= size:
            high = middle
        else:
            low = middle + 1
    return low


def two_sided_tail(size: int, stddev: float) -> mpmath.mpf:
    """P(|noise| > size) of noise rounded without error."""
    return mpmath.erfc((mpmath.mpf(size) + mpmath.mpf(1) / 2) / mpmath.mpf(stddev) / mpmath.sqrt(2))


@pytest.mark.parametrize("stddev", [0.4, 1.0, 3.7, 8.0, 50.0, 400.0, 123456.7, 1e7])
def test_each_integers_probability_is_right_to_the_stated_error(stddev):
    worst = mpmath.mpf(0)
    with mpmath.workdps(60):
        for deviations in (0.0, 0.3, 1.0, 2.5, 5.0, 8.0, 9.5, 10.3):
            size = round(deviations * stddev)
            below = mpmath.mpf(1) if size == 0 else two_sided_tail(size - 1, stddev)
            exact = below - two_sided_tail(size, stddev)
            if exact / 2 < 3e-27:
                continue
            upper = 2**127 if size == 0 else first_place(size - 1, stddev)
            measured = mpmath.mpf(upper - first_place(size, stddev)) / 2**127
            worst = max(worst, abs(measured / exact - 1))
    assert 0 < worst < integer_slack(stddev=stddev, draws=1) / 2


@pytest.mark.parametrize("stddev", [0.4, 1.0, 8.0, 300.0, 1e5])
def test_integers_that_are_less_probable_are_within_the_far_tails(stddev):
    with mpmath.workdps(60):
        size = 0
        step = 2 ** max(0, math.ceil(math.log2(15 * stddev + 1)))
        while step:
            wider = size + step
            mass = (two_sided_tail(wider - 1, stddev) - two_sided_tail(wider, stddev)) / 2
            if mass >= 3e-27:
                size = wider
            step //= 2
        assert two_sided_tail(size, stddev) <= INTEGER_FAR * (1 + stddev / 8)


def test_noise_has_the_moments_of_the_rounded_normal():
    draws = normals(keyed_bits(RunKey(bytes(32)).sub_key("noise"), np.arange(200_000), 0))
    noise = integer_normals(draws, 3.0)
    assert noise.dtype == np.int64
    # Rounding adds 1/12 to the variance. Six deviations of each estimate: odds below 1e-8.
    assert abs(noise.mean()) < 6 * 3.02 / 200_000**0.5
    assert abs(noise.var() - (9 + 1 / 12)) < 6 * 9.1 * (2 / 200_000) ** 0.5


def test_slacks_grow_with_what_one_user_changes():
    assert integer_slack(stddev=1.0, draws=10) == pytest.approx(4e-11)
    assert integer_slack(stddev=1e6, draws=10) == pytest.approx(2e-6)
    assert integer_far_tails(stddev=1.0, draws=10, epsilon=1.0) < 1e-24
    assert integer_far_tails(stddev=1.0, draws=10, epsilon=60.0) > 0.01
    assert integer_far_tails(stddev=1.0, draws=10, epsilon=1e9) == math.inf
