"""Reading one piece of work, a file or a part of one, into batches of documents."""

import concurrent.futures
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow.parquet as pq

from beam_dpne.elements import progress
from beam_dpne.errors import InputError
from beam_dpne.reading.beginnings import begin
from beam_dpne.reading.columns import Batch
from beam_dpne.reading.encodings import Encoding, recoded_block
from beam_dpne.reading.files import InputFile, TextStream, guarded, open_raw
from beam_dpne.reading.options import ReadOptions, codec_of, format_of
from beam_dpne.reading.parquet import read_row_groups, row_group_ranges
from beam_dpne.reading.records import pass_line, read_blocks
from beam_dpne.reading.rejects import NOT_DECODED, NOT_UTF8, NOT_UTF8_TEXT, TOO_LONG

_LINE_BYTES = 2**16


class WorkItem(NamedTuple):
    """A file, or a part of one.

    Attributes:
      file: The file.
      kind: Its format.
      start: First byte (of a text) or row group (of Parquet) that belongs to this item.
      stop: The byte or row group after the last one; None is the end of the file.
    """

    file: InputFile
    kind: str
    start: int = 0
    stop: int | None = None


def unit_of(kind: str) -> str:
    """What the positions of a format's rejects count."""
    return "row" if kind == "parquet" else "byte"


def plan_reads(file: InputFile, options: ReadOptions) -> list[WorkItem]:
    """Cuts a file into the parts that workers read independently.

    Args:
      file: The file.
      options: How it is read.

    Returns:
      Ranges of bytes or row groups of about `split_bytes`; one item where that cannot be done.
    """
    kind = format_of(file.path, options.input_format)
    options.check_kind(kind)
    if file.size <= options.split_bytes or codec_of(file.path):
        return [WorkItem(file, kind)]
    if kind == "parquet":
        with guarded(file.path), open_raw(file.path) as raw:
            groups = row_group_ranges(pq.ParquetFile(raw), options.split_bytes)
        return [WorkItem(file, kind, *group) for group in groups]
    with guarded(file.path), TextStream(file.path) as stream:
        can_be_cut = begin(stream, file, kind, options).can_be_cut
    if not can_be_cut:
        return [WorkItem(file, kind)]
    starts = range(0, file.size, options.split_bytes)
    return [WorkItem(file, kind, start, start + options.split_bytes) for start in starts]


def read_item(item: WorkItem, options: ReadOptions) -> Iterator[Batch]:
    """Reads the documents of one piece of work, telling `progress` how far it is.

    Raises:
      InputError: The file is truncated or damaged, or lacks a field.
    """
    read = _read_parquet if item.kind == "parquet" else _read_text
    with guarded(item.file.path):
        for batch, consumed in read(item, options):
            progress.advance_bytes(consumed)
            yield batch


def read_ahead(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yields the same batches; a thread reads the next one while this one is used."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
        coming = pool.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = pool.submit(next, batches, None)
            yield batch


def _read_parquet(item: WorkItem, options: ReadOptions) -> Iterator[tuple[Batch, int]]:
    with open_raw(item.file.path) as raw:
        file = pq.ParquetFile(raw)
        stop = file.metadata.num_row_groups if item.stop is None else item.stop
        yield from read_row_groups(item.file, file, (item.start, stop), options)


def _read_text(item: WorkItem, options: ReadOptions) -> Iterator[tuple[Batch, int]]:
    """Yields batches, and how many stored bytes were consumed for each."""
    own = min(item.file.size, item.stop or item.file.size) - item.start
    told = 0
    with TextStream(item.file.path) as stream:
        beginning = begin(stream, item.file, item.kind, options)
        encoding = beginning.encoding
        offset = _go_to_first_record(stream, item, beginning.size, options)
        blocks = read_blocks(
            stream.read,
            beginning.borders,
            offset=offset,
            stop=item.stop,
            block_bytes=options.block_bytes,
            max_record_bytes=options.max_record_bytes,
        )
        for block in blocks:
            batch = beginning.parser.parse(recoded_block(block, encoding))
            rejects = sorted(batch.rejects + [(offset, TOO_LONG) for offset in block.too_long])
            consumed = min(stream.taken, own) - told
            told += consumed
            yield batch._replace(rejects=_for_text(rejects, encoding)), consumed
        if stream.taken < own and codec_of(item.file.path) is None:
            raise InputError(
                f"{item.file.path} is shorter than when the run began: it was cut or replaced."
            )
    progress.advance_bytes(own - told)


def _for_text(rejects: list[tuple[int, str]], encoding: Encoding) -> list[tuple[int, str]]:
    """Says of records that are not UTF-8 what the operator can do about them."""
    reason = NOT_DECODED if encoding.is_given else NOT_UTF8_TEXT
    return [(position, reason if why == NOT_UTF8 else why) for position, why in rejects]


def _go_to_first_record(
    stream: TextStream, item: WorkItem, first: int, options: ReadOptions
) -> int:
    """Goes to the first record that starts in a range; returns its offset in the text."""
    if item.start <= first:
        stream.read(first)
        return first
    # One byte before: a record that starts exactly at the range's start belongs to the range.
    stream.seek(item.start - 1)
    rest, passed = pass_line(stream.read, min(options.block_bytes, _LINE_BYTES))
    stream.push_back(rest)
    return item.start - 1 + passed
