"""PrivateNgrams: the loop over k of DPNE, as one pipeline."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import apache_beam as beam
from apache_beam.pvalue import PCollection, PValue
from apache_beam.typehints.decorators import IOTypeHints

from beam_dpne import engine
from beam_dpne.batches import (
    GramSet,
    HistogramShard,
    SpuriousGrams,
    StandingGrams,
    kept_small,
)
from beam_dpne.contributions import LimitContributions
from beam_dpne.document_rows import checked_names
from beam_dpne.documents import BatchDocuments
from beam_dpne.grams import ExtractGrams, PruneInvalid
from beam_dpne.histogram import WeightedHistogram
from beam_dpne.input_description import InputDescription, description_of_rows
from beam_dpne.item_release import ReleaseItems
from beam_dpne.key_context import key_context
from beam_dpne.mechanism import LengthRule
from beam_dpne.plan import PrivacyPlan
from beam_dpne.public_vocabulary import public_vocabulary, vocabulary_digest
from beam_dpne.randomness import RunKey
from beam_dpne.released_rows import ReleasedNgram, as_rows, ngram_table
from beam_dpne.selection import DecideRound, NoisyThreshold, RoundResult, SampleSpurious
from beam_dpne.spending import SpendBudgets, SpendResult
from beam_dpne.stored import SetStore
from beam_dpne.strategies import Adaptive, OneRound
from beam_dpne.tokenizers import Tokenizer, resolve_tokenizer
from beam_dpne.union_vocabulary import as_vocabulary, union_plan
from beam_dpne.users import GroupByUser

_LARGEST_CONSTANT = 2**20


class _Released(NamedTuple):
    released: tuple[PCollection[GramSet], ...]


class PrivateNgramsResult(_Released):
    """What `PrivateNgrams` returns.

    Attributes:
      released: S_1, …, S_T: PCollections of one `GramSet` each, for transforms of this package:
        `PublishRelease`, `DecodeGrams`, `ListFacts`.
    """

    @functools.cached_property
    def rows(self) -> PCollection[ReleasedNgram]:
        """All released n-grams, one `ReleasedNgram` each, equal to the rows of published files.

        They have a schema, so that Beam's sinks, data frames and SQL take them. Asking for them adds
        one step to the pipeline.
        """
        return as_rows(self.released, ReleasedNgram, ngram_table)


@dataclasses.dataclass(eq=False, kw_only=True)
class PrivateNgrams(beam.PTransform):
    """Releases n-grams of up to T words that many users share.

    Input: documents as `BatchDocuments` takes them: rows with field names (NamedTuple, `beam.Row`,
    dict), `pyarrow.RecordBatch`, or plain tuples of (user, text); bounded and in the global window.

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
        bound to all that decides the mechanism (`key_context`), so the same key under other
        parameters, another tokenizer or another version draws other noise.
      described: how records became documents, if they were read from files; part of what the key is
        bound to. By default the elements are rows with these fields.
      store: where sets go that are too large for an element: a place as private as the data, that the
        workers share; None: every set is one element.
      vocabulary: public words, if the plan says that they are given: n-grams of these words are
        released; the words themselves, which nobody's data confirm, are not.
      user_field: name of the field that holds the user: it defines whom the guarantee protects.
      text_field: name of the field that holds the text, or several names: each text is a document.

    Raises:
      ValueError: if partitions < 1, vocabulary and plan disagree, on an unknown tokenizer, or if
        `BatchDocuments` refuses the fields or the input.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import PrivacyPlan, PrivateNgrams
      >>> plan = PrivacyPlan(epsilon=10, delta=1e-4, max_length=2, max_contributions=2,
      ...                    spurious_fraction=1e-9)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     documents = pipeline | beam.Create([(f"u{i}", "Good morning") for i in range(200)])
      ...     result = documents | PrivateNgrams(plan=plan)
      ...     pairs = result.rows | beam.Filter(lambda row: row.length == 2)
      ...     _ = pairs | beam.Map(lambda row: print(row.ngram))
      good morning

    References: DPNE Algorithm 1; appendix A, Algorithm 1.
    """

    plan: PrivacyPlan
    tokenizer: str | Tokenizer = "words"
    partitions: int = 8
    run_key: RunKey | None = dataclasses.field(default=None, repr=False)
    store: SetStore | None = None
    vocabulary: Sequence[str] | None = None
    described: InputDescription | None = None
    user_field: str = "user"
    text_field: str | Sequence[str] = "text"

    def __post_init__(self):
        super().__init__()
        if self.partitions < 1:
            raise ValueError(f"partitions must be at least 1, got partitions={self.partitions}.")
        checked_names(self.user_field, self.text_field)
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
        """Unrolls the loop over k."""
        engine.check_options(documents.pipeline)
        given = self.run_key or RunKey.generate()
        run_key = given.bound_to(self._context())
        users: PValue = (
            documents
            | "BatchDocuments"
            >> BatchDocuments(user_field=self.user_field, text_field=self.text_field)
            | "GroupByUser"
            >> GroupByUser(
                tokenizer=self.tokenizer,
                partitions=self.partitions,
                max_tokens_per_user=self.plan.max_tokens_per_user,
                run_key=run_key,
            )
        )
        released: list[PCollection[GramSet]] = []
        standing = None
        for length in range(1, self.plan.max_length + 1):
            previous = released[-1] if released else None
            if previous is not None:
                users = users | f"{length}/PruneInvalid" >> PruneInvalid(
                    released=previous, standing=standing, pruning=self.plan.pruning
                )
            if length not in self.plan.private_lengths:
                released.append(documents.pipeline | f"{length}/Given" >> self._given_words())
            elif length not in self.plan.strategy_lengths:
                released.append(self._unite_words(length, users, run_key))
            elif self.plan.is_adaptive:
                found, users, standing = self._settle_length(length, users, previous, run_key)
                released.append(found)
            else:
                released.append(self._release_length(length, users, previous, run_key))
        return PrivateNgramsResult(tuple(released))

    def _context(self) -> str:
        """What the run key is bound to."""
        described = self.described or description_of_rows(self.user_field, self.text_field)
        return run_context(self.plan, self.tokenizer, self.vocabulary, described)

    def _given_words(self) -> beam.PTransform:
        """A public vocabulary as S_1."""
        words = public_vocabulary(self.vocabulary or ())
        store = None
        if self.store is not None and self.store.from_launch:
            limit = min(self.store.limit, _LARGEST_CONSTANT)
            store = dataclasses.replace(self.store, limit=limit)
        return beam.Create([kept_small(words, store)])

    def _unite_words(self, length: int, users: PValue, run_key: RunKey) -> PCollection[GramSet]:
        """S_1 by a policy of set union."""
        union = union_plan(self.plan)
        release = ReleaseItems(plan=union, run_key=run_key, ranges=self._shards)
        found = users | f"{length}/ReleaseItems" >> release
        name = beam.Map(as_vocabulary, union=union, store=self.store).with_output_types(GramSet)
        return cast("PCollection[GramSet]", found | f"{length}/Words" >> name)

    def _release_length(
        self,
        length: int,
        users: PValue,
        previous: PCollection[GramSet] | None,
        run_key: RunKey,
    ) -> PCollection[GramSet]:
        """One turn of the paper's loop: from positions and S_{k−1} to S_k."""
        rule_for = OneRound(plan=self.plan, run_key=run_key).rule_for(length)
        return cast(
            "PCollection[GramSet]",
            users
            | f"{length}/ExtractGrams" >> ExtractGrams(length=length)
            | f"{length}/LimitContributions"
            >> LimitContributions(
                length=length,
                max_contributions=self.plan.contribution_limits[length - 1],
                run_key=run_key,
            )
            | f"{length}/WeightedHistogram"
            >> WeightedHistogram(
                shards=self._shards, spurious=_spurious(length, previous, rule_for, run_key)
            )
            | f"{length}/NoisyThreshold"
            >> NoisyThreshold(
                rule_for=rule_for, previous=previous, run_key=run_key, store=self.store
            ),
        )

    def _settle_length(
        self,
        length: int,
        users: PValue,
        previous: PCollection[GramSet] | None,
        run_key: RunKey,
    ) -> tuple[PCollection[GramSet], PValue, PCollection[StandingGrams] | None]:
        """One turn of the adaptive loop: rounds, each on what the one before left open.

        Returns:
          S_k, the users with what they have left, and in which terms their positions are.
        """
        rule_for = Adaptive(plan=self.plan).rule_for(length)
        spurious = _spurious(length, previous, rule_for, run_key)
        decide = {
            "rule_for": rule_for,
            "previous": previous,
            "run_key": run_key,
            "store": self.store,
        }
        standing: list[PCollection[StandingGrams]] = []
        open_shards = None
        last = self.plan.rounds_of(length)

        def spend(number: int) -> SpendBudgets:
            return SpendBudgets(
                plan=self.plan,
                length=length,
                round_number=number,
                previous=previous,
                standing=tuple(standing),
                run_key=run_key,
            )

        for number in range(1, last):
            label = f"{length}/{number}"
            users, histogram = self._sum_round(label, users, spend(number), spurious, open_shards)
            round_end = DecideRound(round_number=number, **decide)
            decided = cast("RoundResult", histogram | f"{label}/DecideRound" >> round_end)
            standing.append(decided.standing)
            open_shards = decided.open_shards
        label = f"{length}/{last}"
        users, histogram = self._sum_round(label, users, spend(last), spurious, open_shards)
        found = histogram | f"{label}/NoisyThreshold" >> NoisyThreshold(**decide)
        return cast("PCollection[GramSet]", found), users, standing[-1] if standing else None

    def _sum_round(
        self,
        label: str,
        users: PValue,
        spend: SpendBudgets,
        spurious: PCollection[SpuriousGrams] | None,
        open_shards: PCollection[HistogramShard] | None,
    ) -> tuple[PValue, PCollection[HistogramShard]]:
        """Users spend on what is open; returns what they have left, and the round's histogram."""
        spent = cast("SpendResult", users | f"{label}/SpendBudgets" >> spend)
        weighted = WeightedHistogram(
            shards=self._shards,
            spurious=None if open_shards is not None else spurious,
            open_shards=open_shards,
        )
        histogram = spent.contributions | f"{label}/WeightedHistogram" >> weighted
        return spent.users, cast("PCollection[HistogramShard]", histogram)

    @property
    def _shards(self) -> int:
        return -(-self.partitions // 4)


def _spurious(
    length: int,
    previous: PCollection[GramSet] | None,
    rule_for: Callable[[GramSet], LengthRule],
    run_key: RunKey,
) -> PCollection[SpuriousGrams] | None:
    if previous is None:
        return None
    drawn = SampleSpurious(rule_for=rule_for, run_key=run_key)
    return cast("PCollection[SpuriousGrams]", previous | f"{length}/SampleSpurious" >> drawn)


def run_context(
    plan: PrivacyPlan,
    tokenizer: str | Tokenizer,
    vocabulary: Sequence[str] | None = None,
    described: InputDescription | None = None,
) -> str:
    """Returns what the key of a run of `PrivateNgrams` is bound to; see `key_context`."""
    public = "" if vocabulary is None else vocabulary_digest(vocabulary)
    return key_context("ngrams", plan, tokenizer=tokenizer, described=described, public=public)
