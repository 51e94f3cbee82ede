"""Estimated numbers of users and their intervals, from the noisy sums: public numbers in and out.

A row's mass h is measured with Gaussian noise. What is also known of it is its score: of rows of one
length with about this score, the masses spread around a curve, and both the curve and the spread are
learned from the noisy masses themselves (empirical Bayes). The estimate of h weighs both by their
precision. The number of users is n = κ·h, where the factor κ ≥ 1 says how much text the holders have:
it varies slowly with length and mass, so a regression on the noisy totals of groups gives it.

The intervals contain 95 % of the true numbers as far as this model holds: the spread within a group,
the noise, and the uncertainty of κ are in them. The estimates are shrunk towards the curve, so they are
not unbiased for a single row.
"""

import dataclasses

import numpy as np
from scipy import special

from beam_dpne.counts.measuring import MeasuredCounts
from beam_dpne.counts.rule import CountRule

# Of the regression log κ = β_0 + β_1 (k − 1) + β_2 log mass: what public titles give, and how far other
# text may be from it.
SLOPES, SLOPE_STDDEVS = (0.02, -0.12), (0.06, 0.07)
# Spread of κ among rows of one group: 0.08² + 0.7 / users, relative, squared (public titles).
FACTOR_VARIANCE, FACTOR_VARIANCE_OF_FEW = 0.08**2, 0.7
# Spread of masses around the curve that is expected before the data, relative, and its weight in rows.
SPREAD, SPREAD_ROWS = 0.35, 20.0
# Standard deviations above which a class of users is clearly there.
CLEAR = 2.0
ROWS_OF_A_KNOT, MOST_KNOTS = 40, 8
CONFIDENCE = 0.95
_DIGITS = 2.0**30
_PASSES = 25


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Estimates:
    """Numbers of users who hold each row.

    Attributes:
      users: (n,) int64 ≥ 0, the estimate.
      low: (n,) int64 ≥ 0, the lower end of the interval.
      high: (n,) int64, the upper end.
    """

    users: np.ndarray
    low: np.ndarray
    high: np.ndarray


def estimate_users(measured: MeasuredCounts, rule: CountRule, scores: np.ndarray) -> Estimates:
    """Returns the estimates for all rows.

    Args:
      measured: the noisy sums.
      rule: the rule by which they were measured.
      scores: (n,) float64, the scores of the rows.
    """
    if not scores.size:
        none = np.zeros(0, np.int64)
        return Estimates(users=none, low=none, high=none)
    curve, spread = _curves(measured, rule, scores)
    noise = measured.mass_stddevs**2
    prior = (spread * curve) ** 2
    mass = (measured.masses * prior + curve * noise) / (prior + noise)
    mass = np.maximum(mass, curve / 20)
    variance = prior * noise / (prior + noise)
    factors = _Factors.fit(measured, rule, curve)
    log_factor, factor_variance = factors.at(_lengths(rule), mass)
    users = mass * _exp(log_factor)
    relative = np.sqrt(
        variance / mass**2
        + factor_variance
        + FACTOR_VARIANCE
        + FACTOR_VARIANCE_OF_FEW / np.maximum(users, 1)
    )
    reach = _exp(special.ndtri(0.5 + CONFIDENCE / 2) * relative)
    return Estimates(
        users=np.rint(users).astype(np.int64),
        low=np.floor(users / reach).astype(np.int64),
        high=np.ceil(users * reach).astype(np.int64),
    )


def _lengths(rule: CountRule) -> np.ndarray:
    """Returns k − 1 of each row: (n,) int64."""
    return np.repeat(np.arange(len(rule.sizes)), rule.sizes)


def _curves(
    measured: MeasuredCounts, rule: CountRule, scores: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the expected mass of each row by its score, and the relative spread around it."""
    curve, spread = np.zeros(scores.size), np.zeros(scores.size)
    for first, last in zip(rule.offsets[:-1], rule.offsets[1:], strict=True):
        rows = slice(int(first), int(last))
        if first < last:
            curve[rows], spread[rows] = _curve(
                _log(np.maximum(scores[rows], 2.0**-10)),
                measured.masses[rows],
                measured.mass_stddevs[rows],
            )
    return curve, spread


def _curve(
    places: np.ndarray, masses: np.ndarray, stddevs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Fits a piecewise linear curve to noisy masses, and the spread of the true ones around it.

    Args:
      places: (n,) float64, log scores of the rows of one length.
      masses: (n,) float64, their noisy masses.
      stddevs: (n,) float64, the standard deviations of the noise.
    """
    count = int(np.clip(places.size // ROWS_OF_A_KNOT, 1, MOST_KNOTS)) + 1
    knots = np.unique(np.quantile(places, np.linspace(0, 1, count)))
    basis = np.stack([np.interp(places, knots, row) for row in np.eye(knots.size)], axis=1)
    least = max(float(masses.max()), float(stddevs.min())) / 1000
    curve = np.full(places.size, max(float(np.average(masses, weights=stddevs**-2)), least))
    for _ in range(4):
        weights = 1 / (stddevs**2 + (SPREAD * curve) ** 2)
        coefficients = _solve(basis.T @ (weights[:, None] * basis), basis.T @ (weights * masses))
        curve = np.maximum(basis @ coefficients, least)
    # The method of moments, within each hat function: E[(mass − curve)² − noise²] = (spread · curve)².
    weights = (stddevs**2 + (SPREAD * curve) ** 2) ** -2
    excess = weights * ((masses - curve) ** 2 - stddevs**2) * curve**2
    scale = weights * curve**4
    squares = np.zeros(knots.size)
    for knot, hat in enumerate(basis.T):
        prior = SPREAD_ROWS * np.average(scale, weights=hat)
        squares[knot] = (hat @ excess + prior * SPREAD**2) / (hat @ scale + prior)
    squares = np.clip(squares, 0.05**2, 1.0)
    return curve, np.sqrt(basis @ squares)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class _Factors:
    """The regression of log κ on length and log mass, with its uncertainty.

    Attributes:
      coefficients: (3,) float64.
      covariance: (3, 3) float64.
      middle: the log mass at which the third coefficient has no effect.
    """

    coefficients: np.ndarray
    covariance: np.ndarray
    middle: float

    @classmethod
    def fit(cls, measured: MeasuredCounts, rule: CountRule, curve: np.ndarray) -> "_Factors":
        """Fits totals = κ · masses over groups, by repeated least squares with a prior."""
        size = rule.group_weights.size
        masses = np.bincount(rule.groups, curve, minlength=size)
        totals, variances = _totals(measured, masses)
        lengths = np.bincount(rule.groups, _lengths(rule), minlength=size) / rule.group_sizes
        logs = _log(masses / rule.group_sizes)
        middle = float(np.average(logs, weights=masses))
        columns = np.stack((np.ones(size), lengths, logs - middle), axis=1)
        expected = np.array([0.0, *SLOPES])
        precision = np.diag([1e-6, *(1 / stddev**2 for stddev in SLOPE_STDDEVS)])
        coefficients = expected.copy()
        coefficients[0] = float(_log(max(totals.sum() / masses.sum(), 1.0)))
        normal = precision
        for _ in range(_PASSES):
            fitted = _exp(columns @ coefficients) * masses
            gradient = fitted[:, None] * columns
            weights = 1 / (variances + (0.05 * fitted) ** 2)
            normal = gradient.T @ (weights[:, None] * gradient) + precision
            step = gradient.T @ (weights * (totals - fitted)) - precision @ (
                coefficients - expected
            )
            coefficients = coefficients + np.clip(_solve(normal, step), -0.5, 0.5)
        return cls(coefficients=coefficients, covariance=_inverse(normal), middle=middle)

    def at(self, lengths: np.ndarray, masses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns log κ of each row and its variance."""
        columns = np.stack((np.ones(masses.size), lengths, _log(masses) - self.middle), axis=1)
        variance = ((columns @ self.covariance) * columns).sum(axis=1)
        return columns @ self.coefficients, variance


def _totals(measured: MeasuredCounts, masses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the total of each group over all classes, and the variance of its error.

    Few users or none belong to the upper classes, whose noise is the largest. A class whose part of all
    groups together is below `CLEAR` standard deviations counts with an estimate of this part instead of
    its measured totals, and half of the class below is what the estimate expects.
    """
    noise = measured.total_stddevs**2
    below = np.inf
    totals, variances = np.zeros(masses.size), np.zeros(masses.size)
    for values, noises in zip(measured.totals.T, noise.T, strict=True):
        weights = masses / noises
        precision = float(weights @ masses)
        part = float(weights @ values) / precision
        if part * np.sqrt(precision) > CLEAR:
            totals, variances, below = totals + values, variances + noises, part
            continue
        # The part is unclear: half of the class below is expected, give or take as much.
        half = below / 2 if below < np.inf else 1.0
        part = max((part * precision + 1 / half) / (precision + half**-2), half / 8)
        totals = totals + part * masses
        variances = variances + masses**2 / (precision + half**-2)
        below = part
    return totals, variances


def _solve(matrix: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Solves a small symmetric system, with a ridge so small that it only prevents division by 0."""
    ridge = 1e-9 * np.trace(matrix) / len(matrix)
    return np.linalg.solve(matrix + ridge * np.eye(len(matrix)), values)


def _inverse(matrix: np.ndarray) -> np.ndarray:
    return np.stack([_solve(matrix, row) for row in np.eye(len(matrix))], axis=1)


def _log(values: np.ndarray | float) -> np.ndarray:
    """Returns the logarithm, rounded so that processors with other last digits agree."""
    return np.rint(np.log(values) * _DIGITS) / _DIGITS


def _exp(values: np.ndarray) -> np.ndarray:
    return np.exp(np.rint(values * _DIGITS) / _DIGITS)
