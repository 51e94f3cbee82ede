"""The same release on Spark: in one Java machine, and on a standalone cluster."""

import contextlib
import pathlib
import shlex
import time

import pytest

from deploy.processes import DaemonError, require_free_ports
from deploy.spark.cluster import JOB_SERVER, MASTER, WORKER, WORKERS, Ports, Spark
from tests.engines.conftest import deploy

pytestmark = [pytest.mark.engines, pytest.mark.spark]

LOCAL_PORTS = Ports(job=8199, artifact=8198, expansion=8197)
CLUSTER_PORTS = Ports(job=8299, artifact=8298, expansion=8297)


@pytest.fixture(scope="module")
def local_state(tmp_path_factory):
    """State folder of a job server that runs jobs itself, and what was said at its start."""
    state = tmp_path_factory.mktemp("spark") / "local"
    port = LOCAL_PORTS.job
    started = deploy("spark", "start", "--state", state, "--master", "local[2]", "--job_port", port)
    assert started.status == 0, started.err
    yield state, started.out
    assert deploy("spark", "stop", "--state", state).status == 0
    wait_until_free(LOCAL_PORTS.job, LOCAL_PORTS.artifact, LOCAL_PORTS.expansion)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    spark = Spark(tmp_path_factory.mktemp("spark") / "cluster", ports=CLUSTER_PORTS, master=None)
    spark.start()
    yield spark
    assert spark.stop() == [JOB_SERVER, WORKERS, WORKER, MASTER]
    assert not (spark.daemons.state / "temporary").exists()


@pytest.mark.parametrize("job", ["one_round", "screened_gaussian", "mad"])
def test_local_spark_releases_what_the_embedded_runner_does(local_state, check_same, job):
    _, said = local_state
    check_same(job, *shlex.split(said.splitlines()[-1]))


def test_one_step_of_one_worker_releases_what_the_graph_does(local_state, check_same):
    _, said = local_state
    check_same("adaptive", *shlex.split(said.splitlines()[-1]), "--workers", 2)


def test_standalone_cluster_releases_what_the_embedded_runner_does(cluster, check_same, tmp_path):
    options = [*cluster.job_options(), "--temp_location", tmp_path / "temporary"]
    check_same("adaptive", *options)
    (application,) = cluster.cluster_state()["completedapps"]
    assert (application["state"], application["cores"]) == ("FINISHED", 2)


def test_executors_use_the_jars_that_they_have(cluster):
    """After the job above: its folder on the worker holds logs and one jar, not 300 MB."""
    (folder,) = (cluster.daemons.state / "temporary" / "work").iterdir()
    jars = [path.name for path in folder.rglob("*.jar")]
    assert len(jars) == 1


def test_a_job_server_whose_heap_is_full_ends(local_state):
    """A launcher would wait for it for ever."""
    status = Spark(local_state[0]).daemons.status()
    command = pathlib.Path(f"/proc/{status[JOB_SERVER]}/cmdline").read_bytes().split(b"\0")
    assert b"-XX:+ExitOnOutOfMemoryError" in command


def test_daemons_are_listed_until_they_are_stopped(local_state):
    state, _ = local_state
    ended = deploy("spark", "status", "--state", state)
    assert ended.status == 0
    assert ended.out.startswith(f"{JOB_SERVER}: runs as process ")


def test_a_second_start_says_which_ports_are_taken(local_state, tmp_path):
    ended = deploy("spark", "start", "--state", tmp_path, "--job_port", LOCAL_PORTS.job)
    assert ended.status == 1
    assert "got somebody listening on 8199, 8198, 8197" in ended.err


def test_a_missing_java_is_named(tmp_path: pathlib.Path):
    ended = deploy(
        "spark", *("start", "--state", tmp_path), PATH=str(tmp_path), JAVA_HOME=str(tmp_path)
    )
    assert ended.status == 1
    assert "java must be" in ended.err
    assert "install openjdk-17" in ended.err


def wait_until_free(*ports: int, timeout: float = 10) -> None:
    """The system closes the sockets of a dead process a moment after it."""
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        with contextlib.suppress(DaemonError):
            return require_free_ports(*ports)
        time.sleep(0.1)
    return require_free_ports(*ports)
