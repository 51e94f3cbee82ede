"""A pipeline of Beam YAML on a Flink cluster releases the bytes of the program."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable

import pyarrow.json as pj
import pyarrow.parquet as pq
import pytest

from beam_dpne.engines import FLINK_OPTIONS
from tests.conftest import ROOT
from tests.engines.conftest import SAMPLE, release_bytes

pytestmark = [pytest.mark.engines, pytest.mark.flink]
pytest_plugins = ["tests.engines.flink"]
PIPELINE = ROOT / "pipelines" / "yaml" / "parquet.yaml"
BUDGET = {"epsilon": 4, "delta": 1e-6}
MAX_LENGTH = 2  # Each further length would be 27 more tasks of the job.


@pytest.fixture(scope="module")
def titles(tmp_path_factory):
    """The sample as a Parquet file."""
    folder = tmp_path_factory.mktemp("titles")
    (folder / "titles.jsonl").write_bytes(gzip.decompress(SAMPLE.read_bytes()))
    pq.write_table(pj.read_json(folder / "titles.jsonl"), folder / "titles.parquet")
    return folder / "titles.parquet"


@pytest.fixture
def launch_yaml(titles, run_key_file, tmp_path) -> Callable[..., subprocess.CompletedProcess]:
    """Runs the pipeline as a process, with a release in the folder `yaml`."""

    text = PIPELINE.read_text(encoding="utf-8")
    key = '        epsilon: "{{ epsilon }}"\n'
    assert key in text
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(text.replace(key, f"{key}        max_length: {MAX_LENGTH}\n"))

    def run(*options: object) -> subprocess.CompletedProcess:
        variables = {
            **BUDGET,
            "input": str(titles),
            "output": str(tmp_path / "yaml"),
            "run_key_file": str(run_key_file),
        }
        command = [
            *(sys.executable, "-m", "apache_beam.yaml.main", f"--yaml_pipeline_file={pipeline}"),
            f"--jinja_variables={json.dumps(variables)}",
            *map(str, options),
        ]
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        return subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )

    return run


def test_yaml_on_flink_gives_the_bytes_of_the_program(
    cluster, titles, run_key_file, launch, launch_yaml, tmp_path
):
    plan = {**BUDGET, "max_length": MAX_LENGTH}
    privacy = [f"--{name}={value}" for name, value in plan.items()]
    options = ["--input", titles, "--run_key_file", run_key_file, *privacy]
    ended = launch("ngrams", *options, "--output", tmp_path / "program", timeout=300)
    assert ended.status == 0, ended.err
    known = frozenset(cluster.rest.jobs())
    yaml = launch_yaml(*cluster.job_options(parallelism=2), *FLINK_OPTIONS)
    assert yaml.returncode == 0, yaml.stderr
    (job,) = (job for job in cluster.rest.jobs() if job not in known)
    assert cluster.rest.job(job)["state"] == "FINISHED"
    assert release_bytes(tmp_path / "yaml") == release_bytes(tmp_path / "program")


def test_yaml_without_kept_harnesses_is_refused_before_anything_is_sent(launch_yaml):
    where = ["--job_endpoint=localhost:1", "--environment_config=localhost:2"]
    ended = launch_yaml("--runner=PortableRunner", "--environment_type=EXTERNAL", *where)
    assert ended.returncode != 0
    assert "environment_cache_millis must be above 0 with a job server" in ended.stderr
