"""Rows that are no documents are refused, before a pipeline runs if their type says so."""

import collections
import dataclasses
import datetime
import traceback
import typing

import apache_beam as beam
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.periodicsequence import PeriodicImpulse

from beam_dpne import (
    BatchDocuments,
    BayesianCounts,
    BayesianPlan,
    GroupByUser,
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

NESTED = "A field within a field cannot be named"


class Body(typing.NamedTuple):
    part: str
    other: str


@dataclasses.dataclass
class BodyOfDataclass:
    part: str


class NestedText(typing.NamedTuple):
    user: str
    text: Body


class NestedOrNone(typing.NamedTuple):
    user: str
    text: Body | None


class NestedDataclass(typing.NamedTuple):
    user: str
    text: BodyOfDataclass


class ListOfRows(typing.NamedTuple):
    user: str
    text: typing.Sequence[Body]


class MapOfTexts(typing.NamedTuple):
    user: str
    text: typing.Mapping[str, str]


class NestedUser(typing.NamedTuple):
    user: Body
    text: str


class MaybeFloatUser(typing.NamedTuple):
    user: np.float64 | None
    text: str


class TimeText(typing.NamedTuple):
    user: str
    text: datetime.datetime


class MaybeNone(typing.NamedTuple):
    user: str | None
    text: str | None


class MaybeInteger(typing.NamedTuple):
    user: np.int64 | None
    text: typing.Sequence[str | None] | None


def documents(pipeline, kind):
    return pipeline | beam.Create([]).with_output_types(kind)


REFUSED_TYPES = [
    (NestedText, f"text_field='text', which has type Body. {NESTED}"),
    (NestedOrNone, f"text_field='text', which has type .*Body.* {NESTED}"),
    (NestedDataclass, f"text_field='text', which has type BodyOfDataclass. {NESTED}"),
    (ListOfRows, f"text_field='text', which has type .*Sequence.* {NESTED}"),
    (MapOfTexts, f"text_field='text', which has type .*Mapping.* {NESTED}"),
    (NestedUser, f"user_field='user', which has type Body. {NESTED}"),
    (MaybeFloatUser, "user_field='user'.*float64.*Integers become floats .* missing values"),
    (TimeText, "text_field='text', which has type datetime. Convert it before."),
    (str, "documents must be rows .* elements of type str. Make documents of lines"),
    (bytes, "documents must be rows .* elements of type bytes"),
    (type(None), "documents must be rows .* elements of type NoneType"),
    (list[str], r"documents must be rows .* elements of type list\[str\]"),
    (int | str, "documents must be rows .* elements of type .*int.*str"),
    (tuple[str, str, str], r"documents must be rows .* elements of type tuple\[str, str, str\]"),
    (tuple[float, str], "first member is a user, str or int, got the type float. Integers become"),
    (tuple[str, bytes], "second member is a text, str or a list of str, got the type bytes"),
    (tuple[str, Body], f"second member is a text, .* got the type Body. {NESTED}"),
    (pd.DataFrame, "elements of type DataFrame. Make a batch of each .*from_pandas"),
]


@pytest.mark.parametrize(("kind", "said"), REFUSED_TYPES)
def test_a_type_that_cannot_be_documents_is_refused_when_the_pipeline_is_built(kind, said):
    with pytest.raises(ValueError, match=said):
        _ = documents(beam.Pipeline(runner=FnApiRunner()), kind) | BatchDocuments()


TAKEN_TYPES = [
    *(MaybeNone, MaybeInteger, dict, dict[str, typing.Any], typing.Any, object, pa.Table),
    *(tuple[str, str], tuple[int, list[str]], tuple[str, ...], tuple[typing.Any, typing.Any]),
    *(MaybeNone | None, str | tuple[str, str], collections.UserDict, tuple[str, tuple[str, ...]]),
]


@pytest.mark.parametrize("kind", TAKEN_TYPES)
def test_a_type_that_may_be_documents_is_taken(kind):
    _ = documents(beam.Pipeline(runner=FnApiRunner()), kind) | BatchDocuments()


def test_inferred_types_are_checked_like_declared_ones():
    """Beam's own types of type hints are not those of Python."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    pairs = pipeline | beam.Create([("ann", 1.5)])
    with pytest.raises(ValueError, match=r"second member is a text.*float"):
        _ = pairs | BatchDocuments()
    rows = pipeline | "rows" >> beam.Create([beam.Row(user="ann", text=beam.Row(part="a"))])
    with pytest.raises(ValueError, match=f"which has type row. {NESTED}"):
        _ = rows | "of rows" >> BatchDocuments()


DOTTED = [
    NestedText("u", Body("canary", "canary")),
    beam.Row(user="u", text=beam.Row(part="canary")),
    {"user": "u", "text": {"part": "canary"}},
    pa.RecordBatch.from_pylist([{"user": "u", "text": {"part": "canary"}}]),
]
of_each_kind = pytest.mark.parametrize("element", DOTTED, ids=lambda row: type(row).__name__)


def run(elements, **fields):
    """Builds and runs a pipeline; its error is the first one that says what is wrong."""
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        _ = pipeline | beam.Create(elements) | BatchDocuments(**fields)


@of_each_kind
@pytest.mark.parametrize("fields", [{"text_field": "text.part"}, {}])
def test_fields_within_fields_get_an_error_that_explains(element, fields):
    with pytest.raises((TypeError, ValueError), match=NESTED) as raised:
        run([element], **fields)
    assert "canary" not in "".join(traceback.format_exception_only(raised.value))


def test_a_field_may_have_a_dot_in_its_name():
    element = {"user": "ann", "text.part": "to be"}
    assert list(documents_of(element, "user", ["text.part"])) == [("ann", "to be")]
    batch = pa.RecordBatch.from_pylist([element])
    (normal,) = normalized_batches(batch, "user", ["text.part"])
    assert normal.to_pylist() == [{"user": "ann", "text": "to be"}]


def test_a_field_with_a_dot_that_is_misspelt_is_told_its_name():
    with pytest.raises(ValueError, match=r"Did you mean 'text\.part'\?"):
        list(documents_of({"user": "ann", "text.part": "to be"}, "user", ["text.parts"]))


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
    (pd.DataFrame({"user": ["canary"]}), "got DataFrame. Make a batch of each"),
    ("canary canary", "got str. Make documents of lines"),
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
        (pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string())), NESTED),
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


def test_grouping_refuses_a_result_of_several_outputs():
    pipeline = beam.Pipeline(runner=FnApiRunner())
    read = pipeline | ReadDocuments(inputs=["notes.csv"])
    with pytest.raises(TypeError, match="one PCollection, got ReadResult"):
        _ = read | GroupByUser(run_key=RunKey(bytes(32)))


class Stored(typing.NamedTuple):
    text: str
    user: np.int64


class StoredTokens(typing.NamedTuple):
    text: typing.Sequence[str]
    user: str


beam.coders.registry.register_coder(Stored, beam.coders.RowCoder)
beam.coders.registry.register_coder(StoredTokens, beam.coders.RowCoder)
ROWS = [Stored("to be", np.int64(1)), Stored("or not", np.int64(2))]
PAIRS = [("1", "to be"), ("2", "or not")]


def pairs_of(batch):
    return [tuple(row.values()) for row in batch.to_pylist()]


def assert_documents(source, pairs):
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        found = pipeline | source | BatchDocuments() | beam.FlatMap(pairs_of)
        assert_that(found, equal_to(pairs))


@pytest.mark.parametrize("form", ["dicts", "batches", "avro"])
def test_rows_that_beam_has_written_are_documents(form, tmp_path):
    path = str(tmp_path / "notes")
    sink = beam.io.WriteToAvro if form == "avro" else beam.io.WriteToParquet
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        _ = pipeline | beam.Create(ROWS) | sink(path)
    sources = {
        "dicts": lambda: beam.io.ReadFromParquet(f"{path}*"),
        "batches": lambda: beam.io.ReadFromParquetBatched(f"{path}*"),
        "avro": lambda: beam.io.ReadFromAvro(f"{path}*", as_rows=True),
    }
    assert_documents(sources[form](), PAIRS)


def test_lists_of_tokens_that_beam_has_written_are_documents(tmp_path):
    path = str(tmp_path / "notes")
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        rows = [StoredTokens(["to", "be"], "ann"), StoredTokens([], "bob")]
        _ = pipeline | beam.Create(rows) | beam.io.WriteToParquet(path)
    wanted = [("ann", ["to", "be"]), ("bob", [])]
    assert_documents(beam.io.ReadFromParquet(f"{path}*"), wanted)
