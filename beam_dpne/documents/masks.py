"""What a tokenizer leaves out of texts: addresses, numbers, mentions, and words of the operator's list.

Arrow finds patterns by RE2, which takes time in proportion to the text, whatever the text is. What is
left out is a border, so that a release has only n-grams that stand in the texts as they are.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.documents.run_keys import require_identified, tokenizer_identity
from beam_dpne.documents.tokenizers import (
    Tokenizer,
    item,
    resolve_tokenizer,
    tokenize,
    tokenizer_name,
)
from beam_dpne.errors import TokenizerError
from beam_dpne.reading.ids import is_text
from beam_dpne.validation import check_choice

# Letters, with the marks on them, and digits; the scripts without blanks between words; and what ends a
# URL, after which a text goes on without a blank in these scripts and in Korean.
_WORD = r"\p{L}\p{M}\p{N}"
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_NOT_IN_URLS = rf"\s\p{{Z}}<>\"{_UNSPACED}\p{{Hangul}}\x{{3000}}-\x{{303F}}\x{{FF00}}-\x{{FFEF}}"
# Where two masks begin at one place, the first one counts. The version changes with any of this.
_VERSION = 1
# Since version 2, no n-gram with a phrase of the list is released, also where its words are.
_STOP_VERSION = 2
MASKS = {
    "urls": rf"(?:[A-Za-z][A-Za-z0-9+.\-]*://|[Ww]{{3}}\.|(?:[A-Za-z0-9\-]+\.)+[A-Za-z]{{2,}}/)"
    rf"[^{_NOT_IN_URLS}]+",
    "emails": rf"[{_WORD}._%+'\-]+@[{_WORD}.\-]+",
    "mentions": rf"\B@[{_WORD}_][{_WORD}_.\-]*(?:@[{_WORD}.\-]+)?",
    "numbers": r"[\p{Latin}\p{Greek}\p{Cyrillic}\p{M}\p{N}_]*\p{N}"
    r"[\p{Latin}\p{Greek}\p{Cyrillic}\p{M}\p{N}_]*",
}
_NULL = pa.scalar(None, pa.string())


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextRules:
    """A tokenizer that cuts texts into items at a separator, or leaves out parts of them.

    Each text is treated alone. With a tokenizer of words, a match of a mask is cut out of the text, and
    what stands before and after it are tokenized as two texts. With a separator, and with `item` and
    `tokens`, an item is left out as a whole if it has a match. Then the words and phrases of the list
    are left out, which the same tokenizer has split. No n-gram goes over what is left out.

    Attributes:
      tokenizer: Name of the tokenizer, or the function.
      item_separator: Text between items; then `tokenizer` is `item`. Blanks around an item do not
        belong to it, and empty items are none.
      mask: Names of `MASKS`.
      stop_list: Words and phrases that are left out. It is public, and only its SHA-256 is in ledgers.

    Raises:
      ValueError: A mask is unknown, the separator goes with another tokenizer, or an entry of the list
        has no word.

    >>> texts = pa.array(["Write to ann@example.org or call 555 1234"])
    >>> TextRules(mask=("emails", "numbers"), stop_list=("or",))(texts).to_pylist()
    [['write', 'to', None, None, 'call', None, None]]
    """

    tokenizer: str | Tokenizer = "words"
    item_separator: str | None = None
    mask: Sequence[str] = ()
    stop_list: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in self.mask:
            check_choice("mask", name, tuple(MASKS))
        if self.item_separator is not None and self.tokenizer_name != "item":
            raise ValueError(
                "item_separator must be given with the tokenizer item, got tokenizer="
                f"{self.tokenizer_name}. Leave the tokenizer out."
            )
        if not all(self.phrases) or "\n" in "".join(self.stop_list):
            raise ValueError(
                "stop_list must have a word and no line's end in each entry, got one in which the "
                f"tokenizer {self.tokenizer_name} finds none, or of several lines. Remove or cut it."
            )

    @property
    def rules(self) -> dict[str, Any]:
        """The rules as the ledger states them."""
        entries = "\n".join(sorted(set(self.stop_list))).encode()
        masks = [name for name in MASKS if name in self.mask]
        rules = {
            "item_separator": self.item_separator,
            "mask": masks,
            "mask_version": masks and _VERSION,
            "stop_list_sha256": hashlib.sha256(entries).hexdigest() if entries else None,
        }
        return {name: value for name, value in rules.items() if value}

    @property
    def tokenizer_name(self) -> str:
        """The name of the tokenizer to which the rules belong."""
        return tokenizer_name(self.tokenizer)

    @property
    def version(self) -> str | None:
        """The tokenizer's version and the rules; None if nothing identifies the tokenizer."""
        try:
            require_identified(self.tokenizer)
        except ValueError:
            return None
        of_tokenizer = tokenizer_identity(self.tokenizer)["version"]
        version = f"{of_tokenizer}; pyarrow {pa.__version__}; {json.dumps(self.rules)}"
        return f"{version}; stop list {_STOP_VERSION}" if self.stop_list else version

    @functools.cached_property
    def pattern(self) -> str:
        """The regular expression of all masks; "" without any."""
        return "|".join(MASKS[name] for name in MASKS if name in self.mask)

    @property
    def _takes_items(self) -> bool:
        return self.tokenizer_name in ("item", "tokens")

    @functools.cached_property
    def phrases(self) -> list[list[str]]:
        """The tokens of each entry of the list."""
        if not self.stop_list:
            return []
        split = item if self._takes_items else resolve_tokenizer(self.tokenizer)
        return tokenize(split, pa.array(self.stop_list, pa.string())).to_pylist()

    def __call__(self, texts: pa.Array) -> pa.ListArray:
        """Returns the tokens of each text, with a null for each place where something is left out."""
        cuts = bool(self.pattern) and not self._takes_items
        tokens = self._cut(texts) if cuts else self._split(texts)
        left_out = np.zeros(len(tokens.values), bool)
        if self.pattern and not cuts:
            pattern = pc.MatchSubstringOptions(self.pattern)
            found = pc.call_function("match_substring_regex", [tokens.values], pattern)
            left_out |= found.to_numpy(zero_copy_only=False)
        self._find_phrases(tokens, left_out)
        if not left_out.any():
            return tokens
        values = pc.call_function("if_else", [pa.array(left_out), _NULL, tokens.values])
        return pa.ListArray.from_arrays(tokens.offsets, values)

    def _split(self, texts: pa.Array) -> pa.ListArray:
        if self.item_separator is None:
            return tokenize(resolve_tokenizer(self.tokenizer), texts)
        parts = _divided("split_pattern", texts, self.item_separator)
        items = pc.call_function("utf8_trim_whitespace", [parts.values])
        filled = pc.call_function("binary_length", [items]).to_numpy() > 0
        # The place of each item among those that are not empty.
        places = np.append(0, np.cumsum(filled, dtype=np.int32))
        offsets = pa.array(places[parts.offsets.to_numpy()])
        return pa.ListArray.from_arrays(offsets, items.filter(pa.array(filled)))

    def _cut(self, texts: pa.Array) -> pa.ListArray:
        """Returns the tokens of what stands between matches, with a null for each match."""
        parts = _divided("split_pattern_regex", texts, self.pattern)
        tokens = self._split(parts.values)
        # (rows + 1,) the first part of each text, and (parts + 1,) the first token of each part. A null
        # goes before each part that is not the first one of its text.
        first = parts.offsets.to_numpy()
        starts = tokens.offsets.to_numpy()
        is_later = np.ones(len(starts), bool)
        is_later[first] = False
        places = np.insert(np.arange(len(tokens.values)), starts[is_later], -1)
        offsets = starts[first] + first - np.arange(len(first))
        values = tokens.values.take(pa.array(places, mask=places < 0))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)

    def _find_phrases(self, tokens: pa.ListArray, found: np.ndarray) -> None:
        """Marks the tokens that are part of an entry of the list."""
        if not self.phrases:
            return
        words = pa.array(sorted({word for phrase in self.phrases for word in phrase}), pa.string())
        code_of = {word: code for code, word in enumerate(words.to_pylist())}
        # (n,) the code of each token that is a word of the list, else −1.
        codes = pc.call_function("index_in", [tokens.values], pc.SetLookupOptions(words))
        codes = codes.fill_null(-1).to_numpy(zero_copy_only=False)
        begins: dict[int, list[np.ndarray]] = {}
        for phrase in self.phrases:
            coded = np.array([code_of[word] for word in phrase])
            begins.setdefault(coded[0], []).append(coded)
        # A phrase of one word, as most are, is found without a look at its places.
        alone = [code for code, coded in begins.items() if min(map(len, coded)) == 1]
        found |= np.isin(codes, alone)
        longer = [code for code, coded in begins.items() if max(map(len, coded)) > 1]
        ends = tokens.offsets.to_numpy()
        for place in np.flatnonzero(np.isin(codes, longer)).tolist():
            end = ends[np.searchsorted(ends, place, side="right")]
            for coded in begins[codes[place]]:
                stop = place + len(coded)
                if stop <= end and (codes[place:stop] == coded).all():
                    found[place:stop] = True


def _divided(function: str, texts: pa.Array, pattern: str) -> pa.ListArray:
    """Returns the parts of each text between matches of a pattern."""
    if not is_text(texts.type):
        raise TokenizerError(f"texts must be strings, got {texts.type}.")
    parts = pc.call_function(function, [texts], pc.SplitPatternOptions(pattern))
    parts = parts.cast(pa.list_(pa.string()))
    offsets = pc.call_function("subtract", [parts.offsets, parts.offsets[0]])
    return pa.ListArray.from_arrays(offsets, parts.flatten())


def advice(texts: pa.Array, tokenizer: str) -> list[str]:
    """Returns notes for an operator whose tokenizer does not fit the first texts of an input.

    >>> advice(pa.array(["https://example.org/a"]), "words")
    ['Most of the first texts are URLs, which words cuts at each sign. Take --tokenizer item for whole \
URLs, or --mask urls to leave them out.']
    """
    if tokenizer not in ("words", "unicode_words", "whitespace") or not len(texts):
        return []
    notes = []
    whole = pc.MatchSubstringOptions(rf"^\s*(?:{MASKS['urls']})\s*$")
    are_urls = pc.call_function("match_substring_regex", [texts], whole)
    if tokenizer != "whitespace" and are_urls.to_numpy(zero_copy_only=False).mean() > 0.5:
        notes.append(
            f"Most of the first texts are URLs, which {tokenizer} cuts at each sign. Take --tokenizer "
            "item for whole URLs, or --mask urls to leave them out."
        )
    options = pc.MatchSubstringOptions(f"[{_UNSPACED}]")
    unspaced = pc.call_function("count_substring_regex", [texts], options).to_numpy().sum()
    if 5 * unspaced > pc.call_function("utf8_length", [texts]).to_numpy().sum():
        notes.append(
            "The first texts have letters of scripts without blanks between words (Chinese, Japanese, "
            f"Thai, …), in which {tokenizer} finds no words. Take --tokenizer icu_words, of the extra "
            "icu."
        )
    return notes
