"""No two runs share noise unless key, parameters and input are the same."""

import dataclasses
import json
import uuid

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import (
    DecodeGrams,
    PrivacyPlan,
    PrivateNgrams,
    PrivateSetUnion,
    RunKey,
    SetUnionPlan,
)
from beam_dpne.cli.runners import EmbeddedRunner
from beam_dpne.ngrams.vocabulary import vocabulary_digest

KEY = RunKey(bytes(range(32)))
PLANS = [
    PrivacyPlan(epsilon=8, delta=1e-4, max_length=2, max_contributions=4, strategy=strategy)
    for strategy in ("adaptive", "one_round")
]
each_strategy = pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.strategy)
USERS = 300
BATCH = pa.RecordBatch.from_pylist(
    [{"user": f"user {i}", "text": "good morning to you"} for i in range(USERS)]
)
WORDS = {"good", "morning", "to", "you"}


def scores(transform, tmp_path, runner=None):
    """Runs the transform and returns the scores of each length."""
    path = tmp_path / uuid.uuid4().hex
    with beam.Pipeline(runner=runner or FnApiRunner()) as pipeline:
        documents = pipeline | beam.Create([BATCH])
        rows = (documents | transform).released | DecodeGrams()
        lines = rows | beam.FlatMap(lambda rows: [json.dumps(row) for row in rows.to_pylist()])
        _ = lines | beam.io.WriteToText(str(path), shard_name_template="")
    return {row["ngram"]: row["score"] for row in map(json.loads, path.read_text().splitlines())}


@each_strategy
def test_without_a_key_each_use_of_one_transform_draws_its_own_noise(plan, tmp_path):
    transform = PrivateNgrams(plan=plan)
    first, second = (scores(transform, tmp_path) for _ in range(2))
    assert first.keys() >= WORDS
    assert first != second


def test_vocabularies_with_other_words_of_the_same_letters_have_other_digests():
    vocabularies = [["ab", "c"], ["a", "bc"], ["abc"], ["a", "b", "c"], ["", "abc"]]
    assert len(set(map(vocabulary_digest, vocabularies))) == len(vocabularies)
    assert vocabulary_digest(["b", "a", "b"]) == vocabulary_digest(["a", "b"])


@each_strategy
def test_one_key_gives_one_release_on_both_embedded_runners(plan, tmp_path):
    first = scores(PrivateNgrams(plan=plan, run_key=KEY), tmp_path)
    transform = PrivateNgrams(plan=plan, run_key=KEY, partitions=3)
    assert first.keys() >= WORDS
    assert scores(transform, tmp_path, EmbeddedRunner()) == first


def test_one_key_under_another_epsilon_draws_other_noise(tmp_path):
    """With the same noise z, (score - weight) / sigma would be the same under both plans."""
    noise = []
    for plan in (PLANS[1], dataclasses.replace(PLANS[1], epsilon=4)):
        found = scores(PrivateNgrams(plan=plan, run_key=KEY), tmp_path)
        sigma = plan.lengths[0].noise_stddev
        noise.append([(found[word] - USERS / 2) / sigma for word in sorted(WORDS)])
    # Two draws are that close with odds of 1 to 28, and three of four words with 1 to 5,000.
    apart = sorted(abs(a - b) for a, b in zip(*noise, strict=True))
    assert apart[2] > 1 / 16


@pytest.mark.parametrize("header", ["% Sequences: hello", "% any\n% Sequences:"])
def test_no_line_of_a_sequences_file_makes_other_users_a_header(header, tmp_path):
    from beam_dpne.reading.files import match_inputs
    from beam_dpne.reading.options import ReadOptions
    from beam_dpne.reading.transform import plan_reads, read_item

    path = tmp_path / "a.seq"
    path.write_text("a b\n" * 5 + header + "\n" + "d d\n" * 5)
    options = ReadOptions(input_format="sequences")
    files = match_inputs([str(path)])
    read = [
        batch.documents
        for item in plan_reads(files[0], options)
        for batch in read_item(item, options)
    ]
    texts = [text for batch in read for text in batch.column("text").to_pylist()]
    assert texts.count("a b") == 5
    assert texts.count("d d") == 5


@each_strategy
def test_one_key_under_another_tokenizer_draws_other_noise_though_tokens_are_equal(plan, tmp_path):
    """A tokenizer's name is a part of what a key is bound to, since its tokens are."""
    runs = [
        scores(PrivateNgrams(plan=plan, run_key=KEY, tokenizer=tokenizer), tmp_path)
        for tokenizer in ("words", "whitespace")
    ]
    assert_other_noise(runs, WORDS)


@pytest.mark.parametrize("policy", ["weighted_gaussian", "screened_gaussian"])
def test_one_key_under_another_tokenizer_draws_other_noise_for_a_set_union(policy, tmp_path):
    plan = SetUnionPlan(epsilon=8, delta=1e-4, policy=policy, max_contributions=4)
    runs = [
        union_scores(PrivateSetUnion(plan=plan, run_key=KEY, tokenizer=tokenizer), tmp_path)
        for tokenizer in ("words", "whitespace")
    ]
    assert_other_noise(runs, WORDS)


@each_strategy
def test_one_key_under_another_public_vocabulary_draws_other_noise(plan, tmp_path):
    """Both have the words of the input first and as many words: ids, sizes and rules are the same.

    Their noise would be as well, but for the vocabulary in what the key is bound to.
    """
    public = dataclasses.replace(plan, vocabulary_policy="public", vocabulary_delta_share=None)
    runs = [
        scores(
            PrivateNgrams(plan=public, run_key=KEY, vocabulary=[*sorted(WORDS), another]), tmp_path
        )
        for another in ("zebra", "zulu")
    ]
    assert_other_noise(runs, {"good morning", "morning to", "to you"})


def assert_other_noise(runs, common):
    """Both runs found what is common, and gave each of it another score."""
    first, second = runs
    assert first.keys() & second.keys() >= common
    assert all(first[gram] != second[gram] for gram in common)


def union_scores(transform, tmp_path):
    """Runs a set union and returns the scores of its items."""
    path = tmp_path / uuid.uuid4().hex
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        released = (pipeline | beam.Create([BATCH]) | transform).released
        pairs = released | beam.FlatMap(
            lambda found: zip(found.items.to_pylist(), found.scores.tolist(), strict=True)
        )
        _ = pairs | beam.Map(json.dumps) | beam.io.WriteToText(str(path), shard_name_template="")
    return dict(map(json.loads, path.read_text().splitlines()))
