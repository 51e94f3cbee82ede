"""A pool of harnesses, started as a person would."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

import grpc

from tests.engines.flink import free_ports

SECONDS = 60
# A channel waits longer after each failed attempt to connect; a pool that starts needs some.
SOON = [("grpc.max_reconnect_backoff_ms", 200)]
MODULE = ("-m", "beam_dpne.engines.worker_pool")


class Pool(NamedTuple):
    """The process of a pool that forks, and the port of its server."""

    process: subprocess.Popen
    port: int


@contextlib.contextmanager
def running_pool(*arguments: str) -> Iterator[Pool]:
    """A pool that Python runs with these arguments."""
    (port,) = free_ports(1)
    command = [sys.executable, *arguments, f"--service_port={port}"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            with grpc.insecure_channel(f"localhost:{port}", SOON) as channel:
                grpc.channel_ready_future(channel).result(timeout=SECONDS)
            yield Pool(process, port)
        finally:
            process.terminate()  # It ends its harnesses, too.
