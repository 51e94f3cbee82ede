"""What the tests of engines share: a larger corpus, free ports, a watched release, a Flink cluster."""

import contextlib
import gzip
import hashlib
import json
import pathlib
import socket
import threading
from collections.abc import Iterator

import pytest

from deploy.flink.cluster import Cluster, Ports
from tests.engines.conftest import SAMPLE


def write_copies_of_sample(path: pathlib.Path, copies: int) -> None:
    """Writes the sample several times, each with users and documents of its own."""
    with gzip.open(SAMPLE, "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    with path.open("w", encoding="utf-8") as file:
        for copy in range(copies):
            for line in lines:
                file.write(json.dumps({**line, "user": f"{copy}/{line['user']}"}) + "\n")


def free_ports(number: int) -> list[int]:
    """Returns ports that nobody listens on now."""
    with contextlib.ExitStack() as opened:
        sockets = [
            opened.enter_context(socket.create_server(("localhost", 0))) for _ in range(number)
        ]
        return [one.getsockname()[1] for one in sockets]


class ReleaseWatcher(threading.Thread):
    """Looks at a release directory all the time, as a reader who is in a hurry would.

    A reader takes a directory with a ledger for a release; then every part that the ledger lists must
    be there, whole.

    Attributes:
      absent: how often there was no release.
      half: what was wrong with a release.
    """

    def __init__(self, release: pathlib.Path):
        super().__init__(daemon=True)
        self.absent = 0
        self.half: list[str] = []
        self._release = release
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.005):
            self._look()

    def _look(self) -> None:
        try:
            ledger = json.loads((self._release / "ledger.json").read_bytes())
        except FileNotFoundError:
            self.absent += 1
            return
        for part in ledger["parts"]:
            content = (self._release / part["name"]).read_bytes()
            if hashlib.sha256(content).hexdigest() != part["sha256"]:
                self.half.append(part["name"])

    def __enter__(self) -> "ReleaseWatcher":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()
        self._look()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    """JobManager, two TaskManagers, job server and worker pool."""
    rest, rpc, workers, _, _, job = sorted(free_ports(6))
    ports = Ports(rest=rest, rpc=rpc, job=job, workers=workers)
    # Flink would show a job as it was up to 3 s ago, and a step of a small job takes less than that.
    cluster = Cluster(tmp_path_factory.mktemp("flink"), ports=ports, refresh_interval=100)
    cluster.start()
    yield cluster
    cluster.daemons.stop_all()
