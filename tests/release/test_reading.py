"""A release that is read back: complete or refused, and rows that are read when they are asked for."""

import json

import pytest

from beam_dpne import Release, read_release
from beam_dpne.elements.rows import ITEM_SCHEMA
from beam_dpne.errors import ReleaseError
from beam_dpne.release.parts import OUTPUT_FORMATS
from tests.support import releases

ROWS = {"canary": 9.5, "tea": 8.25, "rye\tbread": 7.0}


@pytest.fixture(params=OUTPUT_FORMATS)
def folder(request, tmp_path):
    """A release in two parts."""
    form = {"output_format": request.param, "rows_per_part": 2}
    return releases.items(tmp_path / "release", ROWS, **form)


def test_a_release_gives_its_ledger_and_its_rows(folder):
    release = read_release(str(folder))
    assert isinstance(release, Release)
    assert (release.path, release.program, release.num_rows) == (str(folder), "set-union", 3)
    assert release.ledger == json.loads((folder / "ledger.json").read_text())
    assert [part.rows for part in release.parts] == [2, 1]
    assert release.table().schema.equals(ITEM_SCHEMA)
    assert dict(release.to_pandas().itertuples(index=False, name=None)) == ROWS
    assert "canary" not in repr(release)
    release.verify()


@pytest.mark.parametrize("ending", ["", "/", "/ledger.json"])
def test_a_release_is_named_by_its_directory_or_its_ledger(folder, ending):
    assert read_release(f"{folder}{ending}").path == str(folder)


def test_a_relative_path_stays_one(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert read_release("ledger.json").path == "."
    assert len(read_release(".").table()) == 3


def test_a_missing_part_is_noticed_before_any_row_is_read_and_afterwards(folder):
    release = read_release(str(folder))
    (folder / release.parts[1].name).unlink()
    for read in (lambda: read_release(str(folder)), release.table, release.verify):
        with pytest.raises(ReleaseError, match=r"incomplete: part items-.* is missing"):
            read()


@pytest.mark.parametrize("change", [lambda data: data + b"\n", lambda data: b"canary"])
def test_every_byte_counts(folder, change):
    part = folder / read_release(str(folder)).parts[0].name
    part.write_bytes(change(part.read_bytes()))
    release = read_release(str(folder))
    assert release.num_rows == 3
    for read in (release.table, release.to_pandas, release.verify):
        with pytest.raises(ReleaseError, match=r"damaged: part .* has another SHA-256") as refusal:
            read()
        assert "canary" not in str(refusal.value)


def test_a_part_that_does_not_parse_is_not_quoted(tmp_path):
    folder = releases.items(tmp_path, ROWS)
    ledger = json.loads((folder / "ledger.json").read_text())
    part = folder / ledger["parts"][0]["name"]
    part.write_bytes(data := part.read_bytes().replace(b"9.5", b'"9"'))
    ledger["parts"][0] |= releases.sums(data)
    (folder / "ledger.json").write_text(json.dumps(ledger))
    with pytest.raises(ReleaseError, match="cannot be read: ArrowInvalid") as refusal:
        read_release(str(folder)).table()
    assert "canary" not in str(refusal.value)


def test_without_a_whole_ledger_there_is_no_release(folder):
    ledger = (folder / "ledger.json").read_bytes()
    (folder / "ledger.json").write_bytes(ledger[: len(ledger) // 2])
    with pytest.raises(ReleaseError, match="is not a ledger of beam_dpne"):
        read_release(str(folder))
    (folder / "ledger.json").unlink()
    with pytest.raises(ReleaseError, match="does not exist: there is no release"):
        read_release(str(folder))
