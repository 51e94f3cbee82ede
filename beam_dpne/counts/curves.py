"""What the noisy sums say in the mean: how many users each class has, and how many of them hold a row.

Of the rows of one length whose score predicts about x users, the part of a class that holds one of them
is 1 − exp(−exp(h(log x) + b_c)): a height h that grows with the score, and a slant b_c that grows with
the size of the class's users, who hold more rows because they have more text. Heights are free at a few
places and linear between them, slants are free, and both are drawn towards what text does if nothing is
known of it. All are found by least squares from sums over many rows (Gauss-Newton).
"""

import itertools
import math
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


def bins_of(order: np.ndarray) -> list[np.ndarray]:
    """Cuts rows, the highest prediction first, into bins that grow by factors of 2."""
    doubled = itertools.takewhile(lambda end: end < order.size, (100 * 2**i for i in range(60)))
    ends = [end for end in (*_ENDS, *doubled) if end < 0.75 * order.size]
    return np.split(order, ends)


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

    def model(parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rates = np.exp(np.minimum(design @ parameters, 30))
        return users * -np.expm1(-rates), users * np.exp(-rates) * rates

    # The heights at the beginning give the masses together.
    total = max(means.masses.sum(), math.sqrt(means.mass_variances.sum()))
    low = -40.0
    high = 20.0
    moved = expected
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        moved = expected + middle * (np.arange(expected.size) < bins)
        low, high = (middle, high) if (model(moved)[0] / bounds).sum() < total else (low, middle)
    expected = parameters = moved
    for _ in range(_STEPS):
        numbers, slopes = model(parameters)
        masses = numbers @ (1 / bounds)
        weights = 1 / (means.number_variances + (_MISFIT * numbers) ** 2 + 1e-9)
        mass_weights = 1 / (means.mass_variances + (_MISFIT * masses) ** 2 + 1e-12)
        jacobian = slopes[:, :, np.newaxis] * design
        of_masses = np.moveaxis(jacobian, 1, 2) @ (1 / bounds)
        flat = jacobian.reshape(-1, expected.size)
        normal = flat.T @ (weights.reshape(-1, 1) * flat) + precision
        normal += of_masses.T @ (mass_weights[:, np.newaxis] * of_masses)
        right = flat.T @ (weights * (means.numbers - numbers)).reshape(-1)
        right += of_masses.T @ (mass_weights * (means.masses - masses))
        right -= precision @ (parameters - expected)
        parameters = parameters + np.clip(np.linalg.solve(normal, right), -1, 1)
    slants = parameters[bins] * steps + parameters[bins + 1 :]
    return Curve(means.places, parameters[:bins], slants)


def _expectation(places: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the expected parameters, (B + 1 + C,), and their precision, but for the level."""
    bins = places.size
    expected = np.zeros(bins + 1 + classes)
    expected[:bins] = _GROWTH * (places - places.mean())
    expected[bins] = _SLANT
    # A little precision of each height, so that the level is not quite free.
    diagonal = [1e-4] * bins + [_SLANT_STDDEV**-2] + [_CLASS_STDDEV**-2] * classes
    precision = np.diag(diagonal)
    for place, step in enumerate(np.diff(places).tolist()):
        pair = slice(place, place + 2)
        weight = 1 / (_GROWTH_STDDEV * abs(step) + _STEP_STDDEV) ** 2
        precision[pair, pair] += weight * np.array([[1.0, -1.0], [-1.0, 1.0]])
    return expected, precision
