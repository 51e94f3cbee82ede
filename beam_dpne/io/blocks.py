"""Reading one piece of work, a file or a part of one, into batches of documents."""

import concurrent.futures
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import pyarrow.parquet as pq

from beam_dpne import progress
from beam_dpne.io.columns import Batch
from beam_dpne.io.delimited import DIALECTS, HEAD_BYTES, DelimitedParser, header
from beam_dpne.io.fields import require_fields
from beam_dpne.io.files import InputFile, TextStream, guarded, open_raw
from beam_dpne.io.jsonl import JsonlParser
from beam_dpne.io.options import InputError, ReadOptions, codec_of, format_of
from beam_dpne.io.parquet import read_row_groups, row_group_ranges
from beam_dpne.io.records import Block, Borders, LineBorders, pass_line, read_blocks
from beam_dpne.io.rejects import TOO_LONG
from beam_dpne.io.sequences import SequencesParser, header_bytes

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
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


class Parser(Protocol):
    """Turns blocks of records into documents."""

    def parse(self, block: Block) -> Batch:
        """The documents and rejects of a block."""
        ...


class _Prologue(NamedTuple):
    """What the beginning of a text tells: where records begin, and how to read them."""

    size: int
    parser: Parser
    borders: Borders


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
    options.check_tokens(kind)
    if file.size <= options.split_bytes or kind == "csv" or codec_of(file.path):
        return [WorkItem(file, kind)]
    if kind == "parquet":
        with guarded(file.path), open_raw(file.path) as raw:
            groups = row_group_ranges(pq.ParquetFile(raw), options.split_bytes)
        return [WorkItem(file, kind, *group) for group in groups]
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
        prologue = _prologue(item, stream.peek(HEAD_BYTES), options)
        offset = _go_to_first_record(stream, item, prologue.size, options)
        blocks = read_blocks(
            stream.read,
            prologue.borders,
            offset=offset,
            stop=item.stop,
            block_bytes=options.block_bytes,
            max_record_bytes=options.max_record_bytes,
        )
        for block in blocks:
            batch = prologue.parser.parse(block)
            rejects = sorted(batch.rejects + [(offset, TOO_LONG) for offset in block.too_long])
            consumed = min(stream.taken, own) - told
            told += consumed
            yield batch._replace(rejects=rejects), consumed
        if stream.taken < own and codec_of(item.file.path) is None:
            raise InputError(
                f"{item.file.path} is shorter than when the run began: it was cut or replaced."
            )
    progress.advance_bytes(own - told)


def _prologue(item: WorkItem, head: bytes, options: ReadOptions) -> _Prologue:
    mark = len(BYTE_ORDER_MARK) if head.startswith(BYTE_ORDER_MARK) else 0
    if item.kind == "jsonl":
        return _Prologue(mark, JsonlParser(options), LineBorders())
    if item.kind == "sequences":
        size = mark + header_bytes(head[mark:])
        return _Prologue(size, SequencesParser(item.file.place), LineBorders())
    dialect = DIALECTS[item.kind]
    names, size = list(options.columns or ()), 0
    if not names:
        names, size = header(item.file.path, head[mark:], dialect)
        require_fields(item.file.path, names, options)
    return _Prologue(mark + size, DelimitedParser(names, dialect, options), dialect.borders())


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
