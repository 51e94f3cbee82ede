"""The same release on a Flink cluster, also when a TaskManager dies in the middle of a length."""

import os
import signal
import subprocess
import sys
import threading
import time

import apache_beam as beam
import pytest
from apache_beam.io import WriteToText
from apache_beam.options.pipeline_options import PipelineOptions

from beam_dpne import engines
from deploy.flink.cluster import Cluster
from deploy.processes import listens, until
from tests.conftest import ROOT
from tests.engines.conftest import BUDGET, SAMPLE, deploy, release_bytes
from tests.engines.flink import ReleaseWatcher, free_ports, write_copies_of_sample

pytestmark = [pytest.mark.engines, pytest.mark.flink]
pytest_plugins = ["tests.engines.flink"]

COPIES = 12
LENGTH = 2  # The TaskManager is killed while this one is computed.
LARGE_BYTES = 8 << 20
# Of a TaskManager, as config.yaml grants it: framework off-heap and network.
DIRECT_BYTES = (256 + 96) << 20
WITHOUT_WORKERS = 60
HARNESS_TIMEOUT = 20  # It begins before the job server hands the job to Flink.


def new_job(cluster: Cluster, known: frozenset[str], *, vertices: int = 0) -> str:
    """Returns the first job that Flink has besides those known, of so many vertices at least."""

    def find() -> str | None:
        new = [job for job in cluster.rest.jobs() if job not in known]
        large = (job for job in new if len(cluster.rest.job(job)["vertices"]) >= vertices)
        return next(large, None)

    return until(find, timeout=120, what="start of a job")


def wait_for_state(cluster: Cluster, job: str, state: str) -> None:
    until(lambda: cluster.rest.job(job)["state"] == state, timeout=60, what=f"{state} of {job}")


@pytest.mark.parametrize("job", ["adaptive", "screened_gaussian", "counts"])
def test_flink_releases_what_the_embedded_runner_does(cluster, check_same, job):
    check_same(job, *cluster.job_options(parallelism=2))


def test_a_series_on_flink_whose_worker_is_the_launcher_is_that_of_this_machine(
    cluster, check_same_series
):
    options = list(cluster.job_options(parallelism=2))
    place = options.index("--environment_config")
    del options[place : place + 2]
    check_same_series(*options, "--environment_type", "LOOPBACK")


def test_the_doctor_finds_nothing_to_say_about_a_cluster_of_ours(cluster):
    ended = deploy("flink", "doctor", "--flink_master", cluster.rest.address)
    assert ended.status == 0, ended.err
    assert {line.split()[0] for line in ended.out.splitlines()} == {"ok"}, ended.out
    assert "planner.jar: the last job was planned with it" in ended.out
    # Whoever reaches this port can run code.
    assert "localhost" in cluster.rest.address
    status = deploy("flink", "status", "--state", cluster.daemons.state)
    assert status.status == 0
    assert "taskmanager-2: registered, 1 of 1 slots free" in status.out


def test_killed_task_manager_changes_nothing(cluster, run_key_file, launch, program, tmp_path):
    """SIGKILL in the middle of a length; Flink's REST interface says so, and that it started again."""
    write_copies_of_sample(tmp_path / "copies.jsonl", COPIES)
    options = ["ngrams", "--input", tmp_path / "copies.jsonl", "--run_key_file", run_key_file]
    options += [*BUDGET, "--max_length", LENGTH]
    embedded = launch(*options, "--output", tmp_path / "embedded", timeout=300)
    assert embedded.status == 0, embedded.err

    known = frozenset(cluster.rest.jobs())
    release = tmp_path / "release"
    arguments = [*options, "--output", release, *cluster.job_options(parallelism=2)]
    with ReleaseWatcher(release) as watcher, program.start(*arguments) as launcher:
        job = new_job(cluster, known, vertices=25)
        killed = until(lambda: computing(cluster, job), timeout=240, what="that length")
        cluster.daemons.kill(killed)
        cluster.start_task_manager()
        _, err = launcher.communicate(timeout=480)
    assert launcher.returncode == 0, err
    assert killed in {one.get("taskManagerId") for one in cluster.rest.exceptions(job)}
    ended = cluster.rest.job(job)
    assert 0 < ended["timestamps"]["RESTARTING"] < ended["timestamps"]["FINISHED"]
    assert release_bytes(release) == release_bytes(tmp_path / "embedded")
    assert watcher.half == []
    assert watcher.absent > 100


def test_a_job_that_waits_for_task_managers_says_so_and_goes_on_with_others(
    cluster, run_key_file, launch, program, tmp_path
):
    """Flink itself says nothing, for five minutes after each of 30 restarts."""
    write_copies_of_sample(tmp_path / "copies.jsonl", COPIES)
    options = ["ngrams", "--input", tmp_path / "copies.jsonl", "--run_key_file", run_key_file]
    options += [*BUDGET, "--max_length", LENGTH]
    assert launch(*options, "--output", tmp_path / "embedded", timeout=300).status == 0
    options += ["--harness_timeout", WITHOUT_WORKERS, *cluster.job_options(parallelism=2)]
    known = frozenset(cluster.rest.jobs())
    with program.start(*options, "--output", tmp_path / "release") as launcher:
        job = new_job(cluster, known, vertices=25)
        until(lambda: computing(cluster, job), timeout=240, what="that length")
        for one in cluster.rest.task_managers():
            cluster.daemons.kill(one)
        warning = f"Flink has had no TaskManager for {WITHOUT_WORKERS} s"
        # Without the warning the launcher would wait for hours, and this test with it.
        too_late = threading.Timer(240, launcher.kill)
        too_late.start()
        said = next((line for line in launcher.stderr if warning in line), None)
        too_late.cancel()
        for _ in range(2):
            cluster.start_task_manager()
        _, err = launcher.communicate(timeout=480)
    assert said is not None, err
    assert launcher.returncode == 0, err
    assert warning not in err
    assert release_bytes(tmp_path / "release") == release_bytes(tmp_path / "embedded")


def computing(cluster: Cluster, job: str) -> str | None:
    """Returns the name of a TaskManager that computes the length; names of vertices hold labels."""
    for vertex in cluster.rest.job(job)["vertices"]:
        if vertex["status"] == "RUNNING" and f"PrivateNgrams/{LENGTH}/" in vertex["name"]:
            for task in cluster.rest.get(f"/jobs/{job}/vertices/{vertex['id']}")["subtasks"]:
                if task["status"] == "RUNNING":
                    return task["taskmanager-id"]
    return None


def test_a_library_pipeline_is_cancelled_with_its_launcher(cluster, tmp_path):
    known = frozenset(cluster.rest.jobs())
    options = [*cluster.job_options(parallelism=2), *engines.FLINK_OPTIONS]
    command = [sys.executable, "-m", "tests.engines.library_pipeline", tmp_path / "out", *options]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as launcher:
        job = new_job(cluster, known, vertices=10)
        launcher.send_signal(signal.SIGINT)
        _, err = launcher.communicate(timeout=60)
    assert launcher.returncode == -signal.SIGINT, err
    wait_for_state(cluster, job, "CANCELED")
    assert not (tmp_path / "out").exists()


def test_a_failed_run_publishes_nothing_and_leaves_a_failure_log(
    cluster, job_options, launch, tmp_path
):
    (tmp_path / "notes.jsonl").write_text("{no json\n" * 20_000)
    work, log = tmp_path / "work", tmp_path / "failure.log"
    work.mkdir()
    given = ("--input", tmp_path / "notes.jsonl", "--output", work / "release")
    options = [part for part in job_options if part not in ("--input", str(SAMPLE))]
    engine = ("--failure_log", log, *cluster.job_options(parallelism=2))
    ended = launch(*options, *given, *engine, timeout=300)
    assert ended.status == 1, ended.err
    assert "because of: malformed JSON." in ended.err, f"{ended.err}{log.read_text()[-9000:]}"
    assert f"The whole failure is in {log}" in ended.err
    assert list(work.iterdir()) == []
    assert "Traceback" in log.read_text()
    assert "TooManyRejectedError" in log.read_text()


def test_workers_that_do_not_start_end_the_job(cluster, job_options, launch, tmp_path):
    """Beam's own pool starts the first `python` of PATH, whichever it is."""
    (port,) = free_ports(1)
    wrong = tmp_path / "bin" / "python"
    wrong.parent.mkdir()
    wrong.write_text("#!/bin/sh\nexit 1\n")
    wrong.chmod(0o755)
    pool = "apache_beam.runners.worker.worker_pool_main"
    cluster.daemons.start(
        "workers-wrong",
        [sys.executable, "-m", pool, f"--service_port={port}"],
        ready=listens(port),
        environment={"PATH": f"{wrong.parent}:{os.environ['PATH']}"},
    )
    known = frozenset(cluster.rest.jobs())
    options = [*job_options, "--output", tmp_path / "release", "--harness_timeout", HARNESS_TIMEOUT]
    ours, theirs = (f"localhost:{one}" for one in (cluster.ports.workers, port))
    engine = [theirs if part == ours else part for part in cluster.job_options(parallelism=2)]
    ended = launch(*options, *engine, timeout=300)
    cluster.daemons.stop("workers-wrong")
    assert ended.status == 1, ended.err
    assert f"within {HARNESS_TIMEOUT} s" in ended.err
    assert not (tmp_path / "release").exists()
    wait_for_state(cluster, new_job(cluster, known), "CANCELED")


def test_a_busy_harness_gets_no_more_than_waits_in_direct_memory(cluster, tmp_path):
    """One task sends more than a TaskManager's direct memory to a harness that takes it slowly."""
    elements = DIRECT_BYTES // LARGE_BYTES + 8
    options = [*cluster.job_options(parallelism=1), *engines.FLINK_OPTIONS]
    known = frozenset(cluster.rest.jobs())
    with engines.pipeline(PipelineOptions(options)) as pipeline:
        large = pipeline | beam.Create(range(elements)) | beam.Map(_large)
        _ = large | beam.Reshuffle() | "Slow" >> beam.Map(_slowly) | WriteToText(f"{tmp_path}/out")
    jobs = cluster.rest.jobs().keys() - known
    assert not any(cluster.rest.exceptions(job) for job in jobs)
    lines = [line for path in tmp_path.iterdir() for line in path.read_text().split()]
    assert lines == [str(LARGE_BYTES)] * elements


def _large(number: int) -> bytes:
    return bytes([number % 256]) * LARGE_BYTES


def _slowly(element: bytes) -> int:
    time.sleep(0.1)
    return len(element)
