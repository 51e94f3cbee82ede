"""Building checked Arrow columns from spans of bytes."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.reading.records import Offsets
from beam_dpne.reading.rejects import EMPTY_USER, NOT_UTF8

Mask = npt.NDArray[np.bool_]


class Batch(NamedTuple):
    """What one block holds.

    Attributes:
      documents: Of the usable records; one record with several texts has several.
      rejects: Position and reason of each record that cannot be used.
      usable: How many records the documents come from.
    """

    documents: pa.RecordBatch
    rejects: list[tuple[int, str]]
    usable: int


def record_batch(user: pa.Array, text: pa.Array) -> pa.RecordBatch:
    """Puts the two columns of documents together."""
    return pa.RecordBatch.from_arrays([user, text], names=["user", "text"])


def interleaved(user: pa.Array, texts: Sequence[pa.Array]) -> pa.RecordBatch:
    """Makes each text of a record a document of its user; nulls are none.

    >>> interleaved(pa.array(["ann"]), [pa.array(["a"]), pa.array(["b"])])["text"].to_pylist()
    ['a', 'b']
    """
    if len(texts) == 1:
        return record_batch(user, texts[0])
    rows, fields = len(user), len(texts)
    # By record, then by field: place f · rows + r of the fields one after the other.
    order = np.arange(rows * fields).reshape(fields, rows).T.ravel()
    text = pa.concat_arrays(list(texts)).take(pa.array(order))
    present = np.flatnonzero(~text.is_null().to_numpy(zero_copy_only=False).astype(bool))
    owners = pa.array(present // fields)
    return record_batch(user.take(owners), text.take(pa.array(present)))


def gather(data: bytes, starts: Offsets, ends: Offsets, drop: Offsets | None = None) -> pa.Array:
    """Copies ordered, disjoint spans of bytes into a binary array.

    Args:
      data: The bytes.
      starts: Where each span begins.
      ends: Where each span ends.
      drop: Sorted positions within spans that are left out.
    """
    lengths = ends - starts
    edges = np.zeros(len(data) + 1, np.int8)
    filled = lengths > 0
    edges[starts[filled]] += 1
    edges[ends[filled]] -= 1
    inside = np.cumsum(edges[:-1], dtype=np.int8).view(bool)
    if drop is not None and drop.size:
        inside[drop] = False
        lengths = lengths - (np.searchsorted(drop, ends) - np.searchsorted(drop, starts))
    values = np.frombuffer(data, np.uint8)[inside]
    offsets = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), len(starts), buffers)


def valid_utf8(values: pa.Array) -> Mask:
    """Which values of a binary or string array are UTF-8."""
    binary = pa.large_binary() if pa.types.is_large_string(values.type) else pa.binary()
    raw = values.cast(binary)
    try:
        raw.cast(pa.large_string() if binary == pa.large_binary() else pa.string())
    except pa.ArrowInvalid:
        return np.fromiter((_is_utf8(value) for value in raw.to_pylist()), bool, len(raw))
    return np.ones(len(values), bool)


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def checked(user: pa.Array, texts: Sequence[pa.Array], positions: Offsets) -> Batch:
    """Turns binary columns into documents; rejects what is not UTF-8, and empty users."""
    is_text = np.logical_and.reduce([valid_utf8(values) for values in (user, *texts)])
    named = pc.call_function("binary_length", [user]).to_numpy(zero_copy_only=False) > 0
    good = is_text & named
    rejects = [
        (int(positions[row]), EMPTY_USER if is_text[row] else NOT_UTF8)
        for row in np.flatnonzero(~good)
    ]
    if rejects:
        keep = pa.array(good)
        user, texts = user.filter(keep), [text.filter(keep) for text in texts]
    documents = interleaved(user.cast(pa.string()), [text.cast(pa.string()) for text in texts])
    return Batch(documents, rejects, len(user))
