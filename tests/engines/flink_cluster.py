"""A Flink cluster, one for all tests that need it."""

import shlex

import pytest

from deploy.flink.cluster import Cluster
from tests.engines.conftest import deploy
from tests.engines.flink import free_ports


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
    assert shlex.split(started.out.splitlines()[-1]) == cluster.job_options(parallelism=2)
    yield cluster
    stopped = deploy("flink", "stop", "--state", state)
    assert stopped.status == 0, stopped.err
    assert cluster.daemons.status() == {}
    assert not (state / "temporary").exists()
