"""NoisyThreshold and DecideRound: which grams a round finds, leaves open or closes, and releases.

The decisions are plain functions of the sums, keys and rule of a hash range; the transforms apply them.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import NamedTuple, cast

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import AsIter, PCollection
from apache_beam.typehints.decorators import IOTypeHints

from beam_dpne.elements import progress
from beam_dpne.elements.coders import spill
from beam_dpne.elements.ragged import places_among
from beam_dpne.elements.side_inputs import SetStore
from beam_dpne.elements.words import byte_order, join_words
from beam_dpne.mechanism import cells as mechanism_cells
from beam_dpne.mechanism import randomness
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import LengthRule
from beam_dpne.ngrams.elements import ROOT, GramSet, HistogramShard, PresentGrams


class RoundResult(NamedTuple):
    """What `DecideRound` returns.

    Attributes:
      present: PCollection of one `PresentGrams`: the grams that are open, or found.
      open_shards: PCollection of `HistogramShard`: the same, with its sums, for the next round.
    """

    present: PCollection[PresentGrams]
    open_shards: PCollection[HistogramShard]


@dataclasses.dataclass(eq=False, kw_only=True)
class NoisyThreshold(beam.PTransform):
    """Releases the grams whose weight plus Gaussian noise exceeds the threshold.

    Noise is keyed by the gram, so every worker that sees a gram adds the same noise. A noisy weight is
    released as its cell only (see `mechanism.cells`). Drawn spurious grams that somebody holds are
    dropped, since their own noise has decided them. At length 1 only words with a positive weight may
    be released.

    Input: `HistogramShard` of the last round; at length 2 and more each with its rule, see
    `WeightedHistogram`.

    Output: PCollection of one `GramSet`, S_k, sorted. Spurious and real n-grams are indistinguishable
    in it.

    Privacy: the Gaussian mechanism at σ_k, if every user moves H_k by at most 1 in ℓ2, S_{k−1} is
    private, and, at k ≥ 2, spurious grams come with it, at k = 1, ρ_1 covers words of one user.

    Cost: one AES block for each observed gram; the released grams meet on one worker.

    Attributes:
      rule_for: maps S_{k−1} to σ_k and ρ_k: a function of released sets only;
        see `rule_for`.
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
        """Decides each shard, then sorts the released grams into one set."""
        previous, first = _root(self, histogram)
        decide_shard = beam.FlatMap(_decide_and_report, first=first, run_key=self.run_key)
        decided = histogram | "Decide" >> decide_shard.with_output_types(GramSet)
        beside = AsIter(cast("PCollection[GramSet]", decided))
        sort = beam.Map(_merge_and_report, beside, rule_for=self.rule_for, store=self.store)
        return cast("PCollection[GramSet]", previous | "Sort" >> sort.with_output_types(GramSet))


@dataclasses.dataclass(eq=False, kw_only=True)
class DecideRound(beam.PTransform):
    """Decides a round that is not a length's last: which grams are found, stay open or are closed.

    Evidence above the threshold is found for good; below the cut a gram is closed for good. Drawn
    spurious grams that somebody holds are dropped in the first round; the others wait for the last.

    Input: `HistogramShard` of a round; at length 2 and more each with its rule.

    Output: `RoundResult`.

    Privacy: releases nothing; `NoisyThreshold` decides which grams leave this length. Users learn which
    of their own grams are open or found, a function of noisy evidence only, and spend by it.

    Cost: as `NoisyThreshold`; the present grams meet on one worker.

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
        """Decides each shard, then sorts the grams that are open or found into one set."""
        previous, first = _root(self, histogram)
        decide_shard = beam.FlatMap(
            _decide_round_and_report,
            round_number=self.round_number,
            first=first,
            run_key=self.run_key,
        )
        decided = histogram | "Decide" >> decide_shard.with_output_types(HistogramShard)
        parts = decided | "Standing" >> beam.Map(present_part).with_output_types(PresentGrams)
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
    return rule


def _decide_and_report(
    shard: HistogramShard, *, first: LengthRule | None, run_key: RunKey
) -> list[GramSet]:
    progress.enter("decide", shard.length)
    rule = _rule_of(shard, first)
    # Without valid grams nothing is released, whatever the weights are.
    if not rule.rounds:
        return []
    if shard.round != len(rule.rounds):
        raise ValueError(
            f"NoisyThreshold decides the last of {len(rule.rounds)} rounds, got round {shard.round}."
        )
    released = decide(shard, rule=rule, run_key=run_key)
    return [dataclasses.replace(released, rule=rule)] if len(released) else []


def _decide_round_and_report(
    shard: HistogramShard, *, round_number: int, first: LengthRule | None, run_key: RunKey
) -> list[HistogramShard]:
    progress.enter("decide", shard.length)
    rule = _rule_of(shard, first)
    if not rule.rounds:
        return []
    if shard.round != round_number or round_number >= len(rule.rounds):
        raise ValueError(
            f"DecideRound({round_number=}) decides no last round and no other one, got round "
            f"{shard.round} of {len(rule.rounds)}."
        )
    after = decide_round(shard, rule=rule, run_key=run_key)
    return [after] if after.keys.size + after.spurious_keys.size else []


def _merge_present_and_keep(
    previous: GramSet,
    parts: Iterable[PresentGrams],
    *,
    round_number: int,
    store: SetStore | None,
    run_key: RunKey,
) -> PresentGrams:
    # The set is private: a file's name made of its content alone would confirm a guess.
    key = run_key.sub_key("stored", previous.length + 1, round_number)
    return spill(merge_present(parts, previous, round_number), store, key)


def _merge_and_report(
    previous: GramSet,
    parts: Iterable[GramSet],
    *,
    rule_for: Callable[[GramSet], LengthRule],
    store: SetStore | None,
) -> GramSet:
    # Computed again, since a set without released grams brings no rule from its parts.
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
    return spill(merge_released(parts, previous, rule), store)


def decide_round(shard: HistogramShard, *, rule: LengthRule, run_key: RunKey) -> HistogramShard:
    """Returns the grams of one hash range that are found after a round, or open for the next one."""
    own = rule.rounds[shard.round - 1]
    size = shard.keys.size
    # (m,) each: the round in which a gram was found (0: not yet), and the cell of its evidence.
    found = np.zeros(size, np.int8) if shard.found is None else shard.found.copy()
    cells = np.zeros(size, np.int64) if shard.cells is None else shard.cells.copy()
    # (r, m) int64 in units of 2^-32: the sums of all rounds so far, this one's last.
    weights = shard.weights[np.newaxis]
    if shard.earlier is not None:
        weights = np.concatenate((shard.earlier, weights))
    # Found grams keep their cell: nobody sends weight for them any more.
    judged = np.flatnonzero(found == 0)
    # (judged,) float64 in units of weight: the noise of all rounds so far, each by its loading.
    noise = mechanism_cells.evidence_noise(
        [noise_bits(shard, run_key, number, judged) for number in range(1, shard.round + 1)],
        own,
        rule.noise_stddev,
    )
    cells[judged] = mechanism_cells.noisy_cells(list(weights[:, judged]), noise, own)
    over = cells[judged] >= 0
    # The threshold for words of one user covers those to which this round gives weight.
    if shard.length == 1:
        over &= shard.weights[judged] > 0
    found[judged[over]] = shard.round
    # Grams below the cut are closed: neither users nor later rounds see them again.
    present = np.flatnonzero((found > 0) | (cells >= own.cut_cell))
    # Drawn grams that somebody holds have noise that decides them; they met in the first round.
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
        earlier=weights[:, present],
        found=found[present],
        cells=cells[present],
        words=None if shard.words is None else shard.words.take(pa.array(present)),
        word_hashes=None if hashes is None else hashes[present],
        spurious_keys=shard.spurious_keys[unheld],
        spurious_cells=shard.spurious_cells[unheld],
        spurious_rounds=shard.spurious_rounds[unheld],
        rule=rule,
    )


def decide(shard: HistogramShard, *, rule: LengthRule, run_key: RunKey) -> GramSet:
    """Returns the grams that one hash range releases after the last round; unsorted at k = 1."""
    return released_part(decide_round(shard, rule=rule, run_key=run_key), rule)


def released_part(after: HistogramShard, rule: LengthRule) -> GramSet:
    """Returns the grams that a hash range releases after its last decision, with scores."""
    if after.found is None or after.cells is None:
        raise ValueError("A decided shard has rounds and cells.")
    # Rows of the grams that some round found; all others stay unreleased for good.
    chosen = np.flatnonzero(after.found)
    # Held grams first, then spurious ones: the final sort by key mixes them.
    rounds = np.concatenate((after.found[chosen], after.spurious_rounds))
    cells = np.concatenate((after.cells[chosen], after.spurious_cells))
    # (chosen + spurious,) float64, in units of weight: the middle of each cell in its round.
    scores = np.zeros(cells.size)
    for number, own in enumerate(rule.rounds, start=1):
        inside = rounds == number
        scores[inside] = mechanism_cells.scores(cells[inside], own)
    if after.words is not None:
        words = after.words.take(pa.array(chosen))
        return GramSet(length=1, keys=np.arange(chosen.size), scores=scores, words=words)
    keys = np.concatenate((after.keys[chosen], after.spurious_keys))
    return GramSet(length=after.length, keys=keys, scores=scores)


def noise_bits(
    shard: HistogramShard, run_key: RunKey, round_number: int, places: np.ndarray | None = None
) -> np.ndarray:
    """Returns the 128 keyed bits of each gram's noise in a round: (m, 2) uint64.

    The key of a gram is injective: at k ≥ 2 the packed pair, at k = 1 the word's 128-bit keyed hash.

    Args:
      shard: of the grams.
      run_key: secret of the run.
      round_number: r.
      places: (m,) of the grams in the shard; by default all of them.
    """
    chosen = slice(None) if places is None else places
    # Fresh noise in each round: with one noise in all of them, rounds would cancel it out.
    sub_key = run_key.sub_key("noise", shard.length, round_number)
    if shard.word_hashes is not None:
        return randomness.encrypt_blocks(sub_key, shard.word_hashes[chosen])
    return randomness.keyed_bits(sub_key, np.uint64(0), shard.keys[chosen])


def merge_released(parts: Iterable[GramSet], previous: GramSet, rule: LengthRule) -> GramSet:
    """Sorts the released grams of all hash ranges into S_k."""
    parts = list(parts)
    scores = np.concatenate([np.zeros(0), *(part.scores for part in parts)])
    if rule.length == 1:
        words = join_words(part.words for part in parts if part.words is not None)
        # By UTF-8 bytes, the order of ids that every runner shares.
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
    # The rank in this order becomes the gram's id at the next length.
    order = np.argsort(keys)
    return GramSet(
        length=rule.length,
        keys=keys[order],
        scores=scores[order],
        parent_size=len(previous),
        vocabulary_size=previous.vocabulary_size,
        rule=rule,
    )


def merge_present(
    parts: Iterable[PresentGrams], previous: GramSet, round_number: int
) -> PresentGrams:
    """Sorts the present grams of all hash ranges after a round into one set, which may be empty."""
    parts = list(parts)
    length = previous.length + 1
    if not parts:
        none = np.zeros(0, np.int64)
        words = pa.array([], pa.string()) if length == 1 else None
        parts = [
            PresentGrams(
                length=length,
                round=round_number,
                keys=none,
                cells=none.astype(np.int32),
                found=none.astype(np.int8),
                words=words,
            )
        ]
    cells = np.concatenate([part.cells for part in parts])
    found = np.concatenate([part.found for part in parts])
    # Users look their positions up in this order, so that every hash range's rows have to meet in it.
    words = None
    if length == 1:
        words = join_words(part.words for part in parts if part.words is not None)
        order = byte_order(words)
        words = words.take(pa.array(order))
        keys = np.arange(order.size)
    else:
        keys = np.concatenate([part.keys for part in parts])
        order = np.argsort(keys)
        keys = keys[order]
    return dataclasses.replace(
        parts[0],
        keys=keys,
        cells=cells[order],
        found=found[order],
        words=words,
        parent_size=len(previous),
        vocabulary_size=previous.vocabulary_size,
    )


def present_part(shard: HistogramShard) -> PresentGrams:
    """Returns the part of a hash range that users need to know after a round."""
    if shard.found is None or shard.cells is None:
        raise ValueError("A decided shard has rounds and cells.")
    return PresentGrams(
        length=shard.length,
        round=shard.round - 1,
        keys=shard.keys,
        # Users spend by the cells of open grams; of found ones nothing but that is needed.
        cells=np.where(shard.found > 0, 0, shard.cells).astype(np.int32),
        found=(shard.found > 0).astype(np.int8),
        words=shard.words,
        rule=shard.rule,
    )
