"""PublicCounts: the n-grams of a public vocabulary with their public counts, and reading them.

A public count says how common an n-gram is elsewhere. It is the prior of `BayesianCounts`, which gives
probabilities to no other n-grams than these.
"""

import dataclasses
import hashlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.bayesian.plan import MAX_LENGTH
from beam_dpne.documents.tokenizers import Tokenizer, resolve_tokenizer, tokenize
from beam_dpne.elements.arrays import byte_order, places_in, used_words
from beam_dpne.elements.batches import NO_GRAM
from beam_dpne.elements.coders import StoredFile, register_batches
from beam_dpne.elements.rows import SEPARATOR, escape_token, split_ngram
from beam_dpne.errors import InputError, PublicCountsError
from beam_dpne.reading.files import TextFile, guarded, size_of
from beam_dpne.release.reading import LEDGER_NAME, has_ledger, read_release
from beam_dpne.storage.directories import is_local

_MAX_COUNT = 2**53
_MAX_TOTAL = 2.0**62
_MOST_WAITING = 1_000_000
_BLOCK_SIZE = 16 * 2**20


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
        if len(lengths) != 1 or not 1 <= lengths[0] <= MAX_LENGTH:
            raise PublicCountsError(
                f"public n-grams must all be of one length from 1 to {MAX_LENGTH}, got {lengths}."
            )
        whole = (isinstance(c, int | np.integer) and not isinstance(c, bool) for c in values)
        if not all(whole) or not all(0 <= c <= _MAX_COUNT for c in values):
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
        return from_codes(self.words, self.grams, self.counts, vocabulary_size)

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
        starts, windows = _windows(ids, self.length)
        rows[starts] = places_in(_gram_keys(windows), _gram_keys(self.grams))
        return rows


register_batches(PublicCounts)


def from_codes(
    words: pa.Array, codes: np.ndarray, counts: np.ndarray, vocabulary_size: int | None
) -> PublicCounts:
    """Returns public counts from grams whose words are indices into `words`; drops unused words.

    Args:
      words: distinct words, Arrow strings.
      codes: (m, n) integers, the words of each gram.
      counts: (m,) int64.
      vocabulary_size: as in `PublicCounts.of`, which has the errors.
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
        word_ids=ranks[ids],
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

    def added(tables: list[pa.Table]) -> pa.Table:
        sums = pa.concat_tables(tables).group_by("gram").aggregate([("count", "sum")])
        return sums.select(["gram", "count_sum"]).rename_columns(["gram", "count"])

    split = resolve_tokenizer(tokenizer)
    words: dict[str, int] = {}
    # The first table has the sums of most blocks; the others wait until they are as large.
    tables: list[pa.Table] = []
    for block in blocks:
        tokens = tokenize(split, block)
        encoded = tokens.values.dictionary_encode()
        known = [words.setdefault(word, len(words)) for word in encoded.dictionary.to_pylist()]
        codes = np.array(known, dtype=np.int32)[encoded.indices.to_numpy()]
        # A −1 ends each document but the last one.
        _, grams = _windows(np.insert(codes, tokens.offsets.to_numpy()[1:-1], NO_GRAM), length)
        found = _gram_keys(grams).value_counts()
        tables.append(pa.table([found.field("values"), found.field("counts")], ["gram", "count"]))
        if sum(map(len, tables[1:])) > max(len(tables[0]), _MOST_WAITING):
            tables = [added(tables)]
    counted = added(tables)
    if not len(counted):
        raise PublicCountsError(
            f"public must have a document of at least {length} words, got none."
        )
    keys = counted["gram"].combine_chunks()
    start, size = 4 * length * keys.offset, length * len(keys)
    grams = np.frombuffer(keys.buffers()[1], np.int32, size, start).reshape(-1, length)
    sums = counted["count"].to_numpy()
    return from_codes(pa.array(list(words), pa.string()), grams, sums, vocabulary_size)


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
    columns = [escaped.take(pa.array(column)) for column in codes.T]
    return pc.call_function("binary_join_element_wise", [*columns, pa.scalar(SEPARATOR)])


def read_public_counts(
    path: str,
    *,
    length: int,
    tokenizer: str | Tokenizer = "words",
    vocabulary_size: int | None = None,
) -> PublicCounts:
    """Reads public counts, which must not come from the private data.

    Args:
      path: Local path or one on any Beam file system; files may be compressed, by extension. A text in
        UTF-8 with one document per line, a file with a tab in its first line and lines
        `ngram<TAB>count`, or the directory of a release of `PrivateNgrams`: a count is the number of
        users or, in a release without such numbers, max(score, 0), rounded.
      length: n, number of words in an n-gram.
      tokenizer: Tokenizer of the private texts; it splits a public text too.
      vocabulary_size: As in `PublicCounts.of`.

    Raises:
      PublicCountsError: A line is malformed; the counts are empty, negative, doubled, or of n-grams of
        another length; or the file is a language model or JSON, which would be read as a text.
      InputError, FileNotFoundError, ReleaseError: The path cannot be read.
    """
    if path.endswith(LEDGER_NAME) or (os.path.isdir(path) if is_local(path) else has_ledger(path)):
        return _from_release(path, length, vocabulary_size)
    if is_local(path) and not os.path.isfile(path):
        raise FileNotFoundError(f"public must name an existing file or directory, got {path}.")
    blocks = _blocks(path)
    first = next(blocks)
    blocks = itertools.chain([first], blocks)
    beginning = next(filter(None, first), "")
    if "\t" in beginning:
        return _from_counts(blocks, length, vocabulary_size)
    if beginning.startswith(('{"', "[{", "\\data\\")):
        raise PublicCountsError(
            f"public must be a text, one document a line, got JSON or a language model: {path}."
        )
    if tokenizer == "tokens":
        raise PublicCountsError(
            "public must be a file of counts or a release with tokenizer='tokens', got the text "
            f"{path}, whose lines do not say where such tokens end."
        )
    texts = (pa.array(lines, pa.string()) for lines in blocks)
    return count_text(texts, length=length, tokenizer=tokenizer, vocabulary_size=vocabulary_size)


def _blocks(path: str) -> Iterator[list[str]]:
    """Yields the lines of successive blocks of a file, at least one block."""
    rest = ""
    with guarded(path), TextFile(path) as text:
        while data := text.read(_BLOCK_SIZE):
            if size_of(data)[1]:
                raise InputError(f"{path} is not UTF-8; convert it.")
            whole, _, rest = (rest + data).rpartition("\n")
            yield [line.removesuffix("\r") for line in whole.split("\n")]
        yield [rest]


def _from_release(path: str, length: int, vocabulary_size: int | None) -> PublicCounts:
    rows = read_release(path).table()
    if "length" not in rows.schema.names:
        raise PublicCountsError(
            f"public must be a release of `beam-dpne ngrams`, got {path}, which is of another program."
        )
    chosen = rows.filter(pa.array(rows["length"].to_numpy() == length))
    if len(chosen) == 0:
        raise PublicCountsError(
            f"public must have n-grams of length={length}, got the release {path}, which has none."
        )
    counts = chosen["users" if "users" in rows.schema.names else "score"].to_numpy()
    whole = np.rint(np.maximum(counts, 0.0)).astype(np.int64)
    grams = [split_ngram(text) for text in chosen["ngram"].to_pylist()]
    return PublicCounts.of(grams, whole.tolist(), vocabulary_size=vocabulary_size)


def _from_counts(
    blocks: Iterable[list[str]], length: int, vocabulary_size: int | None
) -> PublicCounts:
    lines = enumerate(itertools.chain.from_iterable(blocks), start=1)
    pairs = [_parsed(line, number, length) for number, line in lines if line]
    return PublicCounts.of(*zip(*pairs, strict=True), vocabulary_size=vocabulary_size)


def _parsed(line: str, number: int, length: int) -> tuple[tuple[str, ...], int]:
    """Returns one line's n-gram and count; errors have the line's number and not its text."""
    text, _, digits = line.partition("\t")
    if not re.fullmatch("[0-9]+", digits):
        raise PublicCountsError(
            "public must have lines `ngram<TAB>count`, with a whole number >= 0 as count; line "
            f"{number} is none. (A text must not have a tab in its first line.)"
        )
    try:
        gram = split_ngram(text)
    except ValueError as error:
        raise PublicCountsError(f"public has a malformed line {number}: {error}") from None
    if len(gram) != length:
        raise PublicCountsError(
            f"public must have n-grams of length={length}; line {number} has {len(gram)} words."
        )
    return gram, int(digits)
