"""`beam-dpne set-union`: real files, real runs, what is printed and what is on disk.

Runs have a fixed key, so each outcome here is the same every time.
"""

import csv
import dataclasses
import json
import pathlib
import random
import re
import shutil
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_dpne.cli import display
from beam_dpne.cli.main import main
from beam_dpne.cli.options import options_of
from beam_dpne.cli.options_by_command import SET_UNION
from beam_dpne.documents import tokenizers
from beam_dpne.elements import progress
from beam_dpne.release.files import read_ledger
from beam_dpne.release.parts import OUTPUT_FORMATS
from beam_dpne.release.reading import read_release
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.set_union.policies import DESCENT_POLICIES, POLICIES

KEY = "0f1e2d3c" * 8
BUDGET = ("--epsilon", 10, "--delta", 1e-4, "--max_contributions", 20)
FIXED = ("--tokenizer", "tokens", "--policy", "weighted_gaussian")
SHARED = [
    "",
    " New  York ",
    "a\tb",
    "line\nend",
    'say "hi", you',
    "naïve 日本語",
    "\\e",
    "🙂\u2028",
]
CANARY = "CANARY zebra 4711"


def rows():
    """300 users with some of the shared items, and one that nobody else has."""
    chance = random.Random(7)
    return [
        (f"user-{place:03}", [*chance.sample(SHARED, 6), f"{CANARY} {place}"])
        for place in range(300)
    ]


def json_lines(records):
    return "".join(json.dumps({"user": u, "text": t}) + "\n" for u, t in records)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with the items of users in several forms, and a key."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "key").write_text(KEY)
    (folder / "lists.jsonl").write_text(json_lines(rows()))
    single = [(user, item) for user, items in rows() for item in items]
    (folder / "single.jsonl").write_text(json_lines(single))
    with (folder / "single.csv").open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([("user", "text"), *single])
    table = pa.table({"user": [u for u, _ in rows()], "text": [items for _, items in rows()]})
    pq.write_table(table, folder / "lists.parquet")
    return folder


@pytest.fixture(scope="module")
def base(cli, data):
    """The folder of a release of the lists, by the policy that is cheapest to run."""
    files = ("--input", data / "lists.jsonl", "--output", data / "base")
    ended = cli("set-union", *files, *BUDGET, "--run_key_file", data / "key", *FIXED)
    assert ended.status == 0, ended.err
    return data / "base"


@pytest.fixture
def union(cli, data, tmp_path):
    """Runs the program on a file, with the key; returns how it ended and the release's folder."""

    def run(name, *arguments, output="release", key=True):
        folder = tmp_path / output
        keyed = ("--run_key_file", data / "key") if key else ()
        given = ("--input", data / name, "--output", folder, *BUDGET, *keyed)
        return cli("set-union", *given, *arguments), folder

    return run


def released(folder):
    return {row["item"]: row["score"] for row in read_release(str(folder)).table().to_pylist()}


def files_of(folder):
    return {path.name: path.read_bytes() for path in sorted(pathlib.Path(folder).iterdir())}


# Options


def all_options():
    return options_of(SET_UNION)


def test_the_program_has_exactly_the_options_of_the_issue(cli, monkeypatch):
    assert sorted(option.name for option in all_options()) == sorted(
        [
            *("input", "input_format", "user_field", "text_field", "columns", "tokenizer"),
            *("encoding", "delimiter", "quoting"),
            *("max_record_bytes", "rejects", "strict", "output", "output_format", "overwrite"),
            *("epsilon", "delta", "policy", "max_contributions", "cutoff_margin", "shards"),
            *("max_shard_users", "vocabulary_delta_share", "max_users", "max_items_per_user"),
            *("public_user_count", "count_share"),
            *("partitions", "run_key_file", "harness_timeout", "quiet", "max_rejected", "workers"),
            *("failure_log", "failure_log_remote", "budget", "title", "contact", "unit"),
        ]
    )
    monkeypatch.setenv("COLUMNS", "120")
    shown = re.split(r"\n  (?=-)", cli("set-union", "--help").out)
    by_name = {match[1]: text for text in shown if (match := re.match(r"--(\w+)", text))}
    for option in all_options():
        flat = " ".join(by_name.pop(option.name).split())
        assert f"(default: {option.default_text})" in flat
    assert not by_name


def test_options_are_those_of_the_plan_and_have_its_defaults():
    fields = {field.name: field for field in dataclasses.fields(SetUnionPlan)}
    assert {option.name for option in SET_UNION["privacy"]} == set(fields) - {"adjacency"}
    for option in SET_UNION["privacy"]:
        default = fields[option.name].default
        assert option.default == (None if default is dataclasses.MISSING else default)
    (policy,) = [option for option in SET_UNION["privacy"] if option.name == "policy"]
    assert policy.choices == POLICIES


# Releases


@pytest.mark.parametrize("policy", POLICIES)
def test_each_policy_releases_what_many_share_and_nothing_of_one_user(union, policy):
    # Filled so far that noise takes an item back with probability below exp(-30).
    margin = ("--cutoff_margin", 30) if policy in DESCENT_POLICIES else ()
    ended, folder = union("lists.jsonl", "--tokenizer", "tokens", "--policy", policy, *margin)
    assert ended.status == 0, ended.err
    assert set(released(folder)) == set(SHARED)
    ledger = read_ledger(str(folder))
    assert (ledger["program"], ledger["mechanism"]["policy"]) == ("set-union", policy)
    assert ledger["plan"]["max_contributions"] == 20
    assert ledger["run_key"]["given"] is True
    assert ledger["guarantee"]["user"] == 'each value of the field "user" is one user'
    assert ("promise" in ledger["guarantee"]) == (policy in DESCENT_POLICIES)
    text = ended.out + ended.err + "".join(map(str, files_of(folder).values()))
    assert CANARY.split()[1] not in text


@pytest.mark.parametrize(
    ("name", "tokenizer"), [("lists.parquet", "tokens"), ("single.csv", "item")]
)
def test_lists_and_single_records_are_the_same_items(union, base, name, tokenizer):
    """A user's records meet, whatever form they come in."""
    ended, folder = union(name, "--tokenizer", tokenizer, "--policy", "weighted_gaussian")
    assert ended.status == 0, ended.err
    found = released(folder)
    noise = read_ledger(str(folder))["mechanism"]["rounds"][0]["noise_scale"]
    assert set(found) == set(SHARED)
    # The key is bound to format and tokenizer, so that only the noise differs.
    assert found != released(base)
    assert found == pytest.approx(released(base), abs=12 * noise)


def test_words_of_text_are_items_by_default(union, data):
    (data / "texts.jsonl").write_text(
        json_lines((f"u{i}", f"Good morning, own{i}") for i in range(200))
    )
    ended, folder = union("texts.jsonl")
    assert ended.status == 0, ended.err
    assert set(released(folder)) == {"good", "morning"}
    assert read_ledger(str(folder))["tokenizer"] == "words"


def test_each_line_of_sequences_is_a_user(union, data):
    (data / "visits.seq").write_text("".join(f"1 12 own{i}\n" for i in range(200)))
    ended, folder = union("visits.seq", "--input_format", "sequences")
    assert ended.status == 0, ended.err
    assert set(released(folder)) == {"1", "12"}
    assert read_ledger(str(folder))["guarantee"]["user"] == "each line of a file is one user"


def test_a_release_is_only_replaced_on_request_and_every_format_has_its_rows(union, base, tmp_path):
    shutil.copytree(base, tmp_path / "release")
    refused, folder = union("lists.jsonl", *FIXED)
    assert refused.status == 2
    assert "is a release already" in refused.err
    assert files_of(folder) == files_of(base)
    for output_format in sorted(OUTPUT_FORMATS, reverse=True):
        ended, _ = union("lists.jsonl", *FIXED, "--overwrite", "--output_format", output_format)
        assert ended.status == 0, ended.err
        (name,) = files_of(folder).keys() - {"ledger.json"}
        part = rf"items-[0-9a-f]{{16}}-00000-of-00001\.{output_format}"
        assert re.fullmatch(part, name)
        assert read_release(str(folder)).table().equals(read_release(str(base)).table())


@pytest.mark.parametrize("policy", ["screened_gaussian", "sips"])
def test_one_key_gives_one_release_however_the_work_is_divided(union, data, policy):
    lines = (data / "lists.jsonl").read_text().splitlines(keepends=True)
    random.Random(1).shuffle(lines)
    (data / "part-1.jsonl").write_text("".join(lines[:90]))
    (data / "part-2.jsonl").write_text("".join(lines[90:]))
    fixed = ("--tokenizer", "tokens", "--policy", policy)
    _, first = union("lists.jsonl", *fixed)
    _, second = union("part-*.jsonl", *fixed, "--partitions", 7, output="second")
    assert files_of(first) == files_of(second)
    ended, fresh = union("lists.jsonl", *fixed, output="fresh", key=False)
    assert ended.status == 0
    assert read_ledger(str(fresh))["run_key"]["given"] is False
    # Of 8 scores in cells of a 64th of the noise: equal with probability far below 1e-6.
    assert released(fresh) != released(first)


def test_shards_are_part_of_plan_and_ledger(union):
    fixed = ("--tokenizer", "tokens", "--policy", "policy_gaussian")
    ended, folder = union("lists.jsonl", *fixed, "--shards", 3, "--cutoff_margin", 2.5)
    assert ended.status == 0, ended.err
    ledger = read_ledger(str(folder))
    assert (ledger["plan"]["shards"], ledger["mechanism"]["shards"]) == (3, 3)
    (decided,) = ledger["mechanism"]["rounds"]
    scale = decided["noise_scale"]
    assert decided["cutoff"] == pytest.approx(decided["threshold"] + 2.5 * scale, rel=1e-12)


def test_records_that_cannot_be_used_are_left_out_and_listed(union, data, base, tmp_path):
    good = (data / "lists.jsonl").read_text()
    (data / "bad.jsonl").write_text(good + '{"user":"u","text":[3]}\n{"user":"","text":[]}\n')
    ended, folder = union("bad.jsonl", *FIXED, "--rejects", tmp_path / "rejects")
    assert ended.status == 0, ended.err
    assert "2 records were rejected" in ended.err
    listed = "".join(path.read_text() for path in (tmp_path / "rejects").iterdir())
    assert "user is empty" in listed
    assert files_of(folder) == files_of(base)
    strict, failed = union("bad.jsonl", *FIXED, "--strict", output="strict")
    assert strict.status == 1
    assert "the run failed" in strict.err
    assert not failed.exists()


def test_the_table_tells_the_mechanism_and_where_the_release_is(union):
    policy = ("--policy", "policy_gaussian", "--cutoff_margin", 30)
    ended, folder = union("lists.jsonl", "--tokenizer", "tokens", *policy, "--quiet")
    assert ended.err == ""
    for text in ("policy", "items", "noise", "threshold ρ", "cutoff Γ", "Gaussian, σ ="):
        assert text in ended.out
    row = next(line for line in ended.out.splitlines() if "policy_gaussian" in line)
    assert [cell.strip() for cell in row.split("│")[1:3]] == ["policy_gaussian", "8"]
    assert f"Files: {folder} (start with ledger.json)" in ended.out


def test_the_progress_shows_stages_without_lengths(capsys):
    with display.progress_line(max_length=None, input_bytes=100, quiet=False):
        progress.enter("decide", 1)
        time.sleep(3 * display._REFRESH_SECONDS)
    assert re.fullmatch(r"beam-dpne: +\d+\.\d s  adding noise\n", capsys.readouterr().err)


# What is refused


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--policy", "thresholded"], ["policy", "invalid choice"]),
        (["--policy", "sips", "--shards", 2], ["shards must not be given", "'sips'"]),
        (
            ["--policy", "weighted_gaussian", "--cutoff_margin", 3],
            ["cutoff_margin must not be given", "'weighted_gaussian'"],
        ),
        (["--cutoff_margin", -1], ["cutoff_margin must be", "cutoff_margin=-1"]),
        (["--shards", 0], ["shards must be an integer from 1", "shards=0"]),
        (
            ["--shards", 1, "--max_users", 20_000_000],
            ["max_shard_users must be at least max_users/shards=20000000", "raise shards"],
        ),
        (["--max_contributions", 0], ["max_contributions must be", "max_contributions=0"]),
        (["--max_users", 0], ["max_users must be", "max_users=0"]),
        (["--max_items_per_user", 0], ["max_items_per_user must be", "=0"]),
        (["--delta", 2], ["delta must be in (0, 1)", "delta=2"]),
        (["--epsilon", 0], ["epsilon must be", "epsilon=0"]),
        (["--tokenizer", "letters"], ["tokenizer must be one of", "'letters'"]),
        (["--partitions", 0], ["partitions must be at least 1", "partitions=0"]),
        (["--workers", -1], ["workers must be at least 0", "workers=-1"]),
        (["--workers", 100_000], ["workers must be at most 256", "workers=100000"]),
        (["--max_length", 2], ["--max_length"]),
        # No option of bayesian is meant here, such as public_weight.
        (
            ["--public_weigth", 2],
            ["there is no option --public_weigth; did you mean --public_user_count?"],
        ),
        (["--side_input_limit", 2], ["--side_input_limit"]),
    ],
)
def test_a_wrong_parameter_is_one_line_and_nothing_is_read(union, arguments, words):
    ended, folder = union("none.jsonl", *arguments)
    assert (ended.status, ended.out, ended.err.count("\n")) == (2, "", 1)
    for word in words:
        assert word in ended.err
    assert "none.jsonl" not in ended.err
    assert not folder.exists()


@pytest.mark.parametrize("given", [(), ("--epsilon", 1), ("--delta", 1e-7)])
def test_a_missing_budget_is_refused_with_advice_before_files_are_opened(cli, given):
    files = ("--input", "/does/not/exist.jsonl", "--output", "/does/not/exist")
    ended = cli("set-union", *files, *given)
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert "well below one over the number of users" in ended.err
    for name in {"--epsilon", "--delta"} - set(given):
        assert name[2:] in ended.err.split(" must be given")[0]


@pytest.mark.parametrize("name", ["input", "output"])
def test_files_must_be_named(cli, tmp_path, name):
    given = {"input": tmp_path / "a.jsonl", "output": tmp_path / "out"}
    del given[name]
    files = (f"--{option}={path}" for option, path in given.items())
    ended = cli("set-union", *BUDGET, *files)
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert f"{name} must be given: --{name} PATH" in ended.err


def test_missing_files_and_fields_are_refused(union):
    ended, _ = union("none.jsonl")
    assert ended.status == 2
    assert "none.jsonl" in ended.err
    ended, _ = union("single.csv", "--text_field", "body")
    assert ended.status == 2
    assert "text_field must name a field" in ended.err
    ended, _ = union("single.csv", "--tokenizer", "tokens")
    assert ended.status == 2
    assert "tokens" in ended.err


# On an engine


def test_a_job_on_an_engine_is_watched_and_asks_whether_it_is_wanted(data, tmp_path, monkeypatch):
    from beam_dpne.cli import runners

    seen = []

    def run(pipeline, canary):
        labels = {t.unique_name for t in pipeline.to_runner_api().components.transforms.values()}
        seen.append((labels, pathlib.Path(canary.marks.wanted).exists(), canary.timeout))
        raise runners.RunError("stop here")

    monkeypatch.setattr(runners, "run_pipeline", run)
    files = ["--input", str(data / "lists.jsonl"), "--output", str(tmp_path / "out")]
    given = ["set-union", *map(str, BUDGET), *files, "--tokenizer", "tokens"]
    assert main([*given, "--harness_timeout", "9", "--runner", "PrismRunner"]) == 1
    ((labels, wanted, timeout),) = seen
    assert {"Read/Canary", "Publish/Publish"} <= labels
    assert any(label.startswith("PrivateSetUnion/") for label in labels)
    assert wanted
    assert timeout == 9
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("policy", ["weighted_gaussian", DESCENT_POLICIES[0]])
def test_a_relative_output_means_the_launchers_directory(union, policy, monkeypatch, tmp_path):
    """Whatever a worker's is; and no file there holds the key."""
    monkeypatch.chdir(tmp_path)
    form = ("--tokenizer", "tokens", "--policy", policy, "--output", "relative")
    ended, _ = union("lists.jsonl", *form)
    assert ended.status == 0, ended.err
    assert (tmp_path / "relative" / "ledger.json").exists()
    assert KEY not in "".join(map(str, files_of(tmp_path / "relative").values()))


def test_the_tokenizer_of_single_items_can_be_named_by_a_library_user():
    found = tokenizers.resolve_tokenizer("item")
    assert tokenizers.tokenize(found, pa.array(SHARED)).to_pylist() == [[item] for item in SHARED]
    assert tokenizers.tokenize(found, pa.array(SHARED)[2:5]).to_pylist() == [
        [i] for i in SHARED[2:5]
    ]
