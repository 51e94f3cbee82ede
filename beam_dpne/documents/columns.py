"""Record batches of documents: their columns become users as strings, and texts or lists of tokens."""

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.documents.row_types import REMEDY
from beam_dpne.elements.text_types import is_list, is_text
from beam_dpne.reading.batches import NAMED_USER, as_text, plain, record_batch

USER, TEXT = "user", "text"
TOKEN_LISTS = pa.list_(pa.string())


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
    for name in (user_field, *text_fields):
        if batch.schema.names.count(name) != 1:
            raise ValueError(
                f"A batch of documents must have one column {name!r}, got "
                f"{batch.schema.names.count(name)} of them. Name its columns with user_field and "
                "text_field."
            )
    users = user_column(batch.column(user_field), user_field)
    columns = [text_column(batch.column(name), name) for name in text_fields]
    if not any(column.null_count for column in columns):
        yield from (record_batch(users, texts) for texts in columns)
        return
    # (rows,) bool for each text column, whether the row has a text there.
    present = [column.is_valid() for column in columns]
    if not np.logical_or.reduce([mask.to_numpy(zero_copy_only=False) for mask in present]).all():
        raise ValueError(
            "Each document must have a text, got a null in "
            f"{' and '.join(map(repr, text_fields))}; drop those documents."
        )
    for texts, mask in zip(columns, present, strict=True):
        yield record_batch(users.filter(mask), texts.filter(mask))


def user_column(users: pa.Array, name: str = USER) -> pa.Array:
    """Returns users as strings, with integers as decimal digits, and keeps 16-byte names.

    Raises:
      TypeError: The column has another type.
      ValueError: A user is null or empty.
    """
    kind = plain(users.type)
    if users.type != NAMED_USER:
        if not (_may_be_text(kind) or pa.types.is_integer(kind)):
            raise TypeError(
                f"The column {name!r} must hold strings, integers or fixed_size_binary(16), "
                f"got {kind}. {REMEDY}"
            )
        users = _cast(as_text(users), pa.string(), name)
    if users.null_count:
        raise ValueError(f"The column {name!r} must not have nulls; drop those documents.")
    if users.type != NAMED_USER and not pc.call_function("binary_length", [users]).to_numpy().all():
        raise ValueError(f"The column {name!r} must not have empty users; drop those documents.")
    return users


def text_column(texts: pa.Array, name: str) -> pa.Array:
    """Returns texts as strings, or lists of tokens as lists of strings, and keeps nulls.

    Raises:
      TypeError: The column has another type.
      ValueError: A token is null.
    """
    kind = plain(texts.type)
    if is_list(kind) and _may_be_text(plain(kind.value_type)):
        lists = cast("pa.ListArray", _cast(texts, TOKEN_LISTS, name))
        if lists.flatten().null_count:
            raise ValueError(f"The column {name!r} must not have null tokens; leave them out.")
        return lists
    if _may_be_text(kind):
        return _cast(as_text(texts), pa.string(), name)
    raise TypeError(f"The column {name!r} must hold texts, or lists of texts, got {kind}. {REMEDY}")


def _may_be_text(kind: pa.DataType) -> bool:
    """Returns whether a column's values can be cast to strings without changing their meaning."""
    return is_text(kind) or pa.types.is_string_view(kind) or pa.types.is_null(kind)


def _cast(values: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """Casts a column; its error has only the type of Arrow's error, whose message may quote data."""
    if values.type == kind:
        return values
    try:
        return values.cast(kind)
    except pa.ArrowException as error:
        raise ValueError(
            f"The column {name!r} cannot be cast from {values.type} to {kind} "
            f"({type(error).__name__}); give smaller batches, or cast it before."
        ) from None
