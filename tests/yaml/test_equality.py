"""A pipeline in YAML gives the bytes of the program under one run key."""

import pathlib
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.yaml.running import run_yaml

KEY = "5eed0001" * 8
BUDGET = {"epsilon": 6, "delta": 1e-4}
PUBLIC = "rye bread\t5\nbread and\t4\nand tea\t4\nno such\t1\n"
PROGRAMS = {
    "PrivateNgrams": ("ngrams", {"max_length": 2, "max_contributions": [20, 10]}),
    "PrivateSetUnion": ("set-union", {"policy": "weighted_gaussian", "max_contributions": 20}),
    "BayesianCounts": ("bayesian", {"length": 2, "max_contributions": 3, "epsilon": 0.2}),
}
NOTES = {"title": "Breakfast, spring", "contact": "privacy@example.com", "unit": "a customer"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with two Parquet files of 300 users, public counts, and a key."""
    folder = tmp_path_factory.mktemp("data")
    chance = random.Random(5)
    texts = ["Rye bread and tea", "rye bread", "tea and bread", "nothing else, thanks"]
    users = [f"{chance.randrange(300):03}" for _ in range(1200)]
    table = pa.table(
        {
            "customer": users,
            "asked": [chance.choice(texts) for _ in users],
            "said": [chance.choice([None, *texts]) for _ in users],
            "at": list(range(1200)),
        }
    )
    (folder / "texts").mkdir()
    for number in range(2):
        pq.write_table(table[number * 600 : number * 600 + 600], folder / f"texts/{number}.parquet")
    (folder / "counts.tsv").write_text(PUBLIC)
    (folder / "run.key").write_text(KEY)
    return folder


def files_of(folder):
    return {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}


def configuration(data, transform, **more):
    public = {"public": str(data / "counts.tsv")} if transform == "BayesianCounts" else {}
    fields = {"user_field": "customer", "text_field": ["asked", "said"]}
    key = {"run_key_file": str(data / "run.key")}
    return {**BUDGET, **PROGRAMS[transform][1], **public, **fields, **key, **more}


def released_by_yaml(data, transform, output, steps=(), **more):
    """Runs a pipeline of reading, other steps, the transform and writing; returns the files."""
    reading = {"type": "ReadFromParquet", "config": {"path": str(data / "texts/*.parquet")}}
    chain = [reading, *steps]
    writing = {"output": str(output), "output_format": "tsv", **NOTES}
    run_yaml(
        [
            {"type": "chain", "name": "Rows", "transforms": chain},
            {"type": transform, "input": "Rows", "config": configuration(data, transform, **more)},
            {
                "type": "WriteRelease",
                "input": {"rows": f"{transform}.rows", "ledger": f"{transform}.ledger"},
                "config": writing,
            },
        ]
    )
    return files_of(output)


@pytest.fixture(scope="module", params=PROGRAMS)
def by_program(request, cli, data, tmp_path_factory):
    """The YAML transform of a program, and the files of the program's release."""
    output = tmp_path_factory.mktemp("program") / "release"
    given = configuration(data, request.param) | NOTES
    given |= {"input": str(data / "texts"), "output": str(output), "output_format": "tsv"}
    arguments = []
    for name, value in given.items():
        if name == "text_field":
            arguments += [part for field in value for part in ("--text_field", field)]
        else:
            text = ",".join(map(str, value)) if isinstance(value, list) else value
            arguments += [f"--{name}", text]
    ended = cli(PROGRAMS[request.param][0], *arguments, "--quiet")
    assert ended.status == 0, ended.err
    return request.param, files_of(output)


def test_rows_straight_from_parquet_give_the_bytes_of_the_program(data, by_program, tmp_path):
    transform, expected = by_program
    assert len(expected) > 1
    found = released_by_yaml(data, transform, tmp_path / "yaml", input_format="parquet")
    assert found == expected


def test_other_rows_have_other_noise_under_the_same_key(data, by_program, tmp_path):
    transform, expected = by_program
    found = released_by_yaml(data, transform, tmp_path / "yaml")
    again = released_by_yaml(data, transform, tmp_path / "again", partitions=3)
    assert found == again
    parts = {name for name in found if name != "ledger.json"}
    assert parts
    assert parts.isdisjoint(expected)
    assert b'"format": "rows"' in found["ledger.json"]


@pytest.mark.parametrize(
    "step",
    [
        {"type": "Filter", "config": {"language": "python", "keep": "at < 600"}},
        {"type": "MapToFields", "config": {"append": True, "fields": {}}},
        {"type": "Reshuffle"},
    ],
    ids=lambda step: step["type"],
)
def test_a_step_after_reading_is_refused_under_the_key_of_the_files(data, step, tmp_path):
    with pytest.raises(ValueError, match="must be rows unless the rows come straight from"):
        released_by_yaml(data, "PrivateNgrams", tmp_path / "no", [step], input_format="parquet")
    assert not (tmp_path / "no").exists()
