"""The oracle: the package releases exactly what the papers' pseudocode (`reference.py`) releases.

The same run key, documents and plan go through the Beam pipeline, through its kernels chained without
Beam (cheap, so hundreds of times), and through the plain-Python reference; grams and scores must be
equal, scores bit for bit. Beam runs collect into a list of this module, which the embedded runner's
worker threads share.
"""

import functools
import itertools
import random
import traceback

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from beam_dpne import PrivacyPlan, PrivateNgrams, RunKey
from beam_dpne.batches import ROOT, GramSet
from beam_dpne.contributions import limit_contributions
from beam_dpne.decoding import decode_sets, split_ngram
from beam_dpne.grams import extract_grams, prune_invalid
from beam_dpne.histogram import (
    cut_by_hash_range,
    merge_shards,
    shard_spurious,
    sum_contributions,
)
from beam_dpne.ngrams import run_context
from beam_dpne.selection import decide, merge_released, sample_spurious
from beam_dpne.strategies import OneRound
from beam_dpne.users import (
    encode_documents,
    hash_users,
    lay_out_positions,
    limit_documents,
    split_by_user,
)
from tests.reference import private_ngrams

Documents = dict[str, list[list[str]]]

HOSTILE = [
    *("", " ", "  ", "\t", "\n", "\r\n", "\\", "\\e", "\\s", "\0", "\x1f", "\u2028", "\ufeff"),
    *(
        "a b",
        "a",
        "b",
        "A",
        "é",
        "e\u0301",
        "🙂",
        "👩‍👩‍👧",
        "\uffff",
        "\U0010ffff",
        "-1",
        "x" * 5000,
    ),
]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
WORDS = st.one_of(st.sampled_from(HOSTILE), TEXT)
LOUD = {"epsilon": 30.0, "delta": 0.3, "max_contributions": 6}
KEY = RunKey(bytes(range(32)))


@st.composite
def corpora(draw) -> Documents:
    """Few words and many users, so that grams repeat; users and documents may be empty."""
    vocabulary = draw(st.lists(WORDS, min_size=1, max_size=6, unique=True))
    user_names = draw(st.lists(WORDS, max_size=4, unique=True))
    count = draw(st.integers(0, 40))
    rng = random.Random(draw(st.integers(0, 2**32)))
    phrase = rng.choices(vocabulary, k=6)
    documents: Documents = {}
    for name in [*user_names, *(f"user {i}" for i in range(count))]:
        documents[name] = [
            rng.choices(vocabulary, k=rng.choice([0, 1, 2, 4, 7]))
            if rng.random() < 0.4
            else phrase[rng.randrange(3) :]
            for _ in range(rng.choice([0, 1, 1, 2, 3]))
        ]
    return documents


@st.composite
def plans(draw) -> PrivacyPlan:
    """Budgets large enough to release something, and every other parameter."""
    length = draw(st.integers(1, 5))
    pruning, valid_count = draw(
        st.sampled_from([("both", "exact"), ("both", "estimate"), ("single", "exact")])
    )
    limits = st.sampled_from([1, 2, 3, 5, 1000])
    parts = st.lists(st.integers(1, 9), min_size=length, max_size=length)
    noise = draw(
        st.one_of(
            st.just({}),
            st.fixed_dictionaries({"noise_growth": st.sampled_from([0.7, 1.3])}),
            parts.map(lambda p: {"budget_shares": tuple(part / sum(p) for part in p)}),
        )
    )
    return PrivacyPlan(
        epsilon=draw(st.sampled_from([5.0, 30.0, 100.0, 300.0])),
        delta=draw(st.sampled_from([1e-6, 1e-2, 0.3])),
        max_length=length,
        max_contributions=draw(
            st.one_of(limits, st.lists(limits, min_size=length, max_size=length).map(tuple))
        ),
        spurious_fraction=draw(st.sampled_from([1e-6, 0.01, 0.3, 0.5, 0.9])),
        vocabulary_delta_share=draw(st.sampled_from([0.1, 0.5])),
        max_tokens_per_user=draw(st.sampled_from([1, 5, 9, 1000])),
        pruning=pruning,
        valid_count=valid_count,
        **noise,
    )


RUN_KEYS = st.binary(min_size=32, max_size=32).map(RunKey)


@given(corpora(), plans(), RUN_KEYS, st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_kernels_release_what_the_pseudocode_releases(documents, plan, run_key, rng):
    expected = private_ngrams(documents, plan, run_key)
    event(f"longest released: {max((k for k in expected if expected[k]), default=0)}")
    assert run_kernels(documents, plan, run_key, rng, partitions=rng.randint(1, 5)) == expected


@given(corpora(), plans(), RUN_KEYS, st.randoms(use_true_random=False))
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_beam_releases_what_the_pseudocode_releases(documents, plan, run_key, rng):
    batches = record_batches(documents, rng)
    released = run_beam(batches, plan, run_key, partitions=rng.randint(1, 5))
    assert released == private_ngrams(documents, plan, run_key)


@pytest.mark.parametrize("pruning", ["both", "single"])
def test_batches_partitions_order_and_repeated_bundles_do_not_change_the_release(pruning):
    documents = shared_phrases(users=60)
    plan = PrivacyPlan(**LOUD, max_length=3, spurious_fraction=0.5, pruning=pruning)
    expected = private_ngrams(documents, plan, KEY)
    assert all(expected.values())
    rows = [(user, text) for user, texts in documents.items() for text in texts]
    for seed, (partitions, repeats) in enumerate([(1, None), (3, 3), (16, None)]):
        random.Random(seed).shuffle(rows)
        size = [len(rows), 7, 2][seed]
        batches = [as_batch(rows[start : start + size]) for start in range(0, len(rows), size)]
        runner = FnApiRunner(bundle_repeat=repeats) if repeats else FnApiRunner()
        assert run_beam(batches, plan, KEY, partitions=partitions, runner=runner) == expected
    assert run_beam(rows, plan, KEY, partitions=2) == expected


def test_one_corpus_has_released_spurious_and_dropped_grams_at_every_length():
    """So that the comparisons above compare something: each kind of decision occurs."""
    documents = shared_phrases(users=60)
    plan = PrivacyPlan(**LOUD, max_length=4, spurious_fraction=0.5)
    held = {
        tuple(text[i : i + k])
        for texts in documents.values()
        for text in texts
        for k in range(1, 5)
        for i in range(len(text) - k + 1)
    }
    for length, grams in private_ngrams(documents, plan, KEY).items():
        assert grams.keys() & held
        assert {gram for gram in held if len(gram) == length} - grams.keys()
        assert bool(grams.keys() - held) == (length > 1)


@pytest.mark.parametrize("limit", [1, 10, 37])
def test_a_giant_users_documents_do_not_depend_on_order_split_or_partition(limit):
    documents = shared_phrases(users=30)
    rng = random.Random(5)
    giants = {
        f"giant {g}": [[f"g{rng.randrange(9)}"] * rng.randrange(1, 9) for _ in range(40)]
        for g in range(3)
    }
    documents |= giants | {"long": [["to", "be", "or"] * 30]}
    plan = PrivacyPlan(**LOUD, max_length=3, max_tokens_per_user=limit)
    expected = private_ngrams(documents, plan, KEY)
    for seed in range(40):
        rng = random.Random(seed)
        released = run_kernels(documents, plan, KEY, rng, partitions=rng.randint(1, 9))
        assert released == expected
    batches = record_batches(documents, random.Random(1))
    assert run_beam(batches, plan, KEY, partitions=3) == expected


def test_no_user_releases_nothing():
    assert_all_ways({}, PrivacyPlan(**LOUD, max_length=3), {1: {}, 2: {}, 3: {}})


def test_users_without_text_release_nothing():
    documents = {f"u{i}": [[]] * (i % 3) for i in range(30)}
    assert_all_ways(documents, PrivacyPlan(**LOUD, max_length=2), {1: {}, 2: {}})


def test_pairs_of_users_and_empty_token_lists_release_nothing():
    plan = PrivacyPlan(**LOUD, max_length=2)
    assert run_beam([("ann", []), ("bob", [])], plan, KEY) == {1: {}, 2: {}}


@pytest.mark.parametrize("tokens", [[1, "canary"], ["canary", 1], ["canary\ud800"], [b"canary"]])
def test_tokens_that_are_no_text_are_refused_without_quoting_them(tokens):
    with pytest.raises((TypeError, ValueError), match=r"Tokens must|UTF-8|surrogates") as refused:
        run_beam([("ann", tokens)], PrivacyPlan(**LOUD, max_length=2), KEY)
    assert "canary" not in "".join(traceback.format_exception(refused.value))


def test_an_empty_vocabulary_leaves_all_lengths_empty():
    documents = {f"u{i}": [[f"word {i}", "a", f"again {i}"]] for i in range(3)}
    plan = PrivacyPlan(epsilon=1, delta=1e-9, max_length=3)
    assert_all_ways(documents, plan, {1: {}, 2: {}, 3: {}})


def test_an_empty_length_in_the_middle_leaves_longer_ones_empty():
    documents = {f"u{i}": [["a"], ["b"], ["c"]] for i in range(60)}
    plan = PrivacyPlan(**LOUD, max_length=4, spurious_fraction=1e-9)
    released = assert_all_ways(documents, plan)
    assert set(released[1]) == {("a",), ("b",), ("c",)}
    assert released[2] == released[3] == released[4] == {}


def test_one_user_is_not_released_alone():
    documents = {"only": [["a", "b", "c"] * 3]}
    plan = PrivacyPlan(epsilon=1, delta=1e-9, max_length=2)
    assert_all_ways(documents, plan, {1: {}, 2: {}})


def test_length_one_alone_releases_a_vocabulary():
    released = assert_all_ways(shared_phrases(users=40), PrivacyPlan(**LOUD, max_length=1))
    assert released.keys() == {1}
    assert released[1]


def test_a_text_shorter_than_the_longest_gram_gives_what_it_has():
    documents = {f"u{i}": [["a", "b"]] for i in range(60)}
    plan = PrivacyPlan(**LOUD, max_length=5, spurious_fraction=1e-9)
    released = assert_all_ways(documents, plan)
    assert set(released[2]) == {("a", "b")}
    assert released[3] == released[4] == released[5] == {}


def test_a_limit_above_everything_keeps_everything():
    documents = shared_phrases(users=40)
    plan = PrivacyPlan(epsilon=30, delta=0.3, max_length=3, max_contributions=10**6)
    assert all(assert_all_ways(documents, plan).values())


def test_a_user_whose_grams_are_all_invalid_changes_nothing_beyond_the_vocabulary():
    documents = {f"u{i}": [["a", "b", "a"]] for i in range(60)}
    plan = PrivacyPlan(**LOUD, max_length=3, spurious_fraction=1e-9)
    without = assert_all_ways(documents, plan)
    stranger = {"stranger": [["x", "a", "y", "b", "z"], ["q"] * 9]}
    beside = assert_all_ways(documents | stranger, plan)
    assert beside[1].keys() == without[1].keys()
    assert (beside[2], beside[3]) == (without[2], without[3])
    assert without[3]


def assert_all_ways(documents: Documents, plan: PrivacyPlan, expected=None) -> dict:
    """Beam, kernels and reference agree, under both pruning rules; returns what they release."""
    for pruning in ("single", "both"):
        parameters = plan.to_dict() | {"pruning": pruning}
        plan = PrivacyPlan(**parameters)
        released = private_ngrams(documents, plan, KEY)
        rng = random.Random(0)
        assert run_beam(record_batches(documents, rng), plan, KEY) == released
        assert run_kernels(documents, plan, KEY, rng, partitions=3) == released
        if expected is not None:
            assert released == expected
    return released


def shared_phrases(users: int) -> Documents:
    """Phrases that many users share, and words of one user only."""
    rng = random.Random(3)
    phrases = ["to be or not to be", "not to be", "to be that is the question", "or not or not"]
    return {
        f"user {i}": [rng.choice(phrases).split(), [f"rare{i}", *rng.choice(phrases).split()[:3]]]
        for i in range(users)
    }


def as_batch(rows: list[tuple[str, list[str]]]) -> pa.RecordBatch:
    """A record batch of tokenized documents."""
    users, texts = [row[0] for row in rows], [row[1] for row in rows]
    columns = [pa.array(users, pa.string()), pa.array(texts, pa.list_(pa.string()))]
    return pa.RecordBatch.from_arrays(columns, names=["user", "text"])


def record_batches(documents: Documents, rng: random.Random) -> list[pa.RecordBatch]:
    """The documents in random order, cut into batches of random sizes."""
    rows = [(user, text) for user, texts in documents.items() for text in texts]
    rng.shuffle(rows)
    batches = []
    while rows:
        size = rng.choice([1, 3, 20, 1000])
        batches.append(as_batch(rows[:size]))
        rows = rows[size:]
    return batches


def words_of(sets: list[GramSet]) -> dict[int, dict[tuple[str, ...], float]]:
    """Released sets as {length: {gram: score}}."""
    released: dict = {grams.length: {} for grams in sets}
    for rows in decode_sets(sets):
        for row in rows.to_pylist():
            gram = split_ngram(row["ngram"])
            assert gram not in released[row["length"]]
            released[row["length"]][gram] = row["score"]
    return released


_collected: list[GramSet] = []


def _collect(grams: GramSet) -> None:
    _collected.append(grams)


def run_beam(elements, plan, run_key, *, partitions=3, runner=None):
    """Runs the pipeline on the embedded runner; repeated bundles must repeat their results."""
    _collected.clear()
    with beam.Pipeline(runner=runner or FnApiRunner()) as pipeline:
        result = (
            pipeline
            | beam.Create(elements, reshuffle=False)
            | PrivateNgrams(plan=plan, tokenizer="tokens", partitions=partitions, run_key=run_key)
        )
        _ = result.released | beam.Flatten() | beam.Map(_collect)
    for first, second in itertools.combinations(_collected, 2):
        if first.length == second.length:
            assert first.keys.tolist() == second.keys.tolist()
            assert first.scores.tolist() == second.scores.tolist()
    return words_of(list({grams.length: grams for grams in _collected}.values()))


def run_kernels(documents, plan, run_key, rng, *, partitions):
    """The pipeline's functions chained by hand; the shuffles are shuffles of lists."""
    run_key = run_key.bound_to(run_context(plan, "tokens"))
    batches = user_batches(documents, plan, run_key, rng, partitions)
    previous, sets = ROOT, []
    for length in range(1, plan.max_length + 1):
        if length > 1:
            batches = [prune_invalid(b, previous, pruning=plan.pruning) for b in batches]
        rule = OneRound(plan=plan, run_key=run_key).rule_for(length)(previous)
        pieces = [
            piece
            for batch in batches
            for piece in cut_by_hash_range(
                sum_contributions(
                    limit_contributions(
                        extract_grams(batch, length=length),
                        max_contributions=plan.contribution_limits[length - 1],
                        sub_key=run_key.sub_key("subset", length),
                    )
                ),
                partitions,
            )
        ]
        if length > 1:
            spurious = sample_spurious(previous, rule=rule, run_key=run_key)
            pieces += shard_spurious(spurious, shards=partitions)
        shards = [merge_shards(group) for group in shuffled_groups(pieces, rng)]
        if rule.threshold is None:
            shards = []
        parts = [decide(shard, rule=rule, run_key=run_key) for shard in shards]
        previous = merge_released(parts, previous, rule)
        sets.append(previous)
    return words_of(sets)


def user_batches(documents, plan, run_key, rng, partitions):
    """Tokenize and group by user, as `GroupByUser` does."""
    document_key = run_key.sub_key("document")
    limit = functools.partial(
        limit_documents, max_tokens=plan.max_tokens_per_user, sub_key=document_key
    )
    pieces = []
    for batch in record_batches(documents, rng):
        users = hash_users(batch.column("user"), run_key.sub_key("user"))
        block = limit([encode_documents(users, batch.column("text"))], final=False)
        pieces += split_by_user(block, partitions)
    return [
        lay_out_positions(limit(blocks, final=True), run_key.sub_key("word"))
        for blocks in shuffled_groups(pieces, rng)
    ]


def shuffled_groups(pieces, rng):
    """Groups pairs by key, in random order."""
    rng.shuffle(pieces)
    groups: dict = {}
    for key, piece in pieces:
        groups.setdefault(key, []).append(piece)
    return list(groups.values())
