"""The roots of functions of one number."""

from collections.abc import Callable


def find_root(
    function: Callable[[float], float], low: float, high: float, *, tolerance: float
) -> float:
    """Returns the argument at which a function changes sign in [low, high], by Brent's method.

    Args:
      function: a continuous function with different signs at both ends.
      low: the lower end.
      high: the upper end.
      tolerance: the absolute error of the argument.

    Example:
      >>> round(find_root(lambda x: x * x - 2, 0, 2, tolerance=1e-9), 6)
      1.414214
    """
    # Loading scipy.optimize takes longer than checking a plan, most of which find no root.
    from scipy import optimize

    root = optimize.root_scalar(function, bracket=(low, high), method="brentq", xtol=tolerance)
    return float(root.root)
