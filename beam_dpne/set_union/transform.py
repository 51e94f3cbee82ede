"""PrivateSetUnion: the union of users' items, as one pipeline."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple, cast

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.typehints.decorators import IOTypeHints

from beam_dpne.documents.batch import BatchDocuments, checked_names
from beam_dpne.documents.group_by_user import GroupByUser
from beam_dpne.documents.key_context import check_run_key, key_context, require_identified
from beam_dpne.documents.tokenizers import Tokenizer, resolve_tokenizer
from beam_dpne.elements.rows import ReleasedItem, as_rows
from beam_dpne.engines import run
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.reading.options import InputDescription, description_of_rows
from beam_dpne.set_union.elements import ItemSet, item_table
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.set_union.release import ReleaseItems


class _Released(NamedTuple):
    released: PCollection[ItemSet]


class PrivateSetUnionResult(_Released):
    """The result of `PrivateSetUnion`.

    Attributes:
      released: PCollection of one `ItemSet`, which `PublishRelease` takes.
    """

    @functools.cached_property
    def rows(self) -> PCollection[ReleasedItem]:
        """All released items, one `ReleasedItem` each, equal to the rows of published files.

        They have a schema, so that Beam's sinks, data frames and SQL take them. The first access adds
        one step to the pipeline.
        """
        return as_rows([self.released], ReleasedItem, item_table)


@dataclasses.dataclass(eq=False, kw_only=True)
class PrivateSetUnion(beam.PTransform):
    """Releases items that many users have: words, queries, product names, any strings.

    Input: documents as `BatchDocuments` takes them: rows with field names (NamedTuple, `beam.Row`,
    dict), `pyarrow.RecordBatch`, or plain tuples of (user, items); bounded and in the global window.
    The text is a list of items; with another tokenizer than "tokens" it is a str, and its tokens are
    the items.

    Output: `PrivateSetUnionResult`.

    Privacy: `released` is user-level (plan.epsilon, plan.delta)-DP when one user with all items is
    added or removed, for a run key that is secret and used on one input only, and an input of at most
    plan.max_users users, which is the operator's promise.

    Cost: one shuffle of the corpus, and one of partial sums for each round; the descent policies
    shuffle users' items once more, and one worker has all items of a shard in memory.

    Attributes:
      plan: the parameters of the run.
      tokenizer: "tokens", "words", "whitespace", "package.module:function", or a function.
      partitions: the number of hash partitions of users; the histogram, which is smaller, has a
        quarter as many.
      run_key: the secret of the run; by default a fresh one each time the transform is applied. It is
        bound to all that decides the mechanism (`key_context`), so the same key under other
        parameters, another tokenizer or another version draws other noise.
      described: how records became documents, if they were read from files; the key is bound to it.
        By default the elements are rows with these fields.
      user_field: the name of the field with the user, which defines whom the guarantee protects.
      text_field: the name of the field with the items, or several names, of which each is a document.

    Raises:
      ValueError: if partitions < 1, on an unknown tokenizer, or if `BatchDocuments` refuses the fields
        or the input.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import PrivateSetUnion, SetUnionPlan
      >>> plan = SetUnionPlan(epsilon=10, delta=1e-4)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     items_of_users = pipeline | beam.Create(
      ...         [(f"user {i}", ["rye bread", "tea", f"my {i}"]) for i in range(200)])
      ...     union = items_of_users | PrivateSetUnion(plan=plan)
      ...     items = union.rows | beam.Map(lambda row: row.item) | beam.combiners.ToList()
      ...     _ = items | beam.Map(lambda items: print(sorted(items)))
      ['rye bread', 'tea']

    References: DPSU (Gopi et al. 2020) Algorithms 1 and 2.
    """

    plan: SetUnionPlan
    tokenizer: str | Tokenizer = "tokens"
    partitions: int = 8
    run_key: RunKey | None = dataclasses.field(default=None, repr=False)
    described: InputDescription | None = None
    user_field: str = "user"
    text_field: str | Sequence[str] = "text"

    def __post_init__(self):
        super().__init__()
        if self.partitions < 1:
            raise ValueError(f"partitions must be at least 1, got partitions={self.partitions}.")
        checked_names(self.user_field, self.text_field)
        check_run_key(self.run_key)
        resolve_tokenizer(self.tokenizer)

    def default_type_hints(self) -> IOTypeHints:
        """Returns no hints: with any, Beam logs a warning about a result that is a named tuple."""
        return IOTypeHints.empty()

    def expand(self, items_of_users: PCollection) -> PrivateSetUnionResult:
        """Groups by user and releases."""
        run.check_options(items_of_users.pipeline)
        run_key = (self.run_key or RunKey.generate()).bound_to(self._context())
        users = (
            items_of_users
            | "BatchDocuments"
            >> BatchDocuments(user_field=self.user_field, text_field=self.text_field)
            | "GroupByUser"
            >> GroupByUser(
                tokenizer=self.tokenizer,
                partitions=self.partitions,
                max_tokens_per_user=self.plan.max_items_per_user,
                run_key=run_key,
            )
        )
        release = ReleaseItems(plan=self.plan, run_key=run_key, ranges=-(-self.partitions // 4))
        return PrivateSetUnionResult(
            cast("PCollection[ItemSet]", users | "ReleaseItems" >> release)
        )

    def _context(self) -> str:
        """Returns the text that the run key is bound to."""
        if self.run_key is not None:
            require_identified(self.tokenizer)
        return run_context(self.plan, self.tokenizer, self.described, self._rows)

    @property
    def input_description(self) -> InputDescription:
        """How records became documents, as far as it is known; `PublishRelease` reads it."""
        return self.described or self._rows

    @property
    def _rows(self) -> InputDescription:
        """The fields by which elements are read."""
        return description_of_rows(self.user_field, self.text_field)


def run_context(
    plan: SetUnionPlan,
    tokenizer: str | Tokenizer,
    described: InputDescription | None = None,
    rows: InputDescription | None = None,
) -> str:
    """Returns the text that the key of a run of `PrivateSetUnion` is bound to; see `key_context`."""
    return key_context("set-union", plan, tokenizer=tokenizer, described=described, rows=rows)
