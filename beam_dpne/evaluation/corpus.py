"""A tokenized private input, as arrays in memory."""

import collections
import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.documents import tokenizers
from beam_dpne.elements import progress
from beam_dpne.errors import InputError
from beam_dpne.reading.files import InputFile
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.transform import plan_reads, read_ahead, read_item

# The code at the position after the last word of a document.
BORDER = -1
_MOST_POSITIONS = 2**31 - 1
_NO_DOCUMENTS = "corpus must hold at least one token, got none; see the input and the tokenizer."


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Corpus:
    """The users' words, as secret as the data.

    Attributes:
      words: (w,) large_string, the distinct words, sorted by their bytes; a word's code is its index.
      users: (u,) string or 16 bytes, the names of the users who have any word.
      offsets: (u + 1,) int64; the positions of user i are offsets[i]:offsets[i + 1].
      codes: (n,) int32, the code of the word at each position, and `BORDER` after the last word of
        each document; the documents of a user are adjacent.
      tokenizer: Name of the tokenizer.
      rejected_reasons: Numbers of records of the input that could not be used, by reason.
    """

    words: pa.Array
    users: pa.Array
    offsets: np.ndarray
    codes: np.ndarray
    tokenizer: str
    rejected_reasons: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def rejected(self) -> int:
        """Number of records of the input that could not be used."""
        return sum(self.rejected_reasons.values())

    @functools.cached_property
    def user_of_position(self) -> np.ndarray:
        """The index of the user of each position: (n,) int32."""
        return np.repeat(np.arange(len(self.users), dtype=np.int32), np.diff(self.offsets))

    @functools.cached_property
    def document_lengths(self) -> np.ndarray:
        """The number of words of each document: (d,) int64."""
        return np.diff(np.flatnonzero(self.codes < 0), prepend=-1) - 1

    @functools.cached_property
    def document_users(self) -> np.ndarray:
        """The index of the user of each document: (d,) int32."""
        return self.user_of_position[self.codes < 0]

    @property
    def tokens(self) -> int:
        """Number of words of all documents together."""
        return int(self.document_lengths.sum())

    def occurrences(self, length: int) -> np.ndarray:
        """Returns the number of n-grams of a length in each user's documents: (u,) int64."""
        by_document = np.maximum(0, self.document_lengths - length + 1)
        counts = np.zeros(len(self.users), dtype=np.int64)
        np.add.at(counts, self.document_users, by_document)
        return counts


def read_corpus(
    files: Sequence[InputFile],
    options: ReadOptions,
    tokenizer: str | tokenizers.Tokenizer,
    *,
    strict: bool = False,
) -> Corpus:
    """Reads and tokenizes all documents into memory.

    Args:
      files: The input, as `match_inputs` returned it.
      options: How the files are read.
      tokenizer: Name of the tokenizer, or the function.
      strict: Whether the first record that cannot be used raises an error.

    Raises:
      InputError: A file cannot be read, no document has a word, there are too many words, or, with
        strict, a record cannot be used.
    """
    function = tokenizers.resolve_tokenizer(tokenizer)
    gathered = _Gathered()
    for file in files:
        for item in plan_reads(file, options):
            for batch in read_ahead(read_item(item, options)):
                progress.enter("read", None)
                if strict:
                    batch.require_none_rejected(file.path)
                gathered.rejected_reasons.update(reason for _, reason in batch.rejects)
                gathered.add(batch.documents, function)
    return gathered.corpus(tokenizers.tokenizer_name(tokenizer))


def corpus_of(documents: Sequence[tuple[str, Sequence[str]]]) -> Corpus:
    """Returns the corpus of (user, tokens) pairs.

    >>> corpus_of([("ann", ["to", "be"]), ("bob", ["be"])]).codes.tolist()
    [1, 0, -1, 0, -1]
    """
    users, texts = zip(*documents, strict=True) if documents else ((), ())
    columns = [pa.array(users, pa.string()), pa.array(texts, pa.list_(pa.string()))]
    gathered = _Gathered()
    gathered.add(pa.RecordBatch.from_arrays(columns, ["user", "text"]), tokenizers.tokens)
    return gathered.corpus("tokens")


class _Gathered:
    """The documents read so far, with users and words as codes of each batch's dictionary."""

    def __init__(self) -> None:
        self.rejected_reasons: collections.Counter[str] = collections.Counter()
        self._users = _Interned()
        self._words = _Interned()
        self._lengths: list[np.ndarray] = []

    def add(self, documents: pa.RecordBatch, tokenizer: tokenizers.Tokenizer) -> None:
        """Adds a batch; documents without words are left out."""
        tokens = tokenizers.tokenize(tokenizer, documents.column("text"))
        lengths = np.diff(tokens.offsets.to_numpy()).astype(np.int64)
        filled = lengths > 0
        self._users.add(documents.column("user").filter(pa.array(filled)))
        self._words.add(tokens.flatten())
        self._lengths.append(lengths[filled])

    def corpus(self, tokenizer: str) -> Corpus:
        """Returns the corpus of all documents, in which those of each user are adjacent."""
        lengths = np.concatenate(self._lengths) if self._lengths else np.zeros(0, np.int64)
        if lengths.size == 0:
            raise InputError(_NO_DOCUMENTS)
        if int(lengths.sum()) + lengths.size > _MOST_POSITIONS:
            raise InputError(
                "input must have fewer than 2^31 tokens to be evaluated, got more. Give a part of "
                "the files, with all documents of the users in it."
            )
        users, user_codes = self._users.joined()
        words, codes = self._words.joined()
        # (w,) codes in the order of the words' bytes, and (w,) int32 the rank of each code in it.
        by_bytes = pc.call_function("sort_indices", [words.cast(pa.large_string())])
        ranks = np.empty(len(words), dtype=np.int32)
        ranks[by_bytes.to_numpy()] = np.arange(len(words), dtype=np.int32)
        # (d,) documents in the order of their users; those of one user stay in the order of reading.
        order = np.argsort(user_codes, kind="stable")
        # (u,) number of positions of each user: all words, and one border for each document.
        sizes = np.bincount(user_codes, weights=lengths + 1, minlength=len(users)).astype(np.int64)
        return Corpus(
            words=words.cast(pa.large_string()).take(by_bytes),
            users=users,
            offsets=np.append(0, np.cumsum(sizes)),
            codes=_laid_out(ranks[codes], lengths, order),
            tokenizer=tokenizer,
            rejected_reasons=dict(self.rejected_reasons),
        )


class _Interned:
    """Values of many arrays, as codes of one dictionary."""

    def __init__(self) -> None:
        self._codes: list[np.ndarray] = []
        self._values: list[pa.Array] = []

    def add(self, array: pa.Array) -> None:
        encoded = array.dictionary_encode()
        self._codes.append(encoded.indices.to_numpy())
        self._values.append(encoded.dictionary)

    def joined(self) -> tuple[pa.Array, np.ndarray]:
        """Returns the distinct values in order of appearance, and the codes of all values."""
        # A dictionary of the dictionaries: new_codes translates the codes of one array after another.
        encoded = pa.concat_arrays(self._values).dictionary_encode()
        new_codes = encoded.indices.to_numpy()
        first = np.cumsum([0, *map(len, self._values)])
        codes = [new_codes[base:][old] for base, old in zip(first[:-1], self._codes, strict=True)]
        return encoded.dictionary, np.concatenate(codes)


def _laid_out(codes: np.ndarray, lengths: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Returns the codes of the documents in another order, with a border after each: (n,) int32.

    Args:
      codes: The codes of the words of all documents.
      lengths: (d,) int64, number of words of each document.
      order: (d,) int64, the documents in their new order.
    """
    # (d,) by the new order: begin of each document in `codes`, its size, and its end in the result.
    starts = (np.cumsum(lengths) - lengths)[order]
    sizes = lengths[order]
    ends = np.cumsum(sizes + 1)
    result = np.full(int(ends[-1]), BORDER, dtype=np.int32)
    # (n,) whether a position has a word instead of a border.
    has_word = np.ones(result.size, dtype=bool)
    has_word[ends - 1] = False
    # (d,) distance of each document's old begin from its begin among the words in the new order.
    shifts = starts - (np.cumsum(sizes) - sizes)
    result[has_word] = codes[np.repeat(shifts, sizes) + np.arange(codes.size)]
    return result
