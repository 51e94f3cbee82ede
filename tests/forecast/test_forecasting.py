"""Forecasts: simulations of many users, the users that an n-gram needs, and the error of a forecast."""

import collections
import itertools

import numpy as np
import pyarrow as pa
import pytest

from beam_dpne import PrivacyPlan
from beam_dpne.evaluation.corpus import read_corpus
from beam_dpne.forecast.crowd import Crowd, with_documents
from beam_dpne.forecast.forecasting import Forecaster
from beam_dpne.forecast.holders import held_grams, released_flags
from beam_dpne.forecast.simulation import RepeatedSteps, simulate
from beam_dpne.forecast.thresholds import users_needed
from beam_dpne.forecast.typical import _weights as weights_of
from beam_dpne.forecast.typical import needs_of_typical_users, probability, typical_needs
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.in_memory import release_lengths, release_ngrams
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import ReadOptions
from tests.conftest import ROOT

SAMPLE = ROOT / "pipelines" / "data" / "reddit_titles_sample.jsonl.gz"


def made_up_crowd(users=300, words=40, seed=1):
    """Users with a few documents of frequent and rare words."""
    rng = np.random.default_rng(seed)
    codes, sizes = [], []
    for _ in range(users):
        size = 0
        for _ in range(rng.integers(1, 4)):
            text = np.minimum(rng.geometric(0.1, rng.integers(1, 9)) - 1, words - 1)
            codes += [*text.tolist(), -1]
            size += len(text) + 1
        sizes.append(size)
    return Crowd(
        words=pa.array([f"w{place:02}" for place in range(words)]),
        offsets=np.append(0, np.cumsum(sizes)),
        codes=np.array(codes, np.int32),
    )


def documents_of(crowd):
    """The documents of each user as lists of tuples of codes."""
    users = []
    for first, last in itertools.pairwise(crowd.offsets):
        ends = np.flatnonzero(crowd.codes[first:last] < 0)
        parts = np.split(crowd.codes[first:last], ends + 1)[:-1]
        users.append([tuple(part[:-1].tolist()) for part in parts])
    return users


def holders_of(crowd, length):
    """Numbers of users by n-gram, in plain Python."""
    counts = collections.Counter()
    for documents in documents_of(crowd):
        counts.update(
            {text[at : at + length] for text in documents for at in range(len(text) - length + 1)}
        )
    return counts


@pytest.fixture(scope="module")
def sample():
    corpus = read_corpus(match_inputs([str(SAMPLE)]), ReadOptions(), "words")
    whole = Crowd(words=corpus.words, offsets=corpus.offsets, codes=corpus.codes)
    return whole.take(np.arange(4000))


@pytest.fixture(scope="module")
def small():
    return made_up_crowd()


# Simulations


@pytest.mark.parametrize(
    "settings", [{}, {"strategy": "one_round"}, {"pruning": "single"}, {"count_share": 0}]
)
def test_a_user_who_stands_for_three_releases_as_three_users_do(small, settings):
    plan = PrivacyPlan(epsilon=6, delta=1e-4, max_length=3, **settings)
    run_key = RunKey(np.random.default_rng(7).bytes(32))
    # Users with the same hash draw the same subsets, as the doubles of one user do.
    doubled = small.take(np.repeat(np.arange(len(small)), 3))
    truth = release_ngrams(doubled.batches(run_key), plan, run_key)
    once = simulate(small, plan, repeats=3, seed=7)
    assert [len(each) for each in once] == [len(each) for each in truth]
    assert min(len(each) for each in truth) > 0
    for ours, theirs in zip(once, truth, strict=True):
        assert ours.keys.tolist() == theirs.keys.tolist()
        assert ours.scores.tolist() == theirs.scores.tolist()
        assert (ours.users is None) == (plan.count_share == 0)
        if ours.users is not None:
            assert ours.users.tolist() == theirs.users.tolist()


def test_batches_hold_every_user_once(small, monkeypatch):
    monkeypatch.setattr("beam_dpne.forecast.crowd._POSITIONS_OF_A_BATCH", 500)
    plan = PrivacyPlan(epsilon=6, delta=1e-4, max_length=2)
    run_key = RunKey(np.random.default_rng(3).bytes(32))
    batches = small.batches(run_key)
    assert len(batches) > 3
    numbers = np.concatenate([batch.users[:, 0] for batch in batches])
    assert numbers.tolist() == list(range(len(small)))
    cut = release_ngrams(batches, plan, run_key)
    monkeypatch.undo()
    whole = release_ngrams(small.batches(run_key), plan, run_key)
    assert [each.scores.tolist() for each in cut] == [each.scores.tolist() for each in whole]


def test_made_up_users_get_every_document_once(small):
    dealt = with_documents(small, 5.0, np.random.default_rng(1))
    texts = sorted(itertools.chain.from_iterable(documents_of(dealt)))
    assert texts == sorted(itertools.chain.from_iterable(documents_of(small)))
    counts = [len(documents) for documents in documents_of(dealt)]
    assert min(counts) >= 1
    assert max(counts) > 20 * np.median(counts)


def test_made_up_users_have_the_mean_number_of_documents():
    crowd = Crowd(
        words=pa.array(["a"]),
        offsets=np.arange(0, 400_001, 2),
        codes=np.tile(np.array([0, -1], np.int32), 200_000),
    )
    for mean in (1.0, 2.5, 8.0):
        dealt = with_documents(crowd, mean, np.random.default_rng(1))
        assert 200_000 / len(dealt) == pytest.approx(mean, rel=0.1)


# Holders, and the users that an n-gram needs


def test_holders_are_counted_exactly(small):
    for length, grams in enumerate(held_grams(small, 4), 1):
        expected = sorted(n for n in holders_of(small, length).values() if n > 1)
        assert sorted(grams.holders.tolist()) == expected


@pytest.mark.parametrize("pruning", ["both", "single"])
def test_released_flags_mark_the_released_n_grams(small, pruning):
    plan = PrivacyPlan(epsilon=20, delta=1e-3, max_length=3, spurious_fraction=0.4, pruning=pruning)
    released = simulate(small, plan, repeats=1, seed=1)
    held = held_grams(small, 3)
    flags = released_flags(small, held, released)
    rows = [[(small.words.index(word).as_py(),) for word in released[0].words]]
    for grams in released[1:]:
        prefixes, seconds = grams.keys >> 32, grams.keys & 0xFFFFFFFF
        ends = rows[-1] if pruning == "both" else rows[0]
        rows.append([rows[-1][p] + (ends[s][-1],) for p, s in zip(prefixes, seconds, strict=True)])
    for length in (1, 2, 3):
        counts = holders_of(small, length)
        expected = sorted(counts[row] for row in rows[length - 1] if counts[row] > 1)
        found = held[length - 1].holders[flags[length - 1]]
        assert sorted(found.tolist()) == expected
    assert any(counts[row] == 0 for row in rows[2]), "no spurious n-gram was tried"


def test_users_needed_follow_a_known_probability():
    rng = np.random.default_rng(2)
    users = np.exp(rng.uniform(np.log(5), np.log(500), 40_000))
    chance = 1 / (1 + (users / 60) ** -4)
    needed = users_needed(np.rint(users), rng.random(users.size) < chance)
    assert needed.half == pytest.approx(60, rel=0.05)
    assert needed.nearly == pytest.approx(60 * 99**0.25, rel=0.15)


def test_users_needed_are_unknown_without_released_n_grams():
    assert users_needed(np.array([5.0, 6.0]), np.zeros(2, bool)) == (None, None)
    assert users_needed(np.zeros(0), np.zeros(0, bool)) == (None, None)


def test_users_needed_are_unknown_if_all_n_grams_are_released():
    assert users_needed(np.array([500.0, 600.0]), np.ones(2, bool)) == (None, None)


# Typical users


def alone(group, copies):
    """A crowd in which every user has words of no other user, and stands for many."""
    count = group * copies
    codes = np.arange(count, dtype=np.int32).reshape(copies, group)
    borders = np.full((copies, 1), -1, np.int32)
    return Crowd(
        words=pa.array([f"w{place:06}" for place in range(count)]),
        offsets=np.arange(0, copies * (group + 1) + 1, group + 1),
        codes=np.concatenate((codes, borders), axis=1).reshape(-1),
    )


@pytest.mark.parametrize(
    ("strategy", "group", "users"),
    [
        # Without other words that may be decided early, the numbers are exact.
        *(("adaptive", 1, users) for users in (8, 9, 10)),
        *(("one_round", 10, users) for users in (20, 25, 30)),
        *(("one_round", 200, users) for users in (120, 160)),  # above Δ = 100
    ],
)
def test_words_of_alike_users_are_released_with_the_computed_probability(strategy, group, users):
    plan = PrivacyPlan(epsilon=4, delta=1e-7, max_length=1, strategy=strategy, count_share=0)
    copies = 4500 // group
    # Every user has real doubles, so that each of them draws a subset of its own.
    crowd = alone(group, copies).take(np.repeat(np.arange(copies), users))
    run_key = RunKey(bytes(32))
    (words,) = release_ngrams(crowd.batches(run_key), plan, run_key)
    expected = probability(words.rule, weights_of(plan, group)[1], users)
    # A standard deviation is at most 0.0075.
    assert len(words) / (group * copies) == pytest.approx(expected, abs=0.04)
    assert 0.01 < expected < 0.99


@pytest.mark.parametrize("users", [15, 20])
def test_pairs_of_alike_users_need_at_most_the_computed_users(users):
    plan = PrivacyPlan(
        epsilon=4, delta=1e-7, max_length=2, vocabulary_policy="public", count_share=0
    )
    crowd = alone(11, 400)
    steps = RepeatedSteps(
        plan=plan,
        run_key=RunKey(bytes(32)),
        vocabulary=crowd.words.to_pylist(),
        repeats=np.full(len(crowd), float(users)),
    )
    _, pairs = release_lengths(steps, plan, crowd.batches(steps.run_key))
    expected = probability(pairs.rule, weights_of(plan, 10)[2], users)
    # Users some of whose pairs are decided early have more left for the others.
    assert expected - 0.04 <= len(pairs) / 4000 <= expected + 0.25
    assert 0.05 < expected < 0.95


def test_typical_needs_reach_their_probabilities():
    plan = PrivacyPlan(epsilon=2, delta=1e-7, max_length=1, strategy="one_round")
    rule = plan.strategy_value.rule(plan, 1, released=1, sizes={}, counted=0)
    for number in (10, 1000):
        (needed,) = typical_needs(plan, number)
        weights = weights_of(plan, number)[1]
        assert probability(rule, weights, needed.half) == pytest.approx(0.5, abs=1e-3)
        assert probability(rule, weights, needed.nearly) == pytest.approx(0.99, abs=1e-3)


def test_typical_needs_rise_with_n_grams_and_fall_with_budget():
    def needs(**settings):
        plan = PrivacyPlan(delta=1e-7, max_length=3, **settings)
        return [pair.half for each in needs_of_typical_users(plan) for pair in each.lengths]

    low, high = needs(epsilon=1), needs(epsilon=4)
    assert all(more > fewer for more, fewer in zip(low, high, strict=True))
    assert all(more > fewer for fewer, more in zip(low[:3], low[3:6], strict=True))
    assert all(more > fewer for fewer, more in zip(low[3:6], low[6:], strict=True))
    plan = PrivacyPlan(epsilon=2, delta=1e-7, max_length=2, vocabulary_policy="public")
    assert typical_needs(plan, 10)[0] == (None, None)


# Forecasts


@pytest.fixture(scope="module")
def truth(sample):
    """The numbers that a run over all users of the sample releases."""
    plan = PrivacyPlan(epsilon=8, delta=1e-7, max_length=3)
    return plan, Forecaster(sample, len(sample), seed=5).forecast(plan)


# A user who stands for twelve gives numbers of holders in steps of twelve, near those that are needed.
@pytest.mark.parametrize(
    ("part", "error", "error_of_needed"), [(1 / 3, 0.2, 0.35), (1 / 12, 0.5, 0.7)]
)
def test_a_part_of_the_users_forecasts_the_release_of_all(
    sample, truth, part, error, error_of_needed
):
    plan, whole = truth
    users = np.random.default_rng(3).permutation(len(sample))[: int(len(sample) * part)]
    forecaster = Forecaster(sample.take(users), len(sample))
    assert forecaster.is_continued == (part < 0.1)
    forecast = forecaster.forecast(plan)
    for length, real in zip(forecast.lengths, whole.lengths, strict=True):
        assert real.released >= 100
        assert length.released == pytest.approx(real.released, rel=error)
        assert length.needed.half == pytest.approx(real.needed.half, rel=error_of_needed)
        widths = {width.users: width for width in length.widths}
        for width in real.widths:
            if width.users in widths:
                assert widths[width.users].low == pytest.approx(width.low, rel=0.4)
                assert widths[width.users].high == pytest.approx(width.high, rel=0.4)
    assert whole.lengths[0].widths


def test_a_run_in_memory_releases_what_is_forecast_for_its_own_users(sample, truth):
    plan, whole = truth
    run_key = RunKey(bytes(range(32)))
    released = release_ngrams(sample.batches(run_key), plan, run_key)
    for grams, length in zip(released, whole.lengths, strict=True):
        assert length.released == pytest.approx(len(grams), rel=0.1)


def test_equal_seeds_give_equal_forecasts(small):
    plan = PrivacyPlan(epsilon=6, delta=1e-4, max_length=2)
    one, same, other = (Forecaster(small, 700, seed=seed).forecast(plan) for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_fewer_users_than_the_public_text_has_are_sampled(small):
    forecaster = Forecaster(small, 100)
    assert (len(forecaster.crowd), forecaster.repeats, forecaster.simulations) == (100, 1, 1)


def test_a_single_public_user_is_enough_for_a_forecast(small):
    plan = PrivacyPlan(epsilon=2, delta=1e-4, max_length=2)
    forecast = Forecaster(small.take(np.array([0])), 1).forecast(plan)
    assert [length.released for length in forecast.lengths] == [0, 0]
    assert Forecaster(small.take(np.array([0])), 1000).forecast(plan).lengths[0].released >= 0
