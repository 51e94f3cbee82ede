"""The public numbers by which users are counted: weights and groups of rows, noise, and noisy sums.

All released n-grams of all lengths (or all released items) are *rows*, one after the other. Everything
here is a function of the released rows, their scores and the plan, so it reveals nothing more.

**Weights.** Row g has an integer weight a_g, about 1/√(predicted number of users). A user who holds the
rows H sends a_g·t to each of them, where t = 1/√(Σ_H a_g²): the user's vector has length 1 at most,
whatever the user holds, and no row is left out. The sum Σ_u t_u of a row is called its *mass*. It is
smaller than the number of users, since users who hold many rows have a small t.

**Groups.** Rows of one length with neighbouring ranks by score form a group; each of the first rows is
a group by itself. For each group G users also send the number c_G of its rows that they hold times d_G.
These sums are not normalised by user: a user belongs to the class j with the smallest bound
M_j ≥ √(Σ_G (c_G d_G)²), and sends c_G d_G / M_j to the class's column. M_J bounds everybody. So each
column is a sum of vectors of length 1 at most, and M_j/d_G times the column estimates the number of
pairs of a user of class j and a row of G that the user holds, without bias. These totals translate
masses into numbers of users (`estimates`).
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Annotated

import numpy as np

from beam_dpne.validation import Parameter

COUNT_SHARE = 0.15
CountShare = Annotated[
    float,
    Parameter(
        least=0,
        most=0.9,
        help="Part of the budget that measures how many users have each row, from 1e-6; with 0.15 "
        "4 to 12 % fewer rows are released. 0 leaves the columns of users out.",
    ),
]
# Weights a_g are in 1..256, so that a row that is predicted to be 2^16 times rarer differs.
MOST_WEIGHT = 256
MOST_GROUP_WEIGHT = 1024
# Rows of the first ranks are groups of one row; then groups end at ranks 40, 80, …
SINGLES, GROUP_RATIO = 20, 2
# Of rows of lengths k = 1, 2, … with one score, the predicted numbers of users are in these
# proportions: less for long rows makes their estimates better and those of short rows worse
# (public titles).
LENGTH_PREDICTIONS = (1.0, 1 / 2, 1 / 3, 1 / 4)
# The part of the budget for counts that the totals of groups get (public titles).
GROUP_SHARE = 0.2
# Groups times classes of one length, at most: 20 rows by themselves, a group for each power of 2 up to
# 2^31 rows, and a class for each power of 2 up to the bound that 2^31 rows of weight 1024 have.
MOST_TOTALS = (20 + 31) * 42
# Sums of integers are exact in floating point up to here.
EXACT = 2**53
# Scores below count as this in weights.
LEAST_SCORE = 2.0**-10
# The first class is bounded by this many rows of the group with the smallest weight.
FIRST_CLASS_ROWS = 4
# With more noise on the totals of groups, a cell of the least private class of users might leave int64.
_MOST_STDDEV = 2.0**26
# Columns of all rows are computed in blocks of this size, some MB each.
_ROWS_OF_A_BLOCK = 2**16


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class CountRule:
    """The weights of rows and groups.

    Attributes:
      sizes: number of rows of each length.
      row_weights: (n,) int64 in 1..256, a_g.
      groups: (n,) int64, the group of each row; groups are numbered by length, then by rank.
      group_weights: (g,) int64 in 1..1024, d_G.
      bounds: (J + 1,) int64, M_0 < M_1 < … < M_J, by which users are divided into classes.
    """

    sizes: tuple[int, ...]
    row_weights: np.ndarray
    groups: np.ndarray
    group_weights: np.ndarray
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
      >>> rule.row_weights, rule.groups
      (array([ 64, 128, 256, 256]), array([0, 1, 2, 3]))
      >>> rule.group_weights, rule.bounds
      (array([ 256,  512, 1024, 1024]), array([1024, 2048]))
    """
    expected = [
        np.maximum(each, LEAST_SCORE) * predictions[min(k, len(predictions) - 1)]
        for k, each in enumerate(scores)
    ]
    predicted = np.concatenate([np.zeros(0), *expected])
    del expected
    group, first, start = np.zeros(predicted.size, np.int64), 0, 0
    for each in scores:
        stop = start + len(each)
        first += _number_groups(predicted[start:stop], group[start:stop], first)
        start = stop
    group_weights = _weights(np.bincount(group, predicted, minlength=first), MOST_GROUP_WEIGHT)
    return CountRule(
        sizes=tuple(len(each) for each in scores),
        row_weights=_weights(predicted, MOST_WEIGHT),
        groups=group,
        group_weights=group_weights,
        bounds=_class_bounds(group_weights, np.bincount(group, minlength=first)),
    )


def _number_groups(expected: np.ndarray, groups: np.ndarray, first: int) -> int:
    """Numbers the groups of the rows of one length, from `first` for the largest predictions.

    Args:
      expected: (n,) float64, the predictions.
      groups: (n,) int64, written: the group of each row.
      first: the number of the first group.

    Returns:
      The number of groups.
    """
    order = np.argsort(-expected, kind="stable")
    ends = list(range(min(SINGLES, order.size) + 1))
    while ends[-1] < order.size:
        ends.append(ends[-1] * GROUP_RATIO)
    for number, (start, end) in enumerate(itertools.pairwise(ends), start=first):
        groups[order[start:end]] = number
    return len(ends) - 1


def _weights(predicted: np.ndarray, most: int) -> np.ndarray:
    """Returns integers in proportion to 1/√prediction, the largest of which is `most`: (n,) int64."""
    weights = np.zeros(predicted.size, np.int64)
    if not predicted.size:
        return weights
    least = predicted.min()
    for rows in blocks(0, predicted.size):
        weights[rows] = np.maximum(1, np.rint(most * np.sqrt(least / predicted[rows])))
    return weights


def _class_bounds(group_weights: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Returns M_0, 2 M_0, …, M_J: M_J is the least of them that no user can exceed."""
    if not group_weights.size:
        return np.ones(1, np.int64)
    most = sum((d * n) ** 2 for d, n in zip(group_weights.tolist(), sizes.tolist(), strict=True))
    bounds = [FIRST_CLASS_ROWS * int(group_weights.min())]
    # A margin for squared lengths that floating point rounds, see `measuring.sum_counts`.
    most += most >> 20 if most >= EXACT else 0
    while bounds[-1] ** 2 < most:
        bounds.append(2 * bounds[-1])
    return np.array(bounds, np.int64)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CountNoise:
    """The noise of counts, which together are μ-Gaussian-DP.

    Attributes:
      row_stddev: σ_A of each row's sum, for vectors of length 1.
      group_stddev: σ_B of each group's sum in each class.
    """

    row_stddev: float
    group_stddev: float

    @classmethod
    def of_budget(cls, mu: float) -> "CountNoise":
        """Returns the noise for 1/σ_A² + 1/σ_B² ≤ μ².

        Raises:
          ValueError: if the noise does not fit into integers.

        Example:
          >>> CountNoise.of_budget(1.0)
          CountNoise(row_stddev=1.11803398875..., group_stddev=2.2360679775...)
        """
        margin = 1 + 1e-12
        row_stddev = margin / (mu * math.sqrt(1 - GROUP_SHARE))
        group_stddev = margin / (mu * math.sqrt(GROUP_SHARE))
        if max(row_stddev, group_stddev) > _MOST_STDDEV:
            raise ValueError(
                "count_share must be larger, or 0, with so small a budget: the noise on a number of "
                f"users would have a standard deviation of {row_stddev:.2g}."
            )
        return cls(row_stddev=row_stddev, group_stddev=group_stddev)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class MeasuredCounts:
    """The noisy sums, in units that do not depend on weights.

    Attributes:
      masses: (n,) float64, Σ_u t_u of each row, with noise.
      mass_stddevs: (n,) float64, the standard deviation of that noise.
      totals: (g, J + 1) float64: number of pairs of a user of each class and a row of each group that
        the user holds, with noise.
      total_stddevs: (g, J + 1) float64, the standard deviation of that noise.
    """

    masses: np.ndarray
    mass_stddevs: np.ndarray
    totals: np.ndarray
    total_stddevs: np.ndarray


def required_noise(noise: CountNoise | None) -> CountNoise:
    """Returns the noise of a measurement; raises ValueError if the plan has none."""
    if noise is None:
        raise ValueError("count_share must be above 0 to count users, got count_share=0.0.")
    return noise


def blocks(first: int, last: int, size: int | None = None) -> Iterator[slice]:
    """Yields the rows from `first` up to `last` in blocks, in order, so that no step is large."""
    size = size or _ROWS_OF_A_BLOCK
    for start in range(first, last, size):
        yield slice(start, min(start + size, last))
