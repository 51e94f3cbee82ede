"""WeightedHistogram: the sums H_k of users' weights, in exact integers and in hash ranges."""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from beam_dpne.elements.arrays import (
    bounded_parts,
    group_places,
    join_words,
    merge_hashes,
    merge_words,
    places_among,
    places_in,
)
from beam_dpne.ngrams.classes import join_classes
from beam_dpne.ngrams.elements import Contributions, HistogramShard, SpuriousGrams, unpack_pairs

_SPURIOUS_COLUMNS = ("spurious_keys", "spurious_cells", "spurious_rounds", "spurious_classes")


def sum_contributions(contributions: Contributions) -> HistogramShard:
    """Sums the weights of one batch."""
    if contributions.weights is None:
        raise ValueError("WeightedHistogram needs weights; apply LimitContributions first.")
    keys, weights, classes, tallies = _sum_by_key(
        contributions.keys, contributions.weights, contributions.classes, contributions.tallies
    )
    sums = HistogramShard(
        length=contributions.length,
        round=contributions.round,
        keys=keys,
        weights=weights,
        classes=classes,
        tallies=tallies,
    )
    if contributions.words is None or contributions.word_hashes is None:
        return sums
    # Keys of words are rows of the batch's dictionary: of words that some user holds, at any weight.
    return dataclasses.replace(
        sums,
        keys=np.arange(keys.size),
        words=contributions.words.take(pa.array(keys)),
        word_hashes=contributions.word_hashes[keys],
    )


def shard_spurious(
    spurious: SpuriousGrams, *, histogram_ranges: int
) -> Iterator[tuple[int, HistogramShard]]:
    """Cuts drawn n-grams into the hash ranges of the histogram; each range gets the rule, once."""
    ranges = hash_ranges(spurious.keys.view(np.uint64), histogram_ranges)
    none = np.zeros(0, np.int64)
    places = dict(group_places(ranges, histogram_ranges))
    # Every range gets a piece, also without spurious n-grams, since it brings the rule that decides.
    for shard in range(histogram_ranges):
        inside = places.get(shard, none)
        piece = HistogramShard(
            length=spurious.length,
            keys=none,
            weights=none,
            spurious_keys=spurious.keys[inside],
            spurious_cells=spurious.cells[inside],
            spurious_rounds=spurious.rounds[inside],
            spurious_classes=spurious.classes[inside],
            rule=spurious.rule,
        )
        yield shard, piece


def empty_ranges(length: int, *, histogram_ranges: int) -> Iterator[tuple[int, HistogramShard]]:
    """Yields a piece without n-grams for every hash range, so that none is missing."""
    none = np.zeros(0, np.int64)
    for number in range(histogram_ranges):
        yield (
            number,
            HistogramShard(length=length, keys=none, weights=none, range_number=number),
        )


def shard_open(
    shard: HistogramShard, *, histogram_ranges: int
) -> Iterator[tuple[int, HistogramShard]]:
    """Sends the n-grams that a hash range left open back to the same range."""
    # All n-grams of a shard are in one hash range, so that the hash of any of them gives its number.
    number = shard.range_number
    if number is None:
        first = np.concatenate((_hash_keys(shard)[:1], shard.spurious_keys[:1].view(np.uint64)))
        number = int(hash_ranges(first, histogram_ranges)[0])
    for piece in _bounded_pieces(shard):
        yield number, piece


def merge_shards(pieces: Iterable[HistogramShard]) -> HistogramShard:
    """Adds up pieces of one hash range.

    Raises:
      ValueError: if they have two lengths, rounds or rules, or belong to a later round without the
        n-grams that are open.
    """
    pieces = list(pieces)
    rules = {piece.rule for piece in pieces if piece.rule is not None}
    numbers = {piece.range_number for piece in pieces if piece.range_number is not None}
    if len(rules) > 1:
        raise ValueError("Pieces of one histogram must have one rule.")
    _check_one_round(pieces)
    # Pieces with `earlier` are from DecideRound; the others are sums of users' contributions.
    sums = _sum_pieces([piece for piece in pieces if piece.earlier is None])
    if sums is None or pieces[0].round > 1:
        sums = _add_to_open(_join_open([p for p in pieces if p.earlier is not None]), sums)
    return dataclasses.replace(
        sums,
        spurious_keys=np.concatenate([piece.spurious_keys for piece in pieces]),
        spurious_cells=np.concatenate([piece.spurious_cells for piece in pieces]),
        spurious_rounds=np.concatenate([piece.spurious_rounds for piece in pieces]),
        spurious_classes=np.concatenate([piece.spurious_classes for piece in pieces]),
        rule=next(iter(rules), None),
        range_number=next(iter(numbers), None),
    )


def _check_one_round(pieces: Sequence[HistogramShard]) -> None:
    if len({(piece.length, piece.round) for piece in pieces}) > 1:
        raise ValueError("Pieces of one histogram must have one length and one round.")


def _sum_pieces(pieces: list[HistogramShard]) -> HistogramShard | None:
    """Adds up the weights of users' contributions."""
    if not pieces:
        return None
    _check_one_round(pieces)
    weights = np.concatenate([piece.weights for piece in pieces])
    if pieces[0].length == 1:
        return _merge_words(pieces, weights)
    # A piece without n-grams, like that of spurious ones, need not say whether there are classes.
    classes = join_classes([piece.classes for piece in pieces if piece.keys.size])
    tallies = join_classes([piece.tallies for piece in pieces if piece.keys.size])
    keys, weights, classes, tallies = _sum_by_key(
        np.concatenate([piece.keys for piece in pieces]), weights, classes, tallies
    )
    return HistogramShard(
        length=pieces[0].length,
        round=pieces[0].round,
        keys=keys,
        weights=weights,
        classes=classes,
        tallies=tallies,
    )


def _join_open(pieces: list[HistogramShard]) -> HistogramShard:
    """Joins the open n-grams of one hash range, with ascending keys."""
    if not pieces:
        raise ValueError("Pieces of a later round need what DecideRound left open of the last one.")
    # One entry for each n-gram along the last axis; `earlier` has a row for each round before.
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(piece, name) for piece in pieces], axis=-1)
        for name in ("keys", "weights", "earlier", "found", "cells")
    }
    columns["classes"] = join_classes([piece.classes for piece in pieces])
    if pieces[0].words is not None:
        columns |= {
            "keys": np.arange(columns["cells"].size),
            "words": join_words(piece.words for piece in pieces),
            "word_hashes": np.concatenate(
                [piece.word_hashes for piece in pieces if piece.word_hashes is not None]
            ),
        }
    whole = dataclasses.replace(pieces[0], **columns)
    # A shard that was cut for the shuffle may come back in any order; look-ups need ascending keys.
    return whole if whole.words is not None else whole.select(np.argsort(whole.keys))


def _add_to_open(still_open: HistogramShard, sums: HistogramShard | None) -> HistogramShard:
    """Gives the n-grams that are open in a round their weights of that round."""
    if sums is None or sums.keys.size == 0:
        return still_open
    if still_open.words is None:
        places = places_among(sums.keys, still_open.keys)
    else:
        places = places_in(sums.words, still_open.words)
    # (sums,) bool: whether the n-gram to which users sent weight is open.
    known = places >= 0
    # A weight for a closed n-gram would be added to another one, beyond the user's budget for that one.
    if not known.all():
        raise ValueError("Users may send weights only to grams that are open.")
    # (m,) int64 in units of 2^-32: 0 for n-grams on which nobody spent in this round.
    weights = np.zeros(still_open.keys.size, dtype=np.int64)
    weights[places] = sums.weights
    return dataclasses.replace(still_open, weights=weights)


def cut_by_hash_range(
    whole: HistogramShard, histogram_ranges: int
) -> Iterator[tuple[int, HistogramShard]]:
    """Yields the part of each hash range that is not empty."""
    ranges = hash_ranges(_hash_keys(whole), histogram_ranges)
    for number, inside in group_places(ranges, histogram_ranges):
        for part in _bounded_pieces(whole.select(inside)):
            yield number, part


def _hash_keys(shard: HistogramShard) -> np.ndarray:
    """Returns 64 bits for each n-gram that are the same in every batch: (m,) uint64.

    A packed pair is the same in every batch. The row of a word is not, but its keyed hash is.
    """
    return shard.keys.view(np.uint64) if shard.word_hashes is None else shard.word_hashes[:, 0]


def _bounded_pieces(piece: HistogramShard) -> Iterator[HistogramShard]:
    """Cuts a piece into parts that are small enough for an element; the parts are added up again."""
    return bounded_parts(np.arange(piece.keys.size), functools.partial(_take, piece))


def _take(piece: HistogramShard, places: np.ndarray) -> HistogramShard:
    """Returns successive n-grams of a piece; the first of them have all spurious ones with them."""
    start = int(places[0]) if places.size else 0
    part = piece.select(slice(start, start + places.size))
    # Each spurious n-gram must be in one part only.
    return replace_spurious(part, slice(0)) if start else part


def replace_spurious(shard: HistogramShard, places: np.ndarray | slice) -> HistogramShard:
    """Returns a shard with some of its spurious n-grams."""
    return dataclasses.replace(
        shard, **{name: getattr(shard, name)[places] for name in _SPURIOUS_COLUMNS}
    )


def hash_ranges(keys: np.ndarray, histogram_ranges: int) -> np.ndarray:
    """Spreads 64-bit keys over hash ranges by a public mixing function (splitmix64).

    References: Steele, Lea & Flood, "Fast splittable pseudorandom number generators", 2014.
    """
    # Packed pairs of one prefix differ in their low bits only, and must not all meet in one range.
    mixed = keys + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return (mixed % np.uint64(histogram_ranges)).astype(np.int64)


def _merge_words(pieces: list[HistogramShard], weights: np.ndarray) -> HistogramShard:
    """Adds up pieces at k = 1, where an n-gram is a string."""
    words, codes = merge_words(piece.words for piece in pieces if piece.words is not None)
    hashes = [piece.word_hashes for piece in pieces if piece.word_hashes is not None]
    # (words,) int64 in units of 2^-32; integers, so that the order of the pieces does not matter.
    sums = np.zeros(len(words), dtype=np.int64)
    np.add.at(sums, codes, weights)
    return HistogramShard(
        length=1,
        round=pieces[0].round,
        keys=np.arange(sums.size),
        weights=sums,
        words=words,
        word_hashes=merge_hashes(hashes, codes, sums.size),
    )


def _sum_by_key(
    keys: np.ndarray,
    weights: np.ndarray,
    classes: np.ndarray | None,
    tallies: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Returns distinct keys, ascending, the int64 sums of weights, classes, and sums of tallies."""
    if keys.size == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), None, None
    # Equal keys become neighbours, so that one pass adds up each n-gram's weights.
    order = _ascending_order(keys)
    keys = keys[order]
    fresh = np.ones(keys.size, dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=fresh[1:])
    starts = np.flatnonzero(fresh)
    # Sums of the runs of equal keys, in units of 2^-32.
    # A class is a function of the n-gram, so that all of its entries say the same.
    classes = None if classes is None else classes[order[starts]]
    sums = None if tallies is None else np.add.reduceat(tallies[order], starts)
    return keys[starts], np.add.reduceat(weights[order], starts), classes, sums


def _ascending_order(keys: np.ndarray) -> np.ndarray:
    """Returns the order that sorts packed pairs, several times faster than argsort where possible.

    Sorting values is much faster than sorting places: where prefix, second and place fit in 63 bits
    together, they are sorted as one integer.
    """
    prefixes, seconds = unpack_pairs(keys)
    second_bits = int(seconds.max()).bit_length()
    place_bits = (keys.size - 1).bit_length()
    if int(prefixes.max()).bit_length() + second_bits + place_bits > 63:
        return np.argsort(keys)
    packed = prefixes
    packed <<= second_bits
    packed |= seconds
    packed <<= place_bits
    packed |= np.arange(keys.size)
    packed.sort()
    packed &= (1 << place_bits) - 1
    return packed
