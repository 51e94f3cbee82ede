"""Releases on disk: exact contents, one step to complete, nothing half done, read back or refused."""

import concurrent.futures
import contextlib
import errno
import hashlib
import io
import json
import os
import pathlib
import resource
import socket
import tempfile
from typing import ClassVar

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.io.filesystem import FileMetadata, FileSystem
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_dpne import NgramsPlan, PrivateNgrams, Release, RunKey, read_release, split_ngram
from beam_dpne.elements.rows import (
    COUNTED_ITEM_SCHEMA,
    ITEM_SCHEMA,
    ROW_SCHEMA,
    escape_item,
    unescape_item,
)
from beam_dpne.errors import ReleaseError
from beam_dpne.release.parts import OUTPUT_FORMATS
from beam_dpne.release.publishing import check_output
from beam_dpne.release.reading import read_ledger
from beam_dpne.release.steps import WriteRelease
from beam_dpne.storage.directories import directory_at
from tests.support import releases
from tests.support.files import without_privileges

SCORES = {("a",): 70.25, ("b",): 91.0, ("né\t",): 70.25, ("a", "b"): 40.1234564, ("b", "a"): 50.5}
OTHER = {("c",): 80.0}
ROWS = [
    *((1, "b", 91.0), (1, "a", 70.25), (1, "né\\t", 70.25)),
    *((2, "b a", 50.5), (2, "a b", 40.123456)),
]
ITEMS = {"New York": 70.25, "b": 91.0, "a\tb\\": 70.25, "": 40.1234564}
MANY = {(f"canaryword{i}",): 70.5 + i for i in range(5000)}
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
each_format = pytest.mark.parametrize("output_format", OUTPUT_FORMATS)


def publish(output, scores=SCORES, **settings):
    return releases.ngrams(output, scores, **settings)


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in pathlib.Path(folder).rglob("*")
        if path.is_file()
    }


def parts(folder):
    return {name: data for name, data in files(folder).items() if name.startswith("ngrams-")}


def tuples(table):
    return [tuple(row.values()) for row in table.to_pylist()]


def rows_of(folder):
    return tuples(read_release(str(folder)).table())


# Contents


@pytest.mark.parametrize(
    ("output_format", "content"),
    [
        (
            "jsonl",
            '{"item":"b","score":91.0}\n{"item":"New York","score":70.25}\n'
            '{"item":"a\\tb\\\\","score":70.25}\n{"item":"","score":40.123456}\n',
        ),
        ("csv", '"item","score"\n"b",91.0\n"New York",70.25\n"a\tb\\",70.25\n"",40.123456\n'),
        ("tsv", "item\tscore\nb\t91.0\nNew York\t70.25\na\\tb\\\\\t70.25\n\\e\t40.123456\n"),
    ],
)
def test_items_are_sorted_by_score_and_bytes_and_escaped_where_they_must_be(
    tmp_path, output_format, content
):
    releases.items(tmp_path, ITEMS, output_format=output_format)
    ((name, data),) = [pair for pair in files(tmp_path).items() if pair[0] != "ledger.json"]
    assert name.startswith("items-")
    assert data.decode() == content


def test_ngrams_are_one_object_a_line(tmp_path):
    publish(tmp_path)
    (data,) = parts(tmp_path).values()
    names = ("length", "ngram", "score")
    assert [json.loads(line) for line in data.splitlines()] == [
        dict(zip(names, row, strict=True)) for row in ROWS
    ]


@each_format
def test_releases_are_read_back_with_their_types_and_in_their_order(tmp_path, output_format):
    form = {"output_format": output_format, "rows_per_part": 2}
    publish(tmp_path / "n", **form)
    releases.items(tmp_path / "i", ITEMS, **form)
    releases.items(tmp_path / "c", {"a": 9, "b": 20, "c": 5}, count_share=0.1, **form)
    releases.ngrams(tmp_path / "e", {}, **form)
    assert read_release(str(tmp_path / "n")).table().schema.equals(ROW_SCHEMA)
    assert rows_of(tmp_path / "n") == ROWS
    assert read_release(str(tmp_path / "i")).table().schema.equals(ITEM_SCHEMA)
    assert [row[0] for row in rows_of(tmp_path / "i")] == ["b", "New York", "a\tb\\", ""]
    assert read_release(str(tmp_path / "c")).table().schema.equals(COUNTED_ITEM_SCHEMA)
    assert rows_of(tmp_path / "c") == [
        ("b", 20, 20, 10, 40),
        ("a", 9, 9, 4, 18),
        ("c", 5, 5, 2, 10),
    ]
    assert rows_of(tmp_path / "e") == []
    assert read_release(str(tmp_path / "e")).table().schema.equals(ROW_SCHEMA)


@pytest.mark.parametrize(("rows_per_part", "sizes"), [(1, [1] * 5), (2, [2, 2, 1]), (9, [5])])
def test_rows_are_cut_into_parts_that_the_ledger_lists(tmp_path, rows_per_part, sizes):
    publish(tmp_path, rows_per_part=rows_per_part)
    listed = read_ledger(str(tmp_path))["parts"]
    ends = [f"{place:05}-of-{len(sizes):05}.jsonl" for place in range(len(sizes))]
    assert [part["name"][24:] for part in listed] == ends
    found = parts(tmp_path)
    assert [part["name"] for part in listed] == sorted(found)
    for part, size in zip(listed, sizes, strict=True):
        data = found[part["name"]]
        assert part["sha256"] == hashlib.sha256(data).hexdigest()
        assert (part["rows"], part["bytes"]) == (size, len(data))


@each_format
@settings(max_examples=20, deadline=None)
@given(words=st.sets(TOKENS, max_size=12))
def test_hostile_texts_survive_the_files(output_format, words):
    scores = {word: 40.5 + place for place, word in enumerate(sorted(words | set(HOSTILE)))}
    with tempfile.TemporaryDirectory() as folder:
        releases.items(pathlib.Path(folder, "i"), scores, output_format=output_format)
        assert dict(rows_of(f"{folder}/i")) == scores
        pairs = {(word, "ok"): score for word, score in scores.items()}
        publish(pathlib.Path(folder, "n"), pairs, output_format=output_format)
        found = {split_ngram(text): score for _, text, score in rows_of(f"{folder}/n")}
    assert found == pairs


@given(item=TOKENS, other=TOKENS)
def test_escaped_items_are_lines_apart(item, other):
    line = escape_item(item)
    assert unescape_item(line) == item
    assert line
    assert not set(line) & set("\t\n\r")
    assert (line == escape_item(other)) == (item == other)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output_format": "xml"}, "`output_format` must be one of jsonl, csv, tsv, parquet"),
        ({"rows_per_part": 0}, "`rows_per_part` must be an integer of at least 1"),
        ({"max_rejected": 2}, "`max_rejected` must be"),
    ],
)
def test_bad_fields_are_refused_when_the_pipeline_is_built(changes, message):
    with pytest.raises(ValueError, match=message):
        WriteRelease(**{"output": "o"} | changes)


# One content, one release


@each_format
def test_publishing_again_changes_nothing(tmp_path, output_format):
    publish(tmp_path, output_format=output_format)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    publish(tmp_path, output_format=output_format)
    publish(tmp_path, output_format=output_format, overwrite=True)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_attempts_at_one_time_publish_one_release(tmp_path):
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        attempts = [pool.submit(publish, tmp_path / "at_once", rows_per_part=1) for _ in range(6)]
    assert {attempt.result() for attempt in attempts} == {tmp_path / "at_once"}
    publish(tmp_path / "alone", rows_per_part=1)
    assert files(tmp_path / "at_once") == files(tmp_path / "alone")


def test_names_tell_contents_cuts_and_formats_apart(tmp_path):
    hashes, contents = set(), set()
    variants = [
        (sets, cut, form) for sets in (SCORES, OTHER) for cut in (3, 4) for form in OUTPUT_FORMATS
    ]
    for place, (scores, cut, form) in enumerate(variants):
        publish(tmp_path / str(place), scores, rows_per_part=cut, output_format=form)
        hashes.add(min(parts(tmp_path / str(place)))[7:23])
        contents.add(read_ledger(str(tmp_path / str(place)))["content"])
    assert len(hashes) == 12  # OTHER has one row, cut nowhere
    assert len(contents) == 2


def test_nothing_of_place_key_host_or_bundles_is_in_a_release(tmp_path):
    key = bytes(range(32))
    plan = NgramsPlan(epsilon=10, delta=1e-4, max_length=2, max_contributions=2)
    for place, repeat in (("canaryPath", 0), ("elsewhere", 2)):
        with beam.Pipeline(runner=FnApiRunner(bundle_repeat=repeat)) as pipeline:
            documents = pipeline | beam.Create([(f"canaryUser{i}", "Good day") for i in range(99)])
            transform = PrivateNgrams(plan=plan, run_key=RunKey(key), partitions=3)
            _ = documents | transform | WriteRelease(output=str(tmp_path / place))
    release = files(tmp_path / "canaryPath")
    assert release == files(tmp_path / "elsewhere")
    # Noise may have put others there.
    assert {"good", "day", "good day"} <= {row[1] for row in rows_of(tmp_path / "canaryPath")}
    text = " ".join(release) + b"\n".join(release.values()).decode()
    for secret in ("canary", str(tmp_path), os.getcwd(), socket.gethostname(), key.hex()):
        assert secret.lower() not in text.lower()


# The overwrite protocol


def foreign(folder):
    """Files beside a release that are nobody's business."""
    names = (
        *("notes.txt", ".hidden", "ngrams-mine.jsonl", ".ledger.json.tmp-1", "sub/ledger.json"),
        "ngrams-0123456789abcdef-00000-of-00001.xml",
    )
    for name in names:
        path = pathlib.Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return {name: name.encode() for name in names}


def test_another_release_is_replaced_only_by_overwriting_and_nothing_else_is(tmp_path):
    others = foreign(tmp_path)
    publish(tmp_path, rows_per_part=1)
    before = files(tmp_path)
    with pytest.raises(ReleaseError, match="is a release already; choose another directory"):
        publish(tmp_path, OTHER)
    assert files(tmp_path) == before
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
        read_release(str(tmp_path))
    publish(tmp_path, rows_per_part=2)
    assert files(tmp_path) == whole


@pytest.mark.parametrize("ledger_came", [False, True])
def test_an_overwrite_that_was_killed_leaves_one_whole_release(tmp_path, ledger_came):
    first, second = (OTHER, SCORES) if ledger_came else (SCORES, OTHER)
    folder = tmp_path / "old"
    publish(folder, first)
    publish(new := tmp_path / "new", second)
    for name, data in parts(new).items():
        (folder / name).write_bytes(data)
        (folder / f".{name}.tmp-{'2' * 32}").write_bytes(data[:3])
    assert len(rows_of(folder)) == len(first)
    publish(folder, OTHER, overwrite=True)
    assert rows_of(folder) == [(1, "c", 80.0)]
    publish(folder, OTHER, overwrite=True)
    assert len(files(folder)) == 2


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
    assert "could not be deleted" in caplog.text
    assert rows_of(tmp_path) == [(1, "c", 80.0)]


def test_a_ledger_of_somebody_else_is_never_replaced(tmp_path):
    (tmp_path / "ledger.json").write_text('{"debts": []}')
    with pytest.raises(ReleaseError, match=r"beam_dpne did not write.*Choose another"):
        check_output(str(tmp_path), overwrite=True)
    assert files(tmp_path) == {"ledger.json": b'{"debts": []}'}


# Full disks and other walls


@contextlib.contextmanager
def files_of_at_most(size):
    """The operating system refuses larger files; only the soft limit changes, and comes back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_failure_leaves_nothing_or_the_old_release_and_quotes_nothing(tmp_path):
    publish(tmp_path / "old")
    before = files(tmp_path)
    with files_of_at_most(40_000):
        for output in ("new/release", "old"):
            with pytest.raises(ReleaseError, match=os.strerror(errno.EFBIG)) as failure:
                publish(tmp_path / output, MANY, rows_per_part=1000, overwrite=True)
            assert "canary" not in str(failure.value)
    assert files(tmp_path) == before


def test_check_output_accepts_new_and_empty_directories_and_leaves_no_trace(tmp_path):
    check_output(str(tmp_path), overwrite=False)
    check_output(str(tmp_path / "a" / "b"), overwrite=False)
    assert list(tmp_path.iterdir()) == []


def test_check_output_wants_overwrite_where_files_are(tmp_path):
    publish(tmp_path / "release")
    others = foreign(tmp_path / "other")
    with pytest.raises(ReleaseError, match=r"is a release already.*set `overwrite`"):
        check_output(str(tmp_path / "release"), overwrite=False)
    with pytest.raises(ReleaseError, match=r"is not empty.*set `overwrite`"):
        check_output(str(tmp_path / "other"), overwrite=False)
    check_output(str(tmp_path / "release"), overwrite=True)
    check_output(str(tmp_path / "other"), overwrite=True)
    assert files(tmp_path / "other") == others


def test_check_output_refuses_what_cannot_hold_a_release(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    for output in ("file", "file/below", "nowhere"):
        with pytest.raises(ReleaseError, match="`output` must be a directory that can be written"):
            check_output(str(tmp_path / output), overwrite=True)
        with pytest.raises(ReleaseError, match="cannot be published"):
            publish(tmp_path / output)
    with pytest.raises(ReleaseError, match="must be the path"):
        check_output("", overwrite=False)


@pytest.mark.parametrize(("mode", "below"), [(0o555, "new/er"), (0, "")])
def test_check_output_refuses_a_directory_without_permission(mode, below, tmp_path):
    publish(tmp_path)  # Whoever root becomes below may not read modules that are imported later.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, mode)
        output = os.path.join(folder, below)
        with without_privileges(), pytest.raises(ReleaseError, match=os.strerror(errno.EACCES)):
            check_output(output, overwrite=False)
        os.chmod(folder, 0o755)
        assert os.listdir(folder) == []


def test_names_that_look_like_globs_are_names(tmp_path):
    publish(tmp_path / "a1")
    before = files(tmp_path / "a1")
    for output in ("a[1]", "a*"):
        publish(tmp_path / output, rows_per_part=1)
        publish(tmp_path / output, OTHER, overwrite=True)
        assert rows_of(tmp_path / output) == [(1, "c", 80.0)]
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
    for output in ("counter://b/o", "counter://b/o", tmp_path):
        publish(output, rows_per_part=2)
    assert shelf == {f"counter://b/o/{name}": data for name, data in files(tmp_path).items()}
    assert rows_of("counter://b/o") == ROWS
    with pytest.raises(ReleaseError, match="is a release already"):
        check_output("counter://b/o", overwrite=False)


def test_an_object_store_is_overwritten_in_the_same_steps(shelf):
    shelf["counter://b/other/ngrams-0123456789abcdef-00000-of-00001.jsonl"] = b"other"
    publish("counter://b/o")
    before = dict(shelf)
    Shelf.capacity = sum(map(len, shelf.values())) + 1000
    with pytest.raises(ReleaseError, match="cannot be published in counter://b/o: ConnectionError"):
        publish("counter://b/o", MANY, overwrite=True, rows_per_part=10)
    assert shelf == before
    Shelf.capacity = 10**9
    publish("counter://b/o", OTHER, overwrite=True)
    assert rows_of("counter://b/o") == [(1, "c", 80.0)]
    assert len(shelf) == 3


def test_a_ledger_that_came_since_is_not_replaced(shelf, tmp_path):
    for output in ("counter://b/o", str(tmp_path)):
        directory = directory_at(output)
        assert directory.read("ledger.json") is None
        directory.put("ledger.json", b"another run's")
        with pytest.raises(ReleaseError, match="another run published in"):
            directory.replace("ledger.json", b"ours", seen=None)
        directory.replace("ledger.json", b"ours", seen=b"another run's")
        assert directory.read("ledger.json") == b"ours"


class Busy(dict):
    """Objects of a store at which something happens when one of them is written."""

    def __init__(self, then):
        super().__init__()
        self.then = then

    def __setitem__(self, path, data):
        super().__setitem__(path, data)
        self.then(super(), path)


def test_a_ledger_that_came_while_parts_were_written_is_not_replaced(monkeypatch):
    def another_run_publishes(objects, path):
        if "ngrams-" in path:
            objects.__setitem__("counter://b/o/ledger.json", b"another run's")

    monkeypatch.setattr(Shelf, "objects", Busy(another_run_publishes))
    with pytest.raises(ReleaseError, match="another run published in"):
        publish("counter://b/o", overwrite=True)
    assert Shelf.objects == {"counter://b/o/ledger.json": b"another run's"}


def test_a_store_whose_answer_is_lost_has_published(monkeypatch):
    def lose_the_answer(_, path):
        if path.endswith("ledger.json"):
            raise ConnectionError

    monkeypatch.setattr(Shelf, "objects", Busy(lose_the_answer))
    publish("counter://b/o")
    assert rows_of("counter://b/o") == ROWS


def test_a_store_that_is_gone_when_the_ledger_was_written_may_have_published(monkeypatch):
    """It has the ledger, and neither says so nor shows it."""

    class Gone(Busy):
        is_gone = False

        def __getitem__(self, path):
            if self.is_gone:
                raise ConnectionError
            return super().__getitem__(path)

    def lose_the_answer(_, path):
        if path.endswith("ledger.json"):
            objects.is_gone = True
            raise ConnectionError

    objects = Gone(lose_the_answer)
    monkeypatch.setattr(Shelf, "objects", objects)
    with pytest.raises(ReleaseError, match=r"not known whether .* is published.*ConnectionError"):
        publish("counter://b/o")
    objects.is_gone = False
    assert rows_of("counter://b/o") == ROWS


# Reading back


THREE = {"canary": 9.5, "tea": 8.25, "rye\tbread": 7.0}


@pytest.fixture(params=OUTPUT_FORMATS)
def folder(request, tmp_path):
    """A release in two parts."""
    form = {"output_format": request.param, "rows_per_part": 2}
    return releases.items(tmp_path / "release", THREE, **form)


def test_a_release_gives_its_ledger_and_its_rows(folder):
    release = read_release(str(folder))
    assert isinstance(release, Release)
    assert (release.path, release.program, release.num_rows) == (str(folder), "set-union", 3)
    assert release.ledger == json.loads((folder / "ledger.json").read_text())
    assert [part.rows for part in release.parts] == [2, 1]
    assert release.table().schema.equals(ITEM_SCHEMA)
    assert dict(release.to_pandas().itertuples(index=False, name=None)) == THREE
    assert "canary" not in repr(release)
    assert pa.table(release).equals(release.table())
    release.verify()


def test_a_stream_of_rows_reads_one_file_at_a_time(folder):
    release = read_release(str(folder))
    (folder / release.parts[1].name).unlink()
    stream = pa.RecordBatchReader.from_stream(release)
    assert len(stream.read_next_batch()) == 2
    with pytest.raises(pa.ArrowInvalid, match=r"incomplete: part items-.* is missing"):
        stream.read_next_batch()


@pytest.mark.parametrize("ending", ["", "/", "/ledger.json"])
def test_a_release_is_named_by_its_directory_or_its_ledger(folder, ending):
    assert read_release(f"{folder}{ending}").path == str(folder)


def test_a_relative_path_stays_one(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert read_release("ledger.json").path == "."
    assert len(read_release(".").table()) == 3


def test_a_missing_part_is_noticed_before_any_row_is_read_and_afterwards(folder):
    release = read_release(str(folder))
    (folder / release.parts[1].name).unlink()
    for read in (lambda: read_release(str(folder)), release.table, release.verify):
        with pytest.raises(ReleaseError, match=r"incomplete: part items-.* is missing"):
            read()


@pytest.mark.parametrize("change", [lambda data: data + b"\n", lambda data: b"canary"])
def test_every_byte_counts(folder, change):
    part = folder / read_release(str(folder)).parts[0].name
    part.write_bytes(change(part.read_bytes()))
    release = read_release(str(folder))
    assert release.num_rows == 3
    for read in (release.table, release.to_pandas, release.verify):
        with pytest.raises(ReleaseError, match=r"damaged: part .* has another SHA-256") as refusal:
            read()
        assert "canary" not in str(refusal.value)


def test_a_part_that_does_not_parse_is_not_quoted(tmp_path):
    folder = releases.items(tmp_path, THREE)
    ledger = json.loads((folder / "ledger.json").read_text())
    part = folder / ledger["parts"][0]["name"]
    part.write_bytes(data := part.read_bytes().replace(b"9.5", b'"9"'))
    ledger["parts"][0] |= releases.sums(data)
    (folder / "ledger.json").write_text(json.dumps(ledger))
    with pytest.raises(ReleaseError, match="cannot be read: ArrowInvalid") as refusal:
        read_release(str(folder)).table()
    assert "canary" not in str(refusal.value)


def test_without_a_whole_ledger_there_is_no_release(folder):
    ledger = (folder / "ledger.json").read_bytes()
    (folder / "ledger.json").write_bytes(ledger[: len(ledger) // 2])
    with pytest.raises(ReleaseError, match="is not a ledger of beam_dpne"):
        read_release(str(folder))
    (folder / "ledger.json").unlink()
    with pytest.raises(ReleaseError, match="does not exist: there is no release"):
        read_release(str(folder))
