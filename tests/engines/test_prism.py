"""The same release on Beam's Prism runner."""

import json
import os
import signal
import time

import pytest

from tests.benchmarks import engines, inputs
from tests.conftest import ROOT
from tests.engines.conftest import EVERY_JOB, deploy

pytestmark = [pytest.mark.engines, pytest.mark.prism]


@pytest.fixture(scope="module")
def prism_location() -> str:
    """Path of the program; built the first time, with Go."""
    ended = deploy("prism")
    assert ended.status == 0, ended.err
    (path,) = ended.out.splitlines()
    return path


@pytest.fixture(scope="module")
def prism_options(prism_location) -> tuple[str, ...]:
    return ("--runner", "PrismRunner", "--prism_location", prism_location)


@pytest.mark.parametrize("job", EVERY_JOB)
def test_prism_releases_what_the_embedded_runner_does(prism_options, check_same, job):
    check_same(job, *prism_options)


def test_one_step_of_one_worker_releases_what_the_graph_does(prism_options, check_same):
    check_same("adaptive", *prism_options, "--workers", 2)


def test_a_failed_run_on_prism_says_why_and_publishes_nothing(
    prism_options, job_options, launch, tmp_path
):
    """The reason is our own words, although it has come through the engine."""
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text('{"user": "u1", "text": "good morning"}\n' * 10 + "{no json\n")
    release = tmp_path / "release"
    options = [str(damaged) if part.endswith(".jsonl.gz") else part for part in job_options]
    ended = launch(*options, "--strict", "--output", release, *prism_options, timeout=300)
    assert ended.status == 1
    assert "no json" not in ended.err
    assert "damaged.jsonl" in ended.err
    assert not (release / "ledger.json").exists()


@pytest.mark.parametrize("seconds", [0.02, 0.3])
def test_a_second_interrupt_ends_a_run_on_prism_at_once(
    prism_options, job_options, program, tmp_path, seconds
):
    options = (*job_options, "--output", tmp_path / "release", *prism_options)
    with program.start(*options) as process:
        said = ""
        while "length" not in said and (line := process.stderr.readline()):
            said += line
        assert "length" in said
        process.send_signal(signal.SIGINT)
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode in (130, -signal.SIGINT)
    assert not (tmp_path / "release").exists()


def test_a_missing_go_is_named(tmp_path):
    ended = deploy("prism", PATH=str(tmp_path), XDG_CACHE_HOME=str(tmp_path / "empty"))
    assert (ended.status, ended.out) == (1, "")
    assert "go must be in PATH, and is not; install Go" in ended.err


def test_a_run_that_rejects_too_much_fails_on_prism_with_counts_by_reason(
    prism_options, job_options, launch, tmp_path
):
    """Added up over the pieces of work of two files, and told by a worker."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text("{no json\n" * 20_000)
    (tmp_path / "in" / "b.jsonl").write_text(
        '{"user": "u1", "text": "good morning"}\n' * 10 + "[]\n"
    )
    release = tmp_path / "release"
    files = f"{tmp_path}/in/*.jsonl"
    options = [files if part.endswith(".jsonl.gz") else part for part in job_options]
    ended = launch(*options, "--quiet", "--output", release, *prism_options, timeout=300)
    assert ended.status == 1
    counts = "20,001 rejected of 20,011 records: 20,000 malformed JSON, 1 not a JSON object."
    assert counts in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_few_rejects_are_counted_by_reason_on_prism(prism_options, job_options, launch, tmp_path):
    path = tmp_path / "some.jsonl"
    path.write_text('{"user": "u1", "text": "good morning"}\n' * 99 + "{no json\n")
    options = [str(path) if part.endswith(".jsonl.gz") else part for part in job_options]
    ended = launch(*options, "--output", tmp_path / "release", *prism_options, timeout=300)
    assert ended.status == 0, ended.err
    assert "1 record was rejected (--rejects DIR lists them): 1 malformed JSON." in ended.err


def test_the_failure_log_has_what_a_worker_on_prism_raised(
    prism_options, job_options, launch, tmp_path
):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "own_splitter.py").write_text(
        "def quotes_the_text(texts):\n    raise KeyError(f'cannot split {texts[0]}')\n"
    )
    path = tmp_path / "notes.jsonl"
    path.write_text('{"user": "u1", "text": "zebra4711"}\n')
    options = [str(path) if part.endswith(".jsonl.gz") else part for part in job_options]
    paths = os.pathsep.join([str(ROOT), str(tmp_path / "code"), os.environ.get("PYTHONPATH", "")])
    log = tmp_path / "failure.log"
    ended = launch(
        *(*options, "--output", tmp_path / "release", "--failure_log", log, *prism_options),
        *("--tokenizer", "own_splitter:quotes_the_text"),
        timeout=300,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert ended.status == 1
    assert "raised KeyError" in ended.err
    assert f"The whole failure is in {log}" in ended.err
    assert "zebra4711" not in ended.err + ended.out
    text = log.read_text()
    assert "KeyError: 'cannot split zebra4711'" in text
    assert "in quotes_the_text" in text
    assert not (tmp_path / "release").exists()


def test_ten_times_the_titles_are_measured_beside_the_embedded_runner(tmp_path, prism_location):
    titles = inputs.some_records(inputs.TITLES, tmp_path / "titles.jsonl.gz", count=100)
    path = tmp_path / "engines.json"
    job = ["--data", "ten_times", "--strategies", "one_round", "--titles", str(titles)]
    assert engines.main(["prism", *job, "--repeats", "1", "--json", str(path)]) == 0
    (part,) = json.loads(path.read_text())
    assert [row["where"] for row in part["rows"]] == [*engines.EMBEDDED, "prism"]
    assert all(row["equal"] for row in part["rows"])
    (run,) = part["rows"][-1]["runs"]
    assert run["processes"].keys() == {"launcher", "engine"}
    assert run["cpu"] == pytest.approx(sum(of["cpu"] for of in run["processes"].values()), abs=0.02)
    assert "--input ten.jsonl" in part["command"]
    assert prism_location not in part["command"]
