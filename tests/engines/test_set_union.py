"""A set union on every engine: the embedded runner's release, and no key where none belongs."""

import secrets
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping

import pytest

from beam_dpne.randomness import RunKey
from beam_dpne.set_union import run_context
from beam_dpne.set_union_plan import SetUnionPlan
from deploy.flink.cluster import Cluster
from tests.conftest import ROOT
from tests.engines.conftest import SAMPLE, release_bytes
from tests.engines.flink import free_ports
from tests.engines.staged import keys_in, read_back, secrets_of, unpacked

pytestmark = [pytest.mark.engines]
pytest_plugins = ["tests.engines.storage"]

MINUTES = 60
BUDGET = {"epsilon": 4, "delta": 1e-6}
# One of each kind: the default, in sequence; with two passes; by the rounds of n-grams; in one pass.
POLICIES = ("screened_gaussian", "mad", "rounds", "weighted_gaussian")


def options_of(policy: str) -> tuple[object, ...]:
    budget = (part for name, value in BUDGET.items() for part in (f"--{name}", value))
    return ("set-union", *budget, "--policy", policy)


@pytest.fixture(scope="module")
def embedded(launch, run_key_file, tmp_path_factory) -> Callable[[str], Mapping[str, bytes]]:
    """The files of the embedded runner's release under a policy."""
    known: dict[str, Mapping[str, bytes]] = {}

    def release(policy: str) -> Mapping[str, bytes]:
        if policy not in known:
            folder = tmp_path_factory.mktemp("embedded") / "release"
            given = ("--input", SAMPLE, "--run_key_file", run_key_file)
            ended = launch(*options_of(policy), *given, "--output", folder)
            assert ended.status == 0, ended.err
            known[policy] = release_bytes(folder)
        return known[policy]

    return release


@pytest.fixture
def is_the_same(launch, run_key_file, embedded, tmp_path) -> Callable[..., None]:
    """Launches on an engine, and compares."""

    def check(policy: str, *engine: object) -> None:
        release = tmp_path / "release"
        given = ("--input", SAMPLE, "--run_key_file", run_key_file, "--output", release)
        ended = launch(*options_of(policy), *given, *engine, timeout=5 * MINUTES)
        assert ended.status == 0, ended.err
        assert release_bytes(release) == embedded(policy)

    return check


def deployed(engine: str, *arguments: object) -> str:
    """What `python3 -m deploy.ENGINE` says on its last line, as a person would run it."""
    command = [sys.executable, "-m", f"deploy.{engine}", *map(str, arguments)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def flink(tmp_path_factory):
    state = tmp_path_factory.mktemp("flink") / "state"
    names = ("rest_port", "rpc_port", "job_port", "workers_port")
    ports = zip(names, free_ports(len(names)), strict=True)
    settings = [part for name, port in ports for part in (f"--{name}", port)]
    deployed("flink", "start", "--state", state, *settings)
    yield Cluster.at(state).job_options(parallelism=2)
    deployed("flink", "stop", "--state", state)


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    state = tmp_path_factory.mktemp("spark") / "state"
    said = deployed("spark", "start", "--state", state, "--master", "local[2]")
    yield shlex.split(said)
    deployed("spark", "stop", "--state", state)


@pytest.mark.prism
@pytest.mark.parametrize("policy", POLICIES)
def test_prism_releases_what_the_embedded_runner_does(is_the_same, policy):
    is_the_same(policy, "--runner", "PrismRunner", "--prism_location", deployed("prism"))


@pytest.mark.flink
@pytest.mark.parametrize("policy", POLICIES)
def test_flink_releases_what_the_embedded_runner_does(is_the_same, flink, policy):
    is_the_same(policy, *flink)


@pytest.mark.spark
@pytest.mark.parametrize("policy", POLICIES[:2])
def test_spark_releases_what_the_embedded_runner_does(is_the_same, spark, policy):
    is_the_same(policy, *spark)


@pytest.mark.dataflow
@pytest.mark.parametrize("policy", POLICIES)
def test_the_run_key_is_not_in_a_graph_whose_workers_read_it(emulator, launch, policy, monkeypatch):
    from beam_dpne.io.schemes import connect_anonymously_to_emulators
    from tests.engines.storage import Bucket

    monkeypatch.setenv("STORAGE_EMULATOR_HOST", emulator)
    connect_anonymously_to_emulators()
    bucket = Bucket()
    bucket.put("in/titles.jsonl.gz", SAMPLE.read_bytes())
    bucket.put("keys/run.key", text := secrets.token_hex(32))
    ended = launch(
        *(*options_of(policy), "--run_key_file", bucket.path("keys/run.key")),
        *("--input", bucket.path("in/titles.jsonl.gz"), "--output", bucket.path("release")),
        *("--runner", "DataflowRunner", "--project", "lab-project", "--region", "us-central1"),
        *("--staging_location", bucket.path("stage"), "--temp_location", bucket.path("temp")),
        *("--template_location", bucket.path("job.json"), "--job_name", "lab"),
        timeout=5 * MINUTES,
    )
    assert ended.status == 0, ended.err
    staged = read_back(bucket, "stage", "job.json", "lab")
    everything = unpacked(staged.everything())
    context = run_context(SetUnionPlan(**BUDGET, policy=policy), "words")
    secret = secrets_of(RunKey.from_hex(text), context)
    assert [name for name, value in secret.items() if value in everything] == []
    assert keys_in(staged) == set()
    # The same search finds what is there.
    assert bucket.path("keys/run.key").encode() in everything
