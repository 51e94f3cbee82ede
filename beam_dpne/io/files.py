"""Finding input files and streaming their decompressed bytes."""

import concurrent.futures
import contextlib
import glob
import io
import os
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

import pyarrow as pa
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_dpne.io.options import InputError, codec_of, has_glob
from beam_dpne.io.records import TruncatedRecord
from beam_dpne.io.schemes import connect_anonymously_to_emulators, require_file_system

# Of an object store: what one request fetches at least, when all is read, and when parts are.
_STREAM_BUFFER = 4 * 2**20
_RANGE_BUFFER = 2**20
_MATCHED_AT_ONCE = 16


class InputFile(NamedTuple):
    """A matched file: its place among all sorted inputs, its path and its size in bytes."""

    place: int
    path: str
    size: int


def match_inputs(patterns: Sequence[str]) -> list[InputFile]:
    """Finds the files that paths and globs stand for.

    Args:
      patterns: Paths or globs, local or on any Beam file system.

    Returns:
      The files sorted by path, each once. Local paths are made absolute.

    Raises:
      FileNotFoundError: A path does not exist or a glob matches nothing.
      InputError: There is no pattern, or a path is a directory or cannot be read.
      AccessError: Beam has no file system for a path.
    """
    if isinstance(patterns, str) or not patterns:
        raise InputError(f"inputs must be a list of at least one path, got inputs={patterns!r}.")
    connect_anonymously_to_emulators()
    sizes: dict[str, int] = {}
    # An object store takes several requests for each path.
    with concurrent.futures.ThreadPoolExecutor(_MATCHED_AT_ONCE) as pool:
        for found in pool.map(_match, map(_absolute, patterns), patterns):
            sizes.update(found)
    paths = sorted(sizes, key=os.fsencode)
    return [InputFile(place, path, sizes[path]) for place, path in enumerate(paths)]


def _absolute(pattern: str) -> str:
    """Makes local paths absolute, so that each file has one name."""
    if FileSystems.get_scheme(pattern) is not None:
        return pattern
    return os.path.abspath(os.path.expanduser(pattern))


def _match(pattern: str, given: str) -> dict[str, int]:
    """The paths and sizes of the files that one pattern stands for."""
    if os.path.isdir(pattern):
        raise InputError(
            f"input must name files, got {given}, which is a directory. "
            f"Name its files, for example {os.path.join(given, '*.jsonl')}."
        )
    if os.path.isfile(pattern):
        found = {pattern: os.path.getsize(pattern)}
    elif FileSystems.get_scheme(pattern) is None:
        # Beam's own matching walks every folder below the first wildcard.
        paths = filter(os.path.isfile, glob.glob(pattern, recursive=True))
        found = {path: os.path.getsize(path) for path in paths}
    else:
        found = _match_remote(pattern, given)
    if not found:
        what = "glob matches no file" if has_glob(given) else "file does not exist"
        raise FileNotFoundError(f"input must name existing files, got {given}: {what}.")
    for path in found:
        if os.path.exists(path) and not os.access(path, os.R_OK):
            raise InputError(f"input must be readable, got {path}. Check its permissions.")
    return found


def _match_remote(pattern: str, given: str) -> dict[str, int]:
    require_file_system(pattern)
    try:
        matched = FileSystems.match([pattern])[0].metadata_list
    except BeamIOError as error:
        raise InputError(
            f"input must name files that can be listed, got {given} ({_cause(error)}). Check the "
            "address and the credentials."
        ) from None
    # Object stores keep folders that a console made as empty objects whose names end with "/".
    files = (found for found in matched if not found.path.endswith("/"))
    return {found.path: found.size_in_bytes for found in files}


def _cause(error: Exception) -> str:
    """The type of the error within Beam's errors, which hold others by path."""
    while isinstance(error, BeamIOError) and error.exception_details:
        error = next(iter(error.exception_details.values()))
    return type(error).__name__


def open_raw(path: str) -> BinaryIO:
    """Opens a file as it is stored, compressed or not.

    Raises:
      InputError: It cannot be opened.
    """
    try:
        if FileSystems.get_scheme(path) == "gs":
            from beam_dpne.io.gcs import open_object

            return open_object(path, _STREAM_BUFFER if codec_of(path) else _RANGE_BUFFER)
        return FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    except OSError as error:
        raise InputError(f"{path} cannot be opened ({type(error).__name__}).") from None


@contextlib.contextmanager
def guarded(path: str) -> Iterator[None]:
    """Replaces what goes wrong in reading a file by an error that names it and holds no data.

    Raises:
      InputError: Something was raised; libraries quote data in their messages, so only the type
        is told.
    """
    try:
        yield
    except InputError:
        raise
    except TruncatedRecord:
        raise InputError(
            f"{path} ends inside a quoted field. The file is truncated, or a quote is not closed."
        ) from None
    except Exception as error:
        raise InputError(
            f"{path} cannot be read ({type(error).__name__}). The file is truncated, damaged, or "
            "not what its extension or --input_format says."
        ) from None


class _Counted(io.RawIOBase):
    """Counts the bytes that a decompressor takes from a file."""

    def __init__(self, raw: BinaryIO) -> None:
        self.raw = raw
        self.taken = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self.raw.read(size)
        self.taken += len(data)
        return data

    def close(self) -> None:
        self.raw.close()
        super().close()


class TextStream:
    """The decompressed bytes of one file, with a look ahead.

    Attributes:
      path: The file's path; its extension decides on the decompression.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._counted = _Counted(open_raw(path))
        codec = codec_of(path)
        self._source = self._decompress(codec) if codec else self._counted
        self._ahead = b""
        self._base = 0

    def _decompress(self, codec: str) -> pa.NativeFile:
        return pa.CompressedInputStream(pa.PythonFile(self._counted, mode="r"), codec)

    @property
    def taken(self) -> int:
        """Bytes of the stored file consumed since the start or the last `seek`."""
        return self._counted.taken - self._base

    def read(self, size: int) -> bytes:
        """Reads `size` bytes, fewer only at the end of the text."""
        parts = [self._ahead[:size]]
        self._ahead = self._ahead[size:]
        missing = size - len(parts[0])
        while missing and (part := self._source.read(missing)):
            parts.append(part)
            missing -= len(part)
        if not self._counted.taken and codec_of(self.path):
            raise EOFError("a compressed file has no bytes")
        return b"".join(parts)

    def peek(self, size: int) -> bytes:
        """Returns the next `size` bytes without passing them."""
        data = self.read(size)
        self.push_back(data)
        return data

    def push_back(self, data: bytes) -> None:
        """Puts bytes in front of those to be read next."""
        self._ahead = data + self._ahead

    def seek(self, offset: int) -> None:
        """Goes to an offset of a file that is not compressed."""
        self._counted.raw.seek(offset)
        self._ahead = b""
        self._base = self._counted.taken

    def __enter__(self) -> "TextStream":
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()
        self._counted.close()
