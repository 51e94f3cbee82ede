"""Whole pipelines in YAML: sources, filters, outputs and sinks; templates, listings and tests."""

import gzip
import json
import pathlib
import random
import re
import runpy
import shutil
import sys

import pandas as pd
import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq
import pytest
import yaml
from apache_beam.yaml import main as yaml_main

from beam_dpne import read_release
from beam_dpne.yaml import __all__ as names
from beam_dpne.yaml.__main__ import LISTING
from tests.conftest import ROOT
from tests.engines.conftest import release_bytes
from tests.yaml.running import RUNNER, run_yaml, text_of

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


CANARY = "CANARY zebra 4711"
QUICK = {"epsilon": 8, "delta": 1e-4, "max_length": 1, "strategy": "one_round"}
WORDS = ["rye bread", "tea", "rye bread and tea", "NA", "null", "12.50"]
RELEASED = {"rows": "PrivateNgrams.rows", "ledger": "PrivateNgrams.ledger"}


@pytest.fixture(scope="module")
def rows():
    """Records of 200 users, of which half are from another country."""
    chance = random.Random(3)
    return [
        {"id": f"user {chance.randrange(200)}", "said": chance.choice(WORDS), "country": country}
        for country in ("dk", "se") * 300
    ]


def pipeline(source, output, **config):
    """The steps of a pipeline from a source to a release."""
    keep = {"type": "Filter", "config": {"language": "python", "keep": "country == 'dk'"}}
    fields = {"user_field": "id", "text_field": "said"}
    return [
        {"type": "chain", "name": "Danish", "transforms": [source, keep]},
        {"type": "PrivateNgrams", "input": "Danish", "config": {**QUICK, **fields, **config}},
        {"type": "WriteRelease", "input": RELEASED, "config": {"output": str(output)}},
    ]


def test_rows_and_ledger_go_to_other_sinks(rows, tmp_path):
    source = {"type": "Create", "config": {"elements": rows}}
    sinks = [
        {"type": "WriteToParquet", "input": "PrivateNgrams.rows", "path": "found.parquet"},
        {"type": "WriteToJson", "input": "PrivateNgrams.rows", "path": "found.json"},
        {
            "type": "WriteToJson",
            "name": "L",
            "input": "PrivateNgrams.ledger",
            "path": "ledger.json",
        },
        {"type": "WriteToJson", "name": "P", "input": "WriteRelease", "path": "written.json"},
    ]
    for sink in sinks:
        sink["config"] = {"path": str(tmp_path / sink.pop("path"))}
    run_yaml([*pipeline(source, tmp_path / "release"), *sinks])
    expected = read_release(str(tmp_path / "release")).table().to_pylist()
    assert len(expected) > 3

    def written(name):
        paths = tmp_path.glob(f"{name}*")
        return [json.loads(line) for path in paths for line in path.read_text().splitlines()]

    def by_word(found):
        return sorted(found, key=lambda row: row["ngram"])

    parquet = pa.concat_tables(map(pq.read_table, sorted(tmp_path.glob("found.parquet*"))))
    assert by_word(parquet.to_pylist()) == by_word(expected)
    assert by_word(written("found.json")) == by_word(expected)
    (ledger,) = written("ledger.json")
    assert json.loads(ledger["ledger"])["rows"]["count"] == len(expected)
    (place,) = written("written.json")
    assert pathlib.Path(place["path"]) == tmp_path / "release/ledger.json"


def test_a_null_text_fails_the_run_without_data():
    elements = [{"id": CANARY, "said": CANARY}, {"id": f"{CANARY}2", "said": None}]
    source = {"type": "Create", "config": {"elements": elements}}
    config = {**QUICK, "user_field": "id", "text_field": "said"}
    private = {"type": "PrivateNgrams", "input": "Create", "config": config}
    with pytest.raises(Exception, match="PrivateNgrams") as caught:
        run_yaml([source, private])
    assert "whose text is null" in str(caught.value)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("kind", ["Json", "Csv", "Parquet"])
def test_rows_of_the_readers_of_beam_are_refused_before_the_run(rows, kind, tmp_path):
    path = tmp_path / "rows"
    frame = pd.DataFrame(rows)
    if kind == "Json":
        frame.to_json(path, orient="records", lines=True)
    else:
        getattr(frame, f"to_{kind.lower()}")(path, index=False)
    source = {"type": f"ReadFrom{kind}", "config": {"path": str(path)}}
    with pytest.raises(ValueError, match=f"documents must not come from .*ReadFrom{kind}"):
        run_yaml(pipeline(source, tmp_path / "release"))
    assert not (tmp_path / "release").exists()


def arguments(path, variables):
    return [f"--yaml_pipeline_file={path}", RUNNER, f"--jinja_variables={json.dumps(variables)}"]


def test_the_pipeline_of_the_page_passes_the_tests_beside_it(tmp_path, monkeypatch):
    page = (ROOT / "docs/yaml.md").read_text(encoding="utf-8")
    _, _, rest = page.partition("cat > messages.yaml <<'END'\n")
    (tmp_path / "messages.yaml").write_text(rest.partition("\nEND\n")[0])
    shutil.copy(LISTING, tmp_path / "beam_dpne.yaml")
    monkeypatch.chdir(tmp_path)
    given = arguments("messages.yaml", {"output": "release"})
    yaml_main.run_tests([*given, "--tests"], exit=False)
    assert not (tmp_path / "release").exists()


@pytest.fixture
def run_module(monkeypatch, capsys):
    """Runs `python -m beam_dpne.yaml` in this process, and returns its output."""

    def run(*more):
        monkeypatch.setattr(sys, "argv", ["beam_dpne.yaml", *more])
        monkeypatch.delitem(sys.modules, "beam_dpne.yaml.__main__", raising=False)
        runpy.run_module("beam_dpne.yaml", run_name="__main__", alter_sys=True)
        return capsys.readouterr().out

    return run


def test_the_module_prints_the_path_of_the_listing(run_module):
    assert pathlib.Path(run_module().strip()).samefile(LISTING)


def test_the_module_prints_a_listing_by_which_beam_installs_the_package(run_module):
    found = run_module("--package", "gs://bucket/beam_dpne-0.1.0-py3-none-any.whl")
    (provider,) = yaml.safe_load(found)
    assert provider["type"] == "pythonPackage"
    assert provider["config"] == {"packages": ["gs://bucket/beam_dpne-0.1.0-py3-none-any.whl"]}
    assert provider["transforms"] == {name: f"beam_dpne.yaml.{name}" for name in names}


def test_a_pipeline_may_hold_the_listing_itself():
    spec = text_of([{"type": "Create", "config": {"elements": [{"user": "a", "text": "b"}]}}])
    spec = spec.replace(f"- include: {LISTING}\n", LISTING.read_text())
    assert "include" not in spec
    yaml_main.run([f"--yaml_pipeline={spec}", RUNNER])


def test_numbers_of_a_list_have_the_bytes_of_the_program(tmp_path, cli):
    rows = [{"user": f"u{n}", "text": "Good morning", "team": "ab"[n % 2]} for n in range(99)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "list.csv").write_text("group,ngram\na,good morning\nb,good\nzz,nobody\n")
    (tmp_path / "run.key").write_text("5eed" * 16)
    (tmp_path / "run.key").chmod(0o600)
    source = {"input": str(tmp_path / "in.jsonl"), "group_field": "team"}
    given = {
        "phrases": str(tmp_path / "list.csv"),
        "epsilon": 2,
        "delta": 1e-5,
        "run_key_file": str(tmp_path / "run.key"),
    }
    outputs = {"rows": "Count.rows", "ledger": "Count.ledger"}
    run_yaml(
        [
            {"type": "ReadDocuments", "name": "Read", "config": source},
            {
                "type": "CountPhrases",
                "name": "Count",
                "input": "Read",
                "config": {**given, "group_field": "team"},
            },
            {
                "type": "WriteRelease",
                "name": "Write",
                "input": outputs,
                "config": {"output": str(tmp_path / "yaml")},
            },
        ]
    )
    options = [word for name, value in {**source, **given}.items() for word in (f"--{name}", value)]
    ended = cli("count", *options, "--output", tmp_path / "program", "--quiet")
    assert ended.status == 0, ended.err
    assert release_bytes(tmp_path / "yaml") == release_bytes(tmp_path / "program")
