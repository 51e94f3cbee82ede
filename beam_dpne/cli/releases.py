"""`beam-dpne account`, `export` and `report`, which read releases alone."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from beam_dpne.accounting.budget import Budget, Note, create_budget, open_budget
from beam_dpne.accounting.composition import Total, compose
from beam_dpne.accounting.expense import CountedLedger, read_population
from beam_dpne.cli import display
from beam_dpne.cli.parsing import Made
from beam_dpne.cli.release_settings import Adding, Exporting, Keeping, Reporting
from beam_dpne.errors import UsageError
from beam_dpne.exports.writing import KINDS
from beam_dpne.exports.writing import export as write_export
from beam_dpne.release.publishing import write_file
from beam_dpne.release.reading import LEDGER_NAME
from beam_dpne.report.document import PUBLIC, render_report
from beam_dpne.report.facts import Facts, shown
from beam_dpne.storage.access import check_access

_SCHEMA = "beam_dpne/account/1"
_ONLY_WITH_CREATE = ("population", "epsilon")
_CHANGES = ("create", "add", "settle", "remove")
_OUTPUTS = {"html": "report.html", "markdown": "report.md"}


def export(made: Made, _beam_arguments: list[str]) -> None:
    """Exports a release to one file, and prints where it is and what is not in it."""
    exporting = made[Exporting]
    settings = [name for kind in KINDS.values() for name in kind.settings]
    rendered = write_export(
        exporting.release,
        exporting.to,
        exporting.output,
        overwrite=exporting.overwrite,
        **{name: getattr(exporting, name) for name in settings},
    )
    holds = KINDS[exporting.to].holds
    display.print_notice(f"beam-dpne: {exporting.output} has the release as {holds}.")
    display.print_notice(f"beam-dpne: the SHA-256 of its ledger is {rendered.ledger_sha256}.")
    for why, count in rendered.left_out.items():
        display.print_notice(f"beam-dpne: left out: {count:,} {why}.")


def report(made: Made, _beam_arguments: list[str]) -> None:
    """Reads a release, and writes its report.

    Raises:
      UsageError: A parameter is wrong, or the report cannot be written.
      ReleaseError: The release is incomplete, damaged or being replaced.
    """
    reporting = made[Reporting]
    is_markdown = (reporting.output or "").lower().endswith(".md")
    output_format = reporting.format or ("markdown" if is_markdown else "html")
    output = reporting.output or _OUTPUTS[output_format]
    check_access([reporting.release], [])
    page = render_report(
        Facts.read(reporting.release),
        output_format=output_format,
        left_out={*(PUBLIC if reporting.public else ()), *(reporting.leave_out or ())},
        search_rows=reporting.search_rows,
    )
    write_file(output, page, release=reporting.release, overwrite=reporting.overwrite)
    display.print_notice(f"beam-dpne: the report is in {output}.")


def account(made: Made, _beam_arguments: list[str]) -> None:
    """Prints the total of ledgers, or shows or changes a budget."""
    adding, keeping = made[Adding], made[Keeping]
    if keeping.budget is None:
        _refuse(keeping, (*_ONLY_WITH_CREATE, *_CHANGES), "needs budget")
        _show_total(adding)
        return
    check_access([keeping.budget], [])
    budget = _changed_budget(adding, keeping)
    runs = budget.runs()
    total = budget.total(runs)
    if adding.json:
        _print_json(_budget_json(budget, runs, total))
    else:
        _print_budget(budget, runs, total)


def _show_total(adding: Adding) -> None:
    """Prints a total; a δ at which there is none ends the command after the table."""
    counted = _read(adding)
    total = compose([each.expense for each in counted], delta=adding.delta)
    notes = _about_keys(counted)
    if adding.json:
        listed = [_ledger_json(each) for each in counted]
        _print_json({"schema": _SCHEMA, "releases": listed, **_total_json(total), "notes": notes})
    else:
        rows = [
            (
                each.path.removesuffix(f"/{LEDGER_NAME}"),
                each.program,
                shown(each.unit or "-"),
                f"{each.expense.epsilon:g}",
                f"{each.expense.delta:g}",
            )
            for each in counted
        ]
        headings = ("release", "program", "one user is", "ε", "δ")
        display.print_table(_plural(len(counted), "release"), headings, rows)
        _print_lines([*_total_lines(total), *notes])
    if math.isinf(total.epsilon):
        raise UsageError(
            f"delta must be larger, got delta={total.delta:g}: these releases have no finite ε "
            f"together at this δ. Leave delta out for their sum, {total.sum_delta:g}."
        )


def _about_keys(counted: Sequence[CountedLedger]) -> list[str]:
    """Returns the sentence about given run keys, if there are several."""
    given = sum(each.ledger["run_key"]["given"] for each in counted)
    if given < 2:
        return []
    return [
        f"{given} of the runs had a run key that was given. If two of them used the same key on "
        "different inputs, no total holds, because the key's noise can be subtracted."
    ]


def _changed_budget(adding: Adding, keeping: Keeping) -> Budget:
    """Does the change that is asked for, at most one, and returns the budget."""
    asked = [name for name in _CHANGES if getattr(keeping, name)]
    if len(asked) > 1:
        raise UsageError(f"{asked[0]} and {asked[1]} must not be given together.")
    action = asked[0] if asked else None
    if adding.ledgers and action != "add":
        raise UsageError("ledgers beside a budget must come with add.")
    path = keeping.budget or ""
    if action == "create":
        cap = {
            "population": keeping.population,
            "epsilon": keeping.epsilon,
            "delta": adding.delta,
        }
        if missing := [name for name, value in cap.items() if value is None]:
            raise UsageError(f"{' and '.join(missing)} must be given with create.")
        return create_budget(path, **cap)
    _refuse(keeping, _ONLY_WITH_CREATE, "belongs to create")
    budget = open_budget(path)
    if action == "add":
        budget.add(_read(adding))
    elif action == "settle":
        budget.settle(keeping.settle or "")
    elif action == "remove":
        budget.remove(keeping.remove or "")
    return budget


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
    title = f"{budget.population}: ε = {budget.cap.epsilon:g}, δ = {budget.cap.delta:g}"
    headings = ("run", "state", "program", "ε", "δ")
    display.print_table(title, headings, rows)
    if total is None:
        _print_lines(["Nothing is spent."])
        return
    lines = _total_lines(total)
    if total.epsilon > budget.cap.epsilon:
        lines.append("The cap is below what is spent, so every further run is refused.")
    started = sum(isinstance(run, Note) for run in runs.values())
    if started:
        lines.append(
            f"{_plural(started, 'run')} started and published nothing that this budget knows; settle "
            "or remove each once it has ended. Until then they count in full."
        )
    _print_lines(lines)


def _read(adding: Adding) -> list[CountedLedger]:
    if not adding.ledgers:
        raise UsageError("ledgers must be given: beam-dpne account RELEASE….")
    check_access(adding.ledgers, [])
    return read_population(adding.ledgers, same_users=adding.same_users)


def _refuse(keeping: Keeping, names: Sequence[str], why: str) -> None:
    """Raises UsageError if one of these parameters is given."""
    for name in names:
        if getattr(keeping, name):
            raise UsageError(f"{name} {why}, and must be left out here.")


def _total_lines(total: Total) -> list[str]:
    together = f"Together: ε = {_up(total.epsilon)}, δ = {total.delta:g}."
    if math.isinf(total.epsilon):
        together = (
            f"Together: no finite ε at δ = {total.delta:g}, which is less than the parts of δ "
            "that add up."
        )
    sums = f"The sums alone would be ε = {total.sum_epsilon:g}, δ = {total.sum_delta:g}."
    return [together, sums]


def _up(epsilon: float) -> str:
    """Returns a number rounded up to four decimals, so that a printed total is never too small.

    >>> _up(5.75874), _up(4.0)
    ('5.7588', '4')
    """
    return "inf" if math.isinf(epsilon) else f"{math.ceil(round(epsilon * 1e4, 6)) / 1e4:.10g}"


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
    }


def _budget_json(
    budget: Budget, runs: Mapping[str, Note | CountedLedger], total: Total | None
) -> dict[str, Any]:
    return {
        "schema": _SCHEMA,
        "population": budget.population,
        "cap": {"epsilon": budget.cap.epsilon, "delta": budget.cap.delta},
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
        "notes": [],
    }


def _print_json(value: Mapping[str, Any]) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def _print_lines(lines: Sequence[str]) -> None:
    for line in lines:
        display.print_line(line)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
