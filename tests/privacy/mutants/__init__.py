"""Planted mistakes: each would cost somebody's privacy, and some test must notice it.

    .venv/bin/python -m tests.privacy.mutants [--only NAME ...] [--jobs N]

plants them one after the other in copies of the repository, runs a few tests of each, and reports
those that no test notices. `Mutant` says what an entry holds; the lists are by part of the package.
"""

import pathlib

from tests.privacy.mutants import bayesian, budgets, counts, edges, ngrams, noise, set_union, users
from tests.privacy.mutants.mutant import Mutant
from tests.privacy.mutants.run import Suite

MUTANTS: list[Mutant] = [
    mutant
    for group in (noise, users, ngrams, counts, budgets, set_union, bayesian, edges)
    for mutant in group.MUTANTS
]
SUITE = Suite(
    root=pathlib.Path(__file__).resolve().parents[3],
    copied=(
        "beam_dpne",
        "tests",
        "pipelines",
        "templates",
        "README.md",
        "LICENSE",
        "pyproject.toml",
    ),
    package="beam_dpne",
    options=("-p", "tests.privacy.mutants.profile", "--hypothesis-profile=mutants"),
    preloaded=(
        "apache_beam.runners.portability.fn_api_runner",
        "apache_beam.testing.util",
        "cryptography.hazmat.primitives.ciphers",
        "dp_accounting",
        "hypothesis.strategies",
        "mpmath",
        "msgspec",
        "numba",
        "pyarrow.csv",
        "pyarrow.parquet",
        "pytest",
        "rich.console",
        "scipy.optimize",
        "scipy.sparse",
        "scipy.stats",
    ),
)
