"""`beam-dpne evaluate`, `account`, `export` and `report`, which read releases."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from beam_dpne.cli import display, settings
from beam_dpne.errors import UsageError
from beam_dpne.evaluation.reports import (
    NOTICE,
    PREFIX,
    evaluation_picture,
    report_files,
    require_matplotlib,
)
from beam_dpne.exports.writing import KINDS
from beam_dpne.exports.writing import export as write_export
from beam_dpne.jobs import console
from beam_dpne.jobs.accounting import accounted
from beam_dpne.jobs.asking import Accounting, Evaluating
from beam_dpne.jobs.evaluating import evaluated, judgeable
from beam_dpne.jobs.made import Made
from beam_dpne.jobs.parameters import Input, Quiet
from beam_dpne.jobs.preparing import check_directory
from beam_dpne.reading.options import names_of
from beam_dpne.release.publishing import write_file
from beam_dpne.release.reading import read_release
from beam_dpne.release.report import PUBLIC
from beam_dpne.release.report.document import render_report
from beam_dpne.storage.directories import check_access, directory_at


def evaluate_release(made: Made, _beam_arguments: list[str]) -> None:
    """Compares a release with the private data, prints the tables, and writes the files.

    Raises:
      UsageError, ValueError, FileNotFoundError: if a parameter is wrong.
    """
    evaluating = made[Evaluating]
    inputs = names_of(made[Input].input)
    output = evaluating.output
    path = evaluating.release
    check_access([*inputs, path], [output] if output else [])
    release = judgeable(read_release(path))
    if output is not None:
        _check_output_of_evaluation(output, path)
    found = evaluated(made, release, inputs, console.showing(quiet=made[Quiet].quiet))
    _print_evaluation(found.tables, release.noun, found.notes)
    if output is None:
        return
    corpus = found.corpus
    read = {
        "files": [file.path for file in found.files],
        "tokenizer": corpus.tokenizer,
        "users": len(corpus.users),
        "tokens": corpus.tokens,
        "rejected_reasons": dict(corpus.rejected_reasons),
    }
    compared = {"release": path, "program": release.program, "plan": release.ledger["plan"]}
    compared |= {"input": read, "notes": found.notes}
    data = ", ".join(os.path.basename(name.rstrip("/")) for name in inputs)
    named = release.title or os.path.basename(os.path.abspath(release.path))
    spent = f"ε = {release.epsilon:g}, δ = {release.delta:g}"
    caption = f"{spent} · data: {data} · release: {named}"
    picture = evaluation_picture(found.covered, found.rows, caption=caption, noun=release.noun)
    for name, content in report_files(found.tables, compared, picture).items():
        write_file(f"{output.rstrip('/')}/{name}", content, release=path, overwrite=True)
    display.print_line(f"Files, not private either: {output}")


def _check_output_of_evaluation(output: str, release: str) -> None:
    """Raises UsageError unless the files of an evaluation can be written into a directory."""
    require_matplotlib()
    check_directory("output", output, release)
    if any(name.startswith(PREFIX) for name in directory_at(output).names()):
        raise UsageError(
            f"`output` must be a directory without an evaluation, got `output={output}`. Choose "
            "another directory, or delete the evaluation that is there."
        )


def _print_evaluation(
    tables: Mapping[str, Sequence[Mapping[str, Any]]], noun: str, notes: Sequence[str]
) -> None:
    shares: dict[str, dict[str, Any]] = {}
    for row in tables.get("k_anonymity", ()):
        of_length = shares.setdefault(row["length"], {"length": row["length"]})
        of_length[f"k = {row['k']}"] = row["share"]
    # Coverage has the numbers of real rows already.
    counts = [{name: row[name] for name in row if name != "real"} for row in tables["counts"]]
    display.print_line(NOTICE)
    for title, figures in (
        (f"Released {noun}, and the share of the data that they cover", tables.get("coverage")),
        (f"Released share of the {noun} that at least k users have", shares.values()),
        ("Released numbers, beside the true numbers of users", counts),
        (f"Known and new {noun}", tables.get("families")),
    ):
        if figures:
            display.print_table(title, [*figures])
    for note in notes:
        display.print_line(f"· {note}")


def account(made: Made, _beam_arguments: list[str]) -> None:
    """Prints the total of ledgers, or shows or changes a budget."""
    asked = made[Accounting]
    found = accounted(asked)
    budget = found.budget
    total = found.total
    notes = found.notes
    if asked.json:
        facts = {
            "schema": "beam_dpne/account/2",
            "population": budget and budget.population,
            "cap": budget and budget.cap,
            "runs": found.runs,
            "total": total,
            "notes": notes,
        }
        # An ε that is not finite is null.
        print(msgspec.json.format(msgspec.json.encode(facts), indent=2).decode())
        return
    listed = found.runs
    title = "1 release" if len(listed) == 1 else f"{len(listed)} releases"
    if budget:
        title = f"{budget.population}: {spent(budget.cap)}"
    if listed:
        display.print_table(title, listed, list(listed[0])[:-2])
    else:
        display.print_line(f"{title}.")
    if total is not None:
        sums = f"The sums alone would be ε = {total.sum_epsilon:g}, δ = {total.sum_delta:g}."
        notes = [f"Together: {spent(total)}.", sums, *notes]
    for line in notes or ["Nothing is spent."]:
        display.print_line(line)


def spent(total: Any) -> str:
    """Returns ε and δ, where ε is rounded up, so that a printed total is never too small."""
    return f"ε = {np.ceil(round(total.epsilon * 1e4, 6)) / 1e4:.10g}, δ = {total.delta:g}"


def export(made: Made, _beam_arguments: list[str]) -> None:
    """Exports a release to one file, and prints where it is and what is not in it."""
    exporting = made[settings.Exporting]
    check_access([exporting.release], [])
    rendered = write_export(
        read_release(exporting.release),
        exporting.to,
        exporting.output,
        overwrite=exporting.overwrite,
        group=exporting.group,
        public=exporting.public,
        license=exporting.license,
        at_least=exporting.at_least,
        top=exporting.top,
        model=exporting.model,
        vocabulary_size=exporting.vocabulary_size,
        special_tokens=exporting.special_tokens,
        bom=exporting.bom or None,
    )
    display.print_notice(
        f"{exporting.output} has the release with the ledger {rendered.ledger_sha256} as "
        f"{KINDS[exporting.to].holds}."
    )
    for why, count in rendered.left_out.items():
        display.print_notice(f"left out: {count:,} {why}.")


def report(made: Made, _beam_arguments: list[str]) -> None:
    """Reads a release, and writes its report.

    Raises:
      UsageError: A parameter is wrong, or the report cannot be written.
      ReleaseError: The release is incomplete, damaged or being replaced.
    """
    reporting = made[settings.Reporting]
    output = reporting.output
    if not output.lower().endswith((".html", ".htm", ".md")):
        raise UsageError(f"`output` must end in .html, .htm or .md, got `output={output}`.")
    check_access([*filter(None, [reporting.release, reporting.since])], [])
    page = render_report(
        read_release(reporting.release),
        since=read_release(reporting.since) if reporting.since else None,
        output_format="markdown" if output.lower().endswith(".md") else "html",
        left_out={*(PUBLIC if reporting.public else ()), *(reporting.leave_out or ())},
        top_rows=reporting.top,
        at_least=reporting.at_least,
    )
    write_file(output, page, release=reporting.release, overwrite=reporting.overwrite)
    display.print_notice(f"the report is in {output}.")
