import csv
import io
import itertools
import re
import tracemalloc
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_dpne.reading import records
from beam_dpne.reading.delimited import (
    DIALECTS,
    HEADER_START,
    DelimitedParser,
    QuotedBorders,
    header_bytes,
    split_fields,
)
from beam_dpne.reading.json_records import ArrayBorders, JsonlParser
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.records import (
    Block,
    Borders,
    BrokenText,
    LineBorders,
    pass_line,
    read_blocks,
)
from beam_dpne.reading.rejects import BAD_QUOTES, RAGGED

LINES = st.lists(st.text(alphabet='ab,"\r\n', max_size=6), max_size=12).map("".join).map(str.encode)


def blocks_of(data: bytes, borders: Borders, block_bytes: int, limit: int = 1000) -> list[Block]:
    """Blocks of a text, which is searched in pieces of 3 bytes."""
    read = io.BytesIO(data).read
    with mock.patch.object(records, "_SEARCHED_BYTES", 3):
        return list(
            read_blocks(read, borders, offset=0, block_bytes=block_bytes, max_record_bytes=limit)
        )


def records_of(blocks: list[Block]) -> tuple[list[tuple[int, bytes]], list[int]]:
    """Offset and bytes of every record, and the offsets of those that were too long."""
    found, too_long = [], []
    for block in blocks:
        for start, end in zip(block.starts.tolist(), block.ends.tolist(), strict=True):
            found.append((block.offset + start, block.data[start:end]))
        too_long += block.too_long
    return found, too_long


def bare(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


def lines_of(data: bytes) -> list[tuple[int, bytes]]:
    found, at = [], 0
    for line in io.BytesIO(data):
        found.append((at, bare(line)))
        at += len(line)
    return found


def csv_records_of(data: bytes) -> list[tuple[int, bytes]] | None:
    """The definition, byte by byte; None if the last record ends inside quotes."""
    found, start, at, state = [], 0, 0, "field"
    while at < len(data):
        c = data[at : at + 1]
        at += 1
        if state == "quoted":
            state = "closed" if c == b'"' else "quoted"
        elif c == b'"' and state in ("field", "closed"):
            state = "quoted"
        elif c in b"\r\n":
            at += data[at - 1 : at + 1] == b"\r\n"
            found.append((start, bare(data[start:at])))
            start, state = at, "field"
        else:
            state = "field" if c == b"," else "plain"
    if state == "quoted":
        return None
    return found + [(start, bare(data[start:]))] * (start < len(data))


@settings(max_examples=300, deadline=None)
@given(LINES, st.integers(1, 9), st.integers(1, 8))
def test_lines_are_the_same_in_any_blocks(data: bytes, block_bytes: int, limit: int) -> None:
    found, too_long = records_of(blocks_of(data, LineBorders(), block_bytes, limit))
    assert found == [(at, line) for at, line in lines_of(data) if len(line) <= limit]
    assert too_long == [at for at, line in lines_of(data) if len(line) > limit]


@settings(max_examples=500, deadline=None)
@given(LINES, st.integers(1, 9), st.integers(1, 8))
def test_csv_records_are_the_same_in_any_blocks(data: bytes, block_bytes: int, limit: int) -> None:
    expected = csv_records_of(data)
    if expected is None:
        with pytest.raises(BrokenText, match="ends inside a quoted field"):
            blocks_of(data, QuotedBorders(), block_bytes, limit)
        return
    found, too_long = records_of(blocks_of(data, QuotedBorders(), block_bytes, limit))
    assert found == [(at, record) for at, record in expected if len(record) <= limit]
    assert too_long == [at for at, record in expected if len(record) > limit]


@settings(max_examples=300, deadline=None)
@given(LINES, st.lists(st.integers(0, 60), max_size=4), st.integers(1, 9))
def test_ranges_own_the_lines_that_start_in_them(
    data: bytes, cuts: list[int], block_bytes: int
) -> None:
    borders = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    found = []
    for start, stop in itertools.pairwise(borders):
        stream = io.BytesIO(data)
        offset, rest = 0, b""
        if start:
            stream.seek(start - 1)
            rest, passed = pass_line(stream.read, block_bytes)
            offset = start - 1 + passed
        stream = io.BytesIO(rest + stream.read())
        found += read_blocks(
            stream.read,
            LineBorders(),
            offset=offset,
            stop=stop,
            block_bytes=block_bytes,
            max_record_bytes=1000,
        )
    assert records_of(found)[0] == lines_of(data)


FIELD = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=6) | (
    st.text(alphabet='a,"\r\n ', max_size=5)
)


def parse_csv(data: bytes, width: int, block_bytes: int) -> tuple[list[list[str]], list[int]]:
    columns = ["user", *(f"c{i}" for i in range(width - 2)), "text"]
    parser = DelimitedParser(columns, DIALECTS["csv"], ReadOptions())
    rows, rejects = [], []
    for block in blocks_of(data, QuotedBorders(), block_bytes):
        batch = parser.parse(block)
        rows += [list(row.values()) for row in batch.documents.to_pylist()]
        rejects += batch.rejects
    return rows, rejects


@settings(max_examples=300, deadline=None)
@given(
    st.integers(2, 4).flatmap(
        lambda n: st.lists(st.lists(FIELD, min_size=n, max_size=n), min_size=1, max_size=8)
    ),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from(["\n", "\r\n"]),
    st.integers(1, 40),
)
def test_csv_reads_what_pythons_csv_writes(
    rows: list[list[str]], quoting: int, end: str, block_bytes: int
) -> None:
    rows = [["u" + row[0], *row[1:]] for row in rows]
    if any("\r" in field for row in rows for field in row):
        quoting = csv.QUOTE_ALL  # Python below 3.13 leaves a lone "\r" unquoted.
    text = io.StringIO()
    csv.writer(text, quoting=quoting, lineterminator=end).writerows(rows)
    result = parse_csv(text.getvalue().encode(), len(rows[0]), block_bytes)
    assert result == ([[row[0], row[-1]] for row in rows], [])


def test_a_stray_quote_is_text_and_does_not_hide_later_records() -> None:
    data = b'a,5" pipe\nb,"x ""y"" z"\nc,6" and 7"\nd,"q" r\ne,"1\n2"\nf,1,2\n\ng\nh,\n'
    for block_bytes in (3, 1000):
        rows, rejects = parse_csv(data, 2, block_bytes)
        assert [row[0] for row in rows] == ["a", "b", "c", "e", "h"]
        assert [row[1] for row in rows] == ['5" pipe', 'x "y" z', '6" and 7"', "1\n2", ""]
        assert rejects == [
            (data.index(b"d,"), BAD_QUOTES),
            (data.index(b"f,"), RAGGED),
            (data.index(b"g\n"), RAGGED),
        ]


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet='a,"', max_size=9).map(str.encode))
def test_records_without_stray_text_split_as_in_python(record: bytes) -> None:
    fields = split_fields(record, DIALECTS["csv"])
    if fields is not None and csv_records_of(record) and record:
        assert [field.decode() for field in fields] == next(csv.reader([record.decode()]))


JSON_LINES = [
    b'{"user":"a","text":"x"}',
    b'{"user":"a","text":"x"}{"user":"b","text":"y"}',
    b'{"user":"a",',
    b'"text":"x"}',
    b' {"user":7,"text":""} ',
    b"",
    b"\t",
    b'{"user":"a","text":"x","z":{}',
    b'{"user":"","text":"x"}',
    b'{"user":"a","text":"x","z":"\xff"}',
    b'{"user":12345678901234567890123,"text":"\\ud83d\\ude00\\u0000"}',
]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(JSON_LINES), max_size=8), st.integers(1, 200))
def test_json_lines_mean_the_same_in_any_blocks(lines: list[bytes], block_bytes: int) -> None:
    parser = JsonlParser(ReadOptions())

    def read(size: int) -> tuple[list[dict[str, str]], list[tuple[int, str]]]:
        rows, rejects = [], []
        for block in blocks_of(b"\n".join(lines), LineBorders(), size):
            batch = parser.parse(block)
            rows += batch.documents.to_pylist()
            rejects += batch.rejects
        return rows, rejects

    assert read(block_bytes) == read(1)


@pytest.mark.parametrize("size", [2**20 - 1, 2**20, 2**20 + 1, 2**21, 3 * 2**20 + 7])
def test_borders_are_found_in_texts_longer_than_what_is_searched_at_once(size: int) -> None:
    chosen = np.random.default_rng(size).integers(0, 5, size)
    text = bytearray(np.frombuffer(b"ab,\r\n", np.uint8)[chosen].tobytes())
    text[2**20 - 1 : 2**20 + 1] = b"\r\n"[: size - 2**20 + 1]
    data = bytes(text)
    feeds = [match.end() for match in re.finditer(b"\n", data)]
    assert LineBorders().ends(data).tolist() == feeds
    lines = [match.end() for match in re.finditer(rb"\r\n|\n|\r(?!\Z)", data)]
    assert QuotedBorders().ends(data).tolist() == lines


# Quoted text of the kinds of bytes that end lines, fields or elements elsewhere.
@pytest.mark.parametrize("inside", [b"\r", b"\n", b"\r\n", b",", b"x"])
@pytest.mark.parametrize("borders", [QuotedBorders(), ArrayBorders()])
def test_a_long_quoted_text_is_searched_in_little_memory(borders: Borders, inside: bytes) -> None:
    data = b'"' + inside * (16 * 2**20 // len(inside)) + b'"'
    tracemalloc.start()
    assert borders.ends(data).tolist() == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # For each byte of a piece of 1 MiB a few masks, or what it is and where it stands.
    assert peak < 64 * 2**20


def test_a_long_line_is_passed_over_in_little_memory() -> None:
    pieces = iter([b"a\n", *([b"x" * 2**20] * 100), b"\nb\n"])
    tracemalloc.start()
    blocks = read_blocks(
        lambda _: next(pieces, b""),
        LineBorders(),
        offset=0,
        block_bytes=2**20,
        max_record_bytes=4 * 2**20,
    )
    found = records_of(list(blocks))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == ([(0, b"a"), (2 + 100 * 2**20 + 1, b"b")], [2])
    assert peak < 30 * 2**20


@pytest.mark.parametrize(
    ("head", "size"),
    [
        (b"", 0),
        (b"% Sequences:\n1 2\n", 0),
        (HEADER_START + b"\n% Sequences:", 56),
        (HEADER_START + b"\n% Sequences:\n1 2\n", 57),
        (HEADER_START + b"\nb c\n\n% Sequences:\r\n\r\n\n1 2\n", 66),
        (b"1 2\n" + HEADER_START + b"\n% Sequences:\n", 0),
        (b"% a\n1 2\n", 0),
        (b"1 % Sequences:\n1\n", 0),
    ],
)
def test_a_sequences_header_ends_after_its_blank_lines(head: bytes, size: int) -> None:
    assert header_bytes(head) == size
