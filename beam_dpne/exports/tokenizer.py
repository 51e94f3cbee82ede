"""Hugging Face `tokenizer.json`: single words as a WordLevel vocabulary, n-grams as added tokens.

Each token's text is the text of the release, so that `split_ngram` of a token gives its words. The ids
follow the order of the release: special tokens, single words, then longer n-grams. An added token is
found in a text before the text is split into words, and the longest one wins.
"""

import json
from typing import Any

from beam_dpne.documents.text import escape_token
from beam_dpne.exports.source import Rendered, Source

UNKNOWN = "UNK"
PADDING = "PAD"
# Letters or digits with their marks, underscores, and single apostrophes between two of these; at least
# one letter or digit. See `beam_dpne.documents.tokenizers.words`.
_LETTER = r"[\p{L}\p{N}]\p{M}*"
_WORDS = rf"(?:_['\u2019]?)*{_LETTER}(?:['\u2019]?(?:{_LETTER}|_))*"
_BLANKS = {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}


def render(source: Source) -> Rendered:
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
    return Rendered((json.dumps(whole, indent=1, ensure_ascii=False) + "\n").encode())


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
