"""`beam-dpne check`: it reads what a run reads, says what may be wrong, and leaves nothing behind."""

import json
import sys

import pytest

from tests.reading.files import CANARY, write

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


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({"user": None, "text": "good"}, "user_field='user', which is empty or null in its first"),
        ({"user": "u", "text": None}, "text_field='text', which is empty or null in its first"),
        ({"who": "u", "text": "good"}, "user_field='user', which its first records do not have"),
    ],
)
def test_a_field_without_values_is_not_said_to_be_absent(check, record, told):
    ended = check([record] * 9)
    assert ended.status == 2
    assert told in ended.err


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
        (
            [*notes(2000), {"user": "nan", "text": "you"}],
            (),
            "1 of the ids may stand for nobody",
        ),
        (
            [*notes(2000), {"user": "[deleted]", "text": "you"}],
            (),
            "1 of the ids may stand for nobody, as nan, guest and [deleted] do",
        ),
        (
            [*notes(2000), *({"user": each, "text": "you"} for each in ("Guest", "unknown", "-"))],
            (),
            "3 of the ids may stand for nobody",
        ),
        (notes(2000) + [{"user": "0", "text": "see you"}] * 50, (), "1 of the ids may stand"),
        (notes(2000) + [{"user": "0", "text": "see you"}] * 2, (), "Nothing looks wrong."),
        (notes(2000, each=1), ("--record_is_user",), "Nothing looks wrong."),
        (notes(2000, text="4711 7 9x 8"), (), "80% of the words are not letters alone"),
        (notes(2000, text="4711 7 9x 8"), ("--tokenizer", "item"), "Nothing looks wrong."),
        (
            notes(1000) + [{"user": 1.5}] * 500,
            (),
            "How they are read is said by --user_field, --text_field.",
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


def test_utf8_that_is_read_by_another_encoding_is_told(cli, tmp_path):
    for text, named, is_told in (("café", "utf-8", True), ("café", "cp1252", False)):
        rows = (f"u{n},{text} {n % 50}\n" for n in range(2400))
        path = tmp_path / "a.csv"
        path.write_bytes("".join(("user,text\n", *rows)).encode(named))
        ended = cli("check", "ngrams", "--input", path, "--encoding", "cp1252")
        assert ended.status == 0
        assert ("The first texts are of UTF-8" in ended.err) == is_told


@pytest.mark.parametrize(
    ("name", "row", "options", "is_told"),
    [
        ("a.csv", 'u{n}, "see you {n}"', (), True),
        ("a.csv", ' "u{n}",see you {n}', (), True),
        ("a.csv", 'u{n};\t"see you {n}"', ("--delimiter", "semicolon"), True),
        ("a.tsv", 'u{n}\t "see you {n}"', ("--quoting", "quoted"), True),
        ("a.tsv", 'u{n}\t "see you {n}"', (), False),
        ("a.csv", 'u{n},"see, you {n}"', (), False),
        ("a.csv", 'u{n}, see "you" {n}', (), False),
        ("a.jsonl", '{{"user": "u{n}", "text": " \\"see you {n}\\""}}', (), False),
    ],
)
def test_quotes_of_csv_behind_a_blank_are_told_without_data(
    cli, tmp_path, name, row, options, is_told
):
    header = {"a.jsonl": "", "a.tsv": "user\ttext\n"}.get(name, "user,text\n")
    if "semicolon" in options:
        header = "user;text\n"
    rows = [row.format(n=n % 40) for n in range(80)]
    path = write(tmp_path / name, header + "\n".join(rows) + "\n")
    ended = cli("check", "ngrams", "--input", path, *options)
    assert ended.status == 0, ended.err
    assert ("have a blank before an opening quote" in ended.err) == is_told
    assert "see" not in ended.out + ended.err


def test_nothing_looks_wrong_only_where_nothing_else_was_told(check):
    """What is told of the first texts, or of a large delta, stands on stderr."""
    html = notes(2000, text="<b>see</b> you")
    for records, options in ((html, ()), (notes(2000), ("--epsilon", 4, "--delta", 5e-3))):
        ended = check(records, *options)
        assert ended.status == 0
        assert ended.err
        assert "Nothing looks wrong" not in ended.out
    assert "Nothing looks wrong" not in check(html, "--quiet").out


def test_a_header_alone_is_told_by_check_and_is_no_reason_to_refuse_a_run(cli, tmp_path):
    """Who adds the one user that is missing must not see a refusal go away."""
    path = write(tmp_path / "a.csv", "user,text\n")
    told = cli("check", "ngrams", "--input", path).err
    assert "--input must have records, got none" in told
    assert "A run of them releases nothing, and spends its budget all the same" in told
    ended = cli("ngrams", "--input", path, *BUDGET, "--output", tmp_path / "out")
    assert ended.status == 0
    assert "the input has no records" in ended.err


@pytest.mark.parametrize("command", [("check", "ngrams"), ("ngrams",)])
@pytest.mark.parametrize(
    ("name", "header", "options", "is_told"),
    [
        ("a.csv", "user,text\n", ("--columns", "user,text"), True),
        ("a.csv", " User,text\n", ("--columns", "user,text"), True),
        ("a.csv", "who,text\n", ("--columns", "user,text"), False),
        ("a.csv", "user,text\nu1,see you\nuser,text\n", (), True),
        ("a.tsv", "a\tb\ttext\n", ("--columns", "a,b,text", "--user_field", "a,b"), True),
        ("a.csv", "user,text\n", ("--columns", "user,text", "--record_is_user"), False),
    ],
)
def test_a_header_line_that_is_read_as_a_record_is_told(
    cli, tmp_path, command, name, header, options, is_told
):
    sign = "," if name == "a.csv" else "\t"
    ids = sign.join(["ann"] * header.split("\n")[0].count(sign))
    path = write(tmp_path / name, f"{header}{ids}{sign}see you\n")
    ended = cli(*command, "--input", path, *options, *BUDGET, "--output", tmp_path / "out")
    assert ended.status == 0, ended.err
    told = ended.out if command[0] == "check" else ended.err
    assert ("The name of the user field is a user" in told) == is_told


def test_a_condition_that_holds_for_no_record_is_told_as_a_possible_reason(cli, tmp_path):
    path = write(tmp_path / "a.csv", "user,text\nann,see you\n")
    where = ("--where", "user=nobody", "--output", tmp_path / "out")
    ended = cli("ngrams", "--input", path, *BUDGET, *where)
    assert ended.status == 0, ended.err
    assert "no records, or --where holds for none" in ended.err


def csv(tmp_path, name, ids, header="user,text"):
    rows = [f"{each},see you soon\n{each},dear friend\n" for each in ids]
    return write(tmp_path / name, "\n".join([header, *rows]))


OTHER = "other spellings of an id, by capital letters"
UNSEEN = "another id but for blanks at the ends"


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ("{}", "{}.0", OTHER),
        ("{}", "00{}", OTHER),
        ("{:08x}-0000-4000-8000-000000000000", "{:08X}000040008000000000000000", OTHER),
        ("{:08x}-0000-4000-8000-000000000000", "{{{:08x}-0000-4000-8000-000000000000}}", OTHER),
        (
            "{:08x}-0000-4000-8000-000000000000",
            "urn:uuid:{:08x}-0000-4000-8000-000000000000",
            OTHER,
        ),
        ("a{}@x.org", "<a{}@x.org>", OTHER),
        ("a{}@x.org", "mailto:A{}@x.org", OTHER),
        ("a{}@x.org", "Ann <a{}@x.org>", OTHER),
        ("Ann{}@x", "ann{}@x ", OTHER),
        ("{}", "{}\u00a0", UNSEEN),
        ("é{}", "e\u0301{}", UNSEEN),
        ("{}", "\u200e{}", UNSEEN),
    ],
)
def test_ids_that_are_spellings_of_one_id_are_counted(cli, tmp_path, one, other, said):
    paths = [
        csv(tmp_path, name, [spelling.format(number) for number in range(1200)])
        for name, spelling in (("a.csv", one), ("b.csv", other))
    ]
    inputs = [each for path in paths for each in ("--input", path)]
    told = cli("check", "ngrams", *inputs).out
    assert f"1,200 of the ids are {said}" in told
    shown = cli("check", "ngrams", *inputs, "--normalize_users").out
    assert ("1,200 of the ids" in shown) == (said == OTHER)
    assert "Nothing looks wrong." in cli("check", "ngrams", *inputs[:2]).out


def test_the_list_of_rejected_records_is_written_also_where_none_can_be_used(cli, tmp_path):
    for records in (notes(5), []):
        data = "\n".join([CANARY, *map(json.dumps, records)])
        path = write(tmp_path / "notes.jsonl", data)
        cli("check", "ngrams", "--input", path, "--rejects", tmp_path / "rejects")
        (listed,) = (tmp_path / "rejects").iterdir()
        (reject,) = map(json.loads, listed.read_text().splitlines())
        assert (reject["reason"], reject["position"]) == ("malformed JSON", 0)
        listed.unlink()


def test_a_check_names_the_fields_of_a_file_that_lacks_one_and_a_run_does_not(cli, tmp_path):
    path = csv(tmp_path, "a.csv", range(3), header=f"customer,{CANARY}")
    given = ("--input", path, *BUDGET, "--output", tmp_path / "out")
    run = cli("ngrams", *given)
    check = cli("check", "ngrams", *given)
    assert (run.status, check.status) == (2, 2)
    assert CANARY not in run.err
    assert f"It has the fields customer, {CANARY}." in check.err
    assert "as secret as the data" in check.err


def test_the_last_part_of_a_path_is_no_hint(check):
    """It may be the number of a message."""
    records = [{"id_str": str(n), "user": {"id_str": "7"}, "text": "a"} for n in range(5)]
    said = check(records, "--user_field", "person.id_str").err
    assert "--user_field must name a field" in said
    assert "Did you mean id_str" not in said


@pytest.mark.parametrize("command", [("check", "ngrams"), ("ngrams",)])
@pytest.mark.parametrize(
    ("users", "again", "is_told"), [(300, 0, True), (295, 5, False), (90, 0, False)]
)
def test_a_field_that_numbers_records_is_told_by_check_and_run(
    cli, tmp_path, command, users, again, is_told
):
    records = [json.dumps(each) for each in notes(users, each=1) + notes(again, each=1)]
    path = write(tmp_path / "notes.jsonl", "\n".join(records))
    ended = cli(*command, "--input", path, *BUDGET, "--output", tmp_path / "out")
    assert ended.status == 0, ended.err
    # A run has seen its first records, and `check` all of them.
    told = ended.out if command[0] == "check" else ended.err
    is_expected = is_told or (command[0] == "check" and not again)
    assert ("have a user of their own" in told) == is_expected


OWN = """
import pyarrow as pa
version = "1"
def beside(texts):
    return pa.array([[str(len(texts))]] * len(texts), pa.list_(pa.string()))
"""


@pytest.mark.parametrize("command", [("check", "ngrams"), ("ngrams",)])
def test_a_tokenizer_that_looks_at_other_texts_is_refused(cli, tmp_path, monkeypatch, command):
    (tmp_path / "own_beside.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    path = csv(tmp_path, "a.csv", range(30))
    given = ("--input", path, *BUDGET, "--output", tmp_path / "out")
    ended = cli(*command, *given, "--tokenizer", "own_beside:beside")
    sys.modules.pop("own_beside", None)
    assert ended.status == 2
    assert "must give a text the same tokens alone" in ended.err
    assert not (tmp_path / "out").exists()


def test_words_are_looked_at_without_their_groups(check):
    records = [{**each, "land": n % 2} for n, each in enumerate(notes(2001))]
    ended = check(records, "--group_field", "land")
    assert "Nothing looks wrong." in ended.out
    assert " 16,008 5 " in " ".join(ended.out.replace("│", " ").split())


@pytest.fixture
def places(cli, tmp_path):
    """Paths of an input, of a release, a budget that is spent, and lists that cannot be used."""
    csv(tmp_path, "a.csv", range(30))
    write(tmp_path / "key", "no key")
    write(tmp_path / "known.csv", "word,count\na,1\n")
    (tmp_path / "full").mkdir()
    write(tmp_path / "full" / "notes.txt", "x")
    budget = ("--population", "people", "--epsilon", 1, "--delta", 1e-6)
    assert cli("account", "--budget", tmp_path / "budget", "--create", *budget).status == 0
    return tmp_path


@pytest.mark.parametrize(
    ("program", "options"),
    [
        ("ngrams", ("--output", "full")),
        ("ngrams", ("--output", "out", "--budget", "budget")),
        ("ngrams", ("--output", "out", "--run_key_file", "key")),
        ("ngrams", ("--output", "out", "--run_key_file", "out/key")),
        ("ngrams", ("--output", "out", "--rejects", "out/rejects")),
        ("ngrams", ("--output", "out", "--known", "known.csv")),
        ("set-union", ("--output", "out", "--known", "a.csv")),
        ("ngrams", ("--output", "out", "--stop_list", "a.csv")),
        ("bayesian", ("--output", "out", "--public", "a.csv", "--length", 2)),
        ("count", ("--output", "out", "--phrases", "a.csv")),
    ],
)
def test_a_check_refuses_what_the_run_refuses_in_the_same_words(
    cli, places, program, options, monkeypatch
):
    monkeypatch.chdir(places)
    given = (program, "--input", "a.csv", *BUDGET, *options)
    before = sorted(places.rglob("*"))
    check = cli("check", *given)
    run = cli(*given)
    assert (check.status, run.status) == (2, 2), (check, run)
    assert check.err.splitlines()[-1] == run.err.splitlines()[-1]
    assert sorted(places.rglob("*")) == before


@pytest.mark.parametrize("given", [("bayesian", "--public"), ("count", "--phrases")])
def test_a_check_without_a_budget_reads_public_lists(cli, places, given):
    program, option = given
    ended = cli("check", program, "--input", places / "a.csv", option, places / "known.csv")
    assert ended.status == 2
    assert f"{option} must be a table with a column" in ended.err


def test_a_check_notes_no_run_in_a_budget_that_allows_it(cli, places, monkeypatch):
    monkeypatch.chdir(places)
    given = ("--input", "a.csv", "--epsilon", 0.5, "--delta", 1e-7, "--output", "out")
    for _ in range(3):
        ended = cli("check", "ngrams", *given, "--budget", "budget")
        assert ended.status == 0, ended.err
    assert [each.name for each in (places / "budget").iterdir()] == ["budget.json"]


@pytest.mark.parametrize("how", [("--runner", "FnApiRunner"), ("--workers", 2)])
def test_escaped_quotes_anywhere_fail_the_run_before_it_publishes(cli, tmp_path, how):
    """Beyond the beginnings of files, which are read before a run."""
    write(tmp_path / "a.csv", "user,text\n")
    path = csv(tmp_path, "b.csv", range(5000))
    with path.open("a") as file:
        file.write('p,"said \\"yes\nfake,' + CANARY + '"\n')
    given = ("--input", tmp_path, *BUDGET, *how, "--output", tmp_path / "out")
    ended = cli("ngrams", *given)
    assert ended.status != 0
    assert "quote after a backslash" in ended.err
    assert CANARY not in ended.err + ended.out
    assert not (tmp_path / "out").exists()


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
