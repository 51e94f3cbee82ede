"""Judging n-gram probabilities: what arrays count, plain Python counts too."""

import collections
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from beam_dpne.bayesian.grams import UserGrams
from beam_dpne.evaluation.corpus import corpus_of
from beam_dpne.lists.public_counts import PublicCounts
from beam_dpne.mechanism.randomness import keyed_bits
from pipelines.experiments import bayesian_mechanisms as mechanisms
from pipelines.experiments.bayesian_judging import (
    best_floor,
    covered_sentences,
    inference_probability,
    kl_divergence,
    perplexity,
    with_floor,
)
from pipelines.experiments.exact_counts import count_exactly
from pipelines.experiments.paper_probabilities import Paper, Sums, untuned

WORDS = "wxyz"
DOCUMENTS = st.lists(
    st.tuples(st.sampled_from("ABCD"), st.lists(st.sampled_from("uwxyz"), max_size=8)),
    min_size=1,
    max_size=10,
).filter(lambda documents: any(text for _, text in documents))


def publics(length):
    grams = st.lists(st.sampled_from(WORDS), min_size=length, max_size=length).map(tuple)
    return st.lists(grams, min_size=1, max_size=12, unique=True).map(
        lambda found: PublicCounts.of(found, range(1, len(found) + 1))
    )


VOCABULARIES = st.integers(1, 3).flatmap(publics)


def grams_of(text, length):
    return [tuple(text[place : place + length]) for place in range(len(text) - length + 1)]


def rows_of(public):
    return {tuple(text.split(" ")): row for row, text in enumerate(public.texts().to_pylist())}


@settings(max_examples=80, deadline=None)
@given(DOCUMENTS, VOCABULARIES)
def test_exact_counts_are_those_of_plain_python(documents, public):
    exact = count_exactly(corpus_of(documents), public)
    held = collections.Counter()
    for user, text in documents:
        for gram in grams_of(text, public.length):
            if gram in rows_of(public):
                held[user, rows_of(public)[gram]] += 1
    counts, holders = [0] * len(public), [0] * len(public)
    for (_, row), count in held.items():
        counts[row] += count
        holders[row] += 1
    assert exact.counts.tolist() == counts
    assert exact.holders.tolist() == holders
    assert exact.users == len({user for user, text in documents if text})


@settings(max_examples=40, deadline=None)
@given(DOCUMENTS, VOCABULARIES, st.integers(1, 12))
def test_a_smaller_vocabulary_has_the_same_counts(documents, public, size):
    exact = count_exactly(corpus_of(documents), public)
    smaller = exact.most_frequent(size)
    assert smaller.counts.tolist() == exact.counts[:size].tolist()
    assert smaller.holders.tolist() == exact.holders[:size].tolist()


@settings(max_examples=40, deadline=None)
@given(DOCUMENTS, VOCABULARIES)
def test_users_add_up(documents, public):
    exact = count_exactly(corpus_of(documents), public)
    chosen = np.arange(exact.users) % 2 == 0
    parts = exact.of_users(chosen), exact.of_users(~chosen)
    assert sum(part.users for part in parts) == exact.users
    assert sum(part.counts for part in parts).tolist() == exact.counts.tolist()


def test_resampled_users_are_as_many_and_like_the_others():
    documents = [(f"u{i}", ["w", "x"] if i % 4 else ["y"]) for i in range(400)]
    exact = count_exactly(corpus_of(documents), PublicCounts.of([("w",), ("x",)], [2, 1]))
    many = exact.resampled(100_000, seed=1)
    assert many.users == 100_000
    # Binomial(100,000, 3/4): ten standard deviations fail with probability 1e-23.
    assert abs(many.counts[0] - 75_000) < 10 * math.sqrt(100_000 * 3 / 16)
    assert many.counts.tolist() == [many.counts[0]] * 2


@settings(max_examples=60, deadline=None)
@given(DOCUMENTS, VOCABULARIES)
def test_covered_sentences_are_those_of_plain_python(documents, public):
    corpus = corpus_of(documents)
    found = covered_sentences(corpus, public)
    rows = rows_of(public)
    own = [
        (user, grams_of(text, public.length))
        for user, text in documents
        if len(text) >= public.length
        and all(gram in rows for gram in grams_of(text, public.length))
    ]
    names = corpus.users.to_pylist()
    assert sorted(names[one] for one in found.authors) == sorted(user for user, _ in own)
    pairs = [(names[user], row) for user, row in zip(found.users, found.rows, strict=True)]
    expected = [(user, rows[gram]) for user, grams in own for gram in grams]
    assert sorted(pairs) == sorted(expected)


def test_perplexity_of_a_small_model():
    grams = np.array([[0, 0, 1], [0, 0, 2], [1, 0, 1]], dtype=np.int32)
    found = perplexity(np.array([0.1, 0.3, 0.6]), grams, np.array([0, 1, 1, 2]))
    assert found == pytest.approx((0.25 * 0.75**2) ** -0.25)


def test_divergence_is_that_of_the_definition():
    generator = np.random.default_rng(1)
    p, q = generator.dirichlet(np.ones(50)), generator.dirichlet(np.ones(50))
    assert kl_divergence(p, q) == pytest.approx(stats.entropy(p, q))
    assert kl_divergence(p, p) == 0
    assert kl_divergence(np.array([0.5, 0.5]), np.array([1.0, 0.0])) == math.inf


def test_the_best_floor_is_better_than_all_others():
    generator = np.random.default_rng(2)
    p = generator.dirichlet(np.ones(100))
    q = np.where(np.arange(100) < 50, p, 0.0)
    q /= q.sum()
    best = best_floor(p, q)
    others = [kl_divergence(p, with_floor(q, one)) for one in np.linspace(0.01, 0.99, 99)]
    assert best <= min(others) + 1e-9
    assert best == pytest.approx(min(others), rel=0.01)


def test_the_papers_use_of_public_counts_cancels_but_for_twice_the_noise():
    counts, public = np.array([500, 300, 200]), np.array([1, 1, 8])
    noise = mechanisms.laplaces(keyed_bits(bytes(32), np.arange(3), 0))
    found = mechanisms.laplace_with_public(counts, public, noise)
    np.testing.assert_allclose(found, mechanisms.positive(counts + 2 * noise))


def test_what_is_cut_off_at_zero_is_normalised_and_uniform_if_nothing_is_left():
    assert mechanisms.positive(np.array([3, -2, 1])).tolist() == [0.75, 0, 0.25]
    assert mechanisms.positive(np.array([-3, 0])).tolist() == [0.5, 0.5]


def test_the_papers_noise_shows_whether_one_user_is_there():
    """5,000 users have 49 words each, and one user alone has the last word, or is not there."""
    users, words = 5000, 50
    public = np.ones(words, np.int64)
    stddevs = []
    for present in (1, 0):
        counts = np.append(np.full(words - 1, users), present)
        rows = np.append(np.tile(np.arange(words - 1), users), [words - 1] * present)
        sizes = np.array([words - 1] * users + [1] * present)
        grams = UserGrams(
            users=np.zeros((users + present, 2), np.uint64),
            offsets=np.append(0, np.cumsum(sizes)),
            rows=rows.astype(np.int32),
            counts=np.ones(rows.size, np.int64),
        )
        sums = Sums(counts, counts, np.zeros_like(counts))
        stddevs.append(untuned(grams, sums, public, Paper(epsilon=0.5, delta=1e-7))[1])
    assert stddevs[0] / stddevs[1] > 4000


def test_the_papers_statistic_is_a_share_of_pairs():
    own = np.array([0.9, 0.1])
    near, far = np.array([[0.9, 0.1]]), np.array([[0.5, 0.5]])
    assert inference_probability(own, near, far) == 1
    assert inference_probability(own, far, near) == 0
    assert inference_probability(own, far, far) == 0.5
