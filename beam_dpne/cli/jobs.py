"""The programs that publish a release: check options, read, run, publish, report.

They have one shape. What sets one apart is a value of `Program`; the three are in `programs`.
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

from beam_dpne import reading as io
from beam_dpne.cli import display, run_folders, watching
from beam_dpne.cli.beam_options import BeamOptions, beam_options
from beam_dpne.cli.failure_log import with_cause
from beam_dpne.cli.options import Table, with_defaults
from beam_dpne.cli.plans import SpendsDelta, warn_of_large_delta
from beam_dpne.documents import tokenizers
from beam_dpne.elements import progress
from beam_dpne.errors import UsageError
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.reading.options import InputDescription, codec_of
from beam_dpne.reading.rejects import (
    DEFAULT_MAX_REJECTED,
    NO_RECORDS,
    Tally,
    check_max_rejected,
    describe,
    rejected_of,
)
from beam_dpne.release.ledger import read_ledger
from beam_dpne.release.paths import absolute, has_ledger, is_inside, is_local, real_path
from beam_dpne.release.publishing import PublishRelease, check_output
from beam_dpne.release.release_notes import NO_NOTES, ReleaseNotes
from beam_dpne.storage.access import check_access
from beam_dpne.storage.run_files import Markers, RunKeyFile, make_marker

# A graph that an engine takes has less than 10 MB, and data in it are a third larger.
LARGEST_IN_GRAPH = 6 * 2**20
_PARTITION_BYTES = 8 * 2**20
_LARGEST_PARTITION_BYTES = 40 * 2**20
_COMPRESSION_RATIO = 4
_FEW_PARTITIONS = 4096
_UNCHANGED = ("strict", "rejects", "max_rejected", "output", "output_format", "overwrite")
_UNCHANGED += ("harness_timeout", "quiet", "side_input_limit", "arpa")
_READ_OPTIONS = ("input_format", "user_field", "text_field", "encoding", "delimiter", "quoting")
_READ_OPTIONS += ("columns", "max_record_bytes")
_NOTES = tuple(field.name for field in dataclasses.fields(ReleaseNotes))


_Plan = TypeVar("_Plan", bound=SpendsDelta)
_Public = TypeVar("_Public")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program(Generic[_Plan, _Public]):
    """What sets one program that publishes a release apart from the others.

    Attributes:
      table: its options.
      plan: returns the privacy parameters from the parsed options, or raises UsageError.
      public: returns the public data that the run needs, or None; called with the parsed options,
        the job without those data, and Beam's options.
      transform: returns the private transform of a job; called with the run's temporary folder, too.
      show: prints the release from its ledger, the directory and the seconds that the run took.
      max_length: returns T of a plan, for the progress; None for programs that have no lengths.
      finish: does what follows a complete release.
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
    """Everything that a program was asked to do, checked.

    Attributes:
      program: which one.
      plan: the privacy parameters.
      public: the public data of the run, if any: words, or counts of n-grams.
      files: input files, sorted.
      reading: the options with which they are read.
      tokenizer: a tokenizer's name, or a function.
      strict: fail at the first reject.
      rejects: the operator's directory for rejects, or None.
      max_rejected: largest share of rejected records that a run survives.
      output: directory of the release.
      output_format: of its files.
      overwrite: replace a release that is there.
      notes: the operator's notes on the release.
      partitions: number of parts of the users.
      run_key: secret of the run, or the file that holds it if one was given.
      harness_timeout: seconds in which an engine's workers must start; 0 means no limit.
      quiet: no progress.
      side_input_limit: size in bytes of a set above which it reaches the workers as a file.
      hands_over: whether the launcher ends before the job runs, and leaves no file of its own.
      arpa: file for a language model, if the program makes one and it is wanted.
    """

    program: Program[_Plan, _Public]
    plan: _Plan
    public: _Public | None = dataclasses.field(default=None, repr=False)
    files: Sequence[io.InputFile]
    reading: io.ReadOptions
    tokenizer: str | tokenizers.Tokenizer
    strict: bool
    rejects: str | None
    max_rejected: float = DEFAULT_MAX_REJECTED
    output: str
    output_format: str
    overwrite: bool
    notes: ReleaseNotes = NO_NOTES
    partitions: int
    run_key: RunKey = dataclasses.field(repr=False)
    harness_timeout: int
    quiet: bool
    side_input_limit: int = LARGEST_IN_GRAPH
    hands_over: bool = False
    arpa: str | None = None

    @property
    def run_key_given(self) -> bool:
        """Whether the run key is in a file, instead of fresh."""
        return isinstance(self.run_key, RunKeyFile)

    @property
    def described(self) -> InputDescription:
        """The way in which records become documents, in public words."""
        return self.reading.describe([file.path for file in self.files])

    @property
    def input_bytes(self) -> int:
        """Size of the input files as they are stored."""
        return sum(file.size for file in self.files)


def run_command(
    program: Program[_Plan, _Public], given: argparse.Namespace, beam_arguments: Sequence[str]
) -> None:
    """Runs a program and prints the release."""
    options = beam_options(beam_arguments)
    release(job_from_options(program, given, options), options)


def release(job: Job[_Plan, _Public], options: BeamOptions) -> Mapping[str, Any] | None:
    """Runs a job and prints the release; returns its ledger, None if only a template was made.

    Raises:
      RunError: if it failed; nothing has been published then.
    """
    warn_of_large_delta(job.plan)
    started = time.monotonic()
    ledger = run_job(job, options)
    if ledger is not None:
        with display.published(job.output):
            job.program.show(ledger, job.output, time.monotonic() - started)
        job.program.finish(job)
    return ledger


def job_from_options(
    program: Program[_Plan, _Public],
    given: argparse.Namespace,
    options: BeamOptions,
    tokenizer: tokenizers.Tokenizer | None = None,
) -> Job[_Plan, _Public]:
    """Checks all options; reads public data, and no more than the heads of the input files.

    Args:
      program: whose options they are.
      given: parsed options.
      options: where the job will run.
      tokenizer: instead of the option.

    Raises:
      UsageError, ValueError, FileNotFoundError: if a parameter is wrong.
    """
    plan = program.plan(given)
    settings = _settings(program.table, given, options, tokenizer)
    job = Job(program=program, plan=plan, **settings)
    return dataclasses.replace(job, public=program.public(given, job, options))


def _settings(
    table: Table,
    given: argparse.Namespace,
    options: BeamOptions,
    tokenizer: tokenizers.Tokenizer | None,
) -> dict[str, Any]:
    """Checks the options that all programs share, and returns the fields of `Job`."""
    values = with_defaults(given, [*table["reading"], *table["writing"], *table["running"]])
    for name in ("input", "output"):
        if not values[name]:
            raise UsageError(f"{name} must be given: --{name} PATH.")
    notes = ReleaseNotes(**{name: values[name] for name in _NOTES})
    check_max_rejected(values["max_rejected"])
    chosen = tokenizer or _tokenizer_name(given, values)
    tokenizers.resolve_tokenizer(chosen)
    reading = io.ReadOptions(
        **{name: values[name] for name in _READ_OPTIONS}, text_is_tokens=chosen == "tokens"
    )
    _check_access(values, options)
    run_key = _run_key(values["run_key_file"], options)
    for name, least in (("side_input_limit", 1), ("partitions", 1), ("harness_timeout", 0)):
        _require_at_least(least, name, values.get(name))
    check_output(values["output"], overwrite=values["overwrite"])
    if values["rejects"] is not None:
        _check_rejects(values["rejects"], values["output"])
    files = io.match_inputs(values["input"], values["input_format"])
    io.check_fields(files, reading)
    return {
        "files": files,
        "reading": reading,
        "notes": notes,
        "tokenizer": with_cause(chosen) if values["failure_log"] else chosen,
        "partitions": values["partitions"] or default_partitions(files),
        "run_key": run_key,
        "hands_over": options.hands_over,
        **{name: values[name] for name in _UNCHANGED if name in values},
    }


def _require_at_least(least: int, name: str, value: int | None) -> None:
    """Raises UsageError if an option was given and is too small."""
    if value is not None and value < least:
        raise UsageError(f"{name} must be at least {least}, got {name}={value}.")


def run_job(job: Job[Any, Any], options: BeamOptions) -> Mapping[str, Any] | None:
    """Runs the job; returns the ledger of the release, None if only a template was made.

    Args:
      job: the run.
      options: the options of Beam.

    Raises:
      RunError: if it failed; nothing has been published then.
    """
    pipeline = beam.Pipeline(runner=options.runner, options=options.pipeline_options)
    shown = display.progress_line(
        max_length=job.program.max_length(job.plan), input_bytes=job.input_bytes, quiet=job.quiet
    )
    tidied = io.tidied(job.rejects) if job.rejects else contextlib.nullcontext()
    temporary = run_folders.run_folder(*_run_folder(job, options), embedded=options.embedded)
    with temporary as folder, tidied, shown:
        canary = None
        if options.can_hang:
            canary = watching.Canary(marks=Markers(folder), timeout=job.harness_timeout)
            make_marker(canary.marks.wanted)
            progress.enter("engine")
        build(pipeline, job, folder, canary)
        result = watching.run_pipeline(pipeline, canary)
    if not watching.has_finished(result):
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


def _run_folder(job: Job[Any, Any], options: BeamOptions) -> tuple[str, str]:
    """Returns the directory of the run's temporary folder, and the folder's name."""
    output = absolute(job.output).rstrip("/")
    # There is no directory beside a bucket.
    beside = output if re.fullmatch(r"\w+://[^/]+", output) else os.path.dirname(output)
    parent = tempfile.gettempdir() if options.embedded else beside
    return options.temp_location or parent, f"{run_folders.PREFIX}{uuid.uuid4().hex}"


def build(
    pipeline: beam.Pipeline, job: Job[Any, Any], folder: str, canary: watching.Canary | None = None
) -> None:
    """Wires reading, the private transform and publishing.

    Args:
      pipeline: an empty one.
      job: the run.
      folder: the run's temporary folder.
      canary: the markers that the first step leaves for the launcher, or None.
    """
    read = _read_documents(pipeline, job, canary)
    released = read.documents | job.program.transform(job, folder)
    _ = released | "Publish" >> PublishRelease(
        plan=job.plan,
        output=absolute(job.output),
        output_format=job.output_format,
        tokenizer=job.tokenizer,
        run_key_given=job.run_key_given,
        described=job.described,
        notes=job.notes,
        overwrite=job.overwrite,
        permit=canary and canary.marks.require_wanted,
        tally=read.tally,
        max_rejected=job.max_rejected,
    )


def _read_documents(
    pipeline: beam.Pipeline, job: Job[Any, Any], canary: watching.Canary | None
) -> io.ReadResult:
    """Wires the reading of the input, and the operator's list of rejected records.

    The tally comes after the list of rejects, so that a run that fails by the tally has written it.
    """
    read = pipeline | "Read" >> io.ReadDocuments(
        inputs=[file.path for file in job.files],
        strict=job.strict,
        on_start=canary and canary.marks.report_start,
        **dataclasses.asdict(job.reading),
    )
    if job.rejects is None:
        return read
    paths = read.rejects | "WriteRejects" >> io.WriteRejects(path=absolute(job.rejects))
    after = beam.Map(_tally_after, AsIter(paths)).with_output_types(Tally)
    return read._replace(tally=read.tally | "AfterRejects" >> after)


def _tally_after(tally: Tally, _written: Iterable[str]) -> Tally:
    return tally


def default_partitions(files: Sequence[io.InputFile]) -> int:
    """Returns a number of partitions such that each holds about 8 MiB of text, of a huge corpus 40.

    A reader cuts its documents into that many blocks, so that more than some thousands are slow.
    """
    text = sum(file.size * (_COMPRESSION_RATIO if codec_of(file.path) else 1) for file in files)
    wanted = min(_FEW_PARTITIONS, math.ceil(text / _PARTITION_BYTES))
    return max(1, wanted, math.ceil(text / _LARGEST_PARTITION_BYTES))


def _tokenizer_name(given: argparse.Namespace, values: Mapping[str, Any]) -> str:
    """Returns the tokenizer of the options; its default depends on the format of the input."""
    if given.tokenizer is None and values["input_format"] == "sequences":
        return "whitespace"
    return values["tokenizer"]


def _run_key(path: str | None, options: BeamOptions) -> RunKey:
    """Returns the key of the run: the one in a file, or a fresh one."""
    if path is None:
        if options.is_template:
            raise UsageError(
                "template_location needs --run_key_file: a template is run many times, and a fresh "
                "key would be frozen in it."
            )
        return RunKey.generate()
    return RunKeyFile.checked(absolute(path), pinned=not options.writes_template)


def _check_access(values: Mapping[str, Any], options: BeamOptions) -> None:
    """Raises if remote paths cannot be used; Beam would first search long for credentials."""
    written = (values["output"], values["rejects"], options.temp_location)
    reading = [*values["input"], *filter(None, [values["run_key_file"]])]
    check_access(reading, list(filter(None, written)), options.pipeline_options)


def _check_rejects(rejects: str, output: str) -> None:
    """Raises UsageError unless the directory for rejects is in no release and can be written."""
    if not rejects:
        raise UsageError("rejects must be the path of a directory, got rejects=''.")
    inner = real_path(rejects)
    if is_inside(rejects, output):
        raise UsageError(
            f"rejects must be outside the directory of the release, got rejects={rejects}: they "
            "are as private as the data."
        )
    if has_ledger(inner):
        raise UsageError(
            f"rejects must be outside every release, got rejects={rejects}, which has a ledger.json: "
            "they are as private as the data."
        )
    if not is_local(rejects):
        return
    while not os.path.lexists(inner):
        inner = os.path.dirname(inner)
    if not (os.path.isdir(inner) and os.access(inner, os.W_OK | os.X_OK)):
        raise UsageError(f"rejects must be a directory that can be written, got rejects={rejects}.")


def _report_rejects(job: Job[Any, Any], result: PipelineResult) -> None:
    """Reports on stderr, for the operator, how many records were left out."""
    counters = watching.counters(result)
    reasons = rejected_of(counters)
    if counters.get(NO_RECORDS) and not job.quiet:
        display.print_notice(
            "beam-dpne: the input has no records, so nothing can be released. For the operator; as "
            "secret as the data."
        )
    if not reasons or job.quiet:
        return
    rejected = sum(reasons.values())
    where = f"see {job.rejects}" if job.rejects else "--rejects DIR lists them"
    noun = "record was" if rejected == 1 else "records were"
    display.print_notice(
        f"beam-dpne: {rejected} {noun} rejected ({where}): {describe(reasons)}. For the operator; as "
        "secret as the data."
    )
