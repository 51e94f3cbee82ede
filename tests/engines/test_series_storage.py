"""A series on object storage: killed runs, two runs at once, and state that is old or damaged."""

import concurrent.futures
import dataclasses
import json
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from beam_dpne import RunKey
from beam_dpne.accounting.population import Note
from beam_dpne.accounting.series import open_series
from beam_dpne.errors import BudgetError
from deploy.processes import Daemons, listens
from tests.accounting.test_series import InBucket, begun
from tests.conftest import ROOT
from tests.engines.conftest import deploy
from tests.engines.flink import free_ports

pytestmark = [pytest.mark.engines, pytest.mark.storage]
pytest_plugins = ["tests.engines.storage"]

# Kills the process before one of its uploads, which are in the order of the steps of a run.
KILLED = """
import os, signal, sys
from beam_dpne.storage import gcs
upload = gcs.upload
left = int(sys.argv[1])
def counted(*given):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return upload(*given)
gcs.upload = counted
"""
PROGRAM = """
from beam_dpne.cli.main import program
sys.exit(program(sys.argv[2:]))
"""
# A pool whose one process is all workers. Beam's command would start whichever `python` is on the path.
POOL = """
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer as Pool
_, server = Pool.start(port=int(sys.argv[2]))
server.wait_for_termination()
"""
NOTE = 1
LIST = NOTE + 16 + 1
MARK = LIST + 1
PART = MARK + 1
LEDGER = PART + 1
SETTLED = LEDGER + 1
# The ledger replaces the note, which a first request finds.
DONE = SETTLED + 2


@pytest.fixture
def world(bucket, tmp_path):
    return InBucket(tmp_path, bucket=bucket.path("s/"))


def test_releases_see_a_user_so_many_times_whether_runs_are_killed_or_repeated(world):
    world.create(2)
    key = RunKey(bytes(32))
    assert world.run({"a", "b"}) == 1
    assert world.run({"a", "c"}, until="start") == 2
    assert world.run({"a", "c"}, key=key, until="record") == 2
    with pytest.raises(BudgetError, match="`input` must be that of the first try"):
        world.run({"a", "b", "c"}, key=key)
    assert world.run({"a", "c"}, key=key, until="publish") == 2
    assert world.run({"a", "b", "c"}) == 3
    assert world.seen == {1: {"a", "b"}, 2: {"a", "c", "b"}, 3: {"b", "c"}}
    states = [isinstance(run, Note) for _, run in world.series.runs().values()]
    assert states == [False, False, False]


def test_of_runs_that_record_one_number_at_once_one_has_it(world, gate):
    """Their lists are held up until both are on their way."""
    world.create(1)
    runs = [begun(world, user) for user in "ab"]
    both = threading.Barrier(2)

    def hold(request):
        if request.writes("/0001.json"):
            both.wait(timeout=60)

    def record(run):
        participation, users = run
        try:
            participation.record(users, texts=[])
        except BudgetError as error:
            return str(error)
        return ""

    gate.rule = hold
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        said = list(pool.map(record, runs))
    gate.rule = lambda _: None
    assert sorted(map(bool, said)) == [False, True]
    assert "another run has taken release 1 of the series meanwhile" in max(said)
    (won, users), (_, others) = sorted(runs, key=lambda run: said[runs.index(run)])
    third, _ = begun(world, "a")
    assert third.place.number == 2
    assert third.may_take_part(np.concatenate([*users, *others])).tolist() == [False, True]
    assert world.series.counted(won.participants)[1][0] == won.name


def test_the_note_of_a_run_that_failed_stays_for_workers_that_are_still_at_work(world):
    world.create(1)
    (first, users), (second, others) = begun(world, "a"), begun(world, "b")
    assert world.series.forget(first)
    first.record(users, texts=[])
    assert not world.series.forget(first)
    # A failed run whose number another one has: its workers are refused by the list.
    assert world.series.forget(second)
    with pytest.raises(BudgetError, match="another run has taken release 1"):
        second.record(others, texts=[])


def test_a_list_that_another_run_makes_before_the_folder_is_listed_is_not_replaced(world, gate):
    world.create(1)
    (first, users), (second, others) = begun(world, "a"), begun(world, "b")
    late = []

    def overtake(request):
        # It has seen that there is no list, and looks for the key before it lists the folder.
        if "participants.json" in request.path and not late:
            late.append(request)
            first.record(users, texts=[])

    gate.rule = overtake
    with pytest.raises(BudgetError, match="another run has taken release 1"):
        second.record(others, texts=[])
    gate.rule = lambda _: None
    assert late
    assert world.series.counted(first.participants)[1][0] == first.name


def test_of_runs_with_copies_of_the_private_folder_one_is_refused(world, bucket):
    world.create(1)
    (first, users), (second, others) = begun(world, "a"), begun(world, "b")
    for name, data in bucket.files("s/private").items():
        bucket.put(f"copy/{name}", data)
    second.record(others, texts=[])
    copied = dataclasses.replace(first, participants=bucket.path("copy"))
    with pytest.raises(BudgetError, match="with a copy of the private folder"):
        copied.record(users, texts=[])


def test_a_worker_may_record_twice_and_an_upload_be_repeated(world, gate):
    """As where the answer to a request is lost: the store has the list, and says that there is one."""
    world.create(1)
    participation, users = begun(world, "a")
    lost = []

    def lose(request):
        if request.writes("/0001.json") and not lost:
            lost.append(request)
            boundary = request.body.partition(b"\r\n")[0][2:].decode()
            kind = f'multipart/related; boundary="{boundary}"'
            assert gate.answer(request, {"Content-Type": kind})[0] == 200
            return 503
        return None

    gate.rule = lose
    participation.record(users, texts=[])
    participation.record(users, texts=[])
    assert lost
    assert [*world.series.counted(participation.participants)] == [1]


DAMAGES = {
    "no folder": (
        lambda bucket: bucket.remove(*bucket.names("s/private/")),
        "must be the private folder of the series",
    ),
    "no list": (
        lambda bucket: bucket.remove("s/private/0002.json"),
        "has no participants of release 2",
    ),
    "other digests": (
        lambda bucket: bucket.put(
            next(name for name in bucket.names("s/private/0001-") if name.endswith("-a.digests")),
            bytes(16),
        ),
        "-a.digests in .* is missing or damaged",
    ),
    "an older copy of the series": (
        lambda bucket: bucket.remove(*bucket.names("s/series/0002")),
        "participants of release 2 that .* does not know",
    ),
    "another key": (
        lambda bucket: bucket.put(
            "s/private/participants.json",
            json.dumps(
                json.loads(bucket.files("s/private")["participants.json"]) | {"key": "ab" * 32}
            ),
        ),
        "has another key than the digests",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_state_that_is_missing_damaged_or_old_refuses_the_run(world, bucket, damage):
    world.create(1)
    for _ in range(2):
        world.run({f"u{n}" for n in range(100)})
    change, why = DAMAGES[damage]
    change(bucket)
    with pytest.raises(BudgetError, match=why):
        world.run({"a"})


def test_a_store_that_ignores_conditions_is_refused_when_a_series_is_made(world, gate):
    gate.honours = False
    with pytest.raises(BudgetError, match="must be on stores that keep conditions"):
        world.create(1)


def test_a_folder_that_is_in_use_is_that_of_no_new_series(world, bucket):
    world.create(1)
    with pytest.raises(BudgetError, match="`series` must be a new or empty folder"):
        world.create(1)
    bucket.remove(*bucket.names("s/series/"))
    with pytest.raises(BudgetError, match="`participants` must be a new folder"):
        world.create(1)


def run_of(bucket, folder, key, output, *more):
    return (
        *("ngrams", "--input", folder / "in.jsonl", "--output", bucket.path(output), "--overwrite"),
        *("--run_key_file", folder / key, "--max_length", "2", "--quiet", *more),
        *("--series", bucket.path("s/series"), "--participants", bucket.path("s/private")),
    )


@pytest.fixture
def made(bucket, tmp_path, cli):
    rows = [{"user": f"u{n}", "text": f"good morning {n % 2}"} for n in range(200)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, digits in (("one", "1f"), ("two", "2e")):
        (tmp_path / name).write_text(digits * 32)
        (tmp_path / name).chmod(0o600)
    budget = ("--releases", "9", "--releases_per_user", "1", "--epsilon", "8", "--delta", "1e-4")
    places = (bucket.path("s/series"), "--participants", bucket.path("s/private"))
    ended = cli("series", "create", *places, *budget)
    assert ended.status == 0, ended.err


@pytest.mark.parametrize("write", [NOTE, NOTE + 9, LIST, MARK, PART, LEDGER, SETTLED, DONE])
@pytest.mark.usefixtures("made")
def test_a_run_that_is_killed_counts_from_the_list_of_those_who_take_part(
    bucket, tmp_path, cli, write
):
    arguments = list(map(str, run_of(bucket, tmp_path, "one", "release", "--workers", "2")))
    command = [sys.executable, "-c", KILLED + PROGRAM, str(write), *arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == (0 if write == DONE else -signal.SIGKILL), ended.stderr
    counts = write > LIST
    assert ("s/private/0001.json" in bucket.names("s/private/")) == counts
    assert bool(bucket.files("release")) == (write > PART)
    before = bucket.files("release")
    ended = cli(*run_of(bucket, tmp_path, "two", "next"))
    assert ended.status == 0, ended.err
    ledger = json.loads(bucket.files("next")["ledger.json"])
    assert ledger["series"]["number"] == (2 if counts else 1)
    # Whoever took part in the first release has used up her part.
    assert (sum(part["rows"] for part in ledger["parts"]) == 0) == counts
    ended = cli(*run_of(bucket, tmp_path, "one", "release"))
    assert ended.status == 0, ended.err
    after = bucket.files("release")
    ledger = json.loads(after["ledger.json"])
    assert ledger["series"]["number"] == (1 if counts else 2)
    # What a killed run had published is not changed.
    assert before.items() <= after.items()


@pytest.fixture
def elsewhere(emulator, tmp_path):
    """Starts a pool of workers, killed before an upload if one is named; returns Prism's options."""
    ended = deploy("prism")
    assert ended.status == 0, ended.err
    daemons = Daemons(tmp_path / "daemons")

    def start(upload=0):
        (port,) = free_ports(1)
        command = [sys.executable, "-c", KILLED + POOL, str(upload), str(port)]
        daemons.start(f"pool-{port}", command, ready=listens(port))
        return (
            *("--runner", "PrismRunner", "--prism_location", ended.out.strip()),
            *("--environment_type", "EXTERNAL", "--environment_config", f"localhost:{port}"),
        )

    yield start
    daemons.stop_all()


@pytest.mark.usefixtures("made")
def test_workers_elsewhere_record_who_takes_part_and_give_the_bytes_of_this_machine(
    bucket, tmp_path, cli, launch, elsewhere
):
    """The second release leaves out whom the first one has recorded."""
    for kind in ("series", "private"):
        for name, data in bucket.files(f"s/{kind}").items():
            bucket.put(f"there/{kind}/{name}", data)
    engine = elsewhere()
    for key in ("one", "two"):
        ended = cli(*run_of(bucket, tmp_path, key, f"s/{key}"))
        assert ended.status == 0, ended.err
        given = [str(each) for each in run_of(bucket, tmp_path, key, f"s/{key}")]
        given = [each.replace("/s/", "/there/") for each in given]
        ended = launch(*given, *engine, timeout=300)
        assert ended.status == 0, ended.err
        release = bucket.files(f"there/{key}")
        assert release == bucket.files(f"s/{key}")
        rows = sum(part["rows"] for part in json.loads(release["ledger.json"])["parts"])
        assert (rows > 0) == (key == "one")

    def digests(place):
        files = bucket.files(f"{place}/private").items()
        return {name[:4] + name[17:]: data for name, data in files if name.endswith(".digests")}

    assert digests("there") == digests("s")
    assert sum(map(len, digests("there").values())) == 200 * 16
    runs = open_series(bucket.path("there/series")).runs()
    assert [isinstance(run, Note) for _, run in runs.values()] == [False, False]


# After sixteen files of digests a worker uploads the list, the mark, and the release.
@pytest.mark.parametrize("upload", [17, 19])
@pytest.mark.usefixtures("made")
def test_workers_that_are_lost_publish_nothing_before_the_list_and_a_run_goes_on(
    bucket, tmp_path, launch, elsewhere, upload
):
    given = run_of(bucket, tmp_path, "one", "release")
    ended = launch(*given, *elsewhere(upload), timeout=300)
    assert ended.status == 1
    assert bucket.files("release") == {}
    counts = upload > 17
    assert ("s/private/0001.json" in bucket.names("s/private/")) == counts
    assert ("the series counts release 1" in ended.err) == counts
    ended = launch(*given, *elsewhere(), timeout=300)
    assert ended.status == 0, ended.err
    ledger = json.loads(bucket.files("release")["ledger.json"])
    assert ledger["series"]["number"] == 1
    assert sum(part["rows"] for part in ledger["parts"]) > 0
    runs = open_series(bucket.path("s/series")).runs()
    assert [isinstance(run, Note) for _, run in runs.values()] == [False]
