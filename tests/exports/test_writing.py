"""`beam-dpne export`: what it writes and where, what it refuses, and that nothing is half-written."""

import hashlib
import json
import os
import shutil

import pytest

from beam_dpne import PublicCounts
from beam_dpne.cli.options import options_of
from beam_dpne.cli.options_by_command import EXPORT
from beam_dpne.errors import ExportError, ReleaseError
from beam_dpne.exports.kinds import KINDS, Settings
from beam_dpne.exports.source import Source
from beam_dpne.exports.writing import BESIDE, export
from beam_dpne.release.reading import Release
from beam_dpne.storage.directories import LocalDirectory
from tests.exports.releases import (
    HOSTILE,
    hostile_ngrams,
    items_release,
    ngrams_release,
    probabilities_release,
    small_ngrams,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with one release of each program."""
    folder = tmp_path_factory.mktemp("releases")
    hostile_ngrams(folder / "ngrams", rows_per_part=30)
    items_release(folder / "items", {word: 50 - n for n, word in enumerate(HOSTILE)})
    public = PublicCounts.of([("a", "b"), ("b", "a")], [5, 2])
    (folder / "counts.tsv").write_text("a b\t5\nb a\t2\n")
    pairs = {("a", "b"): 0.75, ("b", "a"): 0.25}
    probabilities_release(folder / "joint", pairs, public=public)
    return folder


def settings_for(to):
    return Settings(locale="en" if to == "aosp" else None)


def files(path):
    return {name: (path / name).read_bytes() for name in os.listdir(path)}


@pytest.mark.parametrize("to", list(KINDS))
def test_equal_releases_give_equal_bytes(folder, tmp_path, to):
    copy = shutil.copytree(folder / "ngrams", tmp_path / "a copy elsewhere")
    for number, release in enumerate((folder / "ngrams", copy / "ledger.json")):
        export(str(release), to, str(tmp_path / str(number) / "file"), settings=settings_for(to))
    assert files(tmp_path / "0") == files(tmp_path / "1")


@pytest.mark.parametrize("to", list(KINDS))
def test_the_hash_of_the_ledger_travels_along(folder, tmp_path, to):
    rendered = export(
        str(folder / "ngrams"), to, str(tmp_path / "out" / "x"), settings=settings_for(to)
    )
    written = files(tmp_path / "out")
    digest = hashlib.sha256((folder / "ngrams" / "ledger.json").read_bytes()).hexdigest()
    assert written.pop("x") == rendered.data
    if KINDS[to].has_hash:
        assert digest.encode() in rendered.data
        assert written == {}
    else:
        beside = json.loads(written.pop("x" + BESIDE))
        assert beside["ledger_sha256"] == digest
        assert beside["export_sha256"] == hashlib.sha256(rendered.data).hexdigest()
        assert beside["epsilon"] == 1
        assert written == {}


@pytest.mark.parametrize(
    ("name", "to"),
    [("items", "arpa"), ("joint", "tokenizers"), ("joint", "aosp")],
)
def test_kinds_that_make_no_sense_are_refused_with_others(folder, tmp_path, name, to):
    with pytest.raises(ExportError, match=f"to={to} cannot take .* Use one of .*csv, duckdb, card"):
        export(str(folder / name), to, str(tmp_path / "out" / "x"), settings=settings_for(to))
    assert not (tmp_path / "out").exists()


def test_every_other_kind_takes_every_program(folder, tmp_path):
    programs = {"ngrams": "ngrams", "items": "set-union", "joint": "bayesian"}
    for name, program in programs.items():
        for to in (to for to in KINDS if program not in KINDS[to].refused):
            output = tmp_path / name / to
            settings = settings_for(to)
            if (program, to) == ("bayesian", "arpa"):
                settings = Settings(public=str(folder / "counts.tsv"))
            export(str(folder / name), to, str(output), settings=settings)
            assert output.stat().st_size > 0


@pytest.mark.parametrize(
    ("to", "near"),
    [("tokenizer", "tokenizers"), ("CSV", "csv"), ("duck", "duckdb"), ("elastic", "elasticsearch")],
)
def test_an_unknown_kind_gets_near_names(folder, tmp_path, to, near):
    with pytest.raises(
        ExportError, match=rf"to must be one of .*, got to={to}\. Did you mean {near}"
    ):
        export(str(folder / "ngrams"), to, str(tmp_path / "x"))
    with pytest.raises(ExportError, match=r"got to=qqq\.$"):
        export(str(folder / "ngrams"), "qqq", str(tmp_path / "x"))


@pytest.mark.parametrize("to", ["csv", "card"])
def test_a_file_that_exists_is_kept_without_overwrite(folder, tmp_path, to):
    (tmp_path / "x").write_bytes(b"mine")
    with pytest.raises(ExportError, match=r"output must be a new file, got .*/x, which exists"):
        export(str(folder / "ngrams"), to, str(tmp_path / "x"))
    assert files(tmp_path) == {"x": b"mine"}
    rendered = export(str(folder / "ngrams"), to, str(tmp_path / "x"), overwrite=True)
    assert (tmp_path / "x").read_bytes() == rendered.data
    # The small file beside an export is protected too.
    if to == "csv":
        (tmp_path / "x").unlink()
        with pytest.raises(ExportError, match=r"x\.source\.json, which exists"):
            export(str(folder / "ngrams"), to, str(tmp_path / "x"))


@pytest.mark.parametrize("fails", [1, 2])
def test_a_failure_leaves_nothing_behind(folder, tmp_path, monkeypatch, fails):
    calls = []
    write = LocalDirectory._write

    def broken(self, name, data):
        calls.append(name)
        if len(calls) == fails:
            raise OSError(28, "No space left on device")
        write(self, name, data)

    monkeypatch.setattr(LocalDirectory, "_write", broken)
    with pytest.raises(ExportError, match=r"output must be a file that can be written, .*No space"):
        export(str(folder / "ngrams"), "csv", str(tmp_path / "x"))
    assert calls == ["x.source.json", "x"][:fails]
    assert files(tmp_path) == {}


def test_a_file_that_somebody_writes_meanwhile_is_kept(folder, tmp_path, monkeypatch):
    read = Release.table

    def busy(release):
        (tmp_path / "x").write_bytes(b"theirs")
        return read(release)

    monkeypatch.setattr(Release, "table", busy)
    with pytest.raises(ExportError, match="which has changed meanwhile"):
        export(str(folder / "ngrams"), "csv", str(tmp_path / "x"))
    assert files(tmp_path) == {"x": b"theirs"}


def test_a_release_that_is_replaced_while_it_is_read_is_refused(folder, tmp_path, monkeypatch):
    release = shutil.copytree(folder / "ngrams", tmp_path / "release")
    read = Release.table

    def replaced(opened):
        ngrams_release(release, {("new",): 9.0}, overwrite=True)
        return read(opened)

    monkeypatch.setattr(Release, "table", replaced)
    with pytest.raises(ReleaseError, match="a run is replacing it just now"):
        export(str(release), "csv", str(tmp_path / "x"))
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("damage", ["missing", "changed", "no ledger"])
def test_a_damaged_release_is_refused_and_nothing_is_written(folder, tmp_path, damage):
    release = shutil.copytree(folder / "ngrams", tmp_path / "release")
    part = sorted(release.glob("*.jsonl"))[-1]
    if damage == "missing":
        part.unlink()
    elif damage == "changed":
        part.write_bytes(part.read_bytes().replace(b"ok", b"ko"))
    else:
        (release / "ledger.json").unlink()
    with pytest.raises(ReleaseError, match=r"incomplete|damaged|does not exist"):
        export(str(release), "csv", str(tmp_path / "x"))
    assert os.listdir(tmp_path) == ["release"]


def test_an_ngram_with_an_unknown_escape_is_refused_without_quoting_it(tmp_path):
    release = small_ngrams(tmp_path / "release")
    (part,) = release.glob("*.jsonl")
    data = part.read_bytes().replace(b'"best"', b'"b\\\\q"')
    ledger = json.loads((release / "ledger.json").read_text())
    ledger["parts"][0] |= {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    part.write_bytes(data)
    (release / "ledger.json").write_text(json.dumps(ledger))
    with pytest.raises(ExportError, match="damaged: an n-gram has an escape") as refusal:
        export(str(release), "tokenizers", str(tmp_path / "x"))
    assert "q" not in str(refusal.value).replace("beam_dpne", "")


@pytest.mark.parametrize("name", ["ledger.json", "ngrams-0123456789abcdef-00000-of-00001.jsonl"])
def test_names_of_a_releases_files_are_refused(folder, tmp_path, name):
    with pytest.raises(ExportError, match="must not have the name of a file of a release"):
        export(str(folder / "ngrams"), "csv", str(tmp_path / name), overwrite=True)


@pytest.mark.parametrize("to", [name for name in KINDS if name != "card"])
def test_an_export_in_a_release_is_refused(folder, tmp_path, to):
    release = shutil.copytree(folder / "ngrams", tmp_path / "release")
    (tmp_path / "link").symlink_to(release)
    before = files(release)
    for source in (folder / "ngrams", release, release / "ledger.json"):
        for output in (release / "x", release / "new" / "x", tmp_path / "link" / "x"):
            with pytest.raises(ExportError, match="output must be outside every release, got"):
                export(str(source), to, str(output), settings=settings_for(to), overwrite=True)
    assert files(release) == before


def test_a_card_may_stand_in_its_release(folder, tmp_path):
    release = shutil.copytree(folder / "ngrams", tmp_path / "release")
    export(str(release), "card", str(release / "README.md"))
    assert Source.read(str(release)).rows.num_rows == 1 + 3 * len(HOSTILE)


@pytest.mark.parametrize("output", ["", ".", "a/", "gs://bucket"])
def test_an_output_that_names_no_file_is_refused(folder, output):
    with pytest.raises(ExportError, match="output must be the path of a file"):
        export(str(folder / "ngrams"), "csv", output)


def test_a_folder_is_no_file(folder, tmp_path):
    (tmp_path / "x").mkdir()
    with pytest.raises(ExportError, match="output must be a file that can be written"):
        export(str(folder / "ngrams"), "csv", str(tmp_path / "x"), overwrite=True)


@pytest.mark.parametrize(
    ("to", "settings", "message"),
    [
        ("aosp", {}, "locale must be given with to=aosp"),
        ("aosp", {"locale": "en,version=9"}, "locale must be a locale like en"),
        ("csv", {"locale": "en"}, "locale belongs to to=aosp; leave it out with to=csv"),
        ("arpa", {"kept_back": 1.0}, r"kept_back must be in \[0, 1\), got kept_back=1.0"),
        ("card", {"kept_back": 0.5}, "kept_back belongs to to=arpa"),
        ("csv", {"public": "counts.tsv"}, "public belongs to to=arpa"),
        ("arpa", {"min_count": 0}, "min_count must be at least 1, got min_count=0"),
        ("card", {"license": "a\nb"}, "license must be the Hub's name"),
        ("arpa", {"license": "mit"}, "license belongs to to=card"),
    ],
)
def test_wrong_settings_are_refused(folder, tmp_path, to, settings, message):
    with pytest.raises(ExportError, match=message):
        export(str(folder / "ngrams"), to, str(tmp_path / "x"), settings=Settings(**settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            Settings(kept_back=0.1, public="p"),
            "kept_back must be left out for a release of beam-dpne bayesian",
        ),
        (Settings(), "public must be given for a release of beam-dpne bayesian"),
    ],
)
def test_the_model_of_probabilities_needs_their_public_counts(folder, tmp_path, settings, message):
    with pytest.raises(ExportError, match=message):
        export(str(folder / "joint"), "arpa", str(tmp_path / "x"), settings=settings)


def test_other_public_counts_than_those_of_the_release_are_refused(folder, tmp_path):
    (tmp_path / "counts.tsv").write_text("a b\t6\nb a\t2\n")
    settings = Settings(public=str(tmp_path / "counts.tsv"))
    with pytest.raises(ExportError, match="public must be the public counts of the release, got"):
        export(str(folder / "joint"), "arpa", str(tmp_path / "x"), settings=settings)
    assert not (tmp_path / "x").exists()


def test_public_counts_belong_to_probabilities_only(folder, tmp_path):
    for name, settings in (("public", Settings(public="p")), ("min_count", Settings(min_count=2))):
        with pytest.raises(ExportError, match=f"{name} must be left out for a release of n-grams"):
            export(str(folder / "ngrams"), "arpa", str(tmp_path / "x"), settings=settings)


def test_a_release_without_single_words_has_no_language_model(tmp_path):
    release = ngrams_release(tmp_path / "release", {("a", "b"): 9.0})
    with pytest.raises(ExportError, match="weights of all single words"):
        export(str(release), "arpa", str(tmp_path / "x"))


# The command


def test_the_command_exports_and_says_what_is_missing(cli, folder, tmp_path):
    arguments = ("--to", "aosp", "--output", tmp_path / "words.combined", "--locale", "en")
    ended = cli("export", folder / "ngrams", *arguments)
    assert ended.status == 0
    assert f"{tmp_path}/words.combined has the release as a word list" in ended.err
    assert "left out: " in ended.err
    assert (tmp_path / "words.combined").read_text().startswith("dictionary=main:en,")
    assert ended.out == ""


def test_the_command_says_where_the_source_is(cli, folder, tmp_path):
    ended = cli("export", "--output", tmp_path / "x.csv", "--to", "csv", folder / "items")
    assert ended.status == 0
    assert f"{tmp_path}/x.csv.source.json has its source" in ended.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "release must be given: beam-dpne export RELEASE --to KIND --output FILE"),
        (["r"], "to must be given: --to tokenizers|arpa"),
        (["r", "--to", "csv"], "output must be given: --output FILE"),
        (["r", "--to", "cvs", "--output", "x"], "Did you mean csv?"),
        (["r", "--to", "csv", "--output", "x", "--runner", "Z"], "has no option --runner"),
        (["r", "--to", "csv", "--output", "x", "--kept_back", "a"], "invalid number"),
        (["no/such", "--to", "csv", "--output", "x"], "no/such/ledger.json does not exist"),
    ],
)
def test_wrong_arguments_end_the_command_with_status_2(
    cli, arguments, message, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    ended = cli("export", *arguments)
    assert ended.status == 2
    assert message in ended.err
    assert ended.err.count("\n") == 1
    assert os.listdir(tmp_path) == []


def test_every_setting_is_an_option():
    names = {option.name for option in options_of(EXPORT)}
    assert {name for kind in KINDS.values() for name in kind.settings} < names
    assert all(name in next(o.help for o in options_of(EXPORT) if o.name == "to") for name in KINDS)
