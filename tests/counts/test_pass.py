"""The estimates of a release are a function of the noisy sums and of the released rows alone."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from beam_dpne import NgramsPlan, RunKey
from beam_dpne.counts import measuring as counting
from beam_dpne.counts.estimates import estimate_users
from beam_dpne.counts.measuring import Held, measure, split_sums, sum_counts
from beam_dpne.elements.batches import RowSums
from beam_dpne.ngrams.elements import GramSet
from beam_dpne.ngrams.released_rows import GramRows
from tests.counts import sums_of_table
from tests.counts.test_estimates import unlike_groups

KEY = RunKey(b"estimates".ljust(32, b"."))
PLAN = NgramsPlan(epsilon=4, delta=1e-7, max_length=1, count_share=0.5)
ROWS = 400
RNG = np.random.default_rng(3)
COUNTS = np.sort(RNG.integers(3000, 300_000, ROWS))[::-1].copy()
WORDS = GramSet(
    length=1,
    keys=np.arange(ROWS),
    scores=COUNTS / 100,
    words=pa.array([f"w{number:03}" for number in range(ROWS)]),
    vocabulary_size=ROWS,
)
SETS = GramRows(pruning="both")
RULE = counting.rule_of(SETS, WORDS)


def sums_of(counts: np.ndarray) -> RowSums:
    """Sums as if so many users held one row each."""
    rows = np.arange(counts.size)
    one = sum_counts(Held(offsets=np.arange(counts.size + 1), rows=rows), RULE)
    numbers, masses, sizes = split_sums([one], RULE)
    table = np.column_stack((numbers * counts[:, np.newaxis], masses * counts))
    return sums_of_table(np.append(table, sizes))


def measured(sums):
    return measure([sums], RULE, PLAN.count_noise, KEY)


def users(sums):
    (counted,) = counting.estimated(WORDS, [sums], rows=SETS, noise=PLAN.count_noise, run_key=KEY)
    return counted.users


@pytest.mark.parametrize("held_by_nobody", [0, 1, ROWS // 2, ROWS])
def test_rows_that_nobody_holds_get_their_numbers_by_the_same_rule(held_by_nobody):
    """The exact sums, also that they are 0, show in nothing but the noisy ones."""
    sums = sums_of(np.where(np.arange(ROWS) < ROWS - held_by_nobody, COUNTS, 0))
    assert np.array_equal(users(sums), estimate_users(measured(sums), RULE))
    assert (users(sums)[ROWS - held_by_nobody :, 2] > 0).all()


def test_the_numbers_are_the_estimates_from_the_measured_sums():
    sums = sums_of(COUNTS)
    found = estimate_users(measured(sums), RULE)
    assert np.array_equal(users(sums), found)
    # The noise is not lost in rounding: without one of the three other numbers would be found.
    for name in ("numbers", "masses", "sizes"):
        value = getattr(measured(sums), name)
        other = dataclasses.replace(measured(sums), **{name: value * 1.02})
        assert not np.array_equal(estimate_users(other, RULE)[:, 0], found[:, 0])


def test_numbers_follow_the_groups_of_the_rows():
    held, _, scores, groups = unlike_groups()
    words = [
        GramSet(length=length, keys=np.arange(len(each)), scores=each)
        for length, each in enumerate(scores, 1)
    ]
    for rows, expected in ((GroupedRows(pruning="both"), groups), (SETS, None)):
        rule = counting.rule_of(rows, *words)
        sums = sum_counts(held, rule)
        found = counting.estimated(
            words[1], [sums], words[0], rows=rows, noise=PLAN.count_noise, run_key=KEY
        )
        noisy = measure([sums], rule, PLAN.count_noise, KEY)
        users_of_rows = np.concatenate([each.users for each in found])
        assert np.array_equal(users_of_rows, estimate_users(noisy, rule, expected))
    assert not np.array_equal(users_of_rows, estimate_users(noisy, rule, groups))


class GroupedRows(GramRows):
    """The rows of unlike groups."""

    def groups(self, released):
        return unlike_groups()[-1]
