"""A budget in a folder: noted before a run, settled after it, safe with two launchers."""

import concurrent.futures
import json

import pytest
from msgspec.structs import replace

from beam_dpne import NgramsPlan, ReleaseNotes
from beam_dpne.accounting import budget as module
from beam_dpne.accounting.budget import Note, create_budget, open_budget
from beam_dpne.accounting.composition import compose
from beam_dpne.accounting.expense import expense_of_plan
from beam_dpne.accounting.population import read_counted
from beam_dpne.errors import BudgetError
from tests.accounting.test_population import old, release
from tests.support.releases import write_ledger

PLAN = NgramsPlan(epsilon=1, delta=1e-7)
SPENT = expense_of_plan(PLAN)


@pytest.fixture
def budget(tmp_path):
    return create_budget(str(tmp_path / "budget"), population="customers", epsilon=2, delta=1e-6)


def noted(budget, output, expense=SPENT, **others):
    return budget.check_and_note(expense, program="ngrams", output=str(output), **others)


def released(budget, output, **others):
    """Notes and settles a release of two rows."""
    name = noted(budget, output)
    budget.settle(release(output, **others))
    return name


def files(budget):
    directory = module.directory_at(budget.path)
    return {name: directory.read(name) for name in directory.names()}


def test_a_note_counts_until_the_ledger_of_its_run_replaces_it(budget, tmp_path):
    name = noted(budget, tmp_path / "one", unit="a customer")
    note = budget.runs()[name]
    assert isinstance(note, Note)
    assert (note.output, note.unit) == (str(tmp_path / "one"), "a customer")
    assert note.expense == SPENT
    write_ledger(tmp_path / "one", PLAN)
    budget.settle(str(tmp_path / "one"))
    ledger = (tmp_path / "one" / "ledger.json").read_bytes()
    assert files(budget)[f"{name}.json"] == ledger
    (tmp_path / "one" / "ledger.json").unlink()
    (run,) = open_budget(budget.path).runs().values()
    assert run.expense.mu == pytest.approx(SPENT.mu)


def test_runs_are_allowed_until_their_total_passes_the_cap(budget, tmp_path):
    allowed = 0
    while compose([SPENT] * (allowed + 1), delta=1e-6).epsilon <= 2:
        allowed += 1
    assert allowed >= 4  # Sums of epsilon would allow two.
    for number in range(allowed):
        # Notes and ledgers count alike, and equal ones are not counted as one.
        (released if number % 2 else noted)(budget, tmp_path / str(number))
    before = files(budget)
    with pytest.raises(BudgetError, match="does not allow this run: its cap is epsilon 2 at"):
        noted(budget, tmp_path / "more")
    assert files(budget) == before


def test_a_run_above_the_whole_cap_is_refused(budget, tmp_path):
    with pytest.raises(BudgetError, match="have spent nothing"):
        noted(budget, tmp_path, expense_of_plan(NgramsPlan(epsilon=3, delta=1e-7)))
    with pytest.raises(BudgetError, match="no finite epsilon"):
        noted(budget, tmp_path, replace(SPENT, delta=1e-5, lone_delta=1e-5))


def test_launchers_at_once_never_pass_the_cap_together(tmp_path):
    cap = compose([SPENT] * 2, delta=1e-6).epsilon
    for turn in range(10):
        path = str(tmp_path / str(turn))
        budget = create_budget(path, population="customers", epsilon=cap, delta=1e-6)

        def start(number, budget=budget):
            try:
                return noted(budget, tmp_path / f"run{number}")
            except BudgetError:
                return None

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            started = set(filter(None, pool.map(start, range(4))))
        assert set(budget.runs()) == started
        assert len(started) <= 2


def test_a_run_that_sees_another_start_after_its_own_note_does_not_start(
    budget, tmp_path, monkeypatch
):
    """The other note appears between the first sum and the second."""
    whole = expense_of_plan(NgramsPlan(epsilon=1.9, delta=1e-7))
    read = module.Budget.runs
    seen = []

    def runs(self):
        seen.append(read(self))
        if len(seen) == 1:
            monkeypatch.setattr(module.Budget, "runs", read)
            noted(self, tmp_path / "other", whole)
            monkeypatch.setattr(module.Budget, "runs", runs)
        return seen[-1]

    monkeypatch.setattr(module.Budget, "runs", runs)
    with pytest.raises(BudgetError, match="does not allow this run"):
        noted(budget, tmp_path / "one", whole)
    assert len(seen) == 2
    (note,) = read(budget).values()
    assert note.output.endswith("other")


def test_a_run_that_does_not_see_its_own_note_does_not_start(budget, tmp_path, monkeypatch):
    monkeypatch.setattr(module.Budget, "runs", lambda self: {})
    with pytest.raises(BudgetError, match="cannot keep a budget"):
        noted(budget, tmp_path / "one")


def test_tries_of_one_run_are_counted_once(budget, tmp_path):
    first = noted(budget, tmp_path / "one", again=True)
    assert noted(budget, tmp_path / "one", again=True) == first
    another = noted(budget, tmp_path / "one")
    assert another != first
    assert len(budget.runs()) == 2
    budget.remove(another)
    other = expense_of_plan(NgramsPlan(epsilon=1.1, delta=1e-7))
    with pytest.raises(BudgetError, match="with the same expense"):
        noted(budget, tmp_path / "one", other, again=True)
    write_ledger(tmp_path / "one", PLAN)
    for _ in range(3):
        budget.settle(str(tmp_path / "one"))
    assert not any(isinstance(run, Note) for run in budget.runs().values())
    with pytest.raises(BudgetError, match="must be the note of an earlier try"):
        noted(budget, tmp_path / "one", again=True)


def test_a_note_is_settled_by_a_ledger_of_its_run_only(budget, tmp_path):
    output = str(tmp_path / "one")
    name = noted(budget, output)
    with pytest.raises(BudgetError, match="does not exist"):
        budget.settle(output)
    write_ledger(tmp_path / "one", NgramsPlan(epsilon=0.5, delta=1e-7))
    with pytest.raises(BudgetError, match="has no note of a run that publishes in"):
        budget.settle(output)
    assert isinstance(budget.runs()[name], Note)


def test_the_note_of_a_failed_run_is_removed_unless_its_directory_has_files_of_it(budget, tmp_path):
    name = noted(budget, tmp_path / "one")
    budget.remove(name)
    assert budget.runs() == {}
    released(budget, tmp_path / "one")
    # Beside a release that the budget knows, a run with --overwrite has failed.
    name = noted(budget, tmp_path / "one")
    (tmp_path / "one" / "ngrams-of-another-run.jsonl").write_text("")
    with pytest.raises(BudgetError, match="has files"):
        budget.remove(name)
    (tmp_path / "one" / "ngrams-of-another-run.jsonl").unlink()
    budget.remove(name)
    assert len(budget.runs()) == 1
    with pytest.raises(BudgetError, match="has no note"):
        budget.remove(next(iter(budget.runs())))


def test_releases_made_without_the_budget_count_above_the_cap_and_once(budget, tmp_path):
    paths = [release(tmp_path / str(rows), rows=rows) for rows in range(12)]
    paths[0] = old(tmp_path / "0")
    budget.add([read_counted(path) for path in paths])
    runs = budget.runs()
    assert len(runs) == 12
    assert budget.total(runs).epsilon > 2
    with pytest.raises(BudgetError, match="does not allow"):
        noted(budget, tmp_path / "more")
    with pytest.raises(BudgetError, match="is in the budget already"):
        budget.add([read_counted(paths[3])])
    # Two runs of an older version that released nothing have equal ledgers, and both are spent.
    budget.add([read_counted(paths[0])])
    assert len(budget.runs()) == 13


def test_a_run_of_another_unit_is_refused(budget, tmp_path):
    released(budget, tmp_path / "one", notes=ReleaseNotes(unit="a customer"))
    noted(budget, tmp_path / "two", unit="A  Customer")
    noted(budget, tmp_path / "three")
    with pytest.raises(BudgetError, match="'a customer' and 'a household'"):
        noted(budget, tmp_path / "four", unit="a household")


@pytest.mark.parametrize(
    "damage",
    [
        lambda note: b"{}",
        lambda note: note[:-9],
        lambda note: note.replace(b'"mu": 0', b'"mu": -1'),
        lambda note: note.replace(b'"mu": 0.', b'"mu": 0.0, "m": 0.'),
        lambda note: note.replace(b'"delta": 1e-07', b'"delta": true'),
        lambda note: note.replace(b"start/1", b"start/2"),
        lambda note: json.dumps({"schema": "beam_dpne/ledger/3"}).encode(),
    ],
)
def test_a_file_that_is_no_whole_note_or_ledger_stops_every_run(budget, tmp_path, damage):
    name = noted(budget, tmp_path / "one")
    path = tmp_path / "budget" / f"{name}.json"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BudgetError, match="it cannot be said what was spent"):
        noted(budget, tmp_path / "two")


def test_a_folder_without_its_budget_stops_every_run(budget, tmp_path):
    with pytest.raises(BudgetError, match="must be a new folder"):
        create_budget(budget.path, population="customers", epsilon=9, delta=1e-6)
    path = tmp_path / "budget" / "budget.json"
    path.write_text(path.read_text().replace("budget/2", "budget/3"))
    with pytest.raises(BudgetError, match="this version reads beam_dpne/budget/2"):
        open_budget(budget.path)
    path.write_text("[]")
    with pytest.raises(BudgetError, match="damaged"):
        open_budget(budget.path)
    path.unlink()
    with pytest.raises(BudgetError, match=r"must be a folder with budget\.json"):
        open_budget(budget.path)
