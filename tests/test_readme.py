"""The README says what the programs do."""

import pathlib

from beam_dpne.cli.options import options_of
from beam_dpne.cli.tables import NGRAMS

README = pathlib.Path(__file__).parent.parent / "README.md"


def options_table() -> str:
    """The README's table of options, from their definitions."""
    rows = ["| option | default | what it is |", "|---|---|---|"]
    rows += [
        f"| `--{option.name}` | {option.default_text} | {option.help} |"
        for option in options_of(NGRAMS)
    ]
    return "\n".join(rows)


def test_readme_has_every_option_with_its_default_and_help():
    assert options_table() in README.read_text(encoding="utf-8")


def test_readme_has_each_command_that_ci_runs_on_one_line():
    lines = README.read_text(encoding="utf-8").splitlines()
    for name in ("main", "tests"):
        place = lines.index(f"<!-- command: {name} -->")
        assert lines[place + 1] == "```sh"
        assert lines[place + 2].startswith("python3 -m venv")
        assert lines[place + 3] == "```"


def test_the_readmes_picture_is_of_public_data_and_says_what_was_spent():
    data = (README.parent / "pipelines" / "pictures" / "kl_over_epsilon.png").read_bytes()
    assert b"NOT PRIVATE" not in data
    assert b"ounted on public data" in data
    assert "ε = 0.05 to 10, δ = 1e-7 · data: titles (reddit_titles.jsonl.gz)".encode() in data
