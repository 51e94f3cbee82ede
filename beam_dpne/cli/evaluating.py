"""`beam-dpne evaluate`: comparison of a release with the private data, for the operator."""

import argparse
import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.panel import Panel

from beam_dpne.cli import display
from beam_dpne.cli.evaluation_tables import (
    anonymity_table,
    coverage_table,
    interval_table,
    rank_table,
)
from beam_dpne.cli.options import options_of, with_defaults
from beam_dpne.cli.options_by_command import EVALUATE
from beam_dpne.documents.tokenizers import Tokenizer, resolve_tokenizer, tokenizer_name
from beam_dpne.elements import progress
from beam_dpne.errors import UsageError
from beam_dpne.evaluation.corpus import Corpus, read_corpus
from beam_dpne.evaluation.counts import CountQuality, JudgedRows, qualities, rows_of_table
from beam_dpne.evaluation.coverage import Evaluation, evaluate, released_codes
from beam_dpne.evaluation.index import index_corpus
from beam_dpne.evaluation.plots import (
    budget_text,
    caption_text,
    evaluation_picture,
    names_text,
    require_matplotlib,
)
from beam_dpne.evaluation.reports import (
    check_apart,
    check_writable,
    report_files,
    write_report,
)
from beam_dpne.evaluation.secrecy import NOTICE
from beam_dpne.reading.files import InputFile, match_inputs
from beam_dpne.reading.headers import check_fields
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.rejects import describe
from beam_dpne.release.files import LEDGER_NAME, ledger_path, read_ledger
from beam_dpne.release.reading import read_release
from beam_dpne.storage.access import check_access

_ITEMS = "set-union"
_PROBABILITIES = "bayesian"


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationJob:
    """The checked options of `beam-dpne evaluate`.

    Attributes:
      files: the private input files, sorted.
      reading: the options with which they are read.
      tokenizer: a tokenizer's name, or a function.
      strict: whether the evaluation fails at the first rejected record.
      release: the directory of the release.
      ledger: the ledger of the release.
      k_anonymity: numbers of users, ascending.
      top_k: size of the tops that are compared.
      output: the operator's directory, or None.
      quiet: whether no progress is shown.
    """

    files: Sequence[InputFile]
    reading: ReadOptions
    tokenizer: str | Tokenizer
    strict: bool
    release: str
    ledger: Mapping[str, Any]
    k_anonymity: tuple[int, ...]
    top_k: int
    output: str | None
    quiet: bool

    @property
    def max_length(self) -> int:
        """T of the release, which is 1 for a set union."""
        return 1 if self.is_items else max(each["length"] for each in self.ledger["lengths"])

    @property
    def is_items(self) -> bool:
        """Whether the release is of items, from a set union."""
        return self.ledger["program"] == _ITEMS

    @property
    def noun(self) -> str:
        """Name of the released rows, in the plural."""
        return "items" if self.is_items else "n-grams"

    @property
    def has_counts(self) -> bool:
        """Whether the release has numbers of users."""
        return "users" in self.ledger["columns"]


def run_command(parsed: argparse.Namespace, _beam_arguments: list[str]) -> None:
    """Evaluates a release, prints the tables, and writes the files if `output` is given."""
    job = job_from_options(parsed)
    size = sum(file.size for file in job.files)
    with display.progress_line(max_length=job.max_length, input_bytes=size, quiet=job.quiet):
        corpus, evaluation, counts, rows = run_job(job)
    notes = _notes(job, corpus)
    if job.output is not None:
        compared = _compared(job, corpus, notes)
        picture = evaluation_picture(evaluation, rows, caption=_caption(job), noun=job.noun)
        files = report_files(evaluation, counts, compared, picture)
        write_report(job.output, job.release, files)
    _print(job, corpus, evaluation, counts, notes)


def job_from_options(parsed: argparse.Namespace) -> EvaluationJob:
    """Checks all options; reads the ledger, and only the heads of the input files.

    Raises:
      UsageError, ValueError, FileNotFoundError: if a parameter is wrong.
    """
    values = with_defaults(parsed, options_of(EVALUATE))
    for name in ("input", "release"):
        if not values[name]:
            raise UsageError(f"{name} must be given: --{name} PATH.")
    k_anonymity = _k_anonymity(values["k_anonymity"])
    if values["top_k"] < 1:
        raise UsageError(f"top_k must be at least 1, got top_k={values['top_k']}.")
    output = values["output"]
    check_access([*values["input"], values["release"]], [output] if output else [])
    ledger = read_ledger(values["release"])
    if ledger["program"] == _PROBABILITIES:
        raise UsageError(
            f"release must be of beam-dpne ngrams or set-union, got release={values['release']}, which "
            "has the probabilities of a public vocabulary, and no n-grams that were found in the data."
        )
    if output is not None:
        require_matplotlib()
        check_apart(output, values["release"])
        check_writable(output)
    files = match_inputs(values["input"], values["input_format"])
    tokenizer = _tokenizer(values["tokenizer"], ledger, files)
    resolve_tokenizer(tokenizer)
    names = [field.name for field in dataclasses.fields(ReadOptions)]
    reading = ReadOptions(
        text_is_tokens=tokenizer == "tokens",
        **{name: values[name] for name in names if name in values},
    )
    check_fields(files, reading)
    return EvaluationJob(
        files=files,
        reading=reading,
        tokenizer=tokenizer,
        ledger=ledger,
        k_anonymity=k_anonymity,
        **{name: values[name] for name in ("strict", "release", "top_k", "output", "quiet")},
    )


class _Judged(NamedTuple):
    corpus: Corpus
    evaluation: Evaluation
    counts: tuple[CountQuality, ...]
    rows: Mapping[int, JudgedRows]


def run_job(job: EvaluationJob) -> _Judged:
    """Reads the private data into memory and compares the release with them."""
    progress.reset()
    table = read_release(job.release).table()
    corpus = read_corpus(job.files, job.reading, job.tokenizer, strict=job.strict)
    index = index_corpus(corpus, job.max_length)
    evaluation = evaluate(index, released_codes(corpus, table), k_anonymity=job.k_anonymity)
    rows = rows_of_table(index, table)
    return _Judged(corpus, evaluation, qualities(index, rows, job.top_k), rows)


def _notes(job: EvaluationJob, corpus: Corpus) -> list[str]:
    """Returns the notes that a reader needs to understand the figures."""
    notes = ["All data count, even those of a user that the run left out because of its limits."]
    if not job.has_counts:
        notes.append("The release has no numbers of users, so only its scores are compared.")
    limit = job.ledger["plan"].get("max_tokens_per_user")
    if limit is not None:
        above = int((corpus.occurrences(1) > limit).sum())
        notes.append(
            f"Users with more than {limit:,} tokens, of whom the run read a part: {above:,}."
        )
    if corpus.rejected:
        reasons = describe(corpus.rejected_reasons)
        notes.append(f"Records that could not be used: {corpus.rejected:,} ({reasons}).")
    if corpus.tokenizer != job.ledger["tokenizer"]:
        notes.append(
            f"The tokenizer is {corpus.tokenizer} and the release's was {job.ledger['tokenizer']}, so "
            "n-grams that look spurious may be real."
        )
    return notes


def _caption(job: EvaluationJob) -> str:
    """Returns the caption of the pictures, which names files without their folders."""
    plan = job.ledger["plan"]
    title = job.ledger.get("notes", {}).get("title")
    content = job.ledger["parts"][0]["name"].split("-")[1]
    folder = ledger_path(job.release)[: -len(LEDGER_NAME)]
    named = f"“{title}”" if title else names_text([folder or os.getcwd()])
    return caption_text(
        budget_text([plan["epsilon"]], [plan["delta"]]),
        names_text([file.path for file in job.files]),
        f"{named} ({content})",
    )


def _k_anonymity(value: int | Sequence[int]) -> tuple[int, ...]:
    values = (value,) if isinstance(value, int) else tuple(value)
    if min(values) < 1:
        raise UsageError(f"k_anonymity must be numbers of at least 1, got {min(values)}.")
    return tuple(sorted(set(values)))


def _tokenizer(
    name: str | None, ledger: Mapping[str, Any], files: Sequence[InputFile]
) -> str | Tokenizer:
    """Returns the tokenizer that the options name, or else the one of the release.

    The tokenizer of the MSNBC program needs the names in the header of the file.
    """
    from beam_dpne.cli.msnbc import CategoryNames, category_names

    if name is None and ledger["tokenizer"] == tokenizer_name(CategoryNames):
        return CategoryNames(category_names(files[-1].path))
    return name or ledger["tokenizer"]


def _compared(job: EvaluationJob, corpus: Corpus, notes: Sequence[str]) -> dict[str, Any]:
    """Returns the description of release and data that is written beside the figures."""
    return {
        "release": job.release,
        "program": job.ledger["program"],
        "plan": job.ledger["plan"],
        "input": {
            "files": [file.path for file in job.files],
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
    job: EvaluationJob,
    corpus: Corpus,
    evaluation: Evaluation,
    counts: Sequence[CountQuality],
    notes: Sequence[str],
) -> None:
    """Prints the notice that the output is not private, the tables and the notes on stdout."""
    console = display.stdout_console()
    console.print(Panel(NOTICE, border_style="bold red", style="bold red"))
    console.print(
        f"{corpus.tokens:,} tokens in {corpus.document_lengths.size:,} documents of "
        f"{len(corpus.users):,} users"
    )
    rows = evaluation.lengths if job.is_items else evaluation.rows
    console.print(coverage_table(rows, job.noun))
    console.print(anonymity_table(rows, job.noun))
    # The last row is of all lengths together.
    shown = counts[:-1] if job.is_items else counts
    if job.has_counts:
        console.print(interval_table(shown))
    console.print(rank_table(shown, job.noun, job.top_k, has_counts=job.has_counts))
    for note in notes:
        console.print(f"· {note}", soft_wrap=True)
    if job.output is not None:
        console.print(f"Files, not private either: {job.output}", soft_wrap=True)
