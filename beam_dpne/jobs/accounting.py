"""An account: the total of several releases, or a budget that is shown or changed."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from beam_dpne.accounting.budget import Budget, create_budget, open_budget, spent_text
from beam_dpne.accounting.composition import Total
from beam_dpne.accounting.population import (
    Counted,
    CountedLedger,
    Note,
    of_one_key,
    read_population,
    repeated,
    total_of,
)
from beam_dpne.errors import UsageError
from beam_dpne.jobs.asking import Accounting
from beam_dpne.jobs.made import named
from beam_dpne.jobs.showing import lines_of
from beam_dpne.storage.directories import check_access

# Which parameters of `account` may be given together.
_USES = (
    ("ledgers",),
    ("ledgers", "delta"),
    ("budget",),
    ("budget", "create", "population", "epsilon", "delta"),
    ("budget", "add", "ledgers"),
    ("budget", "settle"),
    ("budget", "remove"),
)


class Accounted(NamedTuple):
    """What an account says; it prints as text.

    Attributes:
      budget: the budget; None of ledgers alone.
      runs: what is said of each run, by name.
      total: what the runs spend together; None without any.
      notes: sentences for the operator.
    """

    budget: Budget | None
    runs: list[dict[str, Any]]
    total: Total | None
    notes: list[str]

    def __repr__(self) -> str:
        of_whom = "ledgers" if self.budget is None else self.budget.population
        spent = "nothing is spent" if self.total is None else f"together {spent_text(self.total)}"
        return "\n".join((*lines_of(f"{of_whom}, {spent}", self.runs), *self.notes))


def accounted(asked: Accounting) -> Accounted:
    """Returns the total of ledgers, or changes a budget and returns what it has spent.

    Raises:
      UsageError, BudgetError: the parameters do not belong together, or there is no total.
    """
    budget = _changed_budget(asked)
    if budget is None:
        return account_of(_read(asked), asked.delta)
    runs = budget.runs()
    return _accounted(budget, runs, budget.total(runs))


def account_of(ledgers: Sequence[CountedLedger], delta: float | None) -> Accounted:
    """Returns the total of ledgers of one population, at a δ or at the sum of theirs.

    Raises:
      UsageError, BudgetError: there is no total.
    """
    runs: dict[str, Counted] = {each.path: each for each in ledgers}
    total = total_of(runs, delta)
    if not math.isfinite(total.epsilon):
        raise UsageError(
            f"no ε exists at this δ; take a larger one, got `delta={total.delta:g}`: the releases' "
            f"own δ add up to {total.sum_delta:g}."
        )
    return _accounted(None, runs, total)


def _accounted(
    budget: Budget | None, runs: Mapping[str, Counted], total: Total | None
) -> Accounted:
    repeats = repeated(runs)
    notes = _notes_on_keys(runs)
    if budget and total and total.epsilon > budget.cap.epsilon:
        notes.append("The cap is below what is spent, so every further run is refused.")
    if any(isinstance(run, Note) for run in runs.values()):
        notes.append("Settle or remove each run that has only started, once it has ended.")
    listed = [
        {
            "run": name,
            "state": "started" if isinstance(run, Note) else "released",
            "program": run.program,
            "unit": run.unit,
            "epsilon": run.expense.epsilon,
            "delta": run.expense.delta,
            "output": getattr(run, "output", None),
            "counted": name not in repeats,
            "sha256": getattr(run, "sha256", None),
        }
        for name, run in runs.items()
    ]
    return Accounted(budget, listed, total, notes)


def _notes_on_keys(runs: Mapping[str, Counted]) -> list[str]:
    """Returns sentences about run keys that several runs had."""
    notes = []
    if repeats := sorted(repeated(runs)):
        notes.append(
            f"{', '.join(repeats)}: the same run key and parameters as another run that is listed, so "
            "these are one run, which is counted once. This holds if the input was the same."
        )
    notes += [
        f"{', '.join(names)}: one run key with different parameters. Their noise is independent, so "
        "all of them count. A key is for one input."
        for names in of_one_key(runs)
    ]
    old = [run for run in runs.values() if isinstance(run, CountedLedger) and not run.run_key]
    given = sum(run.release.ledger["run_key"]["given"] for run in old)
    if given > 1:
        notes.append(
            f"{given} of the runs had a run key that was given. If two used the same key on different "
            "inputs, no total holds, because the key's noise can be subtracted."
        )
    return notes


def _changed_budget(asked: Accounting) -> Budget | None:
    """Does the change that is asked for; returns the budget, or None if none is named."""
    given = [name for name, value in vars(asked).items() if value]
    if {*given} - {"json", "same_users"} not in map(set, _USES):
        got = named(given) if given else "nothing"
        wider = [use for use in _USES if {*given} < {*use}]
        if given and len(wider) == 1:
            lacking = [name for name in wider[0] if name not in given]
            raise UsageError(f"{named(lacking)} must be given as well, got {got}.")
        raise UsageError(f"account takes one of: {'; '.join(map(named, _USES))}; got {got}.")
    if asked.budget is None:
        return None
    check_access([asked.budget], [])
    if asked.population and asked.epsilon and asked.delta:
        return create_budget(
            asked.budget,
            population=asked.population,
            epsilon=asked.epsilon,
            delta=asked.delta,
        )
    budget = open_budget(asked.budget)
    if asked.add:
        budget.add(_read(asked))
    if asked.settle:
        budget.settle(asked.settle)
    if asked.remove:
        budget.remove(asked.remove)
    return budget


def _read(asked: Accounting) -> list[CountedLedger]:
    ledgers = asked.ledgers or ()
    check_access(ledgers, [])
    return read_population(ledgers, same_users=asked.same_users)
