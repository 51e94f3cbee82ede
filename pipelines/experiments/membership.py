"""Membership inference: how well draws of a mechanism show whether a user is in the data.

Two statistics. The paper's: how often the user's own distribution is nearer to what was released with
the user than to what was released without. The likelihood ratio: no test of the same size finds the
user more often (Neyman and Pearson), and its errors bound ε from below.

References: Ramadan, Withers and Orr, section 5; Jagielski, Ullman and Oprea 2020, "Auditing
differentially private machine learning", for the bound.
"""

import math

import numpy as np
import numpy.typing as npt
from scipy import special

from pipelines.experiments.divergence import kl_divergence

_Floats = npt.NDArray[np.float64]
_RATIO_DIGITS = 9


def inference_probability(
    user_shares: _Floats, with_user: npt.NDArray[np.float64], without: npt.NDArray[np.float64]
) -> float:
    """Returns the share of pairs of draws with KL(p_u ‖ θ) < KL(p_u ‖ θ_{−u}); ties count half.

    Args:
      user_shares: (V,) p_u, the distribution of the user's n-grams.
      with_user: (draws, V) θ, released with the user.
      without: (draws, V) θ_{−u}, released without.

    References: Ramadan, Withers and Orr, section 5.
    """
    near = np.array([kl_divergence(user_shares, one) for one in with_user])
    far = np.array([kl_divergence(user_shares, one) for one in without])
    return float(((near < far) + 0.5 * (near == far)).mean())


def gaussian_log_ratios(values: _Floats, with_user: _Floats, without: _Floats, stddev: float):
    """Returns log p(values | with) − log p(values | without) of counts with normal noise: (draws,).

    Args:
      values: (draws, m) released values of the m grams that the user changes; the others cancel.
      with_user: (m,) their means with the user.
      without: (m,) their means without.
      stddev: σ.
    """
    return ((values - without) ** 2 - (values - with_user) ** 2).sum(axis=1) / (2 * stddev**2)


def laplace_log_ratios(values: _Floats, with_user: _Floats, without: _Floats, scale: float):
    """Returns the same for Laplace noise of a scale: (draws,).

    Rounded, since most draws have the same ratio: what floating point adds to it is no property of
    the noise, and would distinguish the worlds.
    """
    ratios = (np.abs(values - without) - np.abs(values - with_user)).sum(axis=1) / scale
    return np.round(ratios, _RATIO_DIGITS)


def softmax_log_ratios(
    logs: _Floats,
    with_user: tuple[_Floats, float],
    without: tuple[_Floats, float],
) -> _Floats:
    """Returns the same for logarithms with normal noise after softmax, which hides their mean.

    The noise may differ between the worlds, as it does in the paper's mechanism: that is its leak.

    Args:
      logs: (draws, V) logarithms of released probabilities, up to a constant each.
      with_user: means (V,) and σ with the user.
      without: means (V,) and σ without.
    """
    centred = logs - logs.mean(axis=1, keepdims=True)
    return _centred_log_density(centred, *with_user) - _centred_log_density(centred, *without)


def epsilon_lower_bound(
    with_user: _Floats, without: _Floats, *, delta: float, confidence: float = 0.95
) -> float:
    """Returns a lower bound of ε from scores of draws: 0 if they show nothing.

    The first half of the draws chooses a threshold and a direction, the second half counts errors;
    Clopper and Pearson bound both rates, each at half of what may fail. (ε, δ)-DP has, for every event,
    P_with(E) ≤ e^ε P_without(E) + δ, and the reverse.

    Args:
      with_user: (n,) scores of draws with the user, high where the user seems to be there; n ≥ 4.
      without: (n,) of draws without.
      delta: δ.
      confidence: with which the bound holds, over the draws.
    """
    half, other = len(with_user) // 2, len(without) // 2
    threshold, flipped = _choose(with_user[:half], without[:other], delta)
    present, absent = with_user[half:], without[other:]
    if flipped:
        present, absent = -absent, -present
    failing = (1 - confidence) / 2
    found = lower_rate(int((present > threshold).sum()), present.size, failing)
    mistaken = upper_rate(int((absent > threshold).sum()), absent.size, failing)
    return max(0.0, math.log((found - delta) / mistaken)) if found > delta else 0.0


def lower_rate(hits: int, draws: int, failing: float) -> float:
    """Returns the lower Clopper–Pearson bound of a probability, exceeded with probability `failing`.

    >>> round(lower_rate(10, 10, 0.025), 4)
    0.6915
    """
    return 0.0 if hits == 0 else float(special.betaincinv(hits, draws - hits + 1, failing))


def upper_rate(hits: int, draws: int, failing: float) -> float:
    """Returns the upper Clopper–Pearson bound of a probability.

    >>> round(upper_rate(0, 10, 0.025), 4)
    0.3085
    """
    if hits == draws:
        return 1.0
    return float(special.betaincinv(hits + 1, draws - hits, 1 - failing))


def _centred_log_density(centred: _Floats, means: _Floats, stddev: float) -> _Floats:
    """Returns the log density of a normal vector less its mean, which has one dimension less."""
    squares = ((centred - (means - means.mean())) ** 2).sum(axis=1)
    return -squares / (2 * stddev**2) - (means.size - 1) * math.log(stddev)


def _choose(with_user: _Floats, without: _Floats, delta: float) -> tuple[float, bool]:
    """Returns the threshold with the best bound, and whether low scores are the event."""
    options = []
    for flipped in (False, True):
        present, absent = (-without, -with_user) if flipped else (with_user, without)
        for threshold in np.quantile(np.append(present, absent), np.linspace(0.01, 0.99, 99)):
            hits, errors = (present > threshold).sum(), (absent > threshold).sum()
            found = max(lower_rate(int(hits), present.size, 0.05) - delta, 1e-12)
            mistaken = upper_rate(int(errors), absent.size, 0.05)
            options.append((math.log(found / mistaken), float(threshold), flipped))
    _, threshold, flipped = max(options)
    return threshold, flipped
