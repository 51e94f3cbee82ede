"""`beam-dpne audit`: its table, JSON, picture and exit status, and what it refuses."""

import json

import pytest

from beam_dpne import BayesianPlan, PrivacyPlan
from beam_dpne.bayesian import counting
from beam_dpne.cli import display
from beam_dpne.cli.auditing import STATUS
from beam_dpne.cli.options import options_of
from beam_dpne.cli.options_by_command import AUDIT, AUDITED

PROBABILITIES = ("bayesian", "--epsilon", 4, "--delta", 1e-7, "--max_contributions", 2)
ITEMS = ("set-union", "--epsilon", 4, "--delta", 1e-7, "--policy", "weighted_gaussian")
BUDGET = ("--epsilon", 4, "--delta", 1e-7)


def flat(text):
    return " ".join(text.split())


def test_the_table_has_claim_bounds_and_mistakes_and_says_what_it_does_not_prove(cli, monkeypatch):
    # Progress is looked at so often that no play is over before.
    monkeypatch.setattr(display, "_REFRESH_SECONDS", 0.005)
    ended = cli("audit", *PROBABILITIES, "--runs", 4000)
    assert ended.status == 0, ended.err
    assert "counts of one user" in ended.out
    assert "noticed" in ended.out
    assert "4.00" in ended.out
    assert "This proves no guarantee" in ended.out
    assert "Every planted mistake was noticed" in ended.out
    assert "of 3: counts of one user" in flat(ended.err)


def test_json_has_everything_and_equal_seeds_give_equal_bytes(cli):
    first, again, other = (
        cli("audit", *ITEMS, "--runs", 4000, "--seed", seed, "--json", "--quiet")
        for seed in (5, 5, 6)
    )
    assert first.out == again.out != other.out
    assert (first.status, first.err) == (0, "")
    shown = json.loads(first.out)
    assert shown["schema"] == "beam_dpne/audit/1"
    assert (shown["mechanism"], shown["verdict"]) == ("set-union", "passed")
    assert (shown["runs"], shown["seed"], shown["confidence"]) == (4000, 5, 0.99)
    assert shown["plan"]["policy"] == "weighted_gaussian"
    for game in shown["games"]:
        assert game["epsilon_at_least"] < game["claim"]["epsilon"]
        assert not game["exceeds"]
        for mistake in game["mistakes"]:
            shown_at_least = max(mistake["epsilon_at_least"], mistake["gaussian_epsilon_at_least"])
            assert shown_at_least > game["claim"]["epsilon"]


def test_a_bound_above_the_claim_ends_with_status_3(cli, monkeypatch):
    noise = counting.integer_noise.integer_normals
    monkeypatch.setattr(
        counting.integer_noise, "integer_normals", lambda draws, steps: noise(draws, steps / 4)
    )
    ended = cli("audit", *PROBABILITIES, "--runs", 4000, "--quiet")
    assert ended.status == STATUS["exceeded"] == 3
    assert "ABOVE THE CLAIM" in ended.out
    assert "Do not release under this plan" in ended.out


def test_too_few_runs_end_with_status_4_and_say_so(cli):
    ended = cli("audit", *PROBABILITIES, "--epsilon", 0.1, "--runs", 200, "--quiet")
    assert ended.status == STATUS["weak"] == 4
    assert "NOT NOTICED" in ended.out
    assert "The power was too low" in ended.out
    assert ended.err == ""


def test_the_picture_is_a_png_that_is_the_same_each_time(cli, tmp_path):
    for name in ("a.png", "b.png"):
        ended = cli("audit", *ITEMS, "--runs", 400, "--plot", tmp_path / name)
        assert ended.status in (0, 4)
        assert f"the picture is in {tmp_path / name}" in flat(ended.err)
    first = (tmp_path / "a.png").read_bytes()
    assert first.startswith(b"\x89PNG")
    assert first == (tmp_path / "b.png").read_bytes()


def test_a_plan_from_a_file_is_audited_as_that_of_single_parameters(cli, tmp_path):
    plan = PrivacyPlan(epsilon=4, delta=1e-7, max_length=1, strategy="one_round", count_share=0)
    (tmp_path / "plan.json").write_text(plan.to_json())
    few = ("--runs", 200, "--json", "--quiet")
    whole = cli("audit", "ngrams", "--plan", tmp_path / "plan.json", *few)
    single = cli(
        *("audit", "ngrams", *BUDGET, "--max_length", 1, "--strategy", "one_round"),
        *("--count_share", 0, *few),
    )
    assert whole.status in (0, 4)
    assert whole.out == single.out
    assert json.loads(whole.out)["plan"] == plan.to_dict()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "mechanism must be one of ngrams, set-union, bayesian, got none"),
        (("words", *BUDGET), "mechanism must be one of ngrams, set-union, bayesian"),
        (("ngrams", "--epsilon", 4), "delta must be given"),
        (("ngrams", *BUDGET, "--policy", "mad"), "policy must be left out with mechanism=ngrams"),
        (("bayesian", *BUDGET, "--plan", "p.json"), "plan must be left out"),
        (("set-union", *BUDGET, "--max_length", 3), "max_length must be left out"),
        (("ngrams", *BUDGET, "--max_length", 0), "max_length must be"),
        (("ngrams", *BUDGET, "--strategy", "one_round", "--rounds", 2), "rounds must be left out"),
        (("set-union", *BUDGET, "--max_contributions", "1,2"), "max_contributions must be"),
        ((*PROBABILITIES, "--runs", 10), "runs must be an integer from 200"),
        ((*PROBABILITIES, "--confidence", 2), "confidence must be in (0, 1)"),
        ((*PROBABILITIES, "--seed", -1), "seed must be an integer from 0"),
        ((*PROBABILITIES, "--plot", "audit.jpg"), "plot must be the path of a PNG file"),
        ((*PROBABILITIES, "--input", "x.csv"), "beam-dpne audit has no option --input"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_played(cli, arguments, message):
    ended = cli("audit", *arguments)
    assert (ended.status, ended.out) == (2, "")
    assert message in flat(ended.err)
    assert "play 1" not in ended.err


def test_a_picture_that_exists_is_refused_and_left_alone(cli, tmp_path):
    (tmp_path / "a.png").write_bytes(b"mine")
    ended = cli("audit", *PROBABILITIES, "--plot", tmp_path / "a.png")
    assert ended.status == 2
    assert "plot must be a new file" in flat(ended.err)
    assert (tmp_path / "a.png").read_bytes() == b"mine"


def test_a_picture_in_a_directory_that_is_a_file_is_refused(cli, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    ended = cli("audit", *PROBABILITIES, "--plot", tmp_path / "file" / "a.png")
    assert ended.status == 2
    assert "plot must be a file that can be written" in flat(ended.err)


def test_every_privacy_option_of_the_programs_is_an_option_of_the_audit():
    names = [option.name for option in options_of(AUDIT)]
    assert len(names) == len(set(names))
    for options in AUDITED.values():
        assert {option.name for option in options} <= set(names)
    fields = BayesianPlan(epsilon=1, delta=1e-5).to_dict().keys() - {"adjacency"}
    assert fields <= set(names)
