"""The recipe for BigQuery, as the job that Dataflow would get: staged on an emulator and read back.

The service itself was never reached. What the recipe would load is written by Beam's own writer.
"""

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import fastavro
import pytest
from apache_beam.io.gcp import bigquery_schema_tools, bigquery_tools
from apache_beam.portability.api import beam_runner_api_pb2 as api
from apache_beam.typehints import schemas

from beam_dpne import NgramProbability, ReleasedItem, ReleasedNgram
from pipelines.tables import bigquery
from tests.conftest import ROOT
from tests.engines.staged import Staged, read_back, unpacked

if TYPE_CHECKING:
    from tests.engines.storage import Bucket

pytestmark = [pytest.mark.engines, pytest.mark.dataflow]
pytest_plugins = ["tests.engines.storage"]

JOB_NAME = "messages-of-a-month"
PRIVATE, PUBLIC = "lab-project:private.messages", "lab-project:public.ngrams"


@pytest.fixture(scope="module")
def bucket(emulator) -> Iterator["Bucket"]:
    from beam_dpne.storage.directories import connect_anonymously_to_emulators
    from tests.engines.storage import Bucket

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("STORAGE_EMULATOR_HOST", emulator)
        connect_anonymously_to_emulators()
        yield Bucket()


@pytest.fixture(scope="module")
def job(bucket) -> Staged:
    """The job of a release from one table to another, staged as a template and not submitted."""
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
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    return read_back(bucket, "stage", "job.json", JOB_NAME)


def test_bigquery_makes_no_copy_of_the_private_table(job):
    """A read by export or by query would write the texts to the bucket or to another table."""
    names = job.steps()
    assert [name for name in names if "Export" in name or "FilesToRemove" in name] == []
    everything = unpacked(job.everything())
    assert b"_CustomBigQueryStorageSource" in everything
    assert b"customer" in everything
    assert b"message" in everything


def test_the_tables_must_be_empty_and_have_the_schemas_of_the_rows(job):
    for name, schema in (
        ("Rows", bigquery.table_schema(ReleasedNgram)),
        ("Ledger", bigquery.LEDGER),
    ):
        shown = shown_by(job, f"{name}/BigQueryBatchFileLoads/TriggerLoadJobsWithoutTempTables")
        assert shown["write_disposition"] == "WRITE_EMPTY"
        assert shown["schema"] == str(schema)


def shown_by(job: Staged, name: str) -> dict[str, str]:
    """What Dataflow's web page would show of the steps under a name."""
    return {
        payload.key: payload.string_value
        for transform in job.graph.components.transforms.values()
        if transform.unique_name.startswith(name)
        for data in transform.display_data
        for payload in [api.LabelledPayload.FromString(data.payload)]
    }


def test_the_ledger_is_loaded_after_the_rows(job):
    waiting = [
        (name, found.side_inputs) for name, found in job.steps().items() if "WaitOn/Map" in name
    ]
    ((_, side_inputs),) = waiting
    assert len(side_inputs) == 2
    above = producers(job, side_inputs)
    assert any("Rows/BigQueryBatchFileLoads/TriggerLoadJobsWithoutTempTables" in n for n in above)
    assert any("Rows/BigQueryBatchFileLoads" in n and "TriggerCopyJobs" in n for n in above)
    loads = {name for name in job.steps() if name.startswith("Ledger/")}
    assert loads
    assert not above & loads


def producers(job: Staged, names: frozenset[str]) -> set[str]:
    """The steps above some steps, themselves included."""
    transforms = {
        transform.unique_name: transform
        for transform in job.graph.components.transforms.values()
        if not transform.subtransforms
    }
    found, pending = set(), set(names)
    while pending:
        found |= pending
        inputs = {key for name in pending for key in transforms[name].inputs.values()}
        pending = {job.producer(key) for key in inputs} - found
    return found


@pytest.mark.parametrize("row_type", [ReleasedNgram, ReleasedItem, NgramProbability])
def test_beam_reads_the_row_type_back_from_the_schema(row_type):
    schema = bigquery_tools.get_bq_tableschema(bigquery.table_schema(row_type))
    read = bigquery_schema_tools.generate_user_type_from_bq_schema(schema)
    wanted = schemas.schema_from_element_type(row_type)
    found = schemas.schema_from_element_type(read)
    assert [(field.name, field.type) for field in found.fields] == [
        (field.name, field.type) for field in wanted.fields
    ]


def test_the_rows_fit_the_schema_that_they_are_loaded_with():
    rows = [ReleasedNgram(2, "see you", 41.25), ReleasedNgram(1, "2026", 7.0)]
    schema = bigquery.table_schema(ReleasedNgram)
    file = io.BytesIO()
    file.close = lambda: None  # Beam's writer closes its file.
    writer = bigquery_tools.AvroRowWriter(file, schema)
    for row in rows:
        writer.write(row._asdict())
    writer.close()
    file.seek(0)
    assert list(fastavro.reader(file)) == [row._asdict() for row in rows]
