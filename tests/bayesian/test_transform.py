"""N-gram probabilities through Beam and the plain-Python reference agree, noisy counts bit for bit.

The same run key, documents, public counts and plan go through both.
"""

import itertools
import random

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_dpne.bayesian import posterior
from beam_dpne.bayesian.plan import ProbabilitiesPlan
from beam_dpne.bayesian.steps import BayesianCounts, NgramProbabilities
from beam_dpne.documents.run_keys import key_context
from beam_dpne.elements import batches
from beam_dpne.elements.encoding import SetStore
from beam_dpne.lists.public_counts import PublicCounts
from beam_dpne.mechanism.randomness import RunKey
from tests.oracle.bayesian import (
    Documents,
    Gram,
    in_order,
    noisy_values,
)

KEY = RunKey(b"bayesian".ljust(32, b"."))
WORDS = ["a", "b", "é", "a b", "", "\\", "🙂", "x" * 40]


def documents_of(seed: int, users: int = 40) -> Documents:
    """Users with few and many words of falling popularity, some of them unknown to the public."""
    rng = random.Random(seed)
    words = [*WORDS, "private"]
    return {
        f"user {u}": [
            [
                words[min(int(rng.paretovariate(0.8)) - 1, rng.randrange(len(words)))]
                for _ in range(n)
            ]
            for n in rng.choices([0, 1, 2, 5, 30], k=rng.randrange(4))
        ]
        for u in range(users)
    }


def public_of(seed: int, length: int, grams: int = 30) -> dict[Gram, int]:
    rng = random.Random(seed)
    every = list(itertools.product(WORDS, repeat=length))
    chosen = rng.sample(every, min(grams, len(every)))
    return {gram: rng.choice([0, 1, 1, 2, 50]) for gram in chosen} | {chosen[0]: 7}


def plan_of(**others) -> ProbabilitiesPlan:
    given = {"epsilon": 2.0, "delta": 1e-6, "length": 2, "max_count": 2, "max_contributions": 4}
    return ProbabilitiesPlan(**{**given, **others})


def as_batches(documents: Documents, rng: random.Random) -> list[pa.RecordBatch]:
    """The documents in random order, in batches of random sizes."""
    rows = [(user, text) for user, texts in documents.items() for text in texts]
    rng.shuffle(rows)
    cut = []
    while rows:
        size = rng.choice([1, 7, 1000])
        columns = [
            pa.array([user for user, _ in rows[:size]], pa.string()),
            pa.array([text for _, text in rows[:size]], pa.list_(pa.string())),
        ]
        cut.append(pa.RecordBatch.from_arrays(columns, names=["user", "text"]))
        rows = rows[size:]
    return cut


_released: list[NgramProbabilities] = []


def _collect_released(found: NgramProbabilities) -> None:
    _released.append(found)


def run_beam(
    elements, public, plan, *, partitions=3, repeats=0, tokenizer="tokens", store=None
) -> tuple[list[int], NgramProbabilities]:
    """Runs the pipeline; repeated bundles must repeat their results."""
    _released.clear()
    counts = PublicCounts.of(public.keys(), public.values())
    with beam.Pipeline(runner=FnApiRunner(bundle_repeat=repeats)) as pipeline:
        result = (
            pipeline
            | beam.Create(elements, reshuffle=False)
            | BayesianCounts(
                plan=plan,
                public=counts,
                partitions=partitions,
                run_key=KEY,
                tokenizer=tokenizer,
                store=store,
            )
        )
        _ = result.released | "Released" >> beam.Map(_collect_released)
    first = _released[0]
    assert all((other.probabilities == first.probabilities).all() for other in _released)
    assert first.ngrams.to_pylist() == counts.texts().to_pylist()[: plan.vocabulary_size]
    assert all((other.noisy == first.noisy).all() for other in _released)
    return first.noisy.tolist(), first


@pytest.mark.parametrize("length", [1, 2, 5])
def test_beam_and_pseudocode_have_the_same_noisy_values(length):
    documents, public = documents_of(length), public_of(length, length)
    plan = plan_of(length=length)
    expected = noisy_values(documents, public, plan, KEY)
    noisy, found = run_beam(as_batches(documents, random.Random(1)), public, plan)
    assert noisy == expected
    assert found.probabilities.sum() == pytest.approx(1, abs=1e-12)
    assert found.probabilities.min() >= 0


@pytest.mark.parametrize(("partitions", "repeats"), [(40, 0), (9, 2)])
def test_order_batches_partitions_and_repeated_bundles_do_not_change_the_result(
    partitions, repeats
):
    documents, public, plan = documents_of(4), public_of(4, 2), plan_of(max_count=3)
    cut = as_batches(documents, random.Random(0))
    noisy, _ = run_beam(cut, public, plan, partitions=partitions, repeats=repeats)
    assert noisy == noisy_values(documents, public, plan, KEY)


@pytest.mark.slow
@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 3), st.integers(1, 40))
@settings(max_examples=40)
def test_any_limits_and_sizes_have_the_pseudocodes_values(seed, limit, clamp, size):
    documents, public = documents_of(seed, users=12), public_of(seed, 2)
    plan = plan_of(max_contributions=limit, max_count=clamp, vocabulary_size=size)
    expected = noisy_values(documents, public, plan, KEY)
    noisy, _ = run_beam(as_batches(documents, random.Random(seed)), public, plan)
    assert noisy == expected


def test_probabilities_of_counts_are_the_posterior_of_the_noisy_counts():
    documents, public, plan = documents_of(5), public_of(5, 2), plan_of()
    noisy, found = run_beam(as_batches(documents, random.Random(0)), public, plan)
    counts = PublicCounts.of(public.keys(), public.values())
    wanted = posterior.probabilities(
        np.array(noisy), counts.counts, counts.grams, plan.noise_stddev
    )
    assert (found.probabilities == wanted).all()


def test_any_noisy_values_give_a_distribution():
    rng = np.random.default_rng(1)
    cases = itertools.product((1, 2, 5), (1, 2, 9), (0.03, 1.0, 20.0))
    for length, size, epsilon in cases:
        every = list(itertools.product("abc", repeat=length))[:size]
        alpha = rng.choice([1, 2, 1000, 2**40], size=len(every)).tolist()
        public = PublicCounts.of(every, [*alpha[:-1], 0] if len(every) > 1 else alpha)
        plan = plan_of(epsilon=epsilon, delta=1e-5, length=length)
        counts = rng.choice([0, 1, 100, 10**7], size=len(every))
        values = counts + np.rint(plan.noise_stddev * rng.normal(size=len(every))).astype(np.int64)
        found = posterior.probabilities(values, public.counts, public.grams, plan.noise_stddev)
        assert np.isfinite(found).all()
        assert found.min() >= 0
        assert found.sum() == pytest.approx(1, abs=1e-9)


def test_nobody_leaves_a_distribution():
    _, found = run_beam([], public_of(1, 2), plan_of())
    assert found.probabilities.sum() == pytest.approx(1, abs=1e-12)


def test_every_gram_has_noise_of_its_own_though_nobody_has_it():
    public = {gram: 1 for gram in itertools.product(map(str, range(60)), repeat=2)}
    plan = plan_of(epsilon=0.1, vocabulary_size=3600)
    noisy, _ = run_beam([("ann", ["nothing", "known"])], public, plan)
    scaled = np.array(noisy) / plan.noise_stddev
    # 3,600 draws of N(0, 1): a mean beyond 6/60 or a deviation beyond 12 % off has odds below 1e-8.
    assert abs(scaled.mean()) < 0.1
    assert abs(scaled.std() - 1) < 0.12
    assert len(set(noisy)) > 400


def test_texts_are_tokenized_and_documents_are_not_joined():
    public = {("rye", "bread"): 1, ("bread", "tea"): 1, ("tea", "rye"): 1}
    plan = plan_of(epsilon=30.0, delta=1e-3, max_contributions=3, max_count=1)
    rows = [(f"u{i}", text) for i in range(500) for text in ("Rye bread!", "tea")]
    noisy, _ = run_beam(rows, public, plan, tokenizer="words")
    # σ < 0.5: noise beyond 10 has odds below 1e-80.
    counted = dict(zip(in_order(public, 9), noisy, strict=True))
    assert abs(counted["rye", "bread"] - 500) < 10
    assert abs(counted["bread", "tea"]) < 10
    assert abs(counted["tea", "rye"]) < 10


def test_a_run_key_is_bound_to_plan_and_public_counts():
    documents, public = documents_of(7), public_of(7, 2)
    cut = as_batches(documents, random.Random(0))
    one = noisy_values(documents, public, plan_of(), KEY)
    other, _ = run_beam(cut, public, plan_of(epsilon=2.0000001))
    assert sum(a == b for a, b in zip(one, other, strict=True)) < len(one) / 2
    raised = {gram: count + 1 for gram, count in public.items()}
    third, _ = run_beam(cut, raised, plan_of())
    assert sum(a == b for a, b in zip(one, third, strict=True)) < len(one) / 2


def test_large_public_counts_travel_as_a_file(tmp_path):
    documents, public = documents_of(8), public_of(8, 2)
    cut = as_batches(documents, random.Random(0))
    expected = noisy_values(documents, public, plan_of(), KEY)
    stored = SetStore(folder=str(tmp_path / "sets"), limit=10)
    assert run_beam(cut, public, plan_of(), store=stored)[0] == expected
    assert len(list((tmp_path / "sets").iterdir())) == 1


def test_elements_cut_small_do_not_change_the_result(monkeypatch):
    documents, public = documents_of(9), public_of(9, 2)
    cut = as_batches(documents, random.Random(0))
    expected = noisy_values(documents, public, plan_of(), KEY)
    monkeypatch.setattr(batches, "_ROWS_OF_A_PIECE", 4)
    assert run_beam(cut, public, plan_of())[0] == expected


@pytest.mark.parametrize("max_tokens", [7, 1_000_000])
def test_neighbours_under_one_key_differ_by_no_more_than_the_sensitivity(max_tokens):
    """The noise is the same, and cancels: what is left is what one user moved."""
    documents, public = documents_of(11, users=25), public_of(11, 2)
    rng = random.Random(11)
    giant = [[rng.choice(WORDS) for _ in range(rng.randrange(1, 60))] for _ in range(9)]
    plan = plan_of(max_tokens_per_user=max_tokens, max_count=3, max_contributions=5)
    values = [
        np.array(run_beam(as_batches(docs, random.Random(0)), public, plan)[0])
        for docs in (documents, documents | {"giant": giant})
    ]
    moved = values[1] - values[0]
    assert 0 < (moved != 0).sum() <= 5
    squares = int((moved.astype(object) ** 2).sum())
    assert moved.min() >= 0
    assert squares <= 5 * 3**2


def test_what_cannot_be_is_refused_when_the_pipeline_is_built():
    public = PublicCounts.of([("a", "b")], [1])
    with pytest.raises(ValueError, match="longest n-gram of public, 2, got `length=3`"):
        BayesianCounts(plan=plan_of(length=3), public=public)
    with pytest.raises(ValueError, match="`partitions` must be an integer of at least 1"):
        BayesianCounts(plan=plan_of(), public=public, partitions=0)
    with pytest.raises(ValueError, match="tokenizer"):
        BayesianCounts(plan=plan_of(), public=public, tokenizer="wrods")


def test_a_run_key_is_bound_to_plan_tokenizer_and_public_counts():
    """One key under two of them would give exact counts away by the difference."""
    public = public_of(1, 2)
    grams = in_order(public, 30)
    counts = [public[gram] for gram in grams]
    plan, kept = plan_of(), PublicCounts.of(grams, counts)
    others = [
        (plan_of(epsilon=2.5), "words", kept),
        (plan, "whitespace", kept),
        (plan, "words", PublicCounts.of(grams, [count + 1 for count in counts])),
        (plan, "words", PublicCounts.of(grams[:-1], counts[:-1])),
    ]
    contexts = {
        key_context(plan, tokenizer, public=counts.fingerprint())
        for plan, tokenizer, counts in [(plan, "words", kept), *others]
    }
    assert len(contexts) == 1 + len(others)
