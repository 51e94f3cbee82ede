"""The benchmarks themselves, on a part of the data."""

import json

import pytest

from tests.benchmarks.__main__ import BENCHMARKS, main

pytestmark = pytest.mark.benchmark


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict:
    target = tmp_path_factory.mktemp("benchmarks") / "found.json"
    assert main(["--small", "--json", str(target)]) == 0
    return json.loads(target.read_text())["benchmarks"]


def figures(found: dict, name: str) -> dict[str, dict]:
    return {figure["what"]: figure for figure in found[name]["figures"]}


def test_all_benchmarks_are_measured(found):
    assert {name: len(found[name]["figures"]) for name in found} == {
        "msnbc": 11,
        "titles": 11,
        "bayesian": 5,
        "strategies": 16,
        "growth": 6,
        "passes": 5,
        "levels": 2,
        "profile": 4,
        "yaml": 24,
    }
    assert found.keys() == BENCHMARKS.keys()


def test_every_figure_is_positive(found):
    for result in found.values():
        for figure in result["figures"]:
            assert figure["values"], figure
            assert min(figure["values"]) > 0, figure


def test_verdicts_follow_from_targets(found):
    for result in found.values():
        for figure in result["figures"]:
            told = figure["target"] is not None and figure["clear"]
            assert figure["met"] == (figure["median"] <= figure["target"] if told else None)


@pytest.mark.parametrize("name", ["msnbc", "titles"])
def test_ratios_are_those_of_the_times(found, name):
    of = figures(found, name)
    product, floor = (of[f"{who}, whole process"]["median"] for who in ("product", "floor"))
    ratio = of["product / floor, time, whole processes"]
    assert ratio["median"] == pytest.approx(product / floor)
    assert ratio["target"] == 2.5
    start_ups = [of[f"{who}, start-up (one user)"]["median"] for who in ("product", "floor")]
    work = of["product / floor, time, start-up taken off both"]["median"]
    assert work == pytest.approx(
        max(product - start_ups[0], 1e-3) / max(floor - start_ups[1], 1e-3)
    )


def test_yaml_is_measured_beside_the_program_on_the_same_records(found):
    of = figures(found, "yaml")
    for name, target in (("jsonl", 1.15), ("parquet", 1.15), ("filter", None)):
        ratio = of[f"YAML / program, {name}, time"]
        times = [of[f"{who}, {name}, whole process"]["values"] for who in ("YAML", "program")]
        assert ratio["values"] == pytest.approx([a / b for a, b in zip(*times, strict=True)])
        assert ratio["target"] == target


def test_both_strategies_are_measured_on_both_data_sets(found):
    for data, target in (("msnbc", None), ("titles", 3.0)):
        of = {
            figure["what"]: figure
            for figure in found["strategies"]["figures"]
            if figure["benchmark"] == data
        }
        assert len(of) == 8
        adaptive, one_round = (
            of[f"{strategy}, whole process"] for strategy in ("adaptive", "one_round")
        )
        ratio = of["adaptive / one_round, time, whole processes"]
        assert ratio["median"] == pytest.approx(adaptive["median"] / one_round["median"])
        assert ratio["target"] == target
        memory = of["adaptive / one_round, peak memory"]
        assert memory["target"] == (target and 1.3)
        assert of["adaptive, peak memory"]["median"] > 50


def test_processes_are_as_large_as_an_interpreter_with_libraries(found):
    for name in ("msnbc", "titles"):
        assert figures(found, name)["product, peak memory"]["median"] > 50


def test_growth_lists_every_size(found):
    shares = [[row[0] for row in listing["rows"]] for listing in found["growth"]["listings"]]
    assert shares == [["start-up", "1/8", "1/4", "1/2", "1"], ["start-up", "1", "4"]]


def test_positions_fall_with_length(found):
    for listing, lengths in zip(found["levels"]["listings"], (6, 7), strict=True):
        positions = [row[2] for row in listing["rows"]]
        assert len(positions) == lengths
        assert positions[0] > positions[1] > 0
        assert positions == sorted(positions, reverse=True)
        assert all(row[1] > 0 for row in listing["rows"])


def test_profiles_name_fifteen_functions_by_falling_share(found):
    for listing in found["profile"]["listings"]:
        shares = [row[0] for row in listing["rows"]]
        assert len(shares) == 15
        assert shares == sorted(shares, reverse=True)
        assert 0 < sum(shares) <= 100 + 1e-9
