"""Which n-grams a round finds, leaves open or closes: noise, thresholds and cuts of a hash range.

The decisions are plain functions of a hash range, its rule and the run key. Both drivers call `decide`.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from beam_dpne.documents.blocks import split_groups, without_groups
from beam_dpne.elements.arrays import places_among, places_in
from beam_dpne.lists.left_out import LeftOut
from beam_dpne.mechanism import thresholds
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import LengthRule
from beam_dpne.ngrams.elements import (
    NO_CANDIDATES,
    GramSet,
    HistogramShard,
    NextCandidates,
    PresentGrams,
    known_candidates,
)
from beam_dpne.ngrams.histogram import join_open
from beam_dpne.ngrams.keys import Pairs, Words, keys_of_length, pack_pairs, unpack_pairs
from beam_dpne.ngrams.tolerances import KNOWN_LEAD, known_lead
from beam_dpne.ngrams.valid import class_numbers, suffix_bins


def decide(
    shard: HistogramShard,
    drawn: HistogramShard | None = None,
    *,
    rule: LengthRule | None = None,
    run_key: RunKey,
) -> HistogramShard:
    """Decides a round of one hash range, in round 1 together with its spurious n-grams, if any.

    Args:
      shard: the sums of the round.
      drawn: the spurious n-grams of the length, with its rule (round 1 of k ≥ 2, and of known words).
      rule: the rule of words, if none are known; it depends on no data (k = 1).
      run_key: the secret of the run.
    """
    if drawn is None and (shard.length == 1 or shard.round > 1):
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
    inside = drawn.select(np.flatnonzero(drawn.ngrams.hash_ranges(ranges) == number))
    # A drawn n-gram that somebody holds is decided by the noise on its weight, and nothing else.
    unheld = inside.select(np.flatnonzero(shard.ngrams.places_of(inside.ngrams) < 0))
    return join_open([decide_round(shard, rule=drawn.rule, run_key=run_key), unheld])


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
    # (m,) int64: the place of each n-gram's class; each class has other thresholds and cuts.
    places = rule.places(shard.classes, size)
    for best, of_family in rule.families:
        this_round = best.rounds[shard.round - 1]
        # Found n-grams keep their cell: nobody sends weight for them any more.
        judged = np.flatnonzero((found == 0) & of_family[places])
        # (judged,) float64 in units of weight: the noise of all rounds so far, by their loadings.
        noise = thresholds.evidence_noise(
            [noise_bits(shard, run_key, number, judged) for number in range(1, shard.round + 1)],
            this_round,
            rule.noise_stddev,
        )
        own = rule.thresholds(shard.round)[places[judged]]
        cells[judged] = thresholds.noisy_cells(list(weights[:, judged]), noise, this_round, own)
        over = cells[judged] >= 0
        # The threshold for words of one user covers only words to which this round gives weight.
        if shard.length == 1 and not best.is_known:
            over &= shard.weights[judged] > 0
        found[judged[over]] = shard.round
    if rule.classes:
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

    Args:
      shard: the hash range of the n-grams.
      run_key: the secret of the run.
      round_number: r.
      places: (m,) places of the n-grams in the shard; by default all of them.
    """
    chosen = slice(None) if places is None else places
    # Each round draws fresh noise; if rounds shared it, their difference would cancel it.
    sub_key = run_key.sub_key("noise", shard.length, round_number)
    return shard.ngrams.noise_bits(sub_key, chosen)


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
    chosen = np.flatnonzero(after.found > 0)
    part = after.select(chosen)
    rounds = after.found[chosen]
    cells = after.cells[chosen]
    places = rule.places(part.classes, chosen.size)
    # (chosen,) float64, in units of weight: the middle of each cell in its round.
    scores = np.zeros(chosen.size)
    for best, of_family in rule.families:
        for number, round_rule in enumerate(best.rounds, start=1):
            inside = (rounds == number) & of_family[places]
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
    parts: Iterable[GramSet],
    previous: GramSet,
    rule: LengthRule | None = None,
    left_out: LeftOut | None = None,
) -> GramSet:
    """Sorts the released n-grams of all hash ranges into S_k.

    N-grams with a phrase of the stop list are dropped here, before they are parents of longer ones.
    Nobody holds them, but noise may have found them if their words were released apart. What is left
    is a function of what was found and of the public list.

    Args:
      parts: the parts, each with the rule that has decided, whose last digits may differ on another
        machine.
      previous: S_{k−1}; at k = 1 the root.
      rule: the rule of words, where no hash range has any.
      left_out: what the rules of texts leave out; None without rules.
    """
    ordered = _in_order(parts, previous.length + 1, {"scores": np.float64}, rule)
    rule = ordered.rule
    if rule is None:
        raise ValueError("A released set needs the rule by which it was decided.")
    keys = ordered.ngrams.keys
    words = ordered.ngrams.words
    scores = ordered.columns["scores"]
    codes = previous.candidates.phrase_codes
    endings = None
    if words is not None and left_out is not None and left_out.longest:
        codes = left_out.codes(without_groups(words) if previous.is_grouped else words)
    if left_out is not None and codes is not None:
        endings = _endings(keys, previous, rule, codes)
        # No n-gram has a phrase elsewhere than at its end, since its prefix has none.
        kept = ~left_out.end_in_phrase(endings)
        keys = keys[kept]
        scores = scores[kept]
        endings = endings[kept, -left_out.longest :]
    candidates = dataclasses.replace(
        _known_after(previous, keys, words),
        suffix_bins=suffix_bins(previous, keys) if rule.by_prediction else None,
        known_lead=_known_lead(previous, keys, rule),
        phrase_codes=codes,
        endings=endings,
    )
    return GramSet(
        length=rule.length,
        keys=keys,
        words=words,
        parent_size=len(previous),
        vocabulary_size=keys.size if rule.length == 1 else previous.vocabulary_size,
        rule=rule,
        scores=scores,
        candidates=candidates,
        is_grouped=previous.is_grouped,
    )


def _endings(
    keys: np.ndarray, previous: GramSet, rule: LengthRule, phrase_codes: np.ndarray
) -> np.ndarray:
    """Returns the codes of the last words of n-grams of length k: (n, m) int32.

    Args:
      keys: (n,) int64, the n-grams.
      previous: S_{k−1}.
      rule: that of length k.
      phrase_codes: (|S_1|,) int32, as in `NextCandidates`.
    """
    before = previous.candidates.endings
    if before is None:
        return phrase_codes[:, np.newaxis]
    prefixes, seconds = unpack_pairs(keys)
    # With "both" the second id is that of the suffix, which ends with the same word.
    last = phrase_codes if rule.pruning == "single" else before[:, -1]
    return np.column_stack((before[prefixes], last[seconds]))


def _known_rows(root: GramSet, words: pa.Array) -> list[np.ndarray]:
    """Returns the rows in S_1 of the words of known n-grams, −1 for others: (w,) integers each.

    With groups there is a table for words that have one, and one for each group of S_1 in which all
    other words are known.
    """
    tables = [np.append(places_in(root.words, words), -1)]
    if root.is_grouped and root.words is not None:
        groups, plain = split_groups(words)
        places = places_in(plain, root.words)
        group = groups.dictionary_encode().indices.to_numpy()
        for number in range(1 + int(group.max(initial=-1))):
            rows = np.flatnonzero((group == number) & (places >= 0))
            tables.append(np.full(len(root.words), -1, np.int64))
            tables[-1][places[rows]] = rows
    return tables


def _known_after(previous: GramSet, keys: np.ndarray, words: pa.Array | None) -> NextCandidates:
    """Returns the known n-grams among the candidates that S_k leaves.

    Those of k + 1 words are candidates if both of their parts are in S_k, and longer ones are kept
    while all of their parts of k words are.

    Args:
      previous: S_{k−1}.
      keys: (n,) int64, the n-grams of S_k.
      words: the words of S_1 (k = 1 only).
    """
    before = previous.candidates
    if before.known_longer is None or before.known_counts is None:
        return NO_CANDIDATES
    tables = [] if words is None else _known_rows(previous, words)
    left = []
    start = 0
    for longer, count in enumerate(before.known_counts.tolist()):
        # A known n-gram of n words has n ids at first, and n − k + 1 in S_k.
        width = longer + 2 + (previous.length > 0)
        ids = before.known_longer[start : start + count * width].reshape(count, width)
        start += count * width
        if words is not None:
            found = [table[ids] for table in tables]
            ids = np.concatenate([each[(each >= 0).all(axis=1)] for each in found])
            ids = np.unique(ids, axis=0) if previous.is_grouped else ids
        else:
            pairs = pack_pairs(ids[:, :-1].reshape(-1), ids[:, 1:].reshape(-1))
            ids = places_among(pairs, keys).reshape(count, width - 1)
        left.append(ids[(ids >= 0).all(axis=1)].astype(np.int32))
    pairs = left.pop(0) if left else np.zeros((0, 2), np.int32)
    known = np.sort(pack_pairs(*pairs.T)) if len(pairs) else None
    return known_candidates(known, left)


def _known_lead(previous: GramSet, keys: np.ndarray, rule: LengthRule) -> int:
    """Returns the lead of the known candidates that S_k leaves, which follows from released sets.

    Args:
      previous: S_{k−1}.
      keys: (n,) int64, the n-grams of S_k.
      rule: that of length k, with the sizes of its classes.
    """
    if previous.length == 0 or previous.candidates.known is None:
        return KNOWN_LEAD
    sizes = {own.number: own.valid for own in rule.classes if own.valid}
    numbers, counts = np.unique(class_numbers(previous, keys), return_counts=True)
    return known_lead(sizes, dict(zip(numbers.tolist(), counts.tolist(), strict=True)))


def merge_present(
    parts: Iterable[PresentGrams], previous: GramSet, round_number: int
) -> PresentGrams:
    """Sorts the present n-grams of all hash ranges after a round into one set, which may be empty."""
    # Users look up their n-grams in this order, so it is one order for all hash ranges.
    kinds = {"cells": np.int32, "found": np.int8}
    ordered = _in_order(parts, previous.length + 1, kinds)
    return PresentGrams(
        length=previous.length + 1,
        round=round_number,
        keys=ordered.ngrams.keys,
        words=ordered.ngrams.words,
        parent_size=len(previous),
        vocabulary_size=previous.vocabulary_size,
        rule=ordered.rule,
        cells=ordered.columns["cells"],
        found=ordered.columns["found"],
        classes=ordered.columns.get("classes"),
    )


class _Ordered(NamedTuple):
    """The n-grams of all parts in the order of their ids, the parts' columns, and their rule."""

    ngrams: Words | Pairs
    columns: dict[str, np.ndarray]
    rule: LengthRule | None


def _in_order(
    parts: Iterable[GramSet | PresentGrams],
    length: int,
    kinds: Mapping[str, type],
    rule: LengthRule | None = None,
) -> _Ordered:
    """Sorts the n-grams of all parts, and takes the rule of the first part.

    The rank in this order becomes the n-gram's id at the next length. Words are sorted by UTF-8 bytes,
    which every runner sorts alike.

    Args:
      parts: hash ranges, or pieces of them.
      length: k.
      kinds: the types of the columns beside the keys; `classes` are there if parts have them.
      rule: what is returned without any part.
    """
    columns, words, rules = _joined(parts, {"keys": np.int64, **kinds})
    ngrams, order = keys_of_length(length, columns.pop("keys"), words).into_order()
    for name, column in columns.items():
        columns[name] = column[order]
    return _Ordered(ngrams, columns, rules[0] if rules else rule)


def _joined(
    parts: Iterable[GramSet | PresentGrams], kinds: Mapping[str, type]
) -> tuple[dict[str, np.ndarray], list[pa.Array], list[LengthRule | None]]:
    """Returns the columns of all parts, one after the other, the parts' words, and their rules.

    A part is copied before the next one is taken: it may be a view of a much larger shard.
    """
    columns = {name: np.zeros(0, kind) for name, kind in kinds.items()}
    words = []
    rules = []
    for part in parts:
        words += [] if part.words is None else [part.words]
        rules.append(part.rule)
        for name in columns.keys() | {"classes"}:
            added = getattr(part, name, None)
            if added is not None and added.size:
                # The memory grows where it is, so that no column is there twice.
                column = columns.setdefault(name, np.zeros(0, added.dtype))
                column.resize(column.size + added.size, refcheck=False)
                column[-added.size :] = added
    return columns, words, rules
