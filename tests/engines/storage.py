"""Stand-ins for Google Cloud Storage, started for real: two emulators and a gate before them.

`gcp-storage-emulator` does all that Beam's file system asks for and ignores preconditions of writes;
`fake-gcs-server` honours those and refuses Beam's batches. The gate is a small HTTP server in front
of either, which denies, delays or counts requests as the service itself may.
"""

import contextlib
import http.client
import http.server
import importlib.util
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from deploy import downloads

FAKE_GCS_SERVER = "1.52.2"
_START_SECONDS = 30
_HOP_HEADERS = ("connection", "transfer-encoding", "content-length")


class Request(NamedTuple):
    """What a client asks of the service."""

    method: str
    path: str
    body: bytes

    def writes(self, name: str) -> bool:
        """Whether an object whose name ends so is uploaded."""
        return self.path.startswith("/upload/") and f'{name}"'.encode() in self.body[:2000]


Rule = Callable[[Request], int | None]


class Gate(http.server.ThreadingHTTPServer):
    """Passes requests on to an emulator, after a rule that may answer with an error or wait.

    Attributes:
      rule: the HTTP status to answer with; None: the emulator's answer.
      requests: what was asked, in order.
      sent: bytes of answers.
    """

    daemon_threads = True

    def __init__(self, upstream: str):
        super().__init__(("127.0.0.1", 0), _Passing)
        self.upstream = upstream.removeprefix("http://")
        self.rule: Rule = lambda _: None
        self.requests: list[Request] = []
        self.sent = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, request: Request, headers: dict[str, str]) -> tuple[int, dict, bytes]:
        self.requests.append(request)
        status = self.rule(request) or self._broken_precondition(request)
        if status:
            error = {"error": {"code": status, "message": "no", "errors": [{"reason": "no"}]}}
            return status, {"Content-Type": "application/json"}, json.dumps(error).encode()
        return self._pass_on(request, headers)

    def _broken_precondition(self, request: Request) -> int | None:
        """Deletes name a generation; neither emulator looks at it."""
        path, _, query = request.path.partition("?")
        wanted = urllib.parse.parse_qs(query).get("ifGenerationMatch")
        if request.method != "DELETE" or not wanted:
            return None
        status, _, body = self._pass_on(Request("GET", path, b""), {})
        return 412 if status == 200 and json.loads(body)["generation"] != wanted[0] else None

    def _pass_on(self, request: Request, headers: dict[str, str]) -> tuple[int, dict, bytes]:
        connection = http.client.HTTPConnection(self.upstream, timeout=60)
        with contextlib.closing(connection):
            connection.request(request.method, request.path, request.body, headers)
            answer = connection.getresponse()
            answered, data = dict(answer.getheaders()), answer.read()
        # Answers hold addresses for what comes next, which must pass here as well.
        answered = {key: self._ours(value.encode()).decode() for key, value in answered.items()}
        is_json = answer.headers.get_content_type() == "application/json"
        data = self._ours(data) if is_json else data
        self.sent += len(data)
        return answer.status, answered, data

    def _ours(self, text: bytes) -> bytes:
        return text.replace(f"http://{self.upstream}".encode(), self.address.encode())


class _Passing(http.server.BaseHTTPRequestHandler):
    server: Gate

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {key: value for key, value in self.headers.items() if key.lower() != "host"}
        status, answered, data = self.server.answer(Request(self.command, self.path, body), headers)
        self.send_response(status)
        for key, value in answered.items():
            if key.lower() not in _HOP_HEADERS:
                self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _serve

    def log_message(self, *_: object) -> None:
        pass


class Bucket:
    """A new bucket on an emulator that this process and those it starts use.

    Attributes:
      name: of the bucket.
    """

    def __init__(self) -> None:
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import storage

        self._client = storage.Client(project="lab", credentials=AnonymousCredentials())
        self.name = f"lab-{uuid.uuid4().hex}"
        self._bucket = self._client.create_bucket(self.name)

    def path(self, name: str = "") -> str:
        return f"gs://{self.name}/{name}"

    def put(self, name: str, data: bytes | str) -> str:
        self._bucket.blob(name).upload_from_string(data)
        return self.path(name)

    def names(self, prefix: str = "") -> list[str]:
        return [blob.name for blob in self._client.list_blobs(self.name, prefix=prefix)]

    def files(self, prefix: str) -> dict[str, bytes]:
        """What is below a prefix, by the rest of its name."""
        return {
            name.removeprefix(prefix).lstrip("/"): self._bucket.blob(name).download_as_bytes()
            for name in self.names(prefix)
        }


@pytest.fixture(scope="session")
def emulator() -> Iterator[str]:
    """The address of `gcp-storage-emulator`."""
    if importlib.util.find_spec("gcp_storage_emulator") is None:
        pytest.fail("gcp-storage-emulator is missing: pip install -e '.[dev,gcp,engines]'.")
    port = _free_port()
    options = ["--host", "127.0.0.1", "--port", str(port), "-M", "-q"]
    with _running([sys.executable, "-m", "gcp_storage_emulator", "start", *options], port) as at:
        yield at


@pytest.fixture(scope="session")
def strict_emulator() -> Iterator[str]:
    """The address of `fake-gcs-server`, which honours preconditions of writes."""
    port = _free_port()
    options = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    public = ["-public-host", f"127.0.0.1:{port}", "-log-level", "error"]
    with _running([str(_fake_gcs_server()), *options, *public], port) as address:
        yield address


@pytest.fixture
def bucket(emulator, monkeypatch) -> Bucket:
    """A bucket on `gcp-storage-emulator`."""
    return _bucket_at(emulator, monkeypatch)


@pytest.fixture
def strict_bucket(strict_emulator, monkeypatch) -> Bucket:
    """A bucket on `fake-gcs-server`."""
    return _bucket_at(strict_emulator, monkeypatch)


@pytest.fixture
def gate(bucket, emulator, monkeypatch) -> Iterator[Gate]:
    """A gate before `bucket`'s emulator, for this process and those it starts."""
    with _opened(emulator, monkeypatch) as opened:
        yield opened


@pytest.fixture
def strict_gate(strict_bucket, strict_emulator, monkeypatch) -> Iterator[Gate]:
    """A gate before `strict_bucket`'s emulator."""
    with _opened(strict_emulator, monkeypatch) as opened:
        yield opened


def _bucket_at(address: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    from beam_dpne.storage.directories import connect_anonymously_to_emulators

    monkeypatch.setenv("STORAGE_EMULATOR_HOST", address)
    connect_anonymously_to_emulators()
    return Bucket()


@contextlib.contextmanager
def _opened(upstream: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    with Gate(upstream) as gate:
        threading.Thread(target=gate.serve_forever, daemon=True).start()
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", gate.address)
        yield gate
        gate.shutdown()


@contextlib.contextmanager
def _running(command: list[str], port: int) -> Iterator[str]:
    """Runs a server until the block ends; yields its address."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait_for(port, process, log, command[0])
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def _wait_for(port: int, process: subprocess.Popen, log, name: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    log.seek(0)
    pytest.fail(f"{name} did not start: {log.read().decode(errors='replace')[-2000:]}")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def _fake_gcs_server() -> pathlib.Path:
    """Returns the program, built by Go into the cache of engines the first time (a minute)."""
    folder = downloads.cache() / f"fake-gcs-server-{FAKE_GCS_SERVER}"
    program = folder / "fake-gcs-server"
    if not program.exists():
        go = downloads.require("go", "install Go 1.23 or newer")
        folder.mkdir(parents=True, exist_ok=True)
        module = f"github.com/fsouza/fake-gcs-server@v{FAKE_GCS_SERVER}"
        with tempfile.TemporaryDirectory(dir=folder) as built:
            downloads.run([go, "install", module], environment={"GOBIN": built})
            os.replace(pathlib.Path(built, program.name), program)
    return program
