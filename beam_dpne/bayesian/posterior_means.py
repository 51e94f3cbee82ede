"""Posterior means of counts with normal noise, integrated numerically."""

import numpy as np
import numpy.typing as npt

_Floats = npt.NDArray[np.float64]

_MOST_LOG = 60.0  # of a count, so that nothing overflows
_MODE_STEPS = 100
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(24)
_NODE_SPREAD = 1.2  # spreads the nodes beyond the curvature at the mode, since tails are not normal
_SETTLED = 1e-4


def posterior_means(
    noisy: _Floats, stddev: float, log_means: _Floats, variances: _Floats
) -> _Floats:
    """Returns E exp(η) for η ~ N(log m − v/2, v), given exp(η) + N(0, σ²): (V,), each > 0."""
    centres = log_means - 0.5 * variances
    modes = _modes(noisy, stddev, centres, variances)
    widths = _NODE_SPREAD / np.sqrt(_curvatures(noisy, stddev, modes, variances))
    # The Gauss–Hermite nodes are around each mode. `heights`, (V,), is the largest log density over the
    # nodes, which is subtracted before exp so that nothing overflows.
    heights = np.full(log_means.size, -np.inf)
    nodes = [modes + widths * node for node in _NODES]
    logs = []
    for node, at in zip(_NODES, nodes, strict=True):
        misfit = ((noisy - np.exp(at)) / stddev) ** 2
        logs.append(0.5 * (node**2 - misfit - (at - centres) ** 2 / variances))
        heights = np.maximum(heights, logs[-1])
    mass = mean = np.zeros(log_means.size)
    for weight, log, at in zip(_WEIGHTS, logs, nodes, strict=True):
        density = weight * np.exp(log - heights)
        mass, mean = mass + density, mean + density * np.exp(np.minimum(at, _MOST_LOG))
    return mean / mass


def _modes(noisy: _Floats, stddev: float, centres: _Floats, variances: _Floats) -> _Floats:
    """Returns the mode of each posterior of η, by Newton steps of at most 1 from the prior's: (V,)."""
    modes = centres.copy()
    for _ in range(_MODE_STEPS):
        means = np.exp(modes)
        pull = (noisy - means) * means / stddev**2
        slopes = pull - (modes - centres) / variances
        # A step of 1 is a factor e of the count; beyond it the curvature at this point is no guide.
        steps = np.clip(slopes / _curvatures(noisy, stddev, modes, variances), -1.0, 1.0)
        modes = modes + steps
        if np.abs(steps).max() < _SETTLED:
            break
    return modes


def _curvatures(noisy: _Floats, stddev: float, logs: _Floats, variances: _Floats) -> _Floats:
    """Returns minus the second derivative of the log posterior of η, kept above 1/v: (V,)."""
    means = np.exp(logs)
    exact = means**2 - (noisy - means) * means
    # Where the likelihood is not concave (means < noisy/2), half of the Gauss–Newton term replaces it.
    return np.maximum(exact, 0.5 * means**2) / stddev**2 + 1 / variances
