"""Estimated numbers of users and their intervals, from the noisy sums: public numbers in and out.

A row's mass h is measured with Gaussian noise. What is also known of it is its score: of rows of one
length with about this score, the masses spread around a curve, and both the curve and the spread are
learned from the noisy masses themselves (empirical Bayes). The estimate of h weighs both by their
precision. The number of users is n = κ·h, where the factor κ ≥ 1 says how much text the holders have.
It varies slowly with length and mass, so log κ is a linear function of both, plus an error of each
group and one of each row. The noisy totals of groups, which need no κ, determine this function and the
errors as far as their noise allows: generalised least squares and best linear prediction, which
geostatistics calls universal kriging. At last a row gets no more users than the rows that each of its
users holds as well, such as its prefix.

The intervals contain 95 % of the true numbers as far as this model holds. The noise, the spread within
a group and the uncertainty of κ are in them; how much κ varies among rows is expected from public text
and corrected by the totals. The estimates are shrunk towards the curve, so they are not unbiased for a
single row.

References:
  N. Cressie. Statistics for Spatial Data. Wiley, 1993, section 3.4 (universal kriging).
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np
import scipy

from beam_dpne.counts.factors import FactorModel, exp, large_blocks, log, solve, weighted_mean
from beam_dpne.counts.rule import CountRule, MeasuredCounts, blocks

CONFIDENCE = 0.95
# Ends of intervals are integers that every format can hold.
MOST_USERS = 2.0**53
# Scores below count as this where their logarithm is needed.
_LEAST_SCORE = 2.0**-10
_NO_BOUND = np.iinfo(np.int64).max
# Spread of masses around the curve that is expected before the data, relative, and its weight in rows.
SPREAD, SPREAD_ROWS = 0.35, 5.0
ROWS_OF_A_KNOT, MOST_KNOTS = 40, 8


def estimate_users(
    measured: MeasuredCounts,
    rule: CountRule,
    scores: Sequence[np.ndarray],
    parents: np.ndarray | None = None,
) -> np.ndarray:
    """Returns the estimated number of users of each row, and the ends of its interval: (n, 3) int64.

    Args:
      measured: the noisy sums.
      rule: the rule by which they were measured.
      scores: for each length, (n_k,) float64, the scores of its rows.
      parents: (n, p) integers, earlier rows that every user of a row holds as well, such as its prefix,
        or -1; None if there are none.
    """
    if not measured.masses.size:
        return np.zeros((0, 3), np.int64)
    masses, variances = _expected_masses(measured, rule, scores)
    model = FactorModel.of(measured, rule, masses, variances)
    fit, covariance = model.fitted()
    estimates = np.empty((masses.size, 3), np.int64)
    for rows in blocks(0, masses.size):
        users, relative = model.predict(rows, fit, covariance)
        # The ends are those of a log-normal number with this relative standard deviation. Its logarithm
        # has this standard deviation.
        stddevs = np.sqrt(log(1 + relative**2))
        reach = exp(scipy.special.ndtri(0.5 + CONFIDENCE / 2) * stddevs)
        estimates[rows, 0] = np.rint(np.minimum(users, MOST_USERS))
        estimates[rows, 1] = np.floor(np.minimum(users / reach, MOST_USERS))
        estimates[rows, 2] = np.ceil(np.minimum(users * reach, MOST_USERS))
    if parents is not None:
        _bound_by_parents(estimates, rule, parents)
    return estimates


def _expected_masses(
    measured: MeasuredCounts, rule: CountRule, scores: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the masses of all rows given their scores, and relative variances: (n,) float64 each."""
    masses, variances = np.zeros((2, measured.masses.size))
    for (first, last), each in zip(itertools.pairwise(rule.offsets.tolist()), scores, strict=True):
        if first == last:
            continue
        noisy, stddevs = measured.masses[first:last], measured.mass_stddevs[first:last]
        places = log(np.maximum(each, _LEAST_SCORE))
        fitted = _fit_curve(places, noisy, stddevs)
        for rows in blocks(0, last - first):
            curve, spread = fitted.at(places[rows])
            noise, prior = stddevs[rows] ** 2, (spread * curve) ** 2
            means = (noisy[rows] * prior + curve * noise) / (prior + noise)
            target = slice(first + rows.start, first + rows.stop)
            masses[target], variances[target] = _positive(
                means, np.sqrt(prior * noise / (prior + noise))
            )
    return masses, variances


def _positive(means: np.ndarray, stddevs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and relative variance of normal numbers, given that they are positive: (n,) each."""
    # The inverse Mills ratio φ/Φ by the scaled complementary error function, which does not underflow.
    places = np.maximum(means / stddevs, -30.0)
    mills = math.sqrt(2 / math.pi) / scipy.special.erfcx(-places / math.sqrt(2))
    positive = stddevs * (places + mills)
    variances = stddevs**2 * np.maximum(1 - mills * (mills + places), 1e-12)
    return positive, variances / positive**2


def _bound_by_parents(estimates: np.ndarray, rule: CountRule, parents: np.ndarray) -> None:
    """Lowers estimates and ends of intervals to those of the parents, from short rows to long ones.

    Rounding keeps the order of numbers, so that the least of rounded numbers is the least one, rounded.

    Args:
      estimates: (n, 3) int64, changed in place.
      rule: the rule by which the rows were measured.
      parents: (n, p) integers, rows of shorter lengths, or -1.
    """
    for first, last in itertools.pairwise(rule.offsets.tolist()):
        for rows in blocks(first, last):
            for parent in parents[rows].T:
                there = parent >= 0
                bounds = np.where(there[:, np.newaxis], estimates[parent], _NO_BOUND)
                estimates[rows] = np.minimum(estimates[rows], bounds)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class _Curve:
    """A piecewise linear function of the log score, and the relative spread of masses around it.

    Attributes:
      knots: (p,) float64, ascending log scores.
      heights: (p,) float64, the curve at the knots.
      least: the least value of the curve.
      squares: (p,) float64, the squared spread at the knots.
    """

    knots: np.ndarray
    heights: np.ndarray
    least: float
    squares: np.ndarray

    def at(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the expected masses at some log scores, and the relative spread around them."""
        basis = _hats(places, self.knots)
        return np.maximum(basis @ self.heights, self.least), np.sqrt(basis @ self.squares)


def _fit_curve(places: np.ndarray, masses: np.ndarray, stddevs: np.ndarray) -> _Curve:
    """Fits a piecewise linear curve to noisy masses, and the spread of the true ones around it.

    Args:
      places: (n,) float64, log scores of the rows of one length.
      masses: (n,) float64, their noisy masses.
      stddevs: (n,) float64, the standard deviations of the noise.
    """
    count = int(np.clip(places.size // ROWS_OF_A_KNOT, 1, MOST_KNOTS)) + 1
    knots = np.unique(np.quantile(places, np.linspace(0, 1, count)))
    least = max(float(masses.max()), float(stddevs.min())) / 1000
    level = max(weighted_mean(masses, stddevs**-2), least)
    heights = np.zeros(0)
    for turn in range(4):
        normal, right = np.zeros((knots.size, knots.size)), np.zeros(knots.size)
        for rows in large_blocks(0, places.size):
            basis = _hats(places[rows], knots)
            # The first weights are those of a level curve.
            curve = np.maximum(basis @ heights, least) if turn else np.full(len(basis), level)
            weights = 1 / (stddevs[rows] ** 2 + (SPREAD * curve) ** 2)
            normal += basis.T @ (weights[:, None] * basis)
            right += basis.T @ (weights * masses[rows])
        heights = solve(normal, right)
    curve = _Curve(knots=knots, heights=heights, least=least, squares=np.zeros(knots.size))
    return dataclasses.replace(curve, squares=_squares(curve, places, masses, stddevs))


def _squares(
    curve: _Curve, places: np.ndarray, masses: np.ndarray, stddevs: np.ndarray
) -> np.ndarray:
    """Returns the squared spread at each knot, by the method of moments within its hat function.

    E[(mass − curve)² − noise²] = (spread · curve)².
    """
    # Sums over the rows of each hat function h: Σ h·excess, Σ h·scale, the same again for the mean of
    # the scale, and Σ h.
    excesses, scales, means, norms = np.zeros((4, curve.knots.size))
    for rows in large_blocks(0, places.size):
        expected, _ = curve.at(places[rows])
        noise = stddevs[rows] ** 2
        weights = (noise + (SPREAD * expected) ** 2) ** -2
        excess = weights * ((masses[rows] - expected) ** 2 - noise) * expected**2
        scale = weights * expected**4
        for knot, hat in enumerate(_hats(places[rows], curve.knots).T):
            excesses[knot] += hat @ excess
            scales[knot] += hat @ scale
            means[knot] += (scale * hat).sum()
            norms[knot] += hat.sum()
    prior = SPREAD_ROWS * (means / norms)
    return np.clip((excesses + prior * SPREAD**2) / (scales + prior), 0.05**2, 9.0)


def _hats(places: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Returns the values of the hat functions of all knots at some places: (n, p) float64."""
    return np.stack([np.interp(places, knots, row) for row in np.eye(knots.size)], axis=1)
