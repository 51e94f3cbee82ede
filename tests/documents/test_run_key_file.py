"""A run key in a file: read where it is used, never in what is pickled, one key for a whole run."""

import base64
import bz2
import pickle

import apache_beam as beam
import pytest
from apache_beam.portability.api import beam_runner_api_pb2

from beam_dpne import PrivacyPlan, PrivateNgrams, RunKey
from beam_dpne.documents.run_keys import RunKeyFile, key_context

HEX = "0123456789abcdef" * 4
KEY = RunKey.from_hex(HEX)
PLAN = PrivacyPlan(epsilon=8, delta=1e-4, max_length=3)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "run.key"
    path.write_text(f"{HEX}\n")
    return path


def secrets_of(key: RunKey) -> list[bytes]:
    """All that must not be in a job graph: the key and what is derived from it."""
    purposes = ("user", "document", "word", "subset", "noise", "estimate", "fingerprint")
    purposes += ("spurious count", "spurious draw", "spurious noise")
    return [
        bytes.fromhex(HEX),
        HEX.encode(),
        *(key.sub_key(purpose, length) for purpose in purposes for length in range(4)),
    ]


def graph_of(run_key: RunKey) -> bytes:
    pipeline = beam.Pipeline()
    documents = pipeline | beam.Create([("u", "t")])
    _ = documents | PrivateNgrams(plan=PLAN, run_key=run_key)
    return pipeline.to_runner_api().SerializeToString()


def test_it_is_the_key_of_the_file(path):
    key = RunKeyFile.checked(str(path))
    assert key == KEY
    assert key.bound_to("a").bound_to("b") == KEY.bound_to("a").bound_to("b")
    assert key.bound_to("a") != key.bound_to("b")
    assert key.sub_key("noise", 2, 1) == KEY.sub_key("noise", 2, 1)
    assert pickle.loads(pickle.dumps(key.bound_to("a"))) == KEY.bound_to("a")
    assert repr(key) == "RunKey(secret)"


def test_no_secret_is_pickled(path):
    key = RunKeyFile.checked(str(path)).bound_to("context")
    key.sub_key("noise")
    pickled = pickle.dumps(key)
    bound = KEY.bound_to("context")
    assert not [secret for secret in (*secrets_of(bound), bound._key()) if secret in pickled]
    assert bytes.fromhex(HEX) in pickle.dumps(KEY), "the search finds a key that is there"


def unpacked(graph: bytes) -> bytes:
    """The graph's functions as they were pickled: Beam compresses them."""
    proto = beam_runner_api_pb2.Pipeline.FromString(graph)
    functions = [
        beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload).do_fn.payload
        for transform in proto.components.transforms.values()
        if transform.spec.urn == "beam:transform:pardo:v1"
    ]
    assert len(functions) > 10
    return b"".join(bz2.decompress(base64.b64decode(function)) for function in functions)


def test_the_job_graph_names_the_file_and_holds_no_key(path):
    bound = KEY.bound_to(key_context(PLAN, "words"))
    secrets = [*secrets_of(KEY), *secrets_of(bound), bound._key()]
    named, fresh = graph_of(RunKeyFile.checked(str(path))), graph_of(KEY)
    assert str(path).encode() in unpacked(named)
    assert not [secret for secret in secrets if secret in named + unpacked(named)]
    assert bound._key() in unpacked(fresh), "the search finds a key that is there"


def test_another_key_in_the_file_is_refused_by_workers(path):
    key = RunKeyFile.checked(str(path))
    path.write_text("5e" * 32)
    other = pickle.loads(pickle.dumps(key.bound_to("first use in this process")))
    with pytest.raises(ValueError, match="one key during a run"):
        other.sub_key("noise")


def test_a_template_takes_the_key_of_each_launch(path):
    key = RunKeyFile.checked(str(path), pinned=False)
    path.write_text("5e" * 32)
    assert key.bound_to("x") == RunKey.from_hex("5e" * 32).bound_to("x")


@pytest.mark.parametrize("content", [None, "", "abc", "g" * 64, "é" * 64, HEX + "00"])
def test_what_is_no_key_is_refused_without_quoting_it(tmp_path, content):
    path = tmp_path / "run.key"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValueError, match="key") as refused:
        RunKeyFile.checked(str(path))
    assert not content or content not in str(refused.value)


def test_a_worker_that_cannot_read_it_says_so(path):
    key = RunKeyFile.checked(str(path))
    path.unlink()
    with pytest.raises(ValueError, match="storage that they share"):
        key.bound_to("gone").sub_key("noise")
