"""The lines of docs/readers.md give the exact texts of a release, whatever these are."""

import csv
import importlib
import io
import json
import pathlib
import re

import duckdb
import pandas
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
import pytest

from beam_dpne import join_tokens, read_release, split_ngram
from beam_dpne.elements.rows import GROUP_FIELD, ITEM_SCHEMA, ROW_SCHEMA, unescape_item
from beam_dpne.exports.writing import csv_text, export
from beam_dpne.reading.columns import GROUP
from beam_dpne.release.parts import (
    OUTPUT_FORMATS,
    PROGRAMS,
    parse_copied,
    parse_part,
    render_parts,
)
from tests.conftest import ROOT
from tests.support import releases

PAGE = (ROOT / "docs" / "readers.md").read_text(encoding="utf-8")
LINES = re.findall(r"^\| (\w+) \| (jsonl|csv|tsv|parquet) \| `(.*)` \|$", PAGE, re.MULTILINE)
OPTIONAL = ("polars", "datasets")
# Each set alone, since readers guess the type of a column from all its texts.
TEXTS = {
    "nothing": ["null", "NULL", "NA", "<NA>", "nan", "NaN", "N/A", "None", "-nan"],
    "numbers": ["1e5", "007", "1", "-2.50", "inf", "0x10"],
    "zeros": ["007", "1"],
    "truth": ["true", "false", "True"],
    "days": ["2024-01-05", "2024-12-31"],
    "times": ["2024-01-05 10:00:00", "2024-01-05T10:00:00"],
    "clock": ["10:00:00"],
    "uuids": ["8c1f6f64-9b6f-4e5a-9d1a-0123456789ab"],
    "lines": [
        "a\x85b",
        "a\u2028b",
        "a\u2029b",
        "a\nb",
        "a\rb",
        "a\r\nb",
        "a\x0bb",
        "\x0c",
        "\x1c",
        "\x1e",
    ],
    "signs": [
        'a"b',
        '"',
        "'",
        "a\tb",
        "a,b;c",
        "\\",
        "a\\b",
        "\\n",
        "\\u2028",
        "#c",
        " a ",
        "=1+1",
    ],
    "ends": ["a\0b", "\0", "", "\ufeffx"],
}


def rows_of(found):
    """The rows that a line gives, as dicts."""
    if isinstance(found, list):
        return found
    if isinstance(found, duckdb.DuckDBPyRelation):
        found = found.to_arrow_table()
    if isinstance(found, pandas.DataFrame):
        return found.to_dict("records")
    name = {"Table": "to_pylist", "DataFrame": "to_dicts", "Dataset": "to_list"}[
        type(found).__name__
    ]
    return getattr(found, name)()


def table_of(name, texts):
    """Rows of a release with these texts as items, words or groups, and the form of its files."""
    scores = pa.array([90.5 - place for place in range(len(texts))])
    if name == "item":
        return PROGRAMS["set-union"], pa.table([texts, scores], schema=ITEM_SCHEMA)
    lengths = pa.array([1] * len(texts), pa.int32())
    ngrams = [join_tokens([text]) for text in texts]
    if name == "ngram":
        return PROGRAMS["ngrams"], pa.table([lengths, ngrams, scores], schema=ROW_SCHEMA)
    schema = ROW_SCHEMA.insert(1, GROUP_FIELD)
    return PROGRAMS["ngrams"], pa.table([lengths, texts, ["a"] * len(texts), scores], schema=schema)


def read(reader, line, path):
    """Runs a line of the page."""
    if reader == "DuckDB":
        return rows_of(duckdb.sql(line.replace("PATH", str(path))))
    modules = {
        "csv": csv,
        "io": io,
        "json": json,
        "pathlib": pathlib,
        "pandas": pandas,
        "pyarrow": pa,
    }
    if reader in OPTIONAL:
        modules[reader] = importlib.import_module(reader)
    return rows_of(eval(line, modules, {"path": str(path)}))


def check(tmp_path, reader, kind, line, name):
    for all_texts in TEXTS.values():
        texts = [text for text in all_texts if name != "group" or GROUP.match(text)]
        program, rows = table_of(name, texts)
        ((part, data),) = render_parts(program, rows, kind, len(texts))
        path = tmp_path / part.name
        path.write_bytes(data)
        found = [row[name] for row in read(reader, line.replace("item", name), path)]
        if kind == "tsv":
            found = list(map(unescape_item, found))
        elif name == "ngram":
            found = [text for (text,) in map(split_ngram, found)]
        assert found == texts


PLAIN = [line for line in LINES if line[0] not in OPTIONAL]


def test_the_page_has_each_reader_and_each_format():
    assert len(LINES) == 20
    assert {kind for _, kind, _ in LINES} == set(OUTPUT_FORMATS)


@pytest.mark.parametrize("name", ["item", "ngram", "group"])
@pytest.mark.parametrize(("reader", "kind", "line"), PLAIN)
def test_the_lines_of_the_page_give_the_exact_texts(tmp_path, reader, kind, line, name):
    check(tmp_path, reader, kind, line, name)


@pytest.mark.readers
@pytest.mark.parametrize(
    ("reader", "kind", "line"), [each for each in LINES if each[0] in OPTIONAL]
)
def test_polars_and_datasets_give_the_exact_texts(tmp_path, reader, kind, line, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    check(tmp_path, reader, kind, line, "item")


@pytest.mark.readers
@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet"])
@pytest.mark.parametrize("name", ["nothing", "numbers", "zeros", "days"])
def test_a_card_lets_datasets_find_the_exact_texts(tmp_path, kind, name, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    datasets = importlib.import_module("datasets")
    scores = {text: 90.5 - place for place, text in enumerate(TEXTS[name])}
    releases.items(tmp_path / "release", scores, output_format=kind)
    export(read_release(str(tmp_path / "release")), "card", str(tmp_path / "release" / "README.md"))
    loaded = datasets.load_dataset(str(tmp_path / "release"), split="train")
    assert loaded["item"][:] == TEXTS[name]


@pytest.mark.parametrize("name", ["item", "ngram", "group"])
def test_every_line_of_a_file_is_one_row_and_is_read_back(name):
    texts = [*TEXTS["lines"], *TEXTS["signs"], *TEXTS["ends"]]
    texts = [text for text in texts if name != "group" or GROUP.match(text)]
    program, rows = table_of(name, texts)
    for kind in ("jsonl", "tsv"):
        ((part, data),) = render_parts(program, rows, kind, len(texts))
        assert len(data.decode().splitlines()) == len(texts) + (kind == "tsv")
        assert b"\0" not in data
        assert parse_part(part.name, data, rows.column_names).equals(rows)
    exported = csv_text(rows)
    assert len(exported.splitlines()) == len(texts) + 1
    assert parse_copied(exported.encode(), "csv").select([name]).equals(rows.select([name]))
