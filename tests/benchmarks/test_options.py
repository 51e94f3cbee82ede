"""Benchmarks say at once what is wrong with a file that an option names."""

import pytest

from tests.benchmarks import coefficients, engines
from tests.benchmarks.__main__ import main


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
