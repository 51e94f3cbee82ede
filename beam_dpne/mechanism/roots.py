"""The roots of functions of one number, without the time that scipy.optimize takes to load."""

import math
import sys
from collections.abc import Callable

_RELATIVE = 4 * sys.float_info.epsilon
_MOST_STEPS = 100


def find_root(
    function: Callable[[float], float], low: float, high: float, *, tolerance: float
) -> float:
    """Returns the argument at which a function changes sign in [low, high], by Brent's method.

    Each step is an interpolation through the last points, or a bisection where that would be slow. The
    steps, and so all digits of the result, are those of `scipy.optimize.brentq`.

    Args:
      function: a continuous function with different signs at both ends.
      low: the lower end.
      high: the upper end.
      tolerance: the absolute error of the argument.

    Raises:
      ValueError: if the function has one sign at both ends, returns NaN, or has a root
        that is not found.

    Example:
      >>> round(find_root(lambda x: x * x - 2, 0, 2, tolerance=1e-9), 6)
      1.414214

    References: Brent, "Algorithms for Minimization without Derivatives", 1973, chapter 4.
    """
    # The root lies between `best`, where the function is smallest so far, and `other`; `last` is the
    # best point of the step before. Each `f_…` is the function's value at that point.
    last, best = float(low), float(high)
    f_last, f_best = function(last), function(best)
    if f_last == 0.0 or f_best == 0.0:
        return last if f_last == 0.0 else best
    if _same_sign(f_last, f_best):
        raise ValueError("function must have different signs at both ends, got one sign.")
    other, f_other, step, step_before = 0.0, 0.0, 0.0, 0.0
    for _ in range(_MOST_STEPS):
        if f_last != 0.0 and f_best != 0.0 and not _same_sign(f_last, f_best):
            other, f_other = last, f_last
            step = step_before = best - last
        if abs(f_other) < abs(f_best):
            last, best, other = best, other, best
            f_last, f_best, f_other = f_best, f_other, f_best
        error = (tolerance + _RELATIVE * abs(best)) / 2
        half = (other - best) / 2
        if f_best == 0.0 or abs(half) < error:
            return best
        found = math.inf
        if abs(step_before) > error and abs(f_best) < abs(f_last):
            found = _interpolated((last, f_last), (best, f_best), (other, f_other))
        # An interpolation must be short, and shorter than half of the step before the last.
        if 2 * abs(found) < min(abs(step_before), 3 * abs(half) - error):
            step_before, step = step, found
        else:
            step_before = step = half
        last, f_last = best, f_best
        best += step if abs(step) > error else math.copysign(error, half)
        f_best = function(best)
        if math.isnan(f_best):
            raise ValueError("function must return numbers, got NaN.")
    raise ValueError(f"function must have a root that {_MOST_STEPS} steps find.")


def _interpolated(
    last_point: tuple[float, float],
    best_point: tuple[float, float],
    other_point: tuple[float, float],
) -> float:
    """Returns the step from the best point to the root of a line or inverse parabola through points.

    A point is an argument with the function's value there.
    """
    (last, f_last), (best, f_best), (other, f_other) = last_point, best_point, other_point
    try:
        if last == other:
            return -f_best * (best - last) / (f_best - f_last)
        slope_last = (f_last - f_best) / (last - best)
        slope_other = (f_other - f_best) / (other - best)
        above = f_other * slope_other - f_last * slope_last
        return -f_best * above / (slope_other * slope_last * (f_other - f_last))
    except ZeroDivisionError:  # Products of very small numbers are 0; then a bisection is next.
        return math.inf


def _same_sign(one: float, other: float) -> bool:
    return math.copysign(1.0, one) == math.copysign(1.0, other)
