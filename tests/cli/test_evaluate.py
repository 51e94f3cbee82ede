"""`beam-dpne evaluate`: what it prints and writes of real releases, and where it must not write."""

import csv
import importlib
import json
import random
import shutil
import sys

import pandas
import pyarrow as pa
import pytest

from beam_dpne import join_tokens
from beam_dpne.errors import RunError
from beam_dpne.evaluation.reports import MARK, NOTICE, PREFIX
from beam_dpne.jobs import evaluating
from beam_dpne.release.reading import read_release

pytest_plugins = ["tests.engines.storage"]

WORDS = ["see", "you", "soon", "dear", "friend", "naïve", "日本語"]
KEY = "0f1e2d3c" * 8
RUN = ("--epsilon", 6, "--delta", 1e-3, "--max_length", 3, "--max_contributions", 20)
FILES = {
    *("evaluation.json", "coverage.csv", "k_anonymity.csv", "counts.csv", "evaluation.png"),
}


def documents():
    chance = random.Random(11)
    return [
        (f"u{i % 150}", ["see", "you", *chance.choices(WORDS, k=chance.randint(0, 4))])
        for i in range(400)
    ]


@pytest.fixture(scope="module")
def made(cli, tmp_path_factory):
    """A folder with an input, a release of n-grams and one of items."""
    folder = tmp_path_factory.mktemp("evaluate")
    lines = [json.dumps({"user": user, "text": " ".join(text)}) for user, text in documents()]
    (folder / "notes.jsonl").write_text("\n".join([*lines, "no record"]) + "\n")
    (folder / "key").write_text(KEY)
    files = ("--input", folder / "notes.jsonl", "--run_key_file", folder / "key", "--quiet")
    # Many spurious n-grams, so that there is something to tell apart.
    noisy = {"epsilon": 6, "delta": 1e-3, "max_length": 3, "max_contributions": 20}
    noisy |= {"strategy": "one_round", "spurious_fraction": 0.4, "pruning": "single"}
    (folder / "plan.json").write_text(json.dumps(noisy))
    ended = cli("ngrams", *files, "--output", folder / "release", "--plan", folder / "plan.json")
    assert ended.status == 0, ended.err
    budget = ("--epsilon", 3, "--delta", 1e-4, "--tokenizer", "item")
    ended = cli("set-union", *files, "--output", folder / "items", *budget)
    assert ended.status == 0, ended.err
    return folder


@pytest.fixture
def judge(cli, made):
    """Runs `beam-dpne evaluate` on the input and a release."""

    def run(*options, release="release"):
        files = ("--input", made / "notes.jsonl", "--release", made / release)
        return cli("evaluate", *files, *options)

    return run


@pytest.fixture(scope="module")
def judged(cli, made):
    """The release of n-grams, judged: how it ended, and the folder of what was written."""
    files = ("--input", made / "notes.jsonl", "--release", made / "release")
    ended = cli("evaluate", *files, "--output", made / "judged", "--top_k", 4)
    assert ended.status == 0, ended.err
    return ended, made / "judged"


@pytest.fixture(scope="module")
def judged_items(cli, made):
    """The release of items, judged."""
    files = ("--input", made / "notes.jsonl", "--release", made / "items")
    options = ("--tokenizer", "item", "--output", made / "judged_items")
    ended = cli("evaluate", *files, *options)
    assert ended.status == 0, ended.err
    return ended, made / "judged_items"


def evaluation_of(folder):
    return json.loads((folder / f"{PREFIX}evaluation.json").read_text())


def snapshot(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def by_length(whole):
    return {row["length"]: row for row in whole["coverage"]}


def levels_of(whole, length):
    return [row for row in whole["k_anonymity"] if row["length"] == length]


def test_the_figures_are_those_of_a_plain_count_over_the_files(judged, made):
    whole = evaluation_of(judged[1])
    released = {}
    for row in read_release(str(made / "release")).table().to_pylist():
        released.setdefault(row["length"], set()).add(row["ngram"])
    assert whole["input"]["users"] == 150
    assert whole["input"]["rejected_reasons"] == {"malformed JSON": 1}
    rows = by_length(whole)
    for length in (1, 2, 3):
        holders, occurrences = {}, 0
        covered = 0
        for user, text in documents():
            for at in range(len(text) - length + 1):
                gram = join_tokens(text[at : at + length])
                holders.setdefault(gram, set()).add(user)
                occurrences += 1
                covered += gram in released[length]
        row = rows[length]
        assert row["released"] == len(released[length])
        assert row["real"] == len(released[length] & set(holders))
        assert row["spurious"] == len(released[length] - set(holders))
        assert row["spurious_ratio"] == row["spurious"] / row["released"]
        assert row["occurrence_share"] == covered / occurrences
        for own in levels_of(whole, length):
            held = {gram for gram, users in holders.items() if len(users) >= own["k"]}
            assert (own["held"], own["released"]) == (len(held), len(held & released[length]))
    assert rows["all"]["spurious"] > 0
    assert rows["all"]["real"] > 0


def test_tables_say_the_same_as_the_json_and_every_file_that_it_is_not_private(judged):
    ended, folder = judged
    assert {path.name for path in folder.iterdir()} == {PREFIX + name for name in FILES}
    whole = evaluation_of(folder)
    assert whole["notice"] == NOTICE
    lines = (folder / f"{PREFIX}coverage.csv").read_text().splitlines()
    for row in csv.DictReader(lines):
        assert row.pop("privacy") == MARK
        length = "all" if row["length"] == "all" else int(row["length"])
        for name, value in row.items():
            assert value == str(by_length(whole)[length][name])
    lines = (folder / f"{PREFIX}k_anonymity.csv").read_text().splitlines()
    assert len(lines) == 1 + 4 * 7
    flat = " ".join(ended.out.replace("│", " ").split())
    assert NOTICE in flat
    assert flat.index(NOTICE) < flat.index("Released n-grams")
    total = by_length(whole)["all"]
    for name in ("released", "real", "spurious"):
        assert f"{total[name]:,}" in flat
    assert f"{total['spurious_ratio']:.4g}" in flat
    assert "Files, not private either" in flat


def test_pandas_reads_every_table_and_finds_the_mark_in_every_row(judged, judged_items):
    for _, folder in (judged, judged_items):
        tables = {path.name: pandas.read_csv(path) for path in folder.glob("*.csv")}
        names = ("coverage.csv", "k_anonymity.csv", "counts.csv")
        assert set(tables) == {PREFIX + name for name in names}
        for table in tables.values():
            assert table.columns[0] == "length"
            assert set(table["privacy"]) == {MARK}
        coverage = tables[f"{PREFIX}coverage.csv"]
        released = [row["released"] for row in evaluation_of(folder)["coverage"]]
        assert coverage["released"].tolist() == released


def holders(length):
    """The users who have each n-gram of a length, by a plain count."""
    users = {}
    for user, text in documents():
        for at in range(len(text) - length + 1):
            users.setdefault(join_tokens(text[at : at + length]), set()).add(user)
    return {gram: len(own) for gram, own in users.items()}


def test_counts_are_compared_with_a_plain_count_over_the_files(judged, made):
    ended, folder = judged
    rows = read_release(str(made / "release")).table().to_pylist()
    counts = evaluation_of(folder)["counts"]
    assert [row["length"] for row in counts] == [1, 2, 3, "all"]
    covered = 0
    for quality in counts[:-1]:
        users = holders(quality["length"])
        own = [row for row in rows if row["length"] == quality["length"]]
        real = [row for row in own if row["ngram"] in users]
        inside = [r for r in real if r["users_low"] <= users[r["ngram"]] <= r["users_high"]]
        assert (quality["real"], quality["top_k"]) == (len(real), 4)
        assert quality["coverage"] == pytest.approx(len(inside) / len(real))
        covered += len(inside)
        # Rows are in the order of users, then of scores.
        fourth = sorted(users.values())[-4]
        assert quality["top"] == sum(users.get(row["ngram"], 0) >= fourth for row in own[:4])
    assert counts[-1]["coverage"] == pytest.approx(covered / counts[-1]["real"])
    assert counts[-1]["top"] is None
    flat = " ".join(ended.out.replace("│", " ").split())
    assert f"1 {counts[0]['coverage']:.4g}" in flat
    assert f"{counts[1]['rank_correlation']:.4g} 4 {counts[1]['top']}" in flat
    lines = (folder / f"{PREFIX}counts.csv").read_text().splitlines()
    table = [dict(row) for row in csv.DictReader(lines)]
    for row, quality in zip(table, counts, strict=True):
        assert row.pop("privacy") == MARK
        texts = {name: "" if value is None else str(value) for name, value in quality.items()}
        assert row == texts


def test_every_picture_says_what_was_spent_the_data_and_the_release(judged, made):
    caption = "ε = 6, δ = 0.001 · data: notes.jsonl · release: release"
    pictures = list(judged[1].glob("*.png"))
    assert len(pictures) == 1
    for picture in pictures:
        data = picture.read_bytes()
        assert caption.encode() in data
        assert str(made).encode() not in data


def test_a_release_with_a_title_and_without_counts_is_judged(cli, judge, made, tmp_path):
    titled = ("--title", "Notes of 2025", "--output", tmp_path / "titled", "--quiet")
    files = ("--input", made / "notes.jsonl", "--run_key_file", made / "key")
    options = ("--max_length", 1, "--count_share", 0)
    assert cli("ngrams", *files, *RUN[:4], *options, *titled).status == 0
    ended = judge("--output", tmp_path / "own", release=tmp_path / "titled" / "ledger.json")
    assert ended.status == 0, ended.err
    for picture in (tmp_path / "own").glob("*.png"):
        assert b"release: Notes of 2025" in picture.read_bytes()
    assert "has no numbers of users, so only its scores are compared" in ended.out
    assert "within factor two" not in ended.out
    counts = evaluation_of(tmp_path / "own")["counts"]
    assert counts[0]["top"] == counts[0]["top_k"] == len(holders(1)) == len(WORDS)
    assert counts[0]["coverage"] is None


def test_without_an_output_nothing_is_written(judge, made):
    before = snapshot(made)
    ended = judge("--quiet")
    assert (ended.status, ended.err) == (0, "")
    assert "NOT PRIVATE" in ended.out
    assert snapshot(made) == before


def test_a_release_of_items_is_judged(judged_items, made):
    _, folder = judged_items
    whole = evaluation_of(folder)
    assert whole["input"]["tokenizer"] == "item"
    items = set(read_release(str(made / "items")).table().column("item").to_pylist())
    users = {}
    for user, text in documents():
        users.setdefault(" ".join(text), set()).add(user)
    row = by_length(whole)[1]
    assert (row["released"], row["spurious"]) == (len(items), 0)
    covered = sum(" ".join(text) in items for _, text in documents())
    assert row["occurrence_share"] == covered / len(documents())
    levels = levels_of(whole, 1)
    assert [level["k"] for level in levels] == [1, 2, 5, 10, 20, 50, 100]
    for level in levels:
        held = {item for item, own in users.items() if len(own) >= level["k"]}
        assert (level["held"], level["released"]) == (len(held), len(held & items))
    assert items
    assert {p.suffix for p in folder.iterdir()} == {".json", ".csv", ".png"}


def test_an_earlier_evaluation_is_not_replaced_and_other_files_stay(judge, judged, made, tmp_path):
    folder = shutil.copytree(judged[1], tmp_path / "all")
    (folder / "mine.txt").write_text("stays")
    (folder / "release").symlink_to(made / "release")
    before = snapshot(folder)
    ended = judge("--output", folder, "--top_k", "2")
    assert (ended.status, snapshot(folder)) == (2, before)
    assert "output must be a directory without an evaluation" in ended.err
    for path in folder.glob(f"{PREFIX}*"):
        path.unlink()
    assert judge("--output", folder, "--top_k", "2").status == 0
    assert {row["top_k"] for row in evaluation_of(folder)["counts"][:-1]} == {2}
    assert (folder / "mine.txt").read_text() == "stays"
    assert len(list(folder.iterdir())) == len(FILES) + 2


@pytest.mark.parametrize(
    "others",
    [
        ("--tokenizer", "whitespace"),
        ("--user_field", "who"),
        ("--user_field", "user,id"),
        ("--text_field", "body"),
        ("--normalize_users",),
        ("--record_is_user",),
    ],
)
def test_what_changes_the_users_or_the_words_of_the_release_is_refused(judge, others):
    ended = judge(*others)
    assert (ended.status, ended.out) == (2, "")
    assert f"{others[0]} must be that of the release" in ended.err
    assert judge("--user_field", "user", "--text_field", "text", "--tokenizer", "words").status == 0


def test_a_release_of_sequences_is_judged(cli, tmp_path):
    path, release = tmp_path / "lines.seq", tmp_path / "release"
    path.write_text("see you soon\n" * 300)
    files = ("--input", path, "--input_format", "sequences")
    assert cli("ngrams", *files, "--output", release, *RUN, "--quiet").status == 0
    ended = cli("evaluate", "--input", path, "--release", release)
    assert (ended.status, ended.err) == (0, "")
    assert "│ 3      │        1 │" in ended.out


def test_an_evaluation_reads_the_input_as_the_release_did(cli, tmp_path):
    """Fields, format and the sign between fields are those of the ledger."""
    rows = [f"u{place % 150};{' '.join(text)}" for place, (_, text) in enumerate(documents())]
    (tmp_path / "notes.data").write_text("\n".join(rows) + "\n", encoding="utf-16-le")
    read = {"columns": ["who", "said"], "delimiter": "semicolon", "encoding": "utf-16-le"}
    read |= {"input_format": "csv", "user_field": "who", "text_field": "said"}
    (tmp_path / "plan.json").write_text(json.dumps(read))
    files = ("--input", tmp_path / "notes.data", "--output", tmp_path / "out")
    ended = cli("ngrams", *files, *RUN[:4], "--plan", tmp_path / "plan.json", "--quiet")
    assert ended.status == 0, ended.err
    given = ("--release", tmp_path / "out", "--input", tmp_path / "notes.data")
    ended = cli("evaluate", *given, "--input_format", "csv")
    assert ended.status == 0, ended.err
    assert " of 150 users." in " ".join(ended.out.split())


@pytest.mark.parametrize(
    ("options", "users"),
    [
        (("--user_field", "who,month"), 300),
        (("--normalize_users", "--user_field", "who"), 75),
        (("--record_is_user",), 600),
    ],
)
def test_an_evaluation_has_the_users_of_the_release(cli, tmp_path, options, users):
    rows = [f"u{n % 75}{' ' * (n % 2)},{n // 300},see you soon\n" for n in range(600)]
    path = tmp_path / "notes.csv"
    path.write_text("who,month,text\n" + "".join(rows))
    given = ("--input", path, "--output", tmp_path / "out", *RUN[:4], "--max_length", 2, "--quiet")
    ended = cli("ngrams", *given, *options)
    assert ended.status == 0, ended.err
    ended = cli("evaluate", "--release", tmp_path / "out", "--input", path)
    assert ended.status == 0, ended.err
    assert f" of {users} users." in " ".join(ended.out.split())


QUOTING = """
from beam_dpne.errors import TokenizerError

class Subclass(TokenizerError):
    pass

class Result:
    def __init__(self, kind):
        self.kind = kind

    @property
    def type(self):
        raise ValueError(self.kind)

def raises(texts):
    raise TokenizerError(texts[0].as_py())

def raises_a_subclass(texts):
    raise Subclass(texts[0].as_py())

def returns_an_object(texts):
    return Result(texts[0].as_py())
"""


@pytest.mark.parametrize("function", ["raises", "raises_a_subclass", "returns_an_object"])
def test_a_tokenizer_that_quotes_texts_shows_none(
    cli, judge, made, tmp_path, monkeypatch, function
):
    name = f"indiscreet_{function}"
    path = tmp_path / f"{name}.py"
    path.write_text(f"from beam_dpne.documents.tokenizers import whitespace as {function}")
    monkeypatch.syspath_prepend(tmp_path)
    given = ("--tokenizer", f"{name}:{function}", "--output", tmp_path / "out")
    assert cli("ngrams", "--input", made / "notes.jsonl", *RUN[:4], *given).status == 0
    path.write_text(QUOTING)
    del sys.modules[name]
    importlib.invalidate_caches()
    ended = judge(release=tmp_path / "out")
    assert ended.status != 0
    assert f"tokenizer {name}:" in ended.err
    assert not any(word in ended.err for word in WORDS[2:])


@pytest.mark.parametrize("kind", [ValueError, pa.ArrowInvalid, FileNotFoundError, RunError])
def test_a_message_of_others_is_withheld_after_the_data_were_read(judge, monkeypatch, kind):
    """Only errors of the package itself are known to quote nothing."""
    other = type("Other", (kind,), {}) if kind is RunError else kind

    def fail(*_):
        raise other("Smith")

    monkeypatch.setattr(evaluating, "index_corpus", fail)
    ended = judge()
    assert ended.status == 1
    assert "its message is withheld, since it may quote the data" in ended.err
    assert "Smith" not in ended.err


def test_known_and_new_n_grams_are_told_apart_by_the_lists_of_the_run(cli, judge, made, tmp_path):
    lists = {
        "words.tsv": ["see", "you", "see you", "you see soon", *(f"no{i}" for i in range(300))]
    }
    lists["more.tsv"] = ["dear friend", "dear"]
    for name, ngrams in lists.items():
        rows = [f"{ngram}\t{count}" for count, ngram in enumerate(ngrams, 2)]
        (tmp_path / name).write_text("\n".join(["ngram\tcount", *rows]) + "\n")
    known = [part for name in lists for part in ("--known", tmp_path / name)]
    plan = {"epsilon": 6, "delta": 1e-3, "max_length": 3, "spurious_fraction": 0.5}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    key = tmp_path / "run.key"
    files = ("--input", made / "notes.jsonl", "--run_key_file", key, "--quiet")
    given = (*files, "--plan", tmp_path / "plan.json", *known, "--known_min_count", 3)
    # A key draws other noise where Python has other tables of Unicode. This takes the first key that
    # draws a known word which nobody has.
    for number in range(1, 50):
        key.write_text(f"{number:064x}")
        ended = cli("ngrams", *given, "--output", tmp_path / "out", "--overwrite")
        assert ended.status == 0, ended.err
        released = read_release(str(tmp_path / "out")).table().column("ngram").to_pylist()
        if any(ngram.startswith("no") for ngram in released):
            break
    ended = judge(*known, "--output", tmp_path / "judged", release=tmp_path / "out")
    assert ended.status == 0, ended.err
    # "see" stands there twice, less than the run asked for.
    names = {*lists["words.tsv"], *lists["more.tsv"]} - {"see", "dear friend"}
    held = {
        join_tokens(text[start : start + length])
        for _, text in documents()
        for length in (1, 2, 3)
        for start in range(len(text) - length + 1)
    }
    own = [row["ngram"] for row in read_release(str(tmp_path / "out")).table().to_pylist()]
    found = evaluation_of(tmp_path / "judged")["families"]
    for row in found[-2:]:
        expected = [ngram for ngram in own if (ngram in names) == (row["family"] == "known")]
        assert (row["length"], row["released"]) == ("all", len(expected))
        assert row["real"] == len(held.intersection(expected)) > 0
        assert row["spurious"] == row["released"] - row["real"]
    assert found[0]["spurious"] > 0
    assert sum(row["released"] for row in found[:-2]) == len(own)
    for others in (known[:2], [*known[:2], *known[:2]]):
        ended = judge(*others, release=tmp_path / "out")
        assert (ended.status, ended.out) == (2, "")
        assert "known must be the lists of the run" in ended.err
    assert "known must be left out for a release whose run knew no list" in judge(*known).err


# Where it must not write


@pytest.mark.parametrize(
    "where",
    ["release", "release/", "release/sub", "release/a/b/c", "items", "items/x", "./release/."],
)
def test_an_output_in_a_release_is_refused_and_the_release_stays(judge, made, where):
    before = snapshot(made)
    ended = judge("--output", f"{made}/{where}")
    assert (ended.status, ended.out) == (2, "")
    assert "output must be outside every release" in ended.err
    assert ended.err.count("\n") == 1
    assert snapshot(made) == before
    assert not (made / "release" / "sub").exists()


@pytest.mark.parametrize("kind", ["file", "missing in file"])
def test_an_output_that_cannot_be_a_directory_is_refused_before_data_are_read(
    judge, tmp_path, kind
):
    (tmp_path / "f").write_text("x")
    where = tmp_path / "f" if kind == "file" else tmp_path / "f" / "sub"
    ended = judge("--output", where)
    assert (ended.status, ended.out) == (2, "")
    assert "output must be a directory that can be written" in ended.err
    assert "reading" not in ended.err


# Options


def test_a_directory_without_a_release_is_refused(cli, made, tmp_path):
    ended = cli("evaluate", "--input", made / "notes.jsonl", "--release", tmp_path)
    assert ended.status == 2
    assert "there is no release" in ended.err


def test_a_damaged_release_is_refused(cli, made, tmp_path):
    for path in (made / "release").iterdir():
        data = path.read_bytes()
        (tmp_path / path.name).write_bytes(
            data if path.suffix == ".json" and "ledger" in path.name else data + b" "
        )
    ended = cli("evaluate", "--input", made / "notes.jsonl", "--release", tmp_path, "--quiet")
    assert (ended.status, ended.out) == (2, "")
    assert "is damaged: part ngrams-" in ended.err


@pytest.mark.engines
@pytest.mark.storage
def test_on_a_bucket_it_reads_and_writes_and_keeps_out_of_releases(cli, made, bucket):
    source = bucket.put("in/notes.jsonl", (made / "notes.jsonl").read_bytes())
    for path in (made / "release").iterdir():
        bucket.put(f"releases/one/{path.name}", path.read_bytes())
    files = ("--input", source, "--release", bucket.path("releases/one"))
    before = bucket.files("releases/")
    for where in ("releases/one", "releases/one/", "releases/one/sub", "releases/one//x/y"):
        ended = cli("evaluate", *files, "--output", bucket.path(where))
        assert ended.status == 2
        assert "output must be outside every release" in ended.err
    assert bucket.files("releases/") == before
    for where in ("releases", "evaluations/deep"):
        ended = cli("evaluate", *files, "--output", bucket.path(where), "--quiet")
        assert ended.status == 0, ended.err
        names = {PREFIX + name for name in FILES}
        assert names <= {name.rsplit("/", 1)[-1] for name in bucket.names(f"{where}/")}
    assert {n: d for n, d in bucket.files("releases/one/").items()} == {
        n.removeprefix("one/"): d for n, d in before.items()
    }
