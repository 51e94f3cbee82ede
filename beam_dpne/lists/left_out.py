"""Stop lists, and what the rules of texts leave out, as a test of words and of n-grams.

A tokenizer with masks, a stop list or a separator leaves places of texts out, so nobody holds an n-gram
with such a place. It could be released all the same: a known list may have it, and noise alone may lift
it once its words were released apart. The test here is a function of public rules and of the n-gram
alone. So it costs no privacy to drop what it finds from public lists and from what a length has
released.
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.documents.folding import folded
from beam_dpne.documents.masks import TextRules
from beam_dpne.documents.tokenizers import Tokenizer, resolve_tokenizer
from beam_dpne.errors import UsageError
from beam_dpne.reading.files import line_blocks

# The code of a word that stands in no phrase of several words.
NO_CODE = -1
_LARGEST_LIST = 2**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class LeftOut:
    """The words and phrases that no text has after its rules.

    Attributes:
      pattern: A regular expression; a word with a match is left out. Empty without masks.
      separator: The text between items, which none of them holds; None if nothing is separated.
      phrases: The entries of the stop list, each as its words.
      fold: Names of `folding.FOLDS`, by which texts were folded.

    Example:
      >>> rules = LeftOut(phrases=frozenset({("the",), ("new", "york")}))
      >>> words = pa.array(["new", "the", "york"])
      >>> rules.of_words(words), rules.of_rows(words, np.array([[0, 2], [2, 0], [0, 1]]))
      (array([False,  True, False]), array([ True, False,  True]))
    """

    pattern: str = ""
    separator: str | None = None
    phrases: frozenset[tuple[str, ...]] = frozenset()
    fold: tuple[str, ...] = ()

    def of_list(self, words: pa.Array, rows: np.ndarray) -> np.ndarray:
        """Marks the n-grams of a public list that no text has: (n,) bool.

        They are those of `of_rows`, and those with a word that folding changes.

        Args:
          words: as in `of_rows`.
          rows: as in `of_rows`.
        """
        is_unfolded = np.append(self.are_unfolded(words), False)
        return self.of_rows(words, rows) | np.any(is_unfolded[rows], axis=1)

    def are_unfolded(self, words: pa.Array) -> np.ndarray:
        """Marks the words that folding changes, so that no folded text has them: (w,) bool."""
        return _mask(pc.call_function("not_equal", [words, folded(words, self.fold)]))

    def of_words(self, words: pa.Array) -> np.ndarray:
        """Marks the words that are left out wherever they stand: (w,) bool."""
        found = self._are_stop_words(words)
        if self.pattern:
            pattern = pc.MatchSubstringOptions(self.pattern)
            found |= _mask(pc.call_function("match_substring_regex", [words], pattern))
        if self.separator is not None:
            found |= _are_no_items(words, self.separator)
        return found

    def _are_stop_words(self, words: pa.Array) -> np.ndarray:
        """Marks the words that are an entry of the stop list by themselves: (w,) bool."""
        stop_words = [phrase[0] for phrase in self.phrases if len(phrase) == 1]
        options = pc.SetLookupOptions(_strings(stop_words))
        return _mask(pc.call_function("is_in", [words], options))

    def of_rows(self, words: pa.Array, rows: np.ndarray) -> np.ndarray:
        """Marks the n-grams with a word or a phrase that is left out: (n,) bool.

        Args:
          words: (w,) Arrow strings.
          rows: (n, k) integers, the place of each word of an n-gram in `words`; −1 after the words of a
            shorter n-gram.
        """
        # A last place for −1, which is no word.
        is_left_out = np.append(self.of_words(words), False)
        codes_of_words = np.append(self.codes(words), NO_CODE)
        found = np.any(is_left_out[rows], axis=1)
        codes = codes_of_words[rows]
        length = rows.shape[1]
        for end in range(2, length + 1):
            found |= self.end_in_phrase(codes[:, :end])
        return found

    @functools.cached_property
    def longest(self) -> int:
        """The number of words of the longest phrase of several words; 0 if there is none."""
        return max((len(phrase) for phrase in self.phrases if len(phrase) > 1), default=0)

    def codes(self, words: pa.Array) -> np.ndarray:
        """Returns the code of each word: (w,) int32, `NO_CODE` if no phrase of several words has it."""
        options = pc.SetLookupOptions(_strings(list(self._code_of)))
        codes = pc.call_function("index_in", [words], options).fill_null(NO_CODE)
        return codes.to_numpy(zero_copy_only=False).astype(np.int32)

    def end_in_phrase(self, endings: np.ndarray) -> np.ndarray:
        """Marks the n-grams whose last words are a phrase: (n,) bool.

        Args:
          endings: (n, m) int32, the codes of the last m words of each n-gram. Phrases of more words
            than m are not looked for.
        """
        found = np.zeros(len(endings), bool)
        for length, phrases in self._coded.items():
            if length > endings.shape[1]:
                continue
            last_words = endings[:, -length:]
            # Few n-grams end in words of phrases only, and are looked at one by one.
            rows = np.flatnonzero((last_words != NO_CODE).all(axis=1))
            for row, codes in zip(rows.tolist(), last_words[rows].tolist(), strict=True):
                if tuple(codes) in phrases:
                    found[row] = True
        return found

    @functools.cached_property
    def _code_of(self) -> Mapping[str, int]:
        """The code of each word of a phrase of several words, in the order of the words."""
        words: set[str] = set()
        for phrase in self.phrases:
            if len(phrase) > 1:
                words.update(phrase)
        return {word: code for code, word in enumerate(sorted(words))}

    @functools.cached_property
    def _coded(self) -> Mapping[int, frozenset[tuple[int, ...]]]:
        """The phrases of several words by their number of words, each as the codes of its words."""
        coded: dict[int, set[tuple[int, ...]]] = {}
        for phrase in self.phrases:
            if len(phrase) > 1:
                codes = tuple(self._code_of[word] for word in phrase)
                coded.setdefault(len(phrase), set()).add(codes)
        return {length: frozenset(phrases) for length, phrases in coded.items()}


def _are_no_items(words: pa.Array, separator: str) -> np.ndarray:
    """Marks what no item between separators can be: (w,) bool.

    An item is not empty, begins and ends without white space, and does not hold the separator.
    """
    options = pc.MatchSubstringOptions(separator)
    found = _mask(pc.call_function("match_substring", [words], options))
    trimmed = pc.call_function("utf8_trim_whitespace", [words])
    found |= _mask(pc.call_function("not_equal", [words, trimmed]))
    found |= _mask(pc.call_function("equal", [words, pa.scalar("")]))
    return found


def left_out_by(tokenizer: str | Tokenizer) -> LeftOut | None:
    """Returns what the rules of a tokenizer leave out of texts; None if it has no `TextRules`."""
    function = resolve_tokenizer(tokenizer)
    while isinstance(function, functools.partial):
        function = function.func
    if not isinstance(function, TextRules):
        return None
    inner = left_out_by(function.tokenizer) or LeftOut()
    # An entry in which the tokenizer itself leaves something out stands in no text anyway.
    own = frozenset(tuple(phrase) for phrase in function.phrases if None not in phrase)
    return LeftOut(
        pattern="|".join(filter(None, (function.pattern, inner.pattern))),
        separator=function.item_separator or inner.separator,
        phrases=own | inner.phrases,
        fold=(*inner.fold, *function.fold),
    )


def refuse_left_out(found: Iterable[np.ndarray]) -> None:
    """Raises ValueError if any n-gram of known lists is marked as left out."""
    if any(each.any() for each in found):
        raise ValueError(
            "`known` must have no n-gram that the tokenizer leaves out by its masks or stop list, got "
            "some. Give the function that makes it the tokenizer of the run."
        )


def read_stop_list(path: str) -> tuple[str, ...]:
    """Returns the words and phrases of a public list, one in each line; blank lines are none.

    Raises:
      UsageError: if the file is empty or has more than 2^20 characters.
      InputError: if it cannot be read, or is not UTF-8.
    """
    text = ""
    for lines in line_blocks(path):
        text += "\n".join([*lines, ""])
        if len(text) > _LARGEST_LIST:
            break
    entries = tuple(dict.fromkeys(filter(None, (line.strip() for line in text.splitlines()))))
    if not entries or len(text) > _LARGEST_LIST:
        raise UsageError(
            f"`stop_list` must be a file in UTF-8 with 1 to {_LARGEST_LIST} characters, and a word or "
            f"phrase in each line, got {path}."
        )
    return entries


def _strings(words: list[str]) -> pa.Array:
    """Returns Arrow strings, also without any word."""
    return pa.array(words, pa.string())


def _mask(values: pa.Array) -> np.ndarray:
    """Returns (w,) bool that can be written to."""
    return values.to_numpy(zero_copy_only=False).astype(bool)
