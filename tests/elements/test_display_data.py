"""Engines display the public parameters of every transform; keys, storage and data are never shown."""

import base64
import dataclasses
import json

import apache_beam as beam
import pytest
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.display import DisplayData

import beam_dpne
from beam_dpne import (
    BayesianCounts,
    BayesianPlan,
    DecodeGrams,
    PrivacyPlan,
    PrivateNgrams,
    PrivateSetUnion,
    PublicCounts,
    RunKey,
    RunKeyFile,
    SetStore,
    SetUnionPlan,
    WriteRelease,
)
from beam_dpne.elements.batches import DisplayedTransform
from beam_dpne.reading.rejects import WriteRejects
from beam_dpne.reading.transform import ReadDocuments
from beam_dpne.storage import access
from tests.test_public_api import OWN_SAMPLES, SAMPLES, SECRET, public_transforms

each_transform = pytest.mark.parametrize(
    "kind", public_transforms(), ids=lambda kind: kind.__name__
)


def made(kind):
    """A transform with the samples of the test of public names."""
    names = {field.name for field in dataclasses.fields(kind)}
    samples = SAMPLES | OWN_SAMPLES.get(kind, {})
    return kind(**{name: value for name, value in samples.items() if name in names})


def items_of(transform):
    return {item.key: item for item in DisplayData.create_from(transform).items}


@each_transform
class TestEachTransform:
    def test_shows_every_field_that_is_public_and_given(self, kind):
        transform = made(kind)
        assert isinstance(transform, DisplayedTransform)
        shown_items = items_of(transform)
        assert shown_items.pop("beam_dpne_version").value == beam_dpne.__version__
        for field in dataclasses.fields(kind):
            value = getattr(transform, field.name)
            if type(value) in (str, int, float, bool):
                assert shown_items[field.name].value == value
        plan = getattr(transform, "plan", None)
        for name, value in dataclasses.asdict(plan).items() if plan else ():
            if type(value) in (str, int, float, bool):
                assert shown_items[name].value == value


def made_plan():
    return PrivacyPlan(epsilon=1, delta=1e-7, max_length=2)


# Words that occur nowhere but in the data, in the public data or in names of private files.
USER, TEXT, WORD = "canaryuser", "canarytext", "canaryword"
PRIVATE = "canaryfolder"


def custom_tokens(texts):
    raise NotImplementedError


@pytest.fixture
def job(tmp_path):
    """The parts of a job with canaries: a file of records, a key in a file, and a store."""
    folder = tmp_path / PRIVATE
    folder.mkdir()
    (folder / "run.key").write_text(SECRET.hex())
    (tmp_path / "notes.jsonl").write_text(json.dumps({"user": USER, "text": TEXT}) + "\n")
    return {
        "inputs": [str(tmp_path / "*.jsonl")],
        "output": str(tmp_path / "release"),
        "rejects": str(tmp_path / "rejects"),
        "key": RunKeyFile.checked(str(folder / "run.key")),
        "store": SetStore(folder=str(folder / "sets"), limit=1),
    }


def whole_graph(job):
    """A pipeline in which each public transform occurs."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    read = pipeline | ReadDocuments(inputs=job["inputs"])
    _ = read.rejects | WriteRejects(path=job["rejects"])
    keyed = {"described": read.described, "store": job["store"]}
    plans = {
        "adaptive": made_plan(),
        "one round": PrivacyPlan(epsilon=1, delta=1e-7, max_length=2, strategy="one_round"),
    }
    for name, plan in plans.items():
        ngrams = PrivateNgrams(plan=plan, run_key=job["key"], **keyed)
        released = read.documents | name >> ngrams
        _ = released.released | f"{name}: decode" >> DecodeGrams()
        _ = released.rows
        _ = released | f"{name}: publish" >> WriteRelease(output=job["output"])
    public = PublicCounts.of([(WORD,)], [1])
    rows = pipeline | beam.Create([{"user": USER, "text": TEXT}])
    for kind, plan in [
        (BayesianCounts, BayesianPlan(epsilon=1, delta=1e-7, length=1)),
    ]:
        key = RunKey(SECRET)
        _ = rows | kind(plan=plan, public=public, run_key=key, store=job["store"])
    union = SetUnionPlan(epsilon=1, delta=1e-7)
    _ = rows | PrivateSetUnion(plan=union, tokenizer=custom_tokens)
    return pipeline.to_runner_api().components.transforms.values()


def displayed(proto):
    """The items of a transform in the graph, as (key, label, namespace, value)."""
    for data in proto.display_data:
        item = beam_runner_api_pb2.LabelledPayload.FromString(data.payload)
        yield item.key, item.label, item.namespace, getattr(item, item.WhichOneof("value"))


def test_the_whole_graph_shows_parameters_and_no_secret(job):
    transforms = whole_graph(job)
    wholes = "\n".join(repr([proto.unique_name, *displayed(proto)]) for proto in transforms)
    fingerprint = access._fingerprint(job["key"])
    forms = [SECRET.hex(), repr(SECRET)[2:-1], base64.b64encode(SECRET).decode(), fingerprint]
    for hidden in (*forms, USER, TEXT, WORD, PRIVATE, "run.key"):
        assert hidden not in wholes
    for visible in (*job["inputs"], job["output"], job["rejects"], "one_round", "1e-07"):
        assert visible in wholes
    assert f"{__name__}:custom_tokens" in wholes


def test_a_composite_shows_the_fields_of_the_files_that_were_read(tmp_path):
    read = ReadDocuments(inputs=["a.csv"], user_field="who", text_field=["b", "c"], delimiter=";")
    described = read.options.description
    transform = PrivateNgrams(plan=made_plan(), described=described)
    values = {key: item.value for key, item in items_of(transform).items()}
    wanted = {"user_field": "who", "text_field": "b, c", "input_format": "auto", "delimiter": ";"}
    assert wanted.items() <= values.items()
    assert items_of(read)["text_field"].value == "b, c"
