"""The keys of the YAML transforms are parameters, and take the values of YAML and of templates."""

import json

import pytest
from apache_beam.yaml.yaml_provider import InlineProvider

from beam_dpne import yaml
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.validation import parameters_of

BUDGET = {"epsilon": 4, "delta": 1e-6}


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
    assert names >= {parameter.name for parameter in parameters_of(PrivacyPlan)} >= {"epsilon"}
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
    plan = PrivacyPlan(**BUDGET, max_length=2)
    path = tmp_path / "plan.json"
    path.write_text(plan.to_json())
    assert yaml.PrivateNgrams(plan=str(path)).transform.plan == plan
    with pytest.raises(ValueError, match="epsilon must not be given, since it is in the file"):
        yaml.PrivateNgrams(plan=str(path), epsilon=4)


def test_fields_may_be_one_name_or_a_list():
    for value, meant in (("body", "body"), (["subject", "a,b"], ("subject", "a,b"))):
        assert yaml.PrivateNgrams(**BUDGET, text_field=value).transform.text_field == meant


@pytest.mark.parametrize("value", [True, "true"])
def test_a_flag_is_true_or_false(value, tmp_path):
    output = str(tmp_path / "release")
    assert yaml.WriteRelease(output=output, overwrite=value).write.overwrite is True
    assert yaml.WriteRelease(output=output, overwrite="false").write.overwrite is False
    with pytest.raises(ValueError, match="overwrite must be true or false"):
        yaml.WriteRelease(output=output, overwrite="yes")


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({}, "epsilon and delta must be given"),
        ({"epsilon": 4}, "delta must be given"),
        ({**BUDGET, "max_lenght": 3}, r"no key max_lenght\. Did you mean max_length\?"),
        ({**BUDGET, "maxLength": 3}, "no key maxLength"),
        ({**BUDGET, "zebra": 3}, r"no key zebra\. Its keys are epsilon, delta, "),
        ({**BUDGET, "input_format": "csv"}, "no key input_format"),
        ({**BUDGET, "max_length": 3.5}, "max_length must be an integer"),
        ({**BUDGET, "max_length": True}, "max_length must be an integer"),
        ({**BUDGET, "max_length": "three"}, "max_length must be an integer"),
        ({**BUDGET, "max_contributions": []}, "max_contributions must be an integer"),
        ({**BUDGET, "max_contributions": [1, 2]}, "max_contributions must have one value for each"),
        ({**BUDGET, "epsilon": [4]}, "epsilon must be"),
        ({**BUDGET, "delta": 2}, "delta must be"),
        ({**BUDGET, "text_field": ["a", 7]}, "text_field must be"),
        ({**BUDGET, "user_field": 7}, "user_field must be"),
        ({**BUDGET, "tokenizer": {"name": "words"}}, "tokenizer must be"),
        ({**BUDGET, "strategy": "adaptiv"}, "strategy must be one of adaptive, one_round"),
        ({**BUDGET, "partitions": 0}, "partitions must be"),
        ({**BUDGET, "run_key_file": "no.key"}, "run_key_file cannot be read"),
    ],
)
def test_a_wrong_configuration_is_refused_by_name(config, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        yaml.PrivateNgrams(**config)
    assert "--" not in str(caught.value)


def test_other_transforms_require_their_keys(tmp_path):
    for transform, config, missing in (
        (yaml.PrivateSetUnion, {}, "epsilon and delta"),
        (yaml.BayesianCounts, BUDGET, "public"),
        (yaml.WriteRelease, {}, "output"),
        (yaml.ReadDocuments, {}, "input"),
    ):
        with pytest.raises(ValueError, match=f"^{missing} must be given"):
            transform(**config)
    (tmp_path / "notes.txt").write_text(json.dumps("keep"))
    with pytest.raises(ValueError, match="output must be an empty or new directory"):
        yaml.WriteRelease(output=str(tmp_path))


def test_a_large_delta_is_warned_about(caplog):
    yaml.PrivateNgrams(epsilon=1, delta=0.01)
    assert "delta=0.01 is large" in caplog.text
    caplog.clear()
    yaml.PrivateNgrams(epsilon=1, delta=0.01, public_user_count=100)
    assert not caplog.text
