"""Large side inputs as files, which are written once and mapped into memory by each worker process.

A side input of 100 MB that travels through a runner is copied several times in every worker process.
A mapped file is one copy for all bundles of a process, in pages that the system can take back. A file
on a local path is mapped where it is, as one copy for all processes of a machine. `coders.spill`
decides which sets become files.

Sets between two rounds are as private as the data: the launcher deletes the run's folder, and a copy
that a worker fetches has no name from the beginning, so that the system frees it with the process.
"""

import collections
import contextlib
import dataclasses
import functools
import hashlib
import mmap
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import pyarrow as pa
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_dpne.errors import SharedStorageError

_T = TypeVar("_T")

_KEPT_OPEN = 4
_LOOK_SECONDS = 30
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


def opened(file: StoredFile, decode: Callable[[pa.Buffer], Any]) -> Any:
    """Returns the set in a stored file, mapped into memory; the same object for all bundles.

    The set is released from memory when the file is gone, since the launcher deletes the file with
    the run.

    Args:
      file: the file to open; it is fetched first if it is not on a local path.
      decode: turns the bytes into a set, if it is not open yet.

    Raises:
      SharedStorageError: if the bytes are not those that were stored.
    """
    return _open_sets.get(file, decode)


def forget(folder: str) -> None:
    """Releases all sets from memory whose files are in a folder, when a run ends."""
    _open_sets.drop(lambda file: file.path.startswith(FileSystems.join(folder, "")))


class CachedForSets(Generic[_T]):
    """A function with an LRU cache; one thread computes a value, and others that need it wait."""

    def __init__(self, function: Callable[..., _T], maxsize: int):
        self._cached = functools.lru_cache(maxsize=maxsize)(function)
        self._lock = threading.Lock()
        self.cache_clear = self._cached.cache_clear
        self.cache_info = self._cached.cache_info
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any, **named: Any) -> _T:
        """Returns the function's value, from the cache if it is there."""
        with self._lock:
            return self._cached(*arguments, **named)


def cached_for_sets(maxsize: int) -> Callable[[Callable[..., _T]], CachedForSets[_T]]:
    """Returns a decorator with an LRU cache, which is cleared when a run's sets are released."""

    def decorate(function: Callable[..., _T]) -> CachedForSets[_T]:
        cached = CachedForSets(function, maxsize)
        _caches.append(cached.cache_clear)
        return cached

    return decorate


class _OpenSets:
    """The last used sets of this process, and a thread that releases them when their run has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sets: collections.OrderedDict[StoredFile, Any] = collections.OrderedDict()
        self._watched = False

    def get(self, file: StoredFile, decode: Callable[[pa.Buffer], Any]) -> Any:
        """Returns a set and opens it if it is not open; one thread opens it for all threads."""
        with self._lock:
            if file not in self._sets:
                self._sets[file] = decode(_mapped(file))
            self._sets.move_to_end(file)
            if len(self._sets) > _KEPT_OPEN:
                self._sets.popitem(last=False)
            if not self._watched:
                self._watched = True
                threading.Thread(target=self._watch, name="stored sets", daemon=True).start()
            return self._sets[file]

    def drop(self, is_gone: Callable[[StoredFile], bool]) -> None:
        """Releases sets; their memory and disk space are free when no bundle uses them."""
        with self._lock:
            files = list(self._sets)
        gone = [file for file in files if is_gone(file)]
        with self._lock:
            for file in gone:
                self._sets.pop(file, None)
        for clear in _caches if gone else ():
            clear()

    def _watch(self) -> None:
        while True:
            time.sleep(_LOOK_SECONDS)
            self.drop(_is_gone)
            with self._lock:
                if not self._sets:
                    self._watched = False
                    return


_open_sets = _OpenSets()
_caches: list[Callable[[], None]] = []


def _is_gone(file: StoredFile) -> bool:
    """Whether the file was deleted; it counts as present while the storage does not answer."""
    with contextlib.suppress(Exception):
        return not FileSystems.exists(file.path)
    return False


def _mapped(file: StoredFile) -> pa.Buffer:
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
