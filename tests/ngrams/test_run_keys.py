"""No two runs share noise unless key, parameters and input are the same."""

import dataclasses

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import (
    KnownNgrams,
    NgramsPlan,
    PrivateNgrams,
    RunKey,
)
from beam_dpne.documents.run_keys import key_context
from tests.support.pipelines import keep

KEY = RunKey(bytes(range(32)))
ADAPTIVE, ONE_ROUND = (
    NgramsPlan(epsilon=8, delta=1e-4, max_length=2, max_contributions=4, strategy=strategy)
    for strategy in ("adaptive", "one_round")
)
USERS = 300
BATCH = pa.RecordBatch.from_pylist(
    [{"user": f"user {i}", "text": "good morning to you"} for i in range(USERS)]
)
WORDS = {"good", "morning", "to", "you"}


def scores(transform) -> dict[str, float]:
    """Runs n-grams and returns their scores."""
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        rows = keep((pipeline | beam.Create([BATCH]) | transform).rows)
    return {row.ngram: row.score for row in rows}


@pytest.fixture(scope="module")
def one_round() -> dict[str, float]:
    """What the key releases under the plan of one round."""
    return scores(PrivateNgrams(plan=ONE_ROUND, run_key=KEY))


def assert_other_noise(first, second, common):
    """Both runs found what is common, and gave each of it another score."""
    assert first.keys() & second.keys() >= common
    assert all(first[gram] != second[gram] for gram in common)


def test_without_a_key_each_use_of_one_transform_draws_its_own_noise():
    transform = PrivateNgrams(plan=ONE_ROUND)
    first, second = (scores(transform) for _ in range(2))
    assert first.keys() >= WORDS
    assert first != second


def test_one_key_gives_one_release_with_another_number_of_partitions(one_round):
    first = {"one_round": one_round, "adaptive": scores(PrivateNgrams(plan=ADAPTIVE, run_key=KEY))}
    for plan in (ONE_ROUND, ADAPTIVE):
        transform = PrivateNgrams(plan=plan, run_key=KEY, partitions=3)
        assert first[plan.strategy].keys() >= WORDS
        assert scores(transform) == first[plan.strategy], plan.strategy


def test_one_key_under_another_tokenizer_draws_other_noise_though_tokens_are_equal(one_round):
    """A tokenizer's name is a part of what a key is bound to, since its tokens are."""
    other = scores(PrivateNgrams(plan=ONE_ROUND, run_key=KEY, tokenizer="whitespace"))
    assert_other_noise(one_round, other, WORDS)


def test_one_key_with_another_list_of_known_n_grams_draws_other_noise():
    """Also on n-grams of neither list."""
    lists = (KnownNgrams.of([(word,)]) for word in ("x", "y"))
    runs = (scores(PrivateNgrams(plan=ADAPTIVE, run_key=KEY, known=each)) for each in lists)
    assert_other_noise(*runs, WORDS)


@pytest.mark.parametrize("plan", [ADAPTIVE, ONE_ROUND], ids=lambda plan: plan.strategy)
def test_a_run_key_is_bound_to_every_parameter_and_the_tokenizer(plan):
    """One key under two of them would give exact weights away by the difference."""
    others = [
        {"epsilon": 8.5},
        {"delta": 1.1e-4},
        {"max_length": 3},
        {"max_contributions": 5},
        {"spurious_fraction": 0.02},
        {"vocabulary_delta_share": 0.2},
        *([] if plan is ADAPTIVE else [{"pruning": "single"}]),
        {"max_tokens_per_user": 999},
        {"rounds": 2} if plan is ADAPTIVE else {"noise_growth": 0.9},
        *([] if plan is ADAPTIVE else [{"valid_count": "estimate"}]),
        *([{"favour": "words"}, {"favour": "long"}] if plan is ADAPTIVE else []),
    ]
    contexts = [key_context(dataclasses.replace(plan, **other), "words") for other in others]
    contexts += [key_context(plan, name) for name in ("words", "whitespace", "tokens")]
    contexts += [key_context(ONE_ROUND if plan is ADAPTIVE else ADAPTIVE, "words")]
    assert len(set(contexts)) == len(contexts)
