"""Keys: how the n-grams of one length are named, looked up, ordered, added up and given their noise.

An n-gram of one word is a string, `Words`; a longer one is a pair of row numbers in one integer,
`Pairs`. Whether n-grams are the one or the other is decided where keys are made, by `keys_of` and
`keys_of_length`, and nowhere else: steps call the methods that both have.
"""

import abc
import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from beam_dpne.elements.arrays import (
    KeyTable,
    byte_order,
    hash_words,
    join_words,
    places_among,
    places_in,
    run_ends,
    used_words,
)
from beam_dpne.elements.dictionaries import merge_words
from beam_dpne.elements.sums import sums_at, sums_of_runs
from beam_dpne.mechanism import randomness

SECOND_BITS = 32
ALL = slice(None)
# A set of so many n-grams has a table for look-ups, of up to 256 MB; a larger one is searched.
_MOST_HASHED = 2**24


def pack_pairs(prefixes: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Returns prefix · 2^32 + second as int64; both below 2^31."""
    return (prefixes.astype(np.int64) << SECOND_BITS) | seconds.astype(np.int64)


def unpack_pairs(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (prefixes, seconds), int64; inverse of `pack_pairs`."""
    return keys >> SECOND_BITS, keys & ((1 << SECOND_BITS) - 1)


class Sums(abc.ABC):
    """Equal n-grams among entries, and sums over the entries of each of them.

    Attributes:
      grams: the distinct n-grams.
    """

    grams: "Keys"

    @abc.abstractmethod
    def add_up(self, values: np.ndarray) -> np.ndarray:
        """Returns the sum of the values of each n-gram's entries, exactly: (distinct,) int64."""

    @abc.abstractmethod
    def one_of(self, values: np.ndarray) -> np.ndarray:
        """Returns a value of each n-gram, all of whose entries have the same: (distinct,)."""


class Keys(abc.ABC):
    """N-grams of one length.

    Attributes:
      keys: (m,) int64: packed pairs, or row numbers of `words`.
      words: (w,) Arrow strings, distinct; None of pairs.
      word_hashes: (w, 2) uint64, their 128-bit keyed hashes; None of pairs, and of words that are only
        looked up and ordered.
    """

    keys: np.ndarray
    words: pa.Array | None
    word_hashes: np.ndarray | None

    def __len__(self) -> int:
        return len(self.keys)

    @abc.abstractmethod
    def select(self, places: np.ndarray | slice) -> "Keys":
        """Returns some of the n-grams, in this order."""

    @abc.abstractmethod
    def entries(self, rows: np.ndarray, word_key: bytes) -> "Keys":
        """Returns n-grams of a set as entries of users, who may have the same ones.

        Args:
          rows: (n,) integers, the row in the set of each entry.
          word_key: the sub-key of the keyed hashes of words.
        """

    @abc.abstractmethod
    def identities(self, places: np.ndarray | slice = ALL) -> np.ndarray:
        """Returns 64 bits of each n-gram that are the same in every batch: (n,) uint64."""

    @abc.abstractmethod
    def noise_bits(self, sub_key: bytes, places: np.ndarray | slice = ALL) -> np.ndarray:
        """Returns 128 keyed bits of each n-gram, no two of which share a block: (n, 2) uint64."""

    @abc.abstractmethod
    def into_order(self) -> "tuple[Keys, np.ndarray]":
        """Puts the n-grams into the order of ids, which is the same on every runner.

        Returns:
          The n-grams, whose array may be this one, and the place that each had before: (m,) integers.
        """

    @abc.abstractmethod
    def look_up_order(self) -> np.ndarray | slice:
        """Returns the order that `places_of` needs, which no release depends on."""

    @abc.abstractmethod
    def places_of(self, wanted: "Keys") -> np.ndarray:
        """Returns the place of each wanted n-gram among these, −1 where it is missing.

        These n-grams are distinct; pairs ascend.
        """

    @abc.abstractmethod
    def table(self) -> "Keys | PairTable":
        """Returns what answers `places_of` for many batches."""

    @abc.abstractmethod
    def sums(self) -> Sums:
        """Returns the distinct n-grams of these entries."""

    def hash_ranges(self, ranges: int) -> np.ndarray:
        """Returns the number of the hash range of each n-gram: (m,) int64."""
        return hash_ranges(self.identities(), ranges)


@dataclasses.dataclass(frozen=True, eq=False)
class Words(Keys):
    """N-grams of one word: the i-th of them is `words[keys[i]]`.

    Of sets and of hash ranges, whose n-grams are distinct, the keys are 0, 1, 2, …
    """

    keys: np.ndarray
    words: pa.Array
    word_hashes: np.ndarray | None = None

    @classmethod
    def numbered(cls, words: pa.Array, word_hashes: np.ndarray | None = None) -> "Words":
        """Returns distinct words as n-grams."""
        return cls(np.arange(len(words)), words, word_hashes)

    @classmethod
    def of_parts(cls, parts: Sequence["Words"]) -> "Words":
        """Returns the words of several parts, one after the other; those of different parts differ."""
        hashes = [part.word_hashes for part in parts if part.word_hashes is not None]
        return cls.numbered(
            join_words(part.words for part in parts), np.concatenate(hashes) if hashes else None
        )

    @classmethod
    def merged(cls, parts: Sequence["Words"]) -> "Words":
        """Returns the words of several parts as entries of one dictionary; parts may share words."""
        merged = merge_words(part.words for part in parts)
        entries = merged.codes([part.keys for part in parts])
        hashes = merged.hashes([part.hashes for part in parts])
        return cls(np.concatenate(entries), merged.words, hashes)

    @property
    def hashes(self) -> np.ndarray:
        """The keyed hashes of the words, where they are needed."""
        if self.word_hashes is None:
            raise ValueError("Words must have their keyed hashes here: word_hashes=…")
        return self.word_hashes

    def select(self, places: np.ndarray | slice) -> "Words":
        """Returns some of distinct words."""
        chosen = (
            self.words[places] if isinstance(places, slice) else self.words.take(pa.array(places))
        )
        hashes = None if self.word_hashes is None else self.word_hashes[places]
        return Words.numbered(chosen, hashes)

    def entries(self, rows: np.ndarray, word_key: bytes) -> "Words":
        """Returns words as entries; only those travel with them that some entry has."""
        used, codes = used_words(len(self.words), rows)
        words = self.words.take(pa.array(used))
        return Words(codes.astype(np.int64), words, hash_words(word_key, words))

    def identities(self, places: np.ndarray | slice = ALL) -> np.ndarray:
        """Returns the first half of each word's keyed hash; its row differs from batch to batch."""
        return self.hashes[:, 0].take(self.keys[places])

    def noise_bits(self, sub_key: bytes, places: np.ndarray | slice = ALL) -> np.ndarray:
        """Returns the bits whose block is the word's keyed hash."""
        return randomness.encrypt_blocks(sub_key, self.hashes[self.keys[places]])

    def into_order(self) -> "tuple[Words, np.ndarray]":
        """Puts words into the order of their UTF-8 bytes."""
        order = byte_order(self.words)
        return self.select(order), order

    def look_up_order(self) -> slice:
        """Returns the order that there is: words are found by hashing."""
        return ALL

    def places_of(self, wanted: Keys) -> np.ndarray:
        """Returns the places of words, each of which is looked up once."""
        return places_in(wanted.words, self.words)[wanted.keys]

    def table(self) -> "Words":
        """Returns these words: a batch looks them up at once."""
        return self

    def sums(self) -> "WordSums":
        """Returns the words that some entry has."""
        used, places = used_words(len(self.words), self.keys)
        words = self.words
        hashes = self.hashes
        if used.size < len(words):
            words = words.take(pa.array(used))
            hashes = hashes[used]
        return WordSums(Words.numbered(words, hashes), places)


@dataclasses.dataclass(frozen=True, eq=False)
class Pairs(Keys):
    """N-grams of two words and more: the row of the prefix in S_{k−1}, and a second row number."""

    keys: np.ndarray
    words: pa.Array | None = dataclasses.field(default=None, init=False)
    word_hashes: np.ndarray | None = dataclasses.field(default=None, init=False)

    @classmethod
    def of_parts(cls, parts: Sequence["Pairs"]) -> "Pairs":
        """Returns the pairs of several parts, one after the other."""
        return cls(np.concatenate([part.keys for part in parts]))

    @classmethod
    def merged(cls, parts: Sequence["Pairs"]) -> "Pairs":
        """Returns the pairs of several parts as entries."""
        return cls.of_parts(parts)

    def select(self, places: np.ndarray | slice) -> "Pairs":
        """Returns some of the pairs."""
        return Pairs(self.keys[places])

    def entries(self, rows: np.ndarray, word_key: bytes) -> "Pairs":
        """Returns pairs as entries."""
        return Pairs(self.keys.take(rows))

    def identities(self, places: np.ndarray | slice = ALL) -> np.ndarray:
        """Returns the pairs themselves, which are the same in every batch."""
        return self.keys[places].view(np.uint64)

    def noise_bits(self, sub_key: bytes, places: np.ndarray | slice = ALL) -> np.ndarray:
        """Returns the bits whose block is the packed pair."""
        return randomness.keyed_bits(sub_key, np.uint64(0), self.keys[places])

    def into_order(self) -> "tuple[Pairs, np.ndarray]":
        """Puts pairs into ascending order, which is that of the n-grams, word by word."""
        order = np.argsort(self.keys)
        # In place: a large set has no second column of keys.
        self.keys.sort()
        return self, order

    def look_up_order(self) -> np.ndarray:
        """Returns the ascending order: pairs are found by a binary search."""
        return np.argsort(self.keys)

    def places_of(self, wanted: Keys) -> np.ndarray:
        """Returns the places of pairs among these, which ascend."""
        return places_among(wanted.keys, self.keys)

    def table(self) -> "Pairs | PairTable":
        """Returns a table of the pairs, or the pairs where that would be too large."""
        return self if self.keys.size > _MOST_HASHED else PairTable(KeyTable(self.keys))

    def sums(self) -> "PairSums":
        """Returns the distinct pairs, ascending."""
        # Equal keys become neighbours, so that one pass adds up the values of each n-gram.
        order = _ascending_order(self.keys)
        keys = self.keys.take(order)
        ends = run_ends(keys)
        return PairSums(Pairs(keys.take(ends)), order, ends)


@dataclasses.dataclass(frozen=True, eq=False)
class PairTable:
    """A table of the pairs of a set, for look-ups of many batches."""

    rows: KeyTable

    def places_of(self, wanted: Keys) -> np.ndarray:
        """Returns the place of each wanted pair in the set, −1 where it is missing: (n,) int32."""
        return self.rows.places(wanted.keys)


@dataclasses.dataclass(frozen=True, eq=False)
class WordSums(Sums):
    """Sums over entries of words; `places` has the place of each entry's word in `grams`."""

    grams: Keys
    places: np.ndarray

    def add_up(self, values: np.ndarray) -> np.ndarray:
        """Adds the values to the places of their words."""
        return sums_at(self.places, values, len(self.grams))

    def one_of(self, values: np.ndarray) -> np.ndarray:
        """Returns the value of the last entry of each word."""
        chosen = np.zeros(len(self.grams), values.dtype)
        chosen[self.places] = values
        return chosen


@dataclasses.dataclass(frozen=True, eq=False)
class PairSums(Sums):
    """Sums over entries of pairs: in `entry_order` equal ones are neighbours, which end at `ends`."""

    grams: Keys
    entry_order: np.ndarray
    ends: np.ndarray

    def add_up(self, values: np.ndarray) -> np.ndarray:
        """Adds up the neighbours."""
        return sums_of_runs(values.take(self.entry_order), self.ends)

    def one_of(self, values: np.ndarray) -> np.ndarray:
        """Returns the value of the last entry of each pair."""
        return values.take(self.entry_order.take(self.ends))


def keys_of(
    keys: np.ndarray, words: pa.Array | None = None, word_hashes: np.ndarray | None = None
) -> Words | Pairs:
    """Returns the keys of an element: `Words` if it has words, else `Pairs`."""
    return Pairs(keys) if words is None else Words(keys, words, word_hashes)


def keys_of_length(length: int, keys: np.ndarray, words: Sequence[pa.Array] = ()) -> Words | Pairs:
    """Returns the distinct n-grams of a length whose parts are joined; there may be no part.

    Args:
      length: k.
      keys: (m,) int64, packed pairs; at k = 1 they are not read.
      words: the words of each part (k = 1 only).
    """
    return Words.numbered(join_words(words)) if length == 1 else Pairs(keys)


def no_keys(length: int) -> Words | Pairs:
    """Returns the keys of a hash range of a length that has no n-gram."""
    nothing = np.zeros(0, np.int64)
    if length > 1:
        return Pairs(nothing)
    return Words(nothing, pa.array([], pa.string()), np.zeros((0, 2), np.uint64))


def joined_keys(parts: Sequence[Keys]) -> Words | Pairs:
    """Returns the n-grams of several parts, all of which differ, one part after the other."""
    words = [part for part in parts if isinstance(part, Words)]
    pairs = [part for part in parts if isinstance(part, Pairs)]
    return Words.of_parts(words) if words else Pairs.of_parts(pairs)


def merged_keys(parts: Sequence[Keys]) -> Words | Pairs:
    """Returns the n-grams of several parts as entries, one part after the other; some may be equal."""
    words = [part for part in parts if isinstance(part, Words)]
    pairs = [part for part in parts if isinstance(part, Pairs)]
    return Words.merged(words) if words else Pairs.merged(pairs)


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


def _ascending_order(keys: np.ndarray) -> np.ndarray:
    """Returns the order that sorts packed pairs, several times faster than argsort where possible.

    Sorting values is much faster than sorting places: where prefix, second and place fit in 63 bits
    together, they are sorted as one integer.
    """
    if not keys.size:
        return np.zeros(0, np.int64)
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
