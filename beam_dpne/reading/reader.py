"""Reading whole files: all their documents, the rejected records, and how many there were."""

import collections
import contextlib
import functools
from collections.abc import Generator, Iterable, Iterator, Sequence

import pyarrow as pa

from beam_dpne.elements import progress
from beam_dpne.elements.processes import answers
from beam_dpne.reading.files import InputFile
from beam_dpne.reading.line_pieces import Piece, cut_or_read
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.records import Batch, WorkItem, plan_reads, read_item
from beam_dpne.reading.rejects import Reject, Tally


def work_items(files: Sequence[InputFile], options: ReadOptions) -> Iterator[WorkItem]:
    """Yields the pieces of work of files, which may be read independently.

    Raises:
      ValueError: A file has no known format, or one that the options do not fit.
    """
    options.formats_of(file.path for file in files)
    for file in files:
        yield from plan_reads(file, options)


class Reader:
    """Reads pieces of work, in one process or in several, and counts their records.

    Attributes:
      usable: Number of usable records that were read so far.
      reasons: Number of rejected records so far, by reason.
    """

    def __init__(self, items: Iterable[WorkItem], options: ReadOptions, workers: int = 1) -> None:
        """Reads nothing yet.

        Args:
          items: The pieces of work.
          options: How files are read.
          workers: Largest number of processes that read at the same time.
        """
        self._items = list(items)
        self._options = options
        self._workers = workers
        self._rejects: list[Reject] = []
        self.usable = 0
        self.reasons: collections.Counter[str] = collections.Counter()

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Yields the documents of all pieces, in any order if several processes read.

        Raises:
          InputError: A file is truncated or damaged, or lacks a field.
        """
        read = functools.partial(read_item, options=self._options)
        with contextlib.closing(answers(read, self._items, self._workers)) as batches:
            for batch in batches:
                progress.enter("read")
                self.note(batch)
                yield batch.documents

    def unparsed(self) -> Generator[pa.RecordBatch | Piece, None, None]:
        """Yields lines as they stand in texts whose records are lines, and documents of all else.

        Whoever reads the lines by `read_piece` gives their batches to `note`.

        Raises:
          InputError: A file is truncated or damaged, or lacks a field.
        """
        read = functools.partial(cut_or_read, options=self._options)
        with contextlib.closing(answers(read, self._items, self._workers)) as found:
            for each in found:
                if isinstance(each, Batch):
                    self.note(each)
                    yield each.documents
                else:
                    yield each

    def note(self, batch: Batch) -> None:
        """Counts the records of a batch, and keeps those that were rejected."""
        self.usable += batch.usable
        self.reasons.update(reason for _, reason in batch.rejects)
        self._rejects += batch.listed()

    def take_rejects(self) -> list[Reject]:
        """Returns the records that were rejected since the last call."""
        rejects = self._rejects
        self._rejects = []
        return rejects

    @property
    def tally(self) -> Tally:
        """The numbers of records that were read so far."""
        return Tally(self.usable + self.reasons.total(), dict(self.reasons))
