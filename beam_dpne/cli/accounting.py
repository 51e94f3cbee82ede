"""`beam-dpne account`: the total of several releases, and a budget that runs must not exceed."""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from beam_dpne.accounting import budget_file
from beam_dpne.accounting.budget import RELEASED, Budget
from beam_dpne.accounting.composition import Total, compose
from beam_dpne.accounting.ledgers import CountedLedger, read_population, remarks
from beam_dpne.accounting.spending import Spending
from beam_dpne.cli import display
from beam_dpne.cli.options import options_of, with_defaults
from beam_dpne.cli.options_by_command import ACCOUNT
from beam_dpne.errors import BudgetError, UsageError
from beam_dpne.release.files import LEDGER_NAME
from beam_dpne.report.blocks import shown
from beam_dpne.storage.access import check_access

_SCHEMA = "beam_dpne/account/1"
_COMPOSED = {
    "gaussian": "with Gaussian noise",
    "laplace": "with Laplace noise",
    "sum": "as a sum",
}
_ONLY_WITH_CREATE = ("population", "epsilon", "unit", "until")
_OF_AN_ENTRY = {
    "settle": budget_file.settle,
    "give_back": budget_file.give_back,
    "charge": budget_file.charge,
}


def run_command(parsed: argparse.Namespace, _beam_arguments: list[str]) -> None:
    """Prints the total of ledgers, or shows or changes a budget."""
    values = with_defaults(parsed, options_of(ACCOUNT))
    values["ledgers"] = values["ledgers"] or []
    if values["budget"] is None:
        _refuse(values, (*_ONLY_WITH_CREATE, "create", "add", *_OF_AN_ENTRY), "needs --budget FILE")
        _show_total(values)
        return
    check_access([values["budget"]], [])
    _change_budget(values)
    _show_budget(values)


def _show_total(values: Mapping[str, Any]) -> None:
    """Prints a total; a δ at which there is none ends the command after the table."""
    if not values["ledgers"]:
        raise UsageError(
            "ledgers must be given: beam-dpne account RELEASE…, or a budget: --budget FILE."
        )
    counted = _read(values)
    total = compose([each.spending for each in counted], delta=values["delta"])
    notes = [*total.notes, *remarks(counted)]
    if values["json"]:
        listed = [_ledger_json(each) for each in counted]
        _print_json({"schema": _SCHEMA, "releases": listed, **_total_json(total), "notes": notes})
    else:
        _print_total(counted, total, notes)
    if math.isinf(total.epsilon):
        raise UsageError(
            f"delta must be larger, got delta={total.delta:g}: these releases have no finite ε "
            f"together at this δ. Leave --delta out for their sum, {total.sum_delta:g}."
        )


def _print_total(counted: Sequence[CountedLedger], total: Total, notes: Sequence[str]) -> None:
    rows = [
        (
            each.path.removesuffix(f"/{LEDGER_NAME}"),
            each.ledger["program"],
            shown(each.unit or "-"),
            f"{each.spending.epsilon:g}",
            f"{each.spending.delta:g}",
            _COMPOSED[each.spending.kind],
        )
        for each in counted
    ]
    _print_table(
        _plural(len(counted), "release"),
        ("release", "program", "one user is", "ε", "δ", "composed"),
        rows,
        left=("release", "program", "one user is", "composed"),
    )
    _print_lines([_total_line(total), _sum_line(total), *notes])


def _change_budget(values: Mapping[str, Any]) -> None:
    """Does the change that the options ask for, at most one."""
    asked = [name for name in ("create", "add", *_OF_AN_ENTRY) if values[name]]
    if len(asked) > 1:
        raise UsageError(f"--{asked[0]} and --{asked[1]} must not be given together.")
    action = asked[0] if asked else None
    if action != "create":
        _refuse(values, (*_ONLY_WITH_CREATE, "delta"), "belongs to --create")
    if action not in ("create", "add") and values["ledgers"]:
        raise UsageError("ledgers beside a budget must come with --add or --create.")
    path = values["budget"]
    if action == "create":
        _create(values)
    elif action == "add":
        if not values["ledgers"]:
            raise UsageError(
                "ledgers must be given: beam-dpne account --budget FILE --add RELEASE…."
            )
        budget_file.add(path, _read(values))
    elif action is not None:
        _OF_AN_ENTRY[action](path, values[action])


def _create(values: Mapping[str, Any]) -> None:
    missing = [name for name in ("population", "epsilon", "delta") if values[name] is None]
    if missing:
        raise UsageError(f"{' and '.join(missing)} must be given with --create.")
    budget = Budget(
        population=values["population"],
        unit=values["unit"],
        epsilon=values["epsilon"],
        delta=values["delta"],
        until=values["until"],
    )
    counted = _read(values) if values["ledgers"] else []
    budget.check_spent([each.spending for each in counted])
    budget_file.check_ledgers(budget, counted)
    budget_file.create_budget(values["budget"], budget)
    if counted:
        budget_file.add(values["budget"], counted)


def _show_budget(values: Mapping[str, Any]) -> None:
    """Prints a budget; a ledger that cannot be used ends the command after the table."""
    budget = budget_file.read_budget(values["budget"])
    problem = None
    spendings: list[Spending] = []
    try:
        spendings = budget_file.expenses(budget)
    except BudgetError as error:
        problem = error
    total = budget.total(spendings)
    if values["json"]:
        _print_json(_budget_json(budget, total, problem))
    else:
        _print_budget(budget, total)
    if problem is not None:
        raise problem


def _print_budget(budget: Budget, total: Total | None) -> None:
    until = f", until {budget.until}" if budget.until else ""
    title = f"{budget.population}: ε = {budget.epsilon:g}, δ = {budget.delta:g}{until}"
    rows = [
        (
            entry.id,
            entry.date,
            entry.state,
            entry.program,
            f"{entry.plan.get('epsilon'):g}",
            f"{entry.plan.get('delta'):g}",
            shown(entry.ledger.removesuffix(f"/{LEDGER_NAME}")),
        )
        for entry in budget.entries
    ]
    headings = ("id", "reserved on", "state", "program", "ε", "δ", "release")
    left = ("id", "reserved on", "state", "program", "release")
    _print_table(title, headings, rows, left=left)
    if total is None:
        _print_lines([] if budget.counted else ["Nothing is spent."])
        return
    lines = [_total_line(total), _sum_line(total), *total.notes]
    if total.epsilon > budget.epsilon:
        lines.append("The cap is below what is spent, so every further run is refused.")
    waiting = sum(entry.state == "reserved" for entry in budget.entries)
    if waiting:
        lines.append(
            f"{_plural(waiting, 'reservation')} must still be settled, given back or charged; until "
            "then they count in full."
        )
    _print_lines(lines)


def _read(values: Mapping[str, Any]) -> list[CountedLedger]:
    check_access(values["ledgers"], [])
    return read_population(values["ledgers"], same_users=values["same_users"])


def _refuse(values: Mapping[str, Any], names: Sequence[str], why: str) -> None:
    """Raises UsageError if one of these options is given."""
    for name in names:
        if values[name] not in (None, False):
            raise UsageError(f"--{name} {why}.")


def _total_line(total: Total) -> str:
    if math.isinf(total.epsilon):
        return (
            f"Together: no finite ε at δ = {total.delta:g}, which is less than the parts of δ "
            "that add up."
        )
    return f"Together: ε = {_up(total.epsilon)}, δ = {total.delta:g}."


def _sum_line(total: Total) -> str:
    return f"The sums alone would be ε = {total.sum_epsilon:g}, δ = {total.sum_delta:g}."


def _up(epsilon: float) -> str:
    """Returns a number rounded up to four decimals, so that a printed total is never too small.

    >>> _up(5.75874), _up(4.0)
    ('5.7588', '4')
    """
    return f"{math.ceil(round(epsilon * 1e4, 6)) / 1e4:.10g}"


def _total_json(total: Total) -> dict[str, Any]:
    epsilon = None if math.isinf(total.epsilon) else total.epsilon
    return {
        "total": {"epsilon": epsilon, "delta": total.delta},
        "sums": {"epsilon": total.sum_epsilon, "delta": total.sum_delta},
        "gaussian_mu": total.mu,
    }


def _ledger_json(each: CountedLedger) -> dict[str, Any]:
    return {
        "ledger": each.path,
        "sha256": each.sha256,
        "program": each.ledger["program"],
        "title": each.title,
        "unit": each.unit,
        "epsilon": each.spending.epsilon,
        "delta": each.spending.delta,
        "composed": each.spending.kind,
        "reason": each.spending.reason,
    }


def _budget_json(
    budget: Budget, total: Total | None, problem: BudgetError | None
) -> dict[str, Any]:
    return {
        "schema": _SCHEMA,
        "population": budget.population,
        "unit": budget.unit,
        "cap": {"epsilon": budget.epsilon, "delta": budget.delta},
        "until": budget.until,
        "releases": [
            {
                "id": entry.id,
                "state": entry.state,
                "program": entry.program,
                "epsilon": entry.plan.get("epsilon"),
                "delta": entry.plan.get("delta"),
                "ledger": entry.ledger,
                "sha256": entry.sha256 if entry.state == RELEASED else None,
                "date": entry.date,
            }
            for entry in budget.entries
        ],
        **({"total": None, "sums": None} if total is None else _total_json(total)),
        "problem": None if problem is None else str(problem),
        "notes": [] if total is None else list(total.notes),
    }


def _print_json(value: Mapping[str, Any]) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def _print_table(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], *, left: Sequence[str]
) -> None:
    table = display.aligned_table(title, headings, text=left)
    for row in rows:
        table.add_row(*row)
    display.stdout_console().print(table)


def _print_lines(lines: Sequence[str]) -> None:
    console = display.stdout_console()
    for line in lines:
        console.print(line, soft_wrap=True)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
