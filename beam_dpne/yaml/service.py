"""An expansion service for pipelines of other languages, which has the transforms of this version.

Beam's service decodes pickles and source code that a request may hold, and hands out any file of its
machine. Here a request is checked before anything in it is decoded, and there are no artifacts.
"""

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import grpc
from apache_beam.coders import RowCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import common_urns
from apache_beam.portability.api import (
    beam_expansion_api_pb2,
    beam_expansion_api_pb2_grpc,
    beam_fn_api_pb2_grpc,
    beam_runner_api_pb2,
    external_transforms_pb2,
    schema_pb2,
)
from apache_beam.runners.portability.expansion_service import ExpansionServiceServicer
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer
from apache_beam.transforms.fully_qualified_named_transform import (
    PYTHON_FULLY_QUALIFIED_NAMED_TRANSFORM_URN,
    FullyQualifiedNamedTransform,
)
from apache_beam.typehints.schemas import PythonCallable

from beam_dpne import yaml
from beam_dpne.errors import UsageError
from beam_dpne.release.files import is_inside
from beam_dpne.version import __version__
from beam_dpne.yaml.transforms import KEYS

LOCAL = ("localhost", "127.0.0.1", "[::1]")
_PACKAGE = f"{yaml.__name__}.{yaml.version_name(__version__)}"
# Readers of files are missing: whoever reaches the port would read with the rights of the service.
NAMES = tuple(f"{_PACKAGE}.{name}" for name in yaml.__all__ if name != "ReadDocuments")
_KINDS = ("atomic_type", "array_type", "iterable_type")
# Decoding a value of this type runs the source code in it.
_SOURCE_CODE = PythonCallable.urn().encode()
_WINDOWS = frozenset(
    kind.urn
    for kind in (
        common_urns.global_windows,
        common_urns.fixed_windows,
        common_urns.sliding_windows,
        common_urns.session_windows,
    )
)
# A coder of Python alone may be a pickle.
_CODERS = frozenset(
    value.GetOptions().Extensions[beam_runner_api_pb2.beam_urn]
    for value in beam_runner_api_pb2.StandardCoders.Enum.DESCRIPTOR.values
)


class Service(ExpansionServiceServicer):
    """Answers requests for the transforms in `NAMES`, and refuses all others.

    Attributes:
      tokenizers: names of tokenizers of the operator that requests may name.
      folders: folders of the operator in which requests may name files and directories.
    """

    def __init__(
        self,
        options: PipelineOptions,
        loopback_address: str | None,
        tokenizers: Collection[str],
        folders: Collection[str],
    ):
        super().__init__(options, loopback_address)
        self.tokenizers = frozenset(tokenizers)
        self.folders = frozenset(folders)

    def Expand(
        self,
        request: beam_expansion_api_pb2.ExpansionRequest,
        context: grpc.ServicerContext | None = None,
    ) -> beam_expansion_api_pb2.ExpansionResponse:
        """Expands one transform, or returns an error."""
        try:
            check(request, self.tokenizers, self.folders)
        except UsageError as error:
            text = f"{type(error).__name__}: {error}"
            return beam_expansion_api_pb2.ExpansionResponse(error=text)
        return super().Expand(request, context)


def check(
    request: beam_expansion_api_pb2.ExpansionRequest,
    tokenizers: Collection[str],
    folders: Collection[str] = (),
) -> None:
    """Checks that a request asks for a transform in `NAMES`, and has nothing that runs when decoded.

    Args:
      request: the request, of which nothing is decoded yet; coders of Python alone are taken out.
      tokenizers: names `package.module:function` that it may give for its tokenizer.
      folders: folders in which it may name files and directories.

    Raises:
      UsageError: it asks for something else.
    """
    # Options of a request would change this process.
    request.ClearField("pipeline_options")
    spec, components = request.transform.spec, request.components
    if spec.urn != PYTHON_FULLY_QUALIFIED_NAMED_TRANSFORM_URN:
        raise UsageError(f"The service constructs transforms by name only. {_allowed()}")
    # Beam would unpickle the types of outputs, and the coders that only Python has; none is needed.
    request.output_coder_requests.clear()
    for name in [
        name for name, coder in components.coders.items() if coder.spec.urn not in _CODERS
    ]:
        del components.coders[name]
    windows = components.windowing_strategies.values()
    unsafe = (
        any(
            part.spec.urn != common_urns.primitives.IMPULSE.urn
            for part in components.transforms.values()
        )
        or any(each.coder_id not in components.coders for each in components.pcollections.values())
        or any(window.window_fn.urn not in _WINDOWS for window in windows)
        or _SOURCE_CODE in request.SerializeToString()
    )
    if unsafe:
        raise UsageError(
            "The inputs must be rows with a schema in Beam's standard coders, since the service "
            "decodes nothing that belongs to one language only. Give the rows a schema."
        )
    row = _configuration(spec.payload)
    if row.constructor not in NAMES:
        raise UsageError(f"The service does not construct {row.constructor!r}. {_allowed()}")
    tokenizer = getattr(getattr(row, "kwargs", None), "tokenizer", None)
    if isinstance(tokenizer, str) and ":" in tokenizer and tokenizer not in tokenizers:
        raise UsageError(
            f"The service may not import the tokenizer {tokenizer!r}. Start it with --tokenizer "
            f"{tokenizer} if it is yours."
        )
    _check_paths(row, folders)


def _check_paths(row: Any, folders: Collection[str]) -> None:
    """Raises UsageError for a file that is in none of the folders: contents of files come back."""
    options = KEYS[row.constructor.rpartition(".")[2]].options
    names = [option.name for option in options if option.path or option.name == "output"]
    for name in names:
        given = getattr(getattr(row, "kwargs", None), name, None)
        for path in (
            given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
        ):
            if isinstance(path, str) and not any(is_inside(path, folder) for folder in folders):
                raise UsageError(
                    f"The service may not read or write {name}={path!r}. Start it with --folder and a "
                    "folder of yours that holds such files."
                )


def _allowed() -> str:
    return f"It has version {__version__} of beam_dpne and constructs {', '.join(NAMES)}."


def _configuration(data: bytes) -> Any:
    """Returns a configuration, which has a name and keyword arguments, after a check of its types.

    Raises:
      UsageError: it is damaged or has other types than plain ones.
    """
    try:
        payload = external_transforms_pb2.ExternalConfigurationPayload.FromString(data)
        if _is_plain_configuration(payload.schema):
            return RowCoder(payload.schema).decode(payload.payload)
    except Exception as error:
        raise UsageError(f"The configuration cannot be decoded ({type(error).__name__}).") from None
    raise UsageError(
        "The configuration must consist of numbers, texts, truth values and lists of them, given by "
        "name."
    )


def _is_plain_configuration(schema: schema_pb2.Schema) -> bool:
    """Returns whether a configuration has a name and keyword arguments of plain types only."""
    fields = {field.name: field.type for field in schema.fields}
    constructor = fields.pop("constructor", schema_pb2.FieldType())
    rows = {name: kind.row_type.schema for name, kind in fields.items()}
    return (
        constructor.atomic_type == schema_pb2.STRING
        and rows.keys() <= {"args", "kwargs"}
        and not (rows.get("args") or schema_pb2.Schema()).fields
        and not any(part.options for part in (schema, *rows.values()))
        and not any(field.options for part in (schema, *rows.values()) for field in part.fields)
        and all(_is_plain(field.type) for part in rows.values() for field in part.fields)
    )


def _is_plain(kind: schema_pb2.FieldType) -> bool:
    name = kind.WhichOneof("type_info")
    if name not in _KINDS:
        return False
    if name == "atomic_type":
        return kind.atomic_type != schema_pb2.BYTES
    return _is_plain(getattr(kind, name).element_type)


@contextlib.contextmanager
def listening(
    *,
    host: str,
    port: int,
    options: PipelineOptions,
    loopback: bool = False,
    tokenizers: Collection[str] = (),
    folders: Collection[str] = (),
) -> Iterator[str]:
    """Serves inside the context, whose value is the address.

    Args:
      host: name or address to listen on.
      port: port to listen on, or 0 for a free one.
      options: options of the pipelines, which name the workers.
      loopback: whether this process runs the steps too; on this machine only.
      tokenizers: names of tokenizers of the operator that requests may name.
      folders: folders in which requests may name files and directories.

    Raises:
      UsageError: the address cannot be used, or others could reach the loopback worker.
    """
    if loopback and host not in LOCAL:
        raise UsageError(
            f"host must be localhost with serve_loopback_worker, got host={host}: whoever reaches such "
            "a worker can run any program. Name workers by environment_type instead."
        )
    server = grpc.server(ThreadPoolExecutor())
    try:
        bound = server.add_insecure_port(f"{host}:{port}")
    except RuntimeError:
        bound = 0
    if not bound:
        raise UsageError(
            f"The service cannot listen on {host}:{port}. Choose another port or host."
        )
    address = f"{host}:{bound}"
    service = Service(options, address if loopback else None, tokenizers, folders)
    beam_expansion_api_pb2_grpc.add_ExpansionServiceServicer_to_server(service, server)
    if loopback:
        pool = BeamFnExternalWorkerPoolServicer()
        beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    with cast("Any", FullyQualifiedNamedTransform).with_filter(f"{_PACKAGE}.*"):
        server.start()
        yield address
        server.stop(None).wait()


def serve(
    *,
    host: str,
    port: int,
    serve_loopback_worker: bool,
    environment_type: str | None,
    environment_config: str | None,
    tokenizers: Collection[str],
    folders: Collection[str],
    ready: Callable[[str], None],
) -> None:
    """Serves until the process is ended; the arguments are the options of the command line.

    Args:
      host: as in `listening`.
      port: as in `listening`.
      serve_loopback_worker: as `loopback` in `listening`.
      environment_type: workers that run the steps, as in Beam's option.
      environment_config: their configuration, as in Beam's option.
      tokenizers: as in `listening`.
      folders: as in `listening`.
      ready: takes one line with the address and the names, once requests are answered.
    """
    options = PipelineOptions(
        ["--experiments=beam_fn_api", "--sdk_location=container"],
        environment_type=environment_type,
        environment_config=environment_config,
    )
    with listening(
        host=host,
        port=port,
        options=options,
        loopback=serve_loopback_worker,
        tokenizers=tokenizers,
        folders=folders,
    ) as address:
        ready(f"beam_dpne {__version__} listens on {address} and constructs {', '.join(NAMES)}.")
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
