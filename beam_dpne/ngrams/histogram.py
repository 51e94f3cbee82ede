"""WeightedHistogram: the sums H_k of users' weights, in exact integers and in hash ranges."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from beam_dpne.elements.arrays import (
    group_places,
    join_words,
    merge_hashes,
    merge_words,
    places_among,
    places_in,
    used_words,
)
from beam_dpne.elements.encoding import bounded_parts
from beam_dpne.elements.sums import sums_at
from beam_dpne.ngrams.elements import (
    Contributions,
    GramSet,
    HistogramShard,
    join_columns,
    unpack_pairs,
)


def sum_contributions(contributions: Contributions) -> HistogramShard:
    """Sums the weights of one batch."""
    if contributions.weights is None:
        raise ValueError("WeightedHistogram needs weights; apply LimitContributions first.")
    shared = ("length", "round", "keys", "weights", "classes", "tallies")
    entries = HistogramShard(**{name: getattr(contributions, name) for name in shared})
    if contributions.words is None or contributions.word_hashes is None:
        return _sum_by_key(entries)
    # Keys of words are rows of the batch's dictionary: of words that some user holds, at any weight.
    used, places = used_words(len(contributions.words), entries.keys)
    return dataclasses.replace(
        _sum_by_place(entries, places, used.size),
        words=contributions.words.take(pa.array(used)),
        word_hashes=contributions.word_hashes[used],
    )


def empty_ranges(previous: GramSet, ranges: int) -> Iterator[tuple[int, HistogramShard]]:
    """Yields a piece without n-grams for every hash range of H_k, so that none is missing."""
    empty = HistogramShard(
        length=previous.length + 1, keys=np.zeros(0, np.int64), weights=np.zeros(0, np.int64)
    )
    if empty.length == 1:
        hashes = np.zeros((0, 2), np.uint64)
        empty = dataclasses.replace(empty, words=pa.array([], pa.string()), word_hashes=hashes)
    for number in range(ranges):
        yield number, empty


def shard_open(shard: HistogramShard) -> Iterator[tuple[int, HistogramShard]]:
    """Sends the n-grams that a hash range left open back to the same range."""
    for piece in _bounded_pieces(shard):
        yield shard.hash_range[0], piece


def merge_shards(
    pieces: Iterable[HistogramShard], hash_range: tuple[int, int] = (0, 1)
) -> HistogramShard:
    """Adds up pieces of one hash range; their order does not matter.

    Args:
      pieces: sums of users' contributions, and what was left open of the round before.
      hash_range: the number of the hash range, and how many there are.

    Raises:
      ValueError: if they have two lengths or rounds, or belong to a later round without the n-grams
        that are open.
    """
    pieces = list(pieces)
    if len({(piece.length, piece.round) for piece in pieces}) > 1:
        raise ValueError("Pieces of one histogram must have one length and one round.")
    # Pieces with `earlier` are from DecideRound; the others are sums of users' contributions.
    sums = sum_pieces([piece for piece in pieces if piece.earlier is None])
    if sums is None or pieces[0].round > 1:
        sums = _add_to_open(join_open([p for p in pieces if p.earlier is not None]), sums)
    return dataclasses.replace(sums, hash_range=hash_range)


def sum_pieces(pieces: list[HistogramShard]) -> HistogramShard | None:
    """Adds up the weights of users' contributions."""
    if not pieces:
        return None
    entries = HistogramShard(
        length=pieces[0].length,
        round=pieces[0].round,
        keys=np.concatenate([piece.keys for piece in pieces]),
        weights=np.concatenate([piece.weights for piece in pieces]),
        # A piece without n-grams need not say whether there are classes.
        classes=join_columns([piece.classes for piece in pieces if piece.keys.size]),
        tallies=join_columns([piece.tallies for piece in pieces if piece.keys.size]),
    )
    return _merge_words(pieces, entries) if entries.length == 1 else _sum_by_key(entries)


def join_open(pieces: list[HistogramShard]) -> HistogramShard:
    """Joins decided n-grams of one hash range, with ascending keys."""
    if not pieces:
        raise ValueError("Pieces of a later round need what DecideRound left open of the last one.")
    # One entry for each n-gram along the last axis; `earlier` has a row for each round before.
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(piece, name) for piece in pieces], axis=-1)
        for name in ("keys", "weights", "earlier", "found", "cells")
    }
    columns["classes"] = join_columns([piece.classes for piece in pieces])
    if pieces[0].words is not None:
        columns |= {
            "keys": np.arange(columns["cells"].size),
            "words": join_words(piece.words for piece in pieces),
            "word_hashes": join_columns([piece.word_hashes for piece in pieces]),
        }
    whole = dataclasses.replace(pieces[0], **columns)
    # Pieces come in any order after a shuffle; look-ups need ascending keys.
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


def cut_by_hash_range(whole: HistogramShard, ranges: int) -> Iterator[tuple[int, HistogramShard]]:
    """Yields the part of each hash range that is not empty."""
    # A packed pair is the same in every batch. The row of a word is not, but its keyed hash is.
    hashes = whole.word_hashes
    keys = whole.keys.view(np.uint64) if hashes is None else hashes[:, 0]
    for number, inside in group_places(hash_ranges(keys, ranges), ranges):
        for part in _bounded_pieces(whole.select(inside)):
            yield number, part


def _bounded_pieces(piece: HistogramShard) -> Iterator[HistogramShard]:
    """Cuts a piece into parts that are small enough for an element; the parts are added up again."""

    def take(places: np.ndarray) -> HistogramShard:
        start = int(places[0]) if places.size else 0
        return piece.select(slice(start, start + places.size))

    return bounded_parts(np.arange(piece.keys.size), take, piece)


def hash_ranges(keys: np.ndarray, ranges: int) -> np.ndarray:
    """Spreads 64-bit keys over hash ranges by a public mixing function (splitmix64).

    References: Steele, Lea & Flood, "Fast splittable pseudorandom number generators", 2014.
    """
    # Packed pairs of one prefix differ in their low bits only, and must not all meet in one range.
    mixed = keys + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return (mixed % np.uint64(ranges)).astype(np.int64)


def _merge_words(pieces: list[HistogramShard], entries: HistogramShard) -> HistogramShard:
    """Adds up the entries of pieces at k = 1, where an n-gram is a string."""
    words, codes = merge_words(piece.words for piece in pieces if piece.words is not None)
    hashes = [piece.word_hashes for piece in pieces if piece.word_hashes is not None]
    return dataclasses.replace(
        _sum_by_place(entries, codes, len(words)),
        words=words,
        word_hashes=merge_hashes(hashes, codes, len(words)),
    )


def _sum_by_place(entries: HistogramShard, places: np.ndarray, size: int) -> HistogramShard:
    """Adds up entries of words by the place of each one's word, (m,) int32 in range(size)."""
    columns = {"keys": np.arange(size), "weights": sums_at(places, entries.weights, size)}
    if entries.classes is not None and entries.tallies is not None:
        columns |= {
            "classes": np.zeros(size, np.int16),
            "tallies": sums_at(places, entries.tallies, size),
        }
        columns["classes"][places] = entries.classes
    return dataclasses.replace(entries, **columns)


def _sum_by_key(entries: HistogramShard) -> HistogramShard:
    """Adds up the weights and tallies of entries with equal keys; the keys ascend then."""
    if entries.keys.size == 0:
        return dataclasses.replace(entries, classes=None, tallies=None)
    # Equal keys become neighbours, so that one pass adds up each n-gram's weights.
    order = _ascending_order(entries.keys)
    keys = entries.keys.take(order)
    ends = np.flatnonzero(np.append(keys[1:] != keys[:-1], True))

    def sums(values: np.ndarray) -> np.ndarray:
        # Sums over all keys may pass 2^63, since their differences do not.
        return np.diff(np.cumsum(values.take(order)).take(ends), prepend=0)

    classes = entries.classes
    tallies = entries.tallies
    return dataclasses.replace(
        entries,
        keys=keys.take(ends),
        weights=sums(entries.weights),
        # A class is a function of the n-gram, so that all of its entries say the same.
        classes=None if classes is None else classes.take(order.take(ends)),
        tallies=None if tallies is None else sums(tallies),
    )


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
