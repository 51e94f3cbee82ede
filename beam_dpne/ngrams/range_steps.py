"""The transforms of hash ranges on Beam: they add up weights, count, draw, and decide rounds."""

import dataclasses
import functools
import json
from collections.abc import Callable, Iterable

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsSingleton, PBegin, PCollection

from beam_dpne.elements.batches import DisplayedTransform, SumBundle, UnhintedTransform, apply
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import LengthRule
from beam_dpne.ngrams import held_counts
from beam_dpne.ngrams.elements import (
    Contributions,
    GramSet,
    HistogramShard,
    SpuriousGrams,
)
from beam_dpne.ngrams.histogram import (
    _sum_pieces,
    cut_by_hash_range,
    empty_ranges,
    merge_shards,
    shard_spurious,
    sum_contributions,
)
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.valid import sample_spurious


@dataclasses.dataclass(eq=False, kw_only=True)
class WeightedHistogram(DisplayedTransform):
    """Adds up the weights of each n-gram over all users.

    Sums are int64, so they do not depend on order, batches or workers. Every n-gram that somebody
    holds is in the histogram, also at weight 0.

    Input: `Contributions` with weights.

    Output: `HistogramShard`, one for each hash range; at length 1, for each that is not empty.

    Privacy: not private. `LimitContributions` bounds the distance by which one user moves H_k by 1 in
    ℓ2; `SpendBudgets` bounds it by the user's budget.

    Cost: batches are summed where they are; one shuffle of distinct (bundle, n-gram) pairs.

    Attributes:
      histogram_ranges: the number of hash ranges.
      spurious: PCollection of `SpuriousGrams` of the same length, which meet the n-grams that somebody
        holds in the same shuffle, and bring the rule that decides; None at length 1 and in later
        rounds.
      open_pieces: what `DecideRound` left open of the round before. Its n-grams, and no others, are in
        the histogram, with the sums of earlier rounds; None in the first round.
      every_range_of: the length k, if every hash range must have a shard, also without n-grams; None
        where spurious n-grams or open pieces see to that, and at length 1.
      empty_ranges: the output of `EveryRange`, which several lengths can share; with None it is made
        here if `every_range_of` is given.

    Raises:
      ValueError: if histogram_ranges < 1.

    Example:
      >>> import numpy as np
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import Contributions, SpuriousGrams, WeightedHistogram
      >>> grams = Contributions(length=2, users=np.array([[1, 2], [3, 4]], np.uint64),
      ...                       offsets=np.array([0, 1, 2]), keys=np.array([7, 7]),
      ...                       weights=np.array([2**32, 2**31]))
      >>> none = SpuriousGrams(length=2, keys=np.array([], int), cells=np.array([], int),
      ...                      rounds=np.array([], np.int8), classes=np.array([], np.int16))
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     spurious = pipeline | "none" >> beam.Create([none])
      ...     histogram = pipeline | beam.Create([grams]) | WeightedHistogram(spurious=spurious)
      ...     _ = histogram | beam.Map(lambda shard: print(shard.keys, shard.weights / 2**32))
      [7] [1.5]

    References: DPNE Algorithm 1, "Build a weighted histogram".
    """

    histogram_ranges: int = 1
    spurious: PCollection[SpuriousGrams] | None = None
    open_pieces: PCollection[tuple[int, HistogramShard]] | None = None
    every_range_of: int | None = None
    empty_ranges: PCollection[tuple[int, HistogramShard]] | None = None

    def __post_init__(self):
        super().__init__()
        if self.histogram_ranges < 1:
            raise ValueError(
                f"histogram_ranges must be at least 1, got histogram_ranges={self.histogram_ranges}."
            )

    def expand(self, contributions: PCollection[Contributions]) -> PCollection[HistogramShard]:
        """Sums within bundles, shuffles by hash range, sums over bundles."""
        keyed = tuple[int, HistogramShard]
        others = (self.spurious, self.open_pieces, self.every_range_of)
        meets = any(other is not None for other in others)
        sum_bundle = SumBundle(
            sum_batch=functools.partial(_checked_sums, meets_others=meets),
            merge=_sum_pieces,
            cut=functools.partial(cut_by_hash_range, histogram_ranges=self.histogram_ranges),
        )
        pieces = apply(contributions, "SumBundle", beam.ParDo(sum_bundle), keyed)
        ranges = self.histogram_ranges
        if self.spurious is not None:
            cut = beam.FlatMap(shard_spurious, histogram_ranges=ranges)
            meeting = (pieces, apply(self.spurious, "ShardSpurious", cut, keyed))
            pieces = apply(meeting, "MeetSpurious", beam.Flatten(), keyed)
        if self.open_pieces is not None:
            pieces = apply((pieces, self.open_pieces), "MeetOpen", beam.Flatten(), keyed)
        if self.every_range_of is not None:
            empty = self.empty_ranges
            if empty is None:
                every = EveryRange(histogram_ranges=ranges)
                empty = contributions.pipeline | "EveryRange" >> every
            pieces = apply((pieces, empty), "MeetRanges", beam.Flatten(), keyed)
        grouped = pieces | "ByHashRange" >> beam.GroupByKey()
        merge = beam.Map(_merge_range, every_range_of=self.every_range_of)
        return apply(grouped, "SumShard", merge, HistogramShard)


@dataclasses.dataclass(eq=False, kw_only=True)
class EveryRange(DisplayedTransform):
    """Creates a piece without n-grams for every hash range, which is of any length.

    Input: a pipeline.

    Output: (number of the range, `HistogramShard` of length 0) for every range.

    Attributes:
      histogram_ranges: the number of hash ranges.
    """

    histogram_ranges: int

    def __post_init__(self):
        super().__init__()

    def expand(self, pipeline: PBegin) -> PCollection[tuple[int, HistogramShard]]:
        """Creates the length 0, which stands for any, and its pieces from it."""
        cut = beam.FlatMap(empty_ranges, histogram_ranges=self.histogram_ranges)
        any_length = pipeline | "AnyLength" >> beam.Create([0])
        return apply(any_length, "Empty", cut, tuple[int, HistogramShard])


@dataclasses.dataclass(eq=False, kw_only=True)
class SampleSpurious(DisplayedTransform):
    """Draws the k-grams of V_k that noise alone would lift over the threshold.

    Each member of V_k is drawn independently with probability p, which is Φ̄(ρ_k/σ_k) for one round.
    For this, a Poisson number of uniform draws with mean −|V_k| log(1 − p) is made, and duplicates are
    merged. `NoisyThreshold` drops those that somebody holds, which leaves an independent Bernoulli(p)
    for each of the rest. So the observed k-grams are never counted.

    Input: PCollection of one `GramSet`, S_{k−1}, k ≥ 2.

    Output: PCollection of one `SpuriousGrams`.

    Privacy: a function of a released set. Those that nobody holds are private only together with the
    rest of the output of `NoisyThreshold`.

    Cost: one AES block and a binary search for each of about η·|S_{k−1}| draws.

    Attributes:
      rule_for: maps S_{k−1} to σ_k and ρ_k, as for `NoisyThreshold`.
      run_key: the secret of the run.

    Example:
      >>> import numpy as np
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import GramSet, RunKey, SampleSpurious, length_rule
      >>> rule = length_rule(length=2, noise_stddev=1.0, threshold=-1.0)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     vocabulary = pipeline | beam.Create([GramSet(
      ...         length=1, keys=np.arange(9), scores=np.ones(9), vocabulary_size=9)])
      ...     spurious = vocabulary | SampleSpurious(
      ...         rule_for=lambda previous: rule, run_key=RunKey.generate())
      ...     _ = spurious | beam.Map(lambda spurious: print(40 < len(spurious.keys) <= 81))
      True

    References: DPNE appendix A, Algorithm 1, "Add spurious k-grams"; Poisson thinning.
    """

    rule_for: Callable[[GramSet], LengthRule]
    run_key: RunKey = dataclasses.field(repr=False)

    def __post_init__(self):
        super().__init__()

    def expand(self, previous: PCollection[GramSet]) -> PCollection[SpuriousGrams]:
        """Applies `sample_spurious` to S_{k−1}."""
        draw = beam.Map(_sample, rule_for=self.rule_for, run_key=self.run_key)
        return apply(previous, "Draw", draw, SpuriousGrams)


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
        if not self.plan.is_adaptive:
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


def _merge_range(
    keyed: tuple[int, Iterable[HistogramShard]], *, every_range_of: int | None
) -> HistogramShard:
    """Adds up pieces of one hash range; those of length 0 are of the histogram's length."""
    _, pieces = keyed
    if every_range_of is None:
        return merge_shards(pieces)
    return merge_shards(
        piece if piece.length else dataclasses.replace(piece, length=every_range_of)
        for piece in pieces
    )


def _checked_sums(element: Contributions, *, meets_others: bool) -> HistogramShard:
    if element.length * element.round > 1 and not meets_others:
        raise ValueError(
            "WeightedHistogram needs spurious=… of SampleSpurious at length 2 and more: without "
            "them a released n-gram reveals that somebody holds it. In later rounds it needs "
            "open_pieces=… of DecideRound."
        )
    return sum_contributions(element)


def _sample(
    previous: GramSet, *, rule_for: Callable[[GramSet], LengthRule], run_key: RunKey
) -> SpuriousGrams:
    return sample_spurious(previous, rule=rule_for(previous), run_key=run_key)


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
