"""The items that the policies of set union release, and their time, as tables on stdout.

Not private: results are counted on the data, under run keys that are public. Only for public data.
"""

import argparse
import dataclasses
import functools
import math
import pathlib
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from beam_dpne.cli import display
from beam_dpne.counts.rule import COUNT_SHARE
from beam_dpne.reading.options import ReadOptions
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.set_union.policies import DEFAULT_POLICY, DESCENT_POLICIES, POLICIES
from beam_dpne.set_union.threshold import release_items
from beam_dpne.set_union.transform import run_context
from beam_dpne.validation import check_choice, check_integer
from pipelines.experiments import runner, union_policies
from pipelines.experiments.corpora import Corpora, Source
from pipelines.experiments.paper_parts import PUBLISHED
from pipelines.experiments.runner import fixed_key
from pipelines.experiments.union_counts import CountedUnion, judge_union, print_counts
from pipelines.experiments.union_policies import UnionParameters

EVERY = (*POLICIES, *union_policies.POLICIES)
_CORPUS, _WORDS = "input", "words"
# A promise that holds for every input that fits in memory here; each shard may have all users.
_MOST_USERS = 10_000_000


class Measured(NamedTuple):
    """The median number of released items over run keys, and the least time of a release."""

    items: float
    seconds: float


def main(argv: Sequence[str], data: pathlib.Path) -> int:
    """Runs the program and returns its exit status.

    Args:
      argv: Options.
      data: Folder of the data that ship with the repository.
    """
    parser = runner.program("measure_unions.py", __doc__)
    add = parser.add_argument
    add("--input", help="JSON lines with user and text (default: the sample of titles)")
    add("--epsilon", type=float, default=3.0, help="ε of each release")
    add("--delta", type=float, default=math.exp(-10), help="δ of each release")
    add("--limits", type=runner.numbers, default=(100, 300, 1000), help="Δ_0, with commas")
    add("--shards", type=runner.numbers, default=(1, 2, 8, 64, 512), help="M, with commas")
    add("--policies", type=runner.names, default=EVERY, help="beside the default, with commas")
    add("--counts", action="store_true", help="measure numbers of users, at the first limit")
    add("--keys", type=int, default=3, help="number of run keys; tables show medians")
    return runner.run(parser, argv, lambda given: _command(given, data))


def _command(given: argparse.Namespace, data: pathlib.Path) -> None:
    for policy in given.policies:
        check_choice("policies", policy, EVERY)
    check_integer("keys", given.keys, 1)
    budget = {"epsilon": given.epsilon, "delta": given.delta, "count_share": 0.0}
    wanted = [policy for policy in EVERY if policy in (DEFAULT_POLICY, *given.policies)]
    by_policy = {
        policy: [_plan(budget, policy, limit) for limit in given.limits] for policy in wanted
    }
    by_shards = [_sharded(budget, shards) for shards in given.shards]
    if given.input and not pathlib.Path(given.input).is_file():
        raise ValueError(f"input must name an existing file, got {given.input}.")
    print(runner.NOTICE)
    path = given.input or str(data / runner.TITLES_FILE)
    source = Source(path=path, title="", note="", reading=ReadOptions(), tokenizer=_WORDS)
    with tempfile.TemporaryDirectory() as folder:
        corpora = Corpora({_CORPUS: source}, pathlib.Path(folder), fixed_key(0), {})
        if given.counts:
            judged = {
                policy: _judge(
                    corpora, given.keys, own, dataclasses.replace(own, count_share=COUNT_SHARE)
                )
                for policy, (own, *_) in by_policy.items()
                if isinstance(own, SetUnionPlan)
            }
            print_counts(given, judged)
            return
        measure = functools.partial(_measure, corpora, given.keys)
        _print_policies(given, {name: [*map(measure, own)] for name, own in by_policy.items()})
        _print_shards(given, [*map(measure, by_shards)])


def _plan(budget: Mapping[str, Any], policy: str, limit: int) -> SetUnionPlan | UnionParameters:
    """Returns the plan of a policy: published descents in one sequence, others by default."""
    if policy in union_policies.POLICIES:
        epsilon, delta = budget["epsilon"], budget["delta"]
        return UnionParameters(epsilon=epsilon, delta=delta, policy=policy, max_contributions=limit)
    published: dict[str, Any] = {}
    if policy in DESCENT_POLICIES and policy in PUBLISHED:
        published = {"shards": 1, "max_shard_users": _MOST_USERS}
    return SetUnionPlan(**budget, policy=policy, max_contributions=limit, **published)


def _sharded(budget: Mapping[str, Any], shards: int) -> SetUnionPlan:
    return SetUnionPlan(**budget, shards=shards, max_shard_users=_MOST_USERS)


def _measure(corpora: Corpora, keys: int, plan: SetUnionPlan | UnionParameters) -> Measured:
    sizes, seconds = [], []
    for key in range(1, keys + 1):
        if isinstance(plan, UnionParameters):
            held = corpora.holdings(_CORPUS)
            started = time.monotonic()
            sizes.append(union_policies.release_items(held, plan, key).size)
            seconds.append(time.monotonic() - started)
            continue
        run_key = fixed_key(key).bound_to(run_context(plan, _WORDS))
        items = corpora.user_items(_CORPUS, run_key)
        started = time.monotonic()
        sizes.append(len(release_items(items, plan, run_key)))
        seconds.append(time.monotonic() - started)
    return Measured(statistics.median(sizes), min(seconds))


def _judge(
    corpora: Corpora, keys: int, plain: SetUnionPlan, counted: SetUnionPlan
) -> list[CountedUnion]:
    """Returns the figures of releases with numbers of users, beside releases without."""
    judged = []
    for key in range(1, keys + 1):
        plain_key, run_key = (
            fixed_key(key).bound_to(run_context(plan, _WORDS)) for plan in (plain, counted)
        )
        without = len(release_items(corpora.user_items(_CORPUS, plain_key), plain, plain_key))
        users = corpora.user_items(_CORPUS, run_key)
        index = corpora.index(_CORPUS, 1)
        judged.append(judge_union(users, index, counted, run_key, without=without))
    return judged


def _print_policies(given: argparse.Namespace, measured: Mapping[str, list[Measured]]) -> None:
    """Prints the items of each policy at each limit, and the default's over the best of each."""
    first, *_ = measured[DEFAULT_POLICY]
    rows = []
    for policy, own in measured.items():
        best = max(each.items for each in own)
        ratio = f"{first.items / best:.2f}" if best else "-"
        rows.append(
            [policy, *(f"{each.items:,.0f}" for each in own), f"{own[0].seconds:.1f} s", ratio]
        )
    limits = [f"{limit:,}" for limit in given.limits]
    headings = ("policy", *limits, "time", "default over its best")
    title = f"Items over the number of items per user; ε = {given.epsilon:g}"
    display.print_table(f"{title}, medians of {given.keys} keys", headings, rows)


def _print_shards(given: argparse.Namespace, measured: Sequence[Measured]) -> None:
    """Prints the items and the time of the default with several numbers of shards."""
    most = max(each.items for each in measured)
    rows = [
        [
            f"{shards:,}",
            f"{each.items:,.0f}",
            f"{1 - each.items / most:.1%}" if most else "-",
            f"{each.seconds:.1f} s",
        ]
        for shards, each in zip(given.shards, measured, strict=True)
    ]
    title = f"{DEFAULT_POLICY} over the number of shards; ε = {given.epsilon:g}"
    display.print_table(title, ("shards", "items", "loss", "time of all shards"), rows)
