"""The statistics that an attacker computes from releases of n-grams, and learns from half of them."""

from collections.abc import Sequence

import numpy as np
from scipy import special

from beam_dpne.audit.copied_runs import Outcome
from beam_dpne.audit.copies import NO_CLASS, World
from beam_dpne.mechanism.rules import CELLS_PER_STDDEV

# The column of `features` with the number of n-grams that are released at the first length.
FOUND = 0
_CELL_BORDERS = np.array([4, 10, 20, 35, 60, 90, 130, 200])
# Half octaves below the best class.
_CLASS_BORDERS = np.array([1, 3, 6])
_RIDGE = 1e-3
_STEPS = 8


def features(world: World, outcomes: Sequence[Outcome]) -> np.ndarray:
    """Returns numbers of n-grams by length, kind, round and cell, and sums of how far above ρ they are.

    The kinds are n-grams that others have too, and those that the user alone has. Of the latter there
    are also numbers by how far their class is below the best one. There are counts of held candidates.

    Returns:
      (runs, features) float64; column `FOUND` is the number of n-grams released at the first length.
    """
    columns, released = [], world.words
    for length, outcome in zip(world.lengths, outcomes, strict=True):
        rounds, common = world.plan.rounds_of(length), world.held_by_others(length)
        valid = outcome.valid.sum(axis=1)
        may_be_spurious = np.minimum(valid, released)
        released = np.count_nonzero(outcome.found, axis=1)
        columns += [released, valid, may_be_spurious, *outcome.counts.T]
        if not common.all():
            columns += _by_class(outcome, ~common)
        for kind in (common, ~common):
            if kind.any():
                columns += _by_round(outcome.found[:, kind], outcome.cells[:, kind], rounds)
    return np.column_stack(columns).astype(float)


def _by_class(outcome: Outcome, alone: np.ndarray) -> list[np.ndarray]:
    best = np.where(outcome.valid, outcome.classes, -NO_CLASS).max(axis=1, keepdims=True)
    bins = np.searchsorted(_CLASS_BORDERS, (best - outcome.classes)[:, alone], side="right")
    valid, found = outcome.valid[:, alone], outcome.found[:, alone] > 0
    columns = []
    for number in range(_CLASS_BORDERS.size + 1):
        inside = valid & (bins == number)
        columns += [inside.sum(axis=1), (inside & found).sum(axis=1)]
    return columns


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


def own_grams(world: World, outcomes: Sequence[Outcome]) -> np.ndarray:
    """Returns the number of released n-grams that the user alone has: (runs,) float64."""
    count = np.zeros(len(outcomes[0].found))
    for length, outcome in zip(world.lengths, outcomes, strict=True):
        count += np.count_nonzero(outcome.found[:, ~world.held_by_others(length)], axis=1)
    return count


def scores_by_round(world: World, outcomes: Sequence[Outcome]) -> np.ndarray:
    """Returns scores above their thresholds, in standard deviations of the noise.

    Returns:
      (runs, n-grams of all lengths and their rounds) float64; NaN where an n-gram is not found in the
      round.
    """
    columns = []
    for length, outcome in zip(world.lengths, outcomes, strict=True):
        above = (outcome.cells + 0.5) / CELLS_PER_STDDEV
        rounds = range(1, world.plan.rounds_of(length) + 1)
        columns += [np.where(outcome.found == number, above, np.nan) for number in rounds]
    return np.concatenate(columns, axis=1)


def centred(with_user: np.ndarray, without: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Subtracts from each score its median over the first half of all runs.

    Args:
      with_user: (runs, scores) float64, NaN for those that are not there.
      without: (runs, scores) float64.

    Returns:
      (runs, 2 · scores) float64 for both worlds: scores, 0 for those that are not there, and whether
      they are there. Scores that are nowhere are left out.
    """
    half = len(with_user) // 2
    train = np.concatenate((with_user[:half], without[:half]))
    columns = np.flatnonzero(~np.isnan(train).all(axis=0))
    middle = np.nanmedian(train[:, columns], axis=0)
    both = []
    for each in (with_user, without):
        present = ~np.isnan(each[:, columns])
        scores = np.where(present, each[:, columns] - middle, 0.0)
        both.append(np.concatenate((scores, present), axis=1))
    return both[0], both[1]


def learned(with_user: np.ndarray, without: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Learns the logarithm of the likelihood ratio from the first half of the runs.

    Args:
      with_user: (runs, features) float64.
      without: (runs, features) float64.

    Returns:
      (runs,) float64 for both worlds, up to a constant.
    """
    half = len(with_user) // 2
    train = np.concatenate((with_user[:half], without[:half]))
    centre, scale = train.mean(axis=0), train.std(axis=0) + 1e-9
    weights = _logistic_regression((train - centre) / scale, np.repeat((1.0, 0.0), half))
    seen = [(each - centre) / scale @ weights for each in (with_user, without)]
    return seen[0], seen[1]


def _logistic_regression(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Newton's method with a small ridge."""
    weights = np.zeros(values.shape[1])
    ridge = _RIDGE * len(labels) * np.eye(weights.size)
    for _ in range(_STEPS):
        chances = special.expit(values @ weights)
        gradient = values.T @ (chances - labels) + ridge @ weights
        curvature = (values * (chances * (1 - chances))[:, np.newaxis]).T @ values + ridge
        weights -= np.linalg.solve(curvature, gradient)
    return weights
