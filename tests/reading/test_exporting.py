"""The statements of docs/exporting.md that tests can run give files that are read as they were."""

import re

import duckdb
import pandas as pd
import pytest

from beam_dpne.documents.tokenizers import item
from beam_dpne.evaluation.corpus import read_corpus
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import ReadOptions
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "exporting.md").read_text(encoding="utf-8")
LINES = re.findall(
    r"^\| [^|]+ \| `([^`]+)` \| `(messages[.\w]*)` \| [^|]+, in the tests \|$", PAGE, re.MULTILINE
)
TEXTS = [
    *("plain", "tab\there", "line\nend", 'say "hi", ok', "back\\slash \\n", "", "null", "NULL"),
    *("cr\rlf", "it's; ü €", " a ", '"', "\u2028", "=1+1", "007", "2024-01-05", None),
]


def test_the_page_has_statements_that_are_run():
    assert len(LINES) == 4


@pytest.mark.parametrize(("statement", "path"), LINES)
def test_exported_texts_are_read_back_as_they_were(tmp_path, monkeypatch, statement, path):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"customer": range(len(TEXTS)), "message": TEXTS})
    if statement.startswith("COPY"):
        with duckdb.connect() as database:
            database.register("messages", frame)
            database.sql(statement)
    else:
        eval(statement, {"frame": frame})
    read: list[str] = []

    def gathering(texts):
        read.extend(texts.to_pylist())
        return item(texts)

    options = ReadOptions(user_field="customer", text_field=("message",))
    corpus = read_corpus(match_inputs([path]), options, gathering)
    assert corpus.rejected_reasons == {}
    assert sorted(read) == sorted(text for text in TEXTS if text is not None)
    assert set(corpus.users.to_pylist()) == set(map(str, range(len(TEXTS) - 1)))
