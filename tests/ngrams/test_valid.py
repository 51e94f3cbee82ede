"""V_k: its exact number against enumeration, members by number, and the paper's estimate.

Keys are fixed; had they been random, each assertion on a p-value would fail a correct program with
probability `FALSE_FAILURE`.
"""

import hashlib
import itertools
import math
import random

import numpy as np
import pytest
from scipy import stats

from beam_dpne import NgramsPlan, RunKey
from beam_dpne.mechanism.randomness import keyed_bits
from beam_dpne.mechanism.thresholds import spurious_threshold
from beam_dpne.ngrams import valid as valid_module
from beam_dpne.ngrams.keys import pack_pairs, unpack_pairs
from beam_dpne.ngrams.length_rules import rule_for
from beam_dpne.ngrams.valid import class_sizes, estimate_valid_kgrams, members
from beam_dpne.steps import GramSet

FALSE_FAILURE = 1e-6
RULES = ("both", "single")
KEY = RunKey(bytes(range(32)))


@pytest.mark.parametrize("pruning", RULES)
def test_the_count_is_that_of_enumerating_all_words(pruning):
    """3,000 random chains S_1, …, S_{k−1}; V_k is found by trying every k words of S_1."""
    rng = random.Random(1)
    sizes = []
    for _ in range(3000):
        last, grams, vocabulary = random_chain(rng, length=rng.randint(1, 4), pruning=pruning)
        sizes.append(len(enumerate_valid(grams, vocabulary, last.length, pruning)))
        assert count_valid(last, pruning) == sizes[-1]
    assert min(sizes) == 0
    assert max(sizes) > 50
    assert len(set(sizes)) > 40


@pytest.mark.parametrize("pruning", RULES)
def test_draws_are_members_in_the_documented_order(pruning, monkeypatch):
    """Draw number i of |V_k| is member i: by middle, then by first gram, then by second."""
    rng = random.Random(2)
    for _ in range(300):
        last, grams, vocabulary = random_chain(rng, length=rng.randint(1, 4), pruning=pruning)
        valid = enumerate_valid(grams, vocabulary, last.length, pruning)
        if not valid:
            continue
        chosen = {0: np.arange(len(valid))}
        drawn = members(last, chosen, pruning, by_prediction=False)[0]
        drawn = words_of(drawn, grams, vocabulary, pruning)
        if pruning == "both":
            valid.sort(key=lambda gram: (gram[1:-1], gram[:1], gram[-1:]))
        assert drawn == valid
        # Blocks of one list and of all lists number the members alike.
        monkeypatch.setattr(valid_module, "_LISTS_AT_ONCE", rng.choice([1, 2, 5, 2**16]))


def test_the_estimate_has_the_mean_and_variance_of_its_binomial_law():
    """count ~ Binomial(N, |V_k|/(|S_1||S_{k−1}|)), N = ⌈p|S_1||S_{k−1}|⌉, and #V_k = ⌈count/p⌉."""
    previous, _, vocabulary = random_chain(
        random.Random(9), length=3, pruning="both", share=0.6, words=6
    )
    pairs = len(previous) * len(vocabulary)
    chance = count_valid(previous, "both") / pairs
    assert 0.1 < chance < 0.9
    draws = 3000
    estimates = np.array([estimate_valid_kgrams(previous, sub_key(i)) for i in range(draws)])
    counts = np.bincount(estimates, minlength=pairs + 1)
    expected = draws * stats.binom.pmf(np.arange(counts.size), pairs, chance)
    enough = expected > 10
    observed = np.append(counts[enough], counts[~enough].sum())
    expected = np.append(expected[enough], draws - expected[enough].sum())
    statistic = np.sum((observed - expected) ** 2 / expected)
    assert stats.chi2.sf(statistic, observed.size - 1) > FALSE_FAILURE
    spread = math.sqrt(pairs * chance * (1 - chance) / draws)
    assert abs(estimates.mean() - chance * pairs) < 5 * spread


def test_an_estimate_moves_the_threshold_and_the_rule_still_says_the_exact_number():
    previous, _, _ = random_chain(random.Random(9), length=2, pruning="both", share=0.6, words=6)
    plan = NgramsPlan(
        epsilon=1.0, delta=1e-6, max_length=3, strategy="one_round", valid_count="estimate"
    )
    rule = rule_for(plan, previous, KEY)
    valid = count_valid(previous, "both")
    estimate = estimate_valid_kgrams(previous, KEY.sub_key("estimate", 3))
    assert estimate != valid
    assert rule.valid == valid
    threshold = spurious_threshold(
        noise_stddev=plan.lengths[2].noise_stddev,
        spurious_fraction=plan.spurious_fraction,
        released=len(previous),
        valid=estimate,
    )
    assert rule.threshold == pytest.approx(threshold, rel=1e-9)


@pytest.mark.parametrize("pruning", RULES)
def test_nothing_is_valid_after_an_empty_set(pruning):
    none = np.zeros(0, np.int64)
    assert count_valid(vocabulary_of(0), pruning) == 0
    for parents in (0, 4):
        empty = GramSet(
            length=2, keys=none, scores=none.astype(float), parent_size=parents, vocabulary_size=4
        )
        assert count_valid(empty, pruning) == 0


def random_chain(rng, *, length, pruning, share=None, words=None):
    """Returns S_length, as the last of a random chain, its grams as words, and S_1 as words."""
    share = rng.choice([0.2, 0.5, 0.8, 1.0]) if share is None else share
    vocabulary = [(word,) for word in "abcdef"[: rng.randint(0, 4) if words is None else words]]
    size = len(vocabulary)
    last, grams = vocabulary_of(size), vocabulary
    for k in range(2, length + 1):
        seconds = grams if pruning == "both" else vocabulary
        pairs = [
            (prefix, second)
            for prefix, second in itertools.product(range(len(grams)), range(len(seconds)))
            if pruning == "single" or grams[prefix][1:] == seconds[second][:-1]
            if rng.random() < share
        ]
        prefixes, suffixes = np.array(pairs, np.int64).reshape(-1, 2).T
        last = GramSet(
            length=k,
            keys=pack_pairs(prefixes, suffixes),
            scores=np.ones(len(pairs)),
            parent_size=len(grams),
            vocabulary_size=size,
        )
        grams = [(*grams[prefix], seconds[second][-1]) for prefix, second in pairs]
    return last, grams, vocabulary


def enumerate_valid(grams, vocabulary, length, pruning) -> list[tuple[str, ...]]:
    """V_k by definition: all k words of S_1 whose prefix and suffix (or last word) are released."""
    released, last = set(grams), set(grams if pruning == "both" else vocabulary)
    tail = 1 if pruning == "both" else -1
    words = [word for (word,) in vocabulary]
    return [
        gram
        for gram in itertools.product(words, repeat=length + 1)
        if gram[:-1] in released and gram[tail:] in last
    ]


def words_of(keys, grams, vocabulary, pruning) -> list[tuple[str, ...]]:
    """Drawn keys as words."""
    seconds = grams if pruning == "both" else vocabulary
    prefixes, places = unpack_pairs(np.asarray(keys))
    pairs = zip(prefixes.tolist(), places.tolist(), strict=True)
    return [(*grams[prefix], seconds[place][-1]) for prefix, place in pairs]


def count_valid(previous: GramSet, pruning: str) -> int:
    """|V_k| as the size of class 0."""
    return sum(class_sizes(previous, pruning, by_prediction=False).values())


def bits_of(count: int) -> np.ndarray:
    """Blocks under a fixed key."""
    return keyed_bits(sub_key(0), np.uint64(1), np.arange(count, dtype=np.uint64))


def sub_key(number: int) -> bytes:
    """Member `number` of a fixed family of sub-keys."""
    return RunKey(hashlib.sha256(f"valid {number}".encode()).digest()).sub_key("test")


def vocabulary_of(size: int) -> GramSet:
    """S_1 of so many words."""
    return GramSet(
        length=1, keys=np.arange(size), scores=np.ones(size), parent_size=1, vocabulary_size=size
    )
