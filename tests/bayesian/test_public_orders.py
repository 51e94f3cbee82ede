"""Public n-grams of all lengths: against sets and sums over lists."""

import itertools
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from beam_dpne.bayesian.text_counts import count_text

from beam_dpne.bayesian.public_counts import PublicCounts
from beam_dpne.bayesian.public_orders import PublicOrders


def random_texts(seed):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(list("abcde"), rng.integers(3, 9))) for _ in range(20)]


def of_text(texts, length):
    counted = [count_text([pa.array(texts)], length=size) for size in range(1, length + 1)]
    return PublicOrders.of(counted, is_whole=True)


def as_dict(orders, length):
    words = orders.words.to_pylist()
    grams = [tuple(words[one] for one in gram) for gram in orders.grams(length).tolist()]
    return dict(zip(grams, orders.orders[length - 1].counts.tolist(), strict=True))


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_a_text_has_all_its_grams_with_their_counts(length):
    texts = random_texts(length)
    orders = of_text(texts, length)
    for size in range(1, length + 1):
        expected = Counter(
            tuple(words[start : start + size])
            for words in (text.split() for text in texts)
            for start in range(len(words) - size + 1)
        )
        assert as_dict(orders, size) == expected
        assert list(as_dict(orders, size)) == sorted(expected)


def test_beginnings_and_ends_are_the_rows_of_the_parts():
    orders = of_text(random_texts(7), 4)
    for size in range(2, 5):
        grams, below = orders.grams(size), orders.grams(size - 1)
        order = orders.orders[size - 1]
        np.testing.assert_array_equal(below[order.begins], grams[:, :-1])
        np.testing.assert_array_equal(below[order.ends], grams[:, 1:])
        np.testing.assert_array_equal(order.last, grams[:, -1])


def test_missing_parts_have_the_larger_one_of_the_sums_of_longer_grams():
    grams = [tuple(gram) for gram in ("abc", "abd", "bcd", "cab")]
    longest = PublicCounts.of(grams, [5, 2, 4, 1])
    pairs = PublicCounts.of([("a", "b"), ("e", "e")], [6, 3])
    orders = PublicOrders.of([pairs, longest], is_whole=False)
    found = as_dict(orders, 2)
    listed = {("a", "b"): 6, ("e", "e"): 3}
    weights = dict(zip(grams, [5, 2, 4, 1], strict=True))
    for pair in itertools.product("abcde", repeat=2):
        begun = sum(n for gram, n in weights.items() if gram[:2] == pair)
        ended = sum(n for gram, n in weights.items() if gram[1:] == pair)
        assert found.get(pair, 0) == max(begun, ended, listed.get(pair, 0)), pair


def test_rows_of_public_counts_are_found_whatever_their_words():
    orders = of_text(random_texts(3), 3)
    few = count_text([pa.array(random_texts(3)[:4])], length=3)
    grams = orders.grams(3)[orders.rows_of(few)]
    words = orders.words.to_pylist()
    assert [" ".join(words[one] for one in gram) for gram in grams] == few.texts().to_pylist()
