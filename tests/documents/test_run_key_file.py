"""A run key in a file: read where it is used, never in what is pickled, one key for a whole run."""

import base64
import bz2
import dataclasses
import pickle

import apache_beam as beam
import pytest
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import NgramsPlan, PrivateNgrams, RunKey, WriteRelease
from beam_dpne.documents import run_keys
from beam_dpne.documents.run_keys import RunKeyFile, key_context
from beam_dpne.ngrams.ledger import reported_contents
from beam_dpne.release.ledger import Run, whole_ledger
from beam_dpne.release.reading import read_ledger
from tests.support.releases import length_of

HEX = "0123456789abcdef" * 4
KEY = RunKey.from_hex(HEX)
PLAN = NgramsPlan(epsilon=8, delta=1e-4, max_length=3)


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
    path.write_text("fe" * 32)
    other = pickle.loads(pickle.dumps(key.bound_to("first use in this process")))
    with pytest.raises(ValueError, match="one key during a run"):
        other.sub_key("noise")


def test_a_template_takes_the_key_of_each_launch(path):
    key = RunKeyFile.checked(str(path), pinned=False)
    path.write_text("fe" * 32)
    assert key.bound_to("x") == RunKey.from_hex("fe" * 32).bound_to("x")


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


def test_a_ledger_states_the_commitments_to_the_key_and_to_the_bound_one(path, tmp_path):
    """The keys in a file, in memory and fresh ones alike."""
    stated = {}
    for name, key in (
        ("file", RunKeyFile.checked(str(path))),
        ("memory", KEY),
        ("fresh", None),
        ("other", None),
    ):
        output = str(tmp_path / name)
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            rows = pipeline | beam.Create([(f"u{number}", "tea") for number in range(99)])
            _ = rows | PrivateNgrams(plan=PLAN, run_key=key) | WriteRelease(output=output)
        section = read_ledger(output)["run_key"]
        stated[name] = section["commitment"], section["bound_commitment"]
    bound = PrivateNgrams(plan=PLAN, run_key=KEY).run_keys().bound
    assert stated["file"] == stated["memory"] == (KEY.commitment(), bound.commitment())
    assert len({digest for pair in stated.values() for digest in pair}) == 6


def test_a_launch_of_a_template_states_the_key_that_it_found(path):
    """Its ledger is made where the file is read; another key may be in it at each launch."""
    transform = PrivateNgrams(plan=PLAN, run_key=RunKeyFile.checked(str(path), pinned=False))
    run = pickle.loads(pickle.dumps(Run.of(transform, transform.run_keys())))
    path.write_text("5eed" * 16)
    # The launcher has read the first key, and a worker is another process.
    run_keys._key_in.cache_clear()
    contents = reported_contents(PLAN, [length_of(PLAN, length, 9.0, 0) for length in (1, 2, 3)])
    section = whole_ledger(contents, run, 0).run_key
    other = RunKey.from_hex("5eed" * 16)
    assert section.commitment == other.commitment()
    key = dataclasses.replace(transform, run_key=other).run_keys().bound
    assert section.bound_commitment == key.commitment()
