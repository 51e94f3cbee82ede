"""A wrong pipeline in YAML is refused before anything runs, by an error with the line and no data."""

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import yaml
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


@pytest.mark.parametrize(
    ("config", "rows", "sentence"),
    [
        ({"text_field": "body"}, ROWS, "text_field must name a field of the documents, got"),
        ({"user_field": "users"}, ROWS, "user_field must name a field"),
        ({"text_field": ["text", "body"]}, ROWS, "must name a field of the documents, got"),
        ({"user_field": "text"}, ROWS, "each field once"),
        ({}, [{"user": 1.5, "text": "a"}], "user_field must name a field of type str or int"),
        ({}, [{"user": 1, "text": 2}], "text_field must name a field of type"),
        ({}, [1, 2], "got user_field='user'. Their fields are element."),
    ],
)
def test_rows_with_other_fields_are_refused_with_the_line(config, rows, sentence):
    message, place = refused({**BUDGET, **config}, rows)
    assert sentence in message
    assert place in message


def test_a_wrong_key_is_refused_with_the_line():
    message, place = refused({**BUDGET, "max_lenght": 3})
    assert f"{place}PrivateNgrams has no key max_lenght. Did you mean max_length?" in message


def test_windows_are_refused():
    rows = {
        "type": "Create",
        "config": {"elements": ROWS},
        "windowing": {"type": "fixed", "size": 9},
    }
    private = {"type": "PrivateNgrams", "input": "Create", "config": SHORT}
    with pytest.raises(ValueError, match="documents must be in the global window") as caught:
        run_yaml([rows, private])
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
    "given", ["Create", {"rows": "Create"}, {"rows": "Create", "legder": "Create"}]
)
def test_a_release_needs_rows_and_ledger(tmp_path, given):
    message, place = refused({"output": str(tmp_path / "x")}, ROWS, "WriteRelease", given)
    assert f"{place}WriteRelease must have the two inputs rows and ledger" in message


def test_exchanged_outputs_are_refused(tmp_path):
    release = {"rows": "PrivateNgrams.ledger", "ledger": "PrivateNgrams.rows"}
    steps = [
        {"type": "Create", "config": {"elements": ROWS}},
        {"type": "PrivateNgrams", "input": "Create", "config": SHORT},
    ]
    output = {"output": str(tmp_path / "release")}
    with pytest.raises(ValueError, match="ledger must have the field ledger"):
        run_yaml([*steps, {"type": "WriteRelease", "input": release, "config": output}])


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
