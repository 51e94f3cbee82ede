"""python -m pipelines.experiments.known TITLES --public TEXT:COUNT … [--parts titles halves …]

How many real n-grams a run releases that knows something, beside the same run that knows nothing, and
the paper's `one_round` under the first key. Medians over run keys, without numbers of users.

titles: a file of {"user", "text"} lines. Known is a public text, one document a line, whose n-grams
stand in it COUNT times; or a million words that nobody has, with 1,000 others of the first text.
halves: the second half of the users, with a release of the first half known. msnbc: its 17 pages.
spurious: half of the first public text, dealt to made-up users, with the other half and a million words
that nobody has known: means over many runs, beside their bounds (docs/adaptive.md).
"""

import argparse
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from beam_dpne import KnownNgrams, NgramsPlan
from beam_dpne.cli.display import print_table
from beam_dpne.elements.arrays import places_in
from beam_dpne.evaluation.corpus import Corpus, codes_of_sets, index_corpus, read_corpus
from beam_dpne.forecast.forecasting import with_documents
from beam_dpne.lists.counting import count_ngrams
from beam_dpne.ngrams.in_memory import InMemory
from beam_dpne.ngrams.known import root_of
from beam_dpne.ngrams.valid import known_words
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import ReadOptions
from beam_dpne.steps import GramSet
from pipelines.experiments.studies import NOTICE, fixed_key

MSNBC = "pipelines/data/msnbc990928.seq.gz"
PLAN = NgramsPlan(epsilon=1, delta=1e-7, count_share=0)
NOTHING = "nothing"
ONE_ROUND = "nothing, by one_round"
_DEFAULTS = ("max_contributions", "vocabulary_delta_share", "rounds", "favour")
PAPER = {"strategy": "one_round", **dict.fromkeys(_DEFAULTS)}
MANY = 50
COMMON = 1_000
# From ε and the number of a run key to what the run knows.
List = Callable[[float, int], KnownNgrams]
_Row = dict[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class World:
    """Users with their texts, and the plan of their releases."""

    corpus: Corpus
    plan: NgramsPlan = PLAN

    def release(self, known: KnownNgrams, key: int, **changed: Any) -> tuple[GramSet, ...]:
        """Returns what a run under a numbered key releases."""
        plan = dataclasses.replace(self.plan, **changed)
        run_key = fixed_key(key)
        run = InMemory(plan=plan, run_key=run_key, root=root_of(known, plan.max_length))
        return run.release([self.corpus.batch(run_key)])

    def compared(
        self, epsilons: Sequence[float], keys: Sequence[int], lists: Mapping[str, List]
    ) -> list[_Row]:
        """Returns the medians of runs that know nothing, and of those that know each list."""
        judge = Judge(self)
        rows = []
        for epsilon in epsilons:
            medians: dict[str, np.ndarray] = {}
            for name, known_of in {NOTHING: nothing, ONE_ROUND: nothing, **lists}.items():
                runs = []
                is_paper = name == ONE_ROUND
                for key in keys[: 1 if is_paper else None]:
                    known = known_of(epsilon, key)
                    sets = self.release(known, key, epsilon=epsilon, **(PAPER if is_paper else {}))
                    runs.append(judge.counts(sets, known))
                    print(f"{name}, ε = {epsilon:g}, key {key}", file=sys.stderr)
                medians[name] = np.median(runs, axis=0)
                row = {"known": name, "ε": f"{epsilon:g}"}
                rows.append(row | _cells(medians[name], medians[NOTHING][-1]))
        return rows


class Judge:
    """Counts released n-grams beside the texts that they come from."""

    def __init__(self, world: World):
        """Counts the n-grams of the users."""
        self.index = index_corpus(world.corpus, world.plan.max_length)

    def counts(self, sets: Sequence[GramSet], known: KnownNgrams) -> np.ndarray:
        """Returns numbers of n-grams: (T + 1, 4) int64, for each length and for all together.

        Columns are those that somebody has, those that many have, and spurious known and new ones.
        """
        found = []
        previous = root_of(known, len(sets))
        codes = codes_of_sets(self.index.corpus, sets)
        for grams, rows, level in zip(sets, codes, self.index.lengths, strict=True):
            users = np.append(level.users, 0)[self.index.find(rows)]
            is_known = np.zeros(users.size, bool)
            if previous is not None and level.length == 1:
                is_known = places_in(grams.words, known_words(previous)) >= 0
            elif previous is not None and previous.candidates.known is not None:
                is_known = np.isin(grams.keys, previous.candidates.known)
            families = ((users[own] == 0).sum() for own in (is_known, ~is_known))
            found.append([(users > 0).sum(), (users >= MANY).sum(), *families])
            previous = grams
        return np.vstack([found, np.sum(found, axis=0)])


def _cells(own: np.ndarray, base: np.ndarray) -> _Row:
    """Returns the cells of a row with such counts, beside those of all lengths that know nothing."""
    cells = {str(length): f"{each:,.0f}" for length, each in enumerate(own[:-1, 0], 1)}
    for place, name in enumerate(("all", f"{MANY} users")):
        cells |= {name: f"{own[-1, place]:,.0f}", f"ratio, {name}": _ratio(own, base, place)}
    return cells | {"spurious known": f"{own[-1, 2]:g}", "spurious new": f"{own[-1, 3]:g}"}


def _ratio(own: np.ndarray, base: np.ndarray, place: int) -> str:
    return f"{own[-1, place] / base[place]:.3f}"


def always(known: KnownNgrams) -> List:
    """Returns the list that is the same for each run."""
    return lambda *_: known


nothing = always(KnownNgrams.of([]))


def read(path: str, input_format: str = "auto", tokenizer: str = "words") -> Corpus:
    """Returns the texts of a file."""
    return read_corpus(match_inputs([path]), ReadOptions(input_format=input_format), tokenizer)


def halves(corpus: Corpus) -> tuple[Corpus, Corpus]:
    """Returns two halves of the users, in the order of a fixed shuffle."""
    order = np.random.default_rng(0).permutation(len(corpus.users))
    first, second = np.array_split(order, 2)
    return corpus.of_users(first), corpus.of_users(second)


def of_text(corpus: Corpus, min_count: int) -> KnownNgrams:
    """Returns the n-grams that stand several times in texts."""
    counted = count_ngrams(corpus.codes, len(corpus.words), PLAN.max_length, min_count)
    return KnownNgrams.of_codes(corpus.words, [each.rows for each in counted])


def nonsense(known: KnownNgrams) -> KnownNgrams:
    """Returns a million words that nobody has, and some known ones."""
    words = known.words.take(known.grams[0][:COMMON, 0]).to_pylist()
    return KnownNgrams.of((word,) for word in [*(f"qq{each}" for each in range(10**6)), *words])


def spurious(public: Corpus, epsilon: float, runs: int) -> Iterator[_Row]:
    """Yields the mean numbers of spurious n-grams of each length and family, beside their bounds."""
    own, others = halves(public)
    world = World(corpus=with_documents(own, 8, np.random.default_rng(0)))
    judge = Judge(world)
    text = of_text(others, 3)
    known = KnownNgrams.joined([text, nonsense(text)])
    plan = dataclasses.replace(world.plan, epsilon=epsilon)
    sets = [world.release(known, key, epsilon=epsilon) for key in range(1, runs + 1)]
    means = np.mean([judge.counts(each, known) for each in sets], axis=0)
    words = places_in(known.words, world.corpus.words)[known.grams[0]]
    held = np.count_nonzero(judge.index.find(words) >= 0)
    shorter = np.mean([[len(grams) for grams in each] for each in sets], axis=0)
    bounds = plan.spurious_fraction * np.append(held + 1 + plan.held_stddev / 80, shorter)
    for length, (bound, mean) in enumerate(zip(bounds, means[:-1, 2:], strict=False), 1):
        row = {"ε": f"{epsilon:g}", "length": str(length), "bound": f"{bound:.2f}"}
        yield row | {"known": f"{mean[0]:.2f}", "new": f"{mean[1]:.2f}"}


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the table of each part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts = ["titles", "halves", "msnbc"]
    parser.add_argument("titles")
    parser.add_argument("--public", nargs="+", required=True)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1, 4])
    parser.add_argument("--keys", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--parts", nargs="+", default=[*parts, "spurious"])
    given = parser.parse_args(argv)
    named = {name: name.rpartition(":") for name in given.public}
    for part in given.parts:
        if part == "titles":
            texts = {
                name: of_text(read(x, "sequences"), int(n)) for name, (x, _, n) in named.items()
            }
            texts["nonsense"] = nonsense(next(iter(texts.values())))
            lists = {name: always(known) for name, known in texts.items()}
            rows = World(corpus=read(given.titles)).compared(given.epsilons, given.keys, lists)
        elif part == "halves":
            others, own = (World(corpus=each) for each in halves(read(given.titles)))

            def of_others(epsilon: float, key: int, others: World = others) -> KnownNgrams:
                sets = others.release(nothing(epsilon, key), 1_000 + key, epsilon=epsilon)
                return KnownNgrams.of_codes(others.corpus.words, codes_of_sets(others.corpus, sets))

            rows = own.compared(given.epsilons, given.keys, {"a release of the others": of_others})
        elif part == "msnbc":
            corpus = read(MSNBC, "sequences", "whitespace")
            plan = dataclasses.replace(PLAN, max_length=6)
            pages = KnownNgrams.of((str(page),) for page in range(1, 18))
            rows = World(corpus=corpus, plan=plan).compared(
                [1], given.keys, {"17 pages": always(pages)}
            )
        else:
            public = read(named[given.public[0]][0], "sequences")
            rows = [row for each in given.epsilons for row in spurious(public, each, given.runs)]
        print_table(f"{NOTICE} {part}", rows)


if __name__ == "__main__":
    main()
