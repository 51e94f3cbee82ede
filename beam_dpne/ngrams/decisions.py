"""Which n-grams a round finds, leaves open or closes: noise, thresholds and cuts of a hash range.

The decisions are plain functions of a hash range, its rule and the run key. Both drivers call `decide`.
"""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from beam_dpne.elements import progress
from beam_dpne.elements.arrays import byte_order, join_words, places_among
from beam_dpne.mechanism import randomness, thresholds
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import LengthRule
from beam_dpne.ngrams.elements import (
    GramSet,
    HistogramShard,
    PresentGrams,
    SpuriousGrams,
    join_columns,
)
from beam_dpne.ngrams.histogram import hash_ranges, join_open
from beam_dpne.ngrams.valid import suffix_bins


def decide(
    shard: HistogramShard,
    drawn: SpuriousGrams | None = None,
    *,
    rule: LengthRule | None = None,
    run_key: RunKey,
) -> HistogramShard:
    """Decides a round of one hash range, in round 1 of k ≥ 2 together with its spurious n-grams.

    Args:
      shard: the sums of the round.
      drawn: the spurious n-grams of the length, with its rule (round 1 of k ≥ 2).
      rule: the rule of words, which depends on no data (k = 1).
      run_key: the secret of the run.
    """
    progress.enter("decide", shard.length)
    if shard.length == 1 or shard.round > 1:
        rule = shard.rule or rule
        if rule is None:
            raise ValueError("Words are decided by a rule: rule=rule_for(plan).")
        return decide_round(shard, rule=rule, run_key=run_key)
    if drawn is None or drawn.rule is None:
        raise ValueError(
            "Grams of two words and more are decided together with spurious=… of SampleSpurious: "
            "without them a released n-gram reveals that somebody holds it."
        )
    number, ranges = shard.hash_range
    own = hash_ranges(drawn.keys.view(np.uint64), ranges) == number
    # A drawn n-gram that somebody holds is decided by the noise on its weight, and nothing else.
    unheld = np.flatnonzero(own & (places_among(drawn.keys, shard.keys) < 0))
    nobodys = HistogramShard(
        length=shard.length,
        round=2,
        keys=drawn.keys[unheld],
        weights=np.zeros(unheld.size, np.int64),
        classes=drawn.classes[unheld] if drawn.rule.by_prediction else None,
        earlier=np.zeros((1, unheld.size), np.int64),
        found=drawn.rounds[unheld],
        cells=drawn.cells[unheld],
    )
    return join_open([decide_round(shard, rule=drawn.rule, run_key=run_key), nobodys])


def decide_round(shard: HistogramShard, *, rule: LengthRule, run_key: RunKey) -> HistogramShard:
    """Returns the n-grams of one hash range that are found after a round, or open for the next one."""
    size = shard.keys.size
    # (m,) each: the round in which an n-gram was found (0: not yet), and the cell of its evidence.
    found = np.zeros(size, np.int8) if shard.found is None else shard.found.copy()
    cells = np.zeros(size, np.int64) if shard.cells is None else shard.cells.copy()
    # (r, m) int64 in units of 2^-32: the sums of all rounds so far; the last row is this round's.
    weights = shard.weights[np.newaxis]
    if shard.earlier is not None:
        weights = np.concatenate((shard.earlier, weights))
    # (m,) bool: the n-grams that stay; without valid n-grams there are none, and no rounds.
    present = np.zeros(size, bool)
    if rule.classes:
        this_round = rule.rounds[shard.round - 1]
        # Found n-grams keep their cell: nobody sends weight for them any more.
        judged = np.flatnonzero(found == 0)
        # (judged,) float64 in units of weight: the noise of all rounds so far, by their loadings.
        noise = thresholds.evidence_noise(
            [noise_bits(shard, run_key, number, judged) for number in range(1, shard.round + 1)],
            this_round,
            rule.noise_stddev,
        )
        # (m,) int64: the place of each n-gram's class, which has thresholds and cuts of its own.
        places = rule.places(shard.classes, size)
        own = rule.thresholds(shard.round)[places[judged]]
        cells[judged] = thresholds.noisy_cells(list(weights[:, judged]), noise, this_round, own)
        over = cells[judged] >= 0
        # The threshold for words of one user covers only words to which this round gives weight.
        if shard.length == 1:
            over &= shard.weights[judged] > 0
        found[judged[over]] = shard.round
        # N-grams below the cut are closed: neither users nor later rounds see them again.
        present = (found > 0) | (cells >= rule.cut_cells(shard.round)[places])
    staying = np.flatnonzero(present)
    return dataclasses.replace(
        shard.select(staying),
        round=shard.round + 1,
        weights=np.zeros(staying.size, dtype=np.int64),
        tallies=None,
        earlier=weights[:, staying],
        found=found[staying],
        cells=cells[staying],
        rule=rule,
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


def released_part(after: HistogramShard) -> GramSet:
    """Returns the n-grams that a hash range releases after its last decision, with scores."""
    rule = after.rule
    if after.found is None or after.cells is None or rule is None:
        raise ValueError("A decided shard has rounds, cells and a rule.")
    if after.round <= len(rule.rounds):
        # Drawn n-grams of later rounds are found already, and held ones are not.
        raise ValueError(
            f"NoisyThreshold takes the last round, {len(rule.rounds)}, got round {after.round - 1}; "
            "apply DecideRound to it."
        )
    # Rows of the n-grams that some round found; all others are never released.
    chosen = np.flatnonzero(after.found)
    part = after.select(chosen)
    rounds, cells = after.found[chosen], after.cells[chosen]
    places = rule.places(part.classes, chosen.size)
    # (chosen,) float64, in units of weight: the middle of each cell in its round.
    scores = np.zeros(chosen.size)
    for number, round_rule in enumerate(rule.rounds, start=1):
        inside = rounds == number
        own = rule.thresholds(number)[places[inside]]
        scores[inside] = thresholds.scores(cells[inside], round_rule, own)
    return GramSet(length=after.length, keys=part.keys, scores=scores, words=part.words, rule=rule)


def present_part(after: HistogramShard) -> PresentGrams:
    """Returns the part of a hash range that users need to know after a round."""
    if after.found is None or after.cells is None:
        raise ValueError("A decided shard has rounds and cells.")
    return PresentGrams(
        length=after.length,
        round=after.round - 1,
        keys=after.keys,
        # Users spend by the cells of open n-grams; found ones need no cell.
        cells=np.where(after.found > 0, 0, after.cells).astype(np.int32),
        found=(after.found > 0).astype(np.int8),
        words=after.words,
        classes=after.classes,
        rule=after.rule,
    )


def merge_released(
    parts: Iterable[GramSet], previous: GramSet, rule: LengthRule | None = None
) -> GramSet:
    """Sorts the released n-grams of all hash ranges into S_k.

    Args:
      parts: the parts, each with the rule that has decided, whose last digits may differ on another
        machine.
      previous: S_{k−1}.
      rule: the rule of words, where no hash range has any.
    """
    parts = list(parts)
    rule = parts[0].rule if parts else rule
    if rule is None:
        raise ValueError("A released set needs the rule by which it was decided.")
    progress.enter(progress.RELEASED, rule.length)
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
    classes = join_columns([part.classes for part in parts if part.keys.size])
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
