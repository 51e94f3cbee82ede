"""Paths, globs and folders stand for files; options and inputs that cannot be are refused."""

import errno
import gzip
import json
import os
import pathlib
import tempfile
import zipfile
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.io.filesystem import FileMetadata
from apache_beam.io.localfilesystem import LocalFileSystem
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import yaml
from beam_dpne.errors import InputError
from beam_dpne.lists.known import KnownNgrams
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.lake_tables import refuse_lake_tables
from beam_dpne.reading.options import ReadOptions, format_of
from beam_dpne.reading.records import check_fields, plan_reads
from beam_dpne.reading.rejects import GROUPS_OF_LIST
from beam_dpne.reading.steps import ReadDocuments
from tests.reading.files import CANARY, read, write
from tests.support.arguments import refusal
from tests.support.files import without_privileges


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


class ShelfFileSystem(LocalFileSystem):
    """A remote file system with folders: local files under addresses shelf://."""

    @classmethod
    def scheme(cls) -> str:
        return "shelf"

    def join(self, basepath: str, *paths: str) -> str:
        return "/".join([basepath.rstrip("/"), *paths])

    def split(self, path: str) -> tuple[str, str]:
        folder, _, name = path.rpartition("/")
        return folder, name

    def _list(self, dir_or_prefix: str):
        for found in super()._list(dir_or_prefix.removeprefix("shelf:/")):
            yield FileMetadata(f"shelf:/{found.path}", found.size_in_bytes)

    def open(self, path: str, *arguments: Any, **settings: Any):
        return super().open(path.removeprefix("shelf:/"), *arguments, **settings)

    def exists(self, path: str) -> bool:
        return super().exists(path.removeprefix("shelf:/"))

    def metadata(self, path: str) -> FileMetadata:
        local = pathlib.Path(path.removeprefix("shelf:/"))
        return FileMetadata(path, local.stat().st_size if local.is_file() else 0)


class StrictFileSystem(ShelfFileSystem):
    """Fails if it is to list a folder that is not there, as that of Hadoop does."""

    @classmethod
    def scheme(cls) -> str:
        return "strict"

    def _list(self, dir_or_prefix: str):
        return iter(
            [FileMetadata(f"strict:/{each}", 1) for each in os.scandir(_local(dir_or_prefix))]
        )

    def exists(self, path: str) -> bool:
        return os.path.exists(_local(path))


class ClosedFileSystem(StrictFileSystem):
    """Has no folders, and fails if it is to list what has a certain name."""

    @classmethod
    def scheme(cls) -> str:
        return "closed"

    def has_dirs(self) -> bool:
        return False

    def _list(self, dir_or_prefix: str):
        if CANARY in dir_or_prefix:
            raise PermissionError(errno.EACCES, CANARY)
        return iter([])


def _local(path: str) -> str:
    return path.partition(":/")[2]


@pytest.mark.parametrize("scheme", ["", "shelf:/"])
@pytest.mark.parametrize("slash", ["", "/"])
def test_a_folder_stands_for_its_files_and_those_below(tmp_path, scheme: str, slash: str) -> None:
    line = '{"user":"%s","text":"t"}\n'
    write(tmp_path / "b.jsonl", line % "b")
    write(tmp_path / "a.ndjson.gz", gzip.compress((line % "a").encode()))
    for name in ("_SUCCESS", ".a.jsonl.crc", "._hidden", "_metadata"):
        write(tmp_path / name, CANARY)
    for below, name in (("deeper/still", "c"), ("_delta", "d"), (".cache/deeper", "e")):
        (tmp_path / below).mkdir(parents=True)
        write(tmp_path / below / f"{name}.jsonl", line % name)
    given = f"{scheme}{tmp_path}{slash}"
    names = [file.path.rpartition("/")[2] for file in match_inputs([given])]
    assert names == ["a.ndjson.gz", "b.jsonl", "c.jsonl"]
    assert read([given]) == ([("a", "t"), ("b", "t"), ("c", "t")], [])
    ReadDocuments(inputs=[given])


LAKES = {
    "Delta": "_delta_log/00000000000000000000.json",
    "Hudi": ".hoodie/hoodie.properties",
    "Iceberg": "metadata/v1.metadata.json",
}
BELOW = ["", "/", "/*.parquet", "/part-0.parquet", "/country=DE", "/*/*.parquet", "/c*/p*"]


@pytest.fixture
def lake(tmp_path):
    """A function that makes a folder with two Parquet files and another file; returns the folder."""

    def make(mark: str) -> pathlib.Path:
        table = tmp_path / "table"
        (table / mark).parent.mkdir(parents=True)
        write(table / mark, "{}")
        (table / "country=DE").mkdir()
        rows = pa.table({"user": ["ann"], "text": ["to be"], "ngram": ["to be"]})
        for name in ("part-0.parquet", "country=DE/part-1.parquet"):
            pq.write_table(rows, table / name)
        return table

    return make


@pytest.mark.parametrize("scheme", ["", "shelf:/"])
@pytest.mark.parametrize("below", BELOW)
@pytest.mark.parametrize("kind", LAKES)
def test_files_of_a_lake_table_are_refused(lake, scheme: str, below: str, kind: str) -> None:
    """Its files hold rows that were deleted, perhaps of erased people."""
    table = lake(LAKES[kind])
    if kind == "Delta" and not scheme and below in ("", "/"):
        # The library finds out whether it is one.
        below = "/part-0.parquet"
    with pytest.raises(InputError, match=f"of a {kind} table.*deleted.*Export"):
        match_inputs([f"{scheme}{table}{below}"])


@pytest.mark.parametrize("scheme", ["", "shelf:/"])
@pytest.mark.parametrize("kind", LAKES)
def test_a_folder_around_a_lake_table_is_refused(lake, tmp_path, scheme: str, kind: str) -> None:
    table = lake(LAKES[kind])
    (tmp_path / "lake" / "deeper").mkdir(parents=True)
    table.rename(tmp_path / "lake" / "deeper" / "table")
    with pytest.raises(InputError, match=f"files of a {kind} table, got files in .*/deeper/table"):
        match_inputs([f"{scheme}{tmp_path}/lake"])


def test_a_remote_folder_is_listed_a_few_times_however_many_folders_it_has(
    tmp_path, monkeypatch
) -> None:
    listed = []
    find = ShelfFileSystem.match
    monkeypatch.setattr(
        ShelfFileSystem, "match", lambda self, *given: listed.append(given) or find(self, *given)
    )
    counts = []
    for days in (1, 30):
        for day in range(days):
            folder = tmp_path / f"{days}/day={day}"
            folder.mkdir(parents=True)
            write(folder / "a.csv", "user,text\n")
        listed.clear()
        assert len(match_inputs([f"shelf:/{tmp_path}/{days}"])) == days
        counts.append(len(listed))
    assert counts[0] == counts[1]


def test_links_to_files_of_a_lake_table_are_refused_and_files_beside_one_are_not(
    lake, tmp_path
) -> None:
    table = lake(LAKES["Delta"])
    (tmp_path / "link.parquet").symlink_to(table / "part-0.parquet")
    (tmp_path / "folder").symlink_to(table / "country=DE")
    for name in ("link.parquet", "folder"):
        with pytest.raises(InputError, match="of a Delta table"):
            match_inputs([str(tmp_path / name)])
    (tmp_path / "metadata").mkdir()
    write(tmp_path / "metadata" / "notes.json", "{}")
    write(tmp_path / "a.csv", "user,text\n")
    assert len(match_inputs([str(tmp_path / "*.csv")])) == 1


def test_a_look_up_of_a_lake_table_that_fails_is_not_taken_for_none(tmp_path) -> None:
    """But a file system that fails to list what is not there says that nothing is there."""
    (tmp_path / "metadata").symlink_to("metadata")
    (tmp_path / CANARY / "metadata").mkdir(parents=True)
    (tmp_path / "unlisted").mkdir()
    (tmp_path / "unlisted" / "_delta_log").touch()
    closed = (str(tmp_path), f"closed:/{tmp_path}/{CANARY}", f"strict:/{tmp_path}/unlisted")
    for folder in closed:
        with pytest.raises(InputError, match=r"cannot be looked up .*deleted.* Try again"):
            refuse_lake_tables("input", [f"{folder}/part-0.parquet"])
    for folder in (f"strict:/{tmp_path}/{CANARY}", f"closed:/{tmp_path}"):
        refuse_lake_tables("input", [f"{folder}/part-0.parquet"])


def read_all(read_documents: beam.PTransform) -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    _ = pipeline | read_documents
    pipeline.run()


def test_every_face_refuses_a_lake_table(lake, cli, tmp_path) -> None:
    part = str(lake(LAKES["Hudi"]) / "part-0.parquet")
    given = ("--input", part, "--epsilon", 4, "--delta", 1e-6, "--output", tmp_path / "out")
    for command in (("ngrams",), ("check", "ngrams"), ("check", "set-union")):
        ended = cli(*command, *given)
        assert (ended.status, "of a Hudi table" in ended.err) == (2, True)
    with pytest.raises(InputError, match="`known` must not be files of a Hudi table"):
        KnownNgrams.from_table(part)
    for read_documents in (
        ReadDocuments(inputs=[part]),
        yaml.ReadDocuments(input=part),
    ):
        with pytest.raises(Exception, match="of a Hudi table"):
            read_all(read_documents)


@pytest.mark.parametrize("scheme", ["", "shelf:/"])
def test_a_folder_without_data_or_with_unknown_formats_is_refused(tmp_path, scheme: str) -> None:
    for name in ("_SUCCESS", ".hidden"):
        write(tmp_path / name, "user,text\n")
    with pytest.raises(FileNotFoundError, match="must name existing files"):
        match_inputs([f"{scheme}{tmp_path}"])
    write(tmp_path / "a.csv", "user,text\na,b\n")
    write(tmp_path / "b.txt", "user,text\n")
    files = match_inputs([f"{scheme}{tmp_path}"])
    with pytest.raises(InputError, match=r"b\.txt.*input_format"):
        check_fields(files, ReadOptions())
    check_fields(files, ReadOptions(input_format="csv"))


def test_one_empty_part_is_read_and_only_empty_ones_are_refused(tmp_path) -> None:
    write(tmp_path / "part-0.jsonl", "")
    with pytest.raises(InputError, match="`input` must have records"):
        check_fields(match_inputs([str(tmp_path)]), ReadOptions())
    write(tmp_path / "part-1.jsonl", '{"user": "ann", "text": "a"}\n')
    check_fields(match_inputs([str(tmp_path)]), ReadOptions())


@pytest.mark.parametrize(
    ("header", "found"), [("text,ann", "is absent"), ("user,user,text", "is there 2 times")]
)
def test_a_column_must_be_there_once(tmp_path, header: str, found: str) -> None:
    path = write(tmp_path / "a.csv", f"{header}\n")
    with pytest.raises(InputError, match=f"`user_field`.*{found}.*may be data"):
        check_fields(match_inputs([str(path)]), ReadOptions())


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize(
    ("name", "sign", "said"),
    [
        ("a.csv", ";", "semicolon"),
        ("a.csv", "\t", "tab"),
        ("a.csv", "|", "pipe"),
        ("a.tsv", ",", "comma"),
    ],
)
def test_a_header_of_one_field_names_the_delimiter_that_it_has(
    tmp_path, name: str, sign: str, said: str, quote: str
) -> None:
    """The delimiter is never taken without its option, and the option that is named reads the file."""
    lines = (("user", "text"), ("ann", "green tea"))
    text = "".join(sign.join(f"{quote}{each}{quote}" for each in line) + "\n" for line in lines)
    files = match_inputs([str(write(tmp_path / name, text))])
    with pytest.raises(InputError, match=f"separated by {said}s: set `delimiter={said}`.$") as told:
        check_fields(files, ReadOptions())
    assert "ann" not in str(told.value)
    quoting = "quoted" if quote else "auto"
    found = check_fields(files, ReadOptions(delimiter=said, quoting=quoting))
    assert found.texts.to_pylist() == ["green tea"]


@pytest.mark.parametrize(("sign", "said"), [(";", "semicolon"), ("\t", "tab"), ("|", "pipe")])
def test_a_delimiter_is_named_where_names_have_commas(tmp_path, sign: str, said: str) -> None:
    header = sign.join(["user", "text, long", "date"])
    files = match_inputs([str(write(tmp_path / "a.csv", f"{header}\n"))])
    options = {"user_field": "user", "text_field": "text, long"}
    with pytest.raises(InputError, match=f"separated by {said}s: set `delimiter={said}`.$"):
        check_fields(files, ReadOptions(**options))
    check_fields(files, ReadOptions(**options, delimiter=said))


@pytest.mark.parametrize("header", ["who,text;more", "who", '"who,text;more"'])
def test_a_delimiter_is_not_named_where_the_header_may_be_split_rightly(tmp_path, header) -> None:
    files = match_inputs([str(write(tmp_path / "a.csv", f"{header}\n"))])
    with pytest.raises(InputError, match="`user_field` must name a field") as told:
        check_fields(files, ReadOptions())
    assert "seems to be" not in str(told.value)


@pytest.mark.parametrize(
    ("coded", "named", "remedy"),
    [
        ("utf-16", "utf-8", "set `encoding=utf-16`"),
        ("utf-16-le", None, "set `encoding=utf-16-le`"),
        ("utf-16-be", "cp1252", "set `encoding=utf-16-be`"),
        ("utf-16-be", "utf-16", "set `encoding=utf-16-be`"),
        ("utf-32", None, "convert it to UTF-8"),
        ("utf-32-be", "utf-8", "convert it to UTF-8"),
        ("utf-8", "utf-16", "set `encoding=utf-8`"),
        ("utf-8-sig", "utf-16-le", "set `encoding=utf-8`"),
    ],
)
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.csv.gz"])
def test_an_encoding_that_the_first_bytes_show_is_advised(
    tmp_path, coded: str, named: str | None, remedy: str, name: str
) -> None:
    text = "user,text\n" + "ann,hällo there\n" * 9
    if name == "a.jsonl":
        text = '{"user": "ann", "text": "hällo there"}\n' * 9
    data = text.encode(coded)
    path = write(tmp_path / name, gzip.compress(data) if name.endswith(".gz") else data)
    with pytest.raises(InputError, match="whose first bytes show another") as told:
        check_fields(match_inputs([str(path)]), ReadOptions(encoding=named))
    assert remedy in str(told.value)


def test_bytes_of_records_that_a_condition_leaves_out_say_nothing_of_the_encoding(tmp_path) -> None:
    data = "ÿþ,good day,dk\n".encode("latin-1")
    files = match_inputs([str(write(tmp_path / "a.csv", data))])
    columns = ("user", "text", "country")
    options = ReadOptions(encoding="latin-1", columns=columns, where="country=se")
    assert check_fields(files, options).users.to_pylist() == []


@pytest.mark.parametrize(
    ("record", "settings", "told"),
    [
        ({"user": ["a"], "text": "b"}, {}, "`records` and `input_format=json`"),
        ({"user": {"id": "a"}, "text": "b"}, {}, "has a path, e.g. `user_field=user.id`"),
        ({"user": {"0": "a", "1": "b"}, "text": {"0": "c"}}, {}, "with one for each record"),
        (
            {"user": 1.5, "text": "b"},
            {},
            "name text, a whole number, a UUID, a date or a timestamp",
        ),
        (
            {"said": [{"user": "a", "text": "b"}]},
            {"user_field": "said[].user", "text_field": "said[].text"},
            "got `user_field='said[].user'`: user is a list, and a record has one user",
        ),
        (
            {"user": ["a"], "day": [1], "text": "b"},
            {"user_field": ("user", "day")},
            "got `user_field=user,day`: user is a list",
        ),
    ],
)
def test_a_user_that_is_none_is_refused_with_its_own_remedy(
    tmp_path, record: Any, settings: Any, told: str
) -> None:
    path = write(tmp_path / "a.jsonl", "\n".join([json.dumps(record)] * 3))
    with pytest.raises(InputError) as refused:
        check_fields(match_inputs([str(path)]), ReadOptions(**settings))
    assert told in str(refused.value)


def test_a_group_that_is_a_list_is_rejected_for_that(tmp_path) -> None:
    path = write(tmp_path / "a.jsonl", '{"user": "a", "text": "b", "group": ["c"]}')
    _, ((*_, reason),) = read([path], group_field="group")
    assert reason == GROUPS_OF_LIST


REMEDIES = (
    "the field within it",
    "one document for each",
    "to text before",
)


@pytest.mark.parametrize(
    ("column", "kind", "remedy"),
    [
        ("user", pa.struct([("id", pa.string())]), "the field within it"),
        ("user", pa.list_(pa.string()), "one document for each"),
        ("user", pa.bool_(), "to text before"),
        ("text", pa.struct([("body", pa.string())]), "the field within it"),
        ("text", pa.list_(pa.struct([("body", pa.string())])), "the field within it"),
        ("text", pa.list_(pa.int64()), "to text before"),
        ("text", pa.int64(), "to text before"),
    ],
)
def test_a_column_of_a_wrong_type_has_the_one_remedy_of_its_mistake(tmp_path, column, kind, remedy):
    columns = {name: pa.array(["a"]) for name in ("user", "text")} | {column: pa.nulls(1, kind)}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=rf"got [^ ]+ in '{column}'") as told:
        check_fields(match_inputs([str(tmp_path / "a.parquet")]), ReadOptions())
    assert [each for each in REMEDIES if each in str(told.value)] == [remedy]


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("none.csv", "there is no such file"),
        ("*.csv", "the glob matches none"),
        ("pipe", "it is a pipe or a device, which can be read only once"),
        ("/dev/null", "it is a pipe or a device, which can be read only once"),
        ("link.csv", "it is a link that leads to no file"),
        ("linked/a.csv", "it is a link that leads to no file"),
        ("empty", "the folder has no file"),
    ],
)
def test_inputs_that_are_no_files_are_refused(tmp_path, named: str, message: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    if named == "link.csv":
        (tmp_path / "link.csv").symlink_to(tmp_path / "gone.csv")
    (tmp_path / "empty").mkdir()
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "a.csv").symlink_to(tmp_path / "gone.csv")
    write(tmp_path / "linked" / "b.csv", "user,text\n")
    write(tmp_path / "empty" / "_SUCCESS", "")
    # A folder or a glob without one of its files would have no text of the users in that file.
    patterns = [named]
    if named == "linked/a.csv":
        patterns += ["linked", "linked/*.csv", "linked/**"]
    for pattern in patterns:
        with pytest.raises(
            FileNotFoundError, match=f"{named.strip('*')}: {message}".replace(".", "\\.")
        ):
            match_inputs([str(tmp_path / pattern)])


def test_the_line_that_tells_excel_the_delimiter_is_no_header(tmp_path) -> None:
    path = write(tmp_path / "a.csv", "sep=;\nuser;text\nann;to be\n")
    for given, said in ((None, r"line, and set `delimiter=semicolon`\."), ("semicolon", r"line\.")):
        with pytest.raises(InputError, match=f"Remove this {said}"):
            check_fields(match_inputs([str(path)]), ReadOptions(delimiter=given))


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b'{"user": "ann", "text": "to be"}\n', r"seems to be JSON: rename it, .* ends in \.jsonl"),
        (b'[\n {"user": "ann"}]', "seems to be JSON"),
        (b"PAR1\x15\x04\xff\xfe", r"one of Parquet: rename it, .* ends in \.parquet"),
    ],
)
def test_another_format_that_is_named_as_csv_is_told(tmp_path, first: bytes, said: str) -> None:
    (tmp_path / "a.csv").write_bytes(first)
    with pytest.raises(InputError, match=said) as told:
        check_fields(match_inputs([str(tmp_path / "a.csv")]), ReadOptions())
    assert "ann" not in str(told.value)


@pytest.mark.parametrize("named", ["", "a.csv"])
def test_an_unreadable_file_or_folder_is_an_error(named: str) -> None:
    with tempfile.TemporaryDirectory() as parent:
        os.chmod(parent, 0o755)
        folder = pathlib.Path(parent, "run")
        folder.mkdir()
        path = write(folder / "a.csv", "user,text\n")
        # Whatever is imported late is imported now: nobody may not even read Python's library.
        assert len(match_inputs([str(folder)])) == 1
        check_fields(match_inputs([str(path)]), ReadOptions())
        (path if named else folder).chmod(0)
        with without_privileges(), pytest.raises(InputError, match="Permission"):
            check_fields(match_inputs([os.path.join(folder, named)]), ReadOptions())


# Which formats an option belongs to; with others it is refused.
OF_TEXT = {"csv", "tsv", "json", "jsonl", "sequences"}
DELIMITED = {"csv", "tsv"}
OBJECTS = {"json", "jsonl", "parquet"}
FIELDS = DELIMITED | OBJECTS | {"mbox"}
EACH = OF_TEXT | {"parquet", "mbox"}
BELONGS: dict[str, tuple[Any, set[str]]] = {
    "user_field": ("who", FIELDS),
    "text_field": ("said", FIELDS),
    "normalize_users": (True, FIELDS),
    "record_is_user": (True, FIELDS),
    "encoding": ("ascii", OF_TEXT),
    "delimiter": ("pipe", DELIMITED),
    "quoting": ("quoted", DELIMITED),
    "columns": (["user", "text"], DELIMITED),
    "max_record_bytes": (1000, EACH),
    "records": ("list", {"json"}),
    "where": ("land=dk", FIELDS),
    "text_is_tokens": (True, OBJECTS),
    "group_field": ("land", FIELDS),
    "fields": (["land"], FIELDS),
    "block_bytes": (1000, EACH),
    "split_bytes": (1000, EACH),
}


def names_of_formats(kind: str) -> dict[str, Any]:
    """The name of a file of a format, and what says that it is of the format."""
    if kind == "sequences":
        return {"inputs": ["a.seq"], "input_format": "sequences"}
    return {"inputs": [f"a.{kind}"]}


@pytest.mark.parametrize("kind", sorted(EACH))
@pytest.mark.parametrize("option", sorted(set(ReadOptions.__dataclass_fields__) - {"input_format"}))
def test_an_option_is_for_the_formats_that_it_names(option: str, kind: str) -> None:
    value, own = BELONGS[option]
    refused = refusal(ReadDocuments, **names_of_formats(kind), **{option: value})
    assert (refused is None) == (kind in own), refused
    if refused is not None:
        assert option in refused


@pytest.mark.parametrize("named", ["csv", "tsv", "json", "jsonl", "parquet", "mbox", "seq"])
@pytest.mark.parametrize("kind", sorted(EACH))
def test_input_format_is_one_that_the_name_of_a_file_may_mean(kind: str, named: str) -> None:
    alike = ({"csv", "tsv"}, {"json", "jsonl"}, {kind, "seq"}, {kind})
    refused = refusal(ReadDocuments, inputs=[f"a.{named}"], input_format=kind)
    assert (refused is None) == any({kind, named} <= each for each in alike)


def test_options_of_one_format_leave_files_of_another_as_they_are(tmp_path) -> None:
    """Else JSON that is cut at commas would be many users of one person."""
    old = write(tmp_path / "old.csv", "bob,good day\n")
    new = write(tmp_path / "new.jsonl", '{"text": "note, 17", "user": "ann"}\n' * 2)
    for more in ({}, {"delimiter": "comma"}, {"quoting": "quoted"}, {"encoding": "ascii"}):
        rows, found = read([old, new], columns=["user", "text"], **more)
        assert (rows, found) == ([("ann", "note, 17")] * 2 + [("bob", "good day")], [])


def test_a_character_between_fields_is_not_for_csv_and_tsv_at_once(tmp_path) -> None:
    write(tmp_path / "a.csv", "user;text\nann;to be\n")
    write(tmp_path / "b.tsv", "user\ttext\nbob\tso; it is\n")
    files = match_inputs([str(tmp_path)])
    for wrong in ({"delimiter": "semicolon"}, {"quoting": "none"}):
        with pytest.raises(InputError, match="csv and tsv together"):
            check_fields(files, ReadOptions(**wrong))
        with pytest.raises(Exception, match="csv and tsv together"), beam.Pipeline() as pipeline:
            _ = pipeline | ReadDocuments(inputs=[str(tmp_path)], **wrong)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"inputs": []}, "at least one"),
    ({"inputs": "a.csv"}, "list"),
    ({"inputs": ["a.txt"]}, "jsonl, csv, tsv, parquet, mbox, sequences"),
    ({"inputs": ["a.parquet.gz"]}, "but for Parquet"),
    ({"inputs": ["a.csv.7z"]}, "Unpack an archive"),
    ({"inputs": ["book.xlsx"]}, "save a spreadsheet as CSV"),
    ({"input_format": "xml"}, "input_format='xml'"),
    ({"text_is_tokens": True}, "text_is_tokens"),
    ({"inputs": ["a"], "input_format": "tsv", "text_is_tokens": True}, "text_is_tokens"),
    ({"columns": ["user", "x"]}, "`text_field='text'` must stand once in `columns="),
    ({"columns": ["user", "user", "text"]}, "must stand once in `columns="),
    ({"user_field": "text"}, "each field once"),
    ({"user_field": ["a", "a"]}, "each field once"),
    ({"user_field": []}, "`user_field` must be"),
    ({"record_is_user": True, "user_field": "a"}, "`record_is_user` must be"),
    ({"record_is_user": True, "normalize_users": True}, "`record_is_user` must be"),
    ({"text_field": "a\tb"}, "without control characters"),
    ({"text_field": []}, "`text_field` must be"),
    ({"text_field": ["text", "text"]}, "each field once"),
    ({"text_field": ["text", ""]}, "without control characters"),
    ({"fields": "land"}, "fields must be"),
    ({"fields": ["user"]}, "each field once"),
    (
        {"inputs": ["a"], "input_format": "sequences", "fields": []},
        "`group_field`, `fields`, `where`, `normalize_users`",
    ),
    ({"max_record_bytes": 0}, "max_record_bytes=0"),
    *(({"delimiter": sign}, "`delimiter` must be") for sign in ('"', "\r", "\0", "", ",,", "é")),
    ({"quoting": "maybe"}, "`quoting` must be one of auto, quoted, backslash, none"),
]


@pytest.mark.parametrize(("settings", "message"), WRONG)
def test_wrong_parameters_fail_at_construction(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReadDocuments(**{"inputs": ["a.csv"], **settings})


def test_an_option_that_a_file_of_a_folder_excludes_is_refused_before_and_in_the_run(
    tmp_path,
) -> None:
    (file,) = match_inputs([str(write(tmp_path / "a.csv", "user,text\n"))])
    options = ReadOptions(text_is_tokens=True)
    for check in (lambda: check_fields([file], options), lambda: plan_reads(file, options)):
        with pytest.raises(InputError, match="without text_is_tokens"):
            check()


@pytest.mark.parametrize("first", ["[Content_Types].xml", "xl/workbook.xml", "mimetype"])
def test_a_workbook_that_is_named_as_text_is_told_to_be_one(tmp_path, first: str) -> None:
    path = str(tmp_path / "a.csv")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(first, "application/vnd.oasis.opendocument.spreadsheet")
    with pytest.raises(InputError, match=r"seems to be a workbook.* save its sheet as CSV"):
        check_fields(match_inputs([path]), ReadOptions())


def test_an_archive_without_a_format_in_its_name_is_told_a_name() -> None:
    with pytest.raises(InputError, match=r"after it, .* e\.g\. notes\.csv\.zip, got"):
        format_of("notes.zip")


@pytest.mark.parametrize("header", ["user, text", 'user, "text"'])
def test_a_blank_beside_a_name_of_the_header_is_told(tmp_path, header) -> None:
    path = str(write(tmp_path / "a.csv", f"{header}\na, see you\n"))
    with pytest.raises(InputError, match=r"with a blank beside it: take the blanks .* out"):
        check_fields(match_inputs([path]), ReadOptions())
