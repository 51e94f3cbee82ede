"""N-gram probabilities by every mode in one pipeline: what each mode's own steps do is in it."""

import pathlib

import apache_beam as beam
import pyarrow as pa

from beam_dpne import (
    BayesianCounts,
    BayesianPlan,
    NgramProbabilities,
    PaperBayesianCounts,
    PaperBayesianPlan,
    RunKey,
)
from beam_dpne.bayesian.plan import MODES, SENSITIVITIES
from beam_dpne.bayesian.public_counts import count_text
from beam_dpne.elements.side_inputs import SetStore
from tests.faults import conftest

_KEY = RunKey.from_hex("b6" * 32)


PLANS = {
    mode: BayesianPlan(epsilon=2, delta=1e-4, length=1, mode=mode, max_contributions=5)
    for mode in MODES
}
PAPER_PLANS = {
    sensitivity: PaperBayesianPlan(
        epsilon=2,
        delta=1e-4,
        sensitivity=sensitivity,
        length=1,
        max_contributions=5,
        decays=(0.01, 0.1),
        public_weights=(0.3, 0.7),
    )
    for sensitivity in SENSITIVITIES
}


class Probabilities:
    """`BayesianCounts` under each mode, and the paper's, with public counts that travel as a file."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder

    def release(self, runner: beam.runners.PipelineRunner, name: str) -> dict[str, list[bytes]]:
        """The outputs of each mode: lines with n-grams and probabilities, and noisy values, sorted."""
        rows = conftest.rows(300, 9)
        pairs = [(record["user"], record["text"]) for record in rows]
        others = [record["text"] for record in conftest.rows(300, 8)]
        shared = {
            "public": count_text([pa.array(others)], length=1),
            "partitions": 5,
            "run_key": _KEY,
            "store": SetStore(folder=str(self._folder / "sets"), limit=1),
        }
        with beam.Pipeline(runner=runner) as pipeline:
            documents = pipeline | beam.Create(pairs)
            for mode, plan in PLANS.items():
                counted = documents | mode >> BayesianCounts(plan=plan, **shared)
                lines = (
                    counted.released | f"{mode}/Lines" >> beam.FlatMap(_lines_of),
                    counted.noisy | f"{mode}/Values" >> beam.Map(_line_of_values),
                )
                together = lines | f"{mode}/All" >> beam.Flatten()
                _ = together | f"{mode}/Write" >> self._write(name, mode)
            for mode, plan in PAPER_PLANS.items():
                found = documents | mode >> PaperBayesianCounts(plan=plan, **shared)
                written = found | f"{mode}/Lines" >> beam.FlatMap(_lines_of)
                _ = written | f"{mode}/Write" >> self._write(name, mode)
        return {
            mode: sorted(self._path(name, mode).read_bytes().splitlines())
            for mode in (*PLANS, *PAPER_PLANS)
        }

    def _path(self, name: str, mode: str) -> pathlib.Path:
        return self._folder / f"{name} {mode}"

    def _write(self, name: str, mode: str) -> beam.PTransform:
        path = str(self._path(name, mode))
        return beam.io.WriteToText(path, num_shards=1, shard_name_template="")


def _lines_of(found: NgramProbabilities) -> list[str]:
    pairs = zip(found.ngrams.to_pylist(), found.probabilities.tolist(), strict=True)
    return [f"{ngram} {probability!r}" for ngram, probability in pairs]


def _line_of_values(part) -> str:
    return f"{part.start} {part.values.tolist()}"
