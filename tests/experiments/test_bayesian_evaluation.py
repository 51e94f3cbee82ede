"""Judging n-gram probabilities: what arrays count, plain Python counts too."""

import collections
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from beam_dpne.bayesian.public_counts import PublicCounts
from beam_dpne.evaluation.corpus import corpus_of
from beam_dpne.mechanism.randomness import RunKey
from pipelines.experiments import bayesian_baselines as baselines
from pipelines.experiments.divergence import best_floor, kl_divergence, with_floor
from pipelines.experiments.exact_counts import count_exactly
from pipelines.experiments.membership import (
    epsilon_lower_bound,
    gaussian_log_ratios,
    inference_probability,
    laplace_log_ratios,
    lower_rate,
    softmax_log_ratios,
    upper_rate,
)
from pipelines.experiments.perplexity import conditional, covered_sentences, perplexity

KEY = RunKey.from_hex("5" * 64)
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
    joint = np.array([0.1, 0.3, 0.6])
    np.testing.assert_allclose(conditional(joint, grams), [0.25, 0.75, 1.0])
    rows = np.array([0, 1, 1, 2])
    assert perplexity(joint, grams, rows) == pytest.approx((0.25 * 0.75**2) ** -0.25)
    with pytest.raises(ValueError, match="no sentence is covered"):
        perplexity(joint, grams, rows[:0])


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
    best, share = best_floor(p, q)
    others = [kl_divergence(p, with_floor(q, one)) for one in np.linspace(0.01, 0.99, 99)]
    assert best <= min(others) + 1e-9
    assert best == pytest.approx(kl_divergence(p, with_floor(q, share)))


def test_laplace_noise_has_the_scale_of_the_sensitivity():
    counts = np.full(40_000, 10**7)
    found = baselines.laplace(counts, epsilon=0.5, max_count=2, max_contributions=10, run_key=KEY)
    spread = np.abs(found * counts.sum() / found.sum() - 10**7).mean()
    # Mean of |Lap(40)| is 40, standard deviation 40 of each: ten of the mean's is 2.
    assert abs(spread - 40) < 2


def test_the_papers_use_of_public_counts_cancels_but_for_twice_the_noise():
    counts, public = np.array([500, 300, 200]), np.array([1, 1, 8])
    found = baselines.laplace_with_public(
        counts, public, epsilon=2.0, max_count=1, max_contributions=3, run_key=KEY
    )
    plain = baselines.laplace(counts, epsilon=1.0, max_count=1, max_contributions=3, run_key=KEY)
    np.testing.assert_allclose(found, plain)


def test_without_noise_baselines_are_what_they_should_be():
    counts, holders = np.array([6, 2, 9]), np.array([3, 3, 1])
    assert baselines.k_anonymity(counts, holders, 4).tolist() == [1 / 3] * 3
    assert baselines.public_only(np.array([3, 1])).tolist() == [0.75, 0.25]
    assert baselines.public_only(np.array([3, 1]), added=1).tolist() == [4 / 6, 2 / 6]


def test_rates_are_bounded_as_the_exact_test_does():
    for hits, draws in ((0, 20), (3, 20), (20, 20)):
        interval = stats.binomtest(hits, draws).proportion_ci(0.9, method="exact")
        assert lower_rate(hits, draws, 0.05) == pytest.approx(interval.low)
        assert upper_rate(hits, draws, 0.05) == pytest.approx(interval.high)


def test_log_ratios_are_those_of_the_densities():
    generator = np.random.default_rng(3)
    values, near, far = generator.normal(size=(3, 20, 4)) * 3
    near, far = near[0], far[0]
    normal = stats.norm(near, 2).logpdf(values) - stats.norm(far, 2).logpdf(values)
    np.testing.assert_allclose(gaussian_log_ratios(values, near, far, 2), normal.sum(axis=1))
    laplace = stats.laplace(near, 2).logpdf(values) - stats.laplace(far, 2).logpdf(values)
    np.testing.assert_allclose(
        laplace_log_ratios(values, near, far, 2), laplace.sum(axis=1), atol=1e-9
    )


def test_ties_of_laplace_ratios_do_not_tell_the_worlds_apart_by_their_last_bits():
    noise = np.random.default_rng(8).laplace(0, 300, (20_000, 1))
    present, absent = np.array([1.0]), np.array([0.0])
    scores = (laplace_log_ratios(noise + mean, present, absent, 300) for mean in (1, 0))
    # ε = 1/300. The bound fails with probability 1e-6, and is no larger than noise explains.
    assert epsilon_lower_bound(*scores, delta=1e-7, confidence=1 - 1e-6) <= 1 / 300


def test_log_ratios_after_softmax_are_those_of_differences_to_one_coordinate():
    """Centred vectors and differences to the last coordinate are functions of each other."""
    generator = np.random.default_rng(4)
    logs = generator.normal(size=(30, 5))
    worlds = [(generator.normal(size=5), 1.5), (generator.normal(size=5), 0.7)]
    matrix = np.eye(5)[:4] - np.eye(5)[4]
    densities = [
        stats.multivariate_normal(matrix @ means, stddev**2 * matrix @ matrix.T)
        for means, stddev in worlds
    ]
    ratios = [density.logpdf(logs @ matrix.T) for density in densities]
    found = softmax_log_ratios(logs + 7, *worlds)
    np.testing.assert_allclose(found, ratios[0] - ratios[1])


def test_a_mechanism_of_known_epsilon_is_bounded_from_below_and_not_above():
    """Laplace noise of sensitivity 1: ε = 1 is attained by a threshold, and never passed.

    The bound fails with probability 5 %; with a confidence of 1 − 1e-6 as good as never.
    """
    generator = np.random.default_rng(5)
    without, present = generator.laplace(0, 1, 40_000), generator.laplace(1, 1, 40_000)
    bound = epsilon_lower_bound(present, without, delta=0, confidence=1 - 1e-6)
    assert 0.8 < bound <= 1


def test_a_mechanism_that_hides_everything_shows_nothing():
    draws = np.random.default_rng(6).normal(size=(2, 2000))
    assert epsilon_lower_bound(*draws, delta=1e-6, confidence=1 - 1e-6) < 0.3
    same = np.zeros(100)
    assert epsilon_lower_bound(same, same, delta=1e-6) == 0


def test_the_papers_statistic_is_a_share_of_pairs():
    own = np.array([0.9, 0.1])
    near, far = np.array([[0.9, 0.1]]), np.array([[0.5, 0.5]])
    assert inference_probability(own, near, far) == 1
    assert inference_probability(own, far, near) == 0
    assert inference_probability(own, far, far) == 0.5
