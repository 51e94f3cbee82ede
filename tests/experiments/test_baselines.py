"""The DPSU baselines: what plain Python gives with the same key, what one user can move, Table 5."""

import math
import random
import statistics
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats

from beam_dpne.evaluation.corpus import corpus_of, index_corpus
from beam_dpne.mechanism.gaussian import gaussian_delta
from beam_dpne.mechanism.randomness import RunKey, keyed_bits, keyed_hashes
from pipelines.experiments import baselines
from pipelines.experiments.baselines import (
    Baseline,
    UnionNoise,
    noise_of,
    release_baseline,
    union_noise,
    union_weights,
    weighted_gaussian,
    words_of,
)
from pipelines.experiments.printed import DPNE_TABLE_5
from tests.support.grams import gram_texts

KEY = RunKey(bytes(range(32)))
BUDGET = {"epsilon": 1.0, "delta": 1e-7, "max_contributions": 10}


def documents(seed, users=40, words=6):
    chance = random.Random(seed)
    return [
        (f"u{chance.randrange(users)}", chance.choices("abcdefgh"[:words], k=chance.randint(0, 9)))
        for _ in range(3 * users)
    ]


def held_by_user(texts, lengths):
    """Each user's distinct grams of some lengths."""
    held = {}
    for user, text in texts:
        own = {tuple(text[i : i + k]) for k in lengths for i in range(len(text) - k + 1)}
        held.setdefault(user, set()).update(own)
    return {user: own for user, own in held.items() if own}


def plain_weights(texts, lengths, limit, key):
    """The weights of one union, with the draws that the key gives; grams are numbered in order."""
    held = held_by_user(texts, lengths)
    grams = sorted(
        {g for own in held.values() for g in own}, key=lambda g: (lengths.index(len(g)), g)
    )
    number = {gram: i for i, gram in enumerate(grams)}
    weights = dict.fromkeys(grams, 0)
    for user, own in held.items():
        hashed = keyed_hashes(key.sub_key("user"), [user.encode()])[0, 0]
        draws = {g: keyed_bits(key.sub_key("subset"), hashed, number[g])[0, 0] for g in own}
        kept = sorted(own, key=draws.__getitem__)[:limit]
        for gram in kept:
            weights[gram] += math.isqrt(2**64 // len(kept))
    return weights


def plain_union(texts, lengths, noise, key):
    """The grams that one union releases."""
    released = set()
    weights = plain_weights(texts, lengths, noise.max_contributions, key)
    for number, (gram, weight) in enumerate(weights.items()):
        first, last = map(int, keyed_bits(key.sub_key("noise"), np.uint64(0), number)[0])
        half = float(Fraction(first << 64 | last | 1, 2**129))
        size = -NormalDist().inv_cdf(half) * noise.noise_stddev
        noisy = Fraction(weight, 2**32) + Fraction(-size if last & 1 else size)
        if weight > 0 and noisy > noise.threshold:
            released.add(gram)
    return released


def texts_of(grams, numbers):
    return {
        gram
        for length, ids in numbers.items()
        for gram in gram_texts(grams.corpus, words_of(grams, length, ids))
    }


@pytest.mark.parametrize(
    ("lengths", "limit"),
    [((1, 2, 3), 1), ((1, 2, 3), 7), ((1, 2, 3), 1000), ((2,), 3), ((1,), 3)],
)
def test_a_union_is_that_of_plain_python_with_the_same_key(lengths, limit):
    for seed in range(3):
        texts = documents(seed)
        grams = index_corpus(corpus_of(texts), 3)
        weights = union_weights(grams, lengths, limit, KEY).tolist()
        assert weights == list(plain_weights(texts, lengths, limit, KEY).values())
        threshold = statistics.median(filter(None, weights)) / 2**32
        noise = UnionNoise(noise_stddev=0.9, threshold=threshold, max_contributions=limit)
        ours = texts_of(grams, weighted_gaussian(grams, lengths, noise, KEY))
        assert ours == plain_union(texts, lengths, noise, KEY)
        assert 0 < len(ours) < len(weights)


@pytest.mark.parametrize("positions", [1, 7, 100])
def test_the_result_does_not_depend_on_how_users_are_cut_or_ordered(monkeypatch, positions):
    texts = documents(1)
    noise = UnionNoise(noise_stddev=0.5, threshold=1.5, max_contributions=5)

    def released(texts):
        grams = index_corpus(corpus_of(texts), 3)
        return texts_of(grams, weighted_gaussian(grams, (1, 2, 3), noise, KEY))

    whole = released(texts)
    monkeypatch.setattr(baselines, "_POSITIONS_AT_ONCE", positions)
    monkeypatch.setattr(baselines, "_DRAWS_AT_ONCE", positions)
    assert released(texts[::-1]) == whole
    assert whole


@pytest.mark.parametrize("limit", [1, 2, 5, 30, 1000])
def test_one_users_weights_have_squares_of_at_most_one_in_exact_integers(limit):
    for seed in range(15):
        texts = [("ann", text) for _, text in documents(seed, users=1 + seed)]
        grams = index_corpus(corpus_of(texts), 3)
        weights = union_weights(grams, (1, 2, 3), limit, KEY).tolist()
        held = len(held_by_user(texts, (1, 2, 3))["ann"])
        kept = min(held, limit)
        assert sum(w > 0 for w in weights) == kept
        assert set(weights) <= {0, math.isqrt(2**64 // kept)}
        assert 2**64 - 2**34 * math.isqrt(kept) < sum(w**2 for w in weights) <= 2**64


# Noise and thresholds


def test_noise_is_that_of_the_papers_set_union():
    noise = union_noise(epsilon=1, delta=1e-7, max_contributions=10)
    assert noise.noise_stddev == pytest.approx(4.80870, rel=1e-5)
    half = 0.5e-7
    wanted = max(
        1 / math.sqrt(t) + 4.8087024 * stats.norm.isf(-math.expm1(math.log1p(-half) / t))
        for t in range(1, 11)
    )
    assert noise.threshold == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("parts", [1, 6, 9])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-7), (4.0, 1e-7), (0.1, 1e-3)])
def test_parts_cost_the_budget_together_and_no_more(parts, epsilon, delta):
    noise = union_noise(epsilon=epsilon, delta=delta, max_contributions=50, parts=parts)
    composed = math.fsum(each**-2 for each in [noise.noise_stddev] * parts) ** -0.5
    spent = gaussian_delta(epsilon=epsilon, noise_stddev=composed)
    assert 0.499 * delta < spent <= 0.5 * delta
    alone = max(
        -math.expm1(
            t * stats.norm.logcdf((noise.threshold - 1 / math.sqrt(t)) / noise.noise_stddev)
        )
        for t in range(1, 51)
    )
    assert 0.499 * delta < parts * alone <= 0.5 * delta * (1 + 1e-9)


def test_one_budget_is_for_all_lengths_together_but_of_single():
    noises = [noise_of(Baseline(name=name, max_length=2, **BUDGET)) for name in baselines.NAMES]
    assert [noise.max_contributions for noise in noises] == [20, 10, 10]
    union, even, single = (noise.noise_stddev for noise in noises)
    assert single == pytest.approx(union, rel=1e-9)
    assert even == pytest.approx(math.sqrt(2) * single)
    assert set(baselines.NAMES) == set(DPNE_TABLE_5.rows) - {"DPNE"}


def test_lengths_and_baselines_and_parameters_draw_noise_of_their_own():
    # One user with one gram of each length, at a threshold in the middle of its noise: each decision
    # is a coin. Fixed keys, so no failure by chance; 100 equal coins of two would be 2^-100.
    grams = index_corpus(corpus_of([("ann", ["a"] * 3)]), 3)
    keys = [RunKey(i.to_bytes(32, "big")) for i in range(100)]
    coin = {"epsilon": 50.0, "delta": 0.9, "max_length": 3, "max_contributions": 1}

    def coins(**changes):
        run = Baseline(**{**coin, **changes})
        found = [release_baseline(grams, run, key) for key in keys]
        return [tuple(bool(len(each)) for each in one.values()) for one in found]

    even, single = coins(name="DPSU-even"), coins(name="DPSU-single")
    other = coins(name="DPSU-single", delta=0.8)
    for column in range(3):
        assert 0 < sum(sizes[column] for sizes in single) < 100
    assert any(sizes[0] != sizes[1] for sizes in single)
    assert any(a != b for a, b in zip(even, single, strict=True))
    assert any(a[0] and not b[0] for a, b in zip(other, single, strict=True))
