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
from beam_dpne.elements.batches import NO_GRAM
from beam_dpne.elements.coders import StoredFile, cached_for_sets, register_batches
from beam_dpne.elements.rows import SEPARATOR, escape_token
from beam_dpne.errors import PublicCountsError

MAX_COUNT = 2**53
MAX_TOTAL = 2.0**62
# A level's hash table has so many slots for each key, so that few keys share one, and at most 16 MB.
_TABLE_SPARSITY = 16
_MOST_TABLE_BITS = 22
_SHARED = -2
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class PublicCounts:
    """A public vocabulary of n-grams of one length, most frequent first, ties by their text's bytes.

    Attributes:
      length: n, the number of words in a gram.
      words: the distinct words of the grams, Arrow strings sorted by bytes.
      word_ids: (V · n,) int32, each gram's words as indices into `words`, gram by gram.
      counts: (V,) int64 ≥ 0, the public counts α, in descending order.
      stored: the file that holds them, if they were too large for an element (`spill`).

    Example:
      >>> public = PublicCounts.of([("to", "be"), ("be", "or")], [3, 7])
      >>> public.texts().to_pylist(), public.counts.tolist(), public.words.to_pylist()
      (['be or', 'to be'], [7, 3], ['be', 'or', 'to'])
      >>> public.grams.tolist()
      [[0, 1], [2, 0]]
    """

    length: int
    words: pa.Array
    word_ids: np.ndarray
    counts: np.ndarray
    stored: StoredFile | None = None

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def file_name(self) -> str:
        """The beginning of the name of a file that holds these counts."""
        return f"public-{self.length}"

    @property
    def grams(self) -> np.ndarray:
        """(V, n) int32, each gram's words as indices into `words`."""
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
          ngrams: distinct n-grams, all of one length from 1 to 5.
          counts: an integer ≥ 0 for each n-gram; some must be positive.
          vocabulary_size: the number of n-grams that are kept, the most frequent and with equal counts
            the first by bytes; None keeps all.

        Raises:
          PublicCountsError: if n-grams or counts do not meet these conditions.
        """
        rows = [tuple(ngram) for ngram in ngrams]
        length = _one_length(rows)
        try:
            encoded = pa.array((w for row in rows for w in row), pa.string()).dictionary_encode()
        except (pa.ArrowException, UnicodeError, TypeError):
            raise PublicCountsError("public n-grams must be of words that are text.") from None
        codes = encoded.indices.to_numpy().reshape(-1, length)
        return from_codes(encoded.dictionary, codes, _whole(counts), vocabulary_size)

    def most_frequent(self, vocabulary_size: int) -> "PublicCounts":
        """Returns the first `vocabulary_size` grams, or all if there are no more."""
        if vocabulary_size >= len(self):
            return self
        kept = self.grams[:vocabulary_size]
        return from_codes(self.words, kept, self.counts[:vocabulary_size], None)

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

    def rows_of(self, ids: np.ndarray) -> np.ndarray:
        """Returns the row of the gram that starts at each position, −1 where none does: (p,) int32.

        Args:
          ids: (p,) int32, the word at each position as an index into `words`; −1 for other words, and
            between documents.
        """
        rows = np.full(ids.size, NO_GRAM, dtype=np.int32)
        starts = ids.size - self.length + 1
        if starts <= 0:
            return rows
        # (starts,) the bitwise or of the next n ids; it is negative if one of them is −1.
        known = ids[:starts].copy()
        for step in range(1, self.length):
            known |= ids[step : step + starts]
        # The positions that are still candidates, and the rank of the prefix that starts there.
        positions = np.flatnonzero(known >= 0)
        ranks = ids[positions].astype(np.int64)
        levels, row_of = _levels(self)
        for step, level in enumerate(levels, start=1):
            keys = ranks * len(self.words) + ids[positions + step]
            positions, ranks = level.find(positions, keys)
        rows[positions] = row_of[ranks]
        return rows


register_batches(PublicCounts)


def from_codes(
    words: pa.Array, codes: np.ndarray, counts: np.ndarray, vocabulary_size: int | None
) -> PublicCounts:
    """Returns public counts from grams whose words are indices into `words`; drops unused words.

    Args:
      words: distinct words, Arrow strings.
      codes: (m, n) integers, the words of each gram.
      counts: (m,) int64, the count of each gram.
      vocabulary_size: the number of grams that are kept, as in `PublicCounts.of`.

    Raises:
      PublicCountsError: if a gram is repeated, or a count is out of range.
    """
    _check(codes, counts)
    keep = np.arange(counts.size)
    if vocabulary_size is not None and vocabulary_size < counts.size:
        # All grams with the lowest count that is kept are sorted, since ties are decided by bytes.
        cut = np.partition(counts, -vocabulary_size)[-vocabulary_size]
        keep = np.flatnonzero(counts >= cut)
    table = pa.table(
        {"count": counts[keep], "text": _texts(words, codes[keep]), "row": keep}
    ).sort_by([("count", "descending"), ("text", "ascending")])
    order = table["row"].to_numpy()[:vocabulary_size]
    return _with_sorted_words(words, codes[order], counts[order])


def _one_length(rows: Sequence[tuple[str, ...]]) -> int:
    lengths = {len(row) for row in rows}
    if not rows:
        raise PublicCountsError("public counts must have at least one n-gram, got none.")
    if len(lengths) != 1:
        raise PublicCountsError(
            f"public n-grams must all have one length, got some of {min(lengths)} and some of "
            f"{max(lengths)} words."
        )
    length = lengths.pop()
    _check_length(length)
    return length


def _check_length(length: int) -> None:
    if not 1 <= length <= MAX_LENGTH:
        raise PublicCountsError(f"public n-grams must have 1 to {MAX_LENGTH} words, got {length}.")


def _whole(counts: Iterable[int]) -> np.ndarray:
    values = list(counts)
    if any(isinstance(c, bool) or not isinstance(c, int | np.integer) for c in values):
        raise PublicCountsError("public counts must be whole numbers.")
    if any(not 0 <= c <= MAX_COUNT for c in values):
        raise PublicCountsError(f"public counts must be from 0 to 2^53, got {min(values)}.")
    return np.array(values, dtype=np.int64)


def _check(codes: np.ndarray, counts: np.ndarray) -> None:
    if codes.shape[0] == 0:
        raise PublicCountsError("public counts must have at least one n-gram, got none.")
    _check_length(codes.shape[1])
    if codes.shape[0] != counts.size:
        raise PublicCountsError(
            f"public counts must be as many as n-grams, got {counts.size} for {codes.shape[0]}."
        )
    if counts.min() < 0 or counts.max() > MAX_COUNT:
        raise PublicCountsError(f"public counts must be from 0 to 2^53, got {counts.min()}.")
    if not 0 < counts.astype(np.float64).sum() <= MAX_TOTAL:
        raise PublicCountsError("public counts must not all be 0, and sum to at most 2^62.")
    ordered = codes[np.lexsort(codes.T)]
    repeated = int(np.count_nonzero((ordered[1:] == ordered[:-1]).all(axis=1)))
    if repeated:
        raise PublicCountsError(f"public n-grams must be distinct, got {repeated} repeated.")


def _with_sorted_words(words: pa.Array, codes: np.ndarray, counts: np.ndarray) -> PublicCounts:
    used = np.unique(codes)
    names = words.take(pa.array(used))
    by_bytes = pc.call_function("array_sort_indices", [names]).to_numpy()
    new_ids = np.empty(used.size, dtype=np.int32)
    new_ids[by_bytes] = np.arange(used.size, dtype=np.int32)
    word_ids = new_ids[np.searchsorted(used, codes)]
    return PublicCounts(
        length=codes.shape[1],
        words=names.take(pa.array(by_bytes)),
        word_ids=word_ids.reshape(-1),
        counts=counts.astype(np.int64),
    )


def _texts(words: pa.Array, codes: np.ndarray) -> pa.Array:
    escaped = pa.array([escape_token(word) for word in words.to_pylist()], pa.string())
    columns = [escaped.take(pa.array(column)) for column in codes.T]
    return pc.call_function("binary_join_element_wise", [*columns, pa.scalar(SEPARATOR)])


class _Level:
    """The grams of one length: their sorted keys, and a hash table of the keys' ranks.

    Keys that share a slot of the table are found by binary search.
    """

    def __init__(self, keys: np.ndarray):
        self._keys = keys
        bits = min(_MOST_TABLE_BITS, (_TABLE_SPARSITY * keys.size).bit_length())
        self._shift = np.uint64(64 - bits)
        slots = self._slots(keys)
        # (2^bits,) the rank of the only key in each slot, or that there is none, or several.
        self._table = np.full(1 << bits, NO_GRAM, dtype=np.int32)
        self._table[slots] = np.arange(keys.size)
        self._table[np.bincount(slots, minlength=1 << bits) > 1] = _SHARED

    def find(self, positions: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the positions whose wanted key is there, and the ranks of these keys: int64."""
        ranks = self._table[self._slots(wanted)]
        maybe = np.flatnonzero(ranks != NO_GRAM)
        positions, wanted, ranks = positions[maybe], wanted[maybe], ranks[maybe]
        shared = np.flatnonzero(ranks == _SHARED)
        ranks[shared] = np.searchsorted(self._keys, wanted[shared]).clip(max=self._keys.size - 1)
        # A slot may hold another key than the wanted one.
        equal = np.flatnonzero(self._keys[ranks] == wanted)
        return positions[equal], ranks[equal].astype(np.int64)

    def _slots(self, keys: np.ndarray) -> np.ndarray:
        """Returns the highest bits of a product modulo 2^64 (multiplicative hashing): int64."""
        return (keys.view(np.uint64) * _MULTIPLIER >> self._shift).view(np.int64)


@cached_for_sets(maxsize=2)
def _levels(public: PublicCounts) -> tuple[list[_Level], np.ndarray]:
    """Returns the levels of lengths 2 to n, and the row of each rank of the last one: int32.

    A key is the rank of its prefix among the keys of the level before, times the number of words, plus
    the next word. The rank of a single word is its index in `words`. Levels are made once for all
    batches that look rows up.
    """
    ranks, last = public.grams[:, 0].astype(np.int64), len(public.words)
    levels: list[_Level] = []
    for column in public.grams.T[1:]:
        keys, ranks = np.unique(ranks * len(public.words) + column, return_inverse=True)
        levels.append(_Level(keys))
        last = keys.size
    row_of = np.full(last, NO_GRAM, dtype=np.int32)
    row_of[ranks] = np.arange(len(public), dtype=np.int32)
    return levels, row_of
