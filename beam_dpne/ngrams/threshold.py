"""NoisyThreshold and DecideRound: the n-grams that a round finds, leaves open or closes.

The decisions are plain functions of a hash range, its rule and the run key; transforms apply them.
"""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from beam_dpne.elements.arrays import byte_order, join_words, places_among
from beam_dpne.mechanism import randomness
from beam_dpne.mechanism import thresholds as mechanism_cells
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import LengthRule
from beam_dpne.ngrams.classes import join_classes, suffix_bins
from beam_dpne.ngrams.elements import GramSet, HistogramShard, PresentGrams
from beam_dpne.ngrams.histogram import replace_spurious


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
    return dataclasses.replace(
        replace_spurious(shard.select(present), unheld),
        round=shard.round + 1,
        weights=np.zeros(present.size, dtype=np.int64),
        earlier=weights[:, present],
        found=found[present],
        cells=cells[present],
        rule=rule,
    )


def has_grams(shard: HistogramShard) -> bool:
    """Returns whether a hash range has anything left, held or drawn."""
    return bool(shard.keys.size or shard.spurious_keys.size)


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
