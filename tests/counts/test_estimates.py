"""Estimated numbers of users on made-up crowds: what the intervals contain, and what they need."""

import dataclasses
import functools
import tracemalloc

import numpy as np
import pytest
from scipy.stats import spearmanr

from beam_dpne import RunKey
from beam_dpne.counts import estimates
from beam_dpne.counts import rule as rules
from beam_dpne.counts.estimates import estimate_users
from beam_dpne.counts.measuring import Held, measure, sum_counts
from beam_dpne.counts.rule import count_rule, noise_of_budget

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


def estimated(held, scores, seed=0, mu=MU, groups=None):
    rule = count_rule(scores)
    return estimate_users(measured_by(held, rule, seed, mu), rule, groups)


def measured_by(held, rule, seed=0, mu=MU):
    noise, key = noise_of_budget(mu), RunKey(bytes([seed] * 32))
    return measure([sum_counts(held, rule)], rule, noise, key)


def is_inside(found, counts):
    return (found[:, 1] <= counts) & (counts <= found[:, 2])


@pytest.mark.parametrize("shape", [(20_000, 400, 1.3), (3_000, 100, 1.3), (5_000, 200, 3.0)])
def test_intervals_contain_the_numbers_about_as_often_as_they_say(shape):
    held, counts, scores = crowd(*shape)
    inside, ranks = [], []
    for seed in range(5):
        found = estimated(held, scores, seed)
        assert (found[:, 1] <= found[:, 0]).all()
        assert (found[:, 0] <= found[:, 2]).all()
        inside.append(np.mean(is_inside(found, counts)))
        ranks.append(spearmanr(found[:, 0], counts)[0])
    # The first rows of a length, a tenth or a fifth of these, have wider intervals.
    assert 0.93 <= np.mean(inside) <= 0.997
    assert min(ranks) > spearmanr(np.concatenate(scores), counts)[0]


def languages(seed=0):
    """Two kinds of users, who share no row: most hold few rows, and some hold many."""
    rng = np.random.default_rng(seed)
    rows, drawn = 600, []
    popularity = 1 / (np.arange(rows // 2) + 10)
    popularity /= popularity.sum()
    for size, first, users in ((3, 0, 20_000), (80, rows // 2, 700)):
        chosen = rng.choice(rows // 2, (users, size), p=popularity)
        drawn += [np.unique(each) + first for each in chosen]
    offsets = np.cumsum([0, *map(len, drawn)])
    held = Held(offsets=offsets, rows=np.concatenate(drawn))
    counts = np.bincount(held.rows, minlength=rows)
    # A user with much text gives each of the rows less: scores do not tell the two kinds apart.
    weights = np.repeat(1 / np.sqrt(np.diff(offsets)), np.diff(offsets))
    masses = np.bincount(held.rows, weights, minlength=rows)
    return held, counts, [np.maximum(masses / 20 * np.exp(rng.normal(0, 0.2, rows)), 0.1)]


def test_n_grams_of_users_with_little_text_and_of_users_with_much_are_both_covered():
    held, counts, scores = languages()
    for mu in (0.3, 3.0):
        inside = np.mean(
            [is_inside(estimated(held, scores, seed, mu), counts) for seed in range(5)], 0
        )
        assert inside.mean() > 0.9
        assert inside[:300].mean() > 0.8
        assert inside[300:].mean() > 0.9


def test_the_largest_numbers_are_covered_although_they_are_of_few_users_with_much_text():
    held, counts, scores = languages()
    found = [estimated(held, scores, seed, mu=3.0) for seed in range(4)]
    largest = [np.argsort(-each[:, 0], kind="stable")[:20] for each in found]
    inside = [
        is_inside(each[rows], counts[rows]) for each, rows in zip(found, largest, strict=True)
    ]
    assert np.mean(inside) >= 0.9


def unlike_groups(seed=0):
    """Rows of two lengths of four groups, whose users hold few rows or many."""
    rng = np.random.default_rng(seed)
    rows = 250
    popularity = 1 / (np.arange(2 * rows) % rows + 10)
    popularity /= popularity.sum()
    drawn = []
    for group, (size, users) in enumerate(((2, 20_000), (6, 7_000), (20, 2_000), (60, 700))):
        chosen = rng.choice(2 * rows, (users, size), p=popularity)
        # Rows 0 to 999 are of the first length, and each group has a fourth of them.
        places = chosen % rows + rows * group + 4 * rows * (chosen // rows)
        drawn += [np.unique(each) for each in places]
    offsets = np.cumsum([0, *map(len, drawn)])
    held = Held(offsets=offsets, rows=np.concatenate(drawn))
    counts = np.bincount(held.rows, minlength=8 * rows)
    weights = np.repeat(1 / np.sqrt(np.diff(offsets)), np.diff(offsets))
    masses = np.bincount(held.rows, weights, minlength=8 * rows)
    scores = np.maximum(masses / 20 * np.exp(rng.normal(0, 0.2, 8 * rows)), 0.1)
    return held, counts, [scores[: 4 * rows], scores[4 * rows :]], np.arange(8 * rows) // rows % 4


def test_numbers_of_each_group_are_right_where_users_differ_by_group():
    held, counts, scores, groups = unlike_groups()
    found = [estimated(held, scores, seed, groups=groups) for seed in range(3)]
    for group in range(4):
        own = groups == group
        for each in found:
            assert 0.9 <= np.median(each[own, 0] / counts[own]) <= 1.1
        assert np.mean([is_inside(each, counts)[own] for each in found]) >= 0.93


def test_groups_that_are_alike_or_small_have_the_numbers_of_a_release_without_groups():
    held, _, scores = crowd(20_000, 400, 1.3)
    alike = np.arange(800) % 4
    small = np.where(np.arange(800) % 50 == 7, 1, 0)
    expected = estimated(held, scores)
    for groups in (np.zeros(800, np.int64), alike, small):
        assert np.array_equal(estimated(held, scores, groups=groups), expected)


@pytest.mark.parametrize("groups", [None, np.arange(800) % 3])
def test_processes_that_share_the_rows_estimate_what_one_does(groups, monkeypatch):
    monkeypatch.setattr(estimates, "_ROWS_OF_A_PART", 50)
    held, _, scores = crowd(20_000, 400, 1.3)
    rule = count_rule(scores)
    measured = measured_by(held, rule)
    expected = estimate_users(measured, rule, groups)
    assert np.array_equal(estimate_users(measured, rule, groups, workers=3), expected)


@pytest.mark.parametrize("world", [lambda: crowd(20_000, 400, 1.3), languages])
def test_a_large_budget_gives_the_numbers_themselves(world):
    """More budget cures every error: nothing that the model assumes is left in estimate or width."""
    held, counts, scores = world()
    found = estimated(held, scores, mu=1000.0)
    assert np.median(abs(found[:, 0] / counts - 1)) < 0.002
    assert np.mean(is_inside(found, counts)) > 0.95
    first = np.argsort(-counts)[:20]
    assert abs(found[:, 0] / counts - 1)[first].max() < 0.01
    assert (found[:, 2] / found[:, 1])[first].max() < 1.03


def test_a_small_budget_gives_wide_intervals_instead_of_an_error():
    held, _, scores = crowd(3_000, 100, 1.3)
    narrow, wide = (estimated(held, scores, mu=mu) for mu in (1.0, 0.01))
    assert np.median(wide[:, 2] / np.maximum(wide[:, 1], 1)) > 2 * np.median(
        narrow[:, 2] / np.maximum(narrow[:, 1], 1)
    )
    assert (wide[:, 0] >= 0).all()
    assert np.isfinite(wide[:, 2]).all()


def test_noise_of_two_standard_deviations_is_not_taken_for_users_who_hold_everything():
    held, _, scores = crowd(20_000, 400, 3.0)
    rule = count_rule(scores)
    measured = measured_by(held, rule, mu=0.1)
    sizes = measured.sizes.copy()
    both = []
    for size in (2 * measured.size_stddev, 0.0):
        sizes[-1] = size
        both.append(estimate_users(dataclasses.replace(measured, sizes=sizes), rule))
    rare = np.argsort(both[1][:, 0], kind="stable")[:400]
    assert both[0][:, 0][rare].mean() < 1.05 * both[1][:, 0][rare].mean()


def test_rows_that_nobody_holds_may_have_no_user():
    """One row in ten, with the score of a rare one; the interval of most of them begins at 0."""
    held, counts, scores = crowd(20_000, 400, 1.3)
    rows = np.flatnonzero(counts < np.quantile(counts, 0.3))[::3]
    keep = ~np.isin(held.rows, rows)
    users = np.repeat(np.arange(held.offsets.size - 1), np.diff(held.offsets))[keep]
    left = Held.of(users, held.rows[keep], user_count=held.offsets.size - 1, row_count=800)
    found = estimated(left, scores, mu=10.0)
    assert np.mean(found[rows, 1] == 0) > 0.9
    others = np.setdiff1d(np.arange(800), rows)
    assert np.mean(is_inside(found, np.bincount(left.rows, minlength=800))[others]) > 0.93


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
    # The last digits of products may differ, and with them the rounding to a whole number.
    assert abs(estimated(held, scores) - expected).max() <= 1


def test_estimates_of_many_rows_hold_few_columns_of_them(monkeypatch):
    # The smaller blocks are, the fewer rows show what is held of each row.
    monkeypatch.setattr(rules, "_ROWS_OF_A_BLOCK", 2**10)
    rows = 150_000
    rule = count_rule([np.random.default_rng(1).pareto(1.1, rows) + 3])
    held = Held(offsets=np.array([0, 1000]), rows=np.arange(0, rows, rows // 1000))
    measured = measured_by(held, rule)
    tracemalloc.start()
    estimate_users(measured, rule)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Estimates, orders and levels of 8 bytes each; answers of 2,000 rows for some hundred kinds.
    assert peak < 120 * rows + 2**24
