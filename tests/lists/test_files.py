"""A public list means the same for each parameter that names it."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from beam_dpne.elements.rows import COUNTED_ROW_SCHEMA, ROW_SCHEMA, join_tokens
from beam_dpne.errors import InputError, PublicCountsError
from beam_dpne.exports.writing import csv_text
from beam_dpne.lists.files import plain_texts
from beam_dpne.lists.known import read_known
from beam_dpne.lists.parameters import KnownLists
from beam_dpne.lists.public_counts import read_counts_of_lengths, read_public_counts
from beam_dpne.release.parts import PROGRAMS, render_parts
from tests.support import releases

TOLD = {"to be": 3, "be or": 2, "New\\sYork city": 1}
NUMBERED = [{"ngram": text, "count": count} for text, count in TOLD.items()]
COUNTED = "".join(f"{text}\t{count}\n" for text, count in TOLD.items()).encode()
CSV = b"count,ngram,more\n" + b"".join(b"%d,%s,x\n" % (n, t.encode()) for t, n in TOLD.items())
JSON = "\n".join(map(json.dumps, NUMBERED)).encode()


def released(schema: pa.Schema) -> pa.Table:
    """The rows of a release, with numbers of users if the schema has them."""
    columns = [[2] * 3, [*TOLD], [float(count) + 0.25 for count in TOLD.values()]]
    if "users" in schema.names:
        columns += [[*TOLD.values()]] * 3
    return pa.table(columns, schema=schema)


def part(schema: pa.Schema, kind: str) -> bytes:
    ((_, data),) = render_parts(PROGRAMS["ngrams"], released(schema), kind, 10)
    return data


def parquet(rows: list[dict]) -> bytes:
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("counts.tsv", COUNTED),
        ("counts", b"\n\r\n" + COUNTED),
        ("counts.txt.gz", COUNTED),
        ("table.tsv", b"ngram\tcount\n" + COUNTED),
        ("table.txt", b"\xef\xbb\xbfngram\tcount\n" + COUNTED),
        ("table.csv", CSV),
        ("table.jsonl", JSON),
        ("table.parquet", parquet(NUMBERED)),
        *((f"part.{kind}", part(COUNTED_ROW_SCHEMA, kind)) for kind in ("jsonl", "tsv", "parquet")),
        *((f"scores.{kind}", part(ROW_SCHEMA, kind)) for kind in ("jsonl", "csv")),
        ("export.csv", csv_text(released(COUNTED_ROW_SCHEMA)).encode()),
    ],
)
def test_a_file_with_counts_is_known_and_counted_alike(name, content, tmp_path):
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    public = read_public_counts(str(path), length=2, tokenizer="tokens")
    assert dict(zip(public.texts().to_pylist(), public.counts.tolist(), strict=True)) == TOLD
    known = read_known(KnownLists(known=str(path), known_min_count=1), 3, "tokens")
    words = known.words.to_pylist()
    (rows,) = (rows for rows in known.grams if len(rows))
    assert {join_tokens([words[code] for code in row]) for row in rows.tolist()} == {*TOLD}
    assert known.lists[0]["kind"] == "table"
    assert sorted(plain_texts("known", str(path))) == ["New York city", "be or", "to be"]


def test_a_file_of_counts_is_known_from_the_least_count_on(tmp_path):
    path = tmp_path / "counts.tsv"
    path.write_text("to be\t3\nitem\t5\nbe or\t2\n")
    known = read_known(KnownLists(known=str(path), known_min_count=3), 3, "words")
    assert known.words.to_pylist() == ["be", "item", "to"]
    assert [len(rows) for rows in known.grams] == [1, 1]


READERS = {
    "known": lambda path, tokenizer: read_known(
        KnownLists(known=path, known_min_count=1), 2, tokenizer
    ),
    "public": lambda path, tokenizer: read_public_counts(path, length=2, tokenizer=tokenizer),
}


@pytest.mark.parametrize("name", [*READERS])
@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("a.txt", b"\n" + JSON, "must be a text, .*JSON"),
        ("model.arpa", b"\\data\\\nngram 1=2\n", "must be a text, .*language model"),
        ("a.csv", b"phrase,count\nto be,3\n", r"ngram or item, .* columns 'phrase', 'count'\."),
        ("a.csv", b"ngram;count\nto be;3\n", "Semicolons stand between its fields: write it with"),
        ("a.csv", b"PK\x03\x04\0\0xl/workbook.xml", "seems to be a workbook"),
        ("a.txt", b"PAR1", r"one of Parquet: rename it"),
        ("a.tsv", b"phrase\nto be\n", "must be a table with a column ngram or item"),
        ("a.tsv", b"phrase\tcount\nto be\t3\n", "lines `ngram<TAB>count`, .*line 1 is none"),
        ("a.txt", b"to be\t3\nbe or\n", "lines `ngram<TAB>count`, .*line 2 is none"),
        ("a.txt", b"to  be\t3\n", "has a malformed line 1"),
        ("a.csv", b"ngram,count\nto be,many\n", "must have numbers in the column count"),
        ("a.csv", b"ngram,count\nto \\q,3\n", "must have n-grams and items with the escapes"),
        ("a.parquet", b"PAR1", "a.parquet cannot be read"),
        ("a.txt", b"to \xff be\n", "is not UTF-8"),
    ],
)
def test_what_is_no_list_is_refused_alike_and_not_quoted(name, file, content, said, tmp_path):
    path = tmp_path / file
    path.write_bytes(content)
    with pytest.raises(InputError, match=said) as raised:
        READERS[name](str(path), "words")
    assert "to be" not in str(raised.value).replace("seems to be", "")
    assert str(raised.value).startswith((f"`{name}`", str(path)))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("ngram\nto be\n", "in a column count"),
        ("ngram,group,count\nto be,de,3\n", "without groups"),
        ("ngram,count\nto be,2.5\n", "whole numbers"),
        ("ngram,count\nto be,\nbe or,2\n", "whole numbers"),
    ],
)
def test_counts_are_refused_that_do_not_say_how_common_each_n_gram_is(content, said, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=said):
        read_public_counts(str(path), length=2)


def test_a_release_is_known_as_a_whole_and_counted_by_length_but_for_probabilities(tmp_path):
    grams = {("to",): 9, ("be",): 8.6, ("to", "be"): 3.4, ("be", "or"): -2}
    releases.ngrams(tmp_path / "ngrams", grams)
    releases.items(tmp_path / "items", {"new york": 7, "tea": 5}, count_share=0.2)
    releases.probabilities(tmp_path / "probabilities", {("to", "be"): 1.0})
    ledger = tmp_path / "ngrams" / "ledger.json"
    one, two = read_counts_of_lengths(str(ledger), [1, 2], "words")
    assert dict(zip(one.texts().to_pylist(), one.counts.tolist(), strict=True)) == {
        "to": 9,
        "be": 9,
    }
    assert dict(zip(two.texts().to_pylist(), two.counts, strict=True)) == {"to be": 3, "be or": 0}
    items = read_public_counts(str(tmp_path / "items"), length=1, tokenizer="item")
    assert dict(zip(items.words.to_pylist(), items.counts, strict=True)) == {
        "new york": 7,
        "tea": 5,
    }
    known = read_known(KnownLists(known=str(tmp_path / "ngrams"), known_min_count=9), 2, "words")
    assert [len(rows) for rows in known.grams] == [2, 2]
    with pytest.raises(PublicCountsError, match="of `length=3`, got the release"):
        read_public_counts(str(tmp_path / "ngrams"), length=3)
    (tmp_path / "text").write_text("to be or\n")
    for reader in READERS.values():
        for name, said in (
            ("probabilities", "a release of ngrams or"),
            ("text", "a table, a file of"),
        ):
            with pytest.raises(InputError, match=f"must be {said}"):
                reader(str(tmp_path / name), "tokens")
