"""What known lists bring: what the table counts, and the table of each part."""

import gzip
import json
import random
import statistics

from beam_dpne import KnownNgrams, NgramsPlan
from beam_dpne.evaluation.corpus import corpus_of
from pipelines.experiments import known as experiment
from pipelines.experiments import unlike
from pipelines.experiments.known import Judge, World, main
from tests.ngrams.test_oracle import words_of


def texts(seed, count):
    chance = random.Random(seed)
    return [chance.choices("abcdefgh", range(8, 0, -1), k=6) for _ in range(count)]


def test_real_ones_and_spurious_ones_of_both_families_are_counted(monkeypatch):
    monkeypatch.setattr(experiment, "MANY", 100)
    held = [(f"u{user}", text) for user, text in enumerate(texts(1, 300))]
    plan = NgramsPlan(epsilon=8, delta=1e-4, max_length=2, count_share=0, spurious_fraction=0.5)
    world = World(corpus=corpus_of(held), plan=plan)
    lists = [("a",), ("a", "b"), *((f"no{number}",) for number in range(200)), ("no1", "a")]
    known = KnownNgrams.of(lists)
    users: dict[tuple[str, ...], set[str]] = {}
    for user, text in held:
        for length in (1, 2):
            for start in range(7 - length):
                users.setdefault(tuple(text[start : start + length]), set()).add(user)
    judge, seen = Judge(world), 0
    for key in range(1, 9):
        sets = world.release(known, key)
        found = judge.counts(sets, known).tolist()
        for own, row in zip(words_of(list(sets)).values(), found, strict=False):
            spurious = [gram for gram in own if gram not in users]
            many = sum(len(users.get(gram, ())) >= 100 for gram in own)
            listed = len([gram for gram in spurious if gram in lists])
            assert row == [len(own) - len(spurious), many, listed, len(spurious) - listed]
            assert len(own) > 5
        assert found[-1] == [sum(column) for column in zip(*found[:-1], strict=True)]
        seen += found[0][2]
    assert seen > 0


def test_the_command_prints_a_table_of_each_part(tmp_path, capsys):
    with gzip.open(tmp_path / "public.gz", "wt") as file:
        file.writelines(f"{' '.join(text)}\n" for text in texts(2, 4000))
    with open(tmp_path / "titles.jsonl", "w") as file:
        for number, text in enumerate(texts(3, 4000)):
            file.write(json.dumps({"user": f"u{number % 1000}", "text": " ".join(text)}) + "\n")
    given = [str(tmp_path / "titles.jsonl"), "--public", f"{tmp_path}/public.gz:3", "--keys", "1"]
    main([*given, "--epsilons", "4", "--runs", "2", "--parts", "titles", "halves", "spurious"])
    shown = capsys.readouterr()
    assert shown.out.count("NOT PRIVATE") == 3
    assert shown.err.count("one_round") == 2


def test_a_list_of_another_kind_stands_beside_one_of_the_same_kind(tmp_path, monkeypatch, capsys):
    with gzip.open(tmp_path / "public.gz", "wt") as file:
        file.writelines(f"{' '.join(text)}\n" for text in texts(2, 4000))
    (tmp_path / "help.txt").write_text("a b\nb a c\n" * 5)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(unlike, "paths", lambda *_, **__: iter([("ann", ["src", "a"])]))
    given = ["public.gz", "--public", "help.txt:3", "--titles", "2000", "--keys", "1"]
    unlike.main([*given, "--epsilons", "4", "--worlds", *unlike.WORLDS])
    shown = capsys.readouterr()
    assert shown.out.count("NOT PRIVATE") == len(unlike.WORLDS)
    runs = [line.partition(", ε")[0] for line in shown.err.splitlines() if "key 1" in line]
    assert [name for name in runs if name not in ("nothing", "help.txt:3")] == [
        "other titles",
        *(f"other {name}" for world in unlike.WORLDS[1:] for name in (world, "titles")),
    ]
    assert runs.count("nothing") == runs.count("help.txt:3") == len(unlike.WORLDS)


def test_changes_are_those_of_the_means_over_keys(capsys):
    held = [(f"u{user}", text) for user, text in enumerate(texts(1, 300))]
    plan = NgramsPlan(epsilon=8, delta=1e-4, max_length=2, count_share=0)
    lists = {"letters": KnownNgrams.of((letter,) for letter in "abcdefgh")}
    nothing, letters = unlike.changes(World(corpus=corpus_of(held), plan=plan), 2, [1, 2], lists)
    printed = [json.loads(line.partition(": ")[2]) for line in capsys.readouterr().err.splitlines()]
    before, after = (statistics.mean(run[1] for run in runs) for runs in (printed[:2], printed[2:]))
    assert (nothing["2"], letters["2"]) == (f"{before:.0f}", f"{after:.0f}")
    assert letters["2, more"].startswith(f"{100 * (after / before - 1):+.1f} ± ")
    assert before != after
