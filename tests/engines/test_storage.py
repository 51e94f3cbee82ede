"""Inputs, rejects and releases on object storage: real emulators, real kills, real races."""

import concurrent.futures
import gzip
import io
import os
import pathlib
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that

from beam_dpne.errors import AccessError, InputError, ReleaseError, UsageError
from beam_dpne.exports.writing import export
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.headers import check_fields
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.rejects import WriteRejects, tidied
from beam_dpne.reading.transform import ReadDocuments
from beam_dpne.release.files import (
    LEDGER_NAME,
    OUTPUT_FORMATS,
    listed_parts,
    read_ledger,
)
from beam_dpne.release.publishing import check_output
from beam_dpne.release.reading import read_release
from beam_dpne.storage.access import check_access, directory_at
from tests.conftest import ROOT, Ended, Program
from tests.engines.conftest import JOBS, PRIVACY, SAMPLE, release_bytes
from tests.reading.test_transform import COMPRESS, FILES, read
from tests.reading.test_transform import ROWS as DOCUMENTS
from tests.release.test_publishing import MANY, OTHER, ROWS, SETS, publish, publish_by_beam, tuples
from tests.support import releases

pytestmark = [pytest.mark.engines, pytest.mark.storage]
pytest_plugins = ["tests.engines.storage"]

SECONDS = 10  # in which a launcher must say what is wrong


# Reading


@pytest.mark.parametrize("codec", COMPRESS)
@pytest.mark.parametrize("kind", FILES)
def test_text_formats_are_read_from_a_bucket(bucket, kind, codec):
    path = bucket.put(f"a.{kind}{codec}", COMPRESS[codec](FILES[kind].encode()))
    rows = [
        (user, text.replace("\n", "\\n") if kind == "tsv" else text) for user, text in DOCUMENTS
    ]
    check_fields(match_inputs([path]), ReadOptions())
    for block_bytes in (7, 1000):
        assert read([path], block_bytes=block_bytes, split_bytes=11) == (rows, [])


def test_sequences_are_read_from_a_bucket(bucket):
    path = bucket.put("a.txt", "1 2\n\n3 4\n")
    rows, _ = read([path], input_format="sequences", split_bytes=3)
    assert [text for _, text in rows] == ["1 2", "3 4"]


def test_parquet_is_read_from_a_bucket_by_row_groups(bucket):
    table = pa.table({"user": [f"u{i}" for i in range(100)], "text": ["ab"] * 100})
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=10)
    path = bucket.put("a.parquet", sink.getvalue())
    rows, _ = read([path], split_bytes=100)
    assert rows == [(f"u{i}", "ab") for i in range(100)]


def test_globs_and_several_inputs_are_matched_in_a_bucket(bucket):
    for name in ("day/1.jsonl", "day/2.jsonl", "day/", "day/old/3.jsonl", "b.jsonl"):
        bucket.put(name, FILES["jsonl"])
    found = match_inputs([bucket.path("day/*"), bucket.path("b.jsonl"), bucket.path("day/1.jsonl")])
    assert [file.path for file in found] == [
        bucket.path(name) for name in ("b.jsonl", "day/1.jsonl", "day/2.jsonl")
    ]
    assert {file.size for file in found} == {len(FILES["jsonl"].encode())}
    for pattern in ("c.jsonl", "c*.jsonl"):
        with pytest.raises(FileNotFoundError, match=r"input must name existing files.*gs://"):
            match_inputs([bucket.path(pattern)])


@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize("marker", [False, True])
def test_a_folder_of_a_bucket_stands_for_its_objects(bucket, slash, marker):
    names = ("day/1.jsonl", "day/2.jsonl", "day/_SUCCESS", "day/old/3.jsonl", "daytime.jsonl")
    for name in (*names, *(["day/"] if marker else [])):
        bucket.put(name, FILES["jsonl"])
    found = match_inputs([bucket.path("day") + slash])
    assert [file.path for file in found] == [bucket.path(name) for name in names[:2]]
    assert read([bucket.path("day") + slash]) == (DOCUMENTS * 2, [])
    bucket.put("day/4.csv", "user,text")
    with pytest.raises(InputError, match=r"extensions \.jsonl, \.csv"):
        match_inputs([bucket.path("day") + slash])


def test_an_object_in_utf16_is_read_as_one_piece(bucket):
    path = bucket.put("a.csv", FILES["csv"].encode("utf-16"))
    check_fields(match_inputs([path]), ReadOptions())
    assert read([path], split_bytes=11) == (DOCUMENTS, [])


def test_a_pipeline_reads_each_record_of_a_split_object_once(bucket):
    lines = [f'{{"user":"u{i}","text":"word{i}"}}\n' for i in range(5000)]
    path = bucket.put("a.jsonl", "".join(lines))

    def check(sizes):
        assert sum(sizes) == len(lines)
        assert len(sizes) > 20

    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        read = pipeline | ReadDocuments(inputs=[path], split_bytes=9000, block_bytes=1000)
        assert_that(read.documents | beam.Map(lambda batch: batch.num_rows), check)


def test_a_split_object_is_fetched_about_once(bucket, gate):
    """Ranges would otherwise each fetch a large buffer behind their ends."""
    line = f'{{"user":"u","text":"{"ab " * 300}"}}\n'
    path = bucket.put("a.jsonl", line * (32 * 2**20 // len(line)))
    (file,) = match_inputs([path])
    gate.sent = 0
    rows, _ = read([path], split_bytes=4 * 2**20)
    assert len(rows) == file.size // len(line)
    assert file.size < gate.sent < 1.6 * file.size


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.parquet", "a.csv"])
def test_a_truncated_object_is_refused_and_nothing_is_published(bucket, launch, name):
    records = [{"user": f"u{i}", "text": f"some words, {i}"} for i in range(5000)]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(records), sink)
    whole = {
        "a.jsonl.gz": gzip.compress(FILES["jsonl"].encode() * 500),
        "a.parquet": sink.getvalue(),
        "a.csv": b"user,text\n" + b'u,"two words"\n' * 500,
    }[name]
    path = bucket.put(name, whole[: len(whole) - 4])
    output = bucket.path("release")
    ended = launch("ngrams", "--input", path, "--output", output, *PRIVACY)
    assert ended.status in (1, 2)
    assert path in ended.err
    assert "truncated" in ended.err
    assert bucket.names("release") == []


# Publishing


@pytest.mark.parametrize("output_format", OUTPUT_FORMATS)
def test_a_bucket_holds_the_same_release_as_a_directory(bucket, tmp_path, output_format):
    output = bucket.path("o")
    check_output(output, overwrite=False)
    publish(output, rows_per_part=2, output_format=output_format)
    publish(output, rows_per_part=2, output_format=output_format)
    publish(tmp_path, rows_per_part=2, output_format=output_format)
    assert bucket.files("o") == release_bytes(tmp_path)
    assert tuples(read_release(output).table()) == ROWS
    assert read_ledger(output) == read_ledger(str(tmp_path))
    with pytest.raises(ReleaseError, match="is a release already"):
        check_output(output, overwrite=False)
    with pytest.raises(ReleaseError, match="is a release already"):
        publish(output, OTHER)


@pytest.mark.parametrize("job", ["adaptive", "one_round", "screened_gaussian"])
def test_the_program_reads_and_writes_a_bucket(bucket, launch, run_key_file, embedded, job):
    data = SAMPLE.read_bytes()
    bucket.put("in/titles.jsonl.gz", data + gzip.compress(b"no json\n"))
    output, rejects = bucket.path("out/release"), bucket.path("out/rejects")
    options = ("--input", bucket.path("in/*.gz"), "--output", output, "--rejects", rejects)
    ended = launch(*JOBS[job], *options, "--run_key_file", run_key_file)
    assert ended.status == 0, ended.err
    assert bucket.files("out/release") == embedded(job)
    assert f"Files: {output}" in ended.out
    ((name, lines),) = bucket.files("out/rejects").items()
    assert name == "rejects-00000-of-00001.jsonl"
    assert b"malformed JSON" in lines


def test_no_permission_on_the_bucket_itself_is_needed(
    bucket, gate, launch, run_key_file, embedded_release
):
    itself = f"/storage/v1/b/{bucket.name}"
    gate.rule = lambda request: 403 if request.path.partition("?")[0] == itself else None
    bucket.put("in.jsonl.gz", SAMPLE.read_bytes())
    options = ("--input", bucket.path("in.jsonl.gz"), "--output", bucket.path("o"), *PRIVACY)
    ended = launch("ngrams", *options, "--run_key_file", run_key_file)
    assert ended.status == 0, ended.err
    assert bucket.files("o") == embedded_release


def test_repeated_bundles_publish_one_release_in_a_bucket(bucket, tmp_path):
    publish_by_beam(bucket.path("o"), rows_per_part=2, bundle_repeat=3)
    publish(tmp_path, rows_per_part=2)
    assert bucket.files("o") == release_bytes(tmp_path)


def test_overwriting_in_a_bucket_replaces_the_release_and_nothing_else(bucket, tmp_path):
    others = {"o/notes.txt": b"mine", "o/sub/ledger.json": b"mine", "o2/ledger.json": b"mine"}
    for name, data in others.items():
        bucket.put(name, data)
    publish(bucket.path("o"), rows_per_part=1, overwrite=True)
    publish(bucket.path("o"), OTHER, overwrite=True)
    publish(tmp_path, OTHER)
    release = {f"o/{name}": data for name, data in release_bytes(tmp_path).items()}
    assert bucket.files("") == others | release


@pytest.mark.parametrize("old", [None, SETS])
@pytest.mark.parametrize("refused", ["-00002-of-00005.jsonl", LEDGER_NAME])
def test_a_failed_attempt_leaves_the_bucket_as_it_was(bucket, gate, refused, old):
    if old:
        publish(bucket.path("o"), old)
    before = bucket.files("o")
    gate.rule = lambda request: 403 if request.writes(refused) else None
    with pytest.raises(ReleaseError, match=r"cannot be published in gs://.*permission denied"):
        publish(bucket.path("o"), MANY, rows_per_part=1000, overwrite=True)
    assert bucket.files("o") == before
    assert any(request.writes("-00000-of-00005.jsonl") for request in gate.requests)


def killed_while_it_publishes(bucket, prefix: str, *arguments: str) -> None:
    """Kills a process with SIGKILL after some of its parts and before its ledger."""
    code = """
        import sys
        from tests.release.test_publishing import MANY, publish
        publish(sys.argv[1], MANY, rows_per_part=2, overwrite="overwrite" in sys.argv)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), bucket.path(prefix), *arguments]
    before = len(bucket.names(f"{prefix}/"))
    with subprocess.Popen(command, cwd=ROOT) as process:
        while len(bucket.names(f"{prefix}/")) < before + 3:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


def test_a_killed_run_leaves_no_release_and_the_next_one_says_so(bucket, launch, job_options):
    killed_while_it_publishes(bucket, "o")
    left = bucket.names("o/")
    assert len(left) >= 3
    assert bucket.path("o/ledger.json") not in left
    with pytest.raises(ReleaseError):
        read_release(bucket.path("o")).table()
    refused = launch(*job_options, "--output", bucket.path("o"))
    assert refused.status == 2
    assert refused.err.count("\n") == 1
    assert f"{len(left)} files of a run that has not finished" in refused.err
    assert "set overwrite" in refused.err
    assert bucket.names("o/") == left


def test_the_next_run_with_overwrite_removes_what_a_killed_one_left(
    bucket, launch, job_options, embedded_release
):
    killed_while_it_publishes(bucket, "o")
    ended = launch(*job_options, "--output", bucket.path("o"), "--overwrite")
    assert ended.status == 0, ended.err
    assert bucket.files("o") == embedded_release


def test_an_overwrite_that_is_killed_leaves_the_old_release(bucket, tmp_path):
    publish(bucket.path("o"))
    killed_while_it_publishes(bucket, "o", "overwrite")
    assert tuples(read_release(bucket.path("o")).table()) == ROWS
    publish(bucket.path("o"), OTHER, overwrite=True)
    publish(tmp_path, OTHER)
    assert bucket.files("o") == release_bytes(tmp_path)


def test_temporary_files_of_rejects_are_removed_when_a_run_fails(bucket):
    for name in ("rejects/beam-temp-rejects-1/before", "rejects/rejects-00000-of-00001.jsonl"):
        bucket.put(name, b"")
    before = bucket.names()

    rejects = bucket.path("rejects")

    def fail(_):
        directory_at(f"{rejects}/beam-temp-rejects-2").put("half", b"")
        raise RuntimeError

    def run():
        with tidied(rejects), beam.Pipeline(runner=FnApiRunner()) as pipeline:
            _ = pipeline | beam.Create([1]) | beam.Map(fail) | WriteRejects(path=rejects)

    with pytest.raises(RuntimeError):
        run()
    assert bucket.names() == before


# Several runs at the same time


def publish_at_once(output: str, barrier: threading.Barrier, sets, **changes) -> str:
    barrier.wait()
    try:
        publish(output, sets, **changes)
    except ReleaseError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("overwrite", [False, True])
def test_of_two_attempts_at_once_one_wins_whole(strict_bucket, tmp_path, overwrite):
    publish(tmp_path / "many", MANY, rows_per_part=400)
    publish(tmp_path / "other", OTHER)
    whole = [release_bytes(tmp_path / "many"), release_bytes(tmp_path / "other")]
    beaten = 0
    for turn in range(8):
        prefix, barrier = f"o{turn}", threading.Barrier(2)
        if overwrite:
            publish(strict_bucket.path(prefix))
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            output, wish = strict_bucket.path(prefix), {"overwrite": overwrite}
            many = pool.submit(publish_at_once, output, barrier, MANY, rows_per_part=400, **wish)
            other = pool.submit(publish_at_once, output, barrier, OTHER, **wish)
            said = [many.result(), other.result()]
        files = strict_bucket.files(prefix)
        assert files in whole
        assert listed_parts(files[LEDGER_NAME]) == set(files) - {LEDGER_NAME}
        assert not all(said)
        if all(not text for text in said):
            assert overwrite  # the one that began when the other was done
        beaten += any("another run published" in text for text in said)
    assert beaten


def test_an_attempt_that_publishes_between_two_looks_keeps_its_release_and_leaves_no_more(
    strict_bucket, tmp_path, monkeypatch
):
    publish(tmp_path, MANY, rows_per_part=400)
    output = strict_bucket.path("o")
    publish(output)
    kind, other = type(directory_at(output)), []
    usual = kind.names

    def names(self):
        found = usual(self)
        if not other:
            other.append(True)
            publish(output, MANY, rows_per_part=400, overwrite=True)
        return found

    monkeypatch.setattr(kind, "names", names)
    with pytest.raises(ReleaseError, match="another run published"):
        publish(output, OTHER, overwrite=True)
    assert strict_bucket.files("o") == release_bytes(tmp_path)


def test_equal_attempts_at_once_all_publish(strict_bucket, tmp_path):
    publish(tmp_path, rows_per_part=1)
    for turn in range(4):
        barrier = threading.Barrier(4)
        output = strict_bucket.path(f"o{turn}")
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            attempts = [
                pool.submit(publish_at_once, output, barrier, SETS, rows_per_part=1)
                for _ in range(4)
            ]
            assert [attempt.result() for attempt in attempts] == [""] * 4
        assert strict_bucket.files(f"o{turn}") == release_bytes(tmp_path)


def test_two_programs_at_once_publish_one_release(strict_bucket, strict_gate, launch):
    """Both ledgers are held up until both are on their way; keys are fresh, so contents differ."""
    both = threading.Barrier(2)

    def hold_ledgers(request):
        if request.writes(LEDGER_NAME):
            both.wait(timeout=100)

    strict_gate.rule = hold_ledgers
    output = strict_bucket.path("o")
    options = ("ngrams", "--input", SAMPLE, "--output", output, *PRIVACY)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: launch(*options), range(2))
    won, lost = sorted((first, second), key=lambda ended: ended.status)
    assert (won.status, lost.status) == (0, 1), (won.err, lost.err)
    assert "another run published" in lost.err
    assert len(read_release(output).table()) > 0
    files = strict_bucket.files("o")
    assert listed_parts(files[LEDGER_NAME]) == set(files) - {LEDGER_NAME}


def test_a_ledger_takes_only_the_place_of_the_one_that_was_read(strict_bucket):
    attempts = [directory_at(strict_bucket.path("o")) for _ in range(3)]
    for ledger, again in ((None, b"1"), (b"1", b"2")):
        assert [attempt.read(LEDGER_NAME) for attempt in attempts] == [ledger] * 3
        first, second, third = attempts
        first.replace(LEDGER_NAME, again, seen=ledger)
        with pytest.raises(ReleaseError, match="another run published"):
            second.replace(LEDGER_NAME, b"other", seen=ledger)
        third.replace(LEDGER_NAME, again, seen=ledger)
        assert strict_bucket.files("o") == {LEDGER_NAME: again}


def test_an_attempt_deletes_only_what_no_other_has_written_since(strict_bucket, strict_gate):
    first, second, third = (directory_at(strict_bucket.path("o")) for _ in range(3))
    first.put("both", b"same")
    first.put("mine", b"1")
    second.put("both", b"same")
    assert sorted(third.names()) == ["both", "mine"]
    first.put("mine", b"again")
    first.remove(["both", "mine", "never there"])
    third.remove(["mine"])
    second.remove(["both"])
    assert strict_bucket.files("o") == {"both": b"same", "mine": b"again"}
    third.remove(["both"])
    assert strict_bucket.files("o") == {"mine": b"again"}


def test_a_launcher_that_probes_is_not_taken_for_an_unfinished_run(bucket):
    bucket.put(f"o/.probe.tmp-{'0' * 32}", b"?")
    check_output(bucket.path("o"), overwrite=False)
    bucket.put(f"o/ngrams-{'0' * 16}-00000-of-00001.jsonl", b"")
    with pytest.raises(
        ReleaseError, match=r"holds a file of a run that has not finished.*ngrams-0"
    ):
        check_output(bucket.path("o"), overwrite=False)


# Access: one clear error before Beam starts


@pytest.fixture
def without_credentials(tmp_path) -> dict[str, str]:
    """The environment of somebody who has never heard of Google."""
    (tmp_path / "home").mkdir()
    known = ("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG")
    others = {key: value for key, value in os.environ.items() if key not in known}
    return {**others, "HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}


def refusal(program: Program, *options: object, environment=None) -> str:
    """The line with which the program ends, with status 2 and in time."""
    ended, seconds = timed(program, *options, environment=environment)
    if seconds >= SECONDS:  # on a busy machine a refusal without any storage takes long as well
        elsewhere, start = timed(
            program, "--input", "/no/such/file", "--output", program.temporary / "o"
        )
        assert elsewhere.status == 2
        assert seconds < 2 * start + 8
    print(f"refused after {seconds:.1f} s: {ended.err.strip()}")
    assert ended.status == 2, ended.err
    assert (ended.out, ended.err.count("\n")) == ("", 1), ended.err
    return ended.err


def timed(program: Program, *options: object, environment=None) -> tuple[Ended, float]:
    started = time.monotonic()
    ended = program.run("ngrams", *options, *PRIVACY, env=environment or program.environment())
    return ended, time.monotonic() - started


@pytest.mark.parametrize("side", ["--input", "--output"])
def test_missing_credentials_are_one_clear_error(program, without_credentials, tmp_path, side):
    others = {"--input": SAMPLE, "--output": tmp_path / "o"}
    paths = others | {side: "gs://some-bucket/a.jsonl"}
    said = refusal(program, *sum(paths.items(), ()), environment=without_credentials)
    assert "none were found" in said
    assert "gcloud auth application-default login" in said
    assert not (tmp_path / "o").exists()


def test_a_metadata_server_that_is_silent_does_not_hold_the_launcher_up(
    program, without_credentials
):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = {"GCE_METADATA_IP": f"127.0.0.1:{silent.getsockname()[1]}"}
        paths = ("--input", SAMPLE, "--output", "gs://some-bucket/o")
        said = refusal(program, *paths, environment=without_credentials | server)
    assert "none were found" in said


def test_a_file_of_credentials_that_is_not_there_is_named(program, without_credentials):
    key = {"GOOGLE_APPLICATION_CREDENTIALS": "/no/such/key.json"}
    paths = ("--input", SAMPLE, "--output", "gs://some-bucket/o")
    said = refusal(program, *paths, environment=without_credentials | key)
    assert "GOOGLE_APPLICATION_CREDENTIALS must name a file" in said
    assert "/no/such/key.json" in said


@pytest.mark.parametrize("side", ["--input", "--output", "--rejects"])
def test_a_missing_bucket_is_one_clear_error(bucket, program, tmp_path, side):
    paths = {"--input": SAMPLE, "--output": tmp_path / "o"} | {side: "gs://no-such-lab/a*.jsonl"}
    said = refusal(program, *sum(paths.items(), ()))
    assert "gs://no-such-lab/a*.jsonl cannot be used: bucket no-such-lab" in said
    assert "does not exist" in said


@pytest.mark.parametrize("denied", ["GET", "POST", "DELETE"])
def test_denied_permission_is_one_clear_error(bucket, gate, program, denied):
    gate.rule = lambda request: 403 if request.method == denied else None
    path = bucket.put("in.jsonl.gz", b"") if denied != "POST" else SAMPLE
    said = refusal(program, "--input", path, "--output", bucket.path("o"))
    assert "permission denied" in said
    assert f"a role on bucket {bucket.name}, roles/storage.objectViewer" in said


def test_refused_credentials_are_one_clear_error(bucket, gate, program):
    gate.rule = lambda _: 401
    said = refusal(program, "--input", bucket.path("a.jsonl"), "--output", bucket.path("o"))
    assert "credentials were refused" in said


@pytest.mark.parametrize("trouble", ["silent", "busy"])
def test_a_service_that_does_not_answer_is_one_clear_error(bucket, gate, program, trouble):
    over = threading.Event()
    gate.rule = lambda _: 503 if trouble == "busy" else over.wait(30) and 503
    said = refusal(program, "--input", SAMPLE, "--output", bucket.path("o"))
    over.set()
    assert "no answer from its storage in 5 s" in said
    assert f"Check STORAGE_EMULATOR_HOST={gate.address}" in said


def test_good_access_leaves_nothing(bucket):
    path = bucket.put("in/a.jsonl", b"")
    check_access([path, bucket.path("in/*")], [bucket.path("o"), bucket.path("rejects")])
    assert bucket.names() == ["in/a.jsonl"]


def test_a_release_without_a_bucket_is_not_read(bucket):
    with pytest.raises(ReleaseError):
        read_release("gs://no-such-lab/o").table()
    with pytest.raises(InputError, match=r"gs://no-such-lab/\*.*NotFound"):
        match_inputs(["gs://no-such-lab/*"])


@pytest.mark.parametrize(
    ("path", "remedy"),
    [
        ("s3://b/a.jsonl", r"pip install 'apache-beam\[aws\]'"),
        ("hdfs://b/a.jsonl", r"pip install 'apache-beam\[hadoop\]'"),
        ("ftp://b/a.jsonl", "paths must be local or begin with gs://"),
    ],
)
def test_a_file_system_that_is_not_installed_is_named(path, remedy):
    for attempt in (
        lambda: check_access([path], []),
        lambda: match_inputs([path]),
        lambda: directory_at(path),
    ):
        with pytest.raises(AccessError, match=remedy):
            attempt()


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


@pytest.mark.parametrize(
    ("place", "status"), [("{}", 0), ("gs://bucket/o", 2)], ids=["local", "gs"]
)
def test_the_core_works_without_the_extra(
    job_options, tmp_path, without_credentials, place, status
):
    command = [sys.executable, "-c", textwrap.dedent(WITHOUT_GCP), *job_options, "--output"]
    output = place.format(tmp_path / "o")
    done = subprocess.run(
        [*command, output], env=without_credentials, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stderr
    if status:
        assert done.stderr.endswith("got gs://bucket/o. Run pip install 'beam-dpne[gcp]'.\n")
    else:
        assert pathlib.Path(output, LEDGER_NAME).exists()


# The failure log


def test_a_failure_log_goes_into_a_bucket_where_the_operator_says_so(bucket, launch, tmp_path):
    (tmp_path / "own_splitter.py").write_text(
        "def quotes_the_text(texts):\n    raise KeyError(f'cannot split {texts[0]}')\n"
    )
    notes = bucket.put("notes.jsonl", '{"user": "u1", "text": "zebra4711"}\n')
    paths = os.pathsep.join([str(ROOT), str(tmp_path), os.environ.get("PYTHONPATH", "")])

    def run(log, *more):
        files = ("--input", notes, "--output", bucket.path("release"), *PRIVACY)
        own = ("--tokenizer", "own_splitter:quotes_the_text", "--failure_log", bucket.path(log))
        return launch("ngrams", *files, *own, *more, env={**os.environ, "PYTHONPATH": paths})

    refused = run("private/a.log")
    assert (refused.status, refused.err.count("\n")) == (2, 1)
    assert "--failure_log_remote" in refused.err
    inside = run("release/a.log", "--failure_log_remote")
    assert inside.status == 2
    assert "outside the directory of the release" in inside.err
    ended = run("private/a.log", "--failure_log_remote")
    assert ended.status == 1, ended.err
    assert f"The whole failure is in {bucket.path('private/a.log')}" in ended.err
    assert "zebra4711" not in ended.err
    text = bucket.files("private/a.log")[""].decode()
    assert "KeyError: 'cannot split zebra4711'" in text
    again = run("private/a.log", "--failure_log_remote")
    assert again.status == 2
    assert "must be a new file in a bucket" in again.err
    assert set(bucket.files("")) == {"notes.jsonl", "private/a.log"}


# Exports


def test_a_release_in_a_bucket_is_exported_to_a_bucket(bucket, tmp_path):
    release = releases.ngrams(tmp_path / "release", {("see",): 9, ("see", "you"): 8})
    for path in release.iterdir():
        bucket.put(f"release/{path.name}", path.read_bytes())
    source, output = bucket.path("release"), bucket.path("exports/x.csv")
    data = export(source, "csv", output).data
    assert bucket.files("exports")["x.csv"] == data
    assert len(bucket.names("exports")) == 1
    assert export(str(release), "csv", str(tmp_path / "x")).data == data
    with pytest.raises(UsageError, match=r"a new file, got output=gs://.*/exports/x\.csv"):
        export(source, "card", output)
    card = export(source, "card", output, overwrite=True).data
    assert bucket.files("exports")["x.csv"] == card
