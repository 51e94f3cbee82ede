"""The program that measures counts: kept releases are the pipeline's, and tables are of their rows."""

import collections
import json
import statistics

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from scipy.stats import spearmanr

from beam_dpne import PrivacyPlan, PrivateNgrams
from beam_dpne.counts import estimates
from beam_dpne.evaluation.corpus import corpus_of, index_corpus, read_corpus
from beam_dpne.ngrams.transform import run_context
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import ReadOptions
from pipelines.experiments.count_runs import deal_documents, judge_release, make_release
from pipelines.experiments.counts import main
from pipelines.experiments.runner import fixed_key
from tests.conftest import ROOT
from tests.experiments.test_saved_corpora import rows_of
from tests.support import tickets

DATA = ROOT / "pipelines" / "data"
CUSTOMERS = 250
_released = []


def corpus_of_tickets():
    texts = [(user, text.lower().replace(".", "").split()) for user, text in documents()]
    return corpus_of(texts)


def documents():
    return tickets.tickets(customers=CUSTOMERS)


def _collect(row):
    _released.append(row)


def test_a_kept_release_is_the_one_of_the_pipeline():
    # Some customers write more, so that the limit cuts their tickets.
    plan = PrivacyPlan(epsilon=12, delta=1e-3, max_length=3, max_tokens_per_user=100)
    key, corpus = fixed_key(1), corpus_of_tickets()
    assert max(corpus.count_by_user(corpus.codes >= 0)) > 100
    kept = make_release(
        corpus, index_corpus(corpus, 3), plan, key.bound_to(run_context(plan, "tokens"))
    )
    judged = judge_release(kept, plan, key, tokenizer="tokens")
    _released.clear()
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        texts = [(user, text.lower().replace(".", "").split()) for user, text in documents()]
        result = (
            pipeline
            | beam.Create(texts)
            | PrivateNgrams(plan=plan, tokenizer="tokens", run_key=key)
        )
        _ = result.rows | beam.Map(_collect)
    assert {row.length for row in _released} == {1, 2, 3}
    for each in judged:
        ours = zip(each.ngrams.to_pylist(), each.rows.scores, each.rows.users, strict=True)
        theirs = [row for row in _released if row.length == each.length]
        assert {(ngram, score, *users) for ngram, score, users in ours} == {
            (row.ngram, row.score, row.users, row.users_low, row.users_high) for row in theirs
        }


def write_tickets(path):
    lines = (json.dumps({"user": user, "text": text}) for user, text in documents())
    path.write_text("\n".join(lines) + "\n")
    return path


OPTIONS = ("--epsilon", "12", "--delta", "1e-3", "--max_length", "3", "--keys", "2")


def tables(out):
    """The cells of each printed table, by the first line of its title."""
    found, rows = {}, []
    for line in out.splitlines():
        if line.startswith("│"):
            rows.append([cell.strip() for cell in line.strip("│").split("│")])
        elif line.startswith("└"):
            found[len(found)], rows = rows, []
    return list(found.values())


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A folder with tickets and a cache, and the arguments of the program."""
    folder = tmp_path_factory.mktemp("measured")
    path = write_tickets(folder / "tickets.jsonl")
    return folder, ["--input", str(path), "--cache", str(folder / "cache"), *OPTIONS]


def test_tables_have_the_medians_of_the_kept_rows(measured, capsys):
    folder, arguments = measured
    assert main(arguments, DATA) == 0
    first = capsys.readouterr()
    assert first.out.startswith("NOT PRIVATE")
    assert first.err.count("counted") == 4  # Two keys, with counts and without.
    released, users, order, bands = tables(first.out)
    corpus = read_corpus(match_inputs([str(folder / "tickets.jsonl")]), ReadOptions(), "words")
    index = index_corpus(corpus, 3)
    common = {"epsilon": 12, "delta": 1e-3, "max_length": 3}
    plan = PrivacyPlan(**common)
    paper = PrivacyPlan(**common, count_share=0, strategy="one_round", max_contributions=100)
    sizes, coverages, correlations = [], [], []
    for number in (1, 2):
        key = fixed_key(number)
        ours, theirs = (
            judge_release(
                make_release(corpus, index, each, key.bound_to(run_context(each, "words"))),
                each,
                key,
            )
            for each in (plan, paper)
        )
        sizes.append(len(ours[1].ngrams))
        rows = ours[1].rows
        real = rows.truth > 0
        inside = (rows.users[:, 1] <= rows.truth) & (rows.truth <= rows.users[:, 2])
        coverages.append(inside[real].mean())
        scores = dict(zip(theirs[1].ngrams.to_pylist(), theirs[1].rows.scores, strict=True))
        both = [
            (truth, scores[ngram])
            for ngram, truth in zip(ours[1].ngrams.to_pylist(), rows.truth, strict=True)
            if ngram in scores and truth > 0
        ]
        correlations.append(spearmanr(*zip(*both, strict=True))[0])
    assert [row[0] for row in released] == ["1", "2", "3", "all"]
    assert released[1][1] == f"{statistics.median(sizes):,.0f}"
    assert users[1][1] == f"{statistics.median(coverages):.1%}"
    assert order[1][5] == f"{statistics.median(correlations):.3f}"
    loss = 1 - statistics.median(sizes) / float(released[1][2].replace(",", ""))
    assert float(released[1][3].strip("%")) == pytest.approx(100 * loss, abs=3)
    assert len(bands) == 6


def test_kept_releases_give_the_same_tables_and_are_measured_again(measured, capsys, monkeypatch):
    folder, arguments = measured

    def times():
        paths = (folder / "cache").glob("release-*/*")
        return {path: path.stat().st_mtime_ns for path in paths}

    kept = times()
    assert len({path.parent for path in kept}) == 6
    assert main([*arguments, "--quiet"], DATA) == 0
    before = tables(capsys.readouterr().out)
    monkeypatch.setattr(estimates, "CONFIDENCE", 0.5)
    assert main([*arguments, "--quiet"], DATA) == 0
    after = tables(capsys.readouterr().out)
    assert times() == kept
    assert before[0] == after[0]
    assert float(after[1][3][1].strip("%")) < float(before[1][3][1].strip("%")) - 20


def test_public_text_is_dealt_to_made_up_users_with_all_its_documents():
    corpus = corpus_of_tickets()
    dealt = deal_documents(corpus, users=40, seed=3)
    assert len(dealt.users) <= 40
    assert sum(map(collections.Counter, rows_of(dealt).values()), collections.Counter()) == sum(
        map(collections.Counter, rows_of(corpus).values()), collections.Counter()
    )
    sizes = [sum(texts.values()) for texts in rows_of(dealt).values()]
    assert max(sizes) > 4 * statistics.median(sizes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--keys", "0"), "keys must be an integer of at least 1"),
        (("--top_k", "0"), "top_k must be"),
        (("--deal", "-1"), "deal must be"),
        (("--count_share", "2"), "count_share must be"),
        (("--epsilon", "0"), "epsilon"),
        (("--input", "no/such/file.jsonl"), "no/such/file.jsonl"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_read(options, message, capsys):
    assert main(list(options), DATA) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert tables(shown.out) == []
