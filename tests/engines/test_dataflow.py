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
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest
from apache_beam.portability.api import beam_runner_api_pb2 as api

from beam_dpne.cli.runners import beam_options
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.transform import run_context
from tests.conftest import ROOT, Ended
from tests.engines.conftest import SAMPLE
from tests.engines.staged import Staged, documented_steps, keys_in, read_back, secrets_of, unpacked

if TYPE_CHECKING:
    from tests.engines.storage import Bucket

pytestmark = [pytest.mark.engines, pytest.mark.dataflow]
pytest_plugins = ["tests.engines.storage"]

FOLDER = ROOT / "deploy" / "dataflow"
PLAN = PrivacyPlan(epsilon=4, delta=1e-6, max_length=3)
PRIVACY = ("--epsilon", "4", "--delta", "1e-6")
JOB_NAME = "titles-of-a-day"
JOB_GRAPH_LIMIT = 10 * 2**20  # Dataflow's


@pytest.fixture(scope="module")
def bucket(emulator) -> Iterator["Bucket"]:
    from beam_dpne.storage.directories import connect_anonymously_to_emulators
    from tests.engines.storage import Bucket

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("STORAGE_EMULATOR_HOST", emulator)
        connect_anonymously_to_emulators()
        bucket = Bucket()
        bucket.put("in/titles.jsonl.gz", SAMPLE.read_bytes())
        yield bucket


@pytest.fixture(scope="module")
def run_key(bucket) -> RunKey:
    """The key of jobs with a key file; drawn here, so that it is nowhere by chance."""
    text = secrets.token_hex(32)
    bucket.put("keys/run.key", text)
    return RunKey.from_hex(text)


@pytest.fixture(scope="module")
def stage(bucket, launch) -> Callable[..., Staged]:
    """Launches on Dataflow, as a template: all is built and staged, and nothing submitted."""
    numbers = itertools.count()

    def run(*options: object, template: str | None = None, max_length: int = 3) -> Staged:
        folder = f"stage-{next(numbers)}"
        template = template or f"{folder}.json"
        ended = launch(
            *("ngrams", "--input", bucket.path("in/titles.jsonl.gz")),
            *("--output", bucket.path("release"), *PRIVACY, "--max_length", max_length),
            *("--runner", "DataflowRunner", "--project", "lab-project", "--region", "us-central1"),
            *("--staging_location", bucket.path(folder), "--temp_location", bucket.path("temp")),
            *("--template_location", bucket.path(template), "--job_name", JOB_NAME, *options),
            timeout=300,
        )
        assert ended.status == 0, ended.err
        return read_back(bucket, folder, template, JOB_NAME)

    return run


@pytest.fixture(scope="module")
def keyed(stage, run_key, bucket) -> Staged:
    """A job of three lengths whose workers read the key from its file."""
    return stage("--run_key_file", bucket.path("keys/run.key"))


@pytest.fixture(scope="module")
def fresh(stage) -> list[Staged]:
    """Two launches of a Flex Template without a key: its launcher names the template so."""
    launches = ("2026-01-02_03_04_05-1234567890", "2026-01-02_03_04_06-1234567891")
    return [stage(template=f"flex/template_launches/{one}/job_object") for one in launches]


# The graph


def test_every_step_is_documented_with_its_side_inputs(keyed, stage, run_key, bucket):
    assert keyed.steps() == documented_steps(3)
    key = ("--run_key_file", bucket.path("keys/run.key"))
    assert stage(*key, max_length=1).steps() == documented_steps(1)
    paper = stage(*key, "--strategy", "one_round")
    assert paper.steps() == documented_steps(3, one_round=True)
    counted = {name for name in keyed.steps() if "/CountUsers/" in name}
    without = stage(*key, "--count_share", 0).steps()
    assert without.keys() == documented_steps(3).keys() - counted


def test_the_corpus_is_shuffled_once_and_sums_once_a_round_and_for_counts(keyed):
    shuffles = {
        transform.unique_name
        for transform in keyed.graph.components.transforms.values()
        if "group_by_key" in transform.spec.urn or "combine" in transform.spec.urn
    }
    of_names = {name for name in shuffles if name.startswith("Read/Spread/")}
    assert len(of_names) == 1
    assert shuffles - of_names == {
        "PrivateNgrams/GroupByUser/ByUser",
        "PrivateNgrams/CountUsers/ByRows",
        *(
            f"PrivateNgrams/{k}/{r}/WeightedHistogram/ByHashRange"
            for k in (1, 2, 3)
            for r in range(1, PLAN.rounds_of(k) + 1)
        ),
    }


def test_no_step_before_the_first_reshuffle_reads_texts(keyed):
    """So what `Read/Spread` shuffles is names of files and ranges in them."""
    above = {"Read/Spread"}
    transforms = keyed.graph.components.transforms.values()
    collections = {
        key
        for transform in transforms
        if transform.unique_name == "Read/Spread"
        for key in transform.inputs.values()
    }
    while collections:
        found = {keyed.producer(key) for key in collections} - above
        above |= found
        collections = {
            key
            for transform in transforms
            if transform.unique_name in found
            for key in transform.inputs.values()
        }
    assert {name for name in above if not name.startswith("Read/Inputs/")} == {
        "Read/Match",
        "Read/Spread",
    }


def test_labels_and_display_data_hold_names_of_code_alone(keyed):
    shown = []
    for transform in keyed.graph.components.transforms.values():
        for data in transform.display_data:
            assert data.urn == "beam:display_data:labelled:v1"
            payload = api.LabelledPayload.FromString(data.payload)
            shown.append(payload.string_value)
            assert payload.label == "Transform Function"
            assert payload.WhichOneof("value") == "string_value"
    assert shown
    assert [text for text in shown if not re.fullmatch(r"[\w.]+|<lambda>", text)] == []


def test_a_length_adds_the_same_to_the_graph_each_time(stage, run_key, bucket, keyed):
    sizes, counts = {}, {}
    for length in (9, 10, 26):
        job = stage("--run_key_file", bucket.path("keys/run.key"), max_length=length)
        sizes[length] = len(job.graph.SerializeToString())
        counts[length] = len(job.graph.components.transforms)
    sizes[3] = len(keyed.graph.SerializeToString())
    counts[3] = len(keyed.graph.components.transforms)
    print(f"bytes of the job graph: {sizes}; transforms: {counts}")
    each = counts[10] - counts[9]
    assert counts[26] - counts[9] == 17 * each
    assert counts[9] - counts[3] == 6 * each
    early, late = (sizes[9] - sizes[3]) / 6, (sizes[26] - sizes[9]) / 17
    assert early == pytest.approx(late, rel=0.2)
    assert sizes[26] < JOB_GRAPH_LIMIT / 3


# What is secret


def test_the_run_key_is_not_in_a_graph_whose_workers_read_it(keyed, run_key, bucket):
    assert list(keyed.files) == ["pipeline.pb"]
    everything = unpacked(keyed.everything())
    secret = secrets_of(run_key, run_context(PLAN, "words"))
    assert [name for name, value in secret.items() if value in everything] == []
    # The same search finds what is there: the path of the key's file, in pickles.
    assert bucket.path("keys/run.key").encode() not in keyed.everything()
    assert bucket.path("keys/run.key").encode() in everything


def test_no_constant_of_a_graph_with_a_key_file_is_as_long_as_a_key(keyed, run_key):
    """However a key were derived, it would be 32 bytes in a pickle."""
    assert keys_in(keyed) == set()


def test_a_flex_template_draws_a_fresh_key_for_each_launch(fresh):
    first, second = (keys_in(staged) for staged in fresh)
    assert first
    assert second
    assert first.isdisjoint(second)


def test_fresh_keys_are_in_the_pipeline_and_nowhere_else(fresh):
    for staged in fresh:
        assert list(staged.files) == ["pipeline.pb"]
        job = json.dumps(staged.job).encode()
        assert not any(key in job or key.hex().encode() in job for key in keys_in(staged))


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


def test_neither_users_nor_texts_are_in_the_job(keyed, fresh):
    records = [json.loads(line) for line in gzip.decompress(SAMPLE.read_bytes()).splitlines()]
    private = {record["text"] for record in records if len(record["text"]) > 20}
    private |= {record["user"] for record in records if len(record["user"]) > 8}
    assert len(private) > 1000
    for staged in (keyed, *fresh):
        everything = unpacked(staged.everything())
        assert [text for text in private if text.encode() in everything] == []


def test_job_name_labels_and_options_are_those_that_were_given(keyed, bucket):
    assert keyed.job["name"] == JOB_NAME
    assert "labels" not in keyed.job
    given = {
        "job_name": JOB_NAME,
        "project": "lab-project",
        "region": "us-central1",
    }
    options = keyed.job["environment"]["sdkPipelineOptions"]["options"]
    defaults = beam_options(["--runner", "DataflowRunner"]).pipeline_options.get_all_options()
    others = {
        name: value
        for name, value in options.items()
        if name not in defaults and name not in ("pipelineUrl", "pipelineProtoHash")
    }
    assert others == {}
    assert {name: options[name] for name in given} == given
    shown = {one["key"] for one in keyed.job["environment"]["sdkPipelineOptions"]["display_data"]}
    assert shown <= options.keys()
    assert not any(
        "key" in name and options[name] for name in options if name != "dataflow_kms_key"
    )


# The launch script


def test_the_launch_script_makes_workers_private(bucket, run_key, tmp_path):
    settings = (FOLDER / "settings.example").read_text()
    settings = settings.replace("gs://my-project-dpne-work/", bucket.path("script/"))
    job = launch_by_script(tmp_path, settings.replace("KMS_KEY=", f"KMS_KEY={KMS_KEY}"), bucket)
    (pool,) = job["environment"]["workerPools"]
    image = pool["sdkHarnessContainerImages"][0]["containerImage"]
    assert image.startswith("europe-west1-docker.pkg.dev/my-project/dpne/beam-dpne@sha256:")
    assert pool["ipConfiguration"] == "WORKER_IP_PRIVATE"
    assert pool["subnetwork"] == "regions/europe-west1/subnetworks/dpne"
    environment = job["environment"]
    assert environment["serviceAccountEmail"] == "dpne-worker@my-project.iam.gserviceaccount.com"
    assert environment["serviceKmsKeyName"] == KMS_KEY
    assert re.fullmatch(r"beam-dpne-ngrams-\d{8}-\d{6}", job["name"])


KMS_KEY = "projects/p/locations/europe-west1/keyRings/r/cryptoKeys/k"


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
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m beam_dpne.cli.main "$@"\n')
    program.chmod(0o755)
    command = [FOLDER / "launch.sh", "my settings.env", *options]
    ended = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def launch_by_script(folder: pathlib.Path, settings: str, bucket: "Bucket") -> Mapping[str, Any]:
    """Runs launch.sh so that the job is staged, and not submitted; returns the request."""
    ended = run_script(
        folder,
        settings,
        *("--input", bucket.path("in/titles.jsonl.gz"), "--output", bucket.path("release")),
        *(*PRIVACY, "--run_key_file", bucket.path("keys/run.key")),
        *("--template_location", bucket.path("script.json")),
    )
    assert ended.status == 0, ended.err
    return json.loads(bucket.files("script.json")[""])
