"""Inputs, run keys and releases on S3 and Azure: conditional writes, and refusals in one sentence."""

import gzip
import json
import os
import time

import pytest

from beam_dpne.accounting.population import Note
from beam_dpne.errors import BudgetError, ReleaseError
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.release.reading import read_release
from beam_dpne.storage.directories import directory_at
from beam_dpne.storage.objects import ABSENT
from tests.accounting.test_series import InBucket, begun
from tests.engines.conftest import PRIVACY, SAMPLE

pytestmark = [pytest.mark.engines, pytest.mark.storage]
pytest_plugins = ["tests.engines.object_stores"]

SECONDS = 20  # in which a refusal must come, on a machine that does much else
# The variables by which a client finds its store, and the sentence if there are none.
NAMED = {"s3": ("AWS_", "aws configure"), "azfs": ("AZURE_", "--blob_service_endpoint https://")}


def test_the_program_reads_and_writes_a_bucket(stored, launch, options_of, run_key_file, embedded):
    given = {str(SAMPLE): f"{stored.root}/in/*.gz"}
    stored.put("in/titles.jsonl.gz", SAMPLE.read_bytes() + gzip.compress(b"no json\n"))
    given[str(run_key_file)] = stored.put("run.key", run_key_file.read_bytes())
    options = [given.get(part, part) for part in options_of("adaptive")]
    budget = f"{stored.root}/budget"
    cap = ("--population", "all", "--epsilon", "9", "--delta", "1e-5")
    made = launch("account", "--budget", budget, "--create", *cap)
    assert made.status == 0, made.err
    options += ["--budget", budget, "--rejects", f"{stored.root}/rejects", "--overwrite"]
    ended = launch(*options, "--output", f"{stored.root}/out/release", timeout=300)
    assert ended.status == 0, ended.err
    assert stored.files("out/release") == embedded("adaptive")
    assert read_release(f"{stored.root}/out/release").table().num_rows
    assert b"malformed JSON" in stored.files("rejects")["rejects-00000-of-00001.jsonl"]
    again = launch(*options, "--output", f"{stored.root}/out/release")
    assert again.status == 0, again.err
    said = launch("account", "--budget", budget, "--json")
    assert [run["state"] for run in json.loads(said.out)["runs"]] == ["released", "released"]


def test_a_request_for_another_version_changes_nothing(stored):
    path, store = f"{stored.root}/folder/object", stored.store
    assert store.download(path) == (None, ABSENT)
    first = store.upload(path, b"same", ABSENT)
    with pytest.raises(FileExistsError):
        store.upload(path, b"other", ABSENT)
    second = store.upload(path, b"same", first)
    assert first != second
    store.delete(path, first)
    store.upload(f"{stored.root}/folder/below/object", b"")
    assert store.versions(f"{stored.root}/folder") == {"object": second}
    store.upload(path, b"changed", second)
    with pytest.raises(FileExistsError):
        store.upload(path, b"other", second)
    assert store.download(path)[0] == b"changed"


def test_of_two_attempts_with_equal_parts_one_wins_and_stays_whole(stored):
    """The loser deletes what it wrote, and not the winner's part of the same name and bytes."""
    won, lost = (directory_at(f"{stored.root}/release") for _ in range(2))
    seen = [each.read("ledger.json") for each in (won, lost)]
    lost.put("part", b"rows")
    won.put("part", b"rows")
    won.replace("ledger.json", b"won", seen=seen[0])
    with pytest.raises(ReleaseError, match="another run published"):
        lost.replace("ledger.json", b"lost", seen=seen[1])
    lost.remove(["part"])
    assert stored.files("release") == {"part": b"rows", "ledger.json": b"won"}


def test_a_series_on_a_store_has_one_try_for_each_number(stored, tmp_path):
    world = InBucket(tmp_path, bucket=f"{stored.root}/")
    world.create(1)
    assert world.run({"a", "b"}) == 1
    key = RunKey(bytes(32))
    assert world.run({"a", "c"}, key=key, until="record") == 2
    with pytest.raises(BudgetError, match="`input` must be that of the first try"):
        world.run({"a", "b", "d"}, key=key)
    assert world.run({"a", "c"}, key=key) == 2
    (won, users), (lost, others) = begun(world, "d"), begun(world, "e")
    won.record(users, texts=[])
    for _ in range(2):
        with pytest.raises(BudgetError, match="another run has taken release 3"):
            lost.record(others, texts=[])
    assert world.run({"a", "b", "c", "d", "e"}) == 4
    # The refused try had read d before it was refused.
    assert world.seen == {1: {"a", "b"}, 2: {"c", "d"}, 4: {"e"}}
    states = [isinstance(run, Note) for _, run in world.series.runs().values()]
    assert states == [False, False, True, False]
    # Who took part is known by the digests alone, of which none may be missing.
    versions = stored.store.versions(f"{stored.root}/private")
    digests = next(name for name in versions if name.endswith("-0.digests"))
    stored.store.delete(f"{stored.root}/private/{digests}", versions[digests])
    with pytest.raises(BudgetError, match="is missing or damaged"):
        begun(world, "f")[0].open()


def refusal(program, *options, environment=None) -> str:
    begun = time.monotonic()
    ended = program.run("ngrams", *options, *PRIVACY, env=environment or program.environment())
    assert time.monotonic() - begun < SECONDS
    assert (ended.status, ended.out, ended.err.count("\n")) == (2, "", 1), ended.err
    return ended.err


def test_what_is_missing_is_named_in_one_sentence(store_scheme, stored, program):
    assert "does not exist" in refusal(
        program, "--input", SAMPLE, "--output", f"{stored.missing}/o"
    )
    variables, remedy = NAMED[store_scheme]
    bare = {name: value for name, value in os.environ.items() if not name.startswith(variables)}
    bare["HOME"] = str(program.temporary)
    said = refusal(program, "--input", f"{stored.root}/*", "--output", "o", environment=bare)
    assert remedy in said


def test_a_path_of_another_account_is_refused(store_scheme, stored, program):
    if store_scheme == "azfs":
        said = refusal(program, "--input", SAMPLE, "--output", "azfs://another/lab/o")
        assert "the account another" in said
