"""python -m pipelines.experiments.unlike TITLES --public TEXT:COUNT … [--worlds titles paths …]

What a list of another kind of text costs long n-grams, and what one of the same kind brings: how many
real n-grams of each length a run releases that knows a list, and by how much that is more than the same
run that knows nothing releases, with the standard error of the change. Means over run keys, without
numbers of users.

Users are made up. In the world "titles" they have the first public titles, one a line, 8 each in the
mean; "paths" are files that authors of projects touched, as words; in "communities" they have 1 to 60
titles, and each of four communities says half of the words in its own way; in "repeated" they have four
titles, each once to five times. Known are texts of the same kind of other users, as many other titles,
both with the n-grams that stand in them 5 times, or another public text, one document a line, whose
n-grams stand in it COUNT times.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from beam_dpne import KnownNgrams, NgramsPlan
from beam_dpne.cli.display import print_table
from beam_dpne.evaluation.corpus import corpus_of
from beam_dpne.lists.parameters import KNOWN_MIN_COUNT
from pipelines.experiments.communities import communities
from pipelines.experiments.favour import Documents, dealt_words, heavy_tailed, paths, titles_of
from pipelines.experiments.intervals import repeated
from pipelines.experiments.known import NOTHING, Judge, World, of_text, read
from pipelines.experiments.studies import NOTICE

WORLDS = ("titles", "paths", "communities", "repeated")


def documents(world: str, titles: list[list[str]], seed: int) -> Documents:
    """Yields the texts of the users of a world, who have these titles or another seed's paths."""
    texts = [" ".join(title) for title in titles]
    if world == "titles":
        yield from dealt_words(titles, heavy_tailed(len(titles), 8))
    elif world == "paths":
        yield from paths(6_000, projects=60, mean=18, depth=7, seed=seed)
    elif world == "communities":
        yield from ((user, text.split()) for user, text, _ in communities(texts))
    else:
        yield from ((user, text.split()) for user, text in repeated(texts))


def changes(
    world: World, epsilon: float, keys: Sequence[int], lists: Mapping[str, KnownNgrams]
) -> Iterator[dict[str, str]]:
    """Yields the real n-grams of each length beside a run that knows nothing, for each list."""
    judge = Judge(world)
    base = np.ones(0)
    for name, known in {NOTHING: KnownNgrams.of([]), **lists}.items():
        runs = []
        for key in keys:
            sets = world.release(known, key, epsilon=epsilon)
            runs.append(judge.counts(sets, known)[:, 0])
            print(f"{name}, ε = {epsilon:g}, key {key}: {runs[-1].tolist()}", file=sys.stderr)
        own = np.array(runs, float)
        base = own if name == NOTHING else base
        cells = {"known": name, "ε": f"{epsilon:g}"}
        for place, length in enumerate([*map(str, range(1, own.shape[1])), "all"]):
            cells[length] = f"{own[:, place].mean():,.0f}"
            if name != NOTHING:
                cells[f"{length}, more"] = _change(own[:, place], base[:, place])
        yield cells


def _change(own: np.ndarray, base: np.ndarray) -> str:
    """Returns by how much the mean of a row of numbers is above that of another, ± one error."""
    if not base.any():
        return ""
    ratio = own.mean() / base.mean()
    errors = [each.std(ddof=1) / max(each.mean(), 1) for each in (own, base) if each.size > 1]
    error = ratio * np.sqrt(np.sum(np.square(errors)) / own.size)
    return f"{100 * (ratio - 1):+.1f} ± {100 * error:.1f} %"


def main(argv: Sequence[str] | None = None) -> None:
    """Prints a table of each world."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", metavar="TITLES")
    parser.add_argument("--public", nargs="+", default=[])
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=["titles"])
    parser.add_argument("--titles", type=int, default=125_000)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1, 4, 10])
    parser.add_argument("--keys", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    given = parser.parse_args(argv)
    titles = titles_of(given.path, 2 * given.titles)
    own, others = titles[: given.titles], titles[given.titles :]
    lists = {}
    for name in given.public:
        path, _, count = name.rpartition(":")
        lists[name] = of_text(read(path, "sequences"), int(count))
    for name in given.worlds:
        users = corpus_of(list(documents(name, own, seed=1)))
        alike = {}
        for kind in dict.fromkeys([name, "titles"]):
            texts = corpus_of(list(documents(kind, others, seed=2)))
            alike[f"other {kind}"] = of_text(texts, KNOWN_MIN_COUNT)
        world = World(corpus=users, plan=NgramsPlan(epsilon=1, delta=1e-6, count_share=0))
        for epsilon in given.epsilons:
            rows = list(changes(world, epsilon, given.keys, alike | lists))
            print_table(f"{NOTICE} Unlike lists, {name}, {len(users.users):,} users", rows)


if __name__ == "__main__":
    main()
