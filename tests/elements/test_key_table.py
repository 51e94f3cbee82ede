"""KeyTable: the same places as a binary search."""

import numpy as np
import pytest

from beam_dpne.elements.arrays import KeyTable, places_among


@pytest.mark.parametrize("size", [0, 1, 2, 50, 5_000, 100_000])
@pytest.mark.parametrize("largest", [7, 2**20, 2**62])
def test_places_are_those_of_a_binary_search(size, largest):
    rng = np.random.default_rng(size + largest % 97)
    keys = np.unique(rng.integers(0, largest, size))
    missing = rng.integers(0, largest, 70_000)
    present = rng.choice(keys, 70_000) if keys.size else missing
    wanted = np.where(rng.random(70_000) < 0.5, present, missing)
    found = KeyTable(keys).places(wanted)
    assert found.dtype == np.int32
    assert np.array_equal(found, places_among(wanted, keys))


def test_keys_that_share_a_slot_are_found():
    # Multiples of 2^62 differ in their two highest bits only, which the multiplication moves away.
    keys = np.arange(400) * 2**54
    table = KeyTable(keys)
    assert np.array_equal(table.places(keys), np.arange(keys.size))
    assert (table.places(keys + 1) == -1).all()


def test_packed_pairs_of_one_prefix_are_found():
    keys = (np.int64(3) << 32) + np.arange(0, 60_000, 3)
    wanted = (np.int64(3) << 32) + np.arange(60_000)
    places = KeyTable(keys).places(wanted)
    assert np.array_equal(np.flatnonzero(places >= 0), np.arange(0, 60_000, 3))
    assert (KeyTable(keys).places(np.zeros(0, np.int64))).size == 0
