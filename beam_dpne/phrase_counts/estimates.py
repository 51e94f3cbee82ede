"""The bound on users, and the intervals of numbers of users: functions of noisy numbers alone.

The noisy number y of a phrase is, in expectation, the number n of its users less a shortfall b between
0 and B, the excess of all users above the bound. The interval

    [y − z σ, y + z σ + B]   with   Φ(z + B/σ) − Φ(−z) = 0.95

contains n with a probability of at least 0.95 for each b in [0, B], and of 0.95 at both ends. It is
shorter than one that adds B to 1.96 σ, since n cannot be at both ends (Imbens and Manski 2004). It
holds for each phrase by itself, whoever its users are.

B itself is noisy. Its upper limit at 95 % confidence is used, one number for all phrases.

Reference: Imbens and Manski, "Confidence intervals for partially identified parameters" (Econometrica
2004).
"""

import dataclasses
import math

import numpy as np
import scipy

from beam_dpne.counts.rule import CONFIDENCE
from beam_dpne.phrase_counts.plan import PhraseCountsPlan
from beam_dpne.phrase_counts.sums import Bound, class_ends

# Bounds that are compared, in each octave.
_BOUNDS_OF_AN_OCTAVE = 6
# Sizes within a class at which its shortfall is computed.
_SIZES_OF_A_CLASS = 9
# A bound is chosen as if the shortfall were larger by so many standard deviations of its noise.
_CAUTION = 0.5
_ONE_SIDED = float(scipy.special.ndtri(CONFIDENCE))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Widths:
    """What the intervals of all phrases have in common, in users.

    Attributes:
      stddev: σ, the standard deviation of the noise of a row.
      shortfall: B, the upper limit of the shortfall.
    """

    stddev: float
    shortfall: float

    @property
    def half(self) -> float:
        """Half the length of an interval that is not cut at 0."""
        return self.deviations * self.stddev + self.shortfall / 2

    @property
    def deviations(self) -> float:
        """z, between 1.645 without noise and 1.960 without shortfall.

        >>> round(Widths(stddev=1.0, shortfall=0.0).deviations, 3)
        1.96
        >>> round(Widths(stddev=1.0, shortfall=1.0).deviations, 3)
        1.712
        """
        ratio = self.shortfall / self.stddev

        def missing(deviations: float) -> float:
            inside = scipy.special.ndtr(deviations + ratio) - scipy.special.ndtr(-deviations)
            return float(inside) - CONFIDENCE

        return float(scipy.optimize.brentq(missing, _ONE_SIDED - 1e-6, 2.0, xtol=1e-9))


def choose_bound(sizes: np.ndarray, members: int, plan: PhraseCountsPlan) -> Bound:
    """Returns the bound with the shortest intervals, as far as the noisy sizes tell.

    Args:
      sizes: (C,) float64, the noisy numbers of users of the classes of `class_ends`.
      members: K, the number of phrases.
      plan: the plan of the run.
    """
    octaves = math.log2(members)
    steps = np.arange(math.ceil(octaves * _BOUNDS_OF_AN_OCTAVE) + 1)
    bounds = np.unique(np.minimum(members, np.rint(2 ** (steps / _BOUNDS_OF_AN_OCTAVE))))
    halves = []
    for most in bounds.astype(int).tolist():
        bound = Bound(members=members, most=most)
        of_users = _excess_of_classes(bound)
        expected = max(0.0, float(of_users @ sizes))
        caution = _CAUTION * plan.size_noise * math.sqrt(float(of_users @ of_users))
        halves.append(widths(expected + caution, bound, plan).half)
    return Bound(members=members, most=int(bounds[int(np.argmin(halves))]))


def widths(excess: float, bound: Bound, plan: PhraseCountsPlan) -> Widths:
    """Returns the widths for a noisy excess, in users.

    Args:
      excess: what the users above the bound send too little for one phrase that all of them hold.
      bound: the bound.
      plan: the plan of the run.
    """
    noise = _ONE_SIDED * plan.excess_noise * bound.largest_excess
    shortfall = max(0.0, excess) + noise
    return Widths(stddev=plan.row_noise * bound.scale, shortfall=shortfall)


def intervals(numbers: np.ndarray, found: Widths, most: int | None) -> np.ndarray:
    """Returns the number of users of each phrase with its interval: (K, 3) int64.

    Args:
      numbers: (K,) float64, the noisy numbers.
      found: the widths.
      most: the public number of all users; None if it is not public.
    """
    reach = found.deviations * found.stddev
    ends = (np.rint(numbers), np.floor(numbers - reach), np.ceil(numbers + reach + found.shortfall))
    return np.clip(np.stack(ends, axis=1), 0, most).astype(np.int64)


def _excess_of_classes(bound: Bound) -> np.ndarray:
    """Returns the mean shortfall of a user of each class, sizes spread evenly over its octave: (C,)."""
    ends = class_ends(bound.members)
    starts = np.append(1, ends[:-1] + 1)
    # A class of the size 1 alone begins and ends there.
    sizes = np.geomspace(np.minimum(starts, ends), ends, _SIZES_OF_A_CLASS)
    return np.maximum(0.0, 1 - np.sqrt(bound.most / sizes)).mean(axis=0)
