"""python -m pipelines.experiments.intervals TITLES [--epsilons 1 4 16] [--worlds equal …] [--repeats 3]

How many true numbers of users the intervals of a release contain: on public titles, one a line, that
are dealt to made-up users in unlike ways, on the sample, and on other files (--file).
Shares are means over the lengths with 100 n-grams or more: of all n-grams, of the first 20, and of the
thirds whose users have the fewest and the most released n-grams (median of the users of an n-gram).
"""

import argparse
import gzip
import json
import pathlib
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from beam_dpne import NgramsPlan, RunKey
from beam_dpne.cli.display import print_table
from beam_dpne.elements.arrays import rows_of_entries
from beam_dpne.ngrams.elements import GramSet
from beam_dpne.ngrams.in_memory import release_ngrams
from beam_dpne.ngrams.released_rows import GramRows
from pipelines.experiments.corpora import Data, Source
from pipelines.experiments.studies import NOTICE

SAMPLE = "pipelines/data/reddit_titles_sample.jsonl.gz"
FEWEST = 100
Documents = Iterable[tuple[str, str]]


def dealt(texts: list[str], sizes: Iterable[int], name: str = "") -> Iterator[tuple[str, str]]:
    """Yields documents: users in turn get as many texts as their sizes say, while there are any."""
    first = 0
    for user, size in enumerate(sizes):
        if first + size > len(texts):
            return
        yield from ((f"{name}{user}", text) for text in texts[first : first + size])
        first += size


def unequal(count: int, seed: int = 7) -> list[int]:
    """Returns heavy-tailed sizes of users: most have one text, some thousands."""
    sizes = 1 + np.random.default_rng(seed).pareto(1.1, count)
    return np.minimum(sizes, 3000).astype(int).tolist()


def languages(texts: list[str]) -> Iterator[tuple[str, str]]:
    """Yields three thirds of users with words and sizes of their own."""
    third = len(texts) // 3
    sizes = ([1] * third, [8] * third, unequal(third))
    for number, mark in enumerate(("", "q", "z")):
        own = texts[number * third : (number + 1) * third]
        own = [" ".join(mark + word for word in text.split()) for text in own]
        yield from dealt(own, sizes[number], f"{number} ")


def repeated(texts: list[str]) -> Iterator[tuple[str, str]]:
    """Yields users of four texts, each of them once to five times."""
    chance = random.Random(7)
    for document in dealt(texts[:150_000], [4] * len(texts)):
        yield from [document] * chance.randint(1, 5)


WORLDS: dict[str, Callable[[list[str]], Documents]] = {
    "8 texts each": lambda texts: dealt(texts, [8] * len(texts)),
    "very unequal users": lambda texts: dealt(texts, unequal(len(texts))),
    "three languages": languages,
    "a third with 1 text, others with 200": lambda texts: dealt(texts, [1, 200, 200] * 1000),
    "24 of 25 with 1 text, others with 200": lambda texts: dealt(texts, [*[1] * 24, 200] * 2000),
    "repeated texts": repeated,
}


def judged(data: Data, epsilon: float, seed: int) -> dict[str, float]:
    """Returns the measures of one release of a corpus."""
    plan = NgramsPlan(epsilon=epsilon, delta=1e-6)
    key = RunKey(bytes([seed] * 32))
    batches = list(data.user_batches(plan.max_tokens_per_user, key))
    sets = release_ngrams(batches, plan, key)
    counts, sizes = _true_numbers(batches, sets, plan)
    found: list[dict[str, float]] = []
    first = 0
    for grams in sets:
        rows = slice(first, first + len(grams))
        first += len(grams)
        if len(grams) >= FEWEST and grams.users is not None:
            found.append(_of_length(grams.users, counts[rows], sizes[rows]))
    return {name: float(np.mean([each[name] for each in found])) for name in found[0]} | {
        "n-grams": float(first),
        "lowest length": min(each["all"] for each in found),
    }


def _true_numbers(
    batches: Sequence, sets: Sequence[GramSet], plan: NgramsPlan
) -> tuple[np.ndarray, np.ndarray]:
    """Returns each row's number of users, and the median number of released n-grams that they have."""
    users = []
    held = []
    for batch in batches:
        own = GramRows(pruning=plan.pruning).held(batch, sets)
        users.append(np.diff(own.offsets)[rows_of_entries(own.offsets)])
        held.append(own.rows)
    sizes = np.concatenate(users)
    rows = np.concatenate(held)
    sizes = sizes[np.lexsort((sizes, rows))]
    counts = np.bincount(rows, minlength=sum(map(len, sets)))
    middles = np.cumsum(counts) - counts + counts // 2
    return counts, np.where(counts > 0, sizes[np.minimum(middles, sizes.size - 1)], -1)


def _of_length(users: np.ndarray, counts: np.ndarray, sizes: np.ndarray) -> dict[str, float]:
    inside = (users[:, 1] <= counts) & (counts <= users[:, 2])
    few, many = np.quantile(sizes[counts > 0], [1 / 3, 2 / 3])
    first = np.argsort(-users[:, 0], kind="stable")[:20]
    real = counts > 0
    found = {
        "all": inside.mean(),
        "first 20": inside[first].mean(),
        "of users with few": inside[real & (sizes <= few)].mean(),
        "of users with many": inside[real & (sizes >= many)].mean(),
        "median error": np.median(abs(users[real, 0] / counts[real] - 1)),
        "wider than 10": np.mean(users[:, 2] > 10 * np.maximum(users[:, 1], 1)),
    }
    return {name: float(value) for name, value in found.items()}


def main(argv: Sequence[str] | None = None) -> None:
    """Prints a table of all worlds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("titles", type=pathlib.Path)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1, 4, 16])
    parser.add_argument(
        "--worlds", nargs="*", choices=[*WORLDS, "sample"], default=[*WORLDS, "sample"]
    )
    parser.add_argument("--file", nargs="*", default=[])
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args(argv)
    with gzip.open(given.titles, "rt", encoding="utf-8") as lines:
        texts = [line.strip() for line in lines]
    random.Random(7).shuffle(texts)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        files = {pathlib.Path(path).name: path for path in given.file}
        for name in given.worlds:
            files[name] = SAMPLE if name == "sample" else f"{folder}/{name}.jsonl"
            if name != "sample":
                with open(files[name], "w", encoding="utf-8") as file:
                    for user, text in WORLDS[name](texts):
                        file.write(json.dumps({"user": user, "text": text}) + "\n")
        for name, path in files.items():
            data = Data(Source(path=path, title=name, note="", max_length=5))
            for epsilon in given.epsilons:
                found = [judged(data, epsilon, seed) for seed in range(given.repeats)]
                middle = {each: float(np.mean([one[each] for one in found])) for each in found[0]}
                shown = {each: f"{value:.3f}" for each, value in middle.items()}
                shown["n-grams"] = f"{middle['n-grams']:,.0f}"
                rows.append({"texts": name, "ε": f"{epsilon:g}"} | shown)
    print_table(f"{NOTICE} Share of the true numbers inside the intervals", rows)


if __name__ == "__main__":
    main()
