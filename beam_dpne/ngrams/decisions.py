"""DecideRound and NoisyThreshold: the transforms of decisions, on one hash range after the other."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import NamedTuple, cast

import apache_beam as beam
from apache_beam.pvalue import AsIter, PCollection

from beam_dpne.elements import progress
from beam_dpne.elements.batches import DisplayedTransform, UnhintedTransform, apply
from beam_dpne.elements.coders import SetStore, spill
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import LengthRule
from beam_dpne.ngrams.elements import ROOT, GramSet, HistogramShard, PresentGrams
from beam_dpne.ngrams.histogram import shard_open
from beam_dpne.ngrams.threshold import (
    decide_round,
    has_grams,
    merge_present,
    merge_released,
    present_part,
    released_part,
)


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
class _Decision(DisplayedTransform):
    """The parameters that `NoisyThreshold` and `DecideRound` share."""

    rule_for: Callable[[GramSet], LengthRule]
    run_key: RunKey = dataclasses.field(repr=False)
    previous: PCollection[GramSet] | None = None
    store: SetStore | None = None

    def __post_init__(self):
        super().__init__()

    def _before(self, histogram: PCollection[HistogramShard]) -> PCollection[GramSet]:
        """Returns S_{k−1}, or at length 1 `ROOT`, the empty n-gram alone."""
        if self.previous is not None:
            return self.previous
        return cast("PCollection[GramSet]", histogram.pipeline | "Root" >> beam.Create([ROOT]))


@dataclasses.dataclass(eq=False, kw_only=True)
class NoisyThreshold(_Decision):
    """Releases the n-grams whose evidence, weights plus noise, exceeds the threshold in some round.

    Noise is keyed by the n-gram, so every worker adds the same noise to it. A noisy weight is released
    as its cell only (`mechanism.thresholds`). Drawn spurious n-grams that somebody holds are dropped,
    since they are decided by the noise on their weights. At length 1 only words with a positive weight
    may be released.

    Input: `HistogramShard` of the last round; at length 2 and more each with its rule, see
    `WeightedHistogram`.

    Output: PCollection of one `GramSet`, S_k, sorted. Spurious and real n-grams are indistinguishable
    in it.

    Privacy: with one round it is the Gaussian mechanism at σ_k, if every user moves H_k by at most 1 in
    ℓ2 and S_{k−1} is private; `adaptive` has the argument for several rounds. At k ≥ 2 spurious n-grams
    must come with the histogram; at k = 1 ρ_1 must be so high that words of one user rarely pass it.

    Cost: r AES blocks for each n-gram that is open in round r; all released ones meet on one worker.

    Attributes:
      rule_for: maps S_{k−1} to σ_k and ρ_k, a function of released sets only; see `rule_for`.
      previous: PCollection of one `GramSet`, S_{k−1}, and at length 1 of `ROOT`, which is created by
        default.
      run_key: the secret of the run.
      store: the folder for a set that is too large for an element; with None every set is one element.

    Example:
      >>> import numpy as np
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import GramSet, HistogramShard, NoisyThreshold, RunKey, length_rule
      >>> rule = length_rule(length=2, noise_stddev=1.0, threshold=20.0)
      >>> shard = HistogramShard(
      ...     length=2, keys=np.array([3, 4]), weights=np.array([9, 90]) << 32, rule=rule)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     vocabulary = pipeline | "S_1" >> beam.Create([GramSet(
      ...         length=1, keys=np.arange(9), scores=np.ones(9), vocabulary_size=9)])
      ...     released = pipeline | beam.Create([shard]) | NoisyThreshold(
      ...         rule_for=lambda previous: rule, previous=vocabulary, run_key=RunKey.generate())
      ...     _ = released | beam.Map(lambda released: print(released.keys))
      [4]

    References: DPNE Algorithm 1, "Add noise to H_k and output k-grams which cross the threshold";
    appendix B, Algorithm 5 at length 1.
    """

    def expand(self, histogram: PCollection[HistogramShard]) -> PCollection[GramSet]:
        """Decides each shard, then sorts the released n-grams into one set."""
        decide = beam.FlatMap(_decide, rule_for=self.rule_for, run_key=self.run_key)
        decided = apply(histogram, "Decide", decide, HistogramShard)
        parts = AsIter(apply(decided, "Released", beam.Map(_released), GramSet))
        sort = beam.Map(_merge_and_spill, parts, rule_for=self.rule_for, store=self.store)
        return apply(self._before(histogram), "Sort", sort, GramSet)


@dataclasses.dataclass(eq=False, kw_only=True)
class DecideRound(_Decision, UnhintedTransform):
    """Decides a round that is not a length's last: it finds n-grams, leaves them open or closes them.

    An n-gram is found for good if its evidence is above the threshold, and closed for good below the
    cut. Drawn spurious n-grams that somebody holds are dropped in the first round; the others wait for
    the last.

    Input: `HistogramShard` of a round; at length 2 and more each with its rule.

    Output: `RoundResult`.

    Privacy: releases nothing; `NoisyThreshold` decides which n-grams of this length are released. Users
    then spend by the states and cells of their n-grams, which follow from noisy evidence.

    Cost: the same as for `NoisyThreshold`; the present n-grams meet on one worker.

    Attributes:
      round_number: r ≥ 1.
      rule_for: the same function as for `NoisyThreshold`.
      previous: as for `NoisyThreshold`.
      run_key: the secret of the run.
      store: as for `NoisyThreshold`.
      histogram_ranges: the number of hash ranges of the next round's histogram.

    Example:
      >>> import numpy as np
      >>> import pyarrow as pa
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import DecideRound, HistogramShard, PrivacyPlan, RunKey, rule_for
      >>> plan = PrivacyPlan(epsilon=1, delta=1e-7)
      >>> shard = HistogramShard(
      ...     length=1, keys=np.arange(2), weights=np.array([0, 90]) << 32,
      ...     words=pa.array(["a", "b"]), word_hashes=np.array([[1, 2], [3, 4]], np.uint64))
      >>> key = RunKey.generate()
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     decided = pipeline | beam.Create([shard]) | DecideRound(
      ...         round_number=1, rule_for=rule_for(plan, 1, key), run_key=key)
      ...     _ = decided.present | beam.Map(lambda present: print(present.words[-1]))
      b

    References: none; the strategy is new in this project, see `adaptive`.
    """

    round_number: int
    histogram_ranges: int = 1

    def expand(self, histogram: PCollection[HistogramShard]) -> RoundResult:
        """Decides each shard, then sorts the n-grams that are open or found into one set."""
        number, key = self.round_number, self.run_key
        decide = beam.FlatMap(_decide, rule_for=self.rule_for, run_key=key, round_number=number)
        decided = apply(histogram, "Decide", decide, HistogramShard)
        # The pieces are the only output of the stage that decides, so that engines write them once.
        cut = beam.FlatMap(shard_open, histogram_ranges=self.histogram_ranges)
        pieces = apply(decided, "ShardOpen", cut, tuple[int, HistogramShard])
        sort = beam.Map(
            _merge_present, AsIter(pieces), round_number=number, store=self.store, run_key=key
        )
        return RoundResult(apply(self._before(histogram), "Sort", sort, PresentGrams), pieces)


def _decide(
    shard: HistogramShard,
    *,
    rule_for: Callable[[GramSet], LengthRule],
    run_key: RunKey,
    round_number: int | None = None,
) -> list[HistogramShard]:
    """Decides a round, by default the last one; a range in which nothing is left is dropped."""
    progress.enter("decide", shard.length)
    # At length 1 the rule does not depend on data. At length 2 and more it is in the shards.
    rule = shard.rule or (rule_for(ROOT) if shard.length == 1 else None)
    if rule is None:
        raise ValueError(
            "Shards of length 2 and more must have a rule: they get it from SampleSpurious in "
            "WeightedHistogram(spurious=…), or from CountHeld."
        )
    # Without valid n-grams nothing is released, whatever the weights are.
    if not rule.classes:
        return []
    last = len(rule.rounds)
    wanted = round_number or last
    if shard.round != wanted or (round_number is not None and wanted == last):
        raise ValueError(
            f"{'NoisyThreshold' if round_number is None else 'DecideRound'} cannot decide round "
            f"{shard.round} of {last}."
        )
    after = decide_round(shard, rule=rule, run_key=run_key)
    # With classes every range says its rule, which follows from a noisy count.
    return [after] if rule.by_prediction or has_grams(after) else []


def _released(after: HistogramShard) -> GramSet:
    rule = cast("LengthRule", after.rule)
    return dataclasses.replace(released_part(after, rule), rule=rule)


def _merge_present(
    previous: GramSet,
    pieces: Iterable[tuple[int, HistogramShard]],
    *,
    round_number: int,
    store: SetStore | None,
    run_key: RunKey,
) -> PresentGrams:
    parts = [present_part(shard) for _, shard in pieces]
    # The set is as secret as the data: a file's name made of its content alone would confirm a guess.
    key = run_key.sub_key("stored", previous.length + 1, round_number)
    return spill(merge_present(parts, previous, round_number), store, key)


def _merge_and_spill(
    previous: GramSet,
    parts: Iterable[GramSet],
    *,
    rule_for: Callable[[GramSet], LengthRule],
    store: SetStore | None,
) -> GramSet:
    parts = list(parts)
    # The rule that has decided is kept: its last digits may differ on another machine. If nothing is
    # released without classes, no part carries a rule, and it is computed again.
    rule = next((part.rule for part in parts if part.rule is not None), None) or rule_for(previous)
    progress.enter("released", rule.length)
    return spill(merge_released(parts, previous, rule), store)
