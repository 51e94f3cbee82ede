"""Forecasts: simulations of many users, the users that an n-gram needs, and the error of a forecast."""

import dataclasses

import numpy as np
import pytest

from beam_dpne import NgramsPlan
from beam_dpne.errors import UsageError
from beam_dpne.evaluation.corpus import corpus_of, index_corpus, read_corpus
from beam_dpne.forecast.forecasting import Forecaster, with_documents
from beam_dpne.forecast.needed_users import needs, simulate, typical_needs, users_needed
from beam_dpne.forecast.profiles import Profile, read_profile
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.in_memory import release_ngrams
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import ReadOptions
from pipelines.forecast_profile import numbers_of
from tests.conftest import ROOT

SAMPLE = ROOT / "pipelines" / "data" / "reddit_titles_sample.jsonl.gz"


def documents_of(crowd):
    """The documents of a crowd as a sorted list of their codes."""
    ends = np.flatnonzero(crowd.codes < 0) + 1
    return sorted(each.tobytes() for each in np.split(crowd.codes, ends))


@pytest.fixture(scope="module")
def sample():
    corpus = read_corpus(match_inputs([str(SAMPLE)]), ReadOptions(), "words")
    return corpus.of_users(np.arange(4000))


@pytest.fixture(scope="module")
def small():
    """300 users with a few documents of frequent and rare words."""
    rng = np.random.default_rng(1)
    sizes = (rng.integers(1, 9) for _ in range(600))
    texts = [[f"w{word:02}" for word in rng.geometric(0.1, size)] for size in sizes]
    return corpus_of([(f"user {place // 2}", text) for place, text in enumerate(texts)])


@pytest.mark.parametrize("settings", [{}, {"strategy": "one_round"}, {"count_share": 0}])
def test_a_user_who_stands_for_three_releases_as_three_users_do(small, settings):
    plan = NgramsPlan(epsilon=6, delta=1e-4, max_length=3, **settings)
    run_key = RunKey(np.random.default_rng(7).bytes(32))
    once = small.batch(run_key)
    # Users with the same hash draw the same subsets, as the doubles of one user do.
    doubled = small.of_users(np.repeat(np.arange(300), 3)).batch(run_key)
    doubled = dataclasses.replace(doubled, users=np.repeat(once.users, 3, axis=0))
    truth = release_ngrams([doubled], plan, run_key)
    ours = simulate(small, plan, repeats=3, seed=7)
    assert min(len(each) for each in truth) > 0
    for grams, theirs in zip(ours, truth, strict=True):
        assert grams.keys.tolist() == theirs.keys.tolist()
        assert grams.scores.tolist() == theirs.scores.tolist()
        assert plan.count_share == 0 or grams.users.tolist() == theirs.users.tolist()


def test_made_up_users_get_every_document_once(small):
    dealt = with_documents(small, 5.0, np.random.default_rng(1))
    assert documents_of(dealt) == documents_of(small)
    counts = np.bincount(dealt.user_of_position[dealt.codes < 0])
    assert counts.min() >= 1
    assert counts.max() > 20 * np.median(counts)


@pytest.mark.parametrize("mean", [1.0, 2.5, 8.0])
def test_made_up_users_have_the_mean_number_of_documents(mean):
    crowd = corpus_of([("anybody", ["a"])] * 100_000)
    dealt = with_documents(crowd, mean, np.random.default_rng(1))
    assert 100_000 / len(dealt.users) == pytest.approx(mean, rel=0.1)


def test_users_needed_follow_a_known_probability():
    rng = np.random.default_rng(2)
    users = np.exp(rng.uniform(np.log(5), np.log(500), 40_000))
    chance = 1 / (1 + (users / 60) ** -4)
    needed = users_needed(np.rint(users), rng.random(users.size) < chance)
    assert needed.half == pytest.approx(60, rel=0.05)
    assert needed.nearly == pytest.approx(60 * 99**0.25, rel=0.15)


@pytest.mark.parametrize("released", [[], [False, False], [True, True]])
def test_users_needed_are_unknown_unless_some_n_grams_are_released_and_others_are_not(released):
    assert users_needed(np.arange(5.0, 5.0 + len(released)), np.array(released)) == (None, None)


def test_needs_of_a_simulation_separate_its_released_n_grams_from_others():
    held = [(f"user {user}", [f"w{word}"]) for word in range(200) for user in range(word)]
    crowd = corpus_of(held)
    plan = NgramsPlan(epsilon=8, delta=1e-4, max_length=1)
    (words,) = simulate(crowd, plan, repeats=1, seed=1)
    (needed,) = needs(index_corpus(crowd, 1), [words], 1)
    numbers = np.sort([int(word[1:]) for word in words.words.to_pylist()])
    assert numbers[0] <= needed.half <= 200 - 0.5 * len(numbers)


@pytest.mark.parametrize(("strategy", "users"), [("adaptive", 9), ("one_round", 8)])
def test_words_of_alike_users_are_released_with_the_computed_probability(strategy, users):
    plan = NgramsPlan(epsilon=4, delta=1e-7, max_length=1, strategy=strategy, count_share=0)
    (needed,) = typical_needs(plan, 1)
    crowd = corpus_of(
        [(f"{word} {user}", [f"w{word}"]) for word in range(2000) for user in range(users)]
    )
    run_key = RunKey(bytes(32))
    (words,) = release_ngrams([crowd.batch(run_key)], plan, run_key)
    share = len(words) / 2000
    # The adaptive strategy also finds some words early, which the computation leaves out.
    assert (share > 0.5) == (users > needed.half)
    assert (share > 0.99) == (users > needed.nearly)


def test_typical_needs_rise_with_n_grams_and_fall_with_budget():
    def needed(epsilon, number):
        plan = NgramsPlan(epsilon=epsilon, delta=1e-7, max_length=3)
        return np.array([pair.half for pair in typical_needs(plan, number)])

    assert (needed(1, 10) > needed(4, 10)).all()
    assert (needed(1, 10) < needed(1, 100)).all()


@pytest.fixture(scope="module")
def truth(sample):
    """The forecast for as many users as the sample has, which is one run of them all."""
    plan = NgramsPlan(epsilon=8, delta=1e-7, max_length=3)
    return plan, Forecaster(sample, 4000, seed=5).forecast(plan)


# A user who stands for twelve gives numbers of holders in steps of twelve, near those that are needed.
@pytest.mark.parametrize(
    ("part", "error", "error_of_needed"), [(1 / 3, 0.2, 0.35), (1 / 12, 0.5, 1.0)]
)
def test_a_part_of_the_users_forecasts_the_release_of_all(
    sample, truth, part, error, error_of_needed
):
    plan, whole = truth
    users = np.random.default_rng(4).permutation(4000)[: int(4000 * part)]
    forecaster = Forecaster(sample.of_users(users), 4000)
    assert forecaster.is_continued == (part < 0.1)
    for length, real in zip(forecaster.forecast(plan), whole, strict=True):
        assert real.released >= 100
        assert length.released == pytest.approx(real.released, rel=error)
        assert length.needed.half == pytest.approx(real.needed.half, rel=error_of_needed)
        widths = {width.users: width for width in length.widths}
        for width in real.widths:
            if width.users in widths:
                assert widths[width.users] == pytest.approx(width, rel=0.4)
    assert whole[0].widths


def alike(number: int, text: str):
    """Users who all write the same."""
    return corpus_of([(f"user {place}", text.split()) for place in range(number)])


@pytest.mark.parametrize(
    "crowd",
    [
        alike(200, "green tea please"),
        alike(50, "green tea please and a cup of milk"),
        alike(3, "a b"),
        # Half of the text is everybody's, and the other half is each user's own.
        corpus_of([(f"user {n}", ["a", "b", f"own {n}", f"more {n}"]) for n in range(100)]),
        "small",
        "sample",
    ],
)
@pytest.mark.parametrize("strategy", ["adaptive", "one_round"])
def test_a_forecast_never_falls_with_the_number_of_users(crowd, strategy, request):
    if isinstance(crowd, str):
        whole = request.getfixturevalue(crowd)
        crowd = whole.of_users(np.arange(300))
    public = len(crowd.users)
    plan = NgramsPlan(epsilon=4, delta=1e-5, max_length=3, strategy=strategy, count_share=0)
    scales = (0.3, 0.6, 1, 1.01, 1.5, 2, 2.1, 3, 4, 7, 8, 8.1, 15, 100, 1e3, 1e5)
    numbers = sorted({max(1, round(scale * public)) for scale in scales})
    forecasts = [Forecaster(crowd, users).forecast(plan) for users in numbers]
    released = np.array([[each.released for each in lengths] for lengths in forecasts])
    assert (np.diff(released, axis=0) >= 0).all()
    assert released[-1, 0] > 1


def test_equal_seeds_give_equal_forecasts(small):
    plan = NgramsPlan(epsilon=6, delta=1e-4, max_length=2)
    one, same, other = (Forecaster(small, 700, seed=seed).forecast(plan) for seed in (1, 1, 2))
    assert one == same
    assert one != other


@pytest.mark.parametrize(("public", "users"), [(300, 100), (1, 1), (1, 1000)])
def test_fewer_users_are_sampled_and_one_is_enough(small, public, users):
    forecaster = Forecaster(small.of_users(np.arange(public)), users)
    assert len(forecaster.crowd.users) == min(public, users)
    plan = NgramsPlan(epsilon=2, delta=1e-4, max_length=2)
    assert all(length.released >= 0 for length in forecaster.forecast(plan))


def test_the_built_in_profile_forecasts_a_release_of_the_shipped_sample(sample):
    plan = NgramsPlan(epsilon=2, delta=1e-7)
    profile = read_profile("titles").forecast(plan, 4000)
    simulated = Forecaster(sample, 4000).forecast(plan)
    numbers = [numbers_of(each) for each in simulated]
    assert [len(each) for each in numbers] == [11] * 5
    # Nothing has 100,000 users among 4,000.
    assert [each[-2:] for each in numbers] == [[None, None]] * 5
    for ours, real in zip(profile[:3], simulated[:3], strict=True):
        assert ours.released == pytest.approx(real.released, rel=0.5)


def test_a_profile_interpolates_logarithms_and_needs_no_point_beyond_its_own():
    plan = NgramsPlan(epsilon=1, delta=1e-6, max_length=1)
    budget = 1 / plan.noise_stddev
    nothing = [None] * 9
    profile = Profile(
        text="",
        public_users=1,
        max_length=1,
        users=[100, 10_000],
        budgets=[budget / 4, budget * 4],
        table=[
            [[[10.0, 5.0, *nothing]], [[40.0, 5.0, *nothing]]],
            [[[1000.0, None, *nothing]], [[4000.0, 7.0, *nothing]]],
        ],
    )
    (middle,) = profile.forecast(plan, 1000)
    assert middle.released == pytest.approx(200)
    assert middle.needed.half is None
    assert profile.forecast(plan, 100)[0].needed.half == pytest.approx(5)


@pytest.mark.parametrize(
    ("settings", "users", "name"),
    [
        ({"strategy": "one_round"}, 9000, "strategy"),
        ({"max_length": 4}, 9000, "max_length"),
        ({}, 9, "users"),
        ({"epsilon": 0.1}, 9000, "epsilon"),
    ],
)
def test_a_profile_refuses_what_it_was_not_made_for(settings, users, name):
    plan = NgramsPlan(**{"epsilon": 1, "delta": 1e-7} | settings)
    with pytest.raises(UsageError, match=f"^`{name}.* --like FILE"):
        read_profile("titles").forecast(plan, users)
