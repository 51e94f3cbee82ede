"""Reading a release: its ledger, its rows, and the paths that are in a release.

Every part is checked against the ledger that was read first, so the rows are those of one release
even if another run replaces it meanwhile.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import msgspec
import pyarrow as pa
from msgspec import UNSET

from beam_dpne.errors import BeamDpneError, ReleaseError, UsageError
from beam_dpne.release import schema
from beam_dpne.release.parts import PROGRAMS, parse_part
from beam_dpne.release.schema import Part
from beam_dpne.storage.directories import absolute_path, directory_at, reason
from beam_dpne.storage.paths import exists, is_local, join

if TYPE_CHECKING:
    import pandas as pd

LEDGER_NAME = "ledger.json"
_REMEDY = "Copy the files of the release again, or wait if a run is replacing it just now."


@contextlib.contextmanager
def as_release_error(failure: str, kind: type[BeamDpneError] = ReleaseError) -> Iterator[None]:
    """Replaces errors of other kinds by one of a single sentence, without messages of libraries."""
    try:
        yield
    except kind:
        raise
    except Exception as error:
        why = str(error) if isinstance(error, BeamDpneError) else f"{reason(error)}."
        raise kind(f"{failure}: {why}") from None


def read_ledger(path: str) -> dict[str, Any]:
    """Reads the ledger of a release.

    Args:
      path: Path of the release's directory, or of its `ledger.json`; local or on any Beam file system.

    Returns:
      The ledger as JSON types, in the order in which `whole_ledger` wrote its sections.

    Raises:
      ReleaseError: There is no ledger, or it is not a whole ledger of a readable schema.
    """
    return parse_ledger(read_ledger_bytes(path), ledger_path(path))


def read_ledger_bytes(path: str) -> bytes:
    """Reads the bytes of a release's ledger; see `read_ledger`.

    Raises:
      ReleaseError: There is no ledger, or it cannot be read.
    """
    file = ledger_path(path)
    with as_release_error(f"{file} cannot be read"):
        data = directory_at(release_folder(path)).read(LEDGER_NAME)
    if data is None:
        raise ReleaseError(
            f"{file} does not exist: there is no release, or its publication was not completed."
        )
    return data


def parse_ledger(data: bytes, path: str) -> dict[str, Any]:
    """Checks and returns the JSON of the ledger of a release.

    Args:
      data: The ledger.
      path: Its path, for messages.

    Raises:
      ReleaseError: It is not a whole ledger of this schema.
    """
    ledger = decode_ledger(data, path)
    if ledger.parts is UNSET:
        raise ReleaseError(f"{path} is damaged: 'parts' is missing.")
    return json.loads(data)


def decode_ledger(data: bytes, path: str) -> schema.AnyLedger:
    """Checks a ledger of a release, or of rows before they are in files.

    Raises:
      ReleaseError: It is not a whole ledger of this schema.
    """
    if not is_ledger(data):
        raise ReleaseError(f"{path} is not a ledger of beam_dpne.")
    found = msgspec.json.decode(data, type=_Head).schema
    if found != schema.SCHEMA:
        raise ReleaseError(
            f"{path} has schema {found!r}; this version reads {schema.SCHEMA}. Install the version of "
            "beam-dpne that wrote it, or a newer one, to read it."
        )
    try:
        return msgspec.json.decode(data, type=schema.AnyLedger)
    except msgspec.DecodeError as error:
        raise ReleaseError(f"{path} is damaged: {error}.") from None


class _Head(msgspec.Struct):
    schema: str


def is_ledger(data: bytes) -> bool:
    """Returns whether this is a ledger of this package, of any schema version."""
    try:
        return msgspec.json.decode(data, type=_Head).schema.startswith(schema.SCHEMA_FAMILY)
    except (msgspec.DecodeError, RecursionError):
        return False


def ledger_path(path: str) -> str:
    """Returns the path of a release's ledger, given that path or the release's directory."""
    last = re.split(r"[/\\]", path)[-1]
    return path if last == LEDGER_NAME else join(path, LEDGER_NAME)


def release_folder(path: str) -> str:
    """Returns the path of a release's directory, given that path or the release's ledger."""
    return ledger_path(path)[: -len(LEDGER_NAME)] or os.curdir


def real_path(path: str) -> str:
    """Returns a path without symbolic links and without slashes at its end."""
    return (os.path.realpath(absolute_path(path)) if is_local(path) else path).rstrip("/")


def has_ledger(folder: str) -> bool:
    """Returns whether a directory holds the ledger of a release."""
    return exists(f"{folder}/{LEDGER_NAME}")


def is_release(name: str, path: str) -> bool:
    """Returns whether a parameter names a ledger or a directory, which if remote must have a ledger.

    Raises:
      FileNotFoundError: The path is local, and nothing is there.
    """
    if is_local(path) and not os.path.exists(path):
        raise FileNotFoundError(f"{name} must name an existing file or directory, got {path}.")
    is_folder = os.path.isdir(path) if is_local(path) else has_ledger(path)
    return is_folder or path.endswith(LEDGER_NAME)


def check_outside(name: str, path: str, release: str | None = None) -> None:
    """Checks that a path is neither a release nor inside one; links are followed.

    Args:
      name: Name of the parameter that gives the path.
      path: Path of a file or a directory, local or on any Beam file system; it may be missing.
      release: Path of a release that may be missing yet, or None.

    Raises:
      UsageError: It is in a release.
    """
    own = None if release is None else release_folder(release)
    for folder in _around(path):
        if (own is not None and _is_same(folder, own)) or has_ledger(folder):
            raise UsageError(
                f"{name} must be outside every release, got {name}={path}, which is in {folder}: what "
                "is in the directory of a release is published with it."
            )


def check_not_below(name: str, path: str, output: str) -> None:
    """Refuses what is as secret as the data in the directory of a release to come; links are followed.

    Args:
      name: Name of the parameter that gives the path.
      path: Path of a file or a directory, local or on any Beam file system; it may be missing.
      output: Directory of the release.

    Raises:
      UsageError: It is that directory, or in it, as it is written or where links lead.
    """
    if any(_is_same(folder, output) for folder in _around(path)):
        raise UsageError(
            f"{name} must be outside the directory of the release, got {name}={path} and "
            f"output={output}: what is in that directory is published. Choose another output."
        )


def _around(path: str) -> list[str]:
    """Returns a path and the folders around it, as it is written and then where links lead."""
    folders: list[str] = []
    for start in {absolute_path(path).rstrip("/"): None, real_path(path): None}:
        folder = start
        while folder and not folder.endswith(":/"):
            folders.append(folder)
            folder = folder.rpartition("/")[0]
    return folders


def _is_same(folder: str, other: str) -> bool:
    """Whether two paths name one folder, which need not exist."""
    if real_path(folder) == real_path(other):
        return True
    # A file system may know one folder by several names, as those that ignore case do.
    with contextlib.suppress(OSError):
        return is_local(folder) and os.path.samefile(folder, absolute_path(other))
    return False


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

    @classmethod
    def read(cls, path: str) -> Self:
        """Reads the ledger of a release, and checks that its files are there; see `read_release`."""
        data = read_ledger_bytes(path)
        release = cls(
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

    @property
    def noun(self) -> str:
        """Name of the rows, in the plural."""
        return PROGRAMS[self.program].noun

    @property
    def text_column(self) -> str:
        """Name of the column of n-grams or items."""
        return PROGRAMS[self.program].text

    @property
    def has_groups(self) -> bool:
        """Whether each row has a group."""
        return "group" in self.ledger["columns"]

    @property
    def value_column(self) -> str:
        """Name of the column by which rows of one length can be compared.

        Numbers of users have one unit at all lengths; releases without them have scores.
        """
        names = ("users", "score", "probability")
        return next(name for name in names if name in self.ledger["columns"])

    @functools.cached_property
    def rows(self) -> pa.Table:
        """The rows of `table`, which are read once."""
        return self.table()

    def table(self) -> pa.Table:
        """Reads all rows, and checks every file against the ledger.

        Returns:
          Columns length (int32), ngram (string) and score (float64), or item (string) and score, or
          ngram and probability, in the order of the release. Releases with groups also have group
          (string), those with numbers of users also users, users_low and users_high (int64).

        Raises:
          ReleaseError: A file is missing, damaged or unreadable.
        """
        form = PROGRAMS[self.program]
        tables = []
        for part, data in self._checked_parts():
            with as_release_error(f"Part {part.name} of the release cannot be read"):
                tables.append(parse_part(form, part.name, data, self.ledger["columns"]))
        return pa.concat_tables(tables)

    def to_pandas(self) -> "pd.DataFrame":
        """Returns the rows of `table` as a data frame of pandas.

        Raises:
          ReleaseError: A file is missing, damaged or unreadable.
          ImportError: pandas is not installed.
        """
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
    return Release.read(path)


def _incomplete(part: Part) -> ReleaseError:
    return ReleaseError(f"The release is incomplete: part {part.name} is missing. {_REMEDY}")
