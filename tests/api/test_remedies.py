"""What an error of a call tells the reader to write is Python, with its names and its quotes."""

import ast
import re

import pyarrow as pa
import pytest

import beam_dpne
from beam_dpne.accounting.series import create_series
from beam_dpne.api.keywords import CALLS
from beam_dpne.api.messages import with_keywords
from beam_dpne.errors import BudgetError
from tests.conftest import ROOT

GIVEN = {"user": "author", "text": "body", "epsilon": 4, "delta": 1e-6, "progress": False}
TABLE = pa.table({"author": [1, 2, 3] * 9, "body": ["good morning"] * 27})
# Words for the operators of engines and of commands stand in these alone.
FACES = ("cli", "airflow", "yaml", "engines")


def written(message):
    """The Python in a message: calls, and keywords with a value that is not the one that was given."""
    calls = re.findall(r"beam_dpne\.\w+\(.*?\)(?=[.,:; ]|$)", message)
    keywords = re.findall(r"(?<!got )`(\w+=[^`]+)`", message)
    return calls + [f"call({keyword})" for keyword in keywords]


def messages():
    """The texts of the package in which parameters or commands may stand, with x for each value."""
    for path in sorted((ROOT / "beam_dpne").rglob("*.py")):
        if path.relative_to(ROOT / "beam_dpne").parts[0] in FACES:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        inner = {
            part
            for each in ast.walk(tree)
            if isinstance(each, ast.JoinedStr)
            for part in each.values
        }
        documentation = {each.value for each in ast.walk(tree) if isinstance(each, ast.Expr)}
        for each in ast.walk(tree):
            if each in inner or each in documentation:
                continue
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                yield each.value
            if isinstance(each, ast.JoinedStr):
                yield "".join(
                    getattr(part, "value", "") if isinstance(part, ast.Constant) else "x"
                    for part in each.values
                )


def test_every_remedy_of_the_package_is_python_in_a_call():
    remedies = [remedy for message in messages() for remedy in written(with_keywords(message))]
    for remedy in remedies:
        ast.parse(remedy, mode="eval")
    assert 'call(encoding="cp1252")' in remedies
    assert 'call(records="chats.list[].messages")' in remedies
    assert 'beam_dpne.account("RELEASE", budget="FOLDER", add=True)' in remedies


def test_a_command_with_a_call_is_not_told_by_a_call():
    for message in map(with_keywords, messages()):
        assert not re.search(rf"beam-dpne ({'|'.join(CALLS)}) --", message), message


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (
            "Take --tokenizer item for it, or --mask urls.",
            'Take tokenizer="item" for it, or mask="urls".',
        ),
        (
            "--normalize_users makes one, give --same_users.",
            "normalize_users=True makes one, give same_users=True.",
        ),
        ("leave --where out, and see --like user_field", "leave where out, and see like user"),
        ("set `user_field=a,b` and `workers=1`", 'set `user=["a", "b"]` and `workers=1`'),
        ("set `normalize_users=true`", "set `normalize_users=True`"),
        (
            "set `where=role=user`, got `where='a b'`",
            "set `where=\"role=user\"`, got `where='a b'`",
        ),
        (
            "Do: beam-dpne account --budget 'my b' --remove NOTE.",
            'Do: beam_dpne.account(budget="my b", remove="NOTE").',
        ),
        ("beam-dpne plan shows more", "beam_dpne.plan shows more"),
        ("a release of beam-dpne ngrams", "a release of beam-dpne ngrams"),
    ],
)
def test_messages_of_commands_become_those_of_calls(message, told):
    assert with_keywords(message) == told


def test_the_remedy_of_a_budget_that_is_not_there_makes_it(tmp_path):
    given = {**GIVEN, "budget": str(tmp_path / "shop")}
    with pytest.raises(BudgetError, match="must be a folder with budget") as caught:
        beam_dpne.release_ngrams(TABLE, **given)
    (remedy,) = written(str(caught.value))
    names = {"beam_dpne": beam_dpne, "E": 5, "D": 1e-5}
    assert eval(remedy, names).budget.path == str(tmp_path / "shop")
    beam_dpne.release_ngrams(TABLE, **given)


def test_a_series_is_made_in_a_shell_and_the_message_says_so(tmp_path):
    folders = {"series": str(tmp_path / "s"), "participants": str(tmp_path / "p")}
    given = {**GIVEN, **folders, "epsilon": None, "delta": None}
    with pytest.raises(
        BudgetError, match=r"series create .* \(in a shell, since no call does it\)\.$"
    ):
        beam_dpne.release_ngrams(TABLE, **given)
    create_series(*folders.values(), releases=2, releases_per_user=1, epsilon=4, delta=1e-5)
    with pytest.raises(ValueError, match="with series, which keeps its own") as caught:
        beam_dpne.release_ngrams(TABLE, **given, budget=str(tmp_path))
    assert written(str(caught.value)) == ['beam_dpne.account("RELEASE", budget="FOLDER", add=True)']


def test_the_note_of_a_run_that_failed_is_removed_by_what_is_told(tmp_path, capfd):
    budget = str(tmp_path / "the shop")
    beam_dpne.account(
        budget=str(tmp_path / "shop"), create=True, population="all", epsilon=9, delta=1e-5
    )
    (tmp_path / "shop").rename(budget)

    def words(texts):
        raise KeyError

    words.version = "1"
    with pytest.raises(RuntimeError):
        beam_dpne.release_ngrams(
            pa.concat_tables([TABLE] * 999), **GIVEN, tokenizer=words, budget=budget
        )
    (remedy,) = written(" ".join(capfd.readouterr().err.split()))
    assert eval(remedy, {"beam_dpne": beam_dpne}).runs == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"create": True},
            "`population`, `epsilon` and `delta` must be given as well, got `budget` and",
        ),
        ({"create": True, "population": "all", "delta": 1e-5}, "`epsilon` must be given as well"),
        ({"population": "all"}, "`create`, `epsilon` and `delta` must be given as well"),
        ({"add": True}, "releases must be given as well, got `budget` and `add`"),
        (
            {"settle": "a", "remove": "b"},
            "account takes one of: releases; releases and `delta`; `budget`;",
        ),
        ({"create": False}, "must be a folder with budget"),
    ],
)
def test_what_an_account_lacks_is_named(tmp_path, given, said):
    with pytest.raises(ValueError, match=said):
        beam_dpne.account(budget=str(tmp_path / "shop"), **given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"user": {"cid": 1}}, r'no data, got dict\. Give the name of a column: user="NAME"\.'),
        ({"group": {"cid"}}, r'no data, got set\. Give the name of a column: group="NAME"\.'),
        ({"epsilon": {"a": 1}}, r"no data, got dict\. It is a number > 0\."),
        ({"progress": "no"}, "`progress` must be True or False, got `progress='no'`"),
        ({"progress": 0}, "`progress` must be True or False, got `progress=0`"),
        (
            {"mask": "nope"},
            "`mask` must be some of urls, emails, mentions, numbers, html, got `mask=nope`",
        ),
        ({"mask": ["url"]}, r"one of urls, .*, got a list of 1\. Did you mean urls\?"),
        ({"mask": ["ann@x.org", "bob@x.org"]}, r"one of urls, .*, got a list of 2\.$"),
        ({"mask": []}, "`mask` must be a list, each member one of urls, .* got a list of 0"),
        (
            {"epsilon": [4]},
            r"a number > 0, got a list of 1\. Give the value itself, without a list\.",
        ),
        ({"normalize_users": [True]}, r"True or False, got a list of 1\. Give the value itself"),
        ({"user": 1}, r"got `user=1`\. Put numbers in quotes\."),
        ({"user": ["author", 1]}, r"got `user=author,1`\. Put numbers in quotes\."),
        ({"strategy": 1}, r"must be one of adaptive, one_round, got `strategy=1`\.$"),
        ({"title": 2026}, r"Put numbers in quotes\."),
        ({"series": 1, "participants": "./p"}, r"`series` must be a path, got `series=1`\.$"),
        ({"budget": 7}, r"got `budget=7`\.$"),
        ({"plan": ["p"]}, "`plan` must be a plan, or the path of a file, got a list of 1"),
        ({"budget": "shop"}, r"a text of 4 characters, .* make the folder first"),
    ],
)
def test_a_value_of_a_wrong_type_has_a_remedy(given, said):
    with pytest.raises(ValueError, match=said):
        beam_dpne.release_ngrams(TABLE, **{**GIVEN, **given})


def test_one_mask_is_given_by_its_name_and_a_new_budget_by_one_word(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    release = beam_dpne.release_ngrams(TABLE, **GIVEN, mask="urls")
    assert release.text_rules["mask"] == ["urls"]
    beam_dpne.account(budget="shop", create=True, population="all", epsilon=9, delta=1e-5)
    assert beam_dpne.account(budget="shop").runs == []
    with pytest.raises(ValueError, match="make the folder first") as caught:
        beam_dpne.account(budget="my pin", create=True, population="all", epsilon=9, delta=1e-5)
    assert "pin" not in str(caught.value)


@pytest.mark.parametrize(
    "message",
    [
        "`budget` must be one, got beam-dpne plan --b x\\ y",
        "got ./text_field.csv: there is no such file",
        "/data/beam-dpne plan/ledger.json is damaged",
        "the file has 'user_field' and \"text_field\"",
    ],
)
def test_what_a_user_has_named_stays_as_it_is(message):
    assert with_keywords(message) == message
