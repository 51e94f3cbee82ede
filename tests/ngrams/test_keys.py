"""Both kinds of keys answer alike, and steps do not ask which of the two they have."""

import ast
import collections
import pathlib

import numpy as np
import pyarrow as pa
import pytest

import beam_dpne
from beam_dpne.ngrams.keys import Pairs, Words, joined_keys, merged_keys, pack_pairs

_HASHES = np.random.default_rng(5).integers(0, 2**63, (6, 2)).astype(np.uint64)
# The last sorts before the first by UTF-16, and after it by UTF-8 and code points.
_TEXTS = ("\uff5e", "b", "a", "zz", "B", "\U0001f600")


def words(rows):
    """Returns words as entries, by their rows in the texts."""
    used = sorted(set(rows))
    places = np.array([used.index(row) for row in rows], np.int64)
    return Words(places, pa.array([_TEXTS[row] for row in used], pa.string()), _HASHES[used])


def pairs(rows):
    """Returns pairs as entries."""
    numbers = np.array(rows, np.int64)
    return Pairs(pack_pairs(5 - numbers, numbers))


def names(ngrams):
    """Returns each n-gram as a word or an integer."""
    if isinstance(ngrams, Words):
        return [ngrams.words[row].as_py() for row in ngrams.keys.tolist()]
    return ngrams.keys.tolist()


both = pytest.mark.parametrize("keys_of_rows", [words, pairs])


@both
def test_an_n_gram_has_the_same_bits_and_hash_range_in_every_batch(keys_of_rows):
    whole = keys_of_rows([0, 1, 2, 3, 4, 5])
    entries = keys_of_rows([4, 1, 4])
    rows = [4, 1, 4]
    assert entries.identities().tolist() == whole.identities()[rows].tolist()
    assert entries.hash_ranges(3).tolist() == whole.hash_ranges(3)[rows].tolist()
    noise = whole.noise_bits(bytes(32))
    assert entries.noise_bits(bytes(32)).tolist() == noise[rows].tolist()
    assert len(np.unique(noise, axis=0)) == 6


@both
def test_entries_are_added_up_by_their_n_gram(keys_of_rows):
    first = [3, 0, 3]
    second = [0, 5, 3]
    entries = merged_keys([keys_of_rows(first), keys_of_rows(second)])
    values = np.array([1, 2, 4, 8, 2**62, 2**62])
    expected = collections.Counter[str | int]()
    for name, value in zip(names(entries), values.tolist(), strict=True):
        expected[name] += value
    sums = entries.sums()
    assert dict(zip(names(sums.grams), sums.add_up(values).tolist(), strict=True)) == expected
    kinds = np.array([3, 0, 3, 0, 5, 3], np.int16)
    chosen = dict(zip(names(sums.grams), sums.one_of(kinds).tolist(), strict=True))
    assert chosen == dict(zip(names(entries), kinds.tolist(), strict=True))


@both
@pytest.mark.parametrize("most_hashed", [0, 100])
def test_n_grams_are_found_in_a_set_and_missing_ones_are_not(
    keys_of_rows, most_hashed, monkeypatch
):
    monkeypatch.setattr("beam_dpne.ngrams.keys._MOST_HASHED", most_hashed)
    grams, _ = keys_of_rows([1, 2, 4]).into_order()
    wanted = keys_of_rows([4, 0, 1, 4])
    of_name = {name: place for place, name in enumerate(names(grams))}
    expected = [of_name.get(name, -1) for name in names(wanted)]
    assert -1 in expected
    assert grams.places_of(wanted).tolist() == expected
    assert grams.table().places_of(wanted).tolist() == expected


@both
def test_the_order_of_ids_does_not_depend_on_the_order_of_parts(keys_of_rows):
    parts = [keys_of_rows([row]) for row in (4, 0, 5, 1)]
    before = names(joined_keys(parts))
    grams, order = joined_keys(parts).into_order()
    assert names(grams) == [before[place] for place in order.tolist()]
    assert names(grams) == names(joined_keys(parts[::-1]).into_order()[0])
    assert names(grams) == sorted(before)


def test_only_keys_ask_whether_they_are_words():
    """A comparison of `words` or of hashes with None outside `keys` decides the kind once more."""
    room = pathlib.Path(beam_dpne.__file__).parent / "ngrams"
    asked = []
    for path in sorted(room.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Compare) or path.name == "keys.py":
                continue
            compared = ast.unparse(node)
            if compared.endswith(" None") and ("word_hashes" in compared or ".words " in compared):
                asked.append((path.name, compared))
    # What is left asks for known words and for empty releases.
    assert {name for name, _ in asked} <= {"decisions.py", "released_rows.py", "valid.py"}
    assert len(asked) <= 5, asked
