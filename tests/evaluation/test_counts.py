"""The quality of counts is that of a plain computation, and a default release of tickets has it."""

import collections
import random
import statistics

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from beam_dpne import NgramsPlan, RunKey, join_tokens
from beam_dpne.evaluation.corpus import corpus_of, index_corpus, read_corpus
from beam_dpne.evaluation.judging import evaluate_counts, rows_of_table
from beam_dpne.ngrams.in_memory import release_ngrams
from beam_dpne.ngrams.released_rows import ReleasedRows
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import ReadOptions
from tests.evaluation.test_evaluation import DOCUMENTS, GRAMS, grams_of
from tests.support import tickets

LENGTHS = 3
INTERVALS = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
TOP = 20


def holders(documents, length):
    """The users who have each n-gram of a length, in plain Python."""
    users = collections.defaultdict(set)
    for user, text in documents:
        for gram in grams_of(text, length):
            users[gram].add(user)
    return {gram: len(own) for gram, own in users.items()}


def released_table(rows, *, is_counted):
    """A table of a release: rows are (n-gram, score, users, low, high)."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * 5
    table = {
        "length": pa.array([len(gram) for gram in columns[0]], pa.int32()),
        "ngram": pa.array([join_tokens(gram) for gram in columns[0]], pa.string()),
        "score": pa.array(columns[1], pa.float64()),
    }
    if is_counted:
        names = ("users", "users_low", "users_high")
        counts = zip(names, columns[2:], strict=True)
        table |= {name: pa.array(values, pa.int64()) for name, values in counts}
    return pa.table(table)


def in_order(rows, *, is_counted):
    """Rows in the order of a release: by falling numbers of users, if there are any, then scores."""
    return sorted(rows, key=lambda row: (-row[2] * is_counted, -row[1]))


def correlation(pairs):
    if min((len(set(side)) for side in zip(*pairs, strict=True)), default=0) < 2:
        return None
    return pytest.approx(spearmanr(*zip(*pairs, strict=True))[0], abs=1e-9)


def shares(real):
    """Coverage, narrow intervals and error of (true number, users, low, high), in plain Python."""
    if not real:
        return None, None, None
    covered = sum(low <= truth <= high for truth, _, low, high in real)
    narrow = sum(
        users <= 2 * max(low, 1) and high <= 2 * max(users, 1) for _, users, low, high in real
    )
    errors = [abs(users - truth) / truth for truth, users, _, _ in real]
    middle = pytest.approx(statistics.median(errors))
    return pytest.approx(covered / len(real)), pytest.approx(narrow / len(real)), middle


def check(quality, rows, truth, *, k, is_counted):
    """Compares the quality of one length with a plain computation.

    Args:
      quality: As measured.
      rows: (n-gram, score, users, low, high) of this length, in the order of the release.
      truth: The number of users by n-gram.
      k: Size of the tops.
      is_counted: Whether the release has numbers of users.
    """
    real = [(truth[gram], *rest) for gram, _, *rest in rows if gram in truth]
    assert quality.real == len(real)
    measured = (quality.coverage, quality.within_factor_two, quality.median_relative_error)
    assert measured == (shares(real) if is_counted else (None, None, None))
    values = [
        (users if is_counted else score, truth[gram])
        for gram, score, users, *_ in rows
        if gram in truth
    ]
    assert quality.rank_correlation == correlation(values)
    last = sorted(truth.values(), reverse=True)[:k]
    first = [truth.get(row[0], 0) for row in rows[: len(last)]]
    assert quality.top_k == len(last)
    assert quality.top == sum(number >= last[-1] for number in first)
    missing = pytest.approx(1 - sum(first) / sum(last)) if last else None
    assert quality.top_missing == missing


@settings(max_examples=60, deadline=None)
@given(DOCUMENTS, GRAMS, st.integers(1, 6), st.booleans(), st.data())
def test_every_measure_is_that_of_a_plain_computation(documents, grams, k, is_counted, data):
    rows = []
    for gram in grams:
        if len(gram) <= LENGTHS:
            users, below, above = data.draw(INTERVALS)
            score = data.draw(st.sampled_from([0.5, 1.5, 2.5, 3.5]))
            rows.append((gram, score, users, max(0, users - below), users + above))
    rows = in_order(rows, is_counted=is_counted)
    index = index_corpus(corpus_of(documents), LENGTHS)
    table = released_table(rows, is_counted=is_counted)
    *lengths, total = evaluate_counts(index, rows_of_table(index, table), top_k=k)
    assert [quality.length for quality in lengths] == list(range(1, LENGTHS + 1))
    everybody = {}
    for quality in lengths:
        truth = holders(documents, quality.length)
        own = [row for row in rows if len(row[0]) == quality.length]
        check(quality, own, truth, k=k, is_counted=is_counted)
        event(f"a correlation of users: {quality.rank_correlation is not None}")
        everybody |= truth
    real = [(everybody[gram], *rest) for gram, _, *rest in rows if gram in everybody]
    assert total.length is total.top is total.top_k is None
    assert total.real == len(real)
    measured = (total.coverage, total.within_factor_two, total.median_relative_error)
    assert measured == (shares(real) if is_counted else (None, None, None))
    pairs = [(users, truth) for truth, users, *_ in real]
    assert total.rank_correlation == (correlation(pairs) if is_counted else None)


@pytest.mark.parametrize("k", [1, 7, 20, 500])
def test_every_measure_is_that_of_a_plain_computation_on_a_larger_corpus(k):
    chance = random.Random(k)
    words = [f"w{number}" for number in range(40)]
    popular = [1 / (rank + 1) for rank in range(len(words))]
    documents = [
        (f"u{chance.randint(0, 80)}", chance.choices(words, popular, k=chance.randint(0, 30)))
        for _ in range(300)
    ]
    rows = []
    for length in range(1, LENGTHS + 1):
        truth = holders(documents, length)
        real = chance.sample(sorted(truth), min(150, len(truth)))
        spurious = {tuple(chance.choices(words, k=length)) for _ in range(20)} - {*real}
        for gram in [*real, *sorted(spurious)]:
            users = round(truth.get(gram, 3) * chance.lognormvariate(0, 0.4))
            low, high = round(users * chance.uniform(0.3, 1)), round(users * chance.uniform(1, 3))
            rows.append((gram, round(chance.uniform(0, 9), 1), users, low, high))
    index = index_corpus(corpus_of(documents), LENGTHS)
    rows = in_order(rows, is_counted=True)
    judged = rows_of_table(index, released_table(rows, is_counted=True))
    *lengths, _ = evaluate_counts(index, judged, top_k=k)
    for quality in lengths:
        own = [row for row in rows if len(row[0]) == quality.length]
        check(quality, own, holders(documents, quality.length), k=k, is_counted=True)


def test_items_are_compared_too():
    corpus = corpus_of([("ann", ["a b", "c"]), ("bob", ["a b"]), ("eve", ["a b", "d"])])
    table = pa.table(
        {"item": ["x", "a b", "c"], "score": [9.0, 2.0, 3.0], "users": [7, 4, 2]}
        | {"users_low": [1, 2, 1], "users_high": [9, 5, 2]}
    )
    index = index_corpus(corpus, 1)
    words, _ = evaluate_counts(index, rows_of_table(index, table), top_k=2)
    assert (words.real, words.coverage, words.within_factor_two) == (2, 1.0, 1.0)
    assert words.median_relative_error == pytest.approx((1 / 3 + 1) / 2)
    assert words.rank_correlation == pytest.approx(1)
    # Of the first two by users, x is spurious; the second place of the data is shared by c and d.
    assert (words.top, words.top_k) == (1, 2)
    # The data's top two have 3 + 1 users; of the release's, "a b" has 3, and nobody has x.
    assert words.top_missing == pytest.approx(1 / 4)


def test_intervals_of_a_default_release_cover_the_true_numbers_and_the_top_is_the_true_top(
    tmp_path,
):
    tickets.write(tmp_path / "tickets.jsonl")
    files = match_inputs([str(tmp_path / "tickets.jsonl")])
    corpus = read_corpus(files, ReadOptions(), "words")
    assert len(corpus.users) == tickets.CUSTOMERS
    plan, key = NgramsPlan(epsilon=4, delta=1e-6), RunKey(bytes(32))
    index = index_corpus(corpus, plan.max_length)
    table = ReleasedRows.of(release_ngrams([corpus.batch(key)], plan, key)).table()
    rows = rows_of_table(index, table)
    *lengths, total = evaluate_counts(index, rows, top_k=TOP)
    for quality in lengths:
        assert quality.real >= 100
        assert rows[quality.length].truth.size - quality.real <= 0.02 * quality.real
        assert quality.coverage >= 0.93
        assert quality.rank_correlation > 0.9
        assert quality.top >= (16 if quality.length <= 3 else 14)
        assert quality.median_relative_error < 0.25
    assert total.coverage >= 0.95
