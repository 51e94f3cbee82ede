"""Public counts of the n-grams of a text."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from beam_dpne.bayesian.public_counts import PublicCounts, from_codes
from beam_dpne.documents.tokenizers import Tokenizer, resolve_tokenizer, tokenize
from beam_dpne.errors import PublicCountsError


def count_text(
    blocks: Iterable[pa.Array],
    *,
    length: int,
    tokenizer: str | Tokenizer = "words",
    vocabulary_size: int | None = None,
) -> PublicCounts:
    """Counts every occurrence of every n-gram within documents.

    Args:
      blocks: public documents, Arrow strings (lists of strings for the tokenizer "tokens").
      length: n, the number of words in an n-gram.
      tokenizer: the tokenizer of the private texts.
      vocabulary_size: the number of n-grams that are kept, as in `PublicCounts.of`.

    Raises:
      PublicCountsError: if no document has n words.

    >>> public = count_text([pa.array(["To be or not to be", "be or"])], length=2, vocabulary_size=2)
    >>> public.texts().to_pylist(), public.counts.tolist()
    (['be or', 'to be'], [2, 2])
    """
    split = resolve_tokenizer(tokenizer)
    words: dict[str, int] = {}
    sums = _Sums(length)
    for block in blocks:
        tokens = tokenize(split, block)
        encoded = tokens.values.dictionary_encode()
        known = [words.setdefault(word, len(words)) for word in encoded.dictionary.to_pylist()]
        codes = np.array(known, dtype=np.int32)[encoded.indices.to_numpy()]
        sums.add(_windows(codes, tokens.offsets.to_numpy(), length))
    grams, counts = sums.whole()
    if counts.size == 0:
        raise PublicCountsError(
            f"public must have a document of at least {length} words, got none."
        )
    return from_codes(pa.array(list(words), pa.string()), grams, counts, vocabulary_size)


class _Sums:
    """Distinct grams with their counts; blocks wait until they have as many grams as the sums do."""

    def __init__(self, length: int):
        self._grams = [np.zeros((0, length), dtype=np.int32)]
        self._counts = [np.zeros(0, dtype=np.int64)]

    def add(self, grams: np.ndarray) -> None:
        distinct, counts = _summed(grams, np.ones(len(grams), dtype=np.int64))
        self._grams.append(distinct)
        self._counts.append(counts)
        waiting = sum(map(len, self._grams[1:]))
        if waiting > max(len(self._grams[0]), 1_000_000):
            self._merge()

    def whole(self) -> tuple[np.ndarray, np.ndarray]:
        self._merge()
        return self._grams[0], self._counts[0]

    def _merge(self) -> None:
        merged, counts = _summed(np.concatenate(self._grams), np.concatenate(self._counts))
        self._grams, self._counts = [merged], [counts]


def _windows(codes: np.ndarray, offsets: np.ndarray, length: int) -> np.ndarray:
    """Returns all runs of n tokens within documents: (m, n) int32."""
    if codes.size < length:
        return np.zeros((0, length), dtype=np.int32)
    # Whether the run that starts at each position stays within its document.
    inside = np.ones(codes.size - length + 1, dtype=bool)
    for shift in range(1, length):
        borders = offsets[1:-1] - shift
        inside[borders[(borders >= 0) & (borders < inside.size)]] = False
    runs = np.lib.stride_tricks.sliding_window_view(codes, length)
    return runs[inside]


def _summed(grams: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the distinct rows of grams, and the sums of their counts.

    Each column in turn is combined with the rank of the columns before into one integer.
    """
    if len(grams) == 0:
        return grams, counts
    ranks = grams[:, 0].astype(np.int64)
    words = int(grams.max()) + 1
    first = np.arange(len(grams))
    for column in grams.T[1:]:
        _, first, ranks = np.unique(ranks * words + column, return_index=True, return_inverse=True)
    if grams.shape[1] == 1:
        _, first, ranks = np.unique(ranks, return_index=True, return_inverse=True)
    totals = np.zeros(first.size, dtype=np.int64)
    np.add.at(totals, ranks, counts)
    return grams[first], totals
