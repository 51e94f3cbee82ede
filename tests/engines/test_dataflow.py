"""The job that Dataflow would get: staged on an emulator, read back, and taken apart."""

import gzip
import itertools
import json
import os
import pathlib
import re
import secrets
import subprocess
import sys
from collections.abc import Callable

import pytest

from beam_dpne.accounting.series import create_series, open_series
from beam_dpne.mechanism.randomness import RunKey
from tests.conftest import ROOT, Ended
from tests.engines.conftest import BUDGET, PRIVACY, PUBLIC, SAMPLE
from tests.engines.staged import Staged, keys_in, read_back, unpacked

pytestmark = [pytest.mark.engines, pytest.mark.dataflow]
pytest_plugins = ["tests.engines.storage"]

FOLDER = ROOT / "deploy" / "dataflow"
JOB_NAME = "titles-of-a-day"
JOBS = {
    "adaptive": ("ngrams", *PRIVACY),
    "one_round": ("ngrams", *PRIVACY, "--strategy", "one_round"),
    "set-union": ("set-union", *BUDGET),
    "bayesian": ("bayesian", *BUDGET),
}
# It has no options of a budget.
OF_A_SERIES = {"series": ("ngrams", "--max_length", "2")}


@pytest.fixture(scope="module")
def bucket(emulator):
    from tests.engines.storage import Bucket

    bucket = Bucket()
    bucket.put("in/titles.jsonl.gz", SAMPLE.read_bytes())
    bucket.put("in/public.tsv", PUBLIC)
    # Drawn here, so that it is nowhere by chance.
    bucket.put("keys/run.key", secrets.token_hex(32))
    return bucket


@pytest.fixture(scope="module")
def stage(bucket, launch) -> Callable[..., Staged]:
    """Launches on Dataflow, as a template: all is built and staged, and nothing submitted."""
    numbers = itertools.count()

    def run(job: str, *options: object, template: str | None = None) -> Staged:
        folder = f"stage-{next(numbers)}"
        template = template or f"{folder}.json"
        public = ("--public", bucket.path("in/public.tsv")) if job == "bayesian" else ()
        ended = launch(
            *(*(JOBS | OF_A_SERIES)[job], *public, "--input", bucket.path("in/titles.jsonl.gz")),
            *("--output", bucket.path("release")),
            *("--runner", "DataflowRunner", "--project", "lab-project", "--region", "us-central1"),
            *("--staging_location", bucket.path(folder), "--temp_location", bucket.path("temp")),
            *("--template_location", bucket.path(template), "--job_name", JOB_NAME, *options),
            timeout=300,
        )
        assert ended.status == 0, ended.err
        return read_back(bucket, folder, template, JOB_NAME)

    return run


@pytest.fixture(scope="module")
def keyed(stage, bucket) -> dict[str, Staged]:
    """A job of each kind whose workers read the key from its file."""
    return {job: stage(job, "--run_key_file", bucket.path("keys/run.key")) for job in JOBS}


@pytest.fixture(scope="module")
def fresh(stage) -> list[Staged]:
    """Two launches of a Flex Template without a key: its launcher names the template so."""
    launches = ("2026-01-02_03_04_05-1234567890", "2026-01-02_03_04_06-1234567891")
    return [
        stage("adaptive", template=f"flex/template_launches/{one}/job_object") for one in launches
    ]


def test_the_corpus_is_shuffled_once_and_sums_once_a_round(keyed):
    for job, rounds in (("adaptive", 9), ("one_round", 3)):
        shuffles = {
            transform.unique_name
            for transform in keyed[job].graph.components.transforms.values()
            if "group_by_key" in transform.spec.urn and "Read/" not in transform.unique_name
        }
        sums = {name for name in shuffles if "ByHashRange" in name}
        assert len(sums) == rounds
        assert sorted(name.rpartition("/")[2] for name in shuffles - sums) == ["ByRows", "ByUser"]


@pytest.mark.parametrize("job", JOBS)
def test_the_run_key_is_not_in_a_graph_whose_workers_read_it(keyed, bucket, job):
    """However a key were derived, it would be 32 random bytes in a pickle."""
    staged = keyed[job]
    assert list(staged.files) == ["pipeline.pb"]
    assert keys_in(staged) == set()
    everything = unpacked(staged.everything())
    text = bucket.files("keys/run.key")[""].decode()
    key = RunKey.from_hex(text).__reduce__()[1][0]
    assert text.encode() not in everything
    assert key not in everything
    # The same search finds what is there: the path of the key's file, in pickles.
    assert bucket.path("keys/run.key").encode() not in staged.everything()
    assert bucket.path("keys/run.key").encode() in everything


def test_a_flex_template_draws_a_fresh_key_for_each_launch(fresh):
    first, second = (keys_in(staged) for staged in fresh)
    assert first
    assert second
    assert first.isdisjoint(second)
    for staged in fresh:
        job = json.dumps(staged.job).encode()
        assert not any(key in job or key.hex().encode() in job for key in keys_in(staged))


def test_a_launch_of_a_series_notes_its_release_and_has_nothing_of_the_private_folder(
    stage, bucket
):
    """The job that was not run counts when a worker of it records who takes part."""
    series, private = bucket.path("s/series"), bucket.path("s/private")
    create_series(series, private, releases=3, releases_per_user=1, epsilon=8, delta=1e-5)
    staged = stage(
        *("series", "--run_key_file", bucket.path("keys/run.key")),
        *("--series", series, "--participants", private),
        template="flex/template_launches/2026-01-02_03_04_07-1234567892/job_object",
    )
    everything = unpacked(staged.everything())
    key = json.loads(bucket.files("s/private")["participants.json"])["key"]
    assert key.encode() not in everything
    assert bytes.fromhex(key) not in everything
    assert private.encode() in everything
    assert keys_in(staged) == set()
    steps = {each.unique_name: each for each in staged.graph.components.transforms.values()}
    group = next(name for name in steps if name.endswith("/GroupByUser"))
    (recorded,) = steps[f"{group}/Record"].outputs.values()
    assert recorded in steps[f"{group}/LayOut"].inputs.values()
    assert [*open_series(series).runs()] == [1]
    assert open_series(series).counted(private) == {}


def test_a_classic_template_of_a_series_is_refused(bucket, launch):
    series, private = bucket.path("t/series"), bucket.path("t/private")
    create_series(series, private, releases=3, releases_per_user=1, epsilon=8, delta=1e-5)
    ended = launch(
        *("ngrams", "--input", bucket.path("in/titles.jsonl.gz")),
        *("--output", bucket.path("release"), "--run_key_file", bucket.path("keys/run.key")),
        *("--series", series, "--participants", private),
        *("--runner", "DataflowRunner", "--project", "lab-project", "--region", "us-central1"),
        *("--staging_location", bucket.path("none"), "--temp_location", bucket.path("temp")),
        *("--template_location", bucket.path("none.json")),
    )
    assert ended.status == 2
    assert "--series must be left out with --template_location" in ended.err
    assert open_series(series).runs() == {}


def test_neither_users_nor_texts_are_in_a_job(keyed, fresh):
    records = [json.loads(line) for line in gzip.decompress(SAMPLE.read_bytes()).splitlines()]
    private = {record["text"] for record in records if len(record["text"]) > 20}
    private |= {record["user"] for record in records if len(record["user"]) > 8}
    assert len(private) > 1000
    for staged in (*keyed.values(), *fresh):
        everything = unpacked(staged.everything())
        assert [text for text in private if text.encode() in everything] == []


def test_a_classic_template_without_a_key_file_is_refused(bucket, launch):
    ended = launch(
        *("ngrams", "--input", bucket.path("in/titles.jsonl.gz")),
        *("--output", bucket.path("release"), *PRIVACY),
        *("--runner", "DataflowRunner", "--project", "lab-project", "--region", "us-central1"),
        *("--staging_location", bucket.path("none"), "--temp_location", bucket.path("temp")),
        *("--template_location", bucket.path("none.json")),
    )
    assert ended.status == 2
    assert "run_key_file" in ended.err
    assert bucket.names("none") == []


# The launch script

KMS_KEY = "projects/p/locations/europe-west1/keyRings/r/cryptoKeys/k"


def test_the_launch_script_makes_workers_private(bucket, tmp_path):
    settings = (FOLDER / "settings.example").read_text()
    settings = settings.replace("gs://my-project-dpne-work/", bucket.path("script/"))
    settings = settings.replace("KMS_KEY=", f"KMS_KEY={KMS_KEY}")
    files = ("--input", bucket.path("in/titles.jsonl.gz"), "--output", bucket.path("release"))
    key = ("--run_key_file", bucket.path("keys/run.key"))
    template = ("--template_location", bucket.path("script.json"))
    ended = run_script(tmp_path, settings, *files, *PRIVACY, *key, *template)
    assert ended.status == 0, ended.err
    environment = json.loads(bucket.files("script.json")[""])["environment"]
    (pool,) = environment["workerPools"]
    image = pool["sdkHarnessContainerImages"][0]["containerImage"]
    assert image.startswith("europe-west1-docker.pkg.dev/my-project/dpne/beam-dpne@sha256:")
    assert pool["ipConfiguration"] == "WORKER_IP_PRIVATE"
    assert pool["subnetwork"] == "regions/europe-west1/subnetworks/dpne"
    assert environment["serviceAccountEmail"] == "dpne-worker@my-project.iam.gserviceaccount.com"
    assert environment["serviceKmsKeyName"] == KMS_KEY


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SUBNETWORK", "", "SUBNETWORK must be set"),
        ("SUBNETWORK", "dpne", "SUBNETWORK must be regions/"),
        ("TEMP", "a/folder", "TEMP must be a folder of a bucket"),
        ("WORKER_IMAGE", "repository/image", "WORKER_IMAGE must be an image with its tag"),
        ("SERVICE_ACCOUNT", "1-compute@developer.gserviceaccount.com", "must be one of your own"),
        ("KMS_KEY", "mine", "KMS_KEY must be projects/"),
    ],
)
def test_the_launch_script_refuses_wrong_settings(tmp_path, name, value, said):
    settings = (FOLDER / "settings.example").read_text()
    settings = re.sub(rf"(?m)^{name}=.*", f"{name}={value}", settings)
    ended = run_script(tmp_path, settings)
    assert (ended.status, ended.out) == (2, "")
    assert said in ended.err


def test_the_launch_script_refuses_options_that_settings_decide(tmp_path):
    settings = (FOLDER / "settings.example").read_text()
    ended = run_script(tmp_path, settings, "--use_public_ips")
    assert ended.status == 2
    assert "--use_public_ips is decided in" in ended.err


def run_script(folder: pathlib.Path, settings: str, *options: object) -> Ended:
    """Runs launch.sh, with our `beam-dpne`."""
    (folder / "my settings.env").write_text(settings)
    program = folder / "beam-dpne"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m beam_dpne "$@"\n')
    program.chmod(0o755)
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    ended = subprocess.run(
        list(map(str, [FOLDER / "launch.sh", "my settings.env", *options])),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, "PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)
