"""The decisions of a round and a length, on arrays: which grams are found, open, closed, or spurious.

Pure functions of a hash range's sums, keys and a rule; the transforms around them are in `selection`.
"""

import dataclasses
import math
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from beam_dpne.elements.words import byte_order, join_words
from beam_dpne.mechanism import cells as mechanism
from beam_dpne.mechanism import randomness
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import LengthRule
from beam_dpne.ngrams import valid
from beam_dpne.ngrams.elements import GramSet, HistogramShard, PresentGrams, SpuriousGrams


def sample_spurious(previous: GramSet, *, rule: LengthRule, run_key: RunKey) -> SpuriousGrams:
    """Draws each member of V_k with probability Σ_r P_r, with the round and the cell of its noise."""
    none = np.zeros(0, np.int64)
    length = rule.length
    members = valid.count_valid(previous, rule.pruning)
    if not rule.rounds or members == 0:
        return SpuriousGrams(
            length=length, keys=none, cells=none, rounds=none.astype(np.int8), rule=rule
        )
    mean = -members * math.log1p(-rule.null_probability)
    blocks = np.arange(randomness.poisson_blocks(mean), dtype=np.uint64)
    count_key = run_key.sub_key("spurious count", length)
    count_bits = randomness.keyed_bits(count_key, np.uint64(0), blocks)
    draws = np.arange(randomness.poisson(count_bits, mean), dtype=np.uint64)
    bits = randomness.keyed_bits(run_key.sub_key("spurious draw", length), np.uint64(0), draws)
    keys = np.sort(valid.draw_valid(previous, rule.pruning, bits))
    keys = keys[np.diff(keys, prepend=-1) != 0]
    rounds = _spurious_rounds(keys, rule, run_key)
    noise = randomness.keyed_bits(run_key.sub_key("spurious noise", length), np.uint64(0), keys)
    cells = np.zeros(keys.size, dtype=np.int64)
    for number in np.unique(rounds).tolist():
        inside = rounds == number
        cells[inside] = mechanism.spurious_cells(noise[inside], rule, number)
    return SpuriousGrams(length=length, keys=keys, cells=cells, rounds=rounds, rule=rule)


def _spurious_rounds(keys: np.ndarray, rule: LengthRule, run_key: RunKey) -> np.ndarray:
    """Draws for each spurious gram the round in which it is found: r with probability P_r/p."""
    sub_key = run_key.sub_key("spurious round", rule.length)
    uniform = randomness.uniforms(randomness.keyed_bits(sub_key, np.uint64(0), keys))
    borders = np.cumsum([own.null_probability for own in rule.rounds[:-1]])
    return (1 + np.searchsorted(borders, uniform * rule.null_probability)).astype(np.int8)


def decide_round(shard: HistogramShard, *, rule: LengthRule, run_key: RunKey) -> HistogramShard:
    """Returns what stands of one hash range after a round: found, or open for the next one."""
    own = rule.rounds[shard.round - 1]
    size = shard.keys.size
    found = np.zeros(size, np.int8) if shard.found is None else shard.found.copy()
    cells = np.zeros(size, np.int64) if shard.cells is None else shard.cells.copy()
    weights = shard.weights[np.newaxis]
    if shard.earlier is not None:
        weights = np.concatenate((shard.earlier, weights))
    judged = np.flatnonzero(found == 0)
    noise = mechanism.evidence_noise(
        [_round_noise_bits(shard, judged, run_key, place + 1) for place in range(shard.round)],
        own,
        rule.noise_stddev,
    )
    cells[judged] = mechanism.noisy_cells(list(weights[:, judged]), noise, own)
    over = cells[judged] >= 0
    if shard.length == 1:
        over &= shard.weights[judged] > 0
    found[judged[over]] = shard.round
    present = np.flatnonzero((found > 0) | (cells >= own.cut_cell))
    if shard.round == 1:
        unheld = np.flatnonzero(~_among(shard.spurious_keys, shard.keys))
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
    """Returns what one hash range releases after the last round, with scores; unsorted at k = 1."""
    return released_part(decide_round(shard, rule=rule, run_key=run_key), rule)


def released_part(after: HistogramShard, rule: LengthRule) -> GramSet:
    """Returns what a hash range releases that has been decided in its last round, with scores."""
    if after.found is None or after.cells is None:
        raise ValueError("A decided shard has rounds and cells.")
    chosen = np.flatnonzero(after.found)
    rounds = np.concatenate((after.found[chosen], after.spurious_rounds))
    cells = np.concatenate((after.cells[chosen], after.spurious_cells))
    scores = np.zeros(cells.size)
    for number, own in enumerate(rule.rounds, start=1):
        inside = rounds == number
        scores[inside] = mechanism.scores(cells[inside], own)
    if after.words is not None:
        words = after.words.take(pa.array(chosen))
        return GramSet(length=1, keys=np.arange(chosen.size), scores=scores, words=words)
    keys = np.concatenate((after.keys[chosen], after.spurious_keys))
    return GramSet(length=after.length, keys=keys, scores=scores)


def _round_noise_bits(
    shard: HistogramShard, places: np.ndarray, run_key: RunKey, round_number: int
) -> np.ndarray:
    hashes = shard.word_hashes
    some = dataclasses.replace(
        shard,
        keys=shard.keys[places],
        word_hashes=None if hashes is None else hashes[places],
    )
    return noise_bits(some, run_key, round_number)


def noise_bits(shard: HistogramShard, run_key: RunKey, round_number: int) -> np.ndarray:
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
        words = join_words(part.words for part in parts if part.words is not None)
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


def merge_present(
    parts: Iterable[PresentGrams], previous: GramSet, round_number: int
) -> PresentGrams:
    """Sorts what stands in all hash ranges after a round; an empty set if nothing does."""
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
    """What users need to know of a hash range after a round."""
    if shard.found is None or shard.cells is None:
        raise ValueError("A decided shard has rounds and cells.")
    return PresentGrams(
        length=shard.length,
        round=shard.round - 1,
        keys=shard.keys,
        cells=np.where(shard.found > 0, 0, shard.cells).astype(np.int32),
        found=(shard.found > 0).astype(np.int8),
        words=shard.words,
        rule=shard.rule,
    )


def _among(wanted: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Marks which of the wanted are in ascending keys."""
    if keys.size == 0:
        return np.zeros(wanted.size, dtype=bool)
    place = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    return keys[place] == wanted
