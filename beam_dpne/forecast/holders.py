"""The numbers of users who hold each n-gram of a crowd, and which of these n-grams a run released."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.forecast.crowd import Crowd
from beam_dpne.ngrams.elements import GramSet, pack_pairs, unpack_pairs

# N-grams of fewer users of the crowd are left out, which keeps the tables small.
FEWEST = 2


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class HeldGrams:
    """N-grams of one length that at least two users of a crowd hold.

    Attributes:
      keys: (n,) int64, ascending: codes of words, and for longer n-grams packed pairs of the numbers of
        prefix and suffix among the n-grams one word shorter.
      holders: (n,) int64, the number of users who hold each.
    """

    keys: np.ndarray
    holders: np.ndarray

    def numbers(self, keys: np.ndarray) -> np.ndarray:
        """Returns the number of the n-gram of each key, −1 where there is none: (m,) int64."""
        if not self.keys.size:
            return np.full(keys.size, -1)
        places = np.minimum(np.searchsorted(self.keys, keys), self.keys.size - 1)
        return np.where(self.keys[places] == keys, places, -1)


def held_grams(crowd: Crowd, max_length: int) -> tuple[HeldGrams, ...]:
    """Counts the users who hold each n-gram of lengths 1, …, T.

    Example:
      >>> crowd = Crowd(words=pa.array(["a", "b"]), offsets=np.array([0, 3, 6, 8]),
      ...               codes=np.array([0, 1, -1, 0, 1, -1, 0, -1], np.int32))
      >>> [grams.holders.tolist() for grams in held_grams(crowd, 2)]
      [[3, 2], [2]]
    """
    users = crowd.user_of_position
    keys, places = crowd.codes.astype(np.int64), np.flatnonzero(crowd.codes >= 0)
    found = []
    for length in range(1, max_length + 1):
        distinct, ids = np.unique(keys[places], return_inverse=True)
        pairs = np.unique(ids.reshape(-1) * len(crowd) + users[places])
        holders = np.bincount(pairs // len(crowd), minlength=distinct.size)
        kept = holders >= FEWEST
        found.append(HeldGrams(keys=distinct[kept], holders=holders[kept]))
        if length == max_length:
            break
        # (n,) the number of the kept n-gram that starts at each position, or −1.
        numbers = np.where(kept, np.cumsum(kept) - 1, -1)
        here = np.full(crowd.codes.size + 1, -1)
        here[places] = numbers[ids.reshape(-1)]
        places = np.flatnonzero((here[:-1] >= 0) & (here[1:] >= 0))
        keys = np.zeros(crowd.codes.size, np.int64)
        keys[places] = pack_pairs(here[places], here[places + 1])
    return tuple(found)


def released_flags(
    crowd: Crowd, held: Sequence[HeldGrams], released: Sequence[GramSet]
) -> list[np.ndarray]:
    """Returns for each length whether a run has released each held n-gram: (n_k,) bool."""
    flags = []
    vocabulary = np.zeros(0, np.int64)
    rows = np.zeros((0, 0), np.int64)
    for grams, of_length in zip(released, held, strict=True):
        if grams.words is not None:
            vocabulary = _codes(crowd, grams.words)
            rows = vocabulary[:, np.newaxis]
        else:
            prefixes, seconds = unpack_pairs(grams.keys)
            last = vocabulary[seconds] if grams.pruning == "single" else rows[seconds, -1]
            rows = np.concatenate((rows[prefixes], last[:, np.newaxis]), axis=1)
        numbers = _numbers(held, rows)
        flag = np.zeros(of_length.keys.size, bool)
        flag[numbers[numbers >= 0]] = True
        flags.append(flag)
    return flags


def _codes(crowd: Crowd, words: pa.Array) -> np.ndarray:
    """Returns the crowd's code of each word, −1 for other words: (n,) int64."""
    places = pc.call_function(
        "index_in",
        [words.cast(pa.large_string())],
        pc.SetLookupOptions(value_set=crowd.words.cast(pa.large_string())),
    )
    return places.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)


def _numbers(held: Sequence[HeldGrams], rows: np.ndarray) -> np.ndarray:
    """Returns the number of each n-gram among the held ones, given the codes of its words (n, k)."""
    columns = [held[0].numbers(rows[:, place]) for place in range(rows.shape[1])]
    for grams in held[1 : rows.shape[1]]:
        columns = [
            np.where(
                (first >= 0) & (second >= 0),
                grams.numbers(pack_pairs(np.maximum(first, 0), np.maximum(second, 0))),
                -1,
            )
            for first, second in itertools.pairwise(columns)
        ]
    return columns[0]
