"""What changed between two releases: every state, its interval, and what cannot be compared."""

import collections
import csv
import json
import pathlib
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

from beam_dpne import ReleaseNotes
from beam_dpne.errors import UsageError
from beam_dpne.evaluation.corpus import corpus_of, index_corpus
from beam_dpne.evaluation.judging import rows_of_table
from beam_dpne.reading.options import InputDescription
from beam_dpne.release.changes import (
    GONE,
    called,
    change_counts,
    compare_releases,
    ratios,
    told_changes,
)
from beam_dpne.release.reading import read_release
from tests.conftest import _run_cli
from tests.support import releases

_ENDS = ("users", "users_low", "users_high")
TOKENS = ["a", "b", "c", "d", "e", "f", "g", "h"]


@pytest.fixture(scope="module")
def months(tmp_path_factory):
    """Two months of made-up users: in the second b is rarer, c is more common, g and h are new."""
    folder = tmp_path_factory.mktemp("months")
    rng = np.random.default_rng(3)
    (folder / "key").write_text("0f1e2d3c" * 8)
    chances = {
        "old": [0.9, 0.8, 0.3, 0.5, 0.5, 0.05, 0.0, 0.0],
        "new": [0.9, 0.2, 0.6, 0.5, 0.0, 0.0, 0.5, 0.05],
    }
    for name, of_words in chances.items():
        has = rng.random((2000, 8)) < of_words
        rows = [
            {
                "user": f"{name}{user}",
                "text": [x for x, own in zip(TOKENS, row, strict=True) if own],
            }
            for user, row in enumerate(has)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        given = ("--input", folder / f"{name}.jsonl", "--tokenizer", "tokens", "--max_length", 2)
        given += ("--run_key_file", folder / "key")
        output = ("--output", folder / name, "--epsilon", 4, "--delta", 1e-6)
        assert _run_cli("ngrams", *given, *output).status == 0
        without = (*given, "--output", folder / f"{name} without", *output[2:], "--count_share", 0)
        assert _run_cli("ngrams", *without).status == 0
    return folder


def changes_of(folder, *names):
    old, new = (read_release(str(folder / name)) for name in names)
    return compare_releases(old, new)


def test_each_ngram_is_new_gone_risen_fallen_or_unchanged(months):
    table = changes_of(months, "old", "new")
    rows = {row["ngram"]: row for row in table.to_pylist()}
    assert {name: rows[name]["change"] for name in TOKENS if name in rows} == {
        **{"a": "unchanged", "b": "fallen", "c": "risen", "d": "unchanged"},
        **{"e": "gone", "f": "gone", "g": "new", "h": "new"},
    }
    assert rows["a b"]["change"] == "fallen"
    assert rows["d g"]["change"] == "new"
    for row in rows.values():
        is_in_both = row["change"] not in ("new", "gone")
        assert (row["ratio"] is not None) == is_in_both
        assert (row["old_users"] is None) == (row["change"] == "new")
        assert (row["new_users"] is None) == (row["change"] == "gone")
        if is_in_both:
            assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
    # The numbers are those of the two releases, and every row of both is here once.
    for side in ("old", "new"):
        released = read_release(str(months / side)).table().select(["length", "ngram", "users"])
        named = [(x["length"], x["ngram"], x[f"{side}_users"]) for x in rows.values()]
        held = {row for row in named if row[2] is not None}
        assert held == {tuple(row.values()) for row in released.to_pylist()}
    counts = change_counts(table)
    assert [row["length"] for row in counts] == [1, 2]
    assert sum(sum(row.values()) - row["length"] for row in counts) == len(table) == len(rows)


def test_the_other_way_round_new_is_gone_and_risen_is_fallen(months):
    there = {row["ngram"]: row for row in changes_of(months, "old", "new").to_pylist()}
    back = {row["ngram"]: row for row in changes_of(months, "new", "old").to_pylist()}
    other = {"new": "gone", "gone": "new", "risen": "fallen", "fallen": "risen"}
    for name, row in there.items():
        assert back[name]["change"] == other.get(row["change"], row["change"])
        if row["ratio"]:
            assert back[name]["ratio_low"] * row["ratio_high"] == pytest.approx(1, abs=0.01)


def made_up_pairs(rng, change):
    """Returns numbers of users before and after, with 95 % intervals; their logarithms are normal."""
    spread = np.array([0.1, 0.4])
    middles = np.log([1000.0, 1000.0])[:, None] + np.stack((0 * change, change))
    logs = middles + spread[:, None] * rng.normal(size=(2, change.size))
    ends = 1.959964 * spread
    return [np.exp(np.stack((x, x - e, x + e), axis=1)) for x, e in zip(logs, ends, strict=True)]


def test_intervals_of_ratios_hold_as_often_as_those_of_numbers():
    """For 20,000 pairs."""
    old, new = made_up_pairs(np.random.default_rng(0), np.full(20_000, np.log(3)))
    found = ratios(old, new, np.ones(20_000))
    held = np.mean((found[:, 1] <= 3) & (found[:, 2] >= 3))
    assert abs(held - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 20_000)


@pytest.mark.parametrize("changed", [0, 100, 2000])
def test_few_called_changes_are_wrong_whether_few_or_many_rows_have_changed(changed):
    """Of 4,000 rows; by intervals alone one in twenty of those that have not changed is called.

    If nothing has changed, one row or more is called in at most .3 of all comparisons.
    """
    rng = np.random.default_rng(1)
    number_called, wrong, any_called = [], [], 0
    for _ in range(40):
        change = np.zeros(4000)
        change[:changed] = rng.choice([-1.6, 1.6], changed)
        found = ratios(*made_up_pairs(rng, change), np.ones(4000))
        is_called = called(found)
        assert not is_called[(found[:, 1] <= 1) & (found[:, 2] >= 1)].any()
        number_called.append(is_called.sum())
        wrong.append((is_called & (np.log(found[:, 0]) * change <= 0)).sum())
        any_called += is_called.any()
    if changed:
        assert sum(wrong) < 0.35 * sum(number_called)
        assert sum(number_called) - sum(wrong) > 40 * 0.8 * changed
    else:
        # P(Binomial(40, .3) > 23) < .0001.
        assert any_called <= 23


def parts_of_the_whole_reach(rows):
    """Returns how wide the upper half of each ratio's interval is, over that of `ratios`."""
    parts = []
    for row in rows:
        old, new = ([row[f"{side}_{name}"] for name in _ENDS] for side in ("old", "new"))
        (whole,) = ratios(np.array([old]), np.array([new]), np.ones(1))
        parts.append(np.log(row["ratio_high"] / row["ratio"]) / np.log(whole[2] / whole[0]))
    return np.array(parts)


def test_ratios_of_estimated_numbers_are_narrower_but_for_the_first_rows(tmp_path):
    users = {str(number): 1000.0 - number for number in range(100)}
    for name in ("old", "new"):
        releases.items(tmp_path / name, users, count_share=0.1)
    rows = changes_of(tmp_path, "old", "new").to_pylist()
    rows.sort(key=lambda row: -row["new_users"] - row["old_users"])
    parts = parts_of_the_whole_reach(rows)
    assert parts[:60] == pytest.approx(1, abs=0.01)
    assert parts[60:] == pytest.approx(0.8, abs=0.01)


def test_ratios_of_numbers_of_a_list_keep_their_whole_intervals(cli, months, tmp_path):
    listed = ["ngram", *TOKENS, *map(str, range(80))]
    (tmp_path / "list.csv").write_text("\n".join(listed) + "\n")
    for name in ("old", "new"):
        given = ("--input", months / f"{name}.jsonl", "--tokenizer", "tokens", "--epsilon", 4)
        given += ("--phrases", tmp_path / "list.csv", "--delta", 1e-6, "--quiet")
        given += ("--run_key_file", months / "key")
        assert _run_cli("count", *given, "--output", tmp_path / name).status == 0
    rows = changes_of(tmp_path, "old", "new").to_pylist()
    assert len(rows) == 88
    # Noise far below zero leaves both numbers at zero, and a ratio without an interval.
    wide = [row for row in rows if row["old_users_high"] or row["new_users_high"]]
    assert len(wide) > 80
    assert parts_of_the_whole_reach(wide).min() > 0.95
    said = " ".join(cli("compare", tmp_path / "old", tmp_path / "new").out.split())
    assert "those that only one of the two lists has" in said
    assert GONE[:40] not in said


def test_ratios_of_a_release_contain_the_true_ones(months):
    truth = []
    for side in ("old", "new"):
        text = (months / f"{side}.jsonl").read_text(encoding="utf-8")
        lines = map(json.loads, text.splitlines())
        index = index_corpus(corpus_of([(row["user"], row["text"]) for row in lines]), 2)
        release = read_release(str(months / side)).table()
        judged = rows_of_table(index, release)
        users = np.concatenate([judged[length].truth for length in (1, 2)])
        truth.append(dict(zip(release["ngram"].to_pylist(), users.tolist(), strict=True)))
    rows = [row for row in changes_of(months, "old", "new").to_pylist() if row["ratio"]]
    true = [truth[1][row["ngram"]] / truth[0][row["ngram"]] for row in rows]
    within = [x["ratio_low"] <= y <= x["ratio_high"] for x, y in zip(rows, true, strict=True)]
    assert len(rows) >= 8
    assert np.mean(within) > 0.75


def test_without_numbers_of_users_there_is_no_ratio(months):
    table = changes_of(months, "old without", "new")
    assert table.schema.names == ["length", "ngram", "change"]
    assert set(table["change"].to_pylist()) == {"new", "gone", "both"}


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("change", [pathlib.Path.unlink, lambda part: part.write_text("")])
def test_an_error_says_which_of_two_releases_is_damaged(cli, months, tmp_path, place, change):
    shutil.copytree(months / "old", tmp_path / "damaged")
    for part in (tmp_path / "damaged").glob("ngrams-*"):
        change(part)
    releases = [months / "new"]
    releases.insert(place, tmp_path / "damaged")
    ended = cli("compare", *releases)
    assert ended.status == 2
    assert f"The release {tmp_path}/damaged is " in ended.err


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_the_command_prints_and_writes_the_changes(cli, months, tmp_path, kind):
    path = tmp_path / f"changes.{kind}"
    ended = cli("compare", months / "old", months / "new", "--output", path)
    assert ended.status == 0, ended.err
    assert GONE[:40] in ended.out
    assert "fallen" in ended.out
    expected = changes_of(months, "old", "new")
    if kind == "parquet":
        assert pq.read_table(path).equals(expected)
    elif kind == "jsonl":
        assert [json.loads(line) for line in path.read_text().splitlines()] == expected.to_pylist()
    else:
        rows = list(csv.DictReader(path.read_text().splitlines()))
        assert [row["change"] for row in rows] == expected["change"].to_pylist()
        assert rows[0].keys() == set(expected.schema.names)
    again = cli("compare", months / "old", months / "new", "--output", path)
    assert "--overwrite" in again.err
    within = cli("compare", months / "old", months / "new", "--output", months / f"new/a.{kind}")
    assert (within.status, within.out) == (2, "")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("old",), "must be two"),
        (("old", "new", "old"), "must be two"),
        (("old", "new", "--output", "a.txt"), "must end in .jsonl, .csv, .parquet"),
        (("old", "new", "--output", "new/a.csv"), "must be outside every release"),
        (("old", "old/a.csv"), "does not exist"),
        (("old", "words"), "must have the same tokenizer, got tokens"),
        (("old", "items"), "must have the same program, got ngrams"),
    ],
)
def test_what_cannot_be_compared_is_refused(cli, months, given, sentence):
    if not (months / "words").exists():
        releases.words(months / "words", ["x"], tokenizer="words")
        releases.items(months / "items", {"a": 9.0})
    places = [str(months / x) if not x.startswith("--") and x != "a.txt" else x for x in given]
    ended = cli("compare", *places)
    assert ended.status == 2
    assert sentence in ended.err


def test_a_damaged_release_is_not_compared(cli, months, tmp_path):
    for path in (months / "new").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    part = next(tmp_path.glob("*.jsonl"))
    part.write_bytes(part.read_bytes().replace(b'"a"', b'"z"', 1))
    assert "another SHA-256" in cli("compare", months / "old", tmp_path).err


def test_items_are_compared_as_well(tmp_path):
    for name, items in (("old", {"a\tb": 50.0, "c": 40.0}), ("new", {"a\tb": 500.0, "d": 9.0})):
        releases.items(tmp_path / name, items, count_share=0.1)
    table = changes_of(tmp_path, "old", "new")
    assert dict(zip(table["item"].to_pylist(), table["change"].to_pylist(), strict=True)) == {
        **{"a\tb": "risen", "c": "gone", "d": "new"}
    }


def test_groups_with_another_field_are_not_compared(tmp_path):
    for name in ("country", "month"):
        releases.words(tmp_path / name, ["x"], described=InputDescription(group_field=name))
    with pytest.raises(UsageError, match=r"same group field, got country in .* and month in"):
        changes_of(tmp_path, "country", "month")


def test_another_version_of_the_tokenizer_is_named(cli, tmp_path):
    for name, version in (("old", "words 2, Unicode 14.0.0"), ("new", "words 3, Unicode 14.0.0")):
        releases.words(tmp_path / name, ["x"], tokenizer_version=version)
    said = " ".join(cli("compare", tmp_path / "old", tmp_path / "new").out.split())
    assert 'version of the tokenizer is "words 2, Unicode 14.0.0" in the old release' in said


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (("user", "text", "a customer"), ("user", "text", "A  customer"), []),
        (("user", "text", None), ("user", "text", None), []),
        (("user", "text", None), ("user", "text", "a customer"), ["unit is not stated in the old"]),
        (("user", "a", None), ("user", "b", None), ['text field is "a" in the old']),
        (("user", "a", None), ("home", "a", None), ['user field is "user" in the old']),
        (("user", "a", None), ("home", "b", None), ['user field is "user"', 'text field is "a"']),
        (("user", "a", "a customer"), ("user", "a", "a household"), None),
    ],
)
def test_unlike_units_are_refused_and_unlike_fields_are_named(cli, tmp_path, old, new, told):
    for name, (user, text, unit) in (("old", old), ("new", new)):
        described = InputDescription(user_field=user, text_fields=(text,))
        notes = ReleaseNotes(unit=unit)
        releases.words(tmp_path / name, ["x"], described=described, notes=notes)
    ended = cli("compare", tmp_path / "old", tmp_path / "new")
    page = ("report", tmp_path / "new", "--since", tmp_path / "old", "--output")
    if told is None:
        for refused in (ended, cli(*page, tmp_path / "page.md")):
            assert refused.status == 2
            assert "same kind of user, got the unit 'a customer' in" in refused.err
        return
    assert cli(*page, tmp_path / "page.md").status == 0
    assert cli(*page, tmp_path / "public.md", "--public").status == 0
    for text, expected in (
        (" ".join(ended.out.split()), told),
        ((tmp_path / "page.md").read_text(), told),
        ((tmp_path / "public.md").read_text(), [each for each in told if "field" not in each]),
    ):
        assert text.count("so what changed may be due to that") == len(expected)
        assert all(each in text for each in expected)


@pytest.mark.parametrize("name", ["page.html", "page.md"])
def test_a_report_has_a_section_on_what_changed(cli, months, tmp_path, name):
    given = ("report", months / "new", "--output", tmp_path / name)
    assert cli(*given).status == 0
    assert "What changed" not in (tmp_path / name).read_text()
    assert cli(*given, "--since", months / "old", "--overwrite").status == 0
    text = (tmp_path / name).read_text()
    assert GONE[:40] in text
    assert read_release(str(months / "old")).ledger_sha256 in text
    first = text.index("New in the release: ")
    assert text.index("What was released") < first < text.rindex("What is not protected")


@pytest.mark.parametrize(
    ("old", "numbers"),
    [
        (
            "old",
            {
                "Risen": {"users before", "users now", "ratio (95 % interval)"},
                "Fallen": {"users before", "users now", "ratio (95 % interval)"},
                "New in the release": {"users now"},
                "Gone from the release": {"users before"},
            },
        ),
        ("old without", {"New in the release": set(), "Gone from the release": set()}),
    ],
)
def test_readers_see_each_change_with_the_numbers_that_it_has(months, old, numbers):
    changes = changes_of(months, old, "new")
    tables, _ = told_changes(changes, 1, [], program="ngrams")
    counts = collections.Counter(changes["change"].to_pylist())
    for change, columns in numbers.items():
        (row,) = tables.pop(f"{change}: 1 of {counts[change.split()[0].lower()]}")
        assert {*row} == {"n-gram", *columns}
    assert [*tables] == ["What changed"]
