"""`python -m beam_dpne.engines.worker_pool --service_port=50000`: Python harnesses for TaskManagers.

An engine asks the pool for a harness for each job and TaskManager. Beam's own pool starts a Python for
each, which imports Beam and this package: some 4 s of CPU time each time. This pool imports them once,
in a process without threads, and each harness is a fork of that process. Forks share its memory.

Whoever reaches the port can run code here, as with Beam's pool.
"""

import argparse
import contextlib
import importlib
import json
import logging
import os
import pathlib
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TextIO

import beam_dpne

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
    logging.basicConfig(level=logging.INFO)
    import_all()
    ours, theirs = socket.socketpair()
    server = os.fork()
    if server == 0:
        theirs.close()
        serve(given.service_port, _Forks(ours))
        return
    ours.close()
    endpoint = _fork_harnesses(theirs, server)
    if endpoint is not None:  # This is a harness.
        _run_harness(**endpoint)


def import_all() -> None:
    """Imports what harnesses need; modules must not start threads, which forks would not have."""
    importlib.import_module("apache_beam.runners.worker.sdk_worker")
    for name in dir(beam_dpne):
        getattr(beam_dpne, name)


def _fork_harnesses(requests: socket.socket, server: int) -> dict[str, str] | None:
    """Forks a harness for each request; returns its endpoint in the fork, and None at the end.

    The end is when the server has ended, or this process is asked to terminate; then it ends all
    harnesses.
    """
    children = {server}

    def end(*_: Any) -> None:
        for child in children:
            _signal(child, signal.SIGTERM)
        os._exit(0)

    for number in _ENDING:
        signal.signal(number, end)
    with requests, requests.makefile("rw", encoding="utf-8") as lines:
        for line in lines:
            children -= set(_ended())
            request = json.loads(line)
            if "stop" in request:
                if request["stop"] in children:
                    _signal(request["stop"], request["signal"])
                _answer(lines, request["stop"] in children)
                continue
            try:
                child = os.fork()
            except OSError as error:  # The machine has no memory or no process left for it.
                _answer(lines, str(error))
                continue
            if child == 0:
                for number in _ENDING:
                    signal.signal(number, signal.SIG_DFL)
                return request
            children.add(child)
            _answer(lines, child)
    end()
    return None


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


def _run_harness(url: str, worker_id: str) -> None:
    from apache_beam.runners.worker.sdk_worker import SdkHarness

    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
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
        self._lock = threading.Lock()
        self._processes: dict[str, int] = {}

    def start(self, worker_id: str, url: str) -> None:
        """Starts a harness.

        Raises:
          EOFError: if the process that forks is gone.
          OSError: if it cannot fork.
        """
        answer = self._ask({"url": url, "worker_id": worker_id})
        if isinstance(answer, str):
            raise OSError(answer)
        self._processes[worker_id] = answer

    def stop(self, worker_id: str) -> None:
        """Ends a harness: asked first, killed after ten seconds."""
        process = self._processes.pop(worker_id, None)
        until = time.monotonic() + _STOPPING_SECONDS
        if process is None or not self._ask({"stop": process, "signal": signal.SIGTERM}):
            return
        while self._ask({"stop": process, "signal": 0}):
            if time.monotonic() > until:
                self._ask({"stop": process, "signal": signal.SIGKILL})
                return
            time.sleep(0.1)

    def _ask(self, request: dict[str, Any]) -> int | str:
        with self._lock:
            self._lines.write(f"{json.dumps(request)}\n")
            self._lines.flush()
            answer = self._lines.readline()
        if not answer:
            raise EOFError("The process that starts harnesses has ended.")
        return json.loads(answer)


def serve(port: int, forks: _Forks) -> None:
    """Answers engines until the parent process, which forks, has ended.

    This must run in another process than the one that forks: gRPC starts threads, and a process with
    threads cannot be forked safely.
    """
    forker = os.getppid()
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
            forks.stop(request.worker_id)
            return messages.StopWorkerResponse()

    server = grpc.server(
        ThreadPoolExecutor(max_workers=_REQUESTS_AT_ONCE),
        options=[("grpc.http2.max_pings_without_data", 0), ("grpc.http2.max_ping_strikes", 0)],
    )
    services.add_BeamFnExternalWorkerPoolServicer_to_server(Pool(), server)
    server.add_insecure_port(f"[::]:{port}")
    server.start()
    _LOGGER.info("Listening at port %d", port)
    while os.getppid() == forker:
        time.sleep(_LOOK_SECONDS)
    server.stop(grace=None)


if __name__ == "__main__":
    main(sys.argv[1:])
