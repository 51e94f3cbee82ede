"""CountUsers: held n-grams are those of a plain search, and Beam measures what memory does."""

import random

import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from beam_dpne import NgramsPlan, RunKey
from beam_dpne.ngrams.in_memory import release_ngrams
from beam_dpne.ngrams.released_rows import GramRows
from beam_dpne.steps import CountUsers
from tests.ngrams.test_oracle import (
    KEY,
    adaptive_plans,
    corpora,
    plans,
    record_batches,
    run_beam,
    run_kernels,
    shared_phrases,
    user_batches,
    words_of,
)


def grams_of(released):
    """The released n-grams in the order of their rows: by length, then word by word."""
    found = words_of(list(released))
    for length in sorted(found):
        yield from sorted(found[length], key=lambda gram: [word.encode() for word in gram])


def rows_of_users(documents, grams):
    """The rows that each user holds, by a plain search, of users who hold any."""
    rows = {gram: row for row, gram in enumerate(grams)}
    found = []
    for texts in documents.values():
        spans = (
            tuple(text[start : start + length])
            for text in texts
            for length in {len(gram) for gram in grams}
            for start in range(len(text) - length + 1)
        )
        held = sorted({rows[gram] for gram in spans if gram in rows})
        found += [tuple(held)] if held else []
    return sorted(found)


@given(
    corpora(),
    st.one_of(plans(), adaptive_plans()),
    st.binary(min_size=32, max_size=32).map(RunKey),
    st.randoms(use_true_random=False),
)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_held_ngrams_are_those_that_a_plain_search_finds(documents, plan, run_key, rng):
    assume(plan.max_tokens_per_user == 1000)  # So that nobody has more.
    users = user_batches(documents, plan, run_key, rng, partitions=rng.randint(1, 3))
    released = release_ngrams(users, plan, run_key)
    grams = list(grams_of(released))
    found = []
    for batch in users:
        held = GramRows(pruning=plan.pruning).held(batch, released)
        assert held.offsets.size == len(batch.users) + 1
        found += [tuple(rows) for rows in np.split(held.rows, held.offsets[1:-1]) if rows.size]
    event(f"held n-grams of two words and more: {any(len(gram) > 1 for gram in grams)}")
    assert sorted(found) == rows_of_users(documents, grams)


@pytest.mark.parametrize("strategy", ["adaptive", "one_round"])
def test_beam_and_memory_measure_the_same(strategy):
    documents = shared_phrases(users=60)
    plan = NgramsPlan(epsilon=20, delta=0.3, max_length=3, strategy=strategy)
    rng = random.Random(4)
    expected = run_kernels(documents, plan, KEY, rng, partitions=1).sets
    assert all(grams.users.shape == (len(grams), 3) for grams in expected)
    for partitions, repeats in ((3, 0), (1, 2)):
        runner = FnApiRunner(bundle_repeat=repeats)
        batches = record_batches(documents, rng)
        run = run_beam(batches, plan, KEY, partitions=partitions, runner=runner)
        found = sorted(run.sets, key=lambda grams: grams.length)
        for ours, other in zip(found, expected, strict=True):
            assert np.array_equal(ours.users, other.users)
            assert np.array_equal(ours.scores, other.scores)


def test_a_share_of_the_budget_is_kept_for_counts_and_without_it_nothing_is_measured():
    documents = shared_phrases(users=60)
    common = {"epsilon": 20, "delta": 0.3, "max_length": 2}
    without = NgramsPlan(**common, count_share=0)
    half = NgramsPlan(**common, count_share=0.5)
    assert without.count_noise is None
    assert half.allotment == pytest.approx(without.allotment / 2, rel=1e-4)
    noise = half.count_noise
    assert noise**-2 == pytest.approx(0.5 / half.noise_stddev**2, rel=1e-9)
    sets = run_kernels(documents, without, KEY, random.Random(1), partitions=2).sets
    assert all(grams.users is None for grams in sets)
    with pytest.raises(ValueError, match="`count_share` must be above 0"):
        CountUsers(plan=without, released=(), run_key=KEY)


@pytest.mark.parametrize("share", [-0.1, 1e-18, 0.95, 1.0, float("nan"), float("inf")])
def test_impossible_shares_are_refused(share):
    with pytest.raises(ValueError, match="`count_share` must be"):
        NgramsPlan(epsilon=1, delta=1e-7, count_share=share)


def test_what_is_spent_on_lengths_and_counts_is_the_budget_of_the_plan():
    for share in (0.05, 0.3, 0.9):
        plan = NgramsPlan(epsilon=1, delta=1e-7, strategy="one_round", count_share=share)
        noise = plan.count_noise
        lengths = sum(length.noise_stddev**-2 for length in plan.lengths)
        counts = noise**-2
        assert lengths + counts <= plan.noise_stddev**-2
        assert lengths + counts == pytest.approx(plan.noise_stddev**-2, rel=1e-9)


def test_each_number_that_a_user_changes_pays_for_floating_point_and_far_tails():
    """Beside those on n-grams: three sums of each row, and the sizes of two classes."""
    common = {"epsilon": 2.0, "delta": 1e-6, "max_length": 3, "max_tokens_per_user": 1000}
    without = NgramsPlan(**common, count_share=0)
    plan = NgramsPlan(**common)
    changed = 3 * 3 * 1000 + 2
    others = without.decisions
    assert plan.count_decisions == changed
    assert without.count_decisions == 0
    assert without.numerical_slack == pytest.approx(others * 2e-12, rel=1e-9)
    assert plan.numerical_slack == pytest.approx((others + changed) * 2e-12, rel=1e-9)
    assert plan.far_tails / without.far_tails == pytest.approx(
        (others + changed) / others, rel=1e-6
    )
    assert plan.decisions - without.decisions == changed
