"""How far public counts are levelled before they are the prior of `posterior`."""

import math

import numpy as np
import numpy.typing as npt

_Floats = npt.NDArray[np.float64]

TOTAL_STDDEV = 2.0  # of the prior of μ, whose mean is 0: e^μ is within e^±4 almost surely
MOST_SAMPLING = 2.0  # cap on 1/α' + 1/m, since a normal describes sampling badly where it is large
_LEVELS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # in units of the mean prior count
_LEVEL_DOUBT = 20.0  # twice the log likelihood that any level but the first must gain
_LEVEL_SPREAD = 0.5  # of words and grams together, before τ and κ are fitted
_LEVEL_ROUNDS = 5
_LEAST_RATIO = 1e-6
_LOG_RATIOS = np.arange(-8.0, 0.0, 0.5).tolist()


def levelled(noisy: _Floats, prior: _Floats, stddev: float) -> tuple[_Floats, float]:
    """Returns the prior counts at the level that fits the noisy counts best, and a first μ.

    If public counts say little about the private texts, a constant is added to all prior counts, so
    that common grams have a smaller share and rare ones a larger. There are so many rare grams that
    together they show this whatever the noise. Mostly nothing is added.
    """
    fits = [_fit_of_level(noisy, prior, level, stddev) for level in _LEVELS]
    # (levels,) The first level, which adds nothing, is preferred in doubt.
    likelihoods = np.array([fit for fit, _ in fits])
    likelihoods[0] += _LEVEL_DOUBT
    best = int(np.argmax(likelihoods))
    return _at_level(prior, _LEVELS[best]), fits[best][1]


def _at_level(prior: _Floats, level: float) -> _Floats:
    """Returns prior counts with the same sum, to which a part of their mean is added."""
    return (prior + level * prior.mean()) / (1 + level)


def _fit_of_level(
    noisy: _Floats, prior: _Floats, level: float, stddev: float
) -> tuple[float, float]:
    """Returns twice the log posterior of a level, and the best μ of 0, a fit, and a grid."""
    shares = _at_level(prior, level)
    ratio = 1.0
    # The ratio of totals is fitted by least squares, in a few rounds, since the weights depend on it.
    for _ in range(_LEVEL_ROUNDS):
        means = ratio * shares
        variances = stddev**2 + means**2 * _level_spreads(prior, means)
        total = float((shares * noisy / variances).sum())
        ratio = max(total / float((shares**2 / variances).sum()), _LEAST_RATIO)
    fits = []
    # Least squares may give next to no total, although the prior of μ would rather have a small one.
    for log_ratio in (0.0, math.log(ratio), *_LOG_RATIOS):
        means = math.exp(log_ratio) * shares
        variances = stddev**2 + means**2 * _level_spreads(prior, means)
        squares = (noisy - means) ** 2 / variances
        misfit = float((squares + np.log(variances)).sum())
        fits.append((-misfit - (log_ratio / TOTAL_STDDEV) ** 2, log_ratio))
    return max(fits)


def _level_spreads(prior: _Floats, means: _Floats) -> _Floats:
    """Returns the variances of logarithms before words and spreads are fitted."""
    return _LEVEL_SPREAD**2 + np.minimum(1 / prior + 1 / means, MOST_SAMPLING)
