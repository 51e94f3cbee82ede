"""The pool forks harnesses that run pipelines, ends them when asked, and ends with all of them."""

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import apache_beam as beam
import grpc
import pytest
from apache_beam.options.pipeline_options import PortableOptions
from apache_beam.portability.api import beam_fn_api_pb2 as messages
from apache_beam.portability.api import beam_fn_api_pb2_grpc as services
from apache_beam.portability.api import endpoints_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.environments import ExternalEnvironment

from tests.engines.flink import free_ports

SECONDS = 30


@pytest.fixture
def pool() -> Iterator[tuple[subprocess.Popen, int]]:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "beam_dpne.engines.worker_pool", f"--service_port={port}"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            with grpc.insecure_channel(f"localhost:{port}") as channel:
                grpc.channel_ready_future(channel).result(timeout=SECONDS)
            yield process, port
        finally:
            process.terminate()  # It ends its harnesses, too.


def children(process: subprocess.Popen) -> dict[int, str]:
    """The names of the processes that a process has started, by their ids."""
    listed = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return {int(pid): pathlib.Path(f"/proc/{pid}/comm").read_text().strip() for pid in listed}


def harnesses(process: subprocess.Popen) -> list[int]:
    return [pid for pid, name in children(process).items() if name.startswith("harness:")]


def eventually(holds) -> bool:
    until = time.monotonic() + SECONDS
    while not holds() and time.monotonic() < until:
        time.sleep(0.05)
    return holds()


def is_alive(pid: int) -> bool:
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


class WhoAmI(beam.DoFn):
    """Says in which process it runs, and whether this package was imported before."""

    def process(self, element, *args, **kwargs):
        """Returns the id of the process, of its parent, and whether the pool has imported all."""
        yield os.getpid(), os.getppid(), "beam_dpne.ngrams.transform" in sys.modules


def test_a_pipeline_runs_in_forks_that_have_everything_imported(pool, tmp_path):
    process, port = pool
    said = tmp_path / "said"
    for run in range(2):
        options = PortableOptions([f"--environment_config=localhost:{port}"])
        runner = FnApiRunner(default_environment=ExternalEnvironment.from_options(options))
        with beam.Pipeline(runner=runner) as pipeline:
            who = pipeline | beam.Create(["?"]) | beam.ParDo(WhoAmI())
            _ = who | beam.io.WriteToText(str(said / str(run)), shard_name_template="")
    first, second = (eval((said / str(run)).read_text()) for run in range(2))
    assert first[0] != second[0]
    assert first[1:] == second[1:] == (process.pid, True)


def started(port: int, worker: str) -> services.BeamFnExternalWorkerPoolStub:
    """Asks for a harness of an engine that never answers."""
    stub = services.BeamFnExternalWorkerPoolStub(grpc.insecure_channel(f"localhost:{port}"))
    (nobody,) = free_ports(1)
    answer = stub.StartWorker(
        messages.StartWorkerRequest(
            worker_id=worker,
            control_endpoint=endpoints_pb2.ApiServiceDescriptor(url=f"localhost:{nobody}"),
        )
    )
    assert not answer.error
    return stub


def test_a_harness_ends_when_the_engine_says_so(pool):
    process, port = pool
    stub = started(port, "1")
    started(port, "2")
    assert eventually(lambda: len(harnesses(process)) == 2)
    first, second = sorted(harnesses(process))
    stub.StopWorker(messages.StopWorkerRequest(worker_id="1"))
    assert not is_alive(first)
    assert is_alive(second)
    stub.StopWorker(messages.StopWorkerRequest(worker_id="1"))  # A second request changes nothing.


def test_a_pool_that_is_killed_does_not_keep_its_port(pool):
    process, _ = pool
    everyone = list(children(process))
    assert everyone
    process.kill()
    process.wait()
    assert eventually(lambda: not any(map(is_alive, everyone)))


def test_harnesses_end_with_their_pool(pool):
    process, port = pool
    started(port, "1")
    assert eventually(lambda: harnesses(process))
    everyone = list(children(process))
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=SECONDS)
    assert eventually(lambda: not any(map(is_alive, everyone)))
