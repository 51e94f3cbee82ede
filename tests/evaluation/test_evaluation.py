"""Evaluation counts what a count in plain Python counts, on arrays; its reports say what they are."""

import collections
import io
import json
import random
import statistics
import sys

import numpy as np
import pandas
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from beam_dpne import join_tokens
from beam_dpne.documents.masks import TextRules
from beam_dpne.errors import InputError, UsageError
from beam_dpne.evaluation.corpus import corpus_of, index_corpus, read_corpus, released_codes
from beam_dpne.evaluation.judging import JudgedRows, evaluate, evaluate_counts
from beam_dpne.evaluation.reports import (
    BANNER,
    MARK,
    NOTICE,
    draw_users,
    evaluation_picture,
    report_files,
    require_matplotlib,
    tables_of,
)
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import ReadOptions
from tests.support.grams import gram_texts

LENGTHS = 4
KS = (1, 2, 3, 5)
DOCUMENTS = st.lists(
    st.tuples(st.sampled_from("ABCD"), st.lists(st.sampled_from("xyz"), max_size=7)),
    min_size=1,
    max_size=12,
).filter(lambda documents: any(text for _, text in documents))
GRAMS = st.lists(
    st.lists(st.sampled_from("xyz?"), min_size=1, max_size=LENGTHS).map(tuple), unique=True
)


def grams_of(text, length):
    return [tuple(text[i : i + length]) for i in range(len(text) - length + 1)]


class Counted:
    """The grams of one length, counted in plain Python."""

    def __init__(self, documents, length):
        self.by_user = collections.defaultdict(collections.Counter)
        for user, text in documents:
            self.by_user[user].update(grams_of(text, length))
        self.occurrences = sum(self.by_user.values(), collections.Counter())
        self.users = collections.Counter(gram for own in self.by_user.values() for gram in own)

    def shares(self, released):
        for own in self.by_user.values():
            if own:
                yield sum(n for gram, n in own.items() if gram in released) / sum(own.values())


def codes_of(corpus, grams):
    """What `evaluate` takes, from grams as tuples of words."""
    code = {word: i for i, word in enumerate(corpus.words.to_pylist())}
    by_length = collections.defaultdict(list)
    for gram in grams:
        by_length[len(gram)].append([code.get(word, -1) for word in gram])
    return {length: np.array(rows) for length, rows in by_length.items()}


def check(judged, documents, released):
    everything = [Counted(documents, length) for length in range(1, LENGTHS + 1)]
    *rows, total = judged
    for length, (row, counted) in enumerate(zip(rows, everything, strict=True), start=1):
        own = {gram for gram in released if len(gram) == length}
        shares = list(counted.shares(own))
        assert row.released == len(own)
        assert row.real == len(own & set(counted.users))
        assert row.spurious == len(own - set(counted.users))
        occurrences = sum(counted.occurrences.values())
        covered = sum(counted.occurrences[gram] for gram in own)
        assert row.occurrence_share == (covered / occurrences if occurrences else None)
        pairs = sum(counted.users.values())
        missing = 1 - sum(counted.users[gram] for gram in own) / pairs if pairs else None
        assert row.missing_mass == (missing if missing is None else pytest.approx(missing))
        if shares:
            assert row.mean_user_share == pytest.approx(statistics.fmean(shares), abs=1e-12)
            assert row.median_user_share == pytest.approx(statistics.median(shares), abs=1e-12)
        else:
            assert row.mean_user_share is row.median_user_share is None
        for k, (held, covered) in zip(KS, row_of(counted, own), strict=True):
            anonymity = row.k_anonymity[KS.index(k)]
            assert (anonymity.k, anonymity.held, anonymity.released) == (k, held, covered)
            assert anonymity.share == (covered / held if held else None)
    assert total.length is None
    for name in ("released", "real", "spurious"):
        assert getattr(total, name) == sum(getattr(row, name) for row in rows)
    by_user = [
        [own[user] for own in (counted.by_user for counted in everything)]
        for user in everything[0].by_user
        if everything[0].by_user[user]
    ]
    shares = [
        sum(n for own in lengths for gram, n in own.items() if gram in released)
        / sum(sum(own.values()) for own in lengths)
        for lengths in by_user
    ]
    assert total.mean_user_share == pytest.approx(statistics.fmean(shares), abs=1e-12)


def row_of(counted, own):
    for k in KS:
        held = {gram for gram, users in counted.users.items() if users >= k}
        yield len(held), len(held & own)


@settings(max_examples=150, deadline=None)
@given(DOCUMENTS, GRAMS)
def test_every_figure_is_that_of_a_plain_count(documents, released):
    corpus = corpus_of(documents)
    index = index_corpus(corpus, LENGTHS)
    judged = evaluate(index, codes_of(corpus, released), k_anonymity=KS)
    check(judged, documents, set(released))


def test_every_figure_is_that_of_a_plain_count_on_a_larger_corpus():
    chance = random.Random(3)
    words = [f"w{i}" for i in range(60)]
    documents = [
        (f"u{chance.randint(0, 40)}", chance.choices(words, k=chance.randint(0, 30)))
        for _ in range(400)
    ]
    held = {gram for _, text in documents for k in (1, 2, 3, 4) for gram in grams_of(text, k)}
    released = set(chance.sample(sorted(held), 900)) | {("w1", "nobody's"), ("nobody's",)}
    released |= {tuple(chance.choices(words, k=3)) for _ in range(200)}
    corpus = corpus_of(documents)
    judged = evaluate(index_corpus(corpus, LENGTHS), codes_of(corpus, released), k_anonymity=KS)
    check(judged, documents, released)
    assert judged[-1].spurious > 100
    assert judged[3].real > 100


@settings(max_examples=100, deadline=None)
@given(DOCUMENTS)
def test_the_index_finds_what_is_held_and_nothing_else_in_the_order_of_words(documents):
    corpus = corpus_of(documents)
    index = index_corpus(corpus, 3)
    size = len(corpus.words)
    for length, level in enumerate(index.lengths, start=1):
        every = np.array(list(np.ndindex(*[size] * length)))
        ids = index.find(every)
        counted = Counted(documents, length)
        held = gram_texts(corpus, every[ids >= 0])
        assert held == sorted(counted.users)
        assert ids[ids >= 0].tolist() == list(range(len(held)))
        assert level.users.tolist() == [counted.users[gram] for gram in held]
        begins = np.flatnonzero(level.ids >= 0)
        spans = corpus.codes[begins[:, np.newaxis] + np.arange(length)]
        assert gram_texts(corpus, spans) == [held[number] for number in level.ids[begins]]


# Corpora


TEXTS = [("bob", ["b", "a"]), ("ann", ["é", "", "c"]), ("cleo", []), ("ann", ["a"])]


def rows_of(corpus):
    """The documents of each user, with their numbers."""
    documents = collections.defaultdict(collections.Counter)
    ends = np.flatnonzero(corpus.codes < 0)
    for start, end in zip(np.append(0, ends + 1), ends, strict=False):
        user = corpus.users[int(corpus.user_of_position[end])].as_py()
        words = corpus.words.take(pa.array(corpus.codes[start:end])).to_pylist()
        documents[user][tuple(words)] += 1
    return documents


def test_documents_come_back_from_a_corpus_which_does_not_depend_on_their_order():
    corpora = [corpus_of(texts) for texts in (TEXTS, TEXTS[::-1])]
    for corpus in corpora:
        assert corpus.words.to_pylist() == ["", "a", "b", "c", "é"]
        assert rows_of(corpus) == {
            "bob": {("b", "a"): 1},
            "ann": {("é", "", "c"): 1, ("a",): 1},
        }


@pytest.mark.parametrize("split", [1, 10**6])
def test_files_are_read_as_pipelines_read_them(tmp_path, split):
    lines = ['{"user": "ann", "text": "To be"}', "no record", '{"user": 7, "text": "be, to be"}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "b.jsonl").write_text(
        '{"user": "ann", "text": "..."}\n{"user": "ann", "text": "be"}'
    )
    files = match_inputs([str(tmp_path / "*.jsonl")])
    options = ReadOptions(split_bytes=split, block_bytes=8)
    corpus = read_corpus(files, options, "words")
    assert rows_of(corpus) == {"ann": {("to", "be"): 1, ("be",): 1}, "7": {("be", "to", "be"): 1}}
    assert (corpus.rejected, corpus.tokenizer, corpus.tokens) == (1, "words", 6)


def test_documents_are_counted_as_they_were_read_whatever_is_left_out_of_them(tmp_path):
    texts = [("ann", "call 555 or 556 now"), ("ann", "557"), ("bob", "7 or 8"), ("cat", "9")]
    lines = [json.dumps({"user": user, "text": text}) for user, text in texts]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    files = match_inputs([str(tmp_path / "a.jsonl")])
    corpus = read_corpus(files, ReadOptions(), TextRules(mask=("numbers",)))
    assert sorted(corpus.documents.tolist()) == [1, 1, 2]
    assert rows_of(corpus) == {"ann": {("call",): 1, ("or",): 1, ("now",): 1}, "bob": {("or",): 1}}


def test_each_line_of_sequences_is_a_user_of_its_own(tmp_path):
    (tmp_path / "a.txt").write_text("1 2\n\n1 2\n")
    files = match_inputs([str(tmp_path / "a.txt")])
    corpus = read_corpus(files, ReadOptions(input_format="sequences"), "whitespace")
    judged = evaluate(index_corpus(corpus, 2), codes_of(corpus, [("1", "2")]), k_anonymity=(2,))
    assert judged[1].k_anonymity[0].released == 1


def test_an_input_without_words_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"user": "ann", "text": "..."}\n')
    with pytest.raises(InputError, match="at least one word"):
        read_corpus(match_inputs([str(tmp_path / "a.jsonl")]), ReadOptions(), "words")


# Releases and reports


def test_n_grams_of_a_release_are_matched_whatever_characters_their_words_have():
    tokens = ["New York", "", "\\s", "a\tb", "plain"]
    corpus = corpus_of([("ann", tokens)])
    grams = [*grams_of(tokens, 1), *grams_of(tokens, 3), ("plain", "unheard", "")]
    table = pa.table(
        {
            "length": pa.array([len(gram) for gram in grams], pa.int32()),
            "ngram": [join_tokens(gram) for gram in grams],
            "score": [1.0] * len(grams),
        }
    )
    codes = released_codes(corpus, table)
    assert gram_texts(corpus, codes[1]) == grams_of(tokens, 1)
    assert gram_texts(corpus, codes[3][:-1]) == grams_of(tokens, 3)
    assert codes[3][-1].tolist() == [corpus.words.to_pylist().index("plain"), -1, 0]


def test_items_of_a_release_are_words_as_they_are():
    corpus = corpus_of([("ann", ["New York", "", "\\s"])])
    table = pa.table({"item": ["\\s", "New York", "york"], "score": [3.0, 2.0, 1.0]})
    assert released_codes(corpus, table)[1].tolist() == [[2], [1], [-1]]


CAPTION = "ε = 1, δ = 1e-07 · data: a$b^_$.jsonl · release: “Größe $x” (0123456789abcdef)"
ROWS = {
    1: JudgedRows(
        truth=np.array([90, 0, 7]),
        scores=np.array([1.5, 2.5, 1]),
        users=np.array([[100, 80, 120], [4, 2, 8], [0, 0, 9]]),
    ),
    2: JudgedRows(truth=np.zeros(1, np.int64), scores=np.ones(1), users=np.array([[5, 3, 9]])),
    3: JudgedRows(truth=np.ones(1, np.int64), scores=np.ones(1), users=np.array([[2, 1, 4]])),
}


def report_of(lengths):
    corpus = corpus_of([(f"u{i}", ["a", "b", "c"][: 1 + i % 3]) for i in range(9)])
    released = codes_of(corpus, [("a",), ("a", "b"), ("b", "a"), ("a", "b", "c")])
    index = index_corpus(corpus, lengths)
    judged = evaluate(index, released, k_anonymity=(1, 2, 100))
    rows = {length: ROWS[length] for length in range(1, lengths + 1)}
    picture = evaluation_picture(judged, rows, caption=CAPTION, noun="n-grams")
    tables = tables_of(judged, evaluate_counts(index, rows, top_k=1))
    return report_files(tables, {"release": "r"}, picture)


@pytest.mark.parametrize("lengths", [1, 3])
def test_every_file_of_a_report_says_that_it_is_not_private(lengths):
    files = report_of(lengths)
    kinds = collections.Counter(name.rsplit(".", 1)[1] for name in files)
    assert kinds == {"json": 1, "csv": 3, "png": 1}
    for name, data in files.items():
        assert name.startswith("not_private_")
        if name.endswith(".png"):
            assert BANNER.encode() in data[:500]  # the title in the metadata
            assert CAPTION.encode() in data[:1000]
        elif name.endswith(".csv"):
            table = pandas.read_csv(io.BytesIO(data))
            assert len(table) > 0
            assert set(table["privacy"]) == {MARK}
        else:
            assert NOTICE in data.decode()[:300]
    assert files == report_of(lengths)


def test_a_picture_has_a_point_for_each_real_row_with_a_number_of_users():
    """A logarithm has no place for 0, which stands at 1; spurious rows have no place at all."""
    axes = Figure().subplots()
    draw_users(axes, ROWS)
    points = [drawn.get_offsets().tolist() for drawn in axes.collections]
    assert points == [[[90, 100], [7, 1]], [], [[1, 2]]]


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"pip install '\.\[plots\]'"):
        require_matplotlib()
