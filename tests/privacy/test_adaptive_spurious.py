"""Spurious grams of the adaptive strategy: how many are released, by which law, and never a held one.

The corpora have tails that nobody holds: words that are public, and candidates of them that no user
has. Keys come from a fixed family, so these tests always give the same result. Had the keys been
drawn at random, each assertion on a p-value, or on a bound of one, would fail a correct program with
probability `FALSE_FAILURE` = 1e-7; there are fewer than thirty of them.
"""

import dataclasses
import hashlib
import math

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that
from scipy import stats

from beam_dpne import NgramsPlan, PrivateNgrams, RunKey
from beam_dpne.documents.run_keys import key_context
from beam_dpne.mechanism import randomness
from beam_dpne.mechanism.rules import UNITS, LengthRule
from beam_dpne.ngrams.length_rules import rule_for
from beam_dpne.ngrams.spurious import sample_spurious
from beam_dpne.ngrams.valid import class_numbers, class_sizes
from beam_dpne.steps import GramSet
from tests.privacy.kernels import Settled, run_lengths, settle, users_of, words_as_set

FALSE_FAILURE = 1e-7
VOCABULARY = [f"w{number:02}" for number in range(40)]
TEXTS = {f"u{number}": ["w00 w01 w02 w03 w00", "w03 w04"] for number in range(50)}
HELD_BIGRAMS = 5
DISTINCT_BIGRAMS = 10


def run_key(number: int) -> RunKey:
    """Member `number` of a fixed family of keys."""
    return RunKey(hashlib.sha256(f"adaptive spurious {number}".encode()).digest())


def plan_of(max_length: int, **parameters) -> NgramsPlan:
    given = {"epsilon": 4, "delta": 1e-5, "spurious_fraction": 0.2}
    return NgramsPlan(max_length=max_length, max_tokens_per_user=10_000, **(given | parameters))


@pytest.mark.parametrize("rounds", [1, 2, 3])
@pytest.mark.parametrize("spurious_fraction", [0.01, 0.5])
def test_unheld_bigrams_are_released_as_often_as_the_bound_says(rounds, spurious_fraction):
    """|V_2| − held candidates in each of 60 runs, each released with Σ P_r: an exact binomial."""
    plan = plan_of(2, rounds=rounds, spurious_fraction=spurious_fraction)
    keys = 60
    released = [unheld(run(TEXTS, plan, number)[1]).size for number in range(keys)]
    rule = rule_for(plan, words_as_set(VOCABULARY))
    valid_count = len(VOCABULARY) ** 2
    assert rule.valid == valid_count
    assert valid_count * rule.classes[0].null_probability <= spurious_fraction * len(VOCABULARY) * (
        1 + 1e-10
    )
    candidates = keys * (valid_count - HELD_BIGRAMS)
    test = stats.binomtest(sum(released), candidates, rule.classes[0].null_probability)
    assert test.pvalue > FALSE_FAILURE


def test_unheld_grams_of_every_length_are_released_as_often_as_the_bound_says():
    """At k ≥ 3 V_k differs between runs; given all of them, the counts are binomial.

    Chernoff's bound holds for their sum whatever their means.
    """
    plan = plan_of(4, spurious_fraction=0.5)
    counts, means, bounds = np.zeros(5), np.zeros(5), np.zeros(5)
    for number in range(30):
        settled = run(TEXTS, plan, number)
        for length in range(2, plan.max_length + 1):
            own, previous = settled[length - 1], settled[length - 2].released
            rule = own.released.rule
            assert rule is not None
            if not rule.classes:
                continue
            members = sum(class_sizes(previous).values())
            assert rule.valid == members
            counts[length] += unheld(own).size
            numbers = class_numbers(previous, own.held)
            held = np.bincount(rule.places(numbers, numbers.size), minlength=len(rule.classes))
            means[length] += sum(
                (each.valid - some) * each.null_probability
                for each, some in zip(rule.classes, held.tolist(), strict=True)
            )
            bounds[length] += plan.spurious_fraction * len(previous)
    for length in (2, 3, 4):
        assert means[length] > (30 if length == 2 else 1)
        assert means[length] <= bounds[length] * (1 + 1e-10)
        assert chernoff(counts[length], means[length]) > FALSE_FAILURE


def test_rounds_of_spurious_grams_follow_their_null_probabilities():
    words = words_as_set([f"{number:04}" for number in range(2000)])
    plan = plan_of(2, spurious_fraction=0.5)
    rule = rule_for(plan, words)
    drawn = [sample_spurious(words, rule=rule, run_key=run_key(number)) for number in range(40)]
    observed = np.bincount(np.concatenate([each.found for each in drawn]), minlength=4)[1:]
    chances = np.array([own.null_probability for own in rule.rounds])
    expected = 40 * words.keys.size**2 * chances
    assert stats.chisquare(observed, expected, sum_check=False).pvalue > FALSE_FAILURE


def test_every_candidate_is_spurious_equally_often():
    words = words_as_set(VOCABULARY[:12])
    rule = rule_for(plan_of(2, spurious_fraction=0.5), words)
    keys = 400
    counts = np.zeros(144, np.int64)
    for number in range(keys):
        drawn = sample_spurious(words, rule=rule, run_key=run_key(number))
        counts[(drawn.keys >> 32) * 12 + (drawn.keys & 0xFFFFFFFF)] += 1
    chance = rule.classes[0].null_probability
    deviations = (counts - keys * chance) ** 2 / (keys * chance * (1 - chance))
    assert stats.chi2.sf(deviations.sum(), 144) > FALSE_FAILURE
    assert stats.chi2.cdf(deviations.sum(), 144) > FALSE_FAILURE


@pytest.mark.parametrize("limit", [1, 300])
@pytest.mark.parametrize("has_budget", [False, True])
def test_a_held_gram_is_never_spurious(has_budget, limit):
    """R4: also where its weight is 0, since the user ran dry, or gave to others of its grams."""
    plan = plan_of(2, spurious_fraction=0.5, max_contributions=limit)
    drawn_and_held = held_and_released = 0
    for number in range(30):
        own = settle_bigrams_of_one_user(plan, has_budget, run_key(number))
        assert own.drawn is not None
        assert own.held.size == DISTINCT_BIGRAMS
        is_held = np.isin(own.released.keys, own.held)
        drawn_is_held = np.isin(own.drawn.keys, own.held)
        assert own.released.keys[~is_held].tolist() == own.drawn.keys[~drawn_is_held].tolist()
        if not has_budget:
            rule = own.released.rule
            assert rule is not None
            expected = decisions_without_weight(own.held, rule, run_key(number))
            assert own.released.keys[is_held].tolist() == list(expected)
            scores = own.released.scores[is_held]
            np.testing.assert_allclose(scores, list(expected.values()), rtol=1e-12)
        drawn_and_held += np.count_nonzero(drawn_is_held)
        held_and_released += np.count_nonzero(is_held)
    assert drawn_and_held > 5
    assert held_and_released > 5


@pytest.mark.parametrize(
    ("strategy", "pruning"), [("adaptive", "both"), ("one_round", "both"), ("one_round", "single")]
)
def test_a_run_in_memory_is_the_pipeline(strategy, pruning):
    """So that what the other tests say of runs in memory is said of `PrivateNgrams`."""
    plan = plan_of(3, pruning=pruning, strategy=strategy)
    key = run_key(3)
    bound = key.bound_to(key_context(plan, "whitespace"))
    settled = run_lengths(users_of(TEXTS, bound), plan, bound)
    documents = [(user, text) for user, texts in TEXTS.items() for text in texts]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        result = (
            pipeline
            | beam.Create(documents)
            | PrivateNgrams(plan=plan, tokenizer="whitespace", run_key=key)
        )
        for own, released in zip(settled, result.released, strict=True):
            assert_that(released, equals(own.released), label=f"S_{own.released.length}")
    assert all(len(own.released) > 0 for own in settled)


def run(texts, plan: NgramsPlan, number: int) -> list[Settled]:
    key = run_key(number)
    return run_lengths(users_of(texts, key), plan, key, VOCABULARY)


def settle_bigrams_of_one_user(plan: NgramsPlan, has_budget: bool, key: RunKey) -> Settled:
    """A user alone with ten bigrams of nine public words."""
    vocabulary = words_as_set(VOCABULARY[:9])
    users = users_of({"u": ["w00 w01 w02 w03 w04 w05 w00 w02 w04 w00 w03"]}, key)
    left = np.array([plan.allotment if has_budget else 0])
    return settle(dataclasses.replace(users, left=left), vocabulary, plan, 2, key)


def decisions_without_weight(keys: np.ndarray, rule: LengthRule, key: RunKey) -> dict[int, float]:
    """Keys and scores of held grams that their keyed noise alone lifts, gram by gram."""
    released = {}
    for gram in keys.tolist():
        evidence = 0.0
        for number, own in enumerate(rule.rounds, start=1):
            sub_key = key.sub_key("noise", rule.length, number)
            noise = randomness.normals(randomness.keyed_bits(sub_key, 0, np.array([gram])))
            evidence += own.loadings[-1] / own.loading_unit * float(noise[0])
            if evidence > own.threshold:
                width = own.cell_units / UNITS
                cell = math.floor((evidence - own.threshold) / width)
                released[gram] = (own.threshold + (cell + 0.5) * width) / own.score_divisor
            if evidence > own.threshold or evidence < own.cut:
                break
    return released


def unheld(settled: Settled) -> np.ndarray:
    """Released grams that nobody holds."""
    return settled.released.keys[~np.isin(settled.released.keys, settled.held)]


def chernoff(count: float, mean: float) -> float:
    """Bounds the chance of a sum of independent 0/1 variables as far from its mean, on either side."""
    if count == 0:
        return 2 * math.exp(-mean)
    return 2 * math.exp(-(count * math.log(count / mean) - count + mean))


def equals(expected: GramSet):
    def check(actual: list[GramSet]) -> None:
        (released,) = actual
        assert released.keys.tolist() == expected.keys.tolist()
        assert released.scores.tolist() == expected.scores.tolist()
        if expected.words is not None:
            assert released.words == expected.words

    return check
