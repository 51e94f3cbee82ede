"""Known words: the law by which those are released that nobody has, and what is tolerated of them.

Keys come from a fixed family, so these tests always give the same result. Had they been drawn at
random, each p-value would fail a correct program with probability `FALSE_FAILURE`.
"""

import dataclasses
import hashlib
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from beam_dpne import KnownNgrams, NgramsPlan, RunKey
from beam_dpne.evaluation.corpus import corpus_of
from beam_dpne.mechanism.rules import KNOWN_CLASS
from beam_dpne.ngrams import decisions, tolerances
from beam_dpne.ngrams.elements import HistogramShard
from beam_dpne.ngrams.in_memory import InMemory
from beam_dpne.ngrams.keys import pack_pairs
from beam_dpne.ngrams.known import root_of
from beam_dpne.ngrams.length_rules import counted_classes, rule_for, rule_of_sizes
from beam_dpne.ngrams.spurious import sample_spurious
from beam_dpne.ngrams.valid import class_sizes
from beam_dpne.steps import GramSet, NextCandidates

FALSE_FAILURE = 1e-7
PLAN = NgramsPlan(epsilon=4, delta=1e-5, max_length=2, spurious_fraction=0.5, count_share=0.0)
HELD = [f"held {number:03}" for number in range(200)]
UNHELD = [f"unheld {number:04}" for number in range(2000)]
# Each word of HELD has 40 users, and each of these users has 5 of them.
TEXTS = [
    (f"u{number}", [HELD[(number + 7 * step) % 200] for step in range(5)]) for number in range(1600)
]


def run_key(number: int) -> RunKey:
    """Member `number` of a fixed family of keys."""
    return RunKey(hashlib.sha256(f"known words {number}".encode()).digest())


def root_of_words(words: list[str]) -> GramSet:
    root = root_of(KnownNgrams.of([(word,) for word in words]), PLAN.max_length)
    assert root is not None
    return root


def release(root: GramSet, number: int, plan: NgramsPlan = PLAN) -> tuple[GramSet, ...]:
    key = run_key(number)
    return InMemory(plan=plan, run_key=key, root=root).release([corpus_of(TEXTS).batch(key)])


@pytest.fixture(scope="module")
def runs() -> list[tuple[GramSet, ...]]:
    root = root_of_words([*HELD, *UNHELD])
    return [release(root, number) for number in range(60)]


def spurious_words(words: GramSet) -> list[str]:
    return [word for word in words.words.to_pylist() if word.startswith("unheld")]


def test_known_words_that_nobody_has_are_released_with_exactly_their_probability(runs):
    """Given the rules of all runs, their sum is one of independent decisions (normal, by its size)."""
    chances = [words.rule.classes[-1].null_probability for words, _ in runs]
    found = [len(spurious_words(words)) for words, _ in runs]
    mean = len(UNHELD) * math.fsum(chances)
    variance = len(UNHELD) * math.fsum(p * (1 - p) for p in chances)
    assert mean > 500
    assert 2 * stats.norm.sf(abs(sum(found) - mean) / math.sqrt(variance)) > FALSE_FAILURE


def test_each_known_word_is_drawn_equally_often_and_in_rounds_by_the_null_law():
    root = root_of_words(UNHELD)
    rule = rule_for(PLAN, root, run_key(0), [[0]])
    own = rule.classes[-1]
    drawn = [sample_spurious(root, rule=rule, run_key=run_key(number)) for number in range(400)]
    rounds = np.bincount(np.concatenate([each.found for each in drawn]), minlength=4)[1:]
    chances = np.array([each.null_probability for each in own.rounds])
    expected = 400 * len(UNHELD) * chances
    assert stats.chisquare(rounds, expected, sum_check=False).pvalue > FALSE_FAILURE
    words, counts = np.unique(
        np.concatenate([each.words.to_numpy(zero_copy_only=False) for each in drawn]),
        return_counts=True,
    )
    counts = np.append(counts, np.zeros(len(UNHELD) - words.size))
    chance = own.null_probability
    deviations = (counts - 400 * chance) ** 2 / (400 * chance * (1 - chance))
    assert stats.chi2.sf(deviations.sum(), len(UNHELD)) > FALSE_FAILURE
    assert stats.chi2.cdf(deviations.sum(), len(UNHELD)) > FALSE_FAILURE


def test_spurious_known_words_are_at_most_the_tolerated_part_of_the_held_ones(runs):
    """η·(h + 1 + s/80) in the mean; 60 runs leave the mean a Poisson error of about 1 in 30."""
    found = sum(len(spurious_words(words)) for words, _ in runs)
    bound = PLAN.spurious_fraction * (len(HELD) + 1 + PLAN.held_stddev / 80) * len(runs)
    assert stats.poisson.sf(found - 1, bound) > FALSE_FAILURE
    # And no less than a list without counts would have, since most words of HELD are counted.
    assert found > 0.3 * bound


def test_what_is_tolerated_does_not_follow_from_the_count_of_unheld_words():
    """Where N were small, a would be large: then the mean of their ratio has no bound."""
    root = root_of_words([*HELD, *UNHELD])
    rules = [rule_for(PLAN, root, run_key(number), [[150 << 40]]) for number in range(300)]
    groups = [rule.groups[0] for rule in rules]
    unheld = np.array([group.noisy_unheld for group in groups])
    held = np.array([group.noisy_held for group in groups])
    deviation = PLAN.held_stddev * tolerances.WORD_NOISE
    assert stats.pearsonr(unheld, held).pvalue > FALSE_FAILURE
    for numbers, mean in ((unheld, 2050), (held, 150)):
        scaled = (numbers - mean) / deviation
        assert stats.kstest(scaled, "norm").pvalue > FALSE_FAILURE
    for group in groups:
        words = tolerances.tolerated_words(group.noisy_held, deviation)
        assert group.probability <= PLAN.spurious_fraction * words / group.unheld


def test_the_margin_of_the_second_count_bounds_what_noise_alone_tolerates():
    """E max(1, h + Z − 2σ) ≤ h + 1 + σ·(φ(2) − 2·Φ̄(2)), for every h."""
    noise = stats.norm.isf((np.arange(200_000) + 0.5) / 200_000)
    for held in (0.0, 0.5, 1.0, 3.0, 10.0):
        tolerated = [tolerances.tolerated_words(value, 1.0) for value in (held + noise)[:60_000]]
        mean = (math.fsum(tolerated) + 140_000) / 200_000 if held == 0 else None
        whole = np.maximum(1.0, held + noise - 2.0).mean()
        assert whole <= held + 1 + 0.0086
        assert mean is None or mean == pytest.approx(whole, rel=1e-6)


def test_new_words_keep_the_thresholds_and_the_whole_of_their_delta():
    root = root_of_words([*HELD, *UNHELD])
    rule = rule_for(PLAN, root, run_key(1), [[0]])
    assert [own.number for own in rule.classes] == [0, KNOWN_CLASS]
    assert rule.classes[0].rounds == PLAN.lengths[0].word_rules == rule.rounds
    assert rule.threshold == PLAN.lengths[0].threshold
    # New words are judged by the round alone, and never without weight; known ones add up.
    assert [each.loadings[:-1] for each in rule.classes[0].rounds] == [(), (0,), (0, 0)]
    assert all(rule.classes[1].rounds[-1].loadings)


@pytest.mark.parametrize("is_known", [False, True])
def test_a_word_without_weight_is_found_only_if_it_is_known(is_known):
    size = 20_000
    words = [f"w{number:05}" for number in range(size)]
    key = run_key(3)
    batch = corpus_of([("ann", words)]).batch(key)
    root = root_of_words(words if is_known else [f"other {number}" for number in range(size)])
    rule = rule_for(PLAN, root, key, [[size * 2**39]])
    shard = HistogramShard(
        length=1,
        keys=np.arange(size),
        weights=np.zeros(size, np.int64),
        classes=np.full(size, KNOWN_CLASS * is_known, np.int16),
        words=batch.words,
        word_hashes=batch.word_hashes,
    )
    found = decisions.decide_round(shard, rule=rule, run_key=key).found
    assert (found > 0).any() == is_known


def test_a_drawn_word_that_somebody_has_at_weight_0_is_decided_by_its_own_noise_alone():
    """Else it would have two chances, and its user one more decision."""
    key, root = run_key(4), root_of_words(UNHELD)
    rule = rule_for(PLAN, root, key, [[1900 * 2**40]])
    drawn = sample_spurious(root, rule=rule, run_key=key)
    batch = corpus_of([("ann", UNHELD)]).batch(key)
    shard = HistogramShard(
        length=1,
        keys=np.arange(len(UNHELD)),
        weights=np.zeros(len(UNHELD), np.int64),
        classes=np.full(len(UNHELD), KNOWN_CLASS, np.int16),
        words=batch.words,
        word_hashes=batch.word_hashes,
    )
    after = decisions.decide(shard, drawn, run_key=key)
    alone = decisions.decide_round(shard, rule=rule, run_key=key)
    assert len(drawn) > 50
    assert sorted(after.words.to_pylist()) == sorted(alone.words.to_pylist())


def test_whether_a_known_pair_is_drawn_follows_from_its_key_alone():
    """Not from its place in the list, whose bits another n-gram has."""
    grid = pack_pairs(*np.indices((40, 40)).reshape(2, -1))
    few, many = grid[5:1000:5], grid[5:1000]
    words = GramSet(length=1, keys=np.arange(40), scores=np.ones(40), vocabulary_size=40)
    sets = [
        dataclasses.replace(words, candidates=NextCandidates(known=known)) for known in (few, many)
    ]
    rule = rule_of_sizes(PLAN, 2, released=40, sizes=class_sizes(sets[0]))
    drawn = [sample_spurious(each, rule=rule, run_key=run_key(5)).keys for each in sets]
    first, second = (np.intersect1d(few, keys).tolist() for keys in drawn)
    assert first == second
    assert 3 < len(first) < len(few)


def test_two_counts_of_known_words_cost_what_one_with_the_noise_of_others_does():
    """As users are charged for one, with s; the tests above hold the noise against WORD_NOISE."""
    assert Fraction(tolerances.WORD_NOISE) ** 2 >= 2
    (group,) = rule_for(PLAN, root_of_words(UNHELD), run_key(0), [[0]]).groups
    assert Fraction(group.noise_stddev) ** 2 >= 2 * Fraction(PLAN.held_stddev) ** 2


def test_a_long_list_of_which_nothing_is_held_tolerates_one_word():
    root = root_of_words(UNHELD)
    plan = dataclasses.replace(PLAN, spurious_fraction=0.01)
    found = [len(spurious_words(release(root, number, plan)[0])) for number in range(40)]
    # 40·η·(1 + s/80) = 0.5 in the mean.
    assert stats.poisson.sf(sum(found) - 1, 0.5) > FALSE_FAILURE


def test_short_lists_are_not_counted():
    plan = dataclasses.replace(PLAN, epsilon=0.5)
    counted = counted_classes(root_of_words(HELD[:50]), plan.held_stddev)
    assert not counted.numbers.size
    rule = rule_for(plan, root_of_words(HELD[:50]), run_key(0), [[0]])
    (group,) = rule.groups
    assert (group.noise_stddev, group.unheld, group.noisy_held) == (0.0, group.candidates, None)
    assert group.probability * group.unheld <= plan.spurious_fraction
