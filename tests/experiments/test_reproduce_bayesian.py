"""The experiments of private n-gram probabilities on small data: right figures, honest files.

The run keys are fixed: nothing here fails by chance.
"""

import csv
import gzip
import itertools
import json
import pathlib
import shutil

import numpy as np
import pandas
import pytest

from beam_dpne import RunKey
from beam_dpne.evaluation.secrecy import PUBLIC, SECRET
from pipelines.experiments import bayesian_parts, bayesian_tables, tables
from pipelines.experiments.bayesian import EXPERIMENTS, main, source_of
from pipelines.experiments.bayesian_measuring import BayesianData, measure
from pipelines.experiments.bayesian_mechanisms import release
from pipelines.experiments.bayesian_runs import COUNTS, LAPLACE, PAPER, BayesianRun
from pipelines.experiments.divergence import kl_divergence
from pipelines.experiments.program import TITLES_FILE
from tests.conftest import ROOT

DATA = ROOT / "pipelines" / "data"
LINES = 6_000
KEY = RunKey.from_hex(f"{1:064x}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """A half of the sample's lines as private texts, the others' texts as public ones."""
    place = tmp_path_factory.mktemp("data")
    with gzip.open(DATA / TITLES_FILE, "rt", encoding="utf-8") as lines:
        kept = list(itertools.islice(lines, LINES))
    with gzip.open(place / TITLES_FILE, "wt", encoding="utf-8") as private:
        private.writelines(kept[::2])
    texts = (json.loads(line)["text"].replace("\n", " ") for line in kept[1::2])
    (place / "public.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def data(folder, tmp_path_factory) -> BayesianData:
    public = str(folder / "public.txt")
    private = source_of(str(folder / TITLES_FILE), public)
    return BayesianData(private, public, tmp_path_factory.mktemp("cache") / "corpus")


@pytest.fixture(scope="module")
def output(folder, tmp_path_factory) -> pathlib.Path:
    """The output of a small instance, all parts."""
    place = tmp_path_factory.mktemp("output")
    assert main(options_of(folder, place), folder) == 0
    return place


def options_of(folder: pathlib.Path, place: pathlib.Path, *more: str) -> list[str]:
    public = str(folder / "public.txt")
    return ["--output", str(place), "--public", public, "--quick", "--quiet", *more]


def rows_of(path: pathlib.Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def test_every_experiment_has_a_table_and_a_picture(output):
    text = (output / "README.md").read_text(encoding="utf-8")
    for name in (*EXPERIMENTS, "targets"):
        assert rows_of(output / f"{name}.csv")
        assert f"[{name}.csv]" in text
        if name not in ("pipeline", "running_text", "targets"):
            assert (output / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "Not run yet." not in text


def test_what_is_counted_on_public_data_says_so_and_carries_no_mark_of_secrecy(output):
    """The data that ship with the program are public, and may be said to be."""
    assert list(output.rglob("*.png"))
    for path in output.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert b"ounted on public data" in data, path.name
            assert b"NOT PRIVATE" not in data, path.name
            assert not path.name.startswith("not_private_")


@pytest.fixture(scope="module")
def secret_output(folder, tmp_path_factory) -> pathlib.Path:
    """The output of two experiments on titles of somebody's own."""
    place = tmp_path_factory.mktemp("secret")
    assert main(options_of(folder, place, *own_titles(folder)), folder) == 0
    return place


def own_titles(folder: pathlib.Path) -> tuple[str, ...]:
    return ("--titles", str(folder / TITLES_FILE), "--parts", "epsilon,contributions")


def test_everything_about_titles_of_ones_own_says_that_it_is_not_private(secret_output):
    names = {path.name for path in secret_output.iterdir()}
    assert {"not_private_epsilon.png", "not_private_epsilon.csv"} < names
    for path in secret_output.rglob("*"):
        if path.is_file():
            assert b"NOT PRIVATE" in path.read_bytes(), path.name
            assert path.suffix in (".json", ".md") or path.name.startswith("not_private_")
    text = (secret_output / "README.md").read_text(encoding="utf-8")
    assert "](not_private_epsilon.png)" in text
    assert "](not_private_epsilon.csv)" in text


def test_titles_that_are_said_to_be_public_take_the_marks_away(folder, secret_output, tmp_path):
    place = tmp_path / "copy"
    shutil.copytree(secret_output, place)
    assert main(options_of(folder, place, *own_titles(folder), "--public_data"), folder) == 0
    names = {path.name for path in place.iterdir()}
    assert {"epsilon.png", "epsilon.csv", "targets.csv"} < names
    assert not any(name.startswith("not_private_") for name in names)
    assert b"NOT PRIVATE" not in (place / "epsilon.png").read_bytes()


def test_pandas_reads_every_table(output, secret_output):
    for place, words in ((output, PUBLIC.cell), (secret_output, SECRET.cell)):
        paths = list(place.glob("*.csv"))
        assert len(paths) >= 3
        for path in paths:
            with open(path, encoding="utf-8", newline="") as lines:
                headings = next(csv.reader(lines))
            table = pandas.read_csv(path)
            assert list(table.columns) == headings
            assert set(table["privacy"]) == {words}, path.name
            assert len(table) == len(rows_of(path)) > 0


def test_every_picture_says_what_was_spent_and_on_which_data(output, folder):
    for name, budget in (
        ("epsilon", "ε = 0.1 to 5, δ = 1e-7"),
        ("users", "ε = 0.1, δ = 1e-7"),
        ("perplexity", "ε = 0.2, δ = 1e-7"),
        ("k_anonymity", "no ε and δ"),
    ):
        caption = f"{budget} · data: titles ({TITLES_FILE}) · release: none, runs of an experiment"
        data = (output / f"{name}.png").read_bytes()
        assert caption.encode() in data
        assert str(folder).encode() not in data


def test_the_papers_lack_of_a_guarantee_is_in_every_text(output):
    results = list((output / "runs").glob("*.json"))
    assert results
    for path in (*results, *output.glob("*.csv"), output / "README.md"):
        text = path.read_text(encoding="utf-8")
        if path.suffix != ".json" or f'"{PAPER}"' in text:
            assert "no differential privacy guarantee" in text, path.name


def test_the_program_releases_what_is_simulated(output):
    (row,) = rows_of(output / "pipeline.csv")
    # Probabilities are written with ten digits or so.
    assert float(row["difference"]) < 1e-8
    assert float(row["seconds"]) > 0


def test_a_run_that_is_there_is_not_made_again(output, folder):
    before = {path.name: path.stat().st_mtime_ns for path in (output / "runs").iterdir()}
    assert main(options_of(folder, output, "--parts", "epsilon"), folder) == 0
    after = {path.name: path.stat().st_mtime_ns for path in (output / "runs").iterdir()}
    assert after == before
    assert not (output / "cache").exists()


def test_divergences_are_from_the_distribution_of_all_counts(data):
    run = BayesianRun(kind="divergence", mechanism=COUNTS, epsilon=1.0, vocabulary_size=500)
    result = measure(run, data, KEY)
    world = data.world(run)
    private = world.exact.counts / world.exact.counts.sum()
    assert result["without_floor"] == kl_divergence(private, release(world, run, KEY))
    assert result["best_floor"] <= min(result["without_floor"], result["divergence"]) + 1e-12


def test_fewer_users_are_some_of_all_and_more_are_drawn_from_them(data):
    whole = data.world(BayesianRun(kind="divergence", mechanism=COUNTS, vocabulary_size=500))
    for users in (500, 10_000):
        run = BayesianRun(kind="divergence", mechanism=COUNTS, vocabulary_size=500, users=users)
        exact = data.world(run).exact
        assert exact.users == users
        # A tenth of the expected number is many standard deviations; the draw is fixed.
        expected = whole.exact.counts.sum() * users / whole.exact.users
        assert exact.counts.sum() == pytest.approx(expected, rel=0.25)


def test_held_out_users_are_in_no_model(data):
    run = BayesianRun(kind="perplexity", mechanism="private", vocabulary_size=2_000, held_out=True)
    trained = data.trained(held_out=True)
    assert 0.8 < trained.mean() < 0.97
    exact = data.world(run).exact
    chosen = np.repeat(exact.copies > 0, np.diff(exact.offsets))
    assert set(exact.holding[exact.copies > 0]) <= set(np.flatnonzero(trained))
    assert exact.counts.sum() == exact.values[chosen].sum()


def test_noise_on_public_counts_makes_them_worse(data):
    runs = [
        BayesianRun(kind="divergence", mechanism="public", vocabulary_size=500, public_noise=one)
        for one in (0.0, 30.0)
    ]
    good, bad = (measure(run, data, KEY)["divergence"] for run in runs)
    assert bad > 1.5 * good


def test_the_attack_finds_a_user_by_the_papers_noise_alone(data):
    """The bounds fail with probability 5 % over draws, which are fixed here."""
    found = {
        name: measure(
            BayesianRun(kind="counterexample", mechanism=name, epsilon=0.5, vocabulary_size=50),
            data,
            KEY,
        )["epsilon_bound"]
        for name in (COUNTS, LAPLACE, PAPER)
    }
    assert found[PAPER] > 5
    assert found[COUNTS] <= 0.5
    assert found[LAPLACE] <= 0.5


def test_no_vocabulary_is_larger_than_the_public_counts():
    scale = bayesian_parts.DEFAULT.within(20_000)
    assert scale.vocabulary_size == 20_000
    assert scale.vocabularies == (1_000, 3_000, 10_000, 20_000)
    assert scale.table_vocabularies == (10_000, 20_000)


def test_targets_compare_with_the_better_laplace_baseline():
    scale = bayesian_parts.QUICK
    targets = bayesian_parts.targets_of(bayesian_parts.all_experiments(scale, 1_234))
    made_up = {COUNTS: 0.2, LAPLACE: 3.0, "laplace_public": 2.0, "public": 0.3, "k_anonymity": 9.0}

    class MadeUp:
        def of(self, row):
            names = ("divergence", "best_floor", "perplexity", "words", "sentences", "own_words")
            return [dict.fromkeys(names, made_up.get(run.mechanism, 1.0)) for run in row.runs]

    class Nothing:
        def of(self, row):
            return []

    def table_of(results):
        return tables.table_of(targets, results, bayesian_tables.MAKERS)

    rows = {row[0]: row[1:] for row in table_of(MadeUp()).rows}
    name = "KL at ε = 0.1, against the better Laplace, floor of 1 %"
    assert rows[name] == (0.2, 2.0, 0.1, "≤ 0.15 ×", "yes")
    assert rows["KL at ε = 0.1, against public only, best floor"][-1] == "yes"
    name = "perplexity of running text at ε = 1, against the public model"
    assert rows[name] == (0.2, 0.3, 0.6667, "≤ 1.00 ×", "yes")
    assert all(row[-1] == "yes" for row in rows.values())
    empty = table_of(Nothing())
    assert {row[-1] for row in empty.rows} == {"not measured"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--public", "p"], "output must be given"),
        (["--output", "x", "--public", "p"], "public must name an existing file"),
        (["--output", "x", "--public", "p", "--parts", "tables"], "parts must be of"),
        (["--output", "x", "--public", "p", "--runner", "Flink"], "has no option --runner"),
    ],
)
def test_wrong_options_are_refused(folder, capsys, options, words):
    assert main(options, folder) == 2
    assert words in capsys.readouterr().err


def test_an_output_inside_a_release_is_refused(folder, tmp_path, capsys):
    (tmp_path / "ledger.json").write_text("{}")
    assert main(options_of(folder, tmp_path / "own"), folder) == 2
    assert "outside every release" in capsys.readouterr().err


def test_the_directory_of_another_program_is_left_as_it_is(folder, tmp_path, capsys):
    own = tmp_path / "own"
    own.mkdir()
    (own / "README.md").write_text("# The papers' experiments\n")
    assert main(options_of(folder, own), folder) == 2
    assert "output must be a directory of this program," in capsys.readouterr().err
    assert [path.name for path in own.iterdir()] == ["README.md"]
