"""The local driver: from files to a published release on this machine, without Beam.

It reads, tokenizes, releases and publishes with the functions of which Beam's steps are made, so that
the release has the same bytes as one from any runner under the same run key. Processes that it forks
share the work.
"""

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

import pyarrow as pa

from beam_dpne.documents.cutting import cut_by_partition
from beam_dpne.elements import progress
from beam_dpne.elements.processes import keep_freed_memory
from beam_dpne.elements.rows import Rows
from beam_dpne.errors import RunError, printable_reason, withhold_unhandled
from beam_dpne.jobs.failures import failure_log
from beam_dpne.jobs.job import Job, ReadRecords
from beam_dpne.reading.line_pieces import Piece
from beam_dpne.reading.reader import Reader, work_items
from beam_dpne.reading.records import Batch
from beam_dpne.reading.rejects import Reject, require_few_rejected, write_rejects
from beam_dpne.release.described import described
from beam_dpne.release.ledger import Run
from beam_dpne.release.publishing import publish_release, rendered
from beam_dpne.release.schema import AnyLedger


def run_here(job: Job, workers: int, since: Callable[[], Sequence[bytes]] = tuple) -> ReadRecords:
    """Runs a job to its end in this process and those that it forks, and publishes its release.

    Args:
      job: what is read, released and published.
      workers: the largest number of processes that work at the same time; it changes no release.
      since: returns the ledgers of releases with the noise of this one which other runs may have made
        since the job was; it is called when the release is published.

    Returns:
      What is known of the records that were read.

    Raises:
      RunError: the run failed. Its message is one of this package, or else only the type of the error,
        since the messages of libraries may quote data.
    """
    withhold_unhandled()
    keep_freed_memory()
    try:
        found = _found(job, workers)
        publish_release(
            found.rows,
            found.ledger,
            output=job.output,
            output_format=job.output_format,
            overwrite=job.overwrite,
            earlier=lambda: [*job.earlier, *since()],
        )
    except Exception as error:
        raise RunError(printable_reason(error)) from None
    return found.records


def files_here(job: Job, workers: int) -> tuple[dict[str, bytes], ReadRecords]:
    """Runs a job as `run_here` does, and returns the files of its release by name, the ledger last.

    Raises:
      RunError: as of `run_here`.
    """
    withhold_unhandled()
    try:
        found = _found(job, workers)
        return dict(rendered(found.rows, found.ledger, job.output_format)), found.records
    except Exception as error:
        raise RunError(printable_reason(error)) from None


def logged_files(job: Job, workers: int, log: str | None) -> tuple[dict[str, bytes], ReadRecords]:
    """Does as `files_here`; a failure log has what a failure withholds, in whichever process this is.

    Args:
      job: what is read and released.
      workers: the largest number of processes.
      log: the operator's file for failures, or None.

    Raises:
      RunError: as of `files_here`; the message names the log.
    """
    if log is None:
        return files_here(job, workers)
    with failure_log(log, None) as keep:
        try:
            return files_here(job, workers)
        except RunError as error:
            told = f"{error} {keep(error)}"
    raise RunError(told)


class _Found(NamedTuple):
    """What a job publishes, and what is known of the records that it has read."""

    rows: Rows
    ledger: AnyLedger
    records: ReadRecords


def _found(job: Job, workers: int) -> _Found:
    private = job.private
    keys = private.run_keys()
    reader = Reader(work_items(job.files, job.reading), job.reading, workers)
    rejects: list[Reject] | None = None if job.rejects is None else []
    cutting = private.cutting(keys.bound)

    def note(batch: Batch) -> None:
        reader.note(batch)
        _keep_rejects(reader, rejects)

    # After an error in what cuts the documents, the processes that read them end here, too.
    with contextlib.closing(_listing_rejects(reader, rejects)) as given:
        partitions = cut_by_partition(given, cutting, workers, note)
    if job.rejects is not None and rejects is not None:
        # The list is there if the tally fails the run.
        write_rejects(job.rejects, rejects)
    records = require_few_rejected([reader.tally], job.max_rejected)
    if private.participation is not None:
        blocks = [block for part in partitions for block in part]
        private.participation.record(
            [block.users for block in blocks], [block.texts for block in blocks]
        )
    sets = private.release_in_memory(partitions, keys.bound, workers)
    progress.enter("publish")
    rows, ledger = described(private.form, Run.of(private, keys), job.notes, sets)
    read = ReadRecords(rejected=reader.reasons.total(), are_none=not records)
    return _Found(rows, ledger, read)


def _listing_rejects(
    reader: Reader, rejects: list[Reject] | None
) -> Generator[pa.RecordBatch | Piece, None, None]:
    """Yields all documents and lines, and adds the rejected records to a list, if there is one."""
    with contextlib.closing(reader.unparsed()) as unparsed:
        for given in unparsed:
            _keep_rejects(reader, rejects)
            if isinstance(given, Piece) or given.num_rows:
                yield given


def _keep_rejects(reader: Reader, rejects: list[Reject] | None) -> None:
    """Adds the records that a reader has rejected to a list; without one, they are let go."""
    found = reader.take_rejects()
    if rejects is not None:
        rejects += found
