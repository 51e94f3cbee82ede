"""How rows of one length differ from the curve: the law of their numbers of users in all classes.

Rows of one score have different numbers of users, and their users different sizes. A row is of one of
many *kinds*, each of which says what numbers to expect in all classes and how far a row may be from
them: its *shift* moves the row along the curve, its *profile* makes some classes hold it more and
others less, and each class deviates freely by a relative spread or by three times that. One more kind
is held by nobody. How many rows are of each kind, the profiles and the spreads are learned from the
noisy sums of this run, whose noise is known, by expectation maximisation; what they do not show is
assumed wide.

Given a kind, numbers of users are normal, and so are the sums; so the law of a row's number of users,
given its sums, is a mixture of normal laws with known weights, means and variances.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from beam_dpne.counts.curves import Curve, Sizes
from beam_dpne.counts.rule import LEVEL_STEP

# (S,) shifts along the logarithm of predictions, in steps of a level; finer in the middle.
_STEPS = (-24, -20, -16, -12, *range(-8, 9), 10, 12)
_SHIFTS = LEVEL_STEP * np.array(_STEPS, np.float64)
# Profiles at the beginning: factors of a linear and of a square term, and where the latter is largest.
_PROFILES = ((0, 0, 0), (0.6, 0, 0), (-0.6, 0, 0), (0, -0.3, -1.5), (0, -0.3, 0), (0, -0.3, 1.5))
_MOST_PROFILE = 5.0
# Multiples of the spread, and how many rows have them before the data: of all rows, and of the first
# ones of a length, which are few and unlike each other.
_MULTIPLES = (1.0, 3.0)
_ROWS_OF_MULTIPLES = (0.7, 0.3)
_FIRST_ROWS_OF_MULTIPLES = (0.5, 0.5)
_NOBODY = 0.005
_FIRST_NOBODY = 0.001
# The spread at first; its least and largest value; and what is assumed of it before the data, squared
# and with this weight, for a class that is there and for one that may not be.
_SPREAD = 0.35
_LEAST_SPREAD = 0.2
_MOST_SPREAD = 1.2
_ASSUMED = 0.5
_ASSUMED_UNCLEAR = 1.0
_ASSUMED_WEIGHT = 16.0
# The expectation of how many rows are of each kind has this weight in rows.
_WEIGHT_IN_ROWS = 20
# The weight of a profile's beginning, in squared standard deviations.
_PROFILE_WEIGHT = 2.0
FIRST_ROWS = 60
_INNER_TURNS = 15
_LEAST = 1e-12


class Sums(NamedTuple):
    """Noisy sums of some rows of one level, whose noise is the same.

    Attributes:
      place: the logarithm of their prediction.
      numbers: (n, C) float64.
      masses: (n,) float64.
      variances: (C,) float64, of the noise of the numbers.
      mass_variance: of the noise of the masses.
    """

    place: float
    numbers: np.ndarray
    masses: np.ndarray
    variances: np.ndarray
    mass_variance: float


class Answers(NamedTuple):
    """What the sums of n rows say if a row is of each of K kinds.

    Attributes:
      likelihoods: (n, K) float64, in units of the largest one of a row.
      means: returns (n, K) float64, the expected numbers of users.
      variances: (K,) float64, of the numbers of users around the means.
    """

    likelihoods: np.ndarray
    means: Callable[[], np.ndarray]
    variances: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Kinds:
    """The kinds of rows of one length, and how many rows are of each kind.

    Kinds are in the order of multiples, shifts and profiles; the last one is held by nobody.

    Attributes:
      curve: the curve of the length.
      users: (C,) float64, the numbers of users of the classes.
      inverse_bounds: (C,) float64, 1/M_c.
      profiles: (J, C) float64, what is added to the slants.
      spreads: (C,) float64, the relative spread of each class.
      parts: (K,) float64, the part of rows that are of each kind.
      first_parts: (K,) float64, the same for the first rows.
    """

    curve: Curve
    users: np.ndarray
    inverse_bounds: np.ndarray
    profiles: np.ndarray
    spreads: np.ndarray
    parts: np.ndarray
    first_parts: np.ndarray

    def expected(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the numbers of users to expect of rows at L places, and how they vary by chance.

        Returns:
          (L, S, J, C) float64 each: the numbers for each shift and profile, and the variances of sums
          of as many independent users.
        """
        heights = self.curve.height(np.add.outer(places, _SHIFTS))[..., np.newaxis, np.newaxis]
        rates = np.exp(np.minimum(heights + self.curve.slants + self.profiles, 30))
        numbers = np.maximum(self.users * -np.expm1(-rates), _LEAST)
        return numbers, numbers * np.exp(-rates)

    def answers(self, some: list[Sums]) -> list[Callable[[slice], Answers]]:
        """Returns functions from some rows of each of L levels to their answers.

        What does not depend on rows is computed here, for all levels together.
        """
        expected, chance = self.expected(np.array([sums.place for sums in some]))
        shape = (len(some), -1, self.users.size)
        expected = expected.reshape(shape)
        chance = chance.reshape(shape)
        prior = [(multiple * self.spreads * expected) ** 2 + chance for multiple in _MULTIPLES]
        nobody = np.zeros((len(some), 1, self.users.size))
        expected = np.concatenate([*([expected] * len(_MULTIPLES)), nobody], axis=1)
        prior = np.concatenate([*prior, nobody + _LEAST], axis=1)
        # (L, K, C) each: the gain of a number's noisy sum, and the variance that remains.
        noise = np.array([sums.variances for sums in some])[:, np.newaxis]
        precision = 1 / (prior + noise)
        gains = prior * precision
        left = gains * noise
        slopes = precision * expected
        # The mass is Σ numbers / M_c: one more measurement of numbers that are normal. (L, K, 1) each.
        start = expected - gains * expected
        scales = self.inverse_bounds[:, np.newaxis]
        errors = left @ scales**2 + np.reshape([sums.mass_variance for sums in some], (-1, 1, 1))
        shared = left @ scales / errors
        starts = start.sum(axis=2, keepdims=True)
        variances = np.maximum(left.sum(axis=2, keepdims=True) - shared**2 * errors, _LEAST)
        levels = (np.log(precision) - slopes * expected).sum(axis=2, keepdims=True) - np.log(errors)
        # What depends on rows is linear in their mass, 1, their numbers, and the squares of these.
        ones = np.ones_like(starts)
        rest = np.concatenate((ones, -(start @ scales), -gains * self.inverse_bounds), axis=2)
        of_means = np.concatenate((0 * ones, starts, gains), axis=2) + shared * rest
        of_logs = np.concatenate((0.5 * levels, slopes, -0.5 * precision), axis=2)
        rest *= np.sqrt(0.5 / errors)

        # Few steps on (n, K), since these arrays are the largest.
        def of_rows(place: int, rows: slice) -> Answers:
            numbers = some[place].numbers[rows]
            masses = some[place].masses[rows]
            sums = np.column_stack((masses, np.ones_like(masses), numbers, numbers**2))
            linear = sums[:, : rest.shape[2]]
            squares = linear @ rest[place].T
            logs = sums[:, 1:] @ of_logs[place].T
            logs -= np.square(squares, out=squares)
            logs -= logs.max(axis=1, keepdims=True)
            likelihoods = np.exp(logs, out=logs)
            return Answers(likelihoods, lambda: linear @ of_means[place].T, variances[place, :, 0])

        return [functools.partial(of_rows, place) for place in range(len(some))]

    def learned(self, some: list[Sums], sizes: Sizes, expected: np.ndarray, turns: int) -> "Kinds":
        """Returns the kinds with profiles, spreads and parts that are learned from some rows.

        Args:
          some: their sums.
          sizes: the numbers of users of the classes, and whether they are clear.
          expected: (K,) float64, the expected parts.
          turns: how often.
        """
        kinds = self
        for turn in range(turns):
            answers = [of_rows(slice(None)) for of_rows in kinds.answers(some)]
            likelihoods = np.concatenate([each.likelihoods for each in answers])
            parts = learned_parts(likelihoods, kinds.parts, expected)
            kinds = dataclasses.replace(kinds, parts=parts)
            if turn + 1 < turns:
                kinds = kinds._with_profiles(some, answers, sizes)
        return kinds

    def _with_profiles(self, some: list[Sums], answers: list[Answers], sizes: Sizes) -> "Kinds":
        """Returns the kinds with profiles and spreads that fit rows of these kinds better."""
        sums_of_kinds = []
        for sums, answer in zip(some, answers, strict=True):
            belong = answer.likelihoods * self.parts
            belong /= belong.sum(axis=1, keepdims=True)
            columns = (np.ones_like(sums.masses), sums.numbers, sums.numbers**2)
            sums_of_kinds.append(belong[:, :-1].T @ np.column_stack(columns))
        # (L, K', S, J, 1) and twice (…, C): for each kind the number of rows, their sums, and squares.
        found = np.reshape(
            sums_of_kinds, (len(some), len(_MULTIPLES), _SHIFTS.size, len(self.profiles), -1)
        )
        rows, totals, of_squares = np.split(found, (1, 1 + self.users.size), axis=-1)
        multiples = np.reshape(_MULTIPLES, (-1, 1, 1, 1))
        numbers = self.expected(np.array([sums.place for sums in some]))[0][:, np.newaxis]
        variances = np.array([sums.variances for sums in some])
        noise = numbers + variances[:, np.newaxis, np.newaxis, np.newaxis]
        precision = numbers / (noise + (multiples * self.spreads * numbers) ** 2)
        found = _PROFILE_WEIGHT + (totals * precision).sum(axis=(0, 1, 2))
        expected = _PROFILE_WEIGHT + (rows * precision * numbers).sum(axis=(0, 1, 2))
        # E[(sum − number)² − noise] = (spread · number)².
        excess = of_squares - 2 * totals * numbers + rows * (numbers**2 - noise)
        importance = numbers**2 / (2 * noise**2)
        assumed = np.where(sizes.clear, _ASSUMED, _ASSUMED_UNCLEAR)
        squares = (excess * importance).sum(axis=(0, 1, 2, 3)) + _ASSUMED_WEIGHT * assumed**2
        weight = (rows * importance * numbers**2).sum(axis=(0, 1, 2, 3)) + _ASSUMED_WEIGHT
        moves = np.log(np.maximum(found, 0.1 * expected) / expected)
        profiles = self.profiles + np.clip(moves, -0.5, 0.5)
        spreads = np.sqrt(np.clip(squares / weight, _LEAST_SPREAD**2, _MOST_SPREAD**2))
        profiles = np.clip(profiles, -_MOST_PROFILE, _MOST_PROFILE)
        return dataclasses.replace(self, profiles=profiles, spreads=spreads)


def learned_parts(likelihoods: np.ndarray, parts: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Returns the parts of rows of each kind, learned from likelihoods, (n, K), from some parts on."""
    for _ in range(_INNER_TURNS):
        rows = parts * ((1 / (likelihoods @ parts)) @ likelihoods)
        parts = (rows + _WEIGHT_IN_ROWS * expected) / (len(likelihoods) + _WEIGHT_IN_ROWS)
    return parts


def kinds_before(curve: Curve, sizes: Sizes, bounds: np.ndarray) -> Kinds:
    """Returns the kinds that are expected before the data."""
    steps = np.arange(bounds.size)
    holders = sizes.users * -np.expm1(-np.exp(np.minimum(curve.slants, 30)))
    middle = (holders @ steps) / holders.sum()
    profiles = [
        line * (steps - middle) + square * ((steps - middle - place) ** 2 - 3)
        for line, square, place in _PROFILES
    ]
    return Kinds(
        curve=curve,
        users=sizes.users,
        inverse_bounds=1 / bounds,
        profiles=np.clip(profiles, -4, 4),
        spreads=np.where(sizes.clear, _SPREAD, _ASSUMED_UNCLEAR),
        parts=_parts_before(_ROWS_OF_MULTIPLES, _NOBODY),
        first_parts=_parts_before(_FIRST_ROWS_OF_MULTIPLES, _FIRST_NOBODY),
    )


def _parts_before(multiples: tuple[float, ...], nobody: float) -> np.ndarray:
    """Returns the parts of rows of each kind before the data, (K,)."""
    shifts = np.exp(-0.5 * _SHIFTS**2) * np.gradient(_SHIFTS)
    parts = np.multiply.outer(multiples, shifts / shifts.sum())
    parts = np.repeat(parts.reshape(-1), len(_PROFILES)) / len(_PROFILES)
    return np.append((1 - nobody) * parts, nobody)
