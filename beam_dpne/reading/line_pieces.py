"""Texts whose records are lines are cut at ends of lines, so that several processes read one file.

One process decompresses a file and looks for ends of lines, which is a small part of the work; others
parse the pieces and tokenize them. Only formats in which each line feed ends a record are cut: in CSV
with quotes it is not known without parsing from the beginning whether a line feed stands within quotes,
and a wrong guess would make one user's text records of other users. They are parsed where they are
read.
"""

from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

from beam_dpne.elements import progress
from beam_dpne.reading.files import LineText, TextFile, WorkItem, guarded
from beam_dpne.reading.options import DELIMITED, ReadOptions
from beam_dpne.reading.records import Batch, batch_of, read_item
from beam_dpne.reading.text_formats import Gathered
from beam_dpne.reading.text_items import (
    begun,
    gathered_parts,
    is_array_of,
    lines_into,
    require_all,
    stored_bytes,
)

_KINDS_OF_LINES = ("json", "jsonl", "sequences")
# Pieces of a batch: small enough that many processes end at about the same time.
_PIECES_OF_A_BATCH = 4


class Piece(NamedTuple):
    """Whole lines of a text, which are read without the lines before them.

    Attributes:
      item: The piece of work that has the lines.
      options: How it is read.
      names: The columns of CSV and TSV.
      start: Offset of the lines in the text, as UTF-8.
      data: The lines as UTF-8; only the last one may be cut, if it is longer than a record may be.
    """

    item: WorkItem
    options: ReadOptions
    names: Sequence[str]
    start: int
    data: bytes


def cut_or_read(item: WorkItem, options: ReadOptions) -> Generator[Batch | Piece, None, None]:
    """Cuts a piece of work at ends of lines, or reads it if records are not lines.

    Raises:
      InputError: The file is truncated or damaged, or lacks a field.
    """
    if _may_have_lines(item, options):
        with guarded(item.file.path), begun(item, options) as (text, names):
            if not is_array_of(text, item.kind, options):
                yield from _cut(text, item, names, options)
                return
    yield from read_item(item, options)


def _may_have_lines(item: WorkItem, options: ReadOptions) -> bool:
    """Whether each line is a record, unless the file turns out to be an array of JSON."""
    if item.file.table is not None:
        return False
    is_unquoted = item.kind in DELIMITED and not options.is_quoted(item.kind)
    return is_unquoted or item.kind in _KINDS_OF_LINES


def _cut(
    text: TextFile, item: WorkItem, names: Sequence[str], options: ReadOptions
) -> Iterator[Piece]:
    text.block = 1 + options.block_bytes // _PIECES_OF_A_BATCH
    size = stored_bytes(item)
    reported = 0
    for start, lines in text.blocks(options.max_record_bytes, item.stop):
        done = min(text.taken, size)
        progress.advance_bytes(done - reported)
        reported = done
        yield Piece(item, options, names, start, lines)
    require_all(text, item)


def read_piece(piece: Piece) -> Iterator[Batch]:
    """Reads the documents of lines.

    Raises:
      InputError: The lines cannot be read.
    """
    file = piece.item.file
    text = LineText.of(piece.data, piece.start)
    into = Gathered(text, piece.options, dict(file.fields))
    with guarded(file.path):
        reading = lines_into(into, piece.item, piece.names, None)
        for part in gathered_parts(reading, into, piece.item, "byte"):
            yield batch_of(part, file.path, piece.options)
