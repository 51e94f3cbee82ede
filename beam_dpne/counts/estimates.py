"""Estimated numbers of users and their intervals, from the noisy sums: public numbers in and out.

For each length, a curve says how many users of each class to expect by a row's score (`curves`), and
the law of the deviations from it is learned from the noisy sums themselves (`kinds`: empirical Bayes by
a mixture of normal laws). Each row's number of users then has a law given the row's own sums, and its
mean, spread and skewness in logarithms give the estimate and the interval.

Estimates of rows with few users are shrunk towards rows with similar scores, so they are not unbiased
for a single row. With a larger budget the noise falls, and they tend to the numbers themselves.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterator

import numpy as np
from threadpoolctl import threadpool_limits

from beam_dpne.counts.curves import Means, Sizes, bins_of, expected_sizes, fit_curve
from beam_dpne.counts.kinds import FIRST_ROWS, Kinds, Sums, kinds_before, learned_parts
from beam_dpne.counts.rule import LEVEL_STEP, CountRule, MeasuredCounts, blocks

CONFIDENCE = 0.95
# Ends of intervals are integers that every format can hold.
MOST_USERS = 2.0**53
# Half of an interval in standard deviations. The law is right for 1.96 if its parameters were known;
# they are learned from few rows.
_REACH = 2.3
# Cornish-Fisher: a skewness moves both ends by (1.96² − 1)/6 of itself, the median by a sixth.
_SKEW_OF_ENDS, _SKEW_OF_MEDIAN, _MOST_SKEW = 0.474, 1 / 6, 1.5
# If nobody holds a row with a larger probability, the interval begins at 0.
_MOST_NOBODY = 0.025
# Rows of a length from which profiles and spreads are learned, and of those how many of one level; and
# rows from which the parts of kinds are.
_ROWS_OF_PROFILES, _LEVELS_OF_PROFILES, _ROWS_OF_PARTS = 400, 16, 2000
# Turns of learning; few rows teach little.
_TURNS, _TURNS_OF_FEW = 8, 4


def estimate_users(measured: MeasuredCounts, rule: CountRule) -> np.ndarray:
    """Returns the estimated number of users of each row, and the ends of its interval: (n, 3) int64.

    Args:
      measured: the noisy sums.
      rule: the rule by which they were measured.
    """
    estimates = np.zeros((measured.masses.size, 3), np.int64)
    # Products of small matrices, for which threads of the library would cost more than they save.
    with threadpool_limits(limits=1, user_api="blas"):
        _estimate(estimates, measured, rule)
    return estimates


def _estimate(estimates: np.ndarray, measured: MeasuredCounts, rule: CountRule) -> None:
    """Writes the estimates of all rows."""
    sizes = expected_sizes(measured.sizes, measured.size_stddev)
    parts: np.ndarray | None = None
    for first, last in itertools.pairwise(rule.offsets.tolist()):
        if first == last:
            continue
        length = _Length(measured, rule, first, last)
        kinds = length.kinds(sizes, parts)
        parts = kinds.parts
        for rows, sums in length.sums(np.arange(first, last)):
            are_first = np.isin(rows, length.order[:FIRST_ROWS])
            estimates[rows] = _estimates(kinds, sums, are_first)


@dataclasses.dataclass(frozen=True, eq=False)
class _Length:
    """The rows of one length, from `first` up to `last`."""

    measured: MeasuredCounts
    rule: CountRule
    first: int
    last: int

    @functools.cached_property
    def order(self) -> np.ndarray:
        """The rows, those of the highest levels first."""
        return self.first + np.argsort(-self.rule.levels[self.first : self.last], kind="stable")

    def sums(self, rows: np.ndarray) -> Iterator[tuple[np.ndarray, Sums]]:
        """Yields some rows of one level each, and their sums."""
        levels = self.rule.levels[rows]
        rows = rows[np.argsort(levels, kind="stable")]
        found, counts = np.unique(levels, return_counts=True)
        ends = np.cumsum(counts)
        for level, end, count in zip(found.tolist(), ends.tolist(), counts.tolist(), strict=True):
            for block in blocks(end - count, end):
                chosen = rows[block]
                unit = (self.measured.unit / int(self.rule.row_weights[chosen[0]])) ** 2
                yield (
                    chosen,
                    Sums(
                        place=self.rule.least + level * LEVEL_STEP,
                        numbers=self.measured.numbers[chosen],
                        masses=self.measured.masses[chosen],
                        variances=unit * self.rule.bounds**2,
                        mass_variance=unit,
                    ),
                )

    def kinds(self, sizes: Sizes, parts_before: np.ndarray | None) -> Kinds:
        """Returns the kinds of the rows, learned from some of them.

        Args:
          sizes: numbers of users of the classes.
          parts_before: the parts of kinds at the length before; about the same are expected here.
        """
        order, bounds = self.order, self.rule.bounds
        curve = fit_curve(self._means(bins_of(order)), sizes.users, bounds)
        kinds = kinds_before(curve, sizes, bounds)
        expected, first_expected = kinds.parts, kinds.first_parts
        if parts_before is not None:
            expected = (expected + parts_before) / 2
        kinds = dataclasses.replace(kinds, parts=expected)
        some = [sums for _, sums in self.sums(self._some(order))]
        turns = _TURNS if order.size > _ROWS_OF_PROFILES else _TURNS_OF_FEW
        kinds = kinds.learned(some, sizes, expected, turns)
        first, others = order[:FIRST_ROWS], _spread_out(order, _ROWS_OF_PARTS)
        chosen = list(self.sums(np.union1d(first, others)))
        likelihoods = np.concatenate([kinds.answers([each])[0].likelihoods for _, each in chosen])
        is_first = np.isin(np.concatenate([rows for rows, _ in chosen]), first)
        parts = learned_parts(likelihoods, kinds.parts, expected)
        first_parts = learned_parts(likelihoods[is_first], first_expected, first_expected)
        return dataclasses.replace(kinds, parts=parts, first_parts=first_parts)

    def _some(self, order: np.ndarray) -> np.ndarray:
        """Returns the rows from which profiles and spreads are learned: of few levels, spread out."""
        if order.size <= _ROWS_OF_PROFILES:
            return order
        levels = np.unique(self.rule.levels[_spread_out(order, _ROWS_OF_PROFILES)])
        levels = _spread_out(levels, _LEVELS_OF_PROFILES)
        rows = order[np.isin(self.rule.levels[order], levels)]
        return _spread_out(rows, _ROWS_OF_PROFILES)

    def _means(self, bins: list[np.ndarray]) -> Means:
        """Returns the means of the sums over bins."""
        found = []
        for rows in bins:
            unit = (self.measured.unit / self.rule.row_weights[rows]) ** 2
            unit = float(unit.sum()) / rows.size**2
            place = self.rule.least + LEVEL_STEP * float(self.rule.levels[rows].mean())
            numbers = self.measured.numbers[rows].mean(axis=0)
            mass = float(self.measured.masses[rows].mean())
            found.append((place, numbers, mass, unit * self.rule.bounds**2, unit))
        return Means(*(np.array(column) for column in zip(*found, strict=True)))


def _spread_out(rows: np.ndarray, most: int) -> np.ndarray:
    """Returns so many of some rows, at equal distances, or all of them."""
    return rows[np.linspace(0, rows.size - 1, min(rows.size, most)).astype(np.int64)]


def _estimates(kinds: Kinds, sums: Sums, are_first: np.ndarray) -> np.ndarray:
    """Returns the estimates of rows of one level, and the ends of their intervals: (n, 3) int64."""
    (answers,) = kinds.answers([sums])
    parts = np.where(are_first[:, np.newaxis], kinds.first_parts, kinds.parts)
    belong = answers.likelihoods * parts
    belong /= belong.sum(axis=1, keepdims=True)
    nobody = belong[:, -1].copy()
    belong[:, -1] = 0
    somebody = np.maximum(1 - nobody, 1e-9)
    # Numbers of one kind have about a log-normal law with this mean and this spread.
    deviations = np.sqrt(answers.variances)
    means = np.maximum(answers.means(), 0.1 * deviations + 1e-3)
    squares = np.log1p((deviations / means) ** 2)
    logs = np.log(means, out=means)
    logs -= squares / 2
    # The first three moments of the mixture.
    middle = np.einsum("ij,ij->i", belong, logs) / somebody
    logs -= middle[:, np.newaxis]
    second, third = logs**2 + squares, logs**2 + 3 * squares
    variance = np.maximum(np.einsum("ij,ij->i", belong, second) / somebody, 1e-18)
    third = np.einsum("ij,ij,ij->i", belong, logs, third) / somebody
    stddev = np.sqrt(variance)
    skew = np.clip(third / stddev**3, -_MOST_SKEW, _MOST_SKEW)
    users = np.exp(middle - _SKEW_OF_MEDIAN * skew * stddev) * (1 - nobody)
    low = np.exp(middle - (_REACH - _SKEW_OF_ENDS * skew) * stddev)
    high = np.exp(middle + (_REACH + _SKEW_OF_ENDS * skew) * stddev)
    low = np.minimum(np.where(nobody > _MOST_NOBODY, 0.0, low), users)
    ends = np.stack((np.rint(users), np.floor(low), np.ceil(np.maximum(high, users))), axis=1)
    return np.minimum(ends, MOST_USERS).astype(np.int64)
