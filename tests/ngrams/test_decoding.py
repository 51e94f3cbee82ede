"""Released sets to rows; the text form of an n-gram and back."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from beam_dpne import GramSet, join_tokens, length_rule, split_ngram
from beam_dpne.ngrams.keys import pack_pairs
from beam_dpne.ngrams.released_rows import ReleasedRows

HOSTILE = ["", " ", "\t", "\n", "\r", "\\", "\\s", "\\e", "\0", "\u2028", "\x85", "🙂", '"', "a b"]
TOKENS = st.sampled_from(HOSTILE) | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


def gram_set(length, pairs, scores, pruning="both"):
    keys = pack_pairs(*np.array(pairs, dtype=np.int64).reshape(-1, 2).T)
    rule = length_rule(length=length, noise_stddev=1, threshold=0, valid=9, pruning=pruning)
    return GramSet(length=length, keys=keys, scores=np.array(scores, dtype=float), rule=rule)


def vocabulary(words, scores):
    return GramSet(
        length=1,
        keys=np.arange(len(words)),
        scores=np.array(scores, dtype=float),
        words=pa.array(words, pa.string()),
    )


def rows_of(sets):
    return [tuple(row.values()) for row in ReleasedRows.of(sets).table().to_pylist()]


WORDS = vocabulary(["a", "b", "c"], [3, 1, 2])


@pytest.mark.parametrize(
    ("token", "text"),
    [
        ("word", "word"),
        ("", r"\e"),
        (" ", r"\s"),
        ("\t", r"\t"),
        ("\n", r"\n"),
        ("\r", r"\r"),
        ("\\", r"\\"),
        (r"\e", r"\\e"),
        ("\0\u2028🙂", "\0\u2028🙂"),
    ],
)
def test_one_token_is_written_by_the_documented_rule(token, text):
    assert join_tokens([token]) == text
    assert split_ngram(text) == (token,)


@given(st.lists(TOKENS, min_size=1, max_size=5))
@example(HOSTILE)
def test_join_and_split_are_inverse(tokens):
    ngram = join_tokens(tokens)
    assert split_ngram(ngram) == tuple(tokens)
    assert ngram.count(" ") == len(tokens) - 1
    assert not set("\t\n\r") & set(ngram)


@pytest.mark.parametrize(
    "text", ["", " ", "a  b", "a ", "\\", "a\\", r"\x", r"a\e", r"\e\e", r"\ a"]
)
def test_text_that_join_does_not_write_is_refused(text):
    with pytest.raises(ValueError, match="n-gram has"):
        split_ngram(text)


def test_a_refusal_does_not_quote_the_ngram():
    with pytest.raises(ValueError, match="backslash") as refusal:
        split_ngram("canary \\x")
    assert "canary" not in str(refusal.value)


def test_pairs_of_prefix_and_suffix_are_spelled_out():
    bigrams = gram_set(2, [(0, 1), (1, 2), (1, 0)], [5, 6, 7])
    trigrams = gram_set(3, [(0, 1), (0, 2)], [8, 9])
    assert rows_of([trigrams, WORDS, bigrams]) == [
        (1, "a", 3.0),
        (1, "c", 2.0),
        (1, "b", 1.0),
        (2, "b a", 7.0),
        (2, "b c", 6.0),
        (2, "a b", 5.0),
        (3, "a b a", 9.0),
        (3, "a b c", 8.0),
    ]


def test_pairs_of_prefix_and_last_word_are_spelled_out():
    bigrams = gram_set(2, [(0, 1), (2, 2)], [5, 6], pruning="single")
    trigrams = gram_set(3, [(0, 2), (1, 0)], [9, 8], pruning="single")
    assert rows_of([WORDS, bigrams, trigrams])[3:] == [
        (2, "c c", 6.0),
        (2, "a b", 5.0),
        (3, "a b c", 9.0),
        (3, "c c a", 8.0),
    ]
