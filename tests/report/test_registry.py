"""Records for OpenDP's Deployments Registry."""

import dataclasses
import re
import sys

import jsonschema
import pytest
import yaml

from beam_dpne.errors import ReportError
from beam_dpne.release.notes import ReleaseNotes
from beam_dpne.report.facts import read_facts
from beam_dpne.report.left_out import PUBLIC
from beam_dpne.report.registry import (
    Deployment,
    check_record,
    record_bytes,
    record_name,
    registry_record,
    registry_schema,
)
from tests.exports.releases import (
    items_release,
    ngrams_release,
    probabilities_release,
    small_ngrams,
)

FACTS = {
    "curator": "Example Ltd",
    "curator_type": "Industry",
    "intended_use": 'Autocompletion: "fast", #1',
    "region": "Global",
    "publication_date": "2026-11-22",
    "author": ["A. Author"],
    "sector": "Technology",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The facts of a release of each program."""
    folder = tmp_path_factory.mktemp("releases")
    paths = {
        "ngrams": small_ngrams(folder / "ngrams"),
        "set-union": items_release(folder / "items", {"a": 9, "b": 8}),
        "bayesian": probabilities_release(folder / "joint", {("a", "b"): 1.0}),
    }
    return {name: read_facts(str(path)) for name, path in paths.items()}


def record_of(facts, change=None, **settings):
    return registry_record(facts, Deployment(**{**FACTS, **(change or {})}), **settings)


@pytest.mark.parametrize("program", ["ngrams", "set-union", "bayesian"])
def test_a_record_is_valid_and_says_what_the_ledger_says(made, program):
    ledger, digest = made[program].ledger, made[program].ledger_sha256
    record = record_of(made[program])
    jsonschema.Draft7Validator(registry_schema()).validate(record)
    deployment = record["deployment"]
    parameters = deployment["privacy_loss"]["privacy_parameters"]
    assert parameters == {"epsilon": ledger["plan"]["epsilon"], "delta": 1e-7}
    assert deployment["privacy_loss"]["privacy_unit"].startswith("a customer: each value of")
    assert deployment["dp_variant"]["variant_name"] == "Approximate DP"
    assert all(
        text in deployment["dp_variant"]["unprotected_quantities"]
        for text in ledger["not_protected"]
    )
    assert digest in deployment["implementation"]["additional_information"]
    assert f"program {program}" in deployment["implementation"]["mechanisms"]
    assert deployment["deployment_model"]["release_type"] == "One release"
    assert deployment["administrative"]["status"] == "Draft"
    assert "number_of_privacy_units" not in deployment["privacy_loss"]


def test_a_public_number_of_users_is_in_the_record(made):
    ledger = made["ngrams"].ledger
    counted = {**ledger, "plan": {**ledger["plan"], "public_user_count": 5000}}
    facts = dataclasses.replace(made["ngrams"], ledger=counted)
    record = record_of(facts, {"many_releases": True})
    assert record["deployment"]["privacy_loss"]["number_of_privacy_units"] == 5000
    assert record["deployment"]["deployment_model"]["release_type"] == "Many releases"


def test_a_record_for_the_public_quotes_neither_fields_nor_tokenizer_nor_title(made):
    whole, public = (
        record_bytes(
            record_of(made["ngrams"], {"product_name": "Phrases"}, left_out=names)
        ).decode()
        for names in ((), PUBLIC)
    )
    for secret in ("customer_id", "The tokenizer words splits"):
        assert secret in whole
        assert secret not in public
    assert 'privacy_unit: "a customer"' in public
    with pytest.raises(ReportError, match="Give also --product_name NAME"):
        record_of(made["ngrams"], left_out=PUBLIC)


def test_fields_stand_in_the_order_of_the_schema(made):
    def check(value, schema):
        if isinstance(value, dict):
            wanted = [name for name in schema["properties"] if name in value]
            assert list(value) == wanted
            for name, each in value.items():
                check(each, schema["properties"][name])

    check(record_of(made["ngrams"]), registry_schema())


def test_a_file_has_quoted_texts_and_can_be_read_back(made):
    record = record_of(made["ngrams"])
    data = record_bytes(record)
    assert yaml.safe_load(data) == record
    assert data == record_bytes(record_of(made["ngrams"]))
    # The registry refuses folded texts.
    styles = {token.style for token in yaml.scan(data.decode()) if hasattr(token, "style")}
    assert styles <= {None, '"'}
    assert record_name(record) == "phrases_b_a_1.yaml"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"curator_type": "Company"}, "curator_type: 'Company' is not one of"),
        ({"sector": "Shops"}, "data_product_sector: 'Shops' is not one of"),
        ({"publication_date": "22.11.2026"}, "publication_date must be a date as YYYY-MM-DD"),
        ({"publication_date": "2026-02-30"}, "must be a day of the calendar"),
        ({"author": []}, "Give also --author NAME."),
        ({"author": ["A", " "]}, "Give also --author NAME."),
        ({"curator": " "}, "Give also --curator NAME."),
        ({"product_name": "日本"}, "product_name must have a letter from a to z"),
    ],
)
def test_facts_that_the_registry_does_not_know_are_refused(made, change, message):
    with pytest.raises(ReportError, match=message):
        record_of(made["ngrams"], change)


def test_all_facts_that_are_missing_are_named_at_once(tmp_path):
    facts = read_facts(str(ngrams_release(tmp_path / "release", {("a",): 9}, notes=ReleaseNotes())))
    with pytest.raises(ReportError) as caught:
        registry_record(facts, Deployment())
    missing = re.findall(r"--(\w+)", str(caught.value))
    assert missing == [*(name for name in FACTS if name != "sector"), "product_name"]
    assert record_of(facts, {"product_name": "Our phrases"})["url_slug"] == "our-phrases"


@pytest.mark.parametrize("path", [(), ("deployment",), ("deployment", "basic")])
def test_fields_that_the_registry_does_not_have_are_refused(made, path):
    record = record_of(made["ngrams"])
    place = record
    for name in path:
        place = place[name]
    place["surprise"] = "x"
    with pytest.raises(ReportError, match="surprise"):
        check_record(record)


def test_the_schema_says_where_it_is_from_and_is_valid():
    jsonschema.Draft7Validator.check_schema(registry_schema())
    assert "057e5d81cf60150dd3307e0cf4504b957802fb3b" in registry_schema()["$comment"]


def test_without_jsonschema_the_extra_is_named(made, monkeypatch):
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(ReportError, match=r"pip install 'beam-dpne\[registry\]'"):
        record_of(made["ngrams"])
