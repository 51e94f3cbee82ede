"""What every engine's tests share: jobs, a run key, and the embedded runner's release of each job."""

import functools
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping

import pytest

from tests.conftest import ROOT, Ended, Program

# Run by the Python of Airflow's own environment.
collect_ignore = ["airflow_probe.py", "in_airflow"]
SAMPLE = ROOT / "pipelines" / "data" / "reddit_titles_sample.jsonl.gz"
BUDGET = ("--epsilon", "4", "--delta", "1e-6")
MAX_LENGTH = 3
PRIVACY = (*BUDGET, "--max_length", str(MAX_LENGTH))
JOBS = {
    "adaptive": ("ngrams", *PRIVACY),
    "one_round": ("ngrams", *BUDGET, "--max_length", "2", "--strategy", "one_round"),
    "screened_gaussian": ("set-union", *BUDGET),
    "counts": ("bayesian", *BUDGET),
}
# Public trigrams of common words, with counts.
_COMMON = ["the", "of", "to", "in", "a", "is", "my", "for", "and", "on"]
PUBLIC = "".join(
    f"{' '.join(gram)}\t{1 + place % 7}\n"
    for place, gram in enumerate(itertools.product(_COMMON, repeat=3))
)


def release_bytes(release: pathlib.Path) -> Mapping[str, bytes]:
    """Every file of a release directory, hidden ones too, by name."""
    return {
        str(path.relative_to(release)): path.read_bytes()
        for path in release.rglob("*")
        if path.is_file()
    }


def deploy(engine: str, *arguments: object, **environment: str) -> Ended:
    """Runs `python3 -m deploy.ENGINE`, as a person would."""
    command = [sys.executable, "-m", f"deploy.{engine}", *map(str, arguments)]
    settings = {"cwd": ROOT, "env": {**os.environ, **environment}}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, **settings)
    return Ended(ended.returncode, ended.stdout, ended.stderr)


@pytest.fixture(scope="session")
def run_key_file(tmp_path_factory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("key") / "run.key"
    path.write_text("5eed" * 16)
    return path


@pytest.fixture(scope="session")
def public_file(tmp_path_factory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("public") / "counts.tsv"
    path.write_text(PUBLIC)
    return path


@pytest.fixture(scope="session")
def options_of(run_key_file, public_file) -> Callable[[str], tuple[str, ...]]:
    """Options of `beam-dpne` that fix the release of a job: command, privacy, input, run key."""
    given = ("--input", str(SAMPLE), "--run_key_file", str(run_key_file))

    def options(job: str) -> tuple[str, ...]:
        public = ("--public", str(public_file)) if JOBS[job][0] == "bayesian" else ()
        return (*JOBS[job], *given, *public)

    return options


@pytest.fixture(scope="session")
def job_options(options_of) -> tuple[str, ...]:
    """The options of n-grams by the default strategy."""
    return options_of("adaptive")


@pytest.fixture(scope="session")
def launch(tmp_path_factory) -> Callable[..., Ended]:
    """Runs `beam-dpne` as a process of its own, as a user would."""
    program = Program(tmp_path_factory.mktemp("temporary"))

    def run(*arguments: object, **settings) -> Ended:
        return program.run(*arguments, **settings)

    return run


@pytest.fixture(scope="session")
def embedded(options_of, launch, tmp_path_factory) -> Callable[[str], Mapping[str, bytes]]:
    """The files of the embedded runner's release of a job; each job is run once."""

    @functools.cache
    def release(job: str) -> Mapping[str, bytes]:
        folder = tmp_path_factory.mktemp("embedded") / "release"
        ended = launch(*options_of(job), "--output", folder)
        assert ended.status == 0, ended.err
        files = release_bytes(folder)
        assert "ledger.json" in files
        assert len(files) > 1
        return files

    return release


@pytest.fixture
def check_same(options_of, launch, embedded, tmp_path) -> Callable[..., None]:
    """Launches a job on an engine; its release must be that of the embedded runner."""

    def check(job: str, *engine: object) -> None:
        release = tmp_path / "release"
        ended = launch(*options_of(job), "--output", release, *engine, timeout=400)
        assert ended.status == 0, ended.err
        assert release_bytes(release) == embedded(job)

    return check


@pytest.fixture
def check_same_series(launch, run_key_file, tmp_path) -> Callable[..., None]:
    """Makes two releases of a series here and on an engine: bytes and participants must be the same."""

    def check(*engine: object) -> None:
        made = ("--releases", 2, "--releases_per_user", 1, "--epsilon", 8, "--delta", 1e-5)
        ended = launch("series", "create", tmp_path / "s", "--participants", tmp_path / "p", *made)
        assert ended.status == 0, ended.err
        found = []
        for name, options in (("here", ()), ("there", engine)):
            series, private = (tmp_path / f"{kind} {name}" for kind in ("s", "p"))
            shutil.copytree(tmp_path / "s", series)
            shutil.copytree(tmp_path / "p", private)
            folders = ("--series", series, "--participants", private)
            # Of the second one other people are a part: all others have taken part in the first.
            for number, users in enumerate((range(200), range(100, 300)), 1):
                notes = tmp_path / "notes.jsonl"
                rows = [{"user": f"u{user}", "text": "good morning"} for user in users]
                notes.write_text("".join(json.dumps(row) + "\n" for row in rows))
                key = tmp_path / "own.key"
                key.write_text(run_key_file.read_text()[:63] + str(number))
                given = ("--input", notes, "--max_length", 2, "--run_key_file", key, *folders)
                output = ("--output", tmp_path / f"{name} {number}")
                ended = launch("ngrams", *given, *output, *options, timeout=400)
                assert ended.status == 0, ended.err
            releases = [release_bytes(tmp_path / f"{name} {number}") for number in (1, 2)]
            digests = {
                path.name[:4] + path.name[17:]: path.read_bytes()
                for path in private.glob("*.digests")
            }
            found.append((*releases, digests))
        assert found[0] == found[1]
        sizes = [len(data) for name, data in found[1][2].items() if name.startswith("0002")]
        assert sum(sizes) == 100 * 16

    return check
