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
from beam_dpne.cli.options import (
    Option,
    add_options,
    integer,
    integers,
    names,
    number,
    with_defaults,
)
from beam_dpne.cli.parsing import OneLineParser
from beam_dpne.counts.defaults import COUNT_SHARE
from beam_dpne.errors import UsageError
from beam_dpne.evaluation.secrecy import NOTICE
from beam_dpne.reading.options import ReadOptions
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.set_union.policies import DEFAULT_POLICY, DESCENT_POLICIES, POLICIES
from beam_dpne.set_union.threshold import release_items
from beam_dpne.set_union.transform import run_context
from beam_dpne.validation import check_choice
from pipelines.experiments import union_policies
from pipelines.experiments.corpora import Corpora, Source
from pipelines.experiments.paper_parts import PUBLISHED
from pipelines.experiments.program import TITLES_FILE, fixed_key, run_program
from pipelines.experiments.union_counts import CountedUnion, judge_union, print_counts
from pipelines.experiments.union_policies import UnionParameters

PROGRAM = "measure_unions.py"
OPTIONS = (
    Option(
        name="input",
        path="file",
        help="Texts of users, JSON lines with user and text; without it, the sample of titles that "
        "ships with this program.",
    ),
    Option(name="epsilon", default=3.0, parse=number, help="ε of each release."),
    Option(name="delta", default=math.exp(-10), parse=number, help="δ of each release."),
    Option(name="limits", default=(100, 300, 1000), parse=integers, help="Δ_0, with commas."),
    Option(name="shards", default=(1, 2, 8, 64, 512), parse=integers, help="M, with commas."),
    Option(
        name="policies",
        default=(*POLICIES, *union_policies.POLICIES),
        parse=names,
        help="Policies, with commas; the default policy is always measured too.",
    ),
    Option(
        name="counts",
        flag=True,
        help="Measure numbers of users instead, at the first of the limits.",
    ),
    Option(name="keys", default=3, parse=integer, help="Number of run keys; tables show medians."),
)
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
    parser = OneLineParser(
        prog=PROGRAM,
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(parser, "measuring", OPTIONS)
    parser.set_defaults(command=functools.partial(_command, data=data))
    return run_program(parser, argv)


def _command(parsed: argparse.Namespace, beam_arguments: Sequence[str], data: pathlib.Path) -> None:
    if beam_arguments:
        raise UsageError(f"{PROGRAM} has no option {beam_arguments[0].split('=')[0]}.")
    values = with_defaults(parsed, OPTIONS)
    for policy in values["policies"]:
        check_choice("policies", policy, (*POLICIES, *union_policies.POLICIES))
    for name in ("limits", "shards"):
        values[name] = values[name] if isinstance(values[name], tuple) else (values[name],)
    if values["keys"] < 1:
        raise UsageError(f"keys must be at least 1, got keys={values['keys']}.")
    budget = {"epsilon": values["epsilon"], "delta": values["delta"], "count_share": 0.0}
    by_policy = {
        policy: [_plan(budget, policy, limit) for limit in values["limits"]]
        for policy in (*POLICIES, *union_policies.POLICIES)
        if policy in (DEFAULT_POLICY, *values["policies"])
    }
    by_shards = [_sharded(budget, shards) for shards in values["shards"]]
    counted = {
        policy: (own[0], dataclasses.replace(own[0], count_share=COUNT_SHARE))
        for policy, own in by_policy.items()
        if isinstance(own[0], SetUnionPlan)
    }
    if values["input"]:
        if not pathlib.Path(values["input"]).is_file():
            raise UsageError(f"input must name an existing file, got {values['input']}.")
        display.print_line(NOTICE)
    path = values["input"] or str(data / TITLES_FILE)
    source = Source(path=path, title="", note="", reading=ReadOptions(), tokenizer=_WORDS)
    with tempfile.TemporaryDirectory() as folder:
        corpora = Corpora({_CORPUS: source}, pathlib.Path(folder), fixed_key(0), {})
        if values["counts"]:
            judge = functools.partial(_judge, corpora, values["keys"])
            print_counts(values, {policy: judge(*plans) for policy, plans in counted.items()})
            return
        measure = functools.partial(_measure, corpora, values["keys"])
        _print_policies(values, {name: [*map(measure, own)] for name, own in by_policy.items()})
        _print_shards(values, [*map(measure, by_shards)])


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


def _print_policies(values: Mapping[str, Any], measured: Mapping[str, list[Measured]]) -> None:
    """Prints the items of each policy at each limit, and the default's over the best of each."""
    first, *_ = measured[DEFAULT_POLICY]
    rows = []
    for policy, own in measured.items():
        best = max(each.items for each in own)
        ratio = f"{first.items / best:.2f}" if best else "-"
        rows.append(
            [policy, *(f"{each.items:,.0f}" for each in own), f"{own[0].seconds:.1f} s", ratio]
        )
    limits = [f"{limit:,}" for limit in values["limits"]]
    headings = ("policy", *limits, "time", "default over its best")
    title = f"Items over the number of items per user; ε = {values['epsilon']:g}"
    display.print_table(f"{title}, medians of {values['keys']} keys", headings, rows)


def _print_shards(values: Mapping[str, Any], measured: Sequence[Measured]) -> None:
    """Prints the items and the time of the default with several numbers of shards."""
    most = max(each.items for each in measured)
    rows = [
        [
            f"{shards:,}",
            f"{each.items:,.0f}",
            f"{1 - each.items / most:.1%}" if most else "-",
            f"{each.seconds:.1f} s",
        ]
        for shards, each in zip(values["shards"], measured, strict=True)
    ]
    title = f"{DEFAULT_POLICY} over the number of shards; ε = {values['epsilon']:g}"
    display.print_table(title, ("shards", "items", "loss", "time of all shards"), rows)
