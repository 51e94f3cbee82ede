"""The transforms of this package for Beam YAML; `provider.yaml` beside this file lists them.

A listing names the transforms by version, e.g. `beam_dpne.yaml.v0_1_0.PrivateNgrams`, so that a listing
of another version than the installed one is refused before anything runs.
"""

import re
import sys
from typing import Any

from beam_dpne.errors import UsageError
from beam_dpne.version import __version__
from beam_dpne.yaml.transforms import (
    BayesianCounts,
    PrivateNgrams,
    PrivateSetUnion,
    ReadDocuments,
    WriteRelease,
)

__all__ = ["BayesianCounts", "PrivateNgrams", "PrivateSetUnion", "ReadDocuments", "WriteRelease"]


def version_name(version: str) -> str:
    """Returns the name by which a listing asks for a version.

    >>> version_name("0.1.0")
    'v0_1_0'
    """
    return "v" + re.sub(r"\W", "_", version)


def __getattr__(name: str) -> Any:
    """Returns this module under the name of its version.

    Raises:
      UsageError: the name is that of another version.
    """
    if name == version_name(__version__):
        return sys.modules[__name__]
    if re.fullmatch(r"v\d\w*", name):
        raise UsageError(
            f"the provider listing must belong to the installed version of beam_dpne, {__version__}, "
            f"got a listing for {name}. Copy the listing that "
            "`python -m beam_dpne.yaml` names, or install the listing's version."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
