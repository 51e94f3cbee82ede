"""What the noisy sums say in the mean: how many users each class has, and how many of them hold a row.

Of the rows of one length whose score predicts about x users, the part of a class that holds one of them
is 1 − exp(−exp(h(log x) + b_c)): a height h that grows with the score, and a slant b_c that grows with
the size of the class's users, who hold more rows because they have more text. Heights are free at a few
places and linear between them, slants are free, and both are drawn towards what text does if nothing is
known of it. All are found by least squares from sums over many rows (Gauss-Newton).

A group may have users unlike all the others. Its curves deviate from those of all rows: its slants by
the same numbers at all lengths, and its heights. The deviations are drawn towards 0, so that a group
with few rows has about the curves of all. A group whose sums are more likely under the curves of all
rows than under its own (Laplace's approximation of the evidence) has no curves of its own.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy

# The curve is free at the ends of these ranks.
_ENDS = (5, 15, 40)
# What is expected before the data, with standard deviations: how slants grow from class to class (the
# number of rows that users hold grows with the square of their size, up to e², and less where text
# repeats), by how much a class deviates from that, and how heights grow with the logarithm of
# predictions.
_SLANT = 1.0
_SLANT_STDDEV = 0.5
_CLASS_STDDEV = 0.7
_GROWTH = 1.0
_GROWTH_STDDEV = 0.35
_STEP_STDDEV = 0.05
# The relative error of the curve itself, which keeps sums with little noise from bending it.
_MISFIT = 0.15
# How far the curves of a group deviate from those of all rows: its heights together, its slants, their
# second differences from class to class, and the slant of a class that is not clear.
_GROUP_HEIGHT_STDDEV = 1.0
_GROUP_SLANT_STDDEV = 4.0
_GROUP_BEND_STDDEV = 1.0
_GROUP_UNCLEAR_STDDEV = 0.5
_HALVINGS = 40
_STEPS = 20
# A class is there if its number of users is so many standard deviations above 0. If it is not, it is
# expected to have so many times fewer users than the class below.
_CLEAR = 3.0
_FALL = 4.0
_FEWEST = 0.25


class Sizes(NamedTuple):
    """How many users each class has.

    Attributes:
      users: (C,) float64 > 0, the expected numbers.
      clear: (C,) bool, whether the class is there beyond doubt.
    """

    users: np.ndarray
    clear: np.ndarray


def expected_sizes(noisy: np.ndarray, stddev: float) -> Sizes:
    """Returns the expected numbers of users of classes from noisy ones, (C,) float64.

    Where noise explains a number, the number is positive, with an exponential law whose mean is a
    fourth of the class below.
    """
    clear = noisy > _CLEAR * stddev
    users = np.where(clear, noisy, 0.0)
    for place in np.flatnonzero(~clear).tolist():
        below = users[place - 1] if place else stddev
        # An exponential law times the normal one is a normal one that begins at 0.
        center = (noisy[place] - stddev**2 / max(below / _FALL, _FEWEST)) / stddev
        # The inverse Mills ratio by the scaled complementary error function, which does not underflow.
        center = max(center, -30.0)
        mills = math.sqrt(2 / math.pi) / scipy.special.erfcx(-center / math.sqrt(2))
        users[place] = stddev * (center + mills)
    return Sizes(users, clear)


class Curve(NamedTuple):
    """The expected part of each class that holds a row, by the logarithm of the row's prediction.

    Attributes:
      places: (B,) float64, descending logarithms.
      heights: (B,) float64, the heights there; beyond them they grow like the logarithm.
      slants: (C,) float64.
    """

    places: np.ndarray
    heights: np.ndarray
    slants: np.ndarray

    def height(self, places: np.ndarray) -> np.ndarray:
        """Returns the heights at some logarithms."""
        inside = np.interp(places, self.places[::-1], self.heights[::-1])
        outside = np.maximum(places - self.places[0], 0) + np.minimum(places - self.places[-1], 0)
        return inside + outside


class Means(NamedTuple):
    """Means over the rows of each of B bins, from the highest predictions to the lowest.

    Attributes:
      places: (B,) float64, logarithms of predictions.
      numbers: (B, C) float64, noisy numbers of users in each class.
      masses: (B,) float64, noisy masses.
      number_variances: (B, C) float64, variances of their noise.
      mass_variances: (B,) float64.
    """

    places: np.ndarray
    numbers: np.ndarray
    masses: np.ndarray
    number_variances: np.ndarray
    mass_variances: np.ndarray

    @classmethod
    def joined(cls, several: Sequence["Means"]) -> "Means":
        """Returns the bins of several means, one after the other."""
        return cls(*(np.concatenate(columns) for columns in zip(*several, strict=True)))


def bins_of(order: np.ndarray) -> list[np.ndarray]:
    """Cuts rows, the highest prediction first, into bins that grow by factors of 2."""
    doubled = itertools.takewhile(lambda end: end < order.size, (100 * 2**i for i in range(60)))
    ends = [end for end in (*_ENDS, *doubled) if end < 0.75 * order.size]
    return np.split(order, ends)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class _LeastSquares:
    """Parameters of curves, which are found from means over B bins.

    The logarithms of the rates of C classes in the bins are base + design · parameters.

    Attributes:
      means: the means.
      users: (C,) float64, the numbers of users of the classes.
      bounds: (C,) float64, M_c: a row's mass is Σ numbers / M_c.
      base: what is added to the logarithms, which (B, C) float64 has the shape of.
      design: (B, C, P) float64.
      expected: (P,) float64, the parameters that are expected before the data.
      precision: (P, P) float64, the precision of this expectation.
    """

    means: Means
    users: np.ndarray
    bounds: np.ndarray
    base: np.ndarray
    design: np.ndarray
    expected: np.ndarray
    precision: np.ndarray

    def model(self, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the numbers of users to expect, and their slopes by the rates' logarithms: (B, C)."""
        rates = np.exp(np.minimum(self.base + self.design @ parameters, 30))
        return self.users * -np.expm1(-rates), self.users * np.exp(-rates) * rates

    def _weights(self, numbers: np.ndarray, masses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the precision of the numbers, (B, C), and of the masses, (B,)."""
        means = self.means
        weights = 1 / (means.number_variances + (_MISFIT * numbers) ** 2 + 1e-9)
        return weights, 1 / (means.mass_variances + (_MISFIT * masses) ** 2 + 1e-12)

    def _equations(self, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the normal matrix, (P, P), and the right side of a step of Gauss-Newton, (P,)."""
        means = self.means
        numbers, slopes = self.model(parameters)
        masses = numbers @ (1 / self.bounds)
        weights, mass_weights = self._weights(numbers, masses)
        jacobian = slopes[:, :, np.newaxis] * self.design
        of_masses = np.moveaxis(jacobian, 1, 2) @ (1 / self.bounds)
        flat = jacobian.reshape(-1, self.expected.size)
        normal = flat.T @ (weights.reshape(-1, 1) * flat) + self.precision
        normal += of_masses.T @ (mass_weights[:, np.newaxis] * of_masses)
        right = flat.T @ (weights * (means.numbers - numbers)).reshape(-1)
        right += of_masses.T @ (mass_weights * (means.masses - masses))
        right -= self.precision @ (parameters - self.expected)
        return normal, right

    def solved(self, start: np.ndarray) -> np.ndarray:
        """Returns the parameters that fit best, (P,) float64."""
        parameters = start
        for _ in range(_STEPS):
            normal, right = self._equations(parameters)
            parameters = parameters + np.clip(np.linalg.solve(normal, right), -1, 1)
        return parameters

    def log_likelihood(self, parameters: np.ndarray) -> float:
        """Returns the logarithm of the likelihood of the means, up to a constant."""
        numbers, _ = self.model(parameters)
        masses = numbers @ (1 / self.bounds)
        weights, mass_weights = self._weights(numbers, masses)
        of_numbers = np.log(weights) - weights * (self.means.numbers - numbers) ** 2
        of_masses = np.log(mass_weights) - mass_weights * (self.means.masses - masses) ** 2
        return 0.5 * float(of_numbers.sum() + of_masses.sum())

    def log_evidence(self, parameters: np.ndarray) -> float:
        """Returns the logarithm of the means' likelihood over all parameters, up to the same constant.

        Args:
          parameters: those that fit best.
        """
        normal, _ = self._equations(parameters)
        away = parameters - self.expected
        occam = np.linalg.slogdet(self.precision)[1] - np.linalg.slogdet(normal)[1]
        return self.log_likelihood(parameters) + 0.5 * float(occam - away @ self.precision @ away)


def fit_curve(means: Means, users: np.ndarray, bounds: np.ndarray) -> Curve:
    """Fits the curve to means over bins.

    Args:
      means: the means.
      users: (C,) float64, the numbers of users of the classes.
      bounds: (C,) float64, M_c: a row's mass is Σ numbers / M_c.
    """
    bins, classes = means.numbers.shape
    expected, precision = _expectation(means.places, classes)
    # The parameters are heights, the growth of slants, and deviations from it.
    steps = np.arange(classes) - (classes - 1.0)
    design = np.zeros((bins, classes, expected.size))
    design[np.arange(bins), :, np.arange(bins)] = 1
    design[:, :, bins] = steps
    design[:, np.arange(classes), bins + 1 + np.arange(classes)] = 1
    # The heights at the beginning give the masses together.
    total = max(means.masses.sum(), math.sqrt(means.mass_variances.sum()))
    low = -40.0
    high = 20.0
    moved = expected
    squares = _LeastSquares(
        means=means,
        users=users,
        bounds=bounds,
        base=np.zeros(1),
        design=design,
        expected=expected,
        precision=precision,
    )
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        moved = expected + middle * (np.arange(expected.size) < bins)
        is_low = (squares.model(moved)[0] / bounds).sum() < total
        low, high = (middle, high) if is_low else (low, middle)
    parameters = dataclasses.replace(squares, expected=moved).solved(moved)
    slants = parameters[bins] * steps + parameters[bins + 1 :]
    return Curve(means.places, parameters[:bins], slants)


def fit_group(
    means: Sequence[Means], curves: Sequence[Curve], sizes: Sizes, bounds: np.ndarray
) -> list[Curve] | None:
    """Fits the curves of a group at some lengths, or returns None if the group is like all rows.

    Args:
      means: the means over bins of the group's rows of each length.
      curves: the curves of all rows of these lengths.
      sizes: the numbers of users of the classes, and whether they are clear.
      bounds: (C,) float64, M_c: a row's mass is Σ numbers / M_c.
    """
    joined = Means.joined(means)
    bins, classes = joined.numbers.shape
    # The parameters are deviations: of the heights of all lengths, and of slants.
    design = np.zeros((bins, classes, bins + classes))
    design[np.arange(bins), :, np.arange(bins)] = 1
    design[:, np.arange(classes), bins + np.arange(classes)] = 1
    squares = _LeastSquares(
        means=joined,
        users=sizes.users,
        bounds=bounds,
        base=np.concatenate(
            [
                curve.height(each.places)[:, np.newaxis] + curve.slants
                for each, curve in zip(means, curves, strict=True)
            ]
        ),
        design=design,
        expected=np.zeros(bins + classes),
        precision=_group_precision([each.places for each in means], sizes.clear),
    )
    parameters = squares.solved(squares.expected)
    if squares.log_evidence(parameters) <= squares.log_likelihood(squares.expected):
        return None
    ends = np.cumsum([each.places.size for each in means])
    *heights, slants = np.split(parameters, ends)
    return [
        Curve(each.places, curve.height(each.places) + height, curve.slants + slants)
        for each, curve, height in zip(means, curves, heights, strict=True)
    ]


def _group_precision(places: Sequence[np.ndarray], clear: np.ndarray) -> np.ndarray:
    """Returns the precision of a group's deviations from 0: heights of each length, then slants.

    Args:
      places: the places of the bins of each length.
      clear: (C,) bool, whether each class is there beyond doubt.
    """
    variances = [np.full(each.size, each.size * _GROUP_HEIGHT_STDDEV**2) for each in places]
    of_slants = np.where(clear, _GROUP_SLANT_STDDEV, _GROUP_UNCLEAR_STDDEV)
    variances.append(of_slants**2)
    precision = np.diag(1 / np.concatenate(variances))
    first = 0
    for each in places:
        _add_steps(precision[first : first + each.size, first : first + each.size], each)
        first += each.size
    bend = np.array([1.0, -2.0, 1.0]) / _GROUP_BEND_STDDEV
    for place in range(first, first + clear.size - 2):
        if clear[place - first : place - first + 3].all():
            precision[place : place + 3, place : place + 3] += np.outer(bend, bend)
    return precision


def _expectation(places: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the expected parameters, (B + 1 + C,), and their precision, but for the level."""
    bins = places.size
    expected = np.zeros(bins + 1 + classes)
    expected[:bins] = _GROWTH * (places - places.mean())
    expected[bins] = _SLANT
    # A little precision of each height, so that the level is not quite free.
    diagonal = [1e-4] * bins + [_SLANT_STDDEV**-2] + [_CLASS_STDDEV**-2] * classes
    precision = np.diag(diagonal)
    _add_steps(precision, places)
    return expected, precision


def _add_steps(precision: np.ndarray, places: np.ndarray) -> None:
    """Adds the precision of the steps between neighbouring heights, which come first."""
    for place, step in enumerate(np.diff(places).tolist()):
        pair = slice(place, place + 2)
        weight = 1 / (_GROWTH_STDDEV * abs(step) + _STEP_STDDEV) ** 2
        precision[pair, pair] += weight * np.array([[1.0, -1.0], [-1.0, 1.0]])
