"""NoisyThreshold: n-grams whose noisy weight is above the threshold, with the spurious ones."""

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that

from beam_dpne import GramSet, HistogramShard, NoisyThreshold, RunKey, length_rule
from beam_dpne.ngrams.threshold import merge_released
from tests.support.grams import decide

KEY = RunKey(bytes(range(32)))
WORDS = GramSet(length=1, keys=np.arange(9), scores=np.ones(9), vocabulary_size=9)


def length_rule_of(threshold: float):
    return length_rule(length=2, noise_stddev=1.0, threshold=threshold, valid=81)


def shard_of(weights: dict[int, int], spurious=(), threshold=20.0) -> HistogramShard:
    """A hash range of bigrams with weights in units, and spurious ones just above the threshold."""
    keys = sorted(weights)
    return HistogramShard(
        length=2,
        keys=np.array(keys, np.int64),
        weights=np.array([weights[key] for key in keys], np.int64) << 32,
        spurious_keys=np.array(sorted(spurious), np.int64),
        spurious_cells=np.zeros(len(spurious), np.int64),
        spurious_rounds=np.ones(len(spurious), np.int8),
        spurious_classes=np.zeros(len(spurious), np.int16),
        rule=length_rule_of(threshold),
    )


def released(shards, check, *, rule=None, run_key=KEY):
    """Applies the transform to hash ranges, and a check to the released set."""
    rule = rule or length_rule_of(20.0)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        words = pipeline | "S_1" >> beam.Create([WORDS])
        threshold = NoisyThreshold(rule_for=lambda _: rule, previous=words, run_key=run_key)
        found = pipeline | beam.Create(shards) | threshold

        def check_one(sets):
            (grams,) = sets
            check(grams)

        assert_that(found, check_one)


def test_heavy_grams_are_released_and_light_ones_are_not():
    """The noise has deviation 1: weights 20 away from the threshold are decided for certain."""

    def check(grams):
        assert grams.keys.tolist() == [3, 5]
        assert (grams.parent_size, grams.vocabulary_size) == (9, 9)

    released([shard_of({3: 90, 4: 0}), shard_of({5: 40})], check)


def test_held_and_spurious_grams_come_as_one_sorted_set_with_scores_above_the_threshold():
    def check(grams):
        assert grams.keys.tolist() == [2, 3, 6]
        assert (grams.scores > 20.0).all()

    released([shard_of({3: 90}, spurious=[2, 6])], check)


def test_drawn_grams_that_somebody_holds_are_decided_by_their_own_noise():
    """Gram 4 is held without weight: it was drawn, but its own noise is below the threshold."""

    def check(grams):
        assert grams.keys.tolist() == [3, 6]

    released([shard_of({3: 90, 4: 0}, spurious=[4, 6])], check)


def test_nothing_above_the_threshold_is_an_empty_set():
    def check(grams):
        assert len(grams) == 0
        assert grams.length == 2

    released([shard_of({4: 0})], check)


def test_one_key_gives_one_release_and_hash_ranges_do_not_matter():
    """Weights at the threshold: which of them pass is decided by the noise of each gram."""
    weights = dict.fromkeys((a << 32 | b for a in range(5) for b in range(8)), 20)
    sets = []
    for shards in (
        [shard_of(weights)],
        [shard_of({key: 20 for key in weights if key % 3 == part}) for part in range(3)],
    ):
        parts = [decide(shard, rule=length_rule_of(20.0), run_key=KEY) for shard in shards]
        sets.append(merge_released(parts, WORDS, length_rule_of(20.0)))

        def check(grams, expected=sets[0]):
            assert grams.keys.tolist() == expected.keys.tolist()
            assert grams.scores.tolist() == expected.scores.tolist()
            assert 5 < len(grams) < 35

        released(shards, check)
    other = decide(shard_of(weights), rule=length_rule_of(20.0), run_key=RunKey(bytes(32)))
    assert other.keys.tolist() != sets[0].keys.tolist()


def test_held_and_spurious_grams_are_decided_by_one_rule():
    """Else the threshold would tell which of them somebody holds."""
    decide_by(length_rule_of(20.0))
    with pytest.raises(Exception, match="must have one rule_for at length 2"):
        decide_by(length_rule_of(25.0))


def decide_by(rule):
    """Decides a shard, whose rule has the threshold 20, by a transform with this rule."""
    shard = HistogramShard(
        length=2, keys=np.array([3]), weights=np.array([90]) << 32, rule=length_rule_of(20.0)
    )
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        words = pipeline | "S_1" >> beam.Create([WORDS])
        threshold = NoisyThreshold(rule_for=lambda _: rule, previous=words, run_key=KEY)
        _ = pipeline | beam.Create([shard]) | threshold
