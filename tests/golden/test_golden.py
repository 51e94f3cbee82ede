"""A release under a fixed key stays the same, byte for byte, while the mechanism version does.

A difference means that somebody who keeps the key and updates gets other weights. Where that is meant,
raise the mechanism version, so that the noise is another one too, and record the releases anew.
"""

import pytest

from beam_dpne.documents.run_keys import MECHANISM_VERSION
from tests.golden.__main__ import changed, constants, recorded, tokens_of
from tests.golden.cases import CASES, TOKENIZERS, release_digest, write_inputs


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The inputs of all cases."""
    place = tmp_path_factory.mktemp("golden")
    write_inputs(place)
    return place


def test_every_case_is_recorded_under_this_mechanism_version():
    assert recorded()["mechanism_version"] == MECHANISM_VERSION
    assert list(recorded()["releases"]) == list(CASES)


def test_constants_change_only_with_the_mechanism_version():
    """Which stands for them in what run keys are bound to."""
    known = recorded()["constants"]
    assert len(known) > 40
    assert [name for name, now in constants().items() if known.get(name, now) != now] == []


def test_no_two_releases_are_the_same():
    digests = list(recorded()["releases"].values())
    assert len(set(digests)) == len(digests)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_tokens_change_only_with_the_tokenizers_version(name):
    assert tokens_of(name) == recorded()["tokenizers"][name]


@pytest.mark.parametrize("name", CASES)
def test_releases_change_only_with_the_mechanism_version(name, folder):
    assert release_digest(name, folder) == recorded()["releases"][name]


@pytest.mark.parametrize("name", CASES)
def test_releases_of_the_graph_of_engines_are_the_same(name, folder):
    """By default no runner of Beam is used."""
    assert release_digest(name, folder, "--runner", "FnApiRunner") == recorded()["releases"][name]


@pytest.mark.parametrize("workers", ["1", "3"])
@pytest.mark.parametrize(
    "name", ["ngrams/adaptive", "set-union/policy_gaussian", "bayesian/counts", "count/groups"]
)
def test_releases_are_the_same_for_every_number_of_processes(name, workers, folder):
    assert release_digest(name, folder, "--workers", workers) == recorded()["releases"][name]


def test_recording_refuses_a_change_under_one_mechanism_version(monkeypatch):
    kept = recorded()
    name = next(iter(CASES))
    other, tokens = kept["releases"] | {name: "0" * 64}, kept["tokenizers"]
    assert changed(kept, kept["releases"], tokens) == []
    assert changed(kept, other, tokens) == [name]
    monkeypatch.setattr("tests.golden.__main__.MECHANISM_VERSION", MECHANISM_VERSION + 1)
    assert changed(kept, other, tokens) == []


def test_recording_refuses_other_tokens_under_one_version_of_the_tokenizer():
    kept = recorded()
    other = kept["tokenizers"]["words"] | {"tokens": "0" * 64}
    assert changed(kept, kept["releases"], kept["tokenizers"] | {"words": other}) == ["words"]
    raised = kept["tokenizers"] | {"words": other | {"version": "0"}}
    assert changed(kept, kept["releases"], raised) == []
