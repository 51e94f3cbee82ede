"""The estimates of a release are a function of the noisy sums and of the released rows alone."""

import dataclasses

import numpy as np
import pyarrow as pa

from beam_dpne import PrivacyPlan, RunKey
from beam_dpne.counts.estimates import estimate_users
from beam_dpne.counts.measuring import CountSums, measure
from beam_dpne.mechanism.rules import UNITS
from beam_dpne.ngrams.elements import GramSet
from beam_dpne.ngrams.user_counts import count_users, rule_of

KEY = RunKey(b"estimates".ljust(32, b"."))
PLAN = PrivacyPlan(epsilon=4, delta=1e-7, max_length=1, count_share=0.5)
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
RULE = rule_of(WORDS)


def sums_of(counts: np.ndarray) -> CountSums:
    """Sums as if all users held one row."""
    totals = np.zeros((RULE.group_weights.size, RULE.bounds.size), np.int64)
    np.add.at(totals[:, 0], RULE.groups, counts)
    return CountSums(masses=counts * UNITS, totals=totals)


def measured(sums):
    return measure(sums, RULE, PLAN.count_noise, KEY)


def users(sums):
    (counted,) = count_users([WORDS], [sums], plan=PLAN, run_key=KEY)
    return counted.users


def test_the_numbers_are_the_estimates_from_the_measured_sums():
    sums = sums_of(COUNTS)
    found = estimate_users(measured(sums), RULE, WORDS.scores)
    expected = np.stack((found.users, found.low, found.high), axis=1)
    assert np.array_equal(users(sums), expected)
    # The noise is not lost in rounding: without it the numbers would be others.
    exact = dataclasses.replace(
        measured(sums),
        masses=sums.masses / (UNITS * RULE.row_weights),
        totals=sums.totals.astype(np.float64),
    )
    for name in ("masses", "totals"):
        true = dataclasses.replace(measured(sums), **{name: getattr(exact, name)})
        other = estimate_users(true, RULE, WORDS.scores)
        assert not np.array_equal(other.users, found.users)
