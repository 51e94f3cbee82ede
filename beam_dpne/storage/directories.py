"""Directories in which a release can be published, and the file systems that hold them.

A run reserves a local directory before it reads its input, so that no other run on this machine works
for it meanwhile. Pipelines of one's own do not, so that two may publish in one directory at the same
time. On one machine a lock makes them take turns, and on object stores the write of the ledger has a
precondition (`objects`). Elsewhere (hdfs://, a local path that several machines share) the ledger is
read once more before it is written. After this last reading there is a moment in which the later of two
runs can replace the earlier one's release.
"""

import contextlib
import hashlib
import importlib
import logging
import os
import pathlib
import re
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from beam_dpne.errors import AccessError, BeamDpneError, ReleaseError, installing, kind_of
from beam_dpne.storage.objects import ABSENT, ObjectStore, exists, store_of
from beam_dpne.storage.paths import (
    create_file,
    file_systems,
    is_local,
    join,
    matching,
    open_file,
    scheme_of,
)
from beam_dpne.storage.private import one_at_a_time, take_lock

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

_log = logging.getLogger(__name__)

# For each scheme, the module that Beam's file system needs and what installs it.
_NEEDED = {
    "gs": ("google.cloud.storage", installing("gcp")),
    "s3": ("boto3", installing("aws")),
    "azfs": ("azure.storage.blob", installing("azure")),
    "hdfs": ("hdfs", "pip install 'apache-beam[hadoop]'"),
}
# Other names of stores, and patterns that take a path's parts; other tools write them so.
_OTHER_NAMES = (
    (re.compile(r"s3[an]://(?P<rest>.*)"), r"s3://\g<rest>"),
    (re.compile(r"gcs://(?P<rest>.*)"), r"gs://\g<rest>"),
    (
        re.compile(
            r"(?:abfs|wasb)s?://(?P<container>[^/@]+)@(?P<account>\w+)\.[^/]*/?(?P<rest>.*)"
        ),
        r"azfs://\g<account>/\g<container>/\g<rest>",
    ),
    (re.compile(r"(?:abfss?|az)://(?P<rest>.*)"), r"azfs://ACCOUNT/\g<rest>"),
)
_PROBE = ".probe.tmp-"


def require_file_system(path: str) -> None:
    """Checks that Beam has a file system for a path, as it always has for local paths.

    Raises:
      AccessError: Beam has none; the message names the package to install.

    >>> require_file_system("/data/notes.jsonl")
    >>> require_file_system("ftp://host/notes.jsonl")
    Traceback (most recent call last):
    beam_dpne.errors.AccessError: paths must be local or begin with gs://, s3://, azfs://, hdfs://, \
    got ftp://host/notes.jsonl.
    >>> require_file_system("abfss://notes@acme.dfs.core.windows.net/2026")
    Traceback (most recent call last):
    beam_dpne.errors.AccessError: paths must be local or begin with gs://, s3://, azfs://, hdfs://, \
    got abfss://notes@acme.dfs.core.windows.net/2026. Write azfs://acme/notes/2026.
    """
    scheme = scheme_of(path)
    if scheme is None:
        return
    module, command = _NEEDED.get(scheme, ("apache_beam", ""))
    try:
        importlib.import_module(module)
        file_systems().get_filesystem(path)
    except (ImportError, ValueError):
        known = ", ".join(f"{known}://" for known in _NEEDED)
        remedy = f" Run {command}." if command else _as_known(path)
        raise AccessError(
            f"paths must be local or begin with {known}, got {path}.{remedy}"
        ) from None


def _as_known(path: str) -> str:
    """Returns the sentence that says how a path is written here, if other tools write it otherwise."""
    for pattern, known in _OTHER_NAMES:
        if found := pattern.fullmatch(path):
            return f" Write {found.expand(known)}."
    return ""


def absolute_path(path: str) -> str:
    """Returns a path that means the same in the working directory of another process."""
    return os.path.abspath(os.path.expanduser(path)) if is_local(path) else path


def reason(error: Exception) -> str:
    """Returns the operating system's reason of a failure, or else the type of the error.

    Messages of libraries may quote data and are left out.
    """
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return kind_of(error)


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


def overtaken(path: str) -> ReleaseError:
    """Returns the error for a run that finds another run's release where it wants to publish."""
    return ReleaseError(
        f"another run published in {path} while this one ran. The other release is whole, and "
        "nothing of this run was published. Choose another directory, or set `overwrite` and run again."
    )


class Directory:
    """A directory on an object store, where a new object appears as a whole when it is closed."""

    def __init__(self, path: str) -> None:
        self.path = path

    def path_of(self, name: str) -> str:
        """Returns the path of a file in this directory."""
        return join(self.path, name)

    def locked(self) -> contextlib.AbstractContextManager[object]:
        """Locks the directory for one attempt to publish; object stores have no lock."""
        return contextlib.nullcontext()

    def reserved(self) -> contextlib.AbstractContextManager[None]:
        """Keeps other runs of this user on this machine from the directory; object stores have no lock.

        Raises:
          AccessError: There is no private folder for the lock.
          BlockingIOError: Another run has reserved the directory.
        """
        name = hashlib.sha256(self.path.encode()).hexdigest()[:16]
        return one_at_a_time(f"output-{name}")

    def names(self) -> list[str]:
        """Returns the names of the files in the directory."""
        found = matching(self.path_of("*"))
        return [re.split(r"[/\\]", file.path)[-1] for file in found]

    def has(self, name: str) -> bool:
        """Returns whether there is such a file."""
        return exists(self.path_of(name))

    def read(self, name: str) -> bytes | None:
        """Returns a file's bytes, or None if there is no such file."""
        if not self.has(name):
            return None
        with open_file(self.path_of(name)) as file:
            return file.read()

    def put(self, name: str, data: bytes) -> None:
        """Writes a whole file or nothing; a file that has these bytes already is left alone."""
        if self.read(name) != data:
            self._write(name, data)

    def replace(self, name: str, data: bytes, *, seen: bytes | None) -> None:
        """Replaces a file that has not changed since it was read.

        Args:
          name: Name of the file.
          data: The new bytes.
          seen: The bytes that `read` returned, or None.

        Raises:
          ReleaseError: The file has changed since, and is not equal to the new bytes.
        """
        now = self.read(name)
        if now == data:
            return
        if now != seen:
            raise overtaken(self.path)
        self._write(name, data)

    def remove(self, names: Iterable[str]) -> None:
        """Deletes files; a file that cannot be deleted is logged and does not fail the run."""
        for name in names:
            try:
                self._delete(name)
            except Exception as error:
                _log.warning("%s could not be deleted: %s.", self.path_of(name), reason(error))

    def probe(self) -> None:
        """Raises an error if no file can be written here."""
        name = f"{_PROBE}{uuid.uuid4().hex}"
        self._write(name, b"?")
        self._delete(name)

    def _write(self, name: str, data: bytes) -> None:
        with create_file(self.path_of(name)) as file:
            file.write(data)

    def _delete(self, name: str) -> None:
        file_systems().delete([self.path_of(name)])


def _from_inside(path: str) -> Iterator[str]:
    """Yields an absolute path, and the folders around it."""
    yield path
    yield from map(str, pathlib.PurePath(path).parents)


def _is_at(path: str, handle: int) -> bool:
    """Whether what is open is still what is at a path."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), os.stat(path))
    return False


class LocalDirectory(Directory):
    """A local directory, where files are written under a temporary name and then renamed.

    Files are listed and deleted by the operating system, because Beam's local file system would read
    their names as globs.
    """

    def __init__(self, path: str, *, is_private: bool = False) -> None:
        super().__init__(path)
        self._mode = 0o600 if is_private else 0o666
        self._folder_mode = 0o700 if is_private else 0o777

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Makes the directory, and locks the one around it, since its own lock is that of a run.

        Attempts on one machine take turns, where the system has such locks.
        """
        os.makedirs(self.path, exist_ok=True)
        with contextlib.ExitStack() as stack:
            take_lock(stack, os.path.dirname(os.path.realpath(self.path)))
            yield

    @contextlib.contextmanager
    def reserved(self) -> Iterator[None]:
        """Makes the directory and locks it for one run on this machine, whoever runs it.

        A directory that was made here and is still empty at the end is removed.

        Raises:
          OSError: The directory cannot be made.
          BlockingIOError: Another run has reserved it.
        """
        path = os.path.realpath(self.path)
        missing = [each for each in _from_inside(path) if not os.path.lexists(each)]
        with contextlib.ExitStack() as stack:
            while True:
                os.makedirs(path, exist_ok=True)
                handle = take_lock(stack, path, waits=False)
                # A run that has just ended may have removed what this one has opened.
                if handle is None or _is_at(path, handle):
                    break
            try:
                yield
            finally:
                with contextlib.suppress(OSError):
                    for each in missing:
                        os.rmdir(each)

    def names(self) -> list[str]:
        """Returns the names of the files in the directory; none if it is missing."""
        try:
            return os.listdir(self.path)
        except FileNotFoundError:
            return []

    def probe(self) -> None:
        """Raises an error if no file can be written here."""
        nearest = next(path for path in _from_inside(self.path) if os.path.lexists(path))
        with tempfile.TemporaryFile(dir=nearest, buffering=0) as file:
            file.write(b"?")

    def _write(self, name: str, data: bytes) -> None:
        temporary = self.path_of(f".{name}.tmp-{uuid.uuid4().hex}")
        try:
            os.makedirs(self.path, self._folder_mode, exist_ok=True)
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, self._mode)
            with open(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path_of(name))
            self._sync()
        except BaseException:
            with contextlib.suppress(OSError):
                os.remove(temporary)
            raise

    def _delete(self, name: str) -> None:
        os.remove(self.path_of(name))

    def _sync(self) -> None:
        """Has the names of files on the disk, so that no later file outlasts an earlier one."""
        with contextlib.suppress(OSError):  # Some systems open no folders.
            handle = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


# In place of the version of an object that another attempt may have written, and this must not delete.
_NOT_OURS = "?"


class ObjectDirectory(Directory):
    """A prefix of a bucket, as one attempt to publish sees it.

    Each write and each delete names the version of the object that it expects. So one of several
    simultaneous attempts wins, and its release stays whole: the new ledger replaces only the ledger
    that this attempt has read, and an attempt deletes only objects that it wrote or that it found
    when it began. A part that exists is written again, though its bytes are the same, because
    another attempt may delete the old version.
    """

    def __init__(self, path: str, store: ObjectStore) -> None:
        super().__init__(path)
        self._store = store
        self._versions: dict[str, str] = {}

    def names(self) -> list[str]:
        """Returns the names of the files in the directory."""
        found = self._store.versions(self.path)
        self._versions = found | self._versions
        # An object with which another attempt tries whether it may write is no file of the directory.
        return [name for name in found if not name.startswith(_PROBE)]

    def read(self, name: str) -> bytes | None:
        """Returns a file's bytes, or None if there is no such file."""
        data, self._versions[name] = self._store.download(self.path_of(name))
        return data

    def put(self, name: str, data: bytes) -> None:
        """Writes a whole file or nothing, and replaces a file of the same name."""
        is_new = name not in self._versions
        self._versions[name] = _NOT_OURS
        if is_new:
            with contextlib.suppress(FileExistsError):
                self._versions[name] = self._store.upload(self.path_of(name), data, ABSENT)
                return
        self._store.upload(self.path_of(name), data)

    def replace(self, name: str, data: bytes, *, seen: bytes | None) -> None:
        """Replaces a file if its version is still the one that was read last."""
        if data == seen:
            return
        # One that was listed since must not count as seen.
        expected = ABSENT if seen is None else self._versions.get(name, ABSENT)
        try:
            self._store.upload(self.path_of(name), data, expected)
        except FileExistsError:
            if self.read(name) != data:
                raise overtaken(self.path) from None

    def probe(self) -> None:
        """Raises an error if no file can be written and deleted here."""
        self._store.check_writable(self.path_of(f"{_PROBE}{uuid.uuid4().hex}"))

    def _delete(self, name: str) -> None:
        version = self._versions.get(name, _NOT_OURS)
        if version != _NOT_OURS:
            self._store.delete(self.path_of(name), version)


def directory_at(path: str, *, is_private: bool = False) -> Directory:
    """Returns the directory at a path, local or on any Beam file system.

    Args:
      path: The path.
      is_private: Whether only their owner can use local files that are written there, and a local
        directory that is made for them.

    Raises:
      AccessError: Beam has no file system for the path.
    """
    require_file_system(path)
    if is_local(path):
        return LocalDirectory(absolute_path(path), is_private=is_private)
    store = store_of(path)
    return Directory(path) if store is None else ObjectDirectory(path, store)


def keeps_files(path: str, name: str) -> bool:
    """Returns whether a file stays in a directory when a write expects that there is none.

    Some services that speak the protocol of another one ignore the condition; then the file is lost.
    """
    try:
        directory_at(path).replace(name, b"", seen=None)
    except ReleaseError:
        return True
    return False


def check_access(
    reading: Sequence[str], writing: Sequence[str], options: "PipelineOptions | None" = None
) -> None:
    """Checks remote paths, so that a run that would fail for lack of access does not start.

    For object stores it looks for credentials, asks for one object at each path that will be read,
    and writes and deletes a small object in each directory that will be written. For other remote
    paths it checks only that Beam has a file system for them, and local paths are not checked.
    On gs:// reading needs the permissions storage.objects.get and storage.objects.list, and writing
    storage.objects.create and storage.objects.delete; on s3:// they are s3:GetObject, s3:ListBucket,
    s3:PutObject and s3:DeleteObject. No permission on the bucket itself is needed otherwise.

    Args:
      reading: Paths or globs that will be read.
      writing: Directories that will be written.
      options: Beam's options for its file systems (project, impersonation).

    Raises:
      AccessError: A file system, credentials or a bucket are missing, access is denied, or the
        storage does not answer.
    """
    remote = [path for path in (*reading, *writing) if scheme_of(path)]
    for path in remote:
        require_file_system(path)
    if not remote:
        return
    if options is not None:
        file_systems().set_options(options)
    for path in dict.fromkeys(remote):
        store = store_of(path)
        if store is None:
            continue
        store.check_credentials(path)
        try:
            if path in reading:
                store.check_readable(path)
            if path in writing:
                directory_at(path).probe()
        except OSError as error:
            raise AccessError(f"{path} cannot be used: {reason(error)}.") from None
