"""The ledger and the directory of a release: how they are found, read and checked."""

import contextlib
import json
import os
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from apache_beam.io.filesystems import FileSystems
from msgspec import UNSET

from beam_dpne.errors import ReleaseError
from beam_dpne.release import schema
from beam_dpne.storage.access import directory_at
from beam_dpne.storage.directories import reason

LEDGER_NAME = "ledger.json"


@contextlib.contextmanager
def as_release_error(failure: str) -> Iterator[None]:
    """Replaces other errors by a ReleaseError of one sentence, without messages of libraries."""
    try:
        yield
    except ReleaseError:
        raise
    except Exception as error:
        raise ReleaseError(f"{failure}: {reason(error)}.") from None


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
        ledger = msgspec.json.decode(data, type=schema.AnyLedger)
    except msgspec.DecodeError as error:
        raise ReleaseError(f"{path} is damaged: {error}.") from None
    listed = [part.rows for part in ledger.parts] if ledger.parts is not UNSET else []
    stated = ledger.rows.count if ledger.rows is not UNSET else sum(listed)
    if schema.released(ledger) != stated:
        raise ReleaseError(f"{path} is damaged: it does not list as many rows as were released.")
    return ledger


class _Head(msgspec.Struct):
    schema: str


class _Listing(msgspec.Struct):
    parts: list[schema.ListedPart]


def is_ledger(data: bytes) -> bool:
    """Returns whether this is a ledger of this package, of any schema version."""
    try:
        return msgspec.json.decode(data, type=_Head).schema.startswith(schema.SCHEMA_FAMILY)
    except (msgspec.DecodeError, RecursionError):
        return False


def listed_parts(data: bytes | None) -> frozenset[str]:
    """Returns the names of the parts that a ledger lists; none if there is no whole ledger."""
    try:
        return frozenset(
            part.name for part in msgspec.json.decode(data or b"", type=_Listing).parts
        )
    except (msgspec.DecodeError, RecursionError):
        return frozenset()


def ledger_path(path: str) -> str:
    """Returns the path of a release's ledger, given that path or the release's directory."""
    last = re.split(r"[/\\]", path)[-1]
    return path if last == LEDGER_NAME else FileSystems.join(path, LEDGER_NAME)


def release_folder(path: str) -> str:
    """Returns the path of a release's directory, given that path or the release's ledger."""
    return ledger_path(path)[: -len(LEDGER_NAME)] or os.curdir


def is_local(path: str) -> bool:
    """Returns whether a path is on this machine, instead of on another Beam file system."""
    return FileSystems.get_scheme(path) is None


def absolute(path: str) -> str:
    """Returns a path that means the same in the working directory of another process."""
    return os.path.abspath(path) if is_local(path) else path


def real_path(path: str) -> str:
    """Returns a path without symbolic links and without slashes at its end."""
    return (os.path.realpath(path) if is_local(path) else path).rstrip("/")


def is_inside(path: str, folder: str) -> bool:
    """Returns whether a path is a directory, or somewhere in it."""
    return f"{real_path(path)}/".startswith(f"{real_path(folder)}/")


def has_ledger(folder: str) -> bool:
    """Returns whether a directory holds the ledger of a release; a broken link counts as one."""
    ledger = f"{folder}/{LEDGER_NAME}"
    return os.path.lexists(ledger) if is_local(folder) else FileSystems.exists(ledger)


def release_around(path: str) -> str | None:
    """Returns the directory of the release that a path is in, or None; links are followed.

    The path itself may be that directory; "" stands for the root.
    """
    return next(filter(has_ledger, _upwards(real_path(path))), None)


def _upwards(path: str) -> Iterator[str]:
    """Yields a path and all directories above it, the last of which is "" or a bucket's address.

    >>> list(_upwards("/a/b")), list(_upwards("gs://a/b"))
    (['/a/b', '/a', ''], ['gs://a/b', 'gs://a'])
    """
    scheme, separator, rest = path.rpartition("://")
    while rest:
        yield scheme + separator + rest.rstrip("/")
        rest = rest.rstrip("/").rpartition("/")[0]
    if not separator:
        yield ""
