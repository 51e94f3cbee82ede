"""Attacks on the adaptive strategy: below the claimed ε, and above it once a mistake is planted.

Two attackers. One sees a release: which grams are found, in which rounds, with which scores; of half of
the runs it learns a statistic (logistic regression over numbers of grams by round and cell) and an
event for each direction, on the other half it is judged. The other sees the noisy vectors of all rounds, as
the privacy proof allows, and uses the exact likelihood ratio, which depends on the path of the run. Both know
everything else. Clopper–Pearson bounds as in `test_attack`: with probability 99.9 % ε is at least what
`epsilon_at_least` says, so had the seeds been random, each test of the right mechanism would fail
falsely at most once in 1,000.
"""

import dataclasses
import hashlib
import itertools

import numpy as np
import pytest
from scipy import special, stats

from beam_dpne import PrivacyPlan, RunKey, adaptive, randomness
from beam_dpne.mechanism import CELLS_PER_STDDEV
from tests.privacy.adaptive_worst_case import (
    RIGHT,
    Outcome,
    Variant,
    World,
    held_by_others,
    random_noise,
    simulate,
    world_of,
)
from tests.privacy.kernels import Settled, run_lengths, users_of
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
}
_CELL_BORDERS = np.array([4, 10, 20, 35, 60, 90, 130, 200])


def gram_plan(max_length: int, **parameters) -> PrivacyPlan:
    """The whole budget is for grams: their words are public."""
    given = {"vocabulary_policy": "public", "spurious_fraction": 0.5, "max_tokens_per_user": 1000}
    return PrivacyPlan(
        epsilon=EPSILON, delta=DELTA, max_length=max_length, **(given | parameters)
    )


def word_plan(**parameters) -> PrivacyPlan:
    return PrivacyPlan(
        epsilon=EPSILON, delta=DELTA, max_length=1, max_tokens_per_user=1000, **parameters
    )


# What others send, in each round, so that grams are still open in the last round and then found;
# near the threshold of the first round; near that of the last.
_LATE = (0.5, 0.5, 9.0)
_EARLY = (2.0, 0.0, 0.0)
_NEAR = (0.6, 0.6, 1.5)
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
    "300 words alone": lambda: world_of(word_plan(), 300),
    "1 word alone, 8 of others": lambda: world_of(word_plan(), 9, ((1.0, 9.0),), 8),
    "12 words alone, 12 near the threshold": lambda: world_of(
        word_plan(), 24, ((1.0, 3.5), (2.5, 3.5)), 12
    ),
}  # fmt: skip


def test_placeholder():
    pass


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
    """Numbers of grams by length, kind, round and cell, and sums of how far above ρ they are."""
    columns = []
    for length, outcome in zip(world.plan.private_lengths, outcomes, strict=True):
        rounds, common = world.plan.rounds_of(length), held_by_others(world, length)
        columns.append(outcome.valid.sum(axis=1))
        for kind in (common, ~common):
            if kind.any():
                columns += _by_round(outcome.found[:, kind], outcome.cells[:, kind], rounds)
    return np.column_stack(columns).astype(float)


def _by_round(found: np.ndarray, cells: np.ndarray, rounds: int) -> list[np.ndarray]:
    columns = [np.count_nonzero(found, axis=1)]
    above = (cells + 0.5) / CELLS_PER_STDDEV
    bins = np.searchsorted(_CELL_BORDERS, cells, side="right")
    for number in range(1, rounds + 1):
        inside = found == number
        columns.append(inside.sum(axis=1))
        columns += [(inside & (bins == own)).sum(axis=1) for own in range(_CELL_BORDERS.size)]
        columns += [(inside * above).sum(axis=1), (inside * above**2).sum(axis=1)]
    return columns


def statistics(with_user: np.ndarray, without: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the attacker looks at: a learned ratio, and every feature, upwards and downwards."""
    half = len(with_user) // 2
    train = np.concatenate((with_user[:half], without[:half]))
    is_with = np.repeat((1.0, 0.0), half)
    centre, scale = train.mean(axis=0), train.std(axis=0) + 1e-9
    weights = _logistic_regression((train - centre) / scale, is_with)
    ratios = [(x - centre) / scale @ weights for x in (with_user, without)]
    return tuple(
        np.column_stack((ratio, x, -x)) for ratio, x in zip(ratios, (with_user, without), strict=True)
    )


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
