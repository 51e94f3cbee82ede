"""GroupByUser: documents are tokenized, shuffled once by user, and laid out as positions."""

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any, cast

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows

from beam_dpne.documents import tokenizers
from beam_dpne.documents.batch import require_one_release
from beam_dpne.documents.columns import TEXT, USER
from beam_dpne.elements import coders, progress
from beam_dpne.elements.arrays import (
    bounded_parts,
    group_places,
    hash_words,
    merge_words,
    offsets_of,
    ranges,
)
from beam_dpne.elements.batches import NO_GRAM, DocumentBlock, UserBatch, apply
from beam_dpne.elements.display_data import DisplayedTransform
from beam_dpne.elements.threads import TaskQueue
from beam_dpne.mechanism import randomness
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.reading.batches import NAMED_USER

# A bundle cuts its tokens by partition when it has gathered so many.
_GATHERED_TOKENS = 2_000_000
# A partition limits its large users when it has joined so many tokens.
_MAX_BLOCK_TOKENS = 4_000_000
# A hash of 64 bits, shifted by this number, keeps its first 16 bits.
_SPARE_BITS = 64 - 16


@dataclasses.dataclass(eq=False, kw_only=True)
class GroupByUser(DisplayedTransform):
    """Tokenizes documents and groups them by user, in the only shuffle of the corpus.

    A user with more than `max_tokens_per_user` tokens keeps a random subset of the documents. The
    subset is drawn by a keyed hash of their tokens, so that it does not depend on their order.

    Input: `pyarrow.RecordBatch` with columns `user` and `text`, as `BatchDocuments` gives them. `user`
    is a string, or 16 bytes that identify the user.

    Output: `UserBatch` of length 0, one or more for each partition that is not empty.

    Privacy: not private. Users are distinguished by 128 bits of a keyed hash.

    Cost: one shuffle of the tokens, which are 32-bit integers, with each block's distinct words. A
    worker holds one partition.

    Attributes:
      tokenizer: Name, or function over Arrow arrays (see `tokenizers`).
      partitions: Number of hash partitions of users, at least 1.
      max_tokens_per_user: Largest number of a user's tokens, at least 1.
      run_key: Secret key of the run.
      workers: Number of threads in which a worker tokenizes, at least 1.

    Raises:
      ValueError: A parameter is out of range.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import BatchDocuments, RunKey
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     users = (pipeline | beam.Create([("ann", "to be"), ("ann", "not to be")])
      ...              | BatchDocuments() | GroupByUser(run_key=RunKey.generate()))
      ...     _ = users | beam.Map(lambda batch: print(len(batch.users), np.sort(batch.ids)))
      1 [-1 -1  0  0  1  1  2]

    References: DPNE Algorithm 1, the input: "each user i has some text w_i".
    """

    run_key: RunKey = dataclasses.field(repr=False)
    tokenizer: str | tokenizers.Tokenizer = "words"
    partitions: int = 8
    max_tokens_per_user: int = 1_000_000
    workers: int = 1

    def __post_init__(self):
        super().__init__()
        for name in ("partitions", "max_tokens_per_user", "workers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {name}={getattr(self, name)}.")
        tokenizers.resolve_tokenizer(self.tokenizer)

    def shown_parameters(self) -> dict[str, Any]:
        """Returns the fields with the tokenizer's name."""
        name = tokenizers.tokenizer_name(self.tokenizer)
        return {**super().shown_parameters(), "tokenizer": name}

    def expand(self, documents: PCollection[pa.RecordBatch]) -> PCollection[UserBatch]:
        """Tokenizes documents, cuts blocks by user, groups them, and lays out positions."""
        return cast(
            "PCollection[UserBatch]",
            self.cut_by_user(documents)
            | "ByUser" >> beam.GroupByKey()
            | "LayOut"
            >> beam.FlatMap(
                lay_out,
                max_tokens=self.max_tokens_per_user,
                run_key=self.run_key,
            ).with_output_types(UserBatch),
        )

    def cut_by_user(
        self, documents: PCollection[pa.RecordBatch]
    ) -> PCollection[tuple[int, DocumentBlock]]:
        """Tokenizes documents, and cuts them by their users' partitions; nothing is shuffled yet."""
        require_one_release(documents)
        cut = beam.ParDo(_TokenizeAndPartition(self))
        return apply(documents, "Tokenize", cut, tuple[int, DocumentBlock])


class _TokenizeAndPartition(beam.DoFn):
    """Turns a bundle's record batches into blocks of documents for each partition.

    Batches are gathered before they are cut, because each block carries a dictionary of its words.
    """

    def __init__(self, settings: GroupByUser):
        self._tokenizer = settings.tokenizer
        self._partitions = settings.partitions
        self._max_tokens = settings.max_tokens_per_user
        self._run_key = settings.run_key
        self._workers = settings.workers

    def setup(self):
        self._tokenize = tokenizers.resolve_tokenizer(self._tokenizer)
        if not tokenizers.may_run_in_threads(self._tokenize):
            self._workers = 1
        self._user_key = self._run_key.sub_key("user")
        self._document_key = self._run_key.sub_key("document")
        self._tasks = TaskQueue[DocumentBlock](self._workers)

    def start_bundle(self):
        # What a bundle that failed has left is not of this one.
        self._tasks.close()
        self._tasks = TaskQueue[DocumentBlock](self._workers)
        self._waiting: list[DocumentBlock] = []
        self._tokens = 0

    def process(self, batch: pa.RecordBatch) -> Iterator[tuple[int, DocumentBlock]]:
        progress.enter("read", None)
        for block in self._tasks.put(self._tokenized, batch):
            yield from self._gather(block)

    def finish_bundle(self) -> Any:
        for block in self._tasks.drain():
            for piece in self._gather(block):
                yield GlobalWindows.windowed_value(piece)
        self._tasks.close()
        for piece in self._flush():
            yield GlobalWindows.windowed_value(piece)

    def teardown(self):
        self._tasks.close()

    def _tokenized(self, batch: pa.RecordBatch) -> DocumentBlock:
        tokens = tokenizers.tokenize(self._tokenize, batch.column(TEXT))
        users = hash_users(batch.column(USER), self._user_key)
        return encode_documents(users, tokens)

    def _gather(self, block: DocumentBlock) -> Iterator[tuple[int, DocumentBlock]]:
        """Keeps a block until there are enough tokens to cut."""
        self._waiting.append(block)
        self._tokens += block.codes.size
        if self._tokens > _GATHERED_TOKENS:
            yield from self._flush()

    def _flush(self) -> Iterator[tuple[int, DocumentBlock]]:
        waiting, self._waiting, self._tokens = self._waiting, [], 0
        if waiting:
            block = limit_documents(waiting, self._max_tokens, self._document_key, final=False)
            for number, piece in split_by_user(block, self._partitions):
                for part in bounded_blocks(piece):
                    yield number, part


def hash_users(users: pa.Array, sub_key: bytes) -> np.ndarray:
    """Returns the 128-bit keyed hash of each user: (n, 2) uint64.

    Strings are hashed as UTF-8. A 16-byte name is encrypted as one AES block, so that different names
    have different hashes.
    """
    if users.type == NAMED_USER:
        names = np.frombuffer(users.buffers()[1], dtype="<u8").reshape(-1, 2)
        return randomness.encrypt_blocks(sub_key, names[users.offset : users.offset + len(users)])
    encoded = users.dictionary_encode()
    return hash_words(sub_key, encoded.dictionary)[encoded.indices.to_numpy()]


def encode_documents(users: np.ndarray, tokens: pa.ListArray) -> DocumentBlock:
    """Turns tokens into codes, which are indices into the block's distinct words."""
    offsets = tokens.offsets.to_numpy().astype(np.int64)
    encoded = tokens.values.slice(offsets[0], offsets[-1] - offsets[0]).dictionary_encode()
    codes = encoded.indices.to_numpy()
    return DocumentBlock(
        users=users, offsets=offsets - offsets[0], codes=codes, words=encoded.dictionary
    )


def split_by_user(block: DocumentBlock, partitions: int) -> Iterator[tuple[int, DocumentBlock]]:
    """Cuts a block by the users' partitions, and drops documents without tokens."""
    filled = np.flatnonzero(np.diff(block.offsets))
    partition = (block.users[filled, 0] % np.uint64(partitions)).astype(np.int64)
    for number, places in group_places(partition, partitions):
        yield number, _take_documents(block, filled[places])


def bounded_blocks(block: DocumentBlock) -> Iterator[DocumentBlock]:
    """Cuts a block between documents into parts that are small enough for an element."""
    if coders.array_bytes(block) <= coders.MAX_ELEMENT_BYTES:
        yield block
        return
    take = functools.partial(_take_documents, block)
    yield from bounded_parts(np.arange(len(block.users)), take)


def bounded_batches(batch: UserBatch) -> Iterator[UserBatch]:
    """Cuts a batch of positions between users into parts that are small enough for an element."""
    if coders.array_bytes(batch) <= coders.MAX_ELEMENT_BYTES:
        yield batch
        return
    yield from bounded_parts(np.arange(len(batch.users)), functools.partial(_take_users, batch))


def limit_documents(
    blocks: list[DocumentBlock], max_tokens: int, sub_key: bytes, *, final: bool
) -> DocumentBlock:
    """Joins blocks; users above the limit keep their first documents in a keyed random order.

    Documents are ordered by a keyed hash of their tokens. The document that reaches the limit is cut in
    the final call only, because its hash needs all of its tokens. The first documents of several blocks
    are among the first of each block, so that blocks may be limited one by one.

    Args:
      blocks: At least one block.
      max_tokens: Largest number of tokens of a user.
      sub_key: Key of the hash.
      final: Whether no further documents of these users will come.
    """
    block = _join_blocks(blocks)
    lengths = np.diff(block.offsets)
    # Users fall into 2^16 buckets by their hash. If no bucket is above the limit, no user is, and the
    # users need not be sorted.
    bucket = (block.users[:, 0] >> np.uint64(_SPARE_BITS)).astype(np.int64)
    if np.bincount(bucket, weights=lengths).max(initial=0) <= max_tokens:
        return block
    order = _user_order(block.users)
    # In this order user i has the documents starts[i] … stops[i] − 1, with totals[i] tokens. allowed[d]
    # is the number of tokens that document d keeps.
    starts = np.flatnonzero(_changes(block.users[order]))
    totals = np.add.reduceat(lengths[order], starts)
    allowed = lengths.copy()
    stops = np.append(starts[1:], order.size)
    for giant in np.flatnonzero(totals > max_tokens).tolist():
        documents = order[starts[giant] : stops[giant]]
        _limit_giant(block, documents, allowed, max_tokens, sub_key)
    kept = np.flatnonzero(allowed > 0)
    return _take_documents(block, kept, allowed[kept] if final else lengths[kept])


def lay_out_positions(block: DocumentBlock, word_key: bytes) -> UserBatch:
    """Sorts documents by user, with one position for each token and NO_GRAM after each document."""
    lengths = np.diff(block.offsets)
    order = _user_order(block.users)
    sorted_users, lengths = block.users[order], lengths[order]
    starts = np.flatnonzero(_changes(sorted_users))
    # (documents,) the position after each document and the NO_GRAM that ends it.
    ends = np.cumsum(lengths + 1)
    ids = np.full(int(ends[-1]) if ends.size else 0, NO_GRAM, dtype=np.int32)
    inside = np.ones(ids.size, dtype=bool)
    inside[ends - 1] = False
    ids[inside] = block.codes[ranges(block.offsets[:-1][order], lengths)]
    words = block.words
    return UserBatch(
        length=0,
        size=len(words),
        users=sorted_users[starts],
        offsets=np.append((ends - lengths - 1)[starts], ids.size),
        ids=ids,
        words=words,
        word_hashes=hash_words(word_key, words),
    )


def lay_out(
    partition: tuple[int, Iterable[DocumentBlock]],
    *,
    max_tokens: int,
    run_key: RunKey,
) -> Iterator[UserBatch]:
    """Joins a partition's blocks, limits large users after each few, and lays out the positions."""
    _, blocks = partition
    document_key = run_key.sub_key("document")
    progress.enter("users", 1)
    waiting: list[DocumentBlock] = []
    tokens = 0
    for block in blocks:
        waiting.append(block)
        tokens += block.codes.size
        if tokens > max(_MAX_BLOCK_TOKENS, 2 * waiting[0].codes.size):
            waiting = [limit_documents(waiting, max_tokens, document_key, final=False)]
            tokens = waiting[0].codes.size
    block = limit_documents(waiting, max_tokens, document_key, final=True)
    yield from bounded_batches(lay_out_positions(block, run_key.sub_key("word")))


def _limit_giant(
    block: DocumentBlock,
    documents: np.ndarray,
    allowed: np.ndarray,
    max_tokens: int,
    sub_key: bytes,
) -> None:
    """Writes into `allowed` how many tokens of each document of one user are kept."""
    draws = randomness.keyed_hashes(sub_key, (_content(block, d) for d in documents.tolist()))
    by_draw = documents[np.lexsort((draws[:, 1], draws[:, 0]))]
    before = np.cumsum(allowed[by_draw]) - allowed[by_draw]
    allowed[by_draw] = np.clip(max_tokens - before, 0, allowed[by_draw])


def _content(block: DocumentBlock, document: int) -> bytes:
    """Returns a document's tokens as one injective byte string."""
    codes = block.codes[block.offsets[document] : block.offsets[document + 1]]
    tokens = block.words.take(pa.array(codes)).cast(pa.binary()).to_pylist()
    return b"".join(len(token).to_bytes(8, "little") + token for token in tokens)


def _join_blocks(blocks: list[DocumentBlock]) -> DocumentBlock:
    """Concatenates blocks and merges their dictionaries of words."""
    if len(blocks) == 1:
        return blocks[0]
    # new_codes[first[b] + c] is the code in the merged dictionary of code c in block b.
    words, new_codes = merge_words(block.words for block in blocks)
    first = np.cumsum([0, *(len(block.words) for block in blocks)])
    codes = [new_codes[base:][block.codes] for base, block in zip(first[:-1], blocks, strict=True)]
    return DocumentBlock(
        users=np.concatenate([block.users for block in blocks]),
        offsets=offsets_of(np.concatenate([np.diff(block.offsets) for block in blocks])),
        codes=np.concatenate(codes),
        words=words,
    )


def _take_documents(
    block: DocumentBlock, documents: np.ndarray, lengths: np.ndarray | None = None
) -> DocumentBlock:
    """Selects documents, or their first tokens if lengths are given, and the words that they hold."""
    starts = block.offsets[:-1][documents]
    if lengths is None:
        lengths = block.offsets[1:][documents] - starts
    kept, codes = _renumbered(block.codes[ranges(starts, lengths)], len(block.words))
    return DocumentBlock(
        users=block.users[documents],
        offsets=offsets_of(lengths),
        codes=codes,
        words=block.words.take(pa.array(kept)),
    )


def _take_users(batch: UserBatch, users: np.ndarray) -> UserBatch:
    """Selects neighbouring users, and the words that they hold."""
    start, stop = users[0], users[-1] + 1
    first, last = batch.offsets[start], batch.offsets[stop]
    kept, ids = _renumbered(batch.ids[first:last], batch.size)
    if batch.words is None or batch.word_hashes is None:
        raise ValueError(f"Positions must be of length 0, got length {batch.length}.")
    return UserBatch(
        length=0,
        size=kept.size,
        users=batch.users[start:stop],
        offsets=batch.offsets[start : stop + 1] - first,
        ids=ids,
        words=batch.words.take(pa.array(kept)),
        word_hashes=batch.word_hashes[kept],
    )


def _renumbered(codes: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the codes below `size` that occur, sorted, and all codes as indices into these.

    NO_GRAM remains NO_GRAM: as an index, −1 reads the last entry of the table, which is NO_GRAM.
    """
    used = np.zeros(size + 1, dtype=bool)
    used[codes] = True
    kept = np.flatnonzero(used[:size])
    table = np.full(size + 1, NO_GRAM, dtype=np.int32)
    table[kept] = np.arange(kept.size, dtype=np.int32)
    return kept, table[codes]


def _user_order(users: np.ndarray) -> np.ndarray:
    """Returns an order that brings each user's rows together, ascending by the first 64 bits."""
    order = np.argsort(users[:, 0])
    first, last = users[order, 0], users[order, 1]
    collision = (first[1:] == first[:-1]) & (last[1:] != last[:-1])
    return np.lexsort((users[:, 1], users[:, 0])) if collision.any() else order


def _changes(users: np.ndarray) -> np.ndarray:
    """Marks the first row, and the rows that differ from the row before: (n,) bool."""
    fresh = np.ones(len(users), dtype=bool)
    fresh[1:] = (users[1:] != users[:-1]).any(axis=1)
    return fresh
