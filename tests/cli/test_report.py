"""`beam-dpne report`: its file, what it refuses, and that it changes nothing in a release."""

import re
import shutil

import pytest

from tests.support import releases


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A release that no test changes."""
    rows = {("tea",): 9.5, ("rye",): 9.0, ("rye", "tea"): 8.0}
    return releases.ngrams(tmp_path_factory.mktemp("report") / "release", rows)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_report_is_one_file_and_the_release_stays_as_it_is(cli, folder, tmp_path):
    before = contents(folder)
    page = tmp_path / "new" / "page.html"
    ended = cli("report", folder, "--output", page)
    assert (ended.status, ended.out) == (0, "")
    assert f"the report is in {page}" in re.sub(r"\s+", " ", ended.err)
    assert [path.name for path in page.parent.iterdir()] == ["page.html"]
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert contents(folder) == before


def test_equal_releases_give_equal_files(cli, folder, tmp_path):
    for name in ("a.html", "b.html"):
        assert cli("report", f"{folder}/ledger.json", "--output", tmp_path / name).status == 0
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_a_report_has_a_name_by_default(cli, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = cli("report", folder)
    assert (ended.status, ended.err) == (0, "beam-dpne: the report is in report.html.\n")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("name", "start"),
    [("page.MD", "# "), ("page.htm", "<!DOCTYPE html>")],
)
def test_the_name_of_a_report_tells_its_format(cli, folder, tmp_path, name, start):
    assert cli("report", folder, "--output", tmp_path / name).status == 0
    assert (tmp_path / name).read_text().startswith(start)


def test_the_options_reach_the_report(cli, folder, tmp_path):
    page = tmp_path / "page.html"
    given = ("--public", "--leave_out", "parameters,unit")
    assert cli("report", folder, "--output", page, *given).status == 0
    text = page.read_text()
    for gone in ("customer", "ask@example.com", "For the operator"):
        assert gone not in re.sub(r"<h2>About.*", "", text, flags=re.DOTALL), gone


def test_a_report_is_replaced_only_if_that_is_asked_for(cli, folder, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("mine")
    ended = cli("report", folder, "--output", page)
    assert ended.status == 2
    assert "output must be a new file" in ended.err
    assert page.read_text() == "mine"
    assert cli("report", folder, "--output", page, "--overwrite").status == 0
    assert "<h1" in page.read_text()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((), "RELEASE must be given"),
        (("{folder}", "more"), "there is no argument more"),
        (("{folder}", "--runner=x"), "there is no option --runner"),
        (("{folder}/none",), "does not exist: there is no release"),
        (
            ("{folder}", "--leave_out", "guarantee"),
            "leave_out must be some of",
        ),
        (("{folder}", "--output", "{folder}/page.html"), "output must be outside every release"),
        (
            ("{folder}", "--output", "{folder}/deep/page.html"),
            "output must be outside every release",
        ),
        (("{folder}", "--output", "reports/"), "output must end in .html"),
        (("{folder}", "--output", "page.pdf"), "output must end in .html"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(
    cli, folder, tmp_path, monkeypatch, given, message
):
    monkeypatch.chdir(tmp_path)
    before = contents(folder)
    ended = cli("report", *(str(each).format(folder=folder) for each in given))
    assert ended.status == 2
    assert message in ended.err
    assert len(ended.err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())
    assert contents(folder) == before


def test_a_release_without_a_part_or_with_changed_rows_has_no_report(cli, tmp_path):
    folder = releases.items(tmp_path / "release", {"canary": 9})
    (part,) = folder.glob("items-*")
    whole = part.read_bytes()
    for change, message in (
        (lambda: part.write_bytes(whole[:-2] + b" \n"), "has another SHA-256"),
        (part.unlink, "is incomplete: part items-"),
    ):
        change()
        ended = cli("report", folder, "--output", tmp_path / "page.html")
        assert ended.status == 2
        assert message in ended.err
        assert "canary" not in ended.err
        assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"schema": "beam_dpne/ledger/99"}',
            "has schema 'beam_dpne/ledger/99'; this version reads beam_dpne/ledger/",
        ),
        ('{"schema": "other/1"}', "is not a ledger of beam_dpne"),
        ("canary {", "is not a ledger of beam_dpne"),
    ],
)
def test_a_ledger_of_another_schema_has_no_report_and_no_export(
    cli, folder, tmp_path, text, message
):
    copy = shutil.copytree(folder, tmp_path / "release")
    (copy / "ledger.json").write_text(text)
    for command in (("report", copy), ("export", copy, "--to", "csv")):
        ended = cli(*command, "--output", tmp_path / "made.html")
        assert ended.status == 2
        assert message in ended.err
        assert "canary" not in ended.err
        assert not (tmp_path / "made.html").exists()


def test_a_file_that_cannot_be_written_is_named(cli, folder, tmp_path):
    (tmp_path / "file").write_text("")
    ended = cli("report", folder, "--output", tmp_path / "file" / "page.html")
    assert ended.status == 2
    assert "output must be where a file can be written" in ended.err
