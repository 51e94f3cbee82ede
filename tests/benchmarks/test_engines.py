"""Jobs on engines beside the embedded runner: their data and rows, and that other bytes are noticed."""

import gzip
import hashlib
import json
import secrets

import pytest

from tests.benchmarks import engines, inputs
from tests.benchmarks.engines import MSNBC, TEN_TIMES, TITLES, Engine
from tests.benchmarks.workloads import DEFAULT, ONE_ROUND, Setting


@pytest.fixture
def setting(tmp_path) -> Setting:
    """A hundred titles, in a folder of their own."""
    work = tmp_path / "work"
    work.mkdir()
    titles = inputs.some_records(inputs.TITLES, tmp_path / "titles.jsonl.gz", count=100)
    return Setting(titles, titles, False, 1, work)


def records_of(path):
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
        return [json.loads(line) for line in lines]


def test_ten_times_the_titles_are_those_titles_of_ten_times_the_users(setting):
    once, ten = records_of(setting.titles), records_of(engines.ten_times(setting))
    assert [record["text"] for record in ten] == 10 * [record["text"] for record in once]
    users = {record["user"] for record in once}
    assert len({record["user"] for record in ten}) == 10 * len(users)
    # A user of the copies has the titles that the user has in the original.
    assert [record["user"].partition("-")[2] for record in ten] == 10 * [
        record["user"] for record in once
    ]


def test_ten_times_the_titles_are_made_once_and_leave_nothing_else(setting):
    made = engines.ten_times(setting)
    before = made.stat().st_mtime_ns
    assert engines.ten_times(setting) == made
    assert made.stat().st_mtime_ns == before
    assert list(setting.work.glob("ten*")) == [made]


def test_each_data_set_and_strategy_has_its_command(setting):
    files = {
        TITLES: setting.titles,
        TEN_TIMES: setting.work / "ten.jsonl",
        MSNBC: setting.work / "msnbc.seq.gz",
    }
    for data, path in files.items():
        for strategy, option in ((DEFAULT, "adaptive"), (ONE_ROUND, "one_round")):
            words = engines.command_of(data, strategy, setting)
            assert words[0] == f"pipelines/{'msnbc' if data == MSNBC else 'ngrams'}.py"
            assert words[words.index("--input") + 1] == str(path)
            assert f"--strategy={option}" in words
            assert path.is_file()


def test_a_recorded_command_names_no_folder_of_the_machine(setting):
    job = [*engines.command_of(TEN_TIMES, ONE_ROUND, setting), "--run_key_file", "/tmp/x/run.key"]
    shown = engines.shown_command(job, ["--prism_location", "/home/somebody/prism"])
    assert shown.startswith("python pipelines/ngrams.py --input ten.jsonl --tokenizer words ")
    assert shown.endswith("--run_key_file run.key --output release --prism_location prism")
    assert str(setting.work) not in shown


def part(engine="flink", data=TITLES, strategy=DEFAULT, small=False, **others):
    return {"engine": engine, "data": data, "strategy": strategy, "small": small, **others}


def test_a_new_part_replaces_the_old_one_of_its_kind_only(tmp_path):
    path = tmp_path / "engines.json"
    kinds = [
        part(),
        part(engine="spark"),
        part(data=MSNBC),
        part(strategy=ONE_ROUND),
        part(small=True),
    ]
    engines.record([{**kind, "run": 1} for kind in kinds], path)
    engines.record([part(run=2)], path)
    found = json.loads(path.read_text())
    assert len(found) == len(kinds)
    assert [one["run"] for one in found if one == part(run=one["run"])] == [2]
    assert sorted(one["run"] for one in found) == [1, 1, 1, 1, 2]


def test_digests_are_of_all_files_of_a_release_by_name(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "b").write_bytes(b"text")
    (tmp_path / ".a").write_bytes(b"")
    assert engines.digests(tmp_path) == {
        ".a": hashlib.sha256(b"").hexdigest(),
        "folder/b": hashlib.sha256(b"text").hexdigest(),
    }


def test_prism_has_no_daemons():
    assert Engine(["--runner", "PrismRunner"]).processes() == []


def test_a_job_that_fails_is_shown_with_what_it_said(tmp_path):
    command = ["pipelines/ngrams.py", "--input", str(tmp_path / "absent.jsonl"), "--quiet"]
    with pytest.raises(RuntimeError, match=r"(?s)ended with 2:\n.*epsilon"):
        engines.measure(command, Engine(()), tmp_path / "release")


@pytest.mark.benchmark
def test_releases_are_compared_byte_for_byte(setting, tmp_path, capsys):
    keys = []
    for name in ("run.key", "other.key"):
        keys.append(tmp_path / name)
        keys[-1].touch(mode=0o600)
        keys[-1].write_text(secrets.token_hex(32))
    job = [*engines.command_of(TEN_TIMES, ONE_ROUND, setting), "--run_key_file", str(keys[0])]
    # The option that comes last counts: a release under another key, whose bytes differ.
    other = Engine(["--run_key_file", str(keys[1])])
    rows = engines.compare("another key", job, other, 1, tmp_path)
    assert [(row["where"], row["equal"]) for row in rows] == [
        ("embedded, one step", True),
        ("embedded, graph", True),
        ("another key", False),
    ]
    for row in rows:
        (run,) = row["runs"]
        assert run.keys() == {"seconds", "cpu", "processes"}
        assert run["processes"].keys() == {"launcher"}
        assert 0 < run["cpu"] == run["processes"]["launcher"]["cpu"]
        assert run["processes"]["launcher"]["megabytes"] > 50
    assert "1: another key: " in capsys.readouterr().err
    assert not (tmp_path / "release").exists()
