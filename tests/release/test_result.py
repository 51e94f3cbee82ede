"""Results in a pipeline: rows for any sink, the ledger as data, and both written as a release."""

import dataclasses
import hashlib
import json
import pathlib
import re
import unicodedata
from typing import Any, NamedTuple

import apache_beam as beam
import fastavro
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.dataframe.convert import to_dataframe
from apache_beam.portability.api import schema_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.typehints.schemas import schema_from_element_type

from beam_dpne import (
    BayesianCounts,
    NgramProbability,
    NgramsPlan,
    PrivateNgrams,
    PrivateNgramsResult,
    PrivateSetUnion,
    ProbabilitiesPlan,
    PublicCounts,
    ReleaseNotes,
    RunKey,
    SetUnionPlan,
    WriteRelease,
    read_release,
)
from beam_dpne.elements.rows import (
    COUNTED_ITEM_SCHEMA,
    COUNTED_ROW_SCHEMA,
    PROBABILITY_SCHEMA,
    ROW_SCHEMA,
    CountedItem,
    CountedNgram,
    in_order,
)
from beam_dpne.errors import ReleaseError, TooManyRejectedError, printable_reason
from beam_dpne.ngrams.released_rows import ReleasedRows
from beam_dpne.reading.options import InputDescription
from beam_dpne.reading.rejects import Tally
from beam_dpne.release.ledger import Run
from beam_dpne.set_union.elements import ItemSet, item_table
from beam_dpne.steps import GramSet

PUBLIC = PublicCounts.of([("good",), ("to",), ("zebra",)], [3, 2, 1])
USERS = [(f"u{i}", "Good morning to you" if i % 3 else "good night") for i in range(300)]
NGRAMS = NgramsPlan(epsilon=10, delta=1e-4, max_length=3, max_contributions=4, strategy="one_round")
ITEMS = SetUnionPlan(epsilon=10, delta=1e-4, policy="weighted_gaussian")
COUNTS = ProbabilitiesPlan(epsilon=10, delta=1e-4, length=1)
KEY = RunKey(bytes(32))
TRANSFORMS = {
    "ngrams": lambda: PrivateNgrams(plan=NGRAMS, run_key=KEY),
    "set-union": lambda: PrivateSetUnion(plan=ITEMS, tokenizer="words", run_key=KEY),
    "bayesian": lambda: BayesianCounts(plan=COUNTS, public=PUBLIC, run_key=KEY),
}
ROW_TYPES = {
    "ngrams": (CountedNgram, COUNTED_ROW_SCHEMA),
    "set-union": (CountedItem, COUNTED_ITEM_SCHEMA),
    "bayesian": (NgramProbability, PROBABILITY_SCHEMA),
}
NOTES = ReleaseNotes(title="Grüße", unit="a customer")
each_program = pytest.mark.parametrize("program", TRANSFORMS)


def files_of(folder):
    """The bytes of each file of a release."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def result_of(pipeline, program, users=USERS):
    return pipeline | beam.Create(users) | beam.Reshuffle() | TRANSFORMS[program]()


class Made(NamedTuple):
    """A release, the same with notes, and its rows and its ledger as data."""

    folder: pathlib.Path
    with_notes: pathlib.Path
    rows: list[Any]
    ledger: str


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One release of each program."""
    found = {}
    for program, (row_type, _) in ROW_TYPES.items():
        folder = tmp_path_factory.mktemp(program)
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            result = result_of(pipeline, program)
            _ = result | WriteRelease(output=str(folder / "release"))
            _ = result | "Noted" >> WriteRelease(output=str(folder / "noted"), notes=NOTES)
            _ = result.ledger | beam.io.WriteToText(str(folder / "text"), shard_name_template="")
        table = read_release(str(folder / "release")).table()
        rows = [row_type(**row) for row in table.to_pylist()]
        text = (folder / "text").read_text().removesuffix("\n")
        found[program] = Made(folder / "release", folder / "noted", rows, text)
    return found


# Rows for other sinks


def same_rows(found, release):
    """Whether a table has the rows of a release, in any order and with wider types."""
    return in_order(found.select(release.schema.names).cast(release.schema)).equals(release)


def test_sinks_and_data_frames_take_the_rows_as_they_are(tmp_path):
    place = {name: str(tmp_path / name) for name in ("parquet", "avro", "csv", "json", "frame")}
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        result = result_of(pipeline, "ngrams")
        rows = result.rows
        whole = {"shard_name_template": ""}
        _ = rows | beam.io.WriteToParquet(place["parquet"], **whole)
        _ = rows | beam.io.WriteToAvro(place["avro"], **whole)
        _ = rows | beam.io.WriteToCsv(place["csv"])
        # Its default is ten decimals.
        _ = rows | beam.io.WriteToJson(place["json"], double_precision=15)
        to_dataframe(rows).to_csv(place["frame"], index=False)
        _ = result | WriteRelease(output=str(tmp_path / "release"))
    release = read_release(str(tmp_path / "release")).table()
    assert len(release) > 1
    assert same_rows(pq.read_table(place["parquet"]), release)
    with open(place["avro"], "rb") as file:
        assert same_rows(pa.Table.from_pylist(list(fastavro.reader(file))), release)
    for name, read in (
        ("csv", pd.read_csv),
        ("json", lambda path: pd.read_json(path, lines=True, precise_float=True)),
        ("frame", pd.read_csv),
    ):
        frame = pd.concat([read(path) for path in sorted(tmp_path.glob(f"{name}*"))])
        assert same_rows(pa.Table.from_pandas(frame, preserve_index=False), release), name


@each_program
def test_bigquery_gets_its_schema_from_the_type_of_the_rows(program):
    """`WriteToBigQuery` does so for its method STORAGE_WRITE_API."""
    row_type, schema = ROW_TYPES[program]
    rows = result_of(beam.Pipeline(), program).rows
    assert rows.element_type is row_type
    kinds = {pa.int32(): "INT64", pa.int64(): "INT64"}
    kinds |= {pa.string(): "STRING", pa.float64(): "DOUBLE"}
    assert [
        (field.name, schema_pb2.AtomicType.Name(field.type.atomic_type), field.type.nullable)
        for field in schema_from_element_type(rows.element_type).fields
    ] == [(field.name, kinds[field.type], False) for field in schema]


# The ledger as data


@each_program
def test_the_ledger_is_that_of_the_files_but_for_its_end(program, tmp_path):
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        result = result_of(pipeline, program)
        assert result.ledger is result.ledger
        _ = result.ledger | beam.io.WriteToText(str(tmp_path / "text"), shard_name_template="")
        _ = result | WriteRelease(output=str(tmp_path / "release"), rows_per_part=2)
    text = (tmp_path / "text").read_text()
    release = read_release(str(tmp_path / "release"))
    ledger = json.loads(text)
    assert list(ledger)[:-1] == list(release.ledger)[:-2]
    jsonl = b"".join((tmp_path / "release" / part.name).read_bytes() for part in release.parts)
    assert len(release.parts) > 1
    rows = {"count": release.num_rows, "sha256": hashlib.sha256(jsonl).hexdigest()}
    assert ledger.pop("rows") == rows
    assert ledger == {
        name: value for name, value in release.ledger.items() if name not in ("content", "parts")
    }
    assert text == json.dumps({**ledger, "rows": rows}, indent=2, ensure_ascii=False) + "\n"


def test_rows_and_ledgers_that_nobody_asks_for_are_not_in_the_graph():
    def steps(*names):
        pipeline = beam.Pipeline(runner=FnApiRunner())
        result = result_of(pipeline, "ngrams")
        for name in names:
            getattr(result, name)
        return {
            step.unique_name for step in pipeline.to_runner_api().components.transforms.values()
        }

    assert not [step for step in steps() if "/Rows" in step or "/Ledger" in step]
    for name in ("rows", "ledger"):
        added = steps(name) - steps()
        assert added
        assert all(f"/{name.title()}" in step for step in added)


def test_the_public_facts_of_a_run_are_those_of_the_transform():
    rows = beam.Pipeline() | beam.Create([beam.Row(account="a", subject="b", body="c")])
    fields = {"user_field": "account", "text_field": ("subject", "body")}
    fresh = rows | PrivateNgrams(plan=NGRAMS, tokenizer="whitespace", **fields)
    assert fresh.run == Run(
        plan=NGRAMS,
        tokenizer="whitespace",
        run_key_given=False,
        commitment=fresh.run.commitment,
        bound_commitment=fresh.run.bound_commitment,
        described=InputDescription(user_field="account", text_fields=("subject", "body")),
        tokenizer_version=f"whitespace 1, Unicode {unicodedata.unidata_version}",
    )
    given = rows | "Given" >> PrivateNgrams(plan=NGRAMS, run_key=KEY, **fields)
    assert given.run.run_key_given
    assert given.run.commitment == KEY.commitment()
    assert not any(isinstance(value, RunKey) for value in vars(given.run).values())


def test_a_result_without_a_description_says_that_the_user_is_unknown(tmp_path):
    """As one that is put together from released sets by hand."""
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        found = result_of(pipeline, "ngrams")
        bare = dataclasses.replace(found.run, described=None)
        by_hand = PrivateNgramsResult(found.released, bare)
        _ = by_hand | WriteRelease(output=str(tmp_path / "sets"), notes=NOTES)
        both = {"rows": by_hand.rows, "ledger": by_hand.ledger}
        _ = both | "Apart" >> WriteRelease(output=str(tmp_path / "rows"), notes=NOTES)
    ledger = read_release(str(tmp_path / "sets")).ledger
    assert ledger["guarantee"]["user"] == "a customer: as the input of the pipeline names them"
    assert ledger["input"]["user_field"] is None
    assert files_of(tmp_path / "sets") == files_of(tmp_path / "rows")


# Rows and ledger, one by one


def write(output, rows, *ledgers, **settings):
    """Writes rows and ledgers; returns why the pipeline failed, or None."""
    message = ""
    try:
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            both = {
                "rows": pipeline | "Rows" >> beam.Create(rows) | beam.Reshuffle(),
                "ledger": pipeline | "Ledgers" >> beam.Create(ledgers).with_output_types(Any),
            }
            paths = both | WriteRelease(output=str(output), **settings)
            assert_that(paths, equal_to([str(output / "ledger.json")]))
    except Exception as error:
        message = printable_reason(error)
    assert "canary" not in message
    return message or None


@each_program
def test_rows_in_any_order_are_written_byte_for_byte(program, made, tmp_path):
    release = made[program]
    for place, form in (
        ("tuples", lambda row: row),
        ("Rows", lambda row: beam.Row(**row._asdict())),
    ):
        rows = list(map(form, release.rows[::-1]))
        assert write(tmp_path / place, rows, release.ledger, notes=NOTES) is None
        assert files_of(tmp_path / place) == files_of(release.with_notes)


CANARY = CountedNgram(1, "canary", 9.5, 40, 20, 60)
OTHERS = "rows must be exactly the rows that the ledger describes"
FIELDS = "rows must have the fields and types that the ledger explains"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: [*rows, CANARY], OTHERS),
        (lambda rows: rows[1:], OTHERS),
        (lambda rows: [*rows[1:], rows[1]], OTHERS),
        (lambda rows: [*rows[1:], rows[0]._replace(score=rows[0].score + 1e-6)], OTHERS),
        (lambda rows: [row._asdict() | {"score": None} for row in rows], OTHERS),
        (lambda rows: [{"length": 1, "ngram": "canary"} for row in rows], OTHERS),
        (lambda rows: [tuple(row) for row in rows], FIELDS),
        (lambda rows: [row._asdict() | {"score": "canary"} for row in rows], FIELDS),
        (lambda rows: [row._asdict() | {"length": 2**40} for row in rows], FIELDS),
    ],
)
def test_other_rows_than_the_ledger_describes_are_refused(change, message, made, tmp_path):
    release = made["ngrams"]
    said = write(tmp_path / "out", change(release.rows), release.ledger)
    assert re.search(message, said or ""), said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("ledgers", "message"),
    [
        (lambda text: [], "ledger must have one element, the JSON text of"),
        (lambda text: [text, text], "ledger must have one element"),
        (lambda text: ["canary"], "The ledger is not a ledger of beam_dpne"),
        (lambda text: [text.replace('"count": ', '"count": 1')], OTHERS),
        (lambda text: [text.replace('"rows": ', '"files": ')], OTHERS),
    ],
)
def test_anything_but_one_whole_ledger_is_refused(ledgers, message, made, tmp_path):
    release = made["ngrams"]
    said = write(tmp_path / "out", release.rows, *ledgers(release.ledger))
    assert re.search(message, said or ""), said
    assert not (tmp_path / "out").exists()


def test_rows_are_not_written_if_too_many_records_were_rejected(made, tmp_path):
    release = made["ngrams"]
    pipeline = beam.Pipeline(runner=FnApiRunner())
    both = {
        "rows": pipeline | "Rows" >> beam.Create(release.rows),
        "ledger": pipeline | "Ledger" >> beam.Create([release.ledger]),
    }
    tally = pipeline | "Tally" >> beam.Create([Tally(10, {"malformed JSON": 9})])
    _ = both | WriteRelease(output=str(tmp_path / "out"), tally=tally)
    with pytest.raises(TooManyRejectedError, match="malformed JSON"):
        pipeline.run()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda rows: rows, "WriteRelease takes the result of"),
        (lambda rows: {"rows": rows}, "a dict of its rows and ledger"),
    ],
)
def test_other_inputs_are_refused_when_the_pipeline_is_built(given, message):
    rows = beam.Pipeline() | beam.Create([CANARY])
    with pytest.raises(TypeError, match=message):
        _ = given(rows) | "Write" >> WriteRelease(output="never")


def test_an_output_with_files_is_refused_when_the_pipeline_is_built(made):
    result = result_of(beam.Pipeline(), "ngrams")
    folder = made["ngrams"].folder
    with pytest.raises(ReleaseError, match=r"is a release already\. .*, or set `overwrite`"):
        _ = result | WriteRelease(output=str(folder))
    _ = result | "Again" >> WriteRelease(output=str(folder), overwrite=True)


# The order of a release


def test_scores_that_rounding_makes_equal_are_in_the_order_of_bytes():
    """Otherwise rows alone would not determine the files."""
    scores = np.array([7.0000004, 7.0000001, 8.0])
    items = ItemSet(items=pa.array(["b", "a", "c"]), scores=scores)
    assert item_table([items]).column("item").to_pylist() == ["c", "a", "b"]
    words = GramSet(
        length=1,
        keys=np.arange(3),
        scores=np.array([7.0000001, 7.0000004, 8.0]),
        words=pa.array(["a", "b", "c"]),
        vocabulary_size=3,
    )
    assert ReleasedRows.of([words]).table().column("ngram").to_pylist() == ["c", "a", "b"]


def test_the_order_is_by_length_then_by_falling_score_then_by_bytes():
    columns = [[2, 1, 1, 1, 2], ["z", "é", "z", "a", "y"], [1.0, 3.0, 3.0, 1.0, 2.0]]
    table = in_order(pa.table(columns, schema=ROW_SCHEMA))
    assert table.column("ngram").to_pylist() == ["z", "é", "a", "y", "z"]
