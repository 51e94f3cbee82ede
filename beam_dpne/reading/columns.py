"""Columns of users and texts: from spans of bytes, or from Arrow columns of several types.

Readers of text cut fields out of a block of bytes (`gather`, `checked`). Documents that are in Arrow
columns already are checked and brought into one normal form (`normalized_batches`).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.reading.records import Offsets
from beam_dpne.reading.rejects import EMPTY_USER, NOT_UTF8

Mask = npt.NDArray[np.bool_]


class Batch(NamedTuple):
    """The documents and rejects of one block.

    Attributes:
      documents: Documents of the usable records; a record with several texts has several documents.
      rejects: Position and reason of each record that cannot be used.
      usable: Number of records that the documents come from.
    """

    documents: pa.RecordBatch
    rejects: list[tuple[int, str]]
    usable: int


def record_batch(user: pa.Array, text: pa.Array) -> pa.RecordBatch:
    """Returns the two columns of documents as one batch."""
    return pa.RecordBatch.from_arrays([user, text], names=["user", "text"])


def interleaved(user: pa.Array, texts: Sequence[pa.Array]) -> pa.RecordBatch:
    """Makes each text of a record that is not null a document of its user.

    >>> interleaved(pa.array(["ann"]), [pa.array(["a"]), pa.array(["b"])])["text"].to_pylist()
    ['a', 'b']
    """
    if len(texts) == 1:
        return record_batch(user, texts[0])
    rows, fields = len(user), len(texts)
    # Texts are concatenated field by field, so that text f of record r is at f · rows + r. `order`
    # sorts them by record, then by field.
    order = np.arange(rows * fields).reshape(fields, rows).T.ravel()
    text = pa.concat_arrays(list(texts)).take(pa.array(order))
    present = np.flatnonzero(~text.is_null().to_numpy(zero_copy_only=False).astype(bool))
    owners = pa.array(present // fields)
    return record_batch(user.take(owners), text.take(pa.array(present)))


def gather(data: bytes, starts: Offsets, ends: Offsets, drop: Offsets | None = None) -> pa.Array:
    """Copies ordered, disjoint spans of bytes into a binary array.

    Args:
      data: The bytes.
      starts: (n,) where each span begins.
      ends: (n,) where each span ends.
      drop: Sorted positions within spans that are left out.
    """
    lengths = ends - starts
    # (bytes,) +1 where a span begins and -1 where one ends. The cumulative sum is 1 within spans, which
    # copies all of them by one mask; empty spans would cancel out a neighbour's edge.
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
    """Returns which values of a binary or string array are UTF-8: (n,) bool."""
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
    """Turns binary columns into documents; rejects records that are not UTF-8 or have no user."""
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


USER, TEXT = "user", "text"
# Type of the users of `sequences`, where each line of each file is a user.
NAMED_USER = pa.binary(16)
_TEXTS = pa.list_(pa.string())


def is_text(kind: pa.DataType) -> bool:
    """Returns whether a type is string or large_string; few functions of Arrow take string views."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_list(kind: pa.DataType) -> bool:
    """Returns whether a type is list or large_list."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def plain(kind: pa.DataType) -> pa.DataType:
    """Returns the type of a dictionary's values, and other types as they are."""
    return kind.value_type if isinstance(kind, pa.DictionaryType) else kind


def as_text(values: pa.Array) -> pa.Array:
    """Casts values to string, unless they are string or large_string; dictionaries are decoded.

    >>> as_text(pa.array([7, -1])).to_pylist()
    ['7', '-1']
    """
    if isinstance(values.type, pa.DictionaryType):
        values = values.cast(values.type.value_type)
    return values if is_text(values.type) else values.cast(pa.string())


def user_column(users: pa.Array, name: str = USER) -> pa.Array:
    """Returns users as strings, integers as decimal digits; 16-byte names stay as they are.

    Raises:
      TypeError: The column has another type.
      ValueError: A user is null or empty.
    """
    kind = plain(users.type)
    if users.type != NAMED_USER:
        if not (_may_be_text(kind) or pa.types.is_integer(kind)):
            raise TypeError(
                f"The column {name!r} must hold strings, integers or fixed_size_binary(16), "
                f"got {kind}."
            )
        users = _cast(as_text(users), pa.string(), name)
    if users.null_count:
        raise ValueError(f"The column {name!r} must not have nulls; drop those documents.")
    if pa.types.is_string(users.type) and _has_empty(users):
        raise ValueError(f"The column {name!r} must not have empty users; drop those documents.")
    return users


def text_column(texts: pa.Array, name: str = TEXT) -> pa.Array:
    """Returns texts as strings, or lists of tokens as lists of strings; nulls stay.

    Raises:
      TypeError: The column has another type.
    """
    kind = plain(texts.type)
    if is_list(kind) and _may_be_text(plain(kind.value_type)):
        return _cast(texts, _TEXTS, name)
    if _may_be_text(kind):
        return _cast(as_text(texts), pa.string(), name)
    raise TypeError(f"The column {name!r} must hold texts, or lists of texts, got {kind}.")


def document_columns(batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
    """Returns the columns `user` and `text` of one batch, checked and in their normal form."""
    ((users, texts),) = _documents(batch, USER, (TEXT,))
    return users, texts


def normalized_batches(
    batch: pa.RecordBatch, user_field: str, text_fields: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yields the documents of each text column, as batches with columns `user` and `text`.

    Args:
      batch: Any record batch that has the columns.
      user_field: Name of the users' column.
      text_fields: Names of the texts' columns. If there are several, null texts are left out.

    Raises:
      ValueError: A column is missing or there are two of its name, or a row has no user or no text.
      TypeError: A column has a wrong type.
    """
    for users, texts in _documents(batch, user_field, text_fields):
        yield pa.RecordBatch.from_arrays([users, texts], names=[USER, TEXT])


def _documents(
    batch: pa.RecordBatch, user_field: str, text_fields: Sequence[str]
) -> Iterator[tuple[pa.Array, pa.Array]]:
    for name in (user_field, *text_fields):
        if batch.schema.names.count(name) != 1:
            raise ValueError(
                f"A batch of documents must have one column {name!r}, got "
                f"{batch.schema.names.count(name)} of them. Name its columns with user_field and "
                "text_field of BatchDocuments."
            )
    users = user_column(batch.column(user_field), user_field)
    columns = [text_column(batch.column(name), name) for name in text_fields]
    if not any(column.null_count for column in columns):
        yield from ((users, texts) for texts in columns)
        return
    present = [column.is_valid() for column in columns]
    if not np.logical_or.reduce([mask.to_numpy(zero_copy_only=False) for mask in present]).all():
        raise ValueError(
            "Each document must have a text, got a null in "
            f"{' and '.join(map(repr, text_fields))}; drop those documents."
        )
    for texts, mask in zip(columns, present, strict=True):
        yield users.filter(mask), texts.filter(mask)


def _may_be_text(kind: pa.DataType) -> bool:
    """Returns whether a column's values can be cast to strings without changing their meaning."""
    return is_text(kind) or pa.types.is_string_view(kind) or pa.types.is_null(kind)


def _has_empty(users: pa.Array) -> bool:
    shortest = pc.call_function("min", [pc.call_function("binary_length", [users])])
    return shortest.as_py() == 0


def _cast(values: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """Casts a column; errors report the type of Arrow's error, whose message may quote a value."""
    if values.type == kind:
        return values
    try:
        return values.cast(kind)
    except pa.ArrowException as error:
        raise ValueError(
            f"The column {name!r} cannot be cast from {values.type} to {kind} "
            f"({type(error).__name__}); give smaller batches, or cast it before."
        ) from None
