"""A pipeline of a user of the library: `python -m tests.engines.library_pipeline OUTPUT OPTION …`."""

import sys

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from beam_dpne import NgramsPlan, PrivateNgrams, RunKey, engines

if __name__ == "__main__":
    plan = NgramsPlan(epsilon=10, delta=1e-4, max_length=2, max_contributions=2)
    with engines.pipeline(PipelineOptions(sys.argv[2:])) as pipeline:
        documents = pipeline | beam.Create([(f"u{i}", "Good morning") for i in range(200)])
        result = documents | PrivateNgrams(plan=plan, run_key=RunKey(bytes(32)))
        _ = result.rows | beam.Map(str) | beam.io.WriteToText(sys.argv[1], shard_name_template="")
