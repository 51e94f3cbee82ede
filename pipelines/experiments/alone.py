"""python -m pipelines.experiments.alone TITLES [--titles 60000] [--epsilons 1 4 10] [--keys 1 2 3 4 5]

How many released n-grams one user alone has, and nobody, under each run key: of public titles, one a
line, dealt to users, and of users of one title with boilerplate after it.
"""

from collections.abc import Sequence

import numpy as np

from beam_dpne import NgramsPlan
from beam_dpne.cli.display import print_table
from beam_dpne.evaluation.corpus import Corpus, codes_of_sets, corpus_of, index_corpus
from pipelines.experiments.favour import dealt_words, heavy_tailed, parsed, titles_of
from pipelines.experiments.known import World, nothing
from pipelines.experiments.studies import NOTICE

# Kinds of boilerplate, and the words of each of them.
KINDS = 200
SIZE = 25
# The part of the users that have some.
USERS_OF_BOILERPLATE = 0.8
# One word in so many of a user's boilerplate is the user's own: a name, a number or a version.
OWN_WORD = 12


def with_boilerplate(titles: list[list[str]]) -> list[list[str]]:
    """Returns titles of which most have boilerplate of made-up words after them, some more often."""
    chance = np.random.default_rng(3)
    kinds = [[f"b{word}" for word in row] for row in chance.integers(2_000, size=(KINDS, SIZE))]
    weights = 1 / np.arange(1, KINDS + 1)
    texts = []
    for title in titles:
        more: list[str] = []
        if chance.random() < USERS_OF_BOILERPLATE:
            kind = kinds[chance.choice(KINDS, p=weights / weights.sum())]
            own = chance.integers(OWN_WORD, size=SIZE) == 0
            numbers = chance.integers(10_000, size=SIZE)
            more = [
                f"n{number}" if is_own else word
                for word, is_own, number in zip(kind, own, numbers, strict=True)
            ]
        texts.append([*title, *more])
    return texts


def worlds(titles: list[list[str]]) -> dict[str, Corpus]:
    """Returns the users of each kind by their description."""
    boilerplate = with_boilerplate(titles)
    texts = {
        "titles, 1 each": (titles, [1]),
        "titles, 8 each, unequal": (titles, heavy_tailed(len(titles), 8)),
        "1 title with boilerplate": (boilerplate, [1]),
    }
    return {name: corpus_of(list(dealt_words(*dealt))) for name, dealt in texts.items()}


def judged(world: World, keys: Sequence[int], epsilon: float) -> np.ndarray:
    """Returns how many n-grams are released, of one user, and of nobody: (keys, T, 3) int64."""
    index = index_corpus(world.corpus, world.plan.max_length)
    found = []
    for key in keys:
        sets = world.release(nothing(epsilon, key), key, epsilon=epsilon)
        of_run = []
        for rows, level in zip(codes_of_sets(world.corpus, sets), index.lengths, strict=True):
            users = np.append(level.users, 0)[index.find(rows)]
            of_run.append([users.size, (users == 1).sum(), (users == 0).sum()])
        found.append(of_run)
    return np.array(found)


def main(argv: Sequence[str] | None = None) -> None:
    """Prints a table of all users: means over run keys, with the range of those of one user."""
    given = parsed(argv, __doc__)
    table = []
    for name, corpus in worlds(titles_of(given.path, given.titles)).items():
        world = World(corpus=corpus, plan=NgramsPlan(epsilon=1, delta=1e-6))
        for epsilon in given.epsilons:
            runs = judged(world, given.keys, epsilon)
            rows = {str(k): runs[:, k - 1] for k in range(1, world.plan.max_length + 1)}
            rows["all"] = runs.sum(axis=1)
            for length, own in rows.items():
                released, alone, nobody = own.mean(axis=0)
                head = {"users": name, "ε": f"{epsilon:g}", "length": length}
                table.append(
                    head
                    | {
                        "released": f"{released:,.0f}",
                        "of one user": f"{alone:,.1f}",
                        "least, most": f"{own[:, 1].min()}, {own[:, 1].max()}",
                        "of nobody": f"{nobody:,.1f}",
                        "one in 100": f"{100 * alone / max(released, 1):.2f}",
                    }
                )
    print_table(f"{NOTICE} N-grams of one user, and of nobody", table)


if __name__ == "__main__":
    main()
