"""One person is one user, whatever type a format gives to an id: the table of the page of inputs."""

import csv
import datetime
import decimal
import io
import json
import pathlib
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_dpne.documents.rows import batch_of_rows, documents_of
from beam_dpne.reading import rejects
from beam_dpne.reading.ids import id_text, joined_ids
from tests.reading.files import COMPRESS, read, write

WHO = uuid.UUID("0190163d-8694-739b-aea5-966c26f8ad90")
DAY = datetime.date(2026, 1, 5)
NOON = datetime.datetime(2026, 1, 5, 12, 0, 0, 500_000)
UTC = NOON.replace(tzinfo=datetime.UTC)
AN_HOUR_AHEAD = datetime.timezone(datetime.timedelta(hours=1))
SEVEN = decimal.Decimal("7.00")
LONG = 123456789012345678901234567890

# Each text of an id, with the columns and the values of rows that have it.
COLUMNS: list[tuple[str, pa.Array]] = [
    *(("ann", pa.array(["ann"], kind)) for kind in (pa.string(), pa.large_string())),
    *(
        ("ann", pa.array(["ann"], kind))
        for kind in (pa.string_view(), pa.dictionary(pa.int8(), "str"))
    ),
    *(("ann", pa.array([b"ann"], kind)) for kind in (pa.binary(), pa.large_binary(), pa.binary(3))),
    *(("7", pa.array([7], f"{sign}int{bits}")) for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *(("7", pa.array([7.0], kind)) for kind in (pa.float32(), pa.float64())),
    ("7", pa.array([np.float16(7)])),
    *(("7", pa.array([SEVEN], kind)) for kind in (pa.decimal128(9, 2), pa.decimal256(50, 9))),
    ("7", pa.array([7]).dictionary_encode()),
    (str(LONG), pa.array([decimal.Decimal(LONG)], pa.decimal128(38, 0))),
    ("0", pa.array([-0.0])),
    (str(WHO), pa.array([WHO.bytes], pa.uuid())),
    (str(WHO), pa.array([WHO.bytes], pa.binary(16))),
    *(("2026-01-05", pa.array([DAY], kind)) for kind in (pa.date32(), pa.date64())),
    *(
        ("2026-01-05 12:00:00.5", pa.array([NOON], pa.timestamp(unit)))
        for unit in ("ms", "us", "ns")
    ),
    *(
        ("2026-01-05 12:00:00", pa.array([NOON.replace(microsecond=0)], pa.timestamp(unit)))
        for unit in ("s", "ns")
    ),
    *(
        ("2026-01-05 12:00:00.5Z", pa.array([UTC], pa.timestamp("us", zone)))
        for zone in ("UTC", "Asia/Tokyo")
    ),
]
VALUES: list[tuple[str | None, Any]] = [
    *(("7", seven) for seven in ("7", 7, 7.0, SEVEN, np.int16(7), np.float32(7), b"7")),
    *((str(LONG), value) for value in (LONG, str(LONG))),
    *((str(WHO), value) for value in (WHO, str(WHO))),
    *((("2026-01-05"), value) for value in (DAY, "2026-01-05")),
    ("2026-01-05 12:00:00.5", NOON),
    *(("2026-01-05 12:00:00.5Z", value) for value in (UTC, UTC.astimezone(AN_HOUR_AHEAD))),
    *(
        (None, value)
        for value in (True, 7.5, 2.0**53, float("nan"), float("inf"), b"\xff", [7], 10**5000)
    ),
    *((None, decimal.Decimal(value)) for value in ("7.5", "NaN", "Infinity", "1e80")),
]


@pytest.mark.parametrize(
    ("text", "column"), COLUMNS, ids=lambda each: str(getattr(each, "type", ""))
)
@pytest.mark.parametrize("name", ["user", "group"])
def test_an_id_has_one_text_in_columns_of_all_types(tmp_path, name, text, column) -> None:
    columns = {"user": pa.array(["u"]), "group": pa.array(["g"]), "text": pa.array(["x"])}
    table = pa.table(columns | {name: column})
    pq.write_table(table, tmp_path / "a.parquet")
    rows, found = read([tmp_path / "a.parquet"], group_field="group", fields=None)
    assert found == []
    if name == "user":
        assert rows == [(text, "x")]
        # A batch of a pipeline; there 16 bytes without a type are names of lines of sequences.
        if column.type != pa.binary(16):
            (batch,) = table.to_batches()
            assert documents_of(batch, ["user", "text"])["user"].to_pylist() == [text]


@pytest.mark.parametrize(("text", "value"), VALUES, ids=lambda each: str(type(each).__name__))
def test_an_id_in_a_row_has_the_text_of_a_column(text, value) -> None:
    assert id_text(value) == text
    if text is not None:
        rows = batch_of_rows([(value, "x"), ("ann", "y")], ["user", "text"])
        assert documents_of(rows, ["user", "text"])["user"].to_pylist() == [text, "ann"]


BAD_COLUMNS = [
    pa.array([7.5, 1]),
    pa.array([2.0**53, 1]),
    pa.array([2.0**24, 1], pa.float32()),
    pa.array([float("inf"), 1]),
    pa.array([decimal.Decimal("7.5"), decimal.Decimal(1)]),
    pa.array([b"\xff", b"1"]),
]


@pytest.mark.parametrize("column", BAD_COLUMNS, ids=lambda each: str(each.type))
def test_a_value_that_identifies_nobody_is_one_reject(tmp_path, column) -> None:
    """7.5 is a score, and above 2^53 a float may have been rounded, so that two people have one."""
    pq.write_table(pa.table({"user": column, "text": ["x", "y"]}), tmp_path / "a.parquet")
    assert read([tmp_path / "a.parquet"]) == ([("1", "y")], [(0, "row", rejects.BAD_USER)])
    for bad in BAD_COLUMNS:
        with pytest.raises(ValueError, match="exact whole number"):
            documents_of(
                pa.RecordBatch.from_pydict({"user": bad, "text": ["x", "y"]}), ["user", "text"]
            )


KINDS = ("csv", "tsv", "jsonl", "json", "parquet", "jsonl.gz", "csv.zst", "json.bz2")


def table_of(folder: pathlib.Path, kind: str, records: list[dict[str, str]]) -> pathlib.Path:
    """A file with records of texts in a format, perhaps compressed."""
    path = folder / f"a.{kind}"
    kind, _, codec = kind.partition(".")
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(records), path)
        return path
    if kind in ("csv", "tsv"):
        text = io.StringIO(newline="")
        delimiter = "\t" if kind == "tsv" else ","
        rows = [list(records[0]), *(list(record.values()) for record in records)]
        csv.writer(text, delimiter=delimiter).writerows(rows)
        data = text.getvalue()
    elif kind == "jsonl":
        data = "\n".join(map(json.dumps, records))
    else:
        data = json.dumps(records, indent=1)
    return write(path, COMPRESS[f".{codec}" if codec else ""](data.encode()))


PAIRS = [
    ("a,b", "c"),
    ("a", "b,c"),
    ("a\\", "b"),
    ("a\\", "b,c"),
    ("a,b\\", "c"),
    ("a", "\\b"),
    ("a\\,b", "c"),
    ("a", "b"),
    ("b", "a"),
    ("a ", "b"),
]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "tsv"])
def test_users_of_several_columns_are_one_only_if_all_values_are(tmp_path, kind: str) -> None:
    records = [{"tenant": one, "text": "x", "id": other} for one, other in (*PAIRS, *PAIRS)]
    odd = [{"tenant": "", "text": "x", "id": "b"}, {"tenant": "a", "text": "x", "id": ""}]
    path = table_of(tmp_path, kind, records + odd)
    expected = joined_ids([pa.array(column) for column in zip(*PAIRS, strict=True)]).to_pylist()
    assert len(set(expected)) == len(PAIRS)
    # A value ends with a backslash, whose quotes are doubled all the same.
    quoting = "quoted" if kind.startswith("csv") else "auto"
    for sizes in ({}, {"block_bytes": 1}, {"split_bytes": 30}):
        rows, found = read([path], user_field=["tenant", "id"], quoting=quoting, **sizes)
        assert [user for user, _ in rows] == expected * 2
        assert [reason for *_, reason in found] == [rejects.EMPTY_USER] * 2
    # The same users in rows of a pipeline.
    names = ["tenant", "id", "text"]
    batch = batch_of_rows([(*pair, "x") for pair in PAIRS], names, users=2)
    assert documents_of(batch, names, users=2)["user"].to_pylist() == expected


SPELLINGS = [
    "Zo\u00e9",
    "\u200eZo\u00e9",
    "Zoe\u0301 ",
    "\u00a0Zo\u200be\u0301\ufeff",
    " Zo\u00ad\u00e9\u2060\u3000",
]


@pytest.mark.parametrize("kind", KINDS)
def test_spellings_that_look_alike_are_one_user_only_if_that_is_said(tmp_path, kind: str) -> None:
    records = [{"user": user, "text": "x"} for user in [*SPELLINGS, "zo\u00e9", " \u200e"]]
    path = table_of(tmp_path, kind, records)
    for sizes in ({}, {"block_bytes": 1}, {"split_bytes": 30}):
        rows, found = read([path], normalize_users=True, **sizes)
        assert [user for user, _ in rows] == ["Zo\u00e9"] * len(SPELLINGS) + ["zo\u00e9"]
        assert [reason for *_, reason in found] == [rejects.EMPTY_USER]
    pairs = [{"tenant": user, "user": user, "text": "x"} for user in SPELLINGS]
    several = table_of(tmp_path, kind, pairs)
    rows, _ = read([several], user_field=["tenant", "user"], normalize_users=True)
    assert [user for user, _ in rows] == ["Zo\u00e9,Zo\u00e9"] * len(SPELLINGS)
    path = table_of(tmp_path, kind, records)
    rows, found = read([path])
    assert ([user for user, _ in rows], found) == ([record["user"] for record in records], [])


@pytest.mark.parametrize("kind", KINDS)
def test_each_record_is_its_own_user_however_it_is_read(tmp_path, kind: str) -> None:
    records = [{"a": text, "b": f"{text}{text}", "user": "same"} for text in "xyz"]
    paths = [
        table_of(tmp_path / name, kind, records)
        for name in ("one", "two")
        if not (tmp_path / name).mkdir()
    ]
    found = [
        read(paths, record_is_user=True, text_field=["a", "b"], **sizes)
        for sizes in ({}, {"block_bytes": 1}, {"split_bytes": 20})
    ]
    assert found[0] == found[1] == found[2]
    chosen = {"record_is_user": True, "text_field": ["a", "b"], "where": "user=same"}
    assert all(read(paths, **chosen, **sizes) == found[0] for sizes in ({}, {"block_bytes": 1}))
    rows, faults = found[0]
    assert faults == []
    assert [text for _, text in rows] == ["x", "xx", "y", "yy", "z", "zz"] * 2
    assert [user for user, _ in rows[::2]] == [user for user, _ in rows[1::2]]
    assert len({user for user, _ in rows}) == 6
    # Fields of ids are not looked for.
    assert len(read(paths, record_is_user=True, text_field="b")[0]) == 6


NULLS = {
    "csv": ["", "\\N", "NULL", "NA", "NaN", "None", "<NA>"],
    "tsv": ["", "null", "\\N"],
    "json": [None],
}


@pytest.mark.parametrize("kind", ["csv", "tsv", "json", "jsonl", "parquet"])
def test_a_user_that_an_export_writes_as_null_is_a_reject(tmp_path, kind: str) -> None:
    nulls = NULLS.get(kind, [None])
    records: list[Any] = [{"user": user, "text": "x"} for user in (*nulls, "Nan")]
    rows, found = read([table_of(tmp_path, kind, records)])
    assert rows == [("Nan", "x")]
    assert {reason for *_, reason in found} <= {rejects.NO_USER, rejects.EMPTY_USER}
    assert len(found) == len(nulls)


@pytest.mark.parametrize("how", [(), ("--workers", 2), ("--runner", "DirectRunner")])
def test_a_release_is_of_the_same_users_on_all_runners(cli, tmp_path, how) -> None:
    """Of users with a month, of ids that look alike, and of records."""
    kinds = ("jsonl", "csv", "parquet")
    people = [f"p{number}{sign}" for number in range(150) for sign in ("", " ")]
    records = [
        {"user": user, "month": str(month), "text": "green tea"}
        for user in people
        for month in (1, 2)
    ]
    given = ("--epsilon", 8, "--delta", 1e-5, "--max_length", 1, "--count_share", 0.1)
    numbers: dict[str, set[int]] = {}
    for name, options in (
        ("exact", ()),
        ("shown", ("--normalize_users",)),
        ("months", ("--user_field", "user,month")),
        ("records", ("--record_is_user",)),
    ):
        for kind in kinds:
            output = tmp_path / f"{name}.{kind}"
            ended = cli(
                "ngrams",
                "--input",
                table_of(tmp_path, kind, records),
                *options,
                *given,
                *how,
                "--output",
                output,
            )
            assert ended.status == 0, ended.err
            row = json.loads(next(output.glob("*.jsonl")).read_text().splitlines()[0])
            numbers.setdefault(name, set()).add(round(row["users"] / 150))
    assert numbers == {"exact": {2}, "shown": {1}, "months": {4}, "records": {4}}
