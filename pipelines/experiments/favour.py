"""python -m pipelines.experiments.favour TITLES [--titles 60000] [--epsilons 1 4 10] [--keys 1 2 3 4 5]

How many real n-grams of each length each value of `favour` releases, and `one_round`: medians over run
keys, without numbers of users. Users are those of two kinds of made-up paths, as words, and of public
titles, one a line: one each, 8 each in the mean, and 100 each.
"""

import argparse
import gzip
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from beam_dpne import NgramsPlan
from beam_dpne.cli.display import print_table
from beam_dpne.documents.tokenizers import resolve_tokenizer, tokenize
from beam_dpne.evaluation.corpus import Corpus, corpus_of
from beam_dpne.ngrams.adaptive import AHEAD
from pipelines.experiments.intervals import dealt
from pipelines.experiments.known import PAPER, Judge, World, nothing
from pipelines.experiments.studies import NOTICE

TOPS = ("src", "lib", "tests", "docs")
COMMON = ("core", "util", "api", "main", "data", "model", "config", "base")
ENDINGS = ("py", "c", "h", "js", "md")
# At most so many files of one user count.
MOST_FILES = 3_000
Documents = Iterator[tuple[str, list[str]]]


def files_of_project(chance: np.random.Generator, size: int, depth: int) -> list[list[str]]:
    """Returns made-up files of a project, each of them as the words of its path.

    Args:
      chance: the source of chance.
      size: the number of files.
      depth: the largest number of directories above a file.
    """
    directories = [[top] for top in TOPS]
    files = []
    for _ in range(size):
        parent = directories[chance.integers(len(directories))]
        if chance.random() < 0.12 and len(parent) < depth:
            names = (COMMON[chance.integers(len(COMMON))], f"d{chance.integers(400)}")
            directories.append([*parent, names[chance.integers(2)]])
        # Older directories have more files.
        directory = directories[int(len(directories) * chance.random() ** 1.5)]
        ending = ENDINGS[chance.integers(len(ENDINGS))]
        files.append([*directory, f"f{chance.integers(8_000)}", ending])
    return files


def paths(users: int, *, projects: int, mean: float, depth: int, seed: int = 1) -> Documents:
    """Yields the paths that made-up authors touched, each of them a text.

    Authors are of one project each and of unequal sizes: the number of files has a heavy tail. Half of
    an author's files lie near a few places of the project.

    Args:
      users: the number of authors.
      projects: the number of projects; a few of them have most authors.
      mean: a scale of the number of files of an author.
      depth: the largest number of directories above a file.
      seed: the seed of chance.
    """
    chance = np.random.default_rng(seed)
    sizes = np.minimum(20_000, 100 + 200 * chance.pareto(1.0, projects)).astype(int)
    trees = [files_of_project(chance, size, depth) for size in sizes.tolist()]
    weights = np.arange(1, projects + 1) ** -0.8
    for user in range(users):
        files = trees[chance.choice(projects, p=weights / weights.sum())]
        count = int(min(MOST_FILES, 1 + mean * chance.pareto(1.1)))
        places = len(files) * chance.random(chance.integers(1, 5)) ** 2
        near = chance.choice(places, count) + 15 * chance.normal(size=count)
        anywhere = len(files) * chance.random(count) ** 2
        chosen = np.where(chance.random(count) < 0.5, near, anywhere).astype(int) % len(files)
        yield from ((f"u{user}", files[place]) for place in chosen.tolist())


def titles_of(path: str, count: int) -> list[list[str]]:
    """Returns the words of the first titles of a file, in the order of a fixed shuffle."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        titles = [line.strip() for line in lines]
    order = np.random.default_rng(7).permutation(len(titles))[:count]
    words = tokenize(resolve_tokenizer("words"), pa.array(titles)).take(pa.array(order))
    return words.to_pylist()


def heavy_tailed(count: int, mean: float) -> list[int]:
    """Returns numbers of texts of users, the most of them small and a few large."""
    draws = 1 + np.random.default_rng(0).pareto(1.5, count) * (mean - 1) / 2
    return np.minimum(draws, 50 * mean).astype(int).tolist()


def worlds(titles: list[list[str]]) -> dict[str, Corpus]:
    """Returns the users of each kind by their description."""
    sizes = {"1 each": [1], "8 each, unequal": heavy_tailed(len(titles), 8), "100 each": [100]}
    of_titles = {
        f"titles, {name}": corpus_of(list(dealt_words(titles, own))) for name, own in sizes.items()
    }
    return {
        "paths": corpus_of(list(paths(6_000, projects=60, mean=18, depth=7))),
        "deep paths": corpus_of(list(paths(12_000, projects=12, mean=8, depth=9))),
    } | of_titles


def dealt_words(titles: list[list[str]], sizes: Sequence[int]) -> Documents:
    """Yields the titles of users who get as many as the sizes say, again and again."""
    rows = dealt([str(place) for place in range(len(titles))], itertools.cycle(sizes))
    yield from ((user, titles[int(place)]) for user, place in rows)


def compared(corpus: Corpus, epsilon: float, keys: Sequence[int]) -> dict[str, np.ndarray]:
    """Returns the real n-grams of each length under each key, (keys, T), by what is favoured."""
    plan = NgramsPlan(epsilon=epsilon, delta=1e-6, count_share=0)
    world = World(corpus=corpus, plan=plan)
    judge = Judge(world)
    known = nothing(epsilon, 0)
    ways: dict[str, dict[str, Any]] = {name: {"favour": name} for name in AHEAD}
    ways["one_round"] = PAPER
    found = {}
    for name, changed in ways.items():
        runs = [judge.counts(world.release(known, key, **changed), known) for key in keys]
        found[name] = np.array(runs)[:, :, 0]
    return found


def parsed(argv: Sequence[str] | None, description: str | None) -> argparse.Namespace:
    """Returns the arguments of an experiment on made-up users of public titles."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("path", metavar="TITLES")
    parser.add_argument("--titles", type=int, default=60_000)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1, 4, 10])
    parser.add_argument("--keys", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Prints a table of all users."""
    given = parsed(argv, __doc__)
    table = []
    for name, corpus in worlds(titles_of(given.path, given.titles)).items():
        for epsilon in given.epsilons:
            for way, runs in compared(corpus, epsilon, given.keys).items():
                medians = np.median(runs, axis=0)
                head = {"users": name, "ε": f"{epsilon:g}", "favour": way}
                cells = {str(length): f"{each:,.0f}" for length, each in enumerate(medians[:-1], 1)}
                table.append(head | cells | {"all": f"{medians[-1]:,.0f}"})
    print_table(f"{NOTICE} Words or long n-grams", table)


if __name__ == "__main__":
    main()
