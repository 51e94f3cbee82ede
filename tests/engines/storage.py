"""A stand-in for Google Cloud Storage: an emulator, and a gate before it, as strict as the service.

`gcp-storage-emulator` does all that Beam's file system asks for and ignores preconditions. The gate is
a small HTTP server that honours them, and denies, delays or counts requests as the service may.
"""

import contextlib
import http.client
import http.server
import json
import os
import sys
import threading
import urllib.parse
import uuid
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from deploy.processes import Daemons, listens
from tests.engines.flink import free_ports

_HOP_HEADERS = ("connection", "transfer-encoding", "content-length")
# Without credentials Beam waits half a minute for a server that would give some.
_ANONYMOUS = """
import google.auth
from google.auth.credentials import AnonymousCredentials
google.auth.default = lambda *_, **__: (AnonymousCredentials(), "lab")
"""


class Request(NamedTuple):
    """What a client asks of the service."""

    method: str
    path: str
    body: bytes

    def writes(self, name: str) -> bool:
        """Whether an object whose name ends so is uploaded."""
        return self.path.startswith("/upload/") and f'{name}"'.encode() in self.body[:2000]

    def object_path(self) -> str:
        """The path at which the object of an upload or a deletion is looked up."""
        path = urllib.parse.urlsplit(self.path).path
        if not path.startswith("/upload/"):
            return path
        start = self.body.index(b"{")
        name = json.JSONDecoder().raw_decode(self.body[start:].decode("latin-1"))[0]["name"]
        return f"{path.removeprefix('/upload')}/{urllib.parse.quote(name, safe='')}"


class Gate(http.server.ThreadingHTTPServer):
    """Passes requests on to an emulator, after a rule that may answer with an error or wait.

    Attributes:
      rule: the HTTP status to answer with; None: the emulator's answer.
      requests: what was asked, in order.
      honours: whether a write depends on the generation that it names.
    """

    daemon_threads = True

    def __init__(self, upstream: str):
        super().__init__(("127.0.0.1", 0), _Passing)
        self.upstream = upstream
        self.address = f"http://127.0.0.1:{self.server_address[1]}"
        self.rule: Callable[[Request], int | None] = lambda _: None
        self.requests: list[Request] = []
        self.honours = True
        self._one_write = threading.Lock()

    def answer(self, request: Request, headers: dict[str, str]) -> tuple[int, dict, bytes]:
        self.requests.append(request)
        if status := self.rule(request):
            error = {"error": {"code": status, "message": "no", "errors": [{"reason": "no"}]}}
            return status, {"Content-Type": "application/json"}, json.dumps(error).encode()
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(request.path).query)
        wanted = query.get("ifGenerationMatch")
        if request.method == "GET" or not wanted or not self.honours:
            return self._pass_on(request, headers)
        with self._one_write:
            status, _, body = self._pass_on(Request("GET", request.object_path(), b""), {})
            found = str(json.loads(body)["generation"]) if status == 200 else "0"
            return self._pass_on(request, headers) if found == wanted[0] else (412, {}, b"{}")

    def _pass_on(self, request: Request, headers: dict[str, str]) -> tuple[int, dict, bytes]:
        with contextlib.closing(http.client.HTTPConnection(self.upstream, timeout=60)) as to:
            to.request(request.method, request.path, request.body, headers)
            answer = to.getresponse()
            answered, data = dict(answer.getheaders()), answer.read()
        # Answers hold addresses for what comes next, which must pass here as well.
        theirs = f"http://{self.upstream}"
        answered = {key: value.replace(theirs, self.address) for key, value in answered.items()}
        if answer.headers.get_content_type() == "application/json":
            data = data.replace(theirs.encode(), self.address.encode())
        return answer.status, answered, data


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
    """A new bucket on the emulator."""

    def __init__(self) -> None:
        # The plain tests have these modules of fixtures and not the packages.
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

    def remove(self, *names: str) -> None:
        for name in names:
            self._bucket.blob(name).delete()

    def names(self, prefix: str = "") -> list[str]:
        return [blob.name for blob in self._client.list_blobs(self.name, prefix=prefix)]

    def files(self, prefix: str) -> dict[str, bytes]:
        """What is below a prefix, by the rest of its name."""
        return {
            name.removeprefix(prefix).lstrip("/"): self._bucket.blob(name).download_as_bytes()
            for name in self.names(prefix)
        }


@pytest.fixture(scope="session")
def emulator(tmp_path_factory) -> Iterator[Gate]:
    """The emulator with its gate; this process and those it starts use them, without credentials."""
    import google.auth
    from apache_beam.internal.gcp import auth
    from google.auth.credentials import AnonymousCredentials

    folder = tmp_path_factory.mktemp("emulator")
    (folder / "sitecustomize.py").write_text(_ANONYMOUS)
    (port,) = free_ports(1)
    options = ["--host", "127.0.0.1", "--port", str(port), "-M", "-q"]
    command = [sys.executable, "-m", "gcp_storage_emulator", "start", *options]
    daemons = Daemons(folder)
    daemons.start("emulator", command, ready=listens(port))
    paths = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    with Gate(f"127.0.0.1:{port}") as opened, pytest.MonkeyPatch.context() as patched:
        threading.Thread(target=opened.serve_forever, daemon=True).start()
        patched.setenv("STORAGE_EMULATOR_HOST", opened.address)
        patched.setenv("PYTHONPATH", paths)
        patched.setattr(google.auth, "default", lambda *_, **__: (AnonymousCredentials(), "lab"))
        patched.setattr(auth._Credentials, "_credentials_init", True)
        yield opened
        opened.shutdown()
    daemons.stop_all()


@pytest.fixture
def gate(emulator) -> Iterator[Gate]:
    """The gate, which lets everything pass in the beginning."""
    yield emulator
    emulator.rule = lambda _: None
    emulator.honours = True


@pytest.fixture
def bucket(gate) -> Bucket:
    """A new bucket."""
    return Bucket()
