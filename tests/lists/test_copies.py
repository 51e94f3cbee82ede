"""A copy of the input is no public file, in whatever form it is; other files are."""

import csv
import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from beam_dpne.errors import UsageError
from beam_dpne.lists.copies import refuse_input
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import ReadOptions

ROWS = [(f"user {n}", f'text {n % 40}, "of tea"') for n in range(300)]
READING = ReadOptions(text_field="item")


def written(path, rows, kind="jsonl", encoding="utf-8"):
    """A file with rows of users and items in one format."""
    if kind == "parquet":
        users, items = zip(*rows, strict=True)
        pa.parquet.write_table(pa.table({"user": users, "item": items}), path)
        return path
    if kind == "jsonl":
        lines = [json.dumps({"item": item, "user": user}) for user, item in rows]
        text = "\n".join(lines)
    elif kind == "csv":
        stream = io.StringIO()
        csv.writer(stream).writerows([("user", "item"), *rows])
        text = stream.getvalue()
    else:
        text = "\r\n".join(item for _, item in rows)
    data = text.encode(encoding)
    if path.suffix == ".gz":
        data = gzip.compress(data)
    path.write_bytes(data)
    return path


def is_refused(path, inputs, reading=READING) -> bool:
    files = match_inputs([str(each) for each in inputs])
    try:
        refuse_input("known", str(path), files, reading)
    except UsageError:
        return True
    return False


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize(
    ("name", "form", "encoding"),
    [
        ("copy.jsonl.gz", "jsonl", "utf-8"),
        ("copy.csv", "csv", "utf-8"),
        ("copy.parquet", "parquet", "utf-8"),
        ("copy.txt", "txt", "utf-8"),
        ("copy.txt.gz", "txt", "utf-8"),
        ("copy.txt", "txt", "utf-16"),
    ],
)
def test_a_copy_in_another_form_and_order_is_refused(kind, name, form, encoding, tmp_path):
    inputs = [written(tmp_path / f"input.{kind}", ROWS, kind)]
    copied = written(tmp_path / name, ROWS[::-1], form, encoding)
    assert is_refused(copied, inputs)
    # Without one text, with one more, and with each text once: a public list may have all choices.
    for rows in (without_one(ROWS), [*ROWS, ("ann", "more")], ROWS[:40]):
        assert not is_refused(written(tmp_path / name, rows, form, encoding), inputs)


def without_one(rows):
    return [row for row in rows if row[1] != ROWS[0][1]]


def test_a_list_of_the_distinct_texts_of_an_input_is_refused(tmp_path):
    texts = [*(f"text {n}" for n in range(50)), "text 7"]
    inputs = [written(tmp_path / "input.csv", [("ann", text) for text in texts], "csv")]
    assert is_refused(written(tmp_path / "list.txt", [("", t) for t in {*texts}], "txt"), inputs)


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_a_list_of_several_files_of_the_input_is_refused(parts, tmp_path):
    inputs = [
        written(tmp_path / f"input-{place}.jsonl", rows)
        for place, rows in enumerate((ROWS[:100], ROWS[100:200], ROWS[200:]))
    ]
    together = ROWS[300 - 100 * parts :]
    assert is_refused(written(tmp_path / "copy.parquet", together, "parquet"), inputs)
    fewer = without_one(together)
    assert not is_refused(written(tmp_path / "copy.parquet", fewer, "parquet"), inputs)


def test_lines_are_compared_where_nobody_says_how_the_input_is_read(tmp_path):
    inputs = [written(tmp_path / "input.csv", ROWS, "csv", "utf-8")]
    copied = tmp_path / "copy.txt.gz"
    copied.write_bytes(gzip.compress(inputs[0].read_text().replace("\r\n", "\n").encode("utf-16")))
    assert is_refused(copied, inputs, reading=None)
    assert not is_refused(written(tmp_path / "copy.txt", ROWS, "txt"), inputs, reading=None)


def test_tokens_of_lists_are_texts(tmp_path):
    items = [(f"user {n}", ["tea", f"cup {n % 7}"]) for n in range(50)]
    inputs = [written(tmp_path / "input.jsonl", items)]
    reading = ReadOptions(text_field="item", text_is_tokens=True)
    flat = [("", item) for _, each in items for item in each]
    joined = [("", " ".join(each)) for _, each in items]
    for rows in (flat, joined):
        assert is_refused(written(tmp_path / "copy.csv", rows, "csv"), inputs, reading)
        assert is_refused(written(tmp_path / "copy.txt", rows, "txt"), inputs, reading)
    # A vocabulary of all items, each once, may well be public.
    distinct = [("", item) for item in sorted({item for _, item in flat})]
    assert not is_refused(written(tmp_path / "copy.csv", distinct, "csv"), inputs, reading)


@pytest.mark.parametrize(
    ("program", "option", "kind"),
    [
        ("ngrams", "known", "txt"),
        ("set-union", "known", "txt"),
        ("bayesian", "public", "txt"),
        # Its lines have users, too, so that the texts of the table must be compared.
        ("bayesian", "public", "csv"),
        ("ngrams", "stop_list", "txt"),
        ("bayesian", "stop_list", "txt"),
    ],
)
def test_programs_refuse_a_copy(program, option, kind, cli, tmp_path):
    source = written(tmp_path / "input.parquet", ROWS, "parquet")
    copied = written(tmp_path / f"copy.{kind}.gz", ROWS[::-1], kind)
    lists = {"public": tmp_path / "public.txt", option: copied}
    (tmp_path / "public.txt").write_text("green tea\n")
    given = [
        f"--{name}={path}"
        for name, path in lists.items()
        if name == option or program == "bayesian"
    ]
    more = ["--length", "1"] if program == "bayesian" else []
    more += ["--tokenizer", "words"] if program == "set-union" else []
    budget = ("--epsilon", "1", "--delta", "1e-6", "--text_field", "item")
    ended = cli(program, "--input", source, "--output", tmp_path / "out", *budget, *given, *more)
    assert ended.status == 2
    assert f"--{option} must not be private data" in ended.err
    assert not (tmp_path / "out").exists()
