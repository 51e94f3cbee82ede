"""A series: no user is seen by more releases than it allows, whatever fails, and its total is below."""

import dataclasses
import itertools
import json
import pathlib
import pickle
import random
import re
import shutil
import stat

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from beam_dpne import NgramsPlan, ProbabilitiesPlan, RunKey, SetUnionPlan
from beam_dpne.accounting.budget import open_budget
from beam_dpne.accounting.composition import (
    Together,
    compose,
    plan_of_each,
    plan_of_share,
    share_of,
)
from beam_dpne.accounting.expense import Expense, expense_of_plan
from beam_dpne.accounting.population import Note, read_counted, total_of
from beam_dpne.accounting.series import create_series, only_run_of, open_series
from beam_dpne.documents import cutting
from beam_dpne.documents.cutting import cut_by_partition
from beam_dpne.documents.steps import GroupByUser
from beam_dpne.errors import BudgetError, UsageError
from beam_dpne.jobs.budgets import key_digests
from beam_dpne.jobs.parameters import Running
from beam_dpne.jobs.series import check_series, placed
from beam_dpne.ngrams.run import NgramsRun
from beam_dpne.release.ledger import user_sentence
from beam_dpne.set_union.run import SetUnionRun
from tests.support.releases import write_ledger

EPSILON, DELTA = 4.0, 1e-6
PLANS = (
    NgramsPlan(epsilon=1, delta=1e-7),
    NgramsPlan(epsilon=1, delta=1e-7, strategy="one_round", count_share=0),
    SetUnionPlan(epsilon=1, delta=1e-7),
    ProbabilitiesPlan(epsilon=1, delta=1e-7),
)


@dataclasses.dataclass
class World:
    """A series with its two folders, and who was seen by each release."""

    folder: pathlib.Path
    seen: dict[int, set[str]] = dataclasses.field(default_factory=dict)

    @property
    def running(self):
        return Running(
            series=str(self.folder / "series"), participants=str(self.folder / "private")
        )

    @property
    def series(self):
        return open_series(str(self.folder / "series"))

    def create(self, times, releases=12):
        create_series(
            self.running.series,
            self.running.participants,
            releases=releases,
            releases_per_user=times,
            epsilon=EPSILON,
            delta=DELTA,
        )
        return self

    def placed(self, plan=PLANS[0], key=None):
        kind = SetUnionRun if isinstance(plan, SetUnionPlan) else NgramsRun
        run = kind(plan=plan, run_key=key, partitions=3, tokenizer="words")
        return placed(run, self.running)

    def run(self, users, plan=PLANS[0], key=None, until="settle"):
        """One release of texts of these users, up to a step; returns its number."""
        private = self.placed(plan, key)
        participation = private.participation
        output = self.folder / f"release-{participation.place.number}"
        self.series.start(participation, started(private, output))
        if until == "start":
            return participation.place.number
        keys = private.run_keys()
        batch = pa.record_batch({"user": sorted(users), "text": ["a b"] * len(users)})
        partitions = cut_by_partition([batch], private.cutting(keys.bound), 1)
        blocks = [block for part in partitions for block in part]
        ids = {tuple(d): u for u, d in self._digests(participation, users)}
        self.seen.setdefault(participation.place.number, set()).update(
            ids[tuple(each)] for block in blocks for each in block.users.tolist()
        )
        participation.record([block.users for block in blocks], [block.texts for block in blocks])
        if until != "record":
            write_ledger(output, private.plan, keys=keys, series=participation.place)
        if until == "settle":
            self.series.settle(participation, read_counted(str(output)))
        return participation.place.number

    def _digests(self, participation, users):
        names = sorted(users)
        return zip(names, participation.digests(pa.array(names)).tolist(), strict=True)


@dataclasses.dataclass
class InBucket(World):
    """A series whose two folders are on an object store; its releases are on a disk."""

    bucket: str = ""

    @property
    def running(self):
        return Running(series=f"{self.bucket}series", participants=f"{self.bucket}private")

    @property
    def series(self):
        return open_series(f"{self.bucket}series")


def started(private, output="x"):
    """What is noted of a run."""
    return Note(
        expense=expense_of_plan(private.plan),
        program=private.plan.program,
        output=str(output),
        date="2026-01-01",
        unit=None,
        users=user_sentence(None),
        same_people=(),
        run_key=key_digests(private),
        series=private.participation.place,
    )


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("times", [1, 2, 3, 4])
def test_releases_see_a_user_at_most_so_many_times_and_nobody_else_by_her(tmp_path, times, seed):
    """Neighbours over whole series: one has user 0 as well; runs are killed, repeated and differ."""
    chance = random.Random(10 * times + seed)
    worlds = [World(tmp_path / each).create(times) for each in ("with", "without")]
    for month in range(9):
        users = {f"u{user}" for user in range(30) if chance.random() < 0.6}
        if month % 3 != 2:
            users.add("u0")
        plan = chance.choice(PLANS[:3])
        until = chance.choice(["settle", "settle", "publish", "record", "start"])
        key = RunKey.generate() if chance.random() < 0.5 else None
        for world, own in zip(worlds, (users, users - {"u0"}), strict=True):
            number = world.run(own, plan, key, until)
            if key is not None and until in ("publish", "record"):
                assert world.run(own, plan, key) == number
                with pytest.raises(BudgetError, match="`input` must be that of the first try"):
                    world.run({*own, "somebody new"}, plan, key)
                world.seen[number].discard("somebody new")
    one, other = worlds
    assert one.seen.keys() == other.seen.keys()
    for number, seen in one.seen.items():
        assert seen - {"u0"} == other.seen[number]
    for user in set().union(*one.seen.values()):
        assert 0 < sum(user in seen for seen in one.seen.values()) <= times
    assert one.series.total(one.series.runs()).epsilon <= EPSILON


def random_expense(chance):
    return Expense(
        epsilon=chance.uniform(0.3, 3),
        delta=1e-6,
        mu=chance.uniform(0.1, 0.9),
        lone_delta=chance.uniform(0, 1e-8),
        slack=chance.uniform(0, 1e-4),
        remainder=chance.uniform(0, 1e-9),
    )


@pytest.mark.parametrize("seed", range(4))
def test_the_total_of_a_series_is_at_least_that_of_any_releases_in_which_one_user_takes_part(seed):
    chance = random.Random(seed)
    most = 1 + seed % 3
    members, others = [[random_expense(chance) for _ in range(n)] for n in (5, seed % 2)]
    delta = 1e-5
    total = compose(others, series=[Together(expenses=members, most=most)], delta=delta)
    chosen = itertools.combinations(members, most)
    worst = max(compose([*each, *others], delta=delta).epsilon for each in chosen)
    assert worst <= total.epsilon < 2 * worst
    # All of them, in whichever order, are as much as releases in which everybody takes part.
    every = compose(others, series=[Together(expenses=members, most=9)], delta=delta)
    assert every == compose([*others, *members], delta=delta)


@pytest.mark.parametrize("times", [1, 2, 12])
def test_each_plan_has_a_share_of_which_any_so_many_stay_within_the_budget(times):
    share = share_of(EPSILON, DELTA, times)
    plans = [plan_of_share(plan, share) for plan in PLANS]
    for plan, given in zip(plans, PLANS, strict=True):
        assert plan == dataclasses.replace(given, epsilon=plan.epsilon, delta=plan.delta)
        assert expense_of_plan(plan).mu > 0.998 * share.mu
    expenses = [expense_of_plan(plan) for plan in plans] * times
    together = Together(expenses=expenses, most=times)
    assert compose([], series=[together], delta=DELTA).epsilon <= EPSILON
    # Nearly all of it is spent by so many equal releases of n-grams.
    alike = plan_of_each(dataclasses.replace(PLANS[0], epsilon=EPSILON, delta=DELTA), times)
    assert plans[0].epsilon > 0.99 * alike.epsilon


@pytest.mark.parametrize(("epsilon", "times"), [(0.5, 12), (0.1, 1), (0.1, 2)])
def test_small_budgets_have_nearly_what_so_many_equal_releases_have(epsilon, times):
    share = share_of(epsilon, DELTA, times)
    plan = plan_of_share(PLANS[0], share)
    alike = plan_of_each(dataclasses.replace(PLANS[0], epsilon=epsilon, delta=DELTA), times)
    assert plan.epsilon > 0.99 * alike.epsilon
    together = Together(expenses=[expense_of_plan(plan)] * times, most=times)
    assert compose([], series=[together], delta=DELTA).epsilon <= epsilon


def test_a_budget_that_allows_no_release_is_refused_with_those_that_do():
    """Also if the plan that is made before the share is known would be refused."""
    plan = dataclasses.replace(PLANS[0], max_length=3)
    with pytest.raises(UsageError, match=r"whose epsilon is 0\.1 .* in 12 at most") as raised:
        plan_of_share(plan, share_of(0.1, DELTA, 12))
    found = re.search(
        r"epsilon is ([\d.]+), or one .* part in (\d+) at most, or", str(raised.value)
    )
    assert found is not None
    assert plan_of_share(plan, share_of(float(found[1]), DELTA, 12))
    assert plan_of_share(plan, share_of(0.1, DELTA, int(found[2])))
    short = dataclasses.replace(plan, max_tokens_per_user=10_000)
    assert "`max_tokens_per_user=10000`" in str(raised.value)
    assert plan_of_share(short, share_of(0.1, DELTA, 12))


def test_account_counts_the_largest_of_a_series_beside_other_releases(world, tmp_path, cli):
    world.create(2)
    for _ in range(4):
        world.run({"a", "b"})
    alone = write_ledger(tmp_path / "alone", PLANS[0])
    paths = [str(tmp_path / f"release-{number}") for number in range(1, 5)]
    ended = cli("account", *paths, alone, "--json")
    assert ended.status == 0, ended.err
    spent = read_counted(paths[0]).expense
    found = json.loads(ended.out)["total"]
    wanted = compose([spent, spent, expense_of_plan(PLANS[0])])
    assert found["epsilon"] == pytest.approx(wanted.epsilon)
    assert found["delta"] == pytest.approx(DELTA + 1e-7)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"number": 1}, "is release 1 of its series, as another one is"),
        ({"number": 2, "epsilon": 5.0}, "states another budget of its series"),
        ({"number": 2, "releases_per_user": 3}, "states another budget of its series"),
    ],
)
def test_ledgers_that_cannot_be_of_one_series_have_no_total(world, tmp_path, change, why):
    place = world.create(2).series.place(1)
    paths = [
        write_ledger(tmp_path / "one", PLANS[0], series=place, keys=None),
        write_ledger(tmp_path / "two", PLANS[0], series=replace(place, **change), rows=3),
    ]
    runs = {path: Note(**note_of(read_counted(path))) for path in paths}
    with pytest.raises(BudgetError, match=why):
        total_of(runs)


def note_of(ledger):
    return {
        "program": ledger.program,
        "output": ledger.path,
        "date": "2026-01-01",
        "unit": None,
        "expense": ledger.expense,
        "series": ledger.series,
    }


def test_the_private_folder_is_of_its_owner_alone_and_holds_no_id(world):
    world.create(2)
    world.run({"ann@example.com", "bob"})
    folder = world.folder / "private"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert b"ann" not in file.read_bytes()


def test_a_run_whose_private_folder_is_gone_publishes_nothing_and_makes_no_other_one(world):
    """As where its disk was taken away."""
    participation = world.create(2).placed().participation
    digests = participation.digests(pa.array(["a"]))
    (world.folder / "series" / f"{participation.name}.json").touch()
    shutil.rmtree(world.folder / "private")
    with pytest.raises(BudgetError, match=r"has no participants.json any more"):
        participation.record([digests], texts=[])
    assert not (world.folder / "private").exists()


def test_digests_follow_from_the_key_of_the_series_and_hide_ids_without_it(tmp_path):
    found = []
    for name in ("one", "two"):
        private = World(tmp_path / name).create(1).placed()
        found.append(private.participation.digests(pa.array(["ann", "bob", "ann"])))
    one, other = found
    assert (one[0] == one[2]).all()
    assert not np.isin(one, other).any()


# Users, texts and groups.
TEXTS = [
    ("ann", "a b c", "dk"),
    ("ann", "c a", "de"),
    ("bob", "a b c", "dk"),
    ("bob", "a b c", "dk"),
    ("cy", "b", "dk"),
    ("cy", "", "dk"),
]
OTHER = {
    "another word": [*TEXTS[1:], ("ann", "a b d", "dk")],
    "another order of words": [*TEXTS[1:], ("ann", "b a c", "dk")],
    "words of another text": [*TEXTS[2:], ("ann", "a b", "dk"), ("ann", "c c a", "de")],
    "one text of two": [*TEXTS[2:], ("ann", "a b c c a", "dk")],
    "another user": [*TEXTS[1:], ("cy", "a b c", "dk")],
    "a text once more": [*TEXTS, TEXTS[1]],
    "a text less": TEXTS[:3],
}
OTHER_GROUPS = {
    "another group": [*TEXTS[1:], ("ann", "a b c", "de")],
    "groups of two texts in turn": [*TEXTS[2:], ("ann", "a b c", "de"), ("ann", "c a", "dk")],
}
# Sums of words times powers of one odd number, modulo 2^64, are equal for these two.
THUE_MORSE = ["ab"[number.bit_count() % 2] for number in range(2**11)]
COMPLEMENT = ["ba"[number.bit_count() % 2] for number in range(2**11)]


def digest_of_texts(private, records, size):
    """The digest of records that are read and cut so many at a time."""
    batches = [
        pa.record_batch(
            dict(zip(("user", "text", "group"), map(list, zip(*part, strict=True)), strict=True))
        )
        for part in (records[at : at + size] for at in range(0, len(records), size))
    ]
    found = cut_by_partition(batches, private.cutting(private.run_keys().bound), 1)
    texts = [block.texts for part in found for block in part]
    return np.sum(texts, axis=0, dtype=np.uint64).tolist()


@pytest.mark.parametrize("is_grouped", [False, True])
@pytest.mark.parametrize("limit", [1_000, 3])
def test_the_digest_of_texts_is_that_of_the_same_texts_of_the_same_users(
    world, monkeypatch, limit, is_grouped
):
    """However they are ordered and cut, and whatever users are limited to; groups are read, too."""
    plan = dataclasses.replace(PLANS[0], max_tokens_per_user=limit)
    private = world.create(2).placed(plan)
    changes = OTHER
    if is_grouped:
        private = dataclasses.replace(private, group_field="group")
        changes = OTHER | OTHER_GROUPS
    digest = digest_of_texts(private, TEXTS, len(TEXTS))
    for gathered in (10**6, 3, 1):
        monkeypatch.setattr(cutting, "_GATHERED_TOKENS", gathered)
        for size in (1, 2, 6):
            assert digest_of_texts(private, TEXTS[::-1], size) == digest
            for change, records in changes.items():
                assert digest_of_texts(private, records, size) != digest, change


def test_in_a_pipeline_nobody_is_laid_out_before_those_who_take_part_are_recorded(world):
    participation = world.create(2).placed().participation
    pipeline = beam.Pipeline()
    documents = pipeline | beam.Create([pa.record_batch({"user": ["ann"], "text": ["a"]})])
    _ = documents | GroupByUser(run_key=RunKey(bytes(32)), participation=participation)
    graph = pipeline.to_runner_api().components.transforms.values()
    steps = {each.unique_name.removeprefix("GroupByUser/"): each for each in graph}
    (recorded,) = steps["Record"].outputs.values()
    assert recorded in steps["LayOut"].inputs.values()


def test_what_goes_to_workers_has_neither_the_key_nor_a_digest_of_the_private_folder(world):
    world.create(1).run({"ann", "bob"})
    participation = world.placed().participation
    participation.open()
    key = json.loads((world.folder / "private" / "participants.json").read_text())["key"]
    assert len(participation.used_up) == 2
    sent = pickle.dumps(participation)
    assert bytes.fromhex(key) not in sent
    assert key.encode() not in sent
    assert not any(digest.tobytes() in sent for digest in participation.used_up)


def test_no_two_texts_have_one_digest_by_their_form(world):
    world.create(2)
    private = world.placed(key=RunKey(bytes(range(32))))
    found = [
        digest_of_texts(private, [("ann", " ".join(words), "dk")], 1)
        for words in (THUE_MORSE, COMPLEMENT)
    ]
    assert found[0] != found[1]


def test_one_run_key_gives_two_releases_of_a_series_other_noise(world):
    world.create(2)
    private = world.placed(key=RunKey(bytes(range(32))))
    second = dataclasses.replace(private.participation, place=world.series.place(2))
    other = dataclasses.replace(private, participation=second)
    one, two = key_digests(private), key_digests(other)
    assert one.commitment == two.commitment
    assert one.bound_commitment != two.bound_commitment


def test_a_try_under_the_key_of_another_one_with_other_parameters_is_refused(world):
    """It would be another release, and spend as much again."""
    world.create(2)
    key = RunKey(bytes(range(32)))
    for until in ("start", "record", "settle"):
        assert world.run({"a"}, key=key, until=until) == 1
    with pytest.raises(BudgetError, match=r"release 1 .* it would be release 2.*a fresh run key"):
        world.placed(PLANS[1], key)
    assert world.placed(PLANS[1], RunKey.generate()).participation.place.number == 2


def test_what_is_public_is_the_same_however_many_take_part(tmp_path):
    """Two series of one name and key; a third of the users of the other one, and no two of one."""
    worlds = [World(tmp_path / name).create(1) for name in ("few", "many")]
    for name in ("series/series.json", "private/participants.json"):
        shutil.copy(tmp_path / "few" / name, tmp_path / "many" / name)
    few, many = worlds
    keys = [RunKey(bytes([number] * 32)) for number in range(3)]
    for number, key in enumerate(keys):
        few.run({f"u{n}" for n in range(3)}, key=key)
        many.run({f"u{number}-{n}" for n in range(100)}, key=key)
    shown = []
    for world in worlds:
        files = sorted((world.folder / "series").iterdir())
        # A mark holds the random name of its run.
        sizes = [(file.name[:4], file.suffix, file.stat().st_size) for file in files]
        data = [file.read_bytes() for file in files if file.suffix == ".json"]
        shown.append((sizes, data))
    assert shown[0] == shown[1]


def newest(folder, name):
    return folder.rename(folder.with_name(name))


def with_key(file, key):
    file.write_text(json.dumps(json.loads(file.read_text()) | {"key": key}))


DAMAGES = {
    "no folder": (lambda p, s: shutil.rmtree(p), r"has no participants\.json\. Restore the"),
    "no key": (lambda p, s: (p / "participants.json").unlink(), "has no participants.json"),
    "another key": (
        lambda p, s: with_key(p / "participants.json", "ab" * 32),
        "has another key than the digests of 0001.json",
    ),
    "a damaged key": (lambda p, s: (p / "participants.json").write_text("{"), "is damaged"),
    "others can read it": (lambda p, s: p.chmod(0o755), "its owner alone can use"),
    "no list": (lambda p, s: (p / "0002.json").unlink(), "has no participants of release 2"),
    "a list of an older version": (
        lambda p, s: (p / "0002.json").write_text(
            (p / "0002.json").read_text().replace("list/2", "list/1")
        ),
        r"0002.json in .* has schema 'beam_dpne/participants-list/1'; this version reads .*list/2",
    ),
    "a series of another version": (
        lambda p, s: (s / "series.json").write_text(
            (s / "series.json").read_text().replace("series/1", "series/9")
        ),
        "has schema 'beam_dpne/series/9'; this version reads beam_dpne/series/1",
    ),
    "a damaged list": (lambda p, s: (p / "0002.json").write_text("[]"), "is damaged"),
    "no digests": (
        lambda p, s: next(p.glob("0001-*-a.digests")).unlink(),
        "0001-.*-a.digests in .* is missing",
    ),
    "other digests": (
        lambda p, s: next(p.glob("0001-*-a.digests")).write_bytes(bytes(16)),
        "0001-.*-a.digests in .* is missing or damaged",
    ),
    "an older copy of the series": (
        lambda p, s: [each.unlink() for each in s.glob("0002*")],
        "participants of release 2 that .* does not know",
    ),
    "a mark without its note": (
        lambda p, s: next(s.glob("0002-*.json")).unlink(),
        "must have the files of all its releases",
    ),
    "a mark of another run": (
        lambda p, s: (s / "0002.recorded").write_text("0002-aaaaaaaaaaaa"),
        "2 has two",
    ),
    "a series without its first release": (
        lambda p, s: [each.unlink() for each in s.glob("0001-*")],
        "must have the files of all its releases",
    ),
    "another file": (
        lambda p, s: shutil.copy(next(s.glob("0002-*.json")), s / "copy.json"),
        "must be a release of this series",
    ),
    "two of a number": (
        lambda p, s: shutil.copy(next(s.glob("0002-*.json")), s / "0002-aaaaaaaaaaaa.json"),
        "2 has two",
    ),
    "no series": (lambda p, s: (s / "series.json").unlink(), "files of runs: restore series.json"),
}


def test_folders_that_are_named_one_for_another_are_said_to_be_so(world):
    """A public folder must not be made private for it."""
    world.create(1)
    series, private = world.running.series, world.running.participants
    for running, what in (
        (Running(series=private, participants=private), "the private folder of a series"),
        (Running(series=series, participants=series), "the public folder of a series"),
    ):
        with pytest.raises(BudgetError, match=f", which is {what}"):
            placed(NgramsRun(plan=PLANS[0]), running)
    for path, what in ((series, "public"), (private, "private")):
        with pytest.raises(BudgetError, match=f"of a budget, got .*, which is the {what} folder"):
            open_budget(path)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_state_that_is_missing_damaged_or_old_refuses_the_run(world, damage):
    world.create(1)
    for _ in range(2):
        world.run({f"u{n}" for n in range(100)})
    change, why = DAMAGES[damage]
    change(world.folder / "private", world.folder / "series")
    with pytest.raises(BudgetError, match=why):
        world.run({"a"})


def test_a_private_folder_of_another_series_or_of_an_older_copy_is_refused(world, tmp_path):
    world.create(1)
    shutil.copytree(tmp_path / "private", tmp_path / "old")
    world.run({"a"}, until="record")
    newest(tmp_path / "private", "newest")
    (tmp_path / "old").rename(tmp_path / "private")
    with pytest.raises(BudgetError, match="no participants of release 1"):
        world.run({"a"})
    # A run with the older copy that goes on as release 1 is another one than that of the series.
    shutil.rmtree(tmp_path / "private")
    other = World(tmp_path / "other").create(1)
    other.run({"a"})
    newest(tmp_path / "other" / "private", "private").rename(tmp_path / "private")
    with pytest.raises(BudgetError, match="that of another one"):
        world.run({"a"})


@pytest.mark.parametrize("copied", [None, "series", "private"])
def test_a_second_run_is_refused_while_one_is_at_work(world, copied):
    """Also one that is given a copy of a folder, which has a lock of its own, and knows less."""
    world.create(2)
    folders = {name: world.folder / name for name in ("series", "private")}
    others = dict(folders)
    if copied is not None:
        others[copied] = shutil.copytree(folders[copied], world.folder / "copy")
    with (
        only_run_of(*map(str, folders.values())),
        pytest.raises(BudgetError, match="another run of the series"),
        only_run_of(*map(str, others.values())),
    ):
        pass


def test_a_run_whose_note_another_has_removed_publishes_nothing(world, tmp_path):
    """As on a file system whose locks other machines do not see."""
    world.create(1)
    shutil.copytree(tmp_path / "private", tmp_path / "copy")
    first = world.placed().participation
    world.run({"a"}, until="start")
    digests = first.digests(pa.array(["a"]))
    assert first.place.number == world.run({"a"}, until="record")
    with pytest.raises(BudgetError, match="another run has removed it, or it was never there"):
        dataclasses.replace(first, participants=str(tmp_path / "copy")).record([digests], texts=[])
    assert not (tmp_path / "copy" / "0001.json").exists()
    found = read_counted(write_ledger(tmp_path / "release", PLANS[0], series=first.place))
    with pytest.raises(BudgetError, match="is that of another one"):
        world.series.settle(first, found)


def begun(world, user):
    """A run that has started, and what it records."""
    private = world.placed()
    world.series.start(private.participation, started(private))
    return private.participation, [private.participation.digests(pa.array([user]))]


def test_of_two_runs_of_one_number_without_locks_one_has_it_and_the_other_publishes_nothing(world):
    """As on an object store."""
    world.create(1)
    (first, users), (second, others) = begun(world, "a"), begun(world, "b")
    second.record(others, texts=[])
    for _ in range(2):
        with pytest.raises(BudgetError, match="another run has taken release 1"):
            first.record(users, texts=[])
    assert world.series.forget(first)
    assert not world.series.forget(second)
    third, _ = begun(world, "b")
    assert third.place.number == 2
    assert third.may_take_part(np.concatenate([*users, *others])).tolist() == [True, False]


def test_a_worker_that_was_given_up_and_reads_another_input_changes_no_record(world):
    """On an object store it may find no list yet, and write after another worker has made it."""
    world.create(1)
    run, users = begun(world, "a")
    run.record(users, texts=[])
    others = [run.digests(pa.array(["b"]))]
    with pytest.raises(BudgetError, match="another run has taken release 1"):
        run.folder.write(run.place.number, run.name, others, run.folder.texts(1))
    later, _ = begun(world, "a")
    assert later.may_take_part(np.concatenate([*users, *others])).tolist() == [False, True]


def test_of_two_runs_with_copies_of_the_private_folder_one_is_refused_by_its_mark(world, tmp_path):
    world.create(1)
    shutil.copytree(tmp_path / "private", tmp_path / "copy")
    (first, users), (second, others) = begun(world, "a"), begun(world, "b")
    second.record(others, texts=[])
    copied = dataclasses.replace(first, participants=str(tmp_path / "copy"))
    with pytest.raises(BudgetError, match="with a copy of the private folder"):
        copied.record(users, texts=[])
    # The copy knows another first release than the series.
    with pytest.raises(BudgetError, match="1 has two"):
        world.series.counted(str(tmp_path / "copy"))
    assert [*world.series.counted(str(tmp_path / "private"))] == [1]


@pytest.mark.parametrize("place", ["series", "participants"])
def test_workers_elsewhere_need_both_folders_on_an_object_store(world, place):
    running = dataclasses.replace(world.running, **{place: "gs://bucket/folder"})
    with pytest.raises(UsageError, match="must both be on an object store that all workers reach"):
        check_series(running, None, is_here=False)


def test_what_runs_have_left_that_lost_their_number_is_removed_by_a_later_one(world, tmp_path):
    world.create(2)
    (first, _), (second, others) = begun(world, "a"), begun(world, "b")
    for part in range(3):
        (tmp_path / "private" / f"{first.name}-{part}.digests").touch()
    second.record(others, texts=[])
    world.run({"a"})
    left = {path.name for folder in ("private", "series") for path in (tmp_path / folder).iterdir()}
    assert not [name for name in left if name.startswith(first.name)]
    assert len([name for name in left if name.startswith(second.name)]) == 17


def test_a_run_is_refused_if_another_has_ended_since_it_was_placed(world):
    world.create(2)
    first = world.placed()
    world.run({"a"})
    with pytest.raises(BudgetError, match="was at work meanwhile"):
        world.series.start(first.participation, started(first))


def test_releases_are_refused_when_all_are_made_or_users_are_named_in_another_way(world):
    world.create(2, releases=2)
    world.run({"a"})
    private = world.placed()
    note = started(private)
    with pytest.raises(BudgetError, match="must name their users in one way"):
        world.series.start(private.participation, replace(note, users="another field"))
    with pytest.raises(BudgetError, match="must be of the series: what others have spent"):
        world.series.start(private.participation, replace(note, same_people=("a" * 64,)))
    world.run({"a"})
    with pytest.raises(BudgetError, match="has had all its 2"):
        world.run({"a"})


def test_a_run_that_published_and_was_killed_is_settled_by_the_next_one(world):
    world.create(2)
    world.run({"a"}, until="publish")
    assert isinstance(world.series.runs()[1][1], Note)
    world.run({"a"})
    kinds = [isinstance(run, Note) for _, run in world.series.runs().values()]
    assert kinds == [False, False]


@pytest.mark.parametrize(
    ("series", "participants", "why"),
    [
        ("s", "s/private", "must be outside the folder of the series"),
        ("p/series", "p", "must be outside the folder of the series"),
        ("hdfs://host/s", "p", "must be a folder on this machine or on gs://"),
        ("s", "hdfs://host/p", "must be a folder on this machine or on gs://"),
    ],
)
def test_folders_of_a_new_series_are_apart_and_where_one_run_has_a_number(
    tmp_path, series, participants, why
):
    paths = [each if "://" in each else str(tmp_path / each) for each in (series, participants)]
    budget = {"epsilon": EPSILON, "delta": DELTA}
    with pytest.raises(UsageError, match=why):
        create_series(*paths, releases=2, releases_per_user=1, **budget)
    with pytest.raises(UsageError, match="at most `releases`"):
        create_series(*paths, releases=2, releases_per_user=3, **budget)


def test_folders_of_a_series_are_made_once(world):
    world.create(1)
    with pytest.raises(BudgetError, match="must be a new or empty folder"):
        world.create(1)
    shutil.rmtree(world.folder / "series")
    with pytest.raises(BudgetError, match="`participants` must be a new folder"):
        world.create(1)
