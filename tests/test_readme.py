"""The README is short, and says what the programs do."""

import re

from tests.conftest import ROOT

README = ROOT / "README.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"


def test_the_readme_is_short():
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert len(text.encode()) <= 9_000
    assert max(map(len, text.splitlines())) <= 120


def test_each_command_that_ci_runs_is_on_one_line():
    for page, name in ((README, "main"), (README, "tests"), (CONTRIBUTING, "engines")):
        lines = page.read_text(encoding="utf-8").splitlines()
        place = lines.index(f"<!-- command: {name} -->")
        assert lines[place + 1] == "```sh"
        assert re.match(r"python3 -m venv |\.venv/bin/", lines[place + 2])
        assert lines[place + 3] == "```"


def test_the_tests_that_ci_runs_are_in_the_table():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    rows = CONTRIBUTING.read_text(encoding="utf-8")
    (listed,) = re.findall(r"for engine in (.*); do", script)
    for name in re.findall(r'"([^"]+)"', listed):
        assert re.search(rf"^\| {name}.*\| `\.venv/bin/python -m pytest ", rows, re.MULTILINE)


def test_links_lead_somewhere():
    for page in (README, CONTRIBUTING):
        for target in re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (ROOT / target).exists(), target


def test_the_picture_is_of_public_data_and_says_what_was_spent():
    data = (ROOT / "pipelines" / "pictures" / "kl_over_epsilon.png").read_bytes()
    assert b"NOT PRIVATE" not in data
    assert b"ounted on public data" in data
    assert "ε = 0.05 to 10, δ = 1e-7 · data: titles (reddit_titles.jsonl.gz)".encode() in data
