"""What is as secret as the data is refused where a release would be published with it."""

import json
import os
import re

import pytest

RUN = ("--epsilon", 10, "--delta", 1e-4, "--max_length", 1)
CAP = ("--population", "us", "--epsilon", 20, "--delta", 1e-3)


@pytest.fixture
def place(tmp_path):
    """A directory with other files, and an input and a key beside it."""
    (tmp_path / "out" / "deep").mkdir(parents=True)
    rows = [json.dumps({"user": f"u{number}", "text": "green tea"}) for number in range(200)]
    for folder in (tmp_path, tmp_path / "out", tmp_path / "out" / "deep"):
        (folder / "notes.jsonl").write_text("\n".join(rows))
        (folder / "run.key").write_text("0f1e2d3c" * 8)
        (folder / "run.key").chmod(0o600)
        (folder / "stop").write_text("tea\n")
    (tmp_path / "link").symlink_to(tmp_path / "out")
    (tmp_path / "linked.key").symlink_to(tmp_path / "out" / "run.key")
    (tmp_path / "out" / "outside.key").symlink_to(tmp_path / "run.key")
    (tmp_path / "out" / "outside").symlink_to(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("option", "path"),
    [
        ("input", "out/deep/notes.jsonl"),
        ("input", "out"),
        ("input", "*/notes.jsonl"),
        ("run_key_file", "out/run.key"),
        ("run_key_file", "link/deep/run.key"),
        ("run_key_file", "out/deep/../run.key"),
        ("run_key_file", "linked.key"),
        ("run_key_file", "out/outside.key"),
        ("run_key_file", "out/outside/run.key"),
        ("stop_list", "out/stop"),
        ("rejects", "out/rejects"),
        ("rejects", "link"),
        ("failure_log", "out/deep/f.log"),
        ("failure_log", "out/outside/f.log"),
        ("budget", "out/budget"),
        ("temp_location", "out/temporary"),
        ("temp_location", "link"),
    ],
)
@pytest.mark.parametrize("program", ["ngrams", "set-union"])
def test_secrets_below_the_output_are_refused_before_any_work(cli, place, option, path, program):
    before = sorted(place.rglob("*"))
    given = {"input": place / "notes.jsonl", "output": place / "out", option: place / path}
    options = [text for name, value in given.items() for text in (f"--{name}", value)]
    privacy = RUN if program == "ngrams" else RUN[:4]
    ended = cli(program, *options, *privacy, "--overwrite")
    assert ended.status == 2
    assert re.search(f"{option}`? must be outside", ended.err)
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize("temporary", ["out", "out/deep", "link/deep"])
def test_a_temporary_folder_of_the_system_below_the_output_is_refused(
    cli, place, monkeypatch, temporary
):
    """A run that is killed leaves sets there that are as secret as the data."""
    monkeypatch.setattr("tempfile.tempdir", str(place / temporary))
    before = sorted(place.rglob("*"))
    given = ("--input", place / "notes.jsonl", "--output", place / "out", *RUN, "--overwrite")
    ended = cli("ngrams", *given)
    assert (ended.status, "temp_location must be outside" in ended.err) == (2, True)
    assert sorted(place.rglob("*")) == before
    assert cli("ngrams", *given, "--temp_location", place / "elsewhere").status == 0


@pytest.mark.parametrize("bucket", ["gs://releases", "s3://releases/"])
def test_a_whole_bucket_has_no_place_beside_it_for_what_an_engine_writes(cli, place, bucket):
    given = ("--input", place / "notes.jsonl", "--output", bucket, *RUN)
    ended = cli("ngrams", *given, "--runner", "PortableRunner")
    assert (ended.status, "temp_location must be given" in ended.err) == (2, True)
    for more in (("--runner", "PortableRunner", "--temp_location", place / "temporary"), ()):
        assert "temp_location must be given" not in cli("ngrams", *given, *more).err


def test_the_same_secrets_beside_the_output_are_fine(cli, place):
    assert cli("account", "--budget", place / "budget", "--create", *CAP).status == 0
    given = (
        *("--input", place / "notes.jsonl", "--run_key_file", place / "run.key"),
        *("--stop_list", place / "stop", "--rejects", place / "output-rejects"),
        *("--failure_log", place / "out.log", "--budget", place / "budget"),
        *("--temp_location", place / "out-temporary"),
    )
    ended = cli("ngrams", *given, "--output", place / "out", "--overwrite", *RUN)
    assert ended.status == 0, ended.err


def test_a_budget_is_not_made_inside_a_release(cli, place):
    given = ("--input", place / "notes.jsonl", "--output", place / "new", *RUN)
    assert cli("ngrams", *given, "--quiet").status == 0
    (place / "to-new").symlink_to(place / "new")
    for inside in ("new", "new/budget", "to-new/budget"):
        ended = cli("account", "--budget", place / inside, "--create", *CAP)
        assert (ended.status, "budget must be outside every release" in ended.err) == (2, True)
    assert not list((place / "new").glob("budget*"))


def test_a_key_that_others_can_read_is_named_and_one_of_one_digit_is_refused(cli, place):
    key = place / "run.key"
    given = ("--input", place / "notes.jsonl", "--run_key_file", key, *RUN)
    for mode, output, is_named in ((0o600, "a", False), (0o640, "b", True), (0o604, "c", True)):
        os.chmod(key, mode)
        ended = cli("ngrams", *given, "--output", place / output)
        assert ended.status == 0, ended.err
        assert (f"others than its owner can read {key}" in ended.err) is is_named
    for digit in "0f":
        key.write_text(digit * 64)
        ended = cli("ngrams", *given, "--output", place / "d")
        assert (ended.status, "must hold a random key" in ended.err) == (2, True)
    key.unlink()
    ended = cli("ngrams", *given, "--output", place / "d")
    assert (ended.status, "run_key_file cannot be read" in ended.err) == (2, True)


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("count", "phrases"),
        ("ngrams", "known"),
        ("bayesian", "public"),
        ("ngrams", "stop_list"),
        ("ngrams", "run_key_file"),
    ],
)
def test_a_pipe_is_no_file_that_can_be_read_several_times(cli, tmp_path, command, option):
    """As of a shell's `<(…)`: it would be empty when it is read again, or nobody would write there."""
    (tmp_path / "notes.csv").write_text("user,text\nann,see you\n")
    os.mkfifo(tmp_path / "pipe")
    given = ("--input", tmp_path / "notes.csv", "--output", tmp_path / "out", "--epsilon", "1")
    ended = cli(command, *given, "--delta", "1e-6", f"--{option}", tmp_path / "pipe")
    assert ended.status == 2
    assert re.search(rf"--{option} must .* read several times, got .*, which is a pipe", ended.err)
