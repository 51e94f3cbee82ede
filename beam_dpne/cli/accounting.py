"""`beam-dpne account`: the total of several releases, and a budget that runs must not exceed."""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from beam_dpne.accounting.budget import Budget, Note, create_budget, open_budget
from beam_dpne.accounting.composition import Total, compose
from beam_dpne.accounting.ledgers import CountedLedger, read_population, remarks
from beam_dpne.cli import display
from beam_dpne.cli.options import options_of, with_defaults
from beam_dpne.cli.options_by_command import ACCOUNT
from beam_dpne.errors import UsageError
from beam_dpne.release.files import LEDGER_NAME
from beam_dpne.report.text import shown
from beam_dpne.storage.access import check_access

_SCHEMA = "beam_dpne/account/1"
_ONLY_WITH_CREATE = ("population", "epsilon")
_CHANGES = ("create", "add", "settle", "remove")


def run_command(parsed: argparse.Namespace, _beam_arguments: list[str]) -> None:
    """Prints the total of ledgers, or shows or changes a budget."""
    values = with_defaults(parsed, options_of(ACCOUNT))
    values["ledgers"] = values["ledgers"] or []
    if values["budget"] is None:
        _refuse(values, (*_ONLY_WITH_CREATE, *_CHANGES), "needs --budget FOLDER")
        _show_total(values)
        return
    check_access([values["budget"]], [])
    _show_budget(_changed_budget(values), as_json=values["json"])


def _show_total(values: Mapping[str, Any]) -> None:
    """Prints a total; a δ at which there is none ends the command after the table."""
    if not values["ledgers"]:
        raise UsageError(
            "ledgers must be given: beam-dpne account RELEASE…, or a budget: --budget FOLDER."
        )
    counted = _read(values)
    total = compose([each.expense for each in counted], delta=values["delta"])
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
            each.program,
            shown(each.unit or "-"),
            f"{each.expense.epsilon:g}",
            f"{each.expense.delta:g}",
            "as a sum" if each.expense.reason else "with Gaussian noise",
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


def _changed_budget(values: Mapping[str, Any]) -> Budget:
    """Does the change that the options ask for, at most one, and returns the budget."""
    asked = [name for name in _CHANGES if values[name]]
    if len(asked) > 1:
        raise UsageError(f"--{asked[0]} and --{asked[1]} must not be given together.")
    action = asked[0] if asked else None
    path, ledgers = values["budget"], values["ledgers"]
    if action != "create":
        _refuse(values, (*_ONLY_WITH_CREATE, "delta"), "belongs to --create")
    if ledgers and action != "add":
        raise UsageError("ledgers beside a budget must come with --add.")
    if action == "create":
        missing = [name for name in (*_ONLY_WITH_CREATE, "delta") if values[name] is None]
        if missing:
            raise UsageError(f"{' and '.join(missing)} must be given with --create.")
        cap = {name: values[name] for name in ("population", "epsilon", "delta")}
        return create_budget(path, **cap)
    budget = open_budget(path)
    if action == "add":
        if not ledgers:
            raise UsageError(
                "ledgers must be given: beam-dpne account --budget FOLDER --add RELEASE…."
            )
        budget.add(_read(values))
    elif action == "settle":
        budget.settle(values["settle"])
    elif action == "remove":
        budget.remove(values["remove"])
    return budget


def _show_budget(budget: Budget, *, as_json: bool) -> None:
    runs = budget.runs()
    total = budget.total(runs)
    if as_json:
        _print_json(_budget_json(budget, runs, total))
    else:
        _print_budget(budget, runs, total)


def _print_budget(
    budget: Budget, runs: Mapping[str, Note | CountedLedger], total: Total | None
) -> None:
    rows = [
        (
            name,
            f"started on {run.date}" if isinstance(run, Note) else "released",
            run.program,
            f"{run.expense.epsilon:g}",
            f"{run.expense.delta:g}",
        )
        for name, run in runs.items()
    ]
    title = f"{budget.population}: ε = {budget.epsilon:g}, δ = {budget.delta:g}"
    headings = ("run", "state", "program", "ε", "δ")
    _print_table(title, headings, rows, left=("run", "state", "program"))
    if total is None:
        _print_lines(["Nothing is spent."])
        return
    lines = [_total_line(total), _sum_line(total), *total.notes]
    if total.epsilon > budget.epsilon:
        lines.append("The cap is below what is spent, so every further run is refused.")
    started = sum(isinstance(run, Note) for run in runs.values())
    if started:
        lines.append(
            f"{_plural(started, 'run')} started and published nothing that this budget knows; settle "
            "or remove each once it has ended. Until then they count in full."
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
        "program": each.program,
        "unit": each.unit,
        "epsilon": each.expense.epsilon,
        "delta": each.expense.delta,
        "reason": each.expense.reason,
    }


def _budget_json(
    budget: Budget, runs: Mapping[str, Note | CountedLedger], total: Total | None
) -> dict[str, Any]:
    return {
        "schema": _SCHEMA,
        "population": budget.population,
        "cap": {"epsilon": budget.epsilon, "delta": budget.delta},
        "runs": [
            {
                "name": name,
                "state": "started" if isinstance(run, Note) else "released",
                "program": run.program,
                "epsilon": run.expense.epsilon,
                "delta": run.expense.delta,
                "output": run.output if isinstance(run, Note) else None,
                "sha256": None if isinstance(run, Note) else run.sha256,
            }
            for name, run in runs.items()
        ],
        **({"total": None, "sums": None} if total is None else _total_json(total)),
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
