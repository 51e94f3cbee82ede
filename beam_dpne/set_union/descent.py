r"""ℓ2-descent: users take turns, and each moves items towards a cutoff by a budget of 1.

Items are filled up to a cutoff, so that few get too much. Weights and gaps are integers in units of
2^-50. With numba (extra `fast`) the loops are compiled; without it the same functions run as
plain Python, with the same results bit for bit: integers are exact, and floats undergo only + × ÷ √ on
IEEE doubles, in one order, without fast-math or fusing.

It is contractive up to rounding; the bound is in `thresholds.descent_rounding`.

DPSU is Gopi et al., "Differentially Private Set Union" (ICML 2020).
"""

import functools
import importlib
import importlib.util
import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from beam_dpne.mechanism.thresholds import GRID_BITS

BUDGET = 2**GRID_BITS
_USERS_AT_ONCE = 50_000
_COMPILING = threading.Lock()
_Loop = Callable[[Any, Any, Any, int, int], None]


def descend(
    offsets: np.ndarray,
    items: np.ndarray,
    *,
    size: int,
    cutoff: int,
    compiled: bool | None = None,
) -> np.ndarray:
    """Returns the histogram after all users, in their order.

    Args:
      offsets: (n + 1,) int64, where each user's items begin.
      items: (m,) int64 in range(size), distinct within each user; the sum of squares
        is computed in this order.
      size: the number of items.
      cutoff: Γ/M in units of 2^-50, below 2^63.
      compiled: whether numba compiles the loop; by default it does if it is installed.

    Returns:
      (size,) int64, weights in units of 2^-50.
    """
    if can_compile() if compiled is None else compiled:
        histogram = np.zeros(size, np.int64)
        _compiled()(offsets, items, histogram, cutoff, BUDGET)
        return histogram
    weights = [0] * size
    for first in range(0, len(offsets) - 1, _USERS_AT_ONCE):
        some = offsets[first : first + _USERS_AT_ONCE + 1]
        # Plain Python is faster on lists than on arrays; slices keep the lists small.
        items_of_some = items[some[0] : some[-1]].tolist()
        _descend_straight((some - some[0]).tolist(), items_of_some, weights, cutoff, BUDGET)
    return np.array(weights, dtype=np.int64)


@functools.cache
def can_compile() -> bool:
    """Returns whether numba is installed."""
    return importlib.util.find_spec("numba") is not None


def _compiled() -> _Loop:
    """Compiles a loop; without fastmath numba keeps the order of float operations.

    One thread of a worker enters at a time, since it may be the first to import numba.
    """
    with _COMPILING:
        return _compiled_once()


@functools.cache
def _compiled_once() -> _Loop:
    return importlib.import_module("numba").njit(fastmath=False)(_descend_straight)


def _descend_straight(offsets, items, histogram, cutoff, budget):
    """Moves a user's items straight towards the cutoff, by at most 1 in ℓ2.

    References: DPSU Algorithm 5 (ℓ2-descent).
    """
    for user in range(len(offsets) - 1):
        # The squared ℓ2 distance to the cutoff, in squared units of weight.
        square = 0.0
        for entry in range(offsets[user], offsets[user + 1]):
            gap = float(cutoff - histogram[items[entry]]) / float(budget)
            square += gap * gap
        distance = math.sqrt(square)
        for entry in range(offsets[user], offsets[user + 1]):
            missing = cutoff - histogram[items[entry]]
            step = missing
            if distance > 1.0:
                step = min(missing, int(float(missing) / distance))
            histogram[items[entry]] += step
