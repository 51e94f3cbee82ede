"""What a bundle sends when many sums wait, and at its end, is together the sum of its batches."""

import collections

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.pipeline import PipelineVisitor

from beam_dpne import (
    Contributions,
    ReleaseItems,
    RunKey,
    SetUnionPlan,
    WeightedHistogram,
)
from beam_dpne.elements import batches
from beam_dpne.elements.batches import RowSums, SumBundle, sum_rows
from beam_dpne.mechanism.randomness import keyed_hashes
from beam_dpne.ngrams.elements import HistogramShard
from beam_dpne.set_union.elements import ItemSums, UserItems

KEY = RunKey(bytes(32))
BUDGET = {"epsilon": 4.0, "delta": 1e-6}
WORDS = {
    "words": pa.array(["a", "b", "c", "d"]),
    "word_hashes": keyed_hashes(KEY.sub_key("word"), [b"a", b"b", b"c", b"d"]),
}


# Batches of one user with two of four words or n-grams, of which all users have the last.


def one_user(number: int) -> dict[str, np.ndarray]:
    return {"users": np.array([[number, number]], np.uint64), "offsets": np.array([0, 2])}


def held(number: int) -> np.ndarray:
    return np.array([number % 3, 3], np.int32)


def words_of(number: int) -> Contributions:
    return grams_of(number, length=1, **WORDS)


def grams_of(number: int, **others) -> Contributions:
    columns = {"keys": held(number).astype(np.int64), "weights": np.array([1, 10**number])}
    return Contributions(**{"length": 2} | columns | others, **one_user(number))


def items_of(number: int) -> UserItems:
    return UserItems(items=held(number), **one_user(number), **WORDS)


def counts_of(number: int) -> RowSums:
    return RowSums(rows=held(number), sums=np.array([1, 10**number]))


# The transforms that sum them, applied to nothing.


def histogram(pipeline: beam.Pipeline) -> WeightedHistogram:
    return WeightedHistogram(spurious=pipeline | "Spurious" >> beam.Create([]))


def set_union(pipeline: beam.Pipeline) -> ReleaseItems:
    plan = SetUnionPlan(**BUDGET, policy="weighted_gaussian", count_share=0)
    return ReleaseItems(plan=plan, run_key=KEY)


class SumRows(beam.PTransform):
    """The sums of numbered rows, of numbers of users and of n-grams of a public vocabulary."""

    def expand(self, input_or_inputs):
        return sum_rows(input_or_inputs, lambda sums: sums)


def rows(pipeline: beam.Pipeline) -> SumRows:
    return SumRows()


def sum_bundle_of(transform_in) -> SumBundle:
    """The one step of a transform that sums bundles, as it is in the pipeline."""
    found = []

    class Steps(PipelineVisitor):
        def visit_transform(self, transform_node):
            step = transform_node.transform
            if isinstance(step, beam.ParDo) and isinstance(step.fn, SumBundle):
                found.append(step.fn)

    pipeline = beam.Pipeline()
    _ = pipeline | beam.Create([]) | transform_in(pipeline)
    pipeline.visit(Steps())
    (step,) = found
    return step


def total(pieces: list) -> collections.Counter:
    """The sum of each name and column over all pieces."""
    sums = collections.Counter()
    for _, piece in pieces:
        match piece:
            case HistogramShard():
                names = piece.keys if piece.words is None else piece.words
                values = piece.weights
            case ItemSums():
                names, values = piece.words, piece.sums
            case RowSums():
                names, values = piece.rows, piece.sums
        for name, row in zip(names.tolist(), values.reshape(len(names), -1), strict=True):
            sums.update({(name, column): value for column, value in enumerate(row.tolist())})
    return sums


@pytest.mark.parametrize(
    ("transform_in", "batch_of"),
    [
        pytest.param(histogram, words_of, id="words"),
        pytest.param(histogram, grams_of, id="n-grams"),
        pytest.param(set_union, items_of, id="items"),
        pytest.param(rows, counts_of, id="counts"),
    ],
)
def test_sums_that_are_sent_before_the_end_of_a_bundle_are_sent_once(
    transform_in, batch_of, monkeypatch
):
    step = sum_bundle_of(transform_in)

    def sent():
        step.start_bundle()
        early = [piece for number in range(5) for piece in step.process(batch_of(number))]
        return early, [windowed.value for windowed in step.finish_bundle()]

    none, whole = sent()
    monkeypatch.setattr(batches, "MAX_WAITING", 2)
    early, late = sent()
    assert not none
    assert early
    assert late
    assert total(early + late) == total(whole)
