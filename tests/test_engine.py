"""Pipelines of the library on engines: refused where they would hang, watched, cancelled."""

import http.server
import json
import pathlib
import re
import socket
import threading
import time

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.local_job_service import BeamJob, LocalJobServicer
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
from beam_dpne.errors import EngineError, RunError, UsageError
from beam_dpne.jobs.engine import check_published

LOST = (
    "org.apache.beam.vendor.grpc.v1p60p1.io.grpc.StatusRuntimeException: CANCELLED: call already "
    "cancelled. Use ServerCallStreamObserver.setOnCancelHandler() to disable this exception"
)
FEW_BUFFERS = (
    "java.io.IOException: Insufficient number of network buffers: required 512, but only 3 available. "
    "The total number of network buffers is currently set to 2048 of 32768 bytes each."
)
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


@pytest.fixture
def proxy():
    """The address of a proxy that answers for a Flink that is not there."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>Please sign in.</html>")

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("localhost", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"localhost:{server.server_port}"
        server.shutdown()


def test_workers_that_do_not_answer_end_the_run_with_advice(tmp_path, proxy):
    with socket.create_server(("localhost", 0)) as silent:
        workers = f"localhost:{silent.getsockname()[1]}"
        external = (
            "--environment_type=EXTERNAL",
            f"--environment_config={workers}",
            f"--flink_master={proxy}",
        )
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
    with pytest.raises(UsageError, match="must be 'in_memory' or 'multi_processing'"):
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


class FailingServer:
    """Beam's own job server behind a port; some of its jobs fail as those at Flink do.

    Attributes:
      jobs: the ids of the jobs that it has run, a first step of workers first.
      meanwhile: what happens before a job fails.
    """

    def __init__(self, *failures: str, after_the_job: bool = False, meanwhile=lambda: None):
        self.jobs: list[str] = []
        waiting = ["", *failures]
        jobs = self.jobs

        class Job(BeamJob):
            def _invoke_runner(self):
                jobs.append(self._job_id)
                failure = waiting.pop(0) if waiting else ""
                result = None if failure and not after_the_job else super()._invoke_runner()
                if failure:
                    meanwhile()
                    raise RuntimeError(failure)
                return result

        self._server = LocalJobServicer(beam_job_type=Job)

    def __enter__(self) -> tuple[str, ...]:
        port = self._server.start_grpc_server()
        endpoint = ("--job_endpoint", f"localhost:{port}")
        return ("--runner", "PortableRunner", *endpoint, "--environment_type", "LOOPBACK")

    def __exit__(self, *_: object) -> None:
        self._server.stop()


@pytest.fixture
def release(program, tmp_path):
    """Makes a release under one key and one budget, here or on an engine; returns how it ended."""
    (tmp_path / "notes.jsonl").write_text(
        "".join(f'{{"user": "{user}", "text": "{text}"}}\n' for user, text in DOCUMENTS)
    )
    (tmp_path / "run.key").write_text("5eed" * 16)
    (tmp_path / "run.key").chmod(0o600)
    privacy = ("--epsilon", 10, "--delta", 1e-4)
    folder = ("--budget", tmp_path / "budget")
    made = program.run(
        "account", *folder, "--create", "--population", "users", *privacy, timeout=600
    )
    assert made.status == 0, made.err
    plan = (*privacy, "--max_length", 2, "--strategy", "one_round")
    given = ("--input", tmp_path / "notes.jsonl", "--run_key_file", tmp_path / "run.key")

    def run(name: str, *options: object):
        output = ("--output", tmp_path / name)
        return program.run("ngrams", *given, *plan, *output, *options, timeout=600)

    return run


def files(folder: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_job_that_lost_a_worker_is_sent_once_more_and_its_budget_is_noted_once(
    release, program, tmp_path
):
    """Even if the job had published. Airflow's operators of Beam find jobs by the lines on stderr."""
    budget = ("--budget", tmp_path / "budget")
    server = FailingServer(LOST, after_the_job=True)
    with server as options:
        ended = release("there", *budget, *options, "--quiet")
    assert ended.status == 0, ended.err
    assert ended.err.count("The engine has lost a worker") == 1
    # A first step of the workers, the job that fails, and the one that is sent once more.
    _, *sent = server.jobs
    assert re.findall(r"(?m)^Created job with id: \[(.+)\]$", ended.err) == sent
    assert len(sent) == 2
    assert release("here").status == 0
    assert files(tmp_path / "there") == files(tmp_path / "here")
    said = json.loads(program.run("account", *budget, "--json", timeout=600).out)
    assert [run["state"] for run in said["runs"]] == ["released"]
    assert said["total"]["sum_epsilon"] == 10


def test_a_job_that_loses_a_worker_twice_fails(release, tmp_path):
    server = FailingServer(LOST, LOST)
    with server as options:
        ended = release("there", *options)
    assert ended.status == 1
    assert len(server.jobs) == 3
    assert not (tmp_path / "there").exists()


def test_a_job_whose_input_has_changed_is_not_sent_again(release, tmp_path):
    """Its noise would be that of the first one, of which somebody may have seen files."""

    def meanwhile():
        with (tmp_path / "notes.jsonl").open("a") as file:
            file.write('{"user": "late", "text": "Good morning"}\n')

    server = FailingServer(LOST, meanwhile=meanwhile)
    with server as options:
        ended = release("there", *options, "--overwrite")
    assert ended.status == 1
    assert len(server.jobs) == 2
    assert not (tmp_path / "there").exists()


def test_another_failure_is_no_reason_to_send_a_job_again(release, tmp_path):
    server = FailingServer("java.io.IOException: No space left on device")
    with server as options:
        ended = release("there", *options)
    assert ended.status == 1
    assert "its message is withheld" in ended.err
    assert len(server.jobs) == 2


def test_too_few_network_buffers_are_told_with_the_settings_that_have_more(release):
    server = FailingServer(FEW_BUFFERS)
    with server as options:
        ended = release("there", *options)
    assert ended.status == 1
    assert "a task needed 512, and 3 of 2048 were left (64 MiB)" in ended.err
    assert "taskmanager.memory.network.min and .max to 128m or more" in ended.err
    assert "taskmanager.network.sort-shuffle.min-buffers to 64" in ended.err
    assert len(server.jobs) == 2


def test_a_release_that_the_launcher_does_not_have_is_told_and_one_that_comes_late_is_awaited(
    tmp_path,
):
    """A worker on another machine has published in a directory of the same name, or on a slow disk."""
    with pytest.raises(RunError, match="that launcher and workers share") as raised:
        check_published(str(tmp_path), seconds=0.2)
    assert f"`output={tmp_path}`" in str(raised.value)
    late = threading.Timer(0.5, (tmp_path / "ledger.json").touch)
    late.start()
    check_published(str(tmp_path), seconds=60)
    late.join()
    check_published("gs://bucket/release", seconds=0)


def test_a_ledger_that_was_there_before_is_not_that_of_the_job(tmp_path):
    """As with --overwrite in a directory that launcher and workers do not share."""
    ledger = tmp_path / "ledger.json"
    ledger.write_text("older")
    with pytest.raises(RunError, match="the ledger here is an older one"):
        check_published(str(tmp_path), b"older", seconds=0.2)
    late = threading.Timer(0.5, ledger.write_text, ["newer"])
    late.start()
    check_published(str(tmp_path), b"older", seconds=60)
    late.join()


def test_a_release_that_is_repeated_in_its_directory_is_there(release):
    """Under one key it has the same ledger, for which nobody waits."""
    for options in ((), ("--overwrite", "--runner", "DirectRunner")):
        ended = release("repeated", *options)
        assert ended.status == 0, ended.err
