"""The local driver releases what the graph of an engine does, in one process or in several."""

import dataclasses

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import NgramsPlan, PrivateNgrams, RunKey
from beam_dpne.documents import cutting
from beam_dpne.elements import batches as elements
from beam_dpne.ngrams.elements import Past
from beam_dpne.ngrams.in_memory import (
    Contribute,
    Decide,
    InMemory,
    LayOut,
    Measure,
    PresentParts,
    SumCounts,
    keep_users,
)
from beam_dpne.ngrams.run import NgramsRun
from tests.support.in_memory import batch_of, rows_in_memory, sets_in_memory
from tests.support.pipelines import keep
from tests.support.tickets import tickets

KEY = RunKey(bytes(range(32)))
PLAN = NgramsPlan(epsilon=8, delta=1e-5, max_length=3)


def released(documents, **fields) -> list:
    """The rows of a pipeline, sorted."""
    fields = {"plan": PLAN, "run_key": KEY, **fields}
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        result = pipeline | beam.Create(documents) | PrivateNgrams(**fields)
        rows = keep(result.rows)
    return sorted(rows)


def run_of(**fields) -> NgramsRun:
    return NgramsRun(**{"plan": PLAN, "run_key": KEY, **fields})


@pytest.fixture(scope="module")
def documents():
    return tickets(400)


@pytest.mark.parametrize(
    "plan",
    [
        PLAN,
        NgramsPlan(epsilon=8, delta=1e-5, max_length=3, strategy="one_round", count_share=0),
        NgramsPlan(epsilon=8, delta=1e-5, max_length=3, strategy="one_round", pruning="single"),
    ],
    ids=["default", "one_round", "single"],
)
def test_the_local_driver_releases_what_the_graph_does(plan, documents):
    expected = released(documents, plan=plan, partitions=5)
    assert len(expected) > 50
    assert rows_in_memory(run_of(plan=plan, partitions=5), documents) == expected
    assert rows_in_memory(run_of(plan=plan, partitions=2), documents, workers=3) == expected


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_without_documents_releases_empty_sets(workers):
    assert released([("ann", "")]) == rows_in_memory(run_of(), [("ann", "")], workers) == []


def test_a_fork_keeps_all_users_whom_it_is_given():
    """Else a fork that is given two shares would lose the users of one."""
    loop = InMemory(plan=PLAN, run_key=KEY)
    in_forks = dataclasses.replace(loop, histogram_ranges=3)
    cut = run_of(partitions=6).cutting(KEY)
    parts = cutting.cut_by_partition([batch_of(tickets(300))], cut, 1)
    expected = loop.release(loop.lay_out(parts, range(6)))
    answer = keep_users(in_forks, list(parts))
    for number, share in enumerate((range(2), range(2, 5), range(5, 6))):
        assert list(answer(LayOut(share, number))) == []
    (sent,) = answer(Contribute(1, 1, Past()))
    users = loop.lay_out(parts, range(6))
    alone, _ = loop.contribute(1, 1, users, Past())
    weights = sum(int(piece.weights.sum()) for _, piece in alone)
    assert sent.sums.weights.sum() == weights > 0
    # So would it lose one of two hash ranges.
    assert list(answer(Measure(), sent)) == list(answer(Decide(None))) == []
    keys = [part.words.to_pylist() for part in answer(PresentParts())]
    decided = loop.decide(loop.measure(alone, [], None), None)
    (whole,) = loop.present_parts(decided)
    assert len(keys) == 3
    assert sorted(word for words in keys for word in words) == sorted(whole.words.to_pylist())
    (sums,) = answer(SumCounts(expected))
    (whole,) = loop.sum_counts(users, expected)
    assert (sums.rows.tolist(), sums.sums.tolist()) == (whole.rows.tolist(), whole.sums.tolist())


def test_few_sums_wait_and_none_is_lost(documents, monkeypatch):
    expected = rows_in_memory(run_of(), documents)
    monkeypatch.setattr(elements, "MAX_WAITING", 50)
    assert rows_in_memory(run_of(partitions=8), documents, workers=2) == expected


@pytest.mark.parametrize("workers", [None, 1, 4])
def test_the_rule_of_a_length_is_known_also_if_no_hash_range_has_anything_left(workers):
    """It follows from a noisy count of held candidates, which cannot be made again; here it is 0."""
    documents = [(f"user {number}", f"word{number % 20}") for number in range(1200)]
    plan = NgramsPlan(epsilon=8, delta=1e-5, max_length=2, spurious_fraction=1e-6)
    if workers is None:
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            private = PrivateNgrams(plan=plan, run_key=KEY, partitions=3)
            kept = keep((pipeline | beam.Create(documents) | private).released[-1])
        (bigrams,) = kept
    else:
        run = run_of(plan=plan, partitions=3)
        bigrams = sets_in_memory(run, [batch_of(documents)], workers)[-1]
    assert bigrams.keys.size == 0
    group, *_ = bigrams.rule.groups
    assert group.noise_stddev > 0
