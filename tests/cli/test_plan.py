"""`beam-dpne plan`: the users that an n-gram needs, and forecasts from public text."""

import gzip
import json
import re

import numpy as np
import pytest

from beam_dpne import PrivacyPlan
from beam_dpne.forecast.profiles import PROFILES, profile_of, read_profile
from tests.conftest import ROOT

PRIVACY = ("--epsilon", 4, "--delta", 1e-6)
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
    assert "Each user may spend μ²" in ended.out


def test_public_and_united_words_have_no_numbers(cli):
    ended = cli("plan", *PRIVACY, "--max_length", 2, "--vocabulary_policy", "public")
    assert numbers(ended.out)[0][1:] == ["-"] * 6
    assert "Single words are public" in ended.out
    ended = cli("plan", *PRIVACY, "--max_length", 2, "--vocabulary_policy", "screened_gaussian")
    assert "screened_gaussian finds single words" in ended.out


def test_a_forecast_is_printed_drawn_and_repeated(cli, text, tmp_path):
    picture, plan = tmp_path / "forecast.png", tmp_path / "plan.json"
    command = (
        *("plan", *PRIVACY, "--max_length", 2, "--like", text, "--users", 300),
        *("--epsilons", "4,1", "--picture", picture, "--output", plan),
    )
    ended = cli(*command)
    assert ended.status == 0, ended.err
    rows = numbers(ended.out)
    assert [row[:2] for row in rows] == [["1", "1"], ["", "2"], ["4", "1"], ["", "2"]]
    # Four frequent words and three pairs; users also have seven rarer ones.
    assert 4 <= int(rows[2][2]) <= 11
    assert 3 <= int(rows[3][2]) <= 10
    assert "Simulated with 300 users" in ended.out
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert PrivacyPlan.from_json(plan.read_text()).epsilon == 4
    drawn = picture.read_bytes()
    again = cli(*command)
    assert (again.out, picture.read_bytes()) == (ended.out, drawn)


def test_text_without_users_is_dealt_to_made_up_users(cli, tmp_path):
    path = tmp_path / "public.txt.gz"
    path.write_bytes(gzip.compress(b"Good morning, dear friend\n" * 600))
    reading = ("--input_format", "sequences", "--tokenizer", "words", "--documents_per_user", 2)
    ended = cli("plan", *PRIVACY, "--like", path, "--users", 100, *reading, "--max_length", 2)
    assert ended.status == 0, ended.err
    assert [row[2] for row in numbers(ended.out)] == ["4", "3"] * 3


def test_public_words_make_a_forecast_of_longer_n_grams(cli, text, tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("good\nmorning\n")
    given = ("--like", text, "--users", 300, "--max_length", 2, "--epsilons", 4)
    ended = cli("plan", *PRIVACY, *given, "--vocabulary", words)
    assert ended.status == 0, ended.err
    rows = numbers(ended.out)
    assert rows[0][2] == "public"
    assert rows[1][2] == "1"
    refused = cli("plan", *PRIVACY, *given, "--vocabulary_policy", "public")
    assert (refused.status, "vocabulary must be given" in refused.err) == (2, True)


def test_united_words_are_forecast_up_to_the_users_of_the_text(cli, text):
    given = ("--like", text, "--max_length", 2, "--vocabulary_policy", "screened_gaussian")
    assert cli("plan", *PRIVACY, *given, "--users", 200, "--epsilons", 4).status == 0
    refused = cli("plan", *PRIVACY, *given, "--users", 900)
    assert (refused.status, "users must be at most" in refused.err) == (2, True)


def test_releases_divide_the_budgets_of_a_forecast(cli, text):
    given = ("--like", text, "--users", 300, "--max_length", 1, "--epsilons", "8,12")
    ended = cli("plan", "--epsilon", 8, "--delta", 1.2e-6, *given, "--releases", 12)
    assert ended.status == 0, ended.err
    assert [float(row[0]) for row in numbers(ended.out)] == pytest.approx([2.19, 3.2], abs=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--users", 100), "users belongs to a forecast"),
        (("--epsilons", "1,2"), "epsilons belongs to a forecast"),
        (("--picture", "a.png"), "picture belongs to a forecast"),
        (("--seed", 1), "seed belongs to a forecast"),
        (("--user_field", "a"), "user_field belongs to a forecast"),
        (("--like", "TEXT"), "users must be given with like"),
        (("--like", "TEXT", "--users", 0), "users must be from 1"),
        (("--like", "TEXT", "--users", -5), "users must be from 1"),
        (("--like", "TEXT", "--users", 2**40), "users must be from 1"),
        (("--like", "TEXT", "--users", 9, "--seed", -1), "seed must be from 0"),
        (("--like", "TEXT", "--users", 9, "--epsilons", "1,0"), "epsilons must be finite"),
        (("--like", "TEXT", "--users", 9, "--epsilons", "nan"), "epsilons must be finite"),
        (("--like", "TEXT", "--users", 9, "--epsilons", "1,5000"), "epsilons has 5000"),
        (("--like", "TEXT", "--users", 9, "--documents_per_user", 0.5), "documents_per_user must"),
        (
            ("--like", "TEXT", "--users", 9, "--documents_per_user", "nan"),
            "documents_per_user must",
        ),
        (("--like", "TEXT", "--users", 9, "--picture", "a.pdf"), "ends in .png"),
        (("--like", "TEXT", "--users", 9, "--picture", "/none/a.png"), "directory that exists"),
        (("--like", "TEXT", "--users", 9, "--user_field", "nobody"), "like cannot be read"),
        (("--like", "none.jsonl", "--users", 9), "like cannot be read"),
        (("--like", "EMPTY", "--users", 9), "like cannot be read"),
        (("--like", "titles,TEXT", "--users", 900), "one profile or files"),
        (("--like", "titles"), "users must be given with like"),
        (("--like", "titles", "--users", 900, "--seed", 1), "seed must be left out"),
        (
            ("--like", "titles", "--users", 900, "--tokenizer", "words"),
            "tokenizer must be left out",
        ),
        (("--like", "titles", "--users", 900, "--rounds", 1), "rounds must be left out"),
        (("--like", "titles", "--users", 900, "--max_length", 9), "max_length must be 5 with"),
        (
            ("--like", "titles", "--users", 900, "--strategy", "one_round"),
            "strategy must be left out with a built-in profile",
        ),
        (("--like", "titles", "--users", 9), "users must be from"),
        (("--like", "titles", "--users", 900, "--epsilons", 0.1), "outside the built-in profile"),
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


# The built-in profile


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_has_its_table_at_the_points_of_its_grid(name):
    profile = read_profile(name)
    for most, table in profile.tables.items():
        plan = PrivacyPlan(epsilon=2, delta=1e-7, max_length=most)
        column = int(np.argmin(np.abs(profile.budgets - 1 / plan.noise_stddev)))
        for row, users in enumerate(profile.users.tolist()):
            forecast = profile.forecast(plan, users)
            expected = [table[f"released {k}"][row, column] for k in range(1, most + 1)]
            found = [length.released for length in forecast.lengths]
            assert found == pytest.approx(expected, rel=0.01)


def test_a_profile_interpolates_between_points():
    fields = {
        "text": "text",
        "public_users": 9,
        "users": [100, 10_000],
        "budgets": [0.1, 10.0],
        "tables": {
            "1": {"released 1": [[1.0, 100.0], [100.0, 10_000.0]], "half 1": [[5, None]] * 2}
        },
    }
    table = fields["tables"]["1"]
    for name in (
        "nearly",
        *(f"{end}{n}" for end in ("low", "high") for n in (100, 1000, 10_000, 100_000)),
    ):
        table[f"{name} 1"] = [[None, None], [None, None]]
    plan = PrivacyPlan(epsilon=4, delta=1e-7, max_length=1)
    (length,) = profile_of(fields).forecast(plan, 1000).lengths
    assert length.released == pytest.approx(10 * 10 / plan.noise_stddev, rel=1e-6)
    assert (length.needed, length.widths) == ((None, None), ())


def test_the_profile_forecasts_a_release_of_the_shipped_sample(cli):
    command = ("plan", "--epsilon", 4, "--delta", 1e-7, "--users", 6000, "--epsilons", 4)
    profile, sample = (cli(*command, "--like", like) for like in ("titles", SAMPLE))
    assert re.search("From a table of simulations with [0-9,]+ made-up users", profile.out)
    for ours, theirs in zip(numbers(profile.out), numbers(sample.out), strict=True):
        if int(theirs[2]) >= 100:
            assert int(ours[2]) == pytest.approx(int(theirs[2]), rel=0.25)
