"""A frame as an input: what gives a stream of Arrow, or record batches, is read once and held.

Only the columns that a run reads are held. They are described as those of a file of Parquet, since one
body reads both (`row_groups`): a frame and a file of Parquet with the same rows are the same input.
"""

import dataclasses
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from beam_dpne.errors import AbsentFieldError, InputError, kind_of
from beam_dpne.reading.field_errors import named_fields, require_fields
from beam_dpne.reading.files import InputFile, WorkItem
from beam_dpne.reading.held import FRAME, OF_TYPES, HeldTable
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.row_groups import place_of
from beam_dpne.validation import is_name, told_name, told_value

if TYPE_CHECKING:
    import pandas as pd

# What messages call the input.
_KIND = "parquet"
# Parameters of files that a frame has no use for.
_OF_FILES = ("input_format", "encoding", "delimiter", "quoting", "columns", "records")
# What may be wrong with texts that UTF-8 does not have.
_HALVES = (
    "A text, or a user, has half of a character (a lone surrogate), which UTF-8 does not have: "
    'frame[name].str.encode("utf-8", "replace").str.decode("utf-8") of pandas makes it a "?".'
)
# A batch whose buffers are so many times as large as its part of them is copied.
_SHARED = 2


@dataclasses.dataclass(frozen=True, eq=False)
class Frame:
    """What a caller gives as a frame; it is read when a run reads its input, and only once.

    Attributes:
      given: an object with the method `__arrow_c_stream__`, or record batches.
    """

    given: Any = dataclasses.field(repr=False)


def frame_file(frame: Frame, options: ReadOptions) -> tuple[InputFile, ReadOptions]:
    """Reads a frame, and returns it as the one file of an input, and how that is read.

    Args:
      frame: The frame.
      options: How an input is read.

    Raises:
      InputError: It is no frame, lacks a wanted field, or Arrow cannot read it.
    """
    for name in _OF_FILES:
        value = getattr(options, name)
        if value not in (getattr(ReadOptions, name), _KIND):
            raise InputError(
                f"`{name}` must be left out for a frame, got `{name}={told_value(value)}`: it says how "
                "files are read."
            )
    options = dataclasses.replace(options, input_format=_KIND)
    schema, batches = _opened(frame.given, options)
    item = WorkItem(InputFile(0, FRAME, 0), _KIND)
    try:
        require_fields(schema.names, item, options, schema)
    except AbsentFieldError as error:
        raise AbsentFieldError(f"{error}{_about_names(frame.given)}") from None
    places = [place_of(schema, field) for _, field in named_fields(options)]
    # A name that is there once is that of one column.
    wanted = sorted({place.names[0] for place in places if place is not None})
    kept = pa.schema([_without_view(schema.field(name)) for name in wanted])
    held = list[pa.RecordBatch]()
    try:
        held.extend(_alone(batch.select(wanted), kept) for batch in batches)
    except InputError:
        raise
    except Exception as error:
        raise _unreadable(error) from None
    table = HeldTable(kept, held)
    # A frame without rows is read, as a file of Parquet without rows is.
    return InputFile(0, FRAME, max(1, table.size), table=table), options


def _without_view(field: pa.Field) -> pa.Field:
    """Returns a column of texts in views as one of texts: a part of views has the buffers of all."""
    if pa.types.is_string_view(field.type):
        return field.with_type(pa.large_string())
    return field.with_type(pa.large_binary()) if pa.types.is_binary_view(field.type) else field


def _alone(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Returns a batch with the columns that are held; a small part of others is copied.

    Raises:
      InputError: it has columns of other types.
    """
    types = [_without_view(field).type for field in batch.schema]
    if types != schema.types:
        raise InputError(f"{FRAME} must have record batches of one schema, got several.")
    columns = [column.cast(kind) for column, kind in zip(batch.columns, types, strict=True)]
    found = pa.RecordBatch.from_arrays(columns, schema=schema)
    if found.get_total_buffer_size() > _SHARED * found.nbytes:
        return found.take(pa.array(range(found.num_rows)))
    return found


def _opened(given: Any, options: ReadOptions) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    """Returns all columns of a frame, and its rows, which have at least the columns of a run."""
    pandas = sys.modules.get("pandas")
    try:
        if pandas is not None and isinstance(given, pandas.DataFrame):
            return _of_pandas(given, options)
        if isinstance(given, pa.RecordBatch):
            return given.schema, [given]
        if hasattr(given, "__arrow_c_stream__"):
            reader = pa.RecordBatchReader.from_stream(given)
            return reader.schema, reader
    except InputError:
        raise
    except Exception as error:
        # A column alone gives a stream, too.
        if not hasattr(given, "columns") and not hasattr(given, "schema"):
            raise _no_frame(given) from None
        raise _unreadable(error) from None
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | dict):
        raise _no_frame(given)
    try:
        batches: Iterator[Any] = iter(given)
        first: Any = next(batches, None)
    except Exception as error:
        raise _unreadable(error) from None
    if not isinstance(first, pa.RecordBatch):
        raise _no_frame(given)
    return first.schema, _all_batches(first, batches)


def _all_batches(first: pa.RecordBatch, others: Iterator[Any]) -> Iterator[pa.RecordBatch]:
    yield first
    for batch in others:
        if not isinstance(batch, pa.RecordBatch):
            raise _no_frame(batch)
        yield batch


def _of_pandas(
    frame: "pd.DataFrame", options: ReadOptions
) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    """Converts the columns that a run reads, also of the index; others may hold what Arrow cannot."""
    fields = [field for _, field in named_fields(options)]
    levels = [name for name in frame.index.names if name is not None and leads(name, fields)]
    if both := [name for name in levels if name in frame.columns]:
        raise InputError(
            f"a column and the index of {FRAME} must have different names, got "
            f"{told_name(str(both[0]))} for both. Give frame.reset_index(drop=True) if the column is "
            "meant."
        )
    if levels:
        frame = frame.reset_index(level=levels)
    names = [str(name) for name in frame.columns]
    is_wanted = [leads(name, fields) for name in names]
    several = {name for name in names if names.count(name) > 1}
    if several & {name for name, wanted in zip(names, is_wanted, strict=True) if wanted}:
        require_fields(names, WorkItem(InputFile(0, FRAME, 0), _KIND), options)
    table = pa.Table.from_pandas(frame.loc[:, is_wanted], preserve_index=False)
    found = {field.name: field for field in table.schema}
    # The others are there for messages alone.
    whole = [found.get(name, pa.field(name, pa.null())) for name in names]
    return pa.schema(whole), table.to_batches()


def _about_names(given: Any) -> str:
    """Returns a sentence about names of pandas that may be why a column is not found, or ""."""
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(given, pandas.DataFrame):
        return ""
    if given.columns.nlevels > 1:
        return (
            " The names of its columns have several levels: frame.columns = "
            '["_".join(map(str, name)) for name in frame.columns] makes each one text.'
        )
    if None not in given.index.names:
        return ""
    if isinstance(given.index, pandas.RangeIndex):
        return ""
    return " Its index has no name; frame.reset_index() makes it the column index."


def columns_of(given: Any) -> list[Any]:
    """Returns the names of the columns of a frame, and of the levels of its index, if it tells them."""
    # A column of pandas is an attribute of its frame, but not of the class.
    parts = [part for part in ("columns", "index") if getattr(type(given), part, None) is not None]
    names = list(getattr(given, "column_names", given.columns)) if "columns" in parts else []
    if "index" in parts:
        names += given.index.names
    return names


def name_within(given: Any, data: object) -> str | None:
    """Returns the name of a column, or of a level of the index, of a frame that data have, or None.

    Args:
      given: A frame.
      data: What may be one of its columns, or its index.
    """
    name = getattr(data, "name", None)
    names = columns_of(given)
    return name if isinstance(name, str) and name in names and is_name(name) else None


def leads(name: object, fields: Sequence[str]) -> bool:
    """Whether a path to a field may begin with the name of a column."""
    beginnings = (f"{name}.", f"{name}[")
    return any(field == str(name) or field.startswith(beginnings) for field in fields)


def _no_frame(given: object) -> InputError:
    remedy = " Collect it before." if type(given).__name__ == "LazyFrame" else ""
    if isinstance(given, Mapping | list | tuple):
        remedy = " pandas.DataFrame(rows) makes one of columns or records with names."
    return InputError(
        "frame must be a data frame that gives Arrow's stream (of pandas, polars, pyarrow, DuckDB, "
        f"Ibis), an iterable of record batches, or paths of files, got {type(given).__name__}.{remedy}"
    )


def _unreadable(error: Exception) -> InputError:
    """Returns the error about what Arrow or a caller's iterable raises, which may quote data."""
    if isinstance(error, UnicodeEncodeError):
        return InputError(f"{FRAME} cannot be read as columns of Arrow. {_HALVES}")
    return InputError(f"{FRAME} cannot be read as columns of Arrow ({kind_of(error)}). {OF_TYPES}")
