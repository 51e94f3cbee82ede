"""A wrong pipeline in YAML is refused before anything runs, by an error with the line and no data."""

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import yaml
from beam_dpne.errors import UsageError
from tests.yaml.running import run_yaml, text_of

CANARY = "zebra4711"
BUDGET = {"epsilon": 4, "delta": "1e-6"}
SHORT = {**BUDGET, "max_length": 1}
ROWS = [{"user": f"{CANARY} {number}", "text": f"{CANARY} be"} for number in range(3)]


@pytest.fixture(autouse=True)
def _nothing_runs(monkeypatch):
    """Fails a test whose pipeline starts."""

    def run(*_):
        raise AssertionError("the pipeline was started")

    monkeypatch.setattr(FnApiRunner, "run_pipeline", run)


def refused(config, rows=ROWS, transform="PrivateNgrams", given="Create", *arguments):
    """Returns the error of a pipeline, and the line at which the transform stands."""
    steps = [
        {"type": "Create", "config": {"elements": rows}},
        {"type": transform, "input": given, "config": config},
    ]
    lines = text_of(steps).splitlines()
    line = 1 + next(n for n, text in enumerate(lines) if text.endswith(f"type: {transform}"))
    with pytest.raises(ValueError, match=transform) as caught:
        run_yaml(steps, *arguments)
    message = str(caught.value)
    assert CANARY not in message
    return message, f'"{transform}" at line {line}: '


CONFIGURATIONS = [
    ({}, "epsilon and delta must be given, there is no default: epsilon is the privacy budget"),
    ({"epsilon": 4}, "delta must be given, there is no default"),
    ({**BUDGET, "max_lenght": 3}, "PrivateNgrams has no key max_lenght. Did you mean max_length?"),
    ({**BUDGET, "max_length": 3.5}, "max_length must be an integer, e.g. 10, got max_length=3.5."),
    ({**BUDGET, "max_length": 0}, "max_length must be an integer of at least 1, got max_length=0."),
    ({**BUDGET, "delta": 2}, "delta must be"),
    ({**BUDGET, "max_contributions": [1, 2]}, "max_contributions must have one value for each of"),
    (
        {**BUDGET, "input_format": "csv"},
        "PrivateNgrams has no key input_format, which is an option",
    ),
    ({**BUDGET, "tokenizer": "wrds"}, "tokenizer must be one of words, whitespace, "),
    ({**BUDGET, "partitions": 0}, "partitions must be at least 1, got partitions=0."),
    ({**BUDGET, "run_key_file": "no.key"}, "run_key_file cannot be read, got "),
    ({**BUDGET, "plan": "no.json"}, "plan stands for the single parameters; leave out epsilon."),
    ({"plan": "no.json"}, "plan cannot be read, got no.json (FileNotFoundError). Name a JSON file"),
    ({**BUDGET, "vocabulary": "no.txt"}, "vocabulary cannot be read, got no.txt"),
    ({**BUDGET, "vocabulary_policy": "public"}, "vocabulary must name a file with"),
    ({**BUDGET, "error_handling": {"output": "bad"}}, "Unconsumed error output"),
]


@pytest.mark.parametrize(("config", "sentence"), CONFIGURATIONS)
def test_a_wrong_configuration_is_refused_with_our_sentence_and_the_line(config, sentence):
    message, place = refused(config)
    assert sentence in message
    if "error_handling" not in config:
        assert f"Invalid transform specification at {place}{sentence}" in message


@pytest.mark.parametrize(
    ("config", "rows", "sentence"),
    [
        ({"text_field": "body"}, ROWS, "text_field must name a field of the documents, got"),
        ({"user_field": "users"}, ROWS, "Did you mean 'user'?"),
        ({"text_field": ["text", "body"]}, ROWS, "must name a field of the documents, got"),
        ({"user_field": "text"}, ROWS, "user_field and every text_field must be different"),
        ({}, [{"user": {"id": CANARY}, "text": "a"}], "user_field must name a field of type str"),
        ({}, [{"user": 1.5, "text": "a"}], "user_field must name a field of type str or int"),
        ({}, [{"user": 1.5, "text": "a"}], "convert the users with MapToFields before."),
        ({}, [{"user": {"id": 1}, "text": "a"}], "for example with MapToFields."),
        ({}, [{"user": 1, "text": 2}], "text_field must name a field of type"),
        ({}, [{"user": 1, "text": [CANARY]}], "which holds lists. The tokenizer for lists"),
        ({"tokenizer": "tokens"}, ROWS, "which holds text. Choose another tokenizer, e.g. words"),
        ({}, [1, 2], "got user_field='user'. Their fields are element."),
    ],
)
def test_rows_with_other_fields_are_refused(config, rows, sentence):
    message, place = refused({**BUDGET, **config}, rows)
    assert sentence in message
    assert place in message


@pytest.mark.parametrize("transform", ["PrivateSetUnion", "BayesianCounts"])
def test_the_budget_of_every_program_is_required(transform):
    message, place = refused({}, transform=transform)
    assert f"{place}epsilon and delta must be given" in message


def test_public_counts_are_required():
    message, place = refused(BUDGET, transform="BayesianCounts")
    assert f"{place}public must be given: it names a text, a file of counts" in message


def test_windows_are_refused():
    rows = {
        "type": "Create",
        "config": {"elements": ROWS},
        "windowing": {"type": "fixed", "size": 9},
    }
    private = {"type": "PrivateNgrams", "input": "Create", "config": SHORT}
    with pytest.raises(ValueError, match="documents must be in the global window") as caught:
        run_yaml([rows, private])
    assert "For one release of all documents, give windowing: {type: global}." in str(caught.value)
    assert CANARY not in str(caught.value)
    rows["windowing"] = {"type": "global"}
    with pytest.raises(AssertionError, match="the pipeline was started"):
        run_yaml([rows, private])


def test_two_inputs_by_name_are_refused_and_a_list_of_inputs_is_flattened():
    message, _ = refused(SHORT, given={"one": "Create", "two": "Create"})
    assert "PrivateNgrams must have one input, whose rows are the documents." in message
    with pytest.raises(AssertionError, match="the pipeline was started"):
        refused(SHORT, given=["Create", "Create"])


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({}, "output must be given: it names the directory of the release."),
        ({"output": ""}, "output must be given: it names the directory of the release."),
        (
            {"output": "x", "output_format": "csv"},
            "output_format must be one of jsonl, tsv, parquet",
        ),
        ({"output": "x", "title": "a\nb"}, "title must be"),
        ({"output": "x", "titel": "a"}, "WriteRelease has no key titel. Did you mean title?"),
    ],
)
def test_a_wrong_place_of_the_release_is_refused(config, sentence):
    message, place = refused(config, transform="WriteRelease")
    assert f"{place}{sentence}" in message


def test_a_place_with_files_is_refused_before_the_run(tmp_path):
    (tmp_path / "notes.txt").write_text("keep")
    message, place = refused({"output": str(tmp_path)}, transform="WriteRelease")
    assert f"{place}output must be an empty or new directory" in message
    assert "or set overwrite, which deletes only files of a release" in message


@pytest.mark.parametrize(
    "given", ["Create", {"rows": "Create"}, {"rows": "Create", "legder": "Create"}]
)
def test_a_release_needs_rows_and_ledger(tmp_path, given):
    message, place = refused({"output": str(tmp_path / "x")}, ROWS, "WriteRelease", given)
    assert f"{place}WriteRelease must have the two inputs rows and ledger" in message


@pytest.mark.parametrize(
    ("fields", "swap", "sentence"),
    [
        (
            {"ngram": "ngram"},
            False,
            "rows must have the fields of one program, and no others (length,",
        ),
        (
            {"length": "length", "ngram": "score", "score": "score"},
            False,
            "rows must have text in the",
        ),
        (
            None,
            True,
            "ledger must have the field ledger, as the output ledger of a private transform",
        ),
    ],
)
def test_changed_or_exchanged_rows_are_refused(tmp_path, fields, swap, sentence):
    release = {"rows": "PrivateNgrams.rows", "ledger": "PrivateNgrams.ledger"}
    steps = [
        {"type": "Create", "config": {"elements": ROWS}},
        {"type": "PrivateNgrams", "input": "Create", "config": SHORT},
    ]
    if fields is not None:
        step = {"type": "MapToFields", "input": release["rows"], "config": {"fields": fields}}
        steps, release = [*steps, step], {**release, "rows": "MapToFields"}
    if swap:
        release = dict(zip(release, reversed(release.values()), strict=True))
    output = {"output": str(tmp_path / "release")}
    with pytest.raises(ValueError, match="WriteRelease") as caught:
        run_yaml([*steps, {"type": "WriteRelease", "input": release, "config": output}])
    assert sentence in str(caught.value)
    assert CANARY not in str(caught.value)


def test_a_ledger_must_have_its_field(tmp_path):
    given = {"rows": "Create", "ledger": "Create"}
    message, place = refused({"output": str(tmp_path / "x")}, ROWS, "WriteRelease", given)
    assert f"{place}ledger must have the field ledger" in message


def test_a_fresh_key_is_refused_in_a_classic_template_and_allowed_in_a_flex_launch():
    classic = "--template_location=gs://bucket/templates/ngrams"
    message, _ = refused(SHORT, ROWS, "PrivateNgrams", "Create", classic)
    assert "template_location needs run_key_file: a template is run many times" in message
    flex = "gs://bucket/staging/template_launches/2025-01-01_00_00_00-1/job_object"
    with pytest.raises(AssertionError, match="the pipeline was started"):
        refused(SHORT, ROWS, "PrivateNgrams", "Create", f"--template_location={flex}")


def test_an_unbounded_source_is_refused():
    from apache_beam.transforms.periodicsequence import PeriodicImpulse

    pipeline = beam.Pipeline(options=PipelineOptions([]))
    rows = pipeline | PeriodicImpulse() | beam.Map(lambda _: beam.Row(user="a", text="b"))
    with pytest.raises(ValueError, match="documents must be bounded"):
        _ = rows | yaml.PrivateNgrams(epsilon=1, delta=1e-6)


def test_a_chain_that_goes_on_after_two_outputs_is_refused_as_the_page_says():
    create = {"type": "Create", "config": {"elements": ROWS}}
    private = {"type": "PrivateNgrams", "config": SHORT}
    chain = {"type": "chain", "transforms": [create, private, {"type": "LogForTesting"}]}
    with pytest.raises(ValueError, match=r"Ambiguous output .*has outputs \['rows', 'ledger'\]"):
        run_yaml([chain])


def test_a_large_delta_is_warned_about(caplog):
    yaml.PrivateNgrams(epsilon=1, delta=0.01)
    assert "delta=0.01 is large" in caplog.text
    caplog.clear()
    yaml.PrivateNgrams(epsilon=1, delta=0.01, public_user_count=100)
    assert not caplog.text


def test_errors_of_a_configuration_are_usage_errors_without_dashes():
    with pytest.raises(UsageError, match="delta must be given") as caught:
        yaml.PrivateNgrams(epsilon=1)
    assert "--" not in str(caught.value)
