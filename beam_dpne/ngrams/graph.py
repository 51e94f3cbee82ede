"""The driver on Beam: the loop over lengths and rounds as a graph of labelled transforms.

Engines write a stage's outputs anew for each of their readers, and each stage costs them time whatever
its data are. So stages have few outputs here, and steps share what they can.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, cast

import apache_beam as beam
from apache_beam.pvalue import PCollection

from beam_dpne.elements.batches import UserBatch
from beam_dpne.elements.side_inputs import SetStore
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.candidates import ExtractGrams, PruneInvalid
from beam_dpne.ngrams.contributions import LimitContributions, SpendBudgets, SpendResult
from beam_dpne.ngrams.count_held import CountHeld
from beam_dpne.ngrams.elements import ROOT, GramSet, HistogramShard, PresentGrams
from beam_dpne.ngrams.histogram import EveryRange, WeightedHistogram
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.spurious import SampleSpurious
from beam_dpne.ngrams.threshold import DecideRound, NoisyThreshold, RoundResult
from beam_dpne.ngrams.user_counts import CountUsers
from beam_dpne.ngrams.valid import rule_for


@dataclasses.dataclass(kw_only=True)
class Graph:
    """The transforms of one run.

    Attributes:
      pipeline: the pipeline of the run.
      plan: the parameters of the run.
      run_key: the secret of the run, bound to its parameters.
      histogram_ranges: the number of hash ranges of a histogram.
      store: where sets go that are too large for an element; with None every set is one element.
    """

    pipeline: beam.Pipeline
    plan: PrivacyPlan
    run_key: RunKey = dataclasses.field(repr=False)
    histogram_ranges: int
    store: SetStore | None

    def release(self, users: PCollection[UserBatch]) -> tuple[PCollection[GramSet], ...]:
        """Returns S_1, …, S_T, with numbers of users if the plan has a count_share."""
        released: list[PCollection[GramSet]] = []
        everybody, prune = users, None
        for length in range(1, self.plan.max_length + 1):
            if self.plan.strategy_value.has_user_budgets:
                found, present, after_first, users = self._rounds(length, users, prune, released)
                # Users have the same positions after the first round of length 1, and only less
                # budget. So that round's stage need not put out its input too.
                everybody = after_first if length == 1 else everybody
            else:
                present = None
                found, users = self._one_round(length, users, prune, released)
            released.append(found)
            prune = PruneInvalid(released=found, present=present, pruning=self.plan.pruning)
        if not self.plan.count_share:
            return tuple(released)
        count = CountUsers(
            plan=self.plan, released=released, run_key=self.run_key, store=self.store
        )
        return cast("tuple[PCollection[GramSet], ...]", everybody | "CountUsers" >> count)

    def _one_round(
        self,
        length: int,
        users: Any,
        prune: PruneInvalid | None,
        released: Sequence[PCollection[GramSet]],
    ) -> tuple[PCollection[GramSet], PCollection[UserBatch]]:
        """Returns S_k of the paper's strategy, and the users in terms of S_{k−1}."""
        drawn: Any = None
        if prune is not None:
            users = users | f"{length}/PruneInvalid" >> prune
            draw = SampleSpurious(
                rule_for=rule_for(self.plan, length, self.run_key), run_key=self.run_key
            )
            drawn = released[-1] | f"{length}/SampleSpurious" >> draw
        limit = LimitContributions(
            length=length,
            max_contributions=self.plan.contribution_limits[length - 1],
            run_key=self.run_key,
        )
        weighted = WeightedHistogram(histogram_ranges=self.histogram_ranges, spurious=drawn)
        grams: Any = users | f"{length}/ExtractGrams" >> ExtractGrams(length=length)
        sent: Any = grams | f"{length}/LimitContributions" >> limit
        shards: Any = sent | f"{length}/WeightedHistogram" >> weighted
        return shards | f"{length}/NoisyThreshold" >> self._threshold(length, released), users

    def _rounds(
        self,
        length: int,
        users: PCollection[UserBatch],
        prune: PruneInvalid | None,
        released: Sequence[PCollection[GramSet]],
    ) -> tuple[
        PCollection[GramSet],
        PCollection[PresentGrams] | None,
        PCollection[UserBatch],
        PCollection[UserBatch],
    ]:
        """Returns S_k, the last present set, and the users after the first and the last round."""
        last, previous = self.plan.rounds_of(length), released[-1] if released else None
        present: list[PCollection[PresentGrams]] = []
        after_rounds, still_open, shards = [users], None, None
        for number in range(1, last + 1):
            label = f"{length}/{number}"
            spend = SpendBudgets(
                plan=self.plan,
                length=length,
                round_number=number,
                previous=previous,
                present=tuple(present),
                prune=prune if number == 1 else None,
                run_key=self.run_key,
            )
            spent = cast("SpendResult", after_rounds[-1] | f"{label}/SpendBudgets" >> spend)
            after_rounds.append(spent.users)
            is_alone = length > 1 and number == 1
            weighted = WeightedHistogram(
                histogram_ranges=self.histogram_ranges,
                open_pieces=still_open,
                every_range_of=length if is_alone else None,
                empty_ranges=self._empty_ranges if is_alone else None,
            )
            shards = spent.contributions | f"{label}/WeightedHistogram" >> weighted
            if previous is not None and number == 1:
                count = CountHeld(
                    plan=self.plan,
                    length=length,
                    histogram_ranges=self.histogram_ranges,
                    previous=previous,
                    run_key=self.run_key,
                )
                shards = shards | f"{label}/CountHeld" >> count
            if number < last:
                decide = DecideRound(
                    round_number=number,
                    histogram_ranges=self.histogram_ranges,
                    **self._deciding(length, previous),
                )
                decided = cast("RoundResult", shards | f"{label}/DecideRound" >> decide)
                present.append(decided.present)
                still_open = cast("PCollection[tuple[int, HistogramShard]]", decided.open_shards)
        threshold = self._threshold(length, released)
        found: Any = shards | f"{length}/{last}/NoisyThreshold" >> threshold
        return found, present[-1] if present else None, after_rounds[1], after_rounds[-1]

    def _threshold(self, length: int, released: Sequence[PCollection[GramSet]]) -> NoisyThreshold:
        return NoisyThreshold(**self._deciding(length, released[-1] if released else None))

    def _deciding(self, length: int, previous: PCollection[GramSet] | None) -> dict[str, Any]:
        """Returns what `DecideRound` and `NoisyThreshold` share."""
        return {
            "rule_for": rule_for(self.plan, length, self.run_key),
            "previous": previous,
            "run_key": self.run_key,
            "store": self.store,
            "root": None if previous is not None else self._root,
        }

    @functools.cached_property
    def _root(self) -> PCollection[GramSet]:
        created = self.pipeline | "1/Root" >> beam.Create([ROOT])
        return cast("PCollection[GramSet]", created)

    @functools.cached_property
    def _empty_ranges(self) -> PCollection[tuple[int, HistogramShard]]:
        every = EveryRange(histogram_ranges=self.histogram_ranges)
        return cast("PCollection", self.pipeline | "EveryRange" >> every)
