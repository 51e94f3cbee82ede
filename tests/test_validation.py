"""A large δ, and a public number of users: what is refused, and what the programs and ledgers say."""

import dataclasses
import json

import pytest

from beam_dpne.bayesian.plan import ProbabilitiesPlan
from beam_dpne.ngrams.plan import NgramsPlan
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.validation import LARGE_DELTA, about_large_delta
from tests.reading.files import write
from tests.support.arguments import not_refused

PLANS = (NgramsPlan, SetUnionPlan, ProbabilitiesPlan)
WARNING = "beam-dpne: warning: delta="


@pytest.mark.parametrize("kind", PLANS)
def test_a_delta_above_one_over_the_public_number_of_users_is_refused_with_both(kind):
    with pytest.raises(
        ValueError, match=r"1/public_user_count=0\.0002, got `delta=0\.0003` and .*=5000"
    ):
        kind(epsilon=1, delta=3e-4, public_user_count=5000)
    assert kind(epsilon=1, delta=2e-4, public_user_count=5000).public_user_count == 5000
    assert kind(epsilon=1, delta=3e-4).public_user_count is None


@pytest.mark.parametrize("kind", PLANS)
def test_what_is_no_number_of_users_is_refused_by_name(kind):
    good, wrong = {"epsilon": 1, "delta": 1e-6}, (0, -1, 2.5, "5000", True, [1])
    cases = [
        (good | {"public_user_count": value}, "`public_user_count` must be an integer")
        for value in wrong
    ]
    assert not_refused(kind, cases) == []


@pytest.mark.parametrize("kind", PLANS)
def test_the_number_is_in_the_plans_json_and_changes_nothing_else(kind):
    plain = kind(epsilon=1, delta=1e-6)
    told = dataclasses.replace(plain, public_user_count=1000)
    assert kind.from_json(told.to_json()) == told
    assert json.loads(told.to_json())["public_user_count"] == 1000
    assert (told.gaussian_delta, told.numerical_slack) == (
        plain.gaussian_delta,
        plain.numerical_slack,
    )


def test_only_a_delta_of_a_thousandth_and_more_is_large():
    assert LARGE_DELTA == 1e-3
    assert about_large_delta(0.99e-3) is None
    assert "one user in 1000 " in str(about_large_delta(1e-3))
    assert "one user in 2 " in str(about_large_delta(0.5))


@pytest.mark.parametrize(
    ("delta", "others", "warned"),
    [
        (1e-2, (), True),
        (1e-3, (), True),
        (0.9e-3, (), False),
        (1e-2, ("--public_user_count", "100"), False),
    ],
)
def test_plan_warns_of_a_large_delta_on_stderr(delta, others, warned, cli):
    captured = cli("plan", "--epsilon", 1, "--delta", delta, *others)
    assert captured.status == 0
    assert (WARNING in captured.err) == warned
    assert WARNING not in captured.out


@pytest.mark.parametrize(
    ("program", "others"),
    [
        ("ngrams", ()),
        ("set-union", ()),
        ("bayesian", ()),
        ("bayesian", ("--public_user_count", "50")),
    ],
)
def test_programs_warn_of_a_large_delta_also_when_quiet(program, others, tmp_path, cli):
    texts = tmp_path / "in.jsonl"
    texts.write_text(
        "".join(json.dumps({"user": f"u{i}", "text": "good morning"}) + "\n" for i in range(40))
    )
    (tmp_path / "public.txt").write_text("good morning\t5\n")
    given = ["--input", str(texts), "--output", str(tmp_path / "out"), "--quiet", *others]
    if program == "bayesian":
        given += ["--public", str(tmp_path / "public.txt"), "--length", "2"]
    if program == "ngrams":
        given += ["--max_length", "2"]
    captured = cli(program, "--epsilon", 2, "--delta", 5e-3, *given)
    assert captured.status == 0
    assert captured.err.count(WARNING) == (0 if others else 1)
    ledger = json.loads((tmp_path / "out" / "ledger.json").read_text())
    assert about_large_delta(5e-3) in ledger["not_protected"]
    assert ledger["plan"]["public_user_count"] == (50 if others else None)


@pytest.mark.parametrize("program", ["ngrams", "set-union", "bayesian"])
def test_programs_refuse_a_delta_of_a_hundredth_unless_the_users_are_few(program, tmp_path, cli):
    texts = write(tmp_path / "in.jsonl", '{"user": "a", "text": "good morning"}\n' * 9)
    public = write(tmp_path / "public.txt", "good morning\t5\n")
    given = ["--epsilon", 2, "--input", texts, "--output", tmp_path / "out"]
    if program == "bayesian":
        given += ["--public", public, "--length", 2]
    refused = cli(program, *given, "--delta", 0.01)
    assert refused.status == 2
    assert "--delta must be below 0.01, got --delta=0.01" in refused.err
    assert "give --public_user_count" in refused.err
    assert not (tmp_path / "out").exists()
    assert cli("check", program, *given, "--delta", 0.01).status == 2
    assert cli(program, *given, "--delta", 0.01, "--public_user_count", 99).status == 0


@pytest.mark.parametrize("program", ["ngrams", "set-union", "bayesian"])
def test_programs_refuse_a_delta_above_one_over_the_public_number(program, tmp_path, cli):
    given = ["--input", str(tmp_path / "none"), "--output", str(tmp_path / "out")]
    counts = ["--public_user_count", "1000"]
    public = ["--public", "none"] if program == "bayesian" else []
    ended = cli(program, "--epsilon", 1, "--delta", 0.01, *given, *public, *counts)
    assert ended.status == 2
    assert "--delta must be at most 1/public_user_count=0.001" in ended.err
