"""Arrow columns of users and texts: their types, documents of records, and row groups of Parquet."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beam_dpne.errors import InputError
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.rejects import BAD_TOKENS, EMPTY_USER, NO_TEXT, NO_USER, TOO_LONG

_MAX_ROWS = 65536
# Type of the users of `sequences`, where each line of each file is a user: the file's index, and the
# line's offset.
NAMED_USER = pa.binary(16)
_REMEDY = (
    "Convert it before, copy a field within a field into a field of the document, and drop documents "
    "without a user, whose integers become floats in a data frame."
)


def is_text(kind: pa.DataType) -> bool:
    """Returns whether a type is string or large_string; few functions of Arrow take string views."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_list(kind: pa.DataType) -> bool:
    """Returns whether a type is list or large_list."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def user_column(users: pa.Array, name: str) -> pa.Array:
    """Returns users as strings, with integers as decimal digits, and keeps nulls and 16-byte names.

    Raises:
      InputError: The column has another type.

    >>> user_column(pa.array([7, -1]), "user").to_pylist()
    ['7', '-1']
    """
    kind = _plain(users.type)
    if kind == NAMED_USER:
        return users
    if not (_may_be_text(kind) or pa.types.is_integer(kind)):
        raise InputError(
            f"A user must be text or an integer, got {_name_of(kind)} in {name!r}. {_REMEDY}"
        )
    return as_strings(users)


def text_column(texts: pa.Array, name: str) -> pa.Array:
    """Returns texts as strings, or lists of tokens as lists of strings, and keeps nulls.

    Raises:
      InputError: The column has another type.
    """
    kind = _plain(texts.type)
    if _may_be_text(kind):
        return as_strings(texts)
    if is_list(kind) and _may_be_text(_plain(kind.value_type)):
        return texts.cast(pa.list_(pa.string()))
    raise InputError(
        f"A text must be text or a list of texts, got {_name_of(kind)} in {name!r}. {_REMEDY}"
    )


def as_strings(values: pa.Array) -> pa.Array:
    """Casts values to string; dictionaries are decoded, and values with parts are refused."""
    kind = _plain(values.type)
    if pa.types.is_nested(kind):
        raise InputError(f"Further fields must be text, numbers or times, got {_name_of(kind)}.")
    return (values if kind == values.type else values.cast(kind)).cast(pa.string())


def _plain(kind: pa.DataType) -> pa.DataType:
    """Returns the type of a dictionary's values, and other types as they are."""
    return kind.value_type if isinstance(kind, pa.DictionaryType) else kind


def _may_be_text(kind: pa.DataType) -> bool:
    """Returns whether a column's values can be cast to strings without changing their meaning."""
    return is_text(kind) or pa.types.is_string_view(kind) or pa.types.is_null(kind)


def _name_of(kind: pa.DataType) -> str:
    """Returns a type's name for an error, without names of fields within it, which may be values."""
    return str(kind).partition("<")[0]


def interleaved(user: pa.Array, texts: Sequence[pa.Array]) -> pa.RecordBatch:
    """Makes each text of a record that is not null a document of its user.

    >>> interleaved(pa.array(["ann"]), [pa.array(["a"]), pa.array(["b"])])["text"].to_pylist()
    ['a', 'b']
    """
    if len(texts) == 1:
        return pa.RecordBatch.from_arrays([user, texts[0]], names=["user", "text"])
    # Texts are concatenated field by field, so that text f of record r is at f · rows + r. `order`,
    # (rows · fields,), sorts these indices by record, then by field.
    order = np.arange(len(user) * len(texts)).reshape(len(texts), len(user)).T.ravel()
    text = pa.concat_arrays(list(texts)).take(pa.array(order))
    present = np.flatnonzero(text.is_valid().to_numpy(zero_copy_only=False))
    return interleaved(user.take(pa.array(present // len(texts))), [text.take(pa.array(present))])


def row_group_ranges(file: pq.ParquetFile, split_bytes: int) -> list[tuple[int, int]]:
    """Returns ranges of row groups of about `split_bytes`, each as (first, one after the last)."""
    ranges, start, size = [], 0, 0
    count = file.metadata.num_row_groups
    for group in range(count):
        size += file.metadata.row_group(group).total_byte_size
        if size >= split_bytes or group == count - 1:
            ranges.append((start, group + 1))
            start, size = group + 1, 0
    return ranges


def read_row_groups(
    file: pq.ParquetFile, groups: range, options: ReadOptions
) -> Iterator[tuple[list[pa.Array], list[tuple[int, str]], int, int]]:
    """Yields the columns of usable rows, the rejected rows, and the first and last row of both."""
    row = sum(file.metadata.row_group(group).num_rows for group in range(groups.start))
    names = [name for _, name in options.wanted_fields]
    for group in groups:
        found = file.metadata.row_group(group)
        rows = options.block_bytes * found.num_rows // max(1, found.total_byte_size)
        size = min(_MAX_ROWS, max(1, rows))
        for batch in file.iter_batches(size, row_groups=[group], columns=names):
            columns, faults = _checked(*map(batch.column, names), options=options)
            rejects = [(row + place, reason) for place, reason in faults]
            yield columns, rejects, row, row + batch.num_rows
            row += batch.num_rows


def _checked(
    user: pa.Array, *others: pa.Array, options: ReadOptions
) -> tuple[list[pa.Array], list[tuple[int, str]]]:
    """Returns the columns of usable rows, and each faulty row with the first reason that applies.

    Raises:
      InputError: A column has a type that cannot be read.
      pyarrow.ArrowInvalid: A text is not UTF-8, as the format demands.
    """
    count = len(options.text_fields)
    user = user_column(user, options.user_field)
    names = zip(others, options.text_fields, strict=False)
    texts = [text_column(column, name) for column, name in names]
    if any(is_list(text.type) != options.text_is_tokens for text in texts):
        raise InputError(
            "Texts must be lists of texts for tokenizer 'tokens', and text for others."
        )
    columns = [user, *texts, *map(as_strings, others[count:])]
    for column in columns:
        column.validate(full=True)
    no_text = np.logical_and.reduce([_mask(text.is_null()) for text in texts])
    # Each fault is a mask of the rows that have it, (rows,) bool, and the reason of their rejection.
    faults = [(_mask(user.is_null()), NO_USER), (no_text, NO_TEXT)]
    # (rows,) bytes of each record.
    length = _lengths(user)
    faults.append((length == 0, EMPTY_USER))
    for text in texts:
        if options.text_is_tokens:
            tokens = text.flatten()
            rows = pc.call_function("list_parent_indices", [text]).to_numpy()
            nulls = np.bincount(rows, _mask(tokens.is_null()), len(text))
            faults.append((nulls > 0, BAD_TOKENS))
            length = length + np.bincount(rows, _lengths(tokens) + 1, len(text))
        else:
            length = length + _lengths(text)
    faults.append((length > options.max_record_bytes, TOO_LONG))
    bad = np.logical_or.reduce([fault for fault, _ in faults])
    rejects = [
        (int(row), next(reason for fault, reason in faults if fault[row]))
        for row in np.flatnonzero(bad)
    ]
    keep = pa.array(~bad)
    return [column.filter(keep) for column in columns], rejects


def _mask(values: pa.Array) -> np.ndarray:
    return values.to_numpy(zero_copy_only=False).astype(bool)


def _lengths(values: pa.Array) -> np.ndarray:
    """Returns the bytes of each value, 0 for nulls: (n,) int64."""
    return pc.call_function("binary_length", [values.fill_null("")]).to_numpy().astype(np.int64)
