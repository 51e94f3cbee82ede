"""N-gram probabilities on Flink and Spark as on the embedded runner, and no key where none belongs."""

import gzip
import secrets
import shlex

import pytest

from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.bayesian.public_counts_files import read_public_counts
from beam_dpne.bayesian.transform import run_context
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.release.reading import read_release
from tests.engines.conftest import BUDGET, PUBLIC, SAMPLE, deploy
from tests.engines.staged import read_back, secrets_of, unpacked

pytestmark = [pytest.mark.engines]
pytest_plugins = ["tests.engines.flink_cluster", "tests.engines.storage"]
_SPARK_PORT = 8399


@pytest.mark.flink
def test_flink_releases_what_the_embedded_runner_does(cluster, check_same):
    check_same("counts", *cluster.job_options(parallelism=2))


@pytest.mark.spark
def test_spark_releases_what_the_embedded_runner_does(check_same, tmp_path):
    state = tmp_path / "spark"
    start = ("start", "--state", state, "--master", "local[2]", "--job_port", _SPARK_PORT)
    started = deploy("spark", *start)
    try:
        assert started.status == 0, started.err
        check_same("counts", *shlex.split(started.out.splitlines()[-1]))
    finally:
        assert deploy("spark", "stop", "--state", state).status == 0


@pytest.mark.dataflow
def test_the_run_key_is_not_in_a_graph_whose_workers_read_it(
    emulator, launch, public_file, monkeypatch
):
    from beam_dpne.storage.directories import connect_anonymously_to_emulators
    from tests.engines.storage import Bucket

    monkeypatch.setenv("STORAGE_EMULATOR_HOST", emulator)
    connect_anonymously_to_emulators()
    bucket = Bucket()
    bucket.put("in/titles.jsonl.gz", SAMPLE.read_bytes())
    bucket.put("in/public.tsv", PUBLIC.encode())
    bucket.put("keys/run.key", text := secrets.token_hex(32))
    ended = launch(
        *("bayesian", *BUDGET, "--public", bucket.path("in/public.tsv")),
        *("--run_key_file", bucket.path("keys/run.key")),
        *("--input", bucket.path("in/titles.jsonl.gz"), "--output", bucket.path("release")),
        *("--runner", "DataflowRunner", "--project", "lab-project", "--region", "us-central1"),
        *("--staging_location", bucket.path("stage"), "--temp_location", bucket.path("temp")),
        *("--template_location", bucket.path("job.json"), "--job_name", "lab"),
        timeout=300,
    )
    assert ended.status == 0, ended.err
    staged = read_back(bucket, "stage", "job.json", "lab")
    everything = unpacked(staged.everything())
    epsilon, delta = map(float, BUDGET[1::2])
    public = read_public_counts(str(public_file), length=3)
    context = run_context(BayesianPlan(epsilon=epsilon, delta=delta), "words", public)
    secret = secrets_of(RunKey.from_hex(text), context)
    assert [name for name, value in secret.items() if value in everything] == []
    # The same search finds what is there.
    assert bucket.path("keys/run.key").encode() in everything


@pytest.mark.storage
def test_public_counts_are_read_from_cloud_storage(emulator, launch, options_of, monkeypatch):
    from beam_dpne.storage.directories import connect_anonymously_to_emulators
    from tests.engines.storage import Bucket

    monkeypatch.setenv("STORAGE_EMULATOR_HOST", emulator)
    connect_anonymously_to_emulators()
    bucket = Bucket()
    bucket.put("public.tsv", PUBLIC.encode())
    bucket.put("public.txt.gz", gzip.compress(b"one of the\nThe end of the day\n"))
    public = read_public_counts(bucket.path("public.tsv"), length=3)
    assert len(public) == 1000
    text = read_public_counts(bucket.path("public.txt.gz"), length=3)
    assert text.texts().to_pylist() == ["end of the", "of the day", "one of the", "the end of"]
    ended = launch(*options_of("adaptive"), "--output", bucket.path("release"), timeout=300)
    assert ended.status == 0, ended.err
    released = read_public_counts(bucket.path("release"), length=2)
    rows = read_release(bucket.path("release")).table().to_pylist()
    assert len(released) == sum(row["length"] == 2 for row in rows) > 0
    job = (*options_of("counts"), "--output", bucket.path("model"))
    job = tuple(bucket.path("public.tsv") if part.endswith("counts.tsv") else part for part in job)
    ended = launch(*job, "--arpa", bucket.path("model.arpa"), timeout=300)
    assert ended.status == 0, ended.err
    assert b"ngram 3=1000" in bucket.files("model.arpa")[""]
    private = bucket.path("private.jsonl.gz")
    bucket.put("private.jsonl.gz", SAMPLE.read_bytes())
    same = (*job[:-1], bucket.path("other"), "--public", private, "--input", private)
    ended = launch(*same, timeout=300)
    assert ended.status == 2
    assert "public must not be private data" in ended.err
