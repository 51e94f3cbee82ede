"""python -m pipelines.experiments.phrase_counts TITLES [--file USERS_AND_TITLES] [--keys 20]

How many true numbers of users the intervals of `beam-dpne count` contain, and how wide they are, for
lists of 20, 200 and 5,000 phrases of all lengths and frequencies, a tenth of them of nobody.

TITLES are public titles, one a line. They are dealt to made-up users: with heavy-tailed numbers of
titles, and as four communities whose users have 1, 3, 12 and 60 titles, with half of the words of each
exchanged for words of its own. The widths are compared with the Gaussian mechanism that keeps a random
subset of Δ phrases of each user, for the Δ that has the least root mean square error with hindsight.
"""

import argparse
import collections
import gzip
import hashlib
import json
import math
import pathlib
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import scipy

from beam_dpne import PhraseCountsPlan, PhraseList, RunKey
from beam_dpne.cli.display import print_table
from beam_dpne.counts.measuring import Held
from beam_dpne.elements.arrays import rows_of_entries
from beam_dpne.phrase_counts.elements import PhraseNumbers
from beam_dpne.phrase_counts.estimates import Widths
from beam_dpne.phrase_counts.run import bound_of, numbers_of
from beam_dpne.phrase_counts.sums import sum_excess, sum_numbers, sum_sizes
from pipelines.experiments.intervals import dealt, unequal
from pipelines.experiments.studies import NOTICE

SIZES = (20, 200, 5_000)
EPSILONS = (0.5, 1.0, 4.0)
_LONGEST = 3
_NOBODY = 0.1
_FEW = 20
_TITLES_OF_A_COMMUNITY = (1, 3, 12, 60)
_BOUNDS = 80
_QUANTILE = 1.96
Documents = Iterable[tuple[str, str]]


class World(NamedTuple):
    """Users of a list.

    Attributes:
      held: the rows of the list that each user holds.
      truth: the number of users of each phrase.
      parts: phrases whose coverage is looked at apart, each by a mask.
    """

    held: Held
    truth: np.ndarray
    parts: dict[str, np.ndarray]


def communities(titles: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields four communities; half of the words of each are its own, by a keyed bijection."""
    quarter = len(titles) // len(_TITLES_OF_A_COMMUNITY)
    for number, size in enumerate(_TITLES_OF_A_COMMUNITY):
        own = titles[number * quarter : (number + 1) * quarter]
        words = [" ".join(_own_word(word, number) for word in title.split()) for title in own]
        yield from dealt(words, [size] * (quarter // size), f"{number} ")


def _own_word(word: str, community: int) -> str:
    """Returns a word, or for half of all words the one that a community has in its place."""
    digest = hashlib.sha256(f"{community} {word}".encode()).digest()
    return f"{word}~{community}" if digest[0] % 2 else word


def phrases_of_users(documents: Documents) -> list[set[str]]:
    """Returns the phrases of one to three words that each user has."""
    users: dict[str, set[str]] = collections.defaultdict(set)
    for user, text in documents:
        words = text.lower().split()
        for length in range(1, _LONGEST + 1):
            starts = range(len(words) - length + 1)
            users[user].update(" ".join(words[start : start + length]) for start in starts)
    return list(users.values())


def listed(users: Sequence[set[str]], size: int) -> list[str]:
    """Returns phrases of all frequencies: as many of each octave of users, and some of nobody."""
    counts = collections.Counter(phrase for held in users for phrase in held)
    octaves: dict[int, list[str]] = collections.defaultdict(list)
    for phrase in sorted(counts):
        octaves[counts[phrase].bit_length()].append(phrase)
    draw = random.Random(size)
    chosen = [f"nobody has {number}" for number in range(int(_NOBODY * size))]
    waiting = [draw.sample(octaves[octave], len(octaves[octave])) for octave in sorted(octaves)]
    while len(chosen) < size:
        for octave in waiting:
            if octave and len(chosen) < size:
                chosen.append(octave.pop())
    return sorted(chosen)


def world_of(users: Sequence[set[str]], phrases: Sequence[str]) -> World:
    """Returns which phrases users hold, and the parts of the list."""
    row_of = {phrase: row for row, phrase in enumerate(phrases)}
    pairs = [
        (number, row_of[phrase])
        for number, held in enumerate(users)
        for phrase in held.intersection(row_of)
    ]
    user, row = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    held = Held.of(user, row, user_count=len(users), row_count=len(phrases))
    truth = np.bincount(held.rows, minlength=len(phrases))
    # The mean number of phrases of a phrase's users: where they are many, users may be above a bound.
    sizes = np.diff(held.offsets)[rows_of_entries(held.offsets)]
    means = np.bincount(held.rows, sizes, len(phrases)) / np.maximum(truth, 1)
    cuts = np.quantile(means[truth > 0], [1 / 3, 2 / 3])
    parts = {
        "first 20": truth >= np.sort(truth)[-min(20, truth.size)],
        "few": (truth > 0) & (truth < _FEW),
        "nobody": truth == 0,
        "light": (truth > 0) & (means <= cuts[0]),
        "middle": (means > cuts[0]) & (means <= cuts[1]),
        "heavy": means > cuts[1],
    }
    for number in range(len(_TITLES_OF_A_COMMUNITY)):
        own = np.array([f"~{number}" in phrase for phrase in phrases]) & (truth > 0)
        if own.any():
            parts[f"community {number + 1}"] = own
    return World(held=held, truth=truth, parts=parts)


class Single(NamedTuple):
    """A single bound on users.

    Attributes:
      error: the mean square error of a phrase.
      bound: Δ, so many phrases of a user are kept at random.
      half: half the width of its intervals of 95 %, which know of the noise alone.
      shortfall: the mean shortfall of a phrase.
      covered: the share of phrases whose interval contains their number of users.
      first: the same share of the first 20.
    """

    error: float
    bound: int
    half: float
    shortfall: float
    covered: float
    first: float


def best_single_bound(world: World, noise: float) -> Single:
    """Returns the single bound of the least error with hindsight.

    Args:
      world: the users.
      noise: σ of a Gaussian mechanism of sensitivity 1 for the whole budget.
    """
    sizes = np.diff(world.held.offsets)
    of_entries = sizes[rows_of_entries(world.held.offsets)]
    bounds = np.unique(np.rint(np.geomspace(1, sizes.max(), _BOUNDS)).astype(int)).tolist()
    found = []
    for bound in bounds:
        missing = np.maximum(0, 1 - bound / of_entries)
        shortfall = np.bincount(world.held.rows, missing, world.truth.size)
        stddev = noise * math.sqrt(bound)
        off = shortfall / stddev
        covered = scipy.special.ndtr(_QUANTILE - off) - scipy.special.ndtr(-_QUANTILE - off)
        found.append(
            Single(
                error=float(np.mean(shortfall**2)) + stddev**2,
                bound=bound,
                half=_QUANTILE * stddev,
                shortfall=float(shortfall.mean()),
                covered=float(covered.mean()),
                first=float(covered[world.parts["first 20"]].mean()),
            )
        )
    return min(found)


def _widths_of(found: PhraseNumbers) -> Widths:
    return Widths(
        stddev=found.stddev,
        shortfall=found.shortfall,
        shortfall_stddev=found.shortfall_stddev,
    )


def judged(world: World, epsilon: float, keys: int) -> dict[str, str]:
    """Returns the measures of counts of one list: means over keys."""
    plan = PhraseCountsPlan(epsilon=epsilon, delta=1e-6)
    members = world.truth.size
    phrases = PhraseList.of([(f"{row:07}",) for row in range(members)])
    covered = np.zeros(members)
    halves = []
    cut = []
    bounds = []
    for number in range(keys):
        key = RunKey(f"{number} {epsilon} {members}".encode().ljust(32, b"."))
        bound = bound_of([sum_sizes(world.held, members)], members, plan, key)
        found = numbers_of(
            [sum_excess(world.held, bound)],
            [sum_numbers(world.held, bound)],
            phrases,
            bound=bound,
            plan=plan,
            run_key=key,
        )
        _, low, high = found.users.reshape(-1, 3).T
        covered += (low <= world.truth) & (world.truth <= high)
        halves.append(_widths_of(found).half)
        cut.append((high - low).mean() / 2)
        bounds.append(bound.most)
    best = best_single_bound(world, plan.noise_stddev)
    parts = {name: covered[mask].mean() / keys for name, mask in world.parts.items() if mask.any()}
    lowest = min(parts, key=lambda name: parts[name])
    return {
        "phrases": f"{members:,}",
        "ε": f"{epsilon:g}",
        "bound": f"{np.median(bounds):.0f}",
        "half width": f"{np.mean(halves):.1f}",
        "cut at 0": f"{np.mean(cut):.1f}",
        "best Δ": str(best.bound),
        "its half width": f"{best.half:.1f}",
        "its shortfall": f"{best.shortfall:.1f}",
        "it covers": f"{best.covered:.3f}",
        "of the first 20": f"{best.first:.3f}",
        "ratio": f"{np.mean(halves) / best.half:.2f}",
        "covered": f"{covered.mean() / keys:.3f}",
        "lowest part": f"{parts[lowest]:.3f} ({lowest})",
        **{name: f"{parts[name]:.3f}" if name in parts else "" for name in world.parts},
    }


def main() -> None:
    """Prints a table for each kind of users."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("titles", type=pathlib.Path)
    parser.add_argument("--file", type=pathlib.Path)
    parser.add_argument("--keys", type=int, default=20)
    given = parser.parse_args()
    with gzip.open(given.titles, "rt", encoding="utf-8") as file:
        titles = file.read().splitlines()
    random.Random(7).shuffle(titles)
    worlds: dict[str, Documents] = {
        "very unequal users": dealt(titles, unequal(len(titles))),
        "communities": communities(titles),
    }
    if given.file is not None:
        with gzip.open(given.file, "rt", encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        worlds[given.file.name] = ((row["user"], row["text"]) for row in rows)
    print(NOTICE)
    for name, documents in worlds.items():
        users = phrases_of_users(documents)
        lists = [world_of(users, listed(users, size)) for size in SIZES]
        rows = [judged(world, epsilon, given.keys) for world in lists for epsilon in EPSILONS]
        print_table(f"{name}: {len(users):,} users", rows)


if __name__ == "__main__":
    main()
