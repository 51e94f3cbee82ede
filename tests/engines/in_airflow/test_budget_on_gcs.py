"""The budget of a population on Google Cloud Storage: an emulator, through Airflow's own file system.

Run by Airflow's own Python, which `tests/engines/test_airflow.py` starts, with STORAGE_EMULATOR_HOST.
"""

import json
import os
import urllib.parse
import urllib.request
import uuid

import pytest
from airflow.sdk import ObjectStoragePath
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from beam_dpne.airflow.budget import Budget
from beam_dpne.airflow.releases import find_ledger

LEDGER = {
    "schema": "beam_dpne/ledger/1",
    **dict.fromkeys(("what", "tokenizer"), "text"),
    "program": "set-union",
    "guarantee": {"epsilon": 10, "delta": 1e-4},
    "not_protected": [],
    "plan": {"epsilon": 10, "delta": 1e-4, "adjacency": "add_or_remove_one_user"},
    **{name: {} for name in ("spent", "run_key", "columns", "versions")},
    "mechanism_columns": {},
    "mechanism": {"released": 3},
    "parts": [
        {
            "name": f"items-{'0' * 16}-00000-of-00001.jsonl",
            "rows": 3,
            "sha256": "0" * 64,
            "bytes": 9,
        }
    ],
}


class Bucket:
    """A bucket of an emulator, changed by requests that Airflow's file system does not see."""

    def __init__(self):
        self.name = f"lab-{uuid.uuid4().hex}"
        self._post("/storage/v1/b?project=lab", json.dumps({"name": self.name}), "application/json")

    def path(self, name):
        return f"gs://{self.name}/{name}"

    def put(self, name, text="Readers."):
        query = urllib.parse.urlencode({"uploadType": "media", "name": name})
        self._post(f"/upload/storage/v1/b/{self.name}/o?{query}", text, "text/plain")

    def names(self):
        address = f"{os.environ['STORAGE_EMULATOR_HOST']}/storage/v1/b/{self.name}/o"
        with urllib.request.urlopen(address) as answer:
            return sorted(item["name"] for item in json.load(answer).get("items", ()))

    def _post(self, path, text, kind):
        request = urllib.request.Request(
            f"{os.environ['STORAGE_EMULATOR_HOST']}{path}",
            data=text.encode(),
            headers={"Content-Type": kind},
        )
        urllib.request.urlopen(request).close()


@pytest.fixture
def bucket(monkeypatch):
    extra = {"is_anonymous": True, "project": "lab"}
    connection = {"conn_type": "google_cloud_platform", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT", json.dumps(connection))
    return Bucket()


def budget(path, epsilon=30):
    return Budget(releases=path, max_epsilon=epsilon, max_delta=0.5)


def test_an_empty_prefix_does_not_exist_and_is_marked_first(bucket):
    with pytest.raises(AirflowFailException, match="must be a folder with the file"):
        budget(bucket.path("people")).check(10, 1e-4, bucket.path("people/dag/task/run"))
    # A prefix of which the name is only the beginning.
    bucket.put("people-2/population.txt")
    with pytest.raises(AirflowFailException, match="must be a folder with the file"):
        budget(bucket.path("people")).check(10, 1e-4, bucket.path("people/dag/task/run"))
    bucket.put("people/population.txt")
    budget(bucket.path("people/")).check(10, 1e-4, bucket.path("people/dag/task/run"))
    other, note, mark = bucket.names()
    assert (other, mark) == ("people-2/population.txt", "people/population.txt")
    assert note.startswith("people/dag/task/run.started-")


def test_releases_that_others_publish_count_at_once(bucket):
    """A listing that this process has kept would miss them."""
    bucket.put("people/population.txt")
    check, run = budget(bucket.path("people"), 40).check, bucket.path("people/dag/task/run")
    check(10, 1e-4, run)
    bucket.put("people/dag/task/earlier/ledger.json", json.dumps(LEDGER))
    check(10, 1e-4, run)
    bucket.put("people/dag/other/ledger.json", json.dumps(LEDGER))
    with pytest.raises(AirflowFailException, match=r"Its 3 releases have epsilon 30 at delta 0\.5"):
        check(20, 1e-4, bucket.path("people/dag/task/another"))
    assert len(bucket.names()) == 5


def test_a_ledger_is_found_however_often_its_directory_was_listed_before(bucket):
    bucket.put("people/dag/run/part")
    directory = ObjectStoragePath(bucket.path("people/dag/run"))
    assert [path.name for path in directory.iterdir()] == ["part"]
    assert find_ledger(str(directory)) is None
    bucket.put("people/dag/run/ledger.json", json.dumps(LEDGER))
    assert find_ledger(str(directory))["mechanism"] == {"released": 3}


@pytest.mark.parametrize("text", [" ", "{}", json.dumps({**LEDGER, "guarantee": {"epsilon": -1}})])
def test_a_ledger_that_does_not_tell_stops_every_run(bucket, text):
    bucket.put("people/population.txt")
    bucket.put("people/dag/other/ledger.json", text)
    with pytest.raises(AirflowFailException, match="It cannot be said what was spent"):
        budget(bucket.path("people")).check(10, 1e-4, bucket.path("people/dag/task/run"))
    assert len(bucket.names()) == 2


@pytest.mark.parametrize(
    "directory", ["other/dag/run", "people-2/dag/run", "people/../other/run", "people//dag/run"]
)
def test_a_release_elsewhere_stops_the_run(bucket, directory):
    bucket.put("people/population.txt")
    for path in (bucket.path(directory), f"/{directory}"):
        with pytest.raises(AirflowFailException, match="must be in the folder of its budget"):
            budget(bucket.path("people")).check(10, 1e-4, path)
    with pytest.raises(AirflowFailException, match="must be an address without dots"):
        budget(bucket.path("other/../people")).check(10, 1e-4, bucket.path("people/dag/run"))


def test_a_bucket_that_is_not_there_stops_the_run(bucket):
    path = f"gs://{bucket.name}-2/people"
    with pytest.raises(AirflowException, match=r"must be a folder with|cannot be listed"):
        budget(path).check(10, 1e-4, f"{path}/dag/task/run")
