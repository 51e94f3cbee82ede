"""LimitContributions: at most Δ n-grams of each user have weight, 1/√n each."""

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that

from beam_dpne import Contributions, LimitContributions, RunKey
from beam_dpne.ngrams.contributions import limit_contributions

KEY = RunKey(bytes(range(32)))
UNITS = 2**32
# Users with 1, 4 and 9 distinct bigrams.
SIZES = (1, 4, 9)
GRAMS = Contributions(
    length=2,
    users=np.array([[1, 2], [3, 4], [5, 6]], np.uint64),
    offsets=np.array([0, 1, 5, 14]),
    keys=np.concatenate([np.arange(size) for size in SIZES]),
)


def limited(grams, check, **parameters):
    """Applies the transform to batches, and a check to what comes out."""
    limit = LimitContributions(
        **({"length": 2, "max_contributions": 4, "run_key": KEY} | parameters)
    )
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        assert_that(pipeline | beam.Create(grams) | limit, check)


def test_each_user_keeps_at_most_max_contributions_with_weight_and_no_gram_is_dropped():
    """A gram beyond the limit stays at weight 0, so that it is never counted among the spurious."""

    def check(found):
        (contributions,) = found
        assert contributions.keys.tolist() == GRAMS.keys.tolist()
        assert contributions.offsets.tolist() == GRAMS.offsets.tolist()
        per_user = np.split(contributions.weights, GRAMS.offsets[1:-1])
        assert [np.count_nonzero(weights) for weights in per_user] == [1, 4, 4]

    limited([GRAMS], check)


def test_weights_are_one_over_the_root_of_their_number_and_their_squares_add_up_to_at_most_1():
    def check(found):
        (contributions,) = found
        for size, weights in zip(
            SIZES, np.split(contributions.weights, GRAMS.offsets[1:-1]), strict=True
        ):
            kept = weights[weights > 0].tolist()
            assert kept == [UNITS // round(min(size, 4) ** 0.5)] * min(size, 4)
            assert sum(weight**2 for weight in kept) <= UNITS**2

    limited([GRAMS], check)


def test_the_subset_follows_the_key_and_the_user_and_not_the_batch():
    alone = Contributions(
        length=2, users=GRAMS.users[2:], offsets=np.array([0, 9]), keys=GRAMS.keys[5:]
    )
    subsets = []

    for grams, key in ((GRAMS, KEY), (alone, KEY), (GRAMS, RunKey(bytes(32)))):
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            limit = LimitContributions(length=2, max_contributions=4, run_key=key)
            kept = pipeline | beam.Create([grams]) | limit

            def check(found, key=key, grams=grams):
                (contributions,) = found
                again = limit_again(grams, key)
                assert contributions.weights.tolist() == again.weights.tolist()

            assert_that(kept, check)
        subsets.append(tuple(limit_again(grams, key).weights[-9:].tolist()))
    assert subsets[0] == subsets[1]
    assert subsets[0] != subsets[2]


def limit_again(grams, key):
    """The kernel of the transform."""
    return limit_contributions(grams, max_contributions=4, sub_key=key.sub_key("subset", 2))


def test_parameters_and_lengths_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="max_contributions must be at least 1, got 0"):
        LimitContributions(length=2, max_contributions=0, run_key=KEY)
    with pytest.raises(Exception, match=r"LimitContributions\(length=3\) got grams of 2 words"):
        limited([GRAMS], lambda found: None, length=3)
