"""`beam-dpne check`: it reads what a run reads, says what may be wrong, and leaves nothing behind."""

import json

import pytest

BUDGET = ("--epsilon", 4, "--delta", 1e-6)
WORDS = ("see", "you", "soon", "dear", "friend")


@pytest.fixture
def check(cli, tmp_path):
    """Checks records of made-up users, with options of a run; returns how it ended."""

    def run(records, *options, program="ngrams"):
        path = tmp_path / "notes.jsonl"
        path.write_text("\n".join(map(json.dumps, records)))
        before = {each: each.read_bytes() for each in tmp_path.iterdir()}
        ended = cli("check", program, "--input", path, *options)
        assert {each: each.read_bytes() for each in tmp_path.iterdir()} == before
        return ended

    return run


def notes(users, each=2, text="see you soon"):
    return [
        {"user": f"u{n % users}", "text": f"{text} {WORDS[n % 5]}"} for n in range(users * each)
    ]


def test_it_counts_what_a_run_reads_with_its_options_and_marks_the_numbers(check):
    records = [{"who": each["user"], "text": each["text"]} for each in notes(1500)]
    options = ("--user_field", "who", *BUDGET, "--output", "x")
    ended = check([*records, {"text": "no user"}], *options)
    assert ended.status == 0, ended.err
    assert ended.out.startswith("NOT PRIVATE: as secret as the data.")
    flat = " ".join(ended.out.replace("│", " ").split())
    assert (
        "Files of jsonl: 1; 0.1 MB. Fields: user_field who, text_field text. Tokenizer: words."
        in flat
    )
    assert " 1,500 3,000 12,000 5 1 " in flat
    assert "rejected, which --rejects DIR lists: user is null or missing." in flat


def test_a_text_of_which_something_is_left_out_is_one_document(check):
    records = notes(100, text="call 555 or 556, 557 or 558") + [{"text": "no user"}] * 15
    ended = check(records, "--mask", "numbers")
    assert " 100 200 " in " ".join(ended.out.replace("│", " ").split())
    assert "6.98% of the records are rejected, so that a run fails" in ended.out


@pytest.mark.parametrize(
    ("records", "options", "told"),
    [
        (notes(2000), (), "Nothing looks wrong."),
        (notes(20), (), "The users are few; beam-dpne plan shows how many"),
        (notes(2000, each=1), (), "All records have a user of their own."),
        (notes(2000) + notes(1, 1000), (), "One user has 20% of the documents."),
        (notes(2000, text="4711 7 9x 8"), (), "80% of the words are not letters alone"),
        (notes(2000, text="4711 7 9x 8"), ("--tokenizer", "item"), "Nothing looks wrong."),
        (
            notes(1000) + [{"user": 1.5}] * 500,
            (),
            "20.00% of the records are rejected, so that a run",
        ),
    ],
)
def test_it_says_what_may_be_wrong_and_names_no_user_and_no_word(check, records, options, told):
    ended = check(records, *options)
    assert ended.status == 0, ended.err
    assert told in ended.out
    assert "u0" not in ended.out + ended.err
    words = {word for each in records for word in each.get("text", "").split() if len(word) > 3}
    assert not [word for word in words if word in ended.out + ended.err]


def test_items_are_called_items(check):
    ended = check(notes(5), "--item_separator", " ", program="set-union")
    assert "distinct items" in ended.out
    assert "words" not in ended.out


def test_what_a_run_refuses_is_refused(check, cli):
    assert "Did you mean user?" in check(notes(5), "--user_field", "users").err
    assert "--max_length must be" in check(notes(5), *BUDGET, "--max_length", 0).err
    assert "there is no option --epsylon" in check(notes(5), "--epsylon", 1).err
    assert "--input must be given" in cli("check", "set-union").err
    nobody = check([{"user": "", "text": "see you"}] * 3).err
    assert "records were rejected, because of: user is empty." in nobody
    assert "PROGRAM must be one of ngrams" in cli("check", "ngram", "--input", "x").err
