"""The expected mass of a row by its score, and the spread around it, learned from the noisy masses."""

import dataclasses

import numpy as np

from beam_dpne.counts.blocks import large_blocks, weighted_mean
from beam_dpne.counts.numerics import solve

# Spread of masses around the curve that is expected before the data, relative, and its weight in rows.
SPREAD, SPREAD_ROWS = 0.35, 5.0
ROWS_OF_A_KNOT, MOST_KNOTS = 40, 8


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Curve:
    """A piecewise linear function of the log score, and the relative spread of masses around it.

    Attributes:
      knots: (p,) float64, ascending log scores.
      heights: (p,) float64, the curve at the knots.
      least: the least value of the curve.
      squares: (p,) float64, the squared spread at the knots.
    """

    knots: np.ndarray
    heights: np.ndarray
    least: float
    squares: np.ndarray

    def at(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the expected masses at some log scores, and the relative spread around them."""
        basis = _hats(places, self.knots)
        return np.maximum(basis @ self.heights, self.least), np.sqrt(basis @ self.squares)


def fit_curve(places: np.ndarray, masses: np.ndarray, stddevs: np.ndarray) -> Curve:
    """Fits a piecewise linear curve to noisy masses, and the spread of the true ones around it.

    Args:
      places: (n,) float64, log scores of the rows of one length.
      masses: (n,) float64, their noisy masses.
      stddevs: (n,) float64, the standard deviations of the noise.
    """
    count = int(np.clip(places.size // ROWS_OF_A_KNOT, 1, MOST_KNOTS)) + 1
    knots = np.unique(np.quantile(places, np.linspace(0, 1, count)))
    least = max(float(masses.max()), float(stddevs.min())) / 1000
    level = max(weighted_mean(masses, stddevs**-2), least)
    heights = np.zeros(0)
    for turn in range(4):
        normal, right = np.zeros((knots.size, knots.size)), np.zeros(knots.size)
        for rows in large_blocks(0, places.size):
            basis = _hats(places[rows], knots)
            # The first weights are those of a level curve.
            curve = np.maximum(basis @ heights, least) if turn else np.full(len(basis), level)
            weights = 1 / (stddevs[rows] ** 2 + (SPREAD * curve) ** 2)
            normal += basis.T @ (weights[:, None] * basis)
            right += basis.T @ (weights * masses[rows])
        heights = solve(normal, right)
    curve = Curve(knots=knots, heights=heights, least=least, squares=np.zeros(knots.size))
    return dataclasses.replace(curve, squares=_squares(curve, places, masses, stddevs))


def _squares(
    curve: Curve, places: np.ndarray, masses: np.ndarray, stddevs: np.ndarray
) -> np.ndarray:
    """Returns the squared spread at each knot, by the method of moments within its hat function.

    E[(mass − curve)² − noise²] = (spread · curve)².
    """
    # Sums over the rows of each hat function h: Σ h·excess, Σ h·scale, the same again for the mean of
    # the scale, and Σ h.
    excesses, scales, means, norms = np.zeros((4, curve.knots.size))
    for rows in large_blocks(0, places.size):
        expected, _ = curve.at(places[rows])
        noise = stddevs[rows] ** 2
        weights = (noise + (SPREAD * expected) ** 2) ** -2
        excess = weights * ((masses[rows] - expected) ** 2 - noise) * expected**2
        scale = weights * expected**4
        for knot, hat in enumerate(_hats(places[rows], curve.knots).T):
            excesses[knot] += hat @ excess
            scales[knot] += hat @ scale
            means[knot] += (scale * hat).sum()
            norms[knot] += hat.sum()
    prior = SPREAD_ROWS * (means / norms)
    return np.clip((excesses + prior * SPREAD**2) / (scales + prior), 0.05**2, 9.0)


def _hats(places: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Returns the values of the hat functions of all knots at some places: (n, p) float64."""
    return np.stack([np.interp(places, knots, row) for row in np.eye(knots.size)], axis=1)
