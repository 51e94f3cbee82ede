"""Estimated numbers of users and their intervals, from the noisy sums: public numbers in and out.

For each length, a curve says how many users of each class to expect by a row's score (`curves`). The
law of the deviations from the curve is learned from the noisy sums themselves (`kinds`: empirical Bayes
by a mixture of normal laws). Given its own sums, a row's number of users then has a law. The mean, the
spread and the skewness of the number's logarithm give the estimate and the interval.

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
from beam_dpne.counts.kinds import FIRST_ROWS, Answers, Kinds, Sums, kinds_before, learned_parts
from beam_dpne.counts.rule import LEVEL_STEP, CountRule, MeasuredCounts, blocks

# Ends of intervals are integers that every format can hold.
MOST_USERS = 2.0**53
# Half of an interval in standard deviations. The law is right for 1.96 if its parameters were known;
# they are learned from few rows.
_REACH = 2.3
# Cornish-Fisher: a skewness moves both ends by (1.96² − 1)/6 of itself, the median by a sixth.
_SKEW_OF_ENDS = 0.474
_SKEW_OF_MEDIAN = 1 / 6
_MOST_SKEW = 1.5
# If nobody holds a row with a larger probability, the interval begins at 0.
_MOST_NOBODY = 0.025
# Profiles and spreads are learned from so many rows of a length, which are of so many levels; the parts
# of kinds are learned from more rows.
_ROWS_OF_PROFILES = 400
_LEVELS_OF_PROFILES = 16
_ROWS_OF_PARTS = 2000
# Turns of learning; few rows teach little.
_TURNS = 8
_TURNS_OF_FEW = 4


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
            (of_rows,) = kinds.answers([sums])
            for block in blocks(0, rows.size):
                are_first = np.isin(rows[block], length.order[:FIRST_ROWS])
                estimates[rows[block]] = _estimates(kinds, of_rows(block), are_first)


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
        """Yields the rows of each level among some, and their sums."""
        levels = self.rule.levels[rows]
        found, counts = np.unique(levels, return_counts=True)
        of_levels = np.split(rows[np.argsort(levels, kind="stable")], np.cumsum(counts)[:-1])
        for level, chosen in zip(found.tolist(), of_levels, strict=True):
            row_weight = int(self.rule.row_weights[chosen[0]])
            mass_variance = (self.measured.unit / row_weight) ** 2
            sums = Sums(
                place=self.rule.least + level * LEVEL_STEP,
                numbers=self.measured.numbers[chosen],
                masses=self.measured.masses[chosen],
                variances=mass_variance * self.rule.bounds**2,
                mass_variance=mass_variance,
            )
            yield chosen, sums

    def kinds(self, sizes: Sizes, parts_before: np.ndarray | None) -> Kinds:
        """Returns the kinds of the rows, learned from some of them.

        Args:
          sizes: numbers of users of the classes.
          parts_before: the parts of kinds at the length before, about which are expected here too;
            None at the first length.
        """
        order = self.order
        bounds = self.rule.bounds
        curve = fit_curve(self._means(bins_of(order)), sizes.users, bounds)
        kinds = kinds_before(curve, sizes, bounds)
        expected = kinds.parts
        first_expected = kinds.first_parts
        if parts_before is not None:
            expected = (expected + parts_before) / 2
        kinds = dataclasses.replace(kinds, parts=expected)
        sums_of_some = [sums for _, sums in self.sums(self._some(order))]
        turns = _TURNS if order.size > _ROWS_OF_PROFILES else _TURNS_OF_FEW
        kinds = kinds.learned(sums_of_some, sizes, expected, turns)
        # Profiles and spreads are settled. More rows say how many rows are of each kind.
        first = order[:FIRST_ROWS]
        others = _spread_out(order, _ROWS_OF_PARTS)
        rows, likelihoods = self._likelihoods(kinds, np.union1d(first, others))
        of_first = likelihoods[np.isin(rows, first)]
        return dataclasses.replace(
            kinds,
            parts=learned_parts(likelihoods, kinds.parts, expected),
            first_parts=learned_parts(of_first, first_expected, first_expected),
        )

    def _likelihoods(self, kinds: Kinds, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns rows level by level, (n,), and how likely the sums of each are, (n, K) float64."""
        rows_of_levels: list[np.ndarray] = []
        sums_of_levels: list[Sums] = []
        for own, sums in self.sums(rows):
            rows_of_levels.append(own)
            sums_of_levels.append(sums)
        all_rows = slice(None)
        likelihoods = [of(all_rows).likelihoods for of in kinds.answers(sums_of_levels)]
        return np.concatenate(rows_of_levels), np.concatenate(likelihoods)

    def _some(self, order: np.ndarray) -> np.ndarray:
        """Returns the rows from which profiles and spreads are learned: of few levels, spread out."""
        if order.size <= _ROWS_OF_PROFILES:
            return order
        levels = np.unique(self.rule.levels[_spread_out(order, _ROWS_OF_PROFILES)])
        levels = _spread_out(levels, _LEVELS_OF_PROFILES)
        rows = order[np.isin(self.rule.levels[order], levels)]
        return _spread_out(rows, _ROWS_OF_PROFILES)

    def _means(self, bins: list[np.ndarray]) -> Means:
        """Returns the means of the sums over the rows of each bin."""
        places: list[float] = []
        numbers: list[np.ndarray] = []
        masses: list[float] = []
        mass_variances: list[float] = []
        for rows in bins:
            level = float(self.rule.levels[rows].mean())
            places.append(self.rule.least + LEVEL_STEP * level)
            numbers.append(self.measured.numbers[rows].mean(axis=0))
            masses.append(float(self.measured.masses[rows].mean()))
            variances = (self.measured.unit / self.rule.row_weights[rows]) ** 2
            mass_variances.append(float(variances.sum()) / rows.size**2)
        return Means(
            places=np.array(places),
            numbers=np.array(numbers),
            masses=np.array(masses),
            number_variances=np.multiply.outer(mass_variances, self.rule.bounds**2),
            mass_variances=np.array(mass_variances),
        )


def _spread_out(rows: np.ndarray, most: int) -> np.ndarray:
    """Returns so many of some rows, at equal distances, or all of them if they are no more."""
    places = np.linspace(0, rows.size - 1, min(rows.size, most))
    return rows[places.astype(np.int64)]


def _estimates(kinds: Kinds, answers: Answers, are_first: np.ndarray) -> np.ndarray:
    """Returns the estimates of rows of one level, and the ends of their intervals: (n, 3) int64."""
    belong = answers.likelihoods * kinds.parts
    belong[are_first] = answers.likelihoods[are_first] * kinds.first_parts
    total = belong.sum(axis=1)
    of_nobody = belong[:, -1].copy()
    belong[:, -1] = 0
    nobody = of_nobody / total
    somebody = np.maximum(total - of_nobody, 1e-9 * total)

    def mean(values: np.ndarray) -> np.ndarray:
        return np.einsum("ij,ij->i", belong, values) / somebody

    # Numbers of one kind have about a log-normal law with this mean m and this spread d: logarithms
    # have the variance log(m² + d²) − 2 log(m), and the mean 2 log(m) − log(m² + d²)/2.
    means = np.maximum(answers.means(), 0.1 * np.sqrt(answers.variances) + 1e-3)
    halves = 0.5 * np.log(means**2 + answers.variances)
    logs = 2 * np.log(means) - halves
    variances = halves - logs
    # The first three moments of the mixture.
    middle = mean(logs)
    logs -= middle[:, np.newaxis]
    squares = logs**2
    variance = np.maximum(mean(squares + variances), 1e-18)
    third = mean((squares + 3 * variances) * logs)
    stddev = np.sqrt(variance)
    skew = np.clip(third / stddev**3, -_MOST_SKEW, _MOST_SKEW)
    users = np.exp(middle - _SKEW_OF_MEDIAN * skew * stddev) * (1 - nobody)
    low = np.exp(middle - (_REACH - _SKEW_OF_ENDS * skew) * stddev)
    high = np.exp(middle + (_REACH + _SKEW_OF_ENDS * skew) * stddev)
    low = np.minimum(np.where(nobody > _MOST_NOBODY, 0.0, low), users)
    ends = np.stack((np.rint(users), np.floor(low), np.ceil(np.maximum(high, users))), axis=1)
    return np.minimum(ends, MOST_USERS).astype(np.int64)
