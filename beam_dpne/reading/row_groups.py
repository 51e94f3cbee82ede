"""Columns of Parquet files, row group by row group; the wanted fields may be within others."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beam_dpne.reading.columns import checked_columns, users_of_records
from beam_dpne.reading.held import HeldTable
from beam_dpne.reading.nested import Finder, below_every, conditions_of, step
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.rejects import NOT_DECODED
from beam_dpne.reading.table_versions import IcebergFile

_MAX_ROWS = 65536
_OPENED = "[]"


class Rows(NamedTuple):
    """Some rows of a file.

    Attributes:
      columns: The columns of the usable rows, as `ReadOptions.wanted_fields` has them. A row that has
        several texts at the end of a path is there once for each.
      rejects: Number and reason of each row that cannot be used.
      further: How many rows of the columns are not the first one of their row of the file.
      end: Number of the row after the last one.
    """

    columns: list[pa.Array]
    rejects: list[tuple[int, str]]
    further: int
    end: int


class _Place(NamedTuple):
    """A field of a table.

    Attributes:
      names: Names of the column and of the fields within it, down to the field, or to a map on the way.
      kind: The field's type, and after lists on the way that of one value.
    """

    names: tuple[str, ...]
    kind: pa.DataType


def place_of(schema: pa.Schema, path: str) -> _Place | None:
    """Returns the field to which a path leads; None if there is none.

    >>> turns = pa.list_(pa.struct([("role", pa.string()), ("n", pa.int8())]))
    >>> place_of(pa.schema([("turns", turns)]), "turns.n")
    _Place(names=('turns', 'n'), kind=DataType(int8))
    """
    kind: pa.DataType = pa.struct(list(schema))
    names = list[str]()
    left = path
    # Of a map all columns are read, so that names within it are not needed.
    is_whole = False
    while left:
        if left.startswith(_OPENED):
            left = left.removeprefix(_OPENED)
            kind = _value_type(kind) or kind
        elif inner := _value_type(kind):
            kind = inner
        elif pa.types.is_map(kind) and below_every(left) is not None:
            left = below_every(left) or ""
            kind = kind.item_type
            is_whole = True
        elif not pa.types.is_struct(kind):
            return None
        else:
            found = {field.name: field.type for field in kind}
            way = step(found, left)
            if way is not None:
                name, left = way
                if not is_whole:
                    names.append(name)
                kind = found[name]
            elif below_every(left) is not None and len(set(found.values())) == 1:
                # A map whose keys were taken for names of fields when the file was written.
                left = below_every(left) or ""
                kind = next(iter(found.values()))
                is_whole = True
            else:
                return None
    return _Place(tuple(names), kind)


def paths_of(schema: pa.Schema) -> list[str]:
    """Returns the paths of all columns, and then of the fields within them."""
    within = [".".join(names) for names in _all_fields(pa.struct(list(schema)), (), leaves=False)]
    return [*schema.names, *(path for path in within if path not in schema.names)]


def _value_type(kind: pa.DataType) -> pa.DataType | None:
    """Returns the type of a list's members; None for other types."""
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return kind.value_type if is_list or pa.types.is_fixed_size_list(kind) else None


def _all_fields(
    kind: pa.DataType, above: tuple[str, ...], *, leaves: bool
) -> Iterator[tuple[str, ...]]:
    """Yields the names that lead to each field within a type, or only to those without parts.

    The order is that of the columns of a Parquet file, which has the parts of maps as two columns.
    """
    if inner := _value_type(kind):
        yield from _all_fields(inner, above, leaves=leaves)
    elif pa.types.is_struct(kind):
        for field in kind:
            if not leaves:
                yield (*above, field.name)
            yield from _all_fields(field.type, (*above, field.name), leaves=leaves)
    elif pa.types.is_map(kind) and leaves:
        yield from _all_fields(kind.key_type, above, leaves=True)
        yield from _all_fields(kind.item_type, above, leaves=True)
    elif leaves:
        yield above


def read_row_groups(
    file: pq.ParquetFile,
    groups: range,
    options: ReadOptions,
    given: Mapping[str, str | None],
    number: int,
) -> Iterator[Rows]:
    """Yields the rows of row groups, some at a time.

    Args:
      file: The file, which has the wanted fields.
      groups: Numbers of the row groups.
      options: How the file is read.
      given: Fields of all rows, which the path of the file has.
      number: Number of the file, for records that are users.
    """
    row = sum(file.metadata.row_group(group).num_rows for group in range(groups.start))
    schema = file.schema_arrow
    others = {name: value for name, value in given.items() if name not in schema.names}
    columns = _Columns(schema, options, others, number)
    read = columns.stored_in(file)
    for group in groups:
        found = file.metadata.row_group(group)
        rows = options.block_bytes * found.num_rows // max(1, found.total_byte_size)
        size = min(_MAX_ROWS, max(1, rows))
        for batch in file.iter_batches(size, row_groups=[group], columns=read):
            yield columns.checked(batch, row)
            row += batch.num_rows


def read_iceberg(file: IcebergFile, options: ReadOptions, number: int) -> Iterator[Rows]:
    """Yields the rows of a file of Iceberg, some at a time."""
    columns = _Columns(file.schema, options, {}, number)
    row = 0
    for batch in file.batches(columns.outer):
        yield columns.checked(batch, row)
        row += batch.num_rows


def read_held(table: HeldTable, options: ReadOptions, number: int) -> Iterator[Rows]:
    """Yields the rows of a frame that is held in memory, some at a time."""
    columns = _Columns(table.schema, options, {}, number)
    row = 0
    for batch in table.pieces(options.block_bytes):
        yield columns.checked(batch, row)
        row += batch.num_rows


class _Columns:
    """Makes the wanted columns of batches of one schema."""

    def __init__(
        self,
        schema: pa.Schema,
        options: ReadOptions,
        given: Mapping[str, str | None],
        number: int,
    ) -> None:
        self._options = options
        self._number = number
        self._given = given
        self._has_paths = options.needs_paths({*schema.names, *given})
        self._finder = Finder(options, given)
        wanted = [name for _, name in options.wanted_fields]
        conditions = [each.path for each in conditions_of(options.conditions)]
        places = {name: place_of(schema, name) for name in (*wanted, *conditions)}
        self._places = {name: place for name, place in places.items() if place is not None}
        of_texts = {*options.text_fields, *conditions} & self._places.keys()
        self._text_columns = sorted({self._places[name].names[0] for name in of_texts})

    @property
    def outer(self) -> list[str]:
        """Names of the columns that have to be read."""
        return sorted({place.names[0] for place in self._places.values()})

    def stored_in(self, file: pq.ParquetFile) -> list[str]:
        """Returns the names of the columns that have to be read, as the file stores them."""
        wanted = [place.names for place in self._places.values()]
        if not self._has_paths:
            return [name for (name,) in wanted]
        leaves = list(_all_fields(pa.struct(list(file.schema_arrow)), (), leaves=True))
        if len(leaves) != len(file.schema):
            return self.outer
        return [
            file.schema.column(number).path
            for number, leaf in enumerate(leaves)
            if any(leaf[: len(names)] == names for names in wanted)
        ]

    def checked(self, batch: pa.RecordBatch, first: int) -> Rows:
        """Returns the rows of a batch, the first of which has a number in its file."""
        end = first + batch.num_rows
        if not self._has_paths:
            plain = [self._column(batch, name) for _, name in self._options.wanted_fields]
            columns, faults, kept = checked_columns(plain, options=self._options)
            columns = self._with_users(columns, first + kept)
            return Rows(columns, [(first + row, reason) for row, reason in faults], 0, end)
        texts, rows, undecoded = self._texts(batch)
        wanted = list[pa.Array]()
        for option, name in self._options.wanted_fields:
            if option == "text_field":
                wanted.append(texts[name])
            else:
                wanted.append(self._column(batch, name).take(pa.array(rows, pa.int64())))
        columns, faults, kept = checked_columns(wanted, options=self._options, records=rows)
        faults = sorted(faults + [(row, NOT_DECODED) for row in undecoded])
        columns = self._with_users(columns, first + kept)
        further = kept.size - np.unique(kept).size
        return Rows(columns, [(first + row, reason) for row, reason in faults], further, end)

    def _with_users(self, columns: list[pa.Array], records: np.ndarray) -> list[pa.Array]:
        """Returns columns with that of users in front, if each record is one."""
        if not self._options.record_is_user:
            return columns
        return [users_of_records(self._number, records.tolist()), *columns]

    def _column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        """Returns a field of each row; a list on the way to it is returned as it is."""
        if name not in self._places:
            value = pa.scalar(self._given[name], pa.string())
            return pa.repeat(value, batch.num_rows)
        outer, *inner = self._places[name].names
        column = batch.column(outer)
        for each in inner:
            if not pa.types.is_struct(column.type):
                return column
            column = pc.call_function("struct_field", [column], pc.StructFieldOptions([each]))
        return column

    def _texts(self, batch: pa.RecordBatch) -> tuple[dict[str, pa.Array], np.ndarray, list[int]]:
        """Returns a column of texts for each text field, and the number of each one's row: (n,) int64.

        A row without a text has one that is null, and a row whose texts conditions leave out has none.
        Last are the numbers of rows that are not UTF-8, which have none, either.
        """
        fields = self._options.text_fields
        found = list[Sequence[object]]()
        rows = list[int]()
        undecoded = list[int]()
        for row, record in enumerate(_records_in(batch.select(self._text_columns))):
            if record is None:
                undecoded.append(row)
                continue
            texts = self._finder.texts({**self._given, **record}) or ()
            found.extend(texts)
            rows.extend(row for _ in texts)
        columns = dict[str, pa.Array]()
        for place, name in enumerate(fields):
            kind = self._places[name].kind if name in self._places else pa.string()
            columns[name] = pa.array([texts[place] for texts in found], kind)
        return columns, np.array(rows, np.int64), undecoded


def _records_in(batch: pa.RecordBatch) -> list[dict[str, object] | None]:
    """Returns the rows of a batch; None for each row with a text that is not UTF-8."""
    try:
        return batch.to_pylist()
    except UnicodeDecodeError:
        if len(batch) == 1:
            return [None]
    half = len(batch) // 2
    return _records_in(batch[:half]) + _records_in(batch[half:])
