"""Tokenizers: Arrow arrays of texts to Arrow lists of tokens, a whole batch at a time.

A tokenizer is a function from a string array without nulls to a list<string> array of the same
length without null lists or null tokens. `words` and `whitespace` classify every byte of a batch
by one table, so that ASCII costs a byte translation and only other characters are decoded.
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

Tokenizer = Callable[[pa.Array], pa.ListArray]

_CODE_POINTS = 0x110000
_ASCII = 128
_UNKNOWN = 255
_MAX_OFFSET = 2**31 - 1
_TOKEN, _APOSTROPHE = 1, 2  # classes of characters; 0 is a separator
_TO_LOWER = bytes(range(256)).lower()

_Bytes = npt.NDArray[np.uint8]
_Offsets = npt.NDArray[np.int64]


class TokenizerError(ValueError):
    """A tokenizer breaks its contract; the message holds no text and no count."""


def words(texts: pa.Array) -> pa.ListArray:
    """Splits texts into lower-case words of any script.

    A text is brought into Unicode normalization form C and then lower-cased, as
    `unicodedata.normalize("NFC", text).lower()` does, in this order and once each. A word is then
    a maximal run of letters, digits and marks (Unicode L*, N*, M*), underscores, and apostrophes
    (U+0027 or U+2019) that stand alone between two such characters.

    Args:
      texts: A string or large_string array without nulls.

    Returns:
      The words of each text, in order.

    >>> words(pa.array(["Don't panic!", "", "NAÏVE 'quoted' x2"])).to_pylist()
    [["don't", 'panic'], [], ['naïve', 'quoted', 'x2']]
    """
    mixed = _flatten(_normalize_non_ascii(texts))
    flat = mixed._replace(data=mixed.data.translate(_TO_LOWER))
    classes = _classify(flat.data, _word_class)
    _join_inner_apostrophes(flat, classes)
    return _split(flat, classes == _TOKEN)


def whitespace(texts: pa.Array) -> pa.ListArray:
    """Splits texts on runs of Unicode white space, as `str.split()` does.

    Args:
      texts: A string or large_string array without nulls.

    Returns:
      The tokens of each text, in order; none is empty.

    >>> whitespace(pa.array([" 1 1  12 ", ""])).to_pylist()
    [['1', '1', '12'], []]
    """
    flat = _flatten(texts)
    return _split(flat, _classify(flat.data, _visible_class) == _TOKEN)


def tokens(texts: pa.Array) -> pa.ListArray:
    """Passes texts through that are lists of tokens already.

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


def resolve_tokenizer(tokenizer: str | Tokenizer) -> Tokenizer:
    """Finds a tokenizer by name.

    Args:
      tokenizer: `words`, `whitespace`, `tokens`, `item`, `package.module:function`, or a function.

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
    module, colon, attribute = str(tokenizer).partition(":")
    if not (colon and module and attribute):
        raise ValueError(
            f"tokenizer must be one of {', '.join(TOKENIZERS)} or 'package.module:function', "
            f"got tokenizer={tokenizer!r}."
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


def tokenize(tokenizer: Tokenizer, texts: pa.Array) -> pa.ListArray:
    """Calls a tokenizer and checks what it returns.

    Args:
      tokenizer: The function, perhaps a user's own.
      texts: An array without nulls.

    Returns:
      A `list<string>` array as long as `texts`, with offsets from 0 and no nulls.

    Raises:
      TokenizerError: It raised (only the exception's type is told, for its message may quote a
        text), or its result is not a list<string> array of the same length, has nulls, or more
        than 2 GB of tokens.
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
    """Raises unless `result` is a list array of strings."""
    kind: Any = getattr(result, "type", type(result).__name__)
    lists = pa.ListArray, pa.LargeListArray
    if not isinstance(result, lists) or not _is_string(kind.value_type):
        raise TokenizerError(
            f"tokenizer {name} must return a list<string> Arrow array, got {kind}."
        )


def _normalized(result: pa.Array, values: pa.Array, name: str) -> pa.ListArray:
    """Rebuilds a checked result as `list<string>` whose offsets start at 0."""
    offsets = result.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    offsets -= offsets[0]
    if offsets[-1] > _MAX_OFFSET or _byte_length(values) > _MAX_OFFSET:
        raise TokenizerError(
            f"tokenizer {name} must return less than 2 GB of tokens a batch. "
            "Read with smaller blocks."
        )
    strings = values if pa.types.is_string(values.type) else values.cast(pa.string())
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), strings)


def _is_string(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _byte_length(values: pa.Array) -> int:
    bounds = _bounds(values)
    return int(bounds[-1] - bounds[0])


def tokenizer_name(tokenizer: str | Tokenizer) -> str:
    """Returns the name of a tokenizer; of a function, the module and name it was defined by.

    A function or class may bring another name in its attribute `tokenizer_name`.

    >>> tokenizer_name("words"), tokenizer_name(tokenizer_name)
    ('words', 'beam_dpne.tokenizers:tokenizer_name')
    """
    if isinstance(tokenizer, str):
        return tokenizer
    given = getattr(tokenizer, "tokenizer_name", None)
    if isinstance(given, str):
        return given
    named = tokenizer if hasattr(tokenizer, "__qualname__") else type(tokenizer)
    return f"{named.__module__}:{named.__qualname__}"


class _Flat(NamedTuple):
    """UTF-8 bytes of all rows, one after the other; row i is data[offsets[i]:offsets[i + 1]]."""

    data: bytes
    offsets: _Offsets


def _bounds(texts: pa.Array) -> _Offsets:
    """Where in a string array's own bytes each row begins, and the last one ends."""
    if not _is_string(texts.type):
        raise TokenizerError(f"texts must be strings, got {texts.type}.")
    width = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    size = len(texts) + 1
    offsets = texts.buffers()[1]
    if offsets is None or offsets.size == 0:
        return np.zeros(size, np.int64)
    return np.frombuffer(offsets, width)[texts.offset : texts.offset + size].astype(np.int64)


def _flatten(texts: pa.Array) -> _Flat:
    bounds = _bounds(texts)
    data = texts.buffers()[2]
    own = b"" if data is None else data.slice(bounds[0], bounds[-1] - bounds[0]).to_pybytes()
    return _Flat(own, bounds - bounds[0])


def _normalize_non_ascii(texts: pa.Array) -> pa.Array:
    """Brings the rows that hold other than ASCII into NFC and lower case; others stay as is."""
    flat = _flatten(texts)
    if flat.data.isascii():
        return texts
    beyond = np.flatnonzero(np.frombuffer(flat.data, np.uint8) >= _ASCII)
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
    return _TOKEN if point == ord("_") else unicodedata.category(chr(point))[0] in "LNM"


def _visible_class(point: int) -> int:
    return not chr(point).isspace()


@functools.cache
def _class_table(class_of: Callable[[int], int]) -> _Bytes:
    """The classes of all code points; those beyond ASCII are unknown until they are seen."""
    table = np.full(_CODE_POINTS, _UNKNOWN, np.uint8)
    table[:_ASCII] = [class_of(point) for point in range(_ASCII)]
    return table


def _classes_of(points: npt.NDArray[np.int32], class_of: Callable[[int], int]) -> _Bytes:
    """Looks classes up, and fills in those not seen before; filling twice does no harm."""
    table = _class_table(class_of)
    classes = table[points]
    for point in set(points[classes == _UNKNOWN].tolist()):
        table[point] = class_of(point)
    return table[points]


def _classify(data: bytes, class_of: Callable[[int], int]) -> _Bytes:
    """Gives every byte of UTF-8 text the class of the character it belongs to."""
    ascii_classes = _class_table(class_of)[:_ASCII].tobytes().ljust(256, b"\0")
    classes = np.frombuffer(bytearray(data.translate(ascii_classes)), np.uint8)
    if data.isascii():
        return classes
    raw = np.frombuffer(data, np.uint8)
    leads = np.flatnonzero(raw >= 0xC0)
    sizes = 2 + (raw[leads] >= 0xE0).astype(np.int8) + (raw[leads] >= 0xF0)
    for size in (2, 3, 4):
        at = leads[sizes == size]
        points = raw[at].astype(np.int32) & (0x7F >> size)
        for step in range(1, size):
            points = points << 6 | (raw[at + step] & 0x3F)
        found = _classes_of(points, class_of)
        for step in range(size):
            classes[at + step] = found
    return classes


def _join_inner_apostrophes(flat: _Flat, classes: _Bytes) -> None:
    """Makes each apostrophe between two characters of one word a part of that word."""
    raw = np.frombuffer(flat.data, np.uint8)
    marked = np.flatnonzero(classes == _APOSTROPHE)
    at = marked[(raw[marked] < _ASCII) | (raw[marked] >= 0xC0)]
    size = np.where(raw[at] < _ASCII, 1, 3)
    border = np.zeros(len(raw) + 1, bool)
    border[flat.offsets] = True
    within = ~border[at] & ~border[at + size]
    at, size = at[within], size[within]
    inner = (classes[at - 1] == _TOKEN) & (classes[at + size] == _TOKEN)
    at, size = at[inner], size[inner]
    classes[at] = _TOKEN
    wide = at[size == 3]
    classes[wide + 1] = classes[wide + 2] = _TOKEN


def _split(flat: _Flat, inside: npt.NDArray[np.bool_]) -> pa.ListArray:
    """Cuts rows into the maximal runs of bytes that are `inside` a token."""
    size = len(inside)
    borders = flat.offsets[(flat.offsets > 0) & (flat.offsets < size)]
    cuts = borders[inside[borders - 1] & inside[borders]]
    first, last = inside.copy(), inside.copy()
    np.greater(inside[1:], inside[:-1], out=first[1:])
    np.greater(inside[:-1], inside[1:], out=last[:-1])
    first[cuts] = True
    last[cuts - 1] = True
    starts = np.flatnonzero(first)
    values = np.frombuffer(flat.data, np.uint8)[inside]
    if values.size > _MAX_OFFSET:
        raise TokenizerError("tokens of one batch must be below 2 GB. Read with smaller blocks.")
    token_offsets = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(np.flatnonzero(last) + 1 - starts, out=token_offsets[1:])
    strings = pa.StringArray.from_buffers(
        len(starts), pa.py_buffer(token_offsets), pa.py_buffer(values)
    )
    list_offsets = np.searchsorted(starts, flat.offsets).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(list_offsets), strings)
