"""The pool forks harnesses that run pipelines, ends them when asked, and ends with all of them."""

import contextlib
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

from deploy.processes import WORKER_POOL, until
from tests.engines.flink import free_ports

SECONDS = 30
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

    def harness_of(self, worker: str) -> psutil.Process:
        """Asks for a harness of an engine that never answers; returns its process."""
        before = self.harnesses()
        (nobody,) = free_ports(1)
        endpoint = endpoints_pb2.ApiServiceDescriptor(url=f"localhost:{nobody}")
        request = messages.StartWorkerRequest(worker_id=worker, control_endpoint=endpoint)
        with self.service() as service:
            assert not service.StartWorker(request, timeout=SECONDS).error
        (harness,) = until(
            lambda: self.harnesses() - before or None, timeout=SECONDS, what="a fork"
        )
        return harness

    def stop(self, worker: str) -> None:
        with self.service() as service:
            service.StopWorker(messages.StopWorkerRequest(worker_id=worker), timeout=SECONDS)

    @contextlib.contextmanager
    def service(self) -> Iterator[services.BeamFnExternalWorkerPoolStub]:
        # A channel waits longer after each failed attempt to connect; a pool that starts needs some.
        soon = [("grpc.max_reconnect_backoff_ms", 200)]
        with grpc.insecure_channel(f"localhost:{self.port}", soon) as channel:
            grpc.channel_ready_future(channel).result(timeout=SECONDS)
            yield services.BeamFnExternalWorkerPoolStub(channel)


@contextlib.contextmanager
def running_pool() -> Iterator[Pool]:
    (port,) = free_ports(1)
    command = [*MODULE, f"--service_port={port}"]
    with psutil.Popen(command, stderr=subprocess.DEVNULL) as process:
        pool = Pool(process, port)
        with pool.service():
            yield pool
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
    first, second = pool.harness_of("1"), pool.harness_of("2")
    pool.stop("1")
    pool.stop("1")  # A second request changes nothing.
    first.wait(SECONDS)
    assert second.is_running()
    everyone = pool.children()
    pool.process.send_signal(signal.SIGTERM)
    pool.process.wait(SECONDS)
    assert psutil.wait_procs(everyone, SECONDS)[1] == []


def test_a_pool_that_is_killed_leaves_nobody_at_its_port(mortal_pool):
    pool = mortal_pool
    pool.harness_of("1")
    everyone = pool.children()
    pool.process.kill()
    assert psutil.wait_procs(everyone, SECONDS)[1] == []


def test_harnesses_that_share_an_id_are_left_to_their_engines(pool):
    """Two TaskManagers that share a pool give the same ids; each must not end the other's harness."""
    first, second = pool.harness_of("1-1"), pool.harness_of("1-1")
    pool.stop("1-1")
    assert first.is_running()
    assert second.is_running()


def test_a_port_that_is_taken_is_refused(pool):
    command = [*MODULE, f"--service_port={pool.port}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "must be a free port" in ended.stderr
