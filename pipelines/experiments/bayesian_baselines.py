"""Baselines for private n-gram probabilities: Laplace noise, k-anonymity, and public data alone.

All return a distribution over the vocabulary, (V,) float64; zeros are zeros (`divergence.with_floor`).

References: Ramadan, Withers and Orr, sections 4.2 and 4.5. The paper prints Lap(ε/Δ); the scale is Δ/ε.
"""

import numpy as np
import numpy.typing as npt

from beam_dpne.mechanism.randomness import RunKey, keyed_bits, signs, uniforms

_Floats = npt.NDArray[np.float64]
_Integers = npt.NDArray[np.int64]


def laplace(
    counts: _Integers,
    *,
    epsilon: float,
    max_count: int,
    max_contributions: int,
    run_key: RunKey,
) -> _Floats:
    """Returns counts with Laplace noise of scale C·W/ε, cut off at 0 and normalised.

    The formula of an (ε, 0)-differentially private mechanism, in floating point and under keys that are
    bound to no parameters: to compare with, never to be released.

    Args:
      counts: (V,) sums of limited counts: C of each gram, W grams of each user.
      epsilon: ε.
      max_count: C.
      max_contributions: W.
      run_key: of the noise.
    """
    noise = _noise(counts.size, max_count * max_contributions / epsilon, run_key)
    return _positive(counts + noise)


def laplace_with_public(
    counts: _Integers,
    public: _Integers,
    *,
    epsilon: float,
    max_count: int,
    max_contributions: int,
    run_key: RunKey,
) -> _Floats:
    """Returns the paper's "modified Laplace mechanism that utilises public counts", as printed.

    max(Σ_u w_u (c̃^u − α̃) + e + α̃, 0), normalised, with w_u = |c^u|/|c|. As Σ w_u = 1, the public
    part cancels: what is left is c/|c| + e. One user's term has an ℓ1-norm of up to 2·C·W/|c|, twice
    that of the counts. |c| is taken as known, which favours the baseline: it is none of the guarantees.

    Args:
      counts: (V,) sums of limited counts, some positive.
      public: (V,) α.
      epsilon: ε.
      max_count: C.
      max_contributions: W.
      run_key: of the noise.
    """
    total = float(counts.sum())
    share = public / public.sum()
    moved = counts / total - share
    noise = _noise(counts.size, 2 * max_count * max_contributions / (total * epsilon), run_key)
    return _positive(moved + noise + share)


def k_anonymity(counts: _Integers, holders: _Integers, users: int) -> _Floats:
    """Returns the exact distribution of the n-grams of at least so many users, with 0 for the others.

    No differential privacy: what is kept is exact.

    Args:
      counts: (V,) without any limit.
      holders: (V,) how many users have each.
      users: K.

    >>> k_anonymity(np.array([6, 2, 9]), np.array([3, 3, 1]), 2).tolist()
    [0.75, 0.25, 0.0]
    """
    return _positive(np.where(holders >= users, counts, 0).astype(np.float64))


def public_only(public: _Integers, added: int = 0) -> _Floats:
    """Returns the public distribution, if asked with 1 added to the counts as in the paper."""
    return _positive((public + added).astype(np.float64))


def _noise(size: int, scale: float, run_key: RunKey) -> _Floats:
    bits = keyed_bits(run_key.sub_key("laplace noise"), np.arange(size), 0)
    return scale * laplaces(bits)


def _positive(values: _Floats) -> _Floats:
    """Cuts values off at 0 and normalises; returns the uniform distribution if all are 0."""
    kept = np.maximum(values, 0.0)
    return kept / kept.sum() if kept.any() else np.full(kept.size, 1 / kept.size)


def laplaces(bits: npt.NDArray[np.uint64]) -> _Floats:
    """Returns Laplace noise of scale 1, ±|ln U|."""
    return signs(bits) * -np.log(uniforms(bits))
