"""The recipes of pipelines/tables for files: run on the sample, and refused before anything runs."""

import argparse
import gzip
import hashlib
import json
import pathlib
import types

import apache_beam as beam
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import NgramsPlan, PrivateNgrams, ReleasedNgram, RunKey, WriteRelease, read_release
from beam_dpne.errors import ReleaseError, UsageError
from beam_dpne.reading.options import ReadOptions
from pipelines.tables import avro_folder, parquet_folder
from pipelines.tables.launch import launch
from tests.conftest import ROOT

SAMPLE = ROOT / "pipelines" / "data" / "reddit_titles_sample.jsonl.gz"
KEY = "5eed" * 16
PLAN = NgramsPlan(epsilon=4, delta=1e-6, max_length=2)
BUDGET = ("--epsilon", 4, "--delta", 1e-6, "--max_length", 2)
AVRO = {
    "type": "record",
    "name": "Message",
    "fields": [
        {"name": "text", "type": ["null", "string"]},
        {"name": "year", "type": "int"},
        {"name": "user", "type": "string"},
    ],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """The sample as two Parquet and two Avro files, with another column."""
    folder = tmp_path_factory.mktemp("tables")
    lines = gzip.decompress(SAMPLE.read_bytes()).splitlines()
    rows = [{"year": 2026, **json.loads(line)} for line in lines]
    for number in range(2):
        part = rows[number::2]
        pq.write_table(pa.Table.from_pylist(part), folder / f"{number}.parquet")
        with (folder / f"{number}.avro").open("wb") as file:
            fastavro.writer(file, AVRO, part)
    return folder


@pytest.fixture(scope="module")
def programs_release(folder, cli) -> list[tuple]:
    """The rows that `beam-dpne ngrams` releases from the Parquet files under a key."""
    (folder / "run.key").write_text(KEY)
    ended = cli(
        *("ngrams", "--input", f"{folder}/*.parquet", "--output", folder / "program"),
        *(*BUDGET, "--run_key_file", folder / "run.key", "--quiet"),
    )
    assert ended.status == 0, ended.err
    table = read_release(str(folder / "program")).table()
    assert table.num_rows > 300
    return rows_of(table)


def rows_of(table: pa.Table) -> list[tuple]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


def avro_table(folder: pathlib.Path) -> pa.Table:
    rows = []
    for path in sorted(folder.glob("*.avro")):
        with path.open("rb") as file:
            rows += fastavro.reader(file)
    return pa.Table.from_pylist(rows)


def parquet_table(folder: pathlib.Path) -> pa.Table:
    paths = sorted(folder.glob("*.parquet"))
    return pa.concat_tables([pq.read_table(path) for path in paths])


READERS = {"parquet": parquet_table, "avro": avro_table}
RECIPES = {"parquet": parquet_folder, "avro": avro_folder}


@pytest.mark.parametrize("kind", RECIPES)
def test_a_recipe_releases_the_rows_of_the_program_under_one_key(
    folder, programs_release, tmp_path, kind
):
    """The key is bound to how records became documents, which is the same for both here."""
    paths = [str(path) for path in folder.glob("*.parquet")]
    options = argparse.Namespace(
        input=f"{folder}/*.{kind}",
        output=str(tmp_path / "out"),
        user_field="user",
        text_field="text",
    )
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        documents = RECIPES[kind].read(pipeline, options)
        result = documents | PrivateNgrams(
            plan=PLAN, run_key=RunKey.from_hex(KEY), described=ReadOptions().describe(paths)
        )
        RECIPES[kind].write(result, options)
    rows = READERS[kind](tmp_path / "out")
    assert rows_of(rows) == programs_release
    ledger = json.loads((tmp_path / "out" / "ledger.json").read_text())
    assert ledger["rows"]["count"] == rows.num_rows
    whole = (folder / "program").glob("ngrams-*.jsonl")
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(whole)))
    assert ledger["rows"]["sha256"] == digest.hexdigest()


@pytest.fixture(scope="module")
def greetings(tmp_path_factory) -> pathlib.Path:
    """300 users who say the same, under other names of fields."""
    folder = tmp_path_factory.mktemp("greetings")
    rows = [{"customer": f"c{i}", "message": "See you soon!"} for i in range(300)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "messages.parquet")
    return folder


def run_recipe(recipe: types.ModuleType, *arguments: object) -> int:
    return launch(recipe.read, recipe.write, recipe.__doc__, [str(each) for each in arguments])


def test_a_table_with_its_ledger_becomes_a_release(greetings, tmp_path):
    fields = ("--user_field", "customer", "--text_field", "message")
    output = tmp_path / "table"
    given = ("--input", greetings / "*.parquet", "--output", output, *BUDGET, *fields)
    assert run_recipe(parquet_folder, *given) == 0
    assert sorted(path.name for path in output.iterdir()) == [
        "ledger.json",
        "ngrams-00000-of-00001.parquet",
    ]
    ledger = (output / "ledger.json").read_text()
    assert json.loads(ledger)["guarantee"]["user"] == (
        'each value of the field "customer" is one user'
    )
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        rows = pipeline | beam.io.ReadFromParquet(f"{output}/ngrams-*", as_rows=True)
        both = {"rows": rows, "ledger": pipeline | beam.Create([ledger])}
        _ = both | WriteRelease(output=str(tmp_path / "release"))
    release = read_release(str(tmp_path / "release"))
    assert rows_of(release.table()) == rows_of(parquet_table(output))
    assert "you soon" in release.table()["ngram"].to_pylist()


def test_an_existing_output_is_refused_before_anything_is_read(greetings, tmp_path):
    (tmp_path / "file").write_text("mine")
    fields = ("--user_field", "customer", "--text_field", "message")
    given = ("--input", greetings / "*.parquet", "--output", tmp_path, *BUDGET, *fields)
    with pytest.raises(ReleaseError, match="`output` must be an empty or new directory"):
        run_recipe(parquet_folder, *given)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


NO_AVRO_FIELD = (avro_folder, "avro", r"`user_field` must name a field")
NO_COLUMN = (
    parquet_folder,
    "parquet",
    r"`user_field` must name a field.* Did you mean user\?",
)


@pytest.mark.parametrize(("recipe", "kind", "said"), [NO_AVRO_FIELD, NO_COLUMN])
def test_a_missing_field_is_refused_before_anything_runs(recipe, kind, said, folder, tmp_path):
    given = ("--input", f"{folder}/*.{kind}", "--output", tmp_path / "out", *BUDGET)
    with pytest.raises(ValueError, match=said):
        run_recipe(recipe, *given, "--user_field", "usr")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("orders", [["text", "user"], ["user", "text", "user"]])
def test_columns_in_another_order_are_read_by_name(tmp_path, orders):
    """One user with many texts must not become many users, whatever the order of each file."""
    (tmp_path / "in").mkdir()
    for number, first in enumerate(orders):
        users = ["alice" if i % 2 else f"u{number}.{i}" for i in range(300)]
        texts = [f"only alice {i}" if i % 2 else "good morning" for i in range(300)]
        columns = {"user": users, "text": texts}
        names = sorted(columns, key=lambda name: name != first)
        table = pa.table({name: columns[name] for name in names})
        pq.write_table(table, tmp_path / "in" / f"{number}.parquet")
    given = ("--input", f"{tmp_path}/in/*.parquet", "--output", tmp_path / "out", *BUDGET)
    assert run_recipe(parquet_folder, *given) == 0
    found = {row[1] for row in rows_of(parquet_table(tmp_path / "out"))}
    assert found >= {"good", "morning", "good morning"}
    # Another pair of the two words may be spurious.
    assert {word for ngram in found for word in ngram.split()} == {"good", "morning"}


def test_a_misspelt_option_is_refused(folder, tmp_path):
    given = ("--input", f"{folder}/*.avro", "--output", tmp_path / "out", *BUDGET)
    with pytest.raises(UsageError, match="max_lenght"):
        run_recipe(avro_folder, *given, "--max_lenght", 3)


@pytest.mark.parametrize("kind", RECIPES)
def test_without_its_rows_there_is_no_ledger(tmp_path, kind):
    options = argparse.Namespace(output=str(tmp_path / "out"))
    pipeline = beam.Pipeline(FnApiRunner())
    rows = pipeline | beam.Create([1]) | beam.Map(fail).with_output_types(ReleasedNgram)
    ledger = pipeline | "Ledger" >> beam.Create(["{}"])
    RECIPES[kind].write(types.SimpleNamespace(rows=rows, ledger=ledger), options)
    with pytest.raises(Exception, match="this row fails"):
        pipeline.run()
    assert not list((tmp_path / "out").glob("ledger*"))


def fail(_: int) -> ReleasedNgram:
    raise ValueError("this row fails")
