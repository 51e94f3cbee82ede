"""The papers' experiments on small data: the figures are right, and every row of the papers is there.

The run keys are fixed: nothing here fails by chance.
"""

import collections
import csv
import doctest
import gzip
import importlib
import itertools
import pathlib

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import NgramsPlan, PrivateNgrams, PrivateSetUnion, SetUnionPlan
from beam_dpne.ngrams.adaptive import AHEAD
from pipelines.experiments import bayesian_parts
from pipelines.experiments import paper_parts as parts
from pipelines.experiments import printed as papers
from pipelines.experiments.baselines import NAMES
from pipelines.experiments.bayesian import PUBLIC_FILE
from pipelines.experiments.bayesian import main as bayesian_main
from pipelines.experiments.corpora import Data
from pipelines.experiments.paper_runs import measure
from pipelines.experiments.papers import MSNBC_FILE, main, sources_of
from pipelines.experiments.printed import DPNE_TABLE_5
from pipelines.experiments.studies import TITLES_FILE, fixed_key
from tests.conftest import ROOT

DATA = ROOT / "pipelines" / "data"
USERS = 300
KEY = fixed_key(1)
MODULES = sorted(path.stem for path in (ROOT / "pipelines" / "experiments").glob("*.py"))


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
    for name, number in ((TITLES_FILE, 8 * USERS), (PUBLIC_FILE, 2000)):
        with gzip.open(DATA / name) as lines, gzip.open(folder / name, "wb") as kept:
            kept.writelines(itertools.islice(lines, number))
    return folder


@pytest.fixture(scope="module")
def corpora(data) -> dict[str, Data]:
    return {name: Data(source) for name, source in sources_of(None, data).items()}


def rows_of(path: pathlib.Path) -> dict[str, dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as lines:
        return {next(iter(row.values())): row for row in csv.DictReader(lines)}


def test_every_table_of_two_papers_is_made(data, tmp_path, capsys):
    assert main(["--output", str(tmp_path), "--quick", "--quiet"], data) == 0
    rows = rows_of(tmp_path / "dpne_table_5.csv")
    printed = [f"paper: {name}" for name in DPNE_TABLE_5.rows]
    assert list(rows) == [parts.PAPER, *NAMES, parts.OURS, *printed]
    paper = rows["paper: DPNE"]
    assert [int(paper[str(k)]) for k in range(1, 7)] == list(DPNE_TABLE_5.rows["DPNE"])
    assert int(paper["real"]) == 7739
    assert rows["DPSU-single"]["real"] == ""
    for label in (parts.PAPER, parts.OURS):
        assert int(rows[label]["real"]) == sum(int(rows[label][str(k)]) for k in range(1, 7)) > 0
    with open(tmp_path / "favour_titles.csv", encoding="utf-8", newline="") as lines:
        pairs = {row["favour"]: int(row["2"]) for row in csv.DictReader(lines)}
    assert pairs["long"] > pairs["words"]
    assert pairs.keys() == AHEAD.keys()
    policies = rows_of(tmp_path / "dpsu_table_1.csv")
    assert {*parts.PUBLISHED, *parts.OTHER_POLICIES} < policies.keys()
    summary = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "NOT PRIVATE" in summary
    made = {each.name for each in parts.all_experiments(parts.QUICK)}
    assert {path.stem for path in tmp_path.glob("*.csv")} == made
    assert all(f"({name}.csv)" in summary for name in made)
    assert "DPNE, Table 5" in capsys.readouterr().out


def test_real_and_spurious_grams_are_those_that_plain_counting_finds(corpora):
    """A large η, so that some are spurious; the corpus is counted again from its documents."""
    plan = NgramsPlan(epsilon=8, delta=1e-4, max_length=3, spurious_fraction=0.4, count_share=0)
    lengths = [
        measure(plan, corpora["msnbc"], number, fixed_key(number))["lengths"]
        for number in range(1, 9)
    ]
    holders = collections.Counter()
    for documents in users_of(corpora["msnbc"]).values():
        holders.update({pair for text in documents for pair in itertools.pairwise(text)})
    seconds = [levels[1] for levels in lengths]
    assert all(level["released"] == level["real"] + level["spurious"] for level in seconds)
    spurious, bound = (
        sum(each[name] for each in seconds) for name in ("spurious", "spurious_bound")
    )
    assert 0 < spurious <= 3 * bound
    held = {k: count for k, count, _ in seconds[0]["k_anonymity"]}
    assert held[1] == len(holders)
    assert held[5] == sum(count >= 5 for count in holders.values())


def users_of(data: Data) -> dict[str, list[list[str]]]:
    """The texts of each user, as lists of words."""
    corpus, found = data.corpus, {}
    words = corpus.words.to_pylist()
    for user, name in enumerate(corpus.users.to_pylist()):
        codes = corpus.codes[corpus.offsets[user] : corpus.offsets[user + 1]].tolist()
        texts = itertools.groupby(codes, key=lambda code: code >= 0)
        found[name] = [[words[code] for code in text] for is_text, text in texts if is_text]
    return found


@pytest.mark.parametrize(
    "plan",
    [
        NgramsPlan(epsilon=8, delta=1e-3, max_length=3, count_share=0, max_tokens_per_user=100),
        SetUnionPlan(epsilon=3, delta=1e-3, max_contributions=30, count_share=0),
    ],
    ids=["ngrams", "union"],
)
def test_in_memory_as_much_is_released_as_by_the_pipeline(corpora, tmp_path, plan):
    result = measure(plan, corpora["titles"], 1, KEY)
    documents = [
        (user, text) for user, texts in users_of(corpora["titles"]).items() for text in texts
    ]
    is_union = isinstance(plan, SetUnionPlan)
    transform = PrivateSetUnion if is_union else PrivateNgrams
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        release = transform(plan=plan, tokenizer="tokens", run_key=KEY)
        rows = (pipeline | beam.Create(documents) | release).rows | beam.combiners.Count.Globally()
        _ = rows | beam.Map(lambda number: (tmp_path / "size").write_text(str(number)))
    released = sum(level["released"] for level in result["lengths"])
    assert released == int((tmp_path / "size").read_text()) > 0


def test_the_parameters_are_the_papers():
    by_name = {each.name: each for each in parts.all_experiments(parts.DEFAULT)}
    for name, length in (("dpne_table_5", 6), ("dpne_table_4_9", 9)):
        plan = by_name[name].rows[0].plan
        printed = by_name[name].printed.parameters
        assert plan.strategy == "one_round"
        assert plan.max_length == printed["max_length"] == length
        for field in ("epsilon", "delta", "max_contributions", "spurious_fraction"):
            assert getattr(plan, field) == printed[field]
    union = by_name["dpsu_table_1"]
    assert set(union.values) == set(union.printed.columns)
    (plan,) = (row.plan for row in union.rows if (row.label, row.at) == ("policy_gaussian", 100))
    assert (plan.epsilon, plan.delta) == tuple(union.printed.parameters.values())
    assert (plan.shard_count, plan.cutoff_margin) == (1, 5.0)
    assert set(by_name["dpne_table_3"].values) == set(parts.SPURIOUS_FRACTIONS)


def test_printed_figures_are_consistent():
    tables = [value for value in vars(papers).values() if isinstance(value, papers.PrintedTable)]
    assert len(tables) == 5
    for table in tables:
        assert all(len(row) == len(table.columns) for row in table.rows.values())
    totals = {"DPNE": (7739, 480191), "DPSU-all": (4116, 124641), "DPSU-even": (4031, 109958)}
    for row, (visits, posts) in totals.items():
        assert sum(DPNE_TABLE_5.rows[row]) == visits
        assert sum(papers.DPNE_TABLE_4.rows[row]) == posts
    rows, place = papers.DPSU_TABLE_2.rows, papers.DPSU_TABLE_1.columns.index(100)
    for policy in ("policy_laplace", "policy_gaussian"):
        size = papers.DPSU_TABLE_1.rows[policy][place]
        for held, ratio in zip(rows["held"], rows[policy], strict=True):
            assert ratio == pytest.approx(size / held, abs=0.0011)


def test_every_figure_of_the_third_paper_is_made(data, tmp_path):
    assert bayesian_main(["--output", str(tmp_path), "--quick", "--quiet"], data) == 0
    rows = rows_of(tmp_path / "epsilon.csv")
    assert rows.keys() >= {bayesian_parts.LABELS[name] for name in bayesian_parts.COMPARED}
    for row in rows.values():
        assert all(0 < float(value) < 20 for name, value in row.items() if name != "mechanism")
    assert "no differential privacy guarantee" in (tmp_path / "README.md").read_text("utf-8")
    assert {path.stem for path in tmp_path.glob("*.csv")} == set(bayesian_parts.PARTS)


def test_no_vocabulary_is_larger_than_the_public_counts():
    scale = bayesian_parts.DEFAULT.within(20_000)
    assert scale.vocabularies == (1_000, 3_000, 10_000, 20_000)
    assert scale.table_vocabularies == (10_000, 20_000)


@pytest.mark.parametrize(
    ("program", "options", "words"),
    [
        (main, ["--parts", "tables"], "parts must be of"),
        (bayesian_main, ["--public", "p"], "`public` must name an existing file"),
    ],
)
def test_wrong_options_are_refused(program, options, words, data, tmp_path, capsys):
    assert program(["--output", str(tmp_path), *options], data) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name):
    module = importlib.import_module(f"pipelines.experiments.{name}")
    assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0
