r"""The sequential policies: users take turns, and each pours a budget of 1 into one histogram.

Items are filled up to a cutoff, so that few get too much (`descend`). Weights and gaps are integers in
units of 2^-50. With numba (extra `fast`) the loops are compiled; without it the same functions run as
plain Python, with the same results bit for bit: integers are exact, and floats undergo only + × ÷ √ on
IEEE doubles, in one order, without fast-math or fusing.

Pouring (ℓ1, greedy) is *exactly* contractive in integers. A budget of B units is poured in a fixed
order of units (level l of item i), l ascending for each item, of which item i has as many as its gap
g_i to the cutoff; the first B that exist are poured. Let G ≥ G' be histograms, so that g_i ≤ g'_i: of
the same order fewer units exist at G, so it is cut at the same place or later: n_i ≥ n'_i units of
item i come before the cut. The gaps left are max(0, g_i − n_i) ≤ max(0, g'_i − n'_i): G ≥ G' still.
The weight poured is min(B, Σ g_i) ≤ min(B, Σ g'_i), so ‖G − G'‖₁ has not grown. (This is Lemma 3.1 of
DPSU without its continuous time.) The order may depend on this user's items, and on nothing else.

ℓ2-descent is contractive up to rounding; the bound is in `thresholds.descent_rounding`.

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
    policy: str,
    offsets: np.ndarray,
    items: np.ndarray,
    *,
    size: int,
    cutoff: int,
    compiled: bool | None = None,
) -> np.ndarray:
    """Returns the histogram of a sequential policy after all users, in their order.

    Args:
      policy: "policy_laplace", "policy_gaussian", "screened_gaussian" or "greedy".
      offsets: (n + 1,) int64, where each user's items begin.
      items: (m,) int64 in range(size), distinct within each user; "greedy" pours into them in this
        order, and "policy_laplace" gives spare units to the first.
      size: the number of items.
      cutoff: Γ/M in units of 2^-50, below 2^63.
      compiled: whether numba compiles the loop; by default it does if it is installed.

    Returns:
      (size,) int64, weights in units of 2^-50.
    """
    if can_compile() if compiled is None else compiled:
        histogram = np.zeros(size, np.int64)
        _compiled(policy)(offsets, items, histogram, cutoff, BUDGET)
        return histogram
    weights = [0] * size
    for first in range(0, len(offsets) - 1, _USERS_AT_ONCE):
        some = offsets[first : first + _USERS_AT_ONCE + 1]
        # Plain Python is faster on lists than on arrays; slices keep the lists small.
        items_of_some = items[some[0] : some[-1]].tolist()
        _LOOPS[policy]((some - some[0]).tolist(), items_of_some, weights, cutoff, BUDGET)
    return np.array(weights, dtype=np.int64)


@functools.cache
def can_compile() -> bool:
    """Returns whether numba is installed."""
    return importlib.util.find_spec("numba") is not None


def _compiled(policy: str) -> _Loop:
    """Compiles a loop; without fastmath numba keeps the order of float operations.

    One thread of a worker enters at a time, since it may be the first to import numba.
    """
    with _COMPILING:
        return _compiled_once(policy)


@functools.cache
def _compiled_once(policy: str) -> _Loop:
    return importlib.import_module("numba").njit(fastmath=False)(_LOOPS[policy])


def _pour_evenly(offsets, items, histogram, cutoff, budget):
    """Raises all of a user's items alike until they are full; the order of units is (level, item).

    Gaps are compared with the quotient left/active instead of a product, so that nothing overflows.

    References: DPSU Algorithm 3 (ℓ1-descent).
    """
    for user in range(len(offsets) - 1):
        # `left` is the rest of the budget in units of 2^-50, `active` the number of unfilled items.
        left = budget
        active = 0
        for entry in range(offsets[user], offsets[user + 1]):
            if histogram[items[entry]] < cutoff:
                active += 1
        filling = active > 0
        while filling:
            filling = False
            share = left // active
            for entry in range(offsets[user], offsets[user + 1]):
                gap = cutoff - histogram[items[entry]]
                if 0 < gap <= share:
                    histogram[items[entry]] = cutoff
                    left -= gap
                    active -= 1
                    filling = active > 0
        if active > 0:
            share = left // active
            spare = left - share * active
            for entry in range(offsets[user], offsets[user + 1]):
                if histogram[items[entry]] < cutoff:
                    histogram[items[entry]] += share
                    if spare > 0:
                        histogram[items[entry]] += 1
                        spare -= 1


def _pour_in_order(offsets, items, histogram, cutoff, budget):
    """Fills a user's items one after the other, but first gives each a single unit.

    With the single units, the items with weight are the union of all users' items. Without them, a user
    who fills an item makes later users' budgets overflow to items that would otherwise have no weight.
    The threshold would not cover those, since it counts this user's items only.

    References: Carvalho et al. 2022 (greedy), with the single units added.
    """
    for user in range(len(offsets) - 1):
        left = budget
        for entry in range(offsets[user], offsets[user + 1]):
            if histogram[items[entry]] < cutoff:
                histogram[items[entry]] += 1
                left -= 1
        for entry in range(offsets[user], offsets[user + 1]):
            step = min(left, cutoff - histogram[items[entry]])
            histogram[items[entry]] += step
            left -= step


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


_LOOPS: dict[str, _Loop] = {
    "policy_laplace": _pour_evenly,
    "policy_gaussian": _descend_straight,
    "screened_gaussian": _descend_straight,
    "greedy": _pour_in_order,
}
