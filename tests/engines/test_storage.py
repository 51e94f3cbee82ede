"""Inputs, rejects and releases on object storage: real kills, real races, clear refusals."""

import concurrent.futures
import gzip
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_dpne.release.reading import read_release
from tests.conftest import ROOT, Program
from tests.engines.conftest import PRIVACY, SAMPLE, release_bytes

pytestmark = [pytest.mark.engines, pytest.mark.storage]
pytest_plugins = ["tests.engines.storage"]

SECONDS = 20  # in which a launcher must say what is wrong, on a machine that does much else
LEDGER = "ledger.json"


@pytest.mark.parametrize("job", ["adaptive", "screened_gaussian", "counts"])
def test_the_program_reads_and_writes_a_bucket(
    bucket, gate, launch, options_of, run_key_file, embedded, job
):
    """Also without any permission on the bucket itself."""
    itself = f"/storage/v1/b/{bucket.name}"
    gate.rule = lambda request: 403 if request.path.partition("?")[0] == itself else None
    bucket.put("in/titles.jsonl.gz", SAMPLE.read_bytes() + gzip.compress(b"no json\n"))
    given = {str(SAMPLE): bucket.path("in/*.gz")}
    given[str(run_key_file)] = bucket.put("run.key", run_key_file.read_text())
    output, rejects = bucket.path("out/release"), bucket.path("out/rejects")
    options = [given.get(part, part) for part in options_of(job)]
    ended = launch(*options, "--output", output, "--rejects", rejects, timeout=300)
    assert ended.status == 0, ended.err
    assert bucket.files("out/release") == embedded(job)
    ((name, lines),) = bucket.files("out/rejects").items()
    assert name == "rejects-00000-of-00001.jsonl"
    assert b"malformed JSON" in lines
    assert read_release(output).table().num_rows


def test_files_of_many_kinds_are_read_from_a_folder_of_a_bucket(bucket, launch):
    def rows(word):
        return [{"user": f"u{i}", "text": f"good {word}"} for i in range(400)]

    parquet = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows("parquet")), parquet, row_group_size=10)
    lines = "".join(json.dumps(row) + "\n" for row in rows("lines"))
    packed = "".join(json.dumps(row) + "\n" for row in rows("packed"))
    table = "user,text\n" + "".join(f'{row["user"]},"{row["text"]}"\n' for row in rows("table"))
    bucket.put("in/a.jsonl", lines)
    bucket.put("in/b.jsonl.gz", gzip.compress(packed.encode()))
    bucket.put("in/c.csv", table)
    bucket.put("in/d.parquet", parquet.getvalue().to_pybytes())
    ended = launch("ngrams", "--input", bucket.path("in/*"), "--output", bucket.path("o"), *PRIVACY)
    assert ended.status == 0, ended.err
    released = set(read_release(bucket.path("o")).table()["ngram"].to_pylist())
    assert {f"good {word}" for word in ("lines", "packed", "table", "parquet")} <= released


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.parquet"])
def test_a_truncated_object_is_refused_and_nothing_is_published(bucket, launch, name):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([{"user": "u", "text": "some words"}] * 5000), sink)
    lines = b'{"user": "u1", "text": "good morning"}\n'
    whole = {"a.jsonl.gz": gzip.compress(lines * 500), "a.parquet": sink.getvalue().to_pybytes()}
    path = bucket.put(name, whole[name][:-4])
    ended = launch("ngrams", "--input", path, "--output", bucket.path("release"), *PRIVACY)
    assert ended.status in (1, 2)
    assert path in ended.err
    assert bucket.names("release") == []


# Publishing


def test_a_failed_attempt_leaves_the_bucket_as_it_was(bucket, gate, launch, job_options):
    refused = ["-00000-of-00001.jsonl", LEDGER]
    for name in refused:
        gate.rule = lambda request, name=name: 403 if request.writes(name) else None
        ended = launch(*job_options, "--output", bucket.path("o"))
        assert ended.status == 1
        assert "Forbidden" in ended.err
        assert bucket.files("o") == {}


def test_a_killed_run_leaves_no_release_and_the_next_one_says_so(
    bucket, gate, program, launch, job_options, embedded
):
    """Killed after its parts and before its ledger, which never comes to the emulator."""
    held = threading.Event()

    def hold_the_ledger(request):
        if request.writes(LEDGER):
            held.set()
            return 503
        return None

    gate.rule = hold_the_ledger
    with program.start(*job_options, "--output", bucket.path("o")) as process:
        assert held.wait(60)
        process.send_signal(signal.SIGKILL)
    gate.rule = lambda _: None
    assert bucket.names("o/")
    refused = launch(*job_options, "--output", bucket.path("o"))
    assert refused.status == 2
    assert "is not empty" in refused.err
    ended = launch(*job_options, "--output", bucket.path("o"), "--overwrite")
    assert ended.status == 0, ended.err
    assert bucket.files("o") == embedded("adaptive")


def test_two_programs_at_once_publish_one_release(bucket, gate, tmp_path):
    """Parts and ledgers are held up until both are on their way; keys are fresh, so contents differ."""
    both = {LEDGER: threading.Barrier(2), ".jsonl": threading.Barrier(2)}

    def hold(request):
        for name, barrier in both.items():
            if request.writes(name):
                barrier.wait(timeout=100)

    gate.rule = hold
    options = ("ngrams", "--input", SAMPLE, "--output", bucket.path("o"), *PRIVACY)
    # Each has a temporary directory of its own, as on two machines; on one, the second is refused.
    machines = [Program(tmp_path / name) for name in "ab"]
    for machine in machines:
        machine.temporary.mkdir()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = pool.map(lambda machine: machine.run(*options), machines)
    won, lost = sorted(runs, key=lambda ended: ended.status)
    assert (won.status, lost.status) == (0, 1), (won.err, lost.err)
    assert "another run published" in lost.err
    assert read_release(bucket.path("o")).table().num_rows
    files = bucket.files("o")
    assert {name for name in files if name != LEDGER} == {
        part["name"] for part in json.loads(files[LEDGER])["parts"]
    }


# Access: one clear error before Beam starts


@pytest.fixture
def without_credentials(tmp_path, emulator) -> dict[str, str]:
    """The environment of somebody who has never heard of Google."""
    known = ("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG")
    others = {key: value for key, value in os.environ.items() if key not in known}
    return {**others, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}


def refusal(program, *options, environment=None) -> str:
    """The line with which the program ends, with status 2 and in time."""
    begun = time.monotonic()
    ended = program.run("ngrams", *options, *PRIVACY, env=environment or program.environment())
    assert time.monotonic() - begun < SECONDS
    assert (ended.status, ended.out, ended.err.count("\n")) == (2, "", 1), ended.err
    return ended.err


def test_missing_credentials_are_one_clear_error(program, without_credentials):
    paths = ("--input", SAMPLE, "--output", "gs://some-bucket/o")
    said = refusal(program, *paths, environment=without_credentials)
    assert "gcloud auth application-default login" in said


def test_a_missing_bucket_is_one_clear_error(bucket, program):
    said = refusal(program, "--input", SAMPLE, "--output", "gs://no-such-lab/o")
    assert "NotFound" in said
    assert "no-such-lab" in said


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (lambda request: 403 if request.method == "GET" else None, "Forbidden"),
        (lambda request: 403 if request.method == "POST" else None, "Forbidden"),
        (lambda _: 401, "credentials"),
        (lambda _: 503, "ServiceUnavailable"),
    ],
)
def test_a_service_that_refuses_is_one_clear_error(bucket, gate, program, rule, said):
    path = bucket.put("in.jsonl.gz", SAMPLE.read_bytes())
    gate.rule = rule
    assert said in refusal(program, "--input", path, "--output", bucket.path("o"))


WITHOUT_GCP = """
    import sys
    class Missing:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] == "google" and name != "google":
                if name.split(".")[1] != "protobuf":
                    raise ModuleNotFoundError(name)
    sys.meta_path.insert(0, Missing())
    from beam_dpne.cli.main import main
    sys.exit(main(sys.argv[1:]))
"""


def test_the_core_works_without_the_extra_and_names_it(job_options, tmp_path, without_credentials):
    for output, status in ((tmp_path / "o", 0), ("gs://bucket/o", 2)):
        command = [sys.executable, "-c", textwrap.dedent(WITHOUT_GCP), *job_options]
        command += ["--output", str(output)]
        settings = {"env": without_credentials, "capture_output": True, "text": True}
        done = subprocess.run(command, check=False, **settings)
        assert done.returncode == status, done.stderr
    assert "Run pip install '.[gcp]'" in done.stderr
    assert release_bytes(tmp_path / "o")
