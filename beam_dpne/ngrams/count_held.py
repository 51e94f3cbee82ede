"""CountHeld: the private count of held candidates, the rule that follows, and its spurious n-grams."""

import dataclasses
import json
from collections.abc import Iterable

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsSingleton, PCollection

from beam_dpne.elements.batches import UnhintedTransform, apply
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams import held_counts
from beam_dpne.ngrams.elements import GramSet, HistogramShard, SpuriousGrams
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.spurious import sample_spurious


@dataclasses.dataclass(eq=False, kw_only=True)
class CountHeld(UnhintedTransform):
    """Counts the held candidates of each group, and gives the sums of round 1 the rule that follows.

    Input: `HistogramShard` of round 1 with tallies, one for each hash range.

    Output: `HistogramShard` with its rule and its drawn spurious n-grams.

    Privacy: the counts have noise of standard deviation s, and `SpendBudgets` charges each user for the
    distance by which the user moves them. Sums and tallies stay private.

    Cost: a few numbers for each hash range; the drawn n-grams are a side input.

    Attributes:
      plan: the plan of the run, with strategy "adaptive".
      length: k ≥ 2.
      histogram_ranges: the number of hash ranges.
      previous: PCollection of one `GramSet`, S_{k−1}.
      run_key: the secret of the run.

    Raises:
      ValueError: if the plan has another strategy, or length < 2.

    Example:
      >>> import numpy as np
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import CountHeld, GramSet, HistogramShard, PrivacyPlan, RunKey
      >>> words = GramSet(length=1, keys=np.arange(20), scores=np.ones(20), vocabulary_size=20)
      >>> shard = HistogramShard(  # 5 of 400 candidates are held
      ...     length=2, keys=np.arange(5), weights=np.zeros(5, np.int64), range_number=0,
      ...     classes=np.zeros(5, np.int16), tallies=np.full(5, 2**24))
      >>> plan = PrivacyPlan(epsilon=8, delta=1e-5, max_length=2)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     previous = pipeline | "words" >> beam.Create([words])
      ...     counted = pipeline | beam.Create([shard]) | CountHeld(
      ...         plan=plan, length=2, histogram_ranges=1, previous=previous,
      ...         run_key=RunKey.generate())
      ...     groups = counted | beam.Map(lambda shard: shard.rule.groups[0])
      ...     _ = groups | beam.Map(lambda g: print(int(g.candidates), 250 < g.noisy_unheld < 550))
      400 True

    References: none; `held_counts` has the formulas and why they are private.
    """

    plan: PrivacyPlan
    length: int
    histogram_ranges: int
    previous: PCollection[GramSet]
    run_key: RunKey = dataclasses.field(repr=False)

    def __post_init__(self):
        super().__post_init__()
        if not self.plan.strategy_value.has_classes:
            raise ValueError(
                f"plan must have strategy='adaptive', got strategy={self.plan.strategy!r}; use "
                "SampleSpurious."
            )
        if self.length < 2:
            raise ValueError(f"length must be at least 2, got length={self.length}.")

    def expand(self, histogram: PCollection[HistogramShard]) -> PCollection[HistogramShard]:
        """Adds up the hash ranges' parts of the counts, decides, draws, and brings both together."""
        previous = AsSingleton(self.previous)
        sums = apply(histogram, "Held", beam.Map(_held, previous, plan=self.plan), str)
        draw = beam.Map(
            _draw, AsIter(sums), plan=self.plan, length=self.length, run_key=self.run_key
        )
        drawn = AsSingleton(apply(self.previous, "Draw", draw, SpuriousGrams))
        meet = beam.Map(held_counts.meet_spurious, drawn, histogram_ranges=self.histogram_ranges)
        return apply(histogram, "Meet", meet, HistogramShard)


def _held(shard: HistogramShard, previous: GramSet, *, plan: PrivacyPlan) -> str:
    counted = held_counts.counted_classes(previous, plan.held_stddev)
    # Integers of any size, as text.
    return json.dumps(held_counts.held_sums(shard, counted))


def _draw(
    previous: GramSet, sums: Iterable[str], *, plan: PrivacyPlan, length: int, run_key: RunKey
) -> SpuriousGrams:
    parts = [json.loads(part) for part in sums]
    rule = held_counts.counted_rule(previous, parts, plan=plan, length=length, run_key=run_key)
    return sample_spurious(previous, rule=rule, run_key=run_key)
