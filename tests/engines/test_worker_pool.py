"""The pool forks harnesses that run pipelines, ends them when asked, and ends with all of them."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

import apache_beam as beam
import grpc
import psutil
import pytest
from apache_beam.options.pipeline_options import PortableOptions
from apache_beam.portability.api import beam_fn_api_pb2 as messages
from apache_beam.portability.api import beam_fn_api_pb2_grpc as services
from apache_beam.portability.api import endpoints_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.environments import ExternalEnvironment

from deploy import worker_pool
from deploy.processes import WORKER_POOL, until
from tests.engines.flink import free_ports

SECONDS = 120
MODULE = (sys.executable, WORKER_POOL)


class Pool(NamedTuple):
    """The process of a pool, and the port of its server."""

    process: psutil.Popen
    port: int

    def children(self) -> set[psutil.Process]:
        """The fork server, and the harnesses that it has forked."""
        return set(self.process.children(recursive=True))

    def harnesses(self) -> set[psutil.Process]:
        return {child for child in self.children() if child.ppid() != self.process.pid}

    @contextlib.contextmanager
    def service(self) -> Iterator[services.BeamFnExternalWorkerPoolStub]:
        # A channel waits longer after each failed attempt to connect; a pool that starts needs some.
        # Channels of one process to one address would share a connection.
        soon = ("grpc.max_reconnect_backoff_ms", 200), ("grpc.use_local_subchannel_pool", 1)
        with grpc.insecure_channel(f"localhost:{self.port}", soon) as channel:
            grpc.channel_ready_future(channel).result(timeout=SECONDS)
            yield services.BeamFnExternalWorkerPoolStub(channel)

    @contextlib.contextmanager
    def task_manager(self) -> Iterator["TaskManager"]:
        with self.service() as service:
            yield TaskManager(self, service)


class TaskManager(NamedTuple):
    """An engine's process that asks a pool for harnesses, on a connection of its own."""

    pool: Pool
    service: services.BeamFnExternalWorkerPoolStub

    def harness(self, worker: str) -> psutil.Process:
        """Asks for a harness, which this engine never answers; returns its process."""
        before = self.pool.harnesses()
        (nobody,) = free_ports(1)
        endpoint = endpoints_pb2.ApiServiceDescriptor(url=f"localhost:{nobody}")
        request = messages.StartWorkerRequest(worker_id=worker, control_endpoint=endpoint)
        assert not self.service.StartWorker(request, timeout=SECONDS).error
        (harness,) = until(
            lambda: self.pool.harnesses() - before or None, timeout=SECONDS, what="a fork"
        )
        return harness

    def stop(self, worker: str) -> None:
        self.service.StopWorker(messages.StopWorkerRequest(worker_id=worker), timeout=SECONDS)


@contextlib.contextmanager
def running_pool() -> Iterator[Pool]:
    (port,) = free_ports(1)
    command = [*MODULE, f"--service_port={port}"]
    with psutil.Popen(command, stderr=subprocess.DEVNULL) as process:
        pool = Pool(process, port)
        try:
            with pool.service():
                yield pool
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """A pool that tests leave running."""
    with running_pool() as pool:
        yield pool


@pytest.fixture
def mortal_pool() -> Iterator[Pool]:
    """A pool that a test may end."""
    with running_pool() as pool:
        yield pool


class WhoAmI(beam.DoFn):
    """Says in which process it runs, and whether this package was imported before."""

    def process(self, element):
        """Yields the process, its parent, and whether the pool has imported all."""
        yield os.getpid(), os.getppid(), "beam_dpne.ngrams.steps" in sys.modules


def test_a_pipeline_runs_in_a_fork_that_has_everything_imported(pool, tmp_path):
    options = PortableOptions([f"--environment_config=localhost:{pool.port}"])
    runner = FnApiRunner(default_environment=ExternalEnvironment.from_options(options))
    with beam.Pipeline(runner=runner) as pipeline:
        who = pipeline | beam.Create(["?"]) | beam.ParDo(WhoAmI())
        _ = who | beam.io.WriteToText(str(tmp_path / "said"), shard_name_template="")
    own, parent, imported = eval((tmp_path / "said").read_text())
    assert own != parent
    assert psutil.Process(parent).ppid() == pool.process.pid
    assert imported


def test_a_harness_ends_when_its_engine_says_so_and_the_others_with_the_pool(mortal_pool):
    pool = mortal_pool
    with pool.task_manager() as engine:
        first, second = engine.harness("1"), engine.harness("2")
        engine.stop("1")
        engine.stop("1")  # A second request changes nothing.
        first.wait(SECONDS)
    assert second.is_running()
    everyone = pool.children()
    pool.process.send_signal(signal.SIGTERM)
    pool.process.wait(SECONDS)
    assert psutil.wait_procs(everyone, SECONDS)[1] == []


def test_a_pool_that_is_killed_leaves_nobody_at_its_port(mortal_pool):
    pool = mortal_pool
    with pool.task_manager() as engine:
        engine.harness("1")
    everyone = pool.children()
    pool.process.kill()
    assert psutil.wait_procs(everyone, SECONDS)[1] == []


def test_task_managers_that_give_the_same_ids_end_no_harness_of_each_other(pool):
    """An engine closes its connection to a harness, which then ends, before it asks the pool."""
    with pool.task_manager() as one, pool.task_manager() as other:
        first, second = one.harness("1-1"), other.harness("1-1")
        first.kill()
        until(lambda: first not in pool.harnesses(), timeout=SECONDS, what="the end of a harness")
        one.stop("1-1")
        one.stop("1-1")
        assert second.is_running()
        other.stop("1-1")
        second.wait(SECONDS)


def test_a_port_that_is_taken_is_refused(pool):
    with pytest.raises(SystemExit, match="must be a free port"):
        worker_pool.serve(pool.port, multiprocessing.get_context("forkserver"))
