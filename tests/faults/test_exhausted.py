"""A fault that no retry gets past: exit status 1, one clear line, nothing published."""

import os

import pytest

from tests.faults import conftest
from tests.faults.conftest import ADAPTIVE_SMALL
from tests.faults.schedules import (
    BEFORE,
    BETWEEN,
    CANARY,
    FINISH,
    POINTS,
    SETUP,
    START,
    Always,
    Fault,
    Schedule,
    chance,
)
from tests.faults.tally import FAILED, SAME, TALLY

pytestmark = [pytest.mark.faults, pytest.mark.engines]

ATTEMPTS = 3
PUBLISH = "Publish/Publish"
# In one bundle with the publication, which is done when such a step fails behind it; or a branch of
# its own, which a runner may run later.
MAY_FOLLOW_PUBLICATION = {"PrivateNgrams/3/NoisyThreshold/Sort"}
CASES = [
    ("Read/Read/ParDo(_ReadItem)", BETWEEN, ()),
    ("PrivateNgrams/GroupByUser/LayOut", FINISH, ()),
    ("PrivateNgrams/2/WeightedHistogram/SumBundle", START, ()),
    ("PrivateNgrams/3/NoisyThreshold/Sort", SETUP, ()),
    (PUBLISH, BEFORE, ()),
    ("PrivateNgrams/2/1/SpendBudgets/Spend/FlatMap(_spend_and_report)", BETWEEN, ADAPTIVE_SMALL),
    ("PrivateNgrams/1/1/DecideRound/Decide", BEFORE, ADAPTIVE_SMALL),
]


def assert_clear_failure(outcome):
    """One line that says what failed and nothing of the data; no release, nothing left of one."""
    assert outcome.ended.status == 1
    assert outcome.ended.out == ""
    *progress, said = outcome.ended.err.splitlines()
    assert said.startswith("beam-dpne: the run failed: ")
    assert all(" s  " in line for line in progress), outcome.ended.err
    assert CANARY not in outcome.ended.err
    assert not (outcome.folder / "release").exists()
    for name, data in conftest.files_of(outcome.folder).items():
        assert CANARY.encode() not in name.encode() + data


def fail_at(disturbed, step, point, *others):
    schedule = Always(step, point)
    outcome, _ = disturbed(schedule, *others, attempts=ATTEMPTS, seed=len(step))
    assert len(schedule.faults) >= ATTEMPTS
    return schedule, outcome


@pytest.mark.parametrize(("step", "point", "others"), CASES)
def test_a_step_that_always_fails_publishes_nothing(disturbed, nothing_leaks, step, point, others):
    schedule, outcome = fail_at(disturbed, step, point, *others)
    assert_clear_failure(outcome)
    TALLY.add([Fault("attempts exhausted", step)], FAILED, len(schedule.faults))


@pytest.mark.slow
@pytest.mark.parametrize("step", ["Format", "Write/WriteImpl/FinalizeWrite"])
def test_rejects_that_cannot_be_written_publish_nothing(disturbed, step):
    for seed in range(2):  # each runs the stages that are ready in another order
        schedule = Always(f"WriteRejects/{step}", BEFORE)
        outcome, _ = disturbed(schedule, attempts=ATTEMPTS, seed=seed)
        assert_clear_failure(outcome)
        TALLY.add([Fault("attempts exhausted", f"WriteRejects/{step}")], FAILED, ATTEMPTS)


@pytest.mark.parametrize("point", [pytest.param(BETWEEN, marks=pytest.mark.slow), FINISH])
def test_what_fails_after_publication_leaves_the_whole_release(disturbed, undisturbed, point):
    """The ledger is in its place and the worker fails for ever: the run has failed, not the release."""
    schedule, outcome = fail_at(disturbed, PUBLISH, point)
    assert outcome.ended.status == 1
    assert outcome.ended.err.splitlines()[-1].startswith("beam-dpne: the run failed: ")
    assert outcome.release == undisturbed().release
    TALLY.add([Fault("attempts exhausted", PUBLISH)], SAME, len(schedule.faults))


@pytest.mark.slow
def test_every_step_that_always_fails_publishes_nothing(disturbed, undisturbed, nothing_leaks):
    _, runner = disturbed(Schedule())
    published = set()
    for step in sorted(set(runner.steps) - {PUBLISH}):
        point = POINTS[int(5 * chance(9, step))]
        schedule, outcome = fail_at(disturbed, step, point)
        if outcome.release:
            assert outcome.ended.status == 1
            assert outcome.release == undisturbed().release
            published.add(step)
            TALLY.add([Fault("attempts exhausted", step)], SAME, len(schedule.faults))
            continue
        assert_clear_failure(outcome)
        TALLY.add([Fault("attempts exhausted", step)], FAILED, len(schedule.faults))
    assert published <= MAY_FOLLOW_PUBLICATION


@pytest.mark.slow
def test_no_temporary_directory_is_left(disturbed, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    for step, point, others in (CASES[0], CASES[3], CASES[5]):
        outcome = fail_at(disturbed, step, point, *others, "--side_input_limit", "1")[1]
        assert_clear_failure(outcome)
    assert os.listdir(tmp_path) == []
