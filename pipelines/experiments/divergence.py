"""The Kullback–Leibler divergence of distributions, with a floor for zeros."""

import numpy as np
import numpy.typing as npt

_Floats = npt.NDArray[np.float64]

FLOOR = 0.01


def with_floor(probabilities: _Floats, share: float = FLOOR) -> _Floats:
    """Mixes a distribution with a share of the uniform one, so that no probability is 0.

    The paper does not say what its baselines do with the zeros of a threshold, without which their
    divergence would be infinite; here every mechanism that is compared gets the same share.

    Args:
      probabilities: (V,) ≥ 0, summing to 1.
      share: of the uniform distribution, in [0, 1].

    >>> with_floor(np.array([1.0, 0.0]), 0.5).tolist()
    [0.75, 0.25]
    """
    return (1 - share) * probabilities + share / probabilities.size


def kl_divergence(private: _Floats, released: _Floats) -> float:
    """Returns Σ p log(p/q), in nats; infinite where q is 0 and p is not.

    Args:
      private: (V,) p, the private distribution.
      released: (V,) q.

    References: Ramadan, Withers and Orr, section 4.4.

    >>> round(kl_divergence(np.array([1.0, 0.0]), np.array([0.5, 0.5])), 6)
    0.693147
    """
    present = private > 0
    with np.errstate(divide="ignore"):
        ratios = np.log(private[present]) - np.log(released[present])
    return float((private[present] * ratios).sum())


def best_floor(private: _Floats, released: _Floats) -> tuple[float, float]:
    """Returns the least divergence of all floors, and its share, which is chosen on the private data.

    The divergence is convex in the share, so that halving brackets of its slope find it.
    """
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _slope(private, released, middle) < 0 else (low, middle)
    return kl_divergence(private, with_floor(released, high)), high


def _slope(private: _Floats, released: _Floats, share: float) -> float:
    """Returns the derivative of the divergence by the share."""
    mixed = with_floor(released, share)
    return float((private * (released - 1 / private.size) / mixed).sum())
