"""Texts are cut at ends of records, so that several processes read one file.

One process decompresses a file and looks for ends of lines, and in CSV for quotes, which is a small
part of the work; others parse the pieces and tokenize them. CSV is cut only as far as each quote stands
where it opens or closes a field, or is one of two (`quoted_csv`): a wrong guess whether a line feed
stands within quotes would make one user's text records of other users. What follows is parsed where it
is read, and so are texts whose quotes are escaped by backslashes, and lists of JSON.
"""

from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

from beam_dpne.elements import progress
from beam_dpne.reading.files import TextFile, WorkItem, guarded
from beam_dpne.reading.options import DELIMITED, ReadOptions
from beam_dpne.reading.records import Batch, batch_of, read_item
from beam_dpne.reading.text_items import (
    begun,
    is_array_of,
    is_doubled_csv,
    parts_of,
    parts_of_piece,
    piece_bytes,
    quoted_pieces_of,
    require_all,
    stored_bytes,
)

_KINDS_OF_LINES = ("json", "jsonl", "sequences")


class Piece(NamedTuple):
    """Whole records of a text, which are read without the ones before them.

    Attributes:
      item: The piece of work that has the lines.
      options: How it is read.
      names: The columns of CSV and TSV.
      start: Offset of the lines in the text, as UTF-8.
      data: The lines as UTF-8; only the last one may be cut, if it is longer than a record may be, and
        the format has no quotes.
    """

    item: WorkItem
    options: ReadOptions
    names: Sequence[str]
    start: int
    data: bytes


def cut_or_read(item: WorkItem, options: ReadOptions) -> Generator[Batch | Piece, None, None]:
    """Cuts a piece of work at ends of records, or reads it where they are not seen.

    Raises:
      InputError: The file is truncated or damaged, or lacks a field.
    """
    if _may_be_cut(item, options):
        with guarded(item.file.path), begun(item, options) as (text, names):
            if not is_array_of(text, item.kind, options):
                yield from _cut(text, item, names, options)
                return
    yield from read_item(item, options)


def _may_be_cut(item: WorkItem, options: ReadOptions) -> bool:
    """Whether ends of records are seen, unless the file turns out to be an array of JSON."""
    if item.file.table is not None:
        return False
    is_escaped = options.quoting == "backslash"
    return item.kind in _KINDS_OF_LINES or (item.kind in DELIMITED and not is_escaped)


def _cut(
    text: TextFile, item: WorkItem, names: Sequence[str], options: ReadOptions
) -> Iterator[Batch | Piece]:
    is_quoted = is_doubled_csv(item.kind, options)
    if is_quoted:
        pieces = quoted_pieces_of(text, item, options)
    else:
        text.block = piece_bytes(options)
        pieces = text.blocks(options.max_record_bytes, item.stop)
    size = stored_bytes(item)
    reported = 0
    for start, data in pieces:
        done = min(text.taken, size)
        progress.advance_bytes(done - reported)
        reported = done
        yield Piece(item, options, names, start, data)
    if not is_quoted:
        require_all(text, item)
        return
    for part in parts_of(text, item, names, options):
        progress.advance_bytes(part.done - reported)
        reported = part.done
        yield batch_of(part, item.file.path, options)


def read_piece(piece: Piece) -> Iterator[Batch]:
    """Reads the documents of lines.

    Raises:
      InputError: The lines cannot be read.
    """
    file = piece.item.file
    with guarded(file.path):
        parts = parts_of_piece(piece.data, piece.start, piece.item, piece.names, piece.options)
        for part in parts:
            yield batch_of(part, file.path, piece.options)
