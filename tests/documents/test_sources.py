"""Sources of Beam that may give rows wrong names are refused when the pipeline is built."""

import json
import typing

import apache_beam as beam
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.dataframe import convert
from apache_beam.dataframe import io as frames_io
from apache_beam.dataframe.schemas import UnbatchPandas
from apache_beam.dataframe.transforms import DataframeTransform
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from beam_dpne import BatchDocuments, PrivacyPlan, PrivateNgrams

USER, TEXT = "zebra4711", "is_private"
ROW = {"user": USER, "text": TEXT}
TURNED = {"text": TEXT, "user": USER}
REFUSED = "documents must not come from"


class Row(typing.NamedTuple):
    user: str
    text: str


beam.coders.registry.register_coder(Row, beam.coders.RowCoder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two files of each format, with their fields in two orders, and one file with both."""
    place = tmp_path_factory.mktemp("orders")
    for number, row in enumerate([ROW, TURNED]):
        frame = pd.DataFrame([row])
        pq.write_table(pa.Table.from_pylist([row]), place / f"{number}.parquet")
        frame.to_csv(place / f"{number}.csv", index=False)
        (place / f"{number}.json").write_text(json.dumps(row) + "\n")
        columns = (
            "".join(name.ljust(20) for name in row),
            "".join(v.ljust(20) for v in row.values()),
        )
        (place / f"{number}.fwf").write_text("\n".join(columns) + "\n")
    return place


def frames(pipeline):
    return pipeline | beam.Create([pd.DataFrame([ROW]), pd.DataFrame([TURNED])])


NONE = pd.DataFrame([ROW])[:0]
BY_POSITION = {
    "parquet": lambda p, files: p | beam.io.ReadFromParquet(f"{files}/*.parquet", as_rows=True),
    "csv": lambda p, files: p | beam.io.ReadFromCsv(f"{files}/*.csv"),
    "json": lambda p, files: p | beam.io.ReadFromJson(f"{files}/*.json"),
    "fixed width": lambda p, files: convert.to_pcollection(
        p | frames_io.read_fwf(f"{files}/*.fwf")
    ),
    "frames": lambda p, _: frames(p) | UnbatchPandas(NONE),
    "transformed frames": lambda p, _: (
        frames(p) | DataframeTransform(lambda frame: frame, proxy=NONE)
    ),
}


def test_beam_still_exchanges_users_and_texts_so_that_the_check_is_needed(folder):
    """If this fails, this version of Beam pairs by name for a source, and the check may go for it."""
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        for number, source in enumerate(list(BY_POSITION.values())[:3]):
            part = pipeline | f"{number}" >> beam.ptransform_fn(source)(str(folder))
            users = part | f"{number}: users" >> beam.Map(lambda row: row.user)
            assert_that(users, equal_to([USER, TEXT]), label=f"{number}: exchanged")


@pytest.mark.parametrize("source", BY_POSITION)
def test_rows_that_are_paired_by_position_are_refused(folder, source):
    rows = BY_POSITION[source](beam.Pipeline(runner=FnApiRunner()), str(folder))
    with pytest.raises(ValueError, match=f"{REFUSED}.* ReadDocuments") as caught:
        _ = rows | BatchDocuments()
    assert USER not in str(caught.value)


def sources_by_name(pipeline, folder):
    """Sources that read by name, or whose rows have their names from the beginning."""
    yield pipeline | "dicts" >> beam.io.ReadFromParquet(f"{folder}/*.parquet")
    yield pipeline | "tables" >> beam.io.ReadFromParquetBatched(f"{folder}/*.parquet")
    lines = pipeline | beam.io.ReadFromText(f"{folder}/*.json")
    yield lines | beam.Map(lambda line: beam.Row(**json.loads(line))).with_output_types(Row)
    both = [pipeline | f"{n}" >> beam.Create([beam.Row(**r)]) for n, r in enumerate((ROW, TURNED))]
    yield both | beam.Flatten() | beam.Reshuffle()


def test_sources_that_read_by_name_are_documents(folder):
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        for number, source in enumerate(sources_by_name(pipeline, folder)):
            batches = source | f"{number}: batch" >> BatchDocuments()
            rows = batches | f"{number}: rows" >> beam.FlatMap(lambda batch: batch.to_pylist())
            assert_that(rows, equal_to([ROW, ROW]), label=f"{number}: by name")


def csv_rows(pipeline, folder, label="csv"):
    return pipeline | label >> beam.io.ReadFromCsv(f"{folder}/*.csv")


def other_rows(pipeline):
    return pipeline | "others" >> beam.Create([beam.Row(**ROW)])


LATER_STEPS = {
    "map": lambda p, rows: rows | beam.Map(lambda row: (row.user, row.text)),
    "filter and shuffle": lambda p, rows: rows | beam.Filter(bool) | beam.Reshuffle(),
    "flatten": lambda p, rows: (other_rows(p), rows) | beam.Flatten(),
    "group": lambda p, rows: (
        rows
        | beam.Map(lambda row: (row.user, row.text))
        | beam.GroupByKey()
        | beam.FlatMap(lambda pair: [(pair[0], text) for text in pair[1]])
    ),
    "join": lambda p, rows: (
        {"a": rows | beam.Map(lambda r: (r.user, r.text)), "b": p | beam.Create([("a", "b")])}
        | beam.CoGroupByKey()
        | beam.FlatMap(lambda group: [(group[0], text) for text in group[1]["a"]])
    ),
    "sample": lambda p, rows: (
        rows | beam.combiners.Sample.FixedSizeGlobally(9) | beam.FlatMap(lambda found: found)
    ),
    "list": lambda p, rows: rows | beam.combiners.ToList() | beam.FlatMap(lambda found: found),
    "side input": lambda p, rows: (
        p
        | "one" >> beam.Create([0])
        | beam.FlatMap(lambda _, found: found, beam.pvalue.AsList(rows))
    ),
    "composite": lambda p, rows: (
        rows | "around" >> beam.ptransform_fn(lambda r: r | beam.Map(lambda row: row))()
    ),
}


@pytest.mark.parametrize("steps", LATER_STEPS)
def test_later_steps_do_not_hide_the_source(folder, steps):
    pipeline = beam.Pipeline(runner=FnApiRunner())
    documents = LATER_STEPS[steps](pipeline, csv_rows(pipeline, folder))
    with pytest.raises(ValueError, match=f"{REFUSED} ReadFromCsv.*csv/"):
        _ = documents | PrivateNgrams(plan=PrivacyPlan(epsilon=1, delta=1e-6))
