"""A run of a series that is killed before any of its writes: what counts, and what a retry gives."""

import json
import signal
import subprocess
import sys

import pytest
from apache_beam.yaml import main as yaml_main

from tests.conftest import ROOT
from tests.engines.conftest import release_bytes
from tests.yaml.running import RUNNER, text_of

pytestmark = pytest.mark.faults

# Kills the process before one of its writes, which are in the order of the steps of a run.
KILLED = """
import os, signal, sys
from beam_dpne.storage.directories import LocalDirectory
write = LocalDirectory._write
left = int(sys.argv[1])
def counted(directory, name, data):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    write(directory, name, data)
LocalDirectory._write = counted
if sys.argv[2].startswith("--yaml"):
    from apache_beam.yaml import main
    sys.exit(main.run(sys.argv[2:]))
from beam_dpne.cli.main import program
sys.exit(program(sys.argv[2:]))
"""
RANGES = 16
NOTE = 1
LIST = NOTE + RANGES + 1
MARK = LIST + 1
PART = MARK + 1
LEDGER = PART + 1
SETTLED = LEDGER + 1
HOW = {
    "1 process": ("--workers", "1"),
    "2 processes": ("--workers", "2"),
    "engine": ("--runner", "FnApiRunner"),
}


def run_of(folder, output, key, how="1 process"):
    return (
        *("ngrams", "--input", folder / "in.jsonl", "--output", folder / output),
        *("--run_key_file", folder / key, "--max_length", "2", "--overwrite"),
        *("--series", folder / "series", "--participants", folder / "private", *HOW[how]),
    )


def yaml_of(folder, output, key):
    """The arguments of Beam's own program for the same run."""
    places = {"series": str(folder / "series"), "participants": str(folder / "private")}
    config = {"run_key_file": str(folder / key), "max_length": 2, **places}
    steps = [
        {"type": "ReadDocuments", "config": {"input": str(folder / "in.jsonl")}},
        {"type": "PrivateNgrams", "input": "ReadDocuments", "config": config},
        {
            "type": "WriteRelease",
            "input": {"rows": "PrivateNgrams.rows", "ledger": "PrivateNgrams.ledger"},
            "config": {"output": str(folder / output), "overwrite": True},
        },
    ]
    return [f"--yaml_pipeline={text_of(steps)}", RUNNER]


def made(folder, cli):
    """A series whose users take part once, an input, and two keys; its names are always the same."""
    rows = [{"user": f"u{n}", "text": f"good morning {n % 2}"} for n in range(200)]
    (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("one", "two"):
        (folder / name).write_text(("1f" if name == "one" else "2e") * 31 + "ab")
        (folder / name).chmod(0o600)
    budget = ("--releases", "9", "--releases_per_user", "1", "--epsilon", "8", "--delta", "1e-4")
    places = (folder / "series", "--participants", folder / "private")
    ended = cli("series", "create", *places, *budget)
    assert ended.status == 0, ended.err
    for name in ("series/series.json", "private/participants.json"):
        file = json.loads((folder / name).read_text())
        file |= {"id": "5" * 32} if "id" in file else {"series": "5" * 32, "key": "ab" * 32}
        (folder / name).write_text(json.dumps(file))


def digests_of(folder):
    return {
        file.name[17:]: file.read_bytes() for file in (folder / "private").glob("0001-*.digests")
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, cli):
    """The bytes of the first release and the digests of those who take part, however it runs."""
    found = []
    for how in HOW:
        folder = tmp_path_factory.mktemp("undisturbed")
        made(folder, cli)
        ended = cli(*run_of(folder, "release", "one", how))
        assert ended.status == 0, ended.err
        found.append((release_bytes(folder / "release"), digests_of(folder)))
    folder = tmp_path_factory.mktemp("undisturbed")
    made(folder, cli)
    yaml_main.run(yaml_of(folder, "release", "one"))
    found.append((release_bytes(folder / "release"), digests_of(folder)))
    assert found[0] == found[1] == found[2] == found[3]
    assert len(found[0][1]) == RANGES
    return found[0]


WRITES = (NOTE, NOTE + 1, NOTE + 9, LIST, MARK, PART, LEDGER, SETTLED, SETTLED + 1)
CASES = [
    *(("1 process", write) for write in WRITES),
    *((how, write) for how in ("2 processes", "engine") for write in (LIST, MARK, LEDGER)),
    *(("yaml", write) for write in (NOTE, LIST, MARK, PART, LEDGER, SETTLED, SETTLED + 1)),
]


@pytest.mark.parametrize(("how", "write"), CASES)
def test_a_run_that_is_killed_counts_from_the_list_of_those_who_take_part(
    tmp_path, cli, undisturbed, how, write
):
    made(tmp_path, cli)
    if how == "yaml":
        arguments = yaml_of(tmp_path, "release", "one")
    else:
        arguments = list(map(str, run_of(tmp_path, "release", "one", how)))
    command = [sys.executable, "-c", KILLED, str(write), *arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == (0 if write > SETTLED else -signal.SIGKILL), ended.stderr
    # Nothing is published before the list is whole.
    assert (tmp_path / "private" / "0001.json").exists() == (write > LIST)
    if write <= PART:
        assert not list((tmp_path / "release").glob("*"))
    counts = write > LIST
    ended = cli(*run_of(tmp_path, "next", "two"))
    assert ended.status == 0, ended.err
    ledger = json.loads((tmp_path / "next" / "ledger.json").read_text())
    assert ledger["series"]["number"] == (2 if counts else 1)
    # Whoever took part in the first release has used up her part.
    assert (sum(part["rows"] for part in ledger["parts"]) == 0) == counts
    ended = cli(*run_of(tmp_path, "release", "one"))
    assert ended.status == 0, ended.err
    if counts:
        assert (release_bytes(tmp_path / "release"), digests_of(tmp_path)) == undisturbed
