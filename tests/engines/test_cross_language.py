"""Pipelines of other languages: transforms by name, expanded and run by Beam's expansion service."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import apache_beam as beam
import grpc
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.external import ExternalTransform, ImplicitSchemaPayloadBuilder

from beam_dpne import NgramsPlan, PrivateNgrams, read_release
from beam_dpne.mechanism.randomness import RunKey
from tests.conftest import ROOT
from tests.engines.flink import free_ports

pytestmark = [pytest.mark.engines, pytest.mark.cross_language]

BY_NAME = "beam:transforms:python:fully_qualified_named"
CONFIG = {
    "user_field": "customer",
    "text_field": "message",
    "epsilon": 10.0,
    "delta": 1e-4,
    "max_length": 2,
}
NAMES = "beam_dpne.yaml"
JAVA = ROOT / "pipelines" / "java"


class Message(NamedTuple):
    """A row as a pipeline of another language would send it."""

    customer: str
    message: str


beam.coders.registry.register_coder(Message, beam.coders.RowCoder)
MESSAGES = [Message(f"customer {number}", "Good morning") for number in range(200)]


@contextlib.contextmanager
def started(module: str, log: pathlib.Path, *options: str) -> Iterator[str]:
    """Starts a server as a process, and returns its address."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", *module.split(), f"--port={port}"]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    with (
        log.open("wb") as file,
        subprocess.Popen(
            [*command, *options],
            env={**os.environ, "PYTHONPATH": paths},
            stdout=file,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            with grpc.insecure_channel(f"localhost:{port}") as channel:
                grpc.channel_ready_future(channel).result(timeout=60)
            yield f"localhost:{port}"
        finally:
            process.terminate()


class Service(NamedTuple):
    """An expansion service that runs."""

    address: str
    log: pathlib.Path

    def transform(self, name: str, config: Mapping[str, Any]) -> ExternalTransform:
        """Returns the transform as a pipeline of another language asks for it."""
        payload = ImplicitSchemaPayloadBuilder({"constructor": name, "kwargs": beam.Row(**config)})
        return ExternalTransform(BY_NAME, payload, self.address)


@pytest.fixture(scope="module")
def service(tmp_path_factory) -> Iterator[Service]:
    """Beam's service as the page starts it."""
    log = tmp_path_factory.mktemp("service") / "service.log"
    module = "apache_beam.runners.portability.expansion_service_main"
    options = (f"--fully_qualified_name_glob={NAMES}.*", "--serve_loopback_worker")
    with started(module, log, *options) as address:
        yield Service(address, log)


@pytest.fixture(scope="module")
def direct(run_key_file, tmp_path_factory) -> list[str]:
    """The rows of the same release without a service, as lines."""
    target = tmp_path_factory.mktemp("direct") / "rows"
    plan = NgramsPlan(epsilon=10, delta=1e-4, max_length=2)
    key = RunKey.from_hex(run_key_file.read_text())
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        result = (
            pipeline
            | beam.Create(MESSAGES).with_output_types(Message)
            | PrivateNgrams(plan=plan, run_key=key, user_field="customer", text_field="message")
        )
        write(result.rows | beam.Map(as_line), target)
    lines = sorted(target.read_text().splitlines())
    assert {line.split("\t")[0] for line in lines} >= {"good", "morning", "good morning"}
    return lines


def write(lines: beam.PCollection, target: pathlib.Path) -> None:
    write_lines = beam.io.WriteToText(str(target), shard_name_template="")
    _ = lines | f"Write {target.name}" >> write_lines


def as_line(row: Any) -> str:
    return f"{row.ngram}\t{row.score!r}"


def test_transforms_by_name_release_the_rows_of_the_library(
    service, direct, run_key_file, tmp_path
):
    config = {**CONFIG, "run_key_file": str(run_key_file)}
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        messages = pipeline | beam.Create(MESSAGES).with_output_types(Message)
        result = messages | "Release" >> service.transform(f"{NAMES}.PrivateNgrams", config)
        write(result["rows"] | "Rows" >> beam.Map(as_line), tmp_path / "rows")
        output = {"output": str(tmp_path / "release")}
        _ = result | "Write" >> service.transform(f"{NAMES}.WriteRelease", output)
    assert sorted((tmp_path / "rows").read_text().splitlines()) == direct
    released = read_release(str(tmp_path / "release")).table()
    assert sorted(as_line(SimpleNamespace(**row)) for row in released.to_pylist()) == direct


def refused(service: Service, name: str, config: Mapping[str, Any]) -> str:
    """Returns the error of a transform that is refused when the pipeline is built."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    messages = pipeline | beam.Create(MESSAGES).with_output_types(Message)
    with pytest.raises(RuntimeError) as error:
        _ = messages | service.transform(name, config)
    return str(error.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epsilon": -1.0}, "`epsilon` must be"),
        ({"epsilom": 1.0}, "PrivateNgrams has no key epsilom. Did you mean epsilon?"),
        ({"text_field": "body"}, "`text_field` must name a field of the documents"),
    ],
)
def test_wrong_configuration_is_answered_in_our_words_before_anything_runs(service, changes, said):
    text = refused(service, f"{NAMES}.PrivateNgrams", {**CONFIG, **changes})
    _, _, last = text.strip().splitlines()[-1].partition(": ")
    assert last.startswith(said)


@pytest.mark.slow
def test_the_java_pipeline_prints_the_rows_of_the_library(service, direct, run_key_file, tmp_path):
    """On Beam's own job service in Python, with Java's workers in the Java program."""
    project = shutil.copytree(JAVA, tmp_path / "java")
    build = ["mvn", "-q", "-B", "compile", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
    subprocess.run(build, cwd=project, check=True, capture_output=True)
    (port,) = free_ports(1)
    with started(
        "apache_beam.runners.portability.local_job_service_main", tmp_path / "jobs.log"
    ) as jobs:
        ended = subprocess.run(
            [
                *("java", "-cp", "target/classes:lib/*", "example.PrivateNgrams"),
                *(f"--service={service.address}", f"--runKeyFile={run_key_file}"),
                *("--runner=PortableRunner", f"--jobEndpoint={jobs}"),
                *(
                    "--defaultEnvironmentType=LOOPBACK",
                    f"--defaultEnvironmentConfig=localhost:{port}",
                ),
            ],
            cwd=project,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()) == direct
