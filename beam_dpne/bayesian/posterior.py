"""From noisy counts of n-grams to probabilities, by post-processing, which costs no privacy.

The noisy count of gram i is c_i + N(0, σ²), with σ known. Given public counts α, its model is

    c_i = exp(η_i),  η_i = μ + log α'_i + Σ_j b(w_ij) + r_i,
    b(w) ~ N(0, τ²),  r_i ~ N(−v_i/2, v_i),  v_i = κ² + 1/α'_i + 1/m_i.

α' are the public counts less a discount (`discounted`). They are levelled if the noisy counts show that
the public counts say little about the private texts (`_levelled`). e^μ is the ratio of the private
to the public total. b(w) says how much more the word w is used in the private texts, at any position of
any gram; through it a rare gram without signal learns from all others. r_i is the rest of gram i. Its
variance is κ² for the part that the words do not explain, 1/α'_i for the sampling of the public count,
and 1/m_i for the sampling of the private count, whose expectation is m_i = exp(μ + log α'_i + Σ b). The
mean of exp(r_i) is 1, so that a gram without signal keeps its prior.

μ, b, τ and κ are fitted in `word_effects`. Then each gram's count is its posterior mean, integrated
numerically under the exact normal likelihood. It is positive, whatever the noisy count.

As σ → ∞ the result tends to the prior α'/Σα', and as σ → 0 to the distribution of the counts. τ, κ and
μ have priors so wide that they matter only if the noisy counts say nothing. These priors are constants
of this module, chosen on public texts. No random numbers are drawn.

References: Ramadan, Withers and Orr, "N-grams Bayesian Differential Privacy", for the idea of a public
prior of logarithms; MacKay 1992, "Bayesian interpolation", equation 4.2, for the update of τ.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_dpne.bayesian.word_effects import MOST_SAMPLING, TOTAL_STDDEV, fit_words

_Floats = npt.NDArray[np.float64]
_Integers = npt.NDArray[np.int64]

_DISCOUNT = 0.9  # subtracted from each public count
_LEAST_PRIOR = 0.1  # the prior count of public counts of 1 and 0
_NO_NOISE = 1e-3  # with a smaller σ, whole numbers are as good as exact
_LEVELS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # in units of the mean prior count
_LEVEL_DOUBT = 20.0  # twice the log likelihood that any level but the first must gain
_LEVEL_SPREAD = 0.5  # of words and grams together, before τ and κ are fitted
_LEVEL_ROUNDS = 5
_LEAST_RATIO = 1e-6
_LOG_RATIOS = np.arange(-8.0, 0.0, 0.5).tolist()
_MOST_LOG = 60.0  # of a count, so that nothing overflows
_MODE_STEPS = 100
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(24)
_NODE_SPREAD = 1.2  # spreads the nodes beyond the curvature at the mode, since tails are not normal
_MODE_SETTLED = 1e-4


def probabilities(
    noisy: npt.NDArray[Any], public: _Integers, grams: npt.NDArray[np.int32], stddev: float
) -> _Floats:
    """Returns the posterior mean of each gram's share of the private counts.

    Args:
      noisy: (V,) the private counts with noise; some may be negative.
      public: (V,) the public counts, ≥ 0.
      grams: (V, n) the ids of each gram's words.
      stddev: σ ≥ 0 of the noise; below 0.001 the counts are taken as exact.

    Returns:
      (V,) float64, ≥ 0, summing to 1; > 0 if there is noise.

    Example:
      >>> grams = np.array([[0, 1], [0, 2], [3, 4]], dtype=np.int32)
      >>> noisy, public = np.array([900, 110, -40]), np.array([50, 50, 100])
      >>> probabilities(noisy, public, grams, stddev=1e6).round(2).tolist()
      [0.25, 0.25, 0.5]
      >>> probabilities(noisy, public, grams, stddev=0).round(2).tolist()
      [0.89, 0.11, 0.0]
    """
    prior = discounted(public)
    if stddev < _NO_NOISE:
        counts = np.maximum(noisy.astype(np.float64), 0.0)
        shares = counts if counts.any() else prior
        return shares / shares.sum()
    values = noisy.astype(np.float64)
    level, total = _levelled(values, prior, stddev)
    log_means, variances = fit_words(values, np.log(level), grams, stddev, total=total)
    means = posterior_means(values, stddev, log_means, variances)
    if not means.any():
        # Counts far below zero, whose sum no total fits, make all means smaller than the least float.
        # The counts themselves are then the better estimate.
        means = np.maximum(values, stddev)
    return means / means.sum()


def discounted(public: _Integers) -> _Floats:
    """Returns the prior counts, by absolute discounting of the public counts: (V,) float64.

    A gram is in the vocabulary because it was seen, so that its count is too large on average. In
    another sample of the same text, grams seen r ≥ 2 times are seen about r − 1 times, and grams seen
    once are seen 0.14 times.

    Args:
      public: (V,) the public counts, ≥ 0.

    References: Ney, Essen and Kneser 1994, "On structuring probabilistic dependences", section 4.

    >>> discounted(np.array([100, 1, 0])).tolist()
    [99.1, 0.1, 0.1]
    """
    return np.maximum(public.astype(np.float64) - _DISCOUNT, _LEAST_PRIOR)


def _levelled(noisy: _Floats, prior: _Floats, stddev: float) -> tuple[_Floats, float]:
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
    """Returns twice the log posterior of a level, and its μ.

    Of 0, the μ of least squares and those of a grid, μ is the one with the largest log posterior.
    """
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
        mass = mass + density
        mean = mean + density * np.exp(np.minimum(at, _MOST_LOG))
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
        if np.abs(steps).max() < _MODE_SETTLED:
            break
    return modes


def _curvatures(noisy: _Floats, stddev: float, logs: _Floats, variances: _Floats) -> _Floats:
    """Returns minus the second derivative of the log posterior of η, kept above 1/v: (V,)."""
    means = np.exp(logs)
    exact = means**2 - (noisy - means) * means
    # Where the likelihood is not concave (means < noisy/2), half of the Gauss–Newton term replaces it.
    return np.maximum(exact, 0.5 * means**2) / stddev**2 + 1 / variances
