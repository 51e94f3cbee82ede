"""Noise from the tail of a normal law, for planted mistakes."""

import numpy as np
from scipy import special

from beam_dpne.mechanism.randomness import uniforms


def upper_tail_normals(bits: np.ndarray, tail: float) -> np.ndarray:
    """Returns standard normal noise given that it exceeds Φ̄^{-1}(tail), from (n, 2) uint64 bits."""
    return -special.ndtri(tail * uniforms(bits))
