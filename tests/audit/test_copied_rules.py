"""Candidates of all copies of a world are drawn as cells of one candidate each."""

import collections

import numpy as np

from beam_dpne.audit.copied_rules import _as_members
from beam_dpne.ngrams.elements import pack_pairs
from tests.ngrams.test_valid import blocks_of


def test_each_candidate_of_a_class_is_drawn_and_nothing_else():
    """Draw number i of a class is its candidate i, also where candidates share a part."""
    rng = np.random.default_rng(1)
    keys = rng.permutation(np.unique(pack_pairs(*rng.integers(0, 12, (2, 200)))))
    numbers = rng.integers(-3, 4, keys.size)
    candidates = _as_members(keys, numbers)
    sizes = candidates.sizes()
    assert sizes == collections.Counter(numbers.tolist())
    # The least bits that choose each member.
    bits = {
        number: blocks_of([-(-(place << 128) // size) for place in range(size)])
        for number, size in sizes.items()
    }
    drawn = candidates.draw(bits)
    for number in sizes:
        assert drawn[number].tolist() == keys[numbers == number].tolist()
