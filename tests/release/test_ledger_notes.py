"""What a ledger says of the privacy unit, the input and the operator; and that it changes nothing."""

import json

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import PrivacyPlan, PrivateNgrams
from beam_dpne.reading.options import InputDescription, ReadOptions
from beam_dpne.release.files import (
    read_ledger,
)
from beam_dpne.release.ledger import input_section, user_sentence
from beam_dpne.release.notes import MAX_CHARACTERS, ReleaseNotes
from beam_dpne.release.publishing import WriteRelease

NOTES = ("--title", "Tickets, spring 2025", "--contact", "privacy@example.com")
UNIT = ("--unit", "a customer")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tickets with two fields that may be the user, counts for `bayesian`, and a key."""
    place = tmp_path_factory.mktemp("notes")
    rows = [
        {"customer_email": f"c{i}@example.com", "ticket_id": f"t{i}", "body": "see you soon"}
        for i in range(300)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (place / "secret_folder").mkdir()
    (place / "secret_folder" / "tickets.jsonl").write_text(lines)
    (place / "key").write_text("0f1e2d3c" * 8)
    (place / "counts.tsv").write_text("see you\t5\nyou soon\t4\n")
    return place


PROGRAMS = {
    "ngrams": ("--epsilon", 8, "--delta", 1e-5, "--max_length", 2, "--max_contributions", 5),
    "set-union": ("--epsilon", 8, "--delta", 1e-5, "--policy", "weighted_gaussian"),
    "bayesian": ("--epsilon", 8, "--delta", 1e-5, "--length", 2),
}


@pytest.fixture
def run(cli, folder, tmp_path):
    """Runs a program on the tickets under the key; returns how it ended and the release's folder."""

    def run(program, *options, field="customer_email", output="release"):
        given = ("--input", folder / "secret_folder" / "tickets.jsonl", "--user_field", field)
        given += ("--text_field", "body", "--run_key_file", folder / "key")
        if program == "bayesian":
            given += ("--public", folder / "counts.tsv")
        place = ("--output", tmp_path / output)
        return cli(program, *given, *place, *PROGRAMS[program], *options), tmp_path / output

    return run


def parts_of(place):
    return {path.name: path.read_bytes() for path in place.iterdir() if path.name != "ledger.json"}


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_operators_words_are_in_the_ledger_and_change_nothing_that_is_released(
    run, program, folder
):
    ended, without_words = run(program, output="without_words")
    assert ended.status == 0, ended.err
    ended, place = run(program, *NOTES, *UNIT)
    assert ended.status == 0, ended.err
    assert parts_of(without_words) == parts_of(place) != {}
    said = read_ledger(str(place))
    assert said["guarantee"]["user"] == 'a customer: each value of the field "customer_email"'
    assert said["input"] == {
        "user_field": "customer_email",
        "text_fields": ["body"],
        "format": "jsonl",
        "details": {},
    }
    assert said["notes"] == {
        "title": "Tickets, spring 2025",
        "contact": "privacy@example.com",
        "unit": "a customer",
    }
    text = (place / "ledger.json").read_text()
    assert not any(name in text for name in ("secret_folder", "tickets.jsonl", str(folder)))
    assert "Title: Tickets, spring 2025\nOne user is a customer.\n" in ended.out


def test_runs_by_two_fields_have_two_ledgers(run):
    said = {}
    for field in ("customer_email", "ticket_id"):
        ended, place = run("ngrams", field=field, output=field)
        assert ended.status == 0, ended.err
        said[field] = read_ledger(str(place))
        assert said[field]["guarantee"]["user"] == f'each value of the field "{field}" is one user'
        assert (said[field]["notes"], "Title" in ended.out) == (ReleaseNotes().to_dict(), False)
    assert said["customer_email"] != said["ticket_id"]


def test_another_title_in_the_same_directory_is_another_ledger_and_refused(run):
    ended, place = run("ngrams", *NOTES)
    assert ended.status == 0, ended.err
    before = (place / "ledger.json").read_bytes()
    ended, _ = run("ngrams", "--title", "Other")
    assert ended.status == 2
    assert "set overwrite" in ended.err
    assert (place / "ledger.json").read_bytes() == before
    ended, _ = run("ngrams", "--title", "Other", "--overwrite")
    assert ended.status == 0, ended.err
    assert read_ledger(str(place))["notes"]["title"] == "Other"


@pytest.mark.parametrize("name", ["title", "contact", "unit"])
@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", "must be one line of 1 to 200"),
        ("  ", "must be one line of 1 to 200"),
        ("two\nlines", "without control characters"),
        ("a\ttab", "without control characters"),
        ("bell\x07", "without control characters"),
        ("next\x85line", "without control characters"),
        ("line\u2028separator", "without control characters"),
        ("turned \u202e round", "without control characters"),
        ("x" * (MAX_CHARACTERS + 1), "one line of 1 to 200"),
    ],
)
def test_words_that_are_not_one_short_line_are_refused(name, value, words):
    with pytest.raises(ValueError, match=words) as found:
        ReleaseNotes(**{name: value})
    assert str(found.value).startswith(f"{name} must be")
    assert found.value.args[0].isprintable()


def test_words_of_any_script_are_taken_as_they_are():
    notes = ReleaseNotes(title="Größe, naïve, 日本語 👩\u200d👧", unit="x" * MAX_CHARACTERS)
    assert notes.title == "Größe, naïve, 日本語 👩\u200d👧"


def test_a_program_refuses_them_before_it_runs(run):
    ended, place = run("ngrams", "--unit", "a\ncustomer")
    assert (ended.status, ended.out) == (2, "")
    assert "unit must be one line" in ended.err
    assert not place.exists()


@pytest.mark.parametrize(
    ("described", "unit", "sentence"),
    [
        (InputDescription(user_field="who"), None, 'each value of the field "who" is one user'),
        (
            InputDescription(user_field="who"),
            "an author",
            'an author: each value of the field "who"',
        ),
        (InputDescription(format="sequences"), None, "each line of a file is one user"),
        (InputDescription(format="sequences"), "a visitor", "a visitor: each line of a file"),
        (None, None, "as the input of the pipeline names them"),
        (None, "a child", "a child: as the input of the pipeline names them"),
    ],
)
def test_one_user_is_said_in_words(described, unit, sentence):
    assert user_sentence(described, ReleaseNotes(unit=unit)) == sentence


def test_what_is_not_there_or_not_known_is_null():
    nothing = {"user_field": None, "text_fields": None, "details": {}}
    assert input_section(None) == {**nothing, "format": "rows"}
    assert input_section(InputDescription(format="sequences")) == {**nothing, "format": "sequences"}


def test_options_of_reading_describe_themselves():
    assert ReadOptions().description == InputDescription(format="auto")
    options = ReadOptions(
        input_format="csv", user_field="a", text_field="b", columns=["x", "a", "b"]
    )
    assert options.description == InputDescription(
        user_field="a", text_fields=("b",), format="csv", details=(("columns", '["x", "a", "b"]'),)
    )


def test_pipelines_may_say_it_too(tmp_path):
    plan = PrivacyPlan(epsilon=10, delta=1e-4, max_length=1)
    described = InputDescription(user_field="account", text_fields=("subject", "body"))
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        documents = pipeline | beam.Create([(f"u{i}", "Good morning") for i in range(200)])
        _ = (
            documents
            | PrivateNgrams(plan=plan, described=described)
            | WriteRelease(
                output=str(tmp_path / "release"),
                output_format="tsv",
                notes=ReleaseNotes(title="Greetings", unit="an account"),
            )
        )
    said = read_ledger(str(tmp_path / "release"))
    assert said["input"] == described.to_dict()
    assert said["guarantee"]["user"] == 'an account: each value of the field "account"'
    assert said["notes"]["title"] == "Greetings"
