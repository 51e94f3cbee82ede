"""Folders of releases as the budget sees them: listed to their last directory, or else an error.

Nothing is left out silently: neither a directory that cannot be listed, nor one behind a link. Storage
that is not local is reached by fsspec, whose file system the caller gives. This module does not import
Airflow.
"""

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any, Protocol

from beam_dpne.airflow.options import check_path, is_inside, is_template
from beam_dpne.errors import BudgetError

# A temporary folder of a run, which may vanish while its parent is listed.
_RUN_FOLDER = "/.beam_dpne-"
_LOCAL = ("file", "local")


class TryLaterError(BudgetError):
    """A run must not start now; a later try may, if the storage answers or another run was refused."""


class Folder(Protocol):
    """A folder of releases on some storage; names are those of its storage.

    Attributes:
      path: The folder as it was given.
    """

    path: str

    def names(self) -> Iterator[str]:
        """Yields the names of all files at any depth, as the storage has them now."""
        ...

    def name_of(self, path: str) -> str | None:
        """Returns the name of a file or directory in the folder, or None for a path elsewhere."""
        ...

    def read(self, name: str) -> bytes:
        """Returns the bytes of a file."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Writes a file, which others see with all of its bytes or not at all."""
        ...

    def delete(self, name: str) -> None:
        """Deletes a file."""
        ...


class LocalFolder:
    """A folder on a file system of this machine."""

    def __init__(self, path: str):
        self.path = path
        self._real = os.path.realpath(path)

    def names(self) -> Iterator[str]:
        """Yields the names of all files.

        Raises:
          BudgetError: There is a link, behind which releases could be.
          OSError: A directory cannot be listed.
        """
        waiting = [self._real]
        while waiting:
            folder = waiting.pop()
            try:
                entries = list(os.scandir(folder))
            except FileNotFoundError:
                if folder == self._real:
                    raise
                _check_vanished(folder[len(self._real) :])
                continue
            for entry in entries:
                if entry.is_symlink():
                    raise BudgetError(
                        f"{entry.path} is a link. The budget does not follow links, so replace it by "
                        "what it leads to, or move it out of the folder."
                    )
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    yield entry.path

    def name_of(self, path: str) -> str | None:
        """Returns the path without links, if it is in the folder."""
        local = _local(path)
        real = None if local is None else os.path.realpath(local)
        return real if real is not None and is_inside(real, self._real) else None

    def read(self, name: str) -> bytes:
        """Returns the bytes of a file."""
        return pathlib.Path(name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        """Writes a file under another name, and gives it its name in one step."""
        parent = os.path.dirname(name)
        os.makedirs(parent, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=parent, prefix=".started-", delete=False) as file:
            try:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                # As other files, and not as private as a temporary one.
                os.chmod(file.name, 0o644)
                os.replace(file.name, name)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(file.name)
                raise

    def delete(self, name: str) -> None:
        """Deletes a file."""
        os.unlink(name)


class RemoteFolder:
    """A folder on a storage that fsspec reaches.

    Args:
      storage: File system of fsspec.
      path: Address of the folder.
    """

    def __init__(self, storage: Any, path: str):
        self.path = path
        self._storage = storage
        self._root = storage._strip_protocol(path).rstrip("/")
        if not _is_plain(path.partition("://")[2].rstrip("/")):
            raise BudgetError(
                f"releases of the budget must be an address without dots, got {path}."
            )

    def names(self) -> Iterator[str]:
        """Yields the names of all objects.

        Raises:
          BudgetError: An entry is neither a file nor a directory.
          Exception: The storage refuses to list a directory.
        """
        # A listing that this process has kept would miss the newest releases.
        self._storage.invalidate_cache()
        waiting = [self._root]
        while waiting:
            folder = waiting.pop()
            try:
                entries = self._storage.ls(folder, detail=True)
            except FileNotFoundError:
                if folder == self._root:
                    raise
                _check_vanished(folder[len(self._root) :])
                continue
            for entry in entries:
                name = entry["name"].rstrip("/")
                if entry["type"] not in ("file", "directory"):
                    raise BudgetError(f"{name} must be a file or a directory, got {entry['type']}.")
                if entry["type"] == "file":
                    yield name
                elif name != folder:  # Some tools mark a directory by an object of its name.
                    waiting.append(name)

    def name_of(self, path: str) -> str | None:
        """Returns the name of an address that begins with the folder's."""
        rest = path.removeprefix(f"{self.path.rstrip('/')}/")
        if rest == path or not _is_plain(rest.rstrip("/")):
            return None
        return self._storage._strip_protocol(path).rstrip("/")

    def read(self, name: str) -> bytes:
        """Returns the bytes of an object."""
        return self._storage.cat_file(name)

    def write(self, name: str, data: bytes) -> None:
        """Writes an object, which others see when it is whole."""
        self._storage.pipe_file(name, data)

    def delete(self, name: str) -> None:
        """Deletes an object."""
        self._storage.rm_file(name)


def local_folder(path: Any) -> LocalFolder | None:
    """Returns a folder of this machine, or None if the path is an address on another storage.

    Raises:
      BudgetError: It is a template, or relative.
    """
    if is_template(path):
        raise BudgetError(f"releases of the budget must be rendered to a value, got {path!r}.")
    try:
        check_path("releases of the budget", path)
        local = _local(path)
        check_path("releases of the budget", path if local is None else local)
    except ValueError as error:
        raise BudgetError(str(error)) from None
    return None if local is None else LocalFolder(local)


@contextlib.contextmanager
def storage_errors(failure: str) -> Iterator[None]:
    """Replaces the errors of storages, which have no common class, by TryLaterError of one sentence."""
    try:
        yield
    except BudgetError:
        raise
    except Exception as error:
        raise TryLaterError(
            f"{failure} ({type(error).__name__}), so it cannot be said what was spent. Look at the "
            "folder and at the rights of the Airflow worker."
        ) from None


def _check_vanished(folder: str) -> None:
    """Raises TryLaterError if a directory that is gone may have held releases, which were moved."""
    if _RUN_FOLDER not in folder:
        raise TryLaterError(
            f"{folder[1:]} was moved or deleted while its releases were looked for."
        )


def _is_plain(path: str) -> bool:
    """Returns whether no part of a path is empty or of dots, which are names or ways up."""
    return not {"", ".", ".."} & set(path.split("/"))


def _local(path: str) -> str | None:
    """Returns the path on this machine, or None if it is an address on another storage."""
    scheme, separator, rest = path.partition("://")
    if not separator:
        return path
    return rest if scheme.lower() in _LOCAL else None
