"""A library run without the extra `gcp` logs nothing, and gs:// then names the extra."""

import logging
import subprocess
import sys

import pytest

from beam_dpne.storage import _LeaveOut
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
SHOW_ROOT = """
import logging
root = logging.getLogger()
print(root.level, root.handlers, root.filters, root.propagate, root.disabled)
"""


def python(code):
    command = [sys.executable, "-c", WITHOUT_GCP + code]
    piped = {"capture_output": True, "text": True, "timeout": 200}
    return subprocess.run(command, check=False, cwd=ROOT, **piped)


def test_a_library_run_without_the_extra_logs_nothing_and_leaves_the_root_logger_as_it_was():
    ended = python(f"import beam_dpne\n{RUN}\nrun(beam_dpne.BatchDocuments())\n{SHOW_ROOT}")
    assert (ended.returncode, ended.stderr) == (0, "")
    without_us = python(f"{RUN}\nrun(beam.Map(len))\n{SHOW_ROOT}")
    assert "apitools" in without_us.stderr
    assert ended.stdout == without_us.stdout


def test_messages_of_users_and_other_messages_of_beam_are_shown():
    code = """
import beam_dpne, logging
import apache_beam.io.filesystems
logging.warning("apitools are our users'")
logging.getLogger("apache_beam.io.filesystems").warning("Failed to import S3FileSystem; why")
"""
    lines = python(code).stderr.splitlines()
    assert lines == [
        "WARNING:root:apitools are our users'",
        "WARNING:apache_beam.io.filesystems:Failed to import S3FileSystem; why",
    ]


@pytest.mark.parametrize("package", ["json", "json.decoder"])
def test_a_package_that_is_there_and_fails_is_worth_its_message(package):
    logger = logging.Logger("a logger")
    keeps = _LeaveOut(logger, "Failed to import", package)
    logger.addFilter(keeps)
    record = logger.makeRecord("", logging.WARNING, "", 0, "Failed to import %s", ("it",), None)
    assert logger.filter(record)
    assert logger.filters == [keeps]


def test_a_path_of_a_bucket_without_the_extra_names_the_extra():
    code = """
import beam_dpne
from beam_dpne.reading import ReadDocuments
from beam_dpne.reading.files import match_inputs
match_inputs(["gs://bucket/notes.jsonl"])
"""
    ended = python(code)
    assert ended.stderr.splitlines()[-1] == (
        "beam_dpne.errors.AccessError: gs:// needs a package that is not installed, got "
        "gs://bucket/notes.jsonl. Run pip install 'beam-dpne[gcp]'."
    )
