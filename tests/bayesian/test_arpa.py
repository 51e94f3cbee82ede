"""ARPA files: read back by an independent reader."""

import io
import math

import arpa
import numpy as np

from beam_dpne.bayesian.arpa import Order, extend, write_orders

TEXTS = ["a", "b\\sb", "c"]
WORDS = Order(np.array([[0], [1], [2]]), np.array([0.5, 0.3, 0.2]), np.ones(3))
PAIRS = np.array([[0, 1], [0, 2], [1, 0], [2, 0], [2, 1], [2, 2]])
SHARES = np.array([3.0, 1.0, 1.0, 2.0, 1.0, 1.0])


def written(orders, **options) -> str:
    stream = io.StringIO()
    write_orders(stream, orders, TEXTS, **options)
    return stream.getvalue()


def test_a_model_reads_back_with_back_off_for_pairs_that_are_not_listed():
    (model,) = arpa.loads(written(extend(WORDS, PAIRS, SHARES, 0.4)))
    assert math.isclose(model.p(("a", "b\\sb")), 0.6 * 0.75, rel_tol=1e-5)
    # All words follow "c", so that nothing is kept back.
    assert math.isclose(model.p(("c", "a")), 0.5, rel_tol=1e-5)
    for context in TEXTS:
        assert math.isclose(sum(model.p((context, word)) for word in TEXTS), 1, rel_tol=1e-5)
    assert math.isclose(model.p(("b\\sb", "c")), 0.4 * 0.2 / 0.5, rel_tol=1e-5)


def test_all_readers_find_their_reserved_words():
    text = written([WORDS])
    assert all(f"-99\t{word}\n" in text for word in ("<s>", "</s>", "<unk>"))
    assert "ngram 1=6\n" in text


def test_unknown_words_have_the_probability_that_is_given():
    text = written([WORDS], unknown=0.01)
    assert "-2\t<unk>\n" in text
    assert text.count("-99\t") == 2
