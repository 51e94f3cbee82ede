"""Files as people have them are read as they were written: formats, encodings, quotes, compression."""

import codecs
import csv
import gzip
import io
import json
import pathlib
import tracemalloc
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_dpne.errors import InputError
from beam_dpne.reading import rejects
from beam_dpne.reading.encodings import ENCODINGS
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import InputDescription, ReadOptions
from beam_dpne.reading.reader import Reader, work_items
from beam_dpne.reading.records import check_fields, plan_reads, read_item
from beam_dpne.reading.text_formats import HEADER_START
from tests.reading.files import CANARY, COMPRESS, Row, read, write

# Trail bytes of Shift JIS and Big5 may be a backslash, a pipe or a brace.
SIGNS = "ab ,;|\t\"'\\{}[]~é€ßñЖж ソ表ポ能功ム日本語·\u0085\u00a0😀"
DELIMITERS = {",": "comma", ";": "semicolon", "\t": r"\t", "~": "~", " ": " "}
TWO = ["subject", "body"]


def signs_of(encoding: str) -> str:
    """The signs that the encoding has, and reads as it has written them."""

    def is_kept(sign: str) -> bool:
        data = f"a{sign}b".encode(encoding, "replace")
        return data.decode(encoding) == f"a{sign}b"

    return "".join(filter(is_kept, SIGNS))


@st.composite
def files(draw: st.DrawFn) -> tuple[str, bytes, dict[str, Any], list[Row]]:
    """A name, bytes, options, and the documents that were written."""
    encoding = draw(st.sampled_from(ENCODINGS))
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
    marked = ("utf-16",) if kind in ("csv", "tsv") else ()
    if encoding in ("utf-8", "utf-8-sig", *marked) and draw(st.booleans()):
        del options["encoding"]
    if kind in ("csv", "tsv"):
        text = delimited(rows, delimiter, quoted)
        options |= {"delimiter": DELIMITERS[delimiter], "quoting": "quoted" if quoted else "none"}
    else:
        records = [dict(zip(("user", "text", "body"), row, strict=True)) for row in rows]
        lines = [json.dumps(record, ensure_ascii=False) for record in records]
        indent = draw(st.sampled_from([None, 2]))
        array = " \n" + json.dumps(records, ensure_ascii=False, indent=indent)
        text = array if kind == "json" and draw(st.booleans()) else "\n".join(lines)
    documents = [(row[0], text) for row in rows for text in row[1:]]
    return f"a.{kind}", text.encode(encoding), options, documents


def delimited(rows: Sequence[Sequence[str]], delimiter: str, quoted: bool) -> str:
    out = io.StringIO(newline="")
    if quoted:
        writer = csv.writer(out, delimiter=delimiter, quoting=csv.QUOTE_ALL)
        writer.writerows([("user", "text", "body"), *rows])
        return out.getvalue()
    return "\n".join(delimiter.join(row) for row in [("user", "text", "body"), *rows])


@settings(max_examples=150, deadline=None)
@given(files(), st.sampled_from(sorted(COMPRESS)), st.integers(1, 80), st.integers(1, 80))
def test_files_are_read_as_they_were_written_however_they_are_split(
    tmp_path_factory, file, codec: str, block_bytes: int, split_bytes: int
) -> None:
    name, data, options, documents = file
    folder = tmp_path_factory.mktemp("file")
    path = write(folder / (name + codec), COMPRESS[codec](data))
    for sizes in ({}, {"block_bytes": block_bytes}, {"split_bytes": split_bytes}):
        assert read([path], **options, **sizes) == (documents, [])


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("jsonl", '{"user": "ann", "text": "é"}\r\n\n {"text": "b", "user": 12} \n'),
        ("csv", 'user,x,text\r\nann,,é\r\n\r\n12,"1,2","b"'),
        ("csv", "user,x,text\rann,,é\r12,,b\r"),
        ("tsv", "user\tx\ttext\nann\t\té\n\n12\t1,2\tb"),
        ("json", '\t[{"user": "ann", "text": "é"},\n {"user": 12, "text": "b"}] '),
    ],
)
def test_line_ends_blank_lines_numbers_and_marks_of_utf8(tmp_path, kind, data, mark) -> None:
    path = write(tmp_path / f"a.{kind}", mark + data.encode())
    check_fields(match_inputs([str(path)]), ReadOptions())
    for block_bytes in (1, 1000):
        rows = [("ann", "é"), ("12", "b")]
        assert read([path], block_bytes=block_bytes, split_bytes=11) == (rows, [])


def parts_of(path: pathlib.Path, **options: Any) -> int:
    (file,) = match_inputs([str(path)])
    return len(plan_reads(file, ReadOptions(split_bytes=100, **options)))


def test_only_plain_utf8_in_which_each_line_is_a_record_is_split(tmp_path) -> None:
    line = b'{"user": "u", "text": "t"}\n'
    lines = write(tmp_path / "a.jsonl", line * 50)
    assert parts_of(lines) == 14
    assert parts_of(lines, encoding="latin-1") == 1
    assert parts_of(write(tmp_path / "a.jsonl.gz", gzip.compress(line * 50, 0))) == 1
    assert parts_of(write(tmp_path / "a.json", b"[" + line.replace(b"\n", b",") * 50)) == 1
    table = write(tmp_path / "a.csv", "user,text\n" + "u,text\n" * 50)
    assert (parts_of(table), parts_of(table, quoting="none")) == (1, 4)
    marked = write(tmp_path / "b.csv", ("user,text\n" + "u,t\n" * 50).encode("utf-16"))
    assert parts_of(marked, quoting="none") == 1


# One user's bytes and the others' records


FIRST_RECORDS = [codecs.BOM_UTF16_LE + b" hi\n", b"\xff\xfe\x00\x00\n", b"[\n", b' [{"a":\n']


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


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.text(alphabet='a,"\r\n', max_size=8), min_size=1, max_size=4),
    st.integers(0, 3),
    st.integers(1, 40),
)
def test_an_unclosed_quote_joins_no_two_users(tmp_path_factory, texts, at, size) -> None:
    """A field that is never closed goes on to the next quote, where the parser sees text after it."""
    lines = [",".join(quoted(field) for field in (f"u{i}", text)) for i, text in enumerate(texts)]
    lines.insert(min(at, len(lines)), '"x","never closed')
    data = "\n".join(["user,text", *lines, '"z","end"', ""])
    path = write(tmp_path_factory.mktemp("file") / "a.csv", data)
    for block_bytes in (size, 1000):
        rows, _ = read([path], block_bytes=block_bytes)
        assert set(rows) <= {*((f"u{i}", text) for i, text in enumerate(texts)), ("z", "end")}


def quoted(field: str) -> str:
    return '"' + field.replace('"', '""') + '"'


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(alphabet='a,"\r\n', max_size=30), max_size=6), st.integers(9, 40))
def test_a_record_that_is_too_long_is_one_reject_and_no_other_record(
    tmp_path_factory, texts, limit
) -> None:
    """Its lines never become records, which would be of users whom its text may name."""
    lines = [f"u{i},{quoted(text)}\n" for i, text in enumerate(texts)]
    path = write(tmp_path_factory.mktemp("file") / "a.csv", "".join(["user,text\n", *lines]))
    for block_bytes in (1, 7, 1000):
        rows, found = read([path], max_record_bytes=limit, block_bytes=block_bytes)
        kept = [i for i, line in enumerate(lines) if len(line.encode()) <= limit + 2]
        assert rows == [(f"u{i}", texts[i]) for i in kept]
        assert {reason for *_, reason in found} <= {rejects.TOO_LONG}
        assert len(found) == len(texts) - len(kept)


def test_encodings_whose_state_outlasts_a_line_are_refused() -> None:
    for name in ("iso2022_jp", "iso2022_kr", "hz", "utf-7", "base64", "idna", "nothing", "a\0b"):
        with pytest.raises(ValueError, match="`encoding` must be"):
            ReadOptions(encoding=name)


# Encodings and positions


@pytest.mark.parametrize("encoding", ["cp1252", "shift_jis", "euc_jp", "gb18030", "utf-16-le"])
def test_records_around_one_that_cannot_be_decoded_are_read(tmp_path, encoding: str) -> None:
    bad = {"utf-16-le": b"\x00\xd8", "cp1252": b"\x81"}.get(encoding, b"\xff")
    sign = "é" if encoding == "cp1252" else "日"
    parts = [f"user,text\nu,{sign}\nu,", '\nu,"a""\n"\nv,b']
    path = write(tmp_path / "a.csv", bad.join(part.encode(encoding) for part in parts))
    # The place is that in the text as UTF-8.
    at = len(f"user,text\nu,{sign}\n".encode())
    for block_bytes in (1, 3, 1000):
        rows, found = read([path], encoding=encoding, block_bytes=block_bytes)
        assert rows == [("u", sign), ("u", 'a"\n'), ("v", "b")]
        assert found == [(at, "byte", rejects.NOT_DECODED)]


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "gb18030", "utf-16-be"])
def test_lines_around_one_that_cannot_be_decoded_are_read(tmp_path, encoding: str) -> None:
    bad = {"utf-16-be": b"\xd8\x00", "cp1252": b"\x81"}.get(encoding, b"\xff")
    lines = [
        '{"user":"u","text":"é"}\r\n',
        '{"user":"u","text":"b","x":"',
        '"}\n{"user":"v","text":"é"}',
    ]
    first, before, after = (line.encode(encoding) for line in lines)
    path = write(tmp_path / "a.jsonl", first + before + bad + after)
    for block_bytes in (1, 3, 1000):
        rows, found = read([path], encoding=encoding, block_bytes=block_bytes)
        assert rows == [("u", "é"), ("v", "é")]
        assert found == [(len(lines[0].encode()), "byte", rejects.NOT_DECODED)]


def test_text_without_the_mark_that_its_encoding_needs_is_refused(tmp_path) -> None:
    path = write(tmp_path / "a.csv", f"user,text\na,{CANARY}\n".encode())
    with pytest.raises(ValueError, match=r"a\.csv cannot be decoded.*encoding") as caught:
        read([path], encoding="utf-16")
    assert CANARY not in str(caught.value)


# Sequences


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text(alphabet="ab é\r\n{%", max_size=5), max_size=20),
    st.integers(1, 40),
    st.sampled_from(["", HEADER_START + "\nh\n% Sequences:\n\n"]),
)
def test_the_users_of_sequences_are_files_and_offsets(
    tmp_path_factory, parts: list[str], size: int, head: str
) -> None:
    data = (head + "\n".join(parts)).encode()
    expected, at = [], 0
    for line in data.split(b"\n"):
        text = line.removesuffix(b"\r")
        if text and at >= len(head):
            expected.append(((1).to_bytes(8, "little") + at.to_bytes(8, "little"), text.decode()))
        at += len(line) + 1
    folder = tmp_path_factory.mktemp("file")
    first = write(folder / "0.seq", "")
    for path in (
        write(folder / "a.seq", data),
        write(folder / "a.seq.gz", gzip.compress(data)),
    ):
        sizes = {"block_bytes": size, "split_bytes": size}
        assert read([first, path], input_format="sequences", **sizes) == (expected, [])


@pytest.mark.parametrize(
    ("head", "size"),
    [
        ("", 0),
        ("% Sequences:\n", 0),
        (HEADER_START + "\n% Sequences:\n", 57),
        (HEADER_START + "\nb c\n\n% Sequences:\r\n\r\n\n", 66),
        ("1 2\n" + HEADER_START + "\n% Sequences:\n", 0),
    ],
)
def test_a_sequences_header_ends_after_its_blank_lines(tmp_path, head: str, size: int) -> None:
    path = write(tmp_path / "a.seq", head + "1 2\n")
    rows, _ = read([path], input_format="sequences")
    first, (user, text) = rows[0], rows[-1]
    assert (user, text) == (bytes(8) + len(head).to_bytes(8, "little"), "1 2")
    assert int.from_bytes(first[0][8:], "little") == size


def test_a_sequences_header_without_an_end_is_refused(tmp_path) -> None:
    path = write(tmp_path / "a.seq", f"{HEADER_START}\n1 2\n")
    with pytest.raises(InputError, match="must end with"):
        read([path], input_format="sequences")


# JSON arrays, several texts, tokens, further fields, Parquet


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_a_file_of_any_size_is_read_in_little_memory(tmp_path, kind: str) -> None:
    path = tmp_path / f"a.{kind}.gz"
    line = b"x" * 1000
    with gzip.open(path, "wb", compresslevel=1) as file:
        if kind == "json":
            file.write(b"[" + (b'{"user": "u", "text": "%s"},\n' % line) * 20_000 + b"7]")
        else:
            file.write(b"user,text\n" + b'u,"%s"\n' % line * 20_000 + b"7\n")
    (file,) = match_inputs([str(path)])
    options = ReadOptions(block_bytes=2**20)
    tracemalloc.start()
    counts = [
        (len(batch.documents), len(batch.rejects))
        for item in plan_reads(file, options)
        for batch in read_item(item, options)
    ]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert tuple(map(sum, zip(*counts, strict=True))) == (20_000, 1)
    assert peak < 10 * 2**20  # of 20 MB


def write_records(folder: pathlib.Path, kind: str, records: list[dict[str, Any]]) -> pathlib.Path:
    path = folder / f"a.{kind}"
    if kind == "parquet":
        names = sorted({name for record in records for name in record})
        pq.write_table(
            pa.table({name: [record.get(name) for record in records] for name in names}), path
        )
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
    path = write_records(tmp_path, kind, records)
    documents = [("a", "s1"), ("a", "b1"), ("b", "b2"), ("c", "s3"), ("d", ""), ("d", "")]
    check_fields(match_inputs([str(path)]), ReadOptions(text_field=TWO))
    for block_bytes in (1, 1000):
        rows, found = read([path], text_field=TWO, block_bytes=block_bytes)
        assert rows == documents
        assert [reason for *_, reason in found] == [rejects.NO_TEXT, rejects.NO_USER]


@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet"])
def test_lists_of_tokens_pass_through(tmp_path, kind: str) -> None:
    texts = [["a b", ""], [], None, ["c", None]]
    records = [{"user": str(i), "text": text} for i, text in enumerate(texts)]
    path = write_records(tmp_path, kind, records)
    rows, found = read([path], text_is_tokens=True)
    assert rows == [("0", ["a b", ""]), ("1", [])]
    assert [reason for *_, reason in found] == [rejects.NO_TEXT, rejects.BAD_TOKENS]


@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet", "csv"])
def test_further_fields_give_whole_records(tmp_path, kind: str) -> None:
    if kind == "csv":
        path = write(tmp_path / "a.csv", "user,x,text,land\nann,,a,dk\nbob,,b,7\n")
    else:
        records = [{"user": "ann", "text": "a", "land": "dk"}]
        records += [{"user": "bob", "text": "b", "land": "7" if kind == "parquet" else 7}]
        path = write_records(tmp_path, kind, records)
    options = ReadOptions(fields=["land"])
    (item,) = plan_reads(match_inputs([str(path)])[0], options)
    rows = [row for batch in read_item(item, options) for row in batch.documents.to_pylist()]
    assert rows == [
        {"user": "ann", "text": "a", "land": "dk"},
        {"user": "bob", "text": "b", "land": "7"},
    ]


def test_parquet_row_groups_are_split_and_rows_counted_through(tmp_path) -> None:
    users = [None if i % 7 == 3 else i for i in range(50)]
    texts = [None if i % 5 == 1 else str(i) for i in range(50)]
    table = pa.table({"user": pa.array(users, pa.int32()), "text": texts})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=9)
    rows, found = read([tmp_path / "a.parquet"], split_bytes=100, block_bytes=64)
    assert rows == [(str(u), t) for u, t in zip(users, texts, strict=True) if None not in (u, t)]
    assert found == [
        (i, "row", rejects.NO_USER if users[i] is None else rejects.NO_TEXT)
        for i in range(50)
        if users[i] is None or texts[i] is None
    ]


# The description, which run keys are bound to


def test_the_description_has_what_is_not_the_default() -> None:
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
    one = ReadOptions(encoding="latin-1", delimiter=r"\t", text_field="body")
    other = ReadOptions(encoding="L1", delimiter="\t", text_field=("body",))
    assert one.description == other.description


@pytest.mark.parametrize("workers", [1, 2, 7])
@pytest.mark.parametrize("quoting", ["quoted", "backslash"])
def test_quotes_across_lines_are_read_alike_by_any_number_of_workers(
    tmp_path, workers: int, quoting: str
) -> None:
    texts = [f"line\nv{number},fake\n{number}" for number in range(300)]
    rows = [f'u{number},"{text}"\n' for number, text in enumerate(texts)]
    for name in "abc":
        write(tmp_path / f"{name}.csv", "".join(["user,text\n", *rows]))
    options = ReadOptions(quoting=quoting, split_bytes=50, block_bytes=100)
    reader = Reader(work_items(match_inputs([str(tmp_path)]), options), options, workers)
    found = [row for batch in reader.batches() for row in batch.to_pylist()]
    expected = [(f"u{number}", text) for number, text in enumerate(texts)] * 3
    assert sorted((row["user"], row["text"]) for row in found) == sorted(expected)
