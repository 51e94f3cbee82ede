"""A run on this machine works without Beam, and is the one that runners of Beam do."""

import functools
import gzip
import itertools
import json
import logging
import os
import subprocess
import sys
import threading

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import NgramsPlan, PrivateNgrams, ReadDocuments, RunKeyFile, WriteRelease
from beam_dpne.errors import RunError
from beam_dpne.jobs.job import Job
from beam_dpne.jobs.local import run_here
from beam_dpne.ngrams.run import NgramsRun
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import ReadOptions
from beam_dpne.release.schema import ReleaseNotes
from tests.conftest import ROOT
from tests.engines.conftest import release_bytes

CANARY = "zebra4711"
PROGRAMS = {
    "ngrams": ("--max_length", "3"),
    "ngrams with groups": ("--group_field", "team", "--max_length", "2"),
    "set-union": ("--tokenizer", "words"),
    "bayesian": ("--public", "public.tsv", "--length", "2", "--stop_list", "stop"),
}
FILES = ("notes.jsonl", "more.csv.gz", "last.parquet")
INPUTS = tuple(itertools.chain.from_iterable(("--input", file) for file in FILES))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("local")
    rows = [
        {"user": f"u{n}", "text": f"Good morning, you {n % 7}", "team": "ab"[n % 2]}
        for n in range(400)
    ]
    lines = [json.dumps(row) for row in rows]
    (path / "notes.jsonl").write_text("\n".join([*lines[:9], "{no record", *lines[9:]]))
    # Each user has records in three files of three formats, in another order in each.
    shifted = [rows[(7 * n) % 400] for n in range(400)]
    with gzip.open(path / "more.csv.gz", "wt") as file:
        file.write("team,text,user\n")
        file.writelines(f'{row["team"]},"{row["text"]}",{row["user"]}\n' for row in shifted[:-1])
        file.write(",x,u1\na,x\n")
    table = pa.Table.from_pylist([*rows[::-1], {"user": None, "text": "x", "team": "a"}])
    pq.write_table(table, path / "last.parquet")
    (path / "run.key").write_text("5eed" * 16)
    (path / "stop").write_text("there\n")
    (path / "public.tsv").write_text("good morning\t9\nmorning you\t5\nyou there\t2\n")
    return path


def given(program, folder, output):
    return (
        *(program.split()[0], *INPUTS, "--epsilon", "10", "--delta", "1e-4"),
        *("--run_key_file", "run.key", "--output", output, *PROGRAMS[program]),
        *("--rejects", str(folder / f"rejects of {output}")),
    )


def without_beam(folder, *commands, absent=()):
    """Runs commands in a process where imports of Beam, or of absent modules, fail."""
    missing = dict.fromkeys(("apache_beam", *absent))
    code = (
        f"import sys; sys.modules.update({missing}); from beam_dpne.cli.main import main\n"
        f"for command in {commands}:\n    if main(list(command)): sys.exit(repr(command))"
    )
    command = [sys.executable, "-c", code]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_run_on_this_machine_works_without_beam(cli, folder, program, monkeypatch):
    commands = [
        (*given(program, folder, f"{program} {workers}"), "--workers", workers)
        for workers in ("1", "2")
    ]
    # The import of this part of SciPy is the slowest of all.
    ended = without_beam(folder, *commands, absent=("scipy.optimize",))
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("records were rejected") == 2
    monkeypatch.chdir(folder)
    on_beam = f"{program} on Beam"
    ended = cli(*given(program, folder, on_beam), "--runner", "DirectRunner")
    assert ended.status == 0, ended.err
    expected = release_bytes(folder / on_beam)
    for workers in ("1", "2"):
        assert release_bytes(folder / f"{program} {workers}") == expected
        listed = folder / f"rejects of {program} {workers}"
        assert release_bytes(listed) == release_bytes(folder / f"rejects of {on_beam}")


def test_what_leads_to_a_release_and_follows_it_works_without_beam(folder):
    release = ("ngrams", "--input", "notes.jsonl", "--epsilon", "10", "--delta", "1e-4")
    create = ("account", "--budget", "budget", "--create", "--population", "readers")
    ended = without_beam(
        folder,
        ("check", "ngrams", "--input", "notes.jsonl"),
        ("plan", "ngrams", "--epsilon", "10", "--delta", "1e-4"),
        (*create, "--epsilon", "20", "--delta", "1e-3"),
        (*release, "--output", "a", "--budget", "budget"),
        ("check", *release, "--output", "b"),
        ("report", "a", "--output", "report.html"),
        ("export", "a", "--to", "csv", "--output", "a.csv"),
        ("account", "--budget", "budget"),
        ("evaluate", "--release", "a", "--input", "notes.jsonl"),
        ("compare", "a", "a"),
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("runner", ["DirectRunner", "FnApiRunner", "PortableRunner"])
def test_a_number_of_processes_is_of_this_machine_alone(cli, folder, runner, monkeypatch):
    monkeypatch.chdir(folder)
    arguments = given("ngrams", folder, "refused")
    ended = cli(*arguments, "--runner", runner, "--workers", 2)
    assert ended.status == 2
    assert "--workers must be left out with --runner" in ended.err
    assert not (folder / "refused").exists()


def test_the_transforms_in_a_pipeline_of_ones_own_write_the_same_release(cli, folder, monkeypatch):
    monkeypatch.chdir(folder)
    given = (*INPUTS, "--epsilon", 10, "--delta", 1e-4, "--max_length", 3)
    ended = cli("ngrams", *given, "--run_key_file", "run.key", "--output", "here")
    assert ended.status == 0, ended.err
    plan = NgramsPlan(epsilon=10, delta=1e-4, max_length=3)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        read = pipeline | ReadDocuments(inputs=FILES)
        private = PrivateNgrams(
            plan=plan, run_key=RunKeyFile.checked("run.key"), described=read.described
        )
        _ = read.documents | private | WriteRelease(output="own", tally=read.tally)
    assert release_bytes(folder / "own") == release_bytes(folder / "here")


class Failing(NgramsRun):
    """Fails after the input was read, in a thread and in the end, with errors that quote a text."""

    def release_in_memory(self, partitions, run_key, workers):
        def fail():
            raise KeyError(CANARY)

        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
        fail()


def quotes_the_text(_):
    raise KeyError(CANARY)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "program", [Failing, functools.partial(NgramsRun, tokenizer=quotes_the_text)]
)
def test_a_run_that_fails_leaves_no_process_and_quotes_nothing(
    folder, tmp_path, capfd, logged, monkeypatch, workers, program
):
    """Also while the error, whose traceback holds what was running, is there."""
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    monkeypatch.setattr(logging, "raiseExceptions", False)
    job = Job(
        private=program(plan=NgramsPlan(epsilon=10, delta=1e-4)),
        files=match_inputs([str(folder / file) for file in FILES]),
        reading=ReadOptions(),
        output=str(tmp_path / "out"),
        output_format="jsonl",
        overwrite=False,
        notes=ReleaseNotes(),
        rejects=None,
        max_rejected=1,
    )
    with pytest.raises(RunError) as caught:
        run_here(job, workers)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    assert "KeyError" in str(caught.value)
    assert CANARY not in str(caught.value) + logged.getvalue() + "".join(capfd.readouterr())
