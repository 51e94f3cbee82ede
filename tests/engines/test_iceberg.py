"""The recipe for Iceberg, run for real: tables in a folder, through Beam's Java transforms.

Beam fetches its own expansion service, which is one large jar; here one is started from its parts.
"""

import contextlib
import inspect
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import NamedTuple

import apache_beam as beam
import pyarrow.parquet as pq
import pytest
import yaml
from apache_beam import managed
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.yaml import yaml_io

from deploy.downloads import iceberg_jars, require
from pipelines.tables import iceberg
from tests.conftest import ROOT

pytestmark = [pytest.mark.engines, pytest.mark.iceberg]
SERVICE = "sdks:java:io:expansion-service:shadowJar"
BUDGET = ("--epsilon", "4", "--delta", "1e-6", "--max_length", "2")
_START_SECONDS = 60
_RUN_SECONDS = 300


class Message(NamedTuple):
    """A row of the private table."""

    sent: int
    customer: str
    message: str


beam.coders.registry.register_coder(Message, beam.coders.RowCoder)


@contextlib.contextmanager
def service(folder: pathlib.Path) -> Iterator[str]:
    """The address of an expansion service, whose process runs the Java steps too.

    It serves one job: the Java steps of a second one never start, and the job waits for ever.
    """
    java = require("java", "install openjdk-17-jre-headless")
    with contextlib.closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    classes = os.pathsep.join(map(str, iceberg_jars()))
    main = "org.apache.beam.sdk.expansion.service.ExpansionService"
    command = [java, "-cp", classes, main, str(port), "--alsoStartLoopbackWorker"]
    log = folder / "service.log"
    with log.open("w") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            wait_for(port, process, log)
            yield f"localhost:{port}"
        finally:
            process.terminate()


def wait_for(port: int, process: subprocess.Popen, log: pathlib.Path) -> None:
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)
    pytest.fail(f"The expansion service did not start:\n{log.read_text()[-3000:]}")


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory) -> pathlib.Path:
    """A folder of tables, with a private one."""
    folder = tmp_path_factory.mktemp("warehouse")
    options = types.SimpleNamespace(warehouse=folder.as_uri())
    rows = [Message(i, f"c{i % 300}", "See you soon!") for i in range(600)]
    with (
        service(tmp_path_factory.mktemp("service")) as address,
        beam.Pipeline(runner=FnApiRunner()) as pipeline,
    ):
        messages = pipeline | beam.Create(rows).with_output_types(Message)
        config = iceberg.table("private.messages", options)
        _ = messages | managed.Write(managed.ICEBERG, config, expansion_service=address)
    return folder


@pytest.fixture
def release(warehouse, tmp_path) -> Callable[..., subprocess.CompletedProcess]:
    """Runs the recipe as a person would, beside a service that runs already."""

    def run(*arguments: str) -> subprocess.CompletedProcess:
        given = ["--warehouse", warehouse.as_uri(), "--input", "private.messages", *BUDGET]
        with service(tmp_path) as address:
            services = json.dumps({SERVICE: address})
            given += ["--text_field", "message", "--beam_services", services, *arguments]
            return subprocess.run(
                [sys.executable, "-m", "pipelines.tables.iceberg", *given],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
                timeout=_RUN_SECONDS,
            )

    return run


def rows_of(table: pathlib.Path) -> list[dict]:
    files = (table / "data").glob("**/*.parquet")
    return [row for path in files for row in pq.read_table(path).to_pylist()]


def test_a_table_is_released_to_a_table_with_its_ledger(release, warehouse):
    ended = release("--output", "public.ngrams", "--user_field", "customer")
    assert ended.returncode == 0, ended.stderr[-3000:]
    rows = rows_of(warehouse / "public" / "ngrams")
    ((ledger),) = [row["ledger"] for row in rows_of(warehouse / "public" / "ngrams_ledger")]
    assert {row["ngram"] for row in rows} == {"see", "you", "soon", "see you", "you soon"}
    assert json.loads(ledger)["rows"]["count"] == len(rows)
    assert json.loads(ledger)["guarantee"]["user"] == (
        'each value of the field "customer" is one user'
    )


def test_the_pages_yaml_has_the_names_of_beams_transforms():
    text = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (step,) = yaml.safe_load(block)
    assert step["type"] == "ReadFromIceberg"
    inspect.signature(yaml_io.read_from_iceberg).bind(**step["config"])
    written = {name: value for name, value in step["config"].items() if name != "keep"}
    inspect.signature(yaml_io.write_to_iceberg).bind(**written)


def test_a_missing_field_is_refused_before_anything_runs(release, warehouse):
    ended = release("--output", "public.none", "--user_field", "user_id")
    assert ended.returncode != 0
    assert "user_id" in ended.stderr
    assert not (warehouse / "public" / "none").exists()
