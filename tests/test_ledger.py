"""What a ledger says, and that only whole ledgers are read."""

import functools
import json
import pathlib
import platform

import apache_beam as beam
import pyarrow as pa
import pytest

from beam_dpne import LengthFacts, PrivacyPlan, tokenizers
from beam_dpne.ledger import (
    Part,
    ReleaseError,
    build_ledger,
    ledger_bytes,
    ledger_path,
    listed_parts,
    read_ledger,
    tokenizer_name,
)

PLAN = PrivacyPlan(epsilon=1, delta=1e-7, max_length=2, max_contributions=(10, 20))
FACTS = (
    LengthFacts(1, PLAN.lengths[0].noise_stddev, PLAN.lengths[0].threshold, 17, None, 0.0),
    LengthFacts(2, PLAN.lengths[1].noise_stddev, 41.5, 3, 2**70, 0.17),
)
PART = Part("ngrams-0123456789abcdef-00000-of-00001.jsonl", 20, "ab" * 32, 1234)


def ledger(**changes):
    settings = {
        "plan": PLAN,
        "facts": FACTS,
        "parts": [PART],
        "run_key_given": False,
        "tokenizer": "words",
    }
    return build_ledger(**settings | changes)


def write(folder: pathlib.Path, content):
    data = content if isinstance(content, bytes) else ledger_bytes(content)
    (folder / "ledger.json").write_bytes(data)


def test_each_length_says_what_was_spent_and_what_came_of_it():
    assert ledger()["lengths"] == [
        {
            "length": 1,
            "budget_share": 0.5,
            "max_contributions": 10,
            "noise_stddev": PLAN.lengths[0].noise_stddev,
            "threshold": PLAN.lengths[0].threshold,
            "released": 17,
            "valid": None,
            "expected_spurious_at_most": 0.0,
        },
        {
            "length": 2,
            "budget_share": 0.5,
            "max_contributions": 20,
            "noise_stddev": PLAN.lengths[1].noise_stddev,
            "threshold": 41.5,
            "released": 3,
            "valid": 2**70,
            "expected_spurious_at_most": 0.17,
        },
    ]


def test_the_whole_budget_and_its_split_are_stated():
    said = ledger()
    assert (said["guarantee"]["epsilon"], said["guarantee"]["delta"]) == (1.0, 1e-7)
    assert "one user is added or removed" in said["guarantee"]["neighbours"]
    spent = said["spent"]
    assert spent["gaussian_delta"] + spent["vocabulary_delta"] == pytest.approx(1e-7, rel=1e-4)
    assert spent["composed_noise_stddev"] == PLAN.noise_stddev
    assert spent["numerical_slack"] == PLAN.numerical_slack > 0


def test_the_plan_can_be_read_back_from_the_ledger():
    said = json.loads(ledger_bytes(ledger()))
    assert PrivacyPlan.from_json(json.dumps(said["plan"])) == PLAN


@pytest.mark.parametrize("given", [True, False])
def test_it_says_whether_a_run_key_was_given_and_what_that_means(given):
    said = ledger(run_key_given=given)["run_key"]
    assert said["given"] is given
    assert "two different inputs" in said["warning"]


@pytest.mark.parametrize(
    "channel",
    ["run time", "operator's channel", "run key", "plan", "groups", "several user ids", "AES"],
)
def test_it_says_what_is_not_protected(channel):
    assert any(channel in line for line in ledger()["not_protected"])


def test_versions_are_those_that_run():
    versions = ledger()["versions"]
    assert versions["apache-beam"] == beam.__version__
    assert versions["pyarrow"] == pa.__version__
    assert versions["python"] == platform.python_version()
    assert {"beam_dpne", "numpy", "scipy", "cryptography"} < set(versions)


class Callable:
    def __call__(self, texts):
        return texts


@pytest.mark.parametrize(
    ("tokenizer", "name"),
    [
        ("words", "words"),
        ("package.module:function", "package.module:function"),
        (tokenizers.whitespace, "beam_dpne.tokenizers:whitespace"),
        (Callable(), f"{__name__}:Callable"),
        (functools.partial(tokenizers.words), "functools:partial"),
    ],
)
def test_a_tokenizer_is_named_by_where_it_was_defined(tokenizer, name):
    assert tokenizer_name(tokenizer) == name
    assert ledger(tokenizer=tokenizer)["tokenizer"] == name


def test_equal_ledgers_have_equal_bytes_whatever_the_order_of_the_facts():
    assert ledger_bytes(ledger()) == ledger_bytes(ledger(facts=FACTS[::-1]))
    assert ledger_bytes(ledger()) != ledger_bytes(ledger(run_key_given=True))


def test_bytes_are_indented_utf8_json():
    data = ledger_bytes(ledger(tokenizer="módulo:função"))
    assert "módulo:função".encode() in data
    assert data.startswith(b'{\n  "schema": "beam_dpne/ledger/1",\n')
    assert data.endswith(b"}\n")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"facts": FACTS[:1]}, "lengths 1 to 2"),
        ({"facts": [*FACTS, FACTS[1]]}, "lengths 1 to 2"),
        ({"facts": [FACTS[0], FACTS[1]._replace(noise_stddev=1.0)]}, "under this plan"),
        ({"parts": []}, "as many rows"),
        ({"parts": [PART, PART]}, "as many rows"),
    ],
)
def test_facts_of_another_run_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        ledger(**changes)


def test_reading_gives_back_what_was_built(tmp_path):
    write(tmp_path, ledger())
    expected = json.loads(ledger_bytes(ledger()))
    assert read_ledger(str(tmp_path)) == expected
    assert read_ledger(str(tmp_path / "ledger.json")) == expected


def test_the_path_of_a_release_is_that_of_its_ledger_or_directory():
    assert ledger_path("a/b") == ledger_path("a/b/ledger.json") == "a/b/ledger.json"
    assert ledger_path("ledger.json") == "ledger.json"


def without(name):
    return {key: value for key, value in ledger().items() if key != name}


def with_part(**changes):
    return ledger() | {"parts": [PART._asdict() | changes]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a ledger of beam_dpne"),
        (b"[]", "not a ledger of beam_dpne"),
        (b"[" * 100_000, "not a ledger of beam_dpne"),
        (b"\xff\xfe", "not a ledger of beam_dpne"),
        (b'{"schema": "other/1"}', "not a ledger of beam_dpne"),
        (b'{"schema": ["beam_dpne/ledger/1"]}', "not a ledger of beam_dpne"),
        (ledger_bytes(ledger())[:-20], "not a ledger of beam_dpne"),
        (ledger() | {"schema": "beam_dpne/ledger/2"}, "this version reads"),
        *[(without(name), f"{name!r} is missing") for name in list(ledger())[1:]],
        (ledger() | {"parts": []}, "'parts' must list"),
        (with_part(name="../../etc/passwd"), "'parts' must list"),
        (with_part(name="ngrams-0123456789abcdef-00000-of-00001.jsonl\n"), "'parts' must list"),
        (with_part(rows=-1), "'parts' must list"),
        (with_part(rows=True), "'parts' must list"),
        (with_part(sha256="ab"), "'parts' must list"),
        (with_part(bytes=None), "'parts' must list"),
        (with_part(rows=21), "do not hold what its lengths released"),
        (ledger() | {"lengths": [{}]}, "'lengths' must describe"),
    ],
)
def test_what_is_not_a_whole_ledger_is_refused(tmp_path, content, message):
    write(tmp_path, content)
    with pytest.raises(ReleaseError, match=message):
        read_ledger(str(tmp_path))


def test_without_a_ledger_there_is_no_release(tmp_path):
    with pytest.raises(ReleaseError, match="does not exist: there is no release"):
        read_ledger(str(tmp_path))
    (tmp_path / "ledger.json").mkdir()
    with pytest.raises(ReleaseError, match="cannot be read: Is a directory"):
        read_ledger(str(tmp_path))


def test_listed_parts_of_anything_are_names_of_parts_only():
    assert listed_parts(ledger_bytes(ledger())) == {PART.name}
    assert listed_parts(b'{"parts": [{"name": "notes.txt"}, 3]}') == frozenset()
    assert listed_parts(None) == listed_parts(b"{") == frozenset()
