"""Each part of the benchmarks on a part of the data, and the small instance beside its record."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.benchmarks import regression, table
from tests.benchmarks.__main__ import BENCHMARKS, main

pytestmark = pytest.mark.benchmark

# Two at a time, since nobody reads these times; both halves take about as long.
HALVES = (
    ["start_up", "msnbc", "titles", "long_users", "protocol", "passes"],
    ["bayesian", "growth", "levels", "profile", "yaml"],
)


def test_no_ratio_is_half_as_bad_again_as_recorded():
    _, wrong = regression.check(regression.recorded_ratios())
    assert not wrong


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("benchmarks")

    def measure(names):
        target = folder / f"{names[0]}.json"
        assert main(["--small", "--only", *names, "--json", str(target)]) == 0
        return json.loads(target.read_text())

    with ThreadPoolExecutor() as pool:
        runs = list(pool.map(measure, HALVES))
    assert all({"date", "machine", "load_at_end", "versions"} <= run.keys() for run in runs)
    return {name: part for run in runs for name, part in run["benchmarks"].items()}


def figures(found: dict, name: str) -> dict[str, dict]:
    return {figure["what"]: figure for figure in found[name]["figures"]}


def medians(found: dict, name: str) -> dict[str, float]:
    """Seconds of the processes of a part."""
    (listing,) = found[name]["listings"]
    return {row[0]: row[1] for row in listing["rows"]}


def test_every_part_is_measured_and_every_figure_is_positive(found):
    assert found.keys() == BENCHMARKS.keys()
    for part in found.values():
        assert part["figures"]
        for figure in part["figures"]:
            assert min(figure["values"]) > 0, figure
            told = figure["target"] is not None and figure["clear"]
            assert (figure["met"] is not None) == told


def test_the_table_has_the_targets(found):
    targets = {
        name: [of["target"] for of in found[name]["figures"] if of["target"] and of["unit"] == "×"]
        for name in ("start_up", "msnbc", "long_users")
    }
    assert targets == {
        "start_up": [1.7, 1.5, 0.4],
        "msnbc": [2.5, 1.5, 1.5],
        "long_users": [1.6] * 2,
    }
    assert figures(found, "titles")["one_round / floor, time"]["target"] == 2.0


@pytest.mark.parametrize(
    ("part", "what", "above", "below"),
    [
        ("start_up", "error of a parameter / import apache_beam", table.ERROR, table.IMPORT),
        ("msnbc", "one_round / floor, time", "one_round", "floor"),
        ("titles", "default / one_round, time", "default", "one_round"),
        ("protocol", "Beam / numpy, time", "Beam (one_round)", "numpy"),
    ],
)
def test_ratios_are_those_of_the_times(found, part, what, above, below):
    times = medians(found, part)
    assert figures(found, part)[what]["median"] == pytest.approx(times[above] / times[below])


def test_growth_lists_every_size(found):
    shares = [[row[0] for row in listing["rows"]] for listing in found["growth"]["listings"]]
    assert shares == [["start-up", "1/8", "1/4", "1/2", "1"], ["start-up", "1", "4"]]


def test_positions_fall_with_length(found):
    for listing, lengths in zip(found["levels"]["listings"], (6, 7), strict=True):
        positions = [row[2] for row in listing["rows"]]
        assert len(positions) == lengths
        assert positions[0] > positions[1] > 0
        assert positions == sorted(positions, reverse=True)


def test_profiles_name_fifteen_functions_by_falling_share(found):
    for listing in found["profile"]["listings"]:
        shares = [row[0] for row in listing["rows"]]
        assert len(shares) == 15
        assert shares == sorted(shares, reverse=True)
        assert 0 < sum(shares) <= 100 + 1e-9
