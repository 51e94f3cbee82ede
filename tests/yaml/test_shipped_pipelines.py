"""The YAML pipelines that a person copies: they run as their heads say, on the shipped data."""

import gzip
import json
import pathlib
import re

import pyarrow.json as pj
import pyarrow.parquet as pq
import pytest
import yaml
from apache_beam.yaml import main as yaml_main

from beam_dpne import read_release
from tests.conftest import ROOT
from tests.yaml.running import RUNNER

FOLDER = ROOT / "pipelines" / "yaml"
DATA = ROOT / "pipelines" / "data"
PUBLIC = DATA / "reddit_titles_public_trigrams.tsv.gz"
PIPELINES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
BUDGET = {"epsilon": 4, "delta": 1e-6}
TITLES = 3_000  # of the shipped 52,136


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> pathlib.Path:
    """A folder with titles in all formats, and a run key."""
    folder = tmp_path_factory.mktemp("titles")
    with gzip.open(DATA / "reddit_titles_sample.jsonl.gz", "rb") as lines:
        (folder / "titles.jsonl").write_bytes(b"".join(next(lines) for _ in range(TITLES)))
    table = pj.read_json(folder / "titles.jsonl")
    pq.write_table(table, folder / "titles.parquet")
    table.to_pandas().to_csv(folder / "titles.csv", index=False)
    (folder / "run.key").write_text("5eed" * 16)
    return folder


def run(name: str, **variables: object) -> None:
    given = json.dumps({**BUDGET, **variables})
    path = FOLDER / f"{name}.yaml"
    yaml_main.run([f"--yaml_pipeline_file={path}", f"--jinja_variables={given}", RUNNER])


def head(name: str) -> str:
    """The comment at the beginning of a pipeline."""
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    return re.match(r"(#.*\n)+", text)[0]


@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_is_yaml_before_its_variables_are_filled_in(name):
    """`gcloud dataflow yaml run` parses a file before it sends it."""
    found = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    assert found["pipeline"]["transforms"]


@pytest.mark.parametrize("name", PIPELINES)
def test_the_head_of_a_pipeline_has_its_command_with_all_variables(name):
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    command = re.sub(r"\\?\n# *", " ", head(name))
    assert f"--runner=FnApiRunner --yaml_pipeline_file=pipelines/yaml/{name}.yaml" in re.sub(
        " +", " ", command
    )
    given = json.loads(re.search(r"--jinja_variables='(.*?)'", command)[1])
    assert set(given) == set(re.findall(r'"\{\{ (\w+) \}\}', text))


def test_ngrams_of_filtered_records(files, tmp_path):
    run("ngrams", input=str(files / "titles.jsonl"), output=str(tmp_path / "release"))
    release = read_release(str(tmp_path / "release"))
    release.verify()
    ledger, rows = release.ledger, release.table()
    assert ledger["plan"]["epsilon"] == 4
    assert ledger["notes"]["unit"] == "a pseudo-user"
    assert {1, 2} <= set(rows["length"].to_pylist())


def test_parquet_gives_the_bytes_of_the_program(files, tmp_path, cli):
    key, titles = files / "run.key", files / "titles.parquet"
    run("parquet", input=str(titles), output=str(tmp_path / "yaml"), run_key_file=str(key))
    budget = [f"--{name}={value}" for name, value in BUDGET.items()]
    options = ["--input", titles, "--output", tmp_path / "program", "--run_key_file", key]
    ended = cli("ngrams", *options, *budget)
    assert ended.status == 0, ended.err
    found = {path.name: path.read_bytes() for path in (tmp_path / "yaml").iterdir()}
    assert found == {path.name: path.read_bytes() for path in (tmp_path / "program").iterdir()}


def test_a_set_union_of_csv_files(files, tmp_path):
    run("set_union", input=str(files / "titles.csv"), output=str(tmp_path / "words"))
    (part,) = (tmp_path / "words").glob("items-*.parquet")
    (ledger,) = (tmp_path / "words").glob("ledger.json-*")
    rows = pq.read_table(part)
    assert rows.column_names == ["item", "score", "users", "users_low", "users_high"]
    assert json.loads(ledger.read_text())["rows"]["count"] == rows.num_rows > 50
    assert {"the", "to"} <= set(rows["item"].to_pylist())


def test_probabilities_of_public_trigrams(files, tmp_path):
    run(
        "probabilities",
        input=str(files / "titles.parquet"),
        public=str(PUBLIC),
        output=str(tmp_path / "release"),
    )
    release = read_release(str(tmp_path / "release"))
    release.verify()
    ledger, rows = release.ledger, release.table()
    assert ledger["program"] == "bayesian"
    assert rows.num_rows == gzip.decompress(PUBLIC.read_bytes()).count(b"\n")
    assert all(probability > 0 for probability in rows["probability"].to_pylist())


def own_tests(path: pathlib.Path) -> list[str]:
    """Options of Beam's program that run the block `tests` of a pipeline."""
    given = json.dumps({**BUDGET, "input": "none", "output": "none"})
    return [RUNNER, "--tests", f"--yaml_pipeline_file={path}", f"--jinja_variables={given}"]


def test_the_tests_in_a_pipeline_pass(capsys):
    yaml_main.run_tests(own_tests(FOLDER / "ngrams.yaml"), exit=False)
    assert "Ran 1 test" in capsys.readouterr().err
