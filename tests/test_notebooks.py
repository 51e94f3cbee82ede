"""Notebooks show released rows and sets: Beam's interactive runner collects them."""

import apache_beam as beam
import pytest
from apache_beam.runners.interactive import interactive_beam as ib
from apache_beam.runners.interactive.interactive_runner import InteractiveRunner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import PrivateSetUnion, SetUnionPlan

PLAN = SetUnionPlan(epsilon=10, delta=1e-4, policy="weighted_gaussian")


@pytest.fixture
def union():
    pipeline = beam.Pipeline(InteractiveRunner(underlying_runner=FnApiRunner()))
    items = pipeline | beam.Create([(f"user {i}", ["tea", "rye"]) for i in range(200)])
    result = items | PrivateSetUnion(plan=PLAN)
    ib.watch({"rows": result.rows, "released": result.released})
    yield result
    ib.evict_recorded_data(pipeline)


def test_rows_and_sets_are_collected_and_shown(union):
    rows = ib.collect(union.rows)
    assert list(rows.columns) == ["item", "score", "users", "users_low", "users_high"]
    assert sorted(rows["item"]) == ["rye", "tea"]
    (released,) = ib.collect(union.released, raw_records=True)
    assert sorted(released.items.to_pylist()) == ["rye", "tea"]
    ib.show(union.rows)
    ib.show(union.released)
