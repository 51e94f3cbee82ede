"""Attacks on the adaptive strategy: below the claimed ε, and above it once a mistake is planted.

Two attackers. One sees a release: which grams are found, in which rounds, with which scores. From half
of the runs it learns a statistic (logistic regression over numbers of grams by round and cell) and an
event for each direction; on the other half it is judged. The other sees the noisy vectors of all
rounds, as the privacy proof allows, and uses the exact likelihood ratio, which depends on the path of
the run. Both know everything else. Clopper–Pearson bounds as in `test_attack`: with probability 99.9 %
ε is at least what `epsilon_at_least` says, so had the seeds been random, each test of the right
mechanism would fail falsely at most once in 1,000.
"""

import dataclasses
import hashlib

import numpy as np
import pyarrow as pa
import pytest
from scipy import special, stats

from beam_dpne import PrivacyPlan, RunKey, adaptive, randomness
from beam_dpne.batches import pack_pairs
from beam_dpne.mechanism import CELLS_PER_STDDEV
from tests.privacy.adaptive_worst_case import (
    RIGHT,
    Noise,
    Outcome,
    Variant,
    World,
    held_by_others,
    random_noise,
    simulate,
    world_of,
)
from tests.privacy.kernels import run_lengths, users_of
from tests.privacy.test_attack import DELTA, EPSILON, epsilon_at_least

RUNS = 20_000
ALL_RUNS = 100_000
FALSE_FAILURE = 1e-6
MISTAKES = {
    "the same noise in every round": Variant(same_noise=True),
    "closed grams looked at again": Variant(looks_again=True),
    "a Gaussian tail for later rounds": Variant(gaussian_tail=True),
    "half the noise": Variant(noise_factor=0.5),
    "a budget that does not fall": Variant(unbounded=True),
    "the threshold for one word": Variant(one_word=True),
}
FOUND = 0
_CELL_BORDERS = np.array([4, 10, 20, 35, 60, 90, 130, 200])


def gram_plan(max_length: int, **parameters) -> PrivacyPlan:
    """The whole budget is for grams: their words are public."""
    given = {
        "epsilon": EPSILON,
        "delta": DELTA,
        "vocabulary_policy": "public",
        "spurious_fraction": 0.5,
        "max_tokens_per_user": 1000,
    }
    return PrivacyPlan(max_length=max_length, **(given | parameters))


def word_plan(**parameters) -> PrivacyPlan:
    return PrivacyPlan(
        epsilon=EPSILON, delta=DELTA, max_length=1, max_tokens_per_user=1000, **parameters
    )


# What others send in each round: so that grams are open until the last round and then found; so that
# they are near the threshold of the first round; near that of the last.
_LATE = (0.5, 0.5, 9.0)
_EARLY = (2.0, 0.0, 0.0)
_NEAR = (0.6, 0.6, 1.5)
WORD_AMONG_OTHERS = "1 word alone, 8 of others"
WORLDS = {
    "4 bigrams": lambda: world_of(gram_plan(2), 2),
    "9 bigrams": lambda: world_of(gram_plan(2), 3),
    "16 bigrams": lambda: world_of(gram_plan(2), 4),
    "36 bigrams": lambda: world_of(gram_plan(2), 6),
    "9 bigrams, even": lambda: world_of(gram_plan(2, user_budgets="even"), 3),
    "9 bigrams, 2 rounds": lambda: world_of(gram_plan(2, rounds=2), 3),
    "9 bigrams, few spurious": lambda: world_of(gram_plan(2, spurious_fraction=0.05), 3),
    "9 bigrams, settled late": lambda: world_of(gram_plan(2), 3, (_LATE,), 9),
    "9 bigrams, near thresholds": lambda: world_of(gram_plan(2), 3, (_EARLY, _NEAR), 6),
    "4 bigrams, 8 trigrams": lambda: world_of(gram_plan(3), 2),
    "9 bigrams, 27 trigrams": lambda: world_of(gram_plan(3), 3),
    "16 bigrams, 64 trigrams": lambda: world_of(gram_plan(3), 4),
    "4 bigrams, 8 trigrams, even": lambda: world_of(gram_plan(3, user_budgets="even"), 2),
    "1 word alone": lambda: world_of(word_plan(), 1),
    WORD_AMONG_OTHERS: lambda: world_of(word_plan(), 9, ((1.0, 9.0),), 8),
    "8 words alone, 8 near the threshold": lambda: world_of(word_plan(), 16, ((1.0, 3.5),), 8),
    "100 words alone": lambda: world_of(word_plan(), 100),
}  # fmt: skip


FEW_WORLDS = ["4 bigrams", "9 bigrams, settled late", "4 bigrams, 8 trigrams", WORD_AMONG_OTHERS]
CAUGHT = [
    ("4 bigrams", "the same noise in every round"),
    ("4 bigrams", "closed grams looked at again"),
    ("4 bigrams", "a Gaussian tail for later rounds"),
    ("4 bigrams", "half the noise"),
    (WORD_AMONG_OTHERS, "half the noise"),
]


MANY_CAUGHT = [
    ("100 words alone", "the threshold for one word"),
    ("4 bigrams, 8 trigrams", "the same noise in every round"),
    ("4 bigrams, 8 trigrams", "closed grams looked at again"),
    ("4 bigrams, 8 trigrams", "a Gaussian tail for later rounds"),
    ("4 bigrams, 8 trigrams", "half the noise"),
    ("4 bigrams, 8 trigrams", "a budget that does not fall"),
    ("36 bigrams", "the same noise in every round"),
    ("36 bigrams", "closed grams looked at again"),
    ("36 bigrams", "a Gaussian tail for later rounds"),
]


@pytest.mark.parametrize("world", FEW_WORLDS)
def test_releases_show_less_than_epsilon(world):
    assert 0.3 < attack(WORLDS[world](), RIGHT, RUNS) < EPSILON


@pytest.mark.parametrize(("world", "mistake"), CAUGHT)
def test_releases_show_each_planted_mistake(world, mistake):
    assert attack(WORLDS[world](), MISTAKES[mistake], RUNS) > 1.1 * EPSILON


@pytest.mark.parametrize("world", ["4 bigrams", "4 bigrams, 8 trigrams", WORD_AMONG_OTHERS])
def test_noisy_vectors_of_all_rounds_show_less_than_epsilon(world):
    assert 0.5 < attack_vectors(WORLDS[world](), RIGHT, RUNS) < EPSILON


@pytest.mark.parametrize("mistake", ["half the noise", "a budget that does not fall"])
def test_noisy_vectors_of_all_rounds_show_each_planted_mistake(mistake):
    world = WORLDS["4 bigrams, 8 trigrams"]()
    assert attack_vectors(world, MISTAKES[mistake], RUNS) > 1.1 * EPSILON


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_releases_and_vectors_of_many_runs_show_less_than_epsilon(world):
    """At 100,000 runs in each world; words of one user alone are released with less than δ."""
    least = 0.0 if world in ("1 word alone", "100 words alone") else 0.3
    assert least <= attack(WORLDS[world](), RIGHT, ALL_RUNS, seed=2) < EPSILON
    assert 0.6 < attack_vectors(WORLDS[world](), RIGHT, ALL_RUNS, seed=3) < EPSILON


@pytest.mark.slow
@pytest.mark.parametrize(("world", "mistake"), [*CAUGHT, *MANY_CAUGHT])
def test_releases_of_many_runs_show_each_planted_mistake(world, mistake):
    """At 100,000 runs in each world."""
    assert attack(WORLDS[world](), MISTAKES[mistake], ALL_RUNS, seed=4) > 1.1 * EPSILON


@pytest.mark.parametrize("present", [False, True])
@pytest.mark.parametrize("world", ["9 bigrams", "4 bigrams, 8 trigrams", WORD_AMONG_OTHERS])
def test_the_privacy_loss_is_that_of_one_gaussian_mechanism(world, present):
    """Padded to μ², the log-likelihood ratio of all rounds is N(±μ²/2, μ²) exactly.

    What is sent depends on the noise of earlier rounds; that does not change the law.
    """
    given = WORLDS[world]()
    rng = np.random.default_rng(7)
    outcomes = run(given, present, RIGHT, RUNS, seed=5, drawn=False)
    whole = given.plan.allotment / adaptive.BUDGET_UNITS
    rest = outcomes[-1].left / adaptive.BUDGET_UNITS
    assert (rest >= 0).all()
    sign = 1 if present else -1
    padding = np.sqrt(rest) * rng.standard_normal(RUNS) + sign * rest / 2
    law = stats.norm(sign * whole / 2, np.sqrt(whole))
    assert stats.kstest(log_ratios(outcomes) + padding, law.cdf).pvalue > FALSE_FAILURE


@pytest.mark.parametrize(("words", "max_length"), [(3, 2), (2, 3), (3, 3)])
@pytest.mark.parametrize("user_budgets", ["individual", "even"])
def test_simulated_grams_are_those_of_the_kernels(words, max_length, user_budgets):
    """With the same noise: the same grams, scores and budgets, whatever the path."""
    plan = gram_plan(max_length, user_budgets=user_budgets, epsilon=4.0)
    world = world_of(plan, words)
    keys = [RunKey(hashlib.sha256(f"worst case {n}".encode()).digest()) for n in range(40)]
    outcomes = simulate(
        world,
        present=True,
        runs=len(keys),
        noise=keyed_noise(keys, words),
        rng=np.random.default_rng(0),
        variant=RIGHT,
    )
    vocabulary = [f"w{number}" for number in range(words)]
    text = " ".join(vocabulary[word] for word in world.text)
    rounds_seen = set()
    for number, key in enumerate(keys):
        settled = run_lengths(users_of({"u": [text]}, key), plan, key, vocabulary)
        for outcome, own in zip(outcomes, settled[1:], strict=True):
            found = outcome.found[number] > 0
            rounds_seen.update(outcome.found[number].tolist())
            assert own.released.scores.tolist() == outcome.scores[number][found].tolist()
            if own.users is not None:
                assert own.users.left.tolist() == [outcome.left[number]]
    assert rounds_seen == {0, 1, 2, 3}


def test_simulated_words_are_those_of_the_kernels():
    plan = dataclasses.replace(
        word_plan(),
        epsilon=40.0,
        delta=0.5,
        vocabulary_delta_share=0.9,
        max_tokens_per_user=1000,
    )
    world = world_of(plan, 5)
    keys = [RunKey(hashlib.sha256(f"words {n}".encode()).digest()) for n in range(250)]
    words = [f"w{number}" for number in range(5)]
    outcomes = simulate(
        world,
        present=True,
        runs=len(keys),
        noise=keyed_word_noise(keys, words),
        rng=np.random.default_rng(0),
        variant=RIGHT,
    )
    rounds_seen = set()
    for number, key in enumerate(keys):
        (own,) = run_lengths(users_of({"u": [" ".join(words)]}, key), plan, key)
        found = outcomes[0].found[number]
        rounds_seen.update(found.tolist())
        assert own.released.words.to_pylist() == [words[place] for place in np.flatnonzero(found)]
        assert own.released.scores.tolist() == outcomes[0].scores[number][found > 0].tolist()
        if own.users is not None:
            assert own.users.left.tolist() == [outcomes[0].left[number]]
    assert rounds_seen == {0, 1, 2}


def keyed_noise(keys: list[RunKey], words: int) -> Noise:
    """The noise of the kernels: by the rows of a gram's prefix and suffix in S_{k−1}."""

    def noise(length, number, runs, previous, grams):
        places = np.arange(grams)
        rows = np.cumsum(previous, axis=1) - 1
        prefixes, suffixes = places // words, places % words ** (length - 1)
        blocks = [
            randomness.keyed_bits(
                keys[run].sub_key("noise", length, number),
                0,
                pack_pairs(own[prefixes], own[suffixes]),
            )
            for run, own in zip(runs.tolist(), rows, strict=True)
        ]
        return np.array([randomness.normals(block) for block in blocks])

    return noise


def keyed_word_noise(keys: list[RunKey], words: list[str]) -> Noise:
    def noise(length, number, runs, previous, grams):
        del previous, grams
        blocks = [
            randomness.encrypt_blocks(
                keys[run].sub_key("noise", length, number),
                randomness.keyed_hashes(keys[run].sub_key("word"), pa.array(words)),
            )
            for run in runs.tolist()
        ]
        return np.array([randomness.normals(block) for block in blocks])

    return noise


def attack(world: World, variant: Variant, runs: int, seed: int = 1) -> float:
    """The lower bound on ε that an attacker finds who sees releases."""
    with_user, without = (
        features(world, run(world, present, variant, runs, seed)) for present in (True, False)
    )
    return epsilon_at_least(*statistics(with_user, without))


def attack_vectors(world: World, variant: Variant, runs: int, seed: int = 1) -> float:
    """The lower bound on ε that an attacker finds who sees the noisy vectors of all rounds."""
    with_user, without = (
        log_ratios(run(world, present, variant, runs, seed, drawn=False))
        for present in (True, False)
    )
    return epsilon_at_least(with_user[:, np.newaxis], without[:, np.newaxis])


def run(
    world: World, present: bool, variant: Variant, runs: int, seed: int, *, drawn: bool = True
) -> list[Outcome]:
    rng = np.random.default_rng((seed, present))
    return simulate(
        world, present=present, runs=runs, noise=random_noise(rng), rng=rng, variant=variant,
        drawn=drawn,
    )  # fmt: skip


def log_ratios(outcomes: list[Outcome]) -> np.ndarray:
    return np.sum([outcome.log_ratio for outcome in outcomes], axis=0)


def features(world: World, outcomes: list[Outcome]) -> np.ndarray:
    """Numbers of grams by length, kind, round and cell, and sums of how far above ρ they are.

    Column `FOUND` is the number of grams that are found at the first length.
    """
    columns, released = [], world.words
    for length, outcome in zip(world.plan.private_lengths, outcomes, strict=True):
        rounds, common = world.plan.rounds_of(length), held_by_others(world, length)
        valid = outcome.valid.sum(axis=1)
        may_be_spurious = np.minimum(valid, released)
        released = np.count_nonzero(outcome.found, axis=1)
        columns += [released, valid, may_be_spurious]
        for kind in (common, ~common):
            if kind.any():
                columns += _by_round(outcome.found[:, kind], outcome.cells[:, kind], rounds)
    return np.column_stack(columns).astype(float)


def _by_round(found: np.ndarray, cells: np.ndarray, rounds: int) -> list[np.ndarray]:
    columns = []
    above = (cells + 0.5) / CELLS_PER_STDDEV
    bins = np.searchsorted(_CELL_BORDERS, cells, side="right")
    for number in range(1, rounds + 1):
        inside = found == number
        columns.append(inside.sum(axis=1))
        columns += [(inside & (bins == own)).sum(axis=1) for own in range(_CELL_BORDERS.size)]
        columns += [(inside * above).sum(axis=1), (inside * above**2).sum(axis=1)]
    return columns


def statistics(with_user: np.ndarray, without: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the attacker looks at: a learned ratio, and the number of grams that are found."""
    half = len(with_user) // 2
    train = np.concatenate((with_user[:half], without[:half]))
    centre, scale = train.mean(axis=0), train.std(axis=0) + 1e-9
    weights = _logistic_regression((train - centre) / scale, np.repeat((1.0, 0.0), half))
    seen_with, seen_without = (
        np.column_stack(((seen - centre) / scale @ weights, seen[:, FOUND]))
        for seen in (with_user, without)
    )
    return seen_with, seen_without


def _logistic_regression(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Newton's method with a small ridge."""
    weights = np.zeros(features.shape[1])
    ridge = 1e-3 * len(labels) * np.eye(weights.size)
    for _ in range(8):
        chances = special.expit(features @ weights)
        gradient = features.T @ (chances - labels) + ridge @ weights
        curvature = (features * (chances * (1 - chances))[:, np.newaxis]).T @ features + ridge
        weights -= np.linalg.solve(curvature, gradient)
    return weights
