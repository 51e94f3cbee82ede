"""After the ledger is in place nothing fails a run; before that, nothing is taken for a release."""

import json
import os
import pathlib
import subprocess

import pytest
from apache_beam.runners.portability.fn_api_runner.fn_runner import RunnerResult
from rich.console import Console

from tests.support import releases

RUN = ("--epsilon", 10, "--delta", 1e-4, "--max_length", 1)
# It interrupts the process as soon as the ledger of the release is in place.
INTERRUPTING = """
import os, signal, threading, time
import pyarrow.compute as pc

def interrupt():
    while not os.path.exists(os.environ["LEDGER"]):
        time.sleep(0.0005)
    os.kill(os.getpid(), signal.SIGINT)

def splits(texts):
    threading.Thread(target=interrupt, daemon=True).start()
    return pc.split_pattern(texts, " ")
"""

MEANWHILE = """
import os, shutil
import pyarrow.compute as pc

def cut(texts):
    if len(texts) > 100:  # More than the first texts, on which it is tried before the run.
        if not os.path.exists(os.path.join({output!r}, "ledger.json")):
            shutil.copytree({other!r}, {output!r}, dirs_exist_ok=True)
        {then}
    return pc.utf8_split_whitespace(texts)
"""


@pytest.fixture
def notes(tmp_path):
    """A file of 200 users who all wrote the same two words."""
    path = tmp_path / "in" / "notes.jsonl"
    path.parent.mkdir()
    lines = [json.dumps({"user": f"u{place}", "text": "zebra4711 tea"}) for place in range(200)]
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize(
    ("shown", "encoding"),
    [
        (">&-", "utf-8"),
        (">/dev/full", "utf-8"),
        ("| head -c 1", "utf-8"),
        (">&- 2>&-", "utf-8"),
        (">printed", "ascii"),
        (">printed 2>/dev/full", "utf-8"),
    ],
)
def test_a_whole_release_ends_with_0_whatever_becomes_of_its_display(
    program, notes, tmp_path, shown, encoding
):
    out = tmp_path / "out"
    command = program.command("ngrams", "--input", notes, "--output", out, *RUN)
    told = tmp_path / "told"
    err = "" if "2>" in shown else f"2>{told}"
    ended = subprocess.run(
        ["bash", "-c", f'set -o pipefail; "$@" {err} {shown}', "bash", *command],
        env=program.environment(PYTHONIOENCODING=encoding),
        cwd=tmp_path,
        check=False,
        capture_output=True,
    )
    assert ended.returncode == 0
    assert (out / "ledger.json").exists()
    if encoding == "ascii":
        table = (tmp_path / "printed").read_text(encoding="ascii")
        assert "start with ledger.json" in table
    if told.exists():
        lines = told.read_text().splitlines()
        assert lines[-1] == f"published: {out}"
        assert not any("Traceback" in line for line in lines)


@pytest.mark.parametrize("command", [("plan", *RUN), ("account", "rel"), ("report", "rel")])
@pytest.mark.parametrize(
    ("redirection", "status"), [(">&-", 0), (">/dev/full", 1), ("| true", 0), ("2>&-", 0)]
)
def test_other_commands_end_with_one_line_at_most(program, command, redirection, status):
    releases.words(program.temporary / "rel")
    told = "" if "2>" in redirection else "2>err"
    found = subprocess.run(
        [
            "bash",
            "-c",
            f'set -o pipefail; "$@" {told} {redirection}',
            "bash",
            *program.command(*command),
        ],
        env=program.environment(),
        cwd=program.temporary,
        check=False,
    ).returncode
    # A report prints nothing, so that it needs no stdout.
    assert found == (0 if command[0] == "report" else status)
    if told:
        lines = (program.temporary / "err").read_text().splitlines()
        assert len(lines) <= 1
        assert not lines or lines[0].startswith("beam-dpne: ")


def test_an_interrupt_after_the_ledger_does_not_fail_the_run(program, notes, tmp_path):
    (tmp_path / "interrupting.py").write_text(INTERRUPTING)
    ledger = tmp_path / "out" / "ledger.json"
    paths = f"{tmp_path}{os.pathsep}{program.environment()['PYTHONPATH']}"
    given = ("--input", notes, "--output", ledger.parent, "--tokenizer", "interrupting:splits")
    budget = tmp_path / "budget"
    cap = ("--population", "readers", "--epsilon", 10, "--delta", 2e-4)
    assert program.run("account", "--budget", budget, "--create", *cap).status == 0
    ended = program.run(
        *("ngrams", *given, *RUN, "--budget", budget, "--workers", 1),
        env=program.environment(PYTHONPATH=paths, LEDGER=str(ledger)),
    )
    assert (ended.status, ended.err.splitlines()[-1]) == (0, f"published: {ledger.parent}")
    states = json.loads(program.run("account", "--budget", budget, "--json").out)["runs"]
    assert [run["state"] for run in states] == ["released"]


@pytest.mark.parametrize(
    ("owner", "name"), [("shutil", "rmtree"), (RunnerResult, "metrics"), (Console, "print")]
)
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, RuntimeError])
def test_what_happens_after_the_ledger_fails_no_run(
    cli, notes, tmp_path, monkeypatch, owner, name, error
):
    """Deleting the temporary folder, reading the counters, and printing the table fail."""

    def fail(*_, **__):
        if (tmp_path / "out" / "ledger.json").exists():
            raise error

    if isinstance(owner, str):
        monkeypatch.setattr(f"{owner}.{name}", fail)
    else:
        monkeypatch.setattr(owner, name, fail)
    # The local driver has neither a temporary folder nor counters.
    how = () if owner is Console else ("--runner", "FnApiRunner")
    ended = cli("ngrams", "--input", notes, "--output", tmp_path / "out", *RUN, *how)
    assert ended.status == 0, ended.err
    assert f"({error.__name__})" in ended.err or f"with {error.__name__} after" in ended.err
    assert ended.err.splitlines()[-1] == f"published: {tmp_path / 'out'}"


@pytest.mark.parametrize(
    ("then", "said"),
    [("raise KeyError(texts[0])", "raised KeyError"), ("", "is a release already")],
)
def test_the_release_of_another_run_is_not_taken_for_ones_own(program, notes, tmp_path, then, said):
    releases.words(tmp_path / "other")
    output = tmp_path / "out"
    module = MEANWHILE.format(output=str(output), other=str(tmp_path / "other"), then=then)
    (tmp_path / "meanwhile.py").write_text(module)
    paths = os.pathsep.join([str(tmp_path), program.environment()["PYTHONPATH"]])
    given = ("--input", notes, "--output", output, *RUN, "--tokenizer", "meanwhile:cut")
    ended = program.run("ngrams", *given, env=program.environment(PYTHONPATH=paths))
    assert ended.status == 1
    assert said in ended.err
    assert "published: " not in ended.err
    assert "zebra4711" not in ended.err
    names = [
        {path.name: path.read_bytes() for path in folder.iterdir()}
        for folder in (output, tmp_path / "other")
    ]
    assert names[0] == names[1]


def test_an_interrupt_when_the_lock_is_given_back_fails_no_run(cli, notes, tmp_path, monkeypatch):
    remove = os.rmdir

    def interrupted(path):
        if (tmp_path / "out" / "ledger.json").exists():
            raise KeyboardInterrupt
        remove(path)

    # A run that gives its directory back removes it if it is empty.
    monkeypatch.setattr(os, "rmdir", interrupted)
    ended = cli("ngrams", "--input", notes, "--output", tmp_path / "out", *RUN)
    assert ended.status == 0, ended.err
    assert "with KeyboardInterrupt after that" in ended.err
    assert ended.err.splitlines()[-1] == f"published: {tmp_path / 'out'}"


def test_a_budget_that_cannot_be_settled_fails_no_whole_release(cli, notes, tmp_path, monkeypatch):
    budget = tmp_path / "budget"
    cap = ("--population", "us", "--epsilon", 20, "--delta", 1e-3)
    assert cli("account", "--budget", budget, "--create", *cap).status == 0
    replace = os.replace

    def fails_in_the_budget(source, target):
        if pathlib.Path(target).parent == budget and (tmp_path / "out" / "ledger.json").exists():
            raise OSError
        replace(source, target)

    monkeypatch.setattr(os, "replace", fails_in_the_budget)
    given = ("--input", notes, "--output", tmp_path / "out", *RUN, "--budget", budget)
    ended = cli("ngrams", *given)
    assert ended.status == 0, ended.err
    assert f"--settle {tmp_path / 'out'}" in ended.err
    assert ended.err.splitlines()[-1] == f"published: {tmp_path / 'out'}"
