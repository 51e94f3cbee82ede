"""After the ledger is in place nothing fails a run; before that, nothing is taken for a release."""

import json
import os
import pathlib
import subprocess

import pytest
from apache_beam.runners.portability.fn_api_runner.fn_runner import RunnerResult
from rich.console import Console

from beam_dpne.release.reading import read_ledger
from tests.support import releases

RUN = ("--epsilon", 10, "--delta", 1e-4, "--max_length", 2)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "notes.jsonl"
    rows = [{"user": f"u{number}", "text": "grüner Tee bitte"} for number in range(200)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def in_shell(program, command, redirection, **variables):
    """Runs a command with its streams redirected; returns its status and what is in files."""
    return subprocess.run(
        ["bash", "-c", f'"$@" {redirection}; exit ${{PIPESTATUS[0]}}', "bash", *command],
        env=program.environment(**variables),
        cwd=program.temporary,
        check=False,
    ).returncode


@pytest.mark.parametrize(
    ("redirection", "variables"),
    [
        (">&- 2>err", {}),
        (">/dev/full 2>err", {}),
        ("2>err | true", {}),
        (">table 2>err", {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}),
        (">table 2>/dev/full", {}),
        ("<&- >&- 2>&-", {}),
    ],
)
def test_streams_that_cannot_be_written_fail_no_release(program, data, redirection, variables):
    given = ("ngrams", "--input", data, "--output", program.temporary / "out", *RUN)
    assert in_shell(program, program.command(*given), redirection, **variables) == 0
    assert read_ledger(str(program.temporary / "out"))["program"] == "ngrams"
    if "2>err" in redirection:
        err = (program.temporary / "err").read_text()
        assert "Traceback" not in err
        assert err.splitlines()[-1] == f"published: {program.temporary / 'out'}"


@pytest.mark.parametrize("command", [("plan", *RUN), ("account", "rel"), ("report", "rel")])
@pytest.mark.parametrize(
    ("redirection", "status"), [(">&-", 0), (">/dev/full", 1), ("| true", 0), ("2>&-", 0)]
)
def test_other_commands_end_with_one_line_at_most(program, command, redirection, status):
    releases.words(program.temporary / "rel")
    told = "" if "2>" in redirection else "2>err"
    found = in_shell(program, program.command(*command), f"{told} {redirection}")
    # A report prints nothing, so that it needs no stdout.
    assert found == (0 if command[0] == "report" else status)
    if told:
        lines = (program.temporary / "err").read_text().splitlines()
        assert len(lines) <= 1
        assert not lines or lines[0].startswith("beam-dpne: ")


@pytest.mark.parametrize(
    ("owner", "name"), [("shutil", "rmtree"), (RunnerResult, "metrics"), (Console, "print")]
)
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, RuntimeError])
def test_what_happens_after_the_ledger_fails_no_run(
    cli, data, tmp_path, monkeypatch, owner, name, error
):
    """Deleting the temporary folder, reading the counters, and printing the table fail."""

    def fail(*_, **__):
        if (tmp_path / "out" / "ledger.json").exists():
            raise error

    if isinstance(owner, str):
        monkeypatch.setattr(f"{owner}.{name}", fail)
    else:
        monkeypatch.setattr(owner, name, fail)
    ended = cli("ngrams", "--input", data, "--output", tmp_path / "out", *RUN)
    assert ended.status == 0, ended.err
    assert f"({error.__name__})" in ended.err or f"with {error.__name__} after" in ended.err
    assert ended.err.splitlines()[-1] == f"published: {tmp_path / 'out'}"


MEANWHILE = """
import os, shutil
import pyarrow.compute as pc

def cut(texts):
    if not os.path.exists({output!r}):
        shutil.copytree({other!r}, {output!r})
    {then}
    return pc.utf8_split_whitespace(texts)
"""


@pytest.mark.parametrize(
    ("then", "said"),
    [("raise KeyError(texts[0])", "raised KeyError"), ("", "is a release already")],
)
def test_the_release_of_another_run_is_not_taken_for_ones_own(program, data, tmp_path, then, said):
    releases.words(tmp_path / "other")
    output = tmp_path / "out"
    module = MEANWHILE.format(output=str(output), other=str(tmp_path / "other"), then=then)
    (tmp_path / "meanwhile.py").write_text(module)
    paths = os.pathsep.join([str(tmp_path), program.environment()["PYTHONPATH"]])
    given = ("--input", data, "--output", output, *RUN, "--tokenizer", "meanwhile:cut")
    ended = program.run("ngrams", *given, env=program.environment(PYTHONPATH=paths))
    assert ended.status == 1
    assert said in ended.err
    assert "published: " not in ended.err
    assert "grüner" not in ended.err
    names = [
        {path.name: path.read_bytes() for path in folder.iterdir()}
        for folder in (output, tmp_path / "other")
    ]
    assert names[0] == names[1]


def test_a_budget_that_cannot_be_settled_fails_no_whole_release(cli, data, tmp_path, monkeypatch):
    budget = tmp_path / "budget"
    cap = ("--population", "us", "--epsilon", 20, "--delta", 1e-3)
    assert cli("account", "--budget", budget, "--create", *cap).status == 0
    replace = os.replace

    def fails_in_the_budget(source, target):
        if pathlib.Path(target).parent == budget and (tmp_path / "out" / "ledger.json").exists():
            raise OSError
        replace(source, target)

    monkeypatch.setattr(os, "replace", fails_in_the_budget)
    given = ("--input", data, "--output", tmp_path / "out", *RUN, "--budget", budget)
    ended = cli("ngrams", *given)
    assert ended.status == 0, ended.err
    assert f"--settle {tmp_path / 'out'}" in ended.err
    assert ended.err.splitlines()[-1] == f"published: {tmp_path / 'out'}"
