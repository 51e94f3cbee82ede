"""Reader of Parquet: row groups become documents, and faulty rows become rejects."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beam_dpne.elements.arrays import is_list, is_text
from beam_dpne.errors import InputError
from beam_dpne.reading.batches import Batch, as_text, batch_of, plain
from beam_dpne.reading.files import InputFile
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.rejects import (
    BAD_TOKENS,
    EMPTY_USER,
    NO_TEXT,
    NO_USER,
    NOT_DECODED,
    TOO_LONG,
)
from beam_dpne.reading.text import is_utf8

Offsets = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_MAX_ROWS = 65536


def check_schema(path: str, schema: pa.Schema, options: ReadOptions) -> None:
    """Raises InputError unless the wanted fields exist with types that can be read."""
    for option, name in options.wanted_fields:
        if schema.names.count(name) != 1:
            raise InputError(
                f"{option} must name a column of {path}, got {option}={name!r}. Its columns are "
                f"{', '.join(schema.names)}."
            )
    for name in options.fields or ():
        _check_other(path, name, plain(schema.field(name).type))
    user = schema.field(options.user_field).type
    if not (is_text(plain(user)) or pa.types.is_integer(plain(user))):
        raise InputError(
            f"column {options.user_field!r} of {path} must be text or integers, got {user}."
        )
    for name in options.text_fields:
        _check_text(path, name, schema.field(name).type, options)


def _check_other(path: str, name: str, kind: pa.DataType) -> None:
    """Raises InputError unless a further column holds values that have one text each."""
    has_text = is_text(kind) or pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
    if not (has_text or pa.types.is_null(kind)) or pa.types.is_interval(kind):
        raise InputError(
            f"fields must name columns of text, numbers, times or truth values, got the column "
            f"{name!r} of {path}, which holds {kind}."
        )


def _check_text(path: str, name: str, text: pa.DataType, options: ReadOptions) -> None:
    """Raises InputError unless a column of texts has the wanted type."""
    if is_list(text) and not options.text_is_tokens:
        raise InputError(
            f"column {name!r} of {path} must be text, got {text}. Use the tokenizer "
            "'tokens' for texts that are lists of tokens."
        )
    words = text.value_type if is_list(text) else text
    if is_list(text) != options.text_is_tokens or not is_text(plain(words)):
        wanted = "a list of texts" if options.text_is_tokens else "text"
        raise InputError(f"column {name!r} of {path} must be {wanted}, got {text}.")


def row_group_ranges(file: pq.ParquetFile, split_bytes: int) -> list[tuple[int, int]]:
    """Returns ranges of row groups of about `split_bytes`, each as (first, one after the last)."""
    ranges, start, size = [], 0, 0
    for group in range(file.metadata.num_row_groups):
        size += file.metadata.row_group(group).total_byte_size
        if size >= split_bytes:
            ranges.append((start, group + 1))
            start, size = group + 1, 0
    if start < file.metadata.num_row_groups:
        ranges.append((start, file.metadata.num_row_groups))
    return ranges


def read_row_groups(
    source: InputFile, file: pq.ParquetFile, groups: tuple[int, int], options: ReadOptions
) -> Iterator[tuple[Batch, int]]:
    """Reads a range of row groups.

    Yields:
      Batches of documents, each with its share of the file's bytes.

    Raises:
      InputError: A wanted field is missing or has a wrong type.
    """
    check_schema(source.path, file.schema_arrow, options)
    counts = [file.metadata.row_group(group).num_rows for group in range(groups[1])]
    row = sum(counts[: groups[0]])
    size = sum(file.metadata.row_group(group).total_byte_size for group in range(*groups))
    rows = max(1, sum(counts[groups[0] :]))
    per_batch = min(_MAX_ROWS, max(1, options.block_bytes * rows // max(1, size)))
    names = [name for _, name in options.wanted_fields]
    batches = file.iter_batches(per_batch, row_groups=list(range(*groups)), columns=names)
    for batch in batches:
        positions = np.arange(row, row + batch.num_rows)
        done = _share(source.size, row + batch.num_rows, file) - _share(source.size, row, file)
        row += batch.num_rows
        yield documents_of_columns(batch, positions, options), done


def _share(size: int, rows: int, file: pq.ParquetFile) -> int:
    """Returns the share of `size` that belongs to the first rows of a file."""
    return size * rows // max(1, file.metadata.num_rows)


def documents_of_columns(batch: pa.RecordBatch, positions: Offsets, options: ReadOptions) -> Batch:
    """Casts the columns, and rejects each faulty row for the first reason that applies."""
    user = as_text(batch.column(options.user_field))
    texts = [batch.column(name) for name in options.text_fields]
    others = [as_text(batch.column(name)) for name in options.fields or ()]
    texts = texts if options.text_is_tokens else [as_text(text) for text in texts]
    no_text = np.logical_and.reduce([_mask(text.is_null()) for text in texts])
    # Each fault is a mask of the rows that have it, (rows,) bool, and the reason of their rejection.
    faults = [(_mask(user.is_null()), NO_USER), (no_text, NO_TEXT)]
    # (rows,) bytes of each record.
    length = _lengths(user)
    for text in texts:
        if options.text_is_tokens:
            faults += _faults_of_tokens(text)
            length = length + _token_lengths(text)
        else:
            faults.append((~valid_utf8(text), NOT_DECODED))
            length = length + _lengths(text)
    faults += [
        *((~valid_utf8(values), NOT_DECODED) for values in (user, *others)),
        (_lengths(user) == 0, EMPTY_USER),
        (length > options.max_record_bytes, TOO_LONG),
    ]
    bad = np.logical_or.reduce([fault for fault, _ in faults])
    rejects = [
        (int(positions[row]), next(reason for fault, reason in faults if fault[row]))
        for row in np.flatnonzero(bad)
    ]
    keep = pa.array(~bad)
    kind = pa.list_(pa.string()) if options.text_is_tokens else pa.string()
    columns = [
        user.filter(keep).cast(pa.string()),
        *(text.filter(keep).cast(kind, safe=True) for text in texts),
        *(values.filter(keep).cast(pa.string()) for values in others),
    ]
    return batch_of(columns, rejects, options.record_names, "row")


def _mask(values: pa.Array) -> Mask:
    return values.to_numpy(zero_copy_only=False).astype(bool)


def valid_utf8(values: pa.Array) -> Mask:
    """Returns which values of a string array are UTF-8: (n,) bool."""
    large = pa.types.is_large_string(values.type)
    raw = values.cast(pa.large_binary() if large else pa.binary())
    try:
        raw.cast(values.type)
    except pa.ArrowInvalid:
        return np.fromiter((is_utf8(value or b"") for value in raw.to_pylist()), bool, len(raw))
    return np.ones(len(values), bool)


def _lengths(values: pa.Array) -> np.ndarray:
    """Returns the bytes of each value, 0 for nulls: (n,) int64."""
    return pc.call_function("binary_length", [values.fill_null("")]).to_numpy().astype(np.int64)


def _token_rows(text: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Returns the tokens of all rows, and the row of each token."""
    return as_text(text.flatten()), pc.call_function("list_parent_indices", [text]).to_numpy()


def _token_lengths(text: pa.Array) -> np.ndarray:
    """Returns the bytes of each row's tokens, with a blank after each token: (rows,) int64."""
    values, rows = _token_rows(text)
    return np.bincount(rows, weights=_lengths(values) + 1, minlength=len(text)).astype(np.int64)


def _faults_of_tokens(text: pa.Array) -> list[tuple[Mask, str]]:
    """Returns masks of the rows that have null tokens, or tokens that are not UTF-8."""
    values, rows = _token_rows(text)
    null, foreign = np.zeros(len(text), bool), np.zeros(len(text), bool)
    null[rows[_mask(values.is_null())]] = True
    foreign[rows[~valid_utf8(values)]] = True
    return [(null, BAD_TOKENS), (foreign, NOT_DECODED)]
