"""Compressed files: their bytes as a stream, also of concatenated members.

Arrow reads zstd, igzip reads gzip, and Python's modules read what Arrow does not: xz, the one file of a
zip archive, empty members of bzip2, and zstd with windows of more than 128 MiB (`zstd --long`).
"""

import bz2
import io
import lzma
import zipfile
from collections.abc import Callable
from typing import Any, BinaryIO, Protocol, cast

import pyarrow as pa

from beam_dpne.errors import InputError

_SIGNATURES = {
    "gzip": b"\x1f\x8b",
    "bz2": b"BZh",
    "zstd": b"\x28\xb5\x2f\xfd",
    "xz": b"\xfd7zXZ\0",
    "zip": b"PK\x03\x04",
}
_PARQUET = b"PAR1"
# Names of the first members of xlsx and ods, which are zip archives.
_OF_OFFICE = (b"[Content_Types].xml", b"_rels/", b"docProps/", b"xl/", b"mimetypeapplication/")
_ENDINGS = {"gzip": ".gz", "bz2": ".bz2", "zstd": ".zst", "xz": ".xz", "zip": ".zip"}
# So many that the name of the first member of an archive is among them.
SIGNATURE_BYTES = 128
# Bytes that are decompressed at a time, and become up to some hundred MB.
_PIECE = 8192
# The largest window of zstd that Arrow and the program zstd take without an option, and the largest.
_USUAL_WINDOW = 2**27
_LARGEST_WINDOW = 2**31
# Bits of the descriptor of a frame of zstd: whether it is one segment without a window.
_SINGLE_SEGMENT = 0x20


class _Decoder(Protocol):
    """Decompresses one member."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


def decompressed(raw: BinaryIO, codec: str, path: str) -> Any:
    """Returns a stream of the bytes of a compressed file.

    Args:
      raw: The file as it is stored.
      codec: Its compression, by `options.codec_of`.
      path: Its path, for errors.

    Raises:
      InputError: An archive has not one file, or one that is encrypted.
    """
    if codec == "gzip":
        # Three times as fast as Python's `gzip`. It is loaded for such files only.
        from isal import igzip

        return igzip.IGzipFile(fileobj=raw)
    if codec == "zip":
        return _only_member(raw, path)
    if codec == "xz":
        return _Members(raw, lzma.LZMADecompressor)
    if codec == "bz2":
        return _Members(raw, bz2.BZ2Decompressor)
    head = raw.read(_PIECE)
    raw.seek(0)
    if _window(head) > _USUAL_WINDOW:
        return _Members(raw, _large_zstd)
    return pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), codec)


def codec_in(head: bytes) -> str | None:
    r"""Returns the compression of a file that begins so, or None; no text begins with its signature.

    >>> codec_in(b"PK\x03\x04"), codec_in(b"user,text")
    ('zip', None)
    """
    return next((codec for codec, sign in _SIGNATURES.items() if head.startswith(sign)), None)


def refuse_unnamed(path: str, head: bytes) -> None:
    """Raises InputError if a file that is read without decompression begins as a compressed one."""
    codec = codec_in(head)
    if head.startswith(_PARQUET):
        raise InputError(
            f"{path} must be a file of text, got one of Parquet: rename it, so that its name ends in "
            ".parquet."
        )
    if codec == "zip" and any(part in head for part in _OF_OFFICE):
        raise InputError(
            f"{path} must be a file of text, got what seems to be a workbook, as Excel and LibreOffice "
            "save it: save its sheet as CSV in UTF-8."
        )
    if codec is not None:
        raise InputError(
            f"{path} must have a name that ends in {_ENDINGS[codec]}, since it is compressed by "
            f"{codec}, perhaps as the Content-Encoding of its store: rename it, or decompress it."
        )


def _only_member(raw: BinaryIO, path: str) -> Any:
    archive = zipfile.ZipFile(raw)
    # A Mac puts what it knows of a file beside it.
    files = [
        each
        for each in archive.infolist()
        if not (each.is_dir() or each.filename.startswith("__MACOSX/"))
    ]
    if len(files) != 1 or files[0].flag_bits & 1:
        raise InputError(
            f"{path} must have one file that is not encrypted, got an archive with another content. "
            "Unpack it."
        )
    return archive.open(files[0])


def _window(head: bytes) -> int:
    """Returns the bytes of the window of a frame of zstd that begins so (RFC 8878, 3.1.1.1.2)."""
    if len(head) < 6 or not head.startswith(_SIGNATURES["zstd"]):
        return 0
    descriptor = head[4]
    if descriptor & _SINGLE_SEGMENT:
        # The window is the content, whose size follows the number of the dictionary.
        start = 5 + (0, 1, 2, 4)[descriptor & 3]
        size = (1, 2, 4, 8)[descriptor >> 6]
        return int.from_bytes(head[start : start + size], "little")
    base = 1 << (10 + (head[5] >> 3))
    return base + base // 8 * (head[5] & 7)


def _large_zstd() -> _Decoder:
    # Beam needs it, too. It is loaded for such files only.
    import zstandard

    decoder = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW).decompressobj()
    return cast("_Decoder", decoder)


class _Members(io.RawIOBase):
    """The bytes of all members of a file, one after the other."""

    def __init__(self, raw: BinaryIO, decoder: Callable[[], _Decoder]) -> None:
        self._raw = raw
        self._new = decoder
        self._decoder = decoder()
        self._has_begun = False
        # What is decompressed and not read yet.
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Reads some bytes, none at the end.

        Raises:
          EOFError: The last member has no end.
        """
        into = memoryview(buffer).cast("B")
        while not self._ready and self._go_on():
            pass
        size = min(len(into), len(self._ready))
        into[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size

    def _go_on(self) -> bool:
        """Decompresses the next piece; returns whether there was one."""
        data = b""
        if self._decoder.eof:
            data = self._decoder.unused_data
            # Zeros may stand behind a member.
            while not data.lstrip(b"\0"):
                data = self._raw.read(_PIECE)
                if not data:
                    return False
            data = data.lstrip(b"\0")
            self._decoder = self._new()
        else:
            data = self._raw.read(_PIECE)
            if not data and not self._has_begun:
                return False
            if not data:
                raise EOFError("a compressed file has no end")
        self._has_begun = True
        self._ready = memoryview(self._decoder.decompress(data))
        return True
