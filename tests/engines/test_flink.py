"""The same release on a Flink cluster, also when a TaskManager dies in the middle of a length."""

import base64
import dataclasses
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from typing import Any

import apache_beam as beam
import pytest
import yaml
from apache_beam.io import WriteToText
from apache_beam.options.pipeline_options import PipelineOptions

from beam_dpne import PrivacyPlan, PrivateNgrams, engines
from beam_dpne.elements.coders import MAX_ELEMENT_BYTES
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.transform import run_context
from deploy.flink import jars, memory
from deploy.flink.cluster import Cluster, pools
from deploy.flink.rest import FINAL, task_counts, until
from deploy.processes import DaemonError, answers
from tests.conftest import ROOT
from tests.engines.conftest import BUDGET, MAX_LENGTH, SAMPLE, deploy, release_bytes
from tests.engines.flink import (
    ReleaseWatcher,
    free_ports,
    received_graphs,
    unpacked,
    write_copies_of_sample,
)

pytestmark = [pytest.mark.engines, pytest.mark.flink]
pytest_plugins = ["tests.engines.flink_cluster"]

MINUTES = 60
_LARGE_BYTES = 8 << 20
COPIES = 16
BEAMS_POOL = "apache_beam.runners.worker.worker_pool_main"
LENGTH = 2  # The TaskManager is killed while this one is computed.
HARNESS_TIMEOUT = 45  # It begins before the job server hands the job to Flink.


@dataclasses.dataclass(frozen=True)
class Run:
    """A job that has ended on Flink."""

    release: Mapping[str, bytes]
    job: Mapping[str, Any]
    memory: Mapping[str, memory.WorkerMemory]
    graph: bytes


@pytest.fixture(scope="module")
def ended_run(cluster, job_options, launch, tmp_path_factory) -> Run:
    endpoint = f"localhost:{cluster.ports.job}"
    known, graphs = frozenset(cluster.rest.jobs()), received_graphs(endpoint)
    release = tmp_path_factory.mktemp("run") / "release"
    sampler = memory.Sampler(cluster.daemons, pools=pools(cluster.daemons))
    with sampler:
        ended = launch(
            *job_options,
            *("--output", release),
            *cluster.job_options(parallelism=2),
            timeout=5 * MINUTES,
        )
    assert ended.status == 0, ended.err
    (graph,) = (graph for job, graph in received_graphs(endpoint).items() if job not in graphs)
    return Run(release_bytes(release), new_job(cluster, known), sampler.peaks, graph)


def new_job(cluster: Cluster, known: frozenset[str]) -> Mapping[str, Any]:
    """Returns the one job that Flink has besides those known."""

    def find() -> Mapping[str, Any] | None:
        new = [job for job in cluster.rest.jobs() if job not in known]
        return cluster.rest.job(new[0]) if new else None

    return until(find, timeout=2 * MINUTES, what="start of a job")


def test_release_is_that_of_the_embedded_runner(ended_run, embedded_release, capsys):
    assert ended_run.job["state"] == "FINISHED"
    assert ended_run.release == embedded_release
    counts = task_counts(ended_run.job)
    with capsys.disabled():
        print(f"\nFlink, T = {MAX_LENGTH}: {counts}, {ended_run.job['duration'] / 1000:.1f} s")


@pytest.mark.parametrize(
    "job",
    ["one_round", "screened_gaussian", "mad"],
)
def test_other_jobs_release_what_the_embedded_runner_does(cluster, check_same, job):
    check_same(job, *cluster.job_options(parallelism=2))


def test_one_step_of_one_worker_releases_what_the_graph_does(cluster, check_same):
    known = frozenset(cluster.rest.jobs())
    check_same("adaptive", *cluster.job_options(parallelism=2), "--workers", 2)
    names = [cluster.rest.job(job)["name"] for job in cluster.rest.jobs() if job not in known]
    (job,) = [job for job in cluster.rest.jobs() if job not in known]
    # The graph of these lengths has 91 vertices or more.
    assert len(cluster.rest.job(job)["vertices"]) < 25, names


def test_every_grouping_has_two_sorts_and_each_of_them_room_for_an_element(ended_run):
    """Which is how config.yaml comes to its managed memory: for 26 lengths of three rounds."""
    plan = PrivacyPlan(epsilon=4, delta=1e-6, max_length=MAX_LENGTH)
    names = [vertex["name"] for vertex in ended_run.job["vertices"]]
    # One makes partitions of users, one each round its sums, and one the sums that count users.
    groupings = 2 + plan.round_count
    assert sum("GroupCombine at" in name for name in names) == groupings
    assert sum("GroupReduce at" in name for name in names) == groupings
    config = yaml.safe_load((ROOT / "deploy" / "flink" / "config.yaml").read_text())
    managed = config["taskmanager"]["memory"]["managed"]["size"]
    assert managed.endswith("m")
    longest = PrivacyPlan(epsilon=4, delta=1e-6, max_length=26, rounds=3)
    each = (int(managed[:-1]) << 20) / (2 * (2 + longest.round_count))
    # An element of 4 MiB needs 4.7 MiB to be sorted, as the README beside config.yaml says.
    assert each > 4.7 / 4 * MAX_ELEMENT_BYTES


def test_memory_of_every_worker_is_seen(ended_run, capsys):
    # A harness of an earlier job may still be ending, after its TaskManager has closed the port.
    workers = {name: of for name, of in ended_run.memory.items() if name != memory.ELSEWHERE}
    assert workers.keys() == {"taskmanager-1", "taskmanager-2"}
    assert all(of.task_manager.resident > 100 << 10 for of in workers.values())
    # One that has no work has no harness; a harness needs more than 50 MiB for its imports alone.
    harnesses = [of.harnesses for of in workers.values() if of.harnesses.processes]
    assert harnesses
    assert all(of.resident > 50 << 10 for of in harnesses)
    with capsys.disabled():
        print(f"\n{memory.table(ended_run.memory)}")


def test_job_server_never_receives_the_run_key(ended_run, run_key_file):
    """Not as it was given, nor bound to the run, in which form a key without a file travels."""
    plan = PrivacyPlan(epsilon=4, delta=1e-6, max_length=MAX_LENGTH)
    key = RunKey.from_hex(run_key_file.read_text())
    bound = key.bound_to(run_context(plan, "words"))._secret
    packed = unpacked(ended_run.graph)
    assert os.fsencode(run_key_file) in packed  # Pickles are looked into,
    assert bound in unpacked(graph_with(plan, key))  # and a key is found where there is one.
    assert not [form for form in (*forms_of(key._secret), *forms_of(bound)) if form in packed]


def forms_of(key: bytes) -> list[bytes]:
    digits = key.hex().encode()
    return [key, key[::-1], digits, digits.upper(), base64.b64encode(key)]


def graph_with(plan: PrivacyPlan, key: RunKey) -> bytes:
    """Returns the serialized graph of a pipeline that carries its key."""
    pipeline = beam.Pipeline()
    documents = pipeline | beam.Create([("user", "text")])
    _ = documents | PrivateNgrams(plan=plan, run_key=key)
    return pipeline.to_runner_api().SerializeToString()


@pytest.fixture(scope="module")
def many_users(tmp_path_factory):
    """A corpus with which a length takes seconds."""
    path = tmp_path_factory.mktemp("corpus") / "copies.jsonl"
    write_copies_of_sample(path, COPIES)
    return path


def test_killed_task_manager_changes_nothing(
    cluster, many_users, run_key_file, launch, program, tmp_path, capsys
):
    """SIGKILL in the middle of a length; Flink's REST interface says so, and that it started again."""
    privacy = (*BUDGET, "--max_length", str(LENGTH + 1))
    options = ["ngrams", "--input", many_users, *privacy, "--run_key_file", run_key_file]
    embedded = launch(*options, "--output", tmp_path / "embedded", timeout=5 * MINUTES)
    assert embedded.status == 0, embedded.err

    known = frozenset(cluster.rest.jobs())
    release = tmp_path / "release"
    arguments = [*options, "--output", release, *cluster.job_options(parallelism=2)]
    with ReleaseWatcher(release) as watcher, program.start(*arguments) as launcher:
        identity = new_job(cluster, known)["jid"]
        before, killed = kill_while_computing(cluster, identity, LENGTH)
        replacement = cluster.start_task_manager()
        _, err = launcher.communicate(timeout=8 * MINUTES)
    assert launcher.returncode == 0, err

    job = cluster.rest.job(identity)
    failures = cluster.rest.exceptions(identity)
    restarted = job["timestamps"]["RESTARTING"]
    with capsys.disabled():
        print(f"\n{evidence(before, killed, replacement, failures, job, watcher)}")
    assert before["state"] == "RUNNING"
    assert killed in {failure.get("taskManagerId") for failure in failures}
    assert before["now"] <= restarted <= job["timestamps"]["FINISHED"]
    assert job["state"] == "FINISHED"
    until(
        lambda: killed not in cluster.rest.task_managers(),
        timeout=1 * MINUTES,
        what=f"Flink's notice that {killed} is gone",
    )
    until(
        lambda: memory.ELSEWHERE not in memory.sample(cluster.daemons, pools(cluster.daemons)),
        timeout=1 * MINUTES,
        what=f"end of the harnesses of {killed}",
    )
    assert release_bytes(release) == release_bytes(tmp_path / "embedded")
    assert watcher.seen.half == []
    assert watcher.seen.absent > 100
    assert watcher.seen.whole >= 1


def library_pipeline(way: str, output: object, *options: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "tests.engines.library_pipeline", way, str(output), *options]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def library_options(cluster: Cluster) -> list[str]:
    return [*cluster.job_options(parallelism=2), *engines.FLINK_OPTIONS]


def test_a_library_pipeline_releases_what_the_embedded_runner_does(cluster, tmp_path):
    for way, name, options in (
        ("run", "embedded", ["--runner=FnApiRunner"]),
        ("with", "flink", library_options(cluster)),
    ):
        with library_pipeline(way, tmp_path / name, *options) as launcher:
            _, err = launcher.communicate(timeout=8 * MINUTES)
        assert launcher.returncode == 0, err
    lines = [sorted((tmp_path / name).read_text().splitlines()) for name in ("embedded", "flink")]
    assert lines[0] == lines[1]
    assert any("good morning" in line for line in lines[0])


@pytest.mark.parametrize(("way", "number"), [("run", signal.SIGTERM), ("with", signal.SIGINT)])
def test_a_library_pipeline_is_cancelled_with_its_launcher(way, number, cluster, tmp_path):
    known = frozenset(cluster.rest.jobs())

    def main_job() -> str | None:
        new = [job for job in cluster.rest.jobs() if job not in known]
        vertices = {job: len(cluster.rest.job(job)["vertices"]) for job in new}
        return next((job for job, count in vertices.items() if count > 10), None)

    with library_pipeline(way, tmp_path / "out", *library_options(cluster)) as launcher:
        identity = until(main_job, timeout=3 * MINUTES, what="start of the pipeline")
        launcher.send_signal(number)
        _, err = launcher.communicate(timeout=1 * MINUTES)
    assert launcher.returncode == -number, err
    until(
        lambda: cluster.rest.job(identity)["state"] == "CANCELED",
        timeout=3 * MINUTES,  # on a machine that does much else
        what=f"cancellation of {identity}",
    )
    assert not (tmp_path / "out").exists()


def test_a_block_that_raises_an_error_sends_no_job(cluster):
    def build() -> None:
        with engines.pipeline(PipelineOptions(library_options(cluster))) as pipeline:
            _ = pipeline | beam.Create([1])
            raise KeyError("wrong")

    known = cluster.rest.jobs()
    with pytest.raises(KeyError, match="wrong"):
        build()
    assert cluster.rest.jobs() == known


def kill_while_computing(
    cluster: Cluster, identity: str, length: int
) -> tuple[Mapping[str, Any], str]:
    """Kills a TaskManager that computes a length; returns the job just before, and its name."""

    what = f"computation of length {length}"

    def find() -> tuple[Mapping[str, Any], str] | None:
        job = cluster.rest.job(identity)
        assert job["state"] not in FINAL, f"the job was {job['state']} before it was seen at {what}"
        for vertex in of_length(job, length):
            if vertex["status"] == "RUNNING":
                path = f"/jobs/{identity}/vertices/{vertex['id']}"
                for task in cluster.rest.get(path)["subtasks"]:
                    if task["status"] == "RUNNING":
                        return job, task["taskmanager-id"]
        return None

    job, name = until(find, timeout=4 * MINUTES, what=what, interval=0.05)
    cluster.daemons.kill(name)
    return job, name


def of_length(job: Mapping[str, Any], length: int) -> list[Mapping[str, Any]]:
    """Returns the vertices that compute a length; their names hold our labels."""
    return [vertex for vertex in job["vertices"] if f"PrivateNgrams/{length}/" in vertex["name"]]


def evidence(before, killed, replacement, failures, job, watcher) -> str:
    """Says in words what was killed when, and what came of it."""
    after, seen = job["timestamps"], watcher.seen
    lines = [f"Job {job['jid']} was {before['state']}; its tasks just before the kill:"]
    for length in range(1, LENGTH + 2):
        statuses = sorted(vertex["status"] for vertex in of_length(before, length))
        lines.append(f"  length {length}: {', '.join(statuses)}")
    lines.append(f"{killed} was killed, {replacement} started. Failures that Flink recorded:")
    for failure in failures:
        kind = failure["exceptionName"].rpartition(".")[2]
        lines.append(f"  {failure['taskManagerId']}: {kind} in {failure['taskName'][:90]}")
    lines.append(
        f"RESTARTING {after['RESTARTING'] - before['now']} ms after that look, "
        f"{job['state']} after {after['FINISHED'] - before['now']} ms."
    )
    lines.append(
        f"Release directory looked at {seen.absent + seen.whole + len(seen.half)} times: "
        f"{seen.absent} without a ledger, {seen.whole} whole, {len(seen.half)} half."
    )
    return "\n".join(lines)


def test_a_run_that_rejects_too_much_publishes_nothing_and_leaves_a_failure_log(
    cluster, job_options, launch, tmp_path
):
    """The counts come from a worker; the whole of it from Flink."""
    (tmp_path / "notes.jsonl").write_text("{no json\n" * 20_000)
    work, log = tmp_path / "work", tmp_path / "failure.log"
    work.mkdir()
    given = ("--input", tmp_path / "notes.jsonl", "--output", work / "release", "--quiet")
    # A TaskManager that was just killed may have to be replaced first.
    given = (*given, "--failure_log", log, "--harness_timeout", 5 * MINUTES)
    options = [part for part in job_options if part not in ("--input", str(SAMPLE))]
    ended = launch(*options, *given, *cluster.job_options(parallelism=2), timeout=7 * MINUTES)
    assert ended.status == 1, ended.err
    assert "20,000 rejected of 20,000 records: 20,000 malformed JSON." in ended.err
    assert f"The whole failure is in {log}" in ended.err
    assert list(work.iterdir()) == []
    text = log.read_text()
    assert "== What the engine reports ==" in text
    assert "in require_few_rejected" in text


@pytest.fixture
def bare_python(tmp_path) -> str:
    """A Python without any packages."""
    folder = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return str(folder / "bin" / "python")


def test_wrong_python_on_the_workers_ends_the_job(
    cluster, bare_python, job_options, launch, tmp_path
):
    (port,) = free_ports(1)
    # Beam's own pool starts the first `python` of PATH, whichever it is.
    cluster.daemons.start(
        "workers-bare",
        [sys.executable, "-m", BEAMS_POOL, f"--service_port={port}"],
        ready=answers(port),
        environment={"PATH": os.pathsep.join([os.path.dirname(bare_python), os.environ["PATH"]])},
    )
    known = frozenset(cluster.rest.jobs())
    options = cluster.job_options(parallelism=2, workers_port=port)
    release = tmp_path / "release"
    ended = launch(
        *(*job_options, "--output", release, "--harness_timeout", HARNESS_TIMEOUT, *options),
        timeout=5 * MINUTES,
    )
    assert ended.status == 1, ended.err
    assert f"within {HARNESS_TIMEOUT} s (--harness_timeout)" in ended.err
    assert f"environment_config=localhost:{port}" in ended.err
    assert "No module named 'apache_beam'" in cluster.daemons.log("workers-bare").read_text()
    assert not release.exists()
    identity = new_job(cluster, known)["jid"]
    until(
        lambda: cluster.rest.job(identity)["state"] == "CANCELED",
        timeout=1 * MINUTES,
        what=f"cancellation of {identity}",
    )
    cluster.daemons.stop("workers-bare")


def test_a_pool_does_not_start_with_a_wrong_python(cluster, bare_python):
    (port,) = free_ports(1)
    with pytest.raises(DaemonError, match="No module named 'apache_beam'"):
        cluster.start_workers(name="workers-wrong", port=port, python=bare_python)
    assert "workers-wrong" not in cluster.daemons.names()


def test_status_lists_what_runs(cluster):
    ended = deploy("flink", "status", "--state", cluster.daemons.state)
    assert "jobmanager: runs as process" in ended.out, ended.err
    assert "1 of 1 slots free" in ended.out


def test_a_second_start_says_which_ports_are_taken(cluster, tmp_path):
    taken = [f"--{name}_port={getattr(cluster.ports, name)}" for name in ("rest", "workers")]
    ended = deploy("flink", "start", "--state", tmp_path / "other", *taken)
    assert ended.status == 1
    assert "ports must be free" in ended.err
    assert str(cluster.ports.rest) in ended.err


def test_a_missing_java_is_named(tmp_path):
    names = ("rest", "rpc", "job", "workers")
    ports = [f"--{name}_port={port}" for name, port in zip(names, free_ports(4), strict=True)]
    settings = {"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    ended = deploy("flink", "start", "--state", tmp_path, *ports, **settings)
    assert ended.status == 1
    assert "java must be" in ended.err
    assert "install openjdk-17" in ended.err


def test_a_python_without_the_package_is_refused(bare_python, tmp_path):
    ended = deploy("flink", "start", "--state", tmp_path, "--python", bare_python)
    assert ended.status == 1
    assert "python must have apache_beam and beam_dpne" in ended.err


def test_a_busy_harness_gets_no_more_than_waits_in_direct_memory(cluster, tmp_path):
    """One task sends more than a TaskManager's direct memory to a harness that takes it slowly."""
    config = yaml.safe_load((ROOT / "deploy" / "flink" / "config.yaml").read_text())
    memory_of = config["taskmanager"]["memory"]
    off_heap = memory_of["framework"]["off-heap"]["size"], memory_of["network"]["max"]
    direct = sum(int(size.removesuffix("m")) for size in off_heap) << 20
    elements = -(-direct // _LARGE_BYTES) + 8
    options = [*cluster.job_options(parallelism=1), *engines.FLINK_OPTIONS]
    known = frozenset(cluster.rest.jobs())
    with engines.pipeline(PipelineOptions(options)) as pipeline:
        large = pipeline | beam.Create(range(elements)) | beam.Map(_large)
        _ = large | beam.Reshuffle() | "Slow" >> beam.Map(_slowly) | WriteToText(f"{tmp_path}/out")
    jobs = cluster.rest.jobs().keys() - known
    assert not any(cluster.rest.exceptions(identity) for identity in jobs)
    lines = [line for path in tmp_path.iterdir() for line in path.read_text().split()]
    assert lines == [str(_LARGE_BYTES)] * elements


def _large(number: int) -> bytes:
    return bytes([number % 256]) * _LARGE_BYTES


def _slowly(element: bytes) -> int:
    time.sleep(0.2)
    return len(element)


def test_the_jar_of_flow_control_comes_before_beams():
    """By its name, as Flink's start scripts read lib; and as the first, as they are started here."""
    first, *others = jars.beam_jars()
    (name,) = zipfile.ZipFile(first).namelist()
    same = [jar for jar in others if name in zipfile.ZipFile(jar).namelist()]
    assert same
    assert all(first.name < jar.name for jar in same)


def test_merged_jars_keep_the_first_of_a_name_and_all_services(tmp_path):
    service = "META-INF/services/org.example.Service"
    contents = [
        {"A.class": "first", "META-INF/X.SF": "signature", service: "One"},
        {"A.class": "second", "B.class": "b", "module-info.class": "m", service: "Two"},
    ]
    parts = [tmp_path / f"{number}.jar" for number in range(2)]
    for jar, files in zip(parts, contents, strict=True):
        with zipfile.ZipFile(jar, "w") as target:
            for name, text in files.items():
                target.writestr(name, text)
    jars.merge(parts, tmp_path / "whole.jar")
    with zipfile.ZipFile(tmp_path / "whole.jar") as whole:
        names = {"META-INF/MANIFEST.MF", "A.class", "B.class", service}
        assert sorted(whole.namelist()) == sorted(names)
        assert whole.read("A.class") == b"first"
        assert whole.read(service).split() == [b"One", b"Two"]
