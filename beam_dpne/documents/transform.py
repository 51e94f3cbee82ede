"""GroupByUser, and DocumentsTransform, the base of transforms from documents to releases."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, cast

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows

from beam_dpne.documents import tokenizers
from beam_dpne.documents.batch import BatchDocuments, checked_names, require_one_release
from beam_dpne.documents.blocks import (
    GROUP,
    TEXT,
    USER,
    bounded_blocks,
    encode_documents,
    hash_users,
    lay_out,
    limit_documents,
    split_by_user,
    with_group,
)
from beam_dpne.documents.run_keys import RunKeys, key_context, require_identified
from beam_dpne.documents.tokenizers import Tokenizer, resolve_tokenizer
from beam_dpne.elements import progress
from beam_dpne.elements.batches import DocumentBlock, UserBatch
from beam_dpne.elements.bundles import UnhintedTransform, apply
from beam_dpne.elements.encoding import SetStore, spill
from beam_dpne.elements.processes import Processes, most_forks
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
    is a string, or 16 bytes that identify the user. With groups, each document's group, in the column
    `group`, is put in front of each of its words (`with_group`).

    Output: `UserBatch` of length 0, one or more for each partition that is not empty.

    Privacy: not private. Users are distinguished by 128 bits of a keyed hash.

    Cost: one shuffle of the tokens, which are 32-bit integers, with each block's distinct words. A
    worker holds one partition.

    Attributes:
      tokenizer: Name, or function over Arrow arrays (see `tokenizers`).
      partitions: Number of hash partitions of users, at least 1.
      max_tokens_per_user: Largest number of a user's tokens, at least 1.
      run_key: Secret key of the run.
      workers: Number of processes in which a worker tokenizes, at least 1.
      is_grouped: Whether documents have groups.

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
    is_grouped: bool = False

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
    """Turns a bundle's record batches into blocks of documents for each partition."""

    def __init__(self, settings: GroupByUser):
        self._settings = settings
        self._forks: Processes | None = None

    def start_bundle(self):
        # What a bundle that failed has left is not of this one.
        self.teardown()
        gathered = _Gathered(self._settings)
        most = most_forks(self._settings.workers, self._settings.partitions)
        self._forks = Processes(gathered.answer, most) if most else None
        self._answer = self._forks.offer if self._forks else gathered.answer

    def process(self, batch: pa.RecordBatch) -> Iterator[tuple[int, DocumentBlock]]:
        progress.enter("read", None)
        for blocks in self._answer(batch):
            yield from blocks

    def finish_bundle(self) -> Any:
        for blocks in self._forks.all(None) if self._forks else self._answer(None):
            yield from map(GlobalWindows.windowed_value, blocks)
        self.teardown()

    def teardown(self):
        if self._forks is not None:
            self._forks.close()


class _Gathered:
    """Documents that are tokenized, and cut when there are many, since each block carries its words."""

    def __init__(self, settings: GroupByUser) -> None:
        self._settings = settings
        self._tokenize = tokenizers.resolve_tokenizer(settings.tokenizer)
        self._blocks: list[DocumentBlock] = []

    def answer(self, batch: pa.RecordBatch | None) -> Iterator[list[tuple[int, DocumentBlock]]]:
        """Takes a batch, or None at the end; yields what is cut, with the numbers of the partitions."""
        if batch is not None:
            self._blocks.append(self._tokenized(batch))
        tokens = sum(block.codes.size for block in self._blocks)
        if tokens > (0 if batch is None else _GATHERED_TOKENS):
            yield self._cut()

    def _tokenized(self, batch: pa.RecordBatch) -> DocumentBlock:
        tokens = tokenizers.tokenize(self._tokenize, batch.column(TEXT))
        if self._settings.is_grouped:
            tokens = with_group(batch.column(GROUP), tokens)
        users, tokens = tokenizers.cut_at_borders(batch.column(USER), tokens)
        return encode_documents(hash_users(users, self._settings.run_key.sub_key("user")), tokens)

    def _cut(self) -> list[tuple[int, DocumentBlock]]:
        most = self._settings.max_tokens_per_user
        key = self._settings.run_key.sub_key("document")
        blocks = self._blocks
        self._blocks = []
        block = limit_documents(blocks, most, key, final=False)
        pieces = split_by_user(block, self._settings.partitions)
        return [(number, part) for number, piece in pieces for part in bounded_blocks(piece)]


# Fields of transforms whose types are checked, since another one would fail far from its cause; a type
# that is named by a string is of a module that need not be loaded.
_CHECKED = ("plan", "run_key", "public", "known")


@dataclasses.dataclass(eq=False, kw_only=True)
class DocumentsTransform(UnhintedTransform):
    """The common part of `PrivateNgrams`, `PrivateSetUnion` and the transforms of Bayesian counts.

    Each of them documents these fields for its users.
    """

    plan: Any
    tokenizer: str | Tokenizer = "words"
    partitions: int = 8
    run_key: RunKey | None = dataclasses.field(default=None, repr=False)
    described: InputDescription | None = None
    user_field: str = "user"
    text_field: str | Sequence[str] = "text"
    workers: int | None = None

    def __post_init__(self):
        super().__post_init__()
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            kind = cast("Any", field.type)
            if field.name not in _CHECKED or isinstance(kind, str):
                continue
            if not isinstance(value, kind):
                name = getattr(kind, "__name__", kind)
                raise TypeError(f"{field.name} must be {name}, got {type(value).__name__}.")
        check_integer("partitions", self.partitions, 1)
        if self.workers is not None:
            check_integer("workers", self.workers, 1)
        fields = self.row_description
        checked_names(self.user_field, self.text_field, fields.group_field)
        if self.described and (self.described.group_field is None) != (fields.group_field is None):
            raise ValueError(
                "group_field must be given if, and only if, described names one, got group_field="
                f"{fields.group_field!r} and {self.described.group_field!r} in described."
            )
        resolve_tokenizer(self.tokenizer)

    @property
    def row_description(self) -> InputDescription:
        """The fields by which the elements of the pipeline are read."""
        names = names_of(self.text_field)
        return InputDescription(user_field=self.user_field, text_fields=names)

    @property
    def histogram_ranges(self) -> int:
        """The number of ranges of a histogram, which is smaller than the corpus."""
        return -(-self.partitions // 4)

    def public_digest(self) -> str:
        """Returns the digest of the public data that decides the run; "" if there are none."""
        return ""

    def run_keys(self) -> RunKeys:
        """Returns the run key, or a fresh one, before and after it is bound to this run's context.

        The context is that of `key_context`.

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
            public=self.public_digest(),
        )
        own = self.run_key or RunKey.generate()
        return RunKeys(own, own.bound_to(context))

    def grouped_by_user(
        self, documents: PCollection, run_key: RunKey, max_tokens_per_user: int
    ) -> PCollection[UserBatch]:
        """Checks the pipeline's options, and brings the documents of each user together."""
        group = self.group_by_user(run_key, max_tokens_per_user)
        return cast("PCollection", self.batched(documents) | "GroupByUser" >> group)

    def batched(self, documents: PCollection) -> PCollection[pa.RecordBatch]:
        """Checks the pipeline's options, and returns documents as record batches."""
        batch = BatchDocuments(
            user_field=self.user_field,
            text_field=self.text_field,
            group_field=self.row_description.group_field,
        )
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
            is_grouped=self.row_description.group_field is not None,
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
