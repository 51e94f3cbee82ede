"""The expansion service constructs the public transforms, and decodes nothing that could run."""

import os

import apache_beam as beam
import grpc
import pytest
from apache_beam.internal import pickler
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_expansion_api_pb2, beam_expansion_api_pb2_grpc
from apache_beam.transforms.external import ExternalTransform, ImplicitSchemaPayloadBuilder
from apache_beam.utils.python_callable import PythonCallableWithSource

from beam_dpne.errors import UsageError
from beam_dpne.version import __version__
from beam_dpne.yaml import service, version_name
from beam_dpne.yaml.__main__ import main

NAME = f"beam_dpne.yaml.{version_name(__version__)}.PrivateNgrams"
CONFIG = {"epsilon": 1.0, "delta": 1e-6, "max_length": 1}


class _Kept(Exception):
    """Carries a request that would be sent."""


@pytest.fixture
def request_of(monkeypatch):
    """Returns the request that Beam makes for a transform by name."""

    def make(config, name=NAME, rows=None):
        class Stub:
            def __enter__(self):
                return self

            def __exit__(self, *_):
                pass

            def Expand(self, request):
                raise _Kept(request)

        monkeypatch.setattr(ExternalTransform, "service", staticmethod(lambda _: Stub()))
        payload = ImplicitSchemaPayloadBuilder({"constructor": name, "kwargs": beam.Row(**config)})
        transform = ExternalTransform("beam:transforms:python:fully_qualified_named", payload, "x")
        given = rows or beam.Create([beam.Row(user="a", text="b")])
        with pytest.raises(_Kept) as kept:
            _ = beam.Pipeline() | given | transform
        return kept.value.args[0]

    return make


@pytest.fixture(scope="module")
def stub():
    """A service in this process, reached over the network."""
    listening = service.listening(host="localhost", port=0, options=PipelineOptions([]))
    with listening as address, grpc.insecure_channel(address) as channel:
        yield beam_expansion_api_pb2_grpc.ExpansionServiceStub(channel)


def test_an_allowed_name_expands_and_another_name_of_the_package_is_refused(stub, request_of):
    answer = stub.Expand(request_of(CONFIG))
    assert not answer.error
    assert set(answer.transform.outputs) == {"rows", "ledger"}
    answer = stub.Expand(request_of({"path": "secret"}, NAME.replace("PrivateNgrams", "LISTING")))
    assert answer.error.startswith("UsageError: The service does not construct 'beam_dpne.yaml.v")
    assert NAME in answer.error


class _Leaves:
    """Makes a directory when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def _pickled_transform(request, pickled):
    request.transform.spec.urn = python_urns.PICKLED_TRANSFORM
    request.transform.spec.payload = pickled


def _pickled_step(request, pickled):
    step = next(iter(request.components.transforms.values()))
    step.spec.urn, step.spec.payload = python_urns.PICKLED_TRANSFORM, pickled


def _pickled_coder(request, pickled):
    (rows,) = request.components.pcollections.values()
    coder = request.components.coders[rows.coder_id]
    coder.spec.urn, coder.spec.payload = python_urns.PICKLED_CODER, pickled


def _pickled_window(request, pickled):
    window = next(iter(request.components.windowing_strategies.values())).window_fn
    window.urn, window.payload = python_urns.PICKLED_WINDOWFN, pickled


def _pickled_type(request, pickled):
    next(iter(request.components.pcollections.values())).coder_id = pickled.decode()


PICKLES = [
    _pickled_transform,
    _pickled_step,
    _pickled_coder,
    _pickled_window,
    _pickled_type,
]


@pytest.mark.parametrize("put", PICKLES, ids=lambda put: put.__name__)
def test_a_pickle_in_a_request_is_not_decoded(request_of, put, tmp_path):
    pickled = pickler.dumps(_Leaves(tmp_path / "left"))
    request = request_of(CONFIG)
    service.check(request, ())
    put(request, pickled)
    with pytest.raises(UsageError, match=r"by name only|must be rows with a schema"):
        service.check(request, ())
    assert not (tmp_path / "left").exists()
    pickler.loads(pickled)
    assert (tmp_path / "left").exists()


def test_types_of_outputs_are_not_unpickled(stub, request_of, tmp_path):
    request = request_of(CONFIG)
    request.output_coder_requests["0"] = pickler.dumps(_Leaves(tmp_path / "left")).decode()
    assert not stub.Expand(request).error
    assert not (tmp_path / "left").exists()


def test_source_code_in_a_request_is_not_run(request_of):
    source = PythonCallableWithSource("lambda: None")
    request = request_of({**CONFIG, "tokenizer": source})
    with pytest.raises(UsageError, match="decodes nothing that belongs to one language only"):
        service.check(request, ())


@pytest.mark.parametrize("value", [{"a": 1}, b"bytes", beam.Row(a=1)])
def test_a_configuration_has_plain_values_only(request_of, value):
    with pytest.raises(UsageError, match="must consist of numbers, texts, truth values and lists"):
        service.check(request_of({**CONFIG, "max_length": value}), ())
    service.check(request_of({**CONFIG, "max_contributions": [1], "text_field": ["a"]}), ())


def test_a_tokenizer_of_the_operator_must_be_allowed(request_of):
    request = request_of({**CONFIG, "tokenizer": "os:system"})
    with pytest.raises(UsageError, match="may not import the tokenizer 'os:system'"):
        service.check(request, ("house.words:split",))
    service.check(request, ("os:system",))
    service.check(request_of({**CONFIG, "tokenizer": "whitespace"}), ())


@pytest.mark.parametrize("key", ["run_key_file", "plan", "vocabulary"])
def test_files_outside_the_folders_of_the_operator_are_not_read(request_of, key, tmp_path):
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    inside = request_of({**CONFIG, key: str(folder / "file")})
    service.check(inside, (), [str(folder)])
    for path in ("/etc/passwd", str(tmp_path / "given-2"), f"{folder}/../x", f"{folder}/link/x"):
        for folders in ([str(folder)], []):
            with pytest.raises(UsageError, match=f"may not read or write {key}="):
                service.check(request_of({**CONFIG, key: path}), (), folders)


def test_public_counts_and_outputs_must_be_in_a_folder_too(request_of):
    names = {"BayesianCounts": {**CONFIG, "public": ["/a", "/b"]}, "WriteRelease": {"output": "/a"}}
    for name, config in names.items():
        request = request_of(config, NAME.replace("PrivateNgrams", name))
        with pytest.raises(UsageError, match="may not read or write"):
            service.check(request, (), ["/b"])
        service.check(request, (), ["/a", "/b"])


def test_options_of_a_request_do_not_reach_the_service(request_of):
    request = request_of(CONFIG)
    request.pipeline_options.update({"beam:option:pickle_library:v1": "dill"})
    service.check(request, ())
    assert not request.pipeline_options


def test_a_damaged_configuration_is_refused(request_of):
    request = request_of(CONFIG)
    request.transform.spec.payload = b"\xff"
    with pytest.raises(UsageError, match="cannot be decoded"):
        service.check(request, ())
    with pytest.raises(UsageError, match="by name only"):
        service.check(beam_expansion_api_pb2.ExpansionRequest(), ())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--host", "0.0.0.0", "--serve_loopback_worker"], "host must be localhost with"),
        (["--host", "no.host.invalid"], "The service cannot listen on no.host.invalid:0."),
    ],
)
def test_an_address_that_cannot_be_served_is_refused(options, said):
    with pytest.raises(SystemExit, match=said):
        main(["serve", "--port=0", *options])
