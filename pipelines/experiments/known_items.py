"""python -m pipelines.experiments.known_items TITLES --known PUBLIC_TEXT --known OTHER_TEXT

Set unions of words that know nothing, each list alone, and a million words that nobody has, without
numbers of users. The table has medians of the run keys 1, 2 and 3: real items, how many times as many
as without a list, those that at least 20 users have, and items that nobody has. NOT private: for
public data only. --policy takes another policy.
"""

import argparse
import math
import os
import statistics
from collections.abc import Sequence

import numpy as np

from beam_dpne.cli.display import print_table
from beam_dpne.documents.run_keys import key_context
from beam_dpne.elements.arrays import places_in
from beam_dpne.lists.known import KnownNgrams, read_known
from beam_dpne.lists.parameters import KNOWN_MIN_COUNT, KnownLists
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.set_union.in_memory import release_items
from beam_dpne.set_union.plan import POLICIES, SetUnionPlan
from pipelines.experiments.corpora import Data, titles_source

KEYS = (1, 2, 3)
NONSENSE = 1_000_000
SOME = 20


def measure(data: Data, plan: SetUnionPlan, known: KnownNgrams | None, key: int) -> list[int]:
    """Returns numbers of items: real ones, those that `SOME` users have, and those that nobody has."""
    items = None if known is None else known.items
    context = key_context(plan, "words", public=items.sha256 if items else "")
    run_key = RunKey(bytes([key]) * 32).bound_to(context)
    users = data.user_items(run_key)
    found = places_in(release_items(users, plan, run_key, items).items, users.words)
    real = np.bincount(users.codes, minlength=len(users.words))[found[found >= 0]]
    return [real.size, int(np.count_nonzero(real >= SOME)), len(found) - real.size]


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("titles")
    parser.add_argument("--known", action="append", default=[])
    parser.add_argument("--known_min_count", type=int, default=KNOWN_MIN_COUNT)
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--delta", type=float, default=math.exp(-10))
    parser.add_argument("--policy", choices=POLICIES, default="screened_gaussian")
    given = parser.parse_args(argv)
    lists = {}
    for path in given.known:
        asked = KnownLists(known=path, known_min_count=given.known_min_count)
        lists[os.path.basename(path)] = read_known(asked, 1, "words")
    lists["nonsense"] = KnownNgrams.of((f"nonsense{number}",) for number in range(NONSENSE))
    data = Data(titles_source(given.titles, given.titles, ""))
    plan = SetUnionPlan(
        epsilon=given.epsilon, delta=given.delta, policy=given.policy, count_share=0.0
    )
    rows = []
    for name, known in {"nothing": None, **lists}.items():
        runs = zip(*(measure(data, plan, known, key) for key in KEYS), strict=True)
        real, some, spurious = map(statistics.median, runs)
        ratio = real / (rows[0]["items"] if rows else real)
        row = {"known": name, "of": len(known.items) if known else 0, "items": real}
        rows.append({**row, "ratio": round(ratio, 3), f"{SOME} users": some, "spurious": spurious})
    about = f"{plan.policy}, ε = {plan.epsilon:g}, δ = {plan.delta:.3g}"
    title = f"NOT PRIVATE, for public data only: {about}"
    print_table(title, rows)


if __name__ == "__main__":
    main()
