"""How well the numbers of users of released items agree with the truth, policy by policy.

Not private: results are counted on the data, under run keys that are public. Only for public data.
"""

import argparse
import statistics
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from beam_dpne.cli import display
from beam_dpne.evaluation.corpus import GramIndex
from beam_dpne.evaluation.counts import TOP_K, count_quality, rows_of_table
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.set_union.elements import UserItems, item_table
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.set_union.threshold import release_items

_HEADINGS = (
    "policy",
    "items",
    "fewer",
    "covered",
    "ρ users",
    "ρ score",
    f"top {TOP_K} users",
    "high ≤ 4 low",
)
_FORMS = (",.0f", ".0%", ".0%", ".2f", ".2f", ".0f", ".0%")
Number = float | int | None


class CountedUnion(NamedTuple):
    """The figures of one release with numbers of users.

    Attributes:
      items: Number of released items.
      loss: The part of the items that a release without numbers of users has more.
      coverage: Share of the items whose interval has the true number; None without items, as are the
        figures below.
      rank_correlation: Spearman's rank correlation of `users` with the true numbers.
      score_rank_correlation: That of `score`.
      top: Number of the first TOP_K items by `users` that are among the most common of the data.
      narrow: Share of the items with users_high ≤ 4 · users_low.
    """

    items: int
    loss: Number
    coverage: Number
    rank_correlation: Number
    score_rank_correlation: Number
    top: Number
    narrow: Number


def judge_union(
    users: UserItems, index: GramIndex, plan: SetUnionPlan, run_key: RunKey, *, without: int
) -> CountedUnion:
    """Releases items with numbers of users in memory, and compares them with the truth.

    Args:
      users: All users under the run key.
      index: Users of each word of the same corpus.
      plan: A plan with a count_share above 0.
      run_key: Bound to the parameters of the run.
      without: Number of items of a release without numbers of users.
    """
    table = item_table([release_items(users, plan, run_key)])
    rows = rows_of_table(index, table)[1]
    (words,) = index.lengths[:1]
    quality = count_quality(rows, 1, words.top(TOP_K))
    narrow = None
    if rows.users is not None and len(table):
        _, low, high = rows.users.T
        narrow = float(np.mean(high <= 4 * low))
    return CountedUnion(
        items=len(table),
        loss=1 - len(table) / without if without else None,
        coverage=quality.coverage,
        rank_correlation=quality.rank_correlation,
        score_rank_correlation=quality.score_rank_correlation,
        top=quality.top,
        narrow=narrow,
    )


def print_counts(given: argparse.Namespace, found: Mapping[str, Iterable[CountedUnion]]) -> None:
    """Prints the medians over run keys of each policy's figures.

    Args:
      given: The options of the program.
      found: The figures of each run key, by policy.
    """
    rows = [
        [policy, *map(_cell, zip(*figures, strict=True), _FORMS)]
        for policy, figures in found.items()
    ]
    title = f"Numbers of users at ε = {given.epsilon:g}, medians of {given.keys} keys"
    display.print_table(title, _HEADINGS, rows)


def _cell(found: Iterable[Number], form: str) -> str:
    known = [value for value in found if value is not None]
    return format(statistics.median(known), form) if known else "-"
