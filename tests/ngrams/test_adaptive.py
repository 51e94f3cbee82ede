"""The adaptive strategy's arithmetic: budgets, spends, weights and their costs, in exact integers."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from beam_dpne.elements.arrays import rows_of_entries
from beam_dpne.mechanism import gaussian
from beam_dpne.mechanism.rules import UNITS
from beam_dpne.mechanism.thresholds import null_law
from beam_dpne.ngrams import adaptive
from tests.oracle import ngrams as reference

UNIT = 2**56
WHOLE = 64 * UNIT - 1
BUDGETS = st.integers(0, WHOLE) | st.integers(0, 2000) | st.just(WHOLE)
SHARES = st.lists(st.just(0.0) | st.floats(0.1, 1.5), max_size=40)


def rounds_in_use():
    yield from adaptive.WORD_ROUNDS
    for rounds in adaptive.GRAM_ROUNDS.values():
        yield from rounds


def offsets_of(sizes) -> np.ndarray:
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)


@given(st.floats(0.1251, 1e6))
@example(math.nextafter(0.125, 1))
def test_a_users_budget_is_the_largest_integer_that_the_noise_allows(noise_stddev):
    budget = adaptive.user_budget(noise_stddev)
    assert budget <= UNIT / Fraction(noise_stddev) ** 2 < budget + 1
    assert 0 <= budget < 64 * UNIT


@pytest.mark.parametrize("noise_stddev", [0.125, 0.1, 1e-3])
def test_a_budget_beyond_64_bits_is_refused(noise_stddev):
    with pytest.raises(ValueError, match="budget is below 64"):
        adaptive.user_budget(noise_stddev)


@given(BUDGETS, st.sampled_from(list(adaptive.WORD_ROUNDS)))
def test_the_rounds_of_words_may_together_spend_the_budget_and_no_more(budget, own):
    assert 0 <= adaptive.round_cap(budget, own) <= budget
    together = sum(adaptive.round_cap(budget, other) for other in adaptive.WORD_ROUNDS)
    assert budget * (1 - 1e-12) - 2 <= together <= budget * (1 + 1e-12)


# Step 1.


@given(st.lists(st.lists(st.booleans(), max_size=14), max_size=5), st.integers(0, 5))
@example([[True] * 14], 5)
@example([[], [False], []], 3)
def test_grams_ahead_are_the_runs_of_present_positions_by_brute_force(texts, longer):
    """Each text of its own user, with a border after it; and all texts of one user."""
    present = np.array([value for text in texts for value in (*text, False)], dtype=bool)
    expected = [
        sum(
            i + d < len(text) and all(text[i : i + d + 1])
            for i in range(len(text))
            for d in range(1, longer + 1)
        )
        for text in texts
    ]
    apart = offsets_of([len(text) + 1 for text in texts])
    assert adaptive.grams_ahead(present, apart, longer).tolist() == expected
    together = np.array([0, present.size])
    assert adaptive.grams_ahead(present, together, longer).tolist() == [sum(expected)]


@given(st.lists(st.tuples(BUDGETS, st.integers(0, 10**6), st.integers(0, 10**7)), max_size=9))
def test_a_user_spends_the_formulas_part_and_never_more_than_what_is_left(users):
    left, own, ahead = np.array(users, dtype=np.int64).reshape(-1, 3).T
    more = 1 + adaptive.MORE_BESIDE_KNOWN_WORDS
    for_words = [of_words * more for of_words, _ in adaptive.AHEAD.values()]
    for quota in {round_.quota for round_ in rounds_in_use()}:
        for kept in itertools.chain(for_words, *adaptive.AHEAD.values()):
            spent = adaptive.spends(left, own, ahead, quota, kept)
            assert spent.dtype == np.int64
            for some, (rest, n, m) in zip(spent.tolist(), users, strict=True):
                exact = Fraction(rest) * Fraction(quota) * n / max(n + Fraction(kept) * m, 1)
                assert 0 <= some <= rest
                assert abs(some - exact) <= 1 + exact * Fraction(1, 2**50)


# Step 2.


@given(st.integers(-400, 3), st.integers(-500, 500))
def test_nearness_is_the_place_between_cut_and_threshold(cut, cell):
    cut = min(0, cut)
    (near,) = adaptive.nearness(np.array([cell]), np.array([cut]))
    place = Fraction(2 * (cell - cut) + 1, 2 * max(1, -cut))
    assert near == float(min(1, max(0, place)))


@given(st.floats(0, 1e9), st.floats(0, 1))
def test_preferences_are_less_for_popular_parents_and_for_grams_nearly_over(predicted, near):
    (given_,) = adaptive.preferences(np.array([predicted]), np.array([near]))
    assert given_ == (1.0 - 0.7 * near) / math.sqrt(math.sqrt(max(predicted, 0.5)))
    (first,) = adaptive.preferences(np.array([predicted]), 0.0)
    assert 0 < given_ <= first <= math.sqrt(2)


@given(st.lists(st.tuples(BUDGETS, SHARES), max_size=6))
@settings(max_examples=300)
def test_weights_cost_at_most_what_is_spent_and_nearly_all_of_it(users):
    """Rounding takes less than a unit from each weight, and lowering one more at most."""
    spent = np.array([spent for spent, _ in users], dtype=np.int64)
    offsets = offsets_of([len(shares) for _, shares in users])
    shares = np.array([share for _, shares in users for share in shares], dtype=float)
    weights, cost = adaptive.divide(spent, offsets, rows_of_entries(offsets), shares)
    assert weights.dtype == cost.dtype == np.int64
    for place, (some, own) in enumerate(users):
        sent = weights[offsets[place] : offsets[place + 1]].tolist()
        squares = sum(weight**2 for weight in sent)
        assert min(sent, default=0) >= 0
        assert cost[place] == -(-squares // 2**8) <= some
        assert squares <= some * 2**8
        assert all(weight == 0 for weight, share in zip(sent, own, strict=True) if share == 0)
        if any(own):
            raised = [w + 2 for w, share in zip(sent, own, strict=True) if share]
            assert sum(w**2 for w in raised) >= some * 2**8 * (1 - Fraction(1, 2**48))


@given(st.lists(st.tuples(BUDGETS, SHARES), min_size=1, max_size=6), st.randoms())
def test_weights_of_a_user_do_not_depend_on_the_batch(users, rng):
    def divided(batch):
        offsets = offsets_of([len(shares) for _, shares in batch])
        shares = np.array([share for _, shares in batch for share in shares], dtype=float)
        spent = np.array([spent for spent, _ in batch], dtype=np.int64)
        weights, cost = adaptive.divide(spent, offsets, rows_of_entries(offsets), shares)
        return [
            (weights[start:stop].tolist(), some)
            for start, stop, some in zip(offsets[:-1], offsets[1:], cost.tolist(), strict=True)
        ]

    together = divided(users)
    assert [divided([user])[0] for user in users] == together
    order = rng.sample(range(len(users)), len(users))
    assert divided([users[place] for place in order]) == [together[place] for place in order]


@given(
    st.lists(
        st.lists(st.integers(0, 2**36 - 1), max_size=8).filter(
            lambda own: sum(w**2 for w in own) < 2**70
        ),
        max_size=5,
    )
)
@example([[2**35 - 1], [2**35 - 1], [], [1], [2**18 - 1, 2**18, 2**18 + 1]])
def test_costs_are_those_of_big_integers(users):
    weights = np.array([weight for own in users for weight in own], dtype=np.int64)
    costs = adaptive.costs(weights, offsets_of([len(own) for own in users]))
    assert costs.tolist() == [-(-sum(w**2 for w in own) // 2**8) for own in users]


def test_costs_of_a_million_weights_and_of_many_users_are_those_of_big_integers():
    """Sums over the whole batch pass 2^63 beside users whose own do not."""
    rng = np.random.default_rng(1)
    sizes = [10**6, 1, 3, 250_000, 0, 2]
    weights = rng.integers(0, 2**25, sum(sizes))
    weights[: 10**6] = 2**25 - rng.integers(1, 9, 10**6)
    weights[10**6] = 2**35 - 1
    weights[10**6 + 1 : 10**6 + 4] = [2**34 + 1, 2**18 - 1, 2**18]
    weights[-2:] = [2**34 + 2**17 + 1, 2**33 - 1]
    offsets = offsets_of(sizes)
    expected = [
        -(-sum(weight * weight for weight in weights[start:stop].tolist()) // 2**8)
        for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    ]
    assert adaptive.costs(weights, offsets).tolist() == expected
    many = np.tile(2**35 - np.arange(1, 17), 4000)
    own = [-(-((2**35 - place) ** 2) // 2**8) for place in range(1, 17)]
    assert adaptive.costs(many, np.arange(many.size + 1)).tolist() == own * 4000


# Steps 3 and 4.

FRACTIONS = [0.5, 0.4999, 0.3, 0.1, 0.01, 1e-3, 1e-5, 1e-8, 1e-12, 1e-16]


@pytest.mark.parametrize("rounds", adaptive.GRAM_ROUNDS)
@pytest.mark.parametrize("fraction", FRACTIONS)
def test_thresholds_cuts_and_probabilities_are_those_of_the_reference(fraction, rounds):
    """There by QUADPACK over a closed form, here by fixed quadrature rules."""
    ours = adaptive.gram_rounds(fraction, adaptive.GRAM_ROUNDS[rounds])
    for own, other in zip(ours, reference.gram_rules(fraction, rounds), strict=True):
        assert list(own.loadings) == other.loadings
        assert own.loading_unit == 2**20
        assert abs(own.threshold_units - other.rho) <= 1
        assert own.cut_cell == other.cut
        assert own.null_probability == pytest.approx(other.probability, rel=1e-9)
        assert own.score_divisor == other.divisor
        assert own.evidence_stddev == other.stddev
        assert (own.cut, own.threshold) == pytest.approx(other.span, abs=1e-9)


@pytest.mark.parametrize("rounds", adaptive.GRAM_ROUNDS)
def test_a_gram_that_nobody_holds_is_released_with_at_most_its_fraction(rounds):
    for fraction in FRACTIONS:
        rules = adaptive.gram_rounds(fraction, adaptive.GRAM_ROUNDS[rounds])
        for own, rule in zip(adaptive.GRAM_ROUNDS[rounds], rules, strict=True):
            bound = own.error_share * fraction
            assert bound * (1 - 1e-8) <= rule.null_probability <= bound * (1 + 1e-12), fraction
        assert all(rule.cut_cell < 0 for rule in rules[:-1]), fraction
        assert rules[-1].cut_cell == 0


@pytest.mark.parametrize("rounds", [adaptive.WORD_ROUNDS, *adaptive.GRAM_ROUNDS.values()])
@pytest.mark.parametrize("fraction", np.geomspace(1e-12, 0.5, 12))
def test_thresholds_are_those_that_halving_finds(rounds, fraction):
    rules = adaptive.gram_rounds(fraction, rounds)
    for number, (this_round, rule) in enumerate(zip(rounds, rules, strict=True)):
        law = null_law(rules[:number], 1.0)
        stddev = rule.loadings[-1] / rule.loading_unit
        wanted = math.log(this_round.error_share * fraction)

        def excess(threshold, law=law, stddev=stddev, wanted=wanted):
            return math.log(law.tail(stddev, threshold)) - wanted

        found = gaussian.falling_root(excess, rule.threshold - stddev, rule.threshold + stddev)
        assert math.ceil(found * UNITS) == rule.threshold_units


def test_a_root_is_between_two_near_places_after_few_evaluations():
    evaluated = []

    def excess(place):
        evaluated.append(place)
        return math.exp(-7 * place) - 0.25

    below, above = gaussian.near_root(excess, 0.0, 8.0)
    assert below < gaussian.falling_root(excess, 0.0, 8.0) <= above < below + 8 * 2**-38
    evaluated.clear()
    gaussian.near_root(excess, 0.0, 8.0)
    assert len(evaluated) < 25
