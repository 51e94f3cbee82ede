"""A run from parameters, without any face: what it publishes, and what its operator is told."""

import contextlib
import json
import shutil

import pytest

from beam_dpne.accounting.budget import create_budget, open_budget
from beam_dpne.accounting.population import CountedLedger, Note
from beam_dpne.elements import progress
from beam_dpne.errors import RunError
from beam_dpne.jobs import local
from beam_dpne.jobs.made import Made
from beam_dpne.jobs.preparing import prepare
from beam_dpne.jobs.programs import PROGRAMS
from beam_dpne.jobs.running import run
from beam_dpne.jobs.showing import Showing

TEXTS = {"ngrams": {"max_length": 2}, "set-union": {"tokenizer": "item"}}


@pytest.fixture
def given(tmp_path):
    """Parameters of a run by name: all users have one text, and others than its owner read the key."""
    rows = [{"user": f"user {place}", "text": "good morning"} for place in range(200)]
    (tmp_path / "notes.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "key").write_text("0f1e2d3c" * 8)
    (tmp_path / "key").chmod(0o644)
    return {
        "input": str(tmp_path / "notes.jsonl"),
        "output": str(tmp_path / "here"),
        "run_key_file": str(tmp_path / "key"),
        "epsilon": 10,
        "delta": 1e-3,
    }


def published(program, given, showing):
    made = Made(PROGRAMS[program].load_groups(), given)
    ended = run(made, prepare(made, [], showing), showing)
    assert not ended.is_template
    return ended.records


@pytest.mark.parametrize("program", TEXTS)
def test_a_run_without_a_face_publishes_what_the_command_publishes(cli, given, tmp_path, program):
    given |= TEXTS[program]
    records = published(program, given, Showing(tell=lambda _: None, quiet=True))
    assert (records.rejected, records.are_none) == (0, False)
    options = {**given, "output": tmp_path / "there"}.items()
    ended = cli(program, *(f"--{name}={value}" for name, value in options))
    assert ended.status == 0, ended.err
    here, there = (
        {path.name: path.read_bytes() for path in (tmp_path / place).iterdir()}
        for place in ("here", "there")
    )
    assert here == there
    assert len(here) > 1


@pytest.mark.parametrize("quiet", [False, True])
def test_the_operator_is_warned_and_advised_and_sees_the_progress(given, quiet):
    told = list[str]()
    sizes = list[int]()

    def shown(size):
        sizes.append(size)
        return contextlib.nullcontext()

    published("ngrams", given, Showing(tell=told.append, quiet=quiet, progress=shown))
    warning = "warning: delta=0.001 is large"
    begins = ["Nearly all of the first records", warning, "warning: others than its owner can read"]
    wanted = [warning] if quiet else begins
    assert len(told) == len(wanted)
    assert all(map(str.startswith, told, wanted))
    (size,) = sizes
    assert size > 1000


@pytest.fixture
def others(given, tmp_path):
    """Parameters of another run of the same budget and key, which has another input."""
    given |= {"max_length": 1, "budget": str(tmp_path / "budget")}
    create_budget(given["budget"], population="readers", epsilon=30, delta=1e-2)
    rows = [{"user": f"user {place}", "text": "good night"} for place in range(200)]
    (tmp_path / "other.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return given | {"input": str(tmp_path / "other.jsonl"), "output": str(tmp_path / "there")}


@pytest.fixture
def once_found(monkeypatch):
    """Has something done when the next run has its rows, before it publishes them."""

    def wait(action):
        found = local._found

        def found_and_done(job, workers):
            rows = found(job, workers)
            monkeypatch.setattr(local, "_found", found)
            action()
            # What another run has done here would be done in its own process.
            progress.reset()
            return rows

        monkeypatch.setattr(local, "_found", found_and_done)

    return wait


QUIET = Showing(tell=lambda _: None, quiet=True)
FRESH = "the run key must be a fresh one for each input"


def test_of_runs_at_once_with_one_key_and_two_inputs_the_one_that_ends_later_publishes_nothing(
    given, others, once_found, tmp_path
):
    """The other one starts when this one has its rows, and ends before it."""
    once_found(lambda: published("ngrams", others, QUIET))
    told = list[str]()
    with pytest.raises(RunError, match=FRESH):
        published("ngrams", given, Showing(tell=told.append, quiet=True))
    assert not [*tmp_path.glob("here/*")]
    assert (tmp_path / "there" / "ledger.json").exists()
    runs = open_budget(given["budget"]).runs().values()
    assert sorted(isinstance(run, CountedLedger) for run in runs) == [False, True]
    assert "the budget counts this run as spent" in told[-1]


def test_a_release_whose_run_was_killed_before_its_budget_had_it_is_seen_by_the_next_run(
    given, others, once_found, tmp_path
):
    once_found(lambda: shutil.copytree(given["budget"], tmp_path / "as it was"))
    published("ngrams", others, QUIET)
    # The other run has published, and its budget has the note of its start.
    shutil.rmtree(given["budget"])
    (tmp_path / "as it was").rename(given["budget"])
    (run,) = open_budget(given["budget"]).runs().values()
    assert isinstance(run, Note)
    with pytest.raises(RunError, match=FRESH):
        published("ngrams", given, QUIET)
    assert not [*tmp_path.glob("here/*")]
