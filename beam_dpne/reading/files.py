"""Input files are found by path, glob or folder, and opened on any file system of Beam."""

import contextlib
import glob
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO, NamedTuple

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_dpne.errors import InputError
from beam_dpne.reading.formats import codec_of, extension_of, format_of, has_glob
from beam_dpne.storage.directories import (
    absolute_path,
    connect_anonymously_to_emulators,
    require_file_system,
)

_NOT_DATA = (".", "_")
# Bytes that one request to an object store fetches at least, for files that are read whole or in parts.
_STREAM_BUFFER = 4 * 2**20
_RANGE_BUFFER = 2**20

# A worker may import any module of this room first, and then use storage.
connect_anonymously_to_emulators()


class BrokenText(Exception):
    """A text cannot be cut into records; the message is the predicate of a sentence about the file."""


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
    sizes: dict[str, int] = {}
    for named in patterns:
        sizes.update(_match(absolute_path(named), named, input_format))
    paths = sorted(sizes, key=os.fsencode)
    return [InputFile(number, path, sizes[path]) for number, path in enumerate(paths)]


def _match(pattern: str, named: str, input_format: str) -> dict[str, int]:
    """Returns the paths and sizes of the files that one pattern stands for."""
    if FileSystems.get_scheme(pattern) is not None:
        found = _match_remote(pattern, named, input_format)
    elif os.path.isdir(pattern):
        if not os.access(pattern, os.R_OK | os.X_OK):
            raise InputError(f"input must be readable, got {named}. Check its permissions.")
        paths = (os.path.join(pattern, name) for name in os.listdir(pattern))
        found = require_one_format(_sizes(paths), named, input_format)
    else:
        # Beam's own matching walks every folder below the first wildcard.
        found = _sizes([pattern]) or _sizes(glob.glob(pattern, recursive=True))
    if not found:
        cause = "glob matches no file" if has_glob(named) else "file does not exist"
        raise FileNotFoundError(
            f"input must name existing files that can be read several times, got {named}: {cause}."
        )
    for path in found:
        if os.path.exists(path) and not os.access(path, os.R_OK):
            raise InputError(f"input must be readable, got {path}. Check its permissions.")
    return found


def _sizes(paths: Iterable[str]) -> dict[str, int]:
    return {path: os.path.getsize(path) for path in paths if os.path.isfile(path)}


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
    names = {path: path.replace("\\", "/").rpartition("/")[2] for path in files}
    data = {path: files[path] for path in sorted(files) if not names[path].startswith(_NOT_DATA)}
    if not data:
        raise InputError(
            f"input must name files or a folder with files in it, got {named}, which has none. Files "
            "whose names begin with . or _ and files in subfolders do not count. For files in "
            f"subfolders, use a glob such as {named.rstrip('/')}/*/*.jsonl."
        )
    formats: dict[str, str] = {}
    for path in data if input_format == "auto" else ():
        with contextlib.suppress(InputError):
            formats[extension_of(path)] = format_of(path)
        formats.setdefault(extension_of(path), "")
    if formats and (len(set(formats.values())) > 1 or "" in formats.values()):
        raise InputError(
            f"input must be a folder of files of one format, got {named}, which has files with the "
            f"extensions {', '.join(extension or '(none)' for extension in list(formats)[:5])}. Name "
            f"the files of one format by a glob such as {named.rstrip('/')}/*.jsonl, or give "
            "input_format."
        )
    return data


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
        # Beam's errors hold another error for each path.
        cause = next(iter((error.exception_details or {}).values()), error)
        raise InputError(
            f"input must name files that can be listed, got {named} ({type(cause).__name__}). Check "
            "the address and the credentials."
        ) from None
    # Folders made in an object store's console are empty objects whose names end with "/".
    files = (found for found in matched if not found.path.endswith("/"))
    return {found.path: found.size_in_bytes for found in files}


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
            "or that its byte order mark names. Name its encoding with encoding, e.g. utf-16-le."
        ) from None
    except Exception as error:
        raise InputError(
            f"{path} cannot be read ({type(error).__name__}). The file is truncated or damaged, or "
            "its format is not that of its extension or of input_format."
        ) from None
