"""Rules beside a tokenizer: what is left out of texts, what is folded, and what stays one word.

Addresses, numbers, mentions, HTML, and words of the operator's list are left out.

Arrow finds patterns by RE2, which takes time in proportion to the text, whatever the text is. What is
left out is a border, so that a release has only n-grams that stand in the texts as they are.
"""

import dataclasses
import functools
import hashlib
import json
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.documents.folding import (
    ENDING_TAG,
    FOLD_VERSION,
    FOLDS,
    HTML,
    folded,
    without_entities,
    without_tags_within,
)
from beam_dpne.documents.run_keys import require_identified, tokenizer_identity
from beam_dpne.documents.tokenizers import (
    BOUNDARIES,
    Tokenizer,
    item,
    resolve_tokenizer,
    tokenize,
    tokenizer_name,
)
from beam_dpne.documents.tokenizers import tokens as tokens_as_they_are
from beam_dpne.documents.words import JOINERS, VANISHING, plain_text
from beam_dpne.errors import TokenizerError
from beam_dpne.reading.ids import is_text
from beam_dpne.validation import check_choice

# Letters, with the marks on them, and digits; the scripts without blanks between words; and what ends a
# URL, after which a text goes on without a blank in these scripts and in Korean.
_WORD = r"\p{L}\p{M}\p{N}"
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_NOT_IN_URLS = rf"\s\p{{Z}}<>\"{_UNSPACED}\p{{Hangul}}\x{{3000}}-\x{{303F}}\x{{FF00}}-\x{{FFEF}}"
# Full-width forms of letters, digits and signs of addresses.
_WIDE = "Ａ-Ｚａ-ｚ０-９"
_AT = "[@＠﹫]"
_IN_LOCAL = r"\p{L}\p{N}._%+'\-．＿％＋＇－"
_IN_HOST = rf"{_WORD}{JOINERS}.\-．－"
_IN_WIDE_URL = rf"!#-;=?-~{_WIDE}！＃＄％＆＊＋．／－：；＝？＠＿～"
# What follows a letter or digit within a word: marks and joiners.
_IN_WORD = rf"\p{{M}}{JOINERS}"
# What a mark may follow, so that no mask begins within an emoji.
_IN_NUMBER = r"\p{Latin}\p{Greek}\p{Cyrillic}\p{N}_"
# Where two masks begin at one place, the first one counts. The version changes with any of this. Since
# version 2 they know full-width signs, begin with no mark, and there is `html`. Since version 3 no sign
# without width is in their way.
_VERSION = 3
# Since version 2, no n-gram with a phrase of the list is released, also where its words are.
_STOP_VERSION = 2
MASKS = {
    "urls": rf"(?:[A-Za-z][A-Za-z0-9+.\-]*://|[Ww]{{3}}\.|(?:[A-Za-z0-9\-]+\.)+[A-Za-z]{{2,}}/)"
    rf"[^{_NOT_IN_URLS}]+"
    rf"|(?:[A-Za-zＡ-Ｚａ-ｚ]+[:：](?://|／／)|[WwＷｗ]{{3}}[.．])[{_IN_WIDE_URL}]+",
    "emails": rf"[{_IN_LOCAL}][{_IN_LOCAL}{_IN_WORD}]*{_AT}[{_IN_HOST}]+",
    "mentions": rf"\B{_AT}[\p{{L}}\p{{N}}_＿][{_WORD}{JOINERS}_.\-＿．－]*(?:{_AT}[{_IN_HOST}]+)?",
    "numbers": rf"(?:[{_IN_NUMBER}][{_IN_NUMBER}{_IN_WORD}]*)?\p{{N}}[{_IN_NUMBER}{_IN_WORD}]*",
}
# It is no pattern of what is left out alone, since entities are decoded.
HTML_MASK = "html"
MASK_NAMES = (*MASKS, HTML_MASK)
# What stays one word, if the operator chooses so. The version changes with any of this. Since version 2
# no sign without width is in the way.
_KEEP_VERSION = 2
_PICTURE = (
    r"[\x{231A}\x{231B}\x{2328}\x{23CF}\x{23E9}-\x{23F3}\x{23F8}-\x{23FA}\x{24C2}\x{25AA}\x{25AB}\x{25B6}"
    r"\x{25C0}\x{25FB}-\x{25FE}\x{2600}-\x{27BF}\x{2934}\x{2935}\x{2B05}-\x{2B07}\x{2B1B}\x{2B1C}\x{2B50}"
    r"\x{2B55}\x{1F000}-\x{1F1E5}\x{1F200}-\x{1FAFF}]"
)
_ONE_EMOJI = rf"{_PICTURE}(?:\x{{FE0F}}|[\x{{1F3FB}}-\x{{1F3FF}}])?"
_ONE_EMOJI += r"(?:[\x{E0020}-\x{E007E}]+\x{E007F})?"
KEPT = {
    "emoji": rf"{_ONE_EMOJI}(?:\x{{200D}}{_ONE_EMOJI})*|[\x{{1F1E6}}-\x{{1F1FF}}]{{2}}"
    r"|[0-9#*]\x{FE0F}?\x{20E3}",
    "hashtags": r"\B[#＃][\p{N}_]*\p{L}[\p{L}\p{M}\p{N}_\x{200C}\x{200D}]*",
    "mentions": MASKS["mentions"],
}
_WIDE_SIGNS = {ord("＃"): "#", ord("＠"): "@", ord("﹫"): "@"}
_MARK = "\0"
_NULL = pa.scalar(None, pa.string())
# Tags and entities, or escapes, are told to the operator if at least this share of the texts has any.
_TOLD_SHARE = 0.01
# An escape of a line end or a tab; behind a colon it may be the path of a file.
_ESCAPED = r"[^:\\]\\[nt]"
# A list of texts as Python writes it.
_LIST = r"""^\s*\[(?:'[^']*'|"[^"]*")(?:, ?(?:'[^']*'|"[^"]*"))*\]\s*$"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextRules:
    """A tokenizer that cuts texts into items at a separator, folds them, or leaves out parts of them.

    Each text is treated alone, and folded first. With a tokenizer of words, a match of a mask is cut
    out of the text, and the parts before and after it are tokenized as two texts. With a separator,
    and with `item` and `tokens`, an item is left out as a whole if it has a match. Then the words and
    phrases of the list are left out, which the same tokenizer has split. No n-gram goes over what is
    left out.

    Attributes:
      tokenizer: Name of the tokenizer, or the function.
      item_separator: Text between items; then `tokenizer` is `item`. Blanks around an item do not
        belong to it, and empty items are none.
      mask: Names of `MASKS`, and `html`, which goes with a tokenizer of words. Tags are left out before
        anything else; those within sentences leave no border. Entities are decoded.
      fold: Names of `folding.FOLDS`.
      keep: Names of `KEPT`: what stays one word of a tokenizer of words.
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
    fold: Sequence[str] = ()
    keep: Sequence[str] = ()
    stop_list: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in self.mask:
            check_choice("mask", name, MASK_NAMES)
        for name in self.fold:
            check_choice("fold", name, FOLDS)
        for name in self.keep:
            check_choice("keep", name, tuple(KEPT))
        if self._takes_items and (HTML_MASK in self.mask or self.keep):
            raise ValueError(
                "mask html and `keep` must be given with a tokenizer of words, got `tokenizer="
                f"{self.tokenizer_name}`. Leave them out."
            )
        if "mentions" in self.keep and "mentions" in self.mask:
            raise ValueError("`keep` and `mask` must not both have mentions. Leave one out.")
        if self.item_separator is not None and self.tokenizer_name != "item":
            raise ValueError(
                "`item_separator` must be given with the tokenizer item, got `tokenizer="
                f"{self.tokenizer_name}`. Leave the tokenizer out."
            )
        if not all(self.phrases) or "\n" in "".join(self.stop_list):
            raise ValueError(
                "`stop_list` must have a word and no line's end in each entry, got one in which the "
                f"tokenizer {self.tokenizer_name} finds none, or of several lines. Remove or cut it."
            )

    @property
    def rules(self) -> dict[str, Any]:
        """The rules as the ledger states them."""
        entries = "\n".join(sorted(set(self.stop_list))).encode()
        masks = [name for name in MASK_NAMES if name in self.mask]
        folds = [name for name in FOLDS if name in self.fold]
        kept = [name for name in KEPT if name in self.keep]
        rules = {
            "item_separator": self.item_separator,
            "mask": masks,
            "mask_version": masks and _VERSION,
            "fold": folds,
            "fold_version": folds and FOLD_VERSION,
            "keep": kept,
            "keep_version": kept and _KEEP_VERSION,
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
        if self.fold:
            version = f"{version}; Unicode {unicodedata.unidata_version}"
        return f"{version}; stop list {_STOP_VERSION}" if self.stop_list else version

    @functools.cached_property
    def pattern(self) -> str:
        """The regular expression of all masks; "" without any."""
        return "|".join(MASKS[name] for name in MASKS if name in self.mask)

    @property
    def _takes_items(self) -> bool:
        return self.tokenizer_name in ("item", "tokens")

    @property
    def _has_plain_words(self) -> bool:
        """Whether words are those of `words.plain_text`."""
        return self.tokenizer_name in ("words", *BOUNDARIES)

    @functools.cached_property
    def phrases(self) -> list[list[str]]:
        """The tokens of each entry of the list."""
        if not self.stop_list:
            return []
        entries = folded(pa.array(self.stop_list, pa.string()), self.fold)
        if self._takes_items:
            return item(entries).to_pylist()
        return self._with_kept(self._without_vanishing(entries)).to_pylist()

    def __call__(self, texts: pa.Array) -> pa.ListArray:
        """Returns the tokens of each text, with a null for each place where something is left out."""
        if self._takes_items:
            tokens = self._split(self._folded_items(texts))
            left_out = self._matches(tokens.values)
        else:
            tokens = self._of_markup(texts) if HTML_MASK in self.mask else self._of_text(texts)
            left_out = np.zeros(len(tokens.values), bool)
        self._find_phrases(tokens, left_out)
        if not left_out.any():
            return tokens
        values = pc.call_function("if_else", [pa.array(left_out), _NULL, tokens.values])
        return pa.ListArray.from_arrays(tokens.offsets, values)

    def _folded_items(self, texts: pa.Array) -> pa.Array:
        """Returns texts, or lists of tokens, with folded letters and signs."""
        if not self.fold or is_text(texts.type):
            return folded(texts, self.fold)
        lists = tokenize(tokens_as_they_are, texts)
        return pa.ListArray.from_arrays(lists.offsets, folded(lists.values, self.fold))

    def _matches(self, items: pa.Array) -> np.ndarray:
        """Marks the items in which a mask has a match: (items,) bool."""
        if not self.pattern:
            return np.zeros(len(items), bool)
        pattern = pc.MatchSubstringOptions(self.pattern)
        found = pc.call_function("match_substring_regex", [items], pattern)
        return found.to_numpy(zero_copy_only=False)

    def _of_markup(self, texts: pa.Array) -> pa.ListArray:
        """Returns the tokens of texts in HTML, with a null for each tag that ends a text."""
        parts = _divided("split_pattern_regex", without_tags_within(texts), ENDING_TAG)
        return _joined(parts, self._of_text(without_entities(parts.values)))

    def _of_text(self, texts: pa.Array) -> pa.ListArray:
        """Returns the tokens of what stands between matches of masks, with a null for each match."""
        plain = self._without_vanishing(folded(texts, self.fold))
        if not self.pattern:
            return self._with_kept(plain)
        parts = _divided("split_pattern_regex", plain, self.pattern)
        return _joined(parts, self._with_kept(parts.values))

    def _without_vanishing(self, texts: pa.Array) -> pa.Array:
        """Returns texts without signs that the words do not have, either, if anything is looked for.

        Otherwise one of them would hide an address.
        """
        if not self._has_plain_words or not (self.pattern or self.keep):
            return texts
        signs = pc.ReplaceSubstringOptions(f"[{VANISHING}]", "")
        return pc.call_function("replace_substring_regex", [texts], signs)

    def _with_kept(self, texts: pa.Array) -> pa.ListArray:
        """Returns the tokens of texts, in which what is kept is one token."""
        if not self.keep:
            return self._split(texts)
        pattern = "|".join(KEPT[name] for name in KEPT if name in self.keep)
        blank = pc.ReplaceSubstringOptions(_MARK, " ")
        around = pc.ReplaceSubstringOptions(f"({pattern})", rf"{_MARK}\1{_MARK}")
        texts = pc.call_function("replace_substring", [texts], blank)
        marked = pc.call_function("replace_substring_regex", [texts], around)
        parts = _divided("split_pattern", marked, _MARK)
        # Each second part of a text is kept.
        first = parts.offsets.to_numpy()
        place = np.arange(len(parts.values)) - np.repeat(first[:-1], np.diff(first))
        is_kept = place % 2 == 1
        kept = parts.values.filter(pa.array(is_kept)).to_pylist()
        others = pc.call_function("if_else", [pa.array(is_kept), pa.scalar(""), parts.values])
        added = pa.array(map(self._kept_word, kept), pa.string())
        return _inserted(self._split(others), first, is_kept, added)

    def _kept_word(self, text: str) -> str:
        """Returns a kept part of a text in the form of the words of the tokenizer."""
        if not self._has_plain_words or text[0] not in "#＃@＠﹫":
            return text
        return plain_text(text).translate(_WIDE_SIGNS)

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


def _joined(parts: pa.ListArray, tokens: pa.ListArray) -> pa.ListArray:
    """Returns the tokens of the parts of texts as those of the texts, with a null between two parts."""
    first = parts.offsets.to_numpy()
    is_later = np.ones(len(tokens), bool)
    is_later[first[:-1]] = False
    borders = pa.nulls(int(is_later.sum()), pa.string())
    return _inserted(tokens, first, is_later, borders)


def _inserted(
    tokens: pa.ListArray, first: np.ndarray, marked: np.ndarray, added: pa.Array
) -> pa.ListArray:
    """Returns the tokens of parts as those of texts, with one more token before each marked part.

    Args:
      tokens: The tokens of each part, (parts,) lists.
      first: (texts + 1,) the first part of each text, which has one at least.
      marked: (parts,) bool.
      added: The tokens that are added, one for each marked part.
    """
    starts = tokens.offsets.to_numpy()
    count = len(tokens.values)
    numbers = np.arange(count, count + len(added))
    places = np.insert(np.arange(count), starts[:-1][marked], numbers)
    # (parts + 1,) how many tokens are added before each part.
    before = np.append(0, np.cumsum(marked))
    offsets = pa.array(starts[first] + before[first], pa.int32())
    values = pa.concat_arrays([tokens.values, added]).take(pa.array(places, pa.int64()))
    return pa.ListArray.from_arrays(offsets, values)


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
    markup = pc.call_function("match_substring_regex", [texts], pc.MatchSubstringOptions(HTML))
    if markup.to_numpy(zero_copy_only=False).mean() >= _TOLD_SHARE:
        notes.append(
            "Some of the first texts have tags or entities of HTML, whose names become words (br, amp, "
            "nbsp, …). Take --mask html to drop tags and decode entities."
        )
    options = pc.MatchSubstringOptions(_ESCAPED)
    escaped = pc.call_function("match_substring_regex", [texts], options)
    if escaped.to_numpy(zero_copy_only=False).mean() >= _TOLD_SHARE:
        notes.append(
            r"Some of the first texts have \n or \t as two characters, as MySQL and Postgres write "
            "line ends and tabs, so that words are false: export the texts as JSON or Parquet."
        )
    lists = pc.call_function("match_substring_regex", [texts], pc.MatchSubstringOptions(_LIST))
    if lists.to_numpy(zero_copy_only=False).mean() > 0.5:
        notes.append(
            "Most of the first texts are lists that were written as text, as pandas does in CSV. Write "
            "them as lists, in Parquet or JSON lines, and take --tokenizer tokens."
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
