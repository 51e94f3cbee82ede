"""`beam-dpne audit`: its table, JSON and exit status."""

import json

import pytest

from beam_dpne import NgramsPlan
from beam_dpne.bayesian import grams as counting

BUDGET = ("--epsilon", 4, "--delta", 1e-7)


@pytest.fixture
def bayesian(tmp_path):
    """The audit of probabilities with one contribution, which needs few runs."""
    (tmp_path / "plan.json").write_text('{"length": 1, "max_contributions": 1}')
    return ("audit", "bayesian", *BUDGET, "--plan", tmp_path / "plan.json")


def test_the_table_has_claim_bounds_and_mistakes_and_says_what_it_does_not_prove(cli, bayesian):
    ended = cli(*bayesian, "--runs", 4000)
    assert ended.status == 0, ended.err
    for text in ("counts of one user", "noticed", "gaussian epsilon", "This proves no guarantee"):
        assert text in " ".join(ended.out.split())


def test_json_has_everything_and_equal_seeds_give_equal_bytes(cli, bayesian):
    first, again, other = (
        cli(*bayesian, "--runs", 400, "--seed", seed, "--json") for seed in (5, 5, 6)
    )
    assert first.out == again.out != other.out
    shown = json.loads(first.out)
    assert (shown["mechanism"], shown["runs"], shown["seed"]) == ("bayesian", 400, 5)


def test_a_bound_above_the_claim_ends_with_status_3(cli, bayesian, monkeypatch):
    noise = counting.randomness.integer_normals
    monkeypatch.setattr(
        counting.randomness, "integer_normals", lambda draws, steps: noise(draws, steps / 4)
    )
    ended = cli(*bayesian, "--runs", 4000)
    assert ended.status == 3
    assert "ABOVE" in ended.out


def test_too_few_runs_end_with_status_4(cli):
    ended = cli("audit", "bayesian", "--epsilon", 0.1, "--delta", 1e-7, "--runs", 200)
    assert ended.status == 4
    assert "MISSED" in ended.out


def test_a_whole_plan_comes_from_a_file(cli, tmp_path):
    plan = NgramsPlan(epsilon=4, delta=1e-7, max_length=1, strategy="one_round", count_share=0)
    (tmp_path / "plan.json").write_text(plan.to_json())
    ended = cli("audit", "ngrams", "--plan", tmp_path / "plan.json", "--runs", 200, "--json")
    assert ended.status in (0, 4), ended.err
    assert json.loads(ended.out)["plan"] == plan.to_dict()
    twice = cli("audit", "ngrams", "--plan", tmp_path / "plan.json", "--epsilon", 4)
    assert (twice.status, "epsilon is in the file" in twice.err) == (2, True)


@pytest.mark.parametrize(
    ("program", "given", "message"),
    [
        ("ngrams", ("--releases", 4), "releases and releases_per_user must be given together"),
        (
            "ngrams",
            ("--releases", 4, "--releases_per_user", 5),
            "releases_per_user must be at most",
        ),
        (
            "set-union",
            ("--releases", 4, "--releases_per_user", 2, "--count_share", 0),
            "count_share must be above 0 for the audit of a series",
        ),
    ],
)
def test_what_is_no_series_to_attack_is_refused(cli, program, given, message):
    ended = cli("audit", program, *BUDGET, *given)
    assert ended.status == 2
    assert message in ended.err.replace("--", "")


def test_a_series_is_attacked_as_a_whole(cli, bayesian):
    series = ("--releases", 3, "--releases_per_user", 1, "--runs", 20_000, "--json")
    ended = cli(*bayesian, *series)
    assert ended.status == 0, ended.err
    shown = json.loads(ended.out)
    assert [each["attack_on"] for each in shown["findings"]] == 3 * [
        "counts of one user, in a series"
    ]
    assert {round(each["claim"], 6) for each in shown["findings"]} == {4}
