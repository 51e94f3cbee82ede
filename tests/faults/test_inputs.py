"""Inputs cut short, before a run and under it: what is lost is told, or the run fails."""

import os

import pytest

from tests.faults import conftest
from tests.faults.schedules import BEFORE, Fault, Once
from tests.faults.tally import FAILED, SAME, TALLY
from tests.faults.test_exhausted import assert_clear_failure

pytestmark = pytest.mark.faults

READ = "Read/Read/ParDo(_ReadItem)"
FILES = ["one.jsonl", "two.jsonl.gz", "three.csv", "five.parquet"]


@pytest.fixture
def copy(corpus, tmp_path):
    """A corpus of one's own, to be damaged."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name, data in conftest.files_of(corpus).items():
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture
def base(options, copy):
    return (*options[:2], f"{copy}/*", *options[3:])


def cut_in_half(path):
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("name", ["two.jsonl.gz", "five.parquet"])
def test_a_file_cut_before_the_run_fails_it_by_name(run, base, copy, name):
    cut_in_half(copy / name)
    outcome = run(base=base)
    assert outcome.ended.status in (1, 2)
    assert outcome.ended.out == ""
    assert name in outcome.ended.err.splitlines()[-1]
    assert not (outcome.folder / "release").exists()
    TALLY.add([Fault("truncated input", READ)], FAILED)


def test_a_record_cut_before_the_run_is_a_reject(run, base, copy):
    """The release is that of the records that are whole, and the operator is told."""
    path = copy / "one.jsonl"
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole[:-1]))
    expected = run(base=base)
    path.write_bytes(b"".join(whole)[:-20])
    cut = run(base=base)
    assert cut.release == expected.release
    assert "3 records were rejected" in cut.ended.err
    assert "2 records were rejected" in expected.ended.err
    assert_clear_failure(run("--strict", base=base))
    TALLY.add([Fault("truncated input", READ)], SAME)


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_under_the_run_fails_it(run, base, copy, disturbed, name):
    """Its size was known when the run began: less is not taken for all of it."""
    schedule = Once(READ, BEFORE, lambda: cut_in_half(copy / name))
    outcome, _ = disturbed(schedule, base=base, attempts=3)
    assert schedule.count == 1
    assert_clear_failure(outcome)
    assert name in outcome.ended.err.splitlines()[-1]
    TALLY.add([Fault("truncated input", READ)], FAILED)
