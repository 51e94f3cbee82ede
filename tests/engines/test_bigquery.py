"""The recipe for BigQuery, as far as the job that Dataflow would get tells: no table is reached."""

import os
import subprocess
import sys

import pytest
from apache_beam.portability.api import beam_runner_api_pb2 as api

from tests.conftest import ROOT
from tests.engines.staged import Staged, read_back, unpacked

pytestmark = [pytest.mark.engines, pytest.mark.dataflow]
pytest_plugins = ["tests.engines.storage"]

JOB_NAME = "messages-of-a-month"
PRIVATE, PUBLIC = "lab-project:private.messages", "lab-project:public.ngrams"


@pytest.fixture(scope="module")
def job(emulator) -> Staged:
    """The job of a release from one table to another, staged as a template and not submitted."""
    from tests.engines.storage import Bucket

    bucket = Bucket()
    arguments = [
        *("--input", PRIVATE, "--output", PUBLIC, "--epsilon", "4", "--delta", "1e-6"),
        *("--max_length", "2", "--user_field", "customer", "--text_field", "message"),
        *("--runner", "DataflowRunner", "--project", "lab-project", "--region", "us-central1"),
        *("--staging_location", bucket.path("stage"), "--temp_location", bucket.path("temp")),
        *("--template_location", bucket.path("job.json"), "--job_name", JOB_NAME),
    ]
    ended = subprocess.run(
        [sys.executable, "-m", "pipelines.tables.bigquery", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]])},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    return read_back(bucket, "stage", "job.json", JOB_NAME)


def names(job: Staged) -> list[str]:
    return [transform.unique_name for transform in job.graph.components.transforms.values()]


def test_bigquery_makes_no_copy_of_the_private_table(job):
    """A read by export or by query would write the texts to the bucket or to another table."""
    assert [name for name in names(job) if "Export" in name or "FilesToRemove" in name] == []
    everything = unpacked(job.everything())
    assert b"_CustomBigQueryStorageSource" in everything
    assert b"customer" in everything
    assert b"message" in everything


def test_the_tables_must_be_empty(job):
    for name in ("Rows", "Ledger"):
        label = f"{name}/BigQueryBatchFileLoads/TriggerLoadJobsWithoutTempTables"
        shown = {
            payload.key: payload.string_value
            for transform in job.graph.components.transforms.values()
            if transform.unique_name.startswith(label)
            for data in transform.display_data
            for payload in [api.LabelledPayload.FromString(data.payload)]
        }
        assert shown["write_disposition"] == "WRITE_EMPTY"


def test_the_ledger_is_loaded_after_the_rows(job):
    transforms = job.graph.components.transforms.values()
    made_by = {
        output: transform
        for transform in transforms
        if not transform.subtransforms
        for output in transform.outputs.values()
    }
    pending = [
        transform.inputs[key]
        for transform in transforms
        if "WaitOn/Map" in transform.unique_name and not transform.subtransforms
        for key in api.ParDoPayload.FromString(transform.spec.payload).side_inputs
    ]
    assert pending
    above = set()
    while pending:
        transform = made_by[pending.pop()]
        if transform.unique_name not in above:
            above.add(transform.unique_name)
            pending += transform.inputs.values()
    assert any("Rows/BigQueryBatchFileLoads/TriggerLoadJobsWithoutTempTables" in n for n in above)
    loads = {name for name in names(job) if name.startswith("Ledger/")}
    assert loads
    assert not above & loads
