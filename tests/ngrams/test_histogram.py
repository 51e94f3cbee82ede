"""WeightedHistogram: exact sums over users, which do not depend on batches or hash ranges."""

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import Contributions, WeightedHistogram


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
