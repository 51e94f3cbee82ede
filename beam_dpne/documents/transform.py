"""GroupByUser, and DocumentsTransform, the base of transforms from documents to releases."""

import collections
import concurrent.futures
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, cast

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows

from beam_dpne.documents import tokenizers
from beam_dpne.documents.batch import TEXT, USER, BatchDocuments, checked_names, require_one_release
from beam_dpne.documents.blocks import (
    bounded_blocks,
    encode_documents,
    hash_users,
    lay_out,
    limit_documents,
    split_by_user,
)
from beam_dpne.documents.run_keys import key_context, require_identified
from beam_dpne.documents.tokenizers import Tokenizer, resolve_tokenizer
from beam_dpne.elements import progress
from beam_dpne.elements.batches import DocumentBlock, UnhintedTransform, UserBatch, apply
from beam_dpne.elements.coders import SetStore, spill
from beam_dpne.engines import check_options
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.reading.options import InputDescription, names_of
from beam_dpne.validation import check_integer

# A bundle cuts its tokens by partition when it has gathered so many.
_GATHERED_TOKENS = 2_000_000
# A constant is part of the job's graph, whose size the engines limit.
_LARGEST_CONSTANT = 2**20


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
      >>> import numpy as np
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


@dataclasses.dataclass(eq=False, kw_only=True)
class DocumentsTransform(UnhintedTransform):
    """The common part of `PrivateNgrams`, `PrivateSetUnion` and the transforms of Bayesian counts.

    Each of them documents these fields for its users.
    """

    plan: Any
    plan_type: ClassVar[type]
    tokenizer: str | Tokenizer = "words"
    partitions: int = 8
    run_key: RunKey | None = dataclasses.field(default=None, repr=False)
    described: InputDescription | None = None
    user_field: str = "user"
    text_field: str | Sequence[str] = "text"
    workers: int | None = None

    def __post_init__(self):
        super().__post_init__()
        if not isinstance(self.plan, self.plan_type):
            kind = self.plan_type.__name__
            raise TypeError(
                f"plan must be a {kind}, got {type(self.plan).__name__}. {type(self).__name__} takes "
                f"plan={kind}(epsilon=…, delta=…)."
            )
        check_integer("partitions", self.partitions, 1)
        if self.workers is not None:
            check_integer("workers", self.workers, 1)
        checked_names(self.user_field, self.text_field)
        if not isinstance(self.run_key, RunKey | None):
            raise TypeError(
                f"run_key must be a RunKey, got {type(self.run_key).__name__}; see RunKey.from_hex."
            )
        resolve_tokenizer(self.tokenizer)

    @property
    def input_description(self) -> InputDescription:
        """How records became documents, as far as it is known; the ledger states it."""
        return self.described or self.row_description

    @property
    def row_description(self) -> InputDescription:
        """The fields by which the elements of the pipeline are read."""
        names = names_of(self.text_field)
        return InputDescription(user_field=self.user_field, text_fields=names)

    @property
    def histogram_ranges(self) -> int:
        """The number of ranges of a histogram, which is smaller than the corpus."""
        return -(-self.partitions // 4)

    def bound_key(self, public: str = "") -> RunKey:
        """Returns the run key, or a fresh one, bound to the context of this run (`key_context`).

        Args:
          public: the digest of the public data that the run uses.

        Raises:
          ValueError: if a key is given, and nothing identifies the tokenizer.
        """
        if self.run_key is not None:
            require_identified(self.tokenizer)
        context = key_context(
            self.plan,
            self.tokenizer,
            described=self.described,
            rows=self.row_description,
            public=public,
        )
        return (self.run_key or RunKey.generate()).bound_to(context)

    def grouped_by_user(
        self, documents: PCollection, run_key: RunKey, max_tokens_per_user: int
    ) -> PCollection[UserBatch]:
        """Checks the pipeline's options, and brings the documents of each user together."""
        group = self.group_by_user(run_key, max_tokens_per_user)
        return cast("PCollection", self.batched(documents) | "GroupByUser" >> group)

    def batched(self, documents: PCollection) -> PCollection[pa.RecordBatch]:
        """Checks the pipeline's options, and returns documents as record batches."""
        batch = BatchDocuments(user_field=self.user_field, text_field=self.text_field)
        batches = documents | "BatchDocuments" >> batch
        check_options(documents.pipeline)
        return cast("PCollection", batches)

    def group_by_user(self, run_key: RunKey, max_tokens_per_user: int) -> GroupByUser:
        """Returns the transform that brings the documents of each user together."""
        return GroupByUser(
            tokenizer=self.tokenizer,
            partitions=self.partitions,
            max_tokens_per_user=max_tokens_per_user,
            run_key=run_key,
            workers=self.workers or 1,
        )


def create_public(batch: Any, store: SetStore | None) -> beam.Create:
    """Returns the source of one public batch, which is in the job's graph unless it is large.

    Args:
      batch: a public vocabulary or public counts.
      store: where a batch goes that is too large for the graph. With None, or with a store into which
        the launcher puts no files, it stays in the graph.
    """
    if store is None or not store.from_launch:
        return beam.Create([batch])
    limit = min(store.limit, _LARGEST_CONSTANT)
    return beam.Create([spill(batch, dataclasses.replace(store, limit=limit))])
