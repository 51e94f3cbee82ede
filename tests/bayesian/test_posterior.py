"""Post-processing of noisy counts: what it must keep, and that it is worth having."""

import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from beam_dpne.bayesian.posterior import discounted, posterior_means, probabilities

COUNTS = st.integers(-(10**9), 10**9)


@functools.cache
def made_up(seed, *, size=2000, shift=0.6, total=3e5):
    """Trigrams over Zipf-like words, and private counts that differ by words and by grams."""
    generator = np.random.default_rng(seed)
    shares = 1 / np.arange(1, 301)
    rows = generator.choice(300, p=shares / shares.sum(), size=(20 * size, 3))
    grams = np.unique(rows, axis=0)[:size].astype(np.int32)
    grams = grams[generator.permutation(len(grams))]
    rate = 1 / np.arange(1, len(grams) + 1) ** 0.9
    public = 1 + generator.poisson(rate * 1e5 / rate.sum())
    logs = shift * generator.normal(size=300)[grams].sum(axis=1)
    logs += 0.3 * generator.normal(size=len(grams))
    private = public * np.exp(logs)
    return grams, public, generator.poisson(private * total / private.sum())


def noisy(counts, stddev, seed=0):
    noise = np.random.default_rng(seed).normal(0, stddev, counts.size)
    return np.rint(counts + noise).astype(np.int64)


def divergence(counts, found):
    return stats.entropy(counts / counts.sum(), found)


def test_counts_far_below_zero_become_a_distribution():
    noisy = np.array([-975848042, -975914010, 281550202])
    grams = np.array([[0, 1], [1, 1], [1, 1]], dtype=np.int32)
    found = probabilities(noisy, np.array([17, 16, 0]), grams, 0.001)
    assert found.min() > 0
    assert found.sum() == pytest.approx(1)
    assert found[2] == pytest.approx(1)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(1, 4), st.floats(0, 1e8, allow_subnormal=False))
def test_any_counts_become_a_distribution(data, length, stddev):
    rows = data.draw(st.lists(st.tuples(COUNTS, st.integers(0, 10**6)), min_size=1, max_size=30))
    ids = st.lists(st.integers(0, 5), min_size=length, max_size=length)
    grams = data.draw(st.lists(ids, min_size=len(rows), max_size=len(rows)))
    values, public = np.array(rows, dtype=np.int64).T
    with np.errstate(all="raise", under="ignore", over="warn"):
        found = probabilities(values, public, np.array(grams, dtype=np.int32), stddev)
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_public_prior_is_what_is_left_as_the_noise_grows(seed):
    grams, public, counts = made_up(seed)
    prior = discounted(public) / discounted(public).sum()
    distances = [
        stats.entropy(prior, probabilities(noisy(counts, stddev), public, grams, stddev))
        for stddev in (1e4, 1e6, 1e8)
    ]
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 1e-8


@pytest.mark.parametrize("seed", [1, 2])
def test_the_private_distribution_is_approached_as_the_noise_falls(seed):
    grams, public, counts = made_up(seed)
    distances = [
        divergence(counts, probabilities(noisy(counts, stddev), public, grams, stddev))
        for stddev in (30, 3, 0.3, 1e-3)
    ]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 1e-6
    exact = probabilities(counts, public, grams, 0)
    np.testing.assert_allclose(exact, counts / counts.sum())


@pytest.mark.parametrize(
    ("seed", "stddev"), [(1, 300), (2, 300), (3, 300), (1, 100), (1, 30), (2, 10), (3, 10)]
)
def test_it_is_better_than_the_public_counts_and_than_the_noisy_ones(seed, stddev):
    grams, public, counts = made_up(seed)
    values = noisy(counts, stddev)
    found = divergence(counts, probabilities(values, public, grams, stddev))
    assert found < 0.8 * divergence(counts, public / public.sum())
    clipped = np.maximum(values, 1.0)
    assert found < 0.9 * divergence(counts, clipped / clipped.sum())


def test_rare_grams_learn_from_the_words_they_share_with_others():
    """One word is 20 times as frequent in the private texts; a rare gram of it has no signal."""
    generator = np.random.default_rng(3)
    grams = np.array([(word, other) for word in range(20) for other in range(20, 120)])
    public = np.where(grams[:, 1] < 60, 500, 5)
    counts = public * np.where(grams[:, 0] == 0, 20, 1)
    values = np.rint(counts + generator.normal(0, 400, counts.size)).astype(np.int64)
    found = probabilities(values, public, grams.astype(np.int32), 400)
    rare = public == 5
    ratio = found[rare & (grams[:, 0] == 0)].mean() / found[rare & (grams[:, 0] > 0)].mean()
    assert 8 < ratio < 30


def test_grams_without_effect_of_words_shrink_each_by_itself():
    """Every gram has words of its own, so that nothing is shared."""
    grams = np.arange(600).reshape(300, 2).astype(np.int32)
    public = np.full(300, 1000)
    counts = np.where(np.arange(300) < 10, 8000, 1000)
    found = probabilities(noisy(counts, 150), public, grams, 150)
    assert divergence(counts, found) < 0.2 * divergence(counts, public / public.sum())


@pytest.mark.parametrize(
    ("value", "centre", "variance", "stddev"),
    [
        (50.0, 3.0, 0.5, 10.0),
        (-40.0, 2.0, 1.0, 20.0),
        (900.0, 5.0, 0.3, 60.0),
        (3.0, 1.0, 2.0, 1.0),
    ],
)
def test_posterior_means_are_those_of_numerical_integration(value, centre, variance, stddev):
    def density(log):
        """The product of two normal densities, but for a constant factor."""
        prior = (log - (centre - variance / 2)) ** 2 / variance
        return math.exp(-(prior + ((value - math.exp(log)) / stddev) ** 2) / 2)

    low, high = centre - 12, centre + 8
    mass = integrate.quad(density, low, high, limit=500)[0]
    mean = integrate.quad(lambda log: math.exp(log) * density(log), low, high, limit=500)[0]
    arguments = (np.array([value]), stddev, np.array([centre]), np.array([variance]))
    found = posterior_means(*arguments)
    assert found[0] == pytest.approx(mean / mass, rel=2e-3)


@pytest.mark.parametrize("seed", range(6))
def test_noise_alone_leaves_the_public_distribution(seed):
    """Also where noisy counts have a negative sum, which no total of counts would have."""
    rng = np.random.default_rng(seed)
    public = np.sort(rng.zipf(1.7, 3000).clip(1, 2000))[::-1].astype(np.int64)
    grams = rng.integers(0, 400, (3000, 3)).astype(np.int32)
    values = np.rint(rng.normal(size=3000) * 400).astype(np.int64)
    values -= int(values.mean()) + (15 if seed % 2 else -15)
    prior = discounted(public) / discounted(public).sum()
    found = probabilities(values, public, grams, 400.0)
    assert divergence(prior * 1e6, found) < 0.002


def test_the_order_of_the_grams_does_not_matter():
    grams, public, counts = made_up(4)
    values, order = noisy(counts, 50), np.random.default_rng(1).permutation(len(grams))
    found = probabilities(values, public, grams, 50)
    again = probabilities(values[order], public[order], grams[order], 50)
    np.testing.assert_allclose(again, found[order], rtol=1e-3)


def test_the_same_counts_give_the_same_bits():
    grams, public, counts = made_up(5)
    values = noisy(counts, 50)
    first, second = (probabilities(values, public, grams, 50) for _ in range(2))
    assert first.tobytes() == second.tobytes()


def test_public_counts_that_tell_nothing_do_little_harm():
    """Noise far above the public counts: the noisy private ones say not to believe them."""
    grams, public, counts = made_up(6)
    noise = np.random.default_rng(2).laplace(0, 3000, public.size)
    wrong = np.rint(np.maximum(public + noise, 0)).astype(np.int64)
    values = noisy(counts, 20)
    found = divergence(counts, probabilities(values, wrong, grams, 20))
    assert found < 0.25 * divergence(counts, discounted(wrong) / discounted(wrong).sum())
    assert found < divergence(counts, np.full(counts.size, 1 / counts.size))


@pytest.mark.parametrize("times", [10, 100, 1000])
def test_it_does_not_matter_how_much_larger_the_private_texts_are(times):
    grams, public, counts = made_up(7)
    scaled = np.rint(counts * times).astype(np.int64)
    same = divergence(counts, probabilities(noisy(counts, 60), public, grams, 60))
    values = noisy(scaled, 60 * times)
    found = divergence(scaled, probabilities(values, public, grams, 60 * times))
    assert found == pytest.approx(same, rel=0.15)
