"""Without the extra `gcp` a path of a bucket is refused, and the error names the extra."""

import subprocess
import sys

from tests.conftest import ROOT

# No package of Google's storage can be imported, as if the extra were not installed.
CODE = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name == "apitools" or name.startswith(("apitools.", "google.cloud.storage")):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Without())
from beam_dpne.errors import AccessError
from beam_dpne.reading.files import match_inputs
try:
    match_inputs(["gs://bucket/notes.jsonl"])
except AccessError as error:
    print(error)
"""


def test_a_path_of_a_bucket_without_the_extra_names_the_extra():
    command = [sys.executable, "-c", CODE]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert (
        "gs://bucket/notes.jsonl. Run pip install '.[gcp]' in the checkout of beam-dpne."
        in ended.stdout
    )
