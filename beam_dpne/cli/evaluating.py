"""`beam-dpne evaluate`: comparison of a release with the private data, for the operator."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from rich.panel import Panel

from beam_dpne.cli import display, jobs, parameters
from beam_dpne.cli.parsing import Made
from beam_dpne.cli.settings import Evaluating
from beam_dpne.elements import progress
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
from beam_dpne.reading.files import InputFile, match_inputs
from beam_dpne.reading.headers import check_fields
from beam_dpne.reading.rejects import describe
from beam_dpne.release.reading import LEDGER_NAME, ledger_path, read_ledger, read_release
from beam_dpne.storage.access import check_access

_ITEMS, _PROBABILITIES = "set-union", "bayesian"
Ledger = Mapping[str, Any]


def run(made: Made, _beam_arguments: list[str]) -> None:
    """Evaluates a release, prints the tables, and writes the files if `output` is given.

    Raises:
      UsageError, ValueError, FileNotFoundError: if a parameter is wrong.
    """
    evaluating, inputs = made[Evaluating], jobs.as_list(made[parameters.Input].input)
    output, release = evaluating.output, evaluating.release
    check_access([*inputs, release], [output] if output else [])
    ledger = read_ledger(release)
    if ledger["program"] == _PROBABILITIES:
        raise UsageError(
            f"release must be of beam-dpne ngrams or set-union, got release={release}, which has the "
            "probabilities of a public vocabulary, and no n-grams that were found in the data."
        )
    if output is not None:
        require_matplotlib()
        check_output(output, release)
    tokenizer = made[parameters.Tokenizing].tokenizer or ledger["tokenizer"]
    reading = jobs.reading_options(made, tokenizer)
    files = match_inputs(inputs, reading.input_format)
    check_fields(files, reading)
    is_items = ledger["program"] == _ITEMS
    longest = 1 if is_items else max(each["length"] for each in ledger["lengths"])
    size, quiet = sum(file.size for file in files), made[parameters.Quiet].quiet
    with display.progress_line(max_length=longest, input_bytes=size, quiet=quiet):
        progress.reset()
        table = read_release(release).table()
        corpus = read_corpus(files, reading, tokenizer, strict=evaluating.strict)
        index = index_corpus(corpus, longest)
        levels = tuple(sorted(set(evaluating.k_anonymity)))
        coverage = evaluate(index, released_codes(corpus, table), k_anonymity=levels)
        rows = rows_of_table(index, table)
        counts = evaluate_counts(index, rows, top_k=evaluating.top_k)
    notes, noun = _notes(ledger, corpus), "items" if is_items else "n-grams"
    if output is not None:
        caption = _caption(ledger, release, inputs)
        picture = evaluation_picture(coverage, rows, caption=caption, noun=noun)
        compared = _compared(ledger, release, files, corpus, notes)
        write_report(output, report_files(coverage, counts, compared, picture))
    _print(evaluating, corpus, coverage, counts, ledger)
    for note in notes:
        display.print_line(f"· {note}")
    if output is not None:
        display.print_line(f"Files, not private either: {output}")


def _notes(ledger: Ledger, corpus: Corpus) -> list[str]:
    """Returns the notes that a reader needs to understand the figures."""
    notes = ["All data count, even those of a user that the run left out because of its limits."]
    if "users" not in ledger["columns"]:
        notes.append("The release has no numbers of users, so only its scores are compared.")
    limit = ledger["plan"].get("max_tokens_per_user")
    if limit is not None:
        above = int((corpus.count_by_user(corpus.codes >= 0) > limit).sum())
        notes.append(
            f"Users with more than {limit:,} tokens, of whom the run read a part: {above:,}."
        )
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
    plan, title = ledger["plan"], ledger.get("notes", {}).get("title")
    content = ledger["parts"][0]["name"].split("-")[1]
    folder = os.path.basename(os.path.abspath(ledger_path(release)[: -len(LEDGER_NAME)]))
    data = ", ".join(os.path.basename(path.rstrip("/")) for path in inputs)
    named = f"“{title}”" if title else folder
    budget = f"ε = {plan['epsilon']:g}, δ = {plan['delta']:g}"
    return f"{budget} · data: {data} · release: {named} ({content})"


def _compared(
    ledger: Ledger, release: str, files: Sequence[InputFile], corpus: Corpus, notes: Sequence[str]
) -> dict[str, Any]:
    """Returns the description of release and data that is written beside the figures."""
    return {
        "release": release,
        "program": ledger["program"],
        "plan": ledger["plan"],
        "input": {
            "files": [file.path for file in files],
            "tokenizer": corpus.tokenizer,
            "users": len(corpus.users),
            "documents": int(corpus.document_lengths.size),
            "tokens": corpus.tokens,
            "rejected_records": corpus.rejected,
            "rejected_reasons": dict(corpus.rejected_reasons),
        },
        "notes": list(notes),
    }


def _print(
    evaluating: Evaluating,
    corpus: Corpus,
    coverage: Sequence[Coverage],
    counts: Sequence[CountQuality],
    ledger: Ledger,
) -> None:
    """Prints the notice that the output is not private, and the tables."""
    is_items = ledger["program"] == _ITEMS
    noun = "items" if is_items else "n-grams"
    display.stdout_console().print(Panel(NOTICE, border_style="bold red", style="bold red"))
    display.print_line(
        f"{corpus.tokens:,} tokens in {corpus.document_lengths.size:,} documents of "
        f"{len(corpus.users):,} users"
    )
    rows = coverage[:-1] if is_items else coverage
    # The last row is of all lengths together.
    shown = counts[:-1] if is_items else counts
    _print_coverage(rows, noun)
    levels = [f"k = {each.k:,}" for each in rows[0].k_anonymity]
    display.print_table(
        f"Released share of the {noun} that at least k users have",
        ("length", *levels),
        [(_name(row), *(_percent(each.share) for each in row.k_anonymity)) for row in rows],
    )
    if "users" in ledger["columns"]:
        _print_intervals(shown)
    _print_ranks(shown, noun, evaluating.top_k)


def _print_coverage(rows: Sequence[Coverage], noun: str) -> None:
    """Prints the released rows of each length, and the share of the data that they cover."""
    headings = ("length", "released", "real", "spurious", "spurious ratio")
    shares = ("covered", "missing mass", "user mean", "user median")
    cells = [
        (
            _name(row),
            f"{row.released:,}",
            f"{row.real:,}",
            f"{row.spurious:,}",
            _percent(row.spurious_ratio, 2),
            _percent(row.occurrence_share),
            _percent(row.missing_mass),
            _percent(row.mean_user_share),
            _percent(row.median_user_share),
        )
        for row in rows
    ]
    title = f"Released {noun}, and the share of all occurrences of {noun} that they cover"
    display.print_table(title, (*headings, *shares), cells)


def _print_intervals(rows: Sequence[CountQuality]) -> None:
    """Prints the coverage and the width of intervals, and the errors of estimates."""
    cells = [
        (
            _name(row),
            f"{row.real:,}",
            _percent(row.coverage),
            _percent(row.within_factor_two),
            _percent(row.median_relative_error),
        )
        for row in rows
    ]
    title = "Numbers of users: intervals that contain the true number, and errors of estimates"
    headings = ("length", "real", "covered", "within a factor of 2", "median error")
    display.print_table(title, headings, cells)


def _print_ranks(rows: Sequence[CountQuality], noun: str, top_k: int) -> None:
    """Prints the agreement of the order of the release with that of the data, for each length."""
    cells = [
        (
            _name(row),
            _correlation(row.rank_correlation),
            _part(row.top, row.top_k),
            _correlation(row.score_rank_correlation),
            _part(row.score_top, row.top_k),
            _percent(row.top_missing),
        )
        for row in rows
    ]
    by_users = ("correlation, users", f"top {top_k}, users")
    by_score = ("correlation, score", f"top {top_k}, score")
    display.print_table(
        f"Order of the {noun}, against that by true numbers of users",
        ("length", *by_users, *by_score, f"top {top_k}, missing"),
        cells,
    )


def _correlation(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _part(number: int | None, whole: int | None) -> str:
    return "-" if number is None else f"{number:,} of {whole:,}"


def _name(row: Coverage | CountQuality) -> str:
    return "all" if row.length is None else str(row.length)


def _percent(share: float | None, digits: int = 1) -> str:
    if share is None:
        return "-"
    least = 10.0 ** -(digits + 2)
    return f"<{least:.{digits}%}" if 0 < share < least else f"{share:.{digits}%}"
