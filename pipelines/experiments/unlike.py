"""python -m pipelines.experiments.unlike TITLES --public TEXT:COUNT … [--titles 125000] [--keys 1 2 3]

What a list of another kind of text costs long n-grams, and what one of the same kind brings: how many
real n-grams of each length a run releases that knows a list, beside the same run that knows nothing.
Medians over run keys, without numbers of users.

Users are made up: they have the first public titles, one a line, 8 each in the mean. Known are as many
other titles, whose n-grams stand in them 5 times, or another public text, one document a line, whose
n-grams stand in it COUNT times.
"""

import argparse
from collections.abc import Sequence

from beam_dpne import NgramsPlan
from beam_dpne.cli.display import print_table
from beam_dpne.evaluation.corpus import corpus_of
from beam_dpne.lists.parameters import KNOWN_MIN_COUNT
from pipelines.experiments.favour import dealt_words, heavy_tailed, titles_of
from pipelines.experiments.known import World, always, of_text, read
from pipelines.experiments.studies import NOTICE


def main(argv: Sequence[str] | None = None) -> None:
    """Prints a table of all lists."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", metavar="TITLES")
    parser.add_argument("--public", nargs="+", default=[])
    parser.add_argument("--titles", type=int, default=125_000)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1, 4, 10])
    parser.add_argument("--keys", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    given = parser.parse_args(argv)
    titles = titles_of(given.path, 2 * given.titles)
    own, others = titles[: given.titles], titles[given.titles :]
    users = corpus_of(list(dealt_words(own, heavy_tailed(len(own), 8))))
    lists = {"other titles": of_text(corpus_of(list(dealt_words(others, [1]))), KNOWN_MIN_COUNT)}
    for name in given.public:
        path, _, count = name.rpartition(":")
        lists[name] = of_text(read(path, "sequences"), int(count))
    world = World(corpus=users, plan=NgramsPlan(epsilon=1, delta=1e-6, count_share=0))
    known = {name: always(each) for name, each in lists.items()}
    print_table(f"{NOTICE} Unlike lists", world.compared(given.epsilons, given.keys, known))


if __name__ == "__main__":
    main()
