"""A pipeline of a user of the library: `python -m tests.engines.library_pipeline WAY OUTPUT OPTION …`.

WAY is `run` for `engines.run(pipeline)`, or `with` for a block with `engines.pipeline(options)`.
"""

import sys
from collections.abc import Sequence

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from beam_dpne import DecodeGrams, PrivacyPlan, PrivateNgrams, RunKey, engines


def run(way: str, output: str, arguments: Sequence[str]) -> None:
    """Writes the n-grams of 200 users to one file."""
    options = PipelineOptions(list(arguments))
    if way == "with":
        with engines.pipeline(options) as pipeline:
            build(pipeline, output)
    else:
        pipeline = beam.Pipeline(options=options)
        build(pipeline, output)
        engines.run(pipeline)


def build(pipeline: beam.Pipeline, output: str) -> None:
    """Adds all steps to a pipeline."""
    plan = PrivacyPlan(epsilon=10, delta=1e-4, max_length=2, max_contributions=2)
    documents = pipeline | beam.Create([(f"u{i}", "Good morning") for i in range(200)])
    result = documents | PrivateNgrams(plan=plan, run_key=RunKey(bytes(32)))
    lines = result.released | DecodeGrams() | beam.FlatMap(as_lines)
    _ = lines | beam.io.WriteToText(output, shard_name_template="")


def as_lines(rows) -> list[str]:
    """Returns released rows as text."""
    return [str(row) for row in rows.to_pylist()]


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], sys.argv[3:])
