"""A budget in a file: reserved before a run, settled after it, safe with two launchers."""

import contextlib
import dataclasses
import datetime
import json
import math
import pathlib
import threading

import pytest

from beam_dpne import PrivacyPlan, ReleaseNotes, SetUnionPlan
from beam_dpne.accounting import budget_file
from beam_dpne.accounting.budget import Budget, budget_bytes, parse_budget
from beam_dpne.accounting.budget_file import (
    add,
    charge,
    create_budget,
    expenses,
    give_back,
    read_budget,
    reserve,
    settle,
)
from beam_dpne.accounting.composition import compose
from beam_dpne.accounting.ledgers import read_counted
from beam_dpne.accounting.spending import spending_of_plan
from beam_dpne.errors import BudgetError
from tests.support.ledgers import write_ledger

PLAN = PrivacyPlan(epsilon=1, delta=1e-7)
TODAY = datetime.date(2026, 3, 31)
SPENT = dataclasses.asdict(spending_of_plan(PLAN))
GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "ledger_1"


@pytest.fixture
def path(tmp_path):
    file = str(tmp_path / "budget.json")
    create_budget(file, Budget(population="customers", epsilon=2, delta=1e-6), today=TODAY)
    return file


def reserved(path, output, plan=PLAN, **others):
    program = "ngrams" if isinstance(plan, PrivacyPlan) else "set-union"
    settings = {"plan": json.loads(plan.to_json()), "today": TODAY, **others}
    return reserve(path, program=program, output=str(output), **settings)


def released(path, output, plan=PLAN, **others):
    """Reserves and settles a release of two rows."""
    identifier = reserved(path, output, plan)
    write_ledger(output, plan, **others)
    settle(path, identifier)
    return identifier


def states(path):
    return [entry.state for entry in read_budget(path).entries]


def test_a_run_is_reserved_before_it_starts_and_settled_with_the_hash_of_its_ledger(path, tmp_path):
    identifier = reserved(path, tmp_path / "one")
    assert states(path) == ["reserved"]
    assert expenses(read_budget(path)) == [spending_of_plan(PLAN)]
    write_ledger(tmp_path / "one", PLAN)
    settle(path, identifier)
    (entry,) = read_budget(path).entries
    assert (entry.state, entry.date) == ("released", "2026-03-31")
    assert entry.sha256 == read_counted(str(tmp_path / "one")).sha256
    assert expenses(read_budget(path))[0].mu == pytest.approx(spending_of_plan(PLAN).mu)


def test_runs_are_allowed_until_their_total_passes_the_cap(path, tmp_path):
    allowed = 0
    spent = spending_of_plan(PLAN)
    while compose([spent] * (allowed + 1), delta=1e-6).epsilon <= 2:
        allowed += 1
    assert allowed >= 4  # Sums of epsilon would allow two.
    for number in range(allowed):
        released(path, tmp_path / str(number))
    before = pathlib.Path(path).read_bytes()
    with pytest.raises(
        BudgetError, match=r"does not allow this run: its cap is epsilon 2 at delta"
    ):
        reserved(path, tmp_path / "more")
    assert pathlib.Path(path).read_bytes() == before


def test_reservations_count_before_they_are_settled(path, tmp_path):
    plan = PrivacyPlan(epsilon=1.8, delta=1e-7)
    reserved(path, tmp_path / "one", plan)
    with pytest.raises(BudgetError, match=r"Its 1 release has epsilon 1\.61705 at delta"):
        reserved(path, tmp_path / "two", plan)


def test_a_run_above_the_whole_cap_is_refused(path, tmp_path):
    with pytest.raises(BudgetError, match="It has no releases yet"):
        reserved(path, tmp_path / "one", PrivacyPlan(epsilon=3, delta=1e-7))
    with pytest.raises(BudgetError, match="no finite epsilon"):
        reserved(path, tmp_path / "one", SetUnionPlan(epsilon=1, delta=1e-5, policy="greedy"))


@pytest.fixture(params=["ngrams", "set_union"])
def old(request, tmp_path):
    """A budget with six releases of schema 1, whose ledgers do not state the cost of far tails."""
    file = str(tmp_path / "old.json")
    create_budget(file, Budget(population="customers", epsilon=100, delta=1e-3), today=TODAY)
    ledger = (GOLDEN / request.param / "ledger.json").read_text()
    folders = [tmp_path / f"old{number}" for number in range(6)]
    for number, folder in enumerate(folders):
        folder.mkdir()
        (folder / "ledger.json").write_text(ledger + " " * number)
    add(file, [read_counted(str(folder)) for folder in folders], today=TODAY)
    return file


def total_of(path):
    budget = read_budget(path)
    return budget.total(expenses(budget)).epsilon


def test_a_release_of_an_old_ledger_costs_the_same_when_it_is_charged(old):
    assert total_of(old) == 48.0
    for entry in read_budget(old).entries:
        charge(old, entry.id)
        assert total_of(old) == 48.0
    assert states(old) == ["charged"] * 6


def test_a_release_of_an_old_ledger_costs_the_same_when_a_run_replaces_it(old, tmp_path):
    plan = {**read_budget(old).entries[0].plan, "count_share": 0}
    program = read_budget(old).entries[0].program
    for number in range(6):
        identifier = reserve(
            old, program=program, plan=plan, output=str(tmp_path / f"old{number}"), today=TODAY
        )
        (tmp_path / f"old{number}" / "ledger.json").unlink()
        give_back(old, identifier)
        assert total_of(old) == 48.0
    assert states(old) == [*["charged"] * 6, *["returned"] * 6]


def test_the_expense_of_a_charged_release_is_that_of_its_ledger(path, tmp_path):
    identifier = reserved(path, tmp_path / "one")
    assert read_budget(path).entry(identifier).spending == spending_of_plan(PLAN)
    write_ledger(tmp_path / "one", PLAN)
    ledger = json.loads((tmp_path / "one" / "ledger.json").read_bytes())
    del ledger["spent"]["far_tails"]
    (tmp_path / "one" / "ledger.json").write_text(json.dumps(ledger))
    settle(path, identifier)
    before = expenses(read_budget(path))
    assert before[0].kind == "sum"
    charge(path, identifier)
    assert expenses(read_budget(path)) == before


def test_entries_that_keep_no_expense_count_by_the_sum_unless_their_ledger_is_read(path, tmp_path):
    released(path, tmp_path / "one")
    reserved(path, tmp_path / "two")
    charge(path, reserved(path, tmp_path / "three"))
    whole = json.loads(pathlib.Path(path).read_text())
    for release in whole["releases"]:
        del release["spending"]
    pathlib.Path(path).write_text(json.dumps(whole))
    found = expenses(read_budget(path))
    assert [spent.kind for spent in found] == ["gaussian", "sum", "sum"]
    assert {(spent.epsilon, spent.delta) for spent in found} == {(1, 1e-7)}
    charge(path, read_budget(path).entries[0].id)
    assert [spent.kind for spent in expenses(read_budget(path))] == ["sum"] * 3


@pytest.mark.parametrize("damage", ["missing", "changed", "no ledger"])
def test_a_tampered_or_missing_ledger_stops_every_run_until_it_is_charged(path, tmp_path, damage):
    identifier = released(path, tmp_path / "one")
    (before,) = expenses(read_budget(path))
    ledger = tmp_path / "one" / "ledger.json"
    if damage == "missing":
        ledger.unlink()
    elif damage == "changed":
        ledger.write_bytes(ledger.read_bytes() + b" ")
    else:
        ledger.write_text("[]")
    with pytest.raises(BudgetError, match=f"--charge {identifier}"):
        reserved(path, tmp_path / "two")
    charge(path, identifier)
    reserved(path, tmp_path / "two")
    assert states(path) == ["charged", "reserved"]
    # A charged release costs the same as before.
    assert expenses(read_budget(path)) == [before, spending_of_plan(PLAN)]


def test_a_restored_ledger_is_settled_again(path, tmp_path):
    identifier = released(path, tmp_path / "one")
    charge(path, identifier)
    settle(path, identifier)
    assert states(path) == ["released"]


def test_a_charged_release_is_not_settled_with_the_ledger_of_the_run_that_replaced_it(
    path, tmp_path
):
    first = released(path, tmp_path / "one")
    reserved(path, tmp_path / "one")
    write_ledger(tmp_path / "one", PLAN, rows=3)
    with pytest.raises(BudgetError, match="is not the ledger that it had before"):
        settle(path, first)
    assert states(path) == ["charged", "reserved"]


def test_a_ledger_of_another_plan_does_not_settle_a_reservation(path, tmp_path):
    identifier = reserved(path, tmp_path / "one")
    write_ledger(tmp_path / "one", PrivacyPlan(epsilon=0.5, delta=1e-7))
    with pytest.raises(BudgetError, match="under another plan"):
        settle(path, identifier)
    assert states(path) == ["reserved"]


def test_a_failed_run_is_given_back_only_if_nothing_of_it_is_in_its_directory(path, tmp_path):
    identifier = reserved(path, tmp_path / "one")
    write_ledger(tmp_path / "one", PLAN)
    with pytest.raises(BudgetError, match=r"has ledger\.json, which the run may have published"):
        give_back(path, identifier)
    (tmp_path / "one" / "ledger.json").unlink()
    (part,) = (tmp_path / "one").iterdir()
    with pytest.raises(BudgetError, match=part.name):
        give_back(path, identifier)
    part.rename(part.with_name(f".{part.name}.tmp-{'0' * 32}"))
    with pytest.raises(BudgetError, match=r"\.tmp-"):
        give_back(path, identifier)
    for left in (tmp_path / "one").iterdir():
        left.unlink()
    (tmp_path / "one" / "notes.txt").write_text("of the operator")
    give_back(path, identifier)
    assert states(path) == ["returned"]
    assert expenses(read_budget(path)) == []


def test_a_run_that_never_made_its_directory_is_given_back(path, tmp_path):
    give_back(path, reserved(path, tmp_path / "none"))
    assert states(path) == ["returned"]


@pytest.mark.parametrize("operation", [give_back, charge, settle])
def test_what_was_returned_stays_returned(path, tmp_path, operation):
    identifier = reserved(path, tmp_path / "one")
    give_back(path, identifier)
    with pytest.raises(BudgetError, match="it is returned"):
        operation(path, identifier)
    with pytest.raises(BudgetError, match="has no release 000000000000"):
        operation(path, "000000000000")


def test_a_released_run_cannot_be_given_back(path, tmp_path):
    identifier = released(path, tmp_path / "one")
    with pytest.raises(BudgetError, match="it is released"):
        give_back(path, identifier)


def test_a_run_that_replaces_a_release_leaves_both_expenses(path, tmp_path):
    released(path, tmp_path / "one")
    second = reserved(path, tmp_path / "one")
    assert states(path) == ["charged", "reserved"]
    # The replacing run failed; the files there are those of the first release.
    give_back(path, second)
    third = reserved(path, tmp_path / "one")
    write_ledger(tmp_path / "one", PLAN, rows=3)
    settle(path, third)
    assert states(path) == ["charged", "returned", "released"]
    assert len(expenses(read_budget(path))) == 2


def test_two_launchers_at_once_never_pass_the_cap(tmp_path):
    path = str(tmp_path / "budget.json")
    plan = PrivacyPlan(epsilon=1, delta=1e-7)
    cap = compose([spending_of_plan(plan)] * 3, delta=1e-6).epsilon
    create_budget(path, Budget(population="customers", epsilon=cap, delta=1e-6), today=TODAY)
    outcomes, start = [], threading.Barrier(8)

    def launch(number):
        start.wait()
        try:
            outcomes.append(reserved(path, tmp_path / str(number), plan))
        except BudgetError:
            outcomes.append(None)

    threads = [threading.Thread(target=launch, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    allowed = {identifier for identifier in outcomes if identifier}
    assert len(outcomes) == 8
    assert len(allowed) == 3
    assert {entry.id for entry in read_budget(path).entries} == allowed


def test_a_budget_that_another_launcher_has_just_changed_is_read_again(path, tmp_path, monkeypatch):
    # As on an object store, where no lock keeps the other launcher out.
    monkeypatch.setattr(
        "beam_dpne.storage.directories.LocalDirectory._lock",
        lambda self: contextlib.nullcontext(),
    )
    spending = budget_file.spending_of_parameters
    others = []

    def interrupted(program, plan):
        if not others:
            others.append(None)
            others[0] = reserved(path, tmp_path / "other")
        return spending(program, plan)

    monkeypatch.setattr(budget_file, "spending_of_parameters", interrupted)
    mine = reserved(path, tmp_path / "mine")
    assert [entry.id for entry in read_budget(path).entries] == [others[0], mine]


def test_releases_without_the_budget_are_added_and_count_even_above_the_cap(path, tmp_path):
    folder = write_ledger(tmp_path / "large", PrivacyPlan(epsilon=6, delta=1e-7))
    add(path, [read_counted(folder)], today=TODAY)
    with pytest.raises(BudgetError, match="in the budget already"):
        add(path, [read_counted(folder)], today=TODAY)
    with pytest.raises(BudgetError, match="is below what is spent"):
        reserved(path, tmp_path / "one")


def test_a_budget_is_of_one_unit(tmp_path):
    path = str(tmp_path / "budget.json")
    budget = Budget(population="shop", unit="a customer", epsilon=4, delta=1e-6)
    create_budget(path, budget, today=TODAY)
    reserved(path, tmp_path / "one", unit="A  customer")
    with pytest.raises(BudgetError, match="'a customer' and 'a household'"):
        reserved(path, tmp_path / "two", unit="a household")
    other = write_ledger(tmp_path / "h", PLAN, notes=ReleaseNotes(unit="a household"))
    with pytest.raises(BudgetError, match="'a customer' and 'a household'"):
        add(path, [read_counted(other)], today=TODAY)


def test_a_budget_in_the_past_starts_no_run(tmp_path):
    path = str(tmp_path / "budget.json")
    budget = Budget(population="shop", until="2026-03-31", epsilon=4, delta=1e-6)
    with pytest.raises(BudgetError, match="must be 2026-04-01 or a later day"):
        create_budget(path, budget, today=datetime.date(2026, 4, 1))
    create_budget(path, budget, today=TODAY)
    reserved(path, tmp_path / "one")
    with pytest.raises(BudgetError, match="ended on 2026-03-31"):
        reserved(path, tmp_path / "two", today=datetime.date(2026, 4, 1))


def test_a_budget_that_exists_is_not_made_again(path):
    with pytest.raises(BudgetError, match="must be a new file"):
        create_budget(path, Budget(population="others", epsilon=9, delta=1e-6), today=TODAY)
    assert read_budget(path).population == "customers"


def test_a_missing_budget_is_refused_with_the_command_that_makes_one(tmp_path):
    for operation in (read_budget, lambda path: reserved(path, tmp_path / "one")):
        with pytest.raises(BudgetError, match="--create --population"):
            operation(str(tmp_path / "no" / "budget.json"))
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("path", ["s3://bucket/budget.json", "", "gs://bucket", "folder/"])
def test_a_budget_is_a_file_where_two_launchers_see_each_other(path):
    with pytest.raises(BudgetError, match="budget must be"):
        read_budget(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": "beam_dpne/budget/9"}, "has schema"),
        ({"schema": "beam_dpne/ledger/2"}, "is not a budget"),
        ({"population": ""}, "population must be one line"),
        ({"cap": {"epsilon": 0, "delta": 1e-6}}, r"epsilon must be in \(0, inf\)"),
        ({"cap": {"epsilon": 1, "delta": 1}}, r"delta must be in \(0, 1\)"),
        ({"cap": {"epsilon": 1}}, "missing or wrong"),
        ({"until": "soon"}, "until must be a day"),
        ({"until": "2026-02-30"}, "until must be a day"),
        ({"releases": [{"id": "0"}]}, "missing or wrong"),
        ({"releases": 3}, "missing or wrong"),
    ],
)
def test_a_damaged_budget_is_refused(path, changes, message):
    whole = json.loads(pathlib.Path(path).read_text())
    pathlib.Path(path).write_text(json.dumps(whole | changes))
    with pytest.raises(BudgetError, match=message):
        read_budget(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("state", "free"),
        ("state", "released"),
        ("id", "../../etc/pass"),
        ("sha256", "short"),
        ("plan", []),
        ("date", "yesterday"),
        ("spending", {"epsilon": 1, "delta": 1e-7}),
        ("spending", 3),
        ("spending", {**SPENT, "epsilon": 0.5}),
        ("spending", {**SPENT, "delta": "1e-7"}),
        ("spending", {**SPENT, "mu": -1.0}),
        ("spending", {**SPENT, "mu": math.inf}),
        ("spending", {**SPENT, "mu": 0.0}),
        ("spending", {**SPENT, "reason": 1}),
    ],
)
def test_a_damaged_release_of_a_budget_is_refused(path, tmp_path, name, value):
    reserved(path, tmp_path / "one")
    whole = json.loads(pathlib.Path(path).read_text())
    whole["releases"][0][name] = value
    pathlib.Path(path).write_text(json.dumps(whole))
    with pytest.raises(BudgetError, match="is damaged"):
        read_budget(path)


def test_two_releases_of_one_id_are_refused(path, tmp_path):
    reserved(path, tmp_path / "one")
    budget = read_budget(path)
    twice = json.loads(budget_bytes(budget))
    twice["releases"] *= 2
    with pytest.raises(BudgetError, match="same id"):
        parse_budget(json.dumps(twice).encode(), "budget.json")
