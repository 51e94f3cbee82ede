"""A Flink cluster, one for all tests that need it."""

import shlex

import psutil
import pytest

from deploy.flink.cluster import Cluster
from tests.engines.conftest import deploy
from tests.engines.flink import free_ports


def listening(port: int) -> list:
    """The sockets of this machine that listen at a port."""
    sockets = psutil.net_connections(kind="tcp")
    found = [one for one in sockets if one.status == psutil.CONN_LISTEN and one.laddr.port == port]
    assert found
    return found


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """JobManager, two TaskManagers, job server and worker pool, started as a person would."""
    state = tmp_path_factory.mktemp("flink") / "state"
    rest, rpc, job, workers = free_ports(4)
    ports = {"rest_port": rest, "rpc_port": rpc, "job_port": job, "workers_port": workers}
    settings = [part for name, port in ports.items() for part in (f"--{name}", port)]
    # Flink would show a job as it was up to 3 s ago, and a step of a small job takes less than that.
    settings = [*settings, "--refresh_interval", 100]
    started = deploy("flink", "start", "--state", state, *settings)
    assert started.status == 0, started.err
    cluster = Cluster.at(state)
    try:
        _check(cluster, started.out)
        yield cluster
    finally:
        stopped = deploy("flink", "stop", "--state", state)
    assert stopped.status == 0, stopped.err
    assert cluster.daemons.status() == {}
    assert not (state / "temporary").exists()


def _check(cluster: Cluster, said: str) -> None:
    assert shlex.split(said.splitlines()[-1]) == cluster.job_options(parallelism=2)
    assert cluster.rest.get("/config")["refresh-interval"] == 100
    # Other machines do not reach a port at which programs can be handed in.
    # Java writes addresses of version 4 as those of version 6.
    addresses = {one.laddr.ip.removeprefix("::ffff:") for one in listening(cluster.ports.rest)}
    assert addresses <= {"127.0.0.1", "::1"}
