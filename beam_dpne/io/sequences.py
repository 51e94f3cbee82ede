"""Sequences: each line one user of their own, tokens separated by blanks."""

import re

import numpy as np
import pyarrow as pa

from beam_dpne.io.columns import Batch, gather, record_batch, valid_utf8
from beam_dpne.io.records import Block
from beam_dpne.io.rejects import NOT_UTF8

# The header of the MSNBC file: all up to its last comment, and the blank lines that follow.
_HEADER = re.compile(rb"(?:[^\n]*\n)*?% Sequences:[^\n]*(?:\n(?:\r?\n)*|\Z)")
_USER_TYPE = pa.binary(16)


def header_bytes(head: bytes) -> int:
    r"""How many bytes a header takes, if the first bytes of the text have one.

    >>> header_bytes(b"% any\n\nname name\n% Sequences:\n\n1 2\n"), header_bytes(b"1 2\n")
    (31, 0)
    """
    found = _HEADER.match(head)
    return found.end() if found else 0


class SequencesParser:
    """Turns blocks of lines into documents, each of a user named by file and offset."""

    def __init__(self, place: int) -> None:
        self._place = place

    def parse(self, block: Block) -> Batch:
        """One document a line; empty lines are none."""
        filled = block.ends > block.starts
        starts, ends = block.starts[filled], block.ends[filled]
        text = gather(block.data, starts, ends)
        good = valid_utf8(text)
        positions = starts + block.offset
        rejects = [(int(position), NOT_UTF8) for position in positions[~good]]
        user = _users(self._place, positions[good])
        return Batch(record_batch(user, text.filter(pa.array(good)).cast(pa.string())), rejects)


def _users(place: int, positions: np.ndarray) -> pa.Array:
    """16 bytes a user: the file's place and the line's offset, both little-endian."""
    pairs = np.empty((len(positions), 2), "<u8")
    pairs[:, 0] = place
    pairs[:, 1] = positions
    return pa.Array.from_buffers(_USER_TYPE, len(positions), [None, pa.py_buffer(pairs)])
