"""Input files: found by path, glob or folder, opened on any file system, decompressed and decoded."""

import codecs
import contextlib
import functools
import glob
import hashlib
import io
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple, NoReturn, TextIO

from beam_dpne.errors import InputError, kind_of
from beam_dpne.reading.compression import SIGNATURE_BYTES, decompressed, refuse_unnamed
from beam_dpne.reading.encodings import canonical_encoding
from beam_dpne.reading.held import HeldTable
from beam_dpne.reading.lake_tables import refuse_lake_tables, refuse_listed_tables
from beam_dpne.reading.options import codec_of
from beam_dpne.reading.partitions import fields_of_path
from beam_dpne.reading.rejects import NOT_DECODED, TOO_LONG
from beam_dpne.reading.table_versions import files_of, version_at
from beam_dpne.storage.directories import absolute_path, reason, require_file_system
from beam_dpne.storage.objects import store_of
from beam_dpne.storage.paths import is_local, matching, open_file

# Bytes that one request to an object store fetches at least, for files that are read whole or in parts.
_STREAM_BUFFER = 4 * 2**20
_RANGE_BUFFER = 2**20
_BUFFER = 2**17
_BLOCK_SIZE = 16 * 2**20
# Bytes of a line's end, which do not count as the record's.
LINE_END_BYTES = 2
_UNKNOWN_BYTES = "beam_dpne.unknown_bytes"


class BrokenText(Exception):
    """A text cannot be cut into records; the message is the predicate of a sentence about the file."""


class InputFile(NamedTuple):
    """A file that was matched.

    Attributes:
      number: Index of the file among all sorted inputs.
      path: Path of the file.
      size: Bytes of the file as it is stored.
      fields: Fields of all its records, which its path has, with their values.
      version: Name of the version of a lake table of which it is a file, or "".
      table: The rows, if it stands for a frame in memory; None for a file.
    """

    number: int
    path: str
    size: int
    fields: tuple[tuple[str, str | None], ...] = ()
    version: str = ""
    table: HeldTable | None = None


class WorkItem(NamedTuple):
    """A file, or a part of one.

    Attributes:
      file: The file.
      kind: Format of the file.
      start: First byte (of a text) or row group (of Parquet) that belongs to this item.
      stop: The byte or row group after the last one; None is the end of the file.
    """

    file: InputFile
    kind: str
    start: int = 0
    stop: int | None = None


def text_bytes(files: Iterable[InputFile]) -> int:
    """Returns about how many bytes of text files have; compressed text is four times as long."""
    return sum(file.size * (4 if _is_compressed(file.path) else 1) for file in files)


def _is_compressed(path: str) -> bool:
    """Whether a file is compressed, as files of Parquet are inside."""
    return codec_of(path) is not None or path.endswith(".parquet")


def has_glob(pattern: str) -> bool:
    """Returns whether a pattern may match several files."""
    return any(sign in pattern for sign in "*?[")


def patterns_of(files: Iterable[InputFile]) -> list[str]:
    """Returns what `match_inputs` finds the same files by, also after a commit to a lake table."""
    return list(dict.fromkeys(file.version or file.path for file in files))


def match_inputs(patterns: Sequence[str]) -> list[InputFile]:
    """Finds the files that paths, globs and folders stand for.

    A folder stands for the files in it and in the folders below. Files and folders there whose names
    begin with "." or "_", such as _SUCCESS, are not data and are left out.

    Args:
      patterns: Paths or globs of files, or paths of folders, local or on any Beam file system, or of
        local tables of Delta or Iceberg, or names of their versions.

    Returns:
      The files sorted by path, each once. Local paths are made absolute.

    Raises:
      FileNotFoundError: A path does not exist, or there are no files for it.
      InputError: A path cannot be read, or is of a table whose files have deleted rows.
      AccessError: Beam has no file system for a path.
    """
    files: dict[str, InputFile] = {}
    for named in patterns:
        path = absolute_path(named)
        require_file_system(path)
        if version := version_at(path):
            for file in files_of(version):
                files[file.path] = InputFile(0, file.path, file.size, file.fields, version)
            continue
        if os.path.isdir(path):
            # A table may have no files but those in folders below.
            refuse_lake_tables("input", [f"{path}/"])
        for found, size in _match(path, named).items():
            files[found] = InputFile(0, found, size, fields_of_path(found))
    paths = sorted(files, key=os.fsencode)
    return [files[path]._replace(number=number) for number, path in enumerate(paths)]


def _match(pattern: str, named: str) -> dict[str, int]:
    """Returns the paths and sizes of the files that one pattern stands for, none of a lake table."""
    folder = ""
    if os.path.isdir(pattern):
        with guarded(named):
            below = list(_below(pattern))
        found = _local(below)
    elif is_local(pattern):
        found = _local([pattern]) or _local(glob.glob(pattern, recursive=True))
    else:
        found = {} if pattern.endswith("/") else _remote(pattern, named)
        # Some stores list a folder as an empty file, and others do not list it by its name.
        if not has_glob(pattern) and not any(found.values()):
            folder = pattern.rstrip("/")
            inside = _remote(f"{folder}/**", named)
            refuse_listed_tables("input", inside)
            data = {path: size for path, size in inside.items() if _is_data(path[len(folder) :])}
            found = data if inside else found
    if not found:
        raise FileNotFoundError(
            "`input` must name existing files that can be read several times, got "
            f"{named}: {_why_none(pattern)}."
        )
    # A remote folder was listed at once; to ask for each folder below would take a request for each.
    refuse_lake_tables("input", [f"{folder}/"] if folder else found)
    return found


def _why_none(pattern: str) -> str:
    """Returns why a pattern stands for no file."""
    if not is_local(pattern):
        return "the glob matches none" if has_glob(pattern) else "there is no such file"
    if os.path.isdir(pattern):
        return "the folder has no file to read; names that begin with . or _ are passed over"
    if os.path.exists(pattern):
        return "it is a pipe or a device, which can be read only once; write it into a file"
    if os.path.islink(pattern):
        return "it is a link that leads to no file"
    return "the glob matches none" if has_glob(pattern) else "there is no such file"


def _local(paths: Sequence[str]) -> dict[str, int]:
    """Returns the files among paths, and their sizes; a link that leads nowhere is refused."""
    for path in paths:
        if os.path.islink(path) and not os.path.exists(path):
            raise FileNotFoundError(
                f"`input` must name existing files that can be read several times, got {path}: "
                f"{_why_none(path)}."
            )
    return {path: os.path.getsize(path) for path in paths if os.path.isfile(path)}


def _remote(pattern: str, named: str) -> dict[str, int]:
    """Returns the remote paths that match, and their sizes."""
    try:
        matched = matching(pattern)
    except OSError as error:
        # Beam's errors hold another error for each path.
        details = getattr(error, "exception_details", None) or {}
        cause = next(iter(details.values()), error)
        raise InputError(
            f"`input` must name files that can be listed, got {named} ({kind_of(cause)}). Check "
            "the address and the credentials."
        ) from None
    # Folders made in an object store's console are empty objects whose names end with "/".
    files = (found for found in matched if not found.path.endswith("/"))
    return {found.path: found.size_in_bytes for found in files}


def _below(folder: str) -> Iterator[str]:
    """Yields the paths of the data in a local folder and below; no folder is entered twice by links."""
    entered = {os.path.realpath(folder)}
    # Without a function for errors, a folder that cannot be listed would be passed over.
    for inside, folders, names in os.walk(folder, followlinks=True, onerror=_raise):
        # The walk goes into the folders that are left in the list.
        folders.sort()
        for name in list(folders):
            real = os.path.realpath(os.path.join(inside, name))
            if real in entered or not _is_data(name):
                folders.remove(name)
            entered.add(real)
        yield from (os.path.join(inside, name) for name in names if _is_data(name))


def _raise(error: OSError) -> NoReturn:
    raise error


def _is_data(path: str) -> bool:
    """Whether a file is data by its name and by those of the folders around it."""
    return not any(part.startswith((".", "_")) for part in re.split(r"[/\\]", path))


def open_raw(path: str) -> BinaryIO:
    """Opens a file as it is stored, compressed or not.

    Raises:
      InputError: The file cannot be opened.
    """
    try:
        if store := store_of(path):
            return store.open_object(path, _STREAM_BUFFER if codec_of(path) else _RANGE_BUFFER)
        return open_file(path)
    except OSError as error:
        raise InputError(f"{path} cannot be opened: {reason(error)}.") from None


_DAMAGED = (
    "The file is truncated or damaged, or its format is not that of its extension or of "
    "`input_format`."
)


@contextlib.contextmanager
def guarded(path: str, remedy: str = _DAMAGED) -> Iterator[None]:
    """Replaces errors in reading a file by an error that names the file and quotes no data.

    Args:
      path: The file.
      remedy: What may be wrong with it.

    Raises:
      InputError: Any error was raised. Messages of libraries may quote data, so that only the types of
        their errors are reported.
    """
    try:
        yield
    except InputError as error:
        if path in str(error):
            raise
        raise InputError(f"{path}: {error}") from None
    except BrokenText as error:
        raise InputError(f"{path} {error}") from None
    except UnicodeError:
        raise InputError(
            f"{path} cannot be decoded. It is damaged, or it does not have the encoding that was given "
            "or that its byte order mark names. Name the right one, e.g. set `encoding=utf-16-le`."
        ) from None
    except Exception as error:
        raise InputError(f"{path} cannot be read ({kind_of(error)}). {remedy}") from None


def _replace_unknown(error: UnicodeError) -> tuple[str, int]:
    """Returns a lone surrogate, which is not valid UTF-8, so that only records with it are rejected."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\udc80", error.end


codecs.register_error(_UNKNOWN_BYTES, _replace_unknown)


class LineText:
    """A text that is read by blocks of whole lines.

    Attributes:
      offset: Offset in the text, as UTF-8, of what is read next.
      block: Bytes or characters from which a block of lines goes on to the end of its last line. With
        1, no line is read in advance.
      head: The beginning of the text, if it is known.
    """

    def __init__(self, lines: Any, text: TextIO, offset: int, head: str = "") -> None:
        """Begins to read.

        Args:
          lines: The same stream as `text`, or the bytes of it if they are UTF-8.
          text: The text.
          offset: Offset of its beginning in the whole text.
          head: What it begins with.
        """
        self._lines = lines
        self.read = text.read
        self.readline = text.readline
        self.offset = offset
        self.block = 1
        self.head = head

    @classmethod
    def of(cls, data: bytes, offset: int, newline: str = "\n") -> "LineText":
        """Returns a part of a text, as UTF-8, that begins at an offset; `newline` as in `open`."""
        lines = io.BytesIO(data)
        text = io.TextIOWrapper(lines, "utf-8", "surrogateescape", newline)
        return cls(lines, text, offset)

    def put_back(self, data: bytes, most: int) -> None:
        """Lets `readline` begin with what was read last, and with the rest of its last line.

        Args:
          data: What was read, as UTF-8.
          most: Characters of the line that are read for it at most.
        """
        further = self.readline
        text = data.decode(errors="surrogateescape")
        if text and not text.endswith("\n"):
            text += further(most)
        # A carriage return alone ends a line in it, as in texts that are opened so.
        held = io.StringIO(text, newline="")
        self.readline = lambda size=-1: held.readline(size) or further(size)

    def blocks(self, limit: int, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Yields offset and text of blocks of whole lines, as UTF-8 if it could be decoded.

        Args:
          limit: Bytes above which a line is too long, and only parts of it are held in memory.
          stop: Offset from which lines belong to another range; None if the range has no end.
        """
        most = limit + LINE_END_BYTES + 1
        while stop is None or self.offset < stop:
            size = min(self.block, stop - self.offset) if stop else self.block
            start = self.offset
            text = as_utf8(self._lines.read(size))
            self.offset += len(text)
            while text[-1:] not in (b"", b"\n") and (rest := as_utf8(self._lines.readline(most))):
                # The beginning is enough to see that the line is too long.
                text = text[: 4 * size + most] + rest
                self.offset += len(rest)
            if not text:
                return
            yield start, text

    def lines(self, limit: int, stop: int | None = None) -> Iterator[tuple[int, str, str]]:
        """Yields the lines of all blocks, as `lines_of` does."""
        for start, text in self.blocks(limit, stop):
            yield from lines_of(start, text, limit)


class TextFile(LineText):
    """The decompressed and decoded text of a file, for a `with` statement.

    Attributes:
      is_plain: Whether offsets are those in the file, so that reading may start anywhere.
      encoding: Python's name of the encoding by which it is read.
      first_bytes: What it begins with, before it is decoded.
    """

    def __init__(
        self,
        path: str,
        encoding: str | None = None,
        *,
        has_mark: bool = False,
        newline: str = "\n",
        start: int = 0,
    ) -> None:
        r"""Opens a file, whose extension determines the decompression.

        Args:
          path: Path of the file.
          encoding: Python's name. None means UTF-8, or UTF-16 with its byte order mark.
          has_mark: Whether such a mark counts. It must not count where the first bytes belong to a
            record, because one user's record would decide how all records are read.
          newline: As in `open`; a line feed ends a line in both "\n" and "".
          start: First byte that is read, of a plain file.
        """
        self._raw = open_raw(path)
        with contextlib.ExitStack() as on_error:
            on_error.callback(self._raw.close)
            codec = codec_of(path)
            source: Any = self._raw
            if codec:
                source = decompressed(self._raw, codec, path)
            data = io.BufferedReader(source, _BUFFER)
            if start:
                data.seek(start)
            self._start = offset = start
            peeked = data.peek(1)
            if codec and not peeked and not self.taken:
                raise EOFError("a compressed file has no bytes")
            name = canonical_encoding(encoding or "utf-8").removesuffix("-sig")
            if encoding is None and has_mark and peeked[:2] in (b"\xff\xfe", b"\xfe\xff"):
                name = "utf-16"
            self.is_plain = name == "utf-8" and not codec
            self.encoding = name
            self.first_bytes = peeked
            head = peeked.decode(name, "replace")
            if not start and head.startswith("\ufeff"):
                data.read(len("\ufeff".encode(name)))
                offset = len(codecs.BOM_UTF8)
                head = head[1:]
            errors = "surrogateescape" if name == "utf-8" else _UNKNOWN_BYTES
            self._text = io.TextIOWrapper(data, name, errors, newline)
            lines = data if name == "utf-8" else self._text
            super().__init__(lines, self._text, offset, head)
            on_error.pop_all()

    @property
    def taken(self) -> int:
        """Number of bytes of the stored file that were read."""
        return self._raw.tell() - self._start

    def __enter__(self) -> "TextFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._text.close()
        self._raw.close()


def lines_of(start: int, block: bytes, limit: int) -> Iterator[tuple[int, str, str]]:
    """Returns offset, text and fault ("" if there is none) of each line of a block.

    A line of more than `limit` bytes has the fault `TOO_LONG` and no text.
    """
    lines = io.BytesIO(block).readlines()
    sizes = list(map(len, lines))
    offsets = itertools.accumulate(sizes, initial=start)
    most = limit + LINE_END_BYTES
    if max(sizes, default=0) <= most:
        # Most blocks have no fault, and are decoded at once.
        with contextlib.suppress(UnicodeDecodeError):
            return zip(offsets, io.StringIO(block.decode(), "\n"), itertools.repeat(""))
    return map(functools.partial(_line_of, most), offsets, lines)


def _line_of(most: int, offset: int, data: bytes) -> tuple[int, str, str]:
    """Returns offset, text and fault of a line of bytes, of which there are at most so many."""
    if len(data) > most:
        return offset, "", TOO_LONG
    line = data.decode(errors="surrogateescape")
    return offset, line, size_of(line)[1]


def as_utf8(text: str | bytes) -> bytes:
    """Returns a text as UTF-8, and what could not be decoded as a byte that is not UTF-8."""
    return text if isinstance(text, bytes) else text.encode(errors="surrogateescape")


def size_of(text: str) -> tuple[int, str]:
    """Returns the bytes of a text as UTF-8, and its fault if bytes of it could not be decoded."""
    try:
        return len(text.encode()), ""
    except UnicodeEncodeError:
        return len(as_utf8(text)), NOT_DECODED


def line_blocks(path: str) -> Iterator[list[str]]:
    """Yields the lines of successive blocks of a text, at least one block.

    Raises:
      InputError: The file cannot be read, or is not UTF-8.
    """
    rest = ""
    with guarded(path), TextFile(path) as text:
        while data := text.read(_BLOCK_SIZE):
            if size_of(data)[1]:
                if codec_of(path) is None:
                    with open_raw(path) as raw:
                        refuse_unnamed(path, raw.read(SIGNATURE_BYTES))
                raise InputError(f"{path} is not UTF-8; convert it.")
            whole, _, rest = (rest + data).rpartition("\n")
            yield [line.removesuffix("\r") for line in whole.split("\n")]
        yield [rest]


def sha256_of(path: str) -> str:
    """Returns the SHA-256 of a file as it is stored."""
    digest = hashlib.sha256()
    with guarded(path), open_raw(path) as file:
        while data := file.read(_BLOCK_SIZE):
            digest.update(data)
    return digest.hexdigest()
