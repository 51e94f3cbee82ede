"""The same release on Beam's Prism runner."""

import pytest

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


def test_a_missing_go_is_named(tmp_path):
    ended = deploy("prism", PATH=str(tmp_path), XDG_CACHE_HOME=str(tmp_path / "empty"))
    assert (ended.status, ended.out) == (1, "")
    assert "go must be in PATH, and is not; install Go" in ended.err
