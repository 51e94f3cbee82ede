"""`beam-dpne plan`: the users that an n-gram needs, and forecasts from public text."""

import gzip
import json
import re

import pytest
from rich.console import Console

from beam_dpne import NgramsPlan, SetUnionPlan
from beam_dpne.cli import display
from tests.conftest import ROOT

PRIVACY = ("--epsilon", 4, "--delta", 1e-6)
_SERIES = ("--releases", 4, "--releases_per_user")
SAMPLE = ROOT / "pipelines" / "data" / "reddit_titles_sample.jsonl.gz"


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """300 users, most of whom say the same."""
    path = tmp_path_factory.mktemp("public") / "text.jsonl"
    lines = [{"user": f"u{n}", "text": f"good morning dear friend {n % 7}"} for n in range(300)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def numbers(out):
    """The cells of the rows of a printed table."""
    rows = [line for line in out.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in row.strip("│").split("│")] for row in rows]


def test_without_text_the_users_that_typical_n_grams_need_are_printed(cli):
    ended = cli("plan", *PRIVACY, "--max_length", 2)
    assert ended.status == 0
    rows = numbers(ended.out)
    assert [row[0] for row in rows] == ["1", "2"]
    values = [int(cell.replace(",", "")) for cell in rows[0][1:]]
    assert values == sorted(values)
    assert "The plan has ε = 4, δ = 1e-06: noise σ =" in ended.out


def test_plans_of_other_programs_show_noise_and_thresholds_of_rounds(cli, tmp_path):
    path = tmp_path / "plan.json"
    ended = cli("plan", "set-union", *PRIVACY, "--policy", "sips", "--output", path)
    assert ended.status == 0, ended.err
    plan = SetUnionPlan.from_json(path.read_text())
    assert plan == SetUnionPlan(epsilon=4, delta=1e-6, policy="sips")
    again = ("plan", "set-union", *PRIVACY, "--output", path)
    assert "--output must be a new file" in cli(*again).err
    assert path.read_text() == plan.to_json()
    assert cli(*again, "--overwrite").status == 0
    assert "screened_gaussian" in path.read_text()
    shown = [(row[0], float(row[1]), float(row[2])) for row in numbers(ended.out)]
    assert [row[0] for row in shown] == ["1", "2", "3"]
    for (_, stddev, threshold), rule in zip(shown, plan.union_rounds, strict=True):
        assert stddev == pytest.approx(rule.noise_stddev, rel=1e-3)
        assert threshold == pytest.approx(rule.threshold, rel=1e-3)
    assert "at sensitivity 1, " in " ".join(ended.out.split())
    assert "at sensitivity" in cli("plan", "bayesian", *PRIVACY).out
    like = ("--users", 100, "--like", "titles")
    assert "forecasts are of n-grams" in cli("plan", "set-union", *PRIVACY, *like).err
    assert "--policy" in cli("plan", *PRIVACY, "--policy", "sips").err


@pytest.mark.parametrize("width", [30, 80, 200])
def test_a_table_of_any_width_has_whole_words_and_all_its_cells(width, monkeypatch, capsys):
    names = ["length", "within factor two", "rank correlation", "10,000 users", "1,000 users"]
    rows = [{name: f"{n},{place}00–12,345" for place, name in enumerate(names)} for n in range(3)]
    rows = [row | {"length": n} for n, row in enumerate(rows)]
    monkeypatch.setattr(display, "console_of", lambda file: Console(file=file, width=width))
    display.print_table("title", rows)
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= width for line in lines)
    words = re.sub("[│┃]", " ", "\n".join(lines)).split()
    for name in names:
        assert set(name.split()) <= set(words)
    for row in rows:
        assert {str(cell) for cell in row.values()} <= set(words)
        # Each table has the key.
        own = [line for line in lines if line.startswith(f"│ {' ' * 5}{row['length']} │")]
        assert len(own) == sum(line.startswith("┏") for line in lines)


def test_equal_keys_are_shown_once_and_names_with_digits_are_no_numbers(capsys):
    rows = [{"run": f"{n}-run", "part": part} for n in "12" for part in ("a", "longer")]
    display.print_table("title", rows)
    assert [row[0] for row in numbers(capsys.readouterr().out)] == ["1-run", "", "2-run", ""]
    display.print_table("title", [{"run": "2026-01"}, {"run": "all of them"}])
    assert "│ 2026-01     │" in capsys.readouterr().out


def test_a_forecast_is_printed_and_repeated(cli, text, tmp_path):
    plan = tmp_path / "plan.json"
    command = (
        *("plan", *PRIVACY, "--max_length", 2, "--like", text, "--users", 300),
        *("--epsilons", "4,1", "--output", plan),
    )
    ended = cli(*command)
    assert ended.status == 0, ended.err
    rows = numbers(ended.out)
    assert [row[:2] for row in rows] == [["1", "1"], ["", "2"], ["4", "1"], ["", "2"]]
    # Four frequent words and three pairs; users also have seven rarer ones.
    assert 4 <= int(rows[2][2]) <= 11
    assert 3 <= int(rows[3][2]) <= 10
    assert "Simulated with 300 users" in ended.out
    assert NgramsPlan.from_json(plan.read_text()).epsilon == 4
    assert cli(*command, "--overwrite").out == ended.out


def test_text_without_users_is_dealt_to_made_up_users(cli, tmp_path):
    path = tmp_path / "public.txt.gz"
    path.write_bytes(gzip.compress(b"Good morning, dear friend\n" * 600))
    reading = ("--input_format", "sequences", "--tokenizer", "words", "--documents_per_user", 2)
    ended = cli("plan", *PRIVACY, "--like", path, "--users", 100, *reading, "--max_length", 2)
    assert ended.status == 0, ended.err
    assert [row[2] for row in numbers(ended.out)] == ["4", "3"] * 3


def test_a_forecast_of_a_run_that_knows_something_has_more(cli, text, tmp_path):
    known = tmp_path / "known.txt"
    words = {
        word for line in text.read_text().splitlines() for word in json.loads(line)["text"].split()
    }
    known.write_text("\n".join(words))
    given = (
        *("plan", *PRIVACY, "--max_length", 1, "--like", text, "--users", 100, "--epsilons", 1),
    )
    alone = cli(*given)
    ended = cli(*given, "--known", known, "--known_min_count", 1)
    assert ended.status == 0, ended.err
    assert int(numbers(ended.out)[0][2]) > int(numbers(alone.out)[0][2])
    refused = cli(*given, "--known", known, "--strategy", "one_round")
    assert refused.status == 2
    assert "known must be left out with another strategy" in refused.err


def test_releases_divide_the_budgets_of_a_forecast(cli, text):
    given = ("--like", text, "--users", 300, "--max_length", 1, "--epsilons", "8,12")
    ended = cli("plan", "--epsilon", 8, "--delta", 1.2e-6, *given, "--releases", 12)
    assert ended.status == 0, ended.err
    assert [float(row[0]) for row in numbers(ended.out)] == pytest.approx([2.19, 3.2], abs=0.1)


def test_a_forecast_of_a_series_is_that_of_the_budget_of_each_number_of_releases(cli, text):
    given = ("--epsilon", 8, "--delta", 1e-6, "--max_length", 2, "--releases", 12)
    given += ("--releases_per_user", "12,1")
    like = ("--like", text, "--users", 300)
    budgets = {row[0]: row[1:] for row in numbers(cli("plan", *given).out)}
    assert [*budgets] == ["1", "12"]
    ended = cli("plan", *given, *like)
    assert ended.status == 0, ended.err
    forecast = numbers(ended.out)[len(budgets) :]
    assert [row[0] for row in forecast] == ["1", "", "12", ""]
    for first, times in ((0, "1"), (2, "12")):
        assert {row[1] for row in forecast[first : first + 2]} == {budgets[times][0]}
        epsilon, delta = map(float, budgets[times])
        alone = (*given[4:6], "--epsilon", epsilon, "--delta", delta, "--epsilons", epsilon)
        sizes = [row[1:3] for row in numbers(cli("plan", *alone, *like).out)]
        assert sizes == [row[2:4] for row in forecast[first : first + 2]]


@pytest.mark.parametrize(
    ("options", "rows", "left_out"),
    [
        (
            ("--epsilons", "0.1,4"),
            5,
            "No forecast for ε = 0.1: the built-in profile",
        ),
        (("--releases", 99, "--releases_per_user", "1,50"), 5, "No forecast for ε = 0."),
    ],
)
def test_plans_outside_of_a_profile_leave_the_forecasts_of_others(cli, options, rows, left_out):
    ended = cli(
        "plan", "--epsilon", 4, "--delta", 1e-7, "--like", "titles", "--users", 900, *options
    )
    assert ended.status == 0, ended.err
    assert left_out in " ".join(ended.out.split())
    forecast = ended.out[ended.out.index("Forecast") :]
    assert len(numbers(forecast)) == rows


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--releases_per_user", 2), "releases must be given with --releases_per_user"),
        ((*_SERIES, 5), "releases_per_user must be at most --releases, got --releases_per_user=5"),
        ((*_SERIES, 2, "--output", "p"), "output must be left out with --releases_per_user"),
        ((*_SERIES, 2, "--like", "TEXT", "--users", 9, "--epsilons", 1), "epsilons must be left"),
        (("--users", 100), "known belong to a forecast"),
        (("--epsilons", "1,2"), "known belong to a forecast"),
        (("--known", "TEXT"), "known belong to a forecast"),
        (
            ("--like", "TEXT", "--users", 9, "--known", "TEXT"),
            "known must be another text than --like",
        ),
        (("--like", "titles", "--users", 900, "--known", "TEXT"), "known must be left out"),
        (("--like", "TEXT", "--users", 9, "--known", "no"), "error: --known must name an existing"),
        (("--like", "TEXT"), "users must be a public round number"),
        (("--like", "TEXT", "--users", 0), "users must be an integer from 1"),
        (("--like", "TEXT", "--users", 2**40), "users must be an integer from 1"),
        (("--like", "TEXT", "--users", 9, "--epsilons", "1,0"), "epsilons must be"),
        (("--like", "TEXT", "--users", 9, "--epsilons", "1,5000"), "epsilon"),
        (
            ("--like", "TEXT", "--users", 9, "--user_field", "nobody"),
            "user_field must name a field",
        ),
        (("--like", "none.jsonl", "--users", 9), "error: --like must name existing"),
        (("--like", "EMPTY", "--users", 9), "error: --like must have records"),
        (("--like", "titles,TEXT", "--users", 900), "got titles: there is no such file"),
        (("--like", "titles", "--users", 900, "--rounds", 1), "rounds must be 3"),
        (("--like", "titles", "--users", 900, "--max_length", 9), "max_length must be 5 with"),
        (("--like", "titles", "--users", 9), "users must be from"),
        (
            ("--like", "titles", "--users", 900, "--epsilons", 0.1),
            "must be a budget of the profile",
        ),
    ],
)
def test_wrong_options_are_refused(cli, text, tmp_path, options, message):
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    files = {"TEXT": text, "EMPTY": empty}
    given = [files.get(option, option) for option in options]
    if "titles,TEXT" in given:
        place = given.index("titles,TEXT")
        given[place : place + 1] = ["titles", "--like", text]
    ended = cli("plan", *PRIVACY, *given)
    assert ended.status == 2, ended.out + ended.err
    assert message in ended.err
    assert ended.err.count("\n") == 1
