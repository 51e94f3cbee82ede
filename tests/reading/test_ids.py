"""One person is one user, whatever type a format gives to an id: the table of the page of inputs."""

import datetime
import decimal
import json
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_dpne.documents.rows import batch_of_rows, documents_of
from beam_dpne.reading import rejects
from beam_dpne.reading.ids import id_text
from tests.reading.files import read, write

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
    *((None, value) for value in (decimal.Decimal("7.5"), decimal.Decimal("NaN"))),
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


@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet"])
def test_a_null_user_is_a_reject(tmp_path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table({"user": [None, float("nan"), 7], "text": ["x"] * 3}), path)
    else:
        lines = [json.dumps({"user": user, "text": "x"}) for user in (None, float("nan"), 7)]
        write(path, "\n".join(lines) if kind == "jsonl" else f"[{','.join(lines)}]")
    rows, found = read([path])
    assert rows == [("7", "x")]
    assert [reason for *_, reason in found] == [rejects.NO_USER] * 2
