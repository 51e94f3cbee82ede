"""`beam-dpne ngrams`: from options to a pipeline, run and reported."""

import argparse
import contextlib
import dataclasses
import math
import os
import re
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.runners.runner import PipelineResult

from beam_dpne import io, progress, tokenizers
from beam_dpne.cli import display, launching, running
from beam_dpne.cli.errors import UsageError
from beam_dpne.cli.options import READING, RUNNING, WRITING, with_defaults
from beam_dpne.cli.plans import plan_from_options
from beam_dpne.io.access import check_access
from beam_dpne.io.options import codec_of
from beam_dpne.io.publishing import PublishRelease, check_output
from beam_dpne.ledger import read_ledger
from beam_dpne.ngrams import PrivateNgrams
from beam_dpne.plan import PrivacyPlan
from beam_dpne.randomness import RunKey
from beam_dpne.run_key_file import RunKeyFile
from beam_dpne.started import Marks, make_mark
from beam_dpne.stored import SetStore

_PARTITION_BYTES = 8 * 2**20
_LARGEST_PARTITION_BYTES = 40 * 2**20
_COMPRESSION_RATIO = 4
_FEW_PARTITIONS = 4096


@dataclasses.dataclass(frozen=True, kw_only=True)
class NgramsJob:
    """Everything that `beam-dpne ngrams` was asked to do, checked.

    Attributes:
      plan: the privacy parameters.
      files: input files, sorted.
      reading: how they are read.
      tokenizer: a tokenizer's name, or a function.
      strict: fail at the first reject.
      rejects: the operator's directory for rejects, if any.
      output: directory of the release.
      output_format: of its files.
      overwrite: replace a release that is there.
      partitions: of users.
      run_key: secret of the run; if it was given, the file that holds it.
      side_input_limit: size in bytes of a released set above which it travels as a file.
      harness_timeout: seconds in which an engine's workers must start; 0: no limit.
      quiet: no progress.
    """

    plan: PrivacyPlan
    files: Sequence[io.InputFile]
    reading: io.ReadOptions
    tokenizer: str | tokenizers.Tokenizer
    strict: bool
    rejects: str | None
    output: str
    output_format: str
    overwrite: bool
    partitions: int
    run_key: RunKey = dataclasses.field(repr=False)
    side_input_limit: int
    harness_timeout: int
    quiet: bool

    @property
    def run_key_given(self) -> bool:
        """Whether the run key is in a file, instead of fresh."""
        return isinstance(self.run_key, RunKeyFile)


def run_command(given: argparse.Namespace, beam_arguments: list[str]) -> None:
    """Runs `beam-dpne ngrams` and prints the release."""
    options = running.beam_options(beam_arguments)
    job = job_from_options(given, options)
    started = time.monotonic()
    ledger = run_job(job, options)
    if ledger is not None:
        with display.published(job.output):
            display.print_release(ledger, job.output, time.monotonic() - started)


def job_from_options(
    given: argparse.Namespace,
    options: running.BeamOptions,
    tokenizer: tokenizers.Tokenizer | None = None,
) -> NgramsJob:
    """Checks all options and returns the job; reads no data beyond the heads of the input files.

    Args:
      given: parsed options.
      options: where the job will run.
      tokenizer: instead of the option.

    Raises:
      UsageError, ValueError, FileNotFoundError: if a parameter is wrong.
    """
    plan = plan_from_options(given)
    values = with_defaults(given, (*READING, *WRITING, *RUNNING))
    for name in ("input", "output"):
        if not values[name]:
            raise UsageError(f"{name} must be given: --{name} PATH.")
    chosen = tokenizer or _tokenizer_name(given, values)
    tokenizers.resolve_tokenizer(chosen)
    reading = io.ReadOptions(
        input_format=values["input_format"],
        user_field=values["user_field"],
        text_field=values["text_field"],
        columns=values["columns"],
        max_record_bytes=values["max_record_bytes"],
        text_is_tokens=chosen == "tokens",
    )
    _check_access(values, options)
    run_key = _run_key(values["run_key_file"], options)
    for name, least in (("partitions", 1), ("side_input_limit", 1), ("harness_timeout", 0)):
        if values[name] is not None and values[name] < least:
            raise UsageError(f"{name} must be at least {least}, got {name}={values[name]}.")
    check_output(values["output"], overwrite=values["overwrite"])
    if values["rejects"] is not None:
        _check_rejects(values["rejects"], values["output"])
    files = io.match_inputs(values["input"])
    io.check_fields(files, reading)
    return NgramsJob(
        plan=plan,
        files=files,
        reading=reading,
        tokenizer=chosen,
        strict=values["strict"],
        rejects=values["rejects"],
        output=values["output"],
        output_format=values["output_format"],
        overwrite=values["overwrite"],
        partitions=values["partitions"] or default_partitions(files),
        run_key=run_key,
        side_input_limit=values["side_input_limit"],
        harness_timeout=values["harness_timeout"],
        quiet=values["quiet"],
    )


def run_job(job: NgramsJob, options: running.BeamOptions) -> Mapping[str, Any] | None:
    """Runs the job; returns the ledger of the release, None if only a template was made.

    Raises:
      RunError: if it failed; nothing has been published then.
    """
    pipeline = beam.Pipeline(runner=options.runner, options=options.pipeline_options)
    size = sum(file.size for file in job.files)
    shown = display.progress_line(max_length=job.plan.max_length, input_bytes=size, quiet=job.quiet)
    tidied = io.tidied(job.rejects) if job.rejects else contextlib.nullcontext()
    with launching.run_folder(*_run_folder(job, options)) as folder, tidied, shown:
        canary = None
        if options.can_hang:
            canary = launching.Canary(marks=Marks(folder), timeout=job.harness_timeout)
            make_mark(canary.marks.wanted)
            progress.enter("engine")
        build(pipeline, job, folder, canary)
        result = launching.run_pipeline(pipeline, canary)
    if not launching.has_finished(result):
        return None
    _report_rejects(job, result)
    return read_ledger(os.path.join(job.output, "ledger.json"))


def _run_folder(job: NgramsJob, options: running.BeamOptions) -> tuple[str, str]:
    """Returns where the run's temporary files are, and the name of their folder."""
    output = _absolute(job.output).rstrip("/")
    # A bucket has nothing beside it.
    beside = output if re.fullmatch(r"\w+://[^/]+", output) else os.path.dirname(output)
    parent = tempfile.gettempdir() if options.embedded else beside
    return options.temp_location or parent, f".beam_dpne-{uuid.uuid4().hex}"


def build(
    pipeline: beam.Pipeline,
    job: NgramsJob,
    folder: str,
    canary: launching.Canary | None = None,
) -> None:
    """Wires reading, extraction and publishing.

    Args:
      pipeline: an empty one.
      job: what to do.
      folder: the run's temporary location.
      canary: what the first step leaves for the launcher; None: nothing.
    """
    reading = dataclasses.asdict(job.reading)
    read = pipeline | "Read" >> io.ReadDocuments(
        inputs=[file.path for file in job.files],
        strict=job.strict,
        marks=canary and canary.marks,
        **reading,
    )
    if job.rejects is not None:
        _ = read.rejects | "WriteRejects" >> io.WriteRejects(path=_absolute(job.rejects))
    ngrams = read.documents | "PrivateNgrams" >> PrivateNgrams(
        plan=job.plan,
        tokenizer=job.tokenizer,
        partitions=job.partitions,
        run_key=job.run_key,
        store=SetStore(folder=folder, limit=job.side_input_limit),
    )
    _ = ngrams | "Publish" >> PublishRelease(
        output=_absolute(job.output),
        output_format=job.output_format,
        plan=job.plan,
        tokenizer=job.tokenizer,
        run_key_given=job.run_key_given,
        users=_users(job.reading),
        overwrite=job.overwrite,
        marks=canary and canary.marks,
    )


def _users(reading: io.ReadOptions) -> str:
    """Says in words what one user is."""
    if reading.input_format == "sequences":
        return "each line of a file is one user"
    return "each value of the user field is one user"


def default_partitions(files: Sequence[io.InputFile]) -> int:
    """Returns a number of partitions such that each holds about 8 MiB of text, of a huge corpus 40.

    What a reader gathers is cut into so many blocks, so more than some thousands cost.
    """
    text = sum(file.size * (_COMPRESSION_RATIO if codec_of(file.path) else 1) for file in files)
    wanted = min(_FEW_PARTITIONS, math.ceil(text / _PARTITION_BYTES))
    return max(1, wanted, math.ceil(text / _LARGEST_PARTITION_BYTES))


def _tokenizer_name(given: argparse.Namespace, values: Mapping[str, Any]) -> str:
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
    inner, outer = (_normalized(path) for path in (rejects, output))
    if f"{inner}/".startswith(f"{outer}/"):
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


def _normalized(path: str) -> str:
    local = FileSystems.get_scheme(path) is None
    return (os.path.realpath(path) if local else path).rstrip("/")


def _report_rejects(job: NgramsJob, result: PipelineResult) -> None:
    """Tells the operator, on stderr, that records were left out."""
    rejected = launching.counter(result, "rejected_records")
    if not rejected or job.quiet:
        return
    where = f"see {job.rejects}" if job.rejects else "--rejects DIR lists them"
    what = "record was" if rejected == 1 else "records were"
    display.print_notice(
        f"beam-dpne: {rejected} {what} rejected ({where}). For the operator; as secret as the data."
    )
