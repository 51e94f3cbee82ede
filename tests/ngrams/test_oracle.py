"""The oracle: the package releases exactly what the pseudocode (`tests.oracle.ngrams`) releases.

The same run key, documents and plan go through the Beam pipeline, through the run in memory (the
same loop and kernels, cheap, so hundreds of times), and through the plain-Python reference; grams and
scores must be equal, scores bit for bit, and so must what each user has left. The adaptive strategy's
thresholds are solved for twice, by two methods, so now and then one of them is rounded up to another
unit of 2^-32; from there on scores may differ by 1e-8. Beam runs collect into a list of this module,
which the embedded runner's worker threads share.
"""

import dataclasses
import functools
import itertools
import random
import traceback
from collections.abc import Sequence
from typing import NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from beam_dpne import KnownNgrams, NgramsPlan, PrivateNgrams, RunKey
from beam_dpne.documents.blocks import (
    encode_documents,
    hash_users,
    lay_out_positions,
    limit_documents,
    split_by_user,
)
from beam_dpne.documents.run_keys import key_context
from beam_dpne.ngrams.elements import GramSet, word_ids
from beam_dpne.ngrams.in_memory import InMemory
from beam_dpne.ngrams.known import root_of
from tests.oracle.ngrams import AdaptiveRun, adaptive_ngrams, grams_of, private_ngrams

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
# Without numbers of users, of which the reference has none; `plans` has them.
LOUD = {"epsilon": 30.0, "delta": 0.3, "max_contributions": 6, "count_share": 0.0}
KEY = RunKey(bytes(range(32)))
STRATEGIES = ("adaptive", "one_round")


@st.composite
def corpora(draw, words: st.SearchStrategy[str] = WORDS) -> Documents:
    """Few words and many users, so that grams repeat; documents may be empty."""
    vocabulary = draw(st.lists(words, min_size=1, max_size=6, unique=True))
    user_names = draw(st.lists(WORDS.filter(bool), max_size=4, unique=True))
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
def plans(draw) -> NgramsPlan:
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
    return NgramsPlan(
        epsilon=draw(st.sampled_from([5.0, 12.0, 20.0, 26.0])),
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
        strategy="one_round",
        **noise,
    )


@st.composite
def adaptive_plans(draw) -> NgramsPlan:
    """As `plans`, for the adaptive strategy."""
    length = draw(st.integers(1, 4))
    limits = st.sampled_from([1, 2, 3, 5, 1000])
    return NgramsPlan(
        epsilon=draw(st.sampled_from([2.0, 10.0, 20.0, 26.0])),
        delta=draw(st.sampled_from([1e-6, 1e-2, 0.3])),
        max_length=length,
        max_contributions=draw(
            st.one_of(limits, st.lists(limits, min_size=length, max_size=length).map(tuple))
        ),
        spurious_fraction=draw(st.sampled_from([1e-6, 0.01, 0.3, 0.5])),
        vocabulary_delta_share=draw(st.sampled_from([0.1, 0.5])),
        max_tokens_per_user=draw(st.sampled_from([1, 5, 9, 1000])),
        rounds=draw(st.sampled_from([1, 2, 3])),
        favour=draw(st.sampled_from([None, "words", "long"])),
    )


RUN_KEYS = st.binary(min_size=32, max_size=32).map(RunKey)


@given(corpora(), plans(), RUN_KEYS, st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_kernels_release_what_the_pseudocode_releases(documents, plan, run_key, rng):
    expected = reference(documents, plan, run_key)
    event(f"longest released: {longest(expected)}")
    check(run_kernels(documents, plan, run_key, rng, partitions=rng.randint(1, 5)), expected)


@given(corpora(), adaptive_plans(), RUN_KEYS, st.randoms(use_true_random=False))
@settings(max_examples=70, deadline=None, suppress_health_check=list(HealthCheck))
def test_kernels_release_what_the_adaptive_strategy_releases(documents, plan, run_key, rng):
    expected = reference(documents, plan, run_key)
    event(f"longest released: {longest(expected)}")
    kernels = run_kernels(documents, plan, run_key, rng, partitions=rng.randint(1, 5))
    event(f"thresholds are equal: {check(kernels, expected)}")


# In a list, U+001F ends a group, and a run without groups knows what follows it.
UNGROUPED = WORDS.filter(lambda word: "\x1f" not in word)


@given(corpora(UNGROUPED), adaptive_plans(), RUN_KEYS, st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
def test_kernels_release_what_is_released_with_known_n_grams(documents, plan, run_key, rng):
    known = some_known(documents, rng, rng.choice([0, 0, 300]))
    expected = reference(documents, plan, run_key, known)
    event(f"longest released: {longest(expected)}")
    event(f"held known words are counted: {(1, 0) in expected.left}")
    partitions = rng.randint(1, 5)
    kernels = run_kernels(documents, plan, run_key, rng, partitions=partitions, known=known)
    event(f"thresholds are equal: {check(kernels, expected)}")


@pytest.mark.parametrize("unheld", [0, 100])
def test_beam_releases_what_is_released_with_known_n_grams(unheld):
    documents, rng = shared_phrases(users=60), random.Random(8)
    plan = NgramsPlan(**LOUD, max_length=3, spurious_fraction=0.5)
    known = some_known(documents, rng, unheld)
    expected = reference(documents, plan, KEY, known)
    check(run_beam(record_batches(documents, rng), plan, KEY, known=known), expected)
    # So that there is something to compare: known and new ones of each length, held and spurious.
    held = {gram for k in (1, 2, 3) for texts in documents.values() for gram in grams_of(texts, k)}
    kinds = {(len(g), g in held, g in known) for k in (1, 2, 3) for g in expected.released[k]}
    assert {(k, True, is_known) for k in (1, 2) for is_known in (True, False)} <= kinds
    assert unheld == 0 or (1, False, True) in kinds


def some_known(documents: Documents, rng: random.Random, unheld: int) -> frozenset:
    """Some n-grams of the documents, some of their words in another order, and so many others."""
    held = [g for k in (1, 2, 3, 4) for texts in documents.values() for g in grams_of(texts, k)]
    words = [word for gram in held for word in gram]
    mixed = [tuple(rng.choices(words, k=k)) for k in (2, 3, 4) for _ in range(10) if words]
    chosen = rng.sample(sorted(set(held)), len(set(held)) // 2) + mixed
    return frozenset(chosen) | {(f"unheld {number}",) for number in range(unheld)}


def known_of(known: frozenset) -> KnownNgrams:
    return KnownNgrams.of(sorted(known))


@given(corpora(), plans(), RUN_KEYS, st.randoms(use_true_random=False))
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
def test_beam_releases_what_the_pseudocode_releases(documents, plan, run_key, rng):
    batches = record_batches(documents, rng)
    released = run_beam(batches, plan, run_key, partitions=rng.randint(1, 5))
    check(released, reference(documents, plan, run_key))


@pytest.mark.slow
@given(corpora(), adaptive_plans(), RUN_KEYS, st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_beam_releases_what_the_adaptive_strategy_releases(documents, plan, run_key, rng):
    batches = record_batches(documents, rng)
    partitions = rng.randint(1, 5)
    released = run_beam(batches, plan, run_key, partitions=partitions)
    check(released, reference(documents, plan, run_key))


# Partitions of users, documents in a batch (None: pairs instead), and how often each bundle runs.
DIVISIONS = [(1, 1000, 0), (3, 7, 3), (16, 2, 0), (2, None, 0)]


@pytest.mark.parametrize(
    ("strategy", "pruning", "divisions"),
    [
        ("one_round", "both", DIVISIONS),
        ("one_round", "single", DIVISIONS[1:2]),
        ("adaptive", "both", DIVISIONS[1:3]),
        pytest.param("one_round", "single", DIVISIONS, marks=pytest.mark.slow),
        pytest.param("adaptive", "both", DIVISIONS, marks=pytest.mark.slow),
    ],
)
def test_batches_partitions_order_and_repeated_bundles_do_not_change_the_release(
    strategy, pruning, divisions
):
    documents = shared_phrases(users=60)
    plan = NgramsPlan(
        **LOUD, max_length=3, spurious_fraction=0.5, pruning=pruning, strategy=strategy
    )
    expected = reference(documents, plan, KEY)
    assert all(expected.released.values())
    rows = [(user, text) for user, texts in documents.items() for text in texts]
    for seed, (partitions, size, repeats) in enumerate(divisions):
        random.Random(seed).shuffle(rows)
        elements = rows
        if size:
            elements = [as_batch(rows[i : i + size]) for i in range(0, len(rows), size)]
        runner = FnApiRunner(bundle_repeat=repeats)
        check(run_beam(elements, plan, KEY, partitions=partitions, runner=runner), expected)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_corpus_has_released_spurious_and_dropped_grams_at_every_length(strategy):
    """So that the comparisons above compare something: each kind of decision occurs."""
    documents = shared_phrases(users=60)
    plan = NgramsPlan(**LOUD, max_length=4, spurious_fraction=0.5, strategy=strategy)
    held = {
        tuple(text[i : i + k])
        for texts in documents.values()
        for text in texts
        for k in range(1, 5)
        for i in range(len(text) - k + 1)
    }
    drawn = dict.fromkeys(range(1, 5), 0)
    for number in range(5):
        released = reference(documents, plan, RunKey(bytes([number] * 32))).released
        for length, grams in released.items():
            assert grams.keys() & held
            assert {gram for gram in held if len(gram) == length} - grams.keys()
            drawn[length] += len(grams.keys() - held)
    assert drawn.pop(1) == 0
    assert all(drawn.values())


@pytest.mark.parametrize("limit", [1, 10, 37])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_giant_users_documents_do_not_depend_on_order_split_or_partition(strategy, limit):
    documents = shared_phrases(users=30)
    rng = random.Random(5)
    giants = {
        f"giant {g}": [[f"g{rng.randrange(9)}"] * rng.randrange(1, 9) for _ in range(40)]
        for g in range(3)
    }
    documents |= giants | {"long": [["to", "be", "or"] * 30]}
    plan = NgramsPlan(**LOUD, max_length=3, max_tokens_per_user=limit, strategy=strategy)
    expected = reference(documents, plan, KEY)
    for seed in range(8 if strategy == "one_round" else 4):
        rng = random.Random(seed)
        check(run_kernels(documents, plan, KEY, rng, partitions=rng.randint(1, 9)), expected)
    if (strategy, limit) in (("one_round", 10), ("adaptive", 37)):
        batches = record_batches(documents, random.Random(1))
        check(run_beam(batches, plan, KEY, partitions=3), expected)


@pytest.mark.parametrize("tokens", [[1, "canary"], ["canary", 1], ["canary\ud800"], [b"canary"]])
def test_tokens_that_are_no_text_are_refused_without_quoting_them(tokens):
    with pytest.raises(
        (TypeError, ValueError),
        match=r"Tokens must|text must be|must name a field of type str|UTF-8|surrogates",
    ) as refused:
        run_beam([("ann", tokens)], NgramsPlan(**LOUD, max_length=2), KEY)
    assert "canary" not in "".join(traceback.format_exception(refused.value))


def test_an_empty_length_in_the_middle_leaves_longer_ones_empty(all_ways_and_beam):
    documents = {f"u{i}": [["a"], ["b"], ["c"]] for i in range(60)}
    plan = NgramsPlan(**LOUD, max_length=4, spurious_fraction=1e-9)
    released = all_ways_and_beam(documents, plan)
    assert set(released[1]) == {("a",), ("b",), ("c",)}
    assert released[2] == released[3] == released[4] == {}


def test_one_user_is_not_released_alone(all_ways):
    documents = {"only": [["a", "b", "c"] * 3]}
    plan = NgramsPlan(epsilon=1, delta=1e-9, max_length=2)
    all_ways(documents, plan, {1: {}, 2: {}})


def test_one_word_alone_is_released_as_word_and_as_grams_of_itself(all_ways):
    documents = {f"u{i}": [["a"] * (1 + i % 7)] for i in range(50)}
    plan = NgramsPlan(**LOUD, max_length=4, spurious_fraction=1e-9)
    released = all_ways(documents, plan)
    assert [len(released[k]) for k in (1, 2, 3, 4)] == [1, 1, 1, 1]


def test_every_round_finds_something_and_changes_what_users_have():
    """So that the comparisons above compare something: each round has something to decide."""
    documents = zipf_texts(users=120)
    plan = NgramsPlan(epsilon=4, delta=0.1, max_length=3, spurious_fraction=0.1)
    places = [(1, 1), (1, 2), *itertools.product((2, 3), (1, 2, 3))]
    found, spent = dict.fromkeys(places, 0), dict.fromkeys(places[1:], 0)
    for number in range(4):
        key = RunKey(bytes([number] * 32))
        run = reference(documents, plan, key)
        check(run_kernels(documents, plan, key, random.Random(number), partitions=4), run)
        for place in places:
            found[place] += len(run.found[place])
        for before, after in itertools.pairwise(places):
            spent[after] += run.left[before] != run.left[after]
    assert all(found.values())
    assert all(spent.values())


ALSO_ADAPTIVE = pytest.param(STRATEGIES, marks=pytest.mark.slow)


@pytest.fixture(params=[(), ALSO_ADAPTIVE], ids=["kernels", "beam"])
def all_ways(request):
    """Compares kernels and reference under both strategies and pruning rules; if slow, Beam too."""
    return functools.partial(assert_all_ways, on_beam=request.param)


@pytest.fixture(params=[("one_round",), ALSO_ADAPTIVE], ids=["one round on beam", "beam"])
def all_ways_and_beam(request):
    """As `all_ways`, for data that leave some step of the pipeline nothing to do."""
    return functools.partial(assert_all_ways, on_beam=request.param)


def assert_all_ways(
    documents: Documents,
    plan: NgramsPlan,
    expected=None,
    *,
    on_beam: Sequence[str],
    strategies=STRATEGIES,
) -> dict:
    """Beam, kernels and reference agree; returns what the last of the combinations releases."""
    own = {"vocabulary_delta_share", "noise_growth", "rounds", "favour"}
    for strategy, pruning in (("one_round", "single"), ("one_round", "both"), ("adaptive", "both")):
        if strategy not in strategies:
            continue
        parameters = plan.to_dict() | {"strategy": strategy, "pruning": pruning}
        if strategy != plan.strategy:
            parameters |= dict.fromkeys(own)
        variant = NgramsPlan(**parameters)
        run = reference(documents, variant, KEY)
        rng = random.Random(0)
        batches = record_batches(documents, rng)
        if strategy in on_beam:
            check(run_beam(batches, variant, KEY), run)
        check(run_kernels(documents, variant, KEY, rng, partitions=3), run)
        if expected is not None:
            assert run.released == expected
    return run.released


def reference(documents, plan, run_key, known=frozenset()) -> AdaptiveRun:
    """What the pseudocode of the plan's strategy releases."""
    if plan.is_adaptive:
        public = digest_of(known, plan)
        return adaptive_ngrams(documents, plan, run_key, known=known, public=public)
    released = private_ngrams(documents, plan, run_key)
    return AdaptiveRun(released, {}, {}, {})


def longest(run: AdaptiveRun) -> int:
    return max((k for k in run.released if run.released[k]), default=0)


class Release(NamedTuple):
    """What the package made of documents.

    Attributes:
      sets: S_1, …, S_T.
      left: as of `AdaptiveRun`, of the users that still have something to send; none from Beam.
      sent: for each length and round of the adaptive strategy, what the batches send; none from Beam.
    """

    sets: list[GramSet]
    left: dict
    sent: dict


def check(release: Release, run: AdaptiveRun) -> bool:
    """Fails unless both released the same; returns whether their thresholds are equal, too."""
    rules = {
        (grams.length, own.number): own.rounds
        for grams in release.sets
        if grams.rule
        for own in grams.rule.classes
    }
    expected_rules = {
        (length, number): rounds
        for length, classes in run.rules.items()
        for number, rounds in classes.items()
    }
    equal = True
    assert not expected_rules or {*expected_rules} <= {*rules}
    for place, expected in expected_rules.items():
        assert len(rules[place]) == len(expected)
        for ours, other in zip(rules[place], expected, strict=True):
            unit = 2**20 // ours.loading_unit
            assert [loading * unit for loading in ours.loadings] == other.loadings
            assert abs(ours.threshold_units - other.rho) <= 1
            assert ours.threshold == pytest.approx(other.rho / 2**32, rel=1e-9, abs=1e-9)
            assert ours.cut_cell == other.cut
            assert ours.null_probability == pytest.approx(other.probability, rel=1e-9)
            equal &= ours.threshold_units == other.rho
    released = words_of(release.sets)
    if equal:
        assert released == run.released
        for place, users in release.left.items():
            assert users.items() <= run.left.get(place, {}).items()
        return True
    assert released.keys() == run.released.keys()
    for length, grams in released.items():
        assert grams == pytest.approx(run.released[length], rel=1e-8, abs=1e-8)
    return False


def shared_phrases(users: int) -> Documents:
    """Phrases that many users share, and words of one user only."""
    rng = random.Random(3)
    phrases = ["to be or not to be", "not to be", "to be that is the question", "or not or not"]
    return {
        f"user {i}": [rng.choice(phrases).split(), [f"rare{i}", *rng.choice(phrases).split()[:3]]]
        for i in range(users)
    }


def zipf_texts(users: int) -> Documents:
    """Texts of eight words by Zipf's law, whose grams many users share a little, and rarer words."""
    rng = random.Random(1)
    words = [f"w{place}" for place in range(8)]
    shares = [1 / (1 + place) for place in range(8)]
    return {
        f"user {i}": [rng.choices(words, shares, k=12), [f"rare {i % 12}"]] for i in range(users)
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
    sets = sorted(sets, key=lambda grams: grams.length)
    for place, grams in enumerate(sets):
        columns = word_ids(sets, place, np.arange(len(grams)))
        words = [sets[0].words.take(pa.array(ids)).to_pylist() for ids in columns]
        named = dict(zip(zip(*words, strict=True), grams.scores.tolist(), strict=True))
        assert len(named) == len(grams)
        released[grams.length] = named
    return released


_collected: list[GramSet] = []


def _collect(grams: GramSet) -> None:
    _collected.append(grams)


def digest_of(known: frozenset, plan: NgramsPlan) -> str:
    """To what the run key is bound; to nothing if no known n-gram is short enough."""
    return known_of(known).sha256 if min(map(len, known), default=99) <= plan.max_length else ""


def run_beam(elements, plan, run_key, *, partitions=3, runner=None, known=frozenset()) -> Release:
    """Runs the pipeline on the embedded runner; repeated bundles must repeat their results."""
    _collected.clear()
    with beam.Pipeline(runner=runner or FnApiRunner()) as pipeline:
        result = (
            pipeline
            | beam.Create(elements, reshuffle=False)
            | PrivateNgrams(
                plan=plan,
                tokenizer="tokens",
                partitions=partitions,
                run_key=run_key,
                known=known_of(known) if known else None,
            )
        )
        _ = result.released | beam.Flatten() | beam.Map(_collect)
    for first, second in itertools.combinations(_collected, 2):
        if first.length == second.length:
            assert first.keys.tolist() == second.keys.tolist()
            assert first.scores.tolist() == second.scores.tolist()
    return Release(list({grams.length: grams for grams in _collected}.values()), {}, {})


@dataclasses.dataclass(kw_only=True)
class Shuffled(InMemory):
    """A run in memory with shuffled pieces; notes what users send and have left.

    Attributes:
      rng: shuffles.
      sent: as of `Release`.
      left: as of `Release`.
    """

    rng: random.Random
    sent: dict = dataclasses.field(default_factory=dict)
    left: dict = dataclasses.field(default_factory=dict)

    def contribute(self, length, number, users, past):
        pieces, users = super().contribute(length, number, users, past)
        if self.plan.is_adaptive:
            self.left[length, number] = {
                tuple(user): rest
                for batch in users
                for user, rest in zip(batch.users.tolist(), batch.left.tolist(), strict=True)
            }
        return pieces, users

    def sums(self, sent):
        if self.plan.is_adaptive:
            self.sent.setdefault((sent.length, sent.round), []).append(sent)
        return super().sums(sent)

    def measure(self, sent, still_open, previous):
        self.rng.shuffle(sent)
        self.rng.shuffle(still_open)
        return super().measure(sent, still_open, previous)


def run_kernels(documents, plan, run_key, rng, *, partitions, known=frozenset()) -> Release:
    """The run in memory, from users in random batches; shuffles are shuffles of lists."""
    run_key = run_key.bound_to(key_context(plan, "tokens", public=digest_of(known, plan)))
    root = root_of(known_of(known), plan.max_length)
    run = Shuffled(plan=plan, run_key=run_key, histogram_ranges=partitions, rng=rng, root=root)
    batches = user_batches(documents, plan, run_key, rng, partitions)
    return Release(list(run.release(batches)), run.left, run.sent)


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
