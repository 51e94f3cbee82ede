"""WeightedHistogram: the sums H_k of users' weights, in exact integers and in hash ranges."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from beam_dpne.elements.arrays import offsets_of
from beam_dpne.elements.encoding import bounded_parts
from beam_dpne.ngrams.elements import (
    Contributions,
    GramSet,
    HistogramShard,
    join_columns,
)
from beam_dpne.ngrams.keys import Pairs, Words, joined_keys, merged_keys, no_keys


def sum_contributions(contributions: Contributions) -> HistogramShard:
    """Sums the weights of one batch."""
    if contributions.weights is None:
        raise ValueError("WeightedHistogram needs weights; apply LimitContributions first.")
    entries = HistogramShard(
        length=contributions.length,
        round=contributions.round,
        keys=contributions.keys,
        weights=contributions.weights,
        classes=contributions.classes,
        tallies=contributions.tallies,
    )
    return _summed(entries, contributions.ngrams)


def empty_ranges(previous: GramSet, ranges: int) -> Iterator[tuple[int, HistogramShard]]:
    """Yields a piece without n-grams for every hash range of H_k, so that none is missing."""
    nothing = no_keys(previous.length + 1)
    empty = HistogramShard(
        length=previous.length + 1,
        keys=nothing.keys,
        words=nothing.words,
        word_hashes=nothing.word_hashes,
        weights=np.zeros(0, np.int64),
    )
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
    ngrams = merged_keys([piece.ngrams for piece in pieces])
    entries = HistogramShard(
        length=pieces[0].length,
        round=pieces[0].round,
        keys=ngrams.keys,
        weights=np.concatenate([piece.weights for piece in pieces]),
        # A piece without n-grams need not say whether there are classes.
        classes=join_columns(piece.classes for piece in pieces if piece.keys.size),
        tallies=join_columns(piece.tallies for piece in pieces if piece.keys.size),
    )
    return _summed(entries, ngrams)


def join_open(pieces: list[HistogramShard]) -> HistogramShard:
    """Joins decided n-grams of one hash range, with ascending keys."""
    if not pieces:
        raise ValueError("Pieces of a later round need what DecideRound left open of the last one.")
    ngrams = joined_keys([piece.ngrams for piece in pieces])
    whole = dataclasses.replace(
        pieces[0],
        keys=ngrams.keys,
        words=ngrams.words,
        word_hashes=ngrams.word_hashes,
        weights=np.concatenate([piece.weights for piece in pieces]),
        classes=join_columns(piece.classes for piece in pieces),
        earlier=join_columns(piece.earlier for piece in pieces),
        found=join_columns(piece.found for piece in pieces),
        cells=join_columns(piece.cells for piece in pieces),
    )
    # Pieces come in any order after a shuffle; look-ups need them in order.
    return whole.select(ngrams.look_up_order())


def _add_to_open(still_open: HistogramShard, sums: HistogramShard | None) -> HistogramShard:
    """Gives the n-grams that are open in a round their weights of that round."""
    if sums is None or sums.keys.size == 0:
        return still_open
    places = still_open.ngrams.places_of(sums.ngrams)
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
    in_order = RangedSums.of(whole, ranges)
    for number in np.flatnonzero(np.diff(in_order.offsets)).tolist():
        for part in _bounded_pieces(in_order.part(number)):
            yield number, part


class RangedSums(NamedTuple):
    """Sums of users' contributions, one hash range after the other.

    Attributes:
      sums: the sums of all hash ranges.
      offsets: (ranges + 1,) int64, where each hash range begins.
    """

    sums: HistogramShard
    offsets: np.ndarray

    @classmethod
    def of(cls, whole: HistogramShard, ranges: int) -> "RangedSums":
        """Puts sums into the order of so many hash ranges; n-grams of one range stay in their order."""
        numbers = whole.ngrams.hash_ranges(ranges)
        # numpy sorts short integers by radix, which is faster.
        order = np.argsort(numbers.astype(np.min_scalar_type(ranges)), kind="stable")
        return cls(whole.select(order), offsets_of(np.bincount(numbers, minlength=ranges)))

    def part(self, number: int) -> HistogramShard:
        """Returns the sums of a hash range, whose arrays are parts of the whole."""
        return self.sums.select(slice(self.offsets[number], self.offsets[number + 1]))


def _bounded_pieces(piece: HistogramShard) -> Iterator[HistogramShard]:
    """Cuts a piece into parts that are small enough for an element; the parts are added up again."""

    def take(places: np.ndarray) -> HistogramShard:
        start = int(places[0]) if places.size else 0
        return piece.select(slice(start, start + places.size))

    return bounded_parts(np.arange(piece.keys.size), take, piece)


def _summed(entries: HistogramShard, ngrams: Words | Pairs) -> HistogramShard:
    """Adds up the weights and tallies of equal n-grams.

    Args:
      entries: the columns of the entries; their keys are not read.
      ngrams: the n-gram of each entry.
    """
    sums = ngrams.sums()
    classes = entries.classes
    tallies = entries.tallies
    return dataclasses.replace(
        entries,
        keys=sums.grams.keys,
        words=sums.grams.words,
        word_hashes=sums.grams.word_hashes,
        weights=sums.add_up(entries.weights),
        # A class is a function of the n-gram, so that all of its entries say the same.
        classes=None if classes is None else sums.one_of(classes),
        tallies=None if tallies is None else sums.add_up(tallies),
    )
