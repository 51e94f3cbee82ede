"""Reading a release back: `read_release` and the `Release` that it returns.

Every part is checked against the ledger that was read first, so the rows are those of one release
even if another run replaces it meanwhile.
"""

import dataclasses
import hashlib
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from beam_dpne.errors import ReleaseError
from beam_dpne.release.files import (
    as_release_error,
    ledger_path,
    parse_ledger,
    read_ledger_bytes,
    release_folder,
)
from beam_dpne.release.parts import PROGRAMS, Part, parse_part
from beam_dpne.storage import is_installed
from beam_dpne.storage.access import directory_at

if TYPE_CHECKING:
    import pandas as pd

_Contents = TypeVar("_Contents", bound="Contents")

_REMEDY = "Copy the files of the release again, or wait if a run is replacing it just now."


@dataclasses.dataclass(frozen=True, eq=False)
class Release:
    """A complete release: its ledger, and its rows, which are read when they are asked for.

    `read_release` makes it.

    Attributes:
      path: Directory of the release.
      ledger: The whole ledger as JSON types, in reading order.
      ledger_sha256: SHA-256 of the ledger's bytes, hexadecimal.
    """

    path: str
    ledger: dict[str, Any] = dataclasses.field(repr=False)
    ledger_sha256: str

    @property
    def program(self) -> str:
        """Program that made the release: "ngrams", "set-union" or "bayesian"."""
        return self.ledger["program"]

    @property
    def parts(self) -> tuple[Part, ...]:
        """Files of the release, in the order of their rows."""
        return tuple(Part(**part) for part in self.ledger["parts"])

    @property
    def num_rows(self) -> int:
        """Number of released rows, from the ledger."""
        return sum(part.rows for part in self.parts)

    def table(self) -> pa.Table:
        """Reads all rows, and checks every file against the ledger.

        Returns:
          Columns length (int32), ngram (string) and score (float64), or item (string) and score, or
          ngram and probability, in the order of the release. Releases with numbers of users also have
          users, users_low and users_high (int64).

        Raises:
          ReleaseError: A file is missing, damaged or unreadable.
        """
        columns = self.ledger["columns"]
        parts = [_rows(part, data, columns) for part, data in self._checked_parts()]
        return pa.concat_tables(parts)

    def to_pandas(self) -> "pd.DataFrame":
        """Returns the rows of `table` as a data frame of pandas.

        Raises:
          ReleaseError: A file is missing, damaged or unreadable, or pandas is not installed.
        """
        if not is_installed("pandas"):
            raise ReleaseError(
                "to_pandas needs the package pandas. Run pip install pandas, or use table(), which "
                "needs nothing else."
            )
        return self.table().to_pandas()

    def verify(self) -> None:
        """Checks the size and the SHA-256 of every file.

        Raises:
          ReleaseError: A file is missing, damaged or unreadable.
        """
        for _ in self._checked_parts():
            pass

    def _checked_parts(self) -> Iterator[tuple[Part, bytes]]:
        """Yields each part and its bytes, one after the other."""
        directory = directory_at(self.path)
        for part in self.parts:
            with as_release_error(f"Part {part.name} of the release cannot be read"):
                data = directory.read(part.name)
            if data is None:
                raise _incomplete(part)
            if (len(data), hashlib.sha256(data).hexdigest()) != (part.bytes, part.sha256):
                raise ReleaseError(
                    f"The release is damaged: part {part.name} has another SHA-256. {_REMEDY}"
                )
            yield part, data


def read_release(path: str) -> Release:
    """Opens a release; the parts are those that the ledger lists, and each must be there.

    Their bytes are read and checked by the methods of the release.

    Args:
      path: Path of the release's directory, or of its `ledger.json`; local or on any Beam file system.

    Raises:
      ReleaseError: The release is incomplete, or its ledger is damaged.

    Example:
      >>> from beam_dpne import read_release
      >>> read_release("no/such/folder")
      Traceback (most recent call last):
      beam_dpne.errors.ReleaseError: no/such/folder/ledger.json does not exist: there is no release, \
or its publication was not completed.
    """
    data = read_ledger_bytes(path)
    release = Release(
        path=release_folder(path).rstrip("/") or "/",
        ledger=parse_ledger(data, ledger_path(path)),
        ledger_sha256=hashlib.sha256(data).hexdigest(),
    )
    directory = directory_at(release.path)
    for part in release.parts:
        with as_release_error(f"Part {part.name} of the release cannot be read"):
            if not directory.has(part.name):
                raise _incomplete(part)
    return release


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Contents:
    """A release in memory, all files of which were checked; what is made from releases begins here.

    Attributes:
      ledger: The whole ledger as JSON types.
      ledger_sha256: SHA-256 of the ledger's bytes, hexadecimal.
      rows: All rows, in the order of the release.
    """

    ledger: Mapping[str, Any]
    ledger_sha256: str
    rows: pa.Table

    @classmethod
    def read(cls: type[_Contents], path: str) -> _Contents:
        """Reads a release.

        Args:
          path: Path of the release's directory, or of its `ledger.json`; local or on any Beam file
            system.

        Raises:
          ReleaseError: The release is incomplete, damaged, or replaced while it is read.
        """
        release = read_release(path)
        return cls(ledger=release.ledger, ledger_sha256=release.ledger_sha256, rows=release.table())

    @property
    def program(self) -> str:
        """Program that made the release: "ngrams", "set-union" or "bayesian"."""
        return self.ledger["program"]

    @property
    def noun(self) -> str:
        """Name of the rows, in the plural."""
        return PROGRAMS[self.program].noun

    @property
    def text_column(self) -> str:
        """Name of the column of n-grams or items."""
        return PROGRAMS[self.program].text


def _rows(part: Part, data: bytes, columns: Collection[str]) -> pa.Table:
    with as_release_error(f"Part {part.name} of the release cannot be read"):
        rows = parse_part(part, data, columns)
    if len(rows) != part.rows:
        raise ReleaseError(f"The release is damaged: part {part.name} has other rows.")
    return rows


def _incomplete(part: Part) -> ReleaseError:
    return ReleaseError(f"The release is incomplete: part {part.name} is missing. {_REMEDY}")
