"""DocumentsTransform: the fields, checks and first steps of transforms from documents to releases."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, cast

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import PCollection

from beam_dpne.documents.batch import BatchDocuments, checked_names
from beam_dpne.documents.group_by_user import GroupByUser
from beam_dpne.documents.run_keys import check_run_key, key_context, require_identified
from beam_dpne.documents.tokenizers import Tokenizer, resolve_tokenizer
from beam_dpne.elements.batches import UnhintedTransform, UserBatch
from beam_dpne.elements.coders import SetStore, spill
from beam_dpne.engines import check_options
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.reading.options import InputDescription, description_of_rows
from beam_dpne.validation import check_integer

# A constant is part of the job's graph, whose size the engines limit.
_LARGEST_CONSTANT = 2**20


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
        check_run_key(self.run_key)
        resolve_tokenizer(self.tokenizer)

    @property
    def input_description(self) -> InputDescription:
        """How records became documents, as far as it is known; the ledger states it."""
        return self.described or self.row_description

    @property
    def row_description(self) -> InputDescription:
        """The fields by which the elements of the pipeline are read."""
        return description_of_rows(self.user_field, self.text_field)

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
