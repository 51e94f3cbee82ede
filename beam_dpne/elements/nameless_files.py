"""Values in memory that has no name: what one process writes there, another one reads."""

import contextlib
import os
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

# Arrays begin at multiples of this number of bytes.
_ALIGNMENT = 64
# Smaller files are read, since to map one costs more than to copy it.
_READ_BYTES = 2**16


@contextlib.contextmanager
def written(value: Any) -> Iterator[int]:
    """Yields a file without a name: the numbers of bytes, the pickle and the arrays of a value."""
    arrays: list[memoryview] = []
    pickled = pickle.dumps(value, 5, buffer_callback=lambda array: arrays.append(array.raw()))
    parts = [pickled, *arrays]
    sizes = np.array([len(parts), *(memoryview(part).nbytes for part in parts)])
    file = os.memfd_create("beam_dpne")
    try:
        with open(file, "wb", closefd=False) as written:
            for part in (sizes.data, *parts):
                written.write(part)
                written.write(bytes(-memoryview(part).nbytes % _ALIGNMENT))
        yield file
    finally:
        os.close(file)


def read(file: int) -> Any:
    """Returns the value in a file; its arrays are parts of the file, and cannot be written."""
    whole = os.fstat(file).st_size
    if whole <= _READ_BYTES:
        content = pa.py_buffer(os.pread(file, whole, 0))
    else:
        with pa.memory_map(f"/proc/self/fd/{file}") as mapped:
            content = mapped.read_buffer()
    os.close(file)
    (count,) = np.frombuffer(content, np.int64, 1).tolist()
    sizes = np.frombuffer(content, np.int64, count, offset=8)
    start = 8 + sizes.nbytes
    parts = []
    for size in sizes.tolist():
        start += -start % _ALIGNMENT
        parts.append(content.slice(start, size))
        start += size
    return pickle.loads(parts[0], buffers=parts[1:])  # noqa: S301
