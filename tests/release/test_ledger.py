"""What a ledger says, and that only whole ledgers are read."""

import functools
import json
import math
import pathlib
import platform

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from beam_dpne import LengthReport, PrivacyPlan
from beam_dpne.documents import tokenizers
from beam_dpne.documents.tokenizers import tokenizer_name
from beam_dpne.errors import ReleaseError
from beam_dpne.mechanism.gaussian import gaussian_delta
from beam_dpne.ngrams.decoding import RoundReport
from beam_dpne.ngrams.ledger import reported_contents
from beam_dpne.release.files import ledger_path, listed_parts, read_ledger
from beam_dpne.release.ledger import Run, ledger_bytes, whole_ledger, with_parts
from beam_dpne.release.parts import Part
from beam_dpne.set_union.elements import ItemSet
from beam_dpne.set_union.ledger import set_union_contents
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.set_union.policies import DESCENT_POLICIES, POLICIES

PLAN = PrivacyPlan(
    epsilon=1, delta=1e-7, max_length=2, max_contributions=(10, 20), strategy="one_round"
)
REPORTS = (
    LengthReport(1, PLAN.lengths[0].noise_stddev, PLAN.lengths[0].threshold, 17, None, 0.0),
    LengthReport(2, PLAN.lengths[1].noise_stddev, 41.5, 3, 2**70, 0.17),
)
PART = Part("ngrams-0123456789abcdef-00000-of-00001.jsonl", 20, "ab" * 32, 1234)


def ledger(plan=PLAN, reports=REPORTS, **changes):
    return ledger_in_parts(reported_contents(plan, reports), [PART], plan=plan, **changes)


def ledger_in_parts(contents, parts, rows=None, *, tokenizer="words", run_key_given=False, plan):
    """The ledger of a release in these parts, which have as many rows unless it is said otherwise."""
    run = Run(plan=plan, tokenizer=tokenizer_name(tokenizer), run_key_given=run_key_given)
    count = sum(part.rows for part in parts) if rows is None else rows
    return with_parts(whole_ledger(contents, run, {"count": count, "sha256": "0" * 64}), parts)


def write(folder: pathlib.Path, content):
    data = content if isinstance(content, bytes) else ledger_bytes(content)
    (folder / "ledger.json").write_bytes(data)


def test_each_length_says_what_was_spent_and_what_came_of_it():
    assert ledger()["lengths"] == [
        {
            "length": 1,
            "budget_share": 0.425,
            "max_contributions": 10,
            "noise_stddev": PLAN.lengths[0].noise_stddev,
            "threshold": PLAN.lengths[0].threshold,
            "released": 17,
            "valid": None,
            "expected_spurious_at_most": 0.0,
        },
        {
            "length": 2,
            "budget_share": 0.425,
            "max_contributions": 20,
            "noise_stddev": PLAN.lengths[1].noise_stddev,
            "threshold": 41.5,
            "released": 3,
            "valid": 2**70,
            "expected_spurious_at_most": 0.17,
        },
    ]


def test_the_whole_budget_and_its_split_are_stated():
    said = ledger()
    assert (said["guarantee"]["epsilon"], said["guarantee"]["delta"]) == (1.0, 1e-7)
    assert "one user is added or removed" in said["guarantee"]["neighbours"]
    spent = said["spent"]
    assert spent["gaussian_delta"] + spent["vocabulary_delta"] == pytest.approx(1e-7, rel=3e-3)
    assert spent["composed_noise_stddev"] == PLAN.noise_stddev
    assert spent["numerical_slack"] == PLAN.numerical_slack > 0


def test_the_plan_can_be_read_back_from_the_ledger():
    said = json.loads(ledger_bytes(ledger()))
    assert PrivacyPlan.from_json(json.dumps(said["plan"])) == PLAN


@pytest.mark.parametrize("given", [True, False])
def test_it_says_whether_a_run_key_was_given_and_what_that_means(given):
    said = ledger(run_key_given=given)["run_key"]
    assert said["given"] is given
    assert "two different inputs" in said["warning"]


@pytest.mark.parametrize(
    "channel",
    ["run time", "operator's channel", "run key", "plan", "groups", "several user ids", "AES"],
)
def test_it_says_what_is_not_protected(channel):
    assert any(channel in line for line in ledger()["not_protected"])


def test_versions_are_those_that_run():
    versions = ledger()["versions"]
    assert versions["apache-beam"] == beam.__version__
    assert versions["pyarrow"] == pa.__version__
    assert versions["python"] == platform.python_version()
    assert {"beam_dpne", "numpy", "scipy", "cryptography"} < set(versions)


class Callable:
    def __call__(self, texts):
        return texts


@pytest.mark.parametrize(
    ("tokenizer", "name"),
    [
        ("words", "words"),
        ("package.module:function", "package.module:function"),
        (tokenizers.whitespace, "beam_dpne.documents.tokenizers:whitespace"),
        (Callable(), f"{__name__}:Callable"),
        (functools.partial(tokenizers.words), "functools:partial"),
    ],
)
def test_a_tokenizer_is_named_by_where_it_was_defined(tokenizer, name):
    assert tokenizer_name(tokenizer) == name
    assert ledger(tokenizer=tokenizer)["tokenizer"] == name


def test_equal_ledgers_have_equal_bytes_whatever_the_order_of_the_reports():
    assert ledger_bytes(ledger()) == ledger_bytes(ledger(reports=REPORTS[::-1]))
    assert ledger_bytes(ledger()) != ledger_bytes(ledger(run_key_given=True))


def test_bytes_are_indented_utf8_json():
    data = ledger_bytes(ledger(tokenizer="módulo:função"))
    assert "módulo:função".encode() in data
    assert data.startswith(b'{\n  "schema": "beam_dpne/ledger/2",\n')
    assert data.endswith(b"}\n")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reports": REPORTS[:1]}, "lengths 1 to 2"),
        ({"reports": [*REPORTS, REPORTS[1]]}, "lengths 1 to 2"),
        ({"reports": [REPORTS[0], REPORTS[1]._replace(noise_stddev=1.0)]}, "under this plan"),
        ({"rows": 0}, "as many rows"),
        ({"rows": 40}, "as many rows"),
    ],
)
def test_reports_of_another_run_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        ledger(**changes)


@pytest.mark.parametrize("threshold", [math.nextafter(PLAN.lengths[0].threshold, 0), None])
def test_words_released_below_the_threshold_of_the_plan_are_refused(threshold):
    with pytest.raises(ValueError, match="threshold of the words is below the plan's"):
        ledger(reports=[REPORTS[0]._replace(threshold=threshold), REPORTS[1]])


def test_reading_gives_back_what_was_built(tmp_path):
    write(tmp_path, ledger())
    expected = json.loads(ledger_bytes(ledger()))
    assert read_ledger(str(tmp_path)) == expected
    assert read_ledger(str(tmp_path / "ledger.json")) == expected


def test_the_path_of_a_release_is_that_of_its_ledger_or_directory():
    assert ledger_path("a/b") == ledger_path("a/b/ledger.json") == "a/b/ledger.json"
    assert ledger_path("ledger.json") == "ledger.json"


def without(name):
    return {key: value for key, value in ledger().items() if key != name}


# Releases without numbers of users have no sections on them.
REQUIRED = [name for name in list(ledger())[1:] if name not in ("counts", "counts_columns")]


def with_part(**changes):
    return ledger() | {"parts": [PART._asdict() | changes]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a ledger of beam_dpne"),
        (b"[]", "not a ledger of beam_dpne"),
        (b"[" * 100_000, "not a ledger of beam_dpne"),
        (b"\xff\xfe", "not a ledger of beam_dpne"),
        (b'{"schema": "other/1"}', "not a ledger of beam_dpne"),
        (b'{"schema": ["beam_dpne/ledger/1"]}', "not a ledger of beam_dpne"),
        (ledger_bytes(ledger())[:-20], "not a ledger of beam_dpne"),
        (ledger() | {"schema": "beam_dpne/ledger/3"}, "this version reads"),
        *[(without(name), f"{name!r} is missing") for name in REQUIRED],
        (ledger() | {"parts": []}, "'parts' must list"),
        (with_part(name="../../etc/passwd"), "'parts' must list"),
        (with_part(name="ngrams-0123456789abcdef-00000-of-00001.jsonl\n"), "'parts' must list"),
        (with_part(rows=-1), "'parts' must list"),
        (with_part(rows=True), "'parts' must list"),
        (with_part(sha256="ab"), "'parts' must list"),
        (with_part(bytes=None), "'parts' must list"),
        (with_part(rows=21), "does not state as many rows as were released"),
        (ledger() | {"lengths": [{}]}, "'lengths' must state the number of released n-grams"),
    ],
)
def test_what_is_not_a_whole_ledger_is_refused(tmp_path, content, message):
    write(tmp_path, content)
    with pytest.raises(ReleaseError, match=message):
        read_ledger(str(tmp_path))


def test_without_a_ledger_there_is_no_release(tmp_path):
    with pytest.raises(ReleaseError, match="does not exist: there is no release"):
        read_ledger(str(tmp_path))
    (tmp_path / "ledger.json").mkdir()
    with pytest.raises(ReleaseError, match="cannot be read: Is a directory"):
        read_ledger(str(tmp_path))


def test_listed_parts_of_anything_are_names_of_parts_only():
    assert listed_parts(ledger_bytes(ledger())) == {PART.name}
    assert listed_parts(b'{"parts": [{"name": "notes.txt"}, 3]}') == frozenset()
    whole = json.loads(ledger_bytes(ledger()))
    for name in ("notes.txt", f"../{PART.name}", f"/{PART.name}", f"{PART.name}/..", ""):
        elsewhere = whole | {"parts": [PART._asdict() | {"name": name}]}
        assert listed_parts(ledger_bytes(elsewhere)) == frozenset()
    assert listed_parts(None) == listed_parts(b"{") == frozenset()


# The adaptive strategy


def adaptive_ledger(**changes):
    """Of two lengths, with made-up rounds at length 2."""
    plan = PrivacyPlan(epsilon=1, delta=1e-7, max_length=2, **changes)
    words, bigrams = plan.lengths
    rounds = (
        RoundReport(1, 1.0, 5.25, 0.5, 1e-7, (1.0,)),
        RoundReport(2, 1.5, 6.5, None, 1e-6, (1.0, 1.125)),
    )
    reports = (
        LengthReport(1, words.noise_stddev, words.threshold, 17, None, 0.0, rounds[:1]),
        LengthReport(2, bigrams.noise_stddev, 6.5, 3, 289, 0.17, rounds),
    )
    return json.loads(ledger_bytes(ledger(plan=plan, reports=reports)))


def test_each_round_of_the_adaptive_strategy_says_what_decided():
    said = adaptive_ledger()
    assert said["lengths"][1]["noise_stddev"] == 1.0
    assert said["lengths"][1]["rounds"] == [
        {
            "round": 1,
            "evidence_stddev": 1.0,
            "threshold": 5.25,
            "cut": 0.5,
            "null_probability": 1e-7,
            "loadings": [1.0],
        },
        {
            "round": 2,
            "evidence_stddev": 1.5,
            "threshold": 6.5,
            "cut": None,
            "null_probability": 1e-6,
            "loadings": [1.0, 1.125],
        },
    ]
    told = said["lengths_columns"]["rounds"]
    assert all(name in told for name in said["lengths"][1]["rounds"][0] if name != "round")


def test_numbers_of_users_are_stated_with_their_part_of_the_budget_and_their_noise():
    said = ledger()
    counts, spent = said["counts"], said["spent"]
    assert counts["budget_share"] == PLAN.count_share == 0.15
    assert set(counts) == set(said["counts_columns"])
    assert list(said["columns"])[-4:] == ["users", "users_low", "users_high", "order"]
    assert said["columns"]["order"].startswith("by length, then by falling users, ")
    parts = [length["noise_stddev"] ** -2 for length in said["lengths"]]
    parts += [counts[name] ** -2 for name in ("row_noise_stddev", "group_noise_stddev")]
    assert sum(parts) == pytest.approx(spent["composed_noise_stddev"] ** -2, rel=1e-9)
    shares = [length["budget_share"] for length in said["lengths"]]
    assert sum(shares) + counts["budget_share"] == pytest.approx(1)
    plain = adaptive_ledger(count_share=0)
    assert {"counts", "counts_columns"}.isdisjoint(plain)
    assert list(plain["columns"]) == ["length", "ngram", "score", "order"]
    assert plain["columns"]["order"].startswith("by length, then by falling score, ")


def test_individual_budgets_are_stated_with_their_theorem():
    said = adaptive_ledger()
    budgets = said["guarantee"]["individual_budgets"]
    assert budgets["mu"] == pytest.approx(1 / said["spent"]["composed_noise_stddev"])
    assert "at most count_share * mu^2" in budgets["statement"]
    assert "private state" in budgets["statement"]
    cited = " ".join(budgets["references"])
    assert all(name in cited for name in ("Smith", "Koskela", "Feldman"))


def test_ordinary_composition_needs_no_such_statement():
    assert "individual_budgets" not in adaptive_ledger(user_budgets="even")["guarantee"]
    assert "individual_budgets" not in ledger()["guarantee"]
    assert "rounds" not in ledger()["lengths"][0]


# Set union


def union_plan(policy, **others):
    return SetUnionPlan(epsilon=1, delta=1e-7, policy=policy, **others)


def union_ledger(policy="policy_gaussian", plan=None, items=None, **others):
    plan = plan or union_plan(policy, **others)
    items = items or ItemSet(**union_items(plan))
    part = PART._replace(name=PART.name.replace("ngrams", "items"), rows=2)
    return ledger_in_parts(set_union_contents(plan, [items]), [part], plan=plan, tokenizer="tokens")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_set_union_says_its_mechanism_and_explains_each_number(policy):
    plan, said = union_plan(policy), union_ledger(policy)
    mechanism = said["mechanism"]
    assert said["program"] == "set-union"
    assert (mechanism["policy"], mechanism["released"]) == (policy, 2)
    assert len(mechanism["meaning"]) > 40
    assert SetUnionPlan.from_json(json.dumps(said["plan"])) == plan
    assert said["spent"]["numerical_slack"] > 0
    named = set(mechanism) - {"policy", "max_contributions", "noise", "sensitivity_norm"}
    assert named == set(said["mechanism_columns"])
    told = said["mechanism_columns"]["rounds"]
    for number, decided in enumerate(mechanism["rounds"], start=1):
        assert decided["round"] == number
        assert all(f"{name}:" in told for name in decided if name != "round")
        is_last = number == len(mechanism["rounds"])
        assert (decided["cut"] is None) == (is_last or policy == "sips")
    assert mechanism["sensitivity"] == plan.sensitivity
    assert mechanism["rounding_bound"] == plan.rounding_bound
    assert mechanism["shards"] == plan.shard_count
    last = mechanism["rounds"][-1]
    assert (last["threshold"], last["cutoff"]) == (plan.threshold, plan.cutoff)
    assert last["noise_scale"] == last["noise_stddev"] == plan.noise_stddev


@pytest.mark.parametrize("count_share", [0, 0.15, 0.6])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_noise_of_a_ledger_is_enough_for_its_sensitivity_and_budget(policy, count_share):
    """As a reviewer would check it, from the ledger alone."""
    said = union_ledger(policy, count_share=count_share)
    mechanism, epsilon = said["mechanism"], said["guarantee"]["epsilon"]
    composed = mechanism["composed_noise_scale"]
    of_counts = 0.0
    if count_share:
        noise = said["counts"]
        of_counts = noise["row_noise_stddev"] ** -2 + noise["group_noise_stddev"] ** -2
    delta = gaussian_delta(epsilon=epsilon, noise_stddev=composed / mechanism["sensitivity"])
    assert delta <= said["spent"]["gaussian_delta"] < said["guarantee"]["delta"]
    inverse_squares = sum(own["noise_scale"] ** -2 for own in mechanism["rounds"])
    spent = inverse_squares + of_counts / mechanism["sensitivity"] ** 2
    assert composed**-2 * (1 - 1e-9) <= spent <= composed**-2 * (1 + 1e-12)
    assert ("one Gaussian mechanism" in said["guarantee"].get("composition", "")) == (
        count_share > 0
    )


@pytest.mark.parametrize("policy", ["sips", "screened_gaussian"])
def test_a_set_union_says_the_same_of_counts_as_of_its_plan(policy):
    counted, without = union_plan(policy), union_plan(policy, count_share=0)
    said = union_ledger(plan=counted)
    assert said["counts"]["budget_share"] == counted.count_share
    assert said["counts"]["row_noise_stddev"] == counted.count_noise.row_stddev
    assert set(said["counts"]) == set(said["counts_columns"])
    assert list(said["columns"]) == ["item", "score", "users", "users_low", "users_high", "order"]
    assert said["columns"]["order"].startswith("by falling users, then by falling score, ")
    plain = union_ledger(plan=without)
    assert "counts" not in plain
    assert list(plain["columns"]) == ["item", "score", "order"]
    assert plain["columns"]["order"].startswith("by falling score, ")
    for plan, other in ((counted, without), (without, counted)):
        items = ItemSet(**{**union_items(other), "report": plan.report()})
        with pytest.raises(ValueError, match="numbers of users if, and only if, its count_share"):
            union_ledger(plan=plan, items=items)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_promised_number_of_users_is_stated_where_the_guarantee_needs_it(policy):
    promise = union_ledger(policy)["guarantee"].get("promise")
    assert (promise is not None) == (policy in DESCENT_POLICIES)
    if promise:
        assert promise["max_users"] == union_plan(policy).max_users
        assert "never checked" in promise["meaning"]


def test_a_set_union_protects_no_more_than_n_grams_do():
    assert union_ledger()["not_protected"] == ledger()["not_protected"]
    assert union_ledger()["guarantee"]["statement"] == ledger()["guarantee"]["statement"]


def test_items_of_another_plan_are_refused():
    for other in (
        union_plan("policy_gaussian", max_contributions=7),
        union_plan("policy_gaussian", count_share=0.2),
        union_plan("sips"),
    ):
        with pytest.raises(ValueError, match="must be of a run under this plan"):
            union_ledger(plan=other, items=ItemSet(**union_items(union_plan("policy_gaussian"))))


def union_items(plan):
    users = np.array([[9, 7, 12], [5, 0, 11]]) if plan.count_share else None
    scores = np.ones(2)
    return {
        "items": pa.array(["a", "b"]),
        "scores": scores,
        "users": users,
        "report": plan.report(),
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"program": "bigrams"}, "'program' is missing or not one of ngrams, set-union"),
        ({"program": "ngrams"}, "'lengths_columns' is missing"),
        ({"mechanism": {}}, "'mechanism' must state the number of released items"),
        ({"mechanism": {"released": 3}}, "does not state as many rows as were released"),
        ({"parts": [PART._asdict() | {"rows": 2}]}, "'parts' must list"),
    ],
)
def test_what_is_not_a_whole_ledger_of_a_set_union_is_refused(tmp_path, changes, message):
    write(tmp_path, union_ledger())
    assert read_ledger(str(tmp_path)) == json.loads(ledger_bytes(union_ledger()))
    write(tmp_path, union_ledger() | changes)
    with pytest.raises(ReleaseError, match=message):
        read_ledger(str(tmp_path))
