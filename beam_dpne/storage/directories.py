"""Directories that a release can be published in: local, or on an object store.

Two runs may publish in one directory at the same time. On one machine they come one after the other
(a lock), on gs:// the ledger has a precondition (`gcs`). Elsewhere (s3://, hdfs://, a local path that
several machines share) the ledger is looked at once more before it is written, which leaves a moment
in which the later of two runs replaces the earlier one's release.
"""

import contextlib
import logging
import os
import re
import tempfile
import uuid
from collections.abc import Iterable, Iterator

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_dpne.errors import ReleaseError
from beam_dpne.release.ledger import reason
from beam_dpne.storage.schemes import require_file_system

_log = logging.getLogger(__name__)


def overtaken(path: str) -> ReleaseError:
    """Returns the error of an attempt that another one came before."""
    return ReleaseError(
        f"another run published in {path} while this one ran. That release is whole; of this run "
        "nothing was published. Choose another directory, or run again with --overwrite."
    )


@contextlib.contextmanager
def _logged(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        _log.warning("%s: %s.", what, reason(error))


class Directory:
    """A directory of an object store: an object appears at once and whole, when it is closed."""

    def __init__(self, path: str) -> None:
        self.path = path

    def path_of(self, name: str) -> str:
        """Returns the path of a file in this directory."""
        return FileSystems.join(self.path, name)

    def held(self) -> contextlib.AbstractContextManager[object]:
        """Makes the directory for one attempt to publish in it."""
        return contextlib.nullcontext()

    def names(self) -> list[str]:
        """Returns the names of the files that are there."""
        found = FileSystems.match([self.path_of("*")])[0].metadata_list
        return [re.split(r"[/\\]", file.path)[-1] for file in found]

    def read(self, name: str) -> bytes | None:
        """Returns a file's bytes; None if there is no such file."""
        path = self.path_of(name)
        if not FileSystems.exists(path):
            return None
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            return file.read()

    def place(self, name: str, data: bytes) -> None:
        """Puts a file there, whole or not at all; one that is there already is left alone."""
        if self.read(name) != data:
            self._write(name, data)

    def replace(self, name: str, data: bytes, *, seen: bytes | None) -> None:
        """Puts a file in the place of what was seen there.

        Args:
          name: of the file.
          data: its bytes.
          seen: what `read` returned.

        Raises:
          ReleaseError: if something else has come there since, unless it is the same.
        """
        now = self.read(name)
        if now == data:
            return
        if now != seen:
            raise overtaken(self.path)
        self._write(name, data)

    def remove(self, names: Iterable[str]) -> None:
        """Deletes files; one that stays is told to the operator and does not fail the run."""
        for name in names:
            with _logged(f"{self.path_of(name)} could not be deleted"):
                self._delete(name)

    def probe(self) -> None:
        """Raises if no file can be made here."""
        name = f".probe.tmp-{uuid.uuid4().hex}"
        self._write(name, b"?")
        self._delete(name)

    def _write(self, name: str, data: bytes) -> None:
        with FileSystems.create(
            self.path_of(name), compression_type=CompressionTypes.UNCOMPRESSED
        ) as file:
            file.write(data)

    def _delete(self, name: str) -> None:
        FileSystems.delete([self.path_of(name)])


class LocalDirectory(Directory):
    """A local directory: files are written under a name of their own and renamed into place.

    Names are given to the operating system as they are, because Beam's local file system takes them
    for globs when it lists and deletes.
    """

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Makes the directory, and locks out other attempts; if this one fails, unmakes it."""
        missing = self._missing()
        try:
            os.makedirs(self.path, exist_ok=True)
            with self._locked():
                yield
        except BaseException:
            for path in missing:
                with contextlib.suppress(OSError):
                    os.rmdir(path)
            raise

    def names(self) -> list[str]:
        """Returns the names of the files that are there; none if the directory is missing."""
        return os.listdir(self.path) if self.path not in self._missing() else []

    def probe(self) -> None:
        """Raises if no file can be made here."""
        nearest = os.path.dirname(self._missing()[-1]) if self._missing() else self.path
        with tempfile.TemporaryFile(dir=nearest, buffering=0) as file:
            file.write(b"?")

    def _missing(self) -> list[str]:
        """The directory and those above it that do not exist, innermost first."""
        missing, path = [], self.path
        while not _is_there(path):
            missing.append(path)
            path = os.path.dirname(path)
        return missing

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Attempts of one machine come one after the other; elsewhere names and renames suffice."""
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(ImportError, OSError):
                import fcntl

                handle = os.open(self.path, os.O_RDONLY)
                stack.callback(os.close, handle)
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def _write(self, name: str, data: bytes) -> None:
        temporary = self.path_of(f".{name}.tmp-{uuid.uuid4().hex}")
        try:
            with FileSystems.create(
                temporary, compression_type=CompressionTypes.UNCOMPRESSED
            ) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path_of(name))
        except BaseException:
            with contextlib.suppress(OSError):
                os.remove(temporary)
            raise

    def _delete(self, name: str) -> None:
        os.remove(self.path_of(name))


def _is_there(path: str) -> bool:
    """Unlike os.path.lexists, raises where nothing can be told."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    return True


def directory_at(path: str) -> Directory:
    """Returns the directory at a path, local or on any Beam file system.

    Raises:
      AccessError: if Beam has no file system for the path.
    """
    if FileSystems.get_scheme(path) is None:
        return LocalDirectory(os.path.abspath(path))
    require_file_system(path)
    if FileSystems.get_scheme(path) == "gs":
        from beam_dpne.storage.gcs import GcsDirectory

        return GcsDirectory(path)
    return Directory(path)
