"""Tokenizers: functions from a batch of texts in an Arrow array to a list of tokens for each text.

A tokenizer takes a string array without nulls, and returns a list<string> array of the same length
without null lists or null tokens. `words` and `whitespace` take the texts of a batch as one array of
bytes. Each byte gets the class of its character, and tokens are maximal runs of bytes of certain
classes. ASCII text costs one translation of bytes. Other characters are decoded, and the class of each
is looked up once.
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

from beam_dpne.elements.text_types import is_list, is_text
from beam_dpne.errors import TokenizerError

Tokenizer = Callable[[pa.Array], pa.ListArray]
Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_ASCII = 128
_CODE_POINTS = 0x110000
_MAX_OFFSET = 2**31 - 1
# Classes of characters; 0 is a separator. Letters and digits are tokens from the start.
_TOKEN, _APOSTROPHE, _MARK, _UNDERSCORE, _UNKNOWN = 1, 2, 3, 4, 255
_CLASS_OF_CATEGORY = {"L": _TOKEN, "N": _TOKEN, "M": _MARK}
_TO_LOWER = bytes(range(256)).lower()
_CALLED_WITH = (
    "A tokenizer gets a batch of texts as one Arrow array, and not a single text: return "
    "pa.array([text.split() for text in texts.to_pylist()], pa.list_(pa.string())), or take "
    "'words' or 'whitespace'."
)


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

    A text is brought into Unicode normalization form C and then lower-cased, as
    `unicodedata.normalize("NFC", text).lower()` does, in this order and once each. A word is then
    a maximal run of letters and digits (Unicode L*, N*), marks (M*) that follow a letter or digit,
    underscores, and single apostrophes (U+0027 or U+2019) between two such characters. A run without
    any letter or digit is not a word. A mark elsewhere, such as after an emoji, separates words.

    Args:
      texts: A string or large_string array without nulls.

    Returns:
      The words of each text, in order.

    >>> words(pa.array(["Don't panic!", "", "NAÏVE 'quoted' x2"])).to_pylist()
    [["don't", 'panic'], [], ['naïve', 'quoted', 'x2']]
    >>> words(pa.array(["I ❤\ufe0f you ___"])).to_pylist()
    [['i', 'you']]
    """
    mixed = _flatten(_normalize_non_ascii(texts))
    flat = mixed._replace(data=mixed.data.translate(_TO_LOWER))
    classes = _classify(flat.data, _word_class)
    _join_marks(flat, classes)
    solid = classes == _TOKEN
    classes[classes == _UNDERSCORE] = _TOKEN
    _join_inner_apostrophes(flat, classes)
    inside = classes == _TOKEN
    if b"_" in flat.data:
        _drop_runs_without(solid, inside, flat.offsets)
    return _split(flat, inside)


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
    return _split(flat, _classify(flat.data, _visible_class) == _TOKEN)


class UnicodeWords:
    """The tokenizer `unicode_words`: lower-case words at Unicode's word boundaries (UAX #29).

    A text is brought into Unicode normalization form C and then lower-cased, as `words` does. A word
    is then a segment between two boundaries that has a letter or digit. Numbers and abbreviations
    keep their inner full stops and commas. In scripts without blanks (Chinese, Japanese, Thai) correct
    boundaries would need a dictionary, which this tokenizer does not have. There most characters are
    words, so that n-grams are sequences of characters.

    Attributes:
      tokenizer_name: Public name, for ledgers and run keys.
      version: Version of the tokenizer, and of the package whose tables define the boundaries.
      thread_safe: It keeps no state between calls.

    Raises:
      ValueError: The package `regex` of the extra `unicode` is not installed.

    >>> UnicodeWords()(pa.array(["Pi is 3.14!", "東京へ", ""])).to_pylist()
    [['pi', 'is', '3.14'], ['東', '京', 'へ'], []]
    """

    tokenizer_name = "unicode_words"
    thread_safe = True

    def __init__(self) -> None:
        try:
            import regex
        except ImportError:
            raise ValueError(
                "tokenizer='unicode_words' needs the package regex: pip install "
                "'beam-dpne[unicode]', on the workers too."
            ) from None
        self.version = f"1, regex {regex.__version__}"
        self._boundary = regex.compile(r"(?V1w)\b")
        self._letter_or_digit = regex.compile(r"[\p{L}\p{N}]")

    def __call__(self, texts: pa.Array) -> pa.ListArray:
        """Returns the words of each text of a string array without nulls, in order."""
        rows = [self._words(text) for text in texts.to_pylist()]
        return pa.array(rows, pa.list_(pa.string()))

    def _words(self, text: str) -> list[str]:
        segments = self._boundary.split(unicodedata.normalize("NFC", text).lower())
        return [segment for segment in segments if self._letter_or_digit.search(segment)]


_unicode_words = functools.cache(UnicodeWords)


def tokens(texts: pa.Array) -> pa.ListArray:
    """Returns texts as they are, since they are lists of tokens already.

    >>> tokens(pa.array([["a b", ""], []])).to_pylist()
    [['a b', ''], []]
    """
    if not is_list(texts.type):
        raise TokenizerError(
            f"texts must be lists of tokens for tokenizer 'tokens', got {texts.type}. "
            "Use 'words' or 'whitespace' for plain text."
        )
    return texts


def item(texts: pa.Array) -> pa.ListArray:
    r"""Makes each text one unchanged token, with its blanks and line ends; an empty text is one too.

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
      tokenizer: `words`, `unicode_words` (of the extra `unicode`), `whitespace`, `tokens`, `item`,
        `package.module:function`, or a function, which is returned as it is.

    Raises:
      ValueError: The name is unknown, cannot be imported, or is not that of a function; or the
        function's attribute `thread_safe` is neither True nor False.

    >>> resolve_tokenizer("words") is words
    True
    """
    if callable(tokenizer):
        return _checked(tokenizer)
    if isinstance(tokenizer, str) and tokenizer in TOKENIZERS:
        return TOKENIZERS[tokenizer]
    if tokenizer == UnicodeWords.tokenizer_name:
        return _unicode_words()
    module, colon, attribute = str(tokenizer).partition(":")
    if not (colon and module and attribute):
        raise ValueError(
            f"tokenizer must be one of {', '.join((*TOKENIZERS, UnicodeWords.tokenizer_name))} or "
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
    return _checked(found)


def _checked(tokenizer: Tokenizer) -> Tokenizer:
    """Returns a tokenizer of a user; a text such as "no" would count as true and permit threads."""
    thread_safe = getattr(tokenizer, "thread_safe", False)
    if not isinstance(thread_safe, bool):
        raise ValueError(
            "tokenizer must have True or False as its attribute thread_safe, got "
            f"thread_safe={thread_safe!r} of {tokenizer_name(tokenizer)}."
        )
    return tokenizer


def tokenize(tokenizer: Tokenizer, texts: pa.Array) -> pa.ListArray:
    """Calls a tokenizer and checks its result.

    Args:
      tokenizer: The function, which may be the operator's.
      texts: An array without nulls.

    Returns:
      A `list<string>` array as long as `texts`, with offsets from 0 and no nulls.

    Raises:
      TokenizerError: The tokenizer raised an error, or its result is not a list<string> array of the
        same length, has nulls, or has more than 2 GB of tokens. The message reports the type of the
        tokenizer's error only, because the error's message may quote a text.
    """
    name = tokenizer_name(tokenizer)
    try:
        result = tokenizer(texts)
    except (Exception, SystemExit) as error:
        failure = failure_of(tokenizer, error)
        if failure is error:
            raise  # With the cause, if it has one on purpose, see cli.failures.with_cause.
        raise failure from None
    is_list = isinstance(result, pa.ListArray | pa.LargeListArray)
    if not is_list or not is_text(result.type.value_type):
        # Only classes are printed: names of fields in an Arrow type may be words of a text.
        parts = (result, result.values) if is_list else (result,)
        kind = " of ".join(type(part).__name__ for part in parts)
        raise TokenizerError(
            f"tokenizer {name} must return a list<string> Arrow array, got {kind}. {_CALLED_WITH}"
        )
    if len(result) != len(texts):
        raise TokenizerError(
            f"tokenizer {name} must return one list for each text, got another number of lists."
        )
    values = result.flatten()
    if result.null_count or values.null_count:
        raise TokenizerError(
            f"tokenizer {name} must return no nulls. Return empty lists and leave null tokens out."
        )
    offsets = result.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    bounds = _bounds_of(values)
    if max(offsets[-1] - offsets[0], bounds[-1] - bounds[0]) > _MAX_OFFSET:
        raise TokenizerError(
            f"tokenizer {name} must return less than 2 GB of tokens a batch. "
            "Read with smaller blocks."
        )
    strings = values if pa.types.is_string(values.type) else values.cast(pa.string())
    return pa.ListArray.from_arrays(pa.array((offsets - offsets[0]).astype(np.int32)), strings)


def failure_of(tokenizer: Tokenizer, error: BaseException) -> TokenizerError:
    """Returns the error that reports a tokenizer's failure, without a message that may quote a text.

    Only tokenizers of this package raise a `TokenizerError` whose message is known to hold no text.
    """
    named = tokenizer if hasattr(tokenizer, "__qualname__") else type(tokenizer)
    if isinstance(error, TokenizerError) and _module_of(named).startswith("beam_dpne."):
        return error
    # A function of one text, or of other arguments, usually ends with one of these two.
    hint = f" {_CALLED_WITH}" if type(error) in (AttributeError, TypeError) else ""
    return TokenizerError(
        f"tokenizer {tokenizer_name(tokenizer)} raised {type(error).__name__} "
        f"(its message is left out because it may quote a text).{hint}"
    )


def tokenizer_name(tokenizer: str | Tokenizer) -> str:
    """Returns the name of a tokenizer, which for a function consists of its module and its name there.

    A function or class can state another name in its attribute `tokenizer_name`.

    >>> tokenizer_name("words"), tokenizer_name(tokenizer_name)
    ('words', 'beam_dpne.documents.tokenizers:tokenizer_name')
    """
    if isinstance(tokenizer, str):
        return tokenizer
    name = getattr(tokenizer, "tokenizer_name", None)
    if isinstance(name, str):
        return name
    named = tokenizer if hasattr(tokenizer, "__qualname__") else type(tokenizer)
    return f"{_module_of(named)}:{named.__qualname__}"


def _module_of(named: Callable[..., Any]) -> str:
    """Returns the module of a function or class; methods of built-in types, as str.split, have none."""
    return getattr(named, "__module__", None) or "builtins"


def may_run_in_threads(tokenizer: Tokenizer) -> bool:
    """Returns whether several threads may call a tokenizer at the same time.

    Those of this package allow it. A function or class of a user says so by the attribute
    `thread_safe = True`; without it one thread calls it at a time.

    >>> may_run_in_threads(words), may_run_in_threads(lambda texts: texts)
    (True, False)
    """
    return tokenizer in TOKENIZERS.values() or getattr(tokenizer, "thread_safe", False) is True


def _normalize_non_ascii(texts: pa.Array) -> pa.Array:
    """Brings rows with characters beyond ASCII into NFC and lower case, and keeps other rows."""
    flat = _flatten(texts)
    if flat.data.isascii():
        return texts
    beyond = np.flatnonzero(np.frombuffer(flat.data, np.uint8) >= _ASCII)
    # (rows,) bool, the rows that hold any of these bytes.
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
    raw = np.frombuffer(flat.data, np.uint8)
    # `at` has the first bytes of the apostrophes, and `size` their bytes: U+0027 has 1, U+2019 has 3.
    marked = np.flatnonzero(classes == _APOSTROPHE)
    at = marked[(raw[marked] < _ASCII) | (raw[marked] >= 0xC0)]
    size = np.where(raw[at] < _ASCII, 1, 3)
    border = _row_starts(flat)
    within = ~border[at] & ~border[at + size]
    at, size = at[within], size[within]
    inner = (classes[at - 1] == _TOKEN) & (classes[at + size] == _TOKEN)
    at, size = at[inner], size[inner]
    classes[at] = _TOKEN
    wide = at[size == 3]
    classes[wide + 1] = classes[wide + 2] = _TOKEN


def _bounds_of(texts: pa.Array) -> Offsets:
    """Returns where in the buffer of a string array rows begin and the last one ends: (rows + 1,)."""
    if not is_text(texts.type):
        raise TokenizerError(f"texts must be strings, got {texts.type}.")
    width = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    size = len(texts) + 1
    offsets = texts.buffers()[1]
    if offsets is None or offsets.size == 0:
        return np.zeros(size, np.int64)
    return np.frombuffer(offsets, width)[texts.offset : texts.offset + size].astype(np.int64)


def _flatten(texts: pa.Array) -> _FlatText:
    """Returns the bytes of the rows of a string array, without bytes outside of a slice."""
    bounds = _bounds_of(texts)
    data = texts.buffers()[2]
    sliced = b"" if data is None else data.slice(bounds[0], bounds[-1] - bounds[0]).to_pybytes()
    return _FlatText(sliced, bounds - bounds[0])


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
    first, last = inside.copy(), inside.copy()
    np.greater(inside[1:], inside[:-1], out=first[1:])
    np.greater(inside[:-1], inside[1:], out=last[:-1])
    first[cuts] = True
    last[cuts - 1] = True
    starts = np.flatnonzero(first)
    return starts, np.flatnonzero(last) + 1 - starts


def _drop_runs_without(solid: Mask, inside: Mask, offsets: Offsets) -> None:
    """Takes the runs that have no solid byte out of `inside`; the other bytes of runs are few.

    Args:
      solid: (n,) bool, the letters and digits, all of them inside.
      inside: (n,) bool, the bytes of runs.
      offsets: (rows + 1,) where each row begins; a run does not cross a row's border.
    """
    places = np.flatnonzero(inside & ~solid)
    # Groups of neighbours among these bytes; a group is a whole run if no byte beside it is inside.
    begins = np.ones(places.size, bool)
    begins[1:] = (np.diff(places) != 1) | _are_among(places[1:], offsets)
    first = places[begins]
    after = places[np.append(begins, True)[1:]] + 1
    beside = np.append(inside, False)
    goes_on = beside[first - 1] & ~_are_among(first, offsets)
    goes_on |= beside[after] & ~_are_among(after, offsets)
    # Whether the group of each byte is a part of a longer run.
    inside[places] = goes_on[np.cumsum(begins) - 1]


def _are_among(positions: Offsets, offsets: Offsets) -> Mask:
    """Returns whether each position is one of some ascending offsets, of which the last is largest."""
    return offsets[np.searchsorted(offsets, positions)] == positions


def _split(flat: _FlatText, inside: Mask) -> pa.ListArray:
    """Cuts rows into the maximal runs of bytes that are `inside` a token."""
    starts, sizes = _runs(inside, flat.offsets)
    values = np.frombuffer(flat.data, np.uint8)[inside]
    if values.size > _MAX_OFFSET:
        raise TokenizerError("The tokens of a batch must be below 2 GB. Read with smaller blocks.")
    token_offsets = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(sizes, out=token_offsets[1:])
    strings = pa.StringArray.from_buffers(
        len(starts), pa.py_buffer(token_offsets), pa.py_buffer(values)
    )
    list_offsets = np.searchsorted(starts, flat.offsets).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(list_offsets), strings)
