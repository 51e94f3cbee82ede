"""Evaluation counts what a count in plain Python counts, on arrays; its reports say what they are."""

import collections
import dataclasses
import io
import random
import statistics
import sys

import numpy as np
import pandas
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from beam_dpne import join_tokens
from beam_dpne.errors import InputError, PlotsUnavailableError
from beam_dpne.evaluation.corpus import corpus_of, read_corpus
from beam_dpne.evaluation.counts import JudgedRows, length_quality, total_quality
from beam_dpne.evaluation.coverage import evaluate, released_codes
from beam_dpne.evaluation.index import group_keys, index_corpus, places_of
from beam_dpne.evaluation.plots import (
    PANEL_NAME,
    Heading,
    budget_text,
    caption_text,
    draw_heading,
    evaluation_picture,
    require_matplotlib,
)
from beam_dpne.evaluation.reports import report_files
from beam_dpne.evaluation.secrecy import BANNER, NOTICE, SECRET
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import ReadOptions
from pipelines.experiments import printed as papers
from pipelines.experiments.ranked import rank_grams, sorted_distinct
from tests.experiments.test_saved_corpora import TEXTS, rows_of
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
    for length, (row, counted) in enumerate(zip(judged.lengths, everything, strict=True), start=1):
        own = {gram for gram in released if len(gram) == length}
        shares = list(counted.shares(own))
        assert row.released == len(own)
        assert row.real == len(own & set(counted.users))
        assert row.spurious == len(own - set(counted.users))
        assert row.occurrences == sum(counted.occurrences.values())
        assert row.occurrences_covered == sum(counted.occurrences[gram] for gram in own)
        assert row.pairs == sum(counted.users.values())
        assert row.pairs_covered == sum(counted.users[gram] for gram in own)
        if row.pairs:
            assert row.missing_mass == pytest.approx(1 - row.pairs_covered / row.pairs)
            assert row.missing_occurrences == pytest.approx(1 - row.occurrence_share)
        else:
            assert row.missing_mass is row.missing_occurrences is None
        assert row.users == len(shares)
        if shares:
            assert row.mean_user_share == pytest.approx(statistics.fmean(shares), abs=1e-12)
            assert row.median_user_share == pytest.approx(statistics.median(shares), abs=1e-12)
        else:
            assert row.mean_user_share is row.median_user_share is None
        for k, (held, covered) in zip(KS, row_of(counted, own), strict=True):
            anonymity = row.k_anonymity[KS.index(k)]
            assert (anonymity.k, anonymity.held, anonymity.released) == (k, held, covered)
            assert anonymity.share == (covered / held if held else None)
            assert anonymity.size_ratio == (len(own) / held if held else None)
    total = judged.total
    assert total.length is None
    names = ("released", "real", "spurious", "occurrences", "occurrences_covered")
    for name in (*names, "pairs", "pairs_covered"):
        assert getattr(total, name) == sum(getattr(row, name) for row in judged.lengths)
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
    assert total.users == len(shares)
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
    assert judged.total.spurious > 100
    assert judged.lengths[3].real > 100


@settings(max_examples=100, deadline=None)
@given(DOCUMENTS)
def test_the_index_finds_what_is_held_and_nothing_else(documents):
    corpus = corpus_of(documents)
    index = index_corpus(corpus, 3)
    size = len(corpus.words)
    for length in (1, 2, 3):
        every = np.array(list(np.ndindex(*[size] * length)))
        found = index.find(every)
        held = {gram for _, text in documents for gram in grams_of(text, length)}
        is_held = (found.ids >= 0) | (found.positions >= 0)
        assert {
            gram for gram, is_in in zip(gram_texts(corpus, every), is_held, strict=True) if is_in
        } == held
        once = found.positions[found.positions >= 0]
        spans = corpus.codes[once[:, np.newaxis] + np.arange(length)]
        assert np.array_equal(spans, every[found.positions >= 0])


@settings(max_examples=60, deadline=None)
@given(DOCUMENTS)
def test_ranked_grams_are_numbered_in_the_order_of_their_words(documents):
    ranked = rank_grams(corpus_of(documents), 3)
    for length in (1, 2, 3):
        grams = sorted({gram for _, text in documents for gram in grams_of(text, length)})
        words = ranked.words(length, np.arange(ranked.sizes[length - 1]))
        assert gram_texts(ranked.corpus, words) == grams


def test_a_gram_that_is_released_twice_is_refused():
    index = index_corpus(corpus_of([("ann", ["a", "b", "a"])]), 1)
    for twice in ([[0], [0]], [[1], [0], [1]]):
        with pytest.raises(ValueError, match="once, got one of length 1 twice"):
            evaluate(index, {1: np.array(twice)})


@pytest.mark.parametrize("length", [0, 2])
def test_a_length_that_was_not_counted_is_refused(length):
    index = index_corpus(corpus_of([("ann", ["a"])]), 1)
    with pytest.raises(ValueError, match=f"lengths 1 to 1, as the index, got {length}"):
        evaluate(index, {length: np.zeros((1, length), int)})


@pytest.mark.parametrize("bound", [50, 2**62])
def test_keys_are_grouped_in_order_however_large_they_may_be(bound):
    keys = np.random.default_rng(1).integers(0, 50, 1000)
    groups = group_keys(keys, bound)
    distinct, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    assert np.array_equal(groups.keys, distinct)
    assert np.array_equal(groups.sizes, counts)
    assert np.array_equal(groups.spread(np.arange(distinct.size)), inverse)
    assert np.array_equal(groups.order, np.argsort(keys, kind="stable"))
    assert np.array_equal(sorted_distinct(keys), distinct)
    assert group_keys(keys[:0], bound).keys.size == 0


def test_places_are_those_of_a_dictionary():
    keys = np.array([2, 5, 9])
    assert places_of(keys, np.array([9, 1, 2, 10, 5, -1])).tolist() == [2, -1, 0, -1, 1, -1]
    assert places_of(keys[:0], np.array([3])).tolist() == [-1]


# Corpora


def test_documents_come_back_from_a_corpus():
    assert rows_of(corpus_of(TEXTS)) == {
        "bob": {("b", "a"): 1},
        "ann": {("é", "", "c"): 1, ("a",): 1},
    }


def test_a_corpus_does_not_depend_on_the_order_of_documents_but_for_its_users_and_theirs():
    corpora = [corpus_of(texts) for texts in (TEXTS, TEXTS[::-1])]
    assert corpora[0].words.equals(corpora[1].words)
    assert corpora[0].words.to_pylist() == ["", "a", "b", "c", "é"]
    assert rows_of(corpora[0]) == rows_of(corpora[1])


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
    with pytest.raises(InputError, match=r"byte 33: malformed JSON"):
        read_corpus(files, options, "words", strict=True)


def test_each_line_of_sequences_is_a_user_of_its_own(tmp_path):
    (tmp_path / "a.txt").write_text("1 2\n\n1 2\n")
    files = match_inputs([str(tmp_path / "a.txt")])
    corpus = read_corpus(files, ReadOptions(input_format="sequences"), "whitespace")
    judged = evaluate(index_corpus(corpus, 2), codes_of(corpus, [("1", "2")]), k_anonymity=(2,))
    assert judged.lengths[1].k_anonymity[0].released == 1


def test_an_input_without_words_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"user": "ann", "text": "..."}\n')
    with pytest.raises(InputError, match="at least one token"):
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


CAPTION = caption_text(budget_text([1.0], [1e-7]), "a$b^_$.jsonl", "“Größe $x” (0123456789abcdef)")


def judged_sample(lengths):
    documents = [(f"u{i}", ["a", "b", "c"][: 1 + i % 3]) for i in range(9)]
    corpus = corpus_of(documents)
    released = codes_of(corpus, [("a",), ("a", "b"), ("b", "a"), ("a", "b", "c")])
    released = {length: grams for length, grams in released.items() if length <= lengths}
    return evaluate(index_corpus(corpus, lengths), released)


def report_of(judged):
    counted = JudgedRows(
        truth=np.array([90, 0, 7]),
        scores=np.array([1.5, 2.5, 1]),
        users=np.array([[100, 80, 120], [4, 2, 8], [0, 0, 9]]),
    )
    rows = {1: counted, 2: dataclasses.replace(counted, truth=np.zeros(3, np.int64))}
    picture = evaluation_picture(judged, rows, caption=CAPTION, noun="n-grams")
    counts = [length_quality(1, counted, top_k=1, users_of_last=2), total_quality([counted])]
    return report_files(judged, counts, {"release": "r"}, picture)


@pytest.mark.parametrize("lengths", [1, 3])
def test_every_file_of_a_report_says_that_it_is_not_private(monkeypatch, lengths):
    """The picture says it in its metadata and to the eye, beside a caption of any signs."""
    drawn, points, scatter = [], {}, Axes.scatter
    for name in ("suptitle", "supxlabel"):
        plain = getattr(Figure, name)
        monkeypatch.setattr(
            Figure,
            name,
            lambda self, text, plain=plain, **settings: (
                drawn.append(text),
                plain(self, text, **settings),
            ),
        )

    def noted(self, x, y, **settings):
        points[settings["label"]] = (list(x), list(y))
        return scatter(self, x, y, **settings)

    monkeypatch.setattr(Axes, "scatter", noted)
    files = report_of(judged_sample(lengths))
    assert drawn[0] == BANNER
    assert CAPTION in drawn[1].replace("\n", " ")
    # A logarithm has no place for 0, which stands at 1; spurious rows have no place at all.
    assert points == {"1 word": ([90, 7], [100, 1])}
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
            assert set(table["privacy"]) == {SECRET.cell}
        else:
            assert NOTICE in data.decode()[:300]
    assert files == report_of(judged_sample(lengths))


@pytest.mark.parametrize(("width", "panels"), [(7.2, 1), (11.0, 2)])
def test_title_and_caption_of_any_length_stay_inside_the_picture(width, panels):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 4.6), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots(1, panels, squeeze=False)[0]
    axes[0].set_yticks([0], ["a label so long that the axes begin far from the left"])
    caption = caption_text("ε = 1, δ = 1e-7", "WWW data.jsonl " * 12, "first " * 10)
    draw_heading(figure, axes[0], "WHAT it shows " * 9, Heading(caption, SECRET), below=PANEL_NAME)
    canvas.draw()
    size = canvas.get_width_height()
    texts = [text for text in axes[0].texts if text.get_text()]
    assert len(texts) == 2
    top = figure.get_suptitle() and figure._suptitle.get_window_extent().y0
    for text in texts:
        box = text.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= size[0]
        assert axes[0].get_window_extent().y1 < box.y0 < box.y1 <= top
    assert axes[-1].get_window_extent().x1 > 0.95 * size[0]


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PlotsUnavailableError, match=r"pip install 'beam-dpne\[plots\]'"):
        require_matplotlib()


# The papers' figures


def test_printed_rows_have_a_figure_for_each_column():
    tables = [value for value in vars(papers).values() if isinstance(value, papers.PrintedTable)]
    assert len(tables) == 6
    for table in tables:
        assert all(len(row) == len(table.columns) for row in table.rows.values())


def test_printed_rows_add_up_to_the_printed_totals():
    printed = {"DPNE": 7739, "DPSU-all": 4116, "DPSU-even": 4031}
    for row, total in printed.items():
        assert sum(papers.DPNE_TABLE_5.rows[row]) == total
    printed = {"DPNE": 480191, "DPSU-all": 124641, "DPSU-even": 109958}
    for row, total in printed.items():
        assert sum(papers.DPNE_TABLE_4.rows[row]) == total


def test_printed_coverage_is_the_size_of_the_set_over_the_words_of_k_users():
    rows = papers.DPSU_TABLE_2.rows
    place = papers.DPSU_TABLE_1.columns.index(100)
    for policy in ("policy_laplace", "policy_gaussian"):
        size = papers.DPSU_TABLE_1.rows[policy][place]
        for held, ratio in zip(rows["held"], rows[policy], strict=True):
            assert ratio == pytest.approx(size / held, abs=0.0011)


def test_the_actual_ratios_of_spurious_n_grams_are_below_eta():
    table = papers.DPNE_TABLE_3
    assert all(a <= eta for a, eta in zip(table.rows["actual_ratio"], table.columns, strict=True))
