"""Tables of Delta and Iceberg are read at one version; rows that were deleted are not there."""

import datetime
import json
import pathlib
import sys
from collections.abc import Callable

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import StringType

from beam_dpne.errors import InputError
from beam_dpne.reading.files import match_inputs, patterns_of
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.records import check_fields
from beam_dpne.reading.table_versions import version_at
from tests.engines.conftest import release_bytes
from tests.reading.files import read, write

ROWS = pa.table(
    {
        "user": ["ann", "bob", "eve", "kim"],
        "text": ["to be", "or not", "good day", "good bye"],
        "country": ["dk", "dk", "se", "c e"],
    }
)
LEFT = [("ann", "to be"), ("eve", "good day"), ("kim", "good bye")]


def delta(folder: pathlib.Path, rows: pa.Table = ROWS) -> str:
    """Makes a table without bob; returns the path by which it is read."""
    path = str(folder / "v1.2 of_delta.d")
    write_deltalake(path, rows, partition_by=["country"])
    DeltaTable(path).delete("text = 'or not'")
    return path


def iceberg(folder: pathlib.Path, rows: pa.Table = ROWS) -> str:
    """Makes such a table of Iceberg, one of whose columns got another name after it was written."""
    (folder / "lake").mkdir()
    catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/lake")
    catalog.create_namespace("a")
    renamed = rows.rename_columns(["user", "body", "country"])
    table = catalog.create_table("a.of_iceberg", schema=renamed.schema)
    table.append(renamed.slice(0, 2))
    table.append(renamed.slice(2))
    table.delete("user = 'bob'")
    with table.update_schema() as update:
        update.rename_column("body", "text")
        update.add_column("mood", StringType())
    catalog.engine.dispose()
    return table.metadata_location.removeprefix("file://")


TABLES = {"Delta": delta, "Iceberg": iceberg}


@pytest.mark.parametrize("make", TABLES.values(), ids=TABLES)
def test_a_table_is_read_as_it_is_now(tmp_path, make: Callable[[pathlib.Path], str]) -> None:
    path = make(tmp_path)
    for sizes in ({}, {"block_bytes": 1, "split_bytes": 1}):
        rows, rejects = read([path], **sizes)
        assert (sorted(rows), rejects) == (LEFT, [])
    rows, _ = read([path], user_field="country", where="country=dk,c e")
    assert sorted(rows) == [("c e", "good bye"), ("dk", "to be")]
    files = match_inputs([path])
    check_fields(files, ReadOptions())
    with pytest.raises(InputError, match="Did you mean text"):
        check_fields(files, ReadOptions(text_field="texts"))


@pytest.mark.parametrize("make", TABLES.values(), ids=TABLES)
def test_a_version_stays_the_same_one_when_the_table_changes(tmp_path, make) -> None:
    """Forks and workers of engines list the table again, perhaps after a commit."""
    path = make(tmp_path)
    files = match_inputs([path])
    patterns = set(patterns_of(files))
    if make is delta:
        assert patterns == {f"{path}@v1"}
        DeltaTable(path).delete("text = 'good day'")
        assert sorted(read([path])[0]) == [LEFT[0], LEFT[2]]
    else:
        assert patterns == {path}
    assert match_inputs(sorted(patterns)) == files
    assert sorted(read(sorted(patterns))[0]) == LEFT


def test_a_column_that_is_newer_than_a_file_of_delta_is_null_in_it(tmp_path) -> None:
    path = delta(tmp_path)
    new = pa.table({"user": ["new"], "text": ["x"], "country": ["dk"], "mood": ["glad"]})
    write_deltalake(path, new, mode="append", schema_mode="merge")
    rows, rejects = read([path], text_field=["text", "mood"])
    assert (sorted(rows), rejects) == (sorted([*LEFT, ("new", "glad"), ("new", "x")]), [])
    rows, rejects = read([path], text_field="mood")
    assert (rows, len(rejects)) == ([("new", "glad")], 3)


def test_partitions_of_delta_are_text_as_in_folders_of_other_data(tmp_path) -> None:
    days = pa.array([datetime.date(2026, 1, 5), None])
    columns = {"user": ["ann", "bob"], "text": ["to be"] * 2, "n": [7, 8], "day": days}
    path = str(tmp_path / "table")
    write_deltalake(path, pa.table(columns), partition_by=["n", "day"])
    assert read([path], user_field="n", where="text=to be")[0] == [("7", "to be"), ("8", "to be")]
    rows, rejects = read([path], user_field="day")
    assert (rows, len(rejects)) == ([("2026-01-05", "to be")], 1)


def test_features_of_delta_that_are_not_read_are_refused(tmp_path) -> None:
    path = delta(tmp_path)
    log = pathlib.Path(path, "_delta_log", "00000000000000000002.json")
    feature = {"minReaderVersion": 3, "minWriterVersion": 7}
    feature |= {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    write(log, json.dumps({"protocol": feature}))
    with pytest.raises(InputError, match="deletion vectors"):
        match_inputs([path])
    assert sorted(read([f"{path}@v1"])[0]) == LEFT


@pytest.mark.parametrize(
    ("make", "module", "extra"),
    [(delta, "deltalake", "delta"), (iceberg, "pyiceberg.table", "iceberg")],
)
def test_without_its_library_a_table_is_refused(
    tmp_path, monkeypatch, make, module: str, extra: str
) -> None:
    path = make(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"pip install '\.\[{extra}\]'.*export"):
        match_inputs([path])


def test_versions_that_do_not_exist_and_folders_of_iceberg_are_refused(tmp_path) -> None:
    path = delta(tmp_path)
    with pytest.raises(InputError, match="The version does not exist"):
        match_inputs([f"{path}@v9"])
    metadata = iceberg(tmp_path)
    with pytest.raises(InputError, match="metadata file, which its catalog knows"):
        match_inputs([metadata.partition("/metadata/")[0]])
    (tmp_path / "notes@v2").mkdir()
    assert version_at(str(tmp_path / "notes@v2")) is None


@pytest.mark.parametrize("make", TABLES.values(), ids=TABLES)
def test_a_table_gives_one_release_on_this_machine_and_on_beam(cli, tmp_path, make) -> None:
    people = ["bob", *[f"p{n}" for n in range(399)]]
    columns = {
        "user": people,
        "text": ["or not", *["good morning"] * 399],
        "country": ["dk", "se"] * 200,
    }
    path = make(tmp_path, pa.table(columns))
    write(tmp_path / "run.key", "5eed" * 16)
    given = ("--epsilon", "10", "--delta", "1e-4", "--run_key_file", tmp_path / "run.key")
    releases = []
    for runner in (
        ("--workers", 1),
        ("--workers", 2),
        ("--workers", 7),
        ("--runner", "DirectRunner"),
    ):
        output = tmp_path / "-".join(map(str, runner))
        ended = cli("ngrams", "--input", path, *given, "--output", output, *runner)
        assert ended.status == 0, ended.err
        releases.append(release_bytes(output))
    assert releases == releases[:1] * 4
    ledger = (output / "ledger.json").read_text()
    assert "@v" not in ledger
    assert "metadata" not in ledger
