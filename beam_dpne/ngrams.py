"""PrivateNgrams: the loop over k of DPNE, as one pipeline."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, cast

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.typehints.decorators import IOTypeHints

from beam_dpne.batches import GramSet, UserBatch
from beam_dpne.documents import BatchDocuments
from beam_dpne.loop import release_lengths
from beam_dpne.plan import PrivacyPlan
from beam_dpne.public_vocabulary import vocabulary_digest
from beam_dpne.randomness import RunKey
from beam_dpne.stored import SetStore
from beam_dpne.tokenizers import Tokenizer, resolve_tokenizer, tokenizer_name
from beam_dpne.transform_steps import TransformSteps
from beam_dpne.union_vocabulary import union_plan
from beam_dpne.users import GroupByUser


class PrivateNgramsResult(NamedTuple):
    """What `PrivateNgrams` returns.

    Attributes:
      released: S_1, …, S_T: PCollections of one `GramSet` each. `DecodeGrams` makes rows of them,
        `ListFacts` the ledger's numbers.
    """

    released: tuple[PCollection[GramSet], ...]


@dataclasses.dataclass(eq=False, kw_only=True)
class PrivateNgrams(beam.PTransform):
    """Releases n-grams of up to T words that many users share.

    Input: documents as (user, text) pairs of str, or `pyarrow.RecordBatch` with columns `user` and
    `text`.

    Output: `PrivateNgramsResult`.

    Privacy: `released`, with its rules, is user-level (plan.epsilon, plan.delta)-DP when one
    user with all documents is added or removed, for a run key that is secret and used on one input
    only.

    Cost: one shuffle of the corpus; then, for each length, one pass over what is left of the users'
    positions and one shuffle of partial sums.

    Attributes:
      plan: the parameters of the run.
      tokenizer: "words", "whitespace", "tokens", "package.module:function", or a function.
      partitions: hash partitions of users; a histogram, which is smaller, gets a quarter of that.
      run_key: secret of the run; by default a fresh one each time the transform is applied. It is
        bound to plan and tokenizer, so the same key under other parameters draws other noise.
      store: where sets go that are too large for an element: a place as private as the data, that the
        workers share; None: every set is one element.
      vocabulary: public words, if the plan says that they are given: n-grams of these words are
        released; the words themselves, which nobody's data confirm, are not.

    Raises:
      ValueError: if partitions < 1, vocabulary and plan disagree, or on an unknown tokenizer.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import DecodeGrams, PrivacyPlan, PrivateNgrams
      >>> plan = PrivacyPlan(epsilon=10, delta=1e-4, max_length=2, max_contributions=2,
      ...                    spurious_fraction=1e-9)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     documents = pipeline | beam.Create([(f"u{i}", "Good morning") for i in range(200)])
      ...     result = documents | PrivateNgrams(plan=plan)
      ...     rows = result.released | DecodeGrams()
      ...     _ = rows | beam.Map(lambda rows: print(sorted(rows["ngram"].to_pylist())))
      ['good', 'morning']
      ['good morning']

    References: DPNE Algorithm 1; appendix A, Algorithm 1.
    """

    plan: PrivacyPlan
    tokenizer: str | Tokenizer = "words"
    partitions: int = 8
    run_key: RunKey | None = dataclasses.field(default=None, repr=False)
    store: SetStore | None = None
    vocabulary: Sequence[str] | None = None

    def __post_init__(self):
        super().__init__()
        if self.partitions < 1:
            raise ValueError(f"partitions must be at least 1, got partitions={self.partitions}.")
        if self.plan.has_union_vocabulary:
            union_plan(self.plan)
        if self.plan.has_public_vocabulary != (self.vocabulary is not None):
            raise ValueError(
                "vocabulary must be given with vocabulary_policy='public', and only then, got "
                f"vocabulary_policy={self.plan.vocabulary_policy!r}."
            )
        resolve_tokenizer(self.tokenizer)

    def default_type_hints(self) -> IOTypeHints:
        """None: Beam would log a warning about a result that is a named tuple."""
        return IOTypeHints.empty()

    def expand(self, documents: PCollection) -> PrivateNgramsResult:
        """Brings users together and unrolls `loop.release_lengths`."""
        given = self.run_key or RunKey.generate()
        run_key = given.bound_to(run_context(self.plan, self.tokenizer, self.vocabulary))
        users = (
            documents
            | "BatchDocuments" >> BatchDocuments()
            | "GroupByUser"
            >> GroupByUser(
                tokenizer=self.tokenizer,
                partitions=self.partitions,
                max_tokens_per_user=self.plan.max_tokens_per_user,
                run_key=run_key,
            )
        )
        steps = TransformSteps(
            pipeline=documents.pipeline,
            plan=self.plan,
            run_key=run_key,
            shards=-(-self.partitions // 4),
            store=self.store,
            vocabulary=self.vocabulary,
        )
        positions = cast("PCollection[UserBatch]", users)
        return PrivateNgramsResult(release_lengths(steps, self.plan, positions))


def run_context(
    plan: PrivacyPlan, tokenizer: str | Tokenizer, vocabulary: Sequence[str] | None = None
) -> str:
    """Returns the public parameters that a run key is bound to."""
    given = "" if vocabulary is None else f" {vocabulary_digest(vocabulary)}"
    return f"ngrams {plan.to_json()} {tokenizer_name(tokenizer)}{given}"
