"""The examples in the docstrings of the experiments, which are no part of the package."""

import doctest
import importlib

import pytest

from tests.conftest import ROOT

MODULES = sorted(path.stem for path in (ROOT / "pipelines" / "experiments").glob("*.py"))


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name):
    module = importlib.import_module(f"pipelines.experiments.{name}")
    assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0
