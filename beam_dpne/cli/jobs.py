"""What all programs that publish a release do: check options, read, run, publish, report."""

import argparse
import contextlib
import dataclasses
import math
import os
import re
import tempfile
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import AsIter
from apache_beam.runners.runner import PipelineResult

from beam_dpne import reading as io
from beam_dpne.cli import display, launching, run_folders, running
from beam_dpne.cli.options import READING, WRITING, with_defaults
from beam_dpne.cli.set_union_options import ITEMS_RUNNING
from beam_dpne.cli.told_tokenizer import with_cause
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
from beam_dpne.release.publishing import check_output
from beam_dpne.release.release_notes import NO_NOTES, ReleaseNotes
from beam_dpne.storage.access import check_access
from beam_dpne.storage.markers import Markers, make_marker
from beam_dpne.storage.run_key_file import RunKeyFile

# A graph that an engine takes has less than 10 MB, and data in it are a third larger.
LARGEST_IN_GRAPH = 6 * 2**20
_PARTITION_BYTES = 8 * 2**20
_LARGEST_PARTITION_BYTES = 40 * 2**20
_COMPRESSION_RATIO = 4
_FEW_PARTITIONS = 4096
_AS_GIVEN = ("strict", "rejects", "max_rejected", "output", "output_format", "overwrite")
_AS_GIVEN += ("harness_timeout", "quiet")
_NOTES = tuple(field.name for field in dataclasses.fields(ReleaseNotes))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """Everything that a program was asked to do but its privacy parameters, checked.

    Attributes:
      files: input files, sorted.
      reading: how they are read.
      tokenizer: a tokenizer's name, or a function.
      strict: fail at the first reject.
      rejects: the operator's directory for rejects, if any.
      max_rejected: largest share of rejected records that a run survives.
      output: directory of the release.
      output_format: of its files.
      overwrite: replace a release that is there.
      notes: what the operator says of the release.
      partitions: of users.
      run_key: secret of the run; if it was given, the file that holds it.
      harness_timeout: seconds in which an engine's workers must start; 0: no limit.
      quiet: no progress.
      hands_over: whether the launcher ends before the job runs, and leaves no file of its own.
    """

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
    hands_over: bool = False

    @property
    def run_key_given(self) -> bool:
        """Whether the run key is in a file, instead of fresh."""
        return isinstance(self.run_key, RunKeyFile)

    @property
    def described(self) -> InputDescription:
        """How the records become documents, in public words."""
        return self.reading.describe([file.path for file in self.files])

    @property
    def input_bytes(self) -> int:
        """Size of the input files as they are stored."""
        return sum(file.size for file in self.files)


_Job = TypeVar("_Job", bound=Job)
# Of an empty pipeline, the job, the run's temporary folder, and what the first step leaves there.
Build = Callable[[beam.Pipeline, _Job, str, launching.Canary | None], None]


def settings_from_options(
    given: argparse.Namespace,
    options: running.BeamOptions,
    tokenizer: tokenizers.Tokenizer | None = None,
) -> dict[str, Any]:
    """Checks the options that all programs share; reads no data beyond the heads of the input files.

    Args:
      given: parsed options.
      options: where the job will run.
      tokenizer: instead of the option.

    Returns:
      The fields of `Job`.

    Raises:
      UsageError, ValueError, FileNotFoundError: if a parameter is wrong.
    """
    values = with_defaults(given, (*READING, *WRITING, *ITEMS_RUNNING))
    for name in ("input", "output"):
        if not values[name]:
            raise UsageError(f"{name} must be given: --{name} PATH.")
    notes = ReleaseNotes(**{name: values[name] for name in _NOTES})
    check_max_rejected(values["max_rejected"])
    chosen = tokenizer or tokenizer_name(given, values)
    tokenizers.resolve_tokenizer(chosen)
    reading = io.ReadOptions(
        input_format=values["input_format"],
        user_field=values["user_field"],
        text_field=values["text_field"],
        encoding=values["encoding"],
        delimiter=values["delimiter"],
        quoting=values["quoting"],
        columns=values["columns"],
        max_record_bytes=values["max_record_bytes"],
        text_is_tokens=chosen == "tokens",
    )
    _check_access(values, options)
    run_key = _run_key(values["run_key_file"], options)
    for name, least in (("partitions", 1), ("harness_timeout", 0)):
        require_at_least(least, name, values[name])
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
        **{name: values[name] for name in _AS_GIVEN},
    }


def require_at_least(least: int, name: str, value: int | None) -> None:
    """Raises UsageError if an option was given and is too small."""
    if value is not None and value < least:
        raise UsageError(f"{name} must be at least {least}, got {name}={value}.")


def run_job(
    job: _Job, options: running.BeamOptions, build: Build[_Job], max_length: int | None = None
) -> Mapping[str, Any] | None:
    """Runs the job; returns the ledger of the release, None if only a template was made.

    Args:
      job: what to do.
      options: where.
      build: wires the pipeline of the program.
      max_length: T, for the progress; None for programs that have no lengths.

    Raises:
      RunError: if it failed; nothing has been published then.
    """
    pipeline = beam.Pipeline(runner=options.runner, options=options.pipeline_options)
    shown = display.progress_line(
        max_length=max_length, input_bytes=job.input_bytes, quiet=job.quiet
    )
    tidied = io.tidied(job.rejects) if job.rejects else contextlib.nullcontext()
    held = run_folders.run_folder(*_run_folder(job, options), embedded=options.embedded)
    with held as folder, tidied, shown:
        canary = None
        if options.can_hang:
            canary = launching.Canary(marks=Markers(folder), timeout=job.harness_timeout)
            make_marker(canary.marks.wanted)
            progress.enter("engine")
        build(pipeline, job, folder, canary)
        result = launching.run_pipeline(pipeline, canary)
    if not launching.has_finished(result):
        return None
    _report_rejects(job, result)
    return read_ledger(job.output)


def check_in_template(job: Job, name: str, size: int) -> None:
    """Raises UsageError if public data are too large for the graph of a template.

    Its launcher ends before the job, and leaves no file of its own for the workers.
    """
    if job.hands_over and size > LARGEST_IN_GRAPH:
        raise UsageError(
            f"{name} must be at most {LARGEST_IN_GRAPH} bytes with a template, whose graph carries it, "
            f"got {size} bytes; take fewer words, or launch without a template."
        )


def _run_folder(job: Job, options: running.BeamOptions) -> tuple[str, str]:
    """Returns where the run's temporary files are, and the name of their folder."""
    output = _absolute(job.output).rstrip("/")
    # A bucket has nothing beside it.
    beside = output if re.fullmatch(r"\w+://[^/]+", output) else os.path.dirname(output)
    parent = tempfile.gettempdir() if options.embedded else beside
    return options.temp_location or parent, f"{run_folders.PREFIX}{uuid.uuid4().hex}"


def read_documents(
    pipeline: beam.Pipeline, job: Job, canary: launching.Canary | None
) -> io.ReadResult:
    """Wires the reading of the input, and what the operator gets of rejected records.

    The tally comes after the list of rejects, so that a run that fails by the tally has written it.

    Args:
      pipeline: an empty one.
      job: what to do.
      canary: what the first step leaves for the launcher; None: nothing.
    """
    read = pipeline | "Read" >> io.ReadDocuments(
        inputs=[file.path for file in job.files],
        strict=job.strict,
        on_start=canary and canary.marks.report_start,
        **dataclasses.asdict(job.reading),
    )
    if job.rejects is None:
        return read
    paths = read.rejects | "WriteRejects" >> io.WriteRejects(path=_absolute(job.rejects))
    after = beam.Map(_tally_after, AsIter(paths)).with_output_types(Tally)
    return read._replace(tally=read.tally | "AfterRejects" >> after)


def _tally_after(tally: Tally, _written: Iterable[str]) -> Tally:
    return tally


def publishing(job: Job, canary: launching.Canary | None, read: io.ReadResult) -> dict[str, Any]:
    """Returns the fields of `PublishRelease` that do not depend on the program."""
    return {
        "output": _absolute(job.output),
        "output_format": job.output_format,
        "tokenizer": job.tokenizer,
        "run_key_given": job.run_key_given,
        "described": job.described,
        "notes": job.notes,
        "overwrite": job.overwrite,
        "permit": canary and canary.marks.require_wanted,
        "tally": read.tally,
        "max_rejected": job.max_rejected,
    }


def default_partitions(files: Sequence[io.InputFile]) -> int:
    """Returns a number of partitions such that each holds about 8 MiB of text, of a huge corpus 40.

    What a reader gathers is cut into so many blocks, so more than some thousands cost.
    """
    text = sum(file.size * (_COMPRESSION_RATIO if codec_of(file.path) else 1) for file in files)
    wanted = min(_FEW_PARTITIONS, math.ceil(text / _PARTITION_BYTES))
    return max(1, wanted, math.ceil(text / _LARGEST_PARTITION_BYTES))


def tokenizer_name(given: argparse.Namespace, values: Mapping[str, Any]) -> str:
    """Returns the tokenizer of the options; its default depends on the format of the input."""
    if given.tokenizer is None and values["input_format"] == "sequences":
        return "whitespace"
    return values["tokenizer"]


def _run_key(path: str | None, options: running.BeamOptions) -> RunKey:
    """Returns the run key: in its file, or a fresh one."""
    if path is None:
        if options.is_template:
            raise UsageError(
                "template_location needs --run_key_file: a template is run many times, and a fresh "
                "key would be frozen in it."
            )
        return RunKey.generate()
    return RunKeyFile.checked(_absolute(path), pinned=not options.writes_template)


def _check_access(values: Mapping[str, Any], options: running.BeamOptions) -> None:
    """Raises at once if remote paths cannot be used; Beam would search for credentials for long."""
    written = (values["output"], values["rejects"], options.temp_location)
    reading = [*values["input"], *filter(None, [values["run_key_file"]])]
    check_access(reading, list(filter(None, written)), options.pipeline_options)


def _check_rejects(rejects: str, output: str) -> None:
    """Raises unless the operator's directory is apart from the release and can be written."""
    if not rejects:
        raise UsageError("rejects must be the path of a directory, got rejects=''.")
    inner = normalized(rejects)
    if is_inside(rejects, output):
        raise UsageError(
            f"rejects must be outside the directory of the release, got rejects={rejects}: they "
            "are as private as the data."
        )
    if FileSystems.exists(FileSystems.join(inner, "ledger.json")):
        raise UsageError(
            f"rejects must be outside every release, got rejects={rejects}, which has a ledger.json: "
            "they are as private as the data."
        )
    if FileSystems.get_scheme(rejects) is not None:
        return
    while not os.path.lexists(inner):
        inner = os.path.dirname(inner)
    if not (os.path.isdir(inner) and os.access(inner, os.W_OK | os.X_OK)):
        raise UsageError(f"rejects must be a directory that can be written, got rejects={rejects}.")


def _absolute(path: str) -> str:
    """Returns a path that means the same in a worker's own directory."""
    return os.path.abspath(path) if FileSystems.get_scheme(path) is None else path


def normalized(path: str) -> str:
    """Returns a path without links and its last slashes."""
    local = FileSystems.get_scheme(path) is None
    return (os.path.realpath(path) if local else path).rstrip("/")


def is_inside(path: str, folder: str) -> bool:
    """Whether a path is a directory, or somewhere in it."""
    return f"{normalized(path)}/".startswith(f"{normalized(folder)}/")


def _report_rejects(job: Job, result: PipelineResult) -> None:
    """Tells the operator, on stderr, that records were left out."""
    counters = launching.counters(result)
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
    what = "record was" if rejected == 1 else "records were"
    display.print_notice(
        f"beam-dpne: {rejected} {what} rejected ({where}): {describe(reasons)}. For the operator; as "
        "secret as the data."
    )
