"""`beam-dpne evaluate`, `account`, `export` and `report`, which read releases."""

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from beam_dpne.accounting.budget import Budget, create_budget, open_budget
from beam_dpne.accounting.population import (
    Counted,
    CountedLedger,
    Note,
    of_one_key,
    read_population,
    repeated,
    total_of,
)
from beam_dpne.cli import display, settings
from beam_dpne.documents.tokenizers import Tokenizer
from beam_dpne.elements.arrays import places_in
from beam_dpne.errors import UsageError
from beam_dpne.evaluation.corpus import Corpus, index_corpus, read_corpus, released_codes
from beam_dpne.evaluation.judging import (
    JudgedRows,
    evaluate,
    evaluate_counts,
    families_of,
    rows_of_table,
)
from beam_dpne.evaluation.reports import (
    NOTICE,
    PREFIX,
    evaluation_picture,
    report_files,
    require_matplotlib,
    tables_of,
)
from beam_dpne.exports.writing import KINDS
from beam_dpne.exports.writing import export as write_export
from beam_dpne.jobs.inputs import as_released, read_inputs, with_rules
from beam_dpne.jobs.made import Made
from beam_dpne.jobs.parameters import Input, Quiet, Tokenizing
from beam_dpne.jobs.preparing import check_directory
from beam_dpne.lists.known import KnownNgrams, read_known_again
from beam_dpne.reading.options import names_of
from beam_dpne.release.publishing import write_file
from beam_dpne.release.reading import Release, read_release
from beam_dpne.release.report import PUBLIC
from beam_dpne.release.report.document import render_report
from beam_dpne.storage.directories import check_access, directory_at

# Numbers k of which an evaluation shows what part is released of the n-grams that k users have.
_LEVELS = (1, 2, 5, 10, 20, 50, 100)
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


def evaluate_release(made: Made, _beam_arguments: list[str]) -> None:
    """Compares a release with the private data, prints the tables, and writes the files.

    Raises:
      UsageError, ValueError, FileNotFoundError: if a parameter is wrong.
    """
    evaluating = made[settings.Evaluating]
    inputs = names_of(made[Input].input)
    output = evaluating.output
    path = evaluating.release
    check_access([*inputs, path], [output] if output else [])
    release = read_release(path)
    if release.program == "bayesian":
        raise UsageError(
            f"release must be of beam-dpne ngrams or set-union, got release={path}, which has the "
            "probabilities of a public vocabulary, and no n-grams that were found in the data."
        )
    if output is not None:
        _check_output_of_evaluation(output, path)
    showing = display.showing(quiet=made[Quiet].quiet)
    reading, name = as_released(made, release.ledger)
    files, reading, _ = read_inputs(reading, inputs, name, showing=showing, shows_fields=True)
    tokenizer = _released_tokenizer(made[Tokenizing], name, release.text_rules)
    longest = release.max_length
    asked = names_of(evaluating.known or ())
    known = None
    if asked:
        known = read_known_again(asked, release.known_lists, longest, tokenizer)
    with showing.progress(sum(file.size for file in files)):
        table = release.rows
        corpus = read_corpus(files, reading, tokenizer)
        index = index_corpus(corpus, longest)
        covered = evaluate(index, released_codes(corpus, table), k_anonymity=_LEVELS)
        rows = rows_of_table(index, table)
        counted = evaluate_counts(index, rows, top_k=evaluating.top_k)
    tables = tables_of(covered, counted)
    notes = _notes(release, corpus)
    if known is not None:
        tables["families"] = _families(known, release, rows)
    _print_evaluation(tables, release.noun, notes)
    if output is None:
        return
    read = {
        "files": [file.path for file in files],
        "tokenizer": corpus.tokenizer,
        "users": len(corpus.users),
        "tokens": corpus.tokens,
        "rejected_reasons": dict(corpus.rejected_reasons),
    }
    compared = {"release": path, "program": release.program, "plan": release.ledger["plan"]}
    compared |= {"input": read, "notes": notes}
    data = ", ".join(os.path.basename(name.rstrip("/")) for name in inputs)
    named = release.title or os.path.basename(os.path.abspath(release.path))
    spent = f"ε = {release.epsilon:g}, δ = {release.delta:g}"
    caption = f"{spent} · data: {data} · release: {named}"
    picture = evaluation_picture(covered, rows, caption=caption, noun=release.noun)
    for name, content in report_files(tables, compared, picture).items():
        write_file(f"{output.rstrip('/')}/{name}", content, release=path, overwrite=True)
    display.print_line(f"Files, not private either: {output}")


def _check_output_of_evaluation(output: str, release: str) -> None:
    """Raises UsageError unless the files of an evaluation can be written into a directory."""
    require_matplotlib()
    check_directory("output", output, release)
    if any(name.startswith(PREFIX) for name in directory_at(output).names()):
        raise UsageError(
            f"output must be a directory without an evaluation, got output={output}. Choose "
            "another directory, or delete the evaluation that is there."
        )


def _families(
    known: KnownNgrams, release: Release, rows: Mapping[int, JudgedRows]
) -> list[dict[str, Any]]:
    """Returns how many known and new rows a release has, and how many of them are real."""
    table = release.rows
    if release.program == "set-union":
        is_known = places_in(table["item"].combine_chunks(), known.items.words) >= 0
        return families_of(rows, np.ones(len(table)), is_known)
    groups = table["group"].to_pylist() if release.has_groups else None
    is_known = known.covers(release.texts(table), groups)
    return families_of(rows, table["length"].to_numpy(), is_known)


def _print_evaluation(
    tables: Mapping[str, Sequence[Mapping[str, Any]]], noun: str, notes: Sequence[str]
) -> None:
    shares: dict[str, dict[str, Any]] = {}
    for row in tables["k_anonymity"]:
        of_length = shares.setdefault(row["length"], {"length": row["length"]})
        of_length[f"k = {row['k']}"] = row["share"]
    # Coverage has the numbers of real rows already.
    counts = [{name: row[name] for name in row if name != "real"} for row in tables["counts"]]
    display.print_line(NOTICE)
    for title, figures in (
        (f"Released {noun}, and the share of the data that they cover", tables["coverage"]),
        (f"Released share of the {noun} that at least k users have", shares.values()),
        ("Released numbers, beside the true numbers of users", counts),
        *([(f"Known and new {noun}", tables["families"])] if "families" in tables else []),
    ):
        display.print_table(title, [*figures])
    for note in notes:
        display.print_line(f"· {note}")


def _given_or_stated(given: Any, rules: Mapping[str, Any], name: str) -> Any:
    return rules.get(name) if given is None else given


def _released_tokenizer(
    tokenizing: Tokenizing, name: str, rules: Mapping[str, Any]
) -> str | Tokenizer:
    """Returns a tokenizer with the rules of a release, whose list of words the operator gives again."""
    released = dataclasses.replace(
        tokenizing,
        item_separator=_given_or_stated(tokenizing.item_separator, rules, "item_separator"),
        mask=_given_or_stated(tokenizing.mask, rules, "mask"),
        fold=_given_or_stated(tokenizing.fold, rules, "fold"),
        keep=_given_or_stated(tokenizing.keep, rules, "keep"),
    )
    tokenizer = with_rules(released, name)
    if (found := getattr(tokenizer, "rules", {})) != rules:
        wrong = next(key for key in {**rules, **found} if rules.get(key) != found.get(key))
        option = wrong.removesuffix("_sha256")
        raise UsageError(
            f"{option} must be that of the release, whose ledger has {wrong} = {rules.get(wrong)}, got "
            f"{option}={getattr(tokenizing, option)}."
        )
    return tokenizer


def _notes(release: Release, corpus: Corpus) -> list[str]:
    """Returns the notes that a reader needs to understand the figures."""
    told = release.tokenizer
    notes = [
        f"The data have {corpus.tokens:,} tokens in {corpus.documents.sum():,} documents of "
        f"{len(corpus.users):,} users. All of them count, also what the run left out by its limits."
    ]
    if not release.has_counts:
        notes.append("The release has no numbers of users, so only its scores are compared.")
    if corpus.rejected:
        reasons = ", ".join(sorted(corpus.rejected_reasons))
        notes.append(f"Records that could not be used: {corpus.rejected:,} ({reasons}).")
    if corpus.tokenizer != told:
        notes.append(
            f"The tokenizer is {corpus.tokenizer} and the release's was {told}, so n-grams that look "
            "spurious may be real."
        )
    return notes


def account(made: Made, _beam_arguments: list[str]) -> None:
    """Prints the total of ledgers, or shows or changes a budget."""
    asked = made[settings.Accounting]
    budget = _changed_budget(asked)
    if budget is None:
        runs: dict[str, Counted] = {each.path: each for each in _read(asked)}
        total = total_of(runs, asked.delta)
        if not math.isfinite(total.epsilon):
            raise UsageError(
                f"no ε exists at this δ; take a larger one, got delta={total.delta:g}: the releases' "
                f"own δ add up to {total.sum_delta:g}."
            )
    else:
        runs = budget.runs()
        total = budget.total(runs)
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
    if asked.json:
        facts = {
            "schema": "beam_dpne/account/2",
            "population": budget and budget.population,
            "cap": budget and budget.cap,
            "runs": listed,
            "total": total,
            "notes": notes,
        }
        # An ε that is not finite is null.
        print(msgspec.json.format(msgspec.json.encode(facts), indent=2).decode())
        return
    title = "1 release" if len(runs) == 1 else f"{len(runs)} releases"
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


def _changed_budget(asked: settings.Accounting) -> Budget | None:
    """Does the change that is asked for; returns the budget, or None if none is named."""
    given = [name for name, value in vars(asked).items() if value]
    if {*given} - {"json", "same_users"} not in map(set, _USES):
        uses = "; ".join(map(_as_options, _USES))
        raise UsageError(f"account takes one of: {uses}; got {_as_options(given) or 'nothing'}.")
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


def _as_options(names: Sequence[str]) -> str:
    return " ".join(name.upper() if name == "ledgers" else f"--{name}" for name in names)


def _read(asked: settings.Accounting) -> list[CountedLedger]:
    ledgers = asked.ledgers or ()
    check_access(ledgers, [])
    return read_population(ledgers, same_users=asked.same_users)


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
        raise UsageError(f"output must end in .html, .htm or .md, got output={output}.")
    check_access([*filter(None, [reporting.release, reporting.since])], [])
    page = render_report(
        read_release(reporting.release),
        since=read_release(reporting.since) if reporting.since else None,
        output_format="markdown" if output.lower().endswith(".md") else "html",
        left_out={*(PUBLIC if reporting.public else ()), *(reporting.leave_out or ())},
    )
    write_file(output, page, release=reporting.release, overwrite=reporting.overwrite)
    display.print_notice(f"the report is in {output}.")
