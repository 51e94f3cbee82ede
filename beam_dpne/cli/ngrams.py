"""`beam-dpne ngrams`: from options to a pipeline, run and reported."""

import argparse
import contextlib
import dataclasses
import glob
import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.runners.runner import PipelineResult

from beam_dpne import io, tokenizers
from beam_dpne.cli import display, running
from beam_dpne.cli.errors import UsageError
from beam_dpne.cli.options import READING, RUNNING, WRITING, with_defaults
from beam_dpne.cli.plans import plan_from_options
from beam_dpne.io.options import codec_of
from beam_dpne.io.publishing import PublishRelease, check_output
from beam_dpne.ledger import read_ledger
from beam_dpne.ngrams import PrivateNgrams
from beam_dpne.plan import PrivacyPlan
from beam_dpne.randomness import RunKey

_PARTITION_BYTES = 8 * 2**20
_COMPRESSION_RATIO = 4
_MAX_PARTITIONS = 4096


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
      run_key: secret of the run.
      run_key_given: whether it came from a file.
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
    run_key_given: bool
    quiet: bool


def run_command(given: argparse.Namespace, beam_arguments: list[str]) -> None:
    """Runs `beam-dpne ngrams` and prints the release."""
    options = running.beam_options(beam_arguments)
    job = job_from_options(given)
    if options.is_template and not job.run_key_given:
        raise UsageError(
            "template_location needs --run_key_file: a template is run many times, and a fresh key "
            "would be frozen in it."
        )
    started = time.monotonic()
    ledger = run_job(job, options)
    if ledger is not None:
        with display.published(job.output):
            display.print_release(ledger, job.output, time.monotonic() - started)


def job_from_options(
    given: argparse.Namespace, tokenizer: tokenizers.Tokenizer | None = None
) -> NgramsJob:
    """Checks all options and returns the job; reads no data beyond the heads of the input files.

    Args:
      given: parsed options.
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
    run_key = _run_key(values["run_key_file"])
    if values["partitions"] is not None and values["partitions"] < 1:
        raise UsageError(f"partitions must be at least 1, got partitions={values['partitions']}.")
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
        run_key=run_key or RunKey.generate(),
        run_key_given=run_key is not None,
        quiet=values["quiet"],
    )


def run_job(job: NgramsJob, options: running.BeamOptions) -> Mapping[str, Any] | None:
    """Runs the job; returns the ledger of the release if the run was waited for.

    Raises:
      RunError: if it failed; nothing has been published then.
    """
    pipeline = beam.Pipeline(runner=options.runner, options=options.pipeline_options)
    build(pipeline, job)
    size = sum(file.size for file in job.files)
    shown = display.progress_line(max_length=job.plan.max_length, input_bytes=size, quiet=job.quiet)
    with _tidied(job.rejects), shown:
        result = running.run_pipeline(pipeline)
    _report_rejects(job, result)
    return read_ledger(os.path.join(job.output, "ledger.json")) if options.waits else None


def build(pipeline: beam.Pipeline, job: NgramsJob) -> None:
    """Wires reading, extraction and publishing."""
    reading = dataclasses.asdict(job.reading)
    read = pipeline | "Read" >> io.ReadDocuments(
        inputs=[file.path for file in job.files], strict=job.strict, **reading
    )
    if job.rejects is not None:
        _ = read.rejects | "WriteRejects" >> io.WriteRejects(path=job.rejects)
    ngrams = read.documents | "PrivateNgrams" >> PrivateNgrams(
        plan=job.plan, tokenizer=job.tokenizer, partitions=job.partitions, run_key=job.run_key
    )
    _ = ngrams | "Publish" >> PublishRelease(
        output=job.output,
        output_format=job.output_format,
        plan=job.plan,
        tokenizer=job.tokenizer,
        run_key_given=job.run_key_given,
        users=_users(job.reading),
        overwrite=job.overwrite,
    )


def _users(reading: io.ReadOptions) -> str:
    """Says in words what one user is."""
    if reading.input_format == "sequences":
        return "each line of a file is one user"
    return "each value of the user field is one user"


def default_partitions(files: Sequence[io.InputFile]) -> int:
    """Returns a number of partitions such that each holds about 8 MiB of text."""
    text = sum(file.size * (_COMPRESSION_RATIO if codec_of(file.path) else 1) for file in files)
    return min(_MAX_PARTITIONS, max(1, math.ceil(text / _PARTITION_BYTES)))


def _tokenizer_name(given: argparse.Namespace, values: Mapping[str, Any]) -> str:
    if given.tokenizer is None and values["input_format"] == "sequences":
        return "whitespace"
    return values["tokenizer"]


def _run_key(path: str | None) -> RunKey | None:
    """Reads the run key; the error names the file, never what is in it."""
    if path is None:
        return None
    try:
        with open(path, encoding="ascii") as file:
            text = file.read(1024)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"run_key_file cannot be read, got {path} ({type(error).__name__})."
        ) from None
    return RunKey.from_hex(text)


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
    if os.path.exists(os.path.join(inner, "ledger.json")):
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


def _normalized(path: str) -> str:
    local = FileSystems.get_scheme(path) is None
    return (os.path.realpath(path) if local else path).rstrip("/")


@contextlib.contextmanager
def _tidied(rejects: str | None) -> Iterator[None]:
    """Removes what Beam leaves in the directory of rejects if the run fails or is interrupted."""
    pattern = os.path.join(glob.escape(rejects or ""), "beam-temp-rejects-*")
    before = set(glob.glob(pattern)) if rejects else set()
    try:
        yield
    except BaseException:
        if rejects:
            for path in set(glob.glob(pattern)) - before:
                shutil.rmtree(path, ignore_errors=True)
        raise


def _report_rejects(job: NgramsJob, result: PipelineResult) -> None:
    """Tells the operator, on stderr, that records were left out."""
    rejected = running.counter(result, "rejected_records")
    if not rejected or job.quiet:
        return
    where = f"see {job.rejects}" if job.rejects else "--rejects DIR lists them"
    what = "record was" if rejected == 1 else "records were"
    display.print_notice(
        f"beam-dpne: {rejected} {what} rejected ({where}). For the operator; as secret as the data."
    )
