"""Asking a cluster from outside, with a limit of time; why it does not answer, in one sentence."""

import contextlib
import http.client
import json
import socket
import ssl
import urllib.error
import urllib.request
from typing import Any

import grpc
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

_MOST_BYTES = 20 << 20
# The preface of HTTP/2, on which gRPC rests, and an empty frame of settings; it is answered by one.
_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS = 4


class NoAnswerError(Exception):
    """Nobody answers at an address as expected; the message is a whole sentence with the reason."""


class NoSuchPageError(NoAnswerError):
    """There is no such page; older versions of Flink lack some."""


def split(address: str) -> tuple[str, int]:
    """Returns host and port of HOST:PORT.

    Raises:
      ValueError: The address is not of this form.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536 or "/" in address:
        raise ValueError(f"must be HOST:PORT, got {address!r}.")
    return host.strip("[]"), int(port)


def flink(address: str, path: str, *, timeout: float) -> Any:
    """Returns the decoded JSON of a page of Flink's REST interface.

    Args:
      address: HOST:PORT, or with http:// or https:// before it.
      path: the page, such as /config.
      timeout: seconds for each step of the exchange.

    Raises:
      NoSuchPageError: There is no such page.
      NoAnswerError: Flink does not answer.
    """
    try:
        return json.loads(_page(address, path, timeout, _MOST_BYTES))
    except ValueError:
        raise NoAnswerError(f"It answers {path} over HTTP, but not as Flink does.") from None


def beginning(address: str, path: str, *, timeout: float, most: int) -> str:
    """Returns the first `most` bytes of a page of Flink's REST interface as text; else as `flink`."""
    return _page(address, path, timeout, most).decode(errors="replace")


def _page(address: str, path: str, timeout: float, most: int) -> bytes:
    """Returns at most so many bytes of a page; raises as `flink`."""
    url = (address if "://" in address else f"http://{address}").rstrip("/") + path
    try:
        return _bytes(url, address, path, timeout, most)
    except NoAnswerError as error:
        kind, host = url.partition("://")[0], split(url.split("/")[2])[0]
        if kind not in urllib.request.getproxies() or urllib.request.proxy_bypass(host):
            raise
        raise type(error)(
            f"{error} It was asked through the proxy of {kind}_proxy; set no_proxy={host} to ask it "
            "directly."
        ) from None


def _bytes(url: str, address: str, path: str, timeout: float, most: int) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=timeout) as response:
            return response.read(most)
    except urllib.error.HTTPError as error:
        raise _of_status(error.code, path) from None
    except urllib.error.URLError as error:
        raise NoAnswerError(_reason(error.reason, address, timeout)) from None
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswerError(_reason(error, address, timeout)) from None


def job_service(endpoint: str, *, timeout: float) -> list[str]:
    """Returns the names of the pipeline options that a job server knows.

    Raises:
      NoAnswerError: It does not answer, or is not a job server of Beam.
    """
    host, port = split(endpoint)
    _connect(host, port, timeout)
    with grpc.insecure_channel(endpoint) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=timeout)
            service = beam_job_api_pb2_grpc.JobServiceStub(channel)
            request = beam_job_api_pb2.DescribePipelineOptionsRequest()
            answer = service.DescribePipelineOptions(request, timeout=timeout)
        except grpc.FutureTimeoutError:
            raise NoAnswerError(_other_protocol(host, port, timeout)) from None
        except grpc.RpcError as error:
            raise NoAnswerError(_of_rpc(error, timeout)) from None
    return [option.name for option in answer.options]


def connects(address: str, *, timeout: float) -> str:
    """Returns "" if this machine can connect to HOST:PORT, or else the reason, a whole sentence."""
    try:
        _connect(*split(address), timeout)
    except (NoAnswerError, ValueError) as error:
        return str(error)
    return ""


def _connect(host: str, port: int, timeout: float) -> None:
    try:
        socket.create_connection((host, port), timeout=timeout).close()
    except OSError as error:
        raise NoAnswerError(_reason(error, f"{host}:{port}", timeout)) from None


def _of_status(code: int, path: str) -> NoAnswerError:
    if code == 404:
        return NoSuchPageError(f"It answers HTTP 404 to {path}, a page that Flink has.")
    if code in (401, 403):
        return NoAnswerError(
            f"It answers HTTP {code}: a proxy asks for a password, which Beam's job server cannot give."
        )
    return NoAnswerError(f"It answers HTTP {code} to {path}; look at the JobManager's log.")


def _of_rpc(error: grpc.RpcError, timeout: float) -> str:
    code = error.code() if isinstance(error, grpc.Call) else None
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return "It speaks gRPC, but is not a job server; it may be a pool of workers."
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"It speaks gRPC, and did not answer within {timeout:g} s."
    return f"It speaks gRPC, and failed with {code.name if code else error!r}."


# The first kind that an error is of says why a connection failed.
_REASONS = (
    (TimeoutError, "It did not answer within {timeout:g} s; a firewall may be between."),
    (socket.gaierror, "The name of the host is not known here."),
    (ConnectionRefusedError, "Nobody listens there."),
    (ssl.SSLCertVerificationError, "Python does not trust its certificate: {error}."),
    (ssl.SSLError, "It does not speak TLS; write http:// instead of https://, or no scheme."),
)


def _reason(error: object, address: str, timeout: float) -> str:
    """Says why a connection failed."""
    for kind, text in _REASONS:
        if isinstance(error, kind):
            return text.format(timeout=timeout, error=error)
    if isinstance(error, http.client.HTTPException | ConnectionError):
        with contextlib.suppress(ValueError):
            return _other_protocol(*split(address.rpartition("://")[2].rstrip("/")), timeout)
    return f"The connection failed: {error}."


def _other_protocol(host: str, port: int, timeout: float) -> str:
    """Says what an open port speaks that did not understand us."""
    if _speaks_http2(host, port, timeout):
        return (
            "It speaks gRPC, as Beam's job server and worker pools do, and Flink's REST does not."
        )
    if _speaks_tls(host, port, timeout):
        return "It speaks TLS; write https:// before a Flink of this kind."
    status = _http_status(host, port, timeout)
    if status is not None:
        return f"It speaks HTTP ({status}), as Flink's REST does, and Beam's job server does not."
    return "Somebody listens there who speaks neither HTTP nor gRPC."


def _speaks_http2(host: str, port: int, timeout: float) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout) as one:
        one.settimeout(timeout)
        one.sendall(_HTTP2)
        frame = one.recv(9)
        return len(frame) == 9 and frame[0] == 0 and frame[3] == _SETTINGS
    return False


def _speaks_tls(host: str, port: int, timeout: float) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        contextlib.suppress(OSError),
        socket.create_connection((host, port), timeout) as one,
        context.wrap_socket(one, server_hostname=host),
    ):
        return True
    return False


def _http_status(host: str, port: int, timeout: float) -> str | None:
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", "/config")
        answer = connection.getresponse()
        return f"{answer.status} {answer.reason}"
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
