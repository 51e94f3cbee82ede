"""Texts and n-grams as codes of distinct words, and how often n-grams stand in texts."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.documents.blocks import EncodedTokens, encode_tokens, with_group
from beam_dpne.documents.tokenizers import Tokenizer, resolve_tokenizer, tokenize
from beam_dpne.elements.arrays import places_in
from beam_dpne.elements.batches import NO_GRAM
from beam_dpne.elements.dictionaries import merge_words
from beam_dpne.elements.rows import EMPTY_TOKEN, SEPARATOR, unescape_item


class CountedNgrams(NamedTuple):
    """The n-grams of one length that stand in texts.

    Attributes:
      rows: (n, length) int32, their words as codes; all distinct.
      counts: (n,) int64, how often each stands there.
    """

    rows: np.ndarray
    counts: np.ndarray


def codes_of_documents(
    blocks: Iterable[pa.Array], tokenizer: str | Tokenizer
) -> tuple[pa.Array, np.ndarray]:
    """Returns the distinct words of documents, and all words by their places there, −1 at borders.

    Args:
      blocks: texts, or lists of tokens, of a document each; at least one block.
      tokenizer: the tokenizer.
    """
    split = resolve_tokenizer(tokenizer)
    words = []
    codes = []
    for block in blocks:
        encoded = encode_tokens(tokenize(split, block))
        words.append(encoded.words)
        # A null is a border as well.
        codes.append(np.insert(encoded.codes, encoded.offsets[1:], NO_GRAM))
    merged = merge_words(words)
    return merged.words, np.concatenate(merged.codes(codes))


def codes_of_ngrams(ngrams: Iterable[Sequence[str]]) -> EncodedTokens:
    """Returns the words of n-grams as codes.

    Raises:
      ValueError: if an n-gram has no words, or words that are no text.
    """
    rows = [list(ngram) for ngram in ngrams]
    try:
        tokens = pa.array(rows, pa.list_(pa.string()))
    except (pa.ArrowException, UnicodeError, TypeError):
        raise ValueError("n-grams must be of words that are text.") from None
    if not all(rows) or tokens.values.null_count:
        raise ValueError("n-grams must have a word each, and no word that is null.")
    return encode_tokens(tokens)


def codes_of_texts(texts: pa.Array, groups: pa.Array | None = None) -> EncodedTokens:
    """Returns the words of n-grams as codes.

    Args:
      texts: the n-grams as `join_tokens` writes them.
      groups: the group of each, which is put in front of its words; None without groups.

    Raises:
      ValueError: if a text has an escape that `join_tokens` does not write.
    """
    split = pc.call_function("split_pattern", [texts], pc.SplitPatternOptions(SEPARATOR))
    escaped = split.flatten().dictionary_encode()
    words = [
        unescape_item(word) if "\\" in word or word == EMPTY_TOKEN else word
        for word in escaped.dictionary.to_pylist()
    ]
    tokens = pa.array(words, pa.string()).take(escaped.indices)
    ngrams = pa.ListArray.from_arrays(split.offsets, tokens)
    if groups is not None:
        ngrams = with_group(groups, ngrams)
    return encode_tokens(ngrams)


def rows_of_lengths(ngrams: EncodedTokens) -> list[np.ndarray]:
    """Returns the n-grams of each length that there is: (n, length) int32 each, their words' codes."""
    sizes = np.diff(ngrams.offsets)
    starts = ngrams.offsets[:-1]
    lengths = np.flatnonzero(np.bincount(sizes)).tolist() if sizes.size else []
    return [
        ngrams.codes[starts[sizes == length][:, np.newaxis] + np.arange(length)]
        for length in lengths
    ]


def padded_rows(ngrams: EncodedTokens) -> np.ndarray:
    """Returns n-grams in their order: (n, longest) int32, their words' codes, and −1 after them."""
    sizes = np.diff(ngrams.offsets)
    rows = np.full((sizes.size, sizes.max(initial=0)), NO_GRAM, np.int32)
    rows[np.arange(rows.shape[1]) < sizes[:, np.newaxis]] = ngrams.codes
    return rows


def count_ngrams(
    codes: np.ndarray, size: int, max_length: int, min_count: int
) -> list[CountedNgrams]:
    """Counts the n-grams of each length that stand in texts at least so many times.

    Args:
      codes: (p,) int32, words by their codes in range(size), −1 between texts.
      size: how many distinct words there are.
      max_length: the longest n-grams.
      min_count: the least number of times; parts of an n-gram stand there at least as often.
    """
    counts = np.bincount(codes[codes >= 0], minlength=size)
    kept = np.flatnonzero(counts >= min_count)
    found = [CountedNgrams(kept[:, np.newaxis].astype(np.int32), counts[kept])]
    # (p,) int64: the row in the last of `found` of the n-gram that starts here, −1 where it is rare.
    ids = _ranks(kept, size)[codes]
    for _ in range(1, max_length):
        shorter = found[-1].rows
        place = np.flatnonzero((ids[:-1] | ids[1:]) >= 0)
        pairs = pa.array(ids[place] * len(shorter) + ids[place + 1]).dictionary_encode()
        distinct = pairs.dictionary.to_numpy()
        occurring = pairs.indices.to_numpy()
        counts = np.bincount(occurring, minlength=distinct.size)
        kept = np.flatnonzero(counts >= min_count)
        ids = np.full(ids.size, NO_GRAM, np.int64)
        ids[place] = _ranks(kept, distinct.size)[occurring]
        first, second = np.divmod(distinct[kept], max(1, len(shorter)))
        rows = np.column_stack((shorter[first], shorter[second][:, -1]))
        found.append(CountedNgrams(rows, counts[kept]))
    return found


def _ranks(kept: np.ndarray, size: int) -> np.ndarray:
    """Returns the rank of each of `size` numbers among the kept ones, −1 for others and for −1."""
    ranks = np.full(size + 1, NO_GRAM, np.int64)
    ranks[kept] = np.arange(kept.size)
    return ranks


def distinct_rows(rows: np.ndarray) -> np.ndarray:
    """Sorts rows and drops repeated ones."""
    ordered = rows[np.lexsort(rows.T[::-1])]
    fresh = np.ones(len(rows), bool)
    fresh[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return ordered[fresh]


def find_rows(ids: np.ndarray, grams: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the position and the row of each n-gram that a text has: (m,) int64 each.

    Args:
      ids: (p,) int32, the word at each position by its code; −1 for other words, and between documents.
      grams: (n, k) int32, the codes of each n-gram's words, and −1 after them.
    """
    sizes = (grams >= 0).sum(axis=1)
    found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for size in np.unique(sizes).tolist():
        rows = np.flatnonzero(sizes == size)
        starts, windows = _windows(ids, size)
        places = places_in(gram_keys(windows), gram_keys(grams[rows, :size]))
        found.append((starts[places >= 0], rows[places[places >= 0]]))
    return np.concatenate([each[0] for each in found]), np.concatenate([each[1] for each in found])


def _windows(ids: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns where the runs of n known words begin, (m,) int64, and these runs, (m, n) int32."""
    if ids.size < length:
        return np.zeros(0, np.int64), np.zeros((0, length), np.int32)
    windows = np.lib.stride_tricks.sliding_window_view(ids, length)
    # The bitwise or of n words is negative if one of them is −1.
    starts = np.flatnonzero(np.bitwise_or.reduce(windows.T) >= 0)
    return starts, windows[starts]


def gram_keys(codes: np.ndarray) -> pa.Array:
    """Returns each gram, a row of its words' ids, as one value by which Arrow finds and counts it."""
    ids = np.ascontiguousarray(codes, dtype=np.int32)
    kind = pa.binary(ids.itemsize * ids.shape[1])
    return pa.Array.from_buffers(kind, len(ids), [None, pa.py_buffer(ids)])
