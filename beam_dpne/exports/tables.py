"""CSV for spreadsheets, a SQL script for DuckDB, and documents for Elasticsearch.

A database file of DuckDB holds random identifiers, so that two exports of one release would differ. The
script has none, can be read by any version of DuckDB, and holds the ledger too.

Documents for Elasticsearch are NDJSON for the _bulk interface. Their completion field has as `input`
the text that a person types: the words, joined by blanks, without escapes. `weight` must be a whole
number from 0 to 2^31 − 1. A completion field refuses the characters U+0000, U+001E and U+001F, and
ignores an input of blanks, so such rows are left out.
"""

import csv
import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from beam_dpne.elements.rows import SEPARATOR, escape_item
from beam_dpne.exports.source import Rendered, Source

# Spreadsheets take a cell that begins with one of these as a formula; the last four are the full-width
# forms of the first four. The apostrophe is here so that `unguard` knows which ones were added.
_FORMULA = re.compile("[=+\\-@\t\r'\uff1d\uff0b\uff0d\uff20]")
_ROWS_AT_ONCE = 1000
_SQL_TYPES = {pa.int32(): "INTEGER", pa.int64(): "BIGINT", pa.float64(): "DOUBLE"}
_TABLES = {"ngrams": "ngrams", "set-union": "items", "bayesian": "probabilities"}
_REFUSED = re.compile("[\x00\x1e\x1f]")
_MOST = 2**31 - 1
_MILLION = 1_000_000
_UNSEARCHABLE = "rows of blanks or with a character that a completion field refuses"
_CONTROL = re.compile("([\x00-\x1f\x7f])")


def csv_file(source: Source) -> Rendered:
    """Returns the rows with one line of headings; texts are one line each and are no formulas."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(source.rows.column_names)
    columns = _columns(source, lambda text: guard(_one_line(source, text)), missing="")
    writer.writerows(zip(*columns, strict=True))
    return Rendered(stream.getvalue().encode(), source)


def guard(text: str) -> str:
    """Returns a text that a spreadsheet shows instead of computing; inverse of `unguard`.

    >>> guard("=1+1"), guard("it's"), guard("'tis")
    ("'=1+1", "it's", "''tis")
    """
    return f"'{text}" if _FORMULA.match(text) else text


def unguard(cell: str) -> str:
    """Returns the text of a cell of the CSV.

    >>> unguard("'=1+1")
    '=1+1'
    """
    return cell.removeprefix("'")


def _one_line(source: Source, text: str) -> str:
    # The text of an n-gram is one line already.
    return escape_item(text) if source.program == "set-union" else text


def duckdb_script(source: Source) -> Rendered:
    """Returns a script that makes a table of the rows, and the table `ledger` with one row."""
    name = _TABLES[source.program]
    fields = [
        f"{field.name} {_SQL_TYPES.get(field.type, 'VARCHAR')}" for field in source.rows.schema
    ]
    ledger = json.dumps(source.ledger, ensure_ascii=True, allow_nan=False)
    parts = [
        f"-- {' '.join(source.title.split())}\n",
        f"-- SHA-256 of its ledger.json: {source.ledger_sha256}\n",
        "BEGIN TRANSACTION;\n",
        f"CREATE TABLE {name} ({', '.join(fields)});\n",
        *_inserts(name, source),
        "CREATE TABLE ledger (sha256 VARCHAR, ledger JSON);\n",
        f"INSERT INTO ledger VALUES ({_literal(source.ledger_sha256)}, {_literal(ledger)});\n",
        *(
            f"COMMENT ON COLUMN {name}.{column} IS {_literal(meaning)};\n"
            for column, meaning in source.ledger["columns"].items()
            if column in source.rows.column_names
        ),
        "COMMIT;\n",
    ]
    return Rendered("".join(parts).encode(), source)


def _inserts(name: str, source: Source) -> Iterator[str]:
    columns = _columns(source, _literal, missing="NULL")
    lines = [f"({', '.join(row)})" for row in zip(*columns, strict=True)]
    for start in range(0, len(lines), _ROWS_AT_ONCE):
        values = ",\n".join(lines[start : start + _ROWS_AT_ONCE])
        yield f"INSERT INTO {name} VALUES\n{values};\n"


def _columns(source: Source, write: Callable[[str], str], *, missing: str) -> list[list[str]]:
    """Returns the values of each column; texts as `write` writes them, numbers as `repr` does."""
    columns = []
    for column in source.rows.columns:
        form = write if pa.types.is_string(column.type) else repr
        values = column.to_pylist()
        columns.append([missing if value is None else form(value) for value in values])
    return columns


def _literal(text: str) -> str:
    r"""Returns a text as a literal of SQL; control characters are computed, since some end a script.

    >>> _literal("it's"), _literal("a\n")
    ("'it''s'", "'a' || chr(10) || ''")
    """
    quoted = text.replace("'", "''")
    return "'" + _CONTROL.sub(lambda found: f"' || chr({ord(found[1])}) || '", quoted) + "'"


def suggestions(source: Source) -> Rendered:
    """Returns two lines for each row: an action with the row's id, and the document."""
    left_out: Counter[str] = Counter()
    lines = []
    rows = source.rows.to_pylist()
    for row, text, tokens, weight in zip(
        rows, source.texts, source.tokens, _suggestion_weights(source), strict=True
    ):
        typed = SEPARATOR.join(tokens)
        if not typed.strip() or _REFUSED.search(typed):
            left_out[_UNSEARCHABLE] += 1
            continue
        suggestion = {"input": typed, "weight": weight}
        document = {"suggest": suggestion, **row, "ledger_sha256": source.ledger_sha256}
        lines += [{"index": {"_id": _row_id(text)}}, document]
    data = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
    return Rendered(data.encode(), source, left_out)


def _suggestion_weights(source: Source) -> list[int]:
    """Returns the users of each row, or else millionths of the largest weight of its length."""
    weights = source.weights
    if source.weight_name != "users":
        largest = np.zeros(int(source.lengths.max(initial=0)) + 1)
        np.maximum.at(largest, source.lengths, weights)
        weights = np.maximum(1.0, weights / largest[source.lengths] * _MILLION)
    return np.rint(weights).clip(0, _MOST).astype(np.int64).tolist()


def _row_id(text: str) -> str:
    """Returns an id that depends on the text alone, so that sending a file again adds nothing."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]
