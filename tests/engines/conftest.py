"""What every engine's tests share: a corpus, a run key, and the embedded runner's release of them."""

import pathlib
from collections.abc import Callable, Mapping

import pytest

from tests.conftest import ROOT, Ended, Program

# Run by the Python of Airflow's own environment.
collect_ignore = ["airflow_probe.py"]
SAMPLE = ROOT / "pipelines" / "data" / "reddit_titles_sample.jsonl.gz"
PRIVACY = ("--epsilon", "4", "--delta", "1e-6", "--max_length", "4")


def release_bytes(release: pathlib.Path) -> Mapping[str, bytes]:
    """Every file of a release directory, hidden ones too, by name."""
    return {
        str(path.relative_to(release)): path.read_bytes()
        for path in release.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="session")
def run_key_file(tmp_path_factory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("key") / "run.key"
    path.write_text("5eed" * 16)
    return path


@pytest.fixture(scope="session")
def job_options(run_key_file) -> tuple[str, ...]:
    """Options of `beam-dpne ngrams` that fix a release: input, privacy, run key."""
    return ("ngrams", "--input", str(SAMPLE), *PRIVACY, "--run_key_file", str(run_key_file))


@pytest.fixture(scope="session")
def launch(tmp_path_factory) -> Callable[..., Ended]:
    """Runs `beam-dpne` as a process of its own, as a user would."""
    program = Program(tmp_path_factory.mktemp("temporary"))

    def run(*arguments: object, **settings) -> Ended:
        return program.run(*arguments, **settings)

    return run


@pytest.fixture(scope="session")
def embedded_release(job_options, launch, tmp_path_factory) -> Mapping[str, bytes]:
    """The files of the embedded runner's release."""
    release = tmp_path_factory.mktemp("embedded") / "release"
    ended = launch(*job_options, "--output", release)
    assert ended.status == 0, ended.err
    files = release_bytes(release)
    assert "ledger.json" in files
    return files
