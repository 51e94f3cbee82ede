"""The forecast of a release from public text and a number of users.

For N users and public text of n users, simulations (`simulation`) let each public user stand for
m = N/n users. If m ≤ 1, a sample of N users is simulated, and the forecast is what it releases.

If m > 1, chance is repeated as well: n-grams that are too frequent by chance among n users are just as
much too frequent among N, and since rare n-grams are many, too many of them pass the threshold. This
excess grows about linearly with m − 1. So two samples of ¾ of the users, whose m is 4/3 as large, are
simulated too, and the straight line through both logarithms is followed back to m = 1. The numbers of
users that an n-gram needs are corrected in the same way.

If m > 8, n-grams that nobody in the public text has matter, and no simulation has them. Then the
numbers for m = 1, 2, 4 and 8 are continued by a curve, log R = a + b x + c x²/2 with x = log N, where c
is drawn towards its usual value. The further N is away, the rougher is this forecast.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from beam_dpne.forecast.crowd import Crowd
from beam_dpne.forecast.holders import HeldGrams, held_grams, released_flags
from beam_dpne.forecast.simulation import simulate
from beam_dpne.forecast.thresholds import UsersNeeded, users_needed
from beam_dpne.ngrams.elements import GramSet
from beam_dpne.ngrams.plan import PrivacyPlan

# For more users than 8 times the public ones, the forecast is a continued curve.
MOST_REPEATS = 8.0
# More positions of public text make a forecast slower and hardly better.
MOST_POSITIONS = 3_000_000
_KEPT, _SAMPLES, _FEWEST_USERS = 0.75, 2, 4
# Slope of log R over m that chance causes, how far it may be from it, and the variance of the
# logarithm of a ratio of two runs times R (public titles).
_SLOPE, _SLOPE_STDDEV, _SLOPE_CHANCE = 0.03, 0.03, 1.5
# The needed numbers of users rise with m by at most this slope (public titles).
_MOST_SLOPE = 0.06
# Curvature of log2 R over log2 N, and how far it may be from it (public titles).
_CURVATURE, _CURVATURE_STDDEV = -0.08, 0.05
# Variance of log2 R times R, and the error of log2 R beside that of chance.
_CHANCE, _MODEL_ERROR = 12.0, 0.04
# Rows whose estimate is within this factor of a number of users show the width of its interval.
_NEAR, _FEWEST_NEAR = 1.6, 5

Progress = Callable[[], None]


class Width(NamedTuple):
    """A typical interval around a number of users.

    Attributes:
      users: number of users.
      low: users_low.
      high: users_high.
    """

    users: int
    low: float
    high: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class LengthForecast:
    """The forecast of one length.

    Attributes:
      length: k.
      released: expected number of released n-grams; None at a public length, which releases none.
      needed: number of users that an n-gram needs.
      widths: typical intervals of numbers of users, where there are n-grams with about this number.
    """

    length: int
    released: float | None
    needed: UsersNeeded
    widths: tuple[Width, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Forecast:
    """The forecast of a release.

    Attributes:
      epsilon: ε of the plan.
      lengths: one forecast for each length.
    """

    epsilon: float
    lengths: tuple[LengthForecast, ...]


class _Outcome(NamedTuple):
    """The outcome at one number of users.

    Attributes:
      released: (T,) float64, numbers of released n-grams.
      needed: for each length the number of users that an n-gram needs.
      grams: the sets that one simulation has released.
    """

    released: np.ndarray
    needed: Sequence[UsersNeeded]
    grams: Sequence[GramSet]


@dataclasses.dataclass(eq=False)
class Forecaster:
    """Forecasts releases of N users from one public text, under several plans.

    Attributes:
      crowd: public users.
      users: N ≥ 1, a public number.
      seed: the seed of all samples and runs; equal arguments give equal forecasts.
      vocabulary: public words, with vocabulary_policy="public".

    Example:
      >>> import pyarrow as pa
      >>> crowd = Crowd(  # 300 users, each of whom says "a b"
      ...     words=pa.array(["a", "b"]), offsets=np.arange(0, 903, 3),
      ...     codes=np.tile(np.array([0, 1, -1], np.int32), 300))
      >>> plan = PrivacyPlan(epsilon=4, delta=1e-6, max_length=2)
      >>> [length.released for length in Forecaster(crowd, users=300).forecast(plan).lengths]
      [2.0, 1.0]
    """

    crowd: Crowd
    users: int
    seed: int = 0
    vocabulary: Sequence[str] | None = None

    def __post_init__(self):
        rng = np.random.default_rng([self.seed, 1])
        crowd = self.crowd.sample(min(len(self.crowd), self.users), rng)
        last = int(np.searchsorted(crowd.offsets, MOST_POSITIONS, side="right")) - 1
        self.crowd = crowd.take(np.arange(max(1, last)))
        self._crowds = [self.crowd]
        if self.repeats > 1 and len(self.crowd) >= _FEWEST_USERS:
            order = rng.permutation(len(self.crowd))
            left_out = len(self.crowd) - int(_KEPT * len(self.crowd))
            for number in range(_SAMPLES):
                kept = np.roll(order, -number * left_out)[left_out:]
                self._crowds.append(self.crowd.take(kept))
        self._held: dict[tuple[int, int], tuple[HeldGrams, ...]] = {}

    @property
    def repeats(self) -> float:
        """m: number of users for whom each public user stands."""
        return self.users / len(self.crowd)

    @property
    def is_continued(self) -> bool:
        """Whether the forecast continues a curve beyond all simulations."""
        return self.repeats > MOST_REPEATS

    @property
    def simulations(self) -> int:
        """Number of simulations of one forecast, for its progress."""
        if self.repeats <= 1:
            return 1
        return 1 + _SAMPLES if not self.is_continued else 1 + 3 * (1 + _SAMPLES)

    def forecast(self, plan: PrivacyPlan, progress: Progress = lambda: None) -> Forecast:
        """Returns the forecast of a release under a plan.

        Args:
          plan: the plan of the release.
          progress: is called after each simulation.
        """
        scales = np.array([self.repeats])
        if self.is_continued:
            scales = MOST_REPEATS / 2.0 ** np.arange(4)
        outcomes = [self._outcome(plan, float(scale), progress) for scale in scales]
        distances = np.log2(scales / self.repeats)
        lengths = []
        for place in range(plan.max_length):
            numbers = np.array([outcome.released[place] for outcome in outcomes])
            needed = [outcome.needed[place] for outcome in outcomes]
            grams = outcomes[0].grams[place]
            released = _continued(distances, numbers) if self.is_continued else float(numbers[0])
            half = _at(distances, [each.half for each in needed])
            nearly = _at(distances, [each.nearly for each in needed])
            if half is not None and nearly is not None:
                nearly = max(half, nearly)
            lengths.append(
                LengthForecast(
                    length=place + 1,
                    released=None if grams.is_public else released,
                    needed=UsersNeeded(half, nearly),
                    widths=_widths(grams, self.users),
                )
            )
        return Forecast(epsilon=plan.epsilon, lengths=tuple(lengths))

    def _outcome(self, plan: PrivacyPlan, repeats: float, progress: Progress) -> _Outcome:
        """Simulates m times as many users as the public ones, and takes off the excess by chance."""
        runs = []
        whole = repeats * len(self.crowd)
        for number, crowd in enumerate(self._crowds):
            if repeats <= 1 and number:
                break
            runs.append(self._run(plan, number, whole / len(crowd)))
            progress()
        first, *others = runs
        if not others:
            return first
        # The excess of a number over the truth, as a slope of its logarithm over m.
        step, back = repeats / _KEPT - repeats, repeats - 1
        more = np.mean([run.released for run in others], axis=0)
        slopes = np.log((more + 0.5) / (first.released + 0.5)) / step
        # Few n-grams say little of the slope, which is drawn towards its usual value.
        trust = 1 / (1 + _SLOPE_CHANCE / (first.released + 1) / (step * _SLOPE_STDDEV) ** 2)
        slopes = trust * slopes + (1 - trust) * _SLOPE
        ratios = [
            np.log(here.half / there.half)
            for run in others
            for here, there in zip(run.needed, first.needed, strict=True)
            if here.half is not None and there.half is not None
        ]
        # One slope for the needed numbers of all lengths, since each is known roughly.
        slope = float(np.clip(np.mean(ratios) / step, 0.0, _MOST_SLOPE)) if ratios else 0.0
        factor = float(np.exp(-slope * back))
        needed = [
            UsersNeeded(*(None if each is None else each * factor for each in pair))
            for pair in first.needed
        ]
        return _Outcome(first.released * np.exp(-slopes * back), needed, first.grams)

    def _run(self, plan: PrivacyPlan, number: int, repeats: float) -> _Outcome:
        """Simulates one of the crowds."""
        crowd = self._crowds[number]
        grams = simulate(
            crowd,
            plan,
            repeats=repeats,
            seed=self.seed * 1000 + number,
            vocabulary=self.vocabulary,
        )
        if (number, plan.max_length) not in self._held:
            self._held[number, plan.max_length] = held_grams(crowd, plan.max_length)
        held = self._held[number, plan.max_length]
        needed = [
            UsersNeeded(None, None)
            if each.is_public
            else users_needed(of_length.holders * repeats, flags)
            for each, of_length, flags in zip(
                grams, held, released_flags(crowd, held, grams), strict=True
            )
        ]
        sizes = np.array([len(each) for each in grams], dtype=np.float64)
        return _Outcome(sizes, needed, grams)


def _continued(distances: np.ndarray, numbers: np.ndarray) -> float:
    """Returns the number at distance 0 of a curve through numbers at smaller scales.

    Args:
      distances: (s,) float64 < 0, log2 of each scale over the wanted one.
      numbers: (s,) float64 ≥ 0.
    """
    logs = np.log2(numbers + 0.5)
    # The variance of log2: that of a Poisson number, which taking off the excess makes larger, and of
    # the model.
    weights = 1 / (_CHANCE / (numbers + 1) + _MODEL_ERROR**2)
    # The curvature is counted from the largest scale, where the curve is known best.
    steps = distances - distances.max()
    columns = np.stack((np.ones(steps.size), steps, steps**2 / 2), axis=1)
    normal = columns.T @ (weights[:, np.newaxis] * columns)
    values = columns.T @ (weights * logs)
    normal[2, 2] += _CURVATURE_STDDEV**-2
    values[2] += _CURVATURE * _CURVATURE_STDDEV**-2
    level, slope, curvature = np.linalg.solve(normal, values)
    rest = -distances.max()
    return float(max(0.0, 2 ** (level + slope * rest + curvature * rest**2 / 2) - 0.5))


def _at(distances: np.ndarray, numbers: Sequence[float | None]) -> float | None:
    """Returns the number at distance 0 by a straight line through logarithms, None without any."""
    known = [
        (distance, number)
        for distance, number in zip(distances.tolist(), numbers, strict=True)
        if number is not None
    ]
    if not known:
        return None
    if len(known) == 1:
        return known[0][1]
    places, logs = np.array([each[0] for each in known]), np.log([each[1] for each in known])
    slope, level = np.polyfit(places, logs, 1)
    return float(np.exp(level)) if np.isfinite(slope) else known[0][1]


def _widths(grams: GramSet, users: int) -> tuple[Width, ...]:
    """Returns typical intervals at 100, 1,000, … users, where a release has such n-grams."""
    if grams.users is None:
        return ()
    widths, number = [], 100
    counts = np.maximum(grams.users.astype(np.float64), 0)
    while number <= users:
        middle = counts[:, 0]
        near = counts[(middle > number / _NEAR) & (middle < number * _NEAR)]
        if len(near) >= _FEWEST_NEAR:
            low = number * float(np.median(near[:, 1] / near[:, 0]))
            high = number * float(np.median(near[:, 2] / near[:, 0]))
            widths.append(Width(number, low, high))
        number *= 10
    return tuple(widths)
