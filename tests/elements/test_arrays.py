"""Rows in flat arrays are made distinct, limited and cut; words are hashed, looked up and merged."""

import collections
import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_dpne.elements import encoding
from beam_dpne.elements.arrays import (
    KeyTable,
    byte_order,
    distinct,
    group_places,
    hash_words,
    join_words,
    offsets_of,
    outside_limit,
    places_among,
    places_in,
    ranges,
    rows_of_entries,
    used_words,
)
from beam_dpne.elements.batches import UserBatch
from beam_dpne.elements.dictionaries import merge_words
from beam_dpne.elements.sums import sums_at, sums_of_rows
from beam_dpne.mechanism.randomness import keyed_hashes


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


SUB_KEY = bytes(range(32))

byte_strings = st.lists(st.binary(max_size=18) | st.binary(min_size=14, max_size=40), max_size=20)
words_of_parts = st.lists(st.lists(st.text(max_size=3), unique=True, max_size=5), max_size=4)
sizes = st.lists(st.integers(0, 6), max_size=8)


@given(sizes)
def test_offsets_and_rows_are_those_of_the_sizes(sizes):
    offsets = offsets_of(np.array(sizes, dtype=np.int64))
    assert offsets.tolist() == [0, *itertools.accumulate(sizes)]
    assert rows_of_entries(offsets).tolist() == [
        row for row, size in enumerate(sizes) for _ in range(size)
    ]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=6))
def test_ranges_are_laid_one_after_the_other(parts):
    starts, counts = (np.array([part[i] for part in parts], dtype=np.int64) for i in (0, 1))
    expected = [place for start, count in parts for place in range(start, start + count)]
    assert ranges(starts, counts).tolist() == expected


@pytest.mark.parametrize("size", [8, 2**31], ids=["packed", "wide"])
@given(st.lists(st.tuples(*[st.integers(0, 7)] * 3), max_size=30))
def test_distinct_tuples_are_those_of_a_counter_in_ascending_order(size, tuples):
    columns = [np.array([each[i] for each in tuples], dtype=np.int64) for i in range(3)]
    found, starts = distinct(columns, (size,) * 3)
    counts = np.diff(starts, append=len(tuples))
    counter = collections.Counter(tuples)
    rows = zip(*(column.tolist() for column in found), strict=True)
    assert dict(zip(rows, counts.tolist(), strict=True)) == counter
    assert list(zip(*(column.tolist() for column in found), strict=True)) == sorted(counter)


@given(st.integers(0, 2**32), st.integers(0, 40), st.sampled_from(["int8", "int32", "int64"]))
def test_distinct_tuples_are_the_same_integers_whether_or_not_they_fit_into_one(seed, count, kind):
    columns = np.random.default_rng(seed).integers(0, 4, (3, count)).astype(kind)
    packed, wide = (distinct(columns, (size,) * 3) for size in (4, 2**31))
    for one, other in zip((*packed[0], packed[1]), (*wide[0], wide[1]), strict=True):
        assert one.dtype == other.dtype == np.int64
        assert one.tolist() == other.tolist()


@given(sizes, st.integers(1, 4))
def test_rows_keep_the_entries_with_the_smallest_draws_up_to_the_limit(sizes, limit):
    offsets = offsets_of(np.array(sizes, dtype=np.int64))
    draws = np.random.default_rng(7).integers(2**63, size=offsets[-1]).astype(np.uint64)

    def draw(rows, entries):
        assert rows.tolist() == rows_of_entries(offsets)[entries].tolist()
        return draws[entries]

    expected = []
    for start, stop in itertools.pairwise(offsets.tolist()):
        by_draw = sorted(range(start, stop), key=lambda entry: draws[entry])
        expected += by_draw[limit:]
    assert sorted(outside_limit(offsets, limit, draw).tolist()) == sorted(expected)


@given(sizes)
def test_sums_of_rows_and_places_are_exact_though_the_sum_of_all_passes_63_bits(sizes):
    offsets = offsets_of(np.array(sizes, dtype=np.int64))
    values = np.random.default_rng(3).integers(2**59, 2**60, offsets[-1])
    rows = rows_of_entries(offsets)
    order = np.random.default_rng(4).permutation(values.size)
    expected = [
        sum(values[start:stop].tolist()) for start, stop in itertools.pairwise(offsets.tolist())
    ]
    assert sums_of_rows(values, offsets).tolist() == expected
    assert sums_at(rows[order], values[order], len(sizes)).tolist() == expected


def test_each_key_is_found_at_its_place_and_others_at_minus_one():
    keys = np.array([2, 5, 9])
    wanted = np.array([9, 1, 2, 10, 5, 6])
    assert places_among(wanted, keys).tolist() == [2, -1, 0, -1, 1, -1]
    assert places_among(wanted, keys[:0]).tolist() == [-1] * 6
    assert places_among(wanted[:0], keys).tolist() == []


def test_labels_are_grouped_in_ascending_order():
    labels = np.array([2, 0, 2, 5])
    groups = [(label, places.tolist()) for label, places in group_places(labels, 6)]
    assert groups == [(0, [1]), (2, [0, 2]), (5, [3])]


def test_parts_are_small_enough_or_of_a_single_place(monkeypatch):
    monkeypatch.setattr(encoding, "MAX_ELEMENT_BYTES", 200)
    sizes = np.array([3, 1, 90, 2, 2, 30, 1])
    offsets = offsets_of(sizes)

    def take(rows):
        return UserBatch(
            length=0,
            size=0,
            users=np.zeros((rows.size, 2), np.uint64),
            offsets=offsets_of(sizes[rows]),
            ids=ranges(offsets[:-1][rows], sizes[rows]).astype(np.int32),
            words=pa.array([], pa.string()),
        )

    parts = list(encoding.bounded_parts(np.arange(sizes.size), take))
    assert np.concatenate([part.ids for part in parts]).tolist() == list(range(sizes.sum()))
    for part in parts:
        assert encoding.array_bytes(part) <= 200 or len(part.users) == 1
    assert len(list(encoding.bounded_parts(np.arange(0), take))) == 1


@given(byte_strings, st.integers(0, 20), st.integers(0, 20))
def test_a_slice_of_an_arrow_array_has_the_hashes_of_its_strings(items, start, size):
    for kind in (pa.binary(), pa.large_binary()):
        sliced = pa.array(items, kind).slice(min(start, len(items)), size)
        expected = keyed_hashes(SUB_KEY, items)[start : start + size]
        assert hash_words(SUB_KEY, sliced).tolist() == expected.tolist()


def test_text_is_hashed_by_its_utf_8_bytes():
    texts = ["", "é", "e\u0301", "🙂" * 4, "naïve text that is longer than a block"]
    hashes = hash_words(SUB_KEY, pa.array(texts))
    assert hashes.tolist() == keyed_hashes(SUB_KEY, [t.encode() for t in texts]).tolist()


def test_each_word_is_found_at_its_place_and_others_at_minus_one():
    words = pa.array(["b", "x", "a", "b", ""])
    assert places_in(words, pa.array(["a", "b"])).tolist() == [1, -1, 0, 1, -1]
    assert places_in(words, pa.array([], pa.string())).tolist() == [-1] * 5
    assert places_in(words[:0], words).tolist() == []
    larger = pa.array(["c", "a", "", "d", "e", "b"])
    assert places_in(words, larger).tolist() == [5, -1, 1, 5, 2]
    assert places_in(words[1:], larger[1:]).tolist() == [-1, 0, 4, 1]
    assert places_in(words[1:2], larger).tolist() == [-1]


@given(words_of_parts)
def test_one_dictionary_has_each_word_once_and_knows_where_each_parts_words_are(parts):
    arrays = [pa.array(part, pa.string()) for part in parts]
    merged = merge_words(arrays)
    dictionary = merged.words
    words = [word for part in parts for word in part]
    assert join_words(arrays).to_pylist() == words
    assert dictionary.to_pylist() == list(dict.fromkeys(words))
    assert dictionary.take(pa.array(merged.places)).to_pylist() == words
    codes = merged.codes([np.arange(-1, len(part)) for part in parts])
    read = [[None if code < 0 else dictionary[code].as_py() for code in own] for own in codes]
    assert read == [[None, *part] for part in parts]
    if words:
        hashes = [hash_words(SUB_KEY, array) for array in arrays]
        assert merged.hashes(hashes).tolist() == hash_words(SUB_KEY, dictionary).tolist()


def test_words_that_no_code_names_are_dropped():
    kept, codes = used_words(5, np.array([4, 1, 1]))
    assert kept.tolist() == [1, 4]
    assert codes.tolist() == [1, 0, 0]


def test_words_are_sorted_by_their_bytes():
    words = pa.array(["é", "z", "", "a"])
    assert words.take(pa.array(byte_order(words))).to_pylist() == ["", "a", "z", "é"]
