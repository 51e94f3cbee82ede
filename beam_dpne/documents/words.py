"""The tokenizers `words` and `whitespace`, which take the texts of a batch as one array of bytes.

Each byte gets the class of its character, and tokens are maximal runs of bytes of certain classes.
ASCII text costs one translation of bytes. Other characters are decoded, and the class of each is
looked up once.
"""

import functools
import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.elements.arrays import bytes_of, ranges
from beam_dpne.errors import TokenizerError
from beam_dpne.reading.ids import is_text

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_ASCII = 128
_CODE_POINTS = 0x110000
MAX_OFFSET = 2**31 - 1
# Classes of characters; 0 is a separator. Letters and digits are tokens from the start.
_TOKEN = 1
_APOSTROPHE = 2
_MARK = 3
_UNDERSCORE = 4
_UNKNOWN = 255
_CLASS_OF_CATEGORY = {"L": _TOKEN, "N": _TOKEN, "M": _MARK}
# Signs without width that belong to no word: the soft hyphen, the word joiner and its older form, and
# marks of the direction of writing.
VANISHING = "\u00ad\u061c\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff"
# Signs without width that are part of the spelling, as in Persian, Sinhala and Mongolian.
JOINERS = "\u180e\u200c\u200d"
# The viramas of ten Indic scripts. After one of them U+200D shapes the last letter of a word, too.
VIRAMAS = "\u094d\u09cd\u0a4d\u0acd\u0b4d\u0bcd\u0c4d\u0ccd\u0d4d\u0dca"
_VANISHING = re.compile(f"[{VANISHING}]")
_INVISIBLE = re.compile(f"[{VANISHING}{JOINERS}]")
_JOINER = re.compile(f"[{JOINERS}]")
_JOINERS = re.compile(f"[{JOINERS}]*([{JOINERS}])")
_VIRAMA = re.compile(f"[{VIRAMAS}]")
_TO_LOWER = bytes(range(256)).lower()


class _FlatText(NamedTuple):
    """Texts as one array of bytes.

    Attributes:
      data: UTF-8 bytes of all rows, one row after the other.
      offsets: (rows + 1,) where in `data` each row begins, and where the last one ends.
    """

    data: bytes
    offsets: Offsets


def words(texts: pa.Array) -> pa.ListArray:
    """Splits texts into lower-case words of any script.

    A word is a maximal run of letters and digits (Unicode L*, N*) of `plain_text`, marks (M*) and
    joiners that follow a letter or digit, underscores, and single apostrophes between two such
    characters. A run without any letter or digit is not a word. A mark elsewhere, such as after an
    emoji, separates words.

    Args:
      texts: A string or large_string array without nulls.

    Returns:
      The words of each text, in order.

    >>> words(pa.array(["Don't panic!", "", "NAÏVE 'quoted' x2"])).to_pylist()
    [["don't", 'panic'], [], ['naïve', 'quoted', 'x2']]
    >>> words(pa.array(["I ❤\ufe0f you ___", "don’t co\u00adoperate"])).to_pylist()
    [['i', 'you'], ["don't", 'cooperate']]
    """
    mixed = _flatten(_normalize_non_ascii(texts))
    flat = mixed._replace(data=mixed.data.translate(_TO_LOWER))
    classes = _classify(flat.data, _word_class)
    _join_marks(flat, classes)
    solid = classes == _TOKEN
    classes[classes == _UNDERSCORE] = _TOKEN
    _join_inner_apostrophes(flat, classes)
    inside = classes == _TOKEN
    starts, sizes = _runs(inside, flat.offsets)
    if b"_" in flat.data:
        # From one start to the next one, all bytes beyond the run are separators, which are not solid.
        kept = np.logical_or.reduceat(solid, starts)
        inside[ranges(starts[~kept], sizes[~kept])] = False
        starts = starts[kept]
        sizes = sizes[kept]
    return _split(flat, inside, starts, sizes)


def plain_text(text: str) -> str:
    """Returns a text in the one form of which the words of all tokenizers of words are made.

    Soft hyphens, word joiners and marks of direction are left out. The text is brought into Unicode
    normalization form C and lower-cased by Unicode's full mapping, which makes İ an i with a dot
    above. Joiners stay between letters, digits and marks, and of several in a row the last one stays;
    U+200D stays after an Indic virama, too. A typographic apostrophe (U+2019) becomes a plain one.

    >>> plain_text("Co\u00adOp’s")
    "coop's"
    """
    if _INVISIBLE.search(text):
        text = unicodedata.normalize("NFC", _VANISHING.sub("", text))
        text = _JOINERS.sub(_kept_joiner, text)
    lowered = unicodedata.normalize("NFC", text).lower()
    # Marks that follow the dot of a former İ may have another order then.
    return unicodedata.normalize("NFC", lowered).replace("\u2019", "'")


def _kept_joiner(joiners: re.Match[str]) -> str:
    """Returns the last one of some joiners in a row, or nothing if they are not inside of a word."""
    text = joiners.string
    start = joiners.start()
    before = text[max(0, start - 1) : start]
    after = text[joiners.end() : joiners.end() + 1]
    last = joiners[1]
    if _is_of_words(before) and _is_of_words(after):
        return last
    return last if last == "\u200d" and _VIRAMA.match(before) else ""


def _is_of_words(character: str) -> bool:
    return character != "" and unicodedata.category(character)[0] in _CLASS_OF_CATEGORY


def whitespace(texts: pa.Array) -> pa.ListArray:
    """Splits texts on runs of Unicode white space, as `str.split()` does.

    Args:
      texts: A string or large_string array without nulls.

    Returns:
      The tokens of each text, in order, without empty tokens.

    >>> whitespace(pa.array([" 1 1  12 ", ""])).to_pylist()
    [['1', '1', '12'], []]
    """
    flat = _flatten(texts)
    inside = _classify(flat.data, _visible_class) == _TOKEN
    return _split(flat, inside, *_runs(inside, flat.offsets))


def _normalize_non_ascii(texts: pa.Array) -> pa.Array:
    """Brings rows with characters beyond ASCII into the form of `plain_text`, and keeps other rows."""
    flat = _flatten(texts)
    if flat.data.isascii():
        return texts
    beyond = np.flatnonzero(np.frombuffer(flat.data, np.uint8) >= _ASCII)
    # (rows,) bool, the rows that hold any of these bytes.
    mask = np.zeros(len(texts), bool)
    mask[np.searchsorted(flat.offsets, beyond, side="right") - 1] = True
    selected = texts.filter(pa.array(mask)).to_pylist()
    replaced = list(map(plain_text, selected))
    return pc.call_function(
        "replace_with_mask", [texts, pa.array(mask), pa.array(replaced, texts.type)]
    )


def _word_class(point: int) -> int:
    if point == ord("'"):
        return _APOSTROPHE
    if point == ord("_"):
        return _UNDERSCORE
    if _JOINER.match(chr(point)):
        return _MARK
    return _CLASS_OF_CATEGORY.get(unicodedata.category(chr(point))[0], 0)


def _visible_class(point: int) -> int:
    return not chr(point).isspace()


def _join_marks(flat: _FlatText, classes: Bytes) -> None:
    """Makes marks tokens after a letter or digit of the same row, and separators elsewhere."""
    marks = classes == _MARK
    if not marks.any():
        return
    starts, sizes = _runs(marks, flat.offsets)
    # At the beginning of a row, the byte before is in another row and must not count.
    after = (starts > 0) & (classes[starts - 1] == _TOKEN) & ~_row_starts(flat)[starts]
    classes[marks] = np.repeat(np.where(after, _TOKEN, 0), sizes)


def _join_inner_apostrophes(flat: _FlatText, classes: Bytes) -> None:
    """Changes the class of apostrophes between two characters of one word to token."""
    at = np.flatnonzero(classes == _APOSTROPHE)
    border = _row_starts(flat)
    at = at[~border[at] & ~border[at + 1]]
    classes[at[(classes[at - 1] == _TOKEN) & (classes[at + 1] == _TOKEN)]] = _TOKEN


def _flatten(texts: pa.Array) -> _FlatText:
    """Returns the bytes of the rows of a string array, without bytes outside of a slice."""
    if not is_text(texts.type):
        raise TokenizerError(f"texts must be strings, got {texts.type}.")
    data, bounds = bytes_of(texts)
    return _FlatText(data[bounds[0] : bounds[-1]].tobytes(), bounds - bounds[0])


@functools.cache
def _class_table(class_of: Callable[[int], int]) -> Bytes:
    """Returns the class of each code point: (0x110000,) uint8.

    Code points beyond ASCII are `_UNKNOWN` until `_classify` fills them in.
    """
    table = np.full(_CODE_POINTS, _UNKNOWN, np.uint8)
    table[:_ASCII] = [class_of(point) for point in range(_ASCII)]
    return table


def _classify(data: bytes, class_of: Callable[[int], int]) -> Bytes:
    """Returns for each byte of UTF-8 text the class of its character: (bytes,) uint8."""
    table = _class_table(class_of)
    ascii_classes = table[:_ASCII].tobytes().ljust(256, b"\0")
    classes = np.frombuffer(bytearray(data.translate(ascii_classes)), np.uint8)
    if data.isascii():
        return classes
    raw = np.frombuffer(data, np.uint8)
    # `leads` has the first bytes of characters of 2, 3 and 4 bytes; their values determine `sizes`.
    leads = np.flatnonzero(raw >= 0xC0)
    sizes = 2 + (raw[leads] >= 0xE0).astype(np.int8) + (raw[leads] >= 0xF0)
    for size in (2, 3, 4):
        # The code point is in the low bits of the first byte and 6 bits of each further byte.
        at = leads[sizes == size]
        points = raw[at].astype(np.int32) & (0x7F >> size)
        for step in range(1, size):
            points = points << 6 | (raw[at + step] & 0x3F)
        # Threads may fill in the same new class at the same time without harm.
        for point in set(points[table[points] == _UNKNOWN].tolist()):
            table[point] = class_of(point)
        for step in range(size):
            classes[at + step] = table[points]
    return classes


def _row_starts(flat: _FlatText) -> Mask:
    """Marks the bytes at which rows begin, and the end: (bytes + 1,) bool."""
    starts = np.zeros(len(flat.data) + 1, bool)
    starts[flat.offsets] = True
    return starts


def _runs(inside: Mask, offsets: Offsets) -> tuple[Offsets, Offsets]:
    """Returns where the maximal runs of marked bytes within rows begin, and their sizes.

    Args:
      inside: (n,) bool, a mark for each byte.
      offsets: (rows + 1,) where each row begins; a run does not cross a row's border.
    """
    # Rows that begin within a run of marks, which must be cut there.
    borders = offsets[(offsets > 0) & (offsets < len(inside))]
    cuts = borders[inside[borders - 1] & inside[borders]]
    first = inside.copy()
    last = inside.copy()
    np.greater(inside[1:], inside[:-1], out=first[1:])
    np.greater(inside[:-1], inside[1:], out=last[:-1])
    first[cuts] = True
    last[cuts - 1] = True
    starts = np.flatnonzero(first)
    return starts, np.flatnonzero(last) + 1 - starts


def _split(flat: _FlatText, inside: Mask, starts: Offsets, sizes: Offsets) -> pa.ListArray:
    """Cuts rows into the maximal runs of bytes that are `inside` a token."""
    values = np.frombuffer(flat.data, np.uint8)[inside]
    if values.size > MAX_OFFSET:
        raise TokenizerError("The tokens of a batch must be below 2 GB. Read with smaller blocks.")
    token_offsets = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(sizes, out=token_offsets[1:])
    strings = pa.StringArray.from_buffers(
        len(starts), pa.py_buffer(token_offsets), pa.py_buffer(values)
    )
    list_offsets = np.searchsorted(starts, flat.offsets).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(list_offsets), strings)
