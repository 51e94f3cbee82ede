"""Tokenizers: Arrow arrays of texts to Arrow lists of tokens, a whole batch at a time.

A tokenizer is a function from a string array without nulls to a list<string> array of the same
length without null lists or null tokens. `words` and `whitespace` classify every byte of a batch
by one table, so that ASCII costs a byte translation and only other characters are decoded.
"""

import functools
import importlib
import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.documents.character_runs import (
    ASCII,
    MAX_OFFSET,
    Bytes,
    FlatText,
    bounds_of,
    classify,
    flatten,
    is_string,
    row_starts,
    runs,
    runs_with,
    split,
)
from beam_dpne.errors import TokenizerError

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
    """Returns the tokenizer of an extra."""
    try:
        from beam_dpne.documents.unicode_words import unicode_words
    except ImportError:
        raise ValueError(
            "tokenizer='unicode_words' needs the package regex: pip install 'beam-dpne[unicode]', on "
            "the workers too."
        ) from None
    return unicode_words


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
    if not isinstance(result, lists) or not is_string(kind.value_type):
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
    """Returns the name of a tokenizer; of a function, the module and name it was defined by.

    A function or class may bring another name in its attribute `tokenizer_name`.

    >>> tokenizer_name("words"), tokenizer_name(tokenizer_name)
    ('words', 'beam_dpne.documents.tokenizers:tokenizer_name')
    """
    if isinstance(tokenizer, str):
        return tokenizer
    given = getattr(tokenizer, "tokenizer_name", None)
    if isinstance(given, str):
        return given
    named = tokenizer if hasattr(tokenizer, "__qualname__") else type(tokenizer)
    return f"{named.__module__}:{named.__qualname__}"


_CLASS_OF_CATEGORY = {"L": _TOKEN, "N": _TOKEN, "M": _MARK}


def _normalize_non_ascii(texts: pa.Array) -> pa.Array:
    """Brings the rows that hold other than ASCII into NFC and lower case; others stay as is."""
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
    """Makes marks that follow a letter or digit of their row tokens, and others separators."""
    marks = classes == _MARK
    if not marks.any():
        return
    starts, sizes = runs(marks, flat.offsets)
    # The byte before a row's first one belongs to another row.
    after = (starts > 0) & (classes[starts - 1] == _TOKEN) & ~row_starts(flat)[starts]
    classes[marks] = np.repeat(np.where(after, _TOKEN, 0), sizes)


def _join_inner_apostrophes(flat: FlatText, classes: Bytes) -> None:
    """Makes each apostrophe between two characters of one word a part of that word."""
    raw = np.frombuffer(flat.data, np.uint8)
    marked = np.flatnonzero(classes == _APOSTROPHE)
    at = marked[(raw[marked] < ASCII) | (raw[marked] >= 0xC0)]
    size = np.where(raw[at] < ASCII, 1, 3)
    border = np.zeros(len(raw) + 1, bool)
    border[flat.offsets] = True
    within = ~border[at] & ~border[at + size]
    at, size = at[within], size[within]
    inner = (classes[at - 1] == _TOKEN) & (classes[at + size] == _TOKEN)
    at, size = at[inner], size[inner]
    classes[at] = _TOKEN
    wide = at[size == 3]
    classes[wide + 1] = classes[wide + 2] = _TOKEN
