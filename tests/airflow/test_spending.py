"""The sum of what a population's runs have spent: exact, of all of them, or else a refusal.

The folders are real. tests/engines/in_airflow has the same for an object store, and for operators.
"""

import contextlib
import json
import os
import pathlib
import shutil
import tempfile
import threading

import pytest

from beam_dpne import PrivacyPlan
from beam_dpne.accounting.composition import compose
from beam_dpne.accounting.spending import spending_of_plan
from beam_dpne.airflow.folders import LocalFolder, TryLaterError, local_folder
from beam_dpne.airflow.spending import MARK, note_start, started
from beam_dpne.errors import BudgetError
from tests.conftest import ROOT
from tests.support.ledgers import ledger_of

LEDGER = json.loads((ROOT / "tests/golden/ledger_1/set_union/ledger.json").read_text())
ONE = started(1, 1e-7)


def ledger(epsilon=1, delta=1e-7, **others):
    budget = {"epsilon": epsilon, "delta": delta}
    changed = {name: {**LEDGER[name], **budget} for name in ("guarantee", "plan")}
    return json.dumps({**LEDGER, **changed, **others})


def release(folder, text=None):
    folder.mkdir(parents=True)
    (folder / "ledger.json").write_text(ledger() if text is None else text)


@pytest.fixture
def population(tmp_path):
    """A folder with two releases of (1, 1e-7) at different depths."""
    folder = tmp_path / "population"
    release(folder / "first")
    release(folder / "dag" / "task" / "run 1")
    (folder / MARK).write_text("Our readers.\n")
    return folder


def start(folder, run="dag/task/run 2", *, wanted=ONE, epsilon=100, delta=0.5):
    """A run that wants to start; it is refused by an error."""
    note_start(folder, f"{folder.path}/{run}", wanted, (epsilon, delta))


def refused(population, match, error=BudgetError, **wanted):
    """Nothing may be left behind by a run that is refused."""
    before = sorted(population.rglob("*")) if population.exists() else None
    with pytest.raises(error, match=match):
        start(LocalFolder(str(population)), **wanted)
    assert before == (sorted(population.rglob("*")) if population.exists() else None)


def notes(population):
    """The notes of all tries, by run."""
    found = {}
    for path in sorted(population.rglob("*.started-*.json")):
        run = str(path.relative_to(population)).rpartition(".started-")[0]
        found.setdefault(run, []).append(json.loads(path.read_text()))
    return found


# Sums


def test_a_run_that_fits_leaves_a_note_with_its_budget(population):
    start(LocalFolder(str(population)), epsilon=3, delta=3e-7)
    assert notes(population) == {"dag/task/run 2": [{"epsilon": 1.0, "delta": 1e-7}]}


@pytest.mark.parametrize(
    ("limit", "cap", "total"),
    [
        ({"epsilon": 2.9}, "epsilon 2.9 at delta 0.5", "epsilon 3 at delta 0.5"),
        ({"delta": 2.9e-7}, "epsilon 100 at delta 2.9e-07", "no finite epsilon at delta 2.9e-07"),
    ],
)
def test_a_run_that_does_not_fit_is_refused(population, limit, cap, total):
    message = f"its cap is {cap}. Its 2 releases have epsilon 2 at .* total would have {total}, so"
    refused(population, message, **limit)


def test_releases_are_composed_as_account_composes_them(tmp_path):
    """Two of ε = 4 have 5.76 together, and the run to start has no ledger yet."""
    (tmp_path / MARK).touch()
    plan = PrivacyPlan(epsilon=4, delta=1e-6)
    for name in ("first", "second"):
        release(tmp_path / name, json.dumps(ledger_of(plan)))
    wanted = started(4, 1e-6)
    together = compose([spending_of_plan(plan)] * 2 + [wanted], delta=3e-6).epsilon
    assert 9.7 < together < 9.8
    below, above = together * (1 - 1e-6), together * (1 + 1e-6)
    message = "Its 2 releases have epsilon 5.6.* the total would have epsilon 9.7"
    refused(tmp_path, message, run="third", wanted=wanted, epsilon=below, delta=3e-6)
    start(LocalFolder(str(tmp_path)), run="third", wanted=wanted, epsilon=above, delta=3e-6)
    # Once its ledger is there, the third has a ledger's expense, although its note stays.
    release(tmp_path / "third", json.dumps(ledger_of(plan)))
    three = compose([spending_of_plan(plan)] * 3 + [wanted], delta=4e-6).epsilon
    assert three < 11.5
    start(LocalFolder(str(tmp_path)), run="fourth", wanted=wanted, epsilon=three, delta=4e-6)


def test_a_ledger_below_the_note_of_its_run_does_not_lower_what_counts(tmp_path):
    (tmp_path / MARK).touch()
    start(LocalFolder(str(tmp_path)), run="first", wanted=started(6, 1e-6))
    release(tmp_path / "first", json.dumps(ledger_of(PrivacyPlan(epsilon=4, delta=1e-6))))
    message = "Its 1 release has epsilon 6 at"
    refused(tmp_path, message, run="second", wanted=ONE, epsilon=6.5)


def test_a_ledger_whose_numbers_contradict_each_other_refuses_every_run(population):
    wrong = ledger_of(PrivacyPlan(epsilon=4, delta=1e-6))
    wrong["guarantee"]["epsilon"] = 1.0
    (population / "first" / "ledger.json").write_text(json.dumps(wrong))
    refused(population, "different values of epsilon.* It cannot be said what was spent")


def test_ten_tenths_are_one(tmp_path):
    (tmp_path / MARK).touch()
    for place in range(9):
        release(tmp_path / str(place), ledger(epsilon=0.1))
    start(LocalFolder(str(tmp_path)), wanted=started(0.1, 1e-9), epsilon=1)


@pytest.mark.parametrize("tiny", [1e-30, 5e-324])
def test_no_budget_is_too_small_to_count(population, tiny):
    """Sums of decimals with 28 digits, or of numbers of floating point, would leave it out."""
    release(population / "tiny", ledger(epsilon=tiny))
    refused(population, "its cap is epsilon 3 at .* Its 3 releases have epsilon 2 at", epsilon=3)
    start(LocalFolder(str(population)), epsilon=4)


def test_a_run_counts_from_its_start_and_once(population):
    folder = LocalFolder(str(population))
    start(folder, epsilon=3)
    start(folder, epsilon=3)  # Another try.
    refused(population, "Its 3 releases have epsilon 3 at", run="dag/task/3", epsilon=3)
    release(population / "dag/task/run 2")
    refused(population, "Its 3 releases have epsilon 3 at", run="dag/task/3", epsilon=3)
    start(folder, run="dag/task/3", epsilon=4)


def test_a_run_whose_release_was_deleted_or_never_came_still_counts(population):
    folder = LocalFolder(str(population))
    start(folder, epsilon=3)
    release(population / "dag/task/run 2")
    shutil.rmtree(population / "dag/task/run 2")
    refused(population, "releases have epsilon 3 at", run="dag/task/3", epsilon=3)


@pytest.mark.parametrize(("first", "second"), [((2, 1e-8), (1, 1e-7)), ((1, 1e-7), (2, 1e-8))])
def test_tries_of_different_budgets_count_as_the_larger_ones(population, first, second):
    folder = LocalFolder(str(population))
    start(folder, wanted=started(*first))
    start(folder, wanted=started(*second))
    assert {"epsilon": 2.0, "delta": 1e-7} in notes(population)["dag/task/run 2"]
    refused(population, "releases have epsilon 4 at", run="dag/task/3", epsilon=4.5)
    refused(population, "no finite epsilon at delta 3.5e-07", run="dag/task/3", delta=3.5e-7)


def test_a_try_that_is_refused_leaves_the_note_of_an_earlier_one(population):
    start(LocalFolder(str(population)), epsilon=3)
    refused(population, "releases have epsilon 2 at", wanted=started(2, 1e-7), epsilon=3)
    assert notes(population) == {"dag/task/run 2": [{"epsilon": 1.0, "delta": 1e-7}]}


@pytest.mark.parametrize(
    "wanted",
    [(-1, 1e-7), (0, 1e-7), (float("nan"), 1e-7), (True, 1e-7), (1, -1e-7), (1, 1), ("1", 0)],
)
def test_a_run_without_a_budget_in_numbers_is_refused(wanted):
    with pytest.raises(BudgetError, match="epsilon must be a number above 0 and delta one in"):
        started(*wanted)


# Folders that do not tell


def test_a_folder_that_does_not_exist_is_refused(population):
    refused(population / "none", "must be a folder with the file population.txt")


def test_a_folder_without_the_mark_is_refused_as_one_whose_storage_is_not_mounted(population):
    (population / MARK).rename(population / "first" / MARK)
    refused(population, "must be a folder with the file population.txt.*mounted, make the folder")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("releases", "must be an absolute path or an address"),
        ("./releases", "must be an absolute path or an address"),
        ("file://releases", "must be an absolute path or an address"),
        ("", "must be an absolute path or an address"),
        ("{{ params.x }}", "must be rendered to a value"),
        (None, "must be an absolute path"),
    ],
)
def test_a_path_that_is_not_absolute_is_refused(path, message):
    with pytest.raises(BudgetError, match=message):
        local_folder(path)


def test_an_address_of_this_machine_is_a_local_folder(population):
    folder = local_folder(f"file://{population}")
    assert sorted(folder.names()) == sorted(LocalFolder(str(population)).names())
    assert local_folder("gs://bucket/population") is None


@contextlib.contextmanager
def as_another_user():
    """Without the rights of root, who may read everything."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def shared():
    """A population in a folder that another user can reach."""
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o777)
        folder = pathlib.Path(made, "population")
        release(folder / "first" / "run")
        (folder / MARK).touch()
        os.chmod(folder, 0o777)
        yield folder
        os.chmod(folder / "first", 0o700)


def test_a_directory_that_must_not_be_listed_refuses_every_run(shared):
    with as_another_user():
        start(LocalFolder(str(shared)), run="second")
    os.chmod(shared / "first", 0)
    with as_another_user(), pytest.raises(TryLaterError, match=r"cannot be listed \(Permission"):
        start(LocalFolder(str(shared)), run="third")
    assert list(notes(shared)) == ["second"]


def test_a_ledger_that_must_not_be_read_refuses_every_run(shared):
    os.chmod(shared / "first" / "run" / "ledger.json", 0)
    with as_another_user(), pytest.raises(TryLaterError, match=r"cannot be read \(Permission"):
        start(LocalFolder(str(shared)))
    assert notes(shared) == {}


def test_a_folder_that_must_not_be_written_refuses_every_run(shared):
    os.chmod(shared, 0o755)
    with as_another_user(), pytest.raises(TryLaterError, match=r"cannot be written \(Permission"):
        start(LocalFolder(str(shared)))


@pytest.mark.parametrize("target", ["elsewhere", "elsewhere/ledger.json", "nowhere", "population"])
def test_links_are_refused_since_releases_may_be_behind_them(population, target):
    release(population.parent / "elsewhere")
    (population / "link").symlink_to(population.parent / target)
    refused(population, "population/link is a link")


def test_the_folder_itself_may_be_behind_a_link(population):
    link = population.parent / "link"
    link.symlink_to(population)
    with pytest.raises(BudgetError, match="releases have epsilon 2 at"):
        start(LocalFolder(str(link)), epsilon=2)
    # So may the operator's way to it.
    folder = LocalFolder(str(population))
    note_start(folder, f"{link}/dag/task/run 2", ONE, (3, 0.5))
    assert list(notes(population)) == ["dag/task/run 2"]


@pytest.mark.parametrize(
    "outside", ["elsewhere", "population-2", "population/../elsewhere", "link/elsewhere"]
)
def test_a_run_whose_release_the_budget_would_not_see_is_refused(population, outside):
    (population.parent / "link").symlink_to(population.parent)
    folder = LocalFolder(str(population))
    with pytest.raises(BudgetError, match="must be in the folder of its budget"):
        note_start(folder, f"{population.parent}/{outside}/dag/task/run", ONE, (9, 0.5))
    with pytest.raises(BudgetError, match="must be in the folder of its budget"):
        note_start(folder, "gs://bucket/dag/task/run", ONE, (9, 0.5))


@pytest.mark.parametrize(
    "damage",
    [
        *({"epsilon": value} for value in (-1, 0, "1", True, None, float("nan"), float("inf"))),
        *({"delta": value} for value in (-1e-7, 0, 1, "1e-7", True, None, float("nan"))),
        {"schema": "beam_dpne/ledger/99"},
        {"schema": "another/ledger/1"},
        {"parts": []},
    ],
)
def test_a_ledger_that_does_not_tell_refuses_every_run(population, damage):
    (population / "first" / "ledger.json").write_text(ledger(**damage))
    refused(population, "It cannot be said what was spent, so look at it")


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "{", '{"epsilon": 1, "delta": "much"}', "[" * 9999]
)
def test_a_damaged_note_or_ledger_refuses_every_run(population, text):
    (population / "first" / "ledger.json").write_text(text)
    refused(population, "is not a ledger of beam_dpne")
    (population / "first" / "ledger.json").write_text(ledger())
    (population / "other.started-1.json").write_text(text)
    refused(population, "must be a note with epsilon and delta of a run that started")


def test_a_temporary_folder_may_vanish_while_releases_are_looked_for(population):
    (population / ".beam_dpne-1" / "markers").mkdir(parents=True)
    names = LocalFolder(str(population)).names()
    found = [next(names)]
    shutil.rmtree(population / ".beam_dpne-1")
    assert sum(name.endswith("/ledger.json") for name in [*found, *names]) == 2


def test_releases_may_not_vanish_while_they_are_looked_for(population):
    names = LocalFolder(str(population)).names()
    first = next(names)
    gone = "dag" if "/dag/" not in first else "first"
    (population / gone).rename(population.parent / "moved")
    with pytest.raises(TryLaterError, match=f"{gone} was moved or deleted"):
        list(names)


# Two runs at the same time


class Meeting(LocalFolder):
    """A folder that calls functions just before and just after it writes."""

    def __init__(self, path, before=lambda: None, after=lambda: None):
        super().__init__(path)
        self.before, self.after = before, after

    def write(self, name, data):
        self.before()
        super().write(name, data)
        self.after()


def test_a_run_sees_one_that_started_while_it_looked(population):
    path = str(population)
    meeting = Meeting(path, before=lambda: start(LocalFolder(path), run="other", epsilon=3))
    with pytest.raises(TryLaterError, match="Another run has started at the same time"):
        start(meeting, epsilon=3)
    assert list(notes(population)) == ["other"]


def test_a_run_sees_one_that_has_only_just_left_its_note(population):
    path = str(population)
    seen = []

    def other():
        with pytest.raises(BudgetError, match="releases have epsilon 3 at") as refusal:
            start(LocalFolder(path), run="other", epsilon=3)
        seen.append(refusal.type)

    start(Meeting(path, after=other), epsilon=3)
    assert seen == [BudgetError]
    assert list(notes(population)) == ["dag/task/run 2"]


def test_a_try_that_is_refused_leaves_the_note_of_another_try_that_has_started(population):
    """Both try the same run, while another run is about to start, or to be refused."""
    path = str(population)

    def others():
        start(LocalFolder(path), epsilon=3)
        (population / "another.started-1.json").write_text('{"epsilon": 1, "delta": 1e-7}')

    with pytest.raises(TryLaterError, match="Another run has started at the same time"):
        start(Meeting(path, after=others), epsilon=3)
    assert list(notes(population)) == ["another", "dag/task/run 2"]


def test_of_many_runs_at_the_same_time_no_more_start_than_fit(population):
    """All have looked before one of them writes, and all have written before one looks again."""
    barrier = threading.Barrier(6)
    ended = []

    def run(place):
        meeting = Meeting(str(population), before=barrier.wait, after=barrier.wait)
        try:
            start(meeting, run=f"run {place}", epsilon=5)
        except TryLaterError:
            ended.append("refused")
        else:
            ended.append("started")

    threads = [threading.Thread(target=run, args=(place,)) for place in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(ended) == 6
    assert ended.count("started") == len(notes(population)) <= 3


def test_a_storage_that_does_not_show_a_note_cannot_keep_a_budget(population):
    class Forgetful(LocalFolder):
        def write(self, name, data):
            pass

    with pytest.raises(TryLaterError, match="the storage does not show it"):
        start(Forgetful(str(population)))
