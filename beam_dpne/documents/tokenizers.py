"""Tokenizers: functions from a batch of texts in an Arrow array to a list of tokens for each text.

A tokenizer takes a string array without nulls, and returns a list<string> array of the same length
without null lists. A null token is a border, over which no n-gram goes. Its attribute `tokenizer_name`
is its name in ledgers and run keys, and `version` changes with the tokens that it returns. Functions of
users may have these attributes, too.
"""

import functools
import importlib
import sys
import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.documents.words import plain_text, whitespace, words
from beam_dpne.errors import TokenizerError, installing, kind_of
from beam_dpne.reading.columns import is_list
from beam_dpne.reading.ids import is_text
from beam_dpne.validation import did_you_mean, told_value

Tokenizer = Callable[[pa.Array], pa.ListArray]

_CALLED_WITH = (
    "A tokenizer gets a batch of texts as one Arrow array, and not a single text: return "
    "pa.array([text.split() for text in texts.to_pylist()], pa.list_(pa.string())), or take "
    "'words' or 'whitespace'."
)

# Texts with which a tokenizer is tried: together, and one by one.
_TOGETHER = 100
_ALONE = 20


class BoundaryWords:
    """The tokenizers `unicode_words` and `icu_words`: lower-case words between Unicode's boundaries.

    A text is brought into the form of `words.plain_text`, as `words` does. A word is then a segment
    between two boundaries that has a letter or digit. Numbers and abbreviations
    keep their inner full stops and commas. In scripts without blanks (Chinese, Japanese, Thai, Lao,
    Khmer, Burmese) words are found by the dictionaries of ICU with `icu_words`. With `unicode_words`,
    which has the rules of UAX #29 alone, most characters are words there.

    Attributes:
      tokenizer_name: Public name, for ledgers and run keys.
      version: Version of the tokenizer, and of the package whose tables define the boundaries.

    Raises:
      ValueError: The package `regex` of the extra `unicode`, or `icu4py` of the extra `icu`, is not
        installed.

    >>> texts = pa.array(["Pi is 3.14!", "東京へ行く", ""])
    >>> BoundaryWords("unicode_words")(texts).to_pylist()
    [['pi', 'is', '3.14'], ['東', '京', 'へ', '行', 'く'], []]
    >>> BoundaryWords("icu_words")(texts).to_pylist()
    [['pi', 'is', '3.14'], ['東京', 'へ', '行く'], []]
    """

    def __init__(self, tokenizer_name: str) -> None:
        self.tokenizer_name = tokenizer_name
        package, extra = BOUNDARIES[tokenizer_name]
        try:
            library = importlib.import_module(package)
        except ImportError:
            raise ValueError(
                f"`tokenizer={tokenizer_name!r}` needs the package {package.partition('.')[0]}: "
                f"{installing(extra)}, on the workers too."
            ) from None
        if extra == "icu":
            icu4py = importlib.import_module("icu4py")
            self.version = f"2, ICU {icu4py.icu_version}, Unicode {unicodedata.unidata_version}"
            self._segments = lambda text: library.WordBreaker(text, "root")
            self._is_word = lambda segment: any(map(str.isalnum, segment))
        else:
            self.version = f"3, regex {library.__version__}, Unicode {unicodedata.unidata_version}"
            self._segments = library.compile(r"(?V1w)\b").split
            self._is_word = library.compile(r"[\p{L}\p{N}]").search

    def __call__(self, texts: pa.Array) -> pa.ListArray:
        """Returns the words of each text of a string array without nulls, in order."""
        rows = [self._words(text) for text in texts.to_pylist()]
        return pa.array(rows, pa.list_(pa.string()))

    def _words(self, text: str) -> list[str]:
        segments = self._segments(plain_text(text))
        return [segment for segment in segments if self._is_word(segment)]


# The module that finds the boundaries, and the extra that has it.
BOUNDARIES = {"unicode_words": ("regex", "unicode"), "icu_words": ("icu4py.breakers", "icu")}
_boundary_words = functools.cache(BoundaryWords)


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
    if texts.flatten().null_count:
        raise TokenizerError("texts must be lists without null tokens. Drop them before.")
    return texts


def item(texts: pa.Array) -> pa.ListArray:
    r"""Makes each text one unchanged token, with its blanks and line ends; an empty text is one too.

    >>> item(pa.array(["New York\n", ""])).to_pylist()
    [['New York\n'], ['']]
    """
    return pa.ListArray.from_arrays(pa.array(range(len(texts) + 1), pa.int32()), texts)


TOKENIZERS: dict[str, Tokenizer] = {
    "words": words,
    "whitespace": whitespace,
    "tokens": tokens,
    "item": item,
}
# A version is increased when the tokenizer returns other tokens for some text. For tokenizers that look
# up characters in Unicode's tables, the version of the tables is added.
_VERSIONS = {
    "words": f"3, Unicode {unicodedata.unidata_version}",
    "whitespace": f"1, Unicode {unicodedata.unidata_version}",
    "tokens": "1",
    "item": "1",
}
for _name, _version in _VERSIONS.items():
    vars(TOKENIZERS[_name]).update(tokenizer_name=_name, version=_version)


def resolve_tokenizer(tokenizer: str | Tokenizer) -> Tokenizer:
    """Finds a tokenizer by name.

    Args:
      tokenizer: `words`, `unicode_words` (of the extra `unicode`), `icu_words` (of the extra `icu`),
        `whitespace`, `tokens`, `item`, `package.module:function`, or a function, which is returned as
        it is.

    Raises:
      ValueError: The name is unknown, cannot be imported, or is not that of a function.

    >>> resolve_tokenizer("words") is words
    True
    """
    if callable(tokenizer):
        return tokenizer
    if isinstance(tokenizer, str) and tokenizer in TOKENIZERS:
        return TOKENIZERS[tokenizer]
    if isinstance(tokenizer, str) and tokenizer in BOUNDARIES:
        return _boundary_words(tokenizer)
    module, colon, attribute = str(tokenizer).partition(":")
    if not (colon and module and attribute):
        names = (*TOKENIZERS, *BOUNDARIES)
        raise ValueError(
            f"`tokenizer` must be one of {', '.join(names)} or 'package.module:function', got "
            f"`tokenizer={told_value(tokenizer)}`.{did_you_mean(str(tokenizer), names)}"
        )
    try:
        found = functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
        problem = f"of type {type(found).__name__}"
    except Exception as error:
        found = None
        problem = kind_of(error)
    if not callable(found):
        raise ValueError(
            "`tokenizer` must name a function of one Arrow array that can be imported, got "
            f"`tokenizer={told_value(tokenizer)}` ({problem}). Check the spelling and PYTHONPATH."
        )
    return found


def tokenize(tokenizer: Tokenizer, texts: pa.Array) -> pa.ListArray:
    """Calls a tokenizer and checks its result.

    Args:
      tokenizer: The function, which may be the operator's.
      texts: An array without nulls.

    Returns:
      A `list<string>` array as long as `texts`, with offsets from 0 and no null lists.

    Raises:
      TokenizerError: The tokenizer raised an error, or its result is not a list<string> array of the
        same length, has null lists, or has more than 2 GB of tokens. The message reports the type of
        the tokenizer's error only, because the error's message may quote a text.
    """
    name = tokenizer_name(tokenizer)
    try:
        result = tokenizer(texts)
    except (Exception, SystemExit) as error:
        if _is_safe(error, tokenizer):
            raise
        # An engine reports the cause as text, so an operator must ask for it: jobs.inputs.with_cause.
        cause = error if getattr(tokenizer, "keeps_cause", False) else None
        raise _failure_of(tokenizer, error) from cause
    is_lists = isinstance(result, pa.ListArray | pa.LargeListArray)
    if not (
        is_lists
        and is_text(result.type.value_type)
        and len(result) == len(texts)
        and not result.null_count
    ):
        # Only classes are printed: names of fields in an Arrow type may be words of a text.
        parts = (result, result.values) if is_lists else (result,)
        kind = " of ".join(type(part).__name__ for part in parts)
        raise TokenizerError(
            f"tokenizer {name} must return a list<string> Arrow array with one list for each text, "
            f"without null lists, got {kind}, a null, or another number of lists. {_CALLED_WITH}"
        )
    try:
        lists = result.cast(pa.list_(pa.string()))
    except pa.ArrowInvalid:
        raise TokenizerError(
            f"tokenizer {name} must return less than 2 GB of tokens a batch. Read with smaller blocks."
        ) from None
    offsets = pc.call_function("subtract", [lists.offsets, lists.offsets[0]])
    return pa.ListArray.from_arrays(offsets, lists.flatten())


def check_alone(tokenizer: Tokenizer, texts: pa.Array) -> None:
    """Checks that a tokenizer gives some texts the same tokens alone, together and in another order.

    A tokenizer that fails here fails in the run as well, which says so.

    Args:
      tokenizer: The function, which may be the operator's.
      texts: Texts without nulls; the first hundred are taken, and some of them alone.

    Raises:
      TokenizerError: A text has other tokens beside other texts.
    """
    texts = texts[:_TOGETHER]
    backwards = texts.take(pa.array(range(len(texts) - 1, -1, -1), pa.int64()))
    try:
        together = tokenize(tokenizer, texts).to_pylist()
        reversed_lists = tokenize(tokenizer, backwards).to_pylist()
        alone = [
            tokenize(tokenizer, texts[n : n + 1]).to_pylist()[0] for n in range(len(texts))[:_ALONE]
        ]
    except TokenizerError:
        return
    if together != reversed_lists[::-1] or together[:_ALONE] != alone:
        raise TokenizerError(
            f"tokenizer {tokenizer_name(tokenizer)} must give a text the same tokens alone, beside "
            "other texts and in another order, and gave others for some of the first texts. One user's "
            "text would then change the tokens of others, which voids the guarantee."
        )


def cut_at_borders(users: pa.Array, tokens: pa.ListArray) -> tuple[pa.Array, pa.ListArray]:
    """Cuts the lists that `tokenize` returns at their nulls, and repeats the user of each piece.

    >>> lists = pa.array([["to", None, "be"], [], ["or"]])
    >>> [pieces.to_pylist() for pieces in cut_at_borders(pa.array(["ann", "bob", "cat"]), lists)]
    [['ann', 'ann', 'bob', 'cat'], [['to'], ['be'], [], ['or']]]
    """
    null = np.flatnonzero(tokens.values.is_null().to_numpy(zero_copy_only=False))
    if not null.size:
        return users, tokens
    # The row and the first token of each piece, which begins where its list does or after a null.
    offsets = tokens.offsets.to_numpy()
    rows = np.append(np.arange(len(tokens)), np.searchsorted(offsets, null, side="right") - 1)
    starts = np.append(offsets[:-1], null + 1)
    order = np.lexsort((starts, rows))
    ends = np.append(starts[order], offsets[-1])
    kept = pa.array(ends - np.searchsorted(null, ends), pa.int32())
    return users.take(pa.array(rows[order])), pa.ListArray.from_arrays(
        kept, tokens.values.drop_null()
    )


def _is_safe(error: BaseException, tokenizer: Tokenizer) -> bool:
    """Returns whether a tokenizer of this package raised an error, whose message holds no text then.

    A function that wraps one of this package (`functools.wraps`) says that it is of the same module. So
    the module must have the function or class itself under its name.
    """
    named = tokenizer if hasattr(tokenizer, "__qualname__") else type(tokenizer)
    module = _module_of(named)
    is_own = getattr(sys.modules.get(module), named.__qualname__, None) is named
    return isinstance(error, TokenizerError) and module.startswith("beam_dpne.") and is_own


def _failure_of(tokenizer: Tokenizer, error: BaseException) -> TokenizerError:
    """Returns the error that reports a tokenizer's failure, without a message that may quote a text."""
    # A function of one text, or of other arguments, usually ends with one of these two.
    hint = f" {_CALLED_WITH}" if type(error) in (AttributeError, TypeError) else ""
    return TokenizerError(
        f"tokenizer {tokenizer_name(tokenizer)} raised {kind_of(error)} "
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
    name = stated(tokenizer, "tokenizer_name")
    if isinstance(name, str):
        return name
    named = tokenizer if hasattr(tokenizer, "__qualname__") else type(tokenizer)
    return f"{_module_of(named)}:{named.__qualname__}"


def stated(function: Tokenizer, name: str) -> object:
    """Returns what a tokenizer states of itself in an attribute, or None if it states nothing.

    `functools.wraps` copies the attributes of the function that it wraps, whose tokens may be others.
    """
    found = getattr(function, name, None)
    wrapped = getattr(function, "__wrapped__", None)
    return None if wrapped is not None and getattr(wrapped, name, None) == found else found


def _module_of(named: Callable[..., Any]) -> str:
    """Returns the module of a function or class; methods of built-in types, as str.split, have none."""
    return getattr(named, "__module__", None) or "builtins"
