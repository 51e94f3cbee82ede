"""Differentially private n-grams, vocabularies and phrase statistics on Apache Beam.

Public names are listed once, in `__init__.pyi`, where type checkers and editors find them. Each is
imported from its module when it is first used, so that programs start quickly.
"""

import ast
import importlib
import pkgutil
from typing import Any

# The package build reads it, and ledgers name it.
__version__ = "0.1.0"


def _homes() -> dict[str, str]:
    """Returns the module of each public name, from the imports of `__init__.pyi`."""
    source = pkgutil.get_data(__name__, "__init__.pyi")
    imports = (node for node in ast.parse(source or b"").body if isinstance(node, ast.ImportFrom))
    return {alias.name: str(node.module) for node in imports for alias in node.names}


_HOME = _homes()
# Former names, which still work and are listed nowhere.
_FORMER = {"PrivacyPlan": "NgramsPlan"}


def __getattr__(name: str) -> Any:
    """Imports a public name from its module."""
    if name == "__all__":
        return sorted(_HOME)
    if name in _FORMER:
        return __getattr__(_FORMER[name])
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_HOME)
