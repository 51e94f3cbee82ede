"""`python deploy/worker_pool.py --service_port=50000`: Python harnesses for TaskManagers.

An engine asks the pool for a harness for each job and TaskManager. Beam's own pool starts a Python for
each, which imports Beam and this package: some 4 s of CPU time each time. Here Python's fork server
imports them once, and each harness is a fork of it that shares its memory. A lock that another thread
holds during a fork stays locked in the fork for ever, so the fork server starts no thread.

This file needs nothing but the package. Whoever reaches the port can run code here, as with Beam's
pool.
"""

import argparse
import contextlib
import gc
import logging
import multiprocessing
import os
import pathlib
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.process import BaseProcess
from typing import Any

import beam_dpne
from beam_dpne.elements import processor

_LOGGER = logging.getLogger(__name__)
# As Beam's pool gives them to a harness.
_HARNESS_SETTINGS: dict[str, Any] = {"state_cache_size": 0, "data_buffer_time_limit_ms": -1}
_STOPPING_SECONDS = 10.0


def main(arguments: list[str] | None = None) -> None:
    """Serves until the process is ended; harnesses end with it, or with their TaskManager."""
    parser = argparse.ArgumentParser(
        prog="python deploy/worker_pool.py",
        description="Starts Python harnesses for an engine with --environment_type=EXTERNAL.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--service_port", type=int, required=True, help="Port of the pool, on all addresses."
    )
    port = parser.parse_args(arguments).service_port
    logging.basicConfig(level=logging.INFO)
    processor.set_numpy()
    # The first process of a container ignores the signal otherwise.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    forks = multiprocessing.get_context("forkserver")
    # Modules that harnesses need must not start threads, which forks would not have.
    forks.set_forkserver_preload(
        ["apache_beam.runners.worker.sdk_worker", *sorted(set(vars(beam_dpne)["_HOME"].values()))]
    )
    serve(port, forks)


def serve(port: int, forks: Any) -> None:
    """Answers engines until this process is ended."""
    import grpc
    from apache_beam.portability.api import beam_fn_api_pb2 as messages
    from apache_beam.portability.api import beam_fn_api_pb2_grpc as services

    # By what names a harness: the connection on which its TaskManager asked for it, and the id that
    # the TaskManager gave. TaskManagers that share a pool give the same ids.
    harnesses: dict[tuple[str, str], BaseProcess] = {}
    lock = threading.Lock()

    class Pool(services.BeamFnExternalWorkerPoolServicer):
        """Beam's service, as far as engines call it."""

        def StartWorker(self, request: Any, context: Any) -> Any:
            """Starts a harness."""
            _LOGGER.info("Starting harness %s", request.worker_id)
            settings = (request.control_endpoint.url, request.worker_id)
            harness = forks.Process(target=run_harness, args=settings, daemon=True)
            try:
                with lock:
                    harness.start()
                    harnesses[context.peer(), request.worker_id] = harness
            except (OSError, EOFError) as error:
                return messages.StartWorkerResponse(error=str(error))
            return messages.StartWorkerResponse()

        def StopWorker(self, request: Any, context: Any) -> Any:
            """Ends a harness: it is asked first, and killed after ten seconds.

            Nothing is done on another connection than the one on which the harness was asked for. The
            harness ends by itself when its engine closes the connection to it, as engines do before
            they ask here.
            """
            _LOGGER.info("Stopping harness %s", request.worker_id)
            with lock:
                harness = harnesses.pop((context.peer(), request.worker_id), None)
            if harness is not None:
                harness.terminate()
                harness.join(_STOPPING_SECONDS)
                harness.kill()
            return messages.StopWorkerResponse()

    server = grpc.server(
        ThreadPoolExecutor(max_workers=32),
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
    server.wait_for_termination()


def run_harness(url: str, worker_id: str) -> None:
    """Runs a harness in a process that was forked for it, until its engine or the pool ends."""
    from apache_beam.runners.worker.sdk_worker import SdkHarness

    from beam_dpne import engines

    # No garbage is collected among the objects of the fork server, whose pages forks share.
    gc.freeze()
    engines.drop_idle_processors()
    threading.Thread(target=_end_with_pool, daemon=True).start()
    # A fork has the command line of the fork server; on Linux its name says whose harness it is.
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/comm").write_text(f"harness:{url.rpartition(':')[2]}")
    SdkHarness(url, worker_id=worker_id, **_HARNESS_SETTINGS).run()


def _end_with_pool() -> None:
    """Ends this process when the pool has ended, also if that was killed."""
    pool = multiprocessing.parent_process()
    if pool is not None:
        pool.join()
        os._exit(1)


if __name__ == "__main__":
    # Harnesses import modules from the folder where the pool was started, not those beside this file.
    sys.path[0] = ""
    main(sys.argv[1:])
