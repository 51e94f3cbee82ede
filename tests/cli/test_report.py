"""`beam-dpne report`: its file, what it refuses, and that it changes nothing in a release."""

import re
import shutil

import jsonschema
import pytest
import yaml

from beam_dpne.report.registry import registry_schema
from tests.report import releases


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A release that no test changes."""
    rows = [(1, "tea", 9.5), (1, "rye", 9.0), (2, "rye tea", 8.0)]
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


@pytest.mark.parametrize(
    ("given", "name"), [((), "report.html"), (("--format", "markdown"), "report.md")]
)
def test_a_report_has_a_name_by_default(cli, folder, tmp_path, monkeypatch, given, name):
    monkeypatch.chdir(tmp_path)
    ended = cli("report", folder, *given, "--quiet")
    assert (ended.status, ended.err) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("name", "given", "start"),
    [
        ("page.MD", (), "# "),
        ("page.txt", (), "<!DOCTYPE html>"),
        ("pagemd", (), "<!DOCTYPE html>"),
        ("page.md", ("--format", "html"), "<!DOCTYPE html>"),
        ("page.html", ("--format", "markdown"), "# "),
    ],
)
def test_the_name_of_a_report_tells_its_format(cli, folder, tmp_path, name, given, start):
    assert cli("report", folder, "--output", tmp_path / name, *given).status == 0
    assert (tmp_path / name).read_text().startswith(start)


def test_the_options_reach_the_report(cli, folder, tmp_path):
    page = tmp_path / "page.html"
    given = ("--public", "--leave_out", "questions,unit", "--search_rows", 2, "--top_rows", 1)
    assert cli("report", folder, "--output", page, *given).status == 0
    text = page.read_text()
    assert "1 row is left out, since the limit is 2" in text
    assert "N-grams of 1 word: 1 of 2" in text
    for gone in ("customer", "ask@example.com", "For the operator", "NIST"):
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
        ((), "release must be given: beam-dpne report RELEASE."),
        (("{folder}", "more"), "has no option more, and takes one RELEASE"),
        (("{folder}", "--runner=x"), "has no option --runner, and takes one RELEASE"),
        (("{folder}/none",), "does not exist: there is no release"),
        (("{folder}", "--leave_out", "guarantee"), "leave_out must name parts among title,"),
        (("{folder}", "--top_rows", -1), "top_rows must be at least 0, got top_rows=-1."),
        (("{folder}", "--search_rows", -1), "search_rows must be at least 0"),
        (("{folder}", "--format", "pdf"), "invalid choice: 'pdf'"),
        (("{folder}", "--output", "{folder}/page.html"), "output must be outside every release"),
        (
            ("{folder}", "--output", "{folder}/deep/page.html"),
            "output must be outside every release",
        ),
        (("{folder}", "--output", "reports/"), "output must be the path of a file"),
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
    folder = releases.items(tmp_path / "release", ["canary"])
    (part,) = folder.glob("items-*")
    whole = part.read_bytes()
    for change, message in (
        (lambda: part.write_bytes(whole[:-2] + b" \n"), "has another SHA-256"),
        (part.unlink, "The release is incomplete: part items-"),
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
            "has schema 'beam_dpne/ledger/99'; this version reads beam_dpne/ledger/1 and "
            "beam_dpne/ledger/2. Install a newer version of beam-dpne to read it.",
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
        ended = cli(*command, "--output", tmp_path / "made")
        assert ended.status == 2
        assert message in ended.err
        assert "canary" not in ended.err
        assert not (tmp_path / "made").exists()


def test_a_file_that_cannot_be_written_is_named(cli, folder, tmp_path):
    (tmp_path / "file").write_text("")
    ended = cli("report", folder, "--output", tmp_path / "file" / "page.html")
    assert ended.status == 2
    assert "output must be a file that can be written" in ended.err


RECORD = (
    *("--curator", "Example Ltd", "--curator_type", "Industry", "--region", "Global"),
    *("--intended_use", "Autocompletion.", "--publication_date", "2026-11-22"),
    *("--author", "A. Author", "--author", "B. Author, Jr."),
)


def test_a_record_for_the_registry_is_valid_and_comes_beside_the_report(cli, folder, tmp_path):
    page, file = tmp_path / "page.html", tmp_path / "record.yaml"
    ended = cli("report", folder, "--output", page, "--registry", file, *RECORD)
    assert ended.status == 0
    assert "The registry wants the name tickets_co.yaml." in re.sub(r"\s+", " ", ended.err)
    record = yaml.safe_load(file.read_bytes())
    jsonschema.Draft7Validator(registry_schema()).validate(record)
    deployment = record["deployment"]
    assert deployment["basic"]["name"] == "Tickets & co"
    assert deployment["administrative"]["registry_authors"] == ["A. Author", "B. Author, Jr."]
    assert page.exists()


def test_what_is_left_out_of_the_report_is_left_out_of_the_record(cli, folder, tmp_path):
    page, file = tmp_path / "page.html", tmp_path / "record.yaml"
    given = ("--output", page, "--registry", file, *RECORD, "--product_name", "P", "--public")
    assert cli("report", folder, *given).status == 0
    text = file.read_text()
    assert "customer_number" not in text
    assert "private_tokens" not in text
    assert "Tickets" not in text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ("--registry", "r.yaml"),
            "Give also --curator NAME, --curator_type Government|Industry|Nonprofit, --intended_use "
            "TEXT, --region REGION, --publication_date YYYY-MM-DD, --author NAME.",
        ),
        (("--registry", "r.yaml", *RECORD[2:]), "Give also --curator NAME."),
        (
            ("--registry", "r.yaml", *RECORD, "--publication_date", "soon"),
            "publication_date must be a date as YYYY-MM-DD, got publication_date=soon.",
        ),
        (("--registry", "r.yaml", "--curator_type", "Company"), "invalid choice: 'Company'"),
        (("--registry", "r.yaml", "--sector", "Shops"), "invalid choice: 'Shops'"),
        (("--curator", "X"), "curator must come with --registry FILE"),
        (("--registry", "report.html", *RECORD), "registry and output must be different files"),
        (("--registry", "there/", *RECORD), "registry must be the path of a file"),
        (("--registry", "{folder}/r.yaml", *RECORD), "registry must be outside every release"),
    ],
)
def test_a_record_that_is_not_whole_is_refused_and_nothing_is_written(
    cli, folder, tmp_path, monkeypatch, given, message
):
    monkeypatch.chdir(tmp_path)
    before = contents(folder)
    ended = cli("report", folder, *(each.format(folder=folder) for each in given))
    assert ended.status == 2
    assert message in ended.err
    assert not list(tmp_path.iterdir())
    assert contents(folder) == before


def test_missing_facts_are_named_before_a_report_that_exists(cli, folder, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("mine")
    ended = cli("report", folder, "--output", page, "--registry", tmp_path / "record.yaml")
    assert ended.status == 2
    assert "registry needs facts that no ledger has" in ended.err
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_a_record_that_exists_is_replaced_only_if_that_is_asked_for(cli, folder, tmp_path):
    page, file = tmp_path / "page.html", tmp_path / "record.yaml"
    file.write_text("mine")
    given = ("report", folder, "--output", page, "--registry", file, *RECORD)
    ended = cli(*given)
    assert ended.status == 2
    assert "registry must be a new file" in ended.err
    assert (file.read_text(), page.exists()) == ("mine", False)
    assert cli(*given, "--overwrite").status == 0
    assert file.read_text().startswith("url_slug")
