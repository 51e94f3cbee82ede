"""The functions of `scipy.special`, and roots by `scipy.optimize`, which are loaded when first used.

A wrong parameter is refused before that, since loading SciPy takes more time than all other checks.
"""

import sys
from collections.abc import Callable
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):  # An import asks for such names, and must not load SciPy.
        raise AttributeError(name)
    from scipy import special

    # The next use finds the function in this module.
    return globals().setdefault(name, getattr(special, name))


def find_root(
    function: Callable[[float], float], low: float, high: float, *, tolerance: float
) -> float:
    """Returns the argument in [low, high] at which a function changes sign, by Brent's method.

    Args:
      function: a continuous function with different signs at both ends.
      low: the lower end.
      high: the upper end.
      tolerance: the absolute error of the argument.

    Raises:
      ValueError: if the function has one sign at both ends.
    """
    from scipy import optimize

    found = optimize.root_scalar(
        function,
        bracket=(low, high),
        method="brentq",
        xtol=tolerance,
        rtol=4 * sys.float_info.epsilon,
    )
    return found.root
