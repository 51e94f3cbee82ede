"""ReadDocuments for YAML: rows by the names of fields, rejected records, and wrong configurations."""

import gzip
import json
import pathlib

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.pipeline import PipelineVisitor
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from beam_dpne import PrivateNgrams, yaml
from beam_dpne.errors import InputError, UsageError
from beam_dpne.reading import rejects as reasons
from beam_dpne.steps import BatchDocuments
from tests.reading.files import read

CANARY = "CANARY zebra 4711"
RECORDS = [
    {"user": "007", "text": "good morning", "country": "dk", "age": 7},
    {"text": "to be, or not", "age": None, "user": 7, "country": "sø"},
    {"country": ["a", "ø"], "text": "", "user": "7", "extra": {"user": CANARY}},
]
WANTED = [
    beam.Row(user="007", text="good morning", country="dk", age="7"),
    beam.Row(user="7", text="to be, or not", country="sø", age=None),
    beam.Row(user="7", text="", country='["a", "ø"]', age=None),
]
BAD = [
    {"user": ["a", CANARY], "text": "b"},
    {"user": {"id": CANARY}, "text": "b"},
    {"user": None, "text": "b"},
    {"text": CANARY},
    {"user": "a", "text": 3},
    {"user": True, "text": "b"},
    {"user": 1.5, "text": "b"},
]


def lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


def run_and_compare(cases):
    """Runs the reader of each case in one pipeline, and compares its rows."""
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        for name, (config, wanted) in cases.items():
            rows = pipeline | name >> yaml.ReadDocuments(**config)
            assert_that(rows, equal_to(wanted), label=f"{name}: rows")
            shuffled = rows | f"{name}: shuffle" >> beam.Reshuffle()
            users = shuffled | f"{name}: users" >> beam.Map(lambda row: row.user)
            assert_that(users, equal_to([row.user for row in wanted]), label=f"{name}: users only")


def test_fields_within_fields_have_names_without_signs_in_rows(tmp_path):
    records = [{"by": {"id": "ann"}, "turns": [{"text": "to be"}, {"text": "or not"}]}]
    given = {"input": lines(tmp_path / "a.jsonl", records), "fields": ["by.age"]}
    given |= {"user_field": "by.id", "text_field": "turns[].text"}
    wanted = [beam.Row(by_id="ann", turns_text=text, by_age=None) for text in ("to be", "or not")]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        assert_that(pipeline | yaml.ReadDocuments(**given), equal_to(wanted))
    with pytest.raises(UsageError, match="different names in rows, got 'by_id' for two"):
        _ = beam.Pipeline(runner=FnApiRunner()) | yaml.ReadDocuments(
            **{**given, "fields": ["by_id"]}
        )


@pytest.mark.parametrize("named", [("by.id", "turns[].text"), ("by_id", "turns_text")])
def test_a_private_transform_behind_the_reader_may_name_the_paths(tmp_path, named):
    records = [{"by": {"id": f"p{n}"}, "turns": [{"text": "to be"}]} for n in range(300)]
    path = lines(tmp_path / "a.jsonl", records)
    # One run in fifty has an n-gram of nobody, which a fixed key decides.
    (tmp_path / "run.key").write_text("5eed" * 16)
    (tmp_path / "run.key").chmod(0o600)
    privacy = {"epsilon": 8, "delta": 1e-4, "max_length": 2}
    privacy["run_key_file"] = str(tmp_path / "run.key")
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        rows = pipeline | yaml.ReadDocuments(
            input=path, user_field="by.id", text_field="turns[].text"
        )
        user, text = named
        out = rows | yaml.PrivateNgrams(user_field=user, text_field=text, **privacy)
        released = out["rows"] | beam.Map(lambda row: row.ngram)
        assert_that(released, equal_to(["be", "to", "to be"]))


def test_rows_have_the_values_of_their_fields_in_every_format(tmp_path):
    fields = ["country", "age"]
    (tmp_path / "a.csv").write_text(
        'text,age,user,country\n"to be, or not",,007,NA\nyes,1.50,7,dk\n'
    )
    (tmp_path / "b.csv").write_text("country,user,age,text\nnull,8,x,no\n")
    (tmp_path / "a.json").write_text(json.dumps(RECORDS), encoding="utf-16")
    (tmp_path / "latin.tsv").write_bytes("007\tdk\t1\tsmørrebrød\n".encode("latin-1"))
    table = pa.table(
        {
            "age": [1.5, None],
            "text": ["yes", "no"],
            "user": [7, 8],
            "country": pa.array([True, False]),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    from_csv = [
        beam.Row(user="007", text="to be, or not", country="NA", age=""),
        beam.Row(user="7", text="yes", country="dk", age="1.50"),
        beam.Row(user="8", text="no", country="null", age="x"),
    ]
    from_parquet = [
        beam.Row(user="7", text="yes", country="true", age="1.5"),
        beam.Row(user="8", text="no", country="false", age=None),
    ]
    latin = {"encoding": "latin-1", "columns": ["user", "country", "age", "text"]}
    of_lists = lines(tmp_path / "lists.jsonl", [{"words": ["x", "y z"], "user": "u", "c": None}])
    two = lines(tmp_path / "two.jsonl", [{"user": "u", "b": "x"}, {"a": "y", "user": "v"}])
    rejected = lines(tmp_path / "bad.jsonl", [*BAD, *RECORDS])
    run_and_compare(
        {
            "lines": ({"input": lines(tmp_path / "a.jsonl", RECORDS), "fields": fields}, WANTED),
            "array": ({"input": [str(tmp_path / "a.json")], "fields": fields}, WANTED),
            "csv": ({"input": str(tmp_path / "*.csv"), "fields": fields}, from_csv),
            "parquet": ({"input": str(tmp_path / "a.parquet"), "fields": fields}, from_parquet),
            "latin": (
                {"input": str(tmp_path / "latin.tsv"), "fields": fields, **latin},
                [beam.Row(user="007", text="smørrebrød", country="dk", age="1")],
            ),
            "lists": (
                {"input": of_lists, "text_field": "words", "text_is_tokens": "true"},
                [beam.Row(user="u", words=["x", "y z"])],
            ),
            "two texts": (
                {"input": two, "text_field": ["a", "b"]},
                [beam.Row(user="u", a=None, b="x"), beam.Row(user="v", a="y", b=None)],
            ),
            "rejected": ({"input": rejected, "fields": fields, "max_rejected": 1}, WANTED),
        }
    )


@pytest.mark.parametrize("rejects", [False, True])
def test_too_many_rejected_records_fail_the_run_before_any_row_is_passed_on(rejects, tmp_path):
    more = {"rejects": str(tmp_path / "rejects")} if rejects else {}
    passed = tmp_path / "passed"
    pipeline = beam.Pipeline(runner=FnApiRunner())
    path = lines(tmp_path / "a.jsonl", [*BAD, *RECORDS])
    rows = pipeline | yaml.ReadDocuments(input=path, **more)
    _ = rows | beam.Map(lambda _: passed.write_text("row"))
    with pytest.raises(Exception, match="larger `max_rejected` to go on") as caught:
        pipeline.run()
    assert "max_rejected=0.05" in str(caught.value)
    assert CANARY not in str(caught.value)
    assert not passed.exists()
    if rejects:
        (listed,) = (tmp_path / "rejects").iterdir()
        found = [json.loads(line) for line in listed.read_text().splitlines()]
        assert len(found) == 7
        assert {reasons.BAD_USER, "user is null or missing"} < {each["reason"] for each in found}
        assert CANARY not in listed.read_text()


WRONG = [
    ({"input": "x.jsonl", "max_rejected": 2}, "`max_rejected` must be"),
    ({"input": "x.seq", "input_format": "sequences"}, "a file of sequences must be read without"),
    ({"input": "x.jsonl", "encoding": "utf-9"}, "`encoding` must be"),
    ({"input": "x.jsonl", "fields": ["user"]}, "each field once"),
    ({"input": "x.jsonl", "user_field": "text"}, "each field once"),
    ({"input": "x.jsonl", "path": "x"}, "ReadDocuments has no key path."),
    ({"input": 3}, "`input` must be"),
]


@pytest.mark.parametrize(("config", "sentence"), WRONG)
def test_a_wrong_configuration_is_refused(config, sentence):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        yaml.ReadDocuments(**config)
    assert sentence in str(caught.value)
    assert "--" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"user_field": "who"}, "`user_field` must name a field of"),
        ({"input": "none.jsonl"}, "none.jsonl"),
    ],
)
def test_files_that_do_not_fit_are_refused_before_the_run(config, sentence, tmp_path):
    given = {"input": lines(tmp_path / "a.jsonl", RECORDS), **config}
    with pytest.raises((InputError, FileNotFoundError)) as caught:
        _ = beam.Pipeline(runner=FnApiRunner()) | yaml.ReadDocuments(**given)
    assert sentence in str(caught.value)
    assert "--" not in str(caught.value)
    assert CANARY not in str(caught.value)


def test_nested_columns_are_refused_as_further_fields(tmp_path):
    table = pa.table({"user": ["a"], "text": ["b"], "tags": [["c"]]})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(InputError, match="Further fields must be text"):
        _ = beam.Pipeline(runner=FnApiRunner()) | yaml.ReadDocuments(
            input=str(tmp_path / "a.parquet"), fields=["tags"]
        )


@pytest.mark.parametrize("inside", ["input", "rejects", "run_key_file", "stop_list"])
def test_secrets_inside_the_release_are_refused(tmp_path, inside):
    release = tmp_path / "release"
    release.mkdir()
    place = {name: tmp_path for name in ("input", "rejects", "run_key_file", "stop_list")}
    place[inside] = release
    path = lines(place["input"] / "a.jsonl", RECORDS)
    (place["run_key_file"] / "key").write_text("0f1e2d3c" * 8)
    (place["stop_list"] / "stop").write_text("b\n")
    rejects = str(place["rejects"] / "rejects")
    rows = beam.Pipeline(runner=FnApiRunner()) | yaml.ReadDocuments(input=path, rejects=rejects)
    found = (
        rows
        | beam.Filter(bool)
        | yaml.PrivateNgrams(
            epsilon=1,
            delta=1e-6,
            run_key_file=str(place["run_key_file"] / "key"),
            stop_list=str(place["stop_list"] / "stop"),
        )
    )
    with pytest.raises(UsageError, match=f"`{inside}` must be outside"):
        _ = found | yaml.WriteRelease(output=str(release), overwrite=True)


@pytest.mark.parametrize("steps", [(), (beam.Filter(bool),)])
def test_a_further_field_cannot_be_the_user(steps, tmp_path):
    """Only the reader's own user is checked: 7, 7.0 and [7] would be three users."""
    path = lines(tmp_path / "a.jsonl", RECORDS)
    rows = beam.Pipeline(runner=FnApiRunner()) | yaml.ReadDocuments(input=path, fields=["age"])
    for step in steps:
        rows |= step
    with pytest.raises(UsageError, match="Give ReadDocuments `user_field`: age"):
        _ = rows | yaml.PrivateNgrams(epsilon=1, delta=1e-6, user_field="age")


def inner_description(rows, **config):
    """The description to which the run key of a private transform of rows is bound."""
    _ = rows | yaml.PrivateNgrams(epsilon=1, delta=1e-6, max_length=1, **config)
    found = []

    class Visitor(PipelineVisitor):
        def enter_composite_transform(self, transform_node):
            if isinstance(transform_node.transform, PrivateNgrams):
                private = transform_node.transform
                found.append(private.described or private.row_description)

    rows.pipeline.visit(Visitor())
    return found[-1]


def test_run_keys_are_bound_to_how_files_were_read_also_behind_other_steps(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b,c,d\n")

    def described(step=None, config=None, **reading):
        columns = reading.pop("columns", ["user", "text", "c", "d"])
        rows = beam.Pipeline(runner=FnApiRunner()) | yaml.ReadDocuments(
            input=str(path), columns=columns, fields=["c", "d"], **reading
        )
        return inner_description(rows | step if step else rows, **(config or {}))

    other = {"text_field": "c"}
    for step, config in ((None, other), (beam.Filter(bool), None), (beam.Filter(bool), other)):
        found = [
            described(step, config),
            described(step, config, columns=["user", "text", "d", "c"]),
            described(step, config, encoding="latin-1"),
        ]
        assert len({str(each) for each in found}) == 3
        assert found[0].format == "rows"
        assert found[0] == described(step, config)
        assert str(path) not in str(found[0])


def test_the_reader_takes_no_input():
    rows = beam.Pipeline(runner=FnApiRunner()) | beam.Create([beam.Row(user="a", text="b")])
    with pytest.raises(UsageError, match="ReadDocuments must have no input"):
        _ = rows | yaml.ReadDocuments(input="a.jsonl")


@pytest.mark.parametrize(
    ("name", "key", "more"),
    [
        ("PrivateNgrams", "known", {}),
        ("PrivateSetUnion", "known", {}),
        ("BayesianCounts", "public", {"length": 1}),
        ("CountPhrases", "phrases", {"unmakeable": "leave_out"}),
        *((name, "stop_list", {}) for name in ("PrivateNgrams", "PrivateSetUnion")),
        ("BayesianCounts", "stop_list", {"length": 1, "public": "public.txt"}),
    ],
)
def test_a_public_file_that_is_one_of_the_rows_is_refused_also_behind_other_steps(
    tmp_path, monkeypatch, name, key, more
):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("notes.csv").write_text("user,text\n7,to be\n8,to be\n")
    # The texts alone, compressed.
    pathlib.Path("copy.txt.gz").write_bytes(gzip.compress(b"to be\nto be\n"))
    pathlib.Path("public.txt").write_text("to be\nto go\n")
    pathlib.Path("other.txt").write_text("go\n")
    rows = beam.Pipeline(runner=FnApiRunner()) | yaml.ReadDocuments(input="notes.csv")
    rows |= beam.Filter(lambda row: row.user != "8")
    given = {"epsilon": 1, "delta": 1e-6, **more}
    several = ["other.txt", "copy.txt.gz"] if key == "known" else "copy.txt.gz"
    with pytest.raises(UsageError, match=f"`{key}` must not be private data"):
        _ = rows | "copy" >> getattr(yaml, name)(**given, **{key: several})
    _ = rows | "public" >> getattr(yaml, name)(**given, **{key: "other.txt"})


@pytest.mark.parametrize(
    ("keys", "users"),
    [
        ({"user_field": ["id", "month"]}, ["a\\,b,1", "a,2", "a ,1"]),
        ({"user_field": ["id", "month"], "normalize_users": True}, ["a\\,b,1", "a,2", "a,1"]),
        ({"record_is_user": True}, ["0:0", "0:41", "0:80"]),
    ],
)
@pytest.mark.parametrize("steps", [(), (beam.Filter(bool),)])
def test_users_of_several_fields_and_records_are_those_of_the_program(tmp_path, keys, users, steps):
    """Straight from files and through other steps, and as the reader without Beam gives them."""
    ids = [("a,b", "1"), ("a", "2"), ("a ", "1")]
    records = [{"id": one, "month": month, "text": "x"} for one, month in ids]
    path = lines(tmp_path / "a.jsonl", records)
    assert [user for user, _ in read([path], **keys)[0]] == users
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        rows = pipeline | yaml.ReadDocuments(input=path, **keys)
        for step in steps:
            rows |= step
        fields = {"user_field": keys.get("user_field", "user")}
        batches = rows | BatchDocuments(**fields)
        assert_that(
            batches | beam.FlatMap(lambda batch: batch["user"].to_pylist()), equal_to(users)
        )
        described = inner_description(rows, **fields)
        assert described.user_field == (("id", "month") if "user_field" in keys else "user")
