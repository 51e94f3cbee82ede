"""Files as people have them: encodings, delimiters, quotes, JSON arrays, several texts, folders."""

import codecs
import csv
import gzip
import io
import json
import pathlib
import re
import tracemalloc
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.io.filesystem import FileMetadata
from apache_beam.io.localfilesystem import LocalFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_dpne.errors import InputError
from beam_dpne.reading import rejects
from beam_dpne.reading.encodings import Encoding, canonical_encoding, encoding_of
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.headers import check_fields
from beam_dpne.reading.json_records import ArrayBorders, array_start
from beam_dpne.reading.options import InputDescription, ReadOptions
from beam_dpne.reading.records import BrokenText
from beam_dpne.reading.transform import ReadDocuments, plan_reads
from tests.reading.test_records import blocks_of, records_of
from tests.reading.test_transform import COMPRESS, Row, read, write

CANARY = "canary7f3a"
# Trail bytes of Shift JIS and Big5 may be a backslash, a pipe or a brace.
SIGNS = "ab ,;|\t\"'\\{}[]~é€ßñЖж ソ表ポ能功ム日本語·\u0085\u00a0😀"
CUTTABLE = ("utf-8", "utf-8-sig", "latin-1", "cp1252", "cp437", "koi8-r", "ascii")
STREAMED = (
    *("utf-16", "utf-16-le", "utf-16-be", "utf-32", "shift_jis", "cp932", "euc_jp"),
    *("gb18030", "big5", "cp037", "mac_arabic"),
)
DELIMITERS = {
    ",": "comma",
    ";": "semicolon",
    "\t": r"\t",
    "|": "pipe",
    "~": "~",
    "'": "'",
    " ": " ",
}


def signs_of(encoding: str) -> str:
    """The signs that the encoding has, and reads as it has written them."""

    def is_kept(sign: str) -> bool:
        data = f"a{sign}b".encode(encoding, "replace")
        return data.decode(encoding) == f"a{sign}b"

    return "".join(filter(is_kept, SIGNS))


@st.composite
def files(draw: st.DrawFn) -> tuple[str, bytes, dict[str, Any], list[Row]]:
    """A name, bytes, options, and the documents that were written."""
    encoding = draw(st.sampled_from(CUTTABLE + STREAMED))
    kind = draw(st.sampled_from(["jsonl", "json", "csv", "tsv"]))
    quoted = draw(st.booleans())
    signs = signs_of(encoding)
    delimiter = draw(st.sampled_from([sign for sign in DELIMITERS if sign in signs]))
    texts = st.text(alphabet=signs + ("\r\n" if quoted else ""), max_size=6)
    if kind in ("csv", "tsv") and not quoted:
        texts = texts.map(lambda text: text.replace(delimiter, ""))
    rows = draw(st.lists(st.tuples(st.sampled_from("uvw"), texts, texts), max_size=8))
    options: dict[str, Any] = {"text_field": ["text", "body"], "encoding": encoding}
    # Elsewhere the first bytes belong to a record, and a byte order mark of UTF-16 does not count.
    marked = ("utf-16", "utf-32") if kind in ("csv", "tsv") else ()
    if encoding in ("utf-8", "utf-8-sig", *marked) and draw(st.booleans()):
        del options["encoding"]
    if kind in ("csv", "tsv"):
        text = delimited(rows, delimiter, quoted)
        options |= {"delimiter": DELIMITERS[delimiter], "quoting": "quoted" if quoted else "none"}
    else:
        records = [dict(zip(("user", "text", "body"), row, strict=True)) for row in rows]
        lines = [json.dumps(record, ensure_ascii=False) for record in records]
        text = json_text(draw, records, lines) if kind == "json" else "\n".join(lines)
    documents = [(row[0], text) for row in rows for text in row[1:]]
    return f"a.{kind}", text.encode(encoding), options, documents


def delimited(rows: Sequence[Sequence[str]], delimiter: str, quoted: bool) -> str:
    out = io.StringIO(newline="")
    if quoted:
        writer = csv.writer(out, delimiter=delimiter, quoting=csv.QUOTE_ALL)
        writer.writerows([("user", "text", "body"), *rows])
        return out.getvalue()
    lines = [delimiter.join(row) for row in [("user", "text", "body"), *rows]]
    return "\n".join(lines)


def json_text(draw: st.DrawFn, records: list[Any], lines: list[str]) -> str:
    indent = draw(st.sampled_from([None, 2]))
    if draw(st.booleans()):
        return "\n".join(lines)
    return draw(st.sampled_from(["", " \n"])) + json.dumps(
        records, ensure_ascii=False, indent=indent
    )


@settings(max_examples=200, deadline=None)
@given(files(), st.sampled_from(sorted(COMPRESS)), st.integers(1, 80), st.integers(1, 80))
def test_files_are_read_as_they_were_written_however_they_are_split(
    tmp_path_factory, file, codec: str, block_bytes: int, split_bytes: int
) -> None:
    name, data, options, documents = file
    folder = tmp_path_factory.mktemp("file")
    path = write(folder / (name + codec), COMPRESS[codec](data))
    for sizes in ({}, {"block_bytes": block_bytes}, {"split_bytes": split_bytes}):
        assert read([path], **options, **sizes) == (documents, [])


# Encodings


@pytest.mark.parametrize("encoding", CUTTABLE)
def test_files_of_encodings_that_keep_ascii_are_split_by_bytes(tmp_path, encoding: str) -> None:
    path = write(tmp_path / "a.jsonl", b'{"user": "u", "text": "t"}\n' * 50)
    (file,) = match_inputs([str(path)])
    assert len(plan_reads(file, ReadOptions(encoding=encoding, split_bytes=100))) == 14


@pytest.mark.parametrize("encoding", STREAMED)
def test_files_of_other_encodings_are_one_piece_of_work(tmp_path, encoding: str) -> None:
    data = ('{"user": "u", "text": "t"}\n' * 50).encode(encoding)
    (file,) = match_inputs([str(write(tmp_path / "a.jsonl", data))])
    assert len(plan_reads(file, ReadOptions(encoding=encoding, split_bytes=100))) == 1


def test_a_file_with_a_byte_order_mark_of_utf16_is_one_piece_of_work(tmp_path) -> None:
    data = ("user,text\n" + "u,t\n" * 50).encode("utf-16")
    (file,) = match_inputs([str(write(tmp_path / "a.csv", data))])
    assert len(plan_reads(file, ReadOptions(split_bytes=100))) == 1


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
    ],
)
@pytest.mark.parametrize("is_told", [False, True])
def test_byte_order_marks_are_no_text(tmp_path, mark: bytes, encoding: str, is_told: bool) -> None:
    path = write(tmp_path / "a.csv", mark + "user,text\nann,né\n".encode(encoding))
    told = {"encoding": encoding} if is_told else {}
    check_fields(match_inputs([str(path)]), ReadOptions(**told))
    assert read([path], **told) == ([("ann", "né")], [])


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_without_a_mark_is_refused_with_its_name(tmp_path, encoding: str) -> None:
    path = write(tmp_path / "a.jsonl", f'{{"user":"{CANARY}","text":"t"}}'.encode(encoding))
    with pytest.raises(InputError, match=f"--encoding {encoding}") as caught:
        check_fields(match_inputs([str(path)]), ReadOptions())
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["base64", "rot13", "hex", "zlib", "nothing", "", "idna", "punycode", "a\0b"]
)
def test_codecs_that_are_not_of_text_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"got encoding={name!r}")):
        ReadOptions(encoding=name)


def test_names_of_one_encoding_are_one() -> None:
    assert {canonical_encoding(name) for name in ("L1", "latin-1", "ISO-8859-1")} == {"iso8859-1"}


def test_parquet_refuses_an_encoding(tmp_path) -> None:
    pq.write_table(pa.table({"user": ["a"], "text": ["b"]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="encoding must not be given for parquet"):
        ReadOptions(encoding="utf-8", input_format="parquet")
    files = match_inputs([str(tmp_path / "a.parquet")])
    with pytest.raises(InputError, match="encoding must not be given for parquet"):
        check_fields(files, ReadOptions(encoding="utf-8"))
    with pytest.raises(InputError, match="encoding must not be given for parquet"):
        plan_reads(files[0], ReadOptions(encoding="utf-8"))


LATIN = {
    "csv": (b"user,text\n", b"u%d,t\n", b"u,caf\xe9\n"),
    "tsv": (b"user\ttext\n", b"u%d\tt\n", b"u\tcaf\xe9\n"),
    "jsonl": (b"", b'{"user":"u%d","text":"t"}\n', b'{"user":"u","text":"caf\xe9"}\n'),
}


@pytest.mark.parametrize("kind", LATIN)
def test_records_of_latin1_are_rejects_that_name_the_remedy(tmp_path, kind: str) -> None:
    head, good, bad = LATIN[kind]
    data = head + good % 1 + bad + good % 2 + bad
    path = write(tmp_path / f"a.{kind}", data)
    at = len(head + good % 1)
    reason = rejects.NOT_UTF8_TEXT
    assert "--encoding" in reason
    assert read([path]) == (
        [("u1", "t"), ("u2", "t")],
        [(path.name, place, "byte", reason) for place in (at, len(data) - len(bad))],
    )
    rows = [("u1", "t"), ("u", "café"), ("u2", "t"), ("u", "café")]
    assert read([path], encoding="latin-1") == (rows, [])


def test_a_header_in_latin1_is_refused_with_the_remedy(tmp_path) -> None:
    path = write(tmp_path / "a.csv", "user,té\nu,a\n".encode("latin-1"))
    with pytest.raises(InputError, match="--encoding"):
        check_fields(match_inputs([str(path)]), ReadOptions(text_field="té"))
    assert read([path], text_field="té", encoding="latin-1") == ([("u", "a")], [])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["é", "\x81", "a,", '"', "x"]), min_size=1, max_size=9),
    st.integers(1, 60),
)
def test_bytes_that_the_encoding_lacks_reject_their_record_at_its_place_in_the_file(
    tmp_path_factory, texts: list[str], split_bytes: int
) -> None:
    lines = [json.dumps({"user": "u", "text": text}, ensure_ascii=False) for text in texts]
    data = "\n".join(lines).encode("latin-1")
    path = write(tmp_path_factory.mktemp("file") / "a.jsonl", data)
    starts = [len("\n".join([*lines[:place], ""])) for place in range(len(lines))]
    expected = [
        ("a.jsonl", start, "byte", rejects.NOT_DECODED)
        for start, text in zip(starts, texts, strict=True)
        if text == "\x81"
    ]
    for sizes in ({}, {"split_bytes": split_bytes}, {"block_bytes": split_bytes}):
        rows, faults = read([path], encoding="cp1252", **sizes)
        assert rows == [("u", text) for text in texts if text != "\x81"]
        assert faults == expected


@pytest.mark.parametrize("encoding", ["shift_jis", "euc_jp", "gb18030", "utf-16-le", "utf-16-be"])
def test_records_around_one_that_cannot_be_decoded_are_read(tmp_path, encoding: str) -> None:
    bad = {"utf-16-le": b"\x00\xd8", "utf-16-be": b"\xd8\x00"}.get(encoding, b"\xff")
    parts = ["user,text\nu,日\nu,", '\nu,"本""\n"\nv,語']
    data = bad.join(part.encode(encoding) for part in parts)
    path = write(tmp_path / "a.csv", data)
    # The place is that in the text as UTF-8.
    at = len("user,text\nu,日\n".encode())
    for block_bytes in (1, 3, 1000):
        rows, faults = read([path], encoding=encoding, block_bytes=block_bytes)
        assert rows == [("u", "日"), ("u", '本"\n'), ("v", "語")]
        assert faults == [("a.csv", at, "byte", rejects.NOT_DECODED)]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_text_without_the_mark_that_its_encoding_needs_is_refused(tmp_path, encoding: str) -> None:
    path = write(tmp_path / "a.csv", f"user,text\na,{CANARY}\n".encode())
    with pytest.raises(InputError, match=r"a\.csv cannot be decoded.*--encoding") as caught:
        read([path], encoding=encoding)
    assert CANARY not in str(caught.value)


def test_sequences_of_an_encoding_have_the_users_of_their_places_in_the_file(tmp_path) -> None:
    data = "é a\nß\n\nb é\n".encode("latin-1")
    path = write(tmp_path / "a.seq", data)
    for split_bytes in (1, 3, 100):
        rows, _ = read(
            [path], input_format="sequences", encoding="latin-1", split_bytes=split_bytes
        )
        assert [text for _, text in rows] == ["é a", "ß", "b é"]
        assert [int.from_bytes(user[8:], "little") for user, _ in rows] == [0, 4, 7]


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=4))
def test_the_first_bytes_alone_say_what_the_encoding_is(head: bytes) -> None:
    try:
        found = encoding_of(head, None)
    except BrokenText:
        assert b"\0" in head
        return
    assert found in (Encoding(), Encoding("utf-16", True), Encoding("utf-32", True))
    assert found.is_given == head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or (
        head == codecs.BOM_UTF32_BE
    )


# Delimiters and quotes


def test_semicolons_and_quoted_tsv_are_read(tmp_path) -> None:
    path = write(tmp_path / "a.csv", 'user;text\nann;"a;b"\n')
    assert read([path], delimiter=";") == ([("ann", "a;b")], [])
    path = write(tmp_path / "a.tsv", 'user\ttext\nann\t"a\tb ""c""\n"\n')
    assert read([path], quoting="quoted") == ([("ann", 'a\tb "c"\n')], [])
    path = write(tmp_path / "b.csv", 'user,text\nann,5" x\nbob,"y"\n')
    assert read([path], quoting="none") == ([("ann", '5" x'), ("bob", '"y"')], [])


def test_only_files_without_quoting_are_split(tmp_path) -> None:
    for kind, quoting, parts in (
        ("csv", "auto", 1),
        ("csv", "none", 5),
        ("tsv", "auto", 5),
        ("tsv", "quoted", 1),
    ):
        sign = {"csv": ",", "tsv": "\t"}[kind]
        path = write(tmp_path / f"a.{kind}", f"user{sign}text\n" + f"u{sign}text\n" * 10)
        (file,) = match_inputs([str(path)])
        assert len(plan_reads(file, ReadOptions(quoting=quoting, split_bytes=16))) == parts


@pytest.mark.parametrize("delimiter", ['"', "\r", "\n", "\0", "", ",,", "é", "tabs"])
def test_delimiters_that_cannot_be_are_refused(delimiter: str) -> None:
    with pytest.raises(ValueError, match="delimiter must be one ASCII character"):
        ReadOptions(delimiter=delimiter)


@pytest.mark.parametrize("given", [{"delimiter": ";"}, {"quoting": "none"}, {"quoting": "quoted"}])
def test_other_formats_refuse_delimiters_and_quoting(tmp_path, given: dict[str, str]) -> None:
    for kind in ("jsonl", "json", "parquet", "sequences"):
        with pytest.raises(ValueError, match="must be given for csv and tsv only"):
            ReadOptions(input_format=kind, **given)
    files = match_inputs([str(write(tmp_path / "a.jsonl", '{"user":"a","text":"b"}'))])
    with pytest.raises(InputError, match="must be given for csv and tsv only"):
        check_fields(files, ReadOptions(**given))
    with pytest.raises(InputError, match="must be given for csv and tsv only"):
        plan_reads(files[0], ReadOptions(**given))
    with pytest.raises(ValueError, match="quoting must be one of auto, quoted, none"):
        ReadOptions(quoting="maybe")


@pytest.mark.parametrize(
    ("data", "given"),
    [
        ('"user"\t"text"\n"u"\t"a"\n', {}),
        ('user\ttext\nu\t"a"\nv\t"b ""c"""\nw\td\n', {}),
        (f'u\t"{CANARY}"\n', {"columns": ["user", "text"]}),
        ('"user";"text"\n"u";"a"\n', {"delimiter": ";"}),
    ],
)
def test_tsv_in_quotes_is_refused_until_somebody_says_what_they_are(
    tmp_path, data: str, given: dict[str, Any]
) -> None:
    files = match_inputs([str(write(tmp_path / "a.tsv", data))])
    with pytest.raises(InputError, match=r"--quoting quoted .* --quoting none") as caught:
        check_fields(files, ReadOptions(**given))
    assert CANARY not in str(caught.value)
    check_fields(files, ReadOptions(quoting="quoted", **given))
    names = {"user_field": '"user"', "text_field": '"text"'} if data[0] == '"' else {}
    if not names:
        check_fields(files, ReadOptions(quoting="none", **given))


def test_a_reader_alone_refuses_a_tsv_header_in_quotes(tmp_path) -> None:
    path = write(tmp_path / "a.tsv", '"user"\t"text"\n"u"\t"a"\n')
    with pytest.raises(InputError, match="--quoting quoted"):
        read([path])
    assert read([path], quoting="quoted") == ([("u", "a")], [])


def test_some_texts_in_quotes_are_no_reason_to_refuse_tsv(tmp_path) -> None:
    path = write(tmp_path / "a.tsv", 'user\ttext\nu\t"a"\nv\tb\n')
    check_fields(match_inputs([str(path)]), ReadOptions())
    assert read([path]) == ([("u", '"a"'), ("v", "b")], [])


# JSON arrays

VALUES = st.recursive(
    st.none() | st.integers() | st.text(alphabet='a"\\[]{},: \n', max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(alphabet='a"\\]}', max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(max_examples=250, deadline=None)
@given(
    st.lists(VALUES, max_size=8),
    st.sampled_from([None, 0, 3, "\t"]),
    st.integers(1, 30),
    st.integers(1, 40),
)
def test_elements_are_the_same_in_any_blocks(
    values: list[Any], indent: Any, block_bytes: int, limit: int
) -> None:
    data = json.dumps(values, indent=indent).encode() + b" \n"
    text = data[array_start(data) :]
    found, too_long = records_of(blocks_of(text, ArrayBorders(), block_bytes))
    elements = [
        record.strip(b" \n\t").removesuffix(b"]" if at == last(found) else b",")
        for at, record in found
    ]
    assert [json.loads(element) for element in elements if element.strip()] == values
    assert too_long == []
    # A limit leaves the short ones.
    kept, passed = records_of(blocks_of(text, ArrayBorders(), block_bytes, limit))
    assert [(at, record) for at, record in kept if record.strip()] == [
        (at, record) for at, record in found if record.strip() and len(record) <= limit
    ]
    assert passed == [at for at, record in found if len(record) > limit]


def last(found: list[tuple[int, bytes]]) -> int:
    """Where the last element is; blanks after the array are a record without one."""
    return max((at for at, record in found if record.strip()), default=-1)


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
@pytest.mark.parametrize("indent", [None, 4])
def test_an_array_of_objects_is_read_wherever_it_is(tmp_path, name: str, indent) -> None:
    records = [{"user": "ann", "text": "a"}, {"user": 7, "text": 'b, ["c"] \\'}]
    data = json.dumps(records, indent=indent).encode()
    path = write(tmp_path / name, gzip.compress(data) if name.endswith("gz") else data)
    check_fields(match_inputs([str(path)]), ReadOptions())
    for sizes in ({}, {"block_bytes": 1}, {"split_bytes": 10}):
        assert read([path], **sizes) == ([("ann", "a"), ("7", 'b, ["c"] \\')], [])
    with pytest.raises(InputError, match="user_field='who'"):
        check_fields(match_inputs([str(path)]), ReadOptions(user_field="who"))


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_lines_of_objects_are_read_under_either_name(tmp_path, name: str) -> None:
    path = write(tmp_path / name, '{"user":"a","text":"x"}\n{"user":"b","text":"y"}\n' * 9)
    (file,) = match_inputs([str(path)])
    assert len(plan_reads(file, ReadOptions(split_bytes=100))) > 1
    assert read([path], split_bytes=100) == ([("a", "x"), ("b", "y")] * 9, [])


@pytest.mark.parametrize("data", ["[]", " [ \n ] \n", "", "\n", '[{"user":"u","text":"t"},]'])
def test_arrays_with_nothing_in_them_are_no_error(tmp_path, data: str) -> None:
    path = write(tmp_path / "a.json", data)
    check_fields(match_inputs([str(path)]), ReadOptions())
    assert read([path]) == ([("u", "t")] if "user" in data else [], [])


def test_elements_that_cannot_be_used_are_rejects_at_their_place(tmp_path) -> None:
    good = b'{"user":"u","text":"t"}'
    cases = [
        (b"7", rejects.NOT_OBJECT),
        (b'"x"', rejects.NOT_OBJECT),
        (b"null", rejects.NOT_OBJECT),
        (b'["a", {"b": 1}]', rejects.NOT_OBJECT),
        (b'{"user":"u","text":"a"] ', rejects.NOT_JSON),
        (b'{"user":"u" "text":"a"}', rejects.NOT_JSON),
        (b'{"user":"u"}', rejects.NO_TEXT),
        (b'{"text":"u"}', rejects.NO_USER),
        (b'{"user":"","text":"t"}', rejects.EMPTY_USER),
        (b'{"user":"u","text":"\xff"}', rejects.NOT_UTF8_TEXT),
        (b'{"user":"u","text":"' + b"x" * 300 + b'"}', rejects.TOO_LONG),
    ]
    data, expected = b"[" + good, []
    for bad, reason in cases:
        data += b",\n  "
        # The place of a record that is not held is where its element begins, blanks and all.
        at = len(data) - (3 if reason == rejects.TOO_LONG else 0)
        expected.append(("a.json", at, "byte", reason))
        data += bad + b" , " + good
    path = write(tmp_path / "a.json", data + b"]")
    for block_bytes in (1, 50, 10_000):
        rows, faults = read([path], block_bytes=block_bytes, max_record_bytes=200)
        assert rows == [("u", "t")] * (len(cases) + 1)
        assert faults == expected


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (f'[{{"user":"a","text":"{CANARY}"}}', "ends inside its JSON array"),
        (f'[{{"user":"a","text":"{CANARY}"}},', "ends inside its JSON array"),
        (f'[{{"user":"a","text":"{CANARY}', "ends inside its JSON array"),
        (f'[{{"user":"a","text":"{CANARY}"}}, {{"user":"b"', "ends inside its JSON array"),
        ("[", "ends inside its JSON array"),
        (f'[{{"user":"a","text":"b"}}] {CANARY}', "more text after the end"),
        (f'[{{"user":"a","text":"b"}}]\n[{{"user":"{CANARY}","text":"b"}}]', "more text after"),
        (f'["a","{CANARY}"]\n["b","c"]\n', "more text after the end"),
        (f'[{{"user":"a","text":"{CANARY}"}}}}, 1]', "a closing brace too many"),
    ],
)
@pytest.mark.parametrize("limit", [5, 1000])
def test_damaged_arrays_fail_the_run_without_their_text(
    tmp_path, data: str, message: str, limit: int
) -> None:
    for name, packed in (("a.json", data.encode()), ("a.json.gz", gzip.compress(data.encode()))):
        path = write(tmp_path / name, packed)
        for block_bytes in (1, 1000):
            with pytest.raises(InputError, match=rf"a\.json.* {message}") as caught:
                read([path], block_bytes=block_bytes, max_record_bytes=limit)
            assert CANARY not in str(caught.value)


@pytest.mark.parametrize("data", [f'{{"data": [\n{{"user": "{CANARY}"}}]}}', CANARY, "7\n8"])
def test_json_that_is_neither_array_nor_lines_is_refused(tmp_path, data: str) -> None:
    files = match_inputs([str(write(tmp_path / "a.json", data))])
    with pytest.raises(
        InputError, match=r"one JSON array of objects, or one JSON object on|lack"
    ) as caught:
        check_fields(files, ReadOptions())
    assert CANARY not in str(caught.value)


def test_an_array_of_any_size_is_read_in_little_memory(tmp_path) -> None:
    path = tmp_path / "a.json.gz"
    part = (b'{"user": "u", "text": "' + b"x" * 1000 + b'"},\n') * 1000
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"[" + part * 40 + b'{"user": "u", "text": "last"}]')
    (file,) = match_inputs([str(path)])
    options = ReadOptions(block_bytes=2**20)
    from beam_dpne.reading.transform import read_item

    tracemalloc.start()
    count = 0
    for item in plan_reads(file, options):
        for documents, faults, _ in read_item(item, options):
            count += len(documents)
            assert not faults
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 40_001
    assert peak < 20 * 2**20  # of 41 MB


def test_lists_of_tokens_in_an_array_pass_through(tmp_path) -> None:
    path = write(tmp_path / "a.json", '[{"user": "u", "text": ["a b", "c"]}]')
    assert read([path], text_is_tokens=True) == ([("u", ["a b", "c"])], [])


# Several text fields

TWO = ["subject", "body"]


def write_fields(folder: pathlib.Path, kind: str, records: list[dict[str, Any]]) -> pathlib.Path:
    path = folder / f"a.{kind}"
    if kind == "parquet":
        columns = {name: [record.get(name) for record in records] for name in ("user", *TWO)}
        pq.write_table(pa.table(columns), path)
        return path
    text = json.dumps(records) if kind == "json" else "\n".join(map(json.dumps, records))
    return write(path, text)


@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet"])
def test_each_text_of_a_record_is_a_document(tmp_path, kind: str) -> None:
    records = [
        {"user": "a", "subject": "s1", "body": "b1"},
        {"user": "b", "subject": None, "body": "b2"},
        {"user": "c", "subject": "s3"},
        {"user": "d", "subject": "", "body": ""},
        {"user": "e", "subject": None, "body": None},
        {"user": None, "subject": "s6", "body": "b6"},
    ]
    path = write_fields(tmp_path, kind, records)
    documents = [("a", "s1"), ("a", "b1"), ("b", "b2"), ("c", "s3"), ("d", ""), ("d", "")]
    check_fields(match_inputs([str(path)]), ReadOptions(text_field=TWO))
    for block_bytes in (1, 1000):
        rows, faults = read([path], text_field=TWO, block_bytes=block_bytes)
        assert rows == documents
        assert [fault[3] for fault in faults] == [rejects.NO_TEXT, rejects.NO_USER]
    assert read([path], text_field=TWO[:1])[0] == read([path], text_field="subject")[0]


@pytest.mark.parametrize("kind", ["jsonl", "json"])
@pytest.mark.parametrize(
    ("bad", "reason"),
    [({"body": 7}, rejects.BAD_TEXT), ({"subject": []}, rejects.BAD_TEXT), ({}, rejects.NO_TEXT)],
)
def test_one_wrong_text_rejects_the_record(tmp_path, kind: str, bad, reason: str) -> None:
    good = {"user": "u", "subject": "s", "body": "b"}
    records = [good, {"user": "u", "subject": "s", **bad} if bad else {"user": "u"}]
    rows, faults = read([write_fields(tmp_path, kind, records)], text_field=TWO)
    assert rows == [("u", "s"), ("u", "b")]
    assert [fault[3] for fault in faults] == [reason]


def test_several_columns_of_csv_are_documents(tmp_path) -> None:
    path = write(
        tmp_path / "a.csv", b'body,user,subject\n"b,1",ann,s1\n,bob,\nx,c,\xff\nd,"e" f,g\n'
    )
    for block_bytes in (1, 1000):
        rows, faults = read([path], text_field=TWO, block_bytes=block_bytes)
        assert rows == [("ann", "s1"), ("ann", "b,1"), ("bob", ""), ("bob", "")]
        assert [fault[3] for fault in faults] == [rejects.NOT_UTF8_TEXT, rejects.BAD_QUOTES]


def test_several_lists_of_tokens_are_documents(tmp_path) -> None:
    records = [
        {"user": "a", "subject": ["s", "1"], "body": None},
        {"user": "b", "subject": ["s"], "body": ["b"]},
        {"user": "c", "subject": ["s"], "body": [None]},
    ]
    for kind in ("jsonl", "parquet"):
        path = write_fields(tmp_path, kind, records)
        rows, faults = read([path], text_field=TWO, text_is_tokens=True)
        assert rows == [("a", ["s", "1"]), ("b", ["s"]), ("b", ["b"])]
        assert [fault[3] for fault in faults] == [rejects.BAD_TOKENS]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([], "text_field must be a name"),
        (["text", "text"], "each field once"),
        (["text", "user"], "must differ"),
        (["text", ""], "without quotes"),
        (["text", 'a"b'], "without quotes"),
    ],
)
def test_wrong_text_fields_are_refused(fields: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReadDocuments(inputs=["a.csv"], text_field=fields)


def test_every_text_field_must_exist(tmp_path) -> None:
    write(tmp_path / "a.csv", "user,subject\na,b\n")
    lines = write(tmp_path / "a.jsonl", '{"user":"a","subject":"b"}\n')
    pq.write_table(pa.table({"user": ["a"], "subject": ["b"]}), tmp_path / "a.parquet")
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        with pytest.raises(InputError, match="body"):
            check_fields(match_inputs([str(tmp_path / name)]), ReadOptions(text_field=TWO))
    # Of JSON, which may leave out what is null, one file with the field is enough.
    other = write(tmp_path / "b.jsonl", '{"user":"a","body":"b"}\n')
    check_fields(match_inputs([str(lines), str(other)]), ReadOptions(text_field=TWO))


# Folders


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


@pytest.mark.parametrize("scheme", ["", "shelf:/"])
@pytest.mark.parametrize("slash", ["", "/"])
def test_a_folder_stands_for_its_files(tmp_path, scheme: str, slash: str) -> None:
    line = '{"user":"%s","text":"t"}\n'
    write(tmp_path / "b.jsonl", line % "b")
    write(tmp_path / "a.ndjson.gz", gzip.compress((line % "a").encode()))
    for name in ("_SUCCESS", ".a.jsonl.crc", "._hidden", "_metadata"):
        write(tmp_path / name, CANARY)
    (tmp_path / "deeper").mkdir()
    write(tmp_path / "deeper" / "c.jsonl", line % "c")
    given = f"{scheme}{tmp_path}{slash}"
    assert [file.path.rpartition("/")[2] for file in match_inputs([given])] == [
        "a.ndjson.gz",
        "b.jsonl",
    ]
    assert read([given]) == ([("a", "t"), ("b", "t")], [])
    ReadDocuments(inputs=[given])


@pytest.mark.parametrize("scheme", ["", "shelf:/"])
def test_folders_that_are_not_of_one_known_format_are_refused(tmp_path, scheme: str) -> None:
    def folder(*names: str) -> str:
        made = tmp_path / f"case{len(list(tmp_path.iterdir()))}"
        made.mkdir()
        for name in names:
            write(made / name, "user,text\n")
        return f"{scheme}{made}"

    with pytest.raises(InputError, match=r"extensions \.csv, \.jsonl\.gz.*glob"):
        match_inputs([folder("a.csv", "b.jsonl.gz")])
    with pytest.raises(InputError, match=r"extension \.txt.*--input_format"):
        match_inputs([folder("a.csv", "b.txt")])
    with pytest.raises(InputError, match=r"no extension.*--input_format"):
        match_inputs([folder("part-00000")])
    with pytest.raises(InputError, match=r"extension \.zip.*Unpack"):
        match_inputs([folder("a.zip")])
    mixed = folder("a.csv", "b.txt", "part-00000", "_SUCCESS")
    assert len(match_inputs([mixed], "csv")) == 3
    assert len(match_inputs([folder("a.csv", "b.CSV.gz")])) == 2
    empty = folder("_SUCCESS", ".hidden")
    with pytest.raises(InputError, match=r"which has none.*glob"):
        match_inputs([empty], "csv")


def test_empty_folders_are_refused(tmp_path) -> None:
    (tmp_path / "within").mkdir()
    with pytest.raises(InputError, match="which has none"):
        match_inputs([str(tmp_path)])
    with pytest.raises(FileNotFoundError, match="does not exist"):
        match_inputs([f"shelf:/{tmp_path}/none"])


@pytest.mark.parametrize("name", ["a.zip", "a.csv.zip", "a.tar.gz", "a.tgz", "a.7z"])
def test_archives_are_refused_with_advice(tmp_path, name: str) -> None:
    path = write(tmp_path / name, "user,text\n")
    for input_format in ("auto", "csv"):
        with pytest.raises(ValueError, match="Unpack it"):
            ReadDocuments(inputs=[str(path)], input_format=input_format)
        with pytest.raises(InputError, match="Unpack it"):
            check_fields(match_inputs([str(path)]), ReadOptions(input_format=input_format))


# What is told of the input


def test_the_description_says_what_was_given() -> None:
    assert ReadOptions().description == InputDescription(format="auto")
    options = ReadOptions(
        input_format="csv",
        user_field="customer",
        text_field=TWO,
        encoding="Latin-1",
        delimiter="semicolon",
        quoting="none",
        columns=["customer", "subject", "body"],
        max_record_bytes=1000,
    )
    assert options.description == InputDescription(
        user_field="customer",
        text_fields=("subject", "body"),
        format="csv",
        details=(
            ("columns", '["customer", "subject", "body"]'),
            ("delimiter", ";"),
            ("encoding", "iso8859-1"),
            ("max_record_bytes", "1000"),
            ("quoting", "none"),
        ),
    )


def test_two_names_of_one_thing_have_one_description() -> None:
    one = ReadOptions(encoding="latin-1", delimiter=r"\t", text_field="body")
    other = ReadOptions(encoding="L1", delimiter="\t", text_field=("body",))
    assert one.description == other.description
    assert one.description.details == (("delimiter", "\t"), ("encoding", "iso8859-1"))


# The programs


def mails(folder: pathlib.Path) -> pathlib.Path:
    """A folder of two files in Windows' encoding, with semicolons."""
    folder.mkdir()
    for part in range(2):
        rows = [f'u{part}-{place};"café; naïve";bonne journée' for place in range(60)]
        data = "\r\n".join(["id;subject;body", *rows]).encode("cp1252")
        write(folder / f"mails{part}.csv", data)
    return folder


def test_programs_read_and_judge_such_files_alike(cli, tmp_path) -> None:
    reading = [
        *("--input", mails(tmp_path / "in"), "--encoding", "cp1252", "--delimiter", "semicolon"),
        *("--user_field", "id", "--text_field", "subject", "--text_field", "body"),
    ]
    budget = ("--epsilon", 20, "--delta", 1e-4, "--max_contributions", 5)
    more = ("--max_length", 2, "--output", tmp_path / "ngrams")
    ended = cli("ngrams", *reading, *budget, *more)
    assert ended.status == 0, ended.err
    judged = cli("evaluate", *reading, "--release", tmp_path / "ngrams", "--quiet")
    assert judged.status == 0, judged.err
    assert "480 tokens in 240 documents of 120 users" in judged.out
    ended = cli("set-union", *reading, *budget, "--output", tmp_path / "items")
    assert ended.status == 0, ended.err
    (items,) = (tmp_path / "items").glob("items-*")
    found = {json.loads(line)["item"] for line in items.read_text(encoding="utf-8").splitlines()}
    assert found == {"café", "naïve", "bonne", "journée"}


WRONG_OPTIONS = [
    (("--encoding", "base64"), "encoding must be a codec of Python for text"),
    (("--delimiter", '"'), "delimiter must be one ASCII character"),
    (("--quoting", "maybe"), "--quoting"),
    (("--input_format", "jsonl", "--delimiter", ";"), "delimiter must be given for csv and tsv"),
    (("--input_format", "parquet", "--encoding", "utf-8"), "must not be given for parquet"),
    (("--text_field", "text", "--text_field", "text"), "each field once"),
]


@pytest.mark.parametrize("program", ["ngrams", "set-union", "bayesian", "evaluate"])
def test_programs_refuse_wrong_options(cli, tmp_path, program: str) -> None:
    release = tmp_path / "release"
    if program == "evaluate":
        cli("ngrams", *made(tmp_path), "--epsilon", 9, "--delta", 1e-4, "--output", release)
    needed = {
        "evaluate": ("--release", release),
        "bayesian": ("--public", made(tmp_path)[1], "--output", release),
    }.get(program, ("--output", release))
    budget = () if program == "evaluate" else ("--epsilon", 1, "--delta", 1e-6)
    for options, said in WRONG_OPTIONS:
        ended = cli(program, *made(tmp_path), *needed, *budget, *options)
        assert (ended.status, ended.out) == (2, ""), options
        assert said in ended.err, options


def made(folder: pathlib.Path) -> tuple[str, pathlib.Path]:
    path = folder / "good.jsonl"
    if not path.exists():
        write(path, "".join(f'{{"user":"u{place}","text":"good day"}}\n' for place in range(50)))
    return "--input", path


FIRST_RECORDS = [codecs.BOM_UTF16_LE + b" hi\n", codecs.BOM_UTF32_BE + b"\n", b"[\n", b' [{"a":\n']


@pytest.mark.parametrize("first", FIRST_RECORDS)
@pytest.mark.parametrize(
    ("name", "options", "line"),
    [
        ("a.seq", {"input_format": "sequences"}, b"good morning\n"),
        ("a.csv", {"columns": ["user", "text"]}, b"u%d,good morning\n"),
        ("a.tsv", {"columns": ["user", "text"]}, b"u%d\tgood morning\n"),
        ("a.jsonl", {}, b'{"user":"u%d","text":"good morning"}\n'),
    ],
)
def test_one_users_first_line_does_not_decide_how_the_others_are_read(
    tmp_path, first, name, options, line
) -> None:
    lines = [line % number if b"%d" in line else line for number in range(50)]
    (tmp_path / "alone").mkdir()
    (tmp_path / "both").mkdir()
    alone, _ = read([write(tmp_path / "alone" / name, b"".join(lines))], **options)
    both, _ = read([write(tmp_path / "both" / name, b"".join([first, *lines]))], **options)
    others = [text for _, text in both if text == "good morning"]
    assert [text for _, text in alone] == others == ["good morning"] * 50
    if name != "a.seq":
        assert [user for user, text in both if text == "good morning"] == [u for u, _ in alone]


@pytest.mark.parametrize("encoding", ["iso2022_jp", "iso2022_jp_2", "iso2022_kr", "hz", "utf-7"])
def test_encodings_whose_state_outlasts_a_line_are_refused(encoding: str) -> None:
    with pytest.raises(ValueError, match="each line can be read alone"):
        ReadOptions(encoding=encoding)


def test_a_header_with_another_delimiter_is_told_of_it(tmp_path) -> None:
    path = write(tmp_path / "a.csv", "user;text\nu1;good words, only here\n")
    with pytest.raises(InputError, match=r"1 column, .*try --delimiter semicolon first"):
        check_fields(match_inputs([str(path)]), ReadOptions())
