"""Releases of a series in YAML: the bytes and digests of the program, one number each, and refusals."""

import json
import shutil

import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne.accounting.series import only_run_of
from tests.engines.conftest import release_bytes
from tests.yaml.running import run_yaml

SHORT = ("--max_length", 1, "--quiet", "--input")
BUDGET = ("--releases", 3, "--releases_per_user", 1, "--epsilon", 8, "--delta", 1e-4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two months: of the second one half of the people have written in the first."""
    path = tmp_path_factory.mktemp("months")
    for month, users in (("one", range(200)), ("two", range(100, 300))):
        rows = [{"user": f"u{n}", "text": f"good morning {n % 2}"} for n in users]
        rows.append({"user": "u250", "text": "…"})
        (path / f"{month}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (path / f"{month}.key").write_text({"one": "1f2e", "two": "3d4c"}[month] * 16)
        (path / f"{month}.key").chmod(0o600)
    return path


@pytest.fixture
def places(cli, tmp_path):
    """Makes a series; those of one test have one name and key."""

    def make(name):
        folders = {kind: tmp_path / f"{kind}-{name}" for kind in ("series", "participants")}
        given = ("series", "create", folders["series"], "--participants", folders["participants"])
        ended = cli(*given, *BUDGET)
        assert ended.status == 0, ended.err
        for kind, path in folders.items():
            first = tmp_path / f"first-{kind}.json"
            if first.exists():
                shutil.copy(first, path / f"{kind}.json")
            shutil.copy(path / f"{kind}.json", first)
        return {kind: str(path) for kind, path in folders.items()}

    return make


def steps(folder, month, series, output, **more):
    config = {**series, "run_key_file": str(folder / f"{month}.key"), "max_length": 2, **more}
    return [
        {"type": "ReadDocuments", "config": {"input": str(folder / f"{month}.jsonl")}},
        {"type": "PrivateNgrams", "input": "ReadDocuments", "config": config},
        {
            "type": "WriteRelease",
            "input": {"rows": "PrivateNgrams.rows", "ledger": "PrivateNgrams.ledger"},
            "config": {"output": str(output)},
        },
    ]


def digests(places):
    return {path.name[:4] + path.name[17:]: path.read_bytes() for path in places.glob("*.digests")}


def test_yaml_gives_the_bytes_and_the_digests_of_the_program_and_settles(
    cli, places, folder, tmp_path
):
    ours, program = places("yaml"), places("program")
    for number, month in enumerate(("one", "two"), 1):
        output = tmp_path / f"yaml-{month}"
        run_yaml(steps(folder, month, ours, output))
        other = tmp_path / f"program-{month}"
        given = ("--input", folder / f"{month}.jsonl", "--run_key_file", folder / f"{month}.key")
        named = [word for name, path in program.items() for word in (f"--{name}", path)]
        ended = cli("ngrams", *given, "--max_length", 2, *named, "--output", other)
        assert ended.status == 0, ended.err
        assert release_bytes(output) == release_bytes(other)
        ledger = json.loads((output / "ledger.json").read_text())
        assert ledger["series"]["number"] == number
        assert sum(part["rows"] for part in ledger["parts"]) > 0
    found = [digests(tmp_path / f"participants-{name}") for name in ("yaml", "program")]
    assert found[0] == found[1]
    sizes = [len(data) for name, data in found[0].items() if name.startswith("0002")]
    assert sum(sizes) == 100 * 16
    shown = json.loads(cli("series", "show", ours["series"], "--json").out)["runs"]
    assert [run["state"] for run in shown] == ["released", "released"]


def test_a_run_may_be_repeated_with_its_texts_and_not_with_others(places, folder, tmp_path):
    series = places("one")
    run_yaml(steps(folder, "one", series, tmp_path / "first"))
    run_yaml(steps(folder, "one", series, tmp_path / "again"))
    first = release_bytes(tmp_path / "first")
    assert release_bytes(tmp_path / "again") == first
    shutil.copy(folder / "one.key", tmp_path / "two.key")
    text = (folder / "one.jsonl").read_text()
    (tmp_path / "two.jsonl").write_text(text.replace("morning 1", "night 1"))
    with pytest.raises(Exception, match="other users take part or their texts are others"):
        run_yaml(steps(tmp_path, "two", series, tmp_path / "other"))
    assert not (tmp_path / "other").exists()


def test_of_two_runs_that_took_one_number_the_second_publishes_nothing(
    cli, places, folder, tmp_path, monkeypatch
):
    """The other one runs, to its end, between the building of a pipeline and its record."""
    series = places("one")
    named = [word for name, path in series.items() for word in (f"--{name}", path)]
    ended = []

    def run_first(pipeline, *given, visit=FnApiRunner.run_pipeline):
        ended.append(
            cli("ngrams", *SHORT, folder / "one.jsonl", *named, "--output", tmp_path / "a")
        )
        return visit(pipeline, *given)

    monkeypatch.setattr(FnApiRunner, "run_pipeline", run_first)
    with pytest.raises(Exception, match=r"another run of the series .* was at work meanwhile"):
        run_yaml(steps(folder, "two", series, tmp_path / "b"))
    assert [each.status for each in ended] == [0]
    assert not (tmp_path / "b").exists()
    assert [path.name[:4] for path in (tmp_path / "participants-one").glob("0*.json")] == ["0001"]


def test_a_run_at_the_same_time_is_refused_and_costs_nothing(places, folder, tmp_path):
    series = places("one")
    with (
        only_run_of(series["series"], series["participants"]),
        pytest.raises(Exception, match="another run of the series is at work"),
    ):
        run_yaml(steps(folder, "one", series, tmp_path / "release"))
    assert not (tmp_path / "release").exists()
    assert not digests(tmp_path / "participants-one")


CREATED = {"type": "Create", "config": {"elements": [{"user": "u", "text": "a b"}]}}
NORMALIZED = {"normalize_users": True}
REFUSED = {
    "two releases of a pipeline": (
        lambda given: [*given[:2], {**given[1], "name": "Second"}],
        "must be given to one transform of a pipeline",
    ),
    "rows of others": (
        lambda given: [CREATED, {**given[1], "input": "Create"}],
        "must be given for rows of ReadDocuments in this Python .*, got other rows",
    ),
    "another form of users": (
        lambda given: [
            {**given[0], "config": given[0]["config"] | NORMALIZED},
            {
                "type": "Filter",
                "input": "ReadDocuments",
                "config": PYTHON | {"keep": "len(text) > 1"},
            },
            {**given[1], "input": "Filter"},
        ],
        "composed and without format characters .* there, and here each value of the field .user. is",
    ),
    "records without users": (
        lambda given: [
            {**given[0], "config": given[0]["config"] | {"record_is_user": True}},
            given[1],
        ],
        "must be left out if records have no users",
    ),
    "its budget": (
        lambda given: [given[0], {**given[1], "config": given[1]["config"] | {"epsilon": 1}}],
        "`epsilon` must be left out with series",
    ),
    "one folder": (
        lambda given: [given[0], {**given[1], "config": without(given[1]["config"])}],
        "must be given together",
    ),
    "a release in the folder": (
        lambda given: [*given[:2], {**given[2], "config": {"output": inside(given)}}],
        "`output` must be outside the folder of `series`",
    ),
}
PYTHON = {"language": "python"}


def without(config):
    return {name: value for name, value in config.items() if name != "participants"}


def inside(given):
    return f"{given[1]['config']['series']}/release"


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_of_a_series_is_refused_before_anything_runs(
    places, folder, tmp_path, monkeypatch, case
):
    series = places("one")
    monkeypatch.setattr(FnApiRunner, "run_pipeline", lambda *_: pytest.fail("it was started"))
    change, why = REFUSED[case]
    with pytest.raises(Exception, match=why):
        run_yaml(change(steps(folder, "one", series, tmp_path / "release")))


def test_workers_elsewhere_are_refused(places, folder, tmp_path):
    given = steps(folder, "one", places("one"), tmp_path / "release")
    with pytest.raises(Exception, match="must both be on an object store that all workers reach"):
        run_yaml(given, "--runner=PortableRunner", "--job_endpoint=localhost:1")
