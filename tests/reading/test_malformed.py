"""Records that cannot be used are rejects at their place; nothing that is told of them holds text."""

import bisect
import codecs
import csv
import functools
import gzip
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_dpne.errors import InputError
from beam_dpne.reading import json_formats, rejects, text_formats
from beam_dpne.reading.files import WorkItem, guarded, match_inputs
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.records import Batch, batch_of, check_fields, plan_reads, read_item
from beam_dpne.reading.steps import ReadDocuments
from beam_dpne.reading.text_items import begun, parts_of
from tests.reading.files import CANARY, COMPRESS, listed, read, write

LATIN = CANARY.encode() + b"\xff"
JSON_FAULTS: list[tuple[bytes, str]] = [
    (f'{{"user": "a", "text": "{CANARY}"'.encode(), rejects.NOT_JSON),
    (f'{{"user": "{CANARY}", "text": "\\ud800"}}'.encode(), rejects.LONE_SURROGATE),
    (b'{"user": "a", "text": "x"}{"user": "b", "text": "y"}', rejects.NOT_JSON),
    (b'{"user": "a", "text": "' + LATIN + b'"}', rejects.NOT_DECODED),
    (b'{"user": "a", "text": "x", "other": "' + LATIN + b'"}', rejects.NOT_DECODED),
    (f'{{"user": "{CANARY}", "text": "{CANARY * 200}"}}'.encode(), rejects.TOO_LONG),
]
OBJECT_FAULTS: list[tuple[str, str]] = [
    (f'"{CANARY}"', rejects.NOT_OBJECT),
    ("null", rejects.NOT_OBJECT),
    (f'["{CANARY}", {{"b": 1}}]', rejects.NOT_OBJECT),
    (f'{{"text": "{CANARY}"}}', rejects.NO_USER),
    (f'{{"user": null, "text": "{CANARY}"}}', rejects.NO_USER),
    (f'{{"user": "", "text": "{CANARY}"}}', rejects.EMPTY_USER),
    (f'{{"user": 1.5, "text": "{CANARY}"}}', rejects.BAD_USER),
    (f'{{"user": 9007199254740992.0, "text": "{CANARY}"}}', rejects.BAD_USER),
    (f'{{"user": true, "text": "{CANARY}"}}', rejects.BAD_USER),
    (f'{{"user": "{CANARY}"}}', rejects.NO_TEXT),
    (f'{{"user": "{CANARY}", "text": null}}', rejects.NO_TEXT),
    (f'{{"user": "{CANARY}", "text": ["{CANARY}"]}}', rejects.BAD_TEXT),
]
DELIMITED_FAULTS: list[tuple[bytes, str]] = [
    (CANARY.encode(), rejects.RAGGED),
    (b"a," + CANARY.encode() + b",b", rejects.RAGGED),
    (b"a," + CANARY.encode() + b"\\,b", rejects.ESCAPED_DELIMITER),
    (b"," + CANARY.encode(), rejects.EMPTY_USER),
    (b"\\N," + CANARY.encode(), rejects.NO_USER),
    (b"NULL," + CANARY.encode(), rejects.NO_USER),
    (b"a," + CANARY.encode() * 200, rejects.TOO_LONG),
    (b"a," + LATIN, rejects.NOT_DECODED),
    (b"\xff," + CANARY.encode(), rejects.NOT_DECODED),
]
QUOTED_FAULTS: list[tuple[bytes, str]] = [
    (f'a,"{CANARY}" b'.encode(), rejects.NOT_CSV),
    (f'a,"{CANARY}" b,"c\nd,e"'.encode(), rejects.NOT_CSV),
    (f'a,"{CANARY * 60}\nb,{CANARY * 60}""\n\nc"'.encode(), rejects.TOO_LONG),
    (f'a,"{CANARY}\n",b'.encode(), rejects.RAGGED),
    (f'a, "{CANARY}, b"'.encode(), rejects.BLANK_BEFORE_QUOTE),
]
KINDS = {
    "jsonl": (b"", b'{"user":"u","text":"t"}\n'),
    "csv": (b"user,text\n", b"u,t\n"),
    "tsv": (b"user\ttext\n", b"u\tt\n"),
}


def faults_of(kind: str) -> list[tuple[bytes, str]]:
    if kind == "jsonl":
        return [*JSON_FAULTS, *((line.encode(), reason) for line, reason in OBJECT_FAULTS)]
    if kind == "csv":
        return [*DELIMITED_FAULTS, *QUOTED_FAULTS]
    return [(line.replace(b",", b"\t"), reason) for line, reason in DELIMITED_FAULTS]


@pytest.mark.parametrize("kind", KINDS)
def test_malformed_records_are_rejects_at_their_place_without_text(
    tmp_path, caplog, capfd, kind: str
) -> None:
    caplog.set_level(logging.DEBUG)
    data, good = KINDS[kind]
    expected = []
    for line, reason in faults_of(kind):
        expected.append((len(data), "byte", reason))
        data += line + b"\n" + good
    path = write(tmp_path / f"a.{kind}", data)
    for block_bytes in (64, 10_000):
        rows, found = read([path], max_record_bytes=1000, block_bytes=block_bytes)
        assert rows == [("u", "t")] * len(expected)
        assert found == expected
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        listed = str(tmp_path / "rejects")
        _ = pipeline | ReadDocuments(inputs=[str(path)], max_record_bytes=1000, rejects=listed)
    (written,) = (tmp_path / "rejects").iterdir()
    assert written.stat().st_mode & 0o777 == 0o600
    assert written.read_text().count("\n") == len(expected)
    for text in (written.read_text(), caplog.text, *capfd.readouterr()):
        assert CANARY not in text


# Quotes that backslashes escape


def escaped(text: str, *, doubles: bool) -> str:
    """A field as Spark writes it, or as MySQL does, which escapes backslashes, too."""
    text = text.replace("\\", "\\\\") if doubles else text
    return '"' + text.replace('"', '\\"') + '"'


@pytest.mark.parametrize("ending", COMPRESS)
@pytest.mark.parametrize("delimiter", ["comma", "semicolon", "tab"])
@pytest.mark.parametrize("after", ["\n", "\r", "\r\n", "DELIMITER", '"\n', '"\r', ""])
def test_a_file_whose_quotes_seem_escaped_by_backslashes_is_refused_unless_they_are_doubled(
    tmp_path, ending: str, delimiter: str, after: str
) -> None:
    sign = {"comma": ",", "semicolon": ";", "tab": "\t"}[delimiter]
    data = 'user,text\np,"C:\n' + CANARY + '\\"' + after.replace("DELIMITER", ",")
    data = data.replace(",", sign)
    path = write(tmp_path / f"a.csv{ending}", COMPRESS[ending](data.encode()))
    with pytest.raises(
        InputError, match=r"quote after a backslash.*`quoting=backslash`.*quoted"
    ) as caught:
        read([path], delimiter=delimiter)
    assert CANARY not in str(caught.value)
    if after in ("\n", "\r", "\r\n", ""):
        rows, _ = read([path], delimiter=delimiter, quoting="quoted")
        assert rows == [("p", f"C:\n{CANARY}\\")]


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.text(alphabet='a,"\r\n\\', max_size=25), min_size=1, max_size=4),
    st.booleans(),
    st.sampled_from([12, 30, 1000]),
)
def test_no_text_with_escaped_quotes_becomes_a_record_of_another_user(
    tmp_path_factory, texts: list[str], doubles: bool, limit: int
) -> None:
    lines = [f"u{i},{escaped(text, doubles=doubles)}\n" for i, text in enumerate(texts)]
    path = write(tmp_path_factory.mktemp("file") / "a.csv", "".join(["user,text\n", *lines]))
    if doubles or not any("\\" in text for text in texts):
        rows, found = read([path], max_record_bytes=limit, quoting="backslash")
        kept = [i for i, line in enumerate(lines) if len(line.encode()) <= limit + 2]
        assert [user for user, _ in rows] == [f"u{i}" for i in kept]
        assert [reason for *_, reason in found] == [rejects.TOO_LONG] * (len(texts) - len(kept))
        assert [text for _, text in rows] == [texts[i] for i in kept]
    try:
        rows, _ = read([path], max_record_bytes=limit)
    except InputError:
        return
    assert {user for user, _ in rows} <= {f"u{i}" for i in range(len(texts))}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('a,"say \\"yes\\", or"', 'say "yes", or'),
        ('a,"C:\\\\"', "C:\\"),
        ('a,"C:\\new"', "C:\\new"),
        ("a,C:\\new\\", "C:\\new\\"),
        ('a,"one\\\ntwo\r\nthree"', "one\\\ntwo\r\nthree"),
        ('"a","x"', "x"),
        ("a,", ""),
        ('a,""', ""),
        ('a,5" pipe', '5" pipe'),
        ('a,"text" behind', rejects.NOT_CSV),
        ("a,b,c", rejects.RAGGED),
        ("\\N,b", rejects.NO_USER),
    ],
)
@pytest.mark.parametrize("block_bytes", [1, 1000])
def test_quotes_that_backslashes_escape_are_read_if_that_is_said(
    tmp_path, line: str, expected: str, block_bytes: int
) -> None:
    data = f'"user","text"\n"p","\\"q\\""\n\n{line}\r\nz,last'
    path = write(tmp_path / "a.csv", data)
    rows, found = read([path], quoting="backslash", block_bytes=block_bytes)
    documents = {row[0]: row[1] for row in rows}
    assert (documents["p"], documents["z"]) == ('"q"', "last")
    assert [documents.get("a"), *(reason for *_, reason in found)].count(expected) == 1
    with pytest.raises(InputError, match="ends inside a quoted field"):
        read([write(tmp_path / "b.csv", data + '\ny,"open\\"')], quoting="backslash")


@pytest.mark.parametrize("before", range(16))
def test_a_cut_between_a_backslash_and_its_quote_ends_no_field(tmp_path, before: int) -> None:
    """Of a record that is too long, its lines are read in pieces."""
    long = 'a,"' + "x" * before + '\\"yyyyyyyyyyyyyyyy\nfake,b\n"\n'
    path = write(tmp_path / "a.csv", f"user,text\n{long}z,last\n")
    rows, found = read([path], quoting="backslash", max_record_bytes=12)
    assert rows == [("z", "last")]
    assert [reason for *_, reason in found] == [rejects.TOO_LONG]


@pytest.mark.parametrize("text", ['say ""hi"" now\nvic,mine', 'doubled ""', '""'])
def test_a_file_whose_quotes_are_doubled_is_not_read_as_one_with_backslashes(
    tmp_path, text
) -> None:
    """The text of one user, here of ann, would become a record of another."""
    path = write(tmp_path / "a.csv", f'user,text\nann,"{text}"\nbob,x\n')
    with pytest.raises(InputError, match="quoting=quoted"):
        read([path], quoting="backslash", max_record_bytes=99)
    assert read([path], quoting="quoted")[0] == [("ann", text.replace('""', '"')), ("bob", "x")]


CSV_PIECES = [
    *["ann,hello\n", 'bob,"a ""b"" c"\n', '"cy","line\nann,x"\r\n', "dan,é"] * 3,
    *["eve,hi,\udc80\n", "eve,hi,there\n", "\ufeff", "\ufeff", "x" * 11, "x" * 30],
    *['"', '""', ",", "\n", "\r", "\r", "\r\n", "a", "\\", '\\"', "\udc80", "NULL,x\n"],
]


def one_by_one(item: WorkItem, options: ReadOptions) -> Iterator[Batch]:
    """Reads a text without cutting it into pieces."""
    with guarded(item.file.path), begun(item, options) as (text, names):
        for part in parts_of(text, item, names, options):
            yield batch_of(part, item.file.path, options)


def read_or_error(reader: Callable[..., Any]) -> tuple[Any, str]:
    try:
        return reader(), ""
    except InputError as error:
        return None, str(error)


@given(
    st.lists(st.sampled_from(CSV_PIECES), max_size=30),
    st.sampled_from([1, 20, 40, 10**6]),
    st.sampled_from([12, 25, 60, 10**6]),
    st.sampled_from(["auto", "quoted"]),
    st.sampled_from(["user,text", "text,user", "user,text,other"]),
)
@settings(max_examples=800, deadline=None)
def test_csv_that_is_cut_is_read_as_one_record_after_the_other(
    tmp_path_factory, pieces, block_bytes, max_record_bytes, quoting, header
) -> None:
    """Whatever stands in quotes, or behind them, and however small the pieces are."""
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    content = f"{header}\n" + "".join(pieces)
    path.write_bytes(content.encode(errors="surrogateescape"))
    given = {
        "block_bytes": block_bytes,
        "max_record_bytes": max_record_bytes,
        "quoting": quoting,
    }
    found = read_or_error(lambda: read([path], **given))
    options = ReadOptions(**given)
    assert found == read_or_error(lambda: listed([path], options, one_by_one))


def test_where_csv_is_cut_changes_no_record(tmp_path) -> None:
    """Bytes of a column that nobody asks for, a mark before a user, and a line as long as may be."""
    for content, more in (
        (b"user,text,city\nbob,hi,\xff\n", {}),
        (b"user,text\n\xef\xbb\xbfbob,hi\n", {}),
        (b"text,user\nhi,al\n\xef\xbb\xbfsecret,bob\n", {"block_bytes": 1}),
        (b"user,text\na,zzzzzzzzzzz\rbob,xxxxxxxxxxal,pwn\n", {"max_record_bytes": 12}),
    ):
        path = write(tmp_path / "a.csv", content)
        assert read([path], **more) == listed([path], ReadOptions(**more), one_by_one), content


GOOD = b'{"user":"u","text":"t"}'
PIECES = [
    *[GOOD + b"\n"] * 4,
    *[b"\n"] * 4,
    *[GOOD, GOOD + b"\r"],
    b'{"user":7,"text":"\xc3\xa9\xf0\x9f\x98\x80"}\r\n',
    b'{"user":"u","text":"t","x":[{}',
    b'{"user":"u","text":"t","x":{}\n}\n',
    b'{"user":"u","text":"t","x":\n{}}\n',
    GOOD * 2 + b"\n",
    b'{"user":"u","text":"t","x":"{}',
    b'{"user":"u",',
    b'"text":"t"}',
    b'{"user":1.5,"text":"t"}\n',
    b'{"user":"u","text":"' + b"x" * 60 + b'"}\n',
    *(sign.encode() for sign in '{}[]",: \r\x0b\u2028\ufeff'),
    b"\xff",
]


@settings(max_examples=600, deadline=None)
@given(
    st.lists(st.sampled_from(PIECES), max_size=20).map(b"".join),
    st.sampled_from([40, 90, 1000]),
    st.integers(1, 2000),
    st.integers(1, 90),
)
def test_lines_that_are_read_together_give_what_each_gives(
    tmp_path_factory, data: bytes, limit: int, block_bytes: int, split_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("file")
    # Blank lines keep the reader from taking several lines at once.
    mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    spaced = mark + b"\n" + data[len(mark) :].replace(b"\n", b"\n\n")
    expected = read([write(folder / "spaced.jsonl", spaced)], max_record_bytes=limit)
    path = write(folder / "a.jsonl", data)
    for sizes in ({}, {"block_bytes": block_bytes}, {"split_bytes": split_bytes}):
        rows, found = read([path], max_record_bytes=limit, **sizes)
        assert (rows, [(at + 1 + data[:at].count(b"\n"), *rest) for at, *rest in found]) == expected


def test_borders_of_lines_are_borders_of_records(tmp_path) -> None:
    """Three lines with three records in all, of which one goes over two lines."""
    over = '{"user": "a", "text": "b", "x":\n{"y": 1}}\n'
    two = '{"user": "c", "text": "d"} {"user": "e", "text": "f"}\n'
    path = write(tmp_path / "a.jsonl", (over + two).encode())
    (file,) = match_inputs([str(path)])
    (item,) = plan_reads(file, ReadOptions())
    assert sum(len(batch.rejects) for batch in read_item(item, ReadOptions())) == 3


def test_whether_a_deep_record_is_read_does_not_depend_on_others(tmp_path) -> None:
    def is_rejected(depth: int, beside: bytes) -> bool:
        deep = b'{"user":"deep","text":"t","x":%s%s}\n' % (b"[" * depth, b"]" * depth)
        rows, _ = read([write(tmp_path / "a.jsonl", deep + beside)], max_record_bytes=10**6)
        return ("deep", "t") not in rows

    depths = {
        bisect.bisect_left(range(100_000), True, key=functools.partial(is_rejected, beside=beside))
        for beside in (b"", GOOD, b"{}", b"\xff")
    }
    # The record itself is one level, and brackets in texts are none.
    assert depths == {500}
    text = b'{"user":"deep","text":"%s","x":"%s"}\n' % (b"[" * 900, b'\\"[' * 900)
    rows, _ = read([write(tmp_path / "b.jsonl", text + b"{}")])
    assert [row[0] for row in rows] == ["deep"]


GROUPS: list[tuple[Any, str]] = [
    ("dk", ""),
    ("New Zealand =1", ""),
    ("x" * 256, ""),
    ("", rejects.NO_GROUP),
    ("a\tb", rejects.BAD_GROUP),
    ("a\x1fb", rejects.BAD_GROUP),
    ("a\n", rejects.BAD_GROUP),
    ("x" * 257, rejects.BAD_GROUP),
]


@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "parquet"])
def test_records_with_a_wrong_group_are_rejects(tmp_path, kind: str) -> None:
    cases = [*GROUPS, *([(None, rejects.NO_GROUP)] if kind != "csv" else [])]
    if kind.startswith("json"):
        cases += [(7, ""), (1.5, rejects.BAD_GROUP), (True, rejects.BAD_GROUP)]
    rows = [{"user": "u", "text": CANARY, "group": group} for group, _ in cases]
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif kind == "csv":
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([rows[0].keys(), *(row.values() for row in rows)])
    else:
        lines = map(json.dumps, rows)
        write(path, "\n".join(lines) if kind == "jsonl" else f"[{','.join(lines)}]")
    found, faults, groups = [], [], []
    options = ReadOptions(group_field="group")
    for file in match_inputs([str(path)]):
        for item in plan_reads(file, options):
            for batch in read_item(item, options):
                found += batch.documents.column("text").to_pylist()
                groups += batch.documents.column("group").to_pylist()
                faults += [reason for _, reason in batch.rejects]
    assert groups == [str(group) for group, reason in cases if not reason]
    assert faults == [reason for _, reason in cases if reason]
    assert found == [CANARY] * len(groups)


def test_a_file_without_the_group_field_is_refused(tmp_path) -> None:
    for path in (
        write(tmp_path / "a.csv", "user,text\nu,t\n"),
        write(tmp_path / "a.jsonl", '{"user":"u","text":"t"}\n'),
    ):
        with pytest.raises(InputError, match="`group_field` must name a field"):
            check_fields(match_inputs([str(path)]), ReadOptions(group_field="country"))
    with pytest.raises(
        InputError, match="must be read without `user_field`, `text_field`, `group_field`"
    ):
        ReadOptions(group_field="country", input_format="sequences")


def test_stray_quotes_within_a_field_are_text(tmp_path) -> None:
    data = 'user,text\na,5" pipe\nb,"x ""y"" z"\nc,6" and 7"\ne,"1\n2"\nh,\n'
    rows = [("a", '5" pipe'), ("b", 'x "y" z'), ("c", '6" and 7"'), ("e", "1\n2"), ("h", "")]
    assert read([write(tmp_path / "a.csv", data)], block_bytes=3) == (rows, [])
    data = 'user\ttext\na\t"x"\nb\ty"\n'
    assert read([write(tmp_path / "a.tsv", data)])[0] == [("a", '"x"'), ("b", 'y"')]


@pytest.mark.parametrize("block_bytes", [1, 10_000])
def test_elements_of_an_array_that_cannot_be_used_are_rejects_by_number(
    tmp_path, block_bytes: int
) -> None:
    cases = OBJECT_FAULTS
    good = '{"user":"u","text":"t"}'
    data = ",\n".join(f"{good}, {bad}" for bad, _ in cases)
    path = write(tmp_path / "a.json", f"[{data}]")
    rows, found = read([path], block_bytes=block_bytes)
    assert rows == [("u", "t")] * len(cases)
    assert found == [(2 * i + 1, "row", reason) for i, (_, reason) in enumerate(cases)]


GOOD_ONES = [b'{"user":"v","text":"w"}', b'{"user":"x","text":"[\\"\\\\"}']
# A record, and its document or the reason why it has none.
ODD_RECORDS: list[tuple[bytes, tuple[str, str] | str]] = [
    (b'{"user":"a","text":"b","x":NaN,"y":-Infinity}', ("a", "b")),
    (b'{"user":"a","text":"b","x":%s}' % (b"9" * 5000), ("a", "b")),
    (b'{"user":"a","text":"b","x":1e999}', ("a", "b")),
    (b'{"user":"a","text":"b","x":"\\ud83d"}', ("a", "b")),
    (b'{"user":"a","text":"b","\\ude00":1}', ("a", "b")),
    (b'{"user":"z","text":"y","user":"a","text":"b"}', ("a", "b")),
    (b'{"user":NaN,"text":"b","user":7.0}', ("7", "b")),
    (b'{"user":"a","text":"b","x":[[{}],"]},{\\\\\\""]}', ("a", "b")),
    (b'\n {"user" : "a",\t"text":"b"}\r\n', ("a", "b")),
    (b'{"user":"a","text":"cut \\ud83d"}', rejects.LONE_SURROGATE),
    (b'{"user":"a","text":"cut \\ude00"}', rejects.LONE_SURROGATE),
    (b'{"user":"\\ude00\\ud83d","text":"b"}', rejects.LONE_SURROGATE),
    (b'{"user":"a","text":NaN}', rejects.NO_TEXT),
    (b'{"user":NaN,"text":"b"}', rejects.NO_USER),
    (b'{"user":Infinity,"text":"b"}', rejects.BAD_USER),
    (b'{"user":%s,"text":"b"}' % (b"9" * 5000), rejects.BAD_USER),
    (b'{"user":"a","text":"%s"}' % (b"x" * 10_000), rejects.TOO_LONG),
    (b'{"user":"a","text":"\xff"}', rejects.NOT_DECODED),
    (b'{"user":"a","text":"b","x":"\xff"}', rejects.NOT_DECODED),
    (b'{"user":"a","text":"b","x":%s%s}' % (b"[" * 500, b"]" * 500), rejects.TOO_DEEP),
]


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
@pytest.mark.parametrize(("record", "expected"), ODD_RECORDS)
def test_one_odd_record_of_json_fails_alone_and_alike_in_lines_arrays_and_lists(
    tmp_path, monkeypatch, record: bytes, expected: Any, mark: bytes
) -> None:
    first, last = GOOD_ONES
    documents = [("v", "w"), expected, ("x", '["\\')]
    usable = [document for document in documents if isinstance(document, tuple)]
    lines = b"\n".join([first, b" ".join(record.split()), last])
    rows, found = read([write(tmp_path / "a.jsonl", mark + lines)], max_record_bytes=9000)
    assert rows == usable
    assert [reason for *_, reason in found] == [each for each in documents if isinstance(each, str)]
    array = b" [%b\n]\n" % b", ".join([first, record, last])
    around = (
        b'{"x":{"y":["]",{}],"z":1},"\\ud83d":"{","s.t" : %b,"u":[{"s.t":[7]}]}\n{"s":{"t":[]}}'
    )
    path = write(tmp_path / "a.json", mark + array)
    listed = write(tmp_path / "b.json", mark + around % array)
    # Whatever stands at the border of two pieces of the text.
    for piece in (1, 2, 3, 7, 32768):
        monkeypatch.setattr(text_formats, "PIECE", piece)
        monkeypatch.setattr(json_formats, "PIECE", piece)
        for file, name in ((path, None), (listed, "s.t"), (path, "[]")):
            rows, found = read([file], max_record_bytes=9000, records=name)
            assert rows == usable
            assert found == [(1, "row", each) for each in documents if isinstance(each, str)]


@pytest.mark.parametrize("value", [b"9" * 2**15, b"[" * 2**15, b'{"a":' * 2**13])
def test_odd_values_around_a_list_are_met_before_it_is_named(tmp_path, value: bytes) -> None:
    path = write(tmp_path / "a.json", b'{"s":[{"user":"a","text":"b"}],"x":%b' % value)
    with pytest.raises(InputError, match="one object that has a list"):
        check_fields(match_inputs([str(path)]), ReadOptions())


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_binary()])
def test_a_text_or_user_that_is_not_utf8_is_one_reject(tmp_path, kind: pa.DataType) -> None:
    bad = pa.array([LATIN, b"ok", b"x"]).cast(pa.large_binary()).cast(pa.binary())
    bad = bad.view(kind) if kind == pa.string() else bad.cast(kind)
    path = tmp_path / "a.parquet"
    for columns, rows, reason in (
        ({"user": ["a", "b", "c"], "text": bad}, [("b", "ok"), ("c", "x")], rejects.NOT_DECODED),
        ({"user": bad, "text": ["a", "b", "c"]}, [("ok", "b"), ("x", "c")], rejects.BAD_USER),
    ):
        table = pa.table({**columns, "role": ["x", "x", "x"]})
        pq.write_table(table, path)
        assert read([path]) == (rows, [(0, "row", reason)])
        assert read([path], where="role=x") == (rows, [(0, "row", reason)])


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_what_is_not_utf8_in_a_list_or_a_condition_is_one_reject(tmp_path, kind: Any) -> None:
    bad = pa.array([b"ok", LATIN, b"x"], pa.binary())
    bad = bad.view(kind) if kind == pa.string() else bad
    lists = pa.ListArray.from_arrays([0, 1, 2, 3], bad.view(pa.string()))
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"user": ["a", "b", "c"], "text": lists, "role": bad}), path)
    found = [(1, "row", rejects.NOT_DECODED)]
    assert read([path], text_field="text[]") == ([("a", "ok"), ("c", "x")], found)
    assert read([path], text_is_tokens=True) == ([("a", ["ok"]), ("c", ["x"])], found)
    if kind == pa.string():
        where = {"user_field": "user", "text_field": "text[]", "where": "role=x"}
        assert read([path], **where) == ([("c", "x")], found)


@pytest.mark.parametrize(
    "data",
    [
        f'[{{"user":"a","text":"{CANARY}"}}',
        f'[{{"user":"a","text":"{CANARY}"}},',
        f'[{{"user":"a","text":"{CANARY}',
        f'[{{"user":"a","text":"{CANARY}}},{{"user":"b","text":"c"}}]',
        f'[{{"user":"a","text":"{CANARY}"}}, {{"user":"b"]',
        f'[{{"user":"a" "text":"{CANARY}"}}]',
        f'[{{"user":"a","text":"b"}}] {CANARY}',
        f'["a","{CANARY}"]\n["b","c"]\n',
        f'[{{"user":"a","text":"{CANARY}"}}}}, 1]',
        f'[{{"user":"a","text":"{CANARY}"}}}}',
        f'[{{"user":"a","text":"{CANARY}"}},]',
        f'[,{{"user":"a","text":"{CANARY}"}}]',
        "[}",
        "[",
    ],
)
def test_a_malformed_array_fails_the_run_without_text(tmp_path, data: Any) -> None:
    raw = data if isinstance(data, bytes) else data.encode()
    within = write(tmp_path / "b.json", b'{"s":%b}' % raw)
    with pytest.raises(InputError) as caught:
        read([within], records="s")
    assert CANARY not in str(caught.value)
    for path in (
        write(tmp_path / "a.json", raw),
        write(tmp_path / "a.json.gz", gzip.compress(raw)),
    ):
        with pytest.raises(
            InputError, match=r"a\.json.* is not a well-formed JSON array"
        ) as caught:
            read([path])
        assert CANARY not in str(caught.value)


@pytest.mark.parametrize("codec", [".gz", ".bz2", ".zst", ".xz", ".zip"])
def test_a_truncated_file_fails_the_run_by_name(tmp_path, codec: str) -> None:
    data = "".join(f'{{"user": {i}, "text": "{CANARY} {i}"}}\n' for i in range(3000)).encode()
    packed = COMPRESS[codec](data)
    for cut in (packed[: len(packed) // 2], packed[:-2], packed[:3], b"", data):
        path = write(tmp_path / f"a.jsonl{codec}", cut)
        with pytest.raises(InputError, match=r"a\.jsonl.* cannot be read") as caught:
            read([path])
        assert CANARY not in str(caught.value)


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
        write(tmp_path / "i.csv", f'"user","{CANARY}" x\n'),
        write(tmp_path / "j.csv", f'"user,{CANARY}\n'),
    ]
    for path in cases:
        with pytest.raises(InputError, match=path.name) as caught:
            read([path])
        assert CANARY not in str(caught.value)
    with pytest.raises(InputError, match=r"a\.csv") as caught, beam.Pipeline() as pipeline:
        _ = pipeline | ReadDocuments(inputs=[str(cases[0])])
    for text in (str(caught.value), caplog.text, *capfd.readouterr()):
        assert CANARY not in text


# Fields: an error names those that exist, and of lines that may be data those that are nearly right


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.tsv.gz", "a.parquet"])
def test_a_field_that_is_missing_is_named_before_the_run(tmp_path, name: str) -> None:
    path = tmp_path / name
    data = {
        "jsonl": b'{"who":1,"body":2}\n' * 2,
        "json": b'[{"who":1,"body":2},{"body":2,"who":3}]',
        "csv": b"who,body\n",
        "tsv": b"who\tbody\n",
    }
    if name == "a.parquet":
        pq.write_table(pa.table({"who": [1], "body": ["x"]}), path)
    else:
        raw = data[name.split(".")[1]]
        write(path, gzip.compress(raw) if name.endswith("gz") else raw)
    files = match_inputs([str(path)])
    named = "has the fields (body, who|who, body)" if "sv" not in name else "may be data"
    with pytest.raises(InputError, match=f"user_field='author'.*{named}"):
        check_fields(files, ReadOptions(user_field="author"))
    with pytest.raises(InputError, match=f"text_field='text'.*{named}"):
        check_fields(files, ReadOptions(user_field="who"))
    with pytest.raises(InputError, match=r"Did you mean body\?$") as caught:
        check_fields(files, ReadOptions(user_field="who", text_field=("Body", "note")))
    assert "who" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.csv", f"{CANARY},a {CANARY}\n"),
        ("a.csv", f"{CANARY};a {CANARY}\n"),
        ("a.csv", f"{CANARY}\n"),
        ("a.tsv", f"{CANARY}\ta {CANARY}\n"),
        ("a.jsonl", f'{{"{CANARY}": 1, "a {CANARY}": 1}}\n'),
        ("a.jsonl", f'{{"{CANARY}": 1}}\n{{"{CANARY}b": 1}}\n'),
        ("a.json", f"[7, {CANARY}]"),
    ],
)
@pytest.mark.parametrize("settings", [{}, {"user_field": "id"}])
def test_what_may_be_data_is_not_named(tmp_path, settings, name: str, data: str) -> None:
    """Whatever fields are wanted: neither a text, nor a word beside it."""
    path = write(tmp_path / name, data)
    named = r"may be data|columns|JSON|do not have|fields apart"
    with pytest.raises(InputError, match=named) as caught:
        check_fields(match_inputs([str(path)]), ReadOptions(**settings))
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("table", "settings", "message"),
    [
        ({"user": [True], "text": ["x"]}, {}, "bool in 'user'"),
        ({"user": [1], "text": [2]}, {}, "int64 in 'text'"),
        ({"user": [1], "text": [["x"]]}, {}, "need the tokenizer tokens"),
        ({"user": [1], "text": ["x"]}, {"text_is_tokens": True}, "another tokenizer than tokens"),
        (
            {"user": [1], "text": [[1]]},
            {"text_is_tokens": True},
            "list of texts, got list in 'text'",
        ),
        (
            {"user": [1], "text": ["x"], "z": [[1]]},
            {"fields": ["z"]},
            "Further fields must be text",
        ),
    ],
)
def test_wrong_parquet_types_are_named(tmp_path, table, settings, message: str) -> None:
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=message):
        check_fields(match_inputs([str(tmp_path / "a.parquet")]), ReadOptions(**settings))
    with pytest.raises(InputError, match=message):
        read([tmp_path / "a.parquet"], **settings)
