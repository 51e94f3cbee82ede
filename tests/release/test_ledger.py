"""The ledger of a release: what it says under each plan, and what is not a whole ledger."""

import dataclasses
import functools
import json
import platform

import apache_beam as beam
import pytest

from beam_dpne import (
    NgramsPlan,
    PrivateNgrams,
    ProbabilitiesPlan,
    ReleaseNotes,
    SetUnionPlan,
    TextRules,
)
from beam_dpne.documents import tokenizers
from beam_dpne.documents.tokenizers import tokenizer_name
from beam_dpne.errors import ReleaseError
from beam_dpne.mechanism.gaussian import gaussian_delta
from beam_dpne.ngrams.ledger import reported_contents
from beam_dpne.reading.options import InputDescription, ReadOptions
from beam_dpne.release.ledger import input_section, ledger_bytes, whole_ledger
from beam_dpne.release.places import ledger_path
from beam_dpne.release.reading import read_ledger, released_in
from beam_dpne.set_union.plan import POLICIES
from tests.support.releases import ledger_of, length_of, run_of

BUDGET = {"epsilon": 1, "delta": 1e-7}
ONE_ROUND = NgramsPlan(**BUDGET, max_length=2, max_contributions=(10, 20), strategy="one_round")
ADAPTIVE = NgramsPlan(**BUDGET, max_length=2)
UNION = SetUnionPlan(**BUDGET)
PLANS = [ONE_ROUND, ADAPTIVE, UNION, ProbabilitiesPlan(**BUDGET)]


def reports_of(plan):
    words = plan.lengths[0]
    return [
        length_of(plan, 1, words.threshold, 17),
        length_of(plan, 2, 41.5, 3, valid=2**70, bound=0.17),
    ]


def reported(plan, reports=None, **facts):
    contents = reported_contents(plan, reports or reports_of(plan))
    run = run_of(plan, **facts)
    return json.loads(ledger_bytes(whole_ledger(contents, run, 20)))


@pytest.mark.parametrize("plan", PLANS)
def test_a_ledger_says_its_budget_its_plan_and_its_limits_and_explains_its_numbers(plan):
    said = ledger_of(plan, run_key_given=True)
    assert (said["guarantee"]["epsilon"], said["guarantee"]["delta"]) == (1.0, 1e-7)
    assert "one user is added or removed" in said["guarantee"]["neighbours"]
    assert type(plan).from_json(json.dumps(said["plan"])) == plan
    assert said["run_key"]["given"] is True
    assert said["spent"]["numerical_slack"] == plan.numerical_slack > 0
    assert said["spent"]["far_tails"] == plan.far_tails
    explained = {"plan": [], **said["meanings"]}
    for section in ("spent", "lengths", "mechanism", "counts"):
        if section in said:
            numbers = said[section][0] if section == "lengths" else said[section]
            assert set(numbers) - {"meaning"} == set(explained[section])
    for channel in ("run time", "operator's channel", "run key", "several user ids", "AES"):
        assert any(channel in line for line in said["not_protected"])
    assert said["versions"]["apache-beam"] == beam.__version__
    assert said["versions"]["python"] == platform.python_version()


def test_each_length_says_what_was_spent_and_what_came_of_it():
    assert reported(ONE_ROUND)["lengths"][1] == {
        "length": 2,
        "budget_share": 0.425,
        "max_contributions": 20,
        "noise_stddev": ONE_ROUND.lengths[1].noise_stddev,
        "threshold": 41.5,
        "released": 3,
        "valid": 2**70,
        "expected_spurious_at_most": 0.17,
    }
    said = reported(ADAPTIVE)
    assert said["lengths"][1]["rounds"] == [
        {
            "round": 1,
            "evidence_stddev": 1.0,
            "threshold": 5.5,
            "cut": 0.5,
            "null_probability": 1e-7,
            "loadings": [1.0],
        }
    ]
    told = said["meanings"]["lengths"]["rounds"]
    assert all(name in told for name in said["lengths"][1]["rounds"][0] if name != "round")


def test_the_budget_of_n_grams_adds_up():
    said = reported(ONE_ROUND)
    spent, counts = said["spent"], said["counts"]
    assert spent["gaussian_delta"] + spent["vocabulary_delta"] <= 1e-7
    parts = [length["noise_stddev"] ** -2 for length in said["lengths"]]
    parts.append(counts["row_noise_stddev"] ** -2)
    assert sum(parts) == pytest.approx(spent["composed_noise_stddev"] ** -2, rel=1e-9)
    shares = [length["budget_share"] for length in said["lengths"]]
    assert sum(shares) + counts["budget_share"] == pytest.approx(1)


@pytest.mark.parametrize("count_share", [0, 0.15])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_noise_of_a_set_union_is_enough_for_its_sensitivity_and_budget(policy, count_share):
    """As a reviewer would check it, from the ledger alone."""
    said = ledger_of(SetUnionPlan(**BUDGET, policy=policy, count_share=count_share))
    mechanism, composed = said["mechanism"], said["mechanism"]["composed_noise_scale"]
    of_counts = 0.0
    if count_share:
        of_counts = said["counts"]["row_noise_stddev"] ** -2
    delta = gaussian_delta(epsilon=1, noise_stddev=composed / mechanism["sensitivity"])
    assert delta <= said["spent"]["gaussian_delta"] < 1e-7
    inverse_squares = sum(own["noise_stddev"] ** -2 for own in mechanism["rounds"])
    spent = inverse_squares + of_counts / mechanism["sensitivity"] ** 2
    assert composed**-2 * (1 - 1e-9) <= spent <= composed**-2 * (1 + 1e-12)
    assert ("composition" in said["guarantee"]) == (count_share > 0)
    has_cutoff = mechanism["cutoff_margin"] is not None
    assert ("promise" in said["guarantee"]) == has_cutoff
    assert has_cutoff == (policy in ("policy_gaussian", "screened_gaussian"))


@pytest.mark.parametrize(
    ("plan", "row"), [(ONE_ROUND, "length, ngram"), (UNION, "item")], ids=["ngrams", "items"]
)
def test_columns_are_explained_with_and_without_numbers_of_users(plan, row):
    plain = dataclasses.replace(plan, count_share=0)
    counted, without = ledger_of(plan), ledger_of(plain)
    start = [*row.split(", "), "score"]
    assert list(without["columns"]) == [*start, "order"]
    assert list(counted["columns"]) == [*start, "users", "users_low", "users_high", "order"]
    assert "falling users" in counted["columns"]["order"]
    assert counted["counts"]["budget_share"] == plan.count_share
    assert "counts" not in without


def test_individual_budgets_are_stated_with_their_theorem_where_they_are_used():
    budgets = ledger_of(ADAPTIVE)["guarantee"]["individual_budgets"]
    assert budgets["mu"] == pytest.approx(1 / ADAPTIVE.noise_stddev)
    cited = " ".join(budgets["references"])
    assert all(name in cited for name in ("Smith", "Koskela", "Feldman"))
    assert "individual_budgets" not in ledger_of(ONE_ROUND)["guarantee"]


class Callable:
    def __call__(self, texts):
        return texts


@pytest.mark.parametrize(
    ("tokenizer", "name"),
    [
        ("words", "words"),
        (tokenizers.whitespace, "whitespace"),
        (Callable(), f"{__name__}:Callable"),
        (functools.partial(tokenizers.words), "functools:partial"),
    ],
)
def test_a_tokenizer_has_its_own_name_or_that_of_where_it_was_defined(tokenizer, name):
    assert tokenizer_name(tokenizer) == name


@pytest.mark.parametrize(
    ("tokenizer", "version"),
    [
        ("words", "words 3, Unicode"),
        (TextRules(tokenizer="unicode_words", mask=("emails",)), "unicode_words 3, regex"),
        (Callable(), None),
    ],
)
def test_a_ledger_names_the_version_of_a_tokenizer_of_this_package(tokenizer, version):
    rows = beam.Pipeline() | beam.Create([("ann", "to be")])
    run = (rows | PrivateNgrams(plan=ADAPTIVE, tokenizer=tokenizer)).run
    stated = reported(ADAPTIVE, tokenizer_version=run.tokenizer_version)["versions"]
    assert stated.get("tokenizer", "None").startswith(str(version))


def test_equal_ledgers_have_equal_bytes_whatever_the_order_of_the_reports():
    assert reported(ONE_ROUND) == reported(ONE_ROUND, reports_of(ONE_ROUND)[::-1])


# Reading back


@pytest.mark.parametrize("plan", PLANS)
def test_reading_gives_back_what_was_built(tmp_path, plan):
    (tmp_path / "ledger.json").write_text(json.dumps(ledger_of(plan)))
    assert read_ledger(str(tmp_path)) == read_ledger(f"{tmp_path}/ledger.json") == ledger_of(plan)
    assert ledger_path("a/b") == ledger_path("a/b/ledger.json") == "a/b/ledger.json"


WHOLE = ledger_of(ONE_ROUND)
PART = WHOLE["parts"][0]
OPTIONAL = ("content", "counts", "program", "schema")


def changed(section, **fields):
    return WHOLE | {section: WHOLE[section] | fields}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *[
            (each, "not a ledger of beam_dpne")
            for each in (b"", b"[]", b"[" * 100_000, b"\xff\xfe")
        ],
        (b'{"schema": "other/1"}', "not a ledger of beam_dpne"),
        (json.dumps(WHOLE).encode()[:-20], "not a ledger of beam_dpne"),
        (WHOLE | {"schema": "beam_dpne/ledger/2"}, "this version reads"),
        *[
            ({key: value for key, value in WHOLE.items() if key != name}, "damaged")
            for name in WHOLE
            if name not in OPTIONAL
        ],
        (WHOLE | {"program": "bigrams"}, "damaged"),
        (WHOLE | {"program": "set-union"}, "damaged"),
        *[(changed("guarantee", epsilon=each), "damaged") for each in (0, -1, True, "1", None)],
        *[(changed("guarantee", delta=each), "damaged") for each in (0, -1e-7, 1, True)],
        *[
            (WHOLE | {"parts": [PART | change]}, "damaged")
            for change in (
                *({"name": "../../etc/passwd"}, {"name": PART["name"] + "\n"}, {"rows": -1}),
                *({"rows": True}, {"sha256": "ab"}, {"bytes": None}, {"canary": 1}),
            )
        ],
        (WHOLE | {"parts": []}, "damaged"),
        (WHOLE | {"lengths": [{}]}, "damaged"),
    ],
)
def test_what_is_not_a_whole_ledger_is_refused(tmp_path, content, message):
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    (tmp_path / "ledger.json").write_bytes(data)
    with pytest.raises(ReleaseError, match=message):
        read_ledger(str(tmp_path))


def test_without_a_ledger_there_is_no_release(tmp_path):
    with pytest.raises(ReleaseError, match="does not exist: there is no release"):
        read_ledger(str(tmp_path))
    (tmp_path / "ledger.json").mkdir()
    with pytest.raises(ReleaseError, match="cannot be read: Is a directory"):
        read_ledger(str(tmp_path))


# The operator's words


@pytest.mark.parametrize("name", ["title", "contact", "unit"])
@pytest.mark.parametrize(
    "value",
    [
        *("", "  ", "two\nlines", "a\ttab", "next\x85line", "line\u2028separator"),
        *("turned \u202e round", "x" * 201),
    ],
)
def test_words_that_are_not_one_short_line_are_refused(name, value):
    with pytest.raises(ValueError, match=f"^`{name}` must be"):
        ReleaseNotes(**{name: value})


@pytest.mark.parametrize(
    ("described", "unit", "sentence"),
    [
        (InputDescription(user_field="who"), None, 'each value of the field "who" is one user'),
        (InputDescription(user_field="who"), "an ant", 'an ant: each value of the field "who"'),
        (InputDescription(format="sequences"), None, "each line of a file is one user"),
        (
            InputDescription(user_field=("tenant", "who", "month")),
            None,
            'each combination of the values of the fields "tenant", "who" and "month" is one user',
        ),
        (
            ReadOptions(user_field=["who"], normalize_users=True).description,
            None,
            'each value of the field "who", composed and without format characters and blanks at its '
            "ends, is one user",
        ),
        (ReadOptions(record_is_user=True).description, None, "each record of a file is one user"),
        (InputDescription(format="sequences"), "a visitor", "a visitor: each line of a file"),
        (None, None, "as the input of the pipeline names them"),
    ],
)
def test_one_user_is_said_in_words(described, unit, sentence):
    run = run_of(ADAPTIVE, described=described)
    contents = reported_contents(ADAPTIVE, reports_of(ADAPTIVE))
    said = whole_ledger(contents, run, 20, ReleaseNotes(unit=unit))
    assert said.guarantee.user == sentence


def test_what_is_not_there_or_not_known_is_null():
    nothing = {"user_field": None, "text_fields": None, "details": {}}
    assert input_section(None) == {**nothing, "format": "rows"}
    assert input_section(InputDescription(format="sequences")) == {**nothing, "format": "sequences"}


PROGRAMS = {
    "ngrams": ("--epsilon", 8, "--delta", 1e-5, "--max_length", 2),
    "set-union": ("--epsilon", 8, "--delta", 1e-5, "--policy", "weighted_gaussian"),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_operators_words_are_in_the_ledger_and_change_nothing_that_is_released(
    cli, program, tmp_path
):
    rows = [{"customer": f"c{i}", "body": "see you soon"} for i in range(300)]
    (tmp_path / "hidden_place").mkdir()
    source = tmp_path / "hidden_place" / "tickets.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "key").write_text("0f1e2d3c" * 8)
    given = ("--input", source, "--user_field", "customer", "--text_field", "body")
    given += ("--run_key_file", tmp_path / "key", *PROGRAMS[program])
    words = ("--title", "Tickets", "--contact", "a@example.com", "--unit", "a customer")
    parts = []
    for name, more in (("with", words), ("without", ())):
        ended = cli(program, *given, "--output", tmp_path / name, *more)
        assert ended.status == 0, ended.err
        files = {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        assert b"hidden_place" not in files.pop("ledger.json")
        parts.append(files)
    assert parts[0] == parts[1] != {}
    said = read_ledger(str(tmp_path / "with"))
    assert said["guarantee"]["user"] == 'a customer: each value of the field "customer"'
    assert said["input"] == {
        "user_field": "customer",
        "text_fields": ["body"],
        "format": "jsonl",
        "details": {},
    }
    assert said["notes"] == {"title": "Tickets", "contact": "a@example.com", "unit": "a customer"}


@pytest.mark.parametrize(
    ("length", "is_one"),
    [
        # Another kind of processor gives another last digit.
        ({"rounds": [{"threshold": 5.5, "null_probability": 1e-7 * (1 + 2**-52)}]}, True),
        ({"expected_spurious_at_most": 0.17 * (1 + 2**-52)}, True),
        ({"rounds": [{"threshold": 5.5 + 2**-32, "null_probability": 1e-7}]}, False),
        ({"rounds": []}, False),
        ({"valid": 71}, False),
    ],
)
def test_a_release_is_the_same_on_another_kind_of_processor(length, is_one):
    rounds = [{"threshold": 5.5, "null_probability": 1e-7}]
    own = {"valid": 70, "rounds": rounds, "expected_spurious_at_most": 0.17}
    ledger = {"content": "a", "lengths": [own], "mechanism": {"stddev": 1.0}}
    again = ledger | {"lengths": [own | length], "versions": {"numpy": "3"}}
    assert (released_in(again) == released_in(ledger)) == is_one
    assert released_in(again | {"content": "b"}) != released_in(ledger)
