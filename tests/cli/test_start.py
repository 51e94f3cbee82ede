"""Garbage is not collected while the program loads its modules, and is collected while a job runs."""

import json
import subprocess
import sys

from beam_dpne import __version__

RUN = """
import gc, json, sys

loaded = []
gc.callbacks.append(lambda phase, _: loaded.append((phase, "apache_beam.io" in sys.modules)))
CALL
print(json.dumps([status, gc.isenabled(), gc.get_freeze_count(), loaded]))
"""
EXPERIMENT = "from beam_dpne.cli import loading; from pipelines import msnbc; "
EXPERIMENT += "loaded.clear(); status = loading.run(msnbc.main)"
AS_A_PROCESS = "from beam_dpne.cli import start; loaded.clear(); status = start.main(sys.argv[1:])"
AS_A_MODULE = """
import runpy

loaded.clear()
try:
    runpy.run_module("beam_dpne", run_name="__main__")
except SystemExit as end:
    status = end.code
"""
IN_A_PROGRAM = "from beam_dpne.cli.main import main; status = main(sys.argv[1:])"
BUDGET = ("ngrams", "--epsilon", "1", "--delta", "1e-5", "--max_length", "2", "--quiet")


def run(call: str, *arguments: str) -> tuple[int, bool, int, list[tuple[str, bool]]]:
    """Returns the status, then whether garbage is collected, how much never is, and when it was."""
    command = [sys.executable, "-c", RUN.replace("CALL", call), *arguments]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(ended.stdout.splitlines()[-1])


def job(folder) -> list[str]:
    path = folder / "notes.jsonl"
    path.write_text('{"user": "a", "text": "Good morning"}\n')
    return [*BUDGET, "--input", str(path), "--output", str(folder / "release")]


def test_garbage_is_collected_when_the_modules_are_loaded_and_not_before(tmp_path):
    status, is_collected, kept, seen = run(AS_A_PROCESS, *job(tmp_path))
    assert (status, is_collected) == (0, True)
    # Beam and this package alone are some 300,000 objects.
    assert kept > 100_000
    assert seen
    assert all(has_beam for _, has_beam in seen)


def test_the_package_starts_in_the_same_way(tmp_path):
    status, is_collected, kept, _ = run(AS_A_MODULE, *job(tmp_path))
    assert (status, is_collected) == (0, True)
    assert kept > 100_000


def test_the_experiment_starts_in_the_same_way(tmp_path):
    output = ("--output", str(tmp_path / "release"), "--quiet")
    status, is_collected, kept, seen = run(EXPERIMENT, *output)
    assert (status, is_collected) == (0, True)
    assert kept > 100_000
    assert all(has_beam for _, has_beam in seen)


def test_a_wrong_parameter_leaves_the_collection_as_it_was():
    assert run(AS_A_PROCESS, "ngrams", "--epsilon", "-1")[:2] == [2, True]


def test_a_program_that_calls_main_keeps_its_own_collection(tmp_path):
    status, is_collected, kept, seen = run(IN_A_PROGRAM, *job(tmp_path))
    assert (status, is_collected, kept) == (0, True, 0)
    assert any(not has_beam for _, has_beam in seen)


def test_the_package_is_the_program():
    command = [sys.executable, "-m", "beam_dpne", "--version"]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    assert ended.stdout == f"beam-dpne {__version__}\n"
    wrong = subprocess.run([*command[:-1], "ngrams"], check=False, capture_output=True)
    assert wrong.returncode == 2
