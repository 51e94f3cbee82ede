"""PrivateNgrams: the loop over k of DPNE, as one pipeline."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import apache_beam as beam
from apache_beam.pvalue import PCollection

from beam_dpne.documents.key_context import key_context
from beam_dpne.documents.tokenizers import Tokenizer
from beam_dpne.documents.transform import DocumentsTransform
from beam_dpne.elements.batches import UserBatch
from beam_dpne.elements.rows import CountedNgram, ReleasedNgram
from beam_dpne.elements.side_inputs import SetStore
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import LengthRule
from beam_dpne.ngrams.candidates import ExtractGrams, PruneInvalid
from beam_dpne.ngrams.contributions import LimitContributions, SpendBudgets, SpendResult
from beam_dpne.ngrams.count_held import CountHeld
from beam_dpne.ngrams.elements import (
    ROOT,
    Contributions,
    GramSet,
    HistogramShard,
    PresentGrams,
    SpuriousGrams,
)
from beam_dpne.ngrams.histogram import EveryRange, WeightedHistogram
from beam_dpne.ngrams.in_memory import release_lengths
from beam_dpne.ngrams.ledger import ngrams_contents
from beam_dpne.ngrams.one_step import ReleaseInOneStep
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.released_rows import ReleasedRows
from beam_dpne.ngrams.spurious import SampleSpurious
from beam_dpne.ngrams.threshold import DecideRound, NoisyThreshold, RoundResult
from beam_dpne.ngrams.user_counts import CountUsers
from beam_dpne.ngrams.valid import rule_for
from beam_dpne.reading.options import InputDescription
from beam_dpne.release.ledger import Run
from beam_dpne.release.result import Form, Result


class _Released(NamedTuple):
    released: tuple[PCollection[GramSet], ...]
    run: Run


def _row_type(plan: PrivacyPlan) -> type[ReleasedNgram] | type[CountedNgram]:
    return CountedNgram if plan.count_share else ReleasedNgram


class PrivateNgramsResult(Result[ReleasedNgram | CountedNgram], _Released):
    """The result of `PrivateNgrams`, which `WriteRelease` takes.

    Its `rows` are `CountedNgram`, or `ReleasedNgram` with count_share=0.

    Attributes:
      released: S_1, …, S_T, a PCollection of one `GramSet` for each, which `DecodeGrams` and
        `ListReport` take.
      run: the public facts of the run, for the ledger.
    """

    form = Form(_row_type, ReleasedRows.of, ngrams_contents)


@dataclasses.dataclass(eq=False, kw_only=True)
class PrivateNgrams(DocumentsTransform):
    """Releases n-grams of up to T words that many users share.

    Input: documents as `BatchDocuments` takes them: rows with field names (NamedTuple, `beam.Row`,
    dict), `pyarrow.RecordBatch`, or plain tuples of (user, text); bounded and in the global window.

    Output: `PrivateNgramsResult`.

    Privacy: `released`, with its rules, is user-level (plan.epsilon, plan.delta)-DP when one
    user with all documents is added or removed, for a run key that is secret and used on one input
    only.

    Cost: one shuffle of the corpus; then, for each round of each length, one pass over the positions
    that users still have, and one shuffle of partial sums.

    Attributes:
      plan: the parameters of the run.
      tokenizer: "words", "whitespace", "tokens", "package.module:function", or a function.
      partitions: the number of hash partitions of users; a histogram, which is smaller, has a quarter
        as many.
      run_key: the secret of the run; by default a fresh one each time the transform is applied. It is
        bound to all that decides the mechanism (`key_context`), so the same key under other
        parameters, another tokenizer or another version draws other noise.
      described: how records became documents, if they were read from files; the key is bound to it.
        By default the elements are rows with these fields.
      store: where sets go that are too large for an element. The workers must share it, and it must be
        as private as the data. With None every set is one element.
      user_field: the name of the field with the user, which defines whom the guarantee protects.
      text_field: the name of the field with the text, or several names, of which each is a document.
      workers: with None, as with --workers 0 on the command line, every step is spread over the
        workers of the runner. With a number, which must be at least 1, one step does all lengths on
        so many threads of one worker, which holds the whole corpus: some 75 bytes for each token. The
        embedded runner holds it in one process anyway. There, and on an engine whose worker has the
        memory, one step is faster. It changes no release.

    Raises:
      ValueError: if partitions < 1 or workers < 1, on an unknown tokenizer, or if `BatchDocuments`
        refuses the fields or the input.

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
    plan_type = PrivacyPlan
    store: SetStore | None = None

    def expand(self, documents: PCollection) -> PrivateNgramsResult:
        """Brings users together and unrolls `release_lengths`."""
        context = run_context(self.plan, self.tokenizer, self.described, self.row_description)
        run_key = self.bound_key(context)
        if self.workers is not None:
            released = self._released_in_one_step(documents, run_key, self.workers)
            return PrivateNgramsResult(released, Run.of(self))
        users: _Users = self.grouped_by_user(documents, run_key, self.plan.max_tokens_per_user)
        steps = _TransformSteps(
            pipeline=documents.pipeline,
            plan=self.plan,
            run_key=run_key,
            histogram_ranges=self.histogram_ranges,
            store=self.store,
        )
        return PrivateNgramsResult(release_lengths(steps, self.plan, users), Run.of(self))

    def _released_in_one_step(
        self, documents: PCollection, run_key: RunKey, workers: int
    ) -> tuple[PCollection[GramSet], ...]:
        group = self.group_by_user(run_key, self.plan.max_tokens_per_user)
        release = ReleaseInOneStep(
            plan=self.plan,
            run_key=run_key,
            workers=workers,
            store=self.store,
        )
        blocks = group.cut_by_user(self.batched(documents))
        return cast("tuple[PCollection[GramSet], ...]", blocks | "ReleaseInOneStep" >> release)


def run_context(
    plan: PrivacyPlan,
    tokenizer: str | Tokenizer,
    described: InputDescription | None = None,
    rows: InputDescription | None = None,
) -> str:
    """Returns the text that the key of a run of `PrivateNgrams` is bound to; see `key_context`."""
    return key_context("ngrams", plan, tokenizer=tokenizer, described=described, rows=rows)


class _Unpruned(NamedTuple):
    """Users whom the next step prunes, which saves engines a stage and its copy of the users."""

    users: PCollection[UserBatch]
    label: str
    prune: PruneInvalid


_Users = PCollection[UserBatch] | _Unpruned
# Shards, or after a decision pieces of them for the next round.
_Histogram = PCollection[Any]


def _pruned(users: _Users) -> PCollection[UserBatch]:
    if isinstance(users, PCollection):
        return users
    pruned = users.users | users.label >> users.prune
    return cast("PCollection[UserBatch]", pruned)


@dataclasses.dataclass(kw_only=True)
class _TransformSteps:
    """Applies each step as a labelled transform.

    Engines write a stage's outputs anew for each of their readers, and each stage costs them time
    whatever its data are. So stages have few outputs here, and steps share what they can.

    Attributes:
      pipeline: the pipeline of the run.
      plan: the parameters of the run.
      run_key: the secret of the run, bound to its parameters.
      histogram_ranges: the number of hash ranges of a histogram.
      store: where sets go that are too large for an element; with None every set is one element.
      after_first_round: the users after the first round of length 1, once it is applied.
    """

    pipeline: beam.Pipeline
    plan: PrivacyPlan
    run_key: RunKey = dataclasses.field(repr=False)
    histogram_ranges: int
    store: SetStore | None
    after_first_round: PCollection[UserBatch] | None = None

    def prune(
        self,
        length: int,
        users: _Users,
        previous: PCollection[GramSet],
        present: PCollection[PresentGrams] | None,
    ) -> _Users:
        """Applies `PruneInvalid`, or leaves it to `SpendBudgets`."""
        prune = PruneInvalid(released=previous, present=present, pruning=self.plan.pruning)
        unpruned = _Unpruned(_pruned(users), f"{length}/PruneInvalid", prune)
        return unpruned if self.plan.strategy_value.has_user_budgets else _pruned(unpruned)

    def limit(self, length: int, users: _Users) -> PCollection[Contributions]:
        """Applies `ExtractGrams` and `LimitContributions`."""
        limit = LimitContributions(
            length=length,
            max_contributions=self.plan.contribution_limits[length - 1],
            run_key=self.run_key,
        )
        extracted = _pruned(users) | f"{length}/ExtractGrams" >> ExtractGrams(length=length)
        return cast(
            "PCollection[Contributions]", extracted | f"{length}/LimitContributions" >> limit
        )

    def spend(
        self,
        length: int,
        round_number: int,
        users: _Users,
        previous: PCollection[GramSet] | None,
        present: Sequence[PCollection[PresentGrams]],
    ) -> tuple[PCollection[Contributions], PCollection[UserBatch]]:
        """Applies `SpendBudgets`, and `PruneInvalid` in the same step."""
        users, _, prune = users if isinstance(users, _Unpruned) else (users, "", None)
        spend = SpendBudgets(
            plan=self.plan,
            length=length,
            round_number=round_number,
            previous=previous,
            present=tuple(present),
            prune=prune,
            run_key=self.run_key,
        )
        label = self._label(length, round_number)
        spent = cast("SpendResult", users | f"{label}/SpendBudgets" >> spend)
        if length * round_number == 1:
            self.after_first_round = spent.users
        return spent.contributions, spent.users

    def draw_spurious(
        self, length: int, previous: PCollection[GramSet]
    ) -> PCollection[SpuriousGrams]:
        """Applies `SampleSpurious`."""
        draw = SampleSpurious(rule_for=self._rule_for(length), run_key=self.run_key)
        drawn = previous | f"{length}/SampleSpurious" >> draw
        return cast("PCollection[SpuriousGrams]", drawn)

    def add_up(
        self,
        length: int,
        round_number: int,
        sent: PCollection[Contributions],
        drawn: PCollection[SpuriousGrams] | None,
        still_open: _Histogram | None,
    ) -> PCollection[HistogramShard]:
        """Applies `WeightedHistogram`."""
        is_alone = length > 1 and drawn is None and still_open is None
        weighted = WeightedHistogram(
            histogram_ranges=self.histogram_ranges,
            spurious=drawn,
            open_pieces=still_open,
            every_range_of=length if is_alone else None,
            empty_ranges=self._empty_ranges if is_alone else None,
        )
        label = self._label(length, round_number)
        histogram = sent | f"{label}/WeightedHistogram" >> weighted
        return cast("PCollection[HistogramShard]", histogram)

    def count_held(
        self,
        length: int,
        histogram: _Histogram,
        previous: PCollection[GramSet],
    ) -> PCollection[HistogramShard]:
        """Applies `CountHeld`."""
        count = CountHeld(
            plan=self.plan,
            length=length,
            histogram_ranges=self.histogram_ranges,
            previous=previous,
            run_key=self.run_key,
        )
        counted = histogram | f"{self._label(length, 1)}/CountHeld" >> count
        return cast("PCollection[HistogramShard]", counted)

    def decide_round(
        self,
        length: int,
        round_number: int,
        histogram: _Histogram,
        previous: PCollection[GramSet] | None,
    ) -> tuple[PCollection[PresentGrams], _Histogram]:
        """Applies `DecideRound`."""
        decide = DecideRound(
            round_number=round_number,
            rule_for=self._rule_for(length),
            previous=previous,
            run_key=self.run_key,
            store=self.store,
            root=None if previous is not None else self._root,
            histogram_ranges=self.histogram_ranges,
        )
        label = self._label(length, round_number)
        decided = cast("RoundResult", histogram | f"{label}/DecideRound" >> decide)
        return decided.present, decided.open_shards

    def release(
        self,
        length: int,
        histogram: _Histogram,
        previous: PCollection[GramSet] | None,
    ) -> PCollection[GramSet]:
        """Applies `NoisyThreshold`."""
        threshold = NoisyThreshold(
            rule_for=self._rule_for(length),
            previous=previous,
            run_key=self.run_key,
            store=self.store,
            root=None if previous is not None else self._root,
        )
        label = self._label(length, self.plan.rounds_of(length))
        found = histogram | f"{label}/NoisyThreshold" >> threshold
        return cast("PCollection[GramSet]", found)

    def count(
        self, users: _Users, released: Sequence[PCollection[GramSet]]
    ) -> Sequence[PCollection[GramSet]]:
        """Applies `CountUsers`.

        Users have the same positions after the first round of length 1, and only less budget. So that
        round's stage need not put out its input too.
        """
        if self.after_first_round is not None:
            users = self.after_first_round
        count = CountUsers(
            plan=self.plan, released=released, run_key=self.run_key, store=self.store
        )
        return cast("Sequence[PCollection[GramSet]]", _pruned(users) | "CountUsers" >> count)

    @functools.cached_property
    def _root(self) -> PCollection[GramSet]:
        created = self.pipeline | "1/Root" >> beam.Create([ROOT])
        return cast("PCollection[GramSet]", created)

    @functools.cached_property
    def _empty_ranges(self) -> PCollection[tuple[int, HistogramShard]]:
        every = EveryRange(histogram_ranges=self.histogram_ranges)
        return cast("PCollection", self.pipeline | "EveryRange" >> every)

    def _rule_for(self, length: int) -> Callable[[GramSet], LengthRule]:
        return rule_for(self.plan, length, self.run_key)

    def _label(self, length: int, round_number: int) -> str:
        return self.plan.strategy_value.label(length, round_number)
