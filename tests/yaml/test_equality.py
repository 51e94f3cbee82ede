"""A pipeline in YAML gives the bytes of the program under one run key."""

import json
import pathlib
import random

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import PrivateNgrams, yaml
from beam_dpne.reading.options import ReadOptions
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
    """A folder with files of 300 users, whose columns are in two orders, public counts, and a key."""
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
    pq.write_table(table[:600], folder / "texts/0.parquet")
    turned = table[600:].select(["at", "said", "customer", "asked"])
    pq.write_table(turned, folder / "texts/1.parquet")
    rows = [*table[:600].to_pylist(), *turned.to_pylist()]
    chance.shuffle(rows)
    (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "counts.tsv").write_text(PUBLIC)
    (folder / "run.key").write_text(KEY)
    return folder


def files_of(folder):
    return {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}


def configuration(data, transform, **more):
    public = {"public": str(data / "counts.tsv")} if transform == "BayesianCounts" else {}
    key = {"run_key_file": str(data / "run.key")}
    return {**BUDGET, **PROGRAMS[transform][1], **public, **FIELDS, **key, **more}


FIELDS = {"user_field": "customer", "text_field": ["asked", "said"]}


def released_by_yaml(data, transform, output, steps=(), files="texts", fields=None, **more):
    """Runs a pipeline of reading, other steps, the transform and writing; returns the files."""
    config = {"input": str(data / files), **FIELDS, **({"fields": fields} if fields else {})}
    chain = [{"type": "ReadDocuments", "config": config}, *steps]
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


def test_rows_straight_from_files_give_the_bytes_of_the_program(data, by_program, tmp_path):
    transform, expected = by_program
    assert len(expected) > 1
    assert released_by_yaml(data, transform, tmp_path / "yaml") == expected


def test_records_with_their_keys_in_any_order_give_the_bytes_of_the_program(data, cli, tmp_path):
    given = configuration(data, "PrivateSetUnion") | NOTES
    given |= {"input": data / "texts.jsonl", "output": tmp_path / "p", "output_format": "tsv"}
    fields = given.pop("text_field")
    arguments = [part for name in fields for part in ("--text_field", name)]
    arguments += [part for name, value in given.items() for part in (f"--{name}", value)]
    assert cli("set-union", *arguments, "--quiet").status == 0
    found = released_by_yaml(data, "PrivateSetUnion", tmp_path / "yaml", files="texts.jsonl")
    assert found == files_of(tmp_path / "p")
    assert len(found) > 1


SAME_ROWS = {
    "a filter of everything": [
        {"type": "Filter", "config": {"language": "python", "keep": "True"}}
    ],
    "a filter by a field": [
        {"type": "Filter", "config": {"language": "python", "keep": "int(at) < 9999"}}
    ],
    "a shuffle": [{"type": "Reshuffle"}],
}


def test_rows_after_other_steps_have_other_noise_under_the_same_key(data, by_program, tmp_path):
    transform, expected = by_program
    releases = [
        released_by_yaml(
            data, transform, tmp_path / name, steps, fields=["at"], partitions=3 + number
        )
        for number, (name, steps) in enumerate(SAME_ROWS.items())
    ]
    assert releases[0] == releases[1] == releases[2]
    parts = {name for name in releases[0] if name != "ledger.json"}
    assert parts
    assert parts.isdisjoint(expected)
    assert b'"format": "rows"' in releases[0]["ledger.json"]


def test_other_fields_and_further_fields_are_not_the_documents_of_the_program(data):
    """Under one key they draw other noise, since other records may be rejected or other texts read."""
    pipeline = beam.Pipeline(runner=FnApiRunner())

    def described(name, config, fields=FIELDS):
        rows = pipeline | name >> yaml.ReadDocuments(input=str(data / "texts"), **config)
        budget = {"epsilon": 1, "delta": 1e-6}
        _ = rows | f"{name}: release" >> yaml.PrivateNgrams(**budget, **fields)
        found = []

        class Last(beam.pipeline.PipelineVisitor):
            def enter_composite_transform(self, transform_node):
                if isinstance(transform_node.transform, PrivateNgrams):
                    found.append(transform_node.transform.input_description)

        pipeline.visit(Last())
        return found[-1]

    program = ReadOptions(**FIELDS).describe([str(data / "texts/0.parquet")])
    assert described("program", FIELDS) == program
    assert described("fields", {**FIELDS, "fields": ["at"]}) != program
    one = {"user_field": "customer", "text_field": "asked"}
    assert described("one text", FIELDS, one).format == "rows"
