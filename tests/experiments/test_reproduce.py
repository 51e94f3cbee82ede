"""The papers' experiments on small data: right figures, kept results, and files that say what they are.

The run keys are fixed: nothing here fails by chance.
"""

import collections
import csv
import dataclasses
import gzip
import itertools
import json
import os
import pathlib
import re

import apache_beam as beam
import numpy as np
import pandas
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import PrivacyPlan, PrivateSetUnion, RunKey, SetUnionPlan
from beam_dpne.evaluation.secrecy import BANNER, PUBLIC, SECRET
from pipelines.experiments import paper_parts as parts
from pipelines.experiments import paper_tables, study, tables
from pipelines.experiments.corpora import Corpora
from pipelines.experiments.paper_measuring import measure
from pipelines.experiments.papers import (
    MSNBC_FILE,
    PARTS,
    dealt_sources,
    main,
    sources_of,
    study_of,
)
from pipelines.experiments.printed import DPNE_TABLE_5
from pipelines.experiments.program import TITLES_FILE, fixed_key
from pipelines.experiments.results import Results
from pipelines.experiments.runs import BaselineRun, CostRun, NgramRun, UnionRun, fingerprint
from tests.conftest import ROOT

DATA = ROOT / "pipelines" / "data"
USERS = 300
KEY = RunKey.from_hex(f"{1:064x}")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> pathlib.Path:
    """The data that ship with the repository, made small."""
    folder = tmp_path_factory.mktemp("data")
    with gzip.open(DATA / MSNBC_FILE) as lines, gzip.open(folder / MSNBC_FILE, "wb") as kept:
        for line in lines:
            kept.write(line)
            if line.startswith(b"% Sequences:"):
                break
        kept.writelines(itertools.islice((line for line in lines if line.strip()), 10 * USERS))
    with gzip.open(DATA / TITLES_FILE) as lines, gzip.open(folder / TITLES_FILE, "wb") as kept:
        kept.writelines(itertools.islice(lines, 8 * USERS))
    return folder


@pytest.fixture(scope="module")
def run(data, tmp_path_factory) -> pathlib.Path:
    """The output of a small instance."""
    output = tmp_path_factory.mktemp("output")
    options = ["--output", str(output), "--quick", "--quiet", "--parts", "msnbc"]
    assert main(options, data) == 0
    return output


@pytest.fixture(scope="module")
def corpora(data, tmp_path_factory) -> Corpora:
    return Corpora(sources(data), tmp_path_factory.mktemp("cache"), KEY, {})


def sources(folder: pathlib.Path, **values):
    given = {"msnbc": None, "titles": None, "public_text": None, "full": False, **values}
    return sources_of(given, folder) | dealt_sources(given, folder, folder / "dealt")


def write(folder: pathlib.Path, every, results: Results, known) -> None:
    shown = study_of(every, known, measure=measure, key_of=fixed_key)
    study.write_summary(folder, shown, results)


def rows_of(path: pathlib.Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def whole(folder: pathlib.Path, results: Results, scale=parts.QUICK):
    """All parts, with a made-up result for each run: sizes that tell rows, values and keys apart."""
    every = parts.all_parts(scale, titles="titles", sweeps="titles")
    for part in every:
        for one in part.runs:
            results.keep(one, made_up(one))
    return every


def made_up(one) -> dict:
    if isinstance(one, CostRun):
        slow = one.plan.strategy == "adaptive"
        return {"seconds": 10.0 * (1 + slow), "cpu_seconds": 9.0, "peak_bytes": 10**9 + slow}
    length = 1 if isinstance(one, UnionRun) else getattr(one, "max_length", None)
    length = length or one.plan.max_length
    size = 1000 * one.key + 10 * (isinstance(one, NgramRun) and one.plan.strategy == "adaptive")
    levels = [
        {
            "length": k,
            "released": size + 3,
            "real": size,
            "spurious": 3,
            "spurious_bound": 2.5,
            "occurrence_share": 0.5,
            "k_anonymity": [[n, 10_000 // n, 5_000 // n] for n in (10, 20, 50, 100)],
        }
        for k in range(1, length + 1)
    ]
    return {"seconds": 1.0, "lengths": levels}


def test_a_small_instance_has_tables_pictures_and_a_summary(run):
    assert [path.name for path in run.glob("*.csv")] == ["dpne_table_5.csv"]
    assert [path.name for path in run.glob("*.png")] == ["dpne_table_5.png"]
    text = (run / "README.md").read_text(encoding="utf-8")
    assert "](dpne_table_5.png)" in text
    assert "](dpne_table_5.csv)" in text
    assert "paper: DPNE" in text
    assert "the sample in the repository" in text


def test_the_part_of_best_limits_deals_public_texts_to_made_up_users(data, tmp_path):
    """One text a user on the one hand, 2,000 words a user on the other; ours beside every Δ."""
    (tmp_path / "texts.txt").write_text("so it goes on and on\n" * 2000, encoding="utf-8")
    options = ["--output", str(tmp_path / "out"), "--quick", "--quiet", "--parts", "best"]
    assert main([*options, "--public_text", str(tmp_path / "texts.txt")], data) == 0
    found = {name: rows_of(tmp_path / "out" / f"best_{name}.csv") for name in ("short", "long")}
    for rows in found.values():
        labels = [row["algorithm"] for row in rows]
        assert labels[-2:] == [parts.OURS, parts.OURS_EVEN]
        assert [label for label in labels if "Δ = 30" in label]
    # "so it goes on and on" has five distinct words; 2,000 users have them, or 6 users.
    assert [row["1"] for row in found["short"] if row["algorithm"] == parts.OURS] == ["5"]
    assert [row["1"] for row in found["long"] if row["algorithm"] == parts.OURS] == ["0"]
    assert "made-up users" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "a"}\n{"words": 3}\n', "got another in line 2 of"),
        ("", "public_text must have texts"),
        (None, "public_text must name an existing file"),
    ],
)
def test_public_texts_that_cannot_be_read_are_refused(data, tmp_path, capsys, content, message):
    path = tmp_path / "texts.jsonl"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    options = ["--output", str(tmp_path / "out"), "--quick", "--quiet", "--parts", "best"]
    assert main([*options, "--public_text", str(path)], data) != 0
    assert message in capsys.readouterr().err


def test_table_5_has_every_row_of_the_paper_and_ours(run):
    rows = {row["algorithm"]: row for row in rows_of(run / "dpne_table_5.csv")}
    assert list(rows) == [
        parts.PAPER,
        *parts.BASELINES,
        parts.OURS,
        parts.OURS_EVEN,
        *(f"paper: {name}" for name in DPNE_TABLE_5.rows),
    ]
    printed = rows["paper: DPNE"]
    assert [int(printed[str(k)]) for k in range(1, 7)] == list(DPNE_TABLE_5.rows["DPNE"])
    assert int(printed["real"]) == 7739
    assert rows["DPSU-single"]["real"] == ""
    for label in (parts.PAPER, parts.OURS):
        assert int(rows[label]["real"]) == sum(int(rows[label][str(k)]) for k in range(1, 7))
        assert int(rows[label]["real"]) > 0


@pytest.mark.parametrize("policy", [*parts.PUBLISHED, *parts.OTHER_POLICIES])
def test_every_policy_is_measured(corpora, policy):
    plan = dataclasses.replace(parts.union_plan(policy, 10), epsilon=8.0, delta=1e-2)
    level = measure(UnionRun(corpus="titles", plan=plan, key=1), corpora, KEY)["lengths"][0]
    assert level["real"] == level["released"] > 0


def test_everything_says_that_it_was_counted_on_public_data(run):
    for path in run.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert b"ounted on public data" in data, path.name
            assert b"NOT PRIVATE" not in data, path.name


def test_public_keys_are_said_to_guarantee_nothing(run):
    assert "no guarantee at all" in (run / "README.md").read_text(encoding="utf-8")


def test_tokenized_data_do_not_stay(run):
    assert not (run / "cache").exists()


def test_a_run_that_is_there_is_not_made_again_and_one_that_is_gone_is(run, data):
    files = sorted((run / "runs").glob("*.json"))
    times = {path.name: path.stat().st_mtime_ns for path in files}
    kinds = {path: json.loads(path.read_text(encoding="utf-8"))["run"]["kind"] for path in files}
    gone = next(path for path, kind in kinds.items() if kind == "baseline")
    before = json.loads(gone.read_text(encoding="utf-8"))["result"]["lengths"]
    gone.unlink()
    # What an interrupted run leaves is no result.
    gone.with_name(f".{gone.name}.tmp").write_text("{")
    options = ["--output", str(run), "--quick", "--quiet", "--parts", "msnbc"]
    assert main(options, data) == 0
    again = {path.name: path.stat().st_mtime_ns for path in (run / "runs").glob("*.json")}
    assert {name for name in times if again[name] != times[name]} == {gone.name}
    assert json.loads(gone.read_text(encoding="utf-8"))["result"]["lengths"] == before


def test_real_and_spurious_grams_are_those_that_plain_counting_finds(corpora):
    """A large η, so that some are spurious; the corpus is counted again from its documents."""
    plan = PrivacyPlan(epsilon=8, delta=1e-4, max_length=3, spurious_fraction=0.4)
    runs = [
        measure(NgramRun(corpus="msnbc", plan=plan, key=1), corpora, RunKey(bytes([number]) * 32))
        for number in range(4)
    ]
    lengths = [run["lengths"] for run in runs]
    assert all([level["length"] for level in levels] == [1, 2, 3] for levels in lengths)
    holders = collections.Counter()
    for user in range(len(corpora.corpus("msnbc").users)):
        holders.update(grams_of(corpora.corpus("msnbc"), user, 2))
    seconds = [levels[1] for levels in lengths]
    assert all(level["released"] == level["real"] + level["spurious"] for level in seconds)
    spurious, bound = (
        sum(level[name] for level in seconds) for name in ("spurious", "spurious_bound")
    )
    assert 0 < spurious <= 3 * bound
    level = seconds[0]
    held = {k: count for k, count, _ in level["k_anonymity"]}
    assert held[1] == len(holders)
    assert held[5] == sum(count >= 5 for count in holders.values())


def grams_of(corpus, user: int, length: int) -> set[tuple[int, ...]]:
    codes = corpus.codes[corpus.offsets[user] : corpus.offsets[user + 1]].tolist()
    places = range(len(codes) - length + 1)
    return {
        tuple(codes[place : place + length])
        for place in places
        if min(codes[place : place + length]) >= 0
    }


@pytest.mark.parametrize("policy", ["weighted_gaussian", "screened_gaussian"])
def test_set_union_in_memory_releases_what_the_pipeline_does(corpora, tmp_path, policy):
    plan = SetUnionPlan(epsilon=3, delta=1e-3, policy=policy, max_contributions=30, count_share=0)
    result = measure(UnionRun(corpus="titles", plan=plan, key=1), corpora, KEY)
    corpus = corpora.corpus("titles")
    documents = []
    for user, name in enumerate(corpus.users.to_pylist()):
        codes = corpus.codes[corpus.offsets[user] : corpus.offsets[user + 1]]
        words = corpus.words.take(pa.array(codes[codes >= 0])).to_pylist()
        documents.append((name, words))
    path = tmp_path / "size"
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        union = pipeline | beam.Create(documents) | PrivateSetUnion(plan=plan, run_key=KEY)
        _ = union.released | beam.Map(lambda items: path.write_text(str(len(items))))
    assert result["lengths"][0]["released"] == int(path.read_text()) > 0


def test_the_cost_of_a_process_is_its_own(corpora):
    """The peak does not begin with that of a large parent."""
    ballast = np.ones(6 * 10**7)
    plan = PrivacyPlan(epsilon=4, delta=1e-7, max_length=1)
    cost = measure(CostRun(corpus="titles", plan=plan, key=1), corpora, KEY)
    assert 5e7 < cost["peak_bytes"] < ballast.nbytes
    assert cost["cpu_seconds"] > 0
    assert cost["seconds"] > 0


def test_baselines_with_one_budget_for_each_length_do_not_depend_on_the_longest(corpora):
    own = {"corpus": "msnbc", "baseline": "DPSU-single", "epsilon": 1.0, "delta": 1e-4}
    runs = [BaselineRun(**own, max_length=k, max_contributions=10, key=1) for k in (2, 3)]
    short, long = (measure(one, corpora, KEY)["lengths"] for one in runs)
    assert long[:2] == short


def test_targets_are_rows_of_the_tables_but_for_the_costs():
    targets, *others = parts.all_parts(parts.DEFAULT, titles="titles", sweeps="titles")
    elsewhere = {one for part in others for one in part.runs}
    rest = set(targets.runs) - elsewhere
    assert {type(one) for one in rest if not is_default_union(one)} == {CostRun}


def is_default_union(one) -> bool:
    return isinstance(one, UnionRun) and one.plan == parts.union_plan("any", None)


def test_the_parameters_are_the_papers():
    by_name = {
        experiment.name: experiment
        for part in parts.all_parts(parts.DEFAULT, titles="titles", sweeps="titles")
        for experiment in part.experiments
    }
    for name, length in (("dpne_table_5", 6), ("dpne_table_4_9", 9)):
        plan = by_name[name].row(parts.PAPER).runs[0].plan
        printed = by_name[name].printed.parameters
        assert plan.strategy == "one_round"
        assert plan.vocabulary_delta_share == 0.5
        assert plan.max_length == printed["max_length"] == length
        for field in ("epsilon", "delta", "max_contributions", "spurious_fraction"):
            assert getattr(plan, field) == printed[field]
        assert all(by_name[name].row(label) for label in parts.BASELINES)
    union = by_name["dpsu_table_1"]
    assert {row.at for row in union.rows} == set(union.printed.columns)
    plan = union.row("policy_gaussian", 100).runs[0].plan
    assert (plan.epsilon, plan.delta) == tuple(union.printed.parameters.values())
    assert (plan.shards, plan.cutoff_margin) == (1, 5.0)
    assert len(union.rows[0].runs) == 5
    assert {row.at for row in by_name["dpne_table_3"].rows} == set(parts.SPURIOUS_FRACTIONS)


def test_medians_are_judged_against_what_is_asked(data, tmp_path):
    results = Results(tmp_path, sources(data), "numbers")
    targets = whole(tmp_path, results, parts.DEFAULT)[0].experiments[0]
    table = tables.table_of(targets, results, paper_tables.MAKERS)
    rows = {row[0]: row[1:] for row in table.rows}
    msnbc = next(row for title, row in rows.items() if title.startswith("msnbc, ours (adaptive)"))
    assert msnbc == (6 * 2010, 7739, round(6 * 2010 / 7739, 3), "≥ 1.85 ×", "no")
    titles = next(row for title, row in rows.items() if title.startswith("titles, ours (ad"))
    assert titles == (7 * 2010, 7 * 2000, 1.005, "≥ 2.5 ×", "no")
    time = next(row for title, row in rows.items() if "time of a whole run" in title)
    assert time == (20.0, 10.0, 2.0, "≤ 3 ×", "yes")
    memory = next(row for title, row in rows.items() if "peak memory" in title)
    assert memory == (1.0, 1.0, 1.0, "≤ 1.3 ×", "yes")


def test_every_part_is_of_its_name():
    every = parts.all_parts(parts.QUICK, titles="titles", sweeps="titles")
    assert tuple(part.name for part in every) == PARTS


def test_every_experiment_has_a_table_for_pandas_and_a_picture_that_says_what_was_spent(
    data, tmp_path
):
    """With titles of somebody's own, and the MSNBC data that ship with the program."""
    known = sources(data, titles=str(data / TITLES_FILE), full=True)
    results = Results(tmp_path / "runs", known, "numbers")
    every = whole(tmp_path, results)
    write(tmp_path, every, results, known)
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "not been made" not in text
    for experiment in (experiment for part in every for experiment in part.experiments):
        is_public = not any("titles" in name for name in experiment.corpora)
        secrecy = PUBLIC if is_public else SECRET
        path = tmp_path / f"{secrecy.prefix}{experiment.name}.csv"
        table = pandas.read_csv(path)
        with open(path, encoding="utf-8", newline="") as lines:
            assert list(table.columns) == next(csv.reader(lines))
        assert "" not in table.columns
        assert len(table) > 0
        assert experiment.title in text
        assert set(table["privacy"]) == {secrecy.cell}
        picture = (tmp_path / f"{secrecy.prefix}{experiment.name}.png").read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert (BANNER.encode() in picture) == (secrecy is SECRET)
        assert "ε = ".encode() in picture
        assert "δ = ".encode() in picture
        assert f"titles ({TITLES_FILE})".encode() in picture or secrecy is PUBLIC
        assert str(data).encode() not in picture
    assert not (tmp_path / "not_private_dpne_table_5.csv").exists()
    assert "NOT PRIVATE" in (tmp_path / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("values", "public"),
    [
        ({}, {"msnbc": True, "titles": True}),
        ({"titles": "t"}, {"msnbc": True, "titles": False, "titles_tenth": False}),
        ({"msnbc": "m"}, {"msnbc": False, "titles": True}),
        (
            {"titles": "t", "msnbc": "m", "public_data": True},
            {"msnbc": True, "titles": True, "titles_tenth": True},
        ),
    ],
)
def test_data_are_public_if_they_ship_with_the_program_or_somebody_says_so(data, values, public):
    dealt = {"dealt_short": True, "dealt_long": True}  # Only public texts are dealt.
    found = sources(data, **values)
    assert {name: source.is_public for name, source in found.items()} == public | dealt


def test_missing_runs_are_named_in_the_summary(data, tmp_path):
    results = Results(tmp_path / "runs", sources(data), "numbers")
    every = parts.all_parts(parts.QUICK, titles="titles", sweeps="titles")
    results.keep(every[1].runs[0], made_up(every[1].runs[0]))
    write(tmp_path, every[:3], results, sources(data))
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert re.search(r"Runs that have not been made yet: \d+\.", text)
    assert "Not run yet." in text


@pytest.mark.parametrize("change", ["key", "plan", "data", "keys"])
def test_a_result_is_filed_under_all_that_it_depends_on(change):
    plan = PrivacyPlan(epsilon=1, delta=1e-7)
    other = PrivacyPlan(epsilon=2, delta=1e-7) if change == "plan" else plan
    one = NgramRun(corpus="titles", plan=plan, key=1)
    two = NgramRun(corpus="titles", plan=other, key=2 if change == "key" else 1)
    changed = "b" if change == "data" else "a", "secret" if change == "keys" else "numbers"
    assert fingerprint(one, "a", "numbers") == fingerprint(one, "a", "numbers")
    assert fingerprint(one, "a", "numbers") != fingerprint(two, *changed)


def test_sweeps_on_a_file_of_titles_take_a_keyed_tenth_and_say_so(data, tmp_path):
    given = sources(data, titles=str(data / TITLES_FILE))
    assert given["titles_tenth"].title.startswith("a keyed tenth of the users")
    assert "titles_tenth" not in sources(data, titles=str(data / TITLES_FILE), full=True)
    assert "titles_tenth" not in sources(data)
    own = Corpora(given, tmp_path, KEY, {})
    part, everybody = own.corpus("titles_tenth"), own.corpus("titles")
    assert 0 < len(part.users) < len(everybody.users) / 4
    assert set(part.users.to_pylist()) < set(everybody.users.to_pylist())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "output must be given"),
        (["--output", "x", "--parts", "tables"], "parts must be of"),
        (["--output", "x", "--full", "--quick"], "must not be given together"),
        (["--output", "x", "--runner", "Flink"], "has no option --runner"),
    ],
)
def test_wrong_options_are_refused(data, capsys, options, words):
    assert main(options, data) == 2
    assert words in capsys.readouterr().err


def test_an_output_inside_a_release_is_refused(data, tmp_path, capsys):
    (tmp_path / "ledger.json").write_text("{}")
    assert main(["--output", str(tmp_path / "own")], data) == 2
    assert "outside every release" in capsys.readouterr().err
    assert not os.path.exists(tmp_path / "own")


def test_the_directory_of_another_program_is_left_as_it_is(data, tmp_path, capsys):
    (tmp_path / "README.md").write_text("# Private n-gram probabilities: experiments\n")
    assert main(["--output", str(tmp_path)], data) == 2
    assert "output must be a directory of this program," in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
