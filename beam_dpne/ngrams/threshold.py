"""NoisyThreshold and SampleSpurious: which grams are released, held by somebody or not."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import NamedTuple, cast

import apache_beam as beam
from apache_beam.pvalue import AsIter, PCollection
from apache_beam.typehints.decorators import IOTypeHints

from beam_dpne.elements import progress
from beam_dpne.elements.coders import spill
from beam_dpne.elements.side_inputs import SetStore
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import LengthRule
from beam_dpne.ngrams import decisions
from beam_dpne.ngrams.elements import ROOT, GramSet, HistogramShard, PresentGrams, SpuriousGrams


class RoundResult(NamedTuple):
    """What `DecideRound` returns.

    Attributes:
      present: PCollection of one `PresentGrams`: what users may spend on, or have found.
      open_shards: PCollection of `HistogramShard`: the same, with its sums, for the next round.
    """

    present: PCollection[PresentGrams]
    open_shards: PCollection[HistogramShard]


@dataclasses.dataclass(eq=False, kw_only=True)
class NoisyThreshold(beam.PTransform):
    """Releases the grams whose weight plus Gaussian noise exceeds the threshold.

    Noise is keyed by the gram, so any worker that sees it adds the same. Of a noisy weight only its
    cell leaves (see `mechanism`). Drawn spurious grams that somebody holds are dropped: those have
    been decided by their own noise. At length 1 only words with a positive weight may be released.

    Input: `HistogramShard` of the last round; at length 2 and more each with its rule, see
    `WeightedHistogram`.

    Output: PCollection of one `GramSet`, S_k, sorted: nothing in it tells spurious from held.

    Privacy: the Gaussian mechanism at σ_k, if every user moves H_k by at most 1 in ℓ2, S_{k−1} is
    private, and, at k ≥ 2, spurious grams come with it, at k = 1, ρ_1 covers words of one user.

    Cost: one AES block for each observed gram; the released grams meet on one worker.

    Attributes:
      rule_for: maps S_{k−1} to σ_k and ρ_k: a function of released sets only. `OneRound(plan=…,
        run_key=…).rule_for(k)` is the paper's.
      previous: PCollection of one `GramSet`, S_{k−1}; None at length 1.
      run_key: secret of the run.
      store: where a set goes that is too large for an element; None: every set is one element.

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

    rule_for: Callable[[GramSet], LengthRule]
    run_key: RunKey = dataclasses.field(repr=False)
    previous: PCollection[GramSet] | None = None
    store: SetStore | None = None

    def __post_init__(self):
        super().__init__()

    def expand(self, histogram: PCollection[HistogramShard]) -> PCollection[GramSet]:
        """Decides each shard, then sorts what is released into one set."""
        previous, first = _root(self, histogram)
        decide_shard = beam.FlatMap(_decide_and_report, first=first, run_key=self.run_key)
        decided = histogram | "Decide" >> decide_shard.with_output_types(GramSet)
        beside = AsIter(cast("PCollection[GramSet]", decided))
        sort = beam.Map(_merge_and_report, beside, rule_for=self.rule_for, store=self.store)
        return cast("PCollection[GramSet]", previous | "Sort" >> sort.with_output_types(GramSet))


@dataclasses.dataclass(eq=False, kw_only=True)
class SampleSpurious(beam.PTransform):
    """Draws the k-grams of V_k that noise alone would lift over the threshold.

    Each member of V_k is drawn with probability p = Φ̄(ρ_k/σ_k), independently: a Poisson number of
    uniform draws with mean −|V_k| log(1 − p), duplicates merged. `NoisyThreshold` drops those that
    somebody holds, which leaves independent Bernoulli(p) on the rest; nobody counts the observed.

    Input: PCollection of one `GramSet`, S_{k−1}, k ≥ 2.

    Output: PCollection of one `SpuriousGrams`.

    Privacy: a function of a released set; what is left after thinning is private only as a part of
    `NoisyThreshold`.

    Cost: one block and a binary search for each draw, about η·|S_{k−1}| of them.

    Attributes:
      rule_for: maps S_{k−1} to σ_k and ρ_k, as for `NoisyThreshold`.
      run_key: secret of the run.

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
        """Applies `decisions.sample_spurious` to S_{k−1}."""
        return cast(
            "PCollection[SpuriousGrams]",
            previous
            | "Draw"
            >> beam.Map(_sample, rule_for=self.rule_for, run_key=self.run_key).with_output_types(
                SpuriousGrams
            ),
        )


@dataclasses.dataclass(eq=False, kw_only=True)
class DecideRound(beam.PTransform):
    """Decides a round that is not a length's last: what is found, what stays open.

    Evidence above the threshold is found for good; below the cut a gram is closed for good. Drawn
    spurious grams that somebody holds are dropped in the first round; the others wait for the last.

    Input: `HistogramShard` of a round; at length 2 and more each with its rule.

    Output: `RoundResult`.

    Privacy: nothing is released; what leaves this length is what `NoisyThreshold` makes of it. Users
    learn what stands, and spend by it: a function of noisy evidence only.

    Cost: as `NoisyThreshold`; what stands meets on one worker.

    Attributes:
      round_number: r ≥ 1.
      rule_for: as for `NoisyThreshold`.
      previous: PCollection of one `GramSet`, S_{k−1}; None at length 1.
      run_key: secret of the run.
      store: where a set goes that is too large for an element; None: every set is one element.

    Example:
      >>> import numpy as np
      >>> import pyarrow as pa
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import Adaptive, DecideRound, HistogramShard, PrivacyPlan, RunKey
      >>> plan = PrivacyPlan(epsilon=1, delta=1e-7)
      >>> shard = HistogramShard(
      ...     length=1, keys=np.arange(2), weights=np.array([0, 90]) << 32,
      ...     words=pa.array(["a", "b"]), word_hashes=np.array([[1, 2], [3, 4]], np.uint64))
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     decided = pipeline | beam.Create([shard]) | DecideRound(
      ...         round_number=1, rule_for=Adaptive(plan=plan).rule_for(1), run_key=RunKey.generate())
      ...     _ = decided.present | beam.Map(lambda present: print(present.words[-1]))
      b

    References: none; the strategy is this project's own, see `adaptive`.
    """

    round_number: int
    rule_for: Callable[[GramSet], LengthRule]
    run_key: RunKey = dataclasses.field(repr=False)
    previous: PCollection[GramSet] | None = None
    store: SetStore | None = None

    def __post_init__(self):
        super().__init__()

    def default_type_hints(self) -> IOTypeHints:
        """None: Beam would log a warning about a result that is a named tuple."""
        return IOTypeHints.empty()

    def expand(self, histogram: PCollection[HistogramShard]) -> RoundResult:
        """Decides each shard, then sorts what stands into one set."""
        previous, first = _root(self, histogram)
        decide_shard = beam.FlatMap(
            _decide_round_and_report,
            round_number=self.round_number,
            first=first,
            run_key=self.run_key,
        )
        decided = histogram | "Decide" >> decide_shard.with_output_types(HistogramShard)
        parts = decided | "Standing" >> beam.Map(decisions.present_part).with_output_types(
            PresentGrams
        )
        beside = AsIter(cast("PCollection[PresentGrams]", parts))
        sort = beam.Map(
            _merge_present_and_keep,
            beside,
            round_number=self.round_number,
            store=self.store,
            run_key=self.run_key,
        )
        present = previous | "Sort" >> sort.with_output_types(PresentGrams)
        return RoundResult(
            cast("PCollection[PresentGrams]", present),
            cast("PCollection[HistogramShard]", decided),
        )


def _root(
    transform: "NoisyThreshold | DecideRound", histogram: PCollection[HistogramShard]
) -> tuple[PCollection[GramSet], LengthRule | None]:
    """Returns S_{k−1}, at length 1 the root and the rule.

    At length 1 the rule is the same before any data; later it comes with the spurious grams.
    """
    if transform.previous is not None:
        return transform.previous, None
    root = histogram.pipeline | "Root" >> beam.Create([ROOT])
    return cast("PCollection[GramSet]", root), transform.rule_for(ROOT)


def _rule_of(shard: HistogramShard, first: LengthRule | None) -> LengthRule:
    rule = first or shard.rule
    if rule is None:
        raise ValueError(
            "NoisyThreshold needs shards with a rule at length 2 and more: they get it from "
            "SampleSpurious in WeightedHistogram(spurious=…)."
        )
    if shard.length != rule.length:
        raise ValueError(f"A rule of length {rule.length} cannot decide length {shard.length}.")
    progress.enter("decide", shard.length)
    return rule


def _decide_and_report(
    shard: HistogramShard, *, first: LengthRule | None, run_key: RunKey
) -> list[GramSet]:
    rule = _rule_of(shard, first)
    if not rule.rounds:
        return []
    if shard.round != len(rule.rounds):
        raise ValueError(
            f"NoisyThreshold decides the last of {len(rule.rounds)} rounds, got round {shard.round}."
        )
    released = decisions.decide(shard, rule=rule, run_key=run_key)
    return [dataclasses.replace(released, rule=rule)] if len(released) else []


def _decide_round_and_report(
    shard: HistogramShard, *, round_number: int, first: LengthRule | None, run_key: RunKey
) -> list[HistogramShard]:
    rule = _rule_of(shard, first)
    if not rule.rounds:
        return []
    if shard.round != round_number or round_number >= len(rule.rounds):
        raise ValueError(
            f"DecideRound({round_number=}) decides no last round and no other one, got round "
            f"{shard.round} of {len(rule.rounds)}."
        )
    after = decisions.decide_round(shard, rule=rule, run_key=run_key)
    return [after] if after.keys.size + after.spurious_keys.size else []


def _merge_present_and_keep(
    previous: GramSet,
    parts: Iterable[PresentGrams],
    *,
    round_number: int,
    store: SetStore | None,
    run_key: RunKey,
) -> PresentGrams:
    key = run_key.sub_key("stored", previous.length + 1, round_number)
    return spill(decisions.merge_present(parts, previous, round_number), store, key)


def _merge_and_report(
    previous: GramSet,
    parts: Iterable[GramSet],
    *,
    rule_for: Callable[[GramSet], LengthRule],
    store: SetStore | None,
) -> GramSet:
    rule = rule_for(previous)
    if rule.length != previous.length + 1:
        raise ValueError(
            f"NoisyThreshold at length {rule.length} needs previous=S_{rule.length - 1}, "
            f"got S_{previous.length}."
        )
    parts = list(parts)
    for part in parts:
        if part.rule is None or not part.rule.is_close_to(rule):
            raise ValueError(
                f"NoisyThreshold and SampleSpurious must have one rule_for at length {rule.length}."
            )
        # The rule that has decided: another machine's last digit may differ.
        rule = part.rule
    progress.enter("released", rule.length)
    return spill(decisions.merge_released(parts, previous, rule), store)


def _sample(
    previous: GramSet,
    *,
    rule_for: Callable[[GramSet], LengthRule],
    run_key: RunKey,
) -> SpuriousGrams:
    return decisions.sample_spurious(previous, rule=rule_for(previous), run_key=run_key)
