"""WeightedHistogram: exact sums over users, which do not depend on batches or hash ranges."""

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that

from beam_dpne import Contributions, SpuriousGrams, WeightedHistogram

UNIT = 2**32


def sent(user: int, weights: dict[int, int]) -> Contributions:
    """The bigrams of one user, with weights in units of 2^-32."""
    return Contributions(
        length=2,
        users=np.array([[user, user]], np.uint64),
        offsets=np.array([0, len(weights)]),
        keys=np.array(sorted(weights)),
        weights=np.array([weights[key] for key in sorted(weights)]),
    )


def drawn(*keys: int) -> SpuriousGrams:
    """Spurious bigrams of the first round."""
    return SpuriousGrams(
        length=2,
        keys=np.array(sorted(keys), np.int64),
        cells=np.zeros(len(keys), np.int64),
        rounds=np.ones(len(keys), np.int8),
        classes=np.zeros(len(keys), np.int16),
    )


def histogram_of(contributions, spurious, histogram_ranges=1):
    """The sums of all hash ranges, and the spurious grams in them."""
    sums, met = {}, []

    def check(shards):
        sums.clear()
        met.clear()
        assert len(shards) == histogram_ranges
        for shard in shards:
            assert shard.keys.tolist() == sorted(shard.keys.tolist())
            sums.update(zip(shard.keys.tolist(), shard.weights.tolist(), strict=True))
            met.extend(shard.spurious_keys.tolist())
        assert sums == EXPECTED
        assert sorted(met) == [7, 9]

    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        beside = pipeline | "spurious" >> beam.Create([spurious])
        users = pipeline | beam.Create(contributions)
        histogram = users | WeightedHistogram(histogram_ranges=histogram_ranges, spurious=beside)
        assert_that(histogram, check)


# One unit more than 1.5 would be lost in floating point of 32 bits; grams at weight 0 are there too.
SENT = [sent(1, {7: UNIT, 8: 0}), sent(2, {7: UNIT // 2 + 1, 5: 3}), sent(3, {5: 4})]
EXPECTED = {5: 7, 7: UNIT + UNIT // 2 + 1, 8: 0}


@pytest.mark.parametrize("histogram_ranges", [1, 3])
def test_weights_of_a_gram_add_up_exactly_in_any_number_of_hash_ranges(histogram_ranges):
    """Spurious grams go to the range in which held ones of the same key are."""
    histogram_of(SENT, drawn(7, 9), histogram_ranges)


def test_batches_in_another_order_give_the_same_sums():
    histogram_of(SENT[::-1], drawn(9, 7))


def test_there_is_at_least_one_hash_range():
    with pytest.raises(ValueError, match="histogram_ranges must be at least 1"):
        WeightedHistogram(histogram_ranges=0)


def test_contributions_without_weights_are_refused():
    """They have not been limited."""
    grams = Contributions(
        length=1, users=np.array([[1, 2]], np.uint64), offsets=np.array([0, 1]), keys=np.array([0])
    )
    with (
        pytest.raises(Exception, match="apply LimitContributions first"),
        beam.Pipeline(runner=FnApiRunner()) as pipeline,
    ):
        _ = pipeline | beam.Create([grams]) | WeightedHistogram()


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
