"""Benchmarks say at once what is wrong with an option, and which data and environment they measured."""

import pytest

from tests.benchmarks import coefficients, engines, inputs, machine, regression
from tests.benchmarks.__main__ import _parse, about_targets, main
from tests.benchmarks.report import number


def of_engines(arguments):
    """The program that measures engines, on one that needs nothing started."""
    return engines.main(["prism", *arguments])


@pytest.mark.parametrize("program", [main, coefficients.main, of_engines])
@pytest.mark.parametrize("path", ["no/such/file", "."])
def test_an_input_must_be_a_file(program, path, capsys):
    with pytest.raises(SystemExit, match="2"):
        program(["--titles", path])
    said = capsys.readouterr().err
    assert f"argument --titles: must name an existing file, got {path}\n" in said


@pytest.mark.parametrize("program", [main, of_engines])
def test_results_are_written_into_a_folder_that_exists(program, capsys):
    with pytest.raises(SystemExit, match="2"):
        program(["--json", "no/such/table.json"])
    assert "--json: must name a file in an existing folder, got no/such/" in capsys.readouterr().err


def test_verdicts_on_the_shipped_sample_say_that_the_targets_are_for_other_data(tmp_path):
    (tmp_path / "full.jsonl.gz").write_bytes(inputs.TITLES.read_bytes())
    full = str(tmp_path / "full.jsonl.gz")
    (said,) = about_targets(_parse(["--only", "titles"]))
    assert said.startswith("The targets of the titles are for the full titles; this is the shipped")
    assert about_targets(_parse(["--only", "titles", "--titles", full])) == []
    assert about_targets(_parse(["--only", "msnbc"])) == []
    (said,) = about_targets(_parse(["--titles", full]))
    assert said.startswith("The targets of the public text are for the full public text")
    (said,) = about_targets(_parse(["--small"]))
    assert said.startswith("The data were cut")


def test_extras_are_those_whose_packages_are_all_installed(tmp_path, monkeypatch):
    for name, lines in {
        "has_extras": [
            *(f"Provides-Extra: {extra}" for extra in ("all", "both", "one", "none", "empty")),
            'Requires-Dist: first_part; extra == "one"',
            *('Requires-Dist: first_part; extra == "both"', 'Requires-Dist: away; extra == "both"'),
            'Requires-Dist: has_extras[one]; extra == "all"',
            'Requires-Dist: has_extras[one,both]; extra == "none"',
        ],
        "first_part": [],
    }.items():
        folder = tmp_path / f"{name}-1.dist-info"
        folder.mkdir()
        head = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1"]
        (folder / "METADATA").write_text("\n".join([*head, *lines, ""]))
    monkeypatch.syspath_prepend(tmp_path)
    assert machine.extras("has_extras") == ["all", "one"]


def test_the_small_instance_names_the_extras_of_both_environments():
    here = machine.in_words(machine.extras())
    assert regression.environments().startswith(f"Environment: {here}; recorded with: ")
    assert [machine.in_words(names) for names in (None, [], ["a", "b"])] == [
        "extras not recorded",
        "no extras",
        "extras a, b",
    ]


@pytest.mark.parametrize(
    ("value", "target", "shown"),
    [
        (1.5012, 1.5, "1.501"),
        (1.50004, 1.5, "1.50004"),
        (1.4999, 1.5, "1.4999"),
        (1.5, 1.5, "1.50"),
        (1.41, 1.5, "1.41"),
        (1.41, None, "1.41"),
        (1000.4, 1000, "1,000.4"),
        (1043.4, 1000, "1,043"),
    ],
)
def test_rounding_does_not_hide_a_verdict(value, target, shown):
    assert number(value, apart_from=target) == shown


@pytest.mark.parametrize("program", [main, of_engines])
def test_a_measurement_is_made_at_least_once(program, capsys):
    with pytest.raises(SystemExit, match="2"):
        program(["--repeats", "0"])
    assert "argument --repeats: must be at least 1, got 0\n" in capsys.readouterr().err


def test_only_an_engine_that_is_started_has_a_state(tmp_path, capsys):
    for engine, state in (("prism", tmp_path), ("flink", tmp_path / "absent")):
        with pytest.raises(SystemExit, match="2"):
            engines.main([engine, "--state", str(state)])
        said = capsys.readouterr().err
        assert f"argument --state: must be of a Flink or Spark that runs, got {state}\n" in said
