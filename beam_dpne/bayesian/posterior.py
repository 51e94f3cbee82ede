"""From noisy counts of n-grams to probabilities, by post-processing, which costs no privacy.

The noisy count of gram i is c_i + N(0, σ²), with σ known. Given public counts α, its model is

    c_i = exp(η_i),  η_i = μ + log α'_i + Σ_j b(w_ij) + r_i,
    b(w) ~ N(0, τ²),  r_i ~ N(−v_i/2, v_i),  v_i = κ² + 1/α'_i + 1/m_i.

α' are the public counts less a discount (`discounted`). They are levelled if the noisy counts show that
the public counts say little about the private texts (`prior_levels`). e^μ is the ratio of the private
to the public total. b(w) says how much more the word w is used in the private texts, at any position of
any gram; through it a rare gram without signal learns from all others. r_i is the rest of gram i. Its
variance is κ² for the part that the words do not explain, 1/α'_i for the sampling of the public count,
and 1/m_i for the sampling of the private count, whose expectation is m_i = exp(μ + log α'_i + Σ b). The
mean of exp(r_i) is 1, so that a gram without signal keeps its prior.

First (μ, b) maximize the penalized likelihood, with r_i integrated to first order; τ and κ maximize the
marginal likelihood of the noisy counts. Then each gram's count is its posterior mean, integrated
numerically under the exact normal likelihood. It is positive, whatever the noisy count.

As σ → ∞ the result tends to the prior α'/Σα', and as σ → 0 to the distribution of the counts. τ, κ and
μ have priors so wide that they matter only if the noisy counts say nothing. These priors are constants
of this module, chosen on public texts. No random numbers are drawn.

References: Ramadan, Withers and Orr, "N-grams Bayesian Differential Privacy", for the idea of a public
prior of logarithms; MacKay 1992, "Bayesian interpolation", equation 4.2, for the update of τ.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import linalg

from beam_dpne.bayesian.posterior_means import posterior_means
from beam_dpne.bayesian.prior_levels import MOST_SAMPLING, TOTAL_STDDEV, levelled

_Floats = npt.NDArray[np.float64]
_Integers = npt.NDArray[np.int64]

_DISCOUNT = 0.9  # subtracted from each public count
_LEAST_PRIOR = 0.1  # the prior count of public counts of 1 and 0
_WORD_SPREAD, _SPREAD = 0.1, 0.2  # the prior guesses of τ and of κ
_WORDS_GUESSED, _GRAMS_GUESSED = 5.0, 100.0  # the weights of these guesses, in words and in grams
_LEAST_SPREAD, _MOST_SPREAD = 0.05, 1.5
_SPREADS = np.geomspace(_LEAST_SPREAD, _MOST_SPREAD, 18)  # the candidates for κ
_NO_NOISE = 1e-3  # with a smaller σ, whole numbers are as good as exact
_ROUNDS, _SETTLED = 30, 1e-4
_SOLVER_STEPS, _SOLVER_TOLERANCE = 40, 1e-6
_LEAST_STEP = 1e-3


def probabilities(
    noisy: npt.NDArray[Any],
    public: _Integers,
    grams: npt.NDArray[np.int32],
    stddev: float,
) -> _Floats:
    """Returns the posterior mean of each gram's share of the private counts.

    Args:
      noisy: (V,) the private counts with noise; some may be negative.
      public: (V,) the public counts, ≥ 0.
      grams: (V, n) the ids of each gram's words.
      stddev: σ ≥ 0 of the noise; below 0.001 the counts are taken as exact.

    Returns:
      (V,) float64, ≥ 0, summing to 1; > 0 if there is noise.

    Raises:
      ValueError: if shapes or values differ from these.

    Example:
      >>> grams = np.array([[0, 1], [0, 2], [3, 4]], dtype=np.int32)
      >>> noisy, public = np.array([900, 110, -40]), np.array([50, 50, 100])
      >>> probabilities(noisy, public, grams, stddev=1e6).round(2).tolist()
      [0.25, 0.25, 0.5]
      >>> probabilities(noisy, public, grams, stddev=0).round(2).tolist()
      [0.89, 0.11, 0.0]
    """
    _check(noisy, public, grams, stddev)
    prior = discounted(public)
    if stddev < _NO_NOISE:
        counts = np.maximum(noisy.astype(np.float64), 0.0)
        shares = counts if counts.any() else prior
        return shares / shares.sum()
    values = noisy.astype(np.float64)
    level, total = levelled(values, prior, stddev)
    data = _counts_of(values, np.log(level), grams, stddev)
    fitted = _fit(data, total)
    means = posterior_means(values, stddev, fitted.log_means, fitted.spreads(data))
    if not means.any():
        # Counts far below zero, whose sum no total fits, make all means smaller than the least float.
        # The counts themselves are then the better estimate.
        means = np.maximum(values, stddev)
    return means / means.sum()


@dataclasses.dataclass(frozen=True, eq=False)
class _Counts:
    """The data of the fit.

    Attributes:
      noisy: (V,) the noisy counts.
      log_public: (V,) log α'.
      words: Z, (V, K), how often each gram has each of the K words.
      distinct: K, the number of words.
      stddev: σ.
    """

    noisy: _Floats
    log_public: _Floats
    words: sparse.csr_matrix
    distinct: int
    stddev: float


@dataclasses.dataclass(frozen=True, eq=False)
class _Words:
    """The parameters of the fit.

    Attributes:
      total: μ, in logarithms.
      effects: (K,) b, in logarithms.
      log_means: (V,) log m, with m the expected private counts.
      word_spread: τ.
      gram_spread: κ.
    """

    total: float
    effects: _Floats
    log_means: _Floats
    word_spread: float = _WORD_SPREAD
    gram_spread: float = _SPREAD

    def spreads(self, counts: _Counts) -> _Floats:
        """Returns v, the variance of r: (V,), in squared logarithms."""
        # (V,) 1/α' + 1/m. The exponent is cut off, since 1/m would overflow for a tiny m.
        sampling = np.exp(-counts.log_public) + np.exp(np.minimum(-self.log_means, 1.0))
        return self.gram_spread**2 + np.minimum(sampling, MOST_SAMPLING)


class _Normal(NamedTuple):
    """The counts around m to first order, where a step d of the logarithms leaves residuals − m d.

    Attributes:
      slopes: (V,) m, the derivative of the count by its logarithm.
      residuals: (V,) the noisy counts less m.
      variances: (V,) the residuals' variances, from noise and logarithms.
    """

    slopes: _Floats
    residuals: _Floats
    variances: _Floats

    @property
    def weights(self) -> _Floats:
        """W: (V,) the inverse variance of each logarithm."""
        return self.slopes**2 / self.variances


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


def _check(
    noisy: _Integers, public: _Integers, grams: npt.NDArray[np.int32], stddev: float
) -> None:
    if noisy.ndim != 1 or noisy.size == 0 or noisy.shape != public.shape:
        raise ValueError(
            f"noisy and public must be equally long and not empty, got shapes {noisy.shape} and "
            f"{public.shape}."
        )
    if grams.ndim != 2 or len(grams) != noisy.size or grams.shape[1] == 0:
        raise ValueError(f"grams must have a row for each count, got shape {grams.shape}.")
    if not (math.isfinite(stddev) and stddev >= 0):
        raise ValueError(f"stddev must be a finite number >= 0, got {stddev=}.")
    if public.min() < 0:
        raise ValueError(f"public must be counts >= 0, got {public.min()}.")


def _counts_of(
    noisy: _Floats,
    log_public: _Floats,
    grams: npt.NDArray[np.int32],
    stddev: float,
) -> _Counts:
    rows, length = grams.shape
    distinct = int(grams.max()) + 1
    # CSR: the words of a gram are the columns of its row; the entries of a repeated word add up to 2.
    entries = np.ones(grams.size), grams.ravel(), np.arange(0, grams.size + 1, length)
    words = sparse.csr_matrix(entries, shape=(rows, distinct))
    return _Counts(noisy, log_public, words, distinct, stddev)


def _fit(counts: _Counts, total: float) -> _Words:
    """Fits μ and b, and with them τ and κ, starting from the public distribution and a first μ."""
    words = _Words(total, np.zeros(counts.distinct), counts.log_public + total)
    for _ in range(_ROUNDS):
        before = words.log_means
        words = _spread(counts, _improve(counts, words))
        if np.abs(words.log_means - before).max() < _SETTLED:
            break
    return words


def _linearise(counts: _Counts, words: _Words) -> _Normal:
    """Returns the normal approximation of the counts at the current parameters."""
    means = np.exp(words.log_means)
    # A count with variance v of η has variance m²·v to first order.
    variances = counts.stddev**2 + means**2 * words.spreads(counts)
    return _Normal(means, counts.noisy - means, variances)


def _improve(counts: _Counts, words: _Words) -> _Words:
    """Takes a Gauss–Newton step of μ, then of b, shortened until the fit is not worse."""
    normal = _linearise(counts, words)
    precision = TOTAL_STDDEV**-2
    slope = float((normal.slopes * normal.residuals / normal.variances).sum())
    shift = (slope - precision * words.total) / (float(normal.weights.sum()) + precision)
    shift = min(max(shift, -1.0), 1.0)
    # (V,) The normal equations of b are (Zᵀ W Z + 1/τ²) b = Zᵀ(pull + W Z b_before), in 1/logarithms.
    pull = normal.slopes * (normal.residuals - shift * normal.slopes) / normal.variances
    working = pull + normal.weights * (counts.words @ words.effects)
    right = counts.words.T @ working
    effects = _solve(counts.words, normal.weights, words.word_spread, right, words.effects)
    return _search(counts, words, normal.variances, shift, effects - words.effects)


def _search(
    counts: _Counts, words: _Words, variances: _Floats, shift: float, change: _Floats
) -> _Words:
    """Halves the step until the penalized squares do not grow; stays if no step is good enough."""
    # (V,) the change of each log m in a whole step.
    direction = counts.words @ change + shift
    start = _misfit(counts, words, variances)
    size = 1.0
    while size > _LEAST_STEP:
        moved = dataclasses.replace(
            words,
            total=words.total + size * shift,
            effects=words.effects + size * change,
            log_means=words.log_means + size * direction,
        )
        if _misfit(counts, moved, variances) <= start:
            return moved
        size /= 2
    return words


def _misfit(counts: _Counts, words: _Words, variances: _Floats) -> float:
    """Returns the penalized squares: the residuals, b and μ in units of their standard deviations."""
    with np.errstate(over="ignore"):
        squares = (counts.noisy - np.exp(words.log_means)) ** 2 / variances
        penalty = (words.effects**2).sum() / words.word_spread**2
        return float(squares.sum() + penalty + (words.total / TOTAL_STDDEV) ** 2)


def _solve(
    words: sparse.csr_matrix, weights: _Floats, spread: float, right: _Floats, start: _Floats
) -> _Floats:
    """Solves (Zᵀ W Z + 1/τ²) b = right by conjugate gradients from `start` on: (K,) float64.

    The equations are scaled by their diagonal on both sides, and solved for the change of `start`. So
    the solver stops relative to the residual of `start`, which is often small already.
    """
    transposed = words.T.tocsr()
    # (K,) D^-1/2, with D the diagonal of the equations.
    scale = 1 / np.sqrt(transposed @ weights + spread**-2)

    def apply(effects: _Floats) -> _Floats:
        return transposed @ (weights * (words @ effects)) + effects / spread**2

    # Type checkers know the constructor of subclasses only, which has no `matvec`.
    make_operator: Any = linalg.LinearOperator
    scaled = make_operator(
        (start.size, start.size), matvec=lambda b: scale * apply(scale * b), dtype=np.float64
    )
    residual = scale * (right - apply(start))
    change, _ = linalg.cg(scaled, residual, rtol=_SOLVER_TOLERANCE, atol=0.0, maxiter=_SOLVER_STEPS)
    return start + scale * change


def _spread(counts: _Counts, words: _Words) -> _Words:
    """Updates τ and κ.

    τ² is Σ b² divided by the number of words that the counts determine. Each word has the part
    1 − (its posterior variance)/τ² in this number. Its variance given all other words is used, which is
    close enough and needs no inverse.
    """
    normal = _linearise(counts, words)
    # (K,) the inverse variance of each word's b from the counts alone, given the other words.
    information = counts.words.T @ normal.weights
    determined = float((information / (information + words.word_spread**-2)).sum())
    squares = float((words.effects**2).sum()) + _WORDS_GUESSED * _WORD_SPREAD**2
    word_spread = math.sqrt(squares / (determined + _WORDS_GUESSED))
    # (V,) the variances without the part of κ, to which each candidate for κ adds its part.
    rest = normal.variances - words.gram_spread**2 * normal.slopes**2
    fits = [_fit_of_spread(normal, rest, spread) for spread in _SPREADS]
    return dataclasses.replace(
        words,
        word_spread=min(max(word_spread, _LEAST_SPREAD), _MOST_SPREAD),
        gram_spread=float(_SPREADS[int(np.argmax(fits))]),
    )


def _fit_of_spread(normal: _Normal, rest: _Floats, spread: float) -> float:
    """Returns twice the log marginal likelihood of κ, plus twice its log prior."""
    variances = rest + spread**2 * normal.slopes**2
    likelihood = -(normal.residuals**2 / variances + np.log(variances)).sum()
    return float(likelihood) - _GRAMS_GUESSED * (2 * math.log(spread) + (_SPREAD / spread) ** 2)
