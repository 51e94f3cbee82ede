"""A whole release is never reported as a failed run, and nothing secret lies in or beside it."""

import json
import os
import signal
import subprocess
import sys

import pytest

from beam_dpne.storage import private

RUN = ("--epsilon", 10, "--delta", 1e-4, "--max_length", 1)
# It makes an error named by a text, and logs a text under a name like this package's.
TALKATIVE = """
import logging
import pyarrow.compute as pc

def fails(texts):
    raise type(texts[0].as_py(), (KeyError,), {})()

def logs(texts):
    logging.getLogger("beam_dpne.plugin").error(texts[0].as_py())
    return pc.split_pattern(texts, " ")
"""
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
    if told.exists():
        lines = told.read_text().splitlines()
        assert lines[-1] == f"published: {out}"
        assert not any("Traceback" in line for line in lines)


def test_output_that_cannot_be_written_fails_a_command_that_only_prints(program):
    with open("/dev/full", "w") as full:
        ended = program.run("plan", *RUN, stdout=full)
    assert ended.status == 1
    assert ended.err == "beam-dpne: error: the output cannot be written: No space left on device.\n"


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


@pytest.mark.parametrize("name", ["fails", "logs"])
@pytest.mark.parametrize("workers", [1, 2])
def test_names_of_classes_and_loggers_that_hold_a_text_are_not_printed(
    program, notes, tmp_path, name, workers
):
    (tmp_path / "talkative.py").write_text(TALKATIVE)
    paths = f"{tmp_path}{os.pathsep}{program.environment()['PYTHONPATH']}"
    given = ("--input", notes, "--output", tmp_path / "out", *RUN, "--workers", workers)
    ended = program.run(
        *("ngrams", *given, "--tokenizer", f"talkative:{name}"),
        env=program.environment(PYTHONPATH=paths),
    )
    assert ended.status == (1 if name == "fails" else 0)
    assert "zebra4711" not in ended.err
    assert ("KeyError" in ended.err) is (name == "fails")


SECRETS = {
    "input": lambda folder: ("--input", folder / "notes.jsonl"),
    "run_key_file": lambda folder: ("--run_key_file", folder / "run.key"),
    "rejects": lambda folder: ("--rejects", folder / "rejects"),
    "budget": lambda folder: ("--budget", folder / "budget"),
    "temp_location": lambda folder: ("--temp_location", folder / "temporary"),
    "failure_log": lambda folder: ("--failure_log", folder / "failure.log"),
}


@pytest.mark.parametrize("is_linked", [False, True])
@pytest.mark.parametrize("name", list(SECRETS))
def test_nothing_secret_may_lie_in_the_directory_of_a_release(
    cli, notes, tmp_path, name, is_linked
):
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.jsonl").write_text(notes.read_text())
    (out / "run.key").write_text("5eed" * 16)
    link = tmp_path / "link"
    link.symlink_to(out)
    before = sorted(out.iterdir())
    given = SECRETS[name](link if is_linked else out)
    if name != "input":
        given = ("--input", notes, *given)
    ended = cli("ngrams", *given, "--output", out, "--overwrite", "--quiet", *RUN)
    assert ended.status == 2
    assert f"{name} must be outside" in ended.err
    assert sorted(out.iterdir()) == before


def test_a_run_key_that_others_can_read_is_named_and_one_of_one_digit_is_refused(
    cli, notes, tmp_path
):
    key = tmp_path / "run.key"
    given = ("ngrams", "--input", notes, "--run_key_file", key, *RUN)
    key.write_text("5eed" * 16)
    for mode, is_named in ((0o644, True), (0o600, False)):
        key.chmod(mode)
        ended = cli(*given, "--output", tmp_path / f"{mode}")
        assert (ended.status, f"others than its owner can read {key}" in ended.err) == (0, is_named)
    key.write_text("0" * 64)
    ended = cli(*given, "--output", tmp_path / "zeros")
    assert (ended.status, "must hold a random key" in ended.err) == (2, True)


def test_a_planted_folder_or_link_is_refused_and_nothing_behind_it_is_changed(
    program, notes, tmp_path
):
    theirs = tmp_path / "theirs"
    theirs.mkdir(0o700)
    (theirs / "precious.lock").write_text("precious")
    home = program.temporary / f".beam_dpne-{os.getuid()}"
    given = ("ngrams", "--input", notes, "--output", tmp_path / "out", "--quiet", *RUN)
    home.symlink_to(theirs)
    ended = program.run(*given)
    assert (ended.status, "nobody else can use" in ended.err) == (2, True)
    home.unlink()
    home.mkdir(0o755)
    ended = program.run(*given)
    assert (ended.status, "nobody else can use" in ended.err) == (2, True)
    assert [path.read_text() for path in theirs.iterdir()] == ["precious"]
    assert not (tmp_path / "out").exists()


HOLDS_A_FOLDER = """
import pathlib, sys, time
from beam_dpne.storage.private import run_folder
with run_folder(sys.argv[1]) as folder:
    pathlib.Path(folder, "words.batch").write_text("private")
    print(folder, flush=True)
    time.sleep(60)
"""


def test_a_run_deletes_what_killed_runs_left_and_nothing_of_living_ones(tmp_path):
    def start():
        command = [sys.executable, "-c", HOLDS_A_FOLDER, str(tmp_path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        return process, process.stdout.readline().strip()

    killed, left = start()
    living, kept = start()
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert os.path.exists(left)
    with private.run_folder(str(tmp_path)) as folder:
        assert not os.path.exists(left)
        assert os.path.exists(f"{kept}/words.batch")
        assert os.stat(folder).st_mode & 0o777 == 0o700
        assert os.stat(os.path.dirname(folder)).st_mode & 0o777 == 0o700
    assert not os.path.exists(folder)
    living.terminate()
    living.communicate()


def test_sets_between_rounds_are_files_of_their_owner_alone(cli, notes, tmp_path, monkeypatch):
    from beam_dpne.elements import coders

    modes = []
    stored = coders.store_file

    def watched(folder, *others):
        file = stored(folder, *others)
        modes.append(os.stat(file.path).st_mode & 0o777)
        return file

    monkeypatch.setattr(coders, "store_file", watched)
    given = ("--input", notes, "--output", tmp_path / "out", "--side_input_limit", 1, *RUN)
    assert cli("ngrams", *given, "--workers", 0).status == 0
    assert set(modes) == {0o600}
