"""How batches of arrays become bytes, and `spill`, which turns large sets into files.

A dataclass of arrays is written as a head and the bytes of its arrays. Fields are numpy arrays, Arrow
arrays, `Columns` of them, a `LengthRule`, or msgpack's types. Decoded arrays are read-only. A value
whose field `stored` is set is written as the address of the file that holds it. Arrays of values that
are never stored travel in the fewest bytes that hold their integers, since a runner copies them several
times.

A side input of 100 MB that travels through a runner is copied several times in every worker process.
A mapped file is one copy for all bundles of a process, in pages that the system can take back. A file
on a local path is mapped where it is, as one copy for all processes of a machine.

Sets between two rounds are as private as the data: the launcher deletes the run's folder, and a copy
that a worker fetches has no name from the beginning, so that the system frees it with the process.
"""

import dataclasses
import functools
import hashlib
import json
import math
import mmap
import operator
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from beam_dpne.errors import SharedStorageError
from beam_dpne.mechanism.rules import LengthRule
from beam_dpne.storage.directories import directory_at
from beam_dpne.storage.paths import is_local, open_file
from beam_dpne.storage.private import temporary_folder

_T = TypeVar("_T")

_COPIED_AT_ONCE = 1 << 22


class Columns:
    """Base of dataclasses of arrays that are one field of a batch.

    Such a field has a default, which names its class.
    """


@dataclasses.dataclass(frozen=True)
class StoredFile:
    """Bytes in a file that workers can read: its path and its SHA-256."""

    path: str
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


def store_file(folder: str, name: str, data: bytes, key: bytes = b"") -> StoredFile:
    """Writes bytes under a name made of their content, so that a repeated bundle changes nothing.

    Args:
      folder: the folder in which the file is written.
      name: the beginning of the file's name.
      data: the content.
      key: for private bytes, a secret without which the name reveals nothing about them.
    """
    digest = hashlib.sha256(data).hexdigest()
    named = hashlib.blake2b(digest.encode(), key=key, digest_size=8).hexdigest()
    directory = directory_at(folder, is_private=True)
    file = f"{name}-{named}.batch"
    directory.put(file, data)
    return StoredFile(directory.path_of(file), digest)


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
    """Clears the caches of this process; a run calls it when it ends, to give the memory back."""
    for clear in _caches:
        clear()


def mapped(file: StoredFile) -> pa.Buffer:
    """Returns the content of a stored file, mapped into memory; a remote file is fetched first.

    Raises:
      SharedStorageError: if the bytes are not those that were stored.
    """
    local = is_local(file.path)
    buffer = pa.memory_map(file.path).read_buffer() if local else _fetched(file.path)
    if hashlib.sha256(buffer).hexdigest() != file.sha256:
        raise SharedStorageError(f"{file.path} is not what the run stored there.")
    return buffer


def _fetched(path: str) -> pa.Buffer:
    """Maps a local copy that has no name, so that nothing of it outlives this process.

    The system frees it with the last mapping, even after SIGKILL. Each process of a machine has one
    copy: engines start one process for each worker, or give each process a file system.
    """
    with tempfile.TemporaryFile(prefix="beam_dpne-", dir=temporary_folder()) as copy:
        with open_file(path) as file:
            shutil.copyfileobj(file, copy, _COPIED_AT_ONCE)
        copy.flush()
        return pa.py_buffer(mmap.mmap(copy.fileno(), 0, access=mmap.ACCESS_READ))


# Engines take elements of 64 MB, but queue and sort many at a time (deploy/flink/config.yaml).
MAX_ELEMENT_BYTES = 4 * 2**20
_ALIGNMENT = 16
# An encoded batch begins with the size of its head, which is never 0, or with this if it is stored.
_NO_HEAD = bytes(_ALIGNMENT)
_LARGEST = np.dtype(np.int64)
# The bits of each half of such an integer.
_HALF = 32
# About what the scalars and the padding of arrays come to.
HEAD_BYTES = 1000


def encode(value: Any) -> bytes:
    """Returns the bytes of a batch; one that was decoded and passed on has them already."""
    stored = getattr(value, "stored", None)
    if stored is not None:
        return _NO_HEAD + json.dumps(dataclasses.asdict(stored)).encode()
    if "_encoded" in vars(value):
        return value._encoded
    scalars: dict[str, Any] = {}
    # The type, the shape and the size in bytes of each array, and the least value and the types of
    # `_narrow`; Arrow arrays have the size alone.
    arrays: list[tuple[str, str | None, tuple[int, ...], int, int, list[str]]] = []
    contents: list[Any] = []
    for name, item in _fields(value):
        if isinstance(item, np.ndarray):
            least, narrow = 0, [np.ascontiguousarray(item)]
            if not hasattr(value, "stored"):
                least, narrow = _narrow(narrow[0])
            size = sum(part.nbytes for part in narrow)
            kinds = [part.dtype.str for part in narrow]
            arrays.append((name, item.dtype.str, item.shape, size, least, kinds))
            contents += [*narrow, bytes(-size % _ALIGNMENT)]
        elif isinstance(item, pa.Array):
            stream = _arrow_stream(item)
            arrays.append((name, None, (), stream.nbytes, 0, []))
            contents += [stream, bytes(-stream.nbytes % _ALIGNMENT)]
        else:
            scalars[name] = item
    head = msgspec.msgpack.encode((scalars, arrays), enc_hook=operator.methodcaller("item"))
    size = len(head).to_bytes(_ALIGNMENT, "little")
    return b"".join((size, head, bytes(-len(head) % _ALIGNMENT), *contents))


def _fields(value: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the fields of a batch and of its columns, whose names have a point in them."""
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        if isinstance(item, Columns):
            yield from _fields(item, f"{field.name}.")
        else:
            yield before + field.name, item


def _made(batch_type: type, fields: dict[str, Any]) -> Any:
    """Returns the batch that has these fields, by the names of `_fields`."""
    own = {name: item for name, item in fields.items() if "." not in name}
    for field in dataclasses.fields(batch_type):
        if isinstance(field.default, Columns):
            start = f"{field.name}."
            columns = {
                name.removeprefix(start): item
                for name, item in fields.items()
                if name.startswith(start)
            }
            own[field.name] = _with_fields(type(field.default), columns)
    return _with_fields(batch_type, own)


def _with_fields(kind: Callable[..., _T], fields: dict[str, Any]) -> _T:
    """Returns an object by the names of its fields, as they were written."""
    return kind(**fields)


def decode(batch_type: type, encoded: bytes) -> Any:
    """Inverse of `encode`; arrays are views of the bytes.

    A stored value is mapped into memory, and is the same object for all bundles of a process.
    """
    if encoded.startswith(_NO_HEAD):
        return _stored_batch(batch_type, _with_fields(StoredFile, json.loads(encoded[_ALIGNMENT:])))
    value = _decode_buffer(batch_type, pa.py_buffer(encoded))
    # Its arrays hold the bytes in any case, and changed values are other objects.
    vars(value)["_encoded"] = encoded
    return value


def _decode_buffer(batch_type: type, buffer: pa.Buffer) -> Any:
    """Does the same as `decode` for the bytes of a batch that is not stored."""
    size = int.from_bytes(buffer[:_ALIGNMENT], "little")
    start = _ALIGNMENT + size
    fields, arrays = msgspec.msgpack.decode(buffer[_ALIGNMENT:start])
    if fields.get("rule") is not None:
        fields["rule"] = msgspec.convert(fields["rule"], LengthRule)
    start += -size % _ALIGNMENT
    for name, kind, shape, size, least, kinds in arrays:
        if kind is None:
            stream = pa.ipc.open_stream(buffer.slice(start, size))
            fields[name] = stream.read_next_batch().column(0)
        else:
            parts: list[np.ndarray] = []
            first = start
            for part_kind in kinds:
                parts.append(np.frombuffer(buffer, part_kind, math.prod(shape), first))
                first += parts[-1].nbytes
            fields[name] = _widened(parts, least, np.dtype(kind)).reshape(shape)
        start += size + -size % _ALIGNMENT
    return _made(batch_type, fields)


def _narrow(array: np.ndarray) -> tuple[int, list[np.ndarray]]:
    """Returns the least of signed integers, and how far each is above it, in the fewest bytes for that.

    Numbers of more than 32 bits may be two arrays, their lower and their upper halves: a pair of rows
    is two small numbers in one large one. Other arrays stay as they are, and so do integers that need
    all of their bytes.
    """
    if array.dtype.kind != "i" or not array.size:
        return 0, [array]
    least = int(array.min())
    span = int(array.max()) - least
    kind = np.min_scalar_type(span)
    if kind.itemsize < array.itemsize:
        return least, [np.subtract(array, least).astype(kind)]
    if array.itemsize < _LARGEST.itemsize or span > np.iinfo(_LARGEST).max:
        return 0, [array]
    above = array - least
    halves = [above & ((1 << _HALF) - 1), above >> _HALF]
    kinds = [np.min_scalar_type(int(half.max())) for half in halves]
    if sum(each.itemsize for each in kinds) == array.itemsize:
        return 0, [array]
    return least, [half.astype(each) for half, each in zip(halves, kinds, strict=True)]


def _widened(parts: list[np.ndarray], least: int, kind: np.dtype) -> np.ndarray:
    """Inverse of `_narrow`: returns the array, which is read-only."""
    lower, *upper = parts
    if lower.dtype == kind:
        return lower
    array = np.add(lower, least, dtype=kind)
    for half in upper:
        array += half.astype(kind) << _HALF
    array.setflags(write=False)
    return array


def _arrow_stream(array: pa.Array) -> memoryview:
    """Returns an Arrow array as an IPC stream, without the parts that a slice leaves out."""
    batch = pa.record_batch([array], names=[""])
    return memoryview(b"".join((batch.schema.serialize(), batch.serialize())))


@cached_for_sets(maxsize=4)
def _stored_batch(batch_type: type, file: StoredFile) -> Any:
    return dataclasses.replace(_decode_buffer(batch_type, mapped(file)), stored=file)


def array_bytes(batch: Any) -> int:
    """Returns the size of a batch's arrays, in bytes; it encodes to little more."""
    values = (item for _, item in _fields(batch))
    return sum(value.nbytes for value in values if isinstance(value, np.ndarray | pa.Array))


def bounded_parts(
    places: np.ndarray, take: Callable[[np.ndarray], _T], whole: _T | None = None
) -> Iterator[_T]:
    """Yields batches of the places, which are halved until each batch is small enough for an element.

    A single place that is larger than that is a batch by itself.

    Args:
      places: rows or entries of a larger batch.
      take: maps places to a batch of them.
      whole: the batch of all of them, if it is there already.
    """
    part = take(places) if whole is None else whole
    if places.size <= 1 or array_bytes(part) <= MAX_ELEMENT_BYTES:
        yield part
        return
    for half in np.array_split(places, 2):
        yield from bounded_parts(half, take)


def spill(batch: _T, store: SetStore | None, key: bytes = b"") -> _T:
    """Stores a batch above the size limit as a file, and returns it with the file's address.

    Args:
      batch: a released set, a set between two rounds, or public counts.
      store: the folder and the limit; with None every batch travels as an element.
      key: for a private set, the secret with which its file is named.
    """
    if store is None or array_bytes(batch) <= store.limit:
        return batch
    value: Any = batch
    encoded = encode(dataclasses.replace(value, stored=None))
    file = store_file(store.folder, type(batch).__name__, encoded, key)
    return dataclasses.replace(value, stored=file)
