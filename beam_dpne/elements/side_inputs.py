"""Large side inputs as files, which are written once and mapped into memory by each worker process.

A side input of 100 MB that travels through a runner is copied several times in every worker process.
A mapped file is one copy for all bundles of a process, in pages that the system can take back. A file
on a local path is mapped where it is, as one copy for all processes of a machine. `coders.spill`
decides which sets become files.

Sets between two rounds are as private as the data: the launcher deletes the run's folder, and a copy
that a worker fetches has no name from the beginning, so that the system frees it with the process.
"""

import contextlib
import dataclasses
import functools
import hashlib
import mmap
import os
import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_dpne.errors import SharedStorageError

_T = TypeVar("_T")

_COPIED_AT_ONCE = 1 << 22


@dataclasses.dataclass(frozen=True)
class StoredFile:
    """Bytes in a file that workers can read: its path, its size in bytes and its SHA-256."""

    path: str
    size: int
    sha256: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class SetStore:
    """The folder in which a run keeps sets that are too large for an element.

    These are released sets, and with the adaptive strategy also the sets of present n-grams between
    two rounds. The latter are as private as the data: the folder must be as private, and must be
    deleted when the run has ended.

    Attributes:
      folder: the run's temporary location, on storage that all workers share.
      limit: the size in bytes above which a set becomes a file.
      from_launch: whether the launcher may write files there as well. It must not if it ends before
        its job, as a template's launcher does, because it then deletes them.
    """

    folder: str
    limit: int
    from_launch: bool = True


def store(folder: str, name: str, data: bytes, key: bytes = b"") -> StoredFile:
    """Writes bytes under a name made of their content, so that a repeated bundle changes nothing.

    Args:
      folder: the folder in which the file is written.
      name: the beginning of the file's name.
      data: the content.
      key: for private bytes, a secret without which the name reveals nothing about them.
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


def cached_for_sets(maxsize: int) -> Callable[[Callable[..., _T]], Callable[..., _T]]:
    """Returns a decorator with an LRU cache, which `forget` clears.

    One thread computes a value, and others that need it wait, so that a large set is in memory once.
    """

    def decorate(function: Callable[..., _T]) -> Callable[..., _T]:
        cached = functools.lru_cache(maxsize=maxsize)(function)
        lock = threading.Lock()
        _caches.append(cached.cache_clear)

        @functools.wraps(function)
        def locked(*arguments: Any, **named: Any) -> _T:
            with lock:
                return cached(*arguments, **named)

        return locked

    return decorate


_caches: list[Callable[[], None]] = []


def forget() -> None:
    """Releases the sets of this process, and what was computed from them, when a run ends."""
    for clear in _caches:
        clear()


def mapped(file: StoredFile) -> pa.Buffer:
    """Returns the content of a stored file, mapped into memory; a remote file is fetched first.

    Raises:
      SharedStorageError: if the bytes are not those that were stored.
    """
    if FileSystems.get_scheme(file.path) is None:
        buffer = pa.memory_map(file.path).read_buffer()
    else:
        buffer = _fetched(file.path)
    if buffer.size != file.size or hashlib.sha256(buffer).hexdigest() != file.sha256:
        raise SharedStorageError(f"{file.path} is not what the run stored there.")
    return buffer


def _fetched(path: str) -> pa.Buffer:
    """Maps a local copy that has no name, so that nothing of it outlives this process.

    The system frees it with the last mapping, even after SIGKILL. Each process of a machine has one
    copy: engines start one process for each worker, or give each process a file system.
    """
    with tempfile.TemporaryFile(prefix="beam_dpne-") as copy:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            shutil.copyfileobj(file, copy, _COPIED_AT_ONCE)
        copy.flush()
        if not copy.tell():
            return pa.py_buffer(b"")
        return pa.py_buffer(mmap.mmap(copy.fileno(), 0, access=mmap.ACCESS_READ))


def _write_local(path: str, data: bytes) -> None:
    """Writes a file that appears at once and whole."""
    temporary = f"{path}.{uuid.uuid4().hex}"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(temporary)
        raise
