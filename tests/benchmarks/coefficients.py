"""The coefficients of the cost model in deploy/README.md: bytes and seconds of each step's kernel.

    python -m tests.benchmarks.coefficients --titles PATH [--partitions 16]

runs the steps of a run one after the other in this process, without Beam, on a corpus of
`{"user", "text"}` lines, and prints for each what it made, how many bytes that encodes to,
and the CPU seconds that it takes.
"""

import argparse
import pathlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from beam_dpne import PrivacyPlan, RunKey
from beam_dpne.documents import tokenizers
from beam_dpne.documents.group_by_user import (
    encode_documents,
    hash_users,
    lay_out_positions,
    limit_documents,
    split_by_user,
)
from beam_dpne.elements.batches import DocumentBlock, UserBatch
from beam_dpne.elements.coders import BatchCoder
from beam_dpne.ngrams.candidates import extract_grams, prune_invalid
from beam_dpne.ngrams.contributions import limit_contributions
from beam_dpne.ngrams.elements import ROOT, GramSet, HistogramShard
from beam_dpne.ngrams.histogram import cut_by_hash_range, merge_shards, sum_contributions
from beam_dpne.ngrams.spurious import sample_spurious
from beam_dpne.ngrams.threshold import decide, merge_released
from beam_dpne.ngrams.valid import rule_for
from beam_dpne.reading import ReadOptions, match_inputs
from beam_dpne.reading.transform import plan_reads, read_item

KEY = RunKey(bytes(range(32)))
MAX_TOKENS = 1_000_000


class Cost(NamedTuple):
    """One step: its name, how many of what it made, the bytes of that, and CPU seconds."""

    step: str
    count: int
    of: str
    size: int
    seconds: float


def measure(titles: pathlib.Path, partitions: int, plan: PrivacyPlan) -> list[Cost]:
    """Runs every step on the whole corpus and returns what each cost."""
    costs: list[Cost] = []

    def timed(function: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
        nonlocal spent
        started = time.process_time()
        result = function(*arguments, **settings)
        spent += time.process_time() - started
        return result

    spent = 0.0
    options = ReadOptions()
    (file,) = match_inputs([str(titles)])
    batches = timed(
        lambda: [d for i in plan_reads(file, options) for d, _, _ in read_item(i, options)]
    )
    text = sum(batch.nbytes for batch in batches)
    costs.append(Cost("read", sum(b.num_rows for b in batches), "documents", text, spent))

    spent = 0.0
    words = tokenizers.resolve_tokenizer("words")
    blocks = []
    for batch in batches:
        users, texts = batch.column("user"), batch.column("text")
        tokens = timed(tokenizers.tokenize, words, texts)
        names = timed(hash_users, users, KEY.sub_key("user"))
        blocks.append(timed(encode_documents, names, tokens))
    whole = timed(limit_documents, blocks, MAX_TOKENS, KEY.sub_key("document"), final=False)
    cut = timed(lambda: list(split_by_user(whole, partitions)))
    size = encoded(BatchCoder(DocumentBlock), [block for _, block in cut])
    costs.append(Cost("tokenize, shuffle by user", whole.codes.size, "tokens", size, spent))

    spent = 0.0
    state = [timed(lay_out_positions, block, KEY.sub_key("word")) for _, block in cut]
    size = encoded(BatchCoder(UserBatch), state)
    costs.append(Cost("lay out", whole.codes.size, "positions", size, spent))
    costs += _lengths(state, plan)
    return costs


def _lengths(state: list, plan: PrivacyPlan) -> list[Cost]:
    costs = []
    previous = ROOT
    for length in range(1, plan.max_length + 1):
        started = time.process_time()
        if length > 1:
            state = [prune_invalid(batch, previous, pruning=plan.pruning) for batch in state]
        pruned = time.process_time()
        sums = []
        limit = plan.contribution_limits[length - 1]
        for batch in state:
            grams = extract_grams(batch, length=length)
            kept = limit_contributions(
                grams, max_contributions=limit, sub_key=KEY.sub_key("subset", length)
            )
            sums.append(sum_contributions(kept))
        extracted = time.process_time()
        rule = rule_for(plan, length, KEY)(previous)
        if length > 1:
            sample_spurious(previous, rule=rule, run_key=KEY)
        shards = [shard for _, shard in cut_by_hash_range(merge_shards(sums), 4)]
        released = merge_released(
            [decide(shard, rule=rule, run_key=KEY) for shard in shards], previous, rule
        )
        decided = time.process_time()
        positions = sum(int((batch.ids >= 0).sum()) for batch in state)
        pieces = sum(piece.keys.size for piece in sums)
        observed = sum(shard.keys.size for shard in shards)
        costs += [
            Cost(
                f"{length} prune",
                positions,
                "positions",
                encoded(BatchCoder(UserBatch), state),
                pruned - started,
            ),
            Cost(
                f"{length} extract, limit, sum",
                pieces,
                "partition grams",
                encoded(BatchCoder(HistogramShard), sums),
                extracted - pruned,
            ),
            Cost(
                f"{length} decide, sort",
                observed,
                "observed",
                encoded(BatchCoder(GramSet), [released]),
                decided - extracted,
            ),
        ]
        previous = released
    return costs


def encoded(coder: BatchCoder, batches: list) -> int:
    """Bytes that elements take in a shuffle."""
    return sum(len(coder.encode(batch)) for batch in batches)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--titles", type=pathlib.Path, required=True)
    parser.add_argument("--partitions", type=int, default=16)
    given = parser.parse_args()
    plan = PrivacyPlan(epsilon=4, delta=1e-7, max_length=7, strategy="one_round")
    table = Table(title=f"{given.titles.name}, {given.partitions} partitions")
    for heading in ("step", "count", "of", "bytes", "bytes each", "CPU s", "µs each"):
        table.add_column(heading, justify="left" if heading in ("step", "of") else "right")
    for cost in measure(given.titles, given.partitions, plan):
        each = max(1, cost.count)
        table.add_row(
            cost.step,
            f"{cost.count:,}",
            cost.of,
            f"{cost.size:,}",
            f"{cost.size / each:.1f}",
            f"{cost.seconds:.2f}",
            f"{cost.seconds / each * 1e6:.3f}",
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    np.seterr(all="raise", under="ignore")
    main()
