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
import math

import numpy as np
from scipy import special

from beam_dpne.counts.measuring import MeasuredCounts
from beam_dpne.counts.rule import CountRule

# Of the regression log κ = β_0 + β_1 (k − 1) + β_2 log mass: what public titles give, and how far other
# text may be from it.
SLOPES, SLOPE_STDDEVS = (0.02, -0.12), (0.06, 0.07)
# Spread of κ among rows of one group: 0.08² + 0.7 / users, relative, squared (public titles).
FACTOR_VARIANCE, FACTOR_VARIANCE_OF_FEW = 0.08**2, 0.7
# Text about many subjects has more of it (the shipped sample, and the titles that it is a part of): by
# this factor before the totals, whose evidence has to outweigh this number of rows.
FACTOR_SCALE, FACTOR_ROWS = 1.5, 5.0
# Spread of κ among groups around the regression, relative, squared (public titles).
GROUP_VARIANCE = 0.05**2
# Spread of masses around the curve that is expected before the data, relative, and its weight in rows.
SPREAD, SPREAD_ROWS = 0.35, 5.0
# The expected rows of a class of users may be wrong by this factor of themselves; and each class above
# the last one that is clearly there is expected to have this many times fewer users (public titles).
PROFILE, FALL = 4.0, 2.5
# Standard deviations: below the first, noise alone explains the sums of a class of users; only above
# the second, such a class is there whatever the classes below say. A release has about 25 classes, so
# chance passes the first one often and the second one hardly ever (public titles, and the same with
# their words merged into 17 and 30 kinds).
NOTICED, CERTAIN = 2.0, 4.0
ROWS_OF_A_KNOT, MOST_KNOTS = 40, 8
CONFIDENCE = 0.95
# Ends of intervals are integers that every format can hold.
MOST_USERS = 2.0**53
_DIGITS = 2.0**30
_PASSES = 25
_HALVINGS = 30


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


def estimate_users(
    measured: MeasuredCounts,
    rule: CountRule,
    scores: np.ndarray,
    parents: np.ndarray | None = None,
) -> Estimates:
    """Returns the estimates for all rows.

    Args:
      measured: the noisy sums.
      rule: the rule by which they were measured.
      scores: (n,) float64, the scores of the rows.
      parents: (n, p) int64, earlier rows that every user of a row holds as well, such as its prefix, or
        -1; None if there are none.
    """
    if not scores.size:
        none = np.zeros(0, np.int64)
        return Estimates(users=none, low=none, high=none)
    curve, spread = _curves(measured, rule, scores)
    noise = measured.mass_stddevs**2
    prior = (spread * curve) ** 2
    masses = (measured.masses * prior + curve * noise) / (prior + noise)
    masses, variances = _positive(masses, np.sqrt(prior * noise / (prior + noise)))
    users, relative = _Model.of(measured, rule, masses, variances).users()
    # The ends are those of a log-normal number with this relative standard deviation. Its logarithm has
    # this standard deviation.
    stddevs = np.sqrt(_log(1 + relative**2))
    reach = _exp(special.ndtri(0.5 + CONFIDENCE / 2) * stddevs)
    estimates = np.minimum(np.stack((users, users / reach, users * reach)), MOST_USERS)
    if parents is not None:
        _bound_by_parents(estimates, rule, parents)
    return Estimates(
        users=np.rint(estimates[0]).astype(np.int64),
        low=np.floor(estimates[1]).astype(np.int64),
        high=np.ceil(estimates[2]).astype(np.int64),
    )


def _positive(means: np.ndarray, stddevs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and relative variance of normal numbers, given that they are positive: (n,) each."""
    # The inverse Mills ratio φ/Φ by the scaled complementary error function, which does not underflow.
    places = np.maximum(means / stddevs, -30.0)
    mills = math.sqrt(2 / math.pi) / special.erfcx(-places / math.sqrt(2))
    positive = stddevs * (places + mills)
    variances = stddevs**2 * np.maximum(1 - mills * (mills + places), 1e-12)
    return positive, variances / positive**2


def _bound_by_parents(estimates: np.ndarray, rule: CountRule, parents: np.ndarray) -> None:
    """Lowers estimates and ends of intervals to those of the parents, from short rows to long ones.

    Args:
      estimates: (3, n) float64, changed in place.
      rule: the rule by which the rows were measured.
      parents: (n, p) int64, rows of shorter lengths, or -1.
    """
    for first, last in zip(rule.offsets[:-1], rule.offsets[1:], strict=True):
        rows = slice(int(first), int(last))
        for parent in parents[rows].T:
            bounds = np.where(parent >= 0, estimates[:, parent], np.inf)
            estimates[:, rows] = np.minimum(estimates[:, rows], bounds)


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
    squares = np.clip(squares, 0.05**2, 9.0)
    return curve, np.sqrt(basis @ squares)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class _Model:
    """log n = log mass + X β + δ_group + ε_row, observed as totals of groups: Σ n + error.

    Totals are in units of the group's mass, so that matrices are well scaled.

    Attributes:
      groups: (n,) int64, the group of each row.
      masses: (n,) float64, estimated masses.
      units: (g,) float64, the sums of masses of the groups.
      mass_variances: (n,) float64, the variance of the masses' errors, relative and squared.
      columns: (n, 3) float64, X: one, the length, and the log mass minus its mean.
      totals: (g,) float64, the totals.
      errors: (g, g) float64, the covariance of the totals' errors: the noise of each group, and an
        error for each class of users whose part is unclear, which all groups share.
    """

    groups: np.ndarray
    masses: np.ndarray
    units: np.ndarray
    mass_variances: np.ndarray
    columns: np.ndarray
    totals: np.ndarray
    errors: np.ndarray

    @classmethod
    def of(
        cls, measured: MeasuredCounts, rule: CountRule, masses: np.ndarray, variances: np.ndarray
    ) -> "_Model":
        """Returns the model for estimated masses and their relative variances, (n,) each."""
        logs = _log(masses)
        middle = float(np.average(logs, weights=masses))
        units = np.bincount(rule.groups, masses, minlength=rule.group_weights.size)
        totals, errors = _totals(measured, rule, masses, units)
        return cls(
            groups=rule.groups,
            masses=masses,
            units=units,
            mass_variances=variances,
            columns=np.stack((np.ones(masses.size), _lengths(rule), logs - middle), axis=1),
            totals=totals,
            errors=errors,
        )

    def users(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the users of each row, and the standard deviation of their relative error."""
        expected = np.array([0.0, *SLOPES])
        precision = np.diag([1e-6, *(1 / stddev**2 for stddev in SLOPE_STDDEVS)])
        coefficients = expected.copy()
        coefficients[0] = float(_log(max(np.average(self.totals, weights=self.units), 1.0)))
        scale = FACTOR_SCALE
        for _ in range(_PASSES):
            fit = self._fit(coefficients, scale)
            scale = fit.scale_of_factors()
            step = fit.jacobian.T @ fit.weights @ fit.residual
            step = step - precision @ (coefficients - expected)
            step = _solve(fit.jacobian.T @ fit.weights @ fit.jacobian + precision, step)
            coefficients = coefficients + np.clip(step, -0.5, 0.5)
        fit = self._fit(coefficients, scale)
        return self._predict(fit, _inverse(fit.jacobian.T @ fit.weights @ fit.jacobian + precision))

    def _fit(self, coefficients: np.ndarray, scale: float) -> "_Fit":
        users = self.masses * _exp(self.columns @ coefficients)
        relative = FACTOR_VARIANCE + FACTOR_VARIANCE_OF_FEW / np.maximum(users, 1)
        factors = self._totals_of_groups(users**2 * relative) / self.units
        variances = users**2 * (self.mass_variances + scale * relative)
        totals = self._totals_of_groups(users)
        spread = self._totals_of_groups(variances) / self.units + GROUP_VARIANCE * totals**2
        covariance = self.errors + np.diag(spread)
        columns = [self._totals_of_groups(users * column) for column in self.columns.T]
        return _Fit(
            users=users,
            variances=variances,
            totals=totals,
            jacobian=np.stack(columns, axis=1),
            weights=_inverse(covariance),
            variances_of_totals=np.diag(covariance) - scale * factors,
            factors=factors,
            scale=scale,
            residual=self.totals - totals,
        )

    def _totals_of_groups(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self.groups, values, minlength=self.units.size) / self.units

    def _predict(self, fit: "_Fit", covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the best linear prediction of the users, given the covariance of the coefficients."""
        # (n,): covariance of each row's users with the total of its group.
        shared = fit.variances / self.units[self.groups]
        shared = shared + GROUP_VARIANCE * fit.users * fit.totals[self.groups]
        users = fit.users + shared * (fit.weights @ fit.residual)[self.groups]
        users = np.maximum(users, fit.users / 4)
        own = fit.variances + GROUP_VARIANCE * fit.users**2
        explained = shared**2 * np.diag(fit.weights)[self.groups]
        drift = fit.users[:, np.newaxis] * self.columns
        drift = drift - shared[:, np.newaxis] * (fit.weights @ fit.jacobian)[self.groups]
        variances = own - explained + ((drift @ covariance) * drift).sum(axis=1)
        return users, np.sqrt(np.maximum(variances, 0)) / users


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class _Fit:
    """The model at one value of its coefficients.

    Attributes:
      users: (n,) float64, mass · exp(X β).
      variances: (n,) float64, the variance of each row's error, in users squared.
      totals: (g,) float64, the expected totals.
      jacobian: (g, 3) float64, the derivatives of the totals with respect to the coefficients.
      weights: (g, g) float64, the inverse covariance of the observed totals.
      residual: (g,) float64, the observed totals minus the expected ones.
      scale: the variance of κ among rows, in units of the expected one.
      factors: (g,) float64, the part of the observed totals' variances for a scale of 1.
      variances_of_totals: (g,) float64, the rest of these variances.
    """

    users: np.ndarray
    variances: np.ndarray
    totals: np.ndarray
    jacobian: np.ndarray
    weights: np.ndarray
    residual: np.ndarray
    scale: float
    factors: np.ndarray
    variances_of_totals: np.ndarray

    def scale_of_factors(self) -> float:
        """Estimates the scale from the residuals, by moments and with a prior."""
        weights = self.factors / (self.variances_of_totals + self.scale * self.factors) ** 2
        excess = float(weights @ (self.residual**2 - self.variances_of_totals))
        known = float(weights @ self.factors)
        return float(np.clip((excess + FACTOR_ROWS * FACTOR_SCALE) / (known + FACTOR_ROWS), 0.5, 8))


def _totals(
    measured: MeasuredCounts, rule: CountRule, masses: np.ndarray, units: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the total of each group over all classes, and the covariance of the errors, in units.

    The numbers of pairs of one class are N_j users times the profile v_G of such a user, give or take
    `PROFILE` times as many. N_j and the pairs of each group are learned from noisy pairs. Few users or
    none belong to the upper classes, whose noise is the largest. Unless N_j is above `CERTAIN` standard
    deviations, it is combined with an expectation: the users of the class below divided by `FALL`, give
    or take as many. Below `NOTICED` standard deviations, no more than one of them is expected, divided
    by `FALL` as well.
    """
    totals, errors = np.zeros(units.size), np.zeros((units.size, units.size))
    below = np.inf
    for j, bound in enumerate(rule.bounds.tolist()):
        profile = _profile(rule, masses, bound)
        pairs, noise = measured.totals[:, j], measured.total_stddevs[:, j] ** 2
        precision = float((profile**2 / noise).sum())
        users = float((profile * pairs / noise).sum()) / precision
        stddev = precision**-0.5
        if users > CERTAIN * stddev:
            below = users
        else:
            noticed = users > NOTICED * stddev and below < np.inf
            expected = (below if noticed else min(below, stddev)) / FALL
            users = users * precision + 1 / expected
            precision += expected**-2
            # A class is never taken for empty.
            users = max(users / precision, expected / FALL)
            below = min(below, users)
        spread = (PROFILE * users * profile) ** 2
        gain = spread / (spread + noise)
        totals = totals + users * profile + gain * (pairs - users * profile)
        shared = (1 - gain) * profile
        errors = errors + np.diag(gain * noise) + np.outer(shared, shared) / precision
    return totals / units, errors / np.outer(units, units)


def _profile(rule: CountRule, masses: np.ndarray, bound: int) -> np.ndarray:
    """Returns the expected number of rows of each group that a user of a class holds: (g,) float64.

    A user holds a row with a probability in proportion to its mass, up to 1. The factor is found by
    halving, so that the norm √(Σ (c d)²) is in the middle between the class's bound and the one below.
    """
    low, high = -60.0, 60.0
    scaled = masses / masses.max()
    size = rule.group_weights.size
    held = np.zeros(size)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        held = np.bincount(rule.groups, np.minimum(1, scaled * 2.0**middle), minlength=size)
        norm = math.sqrt(float(((held * rule.group_weights) ** 2).sum()))
        low, high = (middle, high) if norm < 0.75 * bound else (low, middle)
    return held


def _solve(matrix: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Solves a symmetric system, with a ridge so small that it only prevents division by 0."""
    ridge = 1e-9 * np.trace(matrix) / len(matrix)
    return np.linalg.solve(matrix + ridge * np.eye(len(matrix)), values)


def _inverse(matrix: np.ndarray) -> np.ndarray:
    return _solve(matrix, np.eye(len(matrix)))


def _log(values: np.ndarray | float) -> np.ndarray:
    """Returns the logarithm, rounded so that processors with other last digits agree."""
    return np.rint(np.log(values) * _DIGITS) / _DIGITS


def _exp(values: np.ndarray) -> np.ndarray:
    return np.exp(np.rint(values * _DIGITS) / _DIGITS)
