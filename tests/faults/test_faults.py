"""Whatever fails: no half release, no private text on stderr, and a retry gives the same bytes."""

import gzip
import json
import os
import random
import resource
import signal
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from tests.conftest import ROOT
from tests.engines.conftest import release_bytes
from tests.faults.injection import FINISH, POINTS, PROCESS, fault_at

pytestmark = pytest.mark.faults

# Stands for a user's text in the message of every fault.
CANARY = "canary zebra 4711"
PLACES = 12
KILLED = "from tests.faults.injection import main; main()"
WORDS = [f"word{place}" for place in range(30)]
# The many steps of engines, which fail one by one; and the local driver, which has none.
ENGINE = ("--runner", "FnApiRunner")
HOW = {"engine": ENGINE, "1 process": ("--workers", "1"), "2 processes": ("--workers", "2")}
PRIVACY = ("--epsilon", "8", "--delta", "1e-4")
PROGRAMS = {
    "adaptive": ("ngrams", *PRIVACY, "--max_length", "3"),
    "one_round": ("ngrams", *PRIVACY, "--max_length", "3", "--strategy", "one_round"),
    "set-union": ("set-union", "--epsilon", "8", "--delta", "1e-4"),
}


def records(seed):
    """Texts of 200 users, words by Zipf's law."""
    chance = random.Random(seed)
    shares = [1 / (rank + 1) for rank in range(len(WORDS))]
    for _ in range(200):
        text = " ".join(chance.choices(WORDS, shares, k=12))
        yield {"user": f"user{chance.randrange(200)}", "text": text}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A file of each of three formats; one line is a reject."""
    folder = tmp_path_factory.mktemp("corpus") / "in"
    folder.mkdir()
    lines = [json.dumps(record) + "\n" for record in records(1)]
    (folder / "one.jsonl").write_text("".join([*lines[:7], "{no record\n", *lines[7:]]))
    data = "".join(json.dumps(record) + "\n" for record in records(2)).encode()
    (folder / "two.jsonl.gz").write_bytes(gzip.compress(data, mtime=0))
    pq.write_table(pa.Table.from_pylist(list(records(3))), folder / "three.parquet")
    (folder.parent / "run.key").write_text("5eed" * 16)
    return folder


@pytest.fixture(scope="module")
def options(corpus):
    """Options that fix a program's release of the corpus, or of a damaged copy."""

    def given(program, folder=corpus, how=ENGINE):
        key = ("--run_key_file", str(corpus.parent / "run.key"))
        return (*PROGRAMS[program], "--input", f"{folder}/*", *key, *how)

    return given


@pytest.fixture(scope="module")
def undisturbed(cli, options, tmp_path_factory):
    """The files of each program's release without faults, which are the same however it runs."""
    found = {}
    for program in PROGRAMS:
        for how in HOW.values():
            release = tmp_path_factory.mktemp(program) / "release"
            ended = cli(*options(program, how=how), "--output", release)
            assert ended.status == 0, ended.err
            files = release_bytes(release)
            assert len(files) >= 2
            assert found.setdefault(program, files) == files
    return found


def check_failure(status, said, release, whole):
    """The property: no release and a failure, or a whole one, and nothing of the data elsewhere.

    A run whose ledger is in place has not failed, whatever happens after that.
    """
    assert status is not None
    assert (status == 0) == (release / "ledger.json").exists()
    assert CANARY not in said
    assert "word1" not in said
    assert "Traceback" not in said
    if (release / "ledger.json").exists():
        assert release_bytes(release) == whole
    assert not [path for path in release.parent.iterdir() if path != release]


def check_retry(cli, options, release, whole):
    """The same program with the same key gives the same release, whatever was left."""
    ended = cli(*options, "--output", release, "--overwrite")
    assert ended.status == 0, ended.err
    assert release_bytes(release) == whole


@pytest.mark.parametrize("program", PROGRAMS)
def test_bundles_that_are_repeated_change_nothing(
    monkeypatch, cli, options, undisturbed, tmp_path, program
):
    """Engines run a bundle again, and throw the first result away."""
    run = FnApiRunner.run_via_runner_api
    repeats = []

    def run_repeatedly(runner, pipeline, given):
        runner._bundle_repeat = 1
        repeats.append(runner)
        return run(runner, pipeline, given)

    monkeypatch.setattr(FnApiRunner, "run_via_runner_api", run_repeatedly)
    ended = cli(*options(program), "--output", tmp_path / "release")
    assert ended.status == 0, ended.err
    assert repeats
    assert release_bytes(tmp_path / "release") == undisturbed[program]


@pytest.mark.parametrize("place", range(PLACES))
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_step_that_fails(cli, options, undisturbed, tmp_path, program, place):
    struck = []

    def fail():
        struck.append(place)
        raise [RuntimeError, MemoryError, OSError, KeyError][place % 3](CANARY)

    release = tmp_path / "release"
    with fault_at(place / (PLACES - 1), POINTS[place % len(POINTS)], fail):
        ended = cli(*options(program), "--output", release)
    if not struck:  # Nothing comes to the step of rejects, for instance.
        assert release_bytes(release) == undisturbed[program]
        return
    check_failure(ended.status, ended.err + ended.out, release, undisturbed[program])
    if place % 4 == 0:
        check_retry(cli, options(program), release, undisturbed[program])


@pytest.mark.parametrize(("place", "point"), [(0.1, PROCESS), (0.6, FINISH), (1, FINISH)])
def test_a_process_that_is_killed_in_a_step(cli, options, undisturbed, tmp_path, place, point):
    release = tmp_path / "place" / "release"
    release.parent.mkdir()
    arguments = [*options("adaptive"), "--output", str(release)]
    command = [sys.executable, "-c", KILLED, str(place), point, *arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert "word1" not in ended.stderr
    if (release / "ledger.json").exists():
        assert release_bytes(release) == undisturbed["adaptive"]
    check_retry(cli, options("adaptive"), release, undisturbed["adaptive"])


# The functions of which the local driver is made, in the order in which a run comes to them.
LOCAL_PLACES = [
    ("beam_dpne.reading.reader", "cut_or_read"),
    ("beam_dpne.documents.cutting", "read_piece"),
    ("beam_dpne.documents.cutting", "encode_documents"),
    ("beam_dpne.documents.blocks", "lay_out_positions"),
    ("beam_dpne.ngrams.in_memory", "contribute"),
    ("beam_dpne.ngrams.in_memory", "sample_spurious"),
    ("beam_dpne.ngrams.decisions", "decide"),
    ("beam_dpne.ngrams.in_memory", "rule_for"),
    ("beam_dpne.counts.measuring", "measure"),
    ("beam_dpne.release.described", "whole_ledger"),
    ("beam_dpne.release.publishing", "render_parts"),
    ("beam_dpne.release.publishing", "ledger_bytes"),
]
ACTS_BEFORE = """
import importlib, sys
module = importlib.import_module(sys.argv[1])
true = getattr(module, sys.argv[2])
def act(*given, **named):
    import os, signal
    if sys.argv[3] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise {"0": RuntimeError, "1": MemoryError, "2": OSError, "3": KeyError}[sys.argv[3]](%r)
setattr(module, sys.argv[2], act)
from beam_dpne.cli.main import program
sys.exit(program(sys.argv[4:]))
"""


def run_acting(place, act, *given):
    """Runs the program in a process in which one function fails, or kills the process that calls it."""
    code = ACTS_BEFORE % CANARY
    command = [sys.executable, "-c", code, *LOCAL_PLACES[place], str(act), *given]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("how", [how for how in HOW if how != "engine"])
@pytest.mark.parametrize("place", range(len(LOCAL_PLACES)))
def test_a_function_of_the_local_driver_that_fails(cli, options, undisturbed, tmp_path, place, how):
    release = tmp_path / "release"
    given = (*options("adaptive", how=HOW[how]), "--output", str(release))
    ended = run_acting(place, place % 4, *given)
    assert ended.returncode == 1, ended.stderr
    check_failure(ended.returncode, ended.stderr + ended.stdout, release, None)
    if place % 4 == 0:
        check_retry(cli, options("adaptive", how=HOW[how]), release, undisturbed["adaptive"])


@pytest.mark.parametrize("how", [how for how in HOW if how != "engine"])
@pytest.mark.parametrize("place", range(0, len(LOCAL_PLACES), 3))
def test_a_process_of_the_local_driver_that_is_killed(
    cli, options, undisturbed, tmp_path, place, how
):
    """A fork that is killed fails the run; the whole program that is killed says nothing."""
    release = tmp_path / "place" / "release"
    release.parent.mkdir()
    given = (*options("adaptive", how=HOW[how]), "--output", str(release))
    ended = run_acting(place, "kill", *given)
    assert ended.returncode in (1, -signal.SIGKILL), ended.stderr
    if ended.returncode == 1:
        assert "The system ended a process of this run" in ended.stderr
    assert "word1" not in ended.stderr
    assert not (release / "ledger.json").exists()
    check_retry(cli, options("adaptive", how=HOW[how]), release, undisturbed["adaptive"])


@pytest.mark.parametrize("how", HOW)
def test_files_that_may_not_grow(program, cli, options, undisturbed, tmp_path, how):
    """As on a full disk, in the middle of a part."""
    release = tmp_path / "release"

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))

    given = options("adaptive", how=HOW[how])
    ended = program.run(*given, "--output", release, preexec_fn=limit)
    check_failure(ended.status, ended.err, release, None)
    assert not (release / "ledger.json").exists()
    check_retry(cli, options("adaptive"), release, undisturbed["adaptive"])


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_program_that_is_told_to_end(program, cli, options, undisturbed, tmp_path, number, how):
    release = tmp_path / "release"
    with program.start(*options("adaptive", how=HOW[how]), "--output", release) as process:
        said = process.stderr.readline()
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    check_failure(process.returncode, said + out + err, release, undisturbed["adaptive"])
    check_retry(cli, options("adaptive"), release, undisturbed["adaptive"])


@pytest.mark.parametrize("name", ["two.jsonl.gz", "three.parquet"])
@pytest.mark.parametrize("when", ["under", *HOW])
def test_an_input_that_is_cut(cli, options, corpus, tmp_path, name, when):
    """What was there when the run began and is not there any more is not taken for all of it."""
    copy = tmp_path / "corpus"
    copy.mkdir()
    for path in corpus.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    release = tmp_path / "place" / "release"
    release.parent.mkdir()

    def cut():
        os.truncate(copy / name, (corpus / name).stat().st_size // 2)

    if when == "under":
        with fault_at(0, PROCESS, cut):
            ended = cli(*options("adaptive", copy), "--output", release)
    else:
        cut()
        ended = cli(*options("adaptive", copy, HOW[when]), "--output", release)
    check_failure(ended.status, ended.err + ended.out, release, None)
    assert name in ended.err
    assert not release.exists()
