"""The steps of a run as transforms on PCollections; `loop` has their order."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import cast

import apache_beam as beam
from apache_beam.pvalue import PCollection

from beam_dpne.elements.batches import UserBatch
from beam_dpne.elements.coders import spill
from beam_dpne.elements.side_inputs import SetStore
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import LengthRule
from beam_dpne.ngrams.budgets import SpendBudgets, SpendResult
from beam_dpne.ngrams.candidates import ExtractGrams, PruneInvalid
from beam_dpne.ngrams.contributions import LimitContributions
from beam_dpne.ngrams.elements import (
    Contributions,
    GramSet,
    HistogramShard,
    PresentGrams,
    SpuriousGrams,
)
from beam_dpne.ngrams.histogram import WeightedHistogram
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.public_vocabulary import public_vocabulary
from beam_dpne.ngrams.strategies import rule_for
from beam_dpne.ngrams.threshold import DecideRound, NoisyThreshold, RoundResult, SampleSpurious
from beam_dpne.ngrams.union_vocabulary import as_vocabulary, union_plan
from beam_dpne.set_union.release import ReleaseItems

_LARGEST_CONSTANT = 2**20


@dataclasses.dataclass(kw_only=True)
class TransformSteps:
    """Applies each step as a labelled transform.

    Attributes:
      pipeline: of the run.
      plan: the parameters of the run.
      run_key: bound to the run's parameters.
      shards: hash ranges of a histogram.
      store: where sets go that are too large for an element; None: every set is one element.
      vocabulary: public words, if the plan says that they are given.
    """

    pipeline: beam.Pipeline
    plan: PrivacyPlan
    run_key: RunKey = dataclasses.field(repr=False)
    shards: int
    store: SetStore | None
    vocabulary: Sequence[str] | None

    def give_words(self, length: int) -> PCollection[GramSet]:
        """Creates a public vocabulary as S_1."""
        words = public_vocabulary(self.vocabulary or ())
        store = None
        if self.store is not None and self.store.from_launch:
            limit = min(self.store.limit, _LARGEST_CONSTANT)
            store = dataclasses.replace(self.store, limit=limit)
        created = beam.Create([spill(words, store)])
        return cast("PCollection[GramSet]", self.pipeline | f"{length}/Given" >> created)

    def unite_words(self, length: int, users: PCollection[UserBatch]) -> PCollection[GramSet]:
        """Applies `ReleaseItems`."""
        union = union_plan(self.plan)
        release = ReleaseItems(plan=union, run_key=self.run_key, ranges=self.shards)
        found = users | f"{length}/ReleaseItems" >> release
        name = beam.Map(as_vocabulary, union=union, store=self.store).with_output_types(GramSet)
        return cast("PCollection[GramSet]", found | f"{length}/Words" >> name)

    def prune(
        self,
        length: int,
        users: PCollection[UserBatch],
        previous: PCollection[GramSet],
        present: PCollection[PresentGrams] | None,
    ) -> PCollection[UserBatch]:
        """Applies `PruneInvalid`."""
        prune = PruneInvalid(released=previous, present=present, pruning=self.plan.pruning)
        return cast("PCollection[UserBatch]", users | f"{length}/PruneInvalid" >> prune)

    def limit(self, length: int, users: PCollection[UserBatch]) -> PCollection[Contributions]:
        """Applies `ExtractGrams` and `LimitContributions`."""
        limit = LimitContributions(
            length=length,
            max_contributions=self.plan.contribution_limits[length - 1],
            run_key=self.run_key,
        )
        extracted = users | f"{length}/ExtractGrams" >> ExtractGrams(length=length)
        return cast(
            "PCollection[Contributions]", extracted | f"{length}/LimitContributions" >> limit
        )

    def spend(
        self,
        length: int,
        round_number: int,
        users: PCollection[UserBatch],
        previous: PCollection[GramSet] | None,
        present: Sequence[PCollection[PresentGrams]],
    ) -> tuple[PCollection[Contributions], PCollection[UserBatch]]:
        """Applies `SpendBudgets`."""
        spend = SpendBudgets(
            plan=self.plan,
            length=length,
            round_number=round_number,
            previous=previous,
            present=tuple(present),
            run_key=self.run_key,
        )
        label = self._label(length, round_number)
        spent = cast("SpendResult", users | f"{label}/SpendBudgets" >> spend)
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
        still_open: PCollection[HistogramShard] | None,
    ) -> PCollection[HistogramShard]:
        """Applies `WeightedHistogram`."""
        weighted = WeightedHistogram(shards=self.shards, spurious=drawn, open_shards=still_open)
        label = self._label(length, round_number)
        histogram = sent | f"{label}/WeightedHistogram" >> weighted
        return cast("PCollection[HistogramShard]", histogram)

    def decide_round(
        self,
        length: int,
        round_number: int,
        histogram: PCollection[HistogramShard],
        previous: PCollection[GramSet] | None,
    ) -> tuple[PCollection[PresentGrams], PCollection[HistogramShard]]:
        """Applies `DecideRound`."""
        decide = DecideRound(
            round_number=round_number,
            rule_for=self._rule_for(length),
            previous=previous,
            run_key=self.run_key,
            store=self.store,
        )
        label = self._label(length, round_number)
        decided = cast("RoundResult", histogram | f"{label}/DecideRound" >> decide)
        return decided.present, decided.open_shards

    def release(
        self,
        length: int,
        histogram: PCollection[HistogramShard],
        previous: PCollection[GramSet] | None,
    ) -> PCollection[GramSet]:
        """Applies `NoisyThreshold`."""
        threshold = NoisyThreshold(
            rule_for=self._rule_for(length),
            previous=previous,
            run_key=self.run_key,
            store=self.store,
        )
        label = self._label(length, self.plan.rounds_of(length))
        found = histogram | f"{label}/NoisyThreshold" >> threshold
        return cast("PCollection[GramSet]", found)

    def _rule_for(self, length: int) -> Callable[[GramSet], LengthRule]:
        return rule_for(self.plan, length, self.run_key)

    def _label(self, length: int, round_number: int) -> str:
        return f"{length}/{round_number}" if self.plan.is_adaptive else f"{length}"
