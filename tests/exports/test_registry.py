"""Records for OpenDP's Deployments Registry."""

import hashlib
import sys

import jsonschema
import pytest
import yaml

from beam_dpne import read_release
from beam_dpne.errors import ExportError
from beam_dpne.exports.registry import (
    Deployment,
    check_record,
    record_bytes,
    record_name,
    registry_record,
    registry_schema,
)
from beam_dpne.release.ledger import ReleaseNotes
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
    "authors": ["A. Author"],
    "sector": "Technology",
}


@pytest.fixture(scope="module")
def ledgers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("releases")
    made = {
        "ngrams": small_ngrams(folder / "ngrams"),
        "set-union": items_release(folder / "items", {"a": 9, "b": 8}),
        "bayesian": probabilities_release(folder / "joint", {("a", "b"): 1.0}),
    }
    return {
        name: (
            read_release(str(path)).ledger,
            hashlib.sha256((path / "ledger.json").read_bytes()).hexdigest(),
        )
        for name, path in made.items()
    }


@pytest.mark.parametrize("program", ["ngrams", "set-union", "bayesian"])
def test_a_record_is_valid_and_says_what_the_ledger_says(ledgers, program):
    ledger, digest = ledgers[program]
    record = registry_record(ledger, digest, Deployment(**FACTS))
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


def test_a_public_number_of_users_is_in_the_record(ledgers):
    ledger, digest = ledgers["ngrams"]
    counted = {**ledger, "plan": {**ledger["plan"], "public_user_count": 5000}}
    record = registry_record(counted, digest, Deployment(**FACTS, many_releases=True))
    assert record["deployment"]["privacy_loss"]["number_of_privacy_units"] == 5000
    assert record["deployment"]["deployment_model"]["release_type"] == "Many releases"


def test_fields_stand_in_the_order_of_the_schema(ledgers):
    def check(value, schema):
        if isinstance(value, dict):
            wanted = [name for name in schema["properties"] if name in value]
            assert list(value) == wanted
            for name, each in value.items():
                check(each, schema["properties"][name])

    check(registry_record(*ledgers["ngrams"], Deployment(**FACTS)), registry_schema())


def test_a_file_has_quoted_texts_and_can_be_read_back(ledgers):
    record = registry_record(*ledgers["ngrams"], Deployment(**FACTS))
    data = record_bytes(record)
    assert yaml.safe_load(data) == record
    assert data == record_bytes(registry_record(*ledgers["ngrams"], Deployment(**FACTS)))
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
        ({"authors": []}, "registry_authors"),
        ({"curator": None}, "data_curator_name"),
        ({"name": "日本"}, "name must have a letter from a to z"),
    ],
)
def test_facts_that_the_registry_does_not_know_are_refused(ledgers, change, message):
    with pytest.raises(ExportError, match=message):
        registry_record(*ledgers["ngrams"], Deployment(**{**FACTS, **change}))


def test_a_name_is_needed_if_the_ledger_has_no_title(tmp_path):
    release = ngrams_release(tmp_path / "release", {("a",): 9}, notes=ReleaseNotes())
    ledger = read_release(str(release)).ledger
    with pytest.raises(ExportError, match="name must be given, since the ledger has no title"):
        registry_record(ledger, "0" * 64, Deployment(**FACTS))
    named = registry_record(ledger, "0" * 64, Deployment(**FACTS, name="Our phrases"))
    assert named["url_slug"] == "our-phrases"


@pytest.mark.parametrize("path", [(), ("deployment",), ("deployment", "basic")])
def test_fields_that_the_registry_does_not_have_are_refused(ledgers, path):
    record = registry_record(*ledgers["ngrams"], Deployment(**FACTS))
    place = record
    for name in path:
        place = place[name]
    place["surprise"] = "x"
    with pytest.raises(ExportError, match="surprise"):
        check_record(record)


def test_the_schema_says_where_it_is_from_and_is_valid():
    jsonschema.Draft7Validator.check_schema(registry_schema())
    assert "057e5d81cf60150dd3307e0cf4504b957802fb3b" in registry_schema()["$comment"]


def test_without_jsonschema_the_extra_is_named(ledgers, monkeypatch):
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(ExportError, match=r"pip install 'beam-dpne\[export\]'"):
        registry_record(*ledgers["ngrams"], Deployment(**FACTS))
