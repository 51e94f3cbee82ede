"""The transforms of hash ranges on Beam: they add up weights, draw spurious n-grams, and decide."""

import dataclasses
import functools
import json
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar, cast

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsSingleton, PCollection

from beam_dpne.elements import progress
from beam_dpne.elements.bundles import SumBundle, UnhintedTransform, apply
from beam_dpne.elements.encoding import SetStore, spill
from beam_dpne.lists.left_out import LeftOut
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import LengthRule
from beam_dpne.ngrams import decisions
from beam_dpne.ngrams.elements import ROOT, Contributions, GramSet, HistogramShard, PresentGrams
from beam_dpne.ngrams.histogram import (
    cut_by_hash_range,
    empty_ranges,
    merge_shards,
    shard_open,
    sum_contributions,
    sum_pieces,
)
from beam_dpne.ngrams.length_rules import counted_classes, held_sums, rule_for
from beam_dpne.ngrams.plan import NgramsPlan
from beam_dpne.ngrams.spurious import sample_spurious
from beam_dpne.validation import check_integer

_Out = TypeVar("_Out")


@dataclasses.dataclass(eq=False, kw_only=True)
class WeightedHistogram(beam.PTransform):
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
      previous: PCollection of one `GramSet`, S_{k−1}, in the first round of k ≥ 2, so that every hash
        range has a shard: spurious n-grams are drawn for all of them.
      open_pieces: what `DecideRound` left open of the round before. Its n-grams, and no others, are in
        the histogram, with the sums of earlier rounds; None in the first round.

    Example:
      >>> import numpy as np
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import WeightedHistogram
      >>> from beam_dpne.steps import Contributions, GramSet
      >>> grams = Contributions(length=2, users=np.array([[1, 2], [3, 4]], np.uint64),
      ...                       offsets=np.array([0, 1, 2]), keys=np.array([7, 7]),
      ...                       weights=np.array([2**32, 2**31]))
      >>> words = GramSet(length=1, keys=np.arange(9), scores=np.ones(9), vocabulary_size=9)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     previous = pipeline | "S_1" >> beam.Create([words])
      ...     histogram = pipeline | beam.Create([grams]) | WeightedHistogram(previous=previous)
      ...     _ = histogram | beam.Map(lambda shard: print(shard.keys, shard.weights / 2**32))
      [7] [1.5]

    References: DPNE Algorithm 1, "Build a weighted histogram".
    """

    histogram_ranges: int = 1
    previous: PCollection[GramSet] | None = None
    open_pieces: PCollection[tuple[int, HistogramShard]] | None = None

    def __post_init__(self):
        super().__init__()
        check_integer("histogram_ranges", self.histogram_ranges, 1)

    def expand(self, contributions: PCollection[Contributions]) -> PCollection[HistogramShard]:
        """Sums within bundles, shuffles by hash range, sums over bundles."""
        keyed = tuple[int, HistogramShard]
        ranges = self.histogram_ranges
        # What the sums of users join: n-grams that are open, or an empty piece of every range.
        others = self.open_pieces
        if self.previous is not None:
            every = beam.FlatMap(empty_ranges, ranges)
            others = apply(self.previous, "EveryRange", every, keyed)
        sum_bundle = SumBundle(
            sum_batch=functools.partial(_checked_sums, has_others=others is not None),
            merge=sum_pieces,
            cut=functools.partial(cut_by_hash_range, ranges=ranges),
        )
        pieces = apply(contributions, "SumBundle", beam.ParDo(sum_bundle), keyed)
        if others is not None:
            pieces = apply((pieces, others), "Meet", beam.Flatten(), keyed)
        grouped = pieces | "ByHashRange" >> beam.GroupByKey()
        merge = beam.MapTuple(lambda number, pieces: merge_shards(pieces, (number, ranges)))
        return apply(grouped, "SumShard", merge, HistogramShard)


def _checked_sums(element: Contributions, *, has_others: bool) -> HistogramShard:
    if element.length * element.round > 1 and not has_others:
        raise ValueError(
            "WeightedHistogram needs previous=… at length 2 and more, so that spurious n-grams are "
            "drawn for every hash range, and in later rounds open_pieces=… of DecideRound."
        )
    return sum_contributions(element)


@dataclasses.dataclass(eq=False, kw_only=True)
class SampleSpurious(UnhintedTransform):
    """Draws the k-grams of V_k that noise alone would lift over the threshold.

    Each member of V_k is drawn independently with probability p, which is Φ̄(ρ_k/σ_k) for one round.
    For this, a Poisson number of uniform draws with mean −|V_k| log(1 − p) is made, and duplicates are
    merged. `NoisyThreshold` drops those that somebody holds, which leaves an independent Bernoulli(p)
    for each of the rest. So the observed k-grams are never counted. With "adaptive", a noisy count of
    the held candidates of each group decides the rule, and with it p (see `length_rules`).

    Input: PCollection of one `GramSet`, S_{k−1}, k ≥ 2.

    Output: PCollection of one `HistogramShard`, what was drawn of all hash ranges, with the rule of the
    length.

    Privacy: for one round, a function of a released set. With "adaptive", counts have noise of standard
    deviation s, and `SpendBudgets` charges each user for the distance by which the user moves them. The
    n-grams that nobody holds are private only together with the rest of the output of `NoisyThreshold`.

    Cost: one AES block and a binary search for each of about η·|S_{k−1}| draws.

    Attributes:
      plan: the plan of the run.
      run_key: the secret of the run.
      histogram: `HistogramShard` of round 1 with tallies, one for each hash range ("adaptive" only);
        without it nothing is counted.

    Example:
      >>> import numpy as np
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import NgramsPlan, RunKey, SampleSpurious
      >>> from beam_dpne.steps import GramSet
      >>> plan = NgramsPlan(epsilon=1, delta=1e-7, strategy="one_round", spurious_fraction=0.5)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     vocabulary = pipeline | beam.Create([GramSet(
      ...         length=1, keys=np.arange(99), scores=np.ones(99), vocabulary_size=99)])
      ...     spurious = vocabulary | SampleSpurious(plan=plan, run_key=RunKey.generate())
      ...     _ = spurious | beam.Map(lambda spurious: print(10 < len(spurious.keys) < 90))
      True

    References: DPNE appendix A, Algorithm 1, "Add spurious k-grams"; Poisson thinning.
    """

    plan: NgramsPlan
    run_key: RunKey = dataclasses.field(repr=False)
    histogram: PCollection[HistogramShard] | None = None

    def expand(self, previous: PCollection[GramSet]) -> PCollection[HistogramShard]:
        """Adds up the hash ranges' parts of the counts, and draws by the rule that follows."""
        counts = []
        if self.histogram is not None:
            held = beam.Map(_held, AsSingleton(previous), stddev=self.plan.held_stddev)
            counts = [AsIter(apply(self.histogram, "Held", held, str))]
        draw = beam.Map(_draw, *counts, plan=self.plan, run_key=self.run_key)
        return apply(previous, "Draw", draw, HistogramShard)


class RoundResult(NamedTuple):
    """The result of `DecideRound`.

    Attributes:
      present: PCollection of one `PresentGrams`: the n-grams that are open or found.
      open_pieces: PCollection of (hash range, `HistogramShard`): the same n-grams with sums, as
        `WeightedHistogram` takes them in the next round.
    """

    present: PCollection[PresentGrams]
    open_pieces: PCollection[tuple[int, HistogramShard]]


@dataclasses.dataclass(eq=False, kw_only=True)
class _Decision(UnhintedTransform):
    """The parameters and the first step of `NoisyThreshold` and `DecideRound`."""

    run_key: RunKey = dataclasses.field(repr=False)
    rule: LengthRule | None = None
    root: GramSet = ROOT
    previous: PCollection[GramSet] | None = None
    spurious: PCollection[HistogramShard] | None = None
    store: SetStore | None = None

    def _decided(
        self,
        histogram: PCollection[HistogramShard],
        then: Callable[[HistogramShard], Iterable[_Out]],
        kind: type[_Out],
    ) -> PCollection[_Out]:
        """Decides each shard, and returns what `then` yields of it: elements of one type."""
        drawn = None if self.spurious is None else AsSingleton(self.spurious)
        step = beam.FlatMap(_decide, drawn, then=then, rule=self.rule, run_key=self.run_key)
        return apply(histogram, "Decide", step, kind)

    def _before(self, histogram: PCollection[HistogramShard]) -> PCollection[GramSet]:
        """Returns S_{k−1}, or at length 1 the root, the empty n-gram alone."""
        if self.previous is not None:
            return self.previous
        return cast("PCollection[GramSet]", histogram.pipeline | "Root" >> beam.Create([self.root]))


@dataclasses.dataclass(eq=False, kw_only=True)
class NoisyThreshold(_Decision):
    """Releases the n-grams whose evidence, weights plus noise, exceeds the threshold in some round.

    Noise is keyed by the n-gram, so every worker adds the same noise to it. A noisy weight is released
    as its cell only (`mechanism.thresholds`). Drawn spurious n-grams that somebody holds are dropped,
    since they are decided by the noise on their weights. At length 1 only words with a positive weight
    may be released.

    Input: `HistogramShard` of the last round.

    Output: PCollection of one `GramSet`, S_k, sorted. Spurious and real n-grams are indistinguishable
    in it.

    Privacy: with one round it is the Gaussian mechanism at σ_k, if every user moves H_k by at most 1 in
    ℓ2 and S_{k−1} is private; `adaptive` has the argument for several rounds. At k ≥ 2 spurious n-grams
    must come with the histogram; at k = 1 ρ_1 must be so high that words of one user rarely pass it.

    Cost: r AES blocks for each n-gram that is open in round r; all released ones meet on one worker.

    Attributes:
      run_key: the secret of the run.
      rule: the rule of words, `rule_for(plan)` (k = 1).
      root: the root, where no `previous` is given (k = 1): `ROOT`, or `GROUPED_ROOT` if words have
        groups in front of them.
      previous: PCollection of one `GramSet`, S_{k−1}, and at length 1 the root of known n-grams, if
        there are any.
      spurious: the output of `SampleSpurious`, which has the rule, in the first round of k ≥ 2.
      store: the folder for a set that is too large for an element; with None every set is one element.
      left_out: what the rules of texts leave out, which is never released; the same at all lengths.

    Example:
      >>> import numpy as np, pyarrow as pa
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import NoisyThreshold, RunKey
      >>> from beam_dpne.steps import HistogramShard, length_rule
      >>> shard = HistogramShard(
      ...     length=1, keys=np.arange(2), weights=np.array([9, 90]) << 32,
      ...     words=pa.array(["a", "b"]), word_hashes=np.array([[1, 2], [3, 4]], np.uint64))
      >>> rule = length_rule(length=1, noise_stddev=1.0, threshold=30.0)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     decide = NoisyThreshold(rule=rule, run_key=RunKey.generate())
      ...     released = pipeline | beam.Create([shard]) | decide
      ...     _ = released | beam.Map(lambda released: print(released.words[0]))
      b

    References: DPNE Algorithm 1, "Add noise to H_k and output k-grams which cross the threshold";
    appendix B, Algorithm 5 at length 1.
    """

    left_out: LeftOut | None = None

    def expand(self, histogram: PCollection[HistogramShard]) -> PCollection[GramSet]:
        """Decides each shard, then sorts the released n-grams into one set."""
        parts = self._decided(histogram, lambda shard: [decisions.released_part(shard)], GramSet)
        sort = beam.Map(
            _merge_released,
            AsIter(parts),
            rule=self.rule,
            left_out=self.left_out,
            store=self.store,
        )
        return apply(self._before(histogram), "Sort", sort, GramSet)


@dataclasses.dataclass(eq=False, kw_only=True)
class DecideRound(_Decision):
    """Decides a round that is not a length's last: it finds n-grams, leaves them open or closes them.

    An n-gram is found for good if its evidence is above the threshold, and closed for good below the
    cut. Drawn spurious n-grams that somebody holds are dropped in the first round; the others are among
    the found ones.

    Input: `HistogramShard` of a round.

    Output: `RoundResult`.

    Privacy: releases nothing; `NoisyThreshold` decides which n-grams of this length are released. Users
    then spend by the states and cells of their n-grams, which follow from noisy evidence.

    Cost: the same as for `NoisyThreshold`; the present n-grams meet on one worker.

    Attributes:
      round_number: r ≥ 1.
      run_key, rule, root, previous, spurious, store: as for `NoisyThreshold`.

    Example:
      >>> import numpy as np
      >>> import pyarrow as pa
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import NgramsPlan, RunKey
      >>> from beam_dpne.steps import DecideRound, HistogramShard, rule_for
      >>> plan = NgramsPlan(epsilon=1, delta=1e-7)
      >>> shard = HistogramShard(
      ...     length=1, keys=np.arange(2), weights=np.array([0, 90]) << 32,
      ...     words=pa.array(["a", "b"]), word_hashes=np.array([[1, 2], [3, 4]], np.uint64))
      >>> key = RunKey.generate()
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     decided = pipeline | beam.Create([shard]) | DecideRound(
      ...         round_number=1, rule=rule_for(plan), run_key=key)
      ...     _ = decided.present | beam.Map(lambda present: print(present.words[-1]))
      b

    References: none; the strategy is new in this project, see `adaptive`.
    """

    round_number: int

    def expand(self, histogram: PCollection[HistogramShard]) -> RoundResult:
        """Decides each shard, then sorts the n-grams that are open or found into one set."""
        # The pieces are the only output of the stage that decides, so that engines write them once.
        pieces = self._decided(histogram, shard_open, tuple[int, HistogramShard])
        sort = beam.Map(
            _merge_present,
            AsIter(pieces),
            round_number=self.round_number,
            store=self.store,
            run_key=self.run_key,
        )
        return RoundResult(apply(self._before(histogram), "Sort", sort, PresentGrams), pieces)


def _decide(
    shard: HistogramShard,
    drawn: HistogramShard | None,
    *,
    then: Callable[[HistogramShard], Iterable[_Out]],
    rule: LengthRule | None,
    run_key: RunKey,
) -> Iterable[_Out]:
    progress.enter("decide", shard.length, shard.round)
    return then(decisions.decide(shard, drawn=drawn, rule=rule, run_key=run_key))


def _held(shard: HistogramShard, previous: GramSet, *, stddev: float) -> str:
    # Integers of any size, as text.
    return json.dumps(held_sums(shard, counted_classes(previous, stddev)))


def _draw(
    previous: GramSet, counts: Iterable[str] = (), *, plan: NgramsPlan, run_key: RunKey
) -> HistogramShard:
    rule = rule_for(plan, previous, run_key, [json.loads(part) for part in counts])
    return sample_spurious(previous, rule=rule, run_key=run_key)


def _merge_present(
    previous: GramSet,
    pieces: Iterable[tuple[int, HistogramShard]],
    *,
    round_number: int,
    store: SetStore | None,
    run_key: RunKey,
) -> PresentGrams:
    # One part at a time, since a shard is larger than what stands of it.
    parts = (decisions.present_part(shard) for _, shard in pieces)
    # The set is as secret as the data: a file's name made of its content alone would confirm a guess.
    key = run_key.sub_key("stored", previous.length + 1, round_number)
    return spill(decisions.merge_present(parts, previous, round_number), store, key)


def _merge_released(
    previous: GramSet,
    parts: Iterable[GramSet],
    *,
    rule: LengthRule | None,
    left_out: LeftOut | None,
    store: SetStore | None,
) -> GramSet:
    released = spill(decisions.merge_released(parts, previous, rule, left_out), store)
    progress.enter(progress.RELEASED, released.length)
    return released
