"""Estimated numbers of users on made-up crowds: what the intervals contain, and what they need."""

import dataclasses
import functools
import tracemalloc

import numpy as np
import pytest
from scipy.stats import spearmanr

from beam_dpne import RunKey
from beam_dpne.counts import factors
from beam_dpne.counts import rule as rules
from beam_dpne.counts.estimates import estimate_users
from beam_dpne.counts.measuring import Held, measure, sum_counts
from beam_dpne.counts.rule import CountNoise, count_rule

MU = 0.3


@functools.lru_cache
def crowd(users, rows, tail, seed=0):
    """Users with heavy-tailed numbers of rows, whose popularity falls like 1/rank, at two lengths."""
    rng = np.random.default_rng(seed)
    sizes = np.minimum(1 + rng.pareto(tail, users) * 8, rows * 2).astype(int)
    popularity = 1 / (np.arange(2 * rows) % rows + 10)
    popularity[rows:] /= 4
    popularity /= popularity.sum()
    drawn = [np.unique(rng.choice(2 * rows, size, p=popularity)) for size in sizes]
    offsets = np.cumsum([0, *map(len, drawn)])
    held = Held(offsets=offsets, rows=np.concatenate(drawn))
    counts = np.bincount(held.rows, minlength=2 * rows)
    # Scores that know the popularity but for an error of 30 %.
    scores = np.maximum(counts / 50 * np.exp(rng.normal(0, 0.3, 2 * rows)), 0.1)
    scores[rows:] *= 3
    return held, counts, [scores[:rows], scores[rows:]]


def estimated(held, scores, seed=0, mu=MU):
    rule = count_rule(scores)
    measured = measure(
        [sum_counts(held, rule)], rule, CountNoise.of_budget(mu), RunKey(bytes([seed] * 32))
    )
    return estimate_users(measured, rule, scores)


@pytest.mark.parametrize("shape", [(20_000, 400, 1.3), (3_000, 100, 1.3), (5_000, 200, 3.0)])
def test_intervals_contain_the_numbers_about_as_often_as_they_say(shape):
    held, counts, scores = crowd(*shape)
    inside, ranks = [], []
    for seed in range(5):
        found = estimated(held, scores, seed)
        assert (found[:, 1] <= found[:, 0]).all()
        assert (found[:, 0] <= found[:, 2]).all()
        inside.append(np.mean((found[:, 1] <= counts) & (counts <= found[:, 2])))
        ranks.append(spearmanr(found[:, 0], counts)[0])
    assert 0.9 <= np.mean(inside) <= 0.995
    assert min(ranks) > spearmanr(np.concatenate(scores), counts)[0]


def test_a_large_budget_gives_the_numbers_themselves():
    held, counts, scores = crowd(20_000, 400, 1.3)
    found = estimated(held, scores, mu=1000.0)
    assert np.median(abs(found[:, 0] / counts - 1)) < 0.06
    assert np.mean((found[:, 1] <= counts) & (counts <= found[:, 2])) > 0.93


def test_a_large_budget_gives_the_first_rows_exactly():
    held, counts, scores = crowd(20_000, 400, 1.3)
    found = estimated(held, scores, mu=1000.0)
    first = np.argsort(-scores[0])[:20]
    assert abs(found[:, 0] / counts - 1)[first].max() < 0.01
    assert (found[:, 2] / found[:, 1])[first].max() < 1.03


def test_rows_have_no_more_users_than_the_rows_that_their_users_hold_as_well():
    held, counts, scores = crowd(3_000, 100, 1.3)
    rule = count_rule(scores)
    measured = measure(
        [sum_counts(held, rule)], rule, CountNoise.of_budget(0.05), RunKey(bytes(32))
    )
    # Made-up prefixes: some of the second length's rows belong to a row of the first, the rest to none.
    parents = np.full((200, 2), -1)
    parents[100:180, 0] = np.argsort(counts[:100], kind="stable")[np.arange(80) % 50]
    free, bound = (estimate_users(measured, rule, scores, each) for each in (None, parents))
    child, parent = np.arange(100, 180), parents[100:180, 0]
    assert (free[child, 0] > free[parent, 0]).any()
    assert (bound[child] <= bound[parent]).all()
    expected = free.copy()
    expected[child] = np.minimum(expected[child], expected[parent])
    np.testing.assert_array_equal(bound, expected)


def test_a_small_budget_gives_wide_intervals_instead_of_an_error():
    held, _, scores = crowd(3_000, 100, 1.3)
    narrow, wide = (estimated(held, scores, mu=mu) for mu in (1.0, 0.01))
    assert np.median(wide[:, 2] / np.maximum(wide[:, 1], 1)) > 2 * np.median(
        narrow[:, 2] / np.maximum(narrow[:, 1], 1)
    )
    assert (wide[:, 0] >= 0).all()
    assert np.isfinite(wide[:, 2]).all()


def test_noise_of_three_standard_deviations_is_not_taken_for_users_who_hold_everything():
    held, _, scores = crowd(20_000, 400, 3.0)
    rule, noise = count_rule(scores), CountNoise.of_budget(0.1)
    measured = measure([sum_counts(held, rule)], rule, noise, RunKey(bytes(32)))
    totals, sizes = measured.totals.copy(), np.bincount(rule.groups)
    totals[:, -1] = 3 * sizes / np.sqrt(np.sum((sizes / measured.total_stddevs[:, -1]) ** 2))
    without = measured.totals.copy()
    without[:, -1] = 0
    with_them, plain = (
        estimate_users(dataclasses.replace(measured, totals=each), rule, scores)
        for each in (totals, without)
    )
    rare = np.argsort(plain[:, 0], kind="stable")[:400]
    assert with_them[:, 0][rare].mean() < 1.05 * plain[:, 0][rare].mean()


@pytest.mark.parametrize(
    "scores",
    [
        [np.zeros(0)],
        [np.zeros(0), np.zeros(0)],
        [np.ones(1)],
        [np.ones(3), np.zeros(0)],
        [np.ones(50)],
    ],
)
def test_few_rows_and_few_users_give_estimates(scores):
    rows = sum(map(len, scores))
    for users in (0, 1, 30):
        held = Held(offsets=np.arange(users + 1) * rows, rows=np.tile(np.arange(rows), users))
        found = estimated(held, scores)
        assert found.shape == (rows, 3)
        assert (found[:, 2] >= found[:, 0]).all()
        assert (found[:, 1] >= 0).all()


def test_estimates_do_not_depend_on_the_blocks_in_which_rows_are_taken(monkeypatch):
    held, _, scores = crowd(20_000, 400, 1.3)
    expected = estimated(held, scores)
    monkeypatch.setattr(rules, "_ROWS_OF_A_BLOCK", 64)
    assert np.array_equal(estimated(held, scores), expected)
    # Here the last digits of sums may differ, and with them the rounding to a whole number.
    monkeypatch.setattr(factors, "_ROWS_OF_A_LARGE_BLOCK", 64)
    assert abs(estimated(held, scores) - expected).max() <= 1


def test_estimates_of_many_rows_hold_few_columns_of_them(monkeypatch):
    # The smaller blocks are, the fewer rows show what is held of each row.
    monkeypatch.setattr(rules, "_ROWS_OF_A_BLOCK", 2**14)
    monkeypatch.setattr(factors, "_ROWS_OF_A_LARGE_BLOCK", 2**14)
    rows = 150_000
    scores = [np.random.default_rng(1).pareto(1.1, rows) + 3]
    rule = count_rule(scores)
    held = Held(offsets=np.array([0, 1000]), rows=np.arange(0, rows, rows // 1000))
    measured = measure([sum_counts(held, rule)], rule, CountNoise.of_budget(MU), RunKey(bytes(32)))
    tracemalloc.start()
    estimate_users(measured, rule, scores)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Six columns of 8 bytes at a time, and the columns of a block.
    assert peak < 80 * rows
