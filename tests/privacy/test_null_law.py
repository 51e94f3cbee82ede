"""The law of a gram that nobody holds, against two independent accounts of it, and the thresholds.

The accounts are paths drawn by numpy, and adaptive quadrature (QUADPACK), which shares no node with
the package's composite Gauss-Legendre rule. Seeds and keys are fixed; had they been drawn at random,
each assertion on a p-value would fail a correct program with probability `FALSE_FAILURE` = 1e-7, and
there are fewer than a hundred of them.
"""

import functools
import hashlib
import math

import mpmath
import numpy as np
import pytest
from scipy import integrate, special, stats

from beam_dpne import NgramsPlan, RunKey
from beam_dpne.mechanism.rules import UNITS, ClassRule, LengthRule
from beam_dpne.mechanism.thresholds import null_law, spurious_cells
from beam_dpne.ngrams import adaptive
from beam_dpne.ngrams.decisions import decide_round
from beam_dpne.steps import HistogramShard

FALSE_FAILURE = 1e-7
FRACTIONS = (0.5, 1e-2, 1e-5, 1e-9)
QUADRATURE = {"epsabs": 0.0, "epsrel": 1e-12, "limit": 500}


@pytest.mark.parametrize("fraction", FRACTIONS)
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_null_probabilities_are_those_of_an_adaptive_quadrature(fraction, rounds):
    rules = gram_rounds(fraction, rounds)
    for number, rule in enumerate(rules, start=1):
        chance = chance_above(rules[: number - 1], stddev(rule), rule.threshold)
        assert rule.null_probability == pytest.approx(chance, rel=1e-10, abs=0)


@pytest.mark.parametrize("fraction", FRACTIONS)
@pytest.mark.parametrize("rounds", [2, 3])
def test_the_probability_of_being_open_is_that_of_an_adaptive_quadrature(fraction, rounds):
    rules = gram_rounds(fraction, rounds)[:-1]
    for number, rule in enumerate(rules, start=1):
        earlier = rules[: number - 1]
        chance = chance_above(earlier, stddev(rule), rule.cut)
        chance -= chance_above(earlier, stddev(rule), rule.threshold)
        assert null_law(rules[:number], 1.0).masses.sum() == pytest.approx(chance, rel=1e-10, abs=0)


@pytest.mark.parametrize("fraction", [*FRACTIONS, 1e-15, 1e-40, 1e-200])
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_thresholds_leave_each_round_its_part_of_the_tolerated_fraction(fraction, rounds):
    """At most E_r·fraction, and less only by what rounding ρ up to 2^-32 takes away."""
    for own, rule in zip(adaptive.GRAM_ROUNDS[rounds], gram_rounds(fraction, rounds), strict=True):
        allowed = own.error_share * fraction
        # A tail falls by less than its place, here below 80, for each unit.
        assert allowed * (1 - 80 / UNITS) < rule.null_probability < allowed * (1 + 1e-10)


def test_thresholds_exist_and_are_ordered_for_every_fraction():
    for fraction in np.geomspace(1e-30, 0.5, 60).tolist():
        for rounds in (1, 2, 3):
            rules = gram_rounds(fraction, rounds)
            assert all(rule.cut <= rule.threshold for rule in rules)
            assert rules[-1].cut_cell == 0
            assert math.fsum(rule.null_probability for rule in rules) <= fraction * (1 + 1e-10)


@pytest.mark.parametrize("fraction", FRACTIONS)
@pytest.mark.parametrize("number", [1, 2, 3])
def test_each_border_of_spurious_cells_is_at_its_quantile(fraction, number):
    """P(cell ≥ j) = u_j/P exactly when uniforms up to u_j, and no others, give cells ≥ j."""
    rules = gram_rounds(fraction, 3)
    rule, earlier = rules[number - 1], rules[: number - 1]
    reach = 1 + int(8 * 64 + max(0.0, -rule.threshold) / rule.evidence_stddev * 64)
    cells = np.unique(np.concatenate(([1, 2, 3], np.linspace(4, reach, 25).astype(int))))
    border = [(rule.threshold_units + int(cell) * rule.cell_units) / UNITS for cell in cells]
    survival = np.array([chance_above(earlier, stddev(rule), place) for place in border])
    share = survival / rule.null_probability
    share, cells = share[share > 1e-25], cells[share > 1e-25]
    assert (spurious_cells(bits_of(share * (1 - 1e-10)), rules, number, 1.0) >= cells).all()
    above = np.minimum(share * (1 + 1e-10), 1.0)
    inside = share < 1 - 1e-9
    assert (spurious_cells(bits_of(above), rules, number, 1.0) < cells)[inside].all()


@pytest.mark.parametrize("fraction", [0.5, 1e-3, 1e-9])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_drawn_spurious_cells_have_the_law_of_the_quadrature(fraction, number):
    rules = gram_rounds(fraction, 3)
    rng = np.random.default_rng(17 * number)
    drawn = spurious_cells(random_bits(200_000, rng), rules, number, 1.0)
    places = np.unique(np.quantile(drawn, np.linspace(0, 1, 40)).astype(int))
    chances = cell_chances(rules, number, places) / rules[number - 1].null_probability
    assert chi_squared(np.bincount(np.digitize(drawn, places[1:])), chances) > FALSE_FAILURE


@pytest.mark.parametrize("fraction", [0.5, 0.03])
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_a_held_gram_without_weight_has_the_null_law(fraction, rounds):
    """The kernels with keyed noise: rounds and cells together, for 300,000 grams at weight 0."""
    rules = gram_rounds(fraction, rounds)
    key = RunKey(hashlib.sha256(f"null law {fraction} {rounds}".encode()).digest())
    found, cells = settle_unweighted(rules, 300_000, key)
    observed, chances = [np.count_nonzero(found == 0)], [1 - total_chance(rules)]
    for number in range(1, rounds + 1):
        own = cells[found == number]
        places = np.unique(np.quantile(own, np.linspace(0, 1, 12)).astype(int))
        observed += np.bincount(np.digitize(own, places[1:])).tolist()
        chances += cell_chances(rules, number, places).tolist()
    assert chi_squared(np.array(observed), np.array(chances)) > FALSE_FAILURE


@pytest.mark.parametrize("fraction", [0.5, 1e-2])
def test_null_probabilities_are_those_of_two_million_paths(fraction):
    assert_paths_follow(gram_rounds(fraction, 3), 2_000_000, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 2, 3])
@pytest.mark.parametrize("fraction", [0.5, 1e-2, 1e-5])
def test_null_probabilities_are_those_of_a_hundred_million_paths(fraction, rounds):
    assert_paths_follow(gram_rounds(fraction, rounds), 100_000_000, seed=2)


@pytest.mark.parametrize(
    ("epsilon", "delta", "limit"),
    [(1.0, 1e-2, 300), (4.0, 1e-7, 40), (0.1, 1e-12, 7), (24.0, 1e-5, 40), (3.0, 1e-6, 1)],
)
def test_word_thresholds_are_the_largest_over_all_numbers_of_words(epsilon, delta, limit):
    plan = word_plan(epsilon, delta, limit)
    with mpmath.workdps(40):
        for own, rule in zip(adaptive.WORD_ROUNDS, plan.lengths[0].word_rules, strict=True):
            norm = mpmath.sqrt(mpmath.mpf(adaptive.round_cap(plan.allotment, own)) / 2**56)
            highest = max(
                norm / mpmath.sqrt(words) + alone_quantile(own.error_share * delta_t(plan), words)
                for words in range(1, limit + 1)
            )
            assert highest - mpmath.mpf("1e-13") < rule.threshold < highest + mpmath.mpf(3) / UNITS


def test_words_of_a_lone_user_are_found_with_at_most_their_part_of_delta():
    """For every number of words, with the integer weights that the package gives at the cap."""
    plan = word_plan(1.0, 1e-2, 300)
    with mpmath.workdps(40):
        for own, rule in zip(adaptive.WORD_ROUNDS, plan.lengths[0].word_rules, strict=True):
            allowed = own.error_share * delta_t(plan)
            chances = []
            for words in range(1, 301):
                weight = equal_weight(adaptive.round_cap(plan.allotment, own), words)
                step = mpmath.mpf(rule.threshold_units - weight) / UNITS
                missed = -mpmath.expm1(words * mpmath.log1p(-upper_tail(step)))
                chances.append(missed)
            assert max(chances) <= allowed * (1 + mpmath.mpf("1e-12"))
            assert max(chances) > allowed * (1 - mpmath.mpf("1e-6"))


@functools.cache
def gram_rounds(fraction: float, rounds: int):
    return adaptive.gram_rounds(fraction, adaptive.GRAM_ROUNDS[rounds])


def stddev(rule) -> float:
    """Of the noise that this round adds to the evidence."""
    return rule.loadings[-1] / rule.loading_unit


def chance_above(earlier, own_stddev: float, place: float) -> float:
    """P(open after the earlier rounds, then above a place), by nested adaptive quadrature."""

    def tail(last: int, before: float) -> float:
        """From evidence `before` at the end of round `last`: open until the end, then above."""
        if last == len(earlier):
            return float(special.ndtr((before - place) / own_stddev))
        rule = earlier[last]
        scale = stddev(rule)

        def density(now: float) -> float:
            step = (now - before) / scale
            return math.exp(-0.5 * step * step) * tail(last + 1, now)

        value, _ = integrate.quad(density, rule.cut, rule.threshold, **QUADRATURE)
        return value / (scale * math.sqrt(2 * math.pi))

    return tail(0, 0.0)


def cell_chances(rules, number: int, places: np.ndarray) -> np.ndarray:
    """P(found in this round in a cell of [places[i], places[i + 1])), the last one without end."""
    rule = rules[number - 1]
    lower = np.concatenate(([0], places[1:]))
    borders = (rule.threshold_units + lower * rule.cell_units) / UNITS
    above = [chance_above(rules[: number - 1], stddev(rule), place) for place in borders.tolist()]
    return -np.diff(np.append(above, 0.0))


def total_chance(rules) -> float:
    return math.fsum(
        chance_above(rules[:number], stddev(rule), rule.threshold)
        for number, rule in enumerate(rules)
    )


def settle_unweighted(rules, count: int, key: RunKey) -> tuple[np.ndarray, np.ndarray]:
    """Returns for held grams at weight 0 the round in which they are found, or 0, and the cell."""
    rule = LengthRule(length=2, noise_stddev=1.0, classes=(ClassRule(rounds=rules),))
    shard = HistogramShard(length=2, keys=np.arange(count), weights=np.zeros(count, np.int64))
    for _ in rules:
        shard = decide_round(shard, rule=rule, run_key=key)
    assert shard.found is not None
    assert shard.cells is not None
    found, cells = np.zeros(count, np.int64), np.zeros(count, np.int64)
    found[shard.keys], cells[shard.keys] = shard.found, shard.cells
    return found, cells


def assert_paths_follow(rules, paths: int, seed: int) -> None:
    """Two-sided exact binomial tests of found and open paths in each round."""
    rng = np.random.default_rng(seed)
    found, still_open = np.zeros(len(rules), np.int64), np.zeros(len(rules), np.int64)
    for start in range(0, paths, 1_000_000):
        evidence = np.zeros(min(1_000_000, paths - start))
        for place, rule in enumerate(rules):
            evidence = evidence + stddev(rule) * rng.standard_normal(evidence.size)
            found[place] += np.count_nonzero(evidence > rule.threshold)
            evidence = evidence[(evidence > rule.cut) & (evidence <= rule.threshold)]
            still_open[place] += evidence.size
    for place, rule in enumerate(rules):
        chance = null_law(rules[: place + 1], 1.0).masses.sum()
        assert stats.binomtest(found[place], paths, rule.null_probability).pvalue > FALSE_FAILURE
        assert stats.binomtest(still_open[place], paths, chance).pvalue > FALSE_FAILURE


def word_plan(epsilon: float, delta: float, limit: int) -> NgramsPlan:
    return NgramsPlan(
        epsilon=epsilon,
        delta=delta,
        max_length=3,
        max_contributions=limit,
        max_tokens_per_user=10_000,
    )


def delta_t(plan: NgramsPlan) -> mpmath.mpf:
    return mpmath.mpf(plan.vocabulary_delta)


def equal_weight(cap: int, words: int) -> int:
    """What `divide` gives to each of a user's words, in units of 2^-32."""
    user = np.zeros(words, np.int64)
    weights, _ = adaptive.divide(np.array([cap]), np.array([0, words]), user, np.ones(words))
    assert len(set(weights.tolist())) == 1
    return int(weights[0])


def upper_tail(place: mpmath.mpf) -> mpmath.mpf:
    return mpmath.erfc(place / mpmath.sqrt(2)) / 2


def alone_quantile(delta: mpmath.mpf, words: int) -> mpmath.mpf:
    """Φ^{-1}((1 − δ)^{1/t}), by Newton's method on the logarithm of the upper tail."""
    tail = -mpmath.expm1(mpmath.log1p(-delta) / words)
    place = mpmath.mpf(-float(special.ndtri(float(tail))))
    for _ in range(4):
        density = mpmath.exp(-place * place / 2) / mpmath.sqrt(2 * mpmath.pi)
        here = upper_tail(place)
        place += mpmath.log(here / tail) * here / density
    return place


def bits_of(shares: np.ndarray) -> np.ndarray:
    """128 bits whose `uniforms` are these numbers, to a relative 2^-53."""
    blocks = [divmod(min(int(share * 2**128), 2**128 - 1), 2**64) for share in map(mpf, shares)]
    return np.array(blocks, dtype=np.uint64).reshape(-1, 2)


def mpf(value: float) -> mpmath.mpf:
    return mpmath.mpf(float(value))


def random_bits(count: int, rng) -> np.ndarray:
    return rng.integers(0, 2**64, size=(count, 2), dtype=np.uint64)


def chi_squared(observed: np.ndarray, chances: np.ndarray) -> float:
    """p-value of counts in cells, rare cells put together so that the law is close enough."""
    expected = observed.sum() * chances
    groups = [[0.0, 0.0]]
    for place in np.argsort(expected).tolist():
        if groups[-1][1] >= 50:
            groups.append([0.0, 0.0])
        groups[-1][0] += float(observed[place])
        groups[-1][1] += float(expected[place])
    if len(groups) > 1 and groups[-1][1] < 50:
        last = groups.pop()
        groups[-1] = [groups[-1][0] + last[0], groups[-1][1] + last[1]]
    return float(stats.chisquare(*np.array(groups).T).pvalue)
