"""All lengths in one step of one worker: the release is that of the graph of engines."""

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import PrivacyPlan, PrivateNgrams, RunKey
from tests.support.kept import keep
from tests.support.tickets import tickets

KEY = RunKey(bytes(range(32)))
PLAN = PrivacyPlan(epsilon=8, delta=1e-5, max_length=3)


def released(documents, workers, **fields) -> list:
    """The rows of a run, sorted."""
    fields = {"plan": PLAN, "run_key": KEY, **fields}
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        result = pipeline | beam.Create(documents) | PrivateNgrams(workers=workers, **fields)
        rows = keep(result.rows)
    return sorted(rows)


@pytest.fixture(scope="module")
def documents():
    return tickets(400)


@pytest.mark.parametrize(
    "plan",
    [
        PLAN,
        PrivacyPlan(epsilon=8, delta=1e-5, max_length=3, strategy="one_round", count_share=0),
        PrivacyPlan(epsilon=8, delta=1e-5, max_length=2, vocabulary_policy="screened_gaussian"),
        PrivacyPlan(epsilon=8, delta=1e-5, max_length=3, pruning="single"),
    ],
    ids=["default", "one_round", "set union", "single"],
)
def test_one_step_releases_what_the_graph_does(plan, documents):
    expected = released(documents, None, plan=plan, partitions=5)
    assert len(expected) > 50
    assert released(documents, 1, plan=plan, partitions=5) == expected
    assert released(documents, 3, plan=plan, partitions=2) == expected


def test_public_words_are_taken_in_one_step(documents):
    plan = PrivacyPlan(epsilon=8, delta=1e-5, max_length=2, vocabulary_policy="public")
    fields = {"plan": plan, "vocabulary": ["the", "my", "is", "order", "a", "to"]}
    expected = released(documents, None, **fields)
    assert expected
    assert released(documents, 2, **fields) == expected


@pytest.mark.parametrize("workers", [None, 2])
def test_a_run_without_documents_releases_empty_sets(workers):
    assert released([("ann", "")], workers) == []


def test_the_number_of_threads_must_be_at_least_one():
    with pytest.raises(ValueError, match=r"workers must be at least 1, got workers=0\."):
        PrivateNgrams(plan=PLAN, workers=0)


class Counting:
    """A tokenizer that fails if two threads are in it, as one with a state of its own might."""

    tokenizer_name = "counting"
    version = "1"

    def __init__(self) -> None:
        self.inside = 0

    def __call__(self, texts: pa.Array) -> pa.ListArray:
        self.inside += 1
        assert self.inside == 1
        found = pa.array([text.split() * 50 for text in texts.to_pylist()], pa.list_(pa.string()))
        assert self.inside == 1
        self.inside -= 1
        return found


def test_a_users_tokenizer_is_called_by_one_thread_at_a_time():
    documents = [(f"user {n}", "some words of a text") for n in range(40_000)]
    rows = released(documents, 4, tokenizer=Counting())
    assert {row.ngram for row in rows} >= {"some", "words of", "of a text"}
