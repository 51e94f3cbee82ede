"""N-grams of groups: each word has its group in front of it, and everything else is as without."""

import collections
import csv
import dataclasses
import io
import json
import random
import re

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from hypothesis import event, given
from hypothesis import strategies as st

from beam_dpne import (
    CountedGroupedNgram,
    GroupedNgram,
    NgramsPlan,
    PrivateNgrams,
    RunKey,
    read_release,
)
from beam_dpne.documents.blocks import split_groups
from beam_dpne.documents.rows import batch_of_rows
from beam_dpne.documents.rows import documents_of as documents_in_batch
from beam_dpne.documents.run_keys import key_context
from beam_dpne.documents.steps import BatchDocuments
from beam_dpne.elements.rows import in_order
from beam_dpne.evaluation.corpus import index_corpus, read_corpus
from beam_dpne.evaluation.judging import rows_of_table
from beam_dpne.lists.known import KnownNgrams
from beam_dpne.ngrams.decisions import merge_released
from beam_dpne.ngrams.elements import GramSet, word_ids
from beam_dpne.ngrams.in_memory import release_ngrams
from beam_dpne.ngrams.keys import pack_pairs, unpack_pairs
from beam_dpne.ngrams.known import root_of
from beam_dpne.ngrams.length_rules import rule_for
from beam_dpne.ngrams.released_rows import GramRows, ReleasedRows
from beam_dpne.ngrams.valid import class_sizes, members
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import InputDescription, ReadOptions
from beam_dpne.steps import GroupByUser
from pipelines import more_exports
from tests.conftest import _run_cli
from tests.ngrams.test_released_rows import plain_table, released_sets
from tests.support.pipelines import keep
from tests.yaml.running import run_yaml

KEY = RunKey(b"groups".ljust(32, b"."))
PLAN = NgramsPlan(epsilon=10, delta=1e-4, max_length=3, spurious_fraction=0.3)
GROUPS = ["dk", "dk b", "New Zealand", "202501", "=1+1", "日本"]
WORDS = ["a", "b", "c", "d", "ab", "a!", "é"]
BUDGET = ("--epsilon", 10, "--delta", 1e-4, "--max_length", 3)
Documents = list[tuple[str, str, str]]


def documents_of(seed: int, users: int = 150) -> Documents:
    """Users who write in several groups; some groups have one user."""
    rng = random.Random(seed)
    found = []
    for user in range(users):
        for group in rng.sample(GROUPS, 3):
            text = " ".join(rng.choices(WORDS, range(len(WORDS), 0, -1), k=8))
            found.append((f"u{user}", text, group))
    return [*found, ("u0", "a b c", "of one user")]


def in_front(texts: pa.Array) -> pa.ListArray:
    """A tokenizer of texts that begin with their group and a line: it puts it in front of each word."""
    rows = (text.split("\n") for text in texts.to_pylist())
    return pa.array(
        [[f"{group}\x1f{word}" for word in text.split()] for group, text in rows],
        pa.list_(pa.string()),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Documents in files of each format, and a run key."""
    place = tmp_path_factory.mktemp("groups")
    rows = [{"who": user, "said": text, "country": group} for user, text, group in documents_of(0)]
    (place / "notes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (place / "notes.json").write_text(json.dumps(rows))
    pq.write_table(pa.Table.from_pylist(rows), place / "notes.parquet")
    with open(place / "notes.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["country", "said", "who"])
        writer.writeheader()
        writer.writerows(rows)
    (place / "key").write_text("0f1e2d3c" * 8)
    return place


@pytest.fixture(scope="module")
def release(folder, tmp_path_factory):
    """A release of the JSON lines with groups."""
    place = tmp_path_factory.mktemp("release") / "out"
    ended = _run_cli(*ngrams(folder, "notes.jsonl", place))
    assert ended.status == 0, ended.err
    return place


def ngrams(folder, name, output, *more):
    fields = ("--user_field", "who", "--text_field", "said", "--group_field", "country")
    given = ("--input", folder / name, "--output", output, "--run_key_file", folder / "key")
    return ("ngrams", *given, *fields, *BUDGET, "--tokenizer", "whitespace", *more)


def laid_out(documents: Documents, tokenizer, is_grouped: bool) -> list:
    """The positions of users, as the product lays them out."""
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        if not is_grouped:
            documents = [(user, f"{group}\n{text}") for user, text, group in documents]
        batch = BatchDocuments(group_field="group" if is_grouped else None)
        group = GroupByUser(
            run_key=KEY, tokenizer=tokenizer, max_tokens_per_user=20, is_grouped=is_grouped
        )
        found = keep(pipeline | beam.Create(documents) | batch | group)
    return list(found)


@pytest.mark.parametrize("given", [{}, {"strategy": "one_round"}])
def test_a_release_is_that_of_a_tokenizer_that_puts_the_group_in_front_of_each_word(given):
    plan = NgramsPlan(epsilon=10, delta=1e-4, max_length=3, spurious_fraction=0.3, **given)
    documents = documents_of(1)
    users = laid_out(documents, "whitespace", True)
    # Whoever writes in several groups is one user, with one budget and one limit of tokens.
    assert sum(len(batch.users) for batch in users) == len({user for user, _, _ in documents})
    own = release_ngrams(users, plan, KEY, is_grouped=True)
    in_fronts = laid_out(documents, in_front, False)
    assert_same(own, release_ngrams(in_fronts, plan, KEY, is_grouped=True))
    # A run that does not know of groups finds the same words, and knows more candidates than there are.
    assert_same(own[:1], release_ngrams(in_fronts, plan, KEY)[:1], with_users=False)
    rows = ReleasedRows.of(own).table().to_pylist()
    assert {row["length"] for row in rows} == {1, 2, 3}
    assert {row["group"] for row in rows} == set(GROUPS)
    # Numbers of users follow the groups, which each row has from its first word.
    texts = split_groups(own[0].words)[0].to_pylist()
    first_words = [word_ids(own, place, np.arange(len(own[place])))[0] for place in range(3)]
    names = np.array(texts)[np.concatenate(first_words)]
    numbers = GramRows(pruning=plan.pruning).groups(own)
    assert len(set(zip(names, numbers, strict=True))) == len(set(names)) == len(set(numbers))
    words = {(row["group"], row["ngram"]) for row in rows if row["length"] == 1}
    assert all((row["group"], word) in words for row in rows for word in row["ngram"].split())


def test_a_release_of_one_group_is_one_without_groups():
    documents = [(user, text, "dk") for user, text, _ in documents_of(1)]
    own = release_ngrams(laid_out(documents, "whitespace", True), PLAN, KEY, is_grouped=True)
    assert_same(own, release_ngrams(laid_out(documents, in_front, False), PLAN, KEY))


def assert_same(sets, others, *, with_users=True):
    for grams, same in zip(sets, others, strict=True):
        assert np.array_equal(grams.keys, same.keys)
        assert np.array_equal(grams.scores, same.scores)
        assert not with_users or np.array_equal(grams.users, same.users)
    assert sets[0].words.equals(others[0].words)


@pytest.mark.parametrize("by_prediction", [True, False])
def test_candidates_of_two_words_are_all_pairs_within_groups(by_prediction):
    words = [f"{group}\x1f{word}" for group in ("a", "b", "c") for word in WORDS]
    rng = np.random.default_rng(0)
    previous = GramSet(
        length=1,
        keys=np.arange(len(words)),
        scores=rng.uniform(1, 50, len(words)),
        words=pa.array(words),
        vocabulary_size=len(words),
        is_grouped=True,
    )
    sizes = class_sizes(previous, by_prediction=by_prediction)
    chosen = {number: np.arange(size) for number, size in sizes.items()}
    keys = np.concatenate([*members(previous, chosen, by_prediction=by_prediction).values()])
    first, second = unpack_pairs(keys)
    pairs = {(words[a], words[b]) for a, b in zip(first, second, strict=True)}
    assert len(keys) == len(pairs) == 3 * len(WORDS) ** 2
    assert all(a[0] == b[0] for a, b in pairs)


@given(released_sets(), st.lists(st.sampled_from(["a", "a b", "b", "é"]), min_size=1, unique=True))
def test_rows_have_their_groups_and_are_in_order(sets, groups):
    rows = ReleasedRows.of(in_groups(sets, groups))
    plain = plain_table(sets)
    expected = [{**row, "group": group} for row in plain.to_pylist() for group in groups]
    expected = in_order(pa.Table.from_pylist(expected, schema=rows.schema))
    event(f"words in the order of their texts: {rows._words[-1]}")
    assert rows.schema.names == ["length", "group", *plain.schema.names[1:]]
    assert rows.table().equals(expected)
    assert rows.select(["group"]).slice(0, 3).equals(expected.select(["group"]).slice(0, 3))


def in_groups(sets, groups):
    """The same sets in each group."""
    texts = [f"{group}\x1f{word}" for group in groups for word in sets[0].words.to_pylist()]
    found = []
    for grams in sets:
        before = len(sets[grams.length - 2])
        seconds = before if grams.pruning == "both" else len(sets[0])
        keys = []
        for place in range(len(groups)):
            pair = pack_pairs(np.array([place * before]), np.array([place * seconds]))
            keys.append(grams.keys + (place * len(grams) if grams.length == 1 else pair))
        is_first = grams.length == 1
        users = None if grams.users is None else np.tile(grams.users, (len(groups), 1))
        changes = {"keys": np.concatenate(keys), "scores": np.tile(grams.scores, len(groups))}
        changes |= {"words": pa.array(texts, pa.string()) if is_first else None, "users": users}
        found.append(dataclasses.replace(grams, is_grouped=True, **changes))
    return found


LISTS = {
    "plain": [("a",), ("a", "b"), ("b", "a"), ("a", "b", "a"), ("b", "z")],
    "of one group": [("x\x1fa",), ("x\x1fa", "x\x1fb"), ("y\x1fa", "y\x1fz")],
}


@pytest.mark.parametrize("names", [["plain"], ["of one group"], ["plain", "of one group"]])
def test_known_ngrams_without_a_group_are_known_in_each_group(names):
    known = KnownNgrams.joined([KnownNgrams.of(LISTS[name]) for name in names])
    root = root_of(known, 3, is_grouped=True)
    listed = [gram for name in names for gram in LISTS[name]]
    words = ["x\x1fa", "x\x1fb", "y\x1fa", "y\x1fb", "y\x1fz", "z\x1fa"]
    rows = root.candidates.known
    single = [] if rows is None else root.words.take(rows).to_pylist()
    # Which groups there are is not known, so that no word is known in all of them.
    assert single == [gram[0] for gram in listed if len(gram) == 1 and "\x1f" in gram[0]]
    part = GramSet(
        length=1,
        keys=np.arange(6),
        scores=np.ones(6),
        words=pa.array(words),
        rule=rule_for(PLAN, root),
    )
    found = merge_released([part], root)
    assert found.is_grouped
    first, second = unpack_pairs(found.candidates.known)
    pairs = [(words[a], words[b]) for a, b in zip(first, second, strict=True)]
    expected = {gram for gram in listed if len(gram) == 2 and set(gram) <= set(words)}
    for group in "xyz":
        grams = [tuple(f"{group}\x1f{word}" for word in gram) for gram in listed if len(gram) == 2]
        expected |= {gram for gram in grams if set(gram) <= set(words)}
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == expected
    texts = ["a", "a b", "b a", "a z", "a b a"]
    for group in "xyz":
        rows = [tuple(f"{group}\x1f{word}" for word in text.split()) for text in texts]
        is_known = [
            row in listed or (len(row) > 1 and tuple(text.split()) in listed)
            for row, text in zip(rows, texts, strict=True)
        ]
        assert known.covers(texts, [group] * 5).tolist() == is_known
    plain = [tuple(word.split("\x1f")[-1] for word in gram) for gram in listed]
    assert known.covers(texts).tolist() == [tuple(text.split()) in plain for text in texts]
    triples = [words[word] for word in found.candidates.known_longer]
    assert len(triples) == (6 if "plain" in names else 0)


def test_lists_and_releases_are_known_in_groups(cli, folder, release, tmp_path):
    """The last release has groups, a public text has none, and a table may have them."""
    (tmp_path / "text.txt").write_text("a b\na b\na b c\n")
    (tmp_path / "table.csv").write_text("ngram,group\na b,dk\nd,New Zealand\nA,dk\n")
    known = (
        "--known",
        tmp_path / "text.txt",
        "--known",
        tmp_path / "table.csv",
        "--known",
        release,
    )
    more = (*known, "--known_min_count", 2, "--known_same_people")
    first, second = tmp_path / "first", tmp_path / "second"
    assert cli(*ngrams(folder, "notes.jsonl", first, *more)).status == 0
    assert cli(*ngrams(folder, "notes.jsonl", second, *more, "--runner", "FnApiRunner")).status == 0
    assert read_release(str(first)).ledger == read_release(str(second)).ledger
    text, table, last = read_release(str(first)).ledger["known"]["lists"]
    assert (text["ngrams"], table["ngrams"]) == (3, 3)
    assert last["ngrams"] == read_release(str(release)).num_rows
    assert set(read_release(str(first)).table()["group"].to_pylist()) <= {*GROUPS}
    # Words alone of a list without groups decide nothing.
    (tmp_path / "words.csv").write_text("ngram\na\nb\n")
    words = ("--known", tmp_path / "words.csv")
    assert cli(*ngrams(folder, "notes.jsonl", tmp_path / "third", *words)).status == 0
    rows = [read_release(str(path)).table() for path in (tmp_path / "third", release)]
    assert rows[0].equals(rows[1])


def test_a_word_without_a_group_is_an_error():
    words = GramSet(
        length=1,
        keys=np.arange(1),
        scores=np.ones(1),
        words=pa.array(["x"]),
        is_grouped=True,
    )
    with pytest.raises(ValueError, match="group in front"):
        ReleasedRows.of([words]).table()


@pytest.mark.parametrize("name", ["notes.json", "notes.csv", "notes.parquet"])
def test_a_release_has_groups_from_files_of_every_format(cli, folder, release, tmp_path, name):
    kind = {"notes.json": "jsonl", "notes.csv": "tsv", "notes.parquet": "parquet"}[name]
    more = ("--output_format", kind, *(("--input_format", "json") if kind == "jsonl" else ()))
    assert cli(*ngrams(folder, name, tmp_path / "out", *more)).status == 0
    found = read_release(str(tmp_path / "out"))
    found.verify()
    first = read_release(str(release))
    assert found.table().schema.names[:3] == ["length", "group", "ngram"]
    groups = {row["group"] for row in found.table().to_pylist()}
    # The group of one user is not there.
    assert groups == set(GROUPS)
    assert found.ledger["input"]["group_field"] == "country"
    assert [each["released"] for each in found.ledger["lengths"]] == np.bincount(
        found.table()["length"].to_numpy()
    )[1:].tolist()
    order = first.ledger["columns"]["order"]
    assert "by the bytes of the group, then by the bytes of the n-gram" in order


def test_every_engine_step_and_thread_gives_the_same_rows(cli, folder, release, tmp_path):
    for place, how in enumerate((("--runner", "FnApiRunner"), ("--workers", 3))):
        output = tmp_path / str(place)
        assert cli(*ngrams(folder, "notes.jsonl", output, *how)).status == 0
        assert read_release(str(output)).ledger == read_release(str(release)).ledger


def test_without_a_group_field_nothing_names_groups():
    assert "group_field" not in InputDescription().to_dict()
    described = [InputDescription(group_field=name) for name in ("country", "month")]
    contexts = {key_context(PLAN, "words", rows=each) for each in (*described, InputDescription())}
    assert len(contexts) == 3
    assert "group" not in key_context(PLAN, "words")


@pytest.mark.parametrize("count_share", [0, 0.1])
def test_rows_of_the_library_have_groups(count_share):
    plan = dataclasses.replace(PLAN, count_share=count_share)
    kind = CountedGroupedNgram if count_share else GroupedNgram
    documents = documents_of(2)
    as_rows = [beam.Row(user=user, text=text, group=group) for user, text, group in documents]
    users, texts, groups = map(list, zip(*documents, strict=True))
    batch = pa.RecordBatch.from_pydict({"group": groups, "text": texts, "user": users})
    found = []
    for elements in (documents, as_rows, [batch]):
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            private = PrivateNgrams(plan=plan, run_key=KEY, group_field="group")
            result = pipeline | beam.Create(elements) | private
            rows = keep(result.rows, "rows")
        assert {type(row) for row in rows} == {kind}
        found.append(sorted(map(tuple, rows)))
    assert found[0] == found[1] == found[2] != []
    assert {row[1] for row in found[0]} == set(GROUPS)


WRONG = [None, "", "a\x1fb", "a\nb", "x" * 257, 1.5, True, b"canary\xff"]


@pytest.mark.parametrize("group", WRONG)
def test_a_wrong_group_of_a_row_is_refused_without_quoting_anything(group):
    names = ("who", "said", "country")
    with pytest.raises(
        ValueError, match=r"(?i)'country'.* whose group is|group must be .*'country'"
    ) as refused:
        documents_in_batch(batch_of_rows([("ann", "canary", group)], names, True), names, True)
    assert "canary" not in str(refused.value)


def test_fields_and_their_description_must_agree_about_groups():
    with pytest.raises(ValueError, match="names of different fields"):
        PrivateNgrams(plan=PLAN, group_field="text")
    described = InputDescription(group_field="country")
    with pytest.raises(ValueError, match="if, and only if, described names one"):
        PrivateNgrams(plan=PLAN, described=described)
    single = NgramsPlan(epsilon=1, delta=1e-6, strategy="one_round", pruning="single")
    with pytest.raises(ValueError, match="`pruning` must be 'both' with `group_field`"):
        PrivateNgrams(plan=single, group_field="group")
    rows = beam.Pipeline() | beam.Create([beam.Row(user="a", text="b")])
    with pytest.raises(ValueError, match="`group_field` must name a field"):
        _ = rows | PrivateNgrams(plan=PLAN, group_field="country")


def test_yaml_releases_what_the_program_does(folder, release, tmp_path):
    fields = {"user_field": "who", "text_field": "said", "group_field": "country"}
    budget = {"epsilon": 10, "delta": 1e-4, "max_length": 3, "tokenizer": "whitespace"}
    files = {"input": str(folder / "notes.jsonl"), **fields}
    private = {**fields, **budget, "run_key_file": str(folder / "key")}
    write = {
        "type": "WriteRelease",
        "input": {"rows": "private.rows", "ledger": "private.ledger"},
        "config": {"output": str(tmp_path / "out")},
    }
    steps = [
        {"type": "ReadDocuments", "name": "read", "config": files},
        {"type": "PrivateNgrams", "name": "private", "input": "read", "config": private},
        write,
    ]
    run_yaml(steps)
    assert read_release(str(tmp_path / "out")).ledger == read_release(str(release)).ledger


def test_an_evaluation_compares_each_ngram_within_its_group(cli, folder, release):
    given = ("--input", folder / "notes.jsonl", "--user_field", "who", "--text_field", "said")
    ended = cli("evaluate", "--release", release, *given)
    assert ended.status == 0, ended.err
    options = ReadOptions(user_field="who", text_field="said", group_field="country")
    corpus = read_corpus(match_inputs([str(folder / "notes.jsonl")]), options, "whitespace")
    table = read_release(str(release)).table()
    judged = rows_of_table(index_corpus(corpus, 3), table)
    truth = np.concatenate([judged[length].truth for length in (1, 2, 3)])
    users = collections.defaultdict(set)
    for user, text, group in documents_of(0):
        words = text.split()
        for size in (1, 2, 3):
            for start in range(len(words) - size + 1):
                users[group, " ".join(words[start : start + size])].add(user)
    rows = zip(table["group"].to_pylist(), table["ngram"].to_pylist(), strict=True)
    assert truth.tolist() == [len(users[row]) for row in rows]
    within = (table["users_low"].to_numpy() <= truth) & (truth <= table["users_high"].to_numpy())
    assert within.mean() > 0.8


def test_exports_keep_the_group_or_take_one(cli, release, tmp_path):
    table = read_release(str(release)).table()
    ended = cli("export", "--to", "csv", "--output", tmp_path / "a.csv", release)
    assert ended.status == 0, ended.err
    rows = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text(encoding="utf-8"))))
    assert {row["group"] for row in rows} == {"'=1+1", *GROUPS} - {"=1+1"}
    assert not more_exports.main([str(release), str(tmp_path / "a.ndjson")])
    lines = [json.loads(line) for line in (tmp_path / "a.ndjson").read_text().splitlines()]
    assert len({line["index"]["_id"] for line in lines[::2]}) == len(table)
    assert {line["group"] for line in lines[1::2]} == set(GROUPS)
    for kind in ("tokenizers", "arpa"):
        given = ("export", "--to", kind, "--output", tmp_path / kind, release)
        assert "--group must name a group" in cli(*given).err
        assert "--group must name a group" in cli(*given, "--group", "of one user").err
        assert cli(*given, "--group", "dk").status == 0
    tokens = json.loads((tmp_path / "tokenizers").read_text())["added_tokens"]
    phrases = {each["content"] for each in tokens if not each["special"]}
    own = table.filter((pc.field("group") == "dk") & (pc.field("length") > 1))
    assert phrases == set(own["ngram"].to_pylist())


@pytest.mark.parametrize("name", ["report.html", "report.md"])
def test_a_report_compares_groups(cli, release, tmp_path, name):
    assert cli("report", "--output", tmp_path / name, release).status == 0
    text = re.sub(' data-name="[^"]*"', "", (tmp_path / name).read_text(encoding="utf-8"))
    table = read_release(str(release)).table()
    assert text.index("Groups") < text.index("How to read the")
    for group in GROUPS:
        own = table.filter(pc.field("group") == group)
        first = own.filter(pc.field("length") == 1)["ngram"][0].as_py()
        cells = {"html": f"<td>{group}</td><td>{len(own)}</td><td>{first}"}
        cells["md"] = f"| {group} | {len(own)} | {first}".replace("| =", "| \\=")
        assert cells[name.rpartition(".")[2]] in text
    assert "dk b: " in text
