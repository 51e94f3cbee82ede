"""`beam-dpne evaluate`, `account`, `export` and `report`, which read releases."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from rich.panel import Panel

from beam_dpne.accounting.budget import Budget, Note, create_budget, open_budget
from beam_dpne.accounting.composition import compose
from beam_dpne.accounting.expense import CountedLedger, read_population
from beam_dpne.cli import display
from beam_dpne.cli.commands import Made
from beam_dpne.cli.parameters import Input, Quiet, Tokenizing
from beam_dpne.cli.programs import read_inputs
from beam_dpne.cli.settings import Accounting, Evaluating, Exporting, Reporting
from beam_dpne.errors import UsageError
from beam_dpne.evaluation.corpus import Corpus, index_corpus, read_corpus
from beam_dpne.evaluation.counts import CountQuality, evaluate_counts, rows_of_table
from beam_dpne.evaluation.coverage import Coverage, evaluate, released_codes
from beam_dpne.evaluation.reports import (
    NOTICE,
    check_output,
    evaluation_picture,
    report_files,
    require_matplotlib,
    write_report,
)
from beam_dpne.exports.writing import KINDS
from beam_dpne.exports.writing import export as write_export
from beam_dpne.reading.options import names_of
from beam_dpne.reading.rejects import describe
from beam_dpne.release.publishing import write_file
from beam_dpne.release.reading import read_ledger, read_release, release_folder
from beam_dpne.report.document import PUBLIC, render_report
from beam_dpne.report.facts import Facts
from beam_dpne.storage.access import check_access

Ledger = Mapping[str, Any]
_SCHEMA = "beam_dpne/account/1"
_CHANGES = ("create", "add", "settle", "remove")
_FOR_CREATE = ("population", "epsilon")
# The columns of the printed tables.
_COVERAGE = (
    *("released", "real", "spurious", "spurious_ratio", "occurrence_share", "missing_mass"),
    *("mean_user_share", "median_user_share"),
)
_INTERVALS = ("real", "coverage", "within_factor_two", "median_relative_error")
_RANKS = ("rank_correlation", "score_rank_correlation", "top_k", "top", "score_top", "top_missing")


def evaluate_release(made: Made, _beam_arguments: list[str]) -> None:
    """Compares a release with the private data, prints the tables, and writes the files.

    Raises:
      UsageError, ValueError, FileNotFoundError: if a parameter is wrong.
    """
    evaluating, inputs = made[Evaluating], names_of(made[Input].input)
    output, release = evaluating.output, evaluating.release
    check_access([*inputs, release], [output] if output else [])
    ledger = read_ledger(release)
    if ledger["program"] == "bayesian":
        raise UsageError(
            f"release must be of beam-dpne ngrams or set-union, got release={release}, which has the "
            "probabilities of a public vocabulary, and no n-grams that were found in the data."
        )
    if output is not None:
        require_matplotlib()
        check_output(output, release)
    tokenizer = made[Tokenizing].tokenizer or ledger["tokenizer"]
    files, reading = read_inputs(made, inputs, tokenizer)
    longest = max((each["length"] for each in ledger.get("lengths", ())), default=1)
    with display.progress_line(sum(file.size for file in files), quiet=made[Quiet].quiet):
        table = read_release(release).table()
        corpus = read_corpus(files, reading, tokenizer)
        index = index_corpus(corpus, longest)
        levels = sorted(set(evaluating.k_anonymity))
        coverage = evaluate(index, released_codes(corpus, table), k_anonymity=levels)
        rows = rows_of_table(index, table)
        counts = evaluate_counts(index, rows, top_k=evaluating.top_k)
    notes, noun = _notes(ledger, corpus), "n-grams" if "lengths" in ledger else "items"
    if output is not None:
        caption = _caption(ledger, release, inputs)
        picture = evaluation_picture(coverage, rows, caption=caption, noun=noun)
        read = {
            "files": [file.path for file in files],
            "tokenizer": corpus.tokenizer,
            "users": len(corpus.users),
            "tokens": corpus.tokens,
            "rejected_records": corpus.rejected,
            "rejected_reasons": dict(corpus.rejected_reasons),
        }
        compared = {"release": release, "program": ledger["program"], "plan": ledger["plan"]}
        compared = {**compared, "input": read, "notes": notes}
        write_report(output, report_files(coverage, counts, compared, picture))
    display.stdout_console().print(Panel(NOTICE, border_style="bold red", style="bold red"))
    _print_rows(f"Released {noun}, and the share of the data that they cover", _COVERAGE, coverage)
    shares = [[x.length or "all", *(_shown("", k.share) for k in x.k_anonymity)] for x in coverage]
    title = f"Released share of the {noun} that at least k users have"
    display.print_table(title, ["length", *(f"k = {level:,}" for level in levels)], shares)
    if "users" in ledger["columns"]:
        _print_rows("Numbers of users: intervals, and errors of estimates", _INTERVALS, counts)
    _print_rows(f"Order of the {noun}, against that by true numbers of users", _RANKS, counts)
    for note in notes:
        display.print_line(f"· {note}")
    if output is not None:
        display.print_line(f"Files, not private either: {output}")


def _notes(ledger: Ledger, corpus: Corpus) -> list[str]:
    """Returns the notes that a reader needs to understand the figures."""
    notes = [
        f"The data have {corpus.tokens:,} tokens in {corpus.document_lengths.size:,} documents of "
        f"{len(corpus.users):,} users. All of them count, also what the run left out by its limits."
    ]
    if "users" not in ledger["columns"]:
        notes.append("The release has no numbers of users, so only its scores are compared.")
    if corpus.rejected:
        reasons = describe(corpus.rejected_reasons)
        notes.append(f"Records that could not be used: {corpus.rejected:,} ({reasons}).")
    if corpus.tokenizer != ledger["tokenizer"]:
        notes.append(
            f"The tokenizer is {corpus.tokenizer} and the release's was {ledger['tokenizer']}, so "
            "n-grams that look spurious may be real."
        )
    return notes


def _caption(ledger: Ledger, release: str, inputs: Sequence[str]) -> str:
    """Returns the caption of the picture, which names files without their folders."""
    plan, title = ledger["plan"], ledger["notes"]["title"]
    content = ledger["parts"][0]["name"].split("-")[1]
    named = f"“{title}”" if title else os.path.basename(os.path.abspath(release_folder(release)))
    data = ", ".join(os.path.basename(path.rstrip("/")) for path in inputs)
    budget = f"ε = {plan['epsilon']:g}, δ = {plan['delta']:g}"
    return f"{budget} · data: {data} · release: {named} ({content})"


def _print_rows(
    title: str, columns: Sequence[str], rows: Sequence[Coverage | CountQuality]
) -> None:
    """Prints one row for each length, and one for all of them if there are several."""
    cells = [
        [row.length or "all", *(_shown(name, getattr(row, name)) for name in columns)]
        for row in (rows if len(rows) > 2 else rows[:1])
    ]
    display.print_table(title, ["length", *(name.replace("_", " ") for name in columns)], cells)


def _shown(name: str, value: float | None) -> str:
    if value is None or isinstance(value, int):
        return "-" if value is None else f"{value:,}"
    return f"{value:.3f}" if "correlation" in name else f"{value:.2%}"


def account(made: Made, _beam_arguments: list[str]) -> None:
    """Prints the total of ledgers, or shows or changes a budget."""
    asked = made[Accounting]
    budget, notes = _changed_budget(asked), []
    if budget is None:
        counted = _read(asked)
        total = compose([each.expense for each in counted], delta=asked.delta)
        listed = [{"ledger": each.path, **_facts(each)} for each in counted]
        facts, title = {"releases": listed}, f"{len(counted)} releases"
        if (given := sum(each.ledger["run_key"]["given"] for each in counted)) > 1:
            notes.append(
                f"{given} of the runs had a run key that was given. If two used the same key on "
                "different inputs, no total holds, because the key's noise can be subtracted."
            )
    else:
        runs, cap = budget.runs(), budget.cap
        total = budget.total(runs)
        listed = [{"name": name, **_facts(run)} for name, run in runs.items()]
        facts = {
            "population": budget.population,
            "cap": {"epsilon": cap.epsilon, "delta": cap.delta},
        }
        facts, title = {**facts, "runs": listed}, f"{budget.population}: {_spent(cap)}"
        if total and total.epsilon > cap.epsilon:
            notes.append("The cap is below what is spent, so every further run is refused.")
        if any(isinstance(run, Note) for run in runs.values()):
            notes.append("Settle or remove each run that has only started, once it has ended.")
    if asked.json:
        is_finite = total is not None and total.epsilon < math.inf
        sums = total and {"epsilon": total.sum_epsilon, "delta": total.sum_delta}
        spent = total and {"epsilon": total.epsilon if is_finite else None, "delta": total.delta}
        facts = {"schema": _SCHEMA, **facts, "total": spent, "sums": sums, "notes": notes}
        print(json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False))
        return
    columns = [name for name in listed[0] if name != "sha256"] if listed else ["name"]
    shown = [name for name in columns if any(each[name] is not None for each in listed)]
    rows = [[_plain(each[name]) for name in shown] for each in listed]
    display.print_table(title, shown, rows)
    if total is not None:
        sums = f"The sums alone would be ε = {total.sum_epsilon:g}, δ = {total.sum_delta:g}."
        notes = [f"Together: {_spent(total)}.", sums, *notes]
    for line in notes or ["Nothing is spent."]:
        display.print_line(line)


def _changed_budget(asked: Accounting) -> Budget | None:
    """Does the change that is asked for, at most one; returns the budget, or None if none is named."""
    changes = [name for name in _CHANGES if getattr(asked, name)]
    for_create = [name for name in _FOR_CREATE if getattr(asked, name) is not None]
    if asked.budget is None:
        if changes or for_create:
            raise UsageError(f"{(*changes, *for_create)[0]} needs budget.")
        return None
    if len(changes) > 1:
        raise UsageError(f"{changes[0]} and {changes[1]} must not be given together.")
    if asked.ledgers and not asked.add:
        raise UsageError("ledgers beside a budget must come with add.")
    if for_create and not asked.create:
        raise UsageError(f"{for_create[0]} belongs to create.")
    check_access([asked.budget], [])
    if asked.create:
        if asked.population is None or asked.epsilon is None or asked.delta is None:
            raise UsageError("population, epsilon and delta must be given with create.")
        cap = {"epsilon": asked.epsilon, "delta": asked.delta}
        return create_budget(asked.budget, population=asked.population, **cap)
    budget = open_budget(asked.budget)
    if asked.add:
        budget.add(_read(asked))
    if asked.settle:
        budget.settle(asked.settle)
    if asked.remove:
        budget.remove(asked.remove)
    return budget


def _read(asked: Accounting) -> list[CountedLedger]:
    if not asked.ledgers:
        raise UsageError("ledgers must be given: beam-dpne account RELEASE….")
    check_access(asked.ledgers, [])
    return read_population(asked.ledgers, same_users=asked.same_users)


def _facts(run: Note | CountedLedger) -> dict[str, Any]:
    return {
        "state": "started" if isinstance(run, Note) else "released",
        "program": run.program,
        "unit": run.unit,
        "epsilon": run.expense.epsilon,
        "delta": run.expense.delta,
        "output": getattr(run, "output", None),
        "sha256": getattr(run, "sha256", None),
    }


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str("-" if value is None else value)


def _spent(total: Any) -> str:
    """Returns ε and δ, where ε is rounded up, so that a printed total is never too small."""
    is_finite = total.epsilon < math.inf
    epsilon = math.ceil(round(total.epsilon * 1e4, 6)) / 1e4 if is_finite else math.inf
    return f"ε = {epsilon:.10g}, δ = {total.delta:g}"


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
    holds, sha256 = KINDS[exporting.to].holds, rendered.ledger_sha256
    display.print_notice(
        f"beam-dpne: {exporting.output} has the release with the ledger {sha256} as {holds}."
    )
    for why, count in rendered.left_out.items():
        display.print_notice(f"beam-dpne: left out: {count:,} {why}.")


def report(made: Made, _beam_arguments: list[str]) -> None:
    """Reads a release, and writes its report.

    Raises:
      UsageError: A parameter is wrong, or the report cannot be written.
      ReleaseError: The release is incomplete, damaged or being replaced.
    """
    reporting = made[Reporting]
    output = reporting.output
    check_access([reporting.release], [])
    page = render_report(
        Facts.read(reporting.release),
        output_format="markdown" if output.lower().endswith(".md") else "html",
        left_out={*(PUBLIC if reporting.public else ()), *(reporting.leave_out or ())},
        search_rows=reporting.search_rows,
    )
    write_file(output, page, release=reporting.release, overwrite=reporting.overwrite)
    display.print_notice(f"beam-dpne: the report is in {output}.")
