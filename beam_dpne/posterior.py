"""From noisy counts of n-grams to probabilities: only post-processing, so that it costs no privacy."""

import numpy as np
import numpy.typing as npt

_Floats = npt.NDArray[np.float64]
_Integers = npt.NDArray[np.int64]


def probabilities(
    noisy: _Integers, public: _Integers, grams: npt.NDArray[np.int32], stddev: float
) -> _Floats:
    """Returns the posterior mean of each gram's probability under the public prior.

    Args:
      noisy: (V,) the private counts with noise, which may be negative.
      public: (V,) the public counts, all > 0.
      grams: (V, n) ids of each gram's words.
      stddev: σ of the noise, in counts; 0 for none.

    Returns:
      (V,) float64, ≥ 0, summing to 1.
    """
    expected = public / public.sum() * max(float(noisy.sum()), 1.0)
    excess = float(((noisy - expected) ** 2).sum()) - noisy.size * stddev**2
    spread = max(excess, 0.0) / float((expected**2).sum()) * expected**2
    weights = spread / np.maximum(spread + stddev**2, np.finfo(float).tiny)
    means = expected + weights * (noisy - expected)
    kept = np.maximum(means, expected * (1.0 - weights))
    return kept / kept.sum()
