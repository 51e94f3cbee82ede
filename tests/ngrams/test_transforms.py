"""Public transforms refuse to be put together in ways that would not be private."""

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import (
    Contributions,
    GramSet,
    HistogramShard,
    NoisyThreshold,
    RunKey,
    WeightedHistogram,
    length_rule,
)

KEY = RunKey(bytes(range(32)))
WORDS = GramSet(length=1, keys=np.arange(9), scores=np.ones(9), vocabulary_size=9)


def length_rule_of(threshold: float):
    return length_rule(length=2, noise_stddev=1.0, threshold=threshold, valid=81)


def test_a_histogram_of_longer_grams_wants_spurious_ones():
    """Without them a released n-gram tells that somebody holds it."""
    grams = Contributions(
        length=2,
        users=np.array([[1, 2]], np.uint64),
        offsets=np.array([0, 1]),
        keys=np.array([7]),
        weights=np.array([2**32]),
    )
    with (
        pytest.raises(Exception, match="WeightedHistogram needs spurious="),
        beam.Pipeline(runner=FnApiRunner()) as pipeline,
    ):
        _ = pipeline | beam.Create([grams]) | WeightedHistogram()


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
