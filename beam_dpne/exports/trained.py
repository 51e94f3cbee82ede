"""Tokenizers of a given size, trained on released words by the trainers of Hugging Face's tokenizers.

The trainers count texts and take no counts. So each word is given to them as often as its weight says,
scaled to at most `_MOST_REPEATS` words in all, and at least once. Only rows of one word are given: the
words of a phrase are rows of their own.

Equal releases give equal bytes. The trainers go through a hash table whose order differs from process
to process, and give pieces of words their numbers in that order, by which they decide between pieces
of equal counts. A trainer that is told these pieces as special tokens has them numbered before.
The scores of a unigram model are sums in that order, so they are rounded.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_dpne.errors import ExportError, installing
from beam_dpne.exports.language import Splitting, splitting
from beam_dpne.release.reading import Release

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.trainers import Trainer

MODELS = ("bpe", "unigram", "wordpiece", "wordlevel")
SPECIALS = ("[UNK]", "[PAD]")
VOCABULARY_SIZE = 8_000
_MOST_REPEATS = 1_000_000
_CONTINUED = "##"
_END = "</w>"
_WORD_BEGINNING = "▁"
_SCORE_DIGITS = 6


def trained_tokenizer(
    release: Release,
    rows: pa.Table,
    *,
    model: str,
    vocabulary_size: int = VOCABULARY_SIZE,
    special_tokens: Sequence[str] = SPECIALS,
) -> tuple[str, Mapping[str, int]]:
    """Returns the file, and the number of rows of one word that it is not trained on, by the reason.

    Args:
      release: The release.
      rows: Those of its rows whose words are trained on.
      model: One of `MODELS`.
      vocabulary_size: Largest number of tokens, special ones included; pieces of one letter stay also
        above it.
      special_tokens: Special tokens in the order of their ids; the first stands for what is unknown.

    Raises:
      ExportError: The package tokenizers is missing, or a parameter is wrong.
    """
    texts, weights = _words(release, rows)
    kept = [place for place, text in enumerate(texts) if text not in special_tokens]
    whole = trained_on(
        [texts[place] for place in kept],
        weights[kept],
        splitting=splitting(release.tokenizer),
        model=model,
        vocabulary_size=vocabulary_size,
        special_tokens=special_tokens,
    )
    missing = len(texts) - len(kept)
    left_out = {"words that are names of special tokens": missing} if missing else {}
    return whole, left_out


def trained_on(
    texts: Sequence[str],
    weights: npt.NDArray[np.float64],
    *,
    splitting: Splitting,
    model: str,
    vocabulary_size: int,
    special_tokens: Sequence[str] = SPECIALS,
) -> str:
    """Returns the file of a tokenizer that is trained on words, none of them a special token.

    Args:
      texts: The words, each once.
      weights: The weight of each word, > 0: (words,) float64.
      splitting: The normalizer and the pre-tokenizer, as `language.splitting` gives them.
      model: See `trained_tokenizer`.
      vocabulary_size: See `trained_tokenizer`.
      special_tokens: See `trained_tokenizer`.

    Raises:
      ExportError: The package tokenizers is missing, or a parameter is wrong.
    """
    _check(model, special_tokens)
    # The library normalizes and splits words as it will do with texts.
    trained = _untrained(model, special_tokens[0])
    _set_splitting(trained, model, *splitting)
    pieces = _pieces(model, texts, trained)
    trainer = _trainer(model, vocabulary_size, [*special_tokens, *pieces])
    repeated = zip(texts, _repeats(weights).tolist(), strict=True)
    try:
        trained.train_from_iterator(_batches(repeated), trainer)
    except Exception as error:
        # The library raises nothing more special.
        if "not large enough" not in str(error):
            raise
        raise ExportError(
            "`vocabulary_size` must be larger than the number of letters in the words, got "
            f"`vocabulary_size={vocabulary_size}`. Take a larger one, or bpe, which goes above it."
        ) from None
    whole = _ordered(json.loads(trained.to_str()), special_tokens)
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _check(model: str, special_tokens: Sequence[str]) -> None:
    if model not in MODELS:
        raise ExportError(f"`model` must be one of {', '.join(MODELS)}, got `model={model}`.")
    if not special_tokens or "" in special_tokens or len({*special_tokens}) < len(special_tokens):
        raise ExportError(
            "`special_tokens` must be different texts, the first of which stands for what is unknown, "
            f"got `special_tokens={','.join(special_tokens)}`."
        )
    try:
        import tokenizers  # noqa: F401
    except ImportError:
        raise ExportError(
            "`model` needs the package tokenizers, which is not installed: "
            f"{installing('tokenizers')}."
        ) from None


def _words(release: Release, rows: pa.Table) -> tuple[list[str], npt.NDArray[np.float64]]:
    """Returns the words of the rows that have one, and their weights: (words,) float64."""
    words = release.words(rows)
    weights = release.weights(rows)
    single = [place for place, row in enumerate(words) if len(row) == 1]
    return [words[place][0] for place in single], weights[single]


def _repeats(weights: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Returns how often each word is given to a trainer: (words,) int64."""
    total = weights.sum()
    scale = min(1.0, _MOST_REPEATS / total) if total else 1.0
    return np.maximum(np.rint(weights * scale), 1).astype(np.int64)


def _batches(words: Iterator[tuple[str, int]]) -> Iterator[list[str]]:
    for word, count in words:
        yield [word] * count


def _untrained(model: str, unknown: str) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, models

    if model == "bpe":
        made = Tokenizer(models.BPE(unk_token=unknown, end_of_word_suffix=_END))
        made.decoder = decoders.BPEDecoder(suffix=_END)
    elif model == "wordpiece":
        made = Tokenizer(models.WordPiece(unk_token=unknown, continuing_subword_prefix=_CONTINUED))
        made.decoder = decoders.WordPiece(prefix=_CONTINUED, cleanup=False)
    elif model == "unigram":
        made = Tokenizer(models.Unigram())
        made.decoder = decoders.Metaspace(replacement=_WORD_BEGINNING, prepend_scheme="always")
    else:
        made = Tokenizer(models.WordLevel(unk_token=unknown))
    return made


def _set_splitting(
    made: "Tokenizer", model: str, normalizer: Mapping[str, Any] | None, split: Mapping[str, Any]
) -> None:
    """Gives a tokenizer the normalizer and the pre-tokenizer that are given as JSON."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    whole = json.loads(Tokenizer(models.WordLevel()).to_str())
    whole["normalizer"] = normalizer
    whole["pre_tokenizer"] = split
    read = Tokenizer.from_str(json.dumps(whole))
    if read.normalizer is not None:
        made.normalizer = read.normalizer
    made.pre_tokenizer = read.pre_tokenizer
    if model == "unigram":
        marked = pre_tokenizers.Metaspace(replacement=_WORD_BEGINNING, prepend_scheme="always")
        made.pre_tokenizer = pre_tokenizers.Sequence([read.pre_tokenizer, marked])


def _pieces(model: str, texts: Sequence[str], made: "Tokenizer") -> list[str]:
    """Returns the pieces of one letter that a trainer would number in the order of a hash table."""
    if model not in ("bpe", "wordpiece"):
        return []
    found = set()
    for text in texts:
        normal = made.normalizer.normalize_str(text) if made.normalizer else text
        for word, _ in made.pre_tokenizer.pre_tokenize_str(normal):
            if model == "bpe":
                found.add(f"{word[-1]}{_END}")
            else:
                found |= {f"{_CONTINUED}{letter}" for letter in word[1:]}
    return sorted(found)


def _trainer(model: str, size: int, specials: list[str]) -> "Trainer":
    from tokenizers import trainers

    if model == "bpe":
        return trainers.BpeTrainer(
            vocab_size=size,
            min_frequency=0,
            special_tokens=specials,
            end_of_word_suffix=_END,
            show_progress=False,
        )
    if model == "wordpiece":
        return trainers.WordPieceTrainer(
            vocab_size=size,
            min_frequency=0,
            special_tokens=specials,
            continuing_subword_prefix=_CONTINUED,
            show_progress=False,
        )
    if model == "unigram":
        return trainers.UnigramTrainer(
            vocab_size=size, special_tokens=specials, unk_token=specials[0], show_progress=False
        )
    return trainers.WordLevelTrainer(
        vocab_size=size, min_frequency=0, special_tokens=specials, show_progress=False
    )


def _ordered(whole: dict[str, Any], special_tokens: Sequence[str]) -> dict[str, Any]:
    """Returns a tokenizer with the special tokens that were asked for, and pieces in a fixed order."""
    whole["added_tokens"] = [
        each for each in whole["added_tokens"] if each["content"] in special_tokens
    ]
    if whole["model"]["type"] == "Unigram":
        count = len(special_tokens)
        specials, others = whole["model"]["vocab"][:count], whole["model"]["vocab"][count:]
        rounded = [[piece, round(score, _SCORE_DIGITS)] for piece, score in others]
        rounded.sort(key=lambda pair: (-pair[1], pair[0]))
        whole["model"]["vocab"] = specials + rounded
    return whole
