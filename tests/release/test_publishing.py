"""Releases on disk: exact contents, one step to complete, nothing else touched, nothing half done."""

import concurrent.futures
import contextlib
import csv
import dataclasses
import errno
import hashlib
import io
import json
import os
import pathlib
import random
import resource
import shutil
import socket
import subprocess
import tempfile
from typing import ClassVar

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.io.filesystem import FileMetadata, FileSystem
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_dpne import (
    GramSet,
    PrivacyPlan,
    PrivateNgrams,
    PrivateNgramsResult,
    PrivateSetUnionResult,
    RunKey,
    join_tokens,
    length_rule,
    split_ngram,
)
from beam_dpne.documents.text import escape_item, unescape_item
from beam_dpne.elements.rows import COUNTED_ROW_SCHEMA, ITEM_SCHEMA, ROW_SCHEMA
from beam_dpne.errors import ReleaseError
from beam_dpne.mechanism.finite_noise import LAPLACE_END
from beam_dpne.ngrams.elements import pack_pairs
from beam_dpne.release.files import OUTPUT_FORMATS, read_ledger
from beam_dpne.release.ledger import Run
from beam_dpne.release.notes import NO_NOTES
from beam_dpne.release.publishing import WriteRelease, check_output, publish_release
from beam_dpne.release.reading import read_release
from beam_dpne.release.result import described
from beam_dpne.set_union.elements import ItemSet
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.storage.access import directory_at
from tests.support.privileges import without_privileges

PLAN = PrivacyPlan(
    epsilon=1,
    delta=1e-7,
    max_length=2,
    max_contributions=10,
    strategy="one_round",
    count_share=0,
)
HOSTILE = [
    "",
    " ",
    "\t",
    "\n",
    "\r",
    "\r\n",
    "\\",
    "\\e",
    "\0",
    "\u2028",
    "\x85",
    "🙂",
    '"',
    ",",
    "NA",
]
TOKENS = st.sampled_from(HOSTILE) | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


def sets_of(words, bigrams=None, plan=PLAN):
    """S_1 from {word: score} and S_2 from {(word, word): score}."""
    known = sorted(words, key=str.encode)
    ids = {word: place for place, word in enumerate(known)}
    pairs = {(ids[a], ids[b]): score for (a, b), score in (bigrams or {}).items()}
    keys = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    first, second = plan.lengths
    return (
        GramSet(
            length=1,
            keys=np.arange(len(known)),
            scores=np.array([words[word] for word in known], dtype=float),
            words=pa.array(known, pa.string()),
            vocabulary_size=len(known),
            rule=length_rule(length=1, noise_stddev=first.noise_stddev, threshold=first.threshold),
        ),
        GramSet(
            length=2,
            keys=pack_pairs(keys[:, 0], keys[:, 1]),
            scores=np.array([pairs[pair] for pair in sorted(pairs)], dtype=float),
            parent_size=len(known),
            vocabulary_size=len(known),
            rule=length_rule(
                length=2, noise_stddev=second.noise_stddev, threshold=30, valid=len(known) ** 2
            ),
        ),
    )


SETS = sets_of({"a": 70.25, "b": 91.0, "né\t": 70.25}, {("a", "b"): 40.1234564, ("b", "a"): 50.5})
OTHER = sets_of({"c": 80.0})
ROWS = [
    (1, "b", 91.0),
    (1, "a", 70.25),
    (1, "né\\t", 70.25),
    (2, "b a", 50.5),
    (2, "a b", 40.123456),
]


RUN = Run(plan=PLAN, tokenizer="words", run_key_given=False)


def publish(output, sets=SETS, *, run=RUN, form=PrivateNgramsResult.form, **settings):
    path = publish_release(described(form, run, sets, NO_NOTES), output=str(output), **settings)
    assert path == os.path.join(output, "ledger.json")


def publish_by_beam(output, sets=SETS, *, bundle_repeat=0, run=RUN, **settings):
    with beam.Pipeline(runner=FnApiRunner(bundle_repeat=bundle_repeat)) as pipeline:
        released = tuple(pipeline | f"S{grams.length}" >> beam.Create([grams]) for grams in sets)
        ledgers = PrivateNgramsResult(released, run) | WriteRelease(output=str(output), **settings)
        assert_that(ledgers, equal_to([os.path.join(output, "ledger.json")]))


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in pathlib.Path(folder).rglob("*")
        if path.is_file()
    }


def parts(folder):
    return {name: data for name, data in files(folder).items() if name.startswith("ngrams-")}


def only_part(folder):
    (data,) = parts(folder).values()
    return data


def tuples(table):
    return [tuple(row.values()) for row in table.to_pylist()]


# Contents


def test_jsonl_is_one_object_a_line(tmp_path):
    publish_by_beam(tmp_path)
    assert only_part(tmp_path).decode() == (
        '{"length":1,"ngram":"b","score":91.0}\n'
        '{"length":1,"ngram":"a","score":70.25}\n'
        '{"length":1,"ngram":"né\\\\t","score":70.25}\n'
        '{"length":2,"ngram":"b a","score":50.5}\n'
        '{"length":2,"ngram":"a b","score":40.123456}\n'
    )


def test_tsv_has_a_header_and_no_quoting(tmp_path):
    publish_by_beam(tmp_path, output_format="tsv")
    assert only_part(tmp_path).decode() == (
        "length\tngram\tscore\n"
        "1\tb\t91.0\n"
        "1\ta\t70.25\n"
        "1\tné\\t\t70.25\n"
        "2\tb a\t50.5\n"
        "2\ta b\t40.123456\n"
    )


def test_parquet_has_the_schema_of_a_release(tmp_path):
    publish_by_beam(tmp_path, output_format="parquet")
    table = pq.read_table(io.BytesIO(only_part(tmp_path)))
    assert table.schema.equals(ROW_SCHEMA)
    assert tuples(table) == ROWS


@pytest.mark.parametrize("output_format", OUTPUT_FORMATS)
def test_read_release_gives_the_rows_back(tmp_path, output_format):
    publish(tmp_path, output_format=output_format)
    table = read_release(str(tmp_path)).table()
    assert table.schema.equals(ROW_SCHEMA)
    assert tuples(table) == ROWS
    assert read_release(str(tmp_path / "ledger.json")).table().equals(table)


def test_the_ledger_lists_the_parts_and_the_facts(tmp_path):
    publish(tmp_path, rows_per_part=2, run=Run(plan=PLAN, tokenizer="m:f", run_key_given=True))
    ledger = read_ledger(str(tmp_path))
    found = parts(tmp_path)
    assert [part["name"] for part in ledger["parts"]] == sorted(found)
    for part in ledger["parts"]:
        data = found[part["name"]]
        assert part["sha256"] == hashlib.sha256(data).hexdigest()
        assert (part["rows"], part["bytes"]) == (data.count(b"\n"), len(data))
    assert [length["released"] for length in ledger["lengths"]] == [3, 2]
    assert [length["valid"] for length in ledger["lengths"]] == [None, 9]
    assert [length["threshold"] for length in ledger["lengths"]] == [
        SETS[0].rule.threshold,
        30,
    ]
    assert ledger["run_key"]["given"] is True
    assert ledger["tokenizer"] == "m:f"


@pytest.mark.parametrize("output_format", OUTPUT_FORMATS)
@pytest.mark.parametrize(
    ("rows_per_part", "sizes"), [(1, [1] * 5), (2, [2, 2, 1]), (5, [5]), (9, [5])]
)
def test_rows_are_cut_into_parts(tmp_path, output_format, rows_per_part, sizes):
    publish(tmp_path, output_format=output_format, rows_per_part=rows_per_part)
    listed = read_ledger(str(tmp_path))["parts"]
    assert [part["rows"] for part in listed] == sizes
    ends = [f"{place:05}-of-{len(sizes):05}.{output_format}" for place in range(len(sizes))]
    assert [part["name"][24:] for part in listed] == ends
    assert tuples(read_release(str(tmp_path)).table()) == ROWS


@pytest.mark.parametrize("output_format", OUTPUT_FORMATS)
def test_a_release_without_rows_has_one_part_without_rows(tmp_path, output_format):
    publish(tmp_path, sets_of({}), output_format=output_format)
    (part,) = read_ledger(str(tmp_path))["parts"]
    assert part["name"].endswith(f"-00000-of-00001.{output_format}")
    assert part["rows"] == 0
    if output_format != "parquet":
        header = {"jsonl": b"", "tsv": b"length\tngram\tscore\n"}
        assert only_part(tmp_path) == header[output_format]
    table = read_release(str(tmp_path)).table()
    assert table.schema.equals(ROW_SCHEMA)
    assert len(table) == 0


def test_a_release_of_one_length_needs_no_shorter_ones(tmp_path):
    plan = PrivacyPlan(
        epsilon=1,
        delta=1e-7,
        max_length=1,
        max_contributions=10,
        strategy="one_round",
        count_share=0,
    )
    rule = length_rule(
        length=1, noise_stddev=plan.lengths[0].noise_stddev, threshold=plan.lengths[0].threshold
    )
    words = GramSet(
        length=1, keys=np.arange(1), scores=np.array([7.5]), words=pa.array(["a"]), rule=rule
    )
    run = Run(plan=plan, tokenizer="words", run_key_given=False)
    publish_by_beam(tmp_path, [words], run=run)
    assert tuples(read_release(str(tmp_path)).table()) == [(1, "a", 7.5)]


COUNTED = dataclasses.replace(PLAN, count_share=0.15)


def counted(scores, users):
    """S_1 and an empty S_2 with numbers of users."""
    words, bigrams = sets_of(scores, plan=COUNTED)
    none = np.zeros((0, 3), np.int64)
    return [
        dataclasses.replace(words, users=np.array(users)),
        dataclasses.replace(bigrams, users=none),
    ]


@pytest.mark.parametrize("output_format", OUTPUT_FORMATS)
def test_numbers_of_users_are_written_read_and_give_the_order(tmp_path, output_format):
    sets = counted({"a": 91.0, "b": 70.25, "c": 80.0}, [[7, 0, 20], [9, 8, 11], [7, 5, 8]])
    run = Run(plan=COUNTED, tokenizer="words", run_key_given=False)
    publish(tmp_path, sets, run=run, output_format=output_format)
    release = read_release(str(tmp_path))
    assert release.table().schema.equals(COUNTED_ROW_SCHEMA)
    assert tuples(release.table()) == [
        (1, "b", 70.25, 9, 8, 11),
        (1, "a", 91.0, 7, 0, 20),
        (1, "c", 80.0, 7, 5, 8),
    ]


def test_sets_without_the_numbers_of_users_of_their_plan_are_refused(tmp_path):
    scores = {"a": 91.0, "b": 70.25}
    with_users = counted(scores, [[7, 0, 20], [9, 8, 11]])
    for sets, plan in ((sets_of(scores, plan=COUNTED), COUNTED), (with_users, PLAN)):
        with pytest.raises(
            ValueError, match="numbers of users if, and only if, count_share of the"
        ):
            publish(tmp_path, sets, run=Run(plan=plan, tokenizer="words", run_key_given=False))
    assert list(tmp_path.iterdir()) == []


def test_rows_are_sorted_by_length_falling_score_and_bytes(tmp_path):
    draw = random.Random(5)
    words = {f"w{i}é{i % 7}"[i % 3 :]: draw.choice([71.5, 80, 99.25]) for i in range(60)}
    names = list(words)
    bigrams = {
        (draw.choice(names), draw.choice(names)): draw.choice([31.5, 40]) for _ in range(200)
    }
    publish(tmp_path, sets_of(words, bigrams), rows_per_part=37)
    expected = [(1, join_tokens([word]), float(score)) for word, score in words.items()]
    expected += [(2, join_tokens(pair), float(score)) for pair, score in bigrams.items()]
    expected.sort(key=lambda row: (row[0], -row[2], row[1].encode()))
    assert tuples(read_release(str(tmp_path)).table()) == expected


@pytest.mark.parametrize("output_format", OUTPUT_FORMATS)
@settings(max_examples=30, deadline=None)
@given(words=st.sets(TOKENS, min_size=1, max_size=12), draw=st.randoms())
def test_hostile_words_survive_the_files(output_format, words, draw):
    words = sorted(words | set(HOSTILE))
    bigrams = {(draw.choice(words), draw.choice(words)): 40.5 + place for place in range(9)}
    with tempfile.TemporaryDirectory() as folder:
        publish(folder, sets_of(dict.fromkeys(words, 75.5), bigrams), output_format=output_format)
        rows = tuples(read_release(folder).table())
        as_strangers_read = _PLAIN_READERS[output_format](only_part(folder))
    assert rows == as_strangers_read
    assert {split_ngram(ngram) for length, ngram, _ in rows if length == 1} == {
        (word,) for word in words
    }
    assert {split_ngram(ngram): score for length, ngram, score in rows if length == 2} == bigrams


def read_json_lines(data):
    return [tuple(json.loads(line).values()) for line in data.decode().split("\n")[:-1]]


def read_tab_separated(data):
    lines = csv.reader(
        io.StringIO(data.decode(), newline="\n"), "excel-tab", quoting=csv.QUOTE_NONE
    )
    return [(int(length), ngram, float(score)) for length, ngram, score in list(lines)[1:]]


_PLAIN_READERS = {
    "jsonl": read_json_lines,
    "tsv": read_tab_separated,
    "parquet": lambda data: tuples(pq.read_table(io.BytesIO(data))),
}


def test_rounding_keeps_scores_above_the_threshold_and_apart():
    """Plans with less noise than this are refused: a user would move what noise of 128 bits reaches."""
    stddev = 1 / LAPLACE_END
    for threshold in (stddev, 1.23456789, 1e6 + 1 / 3):
        scores = threshold + (np.arange(1000) + 0.5) * stddev / 64
        rounded = np.round(scores, 6)
        assert rounded.min() > threshold
        assert len(np.unique(rounded)) == len(scores)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output": ""}, "output must be"),
        ({"output_format": "csv"}, "output_format must be one of jsonl, tsv, parquet"),
        ({"rows_per_part": 0}, "rows_per_part must be at least 1"),
    ],
)
def test_bad_fields_are_refused_when_the_pipeline_is_built(changes, message):
    with pytest.raises(ValueError, match=message):
        WriteRelease(**{"output": "o"} | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output": 3}, r"output must be a str, e\.g\. 'gs://bucket/release', got int"),
        ({"output": pathlib.Path("o")}, "output must be a str, .* got PosixPath"),
        ({"notes": "hi"}, r"notes must be ReleaseNotes, e\.g\. ReleaseNotes\(.*\), got str"),
        ({"notes": None}, "notes must be ReleaseNotes, .* got NoneType"),
        ({"overwrite": "false"}, "overwrite must be True or False, got str"),
        ({"rows_per_part": 2.5}, "rows_per_part must be an int, got float"),
        ({"permit": True}, "permit must be a function, got bool"),
    ],
)
def test_fields_of_wrong_types_are_refused_when_the_pipeline_is_built(changes, message):
    with pytest.raises(TypeError, match=message):
        WriteRelease(**{"output": "o"} | changes)


# Items of a set union

UNION = SetUnionPlan(epsilon=1, delta=1e-7, policy="weighted_gaussian", count_share=0)


def items_of(scores, plan=UNION):
    """An `ItemSet` from {item: score}."""
    known = sorted(scores, key=str.encode)
    return ItemSet(
        items=pa.array(known, pa.string()),
        scores=np.array([scores[item] for item in known], dtype=float),
        report=plan.report(),
    )


def publish_items(output, scores, plan=UNION, **settings):
    run = Run(plan=plan, tokenizer="words", run_key_given=False)
    form = PrivateSetUnionResult.form
    publish(output, [items_of(scores)], run=run, form=form, **settings)


ITEMS = {"New York": 70.25, "b": 91.0, "a\tb\\": 70.25, "": 40.1234564}


@pytest.mark.parametrize(
    ("output_format", "content"),
    [
        (
            "jsonl",
            '{"item":"b","score":91.0}\n'
            '{"item":"New York","score":70.25}\n'
            '{"item":"a\\tb\\\\","score":70.25}\n'
            '{"item":"","score":40.123456}\n',
        ),
        (
            "tsv",
            "item\tscore\nb\t91.0\nNew York\t70.25\na\\tb\\\\\t70.25\n\\e\t40.123456\n",
        ),
    ],
)
def test_items_are_sorted_by_score_and_bytes_and_escaped_where_they_must_be(
    tmp_path, output_format, content
):
    publish_items(tmp_path, ITEMS, output_format=output_format)
    ((name, data),) = [pair for pair in files(tmp_path).items() if pair[0] != "ledger.json"]
    assert name.startswith("items-")
    assert data.decode() == content


@pytest.mark.parametrize("output_format", OUTPUT_FORMATS)
def test_read_release_gives_the_items_back(tmp_path, output_format):
    publish_items(tmp_path, ITEMS, output_format=output_format, rows_per_part=3)
    table = read_release(str(tmp_path)).table()
    assert table.schema.equals(ITEM_SCHEMA)
    assert tuples(table) == [
        ("b", 91.0),
        ("New York", 70.25),
        ("a\tb\\", 70.25),
        ("", 40.123456),
    ]
    ledger = read_ledger(str(tmp_path))
    assert ledger["program"] == "set-union"
    assert ledger["mechanism"]["released"] == 4
    assert [part["rows"] for part in ledger["parts"]] == [3, 1]


@pytest.mark.parametrize("output_format", OUTPUT_FORMATS)
@settings(max_examples=30, deadline=None)
@given(items=st.sets(TOKENS, max_size=12))
def test_hostile_items_survive_the_files(output_format, items):
    scores = {item: 40.5 + place for place, item in enumerate(sorted(items | set(HOSTILE)))}
    with tempfile.TemporaryDirectory() as folder:
        publish_items(folder, scores, output_format=output_format)
        rows = tuples(read_release(folder).table())
        (data,) = [data for name, data in files(folder).items() if name.startswith("items-")]
    assert dict(rows) == scores
    assert [score for _, score in rows] == sorted(scores.values(), reverse=True)
    if output_format == "jsonl":
        assert read_json_lines(data) == rows
    elif output_format == "tsv":
        lines = csv.reader(
            io.StringIO(data.decode(), newline="\n"), "excel-tab", quoting=csv.QUOTE_NONE
        )
        assert [(unescape_item(line), float(score)) for line, score in list(lines)[1:]] == rows


@given(item=TOKENS, other=TOKENS)
def test_escaped_items_are_lines_apart(item, other):
    line = escape_item(item)
    assert unescape_item(line) == item
    assert line
    assert not set(line) & set("\t\n\r")
    assert (line == escape_item(other)) == (item == other)


def test_borders_between_items_are_part_of_a_name(tmp_path):
    """Equal names mean equal bytes, also for items with line ends."""
    for place, items in enumerate((("a\nb", "c"), ("a", "b\nc"))):
        publish_items(tmp_path / str(place), dict.fromkeys(items, 7.0), output_format="tsv")
    assert not parts_of_items(tmp_path / "0") & parts_of_items(tmp_path / "1")


def parts_of_items(folder):
    return {name for name in files(folder) if name.startswith("items-")}


def test_no_items_are_a_release_too(tmp_path):
    publish_items(tmp_path, {})
    assert len(read_release(str(tmp_path)).table()) == 0
    assert read_ledger(str(tmp_path))["mechanism"]["released"] == 0


def test_a_release_of_the_other_program_is_overwritten_whole(tmp_path):
    publish(tmp_path)
    with pytest.raises(ReleaseError, match="is a release already"):
        publish_items(tmp_path, ITEMS)
    publish_items(tmp_path, ITEMS, overwrite=True)
    assert len(files(tmp_path)) == 2
    assert len(read_release(str(tmp_path)).table()) == 4
    publish(tmp_path, overwrite=True)
    assert tuples(read_release(str(tmp_path)).table()) == ROWS
    assert len(files(tmp_path)) == 2


def test_items_of_another_plan_are_refused(tmp_path):
    other = SetUnionPlan(epsilon=2, delta=1e-7, policy="weighted_gaussian", count_share=0)
    with pytest.raises(ValueError, match="must be of a run under this plan"):
        publish_items(tmp_path, ITEMS, plan=other)
    assert list(tmp_path.iterdir()) == []


# One content, one release


@pytest.mark.parametrize("output_format", OUTPUT_FORMATS)
def test_publishing_again_changes_nothing(tmp_path, output_format):
    publish(tmp_path, output_format=output_format)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    content = files(tmp_path)
    publish(tmp_path, output_format=output_format)
    publish(tmp_path, output_format=output_format, overwrite=True)
    assert files(tmp_path) == content
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_repeated_bundles_publish_one_release(tmp_path):
    publish_by_beam(tmp_path / "once", rows_per_part=2)
    publish_by_beam(tmp_path / "often", rows_per_part=2, bundle_repeat=3)
    assert files(tmp_path / "once") == files(tmp_path / "often")


def test_concurrent_bundles_publish_one_release(tmp_path):
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        attempts = [
            pool.submit(publish_by_beam, tmp_path / "at_once", rows_per_part=1) for _ in range(6)
        ]
    assert [attempt.result() for attempt in attempts] == [None] * 6
    publish_by_beam(tmp_path / "alone", rows_per_part=1)
    assert files(tmp_path / "at_once") == files(tmp_path / "alone")


def test_names_tell_contents_cuts_and_formats_apart(tmp_path):
    hashes = set()
    variants = [
        (sets, cut, form) for sets in (SETS, OTHER) for cut in (3, 4) for form in OUTPUT_FORMATS
    ]
    for place, (sets, cut, form) in enumerate(variants):
        publish(tmp_path / str(place), sets, rows_per_part=cut, output_format=form)
        hashes.add(min(parts(tmp_path / str(place)))[7:23])
    assert len(hashes) == 9  # OTHER has one row, cut nowhere


def test_nothing_of_place_key_or_host_is_in_a_release(tmp_path):
    key = bytes(range(32))
    plan = PrivacyPlan(epsilon=10, delta=1e-4, max_length=2, max_contributions=2)
    for place in ("canaryPath", "elsewhere"):
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            documents = pipeline | beam.Create([(f"canaryUser{i}", "Good day") for i in range(99)])
            _ = (
                documents
                | PrivateNgrams(plan=plan, run_key=RunKey(key), partitions=3)
                | WriteRelease(
                    output=str(tmp_path / place),
                    output_format="jsonl",
                )
            )
    release = files(tmp_path / "canaryPath")
    assert release == files(tmp_path / "elsewhere")
    assert len(read_release(str(tmp_path / "canaryPath")).table()) == 3
    text = " ".join(release) + b"\n".join(release.values()).decode()
    for secret in ("canary", str(tmp_path), os.getcwd(), socket.gethostname(), key.hex()):
        assert secret.lower() not in text.lower()


# The overwrite protocol


def foreign(folder):
    """Files beside a release that are nobody's business."""
    names = [
        "notes.txt",
        ".hidden",
        "ngrams-mine.jsonl",
        "ngrams-0123456789abcdef-00000-of-00001.csv",
        ".ledger.json.tmp-1",
        "sub/ngrams-0123456789abcdef-00000-of-00001.jsonl",
        "sub/ledger.json",
    ]
    for name in names:
        path = pathlib.Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return {name: name.encode() for name in names}


def test_another_release_is_not_touched_without_overwrite(tmp_path):
    publish_by_beam(tmp_path)
    before = files(tmp_path)
    with pytest.raises(ReleaseError, match="is a release already; choose another directory"):
        publish(tmp_path, OTHER)
    assert files(tmp_path) == before


def test_overwriting_replaces_the_release_and_nothing_else(tmp_path):
    others = foreign(tmp_path)
    publish(tmp_path, rows_per_part=1)
    publish(tmp_path, OTHER, overwrite=True, output_format="tsv")
    publish(alone := tmp_path.with_name("alone"), OTHER, output_format="tsv")
    assert files(tmp_path) == others | files(alone)


def test_an_attempt_killed_before_its_ledger_is_completed_by_the_next(tmp_path):
    publish(tmp_path, rows_per_part=2)
    whole = files(tmp_path)
    *_, last = sorted(parts(tmp_path))
    (tmp_path / last).write_bytes(b"half")
    (tmp_path / "ledger.json").rename(tmp_path / f".ledger.json.tmp-{'0' * 32}")
    (tmp_path / f".{last}.tmp-{'1' * 32}").write_bytes(b"half")
    with pytest.raises(ReleaseError, match="there is no release"):
        read_release(str(tmp_path)).table()
    publish(tmp_path, rows_per_part=2)
    assert files(tmp_path) == whole


def test_an_overwrite_killed_before_its_ledger_leaves_the_old_release(tmp_path):
    publish(tmp_path)
    publish(new := tmp_path.with_name("new"), OTHER)
    for name, data in parts(new).items():
        (tmp_path / name).write_bytes(data)
        (tmp_path / f".{name}.tmp-{'2' * 32}").write_bytes(data[:3])
    assert tuples(read_release(str(tmp_path)).table()) == ROWS
    publish(tmp_path, OTHER, overwrite=True)
    assert files(tmp_path) == files(new)


def test_an_overwrite_killed_after_its_ledger_is_tidied_by_the_next(tmp_path):
    publish(tmp_path, OTHER)
    publish(old := tmp_path.with_name("old"), rows_per_part=1)
    whole = files(tmp_path)
    for name, data in parts(old).items():
        (tmp_path / name).write_bytes(data)
    assert tuples(read_release(str(tmp_path)).table()) == [(1, "c", 80.0)]
    publish(tmp_path, OTHER, overwrite=True)
    assert files(tmp_path) == whole


def test_a_damaged_part_is_repaired_by_overwriting(tmp_path):
    publish(tmp_path)
    whole = files(tmp_path)
    (name,) = parts(tmp_path)
    (tmp_path / name).write_bytes(b"damaged")
    publish(tmp_path, overwrite=True)
    assert files(tmp_path) == whole


def test_what_cannot_be_deleted_does_not_fail_a_whole_release(tmp_path, caplog):
    publish(tmp_path)
    stubborn = tmp_path / "ngrams-0123456789abcdef-00000-of-00001.jsonl"
    stubborn.mkdir()
    publish(tmp_path, OTHER, overwrite=True)
    assert f"{stubborn} could not be deleted: {os.strerror(errno.EISDIR)}." in caplog.text
    assert tuples(read_release(str(tmp_path)).table()) == [(1, "c", 80.0)]
    assert stubborn.is_dir()
    assert len(parts(tmp_path)) == 1


def test_a_ledger_of_somebody_else_is_never_replaced(tmp_path):
    (tmp_path / "ledger.json").write_text('{"debts": []}')
    before = files(tmp_path)
    for attempt in (
        lambda: publish(tmp_path, overwrite=True),
        lambda: check_output(str(tmp_path), overwrite=True),
    ):
        with pytest.raises(ReleaseError, match=r"beam_dpne did not write.*Choose another"):
            attempt()
    assert files(tmp_path) == before


def test_a_damaged_release_is_not_read(tmp_path):
    publish(tmp_path)
    (name,) = parts(tmp_path)
    data = only_part(tmp_path)
    (tmp_path / name).write_bytes(data.replace(b"91.0", b"92.0"))
    with pytest.raises(ReleaseError, match=r"damaged: part ngrams-.* has another SHA-256"):
        read_release(str(tmp_path)).table()
    (tmp_path / name).unlink()
    with pytest.raises(ReleaseError, match=r"incomplete: part ngrams-.* is missing"):
        read_release(str(tmp_path)).table()


def test_a_part_that_does_not_parse_is_not_quoted(tmp_path):
    publish(tmp_path)
    (name,) = parts(tmp_path)
    canary = b'{"length":"canary"}'
    (tmp_path / name).write_bytes(canary)
    ledger = read_ledger(str(tmp_path))
    ledger["parts"][0] |= {"sha256": hashlib.sha256(canary).hexdigest(), "bytes": len(canary)}
    (tmp_path / "ledger.json").write_text(json.dumps(ledger))
    with pytest.raises(ReleaseError, match="cannot be read: ValidationError") as refusal:
        read_release(str(tmp_path)).table()
    assert "canary" not in str(refusal.value)


# Full disks and other walls

MANY = sets_of({f"canaryword{i}": 70.5 + i for i in range(5000)})


@pytest.fixture
def tiny_disk(tmp_path):
    """A real file system of 64 kB."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    with _mounted(folder, "-o", "size=64k"):
        yield folder


@contextlib.contextmanager
def _mounted(folder, *options):
    command = ["mount", "-t", "tmpfs", *options, "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(command, check=False).returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_leaves_nothing(tiny_disk):
    output = tiny_disk / "new" / "release"
    with pytest.raises(ReleaseError, match=os.strerror(errno.ENOSPC)) as failure:
        publish_by_beam(output, MANY, rows_per_part=700)
    assert str(output) in str(failure.value)
    assert "canary" not in str(failure.value)
    assert list(tiny_disk.iterdir()) == []


def test_a_full_disk_leaves_the_old_release(tiny_disk, caplog):
    others = foreign(tiny_disk)
    publish(tiny_disk)
    before = files(tiny_disk)
    with pytest.raises(ReleaseError, match=os.strerror(errno.ENOSPC)):
        publish(tiny_disk, MANY, rows_per_part=700, overwrite=True)
    assert not caplog.records
    assert files(tiny_disk) == before
    assert others.items() < before.items()
    assert tuples(read_release(str(tiny_disk)).table()) == ROWS


@contextlib.contextmanager
def _files_of_at_most(size):
    """The operating system refuses larger files; only the soft limit changes, and comes back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_hits_a_limit_leaves_nothing(tmp_path):
    with _files_of_at_most(40_000):
        publish(tmp_path / "small_parts", MANY, rows_per_part=700)
        with pytest.raises(ReleaseError, match=os.strerror(errno.EFBIG)):
            publish(tmp_path / "large_parts", MANY, rows_per_part=1000)
    assert [path.name for path in tmp_path.iterdir()] == ["small_parts"]
    assert len(read_release(str(tmp_path / "small_parts")).table()) == 5000


def test_a_directory_that_was_there_stays_when_publishing_fails(tiny_disk):
    output = tiny_disk / "mine"
    output.mkdir()
    with pytest.raises(ReleaseError, match="cannot be published"):
        publish(output, MANY)
    assert list(tiny_disk.iterdir()) == [output]
    assert list(output.iterdir()) == []


def test_check_output_accepts_new_and_empty_directories_and_leaves_no_trace(tmp_path):
    check_output(str(tmp_path), overwrite=False)
    check_output(str(tmp_path / "a" / "b"), overwrite=False)
    assert list(tmp_path.iterdir()) == []


def test_check_output_wants_overwrite_where_files_are(tmp_path):
    publish(tmp_path / "release")
    others = foreign(tmp_path / "other")
    with pytest.raises(ReleaseError, match=r"is a release already.*set overwrite"):
        check_output(str(tmp_path / "release"), overwrite=False)
    with pytest.raises(ReleaseError, match=r"is not empty.*set overwrite"):
        check_output(str(tmp_path / "other"), overwrite=False)
    check_output(str(tmp_path / "release"), overwrite=True)
    check_output(str(tmp_path / "other"), overwrite=True)
    assert files(tmp_path / "other") == others


def test_check_output_names_what_a_killed_run_has_left(tmp_path):
    publish(tmp_path, rows_per_part=2)
    (tmp_path / "ledger.json").rename(tmp_path / f".ledger.json.tmp-{'0' * 32}")
    with pytest.raises(
        ReleaseError, match=r"holds 4 files of a run that has not finished, such as"
    ):
        check_output(str(tmp_path), overwrite=False)
    check_output(str(tmp_path), overwrite=True)
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(ReleaseError, match="is not empty"):
        check_output(str(tmp_path), overwrite=False)


def test_check_output_refuses_what_cannot_hold_a_release(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    for output in ("file", "file/below", "file/far/below", "nowhere"):
        with pytest.raises(ReleaseError, match="output must be a directory that can be written"):
            check_output(str(tmp_path / output), overwrite=True)
        with pytest.raises(ReleaseError, match="cannot be published"):
            publish(tmp_path / output)
    with pytest.raises(ReleaseError, match="must be the path"):
        check_output("", overwrite=False)


def test_check_output_refuses_a_read_only_file_system(tmp_path):
    with _mounted(tmp_path, "-o", "ro"):
        for output in (tmp_path, tmp_path / "new"):
            with pytest.raises(ReleaseError, match=os.strerror(errno.EROFS)):
                check_output(str(output), overwrite=False)
            with pytest.raises(ReleaseError, match=os.strerror(errno.EROFS)):
                publish(output)


@pytest.mark.parametrize(
    ("mode", "below"), [(0o555, ""), (0o555, "new/er"), (0, ""), (0, "new/er")]
)
def test_check_output_refuses_a_directory_without_permission(mode, below):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, mode)
        output = os.path.join(folder, below)
        with without_privileges():
            with pytest.raises(ReleaseError, match=os.strerror(errno.EACCES)):
                check_output(output, overwrite=False)
            with pytest.raises(ReleaseError, match=os.strerror(errno.EACCES)):
                publish(output)
        os.chmod(folder, 0o755)
        assert os.listdir(folder) == []


def test_names_that_look_like_globs_are_names(tmp_path):
    publish(tmp_path / "a1")
    before = files(tmp_path / "a1")
    for output in ("a[1]", "a*", "a?"):
        check_output(str(tmp_path / output), overwrite=False)
        publish(tmp_path / output, rows_per_part=1)
        publish(tmp_path / output, OTHER, overwrite=True)
        assert tuples(read_release(str(tmp_path / output)).table()) == [(1, "c", 80.0)]
        assert len(parts(tmp_path / output)) == 1
    assert files(tmp_path / "a1") == before


# An object store


class Shelf(FileSystem):
    """An object store in memory: no directories, objects appear whole when they are closed."""

    objects: ClassVar[dict[str, bytes]] = {}
    capacity = 10**9

    @classmethod
    def scheme(cls):
        return "counter"

    def join(self, basepath, *paths):
        return "/".join([basepath.rstrip("/"), *paths])

    def split(self, path):
        return tuple(path.rsplit("/", 1))

    def has_dirs(self):
        return False

    def mkdirs(self, path):
        pass

    def _list(self, dir_or_prefix):
        for path, data in sorted(self.objects.items()):
            if path.startswith(dir_or_prefix):
                yield FileMetadata(path, len(data))

    def create(self, path, mime_type=None, compression_type=None):
        shelf = self

        class Writer(io.BytesIO):
            def close(self):
                if not self.closed:
                    data = self.getvalue()
                    super().close()
                    if sum(map(len, shelf.objects.values())) + len(data) > shelf.capacity:
                        raise ConnectionError("canary: the shelf is full")
                    shelf.objects[path] = data

        return Writer()

    def open(self, path, mime_type=None, compression_type=None):
        return io.BytesIO(self.objects[path])

    def exists(self, path):
        return path in self.objects

    def delete(self, paths):
        for path in paths:
            del self.objects[path]

    def copy(self, source_file_names, destination_file_names):
        raise NotImplementedError

    rename = copy

    def size(self, path):
        return len(self.objects[path])

    def last_updated(self, path):
        raise NotImplementedError

    checksum = metadata = last_updated


@pytest.fixture
def shelf():
    Shelf.objects.clear()
    yield Shelf.objects
    Shelf.capacity = 10**9


def test_an_object_store_holds_the_same_release(shelf, tmp_path):
    check_output("counter://b/o", overwrite=False)
    publish("counter://b/o", rows_per_part=2)
    publish("counter://b/o", rows_per_part=2)
    publish(tmp_path, rows_per_part=2)
    assert shelf == {f"counter://b/o/{name}": data for name, data in files(tmp_path).items()}
    assert tuples(read_release("counter://b/o").table()) == ROWS
    with pytest.raises(ReleaseError, match="is a release already"):
        check_output("counter://b/o", overwrite=False)


def test_an_object_store_is_overwritten_in_the_same_steps(shelf, caplog):
    shelf["counter://b/other/ngrams-0123456789abcdef-00000-of-00001.jsonl"] = b"other"
    publish("counter://b/o")
    before = dict(shelf)
    Shelf.capacity = sum(map(len, shelf.values())) + 1000
    with pytest.raises(ReleaseError, match="cannot be published in counter://b/o: ConnectionError"):
        publish("counter://b/o", MANY, overwrite=True, rows_per_part=10)
    assert not caplog.records
    assert shelf == before
    Shelf.capacity = 10**9
    publish("counter://b/o", OTHER, overwrite=True)
    assert tuples(read_release("counter://b/o").table()) == [(1, "c", 80.0)]
    assert len(shelf) == 3


def test_a_ledger_that_came_since_is_not_replaced(shelf, tmp_path):
    for output in ("counter://b/o", str(tmp_path)):
        directory = directory_at(output)
        assert directory.read("ledger.json") is None
        directory.put("ledger.json", b"another run's")
        with pytest.raises(ReleaseError, match="another run published in"):
            directory.replace("ledger.json", b"ours", seen=None)
        directory.replace("ledger.json", b"another run's", seen=None)
        directory.replace("ledger.json", b"ours", seen=b"another run's")
        assert directory.read("ledger.json") == b"ours"
