"""The functions of `scipy.special`, which is loaded when one of them is used first.

A wrong parameter is refused before that, since loading SciPy takes more time than all other checks.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    from scipy import special

    # The next use finds the function in this module.
    return globals().setdefault(name, getattr(special, name))
