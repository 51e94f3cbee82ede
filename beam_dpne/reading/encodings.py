"""Encodings of text files: the choice of a file's encoding, and the conversion of its bytes to UTF-8.

Bytes that are invalid in the encoding become a sequence that is invalid in UTF-8, so that the parsers
reject the records that hold them and keep the others.
"""

import codecs
import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from beam_dpne.reading.records import Block, BrokenText, Offsets

UTF8 = "utf-8"
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
LONGEST_MARK = 4
_STATEFUL = ("iso2022", "hz", "utf-7")
_ASCII = 128
_UNKNOWN_BYTES = "beam_dpne.unknown_bytes"
# A lone surrogate, whose bytes are not valid UTF-8.
_UNKNOWN = "\udc80"
_PIECE_BYTES = 2**20
# Text with the characters that separate records and fields; a codec must read it byte by byte.
_PROBE = 'user,text\t;|"a"\r\n{"b": [1]}\n'


def _replace_unknown(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return _UNKNOWN, error.end


codecs.register_error(_UNKNOWN_BYTES, _replace_unknown)


class Encoding(NamedTuple):
    """An encoding of a file.

    Attributes:
      name: Python's name of the codec.
      is_given: Whether the operator or a byte order mark named it. Otherwise it is the default.
      is_recoded: Whether the stream decodes the file, so that parsers read UTF-8.
    """

    name: str = UTF8
    is_given: bool = False
    is_recoded: bool = False

    @property
    def is_utf8(self) -> bool:
        """Whether the parsers can read the bytes as they are."""
        return self.is_recoded or self.name in (UTF8, "utf-8-sig")

    @property
    def keeps_ascii(self) -> bool:
        """Whether each ASCII byte always encodes itself, as in UTF-8 and Latin-1.

        Such a file is cut at its line feeds, quotes and delimiters before it is decoded, so that
        positions are those of the file, and a large file can be read from several places.
        """
        is_cut_first = self.is_utf8 or _byte_lengths(self.name) is not None
        return is_cut_first and not self.is_recoded


def canonical_encoding(name: str) -> str:
    """Returns Python's canonical name of a codec that can read text files.

    A codec whose state outlasts a line is rejected. With it, one user's text could change how the lines
    of all later users are read, and no bound on a user's contribution would hold.

    Raises:
      ValueError: The codec does not exist, is not one of text, or has such a state.

    >>> canonical_encoding("Latin-1"), canonical_encoding("UTF8")
    ('iso8859-1', 'utf-8')
    """
    try:
        found = codecs.lookup(name).name
        data = _PROBE.encode(name)
        decoder = codecs.getincrementaldecoder(name)(_UNKNOWN_BYTES)
        read = "".join(decoder.decode(data[at : at + 1]) for at in range(len(data)))
        is_text = read + decoder.decode(b"", final=True) == _PROBE
    except (LookupError, ValueError):
        found, is_text = "", False
    if found.startswith(_STATEFUL):
        raise ValueError(
            f"encoding must be one in which each line can be read alone, got encoding={name!r}, "
            "in which a text may change how later lines are read. Convert the files to utf-8."
        )
    if not is_text:
        raise ValueError(
            f"encoding must be a codec of Python for text, got encoding={name!r}. Use for example "
            "utf-8, latin-1, cp1252, utf-16-le or shift_jis."
        )
    return found


def encoding_of(head: bytes, chosen: str | None, *, marks: bool = True) -> Encoding:
    """Chooses the encoding of a text.

    Args:
      head: The first bytes of the text, `LONGEST_MARK` of them if there are so many.
      chosen: The operator's choice. None means UTF-8, or the encoding of a byte order mark.
      marks: Whether a byte order mark of UTF-16 or UTF-32 counts. It must not count where the first
        bytes belong to a record, because one user's record would decide how all records are read.

    Raises:
      BrokenText: The text looks like UTF-16, and neither the operator nor a mark names this encoding.
    """
    if chosen is not None:
        return Encoding(canonical_encoding(chosen), is_given=True)
    for mark, name in _MARKS:
        if marks and head.startswith(mark):
            return Encoding(name, is_given=True)
    for name, at in (("utf-16-le", 1), ("utf-16-be", 0)):
        if head[at:4:2] == b"\0\0" and 0 not in head[1 - at : 4 : 2]:
            raise BrokenText(
                f"looks like text in {name} without a byte order mark. If it is, pass "
                f"--encoding {name}."
            )
    return Encoding()


def recoded(data: bytes, encoding: Encoding) -> bytes:
    """Converts bytes of a file to UTF-8; bytes that are invalid become invalid UTF-8."""
    if encoding.is_utf8 or data.isascii():
        return data
    return data.decode(encoding.name, _UNKNOWN_BYTES).encode(UTF8, "surrogatepass")


def recoded_block(block: Block, encoding: Encoding) -> Block:
    """Converts a block to UTF-8 if its encoding keeps ASCII; its positions remain those in the file."""
    lengths = None if encoding.is_utf8 else _byte_lengths(encoding.name)
    if lengths is None or block.data.isascii():
        return block
    raw = np.frombuffer(block.data, np.uint8)
    # `wide` has the positions of the bytes beyond ASCII, and added[i] is the number of bytes that the
    # text before wide[i] gains.
    wide = np.flatnonzero(raw >= _ASCII)
    added = np.append(0, np.cumsum(lengths[raw[wide]] - 1))

    def moved(positions: Offsets) -> Offsets:
        return positions + added[np.searchsorted(wide, positions)]

    return block._replace(
        data=recoded(block.data, encoding),
        starts=moved(block.starts),
        ends=moved(block.ends),
        text_positions=block.positions,
    )


class Recoder:
    """Converts a text to UTF-8 piece by piece, from its start."""

    def __init__(self, read: Callable[[int], bytes], encoding: Encoding) -> None:
        self._read = read
        self._decoder = codecs.getincrementaldecoder(encoding.name)(_UNKNOWN_BYTES)
        self._ready = b""
        self._is_done = False

    def read(self, size: int) -> bytes:
        """Returns at most `size` bytes, and no bytes only at the end."""
        while not self._ready and not self._is_done:
            data = self._read(min(size, _PIECE_BYTES))
            self._is_done = not data
            text = self._decoder.decode(data, final=self._is_done)
            self._ready = text.encode(UTF8, "surrogatepass")
        taken, self._ready = self._ready[:size], self._ready[size:]
        return taken


@functools.cache
def _byte_lengths(name: str) -> npt.NDArray[np.int64] | None:
    """Returns the number of UTF-8 bytes for each byte, (256,), or None if the encoding changes ASCII.

    An encoding keeps ASCII if each byte is one character, each ASCII byte is its ASCII character, and
    no other byte is an ASCII character. A codec with several bytes for a character fails this test,
    because it returns no character for a first byte.
    """
    lengths = np.ones(256, np.int64)
    for byte in range(256):
        decoder = codecs.getincrementaldecoder(name)(_UNKNOWN_BYTES)
        try:
            text = decoder.decode(bytes([byte]))
        except ValueError:
            return None
        if len(text) != 1 or (ord(text) != byte if byte < _ASCII else ord(text) < _ASCII):
            return None
        lengths[byte] = len(text.encode(UTF8, "surrogatepass"))
    return lengths
