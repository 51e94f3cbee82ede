"""python -m pipelines.experiments.communities TITLES [--epsilons 1 4 10] [--worlds groups …]

Numbers of users where users differ by group: titles, one a line, are dealt to four communities whose
users have 1, 3, 12 and 60 titles, and each community says half of the words in its own way. In the
world "groups" the community is the group of a title; in the world "communities" there are no groups,
and a community has the rows of which it has more than four of five holders.
"""

import argparse
import gzip
import hashlib
import json
import pathlib
import random
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from beam_dpne import NgramsPlan, RunKey
from beam_dpne.cli.display import print_table
from beam_dpne.documents.blocks import hash_users
from beam_dpne.elements.arrays import rows_of_entries
from beam_dpne.elements.batches import UserBatch
from beam_dpne.ngrams.elements import GramSet
from beam_dpne.ngrams.in_memory import release_ngrams
from beam_dpne.ngrams.released_rows import GramRows
from pipelines.experiments.corpora import Data, Source
from pipelines.experiments.intervals import FEWEST, dealt
from pipelines.experiments.studies import NOTICE

TITLES_OF_A_USER = {"one": 1, "three": 3, "dozen": 12, "sixty": 60}
WORLDS = {"groups": "group", "communities": None}
# The part of a row's holders that makes it a row of their community.
MOSTLY = 0.8
_WORD = re.compile(r"\w+")
Grouped = Iterator[tuple[str, str, str]]


def own_words(community: str) -> Callable[[str], str]:
    """Returns a function that exchanges half of the words of a text by a keyed bijection.

    The communities' own words are hashes, so that no two communities share one.
    """
    key = community.encode()

    def exchanged(match: re.Match[str]) -> str:
        word = match[0].lower()
        mark = hashlib.blake2b(word.encode(), key=key, digest_size=8)
        return f"w{mark.hexdigest()}" if mark.digest()[0] % 2 else word

    return lambda text: _WORD.sub(exchanged, text)


def communities(texts: list[str], *, same_users: bool = False) -> Grouped:
    """Yields the user, the text and the community of each title.

    Args:
      texts: the titles.
      same_users: whether communities have as many users each, and not as many titles.
    """
    sizes = TITLES_OF_A_USER
    part = len(texts) // len(sizes)
    users = len(texts) // sum(sizes.values())
    first = 0
    for name, size in sizes.items():
        count = users * size if same_users else part
        say = own_words(name)
        for user, text in dealt(texts[first : first + count], [size] * count, f"{name} "):
            yield user, say(text), name
        first += count


def judged(data: Data, epsilon: float, seed: int) -> list[dict[str, str]]:
    """Returns the measures of one release: of all rows, of each community, and of rare rows."""
    plan = NgramsPlan(epsilon=epsilon, delta=1e-6)
    key = RunKey(bytes([seed] * 32))
    is_grouped = data.source.group_field is not None
    batches = list(data.user_batches(plan.max_tokens_per_user, key))
    sets = release_ngrams(batches, plan, key, is_grouped=is_grouped)
    rows = GramRows(pruning=plan.pruning)
    of_communities = _holders(data, batches, sets, rows, key)
    counts = of_communities.sum(axis=0)
    users = np.concatenate([grams.users for grams in sets if grams.users is not None])
    lengths = np.repeat(np.arange(len(sets)), [len(grams) for grams in sets])
    chosen = {"all": np.ones(counts.size, bool)}
    groups = rows.groups(sets)
    for name, own in zip(sorted(TITLES_OF_A_USER), of_communities, strict=True):
        is_own = own > MOSTLY * counts
        # Nobody may hold a row of a group.
        chosen[name] = is_own if groups is None else groups == groups[own.argmax()]
    of_groups = np.zeros(counts.size, np.int64) if groups is None else groups
    chosen["first 20"] = _first(users, lengths, of_groups)
    chosen["lightest 5 %"] = np.argsort(np.argsort(counts, kind="stable")) < counts.size / 20
    chosen["of fewer than 20 users"] = counts < 20
    found: list[dict[str, str]] = []
    for name, some in chosen.items():
        if some.any():
            found.append({"n-grams": name} | _measures(users[some], counts[some]))
    return found


def _holders(
    data: Data, batches: list[UserBatch], sets: Sequence[GramSet], rows: GramRows, key: RunKey
) -> np.ndarray:
    """Returns how many users of each community, in the order of their names, hold each row."""
    names = sorted(TITLES_OF_A_USER)
    hashes = hash_users(data.corpus.users, key.sub_key("user"))
    of_users = {
        of_user.tobytes(): names.index(user.split()[0])
        for of_user, user in zip(hashes, data.corpus.users.to_pylist(), strict=True)
    }
    size = sum(map(len, sets))
    holders = np.zeros((len(names), size), np.int64)
    for batch in batches:
        own = rows.held(batch, sets)
        communities_of_users = np.array([of_users[user.tobytes()] for user in batch.users])
        communities_of_pairs = communities_of_users[rows_of_entries(own.offsets)]
        for place in range(len(names)):
            mine = own.rows[communities_of_pairs == place]
            holders[place] += np.bincount(mine, minlength=size)
    return holders


def _first(users: np.ndarray, lengths: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Returns whether each row is of the first 20 of its length and group, if these have 100 rows."""
    order = np.lexsort((-users[:, 0], groups, lengths))
    parts = np.stack((lengths, groups), axis=1)[order]
    starts = np.flatnonzero(np.any(parts[1:] != parts[:-1], axis=1)) + 1
    is_first = np.zeros(order.size, bool)
    for own in np.split(order, starts):
        if own.size >= FEWEST:
            is_first[own[:20]] = True
    return is_first


def _measures(users: np.ndarray, counts: np.ndarray) -> dict[str, str]:
    inside = (users[:, 1] <= counts) & (counts <= users[:, 2])
    real = counts > 0
    ratios = users[real, 0] / counts[real]
    return {
        "rows": f"{counts.size:,}",
        "estimate over truth": f"{np.median(ratios):.2f}",
        "covered": f"{inside.mean():.3f}",
        "median error": f"{np.median(abs(ratios - 1)):.2f}",
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Prints a table of all worlds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("titles", type=pathlib.Path)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1, 4, 10])
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=[*WORLDS])
    parser.add_argument("--same_users", action="store_true")
    parser.add_argument("--repeats", type=int, default=1)
    given = parser.parse_args(argv)
    with gzip.open(given.titles, "rt", encoding="utf-8") as lines:
        texts = [line.strip() for line in lines]
    random.Random(7).shuffle(texts)
    table: list[dict[str, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "titles.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for user, text, group in communities(texts, same_users=given.same_users):
                file.write(json.dumps({"user": user, "text": text, "group": group}) + "\n")
        for world in given.worlds:
            source = Source(
                path=str(path), title=world, note="", max_length=5, group_field=WORLDS[world]
            )
            data = Data(source)
            for epsilon in given.epsilons:
                for seed in range(given.repeats):
                    head = {"texts": world, "ε": f"{epsilon:g}"}
                    table += [head | row for row in judged(data, epsilon, seed)]
    print_table(f"{NOTICE} Numbers of users of unlike communities", table)


if __name__ == "__main__":
    main()
