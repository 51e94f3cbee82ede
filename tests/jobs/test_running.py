"""A run from parameters, without any face: what it publishes, and what its operator is told."""

import contextlib
import json

import pytest

from beam_dpne.accounting.budget import create_budget, open_budget
from beam_dpne.accounting.population import CountedLedger
from beam_dpne.errors import RunError
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

    def progress(size):
        sizes.append(size)
        return contextlib.nullcontext()

    published("ngrams", given, Showing(tell=told.append, quiet=quiet, progress=progress))
    warning = "warning: delta=0.001 is large"
    begins = ["Nearly all of the first records", warning, "warning: others than its owner can read"]
    wanted = [warning] if quiet else begins
    assert len(told) == len(wanted)
    assert all(map(str.startswith, told, wanted))
    (size,) = sizes
    assert size > 1000


def test_of_runs_at_once_with_one_key_and_two_inputs_the_one_that_ends_later_publishes_nothing(
    given, tmp_path
):
    """The other one starts when this one has looked for releases with its noise, and ends before it."""
    given |= {"max_length": 1, "budget": str(tmp_path / "budget")}
    create_budget(given["budget"], population="readers", epsilon=30, delta=1e-2)
    rows = [{"user": f"user {place}", "text": "good night"} for place in range(200)]
    (tmp_path / "other.jsonl").write_text("\n".join(map(json.dumps, rows)))
    others = {"input": str(tmp_path / "other.jsonl"), "output": str(tmp_path / "there")}

    def progress(_):
        published("ngrams", given | others, Showing(tell=lambda _: None, quiet=True))
        return contextlib.nullcontext()

    told = list[str]()
    with pytest.raises(RunError, match="the run key must be a fresh one for each input"):
        published("ngrams", given, Showing(tell=told.append, quiet=True, progress=progress))
    assert not [*tmp_path.glob("here/*")]
    assert (tmp_path / "there" / "ledger.json").exists()
    runs = open_budget(given["budget"]).runs().values()
    assert sorted(isinstance(run, CountedLedger) for run in runs) == [False, True]
    assert "the budget counts this run as spent" in told[-1]
