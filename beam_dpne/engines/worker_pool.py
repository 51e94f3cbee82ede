"""`python -m beam_dpne.engines.worker_pool --service_port=50000`: Python harnesses for TaskManagers.

An engine asks the pool for a harness for each job and TaskManager. Beam's own pool starts a Python for
each, which imports Beam and this package: some 4 s of CPU time each time. This pool imports them once,
and each harness is a fork of the process that has imported them. Forks share its memory.

A lock that another thread holds during a fork stays locked in the fork for ever. So the process that
forks starts no thread, and the server, whose gRPC has threads, is another process. Two libraries have
threads of their own and provide for forks (by pthread_atfork): jemalloc in Arrow takes all its locks
before a fork and releases them after it, and OpenBLAS in numpy ends its threads before a fork.

Whoever reaches the port can run code here, as with Beam's pool.
"""

import argparse
import contextlib
import gc
import importlib
import json
import logging
import os
import pathlib
import select
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn, TextIO

import beam_dpne
from beam_dpne import engines

_LOGGER = logging.getLogger(__name__)
# As Beam's pool gives them to a harness.
_HARNESS_SETTINGS: dict[str, Any] = {"state_cache_size": 0, "data_buffer_time_limit_ms": -1}
_STOPPING_SECONDS = 10.0
_REQUESTS_AT_ONCE = 32
_LOOK_SECONDS = 1.0
_ENDING = (signal.SIGTERM, signal.SIGINT)


def main(arguments: list[str] | None = None) -> None:
    """Serves until the process is ended; harnesses end with it, or with their TaskManager."""
    parser = argparse.ArgumentParser(
        prog="python -m beam_dpne.engines.worker_pool",
        description="Starts Python harnesses for an engine with --environment_type=EXTERNAL.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--service_port", type=int, required=True, help="Port of the pool, on all addresses."
    )
    given = parser.parse_args(arguments)
    if not 0 < given.service_port < 2**16:
        parser.error(f"--service_port must be from 1 to 65535, got {given.service_port}")
    logging.basicConfig(level=logging.INFO)
    # Python warns of each other thread in a process that forks; see above why these do no harm.
    warnings.filterwarnings("ignore", r".*use of fork\(\) may lead to deadlocks")
    import_all()
    # No fork collects garbage among these objects, which would write to the pages that forks share.
    gc.freeze()
    forker = os.getpid()
    ours, theirs = socket.socketpair()
    server = os.fork()
    if server == 0:
        theirs.close()
        serve(given.service_port, _Forks(ours), forker)
        return
    ours.close()
    _run_harness(forker, **_fork_harnesses(theirs, server))


def import_all() -> None:
    """Imports what harnesses need; modules must not start threads, which forks would not have."""
    importlib.import_module("apache_beam.runners.worker.sdk_worker")
    for name in dir(beam_dpne):
        getattr(beam_dpne, name)


def _fork_harnesses(requests: socket.socket, server: int) -> dict[str, str]:
    """Forks a harness for each request; returns its endpoint in the fork, and nowhere else.

    This process ends all harnesses and itself when it is asked to terminate, with status 0, or when the
    server has ended, with status 1.
    """
    children = {server}

    def end(status: int) -> NoReturn:
        for child in children:
            _signal(child, signal.SIGTERM)
        os._exit(status)

    for number in _ENDING:
        signal.signal(number, lambda *_: end(0))
    with requests, requests.makefile("rw", encoding="utf-8") as lines:
        while True:
            # Children that have ended are collected also while nobody asks for anything.
            asked, _, _ = select.select([requests], [], [], _LOOK_SECONDS)
            children -= set(_ended())
            if not asked:
                continue
            line = lines.readline()
            if not line:
                end(1)
            request = json.loads(line)
            if "stop" in request:
                # The number of a child that has ended may be another process's by now.
                if request["stop"] in children:
                    _signal(request["stop"], request["signal"])
                _answer(lines, request["stop"] in children)
                continue
            try:
                child = _fork()
            except OSError as error:  # The machine has no memory or no process left for it.
                _answer(lines, str(error))
                continue
            if child == 0:
                return request
            children.add(child)
            _answer(lines, child)


def _fork() -> int:
    """Returns the child's number, and in the child 0; there signals that end a process just end it.

    A signal that reaches the child before that waits. Else the child would handle it as the pool does,
    which ends all harnesses.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        child = os.fork()
        if child == 0:
            for number in _ENDING:
                signal.signal(number, signal.SIG_DFL)
        return child
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)


def _answer(lines: TextIO, value: int | str) -> None:
    lines.write(f"{json.dumps(value)}\n")
    lines.flush()


def _ended() -> Iterator[int]:
    """Yields the children that have ended, whose numbers the system may use again from now on."""
    try:
        while child := os.waitpid(-1, os.WNOHANG)[0]:
            yield child
    except ChildProcessError:
        return


def _signal(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


def _run_harness(forker: int, url: str, worker_id: str) -> None:
    from apache_beam.runners.worker.sdk_worker import SdkHarness

    engines.drop_idle_processors()
    threading.Thread(target=_end_with, args=(forker,), daemon=True).start()
    # A fork has the command line of the pool; on Linux its name says whose harness it is.
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/comm").write_text(f"harness:{url.rpartition(':')[2]}")
    SdkHarness(url, worker_id=worker_id, **_HARNESS_SETTINGS).run()


def _end_with(parent: int) -> None:
    """Ends this process when the one that forked it has ended, also if that was killed."""
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)


class _Forks:
    """The harnesses, for the threads of the server."""

    def __init__(self, requests: socket.socket):
        self._lines = requests.makefile("rw", encoding="utf-8")
        self._lock = threading.RLock()
        self._worker_ids: dict[int, str] = {}

    def start(self, worker_id: str, url: str) -> None:
        """Starts a harness.

        Raises:
          EOFError: if the process that forks is gone.
          OSError: if it cannot fork.
        """
        with self._lock:
            answer = self._ask({"url": url, "worker_id": worker_id})
            if isinstance(answer, str):
                raise OSError(answer)
            self._worker_ids[answer] = worker_id

    def stop(self, worker_id: str) -> None:
        """Ends a harness: it is asked first, and killed after ten seconds.

        Each TaskManager numbers its harnesses from 1, so that two that share a pool give the same ids.
        Then nobody can know here which harness is meant, and none is ended: engines close a harness's
        connection before they ask for its end, and it ends by itself when they do.

        Raises:
          EOFError: if the process that forks is gone.
        """
        running = self._running(worker_id)
        if len(running) != 1:
            return
        (process,) = running
        until = time.monotonic() + _STOPPING_SECONDS
        self._ask({"stop": process, "signal": signal.SIGTERM})
        while process in self._running(worker_id):
            if time.monotonic() > until:
                self._ask({"stop": process, "signal": signal.SIGKILL})
                return
            time.sleep(0.1)

    def _running(self, worker_id: str) -> list[int]:
        """Returns the processes with an id, and forgets all that have ended."""
        with self._lock:
            for process in list(self._worker_ids):
                if not self._ask({"stop": process, "signal": 0}):
                    del self._worker_ids[process]
            return [process for process, other in self._worker_ids.items() if other == worker_id]

    def _ask(self, request: dict[str, Any]) -> int | str:
        answer = ""
        with self._lock, contextlib.suppress(ConnectionError):
            self._lines.write(f"{json.dumps(request)}\n")
            self._lines.flush()
            answer = self._lines.readline()
        if not answer:
            raise EOFError("The process that starts harnesses has ended.")
        return json.loads(answer)


def serve(port: int, forks: _Forks, forker: int) -> None:
    """Answers engines until the parent process, which forks, has ended.

    This must run in another process than the one that forks: gRPC starts threads, and a process with
    threads cannot be forked safely.
    """
    import grpc
    from apache_beam.portability.api import beam_fn_api_pb2 as messages
    from apache_beam.portability.api import beam_fn_api_pb2_grpc as services

    class Pool(services.BeamFnExternalWorkerPoolServicer):
        """Beam's service, as far as engines call it."""

        def StartWorker(self, request: Any, _: Any) -> Any:
            """Starts a harness."""
            _LOGGER.info("Starting harness %s", request.worker_id)
            try:
                forks.start(request.worker_id, request.control_endpoint.url)
            except (OSError, EOFError) as error:
                return messages.StartWorkerResponse(error=str(error))
            return messages.StartWorkerResponse()

        def StopWorker(self, request: Any, _: Any) -> Any:
            """Ends a harness."""
            _LOGGER.info("Stopping harness %s", request.worker_id)
            try:
                forks.stop(request.worker_id)
            except EOFError as error:
                return messages.StopWorkerResponse(error=str(error))
            return messages.StopWorkerResponse()

    server = grpc.server(
        ThreadPoolExecutor(max_workers=_REQUESTS_AT_ONCE),
        options=[
            *(("grpc.http2.max_pings_without_data", 0), ("grpc.http2.max_ping_strikes", 0)),
            ("grpc.so_reuseport", 0),  # Two pools at one port would get every second request each.
        ],
    )
    services.add_BeamFnExternalWorkerPoolServicer_to_server(Pool(), server)
    try:
        server.add_insecure_port(f"[::]:{port}")
    except RuntimeError:
        sys.exit(f"worker_pool: --service_port must be a free port, got {port}, which is in use.")
    server.start()
    _LOGGER.info("Listening at port %d", port)
    while os.getppid() == forker:
        time.sleep(_LOOK_SECONDS)
    server.stop(grace=None)


if __name__ == "__main__":
    main(sys.argv[1:])
