"""What a release needs of an object store, and which stores have it.

Beam's file systems write an object whatever is there. A release needs requests that are done only if
an object has not changed since it was read, so that one of two simultaneous runs wins and its release
stays whole. Each store has such requests and a module here; the modules need extras and are imported
for paths of their scheme only.
"""

import importlib
import os
from typing import BinaryIO, Protocol, cast

from beam_dpne.storage.paths import file_systems, is_local, scheme_of

# The version of an object that does not exist.
ABSENT = ""
_MODULES = {
    "gs": "beam_dpne.storage.gcs",
    "s3": "beam_dpne.storage.s3",
    "azfs": "beam_dpne.storage.azure",
}
# Messages of services are cut to so many signs.
_LONGEST_MESSAGE = 300


class ObjectStore(Protocol):
    """Requests to one kind of object store.

    Each write of an object gives it a new version. A request that the service refuses raises an
    OSError of one line, which has the service's own sentence.
    """

    def check_credentials(self, path: str) -> None:
        """Raises AccessError if there are no credentials for a path, or no address of the service."""
        ...

    def check_readable(self, path: str) -> None:
        """Lists the objects at a path or glob; raises OSError if that is not allowed."""
        ...

    def check_writable(self, path: str) -> None:
        """Writes and deletes an object; raises OSError if that is not possible now."""
        ...

    def versions(self, folder: str) -> dict[str, str]:
        """Returns the versions of the objects in a folder by name, without those in folders below."""
        ...

    def has(self, path: str) -> bool:
        """Returns whether there is an object at a path."""
        ...

    def download(self, path: str) -> tuple[bytes | None, str]:
        """Returns an object's bytes and version, or None and ABSENT if there is no such object."""
        ...

    def upload(self, path: str, data: bytes, version: str | None = None) -> str:
        """Writes an object, and returns its version.

        Args:
          path: The object's path.
          data: Its bytes.
          version: The version that it must still have, ABSENT if there must be none, or None.

        Raises:
          FileExistsError: It has another version.
        """
        ...

    def delete(self, path: str, version: str) -> None:
        """Deletes an object unless it is gone or has another version."""
        ...

    def open_object(self, path: str, buffer_bytes: int) -> BinaryIO:
        """Opens an object as it is stored; a request fetches at least `buffer_bytes`."""
        ...


def is_in_store(path: str) -> bool:
    """Returns whether a path is on an object store, whose writes may have conditions."""
    return scheme_of(path) in _MODULES


def store_of(path: str) -> ObjectStore | None:
    """Returns the store of a path, or None if the path is local or of another file system."""
    module = _MODULES.get(scheme_of(path) or "")
    return None if module is None else cast(ObjectStore, importlib.import_module(module))


def exists(path: str) -> bool:
    """Returns whether there is a file or a folder at a path; object stores have no folders."""
    if is_local(path):
        return os.path.exists(path)
    # Beam's file system of Azure fails where there is no blob.
    store = store_of(path)
    return file_systems().exists(path) if store is None else store.has(path)


def prefix_before_glob(name: str) -> str:
    """Returns what the names of all objects that match a glob begin with.

    >>> prefix_before_glob("notes/day-*.jsonl")
    'notes/day-'
    """
    return name.translate(str.maketrans("*?[", "***")).partition("*")[0]


def said_by(service: str, kind: str, message: object) -> str:
    """Returns the reason of a failure: the first line of what a service said.

    >>> said_by("S3", "AccessDenied", "Access Denied")
    'S3 did not do it (AccessDenied: Access Denied)'
    """
    first = str(message).partition("\n")[0].strip()[:_LONGEST_MESSAGE]
    return f"{service} did not do it ({kind}: {first})"
