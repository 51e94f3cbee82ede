"""The function whose noisy values are released: of the count e^η of an n-gram, with its derivatives.

Under "counts" it is the count itself. Under "log_global" it is the decayed logarithm

    g(c) = min(1, S c/C) · ln(c + 1),

which is the released value of an n-gram that c users have once each: for C = 1 always, and for larger C
except that a gram with fewer than C/S users and several counts of each has a smaller one.
"""

import math
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

_Floats = npt.NDArray[np.float64]
_MOST_LOG = 60.0
_HALVINGS = 80


class Values(NamedTuple):
    """The values of n-grams and their derivatives by η, each (V,) float64.

    Attributes:
      values: g(e^η).
      slopes: the first derivative.
      bends: the second derivative.
      lifts: half of the second derivative less the first one; 0 if g is the count.
    """

    values: _Floats
    slopes: _Floats
    bends: _Floats
    lifts: _Floats

    def expected(self, spreads: _Floats) -> _Floats:
        """Returns E g(e^(η + r)) to first order in v, for r ~ N(−v/2, v), where e^r has the mean 1.

        Args:
          spreads: v, (V,) float64.
        """
        return self.values + spreads * self.lifts


class Link(Protocol):
    """The function and its inverse."""

    def __call__(self, logs: _Floats) -> Values:
        """Returns g(e^η), and its first and second derivatives by η."""
        ...

    def counts(self, values: _Floats) -> _Floats:
        """Returns the counts ≥ 0 that have these values without noise."""
        ...


class Counts:
    """g(c) = c."""

    def __call__(self, logs: _Floats) -> Values:
        """Returns the counts, which are their own derivatives by their logarithms."""
        means = np.exp(logs)
        return Values(means, means, means, np.zeros_like(means))

    def counts(self, values: _Floats) -> _Floats:
        """Returns the values, cut off at 0."""
        return np.maximum(values, 0.0)


class DecayedLogs:
    """g(c) = min(1, S c/C) ln(c + 1).

    >>> link = DecayedLogs(decay=0.1, max_count=1)
    >>> link(np.log([5.0, 10.0, 50.0])).values.round(2).tolist()
    [0.9, 2.4, 3.93]
    >>> link.counts(np.array([-1.0, 0.5 * math.log(6), math.log(51)])).round(6).tolist()
    [0.0, 5.0, 50.0]
    """

    def __init__(self, *, decay: float, max_count: int):
        self._log_rate = math.log(decay / max_count)

    def __call__(self, logs: _Floats) -> Values:
        """Returns decayed logarithms and their derivatives by η; at c = C/S those from above."""
        logarithms = np.logaddexp(0.0, logs)
        # c/(c + 1), which is the derivative of ln(c + 1), and its own derivative.
        shares = 1 / (1 + np.exp(np.minimum(-logs, _MOST_LOG)))
        bends = shares * (1 - shares)
        weights = np.exp(np.minimum(self._log_rate + logs, 0.0))
        # The weight grows as e^η as long as it is below 1.
        grows = np.where(weights < 1, 1.0, 0.0)
        slopes = weights * (shares + grows * logarithms)
        second = weights * (bends + grows * (2 * shares + logarithms))
        return Values(weights * logarithms, slopes, second, (second - slopes) / 2)

    def counts(self, values: _Floats) -> _Floats:
        """Returns the counts by bisection, since g grows with c."""
        low, high = np.full(values.shape, -_MOST_LOG), np.full(values.shape, _MOST_LOG)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            is_above = self(middle).values > values
            low, high = np.where(is_above, low, middle), np.where(is_above, middle, high)
        return np.where(values > 0, np.exp(high), 0.0)
