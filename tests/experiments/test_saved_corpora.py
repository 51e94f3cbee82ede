"""A corpus on disk is the corpus that was saved, and a sample has whole users."""

import collections

import numpy as np
import pytest

from beam_dpne.evaluation.corpus import corpus_of, read_corpus
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import ReadOptions
from pipelines.experiments.saved_corpora import (
    documents_of,
    load_corpus,
    sample_users,
    save_corpus,
)

TEXTS = [("bob", ["b", "a"]), ("ann", ["é", "", "c"]), ("bob", []), ("ann", ["a"]), ("dan", [])]


def rows_of(corpus):
    """Each user's documents, as a multiset."""
    found = collections.defaultdict(collections.Counter)
    for batch in documents_of(corpus, rows=2):
        for row in batch.to_pylist():
            found[row["user"]][tuple(row["text"])] += 1
    return found


def test_a_saved_corpus_is_read_back(tmp_path):
    corpus = corpus_of(TEXTS)
    save_corpus(corpus, tmp_path / "c")
    again = load_corpus(tmp_path / "c")
    assert rows_of(again) == rows_of(corpus)
    for name in ("words", "users", "tokenizer", "rejected", "tokens"):
        assert getattr(again, name) == getattr(corpus, name)
    for name in ("codes", "offsets"):
        assert np.array_equal(getattr(again, name), getattr(corpus, name))
    (tmp_path / "c" / "corpus.json").unlink()
    with pytest.raises(FileNotFoundError, match="must hold a saved corpus"):
        load_corpus(tmp_path / "c")


def test_a_sample_has_whole_users_and_only_their_words():
    documents = [(f"u{i}", [f"own{i}", "all"]) for i in range(500) for _ in range(2)]
    corpus = corpus_of(documents)
    sample = sample_users(corpus, bytes(32), 10)
    # Fixed key: no failure by chance. Binomial(500, 0.1) has deviation 6.7.
    assert 25 < len(sample.users) < 75
    users = set(sample.users.to_pylist())
    assert rows_of(sample) == {user: own for user, own in rows_of(corpus).items() if user in users}
    assert set(sample.words.to_pylist()) == {"all", *(f"own{user[1:]}" for user in users)}
    other = sample_users(corpus_of(documents[::-1]), bytes(32), 10)
    assert set(other.users.to_pylist()) == users


def test_a_corpus_of_sequences_is_read_back(tmp_path):
    (tmp_path / "a.txt").write_text("1 2\n\n1 2\n")
    files = match_inputs([str(tmp_path / "a.txt")])
    corpus = read_corpus(files, ReadOptions(input_format="sequences"), "whitespace")
    save_corpus(corpus, tmp_path / "saved")
    assert load_corpus(tmp_path / "saved").users.equals(corpus.users)
