"""What the Flink tests use: a larger corpus, a watched release, the graph of a job."""

import base64
import bz2
import contextlib
import dataclasses
import gzip
import hashlib
import json
import pathlib
import re
import socket
import threading
import time
import zlib
from collections.abc import Iterator

import grpc
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from tests.engines.conftest import SAMPLE

_BASE64 = re.compile(rb"[A-Za-z0-9+/]{40,}={0,2}")


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
    sockets = [socket.create_server(("localhost", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@dataclasses.dataclass
class Seen:
    """How often a release directory was seen in each state, and what was wrong with it."""

    absent: int = 0
    whole: int = 0
    half: list[str] = dataclasses.field(default_factory=list)


class ReleaseWatcher(threading.Thread):
    """Looks at a release directory all the time, as a reader who is in a hurry would.

    A reader takes a directory with a ledger for a release; then every part that the ledger lists must
    be there, whole.
    """

    def __init__(self, release: pathlib.Path):
        super().__init__(daemon=True)
        self.seen = Seen()
        self._release = release
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.is_set():
            self.look()
            time.sleep(0.005)

    def look(self) -> None:
        """Looks once."""
        try:
            ledger = (self._release / "ledger.json").read_bytes()
        except FileNotFoundError:
            self.seen.absent += 1
            return
        wrong = list(what_is_wrong(self._release, ledger))
        self.seen.half += wrong
        self.seen.whole += not wrong

    def __enter__(self) -> "ReleaseWatcher":
        self.look()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()
        self.look()


def what_is_wrong(release: pathlib.Path, ledger: bytes) -> Iterator[str]:
    """Yields what a ledger promises and the directory does not hold."""
    try:
        parts = json.loads(ledger)["parts"]
    except (ValueError, KeyError):
        yield "the ledger is not whole"
        return
    for part in parts:
        try:
            content = (release / part["name"]).read_bytes()
        except FileNotFoundError:
            yield f"{part['name']} is missing"
            continue
        if hashlib.sha256(content).hexdigest() != part["sha256"]:
            yield f"{part['name']} is not whole"


def received_graphs(job_endpoint: str) -> dict[str, bytes]:
    """Returns the serialized pipeline of every job that a job server has received, by job id."""
    with grpc.insecure_channel(job_endpoint) as channel:
        service = beam_job_api_pb2_grpc.JobServiceStub(channel)
        jobs = service.GetJobs(beam_job_api_pb2.GetJobsRequest(), timeout=30).job_info
        graphs = {}
        for job in jobs:
            request = beam_job_api_pb2.GetJobPipelineRequest(job_id=job.job_id)
            answer = service.GetPipeline(request, timeout=30)
            graphs[job.job_id] = answer.pipeline.SerializeToString() + job.SerializeToString()
        return graphs


def unpacked(data: bytes) -> bytes:
    """Returns bytes with all that lies packed in them: Beam's pickles are base64 of zlib or bz2."""
    found = [data]
    for match in _BASE64.finditer(data):
        packed = match.group()
        raw = base64.b64decode(packed[: len(packed) // 4 * 4])
        found += [raw, *(unpacked(inner) for inner in _decompressed(raw))]
    return b"\0".join(found)


def _decompressed(data: bytes) -> Iterator[bytes]:
    with contextlib.suppress(zlib.error):
        yield zlib.decompress(data)
    with contextlib.suppress(OSError, ValueError):
        yield bz2.decompress(data)
