"""Text of files: a stream of decompressed UTF-8, and blocks of its whole lines.

Bytes that are not valid in a file's encoding become bytes that are not valid UTF-8, so that the records
that hold them are rejected and the others are kept.
"""

import codecs
import io
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from beam_dpne.reading.files import open_raw
from beam_dpne.reading.formats import codec_of
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.rejects import NOT_DECODED, TOO_LONG

_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_UNKNOWN_BYTES = "beam_dpne.unknown_bytes"
# Bytes that are read beyond the end of a range, to reach the end of its last line.
_BEYOND = 2**16
# Bytes of a line's terminator, which do not count as the record's.
LINE_END_BYTES = 2


def _replace_unknown(error: UnicodeError) -> tuple[str, int]:
    """Returns a lone surrogate, whose bytes are not valid UTF-8."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\udc80", error.end


codecs.register_error(_UNKNOWN_BYTES, _replace_unknown)


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
    """The decompressed bytes of one file; after `start_decoding` they are UTF-8."""

    def __init__(self, path: str) -> None:
        """Opens a file, whose extension determines the decompression."""
        self._path = path
        self._counted = _Counted(open_raw(path))
        codec = codec_of(path)
        raw = pa.PythonFile(self._counted, mode="r") if codec else None
        self._source = pa.CompressedInputStream(raw, codec) if raw else self._counted
        self._decoder: codecs.IncrementalDecoder | None = None
        self._ahead = b""
        self._base = 0

    def start_decoding(self, encoding: str | None, *, has_mark: bool) -> bool:
        """Chooses the encoding at the beginning of the text, and skips a byte order mark.

        Args:
          encoding: The operator's choice. None means UTF-8, or UTF-16 with its byte order mark.
          has_mark: Whether such a mark counts. It must not count where the first bytes belong to a
            record, because one user's record would decide how all records are read.

        Returns:
          Whether positions in the text are those in the decompressed file.

        Raises:
          UnicodeError: The text does not begin with the byte order mark that its encoding needs.
        """
        if encoding is None and has_mark and self.peek(2) in _UTF16_MARKS:
            encoding = "utf-16"
        if encoding not in (None, "utf-8", "utf-8-sig"):
            self._decoder = codecs.getincrementaldecoder(encoding)(_UNKNOWN_BYTES)
            self._ahead = _as_utf8(self._decoder, self._ahead)
        return self._decoder is None

    @property
    def taken(self) -> int:
        """Number of bytes of the stored file that were read since the start or the last `seek`."""
        return self._counted.taken - self._base

    def read(self, size: int) -> bytes:
        """Reads `size` bytes, or fewer at the end of the text."""
        parts, found = [], 0
        while found < size and (part := self._ahead or self._next(size - found)):
            self._ahead = part[size - found :]
            parts.append(part[: size - found])
            found += len(parts[-1])
        if not self._counted.taken and codec_of(self._path):
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

    def _next(self, size: int) -> bytes:
        """Returns some more bytes of the text, none at its end."""
        while data := self._source.read(size):
            text = _as_utf8(self._decoder, data) if self._decoder else data
            if text:
                return text
        return _as_utf8(self._decoder, b"", final=True) if self._decoder else b""

    def __enter__(self) -> "TextStream":
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()
        self._counted.close()


def _as_utf8(decoder: codecs.IncrementalDecoder, data: bytes, *, final: bool = False) -> bytes:
    return decoder.decode(data, final).encode("utf-8", "surrogatepass")


class Block(NamedTuple):
    """Whole lines of a text, or one line that is longer than `max_record_bytes`.

    Attributes:
      offset: Offset in the text of the first line.
      data: The lines with their terminators, empty for a long line.
      size: Number of bytes of the lines.
      quotes: Number of quotes in a long line.
    """

    offset: int
    data: bytes
    size: int
    quotes: int = 0

    @property
    def is_long_line(self) -> bool:
        """Whether the block stands for one line that is too long."""
        return not self.data


def read_blocks(
    stream: TextStream, options: ReadOptions, *, start: int, stop: int | None
) -> Iterator[Block]:
    """Reads the lines that begin in a range of bytes of a text.

    Args:
      stream: The text, at the offset `start` if `stop` is None or `start` is in its head.
      options: `block_bytes` and `max_record_bytes`.
      start: Offset in the text, at which a line begins.
      stop: Offset from which lines belong to another range; None if the range has no end.
    """
    rest, offset = b"", start
    while stop is None or offset < stop:
        left = None if stop is None else stop - offset
        piece = stream.read(_wanted(options.block_bytes, len(rest), left))
        data = rest + piece
        end = _end_of_lines(data, left) if piece else len(data)
        if end:
            yield Block(offset, data[:end], end)
        offset, rest = offset + end, data[end:]
        if not piece:
            return
        if not end and len(rest) > options.max_record_bytes + LINE_END_BYTES:
            line, rest = pass_line(stream, rest, options.block_bytes, offset)
            yield line
            offset += line.size


def pass_line(
    stream: TextStream, data: bytes, block_bytes: int, offset: int
) -> tuple[Block, bytes]:
    """Reads to the end of a line without holding it; returns its block and the bytes after it."""
    size = quotes = 0
    while data:
        end = data.find(b"\n") + 1 or len(data)
        size, quotes = size + end, quotes + data.count(b'"', 0, end)
        if data[end - 1 : end] == b"\n":
            return Block(offset, b"", size, quotes), data[end:]
        data = stream.read(block_bytes)
    return Block(offset, b"", size, quotes), b""


def lines_of(block: Block, max_record_bytes: int) -> Iterator[tuple[int, bytes, str]]:
    """Yields offset, bytes and fault ("" if there is none) of each line that is not empty.

    Args:
      block: Lines of a text.
      max_record_bytes: Length above which a line has the fault `TOO_LONG`.
    """
    if block.is_long_line:
        yield block.offset, b"", TOO_LONG
        return
    offset, is_whole_utf8 = block.offset, is_utf8(block.data)
    for line in block.data.split(b"\n"):
        bare = line.removesuffix(b"\r")
        if len(bare) > max_record_bytes:
            yield offset, bare, TOO_LONG
        elif bare:
            yield offset, bare, "" if is_whole_utf8 or is_utf8(bare) else NOT_DECODED
        offset += len(line) + 1


def is_utf8(data: bytes) -> bool:
    """Returns whether bytes are valid UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _wanted(block_bytes: int, rest: int, left: int | None) -> int:
    """Returns how many bytes to read, with only few beyond a range, which another worker reads."""
    if left is None:
        return block_bytes
    return min(block_bytes, max(0, left - rest) + max(_BEYOND, rest))


def _end_of_lines(data: bytes, left: int | None) -> int:
    """Returns where the whole lines end that begin in the first `left` bytes."""
    first_after = data.find(b"\n", max(0, left - 1)) + 1 if left is not None else 0
    return first_after or data.rfind(b"\n") + 1
