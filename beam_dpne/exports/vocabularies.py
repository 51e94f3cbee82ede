"""Vocabularies: Hugging Face's `tokenizer.json`, and the word list of Android's keyboard.

**tokenizer.json.** Single words are a WordLevel vocabulary, n-grams are added tokens. Each token's text
is the text of the release, so that `split_ngram` of a token gives its words. The ids follow the order
of the release: special tokens, single words, then longer n-grams. An added token is found in a text
before the text is split into words, and the longest one wins.

**Word list.** The combined format from which Android's LatinIME makes a dictionary (see
`dictionaries/sample.combined` and `CombinedInputOutput.java` in packages/inputmethods/LatinIME). A line
has a word with its frequency f, and lines below it have words that follow it (`bigram`). f is the
logarithm of a probability: 255 is 1, and each step less divides it by 1.15; 0 marks words never
suggested, so the least f is 1. The format has no escapes. Words that it, or a reader of it, cannot hold
are left out, and so are n-grams of three words and more.
"""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from beam_dpne.elements.rows import escape_token
from beam_dpne.errors import ExportError
from beam_dpne.exports.source import Rendered, Source, is_unbroken

UNKNOWN = "UNK"
PADDING = "PAD"
# Letters or digits with their marks, underscores, and single apostrophes between two of these; at least
# one letter or digit. See `beam_dpne.documents.words`.
_LETTER = r"[\p{L}\p{N}]\p{M}*"
_WORDS = rf"(?:_['\u2019]?)*{_LETTER}(?:['\u2019]?(?:{_LETTER}|_))*"
_BLANKS = {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}
_STEP = math.log(1.15)
_MOST = 255
# LatinIME ignores words of 48 code points and more (DICTIONARY_MAX_WORD_LENGTH).
_LONGEST = 47
_LOCALE = re.compile(r"[A-Za-z]{2,3}([_-][A-Za-z0-9]{2,8})*")
_LONG = "n-grams of more than two words"
_UNWRITABLE = "words that the format cannot hold, and n-grams with them"


def tokenizer(source: Source) -> Rendered:
    """Returns the file; `tokenizers.Tokenizer.from_file` reads it."""
    words, phrases = _vocabulary(source)
    taken = {*words, *phrases}
    specials = [_free_name(name, taken) for name in (UNKNOWN, PADDING)]
    ids = {text: number for number, text in enumerate([*specials, *words])}
    added = [_added(number, text, special=True) for number, text in enumerate(specials)]
    added += [_added(number, text, special=False) for number, text in enumerate(phrases, len(ids))]
    normalizer, pre_tokenizer = _splitting(source.ledger["tokenizer"])
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": ids, "unk_token": specials[0]},
    }
    return Rendered((json.dumps(whole, indent=1, ensure_ascii=False) + "\n").encode(), source)


def _vocabulary(source: Source) -> tuple[list[str], list[str]]:
    """Returns the texts that a text is split into, and those that span several pieces of a text."""
    if source.program == "set-union":
        spans = [len(item.split()) > 1 for item in source.texts]
        pairs = list(zip(source.texts, spans, strict=True))
        short = [item for item, is_long in pairs if not is_long]
        return short, [item for item, is_long in pairs if is_long]
    # Words come from all n-grams, since a release with a public vocabulary has no single words.
    every = dict.fromkeys(word for words in source.tokens for word in words)
    pairs = zip(source.texts, source.lengths.tolist(), strict=True)
    return list(map(escape_token, every)), [text for text, length in pairs if length > 1]


def _free_name(name: str, taken: set[str]) -> str:
    """Returns the name of a special token that no released text has.

    >>> _free_name("UNK", {"[UNK]"})
    '[UNK_2]'
    """
    found, number = f"[{name}]", 1
    while found in taken:
        number += 1
        found = f"[{name}_{number}]"
    return found


def _added(number: int, text: str, *, special: bool) -> dict[str, Any]:
    return {
        "id": number,
        "content": text,
        "single_word": not special,
        "lstrip": False,
        "rstrip": False,
        "normalized": not special,
        "special": special,
    }


def _splitting(tokenizer: str) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Returns the normalizer and the pre-tokenizer that are nearest to the release's tokenizer.

    The library normalizes the texts of added tokens too, which changes no token of these tokenizers.
    """
    if tokenizer.partition(" ")[0] in ("words", "unicode_words"):
        steps = [{"type": "NFC"}, {"type": "Lowercase"}, _BLANKS]
        split = {
            "type": "Split",
            "pattern": {"Regex": _WORDS},
            "behavior": "Removed",
            "invert": True,
        }
        return {"type": "Sequence", "normalizers": steps}, split
    return _BLANKS if tokenizer == "whitespace" else None, {"type": "WhitespaceSplit"}


def keyboard(source: Source, locale: str | None = None) -> Rendered:
    """Returns the word list; its header has the locale and the hash of the ledger.

    Args:
      source: A release of n-grams or items.
      locale: Locale of the keyboard, e.g. "pt_BR", which must be given.

    Raises:
      ExportError: It is not given, or not of that form.
    """
    if locale is None or not _LOCALE.fullmatch(locale):
        raise ExportError(f"locale must be a locale like en or pt_BR, got locale={locale}.")
    left_out: Counter[str] = Counter()
    words: dict[str, float] = {}
    followers: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for tokens, weight in zip(map(list, source.tokens), source.weights.tolist(), strict=True):
        if len(tokens) > 2:
            left_out[_LONG] += 1
        elif not all(map(_is_word, tokens)):
            left_out[_UNWRITABLE] += 1
        elif len(tokens) == 1:
            words[tokens[0]] = weight
        elif words.keys() >= set(tokens):
            first, second = tokens
            followers[first][second] = weight
        else:
            left_out["n-grams with a word that was not released"] += 1
    frequencies = _frequencies(words)
    lines = [_header(source, locale)]
    for word, frequency in _by_frequency(frequencies):
        lines.append(f" word={word},f={frequency}")
        # LatinIME takes a pair's f as at least that of its second word.
        pairs = _frequencies(followers[word])
        raised = {second: max(f, frequencies[second]) for second, f in pairs.items()}
        lines += [f"  bigram={second},f={f}" for second, f in _by_frequency(raised)]
    return Rendered("".join(f"{line}\n" for line in lines).encode(), source, left_out)


def _header(source: Source, locale: str) -> str:
    # A reader splits the header at commas, equals signs and colons.
    title = "".join(" " if sign in ",=:" else sign for sign in source.title)
    fields = {
        "dictionary": f"main:{locale.lower()}",
        "locale": locale,
        "description": " ".join(title.split()),
        "date": 0,
        "version": 1,
        "ledger_sha256": source.ledger_sha256,
    }
    return ",".join(f"{name}={value}" for name, value in fields.items())


def _is_word(word: str) -> bool:
    if not 0 < len(word) <= _LONGEST or "," in word:
        return False
    return is_unbroken(word)


def _frequencies(weights: Mapping[str, float]) -> dict[str, int]:
    """Returns f of each word, whose probability is its part of all weights."""
    total = math.fsum(weights.values())
    return {
        word: max(1, min(_MOST, round(_MOST + math.log(weight / total) / _STEP)))
        for word, weight in weights.items()
    }


def _by_frequency(frequencies: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(frequencies.items(), key=lambda pair: (-pair[1], pair[0]))
