"""Parquet: row groups become columns of the wanted fields, and faulty rows become rejects."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beam_dpne.elements.arrays import as_text, is_list, is_text, plain
from beam_dpne.errors import InputError
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.rejects import BAD_TOKENS, EMPTY_USER, NO_TEXT, NO_USER, TOO_LONG

_MAX_ROWS = 65536


def check_schema(path: str, schema: pa.Schema, options: ReadOptions) -> None:
    """Raises InputError unless the wanted fields exist with types that can be read."""
    for option, name in options.wanted_fields:
        if schema.names.count(name) != 1:
            raise InputError(
                f"{option} must name a column of {path}, got {option}={name!r}. Its columns are "
                f"{', '.join(schema.names)}."
            )
        kind = plain(schema.field(name).type)
        if option == "text_field" and options.text_is_tokens:
            wanted = "a list of texts"
            is_right = is_list(kind) and is_text(plain(kind.value_type))
        elif option == "text_field":
            wanted, is_right = "text (lists of tokens need tokenizer 'tokens')", is_text(kind)
        elif option == "user_field":
            wanted, is_right = "text or integers", is_text(kind) or pa.types.is_integer(kind)
        else:
            wanted = "text, numbers, times or truth values"
            is_right = is_text(kind) or not (pa.types.is_nested(kind) or pa.types.is_binary(kind))
        if not is_right:
            raise InputError(f"column {name!r} of {path} must be {wanted}, got {kind}.")


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
            columns, faults = _checked([batch.column(name) for name in names], options)
            rejects = [(row + place, reason) for place, reason in faults]
            yield columns, rejects, row, row + batch.num_rows
            row += batch.num_rows


def _checked(
    columns: list[pa.Array], options: ReadOptions
) -> tuple[list[pa.Array], list[tuple[int, str]]]:
    """Returns the columns of usable rows, and each faulty row with the first reason that applies.

    Raises:
      pyarrow.ArrowInvalid: A text is not UTF-8, as the format demands.
    """
    count = len(options.text_fields)
    is_text = [not options.text_is_tokens or not 0 < i <= count for i in range(len(columns))]
    columns = [as_text(x) if text else x for x, text in zip(columns, is_text, strict=True)]
    for column in columns:
        column.validate(full=True)
    user, *texts = columns[: count + 1]
    no_text = np.logical_and.reduce([_mask(text.is_null()) for text in texts])
    # Each fault is a mask of the rows that have it, (rows,) bool, and the reason of their rejection.
    faults = [(_mask(user.is_null()), NO_USER), (no_text, NO_TEXT)]
    # (rows,) bytes of each record.
    length = _lengths(user)
    faults.append((length == 0, EMPTY_USER))
    for text in texts:
        if options.text_is_tokens:
            tokens = as_text(text.flatten())
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
    kinds = [pa.string() if text else pa.list_(pa.string()) for text in is_text]
    keep = pa.array(~bad)
    return [x.filter(keep).cast(kind) for x, kind in zip(columns, kinds, strict=True)], rejects


def _mask(values: pa.Array) -> np.ndarray:
    return values.to_numpy(zero_copy_only=False).astype(bool)


def _lengths(values: pa.Array) -> np.ndarray:
    """Returns the bytes of each value, 0 for nulls: (n,) int64."""
    return pc.call_function("binary_length", [values.fill_null("")]).to_numpy().astype(np.int64)
