"""Benchmarks say at once what is wrong with a file that an option names."""

import pytest

from tests.benchmarks import coefficients
from tests.benchmarks.__main__ import main


@pytest.mark.parametrize("program", [main, coefficients.main])
@pytest.mark.parametrize("path", ["no/such/file", "."])
def test_an_input_must_be_a_file(program, path, capsys):
    with pytest.raises(SystemExit, match="2"):
        program(["--titles", path])
    said = capsys.readouterr().err
    assert f"argument --titles: must name an existing file, got {path}\n" in said


def test_results_are_written_into_a_folder_that_exists(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--json", "no/such/table.json"])
    assert "--json: must name a file in an existing folder, got no/such/" in capsys.readouterr().err
