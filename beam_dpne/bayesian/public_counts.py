"""PublicCounts: the n-grams of a public vocabulary with their public counts.

A public count says how common an n-gram is elsewhere. It is the prior of `BayesianCounts`, which gives
probabilities to no other n-grams than these.
"""

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.bayesian.plan import MAX_LENGTH
from beam_dpne.documents import tokenizers
from beam_dpne.documents.masks import left_out_by
from beam_dpne.elements.arrays import byte_order, places_in, used_words
from beam_dpne.elements.batches import NO_GRAM
from beam_dpne.elements.encoding import StoredFile
from beam_dpne.elements.rows import SEPARATOR, escape_token
from beam_dpne.errors import PublicCountsError
from beam_dpne.ngrams.known_lists import codes_of_documents

_MAX_COUNT = 2**53
_MAX_TOTAL = 2.0**62


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class PublicCounts:
    """A public vocabulary of n-grams, most frequent first, ties by their text's bytes.

    Attributes:
      length: n, the number of words in the longest gram.
      words: the distinct words of the grams, Arrow strings sorted by bytes.
      word_ids: (V · n,) int32, each gram's words as indices into `words`, gram by gram; −1 after the
        words of a shorter one.
      counts: (V,) int64 ≥ 0, the public counts α, in descending order.
      stored: the file that holds them, if they were too large for an element (`spill`).

    Example:
      >>> public = PublicCounts.of([("to", "be"), ("be", "or")], [3, 7])
      >>> public.texts().to_pylist(), public.counts.tolist(), public.words.to_pylist()
      (['be or', 'to be'], [7, 3], ['be', 'or', 'to'])
    """

    length: int
    words: pa.Array
    word_ids: np.ndarray
    counts: np.ndarray
    stored: StoredFile | None = None

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def grams(self) -> np.ndarray:
        """(V, n) int32, each gram's words as in `word_ids`."""
        return self.word_ids.reshape(-1, self.length)

    @classmethod
    def of(
        cls,
        ngrams: Iterable[Sequence[str]],
        counts: Iterable[int],
        *,
        vocabulary_size: int | None = None,
    ) -> "PublicCounts":
        """Returns public counts from n-grams, each a sequence of words, and their counts.

        Args:
          ngrams: distinct n-grams, each of a length from 1 to 5.
          counts: an integer ≥ 0 for each n-gram; some must be positive.
          vocabulary_size: the number of n-grams that are kept, the most frequent and with equal counts
            the first by bytes; None keeps all.

        Raises:
          PublicCountsError: if n-grams or counts do not meet these conditions.
        """
        rows = [tuple(ngram) for ngram in ngrams]
        values = list(counts)
        lengths = np.array([len(row) for row in rows] or [0])
        if not 1 <= lengths.min() <= lengths.max() <= MAX_LENGTH:
            raise PublicCountsError(f"public n-grams must have 1 to {MAX_LENGTH} words each.")
        whole = (isinstance(c, int | np.integer) and not isinstance(c, bool) for c in values)
        if not all(whole) or not all(0 <= c <= _MAX_COUNT for c in values):
            raise PublicCountsError("public counts must be whole numbers from 0 to 2^53.")
        try:
            encoded = pa.array((w for row in rows for w in row), pa.string()).dictionary_encode()
        except (pa.ArrowException, UnicodeError, TypeError):
            raise PublicCountsError("public n-grams must be of words that are text.") from None
        codes = np.full((len(rows), lengths.max()), NO_GRAM, np.int32)
        codes[np.arange(lengths.max()) < lengths[:, np.newaxis]] = encoded.indices.to_numpy()
        return from_codes(encoded.dictionary, codes, np.array(values, np.int64), vocabulary_size)

    def most_frequent(self, vocabulary_size: int) -> "PublicCounts":
        """Returns the first `vocabulary_size` grams, or all if there are no more."""
        if vocabulary_size >= len(self):
            return self
        return from_codes(self.words, self.grams, self.counts, vocabulary_size)

    def without_left_out(self, tokenizer: str | tokenizers.Tokenizer) -> "PublicCounts":
        """Returns the grams that the rules of a tokenizer do not leave out of texts.

        Raises:
          PublicCountsError: if none is left that has a count above 0.
        """
        rules = left_out_by(tokenizer)
        if rules is None:
            return self
        kept = ~rules.of_rows(self.words, self.grams)
        if kept.all():
            return self
        return from_codes(self.words, self.grams[kept], self.counts[kept], None)

    def texts(self) -> pa.Array:
        """Returns each gram as `join_tokens` writes it: (V,) Arrow strings."""
        return _texts(self.words, self.grams)

    def fingerprint(self) -> str:
        """Returns the SHA-256 of grams and counts, hexadecimal."""
        digest = hashlib.sha256(f"{self.length} {len(self)} {len(self.words)}\n".encode())
        digest.update("".join(f"{escape_token(w)}\n" for w in self.words.to_pylist()).encode())
        digest.update(self.word_ids.astype("<i4").tobytes())
        digest.update(self.counts.astype("<i8").tobytes())
        return digest.hexdigest()

    def require_length(self, length: int) -> None:
        """Checks the length of the longest n-gram; raises PublicCountsError."""
        if self.length != length:
            raise PublicCountsError(
                f"length must be the number of words in the longest n-gram of public, {self.length}, "
                f"got length={length}."
            )

    def find(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the position and the row of each gram that a text has: (m,) int64 each.

        Args:
          ids: (p,) int32, the word at each position as an index into `words`; −1 for other words, and
            between documents.
        """
        sizes = (self.grams >= 0).sum(axis=1)
        found = []
        for size in np.unique(sizes).tolist():
            rows = np.flatnonzero(sizes == size)
            starts, windows = _windows(ids, size)
            places = places_in(_gram_keys(windows), _gram_keys(self.grams[rows, :size]))
            found.append((starts[places >= 0], rows[places[places >= 0]]))
        return np.concatenate([each[0] for each in found]), np.concatenate(
            [each[1] for each in found]
        )


def from_codes(
    words: pa.Array, codes: np.ndarray, counts: np.ndarray, vocabulary_size: int | None
) -> PublicCounts:
    """Returns public counts from grams whose words are indices into `words`; drops unused words.

    Args:
      words: distinct words, Arrow strings.
      codes: (m, n) integers, the words of each gram, then −1.
      counts: (m,) int64.
      vocabulary_size: as in `PublicCounts.of`.
    """
    if codes.shape[0] != counts.size:
        raise PublicCountsError(
            f"public counts must be as many as n-grams, got {counts.size} for {codes.shape[0]}."
        )
    if not 0 < counts.astype(np.float64).sum() <= _MAX_TOTAL:
        raise PublicCountsError("public counts must not all be 0, and sum to at most 2^62.")
    repeated = len(codes) - len(_gram_keys(codes).unique())
    if repeated:
        raise PublicCountsError(f"public n-grams must be distinct, got {repeated} repeated.")
    keep = np.arange(counts.size)
    if vocabulary_size is not None and vocabulary_size < counts.size:
        # All grams with the lowest count that is kept are sorted, since ties are decided by bytes.
        cut = np.partition(counts, -vocabulary_size)[-vocabulary_size]
        keep = np.flatnonzero(counts >= cut)
    table = pa.table(
        {"count": counts[keep], "text": _texts(words, codes[keep]), "row": keep}
    ).sort_by([("count", "descending"), ("text", "ascending")])
    order = table["row"].to_numpy()[:vocabulary_size]
    used, ids = used_words(len(words), codes[order].reshape(-1))
    names = words.take(pa.array(used))
    by_bytes = byte_order(names)
    ranks = np.argsort(by_bytes).astype(np.int32)
    return PublicCounts(
        length=codes.shape[1],
        words=names.take(pa.array(by_bytes)),
        word_ids=np.append(ranks, np.int32(NO_GRAM))[ids],
        counts=counts[order].astype(np.int64),
    )


def count_text(
    blocks: Iterable[pa.Array],
    *,
    length: int,
    tokenizer: str | tokenizers.Tokenizer = "words",
    vocabulary_size: int | None = None,
) -> PublicCounts:
    """Counts every n-gram within documents: Arrow strings, or lists of strings that are tokens.

    >>> public = count_text([pa.array(["To be or not to be", "be or"])], length=2, vocabulary_size=2)
    >>> public.texts().to_pylist(), public.counts.tolist()
    (['be or', 'to be'], [2, 2])
    """
    words, codes = codes_of_documents(blocks, tokenizer)
    counted = _gram_keys(_windows(codes.astype(np.int32), length)[1]).value_counts()
    if not len(counted):
        raise PublicCountsError(
            f"public must have a document of at least {length} words, got none."
        )
    keys = counted.field("values")
    start = 4 * length * keys.offset
    size = length * len(keys)
    grams = np.frombuffer(keys.buffers()[1], np.int32, size, start).reshape(-1, length)
    return from_codes(words, grams, counted.field("counts").to_numpy(), vocabulary_size)


def _windows(ids: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns where the runs of n known words begin, (m,) int64, and these runs, (m, n) int32."""
    if ids.size < length:
        return np.zeros(0, np.int64), np.zeros((0, length), np.int32)
    windows = np.lib.stride_tricks.sliding_window_view(ids, length)
    # The bitwise or of n words is negative if one of them is −1.
    starts = np.flatnonzero(np.bitwise_or.reduce(windows.T) >= 0)
    return starts, windows[starts]


def _gram_keys(codes: np.ndarray) -> pa.Array:
    """Returns each gram, a row of its words' ids, as one value by which Arrow finds and counts it."""
    ids = np.ascontiguousarray(codes, dtype=np.int32)
    kind = pa.binary(ids.itemsize * ids.shape[1])
    return pa.Array.from_buffers(kind, len(ids), [None, pa.py_buffer(ids)])


def _texts(words: pa.Array, codes: np.ndarray) -> pa.Array:
    escaped = pa.array([escape_token(word) for word in words.to_pylist()], pa.string())
    columns = [escaped.take(pa.array(column, mask=column < 0)) for column in codes.T]
    parts = [*columns, pa.scalar(SEPARATOR)]
    return pc.call_function("binary_join_element_wise", parts, pc.JoinOptions("skip"))
