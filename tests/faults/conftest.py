"""A small corpus in every input format, undisturbed releases of it, and runs with faults."""

import contextlib
import gc
import gzip
import io
import json
import os
import pathlib
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_dpne.cli import runners
from beam_dpne.cli.main import main
from tests.conftest import Ended
from tests.faults.runner import Disturbance, FaultyRunner
from tests.faults.schedules import Schedule
from tests.faults.tally import TALLY

# A large spurious fraction, so that grams that nobody holds are drawn in so small a corpus.
PRIVACY = (
    *("--epsilon", "8", "--delta", "1e-4", "--max_length", "3", "--max_contributions", "20"),
    *("--spurious_fraction", "0.9", "--partitions", "12", "--strategy", "one_round"),
    # The many steps of engines, which fail one by one.
    *("--workers", "0"),
)
# Added to the options above, of which the last of a name holds.
ADAPTIVE = ("--strategy", "adaptive", "--spurious_fraction", "0.5")
ADAPTIVE_SMALL = (*ADAPTIVE, "--max_length", "2", "--rounds", "2")
ONE_STEP = ("--workers", "2")
WORDS = [f"word{place}" for place in range(30)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if TALLY.total:
        terminalreporter.section("injected faults")
        for line in TALLY.lines():
            terminalreporter.write_line(line)


def rows(count: int, seed: int) -> list[dict[str, str]]:
    """Texts of 200 users, words by Zipf's law."""
    chance = random.Random(seed)
    shares = [1 / (rank + 1) for rank in range(len(WORDS))]
    return [
        {
            "user": f"user{chance.randrange(200)}",
            "text": " ".join(chance.choices(WORDS, shares, k=12)),
        }
        for _ in range(count)
    ]


def json_lines(records: list[dict[str, str]]) -> bytes:
    """Records as JSONL, with a line in the middle that is none."""
    lines = [json.dumps(record) + "\n" for record in records]
    return "".join([*lines[:7], "{no record\n", *lines[7:]]).encode()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> pathlib.Path:
    """Six files, of all formats with fields; two lines are rejects."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "one.jsonl").write_bytes(json_lines(rows(150, 1)))
    (folder / "two.jsonl.gz").write_bytes(gzip.compress(json_lines(rows(150, 2)), mtime=0))
    for place, name in enumerate(("three.csv", "four.csv")):
        lines = [f"{row['user']},{row['text']}\n" for row in rows(100, 3 + place)]
        (folder / name).write_text("user,text\n" + "".join(lines))
    for place, name in enumerate(("five.parquet", "six.parquet")):
        pq.write_table(pa.Table.from_pylist(rows(100, 5 + place)), folder / name)
    return folder


@pytest.fixture(scope="session")
def run_key_file(tmp_path_factory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("key") / "run.key"
    path.write_text("5eed" * 16)
    return path


def files_of(folder: pathlib.Path) -> Mapping[str, bytes]:
    """All files of a folder, hidden ones too, by name; none if there is no folder."""
    paths = sorted(folder.rglob("*")) if folder.is_dir() else []
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths if not path.is_dir()}


def lines_of(rejects: pathlib.Path) -> Mapping[str, list[bytes]]:
    """The rejects; their order within a file is nobody's promise."""
    return {name: sorted(data.splitlines()) for name, data in files_of(rejects).items()}


class Outcome(NamedTuple):
    """What a run left and said.

    Attributes:
      ended: how the program ended.
      release: files of the release.
      rejects: lines of the files of rejects.
      folder: where both are.
    """

    ended: Ended
    release: Mapping[str, bytes]
    rejects: Mapping[str, list[bytes]]
    folder: pathlib.Path


@contextlib.contextmanager
def runner_in_place(runner: FaultyRunner) -> Iterator[None]:
    """The program runs on this runner instead of the embedded one, of which it is a subclass."""
    embedded = runners.EmbeddedRunner
    runners.EmbeddedRunner = lambda: runner  # type: ignore[assignment, misc]
    try:
        yield
    finally:
        runners.EmbeddedRunner = embedded


Run = Callable[..., Outcome]


@pytest.fixture(scope="session")
def options(corpus, run_key_file) -> tuple[str, ...]:
    """Options that fix a release of the corpus."""
    return ("ngrams", "--input", f"{corpus}/*", *PRIVACY, "--run_key_file", str(run_key_file))


@pytest.fixture(scope="session")
def run(options, tmp_path_factory) -> Run:
    """Runs `beam-dpne ngrams` on the corpus in this process, on a runner with faults if given."""

    def attempt(
        *others: str, runner: FaultyRunner | None = None, base: tuple[str, ...] = options
    ) -> Outcome:
        folder = tmp_path_factory.mktemp("run")
        release, rejects = folder / "release", folder / "rejects"
        out, err = io.StringIO(), io.StringIO()
        faulty = runner_in_place(runner) if runner else contextlib.nullcontext()
        with faulty, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main([*base, "--output", str(release), "--rejects", str(rejects), *others])
        ended = Ended(status, out.getvalue(), err.getvalue())
        return Outcome(ended, files_of(release), lines_of(rejects), folder)

    return attempt


@pytest.fixture(scope="session")
def undisturbed(run) -> Run:
    """As `run`, without faults, once for the same options."""
    known: dict[tuple[str, ...], Outcome] = {}

    def outcome(*others: str) -> Outcome:
        if others not in known:
            known[others] = run(*others)
            assert known[others].ended.status == 0, known[others].ended.err
            assert "ledger.json" in known[others].release
        return known[others]

    return outcome


@pytest.fixture(scope="session")
def disturbed(run, options) -> Callable[..., tuple[Outcome, FaultyRunner]]:
    """Runs with the faults of a schedule."""

    def outcome(
        schedule: Schedule, *others: str, base: tuple[str, ...] = options, **settings: object
    ) -> tuple[Outcome, FaultyRunner]:
        runner = FaultyRunner(schedule, Disturbance(**settings))  # type: ignore[arg-type]
        return run(*others, runner=runner, base=base), runner

    return outcome


@pytest.fixture
def nothing_leaks() -> Iterator[None]:
    """After the test there are no more threads and open files than before."""

    def held() -> tuple[set[str], int]:
        gc.collect()
        names = {thread.name for thread in threading.enumerate() if thread.is_alive()}
        return names, len(os.listdir("/proc/self/fd"))

    threads, files = held()
    yield
    # Sets in files are released by a thread that looks every 30 s whether their run has ended.
    deadline = time.monotonic() + 45
    while (now := held()) and not (now[0] <= threads and now[1] <= files):
        assert time.monotonic() < deadline, (now, threads, files)
        time.sleep(0.05)
