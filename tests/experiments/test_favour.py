"""What `favour long` brings on made-up paths, and how many released n-grams one user alone has."""

import gzip
import itertools
from collections import Counter

import pytest

from beam_dpne import NgramsPlan
from beam_dpne.evaluation.corpus import corpus_of
from pipelines.experiments import alone, favour
from pipelines.experiments.known import World, nothing
from tests.ngrams.test_oracle import words_of


@pytest.mark.parametrize("epsilon", [4, 10])
def test_long_releases_at_least_as_many_of_the_longest_two_lengths_of_paths(epsilon):
    documents = list(favour.paths(2_000, projects=12, mean=18, depth=7))
    sizes = Counter(user for user, _ in documents)
    assert max(sizes.values()) > 50 * min(sizes.values())
    found = favour.compared(corpus_of(documents), epsilon, [1, 2, 3, 4, 5])
    by_length = {way: runs.sum(axis=0) for way, runs in found.items()}
    for place in (3, 4):
        assert by_length["long"][place] >= by_length["balanced"][place] > 200


def test_released_ngrams_of_one_user_and_of_nobody_are_counted():
    titles = [[f"w{number % 7}", f"w{number % 3}"] for number in range(600)]
    texts = alone.with_boilerplate(titles)
    documents = [(f"u{user}", text) for user, text in enumerate(texts)]
    plan = NgramsPlan(epsilon=8, delta=1e-4, max_length=2, spurious_fraction=0.4)
    world = World(corpus=corpus_of(documents), plan=plan)
    ((words, bigrams),) = alone.judged(world, [1], 8).tolist()
    holders: Counter[tuple[str, ...]] = Counter()
    for text in texts:
        holders.update({(word,) for word in text} | set(itertools.pairwise(text)))
    sets = words_of(list(world.release(nothing(8, 1), 1, epsilon=8)))
    for own, row in zip(sets.values(), (words, bigrams), strict=True):
        users = [holders[gram] for gram in own]
        assert row == [len(users), users.count(1), users.count(0)]
    assert min(bigrams) > 0


@pytest.mark.parametrize("command", [favour, alone])
def test_the_commands_print_a_table(command, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(favour, "paths", lambda *_, **__: iter([("ann", ["src", "a"])]))
    with gzip.open(tmp_path / "titles.gz", "wt") as file:
        file.writelines("to be or not to be\n" for _ in range(400))
    command.main([str(tmp_path / "titles.gz"), "--epsilons", "8", "--keys", "1"])
    shown = capsys.readouterr().out
    assert "NOT PRIVATE" in shown
    assert "8 each" in shown
