"""`beam-dpne ngrams`, `set-union` and `bayesian`: parameters are checked once, then the job runs."""

import contextlib
import hashlib
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from beam_dpne.cli import display, parameters, streams
from beam_dpne.cli.budgets import kept_budget
from beam_dpne.cli.commands import Made
from beam_dpne.cli.inputs import (
    SECRET,
)
from beam_dpne.cli.parameters import Writing
from beam_dpne.cli.preparing import Prepared, prepare
from beam_dpne.documents.private_run import PrivateRun
from beam_dpne.documents.tokenizers import Tokenizer
from beam_dpne.elements import progress
from beam_dpne.errors import UsageError, kind_of, own_reason
from beam_dpne.jobs.job import Job, ReadRecords
from beam_dpne.jobs.local import run_here
from beam_dpne.release.places import LEDGER_NAME, real_path
from beam_dpne.release.reading import read_ledger
from beam_dpne.release.schema import ReleaseNotes
from beam_dpne.storage.directories import absolute_path, directory_at
from beam_dpne.storage.private import one_at_a_time


def run(
    made: Made, beam_arguments: list[str], tokenizer: Tokenizer | None = None
) -> Mapping[str, Any] | None:
    """Releases what the parameters ask for, and prints it.

    Args:
      made: the groups of parameters of the command.
      beam_arguments: options of Beam.
      tokenizer: replaces the one that the parameters name.

    Returns:
      The ledger of the release, or None if only a template was written.

    Raises:
      RunError: if the run failed; a release is complete only if its ledger is there.
    """
    prepared = prepare(made, beam_arguments, tokenizer)
    private = prepared.private
    if private is None:
        raise UsageError("epsilon and delta must be given.")
    quiet = made[parameters.Quiet].quiet
    output = made[Writing].output
    started = time.monotonic()
    before = _ledger_in(output)
    records: ReadRecords | None = None
    is_template = False
    with (
        only_run_to(output),
        kept_budget(made, private),
        _not_failed_once_published(output, before),
    ):
        records = _run(made, prepared, private)
        is_template = records is None
    if is_template:
        return None
    ledger = None
    try:
        if records is not None:
            _report_records(records, made[parameters.Rejecting].rejects, quiet=quiet)
        ledger = read_ledger(output)
        display.print_release(ledger, output, time.monotonic() - started, quiet=quiet)
        sys.stdout.flush()
    except BaseException as error:
        # Whoever repeated this run would spend its budget twice, so its display cannot fail it.
        streams.drop_output()
        streams.say_whole(f"It could not be shown ({kind_of(error)}).")
    if not quiet:
        streams.say_published(output)
    return ledger


def _ledger_in(output: str) -> bytes | None:
    """Returns the bytes of the ledger in a directory, or None if there is none, or none can be read."""
    with contextlib.suppress(Exception):
        return directory_at(output).read(LEDGER_NAME)
    return None


@contextlib.contextmanager
def _not_failed_once_published(output: str, before: bytes | None) -> Iterator[None]:
    """Lets a run that has published end well, whatever happens after its ledger is in place.

    Whoever repeated the run would spend its budget twice. An error of ours is raised before the ledger
    is written, so that a new ledger is then that of another run to the same directory.

    Args:
      output: the directory of the release.
      before: the ledger that was there before the run.
    """
    try:
        yield
    except BaseException as error:
        if progress.snapshot().stage != progress.PUBLISHED:
            now = _ledger_in(output)
            if now in (None, before) or own_reason(error.__context__ or error) is not None:
                raise
        progress.enter(progress.PUBLISHED)
        streams.say_whole(f"Its run ended with {kind_of(error)} after that.")


def _run(made: Made, prepared: Prepared, private: PrivateRun) -> ReadRecords | None:
    """Runs the job; returns what is known of its records, or None if it did not run to its end."""
    rejects = made[parameters.Rejecting].rejects
    job = Job(
        private=private,
        files=prepared.files,
        reading=prepared.reading,
        output=absolute_path(made[Writing].output),
        output_format=made[Writing].output_format,
        overwrite=made[Writing].overwrite,
        notes=made[ReleaseNotes],
        rejects=None if rejects is None else absolute_path(rejects),
        max_rejected=made[parameters.Rejecting].max_rejected,
    )
    size = sum(file.size for file in prepared.files)
    with display.progress_line(size, quiet=made[parameters.Quiet].quiet):
        if prepared.options is None or prepared.workers is not None:
            records: ReadRecords | None = run_here(job, prepared.workers or 1)
        else:
            from beam_dpne.jobs.engine import run_job

            running = made[parameters.Running]
            records = run_job(
                job,
                prepared.options,
                set_limit=running.side_input_limit,
                harness_timeout=running.harness_timeout,
            )
        if records is not None:
            progress.enter(progress.PUBLISHED)
    return records


@contextlib.contextmanager
def only_run_to(output: str) -> Iterator[None]:
    """Refuses a second run to a directory while this one is at work, if both are on this machine.

    Raises:
      UsageError: another run is at work; it has not published yet.
    """
    name = hashlib.sha256(real_path(output).encode()).hexdigest()[:16]
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(one_at_a_time(f"output-{name}"))
        except BlockingIOError:
            raise UsageError(
                f"output must be of one run at a time, got output={output}, to which another run is at "
                "work. Choose another directory."
            ) from None
        yield


def _report_records(records: ReadRecords, directory: str | None, *, quiet: bool) -> None:
    """Reports on stderr, for the operator, that there were no records, or how many were left out."""
    told = []
    if records.are_none:
        told.append("the input has no records, so nothing can be released")
    rejected = records.rejected
    if rejected and not quiet:
        where = f"see {directory}" if directory else "--rejects DIR lists them with their reasons"
        noun = "record was" if rejected == 1 else "records were"
        told.append(f"{rejected:,} {noun} rejected ({where})")
    for text in told:
        display.print_notice(f"beam-dpne: {text}. {SECRET}")
