"""Sequences: each line one user of their own, tokens separated by blanks."""

import re

import numpy as np
import pyarrow as pa

from beam_dpne.errors import InputError
from beam_dpne.reading.columns import Batch, gather, record_batch, valid_utf8
from beam_dpne.reading.records import Block
from beam_dpne.reading.rejects import NOT_UTF8

# A file has a header only if its first line is this one, as that of the MSNBC data is.
HEADER_START = b"% Different categories found in input file:"
_HEADER_END = re.compile(rb"\n% Sequences:[^\n]*(?:\n(?:\r?\n)*|\Z)")
_USER_TYPE = pa.binary(16)


def header_bytes(head: bytes) -> int:
    r"""How many bytes the header takes of a file in the form of the MSNBC data; 0 for others.

    Only the first line can announce a header, and an announced header must end: else one user's line
    could turn the lines of other users into a header.

    Raises:
      InputError: if the first bytes announce a header and do not end it.

    >>> header_bytes(HEADER_START + b"\n\na b\n% Sequences:\n\n1 2\n"), header_bytes(b"1 2\n")
    (63, 0)
    """
    if not head.startswith(HEADER_START):
        return 0
    found = _HEADER_END.search(head)
    if found is None:
        raise InputError("A header must end with the line '% Sequences:', early in the file.")
    return found.end()


class SequencesParser:
    """Turns blocks of lines into documents, each of a user named by file and offset."""

    def __init__(self, place: int) -> None:
        self._place = place

    def parse(self, block: Block) -> Batch:
        """One document a line; empty lines are none."""
        block = block.filled()
        text = gather(block.data, block.starts, block.ends)
        good = valid_utf8(text)
        positions = block.positions
        rejects = [(int(position), NOT_UTF8) for position in positions[~good]]
        user = _users(self._place, positions[good])
        documents = record_batch(user, text.filter(pa.array(good)).cast(pa.string()))
        return Batch(documents, rejects, len(documents))


def _users(place: int, positions: np.ndarray) -> pa.Array:
    """16 bytes a user: the file's place and the line's offset, both little-endian."""
    pairs = np.empty((len(positions), 2), "<u8")
    pairs[:, 0] = place
    pairs[:, 1] = positions
    return pa.Array.from_buffers(_USER_TYPE, len(positions), [None, pa.py_buffer(pairs)])
