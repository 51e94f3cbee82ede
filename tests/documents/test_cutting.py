"""Documents that are cut into blocks, in one process or in several, are those of the same users."""

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import NgramsPlan, ProbabilitiesPlan, PublicCounts, RunKey, SetUnionPlan
from beam_dpne.bayesian.run import BayesianRun
from beam_dpne.documents import blocks, cutting, steps
from beam_dpne.errors import BudgetError
from beam_dpne.jobs.engine import transform_of
from beam_dpne.ngrams.run import NgramsRun
from beam_dpne.set_union.run import SetUnionRun
from tests.support.in_memory import batch_of, rows_of_sets, sets_in_memory
from tests.support.pipelines import keep
from tests.support.tickets import tickets

KEY = RunKey(bytes(range(32)))
BUDGET = {"epsilon": 8, "delta": 1e-5}
LONG = {**BUDGET, "max_length": 3}
PARTS = {"run_key": KEY, "partitions": 3}
_PAIRS = [(f"w{first}", f"w{last}") for first in range(9) for last in range(9)]
PUBLIC = PublicCounts.of(_PAIRS, [1] * len(_PAIRS))
# Limits that some users are above.
RUNS = {
    "adaptive": NgramsRun(plan=NgramsPlan(**LONG), **PARTS),
    "one_round": NgramsRun(plan=NgramsPlan(**LONG, strategy="one_round"), **PARTS),
    "n-grams of giants": NgramsRun(plan=NgramsPlan(**LONG, max_tokens_per_user=40), **PARTS),
    "items of giants": SetUnionRun(
        plan=SetUnionPlan(**BUDGET, max_items_per_user=20, max_contributions=5),
        tokenizer="words",
        **PARTS,
    ),
    "probabilities of giants": BayesianRun(
        plan=ProbabilitiesPlan(**BUDGET, length=2, max_tokens_per_user=40), public=PUBLIC, **PARTS
    ),
}


def released(run, batches) -> list:
    """The rows of a pipeline, sorted."""
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        rows = keep((pipeline | beam.Create(batches) | transform_of(run, None)).rows)
    return sorted(rows)


@pytest.mark.parametrize("name", RUNS)
def test_users_whose_documents_are_in_several_blocks_are_one_user(name, monkeypatch):
    """Else a user would be dealt several budgets, or lose other documents than in one block."""
    run = RUNS[name]
    records = tickets(300) * 2
    parts = [batch_of(records[start::9]) for start in range(9)]
    whole = [batch_of(records)]
    expected = released(run, whole)
    assert len(expected) > 50
    # As those of a large corpus are.
    monkeypatch.setattr(cutting, "_GATHERED_TOKENS", 300)
    monkeypatch.setattr(blocks, "_MAX_BLOCK_TOKENS", 900)
    cut = cutting.cut_by_partition(parts, run.cutting(KEY), 1)
    assert max(map(len, cut)) > 4
    assert released(run, parts) == expected
    for workers in (1, 3):
        for given in (parts, whole):
            assert rows_of_sets(run, sets_in_memory(run, given, workers)) == expected


@pytest.mark.parametrize("change", ["one fewer", "other texts", "none", "no partition"])
def test_users_and_texts_that_are_not_those_of_the_list_of_a_series_are_not_laid_out(change):
    """As where an engine has lost blocks, and reads an input that has changed since they were cut."""
    whole = cutting.cut_by_partition([batch_of(tickets(90))], RUNS["adaptive"].cutting(KEY), 1)
    partition = (2, whole[0])
    users = np.unique(np.concatenate([block.users for block in whole[0]]), axis=0)
    listed = users[1:] if change == "one fewer" else users
    texts = sum(block.texts for block in whole[0]) + np.uint64(change == "other texts")
    number = 1 if change == "no partition" else 2
    recorded = {number: steps._sums_of([(listed, texts)])}
    laid_out = steps._laid_out(partition, [recorded], max_tokens=40, run_key=KEY)
    if change == "none":
        assert sum(len(batch.users) for batch in laid_out) == len(users) > 1
        return
    with pytest.raises(BudgetError, match="`input` must stay as it is"):
        next(laid_out)
