"""GroupByUser: documents are tokenized, shuffled once by user, and laid out as positions."""

import collections
import concurrent.futures
import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows

from beam_dpne.documents import tokenizers
from beam_dpne.documents.batch import TEXT, USER, require_one_release
from beam_dpne.documents.blocks import (
    bounded_batches,
    bounded_blocks,
    changes,
    limit_documents,
    split_by_user,
    user_order,
)
from beam_dpne.elements import progress
from beam_dpne.elements.arrays import hash_words, ranges
from beam_dpne.elements.batches import NO_GRAM, DocumentBlock, UserBatch, apply
from beam_dpne.mechanism import randomness
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.reading.columns import NAMED_USER
from beam_dpne.validation import check_integer

# A bundle cuts its tokens by partition when it has gathered so many.
_GATHERED_TOKENS = 2_000_000
# A partition limits its large users when it has joined so many tokens.
_MAX_BLOCK_TOKENS = 4_000_000


@dataclasses.dataclass(eq=False, kw_only=True)
class GroupByUser(beam.PTransform):
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
            check_integer(name, getattr(self, name), 1)
        tokenizers.resolve_tokenizer(self.tokenizer)

    def expand(self, documents: PCollection[pa.RecordBatch]) -> PCollection[UserBatch]:
        """Tokenizes documents, cuts blocks by user, groups them, and lays out positions."""
        grouped = self.cut_by_user(documents) | "ByUser" >> beam.GroupByKey()
        limits = {"max_tokens": self.max_tokens_per_user, "run_key": self.run_key}
        return apply(grouped, "LayOut", beam.FlatMap(lay_out, **limits), UserBatch)

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
        self._pool = concurrent.futures.ThreadPoolExecutor(self._workers)

    def start_bundle(self):
        # What a bundle that failed has left is not of this one.
        self._tasks: collections.deque[concurrent.futures.Future[DocumentBlock]] = (
            collections.deque()
        )
        self._blocks: list[DocumentBlock] = []
        self._tokens = 0

    def process(self, batch: pa.RecordBatch) -> Iterator[tuple[int, DocumentBlock]]:
        progress.enter("read", None)
        if self._workers == 1:
            yield from self._gather(self._tokenized(batch))
            return
        self._tasks.append(self._pool.submit(self._tokenized, batch))
        while len(self._tasks) > self._workers:
            yield from self._gather(self._tasks.popleft().result())

    def finish_bundle(self) -> Any:
        left = (piece for task in self._tasks for piece in self._gather(task.result()))
        for piece in itertools.chain(left, self._flush()):
            yield GlobalWindows.windowed_value(piece)

    def teardown(self):
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _tokenized(self, batch: pa.RecordBatch) -> DocumentBlock:
        tokens = tokenizers.tokenize(self._tokenize, batch.column(TEXT))
        users = hash_users(batch.column(USER), self._user_key)
        return encode_documents(users, tokens)

    def _gather(self, block: DocumentBlock) -> Iterator[tuple[int, DocumentBlock]]:
        """Keeps a block until there are enough tokens to cut."""
        self._blocks.append(block)
        self._tokens += block.codes.size
        if self._tokens > _GATHERED_TOKENS:
            yield from self._flush()

    def _flush(self) -> Iterator[tuple[int, DocumentBlock]]:
        blocks, self._blocks, self._tokens = self._blocks, [], 0
        if blocks:
            block = limit_documents(blocks, self._max_tokens, self._document_key, final=False)
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


def lay_out_positions(block: DocumentBlock, word_key: bytes) -> UserBatch:
    """Sorts documents by user, with one position for each token and NO_GRAM after each document."""
    lengths = np.diff(block.offsets)
    order = user_order(block.users)
    sorted_users, lengths = block.users[order], lengths[order]
    starts = np.flatnonzero(changes(sorted_users))
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
