"""Runs of the papers' experiments in memory: what is released, what of it is real, and the time."""

import time
from typing import Any

import numpy as np
import pyarrow as pa

from beam_dpne.documents.run_keys import key_context
from beam_dpne.evaluation.corpus import released_codes
from beam_dpne.evaluation.judging import evaluate
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.in_memory import release_ngrams
from beam_dpne.ngrams.plan import NgramsPlan
from beam_dpne.ngrams.released_rows import ReleasedRows
from beam_dpne.set_union.in_memory import release_items
from beam_dpne.set_union.plan import SetUnionPlan
from pipelines.experiments import union_policies
from pipelines.experiments.baselines import Baseline, release_baseline
from pipelines.experiments.corpora import Data
from pipelines.experiments.union_policies import UnionParameters

# Those of DPNE's Figure 4 and DPSU's Table 2, and some for context.
K_ANONYMITY = (1, 2, 5, 10, 15, 18, 20, 25, 50, 100)
_TOKENS = "tokens"
Plan = NgramsPlan | Baseline | SetUnionPlan | UnionParameters


def measure(plan: Plan, data: Data, key: int, run_key: RunKey) -> dict[str, Any]:
    """Makes a run and returns its measurements, which are as secret as the data.

    Args:
      plan: What is run.
      data: The data.
      key: Number of the run key, which seeds the policies that only the papers have.
      run_key: The run key for which the number stands.

    Returns:
      `seconds` of the run alone, and `lengths` with the numbers of each length.
    """
    max_length = getattr(plan, "max_length", 1)
    bounds: dict[int, float] = {}
    if isinstance(plan, Baseline):
        index = data.index(max_length)
        started = time.monotonic()
        released = release_baseline(index, plan, run_key)
    elif isinstance(plan, UnionParameters):
        held = data.holdings
        started = time.monotonic()
        found = union_policies.release_items(held, plan, key)
        released = {1: found.astype(np.int32)[:, np.newaxis]}
    elif isinstance(plan, SetUnionPlan):
        bound = run_key.bound_to(key_context(plan, _TOKENS))
        items = data.user_items(bound)
        started = time.monotonic()
        table = pa.table({"item": release_items(items, plan, bound).items})
        released = released_codes(data.corpus, table)
    else:
        bound = run_key.bound_to(key_context(plan, _TOKENS))
        users = list(data.user_batches(plan.max_tokens_per_user, bound))
        started = time.monotonic()
        sets = release_ngrams(users, plan, bound)
        released = released_codes(data.corpus, ReleasedRows.of(sets).table())
        bounds = {each.length: each.rule.expected_spurious if each.rule else 0.0 for each in sets}
    seconds = time.monotonic() - started
    *judged, _ = evaluate(data.index(max_length), released, k_anonymity=K_ANONYMITY)
    rows = [
        {
            "length": row.length,
            "released": row.released,
            "real": row.real,
            "spurious": row.spurious,
            "spurious_bound": bounds.get(row.length or 0, 0.0),
            "k_anonymity": [[each.k, each.held, each.released] for each in row.k_anonymity],
        }
        for row in judged
    ]
    return {"seconds": seconds, "lengths": rows}
