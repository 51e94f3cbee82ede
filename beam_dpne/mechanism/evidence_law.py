"""The law of the evidence of a gram that nobody holds, from round to round, by quadrature.

Such a gram has noise only: Y_r = Σ_{s≤r} ℓ_s Z_s. In each round it is found (Y_r > ρ_r), stays open
(b_r < Y_r ≤ ρ_r) or is closed. The density of the open ones after round r is that of round r − 1,
convolved with N(0, ℓ_r²) and cut to (b_r, ρ_r]. Everything here is a function of public numbers.
"""

import dataclasses
import functools
import math
from typing import Any, overload

import numpy as np
from scipy import special

PANEL = 0.5
NODES = 20


@dataclasses.dataclass(frozen=True, eq=False)
class NullLaw:
    """Mass of the evidence of open grams, as a quadrature rule: places and masses.

    All integrands are normal densities and tails at a scale of at least half a panel's width, so
    composite Gauss-Legendre with 20 nodes a panel is right to a relative 1e-13.

    Attributes:
      places: (n,) float64, in units of weight.
      masses: (n,) float64 ≥ 0; their sum is the probability of being open.
    """

    places: np.ndarray
    masses: np.ndarray

    @overload
    def tail(self, stddev: float, above: float) -> float: ...
    @overload
    def tail(self, stddev: float, above: np.ndarray) -> np.ndarray: ...
    def tail(self, stddev: float, above: float | np.ndarray) -> float | np.ndarray:
        """Returns the probability of being open now and above a place after the next round.

        Args:
          stddev: ℓ_r times the noise of a round.
          above: one place or several, in units of weight.
        """
        steps = (self.places - np.atleast_1d(above)[:, np.newaxis]) / stddev
        tails = special.ndtr(steps) @ self.masses
        return float(tails[0]) if np.ndim(above) == 0 else tails

    def cut(self, stddev: float, low: float, high: float) -> "NullLaw":
        """Returns the law after one more round, of those that end in (low, high]."""
        places, weights = _quadrature(low, high, stddev)
        steps = (places[:, np.newaxis] - self.places) / stddev
        densities = np.exp(-0.5 * steps * steps) @ self.masses / (stddev * math.sqrt(2 * math.pi))
        return NullLaw(places, weights * densities)


NOTHING_YET = NullLaw(np.zeros(1), np.ones(1))


def constants() -> dict[str, Any]:
    """Returns the constants of the quadrature, on which the last digits of thresholds depend."""
    return {"panel": PANEL, "nodes": NODES}


def _quadrature(low: float, high: float, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns nodes and weights of composite Gauss-Legendre on [low, high]; none if it is empty."""
    if high <= low:
        return np.zeros(0), np.zeros(0)
    panels = math.ceil((high - low) / (PANEL * scale))
    nodes, weights = _legendre()
    half = 0.5 * (high - low) / panels
    centres = low + half * (2 * np.arange(panels) + 1)
    return (centres[:, np.newaxis] + half * nodes).ravel(), np.tile(half * weights, panels)


@functools.cache
def _legendre() -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = special.roots_legendre(NODES)
    return nodes, weights
