"""Lake tables at one version: its name, and the files that it has.

A version is named by text, so that whoever lists a table again under that name finds the same files:
`events@v3` is a version of Delta, and the path of a metadata file one of Iceberg. Files of Delta are
read as any others, with the fields of their partitions. Rows of Iceberg come from its own library,
since their columns have numbers and not names, and rows may be deleted by further files.
"""

import functools
import importlib
import os
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from beam_dpne.errors import InputError, installing, kind_of
from beam_dpne.reading.nested import as_text
from beam_dpne.reading.version_names import VERSION_OF_DELTA, VERSION_OF_ICEBERG
from beam_dpne.storage.paths import is_local

if TYPE_CHECKING:
    from pyarrow.dataset import ParquetFileFragment
    from pyiceberg.table import FileScanTask, StaticTable


class TableFile(NamedTuple):
    """A file that a version of a table has.

    Attributes:
      path: Path of the file.
      size: Bytes of the file as it is stored.
      fields: Fields of all its rows that are not in the file, with their values as text.
    """

    path: str
    size: int
    fields: tuple[tuple[str, str | None], ...]


def is_iceberg(version: str) -> bool:
    """Returns whether a path is that of a metadata file of Iceberg.

    >>> is_iceberg("/lake/notes/metadata/00004-2d43.metadata.json"), is_iceberg("/lake/notes@v4")
    (True, False)
    """
    return bool(VERSION_OF_ICEBERG.fullmatch(version))


def version_at(path: str) -> str | None:
    """Returns the name of the version of a table that a local path names; None for another path.

    The path is that of a table, which stands for its current version, or the name of a version.

    Raises:
      InputError: The current version cannot be known.
    """
    if not is_local(path):
        return None
    if is_iceberg(path):
        return path
    named = VERSION_OF_DELTA.fullmatch(path)
    if named is not None and not os.path.exists(path):
        return path if os.path.isdir(os.path.join(named[1], "_delta_log")) else None
    folder = path.rstrip("/")
    if os.path.isdir(os.path.join(folder, "_delta_log")):
        deltalake = _library("deltalake", "delta", "Delta", folder)
        try:
            return f"{folder}@v{deltalake.DeltaTable(folder).version()}"
        except Exception as error:
            raise _unreadable("Delta", folder, error) from None
    return None


def files_of(version: str) -> list[TableFile]:
    """Returns the files that a version of a table has.

    Raises:
      InputError: There is no such version, or its rows cannot be read.
    """
    if is_iceberg(version):
        return [
            TableFile(path, task.file.file_size_in_bytes, ())
            for path, task in _iceberg(version).tasks.items()
        ]
    folder, number = _of_delta(version)
    deltalake = _library("deltalake", "delta", "Delta", folder)
    try:
        # It refuses a table with features that change what a file's rows are, such as deletion vectors.
        rows = deltalake.DeltaTable(folder, version=number).to_pyarrow_dataset()
    except Exception as error:
        raise _unreadable("Delta", folder, error) from None
    return [_file_of_delta(folder, fragment, rows.schema) for fragment in rows.get_fragments()]


def _of_delta(version: str) -> tuple[str, int]:
    folder, _, number = version.rpartition("@v")
    return folder, int(number)


def _file_of_delta(folder: str, fragment: "ParquetFileFragment", schema: pa.Schema) -> TableFile:
    """Returns a file of a table of Delta; a column that is newer than the file is null in its rows."""
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    path = os.path.join(folder, fragment.path)
    try:
        stored = pq.read_schema(path).names
        size = os.path.getsize(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise _unreadable("Delta", folder, error) from None
    given = ds.get_partition_keys(fragment.partition_expression)
    fields = {name: as_text(given.get(name)) for name in schema.names if name not in stored}
    return TableFile(path, size, tuple(sorted(fields.items())))


class IcebergFile(NamedTuple):
    """A file of a table of Iceberg, whose rows its library reads.

    Attributes:
      schema: The columns of the table.
      version: Path of the metadata file.
      path: Path of the file.
    """

    schema: pa.Schema
    version: str
    path: str

    @classmethod
    def of(cls, version: str, path: str) -> "IcebergFile":
        """Opens a file of a version."""
        return cls(_iceberg(version).schema, version, path)

    @property
    def num_rows(self) -> int:
        """Number of rows, with those that are deleted."""
        return _iceberg(self.version).tasks[self.path].file.record_count

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yields the rows that the version has."""
        from pyiceberg.io.pyarrow import ArrowScan

        version = _iceberg(self.version)
        scan = version.table.scan(selected_fields=tuple(columns))
        rows = ArrowScan(
            version.table.metadata, version.table.io, scan.projection(), scan.row_filter
        )
        yield from rows.to_record_batches([version.tasks[self.path]])


class _IcebergVersion(NamedTuple):
    """A version of a table of Iceberg: the table, its columns, and its files by their paths."""

    table: "StaticTable"
    schema: pa.Schema
    tasks: "dict[str, FileScanTask]"


@functools.lru_cache(maxsize=4)
def _iceberg(version: str) -> _IcebergVersion:
    """Returns a version of a table of Iceberg, which each process reads once."""
    _library("pyiceberg.table", "iceberg", "Iceberg", version)
    from pyiceberg.table import StaticTable

    try:
        table = StaticTable.from_metadata(version)
        tasks = {_local(task.file.file_path): task for task in table.scan().plan_files()}
        return _IcebergVersion(table, table.schema().as_arrow(), tasks)
    except InputError:
        raise
    except Exception as error:
        raise _unreadable("Iceberg", version, error) from None


def _local(address: str) -> str:
    """Returns the local path of a file of a table."""
    path = address.removeprefix("file://") if address.startswith("file:///") else address
    if not path.startswith("/"):
        raise InputError(
            "`input` must be a table on this machine's file system, got one of Iceberg with files "
            "elsewhere. Export its current version to Parquet files, and give these."
        )
    return path


def _library(name: str, extra: str, kind: str, path: str) -> ModuleType:
    """Returns the library that reads tables of a kind."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError(
            f"`input` must not be a {kind} table unless its library is installed, got {path}. Its "
            "files have rows that were deleted from the table. Run "
            f"{installing(extra)}, or export the current version of the table to Parquet files, "
            "and give these."
        ) from None


def _unreadable(kind: str, path: str, error: Exception) -> InputError:
    """Returns the error about a table; the library's own message may quote data."""
    return InputError(
        f"`input` must be a {kind} table that its library can read, got {path} ({kind_of(error)}). The "
        "version does not exist, a file is missing or damaged, or the table has a feature, such as "
        "deletion vectors or column mapping, that is not read here. Export the version to Parquet "
        "files, and give these."
    )
