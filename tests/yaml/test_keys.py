"""The keys of the YAML transforms are parameters, and take the values of YAML and of templates.

What is wrong is refused before anything runs, by an error with the line and no data.
"""

import json

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.yaml.yaml_provider import InlineProvider

from beam_dpne import yaml
from beam_dpne.ngrams.plan import NgramsPlan
from beam_dpne.validation import parameters_of
from tests.yaml.running import run_yaml, text_of

CANARY = "zebra4711"
BUDGET = {"epsilon": 4, "delta": 1e-6}
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
        ({"text_field": "body"}, ROWS, "`text_field` must name a field of the documents, got"),
        ({"user_field": "users"}, ROWS, "`user_field` must name a field"),
        ({"text_field": ["text", "body"]}, ROWS, "must name a field of the documents, got"),
        ({"user_field": "text"}, ROWS, "each field once"),
        ({}, [1, 2], "got `user_field='user'`. Their fields are element."),
    ],
)
def test_rows_with_other_fields_are_refused_with_the_line(config, rows, sentence):
    message, place = refused({**BUDGET, **config}, rows)
    assert sentence in message
    assert place in message


def test_a_wrong_key_is_refused_with_the_line():
    message, place = refused({**BUDGET, "max_lenght": 3})
    assert f"{place}PrivateNgrams has no key max_lenght. Did you mean max_length?" in message


def test_a_budget_is_refused_with_what_keeps_one_instead():
    message, place = refused({"delta": 1e-6, "budget": "folder"})
    assert f"{place}PrivateNgrams must be given without budget" in message
    assert "run beam-dpne with it on this machine" in message
    assert "folder" not in message


def test_windows_are_refused():
    rows = {
        "type": "Create",
        "config": {"elements": ROWS},
        "windowing": {"type": "fixed", "size": 9},
    }
    private = {"type": "PrivateNgrams", "input": "Create", "config": SHORT}
    with pytest.raises(ValueError, match="in the global window") as caught:
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
    assert "template_location needs `run_key_file`: a template is run many times" in message
    flex = "gs://bucket/staging/template_launches/2025-01-01_00_00_00-1/job_object"
    with pytest.raises(AssertionError, match="the pipeline was started"):
        refused(SHORT, ROWS, "PrivateNgrams", "Create", f"--template_location={flex}")


def test_an_unbounded_source_is_refused():
    from apache_beam.transforms.periodicsequence import PeriodicImpulse

    pipeline = beam.Pipeline(options=PipelineOptions([]))
    rows = pipeline | PeriodicImpulse() | beam.Map(lambda _: beam.Row(user="a", text="b"))
    with pytest.raises(ValueError, match="documents must be bounded"):
        _ = rows | yaml.PrivateNgrams(epsilon=1, delta=1e-6)


@pytest.mark.parametrize("name", yaml.__all__)
def test_beam_reads_the_schema_and_the_documentation_of_every_key(name):
    transform = getattr(yaml, name)
    fields = InlineProvider.config_schema_from_callable(transform).fields
    for field in fields:
        required = "It is required." in field.description
        assert required is not field.type.nullable
        assert len(field.description) > 30
        assert "--" not in field.description
    assert "Args:" not in InlineProvider.description_from_callable(transform)
    assert transform.__name__ == name


def test_the_keys_of_a_private_transform_have_every_parameter_of_its_plan():
    fields = InlineProvider.config_schema_from_callable(yaml.PrivateNgrams).fields
    names = {field.name for field in fields}
    assert names >= {parameter.name for parameter in parameters_of(NgramsPlan)} >= {"epsilon"}
    assert {"user_field", "text_field", "tokenizer", "run_key_file"} <= names
    assert not names & {"output", "input", "overwrite", "budget"}
    kinds = {field.name: field.type for field in fields}
    assert kinds["max_contributions"].array_type.element_type.atomic_type == 4  # INT64
    assert kinds["text_field"].array_type.element_type.atomic_type == 7  # STRING
    assert kinds["epsilon"].atomic_type == 6  # DOUBLE


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("max_contributions", [10, 20], (10, 20)),
        ("max_contributions", "10,20", (10, 20)),
        ("epsilon", 4, 4.0),
        ("epsilon", "4", 4.0),
        ("delta", "1e-6", 1e-6),
        ("max_length", "2", 2),
        ("max_length", None, 5),
        ("strategy", "one_round", "one_round"),
    ],
)
def test_values_of_yaml_and_texts_of_templates_mean_the_same(name, value, meant):
    given = {**BUDGET, "max_length": 2, name: value}
    plan = yaml.PrivateNgrams(**given).transform.plan
    assert getattr(plan, name) == meant


def test_a_plan_file_has_parameters_that_are_not_given_beside_it(tmp_path):
    plan = NgramsPlan(**BUDGET, max_length=2)
    path = tmp_path / "plan.json"
    path.write_text(plan.to_json())
    assert yaml.PrivateNgrams(plan=str(path)).transform.plan == plan
    with pytest.raises(ValueError, match=r"^`epsilon` is in the file"):
        yaml.PrivateNgrams(plan=str(path), epsilon=4)


def test_fields_may_be_one_name_or_a_list():
    for value, meant in (("body", "body"), (["subject", "a,b"], ("subject", "a,b"))):
        assert yaml.PrivateNgrams(**BUDGET, text_field=value).transform.text_field == meant


@pytest.mark.parametrize("value", [True, "true"])
def test_a_flag_is_true_or_false(value, tmp_path):
    output = str(tmp_path / "release")
    assert yaml.WriteRelease(output=output, overwrite=value).write.overwrite is True
    assert yaml.WriteRelease(output=output, overwrite="false").write.overwrite is False
    with pytest.raises(ValueError, match="`overwrite` must be true or false"):
        yaml.WriteRelease(output=output, overwrite="yes")


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({}, "`epsilon` and `delta` must be given"),
        ({"epsilon": 4}, "`delta` must be given"),
        ({**BUDGET, "max_lenght": 3}, r"no key max_lenght\. Did you mean max_length\?"),
        ({**BUDGET, "maxLength": 3}, "no key maxLength"),
        ({**BUDGET, "zebra": 3}, r"no key zebra\. Its keys are epsilon, delta, "),
        ({**BUDGET, "input_format": "csv"}, "no key input_format"),
        ({**BUDGET, "max_length": 3.5}, "`max_length` must be an integer"),
        ({**BUDGET, "max_length": True}, "`max_length` must be an integer"),
        ({**BUDGET, "max_length": "three"}, "`max_length` must be an integer"),
        ({**BUDGET, "max_contributions": []}, "`max_contributions` must be an integer"),
        (
            {**BUDGET, "max_contributions": [1, 2]},
            "`max_contributions` must have one value for each",
        ),
        ({**BUDGET, "epsilon": [4]}, "`epsilon` must be"),
        ({**BUDGET, "delta": 2}, "`delta` must be"),
        ({**BUDGET, "text_field": ["a", 7]}, "`text_field` must be"),
        ({**BUDGET, "user_field": 7}, "`user_field` must be"),
        ({**BUDGET, "tokenizer": {"name": "words"}}, "`tokenizer` must be"),
        ({**BUDGET, "strategy": "adaptiv"}, "`strategy` must be one of adaptive, one_round"),
        ({**BUDGET, "partitions": 0}, "`partitions` must be"),
        ({**BUDGET, "run_key_file": "no.key"}, "`run_key_file` cannot be read"),
    ],
)
def test_a_wrong_configuration_is_refused_by_name(config, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        yaml.PrivateNgrams(**config)
    assert "--" not in str(caught.value)


def test_other_transforms_require_their_keys(tmp_path):
    for transform, config, missing in (
        (yaml.PrivateSetUnion, {}, "`epsilon` and `delta`"),
        (yaml.BayesianCounts, BUDGET, "`public`"),
        (yaml.CountPhrases, BUDGET, "`phrases`"),
        (yaml.WriteRelease, {}, "`output`"),
        (yaml.ReadDocuments, {}, "`input`"),
    ):
        with pytest.raises(ValueError, match=f"^{missing} must be given"):
            transform(**config)
    (tmp_path / "notes.txt").write_text(json.dumps("keep"))
    with pytest.raises(ValueError, match="`output` must be an empty or new directory"):
        yaml.WriteRelease(output=str(tmp_path))


def test_a_large_delta_is_warned_about(caplog):
    yaml.PrivateNgrams(epsilon=1, delta=5e-3)
    assert "delta=0.005 is large" in caplog.text
    caplog.clear()
    with pytest.raises(ValueError, match=r"`delta` must be below 0\.01"):
        yaml.PrivateNgrams(epsilon=1, delta=0.01)
    yaml.PrivateNgrams(epsilon=1, delta=0.01, public_user_count=100)
    assert not caplog.text
