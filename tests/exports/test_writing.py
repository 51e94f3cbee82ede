"""`export`: what it writes and where, what it refuses, and that nothing is half-written."""

import hashlib
import os
import shutil

import pytest
from tokenizers import Tokenizer

from beam_dpne import PublicCounts
from beam_dpne.cli.settings import EXPORTS, TRAINED
from beam_dpne.errors import ExportError, ReleaseError, UsageError
from beam_dpne.exports.trained import MODELS
from beam_dpne.exports.writing import KINDS, export
from beam_dpne.release.reading import Release, read_release
from beam_dpne.storage.directories import LocalDirectory
from tests.support import releases


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with one release of each program."""
    folder = tmp_path_factory.mktemp("releases")
    releases.words(folder / "ngrams", ["tea", "rye"], rows_per_part=5)
    releases.items(folder / "items", {"tea": 9, "rye": 8})
    public = PublicCounts.of([("a", "b"), ("b", "a")], [5, 2])
    (folder / "counts.tsv").write_text("a b\t5\nb a\t2\n")
    pairs = {("a", "b"): 0.75, ("b", "a"): 0.25}
    releases.probabilities(folder / "joint", pairs, public=public)
    return folder


def files(path):
    return {name: (path / name).read_bytes() for name in os.listdir(path)}


@pytest.mark.parametrize("to", list(KINDS))
def test_equal_releases_give_equal_bytes_in_one_file(folder, tmp_path, to):
    copy = shutil.copytree(folder / "ngrams", tmp_path / "a copy elsewhere")
    for number, release in enumerate((folder / "ngrams", copy / "ledger.json")):
        export(read_release(str(release)), to, str(tmp_path / str(number) / "file"))
    assert files(tmp_path / "0") == files(tmp_path / "1")
    assert list(files(tmp_path / "0")) == ["file"]


def test_every_kind_takes_its_programs_and_refuses_others(folder, tmp_path):
    programs = {"ngrams": "ngrams", "items": "set-union", "joint": "bayesian"}
    for name, program in programs.items():
        for to, kind in KINDS.items():
            output, settings = tmp_path / name / to, {}
            if (program, to) == ("bayesian", "arpa"):
                settings = {"public": str(folder / "counts.tsv")}
            if program in kind.programs:
                export(read_release(str(folder / name)), to, str(output), **settings)
                assert output.stat().st_size > 0
            else:
                with pytest.raises(ExportError, match=f"`to={to}` cannot take .* Use one of .*csv"):
                    export(read_release(str(folder / name)), to, str(output), **settings)


@pytest.mark.parametrize(
    ("name", "to", "settings", "message"),
    [
        ("ngrams", "csv", {"license": "mit"}, "`license` must be left out with `to=csv`"),
        ("ngrams", "arpa", {"public": "p"}, "must be left out for a release of n-grams"),
        ("ngrams", "card", {"license": "a\nb"}, "`license` must be the Hub's name"),
        ("ngrams", "card", {"top": 1}, "`top` must be left out with `to=card`"),
        (
            "joint",
            "arpa",
            {"top": 1, "public": "p"},
            "`at_least` and `top` must be left out with `public`",
        ),
        ("ngrams", "tokenizers", {"model": "gpt"}, "`model` must be one of bpe, unigram"),
        ("ngrams", "tokenizers", {"vocabulary_size": 9}, "must be left out without `model`"),
        (
            "ngrams",
            "tokenizers",
            {"model": "bpe", "special_tokens": ("a", "a")},
            "`special_tokens` must be different",
        ),
        (
            "ngrams",
            "tokenizers",
            {"model": "unigram", "vocabulary_size": 3},
            "`vocabulary_size` must be larger than the number of letters",
        ),
        ("joint", "arpa", {}, "needs its public counts"),
        ("ngrams", "cvs", {}, "`to` must be one of .*, got `to=cvs`"),
    ],
)
def test_wrong_settings_are_refused(folder, tmp_path, name, to, settings, message):
    with pytest.raises(ExportError, match=message):
        export(read_release(str(folder / name)), to, str(tmp_path / "x"), **settings)
    assert files(tmp_path) == {}


def test_an_export_has_the_rows_that_are_chosen(folder, tmp_path):
    release = read_release(str(folder / "ngrams"))
    export(release, "csv", str(tmp_path / "x"), top=2, at_least=89.6)
    lines = (tmp_path / "x").read_text().splitlines()
    assert [line.split(",")[1] for line in lines[1:]] == ["ok", "tea", "tea ok"]


def test_other_public_counts_than_those_of_the_release_are_refused(folder, tmp_path):
    (tmp_path / "counts.tsv").write_text("a b\t6\nb a\t2\n")
    with pytest.raises(ExportError, match="`public` must be the public counts of the release"):
        export(
            read_release(str(folder / "joint")),
            "arpa",
            str(tmp_path / "x"),
            public=f"{tmp_path}/counts.tsv",
        )


def test_a_file_that_exists_is_kept_without_overwrite(folder, tmp_path):
    (tmp_path / "x").write_bytes(b"mine")
    with pytest.raises(ReleaseError, match=r"`output` must be a new file, got `output=.*/x`\."):
        export(read_release(str(folder / "ngrams")), "csv", str(tmp_path / "x"))
    assert files(tmp_path) == {"x": b"mine"}
    export(read_release(str(folder / "ngrams")), "csv", str(tmp_path / "x"), overwrite=True)
    assert files(tmp_path)["x"].startswith(b"length,ngram,score")


def test_a_failure_leaves_nothing_behind(folder, tmp_path, monkeypatch):
    def broken(self, name, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LocalDirectory, "_write", broken)
    with pytest.raises(
        ReleaseError, match=r"`output` must be where a file can be written, .*No space"
    ):
        export(read_release(str(folder / "ngrams")), "csv", str(tmp_path / "x"))
    assert files(tmp_path) == {}


def test_a_release_that_is_replaced_while_it_is_read_is_refused(folder, tmp_path, monkeypatch):
    release = shutil.copytree(folder / "ngrams", tmp_path / "release")
    read = Release.table

    def replaced(opened):
        releases.ngrams(release, {("new",): 9.0}, overwrite=True)
        return read(opened)

    monkeypatch.setattr(Release, "table", replaced)
    with pytest.raises(ReleaseError, match="a run is replacing it just now"):
        export(read_release(str(release)), "csv", str(tmp_path / "x"))
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
        export(read_release(str(release)), "csv", str(tmp_path / "x"))
    assert os.listdir(tmp_path) == ["release"]


@pytest.mark.parametrize("name", ["", ".", "ledger.json"])
def test_an_output_that_names_no_file_of_its_own_is_refused(folder, tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ReleaseError, match="`output` must be"):
        export(read_release(str(folder / "ngrams")), "csv", name, overwrite=True)
    assert files(tmp_path) == {}


def test_the_command_has_the_kinds_of_exports():
    assert list(EXPORTS) == list(KINDS)
    assert TRAINED == MODELS


@pytest.mark.parametrize("name", ["x", "new/x", "../link/x"])
def test_an_export_in_a_release_is_refused_unless_it_is_a_card(folder, tmp_path, name):
    release = shutil.copytree(folder / "ngrams", tmp_path / "release")
    (tmp_path / "link").symlink_to(release)
    before = files(release)
    for source in (folder / "ngrams", release):
        with pytest.raises(UsageError, match="`output` must be outside every release, got"):
            export(read_release(str(source)), "csv", str(release / name), overwrite=True)
    assert files(release) == before
    export(read_release(str(release)), "card", str(release / name))
    assert len(read_release(str(release)).rows) == 7


# The command


def test_the_command_exports_and_says_what_is_missing(cli, tmp_path):
    release = releases.ngrams(tmp_path / "release", {("a",): 9, ("a b",): 8, ("a\x1e",): 7})
    arguments = ("--to", "arpa", "--output", tmp_path / "words.arpa")
    ended = cli("export", release, *arguments)
    assert ended.status == 0
    assert f"{tmp_path}/words.arpa has the release" in ended.err
    assert hashlib.sha256((release / "ledger.json").read_bytes()).hexdigest() in ended.err
    assert "left out: 1 rows with white space or control characters" in ended.err
    assert "\\1-grams:" in (tmp_path / "words.arpa").read_text()
    assert ended.out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "RELEASE, --to and --output must be given"),
        (["r"], "--to and --output must be given"),
        (["r", "--to", "csv"], "--output must be given"),
        (["r", "--to", "cvs", "--output", "x"], "--to must be one of tokenizers"),
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
    assert os.listdir(tmp_path) == []


# Trained tokenizers


@pytest.mark.parametrize("model", MODELS)
def test_a_trained_tokenizer_splits_words_that_were_not_released(folder, tmp_path, model):
    release = read_release(str(releases.counted_ngrams(tmp_path / "release")))
    given = {"model": model, "vocabulary_size": 40, "special_tokens": ("<u>", "<p>", "<e>")}
    export(release, "tokenizers", str(tmp_path / "x"), **given)
    found = Tokenizer.from_file(str(tmp_path / "x"))
    assert [found.id_to_token(number) for number in range(3)] == ["<u>", "<p>", "<e>"]
    assert found.get_vocab_size() <= 40
    (word, *_) = release.texts(release.ranked()[1])
    assert "<u>" not in found.encode(f"{word.upper()} ({word})").tokens
    assert found.decode(found.encode(f"{word} {word}").ids) == f"{word} {word}"
    # Pieces of known letters make up other words, but whole words alone do not.
    other = found.encode("w1111").tokens
    assert ("<u>" in other) == (model == "wordlevel")


@pytest.mark.parametrize("model", MODELS)
def test_trained_tokenizers_have_equal_bytes_in_every_process(program, folder, tmp_path, model):
    release = releases.counted_ngrams(tmp_path / "release")
    given = ("--to", "tokenizers", "--model", model, "--vocabulary_size", 45)
    for number in range(2):
        ended = program.run("export", release, *given, "--output", tmp_path / str(number))
        assert ended.status == 0, ended.err
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes()


def test_frequent_words_stay_whole_and_rare_ones_are_split(tmp_path):
    scores = {("elephant",): 900.0, ("giraffe",): 1.0}
    release = releases.ngrams(tmp_path / "release", scores)
    given = {"model": "bpe", "vocabulary_size": 22}
    export(read_release(str(release)), "tokenizers", str(tmp_path / "x"), **given)
    found = Tokenizer.from_file(str(tmp_path / "x"))
    assert len(found.encode("elephant").tokens) == 1
    assert len(found.encode("giraffe").tokens) > 3


def test_a_word_that_is_a_special_token_is_left_out_of_training(tmp_path):
    release = releases.ngrams(tmp_path / "r", {("tea",): 9, ("[UNK]",): 8}, tokenizer="tokens")
    found = export(read_release(str(release)), "tokenizers", str(tmp_path / "x"), model="wordlevel")
    assert list(found.left_out.values()) == [1]
    assert Tokenizer.from_file(str(tmp_path / "x")).get_vocab() == {
        "[UNK]": 0,
        "[PAD]": 1,
        "tea": 2,
    }


@pytest.mark.readers
@pytest.mark.parametrize("model", [None, *MODELS])
def test_transformers_loads_a_tokenizer(tmp_path, model):
    from transformers import PreTrainedTokenizerFast

    release = releases.counted_ngrams(tmp_path / "release")
    export(read_release(str(release)), "tokenizers", str(tmp_path / "x"), model=model)
    loaded = PreTrainedTokenizerFast(
        tokenizer_file=str(tmp_path / "x"), unk_token="[UNK]", pad_token="[PAD]"
    )
    own = Tokenizer.from_file(str(tmp_path / "x"))
    assert loaded("w1 w2 W3").input_ids == own.encode("w1 w2 W3").ids
    assert (loaded.unk_token_id, loaded.pad_token_id) == (0, 1)


def test_a_csv_has_the_mark_of_utf_8_if_it_is_wanted(folder, tmp_path):
    for name, bom in (("plain", None), ("marked", True)):
        export(read_release(str(folder / "ngrams")), "csv", str(tmp_path / name), bom=bom)
    plain, marked = files(tmp_path)["plain"], files(tmp_path)["marked"]
    assert marked == b"\xef\xbb\xbf" + plain
