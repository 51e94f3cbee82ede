"""`--series` of every program, and `beam-dpne series`: the same users and bytes however it runs."""

import hashlib
import json
import shutil

import pyarrow as pa
import pytest

import beam_dpne
from tests.engines.conftest import release_bytes

WAYS = {
    "1 process": ("--workers", "1", "--partitions", "3"),
    "2 processes": ("--workers", "2", "--partitions", "5"),
    "engine": ("--runner", "FnApiRunner"),
}
PROGRAMS = {
    "ngrams": ("--max_length", "2", "--group_field", "team"),
    "set-union": ("--tokenizer", "words"),
    "bayesian": ("--public", "public.tsv", "--length", "2"),
    "count": ("--phrases", "phrases.txt"),
}
TEXTS = ("good morning", "good night all")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two months: everybody writes in the first, and half of them and others in the second."""
    path = tmp_path_factory.mktemp("months")
    for month, users in (("one", range(200)), ("two", range(100, 300))):
        rows = [{"user": f"u{n}", "text": TEXTS[n % 2], "team": "ab"[n % 2]} for n in users]
        # Texts without a word, and records without a user, are no part in a release.
        rows += [{"user": f"u{n}", "text": "…", "team": "a"} for n in range(200, 250)]
        rows.append({"text": "nobody", "team": "a"})
        (path / f"{month}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (path / f"{month}.key").write_text({"one": "1f2e", "two": "3d4c"}[month] * 16)
        (path / f"{month}.key").chmod(0o600)
    (path / "public.tsv").write_text("good morning\t5\ngood night\t5\n")
    (path / "phrases.txt").write_text("good morning\ngood night\n")
    return path


@pytest.fixture
def create(cli, tmp_path):
    """Makes a series; those of one test have one name and key."""

    def make(name="", times=1):
        series = tmp_path / f"series{name}"
        private = tmp_path / f"private{name}"
        budget = ("--releases", "4", "--epsilon", "8", "--delta", "1e-4")
        given = ("series", "create", series, "--participants", private, *budget)
        ended = cli(*given, "--releases_per_user", times)
        assert ended.status == 0, ended.err
        for file in ("series/series.json", "private/participants.json"):
            first, last = file.split("/")
            if name and (tmp_path / file).exists():
                shutil.copy(tmp_path / file, tmp_path / f"{first}{name}" / last)
        return ("--series", series, "--participants", private)

    return make


def lists(series):
    return {
        file.name[:4] + file.name[17:]: file.read_bytes() for file in series[-1].glob("*.digests")
    }


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_same_users_take_part_and_give_the_same_bytes_however_a_series_runs(
    cli, create, folder, tmp_path, monkeypatch, program
):
    monkeypatch.chdir(folder)
    found = []
    for number, (name, way) in enumerate(WAYS.items()):
        series = create(f"-{name}" if number else "")
        for month in ("one", "two"):
            given = ("--input", f"{month}.jsonl", "--run_key_file", f"{month}.key", "--quiet")
            output = tmp_path / f"{name}-{month}"
            ended = cli(program, *given, *PROGRAMS[program], *series, *way, "--output", output)
            assert ended.status == 0, ended.err
        releases = [release_bytes(tmp_path / f"{name}-{month}") for month in ("one", "two")]
        found.append((*releases, lists(series)))
    assert found[0] == found[1] == found[2]
    sizes = [0, 0]
    for name, data in found[0][2].items():
        sizes[int(name[:4]) - 1] += len(data) // 16
    assert sizes == [200, 100]


def test_calls_from_python_are_releases_of_the_series(cli, create, folder):
    series = create()
    with open(folder / "one.jsonl") as lines:
        rows = [json.loads(line) for line in lines]
    users, texts = ([row.get(name) for row in rows] for name in ("user", "text"))
    frame = pa.table({"user": pa.array(users, pa.string()), "text": texts})
    given = {"max_length": 1, "series": str(series[1]), "participants": str(series[3])}
    found = [
        beam_dpne.release_ngrams(frame, **given, progress=False, workers=workers)
        for workers in (2, 1)
    ]
    assert [each.ledger["series"]["number"] for each in found] == [1, 2]
    assert found[0].num_rows > 0 == found[1].num_rows
    states = json.loads(cli("series", "show", series[1], "--json").out)["runs"]
    assert [each["state"] for each in states] == ["released", "released"]


@pytest.mark.parametrize("place", ["publish_release", "require_few_rejected"])
def test_a_run_counts_if_it_fails_while_it_publishes_and_does_not_if_it_fails_before(
    cli, create, folder, tmp_path, monkeypatch, place
):
    series = create()
    given = ("ngrams", "--input", folder / "one.jsonl", "--max_length", "1", *series)

    def fail(*given, **named):
        raise OSError

    with monkeypatch.context() as patched:
        patched.setattr(f"beam_dpne.jobs.local.{place}", fail)
        ended = cli(*given, "--output", tmp_path / "failed")
    assert ended.status == 1
    is_late = place == "publish_release"
    assert ("the series counts release 1" in ended.err) == is_late
    assert cli(*given, "--output", tmp_path / "next").status == 0
    ledger = json.loads((tmp_path / "next" / "ledger.json").read_text())
    assert ledger["series"]["number"] == 1 + is_late
    assert (sum(part["rows"] for part in ledger["parts"]) == 0) == is_late


@pytest.mark.parametrize("way", ["1 process", "engine"])
def test_a_retry_with_other_texts_of_the_same_users_publishes_nothing(
    cli, create, folder, tmp_path, way
):
    """Both have the same noise, which their difference would be free of."""
    series = create()
    rows = (folder / "one.jsonl").read_text()
    (tmp_path / "in.jsonl").write_text(rows)
    given = ("--input", tmp_path / "in.jsonl", "--max_length", "1", *series, *WAYS[way])
    given = (*given, "--run_key_file", folder / "one.key", "--overwrite", "--output")
    for output in ("out", "out", "again"):
        assert cli("ngrams", *given, tmp_path / output).status == 0
    first = release_bytes(tmp_path / "out")
    (tmp_path / "in.jsonl").write_text(rows.replace("night all", "morning all"))
    for output in ("again", "last"):
        ended = cli("ngrams", *given, tmp_path / output)
        assert ended.status == 1
        assert "other users take part or their texts are others" in ended.err
    assert not (tmp_path / "last").exists()
    assert release_bytes(tmp_path / "out") == release_bytes(tmp_path / "again") == first


def test_a_try_that_published_nothing_is_repeated_with_its_own_texts_alone(
    cli, create, folder, tmp_path, monkeypatch
):
    """Somebody may have seen files that it has left, with the noise of all tries."""
    series = create()
    rows = (folder / "one.jsonl").read_text()
    given = ("ngrams", "--input", tmp_path / "in.jsonl", "--max_length", "1", *series)
    given = (*given, "--run_key_file", folder / "one.key", "--overwrite", "--output")

    def fail(*given, **named):
        raise OSError

    (tmp_path / "in.jsonl").write_text(rows)
    with monkeypatch.context() as patched:
        patched.setattr("beam_dpne.jobs.local.publish_release", fail)
        assert cli(*given, tmp_path / "out").status == 1
    (tmp_path / "in.jsonl").write_text(rows.replace("good night", "night good"))
    for way in WAYS.values():
        ended = cli(*given, tmp_path / "out", *way)
        assert ended.status == 1
        assert "other users take part or their texts are others" in ended.err
    assert not (tmp_path / "out").exists()
    # The order of records is no part of the texts.
    (tmp_path / "in.jsonl").write_text("\n".join(reversed(rows.splitlines())))
    for way in WAYS.values():
        ended = cli(*given, tmp_path / "out", *way)
        assert ended.status == 0, ended.err


@pytest.mark.parametrize(
    ("times", "counted"),
    [(1, "for the first time"), (2, "each in 2 releases of the series at most")],
)
def test_the_ledger_says_who_is_counted_and_show_what_is_spent(
    cli, create, folder, tmp_path, times, counted
):
    series = create(times=times)
    output = tmp_path / "release"
    given = ("--input", folder / "one.jsonl", "--output", output, "--max_length", "1")
    ended = cli("ngrams", *given, *series, "--title", "June")
    assert ended.status == 0, ended.err
    ledger = json.loads((output / "ledger.json").read_text())
    section = ledger["series"]
    assert (section["number"], section["releases"]) == (1, 4)
    assert section["releases_per_user"] == times
    assert (section["epsilon"], section["delta"]) == (8.0, 1e-4)
    assert "only those who take part" in ledger["columns"]["users"]
    assert set(ledger["meanings"]["series"]) == set(section)
    # Nothing that is public says how many took part.
    assert "200" not in (series[1] / "series.json").read_text()
    shown = json.loads(cli("series", "show", series[1], "--json").out)
    assert [run["state"] for run in shown["runs"]] == ["released"]
    assert shown["releases_left"] == 3
    # A plan of the series tells the budget of the run before it.
    plan = beam_dpne.NgramsPlan(epsilon=8.0, delta=1e-4, max_length=1)
    planned = beam_dpne.plan(plan, releases=4, releases_per_user=(3, times), progress=False)
    assert [each["releases_per_user"] for each in planned.rows] == [times, 3]
    assert (
        ledger["guarantee"]["epsilon"] == planned.of_series[times].epsilon == planned.plan.epsilon
    )
    assert ledger["guarantee"]["delta"] == planned.rows[0]["delta"]
    assert shown["total"]["epsilon"] <= ledger["guarantee"]["epsilon"]
    told = cli("series", "show", series[1]).out
    assert "One user has spent at most ε = " in told
    digest = hashlib.sha256((output / "ledger.json").read_bytes()).hexdigest()
    assert digest[:12] in told
    assert (shown["runs"][0]["release"], shown["runs"][0]["ledger_sha256"]) == ("June", digest)
    report = tmp_path / "report.md"
    assert cli("report", output, "--output", report).status == 0
    assert "take part in this release of the series" in report.read_text()
    for page in (report.read_text(), cli("show", output).out):
        whole = f"in {times} of whose releases each user takes part at most: all together have"
        assert f"{whole} ε = 8 and δ = 0.0001." in " ".join(page.replace("\u00a0", " ").split())
    told = cli("compare", output, output).out
    assert counted in " ".join(told.split())
    assert "Both are the same release" in told


def test_a_budget_that_allows_no_release_is_refused_by_what_the_series_needs(cli, folder, tmp_path):
    """The run has no option epsilon, so that its error names none."""
    series = ("--series", tmp_path / "series", "--participants", tmp_path / "private")
    budget = (
        "--releases",
        "12",
        "--releases_per_user",
        "12",
        "--epsilon",
        ".05",
        "--delta",
        "1e-6",
    )
    assert cli("series", "create", *series[1:], *budget).status == 0
    given = ("--input", folder / "one.jsonl", "--output", tmp_path / "out", *series)
    ended = cli("ngrams", *given)
    assert ended.status == 2
    assert "whose epsilon is 0.05" in ended.err
    assert "Take a series whose epsilon is 0.2, or" in ended.err
    assert "--epsilon" not in ended.err
    assert cli("ngrams", *given, "--max_tokens_per_user", "10000").status == 0


REFUSED = {
    "epsilon": (("--epsilon", "1"), "--epsilon must be left out with series"),
    "delta": (("--delta", "1e-6"), "--delta must be left out with series"),
    "a budget": (("--budget", "budget"), "must be left out with series, which keeps its own"),
    "an engine": (
        ("--runner", "PortableRunner", "--job_endpoint", "localhost:1"),
        "must both be on an object store that all workers reach",
    ),
    "workers elsewhere": (
        ("--runner", "PrismRunner", "--environment_type", "DOCKER"),
        "must both be on an object store that all workers reach",
    ),
    "no users": (("--record_is_user",), "must be left out if records have no users"),
}


@pytest.mark.parametrize("command", [("ngrams",), ("check", "ngrams")])
@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_go_with_a_series_is_refused(cli, create, folder, tmp_path, case, command):
    series = create()
    more, why = REFUSED[case]
    given = (*command, "--input", folder / "one.jsonl", "--output", tmp_path / "release")
    ended = cli(*given, *series, *more)
    assert ended.status == 2
    assert why in ended.err
    assert not list(series[-1].glob("0*"))


@pytest.mark.parametrize("place", [0, 2])
def test_the_two_folders_are_given_together_and_outside_of_releases(
    cli, create, folder, tmp_path, place
):
    series = create()
    given = ("ngrams", "--input", folder / "one.jsonl", "--epsilon", "1", "--delta", "1e-6")
    ended = cli(*given, *series[place : place + 2], "--output", tmp_path / "release")
    assert ended.status == 2
    ended = cli(*given[:3], *series, "--output", series[place + 1] / "..")
    assert ended.status == 2
    assert "outside" in ended.err or "empty" in ended.err
    # There the lock of the release would wait for that of the run.
    ended = cli(*given[:3], *series, "--output", series[place + 1] / "release")
    assert ended.status == 2
    assert "--output must be outside the folder of --" in ended.err


@pytest.mark.parametrize(
    ("program", "same"),
    [
        ("ngrams", ("--known", "outside", "--known_same_people")),
        ("count", ("--phrases", "outside", "--phrases_same_people")),
    ],
)
def test_a_list_about_the_same_people_must_be_of_the_series(
    cli, create, folder, tmp_path, monkeypatch, program, same
):
    """Else its budget would add to that of the series, and nobody would count it."""
    monkeypatch.chdir(tmp_path)
    given = ("--input", folder / "one.jsonl", "--quiet")
    ended = cli("ngrams", *given, "--epsilon", "8", "--delta", "1e-4", "--output", "outside")
    assert ended.status == 0, ended.err
    ended = cli(program, *given, *same, *create(), "--output", "release")
    assert ended.status != 0
    assert same[-1].removeprefix("--") in ended.err
    assert not (tmp_path / "release").exists()
