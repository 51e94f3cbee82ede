"""Rows that are no documents are refused, and no documents at all give a release of nothing."""

import typing

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.periodicsequence import PeriodicImpulse

from beam_dpne import (
    BatchDocuments,
    BayesianCounts,
    BayesianPlan,
    PrivacyPlan,
    PrivateNgrams,
    PrivateSetUnion,
    PublicCounts,
    RunKey,
    SetUnionPlan,
    WriteRelease,
)
from beam_dpne.documents.batch import documents_of
from beam_dpne.documents.columns import normalized_batches
from beam_dpne.reading.transform import ReadDocuments
from beam_dpne.release.files import read_ledger


class MaybeNone(typing.NamedTuple):
    user: str | None
    text: str | None


REFUSED_ELEMENTS = [
    ({"user": None, "text": "canary"}, "user must not be None in the field 'user'; drop"),
    ((None, "canary"), "user must not be None; drop"),
    ({"user": "", "text": "canary"}, "user must not be empty in the field 'user'; drop"),
    ({"user": "canary", "text": None}, "got None in 'text'; drop"),
    ({"user": 2.0, "text": "canary"}, "str or int, got float in the field 'user'. Integers become"),
    ({"user": "canary", "text": 7}, "got int in the field 'text'. Convert it before"),
    ({"user": "canary", "text": ["a", None]}, "Tokens must be str, got NoneType in the field"),
    ({"user": "canary", "text": [["a"]]}, "Tokens must be str, got list in the field"),
    (("canary", ["a", 7]), "Tokens must be str, got int. Convert it before"),
    ("canary canary", "got str"),
]


@pytest.mark.parametrize(("element", "said"), REFUSED_ELEMENTS)
def test_elements_of_unknown_types_are_refused_with_the_field_and_without_a_value(element, said):
    with pytest.raises((TypeError, ValueError), match=said) as raised:
        list(documents_of(element, "user", ["text"]))
    assert "canary" not in str(raised.value)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([["canary", None]]), "'text' must not have null tokens"),
        (pa.array([[None]], pa.list_(pa.null())), "'text' must not have null tokens"),
        (pa.array([b"canary"]), "'text' must hold texts, .* got binary. Convert it before"),
        (pa.array([[{"a": 1}]]), "'text' must hold texts"),
        (pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string())), "'text' must hold texts"),
    ],
)
def test_columns_of_texts_without_a_meaning_are_refused(column, said):
    batch = pa.RecordBatch.from_arrays([pa.array(["ann"]), column], names=["user", "text"])
    with pytest.raises((TypeError, ValueError), match=said) as raised:
        list(normalized_batches(batch, "user", ["text"]))
    assert "canary" not in str(raised.value)


def test_a_list_of_tokens_may_be_empty_or_null_beside_another_text():
    columns = {"user": ["ann", "bob"], "title": [["a"], []], "text": [None, ["b"]]}
    batch = pa.RecordBatch.from_pydict(columns)
    rows = normalized_batches(batch, "user", ["title", "text"])
    found = [tuple(row.values()) for each in rows for row in each.to_pylist()]
    assert found == [("ann", ["a"]), ("bob", []), ("bob", ["b"])]


# The doors of the package, and settings with which each of them takes rows.
NGRAMS = {"epsilon": 10, "delta": 1e-4, "max_length": 2}
PUBLIC = PublicCounts.of([("a",), ("b",)], [1, 1])
COMPOSITES = {
    "adaptive": (PrivateNgrams, {"plan": PrivacyPlan(**NGRAMS)}),
    "one round": (PrivateNgrams, {"plan": PrivacyPlan(**NGRAMS, strategy="one_round")}),
    "union": (
        PrivateSetUnion,
        {"plan": SetUnionPlan(epsilon=10, delta=1e-4), "tokenizer": "words"},
    ),
    "weighted union": (
        PrivateSetUnion,
        {
            "plan": SetUnionPlan(epsilon=10, delta=1e-4, policy="weighted_gaussian"),
            "tokenizer": "words",
        },
    ),
    "probabilities": (
        BayesianCounts,
        {"plan": BayesianPlan(epsilon=10, delta=1e-4, length=1), "public": PUBLIC},
    ),
}
each_composite = pytest.mark.parametrize("name", COMPOSITES)


def published(name, make_documents, folder):
    """Publishes the release of documents that a function makes; returns its ledger."""
    kind, settings = COMPOSITES[name]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        result = make_documents(pipeline) | kind(run_key=RunKey(bytes(32)), **settings)
        _ = result | WriteRelease(output=str(folder / "release"))
        if name != "probabilities":
            assert_that(result.rows, equal_to([]))
    return read_ledger(str(folder / "release"))


EMPTY = {
    "no elements": lambda: beam.Create([]),
    "no rows": lambda: beam.Create([]).with_output_types(MaybeNone),
    "no rows in a batch": lambda: beam.Create([pa.RecordBatch.from_pylist([], schema=SCHEMA)]),
}
SCHEMA = pa.schema([("user", pa.string()), ("text", pa.string())])


@each_composite
@pytest.mark.parametrize("empty", EMPTY)
def test_an_empty_input_gives_a_release_of_nothing(name, empty, tmp_path):
    ledger = published(name, lambda pipeline: pipeline | EMPTY[empty](), tmp_path)
    rows = sum(part["rows"] for part in ledger["parts"])
    # Each public n-gram has a probability, also where nobody has it.
    assert rows == (len(PUBLIC) if name == "probabilities" else 0)


DOORS = {"batch": (BatchDocuments, {}), **COMPOSITES}


@pytest.mark.parametrize("name", DOORS)
def test_every_door_refuses_what_is_not_one_bounded_collection(name):
    kind, settings = DOORS[name]
    pipeline = beam.Pipeline(runner=FnApiRunner())
    read = pipeline | ReadDocuments(inputs=["notes.csv"])
    with pytest.raises(TypeError, match=r"one PCollection, got ReadResult.*`documents` of"):
        _ = read | "result" >> kind(**settings)
    with pytest.raises(TypeError, match="one PCollection, got PBegin"):
        _ = pipeline | "pipeline" >> kind(**settings)
    ticks = pipeline | PeriodicImpulse(0, 100, 1) | beam.Map(lambda _: ("ann", "to be"))
    with pytest.raises(ValueError, match="documents must be bounded"):
        _ = ticks | "ticks" >> kind(**settings)
