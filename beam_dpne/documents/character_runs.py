"""Texts as one array of bytes: each has the class of its character, and runs of bytes are cut out.

ASCII costs a byte translation; only other characters are decoded, and looked up once each.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_dpne.errors import TokenizerError

UNKNOWN = 255
ASCII = 128
MAX_OFFSET = 2**31 - 1
_CODE_POINTS = 0x110000

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class FlatText(NamedTuple):
    """UTF-8 bytes of all rows, one after the other; row i is data[offsets[i]:offsets[i + 1]]."""

    data: bytes
    offsets: Offsets


def is_string(kind: pa.DataType) -> bool:
    """Whether this is one of the two Arrow types of text that the tokenizers take."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def bounds_of(texts: pa.Array) -> Offsets:
    """Where in a string array's own bytes each row begins, and the last one ends."""
    if not is_string(texts.type):
        raise TokenizerError(f"texts must be strings, got {texts.type}.")
    width = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    size = len(texts) + 1
    offsets = texts.buffers()[1]
    if offsets is None or offsets.size == 0:
        return np.zeros(size, np.int64)
    return np.frombuffer(offsets, width)[texts.offset : texts.offset + size].astype(np.int64)


def flatten(texts: pa.Array) -> FlatText:
    """Returns the bytes of the rows of a string array, without what lies around a slice."""
    bounds = bounds_of(texts)
    data = texts.buffers()[2]
    own = b"" if data is None else data.slice(bounds[0], bounds[-1] - bounds[0]).to_pybytes()
    return FlatText(own, bounds - bounds[0])


@functools.cache
def _class_table(class_of: Callable[[int], int]) -> Bytes:
    """The classes of all code points; those beyond ASCII are unknown until they are seen."""
    table = np.full(_CODE_POINTS, UNKNOWN, np.uint8)
    table[:ASCII] = [class_of(point) for point in range(ASCII)]
    return table


def _classes_of(points: npt.NDArray[np.int32], class_of: Callable[[int], int]) -> Bytes:
    """Looks classes up, and fills in those not seen before; filling twice does no harm."""
    table = _class_table(class_of)
    classes = table[points]
    for point in set(points[classes == UNKNOWN].tolist()):
        table[point] = class_of(point)
    return table[points]


def classify(data: bytes, class_of: Callable[[int], int]) -> Bytes:
    """Gives every byte of UTF-8 text the class of the character it belongs to."""
    ascii_classes = _class_table(class_of)[:ASCII].tobytes().ljust(256, b"\0")
    classes = np.frombuffer(bytearray(data.translate(ascii_classes)), np.uint8)
    if data.isascii():
        return classes
    raw = np.frombuffer(data, np.uint8)
    leads = np.flatnonzero(raw >= 0xC0)
    sizes = 2 + (raw[leads] >= 0xE0).astype(np.int8) + (raw[leads] >= 0xF0)
    for size in (2, 3, 4):
        at = leads[sizes == size]
        points = raw[at].astype(np.int32) & (0x7F >> size)
        for step in range(1, size):
            points = points << 6 | (raw[at + step] & 0x3F)
        found = _classes_of(points, class_of)
        for step in range(size):
            classes[at + step] = found
    return classes


def row_starts(flat: FlatText) -> Mask:
    """Marks the bytes with which rows begin, and the end."""
    starts = np.zeros(len(flat.data) + 1, bool)
    starts[flat.offsets] = True
    return starts


def runs(inside: Mask, offsets: Offsets) -> tuple[Offsets, Offsets]:
    """Returns where the maximal runs of marked bytes within rows begin, and their sizes.

    Args:
      inside: (n,) bool, a mark for each byte.
      offsets: (rows + 1,) where each row begins; a run does not cross a row's border.
    """
    borders = offsets[(offsets > 0) & (offsets < len(inside))]
    cuts = borders[inside[borders - 1] & inside[borders]]
    first, last = inside.copy(), inside.copy()
    np.greater(inside[1:], inside[:-1], out=first[1:])
    np.greater(inside[:-1], inside[1:], out=last[:-1])
    first[cuts] = True
    last[cuts - 1] = True
    starts = np.flatnonzero(first)
    return starts, np.flatnonzero(last) + 1 - starts


def runs_with(wanted: Mask, inside: Mask, offsets: Offsets) -> Mask:
    """Keeps the runs of `inside` that have a wanted byte."""
    _, sizes = runs(inside, offsets)
    result = np.zeros_like(inside)
    if sizes.size:
        # The marked bytes in a row, run after run.
        first = np.cumsum(sizes) - sizes
        result[inside] = np.repeat(np.logical_or.reduceat(wanted[inside], first), sizes)
    return result


def split(flat: FlatText, inside: Mask) -> pa.ListArray:
    """Cuts rows into the maximal runs of bytes that are `inside` a token."""
    starts, sizes = runs(inside, flat.offsets)
    values = np.frombuffer(flat.data, np.uint8)[inside]
    if values.size > MAX_OFFSET:
        raise TokenizerError("tokens of one batch must be below 2 GB. Read with smaller blocks.")
    token_offsets = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(sizes, out=token_offsets[1:])
    strings = pa.StringArray.from_buffers(
        len(starts), pa.py_buffer(token_offsets), pa.py_buffer(values)
    )
    list_offsets = np.searchsorted(starts, flat.offsets).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(list_offsets), strings)
