"""The coefficients of the cost model in deploy/README.md: bytes and seconds of each step's kernel.

    python -m tests.benchmarks.coefficients --titles PATH [--partitions 16] [--strategy one_round]

runs the steps of a run one after the other in this process, without Beam, on a corpus of
`{"user", "text"}` lines, and prints for each what it made, how many bytes that encodes to,
and the CPU seconds that it takes.
"""

import argparse
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

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
from beam_dpne.ngrams.in_memory import release_lengths
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.transform import plan_reads, read_item
from tests.benchmarks.inputs import existing_file
from tests.benchmarks.measured_steps import Cost, MeasuredSteps, encoded

KEY = RunKey(bytes(range(32)))
MAX_TOKENS = 1_000_000


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
    size = encoded(DocumentBlock, [block for _, block in cut])
    costs.append(Cost("tokenize, shuffle by user", whole.codes.size, "tokens", size, spent))

    spent = 0.0
    state = [timed(lay_out_positions, block, KEY.sub_key("word")) for _, block in cut]
    size = encoded(UserBatch, state)
    costs.append(Cost("lay out", whole.codes.size, "positions", size, spent))
    # As many hash ranges as a run of so many partitions has.
    steps = MeasuredSteps(plan=plan, run_key=KEY, histogram_ranges=-(-partitions // 4))
    release_lengths(steps, plan, state)
    return costs + steps.costs


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--titles", type=existing_file, required=True)
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--strategy", default="adaptive", choices=("adaptive", "one_round"))
    parser.add_argument("--max_length", type=int, default=7)
    given = parser.parse_args(arguments)
    plan = PrivacyPlan(epsilon=4, delta=1e-7, max_length=given.max_length, strategy=given.strategy)
    title = f"{given.titles.name}, {given.partitions} partitions, {plan.strategy}"
    table = Table(title=title)
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
