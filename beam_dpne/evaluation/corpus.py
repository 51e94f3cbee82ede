"""A tokenized private input, as arrays in memory and as Arrow files."""

import collections
import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.documents import tokenizers
from beam_dpne.elements import progress
from beam_dpne.elements.arrays import hash_words
from beam_dpne.errors import InputError
from beam_dpne.reading import InputFile, ReadOptions
from beam_dpne.reading.transform import plan_reads, read_ahead, read_item, unit_of

BORDER = -1
_MOST_POSITIONS = 2**31 - 1
_FACTS = "corpus.json"
_NO_DOCUMENTS = "corpus must hold at least one token, got none; see the input and the tokenizer."


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Corpus:
    """The users' words, as secret as the data.

    Attributes:
      words: (w,) large_string, the distinct words, sorted by their bytes; a word's code is its index.
      users: (u,) string or 16 bytes, the names of the users who have any word.
      offsets: (u + 1,) int64; the positions of user i are offsets[i]:offsets[i + 1].
      codes: (n,) int32, the code of the word at each position, −1 after the last word of a document.
      tokenizer: its name.
      rejected_reasons: numbers of records of the input that could not be used, by reason.
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

    def user_hashes(self, sub_key: bytes, places: np.ndarray) -> np.ndarray:
        """Returns the first 64 bits of a keyed hash of the names of some users: uint64."""
        names = self.users.take(pa.array(places)).cast(pa.large_binary())
        return hash_words(sub_key, names)[:, 0]


def read_corpus(
    files: Sequence[InputFile],
    options: ReadOptions,
    tokenizer: str | tokenizers.Tokenizer,
    *,
    strict: bool = False,
) -> Corpus:
    """Reads and tokenizes all documents into memory.

    Args:
      files: the input, as `match_inputs` returned it.
      options: how the files are read.
      tokenizer: its name, or a function.
      strict: fail at the first record that cannot be used.

    Raises:
      InputError: a file cannot be read, or no document has a word.
    """
    function = tokenizers.resolve_tokenizer(tokenizer)
    gathered = _Gathered()
    for file in files:
        for item in plan_reads(file, options):
            for documents, rejects, _ in read_ahead(read_item(item, options)):
                progress.enter("read", None)
                if rejects and strict:
                    position, reason = rejects[0]
                    raise InputError(
                        f"{file.path} must hold only usable records (--strict), got one at "
                        f"{unit_of(item.kind)} {position}: {reason}."
                    )
                gathered.rejected_reasons.update(reason for _, reason in rejects)
                gathered.add(documents, function)
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


def sample_users(corpus: Corpus, sub_key: bytes, one_in: int) -> Corpus:
    """Returns the corpus of a keyed sample of the users: each is in it with probability 1/one_in."""
    everybody = np.arange(len(corpus.users))
    chosen = np.flatnonzero(corpus.user_hashes(sub_key, everybody) % np.uint64(one_in) == 0)
    inside = np.zeros(len(corpus.users), dtype=bool)
    inside[chosen] = True
    codes = corpus.codes[inside[corpus.user_of_position]]
    used = np.zeros(len(corpus.words), dtype=bool)
    used[codes[codes >= 0]] = True
    new_codes = np.append(np.cumsum(used, dtype=np.int32) - np.int32(1), np.int32(BORDER))
    return dataclasses.replace(
        corpus,
        words=corpus.words.filter(pa.array(used)),
        users=corpus.users.take(pa.array(chosen)),
        offsets=np.append(0, np.cumsum(np.diff(corpus.offsets)[chosen])),
        codes=new_codes[codes],
    )


def documents_of(corpus: Corpus, *, rows: int = 20_000) -> Iterator[pa.RecordBatch]:
    """Yields the documents as batches with columns user and text (lists of words), in order."""
    ends = np.flatnonzero(corpus.codes < 0)
    starts = np.append(0, ends[:-1] + 1)
    for first in range(0, ends.size, rows):
        begin, end = starts[first : first + rows], ends[first : first + rows]
        codes = corpus.codes[begin[0] : end[-1] + 1]
        words = corpus.words.take(pa.array(codes[codes >= 0])).cast(pa.string())
        offsets = np.append(0, np.cumsum(end - begin)).astype(np.int32)
        texts = pa.ListArray.from_arrays(pa.array(offsets), words)
        users = corpus.users.take(pa.array(corpus.document_users[first : first + rows]))
        yield pa.RecordBatch.from_arrays([users, texts], ["user", "text"])


def save_corpus(corpus: Corpus, folder: str | os.PathLike[str]) -> None:
    """Writes a corpus as Arrow files into an empty local folder; they are as secret as the data.

    `corpus.json` is written last: without it the folder holds no corpus.
    """
    place = pathlib.Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    (place / _FACTS).unlink(missing_ok=True)
    _write(place / "words.arrow", pa.table({"word": corpus.words}))
    ends = pa.array(corpus.offsets[1:])
    _write(place / "users.arrow", pa.table({"user": corpus.users, "end": ends}))
    _write(place / "positions.arrow", pa.table({"code": pa.array(corpus.codes)}))
    facts = {
        "tokenizer": corpus.tokenizer,
        "rejected_reasons": dict(corpus.rejected_reasons),
    }
    written = place / f".{_FACTS}.tmp"
    written.write_text(json.dumps(facts) + "\n", encoding="utf-8")
    written.replace(place / _FACTS)


def load_corpus(folder: str | os.PathLike[str]) -> Corpus:
    """Reads a corpus that `save_corpus` wrote.

    Raises:
      FileNotFoundError: if there is no whole corpus in the folder.
    """
    place = pathlib.Path(folder)
    if not (place / _FACTS).is_file():
        raise FileNotFoundError(f"folder must hold a saved corpus, got {place}: no {_FACTS}.")
    facts = json.loads((place / _FACTS).read_text(encoding="utf-8"))
    users = _read(place / "users.arrow")
    return Corpus(
        words=_column(_read(place / "words.arrow"), "word"),
        users=_column(users, "user"),
        offsets=np.append(0, _column(users, "end").to_numpy()),
        codes=_column(_read(place / "positions.arrow"), "code").to_numpy(),
        tokenizer=facts["tokenizer"],
        rejected_reasons=facts.get("rejected_reasons", {}),
    )


class _Gathered:
    """The documents read so far: users and words as codes of each batch's dictionary."""

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
        """Brings each user's documents together."""
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
        by_bytes = pc.call_function("sort_indices", [words.cast(pa.large_string())])
        ranks = np.empty(len(words), dtype=np.int32)
        ranks[by_bytes.to_numpy()] = np.arange(len(words), dtype=np.int32)
        order = np.argsort(user_codes, kind="stable")
        # (u,) positions of each user: all words, and one border for each document.
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
        encoded = pa.concat_arrays(self._values).dictionary_encode()
        new_codes = encoded.indices.to_numpy()
        first = np.cumsum([0, *map(len, self._values)])
        codes = [new_codes[base:][old] for base, old in zip(first[:-1], self._codes, strict=True)]
        return encoded.dictionary, np.concatenate(codes)


def _laid_out(codes: np.ndarray, lengths: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Returns the documents in another order, with a border after each."""
    starts = (np.cumsum(lengths) - lengths)[order]
    sizes = lengths[order]
    ends = np.cumsum(sizes + 1)
    laid = np.full(int(ends[-1]), BORDER, dtype=np.int32)
    inside = np.ones(laid.size, dtype=bool)
    inside[ends - 1] = False
    shifts = starts - (np.cumsum(sizes) - sizes)
    laid[inside] = codes[np.repeat(shifts, sizes) + np.arange(codes.size)]
    return laid


def _write(path: pathlib.Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _read(path: pathlib.Path) -> pa.Table:
    """Maps a file into memory."""
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
