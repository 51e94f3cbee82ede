"""The fit of word effects: how much more each word is used in the private texts; see `posterior`.

(μ, b) maximize the penalized likelihood of the noisy counts, with r_i integrated to first order; τ and
κ maximize the marginal likelihood.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import linalg

_Floats = npt.NDArray[np.float64]

TOTAL_STDDEV = 2.0  # of the prior of μ, whose mean is 0: e^μ is within e^±4 almost surely
MOST_SAMPLING = 2.0  # cap on 1/α' + 1/m, since a normal describes sampling badly where it is large
# The prior guesses of τ and of κ, and their weights in words and in grams.
_WORD_SPREAD = 0.1
_SPREAD = 0.2
_WORDS_GUESSED = 5.0
_GRAMS_GUESSED = 100.0
_LEAST_SPREAD = 0.05
_MOST_SPREAD = 1.5
_SPREADS = np.geomspace(_LEAST_SPREAD, _MOST_SPREAD, 18)  # the candidates for κ
_ROUNDS = 30
_SETTLED = 1e-4
_SOLVER_STEPS = 40
_SOLVER_TOLERANCE = 1e-6
_LEAST_STEP = 1e-3


@dataclasses.dataclass(frozen=True, eq=False)
class _Counts:
    """The data of the fit.

    Attributes:
      noisy: (V,) the noisy counts.
      log_public: (V,) log α'.
      words: Z, (V, K), how often each gram has each of the K words.
      stddev: σ.
    """

    noisy: _Floats
    log_public: _Floats
    words: sparse.csr_matrix
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


def fit_words(
    noisy: _Floats,
    log_public: _Floats,
    grams: npt.NDArray[np.int32],
    stddev: float,
    *,
    total: float,
) -> tuple[_Floats, _Floats]:
    """Fits μ and b, and with them τ and κ, starting from the public distribution and a first μ.

    Args:
      noisy: (V,) the noisy counts.
      log_public: (V,) log α'.
      grams: (V, n) the ids of each gram's words, −1 after those of a shorter gram.
      stddev: σ > 0 of the noise.
      total: the first μ.

    Returns:
      log m, with m the expected private counts, and v, the variance of the logarithms: (V,) each.
    """
    is_word = grams >= 0
    distinct = int(grams.max()) + 1
    # CSR: the words of a gram are the columns of its row; the entries of a repeated word add up to 2.
    ends = np.append(0, np.cumsum(is_word.sum(axis=1)))
    entries = np.ones(ends[-1]), grams[is_word], ends
    matrix = sparse.csr_matrix(entries, shape=(len(grams), distinct))
    counts = _Counts(noisy, log_public, matrix, stddev)
    words = _Words(total, np.zeros(distinct), log_public + total)
    for _ in range(_ROUNDS):
        before = words.log_means
        words = _spread(counts, _improve(counts, words))
        if np.abs(words.log_means - before).max() < _SETTLED:
            break
    return words.log_means, words.spreads(counts)


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
