"""The local driver: from files to a published release on this machine, without Beam.

It reads, tokenizes, releases and publishes with the functions of which Beam's steps are made, so that
the release has the same bytes as one from any runner under the same run key. Processes that it forks
share the work.
"""

import contextlib
from collections.abc import Generator

import pyarrow as pa

from beam_dpne.documents.cutting import cut_by_partition
from beam_dpne.elements import progress
from beam_dpne.errors import RunError, printable_reason, withhold_unhandled
from beam_dpne.jobs.job import Job, ReadRecords
from beam_dpne.reading.reader import Reader, work_items
from beam_dpne.reading.rejects import Reject, require_few_rejected, write_rejects
from beam_dpne.release.described import described
from beam_dpne.release.ledger import Run
from beam_dpne.release.publishing import publish_release


def run_here(job: Job, workers: int) -> ReadRecords:
    """Runs a job to its end in this process and those that it forks.

    Args:
      job: what is read, released and published.
      workers: the largest number of processes that work at the same time; it changes no release.

    Returns:
      What is known of the records that were read.

    Raises:
      RunError: the run failed. Its message is one of this package, or else only the type of the error,
        since the messages of libraries may quote data.
    """
    withhold_unhandled()
    try:
        return _released(job, workers)
    except Exception as error:
        raise RunError(printable_reason(error)) from None


def _released(job: Job, workers: int) -> ReadRecords:
    private = job.private
    keys = private.run_keys()
    reader = Reader(work_items(job.files, job.reading), job.reading, workers)
    rejects: list[Reject] | None = None if job.rejects is None else []
    cutting = private.cutting(keys.bound)
    # After an error in what cuts the documents, the processes that read them end here, too.
    with contextlib.closing(_listing_rejects(reader, rejects)) as documents:
        partitions = cut_by_partition(documents, cutting, workers)
    if job.rejects is not None and rejects is not None:
        # The list is there if the tally fails the run.
        write_rejects(job.rejects, rejects)
    records = require_few_rejected([reader.tally], job.max_rejected)
    if private.participation is not None:
        private.participation.record(block.users for part in partitions for block in part)
    sets = private.release_in_memory(partitions, keys.bound, workers)
    progress.enter("publish")
    rows, ledger = described(private.form, Run.of(private, keys), job.notes, sets)
    publish_release(
        rows,
        ledger,
        output=job.output,
        output_format=job.output_format,
        overwrite=job.overwrite,
    )
    return ReadRecords(rejected=reader.reasons.total(), are_none=not records)


def _listing_rejects(
    reader: Reader, rejects: list[Reject] | None
) -> Generator[pa.RecordBatch, None, None]:
    """Yields all documents, and adds the rejected records to a list, if there is one."""
    with contextlib.closing(reader.batches()) as batches:
        for documents in batches:
            found = reader.take_rejects()
            if rejects is not None:
                rejects += found
            if documents.num_rows:
                yield documents
