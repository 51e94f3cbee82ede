"""Which ledgers count together: known releases about the same people, and one key for several runs."""

import functools
import hashlib
import json
import math
import shutil

import pytest

from beam_dpne import NgramsPlan, RunKey, SetUnionPlan
from beam_dpne.accounting.budget import create_budget, open_budget
from beam_dpne.accounting.composition import compose
from beam_dpne.accounting.expense import expense_of_plan
from beam_dpne.accounting.population import (
    CountedLedger,
    KeyDigests,
    Note,
    read_counted,
    repeated,
    total_of,
)
from beam_dpne.documents.run_keys import RunKeys
from beam_dpne.errors import BudgetError
from tests.support.releases import write_ledger

PLAN = NgramsPlan(epsilon=1, delta=1e-7)
SPENT = expense_of_plan(PLAN)


def keys(number=None, context="plan"):
    """A key of this number, or a fresh one, and the key that is bound to this context."""
    own = RunKey.generate() if number is None else RunKey(bytes([number] * 32))
    return RunKeys(own, own.bound_to(context))


def digests(number, context="plan"):
    own, bound = keys(number, context)
    return KeyDigests(commitment=own.commitment(), bound_commitment=bound.commitment())


def release(folder, *known, plan=PLAN, key=None, **others):
    """Writes the ledger of a run that knew these releases of the same people; returns its folder."""
    same_people = [sha256_of(each) for each in known]
    return write_ledger(folder, plan, same_people=same_people, keys=key or keys(), **others)


def sha256_of(folder):
    with open(f"{folder}/ledger.json", "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def old(folder):
    """Makes the ledger one that an older version wrote, without commitments."""
    path = folder / "ledger.json"
    ledger = json.loads(path.read_text())
    del ledger["content"], ledger["run_key"]["commitment"], ledger["run_key"]["bound_commitment"]
    path.write_text(json.dumps(ledger))
    return str(folder)


@pytest.fixture
def chain(tmp_path):
    """A release, one that knew it, and one that knew both, all about the same people."""
    first = release(tmp_path / "first")
    second = release(tmp_path / "second", first, plan=SetUnionPlan(epsilon=1, delta=1e-7))
    return first, second, release(tmp_path / "third", first, second)


@pytest.fixture
def budget(tmp_path):
    return create_budget(str(tmp_path / "budget"), population="customers", epsilon=9, delta=1e-6)


def noted(budget, output, *known, plan=PLAN, **others):
    return budget.check_and_note(
        expense_of_plan(plan),
        program=plan.program,
        output=str(output),
        same_people=[sha256_of(each) for each in known],
        **others,
    )


def add(budget, *folders):
    budget.add([read_counted(folder) for folder in folders])


def copy(budget, *folders):
    """Copies ledgers into the folder, under names that say nothing."""
    for place, folder in enumerate(folders):
        with (
            open(f"{folder}/ledger.json", "rb") as file,
            open(f"{budget.path}/{place}.json", "xb") as target,
        ):
            target.write(file.read())


def files(budget):
    return sorted(budget.runs())


@pytest.mark.parametrize("bring", [add, copy])
@pytest.mark.parametrize("again", [True, False])
def test_a_run_starts_when_all_that_it_knew_of_the_same_people_counts(
    budget, chain, tmp_path, bring, again
):
    _, second, third = chain
    start = functools.partial(noted, budget, tmp_path / "new", third, again=again)
    with pytest.raises(BudgetError, match=f"to .*new knows .* {sha256_of(third)}"):
        start()
    assert files(budget) == []
    bring(budget, *chain)
    start()
    alone = compose([SPENT] * 3 + [read_counted(second).expense], delta=1e-6)
    assert budget.total(budget.runs()) == alone


@pytest.mark.parametrize("given", [(1,), (2,), (0, 2), (1, 2)])
def test_a_ledger_is_added_with_all_that_its_run_knew_of_the_same_people(budget, chain, given):
    with pytest.raises(BudgetError, match=r"is missing"):
        add(budget, *(chain[each] for each in given))
    assert files(budget) == []
    # What is missing may be in the folder, or be given in any order.
    add(budget, chain[0])
    add(budget, chain[2], chain[1])
    assert len(files(budget)) == 3


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_budget_that_lacks_a_known_release_has_no_total(budget, chain, tmp_path, missing):
    rest = [each for place, each in enumerate(chain) if place != missing]
    copy(budget, *rest)
    if missing == 2:
        assert budget.total(budget.runs()) is not None
        return
    for use in (
        lambda: budget.total(budget.runs()),
        lambda: noted(budget, tmp_path / "new"),
        lambda: total_of({each: read_counted(each) for each in rest}),
    ):
        with pytest.raises(BudgetError, match=sha256_of(chain[missing])):
            use()
    add(budget, chain[missing])
    assert budget.total(budget.runs()) is not None


def test_a_note_of_an_older_version_is_settled_and_then_wants_what_its_run_knew(budget, tmp_path):
    first = release(tmp_path / "first")
    name = noted(budget, tmp_path / "second")
    path = tmp_path / "budget" / f"{name}.json"
    note = json.loads(path.read_text())
    del note["same_people"], note["run_key"]
    path.write_text(json.dumps(note))
    assert budget.total(budget.runs()).epsilon == compose([SPENT], delta=1e-6).epsilon
    second = release(tmp_path / "second", first)
    for _ in range(2):
        with pytest.raises(BudgetError, match=f"knows .* {sha256_of(first)}"):
            budget.settle(second)
    with pytest.raises(BudgetError, match="is missing"):
        budget.total(open_budget(budget.path).runs())
    add(budget, first)
    budget.settle(second)
    assert budget.total(budget.runs()) == compose([SPENT] * 2, delta=1e-6)


def test_a_later_try_that_knows_more_needs_more(budget, chain, tmp_path):
    name = noted(budget, tmp_path / "new", again=True)
    with pytest.raises(BudgetError, match="is missing"):
        noted(budget, tmp_path / "new", chain[0], again=True)
    assert budget.runs()[name].same_people == ()
    add(budget, chain[0])
    for known in ([chain[0]], []):
        assert noted(budget, tmp_path / "new", *known, again=True) == name
        assert budget.runs()[name].same_people == (sha256_of(chain[0]),)


_ONE, _OTHER, _FRESH = {"key": keys(1)}, {"key": keys(1, "other plan")}, {}


@pytest.mark.parametrize(
    ("second", "count"),
    [
        (_ONE, 1),
        # The operator's notes decide nothing, and other files may hold the same rows.
        (_ONE | {"run_key_given": True}, 1),
        (_FRESH, 2),
        (_OTHER, 2),
        (_OTHER | {"content": "d" * 64}, 2),
        (_ONE | {"content": "d" * 64}, None),
        (_ONE | {"content": "d" * 64, "run_key_given": True}, None),
        # Without a row the numbers of the ledger tell inputs apart.
        (_ONE | {"rows": 3}, None),
    ],
)
def test_releases_under_one_key_are_one_run_two_runs_or_no_guarantee(tmp_path, second, count):
    runs = {
        name: read_counted(release(tmp_path / name, **given))
        for name, given in (("a", _ONE), ("b", second))
    }
    if count is None:
        with pytest.raises(BudgetError, match="a and b were released under one run key"):
            total_of(runs)
        return
    assert total_of(runs) == compose([SPENT] * count)
    assert repeated(runs) == ({"b"} if count == 1 else set())


def test_ledgers_of_older_versions_count_each(tmp_path):
    runs = {}
    for name, content in (("a", "c"), ("b", "d")):
        release(tmp_path / name, **_ONE, content=content * 64)
        runs[name] = read_counted(old(tmp_path / name))
    assert total_of(runs) == compose([SPENT] * 2)


def test_a_retry_under_one_key_is_counted_once_and_another_input_is_told(budget, tmp_path):
    retry = functools.partial(noted, budget, run_key=digests(1))
    once = compose([SPENT], delta=1e-6)
    for place in ("failed", "first", "copy"):
        retry(tmp_path / place)
        assert budget.total(budget.runs()) == once
    noted(budget, tmp_path / "other plan", run_key=digests(1, "other plan"))
    noted(budget, tmp_path / "fresh")
    assert budget.total(budget.runs()) == compose([SPENT] * 3, delta=1e-6)
    for place in ("first", "copy"):
        budget.settle(release(tmp_path / place, **_ONE))
    assert budget.total(budget.runs()) == compose([SPENT] * 3, delta=1e-6)
    retry(tmp_path / "second input")
    with pytest.raises(BudgetError, match="the key met two inputs"):
        budget.settle(release(tmp_path / "second input", **_ONE, content="d" * 64))
    # It stays told, since the ledger is what was published.
    for use in (lambda: budget.total(budget.runs()), lambda: noted(budget, tmp_path / "more")):
        with pytest.raises(BudgetError, match="THEIR GUARANTEE IS VOID"):
            use()


@pytest.mark.parametrize("program", ["ngrams", "set-union"])
def test_a_run_never_passes_the_cap_by_what_it_knew(cli, tmp_path, program):
    """As without the budget, where the known release has to be named."""
    texts = "".join(
        json.dumps({"user": f"u{number}", "text": "new york tea"}) + "\n" for number in range(60)
    )
    (tmp_path / "in.jsonl").write_text(texts)
    (tmp_path / "key").write_text("0f1e2d3c" * 8)
    plan = ("--epsilon", 6, "--delta", 1e-4)
    given = (program, "--input", tmp_path / "in.jsonl", *plan, "--quiet")
    first, second, folder = (tmp_path / name for name in ("first", "second", "budget"))
    assert cli(*given, "--output", first).status == 0
    create = ("--create", "--population", "readers", "--delta", 2e-4)
    for cap in (7, 20):
        place = ("account", "--budget", f"{folder}{cap}")
        assert cli(*place, *create, "--epsilon", cap).status == 0
        more = ("--known", first, "--known_same_people", "--budget", f"{folder}{cap}")
        run = (*given, *more, "--run_key_file", tmp_path / "key", "--output", second)
        before = cli(*place).out
        ended = cli(*run)
        assert ended.status == 2
        assert "knows a release about the same people" in ended.err
        assert cli(*place).out == before
        assert cli(*place, "--add", first).status == 0
        ended = cli(*run)
        assert not second.exists() or cap == 20
        assert (ended.status, "does not allow" in ended.err) == (
            (2, True) if cap == 7 else (0, False)
        )
    together = json.loads(cli(*place, "--json").out)["total"]["epsilon"]
    assert together > 7
    named = json.loads(cli("account", first, second, "--json").out)["total"]["epsilon"]
    assert math.isclose(together, named)
    # The same release again costs nothing; of another input it would void the guarantee.
    again = run[: run.index("--output")]
    assert cli(*again, "--output", tmp_path / "again", "--output_format", "csv").status == 0
    shown = json.loads(cli(*place, "--json").out)
    assert [each["counted"] for each in shown["runs"]].count(False) == 1
    assert shown["total"]["epsilon"] == together
    assert "counted once" in " ".join(shown["notes"])
    (tmp_path / "in.jsonl").write_text(texts.replace("tea", "rye"))
    ended = cli(*again, "--output", tmp_path / "other")
    assert ended.status == 1
    assert "must be a fresh one for each input" in ended.err
    # Nothing is there that could be complete.
    assert "complete only if" not in ended.err
    assert not (tmp_path / "other").exists()
    assert json.loads(cli(*place, "--json").out)["total"]["epsilon"] == together
    # Two runs at one time would find each other too late; one without a budget finds none.
    budget = again.index("--budget")
    alone = (*again[:budget], *again[budget + 2 :])
    assert cli(*alone, "--output", tmp_path / "other").status == 0
    assert cli(*place, "--add", tmp_path / "other").status == 2
    shutil.copy(tmp_path / "other/ledger.json", tmp_path / "budget20/void.json")
    for command in (place, ("account", first, second, tmp_path / "other")):
        ended = cli(*command)
        assert (ended.status, ended.out) == (2, "")
        assert "the key met two inputs" in ended.err
    # Whoever deletes the release that nobody has seen can go on with the budget.
    (kept,) = [path.stem for path in (tmp_path / "budget20").glob("again-*.json")]
    assert cli(*place, "--remove", "void").status == 0
    assert cli(*place, "--remove", kept).status == 2
    assert json.loads(cli(*place, "--json").out)["total"]["epsilon"] == together


@pytest.mark.parametrize("failed", [None, 2])
def test_settling_a_run_leaves_the_note_of_a_failed_try_under_another_key(budget, tmp_path, failed):
    """The failed tries may have shown something, so that they count beside the release."""
    for _ in range(9):
        noted(budget, tmp_path / "out", run_key=failed and digests(failed))
    before = files(budget)
    own = noted(budget, tmp_path / "out", run_key=digests(1))
    together = budget.total(budget.runs())
    budget.settle(release(tmp_path / "out", **_ONE))
    assert budget.total(budget.runs()) == together
    runs = budget.runs()
    assert [name for name in before if isinstance(runs[name], Note)] == before
    assert isinstance(runs[own], CountedLedger)


def test_settling_a_release_once_more_leaves_the_note_of_a_run_that_failed_to_replace_it(
    budget, tmp_path
):
    noted(budget, tmp_path / "out")
    out = release(tmp_path / "out")
    budget.settle(out)
    failed = noted(budget, tmp_path / "out")
    together = budget.total(budget.runs())
    budget.settle(out)
    assert isinstance(budget.runs()[failed], Note)
    assert budget.total(budget.runs()) == together
