"""`beam-dpne bayesian`: real files, real runs, what is printed and what is on disk.

Runs have a fixed key, so each outcome here is the same every time.
"""

import dataclasses
import gzip
import json
import math
import pathlib
import random
import re
import shutil

import pytest

from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.cli.options import options_of
from beam_dpne.cli.options_by_command import BAYESIAN
from beam_dpne.errors import ReleaseError
from beam_dpne.release.files import read_ledger
from beam_dpne.release.reading import read_release

KEY = "0f1e2d3c" * 8
BUDGET = ("--epsilon", 8, "--delta", 1e-4, "--max_contributions", 3, "--length", 2)
PUBLIC = {"rye bread": 5, "bread and": 4, "and tea": 4, "New\\sYork city": 1, "\\e \\\\": 1}
CANARY = "CANARY zebra 4711"


def json_lines(records):
    return "".join(json.dumps({"user": u, "text": t}) + "\n" for u, t in records)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with texts of 400 users, public counts and a text with the same counts, and a key."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "key").write_text(KEY)
    chance = random.Random(7)
    choices = ["Rye bread and tea", "rye bread", "nothing known", f"{CANARY} and tea"]
    rows = [(f"user-{i:03}", chance.choice(choices)) for i in range(400)]
    (folder / "texts.jsonl").write_text(json_lines(rows))
    (folder / "lists.jsonl").write_text(json_lines((u, t.lower().split()) for u, t in rows))
    counts = "".join(f"{gram}\t{count}\n" for gram, count in PUBLIC.items())
    (folder / "counts.tsv").write_text(counts)
    lines = ["rye bread and tea"] * 4 + ["rye bread", "a b"]
    (folder / "public.txt.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    return folder


@pytest.fixture(scope="module")
def base(cli, data):
    """A run of the texts with the key: how it ended, and the folder of its release."""
    files = ("--input", data / "texts.jsonl", "--output", data / "base", "--arpa", data / "arpa")
    public = ("--public", data / "counts.tsv", "--run_key_file", data / "key", "--quiet")
    ended = cli("bayesian", *files, *public, *BUDGET)
    assert ended.status == 0, ended.err
    return ended, data / "base"


@pytest.fixture
def bayesian(cli, data, tmp_path):
    """Runs the program on a file, with the key; returns how it ended and the release's folder."""

    def run(name, *arguments, public="counts.tsv", output="release", key=True):
        folder = tmp_path / output
        keyed = ("--run_key_file", data / "key") if key else ()
        given = ("--input", data / name, "--output", folder, "--public", data / public, *keyed)
        return cli("bayesian", *given, *BUDGET, *arguments), folder

    return run


def released(folder):
    return {
        row["ngram"]: row["probability"] for row in read_release(str(folder)).table().to_pylist()
    }


def files_of(folder):
    return {path.name: path.read_bytes() for path in sorted(pathlib.Path(folder).iterdir())}


# Options


def all_options():
    return options_of(BAYESIAN)


def test_the_program_has_exactly_these_options(cli, monkeypatch):
    assert sorted(option.name for option in all_options()) == sorted(
        [
            *("input", "input_format", "user_field", "text_field", "columns", "tokenizer"),
            *("encoding", "delimiter", "quoting"),
            *("max_record_bytes", "rejects", "strict", "output", "output_format", "overwrite"),
            "arpa",
            *("public", "epsilon", "delta", "length", "vocabulary_size", "max_count"),
            *("max_contributions", "max_tokens_per_user"),
            "public_user_count",
            *("partitions", "run_key_file", "harness_timeout", "quiet", "max_rejected", "workers"),
            *("failure_log", "failure_log_remote", "budget", "title", "contact", "unit"),
        ]
    )
    monkeypatch.setenv("COLUMNS", "120")
    shown = re.split(r"\n  (?=-)", cli("bayesian", "--help").out)
    by_name = {match[1]: text for text in shown if (match := re.match(r"--(\w+)", text))}
    for option in all_options():
        flat = " ".join(by_name.pop(option.name).split())
        assert f"(default: {option.default_text})" in flat
    assert not by_name


def test_options_are_those_of_the_plan_and_have_its_defaults():
    fields = {field.name: field for field in dataclasses.fields(BayesianPlan)}
    assert {option.name for option in BAYESIAN["privacy"]} == set(fields) - {"adjacency"}
    for option in BAYESIAN["privacy"]:
        default = fields[option.name].default
        wanted = None if default is dataclasses.MISSING or default is False else default
        assert option.default == wanted
        assert option.flag == (default is False)


# Releases


def test_a_run_publishes_a_distribution_under_a_guarantee(base):
    ended, folder = base
    assert ended.status == 0, ended.err
    found = released(folder)
    assert set(found) == set(PUBLIC)
    assert math.fsum(found.values()) == pytest.approx(1, abs=1e-8)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    ledger = read_ledger(str(folder))
    assert ledger["program"] == "bayesian"
    assert ledger["what"].startswith("A differentially private release of n-gram probabilities.")
    assert (ledger["guarantee"]["epsilon"], ledger["guarantee"]["delta"]) == (8, 1e-4)
    assert ledger["guarantee"]["user"] == 'each value of the field "user" is one user'
    assert ledger["mechanism"]["public"]["ngrams"] == len(PUBLIC)
    assert set(ledger["mechanism"]) <= {"noise", *ledger["mechanism_columns"]}
    assert ledger["spent"]["numerical_slack"] > 0
    assert any("The public counts are not protected" in text for text in ledger["not_protected"])
    text = ended.out + ended.err + "".join(map(str, files_of(folder).values()))
    assert "zebra" not in text.lower()
    assert KEY not in text


def test_frequent_ngrams_are_more_probable(base):
    _, folder = base
    found = released(folder)
    # About 200 users against none; σ is below 1: noise beyond 50 has odds below 1e-300.
    assert found["rye bread"] > 5 * found["New\\sYork city"]
    assert found["and tea"] > 5 * found["\\e \\\\"]


@pytest.mark.parametrize("output_format", ["tsv", "parquet"])
def test_every_format_holds_the_same_release(bayesian, base, output_format):
    _, jsonl = base
    ended, folder = bayesian("texts.jsonl", "--output_format", output_format)
    assert ended.status == 0, ended.err
    assert read_release(str(folder)).table().equals(read_release(str(jsonl)).table())
    (name,) = [name for name in files_of(folder) if name != "ledger.json"]
    assert re.fullmatch(rf"probabilities-[0-9a-f]{{16}}-00000-of-00001\.{output_format}", name)
    (lines,) = [text for name, text in files_of(jsonl).items() if name != "ledger.json"]
    assert list(json.loads(lines.splitlines()[0])) == ["ngram", "probability"]


def test_one_key_gives_one_release_however_the_work_is_divided(bayesian, base, data):
    lines = (data / "texts.jsonl").read_text().splitlines(keepends=True)
    random.Random(1).shuffle(lines)
    (data / "part-1.jsonl").write_text("".join(lines[:90]))
    (data / "part-2.jsonl").write_text("".join(lines[90:]))
    _, divided = bayesian("part-*.jsonl", "--partitions", 7)
    assert files_of(divided) == files_of(base[1])
    ended, fresh = bayesian("texts.jsonl", output="fresh", key=False)
    assert ended.status == 0
    assert read_ledger(str(fresh))["run_key"]["given"] is False


def test_public_counts_come_from_a_text_too(bayesian):
    ended, folder = bayesian("texts.jsonl", public="public.txt.gz")
    assert ended.status == 0, ended.err
    assert set(released(folder)) == {"rye bread", "bread and", "and tea", "a b"}
    ended, folder = bayesian(
        "texts.jsonl", "--vocabulary_size", 2, public="public.txt.gz", output="two"
    )
    # Ties of 4 by bytes.
    assert set(released(folder)) == {"rye bread", "and tea"}


def test_lists_of_tokens_need_public_counts_of_tokens(bayesian):
    ended, folder = bayesian("lists.jsonl", "--tokenizer", "tokens")
    assert ended.status == 0, ended.err
    assert set(released(folder)) == set(PUBLIC)
    ended, _ = bayesian(
        "lists.jsonl", "--tokenizer", "tokens", public="public.txt.gz", output="other"
    )
    assert ended.status == 2
    assert "public must be a file of counts or a release with tokenizer='tokens'" in ended.err


def test_a_release_of_probabilities_is_read_back_whole_or_not_at_all(base, tmp_path):
    folder = shutil.copytree(base[1], tmp_path / "damaged")
    (part,) = [path for path in folder.iterdir() if path.name != "ledger.json"]
    part.write_bytes(part.read_bytes()[:-2] + b"]\n")
    with pytest.raises(ReleaseError, match="another SHA-256"):
        read_release(str(folder)).table()


def test_the_table_tells_the_mechanism_and_where_the_release_is(base):
    ended, folder = base
    for text in ("n-grams", "noise σ", "sensitivity", "1.732"):
        assert text in ended.out
    assert f"Files: {folder} (start with ledger.json)" in ended.out
    assert ended.err == ""


def test_a_language_model_is_written_from_the_release(bayesian, base, data, cli, tmp_path):
    _, folder = base
    exported = ("--to", "arpa", "--public", data / "counts.tsv", "--output", None)
    path = data / "arpa"
    text = path.read_text(encoding="utf-8")
    assert f"ngram 2={len(PUBLIC)}\n" in text
    assert text.endswith("\\end\\\n")
    (line,) = [line for line in text.splitlines() if "\trye bread" in line]
    found = released(folder)
    assert found["rye bread"] > 0.1
    assert 10 ** float(line.split("\t")[0]) > 0.5
    assert cli("export", folder, *exported[:-1], tmp_path / "same").status == 0
    assert (tmp_path / "same").read_text(encoding="utf-8") == text
    again, _ = bayesian("texts.jsonl", "--arpa", path)
    assert again.status == 2
    assert "arpa must be a new file" in again.err


# What is refused


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--accept_no_guarantee"], ["there is no option --accept_no_guarantee"]),
        (["--max_count", 0], ["max_count must be an integer from 1 to", "max_count=0"]),
        (["--max_contributions", 0], ["max_contributions must be", "max_contributions=0"]),
        (["--length", 9], ["length must be an integer from 1 to 5", "length=9"]),
        (["--vocabulary_size", 0], ["vocabulary_size must be", "vocabulary_size=0"]),
        (["--epsilon", -1], ["epsilon must be a finite number > 0"]),
        (["--delta", 0], ["delta must be in (0, 1)"]),
        (["--max_lenght", 3], ["there is no option --max_lenght"]),
        (["--side_input_limit", 2], ["--side_input_limit"]),
    ],
)
def test_a_wrong_parameter_is_one_line_and_nothing_is_read(bayesian, arguments, words):
    ended, folder = bayesian("none.jsonl", *arguments)
    assert (ended.status, ended.out, ended.err.count("\n")) == (2, "", 1)
    for word in words:
        assert word in ended.err
    assert "none.jsonl" not in ended.err
    assert not folder.exists()


def test_public_counts_must_be_named(cli, data, tmp_path):
    files = ("--input", data / "texts.jsonl", "--output", tmp_path / "out")
    ended = cli("bayesian", *files, *BUDGET)
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert "public must be given: --public PATH" in ended.err


@pytest.mark.parametrize(
    "how", ["the same path", "a link", "a copy", "a packed copy", "a longer copy", "one of several"]
)
def test_private_data_are_no_public_counts(cli, tmp_path, how):
    private = tmp_path / "visits.seq"
    private.write_text("1 2 3\n1 2\n")
    public = tmp_path / "public.txt"
    if how == "a link":
        public.symlink_to(private)
    elif how == "a copy":
        public.write_bytes(private.read_bytes())
    elif how == "a packed copy":
        public = tmp_path / "public.txt.gz"
        public.write_bytes(gzip.compress(private.read_bytes()))
    elif how == "a longer copy":
        public.write_bytes(private.read_bytes() + b"\n\n")
    else:
        public = private
    other = ("--input", tmp_path / "other.seq") if how == "one of several" else ()
    (tmp_path / "other.seq").write_text("4 5\n")
    files = ("--input", private, *other, "--input_format", "sequences", "--public", public)
    ended = cli("bayesian", *files, "--output", tmp_path / "out", *BUDGET)
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert "public must not be private data" in ended.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a b\t-1\n", "the count in line 1 is negative"),
        ("a b c\t1\n", "line 1 has 3 words"),
        ("a b\t1\na b\t1\n", "must be distinct"),
        ("", "at least 2 words, got none"),
        ("a b\tx\n", "line 1 is none"),
        ("n-gram count\na b\t3\nb c\t4\n", "from the first one on, without a heading"),
        ('{"user": "u", "text": "a b"}\n', "must be a text without records"),
        ("\\data\\\nngram 1=2\n", "must not be a language model"),
    ],
)
def test_malformed_public_counts_are_one_line(bayesian, data, content, words):
    (data / "bad.tsv").write_text(content)
    ended, folder = bayesian("texts.jsonl", public="bad.tsv")
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert words in ended.err
    assert not folder.exists()


def test_missing_public_counts_are_refused(bayesian):
    ended, _ = bayesian("texts.jsonl", public="none.tsv")
    assert ended.status == 2
    assert "public must name an existing file" in ended.err


def test_a_template_has_no_language_model_and_holds_its_public_counts(
    bayesian, monkeypatch, tmp_path
):
    template = ("--template_location", tmp_path / "job.json")
    ended, _ = bayesian("texts.jsonl", *template, "--arpa", tmp_path / "model.arpa")
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert "arpa must be left out with a template" in ended.err
    monkeypatch.setattr("beam_dpne.cli.jobs.LARGEST_IN_GRAPH", 10)
    ended, _ = bayesian("texts.jsonl", *template)
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert "public counts of vocabulary_size must be at most 10 bytes with a template" in ended.err


def test_a_language_model_that_cannot_be_written_is_refused_before_the_run(bayesian, tmp_path):
    for path in (tmp_path, tmp_path / "none" / "model.arpa"):
        ended, folder = bayesian("texts.jsonl", "--arpa", path)
        assert (ended.status, ended.err.count("\n")) == (2, 1)
        assert "arpa must be a file that can be written" in ended.err
        assert not folder.exists()


def test_a_language_model_takes_no_other_files_place(bayesian, cli, data, tmp_path):
    out = tmp_path / "e"
    out.mkdir()
    key = tmp_path / "run.key"
    key.write_text("ab" * 32)
    (tmp_path / "notes").write_text("mine")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "ledger.json").write_text("{}")
    files = ("--input", data / "texts.jsonl", "--public", data / "counts.tsv", "--output", out)
    options = (*files, *BUDGET, "--overwrite", "--run_key_file", key)
    before = {path: path.read_bytes() for path in (key, data / "texts.jsonl", data / "counts.tsv")}
    others = (tmp_path / "notes", tmp_path / "other" / "model.arpa")
    for path in (out / "ledger.json", out / "model.arpa", *before, *others):
        ended = cli("bayesian", *options, "--arpa", path)
        assert (ended.status, ended.err.count("\n")) == (2, 1), path
        assert "arpa must be" in ended.err
    assert list(out.iterdir()) == []
    assert {path: path.read_bytes() for path in before} == before
    assert (tmp_path / "notes").read_text() == "mine"


def test_a_language_model_is_whole_or_not_there(bayesian, monkeypatch, tmp_path):
    """As when the disk is full after its first lines."""

    def lines():
        yield from ("-1.0\ta\n" for _ in range(100))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("beam_dpne.bayesian.arpa._lines", lambda *_, **__: lines())
    folder = tmp_path / "models"
    folder.mkdir()
    ended, release = bayesian("texts.jsonl", "--arpa", folder / "model.arpa")
    assert ended.status == 1
    assert "arpa cannot be written" in ended.err
    assert list(folder.iterdir()) == []
    assert (release / "ledger.json").exists()


def test_evaluate_refuses_a_release_in_which_nothing_was_found(base, cli, data):
    _, folder = base
    ended = cli("evaluate", "--release", folder, "--input", data / "texts.jsonl")
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert "release must be of beam-dpne ngrams or set-union" in ended.err


def test_a_release_of_probabilities_is_no_public_counts(bayesian, base):
    ended, _ = bayesian("texts.jsonl", public=base[1])
    assert ended.status == 2
    assert "public must be a release of `beam-dpne ngrams`" in ended.err
