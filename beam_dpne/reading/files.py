"""Input files are found by path, glob or folder, and read as streams of decompressed, decoded bytes."""

import concurrent.futures
import contextlib
import functools
import glob
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO, NamedTuple

import pyarrow as pa
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_dpne.errors import InputError
from beam_dpne.reading.encodings import LONGEST_MARK, Encoding, Recoder, encoding_of
from beam_dpne.reading.options import codec_of, extension_of, format_of, has_glob
from beam_dpne.reading.records import BrokenText
from beam_dpne.storage.directories import connect_anonymously_to_emulators, require_file_system
from beam_dpne.storage.lineage import absolute_path

_NOT_DATA = (".", "_")
_SHOWN = 5
_STANDARD_INPUT = ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
# Bytes that one request to an object store fetches at least, for files that are read whole or in parts.
_STREAM_BUFFER = 4 * 2**20
_RANGE_BUFFER = 2**20
_MATCHED_AT_ONCE = 16


def require_one_format(files: Mapping[str, int], named: str, input_format: str) -> dict[str, int]:
    """Returns the files of a folder that are data, and checks that they have one format.

    Args:
      files: Paths of the files in the folder, and their sizes.
      named: The folder, as the operator named it.
      input_format: Format of the files, or `auto` for the one of their extension.

    Raises:
      InputError: The folder has no data, or its files have extensions of several or unknown formats.

    >>> require_one_format({"d/a.csv": 3, "d/b.csv.gz": 2, "d/_SUCCESS": 0}, "d", "auto")
    {'d/a.csv': 3, 'd/b.csv.gz': 2}
    """
    data = {path: size for path, size in files.items() if not _name(path).startswith(_NOT_DATA)}
    if not data:
        raise InputError(
            f"input must name files or a folder with files in it, got {named}, which has none. Files "
            "whose names begin with . or _ and files in subfolders do not count. For files in "
            f"subfolders, use a glob such as {named.rstrip('/')}/*/*.jsonl."
        )
    if input_format == "auto":
        _require_one_extension(data, named)
    return data


def _name(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]


def _require_one_extension(paths: Mapping[str, int], named: str) -> None:
    """Raises InputError unless the extensions of all files stand for the same known format."""
    formats: dict[str, str] = {}
    for path in sorted(paths):
        extension = extension_of(path)
        try:
            formats.setdefault(extension, format_of(path))
        except InputError as error:
            raise InputError(
                f"input must be a folder of files of one format, got {named}, which has a file with "
                f"{f'the extension {extension}' if extension else 'no extension'}. Name the files "
                f"by a glob such as {named.rstrip('/')}/*.jsonl, or their format with --input_format. "
                f"({error})"
            ) from None
    if len(set(formats.values())) > 1:
        found = ", ".join(list(formats)[:_SHOWN])
        raise InputError(
            f"input must be a folder of files of one format, got {named}, which has files with the "
            f"extensions {found}. Name the files of one format by a glob such as "
            f"{named.rstrip('/')}/*{next(iter(formats))}."
        )


class InputFile(NamedTuple):
    """A file that was matched.

    Attributes:
      number: Index of the file among all sorted inputs.
      path: Path of the file.
      size: Bytes of the file as it is stored.
    """

    number: int
    path: str
    size: int


def match_inputs(patterns: Sequence[str], input_format: str = "auto") -> list[InputFile]:
    """Finds the files that paths, globs and folders stand for.

    A folder stands for the files in it, but not for those in its subfolders. Files whose names begin
    with "." or "_", such as _SUCCESS, are not data and are left out.

    Args:
      patterns: Paths or globs of files, or paths of folders, local or on any Beam file system.
      input_format: Format of the files. If it is `auto`, the files of one folder must have the
        extensions of one format.

    Returns:
      The files sorted by path, each once. Local paths are made absolute.

    Raises:
      FileNotFoundError: A path does not exist or a glob matches nothing.
      InputError: There is no pattern, a path cannot be read, or a folder holds no files, or files of
        several or unknown formats.
      AccessError: Beam has no file system for a path.
    """
    if isinstance(patterns, str) or not patterns:
        raise InputError(f"inputs must be a list of at least one path, got inputs={patterns!r}.")
    connect_anonymously_to_emulators()
    sizes: dict[str, int] = {}
    match = functools.partial(_match, input_format=input_format)
    for found in _in_parallel(match, list(map(absolute_path, patterns)), patterns):
        sizes.update(found)
    paths = sorted(sizes, key=os.fsencode)
    return [InputFile(number, path, sizes[path]) for number, path in enumerate(paths)]


def _in_parallel(
    match: Callable[[str, str], dict[str, int]], paths: Sequence[str], named: Sequence[str]
) -> list[dict[str, int]]:
    """Matches several paths at a time, since an object store takes several requests for each.

    One path needs no thread, and starting one may hang in a process without memory.
    """
    if len(paths) == 1:
        return [match(paths[0], named[0])]
    with concurrent.futures.ThreadPoolExecutor(_MATCHED_AT_ONCE) as pool:
        return list(pool.map(match, paths, named))


def _match(pattern: str, named: str, input_format: str) -> dict[str, int]:
    """Returns the paths and sizes of the files that one pattern stands for."""
    is_local = FileSystems.get_scheme(pattern) is None
    if is_local:
        _require_stored(pattern, named)
        _require_listable(pattern)
    if os.path.isdir(pattern):
        paths = (os.path.join(pattern, name) for name in os.listdir(pattern))
        found = require_one_format(_sizes(paths), named, input_format)
    elif os.path.isfile(pattern):
        found = _sizes([pattern])
    elif is_local:
        # Beam's own matching walks every folder below the first wildcard.
        found = _sizes(glob.glob(pattern, recursive=True))
    else:
        found = _match_remote(pattern, named, input_format)
    if not found:
        cause = "glob matches no file" if has_glob(named) else "file does not exist"
        raise FileNotFoundError(f"input must name existing files, got {named}: {cause}.")
    for path in found:
        if os.path.exists(path) and not os.access(path, os.R_OK):
            raise InputError(f"input must be readable, got {path}. Check its permissions.")
    return found


def _require_stored(path: str, named: str) -> None:
    """Raises InputError about standard input, pipes and devices, which can be read only once."""
    if os.path.isfile(path) and named not in _STANDARD_INPUT:
        return
    if named in ("-", *_STANDARD_INPUT) or (os.path.exists(path) and not os.path.isdir(path)):
        raise InputError(
            f"input must name files or folders, got {named}: standard input and pipes cannot be read, "
            "since a run opens its input several times. Write the data to a file, and name that file."
        )


def _require_listable(pattern: str) -> None:
    """Raises InputError if this process may not look for a path, or for the files of a folder or glob.

    Python's own search finds nothing then, as if the files did not exist.
    """
    if os.path.isfile(pattern):
        return
    # A folder that is a pattern, or below one that may not be entered, seems not to exist.
    folder = pattern
    while not os.path.isdir(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
    lists = folder == pattern or has_glob(pattern[len(folder) :])
    if not os.access(folder, os.X_OK | (os.R_OK if lists else 0)):
        raise InputError(
            f"input must be readable, got the folder {folder}, which this process may not read. Check "
            "its permissions."
        )


def _sizes(paths: Iterable[str]) -> dict[str, int]:
    return {path: os.path.getsize(path) for path in paths if os.path.isfile(path)}


def _match_remote(pattern: str, named: str, input_format: str) -> dict[str, int]:
    require_file_system(pattern)
    found = {} if pattern.endswith("/") else _listed(pattern, named)
    if has_glob(pattern) or any(found.values()):
        return found
    # Some stores list a folder as an empty file, and others do not list it by its name.
    inside = _listed(f"{pattern.rstrip('/')}/*", named)
    return require_one_format(inside, named, input_format) if inside else found


def _listed(pattern: str, named: str) -> dict[str, int]:
    """Returns the remote paths that match, and their sizes."""
    try:
        matched = FileSystems.match([pattern])[0].metadata_list
    except BeamIOError as error:
        raise InputError(
            f"input must name files that can be listed, got {named} ({_cause(error)}). Check the "
            "address and the credentials."
        ) from None
    # Folders made in an object store's console are empty objects whose names end with "/".
    files = (found for found in matched if not found.path.endswith("/"))
    return {found.path: found.size_in_bytes for found in files}


def _cause(error: Exception) -> str:
    """Returns the type of the innermost error, since Beam's errors hold another error for each path."""
    while isinstance(error, BeamIOError) and error.exception_details:
        error = next(iter(error.exception_details.values()))
    return type(error).__name__


def open_raw(path: str) -> BinaryIO:
    """Opens a file as it is stored, compressed or not.

    Raises:
      InputError: The file cannot be opened.
    """
    try:
        if FileSystems.get_scheme(path) == "gs":
            from beam_dpne.storage.gcs import open_object

            return open_object(path, _STREAM_BUFFER if codec_of(path) else _RANGE_BUFFER)
        return FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    except OSError as error:
        raise InputError(f"{path} cannot be opened ({type(error).__name__}).") from None


@contextlib.contextmanager
def guarded(path: str) -> Iterator[None]:
    """Replaces errors in reading a file by an error that names the file and quotes no data.

    Raises:
      InputError: Any error was raised. Messages of libraries may quote data, so that only the types of
        their errors are reported.
    """
    try:
        yield
    except InputError:
        raise
    except BrokenText as error:
        raise InputError(f"{path} {error}") from None
    except UnicodeError:
        raise InputError(
            f"{path} cannot be decoded. It is damaged, or it does not have the encoding that was given "
            "or that its byte order mark names. Name its encoding with --encoding, e.g. utf-16-le."
        ) from None
    except Exception as error:
        raise InputError(
            f"{path} cannot be read ({type(error).__name__}). The file is truncated or damaged, or "
            "its format is not that of its extension or of --input_format."
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
    """Reads the decompressed bytes of one file; bytes can be read ahead and pushed back.

    Attributes:
      path: The file's path; its extension determines the decompression.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._counted = _Counted(open_raw(path))
        codec = codec_of(path)
        raw = pa.PythonFile(self._counted, mode="r") if codec else None
        self._source = pa.CompressedInputStream(raw, codec) if raw else self._counted
        self._read: Callable[[int], bytes] = self._source.read
        self._ahead = b""
        self._base = 0

    def start_decoding(self, chosen: str | None, *, marks: bool) -> Encoding:
        """Chooses the encoding at the beginning of the text.

        If the text cannot be cut at line feeds before it is decoded, it is read as UTF-8 from here on.

        Args:
          chosen: The operator's choice, or None.
          marks: Whether a byte order mark of UTF-16 counts, see `encoding_of`.
        """
        encoding = encoding_of(self.peek(LONGEST_MARK), chosen, marks=marks)
        if encoding.keeps_ascii:
            return encoding
        ahead, source = io.BytesIO(self._ahead), self._read
        self._ahead = b""
        self._read = Recoder(lambda size: ahead.read(size) or source(size), encoding).read
        return encoding._replace(is_recoded=True)

    @property
    def taken(self) -> int:
        """Number of bytes of the stored file that were read since the start or the last `seek`."""
        return self._counted.taken - self._base

    def read(self, size: int) -> bytes:
        """Reads `size` bytes, or fewer at the end of the text."""
        parts = [self._ahead[:size]]
        self._ahead = self._ahead[size:]
        missing = size - len(parts[0])
        while missing and (part := self._read(missing)):
            parts.append(part)
            missing -= len(part)
        if not self._counted.taken and codec_of(self.path):
            raise EOFError("a compressed file has no bytes")
        return b"".join(parts)

    def peek(self, size: int) -> bytes:
        """Returns the next `size` bytes, which are read again by the next `read`."""
        data = self.read(size)
        self.push_back(data)
        return data

    def push_back(self, data: bytes) -> None:
        """Puts bytes in front of those that are read next."""
        self._ahead = data + self._ahead

    def seek(self, offset: int) -> None:
        """Goes to an offset in bytes of a file that is not compressed."""
        self._counted.raw.seek(offset)
        self._ahead = b""
        self._base = self._counted.taken

    def __enter__(self) -> "TextStream":
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()
        self._counted.close()
