"""`rows` of a result are the published rows, and cost nothing where nobody asks for them."""

import dataclasses
import pickle

import apache_beam as beam
import pyarrow.parquet as pq
import pytest
from apache_beam.dataframe.convert import to_dataframe
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.typehints.schemas import named_fields_from_element_type

from beam_dpne import (
    BayesianCounts,
    BayesianPlan,
    NgramProbability,
    PrivacyPlan,
    PrivateNgrams,
    PrivateSetUnion,
    PublicCounts,
    ReleasedItem,
    ReleasedNgram,
    SetUnionPlan,
)
from beam_dpne.elements.coders import BatchCoder
from beam_dpne.elements.rows import ITEM_SCHEMA, PROBABILITY_SCHEMA, ROW_SCHEMA
from beam_dpne.release.publishing import WriteRelease
from beam_dpne.release.reading import read_release

PUBLIC = PublicCounts.of([("good",), ("to",), ("zebra",)], [3, 2, 1])
USERS = [(f"u{i}", "Good morning to you" if i % 3 else "good night") for i in range(300)]
NGRAMS = PrivacyPlan(
    epsilon=10, delta=1e-4, max_length=3, max_contributions=4, strategy="one_round"
)
ITEMS = SetUnionPlan(epsilon=10, delta=1e-4, policy="weighted_gaussian")
COUNTS = BayesianPlan(epsilon=10, delta=1e-4, length=1)
RELEASES = {
    "ngrams": (PrivateNgrams(plan=NGRAMS), ReleasedNgram),
    "items": (PrivateSetUnion(plan=ITEMS, tokenizer="words"), ReleasedItem),
    "probabilities": (BayesianCounts(plan=COUNTS, public=PUBLIC), NgramProbability),
}
each_release = pytest.mark.parametrize("name", RELEASES)


def documents(pipeline):
    """Many small pieces, so that there are many bundles."""
    return pipeline | beam.Create(USERS) | beam.Reshuffle()


@each_release
def test_rows_are_those_of_the_published_files(name, tmp_path):
    transform, row_type = RELEASES[name]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        result = documents(pipeline) | transform
        publish = WriteRelease(
            output=str(tmp_path / "release"),
            output_format="jsonl",
        )
        _ = result | publish
        assert result.rows is result.rows
        assert result.rows.element_type is row_type
        path = str(tmp_path / "rows")
        _ = result.rows | beam.io.WriteToParquet(path, shard_name_template="")
    published = read_release(str(tmp_path / "release")).table()
    assert len(published) > 1
    rows = pq.read_table(tmp_path / "rows").cast(published.schema)
    order = [(field, "ascending") for field in published.schema.names]
    assert rows.sort_by(order).equals(published.sort_by(order))


def test_rows_that_nobody_asks_for_are_not_in_the_graph():
    def steps(ask):
        pipeline = beam.Pipeline(runner=FnApiRunner())
        result = documents(pipeline) | PrivateNgrams(plan=NGRAMS)
        if ask:
            _ = result.rows
        return {
            step.unique_name for step in pipeline.to_runner_api().components.transforms.values()
        }

    assert not [step for step in steps(ask=False) if "Rows" in step]
    added = steps(ask=True) - steps(ask=False)
    assert added
    assert all("/Rows" in step for step in added)


def test_a_pipeline_may_have_the_rows_of_several_releases():
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        read = documents(pipeline)
        for name in ("first", "second"):
            result = read | name >> PrivateSetUnion(plan=ITEMS, tokenizer="words")
            found = result.rows | f"words of {name}" >> beam.Map(lambda row: row.item)
            words = ["good", "morning", "night", "to", "you"]
            assert_that(found, equal_to(words), label=f"check {name}")


def test_a_release_without_rows_has_none():
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        few = pipeline | beam.Create([("ann", "alone"), ("bob", "other")])
        assert_that((few | PrivateNgrams(plan=NGRAMS)).rows, equal_to([]))


def test_data_frames_take_rows(tmp_path):
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        rows = (documents(pipeline) | PrivateNgrams(plan=NGRAMS)).rows
        to_dataframe(rows).to_csv(str(tmp_path / "rows.csv"), index=False)
    lines = [line for path in tmp_path.glob("rows.csv*") for line in path.read_text().splitlines()]
    assert "length,ngram,score" in lines
    assert any(line.startswith("3,good morning to,") for line in lines)


@pytest.mark.parametrize(
    ("row_type", "schema"),
    [
        (ReleasedNgram, ROW_SCHEMA),
        (ReleasedItem, ITEM_SCHEMA),
        (NgramProbability, PROBABILITY_SCHEMA),
    ],
)
def test_rows_have_the_fields_of_the_files_and_a_schema(row_type, schema):
    assert list(row_type._fields) == schema.names
    assert [name for name, _ in named_fields_from_element_type(row_type)] == schema.names
    assert isinstance(beam.coders.registry.get_coder(row_type), beam.coders.RowCoder)


def test_every_registered_batch_has_one_coder_which_says_what_it_codes():
    kinds = [kind for kind in beam.coders.registry.custom_types if dataclasses.is_dataclass(kind)]
    kinds = [kind for kind in kinds if kind.__module__.startswith("beam_dpne.")]
    assert len(kinds) > 10
    for kind in kinds:
        coder = beam.coders.registry.get_coder(kind)
        assert type(coder) is BatchCoder
        assert coder.to_type_hint() is kind
        assert not coder.is_deterministic()
        assert pickle.loads(pickle.dumps(coder)) == coder
