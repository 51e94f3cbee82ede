"""`beam-dpne ngrams`: real files, real runs, what is printed and what is on disk."""

import fcntl
import json
import os
import pathlib
import pty
import random
import shutil
import signal
import sys
import time

import pytest

from beam_dpne.elements import progress
from beam_dpne.elements.progress import Snapshot
from beam_dpne.jobs import console
from beam_dpne.jobs.running import only_run_to
from beam_dpne.release.reading import read_ledger, read_release

BUDGET = ("--epsilon", 10, "--delta", 1e-4)
RUN = (*BUDGET, "--max_length", 2, "--rounds", 2, "--max_contributions", "5,8")
WORDS = ("Good", "morning", "dear", "friend", "of", "naïve", "people,", '"everywhere"', "日本語")
SLOW = """
import time
import pyarrow.compute as pc

def splits(texts):
    if len(texts) > 100:  # More than the first texts, on which it is tried.
        time.sleep(60)
    return pc.split_pattern(texts, " ")
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """120 users with a few documents each, whose first words are everybody's, and a run key."""
    folder, chance = tmp_path_factory.mktemp("data"), random.Random(5)
    rows = [
        {"user": f"user-{place:03}", "text": " ".join(WORDS[:3] + tuple(chance.sample(WORDS, 4)))}
        for place in range(120)
        for _ in range(chance.randint(1, 3))
    ]
    (folder / "notes.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "key").write_text("0f1e2d3c" * 8)
    return folder


@pytest.fixture
def release(cli, data, tmp_path):
    """Releases the documents into a directory of this test; returns how it ended, and the place."""

    def run(*arguments, output="out", **_):
        place = tmp_path / output
        given = ("--input", data / "notes.jsonl", "--output", place, *RUN)
        return cli("ngrams", *given, *arguments), place

    return run


def files_of(folder):
    return {path.name: path.read_bytes() for path in sorted(pathlib.Path(folder).iterdir())}


def rows_of(folder):
    return read_release(str(folder)).table().to_pylist()


def test_the_table_is_on_stdout_and_progress_is_not(release):
    ended, place = release("--title", "Notes", "--unit", "a customer")
    assert ended.status == 0, ended.err
    assert "noise stddev" not in ended.out
    assert (
        "threshold: a released row has at least this noisy weight, or was known before" in ended.out
    )
    assert f"Files: {place} (start with ledger.json)" in ended.out
    assert "beam-dpne:" not in ended.out
    texts = {row["ngram"] for row in rows_of(place)}
    assert {"good", "morning", "good morning"} <= texts


def test_quiet_prints_nothing_on_success(release):
    ended, _ = release("--quiet")
    assert ended == (0, "", "")


def test_an_empty_release_is_a_success_that_warns_also_if_it_is_quiet(cli, tmp_path):
    path = tmp_path / "notes.jsonl"
    path.write_text('{"user": "ann", "text": "good morning"}\n')
    for quiet in ((), ("--quiet",)):
        place = tmp_path / f"out{len(quiet)}"
        ended = cli("ngrams", "--input", path, "--output", place, *RUN, *quiet)
        assert ended.status == 0
        assert f"warning: the release is EMPTY: {place} has a ledger and no row" in ended.err
        assert bool(ended.out) is not bool(quiet)


def test_progress_has_the_rate_the_time_left_and_the_part_that_is_done():
    for now, seconds, shown in (
        (Snapshot("read", None, 10**7), 0.5, "reading and tokenizing, 10% of the input"),
        (Snapshot("read", None, 10**7), 5, "…, 10% of the input, 2 MB/s, 45 s left"),
        (Snapshot("read", None, 10**6), 60, "…, 1% of the input, 0.0167 MB/s, 99 min left"),
        (Snapshot("read", None, 10**8), 5, "reading and tokenizing"),
        (Snapshot("users", 3, 0, 2, 8, 6), 5, "length 3, round 2: adding up … users, 75%"),
        (Snapshot("publish", None, 0), 5, "writing the release"),
    ):
        start, _, end = shown.rpartition("…")
        told = console.progress_told(now, 10**8, seconds)
        assert told.startswith(start)
        assert told.endswith(end)


def test_without_a_terminal_a_line_comes_in_every_interval(capfd, monkeypatch):
    monkeypatch.setattr(console, "_LOG_SECONDS", 0.3)
    with console.progress_line(100, quiet=False):
        progress.enter("users", 1)
        time.sleep(1.5)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) >= 3
    assert all("length 1: adding up contributions of users" in line for line in lines[1:])


@pytest.mark.parametrize("form", ["jsonl", "csv", "tsv", "parquet"])
def test_every_format_holds_the_same_release(release, data, form):
    key = ("--run_key_file", data / "key", "--quiet")
    _, first = release(*key, output="first")
    _, other = release(*key, "--output_format", form, output=form)
    assert rows_of(other) == rows_of(first) != []


def test_one_key_gives_the_same_bytes_however_the_work_is_divided(release, data):
    key = ("--run_key_file", data / "key", "--quiet")
    _, first = release(*key, output="first")
    for number, others in enumerate(
        [
            ("--partitions", 7, "--runner", "FnApiRunner"),
            ("--workers", 3),
            ("--side_input_limit", 1, "--runner", "FnApiRunner"),
            ("--title", "Another", "--runner", "FnApiRunner", "--direct_num_workers", 2),
        ]
    ):
        ended, place = release(*key, *others, output=f"other-{number}")
        assert ended.status == 0, ended.err
        ours = {name: data for name, data in files_of(place).items() if name != "ledger.json"}
        assert ours.items() <= files_of(first).items()
    _, fresh = release("--quiet", output="fresh")
    assert rows_of(fresh) != rows_of(first)


def test_a_release_is_only_replaced_on_request(release):
    release("--quiet")
    ended, place = release("--quiet")
    before = files_of(place)
    assert (ended.status, files_of(place)) == (2, before)
    assert "overwrite" in ended.err
    ended, _ = release("--quiet", "--overwrite")
    assert (ended.status, ended.err) == (0, "")
    assert rows_of(place)


def test_what_cannot_be_deleted_is_told_and_fails_nothing(program, data, tmp_path):
    place = tmp_path / "out"
    (place / "ngrams-0123456789abcdef-00000-of-00001.jsonl").mkdir(parents=True)
    given = ("--input", data / "notes.jsonl", "--output", place, "--overwrite", "--quiet", *RUN)
    for more in ((), ("--runner", "FnApiRunner"), ("--failure_log", tmp_path / "f.log")):
        ended = program.run("ngrams", *given, *more)
        assert ended.status == 0, ended.err
        assert ended.err.count("could not be deleted") == 1


def test_a_second_run_to_one_directory_is_refused_while_the_first_is_at_work(
    release, program, data, tmp_path
):
    """Whatever its TMPDIR and by whatever path it comes; and nothing is left of runs that fail."""
    place = tmp_path / "new" / "out"
    (tmp_path / "link").symlink_to(tmp_path / "new")
    given = ("ngrams", "--input", data / "notes.jsonl", "--quiet", *RUN)
    with only_run_to(str(place)):
        for path in (place, tmp_path / "link" / "out"):
            ended = program.run(*given, "--output", path)
            assert (ended.status, list(place.iterdir())) == (2, []), ended.err
            assert "--output must be of one run at a time" in ended.err
        assert release("--quiet", output="new/other")[0].status == 0
    assert not place.exists()
    assert program.run(*given, "--output", place).status == 0


OTHER = """
import pathlib, shutil
import pyarrow.compute as pc

def splits(texts):
    here = pathlib.Path(__file__).parent
    if len(texts) > 100:  # More than the first texts, on which it is tried.
        shutil.copytree(here / "other", here / "out", dirs_exist_ok=True)
    return pc.split_pattern(texts, " ")
"""


@pytest.mark.parametrize("how", [("--workers", 1), ("--runner", "FnApiRunner")])
def test_a_release_that_comes_while_a_run_is_at_work_is_not_replaced(
    release, tmp_path, monkeypatch, how
):
    """As from another machine, or from a pipeline of one's own."""
    (tmp_path / "other_run.py").write_text(OTHER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "other_run", raising=False)
    _, other = release("--quiet", output="other")
    ended, place = release("--tokenizer", "other_run:splits", *how)
    assert (ended.status, "is a release already" in ended.err) == (1, True), ended.err
    assert files_of(place) == files_of(other)


def test_the_release_of_a_run_that_has_just_ended_is_not_taken_for_ones_own(
    release, tmp_path, monkeypatch
):
    """Else a run that is interrupted would end as if it had published."""
    (tmp_path / "interrupted.py").write_text(
        SLOW.replace("time.sleep(60)", "raise KeyboardInterrupt")
    )
    monkeypatch.syspath_prepend(tmp_path)
    _, other = release("--quiet", output="other")
    lock = fcntl.flock

    def lock_after_another_run(handle, how):
        monkeypatch.setattr(fcntl, "flock", lock)
        shutil.copytree(other, tmp_path / "out", dirs_exist_ok=True)
        lock(handle, how)

    monkeypatch.setattr(fcntl, "flock", lock_after_another_run)
    ended, place = release("--tokenizer", "interrupted:splits", "--workers", 1)
    assert (ended.status, "published:" in ended.err) == (130, False), ended.err
    assert files_of(place) == files_of(other)


def test_a_run_that_publishes_nothing_leaves_no_folder(tmp_path):
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "new" / "deep" / "out", tmp_path / "empty"):
        with only_run_to(str(place)):
            assert place.is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_a_release_holds_neither_the_key_nor_where_it_was_made(release, data, tmp_path):
    _, place = release("--run_key_file", data / "key", "--quiet")
    for content in files_of(place).values():
        assert b"0f1e2d3c" not in content
        assert str(tmp_path).encode() not in content
        assert b"user-0" not in content


def test_rejects_are_counted_listed_and_limited(cli, data, tmp_path):
    path = tmp_path / "notes.jsonl"
    path.write_text((data / "notes.jsonl").read_text() + "\n{broken\n" * 2)
    given = ("ngrams", "--input", path, "--output", tmp_path / "out", *RUN)
    ended = cli(*given, "--rejects", tmp_path / "rejects")
    assert ended.status == 0, ended.err
    assert "2 records were rejected" in ended.err
    assert "as secret as the data" in ended.err
    (listed,) = (tmp_path / "rejects").glob("*.jsonl")
    assert [json.loads(line)["reason"] for line in listed.read_text().splitlines()] == [
        "malformed JSON"
    ] * 2
    inside = cli(*given, "--overwrite", "--rejects", tmp_path / "out" / "rejects")
    assert (inside.status, "rejects must be outside every release" in inside.err) == (2, True)
    for how in ((), ("--runner", "FnApiRunner")):
        shutil.rmtree(tmp_path / "rejects")
        share = 2 / len(path.read_text().splitlines())
        more = ("--max_rejected", 0.99 * share, "--rejects", tmp_path / "rejects")
        ended = cli(*given[:4], tmp_path / "no", *RUN, *more, *how)
        assert ended.status == 1
        assert not (tmp_path / "no").exists()
        # The list says what is to be corrected, above all if the run has failed for it.
        assert len(listed.read_text().splitlines()) == 2


def test_an_input_without_records_is_refused_if_it_is_empty_and_noticed_if_not(cli, tmp_path):
    for name in ("in.jsonl", "in.json", "in.csv"):
        (tmp_path / name).touch()
        ended = cli("ngrams", "--input", tmp_path / name, "--output", tmp_path / "no", *RUN)
        assert (ended.status, (tmp_path / "no").exists()) == (2, False), ended.err
        assert "input must have records" in ended.err
    (tmp_path / "in.csv").write_text("user,text\n")
    given = ("--input", tmp_path / "in.csv", "--output", tmp_path / "out", *RUN)
    for more in ((), ("--quiet", "--overwrite")):
        ended = cli("ngrams", *given, *more)
        assert ended.status == 0, ended.err
        assert "the input has no records" in ended.err
        assert rows_of(tmp_path / "out") == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("--input", "missing.jsonl"), "missing.jsonl"),
        (("--user_field", "who"), "user_field"),
        (("--run_key_file", "missing.key"), "run_key_file cannot be read"),
        (("--run_key_file", "BAD"), "run_key_file must hold a run key"),
        (("--template_location", "gs://b/t"), "--template_location needs --run_key_file"),
        (("--tokenizer", "no_such_module:f"), "tokenizer"),
        (("--runner", "NoSuchRunner"), "runner cannot be used"),
        (("--runner", "FlinkRuner"), "Did you mean FlinkRunner?"),
        (("--output", "/dev/null/x"), "output"),
    ],
)
def test_what_cannot_be_used_is_refused_before_the_run(cli, data, tmp_path, change, message):
    (tmp_path / "bad.key").write_text("secret words")
    change = [tmp_path / "bad.key" if each == "BAD" else each for each in change]
    given = ("--input", data / "notes.jsonl", "--output", tmp_path / "out", *RUN)
    ended = cli("ngrams", *given, *change)
    assert (ended.status, ended.out) == (2, "")
    assert message in ended.err
    assert "secret words" not in ended.err
    assert ended.err.count("\n") == 1
    assert not (tmp_path / "out" / "ledger.json").exists()


def test_a_large_delta_is_a_warning(cli, data, tmp_path):
    given = ("--input", data / "notes.jsonl", "--epsilon", 10, "--max_length", 2, "--quiet")
    ended = cli("ngrams", *given, "--output", tmp_path / "large", "--delta", 5e-3)
    assert "warning: delta=0.005 is large" in ended.err
    told = ("--delta", 0.01, "--public_user_count", 99)
    ended = cli("ngrams", *given, "--output", tmp_path / "told", *told)
    assert "warning" not in ended.err


def test_a_terminal_shows_a_live_line_without_users_or_words(program, data, tmp_path):
    ours, theirs = pty.openpty()
    given = ("--input", data / "notes.jsonl", "--output", tmp_path / "out", *RUN)
    with program.start("ngrams", *given, stderr=theirs) as process:
        process.communicate()
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.close(ours)
    assert process.returncode == 0
    assert b"of the input" in shown or b"length" in shown or b"starting" in shown
    assert b"user-0" not in shown
    assert b"morning" not in shown


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_after_the_end_of_a_run_does_not_change_its_status(
    program, data, tmp_path, number
):
    """Else whoever repeats what has failed would spend the budget twice."""
    (tmp_path / "late.py").write_text(
        "import atexit, os\nfrom pyarrow.compute import utf8_split_whitespace\n"
        f"atexit.register(os.kill, os.getpid(), {int(number)})\n"
    )
    given = ("--input", data / "notes.jsonl", "--output", tmp_path / "out", *RUN)
    paths = os.pathsep.join([str(tmp_path), program.environment()["PYTHONPATH"]])
    command = ("ngrams", *given, "--tokenizer", "late:utf8_split_whitespace")
    ended = program.run(*command, env=program.environment(PYTHONPATH=paths))
    assert (ended.status, "Traceback" in ended.err) == (0, False)
    assert ended.err.splitlines()[-1] == f"published: {tmp_path / 'out'}"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_run_with_one_line_and_nothing_is_left(
    program, data, tmp_path, number, status
):
    (tmp_path / "slow_splitter.py").write_text(SLOW)
    given = ("--input", data / "notes.jsonl", "--output", tmp_path / "out", *RUN)
    paths = os.pathsep.join([str(tmp_path), program.environment()["PYTHONPATH"]])
    command = ("ngrams", *given, "--tokenizer", "slow_splitter:splits")
    with program.start(*command, env=program.environment(PYTHONPATH=paths)) as process:
        started = time.monotonic()
        for line in process.stderr:
            if "reading" in line or time.monotonic() > started + 60:
                break
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == status
    assert err.count("\n") <= 1
    if number == signal.SIGINT:
        assert err == "beam-dpne: interrupted; nothing was published.\n"
    assert not (tmp_path / "out").exists() or not files_of(tmp_path / "out")
    assert not list(program.temporary.glob(".beam_dpne-*/*"))


def test_a_plan_is_printed_and_written_and_gives_the_same_release(cli, data, tmp_path):
    path = tmp_path / "plan.json"
    ended = cli("plan", *RUN, "--output", path)
    assert ended.status == 0, ended.err
    assert "Users that an n-gram needs" in ended.out
    assert "the plan is in" in ended.err
    given = ("--input", data / "notes.jsonl", "--run_key_file", data / "key", "--quiet")
    assert cli("ngrams", *given, "--plan", path, "--output", tmp_path / "a").status == 0
    assert cli("ngrams", *given, *RUN, "--output", tmp_path / "b").status == 0
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")
    assert read_ledger(str(tmp_path / "a"))["plan"] == json.loads(path.read_text())


def test_a_budget_counts_runs_and_refuses_one_above_its_cap(cli, release, tmp_path):
    budget = ("--budget", tmp_path / "budget")
    cap = ("--population", "readers", "--epsilon", 11, "--delta", 2e-4)
    for given in (("--create", *cap), ()):
        ended = cli("account", *budget, *given)
        assert ended.status == 0
        assert "readers: ε = 11, δ = 0.0002" in ended.out
    ended, place = release(*budget, "--quiet")
    assert (ended.status, ended.err) == (0, "")
    shown = json.loads(cli("account", *budget, "--json").out)
    assert [(run["state"], run["epsilon"]) for run in shown["runs"]] == [("released", 10)]
    assert shown["total"]["epsilon"] <= 10
    assert "Together: ε = " in cli("account", place).out
    for form in ((), ("--json",)):
        ended = cli("account", place, "--delta", 1e-9, *form)
        assert (ended.status, ended.out) == (2, "")
        assert "no ε exists at this δ; take a larger one" in ended.err
    ended, place = release(*budget, "--quiet", output="second")
    assert ended.status == 2
    assert "does not allow this run" in ended.err
    assert not place.exists()
