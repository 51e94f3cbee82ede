"""All lengths in one step of one worker: the release is that of the graph of engines."""

from collections import Counter

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import BatchDocuments, GroupByUser, PrivacyPlan, PrivateNgrams, RunKey
from beam_dpne.documents import transform
from beam_dpne.elements import batches as elements
from beam_dpne.elements import encoding
from beam_dpne.ngrams.in_memory import InMemory, keep_users
from tests.support.pipelines import keep
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
        PrivacyPlan(epsilon=8, delta=1e-5, max_length=3, strategy="one_round", pruning="single"),
    ],
    ids=["default", "one_round", "single"],
)
def test_one_step_releases_what_the_graph_does(plan, documents):
    expected = released(documents, None, plan=plan, partitions=5)
    assert len(expected) > 50
    assert released(documents, 1, plan=plan, partitions=5) == expected
    assert released(documents, 3, plan=plan, partitions=2) == expected


@pytest.mark.parametrize("workers", [None, 2])
def test_a_run_without_documents_releases_empty_sets(workers):
    assert released([("ann", "")], workers) == []


@pytest.mark.parametrize("workers", ["2", 2.0, True])
def test_workers_are_a_whole_number(workers):
    with pytest.raises(ValueError, match="workers must be an integer of at least 1"):
        PrivateNgrams(plan=PLAN, workers=workers)


def batches(count: int) -> list[pa.RecordBatch]:
    """Record batches of 50 users each, so that a step gets them faster than it tokenizes them."""
    users = [[f"user {number}-{n}" for n in range(50)] for number in range(count)]
    texts = ["some words of a text"] * 50
    return [pa.RecordBatch.from_pydict({"user": names, "text": texts}) for names in users]


@pytest.fixture
def small_blocks(monkeypatch):
    """Documents of a partition in several blocks, as those of a large corpus are."""
    monkeypatch.setattr(transform, "_GATHERED_TOKENS", 300)


@pytest.mark.parametrize(
    "given", [{}, {"strategy": "one_round"}, {"max_tokens_per_user": 40}], ids=str
)
def test_users_whose_documents_are_in_several_blocks_are_one_user(small_blocks, given):
    """Else a user would be dealt several budgets, or lose other documents than in one block."""
    plan = PrivacyPlan(epsilon=8, delta=1e-5, max_length=3, **given)
    records = tickets(300) * 2
    parts = [records[start::9] for start in range(9)]
    batches = [
        pa.RecordBatch.from_pydict(
            dict(zip(("user", "text"), zip(*part, strict=True), strict=True))
        )
        for part in parts
    ]
    whole = pa.RecordBatch.from_pydict(
        dict(zip(("user", "text"), zip(*records, strict=True), strict=True))
    )
    blocks = [block for batch in batches for block in blocks_of(batch)]
    assert max(Counter(number for number, _ in blocks).values()) > 4
    fields = {"plan": plan, "partitions": 3}
    expected = released(batches, None, **fields)
    assert len(expected) > 50
    for workers in (1, 3):
        assert released(batches, workers, **fields) == expected
        assert released([whole], workers, **fields) == expected


def blocks_of(batch: pa.RecordBatch) -> list:
    """The blocks of three partitions that one bundle makes of a batch."""
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        group = GroupByUser(run_key=KEY, partitions=3)
        found = keep(group.cut_by_user(pipeline | beam.Create([batch])))
    return list(found)


def test_a_fork_keeps_all_users_whom_it_is_given():
    """Else a fork that is given two shares would lose the users of one."""
    group, run = GroupByUser(run_key=KEY, partitions=6), InMemory(plan=PLAN, run_key=KEY)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        found = keep(group.cut_by_user(pipeline | beam.Create(tickets(300)) | BatchDocuments()))
    parts = [[block for number, block in found if number == wanted] for wanted in range(6)]
    expected = run.release(run.lay_out(parts, range(6)))
    answer = keep_users(run, list(parts))
    for share in (range(2), range(2, 5), range(5, 6)):
        assert list(answer(("lay_out", share))) == []
    sent = list(answer(("contribute", 1, 1, {"previous": None, "present": None, "before": None})))
    (pieces,) = sent
    users = run.lay_out(parts, range(6))
    alone, _ = run.contribute(1, 1, users, previous=None, present=None, before=None)
    weights = sum(int(piece.weights.sum()) for _, piece in alone)
    assert sum(int(piece.weights.sum()) for _, piece in pieces) == weights > 0
    (sums,) = answer(("sum_counts", expected))
    (whole,) = run.sum_counts(users, expected)
    assert (sums.rows.tolist(), sums.sums.tolist()) == (whole.rows.tolist(), whole.sums.tolist())


def test_few_sums_wait_and_none_is_lost(documents, monkeypatch):
    expected = released(documents, 1)
    monkeypatch.setattr(elements, "MAX_WAITING", 50)
    assert released(documents, 2, partitions=8) == expected


def test_a_block_is_taken_once_and_not_kept(documents):
    assert released(documents, 2)
    assert encoding._kept == {}
    number = encoding.keep("a block")
    assert encoding.take(number) == "a block"
    with pytest.raises(KeyError):
        encoding.take(number)


@pytest.mark.parametrize("workers", [None, 1, 4])
def test_the_rule_of_a_length_is_known_also_if_no_hash_range_has_anything_left(workers):
    """It follows from a noisy count of held candidates, which cannot be made again; here it is 0."""
    documents = [(f"user {number}", f"word{number % 20}") for number in range(1200)]
    plan = PrivacyPlan(epsilon=8, delta=1e-5, max_length=2, spurious_fraction=1e-6)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        private = PrivateNgrams(plan=plan, run_key=KEY, workers=workers, partitions=3)
        _, found = (pipeline | beam.Create(documents) | private).released
        kept = keep(found)
    (bigrams,) = kept
    assert bigrams.keys.size == 0
    group, *_ = bigrams.rule.groups
    assert group.noise_stddev > 0
