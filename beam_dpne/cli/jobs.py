"""The steps of a job that publishes a release, in their order, for all three programs.

`job_from_options` checks all options. `release` runs the job and prints the release: `run_job` makes
the temporary folder, builds the pipeline (`build`: read, transform, publish), runs it and reports
rejected records. The differences between programs are values of `Program`, which are in `programs`.
"""

import argparse
import contextlib
import dataclasses
import math
import os
import re
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import apache_beam as beam
from apache_beam.pvalue import AsIter
from apache_beam.runners.runner import PipelineResult

from beam_dpne.cli import display, run_folders, runners
from beam_dpne.cli.budgets import check_budget, kept_budget
from beam_dpne.cli.failures import check_outside_releases, with_cause
from beam_dpne.cli.options import Table, with_defaults
from beam_dpne.cli.plan_checks import SpendsDelta, warn_of_large_delta
from beam_dpne.cli.runners import BeamOptions
from beam_dpne.cli.running import check_running
from beam_dpne.documents.tokenizers import Tokenizer, resolve_tokenizer
from beam_dpne.elements import progress
from beam_dpne.elements.threads import MOST_WORKERS, usable_cores
from beam_dpne.errors import UsageError
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.reading.files import InputFile, match_inputs
from beam_dpne.reading.headers import check_fields
from beam_dpne.reading.options import InputDescription, ReadOptions, codec_of
from beam_dpne.reading.rejects import (
    DEFAULT_MAX_REJECTED,
    NO_RECORDS,
    Tally,
    WriteRejects,
    check_max_rejected,
    describe,
    rejected_of,
    tidied,
)
from beam_dpne.reading.transform import ReadDocuments, ReadResult
from beam_dpne.release.files import absolute, is_local, read_ledger, real_path
from beam_dpne.release.notes import NO_NOTES, ReleaseNotes
from beam_dpne.release.publishing import WriteRelease, check_output
from beam_dpne.storage.access import check_access
from beam_dpne.storage.lineage import absolute_path
from beam_dpne.storage.run_files import Markers, RunKeyFile, make_marker

# Engines accept a graph of less than 10 MB, in which data take a third more bytes.
LARGEST_IN_GRAPH = 6 * 2**20
_SECRET = "This line is for the operator only; it is as secret as the data."
_PARTITION_BYTES = 8 * 2**20
_LARGEST_PARTITION_BYTES = 40 * 2**20
_LEAST_PARTITION_BYTES = 2**20
_PARTITIONS_OF_A_THREAD = 4
_COMPRESSION_RATIO = 4
_FEW_PARTITIONS = 4096
# Options that are fields of `Job`, or else of `ReadOptions`, under the same names.
_JOB_OPTIONS = (
    *("strict", "rejects", "max_rejected", "output", "output_format", "overwrite"),
    *("harness_timeout", "quiet", "side_input_limit", "arpa", "budget"),
)
_READ_OPTIONS = (
    *("input_format", "user_field", "text_field", "encoding", "delimiter", "quoting"),
    *("columns", "max_record_bytes"),
)
_NOTES = tuple(field.name for field in dataclasses.fields(ReleaseNotes))

_Plan = TypeVar("_Plan", bound=SpendsDelta)
_Public = TypeVar("_Public")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program(Generic[_Plan, _Public]):
    """The parts of a program that publishes a release, as far as programs differ.

    Attributes:
      table: its options.
      plan: returns the privacy parameters from the parsed options, or raises UsageError.
      public: returns the public data that the run needs, or None, from the parsed options, the job
        without those data, and the options of Beam.
      transform: returns the private transform from the job and the run's temporary folder.
      show: prints the release from its ledger, its directory and the seconds that the run took.
      max_length: returns T of a plan, for the progress line, or None if the program has no lengths.
      finish: runs after a complete release.
    """

    table: Table
    plan: Callable[[argparse.Namespace], _Plan]
    public: "Callable[[argparse.Namespace, Job[_Plan, _Public], BeamOptions], _Public | None]"
    transform: "Callable[[Job[_Plan, _Public], str], beam.PTransform]"
    show: Callable[[Mapping[str, Any], str, float], None]
    max_length: Callable[[_Plan], int | None] = lambda _: None
    finish: "Callable[[Job[_Plan, _Public]], None]" = lambda _: None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job(Generic[_Plan, _Public]):
    """The checked options of one run.

    Attributes:
      program: the program that runs.
      plan: the privacy parameters.
      public: the public data of the run, if any: words, or counts of n-grams.
      public_path: the path of the public counts, or None.
      files: the input files, sorted.
      inputs: the input as the operator named it (paths, globs, folders), for lineage and display data.
      reading: the options with which they are read.
      tokenizer: a tokenizer's name, or a function.
      strict: whether the run fails at the first rejected record.
      rejects: the operator's directory for rejected records, or None.
      max_rejected: the largest share of rejected records at which a run still publishes.
      output: the directory of the release.
      output_format: the format of its files.
      overwrite: whether a release in that directory is replaced.
      notes: the operator's notes on the release.
      partitions: the number of parts into which users are divided.
      workers: the number of threads of one worker; None for a graph of many steps.
      run_key: the file that holds the secret of the run; with None the secret is fresh.
      harness_timeout: seconds in which an engine's workers must start; 0 means no limit.
      quiet: whether no progress is shown.
      side_input_limit: size in bytes of a set above which it reaches the workers as a file.
      hands_over: whether the launcher ends before the job runs, and can write no files for workers.
      arpa: the file for a language model, or None.
      budget: the folder with the budget of the population, or None.
    """

    program: Program[_Plan, _Public]
    plan: _Plan
    public: _Public | None = dataclasses.field(default=None, repr=False)
    public_path: str | None = None
    files: Sequence[InputFile]
    inputs: Sequence[str] = ()
    reading: ReadOptions
    tokenizer: str | Tokenizer
    strict: bool
    rejects: str | None
    max_rejected: float = DEFAULT_MAX_REJECTED
    output: str
    output_format: str
    overwrite: bool
    notes: ReleaseNotes = NO_NOTES
    partitions: int
    workers: int | None = None
    run_key: RunKey | None = dataclasses.field(repr=False)
    harness_timeout: int
    quiet: bool
    side_input_limit: int = LARGEST_IN_GRAPH
    hands_over: bool = False
    arpa: str | None = None
    budget: str | None = None

    @property
    def described(self) -> InputDescription:
        """The public description of how records become documents, for ledger and run key."""
        return self.reading.describe([file.path for file in self.files])

    @property
    def shared_fields(self) -> dict[str, Any]:
        """The fields that the private transforms of all programs have."""
        return {
            "plan": self.plan,
            "tokenizer": self.tokenizer,
            "partitions": self.partitions,
            "workers": self.workers,
            "run_key": self.run_key,
            "described": self.described,
        }

    @property
    def input_bytes(self) -> int:
        """Size in bytes of the input files as they are stored."""
        return sum(file.size for file in self.files)


def release(job: Job[_Plan, _Public], options: BeamOptions) -> Mapping[str, Any] | None:
    """Runs a job and prints the release; returns its ledger, or None if only a template was written.

    Raises:
      RunError: if it failed; a release is complete only if its ledger is there.
    """
    warn_of_large_delta(job.plan)
    started = time.monotonic()
    with kept_budget(job) as outcome:
        ledger = run_job(job, options)
        outcome.is_released = ledger is not None
    if ledger is not None:
        with display.published(job.output):
            job.program.show(ledger, job.output, time.monotonic() - started)
        job.program.finish(job)
    return ledger


def job_from_options(
    program: Program[_Plan, _Public],
    parsed: argparse.Namespace,
    options: BeamOptions,
    tokenizer: Tokenizer | None = None,
) -> Job[_Plan, _Public]:
    """Checks all options; reads the public data, and only the heads of the input files.

    Args:
      program: the program that the options belong to.
      parsed: the parsed options.
      options: the options of Beam.
      tokenizer: replaces the one that the options name.

    Raises:
      UsageError, ValueError, FileNotFoundError: if a parameter is wrong.
    """
    plan = program.plan(parsed)
    settings = _settings(program.table, parsed, options, tokenizer)
    job = Job(program=program, plan=plan, **settings)
    return dataclasses.replace(job, public=program.public(parsed, job, options))


def _settings(
    table: Table,
    parsed: argparse.Namespace,
    options: BeamOptions,
    tokenizer: Tokenizer | None,
) -> dict[str, Any]:
    """Checks the options that all programs share, and returns the fields of `Job`."""
    check_running(parsed)
    values = with_defaults(parsed, [*table["reading"], *table["writing"], *table["running"]])
    notes = ReleaseNotes(**{name: values[name] for name in _NOTES})
    check_max_rejected(values["max_rejected"])
    chosen = tokenizer or _tokenizer_name(parsed, values)
    resolve_tokenizer(chosen)
    read_options = ReadOptions(
        **{name: values[name] for name in _READ_OPTIONS}, text_is_tokens=chosen == "tokens"
    )
    _check_access(values, options)
    run_key = _run_key(values["run_key_file"], options)
    workers = worker_threads(values["workers"], options)
    check_output(values["output"], overwrite=values["overwrite"])
    if values["budget"] is not None:
        check_budget(values["budget"], values["output"], options)
    if values["rejects"] is not None:
        check_rejects(values["rejects"], values["output"])
    files = match_inputs(values["input"], values["input_format"])
    check_fields(files, read_options)
    return {
        "files": files,
        "inputs": [absolute_path(pattern) for pattern in values["input"]],
        "reading": read_options,
        "notes": notes,
        "tokenizer": with_cause(chosen) if values["failure_log"] else chosen,
        "partitions": values["partitions"] or default_partitions(files, workers),
        "workers": workers,
        "run_key": run_key,
        "hands_over": options.hands_over,
        "public_path": values.get("public"),
        **{name: values[name] for name in _JOB_OPTIONS if name in values},
    }


def run_job(job: Job[Any, Any], options: BeamOptions) -> Mapping[str, Any] | None:
    """Runs a job; returns the ledger of the release, or None if only a template was written.

    Raises:
      RunError: if it failed; a release is complete only if its ledger is there.
    """
    pipeline = beam.Pipeline(runner=options.runner, options=options.pipeline_options)
    shown = display.progress_line(
        max_length=job.program.max_length(job.plan), input_bytes=job.input_bytes, quiet=job.quiet
    )
    tidy_rejects = tidied(job.rejects) if job.rejects else contextlib.nullcontext()
    temporary = run_folders.run_folder(*run_folder_of(job, options), embedded=options.embedded)
    with temporary as folder, tidy_rejects, shown:
        canary = None
        if options.can_hang:
            canary = runners.Canary(marks=Markers(folder), timeout=job.harness_timeout)
            make_marker(canary.marks.wanted)
            progress.enter("engine")
        build(pipeline, job, folder, canary)
        result = runners.run_pipeline(pipeline, canary)
    if not runners.has_finished(result):
        return None
    _report_rejects(job, result)
    return read_ledger(job.output)


def check_in_template(job: Job[Any, Any], name: str, size: int) -> None:
    """Raises UsageError if public data are too large for the graph of a template.

    The launcher of a template ends before the job, and leaves no file for the workers.
    """
    if job.hands_over and size > LARGEST_IN_GRAPH:
        raise UsageError(
            f"{name} must be at most {LARGEST_IN_GRAPH} bytes with a template, whose graph carries it, "
            f"got {size} bytes; take fewer words, or launch without a template."
        )


def run_folder_of(job: Job[Any, Any], options: BeamOptions) -> tuple[str, str]:
    """Returns the parent directory and the name of the run's temporary folder."""
    output = absolute(job.output).rstrip("/")
    # There is no directory beside a bucket.
    beside = output if re.fullmatch(r"\w+://[^/]+", output) else os.path.dirname(output)
    parent = tempfile.gettempdir() if options.embedded else beside
    return options.temp_location or parent, f"{run_folders.PREFIX}{uuid.uuid4().hex}"


def build(
    pipeline: beam.Pipeline, job: Job[Any, Any], folder: str, canary: runners.Canary | None = None
) -> None:
    """Connects reading, the private transform and publishing.

    Args:
      pipeline: an empty pipeline.
      job: the job that it will do.
      folder: the run's temporary folder.
      canary: the markers by which the first step reports its start, or None if none is needed.
    """
    read = _read_documents(pipeline, job, canary)
    released = read.documents | job.program.transform(job, folder)
    _ = released | "Publish" >> WriteRelease(
        output=absolute(job.output),
        output_format=job.output_format,
        notes=job.notes,
        overwrite=job.overwrite,
        permit=canary and canary.marks.require_wanted,
        tally=read.tally,
        max_rejected=job.max_rejected,
    )


def _read_documents(
    pipeline: beam.Pipeline, job: Job[Any, Any], canary: runners.Canary | None
) -> ReadResult:
    """Connects the reading of the input, and the operator's list of rejected records.

    The tally waits for the list of rejects, so that the list exists if the tally fails the run.
    """
    read = pipeline | "Read" >> ReadDocuments(
        inputs=[file.path for file in job.files],
        shown_inputs=job.inputs,
        strict=job.strict,
        on_start=canary and canary.marks.report_start,
        **dataclasses.asdict(job.reading),
    )
    if job.rejects is None:
        return read
    paths = read.rejects | "WriteRejects" >> WriteRejects(path=absolute(job.rejects))
    after = beam.Map(_tally_after, AsIter(paths)).with_output_types(Tally)
    return read._replace(tally=read.tally | "AfterRejects" >> after)


def _tally_after(tally: Tally, _written: Iterable[str]) -> Tally:
    return tally


def default_partitions(files: Sequence[InputFile], workers: int | None = None) -> int:
    """Returns a number of partitions that each hold about 8 MiB of text, or 40 MiB of a huge corpus.

    A reader cuts its documents into that many blocks, so more than a few thousand are slow. Each thread
    has a few partitions, so that all threads have work to the end.
    """
    text = sum(file.size * (_COMPRESSION_RATIO if codec_of(file.path) else 1) for file in files)
    wanted = min(_FEW_PARTITIONS, math.ceil(text / _PARTITION_BYTES))
    of_threads = min(
        _PARTITIONS_OF_A_THREAD * (workers or 0), math.ceil(text / _LEAST_PARTITION_BYTES)
    )
    return max(1, wanted, of_threads, math.ceil(text / _LARGEST_PARTITION_BYTES))


def worker_threads(value: int | None, options: BeamOptions) -> int | None:
    """Returns the number of threads of a run in one step, or None for the graph of many steps.

    The embedded runner has one worker anyway. On an engine the graph is the default, since a corpus
    need not fit into the memory of one of its workers.
    """
    if value is None and options.embedded:
        return min(usable_cores(), MOST_WORKERS)
    return value or None


def _tokenizer_name(parsed: argparse.Namespace, values: Mapping[str, Any]) -> str:
    """Returns the tokenizer of the options; its default depends on the format of the input."""
    if parsed.tokenizer is None and values["input_format"] == "sequences":
        return "whitespace"
    return values["tokenizer"]


def _run_key(path: str | None, options: BeamOptions) -> RunKey | None:
    """Returns the run key that a file holds, or None without a file; the key is fresh then."""
    if path is None:
        if options.is_template:
            raise UsageError(
                "template_location needs --run_key_file: a template is run many times, and a fresh "
                "key would be frozen in it."
            )
        return None
    return RunKeyFile.checked(absolute(path), pinned=not options.writes_template)


def _check_access(values: Mapping[str, Any], options: BeamOptions) -> None:
    """Raises AccessError early if remote paths are unusable; Beam would search for long."""
    written = (values["output"], values["rejects"], options.temp_location, values["budget"])
    read = [*values["input"], *filter(None, [values["run_key_file"]])]
    check_access(read, list(filter(None, written)), options.pipeline_options)


def check_rejects(rejects: str, output: str | None) -> None:
    """Raises UsageError unless the directory for rejects is outside releases and can be written.

    Args:
      rejects: the directory.
      output: the directory of the run's release, or None if it is not known.
    """
    if not rejects:
        raise UsageError("rejects must be the path of a directory, got rejects=''.")
    check_outside_releases("rejects", rejects, output)
    if not is_local(rejects):
        return
    inner = real_path(rejects)
    while not os.path.lexists(inner):
        inner = os.path.dirname(inner)
    if not (os.path.isdir(inner) and os.access(inner, os.W_OK | os.X_OK)):
        raise UsageError(f"rejects must be a directory that can be written, got rejects={rejects}.")


def _report_rejects(job: Job[Any, Any], result: PipelineResult) -> None:
    """Reports on stderr, for the operator, how many records were left out."""
    if job.quiet:
        return
    counters = runners.counters(result)
    if counters.get(NO_RECORDS):
        display.print_notice(
            f"beam-dpne: the input has no records, so nothing can be released. {_SECRET}"
        )
    reasons = rejected_of(counters)
    if reasons:
        rejected = sum(reasons.values())
        where = f"see {job.rejects}" if job.rejects else "--rejects DIR lists them"
        noun = "record was" if rejected == 1 else "records were"
        display.print_notice(
            f"beam-dpne: {rejected} {noun} rejected ({where}): {describe(reasons)}. {_SECRET}"
        )
