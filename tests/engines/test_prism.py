"""The same release on Beam's Prism runner, and failures that come through an engine."""

import os

import pytest

from tests.conftest import ROOT
from tests.engines.conftest import deploy

pytestmark = [pytest.mark.engines, pytest.mark.prism]


@pytest.fixture(scope="module")
def prism_options() -> tuple[str, ...]:
    """Options of a job; the program is built the first time, with Go."""
    ended = deploy("prism")
    assert ended.status == 0, ended.err
    return ("--runner", "PrismRunner", "--prism_location", ended.out.strip())


@pytest.fixture
def run_on(prism_options, job_options, launch, tmp_path):
    """Runs n-grams of records on Prism; returns how the program ended."""

    def run(records: str, *options: object, **settings):
        path = tmp_path / "notes.jsonl"
        path.write_text(records)
        job = [str(path) if part.endswith(".jsonl.gz") else part for part in job_options]
        options = (*job, *options, "--output", tmp_path / "release", *prism_options)
        return launch(*options, timeout=300, **settings)

    return run


@pytest.mark.parametrize("job", ["adaptive", "one_round", "screened_gaussian", "counts"])
def test_prism_releases_what_the_embedded_runner_does(prism_options, check_same, job):
    check_same(job, *prism_options)


def test_a_series_on_prism_is_that_of_this_machine(prism_options, check_same_series):
    check_same_series(*prism_options)


def test_rejects_are_counted_over_workers(run_on):
    ended = run_on('{"user": "u1", "text": "good morning"}\n' * 99 + "{no json\n")
    assert ended.status == 0, ended.err
    assert "1 record was rejected (--rejects DIR lists them" in ended.err


def test_a_worker_that_fails_tells_its_failure_to_the_log_alone(run_on, tmp_path):
    (tmp_path / "own_splitter.py").write_text(
        "def quotes_the_text(texts):\n    raise KeyError(f'cannot split {texts[0]}')\n"
    )
    paths = os.pathsep.join([str(ROOT), str(tmp_path), os.environ.get("PYTHONPATH", "")])
    log = tmp_path / "failure.log"
    ended = run_on(
        '{"user": "u1", "text": "zebra4711"}\n',
        *("--failure_log", log, "--tokenizer", "own_splitter:quotes_the_text"),
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert ended.status == 1
    assert "KeyError" in ended.err
    assert f"The whole failure is in {log}" in ended.err
    assert "zebra4711" not in ended.err + ended.out
    assert "KeyError: 'cannot split zebra4711'" in log.read_text()
    assert not (tmp_path / "release").exists()
