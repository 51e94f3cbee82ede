"""The forecast of a release from public text and a number of users.

For N users and public text of n users, simulations (`needed_users`) let each public user stand for
m = N/n users. If m ≤ 1, a sample of N users is simulated, and the forecast is what it releases.

If m > 1, the scales 1, 2, 4, 8 are simulated, up to the first that is at least m, and the forecast is
interpolated between the last two, in logarithms.

A simulation with m > 1 repeats chance as well. An n-gram that is too frequent by chance among n users
is just as much too frequent among N. Rare n-grams are many, so that too many of them pass the
threshold. The logarithm of this excess grows about linearly with m − 1:

    log(simulated R) ≈ log(true R) + slope · (m − 1).

The slope is measured: two samples of ¾ of the users, whose m is 4/3 as large, are simulated as well.
The numbers of users that an n-gram needs are corrected in the same way. Where few n-grams are released,
the measured slope says little, and mostly a usual one is taken; it is too large for texts in which
everybody writes the same. No scale is given fewer n-grams than a scale below it, since an n-gram that
is released at one scale is released with more users as well.

If m > 8, n-grams matter that nobody in the public text has, and no simulation has them. Then a curve
through the numbers for m = 1, 2, 4 and 8 is continued as far as it rises,

    log R = a + b x + c x²/2 with x = log N,

where c is drawn towards its usual value. The further N is away, the rougher is this forecast. From
m = 1 on, no forecast falls with N.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from scipy import optimize

from beam_dpne.evaluation.corpus import Corpus, index_corpus
from beam_dpne.forecast.needed_users import UsersNeeded, needs, simulate
from beam_dpne.lists.known import KnownNgrams
from beam_dpne.ngrams.elements import GramSet
from beam_dpne.ngrams.known import root_of
from beam_dpne.ngrams.plan import NgramsPlan

# For more users than 8 times the public ones, the forecast is a continued curve.
MOST_REPEATS = 8.0
# More positions of public text make a forecast slower and hardly better.
MOST_POSITIONS = 3_000_000
_KEPT = 0.75
_SAMPLES = 2
_FEWEST_USERS = 4
# Slope of log R over m that chance causes, how far it may be from it, and the variance of the
# logarithm of a ratio of two runs times R (public titles).
_SLOPE = 0.03
_SLOPE_STDDEV = 0.03
_SLOPE_CHANCE = 1.5
# The needed numbers of users rise with m by at most this slope (public titles).
_MOST_SLOPE = 0.06
# Curvature of log2 R over log2 N, and how far it may be from it (public titles).
_CURVATURE = -0.08
_CURVATURE_STDDEV = 0.05
# Variance of log2 R times R, and the error of log2 R beside that of chance.
_CHANCE = 12.0
_MODEL_ERROR = 0.04
# The most documents of a made-up user are this many times the mean, as in the shipped sample of titles.
_LONGEST = 50
# Rows whose estimate is within this factor of a number of users show the width of its interval.
_NEAR = 1.6
_FEWEST_NEAR = 5


class Width(NamedTuple):
    """A typical interval, from low to high, around a number of users."""

    users: int
    low: float
    high: float


class LengthForecast(NamedTuple):
    """The forecast of one length.

    Attributes:
      released: expected number of released n-grams.
      needed: numbers of users that an n-gram needs.
      widths: typical intervals of numbers of users, where there are n-grams with about this number.
    """

    released: float
    needed: UsersNeeded
    widths: tuple[Width, ...]


class _Outcome(NamedTuple):
    """What simulations of one number of users give.

    Attributes:
      released: (T,) float64, numbers of released n-grams.
      needed: (T, 2) float64, numbers of users that an n-gram needs; NaN where they are unknown.
      grams: the sets that one simulation has released.
    """

    released: np.ndarray
    needed: np.ndarray
    grams: Sequence[GramSet]


@dataclasses.dataclass(eq=False)
class Forecaster:
    """Forecasts releases of N users from one public text, under several plans.

    Attributes:
      crowd: public users.
      users: N ≥ 1, a public number.
      seed: the seed of all samples and runs; equal arguments give equal forecasts.
      known: what the run knows, which must not come from the same text.

    Example:
      >>> from beam_dpne.evaluation.corpus import corpus_of
      >>> crowd = corpus_of([(f"user {i}", ["a", "b"]) for i in range(300)])
      >>> plan = NgramsPlan(epsilon=4, delta=1e-6, max_length=2)
      >>> [length.released for length in Forecaster(crowd, users=300).forecast(plan)]
      [2.0, 1.0]
    """

    crowd: Corpus
    users: int
    seed: int = 0
    known: KnownNgrams | None = None

    def __post_init__(self):
        rng = np.random.default_rng([self.seed, 1])
        order = rng.permutation(len(self.crowd.users))[: self.users]
        ends = np.cumsum(np.diff(self.crowd.offsets)[order])
        fitting = max(1, int(np.searchsorted(ends, MOST_POSITIONS, side="right")))
        self.crowd = self.crowd.of_users(order[:fitting])
        self._crowds = [self.crowd]
        public = len(self.crowd.users)
        if self.repeats > 1 and public >= _FEWEST_USERS:
            order = rng.permutation(public)
            left_out = public - int(_KEPT * public)
            for number in range(_SAMPLES):
                kept = np.roll(order, -number * left_out)[left_out:]
                self._crowds.append(self.crowd.of_users(kept))

    @property
    def repeats(self) -> float:
        """m: number of users for whom each public user stands."""
        return self.users / len(self.crowd.users)

    @property
    def is_continued(self) -> bool:
        """Whether the forecast continues a curve beyond all simulations."""
        return self.repeats > MOST_REPEATS

    def forecast(self, plan: NgramsPlan) -> tuple[LengthForecast, ...]:
        """Returns the forecast of each length of a release under a plan."""
        scales = self._scales()
        outcomes = [self._outcome(plan, float(scale)) for scale in scales]
        distances = np.log2(scales / self.repeats)
        # Beyond all scales each of them says something, else the last two lie around N.
        near = slice(None) if self.is_continued else slice(-2, None)
        lengths = []
        for place, grams in enumerate(outcomes[-1].grams):
            numbers = np.array([outcome.released[place] for outcome in outcomes])
            numbers = np.maximum.accumulate(numbers)
            needed = np.array([outcome.needed[place] for outcome in outcomes[near]])
            half, nearly = (_at(distances[near], column) for column in needed.T)
            if half is not None and nearly is not None:
                nearly = max(half, nearly)
            released = _released(distances, numbers)
            widths = _widths(grams, self.users)
            lengths.append(LengthForecast(released, UsersNeeded(half, nearly), widths))
        return tuple(lengths)

    def _scales(self) -> np.ndarray:
        """Returns the scales that are simulated, ascending; the last two lie around m ≤ 8."""
        if self.repeats <= 1:
            return np.array([self.repeats])
        doublings = math.ceil(math.log2(min(self.repeats, MOST_REPEATS)))
        return 2.0 ** np.arange(1 + doublings)

    def _outcome(self, plan: NgramsPlan, repeats: float) -> _Outcome:
        """Simulates m times as many users as the public ones, and takes off the excess by chance."""
        crowds = self._crowds if repeats > 1 else self._crowds[:1]
        users = repeats * len(self.crowd.users)
        first, *others = (
            self._run(plan, crowd, users / len(crowd.users), number)
            for number, crowd in enumerate(crowds)
        )
        if not others:
            return first
        # The slope of the excess (see the module), from m to the m of the samples.
        step = repeats / _KEPT - repeats
        back = repeats - 1
        more = np.mean([run.released for run in others], axis=0)
        slopes = np.log((more + 0.5) / (first.released + 0.5)) / step
        # Few n-grams say little of the slope, which is drawn towards its usual value.
        trust = 1 / (1 + _SLOPE_CHANCE / (first.released + 1) / (step * _SLOPE_STDDEV) ** 2)
        slopes = trust * slopes + (1 - trust) * _SLOPE
        # One slope for the needed numbers of all lengths, since each is known roughly.
        ratios = np.log([run.needed[:, 0] / first.needed[:, 0] for run in others])
        known = ratios[np.isfinite(ratios)]
        slope = float(np.clip(known.mean() / step, 0.0, _MOST_SLOPE)) if known.size else 0.0
        return _Outcome(
            first.released * np.exp(-slopes * back),
            first.needed * np.exp(-slope * back),
            first.grams,
        )

    def _run(self, plan: NgramsPlan, crowd: Corpus, repeats: float, number: int) -> _Outcome:
        """Simulates one of the crowds."""
        root = root_of(self.known, plan.max_length) if self.known else None
        seed = self.seed * 1000 + number
        grams = simulate(crowd, plan, repeats=repeats, seed=seed, root=root)
        needed = needs(index_corpus(crowd, plan.max_length), grams, repeats)
        sizes = np.array([len(each) for each in grams], dtype=np.float64)
        return _Outcome(sizes, np.array(needed, dtype=np.float64), grams)


def _released(distances: np.ndarray, numbers: np.ndarray) -> float:
    """Returns the number of released n-grams at distance 0, from numbers that do not fall.

    Args:
      distances: (s,) float64, log2 of each scale over the wanted one, ascending.
      numbers: (s,) float64 ≥ 0, ascending.
    """
    if distances[-1] == 0:
        return float(numbers[-1])
    if distances[-1] < 0:
        return max(float(numbers[-1]), _continued(distances, numbers))
    found = np.exp2(np.interp(0.0, distances, np.log2(numbers + 0.5))) - 0.5
    # Rounding must not leave the two numbers between which it lies.
    return float(np.clip(found, numbers[-2], numbers[-1]))


def _continued(distances: np.ndarray, numbers: np.ndarray) -> float:
    """Returns the number at distance 0 of a curve through numbers at smaller scales, up to its top.

    Args:
      distances: (s,) float64 < 0, log2 of each scale over the wanted one.
      numbers: (s,) float64 ≥ 0.
    """
    # The variance of log2: that of a Poisson number, which taking off the excess makes larger, and of
    # the model.
    stddevs = np.sqrt(_CHANCE / (numbers + 1) + _MODEL_ERROR**2)
    # The curvature is counted from the largest scale, where the curve is known best. The scales are
    # doublings, so that the steps are whole: the curve is one to the last bit for every wanted scale.
    steps = np.round(distances - distances.max())
    columns = np.stack((np.ones(steps.size), steps, steps**2 / 2), axis=1)
    rows = np.append(columns / stddevs[:, np.newaxis], [[0, 0, 1 / _CURVATURE_STDDEV]], axis=0)
    values = np.append(np.log2(numbers + 0.5) / stddevs, _CURVATURE / _CURVATURE_STDDEV)
    level, slope, curvature = np.linalg.lstsq(rows, values, rcond=None)[0]
    rest = -distances.max()
    # The curve is highest at its end, or before it where it has a top.
    top = -slope / curvature if curvature < 0 else rest
    steps = np.array([0.0, np.clip(top, 0.0, rest), rest])
    highest = (level + slope * steps + curvature * steps**2 / 2).max()
    return float(max(0.0, 2**highest - 0.5))


def _at(distances: np.ndarray, numbers: np.ndarray) -> float | None:
    """Returns the number at distance 0 by a straight line through logarithms, None without any."""
    known = np.flatnonzero(np.isfinite(numbers))
    if known.size < 2:
        return float(numbers[known[0]]) if known.size else None
    _, level = np.polyfit(distances[known], np.log(numbers[known]), 1)
    return float(np.exp(level))


def _widths(grams: GramSet, users: int) -> tuple[Width, ...]:
    """Returns typical intervals at 100, 1,000, … users, where a release has such n-grams."""
    if grams.users is None:
        return ()
    widths = []
    number = 100
    counts = np.maximum(grams.users.astype(np.float64), 0)
    while number <= users:
        middle = counts[:, 0]
        near = counts[(middle > number / _NEAR) & (middle < number * _NEAR)]
        if len(near) >= _FEWEST_NEAR:
            low, high = (float(np.median(near[:, side] / near[:, 0])) for side in (1, 2))
            widths.append(Width(number, number * low, number * high))
        number *= 10
    return tuple(widths)


def with_documents(crowd: Corpus, mean: float, rng: np.random.Generator) -> Corpus:
    """Deals all documents of a crowd, in random order, to made-up users with a given mean number.

    The number D of documents has a heavy tail, P(D ≥ d) = d^-a up to 50 times the mean, where a gives
    the mean. A few users have most documents then, as is usual for posts, reviews and messages.

    Args:
      crowd: public documents; its users are dropped.
      mean: mean number of documents of a user, at least 1.
      rng: the source of chance.

    Example:
      >>> from beam_dpne.evaluation.corpus import corpus_of
      >>> crowd = corpus_of([("anybody", ["a"])] * 1000)
      >>> len(with_documents(crowd, 1.0, np.random.default_rng(1)).users)
      1000
    """
    ends = np.flatnonzero(crowd.codes < 0) + 1
    most = max(1, int(_LONGEST * mean))
    numbers = np.arange(1, most + 1, dtype=np.float64)
    # The mean, Σ_d P(D ≥ d), falls with a.
    exponent = 64.0
    if mean > 1:
        found = optimize.root_scalar(lambda a: (numbers**-a).sum() - mean, bracket=(0.0, exponent))
        exponent = found.root
    draws = (1.0 - rng.random(ends.size)) ** (-1.0 / exponent)
    # Users until all documents are dealt; the last user gets those that are left.
    dealt = np.minimum(np.cumsum(np.minimum(draws, most).astype(np.int64)), ends.size)
    dealt = np.unique(np.append(0, dealt))
    alone = dataclasses.replace(crowd, users=pa.array(ends), offsets=np.append(0, ends))
    shuffled = alone.of_users(rng.permutation(ends.size))
    names = pa.array(np.arange(dealt.size - 1))
    return dataclasses.replace(shuffled, users=names, offsets=shuffled.offsets[dealt])
