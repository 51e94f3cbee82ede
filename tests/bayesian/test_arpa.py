"""ARPA files: read back by an independent reader."""

import io
import itertools

import arpa
import numpy as np
import pyarrow as pa
import pytest

from beam_dpne.bayesian.arpa import model_of, write_arpa

WORDS = ["a", "b b", "c", "d"]
ESCAPED = ["a", "b\\sb", "c", "d"]
GRAMS = np.array([[0, 1, 2], [0, 1, 0], [1, 2, 0], [2, 0, 1], [3, 3, 3], [2, 0, 3]], dtype=np.int32)
JOINT = np.array([0.3, 0.1, 0.2, 0.15, 0.05, 0.2])


def written(joint=JOINT, grams=GRAMS, **options) -> str:
    stream = io.StringIO()
    write_arpa(stream, joint, grams, pa.array(WORDS), **options)
    return stream.getvalue()


def read(text: str):
    (model,) = arpa.loads(text)
    return model


def test_conditional_probabilities_are_those_of_the_joint():
    model = read(written(kept_back=0))
    for gram, share in zip(GRAMS, JOINT, strict=True):
        context = (GRAMS[:, :2] == gram[:2]).all(axis=1)
        given = model.p(tuple(ESCAPED[one] for one in gram))
        assert given == pytest.approx(share / JOINT[context].sum(), rel=1e-5)


@pytest.mark.parametrize("kept_back", [0.0, 0.01, 0.3])
@pytest.mark.parametrize("length", [0, 1, 2])
def test_every_context_sums_to_1(kept_back, length):
    model = read(written(kept_back=kept_back))
    for context in itertools.product(ESCAPED, repeat=length):
        total = sum(model.p((*context, word)) for word in ESCAPED)
        assert total == pytest.approx(1, rel=1e-5), context


def test_words_that_never_follow_a_context_get_what_is_kept_back():
    model = read(written(kept_back=0.3))
    followed = model.p(("a", "b\\sb", "c")) + model.p(("a", "b\\sb", "a"))
    assert followed == pytest.approx(0.7, rel=1e-5)
    assert model.p(("a", "b\\sb", "d")) > 0.01


def test_lower_orders_are_averages_over_the_places_of_a_gram():
    first, second, _ = model_of(JOINT, GRAMS, kept_back=0)
    shares = [sum((word == GRAMS).mean(axis=1) * JOINT) for word in range(4)]
    np.testing.assert_allclose(first.probabilities, shares)
    # "a b" is the beginning of two grams and the end of one, "a d" the end of one.
    after_a = second.probabilities[(second.grams[:, 0] == 0)]
    np.testing.assert_allclose(after_a, np.array([0.55, 0.2]) / 0.75)


def test_all_readers_find_their_reserved_words():
    text = written()
    assert all(f"-99\t{word}\n" in text for word in ("<s>", "</s>", "<unk>"))
    assert "ngram 1=7\n" in text
    assert read(text).p(("a",)) > 0


def test_grams_of_probability_0_are_left_out():
    joint = np.array([0.5, 0.0, 0.5, 0, 0, 0])
    text = written(joint)
    assert "ngram 3=2\n" in text
    assert "\td" not in text


@pytest.mark.parametrize("length", [1, 2, 5])
def test_any_length(length):
    rows = np.random.default_rng(length).integers(0, 4, (50, length))
    grams = np.unique(rows, axis=0).astype(np.int32)
    joint = np.random.default_rng(7).random(len(grams))
    model = read(written(joint, grams))
    context = tuple(ESCAPED[one] for one in grams[0, :-1])
    assert sum(model.p((*context, word)) for word in ESCAPED) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize(
    ("joint", "kept_back", "words"),
    [
        (np.zeros(6), 0.1, "joint must"),
        (np.full(6, np.nan), 0.1, "joint must"),
        (JOINT, 1.0, "kept_back must"),
    ],
)
def test_what_is_no_model_is_refused(joint, kept_back, words):
    with pytest.raises(ValueError, match=words):
        model_of(joint, GRAMS, kept_back=kept_back)
