"""Known items of a set union: one law for members that users have and that nobody has.

Keys come from a fixed family, so these tests always give the same result. Had they been drawn at
random, each p-value would fail a correct program with probability `FALSE_FAILURE`.
"""

import dataclasses
import hashlib
import json
import math
import random

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from beam_dpne import KnownNgrams, PrivateSetUnion, RunKey, SetUnionPlan, yaml
from beam_dpne.documents.run_keys import key_context
from beam_dpne.elements import encoding
from beam_dpne.elements.arrays import hash_words
from beam_dpne.lists.known import KnownItems
from beam_dpne.release.reading import read_ledger, read_release
from beam_dpne.set_union import decisions
from beam_dpne.set_union.elements import ItemSet, known_sums, merge_sums
from beam_dpne.set_union.in_memory import release_items
from beam_dpne.set_union.plan import DESCENT_POLICIES, POLICIES, ROUNDS
from beam_dpne.steps import SetStore
from tests.oracle.set_union import private_set_union
from tests.set_union.test_sensitivity import LOUD, corpora
from tests.set_union.test_transform import (
    KEY,
    as_batches,
    as_dict,
    documents_of,
    plan_of,
    run_in_memory,
    users_in,
    users_in_memory,
)
from tests.set_union.users import FALSE_FAILURE, ONE, many_items, round_histogram, sums_of, users_of
from tests.support.pipelines import keep

RUNS = 20_000
UNHELD = [f"unheld {number}" for number in range(3000)]
# Of the items of `documents_of`, some that users have; and others that nobody has.
LISTED = frozenset({"a", "é", "", "a b", *(f"item {i}" for i in range(3, 60, 3)), *UNHELD[:40]})


def known_of(items) -> KnownItems:
    return KnownNgrams.of([(item,) for item in sorted(items)]).items


def in_memory(documents, plan: SetUnionPlan, known: KnownItems | None, key=KEY) -> ItemSet:
    bound = key.bound_to(key_context(plan, "tokens", public=known.sha256 if known else ""))
    return release_items(users_in_memory(documents, bound), plan, bound, known)


def on_beam(rows, plan: SetUnionPlan, known: KnownItems | None, **others) -> ItemSet:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        transform = PrivateSetUnion(plan=plan, run_key=KEY, known=known, **others)
        kept = keep((pipeline | beam.Create(rows, reshuffle=False) | transform).released)
    return kept[0]


def key_of(number: int) -> RunKey:
    return RunKey(hashlib.sha256(f"known items {number}".encode()).digest())


@pytest.mark.parametrize("policy", POLICIES)
def test_beam_memory_and_pseudocode_release_the_same_of_a_list(policy, monkeypatch, tmp_path):
    documents, plan, known = documents_of(0), plan_of(policy), known_of(LISTED)
    expected = private_set_union(documents, plan, KEY, LISTED, known.sha256)
    assert expected.keys() & LISTED
    assert expected.keys() - LISTED
    found = in_memory(documents, plan, known)
    assert as_dict(found) == expected
    monkeypatch.setattr(encoding, "MAX_ELEMENT_BYTES", 300)
    rows = as_batches(documents, random.Random(0))
    store = SetStore(folder=str(tmp_path), limit=10)
    again = on_beam(rows, plan, known, partitions=7, store=store)
    assert as_dict(again) == expected
    assert users_in(again) == users_in(found) is not None
    assert again.known_thresholds.tolist() == found.known_thresholds.tolist()
    assert list(tmp_path.glob("KnownItems-*"))


@given(st.sampled_from(POLICIES), st.integers(0, 2**32), st.sampled_from([0.5, 5.0, 16.0]))
@settings(max_examples=12, deadline=None)
def test_memory_releases_what_the_pseudocode_releases_of_a_list(policy, seed, epsilon):
    documents, plan = documents_of(seed, 30), plan_of(policy, epsilon=epsilon)
    items = random.Random(seed).sample(sorted(LISTED), seed % len(LISTED))
    known = known_of(items)
    expected = private_set_union(documents, plan, KEY, frozenset(items), known.sha256 * bool(items))
    assert as_dict(in_memory(documents, plan, known)) == expected


def test_an_empty_list_changes_no_byte_and_the_key_is_bound_to_any_other():
    documents, plan = documents_of(1), plan_of("sips")
    rows = as_batches(documents, random.Random(0))
    plain, empty, one, other = (
        on_beam(rows, plan, known_of(items) if items is not None else None)
        for items in (None, [], ["nobody's"], ["nobody else's"])
    )
    assert as_dict(plain) == as_dict(empty) == run_in_memory(documents, plan)
    assert plain.known_thresholds is empty.known_thresholds is None
    first, second = as_dict(one), as_dict(other)
    assert first.keys() & second.keys()
    assert all(first[item] != second[item] for item in first.keys() & second.keys())


def test_the_items_of_a_list_are_its_distinct_words():
    lists = [[("b",), ("a", "b"), ("b",)], [("a",), ("c\x1fd",)]]
    joined = KnownNgrams.joined([KnownNgrams.of(each) for each in lists])
    assert sorted(joined.items.words.to_pylist()) == ["a", "b", "d"]
    assert joined.items.section["lists"] == joined.section["lists"]


@pytest.mark.parametrize("policy", POLICIES)
@given(corpora, st.sets(st.sampled_from("abcdefghijxyz")), st.integers(1, 9), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_a_user_moves_known_and_other_items_by_the_sensitivity_and_no_other_row(
    policy, corpus, listed, limit, seed
):
    """Given the past: the rows of known items are the same ones, in exact integers."""
    options = {"cutoff_margin": 0.1} if policy in DESCENT_POLICIES else {}
    plan = SetUnionPlan(policy=policy, max_contributions=limit, **LOUD, **options)
    key, unit = RunKey(seed.to_bytes(32, "little")), 1 if plan.has_cutoff else 2**18
    known = known_sums(known_of(listed), key)

    def rows(some, number):
        users = users_of(some)
        users = dataclasses.replace(users, word_hashes=hash_words(key.sub_key("word"), users.words))
        merged = merge_sums([round_histogram(users, plan, key, number), known])
        return sums_of(merged), set(merged.words.filter(pa.array(merged.is_known)).to_pylist())

    for number in range(1, len(plan.union_rounds) + 1):
        whole, of_list = rows(corpus, number)
        assert of_list == listed
        for user in corpus:
            others = {name: own for name, own in corpus.items() if name != user}
            without, again = rows(others, number)
            assert again == listed
            assert whole.keys() - without.keys() <= corpus[user] - listed
            moves = [(weight - without.get(item, 0)) * unit for item, weight in whole.items()]
            assert sum(move**2 for move in moves) <= math.ceil(plan.sensitivity * ONE) ** 2


@pytest.mark.parametrize("policy", POLICIES)
def test_items_that_nobody_has_are_released_with_the_probability_of_noise(policy):
    """Given the thresholds of all runs, which say nothing of single items."""
    documents = {
        f"u{n}": [[f"item {(n + 7 * step) % 60}" for step in range(4)]] for n in range(400)
    }
    plan = SetUnionPlan(policy=policy, epsilon=6, delta=1e-4, count_share=0)
    known = known_of([*(f"item {n}" for n in range(60)), *UNHELD])
    found, means = 0, []
    for number in range(40):
        release = in_memory(documents, plan, known, key_of(number))
        names = release.items.to_pylist()
        assert sum(name.startswith("item") for name in names) > 5
        found += sum(name.startswith("unheld") for name in names)
        still_open = 1.0
        for rule, rho in zip(plan.union_rounds, release.known_thresholds, strict=True):
            chance = stats.norm.sf(rho / rule.noise_stddev)
            means.append(len(UNHELD) * still_open * chance)
            least = stats.norm.sf(-0.35) if rule.cut is not None else 1.0
            still_open *= least - chance
    assert sum(means) > 20
    assert stats.poisson.cdf(found, sum(means)) > FALSE_FAILURE
    assert stats.poisson.sf(found - 1, sum(means)) > FALSE_FAILURE


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("held", [0, 600])
def test_spurious_items_are_a_hundredth_of_the_held_ones_and_one_at_most_in_the_mean(policy, held):
    documents = {
        f"u{n}": [[f"item {(n + step) % max(held, 1)}" for step in range(9)]] for n in range(900)
    }
    plan = SetUnionPlan(policy=policy, epsilon=6, delta=1e-4, count_share=0)
    size = held + len(UNHELD)
    known = known_of([*(f"item {n}" for n in range(held)), *UNHELD])
    keys = range(30)
    found = [in_memory(documents, plan, known, key_of(n)).items.to_pylist() for n in keys]
    spurious = sum(name.startswith("unheld") for names in found for name in names)
    most = 1 + 0.01 * (held + 0.18 * math.sqrt(size) + 3)
    assert stats.poisson.sf(spurious - 1, most * len(keys)) > FALSE_FAILURE


def test_thresholds_follow_from_public_numbers_and_what_is_low():
    for policy in POLICIES:
        plan = SetUnionPlan(policy=policy, epsilon=1, delta=1e-6)
        past: list[int] = []
        for decider, share in zip(plan.union_rounds, ROUNDS[policy], strict=True):
            many, few = (plan.known_threshold(1000, [low] * len(past)) for low in (900, 200))
            assert (many > few) == bool(past)
            most = stats.norm.isf(min(0.35, share.delta * 0.01))
            if not past:
                # A short list tolerates a hundredth of itself, and not one item.
                short = plan.known_threshold(5, past)
                assert short == pytest.approx(decider.noise_stddev * most)
            assert few < decider.threshold
            past.append(0)


@pytest.mark.parametrize("held", [0, 10_000])
def test_the_mean_of_what_is_tolerated_follows_the_held_members_of_a_large_list(held):
    """Exactly, over the law of how many members are low; all that users have are above the cut."""
    plan, size = SetUnionPlan(policy="sips", epsilon=1, delta=1e-6), 10**6
    low = stats.norm.sf(0.35)
    law = stats.binom(size - held, low)
    numbers = np.arange(*law.interval(1 - 1e-9))
    rho = np.array([plan.known_threshold(size, [number]) for number in numbers.tolist()])
    chances = stats.norm.sf(rho / plan.union_rounds[1].noise_stddev)
    tolerated = chances * (numbers + 1) / low / ROUNDS["sips"][1].delta
    mean = law.pmf(numbers) @ tolerated
    assert max(0.999, 0.01 * (held - 3 * 1000)) < mean < 1 + 0.01 * (held + 0.18 * 1000)


def test_the_threshold_of_known_items_is_theirs_alone():
    plan = SetUnionPlan(policy="sips", epsilon=1, delta=0.4, max_contributions=1, count_share=0)
    (rule, *_), low = plan.union_rounds, -1e3
    listed = np.arange(RUNS) % 2 == 0
    for weight in (0, 2**32):
        sums = dataclasses.replace(many_items(RUNS, weight), known=listed)
        names = decisions.decide(sums, plan, KEY, 1, low).found.items.to_pylist()
        numbers = np.array([int(name) for name in names])
        assert np.count_nonzero(numbers % 2 == 0) == RUNS // 2
        chance = stats.norm.sf((rule.threshold - 1) / rule.noise_stddev) * bool(weight)
        others = np.count_nonzero(numbers % 2)
        assert stats.binomtest(others, RUNS // 2, chance).pvalue > FALSE_FAILURE


def test_a_list_of_everything_finds_more_and_one_of_nonsense_as_much():
    rng = random.Random(1)
    items = [f"item {n}" for n in range(400)]
    documents = {
        f"u{u}": [[items[min(int(rng.paretovariate(0.4)), 399)] for _ in range(9)]]
        for u in range(500)
    }
    plan = SetUnionPlan(epsilon=4, delta=1e-6, count_share=0)

    def real(known):
        found = (in_memory(documents, plan, known, key_of(n)).items.to_pylist() for n in range(9))
        return sum(len([name for name in names if name.startswith("item")]) for names in found)

    alone, nonsense, everything = map(real, (None, known_of(UNHELD), known_of(items)))
    assert everything > 1.3 * alone
    assert nonsense > 0.95 * alone


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "set-union", "ngrams", "txt"])
def test_lists_of_every_kind_reach_the_program(cli, tmp_path, kind):
    path, rows = tmp_path / "in.jsonl", [{"user": f"u{n}", "text": "new york"} for n in range(60)]
    path.write_text("\n".join(map(json.dumps, rows)))
    listed, budget = tmp_path / f"list.{kind}", ("--epsilon", "20", "--delta", "1e-3")
    given = ("--input", str(path), *budget)
    item = ("--tokenizer", "item") if kind != "ngrams" else ()
    texts = {
        "tsv": "item\nnew york\n7\\\n",
        "csv": "count,item\n5,new york\n1,rare\n5,7\n",
        "jsonl": '{"item": "new york"}\n{"item": "7"}\n',
        "txt": "new york\n7\n" * 5 + "rare\n",
    }
    if kind in texts:
        listed.write_text(texts[kind])
    else:
        # A fresh key releases an n-gram that nobody has now and then.
        (tmp_path / "key").write_text("0f1e2d3c" * 8)
        key = ("--run_key_file", str(tmp_path / "key"))
        assert cli(kind, *given, *item, *key, "--output", str(listed)).status == 0
    more = ("--known", str(listed), "--output", str(tmp_path / "out"))
    ended = cli("set-union", *given, *item, *more, "--known_same_people")
    if kind in texts:
        assert (ended.status, "needs a release among" in ended.err) == (2, True)
        ended = cli("set-union", *given, *item, *more)
    assert ended.status == 0, ended.err
    assert "a released row has at least this noisy weight, or was known before" in ended.out
    ledger = read_ledger(str(tmp_path / "out"))
    (told,) = ledger["known"]["lists"]
    expected = {"set-union": 1, "ngrams": 3}.get(kind, 2)
    assert (told["ngrams"], told["left_out"]) == (expected, 0)
    assert len(ledger["mechanism"]["known_thresholds"]) == 3
    assert "new york" in read_release(str(tmp_path / "out")).table()["item"].to_pylist() or not item
    if kind in texts:
        refused = cli("set-union", *given, "--known", str(path), "--output", str(tmp_path / "no"))
        assert "must not be private data" in refused.err
    else:
        assert "same people" in cli("account", str(tmp_path / "out")).err
        assert cli("account", str(listed), str(tmp_path / "out")).status == 0


def test_keys_of_yaml_and_plan_files_name_lists_which_an_evaluation_tells_apart(cli, tmp_path):
    rows, listed = [{"user": f"u{n}", "text": "tea rye"} for n in range(60)], tmp_path / "list.txt"
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)))
    listed.write_text("tea\n")
    given = {"known": str(listed), "known_min_count": 1, "epsilon": 20, "delta": 1e-4}
    transform = yaml.PrivateSetUnion(**given).transform
    assert transform.known.words.to_pylist() == ["tea"]
    (tmp_path / "plan.json").write_text(json.dumps(given))
    data, output = ("--input", str(tmp_path / "in.jsonl")), str(tmp_path / "out")
    plan = ("--plan", str(tmp_path / "plan.json"), "--output", output)
    assert cli("set-union", *data, *plan).status == 0
    judged = cli("evaluate", *data, "--release", output, "--known", str(listed))
    assert judged.status == 0, judged.err
    shown = " ".join(judged.out.replace("│", " ").split())
    assert "1 known 1 1 0 new 1 1 0" in shown
