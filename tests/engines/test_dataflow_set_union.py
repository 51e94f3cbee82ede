"""Set unions staged for Dataflow: no key where none belongs."""

import secrets

import pytest

from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.set_union.transform import run_context
from tests.engines.conftest import BUDGET, POLICIES, SAMPLE
from tests.engines.staged import read_back, secrets_of, unpacked

pytestmark = [pytest.mark.engines, pytest.mark.dataflow]
pytest_plugins = ["tests.engines.storage"]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_run_key_is_not_in_a_graph_whose_workers_read_it(emulator, launch, policy, monkeypatch):
    from beam_dpne.storage.directories import connect_anonymously_to_emulators
    from tests.engines.storage import Bucket

    monkeypatch.setenv("STORAGE_EMULATOR_HOST", emulator)
    connect_anonymously_to_emulators()
    bucket = Bucket()
    bucket.put("in/titles.jsonl.gz", SAMPLE.read_bytes())
    bucket.put("keys/run.key", text := secrets.token_hex(32))
    ended = launch(
        *("set-union", *BUDGET, "--policy", policy),
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
    secret = secrets_of(RunKey.from_hex(text), context_of(policy))
    assert [name for name, value in secret.items() if value in everything] == []
    # The same search finds what is there.
    assert bucket.path("keys/run.key").encode() in everything


def context_of(policy: str) -> str:
    """What the run key is bound to."""
    epsilon, delta = map(float, BUDGET[1::2])
    plan = SetUnionPlan(epsilon=epsilon, delta=delta, policy=policy)
    return run_context(plan, "words")
