"""AOSP: the word list in the combined format from which Android's LatinIME makes a dictionary.

A line has a word with its frequency f, and lines below it have words that follow it (`bigram`). f is
the logarithm of a probability: 255 is 1, and each step less divides it by 1.15. 0 marks words that are
never suggested, so the least f is 1. The format has no escapes. Words that it, or a reader of it,
cannot hold are left out, and so are n-grams of three words and more. The format is that of
`dictionaries/sample.combined` and `CombinedInputOutput.java` in packages/inputmethods/LatinIME of
Android.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping

from beam_dpne.exports.source import Rendered, Source, is_unbroken

_STEP = math.log(1.15)
_MOST = 255
# LatinIME ignores words of 48 code points and more (DICTIONARY_MAX_WORD_LENGTH).
_LONGEST = 47
_LOCALE = re.compile(r"[A-Za-z]{2,3}([_-][A-Za-z0-9]{2,8})*")
_LONG = "n-grams of more than two words"
_UNWRITABLE = "words that the format cannot hold, and n-grams with them"


def is_locale(text: str) -> bool:
    """Returns whether a text has the form of a locale.

    >>> is_locale("pt_BR"), is_locale("en,version=2")
    (True, False)
    """
    return bool(_LOCALE.fullmatch(text))


def render(source: Source, locale: str) -> Rendered:
    """Returns the word list; its header has the locale and the hash of the ledger.

    Args:
      source: A release of n-grams or items.
      locale: Locale of the keyboard, e.g. "pt_BR".
    """
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
    return Rendered("".join(f"{line}\n" for line in lines).encode(), left_out)


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
