"""KeyTable: the places of integers in an array, by hashing.

A binary search among a million keys reads some twenty places of memory for each look-up; here it is one
for a key that is missing, mostly, and two for one that is there.
"""

import numpy as np

from beam_dpne.elements.arrays import NOT_THERE, places_among

# Multiplication by this odd number spreads keys over its high bits (Knuth, TAOCP 3, section 6.4).
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SLOTS_PER_KEY = 4
# Look-ups are done in parts whose intermediate arrays stay in the processor's cache.
_AT_ONCE = 2**15


class KeyTable:
    """The places of distinct int64 keys in their array.

    Keys are at least 0.

    Example:
      >>> KeyTable(np.array([3, 5, 9])).places(np.array([9, 4, 3]))
      array([ 2, -1,  0], dtype=int32)
    """

    def __init__(self, keys: np.ndarray):
        """Takes (m,) int64 distinct keys, ascending, fewer than 2^31."""
        bits = max(1, (_SLOTS_PER_KEY * keys.size - 1).bit_length())
        self._shift = np.uint64(64 - bits)
        self._keys = np.append(keys, NOT_THERE)
        # (2^bits,) int32: the place of a key with this hash, −1 where there is none.
        self._table = np.full(1 << bits, NOT_THERE, np.int32)
        slots = self._slots(keys)
        places = np.arange(keys.size, dtype=np.int32)
        self._table[slots] = places
        # Places of the keys whose slot another key took: few, and looked up by binary search.
        self._others = np.flatnonzero(self._table[slots] != places)
        self._other_keys = keys[self._others]

    def places(self, wanted: np.ndarray) -> np.ndarray:
        """Returns the place of each wanted key, −1 where it is missing: (n,) int32."""
        found = np.empty(wanted.size, np.int32)
        for start in range(0, wanted.size, _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            found[part] = self._look_up(wanted[part])
        return found

    def _look_up(self, wanted: np.ndarray) -> np.ndarray:
        # An empty slot leads to the last of the keys, −1, which is no key.
        places = self._table[self._slots(wanted)]
        same = self._keys[places] == wanted
        found = np.where(same, places, np.int32(NOT_THERE))
        if self._others.size:
            # Places in `wanted` of those whose slot another key has.
            rest = np.flatnonzero(~same & (places >= 0))
            other = places_among(wanted[rest], self._other_keys)
            there = other >= 0
            found[rest[there]] = self._others[other[there]]
        return found

    def _slots(self, keys: np.ndarray) -> np.ndarray:
        """Returns the slot of each key: (n,) int64."""
        return ((keys.view(np.uint64) * _MULTIPLIER) >> self._shift).view(np.int64)
