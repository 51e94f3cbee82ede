"""A list whose users are counted: read from lines, tables and releases, with a row for each phrase."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_dpne.lists.phrases import PhraseList
from beam_dpne.release.reading import read_release

GIVEN = ("--epsilon", "10", "--delta", "1e-4", "--quiet")
PHRASES = ["good morning", "nobody here", "you"]


@pytest.fixture
def counted(cli, tmp_path, monkeypatch):
    """Counts the users of a list in 200 texts; returns what the program said, and the rows."""
    monkeypatch.chdir(tmp_path)
    rows = [{"user": f"u{n}", "text": "Good morning, you", "team": "ab"[n % 2]} for n in range(200)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def run(phrases, *more):
        output = tmp_path / f"out{len(list(tmp_path.glob('out*')))}"
        given = ("count", "--input", "in.jsonl", "--phrases", phrases, *GIVEN)
        ended = cli(*given, "--output", output, *more)
        found = read_release(str(output)).table().to_pylist() if ended.status == 0 else None
        return ended, found

    return run


def write_csv(path):
    path.write_text("ngram\nGood Morning\nnobody here\nyou\n")


def write_jsonl(path):
    path.write_text("".join(json.dumps({"ngram": phrase}) + "\n" for phrase in PHRASES))


LISTS = {
    "phrases.txt": lambda path: path.write_text("Good  morning!\n\nnobody here\nYOU\n"),
    "phrases.csv": write_csv,
    "phrases.jsonl": write_jsonl,
    "phrases.parquet": lambda path: pq.write_table(pa.table({"ngram": PHRASES}), path),
    "counts.txt": lambda path: path.write_text("".join(f"{each}\t3\n" for each in PHRASES)),
}


@pytest.mark.parametrize("name", LISTS)
def test_every_phrase_of_each_kind_of_list_has_a_row_and_none_is_added(counted, tmp_path, name):
    LISTS[name](tmp_path / name)
    ended, rows = counted(name)
    assert ended.status == 0, ended.err
    assert sorted(row["ngram"] for row in rows) == PHRASES
    found = {row["ngram"]: row for row in rows}
    assert found["you"]["users_low"] <= 200 <= found["you"]["users_high"]
    assert found["nobody here"]["users_low"] == 0
    assert found["nobody here"]["users_high"] < 50


def test_the_phrases_of_a_release_are_counted_and_its_ledger_is_named(counted, cli, tmp_path):
    released = tmp_path / "release"
    ended = cli("ngrams", "--input", "in.jsonl", *GIVEN, "--max_length", "2", "--output", released)
    assert ended.status == 0, ended.err
    ended, rows = counted(released, "--phrases_same_people")
    assert ended.status == 0, ended.err
    release = read_release(str(released))
    assert {row["ngram"] for row in rows} == set(release.table()["ngram"].to_pylist())
    (listed,) = read_release(str(tmp_path / "out0")).public_lists
    assert (listed["sha256"], listed["same_people"]) == (release.ledger_sha256, True)


@pytest.mark.parametrize(
    ("name", "fault", "said"),
    [
        ("list.txt", "good morning\n...\n", "..."),
        ("list.txt", "good morning\nGOOD morning!\n", "GOOD morning!"),
        ("list.jsonl", '{"ngram": "good morning"}\n{"ngram": null}\n', "1 other rows"),
        ("list.csv", 'ngram,note\ngood morning,a\n"",b\n', "1 other rows"),
        ("pairs.csv", "group,ngram\na,good morning\n,you\n", "1 other rows"),
        ("pairs.jsonl", '{"ngram": "good morning", "group": "a"}\n{"ngram": "you"}\n', "1 other"),
    ],
)
def test_no_phrase_of_a_list_is_left_out_without_a_word(counted, tmp_path, name, fault, said):
    """Neither one that no text has or that is there twice, nor a row without a phrase or a group."""
    (tmp_path / name).write_text(fault)
    grouped = ("--group_field", "team") if name.startswith("pairs") else ()
    ended, _ = counted(name, *grouped)
    assert ended.status == 2
    assert said in ended.err
    ended, rows = counted(name, *grouped, "--unmakeable", "leave_out")
    assert ended.status == 0, ended.err
    assert [row["ngram"] for row in rows] == ["good morning"]
    (listed,) = read_release(str(tmp_path / "out0")).public_lists
    assert (listed["phrases"], listed["left_out"]) == (1, 1)


def test_groups_are_those_that_are_named_or_those_of_a_table(counted, tmp_path):
    (tmp_path / "list.txt").write_text("you\n")
    grouped = ("--group_field", "team")
    ended, rows = counted("list.txt", *grouped, "--groups", "a,zz")
    assert ended.status == 0, ended.err
    found = {row["group"]: row for row in rows}
    assert set(found) == {"a", "zz"}
    assert found["a"]["users_low"] <= 100 <= found["a"]["users_high"]
    assert found["zz"]["users_low"] == 0
    (tmp_path / "pairs.csv").write_text("group,ngram\na,you\nb,good morning\n")
    _, rows = counted("pairs.csv", *grouped)
    assert {(row["group"], row["ngram"]) for row in rows} == {("a", "you"), ("b", "good morning")}
    for phrases, more, told in (
        ("list.txt", grouped, "--group_field needs --groups, or a table"),
        ("pairs.csv", (*grouped, "--groups", "a"), "--group_field needs --groups, or a table"),
        ("list.txt", ("--groups", "a"), "--groups must be given with --group_field"),
        (
            "pairs.csv",
            (),
            "--group_field must be given with a list of phrases that has a column group",
        ),
        (
            "list.txt",
            (*grouped, "--groups", "a,b", "--groups", "a"),
            "--groups must be distinct, got a",
        ),
    ):
        ended, _ = counted(phrases, *more)
        assert ended.status == 2
        assert told in ended.err


def test_a_group_of_the_data_that_the_list_does_not_name_leaves_nothing(counted, tmp_path):
    (tmp_path / "list.txt").write_text("you\n")
    unlisted = {"user": "lone", "text": "you", "team": "secretteam"}
    with (tmp_path / "in.jsonl").open("a") as file:
        file.write(json.dumps(unlisted) + "\n")
    ended, rows = counted("list.txt", "--group_field", "team", "--groups", "a,b")
    assert ended.status == 0, ended.err
    assert {row["group"] for row in rows} == {"a", "b"}
    written = [path.read_text() for path in (tmp_path / "out0").iterdir()]
    assert not any("secretteam" in said for said in (ended.out, ended.err, *written))


@pytest.mark.parametrize(
    ("phrases", "more", "said"),
    [
        ("list.txt", ("--max_phrases", "1"), "max_phrases"),
        ("list.txt", ("--phrases_same_people",), "needs a release"),
        ("in.jsonl", (), "must not be private data"),
    ],
)
def test_a_list_that_is_too_long_or_no_public_list_is_refused(
    counted, tmp_path, phrases, more, said
):
    (tmp_path / "list.txt").write_text("good morning\nyou\n")
    ended, _ = counted(phrases, *more)
    assert ended.status == 2
    assert said in ended.err


def test_a_phrase_that_folding_changes_is_no_phrase_of_the_run(counted, tmp_path):
    (tmp_path / "list.csv").write_text("ngram\nYou\nyou\n")
    given = ("--tokenizer", "whitespace", "--fold", "case")
    ended, _ = counted("list.csv", *given)
    assert ended.status == 2
    assert "'you' (equal to another one" in ended.err


def test_the_order_of_a_list_changes_nothing_and_other_lists_have_other_digests():
    lists = (["a", "b"], ["b", "a"], ["a b"], ["a"])
    first, turned, *others = [PhraseList.of([each.split() for each in every]) for every in lists]
    assert first.sha256 == turned.sha256
    assert first.texts == turned.texts
    grouped = PhraseList.of([("a",), ("b",)], ["a", "b"])
    assert len({each.sha256 for each in (first, *others, grouped)}) == 4
