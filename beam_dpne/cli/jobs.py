"""A run that publishes a release: its checked parameters, its pipeline, and its steps."""

import dataclasses
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsIter
from apache_beam.runners.runner import PipelineResult

from beam_dpne.cli import display, parameters, runners
from beam_dpne.cli.budgets import check_budget, kept_budget
from beam_dpne.cli.failures import with_cause
from beam_dpne.cli.parsing import Made
from beam_dpne.cli.runners import BeamOptions
from beam_dpne.documents.tokenizers import Tokenizer, resolve_tokenizer
from beam_dpne.elements import progress
from beam_dpne.errors import UsageError
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.reading.files import InputFile, match_inputs
from beam_dpne.reading.formats import codec_of
from beam_dpne.reading.headers import check_fields
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.rejects import (
    NO_RECORDS,
    Tally,
    WriteRejects,
    describe,
    rejected_of,
)
from beam_dpne.reading.transform import ReadDocuments
from beam_dpne.release.publishing import WriteRelease, check_output
from beam_dpne.release.reading import absolute, check_outside, is_local, read_ledger, real_path
from beam_dpne.release.schema import ReleaseNotes
from beam_dpne.storage.access import check_access
from beam_dpne.storage.directories import absolute_path
from beam_dpne.storage.run_files import RunKeyFile
from beam_dpne.validation import about_large_delta

# Engines accept a graph of less than 10 MB, in which data take a third more bytes.
LARGEST_IN_GRAPH = 6 * 2**20
_SECRET = "This line is for the operator only; it is as secret as the data."
_PARTITION_BYTES = 8 * 2**20
_LARGEST_PARTITION_BYTES = 40 * 2**20
_LEAST_PARTITION_BYTES = 2**20
_PARTITIONS_OF_A_THREAD = 4
_COMPRESSION_RATIO = 4
_FEW_PARTITIONS = 4096


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One run, whose parameters are checked.

    Attributes:
      made: the groups of parameters of the command.
      options: the runner and Beam's options.
      plan: the privacy parameters.
      files: the input files, sorted.
      reading: the options with which they are read.
      tokenizer: a tokenizer's name, or a function.
      partitions: the number of parts into which users are divided.
      workers: the number of threads of one worker; None for a graph of many steps.
      run_key: the file that holds the secret of the run; with None the secret is fresh.
    """

    made: Made = dataclasses.field(repr=False)
    options: BeamOptions
    plan: Any
    files: Sequence[InputFile]
    reading: ReadOptions
    tokenizer: str | Tokenizer
    partitions: int
    workers: int | None = None
    run_key: RunKey | None = dataclasses.field(repr=False)

    @property
    def writing(self) -> parameters.Writing:
        """The release as files."""
        return self.made[parameters.Writing]

    @property
    def is_quiet(self) -> bool:
        """Whether no progress is shown."""
        return self.made[parameters.Quiet].quiet

    @property
    def shared_fields(self) -> dict[str, Any]:
        """The fields that the private transforms of all programs have."""
        return {
            "plan": self.plan,
            "tokenizer": self.tokenizer,
            "partitions": self.partitions,
            "workers": self.workers,
            "run_key": self.run_key,
            "described": self.reading.describe([file.path for file in self.files]),
        }


def checked_job(
    made: Made, plan: Any, options: BeamOptions, tokenizer: Tokenizer | None = None
) -> Job:
    """Checks files, directories and access; reads only the heads of the input files.

    Args:
      made: the groups of parameters of the command.
      plan: that of them which has the privacy parameters.
      options: the options of Beam.
      tokenizer: replaces the one that the parameters name.

    Raises:
      UsageError, ValueError, FileNotFoundError: if a parameter is wrong.
    """
    inputs, writing = as_list(made[parameters.Input].input), made[parameters.Writing]
    running, budget = made[parameters.Running], made[parameters.Budgeting].budget
    chosen = tokenizer or tokenizer_name(made)
    resolve_tokenizer(chosen)
    reading = reading_options(made, chosen)
    rejects = made[parameters.Rejecting].rejects
    read = [*inputs, *filter(None, [running.run_key_file])]
    written = filter(None, (writing.output, rejects, options.temp_location, budget))
    check_access(read, list(written), options.pipeline_options)
    run_key = _run_key(running.run_key_file, options)
    workers = running.workers or None
    if running.workers is None and options.embedded:
        workers = min(_usable_cores(), parameters.MOST_WORKERS)
    check_output(writing.output, overwrite=writing.overwrite)
    if budget is not None:
        check_budget(budget, writing.output, options)
    if rejects is not None:
        check_rejects(rejects, writing.output)
    files = match_inputs(inputs, reading.input_format)
    check_fields(files, reading)
    logs_failures = made[parameters.FailureLogging].failure_log is not None
    return Job(
        made=made,
        options=options,
        plan=plan,
        files=files,
        reading=reading,
        tokenizer=with_cause(chosen) if logs_failures else chosen,
        partitions=running.partitions or default_partitions(files, workers),
        workers=workers,
        run_key=run_key,
    )


def release(
    job: Job,
    transform: Callable[[str], beam.PTransform],
    show: Callable[[Mapping[str, Any], str, float], None],
) -> Mapping[str, Any] | None:
    """Runs a job and prints the release; returns its ledger, or None if only a template was written.

    Args:
      job: the job.
      transform: returns the private transform from the run's temporary folder.
      show: prints the release from its ledger, its directory and the seconds that the run took.

    Raises:
      RunError: if it failed; a release is complete only if its ledger is there.
    """
    warn_of_large_delta(job.plan)
    started = time.monotonic()
    output = job.writing.output
    kept = kept_budget(
        job.made[parameters.Budgeting].budget, job.plan, output, job.made[ReleaseNotes].unit
    )
    with kept as expense:
        ledger = _run(job, transform)
        expense.is_released = ledger is not None
    if ledger is not None:
        with display.published(output):
            show(ledger, output, time.monotonic() - started)
    return ledger


def _run(job: Job, transform: Callable[[str], beam.PTransform]) -> Mapping[str, Any] | None:
    """Runs a job; returns the ledger of the release, or None if only a template was written."""
    options = job.options
    pipeline = beam.Pipeline(runner=options.runner, options=options.pipeline_options)
    shown = display.progress_line(
        max_length=getattr(job.plan, "max_length", None),
        input_bytes=sum(file.size for file in job.files),
        quiet=job.is_quiet,
    )
    with runners.run_folder(options, job.writing.output) as folder, shown:
        if not options.embedded:
            progress.enter("engine")
        build(pipeline, job, transform(folder))
        timeout = 0 if options.hands_over else job.made[parameters.Running].harness_timeout
        result = runners.run_pipeline(pipeline, timeout)
    if not runners.has_finished(result):
        return None
    _report_rejects(job, result)
    return read_ledger(job.writing.output)


def build(pipeline: beam.Pipeline, job: Job, private: beam.PTransform) -> None:
    """Connects reading, the private transform and publishing.

    The tally waits for the list of rejects, so that the list exists if the tally fails the run.
    """
    rejecting, writing = job.made[parameters.Rejecting], job.writing
    read = pipeline | "Read" >> ReadDocuments(
        inputs=[file.path for file in job.files],
        shown_inputs=[absolute_path(path) for path in as_list(job.made[parameters.Input].input)],
        strict=rejecting.strict,
        **dataclasses.asdict(job.reading),
    )
    tally = read.tally
    if rejecting.rejects is not None:
        paths = read.rejects | "WriteRejects" >> WriteRejects(path=absolute(rejecting.rejects))
        after = beam.Map(_tally_after, AsIter(paths)).with_output_types(Tally)
        tally = tally | "AfterRejects" >> after
    _ = (
        read.documents
        | private
        | "Publish"
        >> WriteRelease(
            output=absolute(writing.output),
            output_format=writing.output_format,
            notes=job.made[ReleaseNotes],
            overwrite=writing.overwrite,
            tally=tally,
            max_rejected=rejecting.max_rejected,
        )
    )


def _tally_after(tally: Tally, _written: Iterable[str]) -> Tally:
    return tally


def check_in_template(options: BeamOptions, name: str, size: int) -> None:
    """Raises UsageError if public data are too large for the graph of a template.

    The launcher of a template ends before the job, and leaves no file for the workers.
    """
    if options.hands_over and size > LARGEST_IN_GRAPH:
        raise UsageError(
            f"{name} must be at most {LARGEST_IN_GRAPH} bytes with a template, whose graph carries it, "
            f"got {size} bytes; take fewer words, or launch without a template."
        )


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


def as_list(value: str | Sequence[str]) -> list[str]:
    """Returns one text or several as a list."""
    return [value] if isinstance(value, str) else list(value)


def tokenizer_name(made: Made) -> str:
    """Returns the tokenizer of the parameters; its default depends on the format of the input."""
    default = "whitespace" if made[ReadOptions].input_format == "sequences" else "words"
    return made[parameters.Tokenizing].tokenizer or default


def reading_options(made: Made, tokenizer: str | Tokenizer) -> ReadOptions:
    """Returns how files are read for a tokenizer, one of which takes lists of tokens."""
    return dataclasses.replace(made[ReadOptions], text_is_tokens=tokenizer == "tokens")


def warn_of_large_delta(plan: Any) -> None:
    """Warns on stderr, even if it is quiet, of a δ of 0.001 or more, which weakens the guarantee.

    There is no warning if the number of users is public, since a δ above one over that number is
    refused.
    """
    warning = about_large_delta(plan.delta)
    if warning is not None and plan.public_user_count is None:
        display.print_notice(
            f"beam-dpne: warning: {warning}. Take a delta well below one over the number of users; if "
            "their number is public and small, give public_user_count."
        )


def _run_key(path: str | None, options: BeamOptions) -> RunKey | None:
    """Returns the run key that a file holds, or None without a file; the key is fresh then."""
    if path is not None:
        return RunKeyFile.checked(absolute(path), pinned=not options.writes_template)
    if options.is_template:
        raise UsageError(
            "template_location needs run_key_file: a template is run many times, and a fresh key "
            "would be frozen in it."
        )
    return None


def check_rejects(rejects: str, output: str | None) -> None:
    """Raises UsageError unless the directory for rejects is outside releases and can be written.

    Args:
      rejects: the directory.
      output: the directory of the run's release, or None if it is not known.
    """
    check_outside("rejects", rejects, output)
    if not is_local(rejects):
        return
    inner = real_path(rejects)
    while not os.path.lexists(inner):
        inner = os.path.dirname(inner)
    if not (os.path.isdir(inner) and os.access(inner, os.W_OK | os.X_OK)):
        raise UsageError(f"rejects must be a directory that can be written, got rejects={rejects}.")


def _report_rejects(job: Job, result: PipelineResult) -> None:
    """Reports on stderr, for the operator, how many records were left out."""
    if job.is_quiet:
        return
    counters = runners.counters(result)
    if counters.get(NO_RECORDS):
        display.print_notice(
            f"beam-dpne: the input has no records, so nothing can be released. {_SECRET}"
        )
    reasons = rejected_of(counters)
    if reasons:
        rejected = sum(reasons.values())
        directory = job.made[parameters.Rejecting].rejects
        where = f"see {directory}" if directory else "--rejects DIR lists them"
        noun = "record was" if rejected == 1 else "records were"
        display.print_notice(
            f"beam-dpne: {rejected} {noun} rejected ({where}): {describe(reasons)}. {_SECRET}"
        )


def _usable_cores() -> int:
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
