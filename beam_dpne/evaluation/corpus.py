"""A tokenized private input as arrays in memory, and the users of each of its n-grams.

A k-gram is the pair (id of its prefix at length k − 1, code of its last word), packed into one integer;
equal pairs are found by sorting, so that no strings are built. Ids follow the order of the words' codes
and do not depend on the order of the input.
"""

import dataclasses
import functools
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from beam_dpne.documents import tokenizers
from beam_dpne.documents.blocks import EncodedTokens, encode_tokens, with_group
from beam_dpne.elements import arrays, progress
from beam_dpne.elements.batches import UserBatch
from beam_dpne.elements.dictionaries import merge_words
from beam_dpne.elements.rows import split_ngram
from beam_dpne.errors import InputError
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.elements import GramSet, word_ids
from beam_dpne.reading.files import InputFile
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.reader import Reader, work_items
from beam_dpne.reading.rejects import NOT_DECODED, Reject

# The code at the position after the last word of a document.
BORDER = -1
_MOST_POSITIONS = 2**31 - 1


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Corpus:
    """The users' words, as secret as the data.

    Attributes:
      words: (w,) string, the distinct words, sorted by their bytes; a word's code is its index.
      users: (u,) string or 16 bytes, the names of the users who have any word.
      offsets: (u + 1,) int64; the positions of user i are offsets[i]:offsets[i + 1].
      codes: (n,) int32, the code of the word at each position, and `BORDER` after the last word of
        each piece, which is a document or what stands in it between two borders of the tokenizer; the
        pieces of a user are adjacent.
      tokenizer: Name of the tokenizer.
      documents: (v,) int64, the number of documents of each user who was read, also of those without
        words, in the order of reading.
      rejected_reasons: Numbers of records of the input that could not be used, by reason.
    """

    words: pa.Array
    users: pa.Array
    offsets: np.ndarray
    codes: np.ndarray
    tokenizer: str
    documents: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    rejected_reasons: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def rejected(self) -> int:
        """Number of records of the input that could not be used."""
        return sum(self.rejected_reasons.values())

    @functools.cached_property
    def user_of_position(self) -> np.ndarray:
        """The index of the user of each position: (n,) int32."""
        return arrays.rows_of_entries(self.offsets).astype(np.int32)

    @functools.cached_property
    def piece_lengths(self) -> np.ndarray:
        """The number of words of each piece: (p,) int64."""
        return np.diff(np.flatnonzero(self.codes < 0), prepend=-1) - 1

    @property
    def tokens(self) -> int:
        """Number of words of all documents together."""
        return int(self.piece_lengths.sum())

    def count_by_user(self, chosen: np.ndarray) -> np.ndarray:
        """Returns the number of each user's positions among those that (n,) bool choose: (u,) int64."""
        return np.bincount(self.user_of_position[chosen], minlength=len(self.users))

    def of_users(self, chosen: np.ndarray) -> "Corpus":
        """Returns the corpus of some users, given by their numbers."""
        sizes = np.diff(self.offsets)[chosen]
        return dataclasses.replace(
            self,
            users=self.users.take(pa.array(chosen)),
            offsets=arrays.offsets_of(sizes),
            codes=self.codes[arrays.ranges(self.offsets[chosen], sizes)],
        )

    def batch(self, run_key: RunKey) -> UserBatch:
        """Returns the users as the mechanism reads them; user i has the 128-bit hash (i, i)."""
        used, ids = arrays.used_words(len(self.words), self.codes)
        words = self.words.take(pa.array(used))
        numbers = np.arange(len(self.users), dtype=np.uint64)
        return UserBatch(
            length=0,
            size=len(words),
            users=np.stack((numbers, numbers), axis=1),
            offsets=self.offsets,
            ids=ids,
            words=words,
            word_hashes=arrays.hash_words(run_key.sub_key("word"), words),
        )


def read_corpus(
    files: Sequence[InputFile],
    options: ReadOptions,
    tokenizer: str | tokenizers.Tokenizer,
    *,
    listed: list[Reject] | None = None,
) -> Corpus:
    """Reads and tokenizes all documents into memory.

    Args:
      files: The input, as `match_inputs` returned it.
      options: How the files are read.
      tokenizer: Name of the tokenizer, or the function.
      listed: List to which the records are added that cannot be used, or None.

    Raises:
      InputError: A file cannot be read, no document has a word, or there are too many words.
    """
    reader = Reader(work_items(files, options), options)
    try:
        corpus = _gathered(reader.batches(), tokenizer, reader.reasons)
    finally:
        if listed is not None:
            listed += reader.take_rejects()
    return dataclasses.replace(corpus, rejected_reasons=dict(reader.reasons))


def corpus_of(documents: Sequence[tuple[str, Sequence[str]]]) -> Corpus:
    """Returns the corpus of (user, tokens) pairs.

    >>> corpus_of([("ann", ["to", "be"]), ("bob", ["be"])]).codes.tolist()
    [1, 0, -1, 0, -1]
    """
    users, texts = zip(*documents, strict=True)
    columns = [pa.array(users, pa.string()), pa.array(texts, pa.list_(pa.string()))]
    return _gathered([pa.RecordBatch.from_arrays(columns, ["user", "text"])], "tokens")


def _gathered(
    batches: Iterable[pa.RecordBatch],
    tokenizer: str | tokenizers.Tokenizer,
    rejected: Collection[str] = (),
) -> Corpus:
    """Returns the corpus of documents; those without words are left out."""
    function = tokenizers.resolve_tokenizer(tokenizer)
    # The words and users of each batch as codes of its own dictionary, and numbers of words.
    encoded: list[EncodedTokens] = []
    users = []
    lengths = [np.zeros(0, np.int64)]
    authors: list[pa.DictionaryArray] = []
    for batch in batches:
        authors.append(batch.column("user").dictionary_encode())
        tokens = tokenizers.tokenize(function, batch.column("text"))
        if "group" in batch.schema.names:
            tokens = with_group(batch.column("group"), tokens)
        names, tokens = tokenizers.cut_at_borders(batch.column("user"), tokens)
        sizes = np.diff(tokens.offsets.to_numpy()).astype(np.int64)
        encoded.append(encode_tokens(tokens))
        users.append(names.filter(pa.array(sizes > 0)).dictionary_encode())
        lengths.append(sizes[sizes > 0])
    sizes = np.concatenate(lengths)
    if not (rejected or any(len(each) for each in authors)):
        raise InputError(
            "`input` must have records, got none: its files have no more than a header, or `where` "
            "holds for no record. A run of them releases nothing, and spends its budget all the same."
        )
    if not sizes.size:
        why = ""
        if rejected:
            why = f"; records were rejected, because of: {', '.join(sorted(rejected))}"
        remedy = ""
        if NOT_DECODED in rejected:
            remedy = " Name the encoding of the files, e.g. set `encoding=cp1252`."
        raise InputError(
            f"`input` must have at least one word, got none: see its fields and the tokenizer{why}."
            f"{remedy}"
        )
    if int(sizes.sum()) + sizes.size > _MOST_POSITIONS:
        raise InputError(
            "`input` must have fewer than 2^31 tokens to be evaluated, got more. Give a part of "
            "the files, with all documents of the users in it."
        )
    names, user_of_piece = _joined(users)
    merged = merge_words(each.words for each in encoded)
    distinct = merged.words
    codes = np.concatenate(merged.codes([each.codes for each in encoded]))
    # (w,) the codes in the order of the words' bytes, and the rank of each code in it.
    by_bytes = arrays.byte_order(distinct)
    ranks = arrays.byte_ranks(distinct).astype(np.int32)
    # (n,) the positions of all pieces, in the order of reading and in that of users.
    positions = np.insert(ranks[codes], np.cumsum(sizes), BORDER)
    user = np.repeat(user_of_piece, sizes + 1)
    return Corpus(
        words=distinct.take(pa.array(by_bytes)),
        users=names,
        offsets=np.append(0, np.cumsum(np.bincount(user, minlength=len(names)))),
        codes=positions[np.argsort(user, kind="stable")],
        tokenizer=tokenizers.tokenizer_name(tokenizer),
        documents=np.bincount(_joined(authors)[1]),
    )


def _joined(encoded: Sequence[pa.DictionaryArray]) -> tuple[pa.Array, np.ndarray]:
    """Returns the distinct values of all arrays in order of appearance, and the codes of all values."""
    whole = pa.chunked_array(encoded).unify_dictionaries().combine_chunks()
    return whole.dictionary, whole.indices.to_numpy()


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class LengthIndex:
    """The k-grams of a corpus for one k.

    A key is the id of the n-gram's prefix among those of length k − 1 (0 at k = 1), times the number of
    distinct words, plus the code of its last word.

    Attributes:
      length: k.
      keys: (m,) int64, ascending, of the distinct n-grams; the index in it is the n-gram's id.
      users: (m,) int32, number of users who have each n-gram.
      ids: (n,) int32, id of the n-gram that begins at each position of the corpus, −1 where none does.
    """

    length: int
    keys: np.ndarray
    users: np.ndarray
    ids: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class GramIndex:
    """The n-grams of a corpus of each length 1, …, T.

    Attributes:
      corpus: The corpus that was counted.
      lengths: The k-grams of each length k.
    """

    corpus: Corpus
    lengths: tuple[LengthIndex, ...]

    def find(self, grams: np.ndarray) -> np.ndarray:
        """Returns the ids of n-grams of one length, −1 for those that nobody has: (r,) int64.

        Args:
          grams: (r, k) integers, the codes of each n-gram's words, −1 for a word that nobody has.
        """
        ids = np.zeros(len(grams), dtype=np.int64)
        for level, word in zip(self.lengths, grams.T, strict=False):
            keys = np.where((ids >= 0) & (word >= 0), ids * len(self.corpus.words) + word, -1)
            ids = arrays.places_among(keys, level.keys)
        return ids


def index_corpus(corpus: Corpus, max_length: int) -> GramIndex:
    """Counts the n-grams of each length up to T.

    Each length costs one sort of all positions. Ten million words of titles with T = 9 take 15 s and
    1.5 GB.
    """
    lengths: list[LengthIndex] = []
    ids = np.zeros(corpus.codes.size, dtype=np.int32)
    for length in range(1, max_length + 1):
        progress.enter("counting", length)
        lengths.append(_extended(corpus, length, ids))
        ids = lengths[-1].ids
    return GramIndex(corpus=corpus, lengths=tuple(lengths))


def _extended(corpus: Corpus, length: int, prefixes: np.ndarray) -> LengthIndex:
    """Extends the n-gram of k − 1 words that begins at each position with the word after it."""
    begins = np.flatnonzero(prefixes[: corpus.codes.size - length + 1] >= 0)
    word = corpus.codes[begins + length - 1]
    begins = begins[word >= 0]
    word = word[word >= 0]
    keys = prefixes[begins].astype(np.int64) * len(corpus.words) + word
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    begins = begins[order]
    # (p,) whether a position is the first of its n-gram, and of its user; users ascend within both.
    first = np.diff(keys, prepend=-1) != 0
    of_user = np.diff(corpus.user_of_position[begins], prepend=-1) != 0
    starts = np.flatnonzero(first)
    ids = np.full(corpus.codes.size, -1, dtype=np.int32)
    ids[begins] = np.cumsum(first, dtype=np.int32) - 1
    users = np.add.reduceat(first | of_user, starts, dtype=np.int32) if starts.size else starts
    return LengthIndex(length=length, keys=keys[starts], users=users, ids=ids)


def released_codes(corpus: Corpus, table: pa.Table) -> dict[int, np.ndarray]:
    """Returns the rows of a release as codes of the corpus's words: for each length (r, k) int64.

    Args:
      corpus: The corpus; a word that it does not have becomes −1.
      table: A table of `read_release`, with columns length and ngram, or item (one word each). With a
        column group the words of the corpus have groups in front of them.
    """
    code = {word: number for number, word in enumerate(corpus.words.to_pylist())}
    if "item" in table.column_names:
        rows = [(item,) for item in table.column("item").to_pylist()]
    else:
        rows = [split_ngram(text) for text in table.column("ngram").to_pylist()]
    if "group" in table.column_names:
        groups = table.column("group").combine_chunks()
        rows = with_group(groups, pa.array(rows, pa.list_(pa.string()))).to_pylist()
    by_length: dict[int, list[list[int]]] = {}
    for row in rows:
        by_length.setdefault(len(row), []).append([code.get(word, -1) for word in row])
    return {length: np.array(codes, np.int64) for length, codes in by_length.items()}


def codes_of_sets(corpus: Corpus, released: Sequence[GramSet]) -> list[np.ndarray]:
    """Returns S_1, …, S_T as codes of the corpus's words: (r, k) int64 each, −1 for other words."""
    if not released:
        return []
    vocabulary = arrays.places_in(released[0].words, corpus.words).astype(np.int64)
    columns = (word_ids(released, k, np.arange(len(grams))) for k, grams in enumerate(released))
    return [np.stack([vocabulary[ids] for ids in each], axis=1) for each in columns]
