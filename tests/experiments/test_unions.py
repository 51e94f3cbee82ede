"""The program that measures set unions: its numbers are those of the releases, and only of those."""

import json
import pathlib
import re

import pytest

from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.set_union.policies import DEFAULT_POLICY, POLICIES
from beam_dpne.set_union.threshold import release_items
from beam_dpne.set_union.transform import run_context
from pipelines.experiments import union_policies
from pipelines.experiments.runner import fixed_key
from pipelines.experiments.unions import main
from tests.conftest import ROOT
from tests.set_union.test_transform import users_in_memory

DATA = ROOT / "pipelines" / "data"
USERS = 120


def documents() -> dict[str, list[list[str]]]:
    """All users have three words, every other user a fourth, and each one that nobody else has."""
    return {
        f"user {u}": [["rye", "bread", "tea", *(["milk"] if u % 2 else []), f"only{u}"]]
        for u in range(USERS)
    }


def input_file(folder) -> pathlib.Path:
    rows = [{"user": user, "text": " ".join(texts[0])} for user, texts in documents().items()]
    path = folder / "lists.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_tables_have_the_items_of_each_policy_and_of_each_number_of_shards(tmp_path, capsys):
    path = input_file(tmp_path)
    options = ["--input", str(path), "--limits", "4", "--shards", "1,3", "--keys", "1"]
    assert main([*options, "--epsilon", "3", "--delta", "1e-3"], DATA) == 0
    shown = capsys.readouterr().out
    assert "not private" in shown.lower()
    assert "only7" not in shown
    for policy in POLICIES:
        (line,) = [line for line in shown.splitlines() if re.search(rf"│ {policy} ", line)]
        assert int(line.split("│")[2].replace(",", "")) == released(policy=policy)
    for shards in (1, 3):
        (line,) = [line for line in shown.splitlines() if re.match(rf"│ +{shards} +│", line)]
        assert int(line.split("│")[2]) == released(shards=shards, max_contributions=100)


def test_only_the_wanted_policies_and_the_default_are_measured(capsys):
    options = ["--policies", "count_laplace", "--limits", "2", "--shards", "1", "--keys", "2"]
    assert main(options, DATA) == 0
    shown = capsys.readouterr().out
    assert "medians of 2 keys" in " ".join(shown.split())
    every = (*POLICIES, *union_policies.POLICIES)
    measured = {policy for policy in every if f"│ {policy} " in shown}
    assert measured == {"count_laplace", DEFAULT_POLICY}


def test_numbers_of_users_are_those_of_the_release_and_compared_with_the_truth(tmp_path, capsys):
    path = input_file(tmp_path)
    options = ["--input", str(path), "--limits", "4", "--policies", "sips", "--keys", "1"]
    assert main([*options, "--counts", "--epsilon", "3", "--delta", "1e-3"], DATA) == 0
    shown = capsys.readouterr().out
    assert "shards" not in shown
    assert "only7" not in shown
    (line,) = [line for line in shown.splitlines() if "│ sips " in line]
    items, loss, covered, _, _, top, narrow = (cell.strip() for cell in line.split("│")[2:-1])
    plan = SetUnionPlan(epsilon=3, delta=1e-3, policy="sips", max_contributions=4)
    run_key = fixed_key(1).bound_to(run_context(plan, "words"))
    found = release_items(users_in_memory(documents(), run_key), plan, run_key)
    assert found.users is not None
    names = found.items.to_pylist()
    have = {"rye": USERS, "bread": USERS, "tea": USERS, "milk": USERS // 2}
    assert set(names) <= set(have)
    inside = [
        low <= have[name] <= high
        for name, (_, low, high) in zip(names, found.users.tolist(), strict=True)
    ]
    assert int(items) == len(names) >= 3
    assert loss == f"{1 - len(names) / released(policy='sips'):.0%}"
    assert covered == f"{sum(inside) / len(inside):.0%}"
    # The 20th most common word is one that a single user has, as all released words are at least.
    assert int(top) == len(names)
    assert narrow == f"{sum(h <= 4 * low for _, low, h in found.users.tolist()) / len(names):.0%}"


def released(**others) -> int:
    """The number of items that a release in memory has, under the program's plan."""
    given = {"epsilon": 3, "delta": 1e-3, "count_share": 0, "max_contributions": 4} | others
    if given.get("policy") == "policy_gaussian":
        given |= {"shards": 1, "max_shard_users": 10**7}
    if "shards" in given:
        given["max_shard_users"] = 10**7
    plan = SetUnionPlan(**given)
    run_key = fixed_key(1).bound_to(run_context(plan, "words"))
    return len(release_items(users_in_memory(documents(), run_key), plan, run_key))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--keys", "0"), "keys must be an integer of at least 1"),
        (("--epsilon", "0"), "epsilon"),
        (("--limits", "0"), "max_contributions"),
        (("--policies", "sips,best"), "policies must be one of"),
        (("--shards", "1,0"), "shards"),
        (("--input", "no/such.jsonl"), "input must name an existing file, got no/such.jsonl."),
        (("--input", "."), "input must name an existing file, got .."),
    ],
)
def test_wrong_options_are_refused(options, message, capsys):
    assert main(list(options), DATA) == 2
    shown = capsys.readouterr()
    assert message in shown.err
