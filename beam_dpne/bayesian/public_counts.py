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
from beam_dpne.documents.tokenizers import Tokenizer, resolve_tokenizer, tokenize
from beam_dpne.elements.arrays import byte_order, places_in, used_words
from beam_dpne.elements.batches import NO_GRAM
from beam_dpne.elements.coders import StoredFile, register_batches
from beam_dpne.elements.rows import SEPARATOR, escape_token
from beam_dpne.errors import PublicCountsError

MAX_COUNT = 2**53
MAX_TOTAL = 2.0**62
_MOST_WAITING = 1_000_000


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
        rows, values = [tuple(ngram) for ngram in ngrams], list(counts)
        lengths = sorted({len(row) for row in rows})
        if len(lengths) != 1:
            raise PublicCountsError(
                f"public counts must have n-grams, all of one length, got the lengths {lengths}."
            )
        if not 1 <= lengths[0] <= MAX_LENGTH:
            raise PublicCountsError(
                f"public n-grams must have 1 to {MAX_LENGTH} words, got {lengths[0]}."
            )
        whole = (isinstance(c, int | np.integer) and not isinstance(c, bool) for c in values)
        if not all(whole) or not all(0 <= c <= MAX_COUNT for c in values):
            raise PublicCountsError("public counts must be whole numbers from 0 to 2^53.")
        try:
            encoded = pa.array((w for row in rows for w in row), pa.string()).dictionary_encode()
        except (pa.ArrowException, UnicodeError, TypeError):
            raise PublicCountsError("public n-grams must be of words that are text.") from None
        codes = encoded.indices.to_numpy().reshape(-1, lengths[0])
        return from_codes(encoded.dictionary, codes, np.array(values, np.int64), vocabulary_size)

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
        if ids.size >= self.length:
            windows = np.lib.stride_tricks.sliding_window_view(ids, self.length)
            starts = np.flatnonzero((windows >= 0).all(axis=1))
            rows[starts] = places_in(gram_keys(windows[starts]), gram_keys(self.grams))
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


def gram_keys(codes: np.ndarray) -> pa.Array:
    """Returns each gram, a row of its words' ids, as one value by which Arrow finds and counts it."""
    ids = np.ascontiguousarray(codes, dtype=np.int32)
    kind = pa.binary(ids.itemsize * ids.shape[1])
    return pa.Array.from_buffers(kind, len(ids), [None, pa.py_buffer(ids)])


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
    # The first table has the sums of most blocks; the others wait until they are as large.
    tables: list[pa.Table] = []
    for block in blocks:
        tokens = tokenize(split, block)
        encoded = tokens.values.dictionary_encode()
        known = [words.setdefault(word, len(words)) for word in encoded.dictionary.to_pylist()]
        codes = np.array(known, dtype=np.int32)[encoded.indices.to_numpy()]
        tables.append(_counted(_windows(codes, tokens.offsets.to_numpy(), length)))
        if sum(map(len, tables[1:])) > max(len(tables[0]), _MOST_WAITING):
            tables = [_added(tables)]
    counted = _added(tables)
    if not len(counted):
        raise PublicCountsError(
            f"public must have a document of at least {length} words, got none."
        )
    keys = counted["gram"].combine_chunks()
    grams = np.frombuffer(keys.buffers()[1], np.int32).reshape(-1, length)[keys.offset :][
        : len(keys)
    ]
    sums = counted["count_sum"].to_numpy()
    return from_codes(pa.array(list(words), pa.string()), grams, sums, vocabulary_size)


def _counted(grams: np.ndarray) -> pa.Table:
    found = gram_keys(grams).value_counts()
    return pa.table({"gram": found.field("values"), "count_sum": found.field("counts")})


def _added(tables: list[pa.Table]) -> pa.Table:
    whole = pa.concat_tables(tables).rename_columns(["gram", "count"])
    return whole.group_by("gram").aggregate([("count", "sum")]).select(["gram", "count_sum"])


def _windows(codes: np.ndarray, offsets: np.ndarray, length: int) -> np.ndarray:
    """Returns all runs of n tokens within documents: (m, n) int32."""
    if codes.size < length:
        return np.zeros((0, length), dtype=np.int32)
    # The document of each token; a run is within one if its first and its last token are.
    document = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    inside = document[: codes.size - length + 1] == document[length - 1 :]
    return np.lib.stride_tricks.sliding_window_view(codes, length)[inside]


def _check(codes: np.ndarray, counts: np.ndarray) -> None:
    if codes.shape[0] != counts.size:
        raise PublicCountsError(
            f"public counts must be as many as n-grams, got {counts.size} for {codes.shape[0]}."
        )
    if not 0 < counts.astype(np.float64).sum() <= MAX_TOTAL:
        raise PublicCountsError("public counts must not all be 0, and sum to at most 2^62.")
    repeated = len(codes) - len(gram_keys(codes).unique())
    if repeated:
        raise PublicCountsError(f"public n-grams must be distinct, got {repeated} repeated.")


def _with_sorted_words(words: pa.Array, codes: np.ndarray, counts: np.ndarray) -> PublicCounts:
    used, ids = used_words(len(words), codes.reshape(-1))
    names = words.take(pa.array(used))
    by_bytes = byte_order(names)
    ranks = np.argsort(by_bytes).astype(np.int32)
    return PublicCounts(
        length=codes.shape[1],
        words=names.take(pa.array(by_bytes)),
        word_ids=ranks[ids],
        counts=counts.astype(np.int64),
    )


def _texts(words: pa.Array, codes: np.ndarray) -> pa.Array:
    escaped = pa.array([escape_token(word) for word in words.to_pylist()], pa.string())
    columns = [escaped.take(pa.array(column)) for column in codes.T]
    return pc.call_function("binary_join_element_wise", [*columns, pa.scalar(SEPARATOR)])
