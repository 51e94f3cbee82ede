"""How rows of one length differ from the curve: the law of their numbers of users in all classes.

Rows of one score have different numbers of users, and these users have different sizes. A row is of
one of many *kinds*. A kind says what number of users to expect in each class, and how far a row may be
from it. It has three parts:

- its *shift* moves the row along the curve,
- its *profile* makes some classes hold the row more, and others less,
- its *multiple* is 1 or 3: a class's number deviates freely by so many times the relative spread of the
  class.

One more kind is held by nobody. How many rows are of each kind, the profiles and the spreads are
learned from the noisy sums of this run, whose noise is known, by expectation maximisation. Before the
data, wide laws are assumed.

Given a kind, the numbers of users are normal, and so are the sums. Thus the law of a row's number of
users, given its sums, is a mixture of normal laws with known weights, means and variances.

In shapes, L is the number of levels, C of classes, S of shifts, J of profiles, and K of kinds, which is
2·S·J + 1.
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
# Profiles before the data: the factor of a linear term, that of a square term, and the class where the
# square term is largest, from the middle on.
_PROFILES = (
    (0, 0, 0),
    (0.6, 0, 0),
    (-0.6, 0, 0),
    (0, -0.3, -1.5),
    (0, -0.3, 0),
    (0, -0.3, 1.5),
)
_MOST_PROFILE = 5.0
# Multiples of the spread, and which part of the rows is expected to have each before the data. The
# first rows of a length, which are few and unlike each other, have parts of their own.
_MULTIPLES = (1.0, 3.0)
_ROWS_OF_MULTIPLES = (0.7, 0.3)
_FIRST_ROWS_OF_MULTIPLES = (0.5, 0.5)
_NOBODY = 0.005
_FIRST_NOBODY = 0.001
# The spread at first, its least and its largest value. What is assumed of it before the data, for a
# class that is clear and for one that is not; its square has the weight of so many rows.
_SPREAD = 0.35
_LEAST_SPREAD = 0.2
_MOST_SPREAD = 1.2
_ASSUMED = 0.5
_ASSUMED_UNCLEAR = 1.0
_ASSUMED_WEIGHT = 16.0
# The expected parts of kinds have the weight of so many rows.
_WEIGHT_IN_ROWS = 20
# The weight of a profile that was assumed, in squared standard deviations, and its largest change in
# one turn.
_PROFILE_WEIGHT = 2.0
_MOST_MOVE = 0.5
FIRST_ROWS = 60
_INNER_TURNS = 15
_LEAST = 1e-12
# Of logarithms of rates, so that nothing overflows.
_MOST_LOG_RATE = 30


class Sums(NamedTuple):
    """Noisy sums of n rows of one level; all of them have the same noise.

    Attributes:
      place: the logarithm of the predicted number of users.
      numbers: (n, C) float64, noisy numbers of users in each class.
      masses: (n,) float64, noisy masses.
      variances: (C,) float64, the variance of the noise of the numbers.
      mass_variance: the variance of the noise of the masses.
    """

    place: float
    numbers: np.ndarray
    masses: np.ndarray
    variances: np.ndarray
    mass_variance: float


class Answers(NamedTuple):
    """What the sums of n rows of one level say of them, if they are of each of the K kinds.

    Attributes:
      likelihoods: (n, K) float64, how likely a row's sums are, in units of the row's largest one.
      means: returns the expected number of users of each row, (n, K) float64.
      variances: (K,) float64, the variance of the number of users around its mean.
    """

    likelihoods: np.ndarray
    means: Callable[[], np.ndarray]
    variances: np.ndarray


class Expectations(NamedTuple):
    """What kinds say of the numbers of users of rows at L places before their sums are seen.

    Attributes:
      numbers: (L, K, C) float64, the expected numbers of users.
      variances: (L, K, C) float64, how far the numbers vary around them.
    """

    numbers: np.ndarray
    variances: np.ndarray


class LinearAnswers(NamedTuple):
    """What rows of L levels need for their answers: products of their sums with these factors.

    Of a row with the mass m and the numbers x, (C,), a kind's

        mean is of_means · (m, 1, x),
        logarithm of the likelihood is of_logs · (1, x, x²) − (of_squares · (m, 1, x))².

    Attributes:
      of_means: (L, K, 2 + C) float64.
      of_logs: (L, K, 1 + 2·C) float64.
      of_squares: (L, K, 2 + C) float64.
      variances: (L, K) float64, the variance of a row's number of users around its mean.
    """

    of_means: np.ndarray
    of_logs: np.ndarray
    of_squares: np.ndarray
    variances: np.ndarray

    def of_rows(self, level: int, sums: Sums, rows: slice) -> Answers:
        """Returns the answers for some rows of a level.

        The arrays of n rows and K kinds are the largest ones, so there are few steps on them.
        """
        numbers = sums.numbers[rows]
        masses = sums.masses[rows]
        ones = np.ones_like(masses)
        linear = np.column_stack((masses, ones, numbers))
        with_squares = np.column_stack((ones, numbers, numbers**2))
        roots = linear @ self.of_squares[level].T
        logs = with_squares @ self.of_logs[level].T
        logs -= np.square(roots, out=roots)
        logs -= logs.max(axis=1, keepdims=True)
        likelihoods = np.exp(logs, out=logs)

        def means() -> np.ndarray:
            return linear @ self.of_means[level].T

        return Answers(likelihoods, means, self.variances[level])


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Kinds:
    """The kinds of rows of one length, and how many rows are of each kind.

    Kinds are in the order of multiples, then shifts, then profiles; the last one is held by nobody.

    Attributes:
      curve: the curve of the length.
      users: (C,) float64, the numbers of users of the classes.
      inverse_bounds: (C,) float64, 1/M_c.
      profiles: (J, C) float64, what each profile adds to the slants of the classes.
      spreads: (C,) float64, the relative spread of each class.
      parts: (K,) float64, the part of all rows that is of each kind.
      first_parts: (K,) float64, the part of the first rows of the length that is of each kind.
    """

    curve: Curve
    users: np.ndarray
    inverse_bounds: np.ndarray
    profiles: np.ndarray
    spreads: np.ndarray
    parts: np.ndarray
    first_parts: np.ndarray

    def expected(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the numbers of users to expect at places of the curve, and how they vary by chance.

        Args:
          places: (L,) float64, logarithms of predictions.

        Returns:
          (L, S, J, C) float64 each: the expected numbers for each shift and profile; and the variances
          of as large a number of users who hold a row independently.
        """
        shifted = np.add.outer(places, _SHIFTS)
        heights = self.curve.height(shifted)[..., np.newaxis, np.newaxis]
        log_rates = heights + self.curve.slants + self.profiles
        rates = np.exp(np.minimum(log_rates, _MOST_LOG_RATE))
        numbers = np.maximum(self.users * -np.expm1(-rates), _LEAST)
        return numbers, numbers * np.exp(-rates)

    def _expectations(self, places: np.ndarray) -> Expectations:
        """Returns what all kinds say of rows at some places, (L,) float64."""
        levels = places.size
        classes = self.users.size
        numbers, chance = self.expected(places)
        # (L, S · J, C) each, as all multiples have them.
        numbers = numbers.reshape(levels, -1, classes)
        chance = chance.reshape(levels, -1, classes)
        all_numbers: list[np.ndarray] = []
        all_variances: list[np.ndarray] = []
        for multiple in _MULTIPLES:
            all_numbers.append(numbers)
            all_variances.append((multiple * self.spreads * numbers) ** 2 + chance)
        nobody = np.zeros((levels, 1, classes))
        all_numbers.append(nobody)
        all_variances.append(nobody + _LEAST)
        return Expectations(
            numbers=np.concatenate(all_numbers, axis=1),
            variances=np.concatenate(all_variances, axis=1),
        )

    def answers(self, some: list[Sums]) -> list[Callable[[slice], Answers]]:
        """Returns for each of L levels a function from some of its rows to their answers.

        What does not depend on rows is computed here, for all levels together.

        Args:
          some: the sums of rows of each level.
        """
        linear = self._linear_answers(some)
        return [functools.partial(linear.of_rows, level, sums) for level, sums in enumerate(some)]

    def _linear_answers(self, some: list[Sums]) -> LinearAnswers:
        """Returns what rows of some levels need for their answers.

        First the numbers are measured, each by its noisy sum: with the variance v before it and the
        noise s², a number has the gain v/(v + s²) and the variance v·s²/(v + s²). Then the mass
        Σ numbers/M_c is one more measurement of numbers that are normal.
        """
        expected, prior = self._expectations(np.array([sums.place for sums in some]))
        noise = np.array([sums.variances for sums in some])[:, np.newaxis]
        mass_noise = np.reshape([sums.mass_variance for sums in some], (-1, 1, 1))
        # (L, K, C) each: the gain of a number's noisy sum, the variance that remains, and the number
        # if the sum is 0.
        precision = 1 / (prior + noise)
        gains = prior * precision
        left = gains * noise
        slopes = precision * expected
        start = expected - gains * expected
        # (L, K, 1) each: the variance of the noisy mass, and what a unit of it adds to the sum of all
        # numbers.
        scales = self.inverse_bounds[:, np.newaxis]
        errors = left @ scales**2 + mass_noise
        shared = left @ scales / errors
        # The noisy mass without what the numbers let one expect, as a product with (m, 1, x).
        starts = start.sum(axis=2, keepdims=True)
        ones = np.ones_like(starts)
        rest = np.concatenate((ones, -(start @ scales), -gains * self.inverse_bounds), axis=2)
        from_numbers = np.concatenate((0 * ones, starts, gains), axis=2)
        variances = left.sum(axis=2, keepdims=True) - shared**2 * errors
        constants = (np.log(precision) - slopes * expected).sum(axis=2, keepdims=True)
        constants = constants - np.log(errors)
        return LinearAnswers(
            of_means=from_numbers + shared * rest,
            of_logs=np.concatenate((0.5 * constants, slopes, -0.5 * precision), axis=2),
            of_squares=rest * np.sqrt(0.5 / errors),
            variances=np.maximum(variances, _LEAST)[..., 0],
        )

    def learned(self, some: list[Sums], sizes: Sizes, expected: np.ndarray, turns: int) -> "Kinds":
        """Returns the kinds with profiles, spreads and parts that are learned from some rows.

        Args:
          some: the sums of these rows.
          sizes: the numbers of users of the classes, and whether they are clear.
          expected: (K,) float64, the expected parts.
          turns: how many times the parts are learned; profiles and spreads are learned once less.
        """
        kinds = self
        for turn in range(turns):
            answers = [of_rows(slice(None)) for of_rows in kinds.answers(some)]
            likelihoods = np.concatenate([each.likelihoods for each in answers])
            parts = learned_parts(likelihoods, kinds.parts, expected)
            kinds = dataclasses.replace(kinds, parts=parts)
            is_last = turn + 1 == turns
            if not is_last:
                kinds = kinds._with_profiles(some, answers, sizes)
        return kinds

    def _with_profiles(self, some: list[Sums], answers: list[Answers], sizes: Sizes) -> "Kinds":
        """Returns the kinds with profiles and spreads that fit rows of these kinds better."""
        # The axes are levels, multiples, shifts, profiles, classes.
        rows, totals, of_squares = self._sums_of_kinds(some, answers)
        multiples = np.reshape(_MULTIPLES, (-1, 1, 1, 1))
        places = np.array([sums.place for sums in some])
        expected_numbers, _ = self.expected(places)
        numbers = expected_numbers[:, np.newaxis]
        of_noise = np.array([sums.variances for sums in some])
        noise = numbers + of_noise[:, np.newaxis, np.newaxis, np.newaxis]
        # Profiles: the logarithm of what rows have, divided by what was expected.
        precision = numbers / (noise + (multiples * self.spreads * numbers) ** 2)
        found = _PROFILE_WEIGHT + (totals * precision).sum(axis=(0, 1, 2))
        expected = _PROFILE_WEIGHT + (rows * precision * numbers).sum(axis=(0, 1, 2))
        moves = np.log(np.maximum(found, 0.1 * expected) / expected)
        profiles = self.profiles + np.clip(moves, -_MOST_MOVE, _MOST_MOVE)
        # Spreads: E[(sum − number)² − noise] = (spread · number)².
        excess = of_squares - 2 * totals * numbers + rows * (numbers**2 - noise)
        importance = numbers**2 / (2 * noise**2)
        assumed = np.where(sizes.clear, _ASSUMED, _ASSUMED_UNCLEAR)
        squares = (excess * importance).sum(axis=(0, 1, 2, 3)) + _ASSUMED_WEIGHT * assumed**2
        weights = (rows * importance * numbers**2).sum(axis=(0, 1, 2, 3)) + _ASSUMED_WEIGHT
        variances = np.clip(squares / weights, _LEAST_SPREAD**2, _MOST_SPREAD**2)
        return dataclasses.replace(
            self,
            profiles=np.clip(profiles, -_MOST_PROFILE, _MOST_PROFILE),
            spreads=np.sqrt(variances),
        )

    def _sums_of_kinds(
        self, some: list[Sums], answers: list[Answers]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns sums over the rows of each kind but that of nobody.

        A row belongs to each kind by the probability that it is of it.

        Returns:
          The numbers of rows, (L, 2, S, J, 1) float64; the sums of their noisy numbers,
          (L, 2, S, J, C); and the sums of the squares of these, (L, 2, S, J, C).
        """
        of_levels: list[np.ndarray] = []
        for sums, answer in zip(some, answers, strict=True):
            belong = answer.likelihoods * self.parts
            belong /= belong.sum(axis=1, keepdims=True)
            of_somebody = belong[:, :-1]
            columns = (np.ones_like(sums.masses), sums.numbers, sums.numbers**2)
            of_levels.append(of_somebody.T @ np.column_stack(columns))
        shape = (len(some), len(_MULTIPLES), _SHIFTS.size, len(self.profiles), -1)
        table = np.reshape(of_levels, shape)
        first_square = 1 + self.users.size
        rows, totals, of_squares = np.split(table, (1, first_square), axis=-1)
        return rows, totals, of_squares


def learned_parts(likelihoods: np.ndarray, parts: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Returns which part of some rows is of each kind, by expectation maximisation: (K,) float64.

    Args:
      likelihoods: (n, K) float64, of the sums of the rows.
      parts: (K,) float64, where the search begins.
      expected: (K,) float64, the parts that are expected before the data.
    """
    for _ in range(_INNER_TURNS):
        rows = parts * ((1 / (likelihoods @ parts)) @ likelihoods)
        parts = (rows + _WEIGHT_IN_ROWS * expected) / (len(likelihoods) + _WEIGHT_IN_ROWS)
    return parts


def kinds_before(curve: Curve, sizes: Sizes, bounds: np.ndarray) -> Kinds:
    """Returns the kinds that are expected before the data.

    Args:
      curve: the curve of the length.
      sizes: the numbers of users of the classes, and whether they are clear.
      bounds: (C,) float64, M_c.
    """
    return Kinds(
        curve=curve,
        users=sizes.users,
        inverse_bounds=1 / bounds,
        profiles=_profiles_before(curve, sizes),
        spreads=np.where(sizes.clear, _SPREAD, _ASSUMED_UNCLEAR),
        parts=_parts_before(_ROWS_OF_MULTIPLES, _NOBODY),
        first_parts=_parts_before(_FIRST_ROWS_OF_MULTIPLES, _FIRST_NOBODY),
    )


def _profiles_before(curve: Curve, sizes: Sizes) -> np.ndarray:
    """Returns the profiles before the data, (J, C) float64."""
    classes = np.arange(sizes.users.size)
    rates = np.exp(np.minimum(curve.slants, _MOST_LOG_RATE))
    holders = sizes.users * -np.expm1(-rates)
    middle = (holders @ classes) / holders.sum()
    from_middle = classes - middle
    profiles = [
        line * from_middle + square * ((from_middle - largest) ** 2 - 3)
        for line, square, largest in _PROFILES
    ]
    return np.clip(profiles, -4, 4)


def _parts_before(multiples: tuple[float, ...], nobody: float) -> np.ndarray:
    """Returns which part of the rows is expected to be of each kind before the data: (K,) float64.

    Args:
      multiples: the part of the rows that has each multiple of the spread.
      nobody: the part of the rows that nobody holds.
    """
    # Shifts have a normal law. Each stands for those up to the middles between it and its neighbours.
    shifts = np.exp(-0.5 * _SHIFTS**2) * np.gradient(_SHIFTS)
    of_shifts = np.multiply.outer(multiples, shifts / shifts.sum()).reshape(-1)
    # All profiles have the same part.
    of_profiles = np.repeat(of_shifts, len(_PROFILES)) / len(_PROFILES)
    return np.append((1 - nobody) * of_profiles, nobody)
