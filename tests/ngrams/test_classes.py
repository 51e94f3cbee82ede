"""Classes of candidates: bins, |V_c| and draws from V_c against enumeration, and their tolerances.

Keys are fixed; had they been random, each assertion on a p-value would fail a correct program with
probability `FALSE_FAILURE`.
"""

import collections
import dataclasses
import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from beam_dpne import RunKey
from beam_dpne.mechanism.randomness import scaled_integers
from beam_dpne.mechanism.rules import KNOWN_CLASS, ClassRule, LengthRule
from beam_dpne.ngrams import tolerances, valid
from beam_dpne.ngrams.keys import pack_pairs, unpack_pairs
from beam_dpne.ngrams.spurious import sample_spurious
from beam_dpne.ngrams.tolerances import bins_of, groups_of, probabilities, round_down
from beam_dpne.ngrams.valid import (
    class_numbers,
    class_sizes,
    members,
    suffix_bins,
)
from beam_dpne.steps import GramSet, NextCandidates, length_rule
from tests.ngrams.test_valid import bits_of
from tests.oracle import ngrams as reference

FALSE_FAILURE = 1e-6
SIZES = st.dictionaries(st.integers(-40, 60), st.integers(1, 10**7), max_size=30)


@given(st.floats(allow_nan=False))
def test_a_bin_is_the_nearest_half_octave_by_exact_comparison(value):
    (own,) = bins_of(np.array([value])).tolist()
    assert own == reference.score_bin(min(value, 2.0**70))
    if 0.02 < value < 2.0**60:
        assert abs(2 * math.log2(value) - own) <= 0.5 + 1e-9
    if value <= 0.01:
        assert own == -13


def test_bins_meet_exactly_at_their_borders():
    """A border belongs to the bin above it; its neighbour in floating point below it does not."""
    for place in (-13, -5, -1, 0, 1, 6, 40, 127):
        border = math.ldexp((2**0.25, 2**0.75)[place % 2], place // 2)
        near = [border * (1 + step * 2.0**-52) for step in range(-4, 5)]
        found = bins_of(np.array(near)).tolist()
        assert found == sorted(found)
        assert (found[0], found[-1]) == (place, place + 1)


def random_chain(rng: random.Random, length: int):
    """S_length with scores, the last of a random chain, as grams and as the package's set.

    Returns each S_j as {gram: score}, and S_length as `GramSet`.
    """
    vocabulary = [(word,) for word in "abcdef"[: rng.randint(1, 5)]]
    scores = [score_of(rng) for _ in vocabulary]
    own = GramSet(
        length=1,
        keys=np.arange(len(vocabulary)),
        scores=np.array(scores),
        parent_size=1,
        vocabulary_size=len(vocabulary),
    )
    sets = [dict(zip(vocabulary, scores, strict=True))]
    for k in range(2, length + 1):
        grams = sorted(sets[-1])
        pairs = [
            (a, b)
            for a, b in itertools.product(range(len(grams)), repeat=2)
            if grams[a][1:] == grams[b][:-1]
            if rng.random() < 0.7
        ]
        keys = pack_pairs(*np.array(pairs, np.int64).reshape(-1, 2).T)
        scores = [score_of(rng) for _ in pairs]
        own = GramSet(
            length=k,
            keys=keys,
            scores=np.array(scores),
            parent_size=len(grams),
            vocabulary_size=len(vocabulary),
            candidates=NextCandidates(suffix_bins=suffix_bins(own, keys)),
        )
        released = [(*grams[a], grams[b][-1]) for a, b in pairs]
        sets.append(dict(zip(released, scores, strict=True)))
    return sets, own


def score_of(rng: random.Random) -> float:
    return rng.choice([-1.0, 0.3, 1.0, 1.1, 2.0, 3.0, 40.0])


def classes_by_definition(sets) -> dict[tuple[int, int], int]:
    """The class of each valid k-gram, by trying all words; keys are pairs of rows."""
    last = sets[-1]
    rows = {gram: row for row, gram in enumerate(sorted(last))}
    found = {}
    for gram in itertools.product("abcdef", repeat=len(next(iter(last))) + 1):
        prefix, suffix = gram[:-1], gram[1:]
        if prefix in last and suffix in last:
            middle = reference.score_bin(sets[-2][gram[1:-1]]) if len(sets) > 1 else 0
            ends = reference.score_bin(last[prefix]) + reference.score_bin(last[suffix])
            found[rows[prefix], rows[suffix]] = ends - middle
    return found


def test_sizes_and_members_of_classes_are_those_of_enumerating_all_words(monkeypatch):
    rng = random.Random(1)
    several = 0
    for _ in range(400):
        monkeypatch.setattr(valid, "_LISTS_AT_ONCE", rng.choice([1, 2, 5, 2**16]))
        sets, previous = random_chain(rng, rng.randint(1, 3))
        if not sets[-1]:
            assert class_sizes(previous) == {}
            continue
        expected = classes_by_definition(sets)
        sizes = class_sizes(previous)
        assert sizes == collections.Counter(expected.values())
        keys = pack_pairs(*np.array(list(expected), np.int64).reshape(-1, 2).T)
        assert class_numbers(previous, keys).tolist() == list(expected.values())
        several += len(sizes) > 4
    assert several > 100


def test_a_draw_does_not_depend_on_others(monkeypatch):
    """Most blocks of lists have no draw from most classes, and its number counts them all the same."""
    rng = random.Random(3)
    later = 0
    for _ in range(200):
        monkeypatch.setattr(valid, "_LISTS_AT_ONCE", rng.choice([1, 2, 5]))
        _, previous = random_chain(rng, rng.randint(1, 3))
        chosen = {
            number: scaled_integers(bits_of(4 * size), size)
            for number, size in class_sizes(previous).items()
        }
        all_drawn = members(previous, chosen)
        for number in rng.sample(sorted(chosen), min(3, len(chosen))):
            place = rng.randrange(len(chosen[number]))
            alone = members(previous, {number: chosen[number][[place]]})[number]
            assert alone.tolist() == [all_drawn[number][place]]
            later += alone[0] > all_drawn[number].min()
    assert later > 100


@pytest.mark.parametrize(("length", "at_once"), [(1, 2**16), (2, 2**16), (3, 2**16), (3, 2)])
def test_every_member_of_a_class_has_one_number(length, at_once, monkeypatch):
    monkeypatch.setattr(valid, "_LISTS_AT_ONCE", at_once)
    sets, previous = random_chain(random.Random(20 + length), length)
    expected = classes_by_definition(sets)
    sizes = class_sizes(previous)
    everybody = members(previous, {number: np.arange(size) for number, size in sizes.items()})
    for number in sizes:
        expected_pairs = [pair for pair, own in expected.items() if own == number]
        found = sorted(everybody[number].tolist())
        assert found == sorted((a << 32) | b for a, b in expected_pairs)


@given(SIZES, st.integers(1, 10**5))
def test_groups_are_all_classes_from_the_best_down_and_end_at_borders(sizes, released):
    groups = groups_of(sizes, released)
    order = [number for group in groups for number in group.factors]
    assert order == sorted(sizes, reverse=True)
    reached = 0
    for place, group in enumerate(groups):
        before = reached
        reached += sum(sizes[number] for number in group.factors)
        assert group.candidates == sum(sizes[c] * f for c, f in group.factors.items())
        factors = list(group.factors.values())
        assert factors[0] == 2**16
        assert all(1 <= b <= a for a, b in itertools.pairwise(factors))
        borders = [released * 2**i for i in range(40) if before < released * 2**i <= reached]
        assert borders or place == len(groups) - 1


@given(SIZES, st.integers(1, 10**5), st.sampled_from([1e-6, 0.01, 0.3, 0.5]))
@settings(max_examples=200)
def test_expected_spurious_of_all_classes_are_at_most_what_is_tolerated(sizes, released, fraction):
    groups = groups_of(sizes, released)
    chances = probabilities(groups, tolerances.all_candidates(groups), fraction * released)
    assert chances.keys() == sizes.keys()
    assert all(0 < chance <= tolerances.LARGEST_PROBABILITY for chance in chances.values())
    exact = sum(Fraction(chances[number]) * size for number, size in sizes.items())
    assert exact <= Fraction(fraction) * released
    if sizes and max(chances.values()) < 0.33:
        # What is lost to the grid and to ω in whole units is less than an eighth.
        lost = 1 - float(exact) / (fraction * released)
        assert lost < 0.125


@given(SIZES, st.integers(1, 10**5), st.sampled_from([1e-6, 0.01, 0.3]))
def test_probabilities_are_those_of_the_reference(sizes, released, fraction):
    groups = groups_of(sizes, released)
    others = reference.class_groups(sizes, released)
    assert [group.factors for group in groups] == [other.factors for other in others]
    unheld = tolerances.all_candidates(groups)
    ours = probabilities(groups, unheld, fraction * released)
    assert ours == reference.class_chances(others, unheld, fraction * released)


@given(st.floats(1e-300, 0.5))
def test_probabilities_are_rounded_down_to_steps_of_a_sixteenth_of_an_octave(chance):
    rounded = round_down(chance)
    assert chance * 16 / 17 < rounded <= chance
    mantissa, _ = math.frexp(rounded)
    assert mantissa * 32 == int(mantissa * 32)
    assert round_down(rounded) == rounded


@pytest.mark.parametrize("score", [1.0, 2.0**69])
def test_many_words_with_high_scores_have_all_their_pairs(score):
    """More than 2^32 candidates of one class, whose bins are far beyond those of usual scores."""
    words = 80_000
    grams = GramSet(
        length=1,
        keys=np.arange(words),
        scores=np.full(words, score),
        vocabulary_size=words,
    )
    # The score of the middle, of which length 2 has none, counts nothing.
    (own,) = bins_of(np.array([score])).tolist()
    assert class_sizes(grams) == {2 * own: words**2}
    chosen = np.random.default_rng(5).integers(0, words**2, 1000)
    prefixes, seconds = unpack_pairs(members(grams, {2 * own: chosen})[2 * own])
    for rows in (prefixes, seconds):
        assert 0 <= rows.min() < words / 50
        assert words * 49 / 50 < rows.max() < words


def test_draws_of_two_classes_are_independent():
    """Of 1,600 pairs of rare words and as many of common ones, about 40 are drawn at equal places."""
    scores = np.repeat([1.0, 16.0], 40)
    words = GramSet(length=1, keys=np.arange(80), scores=scores, parent_size=1, vocabulary_size=80)
    one = length_rule(length=2, noise_stddev=1.0, threshold=1.0, valid=6400)
    (own,) = one.classes
    classes = tuple(
        dataclasses.replace(own, number=number, valid=valid)
        for number, valid in ((0, 1600), (8, 3200), (16, 1600))
    )
    rule = dataclasses.replace(one, classes=classes, by_prediction=True)
    drawn_grams = sample_spurious(words, rule=rule, run_key=RunKey(bytes(range(32))))
    first, second = unpack_pairs(drawn_grams.keys)
    rare, common = (drawn_grams.classes == number for number in (0, 16))
    places = set(zip(first[rare].tolist(), second[rare].tolist(), strict=True))
    others = zip((first[common] - 40).tolist(), (second[common] - 40).tolist(), strict=True)
    tail = float(stats.norm.sf(1.0))
    same = len(places & set(others))
    assert stats.binomtest(same, 1600, tail**2).pvalue > FALSE_FAILURE


@pytest.mark.parametrize("number", [-3, 1, 3, 7, KNOWN_CLASS + 2])
def test_an_n_gram_of_a_class_without_a_rule_is_refused(number):
    """The rule of the class beside it would decide it, with a probability that nobody computed."""
    classes = tuple(ClassRule(number=each, rounds=()) for each in (-2, 0, 2, 4))
    rule = LengthRule(length=2, noise_stddev=1.0, classes=classes, by_prediction=True)
    assert rule.places(np.array([4, -2, 2]), 3).tolist() == [3, 0, 2]
    with pytest.raises(ValueError, match="must belong to a class"):
        rule.places(np.array([0, number, 2]), 3)
    with pytest.raises(ValueError, match="must have numbers of classes"):
        rule.places(None, 3)
