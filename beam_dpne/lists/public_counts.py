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

from beam_dpne.documents.blocks import EncodedTokens
from beam_dpne.documents.tokenizers import Tokenizer
from beam_dpne.elements.arrays import byte_order, used_words
from beam_dpne.elements.batches import NO_GRAM
from beam_dpne.elements.encoding import StoredFile
from beam_dpne.elements.rows import SEPARATOR, escape_token
from beam_dpne.errors import InputError, PublicCountsError
from beam_dpne.lists.counting import (
    codes_of_documents,
    codes_of_ngrams,
    count_ngrams,
    padded_rows,
    rows_of_lengths,
)
from beam_dpne.lists.files import (
    RELEASE,
    SCORE,
    TEXT,
    Listed,
    kind_of,
    listed_codes,
    read_released,
    read_table,
    read_text,
)
from beam_dpne.lists.finding import find_rows, gram_keys
from beam_dpne.lists.left_out import left_out_by
from beam_dpne.lists.parameters import MAX_COUNTED_LENGTH

_MAX_COUNT = 2**53
_MAX_TOTAL = 2.0**62
_WHOLE = "public counts must be whole numbers from 0 to 2^53."


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
        _check_lengths(np.array([len(row) for row in rows]))
        whole = (isinstance(c, int | np.integer) and not isinstance(c, bool) for c in values)
        if not all(whole) or not all(0 <= c <= _MAX_COUNT for c in values):
            raise PublicCountsError(_WHOLE)
        try:
            encoded = codes_of_ngrams(rows)
        except ValueError:
            raise PublicCountsError("public n-grams must be of words that are text.") from None
        numbers = np.array(values, np.int64)
        return from_codes(encoded.words, padded_rows(encoded), numbers, vocabulary_size)

    def most_frequent(self, vocabulary_size: int) -> "PublicCounts":
        """Returns the first `vocabulary_size` grams, or all if there are no more."""
        if vocabulary_size >= len(self):
            return self
        return from_codes(self.words, self.grams, self.counts, vocabulary_size)

    def without_left_out(self, tokenizer: str | Tokenizer) -> "PublicCounts":
        """Returns the grams that the rules of a tokenizer do not leave out of texts.

        Raises:
          PublicCountsError: if none is left that has a count above 0.
        """
        rules = left_out_by(tokenizer)
        if rules is None:
            return self
        kept = ~rules.of_list(self.words, self.grams)
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
                f"`length` must be the number of words in the longest n-gram of public, {self.length}, "
                f"got `length={length}`."
            )

    def find(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the position and the row of each gram that a text has: (m,) int64 each.

        Args:
          ids: (p,) int32, the word at each position as an index into `words`; −1 for other words, and
            between documents.
        """
        return find_rows(ids, self.grams)


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
    repeated = len(codes) - len(gram_keys(codes).unique())
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
    tokenizer: str | Tokenizer = "words",
    vocabulary_size: int | None = None,
) -> PublicCounts:
    """Counts every n-gram within documents: Arrow strings, or lists of strings that are tokens.

    >>> public = count_text([pa.array(["To be or not to be", "be or"])], length=2, vocabulary_size=2)
    >>> public.texts().to_pylist(), public.counts.tolist()
    (['be or', 'to be'], [2, 2])
    """
    words, codes = codes_of_documents(blocks, tokenizer)
    (public,) = _of_text(words, codes, [length], vocabulary_size)
    return public


def read_public_counts(
    path: str,
    *,
    length: int,
    tokenizer: str | Tokenizer = "words",
    vocabulary_size: int | None = None,
) -> PublicCounts:
    """Reads public counts, which must not come from the private data.

    Args:
      path: a text, one document a line; a file of counts, with lines `ngram<TAB>count`; a table with
        the columns `ngram` and `count`; or a release of n-grams or items, whose counts are the numbers
        of users or, in a release without such numbers, max(score, 0), rounded. A table may have these
        columns of a release instead of `count`. `kind_of` tells which of them it is.
      length: n, the number of words of an n-gram. A table and a file of counts may have shorter ones
        beside them; of a release those of this length are taken.
      tokenizer: the tokenizer of the private texts; it splits a public text too. N-grams that its rules
        leave out are not used.
      vocabulary_size: as in `PublicCounts.of`.

    Raises:
      PublicCountsError: if there are no counts, or they are negative, doubled, or of n-grams of another
        length.
      InputError, FileNotFoundError, ReleaseError: if the path cannot be read.
    """
    return read_counts_of_lengths(path, [length], tokenizer, vocabulary_size)[-1]


def read_counts_of_lengths(
    path: str,
    lengths: Sequence[int],
    tokenizer: str | Tokenizer,
    vocabulary_size: int | None = None,
) -> list[PublicCounts]:
    """Reads public counts of several lengths, as `read_public_counts` reads those of one.

    Args:
      path: as there.
      lengths: the lengths, ascending. Of those before the last one, a table and a file of counts have
        no counts, and a release may have none; these lengths are left out.
      tokenizer: as there.
      vocabulary_size: as there, for each length.
    """
    kind = kind_of("public", path)
    if kind == TEXT:
        words, codes = read_text("public", path, tokenizer)
        return _of_text(words, codes, lengths, vocabulary_size)
    if kind == RELEASE:
        _, listed = read_released("public", path)
        read = _of_release(listed, path, lengths)
    else:
        read = [_of_table(read_table("public", path), path, lengths[-1])]
    possible = [public.without_left_out(tokenizer) for public in read]
    if vocabulary_size is None:
        return possible
    return [public.most_frequent(vocabulary_size) for public in possible]


def _of_text(
    words: pa.Array, codes: np.ndarray, lengths: Sequence[int], vocabulary_size: int | None
) -> list[PublicCounts]:
    """Returns the counts of the n-grams of each length that stand in a text."""
    counted = count_ngrams(codes, len(words), lengths[-1], 1)
    if not counted[-1].counts.size:
        raise PublicCountsError(
            f"`public` must have a document of at least {lengths[-1]} words, got none."
        )
    chosen = [counted[length - 1] for length in lengths]
    return [from_codes(words, each.rows, each.counts, vocabulary_size) for each in chosen]


def _of_release(listed: Listed, path: str, lengths: Sequence[int]) -> list[PublicCounts]:
    """Returns the counts of each length of which a release has any."""
    encoded, numbers = _numbered(listed, path)
    rows = {each.shape[1]: each for each in rows_of_lengths(encoded)}
    if lengths[-1] not in rows:
        raise PublicCountsError(
            f"`public` must have n-grams of `length={lengths[-1]}`, got the release {path}, which "
            "has none."
        )
    whole = np.rint(np.maximum(numbers, 0.0)).astype(np.int64)
    sizes = np.diff(encoded.offsets)
    counts = {length: whole[sizes == length] for length in lengths}
    return [
        from_codes(encoded.words, rows[length], counts[length], None)
        for length in lengths
        if length == lengths[-1] or counts[length].any()
    ]


def _of_table(listed: Listed, path: str, length: int) -> PublicCounts:
    """Returns the counts of a table, whose longest n-grams must have this length."""
    encoded, numbers = _numbered(listed, path)
    _check_lengths(np.diff(encoded.offsets))
    if listed.column == SCORE:
        numbers = np.rint(np.maximum(numbers, 0.0))
    if not np.all((numbers >= 0) & (numbers <= _MAX_COUNT) & (numbers == np.floor(numbers))):
        raise PublicCountsError(_WHOLE)
    public = from_codes(encoded.words, padded_rows(encoded), numbers.astype(np.int64), None)
    public.require_length(length)
    return public


def _numbered(listed: Listed, path: str) -> tuple[EncodedTokens, np.ndarray]:
    """Returns the words of listed n-grams as codes, and how common each is: (n,) float64.

    Raises:
      InputError: if the list does not say it, or says it for groups.
    """
    if listed.numbers is None:
        raise InputError(
            f"`public` must say how common each n-gram is, in a column count, got {path} without "
            "it. Add the column, or give a text, whose n-grams are counted."
        )
    if listed.groups is not None:
        raise InputError(
            f"`public` must be without groups, got {path}, whose n-grams have counts in groups. "
            "Add them up, in a table without the column group."
        )
    return listed_codes("public", listed), listed.numbers


def _check_lengths(sizes: np.ndarray) -> None:
    """Checks the numbers of words of all n-grams, (n,) integers; raises PublicCountsError."""
    if not sizes.size or sizes.min() < 1 or sizes.max() > MAX_COUNTED_LENGTH:
        raise PublicCountsError(f"public n-grams must have 1 to {MAX_COUNTED_LENGTH} words each.")


def _texts(words: pa.Array, codes: np.ndarray) -> pa.Array:
    escaped = pa.array([escape_token(word) for word in words.to_pylist()], pa.string())
    columns = [escaped.take(pa.array(column, mask=column < 0)) for column in codes.T]
    parts = [*columns, pa.scalar(SEPARATOR)]
    return pc.call_function("binary_join_element_wise", parts, pc.JoinOptions("skip"))
