"""Large side inputs as files: written once, fetched once per machine, mapped into memory.

A side input of 100 MB that travels through a runner is copied several times in every worker process;
a mapped file is one copy for all processes of a machine, in pages that the system can take back.
"""

import contextlib
import dataclasses
import functools
import hashlib
import os
import stat
import tempfile
import time
import uuid
from collections.abc import Iterator

import pyarrow as pa
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_dpne.started import SharedStorageError

_KEPT_SECONDS = 6 * 3600
_COPIED_AT_ONCE = 1 << 22


@dataclasses.dataclass(frozen=True)
class StoredFile:
    """Bytes in a file that workers can read: its path, its size in bytes and its SHA-256."""

    path: str
    size: int
    sha256: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class SetStore:
    """Where sets that are too large for an element are kept during a run.

    Released sets, and with the adaptive strategy also what stands between two rounds, which is as
    private as the data: so the folder must be, and has to go when the run has ended.

    Attributes:
      folder: the run's temporary location, on storage that all workers share.
      limit: size in bytes above which a set becomes a file.
      from_launch: whether the launcher may put files there as well. One that ends before its job, as
        a template's does, deletes them.
    """

    folder: str
    limit: int
    from_launch: bool = True


def store(folder: str, name: str, data: bytes, key: bytes = b"") -> StoredFile:
    """Writes bytes under a name made of their content, so that a repeated bundle changes nothing.

    Args:
      folder: where to.
      name: what the file's name begins with.
      data: what to write.
      key: for bytes that are private, a secret without which the name tells nothing about them.
    """
    digest = hashlib.sha256(data).hexdigest()
    named = hashlib.blake2b(digest.encode(), key=key, digest_size=8).hexdigest()
    path = FileSystems.join(folder, f"{name}-{named}.arrow")
    if FileSystems.get_scheme(path) is None:
        os.makedirs(folder, exist_ok=True)
        _write_local(path, data)
    else:
        with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            file.write(data)
    return StoredFile(path, len(data), digest)


@functools.lru_cache(maxsize=2)
def mapped(stored: StoredFile) -> pa.Buffer:
    """Returns the bytes, mapped into memory, fetched first if they are not on a local path.

    Raises:
      SharedStorageError: if they are not the bytes that were stored.
    """
    if FileSystems.get_scheme(stored.path) is None:
        buffer = pa.memory_map(stored.path).read_buffer()
    else:
        buffer = _fetched(stored)
    if not _is_whole(buffer, stored):
        raise SharedStorageError(f"{stored.path} is not what the run stored there.")
    return buffer


def _is_whole(buffer: pa.Buffer, stored: StoredFile) -> bool:
    return buffer.size == stored.size and hashlib.sha256(buffer).hexdigest() == stored.sha256


def _fetched(stored: StoredFile) -> pa.Buffer:
    """Maps a local copy, which processes of one machine make once; a damaged one is made anew."""
    folder = _own_folder()
    local = os.path.join(folder, f"{stored.sha256}.arrow")
    with _locked(folder):
        if os.path.exists(local):
            buffer = pa.memory_map(local).read_buffer()
            if _is_whole(buffer, stored):
                return buffer
        _remove_old(folder)
        with FileSystems.open(stored.path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            _write_local(local, iter(lambda: file.read(_COPIED_AT_ONCE), b""))
        return pa.memory_map(local).read_buffer()


def _own_folder() -> str:
    """Returns a folder for copies that nobody else can write; another one if that is taken."""
    folder = os.path.join(tempfile.gettempdir(), f"beam_dpne-sets-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, mode=0o700)
    found = os.lstat(folder)
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if is_ours and not found.st_mode & 0o077:
        return folder
    return tempfile.mkdtemp(prefix="beam_dpne-sets-")


def _write_local(path: str, data: bytes | Iterator[bytes]) -> None:
    """Writes a file that appears at once and whole."""
    temporary = f"{path}.{uuid.uuid4().hex}"
    try:
        with open(temporary, "wb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(temporary)
        raise


def _remove_old(folder: str) -> None:
    """Deletes copies of earlier runs; one that is still mapped somewhere stays mapped."""
    for entry in os.scandir(folder):
        with contextlib.suppress(OSError):
            if entry.stat().st_mtime < time.time() - _KEPT_SECONDS:
                os.remove(entry.path)


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError):
            import fcntl

            handle = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
