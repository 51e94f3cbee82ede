"""Pipelines of the library on engines: refused where they would hang, watched, cancelled."""

import pathlib
import socket
import time

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.portable_runner import PortableRunner

from beam_dpne import (
    BayesianCounts,
    NgramsPlan,
    PrivateNgrams,
    PrivateSetUnion,
    ProbabilitiesPlan,
    PublicCounts,
    SetUnionPlan,
    __version__,
    engines,
)
from beam_dpne.errors import EngineError

PLAN = NgramsPlan(epsilon=10, delta=1e-4, max_length=2, max_contributions=2, spurious_fraction=1e-9)
# Beam's own job server, in this process; it has what an engine's has for a launcher.
EMBED = ("--job_endpoint=embed", "--environment_type=LOOPBACK")
DOCUMENTS = [(f"u{i}", "Good morning") for i in range(200)]


def pipeline_of(*options: str, runner: str | beam.runners.PipelineRunner) -> beam.Pipeline:
    return beam.Pipeline(runner=runner, options=PipelineOptions(list(options)))


def write_ngrams(pipeline: beam.Pipeline, path: pathlib.Path) -> None:
    result = pipeline | beam.Create(DOCUMENTS) | PrivateNgrams(plan=PLAN)
    ngrams = result.rows | beam.Map(lambda row: row.ngram)
    _ = ngrams | beam.io.WriteToText(str(path), shard_name_template="")


TRANSFORMS = [
    PrivateNgrams(plan=PLAN),
    PrivateSetUnion(plan=SetUnionPlan(epsilon=10, delta=1e-4)),
    BayesianCounts(
        plan=ProbabilitiesPlan(epsilon=10, delta=1e-4),
        public=PublicCounts.of([("good", "morning", "all")], [3]),
    ),
]


@pytest.mark.parametrize("runner", ["PortableRunner", "FlinkRunner"])
@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda transform: type(transform).__name__)
def test_harnesses_that_end_with_each_step_are_refused_with_the_options_to_give(transform, runner):
    pipeline = pipeline_of("--job_endpoint=localhost:1", runner=runner)
    documents = pipeline | beam.Create([("user", "text")])
    with pytest.raises(ValueError, match="environment_cache_millis must be above 0") as raised:
        _ = documents | transform
    assert all(option in str(raised.value) for option in engines.FLINK_OPTIONS)
    kept = pipeline_of("--job_endpoint=localhost:1", *engines.FLINK_OPTIONS, runner=runner)
    _ = kept | beam.Create([("user", "text")]) | transform


def test_workers_that_do_not_answer_end_the_run_with_advice(tmp_path):
    with socket.create_server(("localhost", 0)) as silent:
        workers = f"localhost:{silent.getsockname()[1]}"
        external = ("--environment_type=EXTERNAL", f"--environment_config={workers}")
        pipeline = pipeline_of(EMBED[0], *external, *engines.FLINK_OPTIONS, runner="PortableRunner")
        write_ngrams(pipeline, tmp_path / "out")
        begin = time.monotonic()
        with pytest.raises(EngineError, match="no worker did a first step") as raised:
            engines.run(pipeline, harness_timeout=2)
    assert time.monotonic() - begin < 30
    assert f"environment_config={workers}" in str(raised.value)
    assert "--flink_master" in str(raised.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("runner", "jar"),
    [("FlinkRunner", "flink_job_server_jar"), ("SparkRunner", "spark_job_server_jar")],
)
def test_an_engine_that_cannot_be_started_is_told_with_the_remedy(tmp_path, runner, jar):
    """No data have been sent then, so that the reason may be told."""
    (tmp_path / "server.jar").touch()
    server = (f"--{jar}={tmp_path}/server.jar", "--job_server_java_launcher=/no/such/java")
    pipeline = pipeline_of(*server, *engines.FLINK_OPTIONS, runner=runner)
    write_ngrams(pipeline, tmp_path / "out")
    with pytest.raises(EngineError, match="/no/such/java") as raised:
        engines.run(pipeline)
    assert "Install Java" in str(raised.value)
    assert f"--{jar} FILE" in str(raised.value)


def test_workers_of_another_version_are_refused_before_the_pipeline_is_sent(tmp_path, monkeypatch):
    class Upgrading(PortableRunner):
        """The launcher has another version until it sends a job, and the worker the true one."""

        def run_pipeline(self, pipeline, options):
            monkeypatch.setattr(engines, "__version__", __version__)
            return super().run_pipeline(pipeline, options)

    monkeypatch.setattr(engines, "__version__", "0.0.0")
    pipeline = pipeline_of(*EMBED, *engines.FLINK_OPTIONS, runner=Upgrading())
    write_ngrams(pipeline, tmp_path / "out")
    with pytest.raises(EngineError, match="the workers failed in a first step") as raised:
        engines.run(pipeline, harness_timeout=60)
    assert "must have the launcher's versions of apache-beam and beam_dpne" in str(raised.value)
    assert f"and 0.0.0, got {beam.__version__} and {__version__}" in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_threads_of_beams_own_runner_are_refused():
    pipeline = pipeline_of("--direct_running_mode=multi_threading", runner=FnApiRunner())
    _ = pipeline | beam.Create([1])
    with pytest.raises(ValueError, match="must be 'in_memory' or 'multi_processing'"):
        engines.run(pipeline)


def test_a_block_builds_a_pipeline_which_is_run_at_its_end(tmp_path):
    options = PipelineOptions([*EMBED, *engines.FLINK_OPTIONS])
    with engines.pipeline(options, runner="PortableRunner", harness_timeout=60) as pipeline:
        write_ngrams(pipeline, tmp_path / "out")
        assert not (tmp_path / "out").exists()
    assert pipeline.result.state == "DONE"
    lines = (tmp_path / "out").read_text().splitlines()
    assert sorted(lines) == ["good", "good morning", "morning"]


def test_a_block_that_raises_an_error_runs_nothing(tmp_path):
    def build_half() -> None:
        with engines.pipeline(PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
            write_ngrams(pipeline, tmp_path / "out")
            raise KeyError("of the block")

    with pytest.raises(KeyError, match="of the block"):
        build_half()
    assert list(tmp_path.iterdir()) == []


def test_a_block_does_not_begin_with_options_that_would_hang():
    begun = False
    options = PipelineOptions(["--job_endpoint=localhost:1"])
    with (
        pytest.raises(ValueError, match="environment_cache_millis must be above 0"),
        engines.pipeline(options, runner="PortableRunner"),
    ):
        begun = True
    assert not begun
