"""CSV for spreadsheets, documents for Elasticsearch, and a data card.

Documents for Elasticsearch are NDJSON for the _bulk interface. Their completion field has as `input`
the text that a person types: the words, joined by blanks, without escapes. `weight` must be a whole
number from 0 to 2^31 − 1. A completion field refuses the characters U+0000, U+001E and U+001F, and
ignores an input of blanks, so such rows are left out.

The card is the README.md of a data set on the Hugging Face Hub, made from the ledger alone: it names no
n-gram and no item. Its front matter lists the parts, so that `datasets.load_dataset` loads the release
from the repository that has its files and this card.
"""

import csv
import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import yaml

from beam_dpne.elements.rows import SEPARATOR, escape_item
from beam_dpne.errors import ExportError
from beam_dpne.exports.writing import Source
from beam_dpne.report.document import environment

# Spreadsheets take a cell that begins with one of these as a formula; the last four are the full-width
# forms of the first four. With the apostrophe, a reader knows which ones were added.
_FORMULA = re.compile("[=+\\-@\t\r'\uff1d\uff0b\uff0d\uff20]")
_REFUSED = re.compile("[\x00\x1e\x1f]")
_MOST = 2**31 - 1
_UNSEARCHABLE = "rows of blanks or with a character that a completion field refuses"
_LICENSE = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")
# A file of tabs has no quotes; 3 is `csv.QUOTE_NONE`.
_TABS = {"sep": "\t", "quoting": 3}


def csv_file(source: Source) -> tuple[str, Mapping[str, int]]:
    """Returns the rows with one line of headings; texts are one line each and are no formulas."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(source.rows.column_names)
    # The text of an n-gram is one line already.
    line = escape_item if source.program == "set-union" else str
    for row in zip(*(column.to_pylist() for column in source.rows.columns), strict=True):
        writer.writerow([guard(line(cell)) if isinstance(cell, str) else cell for cell in row])
    return stream.getvalue(), {}


def guard(text: str) -> str:
    """Returns a text that a spreadsheet shows instead of computing.

    >>> guard("=1+1"), guard("it's"), guard("'tis")
    ("'=1+1", "it's", "''tis")
    """
    return f"'{text}" if _FORMULA.match(text) else text


def suggestions(source: Source) -> tuple[str, Mapping[str, int]]:
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
        # The id depends on the text alone, so that sending a file again adds nothing.
        row_id = hashlib.sha256(text.encode()).hexdigest()[:32]
        lines += [{"index": {"_id": row_id}}, document]
    return "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines), left_out


def _suggestion_weights(source: Source) -> list[int]:
    """Returns the users of each row, or else millionths of the largest weight of its length."""
    weights = source.weights
    if source.value_column != "users":
        largest = np.zeros(int(source.lengths.max(initial=0)) + 1)
        np.maximum.at(largest, source.lengths, weights)
        weights = np.maximum(1.0, weights / largest[source.lengths] * 1e6)
    return np.rint(weights).clip(0, _MOST).astype(np.int64).tolist()


def card(source: Source, license: str | None = None) -> tuple[str, Mapping[str, int]]:
    """Returns the card.

    Args:
      source: A release of any program.
      license: The Hub's name of the licence, or None to leave it out.

    Raises:
      ExportError: The licence has another form.
    """
    if license is not None and not _LICENSE.fullmatch(license):
        raise ExportError(
            f"license must be the Hub's name of a licence like cc-by-4.0, got license={license}."
        )
    head = _front_matter(source, license)
    text = (
        environment("markdown")
        .get_template("card.jinja")
        .render(
            head=yaml.safe_dump(head, sort_keys=False, allow_unicode=True, width=1000),
            title=source.title,
            ledger=source.ledger,
            rows=len(source.rows),
            noun=source.noun,
            sha256=source.ledger_sha256,
        )
    )
    return text, {}


def _front_matter(source: Source, license_name: str | None) -> dict[str, Any]:
    ledger = source.ledger
    names = [part["name"] for part in ledger["parts"]]
    config = {"config_name": "default", "data_files": [{"split": "train", "path": names}]}
    return {
        "pretty_name": source.title,
        **({"license": license_name} if license_name is not None else {}),
        "tags": ["differential-privacy", source.program],
        "configs": [config | (_TABS if names[0].endswith(".tsv") else {})],
        "differential_privacy": {
            "epsilon": ledger["guarantee"]["epsilon"],
            "delta": ledger["guarantee"]["delta"],
            "unit": ledger["guarantee"]["user"],
            "ledger_sha256": source.ledger_sha256,
        },
    }
