"""`beam-dpne set-union` and `bayesian`, as far as they differ from `ngrams`."""

import json

import pytest

from beam_dpne.elements import progress
from beam_dpne.release.reading import read_ledger, read_release
from beam_dpne.set_union.plan import POLICIES

BUDGET = ("--epsilon", 10, "--delta", 1e-4, "--quiet")
KEY = "0f1e2d3c" * 8


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """200 users with two items that all have and one of their own, a key, and public counts."""
    folder = tmp_path_factory.mktemp("items")
    rows = [
        {"user": f"u{n}", "text": ["tea", "green tea", f"own {n}"], "words": "good morning you"}
        for n in range(200)
    ]
    (folder / "items.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "key").write_text(KEY)
    (folder / "public.tsv").write_text("good morning\t9\nmorning you\t5\nyou there\t2\n")
    return folder


def rows_of(folder):
    return read_release(str(folder)).table().to_pylist()


@pytest.mark.parametrize("policy", POLICIES)
def test_each_policy_releases_what_many_share_and_nothing_of_one_user(cli, data, tmp_path, policy):
    given = ("--input", data / "items.jsonl", "--tokenizer", "tokens", "--output", tmp_path)
    key = ("--run_key_file", data / "key")
    ended = cli("set-union", *given, *BUDGET, *key, "--policy", policy)
    assert ended.status == 0, ended.err
    assert {row["item"] for row in rows_of(tmp_path)} == {"tea", "green tea"}
    assert read_ledger(str(tmp_path))["mechanism"]["policy"] == policy


def test_one_key_gives_one_set_however_the_work_is_divided(cli, data, tmp_path):
    given = ("--input", data / "items.jsonl", "--tokenizer", "tokens", *BUDGET)
    key = ("--run_key_file", data / "key")
    for name, others in {"a": (), "b": ("--runner", "FnApiRunner", "--partitions", 5)}.items():
        assert cli("set-union", *given, *key, *others, "--output", tmp_path / name).status == 0
    assert rows_of(tmp_path / "a") == rows_of(tmp_path / "b")


def test_rare_parameters_reach_the_ledger(cli, data, tmp_path):
    given = ("--input", data / "items.jsonl", "--tokenizer", "tokens", "--output", tmp_path)
    ended = cli(
        "set-union", *given, *BUDGET, "--policy", "policy_gaussian", "--max_shard_users", 3_000_000
    )
    assert ended.status == 0, ended.err
    assert read_ledger(str(tmp_path))["plan"]["max_shard_users"] == 3_000_000


def test_probabilities_are_those_of_the_public_n_grams(cli, data, tmp_path):
    given = ("--input", data / "items.jsonl", "--text_field", "words", "--length", 2)
    given = (*given, "--public", data / "public.tsv", *BUDGET, "--run_key_file", data / "key")
    for name, others in {"a": (), "b": ("--runner", "FnApiRunner", "--partitions", 3)}.items():
        ended = cli("bayesian", *given, *others, "--output", tmp_path / name)
        assert ended.status == 0, ended.err
    rows = rows_of(tmp_path / "a")
    assert rows == rows_of(tmp_path / "b")
    assert {row["ngram"] for row in rows} == {"good morning", "morning you", "you there"}
    assert min(rows, key=lambda row: row["probability"])["ngram"] == "you there"


def test_a_public_list_of_several_lengths_has_probabilities_in_one_run(cli, data, tmp_path):
    (tmp_path / "list.tsv").write_text("tea\t9\ngreen tea\t5\nblack tea with milk\t2\nmilk\t1\n")
    given = ("--input", data / "items.jsonl", "--tokenizer", "tokens", *BUDGET)
    given = (*given, "--public", tmp_path / "list.tsv", "--output", tmp_path / "out")
    ended = cli("bayesian", *given)
    assert ended.status == 2
    assert "--length must be the number of words in the longest n-gram of public, 4" in ended.err
    texts = [{"user": f"u{n}", "text": "Green tea or milk"} for n in range(200)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, texts)))
    ended = cli("bayesian", *given[4:], "--input", tmp_path / "a.jsonl", "--length", 4)
    assert ended.status == 0, ended.err
    found = {row["ngram"]: row["probability"] for row in rows_of(tmp_path / "out")}
    assert sum(found.values()) == pytest.approx(1)
    assert all(
        found[name] == pytest.approx(1 / 3, abs=0.05) for name in ("tea", "green tea", "milk")
    )
    model = ("--public", tmp_path / "list.tsv", "--output", tmp_path / "a.arpa")
    ended = cli("export", tmp_path / "out", "--to", "arpa", *model)
    assert ended.status == 2
    assert "n-grams of one length for arpa" in ended.err


@pytest.mark.parametrize(
    ("public", "message"),
    [
        ("items.jsonl", "public must not be private data"),
        ("copy.txt", "public must not be private data"),
        ("none.tsv", "public"),
    ],
)
def test_public_counts_that_cannot_be_used_are_refused(cli, data, tmp_path, public, message):
    (data / "copy.txt").write_bytes((data / "items.jsonl").read_bytes())
    given = ("--input", data / "items.jsonl", "--text_field", "words", "--length", 2)
    ended = cli("bayesian", *given, "--public", data / public, *BUDGET, "--output", tmp_path / "o")
    assert ended.status == 2
    assert message in ended.err
    assert not (tmp_path / "o" / "ledger.json").exists()


@pytest.mark.parametrize("program", ["set-union", "bayesian"])
def test_progress_counts_the_parts_of_each_pass_over_users(
    cli, data, tmp_path, monkeypatch, program
):
    seen, repeat = [], progress.repeat

    def observed(step):
        repeat(step)
        if step.place is not None:
            seen.append(progress.snapshot())

    monkeypatch.setattr(progress, "repeat", observed)
    rows = {
        "set-union": ("--text_field", "text", "--tokenizer", "tokens"),
        "bayesian": ("--text_field", "words", "--public", data / "public.tsv", "--length", 2),
    }[program]
    given = ("--input", data / "items.jsonl", *rows, "--output", tmp_path, "--partitions", 4)
    assert cli(program, *given, *BUDGET).status == 0
    passes = {}
    for now in seen:
        passes.setdefault((now.stage, now.round), []).append((now.done, now.parts))
    all_of_four = [(done, 4) for done in range(4)]
    found = {place for place, told in passes.items() if told[:4] == all_of_four}
    expected = {"set-union": {("users", 0), ("users", 2), ("count", 0)}, "bayesian": {("users", 0)}}
    assert found >= expected[program]
