"""Bad input: a clear error or a dead letter, nothing lost, nothing half written, nothing quoted.

Every bad input holds a canary, which is searched for in all that a run prints, logs and leaves.
"""

import bz2
import contextlib
import gzip
import itertools
import json
import logging
import os
import pathlib
import random
import re
import resource
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_dpne.cli.run_folders import PREFIX
from beam_dpne.release.reading import read_release
from tests.conftest import ROOT, Program

CANARY = "CANARY zebra 4711"
TRACES = (b"canary", b"zebra", b"4711")
BUDGET = ("--epsilon", 10, "--delta", 1e-4, "--max_length", 1, "--max_contributions", 5)
KEY = "5a" * 32
GOOD = [(f"u{place}", "good morning dear friend") for place in range(100)]
MSNBC = ROOT / "pipelines" / "data" / "msnbc990928.seq.gz"


def jsonl(rows):
    return "".join(json.dumps({"user": u, "text": t}) + "\n" for u, t in rows).encode()


def delimited(rows, delimiter=",", header="user{}text\n"):
    text = "".join(f"{u}{delimiter}{t}\n" for u, t in rows)
    return (header.format(delimiter) + text).encode()


def random_words(count, seed=3):
    chance = random.Random(seed)
    return " ".join(f"{CANARY} {chance.getrandbits(64):x}" for _ in range(count))


def write_parquet(path, users, texts, **settings):
    table = pa.table({"user": users, "text": texts})
    pq.write_table(table, path, **settings)
    return path


def files_of(folder):
    return {path.name: path.read_bytes() for path in sorted(pathlib.Path(folder).iterdir())}


def assert_silent(*said):
    """No trace of the canary in texts, bytes, or the names and bytes of all files of folders."""
    for what in said:
        if isinstance(what, pathlib.Path):
            for path in what.rglob("*") if what.is_dir() else ():
                assert_silent(path.name, path.read_bytes() if path.is_file() else "")
        else:
            lowered = (what.encode() if isinstance(what, str) else what).lower()
            assert not [trace for trace in TRACES if trace in lowered], lowered[:2000]


@pytest.fixture
def work(tmp_path_factory):
    """A folder whose path says nothing of the test; inputs go into `in`, a run into the rest."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "in").mkdir()
    (folder / "made").mkdir()
    return folder


@pytest.fixture
def attempt(cli, work, caplog, capfd):
    """Runs `beam-dpne ngrams` and checks that nothing that it says or leaves quotes the data."""

    def run(*arguments, output=None):
        for name in (None, "apache_beam", "beam_dpne"):
            caplog.set_level(logging.DEBUG, logger=name)
        out = output or work / "made" / "release"
        ended = cli(
            *("ngrams", "--output", out, "--rejects", work / "made" / "rejects"),
            *(() if "--epsilon" in arguments or "--plan" in arguments else BUDGET),
            *arguments,
        )
        raw = capfd.readouterr()
        logged = "".join(f"{record.getMessage()}{record.exc_text}" for record in caplog.records)
        assert_silent(*ended[1:], *raw, logged, work / "made")
        assert "Traceback" not in ended.err + raw.err
        return ended

    return run


@pytest.fixture(scope="module")
def good_release(cli, tmp_path_factory):
    """From the name of a file and options of reading to the files of a release of good records alone.

    The key is bound to how records are read, so each way of reading has a release of its own.
    """
    folder = tmp_path_factory.mktemp("good")
    (folder / "key").write_text(KEY)
    users, texts = (list(column) for column in zip(*GOOD, strict=True))
    made = {}

    def release(name="a.jsonl", *options):
        kind = next(part for part in name.split(".") if part in ("jsonl", "csv", "tsv", "parquet"))
        case = (kind, options)
        if case not in made:
            path = folder / f"good.{kind}"
            if kind == "parquet":
                write_parquet(path, users, texts)
            else:
                path.write_bytes(b"".join(good_lines(kind)))
            out = folder / str(len(made))
            given = ("--input", path, "--output", out, *BUDGET, *options)
            assert cli("ngrams", *given, "--run_key_file", folder / "key").status == 0
            made[case] = files_of(out)
        return made[case], folder / "key"

    return release


def assert_nothing_published(work):
    assert not (work / "made" / "release").exists()
    assert not [path for path in work.rglob("*") if "tmp" in path.name or "temp" in path.name]


# Records that are rejected: all of a format in one file, each between good ones


C = CANARY.encode()
NOT_UTF8 = "not valid UTF-8; if it is another encoding, name it with --encoding"
LIMIT = 200_000
LIMITS = ("--max_record_bytes", LIMIT, "--max_rejected", 0.2)
BAD_LINES = {
    "jsonl": [
        (b'{"user":"u","text":"%b' % C, "malformed JSON"),
        (b'{"user":"u","text":"a"} {"user":"%b","text":"a"}' % C, "malformed JSON"),
        (b"[" * 100_000 + C, "not a JSON object"),
        (b'["%b"]' % C, "not a JSON object"),
        (b'{"text":"%b"}' % C, "user is null or missing"),
        (b'{"user":null,"text":"%b"}' % C, "user is null or missing"),
        (b'{"user":"","text":"%b"}' % C, "user is empty"),
        (b'{"user":1.5,"text":"%b"}' % C, "user is not text or an integer"),
        (b'{"user":true,"text":"%b"}' % C, "user is not text or an integer"),
        (b'{"user":["%b"],"text":"a"}' % C, "user is not text or an integer"),
        (b'{"user":"%b","text":null}' % C, "text is null or missing"),
        (b'{"user":"%b"}' % C, "text is null or missing"),
        (b'{"user":"%b","text":4711}' % C, "text is not text"),
        (b'{"user":"u","text":["%b"]}' % C, "text is not text"),
        (b'{"user":"u","text":"%b\xff"}' % C, NOT_UTF8),
        (b'{"user":"u","text":"%b"}' % (C * LIMIT), "longer than max_record_bytes"),
    ],
    "csv": [
        (b"u,%b,%b" % (C, C), "wrong number of columns"),
        (b"%b" % C, "wrong number of columns"),
        (b'u,"%b" and %b' % (C, C), "text after a closing quote"),
        (b',"%b"' % C, "user is empty"),
        (b"u,%b\xff" % C, NOT_UTF8),
        (b'u,"%b"' % (C * LIMIT), "longer than max_record_bytes"),
    ],
    "tsv": [
        (b"u\t%b\t" % C, "wrong number of columns"),
        (b"\xff\t%b" % C, NOT_UTF8),
    ],
}


def good_lines(kind):
    """A file of good records alone, by lines."""
    delimiters = {"csv": ",", "tsv": "\t"}
    data = delimited(GOOD, delimiters[kind]) if kind in delimiters else jsonl(GOOD)
    return data.splitlines(keepends=True)


def with_bad_lines(good, bad):
    """Good lines with each bad one between two of them, and the reasons of the bad by position."""
    content, reasons = b"".join(good[:30]), {}
    for (line, reason), after in zip(bad, good[30:], strict=False):
        reasons[len(content)] = reason
        content += line + b"\n" + after
    return content + b"".join(good[30 + len(bad) :]), reasons


def listed_rejects(work):
    (listed,) = files_of(work / "made" / "rejects").values()
    return [json.loads(line) for line in listed.splitlines()]


@pytest.mark.parametrize("kind", BAD_LINES)
def test_bad_records_are_rejected_and_cost_none_of_the_others(attempt, work, good_release, kind):
    content, reasons = with_bad_lines(good_lines(kind), BAD_LINES[kind])
    path = work / "in" / f"a.{kind}"
    path.write_bytes(content)
    files, key = good_release(path.name, *LIMITS)
    ended = attempt("--input", path, "--run_key_file", key, *LIMITS)
    assert ended.status == 0, ended.err
    assert f"{len(reasons)} records were rejected (see {work / 'made' / 'rejects'})" in ended.err
    found = sorted(listed_rejects(work), key=lambda row: row["position"])
    assert found == [
        {"file": str(path), "position": position, "unit": "byte", "reason": reason}
        for position, reason in reasons.items()
    ]
    assert files_of(work / "made" / "release") == files


def test_bad_rows_of_parquet_are_rejected(attempt, work, good_release):
    bad = [
        (None, C, "user is null or missing"),
        ("", C, "user is empty"),
        (CANARY, None, "text is null or missing"),
        ("u", C * LIMIT, "longer than max_record_bytes"),
        ("u", C + b"\xff", "not valid UTF-8"),
    ]
    texts = pa.array([*(t.encode() for _, t in GOOD), *(t for _, t, _ in bad)], pa.binary())
    path = write_parquet(
        work / "in" / "a.parquet",
        [*(u for u, _ in GOOD), *(u for u, _, _ in bad)],
        pa.Array.from_buffers(pa.string(), len(texts), texts.buffers()),
    )
    files, key = good_release("a.parquet", *LIMITS)
    ended = attempt("--input", path, "--run_key_file", key, *LIMITS)
    assert ended.status == 0, ended.err
    found = sorted(listed_rejects(work), key=lambda row: row["position"])
    assert found == [
        {"file": str(path), "position": position, "unit": "row", "reason": reason}
        for position, (_, _, reason) in enumerate(bad, start=len(GOOD))
    ]
    assert files_of(work / "made" / "release") == files


def test_what_is_no_list_of_tokens_is_rejected(attempt, work):
    lines = [b'{"user":"u%d","text":["good","day"]}' % place for place in range(100)]
    bad = [b'["%b",null]' % C, b'["%b",7]' % C, b'"%b"' % C]
    lines += [b'{"user":"u","text":%b}' % text for text in bad]
    (work / "in" / "a.jsonl").write_bytes(b"\n".join(lines))
    ended = attempt("--input", work / "in" / "a.jsonl", "--tokenizer", "tokens")
    assert ended.status == 0, ended.err
    assert [row["reason"] for row in listed_rejects(work)] == ["text is not a list of texts"] * 3


def test_a_bad_line_of_sequences_is_rejected(attempt, work):
    (work / "in" / "a.seq").write_bytes(b"1 2\n" * 100 + b"%b \xff\n" % C)
    options = ("--input_format", "sequences", "--strict")
    failed = attempt("--input", work / "in" / "a.seq", *options)
    assert failed.status == 1
    assert "byte 400: not valid UTF-8" in failed.err
    assert_nothing_published(work)
    ended = attempt("--input", work / "in" / "a.seq", *options[:2])
    assert ended.status == 0
    assert "1 record was rejected" in ended.err


# Inputs that cannot be read


def cut(data, share=0.6):
    return data[: int(len(data) * share)]


def compress_zstd(data):
    return pa.compress(data, "zstd", asbytes=True)


def corrupted(path):
    """A Parquet file whose pages are damaged in the middle."""
    texts = [f"{CANARY} {text}" for text in random_words(2000).split(CANARY)]
    write_parquet(path, [str(place) for place in range(len(texts))], texts, compression="snappy")
    data = bytearray(path.read_bytes())
    middle = slice(len(data) // 3, len(data) // 2)
    data[middle] = bytes(byte ^ 0x5A for byte in data[middle])
    return bytes(data)


def uncompressed_and_corrupted(path):
    """A Parquet file with plain pages whose lengths of strings are damaged."""
    settings = {"compression": "none", "use_dictionary": False}
    write_parquet(path, ["u"] * 500, [CANARY] * 500, **settings)
    return path.read_bytes().replace(b"\x11\x00\x00\x00" + C, b"\xff\xff\xff\x7f" + C)


LONG = jsonl([("u", random_words(30_000))])
UNREADABLE = {
    "truncated gzip": ("a.jsonl.gz", cut(gzip.compress(LONG)), 1),
    "truncated bzip2": ("a.jsonl.bz2", cut(bz2.compress(LONG)), 2),
    "truncated zstd": ("a.jsonl.zst", cut(compress_zstd(LONG)), 1),
    "short truncated gzip": ("a.csv.gz", cut(gzip.compress(delimited([(CANARY, "a b")]))), 2),
    "damaged gzip": ("a.jsonl.gz", gzip.compress(LONG)[:-8] + b"\0" * 8, 1),
    "empty gzip": ("a.jsonl.gz", b"", 2),
    "no gzip": ("a.jsonl.gz", LONG, 2),
    "no bzip2": ("a.csv.bz2", LONG, 2),
    "no zstd": ("a.tsv.zst", LONG, 2),
    "no parquet": ("a.parquet", LONG, 2),
    "empty parquet": ("a.parquet", b"", 2),
    "empty csv": ("a.csv", b"", 2),
    "unclosed quote": ("a.csv", delimited([("u", f'"{CANARY}\nmore')]), 1),
    "unclosed quote, long": ("a.csv", delimited([("u", f'"{random_words(9000)}\nmore')]), 1),
    "header not UTF-8": ("a.csv", b"user,text,%b\xff\n" % C, 2),
    "endless header": ("a.csv", C * 10_000, 2),
    "unknown extension": ("a.docx", C, 2),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_damaged_file_fails_the_run_by_its_name(attempt, work, case):
    name, content, status = UNREADABLE[case]
    (work / "in" / name).write_bytes(content)
    (work / "in" / "good.jsonl").write_bytes(jsonl(GOOD))
    ended = attempt("--input", work / "in" / "*")
    assert (ended.status, ended.out) == (status, ""), ended.err
    assert name in ended.err
    assert ended.err.splitlines()[-1].startswith("beam-dpne: ")
    assert_nothing_published(work)


@pytest.mark.parametrize("damage", [corrupted, uncompressed_and_corrupted])
def test_damaged_pages_of_parquet_fail_the_run(attempt, work, damage):
    path = work / "in" / "a.parquet"
    path.write_bytes(damage(path))
    ended = attempt("--input", path)
    assert (ended.status, ended.out) == (1, "")
    assert f"{path} cannot be read" in ended.err
    assert_nothing_published(work)


def test_truncated_parquet_fails_the_run(attempt, work):
    path = write_parquet(work / "in" / "a.parquet", ["u"] * 9, [CANARY] * 9)
    path.write_bytes(cut(path.read_bytes()))
    ended = attempt("--input", path)
    assert ended.status == 2
    assert str(path) in ended.err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("none.jsonl", "file does not exist"),
        ("none-*.jsonl", "glob matches no file"),
        ("", "a folder with files in it"),
        ("../in", "a folder with files in it"),
        ("none/a.jsonl", "file does not exist"),
    ],
)
def test_a_missing_input_is_refused(attempt, work, given, said):
    ended = attempt("--input", f"{work / 'in'}/{given}")
    assert (ended.status, ended.out) == (2, "")
    assert said in ended.err
    assert_nothing_published(work)


def test_one_missing_input_of_several_is_refused(attempt, work):
    (work / "in" / "a.jsonl").write_bytes(jsonl(GOOD))
    ended = attempt("--input", work / "in" / "a.jsonl", "--input", work / "in" / "b.jsonl")
    assert ended.status == 2
    assert "b.jsonl" in ended.err


def test_an_unreadable_input_is_refused(attempt, work):
    path = work / "in" / "a.jsonl"
    path.write_bytes(jsonl([(CANARY, CANARY)]))
    path.chmod(0)
    if os.access(path, os.R_OK):  # root reads everything, but not this
        path = pathlib.Path("/proc/self/mem")
    ended = attempt("--input", path, "--input_format", "jsonl")
    assert ended.status in (1, 2)
    assert str(path) in ended.err
    assert_nothing_published(work)


def test_compressed_bytes_under_a_plain_name_are_rejects(attempt, work):
    (work / "in" / "a.jsonl").write_bytes(gzip.compress(jsonl([(CANARY, CANARY)] * 9)))
    ended = attempt("--input", work / "in" / "a.jsonl")
    assert (ended.status, ended.out) == (1, "")
    assert "max_rejected" in ended.err
    assert_nothing_published(work)


def fields_jsonl(path):
    path.write_bytes(b'{"author":"%b","body":"%b"}\n' % (C, C))


def fields_csv(path):
    path.write_bytes(b"author,body\n%b,%b\n" % (C, C))


def fields_tsv(path):
    path.write_bytes(b"author\tbody\n%b\t%b\n" % (C, C))


def fields_parquet(path):
    pq.write_table(pa.table({"author": [CANARY], "body": [CANARY]}), path)


@pytest.mark.parametrize("write", [fields_jsonl, fields_csv, fields_tsv, fields_parquet])
def test_a_field_that_does_not_exist_is_refused_with_those_that_do(attempt, work, write):
    path = work / "in" / f"a.{write.__name__.removeprefix('fields_')}"
    write(path)
    for given in (("--user_field", "author"), ("--text_field", "body")):
        ended = attempt("--input", path, *given)
        assert (ended.status, ended.out) == (2, "")
        assert "author, body" in ended.err
        missing = "text_field='text'" if "--user_field" in given else "user_field='user'"
        assert missing in ended.err
    assert_nothing_published(work)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.csv", b"zebra4711,striped_canary\nu2,b\n"),
        ("a.tsv", b"zebra4711\tstriped_canary\nu2\tb\n"),
        ("a.jsonl", b'{"zebra4711": "striped_canary"}\n{"u2": "b"}\n'),
    ],
)
def test_data_that_looks_like_names_is_not_shown_where_no_field_is_known(attempt, work, name, data):
    (work / "in" / name).write_bytes(data)
    ended = attempt("--input", work / "in" / name)
    assert ended.status == 2
    for canary in ("zebra4711", "striped_canary"):
        assert canary not in ended.err + ended.out


def test_a_first_line_that_is_data_is_not_shown_as_fields(attempt, work):
    (work / "in" / "a.csv").write_bytes(b"u1,%b\nu2,b\n" % C)
    ended = attempt("--input", work / "in" / "a.csv")
    assert ended.status == 2
    assert "--columns" in ended.err


@pytest.mark.parametrize(
    ("users", "texts", "said"),
    [
        ([1.5], [CANARY], "must be text or integers, got double"),
        ([[CANARY]], [CANARY], "must be text or integers, got list"),
        (["u"], [[CANARY]], "Use the tokenizer 'tokens'"),
        (["u"], [4711], "must be text, got int64"),
        (["u"], [CANARY.encode()], "must be text, got binary"),
    ],
)
def test_columns_of_a_wrong_type_are_refused(attempt, work, users, texts, said):
    ended = attempt("--input", write_parquet(work / "in" / "a.parquet", users, texts))
    assert (ended.status, ended.out) == (2, "")
    assert said in ended.err


def test_plain_text_is_refused_for_lists_of_tokens(attempt, work):
    (work / "in" / "a.csv").write_bytes(delimited([(CANARY, CANARY)]))
    ended = attempt("--input", work / "in" / "a.csv", "--tokenizer", "tokens")
    assert ended.status == 2
    assert "whitespace" in ended.err


PEAK = """
import sys
from beam_dpne.cli.main import main
from pipelines.experiments.cost import peak_bytes
status = main(sys.argv[1:])
print("peak", peak_bytes() >> 20)
sys.exit(status)
"""


def test_a_line_of_100_mb_is_rejected_in_little_memory(program, work, good_release):
    _, key = good_release()
    big = 100 * 2**20 // len(C) * C
    lines, _ = with_bad_lines(good_lines("jsonl"), [(b'{"user":"u","text":"%b"}' % big, "")])
    rows, _ = with_bad_lines(good_lines("csv"), [(b'u,"%b"' % big, "")])
    contents = {
        "good.jsonl": jsonl(GOOD),
        "a.jsonl": lines,
        "a.csv": rows,
        "a.jsonl.gz": gzip.compress(lines, 1),
    }
    peaks = []
    for name, content in contents.items():
        (work / "in" / name).write_bytes(content)
        files = ("--input", work / "in" / name, "--output", work / "made" / name)
        arguments = [*map(str, ("ngrams", *files, *BUDGET, "--run_key_file", key))]
        ended = subprocess.run(
            [sys.executable, "-c", PEAK, *arguments],
            env=program.environment(),
            capture_output=True,
            timeout=60,
            check=True,
        )
        assert_silent(ended.stdout, ended.stderr, work / "made")
        assert files_of(work / "made" / name) == good_release(name)[0], name
        assert ended.stderr.count(b"1 record was rejected") == (name != "good.jsonl")
        peaks += map(int, re.findall(rb"^peak (\d+)$", ended.stdout, re.MULTILINE))
    # Up to 24 MiB of the record are held, and again while the next block of 8 is put after them.
    small, *others = peaks
    assert len(others) == 3
    assert max(others) - small < 72


# Bad parameters


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--epsilon 0 --delta 1e-7", "epsilon must"),
        ("--epsilon -1 --delta 1e-7", "epsilon must"),
        ("--epsilon nan --delta 1e-7", "epsilon must"),
        ("--epsilon inf --delta 1e-7", "epsilon must"),
        ("--epsilon much --delta 1e-7", "--epsilon"),
        ("--epsilon 1 --delta 0", "delta must"),
        ("--epsilon 1 --delta 1", "delta must"),
        ("--epsilon 1 --delta=-1e-7", "delta must"),
        ("--epsilon 1 --delta nan", "delta must"),
        ("--max_length 0", "max_length must"),
        ("--max_length 2.5", "--max_length"),
        ("--max_contributions 0", "max_contributions must"),
        ("--max_contributions -3", "max_contributions must"),
        ("--max_contributions 5,0 --max_length 2", "max_contributions must"),
        ("--max_contributions 5,6,7 --max_length 2", "max_contributions must"),
        ("--max_contributions 5,,6", "--max_contributions"),
        ("--spurious_fraction 0", "spurious_fraction must"),
        ("--spurious_fraction 1", "spurious_fraction must"),
        ("--spurious_fraction nan", "spurious_fraction must"),
        ("--vocabulary_delta_share 1", "vocabulary_delta_share must"),
        ("--noise_growth 0", "noise_growth must"),
        ("--noise_growth nan", "noise_growth must"),
        (
            "--strategy one_round --budget_shares 0.5,0.4 --max_length 2",
            "budget_shares must sum to 1",
        ),
        ("--strategy one_round --budget_shares 0.5,0.5 --max_length 3", "budget_shares must"),
        ("--strategy one_round --budget_shares 1.5,-0.5 --max_length 2", "budget_shares must"),
        ("--strategy one_round --budget_shares nan,1 --max_length 2", "budget_shares must"),
        (
            "--strategy one_round --budget_shares 0.5,0.5 --max_length 2 --noise_growth 0.5",
            "budget_shares or noise",
        ),
        ("--pruning none", "--pruning"),
        ("--pruning single --valid_count estimate", "valid_count must"),
        ("--strategy two_rounds", "--strategy"),
        ("--max_tokens_per_user 0", "max_tokens_per_user must"),
        ("--partitions 0", "partitions must"),
        ("--partitions many", "--partitions"),
        ("--max_record_bytes 0", "max_record_bytes must"),
        ("--input_format xml", "--input_format"),
        ("--output_format xml", "--output_format"),
        ("--columns text,other", "columns must"),
        ("--user_field text", "must differ"),
        ("--tokenizer letters", "tokenizer must be one of"),
        ("--tokenizer no.such.module:f", "tokenizer must name"),
        ("--tokenizer os.path:sep", "tokenizer must name a function"),
        ("--run_key_file /no/such/key", "run_key_file cannot be read"),
        ("--run_key_file /", "run_key_file cannot be read"),
    ],
)
def test_a_wrong_parameter_is_refused_before_any_file_is_opened(attempt, work, given, said):
    given = given.split()
    budget = () if "--epsilon" in given else ("--epsilon", 1, "--delta", 1e-7)
    ended = attempt("--input", work / "in" / "none.jsonl", *budget, *given)
    assert (ended.status, ended.out) == (2, "")
    assert said in ended.err.splitlines()[-1]
    assert "none.jsonl" not in ended.err
    assert_nothing_published(work)


@pytest.mark.parametrize("content", [b"", C, b"5a" * 31, b"5a" * 33, b"zz" * 32, b"\xff" * 64])
def test_a_wrong_run_key_is_refused_without_quoting_it(attempt, work, content):
    (work / "in" / "key").write_bytes(content)
    ended = attempt("--input", "none.jsonl", "--run_key_file", work / "in" / "key")
    assert ended.status == 2
    assert content[:4].decode("latin-1") not in ended.err or not content


BROKEN_PLANS = {
    "no JSON": b"{",
    "no object": b"[1, 2]",
    "not UTF-8": b"\xff\xfe{}",
    "deep": b"[" * 100_000,
    "unknown parameter": b'{"epsilon": 1, "delta": 1e-7, "eta": 0.1}',
    "no delta": b'{"epsilon": 1}',
    "text for a number": b'{"epsilon": "1", "delta": 1e-7}',
    "not a number": b'{"epsilon": NaN, "delta": 1e-7}',
    "a number too large": b'{"epsilon": 1%b, "delta": 1e-7}' % (b"0" * 400),
    "a number of too many digits": b'{"epsilon": 1%b, "delta": 1e-7}' % (b"0" * 5000),
    "half a length": b'{"epsilon": 1, "delta": 1e-7, "max_length": 2.5}',
    "null": b'{"epsilon": 1, "delta": 1e-7, "max_length": null}',
    "text for numbers": b'{"epsilon": 1, "delta": 1e-7, "max_contributions": "10"}',
    "a number for numbers": b'{"epsilon": 1, "delta": 1e-7, "budget_shares": 1}',
    "a list for a choice": b'{"epsilon": 1, "delta": 1e-7, "pruning": ["both"]}',
    "an object for a choice": b'{"epsilon": 1, "delta": 1e-7, "strategy": {}}',
    "another adjacency": b'{"epsilon": 1, "delta": 1e-7, "adjacency": "replace"}',
}


@pytest.mark.parametrize("case", BROKEN_PLANS)
def test_a_broken_plan_is_refused(cli, work, case):
    (work / "plan.json").write_bytes(BROKEN_PLANS[case])
    for command in (("plan",), ("ngrams", "--input", "none.jsonl", "--output", work / "release")):
        ended = cli(*command, "--plan", work / "plan.json")
        assert (ended.status, ended.out) == (2, ""), ended.err
        assert "withheld" not in ended.err


def test_a_missing_plan_is_refused(cli, work):
    for path in (work / "none.json", work):
        ended = cli("plan", "--plan", path)
        assert ended.status == 2
        assert str(path) in ended.err


def test_a_plan_that_cannot_be_written_is_refused(cli, work):
    for path in (work, work / "none" / "plan.json"):
        ended = cli("plan", *BUDGET, "--output", path)
        assert (ended.status, ended.out) == (2, "")
        assert str(path) in ended.err


# Outputs that cannot be written


@pytest.fixture
def good_input(work):
    (work / "in" / "good.jsonl").write_bytes(jsonl([*GOOD, ("u", CANARY)]))
    return work / "in" / "good.jsonl"


def test_an_output_that_is_a_file_is_refused(attempt, work, good_input):
    (work / "made" / "file").write_text("mine")
    for output in (work / "made" / "file", work / "made" / "file" / "release"):
        for option in ((), ("--overwrite",)):
            ended = attempt("--input", good_input, *option, output=output)
            assert (ended.status, ended.out) == (2, "")
            assert str(output) in ended.err
    assert (work / "made" / "file").read_text() == "mine"


@pytest.mark.parametrize("output", ["/proc/release", "/dev/null/release", "/proc/self/release"])
def test_an_output_that_cannot_be_made_is_refused(attempt, good_input, output):
    ended = attempt("--input", good_input, output=output)
    assert (ended.status, ended.out) == (2, "")
    assert output in ended.err


def test_rejects_that_cannot_be_written_are_refused(attempt, work, good_input):
    (work / "made" / "file").write_text("mine")
    rejects = work / "made" / "file" / "rejects"
    ended = attempt("--input", good_input, "--rejects", rejects)
    assert (ended.status, ended.out) == (2, "")
    assert str(rejects) in ended.err
    assert_nothing_published(work)


@contextlib.contextmanager
def mounted(folder, options):
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        done = False
    if not done:
        pytest.skip("this test mounts a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_read_only_output_is_refused(attempt, work, good_input):
    with mounted(work / "small", "ro,size=64k") as disk:
        ended = attempt("--input", good_input, output=disk / "release")
        assert (ended.status, ended.out) == (2, "")
        assert "Read-only file system" in ended.err
        ended = attempt("--input", good_input, "--rejects", disk / "rejects")
        assert ended.status == 2


def fill(disk, pages):
    """Leaves so many pages free."""
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    (disk / "ballast").write_bytes(b"\0" * (free - pages * 4096))


@pytest.mark.parametrize(("pages", "status"), [(0, 2), (1, 1)])
def test_a_disk_that_fills_up_leaves_nothing_behind(attempt, work, good_input, pages, status):
    with mounted(work / "small", "size=256k") as disk:
        fill(disk, pages)
        ended = attempt("--input", good_input, output=disk / "release")
        assert (ended.status, ended.out) == (status, "")
        assert "No space left on device" in ended.err
        assert os.listdir(disk) == ["ballast"]


def test_a_disk_that_fills_up_keeps_the_release_that_is_there(attempt, work, good_input):
    with mounted(work / "small", "size=256k") as disk:
        assert attempt("--input", good_input, output=disk / "release").status == 0
        before, rows = files_of(disk / "release"), read_release(str(disk / "release")).table()
        fill(disk, 1)
        again = attempt("--input", good_input, "--overwrite", output=disk / "release")
        assert (again.status, again.out) == (1, "")
        assert files_of(disk / "release") == before
        assert read_release(str(disk / "release")).table() == rows


def test_a_file_size_limit_leaves_nothing_behind(program, work, good_input):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))

    environment = program.environment(PYTHONDONTWRITEBYTECODE="1")
    files = ("--input", good_input, "--output", work / "made" / "release")
    ended = program.run("ngrams", *files, *BUDGET, preexec_fn=limit, env=environment)
    assert (ended.status, ended.out) == (1, "")
    assert "File too large" in ended.err
    assert "Traceback" not in ended.err
    assert_silent(*ended[1:], work / "made")
    assert os.listdir(work / "made") == []


# Tokenizers


TOKENIZERS = """
import sys
import pyarrow as pa
from beam_dpne.errors import TokenizerError

class Subclass(TokenizerError):
    pass

class Result:
    def __init__(self, kind):
        self.type = kind

def raises_our_class(texts):
    raise TokenizerError(f"cannot split {texts[-1]}")

def raises_a_subclass(texts):
    raise Subclass(f"cannot split {texts[-1]}")

def names_fields_by_tokens(texts):
    return pa.array([[{text: 1}] for text in texts.to_pylist()])

def returns_an_object(texts):
    return Result(texts[-1])

def raises(texts):
    raise ValueError(f"cannot split {texts[-1]}")

def raises_ours(texts):
    raise RuntimeError(f"beam_dpne.errors.InputError: {texts[-1]}")

def leaves(texts):
    sys.exit(f"cannot split {texts[-1]}")

def fails_deep(texts):
    return texts.cast(pa.int32())

def another_type(texts):
    return texts

def null_tokens(texts):
    return pa.array([[text, None] for text in texts.to_pylist()], pa.list_(pa.string()))
"""


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("raises", "raised ValueError"),
        ("raises_ours", "raised RuntimeError"),
        ("raises_our_class", "raised TokenizerError"),
        ("raises_a_subclass", "raised Subclass"),
        ("names_fields_by_tokens", "Arrow array, got ListArray of StructArray"),
        ("returns_an_object", "must return a list<string> Arrow array, got Result"),
        ("leaves", "SystemExit"),
        ("fails_deep", "raised ArrowInvalid"),
        ("another_type", "must return a list<string> Arrow array, got StringArray"),
        ("null_tokens", "must return no nulls"),
    ],
)
def test_a_tokenizer_that_breaks_its_contract_fails_the_run(
    attempt, work, good_input, monkeypatch, function, said
):
    (work / "in" / "unruly_splitter.py").write_text(TOKENIZERS)
    monkeypatch.syspath_prepend(work / "in")
    name = f"unruly_splitter:{function}"
    ended = attempt("--input", good_input, "--tokenizer", name)
    assert (ended.status, ended.out) == (1, "")
    assert said in ended.err
    assert_nothing_published(work)


def test_a_tokenizer_whose_module_fails_is_refused(attempt, work, good_input, monkeypatch):
    (work / "in" / "broken_splitter.py").write_text("raise RuntimeError('no model')")
    monkeypatch.syspath_prepend(work / "in")
    ended = attempt("--input", good_input, "--tokenizer", "broken_splitter:split")
    assert ended.status == 2
    assert "broken_splitter:split" in ended.err


@pytest.mark.parametrize("workers", [1, 2])
def test_a_process_that_fails_says_nothing_of_the_data(program, work, good_input, workers):
    (work / "in" / "unruly_splitter.py").write_text(TOKENIZERS)
    environment = dict(program.environment(PYTHONWARNINGS="always", PYTHONDEVMODE="1"))
    environment["PYTHONPATH"] += os.pathsep + str(work / "in")
    files = ("--input", good_input, "--output", work / "made" / "release")
    more = ("--tokenizer", "unruly_splitter:raises", "--direct_num_workers", workers)
    ended = program.run("ngrams", *files, *BUDGET, *more, env=environment)
    assert (ended.status, ended.out) == (1, "")
    assert "raised ValueError" in ended.err
    assert "Traceback" not in ended.err
    assert_silent(*ended[1:], work / "made")


# Signals


@pytest.fixture(scope="module")
def visits(tmp_path_factory):
    """Visits of 100,000 users: enough that each length takes some seconds on a busy machine."""
    path = tmp_path_factory.mktemp("visits") / "visits.seq"
    with gzip.open(MSNBC) as lines:
        path.write_bytes(b"".join(itertools.islice(lines, 100_000)))
    return path


INTERRUPTED = """
import os, signal, time

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0)

waiting = [Finalized()]

def split(text):
    waiting.clear()
    time.sleep(0.1)
    return text.split()
"""


def test_a_signal_that_a_finalizer_loses_ends_a_run(program, work, good_input):
    (work / "in" / "interrupted_splitter.py").write_text(INTERRUPTED)
    environment = dict(program.environment())
    environment["PYTHONPATH"] += os.pathsep + str(work / "in")
    files = ("--input", good_input, "--output", work / "made" / "release")
    ended = program.run(
        "ngrams", *files, *BUDGET, "--tokenizer", "interrupted_splitter:split", env=environment
    )
    assert (ended.status, ended.out) == (143, "")
    assert ended.err.splitlines()[-1] == "beam-dpne: terminated; nothing was published."
    assert "Traceback" not in ended.err
    assert not (work / "made" / "release").exists()


TERMINATED = """
import os, signal

def split(text):
    os.kill(os.getpid(), signal.SIGTERM)
    return text.split()
"""


def test_a_program_that_publishes_nothing_does_not_speak_of_a_release(program, work, good_input):
    (work / "in" / "terminated_splitter.py").write_text(TERMINATED)
    environment = dict(program.environment())
    environment["PYTHONPATH"] += os.pathsep + str(work / "in")
    options = ("--users", 1000, "--like", good_input, "--tokenizer", "terminated_splitter:split")
    ended = program.run("plan", *BUDGET, *options, env=environment)
    assert (ended.status, ended.out) == (143, "")
    assert ended.err.splitlines()[-1] == "beam-dpne: terminated."


@pytest.mark.usefixtures("hangups")
@pytest.mark.parametrize(
    ("number", "status", "at", "workers"),
    [
        (signal.SIGINT, 130, "length [2-4]", 1),
        (signal.SIGINT, 130, "length [2-4]", 2),
        (signal.SIGTERM, 143, "reading|length [1-4]", 1),
        (signal.SIGHUP, 129, "length [2-4]", 1),
    ],
)
def test_a_signal_ends_a_run_at_once_and_leaves_nothing(
    program, work, visits, number, status, at, workers
):
    options = ("--input_format", "sequences", "--max_length", 6, "--direct_num_workers", workers)
    files = ("--input", visits, "--output", work / "release", "--rejects", work / "rejects")
    with program.start("ngrams", *files, *BUDGET, *options) as process:
        # A stage shorter than the display's interval is not shown, so that later ones count too.
        said = ""
        while not re.search(at, said) and (line := process.stderr.readline()):
            said += line
        assert re.search(at, said)
        sent = time.monotonic()
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert time.monotonic() - sent < 5
    assert process.returncode == status
    assert out == ""
    assert "nothing was published" in err.splitlines()[-1]
    assert "Traceback" not in err
    assert not (work / "release").exists()
    assert not list(work.glob("rejects/*temp*"))
    if workers == 1:
        assert list(program.temporary.iterdir()) == []


@pytest.mark.parametrize("milliseconds", [2, 10, 50])
def test_a_second_signal_soon_after_the_first_leaves_nothing_either(
    tmp_path, work, visits, milliseconds
):
    program = Program(tmp_path)
    files = ("--input", visits, "--input_format", "sequences", "--output", work / "release")
    with program.start("ngrams", *files, *BUDGET, "--max_length", 6) as process:
        while not list(program.temporary.glob(f"{PREFIX}*")):
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        time.sleep(milliseconds / 1000)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    # The signals may arrive as one, and the first one may have ended the run before the second comes.
    assert process.returncode in (-signal.SIGINT, 128 + signal.SIGINT)
    assert "Traceback" not in err
    assert list(program.temporary.glob(f"{PREFIX}*")) == []
