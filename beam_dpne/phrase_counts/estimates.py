"""The bound on users, and the intervals of numbers of users: functions of noisy numbers alone.

The noisy number y of a phrase is, in expectation, the number n of its users less a shortfall b between
0 and B, the excess of all users above the bound. B is measured, too: B' has noise of the standard
deviation σ_B, and with the noise σ of y the sum y + B' has τ = √(σ² + σ_B²). The interval

    [y − z σ, y + B' + z τ]   with   Φ(z + B'/τ) − Φ(−z) = 0.95

contains n with a probability of about 0.95 at both ends, b = 0 and b = B, and with a larger one for all
b between. z is below 1.960, since n cannot be at both ends (Imbens and Manski 2004). The interval holds
for each phrase by itself, whoever its users are.

Reference: Imbens and Manski, "Confidence intervals for partially identified parameters" (Econometrica
2004).
"""

import dataclasses
import functools
import math

import numpy as np
import scipy

from beam_dpne.counts.rule import CONFIDENCE
from beam_dpne.mechanism import gaussian
from beam_dpne.phrase_counts.plan import PhraseCountsPlan
from beam_dpne.phrase_counts.sums import Bound, class_ends

# Bounds that are compared, in each octave, and shares of the budget for the excess.
_BOUNDS_OF_AN_OCTAVE = 6
_EXCESS_SHARES = (0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3)
# Sizes within a class at which its shortfall is computed.
_SIZES_OF_A_CLASS = 9
_ONE_SIDED = float(scipy.special.ndtri(CONFIDENCE))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Widths:
    """What the intervals of all phrases have in common, in users.

    Attributes:
      stddev: σ, the standard deviation of the noise of a number.
      shortfall: B', the noisy shortfall, 0 or more.
      shortfall_stddev: σ_B.
    """

    stddev: float
    shortfall: float
    shortfall_stddev: float

    @property
    def below(self) -> float:
        """How far an interval reaches below the noisy number."""
        return self._deviations * self.stddev

    @property
    def above(self) -> float:
        """How far it reaches above."""
        return self._deviations * self._both + self.shortfall

    @property
    def half(self) -> float:
        """Half the length of an interval that is not cut at 0.

        >>> round(Widths(stddev=1.0, shortfall=0.0, shortfall_stddev=0.0).half, 3)
        1.96
        >>> round(Widths(stddev=1.0, shortfall=1.0, shortfall_stddev=0.0).half, 3)
        2.181
        """
        return (self.below + self.above) / 2

    @property
    def _both(self) -> float:
        return math.hypot(self.stddev, self.shortfall_stddev)

    @functools.cached_property
    def _deviations(self) -> float:
        """z, between 1.645 and 1.960."""
        ratio = self.shortfall / self._both

        def missing(deviations: float) -> float:
            inside = scipy.special.ndtr(deviations + ratio) - scipy.special.ndtr(-deviations)
            return CONFIDENCE - float(inside)

        return gaussian.falling_root(missing, _ONE_SIDED - 1e-6, 2.0)


def choose_bound(sizes: np.ndarray, members: int, plan: PhraseCountsPlan) -> Bound:
    """Returns the bound and the shares with the shortest intervals, as far as the noisy sizes tell.

    Args:
      sizes: (C,) float64, the noisy numbers of users of the classes of `class_ends`.
      members: K, the number of phrases.
      plan: the plan of the run.
    """
    steps = np.arange(math.ceil(math.log2(members) * _BOUNDS_OF_AN_OCTAVE))
    bounds = np.unique(np.rint(2 ** (steps / _BOUNDS_OF_AN_OCTAVE))).astype(int).tolist()
    candidates = [
        Bound(members=members, most=most, excess_share=share)
        for most in bounds
        if most < members
        for share in _EXCESS_SHARES
    ]
    # No user is above this one, so that nothing is measured.
    candidates.append(Bound(members=members, most=members, excess_share=0.0))
    return min(candidates, key=lambda bound: _expected_widths(sizes, bound, plan).half)


def _expected_widths(sizes: np.ndarray, bound: Bound, plan: PhraseCountsPlan) -> Widths:
    return widths(float(_excess_of_classes(bound) @ sizes), bound, plan)


def widths(excess: float, bound: Bound, plan: PhraseCountsPlan) -> Widths:
    """Returns the widths for a noisy excess, in users.

    Args:
      excess: what the users above the bound send too little for one phrase that all of them hold.
      bound: the bound.
      plan: the plan of the run.
    """
    shortfall_stddev = 0.0
    if bound.excess_share:
        shortfall_stddev = plan.noise_of(bound.excess_share) * bound.largest_excess
    return Widths(
        stddev=plan.noise_of(bound.row_share) * bound.scale,
        shortfall=max(0.0, excess),
        shortfall_stddev=shortfall_stddev,
    )


def expected_half(plan: PhraseCountsPlan, phrases_of_a_user: int) -> float:
    """Returns half the width of an interval if no user holds more phrases of the list, in users.

    Few users above it widen intervals by about half of their number.

    >>> round(expected_half(PhraseCountsPlan(epsilon=1, delta=1e-6), 16), 1)
    35.4
    """
    most = phrases_of_a_user
    bounds = [Bound(members=2 * most, most=most, excess_share=each) for each in _EXCESS_SHARES]
    return min(widths(0.0, bound, plan).half for bound in bounds)


def intervals(numbers: np.ndarray, found: Widths, most: int | None) -> np.ndarray:
    """Returns the number of users of each phrase with its interval: (K, 3) int64.

    Args:
      numbers: (K,) float64, the noisy numbers.
      found: the widths.
      most: the public number of all users; None if it is not public.
    """
    ends = (np.rint(numbers), np.floor(numbers - found.below), np.ceil(numbers + found.above))
    return np.clip(np.stack(ends, axis=1), 0, most).astype(np.int64)


def _excess_of_classes(bound: Bound) -> np.ndarray:
    """Returns the mean shortfall of a user of each class, sizes spread evenly over its octave: (C,)."""
    ends = class_ends(bound.members)
    starts = np.append(1, ends[:-1] + 1)
    # A class of the size 1 alone begins and ends there.
    sizes = np.geomspace(np.minimum(starts, ends), ends, _SIZES_OF_A_CLASS)
    return np.maximum(0.0, 1 - np.sqrt(bound.most / sizes)).mean(axis=0)
