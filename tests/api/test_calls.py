"""A call from Python releases what the command does, in memory, and shows no data if it fails."""

import asyncio
import collections
import contextlib
import inspect
import json
import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import threading
import traceback
import types
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import beam_dpne
from beam_dpne import (
    NgramsPlan,
    Release,
    RunKey,
    SetUnionPlan,
    account,
    evaluate,
    plan,
    release_items,
    release_ngrams,
)
from beam_dpne.accounting.budget import create_budget, open_budget
from beam_dpne.accounting.population import Note
from beam_dpne.accounting.series import create_series
from beam_dpne.api.keywords import CALLS
from beam_dpne.errors import BudgetError, InputError, ReleaseError, RunError, UsageError
from beam_dpne.jobs import limits, running
from beam_dpne.reading.frames import Frame, frame_file
from beam_dpne.reading.options import ReadOptions
from tests.api import tokenizers
from tests.conftest import ROOT
from tests.engines.conftest import release_bytes
from tests.test_docs import module_of

KEY = "5eed" * 16
# The call of each program, and what a call and its command are given besides.
PROGRAMS = {
    "ngrams": ("release_ngrams", {"max_length": 3, "mask": "numbers"}),
    "ngrams with groups": ("release_ngrams", {"group": "team", "max_length": 2}),
    "ngrams of lists": (
        "release_ngrams",
        {"text": "talk.turns.said", "where": "talk.turns.by=ann"},
    ),
    "set-union": ("release_items", {"tokenizer": "words", "known": "known.txt"}),
    "bayesian": ("estimate_probabilities", {"public": "public.tsv", "length": 2}),
    "count": ("count_phrases", {"phrases": "phrases.txt"}),
}
OPTIONS = {
    "user": "user_field",
    "text": "text_field",
    "group": "group_field",
    "run_key": "run_key_file",
}
GIVEN = {"user": "customer", "text": "message", "epsilon": 10, "delta": 1e-4}


class Stream:
    """Gives its rows once, as a cursor does."""

    def __init__(self, table):
        self.reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(100))

    def __arrow_c_stream__(self, requested_schema=None):
        reader, self.reader = self.reader, None
        return reader.__arrow_c_stream__(requested_schema)


FRAMES = {
    "pandas": lambda table: table.to_pandas(),
    "pandas with categories": lambda table: table.to_pandas().astype({"message": "category"}),
    "pandas with an index": lambda table: table.to_pandas().set_index("customer"),
    "pyarrow": lambda table: table,
    "stream": Stream,
    "batches": lambda table: iter(table.to_batches(90)),
    "path": lambda table: "notes.parquet",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("calls")
    said = {"by": "ann", "said": "Good morning"}
    rows = [
        {
            "customer": None if n == 7 else n % 400,
            "message": f"Good morning, you {n % 7}",
            "team": "ab"[n % 2],
            "talk": {"turns": [{"by": "bob", "said": "Hello, you"}] * (n % 3) + [said]},
        }
        for n in range(900)
    ]
    pq.write_table(pa.Table.from_pylist(rows), path / "notes.parquet")
    (path / "run.key").write_text(KEY)
    (path / "run.key").chmod(0o600)
    (path / "public.tsv").write_text("good morning\t9\nmorning you\t5\nyou there\t2\n")
    (path / "phrases.txt").write_text("good morning\nyou there\nnobody\n")
    (path / "known.txt").write_text("good evening to you\n" * 9)
    return path


@pytest.fixture
def table(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return pq.read_table("notes.parquet")


@pytest.fixture(scope="module")
def commanded(cli, folder):
    """The files that a program's command writes, in a format."""

    def files(program, output_format="jsonl"):
        output = f"{program} {output_format}"
        with contextlib.chdir(folder):
            if not os.path.exists(output):
                given = GIVEN | PROGRAMS[program][1] | {"run_key_file": "run.key", "output": output}
                options = (f"--{OPTIONS.get(key, key)}={value}" for key, value in given.items())
                ended = cli(
                    *(program.split()[0], "--input", "notes.parquet", *options),
                    *("--output_format", output_format, "--workers", 1),
                )
                assert ended.status == 0, ended.err
        return release_bytes(folder / output)

    return files


def called(program, frame, **given):
    call, own = PROGRAMS[program]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return getattr(beam_dpne, call)(
            frame, **{**GIVEN, **own, "run_key": "run.key", "progress": False, **given}
        )


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("kind", FRAMES)
def test_each_frame_gives_the_bytes_of_the_command(commanded, table, program, kind):
    release = called(program, FRAMES[kind](table), workers=1)
    assert release.files == commanded(program)


@pytest.mark.parametrize(
    ("program", "kind"), [*((program, "pyarrow") for program in PROGRAMS), ("ngrams", "path")]
)
def test_processes_that_share_the_work_give_the_same_bytes(commanded, table, program, kind):
    release = called(program, FRAMES[kind](table), workers=2, partitions=4)
    assert release.files == commanded(program)


def test_a_small_input_starts_no_process_unless_workers_are_asked_for(table, monkeypatch):
    started = []
    monkeypatch.setattr(limits, "cores", lambda: 2)
    begin = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: started.append(a) or begin(*a, **k))
    called("ngrams", table, partitions=4)
    assert not started
    called("ngrams", table, partitions=4, workers=2)
    assert len(started) == 1


@pytest.mark.parametrize("library", ["duckdb", pytest.param("polars", marks=pytest.mark.readers)])
def test_frames_of_other_libraries_give_the_bytes_of_the_command(commanded, table, library):
    other = pytest.importorskip(library)
    frames = {"duckdb": "from_arrow", "polars": "from_arrow"}
    frame = getattr(other, frames[library])(table)
    if library == "polars":
        frame = frame.with_columns(other.col("message", "team").cast(other.Categorical))
    for program in PROGRAMS:
        assert called(program, frame, workers=1).files == commanded(program)
    assert called("ngrams", frame, workers=2, partitions=4).files == commanded("ngrams")


@pytest.mark.parametrize("kind", [list, iter, pd.Series, pa.array])
def test_phrases_in_memory_are_counted_as_those_of_a_file(commanded, table, kind):
    phrases = ["good morning", "you there", "nobody"]
    release = called("count", table, phrases=kind(phrases))
    (listed,) = release.public_lists
    assert (listed["kind"], listed["phrases"]) == ("given", 3)
    ranges = {
        row["ngram"]: (row["users_low"], row["users_high"]) for row in release.table().to_pylist()
    }
    assert set(ranges) == set(phrases)
    assert ranges["good morning"][0] <= 400 <= ranges["good morning"][1]
    assert ranges["nobody"][0] == 0
    assert called("count", table, phrases=kind(phrases)).files == release.files


def test_a_table_of_phrases_that_is_the_input_is_refused_also_if_some_rows_cannot_be_used(table):
    texts = table["message"].to_pylist()
    groups = [None if place == 0 else "team" for place in range(len(texts))]
    copied = pa.table({"ngram": texts, "group": groups})
    with pytest.raises(ValueError, match="must not be private data"):
        called("count", table, phrases=copied, group="team", unmakeable="leave_out")


@pytest.mark.parametrize(
    ("phrases", "said"),
    [
        (7, "must be a path, or texts"),
        ([b"good morning"], "must be a path, or texts"),
        ([], "at least one phrase, got none"),
        (["phrases.txt"], "no list of paths"),
        (["\ud83d x"], "half of one"),
        (pd.DataFrame({"phrase": ["good"]}), "got a table without a column ngram"),
        (pd.DataFrame({"ngram": ["good"], "group": ["a"]}), "`group` must be given with a list"),
        (pd.DataFrame({"ngram": ["good", None]}), "got 1 other rows in the table"),
        (pd.DataFrame({"ngram": [7, tokenizers.CANARY]}), "a table that Arrow cannot read"),
        ({"ngram": "ab"}, "a table that Arrow cannot read"),
        ({"ngram": [["good"]]}, "must have texts in the column ngram, got others"),
        (pa.table([["good"], ["day"]], ["ngram", "ngram"]), "with two columns of one name"),
        (["good day", "Good day"], r"got str of 8 \(equal to another one"),
        ("good morning", "got a text of 12 characters, which is no path of this machine"),
        ({"phrase": ["good morning"]}, "got a table without a column ngram"),
        ({"ngram": ["good\\morning"]}, "must have n-grams and items with the escapes of releases"),
        ({"ngram": ["good morning "]}, "one blank between two words and none around them"),
        (["good morning", "Good morning!"], "equal to another one"),
    ],
)
def test_wrong_phrases_in_memory_are_refused(table, phrases, said):
    with pytest.raises(ValueError, match=said):
        called("count", table, phrases=phrases)


@pytest.mark.parametrize(
    "kind", [pa.table, pd.DataFrame, dict, pytest.param("polars", marks=pytest.mark.readers)]
)
def test_a_table_of_phrases_is_counted_in_its_groups_as_that_of_a_file(table, kind):
    if kind == "polars":
        kind = pytest.importorskip("polars").DataFrame
    listed = {"ngram": ["good morning", "nobody", "good morning"], "group": ["a", "b", "b"]}
    release = called("count", table, phrases=kind(listed), group="team")
    pq.write_table(pa.table(listed), "phrases.parquet")
    of_file = called("count", table, phrases="phrases.parquet", group="team")
    names = ["group", "ngram"]
    assert release.table().select(names) == of_file.table().select(names)
    rows = {(row["group"], row["ngram"]): row for row in release.table().to_pylist()}
    assert rows["a", "good morning"]["users_low"] <= 200 <= rows["a", "good morning"]["users_high"]
    assert rows["b", "nobody"]["users_low"] == 0
    assert release.public_lists[0]["kind"] == "given"


@pytest.mark.parametrize("kind", [pa.Table.to_pandas, pa.Table.to_reader, None])
def test_the_texts_of_the_input_are_no_phrases_and_are_not_quoted(table, kind):
    frame = "notes.parquet" if kind is None else kind(table)
    # A record without a user is none of the input.
    read = table.filter(pc.field("customer").is_valid())
    with pytest.raises(UsageError, match="must not be private data") as refused:
        called("count", frame, phrases=read.column("message").to_pylist())
    assert "morning" not in str(refused.value)
    frame = "notes.parquet" if kind is None else kind(table)
    with pytest.raises(UsageError, match="must not be private data"):
        called("count", frame, phrases=read.rename_columns({"message": "ngram"}).select(["ngram"]))


def test_phrases_in_memory_are_no_release_of_the_same_people(table):
    with pytest.raises(UsageError, match="phrases_same_people"):
        called("count", table, phrases=["good morning"], phrases_same_people=True)


def test_a_release_in_memory_is_no_path_and_neither_are_texts(table):
    release = called("ngrams", table)
    for program, given in (("count", "phrases"), ("ngrams", "known"), ("bayesian", "public")):
        with pytest.raises(UsageError, match=f"`?{given}`? must be the path of .* write it first"):
            called(program, table, **{given: release})
    with pytest.raises(UsageError, match=r"must be paths of files .* a table with a column ngram"):
        called("ngrams", table, known=["good morning", "good day"])
    for read in (beam_dpne.read_release, release.write):
        with pytest.raises(
            UsageError, match=r"`path` must be the path of a release's .*, got Table"
        ):
            read(table)
    with pytest.raises(UsageError, match="one by one, got a list"):
        account([release, release])
    for output_format in ("html", "markdown"):
        with pytest.raises(UsageError, match="two releases, got str"):
            release.report(output_format=output_format, since="release")
    assert release.report(leave_out="title") == release.report(leave_out=["title"])


def test_a_release_in_memory_is_the_release_of_its_files(commanded, table, tmp_path):
    release = called("ngrams", table)
    assert isinstance(release, Release)
    for output_format in ("jsonl", "csv", "tsv", "parquet"):
        written = release.write(tmp_path / output_format, output_format)
        assert release_bytes(tmp_path / output_format) == commanded("ngrams", output_format)
        assert written.table() == release.table()
    written = beam_dpne.read_release(tmp_path / "jsonl")
    assert written.ledger == release.ledger
    assert written.ledger_sha256 == release.ledger_sha256
    assert pa.table(release) == release.table()
    assert release.to_pandas().to_dict("list") == release.table().to_pydict()
    release.verify()
    assert release._repr_html_() == written._repr_html_()
    for output_format in ("html", "markdown"):
        page = release.report(output_format=output_format, since=written)
        assert page == written.report(output_format=output_format, since=release)
    assert set(release.compare(written)["change"].to_pylist()) == {"unchanged"}
    with pytest.raises(UsageError, match="must have two releases, got str"):
        release.compare("release")
    with pytest.raises(ReleaseError, match=r"`path` must .*which is a release already"):
        release.write(tmp_path / "jsonl")


def test_a_key_that_has_met_another_frame_gives_no_release(cli, table, tmp_path):
    """Nor does it replace one, as that of a command."""
    first = called("ngrams", table, max_length=1)
    with pytest.raises(ReleaseError, match="must be a fresh one for each input"):
        called("ngrams", table[:300], max_length=1)
    assert called("ngrams", table[:300], max_length=1, run_key=None).num_rows
    pq.write_table(table[:300], tmp_path / "notes.parquet")
    given = {**GIVEN, "mask": "numbers", "max_length": 1, "run_key": "run.key"}
    options = [f"--{OPTIONS.get(key, key)}={value}" for key, value in given.items()]
    out = tmp_path / "out"
    ended = cli("ngrams", "--input", tmp_path / "notes.parquet", *options, "--output", out)
    assert ended.status == 0, ended.err
    with pytest.raises(ReleaseError, match="must be a fresh one for each input"):
        first.write(out, overwrite=True)


def test_a_damaged_file_in_memory_is_refused(table):
    release = called("ngrams", table)
    name = next(name for name in release.files if name.endswith("jsonl"))
    release.files[name] += b"\n"
    with pytest.raises(ReleaseError, match="damaged"):
        release.table()


def test_a_plan_is_given_by_an_object_a_file_or_keywords(table, tmp_path):
    whole = NgramsPlan(epsilon=10, delta=1e-4, max_length=2, max_contributions=(9, 4))
    path = tmp_path / "plan.json"
    path.write_text(whole.to_json())
    given = {"user": "customer", "text": "message", "run_key": RunKey.from_hex(KEY)}
    own = {"epsilon": 10, "delta": 1e-4, "max_length": 2, "max_contributions": [9, 4]}
    releases = [
        release_ngrams(table, **given, **each, progress=False)
        for each in ({"plan": whole}, {"plan": path}, own)
    ]
    assert len({release.ledger_sha256 for release in releases}) == 1
    for each in (whole, path):
        with pytest.raises(UsageError, match="`epsilon` is in the"):
            release_ngrams(table, **given, plan=each, epsilon=4)
    with pytest.raises(UsageError, match="`plan` must be a SetUnionPlan or a path, got NgramsPlan"):
        release_items(table, **given, plan=whole)


REFUSED = {
    "a column that is nearly there": (
        {"user": "custoner"},
        "`user` must .* Did you mean customer?",
    ),
    "a column that is not there": ({"text": "xyz"}, "Its columns are not shown, since they may"),
    "a column of objects": ({"text": "talk"}, "Name the field within it, e.g. text="),
    "a column that names nobody": ({"user": "talk"}, "A user must be text"),
    "an option of files": ({"delimiter": ";"}, "`delimiter` must be left out for a frame"),
    "an encoding": ({"encoding": "cp1252"}, "`encoding` must be left out for a frame"),
    "a format": ({"input_format": "csv"}, "`input_format` must be left out for a frame"),
    "a list of words": ({"stop_list": ["good", "day"]}, "the path of a file, got a list of 2:"),
    "no delta": ({"delta": None}, "`delta` must be given"),
    "a value": ({"max_length": 0}, "`max_length` must be an integer"),
    "a list that is the input": ({"known": "copy.txt"}, "`known` must not be private data"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_wrong_is_said_before_anything_runs(table, case):
    given, message = REFUSED[case]
    with open("copy.txt", "w", encoding="utf-8") as file:
        texts = table.filter(pc.field("customer").is_valid())["message"].to_pylist()
        file.writelines(f"{text}\n" for text in texts)
    with pytest.raises(ValueError, match=message):
        release_ngrams(table, **GIVEN | given, progress=False)


def test_too_many_rejected_rows_of_a_frame_have_the_remedies_of_a_frame(table):
    said = r"how they are read \(`user`, `text`\), .* in the directory that `rejects` names"
    with pytest.raises(RunError, match=said):
        release_ngrams(table, **GIVEN, max_rejected=0, progress=False)


@pytest.mark.parametrize("kind", [pd.Series, np.array, pa.array, lambda data: [pd.Series(data)]])
@pytest.mark.parametrize("keyword", CALLS["release_ngrams"].keywords)
def test_data_that_is_given_for_a_parameter_is_not_quoted(table, keyword, kind):
    with pytest.raises(UsageError, match=f"`{keyword}` must be a value of its own") as caught:
        release_ngrams(table, **GIVEN | {keyword: kind([tokenizers.CANARY] * 2)})
    assert tokenizers.CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("index", "given", "said"),
    [
        (None, lambda frame: frame["customer"], r'got Series\. Write user="customer"\.'),
        ("customer", lambda frame: frame.index, r'got Index\. Write user="customer"\.'),
        (None, lambda frame: frame["customer"].rename("my pin"), "Give the name of the column;"),
        (None, lambda frame: frame["customer"].rename("other"), "Give the name of the column;"),
        (None, lambda frame: frame.index, r"frame\.reset_index\(\) makes the index"),
        (None, lambda frame: frame["customer"].tolist(), r"got a list of \d+"),
    ],
)
def test_a_column_or_an_index_that_is_given_for_a_name_is_told_by_its_name(
    table, index, given, said
):
    frame = table.to_pandas().astype({"customer": str})
    frame = frame if index is None else frame.set_index(index)
    with pytest.raises(ValueError, match=said) as caught:
        release_ngrams(frame, **GIVEN | {"user": given(frame)})
    assert "pin" not in str(caught.value)


def test_an_index_without_a_name_and_one_with_that_of_a_column_have_their_remedies(table):
    frame = table.to_pandas()
    unnamed = frame.set_index("customer").rename_axis(None)
    with pytest.raises(InputError, match=r"Its index has no name; frame\.reset_index\(\) makes"):
        release_ngrams(unnamed, **GIVEN)
    assert "index" not in frame.columns
    twice = frame.set_index("customer", drop=False)
    with pytest.raises(
        InputError, match=r"got 'customer' for both\. Give frame\.reset_index\(drop"
    ):
        release_ngrams(twice, **GIVEN)


@pytest.mark.parametrize("keyword", ["user", "text", "group", "where"])
@pytest.mark.parametrize("number", [1, 2, 500])
def test_a_list_of_values_that_is_given_for_names_is_not_quoted(table, keyword, number):
    values = [f"my pin is {tokenizers.CANARY} {n}" for n in range(number)]
    for given in (values, values[0] * number, {keyword: values}, set(values), iter(values)):
        with pytest.raises(ValueError, match=r"[`_]\w+` must|left out for a frame") as caught:
            release_ngrams(table, **GIVEN | {keyword: given})
        is_short = number < 500 and keyword in ("where", "group")
        assert is_short or tokenizers.CANARY not in str(caught.value)


HOLDERS = {
    "a scalar of Arrow": pa.scalar,
    "bytes": str.encode,
    "an array without axes": np.array,
    "values of a mapping": lambda text: {1: text}.values(),
    "a queue": lambda text: collections.deque([text]),
    "a text of another type": collections.UserString,
    "a text of numpy": lambda text: np.array([text])[0],
    "a path": pathlib.Path,
    "an object": lambda text: types.SimpleNamespace(text=text),
    "an error": ValueError,
    "a list within a list": lambda text: [("a", text)],
}


@pytest.mark.parametrize("kind", HOLDERS)
@pytest.mark.parametrize("call", [beam_dpne.check, release_ngrams])
def test_what_holds_a_text_of_the_data_is_not_quoted_for_any_parameter(table, call, kind):
    text = f"my pin is {tokenizers.CANARY}"
    keywords = CALLS[call.__name__].keywords
    given = {name: GIVEN[name] for name in GIVEN if name in keywords} | {"progress": False}
    # Some have texts for the public, and some paths of files to write.
    others = {"progress", "rejects", "failure_log", "title", "unit", "contact"}
    for keyword in keywords.keys() - others:
        with pytest.raises((ValueError, TypeError, RunError)) as caught:
            call(table, **given | {keyword: HOLDERS[kind](text)})
        assert tokenizers.CANARY not in str(caught.value), keyword


@pytest.mark.parametrize("keyword", ["stop_list", "known", "run_key"])
def test_a_text_that_is_given_for_the_path_of_a_file_is_not_quoted(table, keyword):
    for given in (f"my pin is {tokenizers.CANARY}", f"{tokenizers.CANARY}@example.org", KEY):
        with pytest.raises(UsageError, match=f"`{keyword}` must be the path of a") as caught:
            release_ngrams(table, **GIVEN | {keyword: given})
        assert given not in str(caught.value)


@pytest.mark.parametrize("kind", [list, tuple, json.dumps])
def test_texts_that_are_given_for_paths_are_not_quoted(kind):
    with pytest.raises(UsageError, match="Texts alone have no users") as caught:
        release_ngrams(kind([f"my pin is {tokenizers.CANARY}"]), **GIVEN)
    assert tokenizers.CANARY not in str(caught.value)


def test_numbers_of_numpy_are_those_of_python(table):
    numbers = {"epsilon": np.int64(4), "max_length": np.int32(2), "delta": np.float64(1e-6)}
    given = {**GIVEN, **numbers}
    release = release_ngrams(table, **given, progress=False)
    assert release.ledger["guarantee"]["epsilon"] == 4
    assert release.max_length == 2


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ({"user": ["a"]}, r"got dict\. pandas\.DataFrame\(rows\) makes"),
        (17, "got int"),
        ([{"user": "a"}], r"got list\. pandas\.DataFrame\(rows\) makes"),
        (pa.chunked_array([["a"]]), "got ChunkedArray"),
        (pd.DataFrame({"user": ["a"], "text": ["\ud83d"]}), "half of a character"),
        (pd.DataFrame([["a"]], columns=[["user"], ["x"]]), "have several levels: frame.columns ="),
        ([], "got list"),
        (pa.array([1]), "got Int64Array"),
        (pd.DataFrame({"user": [1, 2], "text": [1, tokenizers.CANARY]}), "columns of Arrow"),
        (pd.DataFrame([["a", "b", "c"]], columns=["user", "text", "text"]), "is there 2 times"),
        ((int(tokenizers.CANARY) for _ in "a"), r"\(ValueError\)"),
    ],
)
def test_what_is_no_frame_is_refused_without_its_data(frame, message):
    with pytest.raises(InputError, match=message) as caught:
        release_ngrams(frame, epsilon=1, delta=1e-6)
    assert tokenizers.CANARY not in str(caught.value)


def test_other_columns_may_hold_what_arrow_cannot(commanded, table):
    frame = table.to_pandas()
    frame["other"] = [object(), "text", *range(len(frame) - 2)]
    assert called("ngrams", frame).files == commanded("ngrams")


def test_a_part_of_a_frame_is_held_without_the_rest_of_it():
    texts = pa.array([f"a text that is long {n}" for n in range(9000)])
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.binary()):
        whole = pa.table({"user": pa.array(range(9000)), "text": texts.cast(kind)})
        for part in (whole.slice(40, 90), iter(whole.slice(40, 90).to_batches(7))):
            file, _ = frame_file(Frame(part), ReadOptions())
            assert file.size < 90 * 60
            assert len(pickle.dumps(file)) < 90 * 200
            assert sum(batch.num_rows for batch in file.table.batches) == 90


def test_batches_of_several_schemas_are_refused():
    batches = [pa.record_batch({"user": [1], "text": [value]}) for value in ("a", b"a")]
    with pytest.raises(InputError, match="record batches of one schema"):
        release_ngrams(iter(batches), epsilon=1, delta=1e-6)


def test_a_frame_without_rows_is_released_empty_and_told(capfd):
    frame = pa.table({"user": pa.array([], pa.string()), "text": pa.array([], pa.string())})
    assert release_ngrams(frame, epsilon=1, delta=1e-6).num_rows == 0
    assert "the input has no records" in capfd.readouterr().err


def test_a_keyword_that_is_unknown_is_refused_with_those_that_are_near(table):
    with pytest.raises(TypeError, match=r"'user_field'.* Here it is user"):
        release_ngrams(table, user_field="customer", epsilon=1, delta=1e-6)
    with pytest.raises(TypeError, match="Here it is progress=False"):
        release_ngrams(table, quiet=True)
    with pytest.raises(TypeError, match="`write` of a release"):
        release_ngrams(table, output="release")
    with pytest.raises(TypeError, match="Did you mean epsilon"):
        release_ngrams(table, epsilom=1, delta=1e-6)


def test_keywords_have_one_definition():
    calls = module_of("make_calls")
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", calls.STUB, "-"]
    made = subprocess.run(
        command, input=calls.stub(), capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert calls.STUB.read_text(encoding="utf-8") == made.stdout
    for name, call in CALLS.items():
        function = getattr(beam_dpne, name)
        assert set(call.keywords) <= set(inspect.signature(function).parameters)
        documented = {line.split(":")[0].strip() for line in function.__doc__.splitlines()}
        assert set(call.keywords) <= documented


@pytest.fixture
def many(table):
    """More rows than those at which a run looks before it begins, and a canary in each."""
    rows = table.append_column("canary", pa.array([tokenizers.CANARY] * len(table)))
    return pa.concat_tables([rows] * 20).combine_chunks()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failure_log_has_what_an_error_withholds(many, tmp_path, workers):
    given = {"tokenizer": "tests.api.tokenizers:failing_words", "text": "canary", "mask": None}
    log = tmp_path / "failure.log"
    with pytest.raises(RunError, match=str(log)) as caught:
        called("ngrams", many, **given, workers=workers, partitions=4, failure_log=log)
    assert tokenizers.CANARY not in str(caught.value)
    assert f"KeyError: '{tokenizers.CANARY}'" in log.read_text()
    assert f"OSError: {tokenizers.CANARY}" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


# The files of the frames of an error's traceback.
OURS = {"test_calls.py", "calls.py", "failing.py"}


def files_of(error):
    frames = traceback.extract_tb(error.__traceback__)
    return {os.path.basename(each.filename) for each in frames}


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_shows_no_data_and_no_variable_of_ours(many, workers, capfd, logged):
    before = (threading.excepthook, sys.unraisablehook)
    given = {"tokenizer": "tests.api.tokenizers:failing_words", "text": "canary", "mask": None}
    with pytest.raises(RunError) as caught:
        called("ngrams", many, **given, workers=workers, partitions=4)
    error = caught.value
    assert "KeyError" in str(error)
    assert tokenizers.CANARY not in str(error)
    assert (error.__context__, error.__cause__) == (None, None)
    assert not hasattr(error, "__notes__")
    assert tokenizers.CANARY not in logged.getvalue() + "".join(capfd.readouterr())
    assert files_of(error) == OURS
    # A notebook may show all variables of these frames, but those of its own.
    shown = [repr(frame.f_locals) for frame, _ in traceback.walk_tb(error.__traceback__)][-2:]
    assert tokenizers.CANARY not in "".join(shown)
    assert (threading.excepthook, sys.unraisablehook) == before


def test_hooks_of_the_caller_are_put_back_when_the_last_call_of_all_threads_ends(table):
    before = threading.excepthook
    calls = []
    for _ in range(2):
        begun, goes_on = threading.Event(), threading.Event()

        def words(texts, begun=begun, goes_on=goes_on):
            begun.set()
            assert goes_on.wait(60)
            return pc.utf8_split_whitespace(texts)

        words.version = "1"
        given = {"tokenizer": words, "mask": None}
        thread = threading.Thread(target=called, args=("ngrams", table), kwargs=given)
        thread.start()
        assert begun.wait(60)
        calls.append((thread, goes_on))
    for thread, goes_on in calls:
        assert threading.excepthook is not before
        goes_on.set()
        thread.join()
    assert threading.excepthook is before


@pytest.mark.parametrize("kind", [SystemExit, asyncio.CancelledError])
def test_what_a_caller_raises_to_end_all_is_raised_without_a_variable_of_ours(table, kind):
    """As a handler of a signal does, while private texts are at hand."""
    raised = kind(7)

    def batches():
        yield from table.to_batches(90)
        try:
            raise KeyError(tokenizers.CANARY)
        except KeyError:
            raise raised from None

    with pytest.raises(kind) as caught:
        called("ngrams", batches())
    assert caught.value is raised
    assert (raised.__context__, files_of(raised)) == (None, OURS)


def test_a_lock_that_another_thread_holds_stops_no_process(many):
    found = []

    def call():
        tokenizer = "tests.api.tokenizers:waiting_words"
        found.append(called("ngrams", many, tokenizer=tokenizer, workers=2, partitions=4))

    with tokenizers.LOCK:
        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(60)
    assert len(found) == 1


def test_a_function_of_a_notebook_works_in_this_process(table):
    def words(texts):
        return pa.array([text.as_py().split() for text in texts], pa.list_(pa.string()))

    words.version = "1"
    assert called("ngrams", table, tokenizer=words, workers=2, partitions=4).num_rows


def test_an_interrupt_leaves_no_process_and_no_release(many, tmp_path):
    create_budget(str(tmp_path / "budget"), population="all", epsilon=20, delta=1e-3)
    timer = threading.Timer(3, os.kill, (os.getpid(), signal.SIGINT))
    given = {"tokenizer": "tests.api.tokenizers:slow_words", "workers": 2, "partitions": 4}
    timer.start()
    with pytest.raises(KeyboardInterrupt) as caught:
        called("ngrams", many, budget=str(tmp_path / "budget"), **given)
    timer.join()
    assert caught.value.__context__ is None
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    (note,) = open_budget(str(tmp_path / "budget")).runs().values()
    assert note.output == ""


def test_a_budget_is_charged_before_a_release_is_seen(table, tmp_path):
    path = str(tmp_path / "budget")
    budget = create_budget(path, population="all", epsilon=21, delta=1e-3)
    release = called("ngrams", table, budget=path)
    (run,) = budget.runs().values()
    assert run.sha256 == release.ledger_sha256
    # The same run costs nothing again, and another input under its key is never seen.
    assert called("ngrams", table, budget=path).ledger_sha256 == release.ledger_sha256
    before = account(budget=path)
    with pytest.raises(ReleaseError, match=r"this one is withheld\. Take a fresh run key"):
        called("ngrams", table.slice(0, 300), budget=path)
    assert account(budget=path).runs == before.runs
    fresh = {"budget": path, "run_key": None}
    assert called("ngrams", table, **fresh).num_rows
    with pytest.raises(BudgetError, match="does not allow this run"):
        called("ngrams", table, **fresh, epsilon=20)


@pytest.mark.parametrize("program", ["ngrams", "set-union", "bayesian", "count"])
@pytest.mark.parametrize("place", ["budget", "series", "process"])
def test_a_withheld_release_costs_nothing_and_voids_none(
    table, tmp_path, monkeypatch, capfd, program, place
):
    """The key has met another input in the budget, in the series, or in this process."""
    path, private = str(tmp_path / "folder"), str(tmp_path / "participants")
    if place == "series":
        create_series(path, private, releases=3, releases_per_user=2, epsilon=20, delta=1e-3)
        given = {"series": path, "participants": private, "epsilon": None, "delta": None}
    else:
        create_budget(path, population="all", epsilon=20, delta=1e-3)
        given = {"budget": path}
    place_of_text = table.column_names.index("message")
    other = table.set_column(place_of_text, "message", pa.array(["Good day, you"] * len(table)))
    monkeypatch.setattr(running, "_FIRST", {})
    called(program, table, **given if place != "process" else {})
    if place != "process":
        running._FIRST.clear()
    before = release_bytes(tmp_path / "folder")
    # The private folder of a series knows the texts of its releases, so that the run is refused first.
    error, said = ReleaseError, r"a fresh one for each input.* is withheld"
    if place == "series":
        error, said = RunError, "first try of release 1 of the series.* their texts are others"
    with pytest.raises(error, match=said):
        called(program, other, **given)
    assert release_bytes(tmp_path / "folder") == before
    assert called(program, table, **given).num_rows
    assert "--remove" not in capfd.readouterr().err


ONE_OF_TWO = """
import json, pathlib, sys, time
import pyarrow.parquet as pq
import beam_dpne
from beam_dpne.jobs.budgets import Charge

folder, own, other, given = sys.argv[1:]
settle = Charge.settle

def settle_together(self, ledger, showing):
    pathlib.Path(folder, own).touch()
    while not pathlib.Path(folder, other).exists():
        time.sleep(0.01)
    settle(self, ledger, showing)

Charge.settle = settle_together
table = pq.read_table("notes.parquet").slice(0, 300 + 100 * (own == "b"))
beam_dpne.release_ngrams(table, **json.loads(given))
"""


def test_of_two_calls_at_once_under_one_key_at_most_one_gives_a_release_back(folder, tmp_path):
    """Neither has seen the other's ledger in the budget before it settles its own."""
    budget = create_budget(str(tmp_path / "budget"), population="all", epsilon=21, delta=1e-3)
    given = json.dumps({**GIVEN, "run_key": "run.key", "budget": budget.path, "progress": False})
    calls = [
        subprocess.Popen(
            [sys.executable, "-c", ONE_OF_TWO, str(tmp_path), own, other, given],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for own, other in ("ab", "ba")
    ]
    said = [call.communicate()[1] for call in calls]
    ended = [call.returncode for call in calls]
    assert sorted(ended) in ([0, 1], [1, 1])
    for status, text in zip(ended, said, strict=True):
        assert status == 0 or "so that this one is withheld" in text
    assert len(budget.runs()) == ended.count(0)
    assert not any(isinstance(run, Note) for run in budget.runs().values())


def test_the_calls_work_without_beam(folder, tmp_path):
    code = (
        "import sys; sys.modules['apache_beam'] = None; "
        "import json, pandas, beam_dpne; frame = pandas.read_parquet('notes.parquet'); "
        f"given = {GIVEN!r}; "
        "release = beam_dpne.release_ngrams(frame, **given, workers=2, partitions=4); "
        f"written = release.write({str(tmp_path / 'out')!r}); "
        "assert release.compare(written).num_rows == release.num_rows; "
        "assert '<html' in release.report(); print(json.dumps(release.ledger['guarantee']))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-c", code]
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["epsilon"] == 10
    # What the new process does is shown by this one.
    assert re.search(r"beam-dpne: +\d+\.\d s  \w", ended.stderr)


@pytest.mark.parametrize("kind", [pa.Table.to_pandas, pa.Table.to_reader, None])
def test_a_check_finds_in_a_frame_what_the_command_finds_in_its_file(cli, tmp_path, kind):
    ids = ["7", "7 ", "\u200e7", "nan", "[deleted]", "Ann", "ann", None]
    notes = pa.table({"who": ids * 30, "said": [f"see you soon {n}" for n in range(240)]})
    path = str(tmp_path / "notes.parquet")
    pq.write_table(notes, path)
    ended = cli("check", "ngrams", "--input", path, "--user_field", "who", "--text_field", "said")
    found = beam_dpne.check(
        path if kind is None else kind(notes), user="who", text="said", progress=False
    )
    told = repr(found)
    assert told.startswith("NOT PRIVATE: as secret as the data.")
    assert "Fields: user who, text said. Tokenizer: words." in told
    assert "It has 7 users, 210 documents" in told
    for said, same in (
        ("2 of the ids are another id but for blanks", True),
        ("1 of the ids are other spellings", True),
        ("2 of the ids may stand for nobody", True),
        ("12.50% of the records are rejected, so that a run fails", True),
        (": normalize_users=True makes such ids one", False),
        ('which rejects="DIR" lists: user is null', False),
    ):
        assert said in told
        assert (said in " ".join(ended.out.split())) == same
    assert len(found.problems) == ended.out.count("· ")


def test_a_check_takes_a_function_and_prints_nothing(table, capfd):
    given = {"user": "customer", "text": "message"}
    found = beam_dpne.check(table, **given, tokenizer=tokenizers.waiting_words, progress=False)
    assert found.numbers["users"] == len(table["customer"].unique()) - 1
    assert "Tokenizer: tests.api.tokenizers:waiting_words." in found.about
    assert capfd.readouterr() == ("", "")
    with pytest.raises(InputError, match="Did you mean customer"):
        beam_dpne.check(table, **given | {"user": "custoner"})


@pytest.mark.parametrize("kind", FRAMES)
def test_an_evaluation_of_a_frame_is_that_of_the_command(cli, commanded, table, tmp_path, kind):
    release = called("ngrams", table)
    found = evaluate(release, FRAMES[kind](table), progress=False)
    commanded("ngrams")
    output = tmp_path / "evaluation"
    given = ("--release", "ngrams jsonl", "--input", "notes.parquet", "--output", output)
    assert cli("evaluate", *given).status == 0
    (written,) = output.glob("*.json")
    whole = json.loads(written.read_text())
    assert found.tables
    for name, rows in found.tables.items():
        assert json.loads(json.dumps(rows)) == whole[name]
    with pytest.raises(UsageError, match="`user` must be that of the release, 'customer'"):
        evaluate(release, table, user="team")


def test_fields_of_a_release_that_the_data_lack_are_said_to_be_those_of_the_release(table):
    release = called("ngrams", table)
    with pytest.raises(InputError, match=r"`user='customer'`, which .* are those of the release"):
        evaluate(release, table.rename_columns({"customer": "who"}), progress=False)


def test_a_release_of_files_of_another_format_is_evaluated_with_a_frame(table):
    frame = table.select(["customer", "message"]).to_pandas()
    frame.dropna().astype({"customer": int}).to_csv("notes.csv", sep=";", index=False)
    release = called("ngrams", "notes.csv", delimiter=";", encoding="utf-8")
    found = evaluate(release, frame, progress=False)
    assert (
        found.tables["coverage"]
        == evaluate(release, "notes.csv", progress=False).tables["coverage"]
    )


def test_a_plan_and_its_forecast_are_those_of_the_command(cli, table):
    ngrams = NgramsPlan(epsilon=4, delta=1e-7, max_length=5)
    for given in ({}, {"releases": 3}, {"users": 30_000, "like": "titles", "epsilons": [2, 4]}):
        found = plan(ngrams, **given, progress=False)
        options = [f"--{name}={value}" for name, value in given.items() if name != "epsilons"]
        options += ["--epsilons=2,4"] if "epsilons" in given else []
        shown = cli("plan", "--epsilon", 4, "--delta", 1e-7, *options).out
        for row in found.rows:
            assert all(f"{value:,}" in shown for value in row.values() if type(value) is int)
        assert f"ε = {found.plan.epsilon:g}, δ" in shown
    assert plan(SetUnionPlan(epsilon=4, delta=1e-7)).rows
    with pytest.raises(UsageError, match="`plan` must be a NgramsPlan"):
        plan({"epsilon": 4})


def test_an_account_adds_up_releases_in_memory_and_in_files(cli, table, tmp_path):
    fresh = [called("ngrams", table, run_key=None) for _ in range(2)]
    paths = [tmp_path / "0", tmp_path / "1"]
    for release, path in zip(fresh, paths, strict=True):
        release.write(path)
    json_of = json.loads(cli("account", *paths, "--json").out)
    for releases in (fresh, paths, (fresh[0], paths[1])):
        assert account(*releases).total.epsilon == json_of["total"]["epsilon"]
    # One release, in memory and in files, counts once.
    assert account(fresh[0], paths[0]).total.epsilon == account(fresh[0]).total.epsilon
    budget = tmp_path / "budget"
    account(budget=str(budget), create=True, population="all", epsilon=40, delta=1e-3)
    assert account(*paths, budget=str(budget), add=True).total.epsilon > 10
    with pytest.raises(UsageError, match="`budget` must be given without releases in memory"):
        account(fresh[0], budget=str(budget), add=True)
