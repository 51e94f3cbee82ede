"""How many users a unit of mass stands for: the model of the factor κ, fitted to totals of groups.

log n = log mass + X β + δ_group + ε_row, observed as noisy totals of groups. What is kept of a row is
its mass, that mass's logarithm and error; all else is computed in blocks of rows, again in each step.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from beam_dpne.counts.rule import CountRule, MeasuredCounts, blocks

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
# The expected rows of a class of users may be wrong by this factor of themselves; and each class above
# the last one that is clearly there is expected to have this many times fewer users (public titles).
PROFILE, FALL = 4.0, 2.5
# Standard deviations: below the first, noise alone explains the sums of a class of users; only above
# the second, such a class is there whatever the classes below say. A release has about 25 classes, so
# chance passes the first one often and the second one hardly ever (public titles, and the same with
# their words merged into 17 and 30 kinds).
NOTICED, CERTAIN = 2.0, 4.0
_PASSES = 25
_HALVINGS = 30
# Sums whose last digits depend on blocks go over blocks of this size: a length of fewer rows is one
# block, so that its estimates do not depend on blocks at all.
_ROWS_OF_A_LARGE_BLOCK = 2**18
_DIGITS = 2.0**30


class Block(NamedTuple):
    """What the model says of a block of rows at one value of its coefficients.

    Attributes:
      groups: (m,) int64, the group of each row.
      columns: (m, 3) float64, X: one, the length, and the log mass minus its mean.
      users: (m,) float64, mass · exp(X β).
      variances: (m,) float64, the variance of each row's error, in users squared.
      factors: (m,) float64, the part of the totals' variances for a scale of 1, in users squared.
    """

    groups: np.ndarray
    columns: np.ndarray
    users: np.ndarray
    variances: np.ndarray
    factors: np.ndarray


class Fit(NamedTuple):
    """The model at one value of its coefficients.

    Attributes:
      coefficients: (3,) float64, β.
      scale: the variance of κ among rows, in units of the expected one.
      totals: (g,) float64, the expected totals.
      jacobian: (g, 3) float64, the derivatives of the totals with respect to the coefficients.
      weights: (g, g) float64, the inverse covariance of the observed totals.
      residual: (g,) float64, the observed totals minus the expected ones.
      factors: (g,) float64, the part of the observed totals' variances for a scale of 1.
      variances_of_totals: (g,) float64, the rest of these variances.
    """

    coefficients: np.ndarray
    scale: float
    totals: np.ndarray
    jacobian: np.ndarray
    weights: np.ndarray
    residual: np.ndarray
    factors: np.ndarray
    variances_of_totals: np.ndarray

    def scale_of_factors(self) -> float:
        """Estimates the scale from the residuals, by moments and with a prior."""
        weights = self.factors / (self.variances_of_totals + self.scale * self.factors) ** 2
        excess = float(weights @ (self.residual**2 - self.variances_of_totals))
        known = float(weights @ self.factors)
        return float(np.clip((excess + FACTOR_ROWS * FACTOR_SCALE) / (known + FACTOR_ROWS), 0.5, 8))


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class FactorModel:
    """The model of κ for the masses of all rows.

    Totals are in units of the group's mass, so that matrices are well scaled.

    Attributes:
      rule: the rule by which the rows were measured.
      masses: (n,) float64, estimated masses.
      logs: (n,) float64, their logarithms.
      middle: the mean of the logarithms.
      mass_variances: (n,) float64, the variance of the masses' errors, relative and squared.
      units: (g,) float64, the sums of masses of the groups.
      totals: (g,) float64, the totals.
      errors: (g, g) float64, the covariance of the totals' errors: the noise of each group, and an
        error for each class of users whose part is unclear, which all groups share.
    """

    rule: CountRule
    masses: np.ndarray
    logs: np.ndarray
    middle: float
    mass_variances: np.ndarray
    units: np.ndarray
    totals: np.ndarray
    errors: np.ndarray

    @classmethod
    def of(
        cls, measured: MeasuredCounts, rule: CountRule, masses: np.ndarray, variances: np.ndarray
    ) -> "FactorModel":
        """Returns the model for estimated masses and their relative variances, (n,) each."""
        units = np.zeros(rule.group_weights.size)
        for rows in blocks(0, masses.size):
            np.add.at(units, rule.groups[rows], masses[rows])
        totals, errors = _totals(measured, rule, masses, units)
        logs = np.empty(masses.size)
        for rows in blocks(0, masses.size):
            logs[rows] = log(masses[rows])
        return cls(
            rule=rule,
            masses=masses,
            logs=logs,
            middle=weighted_mean(logs, masses),
            mass_variances=variances,
            units=units,
            totals=totals,
            errors=errors,
        )

    def fitted(self) -> tuple[Fit, np.ndarray]:
        """Returns the model at its best coefficients, and their covariance, (3, 3) float64."""
        expected = np.array([0.0, *SLOPES])
        precision = np.diag([1e-6, *(1 / stddev**2 for stddev in SLOPE_STDDEVS)])
        coefficients = expected.copy()
        coefficients[0] = float(log(max(np.average(self.totals, weights=self.units), 1.0)))
        scale = FACTOR_SCALE
        for _ in range(_PASSES):
            fit = self._fit(coefficients, scale)
            scale = fit.scale_of_factors()
            step = fit.jacobian.T @ fit.weights @ fit.residual
            step = step - precision @ (coefficients - expected)
            step = solve(fit.jacobian.T @ fit.weights @ fit.jacobian + precision, step)
            coefficients = coefficients + np.clip(step, -0.5, 0.5)
        fit = self._fit(coefficients, scale)
        return fit, _inverse(fit.jacobian.T @ fit.weights @ fit.jacobian + precision)

    def _fit(self, coefficients: np.ndarray, scale: float) -> Fit:
        # (6, g) float64: sums over the rows of each group, of users, variances, factors and
        # derivatives.
        sums = np.zeros((6, self.units.size))
        for rows in blocks(0, self.masses.size):
            block = self.block(rows, coefficients, scale)
            derivatives = (block.users * column for column in block.columns.T)
            columns = (block.users, block.variances, block.factors, *derivatives)
            for total, values in zip(sums, columns, strict=True):
                np.add.at(total, block.groups, values)
        sums /= self.units
        totals, variances, factors = sums[:3]
        factors = factors / self.units
        spread = variances / self.units + GROUP_VARIANCE * totals**2
        covariance = self.errors + np.diag(spread)
        return Fit(
            coefficients=coefficients,
            scale=scale,
            totals=totals,
            jacobian=np.stack(list(sums[3:]), axis=1),
            weights=_inverse(covariance),
            residual=self.totals - totals,
            factors=factors,
            variances_of_totals=np.diag(covariance) - scale * factors,
        )

    def block(self, rows: slice, coefficients: np.ndarray, scale: float) -> Block:
        """Returns what the model says of some rows."""
        columns = np.stack(
            (
                np.ones(rows.stop - rows.start),
                _lengths(self.rule, rows),
                self.logs[rows] - self.middle,
            ),
            axis=1,
        )
        users = self.masses[rows] * exp(columns @ coefficients)
        relative = FACTOR_VARIANCE + FACTOR_VARIANCE_OF_FEW / np.maximum(users, 1)
        return Block(
            groups=self.rule.groups[rows],
            columns=columns,
            users=users,
            variances=users**2 * (self.mass_variances[rows] + scale * relative),
            factors=users**2 * relative,
        )

    def predict(
        self, rows: slice, fit: Fit, covariance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the best linear prediction of the users of some rows.

        Args:
          rows: the rows.
          fit: the fitted model.
          covariance: (3, 3) float64, the covariance of its coefficients.

        Returns:
          The users of each row, and the standard deviation of their relative error.
        """
        block = self.block(rows, fit.coefficients, fit.scale)
        groups = block.groups
        # (m,): covariance of each row's users with the total of its group.
        shared = block.variances / self.units[groups]
        shared = shared + GROUP_VARIANCE * block.users * fit.totals[groups]
        users = block.users + shared * (fit.weights @ fit.residual)[groups]
        users = np.maximum(users, block.users / 4)
        own = block.variances + GROUP_VARIANCE * block.users**2
        explained = shared**2 * np.diag(fit.weights)[groups]
        drift = block.users[:, np.newaxis] * block.columns
        drift = drift - shared[:, np.newaxis] * (fit.weights @ fit.jacobian)[groups]
        variances = own - explained + ((drift @ covariance) * drift).sum(axis=1)
        return users, np.sqrt(np.maximum(variances, 0)) / users


def _lengths(rule: CountRule, rows: slice) -> np.ndarray:
    """Returns k − 1 of some rows: (m,) int64."""
    sizes = np.diff(np.clip(rule.offsets, rows.start, rows.stop))
    return np.repeat(np.arange(sizes.size), sizes)


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
    scaled = masses / masses.max()
    for j, bound in enumerate(rule.bounds.tolist()):
        profile = _profile(rule, scaled, bound)
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


def _profile(rule: CountRule, scaled: np.ndarray, bound: int) -> np.ndarray:
    """Returns the expected number of rows of each group that a user of a class holds: (g,) float64.

    A user holds a row with a probability in proportion to its mass, up to 1. The factor is found by
    halving, so that the norm √(Σ (c d)²) is in the middle between the class's bound and the one below.

    Args:
      rule: the rule of the rows.
      scaled: (n,) float64, the masses of rows, in units of the largest one.
      bound: the class's bound.
    """
    low, high = -60.0, 60.0
    held = np.zeros(rule.group_weights.size)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        held[:] = 0
        for rows in blocks(0, scaled.size):
            np.add.at(held, rule.groups[rows], np.minimum(1, scaled[rows] * 2.0**middle))
        norm = math.sqrt(float(((held * rule.group_weights) ** 2).sum()))
        low, high = (middle, high) if norm < 0.75 * bound else (low, middle)
    return held


def large_blocks(first: int, last: int) -> Iterator[slice]:
    """Yields the rows from `first` up to `last` in blocks for sums that depend on how they are cut."""
    return blocks(first, last, _ROWS_OF_A_LARGE_BLOCK)


def weighted_mean(values: np.ndarray, weights: np.ndarray) -> float:
    """Returns Σ weights·values / Σ weights, of two arrays of equal size."""
    total, norm = 0.0, 0.0
    for rows in large_blocks(0, values.size):
        total += float((values[rows] * weights[rows]).sum())
        norm += float(weights[rows].sum())
    return total / norm


def solve(matrix: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Solves a symmetric system, with a ridge so small that it only prevents division by 0."""
    ridge = 1e-9 * np.trace(matrix) / len(matrix)
    return np.linalg.solve(matrix + ridge * np.eye(len(matrix)), values)


def _inverse(matrix: np.ndarray) -> np.ndarray:
    return solve(matrix, np.eye(len(matrix)))


def log(values: np.ndarray | float) -> np.ndarray:
    """Returns the logarithm, rounded so that processors with other last digits agree."""
    return np.rint(np.log(values) * _DIGITS) / _DIGITS


def exp(values: np.ndarray) -> np.ndarray:
    """Returns the exponential function of rounded values, see `log`."""
    return np.exp(np.rint(values * _DIGITS) / _DIGITS)
