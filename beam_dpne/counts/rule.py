"""The public numbers by which users are counted: weights of rows, classes of users, noise, noisy sums.

All released n-grams of all lengths (or all released items) are *rows*, one after the other. Everything
here is a function of the released rows, their scores and the plan, so it reveals nothing more.

**Weights.** Row g has an integer weight a_g, about 1/√(predicted number of users); rows with about the
same prediction have one weight, and are a *level*. T_u = √(Σ a_g²) over the rows that user u holds is
the user's *size*: it says how much text the user has.

**Classes.** The bounds M_0, 2 M_0, …, M_{C−1} divide users by their size, and M_{C−1} bounds everybody.
A user between the bounds M and 2M, of size sM, belongs to both classes: with a part p to the upper one
and 1 − p to the lower one, where p = 1 − √((4/s² − 1)/3). For each row that the user holds, the user
sends κ a_g (1 − p)/M to the sum of the row and the lower class, κ a_g p/(2M) to that of the row and
the upper one, and both numbers together to the row's *mass*, which all classes share. The squares are
κ² a_g² (2 − 3p + 3p²/2)/M² = κ² a_g² · 2/(sM)², so those of all rows are 2κ², whatever s is. Parts add
up to 1, so the sums of a row's classes, each times M/(κ a_g), estimate the number of its users without
bias and without any model. Last, γ times the parts are sent to the numbers of users of both classes,
with squares of at most γ². All squares add up to at most 2κ² + γ² = 1. Users below M_0 belong to the
lowest class alone, and add less.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Annotated

import numpy as np

from beam_dpne.validation import Parameter

COUNT_SHARE = 0.15
# Of intervals.
CONFIDENCE = 0.95
CountShare = Annotated[
    float,
    Parameter(
        least=0,
        most=0.9,
        help="Part of the budget for user counts, from 1e-6; with 0.15 "
        "4 to 12 % fewer rows are released. 0 leaves the columns of users out.",
    ),
]
# Weights a_g are in 1..256, and rows of neighbouring levels differ by 2^¼ in their predictions.
MOST_WEIGHT = 256
LEVELS_OF_A_DOUBLING = 4
LEVEL_STEP = math.log(2) / LEVELS_OF_A_DOUBLING
# Of rows of lengths k = 1, 2, … with one score, the predicted numbers of users are in these
# proportions: less for long rows makes their estimates better and those of short rows worse
# (public titles).
LENGTH_PREDICTIONS = (1.0, 1 / 2, 1 / 3, 1 / 4)
# Smaller users than those of the lowest of so many classes have more noise than they need.
MOST_CLASSES = 11
# γ²: what the numbers of users of the classes get of a user's squared length.
SIZES_PART = 0.02
# One user's sums: for each row two classes and the mass, and two numbers of users.
SUMS_OF_A_ROW = 3
SUMS_OF_A_USER = 2
# Scores below count as this in weights.
LEAST_SCORE = 2.0**-10
# With much more noise the width of a cell would leave int64.
_MOST_STDDEV = 2.0**26
# Columns of all rows are computed in blocks of this size, which stay in the processor's cache with some
# hundred kinds of rows.
_ROWS_OF_A_BLOCK = 2**8


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class CountRule:
    """The weights of rows, and the classes of users.

    Attributes:
      sizes: number of rows of each length.
      levels: (n,) int64, the level of each row; 0 has the smallest predictions.
      least: the logarithm of the smallest prediction.
      row_weights: (n,) int64 in 1..256, a_g.
      bounds: (C,) float64, M_0, 2 M_0, …, M_{C−1}, by which users are divided into classes.
    """

    sizes: tuple[int, ...]
    levels: np.ndarray
    least: float
    row_weights: np.ndarray
    bounds: np.ndarray

    @functools.cached_property
    def offsets(self) -> np.ndarray:
        """The first row of each length, and the number of rows: (T + 1,) int64."""
        return np.concatenate(([0], np.cumsum(self.sizes, dtype=np.int64)))


def count_rule(
    scores: Sequence[np.ndarray], predictions: Sequence[float] = LENGTH_PREDICTIONS
) -> CountRule:
    """Returns the rule for released rows.

    Args:
      scores: for each length, (n_k,) float64, the scores of its released rows.
      predictions: number of users per unit of score, up to a common factor, at lengths 1, 2, …; the
        last one stands for all longer ones.

    Example:
      >>> rule = count_rule([np.array([16.0, 4.0, 1.0]), np.array([1.0])], [1.0])
      >>> rule.row_weights, rule.levels
      (array([ 64, 128, 256, 256]), array([16,  8,  0,  0]))
      >>> rule.bounds.round(1)
      array([ 97.3, 194.6, 389.3])
    """
    logs = [
        np.log(np.maximum(each, LEAST_SCORE) * predictions[min(k, len(predictions) - 1)])
        for k, each in enumerate(scores)
    ]
    places = np.concatenate([np.zeros(0), *logs])
    least = float(places.min(initial=math.inf)) if places.size else 0.0
    levels = np.floor((places - least) / LEVEL_STEP + 0.5).astype(np.int64)
    weights = MOST_WEIGHT * 2.0 ** (-levels / (2 * LEVELS_OF_A_DOUBLING))
    row_weights = np.maximum(1, np.rint(weights)).astype(np.int64)
    return CountRule(
        sizes=tuple(len(each) for each in scores),
        levels=levels,
        least=least,
        row_weights=row_weights,
        bounds=_class_bounds(row_weights),
    )


def _class_bounds(row_weights: np.ndarray) -> np.ndarray:
    """Returns M_0, 2 M_0, …, M_{C−1}: the last one is the size of a user who holds everything."""
    if not row_weights.size:
        return np.ones(1)
    bounds = [math.sqrt(int((row_weights * row_weights).sum()))]
    while len(bounds) < MOST_CLASSES and bounds[0] >= 2 * row_weights.min():
        bounds.insert(0, bounds[0] / 2)
    return np.array(bounds)


def noise_of_budget(mu: float) -> float:
    """Returns σ of each sum, for users' vectors of length 1, with 1/σ ≤ μ.

    Raises:
      ValueError: if the noise does not fit into integers.

    Example:
      >>> noise_of_budget(0.5)
      2.00000000000...
    """
    stddev = (1 + 1e-12) / mu
    if stddev > _MOST_STDDEV:
        raise ValueError(
            "`count_share` must be larger, or 0, with so small a budget: the noise on a number of "
            f"users would have a standard deviation of {stddev:.2g}."
        )
    return stddev


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class MeasuredCounts:
    """The noisy sums, in units of users.

    Attributes:
      numbers: (n, C) float64, of each row and class the parts in which its users belong to the class,
        added up, with noise.
      masses: (n,) float64, Σ of the numbers without noise, each divided by its bound M_c, with noise of
        its own.
      sizes: (C,) float64, the parts in which all users belong to each class, added up, with noise.
      unit: the standard deviation of the noise of a row's mass with a_g = 1; that of a number is M_c
        times as large, and that of a row is 1/a_g of it.
      size_stddev: the standard deviation of the noise of the sizes.
    """

    numbers: np.ndarray
    masses: np.ndarray
    sizes: np.ndarray
    unit: float
    size_stddev: float


def required_noise(noise: float | None) -> float:
    """Returns the noise of a measurement; raises ValueError if the plan has none."""
    if noise is None:
        raise ValueError("`count_share` must be above 0 to count users, got `count_share=0.0`.")
    return noise


def blocks(first: int, last: int, size: int = _ROWS_OF_A_BLOCK) -> Iterator[slice]:
    """Yields the rows from `first` up to `last` in blocks, in order, so that no step is large."""
    for start in range(first, last, size):
        yield slice(start, min(start + size, last))
