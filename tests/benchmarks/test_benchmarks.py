"""CI's small instance beside its record, and how it is judged, on figures that are made up."""

import json

import pytest

from tests.benchmarks import __main__ as benchmarks
from tests.benchmarks import coefficients
from tests.benchmarks.__main__ import Ratio, Run


@pytest.mark.benchmark
def test_no_ratio_is_half_as_bad_again_as_recorded():
    assert benchmarks.check() == []


def test_start_up_is_taken_off_the_work_of_both():
    def runs(*seconds):
        return [Run(wall, 9, 9, 9) for wall in seconds]

    found = {
        "default, titles": runs(5, 7),
        "floor, titles": runs(2, 3),
        "default, one user": runs(1, 1),
        "floor, one user": runs(1, 1),
    }
    row = Ratio("titles", "default, titles", "floor, titles")
    assert row.values(found) == [2.5, pytest.approx(7 / 3)]
    row = Ratio("titles", "default, titles", "floor, titles", is_work=True)
    assert row.values(found) == [4, 3]


@pytest.mark.parametrize(
    ("found", "recorded", "is_worse"),
    [
        (1.49, 1.0, False),
        (1.5, 1.0, True),
        (0.159, 0.1, False),
        (0.161, 0.1, True),
        (1, None, True),
    ],
)
def test_a_ratio_is_worse_by_half_and_by_more_than_the_clock_tells(found, recorded, is_worse):
    known = {} if recorded is None else {"a": recorded}
    assert bool(benchmarks.worse({"a": found}, known)) == is_worse


def test_what_looks_worse_once_is_measured_again(capsys):
    recorded = json.loads(benchmarks.SMALL.read_text())["ratios"]
    bad = {name: 2 * ratio for name, ratio in recorded.items()}
    turns = [recorded, bad]
    assert benchmarks.check(turns.pop) == []
    assert len(benchmarks.check(lambda: bad)) == len(recorded)


def test_the_kernels_of_the_cost_model_are_there():
    for owner, names in coefficients._KERNELS:
        for name in names.split():
            assert callable(getattr(owner, name))
