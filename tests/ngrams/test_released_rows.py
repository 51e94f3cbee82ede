"""Rows that are made piece by piece are those of one sorted table."""

import dataclasses
import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from beam_dpne import GramSet, join_tokens, length_rule
from beam_dpne.elements import rows as rows_module
from beam_dpne.elements.rows import COUNTED_ROW_SCHEMA, ROW_SCHEMA, in_order, with_rounded_scores
from beam_dpne.ngrams.keys import pack_pairs, unpack_pairs
from beam_dpne.ngrams.released_rows import ReleasedRows
from beam_dpne.release.parts import OUTPUT_FORMATS, PROGRAMS, render_parts

# Texts whose order with a blank behind them is another one than without it, and escaped ones.
WORDS = st.sampled_from(
    ["", " ", "\t", "\0", "a", "a\x01", "a!", "a b", "ab", "b", "\\", "é", "🙂"]
)
ORDINARY = st.sampled_from(["!", "a", "a!", "ab", "b", "ba", "é", "🙂"])


@st.composite
def released_sets(draw):
    """Sets of a release, also empty ones, and sets whose words or keys are in no order."""
    words = draw(st.lists(draw(st.sampled_from([WORDS, ORDINARY])), unique=True))
    words = sorted(words, key=str.encode) if draw(st.booleans()) else words
    pruning = draw(st.sampled_from(["both", "single"]))
    is_counted = draw(st.booleans())
    numbers = st.sampled_from([1.0, 1.0000001, 1.0000004, 2.5])
    sets = []
    for length in (1, 2, 3):
        keys = np.arange(len(words))
        if length > 1:
            seconds = len(words) if pruning == "single" else len(sets[-1])
            pairs = list(itertools.product(range(len(sets[-1])), range(seconds)))
            if pruning == "both" and length == 3:
                pairs = chained(sets[-1].keys)
            some = (
                st.lists(st.sampled_from(pairs), max_size=12, unique=True) if pairs else st.just([])
            )
            keys = pack_pairs(*np.array(draw(some), np.int64).reshape(-1, 2).T)
            keys = np.sort(keys) if draw(st.booleans()) else keys
        scores = draw(st.lists(numbers, min_size=keys.size, max_size=keys.size))
        grams = GramSet(
            length=length,
            keys=keys,
            scores=np.array(scores, np.float64),
            words=pa.array(words, pa.string()) if length == 1 else None,
            rule=length_rule(length=length, noise_stddev=1, threshold=0, valid=9, pruning=pruning),
        )
        if is_counted:
            users = np.random.default_rng(len(words)).integers(0, 3, (keys.size, 3))
            grams = dataclasses.replace(grams, users=users)
        sets.append(grams)
    return sets


def chained(keys):
    """Pairs of bigrams of which the second begins with the last word of the first."""
    first, second = unpack_pairs(keys)
    return [(i, j) for i in range(keys.size) for j in range(keys.size) if second[i] == first[j]]


def plain_table(sets):
    """All rows by a plain loop, sorted by their texts."""
    rows, texts, pruning = [], [], sets[-1].pruning
    vocabulary = sets[0].words.to_pylist()
    for grams in sets:
        before, texts = texts, []
        for row, key in enumerate(grams.keys.tolist()):
            if grams.length == 1:
                words = [vocabulary[row]]
            else:
                prefix, second = key >> 32, key & 0xFFFFFFFF
                last = before[second][-1] if pruning == "both" else vocabulary[second]
                words = [*before[prefix], last]
            texts.append(words)
            users = () if grams.users is None else grams.users[row].tolist()
            rows.append((grams.length, join_tokens(words), grams.scores[row], *users))
    counted = any(grams.users is not None for grams in sets)
    schema = COUNTED_ROW_SCHEMA if counted else ROW_SCHEMA
    columns = list(map(list, zip(*rows, strict=True))) or [[] for _ in schema]
    return in_order(with_rounded_scores(pa.table(columns, schema=schema)))


@given(released_sets(), st.integers(1, 7), st.randoms(use_true_random=False))
def test_pieces_are_those_of_the_sorted_table(sets, size, rng):
    expected = plain_table(sets)
    rows = ReleasedRows.of(rng.sample(sets, len(sets)))
    *_, by_text = rows._words
    event(f"words in the order of their texts: {by_text}")
    assert rows.schema == expected.schema
    assert len(rows) == len(expected)
    assert rows.table().equals(expected)
    # A slice of no rows is a table as well.
    parts = [rows.slice(start, size) for start in range(0, len(rows) + size, size)]
    assert pa.concat_tables(parts).equals(expected)
    chosen = rows.select(["score", "length"]).slice(1, len(rows))
    assert chosen.equals(expected.select(["score", "length"]).slice(1))


def test_rows_of_equal_rounded_scores_are_in_the_order_of_their_texts():
    """Their order tells neither the order in which words came nor what rounding took away."""
    found = set()
    for words in itertools.permutations(["a", "a!", "ab", "é"]):
        sets = []
        for length in (1, 2):
            numbers = np.arange(4**length)
            grams = GramSet(
                length=length,
                keys=numbers if length == 1 else pack_pairs(*np.divmod(numbers, 4)),
                scores=1 + 1e-8 * numbers,
                words=pa.array(words) if length == 1 else None,
            )
            sets.append(grams)
        found.add(tuple(ReleasedRows.of(sets).table().column("ngram").to_pylist()))
    (texts,) = found
    assert list(texts[:4]) == ["a", "a!", "ab", "é"]
    assert list(texts[4:]) == sorted(texts[4:], key=str.encode)


def test_users_are_counted_for_all_lengths_or_for_none():
    common = {"scores": np.ones(1), "rule": None, "vocabulary_size": 1}
    words = GramSet(length=1, keys=np.zeros(1, np.int64), words=pa.array(["a"]), **common)
    bigrams = GramSet(length=2, keys=np.zeros(1, np.int64), **common)
    counted = dataclasses.replace(words, users=np.ones((1, 3), np.int64))
    with pytest.raises(ValueError, match="for all released n-grams or for none"):
        ReleasedRows.of([counted, bigrams])


@pytest.mark.parametrize("output_format", OUTPUT_FORMATS)
def test_names_and_bytes_of_parts_depend_on_every_row_and_not_on_the_pieces(
    output_format, monkeypatch
):
    def parts_of(scores, texts):
        rows = pa.table([[1] * 7, texts, scores], schema=ROW_SCHEMA)
        return list(render_parts(PROGRAMS["ngrams"], rows, output_format, 5))

    scores, texts = [7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0], list("abcdefg")
    whole = parts_of(scores, texts)
    assert [part.rows for part, _ in whole] == [5, 2]
    monkeypatch.setattr(rows_module, "_ROWS_AT_ONCE", 2)
    assert parts_of(scores, texts) == whole
    changed = [parts_of(scores, texts)]
    for row in range(7):
        changed.append(parts_of([*scores[:row], 0.5, *scores[row + 1 :]], texts))
        changed.append(parts_of(scores, [*texts[:row], "x", *texts[row + 1 :]]))
    assert len({part.name for parts in changed for part, _ in parts}) == 2 * len(changed)
