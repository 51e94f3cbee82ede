"""The count of held candidates: what users send and pay, the estimate, and the bound on its mean."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from beam_dpne import RunKey
from beam_dpne.elements.arrays import rows_of_entries
from beam_dpne.ngrams import tolerances
from beam_dpne.ngrams.contributions import affordable, counted_of, tallies
from beam_dpne.ngrams.elements import HistogramShard
from beam_dpne.ngrams.length_rules import (
    cell_units,
    describe,
    estimate,
    estimates,
    held_sums,
)
from beam_dpne.ngrams.tolerances import groups_of, probabilities

KEY = RunKey(bytes(range(32)))
SIZES = {8: 300, 7: 500, 5: 900, 2: 3000, -4: 90_000}
COUNTED = counted_of(groups_of(SIZES, 1000, 20.0))


def test_groups_are_counted_that_are_large_and_near_the_top():
    groups = groups_of(SIZES, 1000, 20.0)
    assert [(sorted(group.factors), group.is_counted) for group in groups] == [
        ([5, 7, 8], True),
        ([2], True),
        ([-4], False),
    ]
    assert not any(group.is_counted for group in groups_of(SIZES, 1000, 2000.0))
    assert not any(group.is_counted for group in groups_of(SIZES, 1000))


@given(
    st.lists(
        st.tuples(
            st.integers(0, 64 * 2**56 - 1) | st.integers(0, 300),
            st.lists(st.sampled_from([8, 7, 5, 2, -4]), max_size=30),
        ),
        max_size=5,
    ),
    # The last of them is so large that t has a bound of its own; 0.3 has more than 24 binary digits.
    st.sampled_from([0.3, 20.0, 500.0, 2.0**50]),
)
@settings(max_examples=200)
def test_a_user_pays_for_the_largest_distance_and_never_more_than_its_part(users, stddev):
    left = np.array([each for each, _ in users], dtype=np.int64)
    classes = np.array([c for _, own in users for c in own], dtype=np.int16)
    offsets = np.concatenate(([0], np.cumsum([len(own) for _, own in users]))).astype(np.int64)
    sent, costs = tallies(classes, rows_of_entries(offsets), left, COUNTED, stddev)
    factors = {8: 0, 7: 0, 5: 0, 2: 1}
    for place, (had, own) in enumerate(users):
        entries = sent[offsets[place] : offsets[place + 1]].tolist()
        of_counted = {t for c, t in zip(own, entries, strict=True) if c in factors}
        assert all(t == 0 for c, t in zip(own, entries, strict=True) if c == -4)
        assert len(of_counted) <= 1
        tally = max(of_counted, default=0)
        assert 0 <= tally <= 2**24
        by_group = [0, 0]
        for c in own:
            if c in factors:
                group = COUNTED.groups[factors[c]]
                by_group[factors[c]] += group.factors[c]
        exact = Fraction(tally, 2**24) ** 2 * sum(n * n for n in by_group) / 2**32
        exact *= 2**56 / Fraction(stddev) ** 2
        # Each distance is rounded up to a unit, and s down if it has more than 24 binary digits.
        rounding = math.isqrt(math.ceil(exact)) // 4 + 2
        assert exact <= int(costs[place]) <= exact * (1 + Fraction(1, 2**27)) + rounding
        assert costs[place] <= min(had, 0.03 * had * (1 + 1e-9) + rounding)


def test_what_a_user_pays_is_an_exact_integer_where_64_bits_would_overflow():
    """t·n_G of 2^57 and more in units of 2^-40: their squares have 115 bits."""
    rng = np.random.default_rng(4)
    for stddev in (20.0, 1.5 * 2**12, 2.0**20):
        # Distances up to s in all, so that they cost up to the whole of the largest budget.
        distances = np.array([0.1, 1.0, 5.0])[:, np.newaxis] * rng.random((3, 4)) * stddev / 4
        own = rng.integers(1, 2**24, 3)
        sums = (distances * 2**40 / own[:, np.newaxis]).astype(np.int64)
        weights = [
            [math.ceil(Fraction(t * n, 2**8) / Fraction(stddev)) for n in row]
            for t, row in zip(own.tolist(), sums.tolist(), strict=True)
        ]
        exact = [math.ceil(Fraction(sum(w * w for w in row), 2**8)) for row in weights]
        assert max(
            t * n for t, row in zip(own.tolist(), sums.tolist(), strict=True) for n in row
        ) > (2**40)
        afforded, costs = affordable(own, sums, np.array(exact), stddev)
        assert (afforded.tolist(), costs.tolist()) == (own.tolist(), exact)
        # With one unit less a user has too little, and sends nothing.
        poorer, nothing = affordable(own, sums, np.array(exact) - 1, stddev)
        assert (poorer.tolist(), nothing.tolist()) == ([0] * 3, [0] * 3)


def test_sums_of_a_hash_range_are_those_of_big_integers():
    rng = np.random.default_rng(1)
    classes = rng.choice([8, 7, 5, 2, -4], 5000).astype(np.int16)
    sums = rng.integers(0, 2**26, 5000)
    shard = HistogramShard(
        length=2,
        keys=np.arange(5000),
        weights=np.zeros(5000, np.int64),
        classes=classes,
        tallies=sums,
    )
    expected = [
        sum(
            group.factors[c] * min(total, 2**24)
            for c, total in zip(classes.tolist(), sums.tolist(), strict=True)
            if c in group.factors
        )
        for group in COUNTED.groups
    ]
    assert held_sums(shard, COUNTED) == [*expected[:2], 0]
    cells = estimates(COUNTED, [held_sums(shard, COUNTED)] * 2, 2, 20.0, KEY)
    assert cells[2] is None
    for group, held, cell in zip(COUNTED.groups, expected, cells[:2], strict=False):
        exact = (group.candidates * 2**24 - 2 * held) / 2**40
        assert abs(cell * cell_units(20.0) / 2**40 - exact) < 6 * 20.0


def test_counts_have_noise_of_the_stated_deviation():
    draws = []
    for number in range(2000):
        key = RunKey(number.to_bytes(32, "little"))
        first, second, _ = estimates(COUNTED, [[0, 0, 0]], 3, 20.0, key)
        draws.append((first, second))
    edges = (np.array(draws) + 0.5) * cell_units(20.0) / 2**40
    for place, group in enumerate(COUNTED.groups[:2]):
        noise = (edges[:, place] - group.candidates / 2**16) / 20.0
        assert stats.kstest(noise, "norm").pvalue > 1e-6
    assert abs(np.corrcoef(edges.T)[0, 1]) < 0.12


def test_an_estimate_is_taken_at_the_upper_edge_of_the_cell_of_its_count():
    cells = [3000, 7, None]
    described = describe(COUNTED.groups, cells, 20.0)
    edges = [(cell + 1) * cell_units(20.0) / 2**40 for cell in cells[:2]]
    assert [each.noisy_unheld for each in described[:2]] == edges
    assert [each.unheld for each in described[:2]] == [estimate(edge, 20.0) for edge in edges]
    assert described[2].unheld == described[2].candidates


@pytest.mark.parametrize("noisy", [-400.0, -30.0, -3.0, 0.0, 0.5, 20.0, 1e4])
def test_the_estimate_is_the_inverse_mills_ratio_with_a_floor_and_never_below(noisy):
    with mpmath.workdps(50):
        x = mpmath.mpf(noisy) / 20
        ratio = mpmath.npdf(x) / (mpmath.erfc(x / mpmath.sqrt(2)) / 2)
        exact = 20 * max(ratio, mpmath.mpf("0.25"))
        found = estimate(noisy, 20.0)
        assert exact <= found <= exact * (1 + mpmath.mpf("2e-9")) or found == 5.0


@pytest.mark.parametrize("mean", [0.1, 0.5, 1.0, 3.0, 10.0])
def test_the_mean_of_one_over_the_estimate_is_one_over_what_is_estimated(mean):
    """Without the floor exactly (Voinov 1985), by quadrature; with it less."""

    def integrand(y: float) -> float:
        return math.exp(-((y - mean) ** 2) / 2 + y * y / 2 + stats.norm.logsf(y))

    whole, _ = integrate.quad(integrand, -400, 60, limit=2000)
    assert whole == pytest.approx(1 / mean, rel=1e-6)

    def floored(y: float) -> float:
        return stats.norm.pdf(y - mean) / estimate(y, 1.0)

    with_floor, _ = integrate.quad(floored, mean - 12, mean + 12, limit=400)
    assert with_floor <= 1 / mean


@pytest.mark.parametrize("held", [(0, 0), (800, 2900), (1700, 3000), (1690, 2990), (600, 0)])
@pytest.mark.parametrize("fraction", [0.01, 0.3])
def test_the_mean_of_expected_spurious_is_at_most_what_is_tolerated(held, fraction):
    """The charge lemma, by simulation: groups nearly all held, not at all, with p at its bound."""
    stddev, tolerated, runs = 20.0, fraction * 1000, 4000
    groups = COUNTED.groups
    rng = np.random.default_rng(5)
    nulls = [
        max(0.0, group.candidates / 2**16 - own)
        for group, own in zip(groups, (*held, 0), strict=True)
    ]
    found = np.zeros(runs)
    for number in range(runs):
        cells = [
            math.floor((own + stddev * rng.standard_normal()) * 2**40 / cell_units(stddev))
            for own in nulls[:2]
        ]
        described = describe(groups, [*cells, None], stddev)
        chances = probabilities(groups, [each.unheld for each in described], tolerated)
        # All unheld candidates in the best class of their group, whose probability is the largest.
        best = [chances[max(group.factors)] for group in groups]
        found[number] = sum(own * chance for own, chance in zip(nulls, best, strict=True))
    spread = found.std() / math.sqrt(runs)
    assert found.mean() <= tolerated + 4 * spread
    assert tolerances.LARGEST_PROBABILITY == 0.35
