"""The pool forks harnesses that run pipelines, ends them when asked, and ends with all of them."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import apache_beam as beam
import grpc
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PortableOptions
from apache_beam.portability.api import beam_fn_api_pb2 as messages
from apache_beam.portability.api import beam_fn_api_pb2_grpc as services
from apache_beam.portability.api import endpoints_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.environments import ExternalEnvironment

from beam_dpne.engines import worker_pool
from tests.engines.flink import free_ports
from tests.engines.pools import MODULE, Pool, running_pool

SECONDS = 30


@pytest.fixture(scope="module")
def lasting_pool() -> Iterator[Pool]:
    with running_pool(*MODULE) as pool:
        yield pool


@pytest.fixture
def pool(lasting_pool) -> Iterator[Pool]:
    """A pool without harnesses, which tests must leave running."""
    yield lasting_pool
    for harness in harnesses(lasting_pool.process):
        os.kill(harness, signal.SIGKILL)
    assert eventually(lambda: not any(map(is_alive, harnesses(lasting_pool.process))))


@pytest.fixture
def mortal_pool() -> Iterator[Pool]:
    """A pool that a test may end."""
    with running_pool(*MODULE) as pool:
        yield pool


def children(process: subprocess.Popen) -> dict[int, str]:
    """The names of the processes that a process has started, by their ids."""
    listed = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    named = {}
    for pid in map(int, listed):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # It may end meanwhile.
            named[pid] = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    return named


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
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


class WhoAmI(beam.DoFn):
    """Says in which process it runs, and whether this package was imported before."""

    def process(self, element, *args, **kwargs):
        """Returns the id of the process, of its parent, and whether the pool has imported all."""
        # Locks of Arrow's allocators are free, also those of one with a thread in the pool's process.
        for backend in pa.supported_memory_backends():
            memory = getattr(pa, f"{backend}_memory_pool")()
            assert pa.array(range(10**5), memory_pool=memory).nbytes
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


def start(port: int, worker: str, engine: int | None = None) -> str:
    """Asks for a harness, by default of an engine that never answers; returns the error's text."""
    (nobody,) = free_ports(1)
    endpoint = endpoints_pb2.ApiServiceDescriptor(url=f"localhost:{engine or nobody}")
    request = messages.StartWorkerRequest(worker_id=worker, control_endpoint=endpoint)
    with grpc.insecure_channel(f"localhost:{port}") as channel:
        service = services.BeamFnExternalWorkerPoolStub(channel)
        try:
            return service.StartWorker(request, timeout=SECONDS).error
        except grpc.RpcError as error:
            return error.code().name


def stop(port: int, worker: str) -> None:
    with grpc.insecure_channel(f"localhost:{port}") as channel:
        service = services.BeamFnExternalWorkerPoolStub(channel)
        service.StopWorker(messages.StopWorkerRequest(worker_id=worker), timeout=SECONDS)


def harness_of(pool: Pool, worker: str) -> int:
    """Starts a harness with this id; returns its process."""
    others = set(children(pool.process))
    assert not start(pool.port, worker)
    assert eventually(lambda: set(harnesses(pool.process)) - others)
    (harness,) = set(harnesses(pool.process)) - others
    return harness


def test_a_harness_ends_when_the_engine_says_so(pool):
    first, second = harness_of(pool, "1"), harness_of(pool, "2")
    stop(pool.port, "1")
    assert eventually(lambda: not is_alive(first))
    assert is_alive(second)
    stop(pool.port, "1")  # A second request changes nothing.
    assert is_alive(second)


def test_a_pool_that_is_killed_starts_nothing_and_does_not_keep_its_port(mortal_pool):
    process, port = mortal_pool
    harness_of(mortal_pool, "1")
    everyone = list(children(process))
    process.kill()
    process.wait()
    # The server may have ended by then.
    assert start(port, "2") in ("The process that starts harnesses has ended.", "UNAVAILABLE")
    assert eventually(lambda: not any(map(is_alive, everyone)))


def test_harnesses_end_with_their_pool(mortal_pool):
    process, port = mortal_pool
    assert not start(port, "1")
    assert eventually(lambda: harnesses(process))
    everyone = list(children(process))
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=SECONDS)
    assert eventually(lambda: not any(map(is_alive, everyone)))


def test_the_process_that_forks_has_no_thread_but_one_that_provides_for_forks(pool):
    """A lock that another thread holds during a fork would stay locked in the harness."""
    process, port = pool
    assert not start(port, "1")
    tasks = pathlib.Path(f"/proc/{process.pid}/task")
    others = [task for task in tasks.iterdir() if task.name != str(process.pid)]
    assert [(task / "comm").read_text().strip() for task in others] in ([], ["jemalloc_bg_thd"])


def test_harnesses_that_have_ended_are_collected_also_while_nobody_asks(pool):
    first, second = harness_of(pool, "1"), harness_of(pool, "2")
    os.kill(first, signal.SIGKILL)
    assert eventually(lambda: first not in children(pool.process))
    assert is_alive(second)


def test_the_end_of_an_ended_harness_is_not_waited_for(pool):
    first, _ = harness_of(pool, "1"), harness_of(pool, "2")
    os.kill(first, signal.SIGKILL)
    assert eventually(lambda: not is_alive(first))
    begun = time.monotonic()
    stop(pool.port, "1")
    assert time.monotonic() - begun < worker_pool._STOPPING_SECONDS


def test_a_harness_that_does_not_end_is_killed():
    """A process that is suspended does not answer SIGTERM."""
    impatient = (
        "from beam_dpne.engines import worker_pool; worker_pool._STOPPING_SECONDS = 0.3;"
        "worker_pool.main()"
    )
    with running_pool("-c", impatient) as (process, port):
        assert not start(port, "1")
        assert eventually(lambda: harnesses(process))
        (harness,) = harnesses(process)
        os.kill(harness, signal.SIGSTOP)
        stop(port, "1")
        assert eventually(lambda: not is_alive(harness))


def test_a_fork_that_is_ended_at_once_does_not_end_the_pool():
    """It must not take the signal for one to the pool, whose code it runs at first."""
    ended_at_once = (
        "import os, signal; from beam_dpne.engines import worker_pool;"
        "is_pool = lambda: signal.getsignal(signal.SIGTERM) != signal.SIG_DFL;"
        "end = lambda: is_pool() and os.kill(os.getpid(), signal.SIGTERM);"
        "os.register_at_fork(after_in_child=end);"
        "worker_pool.main()"
    )
    with running_pool("-c", ended_at_once) as (process, port):
        (server,) = children(process)
        for worker in ("1", "2"):
            assert not start(port, worker)
        assert eventually(lambda: list(children(process)) == [server])
        assert is_alive(server)
        assert process.poll() is None


def test_only_harnesses_of_the_pool_get_signals():
    """The number of a harness that has ended may be that of another process."""
    forker = (
        "import socket, subprocess, sys; from beam_dpne.engines import worker_pool;"
        "server = subprocess.Popen(['sleep', '60']);"
        "worker_pool._fork_harnesses(socket.socket(fileno=int(sys.argv[1])), server.pid)"
    )
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-c", forker, str(theirs.fileno())]
    with (
        subprocess.Popen(["sleep", "60"]) as other,
        subprocess.Popen(command, pass_fds=[theirs.fileno()]),
        ours,  # Whose end ends the process that forks.
        ours.makefile("rw", encoding="utf-8") as lines,
    ):
        theirs.close()
        lines.write(json.dumps({"stop": other.pid, "signal": signal.SIGTERM}) + "\n")
        lines.flush()
        answer = lines.readline()
        other.kill()
    assert json.loads(answer) is False
    assert other.returncode == -signal.SIGKILL  # No signal came before.


def test_harnesses_that_share_an_id_are_left_to_their_engines(pool):
    """Two TaskManagers that share a pool give the same ids; each must not end the other's harness."""
    first, second = harness_of(pool, "1-1"), harness_of(pool, "1-1")
    stop(pool.port, "1-1")
    assert is_alive(first)
    assert is_alive(second)
    os.kill(first, signal.SIGKILL)
    # A process is listed as dead before its last thread has ended, and is one of two until then.
    assert eventually(lambda: first not in children(pool.process))
    stop(pool.port, "1-1")
    assert eventually(lambda: not is_alive(second))


class EndingControl(services.BeamFnControlServicer):
    """An engine that closes the connection of each harness."""

    def Control(self, requests, context):
        """Sends no request, and ends."""
        return iter(())


def test_a_harness_ends_when_its_engine_closes_the_connection(pool):
    process, port = pool
    engine = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    services.add_BeamFnControlServicer_to_server(EndingControl(), engine)
    at = engine.add_insecure_port("localhost:0")
    engine.start()
    try:
        others = set(children(process))
        assert not start(port, "1", at)
        assert eventually(lambda: not any(map(is_alive, set(children(process)) - others)))
    finally:
        engine.stop(None)


def test_requests_to_a_process_that_is_gone_are_errors():
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, pytest.raises(EOFError, match="has ended"):
        worker_pool._Forks(ours).start("1", "nobody:1")


@pytest.mark.parametrize(
    ("port", "status", "said"),
    [
        ("0", 2, "must be from 1 to 65535, got 0"),
        ("65536", 2, "must be from 1 to 65535, got 65536"),
    ],
)
def test_a_port_out_of_range_is_refused(port, status, said):
    command = [sys.executable, *MODULE, f"--service_port={port}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert ended.returncode == status
    assert said in ended.stderr


def test_a_second_pool_at_a_port_is_refused_and_leaves_the_first_alone(pool):
    command = [sys.executable, *MODULE, f"--service_port={pool.port}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert ended.returncode == 1
    assert f"must be a free port, got {pool.port}, which is in use" in ended.stderr
    assert pool.process.poll() is None
