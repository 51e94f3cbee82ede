"""A release that is read back: complete or refused, and rows that are read when they are asked for."""

import json
import re
import sys

import numpy as np
import pyarrow as pa
import pytest

import beam_dpne
from beam_dpne import PrivateSetUnionResult, Release, SetUnionPlan, read_release
from beam_dpne.elements.rows import COUNTED_ITEM_SCHEMA, ITEM_SCHEMA
from beam_dpne.errors import ReleaseError
from beam_dpne.release.files import OUTPUT_FORMATS
from beam_dpne.release.ledger import Run
from beam_dpne.release.notes import NO_NOTES
from beam_dpne.release.publishing import publish_release
from beam_dpne.release.result import described
from beam_dpne.set_union.elements import ItemSet

PLAN = SetUnionPlan(epsilon=1, delta=1e-7, policy="weighted_gaussian", count_share=0)
COUNTED = SetUnionPlan(epsilon=1, delta=1e-7, policy="weighted_gaussian")
ROWS = [("canary", 9.5), ("tea", 8.25), ("rye\tbread", 7.0)]


@pytest.fixture(params=OUTPUT_FORMATS)
def folder(request, tmp_path):
    """A release in two parts."""
    items, scores = zip(*ROWS, strict=True)
    found = ItemSet(items=pa.array(items), scores=np.array(scores), report=PLAN.report())
    run = Run(plan=PLAN, tokenizer="tokens", run_key_given=False)
    whole = described(PrivateSetUnionResult.form, run, [found], NO_NOTES)
    settings = {"output_format": request.param, "rows_per_part": 2}
    publish_release(whole, output=str(tmp_path / "release"), **settings)
    return tmp_path / "release"


@pytest.mark.parametrize("output_format", OUTPUT_FORMATS)
def test_numbers_of_users_are_read_as_they_were_written(tmp_path, output_format):
    items, scores = zip(*ROWS, strict=True)
    users = np.array([[7, 5, 9], [2**40, 1, 2**41], [7, 0, 8]])
    found = ItemSet(
        items=pa.array(items), scores=np.array(scores), users=users, report=COUNTED.report()
    )
    run = Run(plan=COUNTED, tokenizer="tokens", run_key_given=False)
    whole = described(PrivateSetUnionResult.form, run, [found], NO_NOTES)
    output = str(tmp_path / "release")
    publish_release(whole, output=output, output_format=output_format, rows_per_part=2)
    release = read_release(output)
    assert release.table().schema.equals(COUNTED_ITEM_SCHEMA)
    assert [tuple(row.values()) for row in release.table().to_pylist()] == [
        ("tea", 8.25, 2**40, 1, 2**41),
        ("canary", 9.5, 7, 5, 9),
        ("rye\tbread", 7.0, 7, 0, 8),
    ]


def test_a_release_gives_its_ledger_and_its_rows(folder):
    release = read_release(str(folder))
    assert isinstance(release, Release)
    assert (release.path, release.program, release.num_rows) == (str(folder), "set-union", 3)
    assert release.ledger == json.loads((folder / "ledger.json").read_text())
    assert [part.rows for part in release.parts] == [2, 1]
    assert release.table().schema.equals(ITEM_SCHEMA)
    assert [tuple(row.values()) for row in release.table().to_pylist()] == ROWS
    assert list(release.to_pandas().itertuples(index=False, name=None)) == ROWS
    release.verify()


@pytest.mark.parametrize("ending", ["", "/", "/ledger.json"])
def test_a_release_is_named_by_its_directory_or_its_ledger(folder, ending):
    assert read_release(f"{folder}{ending}").path == str(folder)


def test_a_relative_path_stays_one(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert read_release("ledger.json").path == "."
    assert read_release(".").num_rows == len(read_release("ledger.json").table()) == 3


def test_its_text_shows_no_row(folder):
    assert "canary" not in repr(read_release(str(folder)))


@pytest.mark.parametrize("number", [0, 1])
def test_a_missing_part_is_noticed_before_any_row_is_read(folder, number):
    part = read_release(str(folder)).parts[number]
    (folder / part.name).unlink()
    with pytest.raises(ReleaseError, match=f"incomplete: part {part.name} is missing"):
        read_release(str(folder))


def test_a_part_that_is_deleted_later_is_missed_when_it_is_read(folder):
    release = read_release(str(folder))
    (folder / release.parts[1].name).unlink()
    for read in (release.table, release.to_pandas, release.verify):
        with pytest.raises(ReleaseError, match=r"incomplete: part items-.* is missing"):
            read()


def test_rows_are_not_read_before_they_are_asked_for(folder):
    part = read_release(str(folder)).parts[1]
    (folder / part.name).write_bytes(b"canary")
    release = read_release(str(folder))
    assert release.num_rows == 3
    for read in (release.table, release.to_pandas, release.verify):
        with pytest.raises(ReleaseError, match=r"damaged: part .* has another SHA-256") as refusal:
            read()
        assert "canary" not in str(refusal.value)


@pytest.mark.parametrize("change", [lambda data: data + b"\n", lambda data: data[:-1] + b"?"])
def test_every_byte_counts(folder, change):
    part = read_release(str(folder)).parts[0]
    (folder / part.name).write_bytes(change((folder / part.name).read_bytes()))
    with pytest.raises(ReleaseError, match="has another SHA-256"):
        read_release(str(folder)).verify()


def test_without_a_whole_ledger_there_is_no_release(folder):
    ledger = (folder / "ledger.json").read_bytes()
    (folder / "ledger.json").write_bytes(ledger[: len(ledger) // 2])
    with pytest.raises(ReleaseError, match="is not a ledger of beam_dpne"):
        read_release(str(folder))
    (folder / "ledger.json").unlink()
    with pytest.raises(ReleaseError, match="does not exist: there is no release"):
        read_release(str(folder))


def test_a_part_with_more_than_its_description_is_refused(folder):
    ledger = json.loads((folder / "ledger.json").read_text())
    ledger["parts"][1]["canary"] = 1
    (folder / "ledger.json").write_text(json.dumps(ledger))
    with pytest.raises(ReleaseError, match="damaged: 'parts' must list the files") as refusal:
        read_release(str(folder))
    assert "canary" not in str(refusal.value)


@pytest.mark.parametrize(
    "guarantee",
    [
        "{}",
        '{"epsilon": 1}',
        *(f'{{"epsilon": {value}, "delta": 1e-7}}' for value in ("0", "-1", "NaN", "Infinity")),
        *(f'{{"epsilon": {value}, "delta": 1e-7}}' for value in ("true", '"1"', "null", "[1]")),
        *(f'{{"epsilon": 1, "delta": {value}}}' for value in ("0", "-1e-7", "1", "NaN", "true")),
    ],
)
def test_a_ledger_whose_guarantee_has_no_budget_in_numbers_is_refused(folder, guarantee):
    ledger = json.loads((folder / "ledger.json").read_text())
    (folder / "ledger.json").write_text(json.dumps({**ledger, "guarantee": json.loads(guarantee)}))
    with pytest.raises(ReleaseError, match="'guarantee' must state epsilon above 0 and delta in"):
        read_release(str(folder))


def test_a_ledger_of_rows_without_files_is_no_release(folder):
    ledger = json.loads((folder / "ledger.json").read_text())
    del ledger["parts"]
    (folder / "ledger.json").write_text(json.dumps({**ledger, "rows": {"count": 3}}))
    with pytest.raises(ReleaseError, match="damaged: 'parts' is missing"):
        read_release(str(folder))


def test_data_frames_need_pandas_and_nothing_else_does(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    release = read_release(str(folder))
    assert len(release.table()) == 3
    with pytest.raises(ReleaseError, match=re.escape("needs the package pandas. Run pip install")):
        release.to_pandas()


def test_the_names_for_releases_are_public():
    names = {"Release", "ReleaseNotes", "WriteRelease", "read_release"}
    assert names <= set(beam_dpne.__all__)
