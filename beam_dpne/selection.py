"""NoisyThreshold and SampleSpurious: which grams are released, held by somebody or not."""

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import cast

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import AsIter, PCollection

from beam_dpne import mechanism, progress, randomness, valid
from beam_dpne.batches import ROOT, GramSet, HistogramShard, SpuriousGrams, kept_small
from beam_dpne.mechanism import LengthRule
from beam_dpne.randomness import RunKey
from beam_dpne.stored import SetStore


@dataclasses.dataclass(eq=False, kw_only=True)
class NoisyThreshold(beam.PTransform):
    """Releases the grams whose weight plus Gaussian noise exceeds the threshold.

    Noise is keyed by the gram, so any worker that sees it adds the same. Of a noisy weight only its
    cell leaves (see `mechanism`). Drawn spurious grams that somebody holds are dropped: those have
    been decided by their own noise. At length 1 only words with a positive weight may be released.

    Input: `HistogramShard`; at length 2 and more each with its rule, see `WeightedHistogram`.

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
        previous = self.previous
        if previous is None:
            previous = histogram.pipeline | "Root" >> beam.Create([ROOT])
        # At length 1 the rule is the same before any data; later it comes with the spurious grams.
        first = self.rule_for(ROOT) if self.previous is None else None
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
        """Applies `sample_spurious` to S_{k−1}."""
        return cast(
            "PCollection[SpuriousGrams]",
            previous
            | "Draw"
            >> beam.Map(_sample, rule_for=self.rule_for, run_key=self.run_key).with_output_types(
                SpuriousGrams
            ),
        )


def sample_spurious(previous: GramSet, *, rule: LengthRule, run_key: RunKey) -> SpuriousGrams:
    """Draws each member of V_k with probability Φ̄(ρ_k/σ_k), with the cell of its noise."""
    none = np.zeros(0, np.int64)
    length = rule.length
    members = valid.count_valid(previous, rule.pruning)
    if rule.threshold_units is None or members == 0:
        return SpuriousGrams(length=length, keys=none, cells=none, rule=rule)
    mean = -members * math.log1p(-rule.null_probability)
    blocks = np.arange(randomness.poisson_blocks(mean), dtype=np.uint64)
    count_key = run_key.sub_key("spurious count", length)
    count_bits = randomness.keyed_bits(count_key, np.uint64(0), blocks)
    draws = np.arange(randomness.poisson(count_bits, mean), dtype=np.uint64)
    bits = randomness.keyed_bits(run_key.sub_key("spurious draw", length), np.uint64(0), draws)
    keys = np.sort(valid.draw_valid(previous, rule.pruning, bits))
    keys = keys[np.diff(keys, prepend=-1) != 0]
    noise = randomness.keyed_bits(run_key.sub_key("spurious noise", length), np.uint64(0), keys)
    cells = mechanism.spurious_cells(noise, rule)
    return SpuriousGrams(length=length, keys=keys, cells=cells, rule=rule)


def decide(shard: HistogramShard, *, rule: LengthRule, run_key: RunKey) -> GramSet:
    """Returns what one hash range releases, with scores; unsorted at k = 1."""
    bits = noise_bits(shard, run_key)
    cells = mechanism.noisy_cells(shard.weights, bits, rule)
    if shard.length == 1:
        chosen = np.flatnonzero((cells >= 0) & (shard.weights > 0))
        words = None if shard.words is None else shard.words.take(pa.array(chosen))
        return GramSet(
            length=1,
            keys=np.arange(chosen.size),
            scores=mechanism.scores(cells[chosen], rule),
            words=words,
        )
    chosen = np.flatnonzero(cells >= 0)
    unheld = ~_among(shard.spurious_keys, shard.keys)
    keys = np.concatenate((shard.keys[chosen], shard.spurious_keys[unheld]))
    released_cells = np.concatenate((cells[chosen], shard.spurious_cells[unheld]))
    return GramSet(length=shard.length, keys=keys, scores=mechanism.scores(released_cells, rule))


def noise_bits(shard: HistogramShard, run_key: RunKey, round_number: int = 0) -> np.ndarray:
    """Returns the 128 keyed bits of each gram's noise; the key of a gram is injective.

    At k ≥ 2 the packed pair, at k = 1 the 128-bit keyed hash of the word.
    """
    sub_key = run_key.sub_key("noise", shard.length, round_number)
    if shard.word_hashes is not None:
        return randomness.encrypt_blocks(sub_key, shard.word_hashes)
    return randomness.keyed_bits(sub_key, np.uint64(0), shard.keys)


def merge_released(parts: Iterable[GramSet], previous: GramSet, rule: LengthRule) -> GramSet:
    """Sorts what the shards release into S_k."""
    parts = list(parts)
    scores = np.concatenate([np.zeros(0), *(part.scores for part in parts)])
    if rule.length == 1:
        words = pa.concat_arrays([pa.array([], pa.string()), *(part.words for part in parts)])
        rows = pa.table({"word": words.cast(pa.binary()), "score": scores}).sort_by("word")
        return GramSet(
            length=1,
            keys=np.arange(len(words)),
            scores=rows["score"].to_numpy(),
            words=rows["word"].cast(pa.string()).combine_chunks(),
            parent_size=1,
            vocabulary_size=len(words),
            rule=rule,
        )
    keys = np.concatenate([np.zeros(0, np.int64), *(part.keys for part in parts)])
    order = np.argsort(keys)
    return GramSet(
        length=rule.length,
        keys=keys[order],
        scores=scores[order],
        parent_size=len(previous),
        vocabulary_size=previous.vocabulary_size,
        rule=rule,
    )


def _decide_and_report(
    shard: HistogramShard, *, first: LengthRule | None, run_key: RunKey
) -> list[GramSet]:
    rule = first or shard.rule
    if rule is None:
        raise ValueError(
            "NoisyThreshold needs shards with a rule at length 2 and more: they get it from "
            "SampleSpurious in WeightedHistogram(spurious=…)."
        )
    if shard.length != rule.length:
        raise ValueError(f"A rule of length {rule.length} cannot decide length {shard.length}.")
    progress.enter("decide", shard.length)
    if rule.threshold_units is None:
        return []
    released = decide(shard, rule=rule, run_key=run_key)
    return [dataclasses.replace(released, rule=rule)] if len(released) else []


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
    if any(part.rule != rule for part in parts):
        raise ValueError(
            f"NoisyThreshold and SampleSpurious must have one rule_for at length {rule.length}."
        )
    progress.enter("released", rule.length)
    return kept_small(merge_released(parts, previous, rule), store)


def _sample(
    previous: GramSet,
    *,
    rule_for: Callable[[GramSet], LengthRule],
    run_key: RunKey,
) -> SpuriousGrams:
    return sample_spurious(previous, rule=rule_for(previous), run_key=run_key)


def _among(wanted: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Marks which of the wanted are in ascending keys."""
    if keys.size == 0:
        return np.zeros(wanted.size, dtype=bool)
    place = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    return keys[place] == wanted
