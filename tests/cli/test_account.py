"""`beam-dpne account`, `--budget` of the programs, and `plan --releases`."""

import json
import math
import pathlib
import re
from typing import NamedTuple

import pytest

from beam_dpne import BayesianPlan, PrivacyPlan, ReleaseNotes, SetUnionPlan
from beam_dpne.accounting.budget import Note, open_budget
from beam_dpne.accounting.composition import compose
from beam_dpne.accounting.expense import expense_of_plan
from beam_dpne.accounting.ledgers import CountedLedger
from beam_dpne.bayesian.plan import MODES
from beam_dpne.cli.accounting import _up
from beam_dpne.cli.budgets import kept_budget, remark_on_prior
from beam_dpne.release.files import read_ledger
from tests.support.ledgers import ledger_of, write_ledger

PLAN = PrivacyPlan(epsilon=4, delta=1e-6)
CUSTOMER = ReleaseNotes(unit="a customer", title="January")
TEXTS = [f"user-{place:03}" for place in range(120)]
RUN = ("--epsilon", 4, "--delta", 1e-6, "--quiet")
YEAR = ("--population", "customers", "--epsilon", 6, "--delta", 2e-6)


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    """Ledgers of four releases about the same users, without a run."""
    folder = tmp_path_factory.mktemp("releases")
    for month in range(1, 5):
        write_ledger(folder / f"0{month}", PLAN, rows=month, notes=CUSTOMER)
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    lines = (json.dumps({"user": user, "text": "good morning dear"}) for user in TEXTS)
    (folder / "texts.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "public.txt").write_text("good morning dear friend\n")
    return folder


@pytest.fixture
def budget(cli, tmp_path):
    path = tmp_path / "budget"
    assert cli("account", "--budget", path, "--create", *YEAR).status == 0
    return path


def runs(path):
    return list(open_budget(str(path)).runs().values())


# The total


def test_the_total_of_releases_is_printed_beside_the_sums(cli, releases):
    ended = cli("account", *sorted(releases.iterdir()))
    assert (ended.status, ended.err) == (0, "")
    assert "Together: ε = 8.3988, δ = 4e-06." in ended.out
    assert "The sums alone would be ε = 16, δ = 4e-06." in ended.out
    assert ended.out.count("with Gaussian noise") == 4


def test_json_has_the_same_numbers_and_the_hashes_of_the_ledgers(cli, releases):
    ended = cli("account", "--json", releases / "01", releases / "02" / "ledger.json")
    found = json.loads(ended.out)
    total = compose([expense_of_plan(PLAN)] * 2)
    assert found["total"] == {"epsilon": pytest.approx(total.epsilon), "delta": 2e-6}
    assert found["sums"] == {"epsilon": 8.0, "delta": 2e-6}
    assert found["gaussian_mu"] == pytest.approx(total.mu)
    assert [each["unit"] for each in found["releases"]] == ["a customer"] * 2
    assert all(len(each["sha256"]) == 64 for each in found["releases"])
    assert found["notes"] == []


@pytest.mark.parametrize("mode", MODES)
def test_a_release_and_the_probabilities_for_which_it_was_the_prior_are_composed(
    cli, tmp_path, mode
):
    plans = (PLAN, BayesianPlan(epsilon=1, delta=1e-7, mode=mode))
    folders = [tmp_path / "prior", tmp_path / "probabilities"]
    for folder, plan in zip(folders, plans, strict=True):
        write_ledger(folder, plan, notes=CUSTOMER)
    sentence = read_ledger(str(folders[1]))["not_protected"][-1]
    assert "beam-dpne account computes their total epsilon and delta from both ledgers" in sentence
    found = json.loads(cli("account", "--json", *folders).out)
    spent = [expense_of_plan(plan) for plan in plans]
    assert found["gaussian_mu"] == pytest.approx(math.hypot(*(each.mu for each in spent)))
    assert found["total"]["epsilon"] == pytest.approx(compose(spent).epsilon)
    assert 4 < found["total"]["epsilon"] < 4.6
    assert found["sums"]["epsilon"] == 5


def test_a_noun_with_control_characters_or_markup_is_shown_as_text(cli, tmp_path):
    ledger = ledger_of(PLAN)
    ledger["notes"]["unit"] = "\x1b[2J[b]u[/]"
    (tmp_path / "ledger.json").write_text(json.dumps(ledger))
    ended = cli("account", tmp_path)
    assert "⟨U+001B⟩[2J[b]u[/]" in "".join(re.split(r"[\s│]+", ended.out))
    assert "\x1b" not in ended.out


def test_a_larger_delta_gives_a_smaller_epsilon(cli, releases):
    two = (releases / "01", releases / "02")
    epsilons = [
        json.loads(cli("account", "--json", "--delta", delta, *two).out)["total"]["epsilon"]
        for delta in ("1e-6", "1e-4")
    ]
    assert epsilons[0] > epsilons[1]


def test_a_delta_without_a_finite_epsilon_is_an_error_after_the_table(cli, releases):
    """Else a script would take the exit status for a total."""
    two = (releases / "01", releases / "02")
    table, listing = (
        cli("account", *options, "--delta", "1e-7", *two) for options in ([], ["--json"])
    )
    assert "no finite ε at δ = 1e-07" in table.out
    assert json.loads(listing.out)["total"] == {"epsilon": None, "delta": 1e-7}
    for ended in (table, listing):
        assert ended.status == 2
        assert "delta must be larger, got delta=1e-07: these releases have no finite" in ended.err
    (advised,) = re.findall(r"Leave --delta out for their sum, (\S+)\.\n", table.err)
    assert cli("account", *two).status == 0
    assert cli("account", "--delta", advised, *two).status == 0


def test_runs_that_released_nothing_are_spent_all_the_same(cli, tmp_path):
    for name in ("empty", "other"):
        write_ledger(tmp_path / name, PLAN, rows=0)
    ended = cli("account", tmp_path / "empty", tmp_path / "other")
    assert ended.status == 0
    assert "Together: ε = 5.7592" in ended.out
    assert "has the same bytes as a ledger before it, and both are counted" in ended.out


def test_ledgers_may_be_kept_apart_from_their_releases(cli, releases, tmp_path):
    kept = tmp_path / "2026-01.json"
    kept.write_bytes((releases / "01" / "ledger.json").read_bytes())
    ended = cli("account", kept, releases / "02")
    assert "Together: ε = 5.7592" in ended.out


def test_runs_with_keys_that_were_given_are_pointed_out(cli, tmp_path):
    for name in ("a", "b"):
        write_ledger(tmp_path / name, PLAN, rows=ord(name), run_key_given=True)
    assert (
        "used the same key on different inputs"
        in cli("account", tmp_path / "a", tmp_path / "b").out
    )


def test_ledgers_of_other_units_are_refused_unless_the_users_are_the_same(cli, releases, tmp_path):
    other = write_ledger(tmp_path / "h", PLAN, notes=ReleaseNotes(unit="a household"))
    ended = cli("account", releases / "01", other)
    assert (ended.status, "'a customer' and 'a household'" in ended.err) == (2, True)
    assert cli("account", "--same_users", releases / "01", other).status == 0


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            {"schema": "beam_dpne/ledger/99"},
            "has schema 'beam_dpne/ledger/99'; this version reads beam_dpne/ledger/",
        ),
        ({"schema": "other"}, "is not a ledger"),
        ({"spent": {}}, None),
        ({"guarantee": {"epsilon": 1, "delta": 1e-6}}, "different budgets"),
        ({"guarantee": {}}, "'guarantee' must state epsilon above 0"),
    ],
)
def test_a_ledger_of_another_schema_or_damaged_is_refused(cli, tmp_path, damage, message):
    ledger = ledger_of(PLAN) | damage
    (tmp_path / "ledger.json").write_text(json.dumps(ledger))
    ended = cli("account", tmp_path)
    if message is None:
        assert "added by epsilon and delta alone" in ended.out
    else:
        assert (ended.status, message in ended.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "ledgers must be given"),
        (("nowhere",), "nowhere/ledger.json does not exist"),
        (("--runner", "FnApiRunner"), "has no option --runner"),
        (("nowhere", "--delta", "2"), "does not exist"),
        (("--create",), "--create needs --budget FOLDER"),
        (("--population", "x"), "--population needs --budget FOLDER"),
    ],
)
def test_what_cannot_be_added_up_is_refused(cli, arguments, message):
    ended = cli("account", *arguments)
    assert (ended.status, ended.out) == (2, "")
    assert message in ended.err


def test_a_release_named_twice_or_a_wrong_delta_is_refused(cli, releases):
    twice = cli("account", releases / "01", releases / "01" / "ledger.json")
    assert (twice.status, "is named twice" in twice.err) == (2, True)
    wrong = cli("account", releases / "01", "--delta", "2")
    assert (wrong.status, "delta must be in (0, 1)" in wrong.err) == (2, True)


def test_a_printed_total_is_rounded_up():
    assert [_up(value) for value in (5.75871, 4.0, 15.84321, 0.1 + 0.2)] == [
        "5.7588",
        "4",
        "15.8433",
        "0.3",
    ]


# A budget


def test_added_releases_count_above_the_cap_and_the_table_says_so(cli, releases, budget):
    assert cli("account", "--budget", budget, "--add", *sorted(releases.iterdir())).status == 0
    shown = cli("account", "--budget", budget)
    assert shown.status == 0
    total = compose([expense_of_plan(PLAN)] * 4, delta=2e-6).epsilon
    assert f"Together: ε = {_up(total)}, δ = 2e-06." in shown.out
    assert "The cap is below what is spent, so every further run is refused." in shown.out
    found = json.loads(cli("account", "--budget", budget, "--json").out)
    assert found["cap"] == {"epsilon": 6.0, "delta": 2e-6}
    assert [each["state"] for each in found["runs"]] == ["released"] * 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--create", "--add"), "--create and --add must not be given together"),
        (("--add",), "ledgers must be given"),
        (("nowhere",), "must come with --add"),
        (("--delta", "1e-6"), "--delta belongs to --create"),
        (("--settle", "nowhere"), "does not exist"),
        (("--remove", "none"), "has no note none"),
        (("--create",), "population and epsilon and delta must be given"),
        (("--create", *YEAR), "must be a new folder"),
    ],
)
def test_what_a_budget_does_not_do_is_refused(cli, budget, arguments, message):
    ended = cli("account", "--budget", budget, *arguments)
    assert (ended.status, ended.out) == (2, "")
    assert message in ended.err
    assert [path.name for path in budget.iterdir()] == ["budget.json"]


# The programs


def ngrams(cli, texts, output, *others):
    files = ("--input", texts / "texts.jsonl", "--output", output, "--max_length", 1)
    return cli("ngrams", *files, *RUN, *others)


def test_a_run_is_settled_in_its_budget_and_one_beyond_the_cap_never_starts(
    cli, texts, budget, tmp_path
):
    assert ngrams(cli, texts, tmp_path / "one", "--budget", budget).status == 0
    (run,) = runs(budget)
    assert run.ledger == read_ledger(str(tmp_path / "one"))
    again = ngrams(cli, texts, tmp_path / "one", "--budget", budget, "--overwrite")
    assert (again.status, len(runs(budget))) == (0, 2)
    ended = ngrams(cli, texts, tmp_path / "two", "--budget", budget)
    assert (ended.status, ended.out) == (2, "")
    assert "does not allow this run" in ended.err
    assert not (tmp_path / "two").exists()
    assert len(runs(budget)) == 2


@pytest.mark.parametrize("program", ["set-union", "bayesian"])
def test_the_other_programs_keep_a_budget_too(cli, texts, budget, tmp_path, program):
    of_program = ("--public", texts / "public.txt") if program == "bayesian" else ()
    files = ("--input", texts / "texts.jsonl", "--output", tmp_path / "one")
    ended = cli(program, *files, *RUN, *of_program, "--budget", budget)
    assert ended.status == 0
    (run,) = runs(budget)
    assert (run.program, run.expense.reason) == (program, None)


def test_a_failed_run_counts_until_its_note_is_removed(cli, texts, budget, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text((texts / "texts.jsonl").read_text() + '{"user": "u"}\n')
    files = ("--input", bad, "--output", tmp_path / "one", "--max_length", 1)
    ended = cli("ngrams", *files, *RUN, "--strict", "--budget", budget)
    assert ended.status == 1
    (name,) = open_budget(str(budget)).runs()
    assert f"--remove {name}" in ended.err
    assert "1 run started and published nothing" in cli("account", "--budget", budget).out
    assert cli("account", "--budget", budget, "--remove", name).status == 0
    assert runs(budget) == []


def test_a_budget_is_checked_before_anything_else_runs(cli, texts, budget, tmp_path):
    template = ("--template_location", tmp_path / "template", "--run_key_file", _key(tmp_path))
    for folder, others, message in (
        (tmp_path / "none", (), "--create --population"),
        (tmp_path / "one" / "b", (), "outside the directory"),
        (budget, template, "budget must be left out with a template"),
    ):
        ended = ngrams(cli, texts, tmp_path / "one", "--budget", folder, *others)
        assert (ended.status, message in ended.err) == (2, True)
    assert runs(budget) == []
    assert not (tmp_path / "one").exists()


def _key(folder):
    path = pathlib.Path(folder) / "key"
    path.write_text("0f1e2d3c" * 8 + "\n")
    return path


class Run(NamedTuple):
    """The fields of a job that its budget needs."""

    budget: str
    output: str
    plan: PrivacyPlan = PLAN
    notes: ReleaseNotes = CUSTOMER


def test_a_run_that_is_handed_over_counts_until_it_is_settled(cli, budget, tmp_path, capsys):
    with kept_budget(Run(str(budget), str(tmp_path / "one"))):
        pass
    (name,) = open_budget(str(budget)).runs()
    said = " ".join(capsys.readouterr().err.split())
    assert f"account --budget {budget} --settle {tmp_path / 'one'}" in said
    assert name in open_budget(str(budget)).runs()
    write_ledger(tmp_path / "one", PLAN)
    assert cli("account", "--budget", budget, "--settle", tmp_path / "one").status == 0
    assert isinstance(runs(budget)[0], CountedLedger)


def test_a_budget_that_cannot_be_settled_leaves_the_release_and_its_note(budget, tmp_path, capsys):
    with kept_budget(Run(str(budget), str(tmp_path / "one"))) as outcome:
        outcome.is_released = True
    assert isinstance(runs(budget)[0], Note)
    assert "the budget could not be settled" in capsys.readouterr().err


def test_an_interrupted_run_counts(budget, tmp_path, capsys):
    with pytest.raises(KeyboardInterrupt), kept_budget(Run(str(budget), str(tmp_path / "one"))):
        raise KeyboardInterrupt
    assert isinstance(runs(budget)[0], Note)
    assert "--remove" in capsys.readouterr().err


def test_a_prior_that_the_budget_does_not_have_is_pointed_out(cli, releases, budget, texts, capsys):
    remark_on_prior(str(budget), str(texts / "public.txt"))
    assert capsys.readouterr().err == ""
    remark_on_prior(str(budget), str(releases / "01"))
    assert "a release that the budget does not have" in capsys.readouterr().err
    assert cli("account", "--budget", budget, "--add", releases / "01").status == 0
    remark_on_prior(str(budget), str(releases / "01"))
    assert capsys.readouterr().err == ""


# Dividing a budget


@pytest.mark.parametrize("releases", [2, 12])
def test_equal_releases_under_a_divided_plan_fill_the_budget(cli, tmp_path, releases):
    path = tmp_path / "plan.json"
    whole = ("--epsilon", 8, "--delta", 1.2e-6)
    ended = cli("plan", *whole, "--releases", releases, "--output", path)
    assert ended.status == 0
    assert f"{releases} releases under this plan have at most ε = 8 at δ = 1.2e-06" in ended.out
    plan = PrivacyPlan.from_json(path.read_text())
    assert plan.delta == 1.2e-6 / releases
    spent = [expense_of_plan(plan)] * releases
    assert compose(spent, delta=1.2e-6).epsilon <= 8
    more = PrivacyPlan(epsilon=plan.epsilon * 1.001, delta=plan.delta)
    assert compose([expense_of_plan(more)] * releases, delta=1.2e-6).epsilon > 8
    assert plan.epsilon > 8 / releases


@pytest.mark.parametrize("releases", [0, -1, 10_001])
def test_a_wrong_number_of_releases_is_refused(cli, releases):
    ended = cli("plan", "--epsilon", 8, "--delta", 1e-6, "--releases", releases)
    assert (ended.status, "releases must be a whole number" in ended.err) == (2, True)


def test_one_release_has_the_whole_budget(cli):
    ended = cli("plan", "--epsilon", 8, "--delta", 1e-6, "--releases", 1)
    assert "ε = 8, δ = 1e-06" in ended.out


def test_a_division_works_for_every_plan():
    from beam_dpne.accounting.division import plan_of_each

    whole = SetUnionPlan(epsilon=3, delta=1e-6, policy="screened_gaussian")
    each = plan_of_each(whole, 3)
    assert compose([expense_of_plan(each)] * 3, delta=1e-6).epsilon <= 3
    assert each.epsilon > 1.5
