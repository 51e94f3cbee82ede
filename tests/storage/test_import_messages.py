"""A library run without the extra `gcp` logs nothing, and gs:// then names the extra."""

import subprocess
import sys

import pytest

from tests.conftest import ROOT

# No package of Google's storage can be imported, as if the extra were not installed.
WITHOUT_GCP = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name == "apitools" or name.startswith(("apitools.", "google.cloud.storage")):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Without())
"""
RUN = """
import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

def run(transform):
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        _ = pipeline | beam.Create([("ann", "to be"), ("bob", "or not")]) | transform
"""
# In one process: a run, messages of others, a path of a bucket.
WITH_US = f"""
import beam_dpne
{RUN}
run(beam_dpne.BatchDocuments())
import logging
logging.warning("apitools are our users'")
logging.getLogger("apache_beam.io.filesystems").warning("Failed to import S3FileSystem; why")

from beam_dpne.errors import AccessError
from beam_dpne.reading.files import match_inputs
try:
    match_inputs(["gs://bucket/notes.jsonl"])
except AccessError as error:
    print(error)
"""


def python(code):
    command = [sys.executable, "-c", WITHOUT_GCP + code]
    piped = {"capture_output": True, "text": True, "timeout": 200}
    return subprocess.run(command, check=False, cwd=ROOT, **piped)


@pytest.fixture(scope="module")
def ended():
    """How a process without the extra ended."""
    return python(WITH_US)


def test_messages_of_users_and_other_messages_of_beam_are_shown_alone(ended):
    assert "apitools" in python(f"{RUN}\nrun(beam.Map(len))").stderr
    assert ended.stderr.splitlines() == [
        "WARNING:root:apitools are our users'",
        "WARNING:apache_beam.io.filesystems:Failed to import S3FileSystem; why",
    ]


def test_a_path_of_a_bucket_without_the_extra_names_the_extra(ended):
    assert "gs://bucket/notes.jsonl. Run pip install 'beam-dpne[gcp]'." in ended.stdout
