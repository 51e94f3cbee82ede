"""Estimated numbers of users and their intervals, from the noisy sums: public numbers in and out.

For each length, a curve says how many users of each class to expect by a row's score (`curves`). The
law of the deviations from the curve is learned from the noisy sums themselves (`kinds`: empirical Bayes
by a mixture of normal laws). Given its own sums, a row's number of users then has a law. The mean, the
spread and the skewness of the number's logarithm give the estimate and the interval.

Estimates of rows with few users are shrunk towards rows with similar scores, so they are not unbiased
for a single row. With a larger budget the noise falls, and they tend to the numbers themselves.
"""

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Generator, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from beam_dpne.counts.curves import (
    Curve,
    Means,
    Sizes,
    bins_of,
    expected_sizes,
    fit_curve,
    fit_group,
)
from beam_dpne.counts.kinds import FIRST_ROWS, Answers, Kinds, Sums, kinds_before, learned_parts
from beam_dpne.counts.rule import LEVEL_STEP, CountRule, MeasuredCounts, blocks
from beam_dpne.elements.arrays import run_ends
from beam_dpne.elements.processes import answers

# Ends of intervals are integers that every format can hold.
MOST_USERS = 2.0**53
# Half of an interval in standard deviations. The law is right for 1.96 if its parameters were known;
# they are learned from few rows. The very first rows of a length are unlike each other and the rest,
# so that their own interval is wider.
_REACH = 2.3
_REACH_OF_HEAVIEST = 3.1
_HEAVIEST = 20
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
# A group with fewer rows of all lengths together has the curves and kinds of all rows.
_FEWEST_OF_A_GROUP = 20
# Turns of learning; few rows teach little.
_TURNS = 8
_TURNS_OF_FEW = 4
# Forks estimate so many rows at a time, or all those of a level.
_ROWS_OF_A_PART = 2**11


class _Part(NamedTuple):
    """Rows of one length that are estimated by themselves: all those of some levels.

    Attributes:
      rows: (n,) int64.
      kinds: the kinds of rows of the length, or of a group's.
      first: (m,) int64, the first rows of the length, or of the group at this length, the heaviest ones
        first.
    """

    rows: np.ndarray
    kinds: Kinds
    first: np.ndarray


def estimate_users(
    measured: MeasuredCounts,
    rule: CountRule,
    groups: np.ndarray | None = None,
    workers: int = 1,
) -> np.ndarray:
    """Returns the estimated number of users of each row, and the ends of its interval: (n, 3) int64.

    Args:
      measured: the noisy sums.
      rule: the rule by which they were measured.
      groups: (n,) integers ≥ 0, the number of the group of each row; None without groups.
      workers: the largest number of processes; it changes no estimate.
    """
    estimates = np.zeros((measured.masses.size, 3), np.int64)

    # (n,) int8: 1 for the first rows of a part's length, and 2 for the heaviest ones among them.
    marks = np.zeros(len(estimates), np.int8)

    def answer(part: _Part) -> Generator[tuple[np.ndarray, np.ndarray], None, None]:
        marks[part.first] = 1
        marks[part.first[:_HEAVIEST]] = 2
        for rows, sums in _sums(measured, rule, part.rows):
            (of_rows,) = part.kinds.answers([sums])
            for block in blocks(0, rows.size):
                own = rows[block]
                reach = np.where(marks[own] == 2, _REACH_OF_HEAVIEST, _REACH)
                estimates[own] = _estimates(part.kinds, of_rows(block), marks[own] > 0, reach)
        marks[part.first] = 0
        yield part.rows, estimates[part.rows]

    # Products of small matrices, for which threads of the library would cost more than they save.
    with (
        threadpool_limits(limits=1, user_api="blas"),
        # While forks estimate rows of one length, the kinds of the next one are learned here.
        contextlib.closing(answers(answer, _parts(measured, rule, groups), workers)) as estimated,
    ):
        for rows, found in estimated:
            estimates[rows] = found
    return estimates


def _parts(measured: MeasuredCounts, rule: CountRule, groups: np.ndarray | None) -> Iterator[_Part]:
    """Yields all rows in parts, with the kinds that are learned from the noisy sums."""
    sizes = expected_sizes(measured.sizes, measured.size_stddev)
    spans = itertools.pairwise(rule.offsets.tolist())
    lengths = [_Rows(measured, rule, np.arange(*span)) for span in spans if span[0] < span[1]]
    curves = [rows.curve(sizes) for rows in lengths]
    learned = _kinds_of_lengths(lengths, curves, sizes, None)
    left = [rows.rows for rows in lengths]
    if groups is not None and lengths:
        learned = kinds = list(learned)
        own = [rows.of_groups(groups) for rows in lengths]
        alike = np.zeros(groups.max() + 1, bool)
        for group in np.unique(groups).tolist():
            mine = [
                (each[group], of_all)
                for each, of_all in zip(own, kinds, strict=True)
                if group in each
            ]
            of_group = _parts_of_group(mine, sizes)
            alike[group] = not of_group
            yield from of_group
        left = [rows[alike[groups[rows]]] for rows in left]
    for rows, of_length, chosen in zip(lengths, learned, left, strict=True):
        yield from rows.parts(of_length, chosen)


def _parts_of_group(lengths: list[tuple["_Rows", Kinds]], sizes: Sizes) -> list[_Part]:
    """Returns the rows of a group in parts, or no part if the group has no curves of its own.

    Args:
      lengths: the rows of the group at each length that has any, with the kinds of all rows.
      sizes: the numbers of users of the classes.
    """
    if sum(own.rows.size for own, _ in lengths) < _FEWEST_OF_A_GROUP:
        return []
    curves = fit_group(
        [own.means for own, _ in lengths],
        [of_all.curve for _, of_all in lengths],
        sizes,
        lengths[0][0].rule.bounds,
    )
    if curves is None:
        return []
    rows = [own for own, _ in lengths]
    kinds = _kinds_of_lengths(rows, curves, sizes, lengths[0][1].parts)
    return [
        part
        for own, of_group in zip(rows, kinds, strict=True)
        for part in own.parts(of_group, own.rows)
    ]


def _kinds_of_lengths(
    lengths: list["_Rows"], curves: list[Curve], sizes: Sizes, parts: np.ndarray | None
) -> Iterable[Kinds]:
    """Yields the kinds of rows of each length.

    Args:
      lengths: the rows of each length.
      curves: their curves.
      sizes: the numbers of users of the classes.
      parts: parts about which those of the first length are expected to be; None if nothing is known.
    """
    for rows, curve in zip(lengths, curves, strict=True):
        found = rows.kinds(curve, sizes, parts)
        parts = found.parts
        yield found


@dataclasses.dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of one length: all of them, or those of a group."""

    measured: MeasuredCounts
    rule: CountRule
    rows: np.ndarray

    @functools.cached_property
    def order(self) -> np.ndarray:
        """The rows, those of the highest levels first."""
        return self.rows[np.argsort(-self.rule.levels[self.rows], kind="stable")]

    def of_groups(self, groups: np.ndarray) -> dict[int, "_Rows"]:
        """Returns the rows of each group that has any of these.

        Args:
          groups: (n,) integers, the number of the group of each row of the release.
        """
        found, starts = np.unique(np.sort(groups[self.rows]), return_index=True)
        ordered = self.rows[np.argsort(groups[self.rows], kind="stable")]
        parts = np.split(ordered, starts[1:])
        return {
            group: _Rows(self.measured, self.rule, part)
            for group, part in zip(found.tolist(), parts, strict=True)
        }

    def parts(self, kinds: Kinds, chosen: np.ndarray) -> Iterator[_Part]:
        """Yields some of the rows in parts, each with all rows of its levels."""
        ordered = chosen[np.argsort(self.rule.levels[chosen], kind="stable")]
        start = 0
        for end in (run_ends(self.rule.levels[ordered]) + 1).tolist():
            if end - start >= _ROWS_OF_A_PART or end == ordered.size:
                yield _Part(ordered[start:end], kinds, self.order[:FIRST_ROWS])
                start = end

    def curve(self, sizes: Sizes) -> Curve:
        """Returns the curve that the sums of these rows show alone."""
        return fit_curve(self.means, sizes.users, self.rule.bounds)

    def sums(self, rows: np.ndarray) -> Iterator[tuple[np.ndarray, Sums]]:
        """Yields the rows of each level among some, and their sums."""
        return _sums(self.measured, self.rule, rows)

    def kinds(self, curve: Curve, sizes: Sizes, parts_before: np.ndarray | None) -> Kinds:
        """Returns the kinds of the rows, learned from some of them.

        Args:
          curve: their curve.
          sizes: numbers of users of the classes.
          parts_before: the parts of kinds at the length before, or of all rows if these are a group's,
            about which are expected here too; None if there are none.
        """
        order = self.order
        kinds = kinds_before(curve, sizes, self.rule.bounds)
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

    @property
    def means(self) -> Means:
        """The means of the sums over the rows of each bin."""
        places: list[float] = []
        numbers: list[np.ndarray] = []
        masses: list[float] = []
        mass_variances: list[float] = []
        for rows in bins_of(self.order):
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


def _sums(
    measured: MeasuredCounts, rule: CountRule, rows: np.ndarray
) -> Iterator[tuple[np.ndarray, Sums]]:
    """Yields the rows of each level among some, and their sums."""
    levels = rule.levels[rows]
    found, counts = np.unique(levels, return_counts=True)
    of_levels = np.split(rows[np.argsort(levels, kind="stable")], np.cumsum(counts)[:-1])
    for level, chosen in zip(found.tolist(), of_levels, strict=True):
        row_weight = int(rule.row_weights[chosen[0]])
        mass_variance = (measured.unit / row_weight) ** 2
        sums = Sums(
            place=rule.least + level * LEVEL_STEP,
            numbers=measured.numbers[chosen],
            masses=measured.masses[chosen],
            variances=mass_variance * rule.bounds**2,
            mass_variance=mass_variance,
        )
        yield chosen, sums


def _spread_out(rows: np.ndarray, most: int) -> np.ndarray:
    """Returns so many of some rows, at equal distances, or all of them if they are no more."""
    places = np.linspace(0, rows.size - 1, min(rows.size, most))
    return rows[places.astype(np.int64)]


def _estimates(
    kinds: Kinds, answers: Answers, are_first: np.ndarray, reach: np.ndarray
) -> np.ndarray:
    """Returns the estimates of n rows of one level, and the ends of their intervals: (n, 3) int64.

    Args:
      kinds: the kinds of rows of the length, or of a group's.
      answers: what the sums of the rows say of them.
      are_first: (n,) bool, whether each is among the first rows, which have parts of their own.
      reach: (n,) float64, half of each interval in standard deviations.
    """
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
    low = np.exp(middle - (reach - _SKEW_OF_ENDS * skew) * stddev)
    high = np.exp(middle + (reach + _SKEW_OF_ENDS * skew) * stddev)
    low = np.minimum(np.where(nobody > _MOST_NOBODY, 0.0, low), users)
    ends = np.stack((np.rint(users), np.floor(low), np.ceil(np.maximum(high, users))), axis=1)
    return np.minimum(ends, MOST_USERS).astype(np.int64)
