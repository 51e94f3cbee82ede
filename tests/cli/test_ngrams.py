"""`beam-dpne`: real files, real runs, what is printed and what is on disk."""

import bz2
import contextlib
import csv
import gzip
import io
import json
import os
import pathlib
import pty
import random
import re
import shutil
import socket

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_dpne import PrivacyPlan
from beam_dpne.cli.main import OneLineParser, main, run_program
from beam_dpne.cli.options import options_of
from beam_dpne.cli.options_by_command import NGRAMS
from beam_dpne.release.files import read_ledger
from beam_dpne.release.reading import read_release
from beam_dpne.version import __version__

OPTIONS = [
    *("input", "input_format", "user_field", "text_field", "columns", "tokenizer", "output"),
    *("encoding", "delimiter", "quoting"),
    *("output_format", "overwrite", "rejects", "strict", "epsilon", "delta", "max_length"),
    *("max_contributions", "spurious_fraction", "pruning", "valid_count", "strategy"),
    *("vocabulary_delta_share", "noise_growth", "budget_shares", "partitions"),
    *("max_tokens_per_user", "run_key_file", "plan", "quiet", "max_record_bytes"),
    *("side_input_limit", "harness_timeout", "max_rejected", "workers"),
    *("failure_log", "failure_log_remote", "budget"),
    *(
        "rounds",
        "user_budgets",
        "favour",
        "vocabulary",
        "vocabulary_policy",
        "max_users",
        "count_share",
    ),
    *("public_user_count", "title", "contact", "unit"),
]
BUDGET = ("--epsilon", 10, "--delta", 1e-4)
LENGTHS = ("--max_length", 2, "--rounds", 2, "--max_contributions", "5,8")
SHORT = (*BUDGET, "--max_length", 2)
WORDS = ("Good", "morning", "dear", "friend", "of", "naïve", "people,", '"everywhere"', "日本語")
KEY = "0f1e2d3c" * 8


def documents():
    """120 users with one to three documents each; the first words are everybody's."""
    chance = random.Random(5)
    rows = []
    for place in range(120):
        for _ in range(chance.randint(1, 3)):
            text = " ".join(WORDS[:3] + tuple(chance.sample(WORDS, 4)))
            rows.append((f"user-{place:03}", text))
    return rows


def jsonl(rows):
    return "".join(json.dumps({"user": u, "text": t}) + "\n" for u, t in rows).encode()


def write_jsonl(path, rows):
    path.write_bytes(jsonl(rows))
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The folder with the documents and the key, and a release of them in `base`."""
    folder = tmp_path_factory.mktemp("data")
    write_jsonl(folder / "notes.jsonl", documents())
    (folder / "key").write_text(f"{KEY}\n")
    return folder


@pytest.fixture(scope="module")
def keyed(data):
    """The options of a run with the key."""
    return (*BUDGET, *LENGTHS, "--run_key_file", data / "key")


@pytest.fixture(scope="module")
def base(cli, data, keyed):
    """A run of the documents with the key: how it ended, and its files."""
    ended = cli("ngrams", "--input", data / "notes.jsonl", "--output", data / "base", *keyed)
    assert ended.status == 0, ended.err
    return ended, files_of(data / "base")


def files_of(folder):
    return {path.name: path.read_bytes() for path in sorted(pathlib.Path(folder).iterdir())}


def rows_of(folder):
    """Length, text and score of each n-gram."""
    rows = read_release(str(folder)).table().to_pylist()
    return [(row["length"], row["ngram"], row["score"]) for row in rows]


def counts_of(folder):
    ledger = read_ledger(str(folder / "ledger.json"))
    return [facts["released"] for facts in ledger["lengths"]]


# Options


def test_the_program_has_exactly_the_options_of_the_issue():
    assert sorted(o.name for o in options_of(NGRAMS)) == sorted(OPTIONS)


def test_the_help_shows_every_option_with_a_text_and_its_default(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    ended = cli("ngrams", "--help")
    assert ended.status == 0
    shown = re.split(r"\n  (?=-)", ended.out)
    by_name = {match[1]: text for text in shown if (match := re.match(r"--(\w+)", text))}
    assert sorted(by_name) == sorted(OPTIONS)
    defaults = {o.name: o.default_text for o in options_of(NGRAMS)}
    for name, text in by_name.items():
        flat = " ".join(text.split())
        assert f"(default: {defaults[name]})" in flat
        assert len(flat) > len(f"--{name} X (default: {defaults[name]})") + 10


@pytest.mark.parametrize("name", ["pruning", "strategy", "output_format", "input_format"])
def test_the_help_shows_the_choices(cli, name):
    option = next(o for o in options_of(NGRAMS) if o.name == name)
    assert "{" + ",".join(option.choices) + "}" in cli("ngrams", "--help").out


def test_the_version_is_printed(cli):
    assert cli("--version") == (0, f"beam-dpne {__version__}\n", "")


def test_no_command_is_a_usage_error(cli):
    assert cli().status == 2
    assert cli("bigrams").status == 2


@pytest.mark.parametrize("given", [(), ("--epsilon", 1), ("--delta", 1e-7)])
@pytest.mark.parametrize("command", ["ngrams", "plan"])
def test_a_missing_budget_is_refused_with_advice_before_files_are_opened(cli, given, command):
    files = ("--input", "/does/not/exist.jsonl", "--output", "/does/not/exist")
    ended = cli(command, *(files if command == "ngrams" else ()), *given)
    assert (ended.status, ended.out) == (2, "")
    assert "well below one over the number of users" in ended.err
    for name in {"--epsilon", "--delta"} - set(given):
        assert name[2:] in ended.err.split(" must be given")[0]
    assert "exist" not in ended.err


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (("--max_lenght", 3), "--max_lenght; did you mean --max_length?"),
        (("--max_lenght=3",), "--max_lenght; did you mean --max_length?"),
        (("--eps", 3), "--eps; did you mean --epsilon?"),  # no abbreviations
        (("--job_nam", "x"), "--job_nam; did you mean --job_name?"),
        (("-x",), "no option -x"),
        (("more.jsonl",), "no argument 'more.jsonl'; name input files with --input"),
        (("--num_workers", "many"), "--num_workers"),
        (("--runner",), "--runner"),
        (("--runner", "Nowhere"), "Nowhere"),
        (("--runner", "no.such.Runner"), "no.such.Runner"),
    ],
)
def test_unknown_options_are_refused_in_one_line(cli, tmp_path, data, wrong, hint):
    files = ("--input", data / "notes.jsonl", "--output", tmp_path / "out")
    ended = cli("ngrams", *files, *BUDGET, *wrong)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("beam-dpne: error: ")
    assert ended.err.count("\n") == 1
    assert hint in ended.err
    assert not (tmp_path / "out").exists()


def test_options_of_beam_pass_through(cli, tmp_path, data, base, keyed):
    beams = "--job_name words --labels=a=b --experiments x --experiments=y --direct_num_workers 2"
    files = ("--input", data / "notes.jsonl", "--output", tmp_path / "out")
    ended = cli("ngrams", *files, *keyed, *beams.split(), "--runner", "FnApiRunner")
    assert ended.status == 0, ended.err
    assert files_of(tmp_path / "out") == base[1]


def test_input_and_output_are_required(cli, data):
    missing_input = cli("ngrams", "--output", data / "new", *BUDGET)
    missing_output = cli("ngrams", "--input", data / "notes.jsonl", *BUDGET)
    assert (missing_input.status, missing_output.status) == (2, 2)
    assert "--input" in missing_input.err
    assert "--output" in missing_output.err


# Plans


def test_a_plan_is_printed_and_written(cli, tmp_path):
    path = tmp_path / "plan.json"
    lengths = ("--max_length", 3, "--max_contributions", "5,8,8")
    paper = ("--strategy", "one_round", "--noise_growth", 0.8)
    ended = cli("plan", *BUDGET, *lengths, *paper, "--output", path)
    plan = PrivacyPlan.from_json(path.read_text())
    assert plan == PrivacyPlan(
        epsilon=10,
        delta=1e-4,
        max_length=3,
        max_contributions=(5, 8, 8),
        noise_growth=0.8,
        strategy="one_round",
    )
    assert (ended.status, ended.err) == (0, f"beam-dpne: the plan is in {path}.\n")
    stddevs = ", ".join(f"{length.noise_stddev:.4f}" for length in plan.lengths)
    assert f"Noise σ of lengths 1 to 3, in units of weight: {stddevs}." in ended.out
    assert plan.count_noise is not None
    assert f"noise is {plan.count_noise.row_stddev:.4f} on the sum of each n-gram" in ended.out


def test_a_plan_file_gives_the_release_of_the_single_parameters(cli, tmp_path, data, base):
    assert cli("plan", *BUDGET, *LENGTHS, "--output", tmp_path / "plan.json").status == 0
    files = ("--input", data / "notes.jsonl", "--output", tmp_path / "out")
    key = ("--run_key_file", data / "key")
    assert cli("ngrams", *files, *key, "--plan", tmp_path / "plan.json").status == 0
    assert files_of(tmp_path / "out") == base[1]


@pytest.mark.parametrize("single", [("--epsilon", 1), ("--pruning", "both"), ("--max_length", 5)])
def test_a_plan_file_is_refused_beside_single_parameters(cli, tmp_path, single):
    assert cli("plan", *BUDGET, "--output", tmp_path / "plan.json").status == 0
    ended = cli("plan", "--plan", tmp_path / "plan.json", *single)
    assert (ended.status, ended.out) == (2, "")
    assert single[0] in ended.err


def test_a_plan_takes_no_options_of_beam(cli):
    ended = cli("plan", *BUDGET, "--runner=FnApiRunner")
    assert (ended.status, ended.out) == (2, "")
    assert "--runner" in ended.err


def test_budget_shares_and_other_privacy_options_reach_the_ledger(cli, tmp_path, data):
    options = "--max_length 2 --budget_shares 0.25,0.75 --pruning single --spurious_fraction 0.2"
    more = "--vocabulary_delta_share 0.25 --max_tokens_per_user 1000 --strategy one_round"
    files = ("--input", data / "notes.jsonl", "--output", tmp_path / "out")
    assert cli("ngrams", *files, *BUDGET, *options.split(), *more.split()).status == 0
    plan = read_ledger(str(tmp_path / "out" / "ledger.json"))["plan"]
    assert plan["budget_shares"] == [0.25, 0.75]
    assert (plan["pruning"], plan["spurious_fraction"]) == ("single", 0.2)
    assert (plan["vocabulary_delta_share"], plan["max_tokens_per_user"]) == (0.25, 1000)


# The same key


def test_one_key_gives_the_same_bytes_however_the_data_lie_and_are_divided(
    cli, tmp_path, base, keyed
):
    """In another order, in files of every compression, in other partitions of users."""
    rows = documents()[::-1]
    contents = {
        "a.ndjson": jsonl(rows[:1]),
        "b.jsonl": jsonl(rows[1:50]),
        "c.jsonl.gz": gzip.compress(jsonl(rows[50:100])),
        "d.jsonl.bz2": bz2.compress(jsonl(rows[100:150])),
        "e.jsonl.zst": pa.compress(jsonl(rows[150:]), "zstd", asbytes=True),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    files = ("--input", tmp_path / "?.jsonl*", "--input", tmp_path / "a.ndjson")
    ended = cli("ngrams", *files, "--output", tmp_path / "out", *keyed, "--partitions", 7)
    assert ended.status == 0, ended.err
    assert "rejected" not in ended.err
    assert files_of(tmp_path / "out") == base[1]


def csv_without_a_header(folder):
    with open(folder / "notes.csv", "w", newline="") as file:
        csv.writer(file).writerows((place, t, u) for place, (u, t) in enumerate(documents()))
    return ["--input", folder / "notes.csv", "--columns", "place,text,user"]


def parquet(folder):
    users, texts = zip(*documents(), strict=True)
    table = pa.table({"text": texts, "other": range(len(users)), "user": users})
    pq.write_table(table, folder / "notes.parquet", row_group_size=40)
    return ["--input", folder / "notes.parquet"]


def renamed_fields(folder):
    lines = [json.dumps({"who": u, "n": [1, {}], "what": t}) for u, t in documents()]
    (folder / "notes.log").write_text("\n\n".join(lines))
    fields = ["--user_field", "who", "--text_field", "what", "--input_format", "jsonl"]
    return ["--input", folder / "notes.log", *fields]


@pytest.mark.parametrize("write", [csv_without_a_header, parquet, renamed_fields])
def test_the_same_data_read_in_another_way_have_other_noise(
    cli, tmp_path, data, base, keyed, write
):
    """The key is bound to how records are read, and the weights are those of the same documents."""
    ended = cli("ngrams", *write(tmp_path), "--output", tmp_path / "out", *keyed)
    assert ended.status == 0, ended.err
    assert "rejected" not in ended.err
    scores = [
        {ngram: score for length, ngram, score in rows_of(folder) if length == 1}
        for folder in (tmp_path / "out", data / "base")
    ]
    common = scores[0].keys() & scores[1].keys()
    assert len(common) > 5
    differences = [abs(scores[0][word] - scores[1][word]) for word in common]
    noise = read_ledger(str(data / "base" / "ledger.json"))["lengths"][0]["noise_stddev"]
    # Scores are cells, of which two may be the same by chance.
    assert sum(difference > 0 for difference in differences) > len(common) / 2
    assert max(differences) < 12 * noise


def test_a_fresh_key_gives_another_release(cli, tmp_path, data, base):
    parts = [name for name in base[1] if name != "ledger.json"]
    for place in range(2):
        out = tmp_path / str(place)
        files = ("--input", data / "notes.jsonl", "--output", out)
        assert cli("ngrams", *files, *BUDGET, "--max_length", 1).status == 0
        parts += [name for name in files_of(out) if name != "ledger.json"]
        assert read_ledger(str(out / "ledger.json"))["run_key"]["given"] is False
    assert len(parts) == len(set(parts)) == 3


def test_the_release_holds_neither_the_key_nor_where_it_was_made(data, base):
    everything = b"\n".join(base[1].values()) + "\n".join(base[1]).encode()
    for secret in (KEY, bytes.fromhex(KEY), data, "notes.jsonl", socket.gethostname(), "/key"):
        plain = secret if isinstance(secret, bytes) else str(secret).encode()
        assert plain.lower() not in everything.lower()
    assert json.loads(base[1]["ledger.json"])["run_key"]["given"] is True


# What is printed


def test_the_table_is_on_stdout_and_the_progress_on_stderr(data, base):
    ended, _ = base
    ledger = read_ledger(str(data / "base" / "ledger.json"))
    for facts in ledger["lengths"]:
        row = next(line for line in ended.out.splitlines() if f" {facts['length']} │" in line)
        assert f" {facts['released']} " in row
        assert f" {facts['noise_stddev']:.3f} " in row
        assert f" {facts['threshold']:.2f} " in row
        assert f" {facts['valid'] or '-'} " in row
    assert f"Files: {data / 'base'} (" in ended.out
    assert re.fullmatch(r"(beam-dpne: +\d+\.\d s  [a-z0-9 ]+\n)*", ended.err)


def test_quiet_leaves_stderr_empty_and_paths_are_printed_as_they_are(cli, tmp_path, data, keyed):
    out = tmp_path / "[bold]:smile:[/x]"
    files = ("--input", data / "notes.jsonl", "--output", out)
    ended = cli("ngrams", *files, *keyed, "--quiet")
    assert (ended.status, ended.err) == (0, "")
    assert "Released" in ended.out
    assert f"Files: {out} (" in ended.out
    again = cli("ngrams", *files, *keyed, "--quiet")
    assert again.status == 2
    assert "is a release already" in again.err


def test_a_terminal_without_greek_letters_gets_a_table():
    for arguments in (["plan", *map(str, BUDGET)], ["ngrams", "--help"]):
        with io.TextIOWrapper(io.BytesIO(), encoding="ascii") as terminal:
            with contextlib.redirect_stdout(terminal):
                assert main(arguments) == 0
            terminal.flush()
            assert terminal.buffer.getvalue().isascii()
            assert b"?" in terminal.buffer.getvalue()


def large(path):
    """Documents enough for a run of about a second."""
    lines = [
        json.dumps({"user": f"secretuser{place}", "text": "good xylophone morning " * 30})
        for place in range(8_000)
    ]
    path.write_text("\n".join(lines))
    return path


def test_a_terminal_shows_a_live_line_without_users_or_words(program, tmp_path):
    arguments = ("--input", large(tmp_path / "notes.jsonl"), "--output", tmp_path / "out", *SHORT)
    leader, follower = pty.openpty()
    environment = program.environment(TERM="xterm", COLUMNS="100")
    with program.start("ngrams", *arguments, env=environment, stderr=follower) as process:
        os.close(follower)
        shown = b""
        while piece := read_terminal(leader):
            shown += piece
        out, _ = process.communicate(timeout=60)
    os.close(leader)
    assert process.returncode == 0
    assert b"\x1b[2K" in shown  # a line that is written over
    assert re.search(rb"length \d of 2|reading and tokenizing", shown)
    assert b"\x1b[?25h" in shown  # the cursor is back
    assert not re.search(rb"secretuser|xylophone|morning", shown)
    assert "Released" in out


def read_terminal(leader):
    try:
        return os.read(leader, 65536)
    except OSError:  # Linux: the other side is closed
        return b""


def test_no_terminal_gets_plain_lines(program, tmp_path):
    arguments = ("--input", large(tmp_path / "notes.jsonl"), "--output", tmp_path / "out", *SHORT)
    ended = program.run("ngrams", *arguments)
    assert ended.status == 0
    assert "\x1b" not in ended.err + ended.out
    assert re.fullmatch(r"(beam-dpne: +\d+\.\d s  [a-z0-9 ]+\n)+", ended.err)
    assert list(program.temporary.iterdir()) == []


def test_a_reader_that_goes_away_costs_no_stack_trace(program):
    with program.start("plan", *BUDGET) as process:
        process.stdout.close()
        err = process.stderr.read()
    assert process.returncode in (0, 1)
    assert "Traceback" not in err


# Rejects


def with_rejects(folder):
    good = jsonl(documents()).splitlines(keepends=True)
    bad = [b"{broken\n", b'{"user":null,"text":"a"}\n']
    path = folder / "notes.jsonl"
    path.write_bytes(b"".join([*good[:5], *bad, *good[5:]]))
    return path


def test_rejects_are_counted_and_cost_nothing_where_nobody_asked_to_list_them(
    cli, tmp_path, base, keyed
):
    ended = cli("ngrams", "--input", with_rejects(tmp_path), "--output", tmp_path / "out", *keyed)
    assert ended.status == 0
    assert "2 records were rejected (--rejects DIR lists them)" in ended.err
    assert files_of(tmp_path / "out") == base[1]


def test_strict_fails_at_a_reject(cli, tmp_path, keyed):
    files = ("--input", with_rejects(tmp_path), "--output", tmp_path / "out")
    ended = cli("ngrams", *files, *keyed, "--strict", "--rejects", tmp_path / "rejects")
    assert (ended.status, ended.out) == (1, "")
    assert "--strict" in ended.err
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob("rejects/beam-temp*"))


@pytest.mark.parametrize("place", ["out", "out/rejects", "out/../out/"])
def test_rejects_never_go_into_the_release(cli, tmp_path, data, keyed, place):
    files = ("--input", data / "notes.jsonl", "--output", tmp_path / "out")
    ended = cli("ngrams", *files, *keyed, "--rejects", f"{tmp_path}/{place}")
    assert ended.status == 2
    assert "outside the directory of the release" in ended.err
    assert not (tmp_path / "out").exists()


# Inputs and outputs


def test_sequences_are_one_user_a_line_and_their_header_is_none(cli, tmp_path):
    path = tmp_path / "visits.seq"
    path.write_text("% categories\n\na b c\n\n% Sequences:\n\n" + "1 2 2\n\n3\n" * 100)
    files = ("--input", path, "--output", tmp_path / "out", "--input_format", "sequences")
    ended = cli("ngrams", *files, *BUDGET, "--max_length", 2, "--max_contributions", 5)
    assert ended.status == 0, ended.err
    released = [ngram for _, ngram, _ in rows_of(tmp_path / "out")]
    assert sorted(released[:3]) == ["1", "2", "3"]
    assert not {"a", "b", "c"} & set(released)
    assert {"1 2", "2 2"} <= set(released[3:])
    assert read_ledger(str(tmp_path / "out" / "ledger.json"))["tokenizer"] == "whitespace"


def test_a_release_is_only_replaced_on_request_and_every_format_has_its_rows(
    cli, tmp_path, data, base, keyed
):
    out = tmp_path / "out"
    shutil.copytree(data / "base", out)
    again = ("ngrams", "--input", data / "notes.jsonl", "--output", out, *keyed)
    (out / "notes.txt").write_text("mine")
    before = files_of(out)
    refused = cli(*again, "--output_format", "tsv")
    assert (refused.status, refused.out) == (2, "")
    assert "set overwrite" in refused.err
    assert files_of(out) == before
    for output_format in ("tsv", "parquet"):
        assert cli(*again, "--output_format", output_format, "--overwrite").status == 0
        assert (out / "notes.txt").read_text() == "mine"
        (part,) = out.glob("ngrams-*")
        assert part.suffix == f".{output_format}"
        assert rows_of(out) == rows_of(data / "base")


def test_a_directory_with_other_files_is_refused(cli, tmp_path, data, keyed):
    (tmp_path / "notes.txt").write_text("mine")
    ended = cli("ngrams", "--input", data / "notes.jsonl", "--output", tmp_path, *keyed)
    assert ended.status == 2
    assert os.listdir(tmp_path) == ["notes.txt"]


# Tokenizers


def test_the_named_tokenizers_split_texts(cli, tmp_path, data, base):
    files = ("--input", data / "notes.jsonl", "--output", tmp_path / "out")
    named = ("--max_length", 1, "--tokenizer", "whitespace")
    assert cli("ngrams", *files, *BUDGET, *named).status == 0
    for folder, tokenizer, word, absent in (
        (data / "base", "words", "people", "people,"),
        (tmp_path / "out", "whitespace", '"everywhere"', "everywhere"),
    ):
        released = [ngram for _, ngram, _ in rows_of(folder)]
        assert word in released
        assert absent not in released
        assert read_ledger(str(folder / "ledger.json"))["tokenizer"] == tokenizer


def test_a_tokenizer_of_a_module_splits_texts(cli, tmp_path, data, monkeypatch):
    (tmp_path / "own_splitter.py").write_text(
        "import pyarrow.compute as pc\n\ndef letters(texts):\n"
        "    return pc.split_pattern(pc.utf8_upper(texts), 'E')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    files = ("--input", data / "notes.jsonl", "--output", tmp_path / "out")
    name = "own_splitter:letters"
    assert cli("ngrams", *files, *BUDGET, "--max_length", 1, "--tokenizer", name).status == 0
    assert "GOOD MORNING D" in [split_words(ngram) for _, ngram, _ in rows_of(tmp_path / "out")]


def split_words(ngram):
    from beam_dpne import split_ngram

    (word,) = split_ngram(ngram)
    return word


def test_lists_of_tokens_are_taken_as_they_are(cli, tmp_path):
    path = tmp_path / "tokens.jsonl"
    tokens = ["New York", "", "a\tb"]
    path.write_bytes(jsonl((f"u{place}", tokens) for place in range(100)))
    files = ("--input", path, "--output", tmp_path / "out", "--tokenizer", "tokens")
    assert cli("ngrams", *files, *BUDGET, "--max_length", 3).status == 0
    assert "New\\sYork \\e a\\tb" in [ngram for _, ngram, _ in rows_of(tmp_path / "out")]


# Nothing to release


@pytest.mark.parametrize(
    "contents",
    [
        {"empty.jsonl": b"", "empty.csv": b"user,text\n"},
        {"textless.jsonl": b'{"user":"a","text":""}\n{"user":"b","text":" . "}\n'},
        {"alone.jsonl": b'{"user":"a","text":"nobody else says this"}\n'},
    ],
)
def test_inputs_without_anything_shared_give_an_empty_release(cli, tmp_path, contents):
    files = ["--output", tmp_path / "out"]
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        files += ["--input", tmp_path / name]
    ended = cli("ngrams", *files, *BUDGET, *LENGTHS)
    assert ended.status == 0, ended.err
    assert counts_of(tmp_path / "out") == [0, 0]
    assert rows_of(tmp_path / "out") == []


def test_a_release_goes_to_a_relative_path(cli, tmp_path, data, base, keyed, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = cli("ngrams", "--input", data / "notes.jsonl", "--output", "new/er", *keyed)
    assert ended.status == 0, ended.err
    assert files_of(tmp_path / "new" / "er") == base[1]


def test_a_template_without_a_run_key_file_is_refused(cli, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"user": "u", "text": "t"}\n')
    files = ("--input", path, "--output", tmp_path / "out")
    ended = cli("ngrams", *BUDGET, *files, f"--template_location={tmp_path / 'template'}")
    assert ended.status == 2
    assert "--run_key_file" in ended.err
    assert not (tmp_path / "out").exists()


# The adaptive strategy


def test_the_default_strategy_is_adaptive_and_its_rounds_are_in_the_ledger(cli, tmp_path, data):
    files = ("--input", data / "notes.jsonl", "--output", tmp_path / "out")
    assert cli("ngrams", *files, *BUDGET, "--max_length", 3).status == 0
    ledger = read_ledger(str(tmp_path / "out"))
    assert ledger["plan"]["strategy"] == "adaptive"
    assert [len(facts["rounds"]) for facts in ledger["lengths"]] == [3, 3, 3]
    assert "individual_budgets" in ledger["guarantee"]


@pytest.mark.parametrize(
    "wrong",
    [
        ("--noise_growth", 0.8),
        ("--budget_shares", "0.5,0.5"),
        ("--valid_count", "estimate"),
        ("--rounds", 4),
        ("--spurious_fraction", 0.7),
        ("--strategy", "one_round", "--rounds", 2),
        ("--strategy", "one_round", "--user_budgets", "even"),
        ("--strategy", "one_round", "--favour", "words"),
        ("--user_budgets", "even", "--favour", "long"),
        ("--strategy", "one_round", "--vocabulary_policy", "rounds"),
    ],
)
def test_what_a_strategy_does_not_have_is_refused_by_name(cli, wrong):
    ended = cli("plan", *BUDGET, "--max_length", 2, *wrong)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
    assert wrong[-2].removeprefix("--") in ended.err


def test_a_public_vocabulary_is_given_instead_of_found_and_is_bound_to_the_key(cli, tmp_path, data):
    scores = []
    for words in ("good\nmorning\ndear\nunheard\n\n", "good\nmorning\ndear\nzebra\n"):
        (tmp_path / "words.txt").write_text(words)
        out = tmp_path / f"out{len(scores)}"
        files = ("--input", data / "notes.jsonl", "--output", out, "--run_key_file", data / "key")
        vocabulary = ("--vocabulary", tmp_path / "words.txt", "--spurious_fraction", 1e-9)
        assert cli("ngrams", *files, *BUDGET, "--max_length", 2, *vocabulary).status == 0
        assert {length for length, _, _ in rows_of(out)} == {2}
        scores.append({ngram: score for _, ngram, score in rows_of(out)})
        assert {"good morning", "morning dear"} <= set(scores[-1])
        ledger = read_ledger(str(out))
        assert ledger["plan"]["vocabulary_policy"] == "public"
        assert ledger["spent"]["vocabulary_delta"] == 0
    common = scores[0].keys() & scores[1].keys()
    # Two scores of one n-gram may meet by chance; under one key all of them would.
    assert sum(scores[0][ngram] == scores[1][ngram] for ngram in common) < len(common) / 2


@pytest.mark.parametrize("content", [None, b"", b"\n\n", b"\xff\xfe"])
def test_a_vocabulary_that_cannot_be_used_is_refused(cli, tmp_path, data, content):
    if content is not None:
        (tmp_path / "words.txt").write_bytes(content)
    files = ("--input", data / "notes.jsonl", "--output", tmp_path / "out")
    ended = cli("ngrams", *files, *BUDGET, "--vocabulary", tmp_path / "words.txt")
    assert ended.status == 2
    assert "vocabulary" in ended.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("words", ["The", "the cat", " cat", "cat\n  \ndog", '{"user": "u"}'])
def test_a_vocabulary_of_what_no_text_has_is_refused(cli, tmp_path, data, words):
    (tmp_path / "words.txt").write_text(words)
    files = ("--input", data / "notes.jsonl", "--output", tmp_path / "out")
    ended = cli("ngrams", *files, *BUDGET, "--vocabulary", tmp_path / "words.txt")
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert "vocabulary must have one token a line, as tokenizer=words writes it" in ended.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("how", ["itself", "link", "packed"])
def test_private_data_are_no_vocabulary(cli, tmp_path, how):
    private = tmp_path / "visits.seq"
    private.write_text("word\n" * 50)
    public = {"itself": private, "link": tmp_path / "a.txt", "packed": tmp_path / "a.txt"}[how]
    if how == "link":
        public.symlink_to(private)
    elif how == "packed":
        public.write_text(private.read_text() + "\n")
    files = ("--input", private, "--input_format", "sequences", "--output", tmp_path / "out")
    ended = cli("ngrams", *files, *BUDGET, "--vocabulary", public)
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert "vocabulary must not be private data" in ended.err


def test_a_public_policy_without_a_vocabulary_is_refused(cli, tmp_path, data):
    files = ("--input", data / "notes.jsonl", "--output", tmp_path / "out")
    ended = cli("ngrams", *files, *BUDGET, "--vocabulary_policy", "public")
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert "--vocabulary FILE" in ended.err


@pytest.mark.parametrize("kind", [RuntimeError, KeyError, TypeError, OSError, ZeroDivisionError])
def test_the_message_of_an_unexpected_error_is_withheld(kind, capsys):
    def fail(given, beam_arguments):
        raise kind("xylophone")

    parser = OneLineParser()
    parser.set_defaults(command=fail)
    assert run_program(parser, []) == 1
    said = "".join(capsys.readouterr())
    assert kind.__name__ in said
    assert "withheld" in said
    assert "xylophone" not in said
