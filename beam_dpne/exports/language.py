"""What programs for text learn from a release: a tokenizer, and a language model.

**tokenizer.json.** Single words are a WordLevel vocabulary, n-grams are added tokens. Each token's text
is the text of the release, so that `split_ngram` of a token gives its words. The ids follow the order
of the release: special tokens, single words, then longer n-grams. An added token is found in a text
before the text is split into words, and the longest one wins.

**ARPA.** Released n-grams are only those that many users share, so each context keeps a share κ of its
probability for what the context without its first word says; see `beam_dpne.bayesian.arpa`. N-gram
probabilities come with public counts, of which their model is made; see `beam_dpne.bayesian.backoff`.
The public counts are given again, and must be those of the release.
"""

import collections
import io
import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_dpne.bayesian.arpa import MARKS, weighted_model, write_orders
from beam_dpne.bayesian.backoff import PublicGrams, adapted_model
from beam_dpne.documents.words import JOINERS, VANISHING, VIRAMAS
from beam_dpne.elements.rows import escape_token, split_ngram
from beam_dpne.errors import ExportError
from beam_dpne.lists.public_counts import PublicCounts, from_codes, read_counts_of_lengths
from beam_dpne.release.reading import Release

# Letters or digits with their marks and joiners, underscores, and single apostrophes between two of
# these; at least one letter or digit. See `beam_dpne.documents.words`.
_LETTER = rf"[\p{{L}}\p{{N}}][\p{{M}}{JOINERS}]*"
_WORDS = rf"(?:_'?)*{_LETTER}(?:'?(?:{_LETTER}|_))*"
_OF_WORDS = r"\p{L}\p{N}\p{M}"
# Joiners before another one, and those that are not inside of a word.
_REPEATED = f"[{JOINERS}](?=[{JOINERS}])"
_OUTER = f"(?<![{_OF_WORDS}])[{JOINERS}]|(?<![{VIRAMAS}])\u200d(?![{_OF_WORDS}])"
_OUTER += f"|[\u180e\u200c](?![{_OF_WORDS}])"
_BLANKS = {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}
_PLAIN = [
    *(
        {"type": "Replace", "pattern": {"Regex": pattern}, "content": ""}
        for pattern in (f"[{VANISHING}]", _REPEATED, _OUTER)
    ),
    {"type": "NFC"},
    {"type": "Lowercase"},
    {"type": "NFC"},
    {"type": "Replace", "pattern": {"String": "\u2019"}, "content": "'"},
    _BLANKS,
]
_SPECIALS = ("[UNK]", "[PAD]")
# κ, the weight of a shorter context in the stupid back-off of Brants et al. (2007).
KEPT_BACK = 0.4
_BROKEN = "rows with white space or control characters that no escape covers"
_MARKED = "rows with a word that readers take for a mark of sentences or for unknown words"
# Characters without width that have been white space in some version of Unicode or for some readers.
_WAS_WHITE = "\u180e\u200b\ufeff"
# A normalizer, which may be missing, and a pre-tokenizer, as the JSON of the library has them.
Splitting = tuple[dict[str, Any] | None, dict[str, Any]]
_Ids = npt.NDArray[np.int64]


def is_unbroken(word: str) -> bool:
    r"""Returns whether a word has no white space and no control character of Unicode.

    >>> is_unbroken("naïve"), is_unbroken("New York"), is_unbroken("a\x00")
    (True, False, False)
    """
    return not any(sign.isspace() or unicodedata.category(sign) == "Cc" for sign in word)


def _fault(word: str) -> str | None:
    """Returns why no line of an ARPA file can hold a word, or None."""
    if word in MARKS:
        return _MARKED
    # Blanks, tabs and line ends are escaped; readers split lines at other white space too.
    escaped = escape_token(word)
    if not is_unbroken(escaped) or not set(escaped).isdisjoint(_WAS_WHITE):
        return _BROKEN
    return None


def _faults(grams: Iterable[Sequence[str]]) -> list[str | None]:
    """Returns of each n-gram why no line can hold it, or None."""
    grams = list(grams)
    faults = {word: _fault(word) for gram in grams for word in gram}
    return [next(filter(None, (faults[word] for word in gram)), None) for gram in grams]


def tokenizer(release: Release, rows: pa.Table) -> str:
    """Returns the file with these rows of a release; `tokenizers.Tokenizer.from_file` reads it."""
    words, phrases = _vocabulary(release, rows)
    ids = {text: number for number, text in enumerate(dict.fromkeys([*_SPECIALS, *words]))}
    added = [_added(number, text, special=True) for number, text in enumerate(_SPECIALS)]
    added += [_added(number, text, special=False) for number, text in enumerate(phrases, len(ids))]
    normalizer, pre_tokenizer = splitting(release.tokenizer)
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": ids, "unk_token": _SPECIALS[0]},
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _vocabulary(release: Release, rows: pa.Table) -> tuple[list[str], list[str]]:
    """Returns the texts that a text is split into, and those that span several pieces of a text."""
    pieces: list[str] = []
    phrases: list[str] = []
    for text, words in zip(release.texts(rows), release.words(rows), strict=True):
        # An item is one word, and may have blanks all the same.
        spans_pieces = len(words) > 1 or (release.row_noun == "item" and len(text.split()) > 1)
        (phrases if spans_pieces else pieces).append(text)
    return pieces, phrases


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


def splitting(tokenizer: str) -> Splitting:
    """Returns the normalizer and the pre-tokenizer that are nearest to the release's tokenizer.

    The library normalizes the texts of added tokens too, which changes no token of these tokenizers.
    """
    if tokenizer.partition(" ")[0] in ("words", "unicode_words"):
        split = {
            "type": "Split",
            "pattern": {"Regex": _WORDS},
            "behavior": "Removed",
            "invert": True,
        }
        return {"type": "Sequence", "normalizers": _PLAIN}, split
    return _BLANKS if tokenizer == "whitespace" else None, {"type": "WhitespaceSplit"}


def arpa(
    release: Release, rows: pa.Table, public: str | None = None
) -> tuple[str, Mapping[str, int]]:
    """Returns the file, and the number of rows that it cannot hold, by the reason.

    Args:
      release: The release.
      rows: Those of its rows of which the model is made.
      public: Path of the public counts; only for probabilities, which need it.

    Raises:
      ExportError: The public counts are missing, belong to other releases, or are not those of the
        release.
      PublicCountsError, InputError, FileNotFoundError, ReleaseError: The public counts cannot be read.
    """
    stream = io.StringIO(newline="")
    if release.program == "bayesian":
        if public is None:
            raise ExportError(
                "A model of a release of beam-dpne bayesian needs its public counts: set `public` to "
                "their path."
            )
        missing = _write_probabilities(stream, release, rows, public)
    else:
        if public is not None:
            raise ExportError(
                "`public` must be left out for a release of n-grams, whose model is made of the "
                "release alone; only releases of beam-dpne bayesian have public counts."
            )
        missing = _write_weights(stream, release, rows)
    return stream.getvalue(), missing


def _write_probabilities(
    stream: TextIO, release: Release, rows: pa.Table, public: str
) -> Mapping[str, int]:
    """Writes the model of n-gram probabilities; returns how many no line can hold, by the reason."""
    plan = release.ledger["plan"]
    used = release.ledger["mechanism"]["public"]
    texts = release.texts(rows)
    lengths = range(1, 1 + plan["length"])
    # A file of counts has no counts of shorter n-grams, and a release may have none of a length.
    *shorter, longest = read_counts_of_lengths(public, lengths, release.tokenizer)
    if (longest.grams < 0).any():
        raise ExportError("`public` must have n-grams of one length for arpa, got several lengths.")
    released = longest.most_frequent(plan["vocabulary_size"])
    if release.text_rules:
        # The vocabulary is without what the rules leave out, which the ledger does not list.
        kept = np.isin(longest.texts().to_pylist(), texts)
        if kept.any():
            released = from_codes(longest.words, longest.grams[kept], longest.counts[kept], None)
    if released.fingerprint() != used["sha256"]:
        raise ExportError(
            f"`public` must be the public counts of the release, got {public}, which has others or has "
            "changed. Their SHA-256 in the ledger is that of the n-grams and counts."
        )
    grams = PublicGrams([_written(each) for each in (*shorter, longest)])
    probability = dict(zip(texts, release.weights(rows).tolist(), strict=True))
    written = _written(released)
    joint = np.array([probability[text] for text in written.texts().to_pylist()])
    orders, unknown = adapted_model(grams, grams.rows_of(written), joint)
    words = [escape_token(word) for word in grams.words.to_pylist()]
    write_orders(stream, orders, words, unknown=unknown)
    return collections.Counter(
        filter(None, _faults(map(split_ngram, released.texts().to_pylist())))
    )


def _written(public: PublicCounts) -> PublicCounts:
    """Returns the n-grams that a line can hold.

    Raises:
      ExportError: There is none.
    """
    fits = np.array([_fault(word) is None for word in public.words.to_pylist()])
    kept = fits[public.grams].all(axis=1)
    if not kept.any():
        raise ExportError("`public` must have an n-gram that a line can hold, got none.")
    return from_codes(public.words, public.grams[kept], public.counts[kept], None)


def _write_weights(stream: TextIO, release: Release, rows: pa.Table) -> Mapping[str, int]:
    """Writes the model of n-grams; returns how many of them no line can hold, by the reason.

    Without rows it has order 1 alone.
    """
    grams = release.words(rows)
    weight_of = release.weights(rows)
    faults = _faults(grams)
    kept = [row for row, fault in enumerate(faults) if fault is None]
    words = sorted({word for row in kept for word in grams[row]})
    number = {word: place for place, word in enumerate(words)}
    tables = []
    weights = []
    for size in range(1, max((len(grams[row]) for row in kept), default=1) + 1):
        own = [row for row in kept if len(grams[row]) == size]
        ids = [[number[word] for word in grams[row]] for row in own]
        tables.append(np.array(ids, np.int64).reshape(-1, size))
        weights.append(weight_of[own])
    orders = weighted_model(len(words), tables, weights, KEPT_BACK)
    write_orders(stream, orders, list(map(escape_token, words)))
    return collections.Counter(filter(None, faults))
