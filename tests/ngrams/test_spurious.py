"""SampleSpurious: members of V_k are drawn as noise alone would release them."""

import dataclasses

import apache_beam as beam
import numpy as np
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that
from scipy import stats

from beam_dpne import GramSet, RunKey, SampleSpurious, length_rule
from beam_dpne.ngrams.elements import unpack_pairs
from beam_dpne.ngrams.valid import sample_spurious

KEY = RunKey(bytes(range(32)))
# 50 words: V_2 has 2,500 members.
WORDS = GramSet(length=1, keys=np.arange(50), scores=np.ones(50), parent_size=1, vocabulary_size=50)
FALSE_FAILURE = 1e-9


def rule_of(threshold: float | None):
    return length_rule(length=2, noise_stddev=1.0, threshold=threshold, valid=2500)


def drawn(check, *, threshold: float | None = 1.0, previous=WORDS, run_key=KEY):
    """Applies the transform to S_1, and a check to the drawn set."""
    rule = rule_of(threshold)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        draw = SampleSpurious(rule_for=lambda _: rule, run_key=run_key)
        spurious = pipeline | beam.Create([previous]) | draw

        def check_one(sets):
            (grams,) = sets
            check(grams)

        assert_that(spurious, check_one)


def test_drawn_grams_are_distinct_valid_and_sorted():
    def check(grams):
        assert (np.diff(grams.keys) > 0).all()
        first, second = unpack_pairs(grams.keys)
        assert 0 <= first.min() <= first.max() < 50
        assert 0 <= second.min() <= second.max() < 50

    drawn(check)


def test_their_number_is_that_of_noise_above_the_threshold():
    """Each of 2,500 members is there with the probability of a normal tail."""

    def check(grams):
        tail = float(stats.norm.sf(1.0))
        assert stats.binomtest(len(grams.keys), 2500, tail).pvalue > FALSE_FAILURE

    drawn(check)


def test_each_has_the_cell_and_the_round_in_which_noise_alone_finds_it():
    def check(grams):
        assert grams.cells.shape == grams.rounds.shape == grams.keys.shape
        assert (grams.cells >= 0).all()
        assert (grams.rounds == 1).all()
        assert grams.rule == rule_of(1.0), "grams that somebody holds are decided by the same rule"

    drawn(check)


def test_draws_of_two_classes_are_independent():
    """Of 1,600 pairs of rare words and as many of common ones, about 40 are drawn at equal places."""
    scores = np.repeat([1.0, 16.0], 40)
    words = GramSet(length=1, keys=np.arange(80), scores=scores, parent_size=1, vocabulary_size=80)
    (own,) = rule_of(1.0).classes
    classes = tuple(
        dataclasses.replace(own, number=number, valid=valid)
        for number, valid in ((0, 1600), (8, 3200), (16, 1600))
    )
    rule = dataclasses.replace(rule_of(1.0), classes=classes, by_prediction=True)
    drawn_grams = sample_spurious(words, rule=rule, run_key=KEY)
    first, second = unpack_pairs(drawn_grams.keys)
    rare, common = (drawn_grams.classes == number for number in (0, 16))
    places = set(zip(first[rare].tolist(), second[rare].tolist(), strict=True))
    others = zip((first[common] - 40).tolist(), (second[common] - 40).tolist(), strict=True)
    tail = float(stats.norm.sf(1.0))
    same = len(places & set(others))
    assert stats.binomtest(same, 1600, tail**2).pvalue > FALSE_FAILURE
