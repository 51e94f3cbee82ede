import bz2
import gzip
import json
import logging
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_dpne.elements import progress
from beam_dpne.errors import InputError
from beam_dpne.reading import rejects
from beam_dpne.reading.delimited import HEADER_START
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.headers import check_fields
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.rejects import Reject, WriteRejects
from beam_dpne.reading.transform import ReadDocuments, plan_reads, read_item, unit_of
from tests.support.privileges import without_privileges

CANARY = "canary7f3a"
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: bytes(pa.compress(data, "zstd", asbytes=True)),
}

Row = tuple[Any, Any]


def read(paths: list[Any], **settings: Any) -> tuple[list[Row], list[tuple[Any, ...]]]:
    """Rows and rejects, read without Beam, in the order of files and offsets."""
    options = ReadOptions(**settings)
    rows, found = [], []
    for file in match_inputs([str(path) for path in paths]):
        for item in plan_reads(file, options):
            for documents, faults, _ in read_item(item, options):
                documents.validate(full=True)
                columns = documents.to_pydict()
                rows += zip(columns["user"], columns["text"], strict=True)
                name = pathlib.Path(file.path).name
                found += [(name, at, unit_of(item.kind), reason) for at, reason in faults]
    return rows, found


def write(path: pathlib.Path, data: bytes | str) -> pathlib.Path:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def run(path: Any, **settings: Any) -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        _ = pipeline | ReadDocuments(inputs=[str(path)], **settings)


FILES = {
    "jsonl": '{"user": "ann", "text": "héllo"}\r\n\n{"text": "b\\n", "user": 12}\n'
    '{"user": "ann", "text": ""}',
    "csv": 'user,x,text\r\nann,,héllo\r\n\r\n12,"1,2","b\n"\nann,,',
    "tsv": "user\tx\ttext\nann\t\théllo\n\n12\t1,2\tb\\n\nann\t\t",
}
ROWS = [("ann", "héllo"), ("12", "b\n"), ("ann", "")]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("codec", COMPRESS)
@pytest.mark.parametrize("kind", FILES)
def test_text_formats_read_alike(tmp_path, kind: str, codec: str, mark: str) -> None:
    path = write(tmp_path / f"a.{kind}{codec}", COMPRESS[codec]((mark + FILES[kind]).encode()))
    rows = [(user, text.replace("\n", "\\n") if kind == "tsv" else text) for user, text in ROWS]
    for block_bytes in (1, 7, 1000):
        check_fields(match_inputs([str(path)]), ReadOptions())
        assert read([path], block_bytes=block_bytes, split_bytes=11) == (rows, [])


def test_columns_stand_for_a_header(tmp_path) -> None:
    path = write(tmp_path / "a.csv", "x,ann\ny,bob\n")
    assert read([path], columns=["text", "user"])[0] == [("ann", "x"), ("bob", "y")]


def test_members_of_a_compressed_file_follow_each_other(tmp_path) -> None:
    data = FILES["jsonl"].encode()
    for codec, compress in COMPRESS.items():
        path = write(tmp_path / f"a.jsonl{codec}", compress(data[:9]) + compress(data[9:]))
        assert read([path]) == (ROWS, [])


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.text(alphabet="ab é\r\n{%", max_size=5), max_size=20),
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from(["", HEADER_START.decode() + "\nh\n% Sequences:\n\n"]),
)
def test_sequences_are_the_same_however_split(
    tmp_path, parts: list[str], split_bytes: int, block_bytes: int, head: str
) -> None:
    data = (head + "\n".join(parts)).encode()
    expected, at = [], 0
    for line in data.split(b"\n"):
        text = line.removesuffix(b"\r")
        if text and at >= len(head):
            user = (0).to_bytes(8, "little") + at.to_bytes(8, "little")
            expected.append((user, text.decode()))
        at += len(line) + 1
    settings = {"input_format": "sequences", "block_bytes": block_bytes}
    plain = write(tmp_path / "a.seq", data)
    packed = write(tmp_path / "a.seq.gz", gzip.compress(data))
    assert read([plain], split_bytes=split_bytes, **settings) == (expected, [])
    assert read([packed], split_bytes=split_bytes, **settings) == (expected, [])


def test_a_sequence_is_named_by_file_place_and_offset(tmp_path) -> None:
    write(tmp_path / "b.seq", "1 2\n")
    write(tmp_path / "a.seq", "9\n")
    rows, _ = read([tmp_path / "b.seq", tmp_path / "*.seq"], input_format="sequences")
    assert rows == [(bytes(16), "9"), (b"\1" + bytes(15), "1 2")]


@pytest.mark.parametrize(
    ("user", "text"),
    [
        (pa.array(["ann", "12"]), pa.array(["x", ""])),
        (pa.array(["ann", "12"]).dictionary_encode(), pa.array(["x", ""], pa.large_string())),
    ],
)
def test_parquet_text_columns_read_alike(tmp_path, user: pa.Array, text: pa.Array) -> None:
    pq.write_table(pa.table({"z": user, "text": text, "user": user}), tmp_path / "a.parquet")
    assert read([tmp_path / "a.parquet"]) == ([("ann", "x"), ("12", "")], [])


def test_parquet_row_groups_are_split_and_rows_counted_through(tmp_path) -> None:
    users = [None if i % 7 == 3 else i for i in range(50)]
    texts = [None if i % 5 == 1 else str(i) for i in range(50)]
    table = pa.table({"user": pa.array(users, pa.int32()), "text": texts})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=9)
    rows, faults = read([tmp_path / "a.parquet"], split_bytes=100, block_bytes=64)
    assert rows == [(str(u), t) for u, t in zip(users, texts, strict=True) if None not in (u, t)]
    assert faults == [
        ("a.parquet", i, "row", rejects.NO_USER if users[i] is None else rejects.NO_TEXT)
        for i in range(50)
        if users[i] is None or texts[i] is None
    ]


def test_lists_of_tokens_pass_through(tmp_path) -> None:
    tokens = [["a b", ""], [], None, ["c", None]]
    rows = [("0", ["a b", ""]), ("1", [])]
    pq.write_table(pa.table({"user": [0, 1, 2, 3], "text": tokens}), tmp_path / "a.parquet")
    lines = [json.dumps({"user": i, "text": text}) for i, text in enumerate(tokens)]
    path = write(tmp_path / "a.jsonl", "\n".join(lines))
    found, faults = read([tmp_path / "a.parquet"], text_is_tokens=True)
    assert found == rows
    assert [(fault[1], fault[3]) for fault in faults] == [
        (2, rejects.NO_TEXT),
        (3, rejects.BAD_TOKENS),
    ]
    found, faults = read([path], text_is_tokens=True)
    assert found == rows
    assert [fault[3] for fault in faults] == [rejects.NO_TEXT, rejects.BAD_TOKENS]


JSON_FAULTS = [
    (f'{{"user": "a", "text": "{CANARY}"', rejects.NOT_JSON),
    (f'"{CANARY}"', rejects.NOT_OBJECT),
    (f'{{"text": "{CANARY}"}}', rejects.NO_USER),
    (f'{{"user": null, "text": "{CANARY}"}}', rejects.NO_USER),
    (f'{{"user": "", "text": "{CANARY}"}}', rejects.EMPTY_USER),
    (f'{{"user": 1.5, "text": "{CANARY}"}}', rejects.BAD_USER),
    (f'{{"user": true, "text": "{CANARY}"}}', rejects.BAD_USER),
    (f'{{"user": "{CANARY}"}}', rejects.NO_TEXT),
    (f'{{"user": "{CANARY}", "text": null}}', rejects.NO_TEXT),
    (f'{{"user": "{CANARY}", "text": ["{CANARY}"]}}', rejects.BAD_TEXT),
    (f'{{"user": "{CANARY}", "text": "\\ud800"}}', rejects.NOT_JSON),
    (f'{{"user": "{CANARY}", "text": "{CANARY * 200}"}}', rejects.TOO_LONG),
    (f'{{"user": "{CANARY}", "text": "', rejects.NOT_JSON),
    (b'{"user": "a", "text": "' + CANARY.encode() + b'\xff"}', rejects.NOT_UTF8_TEXT),
]
CSV_FAULTS = [
    (f"{CANARY}", rejects.RAGGED),
    (f"a,{CANARY},b", rejects.RAGGED),
    (f",{CANARY}", rejects.EMPTY_USER),
    (f'a,"{CANARY}" b', rejects.BAD_QUOTES),
    (f"a,{CANARY * 200}", rejects.TOO_LONG),
    (b"a," + CANARY.encode() + b"\xff", rejects.NOT_UTF8_TEXT),
    (b"\xff," + CANARY.encode(), rejects.NOT_UTF8_TEXT),
]


@pytest.mark.parametrize("name", ["jsonl", "csv", "tsv"])
def test_malformed_records_are_rejects_without_text(tmp_path, caplog, capfd, name: str) -> None:
    caplog.set_level(logging.DEBUG)
    good = {"jsonl": b'{"user":"u","text":"t"}\n', "csv": b"u,t\n", "tsv": b"u\tt\n"}[name]
    cases = {"jsonl": JSON_FAULTS, "csv": CSV_FAULTS}.get(name) or [
        case for case in CSV_FAULTS if case[1] != rejects.BAD_QUOTES
    ]
    data = b"" if name == "jsonl" else good.replace(b"u", b"user").replace(b"\tt", b"\ttext")
    data = data.replace(b",t", b",text")
    expected = []
    for line, reason in cases:
        raw = line if isinstance(line, bytes) else line.encode()
        expected.append((f"a.{name}", len(data), "byte", reason))
        data += (raw.replace(b",", b"\t") if name == "tsv" else raw) + b"\n" + good
    path = write(tmp_path / f"a.{name}", data)
    for block_bytes in (64, 10_000):
        rows, faults = read([path], max_record_bytes=1000, block_bytes=block_bytes)
        assert rows == [("u", "t")] * len(cases)
        assert faults == expected
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        result = pipeline | ReadDocuments(inputs=[str(path)], max_record_bytes=1000)
        plain = [Reject(str(path), at, unit, reason) for _, at, unit, reason in expected]
        assert_that(result.rejects, equal_to(plain))
        _ = result.rejects | WriteRejects(path=str(tmp_path / "rejects"))
        pipeline.run()
    written = (tmp_path / "rejects" / "rejects-00000-of-00001.jsonl").read_text()
    assert sorted(json.loads(line)["position"] for line in written.splitlines()) == [
        at for _, at, _, _ in expected
    ]
    for text in (written, caplog.text, *capfd.readouterr()):
        assert CANARY not in text


@pytest.mark.parametrize("codec", [".gz", ".bz2", ".zst"])
def test_a_truncated_file_fails_the_run_by_name(tmp_path, codec: str) -> None:
    data = "".join(json.dumps({"user": i, "text": f"{CANARY} {i}"}) + "\n" for i in range(3000))
    packed = COMPRESS[codec](data.encode())
    for cut in (len(packed) // 2, len(packed) - 2, 3, 0):
        path = write(tmp_path / f"a.jsonl{codec}", packed[:cut])
        with pytest.raises(InputError, match=r"a\.jsonl.* cannot be read") as caught:
            read([path])
        assert CANARY not in str(caught.value)
    path = write(tmp_path / f"a.jsonl{codec}", data)
    with pytest.raises(InputError, match=r"a\.jsonl.* cannot be read"):
        check_fields(match_inputs([str(path)]), ReadOptions())


def test_failures_of_the_run_hold_no_data(tmp_path, caplog, capfd) -> None:
    caplog.set_level(logging.DEBUG)
    table = pa.table({"user": [CANARY], "text": [CANARY]})
    pq.write_table(table, tmp_path / "whole.parquet")
    cases = [
        write(tmp_path / "a.csv", f'user,text\na,"{CANARY}'),
        write(tmp_path / "b.csv", f"{CANARY} x,y\n"),
        write(tmp_path / "c.tsv", f"{CANARY} x\ty\n"),
        write(tmp_path / "d.csv", b"user,\xff" + CANARY.encode()),
        write(tmp_path / "e.csv", "user," + CANARY * 9000),
        write(tmp_path / "f.csv", ""),
        write(tmp_path / "g.parquet", (tmp_path / "whole.parquet").read_bytes()[:-9]),
        write(tmp_path / "h.csv", f"user,text,text\na,{CANARY},b\n"),
        write(tmp_path / "i.csv.gz", f"user,text\na,{CANARY}\n"),
    ]
    for path in cases:
        with pytest.raises(InputError, match=path.name) as caught:
            read([path])
        assert CANARY not in str(caught.value)
    for path in (cases[0], cases[6]):
        with pytest.raises(InputError, match=path.name) as caught:
            run(path)
        assert CANARY not in str(caught.value)
    for text in (caplog.text, *capfd.readouterr()):
        assert CANARY not in text


def test_strict_fails_at_the_first_reject(tmp_path) -> None:
    path = write(tmp_path / "a.jsonl", f'{{"user":1,"text":"t"}}\n{{"{CANARY}\n')
    with pytest.raises(InputError, match=r"a\.jsonl.*byte 22: malformed JSON") as caught:
        run(path, strict=True)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv.gz", "a.parquet"])
def test_fields_that_exist_are_named(tmp_path, name: str) -> None:
    data = {"jsonl": b'{"who":1,"body":2}\n', "csv": b"who,body\n", "tsv": b"who\tbody\n"}
    if name == "a.parquet":
        pq.write_table(pa.table({"who": [1], "body": ["x"]}), tmp_path / name)
    else:
        raw = data[name.split(".")[1]]
        write(tmp_path / name, gzip.compress(raw) if name.endswith("gz") else raw)
    files = match_inputs([str(tmp_path / name)])
    author = ReadOptions(user_field="author")
    with pytest.raises(InputError, match=r"user_field='author'.*who, body"):
        check_fields(files, author)
    with pytest.raises(InputError, match=r"text_field='text'.*who, body"):
        check_fields(files, ReadOptions(user_field="who"))
    if name != "a.jsonl":
        with pytest.raises(InputError, match=r"user_field='author'.*who, body"):
            read([tmp_path / name], user_field="author")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.csv", f"{CANARY},a {CANARY}\n"),
        ("a.tsv", f"{CANARY}\ta {CANARY}\n"),
        ("a.jsonl", f'{{"{CANARY}": 1, "a {CANARY}": 1}}\n'),
    ],
)
@pytest.mark.parametrize("settings", [{}, {"user_field": "id"}])
def test_what_may_be_data_is_not_named(tmp_path, settings, name: str, data: str) -> None:
    """Whatever fields are wanted: neither a text, nor a word beside it."""
    path = write(tmp_path / name, data)
    with pytest.raises(InputError, match=r"may be data|--columns") as caught:
        check_fields(match_inputs([str(path)]), ReadOptions(**settings))
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("table", "settings", "message"),
    [
        ({"user": [1.5], "text": ["x"]}, {}, "'user'.*double"),
        ({"user": [1], "text": [2]}, {}, "'text'.*int64"),
        ({"user": [1], "text": [["x"]]}, {}, "tokenizer 'tokens'"),
        ({"user": [1], "text": ["x"]}, {"text_is_tokens": True}, "list of texts, got string"),
        ({"user": [1], "text": [[1]]}, {"text_is_tokens": True}, "list of texts.*int64"),
    ],
)
def test_wrong_parquet_types_are_named(tmp_path, table, settings, message: str) -> None:
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=message):
        check_fields(match_inputs([str(tmp_path / "a.parquet")]), ReadOptions(**settings))
    with pytest.raises(InputError, match=message):
        read([tmp_path / "a.parquet"], **settings)


def test_parquet_bytes_that_are_not_utf8_are_rejects(tmp_path) -> None:
    bad = pa.array([CANARY.encode() + b"\xff", b"ok", b""]).view(pa.string())
    pq.write_table(pa.table({"user": ["a", "b", "c"], "text": bad}), tmp_path / "a.parquet")
    rows, faults = read([tmp_path / "a.parquet"])
    assert rows == [("b", "ok"), ("c", "")]
    assert faults == [("a.parquet", 0, "row", rejects.NOT_UTF8)]


def test_files_are_sorted_and_matched_once(tmp_path, monkeypatch) -> None:
    for name in ("b.csv", "a.csv", "c[1].csv"):
        write(tmp_path / name, "user,text\n")
    monkeypatch.chdir(tmp_path)
    files = match_inputs(["b.csv", "*.csv", str(tmp_path / "a.csv"), "c[1].csv"])
    assert [(file.number, os.path.basename(file.path)) for file in files] == [
        (0, "a.csv"),
        (1, "b.csv"),
        (2, "c[1].csv"),
    ]
    assert {file.size for file in files} == {10}


def test_inputs_that_cannot_be_read_are_errors(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist"):
        match_inputs([str(tmp_path / "none.csv")])
    with pytest.raises(FileNotFoundError, match="matches no file"):
        match_inputs([str(tmp_path / "*.csv")])
    with pytest.raises(InputError, match=r"a folder with files in it, got .* which has none"):
        match_inputs([str(tmp_path)])
    with pytest.raises(InputError, match="at least one"):
        match_inputs([])
    with pytest.raises((InputError, FileNotFoundError), match="none"):
        run(tmp_path / "none.csv")


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
def test_an_unreadable_file_is_an_error() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = write(pathlib.Path(folder, "a.csv"), "user,text\n")
        # Whatever is imported late is imported now: nobody may not even read Python's library.
        assert len(match_inputs([str(path)])) == 1
        path.chmod(0)
        with without_privileges(), pytest.raises(InputError, match="input must be readable"):
            match_inputs([str(path)])


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
@pytest.mark.parametrize(
    ("mode", "named", "readable"),
    [
        (0o000, "", False),
        (0o444, "", False),  # without entering it, not even the kinds of its entries are known
        (0o311, "", False),
        (0o000, "a.csv", False),
        (0o000, "deeper/a.csv", False),
        (0o311, "*.csv", False),
        (0o311, "a.csv", True),
        (0o755, "", True),
        (0o755, "*.csv", True),
    ],
)
def test_an_unreadable_folder_is_not_an_empty_one(mode, named, readable) -> None:
    with tempfile.TemporaryDirectory() as parent:
        os.chmod(parent, 0o711)
        folder = pathlib.Path(parent, "run" if "*" in named else "run[1]")
        folder.mkdir()
        write(folder / "a.csv", "user,text\n")
        assert len(match_inputs([str(folder)])) == 1
        folder.chmod(mode)
        pattern = os.path.join(folder, named)
        with without_privileges():
            if readable:
                assert len(match_inputs([pattern])) == 1
                return
            said = re.escape(f"input must be readable, got the folder {folder}")
            with pytest.raises(InputError, match=said):
                match_inputs([pattern])


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")
def test_standard_input_and_pipes_are_refused_as_such(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.csv")
    for named in ("-", "/dev/stdin", "pipe.csv", "/dev/null"):
        said = f"input must name files or folders, got {named}: standard input and pipes"
        with pytest.raises(InputError, match=said):
            match_inputs([named])
    write(tmp_path / "-", "user,text\n")
    assert [file.size for file in match_inputs(["-"])] == [10]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"inputs": []}, "at least one"),
        ({"inputs": "a.csv"}, "list"),
        ({"inputs": ["a.txt"]}, "jsonl, csv, tsv, parquet, sequences"),
        ({"inputs": ["a.parquet.gz"]}, "must not be compressed as a whole"),
        ({"inputs": ["a.csv"], "input_format": "xml"}, "input_format='xml'"),
        ({"inputs": ["a.csv"], "text_is_tokens": True}, "text_is_tokens"),
        ({"inputs": ["a"], "input_format": "tsv", "text_is_tokens": True}, "text_is_tokens"),
        ({"inputs": ["a.csv"], "columns": ["user", "x"]}, "columns=user,x"),
        ({"inputs": ["a.csv"], "columns": ["user", "user", "text"]}, "once"),
        ({"inputs": ["a.csv"], "user_field": "text"}, "must differ"),
        ({"inputs": ["a.csv"], "text_field": 'a"b'}, "without quotes"),
        ({"inputs": ["a.csv"], "max_record_bytes": 0}, "max_record_bytes=0"),
    ],
)
def test_wrong_parameters_fail_at_construction(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReadDocuments(**settings)


def test_the_pipeline_reads_all_parts_and_counts_rejects(tmp_path) -> None:
    lines = [json.dumps({"user": f"u{i}", "text": f"t{i}"}) for i in range(500)]
    write(tmp_path / "a.jsonl", "\n".join([*lines[:300], "x"]))
    write(tmp_path / "b.jsonl.gz", gzip.compress("\n".join(lines[300:]).encode()))
    write(tmp_path / "c.jsonl", "")
    progress.reset()
    pipeline = beam.Pipeline(runner=FnApiRunner())
    read = pipeline | ReadDocuments(inputs=[str(tmp_path / "*")], split_bytes=1000, block_bytes=99)
    users = read.documents | beam.FlatMap(lambda batch: batch.column("user").to_pylist())
    assert_that(users, equal_to([f"u{i}" for i in range(500)]))
    result = pipeline.run()
    counters = result.metrics().query(MetricsFilter().with_name("rejected_records"))["counters"]
    assert [counter.committed for counter in counters] == [1]
    sizes = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert progress.snapshot().bytes_read == sizes


def test_the_progress_board_shows_the_latest_stage() -> None:
    progress.reset()
    progress.enter("count", 3)
    progress.advance_bytes(5)
    progress.advance_bytes(7)
    assert progress.snapshot() == ("count", 3, 12)
    progress.reset()
    assert progress.snapshot() == ("", None, 0)


def test_temporary_folders_of_rejects_go_when_a_run_fails(tmp_path) -> None:
    folder = tmp_path / "a[1]*"
    (folder / "beam-temp-rejects-before").mkdir(parents=True)

    def fail() -> None:
        with rejects.tidied(str(folder)):
            (folder / "beam-temp-rejects-now" / "shard").mkdir(parents=True)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert [path.name for path in folder.iterdir()] == ["beam-temp-rejects-before"]
