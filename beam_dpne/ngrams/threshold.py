"""NoisyThreshold and DecideRound: the n-grams that a round finds, leaves open or closes.

The decisions are plain functions of a hash range, its rule and the run key; transforms apply them.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, cast

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import AsIter, PCollection

from beam_dpne.elements import progress
from beam_dpne.elements.arrays import byte_order, join_words, places_among
from beam_dpne.elements.batches import UnhintedTransform, apply
from beam_dpne.elements.coders import spill
from beam_dpne.elements.display_data import DisplayedTransform
from beam_dpne.elements.side_inputs import SetStore
from beam_dpne.mechanism import cells as mechanism_cells
from beam_dpne.mechanism import randomness
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import LengthRule
from beam_dpne.ngrams.classes import join_classes, suffix_bins
from beam_dpne.ngrams.elements import ROOT, GramSet, HistogramShard, PresentGrams
from beam_dpne.ngrams.histogram import shard_open


class RoundResult(NamedTuple):
    """The result of `DecideRound`.

    Attributes:
      present: PCollection of one `PresentGrams`: the n-grams that are open or found.
      open_shards: PCollection of `HistogramShard`: the same n-grams with sums, for the next round. With
        `histogram_ranges` it is instead one of (hash range, `HistogramShard`), cut for the shuffle.
    """

    present: PCollection[PresentGrams]
    open_shards: PCollection[HistogramShard] | PCollection[tuple[int, HistogramShard]]


@dataclasses.dataclass(eq=False, kw_only=True)
class _Threshold(DisplayedTransform):
    """The parameters that `NoisyThreshold` and `DecideRound` share."""

    rule_for: Callable[[GramSet], LengthRule]
    run_key: RunKey = dataclasses.field(repr=False)
    previous: PCollection[GramSet] | None = None
    store: SetStore | None = None
    root: PCollection[GramSet] | None = None

    def __post_init__(self):
        super().__init__()

    def _root(
        self, histogram: PCollection[HistogramShard]
    ) -> tuple[PCollection[GramSet], LengthRule | None]:
        """Returns S_{k−1}, or at length 1 `ROOT`, the empty n-gram alone, and the rule.

        At length 1 the rule does not depend on data. At length 2 and more it is in the shards.
        """
        if self.previous is not None:
            return self.previous, None
        root = self.root
        if root is None:
            created = histogram.pipeline | "Root" >> beam.Create([ROOT])
            root = cast("PCollection[GramSet]", created)
        return root, self.rule_for(ROOT)


@dataclasses.dataclass(eq=False, kw_only=True)
class NoisyThreshold(_Threshold):
    """Releases the n-grams whose evidence, weights plus noise, exceeds the threshold in some round.

    Noise is keyed by the n-gram, so every worker adds the same noise to it. A noisy weight is released
    as its cell only (see `mechanism.cells`). Drawn spurious n-grams that somebody holds are dropped,
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
      previous: PCollection of one `GramSet`, S_{k−1}; None at length 1.
      run_key: the secret of the run.
      store: the folder for a set that is too large for an element; with None every set is one element.
      root: PCollection of one `ROOT`, which the rounds of length 1 can share; by default it is created.

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
        previous, first = self._root(histogram)
        decide_shard = beam.FlatMap(_decide_last, first=first, run_key=self.run_key)
        parts = AsIter(apply(histogram, "Decide", decide_shard, GramSet))
        sort = beam.Map(_merge_and_spill, parts, rule_for=self.rule_for, store=self.store)
        return apply(previous, "Sort", sort, GramSet)


@dataclasses.dataclass(eq=False, kw_only=True)
class DecideRound(_Threshold, UnhintedTransform):
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
      previous: PCollection of one `GramSet`, S_{k−1}; None at length 1.
      run_key: the secret of the run.
      store: the folder for a set that is too large for an element, as for `NoisyThreshold`.
      root: as for `NoisyThreshold`.
      histogram_ranges: the number of hash ranges of the next round's histogram. With it, the open
        shards are cut as `WeightedHistogram(open_pieces=…)` takes them, and are the only output of the
        stage that decides, so that engines write them once.

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
    histogram_ranges: int | None = None

    def expand(self, histogram: PCollection[HistogramShard]) -> RoundResult:
        """Decides each shard, then sorts the n-grams that are open or found into one set."""
        previous, first = self._root(histogram)
        settings = {"round_number": self.round_number, "run_key": self.run_key}
        decide_shard = beam.FlatMap(_decide_earlier, first=first, **settings)
        decided = apply(histogram, "Decide", decide_shard, HistogramShard)
        if self.histogram_ranges is not None:
            cut = beam.FlatMap(shard_open, histogram_ranges=self.histogram_ranges)
            decided = apply(decided, "ShardOpen", cut, tuple[int, HistogramShard])
        sort = beam.Map(_merge_present_and_spill, AsIter(decided), store=self.store, **settings)
        return RoundResult(apply(previous, "Sort", sort, PresentGrams), decided)


def _rule_of(shard: HistogramShard, first: LengthRule | None) -> LengthRule:
    progress.enter("decide", shard.length)
    rule = first or shard.rule
    if rule is None:
        raise ValueError(
            "NoisyThreshold needs shards with a rule at length 2 and more: they get it from "
            "SampleSpurious in WeightedHistogram(spurious=…)."
        )
    if shard.length != rule.length:
        raise ValueError(f"A rule of length {rule.length} cannot decide length {shard.length}.")
    return rule


def _decide_last(
    shard: HistogramShard, *, first: LengthRule | None, run_key: RunKey
) -> list[GramSet]:
    rule = _rule_of(shard, first)
    # Without valid n-grams nothing is released, whatever the weights are.
    if not rule.classes:
        return []
    if shard.round != len(rule.rounds):
        raise ValueError(
            f"NoisyThreshold decides the last of {len(rule.rounds)} rounds, got round {shard.round}."
        )
    released = decide(shard, rule=rule, run_key=run_key)
    # With classes every range says its rule, which follows from a noisy count.
    keep = rule.by_prediction or len(released)
    return [dataclasses.replace(released, rule=rule)] if keep else []


def _decide_earlier(
    shard: HistogramShard, *, round_number: int, first: LengthRule | None, run_key: RunKey
) -> list[HistogramShard]:
    rule = _rule_of(shard, first)
    if not rule.classes:
        return []
    if shard.round != round_number or round_number >= len(rule.rounds):
        raise ValueError(
            f"DecideRound({round_number=}) decides that round, which must not be the last, got round "
            f"{shard.round} of {len(rule.rounds)}."
        )
    after = decide_round(shard, rule=rule, run_key=run_key)
    return [after] if rule.by_prediction or has_grams(after) else []


def _merge_present_and_spill(
    previous: GramSet,
    decided: Iterable[HistogramShard | tuple[int, HistogramShard]],
    *,
    round_number: int,
    store: SetStore | None,
    run_key: RunKey,
) -> PresentGrams:
    shards = (each[1] if isinstance(each, tuple) else each for each in decided)
    parts = map(present_part, shards)
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
    # If nothing is released, no part carries a rule, so that it is computed again. A rule that follows
    # from a noisy count cannot be computed again; then every range brings it.
    first = parts[0].rule if parts else None
    rule = first if first is not None and first.by_prediction else rule_for(previous)
    if rule.length != previous.length + 1:
        raise ValueError(
            f"NoisyThreshold at length {rule.length} needs previous=S_{rule.length - 1}, "
            f"got S_{previous.length}."
        )
    for part in parts:
        if part.rule is None or not part.rule.is_close_to(rule):
            raise ValueError(
                f"NoisyThreshold and SampleSpurious must have one rule_for at length {rule.length}."
            )
        # The rule that has decided is kept: its last digits may differ on another machine.
        rule = part.rule
    progress.enter("released", rule.length)
    return spill(merge_released(parts, previous, rule), store)


def decide_round(shard: HistogramShard, *, rule: LengthRule, run_key: RunKey) -> HistogramShard:
    """Returns the n-grams of one hash range that are found after a round, or open for the next one."""
    this_round = rule.rounds[shard.round - 1]
    size = shard.keys.size
    # (m,) each: the round in which an n-gram was found (0: not yet), and the cell of its evidence.
    found = np.zeros(size, np.int8) if shard.found is None else shard.found.copy()
    cells = np.zeros(size, np.int64) if shard.cells is None else shard.cells.copy()
    # (r, m) int64 in units of 2^-32: the sums of all rounds so far; the last row is this round's.
    weights = shard.weights[np.newaxis]
    if shard.earlier is not None:
        weights = np.concatenate((shard.earlier, weights))
    # Found n-grams keep their cell: nobody sends weight for them any more.
    judged = np.flatnonzero(found == 0)
    # (judged,) float64 in units of weight: the noise of all rounds so far, weighted by their loadings.
    noise = mechanism_cells.evidence_noise(
        [noise_bits(shard, run_key, number, judged) for number in range(1, shard.round + 1)],
        this_round,
        rule.noise_stddev,
    )
    # (m,) int64: the place of each n-gram's class, which has thresholds and cuts of its own.
    places = rule.places(shard.classes, size)
    thresholds = rule.thresholds(shard.round)[places[judged]]
    cells[judged] = mechanism_cells.noisy_cells(
        list(weights[:, judged]), noise, this_round, thresholds
    )
    over = cells[judged] >= 0
    # The threshold for words of one user covers only words to which this round gives weight.
    if shard.length == 1:
        over &= shard.weights[judged] > 0
    found[judged[over]] = shard.round
    # N-grams below the cut are closed: neither users nor later rounds see them again.
    present = np.flatnonzero((found > 0) | (cells >= rule.cut_cells(shard.round)[places]))
    # A drawn n-gram that somebody holds is decided by the noise on its weight, from round 1 on.
    if shard.round == 1:
        unheld = np.flatnonzero(places_among(shard.spurious_keys, shard.keys) < 0)
    else:
        unheld = np.arange(shard.spurious_keys.size)
    hashes = shard.word_hashes
    return HistogramShard(
        length=shard.length,
        round=shard.round + 1,
        keys=shard.keys[present] if shard.words is None else np.arange(present.size),
        weights=np.zeros(present.size, dtype=np.int64),
        classes=None if shard.classes is None else shard.classes[present],
        range_number=shard.range_number,
        earlier=weights[:, present],
        found=found[present],
        cells=cells[present],
        words=None if shard.words is None else shard.words.take(pa.array(present)),
        word_hashes=None if hashes is None else hashes[present],
        spurious_keys=shard.spurious_keys[unheld],
        spurious_cells=shard.spurious_cells[unheld],
        spurious_rounds=shard.spurious_rounds[unheld],
        spurious_classes=shard.spurious_classes[unheld],
        rule=rule,
    )


def has_grams(shard: HistogramShard) -> bool:
    """Returns whether a hash range has anything left, held or drawn."""
    return bool(shard.keys.size or shard.spurious_keys.size)


def decide(shard: HistogramShard, *, rule: LengthRule, run_key: RunKey) -> GramSet:
    """Returns the n-grams of a hash range that are released after the last round, unsorted."""
    return released_part(decide_round(shard, rule=rule, run_key=run_key), rule)


def released_part(after: HistogramShard, rule: LengthRule) -> GramSet:
    """Returns the n-grams that a hash range releases after its last decision, with scores."""
    if after.found is None or after.cells is None:
        raise ValueError("A decided shard has rounds and cells.")
    # Rows of the n-grams that some round found; all others are never released.
    chosen = np.flatnonzero(after.found)
    # Held n-grams come first and spurious ones second, until the final sort by key mixes them.
    rounds = np.concatenate((after.found[chosen], after.spurious_rounds))
    cells = np.concatenate((after.cells[chosen], after.spurious_cells))
    held_classes = None if after.classes is None else after.classes[chosen]
    classes = join_classes([held_classes, after.spurious_classes])
    places = rule.places(classes, cells.size)
    # (chosen + spurious,) float64, in units of weight: the middle of each cell in its round.
    scores = np.zeros(cells.size)
    for number, round_rule in enumerate(rule.rounds, start=1):
        inside = rounds == number
        thresholds = rule.thresholds(number)[places[inside]]
        scores[inside] = mechanism_cells.scores(cells[inside], round_rule, thresholds)
    if after.words is not None:
        words = after.words.take(pa.array(chosen))
        return GramSet(length=1, keys=np.arange(chosen.size), scores=scores, words=words)
    keys = np.concatenate((after.keys[chosen], after.spurious_keys))
    return GramSet(length=after.length, keys=keys, scores=scores)


def present_part(shard: HistogramShard) -> PresentGrams:
    """Returns the part of a hash range that users need to know after a round."""
    if shard.found is None or shard.cells is None:
        raise ValueError("A decided shard has rounds and cells.")
    return PresentGrams(
        length=shard.length,
        round=shard.round - 1,
        keys=shard.keys,
        # Users spend by the cells of open n-grams; found ones need no cell.
        cells=np.where(shard.found > 0, 0, shard.cells).astype(np.int32),
        found=(shard.found > 0).astype(np.int8),
        words=shard.words,
        classes=shard.classes,
        rule=shard.rule,
    )


def noise_bits(
    shard: HistogramShard, run_key: RunKey, round_number: int, places: np.ndarray | None = None
) -> np.ndarray:
    """Returns the 128 keyed bits of each n-gram's noise in a round: (m, 2) uint64.

    No two n-grams share a block: it is the packed pair at k ≥ 2, and the word's 128-bit keyed hash at
    k = 1.

    Args:
      shard: the hash range of the n-grams.
      run_key: the secret of the run.
      round_number: r.
      places: (m,) places of the n-grams in the shard; by default all of them.
    """
    chosen = slice(None) if places is None else places
    # Each round draws fresh noise; if rounds shared it, their difference would cancel it.
    sub_key = run_key.sub_key("noise", shard.length, round_number)
    if shard.word_hashes is not None:
        return randomness.encrypt_blocks(sub_key, shard.word_hashes[chosen])
    return randomness.keyed_bits(sub_key, np.uint64(0), shard.keys[chosen])


def merge_released(parts: Iterable[GramSet], previous: GramSet, rule: LengthRule) -> GramSet:
    """Sorts the released n-grams of all hash ranges into S_k."""
    parts = list(parts)
    keys, words, order = _in_order(parts, rule.length)
    scores = np.concatenate([np.zeros(0), *(part.scores for part in parts)])
    return GramSet(
        length=rule.length,
        keys=keys,
        scores=scores[order],
        words=words,
        parent_size=len(previous),
        vocabulary_size=keys.size if rule.length == 1 else previous.vocabulary_size,
        rule=rule,
        suffix_bins=suffix_bins(previous, keys) if rule.by_prediction else None,
    )


def merge_present(
    parts: Iterable[PresentGrams], previous: GramSet, round_number: int
) -> PresentGrams:
    """Sorts the present n-grams of all hash ranges after a round into one set, which may be empty."""
    parts = list(parts)
    length = previous.length + 1
    # Users look up their n-grams in this order, so it is one order for all hash ranges.
    keys, words, order = _in_order(parts, length)
    cells = np.concatenate([np.zeros(0, np.int32), *(part.cells for part in parts)])
    found = np.concatenate([np.zeros(0, np.int8), *(part.found for part in parts)])
    classes = join_classes([part.classes for part in parts if part.keys.size])
    return PresentGrams(
        length=length,
        round=round_number,
        keys=keys,
        cells=cells[order],
        found=found[order],
        classes=None if classes is None else classes[order],
        words=words,
        parent_size=len(previous),
        vocabulary_size=previous.vocabulary_size,
        rule=parts[0].rule if parts else None,
    )


def _in_order(
    parts: Sequence[GramSet | PresentGrams], length: int
) -> tuple[np.ndarray, pa.Array | None, np.ndarray]:
    """Returns the sorted keys and words of all parts, and the order that sorts them.

    The rank in this order becomes the n-gram's id at the next length. Words are sorted by UTF-8 bytes,
    which every runner sorts alike.
    """
    if length == 1:
        words = join_words(part.words for part in parts if part.words is not None)
        order = byte_order(words)
        return np.arange(order.size), words.take(pa.array(order)), order
    keys = np.concatenate([np.zeros(0, np.int64), *(part.keys for part in parts)])
    order = np.argsort(keys)
    return keys[order], None, order
