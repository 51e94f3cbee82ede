"""Processes killed anywhere, without memory, on a full disk; and jobs begun again after that."""

import os
import shutil

import pytest

from beam_dpne.release.reading import read_release
from tests.faults import conftest
from tests.faults.conftest import ADAPTIVE, ADAPTIVE_SMALL
from tests.faults.jobs import Jobs
from tests.faults.schedules import BEFORE, BETWEEN, POINTS, Fault, Schedule, chance, kind_of
from tests.faults.tally import FAILED, SAME, TALLY, WHOLE_RUN
from tests.faults.test_exhausted import MAY_FOLLOW_PUBLICATION

pytestmark = [pytest.mark.faults, pytest.mark.engines]

KILLED = -9
FILE_SIZE = -25
KILLS = [
    ("Read/Read/ParDo(_ReadItem)", BETWEEN),
    ("PrivateNgrams/2/NoisyThreshold/Sort", BEFORE),
    ("Publish/Publish", BETWEEN),
]
ADAPTIVE_KILLS = [
    ("PrivateNgrams/1/2/SpendBudgets/Spend/FlatMap(_spend_and_report)", BETWEEN),
    ("PrivateNgrams/2/1/DecideRound/Sort", BEFORE),
    ("PrivateNgrams/2/2/NoisyThreshold/Decide", BETWEEN),
]
ROOMY = 2**20
# It starts a thread, and Python's Thread.start() waits for ever for a thread that gets no memory.
THREADED = "Read/Read/ParDo(_ReadItem)"


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    with Jobs(tmp_path_factory.mktemp("jobs")) as jobs:
        yield jobs


@pytest.fixture(scope="module")
def steps(disturbed):
    """One step of each kind."""
    _, runner = disturbed(Schedule())
    return sorted({kind_of(step): step for step in sorted(runner.steps)}.values())


@pytest.fixture
def release(tmp_path):
    """Where a release goes; its path must not be that of anything that is imported."""
    return tmp_path / "place" / "release"


def assert_not_half(release, *whole):
    """A reader finds no release, or one that is whole."""
    files = conftest.files_of(release)
    if "ledger.json" not in files:
        return False
    assert read_release(str(release)).table().num_rows
    assert any(expected.items() <= files.items() for expected in whole)
    return True


def assert_failed(done):
    assert (done.status, done.out) == (1, "")
    assert done.err.splitlines()[-1].startswith("beam-dpne: the run failed: ")
    assert "Traceback" not in done.err


def finish(jobs, options, release, expected):
    """A job begun again from nothing, with the same key and place, publishes the same release."""
    done = jobs.run(*options, "--output", str(release), "--overwrite")
    assert done.status == 0, done.err
    assert conftest.files_of(release) == expected


def test_a_job_killed_in_a_step_is_begun_again(jobs, options, release, undisturbed):
    for step, point in KILLS:
        arguments = (*options, "--output", str(release), "--overwrite")
        done = jobs.run(*arguments, step=step, point=point, at_step="kill")
        assert (done.status, done.reached) == (KILLED, True)
        published = assert_not_half(release, undisturbed().release)
        assert published == (step == "Publish/Publish")
        TALLY.add([Fault("killed", step)], SAME)
    finish(jobs, options, release, undisturbed().release)


def test_an_adaptive_job_killed_in_a_round_is_begun_again(jobs, options, release, undisturbed):
    options = (*options, *ADAPTIVE_SMALL)
    for step, point in ADAPTIVE_KILLS:
        arguments = (*options, "--output", str(release), "--overwrite")
        done = jobs.run(*arguments, step=step, point=point, at_step="kill")
        assert (done.status, done.reached) == (KILLED, True)
        assert not assert_not_half(release)
        TALLY.add([Fault("killed", step)], SAME)
    finish(jobs, options, release, undisturbed(*ADAPTIVE_SMALL).release)


@pytest.mark.slow
def test_adaptive_jobs_killed_at_every_kind_of_step_are_begun_again(
    jobs, options, release, disturbed, undisturbed
):
    _, runner = disturbed(Schedule(), *ADAPTIVE)
    kinds = {kind_of(step): step for step in sorted(runner.steps) if "PrivateNgrams/" in step}
    for step in sorted(kinds.values()):
        point = POINTS[int(5 * chance(13, step))]
        arguments = (*options, *ADAPTIVE, "--output", str(release), "--overwrite")
        done = jobs.run(*arguments, step=step, point=point, at_step="kill")
        assert (done.status, done.reached) == (KILLED, True), (step, point)
        assert_not_half(release, undisturbed(*ADAPTIVE).release)
        TALLY.add([Fault("killed", step)], SAME)
    finish(jobs, (*options, *ADAPTIVE), release, undisturbed(*ADAPTIVE).release)


@pytest.mark.slow
def test_a_job_killed_at_any_change_of_its_directory_is_begun_again(
    jobs, options, release, undisturbed
):
    arguments = (*options, "--output", str(release))
    whole = jobs.run(*arguments, folder=str(release))
    assert whole.status == 0
    assert whole.changes >= 5
    for path in release.iterdir():
        path.unlink()
    release.rmdir()
    seen = set()
    for change in range(1, whole.changes + 1):
        done = jobs.run(*arguments, "--overwrite", folder=str(release), kill_at_change=change)
        seen.add(done.status)
        assert_not_half(release, undisturbed().release)
        TALLY.add([Fault("killed", "Publish/Publish")], SAME)
    assert KILLED in seen
    finish(jobs, options, release, undisturbed().release)


def test_a_job_killed_in_a_write_leaves_no_release(jobs, options, release, undisturbed):
    arguments = (*options, "--output", str(release))
    done = jobs.run(*arguments, file_bytes=1000, kill_in_write=True)
    assert done.status == FILE_SIZE
    assert not assert_not_half(release)
    assert any(len(data) == 1000 for data in conftest.files_of(release).values())
    TALLY.add([Fault("killed", "Publish/Publish")], SAME)
    finish(jobs, options, release, undisturbed().release)


@pytest.mark.slow
def test_a_file_that_may_not_grow_fails_the_run(jobs, options, release, undisturbed):
    done = jobs.run(*options, "--output", str(release), file_bytes=1000)
    assert_failed(done)
    assert "File too large" in done.err
    assert not release.exists()
    TALLY.add([Fault("file too large", "Publish/Publish")], FAILED)
    finish(jobs, options, release, undisturbed().release)


@pytest.mark.slow
def test_jobs_killed_at_every_kind_of_step_are_begun_again(
    jobs, options, release, undisturbed, steps
):
    options = (*options, "--rejects", str(release.parent / "rejects"))
    for place, step in enumerate(steps):
        point = POINTS[int(5 * chance(11, step))]
        arguments = (*options, "--output", str(release), "--overwrite")
        done = jobs.run(*arguments, step=step, point=point, at_step="kill")
        assert (done.status, done.reached) == (KILLED, True), (step, point)
        assert_not_half(release, undisturbed().release)
        TALLY.add([Fault("killed", step)], SAME)
        if place % 8 == 7:
            finish(jobs, options, release, undisturbed().release)
    finish(jobs, options, release, undisturbed().release)
    assert conftest.lines_of(release.parent / "rejects").items() >= undisturbed().rejects.items()


@pytest.mark.slow
def test_jobs_killed_at_random_times_are_begun_again(jobs, options, release, undisturbed):
    longest = jobs.run(*options, "--output", str(release)).seconds
    for seed in range(12):
        arguments = (*options, "--output", str(release), "--overwrite")
        done = jobs.run(*arguments, kill_after=longest * chance(12, seed))
        assert done.status in (KILLED, 0)
        assert assert_not_half(release, undisturbed().release)
        TALLY.add([Fault("killed", WHOLE_RUN)] * (done.status == KILLED), SAME)
    finish(jobs, options, release, undisturbed().release)


@pytest.mark.slow
def test_overwriting_killed_at_any_change_leaves_one_whole_release(
    jobs, options, release, undisturbed, tmp_path
):
    other_key = tmp_path / "other.key"
    other_key.write_text("0dd" * 21 + "1")
    other = (*options[:-1], str(other_key))
    arguments = (*options, "--output", str(release), "--overwrite")
    finished, change = False, 0
    assert jobs.run(*other, "--output", str(release)).status == 0
    old = conftest.files_of(release)
    shutil.copytree(release, tmp_path / "old")
    while not finished:
        change += 1
        assert change < 40
        shutil.rmtree(release)
        shutil.copytree(tmp_path / "old", release)
        done = jobs.run(*arguments, folder=str(release), kill_at_change=change)
        finished = done.status == 0
        assert finished or done.status == KILLED
        assert assert_not_half(release, old, undisturbed().release)
        TALLY.add([Fault("killed", "Publish/Publish")], SAME)
    assert change > 6
    assert conftest.files_of(release) == undisturbed().release


# Memory


@pytest.fixture(scope="module")
def large(tmp_path_factory, run_key_file):
    """Options of a job whose steps have something to allocate."""
    path = tmp_path_factory.mktemp("large") / "large.jsonl"
    path.write_bytes(conftest.json_lines(conftest.rows(30_000, 17)))
    fixed = (*conftest.PRIVACY, "--run_key_file", str(run_key_file))
    return ("ngrams", "--input", str(path), *fixed, "--partitions", "1")


@pytest.fixture(scope="module")
def large_release(jobs, large, tmp_path_factory):
    release = tmp_path_factory.mktemp("large") / "release"
    assert jobs.run(*large, "--output", str(release)).status == 0
    return conftest.files_of(release)


def run_short_of_memory(jobs, options, release, expected, step):
    """Runs with no memory from one step on; returns whether that failed the run."""
    where = {"step": step, "point": BEFORE, "at_step": "memory"}
    rejects = ("--rejects", str(release.parent / "rejects"))
    done = jobs.run(*options, *rejects, "--output", str(release), "--overwrite", **where)
    assert done.reached
    if done.status == 0:
        assert conftest.files_of(release) == expected
        TALLY.add([Fault("out of memory", step)], SAME)
        return False
    if done.status == 1:
        assert_failed(done)
    else:
        assert done.status < 0, done.err
    if assert_not_half(release, expected):
        assert step in {*MAY_FOLLOW_PUBLICATION, "Publish/Publish"}
    TALLY.add([Fault("out of memory", step)], FAILED)
    return True


def test_a_worker_out_of_memory_fails_the_run(jobs, large, large_release, release):
    tokenize = "PrivateNgrams/GroupByUser/Tokenize"
    assert run_short_of_memory(jobs, large, release, large_release, tokenize)


@pytest.mark.slow
def test_a_bundle_that_ran_out_of_memory_succeeds_elsewhere(jobs, large, large_release, release):
    """The next attempt has more memory, as one on another worker may have."""
    for step in ("PrivateNgrams/GroupByUser/LayOut", "PrivateNgrams/GroupByUser/Tokenize"):
        where = {"step": step, "point": BEFORE, "at_step": "memory", "attempts": 5}
        done = jobs.run(*large, "--output", str(release), "--overwrite", **where)
        assert done.reached
        assert done.status == 0, done.err
        assert conftest.files_of(release) == large_release
        TALLY.add([Fault("out of memory", step)], SAME)


@pytest.mark.slow
def test_a_worker_out_of_memory_at_every_step(jobs, large, large_release, tmp_path, steps):
    failed = 0
    for place, step in enumerate(steps):
        if step != THREADED:
            release = tmp_path / str(place) / "release"
            failed += run_short_of_memory(jobs, large, release, large_release, step)
    assert failed >= 5


# Disks


def test_a_full_disk_fails_the_run_and_the_next_has_the_release(
    options, tmp_path, undisturbed, tmp_path_factory
):
    (tmp_path / "disk").mkdir()
    with Jobs(tmp_path_factory.mktemp("jobs"), tmp_path / "disk", ROOMY) as jobs:
        output = str(tmp_path / "disk" / "release")
        assert jobs.run(*options, "--output", output).status == 0
        expected = conftest.files_of(jobs.disk / "release")
        assert expected == undisturbed().release
        for path in (jobs.disk / "release").iterdir():
            path.unlink()
        (jobs.disk / "release").rmdir()
        pages = [-(-len(data) // 4096) for data in expected.values()]
        for free in (1, sum(pages) - 1):
            leave(jobs.disk, free)
            assert_failed(done := jobs.run(*options, "--output", output))
            assert "No space left on device" in done.err
            assert os.listdir(jobs.disk) == ["ballast"]
            TALLY.add([Fault("disk full", "Publish/Publish")], FAILED)
        (jobs.disk / "ballast").unlink()
        assert jobs.run(*options, "--output", output).status == 0
        assert conftest.files_of(jobs.disk / "release") == expected


@pytest.mark.slow
def test_a_full_disk_for_rejects_fails_the_run(options, tmp_path, tmp_path_factory):
    (tmp_path / "disk").mkdir()
    release = tmp_path / "release"
    with Jobs(tmp_path_factory.mktemp("jobs"), tmp_path / "disk", ROOMY) as jobs:
        leave(jobs.disk, 0)
        rejects = str(tmp_path / "disk" / "rejects")
        done = jobs.run(*options, "--output", str(release), "--rejects", rejects)
        assert_failed(done)
        assert "No space left on device" in done.err
        assert not release.exists()
        TALLY.add([Fault("disk full", "WriteRejects/Format")], FAILED)


def leave(disk, pages):
    """Fills a disk but for so many pages."""
    (disk / "ballast").unlink(missing_ok=True)
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    (disk / "ballast").write_bytes(b"\0" * (free - pages * 4096))
