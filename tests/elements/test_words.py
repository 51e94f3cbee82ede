"""Words in Arrow arrays: their keyed hashes, look-ups, and dictionaries made one."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from beam_dpne.elements.words import (
    byte_order,
    hash_words,
    join_words,
    merge_hashes,
    merge_words,
    places_in,
    used_words,
)
from beam_dpne.mechanism.randomness import keyed_hashes

SUB_KEY = bytes(range(32))

byte_strings = st.lists(st.binary(max_size=18) | st.binary(min_size=14, max_size=40), max_size=20)
words_of_parts = st.lists(st.lists(st.text(max_size=3), unique=True, max_size=5), max_size=4)


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


@given(words_of_parts)
def test_one_dictionary_has_each_word_once_and_knows_where_each_parts_words_are(parts):
    arrays = [pa.array(part, pa.string()) for part in parts]
    dictionary, places = merge_words(arrays)
    words = [word for part in parts for word in part]
    assert join_words(arrays).to_pylist() == words
    assert dictionary.to_pylist() == list(dict.fromkeys(words))
    assert dictionary.take(pa.array(places)).to_pylist() == words
    if words:
        hashes = [hash_words(SUB_KEY, array) for array in arrays]
        merged = merge_hashes(hashes, places, len(dictionary))
        assert merged.tolist() == hash_words(SUB_KEY, dictionary).tolist()


def test_words_that_no_code_names_are_dropped():
    kept, codes = used_words(5, np.array([4, 1, 1]))
    assert kept.tolist() == [1, 4]
    assert codes.tolist() == [1, 0, 0]


def test_words_are_sorted_by_their_bytes():
    words = pa.array(["é", "z", "", "a"])
    assert words.take(pa.array(byte_order(words))).to_pylist() == ["", "a", "z", "é"]
