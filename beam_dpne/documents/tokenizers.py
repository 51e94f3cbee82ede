"""Tokenizers: Arrow arrays of texts to Arrow lists of tokens, a whole batch at a time.

A tokenizer is a function from a string array without nulls to a list<string> array of the same length
without null lists or null tokens. `words` and `whitespace` see the texts of a batch as one array of
bytes. Each byte gets the class of its character, and tokens are maximal runs of bytes of certain
classes. ASCII costs one byte translation; other characters are decoded, and each is looked up once.
"""

import functools
import importlib
import unicodedata
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.errors import TokenizerError
from beam_dpne.reading.columns import is_text

UNKNOWN = 255
ASCII = 128
MAX_OFFSET = 2**31 - 1
_CODE_POINTS = 0x110000

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class FlatText(NamedTuple):
    """UTF-8 bytes of all rows, one after the other; row i is data[offsets[i]:offsets[i + 1]]."""

    data: bytes
    offsets: Offsets


def bounds_of(texts: pa.Array) -> Offsets:
    """Returns where in a string array's buffer each row begins, and the last one ends: (rows + 1,)."""
    if not is_text(texts.type):
        raise TokenizerError(f"texts must be strings, got {texts.type}.")
    width = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    size = len(texts) + 1
    offsets = texts.buffers()[1]
    if offsets is None or offsets.size == 0:
        return np.zeros(size, np.int64)
    return np.frombuffer(offsets, width)[texts.offset : texts.offset + size].astype(np.int64)


def flatten(texts: pa.Array) -> FlatText:
    """Returns the bytes of the rows of a string array, without bytes outside of a slice."""
    bounds = bounds_of(texts)
    data = texts.buffers()[2]
    sliced = b"" if data is None else data.slice(bounds[0], bounds[-1] - bounds[0]).to_pybytes()
    return FlatText(sliced, bounds - bounds[0])


@functools.cache
def _class_table(class_of: Callable[[int], int]) -> Bytes:
    """Returns the classes of all code points; those beyond ASCII are unknown until they are seen."""
    table = np.full(_CODE_POINTS, UNKNOWN, np.uint8)
    table[:ASCII] = [class_of(point) for point in range(ASCII)]
    return table


def _classes_of(points: npt.NDArray[np.int32], class_of: Callable[[int], int]) -> Bytes:
    """Looks up classes and fills in new ones; threads may fill the same class twice without harm."""
    table = _class_table(class_of)
    classes = table[points]
    for point in set(points[classes == UNKNOWN].tolist()):
        table[point] = class_of(point)
    return table[points]


def classify(data: bytes, class_of: Callable[[int], int]) -> Bytes:
    """Returns for each byte of UTF-8 text the class of its character: (bytes,) uint8."""
    ascii_classes = _class_table(class_of)[:ASCII].tobytes().ljust(256, b"\0")
    classes = np.frombuffer(bytearray(data.translate(ascii_classes)), np.uint8)
    if data.isascii():
        return classes
    raw = np.frombuffer(data, np.uint8)
    # First bytes of characters of 2, 3 and 4 bytes, whose value tells the number of bytes.
    leads = np.flatnonzero(raw >= 0xC0)
    sizes = 2 + (raw[leads] >= 0xE0).astype(np.int8) + (raw[leads] >= 0xF0)
    for size in (2, 3, 4):
        # The code point is in the low bits of the first byte and 6 bits of each further byte.
        at = leads[sizes == size]
        points = raw[at].astype(np.int32) & (0x7F >> size)
        for step in range(1, size):
            points = points << 6 | (raw[at + step] & 0x3F)
        found = _classes_of(points, class_of)
        for step in range(size):
            classes[at + step] = found
    return classes


def row_starts(flat: FlatText) -> Mask:
    """Marks the bytes at which rows begin, and the end: (bytes + 1,) bool."""
    starts = np.zeros(len(flat.data) + 1, bool)
    starts[flat.offsets] = True
    return starts


def runs(inside: Mask, offsets: Offsets) -> tuple[Offsets, Offsets]:
    """Returns where the maximal runs of marked bytes within rows begin, and their sizes.

    Args:
      inside: (n,) bool, a mark for each byte.
      offsets: (rows + 1,) where each row begins; a run does not cross a row's border.
    """
    # Borders of rows that are inside a run of marks, which is to be cut there.
    borders = offsets[(offsets > 0) & (offsets < len(inside))]
    cuts = borders[inside[borders - 1] & inside[borders]]
    first, last = inside.copy(), inside.copy()
    np.greater(inside[1:], inside[:-1], out=first[1:])
    np.greater(inside[:-1], inside[1:], out=last[:-1])
    first[cuts] = True
    last[cuts - 1] = True
    starts = np.flatnonzero(first)
    return starts, np.flatnonzero(last) + 1 - starts


def runs_with(wanted: Mask, inside: Mask, offsets: Offsets) -> Mask:
    """Keeps the runs of `inside` that have a wanted byte."""
    _, sizes = runs(inside, offsets)
    result = np.zeros_like(inside)
    if sizes.size:
        # `wanted[inside]` has the marked bytes, run after run; `first` is where each run begins in it.
        first = np.cumsum(sizes) - sizes
        result[inside] = np.repeat(np.logical_or.reduceat(wanted[inside], first), sizes)
    return result


def split(flat: FlatText, inside: Mask) -> pa.ListArray:
    """Cuts rows into the maximal runs of bytes that are `inside` a token."""
    starts, sizes = runs(inside, flat.offsets)
    values = np.frombuffer(flat.data, np.uint8)[inside]
    if values.size > MAX_OFFSET:
        raise TokenizerError("tokens of one batch must be below 2 GB. Read with smaller blocks.")
    token_offsets = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(sizes, out=token_offsets[1:])
    strings = pa.StringArray.from_buffers(
        len(starts), pa.py_buffer(token_offsets), pa.py_buffer(values)
    )
    list_offsets = np.searchsorted(starts, flat.offsets).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(list_offsets), strings)


Tokenizer = Callable[[pa.Array], pa.ListArray]

# Classes of characters; 0 is a separator. Letters and digits are tokens from the start.
_TOKEN, _APOSTROPHE, _MARK, _UNDERSCORE = 1, 2, 3, 4
_TO_LOWER = bytes(range(256)).lower()


def words(texts: pa.Array) -> pa.ListArray:
    """Splits texts into lower-case words of any script.

    A text is brought into Unicode normalization form C and then lower-cased, as
    `unicodedata.normalize("NFC", text).lower()` does, in this order and once each. A word is then
    a maximal run of letters and digits (Unicode L*, N*), marks (M*) that follow a letter or digit,
    underscores, and apostrophes (U+0027 or U+2019) that stand alone between two such characters. A
    run without any letter or digit is no word, and a mark elsewhere (as after an emoji) separates.

    Args:
      texts: A string or large_string array without nulls.

    Returns:
      The words of each text, in order.

    >>> words(pa.array(["Don't panic!", "", "NAÏVE 'quoted' x2"])).to_pylist()
    [["don't", 'panic'], [], ['naïve', 'quoted', 'x2']]
    >>> words(pa.array(["I ❤\ufe0f you ___"])).to_pylist()
    [['i', 'you']]
    """
    mixed = flatten(_normalize_non_ascii(texts))
    flat = mixed._replace(data=mixed.data.translate(_TO_LOWER))
    classes = classify(flat.data, _word_class)
    _join_marks(flat, classes)
    solid = classes == _TOKEN
    classes[classes == _UNDERSCORE] = _TOKEN
    _join_inner_apostrophes(flat, classes)
    inside = classes == _TOKEN
    if b"_" in flat.data:
        inside = runs_with(solid, inside, flat.offsets)
    return split(flat, inside)


def whitespace(texts: pa.Array) -> pa.ListArray:
    """Splits texts on runs of Unicode white space, as `str.split()` does.

    Args:
      texts: A string or large_string array without nulls.

    Returns:
      The tokens of each text, in order; none is empty.

    >>> whitespace(pa.array([" 1 1  12 ", ""])).to_pylist()
    [['1', '1', '12'], []]
    """
    flat = flatten(texts)
    return split(flat, classify(flat.data, _visible_class) == _TOKEN)


def tokens(texts: pa.Array) -> pa.ListArray:
    """Returns texts that are lists of tokens already.

    >>> tokens(pa.array([["a b", ""], []])).to_pylist()
    [['a b', ''], []]
    """
    if not (pa.types.is_list(texts.type) or pa.types.is_large_list(texts.type)):
        raise TokenizerError(
            f"texts must be lists of tokens for tokenizer 'tokens', got {texts.type}. "
            "Use 'words' or 'whitespace' for plain text."
        )
    return texts


def item(texts: pa.Array) -> pa.ListArray:
    r"""Takes each text as one token, as it is: blanks, line ends and the empty text included.

    >>> item(pa.array(["New York\n", ""])).to_pylist()
    [['New York\n'], ['']]
    """
    return pa.ListArray.from_arrays(pa.array(np.arange(len(texts) + 1, dtype=np.int32)), texts)


TOKENIZERS: dict[str, Tokenizer] = {
    "words": words,
    "whitespace": whitespace,
    "tokens": tokens,
    "item": item,
}
UNICODE_WORDS = "unicode_words"


def resolve_tokenizer(tokenizer: str | Tokenizer) -> Tokenizer:
    """Finds a tokenizer by name.

    Args:
      tokenizer: `words`, `unicode_words` (of the extra `unicode`), `whitespace`, `tokens`, `item`,
        `package.module:function`, or a function.

    Returns:
      The function.

    Raises:
      ValueError: The name is unknown, cannot be imported, or is not a function.

    >>> resolve_tokenizer("words") is words
    True
    """
    if callable(tokenizer):
        return tokenizer
    if tokenizer in TOKENIZERS:
        return TOKENIZERS[tokenizer]
    if tokenizer == UNICODE_WORDS:
        return _unicode_words()
    module, colon, attribute = str(tokenizer).partition(":")
    if not (colon and module and attribute):
        raise ValueError(
            f"tokenizer must be one of {', '.join((*TOKENIZERS, UNICODE_WORDS))} or "
            f"'package.module:function', got tokenizer={tokenizer!r}."
        )
    try:
        found = functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
    except Exception as error:
        raise ValueError(
            f"tokenizer must name a function that can be imported, got tokenizer={tokenizer!r} "
            f"({type(error).__name__}). Check the spelling and PYTHONPATH."
        ) from None
    if not callable(found):
        raise ValueError(
            f"tokenizer must name a function, got tokenizer={tokenizer!r}, which is of type "
            f"{type(found).__name__}. Name a function of one Arrow array."
        )
    return found


def _unicode_words() -> Tokenizer:
    """Returns the tokenizer of the extra `unicode`."""
    try:
        from beam_dpne.documents.unicode_words import unicode_words
    except ImportError:
        raise ValueError(
            "tokenizer='unicode_words' needs the package regex: pip install 'beam-dpne[unicode]', on "
            "the workers too."
        ) from None
    return unicode_words


def tokenize(tokenizer: Tokenizer, texts: pa.Array) -> pa.ListArray:
    """Calls a tokenizer and checks its result.

    Args:
      tokenizer: The function, which may be the operator's.
      texts: An array without nulls.

    Returns:
      A `list<string>` array as long as `texts`, with offsets from 0 and no nulls.

    Raises:
      TokenizerError: The tokenizer raised an error (only the error's type is reported, because its
        message may quote a text), or its result is not a list<string> array of the same length, has
        nulls, or has more than 2 GB of tokens.
    """
    name = tokenizer_name(tokenizer)
    try:
        result = tokenizer(texts)
    except TokenizerError:
        raise
    except (Exception, SystemExit) as error:
        raise TokenizerError(
            f"tokenizer {name} raised {type(error).__name__} "
            "(its message is left out because it may quote a text)."
        ) from None
    _check_type(result, name)
    if len(result) != len(texts):
        raise TokenizerError(
            f"tokenizer {name} must return one list a text, got another number of lists."
        )
    values = result.flatten()
    if result.null_count or values.null_count:
        raise TokenizerError(
            f"tokenizer {name} must return no nulls. Return empty lists and leave null tokens out."
        )
    return _normalized(result, values, name)


def _check_type(result: object, name: str) -> None:
    """Raises TokenizerError unless the result is a list array of strings."""
    kind: Any = getattr(result, "type", type(result).__name__)
    lists = pa.ListArray, pa.LargeListArray
    if not isinstance(result, lists) or not is_text(kind.value_type):
        raise TokenizerError(
            f"tokenizer {name} must return a list<string> Arrow array, got {kind}."
        )


def _normalized(result: pa.Array, values: pa.Array, name: str) -> pa.ListArray:
    """Rebuilds a checked result as `list<string>` whose offsets start at 0."""
    offsets = result.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    offsets -= offsets[0]
    if offsets[-1] > MAX_OFFSET or _byte_length(values) > MAX_OFFSET:
        raise TokenizerError(
            f"tokenizer {name} must return less than 2 GB of tokens a batch. "
            "Read with smaller blocks."
        )
    strings = values if pa.types.is_string(values.type) else values.cast(pa.string())
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), strings)


def _byte_length(values: pa.Array) -> int:
    bounds = bounds_of(values)
    return int(bounds[-1] - bounds[0])


def tokenizer_name(tokenizer: str | Tokenizer) -> str:
    """Returns the name of a tokenizer; for a function, its module and its name there.

    A function or class may have another name in its attribute `tokenizer_name`.

    >>> tokenizer_name("words"), tokenizer_name(tokenizer_name)
    ('words', 'beam_dpne.documents.tokenizers:tokenizer_name')
    """
    if isinstance(tokenizer, str):
        return tokenizer
    name = getattr(tokenizer, "tokenizer_name", None)
    if isinstance(name, str):
        return name
    named = tokenizer if hasattr(tokenizer, "__qualname__") else type(tokenizer)
    return f"{named.__module__}:{named.__qualname__}"


_CLASS_OF_CATEGORY = {"L": _TOKEN, "N": _TOKEN, "M": _MARK}


def _normalize_non_ascii(texts: pa.Array) -> pa.Array:
    """Brings rows with characters beyond ASCII into NFC and lower case; other rows stay as they are."""
    flat = flatten(texts)
    if flat.data.isascii():
        return texts
    beyond = np.flatnonzero(np.frombuffer(flat.data, np.uint8) >= ASCII)
    mask = np.zeros(len(texts), bool)
    mask[np.searchsorted(flat.offsets, beyond, side="right") - 1] = True
    selected = texts.filter(pa.array(mask)).to_pylist()
    replaced = [unicodedata.normalize("NFC", text).lower() for text in selected]
    return pc.call_function(
        "replace_with_mask", [texts, pa.array(mask), pa.array(replaced, texts.type)]
    )


def _word_class(point: int) -> int:
    if point in (ord("'"), 0x2019):
        return _APOSTROPHE
    if point == ord("_"):
        return _UNDERSCORE
    return _CLASS_OF_CATEGORY.get(unicodedata.category(chr(point))[0], 0)


def _visible_class(point: int) -> int:
    return not chr(point).isspace()


def _join_marks(flat: FlatText, classes: Bytes) -> None:
    """Makes marks tokens after a letter or digit of the same row, and separators elsewhere."""
    marks = classes == _MARK
    if not marks.any():
        return
    starts, sizes = runs(marks, flat.offsets)
    # A run at the beginning of a row does not follow anything: the byte before is in another row.
    after = (starts > 0) & (classes[starts - 1] == _TOKEN) & ~row_starts(flat)[starts]
    classes[marks] = np.repeat(np.where(after, _TOKEN, 0), sizes)


def _join_inner_apostrophes(flat: FlatText, classes: Bytes) -> None:
    """Changes the class of apostrophes between two characters of one word to token."""
    raw = np.frombuffer(flat.data, np.uint8)
    # First bytes of the apostrophes: U+0027 has 1 byte, U+2019 has 3.
    marked = np.flatnonzero(classes == _APOSTROPHE)
    at = marked[(raw[marked] < ASCII) | (raw[marked] >= 0xC0)]
    size = np.where(raw[at] < ASCII, 1, 3)
    border = row_starts(flat)
    within = ~border[at] & ~border[at + size]
    at, size = at[within], size[within]
    inner = (classes[at - 1] == _TOKEN) & (classes[at + size] == _TOKEN)
    at, size = at[inner], size[inner]
    classes[at] = _TOKEN
    wide = at[size == 3]
    classes[wide + 1] = classes[wide + 2] = _TOKEN
